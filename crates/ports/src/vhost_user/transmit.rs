//! The transmit queues of a vhost-user port: they fill the buffers that a guest offers.

use std::sync::Arc;

use netbricks_buffer::{Batch, GsoKind, Packet};
use netbricks_core::{Context, DropReason};
use virtio_queue::{AvailIter, QueueOwnedT, QueueT};
use vm_memory::{GuestMemory, GuestMemoryMmap, Permissions};
use zerocopy::IntoBytes;

use super::ring::{Chain, Format, Lie, MOST_PIECES, Piece, Place, Ring, Used, collect};
use crate::node::LiveLimits;
use crate::peer::TransmitCounts;
use crate::port::{Counters, TransmitQueue};
use crate::virtio::{self, VirtioHeader};

/// Bytes of the longest virtio-net header: the legacy one, and the number of chains that a packet takes.
pub(super) const LONGEST_HEADER: usize = virtio::LEN + 2;

/// The reason why a packet was not given to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The guest offers no room now.
    Full,
    /// Chains that were used must be published first.
    Published,
    /// It cannot go.
    Lost(DropReason),
    Lie(Lie),
}

/// The chains that a packet takes.
struct Taken {
    /// Their heads, and their room in bytes.
    chains: [(u16, usize); MOST_PIECES],
    count: usize,
    pieces: usize,
    room: usize,
}

impl Taken {
    fn new() -> Self {
        Self { chains: [(0, 0); MOST_PIECES], count: 0, pieces: 0, room: 0 }
    }
}

/// The virtio-net header of a packet that takes this many chains.
#[inline]
fn header(packet: &Packet, chains: u16) -> [u8; LONGEST_HEADER] {
    let plain = if packet.needs_device() {
        VirtioHeader::of(&packet.offload(), packet.data())
    } else {
        VirtioHeader::default()
    };
    let mut header = [0; LONGEST_HEADER];
    let (front, back) = header.split_at_mut(virtio::LEN);
    front.copy_from_slice(plain.as_bytes());
    back.copy_from_slice(&chains.to_le_bytes());
    header
}

/// Takes chains until they have room for `need` bytes. None is taken if that fails.
#[inline]
fn take(
    chains: &mut AvailIter<'_, &GuestMemoryMmap>,
    need: usize,
    (size, format): (u16, Format),
    pieces: &mut [Piece],
    taken: &mut Taken,
) -> Result<(), Refusal> {
    (taken.count, taken.pieces, taken.room) = (0, 0, 0);
    let failed = loop {
        if taken.room >= need {
            return Ok(());
        }
        if taken.count == MOST_PIECES || taken.count > 0 && !format.mergeable {
            break Refusal::Lost(DropReason::TooBig);
        }
        let Some(chain) = chains.next() else {
            // All that the queue has is too little.
            break if taken.count == usize::from(size) {
                Refusal::Lost(DropReason::TooBig)
            } else {
                Refusal::Full
            };
        };
        let head = chain.head_index();
        if head >= size {
            break Refusal::Lie(Lie::Head);
        }
        match collect(chain, true, &mut pieces[taken.pieces..]) {
            Chain::Whole { pieces, bytes } if bytes > 0 => {
                taken.chains[taken.count] = (head, bytes);
                taken.count += 1;
                taken.pieces += pieces;
                taken.room += bytes;
            }
            Chain::TooLong => {
                taken.count += 1;
                break Refusal::Lost(DropReason::TooBig);
            }
            Chain::Whole { .. } | Chain::Broken => break Refusal::Lie(Lie::Buffer),
        }
    };
    // They stay with the guest.
    (0..taken.count).for_each(|_| chains.go_to_previous_position());
    Err(failed)
}

/// Writes the header and the bytes of a packet into pieces that have room for both.
#[inline]
fn write(memory: &GuestMemoryMmap, pieces: &[Piece], header: &[u8], data: &[u8]) -> Result<(), Lie> {
    let (mut header, mut data) = (header, data);
    for piece in pieces {
        let len = piece.len.min(header.len() + data.len());
        let slices = memory.get_slices(piece.at, len, Permissions::Write);
        for slice in slices.map_err(|_| Lie::Buffer)? {
            let slice = slice.map_err(|_| Lie::Buffer)?;
            let (of_header, behind) = header.split_at(slice.len().min(header.len()));
            let (front, back) = slice.split_at(of_header.len()).map_err(|_| Lie::Buffer)?;
            let (of_data, rest) = data.split_at(back.len().min(data.len()));
            front.copy_from(of_header);
            back.copy_from(of_data);
            (header, data) = (behind, rest);
        }
    }
    Ok(())
}

