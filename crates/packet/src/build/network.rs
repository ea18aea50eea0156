//! Building the network layer: IPv4 with options and fragment fields, IPv6 with extension headers.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Builder, IntoAddress};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::protocol;
use crate::srv6::SegmentRouting;
use crate::stack::{Follows, Header};

/// The protocol of a packet that ends with its payload: a number for experiments (RFC 3692).
const EXPERIMENTAL: u8 = 253;

/// An IPv4 packet without a link layer, as raw IP interfaces carry it.
pub fn ipv4(
    source: impl IntoAddress<Ipv4Addr>,
    destination: impl IntoAddress<Ipv4Addr>,
) -> Builder<'static, Ipv4> {
    Builder::<Ipv4>::empty().push_ipv4(0, source, destination)
}

/// An IPv6 packet without a link layer, as raw IP interfaces carry it.
pub fn ipv6(
    source: impl IntoAddress<Ipv6Addr>,
    destination: impl IntoAddress<Ipv6Addr>,
) -> Builder<'static, Ipv6> {
    Builder::<Ipv6>::empty().push_ipv6(0, source, destination)
}

impl<'p, H> Builder<'p, H> {
    /// IPv4 with 64 hops left, no options, identification 0, no fragment.
    pub fn ipv4(
        self,
        source: impl IntoAddress<Ipv4Addr>,
        destination: impl IntoAddress<Ipv4Addr>,
    ) -> Builder<'p, Ipv4>
    where
        Ipv4: Follows<H>,
        H: Header,
    {
        self.push_ipv4(<Ipv4 as Follows<H>>::NUMBERS[0], source, destination)
    }

    /// IPv6 with 64 hops left and no extension headers.
    pub fn ipv6(
        self,
        source: impl IntoAddress<Ipv6Addr>,
        destination: impl IntoAddress<Ipv6Addr>,
    ) -> Builder<'p, Ipv6>
    where
        Ipv6: Follows<H>,
        H: Header,
    {
        self.push_ipv6(<Ipv6 as Follows<H>>::NUMBERS[0], source, destination)
    }

    fn push_ipv4(
        mut self,
        number: u16,
        source: impl IntoAddress<Ipv4Addr>,
        destination: impl IntoAddress<Ipv4Addr>,
    ) -> Builder<'p, Ipv4> {
        let (source, destination) = (self.read(source.into_address()), self.read(destination.into_address()));
        let mut header = [0; 20];
        (header[0], header[8], header[9]) = (0x45, 64, EXPERIMENTAL);
        header[12..16].copy_from_slice(&source.octets());
        header[16..].copy_from_slice(&destination.octets());
        self.push(number, &header)
    }

    fn push_ipv6(
        mut self,
        number: u16,
        source: impl IntoAddress<Ipv6Addr>,
        destination: impl IntoAddress<Ipv6Addr>,
    ) -> Builder<'p, Ipv6> {
        let (source, destination) = (self.read(source.into_address()), self.read(destination.into_address()));
        let mut header = [0; 40];
        (header[0], header[6], header[7]) = (0x60, EXPERIMENTAL, 64);
        header[8..24].copy_from_slice(&source.octets());
        header[24..].copy_from_slice(&destination.octets());
        self.push(number, &header)
    }
}

impl Builder<'_, Ipv4> {
    /// Hops left.
    pub fn ttl(self, hops: u8) -> Self {
        self.with::<Ipv4>(|header| header.put_time_to_live(hops))
    }
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub fn dscp(self, dscp: u8) -> Self {
        self.with::<Ipv4>(|header| header.put_dscp(dscp))
    }
    /// Explicit congestion notification, 0 to 3 (RFC 3168).
    pub fn ecn(self, ecn: u8) -> Self {
        self.with::<Ipv4>(|header| header.put_ecn(ecn))
    }
    /// The number that all fragments of one packet share.
    pub fn identification(self, identification: u16) -> Self {
        self.with::<Ipv4>(|header| header.put_identification(identification))
    }
    /// Routers may not fragment the packet.
    pub fn dont_fragment(self) -> Self {
        self.with::<Ipv4>(|header| header.put_dont_fragment(true))
    }
    /// A fragment that begins `offset` 8-byte units into its packet. `more` is false for the last fragment.
    ///
    /// The payload is written as given. Give a later fragment its bytes by [`payload`](Builder::payload), and
    /// its [`protocol`](Builder::protocol).
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        self.with::<Ipv4>(|header| {
            header.put_fragment_offset(offset);
            header.put_more_fragments(more);
        })
    }
    /// The number of a payload that no method here builds.
    pub fn protocol(self, number: u8) -> Self {
        self.with::<Ipv4>(|header| header.put_protocol(number))
    }
    /// An option of this kind, with its length and data (RFC 791, section 3.1).
    pub fn option(mut self, kind: u8, data: &[u8]) -> Self {
        let mut option = [0; 40];
        let size = 2 + data.len();
        let Some(place) = option.get_mut(2..size) else {
            self.append_option(&[0; 41]);
            return self;
        };
        place.copy_from_slice(data);
        (option[0], option[1]) = (kind, size as u8);
        let length = self.append_option(&option[..size]);
        self.with::<Ipv4>(|header| header.put_ihl((length / 4) as u8))
    }
    /// The router alert option (RFC 2113).
    pub fn router_alert(self) -> Self {
        self.option(0x94, &[0, 0])
    }
}

