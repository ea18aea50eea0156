//! Windows in the packets' path: bytes of a window are forwarded only after the user function allowed it.
//!
//! They are NetBricks, section 3.1. An [`InlineWindow`] is a [`Rewriter`], so the packetizer handles numbers,
//! acknowledgments and retransmissions. Of each direction it holds the bytes that are not decided, and
//! nothing else. The held bytes are the window.

mod migration;

use std::fmt;
use std::ops::Range;

use super::hold_times::HoldTimes;
use super::kept::WindowDecider;
use super::rewriter::{Cut, Rewriter, Source};
use super::window::{Buffers, NONE, Window, WindowError, buffers};
use super::{End, Output, PacketizeConfig, Side, Why};

/// Configuration of windows in the packets' path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineWindowConfig {
    /// Bytes of a window; 1 or more.
    ///
    /// Held bytes are not acknowledged, and a sender waits after as many bytes as it may send at once (ten
    /// segments at first, RFC 6928). A larger window fills only as the sender repeats bytes.
    pub size: usize,
    /// Bytes that are forwarded when a full window passes; 1 to `size`.
    ///
    /// If it is less than `size`, the rest is in the next window too.
    pub slide: usize,
    /// The most nanoseconds for which bytes are held before they are shown in a window that is not full.
    ///
    /// They are then shown with the next packet of their direction, at the latest when their sender repeats
    /// them. With 0 they are shown as soon as they come.
    pub timeout: u64,
    /// The only direction that is shown and held; `None` for both.
    ///
    /// The other direction is forwarded as it comes, also when no memory is left.
    pub only: Option<Side>,
    /// The most nanoseconds for which a direction may hold bytes while none of them is forwarded.
    ///
    /// Then its connection is cut, as by [`Cut::Reset`]. So a silent sender does not take memory from others.
    pub longest: u64,
    /// Bytes of memory for held bytes of all connections; at least `size`.
    ///
    /// A direction takes `size` bytes of it while it holds any bytes.
    pub memory: usize,
    /// The policy when that memory is full.
    pub overflow: OverflowPolicy,
    /// The largest ratio of a replacement's length to the length of the bytes that it replaces; 1 or more.
    pub longer: usize,
    /// Configuration of the packetizer. [`PacketizeConfig::flow_memory`] is at least eight times `size` times
    /// `longer`.
    pub packets: PacketizeConfig,
}

/// The policy for bytes that have to be held when there is no memory for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// Packets of directions that hold nothing yet count as lost, and are sent again. No undecided byte is
    /// forwarded.
    #[default]
    Refuse,
    /// They are shown at once, as [`Why::NoRoom`]. They are forwarded unless the user function cuts the
    /// connection.
    Show,
}

impl InlineWindowConfig {
    /// The smallest configuration.
    pub(crate) const SMALLEST: Self = Self {
        size: 1,
        slide: 1,
        timeout: 0,
        only: None,
        longest: u64::MAX,
        memory: 1,
        overflow: OverflowPolicy::Refuse,
        longer: 1,
        packets: PacketizeConfig::SMALLEST,
    };

    /// Windows of `size` bytes every `slide` bytes, shown after `timeout` ns, in both directions.
    ///
    /// There are 16 MiB for held bytes, without a limit on the time. Replacements may be four times as long
    /// as the bytes that they replace. The rest is [`PacketizeConfig::default`].
    pub fn new(size: usize, slide: usize, timeout: u64) -> Self {
        Self {
            size,
            slide,
            timeout,
            only: None,
            longest: u64::MAX,
            memory: 16 << 20,
            overflow: OverflowPolicy::default(),
            longer: 4,
            packets: PacketizeConfig::default(),
        }
    }
}

/// The decision on a window's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They are forwarded: the first [`InlineWindowConfig::slide`] of a [full](Why::Full) window, else all of
    /// them.
    Pass,
    /// They stay, and are shown again with the bytes that follow.
    ///
    /// Where nothing can follow, since the window is full or its direction ended, they pass.
    Hold,
    /// They are not forwarded, and neither is any other segment of their connection.
    Cut(Cut),
}

