//! Lookups of a batch in a table that waits on memory.
//!
//! First prefetch for every packet, then look, then decide. So a batch pays for one cache miss and not for one a
//! packet.

/// Lookups a chunk of [`Table::lookup_bulk`] keeps in flight: enough to hide memory, few enough for the first-level
/// cache.
pub const BULK: usize = 32;

/// A packet's key in some form, or none, as a caller of [`Table::prefetch_all`] keeps it.
pub trait Asked<K> {
    /// The key, if there is one.
    fn key(&self) -> Option<K>;
    /// The key, if there is one and it is not known to be [short](Table::shorten), which it may be nevertheless.
    fn long(&self) -> Option<&K>;
}

impl<K: Copy> Asked<K> for Option<&K> {
    #[inline(always)]
    fn key(&self) -> Option<K> {
        self.copied()
    }
    #[inline(always)]
    fn long(&self) -> Option<&K> {
        *self
    }
}

/// Places of the keys that a table seems not to have, of up to 256 that [`Table::prefetch_all`] was given.
///
/// They cannot be predicted, so they are listed without a branch, and looked up after all others.
#[derive(Clone, Debug)]
pub struct Missed {
    places: [u8; 256],
    len: usize,
}

impl Missed {
    /// None of them.
    #[must_use]
    pub const fn none() -> Self {
        Self { places: [0; 256], len: 0 }
    }

    /// Takes all of them off it.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The places, in order.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.places.iter().take(self.len).map(|place| usize::from(*place))
    }

    /// Makes the list again: `seek` says of each item whether it is one, for the first 256.
    #[inline(always)]
    pub fn list<I>(&mut self, items: impl Iterator<Item = I>, mut seek: impl FnMut(I) -> bool) {
        let mut len = 0;
        // Not by `for`, which would look at both ends of a chain of iterators each time.
        items.enumerate().for_each(|(place, item)| {
            let missed = seek(item);
            self.places[len % 256] = place as u8;
            len += usize::from(missed && place < 256);
        });
        self.len = len;
    }
}

