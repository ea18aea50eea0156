//! Packets of connections whose addresses, ports or sequence numbers a rule translates.

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::FlowKey;
use netbricks_core::packet::rewrite::{QuotedChange, RewriteError, change_quoted};
use netbricks_core::packet::tcp::flags;

use crate::action::{NotApplied, change_icmp, change_tcp};
use crate::connection::{Connection, Direction, Segment};
use crate::field::Layer;
use crate::key::Located;
use crate::tcp_options::walk_at;

/// Gives a packet the addresses and ports that it has on the other side.
///
/// # Errors
/// When some part cannot be written: it is not whole, or authenticated.
pub(crate) fn endpoints(
    frame: &mut Bytes<'_>,
    found: &Located,
    connection: &Connection,
    direction: Direction,
) -> Result<(), NotApplied> {
    let before = match direction {
        Direction::Forward => connection.origin,
        Direction::Reply => connection.translated.reversed(),
    };
    let after = connection.after(direction);
    let offload = frame.offload();
    let data = frame.data_mut();
    let (shape, range) = found.shape(data, offload).ok_or(NotApplied)?;
    let ip = data.get_mut(range).ok_or(NotApplied)?;
    let done = |result: Result<(), RewriteError>| result.map_err(|_| NotApplied);
    if before.source() != after.source() {
        done(shape.set_source(ip, after.source()))?;
    }
    if before.destination() != after.destination() {
        done(shape.set_destination(ip, after.destination()))?;
    }
    if found.is_later_fragment {
        // The first has the ports.
        return Ok(());
    }
    let (from, to) = (after.source_port(), after.destination_port());
    if found.has(Layer::IcmpEcho) || found.has(Layer::Icmpv6Echo) {
        return if before.source_port() == from { Ok(()) } else { done(shape.set_echo_identifier(ip, from)) };
    }
    if before.source_port() != from {
        done(shape.set_source_port(ip, from))?;
    }
    if before.destination_port() != to {
        done(shape.set_destination_port(ip, to))?;
    }
    Ok(())
}

/// The same for an ICMP error about a packet of the connection.
///
/// Its outer addresses change, and the packet that it quotes.
///
/// `direction` is that of the error. The quoted packet went the other way, and is what the error's sender saw of it.
///
/// # Errors
/// As [`endpoints`].
pub(crate) fn related(
    frame: &mut Bytes<'_>,
    found: &Located,
    connection: &Connection,
    direction: Direction,
) -> Result<(), NotApplied> {
    // What the quoted packet is here, and what it was where it came from.
    let (quoted, original): (FlowKey, FlowKey) = match direction {
        Direction::Reply => (connection.translated, connection.origin),
        Direction::Forward => (connection.origin.reversed(), connection.translated.reversed()),
    };
    let offload = frame.offload();
    let data = frame.data_mut();
    let (shape, range) = found.shape(data, offload).ok_or(NotApplied)?;
    let ip = data.get_mut(range).ok_or(NotApplied)?;
    let done = |result: Result<(), RewriteError>| result.map_err(|_| NotApplied);
    if quoted.source() != original.source() {
        done(change_quoted(ip, QuotedChange::Source(original.source())))?;
        // The error goes to the sender of the quoted packet.
        done(shape.set_destination(ip, original.source()))?;
    }
    if quoted.destination() != original.destination() {
        done(change_quoted(ip, QuotedChange::Destination(original.destination())))?;
        // It came from the quoted packet's destination, or from a router on the way, which keeps its address.
        if outer_source(ip) == Some(quoted.destination()) {
            done(shape.set_source(ip, original.destination()))?;
        }
    }
    if quoted.source_port() != original.source_port() {
        done(change_quoted(ip, QuotedChange::SourcePort(original.source_port())))?;
    }
    if quoted.destination_port() != original.destination_port() {
        done(change_quoted(ip, QuotedChange::DestinationPort(original.destination_port())))?;
    }
    Ok(())
}

fn outer_source(ip: &[u8]) -> Option<std::net::IpAddr> {
    netbricks_core::packet::IpRef::split(ip).ok().map(|(header, _)| header.source())
}

