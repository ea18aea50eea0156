//! Rules over packets: what they match, how they rewrite, which connections they make.

mod changed;
mod corrected;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod explained;
mod fragments;
mod given;
mod options;
mod scapy;
mod taken_over;
mod tracked;

use netbricks_core::{Registry, Worker};
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::{Frame, Report, run_node};

/// Runs packets through rules, at batches of 1, 32 and 256.
fn run<P: Frame>(lines: &[&str], frames: impl IntoIterator<Item = P>) -> Report {
    let settings = MmbSettings::of(lines.iter().copied());
    run_node(move |worker: &Worker| node(&settings, worker), frames)
}

/// The frame that comes out, where one does.
fn through<P: Frame>(lines: &[&str], frame: P) -> Option<Vec<u8>> {
    run(lines, [frame]).out.into_iter().next()
}

#[test]
fn the_standard_settings_build() {
    let mut registry = Registry::new();
    netbricks_mmb::register(&mut registry);
    let definition = registry.get("mmb").unwrap();
    assert_eq!(definition.name, "mmb");
}
