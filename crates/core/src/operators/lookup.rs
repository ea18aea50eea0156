//! The operator that waits on memory: it splits the tower into loops over the batch.
//!
//! First loop: everything before it, then key and hash, and the memory that is looked at first is asked for. Second
//! loop: what was found tells what else to ask for. Last loop: the entry, `visit`, and everything after. Keys wait by
//! slot, and stacks where they can't be had again from the frame alone; nothing allocates.

use std::hint::{black_box, cold_path};
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
    parked: Box<[Parked<T>; BATCH]>,
    /// What the table has said so far of packets that are parked. Apart, so that a loop over them need not look at the rest.
    tickets: Box<[T::Ticket; BATCH]>,
    /// Of packets that are [`Parked::Stacked`].
    stacks: Box<[Option<Packed<A>>]>,
    types: PhantomData<fn() -> (Q, M)>,
}

/// What waits of a packet.
enum Parked<T: Table> {
    /// Nothing: it left before, or is not ours.
    Gone(Verdict),
    /// Its key; its stack can be had again.
    Usual(T::Key),
    /// Its key, and its stack waits as well.
    Stacked(T::Key),
}

impl<T: Table> Parked<T> {
    #[inline(always)]
    fn key(&self) -> Option<&T::Key> {
        match self {
            Self::Usual(key) | Self::Stacked(key) => Some(key),
            Self::Gone(_) => None,
        }
    }
}

/// Parks one packet: what is before the operator, then its key.
#[expect(
    clippy::too_many_arguments,
    reason = "put together they would be written to memory for every packet"
)]
#[inline(always)]
fn park<const USUAL: bool, A, T, Q, K>(
    input: &mut A,
    key: &mut K,
    announcer: &T::Announcer,
    parked: &mut Parked<T>,
    ticket: &mut T::Ticket,
    stacks: &mut [Option<Packed<A>>],
    at: At<'_, '_>,
    stack: A::In,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    let mut at = at;
    // Each way writes its own fields in place: one `Result` built first and copied in costs 4 ns a packet
    // (narrow stores read back wide before they have left the store buffer).
    match input.apply::<USUAL>(at.again(), stack) {
        Ok(stack) => {
            let key = key(&View::new(at.bytes, &stack, at.cx, at.slot)).store();
            *ticket = T::announce(announcer, &key);
            *parked = if USUAL && A::RETRACES {
                Parked::Usual(key)
            } else {
                if let Some(waiting) = stacks.get_mut(at.slot) {
                    *waiting = Some(stack.pack());
                }
                Parked::Stacked(key)
            };
        }
        Err(verdict) => *parked = Parked::Gone(verdict),
    }
}

/// As [`park`], for frames that are not usual: out of line, so that the loop for those that are has constants.
#[expect(clippy::too_many_arguments, reason = "as of `park`")]
#[inline(never)]
fn park_any<A, T, Q, K>(
    input: &mut A,
    key: &mut K,
    announcer: &T::Announcer,
    parked: &mut Parked<T>,
    ticket: &mut T::Ticket,
    stacks: &mut [Option<Packed<A>>],
    at: At<'_, '_>,
    stack: A::In,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    park::<false, A, T, Q, K>(input, key, announcer, parked, ticket, stacks, at, stack);
}

type Packed<A> = <<A as Operator>::Out as Stack>::Packed;

impl<A: Operator, T: Table, Q, K, U, M> Lookup<A, T, Q, K, U, M> {
    pub(crate) fn new(input: A, table: State<T>, key: K, visit: U) -> Self {
        let parked = Box::new(std::array::from_fn(|_| Parked::Gone(Verdict::ELSEWHERE)));
        let (tickets, stacks) = (Box::new([T::Ticket::default(); BATCH]), [None; BATCH].into());
        Self { input, table, key, visit, parked, tickets, stacks, types: PhantomData }
    }

    /// What the ticket found.
    #[inline(always)]
    fn visit(at: At<'_, '_>, stack: Waiting<'_, A>, visit: &mut U, entry: T::Entry<'_>) -> Known<A, M>
    where
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M,
    {
        let stack = stack.find(at.bytes.data());
        let mut view = View::new(at.bytes, &stack, at.cx, at.slot);
        let value = visit(&mut view, entry);
        *at.reshaped |= view.reshaped;
        With { outer: stack, value }
    }

