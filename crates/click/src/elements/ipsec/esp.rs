//! ESP (RFC 4303): `IPsecESPEncap`, `IPsecESPUnencap`, `IPsecAES`, `IPsecAuthHMACSHA1`, `IPsecEncap`.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::association::{self, Association, Associations, BLOCK, ICV, Replay};
use crate::arguments::{Arguments, Parsed, Problem};
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::names;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::integer;

pub(super) const CLASSES: &[Class] = &[
    Class::new("IPsecESPEncap", esp_encap),
    Class::new("IPsecESPUnencap", esp_unencap),
    Class::new("IPsecAES", ipsec_aes),
    Class::new("IPsecAuthHMACSHA1", ipsec_auth).ports("1/-").processing("a/ah"),
    Class::new("IPsecEncap", ipsec_encap),
];

/// Bytes of the ESP header and the initialisation vector.
pub(super) const HEADER: usize = 8 + BLOCK;
/// Next header of an IPv4 packet.
const IPV4: u8 = 4;
/// Next header of an IPv6 packet.
const IPV6: u8 = 41;
/// Next header of packets that only hide how many others there are.
const DUMMY: u8 = 59;

/// A packet that could not be dealt with, and why.
type Refused = (Packet, DropReason);

fn settle(at: At<'_>, result: Result<Packet, Refused>) -> Option<Packet> {
    match result {
        Ok(packet) => Some(packet),
        Err((packet, reason)) => {
            at.drop_packet(packet, reason);
            None
        }
    }
}

/// The packet's association, or a complaint.
fn association(
    at: At<'_>,
    associations: &Associations,
    packet: Packet,
) -> Result<(Packet, Rc<Association>), Refused> {
    match associations.find(&packet) {
        Some(association) => Ok((packet, association)),
        None => {
            at.complain(|| format!("{}: packet has no security association", at.name()));
            Err((packet, DropReason::Unmatched))
        }
    }
}

/// The protocol behind an ESP header: a whole IP packet, or that of an IP header that was taken off.
fn next_header(packet: &Packet) -> u8 {
    if let Some(before) = packet.network_place().and_then(|place| usize::try_from(-place).ok())
        && before > 0
    {
        let pulled = packet.pulled_bytes();
        let header = pulled.len().checked_sub(before).and_then(|begin| pulled.get(begin..));
        return match header {
            Some(header) if header.first().is_some_and(|first| first >> 4 == 6) => header.get(6),
            Some(header) => header.get(9),
            None => None,
        }
        .copied()
        .unwrap_or(0);
    }
    match packet.data().first().map(|first| first >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => 0,
    }
}

/// `IPsecESPEncap`: puts an ESP header with an initialisation vector before a packet, and padding behind it.
///
/// The packet's association is that of its route in `RadixIPsecLookup`. A sequence number is used once only.
struct EspEncap {
    associations: Rc<Associations>,
    ended: Cell<bool>,
}

fn esp_encap(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    let associations = Associations::of(setup.at);
    Some(Rc::new(EspEncap { associations, ended: Cell::default() }))
}

impl EspEncap {
    fn wrap(&self, at: At<'_>, packet: Packet) -> Result<Packet, Refused> {
        let (mut packet, association) = association(at, &self.associations, packet)?;
        let next = next_header(&packet);
        let padding = (packet.len() + 2).next_multiple_of(BLOCK) - packet.len() - 2;
        if !packet.push_bytes(at.pool(), HEADER) || !packet.put_bytes(padding + 2) {
            return Err((packet, DropReason::PoolExhausted));
        }
        let Some(number) = association.next() else {
            if !self.ended.replace(true) {
                at.chatter(&format!("{}: all sequence numbers were used, set other keys", at.name()));
            }
            return Err((packet, DropReason::Denied));
        };
        let vector = association.vector(number, at.now());
        let data = packet.data_mut();
        data[..4].copy_from_slice(&association.spi.to_be_bytes());
        data[4..8].copy_from_slice(&number.to_be_bytes());
        data[8..HEADER].copy_from_slice(&vector);
        let begin = data.len() - padding - 2;
        for (byte, value) in data[begin..].iter_mut().zip(1..) {
            *byte = value;
        }
        let end = data.len();
        data[end - 2] = padding as u8;
        data[end - 1] = next;
        Ok(packet)
    }
}

