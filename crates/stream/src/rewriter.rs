//! Rewriters of streams: the trait that [`Replace`](super::Replace) and [`InlineWindow`](super::InlineWindow)
//! implement.

use std::ops::Range;

use netbricks_core::packet::FlowKey;

use super::{End, Output, Side};

/// The origin of the bytes that a rewriter is given, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The connection's number. No other connection has it until both directions ended.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// The flow key from the sender to the receiver.
    pub flow: FlowKey,
    /// The time (ns).
    pub now: u64,
}

/// A way to end a connection from the middle of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends are sent a reset, and another one whenever they still send a segment.
    Reset,
    /// Nothing more of it is forwarded, and neither end is told.
    Silence,
}

/// Rewrites streams in the packets' path.
pub trait Rewriter: 'static {
    /// State of one direction of a connection, kept between calls.
    type Memory: Copy + Default + 'static;
    /// Whether it may hold back more than a few bytes.
    ///
    /// Their sender is then answered when it repeats them, so that it goes on to the following bytes.
    const HOLDS: bool = false;
    /// Whether its state of a connection can move to another worker.
    ///
    /// [`pack`](Self::pack), [`accepts`](Self::accepts) and [`unpack`](Self::unpack) then do so. If it is
    /// `false`, a shuffle with its streams behind it refuses to migrate any connections.
    const MOVES: bool = false;
    /// Takes the next bytes of a direction, and decides their output.
    ///
    /// It may hold back bytes at their end that it cannot decide on yet. It must remember these itself.
    fn rewrite(&mut self, source: &Source, memory: &mut Self::Memory, bytes: &[u8], output: &mut Output<'_>);
    /// Decides on the bytes that are held back.
    ///
    /// It is called when their sender repeated them several times, or when they are [due](Self::is_due). The
    /// output is no more than [`most`](Self::most) of no input.
    fn flush(&mut self, source: &Source, memory: &mut Self::Memory, output: &mut Output<'_>);
    /// The direction ended, and `memory` is forgotten after this.
    ///
    /// `output` is present where the whole direction was delivered, and then takes all bytes that were held
    /// back. Else it is `None`.
    fn end(&mut self, source: &Source, memory: &mut Self::Memory, end: End, output: Option<&mut Output<'_>>) {
        let _ = end;
        if let Some(output) = output {
            self.flush(source, memory, output);
        }
    }
    /// The most bytes of output for `input` bytes and the bytes held back.
    ///
    /// Where the output is longer all the same and there is no memory for it, the connection goes no further.
    fn most(&self, input: usize) -> usize;
    /// Whether it has room for the bytes of this direction that it may have to hold back next.
    ///
    /// If it returns `false`, they count as lost.
    fn has_room(&self, _side: Side, _memory: &Self::Memory) -> bool {
        true
    }
    /// The number of a connection whose bytes were held back too long at `now` (ns), if there is one.
    ///
    /// It is cut, as by [`Cut::Reset`]. Both ends learn of that when they next send a segment.
    fn overstays(&self, _now: u64) -> Option<u32> {
        None
    }
    /// Whether held bytes are forwarded only when others follow them.
    ///
    /// If it returns `false`, the last held byte is not acknowledged. Then the sender repeats it, and
    /// [`flush`](Self::flush) is called.
    fn waits(&self, _memory: &Self::Memory) -> bool {
        false
    }
    /// Whether bytes were held back so long at `now` (ns) that they are due.
    ///
    /// [`flush`](Self::flush) is then called with the next packet of their direction.
    fn is_due(&self, _memory: &Self::Memory, _now: u64) -> bool {
        false
    }

    /// The direction moves to another worker: appends its state to `to`, and gives back its memory.
    ///
    /// The state comes from `memory` and from the rewriter itself, bytes that are held back included. Not
    /// [`end`](Self::end) but [`left`](Self::left) is called for the direction afterwards.
    ///
    /// This is also called for a direction that finds no room after all, or that gives its place to one that
    /// came. The appended bytes are then discarded.
    fn pack(&mut self, source: &Source, memory: &mut Self::Memory, to: &mut Vec<u8>) {
        let _ = (source, memory, to);
    }
    /// A direction that was packed is no longer here.
    ///
    /// It [moved](End::Moved), or another one [came](End::Evicted) to its place. This is called before the
    /// next packet, with the memory as [`pack`](Self::pack) left it. The connection's number may already
    /// belong to another connection, of which nothing was rewritten yet.
    fn left(&mut self, source: &Source, memory: Self::Memory, end: End) {
        let _ = (source, memory, end);
    }
    /// Whether [`pack`](Self::pack) of some worker may have written `bytes` for a direction of `side`.
    ///
    /// `held` are the positions of the bytes that are held back. All directions that came are checked before
    /// any is taken over. If one is not accepted, none is taken over. It must not panic on any bytes.
    fn accepts(&self, side: Side, held: Range<u64>, bytes: &[u8]) -> bool {
        let _ = side;
        held.is_empty() && bytes.is_empty()
    }
    /// Continues a direction that came and that [`accepts`](Self::accepts) accepted. Answers its memory.
    ///
    /// The answer is `None` where there is no room for it, or where it belongs to a rewriter with another
    /// configuration. Its connection is then [cut](super::Packetizer::take_where).
    fn unpack(&mut self, source: &Source, held: Range<u64>, bytes: &[u8]) -> Option<Self::Memory> {
        let _ = (source, held, bytes);
        None
    }
    /// Called when all directions that came are in their places, for rewriters that keep them in order of
    /// time.
    fn unpacked(&mut self) {}
}
