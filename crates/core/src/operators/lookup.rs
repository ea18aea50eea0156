//! The operator that waits on memory: it splits the chain into loops over the batch.
//!
//! The first loop runs all earlier operators, computes key and hash, and asks for the first memory. The
//! second loop reads that, and asks for more. The last loop gets the entry, and runs `visit` and all later
//! operators. Keys wait by slot, together with stacks that cannot be computed again from the frame alone;
//! nothing allocates.
//!
//! Rare cases have no code in the loops that most batches run, since all code in a loop takes registers. The
//! first loop stops at the first frame of an unusual shape, and a loop for all shapes goes on from there. A
//! batch that needed that loop has a last loop for all shapes too. New flows leave the last loop, and get a
//! second pass each.

use std::cell::RefMut;
use std::hash::Hash;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::ops::DerefMut;

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

/// Entries looked at for each packet of a batch, to end those that are due.
///
/// The number bounds the work, however many are due. It is large enough that entries end about as fast as
/// they come, even where every packet begins a flow.
const EXPIRE: usize = 8;

/// A table with entries that end by themselves.
pub trait Expiring {
    /// Ends entries that are due at `now` (ns), as many as a batch of so many packets has time for.
    ///
    /// It ends more entries than packets come, at every batch size. So what a full table refuses does not
    /// depend on the batch size.
    fn expire(&mut self, now: u64, packets: usize);
}

impl<K: Key + Encode, V: Encode + 'static> Expiring for FlowTable<K, V> {
    #[inline(always)]
    fn expire(&mut self, now: u64, packets: usize) {
        // So even the smallest batch has room for its first flow.
        for _ in 0..(packets * EXPIRE).div_ceil(MAXIMUM_WORK) {
            Self::expire(self, now, MAXIMUM_WORK);
            if !self.is_due() {
                break;
            }
        }
    }
}

/// Ends up to eight routes a batch whose lifetime is over. Packets bring no new ones.
///
/// A route still decides until it is ended.
impl<V: Copy + Eq + Hash + 'static> Expiring for Routes<V> {
    #[inline(always)]
    fn expire(&mut self, now: u64, _: usize) {
        if self.is_due(now) {
            cold_path();
            Self::expire(self, now, MAXIMUM_WORK);
        }
    }
}

/// The code that visits an entry: an author's function, or [two](HitOrElse).
#[doc(hidden)]
pub trait Visitor<S, T: Table, M>: 'static {
    /// Called before the first packet of each batch.
    #[inline(always)]
    fn begin(&mut self) {}
    /// Says that a packet with this key comes later in this batch, and seems not to be in the table.
    #[inline(always)]
    fn expect(&mut self, _key: &T::Key) {}
    /// Visits the entry inside the loop over the batch.
    ///
    /// `None` where the work is too much for that loop; nothing has changed then.
    fn here(&mut self, view: &mut View<'_, S>, entry: T::Entry<'_>) -> Option<M>;
    /// Visits the entry outside the loop, for any amount of work.
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

/// State that the functions of a [`lookup_or`](Operator::lookup_or) share, and its calls before a batch's
/// packets.
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
    /// Called before the first packet of each batch.
    ///
    /// Other state that is read here stays the same for all packets of the batch.
    #[inline(always)]
    fn begin(&mut self) {}
    /// Says that a packet with this key comes later in this batch, and seems not to be in the table.
    ///
    /// It is the time to ask for memory that will be read then. The call is a hint: it may come for keys that
    /// the table has, or not for some that it lacks.
    #[inline(always)]
    fn expect(&mut self, _key: &K) {}
}

impl<K> LookupHooks<K> for Counter {}
impl<K> LookupHooks<K> for () {}

/// One function for known flows in simple cases, another for all other packets, and the state that both
/// share.
#[doc(hidden)]
pub struct HitOrElse<X, H, U>(pub(crate) X, pub(crate) H, pub(crate) U);

/// The operator of [`Operator::lookup_or`].
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

