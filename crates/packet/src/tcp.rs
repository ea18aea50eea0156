//! TCP: the fixed header and its options.

use core::ops::{Deref, DerefMut};

use zerocopy::FromBytes;

use crate::checksum::{Sum, update16, update32};
use crate::ip::{IpRef, announced_by_first_fragment};
use crate::protocol;
use crate::stack::{Found, Header, Malformed, NOTHING, malformed, whole};
use crate::tcp_options::{TcpOption, TcpOptions, clamp_maximum_segment_size};

crate::header! {
    /// The fixed part of a TCP header (RFC 9293, section 3.1).
    ///
    /// RFC 3168 defines CWR and ECE, RFC 9768 AE.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |          Source Port          |       Destination Port        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                        Sequence Number                        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                    Acknowledgment Number                      |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  Data |     |A|C|E|U|A|P|R|S|F|                               |
    /// | Offset| Rsr |E|W|C|R|C|S|S|Y|I|            Window             |
    /// |       |     | |R|E|G|K|H|T|N|N|                               |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |           Checksum            |         Urgent Pointer        |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |                            Options                            |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Tcp, "tcp", 20 bytes {
        /// The sender's port.
        source_port, put_source_port: u16 = 0, 16, Own, Dec, kept;
        /// The receiver's port.
        destination_port, put_destination_port: u16 = 16, 16, Own, Dec, kept;
        /// Number of the payload's first byte (of the SYN, if there is one).
        sequence_number, put_sequence_number: u32 = 32, 32, Own, Dec, kept;
        /// Number of the next byte that the sender expects, if `ack` is set.
        acknowledgment_number, put_acknowledgment_number: u32 = 64, 32, Own, Dec, kept;
        /// Header length in words of 4 bytes, 5 to 15.
        data_offset, put_data_offset: u8 = 96, 4, Own, Dec, kept;
        /// Must be zero.
        reserved, put_reserved: u8 = 100, 3, Own, Dec, kept;
        /// Accurate ECN (RFC 9768).
        ae, put_ae: bool = 103, 1, Own, Flag, kept;
        /// Congestion window reduced.
        cwr, put_cwr: bool = 104, 1, Own, Flag, kept;
        /// ECN echo.
        ece, put_ece: bool = 105, 1, Own, Flag, kept;
        /// The urgent pointer counts.
        urg, put_urg: bool = 106, 1, Own, Flag, kept;
        /// The acknowledgment number counts.
        ack, put_ack: bool = 107, 1, Own, Flag, kept;
        /// Push to the application.
        psh, put_psh: bool = 108, 1, Own, Flag, kept;
        /// Reset the connection.
        rst, put_rst: bool = 109, 1, Own, Flag, kept;
        /// Synchronise sequence numbers.
        syn, put_syn: bool = 110, 1, Own, Flag, kept;
        /// No more data from the sender.
        fin, put_fin: bool = 111, 1, Own, Flag, kept;
        /// Bytes that the sender takes, before scaling.
        window, put_window: u16 = 112, 16, Own, Dec, kept;
        /// Over pseudo-header, header and payload.
        checksum, set_checksum: u16 = 128, 16, No, Hex, plain;
        /// End of urgent data, in bytes from the sequence number, if `urg` is set.
        urgent_pointer, put_urgent_pointer: u16 = 144, 16, Own, Dec, kept;
    }
}

/// The flags of a TCP header, as its 14th byte.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push to the application.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

crate::field::display! { Tcp }

