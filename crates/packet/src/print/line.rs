//! A frame in one line: `10.1.2.3:51514 > 93.184.216.34:443 TCP SYN 74 bytes`.
//!
//! Tags and tunnels are printed before their payload. An unreadable header is printed with the rule that it
//! breaks.

use core::fmt;

use super::dissect::{DissectedLayer, Dissection, Protocol, dissect};
use crate::{icmpv4, icmpv6, protocol};

/// A frame in one line, written when it is displayed.
#[derive(Clone, Debug)]
pub struct OneLine<'a> {
    dissection: Dissection<'a>,
}

/// An Ethernet frame in one line.
///
/// ```
/// use netbricks_packet::{build::ethernet, print::one_line};
///
/// let frame = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").tcp(51514, 443).syn().build()?;
/// assert_eq!(one_line(&frame).to_string(), "vlan 7 10.0.0.1:51514 > 10.0.0.2:443 TCP SYN 58 bytes");
/// # Ok::<(), netbricks_packet::build::BuildError>(())
/// ```
pub fn one_line(frame: &[u8]) -> OneLine<'_> {
    OneLine { dissection: dissect(frame) }
}

impl<'a> From<Dissection<'a>> for OneLine<'a> {
    fn from(dissection: Dissection<'a>) -> Self {
        Self { dissection }
    }
}

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dissection = &self.dissection;
        let mut layers = dissection.layers().peekable();
        while let Some(layer) = layers.next() {
            let inner = layers.peek().copied();
            match layer.protocol {
                // An address pair has no use before an IP header; a tag or a tunnel's next header is more
                // useful there.
                Protocol::Ethernet if inner.is_none() && dissection.malformed().is_none() => {
                    let [source, destination, number] =
                        ["source", "destination", "ethertype"].map(|name| layer.shown(name));
                    if let (Some(source), Some(destination), Some(number)) = (source, destination, number) {
                        let kind = if number.value <= 1500 { "802.3 length" } else { "ethertype" };
                        match kind {
                            "ethertype" => write!(f, "{source} > {destination} {kind} {number} ")?,
                            _ => write!(f, "{source} > {destination} {kind} {} ", number.value)?,
                        }
                    }
                }
                Protocol::Ethernet | Protocol::Ppp => {}
                Protocol::Vlan => named(f, "vlan", layer, "vid")?,
                Protocol::Mpls => named(f, "mpls", layer, "label")?,
                Protocol::Pppoe => named(f, "pppoe", layer, "session_id")?,
                Protocol::Gre => f.write_str("GRE ")?,
                Protocol::Vxlan => named(f, "VXLAN", layer, "vni")?,
                Protocol::Geneve => named(f, "Geneve", layer, "vni")?,
                Protocol::Gtpu => named(f, "GTP-U", layer, "teid")?,
                Protocol::Arp => arp(f, layer)?,
                Protocol::Ipv4 | Protocol::Ipv6 => ip(f, layer, inner)?,
                Protocol::Udp => f.write_str("UDP ")?,
                Protocol::Tcp => tcp(f, layer)?,
                Protocol::Icmpv4 | Protocol::Icmpv6 => icmp(f, layer)?,
            }
        }
        if let Some((at, malformed)) = dissection.malformed() {
            write!(f, "malformed at {at}: {malformed}, ")?;
        }
        write!(f, "{} bytes", dissection.frame().len())
    }
}

fn named(f: &mut fmt::Formatter<'_>, what: &str, layer: &DissectedLayer<'_>, field: &str) -> fmt::Result {
    match layer.shown(field) {
        Some(value) => write!(f, "{what} {value} "),
        None => write!(f, "{what} "),
    }
}

fn arp(f: &mut fmt::Formatter<'_>, layer: &DissectedLayer<'_>) -> fmt::Result {
    let shown = |name| layer.shown(name);
    let [sender, target] = ["sender_ip", "target_ip"].map(shown);
    let (Some(sender), Some(target)) = (sender, target) else { return f.write_str("ARP ") };
    match (layer.value("operation"), shown("sender_mac")) {
        (Some(1), _) => write!(f, "ARP who-has {target} tell {sender} "),
        (Some(2), Some(address)) => write!(f, "ARP {sender} is-at {address} "),
        (Some(operation), _) => write!(f, "ARP operation {operation} {sender} > {target} "),
        (None, _) => f.write_str("ARP "),
    }
}

