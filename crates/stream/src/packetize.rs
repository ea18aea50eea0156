//! Streams that are rewritten in the packets' path (NetBricks, section 3.1): the output has its own sequence
//! numbers.
//!
//! Each direction of a connection has a [sequence map](super::sequence_map). The rewriter's output is kept
//! until the receiver has acknowledged it. So a retransmission is answered with the same bytes, even if the
//! rewriter would now make others. Acknowledgments and windows are translated back, [selective ones](sack)
//! too.

mod acknowledge;
mod classify;
mod cut;
mod cut_connections;
mod emit;
mod migration;
mod opening;
mod out_of_window;
mod plan;
mod receive;
mod retransmit;

use netbricks_core::packet::tcp::TcpRef;
use netbricks_core::packet::tcp_options::LONGEST;
use netbricks_core::packet::{FlowKey, Tcp};

use super::blocks::{BLOCK, Blocks};
use super::memory::filled;
use super::rewriter::{Cut, Rewriter, Source};
use super::sack;
use super::sequence_map::{Edits, SequenceMap};
use super::{
    Arrival, End, Full, LINGER, MidstreamPolicy, OPENING, PacketizeConfig, Reassembler, Side, StreamConfig,
    StreamError,
};

use cut_connections::CutConnections;
pub(crate) use retransmit::ANSWER;

/// The most overdue connections that a new connection ends.
const EXPIRED_BY_NEW: usize = 2;

/// A packet to be sent in the place of one that came: its headers with these numbers, and these bytes.
#[derive(Debug)]
pub struct Emit<'a> {
    /// Sequence number.
    pub number: u32,
    /// Acknowledgment number; counts where the ACK flag is set.
    pub acknowledgment: u32,
    /// Flags, from CWR to FIN.
    pub flags: u8,
    /// Window, as it stands in the header.
    pub window: u16,
    /// Its options, a multiple of 4 bytes.
    pub options: &'a [u8],
    /// The number of bytes that it carries.
    pub len: usize,
    /// Whether it goes back to the sender of the packet that came, in the name of the other end.
    pub back: bool,
    kept: Option<(&'a Blocks, &'a SequenceMap, u64)>,
}

impl Emit<'_> {
    /// Writes its bytes; `to` has [`len`](Self::len) places.
    pub fn write(&self, to: &mut [u8]) {
        if let Some((blocks, map, from)) = self.kept {
            map.read(blocks, from, to);
        }
    }
}

/// The outcome of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It is forwarded unchanged: its connection is not rewritten.
    Unchanged,
    /// Others went in its place, or none did.
    Replaced,
    /// There is no memory for its output. It counts as lost, and will be sent again.
    NoRoom,
    /// It is dropped. Resets went out, if the kind of cut asks for them.
    ///
    /// Its connection was cut, or is not rewritten while [`MidstreamPolicy::Refuse`] applies.
    Refused,
}

/// Counters of a packetizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketizeCounters {
    /// Replacements.
    pub replaced: u64,
    /// Bytes of the kept output that were sent again.
    pub resent: u64,
    /// Packets that found no room.
    pub no_room: u64,
    /// Bytes that waited for missing ones, and were discarded because there was room only for the missing
    /// ones.
    ///
    /// They count as lost. No acknowledgment number covered them, so their sender sends them again.
    pub thrown_away: u64,
    /// Packets of connections that are not rewritten.
    ///
    /// Their beginning was not seen, there were too many connections, or their ends sign their segments.
    pub unchanged: u64,
    /// Connections that were cut, by the rewriter or because they found no room on the worker to which they
    /// moved.
    pub cut: u64,
    /// Packets that were dropped.
    ///
    /// Their connection was cut or is not rewritten, or they are signed and their connection is not.
    pub refused: u64,
    /// Connections that came from another worker and found no room here.
    pub homeless: u64,
}

