//! RADIUS packets: requests as the packet path writes them, and answers as servers send them (RFC 2865, RFC 2866).
//!
//! The packet path hides a password before it leaves the function (RFC 2865, section 5.2). So no handler shows one.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};

use super::pool::Prefix;
use super::random::are_equal;
use super::users::{Class, Grant, LONGEST_CLASS};

/// Codes of packets.
pub mod code {
    /// Access-Request.
    pub const ACCESS_REQUEST: u8 = 1;
    /// Access-Accept.
    pub const ACCESS_ACCEPT: u8 = 2;
    /// Access-Reject.
    pub const ACCESS_REJECT: u8 = 3;
    /// Accounting-Request.
    pub const ACCOUNTING_REQUEST: u8 = 4;
    /// Accounting-Response.
    pub const ACCOUNTING_RESPONSE: u8 = 5;
    /// Access-Challenge.
    pub const ACCESS_CHALLENGE: u8 = 11;
}

/// Types of attributes.
pub(super) mod kind {
    pub(in super::super) const USER_NAME: u8 = 1;
    pub(in super::super) const USER_PASSWORD: u8 = 2;
    pub(in super::super) const CHAP_PASSWORD: u8 = 3;
    pub(in super::super) const NAS_IP_ADDRESS: u8 = 4;
    pub(in super::super) const SERVICE_TYPE: u8 = 6;
    pub(in super::super) const FRAMED_PROTOCOL: u8 = 7;
    pub(in super::super) const FRAMED_IP_ADDRESS: u8 = 8;
    pub(in super::super) const CLASS: u8 = 25;
    pub(in super::super) const VENDOR_SPECIFIC: u8 = 26;
    pub(in super::super) const SESSION_TIMEOUT: u8 = 27;
    pub(in super::super) const IDLE_TIMEOUT: u8 = 28;
    pub(in super::super) const CALLING_STATION_ID: u8 = 31;
    pub(in super::super) const NAS_IDENTIFIER: u8 = 32;
    pub(in super::super) const ACCT_STATUS_TYPE: u8 = 40;
    pub(in super::super) const ACCT_INPUT_OCTETS: u8 = 42;
    pub(in super::super) const ACCT_OUTPUT_OCTETS: u8 = 43;
    pub(in super::super) const ACCT_SESSION_ID: u8 = 44;
    pub(in super::super) const ACCT_SESSION_TIME: u8 = 46;
    pub(in super::super) const ACCT_INPUT_PACKETS: u8 = 47;
    pub(in super::super) const ACCT_OUTPUT_PACKETS: u8 = 48;
    pub(in super::super) const ACCT_TERMINATE_CAUSE: u8 = 49;
    pub(in super::super) const ACCT_INPUT_GIGAWORDS: u8 = 52;
    pub(in super::super) const ACCT_OUTPUT_GIGAWORDS: u8 = 53;
    pub(in super::super) const CHAP_CHALLENGE: u8 = 60;
    pub(in super::super) const NAS_PORT_TYPE: u8 = 61;
    pub(in super::super) const MESSAGE_AUTHENTICATOR: u8 = 80;
    pub(in super::super) const ACCT_INTERIM_INTERVAL: u8 = 85;
    pub(in super::super) const NAS_PORT_ID: u8 = 87;
    pub(in super::super) const FRAMED_IPV6_PREFIX: u8 = 97;
    pub(in super::super) const DELEGATED_IPV6_PREFIX: u8 = 123;
}

/// Bytes before the attributes.
const HEAD: usize = 20;
/// The most bytes of a request that is written here.
pub(super) const LONGEST: usize = 768;
/// Microsoft's number, for the DNS servers (RFC 2548, section 2.7).
const MICROSOFT: u32 = 311;

/// A request of fixed room.
#[derive(Clone, Copy)]
pub(super) struct Request {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Request {
    /// A request without attributes. The identifier is 0: the sender sets it.
    pub(super) fn new(code: u8, authenticator: [u8; 16]) -> Self {
        let mut bytes = [0; LONGEST];
        bytes[0] = code;
        bytes[4..HEAD].copy_from_slice(&authenticator);
        Self { bytes, len: HEAD }
    }

