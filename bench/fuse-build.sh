#!/usr/bin/env bash
# Times how long 8 and 64 functions, each of a type of its own and fused into one node, take to compile: rustc on that one
# crate, everything that it depends on built before, nothing kept from build to build. In this workspace's `dev` profile, and
# in its `release` profile without link-time optimisation. Prints one JSON object: the seconds, and their ratio, which
# is 8 where the time is linear.
#
#   bench/fuse-build.sh [ROUNDS]
#
# Of ROUNDS (1) builds each the median counts. Times differ between machines and moments, and nothing fails by them. One
# round takes half a minute, after what the crate depends on; leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds="${1:-1}"
few=8
many=64
target="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/fuse-build")"
crate="$target/crate"
mkdir -p "$crate/src"
export CARGO_TARGET_DIR="$target" CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_LTO=off

{
    cat <<MANIFEST
[package]
name = "fused"
version = "0.0.0"
edition = "2024"
[dependencies]
netbricks-core = { path = "$PWD/crates/core" }
[workspace]
MANIFEST
    # The workspace's profiles: sections up to the next one that is none.
    awk '/^\[/ { profile = /^\[profile\./ } profile' Cargo.toml
} >"$crate/Cargo.toml"
cp Cargo.lock "$crate/Cargo.lock"

# Cargo calls rustc by this for the crate alone; the last call is what compiles it.
export FUSE_BUILD_TIME="$target/nanoseconds" RUSTC_WORKSPACE_WRAPPER="$target/timed"
cat >"$RUSTC_WORKSPACE_WRAPPER" <<'WRAPPER'
#!/usr/bin/env bash
start=$(date +%s%N)
"$@" || exit
echo $(($(date +%s%N) - start)) >"$FUSE_BUILD_TIME"
WRAPPER
chmod +x "$RUSTC_WORKSPACE_WRAPPER"

# Functions like those of crates/core/tests/fuse64.rs, each of which is another type.
write_functions() { # COUNT
    local number then=""
    echo 'use netbricks_core::packet::{Ip, Link};'
    echo 'use netbricks_core::{BuildError, Drop, Function, Input, Node, Operator, Worker, compose};'
    for ((number = 0; number < $1; number++)); do
        cat <<RUST
fn f$number(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .filter(DropReason::TtlExpired, |packet| packet.header().ttl() > 1)
        .transform(|packet| {
            packet.header_mut().decrement_ttl();
            if let Some(last) = packet.payload_mut().last_mut() {
                *last = last.wrapping_add($number);
            }
        })
        .done()
}
RUST
        [ "$number" -eq 0 ] || then+=".then(f$number)"
    done
    echo 'pub fn fused(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {'
    echo "    compose(worker, |input| f0(input)$then)"
    echo '}'
}

build() { # PROFILE COUNT
    write_functions "$2" >"$crate/src/lib.rs"
    "${CARGO:-cargo}" build --quiet --profile "$1" --manifest-path "$crate/Cargo.toml" >&2
}

# Nanoseconds.
median() { # PROFILE COUNT
    local round
    for ((round = 0; round < rounds; round++)); do
        build "$1" "$2"
        cat "$FUSE_BUILD_TIME"
    done | sort -n | sed -n "$(((rounds + 1) / 2))p"
}

times=()
for profile in dev release; do
    build "$profile" 1
    for count in $few $many; do
        times+=("$(median "$profile" "$count")")
    done
done
printf '%s ' "${times[@]}" | awk -v few="$few" -v many="$many" '{
    printf "{\"name\":\"fuse-build\",\"seconds\":{"
    printf "\"dev\":{\"%d\":%.2f,\"%d\":%.2f},\"release\":{\"%d\":%.2f,\"%d\":%.2f}},",
        few, $1 / 1e9, many, $2 / 1e9, few, $3 / 1e9, many, $4 / 1e9
    printf "\"ratio\":{\"dev\":%.1f,\"release\":%.1f}}\n", $2 / $1, $4 / $3
}'
