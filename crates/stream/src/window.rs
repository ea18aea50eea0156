//! Windows over byte streams (NetBricks, section 3.1): a user function gets `size` bytes of a direction at a time, each
//! time `slide` bytes further on.

use std::fmt;

use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{HugeArray, MemoryError};

use super::kept::{Kept, WindowObserver};
use super::memory::{filled, room};
use super::migration::is_moved;
use super::{
    BLOCK, Delivery, End, Full, Overlap, Protocol, Reassembler, Segment, Side, StreamConfig, StreamError,
    What,
};
use netbricks_core::shuffle::{self, ShuffleKey};
use netbricks_core::state::{Declared, Mobility};

/// How windows are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Bytes of a window; 1 or more.
    pub size: usize,
    /// Bytes from one window's beginning to the next's; 1 to `size`. Less than `size`: windows share bytes.
    pub slide: usize,
    /// Bytes of memory for windows that are being filled, of all connections; at least `size`. A direction takes `size`
    /// of it only while it has a part of a window. 0: none is kept, and bytes are shown as soon as they come, as
    /// [`Why::NoRoom`] where they don't fill a window.
    pub memory: usize,
    /// How the streams are followed. [`StreamConfig::idle`] is the windows' timeout: bytes that waited for so long for their window to
    /// be full are shown as [`Why::Due`] when the connection says something next, and a connection that was silent for so long is
    /// over, and its windows are called with what there is.
    pub streams: StreamConfig,
}

impl WindowConfig {
    /// As little as there can be.
    pub(crate) const SMALLEST: Self = Self {
        size: 1,
        slide: 1,
        memory: 1,
        streams: StreamConfig {
            flows: 1,
            flow_memory: BLOCK,
            memory: BLOCK,
            idle: 1,
            overlap: Overlap::Linux,
            full: Full::Refuse,
            gaps_by_acknowledgment: true,
            seed: 0,
        },
    };

    /// Windows of `size` bytes, every `slide` bytes, over connections that end after `timeout` ns of silence; for the
    /// rest as [`StreamConfig::default`], with 16 MiB for windows that are being filled.
    pub fn new(size: usize, slide: usize, timeout: u64) -> Self {
        let streams = StreamConfig { idle: timeout, ..StreamConfig::default() };
        Self { size, slide, memory: 16 << 20, streams }
    }
}

/// Why windows could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// A window of nothing.
    #[error("its size is 0 bytes: give it 1 or more")]
    Size,
    /// A window that never moves.
    #[error("it slides by 0 bytes and would never move on: give 1 to {size}, its size")]
    Still {
        /// Bytes of a window.
        size: usize,
    },
    /// Bytes between windows would be in none.
    #[error(
        "its size is {size} bytes but it slides by {slide}: the bytes between would be in no window; slide by {size} at most"
    )]
    Slide {
        /// Bytes of a window.
        size: usize,
        /// Bytes from one to the next.
        slide: usize,
    },
    /// No room for one window.
    #[error("{memory} bytes of memory do not hold one window of {size}: give {size} or more")]
    Memory {
        /// Bytes of memory.
        memory: usize,
        /// Bytes of a window.
        size: usize,
    },
    /// More windows than can be numbered.
    #[error("{memory} bytes hold more windows of {size} than can be numbered: give less")]
    TooMuch {
        /// Bytes of memory.
        memory: usize,
        /// Bytes of a window.
        size: usize,
    },
    /// The memory of a direction is too little for its windows.
    #[error(
        "eight windows, each as long as replacements may make it, are {needed} bytes, but a direction may take only \
         {flow_memory}: raise `flow_memory`, or lower `size` or `longer`"
    )]
    Share {
        /// Bytes that a direction takes.
        needed: usize,
        /// Bytes that it may.
        flow_memory: usize,
    },
    /// The streams below.
    #[error(transparent)]
    Streams(#[from] StreamError),
    /// Memory that can't be had.
    #[error("memory for windows {0}")]
    NoMemory(#[from] MemoryError),
}

/// Why a window is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is full.
    Full,
    /// A gap follows. The next window tells of it.
    Gap,
    /// There is no memory to keep it until it is full.
    NoRoom,
    /// Its first bytes that were in no window before have waited for the timeout. The next window begins where this one does, and has
    /// its bytes once more ([`seen`](Window::seen)). In the packets' path ([`InlineWindow`](super::InlineWindow)) also: their sender waits for them
    /// to go on.
    Due,
    /// The direction ended. Nothing follows, and there may be nothing in it.
    End(End),
}

