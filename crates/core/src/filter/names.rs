//! The keywords of the language, and the names that stand for numbers of protocols and ports.

use super::protocol::Protocol;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Protocol(Protocol),
    Source,
    Destination,
    Host,
    Net,
    Mask,
    Port,
    PortRange,
    Proto,
    ProtoChain,
    Gateway,
    Less,
    Greater,
    Byte,
    Broadcast,
    Multicast,
    And,
    Or,
    Not,
    Length,
    Vlan,
    Mpls,
    Pppoed,
    Pppoes,
    Geneve,
    Llc,
    /// A word for a number, such as `tcp-syn`.
    Number(u32),
    /// A word of the language that has no meaning for Ethernet frames, with the reason.
    Refused(&'static str),
}

const WLAN: &str = "it selects frames of IEEE 802.11, and our packets are Ethernet frames; remove it";
const ATM: &str = "it selects cells of ATM, and our packets are Ethernet frames; remove it";
const SS7: &str = "it selects messages of SS7, and our packets are Ethernet frames; remove it";
const PF: &str = "it selects packets that pf logged, and our packets are Ethernet frames; remove it";
const DIRECTION: &str =
    "an Ethernet frame does not tell its direction or interface; filter at the port instead";

/// All keywords of pcap-filter(7), other than symbols.
#[rustfmt::skip]
const KEYWORDS: &[(&str, Keyword)] = {
    use Keyword as K;
    use Protocol as P;
    &[
        ("link", K::Protocol(P::Link)), ("slip", K::Protocol(P::Link)), ("ppp", K::Protocol(P::Link)),
        ("ether", K::Protocol(P::Link)), ("fddi", K::Protocol(P::Link)), ("tr", K::Protocol(P::Link)),
        ("wlan", K::Protocol(P::Link)),
        ("ip", K::Protocol(P::Ip)), ("ip6", K::Protocol(P::Ip6)), ("arp", K::Protocol(P::Arp)),
        ("rarp", K::Protocol(P::Rarp)), ("sctp", K::Protocol(P::Sctp)), ("tcp", K::Protocol(P::Tcp)),
        ("udp", K::Protocol(P::Udp)), ("icmp", K::Protocol(P::Icmp)), ("icmp6", K::Protocol(P::Icmp6)),
        ("igmp", K::Protocol(P::Igmp)), ("igrp", K::Protocol(P::Igrp)), ("pim", K::Protocol(P::Pim)),
        ("vrrp", K::Protocol(P::Vrrp)), ("carp", K::Protocol(P::Carp)), ("ah", K::Protocol(P::Ah)),
        ("esp", K::Protocol(P::Esp)), ("atalk", K::Protocol(P::Atalk)), ("aarp", K::Protocol(P::Aarp)),
        ("decnet", K::Protocol(P::Decnet)), ("lat", K::Protocol(P::Lat)), ("sca", K::Protocol(P::Sca)),
        ("moprc", K::Protocol(P::Moprc)), ("mopdl", K::Protocol(P::Mopdl)), ("iso", K::Protocol(P::Iso)),
        ("esis", K::Protocol(P::Esis)), ("es-is", K::Protocol(P::Esis)), ("isis", K::Protocol(P::Isis)),
        ("is-is", K::Protocol(P::Isis)), ("clnp", K::Protocol(P::Clnp)), ("l1", K::Protocol(P::L1)),
        ("l2", K::Protocol(P::L2)), ("iih", K::Protocol(P::Iih)), ("lsp", K::Protocol(P::Lsp)),
        ("snp", K::Protocol(P::Snp)), ("csnp", K::Protocol(P::Csnp)), ("psnp", K::Protocol(P::Psnp)),
        ("stp", K::Protocol(P::Stp)), ("ipx", K::Protocol(P::Ipx)), ("netbeui", K::Protocol(P::Netbeui)),
        ("src", K::Source), ("dst", K::Destination), ("host", K::Host), ("net", K::Net), ("mask", K::Mask),
        ("port", K::Port), ("portrange", K::PortRange), ("proto", K::Proto), ("protochain", K::ProtoChain),
        ("gateway", K::Gateway), ("less", K::Less), ("greater", K::Greater), ("byte", K::Byte),
        ("broadcast", K::Broadcast), ("multicast", K::Multicast), ("and", K::And), ("or", K::Or),
        ("not", K::Not), ("len", K::Length), ("length", K::Length), ("vlan", K::Vlan), ("mpls", K::Mpls),
        ("pppoed", K::Pppoed), ("pppoes", K::Pppoes), ("geneve", K::Geneve), ("llc", K::Llc),
        // RFC 792 and RFC 4443: places of fields, and types.
        ("icmptype", K::Number(0)), ("icmpcode", K::Number(1)), ("icmp6type", K::Number(0)),
        ("icmp6code", K::Number(1)),
        ("icmp-echoreply", K::Number(0)), ("icmp-unreach", K::Number(3)), ("icmp-sourcequench", K::Number(4)),
        ("icmp-redirect", K::Number(5)), ("icmp-echo", K::Number(8)), ("icmp-routeradvert", K::Number(9)),
        ("icmp-routersolicit", K::Number(10)), ("icmp-timxceed", K::Number(11)),
        ("icmp-paramprob", K::Number(12)), ("icmp-tstamp", K::Number(13)), ("icmp-tstampreply", K::Number(14)),
        ("icmp-ireq", K::Number(15)), ("icmp-ireqreply", K::Number(16)), ("icmp-maskreq", K::Number(17)),
        ("icmp-maskreply", K::Number(18)),
        ("icmp6-destinationunreach", K::Number(1)), ("icmp6-packettoobig", K::Number(2)),
        ("icmp6-timeexceeded", K::Number(3)), ("icmp6-parameterproblem", K::Number(4)),
        ("icmp6-echo", K::Number(128)), ("icmp6-echoreply", K::Number(129)),
        ("icmp6-multicastlistenerquery", K::Number(130)), ("icmp6-multicastlistenerreportv1", K::Number(131)),
        ("icmp6-multicastlistenerdone", K::Number(132)), ("icmp6-routersolicit", K::Number(133)),
        ("icmp6-routeradvert", K::Number(134)), ("icmp6-neighborsolicit", K::Number(135)),
        ("icmp6-neighboradvert", K::Number(136)), ("icmp6-redirect", K::Number(137)),
        ("icmp6-routerrenum", K::Number(138)), ("icmp6-nodeinformationquery", K::Number(139)),
        ("icmp6-nodeinformationresponse", K::Number(140)),
        ("icmp6-ineighbordiscoverysolicit", K::Number(141)),
        ("icmp6-ineighbordiscoveryadvert", K::Number(142)),
        ("icmp6-multicastlistenerreportv2", K::Number(143)),
        ("icmp6-homeagentdiscoveryrequest", K::Number(144)), ("icmp6-homeagentdiscoveryreply", K::Number(145)),
        ("icmp6-mobileprefixsolicit", K::Number(146)), ("icmp6-mobileprefixadvert", K::Number(147)),
        ("icmp6-certpathsolicit", K::Number(148)), ("icmp6-certpathadvert", K::Number(149)),
        ("icmp6-multicastrouteradvert", K::Number(151)), ("icmp6-multicastroutersolicit", K::Number(152)),
        ("icmp6-multicastrouterterm", K::Number(153)),
        // RFC 9293: the place of the flags, and the flags.
        ("tcpflags", K::Number(13)), ("tcp-fin", K::Number(0x01)), ("tcp-syn", K::Number(0x02)),
        ("tcp-rst", K::Number(0x04)), ("tcp-push", K::Number(0x08)), ("tcp-ack", K::Number(0x10)),
        ("tcp-urg", K::Number(0x20)), ("tcp-ece", K::Number(0x40)), ("tcp-cwr", K::Number(0x80)),
        ("radio", K::Refused(WLAN)), ("type", K::Refused(WLAN)), ("subtype", K::Refused(WLAN)),
        ("dir", K::Refused(WLAN)), ("direction", K::Refused(WLAN)), ("ra", K::Refused(WLAN)),
        ("ta", K::Refused(WLAN)), ("addr1", K::Refused(WLAN)), ("address1", K::Refused(WLAN)),
        ("addr2", K::Refused(WLAN)), ("address2", K::Refused(WLAN)), ("addr3", K::Refused(WLAN)),
        ("address3", K::Refused(WLAN)), ("addr4", K::Refused(WLAN)), ("address4", K::Refused(WLAN)),
        ("lane", K::Refused(ATM)), ("metac", K::Refused(ATM)), ("bcc", K::Refused(ATM)),
        ("oamf4sc", K::Refused(ATM)), ("oamf4ec", K::Refused(ATM)), ("oamf4s", K::Refused(ATM)),
        ("oamf4e", K::Refused(ATM)), ("oamf4", K::Refused(ATM)), ("oam", K::Refused(ATM)),
        ("sc", K::Refused(ATM)), ("ilmic", K::Refused(ATM)), ("vpi", K::Refused(ATM)),
        ("vci", K::Refused(ATM)), ("connectmsg", K::Refused(ATM)), ("metaconnect", K::Refused(ATM)),
        ("fisu", K::Refused(SS7)), ("lssu", K::Refused(SS7)), ("lsu", K::Refused(SS7)),
        ("msu", K::Refused(SS7)), ("hfisu", K::Refused(SS7)), ("hlssu", K::Refused(SS7)),
        ("hmsu", K::Refused(SS7)), ("sio", K::Refused(SS7)), ("opc", K::Refused(SS7)),
        ("dpc", K::Refused(SS7)), ("sls", K::Refused(SS7)),
        ("ifname", K::Refused(PF)), ("on", K::Refused(PF)), ("rset", K::Refused(PF)),
        ("ruleset", K::Refused(PF)), ("rnr", K::Refused(PF)), ("rulenum", K::Refused(PF)),
        ("srnr", K::Refused(PF)), ("subrulenum", K::Refused(PF)), ("reason", K::Refused(PF)),
        ("action", K::Refused(PF)),
        ("inbound", K::Refused(DIRECTION)), ("outbound", K::Refused(DIRECTION)),
        ("ifindex", K::Refused(DIRECTION)),
    ]
};

