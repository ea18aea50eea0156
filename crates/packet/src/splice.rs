//! Replacing options and payload by bytes of another length, with every length field and checksum that follows from it.
//!
//! A [`Splice`] is planned on the packet as it is, and then bytes are moved. Either [`apply`](Splice::apply)
//! moves them into the slack after the packet, or the caller into headroom before it. [`finish`](Splice::finish)
//! writes the lengths and checksums. They are carried, so corruption on the way here is still found at the
//! packet's end.

use core::fmt;
use core::ops::Range;

use crate::checksum::{Sum, field_offset};
use crate::ip::{Ip, IpFacts, IpRef};
use crate::ipv4::Ipv4;
use crate::protocol;
use crate::pseudo::PseudoHeader;
use crate::stack::{Header, Malformed};
use crate::tcp::Tcp;

/// Why bytes can't be spliced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpliceError {
    /// It is no well-formed IP packet, or its transport header is not.
    Malformed(Malformed),
    /// A fragment: the other fragments say where they belong, and a change of length would move them.
    Fragment,
    /// An authentication header (RFC 4302) covers the bytes.
    Authenticated,
    /// The packet has not the options meant, or a payload whose checksum can't be carried.
    WrongProtocol {
        /// The number of the protocol that the packet holds.
        protocol: u8,
    },
    /// The inserted bytes, or the packet after it, are longer than a length field can say.
    TooLong {
        /// Bytes allowed.
        limit: usize,
        /// Bytes asked for.
        asked: usize,
    },
    /// The range reaches beyond the payload.
    OutOfRange {
        /// Bytes of payload.
        payload: usize,
    },
    /// The buffer, or the bytes given to be inserted, have not the planned length.
    WrongSize {
        /// Bytes planned.
        planned: usize,
        /// Bytes given.
        given: usize,
    },
}

impl fmt::Display for SpliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Fragment => f.write_str("a fragment can't change its length: reassemble first"),
            Self::Authenticated => f.write_str("an authentication header covers the bytes"),
            Self::WrongProtocol { protocol } => write!(f, "protocol {protocol} has no such part to splice"),
            Self::TooLong { limit, asked } => write!(f, "{asked} bytes do not fit where {limit} are allowed"),
            Self::OutOfRange { payload } => {
                write!(f, "the range reaches beyond a payload of {payload} bytes")
            }
            Self::WrongSize { planned, given } => {
                write!(f, "{planned} bytes were planned for, {given} were given")
            }
        }
    }
}

impl core::error::Error for SpliceError {}

impl From<Malformed> for SpliceError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Ipv4Options,
    TcpOptions,
    Payload,
}

/// A planned replacement in one IP packet; offsets are in bytes from the IP header's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    part: Part,
    v6: bool,
    protocol: u8,
    transport: usize,
    at: usize,
    removed: usize,
    inserted: usize,
    given: usize,
    end: usize,
    /// The one's complement sum, before the splice, of the covered bytes that it changes.
    before: u16,
    /// The one's complement sum of the addresses in the pseudo-header before it.
    ///
    /// It counts where IPv4 options are replaced: a source route among them holds the final destination.
    addresses: u16,
    /// The transport checksum holds the pseudo-header's sum alone.
    partial: bool,
}

impl Splice {
    /// Replaces all IPv4 options by `length` bytes of options (at most 40; padded to a multiple of 4).
    ///
    /// # Errors
    /// As [`SpliceError`] lists them.
    pub fn ipv4_options(ip: &[u8], length: usize) -> Result<Self, SpliceError> {
        let mut splice = Self::new(ip, Part::Ipv4Options, length)?;
        if splice.v6 {
            return Err(SpliceError::WrongProtocol { protocol: protocol::IPV6 });
        }
        splice.at = 20;
        splice.removed = splice.transport - 20;
        splice.addresses = addresses(&ip[..splice.transport]);
        splice.planned(ip)
    }

