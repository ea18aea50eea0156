//! The actions of rules, and how they are written into a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::checksum::update16;
use netbricks_core::packet::field::{Covered, Field, Show};
use netbricks_core::packet::protocol;
use netbricks_core::packet::tcp_options::LONGEST;

use crate::compile::as_number;
use crate::connection::End;
use crate::field::{FieldId, Kind, Layer};
use crate::key::Located;
use crate::random::Random;
use crate::rule::{Atom, MapTo, Target};
use crate::tcp_options::{walk, walk_at};

/// A target as it is executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Writes a number into a header's field.
    Write(FieldId, u128),
    /// Writes the first bytes of a payload.
    WritePayload(FieldId, Box<[u8]>),
    /// Writes the value of a TCP option where the packet has that option.
    WriteOption(u8, Box<[u8]>),
    /// Takes TCP options out: the kinds, as a set.
    Strip(Kinds),
    /// Adds a TCP option.
    AddOption(u8, Box<[u8]>),
    /// Drops the packet.
    Drop,
    /// Drops the packet where a random number of 32 bits is less.
    DropShare(u32),
    /// Ends the rules.
    Accept,
    /// Sends the flow to one of these ways out.
    Balance(Box<[u8]>),
    /// Gives a connection another address or port, and answers the opposite, where it has the field.
    MapEnd(FieldId, End, Choices),
    /// Writes one value a connection, in both directions.
    MapValue(FieldId, Choices),
    /// Translates the sequence numbers of the side that began the connection (`true`), or of the other.
    ShuffleSequence(bool),
}

/// Values of which a connection gets one, as ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choices(Box<[(u128, u128)]>);

impl Choices {
    /// These ranges, each with its first and last value; empty ones are left out.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        Self(ranges.into_iter().filter(|(low, high)| low <= high).collect())
    }
    /// One of them at random; `None` where there are none.
    pub(crate) fn choose(&self, random: &mut Random) -> Option<u128> {
        let sizes = || self.0.iter().map(|(low, high)| (high - low).saturating_add(1));
        let all = sizes().fold(0u128, u128::saturating_add);
        let mut place = if all == 0 { return None } else { random.below(all) };
        for ((low, _), size) in self.0.iter().zip(sizes()) {
            if place < size {
                return Some(low + place);
            }
            place -= size;
        }
        None
    }
}

/// A set of TCP option kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds([u128; 2]);

impl Kinds {
    /// All kinds.
    pub(crate) const ALL: Self = Self([u128::MAX; 2]);
    /// Puts a kind in (`true`) or takes it out.
    pub(crate) fn set(&mut self, kind: u8, is_in: bool) {
        let bit = 1u128 << (kind & 0x7f);
        let half = &mut self.0[usize::from(kind >> 7)];
        *half = if is_in { *half | bit } else { *half & !bit };
    }
    /// Whether a kind is in it.
    pub(crate) fn has(self, kind: u8) -> bool {
        self.0[usize::from(kind >> 7)] & 1u128 << (kind & 0x7f) != 0
    }
}

impl Action {
    /// Whether a packet meets no later rule after this.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Drop | Self::Accept)
    }
}

/// The actions of a rule's targets.
///
/// # Errors
/// A sentence about a target that cannot be done.
pub(crate) fn actions(
    targets: &[Target],
    choices: &dyn Fn(FieldId, &MapTo) -> Result<Choices, String>,
) -> Result<Vec<Action>, String> {
    let mut actions = Vec::with_capacity(targets.len());
    let mut kept: Option<Kinds> = None;
    for target in targets {
        actions.push(match target {
            Target::Mod(field, atom) => written(*field, atom)?,
            Target::Strip { is_kept: true, option } => {
                let mut kinds = kept.unwrap_or(Kinds::ALL);
                if let Some(kind) = option {
                    kinds.set(*kind, false);
                }
                let is_first = kept.is_none();
                kept = Some(kinds);
                if !is_first {
                    continue;
                }
                Action::Strip(kinds)
            }
            Target::Strip { is_kept: false, option: None } => Action::Strip(Kinds::ALL),
            Target::Strip { is_kept: false, option: Some(kind) } => {
                let mut kinds = Kinds::default();
                kinds.set(*kind, true);
                Action::Strip(kinds)
            }
            Target::Add { option, value } => {
                Action::AddOption(*option, option_data(*option, value.as_ref())?)
            }
            Target::Drop(None) => Action::Drop,
            Target::Drop(Some(percent)) if *percent >= 100.0 => Action::Drop,
            Target::Drop(Some(percent)) => Action::DropShare((percent / 100.0 * 4_294_967_296.0) as u32),
            Target::Accept => Action::Accept,
            Target::Balance(outputs) => Action::Balance(outputs.clone().into()),
            Target::Map(field, to) => mapped(*field, choices(*field, to)?)?,
            Target::Shuffle(field) => match field.info().name.as_str() {
                "tcp-seq-num" => Action::ShuffleSequence(true),
                "tcp-ack-num" => Action::ShuffleSequence(false),
                _ => mapped(*field, choices(*field, &MapTo::Random)?)?,
            },
        });
    }
    // The first `strip !` stands for all of them.
    if let Some(kinds) = kept
        && let Some(strip) = actions.iter_mut().find(|action| matches!(action, Action::Strip(_)))
    {
        *strip = Action::Strip(kinds);
    }
    Ok(actions)
}