/// Replaces bytes of a window in the packets' path.
pub struct Replacing<'a, 'o> {
    bytes: &'a [u8],
    /// The number of bytes that were forwarded.
    done: usize,
    longer: usize,
    output: Option<&'a mut Output<'o>>,
}

impl Replacing<'_, '_> {
    /// Replaces these bytes of the window by `by`.
    ///
    /// The bytes before them are forwarded too, with every [`Fate`] of the window's rest. Answers `false`
    /// and changes nothing where the range is empty, does not lie in the window, or does not lie behind the
    /// previous one. It does the same where `by` is longer than [`InlineWindowConfig::longer`] allows.
    #[must_use]
    pub fn replace(&mut self, range: Range<usize>, by: &[u8]) -> bool {
        let Some(input) = range.end.checked_sub(range.start) else { return false };
        let lies = range.start >= self.done && range.end <= self.bytes.len() && input > 0;
        let may = by.len() <= input.saturating_mul(self.longer);
        let Some(output) = self.output.as_mut().filter(|_| lies && may) else { return false };
        output.pass(&self.bytes[self.done..range.start]);
        output.replace(input, by);
        self.done = range.end;
        true
    }
}

impl fmt::Debug for Replacing<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacing").field("done", &self.done).finish_non_exhaustive()
    }
}

/// The held bytes of a direction, and the state that its decider [keeps](super::Kept).
#[derive(Clone, Copy, Debug)]
pub struct Held<K = ()> {
    /// The number of its buffer; none while no bytes are held.
    buffer: u32,
    len: u32,
    /// The number of its first bytes that were shown.
    seen: u32,
    /// The position of its first byte in the direction.
    offset: u64,
    /// When it began to wait to be shown (ns).
    since: u64,
    /// Whether the function was asked about it and wants more bytes.
    waits: bool,
    kept: K,
}

impl<K: Default> Default for Held<K> {
    fn default() -> Self {
        Self { buffer: NONE, len: 0, seen: 0, offset: 0, since: 0, waits: false, kept: K::default() }
    }
}

/// The rewriter that asks a user function about a stream's bytes, window by window.
///
/// ```
/// use netbricks_core::packet::{Ip, Link, Tcp};
/// use netbricks_stream::{Cut, Fate, InlineWindowConfig, Side, StreamOperator};
/// use netbricks_core::{Edge, Function, Input, Operator, Worker};
///
/// /// Cuts connections whose client says `quit` in the first place.
/// fn polite(input: Input, worker: &Worker) -> impl Function {
///     input
///         .parse::<Link>().or(Edge::OUT)
///         .parse::<Ip>().or(Edge::OUT)
///         .parse::<Tcp>().or(Edge::OUT)
///         .window_in_path(worker, "streams", InlineWindowConfig::new(64, 64, 0), |window, _| {
///             match (window.side, window.offset) {
///                 (Side::Client, 0) if window.bytes.starts_with(b"quit") => Fate::Cut(Cut::Reset),
///                 // Not known yet.
///                 (Side::Client, 0) if b"quit".starts_with(window.bytes) => Fate::Hold,
///                 _ => Fate::Pass,
///             }
///         })
///         .done()
/// }
/// # let _ = polite;
/// ```
pub struct InlineWindow<F> {
    config: InlineWindowConfig,
    buffers: Buffers,
    hold_times: HoldTimes,
    f: F,
}

/// All parts of an inline window except the user function.
pub(crate) struct InlineWindowParts(InlineWindowConfig, Buffers, HoldTimes);

impl InlineWindowParts {
    pub(crate) fn new(config: InlineWindowConfig) -> Result<Self, WindowError> {
        let InlineWindowConfig { size, slide, memory, longer, packets, .. } = config;
        if size > memory && size > 0 {
            return Err(WindowError::Memory { memory, size });
        }
        let needed = size.saturating_mul(longer.max(1)).saturating_mul(SHARE);
        let buffers = buffers(size, slide, memory, packets.flows.saturating_mul(2))?;
        if needed > packets.flow_memory && config != InlineWindowConfig::SMALLEST {
            return Err(WindowError::Share { needed, flow_memory: packets.flow_memory });
        }
        let hold_times = HoldTimes::new(buffers.free.len())?;
        Ok(Self(config, buffers, hold_times))
    }
}

