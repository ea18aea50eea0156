//! AF_PACKET sockets: options, the TPACKET_V3 receive ring, and sending a batch in one system call.
//!
//! See packet(7) and Documentation/networking/packet_mmap.rst.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::mapping::Mapping;
use super::socket::{check, get, set};

const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_FANOUT_HASH: u32 = 0;
const PACKET_FANOUT_CBPF: u32 = 6;
const PACKET_FANOUT_DATA: libc::c_int = 22;
const PACKET_FANOUT_FLAG_UNIQUEID: u32 = 0x2000;
const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: u32 = 0x4000;
const TPACKET_V3: libc::c_int = 2;
const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;
/// The block is ours.
const TP_STATUS_USER: u32 = 1;
const TP_STATUS_KERNEL: u32 = 0;
/// The offset of a block's status word.
const BLOCK_STATUS: usize = 8;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Membership {
    index: i32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RingRequest {
    block_size: u32,
    blocks: u32,
    frame_size: u32,
    frames: u32,
    retire_timeout: u32,
    private_size: u32,
    features: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Statistics {
    pub(crate) packets: u32,
    pub(crate) drops: u32,
    freezes: u32,
}

/// The way in which a group of sockets divides arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// By a symmetric hash of the flow.
    Hash,
    /// By the answer of a program.
    Program,
}

/// An instruction of classic BPF: `struct sock_filter` (linux/filter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());

/// A raw packet socket, which receives nothing before it is bound.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for PacketSocket {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl PacketSocket {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?))
    }

    fn set<T: IntoBytes + Immutable>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        set(self, libc::SOL_PACKET, option, value)
    }

    /// Puts a virtio-net header before each packet, in both directions.
    pub(crate) fn carry_virtio_headers(&self) -> io::Result<()> {
        self.set(libc::PACKET_VNET_HDR, &1_i32)
    }
    /// Ignores packets that leave by the interface.
    pub(crate) fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(PACKET_IGNORE_OUTGOING, &1_i32)
    }
    /// Hands packets to the driver past the queueing discipline.
    pub(crate) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::PACKET_QDISC_BYPASS, &1_i32)
    }
    /// Makes the interface promiscuous for as long as the socket is open.
    pub(crate) fn be_promiscuous(&self, index: u32) -> io::Result<()> {
        let kind = libc::PACKET_MR_PROMISC as u16;
        let membership = Membership { index: index as i32, kind, address_len: 0, address: [0; 8] };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &membership)
    }
    /// Sets the most bytes of outgoing packets that the socket may have.
    ///
    /// With the needed capability, this may exceed the host's limit.
    pub(crate) fn set_send_buffer(&self, bytes: i32) -> io::Result<()> {
        set(self, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| set(self, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Joins a group of sockets among which flows are spread: a new group, or that of `first`.
    ///
    /// The socket must be bound.
    pub(crate) fn join(&self, first: Option<&Self>, spread: Spread) -> io::Result<()> {
        // The group receives outgoing packets even if a socket of it ignores them. Kernels that do not know
        // the flag ignore it.
        let spread = PACKET_FANOUT_FLAG_IGNORE_OUTGOING
            | match spread {
                Spread::Hash => PACKET_FANOUT_HASH,
                Spread::Program => PACKET_FANOUT_CBPF,
            };
        match first {
            None => self.set(libc::PACKET_FANOUT, &((spread | PACKET_FANOUT_FLAG_UNIQUEID) << 16)),
            Some(first) => {
                let group: u32 = get(first, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
                self.set(libc::PACKET_FANOUT, &(spread << 16 | group & 0xffff))
            }
        }
    }

    /// Has a program choose among the sockets of the group that this socket has joined.
    ///
    /// The chosen socket is the program's answer modulo their number, in the order in which they joined. The
    /// order changes if a socket gets its ring afterwards: the kernel then removes it from the group and adds
    /// it again.
    pub(crate) fn choose_by(&self, program: &[Instruction]) -> io::Result<()> {
        self.set_program(libc::SOL_PACKET, PACKET_FANOUT_DATA, program)
    }

    /// Receives nothing from any interface until [`hear_all`](Self::hear_all).
    pub(crate) fn hear_nothing(&self) -> io::Result<()> {
        const RETURN: u16 = 0x06;
        let nothing = Instruction { code: RETURN, if_true: 0, if_false: 0, value: 0 };
        self.set_program(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[nothing])
    }
    /// Receives again from the interface to which it is bound.
    pub(crate) fn hear_all(&self) -> io::Result<()> {
        set(self, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
    }

    fn set_program(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        program: &[Instruction],
    ) -> io::Result<()> {
        let len = program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
        let (descriptor, size) = (self.0.as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let program = (&raw const program).cast();
        // SAFETY: the descriptor is open; pointer and size describe a sock_fprog, and what that points to are as many
        // instructions as it says, laid out as sock_filter is. The kernel only reads them, before it returns.
        check(unsafe { libc::setsockopt(descriptor, level, option, program, size) }).map(|_| ())
    }

    /// Binds to an interface, for sending only or for packets of all protocols as well.
    pub(crate) fn bind(&self, index: u32, receive: bool) -> io::Result<()> {
        // SAFETY: a sockaddr_ll is plain numbers; all zero is one.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = if receive { ETH_P_ALL.to_be() } else { 0 };
        address.sll_ifindex = index as i32;
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the descriptor is open, and pointer and length describe a sockaddr_ll.
        check(unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), len) }).map(|_| ())
    }

    /// The numbers of packets that the kernel dropped and saw since the last call.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        get(self, libc::SOL_PACKET, libc::PACKET_STATISTICS)
    }

    /// The socket's pending error, which this clears.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        match get::<i32>(self, libc::SOL_SOCKET, libc::SO_ERROR) {
            Ok(0) => None,
            Ok(code) => Some(io::Error::from_raw_os_error(code)),
            Err(error) => Some(error),
        }
    }

    /// Makes this a TPACKET_V3 receiver with a ring of `blocks` blocks.
    ///
    /// A block is ours when it is full, or `retire_timeout` (ms) after its first packet. Packets that the
    /// socket received before are lost.
    pub(crate) fn into_ring(
        self,
        block_size: usize,
        blocks: usize,
        retire_timeout: u32,
    ) -> io::Result<BlockRing> {
        self.set(libc::PACKET_VERSION, &TPACKET_V3)?;
        let request = RingRequest {
            block_size: block_size as u32,
            blocks: blocks as u32,
            // Frames of V3 have no fixed size; the kernel only checks that these numbers fit.
            frame_size: block_size as u32,
            frames: blocks as u32,
            retire_timeout,
            private_size: 0,
            features: 0,
        };
        self.set(libc::PACKET_RX_RING, &request)?;
        let mapping = Mapping::shared(self.as_fd(), 0, block_size * blocks)?;
        Ok(BlockRing { mapping, socket: self, block_size, blocks, current: 0 })
    }
}

