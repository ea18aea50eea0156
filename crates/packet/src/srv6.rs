//! The IPv6 segment routing header (RFC 8754, section 2): the list of segments a packet visits.
//!
//! It is one of IPv6's routing headers, so `Ipv6` walks past it; this view reads it where `Ipv6` found it.

use core::fmt;
use core::net::Ipv6Addr;
use core::ops::Deref;

use zerocopy::FromBytes;

use crate::field::Field;
use crate::print::Fields;
use crate::stack::{Found, Header, Malformed, whole};

crate::header! {
    /// The segment routing header's fixed part, RFC 8754, section 2.
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// | Next Header   |  Hdr Ext Len  | Routing Type  | Segments Left |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |  Last Entry   |     Flags     |              Tag              |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |            Segment List[0] (128-bit IPv6 address)             |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ~                    … Segment List[n], then TLVs               ~
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct SegmentRouting, "srv6", 8 bytes {
        /// The IP protocol number of the next header.
        next_header, set_next_header: u8 = 0, 8, No, Protocol, kept;
        /// The header's length in 8-byte words, the first not counted.
        header_extension_length, set_header_extension_length: u8 = 8, 8, No, Dec, kept;
        /// Always 4.
        routing_type, set_routing_type: u8 = 16, 8, No, Dec, kept;
        /// Index of the segment to which the packet is on its way; 0 is the last segment.
        ///
        /// In a reduced list, one more than its last index stands for the first segment, which the list
        /// lacks.
        segments_left, set_segments_left: u8 = 24, 8, No, Dec, kept;
        /// Index of the list's last entry: segments - 1.
        last_entry, set_last_entry: u8 = 32, 8, No, Dec, kept;
        /// Flags; none is assigned.
        flags, set_flags: u8 = 40, 8, No, Hex, plain;
        /// Marks packets of one class.
        tag, set_tag: u16 = 48, 16, No, Hex, plain;
    }
}

crate::field::display! { SegmentRouting }

impl SegmentRouting {
    /// The routing type that IANA assigned.
    pub const ROUTING_TYPE: u8 = 4;

    /// The fixed part for `segments` segments (1 to 127), on its way to the first of them.
    ///
    /// The list holds that one last. More segments than the length field can state count as 127.
    pub fn new(next_header: u8, segments: u8) -> Self {
        let segments = segments.clamp(1, 127);
        Self([next_header, 2 * segments, Self::ROUTING_TYPE, segments - 1, segments - 1, 0, 0, 0])
    }

    /// Checks that `bytes` begin with a segment routing header, and gives its view.
    ///
    /// # Errors
    /// [`Malformed`] names the rule that is broken.
    pub fn read(bytes: &[u8]) -> Result<SegmentRoutingRef<'_>, Malformed> {
        let found = Self::find(bytes, 0)?;
        Ok(Self::view(&bytes[..found.len], ()))
    }
}

/// A checked segment routing header, for reading; its fixed part is read through it.
#[derive(Clone, Copy)]
pub struct SegmentRoutingRef<'a> {
    bytes: &'a [u8],
}

impl<'a> SegmentRoutingRef<'a> {
    /// The segments in the order of the bytes: the last that the packet visits comes first.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Ipv6Addr> + ExactSizeIterator + use<'a> {
        let (segments, _) = self.bytes.get(8..self.list_end()).unwrap_or_default().as_chunks::<16>();
        segments.iter().map(|octets| Ipv6Addr::from(*octets))
    }
    /// The segment that the packet is on its way to.
    ///
    /// `None` where a reduced list lacks it, and only IPv6's destination names it.
    pub fn active_segment(&self) -> Option<Ipv6Addr> {
        self.segments().nth(usize::from(self.segments_left()))
    }
    /// The bytes after the segments: padding, HMAC and other TLVs.
    pub fn tlvs(&self) -> &'a [u8] {
        self.bytes.get(self.list_end()..).unwrap_or_default()
    }
    fn list_end(&self) -> usize {
        8 + 16 * (usize::from(self.last_entry()) + 1)
    }
    /// All the header's bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl Deref for SegmentRoutingRef<'_> {
    type Target = SegmentRouting;
    #[inline(always)]
    fn deref(&self) -> &SegmentRouting {
        whole(SegmentRouting::ref_from_prefix(self.bytes)).0
    }
}

