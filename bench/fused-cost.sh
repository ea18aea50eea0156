#!/usr/bin/env bash
# Counts the instructions that each of 8 and each of 64 functions fused into one node costs a packet (the TTL function at
# bursts of 32, counters on), and prints one JSON object. One of 8 may cost 25 instructions, and one of 64 may cost 60: the
# compiler merges the work of a short row, and a long row is divided into loops over the batch.
#
# As bench/counter-cost.sh: runs under callgrind, differences of differences, the same number in every run.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "fused-cost: skipped: valgrind is not installed (apt-get install valgrind)" >&2
    exit 77
fi

few=8
many=64
few_limit=25
many_limit=60
short=500
long=2500
burst=32

# For the processor as in bench/counter-cost.sh, but optimised over all crates as what is shipped is: without that, every
# header is read by calls.
target="${CARGO_TARGET_DIR:-target}/callgrind-whole"
case "$(uname -m)" in
    x86_64) flags="-C target-cpu=x86-64-v3" ;;
    *) flags="" ;;
esac
CARGO_TARGET_DIR="$target" CARGO_ENCODED_RUSTFLAGS="${flags// /$'\x1f'}" \
    "${CARGO:-cargo}" build --quiet --release --package netbricks-core --example fused_cost >&2
binary="$target/release/examples/fused_cost"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

instructions() { # FUNCTIONS TURNS
    valgrind --tool=callgrind --callgrind-out-file="$scratch/$1-$2" "$binary" "$1" "$2" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log" >&2; return 1; }
    awk '/^(summary|totals):/ { print $2; exit }' "$scratch/$1-$2"
}

# Of FUNCTIONS functions and all around them, without what comes once.
span() { # FUNCTIONS
    echo $(($(instructions "$1" $long) - $(instructions "$1" $short)))
}

none=$(span 0)
at_few=$(span $few)
at_many=$(span $many)
packets=$(((long - short) * burst))
awk -v none="$none" -v at_few="$at_few" -v at_many="$at_many" -v packets="$packets" -v few="$few" -v many="$many" \
    -v few_limit="$few_limit" -v many_limit="$many_limit" -v burst="$burst" 'BEGIN {
    one_of_few = (at_few - none) / (packets * few)
    one_of_many = (at_many - none) / (packets * many)
    printf "{\"name\":\"fused-cost\",\"instructions_per_packet\":{\"%d\":%.3f,\"%d\":%.3f},\"limits\":{\"%d\":%d,\"%d\":%d},\"burst\":%d}\n",
        few, one_of_few, many, one_of_many, few, few_limit, many, many_limit, burst
    exit !(one_of_few > 0 && one_of_many > 0 && one_of_few <= few_limit && one_of_many <= many_limit)
}'
