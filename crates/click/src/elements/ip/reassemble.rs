//! `IPReassembler`: fragments put together again (RFC 791), in bounded memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{self, Ip, MF, OFFSET, get16, set16};
use crate::annotation;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, Kind, place};
use crate::router::{At, Setup};
use crate::value::SECOND;

pub(super) const CLASSES: &[Class] =
    &[Class::new("IPReassembler", ip_reassembler).ports("1/1-2").processing("a/ah")];

/// Memory that a packet under reassembly counts for beside its bytes.
const OVERHEAD: usize = 20;
/// Age at which an incomplete packet is given up (s).
const TIMEOUT: u64 = 30;
/// Time between two looks for such packets (s).
const INTERVAL: u64 = 10;

/// Fragments of one packet have these in common.
type Key = (Ipv4Addr, Ipv4Addr, u16, u8);

/// A fragment's bytes up to the end of its IPv4 header, and its annotations.
struct Head {
    bytes: Vec<u8>,
    /// Where the IPv4 header begins.
    network: usize,
    mac: Option<usize>,
    annotations: [u8; place::SIZE],
    kind: Kind,
    timestamp: u64,
    owner: u16,
}

impl Head {
    /// The head of a fragment. One that is not the packet's first gives its header without options only.
    fn of(packet: &Packet) -> Option<Self> {
        let network = usize::try_from(packet.network_place()?).ok()?;
        let ip = Ip::of(packet)?;
        let first = ip.is_first();
        let (begin, length) = if first { (0, ip.header_length()) } else { (network, header::LENGTH) };
        let mut bytes = packet.data().get(begin..network + length)?.to_vec();
        if !first {
            header::put(&mut bytes, 0, &[0x45]);
        }
        Some(Self {
            bytes,
            network: network - begin,
            mac: packet.mac_place().and_then(|place| usize::try_from(place).ok()).filter(|_| first),
            annotations: *packet.anno(),
            kind: packet.kind(),
            timestamp: packet.timestamp(),
            owner: packet.owner(),
        })
    }
    /// The packet with this head and payload. `None`: no frame is large enough.
    fn packet(&self, at: At<'_>, payload: &[u8], flags: u16) -> Option<Packet> {
        let begin = self.bytes.len();
        let mut packet = at.allocate(begin + payload.len())?;
        header::put(packet.data_mut(), 0, &self.bytes);
        header::put(packet.data_mut(), begin, payload);
        *packet.anno_mut() = self.annotations;
        packet.set_anno_u32(place::IP_REASSEMBLER, 0);
        packet.set_kind(self.kind);
        packet.set_timestamp(self.timestamp);
        packet.set_owner(self.owner);
        packet.set_mac_place(self.mac);
        packet.set_network(self.network, begin - self.network);
        let ip = header::ip_mut(&mut packet)?;
        let length = ip.len().min(usize::from(u16::MAX)) as u16;
        set16(ip, 2, length);
        set16(ip, 6, flags);
        header::set_checksum(ip);
        Some(packet)
    }
}

/// A packet under reassembly.
struct Partial {
    /// The head of its first fragment, or else of the earliest.
    head: Head,
    /// Payload bytes, with gaps where fragments are missing.
    payload: Vec<u8>,
    /// Parts of the payload that are there, in order and apart from each other.
    parts: Vec<(usize, usize)>,
    /// Flags of the earliest fragment; "more fragments" until the last one came.
    flags: u16,
    /// When its earliest fragment came (s).
    begun: u64,
    /// Which one it is since the start.
    number: u64,
    /// Bytes of the largest fragment.
    largest: u16,
}

