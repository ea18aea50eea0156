#!/usr/bin/env bash
# Measures the classifier against DPDK's rte_acl on ClassBench rule sets, with the same headers, in turn on one core.
#
#   bench/classbench.sh FOLDER [ROUNDS] [CORE]
#
# FOLDER has the sets, as NAME.gz. Nothing else should run, and rte_acl needs huge pages (Debian: libdpdk-dev). It prints the
# least ns a lookup of each, for headers that are all new, and for 65,536 known flows, which are in the classifier's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?the folder of the rule sets}")
rounds=${2:-5}
core=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O3 -march=native -Wall -o "$work"/acl bench/acl.c $(pkg-config --cflags --libs libdpdk)
quiet() { nice -n -20 taskset -c "$core" "$@"; }
export NETBRICKS_CLASSBENCH="$folder" NETBRICKS_CLASSBENCH_HEADERS="$work"
cargo bench --quiet -p netbricks-tables --bench classifier --no-run
for round in $(seq "$rounds"); do
    quiet cargo bench --quiet -p netbricks-tables --bench classifier -- sets 5 >>"$work"/ours
    for headers in "$work"/*.new "$work"/*.known; do
        name=$(basename "${headers%.*}")
        [ -e "$work/$name" ] || gzip -dc "$folder/$name.gz" >"$work/$name"
        printf '%s %s ' "$name" "${headers##*.}" >>"$work"/c
        quiet "$work"/acl -l "$core" -m 512 --in-memory --no-pci --no-telemetry --log-level 1 -- \
            "$work/$name" "$headers" 5 2>/dev/null | tail -1 >>"$work"/c
    done
    echo "round $round done" >&2
done
python3 - "$work" <<'PY'
import re, statistics, sys
work, c, ours = sys.argv[1], {}, {}
for line in open(f"{work}/c"):
    name, kind, _, _, ns = line.split()
    c.setdefault((name, kind), []).append(float(ns))
for line in open(f"{work}/ours"):
    found = re.match(r"(\S+) first, (new headers|64k known flows, cache) .* ([\d.]+) ns$", line)
    if found:
        kind = "new" if found[2].startswith("new") else "known"
        ours.setdefault((found[1], kind), []).append(float(found[3]))
print(f"{'':12}{'':8}{'rte_acl':>9}{'ours':>9}{'ratio':>7}")
for key in sorted(ours, key=lambda key: (key[1], key[0])):
    theirs, own = statistics.median(c[key]), statistics.median(ours[key])
    print(f"{key[0]:12}{key[1]:8}{theirs:9.1f}{own:9.1f}{own / theirs:7.2f}")
PY
