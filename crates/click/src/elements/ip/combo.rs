//! Several elements of an IP router in one: `IPInputCombo`, `IPOutputCombo`.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::check::Rules;
use super::header::{self, ip_mut};
use super::options::{self, Own};
use super::{address, field, pass};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("IPInputCombo", ip_input_combo),
    Class::new("IPOutputCombo", ip_output_combo).ports("1/5").processing("h/h"),
];

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// `IPInputCombo(COLOR [, BADSRC*, INTERFACES, BADSRC, GOODDST])`: `Paint`, `Strip(14)` and `CheckIPHeader` in one.
struct IpInputCombo {
    colour: u8,
    rules: Rules,
    drops: Cell<u64>,
}

fn ip_input_combo(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let colour: Option<i32> = arguments.required("COLOR");
    let mut rules = Rules::default();
    if let Some(bad) = arguments.positional_with("BADSRC*", Rules::bad_sources) {
        rules.bad_sources = bad;
    }
    rules.read(arguments);
    arguments.complete()?;
    Some(Rc::new(IpInputCombo { colour: colour? as u8, rules, drops: Cell::default() }))
}

impl Element for IpInputCombo {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        packet.set_anno_u8(place::PAINT, self.colour);
        packet.pull_bytes(ETHERNET);
        if self.rules.apply(&mut packet, 0, true).is_ok() {
            return Some(packet);
        }
        if self.drops.get() == 0 {
            at.complain(|| "IP checksum failed".into());
        }
        self.drops.set(self.drops.get() + 1);
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

/// `IPOutputCombo(COLOR, IPADDR, MTU)`: what a router does last, in one.
///
/// It is `DropBroadcasts`, `PaintTee`, `IPGWOptions`, `FixIPSrc`, `DecIPTTL` and `CheckLength`. Outputs 1 to 4 have
/// painted packets, bad options, expired packets, and packets longer than `MTU`.
struct IpOutputCombo {
    colour: i32,
    own: Own,
    mtu: usize,
}

fn ip_output_combo(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let colour: Option<i32> = arguments.required("COLOR");
    let address: Option<Ipv4Addr> = arguments.required("IPADDR");
    let mtu: Option<u32> = arguments.required("MTU");
    arguments.complete()?;
    Some(Rc::new(IpOutputCombo { colour: colour?, own: Own::new(address?, Vec::new()), mtu: mtu? as usize }))
}

impl IpOutputCombo {
    /// Works on header and options. `Err`: the output for the packet, and why it would be dropped.
    fn work(&self, packet: &mut Packet, now: u64) -> Result<(), (usize, DropReason)> {
        let length = packet.len();
        let malformed = (2, DropReason::Malformed);
        let ip = ip_mut(packet).ok_or(malformed)?;
        let header_length = header::header_length(ip);
        if header_length > header::LENGTH {
            let options = ip.get_mut(..header_length).ok_or(malformed)?;
            match options::process(options, &self.own, now) {
                Ok(true) => header::set_checksum(options),
                Ok(false) => (),
                Err(fault) => {
                    packet.set_anno_u8(place::ICMP_PARAMETER_PROBLEM, fault);
                    return Err(malformed);
                }
            }
        }
        address::fix_source(packet, self.own.first());
        if !ip_mut(packet).is_some_and(field::decrement_ttl) {
            return Err((3, DropReason::TtlExpired));
        }
        if length > self.mtu { Err((4, DropReason::TooBig)) } else { Ok(()) }
    }
}

impl Element for IpOutputCombo {
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        if field::is_for_group(&packet) {
            at.drop_packet(packet, DropReason::Denied);
            return;
        }
        if i32::from(packet.paint()) == self.colour
            && let Some(copy) = at.copy(&packet)
        {
            at.push(1, copy);
        }
        match self.work(&mut packet, at.now()) {
            Ok(()) => at.push(0, packet),
            Err((output, reason)) => at.push_or_drop(output, packet, reason),
        }
    }
}
