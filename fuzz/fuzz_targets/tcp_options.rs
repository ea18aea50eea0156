//! TCP options with any lengths, against a naive walk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::tcp_options(bytes));
