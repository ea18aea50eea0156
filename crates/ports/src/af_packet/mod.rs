//! `af_packet`: an interface of the host through AF_PACKET sockets.
//!
//! Any interface is usable, and the host's stack still receives all arrivals.
//!
//! Receiving goes through a TPACKET_V3 ring, a block at a time, with virtio-net headers, so that large
//! packets and partial checksums pass unchanged (`receive`). Sending uses sendmmsg(2), a batch a system call
//! (`send`). Packets of devices without a link header (TUN, WireGuard) get an Ethernet header here, and lose
//! it when they are sent. Several queues share the arrivals by a symmetric hash of the flow, or by rules, for
//! which the kernel runs a program.

mod receive;
mod send;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netbricks_core::units::{Bytes, Duration};
use netbricks_core::{InvalidSetting, Settings};

use self::receive::Receiver;
use self::send::Sender;
use crate::device::{self, Device, DevicePort, InUse, Opening, check_queues, promiscuous};
use crate::driver::{Demands, OpenContext, PortDriver, QueueDivision};
use crate::interface::{Interface, LinkHeader, refused, unusable};
use crate::port::{Capabilities, Counters, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::returning::Wanted;
use crate::steer::{FilterSupport, Filtering, MOST_RULES, Rules, Unsteerable, program};
use crate::sys::packet::{BlockRing, PacketSocket, Spread};

const DRIVER: &str = "af_packet";
/// The mechanism that applies rules.
const PROGRAM: &str = "classic BPF (PACKET_FANOUT_CBPF)";
const CAPABILITY: &str = "CAP_NET_RAW";
/// The least bytes of a block. Memory is mapped in pages.
///
/// The largest packet and its headers must fit into a block.
const BLOCK_MINIMUM: u64 = 128 << 10;
const PAGE: u64 = 4096;
/// The most bytes of packets that are leaving a transmit queue.
const SEND_BUFFER: i32 = 16 << 20;

/// The driver `af_packet`.
pub(crate) struct AfPacketDriver;

impl PortDriver for AfPacketDriver {
    type Settings = AfPacketSettings;
    const NAME: &'static str = DRIVER;
    const SUMMARY: &'static str =
        "A network interface of the host through AF_PACKET: any kind of interface, offloads included.";
    const DIVISION: QueueDivision = QueueDivision::Symmetric;
    const FILTERS: Option<FilterSupport> = Some(FilterSupport::program(PROGRAM));

    fn open(
        &self,
        name: &str,
        settings: &AfPacketSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        let own = settings.clone();
        device::open(name, &settings.device, cx, Wanted::Up, move |opening| open_device(opening, &own))
    }

    fn lacks(&self, port: &str, settings: &AfPacketSettings, demands: &Demands) -> Vec<PortError> {
        Interface::lacks(port, &settings.device, |interface| {
            let found = [small_buffers(interface, demands.largest), small_blocks(interface, settings)];
            let error = |problem: String| unusable(port, &settings.device, &problem);
            let header = interface.link_header(port).err();
            found.into_iter().flatten().map(error).chain(header).collect()
        })
    }

    /// The kernel hands over segments that it has merged, and segments that a sender on the same host left
    /// uncut.
    fn brings_large_packets(&self, _: &AfPacketSettings, _: usize) -> bool {
        true
    }

    fn receive_queues(&self, settings: &AfPacketSettings, wanted: usize) -> usize {
        settings.queues.unwrap_or(wanted)
    }
}

/// The problem of an interface that may bring packets larger than `largest` bytes, the largest packet buffer.
fn small_buffers(interface: &Interface, largest: usize) -> Option<String> {
    let (device, arrival) = (interface.name(), interface.largest_arrival());
    (arrival > largest).then(|| {
        format!(
            "may bring packets of {arrival} bytes, and the largest packet buffer takes {largest}: TCP segments that are \
             larger are cut as they arrive, which is slow, and other packets are dropped as too-big; `large_frames` in \
             `[runtime]` take them, or switch them off with `ethtool -K {device} gro off` and, at a veth's other end, \
             `ethtool -K DEVICE tso off gso off`"
        )
    })
}

/// The problem of an interface that may bring packets larger than a block of the ring.
fn small_blocks(interface: &Interface, settings: &AfPacketSettings) -> Option<String> {
    let (block, most) = (settings.block.bytes(), interface.largest_segment()?);
    // A block has a header, and so has the packet in it.
    let needed = (u64::from(most) + 512).next_multiple_of(PAGE);
    (needed > block).then(|| {
        format!(
            "may bring packets of {most} bytes (BIG TCP: its `gso_max_size` or `gro_max_size`), and those that don't fit a \
             block of the ring are dropped as too-big: write `block = \"{} KiB\"`, or lower the sizes with `ip link set`",
            needed >> 10
        )
    })
}

netbricks_core::settings! {
    /// The settings of an `af_packet` port.
    #[derive(Clone, Debug)]
    pub(crate) struct AfPacketSettings {
        /// The network interface.
        device: String = required, "text";
        /// Sockets among which arriving flows are spread, both directions of a flow to the same one.
        queues: Option<usize> = unset "one a worker", "whole number";
        /// Memory of a queue's receive ring: packets that arrive while its worker is busy wait here.
        ring: Bytes = "16 MiB", "bytes";
        /// Memory that the kernel fills with packets before it hands them over.
        block: Bytes = "256 KiB", "bytes, a multiple of 4 KiB from 128 KiB on";
        /// When the kernel hands over a block that is not full: the latency at low load.
        block_timeout: Duration = "1 ms", "time, whole milliseconds";
        /// Leave partial checksums and segmentation to the interface when sending.
        offload: bool = true, "true or false";
        /// Take packets to any MAC address, for as long as the port is open.
        promiscuous: bool = true, "true or false";
        /// Hand packets to the device's driver past the host's queueing discipline (tc).
        bypass_qdisc: bool = true, "true or false";
    }
}

impl Settings for AfPacketSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem| Err(InvalidSetting { key, problem });
        let (block, ring) = (self.block.bytes(), self.ring.bytes());
        if block < BLOCK_MINIMUM || !block.is_multiple_of(PAGE) || block > 1 << 30 {
            return refuse(
                "block",
                format!("must be a multiple of 4 KiB from 128 KiB to 1 GiB, found {block} bytes"),
            );
        }
        if ring < 2 * block || ring > 4 << 30 {
            return refuse(
                "ring",
                format!("must be from two blocks ({}) to 4 GiB, found {ring} bytes", 2 * block),
            );
        }
        check_queues(self.queues)?;
        let timeout = self.block_timeout.nanoseconds();
        if timeout < 1_000_000 || !timeout.is_multiple_of(1_000_000) || timeout > 60_000_000_000 {
            return refuse(
                "block_timeout",
                format!("must be whole milliseconds, 1 ms to 60 s, found {timeout} ns"),
            );
        }
        Ok(())
    }
}