    /// Adds an attribute; one that has no room is left out.
    pub(super) fn add(&mut self, kind: u8, value: &[u8]) -> &mut Self {
        let end = self.len + 2 + value.len();
        if value.len() <= 253 && end <= LONGEST {
            self.bytes[self.len] = kind;
            self.bytes[self.len + 1] = 2 + value.len() as u8;
            self.bytes[self.len + 2..end].copy_from_slice(value);
            self.len = end;
        }
        self
    }

    pub(super) fn number(&mut self, kind: u8, value: u32) -> &mut Self {
        self.add(kind, &value.to_be_bytes())
    }

    /// Adds a text that is formatted without allocation; what has no room is cut off.
    pub(super) fn text(&mut self, kind: u8, text: std::fmt::Arguments<'_>) -> &mut Self {
        let mut room = Text { bytes: [0; 253], len: 0 };
        // Only a text that is too long fails, and its beginning is kept.
        let _ = room.write_fmt(text);
        let Text { bytes, len } = room;
        self.add(kind, &bytes[..len])
    }

    /// Adds a password, hidden under the secret and the request's authenticator (RFC 2865, section 5.2).
    pub(super) fn password(&mut self, password: &[u8], secret: &[u8]) -> &mut Self {
        let mut hidden = [0; 128];
        let len = password.len().min(128);
        hidden[..len].copy_from_slice(&password[..len]);
        let padded = len.next_multiple_of(16).max(16);
        let mut authenticator: [u8; 16] = [0; 16];
        authenticator.copy_from_slice(&self.bytes[4..HEAD]);
        hide(&mut hidden[..padded], authenticator, secret);
        self.add(kind::USER_PASSWORD, &hidden[..padded])
    }

    /// The packet with its length.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.bytes[2..4].copy_from_slice(&(self.len as u16).to_be_bytes());
        &self.bytes[..self.len]
    }
}

/// Hides a padded password (RFC 2865, section 5.2).
fn hide(password: &mut [u8], authenticator: [u8; 16], secret: &[u8]) {
    let mut before = authenticator;
    for block in password.as_chunks_mut::<16>().0 {
        let mask = Md5::new().chain_update(secret).chain_update(before).finalize();
        block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        before = *block;
    }
}

/// Gives an Access-Request another authenticator, under which its password is hidden again.
///
/// No two requests under one secret may have the same (RFC 2865, section 3). The packet path's numbers follow from the
/// seed, so the sender gives numbers of its own. Other packets stay as they are.
pub fn renew(request: &mut [u8], authenticator: [u8; 16], secret: &[u8]) {
    if request.first() != Some(&code::ACCESS_REQUEST) {
        return;
    }
    let Some((head, body)) = request.split_at_mut_checked(HEAD) else { return };
    let mut rest = body;
    while let Some(len) = rest.get(1).map(|len| usize::from(*len)).filter(|len| *len >= 2) {
        let Some((attribute, after)) = rest.split_at_mut_checked(len) else { return };
        if attribute[0] == kind::USER_PASSWORD {
            let hidden = &mut attribute[2..];
            let mut before = [0; 16];
            before.copy_from_slice(&head[4..HEAD]);
            for block in hidden.as_chunks_mut::<16>().0 {
                let mask = Md5::new().chain_update(secret).chain_update(before).finalize();
                before = *block;
                block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            }
            hide(hidden, authenticator, secret);
        }
        rest = after;
    }
    head[4..HEAD].copy_from_slice(&authenticator);
}

