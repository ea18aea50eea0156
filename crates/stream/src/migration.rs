//! Windows that move to another worker with their connections.
//!
//! Each takes along its position, the bytes that wait for missing ones, and its part of a window.

use netbricks_core::packet::{FlowKey, checksum};

use super::blocks::{BLOCK, NONE};
use super::connection::{Connection, LIMIT, Phase, Side, Stage, UNKNOWN, WindowScale};
use super::kept::{Kept, WindowObserver};
use super::reader::Reader;
use super::reassembler::Reassembler;
use super::segment::{MOST_SHIFT, Protocol};
use super::transfer::{CONNECTION, connection, write_connection};
use super::window::{Part, Windows};

/// Differs from the version of [`Reassembler::encode`]: these bytes were taken out of their old worker, and
/// hold more.
const VERSION: u16 = 7;

/// The beginning of the run, the beginning of the piece, and its length.
const PIECE: usize = 8 + 8 + 2;
/// The number of shown bytes, the position of the first byte, the gap before it, and the number of bytes.
const PART: usize = 4 + 8 + 8 + 4;

/// Bytes of the length of a kept state.
const LENGTH: usize = 4;

/// Pieces that wait: the beginning of the run, the position of the piece, and its bytes.
pub(super) type Waiting<'a> = Vec<(u64, u64, &'a [u8])>;

