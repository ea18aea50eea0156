//! The operator that looks up a batch in a table of all workers, under one lock.
//!
//! The first step computes keys and hashes, and prefetches memory, as [`Lookup`](super::Lookup) does. The
//! second step holds the lock: it reads the rest of the memory and every entry, and calls every `visit`, in
//! order. Then all later operators run; the results of `visit` wait by slot for them.

use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, With, shape};
use netbricks_tables::{Missed, Table};

use super::{Expiring, Replaces};
use crate::consistency::{Contents, StrictState};
use crate::context::Context;
use crate::operator::{Known, Operator};
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, Verdict};
use crate::state::TableKey;
use crate::view::View;

/// Looks up each packet of a batch in a table that workers share.
pub struct LookupLocked<A: Operator, T: Table + Contents, Q, K, U, M> {
    input: A,
    table: StrictState<T>,
    key: K,
    visit: U,
    parked: Box<[Parked<A, T>]>,
    /// The table's findings so far for each packet.
    tickets: Box<[T::Ticket]>,
    missed: Box<Missed>,
    /// The result of `visit`, where a packet is parked.
    found: Box<[Option<M>]>,
    types: PhantomData<fn() -> Q>,
}

type Parked<A, T> = Result<(<<A as Operator>::Out as Stack>::Packed, <T as Table>::Key), Verdict>;

impl<A: Operator, T: Table + Contents, Q, K, U, M: Copy> LookupLocked<A, T, Q, K, U, M> {
    pub(crate) fn new(input: A, table: StrictState<T>, key: K, visit: U) -> Self {
        let parked = std::iter::repeat_with(|| Err(Verdict::ELSEWHERE)).take(BATCH).collect();
        Self {
            input,
            table,
            key,
            visit,
            parked,
            tickets: vec![T::Ticket::default(); BATCH].into(),
            missed: Box::new(Missed::none()),
            found: vec![None; BATCH].into(),
            types: PhantomData,
        }
    }
}

impl<A, T, Q, K, U, M> Operator for LookupLocked<A, T, Q, K, U, M>
where
    A: Operator,
    T: Table + Expiring + Contents,
    Q: TableKey<Stored = T::Key>,
    M: Copy + 'static,
    K: FnMut(&View<'_, A::Out>) -> Q + 'static,
    U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static,
{
    type In = A::In;
    type Out = Known<A, M>;
    const WAITS: bool = true;
    const MAY_DEFER: bool = false;
    const FAST_PATH: bool = A::FAST_PATH;
    const REPLACES: Replaces = A::REPLACES;

    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.input.prepare(batch, cx, inputs);
        let Self { input, table, key, visit, parked, tickets, missed, found, .. } = self;
        let now = cx.now();
        let hasher = table.transact(|table| {
            table.tell(now);
            table.expire(now, batch.len());
            table.hasher()
        });
        let parked = &mut parked[..batch.len()];
        batch.each(|slot, bytes| {
            let (Some(place), Some(ticket)) = (parked.get_mut(slot), tickets.get_mut(slot)) else { return };
            let Some(stack) = inputs(slot) else {
                *place = Err(Verdict::ELSEWHERE);
                return;
            };
            *place = input
                .apply::<{ shape::ANY }>(PacketCursor::new(slot, &mut *bytes, &mut *cx, &mut false), stack)
                .map(|stack| {
                    let key = key(&View::new(bytes, &stack, cx, slot)).store();
                    *ticket = T::hash(&hasher, &key);
                    (stack.pack(), key)
                });
        });
        table.transact(|table| {
            let keys = parked.iter().map(|parked| parked.as_ref().ok().map(|(_, key)| key));
            table.prefetch_all(keys.zip(tickets.iter_mut()), missed);
            for (_, key) in missed.iter().filter_map(|slot| parked.get(slot)?.as_ref().ok()) {
                table.prefetch_missed(key);
            }
            batch.each(|slot, bytes| {
                let (Some(Ok((packed, key))), Some(found)) = (parked.get(slot), found.get_mut(slot)) else {
                    return;
                };
                let stack = A::Out::unpack(*packed);
                let entry = table.resolve(*key, tickets[slot]);
                *found = Some(visit(&mut View::new(bytes, &stack, cx, slot), entry));
            });
        });
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, at: PacketCursor<'_, '_>, _: A::In) -> Result<Self::Out, Verdict> {
        let (packed, ..) = self.parked[at.slot].as_ref().map_err(|verdict| *verdict)?;
        let value = self.found[at.slot].expect("`prepare` visits every packet that it parked");
        Ok(With { outer: A::Out::unpack(*packed), value })
    }
    #[inline(always)]
    fn finish(&mut self) {
        self.input.finish();
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
