//! Longest-prefix match of IPv4 and IPv6 addresses.
//!
//! A lookup takes one memory access for most of IPv4, at most five, and a few for IPv6, however many prefixes there
//! are.

mod address;
mod change;
mod compressed_leaf;
mod ends;
mod routes;
#[cfg(test)]
mod tests;
mod transfer;
mod trie;
mod walk;

pub use address::Address;
pub use change::{RouteChange, RouteOutcome};
pub use ends::{RouteLifetime, RoutesFull};
pub use routes::{Routes, RoutesAnnouncer};
pub use transfer::LpmImportError;
pub use walk::LpmTicket;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flow::Counters;
use crate::memory::MemoryError;
use crate::prefetch::prefetch;
use crate::table::{Asked, Missed, Table};
use ends::Ends;
use trie::{Cell, Route, Trie};

/// The size of a table for longest-prefix match.
///
/// It never grows. A prefix that does not fit is refused, or takes [the place](RoutesFull) of one that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LpmConfig {
    /// The most prefixes held at a time; 1 or more, at most [`Lpm::MAXIMUM`].
    pub prefixes: usize,
    /// The most groups of cells.
    ///
    /// IPv4 needs one for each /20 and each /26 that holds a longer prefix, IPv6 one for each /16, /24, /32 and so on.
    /// [`for_prefixes`](Self::for_prefixes) counts them.
    pub groups: usize,
}

impl LpmConfig {
    /// The exact size for these prefixes, given as address and length.
    ///
    /// ```
    /// use netbricks_tables::LpmConfig;
    /// use std::net::Ipv4Addr;
    ///
    /// let config = LpmConfig::for_prefixes([(Ipv4Addr::new(10, 0, 0, 0), 8), (Ipv4Addr::new(10, 1, 2, 64), 26)]);
    /// assert_eq!(config, LpmConfig { prefixes: 2, groups: 1 });
    /// ```
    pub fn for_prefixes<A: Address>(prefixes: impl IntoIterator<Item = (A, u8)>) -> Self {
        let mut all = BTreeSet::new();
        let mut groups = BTreeSet::new();
        for (prefix, len) in prefixes {
            let len = len.min(A::BITS);
            all.insert((prefix.truncated(len), len));
            groups.extend((A::ROOT..len).step_by(A::STRIDE.into()).map(|end| (end, prefix.truncated(end))));
        }
        Self { prefixes: all.len().max(1), groups: groups.len() }
    }
}

/// Why a longest-prefix-match table could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LpmTableError {
    /// A table for no prefixes.
    #[error("a prefix table's capacity is 0 prefixes: give it 1 or more")]
    CapacityZero,
    /// More than a cell can name.
    #[error("a prefix table is to have {asked} {what}, but at most {maximum} are possible: ask for less")]
    TooMany {
        /// `"prefixes"` or `"groups"`.
        what: &'static str,
        /// Asked for.
        asked: usize,
        /// Possible.
        maximum: usize,
    },
    /// Memory can't be had.
    #[error("a prefix table of {groups} groups {source}")]
    Memory {
        /// Groups asked for.
        groups: usize,
        /// The cause.
        source: MemoryError,
    },
}

/// Why a prefix was refused; the table is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LpmError {
    /// A length that these addresses don't have.
    #[error("a prefix of /{len}, but these addresses have {bits} bits: give a length of 0 to {bits}")]
    Length {
        /// The length.
        len: u8,
        /// Bits of an address.
        bits: u8,
    },
    /// Bits are set behind the prefix's end.
    #[error("{address}/{len} has bits set behind its first {len}: write {network}/{len}")]
    HostBits {
        /// The address, as it was given.
        address: String,
        /// The length.
        len: u8,
        /// The address with those bits cleared.
        network: String,
    },
    /// No room for another prefix.
    #[error("no room for another prefix: the table holds its {capacity}, make it larger")]
    PrefixesFull {
        /// Prefixes that it can hold.
        capacity: usize,
    },
    /// No room to tell such long prefixes apart.
    #[error("no room for a prefix this long: all {groups} groups of the table are in use, give it more")]
    GroupsFull {
        /// Groups that there are.
        groups: usize,
    },
    /// No memory to file the ends of prefixes.
    #[error("no prefix of this table can end: a timer wheel for all of them {problem}")]
    Memory {
        /// The cause.
        problem: String,
    },
}

