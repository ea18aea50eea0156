#!/usr/bin/env bash
# Measures our benchmarks against C on DPDK in turn, on one core, and prints the ratios of medians.
#
#   [BUILD_OPTIONS="--features hyperscan"] bench/against-c.sh DIRECTORY [ROUNDS] [CORE]
#
# DIRECTORY holds the C side: nfbench.c and its Makefile (Debian: libdpdk-dev, libhyperscan-dev). Huge pages must be
# reserved (`sysctl -w vm.nr_hugepages=1024`) and nothing else should run. A round in which the control, C's MAC swap,
# moved by more than 3 % from its median over all rounds is marked with a star and left out, and another one is run,
# until ROUNDS (5) are steady or four times as many were run. Then those that are steady count, or all where fewer
# than three are.
#
# BUILD_OPTIONS="--features hyperscan" adds `signature` by that library. Its literals and payloads are others than C's.
#
# C's packets are in mbufs of 2 KiB, whatever their length. Ours are in frames of 2 KiB too, as where a device fills
# them. BENCH_OPTIONS="--short-frames" puts short ones into frames of 512 bytes, as where we copy packets in.
set -euo pipefail
cd "$(dirname "$0")/.."
baseline=${1:?usage: bench/against-c.sh DIRECTORY-WITH-nfbench.c [ROUNDS] [CORE]}
rounds=${2:-5}
core=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$baseline"/nfbench.c "$baseline"/Makefile "$work"/
make -s -C "$work" nfbench 2>/dev/null
# shellcheck disable=SC2086
cargo build --release --quiet ${BUILD_OPTIONS:-}
ours=${CARGO_TARGET_DIR:-target}/release/netbricks
library=()
[[ "${BUILD_OPTIONS:-}" != *hyperscan* ]] || library=(signature-1000-hyperscan)
names=(alloc macswap ttl chain-ttl-4 chain-ttl-8-fused monitor-64k lpm-64k lpm-uniform maglev-90 maglev-100 nat-64k acl-10 acl-64 acl-1000 mmb-acl-64 mmb-acl-1000 signature-1000 "${library[@]}" chain-wire-1 chain-wire-64)
quiet() { nice -n -20 taskset -c "$core" "$@" 2>/dev/null; }
# Without names it answers how many rounds were steady; with them it compares.
cat >"$work"/compare.py <<'PY'
import json, re, statistics, sys
work, run, wanted, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
theirs = {
    "alloc": "a harness alloc/free", "macswap": "b macswap fixed", "ttl": "c parse+ttl+cksum",
    "chain-ttl-4": "chain ttl x4", "chain-ttl-8-fused": "chain ttl x8", "monitor-64k": "f flow monitor 64k bulk",
    # The better of C's two ways.
    "lpm-64k": ("d lpm16k bulk, 64k dsts", "d lpm16k scalar, 64k dsts"),
    "lpm-uniform": ("d lpm16k bulk, uniform rand dst", "d lpm16k scalar, uniform rand dst"),
    "nat-64k": "g NAT 64k bulk",
    "acl-10": "e linear ACL 10, last matches", "acl-64": "e2 rte_acl 64 rules", "acl-1000": "e2 rte_acl 1000 rules",
    "mmb-acl-64": "e2 rte_acl 64 rules", "mmb-acl-1000": "e2 rte_acl 1000 rules",
    "signature-1000": "i hyperscan 1000 lits 512B random a-z",
    "signature-1000-hyperscan": "i hyperscan 1000 lits 512B random a-z",
    "maglev-90": "h maglev+flow cache(90% hit)", "maglev-100": "h maglev+flow cache(100% hit)",
}
goals = {"alloc": 1.06, "macswap": 1.06, "ttl": 1.06, "chain-ttl-4": 1.06, "chain-ttl-8-fused": 1 / 1.4, "monitor-64k": 1 / 1.5, "lpm-64k": 1.0, "lpm-uniform": 1.0, "maglev-90": 1 / 1.5, "maglev-100": 1 / 1.5, "nat-64k": 0.75, "acl-10": 1.0, "acl-64": 0.9, "acl-1000": 0.9, "mmb-acl-64": 1.0, "mmb-acl-1000": 1.0, "signature-1000": 2.0, "signature-1000-hyperscan": 1.0}
# C's payloads have 512 bytes, ours 1,400.
scale = dict.fromkeys(["signature-1000", "signature-1000-hyperscan"], 1400 / 512)
c, ours = [], []
for i in range(1, run + 1):
    found = {}
    for line in open(f"{work}/c.{i}"):
        match = re.match(r"(.+?) +((?:fixed|trace|alloc) +)?([0-9.]+) ns/pkt", line)
        if match:
            found[" ".join(f"{match[1]} {match[2] or ''}".split())] = float(match[3])
    rows = {name: [v for k, v in found.items() if k.startswith(start)] for name, start in theirs.items()}
    c.append({name: min(values) * scale.get(name, 1) for name, values in rows.items() if values})
    rows = [json.loads(line) for line in open(f"{work}/ours.{i}")]
    ours.append({row["name"]: row["ns_per_packet"] for row in rows})
    memory = {row["name"]: row["bytes_per_flow"] for row in rows if "bytes_per_flow" in row}
