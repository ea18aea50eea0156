//! A capture filter's text, up to the first zero byte, and a frame behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (text, frame) = match bytes.iter().position(|&byte| byte == 0) {
        Some(zero) => (&bytes[..zero], &bytes[zero + 1..]),
        None => (bytes, &bytes[bytes.len()..]),
    };
    if let Ok(text) = std::str::from_utf8(text) {
        netbricks_fuzz::filter(text, frame);
    }
});
