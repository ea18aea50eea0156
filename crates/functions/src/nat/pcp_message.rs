//! Messages of the Port Control Protocol (RFC 6887): requests are read, responses are written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::spec::Endpoint;

/// The UDP port of PCP servers (section 19.1).
pub(super) const PORT: u16 = 5_351;
/// Bytes of the longest message (section 7).
pub(super) const LONGEST: usize = 1_100;
/// Filters that a mapping may have.
pub(super) const MOST_FILTERS: usize = 4;

const VERSION: u8 = 2;
const HEADER: usize = 24;
const RESPONSE: u8 = 0x80;
const MAP: usize = 36;
const PEER: usize = 56;
/// Option codes; from 128 on, a server may ignore those that it does not know (section 7.3).
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
const OPTIONAL: u8 = 128;

/// The number by which a client proves that a mapping is its own (section 11.2).
pub(super) type Nonce = [u8; 12];

/// The result of a request, and its number (section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ResultCode {
    Success = 0,
    UnsuppVersion = 1,
    NotAuthorized = 2,
    MalformedRequest = 3,
    UnsuppOpcode = 4,
    UnsuppOption = 5,
    MalformedOption = 6,
    NoResources = 8,
    UnsuppProtocol = 9,
    UserExQuota = 10,
    CannotProvideExternal = 11,
    AddressMismatch = 12,
    ExcessiveRemotePeers = 13,
}

impl ResultCode {
    /// The time (s) for which a client should not ask again: half a minute, or half an hour (section 7.4).
    pub(super) fn lifetime(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::NoResources | Self::UserExQuota | Self::CannotProvideExternal => 30,
            _ => 1_800,
        }
    }
}

/// A remote endpoint or network from which a mapping lets packets in (section 13.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerFilter {
    pub(super) address: u32,
    /// Bits of the IPv4 prefix.
    pub(super) bits: u8,
    /// The port; 0 is any.
    pub(super) port: u16,
}

impl PeerFilter {
    pub(super) const NONE: Self = Self { address: 0, bits: 0, port: 0 };

    /// Whether it lets in a remote endpoint.
    pub(super) fn admits(&self, remote: Endpoint) -> bool {
        let IpAddr::V4(address) = remote.address else { return false };
        let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
        (address.to_bits() ^ self.address) & mask == 0 && (self.port == 0 || self.port == remote.port)
    }
}

/// The filters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filters {
    /// Whether those that the mapping has are removed first.
    pub(super) replaces: bool,
    added: [PeerFilter; MOST_FILTERS],
    count: usize,
}

impl Filters {
    const NONE: Self = Self { replaces: false, added: [PeerFilter::NONE; MOST_FILTERS], count: 0 };

    /// Those to be added.
    pub(super) fn added(&self) -> &[PeerFilter] {
        self.added.get(..self.count).unwrap_or_default()
    }
}

/// The part that the opcodes MAP and PEER have in common (sections 11.1 and 12.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) nonce: Nonce,
    pub(super) protocol: u8,
    pub(super) internal_port: u16,
    /// The external endpoint that the client would like; zeros are any.
    pub(super) suggested: Endpoint,
}

/// The operation that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Announce,
    Map(Map),
    Peer(Map, Endpoint),
}

impl Opcode {
    /// Bytes behind the header and before the options.
    fn size(&self) -> usize {
        match self {
            Self::Announce => 0,
            Self::Map(_) => MAP,
            Self::Peer(..) => PEER,
        }
    }
}

/// A valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) opcode: Opcode,
    /// Seconds.
    pub(super) lifetime: u32,
    /// The client wants its suggested external endpoint or none (section 13.2).
    pub(super) prefer_failure: bool,
    pub(super) filters: Filters,
}

/// A message that is no valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// It gets no answer.
    Ignored,
    /// It gets this one.
    Refused(ResultCode),
}

/// Reads the UDP payload of a packet that came from an address (section 8.2).
///
/// # Errors
/// When it is no valid request.
pub(super) fn read(message: &[u8], source: IpAddr) -> Result<Request, Invalid> {
    let refused = |code| Err(Invalid::Refused(code));
    let [version, opcode, ..] = *message else { return Err(Invalid::Ignored) };
    if opcode & RESPONSE != 0 {
        return Err(Invalid::Ignored);
    }
    if version != VERSION {
        return refused(ResultCode::UnsuppVersion);
    }
    let Some((header, rest)) = message.split_first_chunk::<HEADER>() else { return Err(Invalid::Ignored) };
    if message.len() > LONGEST || !message.len().is_multiple_of(4) {
        return refused(ResultCode::MalformedRequest);
    }
    let too_short = Invalid::Refused(ResultCode::MalformedRequest);
    let opcode = match opcode {
        0 => Opcode::Announce,
        1 => Opcode::Map(read_map(rest).ok_or(too_short)?),
        2 => {
            let peer = rest.get(MAP..PEER).ok_or(too_short)?;
            Opcode::Peer(read_map(rest).ok_or(too_short)?, endpoint(peer, 4).ok_or(too_short)?)
        }
        _ => return refused(ResultCode::UnsuppOpcode),
    };
    if address(header, 8) != Some(source) {
        return refused(ResultCode::AddressMismatch);
    }
    let lifetime = word(header, 4).ok_or(too_short)?;
    let mut request = Request { opcode, lifetime, prefer_failure: false, filters: Filters::NONE };
    for option in options(rest.get(opcode.size()..).unwrap_or_default()) {
        let (code, data) = option.ok_or(Invalid::Refused(ResultCode::MalformedOption))?;
        request.read_option(code, data).map_err(Invalid::Refused)?;
    }
    Ok(request)
}

