//! ICMP for IPv4: errors with the packet they quote, and echo.

use core::net::Ipv4Addr;

use zerocopy::FromBytes;

use crate::checksum::update16;
use crate::quoted::Quoted;
use crate::stack::{Found, Header, Malformed, NOTHING, malformed, whole};

crate::header! {
    /// The first 8 bytes of an ICMP message, which all messages have (RFC 792).
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
    pub struct Icmpv4, "icmp", 8 bytes {
        /// The type of the message: see [`kind`].
        message_type, put_message_type: u8 = 0, 8, Own, Dec, kept;
        /// The code, which depends on the type.
        code, put_code: u8 = 8, 8, Own, Dec, kept;
        /// Over the whole message.
        checksum, set_checksum: u16 = 16, 16, No, Hex, plain;
        /// Four bytes whose meaning depends on the type.
        rest_of_header, put_rest_of_header: u32 = 32, 32, Own, Hex, kept;
    }
}

crate::field::display! { Icmpv4 }

/// ICMP message types (IANA "ICMP Type Numbers").
pub mod kind {
    /// Answers an echo request.
    pub const ECHO_REPLY: u8 = 0;
    /// The packet could not be delivered; the code says why.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Deprecated (RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// There is a better first hop.
    pub const REDIRECT: u8 = 5;
    /// Asks for an answer.
    pub const ECHO_REQUEST: u8 = 8;
    /// RFC 1256.
    pub const ROUTER_ADVERTISEMENT: u8 = 9;
    /// RFC 1256.
    pub const ROUTER_SOLICITATION: u8 = 10;
    /// Time to live (code 0) or reassembly time (code 1) ran out.
    pub const TIME_EXCEEDED: u8 = 11;
    /// A header field is wrong.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Asks for the time.
    pub const TIMESTAMP_REQUEST: u8 = 13;
    /// Gives the time.
    pub const TIMESTAMP_REPLY: u8 = 14;

    /// The code of [`DESTINATION_UNREACHABLE`] that says "fragmentation needed and don't fragment set".
    pub const FRAGMENTATION_NEEDED: u8 = 4;

    /// The type's name, where it has one.
    pub const fn name(message_type: u8) -> Option<&'static str> {
        Some(match message_type {
            ECHO_REPLY => "echo-reply",
            DESTINATION_UNREACHABLE => "destination-unreachable",
            SOURCE_QUENCH => "source-quench",
            REDIRECT => "redirect",
            ECHO_REQUEST => "echo-request",
            ROUTER_ADVERTISEMENT => "router-advertisement",
            ROUTER_SOLICITATION => "router-solicitation",
            TIME_EXCEEDED => "time-exceeded",
            PARAMETER_PROBLEM => "parameter-problem",
            TIMESTAMP_REQUEST => "timestamp-request",
            TIMESTAMP_REPLY => "timestamp-reply",
            _ => return None,
        })
    }
}

impl Icmpv4 {
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
    /// Whether the message reports an error (RFC 1122, section 3.2.2).
    ///
    /// Such a message quotes a packet, and must never be answered with an error.
    #[inline(always)]
    pub fn is_error(&self) -> bool {
        matches!(
            self.message_type(),
            kind::DESTINATION_UNREACHABLE
                | kind::SOURCE_QUENCH
                | kind::REDIRECT
                | kind::TIME_EXCEEDED
                | kind::PARAMETER_PROBLEM
        )
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
    /// The largest packet that the next hop takes, in bytes, from "fragmentation needed" (RFC 1191).
    ///
    /// 0 from routers older than that RFC.
    pub fn next_hop_mtu(&self) -> Option<u16> {
        ((self.message_type(), self.code()) == (kind::DESTINATION_UNREACHABLE, kind::FRAGMENTATION_NEEDED))
            .then(|| self.rest_of_header() as u16)
    }
    /// The better first hop that a redirect names.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        (self.message_type() == kind::REDIRECT).then(|| Ipv4Addr::from_bits(self.rest_of_header()))
    }
    /// The byte of the quoted packet that a parameter problem is about.
    pub fn pointer(&self) -> Option<u8> {
        (self.message_type() == kind::PARAMETER_PROBLEM).then(|| self.0[4])
    }
    /// Turns an echo request into its reply, checksum included. Answers whether it was a request.
    #[inline]
    pub fn become_reply(&mut self) -> bool {
        if (self.message_type(), self.code()) != (kind::ECHO_REQUEST, 0) {
            return false;
        }
        self.put_message_type(kind::ECHO_REPLY);
        self.carry(u16::from(kind::ECHO_REQUEST) << 8, 0);
        true
    }
    /// Carries a change of the header, which is written already, into the checksum (RFC 1624).
    #[inline]
    fn carry(&mut self, old: u16, new: u16) {
        let carried = update16(self.checksum(), old, new);
        // A message of zeros only has the other form of zero as its checksum. The reply to a ping without
        // identifier, number and bytes is such a message. That form is right with any bytes behind it.
        let zeros = self.message_type() == 0 && self.code() == 0 && self.rest_of_header() == 0;
        self.set_checksum(if carried == 0 && zeros { 0xffff } else { carried });
    }
    /// Writes an echo's identifier and updates the checksum. Answers whether it is an echo.
    #[inline]
    pub fn set_identifier(&mut self, identifier: u16) -> bool {
        let Some(old) = self.identifier() else { return false };
        self.put_rest_of_header(u32::from(identifier) << 16 | self.rest_of_header() & 0xffff);
        self.carry(old, identifier);
        true
    }
    /// The packet that an error quotes in its `payload`, which comes after these 8 bytes.
    ///
    /// `None` if it is no error or quotes no IPv4 header.
    pub fn quoted<'a>(&self, payload: &'a [u8]) -> Option<Quoted<'a>> {
        if !self.is_error() {
            return None;
        }
        // RFC 4884, section 4: these three count the quote in 32-bit words, with 0 if nothing follows it.
        let words = match self.message_type() {
            kind::DESTINATION_UNREACHABLE | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM => {
                usize::from(self.0[5])
            }
            _ => 0,
        };
        Quoted::read(payload, words * 4)
    }
}

