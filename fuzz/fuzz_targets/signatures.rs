//! Rules of intrusion detectors: no text breaks the reader, and a stream matches however it is cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::signatures(bytes));
