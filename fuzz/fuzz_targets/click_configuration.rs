//! Click configurations that are built and run in simulated time, without files, sockets and devices.
//!
//! Bytes of at least 128 stand for classes and other words.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::click::configuration(
    &netbricks_fuzz::click::written(bytes)
));
