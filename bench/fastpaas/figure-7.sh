#!/usr/bin/env bash
# Figure 7: the policer between two veth pairs through AF_XDP under a flood: figure-7.csv and .svg. Needs root and two cores.
#
#   bench/fastpaas/figure-7.sh [ROUNDS [SECONDS]]        (defaults: 5 rounds of 2 seconds)
#
# A generator in one network namespace floods the forwarder in the next; what counts are the packets that a third namespace gets.
# GENERATOR_CORE and CORE say where both run (defaults 0 and 1). setup.sh names the other variables that it takes.
set -euo pipefail
rounds="${1:-5}"
seconds="${2:-2}"
if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null; then
    echo "figure-7: skipped: needs root and ip (apt-get install iproute2)" >&2
    exit 77
fi
if [ "$(nproc)" -lt 2 ]; then
    echo "figure-7: skipped: needs two cores" >&2
    exit 77
fi
source "$(dirname "$0")/setup.sh"
generator_core="${GENERATOR_CORE:-0}"
core="${CORE:-1}"
id="nbfig7-$$"
clean() {
    for name in gen box sink; do ip netns del "$id-$name" 2>/dev/null || true; done
}
trap clean EXIT
trap 'exit 1' INT TERM

# generator g0 = b0 forwarder b1 = s0 sink
for name in gen box sink; do
    ip netns add "$id-$name"
    ip netns exec "$id-$name" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
done
ip -n "$id-box" link add b0 type veth peer name g0 netns "$id-gen"
ip -n "$id-box" link add b1 type veth peer name s0 netns "$id-sink"
for pair in "gen g0" "box b0" "box b1" "sink s0"; do
    ip -n "$id-${pair% *}" link set "${pair#* }" up
done
received() { ip netns exec "$id-sink" cat /sys/class/net/s0/statistics/rx_packets; }

partial="$out/figure-7.csv.partial"
echo "round,mode,mpps,offered_mpps,received,sent,dropped" >"$partial"
for ((round = 1; round <= rounds; round++)); do
    echo "figure 7: round $round of $rounds" >&2
    for mode in native rust mapped copy checked write-only; do
        "${quiet[@]}" ip netns exec "$id-box" "$fastpaas" forward b0 b1 "$mode" --modules "$modules" --cores "$core" \
            --seconds $((seconds + 3)) >"$out/forward" &
        forward=$!
        sleep 1
        "${quiet[@]}" ip netns exec "$id-gen" "$fastpaas" flood g0 --cores "$generator_core" --seconds $((seconds + 1)) \
            >"$out/flood" &
        flood=$!
        sleep 0.5
        before="$(received)"
        sleep "$seconds"
        after="$(received)"
        wait "$flood"
        wait "$forward"
        IFS=, read -r _ got sent dropped _ <"$out/forward"
        read -r offered time <"$out/flood"
        awk -v round="$round" -v mode="$mode" -v packets="$((after - before))" -v seconds="$seconds" -v offered="$offered" \
            -v time="$time" -v rest="$got,$sent,$dropped" \
            'BEGIN { printf "%d,%s,%.3f,%.3f,%s\n", round, mode, packets / seconds / 1e6, offered / time / 1e6, rest }' >>"$partial"
    done
done
rm -f "$out/forward" "$out/flood"
mv "$partial" "$out/figure-7.csv"
draw 7 figure-7
