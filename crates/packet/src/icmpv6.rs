//! ICMP for IPv6: errors with the packet they quote, echo, and the first bytes of neighbour discovery.

use zerocopy::FromBytes;

use crate::checksum::update16;
use crate::neighbor::Neighbor;
use crate::quoted::Quoted;
use crate::stack::{Found, Header, Malformed, NOTHING, malformed, whole};

crate::header! {
    /// The first 8 bytes of an ICMPv6 message, which all defined messages have (RFC 4443, section 2.1).
    ///
    /// ```text
    ///  0                   1                   2                   3
    ///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |     Type      |     Code      |           Checksum            |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// |               what these say, depends on the type             |
    /// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    /// ```
    pub struct Icmpv6, "icmpv6", 8 bytes {
        /// The type of the message: see [`kind`].
        message_type, put_message_type: u8 = 0, 8, Own, Dec, kept;
        /// The code, which depends on the type.
        code, put_code: u8 = 8, 8, Own, Dec, kept;
        /// Over pseudo-header and the whole message.
        checksum, set_checksum: u16 = 16, 16, No, Hex, plain;
        /// Four bytes whose meaning depends on the type.
        rest_of_header, put_rest_of_header: u32 = 32, 32, Own, Hex, kept;
    }
}

crate::field::display! { Icmpv6 }

/// ICMPv6 message types (IANA "ICMPv6 Parameters").
pub mod kind {
    /// The packet could not be delivered; the code says why.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// The packet is larger than the next hop takes.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Hop limit (code 0) or reassembly time (code 1) ran out.
    pub const TIME_EXCEEDED: u8 = 3;
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Asks for an answer.
    pub const ECHO_REQUEST: u8 = 128;
    /// Answers an echo request.
    pub const ECHO_REPLY: u8 = 129;
    /// RFC 2710.
    pub const MULTICAST_LISTENER_QUERY: u8 = 130;
    /// RFC 2710.
    pub const MULTICAST_LISTENER_REPORT: u8 = 131;
    /// RFC 2710.
    pub const MULTICAST_LISTENER_DONE: u8 = 132;
    /// RFC 4861, section 4.1.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// RFC 4861, section 4.2.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// RFC 4861, section 4.3.
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// RFC 4861, section 4.4.
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    /// RFC 4861, section 4.5.
    pub const REDIRECT: u8 = 137;
    /// RFC 3810.
    pub const MULTICAST_LISTENER_REPORT_V2: u8 = 143;

    /// The type's name, where it has one.
    pub const fn name(message_type: u8) -> Option<&'static str> {
        Some(match message_type {
            DESTINATION_UNREACHABLE => "destination-unreachable",
            PACKET_TOO_BIG => "packet-too-big",
            TIME_EXCEEDED => "time-exceeded",
            PARAMETER_PROBLEM => "parameter-problem",
            ECHO_REQUEST => "echo-request",
            ECHO_REPLY => "echo-reply",
            MULTICAST_LISTENER_QUERY => "multicast-listener-query",
            MULTICAST_LISTENER_REPORT => "multicast-listener-report",
            MULTICAST_LISTENER_DONE => "multicast-listener-done",
            ROUTER_SOLICITATION => "router-solicitation",
            ROUTER_ADVERTISEMENT => "router-advertisement",
            NEIGHBOR_SOLICITATION => "neighbor-solicitation",
            NEIGHBOR_ADVERTISEMENT => "neighbor-advertisement",
            REDIRECT => "redirect",
            MULTICAST_LISTENER_REPORT_V2 => "multicast-listener-report-v2",
            _ => return None,
        })
    }
}

