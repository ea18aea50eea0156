//! Moves rewritten streams to another worker with their connections.
//!
//! The bytes contain each connection's state and waiting bytes, its two sequence maps with their kept output,
//! and the rewriter's state.

use netbricks_core::packet::{FlowKey, checksum};

use super::{MidstreamPolicy, Packetizer};
use crate::connection::{Connection, Stage};
use crate::migration::Waiting;
use crate::reader::Reader;
use crate::sequence_map::MovedSequenceMap;
use crate::{Cut, End, LINGER, Rewriter, Side, Source};

/// Differs from the versions of a [`Reassembler`](crate::Reassembler) and of windows.
const VERSION: u16 = 8;

/// The kind of a connection, which comes first.
const LIVE: u8 = 0;
const RESET: u8 = 1;
const SILENT: u8 = 2;

/// Bytes of the length of a rewriter's state.
const LENGTH: usize = 4;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// A connection on its way. Its slices refer to the bytes that came.
enum Moved<'a> {
    Cut(FlowKey, Cut),
    Live(Box<Live<'a>>),
}

struct Live<'a> {
    connection: Connection,
    /// When its last segment was heard (ns).
    heard: u64,
    waiting: [Waiting<'a>; 2],
    maps: [MovedSequenceMap<'a>; 2],
    /// The rewriter's state of both directions.
    known: [&'a [u8]; 2],
}

impl<R: Rewriter> Packetizer<R> {
    /// Takes out the connections for whose canonical key `leaves` answers `true`.
    ///
    /// [`import`](netbricks_core::Declared::import) adds these bytes to other streams with a rewriter of the
    /// same kind. The connections continue there as if nothing had happened. Before anything else, the
    /// rewriter here learns that they [moved](End::Moved). The answer is empty for a rewriter that [cannot
    /// move](Rewriter::MOVES).
    ///
    /// A connection may find no place there, or no memory for its unacknowledged bytes or for the bytes that
    /// the rewriter holds. It then counts as [`homeless`](super::PacketizeCounters::homeless). If none of its
    /// bytes were changed, and its sender still has all bytes that are held back, its ends understand each
    /// other without the rewriter. Under [`MidstreamPolicy::Pass`] it then passes unchanged from then on.
    ///
    /// Any other such connection is cut, as by [`Cut::Reset`]: each end is reset when it sends a segment. The
    /// number of cut connections is limited to the maximum of connections; beyond that an old one is
    /// forgotten. Bytes that waited for missing ones and find no memory count as lost, since their sender
    /// still has them.
    pub fn take_where(&mut self, mut leaves: impl FnMut(FlowKey) -> bool) -> Vec<u8> {
        if !R::MOVES {
            return Vec::new();
        }
        let numbers: Vec<u32> =
            self.streams.numbers().filter(|number| leaves(self.streams.key(*number))).collect();
        let cut_connections = self.cut_connections.take_where(leaves);
        let mut bytes = Vec::new();
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(((numbers.len() + cut_connections.len()) as u32).to_be_bytes());
        for (flow, cut) in cut_connections {
            write_cut(flow, cut, &mut bytes);
        }
        for number in numbers {
            self.give(number, &mut bytes);
        }
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        bytes.extend(checksum::internet(&bytes).to_be_bytes());
        bytes
    }

    /// Appends a connection, which leaves this worker.
    fn give(&mut self, number: u32, to: &mut Vec<u8>) {
        let maps = &self.maps[number as usize];
        // No more output would have come of a direction that is incomplete.
        let incomplete = maps.iter().any(|map| map.incomplete).then_some(Cut::Reset);
        if let Some(cut) = maps.iter().find_map(|map| map.cut).or(incomplete) {
            write_cut(self.streams.key(number), cut, to);
            return self.set_aside(number, End::Moved, &mut Vec::new());
        }
        to.push(LIVE);
        self.streams.pack(number, to);
        to.extend(self.streams.last_heard(number).to_be_bytes());
        to.push(self.streams.stage(number) as u8);
        maps.iter().for_each(|map| map.write(&self.kept, &self.edits, to));
        self.set_aside(number, End::Moved, to);
    }

    /// Forgets a connection, and appends the rewriter's state of its directions, each behind its length.
    ///
    /// The rewriter is told of it later.
    fn set_aside(&mut self, number: u32, end: End, to: &mut Vec<u8>) {
        let now = self.streams.last_heard(number);
        for side in SIDES {
            let source = self.source(number, side, now);
            let (connection, way) = (number as usize, side as usize);
            let (map, memory) = (&mut self.maps[connection][way], &mut self.memories[connection][way]);
            let start = to.len();
            to.extend([0; LENGTH]);
            if map.rewrites && !map.over && map.cut.is_none() {
                self.rewriter.pack(&source, memory, to);
                self.gone.push((source, *memory, end));
            }
            let len = (to.len() - start - LENGTH) as u32;
            to[start..start + LENGTH].copy_from_slice(&len.to_be_bytes());
            *memory = R::Memory::default();
            map.clear(&mut self.kept, &mut self.edits);
        }
        self.streams.forget(number, end);
    }

    fn source(&self, number: u32, side: Side, now: u64) -> Source {
        Source { connection: number, side, flow: self.streams.flow(number, side), now }
    }

    /// Tells the rewriter of directions that ended when it could not be called.
    #[inline]
    pub(super) fn tell_of_ends(&mut self) {
        if !self.gone.is_empty() {
            for (source, memory, end) in self.gone.drain(..) {
                self.rewriter.left(&source, memory, end);
            }
        }
    }

    /// Adds connections that [`take_where`](Self::take_where) took out of other streams, at `now` (ns).
    pub(crate) fn put(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        if bytes.len() % 2 == 1 || checksum::internet(bytes) != 0 {
            return Err("the rewritten streams that moved are corrupt: their checksum is wrong".into());
        }
        let mut from = Reader(&bytes[..bytes.len().saturating_sub(2)]);
        let broken =
            || "the rewritten streams that moved end in the middle, or are none that can be".to_owned();
        match from.number(2).ok_or_else(broken)? as u16 {
            VERSION if R::MOVES => {}
            VERSION => return Err("rewritten streams moved, but the rewriter here takes none over".into()),
            found => {
                return Err(format!(
                    "rewritten streams that moved are of version {VERSION}, found version {found}"
                ));
            }
        }
        let count = from.number(4).ok_or_else(broken)?;
        // Everything is read before anything changes.
        let moved: Option<Vec<Moved<'_>>> = (0..count).map(|_| self.read(&mut from, now)).collect();
        let moved = moved.filter(|_| from.0.len() < 2).ok_or_else(broken)?;
        if moved.is_empty() {
            return Ok(());
        }
        for moved in moved {
            match moved {
                Moved::Cut(flow, cut) => self.remember(flow, cut, now),
                Moved::Live(live) => self.resume(&live, now),
            }
        }
        self.streams.connections.sort();
        self.rewriter.unpacked();
        Ok(())
    }

    fn read<'a>(&self, from: &mut Reader<'a>, now: u64) -> Option<Moved<'a>> {
        let cut = match from.byte()? {
            LIVE => {
                let (mut connection, waiting) = from.connection(now)?;
                let heard = from.number(8)?.min(now);
                let key = FlowKey::from_words(connection.key);
                connection.stage = match from.byte()? {
                    0 => Stage::Open,
                    1 => Stage::Opening,
                    2 => Stage::Over,
                    _ => return None,
                };
                let maps = [MovedSequenceMap::read(from)?, MovedSequenceMap::read(from)?];
                let mut known = [&[][..]; 2];
                for ((side, map), known) in SIDES.into_iter().zip(&maps).zip(&mut known) {
                    let len = from.number(LENGTH)?;
                    *known = from.take(usize::try_from(len).ok()?)?;
                    let sound = match map.is_rewritten() {
                        true => self.rewriter.accepts(side, map.held(), known),
                        false => known.is_empty(),
                    };
                    if !sound {
                        return None;
                    }
                }
                let is_key = key.canonical() == key && key.words() == connection.key;
                let live = Box::new(Live { connection, heard, waiting, maps, known });
                return is_key.then_some(Moved::Live(live));
            }
            RESET => Cut::Reset,
            SILENT => Cut::Silence,
            _ => return None,
        };
        let mut words = [0; 5];
        for word in &mut words {
            *word = from.number(8)?;
        }
        Some(Moved::Cut(FlowKey::from_words(words), cut))
    }

    /// Continues a connection, or makes sure that none of its segments are forwarded with wrong numbers.
    fn resume(&mut self, live: &Live<'_>, now: u64) {
        if self.goes_on(live, now) {
            return;
        }
        self.counters.homeless += 1;
        let understood = live.maps.iter().all(MovedSequenceMap::is_unaltered);
        let flow = FlowKey::from_words(live.connection.key);
        // A connection with this key that is already here continues: there is only one for each key.
        if !(understood && self.midstream == MidstreamPolicy::Pass) && self.streams.side(flow).is_none() {
            self.counters.cut += 1;
            self.remember(flow, Cut::Reset, now);
        }
    }

    fn goes_on(&mut self, live: &Live<'_>, now: u64) -> bool {
        let Live { connection, heard, waiting, maps, known } = live;
        let flow = FlowKey::from_words(connection.key);
        let [blocks, more] = maps.each_ref().map(MovedSequenceMap::needs);
        let has_room = blocks.max(more) <= self.share && blocks.saturating_add(more) <= self.kept.available();
        if !has_room || self.streams.side(flow).is_some() {
            return false;
        }
        // A new connection does the same.
        if self.streams.len() == self.streams.capacity()
            && let Some(number) = self.streams.expendable()
        {
            self.set_aside(number, End::Evicted, &mut Vec::new());
        }
        let Some(number) = self.streams.unpack(connection, waiting) else { return false };
        self.streams.connections.at(number).heard = *heard;
        self.streams.connections.comes_to(number, connection.stage);
        for (way, side) in SIDES.into_iter().enumerate() {
            let map = &maps[way];
            let source = self.source(number, side, now);
            let memory = match map.is_rewritten() {
                true => self.rewriter.unpack(&source, map.held(), known[way]),
                false => Some(R::Memory::default()),
            };
            let Some(memory) = memory else {
                // The state of the other direction goes with it, and no rewriter has to be told.
                let told = self.gone.len();
                self.set_aside(number, End::Moved, &mut Vec::new());
                self.gone.truncate(told);
                return false;
            };
            self.memories[number as usize][way] = memory;
            self.maps[number as usize][way] = map.settle(&mut self.kept, &mut self.edits);
        }
        true
    }

    /// Records that no segment of a connection without a place is forwarded.
    fn remember(&mut self, flow: FlowKey, cut: Cut, now: u64) {
        if self.streams.side(flow).is_none() {
            let idle = self.streams.config.idle;
            let idle = if cut == Cut::Reset { LINGER.min(idle) } else { idle };
            let most = self.streams.capacity() as u64;
            self.cut_connections.add(flow, cut, [most, idle, now], self.streams.config.seed);
        }
    }
}

fn write_cut(flow: FlowKey, cut: Cut, to: &mut Vec<u8>) {
    to.push(if cut == Cut::Silence { SILENT } else { RESET });
    flow.words().iter().for_each(|word| to.extend(word.to_be_bytes()));
}
