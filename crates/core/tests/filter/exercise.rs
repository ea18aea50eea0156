//! The guarantees for every text and every frame; property tests and the fuzz target call it.

use netbricks_core::filter::Filter;

/// Parses a text, and asks the filter of a frame if it is one.
///
/// # Panics
/// When an error has no place or no remedy, or when the filter's own text gives another filter.
pub fn filter(text: &str, frame: &[u8]) {
    match Filter::parse(text) {
        Ok(filter) => {
            let shown = filter.to_string();
            assert_eq!(shown, text);
            let again = Filter::parse(&shown).expect("a filter's own text is a filter");
            for wire_len in [frame.len(), frame.len() + 1, usize::MAX] {
                assert_eq!(filter.matches(frame, wire_len), again.matches(frame, wire_len));
            }
        }
        Err(error) => {
            assert!(text.get(error.range.clone()).is_some(), "{error:?}");
            assert!(!error.expected.is_empty() && !error.found.is_empty() && !error.help.is_empty());
        }
    }
}
