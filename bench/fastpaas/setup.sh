# Sourced by the scripts beside it: compiles the modules and the bench, and says where they are and where results go.
#
# Variables that it takes:
#   OUT       the folder for CSV and SVG (default: fastpaas in Cargo's target folder)
#   SCALE     the part of a full run in percent (default 100); 1 shows in a minute whether everything runs
#   CORES     the cores to run on (default: all, the last first); figures of one worker take the first of them
#   PROFILE   the profile of Cargo (default: bench; `dev` compiles sooner, and its figures mean nothing)
#   FASTPAAS  a bench that is compiled already
#
# Variables that it sets: out, modules, fastpaas, here; and the functions `measure` and `draw`.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here/../.."

for program in clang-19 ld.lld-19 wasm-ld-19 make python3; do
    if ! command -v "$program" >/dev/null; then
        echo "fastpaas: skipped: there is no $program (apt-get install clang-19 lld-19 make python3)" >&2
        exit 77
    fi
done

out="$(realpath -m "${OUT:-${CARGO_TARGET_DIR:-target}/fastpaas}")"
modules="$out/modules"
mkdir -p "$modules"
make -s -C "$here/c" OUT="$modules" >&2

fastpaas="${FASTPAAS:-}"
if [ -z "$fastpaas" ]; then
    # Cargo tells in JSON where the bench is.
    built="$(cargo build -q -p netbricks --bench fastpaas --profile "${PROFILE:-bench}" --message-format json)"
    fastpaas="$(python3 -c '
import json, sys
artifacts = (json.loads(line) for line in sys.stdin if line.startswith("{"))
print(next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "fastpaas"))
' <<<"$built")"
    export FASTPAAS="$fastpaas"
fi

options=(--modules "$modules" --scale "${SCALE:-100}")
[ -z "${CORES:-}" ] || options+=(--cores "$CORES")
# Above whatever else runs, where the system lets us; not a real-time class, whose throttling would show.
quiet=()
[ "$(nice -n -20 nice 2>/dev/null)" != -20 ] || quiet=(nice -n -20)

# measure NAME COMMAND... writes NAME.csv.
measure() {
    local name="$1"
    shift
    "${quiet[@]}" "$fastpaas" "$@" "${options[@]}" >"$out/$name.csv.partial"
    mv "$out/$name.csv.partial" "$out/$name.csv"
}

# draw FIGURE NAME draws NAME.svg from NAME.csv, and prints a table beside the paper's figures.
draw() {
    python3 "$here/draw.py" "$1" "$out/$2.csv" "$out/$2.svg"
    echo "$out/$2.csv, $out/$2.svg" >&2
}