/// Values by prefix of an IPv4 or IPv6 address; the longest prefix that holds an address decides.
///
/// # Memory
/// IPv4 takes 10 MiB and 320 bytes a group, IPv6 320 KiB and 1,280 bytes a group. A fifth of it lies apart from the
/// rest. So do, in IPv4, a MiB of bytes and 4 MiB of compressed leaves. Each part takes whole units of 2 MiB where it is larger
/// than 128 KiB. All of it is allocated and touched when the table is made.
///
/// The index of prefixes and values is not. It takes some 50 bytes a prefix, and less than that for each distinct
/// value. One distinct value more than ever before moves the others now and then.
///
/// # Work
/// A lookup reads one cell, and one more for each group on its way. In IPv4 it first reads a byte, in a MiB of them.
/// This holds while fewer than a 32nd of all /20s have a longer prefix in them or a value whose number does not fit a
/// byte. For those the byte is an extra read, and so is a compressed leaf, which answers where there is just one longer prefix.
///
/// Values are numbered as they come, the lowest free number first, up to 254 in a byte and 255 in a compressed leaf. With more
/// of them, first insert those that decide for most addresses.
///
/// Inserting or removing a prefix writes the cells for which it decides: those of one stride, of which it has at most
/// 2²⁰ (0.0.0.0/0), and of the groups behind them. For a compressed leaf it reads up to two groups of each /20. No lookup sees
/// a change in progress, since changing takes the table exclusively.
///
/// # Lifetimes
/// A prefix may have a [lifetime](Self::insert_with_lifetime). Lookups find it until [`expire`](Self::expire) has
/// removed it. A lookup in private or strict [`Routes`] calls that before each batch. For bounded ones the author does,
/// by [`RouteChange::Expire`]. Removing a short prefix takes as long as inserting it.
///
/// ```
/// use netbricks_tables::{Lpm, LpmConfig};
/// use std::net::Ipv6Addr;
///
/// let mut routes: Lpm<Ipv6Addr, &str> = Lpm::new(LpmConfig { prefixes: 10, groups: 20 })?;
/// routes.insert("2001:db8::".parse()?, 32, "provider")?;
/// routes.insert("2001:db8:7::".parse()?, 48, "customer")?;
/// assert_eq!(routes.longest("2001:db8:7::1".parse()?), Some(&"customer"));
/// assert_eq!(routes.longest("2001:db8:8::1".parse()?), Some(&"provider"));
/// assert_eq!(routes.longest("2001:db9::1".parse()?), None);
/// assert_eq!(routes.remove("2001:db8:7::".parse()?, 48), Some("customer"));
/// assert_eq!(routes.longest("2001:db8:7::1".parse()?), Some(&"provider"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lpm<A: Address, V: 'static> {
    trie: Trie<A>,
    /// Values by number, from 1 on.
    ///
    /// 0 stands for none. Less 1 it is beyond the last, so that one comparison finds both.
    values: Vec<V>,
    /// How many prefixes have the value; values that none has are not read.
    uses: Vec<usize>,
    /// The lowest is given out first, since a byte holds only low ones.
    free_values: BinaryHeap<Reverse<u32>>,
    numbers: HashMap<V, u32>,
    prefixes: BTreeMap<(A, u8), u32>,
    /// How many prefixes there are of each length.
    lengths: Vec<usize>,
    capacity: usize,
    ends: Ends<A>,
    /// The latest time (ns) that it was told.
    now: u64,
    counters: Counters,
    /// The edition of this table for which tickets hold.
    edition: u64,
}

/// A number that no edition of any table had.
fn edition() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The parameters for hashing an address for an [`Lpm`].
#[derive(Clone, Copy, Debug)]
pub struct LpmHasher {
    first: *const u8,
    /// The logarithm of how many bytes the first stride has for each of its cells.
    shift: u8,
}

