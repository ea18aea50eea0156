//! The parsed headers of a packet, as a type: `Layer<Layer<Root, Ethernet>, Ipv4>`, `With<…, FlowId>`.
//!
//! A stack is `Copy` and borrows nothing, so it can wait without the packet while a whole batch waits on memory.

use core::fmt;
use core::marker::PhantomData;

use crate::field::Field;
pub use crate::usual::{Usual, shape};

/// The result of a parse: enough never to look at length fields again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<F> {
    /// The facts to remember beside the offset.
    pub facts: F,
    /// Bytes that the header takes, options and extension headers included.
    pub len: usize,
    /// The payload's end, counted in bytes from the header's start, if the header states it.
    pub total: Option<usize>,
    /// The number by which it announces the next header; [`NOTHING`] if nothing can be parsed after it.
    pub next: u16,
}

/// The bytes beyond its end that a frame's metadata allow its length fields to state.
///
/// By default none: a frame from a wire is complete, and a length that points beyond it is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthSlack {
    /// Bytes that the frame had on the wire behind its last one, and that a capture did not keep.
    pub missing: usize,
    /// Whether an IP length of 0 stands for the frame's length.
    ///
    /// Segments that a device was still to cut have such a length.
    pub unstated: bool,
}

impl LengthSlack {
    /// Whether nothing is allowed.
    #[inline(always)]
    #[must_use]
    pub fn is_none(self) -> bool {
        self.missing == 0 && !self.unstated
    }
}

/// Announces that the payload cannot be parsed as a header (a later fragment, encrypted payload, plain data).
pub const NOTHING: u16 = u16::MAX;

/// Why bytes are not the header that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The header's name, as in its [`Header::NAME`].
    pub header: &'static str,
    /// Which rule is broken, in a few words: `"frame ends before the header does"`.
    pub rule: &'static str,
    /// Bytes (or the value) that the rule needs.
    pub needed: u32,
    /// Bytes (or the value) found.
    pub found: u32,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (needed {}, found {})", self.header, self.rule, self.needed, self.found)
    }
}

impl core::error::Error for Malformed {}

/// One header, or a family of headers seen as one ([`Link`](crate::Link), [`Ip`](crate::Ip)).
pub trait Header: Sized + 'static {
    /// The facts of a parse beside the offset: `()` for one header, the version for a family.
    type Facts: Copy + 'static;
    /// The checked view, for reading. It covers the header alone, from its first byte to its last.
    type Ref<'a>;
    /// The checked view, for writing.
    type Mut<'a>;
    /// Its short name, as tools print it: `"tcp"`.
    const NAME: &'static str;
    /// The fields of its fixed part, in order. Families have none of their own.
    const FIELDS: &'static [Field];

    /// Whether [`find`](Header::find) itself checks that header and payload lie inside the bytes; otherwise
    /// [`Layer::parse`] does.
    const EXACT: bool = false;

    /// Checks that `bytes`, which end where the enclosing header's payload ends, begin with this header.
    ///
    /// This is the only check: after it no accessor can fail.
    ///
    /// # Errors
    /// [`Malformed`] names the rule that is broken.
    fn find(bytes: &[u8], announced: u16) -> Result<Found<Self::Facts>, Malformed>;
    /// Whether a length of 0 that stands for the frame's appears to [`find`](Header::find) as a packet
    /// without payload.
    const UNSTATED_IS_EMPTY: bool = false;

    /// As [`find`](Header::find), in bytes that end where the frame does. `slack` says how many bytes are missing there.
    ///
    /// The end that a header states may lie that far beyond the bytes; the header itself may not.
    ///
    /// # Errors
    /// [`Malformed`] names the rule that is broken.
    fn find_with(bytes: &[u8], announced: u16, slack: LengthSlack) -> Result<Found<Self::Facts>, Malformed> {
        let _ = slack;
        Self::find(bytes, announced)
    }
    /// Whether a write through [`Mut`](Header::Mut) can change whether a frame is [usual](Usual).
    ///
    /// This is about headers at the place that such a frame has for them.
    const SHAPES: bool = true;

    /// Whether [`find_usual`](Header::find_usual) is worth a copy of the code.
    const FAST_PATH: bool = false;

    /// As [`find`](Header::find) for the header at offset `at` of a frame of this [`shape`], mostly in constants.
    ///
    /// `None` for headers that such a frame does not have there.
    #[inline(always)]
    fn find_usual<const SHAPE: u8>(
        _bytes: &[u8],
        _at: usize,
        _announced: u16,
        _usual: Usual,
    ) -> Option<Found<Self::Facts>> {
        None
    }
    /// The view of `bytes`. [`find`](Header::find) accepted them and gave their length.
    fn view(bytes: &[u8], facts: Self::Facts) -> Self::Ref<'_>;
    /// As [`view`](Header::view), for writing.
    fn view_mut(bytes: &mut [u8], facts: Self::Facts) -> Self::Mut<'_>;
    /// Writes the number of the next header, when an operator inserts or removes that one.
    ///
    /// For operators only: functions fused behind do not notice such a write by other code.
    fn announce(_header: Self::Mut<'_>, _next: u16) {}
    /// Writes the length that this header states, when its payload grew or shrank.
    ///
    /// `total` counts bytes from the header's first to the payload's last. Headers that state no length do
    /// nothing. For operators, as [`announce`](Header::announce).
    fn set_total(_header: Self::Mut<'_>, _total: usize) {}
    /// Takes the bytes that a checksum over the payload covers `out` of it, or adds them.
    ///
    /// `bytes` are those from the header's first to the payload's last. Between the two calls, in that order,
    /// covered bytes may change, and a wrong checksum stays wrong by the same amount. Answers whether there
    /// is such a checksum.
    fn cover(_bytes: &mut [u8], _out: bool) -> bool {
        false
    }
}

/// `Tcp: Follows<Ipv4>` says that TCP may come after IPv4, and how IPv4 announces it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot follow `{Outer}`",
    label = "the header parsed before this one is `{Outer}`",
    note = "parse the header between them first; the list below says what `{Self}` can follow"
)]
pub trait Follows<Outer>: Header {
    /// The numbers that announce it; an operator that inserts the header writes the first.
    const NUMBERS: &'static [u16];