impl Tcp {
    /// A header without options, with [`flags`], window 65535 and no checksum yet.
    pub fn new(
        source_port: u16,
        destination_port: u16,
        sequence_number: u32,
        acknowledgment_number: u32,
        flags: u8,
    ) -> Self {
        let mut header = Self([0; 20]);
        header.put_source_port(source_port);
        header.put_destination_port(destination_port);
        header.put_sequence_number(sequence_number);
        header.put_acknowledgment_number(acknowledgment_number);
        header.put_data_offset(5);
        header.0[13] = flags;
        header.put_window(0xffff);
        header
    }
    /// The [`flags`] from CWR to FIN as one byte.
    #[inline(always)]
    pub fn flags(&self) -> u8 {
        self.0[13]
    }
    /// Writes the sender's port and carries it into the checksum.
    #[inline(always)]
    pub fn set_source_port(&mut self, port: u16) {
        self.set_checksum(update16(self.checksum(), self.source_port(), port));
        self.put_source_port(port);
    }
    /// Writes the receiver's port and carries it into the checksum.
    #[inline(always)]
    pub fn set_destination_port(&mut self, port: u16) {
        self.set_checksum(update16(self.checksum(), self.destination_port(), port));
        self.put_destination_port(port);
    }
    /// Writes the sequence number and carries it into the checksum.
    #[inline(always)]
    pub fn set_sequence_number(&mut self, number: u32) {
        self.set_checksum(update32(self.checksum(), self.sequence_number(), number));
        self.put_sequence_number(number);
    }
    /// Writes the acknowledgment number and carries it into the checksum.
    #[inline(always)]
    pub fn set_acknowledgment_number(&mut self, number: u32) {
        self.set_checksum(update32(self.checksum(), self.acknowledgment_number(), number));
        self.put_acknowledgment_number(number);
    }
    /// Writes the window and carries it into the checksum.
    #[inline(always)]
    pub fn set_window(&mut self, window: u16) {
        self.set_checksum(update16(self.checksum(), self.window(), window));
        self.put_window(window);
    }
    /// Writes the [`flags`] from CWR to FIN and carries them into the checksum.
    #[inline(always)]
    pub fn set_flags(&mut self, flags: u8) {
        self.set_checksum(update16(self.checksum(), u16::from(self.0[13]), u16::from(flags)));
        self.0[13] = flags;
    }
    /// Writes how many bytes of options follow, a multiple of 4 up to 40, and carries that into the checksum.
    ///
    /// The caller carries the options' own bytes.
    pub fn set_options_len(&mut self, bytes: usize) {
        let word = |header: &Self| u16::from_be_bytes([header.0[12], header.0[13]]);
        let old = word(self);
        self.put_data_offset((Self::SIZE + bytes).div_ceil(4) as u8);
        self.set_checksum(update16(self.checksum(), old, word(self)));
    }
    /// Writes the urgent pointer and carries it into the checksum.
    #[inline(always)]
    pub fn set_urgent_pointer(&mut self, pointer: u16) {
        self.set_checksum(update16(self.checksum(), self.urgent_pointer(), pointer));
        self.put_urgent_pointer(pointer);
    }
}

/// A TCP header with its options, for reading.
#[derive(Clone, Copy)]
pub struct TcpRef<'a> {
    fixed: &'a Tcp,
    options: &'a [u8],
}

/// A TCP header with its options, for writing.
pub struct TcpMut<'a> {
    fixed: &'a mut Tcp,
    options: &'a mut [u8],
}

impl Deref for TcpRef<'_> {
    type Target = Tcp;
    #[inline(always)]
    fn deref(&self) -> &Tcp {
        self.fixed
    }
}
impl Deref for TcpMut<'_> {
    type Target = Tcp;
    #[inline(always)]
    fn deref(&self) -> &Tcp {
        self.fixed
    }
}
impl DerefMut for TcpMut<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Tcp {
        self.fixed
    }
}

impl<'a> TcpRef<'a> {
    /// The fixed part, for as long as the bytes live.
    #[inline(always)]
    pub fn fixed(&self) -> &'a Tcp {
        self.fixed
    }
    /// The options, padding included; 0 to 40 bytes.
    #[inline(always)]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }
    /// The options one by one.
    #[inline]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions::new(self.options)
    }
    /// The largest segment that the sender accepts, in bytes, if it states one (only in a SYN).
    pub fn maximum_segment_size(&self) -> Option<u16> {
        self.options().find_map(|option| match option {
            Ok(TcpOption::MaximumSegmentSize(size)) => Some(size),
            _ => None,
        })
    }
}

impl TcpMut<'_> {
    /// The same header, for reading.
    #[inline(always)]
    pub fn as_ref(&self) -> TcpRef<'_> {
        TcpRef { fixed: self.fixed, options: self.options }
    }
    /// Changes option bytes in place, their number staying the same, and carries the change into the checksum.
    pub fn change_options(&mut self, change: impl FnOnce(&mut [u8])) {
        // The options are a multiple of 4 bytes at an even offset. So after any change, all of them can be
        // taken out of the sum and added again.
        let old = Sum::ZERO.add_bytes(self.options).fold();
        change(self.options);
        let new = Sum::ZERO.add_bytes(self.options).fold();
        self.fixed.set_checksum(update16(self.fixed.checksum(), old, new));
    }
    /// Lowers every maximum segment size that the segment states to at most `limit` bytes (RFC 4459, section
    /// 3.2).
    ///
    /// Answers whether one changed.
    pub fn clamp_maximum_segment_size(&mut self, limit: u16) -> bool {
        let is_larger = |option| matches!(option, Ok(TcpOption::MaximumSegmentSize(size)) if size > limit);
        let lowers = self.as_ref().options().any(is_larger);
        if lowers {
            self.change_options(|options| {
                clamp_maximum_segment_size(options, limit);
            });
        }
        lowers
    }
}

