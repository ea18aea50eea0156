//! Pseudo-headers: the addresses that a transport checksum covers. They may differ from those in the IP
//! header's fields.
//!
//! The sender computes the checksum over the final destination. A packet that is still on a source route has the next
//! stop of the route in its Destination Address field, and the final destination elsewhere:
//!
//! | where | which address is final | source |
//! |---|---|---|
//! | IPv6 routing header of type 0, segments left | the last of its list | RFC 8200, section 8.1; RFC 5095 |
//! | type 2 (Mobile IPv6), segments left | its home address | RFC 6275, section 6.4 |
//! | type 3 (RPL), segments left | the last of its list, its prefix that of the destination | RFC 6554, section 3 |
//! | type 4 (segment routing), segments left | Segment List\[0\] | RFC 8754, section 2 |
//! | IPv4 loose or strict source route, not completed | the last of its route data | RFC 791, section 3.1 |
//!
//! The Home Address destination option holds the source that the sender computed the checksum over (RFC 6275, section
//! 11.3.1).
//!
//! If a list contradicts its own lengths, or a routing type is unknown, the final destination is unknown:
//! [`PseudoHeader::is_known`] tells. Such a packet's checksum is never checked. The packet is never changed
//! in a way that needs its final destination.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Sum, field_offset};
use crate::ip::IpRef;
use crate::ipv4::Ipv4Ref;
use crate::ipv6::Ipv6Ref;
use crate::protocol;

/// The addresses that the transport checksum of one packet covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoHeader {
    source: IpAddr,
    destination: IpAddr,
    has_home_address: bool,
    route: Route,
}

/// The place of the final destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// In the Destination Address field.
    Completed,
    /// In a routing header or source route.
    Pending,
    /// In a routing header or source route that can't be read.
    Unreadable,
}

/// The answer of a source route: the final destination, or that it is not known.
type Final<A> = Result<A, Unreadable>;

/// A list of addresses that contradicts its own lengths, or of a type that is not known.
#[derive(Clone, Copy, Debug)]
struct Unreadable;

impl PseudoHeader {
    /// The pseudo-header of the packet that begins with this IP header.
    #[inline]
    pub fn of(ip: IpRef<'_>) -> Self {
        let fields = Self::between(ip.source(), ip.destination());
        match ip {
            IpRef::V4(header) if !header.options_bytes().is_empty() => fields.routed(final_v4(header)),
            IpRef::V6(header) if !header.extensions_bytes().is_empty() => fields.with_extensions(header),
            _ => fields,
        }
    }

    /// The pseudo-header of a packet that its IP header's fields alone describe: no source route, no home address.
    #[inline]
    pub fn between(source: IpAddr, destination: IpAddr) -> Self {
        Self { source, destination, has_home_address: false, route: Route::Completed }
    }

    #[cold]
    fn with_extensions(mut self, header: Ipv6Ref<'_>) -> Self {
        if let Some(home) = home_address(header) {
            (self.source, self.has_home_address) = (home.into(), true);
        }
        self.routed(final_v6(header))
    }

    fn routed<A: Into<IpAddr>>(self, route: Option<Final<A>>) -> Self {
        match route {
            None => self,
            Some(Ok(last)) => Self { destination: last.into(), route: Route::Pending, ..self },
            Some(Err(Unreadable)) => Self { route: Route::Unreadable, ..self },
        }
    }

    /// The source that the checksum covers: the home address where the packet has one.
    #[inline(always)]
    pub fn source(&self) -> IpAddr {
        self.source
    }
    /// The final destination; the Destination Address field where it is not [known](Self::is_known).
    #[inline(always)]
    pub fn destination(&self) -> IpAddr {
        self.destination
    }
    /// Whether the final destination could be read.
    #[inline(always)]
    pub fn is_known(&self) -> bool {
        self.route != Route::Unreadable
    }
    /// Whether the checksum covers the Source Address field.
    #[inline(always)]
    pub fn covers_source_field(&self) -> bool {
        !self.has_home_address
    }
    /// Whether the checksum covers the Destination Address field.
    #[inline(always)]
    pub fn covers_destination_field(&self) -> bool {
        self.route == Route::Completed
    }
    /// The sum of the pseudo-header for a segment of `length` bytes of protocol `number`.
    ///
    /// It is nothing for ICMP, which has no pseudo-header (RFC 792).
    #[inline]
    pub fn sum(&self, number: u8, length: u32) -> Sum {
        match number {
            protocol::ICMP => Sum::ZERO,
            _ => Sum::ZERO.add_pseudo(self.source, self.destination, number, length),
        }
    }
    /// The checksum of a transport `segment`, whose checksum field is zero: see [`checksum::transport`].
    #[inline]
    pub fn checksum(&self, number: u8, segment: &[u8]) -> u16 {
        checksum::transport(self.source, self.destination, number, segment)
    }
}

