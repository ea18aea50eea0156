//! A packet in the making: fields of a summary are written into it one by one.

use std::net::Ipv4Addr;

use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::field::{Field, has_icmp_flow};
use super::set_first_timestamp;
use crate::packet::{Annotated, place};
use crate::router::At;

/// Length of the IP header without options.
const IP: usize = 20;
/// Length of the TCP header without options.
const TCP: usize = 20;

/// Addresses and ports of packets whose summaries do not tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) source: Ipv4Addr,
    pub(super) source_port: u16,
    pub(super) destination: Ipv4Addr,
    pub(super) destination_port: u16,
}

/// A field's value as a summary tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Number(u64),
    /// Nanoseconds since 1970.
    Time(i64),
    Ethernet([u8; 6]),
    Bytes(Vec<u8>),
}

/// A packet in the making.
#[derive(Default)]
pub(super) struct Draft {
    bytes: Vec<u8>,
    has_mac: bool,
    /// Places of the network and transport headers.
    network: Option<(usize, usize)>,
    /// Whether the link layer says that IP follows.
    not_ip: bool,
    pub(super) icmp_type: Option<u8>,
    icmp_code: Option<u8>,
    /// The summary tells how long the header is.
    has_ip_length: bool,
    has_tcp_length: bool,
    protocol: u8,
    flow: Option<Flow>,
    /// Length that the packet had on the wire, 0 if untold.
    wanted: usize,
    time: i64,
    first: i64,
    extra_packets: u32,
    paint: u8,
    aggregate: u32,
}