/// The next bytes of one direction of a connection, as a user function sees them.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The connection's number, below [`StreamConfig::flows`]: no other connection's until both directions ended. What a user function
    /// keeps by it stays where a connection moves: let [`window_keeping`](crate::StreamOperator::window_keeping) keep it.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// From whom to whom.
    pub flow: FlowKey,
    /// Its first byte's place in the direction, from 0.
    pub offset: u64,
    /// Its bytes: [`WindowConfig::size`], and fewer where [`why`](Self::why) is not [`Why::Full`].
    pub bytes: &'a [u8],
    /// How many of its first bytes were in the window before: it slides by less than its size, or was shown before it was full.
    pub seen: usize,
    /// So many bytes right before it will never be known; 0 for none.
    pub gap: u64,
    /// Why it is shown.
    pub why: Why,
}

impl<'a> Window<'a> {
    /// The bytes that were in no window before.
    pub fn fresh(&self) -> &'a [u8] {
        &self.bytes[self.seen..]
    }
}

pub(super) const NONE: u32 = u32::MAX;

/// The part of its next window that a direction has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where its bytes are; [`NONE`] while it has none.
    pub(super) buffer: u32,
    pub(super) len: u32,
    /// How many of them were in the window before.
    pub(super) seen: u32,
    /// The first one's place in the direction.
    pub(super) offset: u64,
    /// Bytes that are missing before the first one.
    pub(super) gap: u64,
    /// When the first one came that was in no window yet (ns), while there is such a one.
    pub(super) since: u64,
}

impl Part {
    const NOTHING: Self = Self { buffer: NONE, len: 0, seen: 0, offset: 0, gap: 0, since: 0 };

    /// Whether it has bytes that were in no window yet.
    fn is_fresh(&self) -> bool {
        self.len > self.seen
    }
}

/// Memory for parts of windows.
pub(super) struct Buffers {
    bytes: HugeArray<u8>,
    size: usize,
    pub(super) free: Vec<u32>,
}

impl Buffers {
    pub(super) fn of(&mut self, buffer: u32) -> &mut [u8] {
        let first = buffer as usize * self.size;
        &mut self.bytes[first..first + self.size]
    }
    /// The first bytes of one; nothing of none.
    pub(super) fn get(&self, buffer: u32, len: usize) -> &[u8] {
        match buffer {
            NONE => &[],
            _ => &self.bytes[buffer as usize * self.size..][..len],
        }
    }
    /// Gives back the memory of a part.
    fn release(&mut self, part: &mut Part) {
        if part.buffer != NONE {
            self.free.push(part.buffer);
        }
        (part.buffer, part.len, part.seen) = (NONE, 0, 0);
    }
    pub(super) fn in_use(&self) -> usize {
        self.bytes.len() / self.size - self.free.len()
    }
}

/// Streams, cut into windows, and the function that sees them: the declared state of a function with
/// [`window`](crate::StreamOperator::window).
pub struct Windows<P: Protocol, F: WindowObserver> {
    pub(super) streams: Reassembler<P>,
    pub(super) cutter: Cutter,
    /// State that the function keeps, by connection. Of directions that are none's it is the default.
    pub(super) kept: Vec<[F::Kept; 2]>,
    f: F,
    /// Ends of which the function has not been told, with what it kept of them: those who have connections move may not
    /// call it.
    moved: Vec<(u32, Side, FlowKey, u64, F::Kept)>,
}

