//! AF_XDP sockets (Documentation/networking/af_xdp.rst): frames of a pool are lent to the kernel through four rings.
//!
//! To lend a frame, its packet is given up. The frame becomes a packet again when the kernel returns it
//! through a ring, or when the socket is closed. `Lent` knows which frames are lent, so that the entries of a
//! ring are checked and no frame can return twice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use netbricks_buffer::{Packet, Pages, Pool, RawFrame};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpRingOffset, XdpStatistics, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::mapping::Mapping;
use super::socket::set;

const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SOL_XDP: libc::c_int = 283;
const RING_NEED_WAKEUP: u32 = 1;
const PGOFF_RX: u64 = 0;
const PGOFF_TX: u64 = 0x8000_0000;
const PGOFF_FILL: u64 = 0x1_0000_0000;
const PGOFF_COMPLETION: u64 = 0x1_8000_0000;
/// The packet continues in the next descriptor.
const CONTINUES: u32 = 1;

/// `struct xdp_desc`
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Descriptor {
    address: u64,
    len: u32,
    options: u32,
}

/// The lowest of the upper bits of an address that hold the packet's offset, where chunks are not aligned.
///
/// The offset counts from the start that was stocked.
const OFFSET_SHIFT: u32 = 48;
/// The unit of distances between frames (bytes).
const LINE: usize = 64;

/// Frames of a pool that the kernel has.
struct Lent {
    pool: Pool,
    /// Cache lines from one frame to the next.
    stride: u32,
    frames: Box<[Option<RawFrame>]>,
    count: usize,
}

impl Lent {
    fn new(pool: &Pool) -> Self {
        let region = pool.region();
        let frames = vec![None; region.frames].into();
        // Strides are multiples of a line, and far below 4 GiB.
        Self { pool: pool.clone(), stride: (region.stride / LINE) as u32, frames, count: 0 }
    }
    /// Lends a packet's frame; answers the frame's offset in the UMEM.
    ///
    /// The packet must be in one of the pool's small frames.
    #[inline(always)]
    fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        if !self.pool.owns_small(&packet) {
            return Err(packet);
        }
        let index = packet.index() as usize;
        let Some(place) = self.frames.get_mut(index) else { return Err(packet) };
        *place = Some(packet.into_raw());
        self.count += 1;
        Ok(self.address(index))
    }
    /// The offset of a frame in the UMEM.
    #[inline(always)]
    fn address(&self, index: usize) -> u64 {
        index as u64 * u64::from(self.stride) * LINE as u64
    }
    /// Makes a packet of the `len` bytes at `address`, if the frame there was lent.
    ///
    /// Only for frames that the kernel has returned: see the callers.
    #[inline(always)]
    fn take_back(&mut self, address: u64, len: usize) -> Option<Packet> {
        let place = (address & ((1 << OFFSET_SHIFT) - 1)) + (address >> OFFSET_SHIFT);
        // A division of 32 bits is a fraction of one of 64: a UMEM has less than 2^32 lines.
        let index = (u32::try_from(place / LINE as u64).ok()? / self.stride) as usize;
        let start = (place - self.address(index)) as usize;
        let raw = self.frames.get_mut(index)?.take()?;
        self.count -= 1;
        // SAFETY: `raw` came from `into_raw` of a packet that `owns_small` said is this pool's, and was just taken out
        // of the table, so it is used once. That the kernel is done with the frame is what its ring said, or what
        // closing the socket made so.
        unsafe { self.pool.from_raw(raw, start, len) }
    }
    /// Frees every lent frame. For closed sockets only.
    fn take_all_back(&mut self) {
        for index in 0..self.frames.len() {
            // A packet of no bytes: the contents of the frame are not read.
            drop(self.take_back(self.address(index), 0));
        }
    }
}

