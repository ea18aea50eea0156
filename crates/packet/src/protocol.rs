//! IP protocol numbers (IANA "Assigned Internet Protocol Numbers"), and their names.

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $short:literal;)*) => {
        $( $(#[$doc])* pub const $name: u8 = $number; )*

        /// The short name that tools print, where the number has one.
        pub const fn name(number: u8) -> Option<&'static str> {
            match number {
                $( $number => Some($short), )*
                _ => None,
            }
        }
    };
}
numbers! {
    /// IPv6 hop-by-hop options (RFC 8200).
    HOP_BY_HOP = 0, "hop-by-hop";
    /// ICMP (RFC 792).
    ICMP = 1, "icmp";
    /// IGMP (RFC 3376).
    IGMP = 2, "igmp";
    /// IPv4 in IP (RFC 2003).
    IPV4 = 4, "ipv4";
    /// TCP (RFC 9293).
    TCP = 6, "tcp";
    /// UDP (RFC 768).
    UDP = 17, "udp";
    /// DCCP (RFC 4340).
    DCCP = 33, "dccp";
    /// IPv6 in IP (RFC 2473, RFC 4213).
    IPV6 = 41, "ipv6";
    /// IPv6 routing header (RFC 8200).
    ROUTING = 43, "routing";
    /// IPv6 fragment header (RFC 8200).
    FRAGMENT = 44, "fragment";
    /// RSVP (RFC 2205).
    RSVP = 46, "rsvp";
    /// GRE (RFC 2784).
    GRE = 47, "gre";
    /// Encapsulating security payload (RFC 4303).
    ESP = 50, "esp";
    /// Authentication header (RFC 4302).
    AH = 51, "ah";
    /// ICMPv6 (RFC 4443).
    ICMPV6 = 58, "icmpv6";
    /// Nothing follows (RFC 8200).
    NO_NEXT_HEADER = 59, "no-next-header";
    /// IPv6 destination options (RFC 8200).
    DESTINATION_OPTIONS = 60, "destination-options";
    /// OSPF (RFC 2328).
    OSPF = 89, "ospf";
    /// PIM (RFC 7761).
    PIM = 103, "pim";
    /// VRRP (RFC 9568).
    VRRP = 112, "vrrp";
    /// L2TP (RFC 3931).
    L2TP = 115, "l2tp";
    /// SCTP (RFC 9260).
    SCTP = 132, "sctp";
    /// IPv6 mobility header (RFC 6275).
    MOBILITY = 135, "mobility";
    /// UDP-Lite (RFC 3828).
    UDP_LITE = 136, "udp-lite";
    /// MPLS in IP (RFC 4023).
    MPLS = 137, "mpls";
    /// Host identity protocol (RFC 7401).
    HIP = 139, "hip";
    /// Shim6 (RFC 5533).
    SHIM6 = 140, "shim6";
    /// Ethernet in IP (RFC 8986).
    ETHERNET = 143, "ethernet";
}

/// The protocol's packets leave their sender in segments that a device cuts: TCP, and UDP of datagrams of equal size.
pub(crate) const fn is_segmented(number: u8) -> bool {
    matches!(number, TCP | UDP)
}

/// The protocol's payload begins with a source and a destination port of 16 bits each.
#[inline(always)]
pub const fn has_ports(number: u8) -> bool {
    // One load for a chain of comparisons, in front of every flow key.
    WITH_PORTS[number as usize]
}

static WITH_PORTS: [bool; 256] = {
    let mut with = [false; 256];
    let mut all: &[u8] = &[TCP, UDP, SCTP, UDP_LITE, DCCP];
    while let [number, rest @ ..] = all {
        with[*number as usize] = true;
        all = rest;
    }
    with
};
