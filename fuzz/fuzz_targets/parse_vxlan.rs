//! The `vxlan` parser, and the iterators of its view.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::header("vxlan", bytes));