impl<A: Address, V: Copy + Eq + Hash + 'static> Lpm<A, V> {
    /// How many prefixes there can be, and how many groups.
    pub const MAXIMUM: usize = Cell::MAXIMUM;

    /// An empty table.
    ///
    /// # Errors
    /// When the capacity is 0, there are more prefixes or groups than [can be numbered](Self::MAXIMUM), or there is no memory
    /// for them.
    pub fn new(config: LpmConfig) -> Result<Self, LpmTableError> {
        let LpmConfig { prefixes: capacity, groups } = config;
        let maximum = Self::MAXIMUM;
        if capacity == 0 {
            return Err(LpmTableError::CapacityZero);
        }
        for (what, asked) in [("prefixes", capacity), ("groups", groups)] {
            if asked > maximum {
                return Err(LpmTableError::TooMany { what, asked, maximum });
            }
        }
        let trie = Trie::new(groups).map_err(|source| LpmTableError::Memory { groups, source })?;
        Ok(Self { trie, capacity, ..Self::none() })
    }

    /// A table that holds nothing, has no room, and takes no memory for cells.
    ///
    /// A caller can look it up like any other.
    pub(super) fn none() -> Self {
        Self {
            trie: Trie::none(),
            values: Vec::new(),
            uses: Vec::new(),
            free_values: BinaryHeap::new(),
            numbers: HashMap::new(),
            prefixes: BTreeMap::new(),
            lengths: vec![0; usize::from(A::BITS) + 1],
            capacity: 0,
            ends: Ends::none(),
            now: 0,
            counters: Counters::default(),
            edition: edition(),
        }
    }

    /// Whether it was made [without room](Self::none).
    pub(super) fn is_none(&self) -> bool {
        self.capacity == 0
    }

    /// Prefixes in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The most prefixes it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Groups of cells in use, and how many there are.
    #[must_use]
    pub fn groups(&self) -> (usize, usize) {
        (self.trie.groups_in_use(), self.trie.groups())
    }

    /// The value of the longest prefix that holds `address`.
    #[inline(always)]
    #[must_use]
    pub fn longest(&self, address: A) -> Option<&V> {
        self.value(self.trie.find(address))
    }

    /// The value of a number; `None` for 0.
    #[inline(always)]
    pub(super) fn value(&self, number: usize) -> Option<&V> {
        self.values.get(number.wrapping_sub(1))
    }

    /// The value of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: A, len: u8) -> Option<&V> {
        self.value(*self.prefixes.get(&(prefix, len))? as usize)
    }

    /// All prefixes with their values, by address and then by length.
    pub fn iter(&self) -> impl Iterator<Item = (A, u8, &V)> {
        self.prefixes
            .iter()
            .filter_map(|((prefix, len), number)| Some((*prefix, *len, self.value(*number as usize)?)))
    }

    /// Gives a prefix a value; the one that it had. It has no end: [`insert_with_lifetime`](Self::insert_with_lifetime).
    ///
    /// # Errors
    /// When it is no prefix of these addresses, or does not fit. Nothing changes then.
    pub fn insert(&mut self, prefix: A, len: u8, value: V) -> Result<Option<V>, LpmError> {
        self.insert_with_lifetime(prefix, len, value, RouteLifetime::default())
    }

    fn is_prefix(prefix: A, len: u8) -> Result<(), LpmError> {
        if len > A::BITS {
            return Err(LpmError::Length { len, bits: A::BITS });
        }
        let network = prefix.truncated(len);
        if network != prefix {
            let (address, network) = (prefix.to_string(), network.to_string());
            return Err(LpmError::HostBits { address, len, network });
        }
        Ok(())
    }

    /// Gives a prefix a value; the one that it had. There must be room for it.
    fn put(&mut self, prefix: A, len: u8, value: V) -> Option<V> {
        self.edition = edition();
        let before = self.prefixes.get(&(prefix, len)).copied();
        self.counters.inserted += u64::from(before.is_none());
        if let Some(number) = before
            && self.uses[number as usize - 1] == 1
            && !self.numbers.contains_key(&value)
        {
            // No other route has the old value: its number takes the new one.
            let replaced = std::mem::replace(&mut self.values[number as usize - 1], value);
            self.numbers.remove(&replaced);
            self.numbers.insert(value, number);
            return Some(replaced);
        }
        let number = self.number_of(value);
        let replaced = before.and_then(|number| self.value(number as usize).copied());
        if self.prefixes.insert((prefix, len), number).is_none() {
            self.lengths[usize::from(len)] += 1;
        }
        self.trie.insert(prefix, len, Route::new(number, len));
        if let Some(before) = before {
            self.give_back(before);
        }
        replaced
    }

    /// Takes a prefix out; the value that it had.
    pub fn remove(&mut self, prefix: A, len: u8) -> Option<V> {
        self.edition = edition();
        let number = self.prefixes.remove(&(prefix, len))?;
        self.lengths[usize::from(len)] -= 1;
        self.ends.forget(&(prefix, len));
        let value = self.value(number as usize).copied();
        let around =
            (0..len).rev().filter(|shorter| self.lengths[usize::from(*shorter)] > 0).find_map(|shorter| {
                let number = self.prefixes.get(&(prefix.truncated(shorter), shorter))?;
                Some(Route::new(*number, shorter))
            });
        self.trie.remove(prefix, len, around.unwrap_or(Route::NONE));
        self.give_back(number);
        value
    }

    /// Takes all prefixes out, the longest first.
    pub fn clear(&mut self) {
        let mut all: Vec<(A, u8)> = self.prefixes.keys().copied().collect();
        all.sort_by_key(|(_, len)| Reverse(*len));
        for (prefix, len) in all {
            self.remove(prefix, len);
        }
    }

    /// The number of a value, with one use more.
    ///
    /// It is at most the number of prefixes: a prefix that changes its value either shares the old one or takes its
    /// number.
    fn number_of(&mut self, value: V) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            self.uses[*number as usize - 1] += 1;
            return *number;
        }
        let free = self.free_values.pop().map(|Reverse(number)| number);
        let number = free.unwrap_or_else(|| {
            self.values.push(value);
            self.uses.push(0);
            self.values.len() as u32
        });
        self.values[number as usize - 1] = value;
        self.uses[number as usize - 1] = 1;
        self.numbers.insert(value, number);
        number
    }

    fn give_back(&mut self, number: u32) {
        let uses = &mut self.uses[number as usize - 1];
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(&self.values[number as usize - 1]);
            self.free_values.push(Reverse(number));
        }
    }
}

