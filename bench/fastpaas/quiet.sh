#!/usr/bin/env bash
# The latency of a quiet tenant (20,000 packets a second), alone and beside 7 tenants whose modules hog the worker: quiet.csv.
# setup.sh names the variables that it takes.
source "$(dirname "$0")/setup.sh"
measure quiet quiet
cat "$out/quiet.csv"
