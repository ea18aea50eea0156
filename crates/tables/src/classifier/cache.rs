//! One worker's results of known flows, in front of a classifier.

use super::{Classifier, Keys, Matches};
use crate::hash::{Secret, hash_pair, hash_words};
use crate::memory::HugeArray;
use crate::prefetch::prefetch;

/// Places where a flow may be.
const WAYS: usize = 8;
/// The word of a row that is neither key nor rules: its edition, and the number of its rules.
const HEAD: usize = 1;
/// Rules for which a row has room at least.
const RULES: usize = 2;
/// Words to whose multiples rows are rounded up, so that short ones share a cache line.
const UNIT: usize = 8;
/// Words of a cache line, which a row does not exceed where that is possible.
const LINE: usize = 16;
/// The most words of a flow in packed form: each has a bit in the first word.
const PACKED: usize = 32;
/// Windows for which a cache that hits too little stays off.
///
/// A window is as many lookups as there are places.
const OFF: u32 = 30;
/// In the head of a row: just the first rule is known.
const FIRST: u32 = 1 << 4;
/// The bits of the head with the number of rules.
const NUMBER: u32 = FIRST - 1;
/// The edition's lowest bit in the head.
const EDITION: u32 = FIRST << 1;
/// Words of a key that are hashed at a time.
const HASHED: usize = 6;
/// Keys that are looked up together.
const TOGETHER: usize = 32;

/// An exact-match cache of what a [`Classifier`] finds, for one worker.
///
/// A flow is the words of its key vector that some entry tests. Its results hold for one
/// [version](Classifier::version) of the classifier. Use one cache for one classifier, or its copies.
///
/// Memory is allocated when the cache is made. A new flow takes the place of another one of eight. The hash is keyed, so
/// that a sender can't choose flows that displace a certain other. Where fewer than half of the lookups hit, as while
/// every header is new, it turns itself off. Later it is tried again, for two of 32 windows of as many lookups as it has
/// places. The first of the two fills it and is not judged.
///
/// A flow of 14 to 32 tested words is kept without those that are 0, as those of options that a packet has not. Where
/// the others and the rules exceed 14 words, it is not kept.
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
#[derive(Debug)]
pub struct MatchCache {
    secret: Secret,
    /// 32 bits of the hash of the flow in each place; never 0 where there is one.
    tags: HugeArray<[u32; WAYS]>,
    /// A row for each place: its head, the flow, the rules.
    rows: HugeArray<u32>,
    /// Words of a row.
    stride: usize,
    /// Sets in use, a power of two; none where there is no memory.
    sets: usize,
    /// The version of the classifier; `None` before the first lookup.
    version: Option<u64>,
    /// Rows of other editions count for nothing. It is a multiple of [`EDITION`].
    edition: u32,
    /// The words that are tested, in ascending order.
    words: Vec<u32>,
    /// Whether a flow is the set of those that are not 0, and these.
    is_packed: bool,
    /// The flows of the keys that are looked up together.
    flows: Vec<u32>,
    asked: u32,
    hits: u32,
    /// Windows for which it stays off.
    off: u32,
    /// Whether the window is the first since it was turned on.
    filling: bool,
    counted: [u64; 2],
    missed: Keys,
    results: Vec<Matches>,
    places: Vec<(usize, Flow)>,
}

/// A flow among those that are looked up together.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    hash: u64,
    /// Its place in `flows`, and its words.
    start: u32,
    len: u32,
}

