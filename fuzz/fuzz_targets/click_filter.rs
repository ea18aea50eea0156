//! Expressions of `IPClassifier`, `IPFilter` and `Classifier`, and a packet about which they decide.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::click::filter(bytes));
