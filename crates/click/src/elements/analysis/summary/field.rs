//! Fields of packets in summaries: their names, their order and their binary forms.

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Timestamp,
    TimestampNanoseconds,
    Seconds,
    Microseconds,
    AllMicroseconds,
    FirstTimestamp,
    FirstTimestampNanoseconds,
    Count,
    Link,
    Direction,
    Aggregate,
    WireLength,
    EthernetSource,
    EthernetDestination,
    EthernetType,
    IpSource,
    IpDestination,
    IpTos,
    IpDscp,
    IpEcn,
    IpTtl,
    IpFragment,
    IpFragmentOffset,
    IpId,
    IpChecksum,
    IpProtocol,
    IpHeaderLength,
    IpLength,
    IpCaptureLength,
    IpOptions,
    SourcePort,
    DestinationPort,
    TcpSequence,
    TcpAcknowledgement,
    TcpHeaderLength,
    TcpFlags,
    TcpWindow,
    TcpUrgent,
    TcpOptions,
    TcpOptionsWithoutTime,
    TcpSack,
    UdpLength,
    IcmpType,
    IcmpTypeName,
    IcmpCode,
    IcmpCodeName,
    IcmpFlow,
    IcmpSequence,
    IcmpNextMtu,
    PayloadLength,
    Payload,
    PayloadMd5,
    PayloadMd5Hex,
}

/// Form of a field in a binary record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A number of so many bytes.
    Bytes(usize),
    /// Seconds and microseconds.
    Time,
    /// Nanoseconds within the second, then seconds.
    NanoTime,
    /// An Ethernet address.
    Ethernet,
    /// A length byte and so many bytes.
    Counted,
    /// A digest of 16 bytes.
    Digest,
    /// None: the field has no binary form.
    Text,
}

/// Places of fields in the order in which they make a packet: those of inner layers come later.
const NOTE: u16 = 100;
const LINK: u16 = 200;
const NETWORK: u16 = 300;
const TRANSPORT: u16 = 400;
const PAYLOAD: u16 = 500;
/// The field cannot be read, only written.
const NEVER: u16 = u16::MAX;

struct Row(Field, &'static str, Form, u16);

const TABLE: &[Row] = &[
    Row(Field::Timestamp, "timestamp", Form::Time, NOTE),
    Row(Field::TimestampNanoseconds, "ntimestamp", Form::NanoTime, NOTE),
    Row(Field::Seconds, "ts_sec", Form::Bytes(4), NOTE),
    Row(Field::Microseconds, "ts_usec", Form::Bytes(4), NOTE),
    Row(Field::AllMicroseconds, "ts_usec1", Form::Bytes(8), NOTE),
    Row(Field::FirstTimestamp, "first_timestamp", Form::Time, NOTE),
    Row(Field::FirstTimestampNanoseconds, "first_ntimestamp", Form::NanoTime, NOTE),
    Row(Field::Count, "count", Form::Bytes(4), NOTE),
    Row(Field::Link, "link", Form::Bytes(1), NOTE),
    Row(Field::Link, "paint", Form::Bytes(1), NOTE),
    Row(Field::Direction, "direction", Form::Bytes(1), NOTE),
    Row(Field::Aggregate, "aggregate", Form::Bytes(4), NOTE),
    Row(Field::WireLength, "wire_len", Form::Bytes(4), NOTE),
    Row(Field::EthernetSource, "eth_src", Form::Ethernet, LINK),
    Row(Field::EthernetDestination, "eth_dst", Form::Ethernet, LINK),
    Row(Field::EthernetType, "eth_type", Form::Bytes(2), LINK),
    Row(Field::IpSource, "ip_src", Form::Bytes(4), NETWORK),
    Row(Field::IpDestination, "ip_dst", Form::Bytes(4), NETWORK),
    Row(Field::IpTos, "ip_tos", Form::Bytes(1), NETWORK),
    Row(Field::IpDscp, "ip_dscp", Form::Bytes(1), NETWORK),
    Row(Field::IpEcn, "ip_ecn", Form::Bytes(1), NETWORK),
    Row(Field::IpTtl, "ip_ttl", Form::Bytes(1), NETWORK),
    Row(Field::IpFragment, "ip_frag", Form::Bytes(1), NETWORK - 2),
    Row(Field::IpFragmentOffset, "ip_fragoff", Form::Bytes(2), NETWORK - 1),
    Row(Field::IpId, "ip_id", Form::Bytes(2), NETWORK),
    Row(Field::IpChecksum, "ip_sum", Form::Bytes(2), NETWORK + 2),
    Row(Field::IpProtocol, "ip_proto", Form::Bytes(1), NETWORK),
    Row(Field::IpHeaderLength, "ip_hl", Form::Bytes(1), NETWORK - 1),
    Row(Field::IpLength, "ip_len", Form::Bytes(4), NETWORK + 1),
    Row(Field::IpCaptureLength, "ip_capture_len", Form::Bytes(4), PAYLOAD + 2),
    Row(Field::IpOptions, "ip_opt", Form::Counted, NETWORK),
    Row(Field::SourcePort, "sport", Form::Bytes(2), TRANSPORT),
    Row(Field::DestinationPort, "dport", Form::Bytes(2), TRANSPORT),
    Row(Field::TcpSequence, "tcp_seq", Form::Bytes(4), TRANSPORT),
    Row(Field::TcpAcknowledgement, "tcp_ack", Form::Bytes(4), TRANSPORT),
    Row(Field::TcpHeaderLength, "tcp_off", Form::Bytes(1), TRANSPORT - 1),
    Row(Field::TcpFlags, "tcp_flags", Form::Bytes(1), TRANSPORT),
    Row(Field::TcpWindow, "tcp_window", Form::Bytes(2), TRANSPORT),
    Row(Field::TcpUrgent, "tcp_urp", Form::Bytes(2), TRANSPORT),
    Row(Field::TcpOptions, "tcp_opt", Form::Counted, TRANSPORT + 3),
    Row(Field::TcpOptionsWithoutTime, "tcp_ntopt", Form::Counted, TRANSPORT + 2),
    Row(Field::TcpSack, "tcp_sack", Form::Counted, TRANSPORT + 1),
    Row(Field::UdpLength, "udp_len", Form::Bytes(4), TRANSPORT),
    Row(Field::IcmpType, "icmp_type", Form::Bytes(1), TRANSPORT),
    Row(Field::IcmpTypeName, "icmp_type_name", Form::Bytes(1), TRANSPORT),
    Row(Field::IcmpCode, "icmp_code", Form::Bytes(1), TRANSPORT + 1),
    Row(Field::IcmpCodeName, "icmp_code_name", Form::Bytes(1), TRANSPORT + 1),
    Row(Field::IcmpFlow, "icmp_flowid", Form::Bytes(2), TRANSPORT + 2),
    Row(Field::IcmpSequence, "icmp_seq", Form::Bytes(2), TRANSPORT + 2),
    Row(Field::IcmpNextMtu, "icmp_nextmtu", Form::Bytes(2), TRANSPORT + 2),
    Row(Field::PayloadLength, "payload_len", Form::Bytes(4), PAYLOAD + 1),
    Row(Field::Payload, "payload", Form::Text, PAYLOAD),
    Row(Field::PayloadMd5, "payload_md5", Form::Digest, NEVER),
    Row(Field::PayloadMd5Hex, "payload_md5_hex", Form::Digest, NEVER),
];

const SYNONYMS: &[(&str, &str)] = &[
    ("utimestamp", "timestamp"),
    ("ts", "timestamp"),
    ("sec", "ts_sec"),
    ("usec", "ts_usec"),
    ("usec1", "ts_usec1"),
    ("first_utimestamp", "first_timestamp"),
    ("first_ts", "first_timestamp"),
    ("pkt_count", "count"),
    ("packet_count", "count"),
    ("agg", "aggregate"),
    ("wire_length", "wire_len"),
    ("ether_src", "eth_src"),
    ("ether_dst", "eth_dst"),
    ("ether_type", "eth_type"),
    ("length", "ip_len"),
    ("ip_p", "ip_proto"),
    ("tcp_seqno", "tcp_seq"),
    ("tcp_ackno", "tcp_ack"),
    ("tcp_win", "tcp_window"),
    ("payload_length", "payload_len"),
];

/// A field as a list of fields names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) field: Field,
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// Fields of lower order make the packet first.
    pub(super) order: u16,
}