impl Partial {
    fn memory(&self) -> usize {
        OVERHEAD + self.head.bytes.len() + self.payload.len()
    }
    /// Notes that a part is there; parts that touch it become one with it.
    fn add_part(&mut self, begin: usize, end: usize) {
        let from = self.parts.partition_point(|part| part.1 < begin);
        let to = self.parts.partition_point(|part| part.0 <= end);
        let merged = match self.parts.get(from..to) {
            Some([first, .., last]) => (first.0.min(begin), last.1.max(end)),
            Some([only]) => (only.0.min(begin), only.1.max(end)),
            _ => (begin, end),
        };
        self.parts.splice(from..to.max(from), [merged]);
    }
    fn is_whole(&self) -> bool {
        self.flags & MF == 0 && self.parts == [(0, self.payload.len())]
    }
    /// The packet, whole or with zeros in its gaps. `None`: no frame is large enough.
    fn packet(&self, at: At<'_>) -> Option<Packet> {
        self.head.packet(at, &self.payload, self.flags)
    }
}

/// `IPReassembler([HIMEM, MAX_MTU_ANNO])`: holds fragments until it can emit the whole packet.
///
/// Newer bytes win where fragments overlap. Packets that stay incomplete for 30 seconds go to output 1 with all of
/// their fragments, and so do the oldest when more than `HIMEM` bytes are held. `MAX_MTU_ANNO` is an annotation for
/// the size of a packet's largest fragment.
struct IpReassembler {
    high: usize,
    largest_annotation: Option<usize>,
    partials: RefCell<HashMap<Key, Partial>>,
    memory: Cell<usize>,
    next_look: Cell<u64>,
    seen: Cell<u64>,
    good: Cell<u64>,
    failed: Cell<u64>,
    bad: Cell<u64>,
}

