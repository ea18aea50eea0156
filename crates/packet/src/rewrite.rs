//! Rewriting addresses and ports so that every checksum over them stays right (or as wrong as it was).
//!
//! All functions work on an IP packet: the bytes from the IP header's first to its payload's last. Checksums are
//! carried incrementally (RFC 1624), so corruption on the way here is still found at the packet's end. Nothing is
//! written when an error is returned.
//!
//! Addresses are those of the header's fields, as in a [`FlowKey`](crate::FlowKey). A packet on a source
//! route goes to the next stop, which its Destination Address field names. Its final destination is at
//! another place and does not change. The transport checksum then covers the final destination, so a change
//! of the field does not change the checksum: see [`PseudoHeader`]. The same holds for the source, if a Home
//! Address option holds the covered one.

use core::fmt;
use core::net::IpAddr;

use crate::checksum::{Sum, field_offset};
use crate::ip::{Ip, IpFacts, IpRef};
use crate::ipv4::Ipv4;
use crate::ipv6::{self, Ipv6};
use crate::protocol;
use crate::pseudo::PseudoHeader;
use crate::quoted;
use crate::stack::{Header, Malformed};

/// Why a packet was not rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteError {
    /// It is no well-formed IP packet.
    Malformed(Malformed),
    /// An IPv4 address was given for an IPv6 packet, or the other way round.
    WrongVersion,
    /// A later fragment, which has no ports.
    LaterFragment,
    /// A protocol whose ports can't be rewritten: it has none, or a checksum that is not the Internet checksum.
    NoPorts {
        /// The protocol's number.
        protocol: u8,
    },
    /// The transport header ends before the field or its checksum does.
    Truncated {
        /// Bytes of transport header needed.
        needed: u32,
        /// Bytes found.
        found: u32,
    },
    /// An authentication header (RFC 4302) covers the field.
    Authenticated,
    /// More extension headers than [`MAX_EXTENSIONS`](crate::ipv6::MAX_EXTENSIONS) hide the transport header, whose
    /// checksum would have to change.
    TransportNotFound,
    /// It is not an ICMP error, or it quotes no IP packet.
    NoQuote,
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::WrongVersion => {
                f.write_str("the address is of another IP version than the packet: give one of its own")
            }
            Self::LaterFragment => {
                f.write_str("a later fragment holds no ports: reassemble, or rewrite by the first fragment")
            }
            Self::NoPorts { protocol } => {
                write!(f, "protocol {protocol} has no ports under an Internet checksum")
            }
            Self::Truncated { needed, found } => {
                write!(f, "the transport header is cut short (needed {needed} bytes, found {found})")
            }
            Self::Authenticated => {
                f.write_str("an authentication header covers the field, so no rewrite can keep it right")
            }
            Self::TransportNotFound => write!(
                f,
                "more than {} extension headers hide the transport header and its checksum",
                ipv6::MAX_EXTENSIONS
            ),
            Self::NoQuote => f.write_str("the packet is no ICMP error that quotes an IP packet"),
        }
    }
}

impl core::error::Error for RewriteError {}

impl From<Malformed> for RewriteError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Where a packet's addresses, ports and checksums are: looked up once, used for several rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    v6: bool,
    protocol: u8,
    later: bool,
    authenticated: bool,
    /// Too many extension headers come before the transport header.
    hidden: bool,
    /// Whether the pseudo-header holds the header's source; the next flag says the same for the destination.
    source_covered: bool,
    destination_covered: bool,
    /// The transport checksum is left to a device.
    partial: bool,
    transport: u32,
    end: u32,
}