/// All that windows need but the function that sees them, of which `K` is what it keeps of a direction.
pub(crate) struct WindowParts<P: Protocol, K>(Reassembler<P>, Cutter, Vec<[K; 2]>);

pub(super) struct Cutter {
    pub(super) size: usize,
    slide: usize,
    /// How long bytes wait for their window to be full (ns).
    timeout: u64,
    /// The time of what is being taken (ns).
    now: u64,
    pub(super) buffers: Buffers,
    pub(super) parts: Vec<[Part; 2]>,
}

/// Memory for parts of windows, `most` of them at most.
pub(super) fn buffers(size: usize, slide: usize, memory: usize, most: usize) -> Result<Buffers, WindowError> {
    match (size, slide) {
        (0, _) => return Err(WindowError::Size),
        (_, 0) => return Err(WindowError::Still { size }),
        _ if slide > size => return Err(WindowError::Slide { size, slide }),
        _ => {}
    }
    // A part's length is 32 bits, as its buffer's number.
    if memory / size >= NONE as usize || size >= NONE as usize {
        return Err(WindowError::TooMuch { memory, size });
    }
    let count = most.min(memory / size) as u32;
    let bytes = HugeArray::zeroed(count as usize * size)?;
    let mut free = room(count as usize)?;
    free.extend((0..count).rev());
    Ok(Buffers { bytes, size, free })
}

impl<P: Protocol, K: Kept> WindowParts<P, K> {
    pub(crate) fn new(config: WindowConfig) -> Result<Self, WindowError> {
        let WindowConfig { size, slide, memory, streams } = config;
        if size > memory && memory > 0 && size > 0 {
            return Err(WindowError::Memory { memory, size });
        }
        // No more than there are directions.
        let buffers = buffers(size, slide, memory, streams.flows.saturating_mul(2))?;
        let timeout = streams.idle;
        let streams = Reassembler::new(streams)?;
        let parts = filled([Part::NOTHING; 2], streams.capacity())?;
        // Before there is even one of them, which may be large.
        let mut kept = room(streams.capacity())?;
        kept.resize_with(streams.capacity(), Default::default);
        Ok(Self(streams, Cutter { size, slide, timeout, now: 0, buffers, parts }, kept))
    }
}

impl<P: Protocol, F: FnMut(&Window<'_>)> Windows<P, F> {
    /// Windows that `f` sees.
    ///
    /// # Errors
    /// [`WindowError`]
    pub fn new(config: WindowConfig, f: F) -> Result<Self, WindowError> {
        WindowParts::new(config).map(|room| Self::over(room, f))
    }
}

impl<P: Protocol, F: WindowObserver> Windows<P, F> {
    pub(crate) fn over(WindowParts(streams, cutter, kept): WindowParts<P, F::Kept>, f: F) -> Self {
        Self { streams, cutter, kept, f, moved: Vec::new() }
    }

    /// The streams below.
    pub fn streams(&self) -> &Reassembler<P> {
        &self.streams
    }
    /// Windows that have memory while they are being filled.
    pub fn filling(&self) -> usize {
        self.cutter.buffers.in_use()
    }

