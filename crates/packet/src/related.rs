//! The flow that a packet belongs to, for ICMP errors and fragments too.
//!
//! Those belong to flows that their own addresses or ports do not name.

use crate::ip::{Ip, IpFacts, IpRef};
use crate::link::Link;
use crate::stack::{Header, Layer, LengthSlack, Root, Stack};
use crate::{FlowKey, Icmpv4, Icmpv6, protocol};

impl FlowKey {
    /// The flow that the packet with header `ip` belongs to; `payload` ends where the packet does.
    ///
    /// A fragment, also the first, belongs to the flow of its addresses and protocol, [without
    /// ports](Self::portless). An ICMP error belongs to the flow that it is [about](Self::quoted), and any
    /// other packet to its own.
    ///
    /// ```
    /// use netbricks_packet::FlowKey;
    /// use netbricks_packet::build::ethernet;
    ///
    /// let packet = ethernet().ipv4("192.0.2.1", "198.51.100.2").udp(53, 4_000).build()?;
    /// let quote = &packet[14..42];
    /// let error = ethernet().ipv4("203.0.113.3", "192.0.2.1").icmp_fragmentation_needed(576, quote).build()?;
    /// let (flow, related) = (FlowKey::from_frame(&packet), FlowKey::related_from_frame(&error));
    /// assert_eq!(related, flow.map(|flow| flow.reversed()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn related(ip: IpRef<'_>, payload: &[u8]) -> Self {
        let own = Self::of(ip, payload);
        if ip.is_fragment() {
            return own.portless();
        }
        Self::quoted(ip, payload).unwrap_or(own)
    }

    /// As [`related`](Self::related), of a packet in `frame`, as a parse found it.
    ///
    /// Its header, of which `facts` are known, takes the bytes `at..end`, and its payload ends at `limit`.
    #[inline]
    #[must_use]
    pub fn related_from_frame(frame: &[u8]) -> Option<Self> {
        let (header, payload) = Ip::in_frame(frame)?;
        Some(Self::related(header, payload))
    }

    /// As [`related_from_frame`](Self::related_from_frame), of a frame whose length fields may say more than its bytes.
    #[cold]
    #[must_use]
    pub fn related_from_frame_with(frame: &[u8], slack: LengthSlack) -> Option<Self> {
        let (header, payload) = Ip::in_frame_with(frame, slack)?;
        Some(Self::related(header, payload))
    }

    /// As [`related`](Self::related), of a packet in `frame`, as a parse found it.
    ///
    /// Its header, of which `facts` are known, takes the bytes `at..end`, and its payload ends at `limit`.
    ///
    /// # Panics
    /// When no such header lies there; one that a parse of this frame found always does.
    #[inline(always)]
    #[must_use]
    pub fn related_at(frame: &[u8], at: usize, end: usize, limit: usize, facts: IpFacts) -> Self {
        if let Some(own) = Self::plain_at::<ANY_FRAGMENT>(frame, at, end, limit, facts) {
            return own;
        }
        match facts {
            IpFacts::V4 => {
                let (first, second) = Self::v4_related_at_any(frame, at, end, limit);
                Self::v4(first, second)
            }
            IpFacts::V6(_) => Self::related_at_any(frame, at, end, limit, facts),
        }
    }

    #[inline(never)]
    fn v4_related_at_any(frame: &[u8], at: usize, end: usize, limit: usize) -> (u64, u64) {
        let (header, payload) = Ip::found_at(frame, at, end, limit, IpFacts::V4);
        Self::related(header, payload).v4_words()
    }

    #[inline(never)]
    fn related_at_any(frame: &[u8], at: usize, end: usize, limit: usize, facts: IpFacts) -> Self {
        // A packet with ports directly behind the header is not a fragment and not an error.
        Self::plain_v6_at(frame, at, end, limit, facts).unwrap_or_else(|| {
            let (header, payload) = Ip::found_at(frame, at, end, limit, facts);
            Self::related(header, payload)
        })
    }

    /// Only the first fragment of a packet has ports: addresses and protocol are common to all.
    #[must_use]
    pub fn portless(&self) -> Self {
        Self::new(self.source(), self.destination(), 0, 0, self.protocol())
    }

    /// Whether a packet is an ICMP error, no matter which packet it quotes. Its sender is not known.
    #[must_use]
    pub fn is_error(ip: IpRef<'_>, payload: &[u8]) -> bool {
        match ip {
            IpRef::V4(header) if header.protocol() == protocol::ICMP && !header.is_later_fragment() => {
                split::<Icmpv4>(payload).is_some_and(|(icmp, _)| icmp.is_error())
            }
            IpRef::V6(header) if header.protocol() == protocol::ICMPV6 && !header.is_later_fragment() => {
                split::<Icmpv6>(payload).is_some_and(|(icmp, _)| icmp.is_error())
            }
            _ => false,
        }
    }

    /// The flow that an ICMP error is about, in the direction in which the error travels.
    ///
    /// That is against the packet that it quotes (RFC 792; RFC 4443, section 2.4 (c)). Where it quotes a later fragment,
    /// the flow has no ports. `None` for all other packets, and where too little is quoted. `None` also for a quote of
    /// the other IP version, which no error of this one is about.
    #[must_use]
    pub fn quoted(ip: IpRef<'_>, payload: &[u8]) -> Option<Self> {
        let quoted = match ip {
            IpRef::V4(header) if header.protocol() == protocol::ICMP && !header.is_later_fragment() => {
                let (icmp, rest) = split::<Icmpv4>(payload)?;
                icmp.quoted(rest)?
            }
            IpRef::V6(header) if header.protocol() == protocol::ICMPV6 && !header.is_later_fragment() => {
                let (icmp, rest) = split::<Icmpv6>(payload)?;
                icmp.quoted(rest)?
            }
            _ => return None,
        };
        let flow = quoted.flow().reversed();
        if flow.is_v6() != matches!(ip, IpRef::V6(_)) {
            return None;
        }
        // A first fragment has its ports, so that its flow is known. Later ones go with all fragments of their addresses.
        Some(if quoted.ip().is_later_fragment() { flow.portless() } else { flow })
    }
}

