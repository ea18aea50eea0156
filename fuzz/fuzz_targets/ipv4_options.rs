//! IPv4 options in a header that is otherwise whole, against a naive walk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::ipv4_options(bytes));
