//! The waiting packets: one queue, or a queue for each flow that take turns by bytes (RFC 8290).
//!
//! All packets lie in one array, and queues are lists in it, so that nothing is allocated while packets flow.

use std::collections::VecDeque;

use netbricks_core::buffer::Packet;
use netbricks_core::{Context, DropReason};

use super::backlog::Backlog;
use super::codel::{Codel, CodelParameters, Verdict};
use super::ecn;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// The most packets that make room for one (RFC 8290, section 4.1.3).
const MOST_AT_ONCE: u32 = 64;

/// The bounds and the disciplines of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueSettings {
    /// The most packets that wait.
    pub(super) packets: usize,
    /// The most bytes that wait.
    pub(super) bytes: u64,
    /// The number of queues; 1 for a single queue of all packets.
    pub(super) flows: usize,
    /// The bytes that a queue may send in its turn.
    pub(super) quantum: u32,
    /// CoDel, where it is on.
    pub(super) codel: Option<CodelParameters>,
    /// Whether a packet that allows it is marked in place of a drop (RFC 3168).
    pub(super) ecn: bool,
}

/// A packet that waits.
struct Slot {
    packet: Option<Packet>,
    /// The next of its queue, or the next free slot.
    next: u32,
    bytes: u32,
    /// When it came (ns).
    came: u64,
}

/// The queue of a flow.
#[derive(Clone, Copy)]
struct Flow {
    first: u32,
    last: u32,
    packets: u32,
    bytes: u64,
    /// The bytes that it may still send in this turn; less than 0 after a packet larger than that.
    deficit: i64,
    codel: Codel,
    /// Whether it stands in one of the lists of queues with turns.
    listed: bool,
}

const EMPTY: Flow =
    Flow { first: NONE, last: NONE, packets: 0, bytes: 0, deficit: 0, codel: Codel::NEW, listed: false };

/// Packets that were dropped or marked here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Congestion {
    pub(super) marked: u64,
    pub(super) dropped: u64,
    pub(super) full: u64,
}

/// All queues.
pub(super) struct Queues {
    settings: QueueSettings,
    slots: Vec<Slot>,
    free: u32,
    flows: Vec<Flow>,
    backlog: Backlog,
    /// Queues that had no packets until a moment ago: they come first.
    new: VecDeque<u32>,
    /// The other queues with packets.
    old: VecDeque<u32>,
    packets: usize,
    bytes: u64,
    /// The largest packet so far (bytes).
    largest: u64,
    pub(super) congestion: Congestion,
}

/// A packet that leaves its queue.
pub(super) struct Leaving {
    pub(super) packet: Packet,
    /// The bytes for which it counts.
    pub(super) bytes: u64,
    /// How long it waited (ns).
    pub(super) waited: u64,
}

impl Queues {
    pub(super) fn new(settings: QueueSettings) -> Self {
        let slot = |next| Slot { packet: None, next, bytes: 0, came: 0 };
        let count = settings.packets as u32;
        Self {
            settings,
            slots: (1..=count).map(|next| slot(if next < count { next } else { NONE })).collect(),
            free: if count > 0 { 0 } else { NONE },
            flows: vec![EMPTY; settings.flows],
            backlog: Backlog::of(settings.flows),
            new: VecDeque::with_capacity(settings.flows),
            old: VecDeque::with_capacity(settings.flows),
            packets: 0,
            bytes: 0,
            largest: 0,
            congestion: Congestion::default(),
        }
    }

