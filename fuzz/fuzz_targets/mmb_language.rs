//! Lines of mmb's rules: no text breaks the parser, completion or colours, and printed commands read back the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        netbricks_fuzz::mmb_language(text);
    }
});