/// A TPACKET_V3 receive ring. Its blocks belong to the kernel or to us, in turn.
#[derive(Debug)]
pub(crate) struct BlockRing {
    mapping: Mapping,
    socket: PacketSocket,
    block_size: usize,
    blocks: usize,
    current: usize,
}

impl BlockRing {
    /// The current block's bytes, if it is ours.
    #[inline]
    pub(crate) fn block(&self) -> Option<&[u8]> {
        let at = self.current * self.block_size;
        if self.mapping.load_acquire(at + BLOCK_STATUS) & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: a block with this bit is ours alone until its status is reset, which only `release` does, and that
        // needs the ring for changing.
        Some(unsafe { self.mapping.bytes(at, self.block_size) })
    }
    /// Returns the current block to the kernel and goes on to the next. The block must be ours.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.mapping.store_release(self.current * self.block_size + BLOCK_STATUS, TP_STATUS_KERNEL);
        self.current += 1;
        if self.current == self.blocks {
            self.current = 0;
        }
    }
    pub(crate) fn socket(&self) -> &PacketSocket {
        &self.socket
    }
}

/// The most packets that one call of [`Sender::send`] takes.
pub(crate) const SEND: usize = 64;
/// Bytes of a virtio-net header.
pub(crate) const VIRTIO: usize = 10;

/// The tables of sendmmsg(2), kept so that sending allocates nothing.
pub(crate) struct Sender {
    headers: Box<[[u8; VIRTIO]]>,
    vectors: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

// SAFETY: the addresses in the tables are written before each call, to what that call borrows; none is used after it.
unsafe impl Send for Sender {}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl Sender {
    pub(crate) fn new() -> Self {
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an mmsghdr of zeros is a message of nothing without a receiver.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            headers: vec![[0; VIRTIO]; SEND].into(),
            vectors: vec![vector; 2 * SEND].into(),
            messages: vec![message; SEND].into(),
        }
    }

    /// Sends packets in one system call, each behind its header if it has one.
    ///
    /// Answers how many the kernel took, at most [`SEND`]. If it took none, answers its error for the first.
    pub(crate) fn send<'p>(
        &mut self,
        socket: &PacketSocket,
        packets: impl Iterator<Item = (Option<[u8; VIRTIO]>, &'p [u8])>,
    ) -> io::Result<usize> {
        let mut count = 0;
        let tables =
            self.headers.iter_mut().zip(self.vectors.chunks_exact_mut(2)).zip(self.messages.iter_mut());
        for (((place, vectors), message), (header, bytes)) in tables.zip(packets) {
            let body = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            message.msg_hdr.msg_iov = vectors.as_mut_ptr();
            if let Some(header) = header {
                *place = header;
                vectors[0] = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: VIRTIO };
                vectors[1] = body;
                message.msg_hdr.msg_iovlen = 2;
            } else {
                vectors[0] = body;
                message.msg_hdr.msg_iovlen = 1;
            }
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let descriptor = socket.0.as_raw_fd();
        let table = self.messages.as_mut_ptr();
        // SAFETY: the first `count` messages were just pointed at vectors of this sender and at bytes borrowed for
        // 'p, which lasts to the end of this function; the kernel only reads them (the cast drops a `const` that
        // iovec cannot express) and writes `msg_len`.
        let sent = check(unsafe { libc::sendmmsg(descriptor, table, count as u32, libc::MSG_DONTWAIT) })?;
        Ok(sent as usize)
    }
}