impl Shape {
    /// The shape of a packet.
    ///
    /// # Errors
    /// [`RewriteError::Malformed`].
    #[inline]
    pub fn of(ip: &[u8]) -> Result<Self, RewriteError> {
        let found = Ip::find(ip, 0)?;
        Ok(Self::known(ip, found.facts, found.len, found.total.unwrap_or(ip.len())))
    }
    /// The shape of a packet that was parsed already.
    ///
    /// The parse gave `facts`, its header's length and its payload's end, both in bytes from the start of
    /// `ip`.
    #[inline]
    pub fn known(ip: &[u8], facts: IpFacts, header_len: usize, end: usize) -> Self {
        let mut shape = Self {
            v6: false,
            protocol: 0,
            later: false,
            authenticated: false,
            hidden: false,
            source_covered: true,
            destination_covered: true,
            partial: false,
            transport: header_len as u32,
            end: end.min(ip.len()) as u32,
        };
        match facts {
            IpFacts::V4 => {
                if let Some(fixed) = ip.first_chunk::<20>() {
                    shape.protocol = fixed[9];
                    shape.later = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
                    shape.authenticated = fixed[9] == protocol::AH;
                }
                if header_len > Ipv4::SIZE
                    && let Some(header) = ip.get(..header_len)
                {
                    shape.read_pseudo_header(IpRef::V4(Ipv4::view(header, ())));
                }
            }
            IpFacts::V6(facts) => {
                shape.v6 = true;
                shape.protocol = facts.protocol();
                shape.later = facts.is_later_fragment();
                shape.hidden = facts.hides_transport();
                if header_len > Ipv6::SIZE
                    && let Some(header) = ip.get(..header_len)
                {
                    let header = Ipv6::view(header, facts);
                    shape.authenticated = header.extensions().any(|extension| extension.kind == protocol::AH);
                    shape.read_pseudo_header(IpRef::V6(header));
                }
            }
        }
        shape
    }

    /// The same of a packet whose sender left a checksum to a device.
    ///
    /// The device sums from byte `start` of `ip` on, and puts the checksum `offset` bytes behind that. If it is
    /// the transport's, its field holds the sum of the pseudo-header until then (virtio 1.2, section 5.1.6.2).
    #[must_use]
    pub fn left_to_device(self, start: usize, offset: usize) -> Self {
        let partial = start == self.transport() && self.checksum() == Some(start + offset);
        Self { partial, ..self }
    }

    #[cold]
    fn read_pseudo_header(&mut self, ip: IpRef<'_>) {
        let pseudo = PseudoHeader::of(ip);
        self.source_covered = pseudo.covers_source_field();
        self.destination_covered = pseudo.covers_destination_field();
    }

    /// Where the transport header begins.
    fn transport(&self) -> usize {
        self.transport as usize
    }
    /// Where the transport checksum is, if this packet holds one.
    fn checksum(&self) -> Option<usize> {
        if self.later { None } else { field_offset(self.protocol).map(|offset| self.transport() + offset) }
    }
    fn is_udp(&self) -> bool {
        matches!(self.protocol, protocol::UDP | protocol::UDP_LITE)
    }

    /// Writes the Source Address field.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    #[inline]
    pub fn set_source(&self, ip: &mut [u8], address: IpAddr) -> Result<(), RewriteError> {
        self.set_address(ip, address, if self.v6 { 8 } else { 12 }, self.source_covered, true)
    }
    /// Writes the Destination Address field: on a source route, the next stop.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    #[inline]
    pub fn set_destination(&self, ip: &mut [u8], address: IpAddr) -> Result<(), RewriteError> {
        self.set_address(ip, address, if self.v6 { 24 } else { 16 }, self.destination_covered, true)
    }

