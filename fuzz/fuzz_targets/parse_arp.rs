//! The `arp` parser, and what its view iterates.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::header("arp", bytes));