pub(super) fn keyword(word: &str) -> Option<Keyword> {
    KEYWORDS.iter().find(|(name, _)| *name == word).map(|&(_, keyword)| keyword)
}

/// The usable keyword that a misspelled word is nearest to.
pub(super) fn nearest_keyword(word: &str) -> Option<&'static str> {
    let usable = KEYWORDS.iter().filter(|(_, keyword)| !matches!(keyword, Keyword::Refused(_)));
    nearest(&word.to_ascii_lowercase(), usable.map(|&(name, _)| name))
}

/// The nearest of the known words to one that is not too long to be misspelled.
pub(super) fn nearest(word: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    if word.len() <= 64 { crate::nearest(word, known) } else { None }
}

/// The number of an IP protocol, by the names of IANA's registry "Protocol Numbers" in their usual spelling.
pub(super) fn ip_protocol(name: &str) -> Option<u32> {
    IP_PROTOCOLS.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
}

pub(super) fn nearest_ip_protocol(name: &str) -> Option<&'static str> {
    nearest(name, IP_PROTOCOLS.iter().map(|&(known, _)| known))
}

#[rustfmt::skip]
const IP_PROTOCOLS: &[(&str, u32)] = &[
    ("ip", 0), ("icmp", 1), ("igmp", 2), ("ggp", 3), ("ipencap", 4), ("st", 5), ("tcp", 6), ("egp", 8),
    ("igp", 9), ("pup", 12), ("udp", 17), ("hmp", 20), ("xns-idp", 22), ("rdp", 27), ("iso-tp4", 29),
    ("dccp", 33), ("xtp", 36), ("ddp", 37), ("idpr-cmtp", 38), ("ipv6", 41), ("ipv6-route", 43),
    ("ipv6-frag", 44), ("idrp", 45), ("rsvp", 46), ("gre", 47), ("esp", 50), ("ah", 51), ("skip", 57),
    ("ipv6-icmp", 58), ("ipv6-nonxt", 59), ("ipv6-opts", 60), ("rspf", 73), ("vmtp", 81), ("eigrp", 88),
    ("ospf", 89), ("ax.25", 93), ("ipip", 94), ("etherip", 97), ("encap", 98), ("pim", 103),
    ("ipcomp", 108), ("vrrp", 112), ("l2tp", 115), ("isis", 124), ("sctp", 132), ("fc", 133),
    ("udplite", 136), ("mpls-in-ip", 137), ("manet", 138), ("hip", 139), ("shim6", 140), ("wesp", 141),
    ("rohc", 142),
];

