//! The function `nat` over any frames, one after the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::nat(&netbricks_fuzz::nat_frames(bytes));
});
