//! Fields of a packet, as text or in a binary record.

use netbricks_core::buffer::Packet;

use super::field::{Column, Field, Form, has_icmp_flow, icmp_code_name, icmp_type_name};
use super::options::{Choice, write_ip, write_ip_binary, write_tcp, write_tcp_binary};
use super::{first_timestamp, md5, write_signed_time};
use crate::language::text;
use crate::packet::{Annotated, place};

/// A layer whose header a field needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Ethernet,
    Ip,
    Tcp,
    Udp,
    Icmp,
    TcpOrUdp,
}

/// A field's value.
pub(super) enum Value<'p> {
    Number(u64),
    /// Nanoseconds since 1970.
    Time(i64),
    Ethernet([u8; 6]),
    Bytes(&'p [u8]),
}

/// A packet whose headers were looked at.
pub(super) struct View<'p> {
    packet: &'p Packet,
    /// Bytes behind the IP packet's end.
    padding: usize,
    /// From the IP header on, without padding; empty where the header is not right.
    ip: &'p [u8],
    /// From the transport header on, without padding.
    transport: &'p [u8],
    /// The protocol of the transport header, if it is there and right.
    protocol: Option<u8>,
    counts_missing: bool,
    /// The first fault.
    pub(super) fault: Option<String>,
}

/// How a packet's headers are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Packets whose data are shorter than their headers say have a fault.
    pub(super) careful: bool,
    /// Lengths count bytes that were on the wire only.
    pub(super) counts_missing: bool,
    /// IP headers are looked at.
    pub(super) at_ip: bool,
}

fn number16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
}
fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

/// Verdict on an IP header.
enum Header {
    Right { length: usize },
    Wrong(String),
}

fn check_ip(bytes: &[u8]) -> Header {
    if bytes.len() < 4 {
        return Header::Wrong("truncated IP header".into());
    }
    let (version, words, length) = (bytes[0] >> 4, bytes[0] & 15, usize::from(number16(bytes, 2)));
    if version != 4 {
        Header::Wrong(format!("IP version {version}"))
    } else if words < 5 {
        Header::Wrong(format!("IP header length {words}"))
    } else if length < usize::from(words) * 4 {
        Header::Wrong(format!("IP length {length}"))
    } else {
        Header::Right { length }
    }
}

impl<'p> View<'p> {
    /// Looks at a packet's headers, and sets the annotation of its missing bytes by them.
    pub(super) fn new(packet: &'p mut Packet, look: Look) -> Self {
        let mut fault = None;
        let mut padding = 0;
        let mut is_ip = false;
        if look.at_ip
            && let Some(bytes) = packet.network()
        {
            let had = bytes.len();
            match check_ip(bytes) {
                Header::Wrong(what) => fault = Some(what),
                Header::Right { length } => {
                    is_ip = true;
                    let mut missing = packet.anno_u32(place::EXTRA_LENGTH);
                    if had > length {
                        padding = had - length;
                        missing = missing.wrapping_add(padding as u32);
                    } else if look.careful && had as u64 + u64::from(missing) < length as u64 {
                        fault = Some(format!("truncated IP missing {}", length - had - missing as usize));
                    }
                    if missing > 0 {
                        let full = (had - padding) as u64 + u64::from(missing);
                        let beyond = if length == 0xFFFF { full.saturating_sub(0xFFFF) } else { 0 };
                        packet.set_anno_u32(place::EXTRA_LENGTH, beyond as u32);
                    }
                }
            }
        }
        let packet: &Packet = packet;
        let without_padding = |bytes: &'p [u8]| &bytes[..bytes.len().saturating_sub(padding)];
        let ip = packet.network().filter(|_| is_ip).map(without_padding).unwrap_or_default();
        let transport = packet.transport().map(without_padding).unwrap_or_default();
        let mut view = Self {
            packet,
            padding,
            ip,
            transport,
            protocol: None,
            counts_missing: look.counts_missing,
            fault,
        };
        if ip.len() > view.header_length() && view.is_first_fragment() && is_ip {
            view.protocol = Some(ip[9]);
            if ip[9] == 6 && transport.len() > 12 && transport[12] >> 4 < 5 {
                view.fault.get_or_insert_with(|| format!("TCP header length {}", transport[12] >> 4));
                view.protocol = None;
            }
        }
        view
    }

