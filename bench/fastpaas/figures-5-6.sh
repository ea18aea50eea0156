#!/usr/bin/env bash
# Figures 5 and 6: each function natively, in Rust and in the sandbox, at bursts of 8, 32 and 128: figures-5-6.csv and .svg.
# setup.sh names the variables that it takes.
source "$(dirname "$0")/setup.sh"
measure figures-5-6 modes
draw 5 figures-5-6