    /// Replaces all TCP options by `length` bytes of options (at most 40; padded to a multiple of 4).
    ///
    /// # Errors
    /// As [`SpliceError`] lists them.
    pub fn tcp_options(ip: &[u8], length: usize) -> Result<Self, SpliceError> {
        let mut splice = Self::new(ip, Part::TcpOptions, length)?;
        if splice.protocol != protocol::TCP {
            return Err(SpliceError::WrongProtocol { protocol: splice.protocol });
        }
        splice.at = splice.transport + 20;
        splice.removed = splice.transport_header(ip)? - 20;
        splice.planned(ip)
    }

    /// Replaces `range` of the payload after the TCP, UDP, ICMP or ICMPv6 header by `length` bytes.
    ///
    /// The caller adjusts TCP's sequence numbers.
    ///
    /// # Errors
    /// As [`SpliceError`] lists them.
    pub fn payload(ip: &[u8], range: Range<usize>, length: usize) -> Result<Self, SpliceError> {
        let mut splice = Self::new(ip, Part::Payload, length)?;
        let payload = splice.transport + splice.transport_header(ip)?;
        if range.start > range.end || range.end > splice.end - payload {
            return Err(SpliceError::OutOfRange { payload: splice.end - payload });
        }
        splice.at = payload + range.start;
        splice.removed = range.end - range.start;
        splice.planned(ip)
    }

    fn new(ip: &[u8], part: Part, length: usize) -> Result<Self, SpliceError> {
        let found = Ip::find(ip, 0)?;
        let view = Ip::view(&ip[..found.len], found.facts);
        if view.is_fragment() {
            return Err(SpliceError::Fragment);
        }
        let authenticated = match view {
            IpRef::V4(_) => view.protocol() == protocol::AH,
            IpRef::V6(header) => header.extensions().any(|extension| extension.kind == protocol::AH),
        };
        if authenticated {
            return Err(SpliceError::Authenticated);
        }
        let inserted = if part == Part::Payload { length } else { length.next_multiple_of(4) };
        if part != Part::Payload && inserted > 40 {
            return Err(SpliceError::TooLong { limit: 40, asked: length });
        }
        let splice = Self {
            part,
            v6: matches!(found.facts, IpFacts::V6(_)),
            protocol: view.protocol(),
            transport: found.len,
            at: found.len,
            removed: 0,
            inserted,
            given: length,
            end: found.total.unwrap_or(ip.len()),
            before: 0,
            addresses: 0,
            partial: false,
        };
        Ok(splice)
    }

    /// The length of the transport header, which is whole and, in UDP, states the same end as the IP header.
    fn transport_header(&self, ip: &[u8]) -> Result<usize, SpliceError> {
        let segment = &ip[self.transport..self.end];
        let wrong = SpliceError::WrongProtocol { protocol: self.protocol };
        match self.protocol {
            protocol::TCP => Ok(Tcp::find(segment, 0)?.len),
            protocol::UDP => {
                let found = crate::udp::Udp::find(segment, 0)?;
                if found.total == Some(segment.len()) { Ok(found.len) } else { Err(wrong) }
            }
            protocol::ICMP => Ok(crate::icmpv4::Icmpv4::find(segment, 0)?.len),
            protocol::ICMPV6 => Ok(crate::icmpv6::Icmpv6::find(segment, 0)?.len),
            _ => Err(wrong),
        }
    }

    fn planned(mut self, ip: &[u8]) -> Result<Self, SpliceError> {
        // An IPv6 length counts from the end of the fixed part, an IPv4 one from the packet's start. Jumbograms are
        // over the limit already.
        let limit = if self.v6 { 40 + 0xffff } else { 0xffff };
        if self.new_end() > limit || self.end > limit {
            return Err(SpliceError::TooLong { limit, asked: self.new_end().max(self.end) });
        }
        self.before = self.covered(ip, self.removed, self.end);
        Ok(self)
    }

    /// The same in a packet whose transport checksum is left to a device.
    ///
    /// The field holds the sum of the pseudo-header, in which the length alone changes. The device adds the rest
    /// (virtio 1.2, section 5.1.6.2).
    #[must_use]
    pub const fn left_to_device(self) -> Self {
        Self { partial: true, ..self }
    }