/// Room for a text.
struct Text {
    bytes: [u8; 253],
    len: usize,
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Gives a request its identifier, and signs it with the secret.
///
/// An Access-Request has its Message-Authenticator (RFC 2869, section 5.14) as its first attribute. An
/// Accounting-Request is signed by its authenticator (RFC 2866, section 3). Other packets stay as they are.
pub fn sign(request: &mut [u8], identifier: u8, secret: &[u8]) {
    if let Some(place) = request.get_mut(1) {
        *place = identifier;
    }
    match request.first() {
        Some(&code::ACCESS_REQUEST) if request.get(HEAD) == Some(&kind::MESSAGE_AUTHENTICATOR) => {
            if let Some(room) = request.get_mut(HEAD + 2..HEAD + 18) {
                room.fill(0);
            }
            let Some(sum) = keyed(secret, &[request]) else { return };
            if let Some(room) = request.get_mut(HEAD + 2..HEAD + 18) {
                room.copy_from_slice(&sum);
            }
        }
        Some(&code::ACCOUNTING_REQUEST) if request.len() >= HEAD => {
            request[4..HEAD].fill(0);
            let sum = Md5::new().chain_update(&*request).chain_update(secret).finalize();
            request[4..HEAD].copy_from_slice(&sum);
        }
        _ => {}
    }
}

fn keyed(secret: &[u8], parts: &[&[u8]]) -> Option<[u8; 16]> {
    let mut mac = Hmac::<Md5>::new_from_slice(secret).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

/// An answer of a server that knows the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The subscriber is let in; the text holds what it is given, as the handler `answer` reads it.
    Accept(String),
    /// The subscriber is refused.
    Reject,
    /// Accounting was taken over.
    Accounted,
}

/// Why an answer is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongAnswer {
    /// Its lengths lead beyond it.
    #[error("its lengths are wrong")]
    Malformed,
    /// It answers another request.
    #[error("it answers another request")]
    Stranger,
    /// It was not signed with our secret, or was changed on its way.
    #[error("it is not signed with the secret that is configured here")]
    WrongSecret,
    /// It has no Message-Authenticator, without which it can be forged (CVE-2024-3596).
    #[error("it has no Message-Authenticator")]
    Unsigned,
}

/// The attributes of a packet, as type and value; `None` where a length lies.
fn attributes(bytes: &[u8]) -> Option<impl Iterator<Item = (u8, &[u8])>> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = usize::from(*rest.get(1)?);
        rest = rest.get(len..).filter(|_| len >= 2)?;
    }
    let mut rest = bytes;
    Some(std::iter::from_fn(move || {
        let len = usize::from(*rest.get(1)?);
        let (attribute, after) = rest.split_at_checked(len)?;
        rest = after;
        Some((attribute[0], &attribute[2..]))
    }))
}

/// Reads a server's answer to a signed request.
///
/// `takes_unsigned` says that an answer needs no Message-Authenticator; one that has it must have the right one.
///
/// # Errors
/// The reason not to believe it.
pub fn read_answer(
    answer: &[u8],
    request: &[u8],
    secret: &[u8],
    takes_unsigned: bool,
) -> Result<Answer, WrongAnswer> {
    let head = answer.get(..HEAD).ok_or(WrongAnswer::Malformed)?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let body = answer.get(HEAD..len).ok_or(WrongAnswer::Malformed)?;
    let asked = request.get(4..HEAD).ok_or(WrongAnswer::Stranger)?;
    let is_access = request.first() == Some(&code::ACCESS_REQUEST);
    let fits = match head[0] {
        code::ACCESS_ACCEPT | code::ACCESS_REJECT | code::ACCESS_CHALLENGE => is_access,
        code::ACCOUNTING_RESPONSE => !is_access,
        _ => false,
    };
    if request.get(1) != Some(&head[1]) || !fits {
        return Err(WrongAnswer::Stranger);
    }
    let sum = Md5::new().chain_update(&head[..4]).chain_update(asked).chain_update(body).chain_update(secret);
    if !are_equal(&sum.finalize(), &head[4..]) {
        return Err(WrongAnswer::WrongSecret);
    }
    let all: Vec<(u8, &[u8])> = attributes(body).ok_or(WrongAnswer::Malformed)?.collect();
    if is_access {
        match check_authenticator((head, asked, body), &all, secret) {
            Err(WrongAnswer::Unsigned) if takes_unsigned => {}
            checked => checked?,
        }
    }
    Ok(match head[0] {
        // An accept for a service that is not given here is none (RFC 2865, sections 5.6 and 5.7).
        code::ACCESS_ACCEPT if is_of_other_service(&all) => Answer::Reject,
        code::ACCESS_ACCEPT => Answer::Accept(granted(&all)),
        code::ACCOUNTING_RESPONSE => Answer::Accounted,
        // No method that is used here goes on with a challenge.
        _ => Answer::Reject,
    })
}

