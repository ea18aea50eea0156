//! `IPFragmenter`: packets that are too large, cut into fragments (RFC 791).

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, DF, Ip, MF, set16};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("IPFragmenter", ip_fragmenter).ports("1/1-2").processing("h/h")];

/// `IPFragmenter(MTU [, HONOR_DF, VERBOSE, HEADROOM])`: cuts packets into fragments of at most `MTU` bytes.
///
/// Packets that forbid it go to output 1, unless `HONOR_DF` is false. What precedes the network header stays with the
/// first fragment only.
struct IpFragmenter {
    mtu: usize,
    honours_df: bool,
    verbose: bool,
    drops: Cell<u64>,
    fragments: Cell<u64>,
}

fn ip_fragmenter(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mtu: Option<u32> = arguments.required("MTU");
    let honours_df = arguments.positional("HONOR_DF").unwrap_or(true);
    let verbose = arguments.positional("VERBOSE").unwrap_or(false);
    let _: Option<u32> = arguments.keyword("HEADROOM");
    arguments.complete()?;
    let mtu = mtu? as usize;
    if mtu < 8 {
        arguments.error("MTU must be at least 8");
        return None;
    }
    Some(Rc::new(IpFragmenter {
        mtu,
        honours_df,
        verbose,
        drops: Cell::default(),
        fragments: Cell::default(),
    }))
}

/// The options that every fragment repeats, padded to whole words.
fn copied_options(options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    let mut rest = options;
    loop {
        match rest {
            [header::option::NOP, ..] => rest = &rest[1..],
            [] | [header::option::END, ..] | [_] => break,
            [kind, length, ..] => {
                let length = usize::from(*length);
                if length < 2 || length > rest.len() {
                    break;
                }
                if kind & 0x80 != 0 {
                    copied.extend_from_slice(&rest[..length]);
                }
                rest = &rest[length..];
            }
        }
    }
    copied.resize(copied.len().next_multiple_of(4), header::option::END);
    copied
}

/// How a packet is cut.
struct Plan {
    /// Where the network header begins, in bytes from the packet's first.
    place: usize,
    header_length: usize,
    /// Payload bytes of the packet, and of its first fragment.
    payload: usize,
    first: usize,
    id: u16,
    /// Flags and offset of the first fragment.
    fragment: u16,
    had_more: bool,
}

impl IpFragmenter {
    /// How to cut a packet; `Err` if it must not or cannot be cut.
    fn plan(&self, at: At<'_>, packet: &Packet, place: usize) -> Result<Plan, ()> {
        let ip = Ip::of(packet).ok_or(())?;
        let header_length = ip.header_length();
        let room = self.mtu.checked_sub(header_length).ok_or(())? & !7;
        let forbidden = ip.fragment() & DF != 0;
        if forbidden && self.honours_df || room < 8 || header_length < header::LENGTH {
            return Err(());
        }
        let length = ip.total_length().min(ip.0.len());
        let payload = length.checked_sub(header_length).ok_or(())?;
        Ok(Plan {
            place,
            header_length,
            payload,
            first: room.min(payload),
            // A packet that forbids fragments may have no identification of its own.
            id: if forbidden { at.router.random() as u16 } else { ip.id() },
            fragment: ip.fragment() & !DF | MF,
            had_more: ip.fragment() & MF != 0,
        })
    }

    fn first(&self, at: At<'_>, packet: &Packet, plan: &Plan) -> Option<Packet> {
        let end = plan.place + plan.header_length + plan.first;
        let mut first = at.packet(packet.data().get(..end)?)?;
        header::copy_annotations(&mut first, packet);
        first.set_mac_place(packet.mac_place().and_then(|place| usize::try_from(place).ok()));
        first.set_network(plan.place, plan.header_length);
        if let Some(ip) = first.network_mut() {
            set16(ip, 2, (plan.header_length + plan.first) as u16);
            set16(ip, 4, plan.id);
            set16(ip, 6, plan.fragment);
            header::set_checksum(ip);
        }
        Some(first)
    }

    fn later(
        &self,
        at: At<'_>,
        packet: &Packet,
        plan: &Plan,
        options: &[u8],
        part: std::ops::Range<usize>,
    ) -> Option<Packet> {
        let header_length = header::LENGTH + options.len();
        let ip = packet.network()?;
        let payload = ip.get(plan.header_length..)?.get(part.clone())?;
        let mut later = at.allocate(header_length + payload.len())?;
        let data = later.data_mut();
        data[..header::LENGTH].copy_from_slice(ip.get(..header::LENGTH)?);
        data[header::LENGTH..header_length].copy_from_slice(options);
        data[header_length..].copy_from_slice(payload);
        data[0] = 0x40 | (header_length / 4) as u8;
        let length = data.len() as u16;
        set16(data, 2, length);
        set16(data, 4, plan.id);
        let mut fragment = plan.fragment.wrapping_add((part.start / 8) as u16);
        if part.end >= plan.payload && !plan.had_more {
            fragment &= !MF;
        }
        set16(data, 6, fragment);
        header::set_checksum(data);
        later.set_network(0, header_length);
        header::copy_annotations(&mut later, packet);
        Some(later)
    }

    fn emit(&self, at: At<'_>, fragment: Option<Packet>) {
        if let Some(fragment) = fragment {
            self.fragments.set(self.fragments.get() + 1);
            at.push(0, fragment);
        }
    }

    fn refuse(&self, at: At<'_>, packet: Packet) {
        if self.verbose || self.drops.get() < 5 {
            let addresses = Ip::of(&packet)
                .map_or_else(String::new, |ip| format!("{} {}", ip.source(), ip.destination()));
            at.chatter(&format!("IPFragmenter({}) DF {addresses} len={}", self.mtu, packet.len()));
        }
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::TooBig);
    }
}

impl IpFragmenter {
    /// Where the network header of a packet begins that is too large.
    #[inline]
    fn too_large(&self, packet: &Packet) -> Option<usize> {
        let place = packet.network_place().and_then(|place| usize::try_from(place).ok());
        place.filter(|place| packet.len().saturating_sub(*place) > self.mtu)
    }
}

impl Element for IpFragmenter {
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        if batch.iter().all(|packet| self.too_large(packet).is_none()) {
            at.push_batch(0, batch);
            return;
        }
        at.each_alone(batch, |packet| self.push(at, input, packet));
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let Some(place) = self.too_large(&packet) else {
            at.push(0, packet);
            return;
        };
        let Ok(plan) = self.plan(at, &packet, place) else {
            self.refuse(at, packet);
            return;
        };
        if plan.first == plan.payload && plan.header_length + plan.payload <= self.mtu {
            // Only bytes behind the packet's own length are too many.
            let mut packet = packet;
            packet.truncate(place + plan.header_length + plan.payload);
            at.push(0, packet);
            return;
        }
        let options = packet
            .network()
            .and_then(|ip| ip.get(header::LENGTH..plan.header_length))
            .map(copied_options)
            .unwrap_or_default();
        self.emit(at, self.first(at, &packet, &plan));
        let room = self.mtu.saturating_sub(header::LENGTH + options.len()) & !7;
        let mut begin = plan.first;
        while begin < plan.payload && room > 0 {
            let end = (begin + room).min(plan.payload);
            self.emit(at, self.later(at, &packet, &plan, &options, begin..end));
            begin = end;
        }
        at.drop_packet(packet, DropReason::Replaced);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.read("fragments", |this: &Self, _| this.fragments.get());
    }
}
