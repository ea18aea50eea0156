//! Click configurations: no text breaks the parser, and the flat text of a right one parses to the same elements.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netbricks_fuzz::click::language(bytes));
