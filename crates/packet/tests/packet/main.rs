//! The crate through its public interface: what it builds, reads, prints, and survives.
#![expect(clippy::unwrap_used, reason = "clippy's leave for tests ends at functions that tests call")]

mod built;
mod captures;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod hostile;
mod kinds;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod oracles;
mod printed;
mod regressions;
mod tshark;
mod walks;
