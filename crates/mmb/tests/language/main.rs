//! The language of rules, through its public functions.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod completion;
mod errors;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod generate;
mod lines;
mod lints;
mod load;
mod properties;