impl IpRef<'_> {
    /// The addresses that the packet's transport checksum covers.
    #[inline]
    pub fn pseudo_header(&self) -> PseudoHeader {
        PseudoHeader::of(*self)
    }

    /// Whether the checksum of `segment`, which follows this header, is right.
    ///
    /// `None` if that is not known: a fragment, a protocol without an Internet checksum, a segment that is
    /// too short for one, an unknown final destination. A UDP checksum of 0 is right over IPv4 and wrong over
    /// IPv6 (RFC 768; RFC 8200, section 8.1).
    pub fn transport_checksum_is_valid(&self, segment: &[u8]) -> Option<bool> {
        let number = self.protocol();
        let belongs = match number {
            protocol::ICMP => matches!(self, Self::V4(_)),
            protocol::ICMPV6 => matches!(self, Self::V6(_)),
            _ => field_offset(number).is_some(),
        };
        if !belongs || self.is_fragment() {
            return None;
        }
        let pseudo = self.pseudo_header();
        if !pseudo.is_known() && number != protocol::ICMP {
            return None;
        }
        checksum::is_valid(pseudo.source, pseudo.destination, number, segment)
    }
}

const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// Finds the final destination: RFC 791, section 3.1 gives kind, length, pointer, then the route.
///
/// While the pointer is not greater than the length, the route is not completed.
fn final_v4(header: Ipv4Ref<'_>) -> Option<Final<Ipv4Addr>> {
    let is_route = |kind| matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
    // Bytes behind an option with a wrong length are not options.
    let mut routes = header.options().map_while(Result::ok).filter(|option| is_route(option.kind));
    let route = routes.next()?;
    // RFC 1122, section 3.2.1.8: a packet has one source route at most.
    if routes.next().is_some() {
        return Some(Err(Unreadable));
    }
    let Some((pointer, data)) = route.data.split_first() else { return Some(Err(Unreadable)) };
    let (addresses, rest) = data.as_chunks::<4>();
    // Kind, length and pointer come before the data, and the pointer counts from 1.
    let length = 3 + data.len();
    if usize::from(*pointer) > length {
        return None;
    }
    match addresses.last() {
        Some(last) if rest.is_empty() && *pointer >= 4 && pointer.is_multiple_of(4) => {
            Some(Ok(Ipv4Addr::from(*last)))
        }
        _ => Some(Err(Unreadable)),
    }
}

/// The final destination of the last routing header that has segments left: the others are used up before it.
fn final_v6(header: Ipv6Ref<'_>) -> Option<Final<Ipv6Addr>> {
    let routing = |bytes: &[u8]| match bytes {
        [_, _, kind, left, _, _, _, _, list @ ..] if *left > 0 => Some(
            final_of_list(*kind, usize::from(*left), bytes, list, header.destination()).ok_or(Unreadable),
        ),
        _ => None,
    };
    let headers = header.extensions().filter(|extension| extension.kind == protocol::ROUTING);
    headers.filter_map(|extension| routing(extension.bytes)).last()
}

/// The final destination by one routing header of this type, with segments left.
///
/// `None` if its lengths contradict each other, or its type is unknown. `list` has the bytes after the first
/// 8.
fn final_of_list(
    kind: u8,
    left: usize,
    header: &[u8],
    list: &[u8],
    destination: Ipv6Addr,
) -> Option<Ipv6Addr> {
    let (addresses, rest) = list.as_chunks::<16>();
    let last = match kind {
        0 if rest.is_empty() && left <= addresses.len() => addresses.last()?,
        2 if list.len() == 16 && left == 1 => addresses.first()?,
        3 => return final_of_rpl(left, header, list, destination),
        4 => {
            // RFC 8754, section 4.3.1.1: a reduced list lacks the segment that is under way first.
            let entries = usize::from(*header.get(4)?) + 1;
            addresses.first().filter(|_| entries <= addresses.len() && left <= entries)?
        }
        _ => return None,
    };
    Some(Ipv6Addr::from(*last))
}

