//! Byte streams (NetBricks, section 3.1): the content of a transport's segments, in the order in which it was
//! written.
//!
//! [`Reassembler`] is pure: segments and the time go in; bytes, gaps and ends come out. It keeps out-of-order
//! bytes in blocks that are allocated at the start. So neither a packet nor an attacker makes it allocate.
//!
//! A segment counts where its receiver would take it by its flags, its number, and the windows that were
//! seen. A receiver also checks time stamps (RFC 7323, section 5), and whether a segment acknowledges only
//! bytes that were sent. The reassembler does not check these. A function that must not see segments that the
//! receiver drops stands in the packets' path, and forwards exactly the bytes that it saw.
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

/// A new fact about one direction of a connection.
///
/// The deliveries of a direction come in the order of its bytes. Nothing comes after its [`End`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The connection's number, below [`StreamConfig::flows`]. No other connection has it until this one
    /// ended in both directions.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// The flow key from the sender to the receiver.
    pub flow: FlowKey,
    /// The number of earlier bytes of this direction: bytes in gaps count, urgent bytes do not.
    pub offset: u64,
    /// The event.
    pub what: What<'a>,
}

/// The event that a [`Delivery`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The next bytes; at least one.
    Bytes(&'a [u8]),
    /// This number of bytes will never be known; at least one.
    Gap(u64),
    /// The next byte was urgent.
    ///
    /// Linux takes it out of the stream that an application reads, unless the application asked to keep it in
    /// place (`SO_OOBINLINE`).
    Urgent(u8),
    /// Nothing more will come.
    End(End),
}

/// Why a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Its sender finished, and everything was delivered, gaps included.
    Finished,
    /// Either side reset the connection. Bytes that waited behind a gap are not delivered: no receiver has
    /// seen them.
    Reset,
    /// The connection was silent for [`StreamConfig::idle`].
    Idle,
    /// Its place or its memory was needed ([`Full`]).
    Evicted,
    /// The same addresses and ports opened another connection.
    Replaced,
    /// Another worker continues it.
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
