//! Single fields of IPv4 headers: `DecIPTTL`, `SetIPDSCP`, `SetIPECN`, `MarkIPCE`; and `DropBroadcasts`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::fuse::Step;
use super::header::{Ip, get16, ip_mut, replace16};
use super::pass;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::packet::{Annotated, Kind};
use crate::router::{At, Setup};
use crate::value::Raw;

pub(super) const CLASSES: &[Class] = &[
    Class::new("DecIPTTL", dec_ip_ttl).ports("1/1-2").processing("a/ah"),
    Class::new("SetIPDSCP", set_ip_dscp).live(),
    Class::new("SetIPECN", set_ip_ecn).live(),
    Class::new("SetECN", set_ip_ecn).live(),
    Class::new("MarkIPCE", mark_ip_ce),
    Class::new("DropBroadcasts", drop_broadcasts).ports("1/1-2").processing("a/ah"),
];

/// `DecIPTTL([ACTIVE, MULTICAST])`: takes one from the time to live; packets without any go to output 1.
pub(super) struct DecIpTtl {
    active: Cell<bool>,
    multicast: bool,
    drops: Cell<u64>,
}

fn dec_ip_ttl(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let active = arguments.keyword("ACTIVE").unwrap_or(true);
    let multicast = arguments.keyword("MULTICAST").unwrap_or(true);
    arguments.complete()?;
    Some(Rc::new(DecIpTtl { active: Cell::new(active), multicast, drops: Cell::default() }))
}

/// Takes one from a header's time to live. `false`: there is none left.
pub(super) fn decrement_ttl(ip: &mut [u8]) -> bool {
    if Ip(ip).ttl() <= 1 {
        return false;
    }
    let word = get16(ip, 8) - 0x100;
    replace16(ip, 8, word);
    true
}

/// Verdicts on packets that do not pass.
const MALFORMED: u8 = 1;
const EXPIRED: u8 = 2;

impl DecIpTtl {
    /// Takes one from the time to live. 0 if the packet passes, else why not.
    #[inline]
    fn decrement(&self, packet: &mut Packet) -> u8 {
        if !self.active.get() {
            return 0;
        }
        let Some(ip) = ip_mut(packet) else { return MALFORMED };
        let passes = !self.multicast && Ip(ip).destination().is_multicast() || decrement_ttl(ip);
        if passes { 0 } else { EXPIRED }
    }
}

impl Step for DecIpTtl {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        self.decrement(packet)
    }
    #[cold]
    fn refuse(&self, at: At<'_>, packet: Packet, verdict: u8) {
        if verdict == MALFORMED {
            at.push_or_drop(1, packet, DropReason::Malformed);
            return;
        }
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::TtlExpired);
    }
}

impl Element for DecIpTtl {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match self.decrement(&mut packet) {
            0 => Some(packet),
            verdict => {
                self.refuse(at, packet, verdict);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.sift(batch, |packet| self.decrement(packet), |packet, verdict| self.refuse(at, packet, verdict));
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
        handlers.flag("active", |this: &Self| &this.active);
    }
}

/// Sets the bits of the type of service that `mask` has.
fn set_tos(packet: &mut Packet, mask: u8, value: u8) {
    if let Some(ip) = ip_mut(packet) {
        let word = get16(ip, 0) & !u16::from(mask) | u16::from(value & mask);
        replace16(ip, 0, word);
    }
}

/// `SetIPDSCP(DSCP)`: sets the differentiated services code point.
struct SetIpDscp {
    bits: Cell<u8>,
}

const DSCP: u8 = 0xFC;
const ECN: u8 = 0x03;

fn set_ip_dscp(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let point: Option<u32> = arguments.required("DSCP");
    arguments.complete()?;
    let point = point?;
    if point > 0x3F {
        arguments.error("diffserv code point out of range");
        return None;
    }
    Some(Rc::new(SetIpDscp { bits: Cell::new((point as u8) << 2) }))
}

impl Element for SetIpDscp {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        set_tos(&mut packet, DSCP, self.bits.get());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| set_tos(packet, DSCP, self.bits.get()));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.argument("dscp", Some(0), "DSCP").calm = true;
        handlers.change_argument("dscp", Some(0), "DSCP");
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.bits.set(fresh.bits.get())).is_some()
    }
}