    /// Takes a segment of `flow` that arrived at `now` (ns).
    pub fn push(&mut self, flow: FlowKey, segment: Segment<'_>, now: u64) {
        self.tell_of_moves();
        let Self { streams, cutter, kept, f, .. } = self;
        cutter.now = now;
        streams.push(flow, segment, now, |delivery| cutter.take(delivery, f, kept));
        for number in streams.heard_at(now) {
            for side in [Side::Client, Side::Server] {
                if cutter.is_due(number, side) {
                    cutter.show_due(number, side, streams.flow(number, side), f, kept);
                }
            }
        }
    }
    /// Ends connections that were silent for too long at `now` (ns), `most` at most.
    pub fn expire(&mut self, now: u64, most: usize) -> usize {
        self.tell_of_moves();
        let Self { streams, cutter, kept, f, .. } = self;
        streams.expire(now, most, |delivery| cutter.take(delivery, f, kept))
    }
    /// Tells of connections that moved away.
    #[inline]
    fn tell_of_moves(&mut self) {
        if !self.moved.is_empty() {
            let why = Why::End(End::Moved);
            for (connection, side, flow, offset, mut kept) in self.moved.drain(..) {
                let window = Window { connection, side, flow, offset, bytes: &[], seen: 0, gap: 0, why };
                self.f.see(&window, &mut kept);
            }
        }
    }
    /// Ends all connections, since nothing more will come.
    pub fn finish(&mut self) {
        self.tell_of_moves();
        let Self { streams, cutter, kept, f, .. } = self;
        streams.finish(|delivery| cutter.take(delivery, f, kept));
    }
}

impl<P: Protocol, F: WindowObserver> Windows<P, F> {
    /// Forgets a connection that goes on elsewhere.
    pub(super) fn give_away(&mut self, number: u32) {
        for side in [Side::Client, Side::Server] {
            let kept = std::mem::take(&mut self.kept[number as usize][side as usize]);
            if let Some(offset) = self.streams.progress(number, side) {
                // All of them may move at once.
                match self.moved.try_reserve(1) {
                    Ok(()) => self.moved.push((number, side, self.streams.flow(number, side), offset, kept)),
                    Err(_) => self.streams.counters.untold += 1,
                }
            }
            let part = &mut self.cutter.parts[number as usize][side as usize];
            self.cutter.buffers.release(part);
            *part = Part::NOTHING;
        }
        self.streams.forget(number, End::Moved);
    }
}

impl Cutter {
    fn take<F: WindowObserver>(&mut self, delivery: Delivery<'_>, f: &mut F, kept: &mut [[F::Kept; 2]]) {
        let (connection, side) = (delivery.connection as usize, delivery.side as usize);
        let kept = &mut kept[connection][side];
        let mut part = self.parts[connection][side];
        match delivery.what {
            What::Bytes(bytes) => {
                let waiting = part.is_fresh().then_some(part.offset);
                self.bytes(&delivery, &mut part, bytes, f, kept);
                // It is another window, or this one's bytes were all in one before.
                if waiting != Some(part.offset) {
                    part.since = self.now;
                }
            }
            // No part of what the receiver reads.
            What::Urgent(_) => {}
            What::Gap(missing) => {
                if part.is_fresh() {
                    self.show_part(&delivery, &part, Why::Gap, f, kept);
                    part.gap = 0;
                }
                self.release(&mut part);
                part.gap += missing;
            }
            What::End(end) => {
                if !part.is_fresh() {
                    // What is there was shown: only the end, and a gap before it, is new.
                    self.release(&mut part);
                    part.offset = delivery.offset;
                }
                self.show_part(&delivery, &part, Why::End(end), f, kept);
                self.release(&mut part);
                part = Part::NOTHING;
                *kept = F::Kept::default();
            }
        }
        self.parts[connection][side] = part;
    }

