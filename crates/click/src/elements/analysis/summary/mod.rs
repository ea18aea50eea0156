//! Summaries of packets as text or binary records: `FromIPSummaryDump` and `ToIPSummaryDump`.

mod draft;
mod field;
mod from;
mod md5;
mod options;
mod reader;
mod to;
mod view;

use crate::element::Class;

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

pub(super) use crate::packet::{first_timestamp, set_first_timestamp};