fn check_authenticator(
    (head, asked, body): (&[u8], &[u8], &[u8]),
    all: &[(u8, &[u8])],
    secret: &[u8],
) -> Result<(), WrongAnswer> {
    let stated = all.iter().find(|(kind, value)| *kind == kind::MESSAGE_AUTHENTICATOR && value.len() == 16);
    let (_, stated) = stated.ok_or(WrongAnswer::Unsigned)?;
    let mut zeroed = body.to_vec();
    let at = (stated.as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
    zeroed.get_mut(at..at + 16).ok_or(WrongAnswer::Malformed)?.fill(0);
    let sum = keyed(secret, &[&head[..4], asked, &zeroed]).ok_or(WrongAnswer::WrongSecret)?;
    if are_equal(&sum, stated) { Ok(()) } else { Err(WrongAnswer::WrongSecret) }
}

/// The Service-Type Framed and the Framed-Protocol PPP (RFC 2865, sections 5.6 and 5.7).
pub(super) const FRAMED: u32 = 2;
pub(super) const PPP: u32 = 1;

fn is_of_other_service(all: &[(u8, &[u8])]) -> bool {
    all.iter().any(|(kind, value)| match *kind {
        kind::SERVICE_TYPE => **value != FRAMED.to_be_bytes(),
        kind::FRAMED_PROTOCOL => **value != PPP.to_be_bytes(),
        _ => false,
    })
}

/// The grant of an Access-Accept, as words.
fn granted(all: &[(u8, &[u8])]) -> String {
    let mut words = String::from("accept");
    let mut has_class = false;
    let number = |value: &[u8]| value.try_into().ok().map(u32::from_be_bytes);
    for (kind, value) in all {
        // Writing to a string cannot fail.
        let _ = match (*kind, number(value)) {
            // 255.255.255.254 leaves the choice to us, and 255.255.255.255 to the subscriber (RFC 2865, section 5.8).
            (kind::FRAMED_IP_ADDRESS, Some(bits)) if bits < 0xffff_fffe => {
                write!(words, " address {}", Ipv4Addr::from_bits(bits))
            }
            (kind::SESSION_TIMEOUT, Some(seconds)) => write!(words, " session-timeout {seconds}"),
            (kind::IDLE_TIMEOUT, Some(seconds)) => write!(words, " idle-timeout {seconds}"),
            (kind::ACCT_INTERIM_INTERVAL, Some(seconds)) => write!(words, " interim {seconds}"),
            (kind::FRAMED_IPV6_PREFIX | kind::DELEGATED_IPV6_PREFIX, _) => match prefix(value) {
                Some(prefix) if *kind == kind::DELEGATED_IPV6_PREFIX => write!(words, " prefix {prefix}"),
                Some(prefix) => write!(words, " framed-prefix {prefix}"),
                None => write!(words, " odd-prefix {}", value.get(1).copied().unwrap_or_default()),
            },
            (kind::CLASS, _) if value.len() <= LONGEST_CLASS && !has_class => {
                has_class = true;
                words += " class ";
                write_hex(&mut words, value);
                Ok(())
            }
            (kind::VENDOR_SPECIFIC, _) => match dns(value) {
                Some(server) => write!(words, " dns {server}"),
                None => Ok(()),
            },
            _ => Ok(()),
        };
    }
    words
}

/// A prefix (RFC 3162, section 2.3; RFC 4818): a reserved byte, its length, and its bytes.
fn prefix(value: &[u8]) -> Option<Prefix> {
    let [_, len, bytes @ ..] = value else { return None };
    let mut octets = [0; 16];
    octets.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let len = Some(*len).filter(|len| (16..=64).contains(len))?;
    Some(Prefix { bits: super::pool::upper(Ipv6Addr::from(octets)) & super::pool::mask(len), len })
}

/// A DNS server: Microsoft's MS-Primary-DNS-Server or MS-Secondary-DNS-Server.
fn dns(value: &[u8]) -> Option<Ipv4Addr> {
    let (vendor, rest) = value.split_first_chunk::<4>()?;
    match rest {
        [28 | 29, 6, a, b, c, d] if u32::from_be_bytes(*vendor) == MICROSOFT => {
            Some(Ipv4Addr::new(*a, *b, *c, *d))
        }
        _ => None,
    }
}

/// The grant that the words behind `accept` stand for.
///
/// # Errors
/// A word that is not known, or whose value cannot be read.
pub(super) fn grant<'w>(words: &mut impl Iterator<Item = &'w str>) -> Result<Grant, String> {
    let mut grant = Grant::default();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("expected a value behind `{word}`, found nothing"))?;
        let wrong = || format!("expected another value behind `{word}`, found `{value}`");
        let seconds = || value.parse::<u32>().map_err(|_| wrong());
        match word {
            "address" => grant.address = Some(value.parse().map_err(|_| wrong())?),
            "prefix" => grant.prefix = Some(value.parse().map_err(|_| wrong())?),
            "framed-prefix" => grant.framed_prefix = Some(value.parse().map_err(|_| wrong())?),
            "odd-prefix" => grant.odd_prefixes = grant.odd_prefixes.saturating_add(1),
            "class" => {
                let class = from_hex(value).and_then(|class| Class::new(&class));
                grant.class = class.ok_or_else(wrong)?;
            }
            "dns" => {
                let server = value.parse().map_err(|_| wrong())?;
                let place = usize::from(grant.dns[0].is_some());
                grant.dns[place] = grant.dns[place].or(Some(server));
            }
            "session-timeout" => grant.session_timeout = Some(seconds()?),
            "idle-timeout" => grant.idle_timeout = Some(seconds()?),
            "interim" => grant.interim = Some(seconds()?),
            _ => {
                return Err(format!(
                    "expected address, prefix, framed-prefix, odd-prefix, class, dns, session-timeout, idle-timeout or interim, found `{word}`"
                ));
            }
        }
    }
    Ok(grant)
}

