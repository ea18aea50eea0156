#!/usr/bin/env bash
# Figure 1: chains of 1 to 4 LPM, run to completion against a thread or a process for each function: figure-1.csv and .svg.
# setup.sh names the variables that it takes.
source "$(dirname "$0")/setup.sh"
measure figure-1 chains
draw 1 figure-1
