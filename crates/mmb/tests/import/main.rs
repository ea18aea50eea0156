//! Rules of iptables and nftables, translated through the public functions.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod properties;
mod samples;
mod verdicts;