fn mapped(field: FieldId, choices: Choices) -> Result<Action, String> {
    let info = field.info();
    match (End::of(&info.name), info.kind) {
        (Some(end), _) => Ok(Action::MapEnd(field, end, choices)),
        (None, Kind::Bits { bits: ..=32, .. }) if info.is_writable => Ok(Action::MapValue(field, choices)),
        _ => {
            Err(format!("`{}` cannot be mapped: addresses, ports and fields of up to 32 bits can", info.name))
        }
    }
}

fn written(field: FieldId, atom: &Atom) -> Result<Action, String> {
    let info = field.info();
    let wrong = || format!("`{}` cannot be set to {atom:?}", info.name);
    match (info.kind, atom) {
        (Kind::Payload, Atom::Bytes(bytes)) => Ok(Action::WritePayload(field, bytes.clone().into())),
        (Kind::BytesOption { kind }, Atom::Bytes(bytes)) => {
            Ok(Action::WriteOption(kind, bytes.clone().into()))
        }
        (Kind::NumberOption { kind, .. }, _) => Ok(Action::WriteOption(kind, option_data(kind, Some(atom))?)),
        (Kind::Code { bit, bits, value }, Atom::Number(1)) => {
            let is_whole =
                |id: &FieldId| id.info().layer == info.layer && id.info().kind == Kind::Bits { bit, bits };
            let whole = FieldId::all().find(is_whole).ok_or_else(wrong)?;
            Ok(Action::Write(whole, value.into()))
        }
        (Kind::Bits { .. }, _) => {
            as_number(atom).map(|number| Action::Write(field, number)).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// The bytes behind an option's kind and length.
fn option_data(kind: u8, value: Option<&Atom>) -> Result<Box<[u8]>, String> {
    let of = |id: &FieldId| match id.info().kind {
        Kind::NumberOption { kind: known, bits } if known == kind => Some(bits),
        _ => None,
    };
    let bits = FieldId::all().find_map(|id| of(&id));
    match (bits, value) {
        (None, None) => Ok(Box::default()),
        (None, Some(Atom::Bytes(bytes))) => Ok(bytes.clone().into()),
        (Some(bits), Some(atom)) => {
            let number = as_number(atom)
                .ok_or_else(|| format!("option {kind} has a number as value, found {atom:?}"))?;
            let bytes = number.to_be_bytes();
            let mut data = bytes[16 - usize::from(bits / 8)..].to_vec();
            // A timestamp has an echo behind its value.
            data.resize(if bits == 32 { 8 } else { data.len() }, 0);
            Ok(data.into())
        }
        (None, Some(Atom::Number(number))) => {
            let bytes = number.to_be_bytes();
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(15);
            Ok(bytes[first..].into())
        }
        (Some(_), None) => Err(format!("option {kind} needs a value")),
        (None, Some(atom)) => Err(format!("option {kind} cannot have the value {atom:?}")),
    }
}

/// Why an action did not change a packet, which the rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotApplied;

/// Writes a field of a layer that the frame has; a frame without the layer stays as it is.
///
/// # Errors
/// When the field cannot be written: an address of a packet under an authentication header, a port behind more
/// extension headers than are followed.
pub(crate) fn write(
    frame: &mut Bytes<'_>,
    found: &Located,
    field: FieldId,
    value: u128,
) -> Result<(), NotApplied> {
    let info = field.info();
    let Some(at) = found.at(info.layer) else { return Ok(()) };
    let Kind::Bits { bit, bits } = info.kind else { return Err(NotApplied) };
    let offload = frame.offload();
    let data = frame.data_mut();
    let address = match info.show {
        Show::Ipv4 => Some(IpAddr::V4(Ipv4Addr::from_bits(value as u32))),
        Show::Ipv6 => Some(IpAddr::V6(Ipv6Addr::from_bits(value))),
        _ => None,
    };
    match (info.layer, address, bit) {
        (Layer::Ipv4 | Layer::Ipv6, Some(address), _) => {
            let is_source = matches!((info.layer, bit), (Layer::Ipv4, 96) | (Layer::Ipv6, 64));
            let (shape, range) = found.shape(data, offload).ok_or(NotApplied)?;
            let ip = data.get_mut(range).ok_or(NotApplied)?;
            let done =
                if is_source { shape.set_source(ip, address) } else { shape.set_destination(ip, address) };
            done.map_err(|_| NotApplied)
        }
        _ => {
            let field = Field { name: "", bit, bits, covered: Covered::No, show: Show::Hex };
            let first = at + usize::from(bit / 8);
            let last = at + usize::from((bit + bits).div_ceil(8));
            let covered = covering(data, found, info.layer, first, offload.needs_checksum);
            change(data, first..last, covered, |data| {
                field.write(data.get_mut(at..).unwrap_or_default(), value);
            })
        }
    }
}

/// Writes the first bytes of a payload.
///
/// # Errors
/// When the payload is shorter.
pub(crate) fn write_payload(
    frame: &mut Bytes<'_>,
    found: &Located,
    field: FieldId,
    bytes: &[u8],
) -> Result<(), NotApplied> {
    let layer = field.info().layer;
    let Some(range) = found.payload(layer) else { return Ok(()) };
    if range.len() < bytes.len() {
        return Err(NotApplied);
    }
    let partial = frame.offload().needs_checksum;
    let data = frame.data_mut();
    let covered = covering_payload(data, found, range.start, partial);
    let range = range.start..range.start + bytes.len();
    // Bytes over the checksum itself are what was asked for.
    let covered = covered.filter(|covered| !(range.start..range.end + 1).contains(&(covered.checksum + 1)));
    change(data, range.clone(), covered, |data| {
        if let Some(to) = data.get_mut(range) {
            to.copy_from_slice(bytes);
        }
    })
}

/// A checksum that covers bytes: its place, and the range that it adds up.
#[derive(Clone, Debug)]
struct Checksum {
    checksum: usize,
    covered: std::ops::Range<usize>,
    /// Whether 0 means that there is none.
    udp: bool,
}

/// The checksum that covers byte `at` of a layer, if there is one to be carried.
///
/// One that is left to a device covers nothing yet, and a layer's own checksum does not cover itself.
fn covering(data: &[u8], found: &Located, layer: Layer, at: usize, partial: bool) -> Option<Checksum> {
    let (outer, offset) = match layer {
        Layer::Ipv4 => (Layer::Ipv4, 10),
        Layer::Tcp => (Layer::Tcp, 16),
        Layer::Udp | Layer::Vxlan | Layer::Geneve | Layer::Gtpu => (Layer::Udp, 6),
        Layer::Icmp | Layer::IcmpEcho | Layer::IcmpMtu => (Layer::Icmp, 2),
        Layer::Icmpv6 | Layer::Icmpv6Echo | Layer::Icmpv6Mtu => (Layer::Icmpv6, 2),
        Layer::Gre => (Layer::Gre, 4),
        _ => return None,
    };
    carried(data, found, (outer, offset), (found.at(outer)?, at), partial)
}

/// The checksum that covers byte `at` of what IP carries: also where a first fragment ends in its TCP header.
fn covering_payload(data: &[u8], found: &Located, at: usize, partial: bool) -> Option<Checksum> {
    let of = match found.transport()? {
        protocol::TCP => (Layer::Tcp, 16),
        protocol::UDP => (Layer::Udp, 6),
        protocol::ICMP => (Layer::Icmp, 2),
        protocol::ICMPV6 => (Layer::Icmpv6, 2),
        protocol::GRE => (Layer::Gre, 4),
        _ => return None,
    };
    let words = found.payload(Layer::Ipv4).or_else(|| found.payload(Layer::Ipv6))?.start;
    carried(data, found, of, (words, at), partial)
}

/// A layer's checksum, if the packet has it and byte `at` is not in it.
fn carried(
    data: &[u8],
    found: &Located,
    (outer, offset): (Layer, usize),
    (words, at): (usize, usize),
    partial: bool,
) -> Option<Checksum> {
    let checksum = words + offset;
    let end = match outer {
        Layer::Ipv4 => found.payload(Layer::Ipv4)?.start,
        outer => found.end(outer),
    };
    // RFC 2784, section 2.1: the checksum stands in four bytes of its own.
    let needed = if outer == Layer::Gre { checksum + 4 } else { checksum + 2 };
    if needed > end {
        return None;
    }
    let has = match outer {
        Layer::Gre => data.get(words).is_some_and(|flags| flags & 0x80 != 0),
        Layer::Udp => data.get(checksum..checksum + 2).is_some_and(|sum| sum != [0, 0]),
        _ => true,
    };
    let is_left_to_device = partial && outer != Layer::Ipv4;
    let is_itself = (checksum..checksum + 2).contains(&at);
    (has && !is_left_to_device && !is_itself).then_some(Checksum {
        checksum,
        covered: words..end,
        udp: outer == Layer::Udp,
    })
}

/// The one's complement sum of these bytes as a checksum over `covered` has it (RFC 1071); others count 0.
fn summed(data: &[u8], range: &std::ops::Range<usize>, covered: &std::ops::Range<usize>) -> u16 {
    let range = range.start.max(covered.start)..range.end.min(covered.end).min(data.len());
    let mut sum = 0u32;
    for (at, byte) in range.clone().zip(data.get(range).unwrap_or_default()) {
        sum += u32::from(*byte) << if (at - covered.start).is_multiple_of(2) { 8 } else { 0 };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether all bytes of this range are zero, but for the checksum in it.
#[cold]
fn is_zero(data: &[u8], range: &std::ops::Range<usize>, checksum: usize) -> bool {
    let bytes = data.get(range.start..range.end.min(data.len())).unwrap_or_default();
    let is_own = |at: usize| (checksum..checksum + 2).contains(&(range.start + at));
    bytes.iter().enumerate().all(|(at, byte)| *byte == 0 || is_own(at))
}

/// Changes bytes of this range and carries the change into the checksum (RFC 1624).
///
/// # Errors
/// When the frame has not these bytes.
fn change(
    data: &mut [u8],
    range: std::ops::Range<usize>,
    covered: Option<Checksum>,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), NotApplied> {
    if range.end > data.len() {
        return Err(NotApplied);
    }
    let Some(Checksum { checksum, covered, udp }) = covered else {
        write(data);
        return Ok(());
    };
    let before = summed(data, &range, &covered);
    write(data);
    let after = summed(data, &range, &covered);
    if before == after {
        return Ok(());
    }
    let Some(field) = data.get(checksum..).and_then(|rest| rest.first_chunk::<2>()) else { return Ok(()) };
    let mut sum = update16(u16::from_be_bytes(*field), before, after);
    // RFC 768: a sum of 0 is sent as all ones. And all ones are right for nothing but zeros, as an echo reply may be, since
    // RFC 1624 supposes that they do not occur.
    if sum == 0 && (udp || is_zero(data, &covered, checksum)) {
        sum = 0xffff;
    }
    if let Some(field) = data.get_mut(checksum..checksum + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

/// Changes bytes of a TCP segment, with its checksum.
///
/// # Errors
/// When the frame has not these bytes.
pub(crate) fn change_tcp(
    frame: &mut Bytes<'_>,
    found: &Located,
    range: std::ops::Range<usize>,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), NotApplied> {
    change_of(frame, found, Layer::Tcp, range, write)
}

/// Changes bytes of an ICMP or ICMPv6 message, with its checksum.
///
/// # Errors
/// When the frame has not these bytes.
pub(crate) fn change_icmp(
    frame: &mut Bytes<'_>,
    found: &Located,
    range: std::ops::Range<usize>,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), NotApplied> {
    let layer = if found.has(Layer::Icmp) { Layer::Icmp } else { Layer::Icmpv6 };
    change_of(frame, found, layer, range, write)
}

fn change_of(
    frame: &mut Bytes<'_>,
    found: &Located,
    layer: Layer,
    range: std::ops::Range<usize>,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), NotApplied> {
    let partial = frame.offload().needs_checksum;
    let data = frame.data_mut();
    let covered = covering(data, found, layer, range.start, partial);
    change(data, range.clone(), covered, |data| {
        if let Some(bytes) = data.get_mut(range) {
            write(bytes);
        }
    })
}

/// Writes the value of the first TCP option of this kind, where it has one as long; its length stays.
///
/// # Errors
/// When the packet has the option with another length.
pub(crate) fn write_option(
    frame: &mut Bytes<'_>,
    found: &Located,
    kind: u8,
    value: &[u8],
) -> Result<(), NotApplied> {
    if !found.has(Layer::Tcp) {
        return Ok(());
    }
    let options = found.tcp_options();
    let partial = frame.offload().needs_checksum;
    let data = frame.data_mut();
    let Some(bytes) = data.get(options.clone()) else { return Err(NotApplied) };
    let place = walk_at(bytes).find(|(_, known, _)| *known == kind);
    let Some((offset, len)) = place.map(|(offset, _, of)| (offset, of.len())) else { return Ok(()) };
    let value = fitting(kind, len, value)?;
    let at = options.start + offset;
    let covered = covering(data, found, Layer::Tcp, at, partial);
    change(data, at..at + value.len(), covered, |data| data[at..at + value.len()].copy_from_slice(value))
}

/// The part of a value that is written into an option of `len` bytes.
///
/// The echo of a timestamp stays.
fn fitting(kind: u8, len: usize, value: &[u8]) -> Result<&[u8], NotApplied> {
    match value.first_chunk::<4>() {
        Some(timestamp) if kind == 8 && len == 8 => Ok(timestamp),
        _ if value.len() == len => Ok(value),
        _ => Err(NotApplied),
    }
}

/// A packet's TCP options while rules change them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EditedOptions {
    bytes: [u8; LONGEST],
    len: usize,
    /// Whether they differ from the packet's; until then, they are read from the packet.
    pub(crate) is_changed: bool,
}

impl Default for EditedOptions {
    fn default() -> Self {
        Self { bytes: [0; LONGEST], len: 0, is_changed: false }
    }
}

impl EditedOptions {
    /// The bytes of the options.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
    /// The same, to change values.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Writes the value of the first option of this kind, as [`write_option`] does in a packet.
    ///
    /// # Errors
    /// When the option has another length.
    pub(crate) fn write(&mut self, kind: u8, value: &[u8]) -> Result<(), NotApplied> {
        let place = walk_at(self.bytes()).find(|(_, known, _)| *known == kind);
        let Some((at, len)) = place.map(|(at, _, of)| (at, of.len())) else { return Ok(()) };
        let value = fitting(kind, len, value)?;
        self.bytes[at..at + value.len()].copy_from_slice(value);
        Ok(())
    }

    /// Takes the packet's options over, before the first change.
    ///
    /// # Errors
    /// When an option's length is wrong, so that what follows it is unknown.
    fn begin(&mut self, options: &[u8]) -> Result<(), NotApplied> {
        if self.is_changed {
            return Ok(());
        }
        let mut rest = options;
        loop {
            rest = match rest {
                [] | [0, ..] => break,
                [1, after @ ..] => after,
                [_, len, ..] if *len >= 2 => rest.get(usize::from(*len)..).ok_or(NotApplied)?,
                _ => return Err(NotApplied),
            };
        }
        self.len = 0;
        for (kind, data) in walk(options) {
            self.push(kind, data)?;
        }
        Ok(())
    }

    fn push(&mut self, kind: u8, data: &[u8]) -> Result<(), NotApplied> {
        let end = self.len + 2 + data.len();
        let to = self.bytes.get_mut(self.len..end).ok_or(NotApplied)?;
        to[0] = kind;
        to[1] = (data.len() + 2) as u8;
        to[2..].copy_from_slice(data);
        self.len = end;
        Ok(())
    }

    /// Takes options of these kinds out.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn strip(&mut self, options: &[u8], kinds: Kinds) -> Result<(), NotApplied> {
        let (held, len) = (self.bytes, self.len);
        let current = if self.is_changed { &held[..len] } else { options };
        if !walk(current).any(|(kind, _)| kinds.has(kind)) {
            return Ok(());
        }
        self.begin(options)?;
        let (bytes, len) = (self.bytes, self.len);
        self.len = 0;
        for (kind, data) in walk(&bytes[..len]).filter(|(kind, _)| !kinds.has(*kind)) {
            self.push(kind, data)?;
        }
        self.is_changed = true;
        Ok(())
    }

    /// Adds an option behind the others.
    ///
    /// # Errors
    /// When there is no room in 40 bytes, or as [`begin`](Self::begin).
    pub(crate) fn add(&mut self, options: &[u8], kind: u8, data: &[u8]) -> Result<(), NotApplied> {
        self.begin(options)?;
        self.push(kind, data)?;
        self.is_changed = true;
        Ok(())
    }
}
