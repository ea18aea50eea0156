//! What is known of a usual frame, against what a parse finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::usual(bytes);
});
