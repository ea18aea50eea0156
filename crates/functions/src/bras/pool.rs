//! The pools of addresses and prefixes, and which session has which.

use std::collections::VecDeque;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use netbricks_core::tables::{FlowTable, FlowTableConfig, Table, TableError};

/// A range of IPv4 addresses, first and last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub first: Ipv4Addr,
    /// The last address.
    pub last: Ipv4Addr,
}

impl AddressRange {
    /// The number of addresses.
    pub fn len(&self) -> u64 {
        u64::from(self.last.to_bits()) - u64::from(self.first.to_bits()) + 1
    }
    /// Whether there is no address; a range has one at least.
    pub fn is_empty(&self) -> bool {
        false
    }
    /// Whether an address is in it.
    pub fn holds(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

impl FromStr for AddressRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected FIRST-LAST or ADDRESS/LENGTH, found `{text}`");
        let address = |text: &str| text.trim().parse::<Ipv4Addr>().map_err(|_| wrong());
        let (first, last) = match (text.split_once('-'), text.split_once('/')) {
            (Some((first, last)), _) => (address(first)?, address(last)?),
            (None, Some((first, len))) => {
                let first = address(first)?;
                let len: u32 = len.parse().ok().filter(|len| (8..=32).contains(len)).ok_or_else(wrong)?;
                let hosts = u32::MAX.checked_shr(len).unwrap_or(0);
                if first.to_bits() & hosts != 0 {
                    let network = Ipv4Addr::from_bits(first.to_bits() & !hosts);
                    return Err(format!("{text} has bits behind its length: write {network}/{len}"));
                }
                (first, Ipv4Addr::from_bits(first.to_bits() | hosts))
            }
            (None, None) => {
                let first = address(text)?;
                (first, first)
            }
        };
        if last < first {
            return Err(format!("{text} ends before it begins"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// An IPv6 prefix of up to 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The first half of its addresses; bits behind the length are 0.
    pub bits: u64,
    /// Its length in bits.
    pub len: u8,
}

impl Prefix {
    /// Whether an address is in it.
    pub fn holds(&self, address: Ipv6Addr) -> bool {
        upper(address) & mask(self.len) == self.bits
    }
    /// Whether hosts may have its addresses: they are neither multicast nor link-local nor reserved.
    pub(super) fn is_of_hosts(&self) -> bool {
        let first = self.address();
        !(self.holds(Ipv6Addr::UNSPECIFIED) || first.is_multicast() || first.is_unicast_link_local())
    }
    /// Its first address.
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.bits) << 64)
    }
}

/// The first half of an address.
pub(super) fn upper(address: Ipv6Addr) -> u64 {
    (address.to_bits() >> 64) as u64
}

/// The first `len` of 64 bits.
pub(super) fn mask(len: u8) -> u64 {
    !u64::MAX.checked_shr(len.into()).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected an IPv6 prefix of 16 to 64 bits, ADDRESS/LENGTH, found `{text}`");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
        let len: u8 = len.parse().ok().filter(|len| (16..=64).contains(len)).ok_or_else(wrong)?;
        let bits = upper(address) & mask(len);
        if u128::from(bits) << 64 != address.to_bits() {
            let prefix = Self { bits, len };
            return Err(format!("{text} has bits behind its length: write {prefix}"));
        }
        Ok(Self { bits, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

/// Why an address or prefix cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// Another session has it.
    Taken,
    /// The pool has none left.
    Exhausted,
}

/// Numbers of a pool that are free: those that were never given, and then those that came back first.
struct Free {
    count: u64,
    /// The first that was never given.
    next: u64,
    returned: VecDeque<u32>,
    /// Whether a number waits in `returned`, a bit for each.
    waits: Vec<u64>,
}

impl Free {
    fn new(count: u64) -> Self {
        let count = count.min(MOST);
        let returned = VecDeque::with_capacity(count as usize);
        Self { count, next: 0, returned, waits: vec![0; count.div_ceil(64) as usize] }
    }

    fn take(&mut self) -> Option<u64> {
        if self.next < self.count {
            self.next += 1;
            return Some(self.next - 1);
        }
        let number = self.returned.pop_front()?;
        self.mark(number, false);
        Some(number.into())
    }

    fn mark(&mut self, number: u32, waits: bool) {
        if let Some(word) = self.waits.get_mut(number as usize / 64) {
            let bit = 1 << (number % 64);
            *word = if waits { *word | bit } else { *word & !bit };
        }
    }

    /// Takes a number back, unless it waits already, or was never given.
    fn put(&mut self, number: u64) {
        let Ok(short) = u32::try_from(number) else { return };
        let waits = self.waits.get(short as usize / 64).is_some_and(|word| word >> (short % 64) & 1 == 1);
        if number < self.next && !waits {
            self.returned.push_back(short);
            self.mark(short, true);
        }
    }
}

/// The addresses and prefixes of sessions, by which packets from the core find them.
pub(super) struct Addresses {
    ranges: Vec<AddressRange>,
    v4: FlowTable<u32, u32>,
    free_v4: Free,
    pub(super) prefixes: Option<Prefix>,
    /// Bits of each delegated prefix.
    pub(super) len: u8,
    v6: FlowTable<u64, u32>,
    free_v6: Free,
    reserved: Reserved,
}

/// The addresses of the concentrator, of its gateway and of DNS servers, which no session has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) v4: Vec<Ipv4Addr>,
    pub(super) v6: Vec<Ipv6Addr>,
}

/// Pools, without what sessions have of them.
pub(super) struct Pools {
    ranges: Vec<AddressRange>,
    prefixes: Option<Prefix>,
    len: u8,
    reserved: Reserved,
}

impl Pools {
    /// Whether sessions of the pools before surely go on with what they have of these.
    pub(super) fn surely_serve(&self, before: &Self) -> bool {
        self.ranges == before.ranges
            && (self.prefixes, self.len) == (before.prefixes, before.len)
            && self.reserved.v4.iter().all(|address| before.reserved.v4.contains(address))
            && self.reserved.v6.iter().all(|address| before.reserved.v6.contains(address))
    }
}

impl Reserved {
    /// Whether a host may have an address.
    pub(super) fn allows_v4(&self, address: Ipv4Addr) -> bool {
        is_of_host(address) && !self.v4.contains(&address)
    }
    /// Whether a subscriber may have a prefix.
    pub(super) fn allows_v6(&self, prefix: Prefix) -> bool {
        prefix.is_of_hosts() && !self.v6.iter().any(|address| prefix.holds(*address))
    }
}

/// Whether an address is one of a single host.
pub(super) fn is_of_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}

/// The most addresses of a pool, and the most prefixes that are given of one.
pub(super) const MOST: u64 = 1 << 20;

impl Addresses {
    /// # Errors
    /// When there is no memory.
    pub(super) fn new(
        (ranges, reserved): (&[AddressRange], Reserved),
        (prefixes, len): (Option<Prefix>, u8),
        sessions: usize,
        seed: u64,
    ) -> Result<Self, TableError> {
        let config = FlowTableConfig::new(sessions).seeded(seed);
        let count = ranges.iter().map(AddressRange::len).sum();
        let count_v6 = prefixes.map_or(0, |pool| 1_u64 << len.saturating_sub(pool.len).min(63));
        Ok(Self {
            ranges: ranges.to_vec(),
            v4: FlowTable::new(config)?,
            free_v4: Free::new(count),
            prefixes,
            len,
            v6: FlowTable::new(config)?,
            free_v6: Free::new(count_v6),
            reserved,
        })
    }