    /// The transport protocol.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }
    /// Where the transport header begins now.
    pub const fn transport(&self) -> usize {
        self.transport
    }
    /// Where the change begins.
    pub const fn at(&self) -> usize {
        self.at
    }
    /// Bytes that go away there.
    pub const fn removed(&self) -> usize {
        self.removed
    }
    /// Bytes that come in their place, padding included.
    pub const fn inserted(&self) -> usize {
        self.inserted
    }
    /// Where the packet ends now.
    pub const fn old_end(&self) -> usize {
        self.end
    }
    /// Where it will end.
    pub const fn new_end(&self) -> usize {
        self.end - self.removed + self.inserted
    }
    /// By how many bytes the packet grows.
    pub const fn growth(&self) -> isize {
        self.inserted as isize - self.removed as isize
    }

    /// Moves the bytes after the change to their new place in `buffer` and [`finish`](Splice::finish)es.
    ///
    /// `buffer` begins with the packet and has room for it as it will be. Returns the packet's new length.
    ///
    /// # Errors
    /// [`SpliceError::WrongSize`]; then nothing was written.
    pub fn apply(&self, buffer: &mut [u8], bytes: &[u8]) -> Result<usize, SpliceError> {
        self.check(buffer.len().min(self.new_end()), bytes.len())?;
        if buffer.len() < self.end {
            return Err(SpliceError::WrongSize { planned: self.end, given: buffer.len() });
        }
        buffer.copy_within(self.at + self.removed..self.end, self.at + self.inserted);
        self.finish(&mut buffer[..self.new_end()], bytes)
    }

    /// Writes the inserted `bytes`, the lengths and the checksums into `ip`, whose bytes were moved.
    ///
    /// Those before [`at`](Splice::at) and those from `at + removed` on are where they belong. Returns its
    /// length.
    ///
    /// # Errors
    /// [`SpliceError::WrongSize`]; then nothing was written.
    pub fn finish(&self, ip: &mut [u8], bytes: &[u8]) -> Result<usize, SpliceError> {
        self.check(ip.len(), bytes.len())?;
        let end = self.new_end();
        let room = &mut ip[self.at..self.at + self.inserted];
        room[..bytes.len()].copy_from_slice(bytes);
        // Zero is "end of options" in IPv4 and TCP.
        room[bytes.len()..].fill(0);
        match self.part {
            Part::Ipv4Options => {
                ip[0] = 0x40 | (5 + self.inserted / 4) as u8;
                write16(ip, 2, end as u16);
                let after = self.covered(ip, self.inserted, end);
                carry(ip, 10, self.before, after, false);
                self.carry_addresses(&mut ip[..end]);
                return Ok(end);
            }
            Part::TcpOptions => {
                ip[self.transport + 12] = ip[self.transport + 12] & 15 | ((5 + self.inserted / 4) as u8) << 4
            }
            Part::Payload if self.protocol == protocol::UDP => {
                write16(ip, self.transport + 4, (end - self.transport) as u16);
            }
            Part::Payload => {}
        }
        if let Some(offset) = field_offset(self.protocol) {
            let field = self.transport + offset;
            if self.partial {
                let length = |end: usize| (end - self.transport) as u32;
                let sum =
                    Sum::ZERO.add_bytes(&ip[field..field + 2]).add32(!length(self.end)).add32(length(end));
                write16(ip, field, sum.fold());
            } else {
                let after = self.covered(ip, self.inserted, end);
                carry(ip, field, self.before, after, self.protocol == protocol::UDP);
            }
        }
        if self.v6 {
            write16(ip, 4, (end - 40) as u16);
        } else {
            let before = u16::from_be_bytes([ip[2], ip[3]]);
            write16(ip, 2, end as u16);
            carry(ip, 10, before, end as u16, false);
        }
        Ok(end)
    }