    fn is_ip(&self) -> bool {
        !self.ip.is_empty()
    }
    fn header_length(&self) -> usize {
        self.ip.first().map_or(0, |first| usize::from(first & 15) * 4)
    }
    fn is_first_fragment(&self) -> bool {
        number16(self.ip, 6) & 0x1FFF == 0
    }
    fn length(&self) -> usize {
        self.packet.len().saturating_sub(self.padding)
    }
    fn missing_bytes(&self) -> u64 {
        if self.counts_missing { u64::from(self.packet.anno_u32(place::EXTRA_LENGTH)) } else { 0 }
    }

    /// Notes that a header is not there as far as a field needs it.
    fn lacks<T>(&mut self, layer: Layer, needed: usize) -> Option<T> {
        if self.fault.is_some() {
            return None;
        }
        let (name, protocols): (&str, &[u8]) = match layer {
            Layer::Ethernet => {
                self.fault = Some("Ethernet header".into());
                return None;
            }
            Layer::Ip => ("IP", &[]),
            Layer::Tcp => ("TCP", &[6]),
            Layer::Udp => ("UDP", &[17]),
            Layer::Icmp => ("ICMP", &[1]),
            Layer::TcpOrUdp => ("TCP/UDP", &[6, 17]),
        };
        let fault = if !self.is_ip() {
            "no IP header".into()
        } else if layer == Layer::Ip {
            "truncated IP header capture".into()
        } else if self.ip.get(9).is_some_and(|protocol| !protocols.contains(protocol)) {
            // Another protocol is no fault.
            return None;
        } else if !self.is_first_fragment() {
            format!("fragmented {name} header")
        } else if self.transport.len() + self.packet.anno_u32(place::EXTRA_LENGTH) as usize >= needed {
            format!("truncated {name} header capture")
        } else {
            format!("truncated {name} header")
        };
        self.fault = Some(fault);
        None
    }

