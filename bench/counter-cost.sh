#!/usr/bin/env bash
# Counts the instructions that a node boundary costs a packet at bursts of 32: the dynamic call, the hand-over and all
# counters (packets, bytes, drops, sampled cycles). Prints one JSON object; fails above 4 instructions a packet.
#
# Four runs under callgrind, differences of differences: neither start-up nor source and sink are in the number, and
# it is the same in every run.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v valgrind >/dev/null; then
    echo "counter-cost: skipped: valgrind is not installed (apt-get install valgrind)" >&2
    exit 77
fi

limit=4
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

instructions() { # NODES TURNS
    valgrind --tool=callgrind --callgrind-out-file="$scratch/$1-$2" "$binary" "$1" "$2" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log" >&2; return 1; }
    awk '/^(summary|totals):/ { print $2; exit }' "$scratch/$1-$2"
}

a=$(instructions $many $long)
b=$(instructions $many $short)
c=$(instructions $few $long)
d=$(instructions $few $short)
packets=$(((long - short) * burst))
awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" -v packets="$packets" -v nodes="$((many - few))" -v limit="$limit" \
    -v burst="$burst" 'BEGIN {
    cost = ((a - b) - (c - d)) / (packets * nodes)
    printf "{\"name\":\"counter-cost\",\"instructions_per_packet\":%.3f,\"instructions_per_batch\":%.1f,\"limit\":%d,\"burst\":%d}\n",
        cost, cost * burst, limit, burst
    exit !(cost > 0 && cost <= limit)
}'
