//! Flows that rewriters know: a bounded set, found by their packets' addresses and ports, that expire.
//!
//! Rewriters that share their capacity share a set. Each direction of a flow is one entry of one table, so that a
//! packet costs one lookup. Two heaps order the flows by their expiry: those whose place is guaranteed, and those
//! that give way to new flows. A packet only notes the flow's later expiry; the heaps look at it when a flow
//! comes to their top.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Table};

use super::flow_id::{Difference, FlowId};
use super::sequence::Shifts;

/// The most flows of a set, also with a larger capacity.
pub(super) const MOST_FLOWS: usize = 1 << 20;
/// Entries of the first table; it doubles as flows come.
const FIRST_ENTRIES: usize = 1 << 10;
/// Places of the table before, which was half as large, that each new flow moves on.
const MOVED: usize = 64;
/// Stands for no entry.
pub(super) const NO_ENTRY: u32 = u32::MAX;

/// How a flow's packets keep it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the state of a TCP connection.
    Tcp,
    /// By how many packets came, from one side or both.
    Udp,
    /// By any packet.
    Plain,
}

/// Spans of time without packets after which flows of one kind expire (ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lifetimes {
    /// Of a flow with packets of one side, and of all plain flows.
    pub(super) idle: u64,
    /// Of a flow with data or packets of both sides.
    pub(super) busy: u64,
    /// Of a TCP connection that both sides ended.
    pub(super) done: u64,
    /// For so long a flow does not give way to a new one.
    pub(super) guarantee: u64,
}

/// A rewriter of a set.
struct Owner {
    /// Of TCP flows, and of others.
    lifetimes: [Lifetimes; 2],
    /// Flows that each input made and that are there, and those that it could not make.
    inputs: Vec<(u32, u32)>,
}

/// Bits of [`Flow::progress`] of a TCP connection.
const DONE: u8 = 3;
const DATA: u8 = 12;

/// A flow and its rewriting. The index of arrays is the direction: forward or reply.
pub(super) struct Flow {
    /// Fields of packets as they come.
    pub(super) ends: [FlowId; 2],
    /// Where packets leave.
    pub(super) outputs: [u16; 2],
    /// When it ends if no packet comes (ms).
    expiry: u64,
    /// The time under which it is in its heap: no later than its expiry.
    filed: u64,
    /// Its place in its heap.
    place: u32,
    owner: u16,
    /// The input that made it.
    pub(super) input: u16,
    /// The change of the IP header's checksum.
    pub(super) network: Difference,
    /// The change of the checksum behind it.
    pub(super) transport: Difference,
    /// Its IP protocol, 0 for any.
    pub(super) protocol: u8,
    kind: Option<Kind>,
    progress: u8,
    guaranteed: bool,
    /// Annotation that its replies get.
    pub(super) reply_annotation: u8,
    /// Whether sequence numbers shift.
    pub(super) shifts: bool,
}

impl Flow {
    /// Fields of a direction's packets as they leave.
    pub(super) fn rewritten(&self, reply: bool) -> FlowId {
        self.ends[usize::from(!reply)].reverse()
    }

    /// Notes a TCP segment: its flags, and whether it has data.
    pub(super) fn note_tcp(&mut self, reply: bool, flags: u8, data: bool) {
        let (fin, syn, reset) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let side = 1 << u8::from(reply);
        if reset {
            self.progress |= DONE;
        } else if fin {
            self.progress |= side;
        } else if syn || data {
            self.progress &= !side;
        }
        if data {
            self.progress |= side << 2;
        }
    }

    /// Notes a packet that is none of TCP's.
    pub(super) fn note_packet(&mut self, reply: bool) {
        self.progress |= u8::from(reply);
        if self.progress < 6 {
            self.progress += 2;
        }
    }

    fn lifetime(&self, of: &Lifetimes) -> u64 {
        match self.kind {
            Some(Kind::Tcp) if self.progress & DONE == DONE => of.done,
            Some(Kind::Tcp) if self.progress & DATA == DATA => of.busy,
            Some(Kind::Udp) if self.progress > 6 => of.busy,
            _ => of.idle,
        }
    }
}

/// A new flow, before it has a place.
pub(super) struct NewFlow {
    /// Fields of the packets that made it.
    pub(super) forward: FlowId,
    /// Fields that they get.
    pub(super) rewritten: FlowId,
    /// Outputs of both directions.
    pub(super) outputs: [u16; 2],
    /// The change of the checksum behind the IP header, if not as for TCP and UDP.
    pub(super) transport: Option<Difference>,
    /// IP protocol, 0 for any.
    pub(super) protocol: u8,
    /// How packets keep it alive.
    pub(super) kind: Kind,
}