/// A table that answers in three steps.
///
/// 1. The caller [tells](Self::tell) the time, takes the [`hasher`](Self::hasher), and runs
///    [`hash`](Self::hash) for every packet of a batch.
/// 2. It runs [`prefetch_all`](Self::prefetch_all) for all of them, and [`prefetch_missed`](Self::prefetch_missed) for
///    those that the table seems not to have.
/// 3. It runs [`resolve`](Self::resolve) for each in order. Before that it may try [`resolve_here`](Self::resolve_here)
///    or [`resolve_there`](Self::resolve_there), which answer most.
///
/// [`lookup_bulk`](Self::lookup_bulk) does all that. A ticket is a hint: one that is stale, or comes from another table
/// of the same type, costs time and never changes the answer.
pub trait Table: 'static {
    /// The key of a lookup.
    type Key: Copy + 'static;
    /// The short form of a key, all that a batch need keep of a short one.
    ///
    /// The key itself where all are alike.
    type Short: Copy + 'static;
    /// A hint about a key before its lookup: usually its hash and its probable place. The default holds nothing.
    type Ticket: Copy + Default + 'static;
    /// The result of a lookup: a value to use, or a place where one may be put.
    type Entry<'t>
    where
        Self: 't;

    /// The parameters for hashing a key.
    ///
    /// They are copied out once a batch, so that a loop over packets does not borrow the table.
    type Hasher: Copy + 'static;

    /// The short form of a key that has one: different keys have different ones.
    fn shorten(key: &Self::Key) -> Option<Self::Short>;
    /// The key whose short form [`shorten`](Self::shorten) gave.
    ///
    /// For anything else the answer may be any key, as that of [`resolve_here`](Self::resolve_here) may be any entry.
    fn lengthen(short: Self::Short) -> Self::Key;

    /// The parameters for hashing a key.
    fn hasher(&self) -> Self::Hasher;

    /// Hashes `key` and asks for the memory that is looked at first. Changes nothing.
    fn hash(hasher: &Self::Hasher, key: &Self::Key) -> Self::Ticket;

    /// Looks at what `hash` asked for and asks for the rest. Changes nothing but the ticket, and may do nothing.
    fn prefetch(&self, key: &Self::Key, ticket: &mut Self::Ticket);

    /// [Prefetches](Self::prefetch) each of these, in order.
    ///
    /// Tickets without a key may hold anything before and after, so that a table that needs no keys here need not tell
    /// them apart. `missed` gets the places of those that the table seems not to have, and possibly of some without a
    /// key. For a table that cannot tell, it stays empty.
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<Self::Key>, &'k mut Self::Ticket)>,
        missed: &mut Missed,
    ) {
        missed.list(keys, |(asked, ticket)| {
            asked.key().into_iter().for_each(|key| self.prefetch(&key, ticket));
            false
        });
    }

    /// Prefetches the memory that is written when this [missed](Missed) key is inserted.
    ///
    /// Changes nothing, and may do nothing.
    #[inline(always)]
    fn prefetch_missed(&self, _key: &Self::Key) {}

    /// The time (ns on the caller's clock, which never goes back) as of which keys are resolved from now on.
    fn tell(&mut self, now: u64);

    /// The answer for `key`, as of the time last [told](Self::tell) and as everything resolved before it left the table.
    fn resolve(&mut self, key: Self::Key, ticket: Self::Ticket) -> Self::Entry<'_>;

    /// Resolves as [`resolve`](Self::resolve), if that takes only a look at the ticket's place.
    ///
    /// This is the part that a loop over packets should inline. Where it is `None` nothing has changed, and `resolve`
    /// has the answer. A table without rare answers gives them all here.
    fn resolve_here(&mut self, short: Self::Short, ticket: Self::Ticket) -> Option<Self::Entry<'_>>;

    /// Resolves as [`resolve_here`](Self::resolve_here), for any key, on a path that few packets take.
    ///
    /// Comparing a long key takes registers that a loop over packets needs for other values.
    fn resolve_there(&mut self, key: &Self::Key, ticket: Self::Ticket) -> Option<Self::Entry<'_>>;

    /// As [`resolve`](Self::resolve), without a ticket: for a key that is hardly where its ticket says, though it may be.
    #[inline(always)]
    fn resolve_elsewhere(&mut self, key: Self::Key) -> Self::Entry<'_> {
        self.resolve(key, Self::Ticket::default())
    }

    /// Looks up one key.
    #[inline(always)]
    fn lookup(&mut self, key: Self::Key, now: u64) -> Self::Entry<'_> {
        let mut ticket = Self::hash(&self.hasher(), &key);
        self.prefetch(&key, &mut ticket);
        self.tell(now);
        self.resolve(key, ticket)
    }

    /// Looks up `keys` in order, hiding memory latency; calls `visit` with each key's position and entry.
    #[inline(always)]
    fn lookup_bulk(&mut self, keys: &[Self::Key], now: u64, mut visit: impl FnMut(usize, Self::Entry<'_>))
    where
        Self: Sized,
    {
        self.tell(now);
        let (hasher, mut missed) = (self.hasher(), Missed::none());
        for (chunk, keys) in keys.chunks(BULK).enumerate() {
            let Some(first) = keys.first() else { continue };
            let mut tickets = [Self::hash(&hasher, first); BULK];
            for (ticket, key) in tickets.iter_mut().zip(keys).skip(1) {
                *ticket = Self::hash(&hasher, key);
            }
            self.prefetch_all(keys.iter().map(Some).zip(tickets.iter_mut()), &mut missed);
            missed.iter().filter_map(|place| keys.get(place)).for_each(|key| self.prefetch_missed(key));
            for (at, (ticket, key)) in tickets.iter().zip(keys).enumerate() {
                visit(chunk * BULK + at, self.resolve(*key, *ticket));
            }
        }
    }
}
