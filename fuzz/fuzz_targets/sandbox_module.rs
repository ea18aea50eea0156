//! Bytes as a module of the function `sandbox`: refused, or run over packets without losing one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::sandbox::module(bytes);
});
