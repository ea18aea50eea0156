#!/bin/sh
# Rules between two veth pairs under a flood: `mmb` of NetBricks against the kernel's bridge with nftables, with the same rules,
# on the same interfaces and with the same generator, in turns. No packet of the flood matches a rule but the last. Prints packets
# a second that came out at the far end (in brackets, what the generator offered), and the ratios.
#
#   bench/veth-rules.sh [ROUNDS [SECONDS]]        (defaults: 3 rounds of 3 seconds)
#
# Needs root, two free cores, nft, and release builds: cargo build --release && cargo build --release -p netbricks-ports --examples
#
# RULES                  numbers of rules (default "64 1000")
# DRIVERS                drivers of the ports (default "af_xdp af_packet")
# GENERATOR_CORE, CORE   where the generator and netbricks run (defaults 0 and 1); the kernel forwards where the generator runs.
set -eu

pinned="nice -n -20 taskset -c"
root=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-3}
seconds=${2:-3}
generator_core=${GENERATOR_CORE:-0}
core=${CORE:-1}
target=${CARGO_TARGET_DIR:-$root/target}/release
netbricks=$target/netbricks
flood=$target/examples/flood

fail() { echo "veth-rules: $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
command -v nft >/dev/null || fail "needs nft (Debian: apt-get install nftables)"
[ -x "$netbricks" ] || fail "needs $netbricks (cargo build --release)"
[ -x "$flood" ] || fail "needs $flood (cargo build --release -p netbricks-ports --examples)"

id=nbrules$$
gen=$id-gen
box=$id-box
sink=$id-sink
work=$(mktemp -d)
pid=
clean() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    for name in $gen $box $sink; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# generator g0 = b0 rules b1 = s0 sink
for name in $gen $box $sink; do
    ip netns add "$name"
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
done
ip -n "$box" link add b0 type veth peer name g0 netns "$gen"
ip -n "$box" link add b1 type veth peer name s0 netns "$sink"
for pair in "$gen g0" "$box b0" "$box b1" "$sink s0"; do
    ip -n "${pair% *}" link set "${pair#* }" up
done

received() { ip netns exec "$sink" cat /sys/class/net/s0/statistics/rx_packets; }

# So many rules less one, each with other prefixes and ports, as `SOURCE/LENGTH DESTINATION LOW HIGH` a line.
rules() {
    awk -v count="$1" 'BEGIN {
        srand(31)
        for (i = 1; i < count; i++) {
            low = int(rand() * 1000)
            printf "192.%d.%d.0/24 198.%d.%d.0/24 %d %d\n", rand() * 256, rand() * 256, rand() * 256, rand() * 256, low, low + 100
        }
    }'
}

# Starts the rules of kind $1, $2 of them.
start() {
    case $1 in
    nft)
        {
            printf 'table bridge rules {\nchain forward {\ntype filter hook forward priority 0; policy accept;\n'
            rules "$2" | awk '{ printf "ip saddr %s ip daddr %s udp dport %s-%s drop\n", $1, $2, $3, $4 }'
            printf '}\n}\n'
        } >"$work/rules.nft"
        ip -n "$box" link add br0 type bridge
        ip -n "$box" link set b0 master br0
        ip -n "$box" link set b1 master br0
        ip -n "$box" link set br0 up
        ip netns exec "$box" nft -f "$work/rules.nft"
        ;;
    *)
        rules "$2" | awk '{ printf "add ip-saddr %s ip-daddr %s udp-dport %s-%s drop\n", $1, $2, $3, $4 }' >"$work/rules.mmb"
        cat >"$work/rules.toml" <<TOML
[port.left]
driver = "$1"
device = "b0"

[port.right]
driver = "$1"
device = "b1"

[function.rules]
use = "mmb"
rules = "rules.mmb"

[[chain]]
from = "left"
through = ["rules"]
to = "right"
TOML
        $pinned "$core" ip netns exec "$box" "$netbricks" run "$work/rules.toml" --workers 1 --json >"$work/log" 2>&1 &
        pid=$!
        ;;
    esac
}

stop() {
    case $1 in
    nft)
        ip netns exec "$box" nft flush ruleset
        ip -n "$box" link del br0
        ;;
    *)
        kill -INT "$pid" 2>/dev/null || true
        wait "$pid" || true
        pid=
        ;;
    esac
    sleep 0.3
}

# Packets a second through rules $1, $2 of them, and Mpps offered.
measure() {
    start "$1" "$2"
    sleep 2
    [ "$1" = nft ] || kill -0 "$pid" 2>/dev/null || { cat "$work/log" >&2; fail "netbricks with $1 did not start"; }
    $pinned "$generator_core" ip netns exec "$gen" "$flood" g0 $((seconds + 1)) >"$work/flood" 2>&1 &
    flooding=$!
    sleep 0.5
    before=$(received)
    sleep "$seconds"
    after=$(received)
    wait "$flooding" || { cat "$work/flood" >&2; fail "the generator failed"; }
    stop "$1"
    result="$(((after - before) / seconds)) $(awk '{ print $2 }' "$work/flood")"
}

median() { sort -n | awk '{ value[NR] = $1 } END { print (NR % 2) ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }

for count in ${RULES:-64 1000}; do
    for driver in ${DRIVERS:-af_xdp af_packet}; do
        : >"$work/ratios"
        round=1
        while [ "$round" -le "$rounds" ]; do
            measure nft "$count"
            theirs=$result
            measure "$driver" "$count"
            ours=$result
            [ "${theirs% *}" -gt 0 ] || fail "nothing passed the bridge"
            awk -v d="$driver" -v n="$count" -v r="$round" -v t="${theirs% *}" -v o="${ours% *}" -v to="${theirs#* }" -v oo="${ours#* }" \
                'BEGIN { printf "%4d rules round %d  nftables %.3f Mpps (%s)  mmb, %s %.3f Mpps (%s)  ratio %.2f\n", n, r, t / 1e6, to, d, o / 1e6, oo, o / t }'
            echo "${theirs% *} ${ours% *}" | awk '{ print $2 / $1 }' >>"$work/ratios"
            round=$((round + 1))
        done
        echo "$count rules, $driver: median ratio $(median <"$work/ratios")"
    done
done