impl Draft {
    /// Begins a packet of this protocol and flow, as far as its summary tells no others.
    pub(super) fn begin(&mut self, protocol: u8, flow: Option<Flow>, aggregate: u32) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, protocol, flow, aggregate, ..Self::default() };
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        // Where the summary says that the packet is shorter, what lies behind its end is not written.
        let Some(room) = self.bytes.get_mut(at..) else { return };
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
    }
    fn put16(&mut self, at: usize, value: u64) {
        self.put(at, &(value as u16).to_be_bytes());
    }
    fn put32(&mut self, at: usize, value: u64) {
        self.put(at, &(value as u32).to_be_bytes());
    }
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }
    fn number16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }
    /// Makes the packet at least this long.
    fn reach(&mut self, length: usize) {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
    }

    /// Has an IP header, and gives its place and that of the transport header.
    fn make_ip(&mut self) -> Option<(usize, usize)> {
        if self.not_ip {
            return None;
        }
        if let Some(places) = self.network {
            return Some(places);
        }
        let network = if self.has_mac { 14 } else { 0 };
        self.reach(network + IP);
        let protocol = self.protocol;
        self.put(network, &[0x45]);
        self.put(network + 8, &[100, protocol]);
        if let Some(flow) = self.flow {
            self.put(network + 12, &flow.source.octets());
            self.put(network + 16, &flow.destination.octets());
        }
        self.network = Some((network, network + IP));
        self.network
    }
    fn ip_protocol(&self) -> u8 {
        self.network.map_or(0, |(network, _)| self.byte(network + 9))
    }
    fn is_first_fragment(&self) -> bool {
        self.network.is_none_or(|(network, _)| self.number16(network + 6) & 0x1FFF == 0)
    }

    /// Has a transport header, as far as the protocol has one. Its place, unless this is a later fragment.
    fn make_transport(&mut self) -> Option<usize> {
        let (_, transport) = self.make_ip()?;
        if !self.is_first_fragment() {
            return None;
        }
        if self.bytes.len() >= transport + 8 {
            return Some(transport);
        }
        let mut length = match self.ip_protocol() {
            6 => TCP,
            17 | 136 | 1 => 8,
            33 => 12,
            _ => return Some(transport),
        };
        if self.wanted > 0 {
            length = length.min(self.wanted.saturating_sub(transport));
        }
        if self.bytes.len() < transport + length {
            self.reach(transport + length);
            if self.ip_protocol() == 6 && length >= 13 {
                self.put(transport + 12, &[0x50]);
            }
            if let Some(flow) = self.flow {
                self.put16(transport, u64::from(flow.source_port));
                self.put16(transport + 2, u64::from(flow.destination_port));
            }
        }
        Some(transport)
    }

    /// Sets the IP header's length, with the packet at least as long.
    fn grow_ip(&mut self, network: usize, length: usize) {
        self.reach(network + length);
        let first = self.byte(network) & 0xF0 | (length / 4) as u8 & 15;
        self.put(network, &[first]);
        self.network = Some((network, network + length));
    }

    /// Writes a field into the packet.
    pub(super) fn inject(&mut self, field: Field, told: &Told) {
        match told {
            Told::Time(time) => match field {
                Field::Timestamp | Field::TimestampNanoseconds => self.time = *time,
                _ => self.first = *time,
            },
            Told::Ethernet(address) => {
                self.make_ethernet();
                self.put(if field == Field::EthernetSource { 6 } else { 0 }, address);
            }
            Told::Bytes(bytes) => match field {
                Field::IpOptions => self.inject_ip_options(bytes),
                Field::Payload => self.inject_payload(bytes),
                _ => self.inject_tcp_options(bytes),
            },
            Told::Number(number) => self.inject_number(field, *number),
        }
    }

    fn make_ethernet(&mut self) {
        if !self.has_mac {
            self.bytes.splice(0..0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
            self.has_mac = true;
        }
    }

    fn inject_number(&mut self, field: Field, number: u64) {
        const SECOND: i64 = 1_000_000_000;
        match field {
            Field::Seconds => {
                let seconds = i64::from(number as u32);
                self.time = seconds * SECOND + self.time.rem_euclid(SECOND);
            }
            Field::Microseconds => {
                let rest = i64::from(number as u32) * 1000;
                self.time = self.time.div_euclid(SECOND) * SECOND + rest;
            }
            Field::AllMicroseconds => self.time = (number as i64).saturating_mul(1000),
            Field::Count => self.extra_packets = (number as u32).saturating_sub(1),
            Field::Link | Field::Direction => self.paint = number as u8,
            Field::Aggregate => self.aggregate = number as u32,
            Field::WireLength => self.wanted = number as u32 as usize,
            Field::EthernetType => {
                self.make_ethernet();
                self.put16(12, number);
                self.not_ip |= !matches!(number, 0x0800 | 0x86DD);
            }
            Field::PayloadLength => {
                let begin = self.payload_begin();
                self.account_for_payload(begin, number as u32 as usize);
            }
            Field::IpSource
            | Field::IpDestination
            | Field::IpTos
            | Field::IpDscp
            | Field::IpEcn
            | Field::IpTtl
            | Field::IpFragment
            | Field::IpFragmentOffset
            | Field::IpId
            | Field::IpChecksum
            | Field::IpProtocol
            | Field::IpHeaderLength
            | Field::IpLength => self.inject_ip(field, number),
            Field::IcmpType
            | Field::IcmpTypeName
            | Field::IcmpCode
            | Field::IcmpCodeName
            | Field::IcmpFlow
            | Field::IcmpSequence
            | Field::IcmpNextMtu => self.inject_icmp(field, number),
            _ => self.inject_transport(field, number),
        }
    }

    fn inject_ip(&mut self, field: Field, number: u64) {
        let Some((network, transport)) = self.make_ip() else { return };
        let tos = self.byte(network + 1);
        match field {
            Field::IpSource => self.put32(network + 12, number),
            Field::IpDestination => self.put32(network + 16, number),
            Field::IpTos => self.put(network + 1, &[number as u8]),
            Field::IpDscp => self.put(network + 1, &[tos & 3 | (number as u8) << 2]),
            Field::IpEcn => self.put(network + 1, &[tos & !3 | number as u8 & 3]),
            Field::IpTtl => self.put(network + 8, &[number as u8]),
            Field::IpFragment | Field::IpFragmentOffset => self.put16(network + 6, number),
            Field::IpId => self.put16(network + 4, number),
            Field::IpChecksum => self.put16(network + 10, number),
            Field::IpProtocol => self.put(network + 9, &[number as u8]),
            Field::IpLength => self.wanted = network + number as u32 as usize,
            _ => {
                self.has_ip_length = true;
                let length = (number as usize).min(255).next_multiple_of(4);
                if length > transport - network && length <= 60 {
                    self.grow_ip(network, length);
                } else {
                    let first = self.byte(network) & 0xF0 | (length / 4) as u8 & 15;
                    self.put(network, &[first]);
                }
            }
        }
    }

    fn inject_ip_options(&mut self, options: &[u8]) {
        let Some((network, transport)) = self.make_ip() else { return };
        self.has_ip_length = true;
        let length = (IP + options.len().min(40)).next_multiple_of(4);
        if options.is_empty() {
            return;
        }
        if length > transport - network {
            self.grow_ip(network, length);
        }
        let mut padded = options.to_vec();
        padded.resize(length - IP, 0);
        self.put(network + IP, &padded);
    }

    fn inject_transport(&mut self, field: Field, number: u64) {
        let Some(transport) = self.make_transport() else { return };
        let protocol = self.ip_protocol();
        let fits = match field {
            Field::SourcePort | Field::DestinationPort => matches!(protocol, 0 | 6 | 17 | 33 | 136),
            Field::UdpLength => matches!(protocol, 0 | 17 | 136),
            _ => matches!(protocol, 0 | 6),
        };
        if !fits {
            return;
        }
        match field {
            Field::SourcePort => self.put16(transport, number),
            Field::DestinationPort => self.put16(transport + 2, number),
            Field::UdpLength => {
                self.reach(transport + 8);
                self.put16(transport + 4, number);
            }
            Field::TcpSequence => self.put32(transport + 4, number),
            Field::TcpAcknowledgement => self.put32(transport + 8, number),
            Field::TcpFlags => {
                let high = self.byte(transport + 12) & 0xF0 | (number >> 8) as u8 & 15;
                self.put(transport + 12, &[high, number as u8]);
            }
            Field::TcpHeaderLength => {
                let length = (number as usize).min(255).next_multiple_of(4);
                if length <= 60 {
                    self.reach(transport + length);
                }
                let high = (length / 4) as u8 & 15;
                self.set_tcp_words(transport, high);
            }
            Field::TcpWindow => self.put16(transport + 14, number),
            Field::TcpUrgent => self.put16(transport + 18, number),
            _ => (),
        }
    }

    fn set_tcp_words(&mut self, transport: usize, words: u8) {
        let low = self.byte(transport + 12) & 15;
        self.put(transport + 12, &[words << 4 | low]);
    }

    fn inject_tcp_options(&mut self, options: &[u8]) {
        let Some(transport) = self.make_transport() else { return };
        if !matches!(self.ip_protocol(), 0 | 6) {
            return;
        }
        self.has_tcp_length = true;
        if options.is_empty() {
            return;
        }
        let length = (TCP + options.len().min(40)).next_multiple_of(4);
        self.reach(transport + length);
        if length / 4 > usize::from(self.byte(transport + 12) >> 4) {
            self.set_tcp_words(transport, (length / 4) as u8);
        }
        let mut padded = options.to_vec();
        padded.resize(length - TCP, 0);
        self.put(transport + TCP, &padded);
    }

    fn inject_icmp(&mut self, field: Field, number: u64) {
        let Some(transport) = self.make_transport() else { return };
        if !matches!(self.ip_protocol(), 0 | 1) {
            return;
        }
        self.reach(transport + 8);
        let has_flow = self.icmp_type.is_none_or(has_icmp_flow);
        match field {
            Field::IcmpType | Field::IcmpTypeName => {
                self.put(transport, &[number as u8]);
                self.icmp_type = Some(number as u8);
                if matches!(number, 13 | 14) {
                    self.reach(transport + 20);
                }
            }
            Field::IcmpCode | Field::IcmpCodeName => {
                self.put(transport + 1, &[number as u8]);
                self.icmp_code = Some(number as u8);
            }
            Field::IcmpFlow if has_flow => self.put16(transport + 4, number),
            Field::IcmpSequence if has_flow => self.put16(transport + 6, number),
            Field::IcmpNextMtu
                if self.icmp_type.is_none_or(|kind| kind == 3)
                    && self.icmp_code.is_none_or(|code| code == 4) =>
            {
                self.put16(transport + 6, number);
            }
            _ => (),
        }
    }

    /// Where the payload begins.
    fn payload_begin(&mut self) -> usize {
        self.make_transport();
        let Some((_, transport)) = self.network.filter(|_| !self.not_ip) else { return 0 };
        if !self.is_first_fragment() {
            return transport;
        }
        transport
            + match self.ip_protocol() {
                6 if self.byte(transport + 12) >> 4 >= 5 => usize::from(self.byte(transport + 12) >> 4) * 4,
                6 => TCP,
                17 | 136 => 8,
                _ => 0,
            }
    }

    /// Has headers grow where the packet is told to be longer than they and the payload are.
    fn account_for_payload(&mut self, begin: usize, length: usize) {
        let places = self.network.filter(|_| !self.not_ip);
        let Some((network, transport)) = places.filter(|_| self.wanted > 0) else {
            self.wanted = begin.saturating_add(length);
            return;
        };
        let mut excess = (self.wanted + network).saturating_sub(begin.saturating_add(length));
        if excess > 0
            && self.is_first_fragment()
            && self.ip_protocol() == 6
            && !self.has_tcp_length
            && self.byte(transport + 12) >> 4 == 5
        {
            let more = (excess - excess % 4).min(60 - TCP);
            self.insert(transport + TCP, more);
            self.set_tcp_words(transport, ((TCP + more) / 4) as u8);
            excess -= more;
        }
        if excess > 0 && !self.has_ip_length && self.byte(network) & 15 == 5 {
            let more = (excess - excess % 4).min(60 - IP);
            self.insert(network + IP, more);
            self.grow_ip(network, IP + more);
        }
    }
    fn insert(&mut self, at: usize, count: usize) {
        self.reach(at);
        self.bytes.splice(at..at, std::iter::repeat_n(0, count));
    }

    fn inject_payload(&mut self, payload: &[u8]) {
        let begin = self.payload_begin();
        if payload.is_empty() {
            return;
        }
        self.account_for_payload(begin, payload.len());
        let begin = self.payload_begin();
        if begin > self.bytes.len() {
            // The summary says that the packet ends within its headers.
            return;
        }
        self.reach(begin + payload.len());
        self.put(begin, payload);
    }

    /// The packet. With `whole`, it has all bytes that its IP header tells of, and right checksums.
    pub(super) fn finish(&mut self, at: At<'_>, whole: bool) -> Option<Packet> {
        if self.flow.is_some() {
            self.make_ip();
        }
        let places = if self.network.is_some() && !self.not_ip {
            self.make_transport();
            self.network
        } else {
            None
        };
        if let Some((network, transport)) = places {
            self.finish_ip(network, transport, whole);
        }
        let mut packet = at.packet(&self.bytes)?;
        if self.has_mac {
            packet.set_mac_place(Some(0));
        }
        if let Some((network, transport)) = self.network {
            packet.set_network(network, transport - network);
        } else if self.has_mac {
            packet.set_network(14, 0);
        }
        if let Some((network, _)) = places {
            let mut address = [0; 4];
            address.copy_from_slice(&self.bytes[network + 16..network + 20]);
            packet.set_dst_ip(address.into());
        }
        packet.set_timestamp(self.time as u64);
        packet.set_anno_u8(place::PAINT, self.paint);
        packet.set_anno_u32(place::AGGREGATE, self.aggregate);
        packet.set_anno_u32(place::EXTRA_PACKETS, self.extra_packets);
        let missing = self.wanted.saturating_sub(self.bytes.len());
        packet.set_anno_u32(place::EXTRA_LENGTH, u32::try_from(missing).unwrap_or(u32::MAX));
        if self.first != 0 {
            set_first_timestamp(&mut packet, self.first);
        }
        Some(packet)
    }

    fn finish_ip(&mut self, network: usize, transport: usize, whole: bool) {
        let present = self.bytes.len() - network;
        let told = self.wanted.checked_sub(network).unwrap_or(self.wanted);
        let length = if told == 0 { present } else { told }.min(0xFFFF);
        self.put16(network + 2, length as u64);
        let is_udp = self.ip_protocol() == 17 && self.is_first_fragment();
        if is_udp && self.number16(transport + 4) == 0 {
            self.put16(transport + 4, length.saturating_sub(transport - network) as u64);
        }
        if !whole {
            return;
        }
        self.reach(network + length);
        self.put16(network + 10, 0);
        let header = self.bytes.get(network..transport).unwrap_or_default();
        let sum = checksum::internet(header);
        self.put16(network + 10, u64::from(sum));
        if self.number16(network + 6) & 0x3FFF != 0 {
            return;
        }
        let protocol = self.ip_protocol();
        let offset = match protocol {
            6 => 16,
            17 => 6,
            1 => 2,
            _ => return,
        };
        self.put16(transport + offset, 0);
        let segment = self.bytes.get(transport..).unwrap_or_default();
        let sum = if protocol == 1 {
            checksum::internet(segment)
        } else {
            let address = |at: usize| {
                Ipv4Addr::new(self.byte(at), self.byte(at + 1), self.byte(at + 2), self.byte(at + 3)).into()
            };
            checksum::transport(address(network + 12), address(network + 16), protocol, segment)
        };
        self.put16(transport + offset, u64::from(sum));
    }
}
