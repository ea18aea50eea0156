#!/bin/sh
# Forwarding between two veth pairs under a flood: NetBricks against DPDK's testpmd, on the same interfaces, the same
# core and with the same generator, in turns. Prints packets a second that came out at the far end (in brackets, what the
# generator offered: where both are about the same, the generator was the limit), and the ratios.
#
#   bench/veth-flood.sh [ROUNDS [SECONDS]]        (defaults: 5 rounds of 4 seconds)
#
# Needs root, two free cores, dpdk-testpmd (Debian: dpdk-dev), and the release build of netbricks and of the examples
# of netbricks-ports: cargo build --release && cargo build --release -p netbricks-ports --examples
#
# FORWARDER=netbricks|example  what is measured: `netbricks run`, or the bare driver in a graph (default: netbricks where
#                              it is built).
# GENERATOR_CORE, CORE         where the generator and the forwarder run (defaults 0 and 1).
set -eu

# Above whatever else runs, where the host lets us; not a real-time class, whose throttling would show.
pinned="nice -n -20 taskset -c"

root=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-5}
seconds=${2:-4}
generator_core=${GENERATOR_CORE:-0}
core=${CORE:-1}
target=${CARGO_TARGET_DIR:-$root/target}/release
netbricks=$target/netbricks
forward=$target/examples/forward
flood=$target/examples/flood
forwarder=${FORWARDER:-}
if [ -z "$forwarder" ]; then
    if [ -x "$netbricks" ] && "$netbricks" help 2>/dev/null | grep -q '^ *run'; then forwarder=netbricks; else forwarder=example; fi
fi

fail() { echo "veth-flood: $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
[ "$(nproc)" -ge 2 ] || fail "needs two cores"
command -v dpdk-testpmd >/dev/null || fail "needs dpdk-testpmd (Debian: apt-get install dpdk-dev)"
[ -x "$flood" ] || fail "needs $flood (cargo build --release -p netbricks-ports --examples)"
if [ "$forwarder" = netbricks ]; then [ -x "$netbricks" ]; else [ -x "$forward" ]; fi || fail "the forwarder is not built"

id=nbflood$$
gen=$id-gen
box=$id-box
sink=$id-sink
work=$(mktemp -d)
clean() {
    for name in $gen $box $sink; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# generator g0 = b0 forwarder b1 = s0 sink
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

# Starts a forwarder in the background; leaves its process in $pid.
start() {
    case $1 in
    testpmd:*)
        # It forwards until its standard input ends.
        driver=${1#testpmd:}
        device="--vdev=net_${driver}0,iface=b0 --vdev=net_${driver}1,iface=b1"
        rm -f "$work/stop"
        mkfifo "$work/stop"
        # shellcheck disable=SC2086
        $pinned "$core,$generator_core" ip netns exec "$box" dpdk-testpmd --no-pci --in-memory --log-level=1 \
            --lcores="0@$generator_core,1@$core" --file-prefix="$id" $device -- \
            --forward-mode=io --auto-start --burst=32 --no-lsc-interrupt --portmask=3 --nb-cores=1 \
            --interactive <"$work/stop" >"$work/log" 2>&1 &
        pid=$!
        exec 9>"$work/stop"
        ;;
    example:*)
        driver=${1#example:}
        $pinned "$core" ip netns exec "$box" "$forward" "driver = \"$driver\"  device = \"b0\"" \
            "driver = \"$driver\"  device = \"b1\"" $((seconds + 60)) >"$work/log" 2>&1 &
        pid=$!
        ;;
    netbricks:*)
        driver=${1#netbricks:}
        cat >"$work/flood.toml" <<TOML
[port.left]
driver = "$driver"
device = "b0"

[port.right]
driver = "$driver"
device = "b1"

[[chain]]
from = "left"
to = "right"

[[chain]]
from = "right"
to = "left"
TOML
        $pinned "$core" ip netns exec "$box" "$netbricks" run "$work/flood.toml" --workers 1 --json >"$work/log" 2>&1 &
        pid=$!
        ;;
    esac
}

stop() {
    case $1 in
    testpmd:*) echo quit >&9; exec 9>&- ;;
    *) kill -INT "$pid" 2>/dev/null || true ;;
    esac
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.3
    done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    # Programs and sockets end in the background.
    sleep 0.3
}

# Packets a second through forwarder $1, and Mpps offered.
measure() {
    start "$1"
    sleep 2
    kill -0 "$pid" 2>/dev/null || { cat "$work/log" >&2; fail "$1 did not start"; }
    $pinned "$generator_core" ip netns exec "$gen" "$flood" g0 $((seconds + 1)) >"$work/flood" 2>&1 &
    flooding=$!
    sleep 0.5
    before=$(received)
    sleep "$seconds"
    after=$(received)
    wait "$flooding" || { cat "$work/flood" >&2; fail "the generator failed"; }
    stop "$1"
    echo $(((after - before) / seconds)) "$(awk '{ print $2 }' "$work/flood")"
}

median() { sort -n | awk '{ value[NR] = $1 } END { print (NR % 2) ? value[(NR + 1) / 2] : (value[NR / 2] + value[NR / 2 + 1]) / 2 }'; }

for driver in af_xdp af_packet; do
    : >"$work/ratios"; : >"$work/theirs"; : >"$work/ours"
    round=1
    while [ "$round" -le "$rounds" ]; do
        theirs=$(measure "testpmd:$driver")
        ours=$(measure "$forwarder:$driver")
        theirs_offered=${theirs#* } theirs=${theirs% *}
        ours_offered=${ours#* } ours=${ours% *}
        [ "$theirs" -gt 0 ] || fail "testpmd on net_$driver forwarded nothing: $(tail -3 "$work/log")"
        awk -v d="$driver" -v r="$round" -v f="$forwarder" -v t="$theirs" -v o="$ours" \
            -v to="$theirs_offered" -v oo="$ours_offered" \
            'BEGIN { printf "%-9s round %d  testpmd %.3f Mpps (%s)  %s %.3f Mpps (%s)  ratio %.2f\n", d, r, t / 1e6, to, f, o / 1e6, oo, o / t }'
        echo "$theirs" >>"$work/theirs"
        echo "$ours" >>"$work/ours"
        awk -v t="$theirs" -v o="$ours" 'BEGIN { print o / t }' >>"$work/ratios"
        round=$((round + 1))
    done
    awk -v d="$driver" -v f="$forwarder" -v t="$(median <"$work/theirs")" -v o="$(median <"$work/ours")" -v r="$(median <"$work/ratios")" \
        'BEGIN { printf "%-9s median   testpmd %.3f Mpps  %s %.3f Mpps  ratio %.2f\n", d, t / 1e6, f, o / 1e6, r }'
done
