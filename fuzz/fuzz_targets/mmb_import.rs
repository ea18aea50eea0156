//! Rules of iptables and nftables: no text breaks the importers, which give commands of mmb.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        netbricks_fuzz::mmb_import(text);
    }
});
