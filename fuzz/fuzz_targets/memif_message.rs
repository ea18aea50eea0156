//! A message of memif's control channel: one that is understood is written as it was read.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = netbricks_fuzz::memif_message(bytes);
});
