//! The 5-tuple of a frame, against its dissection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::flow_key(bytes);
    netbricks_fuzz::flow(bytes);
});
