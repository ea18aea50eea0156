//! One worker's results of known flows, in front of a classifier.

use super::{Classifier, Keys, Matches};
use crate::hash::{Secret, hash_pair, hash_words};
use crate::prefetch::prefetch;

/// Places where a flow may be.
const WAYS: usize = 4;
/// Words of a row that are neither key nor rules: the edition, and the number of rules.
const HEAD: usize = 2;
/// Rules for which a row has room at least.
const RULES: usize = 2;
/// Words to whose multiples rows are rounded up, so that short ones share a cache line.
const UNIT: usize = 8;
/// Windows for which a cache that hits too little stays off.
///
/// A window is as many lookups as there are places.
const OFF: u32 = 30;
/// In the number of rules of a row: just the first rule is known.
const FIRST: u32 = 1 << 16;
/// Words of a key that are hashed at a time.
const HASHED: usize = 6;
/// Keys that are looked up together.
const TOGETHER: usize = 32;

/// An exact-match cache of what a [`Classifier`] finds, for one worker.
///
/// A flow is the words of its key vector that some entry tests. Its results hold for one
/// [version](Classifier::version) of the classifier. Use one cache for one classifier, or its copies.
///
/// Memory is allocated when the cache is made. A new flow takes the place of another one of four. The hash is keyed, so
/// that a sender can't choose flows that displace a certain other. Where fewer than half of the lookups hit, as while
/// every header is new, it turns itself off. Later it is tried again, for two of 32 windows of as many lookups as it has
/// places. The first of the two fills it and is not judged.
///
/// ```
/// use netbricks_tables::classifier::{Classifier, ClassifierConfig, Entry, Layout, MatchCache};
///
/// let mut layout = Layout::new();
/// let port = layout.field(16);
/// let mut classifier = Classifier::new(layout, ClassifierConfig::default());
/// classifier.insert(Entry { rule: 3, order: 1, last: true, conditions: vec![] })?;
/// let mut cache = MatchCache::new(65_536, 1);
/// assert_eq!(cache.first(&classifier, &[80]), Some(3));
/// # Ok::<(), netbricks_tables::classifier::ClassifierError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatchCache {
    secret: Secret,
    /// 32 bits of the hash of the flow in each place; never 0 where there is one.
    tags: Box<[[u32; WAYS]]>,
    /// A row for each place: edition, number of rules, the tested words, the rules.
    rows: Box<[u32]>,
    /// Words of a row.
    stride: usize,
    /// Sets in use, a power of two.
    sets: usize,
    /// The version of the classifier; `None` before the first lookup.
    version: Option<u64>,
    /// Rows of other editions count for nothing.
    edition: u32,
    /// The words that are tested, in ascending order.
    words: Vec<u32>,
    /// The tested words of the key that is looked up.
    flow: Vec<u32>,
    asked: u32,
    hits: u32,
    /// Windows for which it stays off.
    off: u32,
    /// Whether the window is the first since it was turned on.
    filling: bool,
    counted: [u64; 2],
    missed: Keys,
    results: Vec<Matches>,
    places: Vec<(usize, u64)>,
}