    /// A new flow, say, or no room for one.
    #[inline(never)]
    fn visit_out_of_line(at: At<'_, '_>, stack: Waiting<'_, A>, visit: &mut U, entry: T::Entry<'_>) -> M
    where
        U: FnMut(&mut View<'_, A::Out>, T::Entry<'_>) -> M,
    {
        Self::visit(at, stack, visit, entry).value
    }
}

/// What is known of a packet that has waited.
struct Waiting<'w, A: Operator> {
    input: &'w A,
    first: A::In,
    /// If it waited too.
    packed: Option<&'w Option<Packed<A>>>,
}

impl<A: Operator> Waiting<'_, A> {
    /// Unpacked, or found out again from the frame: what nobody looks at isn't.
    #[inline(always)]
    fn find(&self, frame: &[u8]) -> A::Out {
        let packed = self.packed.copied().flatten().map(A::Out::unpack);
        let Some(stack) = packed.or_else(|| self.input.retrace(frame, self.first)) else { unparked() };
        stack
    }
}

/// Only for a packet that `prepare` did not see.
#[cold]
#[inline(never)]
fn unparked() -> ! {
    panic!("a packet came to a lookup's second half without its first")
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
        let Self { input, table, key, parked, tickets, stacks, .. } = self;
        let announcer = {
            let mut table = table.borrow_mut();
            table.tell(cx.now());
            table.expire(cx.now(), EXPIRE);
            table.announcer()
        };
        let places = parked.iter_mut().zip(tickets.iter_mut());
        batch.each_beside(places, |slot, bytes, (parked, ticket)| {
            let Some(stack) = inputs(slot) else {
                *parked = Parked::Gone(Verdict::ELSEWHERE);
                return;
            };
            let mut shape = false;
            if !A::USUAL {
                let at = At::new(slot, bytes, &mut *cx, &mut shape);
                return park::<false, A, T, Q, K>(input, key, &announcer, parked, ticket, stacks, at, stack);
            }
            match Usual::of(bytes.data()) {
                Some(usual) => {
                    let at = At { usual, ..At::new(slot, bytes, &mut *cx, &mut shape) };
                    park::<true, A, T, Q, K>(input, key, &announcer, parked, ticket, stacks, at, stack);
                }
                None => {
                    cold_path();
                    At::new(slot, bytes, &mut *cx, &mut shape).apart(|at| {
                        park_any::<A, T, Q, K>(input, key, &announcer, parked, ticket, stacks, at, stack)
                    });
                }
            }
        });
        let keys = parked.iter().map(Parked::key);
        table.borrow().approach_all(keys.zip(tickets.iter_mut()).take(batch.len()));
    }

    #[inline(always)]
    fn apply<const USUAL: bool>(&mut self, at: At<'_, '_>, first: A::In) -> Result<Self::Out, Verdict> {
        let Self { input, table, visit, parked, tickets, stacks, .. } = self;
        let (key, packed) = match &parked[at.slot % BATCH] {
            Parked::Usual(key) => (key, None),
            // The slot's number comes from memory: the loop would else carry the place of the next stack.
            Parked::Stacked(key) => {
                cold_path();
                (key, stacks.get(black_box(at.slot)))
            }
            Parked::Gone(verdict) => {
                cold_path();
                return Err(*verdict);
            }
        };
        let waiting = Waiting { input: &*input, first, packed };
        let mut table = table.borrow_mut();
        // The stack is found on either way, not before they part: what the usual one doesn't look at isn't found there,
        // and a call on the other one would keep all of it in memory for both.
        if let Some(entry) = table.resolve_here(key, tickets[at.slot % BATCH]) {
            return Ok(Self::visit(at, waiting, visit, entry));
        }
        let known = waiting.find(at.bytes.data());
        let entry = table.resolve_elsewhere(key);
        let value = at.apart(|at| Self::visit_out_of_line(at, waiting, visit, entry));
        Ok(With { outer: known, value })
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
