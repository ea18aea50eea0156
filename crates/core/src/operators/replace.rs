//! The operator that replaces options and payload by bytes of another length.
//!
//! A user function gives the new bytes. This module does everything that follows: it moves other bytes, and
//! updates lengths, checksums, offsets and work that is left to a device.

use std::marker::PhantomData;
use std::ops::Range;

use netbricks_buffer::{Batch, Bytes, GsoKind, NoRoom, Offload};
use netbricks_packet::checksum::field_offset;
use netbricks_packet::splice::{Splice, SpliceError};
use netbricks_packet::stack::{Header, Layer, Malformed, Root, Stack, With};
use netbricks_packet::tcp_options::LONGEST;
use netbricks_packet::{Icmpv4, Icmpv6, Ip, Ipv4, Ipv6, Link, Tcp, Udp, protocol};

use super::{lend, same_loops, slack, upstream, view};
use crate::context::Context;
use crate::operator::Operator;
use crate::packet_cursor::PacketCursor;
use crate::reason::{DropReason, Edge, OnMismatch, Verdict};
use crate::view::View;

/// A reason why a packet cannot be changed as a user function asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// The bytes cannot be replaced: a fragment, an authenticated packet, or more options than there is room
    /// for.
    #[error(transparent)]
    Splice(#[from] SpliceError),
    /// The frame has no room, and no larger one is free.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A tunnel around the packet cannot state its length.
    #[error("a tunnel around the packet cannot state {bytes} bytes: 65,535 are the most")]
    TunnelTooLong {
        /// The bytes that the frame would have.
        bytes: usize,
    },
    /// The sender left work to a device that would come out wrong.
    ///
    /// Either the checksum is not this header's, or the segments' datagrams would end elsewhere.
    #[error("its sender left a checksum or segmentation to the device that can't follow the change")]
    LeftToDevice,
}

impl ResizeError {
    /// The reason for which such a packet is dropped.
    pub const fn reason(self) -> DropReason {
        match self {
            Self::Splice(SpliceError::Malformed(_)) => DropReason::Malformed,
            Self::Splice(SpliceError::Fragment) => DropReason::Fragment,
            Self::Splice(SpliceError::Authenticated) => DropReason::Denied,
            Self::Splice(SpliceError::WrongProtocol { .. } | SpliceError::OutOfRange { .. }) => {
                DropReason::Unmatched
            }
            Self::Splice(SpliceError::TooLong { .. } | SpliceError::WrongSize { .. })
            | Self::NoRoom(_)
            | Self::TunnelTooLong { .. } => DropReason::TooBig,
            Self::LeftToDevice => DropReason::NoOffload,
        }
    }
}

/// A header that `resize` can change in some part.
#[diagnostic::on_unimplemented(
    message = "`resize` can't replace anything of `{Self}`",
    label = "the header parsed before this operator is `{Self}`",
    note = "parse what is to change first: it replaces the options of IPv4 and TCP, and what TCP, UDP, ICMP and ICMPv6 carry"
)]
pub trait Replaceable: Header {
    /// Bytes that may be inserted: more than any packet has room for.
    #[doc(hidden)]
    const ROOM: usize;
}
impl Replaceable for Ip {
    const ROOM: usize = LONGEST;
}
impl Replaceable for Ipv4 {
    const ROOM: usize = LONGEST;
}
impl Replaceable for Tcp {
    const ROOM: usize = 0xffff;
}
impl Replaceable for Udp {
    const ROOM: usize = 0xffff;
}
impl Replaceable for Icmpv4 {
    const ROOM: usize = 0xffff;
}
impl Replaceable for Icmpv6 {
    const ROOM: usize = 0xffff;
}