/// A table's owner, which lends the table to a lookup.
#[doc(hidden)]
pub trait Lender<T: Table>: 'static {
    type Lent<'l>: DerefMut<Target = T>
    where
        Self: 'l;
    fn lend(&mut self) -> Self::Lent<'_>;
    /// Says that the batch has ended.
    fn finish(&mut self);
}

/// The function's other code has the state too, between two packets.
impl<T: Table> Lender<T> for State<T> {
    type Lent<'l> = RefMut<'l, T>;
    #[inline(always)]
    fn lend(&mut self) -> RefMut<'_, T> {
        self.borrow_mut()
    }
    #[inline(always)]
    fn finish(&mut self) {}
}

/// Looks up each packet of a batch in a table.
pub struct Lookup<A: Operator, T: Table, Q, K, U, M, L = State<T>> {
    input: A,
    table: L,
    key: K,
    visit: U,
    waiting: Box<[Waiting<A, T>; BATCH]>,
    missed: Box<Missed>,
    types: PhantomData<fn() -> (Q, M)>,
}

/// A packet that waits, in whole cache lines.
#[repr(C, align(64))]
struct Waiting<A: Operator, T: Table> {
    /// The table's findings so far.
    ticket: T::Ticket,
    parked: Parked<T>,
    /// The stack of packets that are [`Parked::Stacked`].
    ///
    /// It is the last field, so that other packets with keys of up to five words touch no cache line of it.
    stack: Option<Packed<A>>,
}

/// The part of a packet that waits.
enum Parked<T: Table> {
    /// Nothing: the packet left before, or is not for this operator.
    Gone(Verdict),
    /// A short key. The frame has the usual [shape](shape), so its stack can be computed again.
    V4(T::Short),
    /// As `V4`, for a frame behind a tag.
    TaggedV4(T::Short),
    /// A key. The frame is of IPv6, so its stack can be computed again.
    V6(T::Key),
    /// A key. The stack waits as well.
    Stacked(T::Key),
}

impl<T: Table> Parked<T> {
    /// A key that waits without its stack, if that can be computed again from a frame of this shape.
    ///
    /// The shape is not [`V4`](shape::V4).
    #[inline(always)]
    fn shaped<const SHAPE: u8>(key: &T::Key) -> Option<Self> {
        match SHAPE {
            shape::TAGGED_V4 => T::shorten(key).map(Self::TaggedV4),
            shape::V6 => Some(Self::V6(*key)),
            _ => None,
        }
    }

    /// The key, if it is short and its frame has this shape: the usual one, or any.
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

    /// The table's entry for keys that are not [short in this shape](Self::short_in), and their frame's
    /// shape.
    #[inline(always)]
    fn resolve_rarer<'t>(
        &self,
        shape: u8,
        table: &'t mut T,
        ticket: T::Ticket,
    ) -> Option<(T::Entry<'t>, u8)> {
        match self {
            // The loop already looked for short keys, and `visit` may have declined them: it sees a packet
            // once here.
            Self::Stacked(key) if shape == shape::ANY && T::shorten(key).is_none() => {
                Some((table.resolve_there(key, ticket)?, shape::ANY))
            }
            Self::TaggedV4(short) => Some((table.resolve_here(*short, ticket)?, shape::TAGGED_V4)),
            Self::V6(key) => Some((table.resolve_there(key, ticket)?, shape::V6)),
            _ => None,
        }
    }
}

/// The question to a table about a packet. A batch that is not mixed has no long keys.
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