impl MatchCache {
    /// A cache of about so many flows of up to five tested words, at most 2²⁴.
    ///
    /// It takes 36 bytes a flow. Longer flows take the room of several. `seed` keys its hash: draw it from the system's randomness where traffic is hostile.
    #[must_use]
    pub fn new(flows: usize, seed: u64) -> Self {
        let sets = flows.clamp(WAYS, 1 << 24).div_ceil(WAYS).next_power_of_two();
        let (tags, rows) = (HugeArray::zeroed(sets), HugeArray::zeroed(sets * WAYS * UNIT));
        // Without memory the classifier is asked.
        let (tags, rows, sets) = match (tags, rows) {
            (Ok(tags), Ok(rows)) => (tags, rows, sets),
            _ => (HugeArray::empty(), HugeArray::empty(), 0),
        };
        Self {
            secret: Secret::from_seed(seed),
            tags,
            rows,
            stride: UNIT,
            sets,
            version: None,
            edition: 0,
            words: Vec::new(),
            is_packed: false,
            // Until an entry tests a word.
            flows: vec![0; TOGETHER],
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
        let flow = self.read(key, 0);
        if let Some((_, rules)) = self.find(flow) {
            let first = rules.first().copied();
            self.hits += 1;
            return first;
        }
        let first = classifier.first(key);
        self.keep(flow, FIRST, first.as_slice());
        first
    }

    /// Does what [`Classifier::matches`] does.
    #[inline]
    pub fn matches(&mut self, classifier: &Classifier, key: &[u32], found: &mut Matches) {
        if !self.ready(classifier, key) {
            return classifier.matches(key, found);
        }
        let flow = self.read(key, 0);
        if self.answer(flow, found) {
            return;
        }
        classifier.matches(key, found);
        self.keep_matches(flow, found);
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
        let mut flows = [Flow::default(); TOGETHER];
        for (at, flow) in flows.iter_mut().enumerate().take(found.len()) {
            *flow = self.read(keys.get(start + at).unwrap_or_default(), at);
            prefetch(self.tags.as_ptr().wrapping_add(self.set(flow.hash)));
        }
        for flow in flows.iter().take(found.len()) {
            if let Some(place) = self.place(flow.hash) {
                prefetch(self.rows.as_ptr().wrapping_add(place * self.stride));
            }
        }
        self.asked += found.len() as u32 - 1;
        self.places.clear();
        for (at, (flow, found)) in flows.iter().zip(&mut *found).enumerate() {
            if !self.answer(*flow, found) {
                self.places.push((at, *flow));
            }
        }
        if !self.places.is_empty() {
            self.ask(classifier, keys, start, found);
        }
    }

    /// Asks the classifier for the keys that the cache does not know.
    fn ask(&mut self, classifier: &Classifier, keys: &Keys, start: usize, found: &mut [Matches]) {
        let places = std::mem::take(&mut self.places);
        let (mut missed, mut results) = (std::mem::take(&mut self.missed), std::mem::take(&mut self.results));
        missed.reset(keys.width());
        for (at, _) in &places {
            missed.push().copy_from_slice(keys.get(start + at).unwrap_or_default());
        }
        results.resize(results.len().max(missed.len()), Matches::new());
        classifier.matches_batch(&missed, &mut results[..missed.len()]);
        for (result, (at, flow)) in results.iter_mut().zip(&places) {
            self.keep_matches(*flow, result);
            std::mem::swap(&mut found[*at], result);
        }
        (self.places, self.missed, self.results) = (places, missed, results);
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
        self.off == 0 && key.len() >= classifier.layout().words() && self.stride * WAYS <= self.rows.len()
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
        self.edition = self.edition.wrapping_add(EDITION);
        let unchanged = classifier.tested_words().eq(self.words.iter().map(|word| *word as usize));
        if unchanged && self.edition != 0 {
            return;
        }
        // Rows may lie elsewhere from now on, or the editions begin again.
        self.words.clear();
        self.words.extend(classifier.tested_words().map(|word| word as u32));
        let words = self.words.len();
        let whole = (HEAD + words + RULES).next_multiple_of(UNIT);
        self.is_packed = whole > LINE && words <= PACKED;
        self.stride = if self.is_packed { LINE } else { whole };
        // A packed flow has its bits in front.
        self.flows.clear();
        self.flows.resize(TOGETHER * (words + 1), 0);
        let sets = (self.rows.len() / (self.stride * WAYS)).max(1);
        self.sets = 1 << sets.ilog2();
        self.edition = EDITION;
        self.tags.fill([0; WAYS]);
        self.rows.fill(0);
    }

    /// Takes the tested words of a key, as the flow of this place among those that are looked up together.
    #[inline(always)]
    fn read(&mut self, key: &[u32], place: usize) -> Flow {
        let room = self.words.len() + 1;
        let start = place * room;
        let to = &mut self.flows[start..start + room];
        let mut len = 0;
        if self.is_packed {
            let (mut there, mut bit) = (0, 1);
            len = 1;
            for word in &self.words {
                let value = key[*word as usize];
                // Without a branch, since it cannot be predicted: a 0 is written over by the next word.
                to[len] = value;
                let is_there = u32::from(value != 0);
                there |= bit * is_there;
                len += is_there as usize;
                bit = bit.wrapping_shl(1);
            }
            to[0] = there;
        } else {
            for (to, word) in to.iter_mut().zip(&self.words) {
                *to = key[*word as usize];
                len += 1;
            }
        }
        let mut hash = 0;
        for block in to[..len].chunks(2 * HASHED) {
            let mut words = [0; HASHED];
            for (word, pair) in words.iter_mut().zip(block.chunks(2)) {
                *word = u64::from(pair[0]) << 32 | u64::from(pair.get(1).copied().unwrap_or(0));
            }
            hash = hash_pair(hash, hash_words(&words, &self.secret), &self.secret);
        }
        Flow { hash, start: start as u32, len: len as u32 }
    }

    /// The words of a flow that was read.
    #[inline(always)]
    fn words_of(&self, flow: Flow) -> &[u32] {
        &self.flows[flow.start as usize..][..flow.len as usize]
    }

    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        hash as usize & (self.sets - 1)
    }

