//! Segments of any flags, from both ends of more connections than there are places for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::connections(bytes);
});
