//! `nat` with arbitrary frames, one after the other, so that later ones meet the sessions of earlier ones.
//!
//! Tests and a fuzz target call this.

use netbricks_core::packet::FlowKey;
use netbricks_core::{BuildError, Node, Registry, Worker};
use netbricks_testkit::{checksums, run_node};

/// Settings with which each kind of translation may happen.
const SETTINGS: &str = "
inside = [\"10.0.0.0/8\"]
pool = [\"203.0.113.7\"]
static = [\"udp 203.0.113.7:53 -> 10.0.0.5:53\", \"203.0.113.8 -> 10.0.0.6\"]
redirect = [\"udp 198.51.100.1:53 -> 198.51.100.2:53\"]
nat64 = \"64:ff9b::/96\"
nptv6 = [\"fd00::/48 2001:db8:77::/48\"]
capacity = 64
pcp = \"192.0.2.254\"
pcp_mappings = 16
fragments = 32
fragments_held = 16
mtu = 1400
inside_mtu = 1300
";

fn make(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let mut registry = Registry::new();
    netbricks_functions::register(&mut registry);
    let definition = registry.get("nat").ok_or_else(|| BuildError::new("it is not registered"))?;
    definition.blueprint(SETTINGS).map_err(BuildError::new)?.build(worker)
}

/// The frames in these bytes: each begins with its length, of one byte times eight.
pub fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let [length, after @ ..] = rest {
        let length = (usize::from(*length) * 8).min(after.len());
        let (frame, left) = after.split_at(length);
        frames.push(frame.to_vec());
        rest = left;
    }
    frames.truncate(64);
    frames
}

/// Runs frames, and checks that nothing leaves as it must not; answers how many left changed.
pub fn run(frames: &[Vec<u8>]) -> usize {
    let report = run_node(make, frames.iter().cloned());
    assert_eq!(report.panics, []);
    let is_right = |frame: &Vec<u8>| checksums::wrong(frame).is_empty();
    let all_right = frames.iter().all(is_right);
    let inside: netbricks_functions::nat::Prefix = "10.0.0.0/8".parse().unwrap();
    let mut changed = 0;
    for frame in report.out.iter().chain(&report.replies) {
        assert!(!all_right || is_right(frame), "a right checksum became wrong: {frame:02x?}");
        if frames.contains(frame) {
            continue;
        }
        changed += 1;
        let source = FlowKey::from_frame(frame).map(|flow| flow.source());
        assert!(source.is_none_or(|source| !inside.holds(source)), "an inside source left: {frame:02x?}");
    }
    changed
}