/// The element that owns the flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maker {
    /// The rewriter's number in the set.
    pub(super) owner: u16,
    /// Which of its inputs.
    pub(super) input: u16,
    /// The map in which packets look for it.
    pub(super) map: u32,
}

#[derive(Clone, Copy)]
struct Filed {
    time: u64,
    flow: u32,
}

/// A set of flows.
pub(super) struct Flows {
    table: Option<FlowTable<[u64; 2], u32>>,
    seed: u64,
    flows: Vec<Flow>,
    maps: Vec<u32>,
    free: Vec<u32>,
    /// Flows that give way, and those that do not.
    heaps: [Vec<Filed>; 2],
    owners: Vec<Owner>,
    capacity: i32,
    ended: u64,
    shifts: HashMap<u32, Box<Shifts>>,
    /// Bytes that tables may still grow by.
    room: Rc<Cell<usize>>,
}

/// A set that rewriters may share.
pub(super) type SharedFlows = Rc<RefCell<Flows>>;

impl Flows {
    /// A set without flows; the seed keys its hash. Its table grows by no more bytes than there is `room`.
    pub(super) fn new(seed: u64, room: Rc<Cell<usize>>) -> Self {
        Self {
            table: None,
            seed,
            flows: Vec::new(),
            maps: Vec::new(),
            free: Vec::new(),
            heaps: [Vec::new(), Vec::new()],
            owners: Vec::new(),
            capacity: i32::MAX,
            ended: 0,
            shifts: HashMap::new(),
            room,
        }
    }

    /// Bytes that the set takes now.
    pub(super) fn memory(&self) -> usize {
        self.table.as_ref().map_or(0, FlowTable::bytes)
            + self.flows.capacity() * size_of::<Flow>()
            + (self.maps.capacity() + self.free.capacity()) * size_of::<u32>()
            + self.heaps.iter().map(|heap| heap.capacity() * size_of::<Filed>()).sum::<usize>()
            + self.shifts.capacity() * size_of::<(u32, Box<Shifts>)>()
            + self.shifts.len() * size_of::<Shifts>()
    }

    /// Adds a rewriter; its number.
    pub(super) fn register(&mut self, lifetimes: [Lifetimes; 2], inputs: usize) -> u16 {
        self.owners.push(Owner { lifetimes, inputs: vec![(0, 0); inputs] });
        u16::try_from(self.owners.len() - 1).unwrap_or(u16::MAX)
    }

    /// The number of flows.
    pub(super) fn len(&self) -> usize {
        self.heaps[0].len() + self.heaps[1].len()
    }
    /// The most flows that it was told to hold.
    pub(super) fn capacity(&self) -> i32 {
        self.capacity
    }
    /// Sets the most flows.
    pub(super) fn set_capacity(&mut self, capacity: i32) {
        self.capacity = capacity;
    }
    /// How many flows have ended: what a lookup found holds until this changes.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }
    /// Flows that an input of a rewriter made and that are there, and those that it could not make.
    pub(super) fn counts(&self, owner: u16, input: usize) -> (u32, u32) {
        self.owners
            .get(usize::from(owner))
            .and_then(|owner| owner.inputs.get(input))
            .copied()
            .unwrap_or_default()
    }
    fn counts_mut(&mut self, owner: u16, input: u16) -> Option<&mut (u32, u32)> {
        self.owners.get_mut(usize::from(owner))?.inputs.get_mut(usize::from(input))
    }
    /// Notes that an input could not make a flow.
    pub(super) fn count_failure(&mut self, owner: u16, input: u16) {
        if let Some((_, failures)) = self.counts_mut(owner, input) {
            *failures = failures.wrapping_add(1);
        }
    }

    /// The flow of an entry.
    #[inline(always)]
    pub(super) fn flow(&self, entry: u32) -> &Flow {
        &self.flows[(entry >> 1) as usize]
    }
    /// Asks for the memory of an entry's flow.
    #[inline(always)]
    pub(super) fn prefetch(&self, entry: u32) {
        let flow = self.flow(entry);
        netbricks_core::tables::prefetch(&flow.ends);
        netbricks_core::tables::prefetch(&flow.expiry);
        netbricks_core::tables::prefetch(&flow.progress);
    }
    /// The same, to change it.
    #[inline(always)]
    pub(super) fn flow_mut(&mut self, entry: u32) -> &mut Flow {
        &mut self.flows[(entry >> 1) as usize]
    }
    /// Shifts of a flow's sequence numbers, made where there are none.
    pub(super) fn shifts_mut(&mut self, entry: u32) -> &mut Shifts {
        self.flows[(entry >> 1) as usize].shifts = true;
        self.shifts.entry(entry >> 1).or_default()
    }
    /// Shifts of a flow's sequence numbers, if it has any.
    pub(super) fn shifts(&self, entry: u32) -> Option<&Shifts> {
        if self.flow(entry).shifts { self.shifts.get(&(entry >> 1)).map(AsRef::as_ref) } else { None }
    }

