//! Network interfaces of the host: found by name, and asked about MTU, link and offloads.
//!
//! A check finds a host stack that would answer on the interface beside us.

mod netlink;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use netbricks_core::nearest;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::port::{Link, PortError};
use crate::sys::interface::{self, Ask, Ethtool, RuleRequest};

/// Bytes of an Ethernet header with two tags.
pub(crate) const HEADER: usize = 14 + 8;
/// Bytes of the largest packet that a host hands over.
///
/// That is an IP packet of 64 KiB behind an Ethernet header with two tags.
pub(crate) const LARGEST_ARRIVAL: usize = 65_535 + HEADER;

const UP: u16 = libc::IFF_UP as u16;
const RUNNING: u16 = libc::IFF_RUNNING as u16;

/// An interface. Any thread can ask it, through a socket of the network namespace in which it was found.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    name: String,
    index: u32,
}

impl Interface {
    /// Finds interface `device` for port `port`.
    ///
    /// # Errors
    /// [`PortError::NoDevice`], with the nearest name that exists.
    pub fn find(port: &str, device: &str) -> Result<Self, PortError> {
        let system = |source| PortError::System {
            port: port.into(),
            action: format!("looking for the interface `{device}`"),
            source,
        };
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(|error| system(error.into()))?;
        match interface::ask(&socket, device, Ask::Index, [0; 24]) {
            Ok(value) => Ok(Self { socket, name: device.into(), index: word(&value) }),
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                let names: Vec<String> = names();
                let suggestion = nearest(device, names.iter().map(String::as_str)).map(ToOwned::to_owned);
                Err(PortError::NoDevice { port: port.into(), device: device.into(), suggestion })
            }
            Err(error) => Err(system(error)),
        }
    }

    /// Lists what a port on `device` lacks on this machine, without any capability.
    ///
    /// It checks that the interface exists, is switched on and has a link, and adds the findings of `more`.
    pub(crate) fn lacks(
        port: &str,
        device: &str,
        more: impl FnOnce(&Self) -> Vec<PortError>,
    ) -> Vec<PortError> {
        let interface = match Self::find(port, device) {
            Ok(interface) => interface,
            Err(error) => return vec![error],
        };
        let problem = match interface.flags() {
            Ok(flags) if flags & UP == 0 => Some(format!("is switched off: `ip link set {device} up`")),
            Ok(flags) if flags & RUNNING == 0 => Some("has no link: nothing is at its other end".to_owned()),
            _ => None,
        };
        let off = problem.map(|problem| unusable(port, device, &problem));
        off.into_iter().chain(more(&interface)).collect()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The interface's number in its network namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The rules in the card's table, and the number that it takes; 0 if its driver does not say.
    pub(crate) fn classification_rules(&self) -> io::Result<(u32, u32)> {
        let ask = |what| interface::ask_about_rules(&self.socket, &self.name, &what);
        match ask(RuleRequest::Count)? {
            // Many drivers tell the size with the list of places only.
            (0, 0) => Ok((0, ask(RuleRequest::Size).map_or(0, |(_, size)| size))),
            known => Ok(known),
        }
    }
    /// Puts a rule into the card's table.
    pub(crate) fn insert_classification_rule(&self, rule: &[u8; 168]) -> io::Result<()> {
        interface::ask_about_rules(&self.socket, &self.name, &RuleRequest::Insert(*rule)).map(|_| ())
    }
    /// Takes the rule at this place out of the card's table.
    pub(crate) fn delete_classification_rule(&self, place: u32) -> io::Result<()> {
        interface::ask_about_rules(&self.socket, &self.name, &RuleRequest::Delete(place)).map(|_| ())
    }

    fn ask(&self, what: Ask, value: [u8; 24]) -> io::Result<[u8; 24]> {
        interface::ask(&self.socket, &self.name, what, value)
    }

    /// The largest packet without the Ethernet header, in bytes.
    ///
    /// # Errors
    /// The kernel's error: the device is gone.
    pub fn mtu(&self) -> io::Result<usize> {
        Ok(word(&self.ask(Ask::Mtu, [0; 24])?) as usize)
    }
    /// Sets the MTU, in bytes.
    ///
    /// # Errors
    /// The kernel's error: out of the device's range, or no permission.
    pub fn set_mtu(&self, bytes: usize) -> io::Result<()> {
        let mut value = [0; 24];
        value[..4].copy_from_slice(&(bytes as u32).to_ne_bytes());
        self.ask(Ask::SetMtu, value).map(|_| ())
    }

    /// Whether packets can flow. A different interface that has the same name counts as [`Link::Gone`].
    pub fn link(&self) -> Link {
        match (self.ask(Ask::Index, [0; 24]), self.flags()) {
            (Ok(index), _) if word(&index) != self.index => Link::Gone,
            (_, Ok(flags)) if flags & UP != 0 && flags & RUNNING != 0 => Link::Up,
            (Ok(_), Ok(_)) => Link::Down,
            (Err(error), _) | (_, Err(error)) => {
                if is_gone(&error) {
                    Link::Gone
                } else {
                    Link::Down
                }
            }
        }
    }
    fn flags(&self) -> io::Result<u16> {
        let value = self.ask(Ask::Flags, [0; 24])?;
        Ok(u16::from_ne_bytes([value[0], value[1]]))
    }
    /// Switches the interface on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&self) -> io::Result<()> {
        let mut value = [0; 24];
        value[..2].copy_from_slice(&(self.flags()? | UP).to_ne_bytes());
        self.ask(Ask::SetFlags, value).map(|_| ())
    }

    /// Its MAC address.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let value = self.ask(Ask::HardwareAddress, [0; 24])?;
        Ok([value[2], value[3], value[4], value[5], value[6], value[7]])
    }
    /// The header with which the interface's packets begin.
    ///
    /// # Errors
    /// [`PortError::Setting`] if that is neither an Ethernet header nor IP; [`PortError::System`] as the
    /// kernel says.
    pub(crate) fn link_header(&self, port: &str) -> Result<LinkHeader, PortError> {
        let value = self.ask(Ask::HardwareAddress, [0; 24]).map_err(|source| PortError::System {
            port: port.into(),
            action: format!("asking for the hardware type of {}", self.name),
            source,
        })?;
        match u16::from_ne_bytes([value[0], value[1]]) {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkHeader::Ethernet),
            libc::ARPHRD_NONE | ARPHRD_RAWIP => Ok(LinkHeader::None),
            number => Err(PortError::Setting {
                port: port.into(),
                key: "device",
                problem: format!(
                    "names {}, whose packets begin neither with an Ethernet header nor with IP (hardware type {number}): \
                     no port can read them",
                    self.name
                ),
            }),
        }
    }
    /// Refuses a device without Ethernet headers, for a driver that needs them.
    pub(crate) fn needs_ethernet(&self, port: &str) -> Result<(), PortError> {
        match self.link_header(port)? {
            LinkHeader::Ethernet => Ok(()),
            LinkHeader::None => Err(PortError::Setting {
                port: port.into(),
                key: "device",
                problem: format!(
                    "names {}, whose packets have no Ethernet header (TUN, WireGuard): `driver = \"af_packet\"` takes it",
                    self.name
                ),
            }),
        }
    }

    /// Sets its MAC address.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut value = [0; 24];
        value[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        value[2..8].copy_from_slice(&mac);
        self.ask(Ask::SetHardwareAddress, value).map(|_| ())
    }
    /// Gives the interface an IP address with the length of its network's prefix, in bits.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_address(&self, address: IpAddr, prefix: u8) -> io::Result<()> {
        match address {
            IpAddr::V4(address) => {
                self.ask(Ask::SetAddress, socket_address(address.octets()))?;
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                self.ask(Ask::SetNetmask, socket_address(mask.to_be_bytes())).map(|_| ())
            }
            IpAddr::V6(address) => interface::add_ipv6(self.index, address, prefix),
        }
    }

    /// The name of the interface's driver: `"veth"`. Empty where the driver does not say.
    pub fn driver(&self) -> String {
        let Ok(answer) = interface::ethtool(&self.socket, &self.name, Ethtool::Driver) else {
            return String::new();
        };
        let name = &answer[4..36];
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..len]).into_owned()
    }
    /// The number of its receive queues; 1 where the driver does not say.
    pub fn receive_queues(&self) -> usize {
        let Ok(answer) = interface::ethtool(&self.socket, &self.name, Ethtool::Channels) else { return 1 };
        // struct ethtool_channels: command, four maxima, then receive, transmit, other and combined counts.
        let at = |index: usize| word(&answer[4 * index..]) as usize;
        (at(5) + at(8)).max(1)
    }
    /// Whether arrivals may be merged into packets larger than the MTU.
    pub fn merges_arrivals(&self) -> bool {
        interface::ethtool(&self.socket, &self.name, Ethtool::ReceiveOffload)
            .is_ok_and(|answer| word(&answer[4..]) != 0)
    }
    /// Bytes of the largest packet that the interface may bring, with its Ethernet header and tags.
    ///
    /// For a packet of 64 KiB if uncut segments may arrive, otherwise for a packet of the MTU.
    pub(crate) fn largest_arrival(&self) -> usize {
        if self.merges_arrivals() || self.driver() == "veth" {
            return LARGEST_ARRIVAL;
        }
        self.mtu().map_or(0, |mtu| mtu + HEADER)
    }
    /// Bytes of the largest segment that the interface hands over or takes.
    ///
    /// More than 64 KiB where BIG TCP is on.
    ///
    /// `None` where the kernel does not say.
    ///
    /// Call this in the interface's network namespace.
    pub(crate) fn largest_segment(&self) -> Option<u32> {
        netlink::largest_segment(self.index).ok().flatten()
    }

    /// How the host's own stack works on this interface beside us: it answers for addresses, or forwards
    /// arrivals.
    ///
    /// Link-local addresses do not count: every interface that is up has one.
    ///
    /// Call this in the interface's network namespace.
    pub fn host_stack(&self) -> HostStack {
        let addresses = interface::addresses().unwrap_or_default();
        let addresses = addresses
            .into_iter()
            .filter(|(name, _)| *name == self.name)
            .filter_map(|(_, address)| address.filter(|address| !is_link_local(address)))
            .collect();
        let forwards = |family: &str| {
            let path = format!("/proc/sys/net/{family}/conf/{}/forwarding", self.name);
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
        };
        HostStack { device: self.name.clone(), addresses, ipv4: forwards("ipv4"), ipv6: forwards("ipv6") }
    }
}