/// The final destination by a routing header of type 3 (RFC 6554, section 3).
///
/// All addresses but the last lack `CmprI` bytes of the destination's prefix, and the last lacks `CmprE`. `Pad`
/// bytes follow.
fn final_of_rpl(left: usize, header: &[u8], list: &[u8], destination: Ipv6Addr) -> Option<Ipv6Addr> {
    let (shortened, pad) = (*header.get(4)?, usize::from(*header.get(5)? >> 4));
    let (inner, last) = (16 - usize::from(shortened >> 4), 16 - usize::from(shortened & 15));
    let before = list.len().checked_sub(pad + last)?;
    if !before.is_multiple_of(inner) || left > before / inner + 1 {
        return None;
    }
    let mut octets = destination.octets();
    octets[16 - last..].copy_from_slice(list.get(before..before + last)?);
    Some(Ipv6Addr::from(octets))
}

/// The address of the first whole Home Address option in a destination options header.
fn home_address(header: Ipv6Ref<'_>) -> Option<Ipv6Addr> {
    const HOME_ADDRESS: u8 = 201;
    let headers = header.extensions().filter(|extension| extension.kind == protocol::DESTINATION_OPTIONS);
    headers.filter_map(|extension| extension.bytes.get(2..)).find_map(|mut options| {
        loop {
            match options {
                // Pad1 has no length (RFC 8200, section 4.2).
                [0, rest @ ..] => options = rest,
                [HOME_ADDRESS, 16, rest @ ..] => {
                    return rest.first_chunk::<16>().map(|address| Ipv6Addr::from(*address));
                }
                [_, length, rest @ ..] => options = rest.get(usize::from(*length)..)?,
                _ => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::build::{ipv4, ipv6};
    use crate::oracle::{self, Random};

    const FIELD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    const FIRST: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
    const LAST: Ipv6Addr = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 9);

    fn of(packet: &[u8]) -> PseudoHeader {
        IpRef::split(packet).unwrap().0.pseudo_header()
    }

    fn two() -> Vec<u8> {
        [FIRST.octets(), LAST.octets()].concat()
    }

    /// The final destination by a routing header with these bytes behind its first four; `None` if it is not
    /// known.
    fn routed(kind: u8, left: u8, data: &[u8]) -> Option<IpAddr> {
        let packet = ipv6("2001:db8::1", FIELD).routing(kind, left, data).udp(1, 2).build().unwrap();
        let pseudo = of(&packet);
        assert!(pseudo.covers_source_field());
        assert_eq!(pseudo.covers_destination_field(), left == 0);
        pseudo.is_known().then_some(pseudo.destination())
    }

    #[test]
    fn every_routing_type_holds_its_final_destination_where_its_rfc_says() {
        let data = |reserved: [u8; 4], list: &[u8]| [&reserved[..], list].concat();
        let plain = data([0; 4], &two());
        // RFC 5095 deprecates type 0 and forbids following it; a sender still computed its checksum.
        for left in [1, 2] {
            assert_eq!(routed(0, left, &plain), Some(LAST.into()));
        }
        assert_eq!(routed(0, 0, &plain), Some(FIELD.into()));
        assert_eq!(routed(2, 1, &data([0; 4], &LAST.octets())), Some(LAST.into()));
        // Segment List[0] is the last; a reduced list has one segment more left than entries (RFC 8754, section 4.1.1).
        for left in [1, 2] {
            assert_eq!(routed(4, left, &data([1, 0, 0, 0], &two())), Some(FIRST.into()));
        }
        // RFC 6554: CmprI and CmprE 15, Pad 6: bytes 7 and 8 end two addresses with the destination's prefix.
        let rpl = data([0xff, 0x60, 0, 0], &[7, 8, 0, 0, 0, 0, 0, 0]);
        let last = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 8);
        assert_eq!(routed(3, 2, &rpl), Some(last.into()));
    }

    #[test]
    fn lists_that_contradict_themselves_and_types_that_are_not_known_can_not_be_told() {
        let data = |reserved: [u8; 4], list: &[u8]| [&reserved[..], list].concat();
        for (kind, left, bytes) in [
            // More segments left than the list has.
            (0, 3, data([0; 4], &two())),
            (0, 1, data([0; 4], &[])),
            (0, 1, data([0; 4], &[0; 24])),
            (2, 2, data([0; 4], &LAST.octets())),
            (2, 1, data([0; 4], &two())),
            (4, 3, data([1, 0, 0, 0], &two())),
            (4, 255, data([255, 0, 0, 0], &two())),
            // The last entry is outside the header.
            (4, 1, data([2, 0, 0, 0], &two())),
            (3, 3, data([0xff, 0x60, 0, 0], &[7, 8, 0, 0, 0, 0, 0, 0])),
            (3, 1, data([0x00, 0xf0, 0, 0], &[0; 8])),
            (3, 1, data([0x0f, 0x00, 0, 0], &[0; 8])),
            // RFC 9631 maps its numbers by tables of each router; 253 is for experiments.
            (5, 1, data([0; 4], &[])),
            (253, 1, data([0; 4], &two())),
        ] {
            assert_eq!(routed(kind, left, &bytes), None, "type {kind}, {left} left, {bytes:?}");
        }
    }

    #[test]
    fn the_last_routing_header_with_segments_left_decides() {
        let build = |left: [u8; 2]| {
            let list = |address: Ipv6Addr| [&[0; 4][..], &address.octets()].concat();
            let packet = ipv6("2001:db8::1", FIELD).routing(0, left[0], &list(FIRST));
            of(&packet.routing(0, left[1], &list(LAST)).udp(1, 2).build().unwrap()).destination()
        };
        assert_eq!(build([1, 1]), IpAddr::from(LAST));
        assert_eq!(build([1, 0]), IpAddr::from(FIRST));
        assert_eq!(build([0, 0]), IpAddr::from(FIELD));
    }

    #[test]
    fn a_home_address_is_the_source_and_one_that_is_cut_is_not() {
        let build = |options: &[u8]| {
            of(&ipv6("2001:db8::1", FIELD).destination_options(options).udp(1, 2).build().unwrap())
        };
        let home = [&[1, 2, 0, 0, 201, 16][..], &LAST.octets()].concat();
        let pseudo = build(&home);
        assert_eq!((pseudo.source(), pseudo.covers_source_field()), (LAST.into(), false));
        assert_eq!((pseudo.destination(), pseudo.covers_destination_field()), (FIELD.into(), true));
        // Its length is not 16, or ends beyond the header, or an option before it does.
        for options in [&[201, 4, 1, 2, 3, 4][..], &[1, 2, 0, 0, 201, 16, 9, 9], &[5, 200, 201, 16]] {
            assert!(build(options).covers_source_field(), "{options:?}");
        }
    }

    #[test]
    fn a_source_route_holds_the_final_destination_until_it_is_completed() {
        let build = |options: &[(u8, &[u8])]| {
            let packet = ipv4("10.0.0.1", "10.0.0.2");
            let packet = options.iter().fold(packet, |packet, (kind, data)| packet.option(*kind, data));
            let pseudo = of(&packet.udp(1, 2).build().unwrap());
            pseudo.is_known().then(|| pseudo.destination().to_string())
        };
        let route = |pointer: u8| [pointer, 10, 0, 0, 7, 10, 0, 0, 8];
        for kind in [131, 137] {
            for pointer in [4, 8] {
                assert_eq!(build(&[(kind, &route(pointer))]).unwrap(), "10.0.0.8");
            }
            assert_eq!(build(&[(kind, &route(12))]).unwrap(), "10.0.0.2");
            assert_eq!(build(&[(kind, &route(255))]).unwrap(), "10.0.0.2");
            // A pointer between addresses or before them, a part of an address, and nothing at all.
            for data in [&route(5)[..], &route(0), &[4, 10, 0, 0], &[4, 10, 0, 0, 7, 1], &[]] {
                assert_eq!(build(&[(kind, data)]), None, "{kind} {data:?}");
            }
            assert_eq!(build(&[(kind, &route(4)), (131, &route(4))]), None, "one route at most");
        }
        // A recorded route is no source route.
        assert_eq!(build(&[(7, &route(4))]).unwrap(), "10.0.0.2");
    }

    #[test]
    fn any_header_has_a_pseudo_header() {
        let mut random = Random(90);
        let mut unknown = 0;
        for _ in 0..100_000 {
            let mut bytes = oracle::packet(&mut random).bytes;
            oracle::mutate(&mut random, &mut bytes);
            if let Ok((ip, segment)) = IpRef::split(&bytes) {
                let pseudo = ip.pseudo_header();
                unknown += usize::from(!pseudo.is_known());
                assert_eq!(pseudo.source().is_ipv4(), pseudo.destination().is_ipv4());
                if !pseudo.is_known() && ip.protocol() != protocol::ICMP {
                    assert_eq!(pseudo.destination(), ip.destination());
                    assert_eq!(ip.transport_checksum_is_valid(segment), None);
                }
            }
        }
        assert!(unknown > 100, "{unknown}");
    }

    use std::string::ToString;
}
