//! The body of a request to the control API, compared with what a naive reader finds in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::api_body(bytes);
});
