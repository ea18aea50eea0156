//! Bytes as host calls of a module, and as its writes to `nb_batch` and frames.
#![no_main]

use std::sync::LazyLock;

static INTERPRETER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    wat::parse_str(include_str!("../../crates/sandbox/tests/modules/script.wat"))
        .expect("the text is a module")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    netbricks_fuzz::sandbox::script(&INTERPRETER, bytes);
});
