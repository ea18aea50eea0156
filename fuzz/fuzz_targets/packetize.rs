//! Segments of connections that are rewritten: memory stays within its bounds, and retransmissions repeat the
//! same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::rewritten(bytes);
});