/// A socket, shared by its two directions.
///
/// It is closed when the last of them is dropped. Then the frames that the kernel still had return to the
/// pool.
pub(crate) struct Socket {
    /// Taken when the socket is closed.
    file: Option<OwnedFd>,
    /// The lent frames of dropped directions.
    remaining: Mutex<Vec<Lent>>,
    /// The interface and queue it is bound to.
    bound: Option<(u32, u32)>,
    pool: Pool,
    /// The frames that it shares with other sockets of its queue, which must not return before it is closed.
    _shared: Option<Arc<SharedFilling>>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("only drop takes the file").as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let zero_copy = self._shared.is_none() && self.is_zero_copy();
        // The directions' mappings of the rings, which also keep a socket open, were dropped before.
        drop(self.file.take());
        let gone = !zero_copy || self.bound.is_none_or(|(index, queue)| is_free(index, queue));
        let mut remaining = std::mem::take(self.remaining.get_mut().unwrap_or_else(PoisonError::into_inner));
        for lent in &mut remaining {
            if gone {
                lent.take_all_back();
            }
            // Otherwise a device may still write into them: they and the pool are never freed.
        }
    }
}

/// Whether the kernel has finished unbinding a zero-copy socket from a queue.
///
/// The kernel does that in the background, and a queue can be bound again only then. Waits up to two seconds.
fn is_free(index: u32, queue: u32) -> bool {
    let Ok(probe) = Pool::builder().frames(64).for_device(true).build() else { return false };
    (0..200).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let bound = Setup::open(64, 64).and_then(|setup| {
            register(&setup.file, &probe)?;
            Ok(rustix::net::bind(
                &setup.file,
                &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, queue),
            )?)
        });
        // Any answer but "busy" says that the queue is free: a device that is gone does not write either.
        !matches!(bound, Err(error) if error.raw_os_error() == Some(libc::EBUSY))
    })
}

impl Socket {
    /// Whether the driver works on the frames themselves.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            sockopt::xdp_options(file)
                .is_ok_and(|flags| flags.contains(rustix::net::xdp::XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
        })
    }
    /// The kernel's counters.
    pub(crate) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(self)?)
    }
    /// The socket's pending error, which this clears.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        match sockopt::socket_error(self) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(error.into()),
        }
    }
    /// The pool whose frames the socket uses.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
    fn keep(&self, lent: Lent) {
        self.remaining.lock().unwrap_or_else(PoisonError::into_inner).push(lent);
    }
}

/// The binding of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    pub(crate) index: u32,
    pub(crate) queue: u32,
    /// `Some(true)` for zero copy, `Some(false)` for copy, `None` for the better one that the driver
    /// supports.
    pub(crate) zero_copy: Option<bool>,
    /// Accept packets in several frames.
    pub(crate) fragments: bool,
    /// Packets that the ring of arrivals holds.
    pub(crate) arrivals: u32,
}

/// A socket that is not bound yet.
struct Setup {
    file: OwnedFd,
    ring: u32,
}

impl Setup {
    fn open(ring: u32, arrivals: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        sockopt::set_xdp_umem_fill_ring_size(&file, ring)?;
        sockopt::set_xdp_umem_completion_ring_size(&file, ring)?;
        sockopt::set_xdp_rx_ring_size(&file, arrivals)?;
        sockopt::set_xdp_tx_ring_size(&file, ring)?;
        Ok(Self { file, ring })
    }

    fn finish(self, pool: &Pool, bind: &Bind) -> io::Result<(ReceiveRing, TransmitRing)> {
        let offsets = sockopt::xdp_mmap_offsets(&self.file)?;
        let word = size_of::<u64>();
        let descriptor = size_of::<Descriptor>();
        let fill = Ring::map(&self.file, PGOFF_FILL, &offsets.fr, self.ring, word)?;
        let completion = Ring::map(&self.file, PGOFF_COMPLETION, &offsets.cr, self.ring, word)?;
        let receive = Ring::map(&self.file, PGOFF_RX, &offsets.rx, bind.arrivals, descriptor)?;
        let transmit = Ring::map(&self.file, PGOFF_TX, &offsets.tx, self.ring, descriptor)?;
        let socket = Arc::new(Socket {
            file: Some(self.file),
            remaining: Mutex::default(),
            bound: Some((bind.index, bind.queue)),
            pool: pool.clone(),
            _shared: None,
        });
        let filling = Some(Filling { fill, lent: Lent::new(pool) });
        Ok((
            ReceiveRing { receive, filling, shared: None, socket: Arc::clone(&socket) },
            TransmitRing { transmit, completion, lent: Some(Lent::new(pool)), socket },
        ))
    }
}