impl<A: Address, V: Copy + Eq + Hash + 'static> Table for Lpm<A, V> {
    type Key = A;
    type Short = A;
    type Ticket = LpmTicket<A>;
    type Entry<'t> = Option<&'t V>;
    type Hasher = LpmHasher;

    #[inline(always)]
    fn shorten(address: &A) -> Option<A> {
        Some(*address)
    }
    #[inline(always)]
    fn lengthen(address: A) -> A {
        address
    }

    #[inline(always)]
    fn hasher(&self) -> Self::Hasher {
        let (first, shift) = self.trie.start();
        LpmHasher { first, shift }
    }

    #[inline(always)]
    fn hash(hasher: &Self::Hasher, address: &A) -> LpmTicket<A> {
        prefetch(hasher.first.wrapping_add(address.root() << hasher.shift));
        LpmTicket::default()
    }

    /// Does nothing: one address alone has no others to wait with.
    #[inline(always)]
    fn prefetch(&self, _: &A, _: &mut LpmTicket<A>) {}

    #[inline(always)]
    fn prefetch_all<'k>(
        &self,
        keys: impl Iterator<Item = (impl Asked<A>, &'k mut LpmTicket<A>)>,
        missed: &mut Missed,
    ) {
        missed.clear();
        self.walk(keys.filter_map(|(asked, ticket)| Some((asked.key()?, ticket))));
    }

    #[inline(always)]
    fn tell(&mut self, _: u64) {}

    #[inline(always)]
    fn resolve(&mut self, address: A, ticket: LpmTicket<A>) -> Option<&V> {
        self.value(self.number(address, ticket))
    }
    #[inline(always)]
    fn resolve_here(&mut self, address: A, ticket: LpmTicket<A>) -> Option<Option<&V>> {
        Some(self.resolve(address, ticket))
    }
    #[inline(always)]
    fn resolve_there(&mut self, address: &A, ticket: LpmTicket<A>) -> Option<Option<&V>> {
        Some(self.resolve(*address, ticket))
    }
}

impl<A: Address, V: 'static> std::fmt::Debug for Lpm<A, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lpm")
            .field("prefixes", &self.prefixes.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