    fn bytes<F: WindowObserver>(
        &mut self,
        delivery: &Delivery<'_>,
        part: &mut Part,
        mut bytes: &[u8],
        f: &mut F,
        kept: &mut F::Kept,
    ) {
        let (size, slide) = (self.size, self.slide);
        if part.len == 0 {
            part.offset = delivery.offset;
        }
        // First what there is a part of: filled up, it is shown and slides.
        while part.len > 0 && !bytes.is_empty() {
            let len = part.len as usize;
            let more = bytes.len().min(size - len);
            self.buffers.of(part.buffer)[len..len + more].copy_from_slice(&bytes[..more]);
            bytes = &bytes[more..];
            part.len += more as u32;
            if part.len as usize == size {
                self.show_part(delivery, part, Why::Full, f, kept);
                self.buffers.of(part.buffer).copy_within(slide.., 0);
                part.offset += slide as u64;
                part.len -= slide as u32;
                (part.seen, part.gap) = (part.len, 0);
                if part.len == 0 {
                    self.release(part);
                }
            }
        }
        // Whole windows are shown where they lie.
        while bytes.len() >= size {
            f.see(&shown(delivery, part, &bytes[..size], Why::Full), kept);
            bytes = &bytes[slide..];
            part.offset += slide as u64;
            (part.seen, part.gap) = ((size - slide) as u32, 0);
        }
        if bytes.is_empty() {
            return;
        }
        if let Some(buffer) = self.buffers.free.pop() {
            self.buffers.of(buffer)[..bytes.len()].copy_from_slice(bytes);
            (part.buffer, part.len) = (buffer, bytes.len() as u32);
            return;
        }
        if bytes.len() > part.seen as usize {
            f.see(&shown(delivery, part, bytes, Why::NoRoom), kept);
        }
        (part.seen, part.gap) = (0, 0);
    }

    /// Whether a direction has bytes that have waited for their window for too long.
    #[inline]
    fn is_due(&self, number: u32, side: Side) -> bool {
        let part = &self.parts[number as usize][side as usize];
        part.is_fresh() && self.now.saturating_sub(part.since) >= self.timeout
    }

    /// Shows what a direction has.
    #[cold]
    fn show_due<F: WindowObserver>(
        &mut self,
        connection: u32,
        side: Side,
        flow: FlowKey,
        f: &mut F,
        kept: &mut [[F::Kept; 2]],
    ) {
        let part = &mut self.parts[connection as usize][side as usize];
        let Part { buffer, len, seen, offset, gap, .. } = *part;
        // What follows begins at the same place.
        (part.seen, part.gap) = (len, 0);
        let bytes = self.buffers.get(buffer, len as usize);
        let window =
            Window { connection, side, flow, offset, bytes, seen: seen as usize, gap, why: Why::Due };
        f.see(&window, &mut kept[connection as usize][side as usize]);
    }

    /// Shows the bytes that a part has.
    fn show_part<F: WindowObserver>(
        &self,
        delivery: &Delivery<'_>,
        part: &Part,
        why: Why,
        f: &mut F,
        kept: &mut F::Kept,
    ) {
        f.see(&shown(delivery, part, self.buffers.get(part.buffer, part.len as usize), why), kept);
    }

    fn release(&mut self, part: &mut Part) {
        self.buffers.release(part);
    }
}

fn shown<'a>(delivery: &Delivery<'_>, part: &Part, bytes: &'a [u8], why: Why) -> Window<'a> {
    let Part { seen, offset, gap, .. } = *part;
    let Delivery { connection, side, flow, .. } = *delivery;
    Window { connection, side, flow, offset, bytes, seen: seen as usize, gap, why }
}

impl<P: Protocol, F: WindowObserver + 'static> Declared for Windows<P, F> {
    fn export(&self) -> Vec<u8> {
        self.streams.encode()
    }
    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        if is_moved(bytes) {
            return self.put(bytes, now);
        }
        self.streams.decode(bytes, now).map(|_| ())
    }
    fn mobility(&self, by: ShuffleKey) -> Mobility {
        // By any other key the two directions may part.
        if by == ShuffleKey::SymmetricFlow { Mobility::Moves } else { Mobility::Bound }
    }
    fn take_part(&mut self, part: &shuffle::Part, _: usize) -> (Vec<u8>, Option<usize>) {
        (self.take_where(|flow| part.holds(flow)), None)
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.streams.len() as u64, self.streams.capacity() as u64)
    }
}

impl<P: Protocol, F: WindowObserver> fmt::Debug for Windows<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Windows")
            .field("size", &self.cutter.size)
            .field("slide", &self.cutter.slide)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}
