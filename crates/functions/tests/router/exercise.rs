//! `router` with arbitrary frames, also such as hosts on its link send. Tests and a fuzz target call this.

use netbricks_core::packet::stack::{Layer, Root};
use netbricks_core::packet::{Ip, IpRef, Ipv4, Link, stack::Header};
use netbricks_core::{BuildError, Node, Registry, Worker};
use netbricks_testkit::run_node;

const SETTINGS: &str = "interfaces = [\"lan 192.0.2.1/24 2001:db8::1/64 mac 02:00:00:00:00:02 mtu 1280\", \"lan 10.7.0.1/24 vlan 7 mac 02:00:00:00:00:02\"]
routes = [\"default via 192.0.2.9 via 192.0.2.10\", \"default6 via 2001:db8::9\", \"10.9.0.0/16 unreachable\"]
neighbours = [\"lan 192.0.2.9 02:00:00:00:00:09\", \"lan.7 10.7.0.9 02:00:00:00:00:19\"]
reassemble = true
reassembling = 2
questions = 2
held = 4
held_each = 2
";

fn router(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let mut registry = Registry::new();
    netbricks_functions::register(&mut registry);
    let definition = registry.get("router").ok_or_else(|| BuildError::new("it is registered"))?;
    definition.blueprint(SETTINGS).map_err(BuildError::new)?.build(worker)
}

/// The frame that a piece of input stands for. Its first byte says how much of it is put right.
fn frame(choice: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = content.to_vec();
    if choice & 1 != 0 && frame.len() >= 14 {
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    }
    let kind: Option<[u8; 2]> = match choice >> 1 & 3 {
        0 => None,
        1 => Some([8, 0]),
        2 => Some([0x86, 0xdd]),
        _ => Some([8, 6]),
    };
    if let (Some(kind), Some(place)) = (kind, frame.get_mut(12..14)) {
        place.copy_from_slice(&kind);
    }
    if choice & 8 != 0
        && let Some(bytes) = frame.get_mut(14..)
        && let Ok(found) = Ipv4::find(bytes, 0)
    {
        Ipv4::view_mut(&mut bytes[..found.len], ()).refresh_checksum();
    }
    frame
}

/// Takes the input for frames, each a byte of choices and two bytes of its length before its content.
pub fn frames(mut bytes: &[u8]) {
    let mut frames = Vec::new();
    while let [choice, high, low, rest @ ..] = bytes
        && frames.len() < 32
    {
        let len = usize::from(u16::from_be_bytes([*high, *low]) & 0x7ff).min(rest.len());
        frames.push(frame(*choice, &rest[..len]));
        bytes = &rest[len..];
    }
    let report = run_node(router, frames);
    assert_eq!(report.panics, []);
    for frame in report.out.iter().chain(&report.replies) {
        assert!(frame.len() >= 14, "a frame leaves without a link header");
        let link = Layer::<Root, Link>::parse(Root, frame);
        let ip = link.and_then(|link| Layer::<_, Ip>::parse(link, frame));
        // What a capture cut short, or a device was still to cut, is not in question here.
        let Ok(_) = ip else { continue };
        let Some((ip, _)) = Ip::in_frame(frame) else { continue };
        assert_ne!(ip.ttl(), 0, "it had no hops left");
        if let IpRef::V4(header) = ip {
            assert!(header.checksum_is_valid(), "{frame:02x?}");
            assert!(ip.stated_len() <= 1_500, "it is larger than its link: {frame:02x?}");
        }
    }
}
