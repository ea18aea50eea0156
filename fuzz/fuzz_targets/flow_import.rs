//! Exported flows, as they come or under a right checksum, taken in by a table that has some.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::flow_import(bytes);
});
