//! The choice of a receive queue by filters of the graph: two maps, and code that looks packets up.
//!
//! Each device queue has a socket for each receive queue. The program looks up VLAN and EtherType in a hash map, and
//! the addresses in a trie of prefixes. Each entry has the place of its rule and the queue; the earliest rule decides.
//! Packets of no rule go by a hash of their addresses, which is the same in both directions.
//!
//! The maps hold two generations of entries, and a setting of the program says which one counts. So rules are replaced at
//! once, and those before stay where the new ones could not be written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use netbricks_core::guards::Filter;

use super::assembler::{Arithmetic, Assembler, Helper, Label, Register, When, Width};
use super::steering::need;
use crate::steer::{Prefix, RuleLimits, Rules};
use crate::sys::bpf::Map;

/// The rules that a port can have.
pub(super) const LIMITS: RuleLimits = RuleLimits { most: 4_096, accepts };

/// Bytes of a key in the trie: bits that count, kind, address.
const TRIE_KEY: usize = 24;
/// Bits of the kind, in front of an address.
const KIND_BITS: u32 = 32;
/// Kinds of numbers, above 16 bits.
const ANY: u32 = 1 << 24;
const VLAN: u32 = 2 << 24;
const ETHERTYPE: u32 = 3 << 24;
/// The mark of the second generation in a number, and in a kind of prefix.
const SECOND_NUMBER: u32 = 1 << 28;
const SECOND_KIND: u32 = u32::from_ne_bytes([0, 0, 1, 0]);
/// Places on the program's stack, below those of the steering rules.
const NUMBER: i16 = -4;
const KEPT: i16 = -8;
const HASH: i16 = -12;
const TRIE: i16 = -40;
/// The marks of the generation that counts.
const NUMBERS: i16 = -44;
const KINDS: i16 = -48;

/// The maps of one interface.
#[derive(Debug)]
pub(super) struct Choice {
    numbers: Map,
    prefixes: Map<TRIE_KEY>,
    queues: u32,
    /// The entries of each generation.
    known: [BTreeSet<Entry>; 2],
    /// The generation that counts.
    current: usize,
}

/// A key of one of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Number(u32),
    Prefix([u8; TRIE_KEY]),
}

impl Entry {
    /// The key in a generation.
    fn in_generation(self, generation: usize) -> Self {
        match self {
            Self::Number(number) if generation > 0 => Self::Number(number | SECOND_NUMBER),
            Self::Prefix(mut key) if generation > 0 => {
                for (byte, mark) in key[4..8].iter_mut().zip(SECOND_KIND.to_ne_bytes()) {
                    *byte |= mark;
                }
                Self::Prefix(key)
            }
            first => first,
        }
    }
}

/// Whether a filter is one that a lookup finds: by VLAN, by EtherType, or by one prefix.
fn accepts(filter: &Filter) -> bool {
    entry(filter).is_some()
}

fn entry(filter: &Filter) -> Option<Entry> {
    let Filter { ethertype, vlan, protocol, source, destination, source_port, destination_port, .. } =
        *filter;
    if protocol.is_some() || source_port.is_some() || destination_port.is_some() {
        return None;
    }
    match (vlan, source, destination, ethertype) {
        (None, Some(prefix), None, _) => Some(Entry::Prefix(trie_key(&prefix, true))),
        (None, None, Some(prefix), _) => Some(Entry::Prefix(trie_key(&prefix, false))),
        (Some(id), None, None, None) => Some(Entry::Number(VLAN | u32::from(id))),
        (None, None, None, Some(number)) => Some(Entry::Number(ETHERTYPE | u32::from(number))),
        (None, None, None, None) => Some(Entry::Number(ANY)),
        _ => None,
    }
}

/// The kind of an address, as the first word of the trie's data.
const fn kind(is_v6: bool, is_source: bool) -> u32 {
    u32::from_ne_bytes([if is_v6 { 6 } else { 4 }, is_source as u8, 0, 0])
}

fn trie_key(prefix: &Prefix, is_source: bool) -> [u8; TRIE_KEY] {
    let mut key = [0; TRIE_KEY];
    key[..4].copy_from_slice(&(KIND_BITS + u32::from(prefix.bits())).to_ne_bytes());
    key[4..8].copy_from_slice(&kind(prefix.address().is_ipv6(), is_source).to_ne_bytes());
    match prefix.address() {
        IpAddr::V4(address) => key[8..12].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => key[8..24].copy_from_slice(&address.octets()),
    }
    key
}

