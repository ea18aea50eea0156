//! Frames from packets that are described by the values of their fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::field::{Covered, Field, Show};
use netbricks_core::packet::stack::LengthSlack;

use crate::compile::as_number;
use crate::field::{FieldId, Kind, Layer};
use crate::key::Located;
use crate::rule::{Atom, DescribedPacket};

/// The frame of a described packet.
///
/// Fields that are not described have usual values: a time to live of 64, no flags.
///
/// # Errors
/// A sentence, where no such packet can be made. Its caller looks whether the frame has all fields as described.
pub(crate) fn frame(packet: &DescribedPacket) -> Result<Vec<u8>, String> {
    let fields = match packet {
        DescribedPacket::Frame(bytes) => return Ok(bytes.clone()),
        DescribedPacket::Fields(fields) => fields,
    };
    let layers = fields.iter().fold(0, |layers, (field, value)| layers | layers_of(*field, value));
    let has = |layer: Layer| layers & layer.bit() != 0;
    let mut frame = base(fields, &has)?;
    let located = Located::find(&frame, LengthSlack::default());
    for (field, value) in fields {
        let info = field.info();
        let (bit, bits, number) = match (info.kind, as_number(value)) {
            (Kind::Bits { bit, bits }, Some(number)) => (bit, bits, number),
            (Kind::Code { bit, bits, value }, Some(1)) => (bit, bits, value.into()),
            _ => continue,
        };
        let Some(at) = located.at(info.layer) else {
            return Err(format!(
                "`{}` is of {}, which the packet does not have",
                info.name,
                info.layer.name()
            ));
        };
        let field = Field { name: "", bit, bits, covered: Covered::No, show: Show::Hex };
        let header = frame.get_mut(at..).unwrap_or_default();
        field.write(header, number).ok_or_else(|| format!("`{}` lies behind the packet's end", info.name))?;
    }
    Ok(frame)
}

/// The layers of a packet with this field, as bits.
fn layers_of(field: FieldId, value: &Atom) -> u32 {
    let info = field.info();
    let network = match (info.kind, as_number(value)) {
        (Kind::NetworkProtocol, Some(0x0800)) => Layer::Ipv4.bit(),
        (Kind::NetworkProtocol, Some(0x86dd)) => Layer::Ipv6.bit(),
        (Kind::NetworkProtocol, Some(0x0806)) => Layer::Arp.bit(),
        _ => 0,
    };
    info.layer.implied() | network
}

/// A packet with the layers that are described, and their payload and options.
fn base(fields: &[(FieldId, Atom)], has: &dyn Fn(Layer) -> bool) -> Result<Vec<u8>, String> {
    let wrong = |error: netbricks_core::packet::build::BuildError| error.to_string();
    let payload = payload(fields);
    if has(Layer::Arp) {
        let (none, tagged) = (Ipv4Addr::UNSPECIFIED, link(has)?);
        return tagged.arp_request(none, none).map_err(wrong);
    }
    let is_v6 = has(Layer::Ipv6);
    let is_v4 = has(Layer::Ipv4);
    let transports = [Layer::Tcp, Layer::Udp, Layer::Icmp, Layer::Icmpv6, Layer::Gre];
    let transport = transports.into_iter().find(|layer| has(*layer));
    if !is_v4 && !is_v6 && transport.is_none() && !has(Layer::Mpls) && !has(Layer::Pppoe) {
        return link(has)?.with_payload(&payload).map_err(wrong);
    }
    let source: IpAddr = if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::new(192, 0, 2, 1).into() };
    let destination: IpAddr =
        if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::new(192, 0, 2, 2).into() };
    let mut segment = match transport {
        Some(Layer::Tcp) => tcp(fields)?,
        Some(Layer::Udp) => {
            let len = (8 + payload.len()).min(0xffff) as u16;
            let port = if has(Layer::Vxlan) {
                4789
            } else if has(Layer::Geneve) {
                6081
            } else if has(Layer::Gtpu) {
                2152
            } else {
                0u16
            };
            let mut header = vec![0, 0];
            header.extend(port.to_be_bytes());
            header.extend(len.to_be_bytes());
            header.extend([0, 0]);
            header
        }
        Some(Layer::Icmp) => {
            let (kind, code) = if has(Layer::IcmpMtu) { (3, 4) } else { (8, 0) };
            vec![kind, code, 0, 0, 0, 0, 0, 0]
        }
        Some(Layer::Icmpv6) => vec![if has(Layer::Icmpv6Mtu) { 2 } else { 128 }, 0, 0, 0, 0, 0, 0, 0],
        Some(Layer::Gre) => vec![0, 0, 8, 0],
        _ => Vec::new(),
    };
    segment.extend(&payload);
    let number = match transport {
        Some(Layer::Tcp) => 6,
        Some(Layer::Udp) => 17,
        Some(Layer::Icmp) => 1,
        Some(Layer::Icmpv6) => 58,
        Some(Layer::Gre) => 47,
        _ => protocol(fields),
    };
    let mut bytes =
        link(has)?.with_ip(source, destination, number, &segment, &extensions(fields, has)).map_err(wrong)?;
    // Fields are written into it next, so that its checksums are whatever they are described as.
    bytes.shrink_to_fit();
    Ok(bytes)
}

