//! Reassembly of IPv4 fragments before they are routed, where the operator asks for it (RFC 791 §3.2, RFC 815).
//!
//! The packets under way and their fragments are bounded, and all memory for them is there from the beginning. A packet
//! whose fragments overlap is dropped whole, since its end could read it in another way (RFC 1858, RFC 5722).

use std::net::Ipv4Addr;

use netbricks_core::buffer::{Packet, Pool};
use netbricks_core::packet::IpRef;
use netbricks_core::packet::Ipv4;
use netbricks_core::packet::stack::Header;
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Table, TableError};
use netbricks_core::{Context, DropReason};

use super::look::Parsed;
use super::resolve::time;

/// Fragments of one packet.
pub(super) const FRAGMENTS: usize = 64;
/// Time for all fragments of a packet to come (ns): RFC 791's initial timer is 15 s, Linux's 30 s.
const TIME: u64 = 30_000_000_000;

/// The packet to which a fragment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    identification: u16,
    /// The interface by which it came.
    ingress: u16,
}

impl Key {
    fn words(self) -> [u64; 3] {
        let Self { source, destination, protocol, identification, ingress } = self;
        let rest = u64::from(protocol) << 32 | u64::from(identification) << 16 | u64::from(ingress);
        [u64::from(source.to_bits()), u64::from(destination.to_bits()), rest]
    }
}

/// A fragment that waits for the others.
struct Piece {
    packet: Packet,
    /// The bytes of the payload that it has, counted from the packet's.
    from: usize,
    to: usize,
    /// Where they are in the frame.
    at: usize,
}

/// A packet of which fragments are there.
struct Datagram {
    key: Key,
    /// When it is given up (ns).
    until: u64,
    /// Its fragments, in the order of their bytes.
    pieces: Vec<Piece>,
    /// Bytes of the payload that are there.
    have: usize,
    /// The length of the payload, once the last fragment is there.
    len: Option<usize>,
    /// The next older and the next newer packet.
    older: u32,
    newer: u32,
}

const NONE: u32 = u32::MAX;

/// The packets that are put together.
pub(super) struct Reassembly {
    datagrams: Vec<Datagram>,
    places: FlowTable<[u64; 3], u32>,
    free: Vec<u32>,
    /// All packets live equally long: the oldest is over first.
    oldest: u32,
    newest: u32,
    held: usize,
}

impl Reassembly {
    /// Puts at most this many packets together at a time, one at least.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub(super) fn new(most: usize, seed: u64) -> Result<Self, TableError> {
        let most = most.max(1);
        let none = Key {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            protocol: 0,
            identification: 0,
            ingress: 0,
        };
        let empty = || Datagram {
            key: none,
            until: 0,
            pieces: Vec::with_capacity(FRAGMENTS),
            have: 0,
            len: None,
            older: NONE,
            newer: NONE,
        };
        Ok(Self {
            datagrams: (0..most).map(|_| empty()).collect(),
            places: FlowTable::new(FlowTableConfig::new(most).seeded(seed))?,
            free: (0..most as u32).rev().collect(),
            oldest: NONE,
            newest: NONE,
            held: 0,
        })
    }

    /// Fragments that wait.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// When the first packet is given up (ns).
    pub(super) fn next(&self) -> Option<u64> {
        self.datagrams.get(self.oldest as usize).map(|datagram| datagram.until)
    }

    /// Takes a fragment. The answer is the whole packet, once all of it is there.
    pub(super) fn take(
        &mut self,
        packet: Packet,
        parsed: &Parsed,
        ingress: u16,
        cx: &mut Context,
    ) -> Option<Packet> {
        let (ip, payload) = parsed.header(packet.data());
        let IpRef::V4(header) = ip else { return Some(packet) };
        let (from, len) = (usize::from(header.fragment_offset()) * 8, payload.len());
        let more = header.more_fragments();
        let wrong = len == 0 || more && !len.is_multiple_of(8) || from + len > 65_515;
        let key = Key {
            source: header.source(),
            destination: header.destination(),
            protocol: header.protocol(),
            identification: header.identification(),
            ingress,
        };
        if wrong || packet.missing() > 0 {
            let reason = if wrong { DropReason::Malformed } else { DropReason::Truncated };
            cx.drop_packet(packet, reason);
            return None;
        }
        let Some(place) = self.place(key, cx) else {
            // Not reached: the oldest has made room.
            cx.drop_packet(packet, DropReason::Fragment);
            return None;
        };
        let datagram = &mut self.datagrams[place as usize];
        let piece = Piece { packet, from, to: from + len, at: parsed.end as usize };
        match datagram.fits(&piece, more) {
            Fit::Twice => {
                cx.drop_packet(piece.packet, DropReason::Fragment);
                return None;
            }
            Fit::Contradicts => {
                cx.drop_packet(piece.packet, DropReason::Fragment);
                self.give_up(place, cx);
                return None;
            }
            Fit::At(at) => datagram.add(at, piece, more),
        }
        self.held += 1;
        if datagram.len != Some(datagram.have) {
            return None;
        }
        let whole = datagram.whole(datagram.have, cx.pool());
        let reason = if whole.is_some() { DropReason::Replaced } else { DropReason::PoolExhausted };
        self.end(place, reason, cx);
        if let Some(whole) = &whole {
            cx.created(whole);
        }
        whole
    }

    /// The place of a packet's fragments. Where there are too many packets, the oldest is given up.
    fn place(&mut self, key: Key, cx: &mut Context) -> Option<u32> {
        if let Some(place) = self.places.get(&key.words()) {
            return Some(*place);
        }
        if self.free.is_empty() {
            self.give_up(self.oldest, cx);
        }
        let place = self.free.pop()?;
        match self.places.lookup(key.words(), 0) {
            Entry::Vacant(vacant) => drop(vacant.insert(place)),
            Entry::Found(_) | Entry::Full => {
                self.free.push(place);
                return None;
            }
        }
        let datagram = &mut self.datagrams[place as usize];
        datagram.key = key;
        datagram.until = time(cx).saturating_add(TIME);
        (datagram.older, datagram.newer) = (self.newest, NONE);
        match self.datagrams.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        Some(place)
    }

    /// Drops all fragments of a packet, whose place is then free.
    fn end(&mut self, place: u32, reason: DropReason, cx: &mut Context) {
        let Some(datagram) = self.datagrams.get_mut(place as usize) else { return };
        self.places.remove(&datagram.key.words());
        self.held -= datagram.pieces.len();
        datagram.pieces.drain(..).for_each(|piece| cx.drop_packet(piece.packet, reason));
        (datagram.have, datagram.len) = (0, None);
        let (older, newer) = (datagram.older, datagram.newer);
        match self.datagrams.get_mut(older as usize) {
            Some(datagram) => datagram.newer = newer,
            None => self.oldest = newer,
        }
        match self.datagrams.get_mut(newer as usize) {
            Some(datagram) => datagram.older = older,
            None => self.newest = older,
        }
        self.free.push(place);
    }

    fn give_up(&mut self, place: u32, cx: &mut Context) {
        self.end(place, DropReason::Fragment, cx);
    }

    /// Gives up what did not come in time, or all.
    pub(super) fn expire(&mut self, all: bool, cx: &mut Context) {
        while self.next().is_some_and(|until| all || until <= time(cx)) {
            self.give_up(self.oldest, cx);
        }
    }
}

