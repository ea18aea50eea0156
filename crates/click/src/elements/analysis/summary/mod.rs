//! Summaries of packets as text or binary records: `FromIPSummaryDump` and `ToIPSummaryDump`.

mod draft;
mod field;
mod from;
mod md5;
mod options;
mod reader;
mod to;
mod view;

use netbricks_core::buffer::Packet;

use crate::element::Class;
use crate::packet::{Annotated, place};

/// Version of the dumps that are written; lower minor versions are read as well.
const VERSION: (u32, u32) = (1, 3);
/// Letters of TCP's flags, the lowest bit first.
const TCP_FLAGS: &[u8; 9] = b"FSRPAUECN";

pub(super) const CLASSES: &[Class] = &[
    Class::new("FromIPSummaryDump", from::configure).ports("0/1").flow("x/y"),
    Class::new("ToIPSummaryDump", to::configure).ports("1/0-1").processing("a/h").flow("x/x"),
];

/// A time with a sign (ns) as Click writes it.
pub(super) fn write_signed_time(time: i64) -> String {
    let text = crate::value::write_time(time.unsigned_abs());
    if time < 0 { format!("-{text}") } else { text }
}

/// The timestamp of the first packet that a packet stands for (ns).
pub(super) fn first_timestamp(packet: &Packet) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&packet.anno()[place::FIRST_TIMESTAMP..place::FIRST_TIMESTAMP + 8]);
    i64::from_ne_bytes(bytes)
}

/// Sets the timestamp of the first packet that a packet stands for.
pub(super) fn set_first_timestamp(packet: &mut Packet, time: i64) {
    packet.anno_mut()[place::FIRST_TIMESTAMP..place::FIRST_TIMESTAMP + 8]
        .copy_from_slice(&time.to_ne_bytes());
}