impl Header for SegmentRouting {
    type Facts = ();
    type Ref<'a> = SegmentRoutingRef<'a>;
    /// The fixed part: the segments stay as they are.
    type Mut<'a> = &'a mut SegmentRouting;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [Field] = Self::TABLE;

    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        let malformed = |rule, needed, found| Malformed { header: Self::NAME, rule, needed, found };
        let short = |needed: usize| {
            malformed("the bytes end before the header does", needed as u32, bytes.len() as u32)
        };
        let Ok((header, _)) = SegmentRouting::ref_from_prefix(bytes) else { return Err(short(8)) };
        if header.routing_type() != Self::ROUTING_TYPE {
            return Err(malformed("the routing type is not 4", 4, u32::from(header.routing_type())));
        }
        let len = 8 + 8 * usize::from(header.header_extension_length());
        if len > bytes.len() {
            return Err(short(len));
        }
        let list = 8 + 16 * (usize::from(header.last_entry()) + 1);
        if list > len {
            return Err(malformed("the segment list reaches beyond the header", list as u32, len as u32));
        }
        // RFC 8754, section 4.1.1: a reduced list lacks the first segment that a packet visits.
        let (most, left) = (u32::from(header.last_entry()) + 1, u32::from(header.segments_left()));
        if left > most {
            // RFC 8754, section 4.3.1.1: a parameter problem.
            return Err(malformed("more segments are left than the list has", most, left));
        }
        Ok(Found { facts: (), len, total: None, next: u16::from(header.next_header()) })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> SegmentRoutingRef<'_> {
        SegmentRoutingRef { bytes }
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut SegmentRouting {
        whole(SegmentRouting::mut_from_prefix(bytes)).0
    }
    fn announce(header: &mut SegmentRouting, next: u16) {
        header.set_next_header(next as u8);
    }
}

impl fmt::Display for SegmentRoutingRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fields { name: SegmentRouting::SHORT, table: SegmentRouting::TABLE, bytes: self.bytes }.fmt(f)?;
        for (i, segment) in self.segments().enumerate() {
            write!(f, ", segment[{i}] {segment}")?;
        }
        Ok(())
    }
}
impl fmt::Debug for SegmentRoutingRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    fn two_segments() -> Vec<u8> {
        let mut bytes = SegmentRouting::new(17, 2).octets().to_vec();
        for last in [1u16, 2] {
            bytes.extend(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, last).octets());
        }
        bytes
    }

    #[test]
    fn segments_are_read_in_the_order_of_the_bytes() {
        let mut bytes = two_segments();
        bytes.push(0xee);
        let view = SegmentRouting::read(&bytes).unwrap();
        let segments: Vec<_> = view.segments().map(|segment| segment.to_string()).collect();
        assert_eq!(segments, ["fc00::1", "fc00::2"]);
        assert_eq!(view.active_segment().unwrap().to_string(), "fc00::2");
        assert_eq!((view.tlvs(), view.as_bytes().len()), (&[][..], 40));
        assert_eq!(
            view.to_string(),
            "srv6 next_header udp (17), header_extension_length 4, routing_type 4, segments_left 1, last_entry 1, \
             flags 0x00, tag 0x0000, segment[0] fc00::1, segment[1] fc00::2"
        );
    }

    #[test]
    fn a_reduced_list_lacks_the_segment_under_way() {
        let mut bytes = two_segments();
        bytes[3] = 2;
        let view = SegmentRouting::read(&bytes).unwrap();
        assert_eq!((view.active_segment(), view.segments().len()), (None, 2));
    }

    #[test]
    fn lists_that_lie_are_malformed() {
        let rule = |at: usize, value: u8| {
            let mut bytes = two_segments();
            bytes[at] = value;
            SegmentRouting::read(&bytes).unwrap_err().rule
        };
        assert_eq!(rule(1, 3), "the segment list reaches beyond the header");
        assert_eq!(rule(1, 5), "the bytes end before the header does");
        assert_eq!(rule(2, 0), "the routing type is not 4");
        assert_eq!(rule(3, 3), "more segments are left than the list has");
        assert_eq!(rule(4, 2), "the segment list reaches beyond the header");
    }
}