/// The EtherType, or the LLC service access point below 256, that `ether proto` takes by name.
pub(super) fn link_protocol(name: &str) -> Option<u32> {
    LINK_PROTOCOLS.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
}

pub(super) fn nearest_link_protocol(name: &str) -> Option<&'static str> {
    nearest(name, LINK_PROTOCOLS.iter().map(|&(known, _)| known))
}

#[rustfmt::skip]
const LINK_PROTOCOLS: &[(&str, u32)] = &[
    ("aarp", 0x80f3), ("arp", 0x0806), ("atalk", 0x809b), ("decnet", 0x6003), ("ip", 0x0800),
    ("ip6", 0x86dd), ("lat", 0x6004), ("loopback", 0x9000), ("mopdl", 0x6001), ("moprc", 0x6002),
    ("rarp", 0x8035), ("sca", 0x6007), ("iso", 0xfe), ("stp", 0x42), ("ipx", 0xe0), ("netbeui", 0xf0),
];

/// The transport protocols for which a name of a port is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Tcp,
    Udp,
    Both,
}

/// The port of a service, by its name in IANA's "Service Name and Port Number Registry" or an old alias.
///
/// `/etc/services` is not read: a filter means the same on every machine.
pub(super) fn service(name: &str) -> Option<(u16, Service)> {
    SERVICES.iter().find(|(known, ..)| *known == name).map(|&(_, port, service)| (port, service))
}

