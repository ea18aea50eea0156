//! Lookups of a whole batch, whose probes wait for memory together.

use super::Classifier;
use super::filter::{Filter, TABLES, TableSet, each};
use super::matches::{First, Matches, Receive};
use crate::prefetch::prefetch;

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

    /// Gives so many key vectors away in order, to be filled in.
    ///
    /// Their words are zero, or those of earlier keys.
    #[inline]
    pub fn rows(&mut self, len: usize) -> impl Iterator<Item = &mut [u32]> {
        if self.len != len {
            self.words.resize(len * self.width, 0);
            self.len = len;
        }
        self.words.chunks_exact_mut(self.width.max(1))
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

    /// Takes all key vectors out, and has others of so many words from now on.
    pub fn reset(&mut self, width: usize) {
        self.clear();
        self.width = width;
    }

    /// Takes all key vectors out; the memory stays.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
        self.len = 0;
    }
}

/// Keys that are looked up together.
const TOGETHER: usize = 32;
/// Tables asked for one key before any answer is looked at.
const TURN: usize = 4;
/// Probes that wait together.
const PROBES: usize = TOGETHER * TURN;

/// One table that may have entries for one key.
#[derive(Clone, Copy, Default)]
struct Probe {
    key: u16,
    table: u16,
    /// The hash, then the bucket.
    at: u32,
}

/// Probes that wait for memory.
struct Waiting {
    probes: [Probe; PROBES],
    len: usize,
}

impl Classifier {
    /// Does what [`matches`](Self::matches) does, for each key of a batch.
    ///
    /// The keys wait for memory together, so this takes a fraction of the time. Keys and results beyond the shorter of both
    /// are left alone.
    pub fn matches_batch(&self, keys: &Keys, found: &mut [Matches]) {
        found.iter_mut().take(keys.len()).for_each(Matches::clear);
        self.search_batch(keys, 0, found);
    }

    /// Does so for the keys from `start` on.
    pub(super) fn search_from(&self, keys: &Keys, start: usize, found: &mut [Matches]) {
        found.iter_mut().for_each(Matches::clear);
        self.search_batch(keys, start, found);
    }

    /// Does what [`first`](Self::first) does, for each key of a batch, as [`matches_batch`](Self::matches_batch).
    pub fn first_batch(&self, keys: &Keys, found: &mut [Option<u32>]) {
        for (chunk, found) in found.chunks_mut(TOGETHER).enumerate() {
            let mut firsts = [First::NONE; TOGETHER];
            let start = chunk * TOGETHER;
            let len = found.len().min(keys.len().saturating_sub(start));
            self.search_batch(keys, start, &mut firsts[..len]);
            found.iter_mut().zip(&firsts[..len]).for_each(|(found, first)| *found = first.rule());
        }
    }

    /// Searches the keys from `start` on, one for each of `found`.
    #[inline(always)]
    fn search_batch<R: Receive>(&self, keys: &Keys, start: usize, found: &mut [R]) {
        if keys.width < self.layout.words() || keys.width == 0 {
            let all = found.iter_mut().enumerate();
            return all.for_each(|(at, found)| self.search(keys.get(start + at).unwrap_or_default(), found));
        }
        let words = keys.words.get(start * keys.width..).unwrap_or_default();
        let mut waiting = Waiting { probes: [Probe::default(); PROBES], len: 0 };
        for (words, found) in words.chunks(keys.width * TOGETHER).zip(found.chunks_mut(TOGETHER)) {
            let count = found.len() as u16;
            let rows = || words.chunks_exact(keys.width).zip(0..count);
            match &self.filter {
                None => {
                    for table in each(self.occupied) {
                        for (key, at) in rows() {
                            self.ask(table, key, at, &mut waiting);
                        }
                        self.resolve(keys.width, words, found, &mut waiting);
                    }
                }
                Some(filter) => {
                    rows().for_each(|(key, _)| filter.addresses(key).for_each(prefetch));
                    let mut candidates = [[0; TABLES / 64]; TOGETHER];
                    for (candidates, (key, _)) in candidates.iter_mut().zip(rows()) {
                        *candidates = filter.candidates(key);
                    }
                    // Some tables of each key in turn: what is found in the first may end the search.
                    let mut more = true;
                    while more {
                        more = false;
                        for ((key, at), candidates) in rows().zip(&mut candidates) {
                            let bound = found[usize::from(at)].bound();
                            more |= self.ask_some(filter, candidates, bound, key, at, &mut waiting);
                        }
                        self.resolve(keys.width, words, found, &mut waiting);
                    }
                }
            }
            found.iter_mut().for_each(R::finish);
        }
    }

    /// Asks the next candidates of a key; whether there are more.
    #[inline(always)]
    fn ask_some(
        &self,
        filter: &Filter,
        candidates: &mut TableSet,
        bound: u64,
        key: &[u32],
        at: u16,
        waiting: &mut Waiting,
    ) -> bool {
        let mut asked = 0;
        for (part, bits) in candidates.iter_mut().enumerate() {
            while *bits != 0 {
                if asked == TURN {
                    return true;
                }
                let table = filter.table(part * 64 + bits.trailing_zeros() as usize);
                *bits &= *bits - 1;
                if self.tables[table].least <= bound {
                    self.ask(table, key, at, waiting);
                    asked += 1;
                }
            }
        }
        false
    }

    /// Hashes a key for a table, and asks for the slot.
    #[inline(always)]
    fn ask(&self, table: usize, key: &[u32], at: u16, waiting: &mut Waiting) {
        let asked = &self.tables[table];
        let hash = self.hasher.hash(&asked.pairs, key);
        prefetch(asked.slots.address(hash));
        waiting.probes[waiting.len % PROBES] = Probe { key: at, table: table as u16, at: hash };
        waiting.len += 1;
    }

    /// Reads the slots, then the entries, of all probes that wait.
    #[inline(always)]
    fn resolve<R: Receive>(&self, width: usize, words: &[u32], found: &mut [R], waiting: &mut Waiting) {
        let asked = waiting.len.min(PROBES);
        let mut hits = 0;
        for at in 0..asked {
            let mut probe = waiting.probes[at];
            probe.at = self.tables[usize::from(probe.table)].slots.get(probe.at);
            // Listed without a branch, since it cannot be predicted.
            waiting.probes[hits] = probe;
            hits += usize::from(probe.at != 0);
            prefetch(self.buckets.address(probe.at));
        }
        for probe in &waiting.probes[..hits] {
            let Some(found) = found.get_mut(usize::from(probe.key)) else { continue };
            let key = &words[usize::from(probe.key) * width..][..width];
            if self.tables[usize::from(probe.table)].least <= found.bound() {
                self.buckets.search(probe.at, key, found);
            }
        }
        waiting.len = 0;
    }
}