impl Builder<'_, Ipv6> {
    /// Hops left.
    pub fn hop_limit(self, hops: u8) -> Self {
        self.with::<Ipv6>(|header| header.set_hop_limit(hops))
    }
    /// As [`hop_limit`](Builder::hop_limit), by IPv4's name.
    pub fn ttl(self, hops: u8) -> Self {
        self.hop_limit(hops)
    }
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub fn dscp(self, dscp: u8) -> Self {
        self.with::<Ipv6>(|header| header.set_dscp(dscp))
    }
    /// Explicit congestion notification, 0 to 3 (RFC 3168).
    pub fn ecn(self, ecn: u8) -> Self {
        self.with::<Ipv6>(|header| header.set_ecn(ecn))
    }
    /// The flow label, 20 bits (RFC 6437).
    pub fn flow_label(self, label: u32) -> Self {
        self.with::<Ipv6>(|header| header.set_flow_label(label))
    }
    /// The number of a payload that no method here builds.
    pub fn protocol(mut self, number: u8) -> Self {
        let at = self.announcer();
        self.headers[at] = number;
        self
    }
    /// A hop-by-hop options header (RFC 8200, section 4.3) of these options, padded as RFC 8200 says.
    pub fn hop_by_hop(self, options: &[u8]) -> Self {
        self.options_header(protocol::HOP_BY_HOP, options)
    }
    /// A destination options header (RFC 8200, section 4.6) of these options, padded as RFC 8200 says.
    pub fn destination_options(self, options: &[u8]) -> Self {
        self.options_header(protocol::DESTINATION_OPTIONS, options)
    }
    /// A fragment header (RFC 8200, section 4.5): `offset` in 8-byte units. The payload is written as given.
    pub fn fragment(self, offset: u16, more: bool, identification: u32) -> Self {
        let mut header = [0; 8];
        header[2..4].copy_from_slice(&(offset << 3 | u16::from(more)).to_be_bytes());
        header[4..].copy_from_slice(&identification.to_be_bytes());
        self.extension(protocol::FRAGMENT, &header)
    }
    /// A routing header of any type (RFC 8200, section 4.4).
    ///
    /// `data` follows its first four bytes. Zeros fill both to a multiple of 8.
    pub fn routing(mut self, routing_type: u8, segments_left: u8, data: &[u8]) -> Self {
        let mut header = [0; 256];
        let size = (4 + data.len()).next_multiple_of(8);
        let Some(place) = header.get_mut(4..4 + data.len()) else {
            return self.too_many_options(data.len(), 252);
        };
        place.copy_from_slice(data);
        (header[1], header[2], header[3]) = ((size / 8 - 1) as u8, routing_type, segments_left);
        self = self.extension(protocol::ROUTING, &header[..size]);
        self
    }
    /// A segment routing header (RFC 8754). `segments` are in the order of the visit.
    ///
    /// The packet is on its way to the first segment, which becomes IPv6's destination, and `segments.len() -
    /// 1` are left. Pseudo-headers count the last segment.
    pub fn segment_routing(mut self, segments: &[Ipv6Addr]) -> Self {
        let mut header = [0; 8 + 16 * 16];
        let (Some(first), 1..=16) = (segments.first(), segments.len()) else {
            return self.too_many_options(16 * segments.len(), 256);
        };
        let size = 8 + 16 * segments.len();
        header[..8].copy_from_slice(&SegmentRouting::new(0, segments.len() as u8).octets());
        let (list, _) = header[8..size].as_chunks_mut::<16>();
        for (place, segment) in list.iter_mut().zip(segments.iter().rev()) {
            *place = segment.octets();
        }
        self = self.with::<Ipv6>(|header| header.put_destination(*first));
        self.extension(protocol::ROUTING, &header[..size])
    }

    /// The place of the next header's number among the headers' bytes.
    fn announcer(&self) -> usize {
        let at = self.at();
        self.headers
            .get(at..self.size)
            .filter(|header| header.len() >= Ipv6::SIZE)
            .map_or(at, |header| at + Ipv6::facts_of_built(header).announcer())
    }

    fn too_many_options(mut self, bytes: usize, most: usize) -> Self {
        self.fail(super::BuildError::TooManyOptions { header: Ipv6::SHORT, bytes, most });
        self
    }

    /// Options with the two bytes before them, and PadN after them.
    fn options_header(self, number: u8, options: &[u8]) -> Self {
        let mut header = [0; 256];
        let size = (2 + options.len()).next_multiple_of(8);
        let Some(place) = header.get_mut(2..2 + options.len()) else {
            return self.too_many_options(options.len(), 254);
        };
        place.copy_from_slice(options);
        header[1] = (size / 8 - 1) as u8;
        // One byte of padding is the option Pad1, 0; more are PadN, which has a length (RFC 8200, section 4.2).
        if let [kind, length, ..] = &mut header[2 + options.len()..size] {
            (*kind, *length) = (1, (size - options.len() - 4) as u8);
        }
        self.extension(number, &header[..size])
    }

    /// Appends an extension header. Its first byte takes the number that was announced before.
    fn extension(mut self, number: u8, header: &[u8]) -> Self {
        let (start, at) = (self.size, self.announcer());
        self.append(header);
        if self.error.is_none() {
            self.headers[start] = self.headers[at];
            self.headers[at] = number;
        }
        self
    }
}