impl Column {
    /// A column of the dump that is passed over.
    pub(super) const IGNORED: Self =
        Self { field: Field::WireLength, name: "none", form: Form::Bytes(0), order: NEVER };

    /// The field of a name: as it stands, with a space for its `_`, or without its `ip_`.
    pub(super) fn find(name: &str) -> Option<Self> {
        let real = SYNONYMS.iter().find(|(synonym, _)| *synonym == name).map_or(name, |(_, real)| *real);
        if let Some(Row(field, name, form, order)) = TABLE.iter().find(|row| row.1 == real) {
            return Some(Self { field: *field, name, form: *form, order: *order });
        }
        if name.contains(' ') {
            return Self::find(&name.replacen(' ', "_", 1));
        }
        if name.contains('_') { None } else { Self::find(&format!("ip_{name}")) }
    }
    /// Whether packets can be made from it.
    pub(super) fn is_readable(&self) -> bool {
        self.order != NEVER
    }
    /// Whether it needs the packet's IP header looked at.
    pub(super) fn looks_at_ip(&self) -> bool {
        self.order >= NETWORK - 2
    }
}

/// Names of ICMP codes by type.
const ICMP_CODES: &[(u8, &[(&str, u8)])] = &[
    (
        3,
        &[
            ("filterprohibited", 13),
            ("host", 1),
            ("hostprecedence", 14),
            ("hostprohibited", 10),
            ("hostunknown", 7),
            ("isolated", 8),
            ("needfrag", 4),
            ("net", 0),
            ("netprohibited", 9),
            ("netunknown", 6),
            ("port", 3),
            ("precedencecutoff", 15),
            ("protocol", 2),
            ("srcroutefail", 5),
            ("toshost", 12),
            ("tosnet", 11),
        ],
    ),
    (5, &[("host", 1), ("net", 0), ("toshost", 3), ("tosnet", 2)]),
    (11, &[("reassembly", 1), ("transit", 0)]),
    (12, &[("erroratptr", 0), ("length", 2), ("missingopt", 1)]),
];

fn icmp_codes(kind: u8) -> &'static [(&'static str, u8)] {
    ICMP_CODES.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, names)| names)
}

/// The number of an ICMP type by its name.
pub(super) fn icmp_type(name: &str) -> Option<u8> {
    crate::names::ICMP_TYPES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
/// The name of an ICMP type.
pub(super) fn icmp_type_name(number: u8) -> Option<&'static str> {
    crate::names::ICMP_TYPES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}
/// The number of an ICMP code of a type by its name.
pub(super) fn icmp_code(kind: u8, name: &str) -> Option<u8> {
    icmp_codes(kind).iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
/// The name of an ICMP code of a type.
pub(super) fn icmp_code_name(kind: u8, number: u8) -> Option<&'static str> {
    icmp_codes(kind).iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}
/// Whether ICMP messages of a type have an identifier and a sequence number.
pub(super) fn has_icmp_flow(kind: u8) -> bool {
    matches!(kind, 0 | 8 | 13..=16)
}
