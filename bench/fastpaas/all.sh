#!/usr/bin/env bash
# All figures, one after the other. Takes less than ten minutes after the bench is compiled; nothing else should run meanwhile.
#
#   bench/fastpaas/all.sh            the figures
#   SCALE=1 bench/fastpaas/all.sh    whether everything runs
#
# setup.sh names the other variables that it takes. A figure that this machine cannot take is skipped, with the reason.
source "$(dirname "$0")/setup.sh"
from="$SECONDS"
failed=0
seven=()
[ "${SCALE:-100}" -ge 20 ] || seven=(1 1)
for figure in figure-1 figure-2 figures-5-6 "figure-7 ${seven[*]}" endless quiet; do
    echo "== ${figure%% *}"
    echo "== ${figure%% *} ($((SECONDS - from)) s so far)" >&2
    status=0
    # shellcheck disable=SC2086
    OUT="$out" "$here/${figure%% *}.sh" ${figure#"${figure%% *}"} || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || { failed=1; echo "fastpaas: ${figure%% *} failed" >&2; }
done
echo "fastpaas: $((SECONDS - from)) s, results in $out" >&2
exit "$failed"