/// Registers a pool's small frames as the socket's UMEM.
///
/// Frames that are not a power of two apart are unaligned chunks. A device can use these only on huge pages:
/// a frame may lie in two small pages, which need not be neighbours in physical memory.
fn register(file: &OwnedFd, pool: &Pool) -> io::Result<()> {
    let region = pool.region();
    let aligned = region.stride == region.frame_size;
    if !aligned && pool.pages() != Pages::Huge {
        return Err(io::Error::other(
            "the pool's frames are neither a power of two apart nor on huge pages: build it with `for_device(true)`",
        ));
    }
    let flags =
        if aligned { XdpUmemRegFlags::empty() } else { XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG };
    let umem = XdpUmemReg {
        addr: region.base.as_ptr() as u64,
        len: region.len as u64,
        chunk_size: region.frame_size as u32,
        // The kernel adds its own 256 bytes, which are a pool's headroom.
        headroom: 0,
        flags,
        tx_metadata_len: 0,
    };
    // The kernel writes only into frames that are lent to it, which no packet names meanwhile.
    Ok(sockopt::set_xdp_umem_reg(file, umem)?)
}

/// Opens a socket and binds it to a queue of an interface.
///
/// It uses the UMEM of `sibling`, if there is one.
pub(crate) fn open(
    pool: &Pool,
    ring: u32,
    bind: &Bind,
    sibling: Option<&Socket>,
) -> io::Result<(ReceiveRing, TransmitRing)> {
    let setup = Setup::open(ring, bind.arrivals)?;
    match sibling {
        Some(sibling) => {
            // The kernel would write into frames of another pool's packets.
            if sibling.pool.region().base != pool.region().base {
                return Err(io::Error::other("the sockets are of different pools"));
            }
            let address = SocketAddrXdpWithSharedUmem {
                addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, bind.index, bind.queue),
                shared_umem_fd: sibling.as_fd(),
            };
            rustix::net::bind(&setup.file, &address)?;
        }
        None => {
            register(&setup.file, pool)?;
            let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            if bind.fragments {
                flags |= SocketAddrXdpFlags::XDP_USE_SG;
            }
            flags |= match bind.zero_copy {
                Some(true) => SocketAddrXdpFlags::XDP_ZEROCOPY,
                Some(false) => SocketAddrXdpFlags::XDP_COPY,
                None => SocketAddrXdpFlags::empty(),
            };
            rustix::net::bind(&setup.file, &SocketAddrXdp::new(flags, bind.index, bind.queue))?;
        }
    }
    // More packets a system call in copy mode, where the kernel knows the option (6.17).
    let _ = set(&setup.file, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &ring.min(netbricks_buffer::BATCH as u32));
    // Copies on their way through the kernel are charged to the socket.
    let _ = set(&setup.file, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(16_i32 << 20));
    setup.finish(pool, bind)
}

/// Has the receiver poll the socket's driver, instead of interrupts: up to `microseconds` and `packets` a
/// call.
pub(crate) fn prefer_busy_poll(socket: &Socket, microseconds: u32, packets: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds)?;
    set(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &packets)
}

/// One of the four rings. Its entries have one producer and one consumer; one of the two is the kernel.
struct Ring {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    /// Our own index, and the last value that we saw of the kernel's.
    mine: u32,
    theirs: u32,
}