/// A stack whose innermost header is IP, or straight inside IP.
#[diagnostic::on_unimplemented(
    message = "`resize` changes an IP packet, and none was parsed around what is to change",
    label = "neither `parse::<Ip>()` nor a header straight inside it came before this operator"
)]
pub trait InsideIp: Stack {
    /// The stack around the IP packet.
    #[doc(hidden)]
    type Around: Stack;
    /// The offsets of the IP packet's beginning and end in the frame, and the stack around it.
    #[doc(hidden)]
    fn packet(&self) -> (usize, usize, Self::Around);
}

macro_rules! inside_ip {
    ($($ip:ident)* ; $($transport:ident)*) => {
        $(impl<P: Stack> InsideIp for Layer<P, $ip> {
            type Around = P;
            fn packet(&self) -> (usize, usize, P) {
                // The frame's length is a bound only where no header gives one.
                (self.top().0, self.limit(usize::MAX), self.outer())
            }
        })*
        $(impl<P: InsideIp> InsideIp for Layer<P, $transport> {
            type Around = P::Around;
            fn packet(&self) -> (usize, usize, P::Around) {
                self.outer().packet()
            }
        })*
    };
}
inside_ip! { Ip Ipv4 Ipv6 ; Tcp Udp Icmpv4 Icmpv6 }

impl<P: InsideIp, M: Copy + 'static> InsideIp for With<P, M> {
    type Around = P::Around;
    fn packet(&self) -> (usize, usize, P::Around) {
        self.outer.packet()
    }
}

/// The request of a user function to [`resize`](Operator::resize): new bytes for a part of header `H` or of
/// its payload.
///
/// A packet has one request: the last. The bytes are copied here, into room that was allocated when the
/// function was built.
pub struct Replacement<H> {
    asked: Option<Asked>,
    room: Box<[u8]>,
    header: PhantomData<fn() -> H>,
}

/// The part to replace, and the length of its new bytes.
#[derive(Clone)]
struct Asked {
    part: Part,
    len: usize,
}

#[derive(Clone)]
enum Part {
    Ipv4Options,
    TcpOptions,
    Payload(Range<usize>),
}

impl Asked {
    /// Plans the change of an IP packet.
    fn plan(&self, ip: &[u8]) -> Result<Splice, SpliceError> {
        match &self.part {
            Part::Ipv4Options => Splice::ipv4_options(ip, self.len),
            Part::TcpOptions => Splice::tcp_options(ip, self.len),
            Part::Payload(range) => Splice::payload(ip, range.clone(), self.len),
        }
    }
    fn is_payload(&self) -> bool {
        matches!(self.part, Part::Payload(_))
    }
}

impl<H> Replacement<H> {
    fn new(room: usize) -> Self {
        Self { asked: None, room: vec![0; room].into(), header: PhantomData }
    }
    /// Notes a request. Bytes longer than the room are longer than any packet, and the plan refuses them.
    fn ask(&mut self, part: Part, len: usize, write: impl FnOnce(&mut [u8])) {
        self.asked = Some(Asked { part, len });
        if let Some(room) = self.room.get_mut(..len) {
            write(room);
        }
    }
}

macro_rules! options {
    ($($header:ident $part:ident $said:literal;)*) => {
        $(impl Replacement<$header> {
            #[doc = concat!("All ", $said, " options become these: 40 bytes at most, padded to a multiple of 4 by ends of list.")]
            pub fn options(&mut self, options: &[u8]) {
                self.ask(Part::$part, options.len(), |room| room.copy_from_slice(options));
            }
        })*
    };
}
options! {
    Ip Ipv4Options "IPv4";
    Ipv4 Ipv4Options "IPv4";
    Tcp TcpOptions "TCP";
}

