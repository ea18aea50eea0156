//! Settings of a reassembler: how much it holds, for how long, and its policies when that is not enough.

use netbricks_core::tables::{MemoryError, TableError};

use super::blocks::BLOCK;

/// The policy for segments that overlap with different bytes. Bytes that were delivered stay delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// As Linux's out-of-order queue (`tcp_data_queue_ofo`) decides.
    ///
    /// In that queue, segments that follow each other without a gap form one run. Where two runs overlap, the
    /// run that begins earlier counts. So the queue keeps all bytes of a run that begins at or before the new
    /// segment. It loses the bytes of runs that begin after the new segment. Where both begin at the same
    /// byte, the longer one counts; at equal length the queued one counts. A segment that is in order counts
    /// before all that is queued.
    ///
    /// In that queue, the end of a stream is one more byte of its run, behind the other bytes. So bytes that
    /// count at that position refute the end. Of several ends the soonest one is known. Another end counts
    /// only when it comes again after the known one was refuted.
    ///
    /// Linux joins segments to a run only as its buffers' memory allows; here they are always joined. A
    /// segment may follow one run and lie in another, or follow two runs. Linux may then join it to either
    /// run, depending on the shape of its tree. Here the run that begins last keeps its bytes. Linux also
    /// joins a segment that begins one byte behind an end to the run of that end; here it is never joined.
    #[default]
    Linux,
    /// The bytes that came first count. So a known end stays the end.
    First,
    /// The bytes that came last count. So later bytes at the position of an end refute it.
    Last,
}

/// The policy when memory or places for connections run out.
///
/// It applies to an out-of-order segment that finds no room in its connection's share or in the total. It
/// also applies to a new connection when there are already as many as allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Full {
    /// The segment counts as lost. The new connection is not followed.
    Refuse,
    /// The oldest gap of the segment's direction is given up.
    ///
    /// The user is told of the gap, and the bytes behind it are delivered. A new connection takes the place
    /// of the connection that was silent longest.
    #[default]
    SkipGap,
    /// A connection is ended.
    ///
    /// It is the segment's own connection where its share is used up, else the connection that was silent
    /// longest.
    Evict,
}

/// Configuration of a reassembler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The most connections followed at a time; 1 or more.
    pub flows: usize,
    /// Bytes of memory that a connection's out-of-order segments may take, in whole blocks of [`BLOCK`]; one
    /// or more.
    pub flow_memory: usize,
    /// Bytes of memory that all out-of-order segments may take, in whole blocks; at least `flow_memory`.
    pub memory: usize,
    /// Nanoseconds of silence after which a connection is over; 1 or more.
    pub idle: u64,
    /// The policy for segments that overlap with different bytes.
    pub overlap: Overlap,
    /// The policy when there is no room.
    pub full: Full,
    /// Whether an acknowledgment of bytes that were never seen makes them a gap.
    ///
    /// Such bytes reached the receiver by a way that the observer does not see, and will not come again. Set
    /// this to `false` for a function in the path that forwards acknowledgments.
    pub gaps_by_acknowledgment: bool,
    /// Seed of the connections' keyed hash; random in production, so that an attacker can't choose
    /// connections that collide.
    pub seed: u64,
}

impl Default for StreamConfig {
    /// 16,384 connections with 256 KiB each, 16 MiB together, for two minutes.
    fn default() -> Self {
        Self {
            flows: 16_384,
            flow_memory: 256 << 10,
            memory: 16 << 20,
            idle: 120_000_000_000,
            overlap: Overlap::default(),
            full: Full::default(),
            gaps_by_acknowledgment: true,
            seed: 0,
        }
    }
}

/// Nanoseconds after which a connection is forgotten that both sides ended or one side reset, if it stays
/// silent.
///
/// Linux keeps such a connection for the same time (`TCP_TIMEWAIT_LEN`).
pub const LINGER: u64 = 60_000_000_000;

/// Nanoseconds of silence after which a connection is forgotten whose handshake is not complete.
pub const OPENING: u64 = 30_000_000_000;

