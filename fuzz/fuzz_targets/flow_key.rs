//! The 5-tuple of a frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::flow_key(bytes));
