//! Segments in any order, with any overlaps, against a naive receiver.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::streams(bytes));