/// The entries of rules. An entry has the earliest rule that holds for all that is looked up there.
fn entries(rules: &Rules) -> BTreeMap<Entry, u32> {
    let mut entries: BTreeMap<Entry, u32> = BTreeMap::new();
    for (place, rule) in (0_u32..).zip(rules.iter()) {
        let Some(key) = entry(&rule.filter) else { continue };
        let own = place << 8 | u32::from(rule.queue);
        // The trie finds the longest prefix only: a shorter one that comes earlier decides for it, too.
        let sides = [(rule.filter.destination, false), (rule.filter.source, true)];
        let wider = sides.into_iter().filter_map(|(prefix, is_source)| Some((prefix?, is_source)));
        let wider = wider.flat_map(|(prefix, is_source)| {
            (0..prefix.bits()).map(move |bits| trie_key(&Prefix::around(prefix.address(), bits), is_source))
        });
        let earliest = wider.filter_map(|key| entries.get(&Entry::Prefix(key)).copied()).min();
        let value = earliest.map_or(own, |earliest| earliest.min(own));
        entries.entry(key).or_insert(value);
    }
    entries
}

impl Choice {
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        let room = 2 * LIMITS.most as u32;
        Ok(Self {
            numbers: Map::new(crate::sys::bpf::MapKind::Hash, room, "nb_numbers")?,
            prefixes: Map::of_prefixes(room, "nb_prefixes")?,
            queues,
            known: [BTreeSet::new(), BTreeSet::new()],
            current: 0,
        })
    }

    /// The sockets of each device queue.
    pub(super) fn queues(&self) -> u32 {
        self.queues
    }

    /// Writes rules into the generation that does not count.
    ///
    /// After an error the others count as before.
    pub(super) fn prepare(&mut self, rules: &Rules) -> io::Result<()> {
        let next = 1 - self.current;
        self.clear(next)?;
        for (key, value) in entries(rules) {
            let key = key.in_generation(next);
            match &key {
                Entry::Number(number) => self.numbers.set(*number, value)?,
                Entry::Prefix(prefix) => self.prefixes.set_bytes(prefix, value)?,
            }
            self.known[next].insert(key);
        }
        Ok(())
    }

    /// Lets the other generation count, once the program's settings say so.
    pub(super) fn turn(&mut self) {
        self.current = 1 - self.current;
    }

    /// Whether the second generation counts.
    pub(super) fn is_second(&self) -> bool {
        self.current > 0
    }

    fn clear(&mut self, generation: usize) -> io::Result<()> {
        while let Some(key) = self.known[generation].first().copied() {
            match &key {
                Entry::Number(number) => self.numbers.remove(*number)?,
                Entry::Prefix(prefix) => self.prefixes.remove_bytes(prefix)?,
            }
            self.known[generation].remove(&key);
        }
        Ok(())
    }

    /// Takes note of the generation that counts: the bit `second` of R9, which has the program's settings.
    pub(super) fn emit_generation(a: &mut Assembler, second: u32) {
        use Register::{R1, R9, R10};
        let first = a.label();
        a.store_value(Width::Word, R10, NUMBERS, 0);
        a.store_value(Width::Word, R10, KINDS, 0);
        a.compute_with(Arithmetic::Move, R1, R9);
        a.compute(Arithmetic::And, R1, second as i32);
        a.jump_if(When::Equal, R1, 0, first);
        a.store_value(Width::Word, R10, NUMBERS, SECOND_NUMBER as i32);
        a.store_value(Width::Word, R10, KINDS, SECOND_KIND as i32);
        a.bind(first);
    }

    /// R2 = the number of the packet's socket in the map of sockets.
    ///
    /// R6 is the context, and R8 the packet's end. R9 becomes the best entry so far: all bits are set for none.
    pub(super) fn emit(&self, a: &mut Assembler) {
        use Register::{R1, R2, R6, R7, R9, R10};
        let (chosen, by_hash, socket) = (a.label(), a.label(), a.label());
        a.compute(Arithmetic::Move, R9, -1);
        a.load(Width::Word, R7, R6, 0);
        a.store_value(Width::Word, R10, HASH, 0);
        a.compute(Arithmetic::Move, R2, 0);
        self.number(a, ANY, R2);
        need(a, 14, chosen);
        a.load_network_half(R2, R7, 12);
        a.compute(Arithmetic::Add, R7, 14);
        self.tags(a, chosen);
        a.store(Width::Word, R10, KEPT, R2);
        self.number(a, ETHERTYPE, R2);
        let (v4, v6) = (a.label(), a.label());
        a.load(Width::Word, R2, R10, KEPT);
        a.jump_if(When::Equal, R2, 0x0800, v4);
        a.jump_if(When::Equal, R2, 0x86dd, v6);
        a.jump(chosen);
        a.bind(v4);
        self.addresses(a, Header { len: 20, version: 4, source: 12, destination: 16, words: 1 }, chosen);
        a.jump(chosen);
        a.bind(v6);
        self.addresses(a, Header { len: 40, version: 6, source: 8, destination: 24, words: 4 }, chosen);

        a.bind(chosen);
        a.jump_if(When::Equal, R9, -1, by_hash);
        a.compute_with(Arithmetic::Move, R2, R9);
        a.compute(Arithmetic::And, R2, 0xff);
        a.jump(socket);
        a.bind(by_hash);
        a.load(Width::Word, R2, R10, HASH);
        a.compute(Arithmetic::Multiply, R2, 0x1e37_79b1);
        a.compute(Arithmetic::ShiftRight, R2, 16);
        a.compute(Arithmetic::And, R2, 0xffff);
        a.compute(Arithmetic::Modulo, R2, self.queues as i32);
        a.bind(socket);
        a.load(Width::Word, R1, R6, 16);
        a.compute(Arithmetic::Multiply, R1, self.queues as i32);
        a.compute_with(Arithmetic::Add, R2, R1);
    }

    /// Passes up to two VLAN tags; looks the first one up.
    fn tags(&self, a: &mut Assembler, chosen: Label) {
        use Register::{R2, R3, R7, R10};
        let done = a.label();
        for first in [true, false] {
            let tag = a.label();
            for number in [0x8100, 0x88a8, 0x9100] {
                a.jump_if(When::Equal, R2, number, tag);
            }
            a.jump(done);
            a.bind(tag);
            need(a, 4, chosen);
            a.load_network_half(R2, R7, 2);
            if first {
                a.load_network_half(R3, R7, 0);
                a.store(Width::Word, R10, KEPT, R2);
                a.compute(Arithmetic::And, R3, 0xfff);
                self.number(a, VLAN, R3);
                a.load(Width::Word, R2, R10, KEPT);
            }
            a.compute(Arithmetic::Add, R7, 4);
        }
        a.bind(done);
    }

    /// Looks up both addresses of an IP header at R7, and hashes them.
    fn addresses(&self, a: &mut Assembler, header: Header, chosen: Label) {
        use Register::{R1, R2, R7, R10};
        need(a, i32::from(header.len), chosen);
        a.load(Width::Byte, R1, R7, 0);
        a.compute_with(Arithmetic::Move, R2, R1);
        a.compute(Arithmetic::ShiftRight, R2, 4);
        a.jump_if(When::NotEqual, R2, header.version, chosen);
        if header.version == 4 {
            let whole = a.label();
            a.compute(Arithmetic::And, R1, 0xf);
            a.jump_if(When::Greater, R1, 4, whole);
            a.jump(chosen);
            a.bind(whole);
        }
        a.compute(Arithmetic::Move, R1, 0);
        for word in 0..2 * header.words {
            a.load(Width::Word, R2, R7, header.source + 4 * word);
            a.compute_with(Arithmetic::Xor, R1, R2);
        }
        a.store(Width::Word, R10, HASH, R1);
        for (at, is_source) in [(header.destination, false), (header.source, true)] {
            let bits = KIND_BITS as i32 + 32 * i32::from(header.words);
            a.store_value(Width::Word, R10, TRIE, bits);
            a.load(Width::Word, R1, R10, KINDS);
            a.compute(Arithmetic::Or, R1, kind(header.version == 6, is_source) as i32);
            a.store(Width::Word, R10, TRIE + 4, R1);
            for word in 0..4 {
                if word < header.words {
                    a.load(Width::Word, R1, R7, at + 4 * word);
                    a.store(Width::Word, R10, TRIE + 8 + 4 * word, R1);
                } else {
                    a.store_value(Width::Word, R10, TRIE + 8 + 4 * word, 0);
                }
            }
            look_up(a, &self.prefixes, TRIE);
        }
    }

    /// Looks up the number in a register.
    fn number(&self, a: &mut Assembler, kind: u32, number: Register) {
        use Register::{R1, R10};
        a.load(Width::Word, R1, R10, NUMBERS);
        a.compute(Arithmetic::Or, R1, kind as i32);
        a.compute_with(Arithmetic::Or, R1, number);
        a.store(Width::Word, R10, NUMBER, R1);
        look_up(a, &self.numbers, NUMBER);
    }
}