    /// Whether `number` announces it. Written out, since a library's search is inlined or not by how often others use it.
    #[inline(always)]
    #[must_use]
    fn is_announced_by(number: u16) -> bool {
        let mut at = 0;
        while at < Self::NUMBERS.len() {
            if Self::NUMBERS[at] == number {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// Before the first header: the frame as it came from the wire.
#[derive(Debug)]
pub enum Wire {}

impl Header for Wire {
    type Facts = ();
    type Ref<'a> = &'a [u8];
    type Mut<'a> = &'a mut [u8];
    const NAME: &'static str = "frame";
    const FIELDS: &'static [Field] = &[];
    fn find(_: &[u8], announced: u16) -> Result<Found<()>, Malformed> {
        Ok(Found { facts: (), len: 0, total: None, next: announced })
    }
    #[inline(always)]
    fn view(bytes: &[u8], (): ()) -> &[u8] {
        bytes
    }
    #[inline(always)]
    fn view_mut(bytes: &mut [u8], (): ()) -> &mut [u8] {
        bytes
    }
}

/// The parsed headers of one packet, and the values that operators found out.
pub trait Stack: Copy + 'static {
    /// The innermost header.
    type Top: Header;
    /// Offset of the innermost header in the frame, in bytes, and the facts of its parse.
    fn top(&self) -> (usize, <Self::Top as Header>::Facts);
    /// Where the innermost header ends and its payload begins, in bytes from the frame's start.
    fn end(&self) -> usize;
    /// Where that payload ends in a frame of `frame` bytes: by the innermost length field, or at the frame's end.
    fn limit(&self, frame: usize) -> usize;
    /// The number by which the innermost header announces the next header.
    fn next(&self) -> u16;
    /// After bytes were inserted at `end()` (or removed there, `by` negative): every enclosing payload ends `by`
    /// bytes further.
    #[must_use]
    fn resized(self, by: isize) -> Self;
    /// After the innermost header itself became `by` bytes longer (or shorter, `by` negative).
    #[must_use]
    fn stretched(self, by: isize) -> Self;
    /// Whether all lengths that [`restate`](Stack::restate) would write fit into the 16 bits that most headers have for them.
    fn is_stateable(&self) -> bool {
        true
    }
    /// The innermost header announces `next` now.
    #[must_use]
    fn announcing(self, next: u16) -> Self;
    /// As it waits where a whole batch waits on memory: in few words, each written at once.
    type Packed: Copy + 'static;
    /// Packs it, for frames of less than 2²¹ bytes, which is more than a pool's largest.
    fn pack(self) -> Self::Packed;
    /// The stack that [`pack`](Stack::pack) packed.
    fn unpack(packed: Self::Packed) -> Self;
    /// Writes every length that encloses the innermost payload, from the innermost header outwards.
    ///
    /// Called after [`resized`](Stack::resized). The caller corrects checksums over those lengths.
    fn restate(&self, frame: &mut [u8]);
    /// As [`restate`](Stack::restate), in a frame of which the end is missing: every length becomes `by` bytes more.
    ///
    /// `by` is negative where they become less. How long the missing end is, is not known here.
    fn restate_by(&self, frame: &mut [u8], by: isize) {
        let _ = (frame, by);
    }
    /// Takes the bytes that are about to change `out` of every checksum that a tunnel has over its payload.
    ///
    /// That goes from the outermost header inwards. After the change the bytes are added, from the innermost
    /// header outwards. Answers whether there are any such checksums. See [`Header::cover`].
    fn cover(&self, _frame: &mut [u8], _out: bool) -> bool {
        false
    }
}

/// Nothing parsed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root;

impl Stack for Root {
    type Top = Wire;
    #[inline(always)]
    fn top(&self) -> (usize, ()) {
        (0, ())
    }
    #[inline(always)]
    fn end(&self) -> usize {
        0
    }
    #[inline(always)]
    fn limit(&self, frame: usize) -> usize {
        frame
    }
    #[inline(always)]
    fn next(&self) -> u16 {
        0
    }
    fn resized(self, _: isize) -> Self {
        self
    }
    fn stretched(self, _: isize) -> Self {
        self
    }
    fn announcing(self, _: u16) -> Self {
        self
    }
    type Packed = Self;
    #[inline(always)]
    fn pack(self) -> Self {
        self
    }
    #[inline(always)]
    fn unpack(packed: Self) -> Self {
        packed
    }
    fn restate(&self, _: &mut [u8]) {}
}

/// Header `H` inside `P`.
///
/// Every number has its own word on purpose. Narrower numbers are written one by one and copied in pairs. A
/// copy that is wider than the writes before it waits a dozen cycles until they leave the store buffer.
pub struct Layer<P, H: Header> {
    outer: P,
    at: usize,
    end: usize,
    limit: usize,
    /// [`Stack::next`], and [`BOUNDED`].
    announced: usize,
    facts: H::Facts,
    header: PhantomData<fn() -> H>,
}

/// A [`Layer`], packed.
pub struct PackedLayer<P: Stack, H: Header> {
    outer: P::Packed,
    /// End, limit and the announced number.
    word: u64,
    facts: H::Facts,
}

impl<P: Stack, H: Header> Clone for PackedLayer<P, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Stack, H: Header> Copy for PackedLayer<P, H> {}

/// Bits of an offset in a [`PackedLayer`].
const OFFSET: u32 = 21;

/// The header states its payload's length itself.
const BOUNDED: usize = 1 << 16;

impl<P: Copy, H: Header> Clone for Layer<P, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<P: Copy, H: Header> Copy for Layer<P, H> {}

impl<P: Stack, H: Header> Layer<P, H> {
    /// Parses `H` where `outer` ends. Afterwards `at + len = end <= limit <= frame.len()`.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes are not the header, or a length field points outside what encloses it.
    #[inline(always)]
    pub fn parse(outer: P, frame: &[u8]) -> Result<Self, Malformed> {
        Self::parse_in::<{ shape::ANY }>(outer, frame, None)
    }

    /// As [`parse`](Self::parse), in a frame that has this [`shape`], if [`Usual::of`] gave an answer for it.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[inline(always)]
    pub fn parse_in<const SHAPE: u8>(
        outer: P,
        frame: &[u8],
        usual: Option<Usual>,
    ) -> Result<Self, Malformed> {
        let at = outer.end();
        let limit = outer.limit(frame.len());
        let Some(bytes) = frame.get(at..limit) else { return Err(short::<H>(at, limit)) };
        let found = match usual.and_then(|usual| H::find_usual::<SHAPE>(bytes, at, outer.next(), usual)) {
            Some(found) => found,
            None => H::find(bytes, outer.next())?,
        };
        if !H::EXACT && found.len > bytes.len() {
            return Err(short::<H>(found.len, bytes.len()));
        }
        if let Some(total) = found.total
            && !H::EXACT
            && !(found.len..=bytes.len()).contains(&total)
        {
            return Err(outside::<H>(found.len, total, bytes.len()));
        }
        Ok(Self::of(outer, at, limit, found))
    }

    /// As [`parse`](Self::parse), in a frame whose length fields may say more than its bytes, as far as `slack` allows.
    ///
    /// The missing bytes belong to no payload: `limit` is the frame's end then.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    #[cold]
    #[inline(never)]
    pub fn parse_with(outer: P, frame: &[u8], slack: LengthSlack) -> Result<Self, Malformed> {
        let at = outer.end();
        let limit = outer.limit(frame.len());
        let Some(bytes) = frame.get(at..limit) else { return Err(short::<H>(at, limit)) };
        // Only a header that reaches the frame's end can continue behind it.
        let missing = if limit == frame.len() { slack.missing } else { 0 };
        let found = H::find_with(bytes, outer.next(), LengthSlack { missing, ..slack })?;
        if found.len > bytes.len() {
            return Err(short::<H>(found.len, bytes.len()));
        }
        if let Some(total) = found.total
            && !(found.len..=bytes.len().saturating_add(missing)).contains(&total)
        {
            return Err(outside::<H>(found.len, total, bytes.len()));
        }
        let total = found.total.map(|total| total.min(bytes.len()));
        Ok(Self::of(outer, at, limit, Found { total, ..found }))
    }

    /// Finds again the header that [`parse_in`](Self::parse_in) found in a usual frame.
    ///
    /// Nothing is checked, so results that are not looked at cost nothing. The caller has parsed this frame with
    /// success, and changed nothing since.
    ///
    /// # Panics
    /// When that was not so; not always, and otherwise the answer means nothing.
    #[inline(always)]
    pub fn retrace<const SHAPE: u8>(outer: P, frame: &[u8]) -> Self {
        let at = outer.end();
        let limit = outer.limit(frame.len());
        let bytes = frame.get(at..limit).unwrap_or_default();
        let found = match H::find_usual::<SHAPE>(bytes, at, outer.next(), Usual::again::<SHAPE>(frame)) {
            Some(found) => found,
            None => whole(H::find(bytes, outer.next())),
        };
        Self::of(outer, at, limit, found)
    }

    #[inline(always)]
    fn of(outer: P, at: usize, limit: usize, found: Found<H::Facts>) -> Self {
        Self {
            outer,
            at,
            end: at + found.len,
            limit: found.total.map_or(limit, |total| at + total),
            announced: found.next as usize | if found.total.is_some() { BOUNDED } else { 0 },
            facts: found.facts,
            header: PhantomData,
        }
    }

    /// Takes the header off the stack again: its bytes return to the payload (the paper's `deparse`).
    #[inline(always)]
    pub fn outer(&self) -> P {
        self.outer
    }

    /// Bytes that the header takes.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.end - self.at
    }
}

#[cold]
fn outside<H: Header>(len: usize, total: usize, bytes: usize) -> Malformed {
    if total > bytes {
        malformed::<H>("its length field points beyond what encloses it", total, bytes)
    } else {
        malformed::<H>("its length field is less than the header's own length", len, total)
    }
}

#[cold]
fn short<H: Header>(needed: usize, found: usize) -> Malformed {
    malformed::<H>("the bytes end before the header does", needed, found)
}

/// Out of line, so that a `find` holds no more than its checks.
#[cold]
pub(crate) fn malformed<H: Header>(rule: &'static str, needed: usize, found: usize) -> Malformed {
    Malformed { header: H::NAME, rule, needed: needed as u32, found: found as u32 }
}

/// A header that `find` accepted: whole, unless a packet's bytes are viewed with another packet's stack.
#[inline(always)]
pub(crate) fn whole<T, E>(header: Result<T, E>) -> T {
    match header {
        Ok(header) => header,
        Err(_) => broken(),
    }
}

/// Out of line and without arguments, so that a view is small enough to be inlined wherever it is taken.
#[cold]
#[inline(never)]
fn broken() -> ! {
    panic!("a header is viewed in bytes in which it was not found")
}

impl<P: Stack, H: Header> Stack for Layer<P, H> {
    type Top = H;
    #[inline(always)]
    fn top(&self) -> (usize, H::Facts) {
        (self.at, self.facts)
    }
    #[inline(always)]
    fn end(&self) -> usize {
        self.end
    }
    #[inline(always)]
    fn limit(&self, _: usize) -> usize {
        self.limit
    }
    #[inline(always)]
    fn next(&self) -> u16 {
        self.announced as u16
    }
    #[inline(always)]
    fn resized(self, by: isize) -> Self {
        Self { outer: self.outer.resized(by), limit: self.limit.saturating_add_signed(by), ..self }
    }
    #[inline(always)]
    fn stretched(self, by: isize) -> Self {
        Self { end: self.end.saturating_add_signed(by), ..self.resized(by) }
    }
    fn is_stateable(&self) -> bool {
        (self.announced & BOUNDED == 0 || self.limit - self.at <= 0xffff) && self.outer.is_stateable()
    }
    #[inline(always)]
    fn announcing(self, next: u16) -> Self {
        Self { announced: next as usize | self.announced & BOUNDED, ..self }
    }
    type Packed = PackedLayer<P, H>;
    #[inline(always)]
    fn pack(self) -> Self::Packed {
        debug_assert!(self.at == self.outer.end() && self.limit < 1 << OFFSET);
        let word = self.end as u64 | (self.limit as u64) << OFFSET | (self.announced as u64) << (2 * OFFSET);
        PackedLayer { outer: self.outer.pack(), word, facts: self.facts }
    }
    #[inline(always)]
    fn unpack(packed: Self::Packed) -> Self {
        let outer = P::unpack(packed.outer);
        let offset = |bits: u64| (bits & ((1 << OFFSET) - 1)) as usize;
        Self {
            // A header begins where the one around it ends.
            at: outer.end(),
            outer,
            end: offset(packed.word),
            limit: offset(packed.word >> OFFSET),
            announced: (packed.word >> (2 * OFFSET)) as usize,
            facts: packed.facts,
            header: PhantomData,
        }
    }
    fn restate(&self, frame: &mut [u8]) {
        if self.announced & BOUNDED != 0
            && let Some(bytes) = frame.get_mut(self.at..self.end)
        {
            H::set_total(H::view_mut(bytes, self.facts), self.limit - self.at);
        }
        self.outer.restate(frame);
    }
    fn restate_by(&self, frame: &mut [u8], by: isize) {
        // Nothing is checked here but the header's shape, which the stack has found: any end will do.
        const ANY_END: LengthSlack = LengthSlack { missing: u32::MAX as usize, unstated: false };
        if self.announced & BOUNDED != 0
            && let Some(bytes) = frame.get(self.at..)
            && let Ok(Found { total: Some(total), .. }) = H::find_with(bytes, self.outer.next(), ANY_END)
            && let Some(bytes) = frame.get_mut(self.at..self.end)
        {
            H::set_total(H::view_mut(bytes, self.facts), total.saturating_add_signed(by));
        }
        self.outer.restate_by(frame, by);
    }
    fn cover(&self, frame: &mut [u8], out: bool) -> bool {
        // An outer checksum covers the inner ones as the frame shows them.
        let around = out && self.outer.cover(frame, out);
        let own = frame.get_mut(self.at..self.limit).is_some_and(|bytes| H::cover(bytes, out));
        around | own | (!out && self.outer.cover(frame, out))
    }
}

/// A stack, and the facts that `map` or `lookup` added about the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct With<P, M> {
    /// The stack before.
    pub outer: P,
    /// The value found out.
    pub value: M,
}

impl<P: Stack, M: Copy + 'static> Stack for With<P, M> {
    type Top = P::Top;
    #[inline(always)]
    fn top(&self) -> (usize, <P::Top as Header>::Facts) {
        self.outer.top()
    }
    #[inline(always)]
    fn end(&self) -> usize {
        self.outer.end()
    }
    #[inline(always)]
    fn limit(&self, frame: usize) -> usize {
        self.outer.limit(frame)
    }
    #[inline(always)]
    fn next(&self) -> u16 {
        self.outer.next()
    }
    #[inline(always)]
    fn resized(self, by: isize) -> Self {
        Self { outer: self.outer.resized(by), ..self }
    }
    #[inline(always)]
    fn stretched(self, by: isize) -> Self {
        Self { outer: self.outer.stretched(by), ..self }
    }
    fn is_stateable(&self) -> bool {
        self.outer.is_stateable()
    }
    #[inline(always)]
    fn announcing(self, next: u16) -> Self {
        Self { outer: self.outer.announcing(next), ..self }
    }
    type Packed = With<P::Packed, M>;
    #[inline(always)]
    fn pack(self) -> Self::Packed {
        With { outer: self.outer.pack(), value: self.value }
    }
    #[inline(always)]
    fn unpack(packed: Self::Packed) -> Self {
        Self { outer: P::unpack(packed.outer), value: packed.value }
    }
    fn restate(&self, frame: &mut [u8]) {
        self.outer.restate(frame);
    }
    fn restate_by(&self, frame: &mut [u8], by: isize) {
        self.outer.restate_by(frame, by);
    }
    fn cover(&self, frame: &mut [u8], out: bool) -> bool {
        self.outer.cover(frame, out)
    }
}