impl Header for Tcp {
    type Facts = ();
    type Ref<'a> = TcpRef<'a>;
    type Mut<'a> = TcpMut<'a>;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let Some(header) = bytes.first_chunk::<20>() else {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        };
        let len = usize::from(header[12] >> 4) * 4;
        if len < Self::SIZE {
            return Err(malformed::<Self>("its data offset is less than 20 bytes", Self::SIZE, len));
        }
        if len > bytes.len() {
            return Err(malformed::<Self>("its data offset points beyond the segment", len, bytes.len()));
        }
        Ok(Found { facts: (), len, total: None, next: NOTHING })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> TcpRef<'_> {
        let (fixed, options) = whole(Self::ref_from_prefix(bytes));
        TcpRef { fixed, options }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> TcpMut<'_> {
        let (fixed, options) = whole(Self::mut_from_prefix(bytes));
        TcpMut { fixed, options }
    }
}

/// Whether a packet is a first fragment that ends in the middle of its TCP header.
///
/// Its ports and its sequence number are there (RFC 791, section 3.2: a fragment has 8 bytes at least).
pub fn is_cut_off(ip: &IpRef<'_>, payload: &[u8]) -> bool {
    let first = ip.is_fragment() && !ip.is_later_fragment() && ip.protocol() == protocol::TCP;
    first && announced_by_first_fragment(protocol::TCP, payload) == NOTHING
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::checksum;
    use crate::oracle::{self, Random};

    #[test]
    fn setters_keep_the_checksum() {
        let mut random = Random(40);
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            if sample.protocol != protocol::TCP {
                continue;
            }
            let (ip, _) = IpRef::split(&sample.bytes).unwrap();
            let pseudo = ip.pseudo_header();
            let (source, destination) = (pseudo.source(), pseudo.destination());
            let segment = &mut sample.bytes[sample.transport..];
            let len = Tcp::find(segment, 6).unwrap().len;
            let mut header = Tcp::view_mut(&mut segment[..len], ());
            let value = random.word() as u32;
            match random.below(9) {
                0 => header.set_source_port(value as u16),
                1 => header.set_destination_port(value as u16),
                2 => header.set_sequence_number(value),
                3 => header.set_acknowledgment_number(value),
                4 => header.set_window(value as u16),
                5 => header.set_flags(value as u8),
                6 => header.set_urgent_pointer(value as u16),
                7 => header.set_options_len(value as usize % 11 * 4),
                _ => {
                    let sizes = |header: &TcpMut<'_>| -> Vec<_> {
                        let all = header.as_ref().options().flatten();
                        all.filter_map(|option| match option {
                            TcpOption::MaximumSegmentSize(size) => Some(size),
                            _ => None,
                        })
                        .collect()
                    };
                    let (before, limit) = (sizes(&header), value as u16);
                    let changed = header.clamp_maximum_segment_size(limit);
                    assert_eq!(changed, before.iter().any(|size| *size > limit));
                    assert!(sizes(&header).into_iter().eq(before.iter().map(|size| *size.min(&limit))));
                }
            }
            let written = Vec::from(&sample.bytes[..]);
            sample.refresh();
            assert_eq!(written, sample.bytes, "an update is a recomputation");
            assert_eq!(checksum::is_valid(source, destination, 6, &written[sample.transport..]), Some(true));
        }
    }

    #[test]
    fn a_data_offset_that_lies_is_malformed() {
        let mut bytes = Vec::from(Tcp::new(1, 2, 3, 4, flags::SYN).octets());
        assert_eq!(Tcp::find(&bytes, 6).unwrap().len, 20);
        for (offset, size, word) in
            [(4, 20, "less than 20"), (0, 60, "less than 20"), (6, 23, "beyond"), (5, 19, "end before")]
        {
            bytes.resize(size, 0);
            if size > 12 {
                bytes[12] = offset << 4;
            }
            let error = Tcp::find(&bytes, 6).unwrap_err();
            assert!(error.rule.contains(word), "offset {offset}, {size} bytes");
            // The rest of the header may be in the next fragment, but no fragment makes a wrong offset right.
            let is_announced = announced_by_first_fragment(6, &bytes) != NOTHING;
            assert_eq!(is_announced, word == "less than 20", "offset {offset}, {size} bytes");
        }
    }
}