impl Ring {
    fn map(file: &OwnedFd, page: u64, at: &XdpRingOffset, size: u32, entry: usize) -> io::Result<Self> {
        let flags =
            at.flags.ok_or_else(|| io::Error::other("the kernel is older than 5.4: no need-wakeup flags"))?;
        let mapping = Mapping::shared(file.as_fd(), page, at.desc as usize + size as usize * entry)?;
        let (producer, consumer) = (at.producer as usize, at.consumer as usize);
        let (flags, entries) = (flags as usize, at.desc as usize);
        Ok(Self { mapping, producer, consumer, flags, entries, size, mine: 0, theirs: 0 })
    }
    #[inline(always)]
    fn place(&self, index: u32, entry: usize) -> usize {
        self.entries + (index & (self.size - 1)) as usize * entry
    }
    /// As producer: the number of free entries, at least `wanted` if there are so many.
    #[inline(always)]
    fn free(&mut self, wanted: u32) -> u32 {
        let free = self.size.saturating_sub(self.mine.wrapping_sub(self.theirs));
        if free >= wanted {
            return free;
        }
        self.theirs = self.mapping.load_acquire(self.consumer);
        self.size.saturating_sub(self.mine.wrapping_sub(self.theirs))
    }
    /// As producer: gives the entries written up to `mine` to the kernel.
    #[inline(always)]
    fn publish(&self) {
        self.mapping.store_release(self.producer, self.mine);
    }
    /// As consumer: the number of waiting entries.
    #[inline(always)]
    fn waiting(&mut self) -> u32 {
        let waiting = self.theirs.wrapping_sub(self.mine);
        if waiting > 0 {
            return waiting;
        }
        self.theirs = self.mapping.load_acquire(self.producer);
        self.theirs.wrapping_sub(self.mine).min(self.size)
    }
    /// As consumer: returns the entries read up to `mine` to the kernel.
    #[inline(always)]
    fn release(&self) {
        self.mapping.store_release(self.consumer, self.mine);
    }
    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        self.mapping.load_relaxed(self.flags) & RING_NEED_WAKEUP != 0
    }
}

/// The contents of one descriptor.
pub(crate) struct Arrival {
    /// The packet, or a piece of one.
    pub(crate) packet: Packet,
    /// The packet continues in the next arrival.
    pub(crate) continues: bool,
}

/// The fill ring, and the frames that the kernel has for arrivals.
struct Filling {
    fill: Ring,
    lent: Lent,
}

/// The filling that several sockets of one queue share. Each takes it for the time of a batch.
struct SharedFilling {
    filling: Mutex<Option<Filling>>,
    /// The number of lent frames when it was last put back.
    stocked: AtomicUsize,
    /// The socket that has the fill ring. It is closed last.
    first: Arc<Socket>,
}

impl Drop for SharedFilling {
    fn drop(&mut self) {
        let filling = self.filling.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Filling { fill, lent }) = filling {
            // The mapping would keep the socket open.
            drop(fill);
            self.first.keep(lent);
        }
    }
}

/// The receiving direction: receive and fill rings.
pub(crate) struct ReceiveRing {
    // The mappings are dropped before the socket, which they would keep open.
    receive: Ring,
    /// `None` while another socket of the queue has it.
    filling: Option<Filling>,
    shared: Option<Arc<SharedFilling>>,
    socket: Arc<Socket>,
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        if self.shared.is_some() {
            self.put_back();
        } else if let Some(Filling { fill, lent }) = self.filling.take() {
            drop(fill);
            self.socket.keep(lent);
        }
    }
}

