//! The words of a line that is being typed, with their places, for completion and highlighting.

use std::ops::Range;

/// The places of the words of a line, quotes included, and whether the line ends between two words.
pub(super) fn places(line: &str) -> Vec<Range<usize>> {
    let mut places = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        let is_space = c.is_whitespace() && quote.is_none() && !escaped;
        match (start, is_space) {
            (Some(begin), true) => {
                places.push(begin..at);
                start = None;
            }
            (None, false) => start = Some(at),
            _ => {}
        }
        match (quote, c) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    places.extend(start.map(|begin| begin..line.len()));
    places
}

/// The words up to `cursor`, without quotes, and where the last one begins; it may be empty.
pub(super) fn typed(line: &str, cursor: usize) -> (Vec<String>, usize) {
    let before = line.get(..cursor).unwrap_or(line);
    let places = places(before);
    let mut words: Vec<String> = places.iter().map(|place| unquoted(&before[place.clone()])).collect();
    match places.last() {
        Some(last) if last.end == before.len() => (words, last.start),
        _ => {
            words.push(String::new());
            (words, before.len())
        }
    }
}

/// A word without its quotes; a quote that is still open counts as closed at the end.
pub(super) fn unquoted(word: &str) -> String {
    let closed = ["", "'", "\""].iter().find_map(|end| super::shell_words(&format!("{word}{end}")));
    closed.and_then(|words| words.into_iter().next()).unwrap_or_else(|| word.to_owned())
}

/// A word as it must be typed.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        let shown = |line: &str| -> Vec<String> {
            places(line).into_iter().map(|place| line[place].to_owned()).collect()
        };
        assert_eq!(shown("set a.b '1 2'  x\\ y"), ["set", "a.b", "'1 2'", "x\\ y"]);
        assert_eq!(shown("  get \"a b"), ["get", "\"a b"]);
        assert_eq!(shown(""), [""; 0]);
    }

    #[test]
    fn the_last_word_may_be_empty() {
        assert_eq!(typed("get fl", 6), (vec!["get".into(), "fl".into()], 4));
        assert_eq!(typed("get ", 4), (vec!["get".into(), String::new()], 4));
        assert_eq!(typed("get fl", 2), (vec!["ge".into()], 0));
        assert_eq!(typed("", 0), (vec![String::new()], 0));
        assert_eq!(typed("apply 'my fi", 12), (vec!["apply".into(), "my fi".into()], 6));
    }

    #[test]
    fn quoting_and_unquoting_cancel() {
        for word in ["plain", "two words", "it's", "a\"b", "ü", "-"] {
            assert_eq!(unquoted(&quoted(word)), word);
        }
    }
}