macro_rules! payloads {
    ($($header:ident)*) => {
        $(impl Replacement<$header> {
            /// Replaces this range of the payload, as the view shows it, by these bytes.
            pub fn payload(&mut self, range: Range<usize>, bytes: &[u8]) {
                self.payload_with(range, bytes.len(), |room| room.copy_from_slice(bytes));
            }
            /// Replaces this range of the payload, as the view shows it, by `len` bytes.
            ///
            /// `write` must fill all of them, since they may hold earlier bytes. It is not called where no
            /// packet has room for so many.
            pub fn payload_with(&mut self, range: Range<usize>, len: usize, write: impl FnOnce(&mut [u8])) {
                self.ask(Part::Payload(range), len, write);
            }
        })*
    };
}
payloads! { Tcp Udp Icmpv4 Icmpv6 }

/// The policy for a packet that cannot be changed.
pub trait Otherwise<S>: 'static {
    #[doc(hidden)]
    fn decide(&mut self, packet: &mut View<'_, S>, error: ResizeError) -> Result<(), Verdict>;
    #[doc(hidden)]
    fn edge(&self) -> Option<Edge> {
        None
    }
}

/// Drops the packet, for the error's own reason.
pub struct Dropped;
impl<S: Stack> Otherwise<S> for Dropped {
    fn decide(&mut self, _: &mut View<'_, S>, error: ResizeError) -> Result<(), Verdict> {
        Err(Verdict::drop(error.reason()))
    }
}

impl<S: Stack> Otherwise<S> for OnMismatch {
    fn decide(&mut self, _: &mut View<'_, S>, _: ResizeError) -> Result<(), Verdict> {
        Err(self.0)
    }
    fn edge(&self) -> Option<Edge> {
        Self::edge(*self)
    }
}

