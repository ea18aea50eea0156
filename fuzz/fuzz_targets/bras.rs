//! The function `bras` over any frames, before and behind an open session.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::bras(bytes));
