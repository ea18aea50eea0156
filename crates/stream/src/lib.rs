//! Byte streams (NetBricks, section 3.1): what a transport's segments say, in the order in which it was written.
//!
//! [`Reassembler`] is pure: segments and the time go in, bytes, gaps and ends come out. It keeps out-of-order bytes in
//! blocks that were there from the beginning, so that neither a packet nor an attacker makes it allocate.
//!
//! A segment counts where its receiver would take it by its flags, its number, and the windows that were seen. What a receiver knows
//! besides is not looked at: time stamps (RFC 7323, section 5), and whether the bytes were ever sent that a segment with bytes
//! acknowledges. A function that must not see what a receiver drops stands in the packets' path, where exactly what it saw goes on.
#![forbid(unsafe_code)]

mod acceptability;
mod blocks;
mod connection;
mod following;
mod hold_times;
mod initial_sequence;
mod inline_window;
mod kept;
mod memory;
mod migration;
mod operators;
mod packetize;
mod queue;
mod reader;
mod reassembler;
mod replace;
mod rewriter;
mod sack;
mod segment;
mod sequence_map;
mod settings;
mod transfer;
mod window;

pub use blocks::BLOCK;
pub use connection::Side;
pub(crate) use inline_window::InlineWindowParts;
pub use inline_window::{Fate, Held, InlineWindow, InlineWindowConfig, OverflowPolicy, Replacing};
pub use kept::{Keeping, Kept, WindowDecider, WindowObserver};
pub use operators::{ObservedWindows, Packetize, StreamOperator, StreamWorker, Windowed};
pub(crate) use packetize::ANSWER;
pub(crate) use packetize::PacketizerParts;
pub use packetize::{Emit, PacketizeCounters, Packetizer, Passage};
pub use reassembler::{Arrival, Counters, Reassembler};
pub use replace::{Replace, ReplaceError};
pub use rewriter::{Cut, Rewriter, Source};
pub use segment::{AdvertisedWindow, Protocol, Segment, Signature};
pub use sequence_map::Output;
pub use settings::{
    Full, LINGER, MidstreamPolicy, OPENING, Overlap, PacketizeConfig, StreamConfig, StreamError,
};
pub(crate) use window::WindowParts;
pub use window::{Why, Window, WindowConfig, WindowError, Windows};

use netbricks_core::packet::FlowKey;

/// Something that became known of one direction of a connection. What is known of a direction is told in the order of its
/// bytes, and nothing after its [`End`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The connection's number, below [`StreamConfig::flows`]: no other connection's until it ended in both directions.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// From whom to whom.
    pub flow: FlowKey,
    /// How many bytes of this direction came before, those in gaps included, and urgent ones not.
    pub offset: u64,
    /// The event.
    pub what: What<'a>,
}

/// Something that became known of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The next bytes; at least one.
    Bytes(&'a [u8]),
    /// So many bytes will never be known; at least one.
    Gap(u64),
    /// The next byte was urgent: Linux takes it out of the stream that an application reads, unless that asked for it in its place
    /// (`SO_OOBINLINE`).
    Urgent(u8),
    /// There will be nothing more.
    End(End),
}

/// Why a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Its sender had no more to say, and all of it was told, gaps included.
    Finished,
    /// The connection was reset, from either side. What waited behind a gap is not told: no receiver has seen it.
    Reset,
    /// Nothing was heard of the connection for [`StreamConfig::idle`].
    Idle,
    /// Its place or its memory was needed ([`Full`]).
    Evicted,
    /// The same addresses and ports opened another connection.
    Replaced,
    /// Another worker goes on with it.
    Moved,
    /// Its reassembler is taken down.
    Drained,
}

impl End {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Reset => "reset",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::Replaced => "replaced",
            Self::Moved => "moved",
            Self::Drained => "drained",
        }
    }
}
