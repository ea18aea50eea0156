//! The outside addresses and their ports: which are free, in use, held down, or in a subscriber's block.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use netbricks_core::Random;
use netbricks_core::tables::{Key, Secret};

use super::config::{HIGH_PORTS, MOST_ADDRESSES, NatConfig};
use super::spec::Transport;

/// The first port of the upper class, which RFC 4787 (REQ-3) tells from the ports below.
pub(super) const FIRST_HIGH: u16 = 1_024;
const WORDS: usize = 65_536 / 64;

/// The status of an outside address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It gets new mappings.
    Active,
    /// It keeps its mappings and gets no new ones.
    Draining,
    /// It is of static mappings alone.
    Fixed,
}

/// An outside address and its ports.
pub(super) struct OutsideAddress {
    pub(super) address: Ipv4Addr,
    pub(super) status: Status,
    /// Whether the configuration lacks it.
    pub(super) added: bool,
    /// By transport, a bit for each port that is in use or held down.
    used: [Vec<u64>; Transport::COUNT],
    pub(super) in_use: [u32; Transport::COUNT],
    /// By part, the ports of the upper class that are in use or held down.
    high: Vec<[u32; Transport::COUNT]>,
    /// By block, one more than the number of the subscriber that has it.
    owners: Vec<u32>,
    /// By part.
    free_blocks: Vec<u32>,
    pub(super) mappings: u32,
    pub(super) subscribers: u32,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortRange {
    pub(super) first: u16,
    pub(super) last: u16,
}

#[cfg(test)]
impl PortRange {
    pub(super) fn holds(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// A released port that is not given out again yet.
struct Held {
    /// The time (ns) of its release.
    released: u64,
    index: u16,
    transport: Transport,
    port: u16,
}

/// All outside addresses of a worker.
pub(super) struct Ports {
    /// By index; an address that was removed leaves its place empty.
    places: Vec<Option<OutsideAddress>>,
    /// Addresses with their indexes, sorted.
    sorted: Vec<(Ipv4Addr, u16)>,
    held: VecDeque<Held>,
    most_held: usize,
    hold_down: u64,
    pub(super) block: u16,
    pub(super) parts: u32,
    deterministic: bool,
    parity: bool,
    random: Random,
    secret: Secret,
}

impl Ports {
    pub(super) fn new(config: &NatConfig, seed: u64, small: bool) -> Self {
        let most_held = if small { 1 } else { config.capacity.min(1 << 20) };
        let mut ports = Self {
            places: Vec::new(),
            sorted: Vec::new(),
            held: VecDeque::with_capacity(most_held),
            most_held,
            hold_down: config.hold_down.nanoseconds(),
            block: config.block,
            parts: config.parts,
            deterministic: config.deterministic,
            parity: config.parity,
            random: Random::of(&[b"ports of a NAT", &seed.to_le_bytes()]),
            // Alike on all workers and machines: it says which part a subscriber is in.
            secret: Secret::from_seed(0x4e41_545f_5041_5254),
        };
        if small {
            return ports;
        }
        for address in config.pool.iter().flat_map(super::spec::PoolRange::iter) {
            let index = ports.add(address, Status::Active);
            if let Some(place) = index.and_then(|index| ports.get_mut(index)) {
                place.added = false;
            }
        }
        ports
    }

    /// Holds released ports back for as long as the other does.
    pub(super) fn hold_like(&mut self, other: &Self) {
        self.hold_down = other.hold_down;
    }

    /// The next number of a sequence that packets cannot predict.
    pub(super) fn draw(&mut self) -> u64 {
        self.random.draw()
    }

    /// Blocks of one address.
    pub(super) fn blocks(&self) -> u32 {
        match self.block {
            0 => 0,
            block => HIGH_PORTS / u32::from(block),
        }
    }

    /// Adds an address, and answers its index.
    ///
    /// An address that is there becomes active where that is asked.
    pub(super) fn add(&mut self, address: Ipv4Addr, status: Status) -> Option<u16> {
        if let Some(index) = self.index(address) {
            let place = self.places[usize::from(index)].as_mut()?;
            if status == Status::Active {
                place.status = status;
            }
            return Some(index);
        }
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or(self.places.len());
        if index >= MOST_ADDRESSES {
            return None;
        }
        if free.is_none() {
            self.places.push(None);
        }
        let free_blocks = (0..self.parts).map(|part| self.blocks_of(part).len() as u32).collect();
        self.places[index] = Some(OutsideAddress {
            address,
            status,
            added: true,
            used: std::array::from_fn(|_| vec![0; WORDS]),
            in_use: [0; Transport::COUNT],
            high: vec![[0; Transport::COUNT]; self.parts as usize],
            owners: vec![0; self.blocks() as usize],
            free_blocks,
            mappings: 0,
            subscribers: 0,
        });
        let at = self.sorted.partition_point(|(other, _)| *other < address);
        self.sorted.insert(at, (address, index as u16));
        Some(index as u16)
    }

    /// Takes an address out. Its mappings must have ended.
    pub(super) fn remove(&mut self, index: u16) {
        if let Some(place) = self.places.get_mut(usize::from(index)).and_then(Option::take) {
            self.sorted.retain(|(address, _)| *address != place.address);
            self.held.retain(|held| held.index != index);
        }
    }

    /// The index of an outside address.
    #[inline]
    pub(super) fn index(&self, address: Ipv4Addr) -> Option<u16> {
        let at = self.sorted.binary_search_by(|(other, _)| other.cmp(&address)).ok()?;
        self.sorted.get(at).map(|(_, index)| *index)
    }

    #[inline(always)]
    pub(super) fn address(&self, index: u16) -> Option<Ipv4Addr> {
        Some(self.places.get(usize::from(index))?.as_ref()?.address)
    }

    pub(super) fn get(&self, index: u16) -> Option<&OutsideAddress> {
        self.places.get(usize::from(index))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut OutsideAddress> {
        self.places.get_mut(usize::from(index))?.as_mut()
    }

    /// All addresses with their indexes, in the order of the addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &OutsideAddress)> {
        self.sorted.iter().filter_map(|(_, index)| Some((*index, self.get(*index)?)))
    }

    /// The part that a subscriber is in.
    pub(super) fn part_of(&self, subscriber: std::net::IpAddr) -> u32 {
        if self.parts == 1 {
            return 0;
        }
        (subscriber.hash(&self.secret) >> 32) as u32 & (self.parts - 1)
    }

    /// The part that an outside port is in.
    pub(super) fn part_of_port(&self, port: u16) -> u32 {
        if self.deterministic
            && let Some(block) = self.block_of(port)
        {
            return self.part_of_block(block);
        }
        let (first, each) = match port < FIRST_HIGH {
            true => (0, u32::from(FIRST_HIGH) / self.parts),
            false => (u32::from(FIRST_HIGH), HIGH_PORTS / self.parts),
        };
        (u32::from(port) - first) / each.max(1)
    }

    /// The part of a block that belongs to one subscriber for ever.
    pub(super) fn part_of_block(&self, block: u32) -> u32 {
        block & (self.parts - 1)
    }

    /// The ports of a part, of the lower or the upper class.
    pub(super) fn range_of(&self, part: u32, low: bool) -> PortRange {
        let (first, each) = match low {
            true => (0, u32::from(FIRST_HIGH) / self.parts),
            false => (u32::from(FIRST_HIGH), HIGH_PORTS / self.parts),
        };
        let first = first + part * each;
        // Port 0 is never given out.
        PortRange { first: first.max(1) as u16, last: (first + each - 1) as u16 }
    }

    /// The ports of a block.
    pub(super) fn range_of_block(&self, block: u32) -> PortRange {
        let first = u32::from(FIRST_HIGH) + block * u32::from(self.block);
        PortRange { first: first as u16, last: (first + u32::from(self.block) - 1) as u16 }
    }

    /// The block that a port is in.
    pub(super) fn block_of(&self, port: u16) -> Option<u32> {
        let block = u32::from(port.checked_sub(FIRST_HIGH)?).checked_div(self.block.into())?;
        (block < self.blocks()).then_some(block)
    }

    /// The blocks of a part.
    fn blocks_of(&self, part: u32) -> std::ops::Range<u32> {
        if self.block == 0 {
            return 0..0;
        }
        let range = self.range_of(part, false);
        let block = u32::from(self.block);
        let first = (u32::from(range.first) - u32::from(FIRST_HIGH)).div_ceil(block);
        let end = (u32::from(range.last) + 1 - u32::from(FIRST_HIGH)) / block;
        first..end.max(first)
    }

    /// Gives a subscriber a free block of this address; answers it.
    pub(super) fn take_block(&mut self, index: u16, part: u32, subscriber: u32) -> Option<u32> {
        let blocks = self.blocks_of(part);
        let count = blocks.len() as u64;
        let start = self.draw().checked_rem(count)? as u32;
        let place = self.get_mut(index)?;
        if place.free_blocks.get(part as usize) == Some(&0) {
            return None;
        }
        let order = (0..count as u32).map(|at| blocks.start + (start + at) % count as u32);
        let block = order.into_iter().find(|block| place.owners.get(*block as usize) == Some(&0))?;
        place.owners[block as usize] = subscriber + 1;
        place.free_blocks[part as usize] -= 1;
        Some(block)
    }

    /// Gives a subscriber this very block; answers whether it has it now.
    pub(super) fn claim_block(&mut self, index: u16, block: u32, subscriber: u32) -> bool {
        let part = self.part_of_port(self.range_of_block(block).first) as usize;
        let Some(place) = self.get_mut(index) else { return false };
        let Some(owner) = place.owners.get_mut(block as usize) else { return false };
        if *owner == 0 {
            *owner = subscriber + 1;
            place.free_blocks[part] = place.free_blocks[part].saturating_sub(1);
            return true;
        }
        *owner == subscriber + 1
    }

    pub(super) fn release_block(&mut self, index: u16, block: u32) {
        let part = self.part_of_port(self.range_of_block(block).first) as usize;
        let Some(place) = self.get_mut(index) else { return };
        let Some(owner) = place.owners.get_mut(block as usize) else { return };
        if std::mem::take(owner) != 0 {
            place.free_blocks[part] += 1;
        }
    }

    /// Whether ports of a block are in use or held down.
    pub(super) fn is_block_used(&self, index: u16, block: u32) -> bool {
        let range = self.range_of_block(block);
        let Some(place) = self.get(index) else { return false };
        place.used.iter().any(|used| first_of(used, range, !0, u64::from(range.first), |word| word).is_some())
    }

    /// The owner of a port's block.
    pub(super) fn owner_of(&self, index: u16, port: u16) -> Option<u32> {
        let block = self.block_of(port)?;
        self.get(index)?.owners.get(block as usize)?.checked_sub(1)
    }

    /// Takes a free port of a range, at random, with the parity of `like` where parity is kept.
    pub(super) fn take(
        &mut self,
        index: u16,
        transport: Transport,
        range: PortRange,
        like: u16,
    ) -> Option<u16> {
        let width = u64::from(range.last - range.first) + 1;
        let start = u64::from(range.first) + self.draw() % width;
        let mask = match (self.parity && transport != Transport::Icmp, like % 2) {
            (false, _) => !0,
            (true, 0) => 0x5555_5555_5555_5555,
            (true, _) => 0xaaaa_aaaa_aaaa_aaaa,
        };
        let place = self.get_mut(index)?;
        let used = &place.used[transport as usize];
        let port = first_of(used, range, mask, start, |word| !word)?;
        self.mark(index, transport, port);
        Some(port)
    }

    /// Takes this very port; answers whether it was free.
    pub(super) fn claim(&mut self, index: u16, transport: Transport, port: u16) -> bool {
        let Some(place) = self.get(index) else { return false };
        let free = place.used[transport as usize][usize::from(port) / 64] >> (port % 64) & 1 == 0;
        if free {
            self.mark(index, transport, port);
        }
        free
    }

    fn mark(&mut self, index: u16, transport: Transport, port: u16) {
        let part = self.part_of_port(port) as usize;
        if let Some(place) = self.get_mut(index) {
            place.used[transport as usize][usize::from(port) / 64] |= 1 << (port % 64);
            place.in_use[transport as usize] += 1;
            if port >= FIRST_HIGH {
                place.high[part][transport as usize] += 1;
            }
        }
    }

    /// Releases a port, at once or after it was held down; answers a port that is free now.
    ///
    /// It is told by the index of its address and its number. With as many ports held down as there is room for, that is
    /// the oldest of them.
    #[must_use = "the port that is free may have been the last in use of its block"]
    pub(super) fn release(
        &mut self,
        index: u16,
        transport: Transport,
        port: u16,
        at_once: bool,
        now: u64,
    ) -> Option<(u16, u16)> {
        if at_once || self.hold_down == 0 {
            self.free(index, transport, port);
            return Some((index, port));
        }
        // The oldest is free a little early: no memory grows.
        let early = if self.held.len() >= self.most_held { self.free_oldest() } else { None };
        self.held.push_back(Held { released: now, index, transport, port });
        early
    }

    fn free(&mut self, index: u16, transport: Transport, port: u16) {
        let part = self.part_of_port(port) as usize;
        if let Some(place) = self.get_mut(index) {
            let word = &mut place.used[transport as usize][usize::from(port) / 64];
            if *word >> (port % 64) & 1 == 1 {
                *word &= !(1 << (port % 64));
                place.in_use[transport as usize] -= 1;
                if port >= FIRST_HIGH {
                    place.high[part][transport as usize] -= 1;
                }
            }
        }
    }

    fn free_oldest(&mut self) -> Option<(u16, u16)> {
        let Held { index, transport, port, .. } = self.held.pop_front()?;
        self.free(index, transport, port);
        Some((index, port))
    }

    /// Frees a port that is held down no longer; answers its address and number.
    pub(super) fn free_one_held(&mut self, now: u64) -> Option<(u16, u16)> {
        let is_over = |held: &Held| held.released.saturating_add(self.hold_down) <= now;
        if self.held.front().is_some_and(is_over) { self.free_oldest() } else { None }
    }

    /// Frees the ports of an address that are held down.
    pub(super) fn free_held_of(&mut self, index: u16) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|held| {
            let is_other = held.index != index;
            if !is_other {
                self.free(index, held.transport, held.port);
            }
            is_other
        });
        self.held = held;
    }