    /// The entry of a key.
    pub(super) fn find(&self, key: [u64; 2]) -> Option<u32> {
        self.table.as_ref()?.get(&key).copied()
    }
    /// The entry of each key, or [`NO_ENTRY`].
    #[inline]
    pub(super) fn find_all(&mut self, keys: &[[u64; 2]], entries: &mut [u32]) {
        entries.fill(NO_ENTRY);
        let Some(table) = &mut self.table else { return };
        table.lookup_bulk(keys, 0, |at, found| {
            if let (Entry::Found(found), Some(entry)) = (found, entries.get_mut(at)) {
                *entry = *found.get();
            }
        });
    }
    /// Entries of a map: flows in the order of their places, forward before reply.
    pub(super) fn entries(&self, map: u32) -> impl Iterator<Item = u32> {
        self.flows.iter().zip(&self.maps).enumerate().flat_map(move |(place, (flow, of))| {
            let both = if *of == map && flow.kind.is_some() { 2 } else { 0 };
            (0..both).filter_map(move |reply| {
                let entry = (place as u32) << 1 | reply;
                (self.find(flow.ends[reply as usize].key(map)) == Some(entry)).then_some(entry)
            })
        })
    }

    /// Time until a flow ends, its guarantee and what comes after it (ms).
    pub(super) fn remaining(&self, entry: u32, now: u64) -> u64 {
        let flow = self.flow(entry);
        let expiry = if flow.guaranteed { self.best_effort_expiry(flow) } else { flow.expiry };
        (expiry + 500).saturating_sub(now)
    }
    fn lifetimes(&self, flow: &Flow) -> Lifetimes {
        let class = usize::from(flow.kind != Some(Kind::Tcp));
        self.owners.get(usize::from(flow.owner)).map(|owner| owner.lifetimes[class]).unwrap_or_default()
    }
    fn best_effort_expiry(&self, flow: &Flow) -> u64 {
        let lifetimes = self.lifetimes(flow);
        (flow.expiry + flow.lifetime(&lifetimes)).saturating_sub(lifetimes.guarantee)
    }

    /// Adds a flow; its forward entry, or `None` where it found no place.
    pub(super) fn add(&mut self, maker: Maker, new: &NewFlow, now: u64) -> Option<u32> {
        if !self.make_room() {
            self.count_failure(maker.owner, maker.input);
            return None;
        }
        let (from, to) = (new.forward, new.rewritten);
        let network =
            Difference::default().long(from.source, to.source).long(from.destination, to.destination);
        let transport = new.transport.unwrap_or_else(|| {
            network.word(from.source_port, to.source_port).word(from.destination_port, to.destination_port)
        });
        let mut flow = Flow {
            ends: [from, to.reverse()],
            outputs: new.outputs,
            expiry: 0,
            filed: 0,
            place: 0,
            owner: maker.owner,
            input: maker.input,
            network,
            transport,
            protocol: new.protocol,
            kind: Some(new.kind),
            progress: 0,
            guaranteed: false,
            reply_annotation: 0,
            shifts: false,
        };
        let lifetimes = self.lifetimes(&flow);
        flow.guaranteed = lifetimes.guarantee > 0;
        flow.expiry = now + if flow.guaranteed { lifetimes.guarantee } else { lifetimes.idle };
        flow.filed = flow.expiry;
        let guaranteed = flow.guaranteed;
        let place = match self.free.pop() {
            Some(place) => {
                self.flows[place as usize] = flow;
                self.maps[place as usize] = maker.map;
                place
            }
            None => {
                self.flows.push(flow);
                self.maps.push(maker.map);
                (self.flows.len() - 1) as u32
            }
        };
        self.file(place, guaranteed);
        if let Some((count, _)) = self.counts_mut(maker.owner, maker.input) {
            *count += 1;
        }
        let entry = place << 1;
        let known = self.set(from.key(maker.map), entry) && self.set(to.reverse().key(maker.map), entry | 1);
        if !known {
            self.end(place);
            self.count_failure(maker.owner, maker.input);
            return None;
        }
        if self.len() > self.most() && self.give_way(place, now) {
            self.count_failure(maker.owner, maker.input);
            return None;
        }
        Some(entry)
    }

