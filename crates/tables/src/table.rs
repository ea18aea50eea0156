//! The contract between whoever has a batch of packets and a table that waits on memory: ask for everything first,
//! look second, decide last, so that a batch pays for one cache miss and not for one a packet.

/// Lookups a chunk of [`Table::lookup_bulk`] keeps in flight: enough to hide memory, few enough for the first-level
/// cache.
pub const BULK: usize = 32;

/// What a caller of [`Table::approach_all`] keeps of a packet: its key in some form, or none.
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

/// Of the keys that [`Table::approach_all`] was given, up to 256, the places of those that the table seems not to have.
///
/// Nobody can predict which these will be, so that they are listed without a branch, and looked at when all others were.
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

    /// Lists them anew: `seek` says of each item in turn whether it is one. Only the first 256 are looked at for that.
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
/// A caller [tells](Self::tell) the time and takes the [`announcer`](Self::announcer), runs
/// [`announce`](Self::announce) for every packet of a batch, then [`approach_all`](Self::approach_all) for all of them and
/// [`approach_missed`](Self::approach_missed) for those that the table seems not to have, then
/// [`resolve`](Self::resolve) for each in order; or [`lookup_bulk`](Self::lookup_bulk) does all that. Before `resolve` it may
/// try [`resolve_here`](Self::resolve_here) or [`resolve_there`](Self::resolve_there), which answer most.
/// A ticket is a hint: one that is stale, or comes from another table of the same type, costs time and never changes
/// the answer.
pub trait Table: 'static {
    /// What the table is asked by.
    type Key: Copy + 'static;
    /// What is left of a key where most keys are short, and this one is: all that a batch need keep of it. The key itself
    /// where all are alike.
    type Short: Copy + 'static;
    /// What is known about a key before it is looked up: usually its hash and where it seems to be. The default knows
    /// nothing.
    type Ticket: Copy + Default + 'static;
    /// What there is for a key: a value to use, or a place where one may be put.
    type Entry<'t>
    where
        Self: 't;

    /// What announcing a key takes: copied out once a batch, so that a loop over packets need not borrow the table.
    type Announcer: Copy + 'static;

    /// The short form of a key that has one: different keys have different ones.
    fn shorten(key: &Self::Key) -> Option<Self::Short>;
    /// The key whose short form [`shorten`](Self::shorten) gave. Of anything else the answer may be any key, as that of
    /// [`resolve_here`](Self::resolve_here) may be anybody's entry.
    fn lengthen(short: Self::Short) -> Self::Key;

    /// What announcing a key takes.
    fn announcer(&self) -> Self::Announcer;

    /// Hashes `key` and asks for the memory that is looked at first. Changes nothing.
    fn announce(announcer: &Self::Announcer, key: &Self::Key) -> Self::Ticket;

    /// Looks at what `announce` asked for and asks for the rest. Changes nothing but the ticket, and may do nothing.
    fn approach(&self, key: &Self::Key, ticket: &mut Self::Ticket);

    /// [Approaches](Self::approach) each of these, in order. Tickets without a key may say anything, and what
    /// becomes of them does not matter, so that a table that needs no keys here need not tell them apart. `missed` has the places
    /// of those that the table seems not to have, and possibly of some without a key; of a table that can't tell, none.
    fn approach_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<Self::Key>, &'k mut Self::Ticket)>,
        missed: &mut Missed,
    ) {
        missed.list(keys, |(asked, ticket)| {
            asked.key().into_iter().for_each(|key| self.approach(&key, ticket));
            false
        });
    }

    /// Asks for the memory that is written where this key, which was [missed](Missed), is put in. Changes nothing, and may do
    /// nothing.
    #[inline(always)]
    fn approach_missed(&self, _key: &Self::Key) {}

    /// The time (ns on the caller's clock, which never goes back) as of which keys are resolved from now on.
    fn tell(&mut self, now: u64);

    /// The answer for `key`, as of the time last [told](Self::tell) and as everything resolved before it left the table.
    fn resolve(&mut self, key: Self::Key, ticket: Self::Ticket) -> Self::Entry<'_>;

    /// As [`resolve`](Self::resolve), if that takes no more than a look where the ticket says: the part that a loop over
    /// packets should inline. Where it is `None` nothing has changed, and `resolve` has the answer. A table
    /// that finds nothing rare about any answer gives them all here.
    fn resolve_here(&mut self, short: Self::Short, ticket: Self::Ticket) -> Option<Self::Entry<'_>>;

    /// As [`resolve_here`](Self::resolve_here), of any key: for a way that few packets take, since to compare a long one takes
    /// registers that a loop over packets has better use for.
    fn resolve_there(&mut self, key: &Self::Key, ticket: Self::Ticket) -> Option<Self::Entry<'_>>;

    /// As [`resolve`](Self::resolve), without a ticket: for a key that is hardly where its ticket says, though it may be.
    #[inline(always)]
    fn resolve_elsewhere(&mut self, key: Self::Key) -> Self::Entry<'_> {
        self.resolve(key, Self::Ticket::default())
    }

    /// Looks up one key.
    #[inline(always)]
    fn lookup(&mut self, key: Self::Key, now: u64) -> Self::Entry<'_> {
        let mut ticket = Self::announce(&self.announcer(), &key);
        self.approach(&key, &mut ticket);
        self.tell(now);
        self.resolve(key, ticket)
    }

    /// Looks up `keys` in order, hiding the memory's latency, and calls `visit` with each key's place in `keys` and
    /// its entry.
    #[inline(always)]
    fn lookup_bulk(&mut self, keys: &[Self::Key], now: u64, mut visit: impl FnMut(usize, Self::Entry<'_>))
    where
        Self: Sized,
    {
        self.tell(now);
        let (announcer, mut missed) = (self.announcer(), Missed::none());
        for (chunk, keys) in keys.chunks(BULK).enumerate() {
            let Some(first) = keys.first() else { continue };
            let mut tickets = [Self::announce(&announcer, first); BULK];
            for (ticket, key) in tickets.iter_mut().zip(keys).skip(1) {
                *ticket = Self::announce(&announcer, key);
            }
            self.approach_all(keys.iter().map(Some).zip(tickets.iter_mut()), &mut missed);
            missed.iter().filter_map(|place| keys.get(place)).for_each(|key| self.approach_missed(key));
            for (at, (ticket, key)) in tickets.iter().zip(keys).enumerate() {
                visit(chunk * BULK + at, self.resolve(*key, *ticket));
            }
        }
    }
}
