//! IPFIX (RFC 7011): flow records, their templates, and the messages that carry them to a collector.
//!
//! Each direction of a conversation is a record of its own, as every collector reads them. The information elements are
//! those of RFC 7012.

use std::net::IpAddr;

use netbricks_core::packet::{FlowKey, protocol};

use super::conversation::{Conversation, Direction};

/// The reason why a flow is reported (`flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No packet came for the idle timeout.
    Idle = 1,
    /// It goes on for longer than the active timeout.
    Active = 2,
    /// Its connection has ended.
    EndOfFlow = 3,
    /// The run ends, or an operator asked for it.
    Forced = 4,
    /// Its place was needed.
    LackOfResources = 5,
}

/// A record in the form of its template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Whether it has the template of IPv6.
    pub is_v6: bool,
    /// Its fields.
    pub bytes: Vec<u8>,
}

/// Fields behind the addresses: information element and length.
const FIELDS: [(u16, u16); 11] = [
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (4, 1),   // protocolIdentifier
    (5, 1),   // ipClassOfService
    (6, 2),   // tcpControlBits
    (136, 1), // flowEndReason
    (1, 8),   // octetDeltaCount
    (2, 8),   // packetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (239, 1), // biflowDirection: 1 initiator, 2 reverse initiator
];
/// Source and destination address, and ICMP type and code, of each version.
const V4_FIELDS: [(u16, u16); 3] = [(8, 4), (12, 4), (32, 2)];
const V6_FIELDS: [(u16, u16); 3] = [(27, 16), (28, 16), (139, 2)];
/// Records that were not sent (RFC 7011, section 4.3), for the exporting process as scope.
const LOSS_FIELDS: [(u16, u16); 2] = [(144, 4), (165, 8)];

const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
const V4_TEMPLATE: u16 = 256;
const V6_TEMPLATE: u16 = 257;
const LOSS_TEMPLATE: u16 = 258;
const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// The bytes of a record of each version.
const V4_RECORD: usize = 10 + 42;
const V6_RECORD: usize = 34 + 42;

/// The records of what a conversation did since it was last reported: one for each direction with packets.
pub fn records(
    key: FlowKey,
    conversation: &Conversation,
    reason: EndReason,
) -> impl Iterator<Item = FlowRecord> {
    let flow = conversation.flow(key);
    let ways = [(flow, conversation.there, 1), (flow.reversed(), conversation.back, 2)];
    let reported = conversation.reported;
    ways.into_iter().zip(reported).filter(|((_, way, _), (packets, _))| way.packets > *packets).map(
        move |((flow, way, side), (packets, octets))| {
            record(flow, &way, (way.packets - packets, way.octets.saturating_sub(octets)), reason, side)
        },
    )
}

fn record(
    flow: FlowKey,
    way: &Direction,
    (packets, octets): (u64, u64),
    reason: EndReason,
    side: u8,
) -> FlowRecord {
    let mut bytes = Vec::with_capacity(V6_RECORD);
    for address in [flow.source(), flow.destination()] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend(way.icmp.to_be_bytes());
    let has_ports = protocol::has_ports(flow.protocol());
    let ports = if has_ports { [flow.source_port(), flow.destination_port()] } else { [0, way.icmp] };
    ports.into_iter().for_each(|port| bytes.extend(port.to_be_bytes()));
    bytes.extend([flow.protocol(), way.tos, 0, way.flags, reason as u8]);
    for number in [octets, packets, way.first / 1_000_000, way.last / 1_000_000] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.push(side);
    FlowRecord { is_v6: flow.is_v6(), bytes }
}

/// The messages of one observation domain to one collector.
#[derive(Clone, Debug)]
pub struct Exporter {
    domain: u32,
    /// Data records sent so far, modulo 2^32.
    sequence: u32,
    /// The largest message (bytes).
    most: usize,
}

impl Exporter {
    /// An exporter of this observation domain that has sent nothing.
    ///
    /// Its messages have up to 1,400 bytes, so that they pass tunnels unfragmented.
    pub fn new(domain: u32) -> Self {
        Self { domain, sequence: 0, most: 1_400 }
    }

