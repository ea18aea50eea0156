//! The middleboxes of `examples/click`, each with traffic that shows its work.
//!
//! They are the nine of section 9 of the ClickOS paper (NSDI 2014) and one for each row of its table 1.
#![forbid(unsafe_code)]

mod access;
mod files;
mod harness;
mod nat;
mod plain;
mod proxy;
mod router;
mod security;
mod shaping;