/// The sockets of an open interface.
struct AfPacket {
    settings: AfPacketSettings,
    header: LinkHeader,
    receiving: Receiving,
    senders: Vec<Option<Sender>>,
    /// Keeps the interface in promiscuous mode.
    _membership: Option<PacketSocket>,
}

fn open_device(
    opening: &Opening<'_>,
    settings: &AfPacketSettings,
) -> Result<DevicePort<AfPacket>, PortError> {
    let Opening { port: name, device, cx, .. } = *opening;
    let interface = Interface::find(name, device)?;
    let refused = |action: String| move |error| refused(name, &action, CAPABILITY, error);
    let header = interface.link_header(name)?;
    let mtu = interface.mtu().map_err(refused(format!("asking for the MTU of {device}")))?;
    let membership =
        settings.promiscuous.then(|| promiscuous(&interface, |action, error| refused(action.into())(error)));
    let membership = membership.transpose()?;
    let counters = opening.counters(opening.queues(settings.queues, usize::MAX));
    let spread = if cx.filters { Spread::Program } else { Spread::Hash };
    let receiving = Receiving::on(&interface, header, settings, &counters, (spread, &Rules::default()))
        .map_err(|(action, error)| refused(action)(error))?;
    let mut senders = Vec::with_capacity(counters.len());
    for counters in &counters {
        let sender = || {
            let socket = PacketSocket::open()?;
            if settings.offload {
                socket.carry_virtio_headers()?;
            }
            if settings.bypass_qdisc {
                socket.bypass_qdisc()?;
            }
            socket.set_send_buffer(SEND_BUFFER)?;
            socket.bind(interface.index(), false)?;
            Ok(Sender::new(socket, settings.offload, header, Arc::clone(counters)))
        };
        senders.push(Some(sender().map_err(refused(format!("opening a socket to send on {device}")))?));
    }
    let mut warnings: Vec<String> = interface.host_stack().answers_too().into_iter().collect();
    let small = [small_buffers(&interface, cx.pool.largest_packet()), small_blocks(&interface, settings)];
    warnings.extend(small.into_iter().flatten().map(|problem| format!("{device} {problem}")));
    let sockets =
        AfPacket { settings: settings.clone(), header, receiving, senders, _membership: membership };
    Ok(DevicePort::new(opening, (interface, mtu), counters, warnings, sockets))
}

/// The receiving side of all queues.
struct Receiving {
    receivers: Vec<Option<Receiver>>,
    /// Duplicates of their sockets, to ask for the kernel's drops wherever the receivers are.
    sockets: Vec<PacketSocket>,
}

