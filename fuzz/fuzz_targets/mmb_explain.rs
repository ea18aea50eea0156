//! Packets that are described to mmb: no description breaks the answer to `explain`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        netbricks_fuzz::mmb_explain(text);
    }
});