/// The policy for packets of a connection that is not rewritten.
///
/// A connection is not rewritten where there was no place for it, its beginning was not seen, or its ends
/// sign their segments (RFC 2385, RFC 5925).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MidstreamPolicy {
    /// They are forwarded unchanged.
    #[default]
    Pass,
    /// They are dropped: nothing is forwarded that the rewriter has not seen.
    Refuse,
}

/// Configuration for streams that are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketizeConfig {
    /// The most connections at a time.
    ///
    /// When all places are taken, a new connection takes the place of one that is over, else of one whose
    /// handshake is not complete. Else its packets are forwarded unchanged. A connection that migrates here
    /// takes a place in the same way. [`Packetizer::take_where`](super::Packetizer::take_where) documents the
    /// case without a place.
    pub flows: usize,
    /// Bytes of memory that one direction may take for bytes that its receiver has not acknowledged.
    ///
    /// Advertised windows are limited to half of it, for output of any length.
    pub flow_memory: usize,
    /// Bytes of memory for all unacknowledged bytes, and the same again for out-of-order segments.
    ///
    /// A direction with unacknowledged bytes gets no more than is left for all other directions. Bytes beyond
    /// that count as lost. So n directions that acknowledge nothing each have one part of n + 1, and one part
    /// is left.
    ///
    /// Bytes that waited for missing ones get no more either. Where the memory is too small for both, the
    /// bytes that waited are discarded and count as lost. The bytes that were missing are forwarded.
    pub memory: usize,
    /// Replacements in unacknowledged bytes that are known one by one, over all connections.
    ///
    /// A direction gets the same part of them as `flow_memory` is of `memory`, and no more than is left for
    /// all other directions. Replacements beyond that are just as correct. But each is merged with the
    /// replacement before it (within [`BLOCK`] bytes as long as any are left). The sender then learns up to a
    /// block late how far its bytes arrived.
    pub edits: usize,
    /// Nanoseconds of silence after which a connection is forgotten.
    ///
    /// At most [`OPENING`] applies until the handshake is complete, and at most [`LINGER`] after the
    /// connection is over.
    pub idle: u64,
    /// The policy for packets of other connections.
    pub midstream: MidstreamPolicy,
    /// Seed of the connections' keyed hash.
    pub seed: u64,
}

impl PacketizeConfig {
    /// The smallest configuration.
    pub(crate) const SMALLEST: Self = Self {
        flows: 1,
        flow_memory: BLOCK,
        memory: BLOCK,
        edits: 1,
        idle: 1,
        midstream: MidstreamPolicy::Pass,
        seed: 0,
    };
}

impl Default for PacketizeConfig {
    /// 1,024 connections with 1 MiB a direction and twice 32 MiB together, for an hour.
    ///
    /// It allows 65,536 replacements (one a block of memory).
    fn default() -> Self {
        Self {
            flows: 1_024,
            flow_memory: 1 << 20,
            memory: 32 << 20,
            edits: 65_536,
            idle: 3_600_000_000_000,
            midstream: MidstreamPolicy::default(),
            seed: 0,
        }
    }
}

/// The reason why a reassembler could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The table of connections.
    #[error("connections: {0}")]
    Connections(#[from] TableError),
    /// A share that is less than one block.
    #[error("{flow_memory} bytes a connection are less than one block of {BLOCK}: give it more, or {BLOCK}")]
    FlowMemory {
        /// Bytes a connection.
        flow_memory: usize,
    },
    /// The memory for all connections is less than the share of one.
    #[error(
        "{memory} bytes for all connections are less than the {flow_memory} that one of them may take: raise the first \
         or lower the second"
    )]
    Memory {
        /// Bytes for all.
        memory: usize,
        /// Bytes for one.
        flow_memory: usize,
    },
    /// More blocks than can be numbered.
    #[error("{memory} bytes for out-of-order segments are more than can be numbered: give at most {most}")]
    TooMuch {
        /// Bytes for all.
        memory: usize,
        /// Bytes possible.
        most: usize,
    },
    /// An idle time of 0.
    #[error(
        "connections would be over after 0 ns of silence: give 1 or more, such as 120_000_000_000 (two minutes)"
    )]
    Idle,
    /// The memory could not be allocated.
    #[error("its memory {0}")]
    NoMemory(#[from] MemoryError),
}
