#!/usr/bin/env bash
# Measures Click configurations here and in FastClick, in memory and on one thread, and prints ns a packet.
#
#   bench/against-fastclick.sh [--json] FASTCLICK [ROUNDS] [CORE]        (default: 5 rounds on core 1)
#
# FASTCLICK is the program `click` of tbarbette/fastclick: `./configure --enable-batch --disable-linuxmodule && make`.
# Without it, there is nothing to compare with, which the script says. Nothing else should run.
#
# Ours is `cargo bench -p netbricks-click --bench elements`, which has its own graph's cost off. FastClick replays 1,024
# frames of 64 bytes from memory, and writes into each, so that each is a packet of its own. Its figure is the time of a
# long run over that of a short one, less the same without the elements. It has as many rules and router elements as ours,
# and 1,024 flows in the rewriter.
set -euo pipefail
cd "$(dirname "$0")/.."
json=
if [ "${1:-}" = --json ]; then json=1 && shift; fi
theirs=${1:?usage: bench/against-fastclick.sh [--json] FASTCLICK [ROUNDS] [CORE]}
rounds=${2:-5}
core=${3:-1}
if [ ! -x "$theirs" ]; then
    echo "skipped: there is no FastClick at $theirs" >&2
    exit 0
fi
cargo bench --quiet -p netbricks-click --bench elements --no-run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$work" "$theirs" "$rounds" "$core" "$json" <<'PY'
import json, os, statistics, struct, subprocess, sys, time
work, theirs, rounds, core, as_json = sys.argv[1:]
SHORT, LONG = 1_000, 11_000  # passes of the frames
FEWER = {"click-ip-filter-64": 4, "click-ip-filter-1000": 50}  # a part of them, where each packet takes long
STARTED = 1 << 18  # packets within which FastClick knows its neighbours

def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

def frame(number):
    ethernet = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 9, 9, 8, 0])
    source = bytes([10, number >> 8, number & 255, 7])
    destination = bytes([1 + number * 7 % 99, number & 255, 3, 4])
    header = bytes([0x45, 0, 0, 46, 0, 0, 0, 0, 255, 17, 0, 0]) + source + destination
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return ethernet + header + struct.pack("!4H", 1024 + number, 5000, 26, 0) + bytes(18)

with open(f"{work}/frames.pcap", "wb") as file:
    file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for number in range(1024):
        data = frame(number)
        file.write(struct.pack("<IIII", number, 0, len(data), len(data)) + data)

def rules(count):
    lines = [f"deny src net 192.{number >> 8}.{number & 255}.0/24 && udp && dst port {number % 1000}"
             for number in range(count - 1)]
    return "MarkIPHeader(14) -> IPFilter(" + ", ".join(lines + ["allow all"]) + ")"

ROUTER = """querier :: ARPQuerier(192.0.2.1, 02:00:00:00:00:02, TIMEOUT 0, POLL_TIMEOUT 0);
kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
kinds[0] -> ARPResponder(192.0.2.1 02:00:00:00:00:02) -> end; kinds[1] -> [1] querier; kinds[3] -> Discard;
kinds[2] -> Paint(1) -> Strip(14) -> CheckIPHeader -> GetIPAddress(16)
-> routes :: LinearIPLookup(192.0.2.1/32 0, 0.0.0.0/2 192.0.2.2 1, 64.0.0.0/2 192.0.2.3 1); routes[0] -> Discard;
routes[1] -> DropBroadcasts -> redirect :: PaintTee(2) -> options :: IPGWOptions(192.0.2.1) -> FixIPSrc(192.0.2.1)
-> ttl :: DecIPTTL -> fragments :: IPFragmenter(1500)
-> querier -> end;
redirect[1] -> ICMPError(192.0.2.1, redirect, host) -> routes;
options[1] -> ICMPError(192.0.2.1, parameterproblem) -> routes;
ttl[1] -> ICMPError(192.0.2.1, timeexceeded) -> routes;
fragments[1] -> ICMPError(192.0.2.1, unreachable, needfrag) -> routes;
Script(write querier.insert 192.0.2.2 02:00:00:00:01:02, write querier.insert 192.0.2.3 02:00:00:00:01:03);
"""
WORK = {
    "click-ether-mirror": "begin -> EtherMirror -> end;",
    "click-ip-router": ROUTER.replace("kinds ::", "begin -> kinds ::", 1),
    **{f"click-ip-filter-{count}": f"begin -> {rules(count)} -> end;" for count in (10, 64, 1000)},
    "click-ip-rewriter-64k": "begin -> MarkIPHeader(14) -> rw :: IPRewriter(pattern 198.18.0.0 1024-65535 - - 0 1) -> end;"
        " rw[1] -> Discard;",
}

def run(elements, passes):
    text = f"""FromDump({work}/frames.pcap, STOP false) -> source :: ReplayUnqueue(STOP {passes}, BURST 32, VERBOSE false)
    -> begin :: StoreData(12, \\<0800>); end :: Counter -> Discard;
    {elements}
    DriverManager(wait, wait 0.01s, print end.count, stop);"""
    with open(f"{work}/config.click", "w") as file:
        file.write(text)
    begin = time.perf_counter()
    done = subprocess.run(["taskset", "-c", core, theirs, f"{work}/config.click"], capture_output=True, text=True)
    spent = time.perf_counter() - begin
    counts = [int(word) for word in done.stdout.split() if word.isdigit()]
    if done.returncode or len(counts) != 1 or not passes * 1024 - STARTED <= counts[0] <= passes * 1024:
        sys.exit(f"FastClick passed {counts} of {passes * 1024} packets:\n{done.stderr[-800:]}")
    return spent

def cost(elements, part=1):
    short, long = SHORT // part, LONG // part
    return (run(elements, long) - run(elements, short)) / ((long - short) * 1024) * 1e9

def measured():
    words = ["cargo", "bench", "--quiet", "-p", "netbricks-click", "--bench", "elements", "--", "--json", *WORK]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return {figure["scenario"]: figure for figure in json.loads(said.splitlines()[-1])["figures"]}

found = []
for _ in range(int(rounds)):
    rows, empty = measured(), cost("begin -> end;")
    theirs_of = {name: cost(elements, FEWER.get(name, 1)) - empty for name, elements in WORK.items()}
    found.append({name: (rows[name]["value"], rows[name]["native"], theirs_of[name]) for name in WORK})
figures = {name: [statistics.median(row[name][column] for row in found) for column in range(3)] for name in WORK}
if as_json:
    columns = ("click_ns", "native_ns", "fastclick_ns")
    print(json.dumps({name: dict(zip(columns, row)) for name, row in figures.items()}))
else:
    print(f"{'ns a packet':24}{'Click here':>12}{'native':>12}{'FastClick':>12}")
    for name, row in figures.items():
        print(f"{name:24}" + "".join(f"{value:12.1f}" for value in row))
PY