    fn most(&self) -> usize {
        usize::try_from(self.capacity).unwrap_or(0).min(MOST_FLOWS)
    }

    /// Gives a key an entry. A flow that had it ends, unless it is the same.
    fn set(&mut self, key: [u64; 2], entry: u32) -> bool {
        let Some(table) = &mut self.table else { return false };
        let before = match table.lookup(key, 0) {
            Entry::Found(mut found) => Some(std::mem::replace(found.get_mut(), entry)),
            Entry::Vacant(place) => {
                place.insert(entry);
                None
            }
            Entry::Full => return false,
        };
        if let Some(before) = before.filter(|before| before >> 1 != entry >> 1) {
            self.end(before >> 1);
        }
        true
    }

    /// Makes the table large enough for one flow more.
    fn make_room(&mut self) -> bool {
        if let Some(table) = &mut self.table {
            table.move_on(MOVED);
        }
        let (len, capacity) = self.table.as_ref().map_or((0, 0), |table| (table.len(), table.capacity()));
        if len + 2 <= capacity {
            return true;
        }
        let wanted = (capacity * 2).max(FIRST_ENTRIES);
        // The table becomes twice as large, and so do the lists of flows beside it.
        let growth = if capacity == 0 { 0 } else { self.memory() };
        let room = self.room.get();
        if room < growth {
            return false;
        }
        self.room.set(room - growth.min(room));
        let config = FlowTableConfig { seed: self.seed, ..FlowTableConfig::new(wanted) };
        let Ok(mut larger) = FlowTable::new(config) else { return false };
        // The flows go over in steps: all at once would hold up packets.
        let moves = self.table.as_mut().is_none_or(|table| larger.succeed(table));
        if moves {
            self.table = Some(larger);
        }
        moves
    }

    /// Ends a flow so that a new one has room. Whether it is the new one that ends.
    fn give_way(&mut self, new: u32, now: u64) -> bool {
        self.end_guarantees(now);
        // Where all others keep their place, the new flow goes.
        let victim = self.top(0).unwrap_or(new);
        self.end(victim);
        victim == new
    }

    /// Flows whose guarantee is over give way from now on.
    fn end_guarantees(&mut self, now: u64) {
        while let Some(place) = self.top(1) {
            let flow = &self.flows[place as usize];
            if now < flow.expiry {
                break;
            }
            let expiry = self.best_effort_expiry(flow);
            self.set_expiry(place, false, expiry);
        }
    }

    /// Ends flows that have expired, and those that are too many. All of them where `all` says so.
    pub(super) fn shrink(&mut self, now: u64, all: bool) {
        self.end_guarantees(now);
        while let Some(place) = self.top(0)
            && now >= self.flows[place as usize].expiry
        {
            self.end(place);
        }
        let most = if all { 0 } else { self.most() };
        while self.len() > most {
            let Some(place) = self.top(0).or_else(|| self.top(1)) else { break };
            self.end(place);
        }
    }

    /// Ends the flows that an input of a rewriter made.
    pub(super) fn end_of_input(&mut self, owner: u16, input: u16) {
        for place in 0..self.flows.len() {
            let flow = &self.flows[place];
            if flow.kind.is_some() && flow.owner == owner && flow.input == input {
                self.end(place as u32);
            }
        }
    }

    fn end(&mut self, place: u32) {
        let Some(flow) = self.flows.get_mut(place as usize) else { return };
        if flow.kind.take().is_none() {
            return;
        }
        let (owner, input, ends) = (flow.owner, flow.input, flow.ends);
        let (heap, at) = (usize::from(flow.guaranteed), flow.place);
        if flow.shifts {
            self.shifts.remove(&place);
        }
        self.unfile(heap, at as usize);
        if let Some((count, _)) = self.counts_mut(owner, input) {
            *count = count.saturating_sub(1);
        }
        let map = self.maps[place as usize];
        if let Some(table) = &mut self.table {
            for (reply, id) in ends.iter().enumerate() {
                let key = id.key(map);
                if table.get(&key) == Some(&(place << 1 | reply as u32)) {
                    table.remove(&key);
                }
            }
        }
        self.free.push(place);
        self.ended += 1;
    }