    /// Packets that wait.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// The most packets that wait.
    pub(super) fn most(&self) -> usize {
        self.settings.packets
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of queues, with packets or without.
    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Puts a packet of `bytes` into the queue of its flow at `now` (ns).
    ///
    /// Where there is no room, a single queue drops the packet. Otherwise the queue with the most bytes, the first of
    /// those with equally many, gives room: up to half of its packets are dropped, the oldest first.
    pub(super) fn put(&mut self, packet: Packet, bytes: u64, flow: usize, now: u64, cx: &mut Context) {
        while !self.has_room(bytes) {
            let fattest = if self.flows.len() > 1 { self.backlog.fattest() } else { None };
            let Some(fattest) = fattest.filter(|_| bytes <= self.settings.bytes) else {
                self.congestion.full += 1;
                return cx.drop_packet(packet, DropReason::QueueFull);
            };
            for _ in 0..self.flows[fattest].packets.div_ceil(2).min(MOST_AT_ONCE) {
                if let Some(leaving) = self.pop(fattest, now) {
                    self.congestion.full += 1;
                    cx.drop_packet(leaving.packet, DropReason::QueueFull);
                }
            }
        }
        let place = self.free;
        let Some(slot) = self.slots.get_mut(place as usize) else {
            // Not reached: there is a free slot for each packet that has room.
            return cx.drop_packet(packet, DropReason::QueueFull);
        };
        self.free = slot.next;
        *slot = Slot { packet: Some(packet), next: NONE, bytes: bytes as u32, came: now };
        let queue = &mut self.flows[flow];
        let last = std::mem::replace(&mut queue.last, place);
        if queue.packets == 0 {
            queue.first = place;
        }
        let is_behind = queue.packets > 0;
        queue.packets += 1;
        queue.bytes += bytes;
        self.backlog.set(flow, queue.packets, queue.bytes);
        if !std::mem::replace(&mut queue.listed, true) {
            queue.deficit = i64::from(self.settings.quantum);
            self.new.push_back(flow as u32);
        }
        if let Some(before) = self.slots.get_mut(last as usize).filter(|_| is_behind) {
            before.next = place;
        }
        self.packets += 1;
        self.bytes += bytes;
        self.largest = self.largest.max(bytes);
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.packets < self.settings.packets && self.bytes + bytes <= self.settings.bytes
    }

    /// Takes the oldest packet of a queue.
    fn pop(&mut self, flow: usize, now: u64) -> Option<Leaving> {
        let queue = &mut self.flows[flow];
        let place = queue.first;
        let slot = self.slots.get_mut(place as usize).filter(|_| queue.packets > 0)?;
        let packet = slot.packet.take()?;
        queue.first = std::mem::replace(&mut slot.next, self.free);
        self.free = place;
        let bytes = u64::from(slot.bytes);
        queue.packets -= 1;
        queue.bytes -= bytes;
        self.backlog.set(flow, queue.packets, queue.bytes);
        self.packets -= 1;
        self.bytes -= bytes;
        Some(Leaving { packet, bytes, waited: now.saturating_sub(slot.came) })
    }

    /// Takes the packet that leaves next at `now` (ns), after CoDel's drops.
    pub(super) fn take(&mut self, now: u64, cx: &mut Context) -> Option<Leaving> {
        loop {
            let (flow, is_new) = match (self.new.front(), self.old.front()) {
                (Some(flow), _) => (*flow, true),
                (None, Some(flow)) => (*flow, false),
                (None, None) => return None,
            };
            let place = flow as usize;
            if self.flows[place].deficit <= 0 {
                self.flows[place].deficit += i64::from(self.settings.quantum);
                self.unlist(is_new);
                self.old.push_back(flow);
                continue;
            }
            match self.of_flow(place, now, cx) {
                Some(leaving) => {
                    self.flows[place].deficit -= leaving.bytes as i64;
                    return Some(leaving);
                }
                None => {
                    self.unlist(is_new);
                    // An empty new queue waits behind the others once, so that it gains nothing by coming back.
                    if is_new && !self.old.is_empty() {
                        self.old.push_back(flow);
                    } else {
                        self.flows[place].listed = false;
                    }
                }
            }
        }
    }

    fn unlist(&mut self, is_new: bool) {
        if is_new {
            self.new.pop_front();
        } else {
            self.old.pop_front();
        }
    }

    /// The next packet of a queue that CoDel lets go.
    fn of_flow(&mut self, flow: usize, now: u64, cx: &mut Context) -> Option<Leaving> {
        loop {
            let Some(mut leaving) = self.pop(flow, now) else {
                self.flows[flow].codel.emptied();
                return None;
            };
            let Some(parameters) = &self.settings.codel else { return Some(leaving) };
            let alone = self.flows[flow].bytes <= self.largest;
            match self.flows[flow].codel.head(now, leaving.waited, alone, parameters) {
                Verdict::Keep => return Some(leaving),
                Verdict::Drop if self.settings.ecn && ecn::mark(&mut leaving.packet) => {
                    self.congestion.marked += 1;
                    return Some(leaving);
                }
                Verdict::Drop => {
                    self.congestion.dropped += 1;
                    cx.drop_packet(leaving.packet, DropReason::Congested);
                }
            }
        }
    }

    /// Takes the next packet without CoDel and without regard for turns.
    pub(super) fn take_any(&mut self, now: u64) -> Option<Leaving> {
        while let Some(flow) = self.new.front().or(self.old.front()).copied() {
            if let Some(leaving) = self.pop(flow as usize, now) {
                return Some(leaving);
            }
            let is_new = !self.new.is_empty();
            self.unlist(is_new);
            self.flows[flow as usize].listed = false;
        }
        None
    }
}
