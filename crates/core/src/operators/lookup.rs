//! The operator that waits on memory: it splits the tower into loops over the batch.
//!
//! First loop: everything before it, then key and hash, and the memory that is looked at first is asked for. Second
//! loop: what was found tells what else to ask for. Last loop: the entry, `visit`, and everything after. Stack and key
//! wait by slot; nothing allocates.

use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, With};
use netbricks_tables::{Encode, FlowTable, Key, Table};

use crate::context::Context;
use crate::operator::{At, Known, Operator};
use crate::operators::simple::dispatched;
use crate::reason::{Edge, Verdict};
use crate::state::{State, TableKey};
use crate::view::View;

/// Entries that one batch may move or expire: bounded, whatever was due.
const EXPIRE: usize = 64;

/// A table with entries that end by themselves.
pub trait Expiring {
    /// Ends entries that are due at `now` (ns), looking at `budget` at most.
    fn expire(&mut self, now: u64, budget: usize);
}

impl<K: Key + Encode, V: Encode + 'static> Expiring for FlowTable<K, V> {
    #[inline(always)]
    fn expire(&mut self, now: u64, budget: usize) {
        Self::expire(self, now, budget);
    }
}

/// Looks up each packet of a batch in a table.
pub struct Lookup<A: Operator, T: Table, Q, K, U, M> {
    input: A,
    table: State<T>,
    key: K,
    visit: U,
    parked: Box<[Parked<A, T>]>,
    types: PhantomData<fn() -> (Q, M)>,
}

/// What waits of a packet: its stack, its key, and what the table said so far.
type Parked<A, T> =
    Result<(<<A as Operator>::Out as Stack>::Packed, <T as Table>::Key, <T as Table>::Ticket), Verdict>;

impl<A: Operator, T: Table, Q, K, U, M> Lookup<A, T, Q, K, U, M> {
    pub(crate) fn new(input: A, table: State<T>, key: K, visit: U) -> Self {
        let parked = std::iter::repeat_with(|| Err(Verdict::ELSEWHERE)).take(BATCH).collect();
        Self { input, table, key, visit, parked, types: PhantomData }
    }
}

impl<A, T, Q, K, U, M> Operator for Lookup<A, T, Q, K, U, M>
where
    A: Operator,
    T: Table + Expiring,
    Q: TableKey<Stored = T::Key>,
    M: Copy + 'static,
    K: FnMut(&View<'_, A::Out>) -> Q + 'static,
    U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M + 'static,
{
    type In = A::In;
    type Out = Known<A, M>;
    const WAITS: bool = true;
    const USUAL: bool = A::USUAL;

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.input.prepare(batch, cx, inputs);
        let Self { input, table, key, parked, .. } = self;
        table.borrow_mut().expire(cx.now(), EXPIRE);
        let parked = &mut parked[..batch.len()];
        batch.each(|slot, bytes| {
            let Some(place) = parked.get_mut(slot) else { return };
            let Some(stack) = inputs(slot) else {
                *place = Err(Verdict::ELSEWHERE);
                return;
            };
            // Each way writes its own fields in place: one `Result` built first and copied in costs 4 ns a packet
            // (narrow stores read back wide before they have left the store buffer).
            let at = At::new(slot, &mut *bytes, &mut *cx);
            match dispatched(input, at, stack) {
                Ok(stack) => {
                    let key =
                        key(&View { data: bytes.data_mut(), stack: &stack, cx: &mut *cx, slot }).store();
                    // Borrowed only now: an operator before this one may look into the same table.
                    let ticket = table.borrow().announce(&key);
                    *place = Ok((stack.pack(), key, ticket));
                }
                Err(verdict) => *place = Err(verdict),
            }
        });
        let table = table.borrow();
        for (_, key, ticket) in parked.iter_mut().flatten() {
            table.approach(key, ticket);
        }
    }

    #[inline(always)]
    fn apply<const USUAL: bool>(&mut self, at: At<'_, '_>, _: A::In) -> Result<Self::Out, Verdict> {
        let Self { table, visit, parked, .. } = self;
        let (packed, key, ticket) = parked[at.slot].as_ref().map_err(|verdict| *verdict)?;
        let stack = A::Out::unpack(*packed);
        let now = at.cx.now();
        let mut table = table.borrow_mut();
        let entry = table.resolve(*key, *ticket, now);
        let value = visit(
            &mut View { data: at.bytes.data_mut(), stack: &stack, cx: &mut *at.cx, slot: at.slot },
            entry,
        );
        Ok(With { outer: stack, value })
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
