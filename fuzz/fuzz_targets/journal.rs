//! A journal of handler writes, as it comes or under right checksums, compared with a naive reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::journal(bytes);
});
