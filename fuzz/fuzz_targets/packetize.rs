//! Segments of connections that are rewritten: memory within its bounds, and what goes out again is what went out.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::rewritten(bytes);
});
