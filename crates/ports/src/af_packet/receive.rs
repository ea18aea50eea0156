//! A TPACKET_V3 receive ring as a receive queue.
//!
//! Packets are copied out of blocks that the kernel filled. VLAN tags are put back, and the sender's offloads
//! are noted. See Documentation/networking/packet_mmap.rst for the layout.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netbricks_buffer::{Batch, Offload, Packet, Pool};
use netbricks_core::{Context, DropReason, Poll};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::interface::LinkHeader;
use crate::port::{Counters, ReceiveQueue};
use crate::segment::Cut;
use crate::sys::packet::BlockRing;
use crate::virtio::{self, VirtioHeader};

const TP_STATUS_CSUMNOTREADY: u32 = 1 << 3;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Bytes of the two MAC addresses, behind which a VLAN tag stands.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
const ETHERNET: usize = 14;
/// Bytes of the longest frame without tags whose length an IP header can state.
const LONGEST: usize = ETHERNET + 65_535;
/// An idle queue checks for the socket's error once in this many turns.
const LOOK: u32 = 64;

/// `struct tpacket_block_desc` with its `tpacket_hdr_v1`, as far as it is used.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BlockHeader {
    _version: u32,
    _private: u32,
    _status: u32,
    packets: u32,
    first: u32,
}

/// `struct tpacket3_hdr` with its `tpacket_hdr_variant1`.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FrameHeader {
    next: u32,
    _seconds: u32,
    _nanoseconds: u32,
    captured: u32,
    len: u32,
    status: u32,
    mac: u16,
    _network: u16,
    rxhash: u32,
    vlan_control: u32,
    vlan_protocol: u16,
    _padding: u16,
}

/// The reason why an arrival was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost {
    reason: DropReason,
    bytes: usize,
}

pub(super) struct Receiver {
    ring: BlockRing,
    /// The offset of the next packet in the current block, and the number of packets from there on.
    ///
    /// The number is 0 when no block is ours.
    at: usize,
    left: u32,
    /// The number of parts of that packet that were received already, when no buffer takes it whole.
    part: usize,
    header: LinkHeader,
    idle: u32,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(ring: BlockRing, header: LinkHeader, counters: Arc<Counters>) -> Self {
        Self { ring, at: 0, left: 0, part: 0, header, idle: 0, counters }
    }

    /// Whether there is a packet at `at`. Opens a new block if needed.
    #[inline]
    fn advance(&mut self) -> bool {
        while self.left == 0 {
            let Some(block) = self.ring.block() else { return false };
            if let Ok((header, _)) = BlockHeader::ref_from_prefix(block) {
                self.at = header.first as usize;
                self.left = header.packets;
            }
            if self.left == 0 {
                self.ring.release();
            }
        }
        true
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let (mut packets, mut bytes, mut no_buffer, mut too_big) = (0, 0, 0, 0);
        while batch.len() < cx.burst() && self.advance() {
            let block = self.ring.block().unwrap_or_default();
            let Frame { next, part: arrival, is_last } =
                read_frame(block, self.at, self.part, self.header, cx.pool());
            packets += 1;
            match arrival {
                Ok(packet) => {
                    bytes += packet.len() as u64;
                    if batch.push(packet).is_err() {
                        break;
                    }
                }
                Err(lost) => {
                    bytes += lost.bytes as u64;
                    no_buffer += u64::from(lost.reason == DropReason::PoolExhausted);
                    too_big += u64::from(lost.reason == DropReason::TooBig);
                    cx.receiving().lost_on_arrival(lost.reason, 1, lost.bytes as u64);
                }
            }
            if !is_last {
                self.part += 1;
                continue;
            }
            self.part = 0;
            self.left -= 1;
            match next {
                Some(next) => self.at += next,
                // A chain that ends early has no more packets.
                None => self.left = 0,
            }
            if self.left == 0 {
                // Released at once, since the socket counts as readable as long as we have a block.
                self.ring.release();
            }
        }
        if packets == 0 {
            if self.idle.is_multiple_of(LOOK) {
                // The interface was switched off or is gone. The socket says so once, and stays readable
                // until it is asked. The queue stays idle; the kernel binds the socket again when the
                // interface comes up.
                let _ = self.ring.socket().take_error();
            }
            self.idle = self.idle.wrapping_add(1);
            return Poll::Idle;
        }
        self.idle = 0;
        self.counters.arrived(packets, bytes, no_buffer, too_big);
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        watch(self.ring.socket().as_fd());
    }
}

