//! A guest of the tests, which drives its two virtqueues by the front end of `vhost`.

use std::os::fd::OwnedFd;

use rustix::fs::SealFlags;
use vhost::vhost_user::message::VhostUserHeaderFlag;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::*;
use crate::sys::shared::SharedMemory;
use crate::vhost_user::device::feature;

/// Descriptors of a virtqueue.
pub(super) const SIZE: u16 = 64;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
/// The number of the virtqueue into which the guest receives, and of that by which it sends.
pub(super) const IN: usize = 0;
pub(super) const OUT: usize = 1;
/// The guest's memory: two regions that lie side by side, in the guest's addresses and in the front end's.
pub(super) const BASE: u64 = 0x10_0000;
pub(super) const USER: u64 = 0x7000_0000_0000;
const REGION: u64 = 0x10_0000;
pub(super) const END: u64 = BASE + 2 * REGION;
/// Places from the beginning of a virtqueue.
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const RING: usize = 0x4000;
/// The places of buffers: one of 4 KiB for each descriptor of both virtqueues, from here on.
const BUFFERS: usize = 0x1_0000;
const BUFFER: usize = 4_096;

pub(super) struct Guest {
    pub(super) memory: SharedMemory,
    pub(super) file: OwnedFd,
    pub(super) front: Frontend,
    pub(super) kicks: [EventFd; 2],
    pub(super) calls: [EventFd; 2],
    /// The next available index, and the next used one to look at.
    next: [u16; 2],
    seen: [u16; 2],
    pub(super) features: u64,
}

impl Guest {
    pub(super) fn front(lab: &Lab) -> Frontend {
        let mut front = None;
        eventually("a connection", || {
            // It is ended at once while the port has not seen yet that the last peer has gone.
            front = Frontend::connect(lab.path(), 128).ok().filter(|front| front.get_features().is_ok());
            front.is_some()
        });
        front.unwrap()
    }
    /// The features that the port offers.
    pub(super) fn offered(lab: &Lab) -> u64 {
        Self::front(lab).get_features().unwrap()
    }

