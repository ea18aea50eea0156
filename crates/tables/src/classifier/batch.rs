//! Lookups of a whole batch, whose probes wait for memory together.

use super::Classifier;
use super::matches::{First, Matches, Receive};

/// Key vectors of a batch, side by side.
///
/// ```
/// use netbricks_tables::classifier::Keys;
///
/// let mut keys = Keys::new(2);
/// keys.push().copy_from_slice(&[1, 2]);
/// keys.push()[1] = 5;
/// assert_eq!((keys.len(), keys.get(0), keys.get(1)), (2, Some(&[1, 2][..]), Some(&[0, 5][..])));
/// keys.clear();
/// assert!(keys.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    words: Vec<u32>,
    width: usize,
    len: usize,
}

impl Keys {
    /// No keys, for vectors of so many words: [`Layout::words`](super::Layout::words).
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self { words: Vec::new(), width, len: 0 }
    }

    /// Adds a key vector of zeros, to be filled in.
    #[inline]
    pub fn push(&mut self) -> &mut [u32] {
        let start = self.words.len();
        self.words.resize(start + self.width, 0);
        self.len += 1;
        &mut self.words[start..]
    }

    /// A key vector by its place in the batch.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&[u32]> {
        (place < self.len).then(|| &self.words[place * self.width..][..self.width])
    }

    /// The number of key vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Words of each key vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Takes all key vectors out; the memory stays.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }
}

impl Classifier {
    /// Does what [`matches`](Self::matches) does, for each key of a batch; keys and results beyond the shorter of both
    /// are left alone.
    pub fn matches_batch(&self, keys: &Keys, found: &mut [Matches]) {
        found.iter_mut().take(keys.len()).for_each(Matches::clear);
        self.search_batch(keys, found);
    }

    /// Does what [`first`](Self::first) does, for each key of a batch.
    pub fn first_batch(&self, keys: &Keys, found: &mut [Option<u32>]) {
        for (at, found) in found.iter_mut().enumerate() {
            if let Some(key) = keys.get(at) {
                let mut first = First::NONE;
                self.search(key, &mut first);
                *found = first.rule();
            }
        }
    }

    fn search_batch<R: Receive>(&self, keys: &Keys, found: &mut [R]) {
        for (at, found) in found.iter_mut().enumerate() {
            if let Some(key) = keys.get(at) {
                self.search(key, found);
            }
        }
    }
}
