//! Settings of a reassembler: how much it holds, for how long, and its policies when that is not enough.

use netbricks_core::tables::{MemoryError, TableError};

use super::blocks::BLOCK;

/// Whose bytes count where segments that overlap say different things. Bytes that were delivered stay delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// As Linux's out-of-order queue (`tcp_data_queue_ofo`) decides. Segments that follow each other without a gap lie
    /// there as one run, and of two runs the one that begins earlier counts where both have bytes: what is queued keeps
    /// all bytes of a run that begins at or before the newcomer, and loses those of runs that begin after it. Where both
    /// begin at the same byte the longer one counts, and the one that was there if it is no shorter. A segment that is
    /// in order counts before all that is queued.
    ///
    /// The end of a stream lies there as one more byte of its run, behind the others. So bytes that count where it is refute it.
    /// Of several ends the soonest is known; another one counts after it was refuted when it comes again.
    ///
    /// Linux joins segments to a run only as its buffers' memory allows; here that is always so. Where a segment follows one run
    /// and lies in another, or follows two, Linux may join it to either, as its tree happens to lie; here the one that begins last
    /// keeps what it has. And it joins what begins one byte behind an end to the run of that end; here it never does.
    #[default]
    Linux,
    /// The bytes that came first count; so an end stays one.
    First,
    /// The bytes that came last count; so those that come later where an end is refute it.
    Last,
}

/// The policy when an out-of-order segment finds no room, of its connection's share or of all; and what happens to a
/// new connection when there are as many as there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Full {
    /// The segment counts as lost; the new connection is not followed.
    Refuse,
    /// Its direction's oldest gap is given up: its user is told of it, and bytes behind it go out. The new connection
    /// takes the place of the one that was silent longest.
    #[default]
    SkipGap,
    /// A connection is ended: the segment's own where its own share is used up, else the one that was silent longest.
    Evict,
}

/// How a reassembler is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The most connections followed at a time; 1 or more.
    pub flows: usize,
    /// Bytes of memory that a connection's out-of-order segments may take, in whole blocks of [`BLOCK`]; one or more.
    pub flow_memory: usize,
    /// Bytes of memory that all out-of-order segments may take, in whole blocks; at least `flow_memory`.
    pub memory: usize,
    /// Nanoseconds of silence after which a connection is over; 1 or more.
    pub idle: u64,
    /// Whose bytes count where segments overlap.
    pub overlap: Overlap,
    /// The policy when there is no room.
    pub full: Full,
    /// Whether an acknowledgment of bytes that were never seen makes them a gap: they reached the receiver past the
    /// observer, which will not see them again. Not so for a function in the path that passes acknowledgments on.
    pub gaps_by_acknowledgment: bool,
    /// Seed of the connections' keyed hash; random in production, so that an attacker can't choose connections that collide.
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

/// Nanoseconds after which a connection is forgotten that both sides ended or one reset, if nothing more is heard of it: as
/// long as Linux keeps such a one itself (`TCP_TIMEWAIT_LEN`).
pub const LINGER: u64 = 60_000_000_000;

/// Nanoseconds of silence after which a connection is forgotten whose sides have not shaken hands.
pub const OPENING: u64 = 30_000_000_000;

/// The policy for packets whose connection is not rewritten: there was no place for it, its beginning was not seen, or its ends
/// sign what they send (RFC 2385, RFC 5925).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MidstreamPolicy {
    /// They go on unchanged.
    #[default]
    Pass,
    /// They are dropped: nothing goes on that the rewriter has not seen.
    Refuse,
}

/// How streams that are rewritten are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketizeConfig {
    /// The most connections at a time. Where there are as many, a new one takes the place of one that is over, else of one
    /// whose sides have not shaken hands; else it is passed on unchanged. One that moves here takes a place likewise; what
    /// becomes of it without one, [`Packetizer::take_where`](super::Packetizer::take_where) says.
    pub flows: usize,
    /// Bytes of memory that one direction may take for bytes that its receiver has not acknowledged. No larger window is
    /// let through than fits half of it, whatever becomes of its bytes.
    pub flow_memory: usize,
    /// Bytes of memory for all of them; and as much again for segments that are out of order. A direction that has bytes which
    /// are not acknowledged gets no more than is left for all others: what is beyond that counts as lost. So of n that
    /// acknowledge nothing each has one part of n + 1, and one is left. Bytes that waited for others get no more either: where that
    /// is too little for both, they are thrown away and count as lost, and those that they waited for go on.
    pub memory: usize,
    /// Replacements in bytes that are not acknowledged that are known one by one, of all connections. Of those a direction gets
    /// as large a part as `flow_memory` is of `memory`, and no more than is left for all others. What it has beyond that is
    /// no less correct, but counts as one with what is replaced before it (within [`BLOCK`] bytes as long as there are any
    /// left): its sender learns up to a block late how far it arrived.
    pub edits: usize,
    /// Nanoseconds of silence after which a connection is forgotten; no more than [`OPENING`] until its sides have shaken
    /// hands, and no more than [`LINGER`] when it is over.
    pub idle: u64,
    /// The policy for packets of other connections.
    pub midstream: MidstreamPolicy,
    /// Seed of the connections' keyed hash.
    pub seed: u64,
}

impl PacketizeConfig {
    /// As little as there can be.
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
    /// 1,024 connections with 1 MiB a direction, twice 32 MiB together, 65,536 replacements (one a block of memory), for an hour.
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

/// Why a reassembler could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The table of connections.
    #[error("connections: {0}")]
    Connections(#[from] TableError),
    /// A share that holds nothing.
    #[error("{flow_memory} bytes a connection are less than one block of {BLOCK}: give it more, or {BLOCK}")]
    FlowMemory {
        /// Bytes a connection.
        flow_memory: usize,
    },
    /// All have less than one may have.
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
    /// No time.
    #[error(
        "connections would be over after 0 ns of silence: give 1 or more, such as 120_000_000_000 (two minutes)"
    )]
    Idle,
    /// Memory for it can't be had.
    #[error("its memory {0}")]
    NoMemory(#[from] MemoryError),
}
