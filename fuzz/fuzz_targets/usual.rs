//! The fast path for usual frames, compared with a full parse.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::usual(bytes);
});