impl Ip {
    /// The header in the bytes `at..end` of a frame and its payload up to `limit`, as a parse found them.
    #[inline(always)]
    pub(crate) fn found_at(
        frame: &[u8],
        at: usize,
        end: usize,
        limit: usize,
        facts: IpFacts,
    ) -> (IpRef<'_>, &[u8]) {
        (Self::view(&frame[at..end], facts), &frame[end..limit.min(frame.len())])
    }

    /// The IP header of an Ethernet frame, behind any VLAN tags, MPLS labels or PPPoE session.
    ///
    /// The second value is the bytes after it, up to the packet's end. `None` if there is no well-formed
    /// header.
    #[inline]
    #[must_use]
    pub fn in_frame(frame: &[u8]) -> Option<(IpRef<'_>, &[u8])> {
        let link = Layer::<Root, Link>::parse(Root, frame).ok()?;
        let ip = Layer::<_, Ip>::parse(link, frame).ok()?;
        let (at, facts) = ip.top();
        let header = Ip::view(frame.get(at..ip.end())?, facts);
        Some((header, frame.get(ip.end()..ip.limit(frame.len()))?))
    }

    /// As [`in_frame`](Self::in_frame), of a frame whose length fields may say more than its bytes.
    #[must_use]
    pub fn in_frame_with(frame: &[u8], slack: LengthSlack) -> Option<(IpRef<'_>, &[u8])> {
        let link = Layer::<Root, Link>::parse_with(Root, frame, slack).ok()?;
        let ip = Layer::<_, Ip>::parse_with(link, frame, slack).ok()?;
        let (at, facts) = ip.top();
        let header = Ip::view(frame.get(at..ip.end())?, facts);
        Some((header, frame.get(ip.end()..ip.limit(frame.len()))?))
    }
}