/// The number of windows that fit the memory of a direction.
///
/// So a sender whose bytes fill windows still has a TCP window to send in.
const SHARE: usize = 8;

impl<F> InlineWindow<F> {
    pub(crate) fn over(InlineWindowParts(config, buffers, hold_times): InlineWindowParts, f: F) -> Self {
        Self { config, buffers, hold_times, f }
    }
    /// The number of directions that hold bytes.
    pub fn holding(&self) -> usize {
        self.buffers.in_use()
    }

    fn release<K>(&mut self, held: &mut Held<K>) {
        if held.buffer != NONE {
            self.hold_times.end(held.buffer);
            self.buffers.free.push(held.buffer);
        }
        held.offset += u64::from(held.len);
        (held.buffer, held.len, held.seen, held.since, held.waits) = (NONE, 0, 0, 0, false);
    }
}

impl<F> InlineWindow<F>
where
    F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static,
{
    /// An inline window that asks `f`.
    ///
    /// # Errors
    /// [`WindowError`]
    pub fn new(config: InlineWindowConfig, f: F) -> Result<Self, WindowError> {
        InlineWindowParts::new(config).map(|post| Self::over(post, f))
    }
}

impl<F: WindowDecider> InlineWindow<F> {
    /// Takes bytes while none are held. Bytes that can be shown in place are not copied.
    ///
    /// Answers the bytes that are left: none once the rest is held.
    fn in_place<'b>(
        &mut self,
        source: &Source,
        held: &mut Held<F::Kept>,
        bytes: &'b [u8],
        output: &mut Output<'_>,
    ) -> &'b [u8] {
        let Self { config, buffers, hold_times, f } = self;
        let whole = bytes.len() >= config.size;
        let fresh = bytes.len() > held.seen as usize;
        let (why, shown) = match buffers.free.last() {
            _ if whole => (Why::Full, config.size),
            _ if config.timeout == 0 && fresh => (Why::Due, bytes.len()),
            None => (Why::NoRoom, bytes.len()),
            Some(_) => {
                // The free buffer that was used last.
                held.buffer = buffers.free.pop().unwrap_or(NONE);
                hold_times.begin(held.buffer, source);
                buffers.of(held.buffer)[..bytes.len()].copy_from_slice(bytes);
                (held.len, held.since) = (bytes.len() as u32, source.now);
                held.waits = !fresh && held.waits;
                return &[];
            }
        };
        let to = ask(f, config, source, held, &bytes[..shown], why, Some(output));
        held.offset += to as u64;
        (held.seen, held.waits) = ((shown - to) as u32, why == Why::Due);
        &bytes[to..]
    }

    /// Shows the held bytes, and releases those that were decided.
    fn show(&mut self, source: &Source, held: &mut Held<F::Kept>, why: Why, output: Option<&mut Output<'_>>) {
        let Self { config, buffers, hold_times, f } = self;
        let len = held.len as usize;
        let to = ask(f, config, source, held, buffers.get(held.buffer, len), why, output);
        if to < len {
            buffers.of(held.buffer).copy_within(to..len, 0);
            let left = (len - to) as u32;
            (held.len, held.seen, held.since) = (left, left, source.now);
            held.waits = why == Why::Due;
            held.offset += to as u64;
            if to > 0 && held.buffer != NONE {
                hold_times.end(held.buffer);
                hold_times.begin(held.buffer, source);
            }
        } else {
            self.release(held);
        }
    }
}

/// Shows `bytes`, and answers how many of them were decided: after a cut, all of them.
fn ask<F: WindowDecider>(
    f: &mut F,
    config: &InlineWindowConfig,
    source: &Source,
    held: &mut Held<F::Kept>,
    bytes: &[u8],
    why: Why,
    mut output: Option<&mut Output<'_>>,
) -> usize {
    let Source { connection, side, flow, .. } = *source;
    let window =
        Window { connection, side, flow, offset: held.offset, bytes, seen: held.seen as usize, gap: 0, why };
    let InlineWindowConfig { longer, slide, .. } = *config;
    let mut replacing = Replacing { bytes, done: 0, longer, output: output.as_deref_mut() };
    let fate = f.decide(&window, &mut replacing, &mut held.kept);
    let done = replacing.done;
    let Some(output) = output else { return bytes.len() };
    let to = match (fate, why) {
        (Fate::Cut(cut), _) => {
            output.cut(cut);
            return bytes.len();
        }
        (Fate::Hold, Why::Due) => done,
        (Fate::Hold, Why::Full) if done > 0 => done,
        (_, Why::Full) => done.max(slide),
        _ => bytes.len(),
    };
    output.pass(&bytes[done..to]);
    to
}