/// Addresses with the ports of the header inside, and the packet's protocol if no header inside shows it.
fn ip(
    f: &mut fmt::Formatter<'_>,
    layer: &DissectedLayer<'_>,
    inner: Option<&DissectedLayer<'_>>,
) -> fmt::Result {
    let [source, destination] = ["source", "destination"].map(|name| layer.shown(name));
    let (Some(source), Some(destination)) = (source, destination) else { return Ok(()) };
    let ports = inner.and_then(|inner| Some((inner.value("source_port")?, inner.value("destination_port")?)));
    match ports {
        Some((from, to)) if layer.protocol == Protocol::Ipv6 => {
            write!(f, "[{source}]:{from} > [{destination}]:{to} ")?
        }
        Some((from, to)) => write!(f, "{source}:{from} > {destination}:{to} ")?,
        None => write!(f, "{source} > {destination} ")?,
    }
    if inner.is_none()
        && let Some(number) = layer.upper_protocol()
    {
        match protocol::name(number) {
            Some(name) => write!(f, "{name} ")?,
            None => write!(f, "protocol {number} ")?,
        }
    }
    fragment(f, layer)
}

fn fragment(f: &mut fmt::Formatter<'_>, layer: &DissectedLayer<'_>) -> fmt::Result {
    let from_table = |name| Some(layer.shown(name)?.value);
    let (offset, more, identification) = if layer.protocol == Protocol::Ipv4 {
        (from_table("fragment_offset"), layer.flag("more_fragments"), layer.shown("identification"))
    } else {
        let header = layer.parts().find(|part| part.name == "fragment");
        let value =
            |name| header.as_ref()?.fields().find(|(field, _)| field.name == name).map(|(_, shown)| shown);
        let more = value("more_fragments").is_some_and(|shown| shown.value == 1);
        (value("fragment_offset").map(|shown| shown.value), more, value("identification"))
    };
    let (Some(offset), Some(identification)) = (offset, identification) else { return Ok(()) };
    if offset == 0 && !more {
        return Ok(());
    }
    write!(
        f,
        "fragment {identification} at {}{} ",
        offset * 8,
        if more { ", more follow," } else { ", the last," }
    )
}

fn tcp(f: &mut fmt::Formatter<'_>, layer: &DissectedLayer<'_>) -> fmt::Result {
    f.write_str("TCP ")?;
    let mut before = "";
    for (field, name) in [
        ("syn", "SYN"),
        ("fin", "FIN"),
        ("rst", "RST"),
        ("psh", "PSH"),
        ("ack", "ACK"),
        ("urg", "URG"),
        ("ece", "ECE"),
        ("cwr", "CWR"),
    ] {
        if layer.flag(field) {
            write!(f, "{before}{name}")?;
            before = " ";
        }
    }
    // A quoted header may end before its flags.
    f.write_str(match before {
        "" if layer.quoted => "",
        "" => "no flags ",
        _ => " ",
    })
}

fn icmp(f: &mut fmt::Formatter<'_>, layer: &DissectedLayer<'_>) -> fmt::Result {
    let version = if layer.protocol == Protocol::Icmpv6 { "ICMPv6" } else { "ICMP" };
    let Some([message_type, code]) = layer.bytes.first_chunk::<2>() else { return write!(f, "{version} ") };
    let name = match layer.protocol {
        Protocol::Icmpv6 => icmpv6::kind::name(*message_type),
        _ => icmpv4::kind::name(*message_type),
    };
    match name {
        Some(name) => write!(f, "{version} {name} ")?,
        None => write!(f, "{version} type {message_type} ")?,
    }
    let echo = match layer.protocol {
        Protocol::Icmpv6 => matches!(message_type, 128 | 129),
        _ => matches!(message_type, 0 | 8),
    };
    if *code != 0 {
        write!(f, "code {code} ")?;
    }
    if echo && let Some([a, b, c, d]) = layer.bytes.get(4..).and_then(|rest| rest.first_chunk::<4>()) {
        write!(f, "id {} seq {} ", u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))?;
    }
    Ok(())
}