    /// The pools, without what sessions have of them.
    pub(super) fn pools(&self) -> Pools {
        let (ranges, reserved) = (self.ranges.clone(), self.reserved.clone());
        Pools { ranges, prefixes: self.prefixes, len: self.len, reserved }
    }

    /// Whether the pools are the same, so that sessions may go on with what they have.
    pub(super) fn serves_like(&self, other: &Self) -> bool {
        self.ranges == other.ranges
            && self.prefixes == other.prefixes
            && self.len == other.len
            && self.reserved.v4.iter().all(|address| other.of_v4(*address).is_none())
            && self.reserved.v6.iter().all(|address| other.of_v6(*address).is_none())
    }

    /// Takes over the addresses of sessions from pools that are [the same](Self::serves_like).
    ///
    /// The reserved ones stay those of this node. Those that only the other node reserved are free.
    pub(super) fn continue_with(&mut self, other: &mut Self) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.reserved, &mut other.reserved);
        for address in &other.reserved.v4 {
            if self.reserved.allows_v4(*address) {
                self.put_v4(*address);
            }
        }
        for address in &other.reserved.v6 {
            let prefix = Prefix { bits: upper(*address) & mask(self.len), len: self.len };
            if self.reserved.allows_v6(prefix) {
                self.put_v6(prefix);
            }
        }
    }

    /// The session that has an address.
    #[inline]
    pub(super) fn of_v4(&self, address: Ipv4Addr) -> Option<u32> {
        self.v4.get(&address.to_bits()).copied()
    }

    /// The session that has an address, by its prefix.
    #[inline]
    pub(super) fn of_v6(&self, address: Ipv6Addr) -> Option<u32> {
        self.v6.get(&(upper(address) & mask(self.len))).copied()
    }

    /// Gives a session this address, or one of the pool.
    pub(super) fn take_v4(
        &mut self,
        wanted: Option<Ipv4Addr>,
        session: u32,
    ) -> Result<Ipv4Addr, Unavailable> {
        if let Some(address) = wanted {
            let is_free = self.reserved.allows_v4(address) && self.of_v4(address).is_none();
            return if is_free && self.keep_v4(address, session) {
                Ok(address)
            } else {
                Err(Unavailable::Taken)
            };
        }
        loop {
            let number = self.free_v4.take().ok_or(Unavailable::Exhausted)?;
            let address = self.address(number).ok_or(Unavailable::Exhausted)?;
            // A session with an address of its own may have it; it comes back when that session ends.
            if self.reserved.allows_v4(address) && self.of_v4(address).is_none() {
                return if self.keep_v4(address, session) {
                    Ok(address)
                } else {
                    Err(Unavailable::Exhausted)
                };
            }
        }
    }

    fn keep_v4(&mut self, address: Ipv4Addr, session: u32) -> bool {
        self.v4.lookup(address.to_bits(), 0).or_insert_with(|| session).is_some()
    }

    pub(super) fn put_v4(&mut self, address: Ipv4Addr) {
        self.v4.remove(&address.to_bits());
        if let Some(number) = self.number(address) {
            self.free_v4.put(number);
        }
    }

    /// Gives a session this prefix, or one of the pool. Without a pool, there is none.
    pub(super) fn take_v6(
        &mut self,
        wanted: Option<Prefix>,
        session: u32,
    ) -> Result<Option<Prefix>, Unavailable> {
        if let Some(prefix) = wanted {
            let is_free = prefix.len == self.len
                && self.reserved.allows_v6(prefix)
                && self.v6.get(&prefix.bits).is_none();
            let is_kept = is_free && self.keep_v6(prefix, session);
            return if is_kept { Ok(Some(prefix)) } else { Err(Unavailable::Taken) };
        }
        let Some(pool) = self.prefixes else { return Ok(None) };
        loop {
            let number = self.free_v6.take().ok_or(Unavailable::Exhausted)?;
            let bits = pool.bits | number.checked_shl(64 - u32::from(self.len)).unwrap_or(0);
            let prefix = Prefix { bits, len: self.len };
            if self.reserved.allows_v6(prefix) && self.v6.get(&bits).is_none() {
                return if self.keep_v6(prefix, session) {
                    Ok(Some(prefix))
                } else {
                    Err(Unavailable::Exhausted)
                };
            }
        }
    }

    fn keep_v6(&mut self, prefix: Prefix, session: u32) -> bool {
        self.v6.lookup(prefix.bits, 0).or_insert_with(|| session).is_some()
    }

    pub(super) fn put_v6(&mut self, prefix: Prefix) {
        self.v6.remove(&prefix.bits);
        if let Some(pool) = self.prefixes.filter(|pool| pool.holds(prefix.address())) {
            self.free_v6.put((prefix.bits - pool.bits) >> (64 - u32::from(self.len)).min(63));
        }
    }

    /// The address with this number in the pool.
    fn address(&self, mut number: u64) -> Option<Ipv4Addr> {
        for range in &self.ranges {
            if number < range.len() {
                return Some(Ipv4Addr::from_bits(range.first.to_bits() + number as u32));
            }
            number -= range.len();
        }
        None
    }

    fn number(&self, address: Ipv4Addr) -> Option<u64> {
        let mut before = 0;
        for range in &self.ranges {
            if range.holds(address) {
                return Some(before + u64::from(address.to_bits() - range.first.to_bits()));
            }
            before += range.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(ranges: &[&str], prefixes: Option<&str>) -> Addresses {
        let ranges: Vec<AddressRange> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let prefixes = prefixes.map(|prefix| prefix.parse().unwrap());
        let reserved =
            Reserved { v4: vec![Ipv4Addr::new(10, 0, 0, 1)], v6: vec!["2001:db8:0:4::53".parse().unwrap()] };
        Addresses::new((&ranges, reserved), (prefixes, 64), 64, 1).unwrap()
    }

    #[test]
    fn ranges_and_prefixes_are_read_and_faults_named() {
        let range: AddressRange = "10.0.0.0/30".parse().unwrap();
        assert_eq!((range.to_string(), range.len()), ("10.0.0.0-10.0.0.3".into(), 4));
        for (wrong, said) in
            [("10.0.0.1/24", "write 10.0.0.0/24"), ("10.0.0.9-10.0.0.1", "ends before"), ("x", "expected")]
        {
            assert!(wrong.parse::<AddressRange>().unwrap_err().contains(said), "{wrong}");
        }
        for (wrong, said) in [("2001:db8::1/64", "write 2001:db8::/64"), ("2001:db8::/65", "16 to 64")] {
            assert!(wrong.parse::<Prefix>().unwrap_err().contains(said), "{wrong}");
        }
    }

    #[test]
    fn a_pool_gives_each_address_once_and_again_when_it_comes_back() {
        let mut pool = addresses(&["10.0.0.0/30"], None);
        let given: Vec<_> = (0..3).map(|session| pool.take_v4(None, session).unwrap().octets()[3]).collect();
        assert_eq!(given, [0, 2, 3], "not its own address");
        assert_eq!(pool.take_v4(None, 9), Err(Unavailable::Exhausted));
        pool.put_v4(Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(pool.take_v4(None, 4), Ok(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(pool.of_v4(Ipv4Addr::new(10, 0, 0, 2)), Some(4));
        assert_eq!(pool.take_v4(Some(Ipv4Addr::new(10, 0, 0, 2)), 5), Err(Unavailable::Taken));
    }

    #[test]
    fn no_one_gets_what_others_have_or_no_host_may_have() {
        let mut pool = addresses(&["10.0.0.0/30"], Some("2001:db8:0:4::/63"));
        assert_eq!(pool.take_v6(None, 1).unwrap().unwrap().to_string(), "2001:db8:0:5::/64");
        assert_eq!(pool.take_v6(None, 2), Err(Unavailable::Exhausted), "a server is in the other");
        for wrong in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.0.0.1"] {
            assert_eq!(pool.take_v4(Some(wrong.parse().unwrap()), 3), Err(Unavailable::Taken), "{wrong}");
        }
        for wrong in ["::/64", "ff02::/64", "fe80::/64", "2001:db8:0:4::/64"] {
            assert_eq!(pool.take_v6(Some(wrong.parse().unwrap()), 3), Err(Unavailable::Taken), "{wrong}");
        }
        assert!(!"::/16".parse::<Prefix>().unwrap().is_of_hosts());
    }

    #[test]
    fn pools_go_on_under_other_reserved_addresses() {
        let pools = |own: &str, server: &str| {
            let reserved = Reserved { v4: vec![own.parse().unwrap()], v6: vec![server.parse().unwrap()] };
            let prefixes = ("2001:db8::/63".parse().ok(), 64);
            Addresses::new((&["10.0.0.0/30".parse().unwrap()], reserved), prefixes, 8, 1).unwrap()
        };
        let mut old = pools("10.0.0.0", "2001:db8::1");
        assert_eq!(old.take_v4(None, 1), Ok([10, 0, 0, 1].into()));
        assert_eq!(old.take_v6(None, 1).unwrap().unwrap().to_string(), "2001:db8:0:1::/64");
        assert!(!pools("10.0.0.1", "2001:db8:9::1").serves_like(&old), "a session has it");
        assert!(!pools("10.0.0.9", "2001:db8:0:1::1").serves_like(&old), "a session has its prefix");
        let mut new = pools("10.0.0.2", "2001:db8:9::1");
        assert!(new.serves_like(&old));
        new.continue_with(&mut old);
        assert_eq!(new.of_v4([10, 0, 0, 1].into()), Some(1));
        let given: Vec<_> = (2..4).map(|session| new.take_v4(None, session).unwrap().octets()[3]).collect();
        assert_eq!(given, [3, 0], "the old node's own is free, and the new node's is not");
        assert_eq!(new.take_v4(None, 4), Err(Unavailable::Exhausted));
        assert_eq!(new.take_v6(None, 2).unwrap().unwrap().to_string(), "2001:db8::/64");
    }

    #[test]
    fn prefixes_are_given_in_turn() {
        let mut pool = addresses(&[], Some("2001:db8::/62"));
        let given: Vec<String> =
            (0..4).map(|n| pool.take_v6(None, n).unwrap().unwrap().to_string()).collect();
        assert_eq!(given[3], "2001:db8:0:3::/64");
        assert_eq!(pool.take_v6(None, 9), Err(Unavailable::Exhausted));
        assert_eq!(pool.of_v6("2001:db8:0:2::77".parse().unwrap()), Some(2));
        pool.put_v6("2001:db8:0:2::/64".parse().unwrap());
        assert_eq!(pool.of_v6("2001:db8:0:2::77".parse().unwrap()), None);
        assert_eq!(pool.take_v6(None, 7).unwrap().unwrap().to_string(), "2001:db8:0:2::/64");
        assert_eq!(addresses(&[], None).take_v6(None, 1), Ok(None));
    }

    proptest! {
        #[test]
        fn no_two_sessions_have_one_address(steps in proptest::collection::vec((any::<bool>(), 0_u8..12), 1..200)) {
            let mut pool = addresses(&["10.0.0.0-10.0.0.5", "10.0.1.0/31"], None);
            let mut held: Vec<Ipv4Addr> = Vec::new();
            for (session, (gives, which)) in (0..).zip(steps) {
                if gives {
                    // Every other wish is for a certain address.
                    let wanted = (which % 2 == 0).then(|| Ipv4Addr::new(10, 0, 0, which));
                    if let Ok(address) = pool.take_v4(wanted, session) {
                        prop_assert!(!held.contains(&address));
                        prop_assert_eq!(pool.of_v4(address), Some(session));
                        held.push(address);
                    } else if wanted.is_none() {
                        let all = (0..6).map(|last| Ipv4Addr::new(10, 0, 0, last));
                        let all = all.chain((0..2).map(|last| Ipv4Addr::new(10, 0, 1, last)));
                        let own = Ipv4Addr::new(10, 0, 0, 1);
                        prop_assert!(all.filter(|address| *address != own).all(|address| held.contains(&address)));
                    }
                } else if !held.is_empty() {
                    let address = held.remove(usize::from(which) % held.len());
                    pool.put_v4(address);
                    prop_assert_eq!(pool.of_v4(address), None);
                }
            }
        }
    }
}
