//! A TPACKET_V3 receive ring as a receive queue: packets are copied out of blocks that the kernel filled, with VLAN tags
//! put back and the sender's offloads noted. See Documentation/networking/packet_mmap.rst for the layout.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{Context, Drop, Poll};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::port::{Counters, ReceiveQueue};
use crate::sys::packet::BlockRing;
use crate::virtio::{self, VirtioHeader};

const TP_STATUS_CSUMNOTREADY: u32 = 1 << 3;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Bytes of the two MAC addresses, after which a VLAN tag stands.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// An idle queue looks for the socket's error once in so many turns.
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

/// Why an arrival is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lost {
    reason: Drop,
    bytes: usize,
}

pub(super) struct Receiver {
    ring: BlockRing,
    /// Offset of the next packet in the current block, and packets from there on; 0 when no block is ours.
    at: usize,
    left: u32,
    idle: u32,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(ring: BlockRing, counters: Arc<Counters>) -> Self {
        Self { ring, at: 0, left: 0, idle: 0, counters }
    }

    /// Whether there is a packet at `at`, for which a new block may have to be opened.
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
        let (mut packets, mut bytes, mut no_buffer) = (0, 0, 0);
        while batch.len() < cx.burst() && self.advance() {
            let block = self.ring.block().unwrap_or_default();
            let (next, arrival) = read_frame(block, self.at, cx.pool());
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
                    no_buffer += u64::from(lost.reason == Drop::PoolExhausted);
                    cx.receiving().lost_on_arrival(lost.reason, 1, lost.bytes as u64);
                }
            }
            self.left -= 1;
            match next {
                Some(next) => self.at += next,
                // A chain that ends early has nothing more to give.
                None => self.left = 0,
            }
            if self.left == 0 {
                // At once, since the socket counts as readable as long as we have a block.
                self.ring.release();
            }
        }
        if packets == 0 {
            if self.idle.is_multiple_of(LOOK) {
                // The interface was switched off or is gone: the socket says so once, and stays readable until it is
                // asked. There is nothing to do but to be idle; the kernel binds it again when the interface comes up.
                let _ = self.ring.socket().take_error();
            }
            self.idle = self.idle.wrapping_add(1);
            return Poll::Idle;
        }
        self.idle = 0;
        Counters::add(&self.counters.received, packets);
        Counters::add(&self.counters.received_bytes, bytes);
        if no_buffer > 0 {
            Counters::add_shared(&self.counters.no_buffer, no_buffer);
        }
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        watch(self.ring.socket().as_fd());
    }
}

/// Reads the frame at `at`: where the next one is (bytes on), if there is one, and the packet.
#[inline]
fn read_frame(block: &[u8], at: usize, pool: &Pool) -> (Option<usize>, Result<Packet, Lost>) {
    let malformed = Err(Lost { reason: Drop::Malformed, bytes: 0 });
    let Some(Ok((header, _))) = block.get(at..).map(FrameHeader::ref_from_prefix) else {
        return (None, malformed);
    };
    let next = (header.next > 0).then_some(header.next as usize);
    let captured = header.captured as usize;
    let Some(start) = at.checked_add(header.mac as usize) else { return (next, malformed) };
    let Some(bytes) = block.get(start..).and_then(|rest| rest.get(..captured)) else {
        return (next, malformed);
    };
    let virtio = start.checked_sub(virtio::LEN).and_then(|from| block.get(from..start));
    let Some(Ok(virtio)) = virtio.map(VirtioHeader::read_from_bytes) else { return (next, malformed) };
    (next, make_packet(header, virtio, bytes, pool))
}

#[inline]
fn make_packet(
    header: &FrameHeader,
    virtio: VirtioHeader,
    bytes: &[u8],
    pool: &Pool,
) -> Result<Packet, Lost> {
    let tagged = header.status & TP_STATUS_VLAN_VALID != 0 && bytes.len() >= ADDRESSES;
    let inserted = if tagged { TAG } else { 0 };
    let len = bytes.len() + inserted;
    let lost = |reason| Lost { reason, bytes: len };
    if header.captured < header.len {
        return Err(lost(Drop::TooBig));
    }
    let mut offload = virtio.offload(inserted, len).ok_or_else(|| lost(Drop::NoOffload))?;
    if header.status & TP_STATUS_CSUMNOTREADY == 0 && !offload.needs_checksum {
        offload.checksum_valid |= header.status & TP_STATUS_CSUM_VALID != 0;
    }
    let mut packet = pool
        .empty(len)
        .ok_or_else(|| lost(if len > pool.largest_packet() { Drop::TooBig } else { Drop::PoolExhausted }))?;
    let written = if tagged {
        let protocol = match header.status & TP_STATUS_VLAN_TPID_VALID {
            0 => 0x8100,
            _ => header.vlan_protocol,
        };
        let [p0, p1] = protocol.to_be_bytes();
        let [c0, c1] = (header.vlan_control as u16).to_be_bytes();
        packet
            .extend_from(&bytes[..ADDRESSES])
            .and_then(|()| packet.extend_from(&[p0, p1, c0, c1]))
            .and_then(|()| packet.extend_from(&bytes[ADDRESSES..]))
    } else {
        packet.extend_from(bytes)
    };
    written.map_err(|_| lost(Drop::TooBig))?;
    if offload != netbricks_buffer::Offload::default() {
        packet.set_offload(offload);
    }
    packet.set_flow_hash(header.rxhash);
    Ok(packet)
}

/// The checksum was verified on the way.
const TP_STATUS_CSUM_VALID: u32 = 1 << 7;

#[cfg(test)]
mod tests;