    /// A message with all templates, and how many records were lost before they could be sent.
    ///
    /// `time` is the present time (s since 1970).
    pub fn templates(&mut self, time: u32, lost: u64) -> Vec<u8> {
        let mut message = self.begin(time);
        let template = |number: u16, fields: &[&[(u16, u16)]]| {
            let count = fields.iter().map(|part| part.len()).sum::<usize>() as u16;
            let mut bytes = [number.to_be_bytes(), count.to_be_bytes()].concat();
            for (element, length) in fields.iter().copied().flatten() {
                bytes.extend([element.to_be_bytes(), length.to_be_bytes()].concat());
            }
            bytes
        };
        let all =
            [template(V4_TEMPLATE, &[&V4_FIELDS, &FIELDS]), template(V6_TEMPLATE, &[&V6_FIELDS, &FIELDS])];
        set(&mut message, TEMPLATE_SET, &all.concat());
        let mut options = template(LOSS_TEMPLATE, &[&LOSS_FIELDS]);
        // One of the fields is the scope.
        options.splice(4..4, 1u16.to_be_bytes());
        set(&mut message, OPTIONS_TEMPLATE_SET, &options);
        let loss = [&1u32.to_be_bytes()[..], &lost.to_be_bytes()].concat();
        set(&mut message, LOSS_TEMPLATE, &loss);
        self.end(message, 1)
    }

    /// Messages with these records, in order.
    pub fn messages(&mut self, time: u32, records: &[FlowRecord]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        let mut rest = records;
        while let Some(first) = rest.first() {
            let mut message = self.begin(time);
            let mut count = 0;
            // A set for each run of records with one template.
            let mut next = Some(first);
            while let Some(FlowRecord { is_v6, .. }) = next {
                let size = if *is_v6 { V6_RECORD } else { V4_RECORD };
                let room = (self.most - message.len()).saturating_sub(SET_HEADER) / size;
                let run = rest.iter().take_while(|record| record.is_v6 == *is_v6).take(room).count();
                if run == 0 {
                    break;
                }
                let bytes: Vec<u8> =
                    rest[..run].iter().flat_map(|record| record.bytes.iter().copied()).collect();
                set(&mut message, if *is_v6 { V6_TEMPLATE } else { V4_TEMPLATE }, &bytes);
                count += run as u32;
                rest = &rest[run..];
                next = rest.first();
            }
            messages.push(self.end(message, count));
        }
        messages
    }

    fn begin(&self, time: u32) -> Vec<u8> {
        let mut message = [VERSION.to_be_bytes(), [0; 2]].concat();
        for number in [time, self.sequence, self.domain] {
            message.extend(number.to_be_bytes());
        }
        debug_assert_eq!(message.len(), HEADER);
        message
    }

    fn end(&mut self, mut message: Vec<u8>, records: u32) -> Vec<u8> {
        let length = message.len() as u16;
        message[2..4].copy_from_slice(&length.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(records);
        message
    }
}

/// Appends a set.
fn set(message: &mut Vec<u8>, number: u16, records: &[u8]) {
    message.extend(number.to_be_bytes());
    message.extend(((SET_HEADER + records.len()) as u16).to_be_bytes());
    message.extend(records);
}

/// A record as a line: `4 ` or `6 `, and its bytes in hexadecimal.
pub fn line(record: &FlowRecord) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * record.bytes.len());
    text.push_str(if record.is_v6 { "6 " } else { "4 " });
    for byte in &record.bytes {
        // Writing into a text does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

/// The record of a [`line()`]; `None` if it is none.
pub fn read_line(text: &str) -> Option<FlowRecord> {
    let (version, digits) = text.split_once(' ')?;
    let (is_v6, size) = match version {
        "4" => (false, V4_RECORD),
        "6" => (true, V6_RECORD),
        _ => return None,
    };
    if digits.len() != 2 * size || !digits.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    let bytes: Option<Vec<u8>> = (0..size).map(|place| byte(2 * place)).collect();
    Some(FlowRecord { is_v6, bytes: bytes? })
}
