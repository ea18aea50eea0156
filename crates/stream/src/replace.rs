//! The rewriter that replaces one string by another, wherever segments cut it.

use std::ops::Range;

use super::{Output, Rewriter, Side, Source};

/// The most bytes of the string to find, and of the one in its place.
const LONGEST: usize = 4_096;

/// Replaces every occurrence of a string, from the left, in one direction or both.
///
/// It reads the bytes once (Knuth, Morris and Pratt). The bytes that it holds back are always a beginning of
/// the string, so it only has to remember their number.
#[derive(Clone, Debug)]
pub struct Replace {
    find: Box<[u8]>,
    put: Box<[u8]>,
    /// For each number of matching bytes, the number that still match if the next byte does not.
    fallback: Box<[u16]>,
    only: Option<Side>,
}

/// The reason why a string cannot be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// The string to find is empty.
    #[error("the string to look for is empty: give 1 to {LONGEST} bytes")]
    Empty,
    /// A string is too long.
    #[error("{bytes} bytes are too many: give {LONGEST} at most")]
    TooLong {
        /// Bytes.
        bytes: usize,
    },
}

impl Replace {
    /// Replaces `find` by `put`, in the direction of the side `only`, or in both.
    ///
    /// # Errors
    /// [`ReplaceError`]
    pub fn new(find: &[u8], put: &[u8], only: Option<Side>) -> Result<Self, ReplaceError> {
        if find.is_empty() {
            return Err(ReplaceError::Empty);
        }
        let bytes = find.len().max(put.len());
        if bytes > LONGEST {
            return Err(ReplaceError::TooLong { bytes });
        }
        let mut fallback = vec![0u16; find.len() + 1];
        let mut matched = 0;
        for at in 1..find.len() {
            while matched > 0 && find[matched] != find[at] {
                matched = usize::from(fallback[matched]);
            }
            matched += usize::from(find[matched] == find[at]);
            fallback[at + 1] = matched as u16;
        }
        Ok(Self { find: find.into(), put: put.into(), fallback: fallback.into(), only })
    }
}

impl Rewriter for Replace {
    /// The number of bytes of the string that the last bytes match.
    type Memory = u16;
    const MOVES: bool = true;

    fn rewrite(&mut self, source: &Source, memory: &mut u16, bytes: &[u8], output: &mut Output<'_>) {
        if self.only.is_some_and(|only| only != source.side) {
            return output.pass(bytes);
        }
        // The bytes from `pass` on are not decided yet; those that match come last.
        let (mut matched, mut pass, mut at) = (usize::from(*memory), 0, 0);
        // Bytes that match and came before `bytes`.
        let mut before = matched;
        while at < bytes.len() {
            if matched == 0 {
                let Some(next) = bytes[at..].iter().position(|byte| *byte == self.find[0]) else {
                    at = bytes.len();
                    break;
                };
                at += next;
            }
            while matched > 0 && self.find[matched] != bytes[at] {
                let fewer = usize::from(self.fallback[matched]);
                // The first of the earlier bytes do not match any more.
                let loses = before.min(matched - fewer);
                output.pass(&self.find[..loses]);
                before -= loses;
                matched = fewer;
            }
            matched += usize::from(self.find[matched] == bytes[at]);
            at += 1;
            if matched == self.find.len() {
                output.pass(&bytes[pass..at - (matched - before)]);
                output.replace(matched, &self.put);
                (matched, before, pass) = (0, 0, at);
            }
        }
        output.pass(&bytes[pass..at - (matched - before)]);
        *memory = matched as u16;
    }

    fn flush(&mut self, _: &Source, memory: &mut u16, output: &mut Output<'_>) {
        output.pass(&self.find[..usize::from(std::mem::take(memory))]);
    }

    fn most(&self, input: usize) -> usize {
        let input = input + self.find.len();
        let times = input / self.find.len();
        input + times * self.put.len().saturating_sub(self.find.len())
    }

    fn pack(&mut self, _: &Source, memory: &mut u16, to: &mut Vec<u8>) {
        // The bytes and not their number, because a rewriter with another string would make other bytes of
        // the number.
        to.extend(&self.find[..usize::from(std::mem::take(memory))]);
    }

    fn accepts(&self, _: Side, held: Range<u64>, bytes: &[u8]) -> bool {
        bytes.len() < LONGEST && bytes.len() as u64 == held.end - held.start
    }

    fn unpack(&mut self, source: &Source, _: Range<u64>, bytes: &[u8]) -> Option<u16> {
        let looks = self.only.is_none_or(|only| only == source.side);
        let begins = looks && bytes.len() < self.find.len() && self.find.starts_with(bytes);
        (begins || bytes.is_empty()).then_some(bytes.len() as u16)
    }
}