/// The bytes that hexadecimal digits stand for.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok()
        })
        .collect()
}

/// Writes bytes as hexadecimal digits.
pub(super) fn write_hex(to: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(to, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &[u8] = b"xyzzy5461";

    /// The example of RFC 2865, section 7.1: nemo, who has the password arctangent.
    #[test]
    fn a_password_is_hidden_as_in_the_rfc() {
        let authenticator = from_hex("0f403f9473978057bd83d5cb98f4227a").unwrap();
        let mut request = Request::new(code::ACCESS_REQUEST, authenticator.try_into().unwrap());
        request.add(kind::USER_NAME, b"nemo").password(b"arctangent", SECRET);
        let bytes = request.finish();
        assert_eq!(bytes[20..26], *b"\x01\x06nemo");
        assert_eq!(bytes[26..], from_hex("02120dbe708d93d413ce3196e43f782a0aee").unwrap());
    }

    #[test]
    fn another_authenticator_hides_the_same_password_anew() {
        let new = from_hex("0f403f9473978057bd83d5cb98f4227a").unwrap().try_into().unwrap();
        for password in [&b"arctangent"[..], &[b'x'; 16], &[b'y'; 128], b""] {
            let request = |authenticator| {
                let mut request = Request::new(code::ACCESS_REQUEST, authenticator);
                request
                    .add(kind::USER_NAME, b"nemo")
                    .password(password, SECRET)
                    .add(kind::NAS_IDENTIFIER, b"n");
                request.finish().to_vec()
            };
            let mut bytes = request([9; 16]);
            assert_ne!(bytes, request(new));
            renew(&mut bytes, new, SECRET);
            assert_eq!(bytes, request(new));
        }
        let mut report = Request::new(code::ACCOUNTING_REQUEST, [0; 16]).finish().to_vec();
        renew(&mut report, new, SECRET);
        assert_eq!(report[4..], [0; 16]);
    }

    /// The answer of that example. It has no Message-Authenticator, as it is older than that.
    #[test]
    fn an_answer_of_the_rfc_is_signed_but_not_enough() {
        let request = from_hex("010000380f403f9473978057bd83d5cb98f4227a").unwrap();
        let answer =
            from_hex("0200002686fe220e7624ba2a1005f6bf9b55e0b20606000000010f06000000000e06c0a80103").unwrap();
        assert_eq!(read_answer(&answer, &request, SECRET, false), Err(WrongAnswer::Unsigned));
        // It is for Login, a service that is not given here.
        assert_eq!(read_answer(&answer, &request, SECRET, true), Ok(Answer::Reject));
        assert_eq!(read_answer(&answer, &request, b"another", false), Err(WrongAnswer::WrongSecret));
    }

    /// An answer as a server makes it.
    pub(in super::super) fn answer(request: &[u8], code: u8, attributes: &[(u8, &[u8])]) -> Vec<u8> {
        let mut body = vec![kind::MESSAGE_AUTHENTICATOR, 18];
        body.extend([0; 16]);
        for (kind, value) in attributes {
            body.extend([*kind, 2 + value.len() as u8]);
            body.extend_from_slice(value);
        }
        let mut head = vec![code, request[1]];
        head.extend(((HEAD + body.len()) as u16).to_be_bytes());
        let sum = keyed(SECRET, &[&head, &request[4..HEAD], &body]).unwrap();
        body[2..18].copy_from_slice(&sum);
        let sum = Md5::new()
            .chain_update(&head)
            .chain_update(&request[4..HEAD])
            .chain_update(&body)
            .chain_update(SECRET);
        [head, sum.finalize().to_vec(), body].concat()
    }

    fn asked() -> Vec<u8> {
        let mut request = Request::new(code::ACCESS_REQUEST, [7; 16]);
        request.add(kind::MESSAGE_AUTHENTICATOR, &[0; 16]).add(kind::USER_NAME, b"alice");
        let mut bytes = request.finish().to_vec();
        sign(&mut bytes, 9, SECRET);
        bytes
    }

    #[test]
    fn what_an_accept_gives_is_read() {
        let attributes: [(u8, &[u8]); 7] = [
            (kind::FRAMED_IP_ADDRESS, &[10, 9, 0, 7]),
            (kind::SESSION_TIMEOUT, &[0, 0, 14, 16]),
            (kind::IDLE_TIMEOUT, &[0, 0, 0, 60]),
            (kind::ACCT_INTERIM_INTERVAL, &[0, 0, 0, 90]),
            (kind::DELEGATED_IPV6_PREFIX, &[0, 56, 0x20, 1, 0xd, 0xb8, 0, 7, 0, 0xff]),
            (kind::VENDOR_SPECIFIC, &[0, 0, 1, 0x37, 28, 6, 9, 9, 9, 9]),
            (kind::VENDOR_SPECIFIC, &[0, 0, 0, 9, 28, 6, 1, 1, 1, 1]),
        ];
        let request = asked();
        let answer = answer(&request, code::ACCESS_ACCEPT, &attributes);
        let Ok(Answer::Accept(words)) = read_answer(&answer, &request, SECRET, false) else {
            panic!("it is right")
        };
        assert_eq!(
            words,
            "accept address 10.9.0.7 session-timeout 3600 idle-timeout 60 interim 90 prefix 2001:db8:7::/56 dns 9.9.9.9"
        );
        let grant = grant(&mut words.split(' ').skip(1)).unwrap();
        assert_eq!((grant.address, grant.interim), (Some([10, 9, 0, 7].into()), Some(90)));
        assert_eq!(grant.dns, [Some([9, 9, 9, 9].into()), None]);
    }

    #[test]
    fn an_accept_for_another_service_is_a_refusal() {
        let request = asked();
        let read = |attributes: &[(u8, &[u8])]| {
            let answer = answer(&request, code::ACCESS_ACCEPT, attributes);
            read_answer(&answer, &request, SECRET, false)
        };
        let right: [(u8, &[u8]); 2] =
            [(kind::SERVICE_TYPE, &[0, 0, 0, 2]), (kind::FRAMED_PROTOCOL, &[0, 0, 0, 1])];
        assert_eq!(read(&right), Ok(Answer::Accept("accept".into())));
        for wrong in [
            (kind::SERVICE_TYPE, &[0, 0, 0, 1][..]),
            (kind::SERVICE_TYPE, &[2]),
            (kind::FRAMED_PROTOCOL, &[0, 0, 0, 2]),
        ] {
            assert_eq!(read(&[wrong]), Ok(Answer::Reject), "{wrong:?}");
        }
    }

    #[test]
    fn prefixes_of_each_kind_and_the_class_are_read() {
        let request = asked();
        let long = [7; LONGEST_CLASS + 1];
        let attributes: [(u8, &[u8]); 6] = [
            (kind::CLASS, &long),
            (kind::CLASS, &[1, 0xfe]),
            (kind::FRAMED_IPV6_PREFIX, &[0, 64, 0x20, 1, 0xd, 0xb8, 0, 7, 0, 1]),
            (kind::DELEGATED_IPV6_PREFIX, &[0, 56, 0x20, 1, 0xd, 0xb8, 0, 8]),
            (kind::DELEGATED_IPV6_PREFIX, &[0, 72, 0x20, 1, 0xd, 0xb8, 0, 8, 0, 0, 0]),
            (kind::CLASS, &[2]),
        ];
        let answer = answer(&request, code::ACCESS_ACCEPT, &attributes);
        let Ok(Answer::Accept(words)) = read_answer(&answer, &request, SECRET, false) else {
            panic!("it is right")
        };
        assert_eq!(
            words,
            "accept class 01fe framed-prefix 2001:db8:7:1::/64 prefix 2001:db8:8::/56 odd-prefix 72"
        );
        let grant = grant(&mut words.split(' ').skip(1)).unwrap();
        assert_eq!((grant.class.bytes(), grant.odd_prefixes), (&[1, 0xfe][..], 1));
        assert!(grant.prefix.is_some() && grant.framed_prefix.is_some());
    }

    #[test]
    fn answers_to_others_and_changed_ones_are_not_believed() {
        let request = asked();
        let right = answer(&request, code::ACCESS_REJECT, &[]);
        assert_eq!(read_answer(&right, &request, SECRET, false), Ok(Answer::Reject));
        let mut other = request.clone();
        other[1] = 8;
        assert_eq!(read_answer(&right, &other, SECRET, false), Err(WrongAnswer::Stranger));
        let mut accounting = request.clone();
        accounting[0] = code::ACCOUNTING_REQUEST;
        assert_eq!(read_answer(&right, &accounting, SECRET, false), Err(WrongAnswer::Stranger));
        for place in 0..right.len() {
            let mut wrong = right.clone();
            wrong[place] ^= 1;
            assert!(read_answer(&wrong, &request, SECRET, false).is_err(), "byte {place} was changed");
        }
        for len in 0..right.len() {
            assert!(read_answer(&right[..len], &request, SECRET, false).is_err());
        }
    }

    #[test]
    fn words_that_are_not_known_are_refused() {
        for wrong in
            ["colour red", "address x", "interim", "session-timeout -1", "class 0", "framed-prefix ::/65"]
        {
            assert!(grant(&mut wrong.split(' ')).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_answer(&bytes, &asked(), SECRET, true);
            let _ = granted(&attributes(&bytes).into_iter().flatten().collect::<Vec<_>>());
        }

        #[test]
        fn hexadecimal_digits_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = String::new();
            write_hex(&mut text, &bytes);
            prop_assert_eq!(from_hex(&text), Some(bytes));
        }
    }
}
