//! A capture in the form of pcapng made in memory: of several interfaces, with a comment on each packet.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

use super::Direction;
use super::write::io_error;

/// A capture of Ethernet frames as it grows, in the form of pcapng. Times are in ns.
pub struct Packets(PcapNgWriter<Vec<u8>>);

impl std::fmt::Debug for Packets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Packets")
    }
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'p> {
    /// The number of its interface, from 0, in the order in which they were added.
    pub interface: u32,
    /// When it was seen (ns since 1970).
    pub time: u64,
    /// Its first bytes.
    pub frame: &'p [u8],
    /// Bytes that it had on the wire.
    pub wire_len: usize,
    /// Whether it came or went.
    pub direction: Option<Direction>,
    /// The comment for readers of the capture; none where it is empty.
    pub comment: &'p str,
}

impl Packets {
    /// A capture without interfaces.
    ///
    /// # Errors
    /// Never: memory takes all bytes.
    pub fn new() -> io::Result<Self> {
        PcapNgWriter::with_endianness(Vec::new(), Endianness::Little).map(Self).map_err(io_error)
    }

    /// Adds an interface. `snaplen` is the most bytes that its packets have.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn add_interface(&mut self, name: &str, snaplen: usize) -> io::Result<()> {
        let name = &name[..name.floor_char_boundary(255)];
        let options =
            vec![InterfaceDescriptionOption::IfName(name.into()), InterfaceDescriptionOption::IfTsResol(9)];
        let snaplen = u32::try_from(snaplen).unwrap_or(u32::MAX);
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen, options };
        self.0.write_pcapng_block(block).map(|_| ()).map_err(io_error)
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Where there is no such interface.
    pub fn add(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        let mut options = Vec::with_capacity(2);
        if !packet.comment.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(packet.comment)));
        }
        options.extend(packet.direction.map(|direction| EnhancedPacketOption::Flags(direction.flags())));
        let block = EnhancedPacketBlock {
            interface_id: packet.interface,
            timestamp: Duration::from_nanos(packet.time),
            original_len: u32::try_from(packet.wire_len.max(packet.frame.len())).unwrap_or(u32::MAX),
            data: Cow::Borrowed(packet.frame),
            options,
        };
        self.0.write_block(&block.into_block()).map(|_| ()).map_err(io_error)
    }

    /// Adds the statistics of an interface so far: packets that were lost, because the reader was too slow.
    ///
    /// # Errors
    /// Where there is no such interface.
    pub fn add_statistics(&mut self, interface: u32, time: u64, lost: u64) -> io::Result<()> {
        // Unlike that of packets, the time of this block is written as it is.
        let timestamp = time.rotate_left(32);
        let options = vec![InterfaceStatisticsOption::IsbIfDrop(lost)];
        let block = InterfaceStatisticsBlock { interface_id: interface, timestamp, options };
        self.0.write_pcapng_block(block).map(|_| ()).map_err(io_error)
    }

    /// Takes the bytes that were added since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.0.get_mut())
    }
}