/// Plain IP, as modems use (linux/if_arp.h).
const ARPHRD_RAWIP: u16 = 519;

/// The header with which an interface's packets begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkHeader {
    Ethernet,
    /// No header before IP: TUN devices, WireGuard.
    None,
}

/// The work of the host's own stack on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStack {
    device: String,
    /// Addresses for which the host answers.
    pub addresses: Vec<IpAddr>,
    /// The host forwards IPv4.
    pub ipv4: bool,
    /// The host forwards IPv6.
    pub ipv6: bool,
}

impl HostStack {
    /// The warning for a port that sees the host's packets too (AF_PACKET), with the remedy.
    ///
    /// `None` if the host's stack does not answer or forward.
    pub fn answers_too(&self) -> Option<String> {
        let device = &self.device;
        let mut does = Vec::new();
        let mut mend = Vec::new();
        if !self.addresses.is_empty() {
            let list = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            does.push(format!("answers for {list}"));
            mend.push(format!("`ip address flush dev {device}`"));
        }
        for (forwards, family) in [(self.ipv4, "ipv4"), (self.ipv6, "ipv6")] {
            if forwards {
                does.push(format!("forwards {}", if family == "ipv4" { "IPv4" } else { "IPv6" }));
                mend.push(format!("`sysctl -w net.{family}.conf.{device}.forwarding=0`"));
            }
        }
        (!does.is_empty()).then(|| {
            format!(
                "the host's own stack also handles what arrives on {device}: it {}; packets may be answered or forwarded twice: {}",
                does.join(" and "),
                mend.join(" and ")
            )
        })
    }