/// Parks one packet: runs the operators before this one, then computes the key.
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
    // Each way writes its own fields in place. A `Result` that is built first and then copied costs 4 ns a
    // packet (narrow stores are read back wide before they have left the store buffer).
    match input.apply::<SHAPE>(at.again(), stack) {
        Ok(stack) => {
            let key = key(&View::new(at.bytes, &stack, at.cx, at.slot)).store();
            *ticket = T::hash(hasher, &key);
            // Written in place: an `Option` here would copy a word of the long keys too.
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

/// Parks the packets of a batch from this slot on, of any shape.
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

/// The shape of frames that the last loop looks for first; other shapes are rarer.
const fn first_shape<A: Operator>() -> u8 {
    if A::FAST_PATH && A::REPARSES { shape::V4 } else { shape::ANY }
}

type Packed<A> = <<A as Operator>::Out as Stack>::Packed;

impl<A: Operator, T: Table, Q, K, U, M, L> Lookup<A, T, Q, K, U, M, L>
where
    U: Visitor<A::Out, T, M>,
    L: Lender<T>,
{
    const HERE: u8 = first_shape::<A>();

    pub(crate) fn new(input: A, table: L, key: K, visit: U) -> Self {
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

    /// Prefetches the memory where the packets' flows seem to be.
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

    /// Visits the entry that the ticket found.
    #[inline(always)]
    fn visit(at: PacketCursor<'_, '_>, stack: A::Out, visit: &mut U, entry: T::Entry<'_>) -> Known<A, M> {
        let mut view = View::new(at.bytes, &stack, at.cx, at.slot);
        let value = visit.anywhere(&mut view, entry);
        *at.reshaped |= view.reshaped;
        With { outer: stack, value }
    }

    /// Visits the entry that the ticket found, where that takes little work.
    #[inline(always)]
    fn here(at: PacketCursor<'_, '_>, stack: &A::Out, visit: &mut U, entry: T::Entry<'_>) -> Option<M> {
        let mut view = View::new(at.bytes, stack, at.cx, at.slot);
        let value = visit.here(&mut view, entry)?;
        *at.reshaped |= view.reshaped;
        Some(value)
    }

    /// The stack of a packet that has waited: computed again from a frame of a usual shape, or unpacked.
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

    /// Visits the entry of any packet that waits, such as one with a new flow or an unusual frame.
    ///
    /// It is out of line, so that the loop contains all of this once, with constants.
    #[inline(never)]
    fn resolve_any(
        at: PacketCursor<'_, '_>,
        stack: A::Out,
        visit: &mut U,
        table: &mut L,
        key: T::Key,
        ticket: T::Ticket,
    ) -> M {
        let mut table = table.lend();
        let entry = table.resolve(key, ticket);
        Self::visit(at, stack, visit, entry).value
    }
}

/// Reached only by a packet that `prepare` did not see.
#[cold]
#[inline(never)]
fn unparked() -> ! {
    panic!("a packet came to a lookup's second half without its first")
}

impl<A, T, Q, K, U, M, L> Operator for Lookup<A, T, Q, K, U, M, L>
where
    A: Operator,
    T: Table + Expiring,
    L: Lender<T>,
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
            let mut table = table.lend();
            table.tell(cx.now());
            table.expire(cx.now(), batch.len());
            table.hasher()
        };
        // Until the first packet of an unusual shape.
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
            Self::prefetch::<false>(&table.lend(), waiting, missed, batch.len());
        } else {
            Self::prefetch::<true>(&table.lend(), waiting, missed, batch.len());
        }
        for slot in missed.iter() {
            if let Ok((key, _)) = waiting[slot].parked.key() {
                table.lend().prefetch_missed(&key);
                // The author's code: it may ask the table too.
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
            // Nothing is computed that the user function does not read. So the stack comes last, and
            // separately in each branch: a stack that both branches use would be in memory for both.
            if let Some(short) = parked.short_in(Self::HERE)
                && let Some(entry) = table.lend().resolve_here(short, *ticket)
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
            if let Some((entry, shape)) = parked.resolve_rarer(Self::HERE, &mut *table.lend(), *ticket) {
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
        // This is alone in a function of its own, which has no loop to keep small.
        let (key, shape) = parked.key()?;
        let stack = Self::find(input, *waits, at.bytes.data(), first, shape);
        let mut table = table.lend();
        // No loop has looked for packets whose stacks had to wait. Most of the others are new flows.
        let entry = match parked {
            Parked::Stacked(_) => table.resolve(key, *ticket),
            _ => table.resolve_elsewhere(key),
        };
        Ok(Self::visit(at, stack, visit, entry))
    }
    #[inline(always)]
    fn finish(&mut self) {
        self.input.finish();
        self.table.finish();
    }
    fn edges(&self, visit: &mut dyn FnMut(Edge)) {
        self.input.edges(visit);
    }
}
