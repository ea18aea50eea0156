//! The words of a line that an operator wrote, and faults with the column of the word.

use std::fmt;
use std::ops::RangeInclusive;

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// Where in the text, in characters from 1.
    pub column: usize,
    /// The fault, and what was expected.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (character {})", self.problem, self.column)
    }
}

/// The words of a text, one by one.
pub(super) struct Words<'t> {
    text: &'t str,
    words: std::iter::Peekable<std::str::SplitWhitespace<'t>>,
}

impl<'t> Words<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, words: text.split_whitespace().peekable() }
    }
    /// The next word, where there is one.
    pub(super) fn more(&mut self) -> Option<&'t str> {
        self.words.next()
    }
    /// The next word without taking it.
    pub(super) fn peek(&mut self) -> Option<&'t str> {
        self.words.peek().copied()
    }
    /// The next word, which is to be this.
    pub(super) fn next(&mut self, expected: &str) -> Result<&'t str, Fault> {
        let column = self.text.trim_end().chars().count() + 1;
        self.words
            .next()
            .ok_or_else(|| Fault { column, problem: format!("expected {expected}, found nothing") })
    }
    /// The next word, which is to be a number in this range.
    pub(super) fn number(&mut self, name: &str, range: RangeInclusive<usize>) -> Result<usize, Fault> {
        let word = self.next(name)?;
        let (least, most) = (range.start(), range.end());
        word.parse()
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.fault(word, format!("expected {name}, {least} to {most}, found `{word}`")))
    }
    /// A fault at this word of the text.
    pub(super) fn fault(&self, word: &str, problem: String) -> Fault {
        let bytes = (word.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.char_indices().take_while(|(at, _)| *at < bytes).count();
        Fault { column: before + 1, problem }
    }
}