/// A stack whose innermost entry is a header, which can be taken off.
#[diagnostic::on_unimplemented(
    message = "there is no header to take off `{Self}`",
    note = "a `map` or `lookup` came after the header: call `forget_metadata()` first"
)]
pub trait Removable: Stack {
    /// The stack without it.
    type Outer: Stack;
    /// The stack without its innermost header.
    fn without(&self) -> Self::Outer;
    /// Bytes that the innermost header takes.
    fn size(&self) -> usize;
}

impl<P: Stack, H: Header> Removable for Layer<P, H> {
    type Outer = P;
    #[inline(always)]
    fn without(&self) -> P {
        self.outer
    }
    #[inline(always)]
    fn size(&self) -> usize {
        self.size()
    }
}

/// A stack whose innermost entry is metadata, which can be forgotten.
pub trait Forgettable: Stack {
    /// The stack without it.
    type Outer: Stack;
    /// The stack without its innermost metadata.
    fn without(&self) -> Self::Outer;
}

impl<P: Stack, M: Copy + 'static> Forgettable for With<P, M> {
    type Outer = P;
    #[inline(always)]
    fn without(&self) -> P {
        self.outer
    }
}

/// A position in a stack: the innermost entry. Inferred, never written.
#[derive(Debug)]
pub struct Here;
/// A position in a stack: one entry further out than `I`. Inferred, never written.
#[derive(Debug)]
pub struct Further<I>(PhantomData<I>);