impl Element for EspEncap {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        settle(at, self.wrap(at, packet))
    }
}

/// `IPsecESPUnencap`: takes off ESP header and padding, and refuses packets that were replayed.
///
/// The packet must have passed `IPsecAuthHMACSHA1`, which verified it.
struct EspUnencap {
    associations: Rc<Associations>,
}

fn esp_unencap(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    arguments.complete()?;
    Some(Rc::new(EspUnencap { associations: Associations::of(setup.at) }))
}

/// The length of a payload without its padding, and its next header.
fn unpadded(payload: &[u8]) -> Result<(usize, u8), &'static str> {
    let [rest @ .., padding, next] = payload else { return Err("Invalid padding length") };
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or("Invalid padding length")?;
    let good = rest[length..].iter().zip(1..).all(|(byte, value)| *byte == value);
    if good { Ok((length, *next)) } else { Err("Corrupt padding") }
}

impl EspUnencap {
    fn unwrap(&self, at: At<'_>, packet: Packet) -> Result<Packet, Refused> {
        let (mut packet, association) = association(at, &self.associations, packet)?;
        let Some((header, payload)) = packet.data().split_at_checked(HEADER) else {
            return Err((packet, DropReason::Malformed));
        };
        if !association::is_checked(&packet) {
            at.complain(|| format!("{}: packet was not authenticated", at.name()));
            return Err((packet, DropReason::Denied));
        }
        let number = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let unpadded = unpadded(payload);
        if let Err(replay) = association.take(number) {
            let line = match replay {
                Replay::Old => "Replay protection: This packet is too old to be accepted\n",
                Replay::Seen => "Replay protection: This packet is already seen...\n",
            };
            at.complain(|| line.into());
            return Err((packet, DropReason::Denied));
        }
        match unpadded {
            Ok((_, DUMMY)) => Err((packet, DropReason::Discarded)),
            Ok((length, _)) => {
                let _ = packet.pull_front(HEADER);
                packet.truncate(length);
                Ok(packet)
            }
            Err(problem) => {
                at.complain(|| problem.into());
                Err((packet, DropReason::Malformed))
            }
        }
    }
}

impl Element for EspUnencap {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        settle(at, self.unwrap(at, packet))
    }
}

/// `IPsecAES(ENCRYPT)`: encrypts (1) or decrypts (0) what follows an ESP header, by AES-128 in CBC mode (RFC 3602).
///
/// It may stand before or behind `IPsecAuthHMACSHA1`: an integrity check value at the end stays as it is. Behind, when
/// packets leave, and so before, when they come in, is not what RFC 4303 says.
struct Aes {
    associations: Rc<Associations>,
    encrypts: bool,
}

/// A number that is a choice: 0 or another.
fn choice(text: &str, _: At<'_>) -> Parsed<bool> {
    integer(text).map(|number| number != 0).ok_or_else(|| Problem::Said("invalid number".into()))
}

fn ipsec_aes(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let encrypts = arguments.required_with("ENCRYPT", choice);
    arguments.complete()?;
    Some(Rc::new(Aes { associations: Associations::of(setup.at), encrypts: encrypts? }))
}

impl Aes {
    fn apply(&self, at: At<'_>, packet: Packet) -> Result<Packet, Refused> {
        let (mut packet, association) = association(at, &self.associations, packet)?;
        // A value was made already, or was not taken off yet.
        let behind = if association::is_checked(&packet) == self.encrypts { ICV } else { 0 };
        let end = packet.len().checked_sub(behind);
        let parts = end.and_then(|end| packet.data_mut().get_mut(8..end));
        let parts = parts.and_then(|bytes| bytes.split_first_chunk_mut::<BLOCK>());
        let done = parts.is_some_and(|(vector, bytes)| match self.encrypts {
            true => association.encrypt(*vector, bytes),
            false => association.decrypt(*vector, bytes),
        });
        if done { Ok(packet) } else { Err((packet, DropReason::Malformed)) }
    }
}

