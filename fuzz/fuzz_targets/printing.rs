//! Dissection, one line and tree.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::printing(bytes));
