//! mmb: a middlebox by rules that are typed while packets flow.
//!
//! A rule says which packets it means by the values of their fields, and how they change or whether they are
//! dropped: `add tcp-syn ! tcp-opt-mss add tcp-opt-mss 1460`. The language is that of mmb (Edeline, Iurman, Soldani
//! and Donnet, ANRW 2019, figure 2), with its gaps closed.
#![forbid(unsafe_code)]

pub mod complete;
pub mod field;
pub mod language;
pub mod lint;
pub mod rule;
