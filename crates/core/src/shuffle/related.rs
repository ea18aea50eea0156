//! The flow that a packet goes with: its own, but for ICMP errors and fragments, which belong to flows that their own
//! addresses or ports do not name.

use netbricks_packet::stack::{Header, Layer, Root, Stack};
use netbricks_packet::{FlowKey, Icmpv4, Icmpv6, Ip, IpRef, Link, protocol};

/// The flow that decides on an Ethernet frame's bucket; `None` without a well-formed IP packet.
#[inline]
pub(super) fn flow(frame: &[u8]) -> Option<FlowKey> {
    let link = Layer::<Root, Link>::parse(Root, frame).ok()?;
    let ip = Layer::<_, Ip>::parse(link, frame).ok()?;
    let (at, facts) = ip.top();
    let header = Ip::view(frame.get(at..ip.end())?, facts);
    let payload = frame.get(ip.end()..ip.limit(frame.len()))?;
    let own = FlowKey::of(header, payload);
    if header.is_fragment() {
        return Some(portless(&own));
    }
    if matches!(header.protocol(), protocol::ICMP | protocol::ICMPV6) {
        return Some(quoted(header, payload).unwrap_or(own));
    }
    Some(own)
}

/// Only the first fragment of a packet has ports: what they all have is addresses and protocol.
pub(super) fn portless(flow: &FlowKey) -> FlowKey {
    FlowKey::new(flow.source(), flow.destination(), 0, 0, flow.protocol())
}

/// The flow that an ICMP error is about, in the direction in which the error travels: against what it quotes (RFC 792;
/// RFC 4443, section 2.4 (c)).
#[cold]
fn quoted(header: IpRef<'_>, payload: &[u8]) -> Option<FlowKey> {
    let quoted = match header {
        IpRef::V4(header) if header.protocol() == protocol::ICMP => {
            let (icmp, rest) = split::<Icmpv4>(payload)?;
            icmp.quoted(rest)?
        }
        IpRef::V6(header) if header.protocol() == protocol::ICMPV6 => {
            let (icmp, rest) = split::<Icmpv6>(payload)?;
            icmp.quoted(rest)?
        }
        _ => return None,
    };
    let flow = quoted.flow().reversed();
    Some(if quoted.ip().is_fragment() { portless(&flow) } else { flow })
}

/// The header at the start of `bytes`, and what follows it.
fn split<H: Header<Facts = ()>>(bytes: &[u8]) -> Option<(H::Ref<'_>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(H::find(bytes, 0).ok()?.len)?;
    Some((H::view(header, ()), rest))
}
