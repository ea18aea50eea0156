//! The operator that looks up a batch in the copy of a table that one writer keeps for readers.
//!
//! The first step computes keys and hashes, and prefetches memory, as [`Lookup`](super::Lookup) does. The
//! second step reads the rest of the memory and every value in one read. Then `visit` and all later operators
//! run, packet by packet.
//!
//! Values are copied out, so that no read is open while user functions run, and each of these may write.
//! Later packets see this worker's own writes meanwhile: their values are then read again.

use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, With, shape};
use netbricks_tables::{Missed, ReadTable, Table};

use super::Replaces;
use crate::consistency::{Access, Bounded, Contents, Shown};
use crate::context::Context;
use crate::operator::{Known, Operator};
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, Verdict};
use crate::state::TableKey;
use crate::view::View;

/// Looks up each packet of a batch in a table that a writer keeps for readers.
pub struct LookupShown<A: Operator, T: ReadTable + Contents, Q, K, U, M> {
    input: A,
    table: Bounded<T>,
    key: K,
    visit: U,
    parked: Box<[Result<Parked<A, T>, Verdict>]>,
    /// The number of this worker's writes when the values were read.
    written: u64,
    types: PhantomData<fn() -> (Q, M)>,
}

/// The part of a packet that waits.
struct Parked<A: Operator, T: ReadTable> {
    stack: <A::Out as Stack>::Packed,
    key: <T as Table>::Key,
    ticket: T::Ticket,
    value: Option<T::Value>,
}

impl<A: Operator, T: ReadTable + Contents, Q, K, U, M> LookupShown<A, T, Q, K, U, M> {
    pub(crate) fn new(input: A, table: Bounded<T>, key: K, visit: U) -> Self {
        let parked = std::iter::repeat_with(|| Err(Verdict::ELSEWHERE)).take(BATCH).collect();
        Self { input, table, key, visit, parked, written: 0, types: PhantomData }
    }
}

impl<A, T, Q, K, U, M> Operator for LookupShown<A, T, Q, K, U, M>
where
    A: Operator,
    T: Shown,
    Q: TableKey<Stored = <T as Table>::Key>,
    M: Copy + 'static,
    K: FnMut(&View<'_, A::Out>) -> Q + 'static,
    U: FnMut(&mut View<'_, A::Out>, T::Seen<'_>) -> M + 'static,
{
    type In = A::In;
    type Out = Known<A, M>;
    const WAITS: bool = true;
    const MAY_DEFER: bool = false;
    const FAST_PATH: bool = A::FAST_PATH;
    const REPLACES: Replaces = A::REPLACES;

    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.input.prepare(batch, cx, inputs);
        let Self { input, table, key, parked, written, .. } = self;
        let hasher = table.read(Table::hasher);
        let parked = &mut parked[..batch.len()];
        batch.each(|slot, bytes| {
            let Some(place) = parked.get_mut(slot) else { return };
            let Some(stack) = inputs(slot) else {
                *place = Err(Verdict::ELSEWHERE);
                return;
            };
            *place = input
                .apply::<{ shape::ANY }>(PacketCursor::new(slot, &mut *bytes, &mut *cx, &mut false), stack)
                .map(|stack| {
                    let key = key(&View::new(bytes, &stack, cx, slot)).store();
                    Parked { stack: stack.pack(), ticket: T::hash(&hasher, &key), key, value: None }
                });
        });
        *written = table.written();
        let now = cx.now();
        table.read(|table| {
            let parked_keys = parked.iter_mut().flatten();
            let asked = parked_keys.map(|Parked { key, ticket, .. }| (Some(&*key), ticket));
            // A reader adds no entries, so nothing is prefetched for that.
            table.prefetch_all(asked, &mut Missed::none());
            for Parked { key, ticket, value, .. } in parked.iter_mut().flatten() {
                *value = table.show(key, *ticket, now);
            }
        });
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, at: PacketCursor<'_, '_>, _: A::In) -> Result<Self::Out, Verdict> {
        let Self { table, visit, parked, written, .. } = self;
        let parked = parked[at.slot].as_mut().map_err(|verdict| *verdict)?;
        let now = at.cx.now();
        if table.written() != *written {
            parked.value = table.read(|table| table.show(&parked.key, parked.ticket, now));
        }
        let stack = A::Out::unpack(parked.stack);
        let mut view = View::new(at.bytes, &stack, at.cx, at.slot);
        let value = visit(&mut view, T::shown(parked.value.as_ref(), parked.key, table, now));
        *at.reshaped |= view.reshaped;
        Ok(With { outer: stack, value })
    }
    #[inline(always)]
    fn finish(&mut self) {
        self.input.finish();
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
