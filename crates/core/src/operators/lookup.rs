//! The operator that waits on memory: it splits the chain into loops over the batch.
//!
//! First loop: everything before it, then key and hash, and the memory that is looked at first is asked for. Second
//! loop: what was found tells what else to ask for. Last loop: the entry, `visit`, and everything after. Keys wait by
//! slot, and with them stacks that can't be had again from the frame alone; nothing allocates.
//!
//! What is rare has no code in the loops that most batches run, since all of it would take registers there: the first stops
//! at the first frame of another shape than most, from which on a loop for all shapes goes on, and a batch that needed that
//! one has a last loop for all shapes too. New flows leave the last loop, for a second pass each.

use std::hash::Hash;
use std::hint::cold_path;
use std::marker::PhantomData;

use netbricks_buffer::{BATCH, Batch};
use netbricks_packet::stack::{Stack, Usual, With, shape};
use netbricks_tables::{Asked, Encode, Entry, FlowTable, Key, MAXIMUM_WORK, Missed, Routes, Table};

use super::Replaces;
use crate::context::Context;
use crate::operator::{Known, Operator};
use crate::packet_cursor::{PacketCursor, Pass};
use crate::reason::{Edge, Verdict};
use crate::state::{Counter, State, TableKey};
use crate::view::View;

/// Entries that may be looked at for each packet of a batch to end those that are due: bounded, whatever is due, and enough that
/// hardly more come than end where every packet begins a flow.
const EXPIRE: usize = 8;

/// A table with entries that end by themselves.
pub trait Expiring {
    /// Ends entries that are due at `now` (ns), as many as a batch of so many packets has time for: more than packets come, whatever
    /// the size of batches, so that what a full table refuses does not depend on it.
    fn expire(&mut self, now: u64, packets: usize);
}

impl<K: Key + Encode, V: Encode + 'static> Expiring for FlowTable<K, V> {
    #[inline(always)]
    fn expire(&mut self, now: u64, packets: usize) {
        // Of a batch however small there is room for its first flow then.
        for _ in 0..(packets * EXPIRE).div_ceil(MAXIMUM_WORK) {
            Self::expire(self, now, MAXIMUM_WORK);
            if !self.is_due() {
                break;
            }
        }
    }
}

/// Those whose lifetime is over, up to eight a batch: packets bring no new ones. Until its turn has come one still decides.
impl<V: Copy + Eq + Hash + 'static> Expiring for Routes<V> {
    #[inline(always)]
    fn expire(&mut self, now: u64, _: usize) {
        if self.is_due(now) {
            cold_path();
            Self::expire(self, now, MAXIMUM_WORK);
        }
    }
}

/// What is done with an entry: a function of the author's, or [two](HitOrElse).
#[doc(hidden)]
pub trait Visitor<S, T: Table, M>: 'static {
    /// Before the first packet of each batch.
    #[inline(always)]
    fn begin(&mut self) {}
    /// A packet with this key comes later in this batch, and the table seems not to have it.
    #[inline(always)]
    fn expect(&mut self, _key: &T::Key) {}
    /// In the loop over the batch. `None` where it takes more than belongs there: nothing has changed then.
    fn here(&mut self, view: &mut View<'_, S>, entry: T::Entry<'_>) -> Option<M>;
    /// Whatever it takes.
    fn anywhere(&mut self, view: &mut View<'_, S>, entry: T::Entry<'_>) -> M;
}

impl<S, T, M, U> Visitor<S, T, M> for U
where
    T: Table,
    U: FnMut(&mut View<'_, S>, T::Entry<'_>) -> M + 'static,
{
    #[inline(always)]
    fn here(&mut self, view: &mut View<'_, S>, entry: T::Entry<'_>) -> Option<M> {
        Some(self(view, entry))
    }
    #[inline(always)]
    fn anywhere(&mut self, view: &mut View<'_, S>, entry: T::Entry<'_>) -> M {
        self(view, entry)
    }
}

/// What the functions of a [`lookup_or`](Operator::lookup_or) share, and what it does ahead of a batch's packets.
///
/// ```
/// use netbricks_core::LookupHooks;
/// use netbricks_core::tables::prefetch;
///
/// /// A worker's thousand counters.
/// struct CounterArray(Vec<u64>);
///
/// impl LookupHooks<[u64; 1]> for CounterArray {
///     fn expect(&mut self, [number]: &[u64; 1]) {
///         prefetch(self.0.as_ptr().wrapping_add(*number as usize % 1_000));
///     }
/// }
/// ```
pub trait LookupHooks<K>: 'static {
    /// Before the first packet of each batch: what is read of other state here stays the same for all of them.
    #[inline(always)]
    fn begin(&mut self) {}
    /// A packet with this key comes later in this batch, and the table seems not to have it: the time to ask for memory
    /// that will be looked at then. A hint: it may come for keys that are there, or not for some that are not.
    #[inline(always)]
    fn expect(&mut self, _key: &K) {}
}

