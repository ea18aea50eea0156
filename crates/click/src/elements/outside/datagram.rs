//! Parts of elements that send packets by sockets: packets that wait to be sent, and those that come in.

use std::cell::RefCell;
use std::collections::VecDeque;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::arguments::Arguments;
use crate::packet::{Annotated, place};
use crate::router::At;

/// Packets that wait while a socket takes no more.
const WAITING: usize = 1024;
/// Packets or pieces that are read before others get their turn.
pub(super) const A_TURN: usize = 32;
/// The longest packet that is read (bytes).
const LONGEST: usize = 65_536;

/// The result of an attempt to send a packet.
pub(super) enum Sent {
    /// All of it is sent.
    Done,
    /// The socket takes no more now.
    Later,
    /// The socket can send it never.
    Failed,
}

/// Packets that wait to be sent.
#[derive(Default)]
pub(super) struct Waiting(RefCell<VecDeque<Packet>>);

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
    /// Has a packet wait behind the others, or first again. One too many is dropped.
    pub(super) fn put(&self, at: At<'_>, packet: Packet, first: bool) {
        let mut packets = self.0.borrow_mut();
        if first {
            packets.push_front(packet);
        } else if packets.len() < WAITING {
            packets.push_back(packet);
        } else {
            drop(packets);
            at.drop_packet(packet, DropReason::TransmitFull);
        }
    }
    pub(super) fn take(&self) -> Option<Packet> {
        self.0.borrow_mut().pop_front()
    }
    pub(super) fn clear(&self, at: At<'_>) {
        while let Some(packet) = self.take() {
            at.drop_packet(packet, DropReason::Drained);
        }
    }
}

/// How packets are received.
#[derive(Clone, Copy)]
pub(super) struct Reception {
    /// The longest packet (bytes).
    pub(super) snaplen: usize,
    pub(super) timestamp: bool,
    /// Sizes of the system's buffers (bytes), where they are to be set.
    pub(super) receive_buffer: Option<usize>,
    pub(super) send_buffer: Option<usize>,
}

impl Reception {
    /// Reads SNAPLEN, TIMESTAMP, RCVBUF and SNDBUF; HEADROOM is the pool's here.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Self {
        let snaplen: usize = arguments.keyword("SNAPLEN").unwrap_or(2048);
        let _: Option<u32> = arguments.keyword("HEADROOM");
        let timestamp = arguments.keyword("TIMESTAMP").unwrap_or(true);
        let size = |size: Option<i32>| size.and_then(|size| usize::try_from(size).ok());
        let receive_buffer = size(arguments.keyword("RCVBUF"));
        let send_buffer = size(arguments.keyword("SNDBUF"));
        Self { snaplen: snaplen.clamp(1, LONGEST), timestamp, receive_buffer, send_buffer }
    }

    /// Makes a packet of bytes that came in, of `length` bytes in all, and pushes it.
    pub(super) fn push(&self, at: At<'_>, bytes: &[u8], length: usize) {
        let Some(mut packet) = at.packet(bytes) else { return };
        if let Some(more) = length.checked_sub(bytes.len()).filter(|more| *more > 0) {
            packet.set_anno_u32(place::EXTRA_LENGTH, u32::try_from(more).unwrap_or(u32::MAX));
        }
        if self.timestamp {
            packet.set_timestamp(at.now());
        }
        at.push(0, packet);
    }
}
