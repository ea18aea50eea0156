//! Bytes that once caused a failure, or that have a notable form.
//!
//! Each is a named file under `tests/corpus`, one line of hexadecimal. A crash that fuzzing finds becomes one
//! more file.

use std::path::Path;

use crate::exercise;

#[test]
fn the_corpus_is_read_without_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| {
                u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16)
                    .unwrap_or_else(|_| panic!("{path:?}"))
            })
            .collect();
        for start in 0..bytes.len().min(64) {
            exercise::parsers(&bytes[start..]);
        }
        exercise::flow_key(&bytes);
        exercise::printing(&bytes);
        exercise::difference(&bytes);
        cases += 1;
    }
    assert!(cases >= 10, "{cases} cases");
}