/// The bits of IPv4's flags and fragment offset (RFC 791, section 3.1) that any fragment has.
pub(crate) const ANY_FRAGMENT: u16 = 0x3fff;

/// The header at the start of `bytes`, and the bytes after it.
fn split<H: Header<Facts = ()>>(bytes: &[u8]) -> Option<(H::Ref<'_>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(H::find(bytes, 0).ok()?.len)?;
    Some((H::view(header, ()), rest))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::build::ethernet;

    #[test]
    fn an_error_that_quotes_a_first_fragment_is_about_the_flow_with_its_ports() {
        let whole = ethernet().ipv4("192.0.2.1", "198.51.100.2").udp(53, 4_000).payload(&[1; 64]);
        let whole = FlowKey::from_frame(&whole.build().unwrap()).unwrap();
        let v4 = |offset, more| {
            let packet = ethernet().ipv4("192.0.2.1", "198.51.100.2").fragment(offset, more);
            match offset {
                0 => packet.udp(53, 4_000).payload(&[1; 64]).build().unwrap(),
                _ => packet.protocol(17).payload(&[1; 64]).build().unwrap(),
            }
        };
        let about = |quote: &[u8]| {
            // As much as a router must quote: the header and eight bytes.
            let error = ethernet().ipv4("203.0.113.3", "192.0.2.1").icmp_time_exceeded(&quote[14..42]);
            FlowKey::related_from_frame(&error.build().unwrap()).unwrap()
        };
        assert_eq!(about(&v4(0, true)), whole.reversed());
        for (offset, more) in [(8, true), (16, false)] {
            assert_eq!(about(&v4(offset, more)), whole.reversed().portless());
        }
        let v6 = |offset, more| -> Vec<u8> {
            let packet = ethernet().ipv6("2001:db8::1", "2001:db8::2").fragment(offset, more, 7);
            match offset {
                0 => packet.udp(53, 4_000).payload(&[1; 64]).build().unwrap(),
                _ => packet.protocol(17).payload(&[1; 64]).build().unwrap(),
            }
        };
        let whole = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(53, 4_000).build().unwrap();
        let whole = FlowKey::from_frame(&whole).unwrap();
        let about = |quote: &[u8]| {
            let error =
                ethernet().ipv6("2001:db8::9", "2001:db8::1").icmpv6_packet_too_big(1_280, &quote[14..]);
            FlowKey::related_from_frame(&error.build().unwrap()).unwrap()
        };
        assert_eq!(about(&v6(0, true)), whole.reversed());
        assert_eq!(about(&v6(8, false)), whole.reversed().portless());
    }

    #[test]
    fn an_error_about_the_other_version_is_about_nothing() {
        let v4 = ethernet().ipv4("192.0.2.1", "198.51.100.2").udp(53, 4_000).build().unwrap();
        let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(53, 4_000).build().unwrap();
        let errors = [
            ethernet().ipv4("203.0.113.3", "192.0.2.1").icmp_time_exceeded(&v6[14..]).build().unwrap(),
            ethernet().ipv6("2001:db8::3", "2001:db8::1").icmpv6_unreachable(1, &v4[14..]).build().unwrap(),
        ];
        for error in errors {
            let (ip, payload) = Ip::in_frame(&error).unwrap();
            assert_eq!(FlowKey::quoted(ip, payload), None);
            assert!(FlowKey::is_error(ip, payload));
            assert_eq!(FlowKey::related(ip, payload), FlowKey::of(ip, payload));
            // As a lookup asks it.
            let link = Layer::<Root, Link>::parse(Root, &error).unwrap();
            let layer = Layer::<_, Ip>::parse(link, &error).unwrap();
            let ((at, facts), end) = (layer.top(), layer.end());
            let limit = layer.limit(error.len());
            assert_eq!(FlowKey::related_at(&error, at, end, limit, facts), FlowKey::of(ip, payload));
        }
    }
}
