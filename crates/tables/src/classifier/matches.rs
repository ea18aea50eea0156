//! Results of a lookup, which the caller keeps from packet to packet.

/// An entry that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    order: u64,
    rule: u32,
    last: bool,
}

/// The rules that match a key vector, in ascending order.
///
/// A lookup replaces what is in it. It keeps its memory, so it allocates only where there are more matches than ever
/// before.
#[derive(Clone, Debug)]
pub struct Matches {
    found: Vec<Found>,
    /// The least order of an entry found that is the last.
    bound: u64,
}

impl Default for Matches {
    fn default() -> Self {
        Self::new()
    }
}

impl Matches {
    /// No rules.
    #[must_use]
    pub const fn new() -> Self {
        Self { found: Vec::new(), bound: u64::MAX }
    }

    /// No rules, and room for so many before memory is allocated again.
    #[must_use]
    pub fn with_capacity(rules: usize) -> Self {
        Self { found: Vec::with_capacity(rules), bound: u64::MAX }
    }

    /// The rules, each once, in ascending order.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = u32> {
        self.found.iter().map(|found| found.rule)
    }

    /// The rule of least order.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.found.first().map(|found| found.rule)
    }

    /// The number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether no rule matched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Takes all rules out.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.found.clear();
        self.bound = u64::MAX;
    }

    /// Gives it these rules, in this order.
    #[inline(always)]
    pub(super) fn set(&mut self, rules: &[u32]) {
        self.clear();
        let all = rules.iter().enumerate();
        self.found.extend(all.map(|(order, rule)| Found { order: order as u64, rule: *rule, last: false }));
    }

    /// Sorts what was found, ends it at the first that is last, and leaves each rule once.
    #[inline(always)]
    fn finish(&mut self) {
        if self.found.len() > 1 {
            self.sort();
        }
    }

    fn sort(&mut self) {
        let (found, bound) = (&mut self.found, self.bound);
        found.sort_unstable();
        // Of equal orders those up to the rule that is last.
        if let Some(at) = found.iter().position(|found| found.last && found.order == bound) {
            let rule = found[at].rule;
            found.retain(|other| (other.order, other.rule) <= (bound, rule));
        }
        found.dedup_by_key(|found| found.rule);
        // Entries of one rule with other rules between them: rare, and few.
        let few = found.len() <= 16;
        let twice = |at: usize| found[..at].iter().any(|before| before.rule == found[at].rule);
        if few && !(1..found.len()).any(twice) {
            return;
        }
        found.sort_unstable_by_key(|found| (found.rule, found.order));
        found.dedup_by_key(|found| found.rule);
        found.sort_unstable();
    }
}

/// A receiver of entries that match, in any order.
pub(super) trait Receive {
    /// Entries of a greater order are of no use any more.
    fn bound(&self) -> u64;
    /// Takes an entry.
    fn take(&mut self, order: u64, rule: u32, last: bool);
    /// Ends the search.
    fn finish(&mut self);
}

impl Receive for Matches {
    #[inline(always)]
    fn bound(&self) -> u64 {
        self.bound
    }

    #[inline(always)]
    fn take(&mut self, order: u64, rule: u32, last: bool) {
        self.found.push(Found { order, rule, last });
        if last {
            self.bound = self.bound.min(order);
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        Matches::finish(self);
    }
}

/// Takes entries also behind one that is the last.
pub(super) struct Every<'m>(pub(super) &'m mut Matches);

impl Receive for Every<'_> {
    fn bound(&self) -> u64 {
        u64::MAX
    }
    fn take(&mut self, order: u64, rule: u32, _: bool) {
        self.0.take(order, rule, false);
    }
    fn finish(&mut self) {
        self.0.finish();
    }
}

/// The entry of least order.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    best: (u64, u32),
    found: bool,
}

impl First {
    pub(super) const NONE: Self = Self { best: (u64::MAX, u32::MAX), found: false };

    #[inline(always)]
    pub(super) fn rule(&self) -> Option<u32> {
        self.found.then_some(self.best.1)
    }
}

impl Receive for First {
    #[inline(always)]
    fn bound(&self) -> u64 {
        self.best.0
    }

    #[inline(always)]
    fn take(&mut self, order: u64, rule: u32, _: bool) {
        self.found = true;
        self.best = self.best.min((order, rule));
    }

    #[inline(always)]
    fn finish(&mut self) {}
}
