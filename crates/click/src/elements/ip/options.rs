//! `IPGWOptions`: a router's work on IPv4 options: record route and timestamp (RFC 791, RFC 1812 section 5.2.4).

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::fuse::Step;
use super::header::{self, get_address, ip_mut, option, put};
use super::names;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("IPGWOptions", ip_gw_options).ports("1/1-2").processing("a/ah")];

/// `IPGWOptions(MYADDR [, OTHERADDRS])`: fills in record route and timestamp options.
///
/// Packets with bad options go to output 1, with the annotation that says where the fault is.
pub(super) struct IpGwOptions {
    own: Own,
    drops: Cell<u64>,
}

/// A router's addresses; the first is the one that it writes.
pub(super) struct Own(Vec<Ipv4Addr>);

impl Own {
    pub(super) fn new(first: Ipv4Addr, others: Vec<Ipv4Addr>) -> Self {
        Self(std::iter::once(first).chain(others).collect())
    }
    pub(super) fn first(&self) -> Ipv4Addr {
        self.0.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

fn ip_gw_options(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let own: Option<Ipv4Addr> = arguments.required("MYADDR");
    let others = arguments.positional_with("OTHERADDRS", names::addresses).unwrap_or_default();
    arguments.complete()?;
    Some(Rc::new(IpGwOptions { own: Own::new(own?, others), drops: Cell::default() }))
}

/// Milliseconds since midnight, as timestamp options have them.
fn since_midnight(now: u64) -> [u8; 4] {
    ((now / 1_000_000 % 86_400_000) as u32).to_be_bytes()
}

/// Records the route. `Err`: where in the option the fault is.
fn record_route(option: &mut [u8], own: &Own) -> Result<bool, usize> {
    // The pointer counts from 1.
    let pointer = usize::from(option.get(2).copied().unwrap_or(0));
    let Some(at) = pointer.checked_sub(1) else { return Err(2) };
    if at >= 3 && at + 4 <= option.len() {
        put(option, at, &own.first().octets());
        option[2] += 4;
        Ok(true)
    } else if at == option.len() {
        Ok(false)
    } else {
        Err(2)
    }
}

/// Records the time. `Err`: where in the option the fault is.
fn record_time(option: &mut [u8], own: &Own, now: u64) -> Result<bool, usize> {
    let &mut [_, _, pointer, overflow, ..] = option else { return Err(2) };
    let Some(at) = usize::from(pointer).checked_sub(1).filter(|at| *at >= 4) else { return Err(2) };
    let (overflow, flag) = (overflow >> 4, overflow & 15);
    let time = since_midnight(now);
    let (four, eight) = (at + 4 <= option.len(), at + 8 <= option.len());
    match flag {
        0 if four => {
            put(option, at, &time);
            option[2] += 4;
        }
        1 if eight => {
            put(option, at, &own.first().octets());
            put(option, at + 4, &time);
            option[2] += 8;
        }
        0 | 1 if overflow < 15 => option[3] = (overflow + 1) << 4 | flag,
        3 if eight => {
            if !own.0.contains(&get_address(option, at)) {
                return Ok(false);
            }
            put(option, at + 4, &time);
            option[2] += 8;
        }
        _ => return Err(3),
    }
    Ok(true)
}

/// Works on the options of an IPv4 header. Whether they changed, or where in the header a fault is.
///
/// The checksum is not computed.
pub(super) fn process(header: &mut [u8], own: &Own, now: u64) -> Result<bool, u8> {
    let mut changed = false;
    let mut at = header::LENGTH;
    loop {
        let Some(rest) = header.get_mut(at..) else { return Ok(changed) };
        match rest {
            [option::NOP, ..] => at += 1,
            [] | [option::END, ..] => return Ok(changed),
            [kind, tail @ ..] => {
                let (kind, length) = (*kind, usize::from(tail.first().copied().unwrap_or(0)));
                if length < 2 || length > tail.len() + 1 {
                    return Err((at + 1) as u8);
                }
                let option = &mut rest[..length];
                let done = match kind {
                    option::RECORD => record_route(option, own),
                    option::TIMESTAMP => record_time(option, own, now),
                    _ => Ok(false),
                };
                changed |= done.map_err(|fault| (at + fault) as u8)?;
                at += length;
            }
        }
    }
}

/// Works on the options of a packet, checksum included. `Err`: where in the header a fault is.
fn apply(packet: &mut Packet, own: &Own, now: impl FnOnce() -> u64) -> Result<(), u8> {
    let Some(ip) = ip_mut(packet) else { return Ok(()) };
    let length = header::header_length(ip);
    if length <= header::LENGTH {
        return Ok(());
    }
    let Some(header) = ip.get_mut(..length) else { return Err(0) };
    let outcome = process(header, own, now());
    if outcome == Ok(true) {
        header::set_checksum(header);
    }
    outcome.map(|_| ())
}

impl Step for IpGwOptions {
    #[inline(always)]
    fn act(&self, at: At<'_>, packet: &mut Packet) -> u8 {
        match apply(packet, &self.own, || at.now()) {
            Ok(()) => 0,
            Err(fault) => {
                packet.set_anno_u8(place::ICMP_PARAMETER_PROBLEM, fault);
                1
            }
        }
    }
    #[cold]
    fn refuse(&self, at: At<'_>, packet: Packet, _: u8) {
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::Malformed);
    }
}

impl Element for IpGwOptions {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match self.act(at, &mut packet) {
            0 => Some(packet),
            verdict => {
                self.refuse(at, packet, verdict);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.sift(batch, |packet| self.act(at, packet), |packet, verdict| self.refuse(at, packet, verdict));
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}
