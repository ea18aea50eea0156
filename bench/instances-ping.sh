#!/bin/sh
# Pings through an instance, against the kernel's own echo, over veth pairs between network namespaces: the instance alone,
# and beside 11 instances that spin. Prints the median round trip of each (us).
#
#   bench/instances-ping.sh [--json] [PINGS]        (default: 2000 pings of each)
#
# The worker polls without sleep (`idle = "latency"`), as ClickOS does. The port is `af_xdp`: `af_packet` hands packets over after up
# to its `block_timeout`, 1 ms.
#
# Needs root, two free cores, ping, and the release build of netbricks: cargo build --release -p netbricks
#
# NETBRICKS    the program (default: that build)
# PING_CORE, CORE    where ping and the worker run (defaults 0 and 1).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
json=
if [ "${1:-}" = --json ]; then json=1 && shift; fi
pings=${1:-2000}
netbricks=${NETBRICKS:-${CARGO_TARGET_DIR:-$root/target}/release/netbricks}
ping_core=${PING_CORE:-0}
core=${CORE:-1}
spinning=11

fail() { echo "instances-ping: $1" >&2; exit 1; }
case $pings in '' | *[!0-9]*) fail "PINGS must be a number, found \`$pings\`" ;; esac
[ "$(id -u)" = 0 ] || fail "needs root"
command -v ping >/dev/null || fail "needs ping (Debian: apt-get install iputils-ping)"
[ -x "$netbricks" ] || fail "needs $netbricks (cargo build --release -p netbricks)"

id=nbping$$
near=$id-near
far=$id-far
work=$(mktemp -d)
pid=
clean() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    for name in $near $far; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# ping k0 = k1 the kernel's echo; ping n0 = n1 the switch of the instances
for name in $near $far; do
    ip netns add "$name"
    ip netns exec "$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
done
ip -n "$near" link add k0 type veth peer name k1 netns "$far"
ip -n "$near" link add n0 type veth peer name n1 netns "$far"
ip -n "$near" addr add 10.9.0.1/24 dev k0
ip -n "$far" addr add 10.9.0.2/24 dev k1
ip -n "$near" addr add 10.9.1.1/24 dev n0
for pair in "$near k0" "$near n0" "$far k1" "$far n1"; do
    ip -n "${pair% *}" link set "${pair#* }" up
done

cat >"$work/echo.click" <<'END'
FromDevice(0) -> kinds :: Classifier(12/0806 20/0001, 12/0800, -);
kinds[0] -> ARPResponder(10.9.1.2 02:00:00:00:01:00) -> out :: ToDevice(0);
kinds[1] -> CheckIPHeader(OFFSET 14) -> echo :: IPClassifier(icmp type echo, -);
echo[0] -> ICMPPingResponder -> EtherMirror -> out;
echo[1] -> Discard;
kinds[2] -> Discard;
END
chain() {
    cat <<END
[runtime]
workers = 1
idle = "latency"
cores = "$core"

[port.wire]
driver = "af_xdp"
device = "n1"

[function.host]
use = "instances"
learning = true

[instance.echo]
file = "echo.click"
mac = "02:00:00:00:01:00"

[[chain]]
from = "wire"
through = ["host"]
to = "wire"
END
    for number in $(seq 1 "$1"); do
        printf '\n[instance.spin%s]\ntext = "InfiniteSource(LIMIT -1, BURST 32) -> Discard;"\n' "$number"
    done
}

# The median round trip to an address (us). All pings must be answered.
median() {
    ip netns exec "$near" taskset -c "$ping_core" ping -n -c "$pings" -i 0.002 -W 1 "$1" >"$work/log" ||
        fail "pings to $1 were not answered: $(tail -3 "$work/log")"
    sed -n 's/.* time=\([0-9.]*\) ms/\1/p' "$work/log" | sort -n |
        awk '{ all[NR] = $1 } END { printf "%.1f", all[int((NR + 1) / 2)] * 1000 }'
}

# The median through the instance, beside so many that spin.
through() {
    chain "$1" >"$work/chain.toml"
    ip netns exec "$far" "$netbricks" run "$work/chain.toml" >"$work/run" 2>&1 &
    pid=$!
    tries=0
    until ip netns exec "$near" ping -n -c 1 -W 1 10.9.1.2 >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] || fail "the instance does not answer: $(tail -20 "$work/run")"
        kill -0 "$pid" 2>/dev/null || fail "the run has ended: $(tail -20 "$work/run")"
    done
    found=$(median 10.9.1.2)
    kill -INT "$pid"
    wait "$pid" || true
    pid=
}

kernel=$(median 10.9.0.2)
through 0
alone=$found
through $spinning
beside=$found
over=$(awk "BEGIN { printf \"%.1f\", $alone - $kernel }")
if [ -n "$json" ]; then
    printf '{"pings":%s,"kernel_us":%s,"instance_us":%s,"over_kernel_us":%s,"beside_%s_us":%s}\n' \
        "$pings" "$kernel" "$alone" "$over" "$spinning" "$beside"
else
    printf '%-44s %8s us\n' "the kernel's echo" "$kernel" "through an instance" "$alone" \
        "  more than the kernel (at most 15)" "$over" "beside $spinning that spin (at most 100)" "$beside"
fi
