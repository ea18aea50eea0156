//! `TCPCollector`: the packets of TCP streams in the order of their payload, in bounded memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{self, Ip, get16, get32, put, replace16, set16};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::hash::{Keyed, KeyedMap};
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{SECOND, Span};

pub(super) const CLASSES: &[Class] =
    &[Class::new("TCPCollector", tcp_collector).ports("1/1-2").processing("h/h")];

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// Addresses and ports of one direction.
type Key = (Ipv4Addr, Ipv4Addr, u16, u16);

/// One direction of a connection.
struct Stream {
    /// Sequence number of its first byte.
    first: u32,
    /// Sequence number of the next byte.
    next: u32,
    /// The same, counted on from the start and beyond 32 bits.
    offset: u64,
    /// Packets that came too soon, by the offset of their first byte.
    held: BTreeMap<u64, Packet>,
    /// Payload bytes of those.
    bytes: usize,
    /// When its last packet came (steady time, ns).
    last: u64,
}

/// A TCP packet's part of its stream.
#[derive(Clone, Copy)]
struct Segment {
    key: Key,
    sequence: u32,
    flags: u8,
    /// Where the payload begins and ends, in bytes from the packet's first.
    payload: (usize, usize),
}

impl Segment {
    fn of(packet: &Packet) -> Option<Self> {
        let ip = Ip::of(packet).filter(|ip| ip.protocol() == header::TCP && !ip.is_fragment())?;
        let network = usize::try_from(packet.network_place()?).ok()?;
        let header_length = ip.header_length();
        let tcp = ip.0.get(header_length..ip.total_length()).filter(|tcp| tcp.len() >= 20)?;
        let data_offset = usize::from(tcp[12] >> 4) * 4;
        if data_offset < 20 || data_offset > tcp.len() || header_length < header::LENGTH {
            return None;
        }
        Some(Self {
            key: (ip.source(), ip.destination(), get16(tcp, 0), get16(tcp, 2)),
            sequence: get32(tcp, 4),
            flags: tcp[13],
            payload: (network + header_length + data_offset, network + ip.total_length()),
        })
    }
    fn length(&self) -> usize {
        self.payload.1 - self.payload.0
    }
}

/// Takes bytes off the front of a packet's payload, and corrects lengths, sequence number and checksums.
fn cut_payload(packet: &mut Packet, segment: &Segment, count: usize) {
    let (begin, end) = segment.payload;
    let data = packet.data_mut();
    if count == 0 || begin + count > end || end > data.len() {
        return;
    }
    data.copy_within(begin + count..end, begin);
    packet.truncate(end - count);
    let sequence = segment.sequence.wrapping_add(count as u32);
    let Some(ip) = header::ip_mut(packet) else { return };
    let (length, header_length) = (get16(ip, 2), header::header_length(ip));
    replace16(ip, 2, length.wrapping_sub(count as u16));
    let Some((ip, tcp)) = ip.split_at_mut_checked(header_length) else { return };
    put(tcp, 4, &sequence.to_be_bytes());
    set16(tcp, 16, 0);
    let sum = header::transport_checksum(Ip(ip), header::TCP, tcp);
    set16(tcp, 16, sum);
}

/// `TCPCollector([FLOWS, BYTES, PACKETS, TIMEOUT])`: passes the packets of each TCP stream in the order of their payload.
///
/// Bytes that were seen before are cut off, and packets without other bytes are dropped. Packets that come too soon
/// wait: at most `BYTES` payload bytes of a stream, and `PACKETS` of all. Those for which there is no room go to output
/// 1, as do packets that are not TCP, and those of new streams when there are `FLOWS`. Streams end with RST, with FIN
/// once all before it came, and after `TIMEOUT` without a packet.
struct TcpCollector {
    flows: usize,
    bytes: usize,
    packets: usize,
    timeout: u64,
    streams: RefCell<KeyedMap<Key, Stream>>,
    /// Memory for what is decided about a packet: it is used again.
    spare: RefCell<Outcome>,
    held: Cell<usize>,
    duplicates: Cell<u64>,
    refused: Cell<u64>,
}

