//! Byte streams against naive models, and the bounds that they keep.
#![forbid(unsafe_code)]

mod astray;
mod captures;
mod dense;
mod endpoints;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod flood;
mod forged;
mod frames;
mod gates;
mod holes;
mod homeless;
mod images;
mod joined;
mod model;
mod moving;
mod numbering;
mod openings;
mod rewriting;
#[expect(unreachable_pub, reason = "as above")]
mod rewritten;
mod rules;
mod schedules;
mod selective;
mod signatures;
mod times;
mod urgent;
mod waiting;
mod windows;
