//! Generic routing encapsulation: `GREEncap`, `GREDecap` (RFC 2784, key and sequence number of RFC 2890).

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::packet::checksum;

use super::header::{get16, get32, put, set16};
use super::pass;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("GREEncap", gre_encap), Class::new("GREDecap", gre_decap).ports("1/1-2").processing("a/ah")];

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Bits that a receiver must know to take the packet (RFC 2784): routing, and those beside.
const UNKNOWN: u16 = 0x4C00;
const VERSION: u16 = 0x0007;

/// `GREEncap([PROTO, KEY, SEQUENCE, CHECKSUM])`: puts a GRE header before each packet.
///
/// `PROTO` is the payload's EtherType, 0x0800 by default. `IPEncap(gre, …)` puts on the outer header.
struct GreEncap {
    protocol: u16,
    key: Option<u32>,
    numbers: bool,
    checksum: bool,
    sequence: Cell<u32>,
}

fn gre_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let protocol: u16 = arguments.positional("PROTO").unwrap_or(0x0800);
    let key: Option<u32> = arguments.keyword("KEY");
    let numbers = arguments.keyword("SEQUENCE").unwrap_or(false);
    let checksum = arguments.keyword("CHECKSUM").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(GreEncap { protocol, key, numbers, checksum, sequence: Cell::default() }))
}

impl Element for GreEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let words = usize::from(self.checksum) + usize::from(self.key.is_some()) + usize::from(self.numbers);
        if !packet.push_bytes(at.pool(), 4 + 4 * words) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let data = packet.data_mut();
        let mut flags = 0;
        let mut place = 4;
        if self.checksum {
            flags |= CHECKSUM;
            place += 4;
        }
        if let Some(key) = self.key {
            flags |= KEY;
            put(data, place, &key.to_be_bytes());
            place += 4;
        }
        if self.numbers {
            flags |= SEQUENCE;
            let sequence = self.sequence.get();
            put(data, place, &sequence.to_be_bytes());
            self.sequence.set(sequence.wrapping_add(1));
        }
        set16(data, 0, flags);
        set16(data, 2, self.protocol);
        if self.checksum {
            let sum = checksum::internet(data);
            set16(data, 4, sum);
        }
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.number("sequence", |this: &Self| &this.sequence);
    }
}

/// `GREDecap([PROTO, KEY, SEQUENCE])`: takes the GRE header off packets that begin with one.
///
/// Packets with another protocol or key, a wrong checksum or meaningless bits go to output 1. With `SEQUENCE`, so do
/// those that come behind a later one. Without `KEY`, any key or none is right.
struct GreDecap {
    protocol: Option<u16>,
    key: Option<u32>,
    orders: bool,
    last: Cell<Option<u32>>,
    drops: Cell<u64>,
}

fn gre_decap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let protocol: Option<u16> = arguments.positional("PROTO");
    let key: Option<u32> = arguments.keyword("KEY");
    let orders = arguments.keyword("SEQUENCE").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(GreDecap { protocol, key, orders, last: Cell::default(), drops: Cell::default() }))
}

impl GreDecap {
    /// The length of a packet's GRE header (bytes), or why the packet is refused.
    fn check(&self, data: &[u8]) -> Result<usize, DropReason> {
        if data.len() < 4 {
            return Err(DropReason::Malformed);
        }
        let flags = get16(data, 0);
        if flags & (UNKNOWN | VERSION) != 0 {
            return Err(DropReason::Unmatched);
        }
        let mut place = 4;
        let mut word = |flag: u16| {
            let here = (flags & flag != 0).then_some(place);
            place += if here.is_some() { 4 } else { 0 };
            here
        };
        let (sum, key, sequence) = (word(CHECKSUM), word(KEY), word(SEQUENCE));
        if data.len() < place {
            return Err(DropReason::Malformed);
        }
        if sum.is_some() && checksum::internet(data) != 0 {
            return Err(DropReason::BadChecksum);
        }
        let right_protocol = self.protocol.is_none_or(|protocol| protocol == get16(data, 2));
        let right_key = self.key.is_none_or(|wanted| key.is_some_and(|at| get32(data, at) == wanted));
        if !right_protocol || !right_key {
            return Err(DropReason::Unmatched);
        }
        if let Some(number) = sequence.filter(|_| self.orders).map(|at| get32(data, at)) {
            let ahead = self.last.get().map_or(1, |last| number.wrapping_sub(last));
            if ahead == 0 || ahead >= 1 << 31 {
                return Err(DropReason::Denied);
            }
            self.last.set(Some(number));
        }
        Ok(place)
    }
}

impl Element for GreDecap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match self.check(packet.data()) {
            Ok(length) => {
                packet.pull_bytes(length);
                Some(packet)
            }
            Err(reason) => {
                self.drops.set(self.drops.get() + 1);
                at.push_or_drop(1, packet, reason);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.read("sequence", |this: &Self, _| {
            this.last.get().map_or_else(String::new, |last| last.to_string())
        });
        handlers.button("reset", |this: &Self, _| {
            this.last.set(None);
            this.drops.set(0);
        });
    }
}