fn protocol(fields: &[(FieldId, Atom)]) -> u8 {
    let of = |(field, value): &(FieldId, Atom)| match field.info().name.as_str() {
        "ip-proto" | "ip6-next" => as_number(value).map(|number| number as u8),
        _ => None,
    };
    // 59: no next header (RFC 8200, section 4.7).
    fields.iter().find_map(of).unwrap_or(59)
}

fn payload(fields: &[(FieldId, Atom)]) -> Vec<u8> {
    let of = |(field, value): &(FieldId, Atom)| match (field.info().kind, value) {
        (Kind::Payload, Atom::Bytes(bytes)) => Some(bytes.clone()),
        _ => None,
    };
    let bytes = fields.iter().find_map(of).unwrap_or_default();
    // Room for a tunnel's header.
    let tunnels = [Layer::Vxlan, Layer::Geneve, Layer::Gtpu];
    let tunnel = fields.iter().any(|(field, _)| tunnels.contains(&field.info().layer));
    if tunnel && bytes.len() < 8 { vec![0; 8] } else { bytes }
}

/// A TCP header with the described options.
fn tcp(fields: &[(FieldId, Atom)]) -> Result<Vec<u8>, String> {
    let mut options = Vec::new();
    for (field, value) in fields {
        let (kind, data) = match (field.info().kind, value) {
            (Kind::NumberOption { kind, bits }, value) => {
                let number = as_number(value).ok_or("an option's value must be a number")?;
                let mut data = number.to_be_bytes()[16 - usize::from(bits / 8)..].to_vec();
                data.resize(if bits == 32 { 8 } else { data.len() }, 0);
                (kind, data)
            }
            (Kind::BytesOption { kind }, Atom::Bytes(bytes)) => (kind, bytes.clone()),
            (Kind::AnyOption, Atom::Number(kind)) => (*kind as u8, Vec::new()),
            _ => continue,
        };
        options.extend([kind, (data.len() + 2) as u8]);
        options.extend(data);
    }
    options.resize(options.len().next_multiple_of(4), 0);
    if options.len() > 40 {
        return Err(format!("the options have {} bytes: 40 are the most", options.len()));
    }
    let mut header = vec![0u8; 20];
    header[12] = (((20 + options.len()) / 4) << 4) as u8;
    header[14..16].copy_from_slice(&[0xff, 0xff]);
    header.extend(options);
    Ok(header)
}