/// Translates sequence and acknowledgment numbers, those of SACK blocks too.
///
/// They are those with which the segment arrived, also where an earlier rule wrote others.
///
/// # Errors
/// When the segment is not whole.
pub(crate) fn sequence_numbers(
    frame: &mut Bytes<'_>,
    found: &Located,
    segment: Segment,
    (direction, shift): (Direction, [u32; 2]),
) -> Result<(), NotApplied> {
    let Some(at) = found.at(Layer::Tcp) else { return Ok(()) };
    let (own, other) = (shift[direction.index()], shift[1 - direction.index()]);
    if own != 0 {
        put(frame, found, at + 4, segment.sequence.wrapping_add(own))?;
    }
    if segment.flags & flags::ACK != 0 && other != 0 {
        put(frame, found, at + 8, segment.acknowledgment.wrapping_sub(other))?;
        let options = found.tcp_options();
        let mut edges = [0usize; EDGES];
        let count = selective_edges(frame.data().get(options.clone()).unwrap_or_default(), &mut edges);
        for edge in &edges[..count] {
            let at = options.start + edge;
            change_tcp(frame, found, at..at + 4, |bytes| shift_number(bytes, 0u32.wrapping_sub(other)))?;
        }
    }
    Ok(())
}

/// Translates the SACK blocks among options that rules have changed, and that replace those of the packet.
pub(crate) fn selective(segment: Segment, options: &mut [u8], direction: Direction, shift: [u32; 2]) {
    let other = shift[1 - direction.index()];
    if other == 0 || segment.flags & flags::ACK == 0 {
        return;
    }
    let mut edges = [0usize; EDGES];
    let count = selective_edges(options, &mut edges);
    for edge in &edges[..count] {
        if let Some(bytes) = options.get_mut(*edge..edge + 4) {
            shift_number(bytes, 0u32.wrapping_sub(other));
        }
    }
}

/// The most edges of SACK blocks that 40 bytes of options have (RFC 2018, section 3).
const EDGES: usize = 10;

/// The offsets of the edges of SACK blocks among options; returns how many there are.
fn selective_edges(options: &[u8], edges: &mut [usize; EDGES]) -> usize {
    let blocks = walk_at(options).filter(|(_, kind, _)| *kind == 5);
    let all = blocks.flat_map(|(offset, _, data)| (0..data.len() / 4).map(move |edge| offset + 4 * edge));
    let mut count = 0;
    for (place, edge) in edges.iter_mut().zip(all) {
        *place = edge;
        count += 1;
    }
    count
}

/// Translates the sequence number of the TCP segment that an ICMP error quotes.
///
/// `direction` is that of the error, against which the quoted segment went, translated already.
///
/// # Errors
/// When the error is not whole.
pub(crate) fn quoted_sequence_number(
    frame: &mut Bytes<'_>,
    found: &Located,
    direction: Direction,
    shift: [u32; 2],
) -> Result<(), NotApplied> {
    let own = match direction {
        Direction::Reply => 0u32.wrapping_sub(shift[0]),
        Direction::Forward => 0u32.wrapping_sub(shift[1]),
    };
    let message = found.at(Layer::Icmp).or_else(|| found.at(Layer::Icmpv6));
    let Some(message) = message.filter(|_| own != 0) else { return Ok(()) };
    let Some(quote) = frame.data().get(message + 8..) else { return Err(NotApplied) };
    let (header, protocol) = match quote.first().map(|byte| byte >> 4) {
        Some(4) => (usize::from(quote[0] & 0xf) * 4, quote.get(9).copied()),
        // Behind extension headers nothing is translated.
        Some(6) => (40, quote.get(6).copied()),
        _ => return Err(NotApplied),
    };
    if protocol != Some(6) || quote.len() < header + 8 {
        return Ok(());
    }
    let at = message + 8 + header + 4;
    change_icmp(frame, found, at..at + 4, |bytes| shift_number(bytes, own))
}

fn put(frame: &mut Bytes<'_>, found: &Located, at: usize, number: u32) -> Result<(), NotApplied> {
    change_tcp(frame, found, at..at + 4, |bytes| bytes.copy_from_slice(&number.to_be_bytes()))
}

fn shift_number(bytes: &mut [u8], by: u32) {
    if let Some(bytes) = bytes.first_chunk_mut::<4>() {
        *bytes = u32::from_be_bytes(*bytes).wrapping_add(by).to_be_bytes();
    }
}
