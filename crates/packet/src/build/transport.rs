//! Building the transport layer: UDP, and TCP with flags and options.

use super::Builder;
use crate::stack::{Follows, Header};
use crate::tcp::Tcp;
use crate::udp::Udp;

impl<'p, H> Builder<'p, H> {
    /// UDP between these ports.
    pub fn udp(self, source_port: u16, destination_port: u16) -> Builder<'p, Udp>
    where
        Udp: Follows<H>,
        H: Header,
    {
        let mut header = [0; 8];
        header[..2].copy_from_slice(&source_port.to_be_bytes());
        header[2..4].copy_from_slice(&destination_port.to_be_bytes());
        self.push(<Udp as Follows<H>>::NUMBERS[0], &header)
    }

    /// TCP between these ports: no flags, sequence number 0, window 65,535.
    pub fn tcp(self, source_port: u16, destination_port: u16) -> Builder<'p, Tcp>
    where
        Tcp: Follows<H>,
        H: Header,
    {
        let mut header = [0; 20];
        header[..2].copy_from_slice(&source_port.to_be_bytes());
        header[2..4].copy_from_slice(&destination_port.to_be_bytes());
        (header[12], header[14], header[15]) = (0x50, 0xff, 0xff);
        self.push(<Tcp as Follows<H>>::NUMBERS[0], &header)
    }
}

impl Builder<'_, Udp> {
    /// Sends without a checksum: 0, which IPv4 allows (RFC 768) and IPv6 only in tunnels (RFC 6935).
    pub fn unchecked(mut self) -> Self {
        self.placed().unchecked = true;
        self
    }
}

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name(self) -> Self {
            self.add_flags($bit)
        }
    )*};
}

impl Builder<'_, Tcp> {
    flags! {
        /// The sender has no more to send.
        fin = 0x01;
        /// Opens the connection.
        syn = 0x02;
        /// Aborts the connection.
        rst = 0x04;
        /// The receiver should pass the data to the application.
        psh = 0x08;
        /// The urgent pointer counts.
        urg = 0x20;
        /// Congestion was seen (RFC 3168).
        ece = 0x40;
        /// The congestion window was reduced (RFC 3168).
        cwr = 0x80;
    }

    fn add_flags(mut self, flags: u8) -> Self {
        let at = self.at() + 13;
        if at < self.size {
            self.headers[at] |= flags;
        }
        self
    }
    /// Exactly these flags, FIN the lowest bit and CWR the highest.
    pub fn flags(mut self, flags: u8) -> Self {
        let at = self.at() + 13;
        if at < self.size {
            self.headers[at] = flags;
        }
        self
    }
    /// The sequence number of the first byte of data, or of SYN.
    pub fn sequence(self, number: u32) -> Self {
        self.with::<Tcp>(|header| header.put_sequence_number(number))
    }
    /// The next sequence number expected, and the ACK flag.
    pub fn ack(self, number: u32) -> Self {
        self.with::<Tcp>(|header| header.put_acknowledgment_number(number)).add_flags(0x10)
    }
    /// Bytes that the sender takes, before scaling.
    pub fn window(self, bytes: u16) -> Self {
        self.with::<Tcp>(|header| header.put_window(bytes))
    }
    /// Where urgent data ends, counted from the sequence number, and the URG flag.
    pub fn urgent_pointer(self, pointer: u16) -> Self {
        self.with::<Tcp>(|header| header.put_urgent_pointer(pointer)).urg()
    }
    /// An option of this kind, with its length and data (RFC 9293, section 3.1); 1, no operation, has neither.
    pub fn option(mut self, kind: u8, data: &[u8]) -> Self {
        let mut option = [kind; 40];
        let size = if kind == 1 { 1 } else { 2 + data.len() };
        let length = match option.get_mut(2..size) {
            None if kind == 1 => self.append_option(&[1]),
            None => return self.refuse_options(),
            Some(place) => {
                place.copy_from_slice(data);
                option[1] = size as u8;
                self.append_option(&option[..size])
            }
        };
        self.with::<Tcp>(|header| header.put_data_offset((length / 4) as u8))
    }
    fn refuse_options(mut self) -> Self {
        self.append_option(&[0; 41]);
        self
    }
    /// The largest segment that the sender takes, in bytes (RFC 9293, section 3.7.1).
    pub fn maximum_segment_size(self, bytes: u16) -> Self {
        self.option(2, &bytes.to_be_bytes())
    }
    /// By how many bits windows are shifted, 0 to 14 (RFC 7323, section 2).
    pub fn window_scale(self, shift: u8) -> Self {
        self.option(3, &[shift])
    }
    /// The sender reads selective acknowledgements (RFC 2018, section 2).
    pub fn sack_permitted(self) -> Self {
        self.option(4, &[])
    }
    /// Blocks received beyond the acknowledged bytes (RFC 2018, section 3).
    ///
    /// Each goes from its first byte to the one after its last; up to four fit.
    pub fn selective_acknowledgment(self, blocks: &[(u32, u32)]) -> Self {
        let mut data = [0; 32];
        let Some(data) = data.get_mut(..8 * blocks.len()) else { return self.refuse_options() };
        let (edges, _) = data.as_chunks_mut::<4>();
        for (place, edge) in edges.iter_mut().zip(blocks.iter().flat_map(|(left, right)| [left, right])) {
            *place = edge.to_be_bytes();
        }
        self.option(5, data)
    }
    /// The sender's clock, and the receiver's as it was last seen (RFC 7323, section 3).
    pub fn timestamps(self, value: u32, echo: u32) -> Self {
        let mut data = [0; 8];
        data[..4].copy_from_slice(&value.to_be_bytes());
        data[4..].copy_from_slice(&echo.to_be_bytes());
        self.option(8, &data)
    }
}