/// The stack holds header `H` at position `I`.
#[diagnostic::on_unimplemented(
    message = "`{H}` was not parsed on the way here",
    label = "no `{H}` encloses this packet's `header()`"
)]
pub trait Holds<H: Header, I> {
    /// The header's first byte and last byte + 1 in the frame, and the facts of its parse.
    fn locate(&self) -> (usize, usize, H::Facts);
    /// Where the header's payload ends in the frame, in bytes.
    fn payload_end(&self) -> usize;
}
impl<P, H: Header> Holds<H, Here> for Layer<P, H> {
    #[inline(always)]
    fn locate(&self) -> (usize, usize, H::Facts) {
        (self.at, self.end, self.facts)
    }
    #[inline(always)]
    fn payload_end(&self) -> usize {
        self.limit
    }
}
#[diagnostic::do_not_recommend]
impl<P: Holds<H, I>, X: Header, H: Header, I> Holds<H, Further<I>> for Layer<P, X> {
    #[inline(always)]
    fn locate(&self) -> (usize, usize, H::Facts) {
        self.outer.locate()
    }
    #[inline(always)]
    fn payload_end(&self) -> usize {
        self.outer.payload_end()
    }
}
#[diagnostic::do_not_recommend]
impl<P: Holds<H, I>, M, H: Header, I> Holds<H, Further<I>> for With<P, M> {
    #[inline(always)]
    fn locate(&self) -> (usize, usize, H::Facts) {
        self.outer.locate()
    }
    #[inline(always)]
    fn payload_end(&self) -> usize {
        self.outer.payload_end()
    }
}

/// The stack knows a value of type `M` at position `I`.
#[diagnostic::on_unimplemented(
    message = "no operator before this one produced a `{M}`",
    label = "add `.map(…)` or `.lookup(…)` that returns a `{M}`"
)]
pub trait Knows<M, I> {
    /// The value.
    fn value(&self) -> &M;
}
impl<P, M> Knows<M, Here> for With<P, M> {
    #[inline(always)]
    fn value(&self) -> &M {
        &self.value
    }
}
#[diagnostic::do_not_recommend]
impl<P: Knows<M, I>, X, M, I> Knows<M, Further<I>> for With<P, X> {
    #[inline(always)]
    fn value(&self) -> &M {
        self.outer.value()
    }
}
#[diagnostic::do_not_recommend]
impl<P: Knows<M, I>, H: Header, M, I> Knows<M, Further<I>> for Layer<P, H> {
    #[inline(always)]
    fn value(&self) -> &M {
        self.outer.value()
    }
}
