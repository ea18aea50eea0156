//! MAC swap as a module in the sandbox, in each of its modes.

use netbricks_core::{NoSettings, Registry};
use netbricks_sandbox::{Mode, SandboxSettings, node};

/// The module: `crates/sandbox/tests/modules/macswap.wat`, assembled.
pub(super) const MACSWAP: &[u8] = include_bytes!("macswap.wasm");

/// The functions with their modes.
const FUNCTIONS: [(&str, Mode); 2] =
    [("sandbox-macswap-copy", Mode::Copy), ("sandbox-macswap-mapped", Mode::Mapped)];

/// Adds `sandbox-macswap-copy` and `sandbox-macswap-mapped`.
pub(super) fn register(registry: &mut Registry) {
    for (name, mode) in FUNCTIONS {
        let mut settings = SandboxSettings::of(MACSWAP);
        settings.mode = mode;
        // A bench on a busy machine is slow, but loses no packets.
        settings.slice = netbricks_core::units::Duration::from_nanoseconds(10_000_000);
        registry.add(name, "Swaps the Ethernet addresses.", move |_: &NoSettings, worker| {
            node(&settings, worker)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::MACSWAP;

    #[test]
    fn the_module_is_the_text_beside_the_sandbox_tests() {
        let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../sandbox/tests/modules/macswap.wat");
        assert!(wat::parse_file(text).unwrap() == MACSWAP, "assemble {text} again");
    }
}