impl Element for Aes {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        settle(at, self.apply(at, packet))
    }
}

/// `IPsecAuthHMACSHA1(VERIFY)`: puts an integrity check value behind a packet (0), or verifies it and takes it off (1).
///
/// The value is HMAC-SHA-1-96 (RFC 2404). Packets with a wrong one go to output 1.
struct Auth {
    associations: Rc<Associations>,
    verifies: bool,
    drops: Cell<u64>,
}

fn ipsec_auth(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let verifies = arguments.required_with("VERIFY", choice);
    arguments.complete()?;
    let associations = Associations::of(setup.at);
    Some(Rc::new(Auth { associations, verifies: verifies?, drops: Cell::default() }))
}

impl Auth {
    fn sign(mut packet: Packet, association: &Association) -> Result<Packet, Refused> {
        let value = association.sign(packet.data());
        if !packet.put_bytes(ICV) {
            return Err((packet, DropReason::PoolExhausted));
        }
        if let Some(place) = packet.data_mut().last_chunk_mut::<ICV>() {
            *place = value;
        }
        association::set_checked(&mut packet);
        Ok(packet)
    }
    fn verify(&self, at: At<'_>, mut packet: Packet, association: &Association) -> Option<Packet> {
        if let Some((bytes, value)) = packet.data().split_last_chunk::<ICV>()
            && bytes.len() >= HEADER
            && association.is_signed(bytes, value)
        {
            let length = bytes.len();
            packet.truncate(length);
            association::set_checked(&mut packet);
            return Some(packet);
        }
        if self.drops.replace(self.drops.get() + 1) == 0 {
            at.chatter("Invalid SHA1 authentication digest");
        }
        at.push_or_drop(1, packet, DropReason::Denied);
        None
    }
}

impl Element for Auth {
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        let (packet, association) = match association(at, &self.associations, packet) {
            Ok(both) => both,
            Err(refused) => return settle(at, Err(refused)),
        };
        if self.verifies {
            return self.verify(at, packet, &association);
        }
        settle(at, Self::sign(packet, &association))
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("drops", |this: &Self, _| this.drops.get());
    }
}

/// `IPsecEncap(PROTO)`: puts an IPv4 header to the destination annotation before a packet.
///
/// `FixIPSrc` then sets the source, for which the packet's annotation asks.
struct IpsecEncap {
    protocol: u8,
    id: Cell<u16>,
}

fn protocol(text: &str, _: At<'_>) -> Parsed<i64> {
    let number = || integer(text).and_then(|number| i64::try_from(number).ok());
    let known = names::ip_protocol(text).map(i64::from);
    known.or_else(number).ok_or_else(|| Problem::Said("invalid number".into()))
}

fn ipsec_encap(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let protocol = arguments.required_with("PROTO", protocol);
    arguments.complete()?;
    match u8::try_from(protocol?) {
        Ok(protocol) => Some(Rc::new(IpsecEncap { protocol, id: Cell::default() })),
        Err(_) => {
            arguments.error("bad IP protocol");
            None
        }
    }
}

impl Element for IpsecEncap {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        const LENGTH: usize = 20;
        let length = u16::try_from(packet.len() + LENGTH);
        let Ok(length) = length else {
            at.drop_packet(packet, DropReason::TooBig);
            return None;
        };
        if !packet.push_bytes(at.pool(), LENGTH) {
            at.drop_packet(packet, DropReason::PoolExhausted);
            return None;
        }
        let id = self.id.replace(self.id.get().wrapping_add(1));
        let mut header = [0; LENGTH];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[8] = 250;
        header[9] = self.protocol;
        header[16..].copy_from_slice(&packet.dst_ip().octets());
        let sum = checksum::internet(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.data_mut()[..LENGTH].copy_from_slice(&header);
        packet.set_network(0, LENGTH);
        packet.set_anno_u8(place::FIX_IP_SRC, 1);
        Some(packet)
    }
}
