//! Both versions of IP in one table.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Address, Lpm, LpmAnnouncer, LpmConfig, LpmError, LpmImportError, LpmTableError, LpmTicket};
use crate::flow::Encode;
use crate::hash::{Key, Secret};
use crate::parts::Whole;
use crate::table::{Asked, Table};

/// Values by prefix of an IPv4 or IPv6 address: an [`Lpm`] for each version. A version without prefixes has no cells.
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

/// What announcing an address to [`Routes`] takes.
#[derive(Clone, Copy, Debug)]
pub struct RoutesAnnouncer {
    v4: LpmAnnouncer,
    v6: LpmAnnouncer,
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
    pub(crate) fn known(&self, address: IpAddr, ticket: LpmTicket<Ipv6Addr>) -> Option<&V> {
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

    /// Gives a prefix a value; the one that it had.
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

/// Bytes that say how long the first of two exports is.
const LENGTH: usize = 8;

impl<V: Copy + Eq + Hash + Encode + 'static> Routes<V> {
    /// Appends all prefixes to `to`, in a form that [`decode`](Self::decode) reads.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let at = to.len();
        to.extend([0; LENGTH]);
        if !self.v4.is_none() {
            self.v4.encode(to);
        }
        let first = (to.len() - at - LENGTH) as u64;
        to[at..at + LENGTH].copy_from_slice(&first.to_be_bytes());
        if !self.v6.is_none() {
            self.v6.encode(to);
        }
    }

    /// Puts exported prefixes in the place of all that are there; answers how many.
    ///
    /// # Errors
    /// As [`Lpm::decode`]; the table then holds what it held.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<usize, LpmImportError> {
        let damaged = LpmImportError::Damaged { problem: "they are cut short" };
        let (first, rest) = bytes.split_first_chunk::<LENGTH>().ok_or(damaged.clone())?;
        let first = usize::try_from(u64::from_be_bytes(*first)).map_err(|_| damaged.clone())?;
        let (v4, v6) = rest.split_at_checked(first).ok_or(damaged)?;
        // Both are looked at before either is taken.
        check(&self.v4, v4)?;
        check(&self.v6, v6)?;
        Ok(take(&mut self.v4, v4)? + take(&mut self.v6, v6)?)
    }
}

fn check<A: Address + Encode, V: Copy + Eq + Hash + Encode>(
    lpm: &Lpm<A, V>,
    bytes: &[u8],
) -> Result<(), LpmImportError> {
    // None: whoever exported them had no table for this version.
    match bytes.is_empty() {
        true => Ok(()),
        false if lpm.is_none() => {
            Err(LpmImportError::Damaged { problem: "they are of another version of IP than this table" })
        }
        false => lpm.fitting(bytes).map(|_| ()),
    }
}

fn take<A: Address + Encode, V: Copy + Eq + Hash + Encode>(
    lpm: &mut Lpm<A, V>,
    bytes: &[u8],
) -> Result<usize, LpmImportError> {
    if bytes.is_empty() {
        lpm.clear();
        return Ok(0);
    }
    lpm.decode(bytes)
}

impl<V: Copy + Eq + Hash + 'static> Table for Routes<V> {
    type Key = IpAddr;
    type Short = Ipv4Addr;
    type Ticket = LpmTicket<Ipv6Addr>;
    type Entry<'t> = Option<&'t V>;
    type Announcer = RoutesAnnouncer;

    #[inline(always)]
    fn shorten(address: &IpAddr) -> Option<Ipv4Addr> {
        if let IpAddr::V4(address) = address { Some(*address) } else { None }
    }
    #[inline(always)]
    fn lengthen(address: Ipv4Addr) -> IpAddr {
        IpAddr::V4(address)
    }

    #[inline(always)]
    fn announcer(&self) -> RoutesAnnouncer {
        RoutesAnnouncer { v4: self.v4.announcer(), v6: self.v6.announcer() }
    }

    #[inline(always)]
    fn announce(announcer: &RoutesAnnouncer, address: &IpAddr) -> Self::Ticket {
        match address {
            IpAddr::V4(address) => {
                <Lpm<Ipv4Addr, V> as Table>::announce(&announcer.v4, address);
            }
            IpAddr::V6(address) => {
                <Lpm<Ipv6Addr, V> as Table>::announce(&announcer.v6, address);
            }
        }
        LpmTicket::default()
    }

    #[inline(always)]
    fn approach(&self, _: &IpAddr, _: &mut Self::Ticket) {}

    /// IPv6's addresses walk all their way; IPv4's ask for the second cell, behind which hardly any goes, and where few go
    /// even there only in company: the processor looks far enough ahead to wait for those few together.
    #[inline(always)]
    fn approach_all<'k>(&self, keys: impl Iterator<Item = (impl Asked<IpAddr>, &'k mut Self::Ticket)>) {
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
        Some(self.v4.value(self.v4.trie.find_near(address)?))
    }
    #[inline(always)]
    fn resolve_there(&mut self, address: &IpAddr, ticket: Self::Ticket) -> Option<Option<&V>> {
        let near = match address {
            IpAddr::V4(address) => return self.resolve_here(*address, ticket),
            IpAddr::V6(_) if self.v6.is_none() => None,
            IpAddr::V6(address) => self.v6.value(self.v6.number_of_ticket(address, &ticket)?),
        };
        Some(near)
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