/// The frame at a place of a block.
struct Frame {
    /// The distance to the next frame in bytes, if there is one.
    next: Option<usize>,
    /// The packet, or a part of it when no buffer takes it whole.
    part: Result<Packet, Lost>,
    /// Whether this is the last part.
    is_last: bool,
}

/// Reads part `part` of the frame at `at`.
#[inline]
fn read_frame(block: &[u8], at: usize, part: usize, link: LinkHeader, pool: &Pool) -> Frame {
    let malformed =
        |next| Frame { next, part: Err(Lost { reason: DropReason::Malformed, bytes: 0 }), is_last: true };
    let Some(Ok((header, _))) = block.get(at..).map(FrameHeader::ref_from_prefix) else {
        return malformed(None);
    };
    let next = (header.next > 0).then_some(header.next as usize);
    let captured = header.captured as usize;
    let Some(start) = at.checked_add(header.mac as usize) else { return malformed(next) };
    let Some(bytes) = block.get(start..).and_then(|rest| rest.get(..captured)) else {
        return malformed(next);
    };
    let virtio = start.checked_sub(virtio::LEN).and_then(|from| block.get(from..start));
    let Some(Ok(virtio)) = virtio.map(VirtioHeader::read_from_bytes) else { return malformed(next) };
    if link == LinkHeader::None {
        return Frame { next, part: make_ip_packet(header, virtio, bytes, pool), is_last: true };
    }
    // A packet that fits an IP length field and a buffer is received whole.
    if bytes.len() > LONGEST.min(pool.largest_packet().saturating_sub(TAG)) {
        let (part, is_last) = read_part(header, virtio, bytes, part, pool);
        return Frame { next, part, is_last };
    }
    Frame { next, part: make_packet(header, virtio, bytes, pool), is_last: true }
}

/// The tag that the kernel removed, as it stood in the frame.
#[inline]
fn tag(header: &FrameHeader, bytes: &[u8]) -> Option<[u8; TAG]> {
    if header.status & TP_STATUS_VLAN_VALID == 0 || bytes.len() < ADDRESSES {
        return None;
    }
    let protocol = match header.status & TP_STATUS_VLAN_TPID_VALID {
        0 => 0x8100,
        _ => header.vlan_protocol,
    };
    let [p0, p1] = protocol.to_be_bytes();
    let [c0, c1] = (header.vlan_control as u16).to_be_bytes();
    Some([p0, p1, c0, c1])
}

#[inline]
fn make_packet(
    header: &FrameHeader,
    virtio: VirtioHeader,
    bytes: &[u8],
    pool: &Pool,
) -> Result<Packet, Lost> {
    let tag = tag(header, bytes);
    let inserted = if tag.is_some() { TAG } else { 0 };
    let len = bytes.len() + inserted;
    let lost = |reason| Lost { reason, bytes: len };
    if header.captured < header.len {
        return Err(lost(DropReason::TooBig));
    }
    let mut offload = virtio.offload(inserted, len).ok_or_else(|| lost(DropReason::NoOffload))?;
    if header.status & TP_STATUS_CSUMNOTREADY == 0 && !offload.needs_checksum {
        offload.checksum_valid |= header.status & TP_STATUS_CSUM_VALID != 0;
    }
    let mut packet = pool.empty(len).ok_or_else(|| {
        lost(if len > pool.largest_packet() { DropReason::TooBig } else { DropReason::PoolExhausted })
    })?;
    let written = match tag {
        Some(tag) => packet
            .extend_from(&bytes[..ADDRESSES])
            .and_then(|()| packet.extend_from(&tag))
            .and_then(|()| packet.extend_from(&bytes[ADDRESSES..])),
        None => packet.extend_from(bytes),
    };
    written.map_err(|_| lost(DropReason::TooBig))?;
    if offload != Offload::default() {
        packet.set_offload(offload);
    }
    packet.set_flow_hash(header.rxhash);
    Ok(packet)
}

