//! ICMP errors for every function that answers: the messages, exceptions and the rate limit.
//!
//! These packets are never answered (RFC 1122 §3.2.2, RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e)):
//!
//! - ICMP errors and later fragments,
//! - IPv4 headers with a wrong checksum,
//! - multicast and broadcast, and
//! - senders that are no single host.
//!
//! The rate limit is a token bucket (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
//!
//! ```
//! use netbricks_core::icmp::{IcmpError, IcmpErrors};
//! use netbricks_core::packet::{Ip, Link};
//! use netbricks_core::view::Metadata;
//! use netbricks_core::{DropReason, Function, Input, Operator};
//!
//! /// Drops packets of more than 1,300 bytes and tells their senders.
//! fn narrow(input: Input) -> impl Function {
//!     let mut errors = IcmpErrors::new(Some([192, 0, 2, 1].into()), "2001:db8::1".parse().ok(), 100);
//!     input
//!         .parse::<Link>()
//!         .parse::<Ip>()
//!         .filter(DropReason::TooBig, |packet| packet.frame_len() <= 14 + 1_300).on_reject(move |packet| {
//!                 errors.answer(packet, IcmpError::PacketTooBig { mtu: 1_300 });
//!             })
//!         .done()
//! }
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_buffer::{Bytes, Packet};
use netbricks_packet::build::{BuildError, ipv4, ipv6};
use netbricks_packet::stack::{Header, Holds, Layer, LengthSlack, Root, Stack};
use netbricks_packet::{Ip, IpRef, Link, checksum, protocol};

use crate::context::Context;
use crate::frame_function::length_slack;
use crate::reason::Edge;
use crate::view::View;

/// The most bytes of an IPv4 error message (RFC 1812 §4.3.2.3).
const LARGEST_V4: usize = 576;
/// The most bytes of an IPv6 error message: the minimum MTU (RFC 4443 §2.4 (c)).
const LARGEST_V6: usize = 1280;

/// An ICMP error message, by the names of RFC 792 and RFC 4443.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Destination Unreachable (ICMP type 3, ICMPv6 type 1).
    DestinationUnreachable(Unreachable),
    /// Packet Too Big (ICMPv6 type 2), and in IPv4 fragmentation needed (ICMP type 3 code 4, RFC 1191).
    ///
    /// In IPv4 it is for packets that forbid fragmentation.
    PacketTooBig {
        /// The largest IP packet in bytes that the next hop takes.
        ///
        /// IPv4 has 16 bits for it: more is sent as 65,535.
        mtu: u32,
    },
    /// Time Exceeded in transit (ICMP type 11 code 0, ICMPv6 type 3 code 0).
    TimeExceeded,
    /// Parameter Problem (ICMP type 12 code 0, ICMPv6 type 4).
    ParameterProblem {
        /// The kind of error, for ICMPv6 only.
        code: ProblemCode,
        /// The offset of the error, in bytes from the beginning of the IP header.
        ///
        /// IPv4 has 8 bits for it: a packet with a larger offset is not answered.
        pointer: u32,
    },
}

/// Reasons of Destination Unreachable that both versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no route to the destination (ICMP code 0, ICMPv6 code 0).
    NoRoute,
    /// The destination does not answer on its link (ICMP code 1, ICMPv6 code 3).
    Host,
    /// Nothing listens on the port (ICMP code 3, ICMPv6 code 4).
    Port,
    /// A filter forbids the packet (ICMP code 13, ICMPv6 code 1).
    Prohibited,
}

/// Codes of ICMPv6 Parameter Problem (RFC 4443 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    /// A field has a value that it must not have (code 0).
    ErroneousField = 0,
    /// The next header is of an unknown type (code 1).
    UnrecognizedNextHeader = 1,
    /// An option of an extension header is of an unknown type (code 2).
    ///
    /// The pointer is the offset of the option's type.
    UnrecognizedOption = 2,
}

impl IcmpError {
    /// Type, code and the four bytes behind the checksum; `None` where the version has no such message.
    fn head(self, v6: bool) -> Option<(u8, u8, [u8; 4])> {
        Some(match (self, v6) {
            (Self::DestinationUnreachable(reason), false) => (3, reason.code_v4(), [0; 4]),
            (Self::DestinationUnreachable(reason), true) => (1, reason.code_v6(), [0; 4]),
            (Self::PacketTooBig { mtu }, false) => (3, 4, mtu.min(0xffff).to_be_bytes()),
            (Self::PacketTooBig { mtu }, true) => (2, 0, mtu.to_be_bytes()),
            (Self::TimeExceeded, false) => (11, 0, [0; 4]),
            (Self::TimeExceeded, true) => (3, 0, [0; 4]),
            (Self::ParameterProblem { pointer, .. }, false) => {
                (12, 0, [u8::try_from(pointer).ok()?, 0, 0, 0])
            }
            (Self::ParameterProblem { code, pointer }, true) => (4, code as u8, pointer.to_be_bytes()),
        })
    }