fn tcp_collector(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let flows: u32 = arguments.keyword("FLOWS").unwrap_or(1024);
    let bytes: u32 = arguments.keyword("BYTES").unwrap_or(65536);
    let packets: u32 = arguments.keyword("PACKETS").unwrap_or(1024);
    let timeout: Span = arguments.keyword("TIMEOUT").unwrap_or(Span(300 * SECOND));
    arguments.complete()?;
    Some(Rc::new(TcpCollector {
        flows: flows as usize,
        bytes: bytes as usize,
        packets: packets as usize,
        timeout: timeout.0.max(SECOND),
        streams: RefCell::new(KeyedMap::with_hasher(Keyed::new(
            setup.at.router.surroundings().seed ^ setup.at.id as u64,
        ))),
        spare: RefCell::default(),
        held: Cell::default(),
        duplicates: Cell::default(),
        refused: Cell::default(),
    }))
}

/// Packets that a call of the collector decided about.
#[derive(Default)]
struct Outcome {
    passed: Vec<Packet>,
    refused: Option<Packet>,
    dropped: Vec<Packet>,
}

impl TcpCollector {
    /// Ends a stream: what it holds is dropped.
    fn end(&self, stream: Stream, outcome: &mut Outcome) {
        self.held.set(self.held.get().saturating_sub(stream.held.len()));
        outcome.dropped.extend(stream.held.into_values());
    }

    /// Passes a packet whose payload is due, cut where its first bytes were seen. Whether it ends the stream.
    fn advance(&self, stream: &mut Stream, mut packet: Packet, behind: usize, outcome: &mut Outcome) -> bool {
        let Some(segment) = Segment::of(&packet) else {
            outcome.dropped.push(packet);
            return false;
        };
        let fresh = segment.length().saturating_sub(behind);
        let ends = segment.flags & FIN != 0;
        if fresh == 0 && segment.length() > 0 && !ends {
            self.duplicates.set(self.duplicates.get() + 1);
            outcome.dropped.push(packet);
            return false;
        }
        cut_payload(&mut packet, &segment, behind.min(segment.length()));
        stream.next = stream.next.wrapping_add(fresh as u32);
        stream.offset = stream.offset.saturating_add(fresh as u64);
        outcome.passed.push(packet);
        ends
    }

    /// Passes what waits and is now due. Whether the stream ends.
    fn drain(&self, stream: &mut Stream, outcome: &mut Outcome) -> bool {
        while let Some(first) = stream.held.first_entry()
            && *first.key() <= stream.offset
        {
            let (offset, packet) = first.remove_entry();
            self.held.set(self.held.get().saturating_sub(1));
            let length = Segment::of(&packet).map_or(0, |segment| segment.length());
            stream.bytes = stream.bytes.saturating_sub(length);
            let behind = usize::try_from(stream.offset - offset).unwrap_or(usize::MAX);
            if self.advance(stream, packet, behind, outcome) {
                return true;
            }
        }
        false
    }

    /// Has a packet wait that came `ahead` bytes too soon.
    fn hold(
        &self,
        stream: &mut Stream,
        packet: Packet,
        segment: &Segment,
        ahead: usize,
        outcome: &mut Outcome,
    ) {
        let length = segment.length();
        let has_room = stream.bytes + length <= self.bytes && self.held.get() < self.packets;
        if !has_room || ahead > self.bytes {
            outcome.refused = Some(packet);
            return;
        }
        let offset = stream.offset.saturating_add(ahead as u64);
        if let Some(other) = stream.held.get(&offset)
            && Segment::of(other).is_some_and(|other| other.length() >= length)
        {
            self.duplicates.set(self.duplicates.get() + 1);
            outcome.dropped.push(packet);
            return;
        }
        stream.bytes += length;
        self.held.set(self.held.get() + 1);
        if let Some(shorter) = stream.held.insert(offset, packet) {
            let length = Segment::of(&shorter).map_or(0, |segment| segment.length());
            stream.bytes = stream.bytes.saturating_sub(length);
            self.held.set(self.held.get().saturating_sub(1));
            outcome.dropped.push(shorter);
        }
    }

