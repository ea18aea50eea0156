//! Rules as a network card takes them: `struct ethtool_rx_flow_spec` of `ethtool -N` (linux/ethtool.h).

use std::fmt::Write as _;
use std::net::IpAddr;

use netbricks_packet::ethernet::ethertype;
use netbricks_packet::ip::Version;
use netbricks_packet::protocol;

use super::{Filter, Prefix, Rule};

/// Bytes of the struct.
pub(crate) const SPECIFICATION: usize = 168;

// Places in the struct. Values and masks have the same layout.
const VALUES: usize = 4;
const VALUES_EXTENSION: usize = 56;
const MASKS: usize = 76;
const MASKS_EXTENSION: usize = 128;
const QUEUE: usize = 152;
const LOCATION: usize = 160;
/// The tag's control information, in an extension.
const VLAN: usize = 10;

// Flow types.
const TCP_V4: u32 = 0x01;
const UDP_V4: u32 = 0x02;
const SCTP_V4: u32 = 0x03;
const TCP_V6: u32 = 0x05;
const UDP_V6: u32 = 0x06;
const SCTP_V6: u32 = 0x07;
const IP_V4: u32 = 0x0d;
const IP_V6: u32 = 0x0e;
const ETHER: u32 = 0x12;
/// The extension counts.
const EXTENDED: u32 = 1 << 31;

/// The rule at a place of the card's table; `None` if no flow type has its fields.
pub(crate) fn specification(rule: &Rule, location: u32) -> Option<[u8; SPECIFICATION]> {
    let Rule { filter, queue } = rule;
    let kind = flow_type(filter)?;
    let mut fields = Fields([0; SPECIFICATION]);
    let version = filter.version;
    let (source, destination, ports) = match version {
        Some(Version::V6) => (0, 16, 32),
        _ => (0, 4, 8),
    };
    fields.prefix(source, filter.source);
    fields.prefix(destination, filter.destination);
    if let Some(port) = filter.source_port {
        fields.set(ports, &port.to_be_bytes());
    }
    if let Some(port) = filter.destination_port {
        fields.set(ports + 2, &port.to_be_bytes());
    }
    match (kind, filter.protocol) {
        (IP_V4, protocol) => {
            // The only value of this field, ETH_RX_NFC_IP4; its mask must be 0.
            fields.0[VALUES + 13] = 1;
            protocol.into_iter().for_each(|protocol| fields.set(14, &[protocol]));
        }
        (IP_V6, Some(protocol)) => fields.set(37, &[protocol]),
        (ETHER, _) => {
            filter.ethertype.into_iter().for_each(|number| fields.set(12, &number.to_be_bytes()));
        }
        _ => {}
    }
    let mut kind = kind;
    if let Some(id) = filter.vlan {
        kind |= EXTENDED;
        fields.0[VALUES_EXTENSION + VLAN..][..2].copy_from_slice(&id.to_be_bytes());
        fields.0[MASKS_EXTENSION + VLAN..][..2].copy_from_slice(&0x0fff_u16.to_be_bytes());
    }
    fields.0[..4].copy_from_slice(&kind.to_ne_bytes());
    fields.0[QUEUE..][..8].copy_from_slice(&u64::from(*queue).to_ne_bytes());
    fields.0[LOCATION..][..4].copy_from_slice(&location.to_ne_bytes());
    Some(fields.0)
}

fn flow_type(filter: &Filter) -> Option<u32> {
    let has_ports = filter.source_port.or(filter.destination_port).is_some();
    Some(match (filter.version, filter.protocol) {
        (Some(Version::V4), Some(protocol::TCP)) => TCP_V4,
        (Some(Version::V4), Some(protocol::UDP)) => UDP_V4,
        (Some(Version::V4), Some(protocol::SCTP)) => SCTP_V4,
        (Some(Version::V6), Some(protocol::TCP)) => TCP_V6,
        (Some(Version::V6), Some(protocol::UDP)) => UDP_V6,
        (Some(Version::V6), Some(protocol::SCTP)) => SCTP_V6,
        _ if has_ports => return None,
        (Some(Version::V4), _) => IP_V4,
        (Some(Version::V6), _) => IP_V6,
        // A rule for one protocol of both versions would be two rules.
        (None, Some(_)) => return None,
        (None, None) => ETHER,
    })
}

/// The struct's bytes.
struct Fields([u8; SPECIFICATION]);

impl Fields {
    /// Sets a field of the values, all of whose bits count.
    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[VALUES + at..][..bytes.len()].copy_from_slice(bytes);
        self.0[MASKS + at..][..bytes.len()].fill(0xff);
    }
    fn prefix(&mut self, at: usize, prefix: Option<Prefix>) {
        let Some(prefix) = prefix else { return };
        let (value, mask) = match prefix.address() {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.bits())).unwrap_or(0);
                (address.octets().to_vec(), mask.to_be_bytes().to_vec())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix.bits())).unwrap_or(0);
                (address.octets().to_vec(), mask.to_be_bytes().to_vec())
            }
        };
        self.0[VALUES + at..][..value.len()].copy_from_slice(&value);
        self.0[MASKS + at..][..mask.len()].copy_from_slice(&mask);
    }
}