if not all("macswap" in row for row in c):
    sys.exit(f"no C row `{theirs['macswap']}` in {work}/c.{1 + next(i for i, row in enumerate(c) if 'macswap' not in row)}, "
             "which is the control: does nfbench have the part `mac`, and did it end well?")
control = statistics.median(row["macswap"] for row in c)
steady = [abs(row["macswap"] / control - 1) <= 0.03 for row in c]
if not names:
    print(sum(steady))
    sys.exit()
print("control (C's MAC swap), ns a packet:", "  ".join(f"{row['macswap']:.2f}{'' if ok else '*'}" for row, ok in zip(c, steady)))
if sum(steady) < wanted:
    few = sum(steady) < 3
    print(f"{sum(steady)} of {run} rounds were steady, where {wanted} were wanted:",
          "too few, so that all count, and the ratios are rough" if few else "those count")
    steady = [True] * run if few else steady
print(f"{'':24} {'C':>8} {'ours':>8} {'ratio':>7} {'goal':>7}   ratios by round")
for name in names:
    if name not in theirs:
        continue
    pairs = [(a.get(name), b.get(name)) for a, b, ok in zip(ours, c, steady) if ok]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not both:
        missing = f"no C row `{theirs[name]}`" if any(a is not None for a, _ in pairs) else "no row of ours"
        print(f"{name:24} {missing}")
        continue
    mine, other = [list(side) for side in zip(*both)]
    ratios = [a / b for a, b in both]
    goal = f"{goals[name]:.2f}" if name in goals else "-"
    print(f"{name:24} {statistics.median(other):8.2f} {statistics.median(mine):8.2f} {statistics.median(ratios):7.2f} {goal:>7}   "
          + " ".join(f"{r:.2f}" for r in ratios))
for name, size in memory.items():
    print(f"{name}: {size:.1f} bytes a flow of capacity")
slopes = [(row["chain-wire-64"] - row["chain-wire-1"]) / 63 for row, ok in zip(ours, steady) if ok]
print(f"{'a node boundary':24} {'':8} {statistics.median(slopes):8.3f} {'':7} {0.3:7.2f}   " + " ".join(f"{s:.3f}" for s in slopes))
PY
round=0
steady=0
while [ "$steady" -lt "$rounds" ] && [ "$round" -lt $((4 * rounds)) ]; do
    round=$((round + 1))
    for part in base mac ttl chain mon lpm mag nat acl hs; do
        quiet "$work"/nfbench -l "$core" -m 1024 --in-memory --no-pci --no-telemetry -- "$part" >>"$work/c.$round"
        case $part in
            base) set -- alloc ;;
            mac) set -- macswap ;;
            ttl) set -- ttl ;;
            chain) set -- chain-ttl-4 chain-ttl-8-fused chain-wire-1 chain-wire-64 ;;
            mon) set -- monitor-64k ;;
            lpm) set -- lpm-64k lpm-uniform ;;
            mag) set -- maglev-90 maglev-100 ;;
            nat) set -- nat-64k ;;
            acl) set -- acl-10 acl-64 acl-1000 mmb-acl-64 mmb-acl-1000 ;;
            hs) set -- signature-1000 "${library[@]}" ;;
        esac
        # shellcheck disable=SC2086
        quiet "$ours" bench --json --core "$core" ${BENCH_OPTIONS:-} "$@" >>"$work/ours.$round"
    done
    steady=$(python3 "$work"/compare.py "$work" "$round" "$rounds")
    echo "round $round done: $steady of $rounds steady" >&2
done
python3 "$work"/compare.py "$work" "$round" "$rounds" "${names[@]}"
