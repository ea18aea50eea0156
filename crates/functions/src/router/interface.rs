//! An interface as an operator writes it: `lan 192.0.2.1/24 2001:db8:1::1/64 mtu 1500`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{Address, Secret, hash_words};

use super::words::{Fault, Words};

/// An address of an interface with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The interface's own address.
    pub address: IpAddr,
    /// Bits of the network's prefix.
    pub len: u8,
}

impl Network {
    /// The first address of the network.
    pub fn prefix(&self) -> IpAddr {
        truncated(self.address, self.len)
    }
    /// Whether an address is of the network.
    pub fn holds(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && truncated(address, self.len) == self.prefix()
    }
    /// The address that all hosts of the network listen to, where it has one.
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.len < 31 => {
                let host = u32::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Some(Ipv4Addr::from_bits(address.to_bits() | host))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// An address with only its first `len` bits; all of them where it has no more.
pub(super) fn truncated(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(address.truncated(len.min(32))),
        IpAddr::V6(address) => IpAddr::V6(address.truncated(len.min(128))),
    }
}

/// An interface of the router: a port, or a VLAN of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The port.
    pub port: String,
    /// The VLAN whose frames are its own; `None`: frames without a tag.
    pub vlan: Option<u16>,
    /// Its addresses.
    pub networks: Vec<Network>,
    /// Its MAC address, where it is given.
    pub mac: Option<MacAddress>,
    /// The largest IP packet in bytes that it sends.
    pub mtu: usize,
}

/// The largest IP packets of Ethernet.
const MTU: usize = 1500;

impl Interface {
    /// Its name: `lan`, or `lan.10` for VLAN 10.
    pub fn name(&self) -> String {
        match self.vlan {
            None => self.port.clone(),
            Some(vlan) => format!("{}.{vlan}", self.port),
        }
    }

    /// Its MAC address; one that its name and addresses decide where none is given.
    ///
    /// The latter is locally administered, and is the same after a restart.
    pub fn mac(&self) -> MacAddress {
        let derived = || {
            let name = self.name();
            let mut words: Vec<u64> = name.bytes().map(u64::from).collect();
            for network in &self.networks {
                let bits = match network.address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(address) => address.to_bits(),
                };
                words.extend([(bits >> 64) as u64, bits as u64]);
            }
            let [a, b, c, d, e, ..] = hash_words(&words, &Secret::from_seed(0)).to_be_bytes();
            MacAddress::new([0x02, a, b, c, d, e])
        };
        self.mac.unwrap_or_else(derived)
    }

    /// Its link-local address, which its MAC address decides (RFC 4291, appendix A).
    pub fn link_local(&self) -> Ipv6Addr {
        let given = self.networks.iter().find_map(|network| match network.address {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        });
        let [a, b, c, d, e, g] = self.mac().octets();
        let derived = [a ^ 2, b, c, 0xff, 0xfe, d, e, g];
        let mut octets = [0; 16];
        octets[0] = 0xfe;
        octets[1] = 0x80;
        octets[8..].copy_from_slice(&derived);
        given.unwrap_or_else(|| octets.into())
    }
}

impl FromStr for Interface {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut words = Words::of(text);
        let port = words.next("a port, as in `lan 192.0.2.1/24`")?;
        if port.contains('/') {
            return Err(words.fault(port, format!("expected the name of a port, found `{port}`")));
        }
        let mut interface =
            Self { port: port.to_owned(), vlan: None, networks: Vec::new(), mac: None, mtu: MTU };
        while let Some(word) = words.more() {
            match word {
                "mtu" => interface.mtu = words.number("an MTU in bytes", 68..=65_535)?,
                "vlan" => interface.vlan = Some(words.number("a VLAN", 1..=4_094)? as u16),
                "mac" => {
                    let word = words.next("a MAC address")?;
                    let mac: MacAddress = word
                        .parse()
                        .map_err(|_| words.fault(word, format!("expected a MAC address, found `{word}`")))?;
                    if mac.is_multicast() {
                        return Err(words.fault(word, format!("`{word}` is a group's address")));
                    }
                    interface.mac = Some(mac);
                }
                word if word.contains('/') => {
                    let network = network(word).map_err(|problem| words.fault(word, problem))?;
                    interface.networks.push(network);
                }
                word => {
                    let expected = format!(
                        "expected ADDRESS/LENGTH, `mtu BYTES`, `mac MAC` or `vlan NUMBER`, found `{word}`"
                    );
                    return Err(words.fault(word, expected));
                }
            }
        }
        let has_v6 = interface.networks.iter().any(|network| network.address.is_ipv6());
        if has_v6 && interface.mtu < 1280 {
            let problem = format!("an MTU of {} is too small for IPv6, which needs 1280", interface.mtu);
            return Err(Fault { column: 1, problem });
        }
        Ok(interface)
    }
}

/// An address with a prefix length that a host can have.
fn network(word: &str) -> Result<Network, String> {
    let expected = || format!("expected an address as `192.0.2.1/24` or `2001:db8::1/64`, found `{word}`");
    let (address, len) = word.split_once('/').ok_or_else(expected)?;
    let address: IpAddr = address.parse().map_err(|_| expected())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let len = len.parse().ok().filter(|len| *len <= most).ok_or_else(expected)?;
    let network = Network { address, len };
    let unusable = match address {
        IpAddr::V4(v4) => {
            !is_unicast(v4) || network.broadcast() == Some(v4) || (len < 31 && network.prefix() == address)
        }
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified() || v6.is_loopback(),
    };
    if unusable {
        return Err(format!(
            "`{word}` is no address of one host: give the router's own address in the network"
        ));
    }
    Ok(network)
}

/// Whether an IPv4 address can be that of one host on a link.
fn is_unicast(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first != 127 && first < 224
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.port)?;
        self.networks.iter().try_for_each(|network| write!(f, " {network}"))?;
        if let Some(vlan) = self.vlan {
            write!(f, " vlan {vlan}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, " mac {mac}")?;
        }
        if self.mtu != MTU { write!(f, " mtu {}", self.mtu) } else { Ok(()) }
    }
}