    /// The place with a hash's tag.
    #[inline(always)]
    fn place(&self, hash: u64) -> Option<usize> {
        let set = self.set(hash);
        let way = way(&self.tags[set], tag(hash))?;
        Some(set * WAYS + way)
    }

    /// Whether just the first rule of a flow is known, and its rules.
    #[inline(always)]
    fn find(&self, flow: Flow) -> Option<(bool, &[u32])> {
        let place = self.place(flow.hash)?;
        let row = &self.rows[place * self.stride..][..self.stride];
        let words = self.words_of(flow);
        let (head, rest) = row.split_first()?;
        let is_it = head & !(EDITION - 1) == self.edition && rest.starts_with(words);
        is_it.then(|| (head & FIRST != 0, &rest[words.len()..][..(head & NUMBER) as usize]))
    }

    /// Answers from the cache, if it has the flow.
    #[inline(always)]
    fn answer(&mut self, flow: Flow, found: &mut Matches) -> bool {
        let Some((is_first, rules)) = self.find(flow) else { return false };
        if is_first && !rules.is_empty() {
            return false;
        }
        found.set(rules);
        self.hits += 1;
        true
    }

    fn keep_matches(&mut self, flow: Flow, found: &Matches) {
        let mut rules = [0; NUMBER as usize];
        if found.len() <= rules.len() {
            rules.iter_mut().zip(found.rules()).for_each(|(kept, rule)| *kept = rule);
            self.keep(flow, 0, &rules[..found.len()]);
        }
    }

    /// Keeps the rules of a flow that was read, if there is room in a row.
    #[inline(always)]
    fn keep(&mut self, flow: Flow, flag: u32, rules: &[u32]) {
        let len = flow.len as usize;
        if HEAD + len + rules.len() > self.stride {
            return;
        }
        let set = self.set(flow.hash);
        // Of equal tags one is enough; else a free place, else one by the hash.
        let of = |wanted: u32| way(&self.tags[set], wanted);
        let way = of(tag(flow.hash)).or_else(|| of(0)).unwrap_or((flow.hash >> 30) as usize % WAYS);
        self.tags[set][way] = tag(flow.hash);
        let row = &mut self.rows[(set * WAYS + way) * self.stride..][..self.stride];
        row[0] = self.edition | rules.len() as u32 | flag;
        row[HEAD..][..len].copy_from_slice(&self.flows[flow.start as usize..][..len]);
        row[HEAD + len..][..rules.len()].copy_from_slice(rules);
    }
}

/// The first of a set's places with this tag, found without a branch for each.
#[inline(always)]
fn way(tags: &[u32; WAYS], wanted: u32) -> Option<usize> {
    let there = tags.iter().enumerate().fold(0, |there, (way, tag)| there | u32::from(*tag == wanted) << way);
    (there != 0).then(|| there.trailing_zeros() as usize)
}

/// The bits of a hash that are compared first, never 0.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