impl Request {
    fn read_option(&mut self, code: u8, data: &[u8]) -> Result<(), ResultCode> {
        let is_map = matches!(self.opcode, Opcode::Map(_));
        match code {
            PREFER_FAILURE if is_map => {
                if !data.is_empty() || self.prefer_failure {
                    return Err(ResultCode::MalformedOption);
                }
                self.prefer_failure = true;
            }
            FILTER if is_map => self.read_filter(data)?,
            OPTIONAL.. => {}
            // Also THIRD_PARTY: hosts ask for themselves alone (section 13.1).
            _ => return Err(ResultCode::UnsuppOption),
        }
        Ok(())
    }

    fn read_filter(&mut self, data: &[u8]) -> Result<(), ResultCode> {
        let malformed = ResultCode::MalformedOption;
        let [_, bits, ..] = *data else { return Err(malformed) };
        if data.len() != 20 {
            return Err(malformed);
        }
        if bits == 0 {
            self.filters = Filters { replaces: true, ..Filters::NONE };
            return Ok(());
        }
        // A prefix of IPv4 is one of the addresses that are mapped into IPv6 (section 5).
        let peer = endpoint(data.get(2..).ok_or(malformed)?, 2).ok_or(malformed)?;
        let (IpAddr::V4(address), Some(bits @ 0..=32)) = (peer.address, bits.checked_sub(96)) else {
            return Err(malformed);
        };
        let filters = &mut self.filters;
        let place = filters.added.get_mut(filters.count).ok_or(ResultCode::ExcessiveRemotePeers)?;
        *place = PeerFilter { address: address.to_bits(), bits, port: peer.port };
        filters.count += 1;
        Ok(())
    }
}

fn read_map(data: &[u8]) -> Option<Map> {
    let (nonce, rest) = data.split_first_chunk::<12>()?;
    Some(Map {
        nonce: *nonce,
        protocol: *rest.first()?,
        internal_port: half(rest, 4)?,
        suggested: Endpoint { port: half(rest, 6)?, address: address(rest, 8)? },
    })
}

/// A port, and the address that is `after` bytes behind its place.
fn endpoint(data: &[u8], after: usize) -> Option<Endpoint> {
    Some(Endpoint { port: half(data, 0)?, address: address(data, after)? })
}

fn half(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// An address of 128 bits; one of IPv4 is mapped into IPv6.
fn address(data: &[u8], at: usize) -> Option<IpAddr> {
    let octets = data.get(at..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*octets).to_canonical())
}

/// The codes and data of options; `None` ends those that are cut off.
fn options(mut rest: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let read = (|| {
            let (head, after) = rest.split_first_chunk::<4>()?;
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (_, left) = after.split_at_checked(length.next_multiple_of(4))?;
            Some(((head[0], after.get(..length)?), left))
        })();
        rest = read.map_or(&[], |(_, left)| left);
        Some(read.map(|(option, _)| option))
    })
}

/// The answer to a request, but for the fields that are copied from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: ResultCode,
    /// Seconds.
    pub(super) lifetime: u32,
    /// The external endpoint of the mapping.
    pub(super) assigned: Option<(Ipv4Addr, u16)>,
}

