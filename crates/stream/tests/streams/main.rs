//! Compares byte streams with naive models, and checks their bounds.
#![forbid(unsafe_code)]

mod captures;
mod dense;
mod endpoints;
#[expect(unreachable_pub, reason = "the fuzz crate exports this file's functions")]
mod exercise;
mod flood;
mod forged;
mod frames;
mod holes;
mod homeless;
mod images;
mod inline_windows;
mod joined;
mod migration;
mod model;
mod numbering;
mod openings;
mod out_of_window;
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