/// A connection on its way. Its slices refer to the bytes that came.
struct Moved<'a, K> {
    connection: Connection,
    waiting: [Waiting<'a>; 2],
    parts: [(Part, &'a [u8]); 2],
    kept: [K; 2],
}

impl<P: Protocol, F: WindowObserver> Windows<P, F> {
    /// Takes out the connections for whose canonical key `leaves` answers `true`.
    ///
    /// [`import`](netbricks_core::Declared::import) adds these bytes to other windows of the same size, where
    /// the connections continue as if nothing had happened. Before anything else, the user function here
    /// learns that they [moved](super::End::Moved), with the state that it [kept](Kept) of them.
    pub fn take_where(&mut self, mut leaves: impl FnMut(FlowKey) -> bool) -> Vec<u8> {
        let numbers: Vec<u32> =
            self.streams.numbers().filter(|number| leaves(self.streams.key(*number))).collect();
        let mut bytes = Vec::new();
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend((self.cutter.size as u32).to_be_bytes());
        bytes.extend((numbers.len() as u32).to_be_bytes());
        for number in numbers {
            self.streams.pack(number, &mut bytes);
            self.kept[number as usize].iter().for_each(|kept| write_kept(kept, &mut bytes));
            for side in [Side::Client, Side::Server] {
                let Part { buffer, len, seen, offset, gap, .. } =
                    self.cutter.parts[number as usize][side as usize];
                bytes.extend(seen.to_be_bytes());
                bytes.extend(offset.to_be_bytes());
                bytes.extend(gap.to_be_bytes());
                bytes.extend(len.to_be_bytes());
                bytes.extend(self.cutter.buffers.get(buffer, len as usize));
            }
            self.give_away(number);
        }
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        bytes.extend(checksum::internet(&bytes).to_be_bytes());
        bytes
    }

    /// Adds connections that [`take_where`](Self::take_where) took out of other windows, at `now` (ns).
    ///
    /// A connection without a place is lost, as if its packets took another path. A part of a window without
    /// a place is a gap.
    pub(super) fn put(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        if bytes.len() % 2 == 1 || checksum::internet(bytes) != 0 {
            return Err("the windows that moved are corrupt: their checksum is wrong".into());
        }
        let size = self.cutter.size;
        let mut from = Reader(&bytes[..bytes.len().saturating_sub(2)]);
        let broken = || "the windows that moved end in the middle, or are none that can be".to_owned();
        let (Some(VERSION), Some(found)) = (from.number(2).map(|version| version as u16), from.number(4))
        else {
            return Err(format!("windows that moved are of version {VERSION}"));
        };
        if found as usize != size {
            return Err(format!("windows of {size} bytes were expected, found such of {found}"));
        }
        let count = from.number(4).ok_or_else(broken)?;
        // Everything is read before anything changes.
        let moved: Option<Vec<Moved<'_, F::Kept>>> = (0..count).map(|_| from.moved(now, size)).collect();
        for moved in moved.filter(|_| from.0.len() < 2).ok_or_else(broken)? {
            let Some(number) = self.streams.unpack(&moved.connection, &moved.waiting) else { continue };
            self.kept[number as usize] = moved.kept;
            for (way, (mut part, bytes)) in moved.parts.into_iter().enumerate() {
                if !bytes.is_empty() {
                    match self.cutter.buffers.free.pop() {
                        Some(buffer) => {
                            self.cutter.buffers.of(buffer)[..bytes.len()].copy_from_slice(bytes);
                            (part.buffer, part.len) = (buffer, bytes.len() as u32);
                        }
                        None => {
                            self.streams.counters.refused += 1;
                            part.gap += bytes.len().saturating_sub(part.seen as usize) as u64;
                            part.seen = 0;
                        }
                    }
                }
                self.cutter.parts[number as usize][way] = part;
            }
        }
        Ok(())
    }
}

/// Writes the state that a user function keeps of a direction, behind the state's length.
pub(super) fn write_kept(kept: &impl Kept, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend([0; LENGTH]);
    kept.pack(to);
    let len = (to.len() - start - LENGTH) as u32;
    to[start..start + LENGTH].copy_from_slice(&len.to_be_bytes());
}

/// Whether these are bytes of [`Windows::take_where`].
pub(super) fn is_moved(bytes: &[u8]) -> bool {
    bytes.starts_with(&VERSION.to_be_bytes())
}

impl<P: Protocol> Reassembler<P> {
    /// Writes the state of a connection, and the bytes that wait in it.
    pub(super) fn pack(&self, number: u32, bytes: &mut Vec<u8>) {
        let connection = self.connections.get(number);
        write_connection(connection, bytes);
        for direction in &connection.directions {
            bytes.extend(direction.edge.to_be_bytes());
            bytes.push(match direction.offer {
                WindowScale::Unseen => u8::MAX,
                WindowScale::None => u8::MAX - 1,
                WindowScale::Shift(shift) => shift,
            });
            bytes.extend(direction.held.to_be_bytes());
            bytes.extend(direction.waiting.blocks.to_be_bytes());
            let mut block = direction.waiting.head;
            while block != NONE {
                let piece = self.blocks.piece(block);
                let waits = self.blocks.bytes(block);
                bytes.extend(piece.from.to_be_bytes());
                bytes.extend(piece.start.to_be_bytes());
                bytes.extend((waits.len() as u16).to_be_bytes());
                bytes.extend(waits);
                block = piece.next;
            }
        }
    }

    /// Continues a connection, with its waiting bytes as far as there is memory.
    pub(super) fn unpack(&mut self, connection: &Connection, waiting: &[Waiting<'_>; 2]) -> Option<u32> {
        let Some(number) = self.resume(connection) else {
            self.counters.refused_connections += 1;
            return None;
        };
        for (way, pieces) in waiting.iter().enumerate() {
            for (from, start, bytes) in pieces {
                let room = self.share.saturating_sub(self.connections.get(number).blocks());
                if room == 0 || self.blocks.available() == 0 {
                    self.counters.refused += 1;
                    continue;
                }
                let list = &mut self.connections.at(number).directions[way].waiting;
                self.blocks.insert(list, list.tail, *from, *start, bytes);
            }
        }
        self.connections.comes_to(number, Stage::Open);
        Some(number)
    }
}

impl<'a> Reader<'a> {
    /// Reads the bytes of [`Reassembler::pack`].
    pub(super) fn connection(&mut self, now: u64) -> Option<(Connection, [Waiting<'a>; 2])> {
        let mut connection = connection(self.take(CONNECTION)?, now)?;
        let mut waiting = [Vec::new(), Vec::new()];
        for (direction, waiting) in connection.directions.iter_mut().zip(&mut waiting) {
            direction.edge = self.number(8).filter(|edge| *edge == UNKNOWN || *edge < LIMIT)?;
            direction.offer = match self.number(1)? as u8 {
                u8::MAX => WindowScale::Unseen,
                0xfe => WindowScale::None,
                shift if shift <= MOST_SHIFT => WindowScale::Shift(shift),
                _ => return None,
            };
            direction.held = self.number(4)? as u32;
            if !direction.is_sound() {
                return None;
            }
            // A piece at the next byte does not wait, unless it came with the opening.
            let mut last = direction.next + u64::from(direction.held == 0);
            let pieces = self.number(4)?;
            if pieces > 0 && direction.phase != Phase::Open {
                return None;
            }
            for _ in 0..pieces {
                let mut piece = Reader(self.take(PIECE)?);
                let (from, start, len) = (piece.number(8)?, piece.number(8)?, piece.number(2)?);
                let sound = from <= start && start >= last && start < last + (1 << 31);
                if !sound || !(1..=BLOCK as u64).contains(&len) {
                    return None;
                }
                last = start + len;
                waiting.push((from, start, self.take(len as usize)?));
            }
        }
        Some((connection, waiting))
    }

    fn moved<K: Kept>(&mut self, now: u64, size: usize) -> Option<Moved<'a, K>> {
        let (connection, waiting) = self.connection(now)?;
        let kept = [self.kept()?, self.kept()?];
        let mut part = || {
            let mut part = Reader(self.take(PART)?);
            let (seen, offset, gap, len) =
                (part.number(4)?, part.number(8)?, part.number(8)?, part.number(4)?);
            let sound = len < size as u64 && seen <= len && gap < 1 << 62 && offset < 1 << 62;
            // Its time of waiting begins again.
            let part = Part { buffer: NONE, len: 0, seen: seen as u32, offset, gap, since: now };
            Some((part, self.take(sound.then_some(len as usize)?)?))
        };
        let parts = [part()?, part()?];
        Some(Moved { connection, waiting, parts, kept })
    }

    /// Reads the bytes of [`write_kept`].
    pub(super) fn kept<K: Kept>(&mut self) -> Option<K> {
        let len = usize::try_from(self.number(LENGTH)?).ok()?;
        K::unpack(self.take(len)?)
    }
}