    /// The value of a field, if the packet has it.
    pub(super) fn value(&mut self, field: Field) -> Option<Value<'p>> {
        self.annotation(field)
            .or_else(|| self.ethernet(field))
            .or_else(|| self.ip(field))
            .or_else(|| self.transport(field))
            .or_else(|| self.icmp(field))
            .or_else(|| self.payload(field))
    }

    fn annotation(&self, field: Field) -> Option<Value<'p>> {
        let packet = self.packet;
        let time = packet.timestamp() as i64;
        let number = |number: u64| Some(Value::Number(number));
        match field {
            Field::Timestamp | Field::TimestampNanoseconds => Some(Value::Time(time)),
            Field::Seconds => number(u64::from(time.div_euclid(1_000_000_000) as u32)),
            Field::Microseconds => number(time.rem_euclid(1_000_000_000) as u64 / 1000),
            Field::AllMicroseconds => number(time.div_euclid(1000) as u64),
            Field::FirstTimestamp | Field::FirstTimestampNanoseconds => {
                Some(Value::Time(first_timestamp(packet)))
            }
            Field::Count => number(u64::from(packet.anno_u32(place::EXTRA_PACKETS).wrapping_add(1))),
            Field::Link | Field::Direction => number(u64::from(packet.paint())),
            Field::Aggregate => number(u64::from(packet.anno_u32(place::AGGREGATE))),
            Field::WireLength => number(packet.len() as u64),
            _ => None,
        }
    }

    fn ethernet(&mut self, field: Field) -> Option<Value<'p>> {
        if !matches!(field, Field::EthernetSource | Field::EthernetDestination | Field::EthernetType) {
            return None;
        }
        let network = self.packet.network_place();
        let mac = match self.packet.mac_place() {
            Some(mac) => Some(mac),
            None if network.is_none_or(|network| network >= 0) => Some(0),
            None => None,
        };
        let network = network.unwrap_or(self.packet.len() as isize);
        let header = mac
            .filter(|mac| mac + 14 == network)
            .and_then(|mac| usize::try_from(mac).ok())
            .and_then(|mac| self.packet.data().get(mac..mac + 14));
        let Some(header) = header else { return self.lacks(Layer::Ethernet, 0) };
        let address = |at: usize| {
            let mut address = [0; 6];
            address.copy_from_slice(&header[at..at + 6]);
            Some(Value::Ethernet(address))
        };
        match field {
            Field::EthernetSource => address(6),
            Field::EthernetDestination => address(0),
            _ => Some(Value::Number(u64::from(number16(header, 12)))),
        }
    }

    fn ip(&mut self, field: Field) -> Option<Value<'p>> {
        let ip = self.ip;
        let total = u64::from(number16(ip, 2));
        let needed = match field {
            Field::IpSource => 16,
            Field::IpDestination => 20,
            Field::IpTos | Field::IpDscp | Field::IpEcn => 2,
            Field::IpTtl => 9,
            Field::IpFragment | Field::IpFragmentOffset => 8,
            Field::IpId => 6,
            Field::IpChecksum => 12,
            Field::IpProtocol => 10,
            Field::IpHeaderLength => 1,
            Field::IpOptions if self.is_ip() => match self.header_length() {
                0..=20 => 0,
                length => length,
            },
            Field::IpOptions => 1,
            Field::IpLength => {
                let length = if self.is_ip() { total } else { self.length() as u64 };
                return Some(Value::Number(length + self.missing_bytes()));
            }
            Field::IpCaptureLength => {
                let length = if self.is_ip() { total.min(ip.len() as u64) } else { self.length() as u64 };
                return Some(Value::Number(length));
            }
            _ => return None,
        };
        if ip.len() < needed {
            return self.lacks(Layer::Ip, needed);
        }
        let offset = number16(ip, 6);
        let number = match field {
            Field::IpSource => number32(ip, 12),
            Field::IpDestination => number32(ip, 16),
            Field::IpTos => u32::from(ip[1]),
            Field::IpDscp => u32::from(ip[1] >> 2),
            Field::IpEcn => u32::from(ip[1] & 3),
            Field::IpTtl => u32::from(ip[8]),
            Field::IpFragment => u32::from(match (offset & 0x3FFF, offset & 0x1FFF) {
                (0, _) if offset & 0x4000 != 0 => b'!',
                (0, _) => b'.',
                (_, 0) => b'F',
                _ => b'f',
            }),
            Field::IpFragmentOffset => u32::from(offset),
            Field::IpId => u32::from(number16(ip, 4)),
            Field::IpChecksum => u32::from(number16(ip, 10)),
            Field::IpProtocol => u32::from(ip[9]),
            Field::IpHeaderLength => u32::from(ip[0] & 15) * 4,
            _ => return Some(Value::Bytes(ip.get(20..needed).unwrap_or_default())),
        };
        Some(Value::Number(u64::from(number)))
    }

    fn transport(&mut self, field: Field) -> Option<Value<'p>> {
        let transport = self.transport;
        let (layer, needed) = match field {
            Field::SourcePort => (Layer::TcpOrUdp, 2),
            Field::DestinationPort => (Layer::TcpOrUdp, 4),
            Field::TcpSequence => (Layer::Tcp, 8),
            Field::TcpAcknowledgement => (Layer::Tcp, 12),
            Field::TcpFlags => (Layer::Tcp, 14),
            Field::TcpHeaderLength => (Layer::Tcp, 13),
            Field::TcpWindow => (Layer::Tcp, 16),
            Field::TcpUrgent => (Layer::Tcp, 20),
            Field::TcpOptions | Field::TcpOptionsWithoutTime | Field::TcpSack => {
                return self.tcp_options(field);
            }
            Field::UdpLength => (Layer::Udp, 6),
            _ => return None,
        };
        // Ports are those of the packet's protocol even if its header has another fault.
        let protocol = match layer {
            Layer::TcpOrUdp if self.ip.len() > self.header_length() && self.is_first_fragment() => {
                self.ip.get(9).copied()
            }
            _ => self.protocol,
        };
        let fits = match layer {
            Layer::Tcp => protocol == Some(6),
            Layer::Udp => protocol == Some(17),
            _ => matches!(protocol, Some(6 | 17 | 33 | 136)),
        };
        if !fits || transport.len() < needed {
            return self.lacks(layer, needed);
        }
        let number = match field {
            Field::SourcePort => u32::from(number16(transport, 0)),
            Field::DestinationPort => u32::from(number16(transport, 2)),
            Field::TcpSequence => number32(transport, 4),
            Field::TcpAcknowledgement => number32(transport, 8),
            Field::TcpFlags => u32::from(number16(transport, 12) & 0x1FF),
            Field::TcpHeaderLength => u32::from(transport[12] >> 4) * 4,
            Field::TcpWindow => u32::from(number16(transport, 14)),
            Field::TcpUrgent => u32::from(number16(transport, 18)),
            _ => u32::from(number16(transport, 4)),
        };
        Some(Value::Number(u64::from(number)))
    }

    fn tcp_options(&mut self, field: Field) -> Option<Value<'p>> {
        let transport = self.transport;
        if self.protocol != Some(6) || transport.len() < 13 {
            return self.lacks(Layer::Tcp, transport.len() + 1);
        }
        let length = usize::from(transport[12] >> 4) * 4;
        let only_time = field != Field::TcpOptions
            && length == 32
            && transport.get(20..24).is_some_and(|begin| begin == [1, 1, 8, 10]);
        if length <= 20 || only_time {
            return Some(Value::Bytes(&[]));
        }
        match transport.get(20..length) {
            Some(options) => Some(Value::Bytes(options)),
            None => self.lacks(Layer::Tcp, transport.len() + 1),
        }
    }

    fn icmp(&mut self, field: Field) -> Option<Value<'p>> {
        let transport = self.transport;
        let (first, needed) = match field {
            Field::IcmpType | Field::IcmpTypeName => (1, 1),
            Field::IcmpCode | Field::IcmpCodeName => (2, 2),
            Field::IcmpFlow => (1, 6),
            Field::IcmpSequence => (1, 8),
            Field::IcmpNextMtu => (2, 8),
            _ => return None,
        };
        if self.protocol != Some(1) || transport.len() < first {
            return self.lacks(Layer::Icmp, first);
        }
        let kind = transport[0];
        let has = match field {
            Field::IcmpFlow | Field::IcmpSequence => has_icmp_flow(kind),
            Field::IcmpNextMtu => kind == 3 && transport[1] == 4,
            _ => true,
        };
        if !has {
            return None;
        }
        if transport.len() < needed {
            return self.lacks(Layer::Icmp, needed);
        }
        Some(Value::Number(u64::from(match field {
            Field::IcmpType | Field::IcmpTypeName => u16::from(kind),
            Field::IcmpCode | Field::IcmpCodeName => u16::from(transport[1]),
            Field::IcmpFlow => number16(transport, 4),
            _ => number16(transport, 6),
        })))
    }

    /// Where the payload begins, and how long it is on the wire: `None` where that ends within headers.
    fn payload_place(&self) -> (usize, Option<usize>) {
        let (Some(network), Some(transport)) = (self.packet.network_place(), self.packet.transport_place())
        else {
            return (0, Some(self.length()));
        };
        if !self.is_ip() {
            return (0, Some(self.length()));
        }
        let header = match self.ip.get(9) {
            _ if !self.is_first_fragment() => 0,
            Some(6) => match self.transport.get(12) {
                Some(words) if words >> 4 >= 5 => usize::from(words >> 4) * 4,
                _ => 20,
            },
            Some(17 | 136) => 8,
            _ => 0,
        };
        let begin = usize::try_from(transport).unwrap_or(0) + header;
        let before = begin.saturating_sub(usize::try_from(network).unwrap_or(0));
        (begin, usize::from(number16(self.ip, 2)).checked_sub(before))
    }

    fn payload(&self, field: Field) -> Option<Value<'p>> {
        if !matches!(field, Field::PayloadLength | Field::Payload | Field::PayloadMd5 | Field::PayloadMd5Hex)
        {
            return None;
        }
        let (begin, length) = self.payload_place();
        if field == Field::PayloadLength {
            let missing = if self.is_ip() {
                self.missing_bytes()
            } else {
                u64::from(self.packet.anno_u32(place::EXTRA_LENGTH))
            };
            return Some(Value::Number(length.unwrap_or(0) as u64 + missing));
        }
        let length = length?;
        if length > 0 && begin >= self.packet.len() {
            return None;
        }
        let end = (begin + length).min(self.length());
        Some(Value::Bytes(self.packet.data().get(begin..end).unwrap_or_default()))
    }

    /// Writes a field as text; `-` where the packet does not have it.
    pub(super) fn write_text(&mut self, column: &Column, out: &mut Vec<u8>) {
        let Some(value) = self.value(column.field) else {
            out.push(b'-');
            return;
        };
        match value {
            Value::Time(time) => out.extend_from_slice(write_signed_time(time).as_bytes()),
            Value::Ethernet(address) => {
                out.extend_from_slice(crate::value::Ether(address).to_string().as_bytes());
            }
            Value::Bytes(bytes) => match column.field {
                Field::IpOptions => write_ip(bytes, out),
                Field::TcpOptions => write_tcp(bytes, Choice::All, out),
                Field::TcpOptionsWithoutTime => write_tcp(bytes, Choice::WithoutTime, out),
                Field::TcpSack => write_tcp(bytes, Choice::Sack, out),
                Field::PayloadMd5 => out.extend_from_slice(md5::letters(md5::digest(bytes)).as_bytes()),
                Field::PayloadMd5Hex => {
                    out.extend_from_slice(md5::hexadecimal(md5::digest(bytes)).as_bytes());
                }
                _ => out.extend_from_slice(text::quote(bytes, false).as_bytes()),
            },
            Value::Number(number) => self.write_number(column.field, number, out),
        }
    }

    fn write_number(&self, field: Field, number: u64, out: &mut Vec<u8>) {
        let name = match field {
            Field::Direction => match number {
                0 => Some(">"),
                1 => Some("<"),
                _ => None,
            },
            Field::IpProtocol => match number {
                1 => Some("I"),
                6 => Some("T"),
                17 => Some("U"),
                _ => None,
            },
            Field::IpEcn => ["no", "ect1", "ect2", "ce"].get(number as usize).copied(),
            Field::IcmpTypeName => icmp_type_name(number as u8),
            Field::IcmpCodeName => icmp_code_name(self.transport.first().copied().unwrap_or(0), number as u8),
            Field::TcpFlags if number == 0 => Some("."),
            Field::TcpFlags if number == 0x18 => Some("PA"),
            _ => None,
        };
        if let Some(name) = name {
            out.extend_from_slice(name.as_bytes());
            return;
        }
        let text = match field {
            Field::IpSource | Field::IpDestination => std::net::Ipv4Addr::from(number as u32).to_string(),
            Field::IpFragment => char::from(number as u8).to_string(),
            Field::IpFragmentOffset => {
                let (more, dont) = (number & 0x2000 != 0, number & 0x4000 != 0);
                format!(
                    "{}{}{}",
                    (number & 0x1FFF) * 8,
                    if more { "+" } else { "" },
                    if dont { "!" } else { "" }
                )
            }
            Field::TcpFlags => super::TCP_FLAGS
                .iter()
                .enumerate()
                .filter(|(bit, _)| number >> bit & 1 != 0)
                .map(|(_, letter)| char::from(*letter))
                .collect(),
            Field::EthernetType => format!("{number:04X}"),
            _ => number.to_string(),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Writes a field in its binary form; zeros where the packet does not have it.
    pub(super) fn write_binary(&mut self, column: &Column, out: &mut Vec<u8>) {
        let value = self.value(column.field);
        let number = match &value {
            Some(Value::Number(number)) => *number,
            _ => 0,
        };
        let time = match &value {
            Some(Value::Time(time)) => *time,
            _ => 0,
        };
        let bytes = match &value {
            Some(Value::Bytes(bytes)) => *bytes,
            _ => &[],
        };
        let (seconds, nanoseconds) =
            (time.div_euclid(1_000_000_000) as u32, time.rem_euclid(1_000_000_000) as u32);
        match column.form {
            Form::Bytes(count) => out.extend_from_slice(&number.to_be_bytes()[8 - count.min(8)..]),
            Form::Time => {
                out.extend_from_slice(&seconds.to_be_bytes());
                out.extend_from_slice(&(nanoseconds / 1000).to_be_bytes());
            }
            Form::NanoTime => {
                out.extend_from_slice(&nanoseconds.to_be_bytes());
                out.extend_from_slice(&seconds.to_be_bytes());
            }
            Form::Ethernet => match value {
                Some(Value::Ethernet(address)) => out.extend_from_slice(&address),
                _ => out.extend_from_slice(&[0; 6]),
            },
            Form::Counted => match column.field {
                Field::IpOptions => write_ip_binary(bytes, out),
                Field::TcpSack => write_tcp_binary(bytes, Choice::Sack, out),
                Field::TcpOptionsWithoutTime => write_tcp_binary(bytes, Choice::WithoutTime, out),
                _ => write_tcp_binary(bytes, Choice::All, out),
            },
            Form::Digest => out.extend_from_slice(&md5::digest(bytes)),
            Form::Text => (),
        }
    }
}
