//! The operator that waits on memory: it splits the tower into loops over the batch.
//!
//! First loop: everything before it, then key and hash, and the memory that is looked at first is asked for. Second
//! loop: what was found tells what else to ask for. Last loop: the entry, `visit`, and everything after. Stack and key
//! wait by slot; nothing allocates.

use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, Usual, With};
use netbricks_tables::{Encode, FlowTable, Key, Routes, Table};

use crate::context::Context;
use crate::operator::{At, Known, Operator};
use crate::reason::{Edge, Verdict};
use crate::state::{State, TableKey};
use crate::view::View;

/// Entries that one batch may move or expire: bounded, whatever was due.
pub(super) const EXPIRE: usize = 64;

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

/// Routes stay until somebody takes them out.
impl<V: 'static> Expiring for Routes<V> {
    #[inline(always)]
    fn expire(&mut self, _: u64, _: usize) {}
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

/// Parks one packet: what is before the operator, then its key.
#[inline(always)]
fn park<const USUAL: bool, A, T, Q, K>(
    input: &mut A,
    key: &mut K,
    announcer: &T::Announcer,
    place: &mut Parked<A, T>,
    at: At<'_, '_>,
    stack: A::In,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    let At { slot, bytes, cx, usual } = at;
    // Each way writes its own fields in place: one `Result` built first and copied in costs 4 ns a packet
    // (narrow stores read back wide before they have left the store buffer).
    match input.apply::<USUAL>(At { slot, bytes: &mut *bytes, cx: &mut *cx, usual }, stack) {
        Ok(stack) => {
            let key = key(&View::new(bytes, &stack, cx, slot)).store();
            let ticket = T::announce(announcer, &key);
            *place = Ok((stack.pack(), key, ticket));
        }
        Err(verdict) => *place = Err(verdict),
    }
}

/// As [`park`], for frames that are not usual: out of line, so that the loop for those that are has constants.
#[inline(never)]
fn park_any<A, T, Q, K>(
    input: &mut A,
    key: &mut K,
    announcer: &T::Announcer,
    place: &mut Parked<A, T>,
    at: At<'_, '_>,
    stack: A::In,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    park::<false, A, T, Q, K>(input, key, announcer, place, at, stack);
}

/// What waits of a packet: its stack, its key, and what the table said so far.
type Parked<A, T> =
    Result<(<<A as Operator>::Out as Stack>::Packed, <T as Table>::Key, <T as Table>::Ticket), Verdict>;

type Packed<A> = <<A as Operator>::Out as Stack>::Packed;

impl<A: Operator, T: Table, Q, K, U, M> Lookup<A, T, Q, K, U, M> {
    pub(crate) fn new(input: A, table: State<T>, key: K, visit: U) -> Self {
        let parked = std::iter::repeat_with(|| Err(Verdict::ELSEWHERE)).take(BATCH).collect();
        Self { input, table, key, visit, parked, types: PhantomData }
    }

    /// What the ticket found.
    #[inline(always)]
    fn visit((at, packed, visit): (At<'_, '_>, &Packed<A>, &mut U), entry: T::Entry<'_>) -> Known<A, M>
    where
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M,
    {
        let stack = A::Out::unpack(*packed);
        let value = visit(&mut View::new(at.bytes, &stack, at.cx, at.slot), entry);
        With { outer: stack, value }
    }

    /// Any other answer: a new flow, or no room for one.
    #[inline(always)]
    fn visit_elsewhere(
        (at, packed, visit): (At<'_, '_>, &Packed<A>, &mut U),
        entry: T::Entry<'_>,
    ) -> Known<A, M>
    where
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M,
    {
        let At { slot, bytes, cx, usual } = at;
        let value =
            bytes.apart(|bytes| Self::visit_out_of_line(At { slot, bytes, cx, usual }, packed, visit, entry));
        With { outer: A::Out::unpack(*packed), value }
    }

    #[inline(never)]
    fn visit_out_of_line(at: At<'_, '_>, packed: &Packed<A>, visit: &mut U, entry: T::Entry<'_>) -> M
    where
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M,
    {
        Self::visit((at, packed, visit), entry).value
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
        let announcer = {
            let mut table = table.borrow_mut();
            table.tell(cx.now());
            table.expire(cx.now(), EXPIRE);
            table.announcer()
        };
        let parked = &mut parked[..batch.len()];
        batch.each(|slot, bytes| {
            let Some(place) = parked.get_mut(slot) else { return };
            let Some(stack) = inputs(slot) else {
                *place = Err(Verdict::ELSEWHERE);
                return;
            };
            if !A::USUAL {
                let at = At::new(slot, bytes, &mut *cx);
                return park::<false, A, T, Q, K>(input, key, &announcer, place, at, stack);
            }
            match Usual::of(bytes.data()) {
                Some(usual) => {
                    cx.reshaped = false;
                    let at = At { usual, ..At::new(slot, bytes, &mut *cx) };
                    park::<true, A, T, Q, K>(input, key, &announcer, place, at, stack);
                }
                None => bytes.apart(|bytes| {
                    let at = At::new(slot, bytes, &mut *cx);
                    park_any::<A, T, Q, K>(input, key, &announcer, place, at, stack);
                }),
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
        let mut table = table.borrow_mut();
        // The stack is unpacked on either way, not before they part: what the usual one doesn't look at isn't unpacked
        // there, and a call on the other one would keep all of it in memory for both.
        let context = (at, packed, visit);
        Ok(table.resolve_with(key, *ticket, context, Self::visit, Self::visit_elsewhere))
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
