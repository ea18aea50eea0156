//! mmb: a middlebox by rules that are typed while packets flow.
//!
//! A rule says which packets it means by the values of their fields, and how they change or whether they are
//! dropped: `add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460`. The language is that of mmb (Edeline, Iurman, Soldani
//! and Donnet, ANRW 2019, figure 2), with its gaps closed.
#![forbid(unsafe_code)]

mod action;
mod arrival;
mod change;
pub mod compile;
pub mod complete;
mod connection;
mod described;
mod engine;
pub mod field;
mod function;
mod hidden;
pub mod import;
pub mod key;
mod known;
pub mod language;
pub mod lint;
mod look;
mod random;
pub mod rule;
mod rules;
mod shared;
mod shown;
mod state;
mod tcp_options;
mod translate;

pub use function::{MmbSettings, node, register};