pub(super) fn nearest_service(name: &str) -> Option<&'static str> {
    nearest(name, SERVICES.iter().map(|&(known, ..)| known))
}

#[rustfmt::skip]
const SERVICES: &[(&str, u16, Service)] = {
    use Service::{Both, Tcp, Udp};
    &[
        ("echo", 7, Both), ("discard", 9, Both), ("daytime", 13, Both), ("chargen", 19, Both),
        ("ftp-data", 20, Tcp), ("ftp", 21, Tcp), ("ssh", 22, Tcp), ("telnet", 23, Tcp), ("smtp", 25, Tcp),
        ("mail", 25, Tcp), ("time", 37, Both), ("whois", 43, Tcp), ("tacacs", 49, Both),
        ("domain", 53, Both), ("bootps", 67, Udp), ("bootpc", 68, Udp), ("tftp", 69, Udp),
        ("gopher", 70, Tcp), ("finger", 79, Tcp), ("http", 80, Tcp), ("www", 80, Tcp),
        ("kerberos", 88, Both), ("pop3", 110, Tcp), ("sunrpc", 111, Both), ("portmapper", 111, Both),
        ("auth", 113, Tcp), ("ident", 113, Tcp), ("nntp", 119, Tcp), ("ntp", 123, Udp),
        ("epmap", 135, Tcp), ("netbios-ns", 137, Udp), ("netbios-dgm", 138, Udp), ("netbios-ssn", 139, Tcp),
        ("imap2", 143, Tcp), ("imap", 143, Tcp), ("snmp", 161, Both), ("snmp-trap", 162, Both),
        ("snmptrap", 162, Both), ("xdmcp", 177, Udp), ("bgp", 179, Tcp), ("ptp-event", 319, Udp),
        ("ptp-general", 320, Udp), ("ldap", 389, Both), ("svrloc", 427, Both), ("https", 443, Both),
        ("microsoft-ds", 445, Tcp), ("kpasswd", 464, Both), ("submissions", 465, Tcp), ("isakmp", 500, Udp),
        ("printer", 515, Tcp), ("route", 520, Udp), ("dhcpv6-client", 546, Udp),
        ("dhcpv6-server", 547, Udp), ("rtsp", 554, Both), ("submission", 587, Tcp), ("ipp", 631, Tcp),
        ("ldaps", 636, Both), ("ldp", 646, Both), ("domain-s", 853, Both), ("rsync", 873, Tcp),
        ("ftps-data", 989, Tcp), ("ftps", 990, Tcp), ("telnets", 992, Tcp), ("imaps", 993, Tcp),
        ("pop3s", 995, Tcp), ("socks", 1080, Tcp), ("openvpn", 1194, Both), ("ms-sql-s", 1433, Tcp),
        ("ms-sql-m", 1434, Udp), ("l2f", 1701, Udp), ("radius", 1812, Both), ("radius-acct", 1813, Both),
        ("nfs", 2049, Both), ("iscsi-target", 3260, Tcp), ("mysql", 3306, Tcp), ("ms-wbt-server", 3389, Tcp),
        ("ipsec-nat-t", 4500, Udp), ("sip", 5060, Both), ("sip-tls", 5061, Both), ("xmpp-client", 5222, Tcp),
        ("xmpp-server", 5269, Tcp), ("mdns", 5353, Udp), ("postgresql", 5432, Tcp), ("amqps", 5671, Tcp),
        ("x11", 6000, Tcp), ("redis", 6379, Tcp), ("http-alt", 8080, Tcp), ("zabbix-agent", 10050, Tcp),
        ("zabbix-trapper", 10051, Tcp),
    ]
};
