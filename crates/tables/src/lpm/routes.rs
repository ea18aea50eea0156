//! Both versions of IP in one table.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::transfer::Exported;
use super::{
    Address, Lpm, LpmConfig, LpmError, LpmHasher, LpmImportError, LpmTableError, LpmTicket, RouteLifetime,
};
use crate::flow::{Counters, Encode, MAXIMUM_WORK};
use crate::hash::{Key, Secret};
use crate::parts::Whole;
use crate::table::{Asked, Missed, Table};

/// Values by prefix of an IPv4 or IPv6 address: an [`Lpm`] for each version.
///
/// A version without prefixes has no cells.
///
/// ```
/// use netbricks_tables::{LpmConfig, Routes};
///
/// let mut routes: Routes<u32> = Routes::new(Some(LpmConfig { prefixes: 9, groups: 1 }), None)?;
/// routes.insert("192.0.2.0".parse()?, 24, 7)?;
/// assert_eq!(routes.longest("192.0.2.9".parse()?), Some(&7));
/// assert_eq!(routes.longest("2001:db8::1".parse()?), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Routes<V: 'static> {
    pub(super) v4: Lpm<Ipv4Addr, V>,
    v6: Lpm<Ipv6Addr, V>,
}

/// The parameters for hashing an address for [`Routes`].
#[derive(Clone, Copy, Debug)]
pub struct RoutesAnnouncer {
    v4: LpmHasher,
    v6: LpmHasher,
}

