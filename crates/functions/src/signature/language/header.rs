//! The part of a rule before its options: protocol, addresses, ports and direction.

use netbricks_core::packet::{FlowKey, protocol};

use super::address::Addresses;
use super::port::Ports;
use super::scanner::Scanner;
use super::variables::Variables;
use super::{Reading, shown, unsupported, wrong};

/// The packets that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Protocol {
    /// Every IP packet.
    Ip,
    /// Only IPv4, or only IPv6.
    Version(u8),
    Tcp,
    /// TCP packets one by one, never their stream.
    TcpPackets,
    /// Only the stream.
    TcpStream,
    Udp,
    /// ICMP of IPv4 or of IPv6.
    Icmp,
    Sctp,
}

/// Protocols of the application layer, which Suricata detects by their content.
const APPLICATIONS: [&str; 32] = [
    "http",
    "http1",
    "http2",
    "tls",
    "ssl",
    "ssh",
    "smb",
    "dns",
    "ftp",
    "ftp-data",
    "smtp",
    "dcerpc",
    "dhcp",
    "nfs",
    "tftp",
    "ikev2",
    "ike",
    "krb5",
    "ntp",
    "snmp",
    "sip",
    "rdp",
    "rfb",
    "mqtt",
    "modbus",
    "dnp3",
    "enip",
    "imap",
    "pop3",
    "telnet",
    "quic",
    "bittorrent-dht",
];

impl Protocol {
    fn read(text: &str, at: usize) -> Reading<Self> {
        Ok(match text {
            "ip" => Self::Ip,
            "ipv4" | "ip4" => Self::Version(4),
            "ipv6" | "ip6" => Self::Version(6),
            "tcp" => Self::Tcp,
            "tcp-pkt" => Self::TcpPackets,
            "tcp-stream" => Self::TcpStream,
            "udp" => Self::Udp,
            "icmp" | "icmpv4" | "icmpv6" => Self::Icmp,
            "sctp" => Self::Sctp,
            _ if APPLICATIONS.contains(&text) => {
                return unsupported(
                    at,
                    format!("the protocol `{text}` of the application layer is not parsed"),
                );
            }
            _ => {
                return wrong(
                    at,
                    format!("expected a protocol (ip, tcp, udp, icmp, …), found `{}`", shown(text)),
                );
            }
        })
    }

    pub(in super::super) fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpPackets | Self::TcpStream)
    }

    pub(in super::super) fn has_ports(self) -> bool {
        self.is_tcp() || matches!(self, Self::Udp | Self::Sctp)
    }

    fn holds(self, flow: &FlowKey) -> bool {
        let number = flow.protocol();
        match self {
            Self::Ip => true,
            Self::Version(version) => (version == 6) == flow.is_v6(),
            Self::Tcp | Self::TcpPackets | Self::TcpStream => number == protocol::TCP,
            Self::Udp => number == protocol::UDP,
            Self::Icmp => number == protocol::ICMP || number == protocol::ICMPV6,
            Self::Sctp => number == 132,
        }
    }
}

/// The header of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Header {
    pub(in super::super) protocol: Protocol,
    pub(in super::super) source: Addresses,
    pub(in super::super) source_ports: Ports,
    /// Whether both directions count (`<>`).
    pub(in super::super) both: bool,
    pub(in super::super) destination: Addresses,
    pub(in super::super) destination_ports: Ports,
}

impl Header {
    pub(super) fn read(scanner: &mut Scanner<'_>, variables: &Variables) -> Reading<Self> {
        let (at, text) = scanner.word("a protocol")?;
        // Application protocols are noted, so that wrong addresses and ports of the same rule count first.
        let protocol = Protocol::read(text, at);
        if let Err(super::Unread::Wrong(..)) = &protocol {
            return protocol.map(|_| unreachable!("it is an error"));
        }
        let (at, text) = scanner.list("the source addresses")?;
        let source = Addresses::read(text, at, variables)?;
        let (at, text) = scanner.list("the source ports")?;
        let source_ports = Ports::read(text, at, variables)?;
        let (at, text) = scanner.word("`->` or `<>`")?;
        let both = match text {
            "->" => false,
            "<>" => true,
            _ => return wrong(at, format!("expected `->` or `<>`, found `{}`", shown(text))),
        };
        let (at, text) = scanner.list("the destination addresses")?;
        let destination = Addresses::read(text, at, variables)?;
        let (at, text) = scanner.list("the destination ports")?;
        let destination_ports = Ports::read(text, at, variables)?;
        let protocol = protocol?;
        Ok(Self { protocol, source, source_ports, both, destination, destination_ports })
    }

    /// Whether packets of this flow are those that the rule is about.
    pub(in super::super) fn holds(&self, flow: &FlowKey) -> bool {
        let one_way = |from, to, from_port, to_port| {
            let ports = !self.protocol.has_ports()
                || self.source_ports.holds(from_port) && self.destination_ports.holds(to_port);
            ports && self.source.holds(from) && self.destination.holds(to)
        };
        let (from, to) = (flow.source(), flow.destination());
        let (from_port, to_port) = (flow.source_port(), flow.destination_port());
        self.protocol.holds(flow)
            && (one_way(from, to, from_port, to_port) || self.both && one_way(to, from, to_port, from_port))
    }
}
