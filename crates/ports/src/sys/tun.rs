//! TAP devices: `/dev/net/tun` (Documentation/networking/tuntap.rst).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::bpf::Program;
use super::interface::{NAME, padded};
use super::socket::check;

/// The file that makes TAP devices.
pub(crate) const MAKER: &str = "/dev/net/tun";
/// The sender may leave checksums to us.
pub(crate) const TUN_F_CSUM: u32 = 0x01;
/// The sender may give us large TCP packets over IPv4.
pub(crate) const TUN_F_TSO4: u32 = 0x02;
/// The sender may give us large TCP packets over IPv6.
pub(crate) const TUN_F_TSO6: u32 = 0x04;
/// The sender may give us large TCP packets with ECN.
pub(crate) const TUN_F_TSO_ECN: u32 = 0x08;
/// The sender may give us large UDP packets over IPv4 (since Linux 6.2).
pub(crate) const TUN_F_USO4: u32 = 0x20;
/// The sender may give us large UDP packets over IPv6.
pub(crate) const TUN_F_USO6: u32 = 0x40;

/// `_IOR('T', 224, int)` (linux/if_tun.h).
const TUNSETSTEERINGEBPF: libc::c_ulong = 0x8004_54e0;
const FLAGS: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_MULTI_QUEUE;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
struct Request {
    name: [u8; NAME],
    flags: u16,
    rest: [u8; 22],
}

/// A queue of a TAP device. The device vanishes with its last queue.
///
/// A read or write carries one packet, behind a virtio-net header of 10 bytes.
#[derive(Debug)]
pub(crate) struct Queue(OwnedFd);

impl Queue {
    /// Makes the device of this name, or attaches another queue to it.
    ///
    /// With `"tap%d"` the kernel chooses the name. Answers the queue and the device's name.
    pub(crate) fn attach(name: &str) -> io::Result<(Self, String)> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(MAKER, flags, Mode::empty())?;
        let name = padded(name).ok_or(io::ErrorKind::InvalidInput)?;
        let mut request = Request { name, flags: FLAGS as u16, rest: [0; 22] };
        // SAFETY: the descriptor is open; the request reads and writes an ifreq, whose size `Request` has.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        let len = request.name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        Ok((Self(file), String::from_utf8_lossy(&request.name[..len]).into_owned()))
    }

    /// Sets the work that the sender may leave to us (`TUN_F_*`).
    pub(crate) fn set_offload(&self, flags: u32) -> io::Result<()> {
        // SAFETY: the descriptor is open; the request's argument is a number.
        check(unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags))
        })
        .map(|_| ())
    }

    /// Has a program choose among the device's queues for packets from the host.
    ///
    /// The chosen queue is the program's answer modulo their number, in the order in which they were
    /// attached. `None` gives the choice back to the kernel. The device keeps the program.
    pub(crate) fn choose_by(&self, program: Option<&Program>) -> io::Result<()> {
        let descriptor = program.map_or(-1, |program| program.as_fd().as_raw_fd());
        let descriptor = (&raw const descriptor).cast::<libc::c_int>();
        // SAFETY: the descriptor is open; the request reads an int, which is what it is given.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), TUNSETSTEERINGEBPF as _, descriptor) }).map(|_| ())
    }

    /// The queue's descriptor.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.0
    }
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>(), "the kernel copies a whole ifreq");