impl<V: Copy + Eq + Hash + 'static> Routes<V> {
    /// An empty table, for the versions that a size is given for.
    ///
    /// # Errors
    /// As [`Lpm::new`].
    pub fn new(v4: Option<LpmConfig>, v6: Option<LpmConfig>) -> Result<Self, LpmTableError> {
        fn of<A: Address, V: Copy + Eq + Hash>(
            config: Option<LpmConfig>,
        ) -> Result<Lpm<A, V>, LpmTableError> {
            config.map_or_else(|| Ok(Lpm::none()), Lpm::new)
        }
        Ok(Self { v4: of(v4)?, v6: of(v6)? })
    }

    /// A table that holds nothing and has no room.
    #[must_use]
    pub fn none() -> Self {
        Self { v4: Lpm::none(), v6: Lpm::none() }
    }

    /// As [`longest`](Self::longest), which `ticket` may know.
    #[inline(always)]
    #[must_use]
    pub fn known(&self, address: IpAddr, ticket: LpmTicket<Ipv6Addr>) -> Option<&V> {
        match address {
            IpAddr::V4(_) => self.longest(address),
            IpAddr::V6(address) => self.v6.value(self.v6.number(address, ticket)),
        }
    }

    /// The value of the longest prefix that holds `address`.
    #[inline(always)]
    #[must_use]
    pub fn longest(&self, address: IpAddr) -> Option<&V> {
        match address {
            IpAddr::V4(address) => self.v4.longest(address),
            IpAddr::V6(address) => self.v6.longest(address),
        }
    }

    /// As [`Table::resolve_here`], by a shared reference.
    #[inline(always)]
    #[must_use]
    pub fn known_here(&self, address: Ipv4Addr) -> Option<Option<&V>> {
        Some(self.v4.value(self.v4.trie.find_near(address)?))
    }

    /// As [`Table::resolve_there`], by a shared reference.
    #[inline(always)]
    #[must_use]
    pub fn known_there(&self, address: &IpAddr, ticket: LpmTicket<Ipv6Addr>) -> Option<Option<&V>> {
        let near = match address {
            IpAddr::V4(address) => return self.known_here(*address),
            IpAddr::V6(_) if self.v6.is_none() => None,
            IpAddr::V6(address) => self.v6.value(self.v6.number_of_ticket(address, &ticket)?),
        };
        Some(near)
    }

    /// Gives a prefix a value; the one that it had. It has no end.
    ///
    /// # Errors
    /// As [`Lpm::insert`]; a version that no size was given for is full.
    pub fn insert(&mut self, prefix: IpAddr, len: u8, value: V) -> Result<Option<V>, LpmError> {
        match prefix {
            IpAddr::V4(prefix) => self.v4.insert(prefix, len, value),
            IpAddr::V6(prefix) => self.v6.insert(prefix, len, value),
        }
    }

    /// Takes a prefix out; the value that it had.
    pub fn remove(&mut self, prefix: IpAddr, len: u8) -> Option<V> {
        match prefix {
            IpAddr::V4(prefix) => self.v4.remove(prefix, len),
            IpAddr::V6(prefix) => self.v6.remove(prefix, len),
        }
    }

    /// The value of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: IpAddr, len: u8) -> Option<&V> {
        match prefix {
            IpAddr::V4(prefix) => self.v4.get(prefix, len),
            IpAddr::V6(prefix) => self.v6.get(prefix, len),
        }
    }

    /// All prefixes with their values, IPv4's first, by address and then by length.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u8, &V)> {
        let v4 = self.v4.iter().map(|(prefix, len, value)| (prefix.into(), len, value));
        v4.chain(self.v6.iter().map(|(prefix, len, value)| (prefix.into(), len, value)))
    }

    /// Gives a prefix a value and a lifetime; the value that it had. As [`Lpm::insert_with_lifetime`].
    ///
    /// ```
    /// use netbricks_tables::{LpmConfig, RouteLifetime, Routes, RoutesFull};
    ///
    /// let mut routes: Routes<u32> = Routes::new(None, Some(LpmConfig { prefixes: 2, groups: 8 }))?;
    /// let until = |end| RouteLifetime { now: 0, end: Some(end), full: RoutesFull::EvictFirstToEnd };
    /// routes.insert_with_lifetime("2001:db8:1::".parse()?, 48, 1, until(500))?;
    /// routes.insert_with_lifetime("2001:db8:2::".parse()?, 48, 2, until(300))?;
    /// // There is no room for a third: the one that ends first leaves.
    /// routes.insert_with_lifetime("2001:db8:3::".parse()?, 48, 3, until(900))?;
    /// assert_eq!(routes.longest("2001:db8:2::1".parse()?), None);
    /// assert_eq!((routes.expire(500, 64), routes.len()), (1, 1));
    /// assert_eq!((routes.counters().evicted, routes.counters().expired), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Lpm::insert_with_lifetime`]; a version that no size was given for is full.
    pub fn insert_with_lifetime(
        &mut self,
        prefix: IpAddr,
        len: u8,
        value: V,
        lifetime: RouteLifetime,
    ) -> Result<Option<V>, LpmError> {
        match prefix {
            IpAddr::V4(prefix) => self.v4.insert_with_lifetime(prefix, len, value, lifetime),
            IpAddr::V6(prefix) => self.v6.insert_with_lifetime(prefix, len, value, lifetime),
        }
    }

    /// When exactly this prefix ends (ns); `None` where it does not, or is not there.
    #[must_use]
    pub fn end(&self, prefix: IpAddr, len: u8) -> Option<u64> {
        match prefix {
            IpAddr::V4(prefix) => self.v4.end(prefix, len),
            IpAddr::V6(prefix) => self.v6.end(prefix, len),
        }
    }

    /// Goes on to `now` (ns) and takes out prefixes of either version that are over. As [`Lpm::expire`].
    pub fn expire(&mut self, now: u64, budget: usize) -> usize {
        let mut budget = budget.min(MAXIMUM_WORK);
        self.v4.end_due(now, &mut budget) + self.v6.end_due(now, &mut budget)
    }

    /// Whether more may be over at `now` (ns) than was ended so far: [`expire`](Self::expire) again when there is time.
    #[must_use]
    pub fn is_due(&self, now: u64) -> bool {
        self.v4.is_due(now) || self.v6.is_due(now)
    }

    /// The time (ns) from which on [`expire`](Self::expire) has something to do. As [`Lpm::next_deadline`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.v4.next_deadline().into_iter().chain(self.v6.next_deadline()).min()
    }

    /// Events since the table was made, in both versions together, as [`Lpm::counters`].
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (v4, v6) = (self.v4.counters(), self.v6.counters());
        Counters {
            hits: v4.hits + v6.hits,
            inserted: v4.inserted + v6.inserted,
            evicted: v4.evicted + v6.evicted,
            expired: v4.expired + v6.expired,
            refused: v4.refused + v6.refused,
        }
    }

    /// Prefixes in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most prefixes it can hold, of both versions together.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.v4.capacity() + self.v6.capacity()
    }
}

/// Bytes that give the length of either of two exports.
///
/// Without them, an export that is cut off behind the first would be one of IPv4 alone.
const LENGTHS: usize = 16;

impl<V: Copy + Eq + Hash + Encode + 'static> Routes<V> {
    /// Appends all prefixes to `to`, with what is left of their lifetimes, in a form that [`decode`](Self::decode) reads.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0; LENGTHS]);
        if !self.v4.is_none() {
            self.v4.encode(to);
        }
        let second = to.len();
        if !self.v6.is_none() {
            self.v6.encode(to);
        }
        let lengths = ((second - start - LENGTHS) as u64, (to.len() - second) as u64);
        lengths.encode(&mut to[start..start + LENGTHS]);
    }

    /// Puts exported prefixes in the place of all that are there, as of `now` (ns); answers how many.
    ///
    /// # Errors
    /// As [`Lpm::decode`]; the table then holds what it held.
    pub fn decode(&mut self, bytes: &[u8], now: u64) -> Result<usize, LpmImportError> {
        let damaged = LpmImportError::Damaged { problem: "they are cut short, or go on after their end" };
        let (lengths, rest) = bytes.split_at_checked(LENGTHS).ok_or(damaged.clone())?;
        let (first, second) = <(u64, u64)>::decode(lengths).ok_or(damaged.clone())?;
        if first.checked_add(second) != Some(rest.len() as u64) {
            return Err(damaged);
        }
        let (v4, v6) = rest.split_at(first as usize);
        // Both are looked at before either is taken.
        let (v4, v6) = (fitting(&mut self.v4, v4)?, fitting(&mut self.v6, v6)?);
        Ok(self.v4.take(&v4, now)? + self.v6.take(&v6, now)?)
    }
}

