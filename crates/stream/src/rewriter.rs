//! Rewriters of streams: the trait that [`Replace`](super::Replace) and [`InlineWindow`](super::InlineWindow) implement.

use std::ops::Range;

use netbricks_core::packet::FlowKey;

use super::{End, Output, Side};

/// Whose bytes a rewriter is given, and when.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The connection's number: no other connection's until both its directions ended.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// From whom to whom.
    pub flow: FlowKey,
    /// The time (ns).
    pub now: u64,
}

/// How a connection is ended from the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends are sent a reset, and again whenever they send something all the same.
    Reset,
    /// Nothing of it goes on any more, and neither end is told.
    Silence,
}

/// Rewrites streams on their way.
pub trait Rewriter: 'static {
    /// State of one direction of a connection, kept between calls.
    type Memory: Copy + Default + 'static;
    /// Whether it may hold back more than a few bytes: their sender is then answered when it sends them again, so that it
    /// goes on to those that follow.
    const HOLDS: bool = false;
    /// Whether what it knows of a connection can go to another worker with it: [`pack`](Self::pack), [`accepts`](Self::accepts)
    /// and [`unpack`](Self::unpack) then say how. While it says no, a shuffle with its streams behind it refuses to move any.
    const MOVES: bool = false;
    /// Takes the next bytes of a direction and says what becomes of them. It may hold back bytes at their end whose fate is
    /// not known yet: it must know them again.
    fn rewrite(&mut self, source: &Source, memory: &mut Self::Memory, bytes: &[u8], output: &mut Output<'_>);
    /// Bytes that are held back are waited for: their sender sent them again and again, or they are [due](Self::is_due).
    /// Says what becomes of them, which is no more than [`most`](Self::most) says of no input.
    fn flush(&mut self, source: &Source, memory: &mut Self::Memory, output: &mut Output<'_>);
    /// The direction ended, and `memory` is forgotten after this. Where all of it was told, `output` takes what was held
    /// back, all of it; else there is none.
    fn end(&mut self, source: &Source, memory: &mut Self::Memory, end: End, output: Option<&mut Output<'_>>) {
        let _ = end;
        if let Some(output) = output {
            self.flush(source, memory, output);
        }
    }
    /// The most bytes that become of `input` bytes and those held back. Where there are more after all and no memory for them,
    /// the connection goes no further.
    fn most(&self, input: usize) -> usize;
    /// Whether it could hold back what it may have to of this direction's next bytes. If not, they count as lost.
    fn has_room(&self, _side: Side, _memory: &Self::Memory) -> bool {
        true
    }
    /// The number of a connection of which bytes were held back for longer than they may be at `now` (ns), if there is one.
    /// It is cut, as by [`Cut::Reset`]; both ends learn of that when they say something.
    fn overstays(&self, _now: u64) -> Option<u32> {
        None
    }
    /// Whether bytes that it holds back go on only when others follow them. Else their sender is left the last of them to send
    /// again, so that [`flush`](Self::flush) is called.
    fn waits(&self, _memory: &Self::Memory) -> bool {
        false
    }
    /// Whether bytes were held back for so long at `now` (ns) that [`flush`](Self::flush) is to be called with the next
    /// packet of their direction.
    fn is_due(&self, _memory: &Self::Memory, _now: u64) -> bool {
        false
    }

    /// The direction moves to another worker. Appends what has to be known there to `to`, of `memory` and of what it holds itself,
    /// bytes that are held back among them, and gives back the memory of that. [`end`](Self::end) is not called of it, but
    /// [`left`](Self::left).
    ///
    /// Also called of a direction that finds no room after all or gives its place to one that came: what it says of that is
    /// thrown away.
    fn pack(&mut self, source: &Source, memory: &mut Self::Memory, to: &mut Vec<u8>) {
        let _ = (source, memory, to);
    }
    /// A direction that was packed is here no more: it [moved](End::Moved), or another one [came](End::Evicted) to its place.
    /// Called before the next packet, with what [`pack`](Self::pack) left in its memory; the connection's number may already be
    /// another one's, of which nothing was rewritten yet.
    fn left(&mut self, source: &Source, memory: Self::Memory, end: End) {
        let _ = (source, memory, end);
    }
    /// Whether [`pack`](Self::pack) of some worker may have written these bytes of a direction `side` of which the bytes at these
    /// places are held back. All directions that came are asked about before any is taken over, and none of them is if one is
    /// answered with no: whatever the bytes are, it must not panic.
    fn accepts(&self, side: Side, held: Range<u64>, bytes: &[u8]) -> bool {
        let _ = side;
        held.is_empty() && bytes.is_empty()
    }
    /// Goes on with a direction that came, of which [`accepts`](Self::accepts) said yes: its memory. `None` where there is no room
    /// for it, or it is of a rewriter that was configured otherwise: its connection is then
    /// [cut](super::Packetizer::take_where).
    fn unpack(&mut self, source: &Source, held: Range<u64>, bytes: &[u8]) -> Option<Self::Memory> {
        let _ = (source, held, bytes);
        None
    }
    /// All directions that came are in their places: for what is kept in order of time.
    fn unpacked(&mut self) {}
}
