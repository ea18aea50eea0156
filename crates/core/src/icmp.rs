//! ICMP errors, for every function that answers: one place that knows when never to answer, and how often.
//!
//! Never: to ICMP errors, to later fragments, to what was sent to many, to senders that are no single host (RFC 1122
//! §3.2.2, RFC 1812 §4.3.2.7, RFC 4443 §2.4). How often: a token bucket (RFC 1812 §4.3.2.8).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_packet::build::{BuildError, ipv4, ipv6};
use netbricks_packet::stack::{Header, Holds, Stack};
use netbricks_packet::{Ip, IpRef, Link, MacAddress};

use crate::context::Context;
use crate::reason::Edge;
use crate::view::View;

/// Bytes of an IPv4 error message (RFC 1812 §4.3.2.3).
const LARGEST_V4: usize = 576;
/// Bytes of an IPv6 error message: the minimum MTU (RFC 4443 §2.4 (c)).
const LARGEST_V6: usize = 1280;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Who answers, and how often.
#[derive(Clone, Debug)]
pub struct IcmpErrors {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    rate: u64,
    tokens: u64,
    filled: u64,
}

/// Answers that may go out at once.
const BURST: u64 = 32;

impl IcmpErrors {
    /// Answers from these addresses, at most `rate` a second with bursts of 32. A version without an address is not
    /// answered.
    pub fn new(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>, rate: u64) -> Self {
        Self { v4, v6, rate, tokens: BURST.min(rate), filled: 0 }
    }

    /// Whether it ever answers.
    #[inline(always)]
    pub fn is_silent(&self) -> bool {
        (self.v4.is_none() && self.v6.is_none()) || self.rate == 0
    }

    fn may_answer(&mut self, now: u64) -> bool {
        let step = 1_000_000_000 / self.rate.clamp(1, 1_000_000_000);
        let new = now.saturating_sub(self.filled) / step;
        if new > 0 {
            self.tokens = (self.tokens + new).min(BURST);
            self.filled = if self.tokens == BURST { now } else { self.filled + new * step };
        }
        let may = self.tokens > 0;
        self.tokens -= u64::from(may);
        may
    }

    /// Answers the packet with Time Exceeded in transit (ICMP type 11, ICMPv6 type 3, code 0) on [`Edge::REPLY`], if
    /// it may be answered. Answers whether it was.
    #[inline(always)]
    pub fn time_exceeded<S, I, J>(&mut self, packet: &mut View<'_, S>) -> bool
    where
        S: Stack + Holds<Ip, I> + Holds<Link, J>,
    {
        if self.is_silent() {
            return false;
        }
        // Numbers rather than the view: what a user function's stack knows stays in registers only as long as no
        // address of it leaves the loop.
        let (link_at, link_end, link) = Holds::<Link, J>::locate(packet.stack);
        let (ip_at, ip_end, ip) = Holds::<Ip, I>::locate(packet.stack);
        let limit = Holds::<Ip, I>::payload_end(packet.stack);
        self.answer(
            packet.data,
            packet.cx,
            packet.slot,
            Place { link_at, link_end, link, ip_at, ip_end, ip, limit },
            packet.annotations.received_at(),
        )
    }

    #[cold]
    #[inline(never)]
    fn answer(&mut self, data: &[u8], cx: &mut Context, slot: usize, place: Place, time: u64) -> bool {
        let Place { link_at, link_end, link, ip_at, ip_end, ip, limit } = place;
        let limit = limit.min(data.len());
        let ip = Ip::view(&data[ip_at..ip_end], ip);
        let link = Link::view(&data[link_at..link_end], link);
        if !is_answerable(ip, &data[ip_end..limit], link.ethernet().destination()) {
            return false;
        }
        // Behind labels or in a session the way back is not the way here.
        if link.len() != 14 + 4 * link.vlans().len() {
            return false;
        }
        let (from, to) = (self.source(ip), ip.source());
        let Some(from) = from else { return false };
        if !self.may_answer(cx.now()) {
            return false;
        }
        let quote = &data[ip_at..limit];
        let Some(mut answer) = cx.pool().allocate(link.len() + LARGEST_V6) else {
            cx.lost_without_buffer(link.len() + LARGEST_V6);
            return false;
        };
        let Some((link_room, rest)) = answer.data_mut().split_at_mut_checked(link.len()) else {
            return false;
        };
        link_room.copy_from_slice(&data[link_at..link_end]);
        link_room[..12].rotate_left(6);
        let Ok(written) = write_time_exceeded(from, to, quote, rest) else { return false };
        answer.truncate(link.len() + written);
        answer.set_received_at(time);
        cx.answer(slot, Edge::REPLY, answer)
    }

    fn source(&self, ip: IpRef<'_>) -> Option<IpAddr> {
        match ip {
            IpRef::V4(_) => self.v4.map(IpAddr::V4),
            IpRef::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// Where a packet's headers lie, and what their parse remembered.
#[derive(Clone, Copy)]
struct Place {
    link_at: usize,
    link_end: usize,
    link: <Link as Header>::Facts,
    ip_at: usize,
    ip_end: usize,
    ip: <Ip as Header>::Facts,
    limit: usize,
}

fn write_time_exceeded(from: IpAddr, to: IpAddr, quote: &[u8], room: &mut [u8]) -> Result<usize, BuildError> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let quote = &quote[..quote.len().min(LARGEST_V4 - 28)];
            ipv4(from, to).ttl(64).icmp_time_exceeded(quote).write(room)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quote = &quote[..quote.len().min(LARGEST_V6 - 48)];
            ipv6(from, to).hop_limit(64).icmpv6_time_exceeded(quote).write(room)
        }
        // `source` answers with the packet's own version.
        _ => Ok(0),
    }
}

/// Whether a packet may be answered with an error at all.
fn is_answerable(ip: IpRef<'_>, payload: &[u8], destination: MacAddress) -> bool {
    if destination.is_multicast() || ip.is_later_fragment() {
        return false;
    }
    let is_error = match ip.protocol() {
        // Everything that is not a query or an answer to one (RFC 1122 §3.2.2); a message cut short may be anything.
        ICMP => payload.first().is_none_or(|kind| !matches!(kind, 0 | 8 | 9 | 10 | 13..=18)),
        // Errors have the high bit clear; redirects count as errors here (RFC 4443 §2.4 (e.2)).
        ICMPV6 => payload.first().is_none_or(|kind| *kind < 128 || *kind == 137),
        _ => false,
    };
    !is_error && is_single_host(ip.source()) && !is_group(ip.destination())
}

fn is_single_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            !(a.is_unspecified()
                || a.is_loopback()
                || a.is_multicast()
                || a.octets()[0] >= 240
                || a.octets()[0] == 0)
        }
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_loopback() || a.is_multicast()),
    }
}

fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}