    /// A packet of the flow came: it lives on.
    #[inline]
    pub(super) fn touch(&mut self, entry: u32, now: u64) {
        let flow = self.flow(entry);
        let lifetimes = self.lifetimes(flow);
        if lifetimes.guarantee > 0 {
            self.set_expiry(entry >> 1, true, now + lifetimes.guarantee);
        } else {
            let lifetime = flow.lifetime(&lifetimes);
            self.set_expiry(entry >> 1, false, now + lifetime);
        }
    }

    #[inline]
    fn set_expiry(&mut self, place: u32, guaranteed: bool, expiry: u64) {
        let flow = &mut self.flows[place as usize];
        flow.expiry = expiry;
        if flow.guaranteed != guaranteed {
            let (heap, at) = (usize::from(flow.guaranteed), flow.place as usize);
            flow.guaranteed = guaranteed;
            flow.filed = expiry;
            self.unfile(heap, at);
            self.file(place, guaranteed);
        } else if expiry < flow.filed {
            flow.filed = expiry;
            let (heap, at) = (usize::from(guaranteed), flow.place as usize);
            self.heaps[heap][at].time = expiry;
            self.rise(heap, at);
        }
    }

    /// The flow of a heap that expires first.
    fn top(&mut self, heap: usize) -> Option<u32> {
        loop {
            let first = *self.heaps[heap].first()?;
            let flow = &mut self.flows[first.flow as usize];
            if flow.expiry <= first.time {
                return Some(first.flow);
            }
            flow.filed = flow.expiry;
            self.heaps[heap][0].time = flow.expiry;
            self.sink(heap, 0);
        }
    }

    fn file(&mut self, place: u32, guaranteed: bool) {
        let heap = usize::from(guaranteed);
        self.heaps[heap].push(Filed { time: self.flows[place as usize].filed, flow: place });
        self.rise(heap, self.heaps[heap].len() - 1);
    }

    fn unfile(&mut self, heap: usize, at: usize) {
        if at >= self.heaps[heap].len() {
            return;
        }
        self.heaps[heap].swap_remove(at);
        if at < self.heaps[heap].len() {
            let at = self.rise(heap, at);
            self.sink(heap, at);
        }
    }

    fn put(&mut self, heap: usize, at: usize, filed: Filed) {
        self.heaps[heap][at] = filed;
        self.flows[filed.flow as usize].place = at as u32;
    }

    fn rise(&mut self, heap: usize, mut at: usize) -> usize {
        let moving = self.heaps[heap][at];
        while at > 0 {
            let above = (at - 1) / 2;
            let other = self.heaps[heap][above];
            if moving.time >= other.time {
                break;
            }
            self.put(heap, at, other);
            at = above;
        }
        self.put(heap, at, moving);
        at
    }

    fn sink(&mut self, heap: usize, mut at: usize) {
        let moving = self.heaps[heap][at];
        loop {
            let below = at * 2 + 1;
            let Some(mut least) = self.heaps[heap].get(below).copied() else { break };
            let mut place = below;
            if let Some(other) = self.heaps[heap].get(below + 1)
                && other.time < least.time
            {
                (least, place) = (*other, below + 1);
            }
            if least.time >= moving.time {
                break;
            }
            self.put(heap, at, least);
            at = place;
        }
        self.put(heap, at, moving);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_grows_moves_few_flows_for_each_new_one() {
        let mut flows = Flows::new(7, Rc::new(Cell::new(usize::MAX)));
        let lifetime = Lifetimes { idle: 1_000, busy: 1_000, done: 1_000, guarantee: 0 };
        let owner = flows.register([lifetime; 2], 1);
        let maker = Maker { owner, input: 0, map: 0 };
        let fields = |number: u32, to: u32| FlowId {
            source: number,
            destination: to,
            source_port: 1,
            destination_port: 2,
        };
        let (mut grown, mut waited) = (0, 0);
        let mut capacity = 0;
        for number in 0..20_000 {
            let new = NewFlow {
                forward: fields(number, 1 << 31),
                rewritten: fields(number | 1 << 30, 1 << 31),
                outputs: [0, 0],
                transport: None,
                protocol: 17,
                kind: Kind::Udp,
            };
            assert!(flows.add(maker, &new, 0).is_some(), "flow {number}");
            let table = flows.table.as_mut().expect("a table");
            if std::mem::replace(&mut capacity, table.capacity()) != table.capacity() {
                grown += 1;
                waited += usize::from(table.move_on(0));
            }
        }
        assert!(grown > 4 && waited == grown - 1, "{waited} of {grown} tables had flows to move");
        for number in 0..20_000 {
            assert!(flows.find(fields(number, 1 << 31).key(0)).is_some(), "flow {number}");
        }
        assert_eq!(flows.len(), 20_000);
    }
}