impl MatchCache {
    /// A cache of about so many flows of up to four tested words, at most 2²⁴.
    ///
    /// It takes 36 bytes a flow. Longer flows take the room of several. `seed` keys its hash: draw it from the system's randomness where traffic is hostile.
    #[must_use]
    pub fn new(flows: usize, seed: u64) -> Self {
        let sets = flows.clamp(WAYS, 1 << 24).div_ceil(WAYS).next_power_of_two();
        Self {
            secret: Secret::from_seed(seed),
            tags: vec![[0; WAYS]; sets].into(),
            rows: vec![0; sets * WAYS * UNIT].into(),
            stride: UNIT,
            sets,
            version: None,
            edition: 0,
            words: Vec::new(),
            flow: Vec::new(),
            asked: 0,
            hits: 0,
            off: 0,
            filling: true,
            counted: [0; 2],
            missed: Keys::default(),
            results: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Does what [`Classifier::first`] does.
    #[inline]
    pub fn first(&mut self, classifier: &Classifier, key: &[u32]) -> Option<u32> {
        if !self.ready(classifier, key) {
            return classifier.first(key);
        }
        let hash = self.read(key);
        if let Some(row) = self.find(hash) {
            self.hits += 1;
            return self.rules(row).1.first().copied();
        }
        let first = classifier.first(key);
        self.keep(hash, FIRST, first.as_slice());
        first
    }

    /// Does what [`Classifier::matches`] does.
    #[inline]
    pub fn matches(&mut self, classifier: &Classifier, key: &[u32], found: &mut Matches) {
        if !self.ready(classifier, key) {
            return classifier.matches(key, found);
        }
        let hash = self.read(key);
        if self.answer(hash, found) {
            return;
        }
        classifier.matches(key, found);
        self.keep_matches(hash, found);
    }

    /// Does what [`Classifier::matches_batch`] does. Keys that the cache does not know go to the classifier together.
    pub fn matches_batch(&mut self, classifier: &Classifier, keys: &Keys, found: &mut [Matches]) {
        let len = keys.len().min(found.len());
        let mut start = 0;
        while start < len {
            let Some(key) = keys.get(start) else { return };
            if !self.ready(classifier, key) {
                classifier.search_from(keys, start, &mut found[start..len]);
                self.asked = self.asked.saturating_add((len - start) as u32);
                return;
            }
            let end = len.min(start + TOGETHER);
            self.some(classifier, keys, start, &mut found[start..end]);
            start = end;
        }
    }

    /// Looks up some keys of a batch.
    fn some(&mut self, classifier: &Classifier, keys: &Keys, start: usize, found: &mut [Matches]) {
        let mut hashes = [0; TOGETHER];
        for (at, hash) in hashes.iter_mut().enumerate().take(found.len()) {
            *hash = self.read(keys.get(start + at).unwrap_or_default());
            prefetch(self.tags.as_ptr().wrapping_add(self.set(*hash)));
        }
        for hash in hashes.iter().take(found.len()) {
            if let Some(place) = self.place(*hash) {
                prefetch(self.rows.as_ptr().wrapping_add(place * self.stride));
            }
        }
        self.asked += found.len() as u32 - 1;
        let mut missed = std::mem::take(&mut self.missed);
        missed.reset(keys.width());
        self.places.clear();
        for (at, (hash, found)) in hashes.iter().zip(&mut *found).enumerate() {
            let key = keys.get(start + at).unwrap_or_default();
            self.take_flow(key);
            if !self.answer(*hash, found) {
                missed.push().copy_from_slice(key);
                self.places.push((at, *hash));
            }
        }
        if !missed.is_empty() {
            let mut results = std::mem::take(&mut self.results);
            results.resize(results.len().max(missed.len()), Matches::new());
            classifier.matches_batch(&missed, &mut results[..missed.len()]);
            let places = std::mem::take(&mut self.places);
            for ((nth, result), (at, hash)) in results.iter_mut().enumerate().zip(&places) {
                self.take_flow(missed.get(nth).unwrap_or_default());
                self.keep_matches(*hash, result);
                std::mem::swap(&mut found[*at], result);
            }
            self.places = places;
            self.results = results;
        }
        self.missed = missed;
    }

    /// Lookups that the cache answered, and all that it was asked while it was on.
    #[must_use]
    pub fn hits(&self) -> (u64, u64) {
        let [hits, asked] = self.counted;
        if self.off > 0 {
            (hits, asked)
        } else {
            (hits + u64::from(self.hits), asked + u64::from(self.asked))
        }
    }

    /// Whether the cache is in use now, or off since it hit too little.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.off == 0
    }

    /// Bytes that it takes, which do not change.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tags.len() * size_of::<[u32; WAYS]>() + self.rows.len() * 4
    }

    /// Counts a lookup, and whether the cache is to be asked for it.
    #[inline(always)]
    fn ready(&mut self, classifier: &Classifier, key: &[u32]) -> bool {
        self.asked += 1;
        if self.asked as usize > self.sets * WAYS {
            self.end_window();
        }
        if self.version != Some(classifier.version()) {
            self.begin_version(classifier);
        }
        self.off == 0 && key.len() >= classifier.layout().words() && self.stride <= self.rows.len() / WAYS
    }

    #[cold]
    fn end_window(&mut self) {
        if self.off > 0 {
            self.off -= 1;
            self.filling = true;
        } else {
            self.counted[0] += u64::from(self.hits);
            self.counted[1] += u64::from(self.asked - 1);
            if !std::mem::take(&mut self.filling) && self.hits < (self.asked - 1) / 2 {
                self.off = OFF;
            }
        }
        (self.asked, self.hits) = (1, 0);
    }

