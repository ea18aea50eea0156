//! Rules of `firewall`: no text breaks the parser, printed rules read back the same, and translations are rules.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        netbricks_fuzz::firewall_rules(text);
    }
});