impl Icmpv6 {
    /// A header without checksum.
    pub fn new(message_type: u8, code: u8, rest_of_header: u32) -> Self {
        let mut header = Self([0; 8]);
        header.put_message_type(message_type);
        header.put_code(code);
        header.put_rest_of_header(rest_of_header);
        header
    }
    /// An echo request without checksum.
    pub fn echo_request(identifier: u16, sequence_number: u16) -> Self {
        Self::new(kind::ECHO_REQUEST, 0, u32::from(identifier) << 16 | u32::from(sequence_number))
    }
    /// Whether it is an echo request or reply.
    #[inline(always)]
    pub fn is_echo(&self) -> bool {
        matches!(self.message_type(), kind::ECHO_REQUEST | kind::ECHO_REPLY)
    }
    /// Whether it reports an error: all types below 128 (RFC 4443, section 2.1). Errors are never answered with errors.
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        self.message_type() < 128
    }
    /// An echo's identifier.
    #[inline(always)]
    pub fn identifier(&self) -> Option<u16> {
        self.is_echo().then(|| (self.rest_of_header() >> 16) as u16)
    }
    /// An echo's sequence number.
    #[inline(always)]
    pub fn sequence_number(&self) -> Option<u16> {
        self.is_echo().then(|| self.rest_of_header() as u16)
    }
    /// The largest packet that the next hop takes, in bytes, from "packet too big".
    pub fn mtu(&self) -> Option<u32> {
        (self.message_type() == kind::PACKET_TOO_BIG).then(|| self.rest_of_header())
    }
    /// The byte of the quoted packet that a parameter problem is about.
    pub fn pointer(&self) -> Option<u32> {
        (self.message_type() == kind::PARAMETER_PROBLEM).then(|| self.rest_of_header())
    }
    /// Turns an echo request into its reply, checksum included. Answers whether it was a request.
    ///
    /// Exchanging the addresses does not change the checksum.
    #[inline]
    pub fn become_reply(&mut self) -> bool {
        if (self.message_type(), self.code()) != (kind::ECHO_REQUEST, 0) {
            return false;
        }
        self.put_message_type(kind::ECHO_REPLY);
        let (old, new) = (u16::from(kind::ECHO_REQUEST) << 8, u16::from(kind::ECHO_REPLY) << 8);
        self.set_checksum(update16(self.checksum(), old, new));
        true
    }
    /// Writes an echo's identifier and updates the checksum. Answers whether it is an echo.
    #[inline]
    pub fn set_identifier(&mut self, identifier: u16) -> bool {
        let Some(old) = self.identifier() else { return false };
        self.put_rest_of_header(u32::from(identifier) << 16 | self.rest_of_header() & 0xffff);
        self.set_checksum(update16(self.checksum(), old, identifier));
        true
    }
    /// The packet that an error quotes in its `payload`, which comes after these 8 bytes.
    ///
    /// `None` if it is no error or quotes no IPv6 header.
    pub fn quoted<'a>(&self, payload: &'a [u8]) -> Option<Quoted<'a>> {
        if !matches!(
            self.message_type(),
            kind::DESTINATION_UNREACHABLE
                | kind::PACKET_TOO_BIG
                | kind::TIME_EXCEEDED
                | kind::PARAMETER_PROBLEM
        ) {
            return None;
        }
        // RFC 4884, section 4.4 and 4.5: these two count the quote in 64-bit words, with 0 if nothing follows
        // it.
        let words = match self.message_type() {
            kind::DESTINATION_UNREACHABLE | kind::TIME_EXCEEDED => usize::from(self.0[4]),
            _ => 0,
        };
        Quoted::read(payload, words * 8)
    }
    /// The neighbour discovery message that goes on in `payload`, which comes after these 8 bytes.
    ///
    /// `None` if it is none.
    ///
    /// # Errors
    /// [`Malformed`] if its fixed part is cut short.
    pub fn neighbor<'a>(&self, payload: &'a [u8]) -> Result<Option<Neighbor<'a>>, Malformed> {
        Neighbor::read(self, payload)
    }
}

impl Header for Icmpv6 {
    type Facts = ();
    type Ref<'a> = &'a Self;
    type Mut<'a> = &'a mut Self;
    const NAME: &'static str = Self::SHORT;
    const FIELDS: &'static [crate::field::Field] = Self::TABLE;

