//! Checksums: `SetIPChecksum`, `SetTCPChecksum`, `SetUDPChecksum`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::header::{self, Ip, set16};
use super::pass;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("SetIPChecksum", set_ip_checksum),
    Class::new("SetTCPChecksum", set_tcp_checksum),
    Class::new("SetUDPChecksum", set_udp_checksum).ports("1/1-2").processing("a/ah"),
];

/// `SetIPChecksum`: computes the checksum of the IPv4 header that is marked, or else begins the packet.
struct SetIpChecksum {
    drops: Cell<u64>,
}

fn set_ip_checksum(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(SetIpChecksum { drops: Cell::default() }))
}

impl Element for SetIpChecksum {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let marked = packet.network_place().is_some();
        let bytes = if marked { packet.network_mut().unwrap_or_default() } else { packet.data_mut() };
        let length = header::header_length(bytes);
        if (header::LENGTH..=bytes.len()).contains(&length) {
            header::set_checksum(bytes);
            return Some(packet);
        }
        self.drops.set(self.drops.get() + 1);
        if self.drops.get() == 1 {
            at.complain(|| "SetIPChecksum: bad input packet".into());
        }
        at.drop_packet(packet, DropReason::Malformed);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}

/// Where the transport header lies in what follows the network header, if both are marked in this order.
fn transport_in_network(packet: &Packet) -> Option<usize> {
    usize::try_from(packet.transport_place()? - packet.network_place()?).ok()
}

/// `SetTCPChecksum([FIXOFF])`: computes the TCP checksum.
///
/// With `FIXOFF`, data offsets that point into the header or behind the segment are corrected.
struct SetTcpChecksum {
    fix_offset: bool,
}

fn set_tcp_checksum(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let fix_offset = arguments.positional("FIXOFF").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(SetTcpChecksum { fix_offset }))
}

impl SetTcpChecksum {
    fn set(&self, packet: &mut Packet) -> Option<()> {
        let place = transport_in_network(packet)?;
        let (ip, transport) = header::ip_mut(packet)?.split_at_mut_checked(place)?;
        let ip = Some(&*ip).filter(|ip| ip.len() >= header::LENGTH).map(Ip)?;
        let length = ip.total_length().checked_sub(ip.header_length()).filter(|length| *length >= 20)?;
        let segment = transport.get_mut(..length)?;
        if self.fix_offset {
            let offset = usize::from(segment[12] >> 4) * 4;
            if offset < 20 {
                segment[12] = segment[12] & 15 | 5 << 4;
            } else if offset > length && !ip.is_fragment() {
                segment[12] = segment[12] & 15 | ((length / 4) as u8) << 4;
            }
        }
        set16(segment, 16, 0);
        let sum = header::transport_checksum(ip, header::TCP, segment);
        set16(segment, 16, sum);
        Some(())
    }
}

impl Element for SetTcpChecksum {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if self.set(&mut packet).is_some() {
            return Some(packet);
        }
        at.complain(|| "SetTCPChecksum: bad lengths".into());
        at.drop_packet(packet, DropReason::Malformed);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}

/// `SetUDPChecksum`: computes the UDP checksum. Fragments and short packets go to output 1.
struct SetUdpChecksum;

fn set_udp_checksum(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(SetUdpChecksum))
}

fn set_udp(packet: &mut Packet) -> Option<()> {
    let place = transport_in_network(packet)?;
    let (ip, transport) = header::ip_mut(packet)?.split_at_mut_checked(place)?;
    let ip = Some(&*ip).filter(|ip| ip.len() >= header::LENGTH).map(Ip)?;
    let length = usize::from(header::get16(transport, 4));
    if ip.is_fragment() || transport.len() < length.max(8) {
        return None;
    }
    set16(transport, 6, 0);
    let sum = header::transport_checksum(ip, header::UDP, transport.get(..length)?);
    set16(transport, 6, sum);
    Some(())
}

impl Element for SetUdpChecksum {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if set_udp(&mut packet).is_some() {
            return Some(packet);
        }
        if at.outputs() == 1 {
            let said = at.router.shared("SetUDPChecksum message", || Cell::new(false));
            if !said.replace(true) {
                at.chatter(&format!("{}: fragment or short packet", at.declaration()));
            }
        }
        at.push_or_drop(1, packet, DropReason::Malformed);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
}