/// The rule as arguments of ethtool(8), for errors.
pub(crate) fn arguments(device: &str, rule: &Rule) -> String {
    let filter = &rule.filter;
    let kind = match flow_type(filter).unwrap_or(ETHER) {
        TCP_V4 => "tcp4",
        UDP_V4 => "udp4",
        SCTP_V4 => "sctp4",
        TCP_V6 => "tcp6",
        UDP_V6 => "udp6",
        SCTP_V6 => "sctp6",
        IP_V4 => "ip4",
        IP_V6 => "ip6",
        _ => "ether",
    };
    let mut out = format!("ethtool -N {device} flow-type {kind}");
    // ethtool's masks say which bits are ignored. Writing to a String cannot fail.
    let mut address = |name: &str, prefix: Option<Prefix>| {
        let Some(prefix) = prefix else { return };
        let ignored: IpAddr = match prefix.address() {
            IpAddr::V4(_) => {
                (!u32::MAX.checked_shl(32 - u32::from(prefix.bits())).unwrap_or(0)).to_be_bytes().into()
            }
            IpAddr::V6(_) => {
                (!u128::MAX.checked_shl(128 - u32::from(prefix.bits())).unwrap_or(0)).to_be_bytes().into()
            }
        };
        let _ = write!(out, " {name} {} m {ignored}", prefix.address());
    };
    address("src-ip", filter.source);
    address("dst-ip", filter.destination);
    let is_ether = kind == "ether";
    let numbers = [
        ("proto", filter.ethertype.map(u32::from).filter(|_| is_ether)),
        ("l4proto", filter.protocol.map(u32::from).filter(|_| ["ip4", "ip6"].contains(&kind))),
        ("src-port", filter.source_port.map(u32::from)),
        ("dst-port", filter.destination_port.map(u32::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            let _ = write!(out, " {name} {number}");
        }
    }
    if let Some(id) = filter.vlan {
        let _ = write!(out, " vlan {id} m 0xf000");
    }
    let _ = write!(out, " action {}", rule.queue);
    out
}

/// A rule that no packet needs, to ask a card whether it takes rules: a documentation address (RFC 5737).
pub(crate) fn probe() -> Rule {
    let filter = Filter {
        ethertype: Some(ethertype::IPV4),
        version: Some(Version::V4),
        destination: Some(Prefix::around(IpAddr::from([192, 0, 2, 255]), 32)),
        ..Filter::ANY
    };
    Rule { filter, queue: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(filter: Filter, queue: u16) -> Rule {
        Rule { filter: filter.checked().unwrap(), queue }
    }
    fn at(bytes: &[u8; SPECIFICATION], place: usize, len: usize) -> &[u8] {
        &bytes[place..place + len]
    }

    /// The places are those that a C compiler gives to `struct ethtool_rx_flow_spec`.
    ///
    /// `flow_type` 0, `h_u` 4, `h_ext` 56, `m_u` 76, `m_ext` 128, `ring_cookie` 152, `location` 160.
    #[test]
    fn a_network_of_ipv4_is_a_user_rule_with_a_mask() {
        let made = specification(&rule(Filter::ANY.to("10.1.0.0/16".parse().unwrap()), 3), 7).unwrap();
        assert_eq!(at(&made, 0, 4), 0x0d_u32.to_ne_bytes());
        assert_eq!(at(&made, 4, 15), [0, 0, 0, 0, 10, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(at(&made, 76, 15), [0, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(at(&made, 152, 8), 3_u64.to_ne_bytes());
        assert_eq!(at(&made, 160, 4), 7_u32.to_ne_bytes());
        let rest = [56..76, 128..152, 164..168];
        assert!(rest.into_iter().all(|range| made[range].iter().all(|byte| *byte == 0)));
    }

    #[test]
    fn ports_and_vlans_have_their_places() {
        let vxlan = Filter::ANY.protocol(17).to_port(4789).from("2001:db8::/32".parse().unwrap()).in_vlan(5);
        let made = specification(&rule(vxlan, 1), 0).unwrap();
        assert_eq!(at(&made, 0, 4), (0x06_u32 | 1 << 31).to_ne_bytes());
        assert_eq!(at(&made, 4, 4), [0x20, 1, 0x0d, 0xb8]);
        assert_eq!(at(&made, 4 + 32, 4), [0, 0, 0x12, 0xb5]);
        assert_eq!(at(&made, 76 + 32, 4), [0, 0, 255, 255]);
        assert_eq!((at(&made, 56 + 10, 2), at(&made, 128 + 10, 2)), (&[0, 5][..], &[0x0f, 0xff][..]));
        let arp = specification(&rule(Filter::ANY.ethertype(0x0806), 0), 0).unwrap();
        assert_eq!(at(&arp, 0, 4), 0x12_u32.to_ne_bytes());
        assert_eq!((at(&arp, 4 + 12, 2), at(&arp, 76 + 12, 2)), (&[8, 6][..], &[255, 255][..]));
        let refused = [Filter::ANY.protocol(17), Filter::ANY.protocol(33).to_port(1)];
        assert!(refused.iter().all(|filter| specification(&rule(*filter, 0), 0).is_none()));
    }

    #[test]
    fn a_rule_can_be_written_for_ethtool() {
        let to = rule(Filter::ANY.to("10.1.0.0/16".parse().unwrap()), 1);
        assert_eq!(
            arguments("eth0", &to),
            "ethtool -N eth0 flow-type ip4 dst-ip 10.1.0.0 m 0.0.255.255 action 1"
        );
        let vlan = rule(Filter::ANY.in_vlan(5), 2);
        assert_eq!(arguments("eth0", &vlan), "ethtool -N eth0 flow-type ether vlan 5 m 0xf000 action 2");
    }
}
