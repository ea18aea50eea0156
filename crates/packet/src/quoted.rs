//! The packet that an ICMP error quotes (RFC 792; RFC 4443, section 2.4).
//!
//! It may be cut short anywhere after its header. Extensions can follow it (RFC 4884).

use crate::checksum::Sum;
use crate::flow::FlowKey;
use crate::ip::{Ip, IpFacts, IpRef};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::stack::Header;

/// A quoted packet: its whole IP header, and the quoted part of the rest.
#[derive(Clone, Copy)]
pub struct Quoted<'a> {
    ip: IpRef<'a>,
    transport: &'a [u8],
    header_len: usize,
    extensions: &'a [u8],
}

/// Finds the header of a packet that may be cut short.
///
/// Answers the facts of a parse, the header's length, and the packet's end.
pub(crate) fn find(bytes: &[u8]) -> Option<(IpFacts, usize, usize)> {
    match bytes.first()? >> 4 {
        4 => Ipv4::find_quoted(bytes).ok().map(|(len, end)| (IpFacts::V4, len, end)),
        6 => Ipv6::find_quoted(bytes).ok().map(|(facts, len, end)| (IpFacts::V6(facts), len, end)),
        _ => None,
    }
}

impl<'a> Quoted<'a> {
    /// Reads the quote at the start of `payload`; it ends after `length` bytes, or with `payload` if that is 0.
    pub(crate) fn read(payload: &'a [u8], length: usize) -> Option<Self> {
        let (quote, extensions) = match payload.split_at_checked(length) {
            Some((quote, rest)) if length > 0 => (quote, rest),
            _ => (payload, &[][..]),
        };
        let (facts, len, end) = find(quote)?;
        let (header, rest) = quote.split_at_checked(len)?;
        let transport = rest.get(..end.saturating_sub(len)).unwrap_or(rest);
        Some(Self { ip: Ip::view(header, facts), transport, header_len: len, extensions })
    }
    /// Its IP header.
    #[inline(always)]
    pub fn ip(&self) -> IpRef<'a> {
        self.ip
    }
    /// Bytes of its IP header, options or extension headers included.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        self.header_len
    }
    /// The bytes quoted of its transport header and payload; routers must quote 8, no more.
    #[inline(always)]
    pub fn transport(&self) -> &'a [u8] {
        self.transport
    }
    /// The flow that it belongs to, in the direction in which it was sent: the error itself travels against it.
    pub fn flow(&self) -> FlowKey {
        FlowKey::of(self.ip, self.transport)
    }
    /// The extension objects after the quote; none if their header's version or checksum is wrong.
    pub fn extensions(&self) -> ExtensionObjects<'a> {
        let rest = match *self.extensions {
            // RFC 4884, section 7: version 2; a checksum of 0 means that there is none.
            [first, _, high, low, ref rest @ ..]
                if first >> 4 == 2
                    && ((high, low) == (0, 0) || Sum::ZERO.add_bytes(self.extensions).fold() == 0xffff) =>
            {
                rest
            }
            _ => &[],
        };
        ExtensionObjects { rest }
    }
}

/// One extension object (RFC 4884, section 7.1), such as an MPLS label stack (RFC 4950).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionObject<'a> {
    /// Its class: 1 is an MPLS label stack, 2 an interface (RFC 5837).
    pub class: u8,
    /// Its type within the class (C-Type).
    pub kind: u8,
    /// Its data.
    pub data: &'a [u8],
}

/// Extension objects in order, up to the first with a wrong length.
#[derive(Clone, Debug)]
pub struct ExtensionObjects<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ExtensionObjects<'a> {
    type Item = ExtensionObject<'a>;

    fn next(&mut self) -> Option<ExtensionObject<'a>> {
        let rest = core::mem::take(&mut self.rest);
        let [high, low, class, kind, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let data = rest.get(4..length)?;
        self.rest = &rest[length..];
        Some(ExtensionObject { class, kind, data })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::icmpv4::{Icmpv4, kind};
    use crate::oracle;

    #[test]
    fn a_length_attribute_ends_the_quote_and_starts_the_extensions() {
        let mut quote = Vec::from(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 1400).octets());
        quote.extend([0x13, 0x88, 0, 53, 0, 0, 0, 0]);
        quote.resize(128, 0);
        let mut extension = std::vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 1, 64, 0, 9, 9, 9];
        let sum = oracle::checksum(&extension);
        extension[2..4].copy_from_slice(&sum.to_be_bytes());
        let payload = [&quote[..], &extension].concat();

        let header = Icmpv4::new(kind::TIME_EXCEEDED, 0, 32 << 16);
        let quoted = header.quoted(&payload).unwrap();
        assert_eq!((quoted.transport().len(), quoted.header_len()), (108, 20));
        assert_eq!((quoted.flow().source_port(), quoted.flow().destination_port()), (5000, 53));
        // The second object's length is 9 with 4 bytes there: it ends the list.
        let objects: Vec<_> = quoted.extensions().collect();
        assert_eq!(objects, [ExtensionObject { class: 1, kind: 1, data: &[0, 1, 1, 64] }]);

        let mut damaged = payload.clone();
        damaged[140] ^= 1;
        assert_eq!(header.quoted(&damaged).unwrap().extensions().count(), 0);
        let without = Icmpv4::new(kind::TIME_EXCEEDED, 0, 0).quoted(&payload).unwrap();
        assert_eq!((without.transport().len(), without.extensions().count()), (124, 0));
        assert!(Icmpv4::new(kind::ECHO_REQUEST, 0, 0).quoted(&payload).is_none());
        assert!(header.quoted(&quote[..19]).is_none());
    }
}