fn ip_reassembler(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let high: u32 = arguments.keyword("HIMEM").unwrap_or(256 * 1024);
    let largest = arguments.keyword("MAX_MTU_ANNO").map(|place: annotation::Place<2>| place.0);
    arguments.complete()?;
    Some(Rc::new(IpReassembler {
        high: high as usize,
        largest_annotation: largest,
        partials: RefCell::default(),
        memory: Cell::default(),
        next_look: Cell::default(),
        seen: Cell::default(),
        good: Cell::default(),
        failed: Cell::default(),
        bad: Cell::default(),
    }))
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// The part of a packet's payload that a fragment has. `None`: its lengths are wrong.
fn part(ip: Ip<'_>, transport: usize) -> Option<(usize, usize)> {
    let begin = usize::from(ip.fragment() & OFFSET) * 8;
    let length = ip.total_length().checked_sub(ip.header_length()).filter(|length| *length > 0)?;
    let end = begin + length;
    let ragged = end % 8 != 0 && ip.fragment() & MF != 0;
    (end <= usize::from(u16::MAX) && !ragged && length <= transport).then_some((begin, end))
}

impl IpReassembler {
    /// Gives packets up that satisfy `is_old`, at most until memory is at `low`.
    fn give_up(&self, at: At<'_>, low: usize, is_old: impl Fn(&Partial) -> bool) -> u64 {
        let mut old: Vec<(u64, Key)> = self
            .partials
            .borrow()
            .iter()
            .filter(|(_, partial)| is_old(partial))
            .map(|(key, partial)| (partial.number, *key))
            .collect();
        old.sort_unstable();
        let mut ended = 0;
        for (_, key) in old {
            if self.memory.get() <= low {
                break;
            }
            let removed = self.partials.borrow_mut().remove(&key);
            let Some(partial) = removed else { continue };
            self.memory.set(self.memory.get().saturating_sub(partial.memory()));
            ended += 1;
            if at.outputs() > 1
                && let Some(packet) = partial.packet(at)
            {
                at.push(1, packet);
            }
        }
        ended
    }

    fn make_room(&self, at: At<'_>, now: u64) {
        if now >= self.next_look.get() {
            self.give_up(at, 0, |partial| partial.begun + TIMEOUT < now);
            self.next_look.set(now + INTERVAL);
        }
        if self.memory.get() <= self.high {
            return;
        }
        let low = self.high / 4 * 3;
        for age in [10, 5, 0] {
            let ended = self.give_up(at, low, |partial| age == 0 || partial.begun + age < now);
            self.failed.set(self.failed.get() + ended);
            if self.memory.get() <= low {
                return;
            }
        }
        at.complain(|| "IPReassembler: cannot free enough memory!".into());
    }

    fn begin(&self, head: Head, flags: u16, now: u64) -> Partial {
        Partial {
            head,
            payload: Vec::new(),
            parts: Vec::new(),
            flags,
            begun: now,
            number: self.seen.get(),
            largest: 0,
        }
    }

    /// Adds a fragment. A packet that is now whole comes back.
    fn add(&self, at: At<'_>, packet: &Packet, (begin, end): (usize, usize), now: u64) -> Option<Packet> {
        let ip = Ip::of(packet)?;
        let bytes = packet.transport()?.get(..end - begin)?;
        let key = (ip.source(), ip.destination(), ip.id(), ip.protocol());
        let mut partials = self.partials.borrow_mut();
        let partial = match partials.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let partial = self.begin(Head::of(packet)?, ip.fragment() & !OFFSET, now);
                self.memory.set(self.memory.get() + partial.memory());
                place.insert(partial)
            }
        };
        let size = (ip.header_length() + bytes.len()) as u16;
        partial.largest = partial.largest.max(size);
        let before = partial.payload.len();
        if end > before {
            if partial.flags & MF == 0 && before > 0 {
                // The packet's end is known, and it is not there.
                return None;
            }
            partial.payload.resize(end, 0);
            self.memory.set(self.memory.get() + end - before);
        }
        partial.payload[begin..end].copy_from_slice(bytes);
        partial.add_part(begin, end);
        if begin == 0
            && before > 0
            && let Some(head) = Head::of(packet)
        {
            let held = partial.head.bytes.len();
            self.memory.set((self.memory.get() + head.bytes.len()).saturating_sub(held));
            partial.head = head;
        }
        if ip.fragment() & MF == 0 {
            partial.flags &= !MF;
        }
        if !partial.is_whole() {
            return None;
        }
        let partial = partials.remove(&key)?;
        drop(partials);
        self.memory.set(self.memory.get().saturating_sub(partial.memory()));
        let largest = partial.largest;
        let mut whole = partial.packet(at)?;
        count(&self.good);
        whole.set_timestamp(packet.timestamp());
        if let Some(annotation) = self.largest_annotation {
            whole.set_anno_u16(annotation, largest);
        }
        Some(whole)
    }

    /// Counters and what is held, as text.
    fn dump(&self) -> String {
        let mut text = format!(
            "frags seen total:    {}\ngood reassemblies:   {}\nfailed reassemblies: {}\n\
             bad fragments seen:  {}\ncached chunk data:\n",
            self.seen.get(),
            self.good.get(),
            self.failed.get(),
            self.bad.get()
        );
        let partials = self.partials.borrow();
        let mut held: Vec<(&Key, &Partial)> = partials.iter().collect();
        // Click's order: 256 lists by identification, each with the latest first.
        held.sort_unstable_by_key(|(key, partial)| (key.2 >> 8, std::cmp::Reverse(partial.number)));
        for ((source, destination, id, _), partial) in held {
            let ports = [get16(&partial.payload, 0), get16(&partial.payload, 2)];
            let _ = write!(text, " ({source}, {}, {destination}, {}) {id}", ports[0], ports[1]);
            for (begin, end) in &partial.parts {
                let _ = write!(text, " ({begin},{end})");
            }
            text.push('\n');
        }
        text
    }
}

impl Element for IpReassembler {
    fn memory(&self) -> usize {
        self.memory.get()
    }
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let transport = packet.transport().map_or(0, <[u8]>::len);
        let Some(ip) = Ip::of(&packet).filter(|ip| ip.is_fragment()) else { return Some(packet) };
        let part = part(ip, transport);
        count(&self.seen);
        if packet.timestamp() < SECOND {
            packet.set_timestamp(at.now());
        }
        let now = packet.timestamp() / SECOND;
        let Some(part) = part else {
            count(&self.bad);
            at.drop_packet(packet, DropReason::Malformed);
            return None;
        };
        self.make_room(at, now);
        let whole = self.add(at, &packet, part, now);
        at.drop_packet(packet, DropReason::Replaced);
        whole
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("dump", |this: &Self, _| this.dump());
    }
}