impl<K> LookupHooks<K> for Counter {}
impl<K> LookupHooks<K> for () {}

/// One function for flows that are known, another for what is not, or not so simple, and what is theirs.
#[doc(hidden)]
pub struct HitOrElse<X, H, U>(pub(crate) X, pub(crate) H, pub(crate) U);

/// What [`Operator::lookup_or`] makes.
pub type LookupOr<A, K, V, Q, F, X, H, U, M> = Lookup<A, FlowTable<K, V>, Q, F, HitOrElse<X, H, U>, M>;

impl<S, K, V, M, X, H, U> Visitor<S, FlowTable<K, V>, M> for HitOrElse<X, H, U>
where
    K: Key,
    X: LookupHooks<K>,
    H: FnMut(&mut X, &mut View<'_, S>, &mut V) -> Option<M> + 'static,
    U: FnMut(&mut X, &mut View<'_, S>, Entry<'_, K, V>) -> M + 'static,
{
    #[inline(always)]
    fn begin(&mut self) {
        self.0.begin();
    }
    #[inline(always)]
    fn expect(&mut self, key: &K) {
        self.0.expect(key);
    }
    #[inline(always)]
    fn here(&mut self, view: &mut View<'_, S>, entry: Entry<'_, K, V>) -> Option<M> {
        let Entry::Found(mut flow) = entry else { return None };
        let found = (self.1)(&mut self.0, view, flow.get_mut());
        if found.is_none() {
            cold_path();
            flow.forget_hit();
        }
        found
    }
    #[inline(always)]
    fn anywhere(&mut self, view: &mut View<'_, S>, entry: Entry<'_, K, V>) -> M {
        (self.2)(&mut self.0, view, entry)
    }
}

/// Looks up each packet of a batch in a table.
pub struct Lookup<A: Operator, T: Table, Q, K, U, M> {
    input: A,
    table: State<T>,
    key: K,
    visit: U,
    waiting: Box<[Waiting<A, T>; BATCH]>,
    missed: Box<Missed>,
    types: PhantomData<fn() -> (Q, M)>,
}

/// A packet that waits: in whole cache lines.
#[repr(C, align(64))]
struct Waiting<A: Operator, T: Table> {
    /// What the table has said so far.
    ticket: T::Ticket,
    parked: Parked<T>,
    /// Of packets that are [`Parked::Stacked`]. Last, so that with keys of up to five words the others touch no line of it.
    stack: Option<Packed<A>>,
}

/// What waits of a packet.
enum Parked<T: Table> {
    /// Nothing: it left before, or is not ours.
    Gone(Verdict),
    /// Its key, which is short; its frame is of the [shape](shape) that most have, and its stack can be had again.
    V4(T::Short),
    /// As `V4`, of another shape.
    TaggedV4(T::Short),
    /// Its key; its frame is of this shape, and its stack can be had again.
    V6(T::Key),
    /// Its key, and its stack waits as well.
    Stacked(T::Key),
}

impl<T: Table> Parked<T> {
    /// A key that waits without its stack, if that can be had again from a frame of this shape, which is not [`V4`](shape::V4).
    #[inline(always)]
    fn shaped<const SHAPE: u8>(key: &T::Key) -> Option<Self> {
        match SHAPE {
            shape::TAGGED_V4 => T::shorten(key).map(Self::TaggedV4),
            shape::V6 => Some(Self::V6(*key)),
            _ => None,
        }
    }

    /// The key, if it is short and the shape is this one: the most usual, or none.
    #[inline(always)]
    fn short_in(&self, shape: u8) -> Option<T::Short> {
        match self {
            Self::V4(short) if shape == shape::V4 => Some(*short),
            Self::Stacked(key) if shape == shape::ANY => T::shorten(key),
            _ => None,
        }
    }

    /// The key, if there is one, and the shape.
    #[inline(always)]
    fn key(&self) -> Result<(T::Key, u8), Verdict> {
        match self {
            Self::V4(short) => Ok((T::lengthen(*short), shape::V4)),
            Self::TaggedV4(short) => Ok((T::lengthen(*short), shape::TAGGED_V4)),
            Self::V6(key) => Ok((*key, shape::V6)),
            Self::Stacked(key) => Ok((*key, shape::ANY)),
            Self::Gone(verdict) => Err(*verdict),
        }
    }

    /// The verdict of a packet that is not for this loop.
    #[inline(always)]
    fn later(&self) -> Verdict {
        if let Self::Gone(verdict) = self { *verdict } else { Verdict::AGAIN }
    }

    /// What the table has where the ticket says for keys that are not [short in this shape](Self::short_in), and their shape.
    #[inline(always)]
    fn resolve_rarer<'t>(
        &self,
        shape: u8,
        table: &'t mut T,
        ticket: T::Ticket,
    ) -> Option<(T::Entry<'t>, u8)> {
        match self {
            // Short ones were looked for, and `visit` may have left them: it sees a packet once here.
            Self::Stacked(key) if shape == shape::ANY && T::shorten(key).is_none() => {
                Some((table.resolve_there(key, ticket)?, shape::ANY))
            }
            Self::TaggedV4(short) => Some((table.resolve_here(*short, ticket)?, shape::TAGGED_V4)),
            Self::V6(key) => Some((table.resolve_there(key, ticket)?, shape::V6)),
            _ => None,
        }
    }
}

