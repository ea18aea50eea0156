//! Operators that change a packet's size by inserting or removing a header.
//!
//! They update enclosing lengths, next-header numbers and header checksums.

use std::hint::cold_path;
use std::marker::PhantomData;

use netbricks_buffer::{Batch, Bytes, Offload};
use netbricks_packet::stack::{Follows, Header, Layer, Removable, Stack};
use zerocopy::{Immutable, IntoBytes};

use super::simple::parse_with_slack;
use super::{passes_on, upstream, view};
use crate::context::Context;
use crate::operator::{Operator, Parsed};
use crate::packet_cursor::PacketCursor;
use crate::reason::{DropReason, Edge, Verdict};
use crate::view::View;

/// A header that can be put into a packet: its fixed part, as it is on the wire.
pub trait Insertable: Header + Copy + IntoBytes + Immutable {}
impl<H: Header + Copy + IntoBytes + Immutable> Insertable for H {}

type TopOf<S> = <S as Stack>::Top;

/// Writes the new next-header number into the innermost header of `stack`, and its new length into every
/// header.
#[inline(always)]
fn restate<S: Stack>(stack: S, next: u16, by: isize, bytes: &mut Bytes<'_>) -> S {
    let stack = stack.announcing(next);
    let (at, facts) = stack.top();
    let end = stack.end();
    let is_cut = bytes.missing() > 0;
    let data = bytes.data_mut();
    if let Some(header) = data.get_mut(at..end) {
        TopOf::<S>::announce(TopOf::<S>::view_mut(header, facts), next);
    }
    if is_cut {
        cold_path();
        stack.restate_by(data, by);
    } else {
        stack.restate(data);
    }
    stack
}

/// Corrects the checksum offset that is left to the device, where all bytes from `from` on moved by `by`
/// bytes.
#[inline]
fn follow(bytes: &mut Bytes<'_>, from: usize, by: isize) {
    let offload = bytes.offload();
    let start = usize::from(offload.checksum_start);
    if offload.needs_checksum && start >= from {
        let checksum_start = start.saturating_add_signed(by).min(usize::from(u16::MAX)) as u16;
        bytes.set_offload(Offload { checksum_start, ..offload });
    }
}

/// Inserts a header. Enclosing headers move into the headroom.
///
/// Their offsets from the frame's start stay the same.
pub struct Insert<A, F, H>(A, F, PhantomData<fn() -> H>);
impl<A, F, H> Insert<A, F, H> {
    pub(crate) fn new(input: A, f: F) -> Self {
        Self(input, f, PhantomData)
    }
}
impl<A, F, H> Operator for Insert<A, F, H>
where
    A: Operator,
    H: Insertable + Follows<TopOf<A::Out>>,
    F: FnMut(&View<'_, A::Out>) -> H + 'static,
{
    type Out = Parsed<A, H>;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let outer = upstream!(self, at, stack);
        let header = (self.1)(&view!(at, outer));
        let (end, size) = (outer.end(), size_of::<H>());
        *at.reshaped = true;
        let longer = outer.resized(size as isize);
        if !longer.is_stateable() {
            return Err(Verdict::drop(DropReason::TooBig));
        }
        at.bytes.push_front(size).map_err(|_| Verdict::drop(DropReason::TooBig))?;
        follow(at.bytes, end, size as isize);
        let data = at.bytes.data_mut();
        data.copy_within(size..size + end, 0);
        data[end..end + size].copy_from_slice(header.as_bytes());
        let outer = restate(longer, H::NUMBERS[0], size as isize, at.bytes);
        // Parsed again rather than trusted: the closure may have written a length that is wrong.
        Layer::parse(outer, at.bytes.data())
            .ok()
            .or_else(|| parse_with_slack(outer, at.bytes))
            .ok_or(Verdict::drop(DropReason::Malformed))
    }
}

/// Removes the innermost header.
pub struct Remove<A>(pub(crate) A);
impl<A: Operator<Out: Removable>> Operator for Remove<A> {
    type Out = <A::Out as Removable>::Outer;
    passes_on!();
    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        mut at: PacketCursor<'_, '_>,
        stack: A::In,
    ) -> Result<Self::Out, Verdict> {
        let inner = upstream!(self, at, stack);
        let (outer, size) = (inner.without(), inner.size());
        let end = outer.end();
        *at.reshaped = true;
        at.bytes.data_mut().copy_within(..end, size);
        at.bytes.pull_front(size).map_err(|_| Verdict::drop(DropReason::Malformed))?;
        follow(at.bytes, end + size, -(size as isize));
        let by = -(size as isize);
        Ok(restate(outer.resized(by), inner.next(), by, at.bytes))
    }
}
