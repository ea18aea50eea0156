//! The function `sandbox`, through its public interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod attacks;
mod copy;
mod examples;
mod harness;
mod mapped;
mod modules;
