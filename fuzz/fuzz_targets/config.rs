//! A chain file: any text becomes a plan or is refused with places, and nothing is opened.
#![no_main]

use std::path::Path;

use netbricks::diagnostic::Diagnostics;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut diagnostics = Diagnostics::default();
    netbricks::config::read(
        text,
        &netbricks::standard(),
        &netbricks::Drivers::standard(),
        Path::new(""),
        &mut diagnostics,
    );
});