/// Writes the response to a message; answers its length.
///
/// `opcode` is that of a valid request. The fields of others, and of errors, are copied (section 8.2).
pub(super) fn respond(
    message: &[u8],
    opcode: Option<&Opcode>,
    answer: &Answer,
    epoch: u32,
    room: &mut [u8; LONGEST],
) -> usize {
    let opcode = opcode.filter(|_| answer.code == ResultCode::Success);
    let copied = match opcode {
        Some(opcode) => HEADER + opcode.size(),
        None => message.len().min(LONGEST),
    };
    let mut length = copied.next_multiple_of(4).max(HEADER);
    for (to, from) in room.iter_mut().zip(message.get(..copied).unwrap_or_default()) {
        *to = *from;
    }
    room[0] = VERSION;
    room[1] |= RESPONSE;
    (room[2], room[3]) = (0, answer.code as u8);
    room[4..8].copy_from_slice(&answer.lifetime.to_be_bytes());
    room[8..12].copy_from_slice(&epoch.to_be_bytes());
    room[12..HEADER].fill(0);
    let Some(opcode) = opcode else { return length };
    if let Some((address, port)) = answer.assigned
        && *opcode != Opcode::Announce
    {
        room[HEADER + 18..HEADER + 20].copy_from_slice(&port.to_be_bytes());
        room[HEADER + 20..HEADER + MAP].copy_from_slice(&address.to_ipv6_mapped().octets());
    }
    // The options that were processed; those of a valid request fit, as they did in it.
    for (code, data) in options(message.get(copied..).unwrap_or_default()).flatten() {
        let size = 4 + data.len().next_multiple_of(4);
        if code < OPTIONAL
            && let Some(place) = room.get_mut(length..length + size)
        {
            place.fill(0);
            place[0] = code;
            place[2..4].copy_from_slice(&(data.len() as u16).to_be_bytes());
            place[4..4 + data.len()].copy_from_slice(data);
            length += size;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use netbricks_testkit::mutate::{Random, mutate};

    use super::*;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn message(opcode: u8, rest: &[u8]) -> Vec<u8> {
        [&[2, opcode, 0, 0, 0, 0, 14, 16][..], &CLIENT.to_ipv6_mapped().octets(), rest].concat()
    }

    /// Requests of each kind, with options.
    fn samples() -> Vec<Vec<u8>> {
        let map =
            [&[9; 12][..], &[6, 0, 0, 0, 0x1f, 0x90, 0, 80], &CLIENT.to_ipv6_mapped().octets()].concat();
        let peer = [&map[..], &[0, 53, 0, 0], &CLIENT.to_ipv6_mapped().octets()].concat();
        let filter = [&[3, 0, 0, 20, 0, 120, 0, 53][..], &CLIENT.to_ipv6_mapped().octets()].concat();
        let unknown = [200, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0];
        vec![
            message(0, &[]),
            message(1, &map),
            message(1, &[&map[..], &[2, 0, 0, 0], &filter, &filter, &unknown].concat()),
            message(2, &peer),
            message(2, &[&peer[..], &unknown].concat()),
        ]
    }

    #[test]
    fn fields_are_read_from_their_places() {
        let request = read(&samples()[2], CLIENT.into()).unwrap();
        let suggested = Endpoint { address: CLIENT.into(), port: 80 };
        let map = Map { nonce: [9; 12], protocol: 6, internal_port: 8_080, suggested };
        assert_eq!(
            (request.opcode, request.lifetime, request.prefer_failure),
            (Opcode::Map(map), 3_600, true)
        );
        let filter = PeerFilter { address: CLIENT.to_bits(), bits: 24, port: 53 };
        assert_eq!(request.filters.added(), [filter, filter]);
        let request = read(&samples()[3], CLIENT.into()).unwrap();
        assert_eq!(request.opcode, Opcode::Peer(map, Endpoint { port: 53, ..suggested }));
    }

    #[test]
    fn filters_of_all_lengths_let_in_their_addresses() {
        for bits in 1..=32u8 {
            let filter = PeerFilter { address: CLIENT.to_bits(), bits, port: 0 };
            let remote = |flipped: u32| Endpoint {
                address: (CLIENT.to_bits() ^ flipped).to_be_bytes().into(),
                port: 9,
            };
            assert!(filter.admits(remote(0)));
            assert!(!filter.admits(remote(1 << (32 - bits))), "{bits}");
            assert!(bits == 32 || filter.admits(remote(1 << (31 - bits))), "{bits}");
        }
    }

    /// Any bytes get an answer of bounded length or none, and a valid answer is of their opcode.
    #[test]
    fn mutated_messages_are_read_and_answered_within_bounds() {
        let (mut random, samples) = (Random::new(6_887), samples());
        let mut kinds = [0; 3];
        for _ in 0..60_000 {
            let mut message = samples[random.below(samples.len())].clone();
            for _ in 0..random.below(3) {
                mutate(&mut message, &mut random);
            }
            let request = read(&message, CLIENT.into());
            let (opcode, answer) = match &request {
                Ok(request) => {
                    kinds[0] += 1;
                    let assigned = Some((Ipv4Addr::BROADCAST, 0xabcd));
                    (Some(&request.opcode), Answer { code: ResultCode::Success, lifetime: 7, assigned })
                }
                Err(Invalid::Refused(code)) => {
                    kinds[1] += 1;
                    (None, Answer { code: *code, lifetime: code.lifetime(), assigned: None })
                }
                Err(Invalid::Ignored) => {
                    kinds[2] += 1;
                    continue;
                }
            };
            let mut room = [0; LONGEST];
            let length = respond(&message, opcode, &answer, 0x0102_0304, &mut room);
            assert!((HEADER..=LONGEST).contains(&length) && length.is_multiple_of(4), "{length}");
            assert!(length <= message.len().next_multiple_of(4).max(HEADER), "no longer than the request");
            let response = &room[..length];
            assert_eq!((response[0], response[1], response[3]), (2, message[1] | 0x80, answer.code as u8));
            assert_eq!(response[8..12], [1, 2, 3, 4]);
            assert!(room[length..].iter().all(|byte| *byte == 0));
            // A response is no request.
            assert_eq!(read(response, CLIENT.into()), Err(Invalid::Ignored));
        }
        assert!(kinds.iter().all(|count| *count > 100), "{kinds:?}");
    }
}