    /// Whether the error also answers packets to many hosts (RFC 4443 §2.4 (e.3), RFC 8200 §4.2).
    ///
    /// Path MTU discovery works for multicast. An option whose type begins with the bits 10 is reported for
    /// every destination. IPv4 has no exceptions.
    fn answers_multicast(self, v6: bool, quote: &[u8]) -> bool {
        match self {
            Self::PacketTooBig { .. } => v6,
            Self::ParameterProblem { code: ProblemCode::UnrecognizedOption, pointer } => {
                v6 && quote.get(pointer as usize).is_some_and(|option| option >> 6 == 0b10)
            }
            _ => false,
        }
    }
}

impl Unreachable {
    fn code_v4(self) -> u8 {
        match self {
            Self::NoRoute => 0,
            Self::Host => 1,
            Self::Port => 3,
            Self::Prohibited => 13,
        }
    }
    fn code_v6(self) -> u8 {
        match self {
            Self::NoRoute => 0,
            Self::Prohibited => 1,
            Self::Host => 3,
            Self::Port => 4,
        }
    }
}

/// The source addresses of errors, and their rate limit.
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
    /// Answers from these addresses, at most `rate` times a second with bursts of 32.
    ///
    /// Packets of an IP version without an address are not answered.
    pub fn new(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>, rate: u64) -> Self {
        Self { v4, v6, rate, tokens: BURST.min(rate), filled: 0 }
    }

    /// Whether it never answers.
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

    /// Sends an error about the packet to its sender on [`Edge::REPLY`], if it may be answered and the rate
    /// allows.
    ///
    /// Answers whether it was sent. Call it before the packet is changed: the error quotes the packet as it
    /// is.
    #[inline(always)]
    pub fn answer<S, I, J>(&mut self, packet: &mut View<'_, S>, error: IcmpError) -> bool
    where
        S: Stack + Holds<Ip, I> + Holds<Link, J>,
    {
        if self.is_silent() {
            return false;
        }
        // Passes numbers rather than the view: facts about the packet stay in registers only as long as no
        // address of the view leaves the loop.
        let (link_at, link_end, link) = Holds::<Link, J>::locate(packet.stack);
        let (ip_at, ip_end, ip) = Holds::<Ip, I>::locate(packet.stack);
        let limit = Holds::<Ip, I>::payload_end(packet.stack);
        self.send(
            error,
            packet.data,
            packet.cx,
            packet.slot,
            Place { link_at, link_end, link, ip_at, ip_end, ip, limit },
            packet.annotations.received_at(),
        )
    }

    /// As [`answer`](Self::answer), for a function over whole frames: about the packet in this `slot` of its batch.
    #[cold]
    pub fn answer_frame(
        &mut self,
        slot: usize,
        frame: &mut Bytes<'_>,
        error: IcmpError,
        cx: &mut Context,
    ) -> bool {
        if self.is_silent() {
            return false;
        }
        let slack = length_slack(frame);
        let (data, annotations) = frame.parts();
        let time = annotations.received_at();
        let data: &[u8] = data;
        let Ok(found) = Layer::<Root, Link>::parse_with(Root, data, slack) else { return false };
        let ((link_at, link), link_end) = (found.top(), found.end());
        let Ok(found) = Layer::<_, Ip>::parse_with(found, data, slack) else { return false };
        let ((ip_at, ip), ip_end, limit) = (found.top(), found.end(), found.limit(data.len()));
        self.send(error, data, cx, slot, Place { link_at, link_end, link, ip_at, ip_end, ip, limit }, time)
    }

    /// Whether the rate limit allows another answer at `now` (ns), which then counts.
    ///
    /// For answers that are no ICMP errors, such as resets of TCP.
    pub fn take_token(&mut self, now: u64) -> bool {
        self.rate > 0 && self.may_answer(now)
    }

    #[cold]
    #[inline(never)]
    fn send(
        &mut self,
        error: IcmpError,
        data: &[u8],
        cx: &mut Context,
        slot: usize,
        place: Place,
        time: u64,
    ) -> bool {
        match self.compose(error, data, cx, place, time) {
            Some(answer) => cx.answer(slot, Edge::REPLY, answer),
            None => false,
        }
    }

    /// Makes an error about an IP packet in `frame`, for a node that has whole packets and sends answers itself.
    ///
    /// It is addressed to the sender of the frame. `None` where the packet may not be answered, the rate is
    /// reached, or no buffer is free. Call it before the packet is changed.
    pub fn about(
        &mut self,
        frame: &[u8],
        slack: LengthSlack,
        error: IcmpError,
        cx: &mut Context,
        time: u64,
    ) -> Option<Packet> {
        let link = Layer::<Root, Link>::parse_with(Root, frame, slack).ok()?;
        let ip = Layer::<_, Ip>::parse_with(link, frame, slack).ok()?;
        let ((link_at, link_facts), (ip_at, facts)) = (link.top(), ip.top());
        let place = Place {
            link_at,
            link_end: link.end(),
            link: link_facts,
            ip_at,
            ip_end: ip.end(),
            ip: facts,
            limit: ip.limit(frame.len()),
        };
        if self.is_silent() { None } else { self.compose(error, frame, cx, place, time) }
    }

    #[cold]
    #[inline(never)]
    fn compose(
        &mut self,
        error: IcmpError,
        data: &[u8],
        cx: &mut Context,
        place: Place,
        time: u64,
    ) -> Option<Packet> {
        let Place { link_at, link_end, link, ip_at, ip_end, ip, limit } = place;
        let limit = limit.min(data.len());
        let ip = Ip::view(&data[ip_at..ip_end], ip);
        let link = Link::view(&data[link_at..link_end], link);
        let (v6, quote) = (matches!(ip, IpRef::V6(_)), &data[ip_at..limit]);
        let head = error.head(v6)?;
        // A packet that fails the validation of its header is not answered (RFC 1812 §4.3.2.7, §5.2.2).
        if !v6 && checksum::internet(&data[ip_at..ip_end]) != 0 {
            return None;
        }
        let to_many = link.ethernet().destination().is_multicast() || is_group(ip.destination());
        if to_many && !error.answers_multicast(v6, quote) || !is_answerable(ip, &data[ip_end..limit]) {
            return None;
        }
        // Behind labels or in a session the way back differs from the way here.
        if link.len() != 14 + 4 * link.vlans().len() {
            return None;
        }
        let (from, to) = (self.source(ip)?, ip.source());
        if !self.may_answer(cx.now()) {
            return None;
        }
        let Some(mut answer) = cx.pool().allocate(link.len() + LARGEST_V6) else {
            cx.lost_without_buffer(link.len() + LARGEST_V6);
            return None;
        };
        let (link_room, rest) = answer.data_mut().split_at_mut_checked(link.len())?;
        link_room.copy_from_slice(&data[link_at..link_end]);
        link_room[..12].rotate_left(6);
        let written = write(from, to, head, quote, rest).ok()?;
        answer.truncate(link.len() + written);
        answer.set_received_at(time);
        Some(answer)
    }

    fn source(&self, ip: IpRef<'_>) -> Option<IpAddr> {
        match ip {
            IpRef::V4(_) => self.v4.map(IpAddr::V4),
            IpRef::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

/// The offsets of a packet's headers, and the facts from parsing them.
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

/// Writes the IP packet of an error.
///
/// An IPv4 packet is atomic, so that its identification may be 0 (RFC 6864 §4.1). Its precedence is 6,
/// internetwork control (RFC 1812 §4.3.2.5).
fn write(
    from: IpAddr,
    to: IpAddr,
    (kind, code, rest): (u8, u8, [u8; 4]),
    quote: &[u8],
    room: &mut [u8],
) -> Result<usize, BuildError> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let quote = &quote[..quote.len().min(LARGEST_V4 - 28)];
            let packet = ipv4(from, to).ttl(64).dscp(CLASS_SELECTOR_6).dont_fragment();
            packet.icmp(kind, code, rest).payload(quote).write(room)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quote = &quote[..quote.len().min(LARGEST_V6 - 48)];
            ipv6(from, to).hop_limit(64).icmpv6(kind, code, rest).payload(quote).write(room)
        }
        // Not reached: `source` answers with the packet's own version.
        _ => Ok(0),
    }
}

/// Precedence 6 as a differentiated services code point (RFC 2474 §4.2.2.2).
const CLASS_SELECTOR_6: u8 = 48;

/// Whether a packet may be answered with an error at all; the caller looks at its destination.
fn is_answerable(ip: IpRef<'_>, payload: &[u8]) -> bool {
    if ip.is_later_fragment() {
        return false;
    }
    let is_error = match ip.protocol() {
        // Everything that is not a query or an answer to one (RFC 1122 §3.2.2); a truncated message may be
        // anything.
        protocol::ICMP => payload.first().is_none_or(|kind| !matches!(kind, 0 | 8 | 9 | 10 | 13..=18)),
        // Errors have the high bit clear; redirects count as errors here (RFC 4443 §2.4 (e.2)).
        protocol::ICMPV6 => payload.first().is_none_or(|kind| *kind < 128 || *kind == 137),
        _ => false,
    };
    !is_error && is_single_host(ip.source())
}

/// Whether an address is that of one host, to which an answer may go.
#[must_use]
pub fn is_single_host(address: IpAddr) -> bool {
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

/// Whether an address is that of many hosts.
#[must_use]
pub fn is_group(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast(),
    }
}