/// Puts a packet into the next chains.
#[inline]
fn put(
    packet: &Packet,
    chains: &mut AvailIter<'_, &GuestMemoryMmap>,
    memory: &GuestMemoryMmap,
    (size, format): (u16, Format),
    (pieces, used): (&mut [Piece], &mut Used),
    taken: &mut Taken,
) -> Result<(), Refusal> {
    let data = packet.data();
    if data.is_empty() {
        return Err(Refusal::Lost(DropReason::Malformed));
    }
    if used.room() < MOST_PIECES {
        return Err(Refusal::Published);
    }
    // The guest may have come again with fewer offloads.
    if packet.needs_device() {
        let segments = packet.offload().gso != GsoKind::None;
        if !format.gives_checksum || segments && !format.gives_segments {
            return Err(Refusal::Lost(DropReason::NoOffload));
        }
    }
    let need = format.header + data.len();
    take(chains, need, (size, format), pieces, taken)?;
    let header = header(packet, taken.count as u16);
    write(memory, &pieces[..taken.pieces], &header[..format.header], data).map_err(Refusal::Lie)?;
    let mut left = need;
    for (head, room) in &taken.chains[..taken.count] {
        let written = left.min(*room);
        left -= written;
        used.push(*head, written as u32);
    }
    Ok(())
}

impl Ring {
    /// Gives packets to the guest, from the first on. Answers how many, and why not the next one.
    fn send(&mut self, batch: &Batch, taken: &mut Taken) -> (usize, Option<Refusal>) {
        let (size, format) = (self.queue.size(), self.format);
        let memory = &*self.memory;
        let Ok(mut chains) = self.queue.iter(memory) else {
            return (0, Some(Refusal::Lie(Lie::Index)));
        };
        let (mut sent, mut refusal) = (0, None);
        for packet in batch.iter() {
            let parts = (&mut self.pieces[..], &mut self.used);
            if let Err(refused) = put(packet, &mut chains, memory, (size, format), parts, taken) {
                refusal = Some(refused);
                break;
            }
            sent += 1;
        }
        self.publish();
        (sent, refusal)
    }
}

pub(super) struct Sender {
    place: Arc<Place>,
    limits: LiveLimits,
    counts: TransmitCounts,
    taken: Taken,
}

impl Sender {
    pub(super) fn new(place: Arc<Place>, limits: LiveLimits, counters: Arc<Counters>) -> Self {
        Self { place, limits, counts: TransmitCounts::new(counters), taken: Taken::new() }
    }

    /// Gives packets to the guest, if there is one. `None` if there is none.
    #[inline]
    fn give(&mut self, batch: &Batch) -> Option<(usize, Option<Refusal>)> {
        let Some(mut turn) = self.place.turn() else {
            // The port's thread changes the queue, which takes a moment.
            return Some((0, Some(Refusal::Full)));
        };
        let ring = turn.as_mut().filter(|ring| ring.enabled && !ring.is_lost())?;
        let (sent, refusal) = ring.send(batch, &mut self.taken);
        if let Some(Refusal::Lie(lie)) = refusal {
            ring.lose(lie);
        }
        Some((sent, refusal))
    }
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        while !batch.is_empty() {
            let Some((sent, refusal)) = self.give(batch) else {
                return self.counts.lose(batch.len(), DropReason::LinkDown, batch, cx);
            };
            if sent > 0 {
                self.counts.sent(sent, batch, cx);
            }
            match refusal {
                None | Some(Refusal::Lie(_) | Refusal::Published) => {}
                Some(Refusal::Full) => return,
                Some(Refusal::Lost(reason)) => self.counts.lose(1, reason, batch, cx),
            }
        }
    }

    fn limits(&self) -> Option<LiveLimits> {
        Some(self.limits.clone())
    }
}
