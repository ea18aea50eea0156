//! The function `icmp-echo` over any frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::echo_frame(bytes));