    /// Carries the addresses of the new pseudo-header into the transport checksum, where new options changed them.
    fn carry_addresses(&self, ip: &mut [u8]) {
        let transport = 20 + self.inserted;
        let after = addresses(&ip[..transport]);
        let place = field_offset(self.protocol).filter(|_| self.protocol != protocol::ICMP);
        let Some(field) = place.map(|offset| transport + offset).filter(|field| field + 2 <= ip.len()) else {
            return;
        };
        if after == self.addresses {
            return;
        }
        if self.partial {
            let sum = Sum::ZERO.add_bytes(&ip[field..field + 2]).add16(!self.addresses).add16(after);
            write16(ip, field, sum.fold());
        } else {
            carry(ip, field, self.addresses, after, is_udp(self.protocol));
        }
    }

    fn check(&self, ip: usize, bytes: usize) -> Result<(), SpliceError> {
        for (planned, given) in [(self.new_end(), ip), (self.given, bytes)] {
            if planned != given {
                return Err(SpliceError::WrongSize { planned, given });
            }
        }
        Ok(())
    }

    /// The sum of all that a checksum covers and this splice changes.
    ///
    /// The packet ends at `end` and has `middle` bytes at the place of the change.
    fn covered(&self, ip: &[u8], middle: usize, end: usize) -> u16 {
        // New IPv4 options may end before the transport header began.
        let length = end.saturating_sub(self.transport) as u32;
        let sum = match self.part {
            // Without the checksum, which the header's length does not move.
            Part::Ipv4Options => Sum::ZERO.add_bytes(&ip[..10]).add_bytes(&ip[12..20 + middle]),
            Part::TcpOptions => Sum::ZERO
                .add_bytes(&ip[self.transport + 12..self.transport + 14])
                .add_bytes(&ip[self.at..self.at + middle])
                .add32(length),
            Part::Payload => {
                let start = self.at - (self.at - self.transport) % 2;
                // Bytes after the change keep their sum if they move by an even number of bytes. A word that
                // is half changed counts as changed.
                let stop = if self.growth() % 2 == 0 {
                    end.min(self.at + middle + (self.at + middle - start) % 2)
                } else {
                    end
                };
                let sum = Sum::ZERO.add_bytes(&ip[start..stop]);
                match self.protocol {
                    protocol::ICMP => sum,
                    // Once in the pseudo-header, once in the header.
                    protocol::UDP => sum.add32(length).add32(length),
                    _ => sum.add32(length),
                }
            }
        };
        sum.fold()
    }
}

fn write16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of the addresses in the pseudo-header of a packet with this IPv4 header.
fn addresses(header: &[u8]) -> u16 {
    let pseudo = PseudoHeader::of(IpRef::V4(Ipv4::view(header, ())));
    Sum::ZERO.add_address(pseudo.source()).add_address(pseudo.destination()).fold()
}

const fn is_udp(number: u8) -> bool {
    matches!(number, protocol::UDP | protocol::UDP_LITE)
}

