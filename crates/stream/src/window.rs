//! Windows over byte streams: a user function gets `size` bytes of a direction at a time (NetBricks, section
//! 3.1).
//!
//! Each window begins `slide` bytes behind the one before it.

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
use netbricks_core::state::{Declared, Mobility, StateTerms, Succession};

/// Configuration of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    /// Bytes of a window; 1 or more.
    pub size: usize,
    /// Bytes from the beginning of a window to the beginning of the next; 1 to `size`.
    ///
    /// Below `size`, windows share bytes.
    pub slide: usize,
    /// Bytes of memory for windows that are being filled, of all connections; at least `size`, or 0.
    ///
    /// A direction takes `size` bytes of it only while it has a part of a window. With 0, no parts are kept.
    /// Bytes are then shown as soon as they come; those that do not fill a window are shown as
    /// [`Why::NoRoom`].
    pub memory: usize,
    /// Configuration of the streams. [`StreamConfig::idle`] is also the windows' timeout.
    ///
    /// Bytes that waited so long for their window to be full are shown as [`Why::Due`] when the connection's
    /// next segment comes. A connection that was silent for so long is over, and its last bytes are shown.
    pub streams: StreamConfig,
}

impl WindowConfig {
    /// The smallest configuration.
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

    /// Windows of `size` bytes, every `slide` bytes, over connections that end after `timeout` ns of silence.
    ///
    /// There are 16 MiB for windows that are being filled. The rest is [`StreamConfig::default`].
    pub fn new(size: usize, slide: usize, timeout: u64) -> Self {
        let streams = StreamConfig { idle: timeout, ..StreamConfig::default() };
        Self { size, slide, memory: 16 << 20, streams }
    }
}

/// The reason why windows could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// A window of 0 bytes.
    #[error("its size is 0 bytes: give it 1 or more")]
    Size,
    /// A window that never moves.
    #[error("it slides by 0 bytes and would never move on: give 1 to {size}, its size")]
    Still {
        /// Bytes of a window.
        size: usize,
    },
    /// Windows with bytes between them that would be in no window.
    #[error(
        "its size is {size} bytes but it slides by {slide}: the bytes between would be in no window; slide by {size} at most"
    )]
    Slide {
        /// Bytes of a window.
        size: usize,
        /// Bytes from one window to the next.
        slide: usize,
    },
    /// Less memory than one window needs.
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
        /// Bytes that a direction needs.
        needed: usize,
        /// Bytes that it may take.
        flow_memory: usize,
    },
    /// The streams below could not be made.
    #[error(transparent)]
    Streams(#[from] StreamError),
    /// The memory could not be allocated.
    #[error("memory for windows {0}")]
    NoMemory(#[from] MemoryError),
}

/// The reason why a window is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is full.
    Full,
    /// A gap follows. The next window states its length.
    Gap,
    /// There is no memory to keep it until it is full.
    NoRoom,
    /// Its first new bytes have waited for the timeout.
    ///
    /// The next window begins at the same byte, and contains its bytes again ([`seen`](Window::seen)). The
    /// same is true in the packets' path ([`InlineWindow`](super::InlineWindow)). There the sender waits for
    /// the bytes to be forwarded.
    Due,
    /// The direction ended. No window follows, and this one may be empty.
    End(End),
}

/// The next bytes of one direction of a connection, as a user function sees them.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The connection's number, below [`StreamConfig::flows`]. No other connection has it until both
    /// directions ended.
    ///
    /// State that a user function keeps by this number does not move with the connection. Use
    /// [`window_keeping`](crate::StreamOperator::window_keeping) for state that does.
    pub connection: u32,
    /// Which of its directions.
    pub side: Side,
    /// The flow key from the sender to the receiver.
    pub flow: FlowKey,
    /// The position of its first byte in the direction, from 0.
    pub offset: u64,
    /// Its bytes: [`WindowConfig::size`], or fewer where [`why`](Self::why) is not [`Why::Full`].
    pub bytes: &'a [u8],
    /// The number of its first bytes that were in the window before.
    ///
    /// There are such bytes where the window slides by less than its size, or was shown before it was full.
    pub seen: usize,
    /// The number of bytes right before it that will never be known; 0 for none.
    pub gap: u64,
    /// The reason why it is shown.
    pub why: Why,
}

impl<'a> Window<'a> {
    /// The bytes that were in no earlier window.
    pub fn fresh(&self) -> &'a [u8] {
        &self.bytes[self.seen..]
    }
}

pub(super) const NONE: u32 = u32::MAX;

/// The part of its next window that a direction has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The number of its buffer; [`NONE`] while it has no bytes.
    pub(super) buffer: u32,
    pub(super) len: u32,
    /// How many of its bytes were in the window before.
    pub(super) seen: u32,
    /// The position of its first byte in the direction.
    pub(super) offset: u64,
    /// Bytes that are missing before the first one.
    pub(super) gap: u64,
    /// When its first new byte came (ns), if it has one.
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
    /// The first `len` bytes of a buffer; none for [`NONE`].
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

