//! Declares the one configuration that the sanitizer run sets: `--cfg asan` poisons free frames.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(asan)");
    println!("cargo::rerun-if-changed=build.rs");
}