    /// A guest that has agreed on all offered features among `wanted`. Its virtqueues run.
    pub(super) fn connect(lab: &Lab, wanted: u64) -> Self {
        Self::talk(Self::front(lab), wanted)
    }
    pub(super) fn talk(mut front: Frontend, wanted: u64) -> Self {
        front.set_owner().unwrap();
        let offered = front.get_features().unwrap();
        // The front end goes on to ask for answers, so that each request is done when it returns.
        let protocol = 1 << 30;
        let features = offered & (wanted | protocol);
        let answers = front.get_protocol_features().unwrap();
        assert!(answers.contains(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK));
        front.set_protocol_features(answers).unwrap();
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        front.set_features(features).unwrap();
        let (memory, file) = SharedMemory::create("guest", 2 * REGION as usize).unwrap();
        let event = || EventFd::new(EFD_NONBLOCK).unwrap();
        let mut guest = Self {
            memory,
            file,
            front,
            kicks: [event(), event()],
            calls: [event(), event()],
            next: [0; 2],
            seen: [0; 2],
            features,
        };
        guest.front.set_mem_table(&guest.regions()).unwrap();
        for queue in [IN, OUT] {
            guest.start(queue, 0);
            guest.front.set_vring_enable(queue, true).unwrap();
        }
        guest
    }
    pub(super) fn regions(&self) -> [VhostUserMemoryRegionInfo; 2] {
        use std::os::fd::AsRawFd;
        [0, REGION].map(|offset| VhostUserMemoryRegionInfo {
            guest_phys_addr: BASE + offset,
            memory_size: REGION,
            userspace_addr: USER + offset,
            mmap_offset: offset,
            mmap_handle: self.file.as_raw_fd(),
        })
    }
    /// Goes on in other memory with the same contents.
    pub(super) fn move_memory(&mut self) {
        let (memory, file) = SharedMemory::create("moved", self.memory.len()).unwrap();
        assert!(memory.copy_in(0, &self.bytes(0, self.memory.len())));
        (self.memory, self.file) = (memory, file);
        self.front.set_mem_table(&self.regions()).unwrap();
    }
    pub(super) fn places(queue: usize) -> VringConfigData {
        let place = USER + (queue * RING) as u64;
        VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: place,
            used_ring_addr: place + USED as u64,
            avail_ring_addr: place + AVAILABLE as u64,
            log_addr: None,
        }
    }
    /// Starts a virtqueue at an available index.
    pub(super) fn start(&mut self, queue: usize, base: u16) {
        self.front.set_vring_num(queue, SIZE).unwrap();
        self.front.set_vring_addr(queue, &Self::places(queue)).unwrap();
        self.front.set_vring_base(queue, base).unwrap();
        self.front.set_vring_call(queue, &self.calls[queue]).unwrap();
        self.front.set_vring_kick(queue, &self.kicks[queue]).unwrap();
    }

    pub(super) fn header(&self) -> usize {
        if self.features & (feature::VERSION_1 | feature::MRG_RXBUF) == 0 { 10 } else { 12 }
    }
    /// The place of a descriptor's buffer in the memory.
    pub(super) fn buffer(queue: usize, number: u16) -> usize {
        BUFFERS + BUFFER * (queue * usize::from(SIZE) + usize::from(number))
    }
    /// Writes a descriptor. The address is the guest's.
    pub(super) fn describe(&self, queue: usize, number: u16, (at, len): (u64, u32), flags: u16, next: u16) {
        self.describe_at(queue * RING + 16 * usize::from(number), (at, len), flags, next);
    }
    pub(super) fn describe_at(&self, place: usize, (at, len): (u64, u32), flags: u16, next: u16) {
        let mut bytes = at.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        assert!(self.memory.copy_in(place, &bytes));
    }
    /// Offers the chain that begins with a descriptor.
    pub(super) fn offer(&mut self, queue: usize, head: u16) {
        let next = self.next[queue];
        let element = queue * RING + AVAILABLE + 4 + 2 * usize::from(next % SIZE);
        self.memory.store_release(element, head);
        self.set_index(queue, next.wrapping_add(1));
    }
    /// Writes a head into a place of an available ring.
    pub(super) fn set_head(&self, queue: usize, place: u16, head: u16) {
        self.memory.store_release(queue * RING + AVAILABLE + 4 + 2 * usize::from(place), head);
    }
    /// Has this many chains available that are not used yet.
    pub(super) fn fill_index(&self, queue: usize, count: u16) {
        let used = self.memory.load_acquire(queue * RING + USED + 2);
        self.memory.store_release(queue * RING + AVAILABLE + 2, used.wrapping_add(count));
    }
    /// Moves an available index on.
    pub(super) fn move_index(&self, queue: usize, by: u16) {
        let at = queue * RING + AVAILABLE + 2;
        self.memory.store_release(at, self.memory.load_acquire(at).wrapping_add(by));
    }
    pub(super) fn set_index(&mut self, queue: usize, index: u16) {
        self.next[queue] = index;
        self.memory.store_release(queue * RING + AVAILABLE + 2, index);
    }
    /// Whether the guest wants no notification of a virtqueue, where there is no index for that.
    pub(super) fn mask(&self, queue: usize, masked: bool) {
        self.memory.store_release(queue * RING + AVAILABLE, masked.into());
    }
    /// Wants a notification when this many more chains are used.
    pub(super) fn want(&self, queue: usize, more: u16) {
        let at = queue * RING + AVAILABLE + 4 + 2 * usize::from(SIZE);
        self.memory.store_release(at, self.seen[queue].wrapping_add(more).wrapping_sub(1));
    }
    /// The flags that the port wrote into a used ring.
    pub(super) fn flags(&self, queue: usize) -> u16 {
        self.memory.load_acquire(queue * RING + USED)
    }
    /// The chains that were used since the last call: their heads and the bytes written.
    pub(super) fn used(&mut self, queue: usize) -> Vec<(u16, usize)> {
        let end = self.memory.load_acquire(queue * RING + USED + 2);
        let mut used = Vec::new();
        while self.seen[queue] != end {
            let place = queue * RING + USED + 4 + 8 * usize::from(self.seen[queue] % SIZE);
            let (head, written) = (self.memory.load_u32(place), self.memory.load_u32(place + 4));
            used.push((u16::try_from(head).unwrap(), written as usize));
            self.seen[queue] = self.seen[queue].wrapping_add(1);
        }
        used
    }
    pub(super) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.copy_out(at, &mut bytes));
        bytes
    }

    /// Sends a frame of one descriptor, behind this virtio-net header.
    pub(super) fn send_with(&mut self, mut header: Vec<u8>, frame: &[u8]) {
        header.resize(self.header(), 0);
        header.extend(frame);
        let number = self.next[OUT] % SIZE;
        let at = Self::buffer(OUT, number);
        assert!(self.memory.copy_in(at, &header) && header.len() <= BUFFER);
        self.describe(OUT, number, (BASE + at as u64, header.len() as u32), 0, 0);
        self.offer(OUT, number);
    }
    pub(super) fn send(&mut self, frame: &[u8]) {
        self.send_with(Vec::new(), frame);
    }
    /// Offers buffers of this many bytes to receive into.
    pub(super) fn post(&mut self, count: u16, len: u32) {
        for _ in 0..count {
            let number = self.next[IN] % SIZE;
            let at = BASE + Self::buffer(IN, number) as u64;
            self.describe(IN, number, (at, len), WRITE, 0);
            self.offer(IN, number);
        }
    }
    /// The frames that arrived, with their virtio-net headers.
    pub(super) fn received_with(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (header, used) = (self.header(), self.used(IN));
        let mut parts = used.iter().map(|(head, written)| self.bytes(Self::buffer(IN, *head), *written));
        let mut frames = Vec::new();
        while let Some(mut first) = parts.next() {
            let mut frame = first.split_off(header);
            let chains = if header == 12 { u16::from_le_bytes([first[10], first[11]]) } else { 1 };
            (1..chains).for_each(|_| frame.extend(parts.next().expect("all chains of a frame at once")));
            frames.push((first, frame));
        }
        frames
    }
    pub(super) fn received(&mut self) -> Vec<Vec<u8>> {
        let frames = self.received_with();
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Sends frames to the port and back, each at a time.
    pub(super) fn echo(&mut self, lab: &mut Lab, frames: &[Vec<u8>]) {
        for frame in frames {
            self.send(frame);
            lab.turns();
            assert_eq!(self.used(OUT).len(), 1);
            assert!(lab.far.frames(0) == [frame.clone()], "{} from the guest", frame.len());
            self.post((frame.len() / BUFFER + 2) as u16, BUFFER as u32);
            assert!(lab.far.push(0, frame));
            lab.turns();
            assert!(self.received() == [frame.clone()], "{} to the guest", frame.len());
            // The rest of the buffers goes to the next frame.
        }
    }
}

/// A file of the guest's size without seals.
pub(super) fn unsealed() -> OwnedFd {
    let file = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, 2 * REGION).unwrap();
    assert!(rustix::fs::fcntl_get_seals(&file).unwrap() == SealFlags::empty());
    file
}