    #[inline(always)]
    fn find(bytes: &[u8], _: u16) -> Result<Found<()>, Malformed> {
        if bytes.len() < Self::SIZE {
            return Err(malformed::<Self>("the bytes end before the header does", Self::SIZE, bytes.len()));
        }
        Ok(Found { facts: (), len: Self::SIZE, total: None, next: NOTHING })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &Self {
        whole(Self::ref_from_prefix(bytes)).0
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut Self {
        whole(Self::mut_from_prefix(bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv6;
    use crate::oracle::{self, Random};
    use crate::protocol;
    extern crate std;
    use core::net::Ipv6Addr;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn an_echo_is_as_the_rfc_draws_it_and_is_answered() {
        // From ::1 to ::1 the pseudo-header's words, 1 + 1 + 8 bytes + protocol 58, are 0x0044 together; with the message's,
        // 0x8000 + 0x1234 + 0x0001, that is 0x9279.
        let bytes = [128, 0, 0x6d, 0x86, 0x12, 0x34, 0, 1];
        let mut echo = Icmpv6::echo_request(0x1234, 1);
        assert_eq!((echo.message_type(), echo.code(), echo.checksum()), (128, 0, 0));
        echo.set_checksum(0x6d86);
        assert_eq!(echo.octets(), bytes);
        assert_eq!((echo.identifier(), echo.sequence_number()), (Some(0x1234), Some(1)));
        assert_eq!(
            echo.to_string(),
            "icmpv6 message_type 128, code 0, checksum 0x6d86, rest_of_header 0x12340001"
        );

        assert!(echo.become_reply());
        assert_eq!(echo.octets(), [129, 0, 0x6c, 0x86, 0x12, 0x34, 0, 1]);
        assert!(echo.set_identifier(0x4321));
        assert_eq!(echo.octets(), [129, 0, 0x3b, 0x99, 0x43, 0x21, 0, 1]);
        let before = echo;
        assert!(!echo.become_reply(), "a reply is not answered");
        assert_eq!(echo, before);
    }

    #[test]
    fn changes_keep_the_checksum() {
        let mut random = Random(52);
        let mut changed = 0;
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            if sample.protocol != protocol::ICMPV6 {
                continue;
            }
            let header = Icmpv6::view_mut(&mut sample.bytes[sample.transport..], ());
            let identifier = random.word() as u16;
            changed += usize::from(header.set_identifier(identifier));
            assert_eq!(header.identifier(), Some(identifier));
            let answered = header.code() == 0;
            assert_eq!(header.become_reply(), answered);
            let written = sample.bytes.clone();
            sample.refresh();
            assert_eq!(written, sample.bytes, "an update is a recomputation");
        }
        assert!(changed > 1_000);
    }

    #[test]
    fn fields_of_a_type_are_read_from_that_type_only() {
        let too_big = Icmpv6::new(kind::PACKET_TOO_BIG, 0, 1280);
        let problem = Icmpv6::new(kind::PARAMETER_PROBLEM, 0, 40);
        assert_eq!(too_big.octets(), [2, 0, 0, 0, 0, 0, 0x05, 0x00]);
        assert_eq!((too_big.mtu(), too_big.pointer()), (Some(1280), None));
        assert_eq!((problem.mtu(), problem.pointer()), (None, Some(40)));
        for mut header in [too_big, problem, Icmpv6::new(kind::NEIGHBOR_SOLICITATION, 0, 0)] {
            let before = header;
            assert_eq!((header.identifier(), header.sequence_number()), (None, None), "{header}");
            assert!(!header.set_identifier(7) && !header.become_reply() && header == before, "{header}");
        }
        let mut odd = Icmpv6::new(kind::ECHO_REQUEST, 1, 0);
        assert!(!odd.become_reply(), "RFC 4443, section 4.1: an echo's code is 0");
    }

    #[test]
    fn types_below_128_are_errors_and_four_of_them_quote() {
        let quote = Ipv6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, protocol::UDP, 8).octets();
        let errors: Vec<u8> = (0..=u8::MAX).filter(|kind| Icmpv6::new(*kind, 0, 0).is_error()).collect();
        assert!(errors.into_iter().eq(0..128));
        let quoting: Vec<u8> =
            (0..=u8::MAX).filter(|kind| Icmpv6::new(*kind, 0, 0).quoted(&quote).is_some()).collect();
        assert_eq!(quoting, [1, 2, 3, 4]);
    }

    #[test]
    fn two_errors_count_their_quote_in_words_of_64_bits() {
        let header = Ipv6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, protocol::UDP, 1000).octets();
        let mut payload = header.to_vec();
        payload.resize(136, 0);
        let transport = |message_type: u8, rest_of_header: u32| {
            Icmpv6::new(message_type, 0, rest_of_header)
                .quoted(&payload)
                .map(|quoted| quoted.transport().len())
        };
        // 16 words are 128 bytes, of which the header takes 40; where the byte is part of a number, all is quote.
        for counting in [kind::DESTINATION_UNREACHABLE, kind::TIME_EXCEEDED] {
            assert_eq!((transport(counting, 16 << 24), transport(counting, 0)), (Some(88), Some(96)));
        }
        for other in [kind::PACKET_TOO_BIG, kind::PARAMETER_PROBLEM] {
            assert_eq!(transport(other, 16 << 24), Some(96));
        }
    }

    #[test]
    fn a_message_cut_short_is_refused() {
        let found = Icmpv6::find(&[0; 8], 58).unwrap();
        assert_eq!((found.len, found.total, found.next), (8, None, NOTHING));
        let short = Icmpv6::find(&[0; 7], 58).unwrap_err();
        assert_eq!(short.to_string(), "icmpv6: the bytes end before the header does (needed 8, found 7)");
    }
}
