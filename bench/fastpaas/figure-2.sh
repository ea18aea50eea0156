#!/usr/bin/env bash
# Figure 2: tenants in 128 packets, and packets of each: figure-2.csv and .svg.
#
#   bench/fastpaas/figure-2.sh                                      a seeded trace
#   bench/fastpaas/figure-2.sh --capture FILE --prefixes FILE       packets of a capture (pcap or pcapng, also gzipped), and a
#                                                                   file with a line `PREFIX/LENGTH AS` for each prefix
#
# setup.sh names the variables that it takes.
set -euo pipefail
files=()
while [ $# -gt 0 ]; do
    case "$1" in
        --capture | --prefixes) files+=("$1" "$(realpath -e "${2:?$1 needs a file}")") ;;
        *) echo "usage: figure-2.sh [--capture FILE --prefixes FILE]" >&2; exit 2 ;;
    esac
    shift 2
done
source "$(dirname "$0")/setup.sh"
measure figure-2 batches "${files[@]}"
draw 2 figure-2