impl Receiving {
    /// Opens a socket for each set of counters. They share the interface's arrivals by the rules.
    ///
    /// An error comes with the action that was tried.
    fn on(
        interface: &Interface,
        header: LinkHeader,
        settings: &AfPacketSettings,
        counters: &[Arc<Counters>],
        (spread, rules): (Spread, &Rules),
    ) -> Result<Self, (String, io::Error)> {
        let device = interface.name();
        let tried = |action: String| move |error| (action, error);
        let (block, blocks) = (settings.block.bytes(), settings.ring.bytes() / settings.block.bytes());
        let timeout = (settings.block_timeout.nanoseconds() / 1_000_000) as u32;
        let mut rings: Vec<BlockRing> = Vec::with_capacity(counters.len());
        for _ in counters {
            let socket = PacketSocket::open().map_err(tried("opening an AF_PACKET socket".into()))?;
            let set_up = || {
                socket.carry_virtio_headers()?;
                socket.ignore_outgoing()?;
                // Until all are in the group and it has its program, each socket would also receive the
                // others' packets.
                socket.hear_nothing()
            };
            set_up().map_err(tried(format!("setting up an AF_PACKET socket for {device}")))?;
            let action = format!("making a receive ring of {} bytes for {device}", block * blocks);
            // Before the socket joins, so that the group's order is that of the queues.
            let ring = socket.into_ring(block as usize, blocks as usize, timeout).map_err(tried(action))?;
            let join = || {
                ring.socket().bind(interface.index(), true)?;
                match counters.len() {
                    1 => Ok(()),
                    _ => ring.socket().join(rings.first().map(BlockRing::socket), spread),
                }
            };
            join().map_err(tried(format!("binding an AF_PACKET socket to {device}")))?;
            rings.push(ring);
        }
        if let (Some(first), Spread::Program, true) = (rings.first(), spread, rings.len() > 1) {
            let action = format!("having a program share out what arrives on {device}");
            first.socket().choose_by(&program(rules)).map_err(tried(action))?;
        }
        let mut receivers = Vec::with_capacity(rings.len());
        let mut sockets = Vec::with_capacity(rings.len());
        for (ring, counters) in rings.into_iter().zip(counters) {
            sockets.push(ring.socket().twin().map_err(tried("duplicating a socket".into()))?);
            ring.socket().hear_all().map_err(tried(format!("listening to {device}")))?;
            receivers.push(Some(Receiver::new(ring, header, Arc::clone(counters))));
        }
        Ok(Self { receivers, sockets })
    }
}

impl Device for AfPacket {
    const DRIVER: &'static str = DRIVER;

    fn capabilities(&self, on: &InUse) -> Capabilities {
        Capabilities {
            receive_queues: on.counters.len(),
            transmit_queues: self.senders.len(),
            // The kernel's fanout hash puts the smaller address and port first, and our program's hash treats
            // both the same.
            symmetric_rss: on.filters || on.rules.is_symmetric(),
            checksum_offload: self.settings.offload,
            segmentation_offload: self.settings.offload,
            ..Capabilities::default()
        }
    }
    fn count_missed(&self, on: &InUse) {
        for (socket, counters) in self.receiving.sockets.iter().zip(&on.counters) {
            if let Ok(statistics) = socket.statistics() {
                counters.missed.fetch_add(u64::from(statistics.drops), Ordering::Relaxed);
            }
        }
    }
    fn filtered_by(&self) -> Option<Filtering> {
        Some(Filtering::new(PROGRAM, MOST_RULES))
    }
    fn steer(&mut self, on: &InUse, rules: &Rules) -> Result<(), Unsteerable> {
        rules.check_number(MOST_RULES)?;
        if on.filters {
            // A group of one socket has no program.
            let first = self.receiving.sockets.first().filter(|_| self.receiving.sockets.len() > 1);
            let chosen = first.map_or(Ok(()), |first| first.choose_by(&program(rules)));
            let action =
                format!("changing the program that shares out what arrives on {}", on.interface.name());
            return chosen.map_err(|source| Unsteerable::System { action, source });
        }
        // The first socket of a group decides how it divides packets. So new sockets replace those that
        // exist.
        self.receiving =
            Receiving::on(&on.interface, self.header, &self.settings, &on.counters, (Spread::Program, rules))
                .map_err(|(action, source)| Unsteerable::System { action, source })?;
        Ok(())
    }
    fn receive_queue(&mut self, _: &InUse, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        let receiver = self.receiving.receivers[queue].take().expect("a queue that was not taken is there");
        Ok(Box::new(receiver))
    }
    fn transmit_queue(&mut self, _: &InUse, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        let sender = self.senders[queue].take().expect("a queue that was not taken is there");
        Ok(Box::new(sender))
    }
}

impl PacketSocket {
    /// The same socket under another descriptor.
    fn twin(&self) -> std::io::Result<Self> {
        let descriptor: OwnedFd = self.as_fd().try_clone_to_owned()?;
        Ok(Self::from(descriptor))
    }
}
