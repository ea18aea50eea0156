//! Requests about network interfaces (netdevice(7)), and ethtool's.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::socket::check;

/// Bytes of an interface's name, including its final zero.
pub(crate) const NAME: usize = libc::IFNAMSIZ;

/// `struct ifreq` without the members that hold an address.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub(crate) struct Request {
    name: [u8; NAME],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>(), "the kernel copies a whole ifreq");

/// The requests. Each one reads and writes the 40 bytes of [`Request`] and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Index,
    Mtu,
    SetMtu,
    Flags,
    SetFlags,
    HardwareAddress,
    SetHardwareAddress,
    SetAddress,
    SetNetmask,
}

impl Ask {
    fn code(self) -> libc::c_ulong {
        match self {
            Self::Index => libc::SIOCGIFINDEX,
            Self::Mtu => libc::SIOCGIFMTU,
            Self::SetMtu => libc::SIOCSIFMTU,
            Self::Flags => libc::SIOCGIFFLAGS,
            Self::SetFlags => libc::SIOCSIFFLAGS,
            Self::HardwareAddress => libc::SIOCGIFHWADDR,
            Self::SetHardwareAddress => libc::SIOCSIFHWADDR,
            Self::SetAddress => libc::SIOCSIFADDR,
            Self::SetNetmask => libc::SIOCSIFNETMASK,
        }
    }
}

/// The name as the kernel expects it; `None` if it is empty or longer than 15 bytes.
pub(crate) fn padded(name: &str) -> Option<[u8; NAME]> {
    let mut padded = [0; NAME];
    if name.is_empty() || name.len() >= NAME || name.bytes().any(|byte| byte == 0 || byte == b'/') {
        return None;
    }
    padded[..name.len()].copy_from_slice(name.as_bytes());
    Some(padded)
}

/// Asks about interface `name` on a socket of the network namespace in question; answers the union's bytes.
pub(crate) fn ask(socket: impl AsFd, name: &str, what: Ask, value: [u8; 24]) -> io::Result<[u8; 24]> {
    let name = padded(name).ok_or(io::ErrorKind::InvalidInput)?;
    let mut request = Request { name, value };
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; all requests of `Ask` take a `struct ifreq`, whose size
    // `Request` has, and use no address in it.
    check(unsafe { libc::ioctl(descriptor, what.code() as _, &raw mut request) })?;
    Ok(request.value)
}

/// Adds an IPv6 address to the interface of this index, in this thread's network namespace.
pub(crate) fn add_ipv6(index: u32, address: std::net::Ipv6Addr, prefix: u8) -> io::Result<()> {
    #[derive(IntoBytes, Immutable)]
    #[repr(C)]
    struct Ipv6Request {
        address: [u8; 16],
        prefix: u32,
        index: u32,
    }
    let request = Ipv6Request { address: address.octets(), prefix: u32::from(prefix), index };
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET6,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let descriptor = socket.as_raw_fd();
    // SAFETY: the descriptor is open; on an IPv6 socket the request reads a `struct in6_ifreq`, which this is.
    check(unsafe { libc::ioctl(descriptor, libc::SIOCSIFADDR as _, &raw const request) }).map(|_| ())
}

/// The ethtool requests used here, each with the most bytes that the kernel writes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ethtool {
    /// `ETHTOOL_GDRVINFO`: 196 bytes.
    Driver,
    /// `ETHTOOL_GCHANNELS`: 36 bytes.
    Channels,
    /// `ETHTOOL_GGRO`, generic receive offload (arrivals are merged): an `ethtool_value` of 8 bytes.
    ReceiveOffload,
}

/// The most bytes that a request of [`Ethtool`] may write.
const ETHTOOL_ROOM: usize = 256;

/// Asks a device's driver; answers the request's struct.
pub(crate) fn ethtool(socket: impl AsFd, name: &str, what: Ethtool) -> io::Result<[u8; ETHTOOL_ROOM]> {
    let command: u32 = match what {
        Ethtool::Driver => 0x03,
        Ethtool::Channels => 0x3c,
        Ethtool::ReceiveOffload => 0x2b,
    };
    let padded = padded(name).ok_or(io::ErrorKind::InvalidInput)?;
    // The kernel aligns its copy itself, but the struct holds 32-bit words.
    let mut room = [0_u32; ETHTOOL_ROOM / 4];
    room[0] = command;
    // SAFETY: an ifreq is plain bytes; all zero is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(padded) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = room.as_mut_ptr().cast();
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; the ifreq points to `room`, which outlives the call and is
    // at least as large as the largest struct of the requests in `Ethtool`.
    check(unsafe { libc::ioctl(descriptor, libc::SIOCETHTOOL as _, &raw mut request) })?;
    let mut answer = [0; ETHTOOL_ROOM];
    answer.copy_from_slice(room.as_bytes());
    Ok(answer)
}

/// A request about the rules of a network card (`struct ethtool_rxnfc`, 192 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleRequest {
    /// `ETHTOOL_GRXCLSRLCNT`: the number of rules, and the size of the table.
    Count,
    /// `ETHTOOL_GRXCLSRLALL` with no room for places: the size of the table.
    Size,
    /// `ETHTOOL_SRXCLSRLINS`: a rule of these bytes is put in.
    Insert([u8; 168]),
    /// `ETHTOOL_SRXCLSRLDEL`: the rule at this place is taken out.
    Delete(u32),
}

/// Words of `struct ethtool_rxnfc`: two of a command, two of data, 42 of a rule, a count, and padding.
const RULE_WORDS: usize = 48;

/// Asks a card about its rules; answers their number and the size of the table, where that is asked.
pub(crate) fn ask_about_rules(socket: impl AsFd, name: &str, what: &RuleRequest) -> io::Result<(u32, u32)> {
    const RULE: usize = 16;
    const LOCATION: usize = RULE + 160;
    let padded = padded(name).ok_or(io::ErrorKind::InvalidInput)?;
    let mut words = [0_u32; RULE_WORDS];
    let bytes = words.as_mut_bytes();
    let command: u32 = match what {
        RuleRequest::Count => 0x2e,
        RuleRequest::Size => 0x30,
        RuleRequest::Insert(rule) => {
            bytes[RULE..RULE + rule.len()].copy_from_slice(rule);
            0x32
        }
        RuleRequest::Delete(place) => {
            bytes[LOCATION..LOCATION + 4].copy_from_slice(&place.to_ne_bytes());
            0x31
        }
    };
    words[0] = command;
    // SAFETY: an ifreq is plain bytes; all zero is one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(padded) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed; the ifreq points to `words`, which outlives the call and has
    // the 192 bytes of `struct ethtool_rxnfc`. None of these commands writes behind it, as the array there is empty: its
    // count, which is the last word, is 0.
    check(unsafe { libc::ioctl(descriptor, libc::SIOCETHTOOL as _, &raw mut request) })?;
    let data = u64::from_ne_bytes(words.as_bytes()[8..16].first_chunk().copied().unwrap_or_default());
    // Bit 31 says that a driver can choose places.
    Ok((words[46], data as u32 & 0x7fff_ffff))
}

/// Every interface of this thread's network namespace, with one of its addresses an entry.
pub(crate) fn addresses() -> io::Result<Vec<(String, Option<IpAddr>)>> {
    let list = nix::ifaddrs::getifaddrs().map_err(io::Error::from)?;
    Ok(list
        .map(|entry| {
            let address = entry.address.and_then(|address| {
                let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
            });
            (entry.interface_name, address)
        })
        .collect())
}