/// Streams, cut into windows, and the function that sees them.
///
/// This is the declared state of a function with [`window`](crate::StreamOperator::window).
pub struct Windows<P: Protocol, F: WindowObserver> {
    pub(super) streams: Reassembler<P>,
    pub(super) cutter: Cutter,
    /// State that the function keeps, by connection. It is the default for directions that no connection
    /// uses.
    pub(super) kept: Vec<[F::Kept; 2]>,
    f: F,
    /// Ends that the function was not told of yet, with the state that it kept.
    ///
    /// The code that migrates connections may not call the function.
    moved: Vec<(u32, Side, FlowKey, u64, F::Kept)>,
}

/// All parts of windows except the function that sees them. `K` is its state of a direction.
pub(crate) struct WindowParts<P: Protocol, K>(Reassembler<P>, Cutter, Vec<[K; 2]>);

pub(super) struct Cutter {
    pub(super) size: usize,
    slide: usize,
    /// How long bytes wait for their window to be full (ns).
    timeout: u64,
    /// The time of the current segment (ns).
    now: u64,
    pub(super) buffers: Buffers,
    pub(super) parts: Vec<[Part; 2]>,
}

/// Memory for at most `most` parts of windows.
pub(super) fn buffers(size: usize, slide: usize, memory: usize, most: usize) -> Result<Buffers, WindowError> {
    match (size, slide) {
        (0, _) => return Err(WindowError::Size),
        (_, 0) => return Err(WindowError::Still { size }),
        _ if slide > size => return Err(WindowError::Slide { size, slide }),
        _ => {}
    }
    // A part's length and its buffer's number have 32 bits.
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
        // No more parts than there are directions.
        let buffers = buffers(size, slide, memory, streams.flows.saturating_mul(2))?;
        let timeout = streams.idle;
        let streams = Reassembler::new(streams)?;
        let parts = filled([Part::NOTHING; 2], streams.capacity())?;
        // The memory is reserved before the first state is made, because one may be large.
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
    /// The number of windows that are being filled and have memory.
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
    /// Ends at most `most` connections that were silent for too long at `now` (ns). Answers how many it
    /// ended.
    pub fn expire(&mut self, now: u64, most: usize) -> usize {
        self.tell_of_moves();
        let Self { streams, cutter, kept, f, .. } = self;
        streams.expire(now, most, |delivery| cutter.take(delivery, f, kept))
    }
    /// Tells the function of connections that moved away.
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
    /// Ends all connections. Call it when no more segments come.
    pub fn finish(&mut self) {
        self.tell_of_moves();
        let Self { streams, cutter, kept, f, .. } = self;
        streams.finish(|delivery| cutter.take(delivery, f, kept));
    }
}

impl<P: Protocol, F: WindowObserver> Windows<P, F> {
    /// Forgets a connection that continues on another worker.
    pub(super) fn give_away(&mut self, number: u32) {
        for side in [Side::Client, Side::Server] {
            let kept = std::mem::take(&mut self.kept[number as usize][side as usize]);
            if let Some(offset) = self.streams.progress(number, side) {
                // All connections may move at once.
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
                // Either it is another window, or all bytes of this one were in an earlier window.
                if waiting != Some(part.offset) {
                    part.since = self.now;
                }
            }
            // The urgent byte is not part of the stream that the receiver reads.
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
                    // The part's bytes were shown: only the end, and a gap before it, is new.
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
        // First the part that is there: when it is full, it is shown and slides.
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
        // Whole windows are shown in place.
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

    /// Whether a direction has bytes that have waited too long for their window.
    #[inline]
    fn is_due(&self, number: u32, side: Side) -> bool {
        let part = &self.parts[number as usize][side as usize];
        part.is_fresh() && self.now.saturating_sub(part.since) >= self.timeout
    }

    /// Shows the bytes of a direction that are due.
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
        // The next window begins at the same place.
        (part.seen, part.gap) = (len, 0);
        let bytes = self.buffers.get(buffer, len as usize);
        let window =
            Window { connection, side, flow, offset, bytes, seen: seen as usize, gap, why: Why::Due };
        f.see(&window, &mut kept[connection as usize][side as usize]);
    }

    /// Shows the bytes of a part.
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
    fn succession(&self, before: &StateTerms) -> Succession {
        match before.is_of::<Self>() {
            true => Succession::copied_into(self.occupancy().1, before, "streams have no other way"),
            false => Succession::unlike(),
        }
    }
    fn mobility(&self, by: ShuffleKey) -> Mobility {
        // With any other key the two directions may be on different workers.
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