/// RFC 1624, equation 3, with RFC 768's zero rule for UDP.
fn carry(bytes: &mut [u8], at: usize, before: u16, after: u16, udp: bool) {
    let checksum = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if udp && checksum == 0 {
        return;
    }
    let carried = crate::checksum::update16(checksum, before, after);
    write16(bytes, at, if udp && carried == 0 { 0xffff } else { carried });
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::oracle::{self, Random, Sample};

    /// Cut, put together, the lengths set, the checksums computed again: IPv4 options (0), TCP options (1) or payload (2).
    fn by_hand(sample: Sample, part: usize, cut: Range<usize>, bytes: &[u8]) -> Sample {
        let mut padded = Vec::from(bytes);
        if part < 2 {
            padded.resize(bytes.len().next_multiple_of(4), 0);
        }
        let old = sample.bytes;
        let mut made = Sample { bytes: [&old[..cut.start], &padded, &old[cut.end..]].concat(), ..sample };
        let size = made.bytes.len();
        if part == 0 {
            made.transport = 20 + padded.len();
            // The route went with the options.
            made.final_at = None;
            made.bytes[0] = 0x45 + (padded.len() / 4) as u8;
        }
        let transport = made.transport;
        if part == 1 {
            let words = 5 + (padded.len() / 4) as u8;
            made.bytes[transport + 12] = made.bytes[transport + 12] & 15 | words << 4;
        }
        if made.v6 {
            made.bytes[4..6].copy_from_slice(&((size - 40) as u16).to_be_bytes());
        } else {
            made.bytes[2..4].copy_from_slice(&(size as u16).to_be_bytes());
        }
        if made.protocol == protocol::UDP {
            let length = ((size - transport) as u16).to_be_bytes();
            made.bytes[transport + 4..transport + 6].copy_from_slice(&length);
        }
        made.refresh();
        made
    }

    /// A checksum that is left to a device is the same after the device has completed it.
    ///
    /// Answers whether there is a checksum.
    fn is_same_when_left_to_a_device(plan: Splice, old: &[u8], bytes: &[u8], expected: &Sample) -> bool {
        let (offset, before) = (field_offset(expected.protocol).unwrap(), plan.transport());
        let field = before + offset;
        let has_one = matches!(expected.protocol, protocol::TCP | protocol::UDP);
        if !has_one || old[field..field + 2] == [0, 0] {
            return false;
        }
        let (size, transport) = (expected.bytes.len(), expected.transport);
        let mut partial = Vec::from(old);
        let checksum = u16::from_be_bytes([old[field], old[field + 1]]);
        write16(&mut partial, field, 0);
        let rest = Sum::ZERO.add_bytes(&partial[before..]).fold();
        write16(&mut partial, field, Sum::ZERO.add16(!checksum).add16(!rest).fold());
        partial.resize(old.len().max(size), 0xaa);
        assert_eq!(plan.left_to_device().apply(&mut partial, bytes), Ok(size));
        partial.truncate(size);
        let checksum = Sum::ZERO.add_bytes(&partial[transport..]).finish();
        let is_zero = checksum == 0 && expected.protocol == protocol::UDP;
        write16(&mut partial, transport + offset, if is_zero { 0xffff } else { checksum });
        assert_eq!(partial, expected.bytes);
        true
    }

    #[test]
    fn a_splice_is_a_packet_built_again() {
        let mut random = Random(80);
        let (mut spliced, mut left) = (0, 0);
        for _ in 0..100_000 {
            let sample = oracle::packet(&mut random);
            let bytes = random.below(45);
            let bytes = random.edgy(bytes);
            let (old, part) = (sample.bytes.clone(), random.below(3));
            let header = match sample.protocol {
                protocol::TCP => usize::from(old[sample.transport + 12] >> 4) * 4,
                _ => 8,
            };
            let payload = old.len() - sample.transport - header;
            let start = random.below(payload + 1);
            let range = start..start + random.below(payload - start + 1);
            let plan = match part {
                0 => Splice::ipv4_options(&old, bytes.len()),
                1 => Splice::tcp_options(&old, bytes.len()),
                _ => Splice::payload(&old, range.clone(), bytes.len()),
            };
            let plan = match plan {
                Ok(plan) => plan,
                Err(SpliceError::WrongProtocol { .. }) => {
                    assert!(part == 0 && sample.v6 || part == 1 && sample.protocol != protocol::TCP);
                    continue;
                }
                Err(SpliceError::TooLong { limit, asked }) => {
                    assert!(part < 2 && asked > 40 && limit == 40);
                    continue;
                }
                Err(other) => panic!("{other}"),
            };
            let payload = sample.transport + header + range.start..sample.transport + header + range.end;
            let cut = match part {
                0 => 20..sample.transport,
                1 => sample.transport + 20..sample.transport + header,
                _ => payload,
            };
            let expected = by_hand(sample, part, cut.clone(), &bytes);
            let size = expected.bytes.len();

            let mut buffer = old.clone();
            buffer.resize(old.len().max(size) + 7, 0xaa);
            assert_eq!(plan.apply(&mut buffer, &bytes), Ok(size));
            assert_eq!(
                buffer[..size],
                expected.bytes,
                "part {part}, {cut:?}, {} bytes for them",
                bytes.len()
            );
            assert_eq!(plan.growth(), size as isize - old.len() as isize);

            // Moving the head into room before the packet instead gives the same packet.
            let mut moved =
                [&old[..plan.at()], &std::vec![0x55; plan.inserted()], &old[plan.at() + plan.removed()..]]
                    .concat();
            assert_eq!(plan.finish(&mut moved, &bytes), Ok(size));
            assert_eq!(moved, expected.bytes);

            left += u32::from(is_same_when_left_to_a_device(plan, &old, &bytes, &expected));
            spliced += 1;
        }
        assert!(spliced > 40_000 && left > 20_000, "{spliced}, {left}");
    }

    #[test]
    fn a_source_route_that_comes_or_goes_changes_the_checksum_behind_it() {
        let mut random = Random(83);
        let (mut came, mut went) = (0, 0);
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            if sample.v6 {
                continue;
            }
            went += usize::from(sample.final_at.is_some());
            let count = random.below(9);
            let pointer = 4 + 4 * random.below(count + 1);
            let mut route = std::vec![131, (3 + 4 * count) as u8, pointer as u8];
            route.extend(random.edgy(4 * count));
            let plan = Splice::ipv4_options(&sample.bytes, route.len()).unwrap();
            let mut buffer = sample.bytes.clone();
            buffer.resize(plan.new_end().max(buffer.len()), 0);
            plan.apply(&mut buffer, &route).unwrap();
            buffer.truncate(plan.new_end());
            let transport = 20 + plan.inserted();
            let is_pending = pointer < 4 + 4 * count;
            came += usize::from(is_pending);
            sample = Sample {
                bytes: buffer.clone(),
                transport,
                // The last address of the route.
                final_at: is_pending.then_some(20 + 3 + 4 * (count.max(1) - 1)),
                ..sample
            };
            sample.refresh();
            assert_eq!(buffer, sample.bytes);
        }
        assert!(came > 5_000 && went > 1_000, "{came}, {went}");
    }

    #[test]
    fn sizes_that_do_not_fit_write_nothing() {
        let mut random = Random(81);
        let sample = loop {
            let sample = oracle::packet(&mut random);
            if sample.protocol == protocol::TCP && !sample.v6 {
                break sample;
            }
        };
        let plan = Splice::payload(&sample.bytes, 0..0, 4).unwrap();
        let mut bytes = sample.bytes.clone();
        assert!(matches!(plan.apply(&mut bytes, &[1, 2, 3, 4]), Err(SpliceError::WrongSize { .. })));
        bytes.resize(sample.bytes.len() + 4, 0);
        assert!(matches!(
            plan.apply(&mut bytes, &[1, 2, 3]),
            Err(SpliceError::WrongSize { planned: 4, given: 3 })
        ));
        assert_eq!(bytes[..sample.bytes.len()], sample.bytes);
        assert!(matches!(Splice::payload(&sample.bytes, 0..5000, 0), Err(SpliceError::OutOfRange { .. })));
        assert!(matches!(Splice::payload(&sample.bytes, 0..0, 65_535), Err(SpliceError::TooLong { .. })));
        let mut fragment: Vec<u8> = sample.bytes;
        fragment[6] = 0x20;
        assert_eq!(Splice::tcp_options(&fragment, 0), Err(SpliceError::Fragment));
    }

    #[test]
    fn any_bytes_are_planned_or_refused() {
        let mut random = Random(82);
        for _ in 0..50_000 {
            let mut bytes = oracle::packet(&mut random).bytes;
            oracle::mutate(&mut random, &mut bytes);
            let length = random.below(50);
            let plans = [
                Splice::ipv4_options(&bytes, length),
                Splice::tcp_options(&bytes, length),
                Splice::payload(&bytes, random.below(9)..random.below(90), length),
            ];
            for plan in plans.into_iter().flatten() {
                let mut buffer = bytes.clone();
                buffer.resize(plan.new_end().max(bytes.len()), 0);
                assert_eq!(plan.apply(&mut buffer, &std::vec![7; length]), Ok(plan.new_end()));
                crate::ip::IpRef::split(&buffer).unwrap();
            }
        }
    }
}