/// What a table is asked for a packet; in a batch that is not mixed no key is long.
struct Asking<'p, T: Table, const ALIKE: bool>(&'p Parked<T>);

impl<T: Table, const ALIKE: bool> Asked<T::Key> for Asking<'_, T, ALIKE> {
    #[inline(always)]
    fn key(&self) -> Option<T::Key> {
        self.0.key().ok().map(|(key, _)| key)
    }
    #[inline(always)]
    fn long(&self) -> Option<&T::Key> {
        match self.0 {
            Parked::V6(key) | Parked::Stacked(key) if !ALIKE => Some(key),
            _ => None,
        }
    }
}

/// Parks one packet: what is before the operator, then its key.
#[inline(always)]
fn park<const SHAPE: u8, A, T, Q, K>(
    input: &mut A,
    key: &mut K,
    hasher: &T::Hasher,
    waiting: &mut Waiting<A, T>,
    at: PacketCursor<'_, '_>,
    stack: A::In,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    let mut at = at;
    let Waiting { ticket, parked, stack: waits } = waiting;
    // Each way writes its own fields in place: one `Result` built first and copied in costs 4 ns a packet
    // (narrow stores read back wide before they have left the store buffer).
    match input.apply::<SHAPE>(at.again(), stack) {
        Ok(stack) => {
            let key = key(&View::new(at.bytes, &stack, at.cx, at.slot)).store();
            *ticket = T::hash(hasher, &key);
            // In place: what comes by way of an `Option` brings a word of the long keys with it.
            if A::REPARSES
                && SHAPE == shape::V4
                && let Some(short) = T::shorten(&key)
            {
                *parked = Parked::V4(short);
                return;
            }
            *parked = if A::REPARSES
                && let Some(bare) = Parked::shaped::<SHAPE>(&key)
            {
                bare
            } else {
                *waits = Some(stack.pack());
                if first_shape::<A>() == shape::V4 || T::shorten(&key).is_none() {
                    at.cx.mixed = true;
                }
                Parked::Stacked(key)
            };
        }
        Err(verdict) => *parked = Parked::Gone(verdict),
    }
}