/// Connections that are rewritten.
pub struct Packetizer<R: Rewriter> {
    streams: Reassembler<Tcp>,
    maps: Vec<[SequenceMap; 2]>,
    memories: Vec<[R::Memory; 2]>,
    kept: Blocks,
    edits: Edits,
    share: usize,
    /// Bytes of input whose output has room even if most of them come out of order.
    ///
    /// Advertised windows are limited to it, so that one loss does not lead to many.
    room: u64,
    midstream: MidstreamPolicy,
    rewriter: R,
    counters: PacketizeCounters,
    /// Directions that ended without the rewriter being told: the code that migrates connections may not call
    /// it.
    gone: Vec<(Source, R::Memory, End)>,
    /// Connections that are cut because they found no room when they moved here.
    cut_connections: CutConnections,
}

/// All parts of a packetizer except its rewriter, whose state of a direction is `M`.
pub(crate) struct PacketizerParts<M> {
    config: PacketizeConfig,
    streams: Reassembler<Tcp>,
    maps: Vec<[SequenceMap; 2]>,
    memories: Vec<[M; 2]>,
    kept: Blocks,
    edits: Edits,
}

impl<M: Copy + Default> PacketizerParts<M> {
    pub(crate) fn new(config: PacketizeConfig) -> Result<Self, StreamError> {
        let PacketizeConfig { flows, flow_memory, memory, edits, idle, seed, .. } = config;
        let mut streams = Reassembler::new(StreamConfig {
            flows,
            flow_memory,
            memory,
            idle,
            seed,
            full: Full::Refuse,
            gaps_by_acknowledgment: false,
            ..StreamConfig::default()
        })?;
        streams.forget_sooner(OPENING, LINGER);
        // The same part of all replacements as of the memory.
        let part = (edits as u128 * flow_memory as u128 / memory as u128) as usize;
        Ok(Self {
            config,
            streams,
            maps: filled([SequenceMap::default(); 2], flows)?,
            memories: filled([M::default(); 2], flows)?,
            kept: Blocks::new(memory / BLOCK)?,
            edits: Edits::new(edits, flows.saturating_mul(2), part)?,
        })
    }
}

impl<R: Rewriter> Packetizer<R> {
    /// A packetizer without connections.
    ///
    /// # Errors
    /// [`StreamError`], as of a [`Reassembler`] with these bounds.
    pub fn new(config: PacketizeConfig, rewriter: R) -> Result<Self, StreamError> {
        PacketizerParts::new(config).map(|workings| Self::over(workings, rewriter))
    }