impl ReceiveRing {
    /// Opens another socket on the same queue, for a part of its arrivals.
    ///
    /// The kernel fills frames from one ring for all sockets of a queue. So each side takes the ring
    /// ([`borrow_filling`](Self::borrow_filling)) before it works, and puts it back.
    pub(crate) fn open_beside(&mut self, pool: &Pool, bind: &Bind) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        sockopt::set_xdp_rx_ring_size(&file, bind.arrivals)?;
        let address = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, bind.index, bind.queue),
            shared_umem_fd: self.socket.as_fd(),
        };
        rustix::net::bind(&file, &address)?;
        let offsets = sockopt::xdp_mmap_offsets(&file)?;
        let receive = Ring::map(&file, PGOFF_RX, &offsets.rx, bind.arrivals, size_of::<Descriptor>())?;
        let shared = Arc::clone(self.shared.get_or_insert_with(|| {
            let filling = self.filling.take();
            let stocked = AtomicUsize::new(filling.as_ref().map_or(0, |filling| filling.lent.count));
            Arc::new(SharedFilling { filling: Mutex::new(filling), stocked, first: Arc::clone(&self.socket) })
        }));
        let socket = Arc::new(Socket {
            file: Some(file),
            remaining: Mutex::default(),
            bound: Some((bind.index, bind.queue)),
            pool: pool.clone(),
            _shared: Some(Arc::clone(&shared)),
        });
        Ok(Self { receive, filling: None, shared: Some(shared), socket })
    }

    /// Takes the fill ring, where sockets share it. Answers whether it is here now.
    #[inline(always)]
    pub(crate) fn borrow_filling(&mut self) -> bool {
        match &self.shared {
            None => true,
            Some(shared) => {
                self.filling = shared.filling.try_lock().ok().and_then(|mut filling| filling.take());
                self.filling.is_some()
            }
        }
    }
    /// Puts the fill ring back, where sockets share it.
    #[inline(always)]
    pub(crate) fn put_back(&mut self) {
        let Some(shared) = &self.shared else { return };
        if let Some(filling) = self.filling.take() {
            shared.stocked.store(filling.lent.count, Ordering::Relaxed);
            *shared.filling.lock().unwrap_or_else(PoisonError::into_inner) = Some(filling);
        }
    }

    fn filling(&mut self) -> &mut Filling {
        self.filling.as_mut().expect("sockets that share it borrow it before they work")
    }
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }
    /// The number of frames that the kernel has for arrivals.
    pub(crate) fn stocked(&self) -> usize {
        match (&self.filling, &self.shared) {
            (Some(filling), _) => filling.lent.count,
            (None, Some(shared)) => shared.stocked.load(Ordering::Relaxed),
            (None, None) => 0,
        }
    }
    /// The number of waiting descriptors.
    #[inline(always)]
    pub(crate) fn waiting(&mut self) -> usize {
        self.receive.waiting() as usize
    }
    /// The next arrival.
    ///
    /// `Err` when the kernel named a frame or bytes that were never lent: nothing is known of the packet.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Result<Arrival, ()>> {
        if self.receive.waiting() == 0 {
            return None;
        }
        let place = self.receive.place(self.receive.mine, size_of::<Descriptor>());
        let descriptor: Descriptor = self.receive.mapping.read(place);
        self.receive.mine = self.receive.mine.wrapping_add(1);
        // The kernel is done with frames that it puts into the receive ring.
        let packet = self.filling().lent.take_back(descriptor.address, descriptor.len as usize);
        let continues = descriptor.options & CONTINUES != 0;
        Some(packet.map(|packet| Arrival { packet, continues }).ok_or(()))
    }
    /// Returns the descriptors read so far.
    #[inline(always)]
    pub(crate) fn release(&self) {
        self.receive.release();
    }
    /// Room for frames to be stocked, at least `wanted` if there is so much.
    #[inline(always)]
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        self.filling().fill.free(wanted as u32) as usize
    }
    /// Lends an empty packet's frame for an arrival.
    ///
    /// Gives the packet back if its frame is not in the UMEM or there is no room.
    #[inline(always)]
    pub(crate) fn stock(&mut self, packet: Packet) -> Result<(), Packet> {
        let Filling { fill, lent } = self.filling();
        if fill.free(1) == 0 {
            return Err(packet);
        }
        let address = lent.lend(packet)?;
        fill.mapping.write(fill.place(fill.mine, size_of::<u64>()), address);
        fill.mine = fill.mine.wrapping_add(1);
        Ok(())
    }
    /// Gives stocked frames to the kernel.
    #[inline(always)]
    pub(crate) fn publish(&self) {
        if let Some(filling) = &self.filling {
            filling.fill.publish();
        }
    }
    /// Whether the driver sleeps and wants to be called.
    #[inline(always)]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.fill.needs_wakeup())
    }
    /// Calls the driver, or polls it if busy polling was requested.
    pub(crate) fn wake(&self) {
        let mut nothing = [0_u8; 0];
        // Errors show in what arrives, and in the link's state.
        let _ = rustix::net::recv(&*self.socket, &mut nothing, rustix::net::RecvFlags::DONTWAIT);
    }
}