/// `SetIPECN(ECN)` and `SetECN(ECN)`: set the explicit congestion notification bits.
///
/// `ECN` is a number from 0 to 3, or `no` (`-`), `ect1` (`ECT(1)`), `ect2` (`ECT(0)`), `ce` (`CE`).
struct SetIpEcn {
    bits: Cell<u8>,
}

fn set_ip_ecn(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let text: Option<Raw> = arguments.required("ECN");
    arguments.complete()?;
    let bits = match &text?.0[..] {
        "0" | "no" | "-" => 0,
        "1" | "ect1" | "ECT(1)" => 1,
        "2" | "ect2" | "ECT(0)" => 2,
        "3" | "ce" | "CE" => 3,
        _ => {
            arguments.error("bad ECN argument");
            return None;
        }
    };
    Some(Rc::new(SetIpEcn { bits: Cell::new(bits) }))
}

impl Element for SetIpEcn {
    fn action(&self, _: At<'_>, mut packet: Packet) -> Option<Packet> {
        set_tos(&mut packet, ECN, self.bits.get());
        Some(packet)
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        batch.each_packet(|_, packet| set_tos(packet, ECN, self.bits.get()));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.argument("ecn", Some(0), "ECN").calm = true;
        handlers.change_argument("ecn", Some(0), "ECN");
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        as_type::<Self>(fresh).map(|fresh| self.bits.set(fresh.bits.get())).is_some()
    }
}

/// `MarkIPCE([FORCE])`: says that congestion was met, and drops packets of flows that cannot be told so.
struct MarkIpCe {
    force: bool,
    drops: Cell<u64>,
}

fn mark_ip_ce(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let force = arguments.positional("FORCE").unwrap_or(false);
    arguments.complete()?;
    Some(Rc::new(MarkIpCe { force, drops: Cell::default() }))
}

impl Element for MarkIpCe {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        match Ip::of(&packet).map(|ip| ip.tos() & ECN) {
            Some(ECN) => Some(packet),
            Some(bits) if bits != 0 || self.force => {
                set_tos(&mut packet, ECN, ECN);
                Some(packet)
            }
            _ => {
                self.drops.set(self.drops.get() + 1);
                at.drop_packet(packet, DropReason::Denied);
                None
            }
        }
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        pass(self, at, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}

/// `DropBroadcasts`: packets that the link layer addressed to a group go to output 1, or are dropped.
pub(super) struct DropBroadcasts {
    drops: Cell<u64>,
}

fn drop_broadcasts(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(DropBroadcasts { drops: Cell::default() }))
}

/// Whether the link layer addressed a packet to a group.
pub(super) fn is_for_group(packet: &Packet) -> bool {
    matches!(packet.kind(), Kind::Broadcast | Kind::Multicast)
}

impl Step for DropBroadcasts {
    #[inline(always)]
    fn act(&self, _: At<'_>, packet: &mut Packet) -> u8 {
        is_for_group(packet).into()
    }
    #[cold]
    fn refuse(&self, at: At<'_>, packet: Packet, _: u8) {
        if self.drops.get() == 0 {
            at.complain(|| "DropBroadcasts: dropped a packet".into());
        }
        self.drops.set(self.drops.get() + 1);
        at.push_or_drop(1, packet, DropReason::Denied);
    }
}

impl Element for DropBroadcasts {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        if !is_for_group(&packet) {
            return Some(packet);
        }
        self.refuse(at, packet, 1);
        None
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        at.sift(batch, |packet| self.act(at, packet), |packet, verdict| self.refuse(at, packet, verdict));
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}
