#!/usr/bin/env bash
# The time until an endless loop in the sandbox is ended, and the longest time for which it held its worker: endless.csv.
# setup.sh names the variables that it takes.
source "$(dirname "$0")/setup.sh"
measure endless endless
cat "$out/endless.csv"
