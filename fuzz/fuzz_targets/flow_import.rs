//! Exported flows, as they come or under a right checksum, imported by a table that has flows already.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::flow_import(bytes);
});