/// Asks a user function.
pub struct Decided<G>(pub(crate) G);
impl<S, G> Otherwise<S> for Decided<G>
where
    S: Stack,
    G: FnMut(&mut View<'_, S>, ResizeError) -> Result<(), Verdict> + 'static,
{
    fn decide(&mut self, packet: &mut View<'_, S>, error: ResizeError) -> Result<(), Verdict> {
        (self.0)(packet, error)
    }
}

/// Replaces options or payload.
pub struct Resize<A: Operator, F, G>(A, F, G, Replacement<<A::Out as Stack>::Top>);

impl<A, F, G> Resize<A, F, G>
where
    A: Operator<Out: Stack<Top: Replaceable>>,
{
    pub(crate) fn new(input: A, f: F, otherwise: G) -> Self {
        Self(input, f, otherwise, Replacement::new(<A::Out as Stack>::Top::ROOM))
    }
}

impl<A, F> Resize<A, F, Dropped>
where
    A: Operator<Out: Stack<Top: Replaceable>>,
{
    /// Sends a packet that cannot be changed where the policy says, unchanged.
    pub fn or(self, policy: impl Into<OnMismatch>) -> Resize<A, F, OnMismatch> {
        let Self(input, f, _, replacement) = self;
        Resize(input, f, policy.into(), replacement)
    }
    /// Asks `decide` about a packet that cannot be changed.
    ///
    /// `Ok` keeps it as it is, `Err` sends it away as the verdict says.
    pub fn or_else<G>(self, decide: G) -> Resize<A, F, Decided<G>>
    where
        G: FnMut(&mut View<'_, A::Out>, ResizeError) -> Result<(), Verdict> + 'static,
    {
        let Self(input, f, _, replacement) = self;
        Resize(input, f, Decided(decide), replacement)
    }
}

impl<A, F, G> Operator for Resize<A, F, G>
where
    A: Operator<Out: InsideIp>,
    F: FnMut(&View<'_, A::Out>, &mut Replacement<<A::Out as Stack>::Top>) + 'static,
    G: Otherwise<A::Out>,
{
    same_loops!();
    type Out = A::Out;
    const FAST_PATH: bool = A::FAST_PATH;
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        self.3.asked = None;
        (self.1)(&view!(at, stack), &mut self.3);
        if self.3.asked.is_none() {
            return Ok(stack);
        }
        let replacement = &self.3;
        match at.again().apart(|at| replace(replacement, at, stack)) {
            Ok(stack) => Ok(stack),
            Err(error) => {
                lend!((|view: &mut View<'_, A::Out>| self.2.decide(view, error)), at, stack)?;
                Ok(stack)
            }
        }
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.0.edges(visit);
        if let Some(edge) = self.2.edge() {
            visit(edge);
        }
    }
}

/// Replaces TCP options of whole frames, for a [`FrameFunction`](crate::FrameFunction).
pub struct ReplaceTcpOptions(Replacement<Tcp>);

impl ReplaceTcpOptions {
    /// Allocates the room for the options of one packet.
    pub fn new() -> Self {
        Self(Replacement::new(LONGEST))
    }

    /// All options of the frame's TCP header become these, of 40 bytes at most.
    ///
    /// Ends of list pad them to a multiple of 4.
    ///
    /// Lengths, checksums and work that is left to a device follow, as in [`resize`](Operator::resize).
    ///
    /// # Errors
    /// When it is no whole TCP segment over IP, or cannot change; then nothing has.
    pub fn replace(
        &mut self,
        frame: &mut Bytes<'_>,
        options: &[u8],
        cx: &mut Context,
    ) -> Result<(), ResizeError> {
        let allowed = slack(frame);
        let data = frame.data();
        let link = Layer::<Root, Link>::parse_with(Root, data, allowed).map_err(SpliceError::from)?;
        let ip = Layer::<_, Ip>::parse_with(link, data, allowed).map_err(SpliceError::from)?;
        let tcp = Layer::<_, Tcp>::parse_with(ip, data, allowed).map_err(SpliceError::from)?;
        self.0.options(options);
        let mut reshaped = false;
        replace(&self.0, PacketCursor::new(0, frame, cx, &mut reshaped), tcp).map(|_| ())
    }
}

impl Default for ReplaceTcpOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Replaces the part that was asked for, or changes nothing.
///
/// It is out of line: most packets stay as they are, and the loop over them stays small.
#[inline(never)]
fn replace<S: InsideIp>(
    replacement: &Replacement<S::Top>,
    at: PacketCursor<'_, '_>,
    stack: S,
) -> Result<S, ResizeError> {
    let Some(asked) = &replacement.asked else { return Ok(stack) };
    let (start, end, around) = stack.packet();
    let plan = asked.plan(at.bytes.data().get(start..end).unwrap_or_default())?;
    same_packet(asked, &plan, &stack, start, end)?;
    let by = plan.growth();
    let resized = around.resized(by);
    if by > 0 && !resized.is_stateable() {
        return Err(ResizeError::TunnelTooLong { bytes: at.bytes.len().saturating_add_signed(by) });
    }
    let before = at.bytes.offload();
    let (plan, offload) = carry(before, &plan, start, asked.is_payload()).ok_or(ResizeError::LeftToDevice)?;
    if before.needs_checksum && is_covered(&around, at.bytes.data_mut()) {
        return Err(ResizeError::LeftToDevice);
    }
    // Facts from parsing the frame no longer hold for operators that did not see it change.
    *at.reshaped = true;
    shift(at.bytes, start + plan.at(), plan.removed(), plan.inserted(), |frame| {
        around.cover(frame, true);
    })?;
    let bytes = replacement.room.get(..asked.len).unwrap_or_default();
    let data = at.bytes.data_mut();
    plan.finish(data.get_mut(start..start + plan.new_end()).unwrap_or_default(), bytes)?;
    resized.restate(data);
    resized.cover(data, false);
    if offload != before {
        at.bytes.set_offload(offload);
    }
    Ok(if asked.is_payload() { stack.resized(by) } else { stack.stretched(by) })
}

/// Checks that the plan found the packet that was parsed.
///
/// The plan reads the packet again. Code that changed a length since may have made another packet of it, in
/// which the requested range means something else.
fn same_packet<S: Stack>(
    asked: &Asked,
    plan: &Splice,
    stack: &S,
    start: usize,
    end: usize,
) -> Result<(), SpliceError> {
    let header_end = match &asked.part {
        Part::Payload(range) => plan.at() - range.start,
        Part::Ipv4Options | Part::TcpOptions => plan.at() + plan.removed(),
    };
    for (needed, found) in [(stack.end(), start + header_end), (end, start + plan.old_end())] {
        if needed != found {
            let rule = "its length was changed after it was parsed";
            let header = <S::Top as Header>::NAME;
            let malformed = Malformed { header, rule, needed: needed as u32, found: found as u32 };
            return Err(malformed.into());
        }
    }
    Ok(())
}

/// Whether a tunnel around has a checksum over the packet.
///
/// Its sender computed that over the bytes that the device will write, and not over the bytes that are there.
#[cold]
fn is_covered(around: &impl Stack, frame: &mut [u8]) -> bool {
    let is = around.cover(frame, true);
    if is {
        around.cover(frame, false);
    }
    is
}

/// The work left to the device after the splice, and a splice that leaves it that work.
///
/// `start` is the offset of the IP packet in the frame. `None` where the device would do other work than the
/// sender asked for.
fn carry(mut offload: Offload, plan: &Splice, start: usize, payload: bool) -> Option<(Splice, Offload)> {
    let mut plan = *plan;
    if offload.needs_checksum {
        let (from, transport) = (usize::from(offload.checksum_start), start + plan.transport());
        if plan.at() <= plan.transport() {
            // IPv4 options: the range of the checksum moves along.
            if from < transport {
                return None;
            }
            offload.checksum_start = u16::try_from(from.saturating_add_signed(plan.growth())).ok()?;
        } else if from == transport
            && matches!(plan.protocol(), protocol::TCP | protocol::UDP)
            && field_offset(plan.protocol()) == Some(usize::from(offload.checksum_offset))
        {
            plan = plan.left_to_device();
        } else {
            return None;
        }
    }
    match (offload.gso, payload) {
        // The device's datagrams would end elsewhere.
        (GsoKind::Udp, true) => return None,
        // Segments stay as long as their sender made them.
        (GsoKind::TcpV4 | GsoKind::TcpV6, false) if plan.growth() > 0 => {
            offload.gso_size = offload.gso_size.checked_sub(plan.growth() as u16).filter(|size| *size > 0)?;
        }
        _ => {}
    }
    Some((plan, offload))
}

/// Makes `inserted` bytes of the `removed` ones at `cut`, by moving the bytes before or behind them.
///
/// It moves the fewer bytes, where there is room. `before` sees the frame as it was, once no error can
/// follow.
fn shift(
    bytes: &mut Bytes<'_>,
    cut: usize,
    removed: usize,
    inserted: usize,
    before: impl FnOnce(&mut [u8]),
) -> Result<(), NoRoom> {
    let (len, behind) = (bytes.len(), cut + removed);
    if inserted == removed {
        before(bytes.data_mut());
        return Ok(());
    }
    let nearer_front = cut < len - behind;
    if let Some(more) = inserted.checked_sub(removed) {
        let in_front = more <= bytes.headroom() && (nearer_front || more > bytes.tailroom());
        if in_front {
            bytes.push_front(more)?;
            let data = bytes.data_mut();
            before(&mut data[more..]);
            data.copy_within(more..more + cut, 0);
        } else {
            bytes.extend(more)?;
            let data = bytes.data_mut();
            before(&mut data[..len]);
            data.copy_within(behind..len, cut + inserted);
        }
        return Ok(());
    }
    let less = removed - inserted;
    let data = bytes.data_mut();
    before(data);
    if nearer_front {
        data.copy_within(..cut, less);
        bytes.pull_front(less)?;
    } else {
        data.copy_within(behind.., cut + inserted);
        bytes.truncate(len - less);
    }
    Ok(())
}