    pub(super) fn held_down(&self) -> usize {
        self.held.len()
    }

    /// The address for a new subscriber of a part: of some at random the one with the fewest subscribers.
    ///
    /// `fits` says whether an address has a free port or block for it.
    pub(super) fn choose(&mut self, fits: impl Fn(&Self, u16) -> bool) -> Option<u16> {
        let count = self.places.len();
        let active = |ports: &Self, index: u16| {
            ports.get(index).is_some_and(|place| place.status == Status::Active) && fits(ports, index)
        };
        let mut best: Option<(u32, u16)> = None;
        for _ in 0..count.min(8) {
            let index = (self.draw() % count as u64) as u16;
            if active(self, index) {
                let subscribers = self.get(index).map_or(u32::MAX, |place| place.subscribers);
                best = best.filter(|(least, _)| *least <= subscribers).or(Some((subscribers, index)));
            }
        }
        // Where chance found none, so many are looked at in order.
        let start = if count == 0 { 0 } else { self.draw() as usize % count };
        best.map(|(_, index)| index).or_else(|| {
            (0..count.min(SEARCHED))
                .map(|at| ((start + at) % count) as u16)
                .find(|index| active(self, *index))
        })
    }

    /// Whether an address may have a free port or block in this part.
    pub(super) fn has_room(&self, index: u16, transport: Transport, part: u32) -> bool {
        let Some(place) = self.get(index) else { return false };
        match self.block {
            0 => place.high[part as usize][transport as usize] < HIGH_PORTS / self.parts,
            _ => place.free_blocks[part as usize] > 0,
        }
    }
}

/// Addresses that are looked at in order for one with room, which bounds the work of a packet.
const SEARCHED: usize = 256;

/// The first port of a range whose bit is set in `look` of its word.
///
/// It begins at `start` and goes round the range's end. It looks at each word of the range once, and at one of
/// them twice.
fn first_of(
    words: &[u64],
    range: PortRange,
    mask: u64,
    start: u64,
    look: impl Fn(u64) -> u64,
) -> Option<u16> {
    let (first, last) = (u64::from(range.first), u64::from(range.last));
    let within = |from: u64, to: u64| {
        let mut word = from / 64;
        while word <= to / 64 {
            let mut bits = look(*words.get(word as usize)?) & mask;
            if word == from / 64 {
                bits &= !0 << (from % 64);
            }
            if word == to / 64 {
                bits &= !0 >> (63 - to % 64);
            }
            if bits != 0 {
                return Some((word * 64 + u64::from(bits.trailing_zeros())) as u16);
            }
            word += 1;
        }
        None
    };
    within(start.clamp(first, last), last).or_else(|| within(first, start.clamp(first, last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Ports {
        let config: NatConfig =
            toml::from_str(&format!("inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.7\"]\n{text}")).unwrap();
        Ports::new(&config, 7, false)
    }

    #[test]
    fn a_number_that_the_outside_saw_does_not_tell_the_next_one() {
        // As xorshift64* would have it, whose state follows from any one number.
        const MULTIPLIER: u64 = 0x2545_f491_4f6c_dd1d;
        let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(MULTIPLIER.wrapping_mul(x))));
        assert_eq!(MULTIPLIER.wrapping_mul(inverse), 1);
        let mut ports = ports("");
        for _ in 0..8 {
            let mut x = ports.draw().wrapping_mul(inverse);
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            assert_ne!(x.wrapping_mul(MULTIPLIER), ports.draw());
        }
    }

    #[test]
    fn every_port_of_a_range_is_given_out_once() {
        let mut ports = ports("");
        let range = PortRange { first: 5_000, last: 5_700 };
        let mut taken: Vec<u16> = std::iter::from_fn(|| ports.take(0, Transport::Udp, range, 1)).collect();
        assert_ne!(taken[..20].to_vec(), (5_000..5_020).collect::<Vec<_>>(), "in no order that shows");
        taken.sort_unstable();
        assert_eq!(taken, (5_000..=5_700).collect::<Vec<_>>());
        assert!(ports.take(0, Transport::Tcp, range, 1).is_some(), "transports have ports of their own");
    }

    #[test]
    fn parts_divide_all_ports_without_a_gap() {
        for parts in [1, 2, 16, 256] {
            let ports = ports(&format!("parts = {parts}"));
            for port in 1..=u16::MAX {
                let part = ports.part_of_port(port);
                assert!(part < parts, "{port}");
                assert!(ports.range_of(part, port < FIRST_HIGH).holds(port), "{port} of {parts}");
            }
        }
    }

    #[test]
    fn blocks_of_parts_hold_only_their_ports() {
        let ports = ports("parts = 16\nblock = 500");
        for part in 0..16 {
            let blocks = ports.blocks_of(part);
            assert!(blocks.len() >= 7, "{part}");
            for block in blocks {
                let range = ports.range_of_block(block);
                assert_eq!(ports.part_of_port(range.first), part);
                assert_eq!(ports.part_of_port(range.last), part);
                assert_eq!(ports.block_of(range.last), Some(block));
            }
        }
    }

    #[test]
    fn a_released_port_is_held_down() {
        let mut ports = ports("hold_down = \"1 s\"");
        let range = PortRange { first: 9, last: 9 };
        assert_eq!(ports.take(0, Transport::Udp, range, 9), Some(9));
        assert_eq!(ports.release(0, Transport::Udp, 9, false, 5), None);
        assert_eq!(ports.free_one_held(1_000_000_004), None);
        assert_eq!(ports.take(0, Transport::Udp, range, 9), None);
        assert_eq!(ports.free_one_held(1_000_000_005), Some((0, 9)));
        assert_eq!(ports.take(0, Transport::Udp, range, 9), Some(9));
    }

    #[test]
    fn another_hold_down_is_that_of_ports_which_are_held_already() {
        let range = PortRange { first: 9, last: 9 };
        let held = || {
            let mut ports = ports("hold_down = \"30 d\"");
            assert_eq!(ports.take(0, Transport::Udp, range, 9), Some(9));
            assert_eq!(ports.release(0, Transport::Udp, 9, false, 5), None);
            ports
        };
        for (hold_down, until) in [("1 s", 1_000_000_005), ("0 s", 5)] {
            let mut after = held();
            after.hold_like(&ports(&format!("hold_down = \"{hold_down}\"")));
            assert_eq!(after.free_one_held(until - 1), None, "{hold_down}");
            assert_eq!(after.free_one_held(until), Some((0, 9)), "{hold_down}");
        }
    }
}