    #[inline]
    fn set_address(
        &self,
        ip: &mut [u8],
        address: IpAddr,
        at: usize,
        covered: bool,
        whole: bool,
    ) -> Result<(), RewriteError> {
        if self.v6 != address.is_ipv6() {
            return Err(RewriteError::WrongVersion);
        }
        if self.authenticated {
            return Err(RewriteError::Authenticated);
        }
        if covered && self.hidden {
            return Err(RewriteError::TransportNotFound);
        }
        let mut checksum = if covered && self.protocol != protocol::ICMP { self.checksum() } else { None };
        if let Some(field) = checksum
            && field + 2 > self.end.min(ip.len() as u32) as usize
        {
            if whole {
                return Err(self.truncated(field + 2, ip));
            }
            checksum = None;
        }
        let delta = match address {
            IpAddr::V4(address) => {
                let Some(field) = ip.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) else {
                    return Err(self.truncated(at + 4, ip));
                };
                let old = u32::from_be_bytes(*field);
                *field = address.octets();
                Sum::ZERO.add32(!old).add32(address.to_bits())
            }
            IpAddr::V6(address) => {
                let Some(field) = ip.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<16>()) else {
                    return Err(self.truncated(at + 16, ip));
                };
                let old = u128::from_be_bytes(*field);
                *field = address.octets();
                Sum::ZERO.add128(!old).add128(address.to_bits())
            }
        };
        if !self.v6 {
            carry(ip, 10, delta, false);
        }
        match checksum {
            Some(field) if self.partial => carry_partial(ip, field, delta),
            Some(field) => carry(ip, field, delta, self.is_udp()),
            None => {}
        }
        Ok(())
    }

    /// Exchanges the Source and Destination Address fields.
    ///
    /// A checksum that covers both or neither does not change; one that covers only one of them does.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    pub fn exchange_addresses(&self, ip: &mut [u8]) -> Result<(), RewriteError> {
        let (at, size) = if self.v6 { (8, 16) } else { (12, 4) };
        if self.authenticated {
            return Err(RewriteError::Authenticated);
        }
        let one_is_covered = self.source_covered != self.destination_covered;
        if one_is_covered && self.hidden {
            return Err(RewriteError::TransportNotFound);
        }
        let covers = |_: &usize| one_is_covered && self.protocol != protocol::ICMP;
        let checksum = self.checksum().filter(covers);
        if let Some(field) = checksum
            && field + 2 > self.end.min(ip.len() as u32) as usize
        {
            return Err(self.truncated(field + 2, ip));
        }
        let Some(addresses) = ip.get_mut(at..at + 2 * size) else {
            return Err(self.truncated(at + 2 * size, ip));
        };
        let half = |addresses: &[u8], at: usize| Sum::ZERO.add_bytes(&addresses[at..at + size]).fold();
        let covered = if self.source_covered { 0 } else { size };
        let old = half(addresses, covered);
        addresses.rotate_left(size);
        let delta = Sum::ZERO.add16(!old).add16(half(addresses, covered));
        match checksum {
            Some(field) if self.partial => carry_partial(ip, field, delta),
            Some(field) => carry(ip, field, delta, self.is_udp()),
            None => {}
        }
        Ok(())
    }

    /// Writes the source port.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    #[inline]
    pub fn set_source_port(&self, ip: &mut [u8], port: u16) -> Result<(), RewriteError> {
        self.set_port(ip, 0, port, true)
    }
    /// Writes the destination port.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    #[inline]
    pub fn set_destination_port(&self, ip: &mut [u8], port: u16) -> Result<(), RewriteError> {
        self.set_port(ip, 2, port, true)
    }
    /// Writes both ports.
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    #[inline]
    pub fn set_ports(&self, ip: &mut [u8], source: u16, destination: u16) -> Result<(), RewriteError> {
        self.set_port(ip, 0, source, true)?;
        self.set_port(ip, 2, destination, true)
    }
    /// Writes an ICMP or ICMPv6 echo's identifier, which serves as port in a [`FlowKey`](crate::FlowKey).
    ///
    /// # Errors
    /// As [`RewriteError`] lists them; then nothing was written.
    pub fn set_echo_identifier(&self, ip: &mut [u8], identifier: u16) -> Result<(), RewriteError> {
        if self.later {
            return Err(RewriteError::LaterFragment);
        }
        let (at, end) = (self.transport(), (self.end as usize).min(ip.len()));
        let Some(header) = ip.get_mut(at..end).and_then(|bytes| bytes.first_chunk_mut::<8>()) else {
            return Err(self.truncated(at + 8, ip));
        };
        if !matches!((self.protocol, header[0]), (protocol::ICMP, 0 | 8) | (protocol::ICMPV6, 128 | 129)) {
            return Err(RewriteError::NoPorts { protocol: self.protocol });
        }
        let old = u16::from_be_bytes([header[4], header[5]]);
        [header[4], header[5]] = identifier.to_be_bytes();
        if !self.partial {
            carry(ip, at + 2, Sum::ZERO.add16(!old).add16(identifier), false);
        }
        Ok(())
    }

    #[inline]
    fn set_port(&self, ip: &mut [u8], offset: usize, port: u16, whole: bool) -> Result<(), RewriteError> {
        if self.later {
            return Err(RewriteError::LaterFragment);
        }
        if self.authenticated {
            return Err(RewriteError::Authenticated);
        }
        if !matches!(self.protocol, protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::DCCP) {
            return Err(RewriteError::NoPorts { protocol: self.protocol });
        }
        let (at, end) = (self.transport() + offset, (self.end as usize).min(ip.len()));
        let checksum = self.checksum().filter(|field| field + 2 <= end);
        if whole && checksum.is_none() {
            return Err(self.truncated(self.checksum().unwrap_or(at) + 2, ip));
        }
        let Some(field) = ip.get_mut(at..end).and_then(|rest| rest.first_chunk_mut::<2>()) else {
            return Err(self.truncated(at + 2, ip));
        };
        let old = u16::from_be_bytes(*field);
        *field = port.to_be_bytes();
        // The field does not yet contain the bytes that the device adds.
        if let Some(field) = checksum
            && !self.partial
        {
            carry(ip, field, Sum::ZERO.add16(!old).add16(port), self.is_udp());
        }
        Ok(())
    }

    #[cold]
    fn truncated(&self, needed: usize, ip: &[u8]) -> RewriteError {
        let found = (self.end as usize).min(ip.len()).saturating_sub(self.transport());
        RewriteError::Truncated {
            needed: needed.saturating_sub(self.transport()) as u32,
            found: found as u32,
        }
    }
}