/// Parks the packets of a batch from this slot on, of whatever shape.
#[inline(never)]
fn park_rest<A, T, Q, K>(
    (batch, from): (&mut Batch, usize),
    cx: &mut Context,
    (input, key): (&mut A, &mut K),
    hasher: &T::Hasher,
    waiting: &mut [Waiting<A, T>; BATCH],
    inputs: &impl Fn(usize) -> Option<A::In>,
) where
    A: Operator,
    T: Table,
    Q: TableKey<Stored = T::Key>,
    K: FnMut(&View<'_, A::Out>) -> Q,
{
    batch.each_beside_while(from, waiting.iter_mut().skip(from), |slot, bytes, waiting| {
        let Some(stack) = inputs(slot) else {
            waiting.parked = Parked::Gone(Verdict::ELSEWHERE);
            return true;
        };
        let mut reshaped = false;
        let frame = bytes.data();
        let (v6, v4) = (Usual::of::<{ shape::V6 }>(frame), Usual::of::<{ shape::V4 }>(frame));
        let tagged = Usual::of::<{ shape::TAGGED_V4 }>(frame);
        let at = PacketCursor::new(slot, bytes, &mut *cx, &mut reshaped);
        // Where this loop runs, most frames are of IPv6 or behind a tag.
        if !A::FAST_PATH {
            park::<{ shape::ANY }, A, T, Q, K>(input, key, hasher, waiting, at, stack);
        } else if let Some(usual) = v6 {
            park::<{ shape::V6 }, A, T, Q, K>(
                input,
                key,
                hasher,
                waiting,
                PacketCursor { usual, ..at },
                stack,
            );
        } else if let Some(usual) = v4 {
            park::<{ shape::V4 }, A, T, Q, K>(
                input,
                key,
                hasher,
                waiting,
                PacketCursor { usual, ..at },
                stack,
            );
        } else if let Some(usual) = tagged {
            let at = PacketCursor { usual, ..at };
            park::<{ shape::TAGGED_V4 }, A, T, Q, K>(input, key, hasher, waiting, at, stack);
        } else {
            park::<{ shape::ANY }, A, T, Q, K>(input, key, hasher, waiting, at, stack);
        }
        true
    });
}

/// The shape of frames that the last loop looks for first: the others are rarer.
const fn first_shape<A: Operator>() -> u8 {
    if A::FAST_PATH && A::REPARSES { shape::V4 } else { shape::ANY }
}

type Packed<A> = <<A as Operator>::Out as Stack>::Packed;

impl<A: Operator, T: Table, Q, K, U, M> Lookup<A, T, Q, K, U, M>
where
    U: Visitor<A::Out, T, M>,
{
    const HERE: u8 = first_shape::<A>();

    pub(crate) fn new(input: A, table: State<T>, key: K, visit: U) -> Self {
        let none = |_| Waiting {
            ticket: T::Ticket::default(),
            parked: Parked::Gone(Verdict::ELSEWHERE),
            stack: None,
        };
        Self {
            input,
            table,
            key,
            visit,
            waiting: Box::new(std::array::from_fn(none)),
            missed: Box::new(Missed::none()),
            types: PhantomData,
        }
    }

    /// Looks where the packets' flows seem to be.
    #[inline(always)]
    fn prefetch<const ALIKE: bool>(
        table: &T,
        waiting: &mut [Waiting<A, T>; BATCH],
        missed: &mut Missed,
        packets: usize,
    ) {
        let asked = waiting.iter_mut().take(packets).map(|waiting| {
            let Waiting { ticket, parked, .. } = waiting;
            (Asking::<T, ALIKE>(parked), ticket)
        });
        table.prefetch_all(asked, missed);
    }

    /// What the ticket found.
    #[inline(always)]
    fn visit(at: PacketCursor<'_, '_>, stack: A::Out, visit: &mut U, entry: T::Entry<'_>) -> Known<A, M> {
        let mut view = View::new(at.bytes, &stack, at.cx, at.slot);
        let value = visit.anywhere(&mut view, entry);
        *at.reshaped |= view.reshaped;
        With { outer: stack, value }
    }

    /// What the ticket found, where that takes little.
    #[inline(always)]
    fn here(at: PacketCursor<'_, '_>, stack: &A::Out, visit: &mut U, entry: T::Entry<'_>) -> Option<M> {
        let mut view = View::new(at.bytes, stack, at.cx, at.slot);
        let value = visit.here(&mut view, entry)?;
        *at.reshaped |= view.reshaped;
        Some(value)
    }

    /// What is known of a packet that has waited: found out again from the frame, where that was usual, or unpacked.
    #[inline(always)]
    fn find(input: &A, waits: Option<Packed<A>>, frame: &[u8], first: A::In, shape: u8) -> A::Out {
        let stack = match shape {
            shape::V4 => input.retrace::<{ shape::V4 }>(frame, first),
            shape::TAGGED_V4 => input.retrace::<{ shape::TAGGED_V4 }>(frame, first),
            shape::V6 => input.retrace::<{ shape::V6 }>(frame, first),
            _ => waits.map(A::Out::unpack),
        };
        let Some(stack) = stack else { unparked() };
        stack
    }

    /// Any packet that waits: those with a new flow, say, and frames that are not usual. Out of line, so that all of this is
    /// in the loop once, with constants.
    #[inline(never)]
    fn resolve_any(
        at: PacketCursor<'_, '_>,
        stack: A::Out,
        visit: &mut U,
        table: &State<T>,
        key: T::Key,
        ticket: T::Ticket,
    ) -> M {
        let mut table = table.borrow_mut();
        let entry = table.resolve(key, ticket);
        Self::visit(at, stack, visit, entry).value
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
    U: Visitor<A::Out, T, M>,
{
    type In = A::In;
    type Out = Known<A, M>;
    const WAITS: bool = true;
    const MAY_DEFER: bool = true;
    const FAST_PATH: bool = A::FAST_PATH;
    const REPLACES: Replaces = A::REPLACES;

    #[inline(always)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<A::In>) {
        self.input.prepare(batch, cx, inputs);
        let Self { input, table, key, visit, waiting, missed, .. } = self;
        visit.begin();
        let hasher = {
            let mut table = table.borrow_mut();
            table.tell(cx.now());
            table.expire(cx.now(), batch.len());
            table.hasher()
        };
        // Until the first packet of another shape than most.
        let mut parked = 0;
        if A::FAST_PATH {
            parked = batch.each_beside_while(0, waiting.iter_mut(), |slot, bytes, waiting| {
                let Some(stack) = inputs(slot) else {
                    waiting.parked = Parked::Gone(Verdict::ELSEWHERE);
                    return true;
                };
                let Some(usual) = Usual::of::<{ shape::V4 }>(bytes.data()) else { return false };
                if Q::PORTS && !Usual::has_ports(bytes.data()) {
                    return false;
                }
                let mut reshaped = false;
                let at = PacketCursor { usual, ..PacketCursor::new(slot, bytes, &mut *cx, &mut reshaped) };
                park::<{ shape::V4 }, A, T, Q, K>(input, key, &hasher, waiting, at, stack);
                true
            });
        }
        if parked < batch.len() {
            cx.mixed = true;
            park_rest::<A, T, Q, K>((batch, parked), cx, (input, key), &hasher, waiting, inputs);
        }
        if cx.mixed {
            Self::prefetch::<false>(&table.borrow(), waiting, missed, batch.len());
        } else {
            Self::prefetch::<true>(&table.borrow(), waiting, missed, batch.len());
        }
        for slot in missed.iter() {
            if let Ok((key, _)) = waiting[slot].parked.key() {
                table.borrow().prefetch_missed(&key);
                // The author's: it may ask the table too.
                visit.expect(&key);
            }
        }
    }

    #[inline(always)]
    fn apply<const SHAPE: u8>(
        &mut self,
        at: PacketCursor<'_, '_>,
        first: A::In,
    ) -> Result<Self::Out, Verdict> {
        let Self { input, table, visit, waiting, .. } = self;
        let mut at = at;
        let Waiting { ticket, parked, stack: waits } = &waiting[at.slot % BATCH];
        if at.pass != Pass::Second {
            // What the user function does not look at is not found out: the stack comes last, and once for each way, since one
            // that goes both ways would be in memory for both.
            if let Some(short) = parked.short_in(Self::HERE)
                && let Some(entry) = table.borrow_mut().resolve_here(short, *ticket)
            {
                let stack = Self::find(input, *waits, at.bytes.data(), first, Self::HERE);
                if let Some(value) = Self::here(at.again(), &stack, visit, entry) {
                    return Ok(With { outer: stack, value });
                }
            }
            cold_path();
            if at.pass == Pass::Alike {
                return Err(parked.later());
            }
            if let Some((entry, shape)) = parked.resolve_rarer(Self::HERE, &mut *table.borrow_mut(), *ticket)
            {
                let stack = Self::find(input, *waits, at.bytes.data(), first, shape);
                if let Some(value) = Self::here(at.again(), &stack, visit, entry) {
                    return Ok(With { outer: stack, value });
                }
            }
            let (key, shape) = parked.key()?;
            if at.pass == Pass::First {
                return Err(Verdict::AGAIN);
            }
            let stack = Self::find(input, *waits, at.bytes.data(), first, shape);
            let value = at.apart(|at| Self::resolve_any(at, stack, visit, table, key, *ticket));
            return Ok(With { outer: stack, value });
        }
        // Alone in a function of its own, which has no loop to keep small.
        let (key, shape) = parked.key()?;
        let stack = Self::find(input, *waits, at.bytes.data(), first, shape);
        let mut table = table.borrow_mut();
        // Where stacks wait that can't be had again, no loop has looked for them; most of the others are new.
        let entry = match parked {
            Parked::Stacked(_) => table.resolve(key, *ticket),
            _ => table.resolve_elsewhere(key),
        };
        Ok(Self::visit(at, stack, visit, entry))
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