    pub(crate) fn over(workings: PacketizerParts<R::Memory>, rewriter: R) -> Self {
        let PacketizerParts { config, streams, maps, memories, kept, edits } = workings;
        let PacketizeConfig { flow_memory, midstream, .. } = config;
        let half = flow_memory / 2;
        let mut room = half;
        while room > 0 && rewriter.most(room) > half {
            room -= room.div_ceil(16);
        }
        Self {
            streams,
            maps,
            memories,
            kept,
            edits,
            share: flow_memory / BLOCK,
            // A quarter is left, because segments may end anywhere.
            room: (room as u64 / 4 * 3).max(1),
            midstream,
            rewriter,
            counters: PacketizeCounters::default(),
            gone: Vec::new(),
            cut_connections: CutConnections::default(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> PacketizeCounters {
        self.counters
    }
    /// The number of connections, and its maximum.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.streams.len(), self.streams.capacity())
    }
    /// Bytes of memory that unacknowledged and out-of-order bytes take.
    pub fn memory(&self) -> usize {
        self.kept.used() as usize * BLOCK + self.streams.memory().0
    }

    /// The rewriter.
    pub fn rewriter(&self) -> &R {
        &self.rewriter
    }

    /// Forgets at most `most` connections that were silent for too long at `now` (ns). Answers how many.
    ///
    /// It also cuts at most `most` connections whose bytes are held back for too long.
    pub fn expire(&mut self, now: u64, most: usize) -> usize {
        self.tell_of_ends();
        self.cut_connections.expire(now, most);
        for _ in 0..most {
            let Some(number) = self.rewriter.overstays(now) else { break };
            self.counters.cut += 1;
            self.close(number, Cut::Reset);
        }
        for ended in 0..most {
            let Some(number) = self.streams.overdue(now) else { return ended };
            self.forget(number, End::Idle, now);
        }
        most
    }

    /// Forgets all connections. Call it when no more segments come.
    pub fn finish(&mut self) {
        self.tell_of_ends();
        while let Some(number) = self.streams.oldest() {
            self.forget(number, End::Drained, self.streams.last_heard(number));
        }
    }

    fn forget(&mut self, number: u32, end: End, now: u64) {
        self.clear(number, end, now);
        self.streams.forget(number, end);
    }

    /// Clears the state of a connection's directions.
    fn clear(&mut self, number: u32, end: End, now: u64) {
        for side in [Side::Client, Side::Server] {
            let source = Source { connection: number, side, flow: self.streams.flow(number, side), now };
            let (connection, way) = (number as usize, side as usize);
            let (map, memory) = (&mut self.maps[connection][way], &mut self.memories[connection][way]);
            conclude(&mut self.rewriter, &source, map, memory, end);
            map.clear(&mut self.kept, &mut self.edits);
        }
    }

    /// Whether packets of `flow` must not be forwarded unchanged: its streams are rewritten, or its
    /// connection is cut or refused.
    pub fn takes(&self, flow: FlowKey) -> bool {
        let maps = self.streams.side(flow).map(|(number, _)| &self.maps[number as usize]);
        self.midstream == MidstreamPolicy::Refuse
            || self.cut_connections.holds(flow)
            || maps.is_some_and(|maps| maps.iter().all(|map| map.rewrites || map.cut.is_some()))
    }

    /// Takes a segment of `flow` that arrived at `now` (ns), and sends segments in its place, in order.
    ///
    /// `send` answers whether it could send a segment. A segment that it could not send goes out with the
    /// next packets of its direction. So do segments beyond the few that one packet may produce.
    ///
    /// There are four steps: find the part of the segment that counts (`classify`, `receive`), translate its
    /// acknowledgment, plan the output (`plan`), and send it.
    pub fn push(
        &mut self,
        flow: FlowKey,
        header: TcpRef<'_>,
        payload: &[u8],
        now: u64,
        mut send: impl FnMut(&Emit<'_>) -> bool,
    ) -> Passage {
        self.tell_of_ends();
        let segment = match self.classify(flow, header, payload, now, &mut send) {
            Ok(segment) => segment,
            Err(passage) => return passage,
        };
        let received = match self.receive(flow, header, segment, now, &mut send) {
            Ok(received) => received,
            Err(passage) => return passage,
        };
        let mut room = [0; LONGEST];
        let reply = self.acknowledge(&received, header, &mut room);
        self.acknowledge_held(&received, header, &mut send);
        if received.aborts {
            self.emit_reset(&received, header, &reply, &mut send);
        } else {
            let plan = self.plan(&received, header, &reply);
            self.emit(&received, header, &reply, plan, &mut send);
        }
        Passage::Replaced
    }
}

/// Tells a direction's rewriter of its end, where not all of the direction was delivered.
fn conclude<R: Rewriter>(
    rewriter: &mut R,
    source: &Source,
    map: &mut SequenceMap,
    memory: &mut R::Memory,
    end: End,
) {
    if map.rewrites && !map.over {
        rewriter.end(source, memory, end, None);
        map.over = true;
    }
    *memory = R::Memory::default();
}

/// The most blocks that this many more bytes take.
fn blocks_of(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK) + 1
}

/// Whether a direction may have this many more bytes.
fn fits(bytes: usize, map: &SequenceMap, share: usize, kept: &Blocks) -> bool {
    let blocks = blocks_of(bytes);
    blocks <= kept.available() && map.kept.blocks as usize + blocks <= share
}

impl<R: Rewriter> std::fmt::Debug for Packetizer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packetizer")
            .field("streams", &self.streams)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