impl<F: WindowDecider + 'static> Rewriter for InlineWindow<F> {
    type Memory = Held<F::Kept>;
    const HOLDS: bool = true;
    const MOVES: bool = true;

    fn rewrite(
        &mut self,
        source: &Source,
        held: &mut Held<F::Kept>,
        mut bytes: &[u8],
        output: &mut Output<'_>,
    ) {
        let InlineWindowConfig { size, timeout, .. } = self.config;
        if !self.shows(source.side) {
            return output.pass(bytes);
        }
        while !bytes.is_empty() && !output.is_cut() {
            if held.buffer == NONE {
                bytes = self.in_place(source, held, bytes, output);
                continue;
            }
            let len = held.len as usize;
            let (now, rest) = bytes.split_at(bytes.len().min(size - len));
            self.buffers.of(held.buffer)[len..len + now.len()].copy_from_slice(now);
            held.len += now.len() as u32;
            held.waits = false;
            bytes = rest;
            if held.len as usize == size {
                self.show(source, held, Why::Full, Some(output));
            } else if source.now.saturating_sub(held.since) >= timeout {
                self.show(source, held, Why::Due, Some(output));
            }
        }
        if output.is_cut() {
            self.release(held);
        }
    }

    fn flush(&mut self, source: &Source, held: &mut Held<F::Kept>, output: &mut Output<'_>) {
        if held.len > 0 {
            self.show(source, held, Why::Due, Some(output));
        }
    }

    fn end(&mut self, source: &Source, held: &mut Held<F::Kept>, end: End, output: Option<&mut Output<'_>>) {
        if self.shows(source.side) {
            self.show(source, held, Why::End(end), output);
            self.release(held);
        }
    }

    fn most(&self, input: usize) -> usize {
        input.saturating_add(self.config.size).saturating_mul(self.config.longer.max(1))
    }

    fn has_room(&self, side: Side, held: &Held<F::Kept>) -> bool {
        let fits = held.buffer != NONE || !self.buffers.free.is_empty();
        !self.shows(side) || fits || self.config.overflow == OverflowPolicy::Show
    }

    fn overstays(&self, now: u64) -> Option<u32> {
        self.hold_times
            .longest()
            .filter(|stay| now.saturating_sub(stay.since) >= self.config.longest)
            .map(|stay| stay.connection)
    }

    fn waits(&self, held: &Held<F::Kept>) -> bool {
        held.waits
    }

    fn pack(&mut self, source: &Source, held: &mut Held<F::Kept>, to: &mut Vec<u8>) {
        if self.shows(source.side) {
            self.give(held, to);
        }
    }

    fn left(&mut self, source: &Source, mut held: Held<F::Kept>, end: End) {
        self.end(source, &mut held, end, None);
    }

    fn accepts(&self, _: Side, held: Range<u64>, bytes: &[u8]) -> bool {
        // A direction that is not shown holds nothing.
        migration::accepts::<F::Kept>(held.clone(), bytes) || held.is_empty() && bytes.is_empty()
    }

    fn unpack(&mut self, source: &Source, held: Range<u64>, bytes: &[u8]) -> Option<Held<F::Kept>> {
        self.take(source, held, bytes)
    }

    fn unpacked(&mut self) {
        self.hold_times.sort();
    }

    fn is_due(&self, held: &Held<F::Kept>, now: u64) -> bool {
        held.len > 0 && self.config.timeout > 0 && now.saturating_sub(held.since) >= self.config.timeout
    }
}

impl<F> fmt::Debug for InlineWindow<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineWindow")
            .field("config", &self.config)
            .field("holding", &self.holding())
            .finish_non_exhaustive()
    }
}
