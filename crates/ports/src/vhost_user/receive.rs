//! The receive queues of a vhost-user port: they take what a guest sends.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use netbricks_buffer::{Batch, Offload, Packet, Pool};
use netbricks_core::{Context, DropReason, Poll};
use virtio_queue::QueueOwnedT;
use vm_memory::{GuestMemory, GuestMemoryMmap, Permissions};
use zerocopy::FromBytes;

use super::ring::{Chain, Format, Lie, Piece, Place, Ring, collect};
use super::transmit::LONGEST_HEADER;
use crate::port::{Counters, ReceiveQueue};
use crate::sys::guest::append_to;
use crate::virtio::VirtioHeader;

/// The packets that a turn received.
#[derive(Debug, Default)]
struct Tally {
    /// Packets that arrived, lost ones included.
    packets: u64,
    bytes: u64,
    no_buffer: u64,
    too_big: u64,
    linearised: u64,
}

/// Copies the pieces of a packet into a frame.
#[inline]
fn copy(
    memory: &GuestMemoryMmap,
    pieces: &[Piece],
    len: usize,
    format: Format,
    pool: &Pool,
) -> Result<Packet, DropReason> {
    if len > crate::interface::LARGEST_ARRIVAL || len > pool.largest_packet() {
        return Err(DropReason::TooBig);
    }
    let mut packet = pool.empty(len).ok_or(DropReason::PoolExhausted)?;
    let (mut header, mut got) = ([0; LONGEST_HEADER], 0);
    for piece in pieces {
        let slices = memory.get_slices(piece.at, piece.len, Permissions::Read);
        for slice in slices.map_err(|_| DropReason::Malformed)? {
            let slice = slice.map_err(|_| DropReason::Malformed)?;
            let of_header = slice.len().min(format.header - got);
            let (head, rest) = slice.split_at(of_header).map_err(|_| DropReason::Malformed)?;
            got += head.copy_to(&mut header[got..]);
            if !append_to(&rest, &mut packet) {
                return Err(DropReason::Malformed);
            }
        }
    }
    let (header, _) = VirtioHeader::read_from_prefix(&header).map_err(|_| DropReason::Malformed)?;
    let offload = header.offload(0, packet.len()).ok_or(DropReason::NoOffload)?;
    if offload != Offload::default() {
        packet.set_offload(offload);
        if packet.needs_device() && !format.takes_checksum {
            return Err(DropReason::NoOffload);
        }
    }
    Ok(packet)
}

impl Ring {
    /// Puts up to a burst of packets into the batch.
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Tally {
        let mut tally = Tally::default();
        if self.is_lost() {
            return tally;
        }
        let (size, format) = (virtio_queue::QueueT::size(&self.queue), self.format);
        let Ok(mut chains) = self.queue.iter(&*self.memory) else {
            // The ring is inside of the memory: the index is impossible.
            self.lose(Lie::Index);
            return tally;
        };
        let mut lie = None;
        while tally.packets < cx.burst() as u64 && self.used.room() > 0 {
            let Some(chain) = chains.next() else { break };
            let head = chain.head_index();
            if head >= size {
                lie = Some(Lie::Head);
                break;
            }
            let (pieces, found) = match collect(chain, false, &mut self.pieces) {
                Chain::Whole { pieces, bytes } if bytes > format.header => {
                    (pieces, Ok(bytes - format.header))
                }
                Chain::Whole { .. } | Chain::Broken => (0, Err(DropReason::Malformed)),
                Chain::TooLong => (0, Err(DropReason::TooBig)),
            };
            let bytes = found.unwrap_or_default() as u64;
            tally.packets += 1;
            tally.bytes += bytes;
            let copied = found.and_then(|len| {
                if !self.enabled {
                    return Err(DropReason::LinkDown);
                }
                copy(&self.memory, &self.pieces[..pieces], len, format, cx.pool())
            });
            match copied {
                Ok(packet) => {
                    // A piece with nothing but the header holds nothing to join.
                    let of_packet = pieces - usize::from(self.pieces[0].len <= format.header);
                    tally.linearised += u64::from(of_packet > 1);
                    if batch.push(packet).is_err() {
                        // Not reached: a burst is at most a batch.
                        cx.receiving().lost_on_arrival(DropReason::QueueFull, 1, bytes);
                    }
                }
                Err(reason) => {
                    tally.no_buffer += u64::from(reason == DropReason::PoolExhausted);
                    tally.too_big += u64::from(reason == DropReason::TooBig);
                    cx.receiving().lost_on_arrival(reason, 1, bytes);
                }
            }
            // The device writes nothing into what it receives.
            self.used.push(head, 0);
        }
        self.publish();
        if let Some(lie) = lie {
            self.lose(lie);
        }
        tally
    }
}

pub(super) struct Receiver {
    place: Arc<Place>,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(place: Arc<Place>, counters: Arc<Counters>) -> Self {
        Self { place, counters }
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let mut turn = self.place.turn();
        let Some(Some(ring)) = turn.as_deref_mut() else { return Poll::Idle };
        ring.wake(&self.place);
        let Tally { packets, bytes, no_buffer, too_big, linearised } = ring.receive(batch, cx);
        if packets == 0 {
            return Poll::Idle;
        }
        self.counters.arrived(packets, bytes, no_buffer, too_big);
        if linearised > 0 {
            Counters::add(&self.counters.linearised, linearised);
        }
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        self.place.sleep(watch);
    }
    fn has_descriptor(&self) -> bool {
        true
    }
}
