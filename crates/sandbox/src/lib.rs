//! Network functions of untrusted code: WebAssembly modules with limits on memory and time.
//!
//! A function `sandbox` is a node whose work a module does, written in C, C++, Rust or any language that compiles to
//! WebAssembly. The interface of modules is `include/netbricks.h`. Read in this order:
//!
//! - `abi` and `host`: what a module sees of its packets, and what the host takes back,
//! - `node` and `policy`: a batch's way through the module, and what happens after a fault,
//! - `backend`: what compiles and runs modules,
//! - `sys`: the ticks that end code that runs too long, and all other unsafe code.
#![deny(unsafe_code)]

mod abi;
mod backend;
mod cache;
mod config;
mod host;
#[cfg(feature = "native")]
mod native;
mod node;
mod policy;
mod prepare;
mod records;
mod starts;
#[expect(unsafe_code, reason = "signals, native code and mappings; each block has its proof")]
mod sys;

use netbricks_core::Registry;

pub use abi::{ABI, BATCH, Writes};
pub use backend::{Contents, Declared, Refused};
pub use config::{KeptState, Mode, SandboxSettings, Stopped};
#[cfg(feature = "native")]
pub use native::native;
pub use node::node;
pub use prepare::Inspection;

/// Adds the function `sandbox`.
pub fn register(registry: &mut Registry) {
    registry
        .add("sandbox", "Runs untrusted code, as a WebAssembly module with limits on memory and time.", node)
        .examples("sandbox", &["module = \"macswap.wasm\"\n"]);
}
