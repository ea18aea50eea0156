//! `KernelTun` and `KernelTap`: one device of the graph for both ways, with or without Ethernet headers.

use std::cell::{Cell, RefCell};

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use crate::notifier::Signal;
use crate::packet::Annotated;
use crate::router::At;
use crate::value::Ether;

/// Bytes of an Ethernet header.
const ETHER: usize = 14;
/// Packets that a turn of the task takes, where no `BURST` says otherwise.
pub(super) const BURST: u32 = 1;
/// Address of the kernel's side, where no `ETHER` says otherwise.
pub(super) const ADDRESS: Ether = Ether([0, 1, 2, 3, 4, 5]);

/// Address of the side of the configuration.
const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The way to the kernel of a `KernelTun` or `KernelTap`.
pub(super) struct Kernel {
    /// The number of the device that packets leave by.
    ///
    /// That of a device for answers only is known when all are configured.
    pub(super) device: Cell<usize>,
    /// Whether packets have an Ethernet header inside the configuration.
    pub(super) is_tap: bool,
    /// Address of the kernel's side.
    pub(super) address: Ether,
    /// The largest packet (bytes), without its Ethernet header.
    pub(super) mtu: usize,
    /// Packets that a turn of the task takes.
    pub(super) burst: u32,
    /// Whether packets wait upstream.
    pub(super) signal: RefCell<Signal>,
}

/// The version of IP of a packet, where its first bytes are right for it.
fn version(packet: &[u8]) -> Option<u8> {
    let version = packet.first()? >> 4;
    let shortest = match version {
        4 => 20,
        6 => 40,
        _ => return None,
    };
    (packet.len() >= shortest).then_some(version)
}

impl Kernel {
    /// Begins to pull, where the input is pull.
    pub(super) fn initialize(&self, at: At<'_>, name: &str) {
        if at.inputs() == 0 && !self.is_tap {
            self.device.set(at.router.device(name));
        }
        if at.inputs() > 0 && at.input_is_pull(0) {
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
            at.schedule(0);
        }
    }
    /// Gives a packet to the device.
    pub(super) fn send(&self, at: At<'_>, mut packet: Packet) {
        let header = if self.is_tap { ETHER } else { 0 };
        if packet.len() > self.mtu.saturating_add(header) {
            at.drop_packet(packet, DropReason::TooBig);
            return;
        }
        if !self.is_tap {
            let kind: u16 = match version(packet.data()) {
                Some(4) => 0x0800,
                Some(_) => 0x86DD,
                None => {
                    at.drop_packet(packet, DropReason::Malformed);
                    return;
                }
            };
            if !packet.push_bytes(at.pool(), ETHER) {
                at.drop_packet(packet, DropReason::PoolExhausted);
                return;
            }
            let data = packet.data_mut();
            data[..6].copy_from_slice(&self.address.0);
            data[6..12].copy_from_slice(&HERE);
            data[12..ETHER].copy_from_slice(&kind.to_be_bytes());
        }
        at.send(self.device.get(), packet);
    }
    /// Takes a packet of the device. `None`: it was no IP packet.
    pub(super) fn take(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        if self.is_tap {
            return Some(packet);
        }
        let kind = packet.data().get(12..ETHER).map(|kind| [kind[0], kind[1]]);
        if kind == Some([0x08, 0x06]) && self.answer(packet.data_mut()) {
            at.send(self.device.get(), packet);
            return None;
        }
        packet.pull_bytes(ETHER);
        let header = match (kind, version(packet.data())) {
            (Some([0x08, 0x00]), Some(4)) => usize::from(packet.data()[0] & 15) * 4,
            (Some([0x86, 0xDD]), Some(6)) => 40,
            _ => {
                at.push_or_drop(1, packet, DropReason::Unmatched);
                return None;
            }
        };
        packet.set_network(0, header);
        Some(packet)
    }
    /// Makes the host's ARP request for any address but its own the answer: all others are behind this element.
    fn answer(&self, frame: &mut [u8]) -> bool {
        let Some(arp) = frame.get(ETHER..ETHER + 28) else { return false };
        let is_request = arp[..8] == [0, 1, 8, 0, 6, 4, 0, 1];
        let (asker, own, wanted) = (arp[8..18].to_vec(), &arp[14..18], arp[24..28].to_vec());
        if !is_request || own == &wanted[..] || own == [0; 4] {
            return false;
        }
        frame[..6].copy_from_slice(&asker[..6]);
        frame[6..12].copy_from_slice(&HERE);
        frame[ETHER + 7] = 2;
        frame[ETHER + 8..ETHER + 14].copy_from_slice(&HERE);
        frame[ETHER + 14..ETHER + 18].copy_from_slice(&wanted);
        frame[ETHER + 18..ETHER + 28].copy_from_slice(&asker);
        true
    }
    /// A turn of the task. Whether it did any work.
    pub(super) fn run(&self, at: At<'_>) -> bool {
        let mut taken = 0;
        while taken < self.burst
            && at.may_go_on(taken)
            && let Some(packet) = at.pull(0)
        {
            taken += 1;
            self.send(at, packet);
        }
        if taken > 0 || self.signal.borrow().is_active() {
            at.schedule(0);
        }
        taken > 0
    }
}