    /// Forgets what was found at another version.
    #[cold]
    fn begin_version(&mut self, classifier: &Classifier) {
        self.version = Some(classifier.version());
        self.edition = self.edition.wrapping_add(1);
        let unchanged = classifier.tested_words().eq(self.words.iter().map(|word| *word as usize));
        if unchanged && self.edition != 0 {
            return;
        }
        // Rows may lie elsewhere from now on, or the editions begin again.
        self.words.clear();
        self.words.extend(classifier.tested_words().map(|word| word as u32));
        self.stride = (HEAD + self.words.len() + RULES).next_multiple_of(UNIT);
        let sets = (self.rows.len() / (self.stride * WAYS)).max(1);
        self.sets = 1 << sets.ilog2();
        self.edition = 1;
        self.tags.fill([0; WAYS]);
        self.rows.fill(0);
    }

    /// Takes the tested words of a key.
    #[inline(always)]
    fn take_flow(&mut self, key: &[u32]) {
        self.flow.clear();
        self.flow.extend(self.words.iter().map(|word| key[*word as usize]));
    }

    /// Takes the tested words of a key. Answers their hash.
    #[inline(always)]
    fn read(&mut self, key: &[u32]) -> u64 {
        self.take_flow(key);
        let mut hash = 0;
        for block in self.flow.chunks(2 * HASHED) {
            let mut words = [0; HASHED];
            for (word, pair) in words.iter_mut().zip(block.chunks(2)) {
                *word = u64::from(pair[0]) << 32 | u64::from(pair.get(1).copied().unwrap_or(0));
            }
            hash = hash_pair(hash, hash_words(&words, &self.secret), &self.secret);
        }
        hash
    }

    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        hash as usize & (self.sets - 1)
    }

    /// The place with a hash's tag.
    #[inline(always)]
    fn place(&self, hash: u64) -> Option<usize> {
        let set = self.set(hash);
        let way = self.tags[set].iter().position(|other| *other == tag(hash))?;
        Some(set * WAYS + way)
    }

    /// The place of the flow that was read.
    #[inline(always)]
    fn find(&self, hash: u64) -> Option<usize> {
        let row = self.place(hash)?;
        let words = &self.rows[row * self.stride..][..self.stride];
        (words[0] == self.edition && words[HEAD..][..self.flow.len()] == self.flow[..]).then_some(row)
    }

    /// The rules in a place, and their number with its flag.
    #[inline(always)]
    fn rules(&self, row: usize) -> (u32, &[u32]) {
        let words = &self.rows[row * self.stride..][..self.stride];
        (words[1], &words[HEAD + self.words.len()..][..(words[1] & !FIRST) as usize])
    }

    /// Answers from the cache, if it has the flow.
    #[inline(always)]
    fn answer(&mut self, hash: u64, found: &mut Matches) -> bool {
        let Some(row) = self.find(hash) else { return false };
        let (known, rules) = self.rules(row);
        if known & FIRST != 0 && !rules.is_empty() {
            return false;
        }
        found.set(rules);
        self.hits += 1;
        true
    }

    fn keep_matches(&mut self, hash: u64, found: &Matches) {
        let mut rules = [0; UNIT + RULES];
        let room = (self.stride - HEAD - self.words.len()).min(rules.len());
        if found.len() <= room {
            rules.iter_mut().zip(found.rules()).for_each(|(kept, rule)| *kept = rule);
            self.keep(hash, 0, &rules[..found.len()]);
        }
    }

    /// Keeps the rules of the flow that was read.
    #[inline(always)]
    fn keep(&mut self, hash: u64, flag: u32, rules: &[u32]) {
        let set = self.set(hash);
        // Of equal tags one is enough; else a free place, else one by the hash.
        let of = |wanted: u32| self.tags[set].iter().position(|other| *other == wanted);
        let way = of(tag(hash)).or_else(|| of(0)).unwrap_or((hash >> 30) as usize % WAYS);
        self.tags[set][way] = tag(hash);
        let row = &mut self.rows[(set * WAYS + way) * self.stride..][..self.stride];
        row[0] = self.edition;
        row[1] = rules.len() as u32 | flag;
        row[HEAD..][..self.flow.len()].copy_from_slice(&self.flow);
        row[HEAD + self.flow.len()..][..rules.len()].copy_from_slice(rules);
    }
}

/// The bits of a hash that are compared first, never 0.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