    fn take(&self, at: At<'_>, packet: Packet, outcome: &mut Outcome) {
        let Some(segment) = Segment::of(&packet) else {
            outcome.refused = Some(packet);
            return;
        };
        let mut streams = self.streams.borrow_mut();
        let begin = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        // A reset that is far from the stream's next byte may be forged.
        let ends = streams.get(&segment.key).is_some_and(|stream| {
            segment.flags & SYN != 0 && begin != stream.first
                || segment.flags & RST != 0 && begin.wrapping_sub(stream.next) as usize <= self.bytes
        });
        if ends && let Some(stream) = streams.remove(&segment.key) {
            self.end(stream, outcome);
        }
        if segment.flags & RST != 0 {
            outcome.passed.push(packet);
            return;
        }
        if streams.len() >= self.flows && !streams.contains_key(&segment.key) {
            outcome.refused = Some(packet);
            return;
        }
        let stream = streams.entry(segment.key).or_insert_with(|| Stream {
            first: begin,
            next: begin,
            offset: 0,
            held: BTreeMap::new(),
            bytes: 0,
            last: 0,
        });
        stream.last = at.steady();
        let ahead = begin.wrapping_sub(stream.next) as i32;
        if segment.length() == 0 && segment.flags & FIN == 0 {
            // It has nothing that could be out of order.
            outcome.passed.push(packet);
            return;
        }
        if ahead > 0 {
            self.hold(stream, packet, &segment, ahead as usize, outcome);
            return;
        }
        let behind = ahead.unsigned_abs() as usize;
        let ended = self.advance(stream, packet, behind, outcome) || self.drain(stream, outcome);
        if ended && let Some(stream) = streams.remove(&segment.key) {
            self.end(stream, outcome);
        }
    }

    fn settle(&self, at: At<'_>, outcome: &mut Outcome) {
        for packet in outcome.dropped.drain(..) {
            at.discard(packet);
        }
        for packet in outcome.passed.drain(..) {
            at.push(0, packet);
        }
        if let Some(packet) = outcome.refused.take() {
            self.refused.set(self.refused.get() + 1);
            at.push_or_drop(1, packet, DropReason::TableFull);
        }
    }
}

impl Element for TcpCollector {
    fn memory(&self) -> usize {
        self.streams.borrow().capacity() * size_of::<(Key, Stream)>()
            + self.held.get() * size_of::<(u64, Packet)>()
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.timer_after(0, self.timeout / 4);
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        // A packet that comes back from behind meets an empty one.
        let mut outcome = self.spare.take();
        self.take(at, packet, &mut outcome);
        self.settle(at, &mut outcome);
        self.spare.replace(outcome);
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        let oldest = at.steady().saturating_sub(self.timeout);
        let mut outcome = Outcome::default();
        let ended: Vec<Stream> = self
            .streams
            .borrow_mut()
            .extract_if(|_, stream| stream.last < oldest)
            .map(|(_, one)| one)
            .collect();
        for stream in ended {
            self.end(stream, &mut outcome);
        }
        self.settle(at, &mut outcome);
        at.timer_after(0, self.timeout / 4);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("flows", |this: &Self, _| this.streams.borrow().len());
        handlers.read("held", |this: &Self, _| this.held.get());
        handlers.read("duplicates", |this: &Self, _| this.duplicates.get());
        handlers.read("refused", |this: &Self, _| this.refused.get());
    }
    fn cleanup(&self, at: At<'_>) {
        let streams: Vec<Stream> = self.streams.borrow_mut().drain().map(|(_, stream)| stream).collect();
        for packet in streams.into_iter().flat_map(|stream| stream.held.into_values()) {
            at.drop_packet(packet, DropReason::Drained);
        }
        self.held.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::TcpCollector;
    use crate::testing::run;

    #[test]
    fn the_memory_for_decisions_is_used_again() {
        // 1.0.0.1 to 2.0.0.2, a segment of 4 bytes; the second is a duplicate.
        let run = run(
            "InfiniteSource(DATA \\<4500002c 00000000 40060000 01000001 02000002 00010002 00000001 00000000
             50100000 00000000 61626364>, LIMIT 2, STOP true)
             -> MarkIPHeader -> c :: TCPCollector -> n :: Counter -> Discard",
        );
        assert_eq!(run.errors, Vec::<String>::new());
        assert_eq!((run.read("n.count"), run.read("c.duplicates")), ("1".into(), "1".into()));
        let router = run.router.expect("a configuration");
        let mut ids = 0..router.len();
        let collector = ids.find_map(|id| router.element_as::<TcpCollector>(id)).expect("the element");
        let spare = collector.spare.borrow();
        assert!(spare.passed.is_empty() && spare.dropped.is_empty());
        assert!(
            spare.passed.capacity() > 0 && spare.dropped.capacity() > 0,
            "it is kept from packet to packet"
        );
    }
}
