//! Headers that are taken off and put back: `Strip`, `Unstrip` and similar ones.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::fuse::Step;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("Strip", |arguments, _| with_length(arguments, Kind::Strip)),
    Class::new("Unstrip", |arguments, _| with_length(arguments, Kind::Unstrip)),
    Class::new("StripToNetworkHeader", |arguments, _| plain(arguments, Kind::ToNetwork)),
    Class::new("StripIPHeader", |arguments, _| plain(arguments, Kind::ToTransport)),
    Class::new("UnstripIPHeader", |arguments, _| plain(arguments, Kind::BackToNetwork)),
    Class::new("StripTransportHeader", strip_transport),
];

#[derive(Clone, Copy)]
enum Kind {
    Strip,
    Unstrip,
    ToNetwork,
    ToTransport,
    BackToNetwork,
    BehindTransport,
}

/// `Strip(LENGTH)`, `Unstrip(LENGTH)`, and strips that go by where headers are.
///
/// - `Strip` takes bytes off the front; `Unstrip` brings them back, or zeros where none were.
/// - `StripToNetworkHeader` has the packet begin at its network header, whether that is in it or was taken off.
/// - `StripIPHeader` has it begin behind the network header, `UnstripIPHeader` at it again.
/// - `StripTransportHeader` has it begin behind its TCP, UDP or ICMP header (not in Click).
pub(super) struct Strip {
    kind: Kind,
    length: usize,
}

fn with_length(arguments: &mut Arguments<'_>, kind: Kind) -> Option<Rc<dyn Element>> {
    let length: Option<u32> = arguments.required("LENGTH");
    arguments.complete()?;
    Some(Rc::new(Strip { kind, length: length? as usize }))
}

fn plain(arguments: &mut Arguments<'_>, kind: Kind) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(Strip { kind, length: 0 }))
}

fn strip_transport(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    plain(arguments, Kind::BehindTransport)
}

/// The length of a packet's transport header (bytes).
fn transport_header_length(packet: &Packet) -> usize {
    let protocol = super::header::Ip::of(packet).map(super::header::Ip::protocol);
    let transport = packet.transport().unwrap_or_default();
    match protocol {
        Some(super::header::TCP) => transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4),
        Some(super::header::UDP | super::header::ICMP) => 8,
        _ => 0,
    }
}

impl Strip {
    /// Bytes to take off the front, or to put back where the number is negative.
    fn change(&self, packet: &Packet) -> isize {
        match self.kind {
            Kind::Strip => self.length as isize,
            Kind::Unstrip => -(self.length as isize),
            Kind::ToNetwork => packet.network_place().unwrap_or(0),
            Kind::ToTransport => packet.transport_place().unwrap_or(0).max(0),
            Kind::BackToNetwork => packet.network_place().unwrap_or(0).min(0),
            Kind::BehindTransport => packet
                .transport_place()
                .map_or(0, |place| (place + transport_header_length(packet) as isize).max(0)),
        }
    }
    /// Does it. `false`: there was no memory.
    fn apply(&self, at: At<'_>, packet: &mut Packet) -> bool {
        let change = self.change(packet);
        let count = change.unsigned_abs();
        if change < 0 {
            return packet.unpull_bytes(at.pool(), count);
        }
        if count > packet.len() {
            at.complain(|| format!("Packet::pull {count} > length {}", packet.len()));
        }
        packet.pull_bytes(count);
        true
    }
}

impl Step for Strip {
    fn fits(&self, _: &Batch) -> bool {
        matches!(self.kind, Kind::Strip | Kind::ToTransport)
    }
    #[inline(always)]
    fn act(&self, at: At<'_>, packet: &mut Packet) -> u8 {
        self.apply(at, packet);
        0
    }
}

impl Element for Strip {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if self.apply(at, &mut packet) {
            return Some(packet);
        }
        at.drop_packet(packet, DropReason::PoolExhausted);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        if self.fits(batch) {
            batch.each_packet(|_, packet| {
                self.apply(at, packet);
            });
            at.push_batch(0, batch);
        } else {
            super::pass(self, at, batch);
        }
    }
}