    /// The warning for a port that takes packets away from the host (AF_XDP).
    pub fn is_cut_off(&self) -> Option<String> {
        (!self.addresses.is_empty()).then(|| {
            let list = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!(
                "the host has {list} on {0} and no longer hears what this port takes: leave it what it needs with `kernel = [\"arp\", \"tcp/22\"]`, or take the address away with `ip address flush dev {0}`",
                self.device
            )
        })
    }
}

/// The name of every interface in this thread's network namespace.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> =
        interface::addresses().unwrap_or_default().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether an error says that the device is no longer there.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::EBADFD))
}

/// The error for a device that will not do: `"is a veth: …"`.
pub(crate) fn unusable(port: &str, device: &str, problem: &str) -> PortError {
    let problem = format!("names {device}, which {problem}");
    PortError::Setting { port: port.into(), key: "device", problem }
}

/// The error for an action that the kernel refused. It names a missing capability.
pub(crate) fn refused(port: &str, action: &str, capability: &'static str, source: io::Error) -> PortError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if source.kind() == io::ErrorKind::PermissionDenied => {
            PortError::Permission { port: port.into(), action: action.into(), capability }
        }
        _ => PortError::System { port: port.into(), action: action.into(), source },
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A `struct sockaddr_in` in an ifreq.
fn socket_address(address: [u8; 4]) -> [u8; 24] {
    let mut value = [0; 24];
    value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    value[4..8].copy_from_slice(&address);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_interface_is_named() {
        let found = Interface::find("lan", "lp").unwrap_err().to_string();
        assert_eq!(found, "port `lan`: there is no network interface `lp`; did you mean `lo`?");
        let long = Interface::find("lan", "a-name-that-no-interface-can-have").unwrap_err();
        assert!(matches!(long, PortError::NoDevice { suggestion: None, .. }), "{long}");
    }

    #[test]
    fn warnings_say_how_to_mend() {
        let quiet = HostStack { device: "eth0".into(), addresses: vec![], ipv4: false, ipv6: false };
        assert_eq!((quiet.answers_too(), quiet.is_cut_off()), (None, None));
        let loud = HostStack { addresses: vec![[10, 0, 0, 1].into()], ipv6: true, ..quiet };
        let warning = loud.answers_too().unwrap();
        for part in ["10.0.0.1", "ip address flush dev eth0", "net.ipv6.conf.eth0.forwarding=0"] {
            assert!(warning.contains(part), "{warning}");
        }
    }
}
