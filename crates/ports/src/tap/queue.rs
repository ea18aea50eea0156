//! The two directions of a TAP device's queue.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netbricks_buffer::{Batch, Packet, Pool};
use netbricks_core::{Context, DropReason, Poll};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::port::{Counters, ReceiveQueue, TransmitQueue};
use crate::sys::tun::Queue;
use crate::virtio::{self, VirtioHeader};

/// Room for the largest packet behind its header. One byte more shows that a packet was cut off.
const ROOM: usize = virtio::LEN + crate::interface::LARGEST_ARRIVAL + 1;

pub(super) struct Receiver {
    queue: Arc<Queue>,
    room: Box<[u8]>,
    gone: bool,
    /// A descriptor that is never readable.
    ///
    /// A worker sleeps on it when the device is gone, because the device's own descriptor would always wake
    /// it.
    never: OwnedFd,
    counters: Arc<Counters>,
}

impl Receiver {
    pub(super) fn new(queue: Arc<Queue>, counters: Arc<Counters>) -> std::io::Result<Self> {
        let never = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { queue, room: vec![0; ROOM].into(), gone: false, never, counters })
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        if self.gone {
            return Poll::Idle;
        }
        let (mut packets, mut bytes, mut no_buffer, mut too_big) = (0, 0, 0, 0);
        // Lost packets count towards the burst as well, so that a turn ends.
        while packets < cx.burst() as u64 {
            match rustix::io::read(self.queue.file(), &mut *self.room) {
                Ok(len) => {
                    packets += 1;
                    let frame = &self.room[..len.min(ROOM)];
                    match make_packet(frame, cx.pool()) {
                        Ok(packet) => {
                            bytes += packet.len() as u64;
                            if batch.push(packet).is_err() {
                                break;
                            }
                        }
                        Err(reason) => {
                            let lost = len.saturating_sub(virtio::LEN) as u64;
                            bytes += lost;
                            no_buffer += u64::from(reason == DropReason::PoolExhausted);
                            too_big += u64::from(reason == DropReason::TooBig);
                            cx.receiving().lost_on_arrival(reason, 1, lost);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::BADFD | Errno::NODEV | Errno::NXIO) => {
                    self.gone = true;
                    break;
                }
                Err(_) => break,
            }
        }
        if packets == 0 {
            return Poll::Idle;
        }
        self.counters.arrived(packets, bytes, no_buffer, too_big);
        Poll::Busy
    }

    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        watch(if self.gone { self.never.as_fd() } else { self.queue.file().as_fd() });
    }
}

/// Makes a packet of the data of one read.
#[inline]
fn make_packet(frame: &[u8], pool: &Pool) -> Result<Packet, DropReason> {
    let (virtio, bytes) = VirtioHeader::read_from_prefix(frame).map_err(|_| DropReason::Malformed)?;
    if bytes.len() > crate::interface::LARGEST_ARRIVAL {
        return Err(DropReason::TooBig);
    }
    let offload = virtio.offload(0, bytes.len()).ok_or(DropReason::NoOffload)?;
    let too_big = bytes.len() > pool.largest_packet();
    let mut packet =
        pool.packet(bytes).ok_or(if too_big { DropReason::TooBig } else { DropReason::PoolExhausted })?;
    if offload != netbricks_buffer::Offload::default() {
        packet.set_offload(offload);
    }
    Ok(packet)
}

pub(super) struct Sender {
    queue: Arc<Queue>,
    offload: bool,
    counters: Arc<Counters>,
    done: Batch,
}

impl Sender {
    pub(super) fn new(queue: Arc<Queue>, offload: bool, counters: Arc<Counters>) -> Self {
        Self { queue, offload, counters, done: Batch::new() }
    }

    /// Writes packets from the first on. Answers how many the kernel took, and its error for the next.
    fn write(&self, batch: &Batch) -> (usize, Option<Errno>) {
        for (sent, packet) in batch.iter().enumerate() {
            let header = if self.offload && packet.needs_device() {
                VirtioHeader::of(&packet.offload(), packet.data())
            } else {
                VirtioHeader::default()
            };
            let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(packet.data())];
            let mut result = rustix::io::writev(self.queue.file(), &parts);
            while result == Err(Errno::INTR) {
                result = rustix::io::writev(self.queue.file(), &parts);
            }
            if let Err(error) = result {
                return (sent, Some(error));
            }
        }
        (batch.len(), None)
    }
}

impl TransmitQueue for Sender {
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        while !batch.is_empty() {
            let (sent, error) = self.write(batch);
            if sent > 0 {
                batch.take_front(sent, &mut self.done);
                let (packets, bytes) = (self.done.len() as u64, self.done.bytes());
                cx.transmitting().sent(packets, bytes);
                Counters::add(&self.counters.sent, packets);
                Counters::add(&self.counters.sent_bytes, bytes);
                self.done.clear();
            }
            let Some(error) = error else { return };
            let needs_device = batch.get(0).is_some_and(Packet::needs_device);
            let (reason, all) = match error {
                Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => return,
                Errno::IO | Errno::BADFD | Errno::NODEV | Errno::NXIO | Errno::NETDOWN => {
                    (DropReason::LinkDown, true)
                }
                Errno::MSGSIZE => (DropReason::TooBig, false),
                _ if needs_device => (DropReason::NoOffload, false),
                _ => (DropReason::Malformed, false),
            };
            batch.take_front(if all { batch.len() } else { 1 }, &mut self.done);
            Counters::add_shared(&self.counters.not_sent, self.done.len() as u64);
            if reason == DropReason::TooBig {
                Counters::add_shared(&self.counters.too_big_to_send, 1);
            }
            cx.drop_batch(&mut self.done, reason);
        }
    }
}
