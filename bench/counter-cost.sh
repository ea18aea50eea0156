#!/usr/bin/env bash
# Counts the instructions that a node boundary costs a packet at bursts of 32: the dynamic call, the hand-over and the
# counters of packets, bytes and sampled cycles. Then the same where a node drops an eighth of its packets for two
# reasons: with what it costs more to count them by reason than to free them. Prints one JSON object; fails above 4
# instructions a packet, and above 7 where packets are dropped.
#
# Runs under callgrind, differences of differences: neither start-up nor source and sink nor the freeing of packets are
# in the numbers, and they are the same in every run.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "counter-cost: skipped: valgrind is not installed (apt-get install valgrind)" >&2
    exit 77
fi

limit=4
limit_with_drops=7
few=1
many=17
short=2000
long=10000
burst=32

# Valgrind does not know AVX-512, which a build for this machine may use; what is counted uses no vectors. A target
# directory of its own keeps the machine's own build.
target="${CARGO_TARGET_DIR:-target}/callgrind"
case "$(uname -m)" in
    x86_64) flags="-C target-cpu=x86-64-v3" ;;
    *) flags="" ;;
esac
# Without link-time optimisation, which builds faster and can only cost more.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
CARGO_TARGET_DIR="$target" CARGO_ENCODED_RUSTFLAGS="${flags// /$'\x1f'}" \
    "${CARGO:-cargo}" build --quiet --release --package netbricks-runtime --example counter_cost >&2
binary="$target/release/examples/counter_cost"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

instructions() { # KIND NODES TURNS
    valgrind --tool=callgrind --callgrind-out-file="$scratch/$1-$2-$3" "$binary" "$1" "$2" "$3" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log" >&2; return 1; }
    awk '/^(summary|totals):/ { print $2; exit }' "$scratch/$1-$2-$3"
}

# Of nodes and all around them, without what comes once.
span() { # KIND NODES
    local at_long at_short
    at_long=$(instructions "$1" "$2" $long)
    at_short=$(instructions "$1" "$2" $short)
    echo $((at_long - at_short))
}

of_many=$(span pass $many)
of_few=$(span pass $few)
dropped=$(span drop 1)
freed=$(span free 1)
packets=$(((long - short) * burst))
awk -v of_many="$of_many" -v of_few="$of_few" -v dropped="$dropped" -v freed="$freed" -v packets="$packets" \
    -v nodes="$((many - few))" -v limit="$limit" -v limit_with_drops="$limit_with_drops" \
    -v burst="$burst" 'BEGIN {
    cost = (of_many - of_few) / (packets * nodes)
    dropping = cost + (dropped - freed) / packets
    printf "{\"name\":\"counter-cost\",\"instructions_per_packet\":%.3f,\"instructions_per_batch\":%.1f,\"limit\":%d,",
        cost, cost * burst, limit
    printf "\"with_drops\":{\"instructions_per_packet\":%.3f,\"limit\":%d},\"burst\":%d}\n",
        dropping, limit_with_drops, burst
    exit !(cost > 0 && cost <= limit && dropping > cost && dropping <= limit_with_drops)
}'