/// The sending direction: transmit and completion rings.
pub(crate) struct TransmitRing {
    transmit: Ring,
    completion: Ring,
    lent: Option<Lent>,
    socket: Arc<Socket>,
}

impl Drop for TransmitRing {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.socket.keep(lent);
        }
    }
}

impl TransmitRing {
    fn lent(&mut self) -> &mut Lent {
        self.lent.as_mut().expect("only drop takes it")
    }
    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }
    /// The number of frames that the kernel has.
    #[inline(always)]
    pub(crate) fn in_flight(&self) -> usize {
        self.lent.as_ref().map_or(0, |lent| lent.count)
    }
    /// Room for packets, at least `wanted` if there is so much.
    ///
    /// Frames in flight count too, so that there is always room for their completions.
    #[inline(always)]
    pub(crate) fn room(&mut self, wanted: usize) -> usize {
        let completions = self.completion.size as usize - self.in_flight().min(self.completion.size as usize);
        (self.transmit.free(wanted as u32) as usize).min(completions)
    }
    /// Puts a packet, or a piece of one, into the ring.
    ///
    /// Gives it back if its frame is not in the UMEM or there is no room.
    #[inline(always)]
    pub(crate) fn send(&mut self, packet: Packet, continues: bool) -> Result<(), Packet> {
        if self.room(1) == 0 {
            return Err(packet);
        }
        let (start, len) = (packet.headroom() as u64, packet.len() as u32);
        let frame = self.lent().lend(packet)?;
        let options = if continues { CONTINUES } else { 0 };
        let descriptor = Descriptor { address: frame + start, len, options };
        self.transmit
            .mapping
            .write(self.transmit.place(self.transmit.mine, size_of::<Descriptor>()), descriptor);
        self.transmit.mine = self.transmit.mine.wrapping_add(1);
        Ok(())
    }
    /// Gives packets in the ring to the kernel.
    #[inline(always)]
    pub(crate) fn publish(&self) {
        self.transmit.publish();
    }
    /// The number of packets in the ring that the kernel has not taken yet.
    #[inline(always)]
    pub(crate) fn unsent(&mut self) -> u32 {
        self.transmit.size - self.transmit.free(u32::MAX)
    }
    /// Whether the driver wants to be called.
    #[inline(always)]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.transmit.needs_wakeup()
    }
    /// Calls the driver.
    pub(crate) fn wake(&self) -> io::Result<()> {
        rustix::net::send(&*self.socket, &[], SendFlags::DONTWAIT)?;
        Ok(())
    }
    /// The next frame that was sent.
    #[inline(always)]
    pub(crate) fn reclaim(&mut self) -> Option<Packet> {
        while self.completion.waiting() > 0 {
            let place = self.completion.place(self.completion.mine, size_of::<u64>());
            let address: u64 = self.completion.mapping.read(place);
            self.completion.mine = self.completion.mine.wrapping_add(1);
            // The kernel is done with frames that it puts into the completion ring.
            if let Some(packet) = self.lent().take_back(address, 0) {
                return Some(packet);
            }
        }
        None
    }
    /// Returns the completions read so far.
    #[inline(always)]
    pub(crate) fn release(&self) {
        self.completion.release();
    }
}