/// Makes a packet of IP data from a device without link headers, behind an Ethernet header without addresses.
#[inline]
fn make_ip_packet(
    header: &FrameHeader,
    virtio: VirtioHeader,
    bytes: &[u8],
    pool: &Pool,
) -> Result<Packet, Lost> {
    let lost = |reason| Lost { reason, bytes: bytes.len() };
    let ethertype = match bytes.first().map(|first| first >> 4) {
        Some(4) => [8, 0],
        Some(6) => [0x86, 0xdd],
        _ => return Err(lost(DropReason::Malformed)),
    };
    let mut ethernet = [0; ETHERNET];
    ethernet[ADDRESSES..].copy_from_slice(&ethertype);
    let len = ETHERNET + bytes.len();
    if header.captured < header.len || len > pool.largest_packet() {
        return Err(lost(DropReason::TooBig));
    }
    let mut offload = virtio.offload(ETHERNET, len).ok_or_else(|| lost(DropReason::NoOffload))?;
    if header.status & TP_STATUS_CSUMNOTREADY == 0 && !offload.needs_checksum {
        offload.checksum_valid |= header.status & TP_STATUS_CSUM_VALID != 0;
    }
    let mut packet = pool.empty(len).ok_or_else(|| lost(DropReason::PoolExhausted))?;
    packet
        .extend_from(&ethernet)
        .and_then(|()| packet.extend_from(bytes))
        .map_err(|_| lost(DropReason::TooBig))?;
    if offload != Offload::default() {
        packet.set_offload(offload);
    }
    packet.set_flow_hash(header.rxhash);
    Ok(packet)
}

/// Part `part` of a frame that no buffer takes whole, and whether it is the last part.
///
/// Segments that the sender left uncut become packets that fit, which may still have to be cut. Any other
/// frame is lost.
#[cold]
fn read_part(
    header: &FrameHeader,
    virtio: VirtioHeader,
    bytes: &[u8],
    part: usize,
    pool: &Pool,
) -> (Result<Packet, Lost>, bool) {
    let too_big = pool.largest_packet().saturating_sub(TAG);
    let cut = (header.captured == header.len)
        .then(|| virtio.offload(0, bytes.len()))
        .flatten()
        .and_then(|offload| Cut::of_arrival(bytes, &offload, too_big));
    let Some(cut) = cut else {
        // It may exceed the limit above by only a tag.
        return (make_packet(header, virtio, bytes, pool), true);
    };
    let is_last = part + 1 >= cut.segments();
    let exhausted = || Lost { reason: DropReason::PoolExhausted, bytes: cut.longest() };
    let packet = cut.part(bytes, part, pool).ok_or_else(exhausted).and_then(|mut packet| {
        if let Some(tag) = tag(header, bytes) {
            packet.push_front(TAG).map_err(|_| exhausted())?;
            packet.data_mut().copy_within(TAG..TAG + ADDRESSES, 0);
            packet.data_mut()[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
            let offload = packet.offload();
            let checksum_start = offload.checksum_start + if offload.needs_checksum { TAG as u16 } else { 0 };
            packet.set_offload(Offload { checksum_start, ..offload });
        }
        packet.set_flow_hash(header.rxhash);
        Ok(packet)
    });
    (packet, is_last)
}

/// The checksum was verified already.
const TP_STATUS_CSUM_VALID: u32 = 1 << 7;

#[cfg(test)]
mod tests;