/// Carries a change into the checksum at byte `at`: RFC 1624, equation 3; for UDP with RFC 768's zero rule.
#[inline(always)]
fn carry(ip: &mut [u8], at: usize, delta: Sum, udp: bool) {
    let Some(field) = ip.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) else { return };
    let checksum = u16::from_be_bytes(*field);
    if udp && checksum == 0 {
        return;
    }
    let carried = delta.add16(!checksum).finish();
    *field = (if udp && carried == 0 { 0xffff } else { carried }).to_be_bytes();
}

/// Carries a change of the pseudo-header into its sum, which is not complemented, at byte `at`.
#[cold]
fn carry_partial(ip: &mut [u8], at: usize, delta: Sum) {
    if let Some(field) = ip.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = delta.add16(u16::from_be_bytes(*field)).fold().to_be_bytes();
    }
}

/// Writes the Source Address field of the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_source(ip: &mut [u8], address: IpAddr) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_source(ip, address)
}
/// Writes the Destination Address field of the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_destination(ip: &mut [u8], address: IpAddr) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_destination(ip, address)
}
/// Writes the source port of the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_source_port(ip: &mut [u8], port: u16) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_source_port(ip, port)
}
/// Writes the destination port of the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_destination_port(ip: &mut [u8], port: u16) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_destination_port(ip, port)
}
/// Writes both ports of the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_ports(ip: &mut [u8], source: u16, destination: u16) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_ports(ip, source, destination)
}
/// Writes the identifier of the ICMP or ICMPv6 echo in the IP packet `ip`.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
#[inline]
pub fn set_echo_identifier(ip: &mut [u8], identifier: u16) -> Result<(), RewriteError> {
    Shape::of(ip)?.set_echo_identifier(ip, identifier)
}

/// One change to the packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotedChange {
    /// Its source address.
    Source(IpAddr),
    /// Its destination address.
    Destination(IpAddr),
    /// Its source port, or an echo's identifier.
    SourcePort(u16),
    /// Its destination port, or an echo's identifier.
    DestinationPort(u16),
}