impl Header for Icmpv4 {
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
    use crate::oracle::{self, Random};
    use crate::protocol;
    extern crate std;
    use std::string::ToString;

    /// A message of that type and code, with the four bytes behind the checksum.
    fn message(message_type: u8, code: u8, rest: [u8; 4]) -> Icmpv4 {
        let [a, b, c, d] = rest;
        *Icmpv4::view(&[message_type, code, 0, 0, a, b, c, d], ())
    }

    #[test]
    fn an_echo_is_as_the_rfc_draws_it_and_is_answered() {
        // The sum of its words, 0x0800 + 0x1234 + 0x0001, is 0x1a35.
        let bytes = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
        let mut echo = Icmpv4::echo_request(0x1234, 1);
        assert_eq!((echo.message_type(), echo.code(), echo.checksum()), (8, 0, 0));
        echo.set_checksum(0xe5ca);
        assert_eq!(echo.octets(), bytes);
        assert_eq!((echo.identifier(), echo.sequence_number()), (Some(0x1234), Some(1)));
        assert_eq!(
            echo.to_string(),
            "icmp message_type 8, code 0, checksum 0xe5ca, rest_of_header 0x12340001"
        );

        assert!(echo.become_reply());
        assert_eq!(echo.octets(), [0, 0, 0xed, 0xca, 0x12, 0x34, 0, 1]);
        assert!(echo.set_identifier(0x4321));
        assert_eq!(echo.octets(), [0, 0, 0xbc, 0xdd, 0x43, 0x21, 0, 1]);
        let before = echo;
        assert!(!echo.become_reply(), "a reply is not answered");
        assert_eq!(echo, before);
    }

    /// Nothing but zeros follows the checksum of such an answer, whose own sum must then not be zero.
    #[test]
    fn an_answer_of_zeros_has_a_checksum_that_holds() {
        for payload in [&[][..], &[0; 7], &[1, 2]] {
            let mut bytes = [&[8, 0, 0, 0, 0, 0, 0, 0][..], payload].concat();
            let checksum = crate::checksum::internet(&bytes);
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            let echo = Icmpv4::view_mut(&mut bytes, ());
            assert!(echo.become_reply());
            assert_eq!(crate::checksum::internet(&bytes), 0, "{bytes:?}");
            let echo = Icmpv4::view_mut(&mut bytes, ());
            assert!(echo.set_identifier(7) && echo.set_identifier(0));
            assert_eq!(crate::checksum::internet(&bytes), 0, "{bytes:?}");
        }
    }

    #[test]
    fn changes_keep_the_checksum() {
        let mut random = Random(51);
        let mut changed = 0;
        for _ in 0..20_000 {
            let mut sample = oracle::packet(&mut random);
            if sample.protocol != protocol::ICMP {
                continue;
            }
            let header = Icmpv4::view_mut(&mut sample.bytes[sample.transport..], ());
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
        let needed = message(kind::DESTINATION_UNREACHABLE, kind::FRAGMENTATION_NEEDED, [0, 0, 0x05, 0xdc]);
        let unreachable = message(kind::DESTINATION_UNREACHABLE, 3, [0, 0, 0x05, 0xdc]);
        let redirect = message(kind::REDIRECT, 1, [10, 0, 0, 254]);
        let problem = message(kind::PARAMETER_PROBLEM, 0, [20, 0, 0, 0]);
        let timestamp = message(kind::TIMESTAMP_REQUEST, 0, [0x12, 0x34, 0, 1]);
        let said = |header: Icmpv4| (header.next_hop_mtu(), header.gateway(), header.pointer());
        assert_eq!(said(needed), (Some(1500), None, None));
        assert_eq!(said(unreachable), (None, None, None));
        assert_eq!(said(redirect), (None, Some(Ipv4Addr::new(10, 0, 0, 254)), None));
        assert_eq!(said(problem), (None, None, Some(20)));
        for mut header in [needed, unreachable, redirect, problem, timestamp] {
            let before = header;
            assert_eq!((header.identifier(), header.sequence_number()), (None, None), "{header}");
            assert!(!header.set_identifier(7) && !header.become_reply() && header == before, "{header}");
        }
        let mut odd = message(kind::ECHO_REQUEST, 1, [0; 4]);
        assert!(!odd.become_reply(), "RFC 792: an echo's code is 0");
    }

    #[test]
    fn five_types_are_errors() {
        let errors: std::vec::Vec<u8> =
            (0..=u8::MAX).filter(|kind| message(*kind, 0, [0; 4]).is_error()).collect();
        assert_eq!(errors, [3, 4, 5, 11, 12]);
    }

    #[test]
    fn a_message_cut_short_is_refused() {
        let found = Icmpv4::find(&[0; 8], 1).unwrap();
        assert_eq!((found.len, found.total, found.next), (8, None, NOTHING));
        let short = Icmpv4::find(&[0; 7], 1).unwrap_err();
        assert_eq!(short.to_string(), "icmp: the bytes end before the header does (needed 8, found 7)");
    }
}
