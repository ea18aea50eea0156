#!/usr/bin/env bash
# Measures `netbricks bench array-N` against array.c in turn, on one core, and prints the median of the ratios for each N.
#
#   bench/array.sh [ROUNDS] [CORE] [N...]
#
# Nothing else should run. The goal is 1.05 at each N (the NetBricks paper's Figure 1: 1.2 for 1 to 8 accesses).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
core=${2:-1}
shift $(($# < 2 ? $# : 2))
counts=("$@")
[ $# -gt 0 ] || counts=(1 2 4 8 16 32 64 128 256 512)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O3 -march=native -Wall -o "$work"/array bench/array.c
ours=${NETBRICKS:-}
if [ -z "$ours" ]; then
    cargo build --release --quiet -p netbricks-cli
    ours=${CARGO_TARGET_DIR:-target}/release/netbricks
fi
quiet() { nice -n -20 taskset -c "$core" "$@"; }
for round in $(seq "$rounds"); do
    quiet "$work"/array "${counts[@]}" >>"$work"/c
    quiet "$ours" bench --json --core "$core" "${counts[@]/#/array-}" 2>/dev/null >>"$work"/ours
    echo "round $round done" >&2
done
python3 - "$work" "${counts[@]}" <<'PY'
import json, statistics, sys
work, counts = sys.argv[1], sys.argv[2:]
c, ours = {}, {}
for line in open(f"{work}/c"):
    name, time = line.split()
    c.setdefault(name, []).append(float(time))
for line in open(f"{work}/ours"):
    row = json.loads(line)
    ours.setdefault(row["name"], []).append(row["ns_per_packet"])
print(f"{'':12}{'C':>9}{'ours':>9}{'ratio':>7}   ratios by round")
for count in counts:
    name = f"array-{count}"
    ratios = [mine / theirs for mine, theirs in zip(ours[name], c[name])]
    print(f"{name:12}{statistics.median(c[name]):9.2f}{statistics.median(ours[name]):9.2f}{statistics.median(ratios):7.2f}   "
          + " ".join(f"{ratio:.2f}" for ratio in ratios))
PY
