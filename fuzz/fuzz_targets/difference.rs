//! The difference of two frames: the two halves of the input.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::difference(bytes));