fn fitting<A: Address + Encode, V: Copy + Eq + Hash + Encode>(
    lpm: &mut Lpm<A, V>,
    bytes: &[u8],
) -> Result<Vec<Exported<A, V>>, LpmImportError> {
    // Empty: the exporting table had no table for this version.
    match bytes.is_empty() {
        true => Ok(Vec::new()),
        false if lpm.is_none() => {
            Err(LpmImportError::Damaged { problem: "they are of another version of IP than this table" })
        }
        false => lpm.fitting(bytes),
    }
}

impl<V: Copy + Eq + Hash + 'static> Table for Routes<V> {
    type Key = IpAddr;
    type Short = Ipv4Addr;
    type Ticket = LpmTicket<Ipv6Addr>;
    type Entry<'t> = Option<&'t V>;
    type Hasher = RoutesAnnouncer;

    #[inline(always)]
    fn shorten(address: &IpAddr) -> Option<Ipv4Addr> {
        if let IpAddr::V4(address) = address { Some(*address) } else { None }
    }
    #[inline(always)]
    fn lengthen(address: Ipv4Addr) -> IpAddr {
        IpAddr::V4(address)
    }

    #[inline(always)]
    fn hasher(&self) -> RoutesAnnouncer {
        RoutesAnnouncer { v4: self.v4.hasher(), v6: self.v6.hasher() }
    }

    #[inline(always)]
    fn hash(hasher: &RoutesAnnouncer, address: &IpAddr) -> Self::Ticket {
        match address {
            IpAddr::V4(address) => {
                <Lpm<Ipv4Addr, V> as Table>::hash(&hasher.v4, address);
            }
            IpAddr::V6(address) => {
                <Lpm<Ipv6Addr, V> as Table>::hash(&hasher.v6, address);
            }
        }
        LpmTicket::default()
    }

    #[inline(always)]
    fn prefetch(&self, _: &IpAddr, _: &mut Self::Ticket) {}

    /// IPv6's addresses walk all the way; IPv4's only prefetch the second cell.
    ///
    /// Few IPv4 addresses go further. Where few go even to the second cell, nothing is prefetched: the processor looks
    /// far enough ahead to wait for those together, and a compressed leaf answers most of them.
    #[inline(always)]
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<IpAddr>, &'k mut Self::Ticket)>,
        missed: &mut Missed,
    ) {
        missed.clear();
        if self.v6.is_none() && !self.v4.trie.is_deep() {
            return;
        }
        let v6 = keys.filter_map(|(asked, ticket)| match asked.key()? {
            IpAddr::V6(address) => Some((address, ticket)),
            IpAddr::V4(address) => {
                self.v4.ask_for_second(address);
                None
            }
        });
        if self.v6.is_none() { v6.for_each(drop) } else { self.v6.walk(v6) }
    }

    #[inline(always)]
    fn tell(&mut self, _: u64) {}

    #[inline(always)]
    fn resolve(&mut self, address: IpAddr, ticket: Self::Ticket) -> Option<&V> {
        self.known(address, ticket)
    }
    #[inline(always)]
    fn resolve_here(&mut self, address: Ipv4Addr, _: Self::Ticket) -> Option<Option<&V>> {
        self.known_here(address)
    }
    #[inline(always)]
    fn resolve_there(&mut self, address: &IpAddr, ticket: Self::Ticket) -> Option<Option<&V>> {
        self.known_there(address, ticket)
    }
}

impl Key for IpAddr {
    type Parts = Whole;
    #[inline(always)]
    fn hash(&self, secret: &Secret) -> u64 {
        match self {
            Self::V4(address) => Key::hash(address, secret),
            Self::V6(address) => Key::hash(address, secret),
        }
    }
}

/// The version, then the address in network byte order, an IPv4 address before zeros.
impl Encode for IpAddr {
    const SIZE: usize = 17;
    fn encode(&self, to: &mut [u8]) {
        to.fill(0);
        match self {
            Self::V4(address) => {
                to[0] = 4;
                address.encode(&mut to[1..5]);
            }
            Self::V6(address) => {
                to[0] = 6;
                address.encode(&mut to[1..]);
            }
        }
    }
    fn decode(from: &[u8]) -> Option<Self> {
        match from {
            [4, address @ .., 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => Ipv4Addr::decode(address).map(Self::V4),
            [6, address @ ..] => Ipv6Addr::decode(address).map(Self::V6),
            _ => None,
        }
    }
}