/// The places in an IP header.
struct Header {
    len: u8,
    version: i32,
    source: i16,
    destination: i16,
    /// Words of an address.
    words: i16,
}

/// Takes the entry of the key on the stack if its rule is earlier than the best so far.
fn look_up<const KEY: usize>(a: &mut Assembler, map: &Map<KEY>, key: i16) {
    use Register::{R0, R1, R2, R9, R10};
    let none = a.label();
    a.load_map(R1, map);
    a.compute_with(Arithmetic::Move, R2, R10);
    a.compute(Arithmetic::Add, R2, i32::from(key));
    a.call(Helper::MapLookup);
    a.jump_if(When::Equal, R0, 0, none);
    a.load(Width::Word, R1, R0, 0);
    a.jump_if_register(When::Greater, R1, R9, none);
    a.compute_with(Arithmetic::Move, R9, R1);
    a.bind(none);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steer::Rule;

    fn rule(filter: Filter, queue: u16) -> Rule {
        Rule { filter: filter.checked().unwrap(), queue }
    }

    #[test]
    fn filters_by_one_field_are_accepted() {
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        let accepted = [
            Filter::ANY,
            Filter::ANY.in_vlan(3),
            Filter::ANY.ethertype(0x0806),
            Filter::ANY.to(prefix),
            Filter::ANY.from(prefix),
        ];
        let refused = [
            Filter::ANY.protocol(17),
            Filter::ANY.to(prefix).in_vlan(3),
            Filter::ANY.to(prefix).from(prefix),
            Filter::ANY.protocol(6).to_port(22),
        ];
        assert!(accepted.iter().all(|filter| accepts(&filter.checked().unwrap())));
        assert!(!refused.iter().any(|filter| accepts(&filter.checked().unwrap())));
    }

    /// A longer prefix behind a shorter one has the shorter one's queue, and one before it keeps its own.
    #[test]
    fn an_earlier_wider_prefix_decides_for_longer_ones() {
        let to = |text: &str| Filter::ANY.to(text.parse().unwrap());
        let rules = Rules::derived(vec![
            rule(to("10.1.0.0/16"), 1),
            rule(to("10.0.0.0/8"), 0),
            rule(to("10.2.0.0/16"), 2),
        ]);
        let entries = entries(&rules);
        let at = |text: &str| {
            let filter = to(text).checked().unwrap();
            entries[&entry(&filter).unwrap()]
        };
        assert_eq!([at("10.1.0.0/16"), at("10.0.0.0/8"), at("10.2.0.0/16")], [1, 1 << 8, 1 << 8]);
    }

    /// The trie keeps the generations, and the kinds of addresses, apart.
    #[test]
    fn generations_have_keys_of_their_own() {
        let prefix: Prefix = "10.0.0.0/8".parse().unwrap();
        let six: Prefix = "a00::/8".parse().unwrap();
        let filters = [
            Filter::ANY,
            Filter::ANY.in_vlan(4094),
            Filter::ANY.ethertype(0xffff),
            Filter::ANY.to(prefix),
            Filter::ANY.from(prefix),
            Filter::ANY.to(six),
            Filter::ANY.from(six),
        ];
        let keys = filters.iter().flat_map(|filter| {
            let key = entry(&filter.checked().unwrap()).unwrap();
            [key.in_generation(0), key.in_generation(1)]
        });
        assert_eq!(keys.collect::<BTreeSet<_>>().len(), 2 * filters.len());
    }
}