/// Changes the packet quoted by the ICMP or ICMPv6 error in the IP packet `ip`.
///
/// A translator must (RFC 5508, section 4.2). The quoted header's checksum stays right, and so does the error's
/// own. So does the quoted transport's, where the quote reaches so far.
///
/// # Errors
/// As [`RewriteError`] lists them; then nothing was written.
pub fn change_quoted(ip: &mut [u8], change: QuotedChange) -> Result<(), RewriteError> {
    let shape = Shape::of(ip)?;
    let (message, end) = (shape.transport(), (shape.end as usize).min(ip.len()));
    if shape.later {
        return Err(RewriteError::LaterFragment);
    }
    let Some([kind, _, _, _, v6_words, v4_words, ..]) = ip.get(message..end).filter(|bytes| bytes.len() >= 8)
    else {
        return Err(RewriteError::NoQuote);
    };
    // As `quoted` of the two ICMP headers: RFC 4884's lengths.
    let length = match (shape.protocol, kind) {
        (protocol::ICMP, 3 | 11 | 12) => usize::from(*v4_words) * 4,
        (protocol::ICMP, 4 | 5) | (protocol::ICMPV6, 2 | 4) => 0,
        (protocol::ICMPV6, 1 | 3) => usize::from(*v6_words) * 8,
        _ => return Err(RewriteError::NoQuote),
    };
    let start = message + 8;
    let stop = if length > 0 { end.min(start + length) } else { end };
    let quote = &mut ip[start..stop];
    let (facts, len, quote_end) = quoted::find(quote).ok_or(RewriteError::NoQuote)?;
    let inner = Shape::known(quote, facts, len, quote_end);
    // Only the header and the first 20 bytes after it can change. Both are even, as is the quote's offset in the
    // message, so the sum over them can be taken out of the message's and added again.
    let touched = quote.len().min(len + 20);
    let old = Sum::ZERO.add_bytes(&quote[..touched]).fold();
    match change {
        QuotedChange::Source(address) => {
            let at = if inner.v6 { 8 } else { 12 };
            inner.set_address(quote, address, at, inner.source_covered, false)?;
        }
        QuotedChange::Destination(address) => {
            let at = if inner.v6 { 24 } else { 16 };
            inner.set_address(quote, address, at, inner.destination_covered, false)?;
        }
        QuotedChange::SourcePort(port) | QuotedChange::DestinationPort(port)
            if matches!(inner.protocol, protocol::ICMP | protocol::ICMPV6) =>
        {
            inner.set_echo_identifier(quote, port)?;
        }
        QuotedChange::SourcePort(port) => inner.set_port(quote, 0, port, false)?,
        QuotedChange::DestinationPort(port) => inner.set_port(quote, 2, port, false)?,
    }
    let new = Sum::ZERO.add_bytes(&quote[..touched]).fold();
    carry(ip, message + 2, Sum::ZERO.add16(!old).add16(new), false);
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::checksum;
    use crate::ip::IpRef;
    use crate::oracle::{self, Random, Sample};

    fn address(random: &mut Random, v6: bool) -> IpAddr {
        let octets: [u8; 16] = random.edgy(16).try_into().unwrap();
        if v6 { IpAddr::from(octets) } else { IpAddr::from([octets[0], octets[1], octets[2], octets[3]]) }
    }

    #[test]
    fn a_rewrite_is_a_recomputation() {
        let mut random = Random(70);
        let mut rewritten = 0;
        for _ in 0..100_000 {
            let mut sample = oracle::packet(&mut random);
            let (before, new) = (sample.bytes.clone(), address(&mut random, sample.v6));
            let port = random.edgy(2).iter().fold(0, |port, byte| port << 8 | u16::from(*byte));
            let ip = &mut sample.bytes;
            let result = match random.below(7) {
                6 => Shape::of(ip).unwrap().exchange_addresses(ip),
                0 => set_source(ip, new),
                1 => set_destination(ip, new),
                2 => set_source_port(ip, port),
                3 => set_destination_port(ip, port),
                4 => set_ports(ip, port, !port),
                _ => set_echo_identifier(ip, port),
            };
            match result {
                Ok(()) => {
                    rewritten += 1;
                    let written = sample.bytes.clone();
                    sample.refresh();
                    assert_eq!(written, sample.bytes, "{before:02x?}");
                }
                Err(RewriteError::NoPorts { protocol }) => {
                    assert_eq!(protocol, sample.protocol);
                    assert_eq!(before, sample.bytes);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(rewritten > 60_000);
    }

    #[test]
    fn later_fragments_keep_their_payload() {
        let mut random = Random(71);
        for _ in 0..2_000 {
            let Sample { mut bytes, v6, transport, .. } = oracle::packet(&mut random);
            if v6 {
                continue;
            }
            bytes[7] |= 1;
            bytes[10..12].fill(0);
            let sum = oracle::checksum(&bytes[..transport]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            let payload: Vec<u8> = bytes[transport..].into();
            assert_eq!(set_source_port(&mut bytes, 1), Err(RewriteError::LaterFragment));
            set_source(&mut bytes, address(&mut random, false)).unwrap();
            assert_eq!(bytes[transport..], payload);
            assert_eq!(oracle::checksum(&bytes[..transport]), 0);
        }
    }

    /// An ICMP error about `quote`, its checksum right.
    fn error(random: &mut Random, quote: &[u8], v6: bool) -> Sample {
        let number = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
        let length = 8 + quote.len();
        let header: Vec<u8> = if v6 {
            let source: [u8; 16] = random.bytes(16).try_into().unwrap();
            Ipv6::new(source.into(), source.into(), number, length).octets().into()
        } else {
            crate::Ipv4::new([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), number, length).octets().into()
        };
        let transport = header.len();
        let message = [if v6 { 3 } else { 11 }, 0, 0, 0, 0, 0, 0, 0];
        let bytes = [&header[..], &message, quote].concat();
        let mut sample =
            Sample { bytes, v6, transport, protocol: number, final_at: None, home_at: None, extensions: 0 };
        sample.refresh();
        sample
    }

    type Rewrite = fn(&mut [u8], IpAddr, u16) -> Result<(), RewriteError>;

    #[test]
    fn quotes_are_rewritten_and_all_checksums_hold() {
        let mut random = Random(72);
        for _ in 0..50_000 {
            let mut quoted = oracle::packet(&mut random);
            // A router quotes the header and 8 bytes at least.
            let cut = quoted.transport + 8 + random.below(quoted.bytes.len() - quoted.transport - 7);
            let mut packet = error(&mut random, &quoted.bytes[..cut], quoted.v6);
            let start = packet.transport + 8;
            let (new, port) = (address(&mut random, quoted.v6), random.word() as u16);
            let (change, direct): (_, Rewrite) = match random.below(4) {
                0 => (QuotedChange::Source(new), |ip, new, _| set_source(ip, new)),
                1 => (QuotedChange::Destination(new), |ip, new, _| set_destination(ip, new)),
                2 => (QuotedChange::SourcePort(port), |ip, _, port| set_source_port(ip, port)),
                _ => (QuotedChange::DestinationPort(port), |ip, _, port| set_destination_port(ip, port)),
            };
            change_quoted(&mut packet.bytes, change).unwrap();
            // The quote is the beginning of the whole packet.
            if direct(&mut quoted.bytes, new, port).is_err() {
                set_echo_identifier(&mut quoted.bytes, port).unwrap();
            }
            let field = quoted.transport + checksum::field_offset(quoted.protocol).unwrap();
            let mut expected: Vec<u8> = quoted.bytes[..cut].into();
            if field + 2 > cut {
                expected.truncate(field.min(cut));
            }
            assert_eq!(packet.bytes[start..start + expected.len()], expected);
            let written = packet.bytes.clone();
            packet.refresh();
            assert_eq!(written, packet.bytes, "an update is a recomputation");
            // Its reader sees the new flow.
            let (ip, message) = IpRef::split(&packet.bytes).unwrap();
            let quote = if ip.source().is_ipv6() {
                crate::Icmpv6::view(&message[..8], ()).quoted(&message[8..])
            } else {
                crate::Icmpv4::view(&message[..8], ()).quoted(&message[8..])
            };
            let (whole, payload) = IpRef::split(&quoted.bytes).unwrap();
            assert_eq!(quote.unwrap().flow(), crate::FlowKey::of(whole, payload));
        }
    }

    #[test]
    fn packets_that_cannot_be_rewritten_are_left_alone() {
        let mut random = Random(73);
        for _ in 0..100_000 {
            let mut bytes = if random.chance(4) {
                let quoted = oracle::packet(&mut random);
                error(&mut random, &quoted.bytes, quoted.v6).bytes
            } else {
                oracle::packet(&mut random).bytes
            };
            oracle::mutate(&mut random, &mut bytes);
            let before = bytes.clone();
            let new = {
                let v6 = random.chance(2);
                address(&mut random, v6)
            };
            let result = match random.below(9) {
                0 => set_source(&mut bytes, new),
                1 => set_destination(&mut bytes, new),
                2 => set_source_port(&mut bytes, 1),
                3 => set_ports(&mut bytes, 1, 2),
                4 => set_echo_identifier(&mut bytes, 3),
                5 => change_quoted(&mut bytes, QuotedChange::Source(new)),
                6 => change_quoted(&mut bytes, QuotedChange::Destination(new)),
                7 => change_quoted(&mut bytes, QuotedChange::SourcePort(9)),
                _ => change_quoted(&mut bytes, QuotedChange::DestinationPort(9)),
            };
            if result.is_err() {
                assert_eq!(before, bytes);
            }
        }
    }
}
