//! The capture-filter language against tcpdump, and its guarantees for any text and any frame.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod differential;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod expressions;
mod frames;
mod properties;