/// The place of a fragment among the others of its packet.
enum Fit {
    At(usize),
    /// It came before.
    Twice,
    /// It overlaps with another, it is one too many, or the two say different ends.
    Contradicts,
}

impl Datagram {
    fn fits(&self, piece: &Piece, more: bool) -> Fit {
        // The fragments do not overlap, so that their ends are in order, too.
        let at = self.pieces.partition_point(|known| known.to <= piece.from);
        let last = self.pieces.last().map_or(0, |last| last.to);
        if let Some(next) = self.pieces.get(at) {
            if (next.from, next.to) == (piece.from, piece.to) {
                return Fit::Twice;
            }
            if next.from < piece.to {
                return Fit::Contradicts;
            }
        }
        let contradicts = match (self.len, more) {
            (Some(len), false) => len != piece.to,
            (Some(len), true) => piece.to >= len,
            (None, false) => last > piece.to,
            (None, true) => false,
        };
        if contradicts || self.pieces.len() >= FRAGMENTS { Fit::Contradicts } else { Fit::At(at) }
    }

    fn add(&mut self, at: usize, piece: Piece, more: bool) {
        self.have += piece.to - piece.from;
        if !more {
            self.len = Some(piece.to);
        }
        self.pieces.insert(at, piece);
    }

    /// The packet of all fragments, with the headers of the first; `None` where no buffer is large enough.
    fn whole(&self, len: usize, pool: &Pool) -> Option<Packet> {
        let first = self.pieces.first()?;
        let headers = first.packet.data().get(..first.at)?;
        let mut whole = pool.allocate(first.at + len)?;
        let bytes = whole.data_mut();
        bytes.get_mut(..first.at)?.copy_from_slice(headers);
        for piece in &self.pieces {
            let payload = piece.packet.data().get(piece.at..piece.at + piece.to - piece.from)?;
            bytes.get_mut(first.at + piece.from..first.at + piece.to)?.copy_from_slice(payload);
        }
        // The link header's length gives the place of the IP header.
        let at = if headers.get(12..14)? == [0x81, 0] { 18 } else { 14 };
        let header = bytes.get_mut(at..first.at)?;
        let total = u16::try_from(header.len() + len).ok()?;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6] &= 0x40;
        header[7] = 0;
        Ipv4::view_mut(header, ()).refresh_checksum();
        whole.set_received_at(first.packet.received_at());
        whole.set_ingress(first.packet.ingress(), first.packet.queue());
        whole.set_owner(first.packet.owner());
        Some(whole)
    }
}