/// The link header with the described tags and labels.
fn link(has: &dyn Fn(Layer) -> bool) -> Result<Tagged, String> {
    let link = ethernet();
    let tags = usize::from(has(Layer::Vlan)) + usize::from(has(Layer::InnerVlan));
    match (tags, has(Layer::Mpls), has(Layer::Pppoe)) {
        (_, true, true) => Err("MPLS and PPPoE in one packet: describe it by `hex` and its bytes".into()),
        (0, false, false) => Ok(Tagged::None(link)),
        (0, true, _) => Ok(Tagged::Labelled(link.mpls(16))),
        (0, _, true) => Ok(Tagged::Session(link.pppoe(1))),
        (1, true, _) => Ok(Tagged::Labelled(link.vlan(1).mpls(16))),
        (1, _, true) => Ok(Tagged::Session(link.vlan(1).pppoe(1))),
        (1, ..) => Ok(Tagged::Vlan(link.vlan(1))),
        (_, true, _) => Ok(Tagged::Labelled(link.qinq(1, 1).mpls(16))),
        (_, _, true) => Ok(Tagged::Session(link.qinq(1, 1).pppoe(1))),
        _ => Ok(Tagged::Vlan(link.qinq(1, 1))),
    }
}

/// An extension header of IPv6 that a described packet has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    HopByHop,
    Destination,
    Routing,
    Segments,
}

/// The described extension headers, in the order of RFC 8200, section 4.1.
///
/// Others are found to be missing later.
fn extensions(fields: &[(FieldId, Atom)], has: &dyn Fn(Layer) -> bool) -> Vec<Extension> {
    let asks = |number: u8| {
        let of = |(field, value): &(FieldId, Atom)| {
            field.info().kind == Kind::ExtensionHeader(number) && as_number(value) == Some(1)
        };
        fields.iter().any(of)
    };
    let routing = if has(Layer::Srv6) { Extension::Segments } else { Extension::Routing };
    let known = [
        (asks(0), Extension::HopByHop),
        (asks(60), Extension::Destination),
        (asks(43) || has(Layer::Srv6), routing),
    ];
    known.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, extension)| extension).collect()
}

type Linked<L> = netbricks_core::packet::build::Builder<'static, L>;

/// A link header with its tags and labels.
enum Tagged {
    None(Linked<netbricks_core::packet::Ethernet>),
    Vlan(Linked<netbricks_core::packet::Vlan>),
    Labelled(Linked<netbricks_core::packet::Mpls>),
    Session(Linked<netbricks_core::packet::Ppp>),
}

type Built = Result<Vec<u8>, netbricks_core::packet::build::BuildError>;

impl Tagged {
    fn with_payload(self, payload: &[u8]) -> Built {
        match self {
            Self::None(link) => link.payload(payload).build(),
            Self::Vlan(link) => link.payload(payload).build(),
            Self::Labelled(link) => link.payload(payload).build(),
            Self::Session(link) => link.payload(payload).build(),
        }
    }
    fn arp_request(self, source: Ipv4Addr, destination: Ipv4Addr) -> Built {
        match self {
            Self::Vlan(link) => link.arp_request(source, destination).build(),
            // ARP is behind no label and in no session.
            _ => ethernet().arp_request(source, destination).build(),
        }
    }
    fn with_ip(
        self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        payload: &[u8],
        extensions: &[Extension],
    ) -> Built {
        macro_rules! over {
            ($link:expr) => {
                match (source, destination) {
                    (IpAddr::V4(source), IpAddr::V4(destination)) => {
                        $link.ipv4(source, destination).protocol(protocol).payload(payload).build()
                    }
                    (IpAddr::V6(source), IpAddr::V6(destination)) => {
                        let mut ip = $link.ipv6(source, destination);
                        for extension in extensions {
                            ip = match extension {
                                Extension::HopByHop => ip.hop_by_hop(&[]),
                                Extension::Destination => ip.destination_options(&[]),
                                Extension::Routing => ip.routing(0, 0, &[]),
                                Extension::Segments => ip.segment_routing(&[destination]),
                            };
                        }
                        ip.protocol(protocol).payload(payload).build()
                    }
                    _ => $link.payload(payload).build(),
                }
            };
        }
        match self {
            Self::None(link) => over!(link),
            Self::Vlan(link) => over!(link),
            Self::Labelled(link) => over!(link),
            Self::Session(link) => over!(link),
        }
    }
}
