//! The trait of every operator, and the methods in which a function is written (NetBricks, section 3.1).
//!
//! Each operator wraps the one before as a type. So a whole function compiles into one loop over the batch,
//! and keeps the facts about a packet in registers. Parsing is lazy: it costs nothing until a later operator
//! reads the header.

use std::marker::PhantomData;

use netbricks_buffer::Batch;
use netbricks_packet::stack::{Follows, Forgettable, Header, Layer, Removable, Root, Stack, With};
use netbricks_tables::{Encode, Entry, FlowTable, Key, Table};

use crate::consistency::{Asked, Lookable};
use crate::context::Context;
use crate::operators::{
    Arm, Boundary, Branch, Divert, Filter, Forget, ForgetMetadata, GroupBy, HitOrElse, Insert, Insertable,
    InsideIp, Inspect, Lookup, LookupHooks, LookupOr, Map, Observe, Observed, Parse, Remove, Replaceable,
    Replacement, Replaces, Resize, SendTo, Substitute, Substituted, Then, Transform,
};
use crate::packet_cursor::PacketCursor;
use crate::reason::{Edge, OnMismatch, Verdict};
use crate::state::{State, TableKey};
use crate::view::View;

/// A chain of operators from stack `In` to stack `Out`.
///
/// | group | operators |
/// |---|---|
/// | headers | [`parse`](Self::parse), [`deparse`](Self::deparse), [`insert`](Self::insert), [`remove`](Self::remove), [`resize`](Self::resize), [`forget`](Self::forget) |
/// | per packet | [`inspect`](Self::inspect), [`transform`](Self::transform), [`map`](Self::map), [`forget_metadata`](Self::forget_metadata) |
/// | decisions | [`filter`](Self::filter), [`decide`](Self::decide), [`divert`](Self::divert) |
/// | state | [`lookup`](Self::lookup), [`lookup_or`](Self::lookup_or) |
/// | several ways | [`branch`](Self::branch), [`fork`](Self::fork), [`group_by`](Self::group_by) |
/// | composition and end | [`then`](Self::then), [`send`](Self::send), [`done`](Self::done) |
/// | for crates that add operators | [`observe`](Self::observe), [`substitute`](Self::substitute) |
///
/// `parse`, `filter` and `resize` take a [policy](OnMismatch) for packets that they do not match.
///
/// `apply` is the last loop over the batch. It sees a packet that a lookup puts off once more, alone.
/// `prepare` holds all earlier loops. It is empty unless an operator in the chain waits on memory, or the
/// chain has more functions than one loop holds. Both are inlined into one node.
///
/// This example uses most operators:
/// ```
/// use netbricks_core::packet::{Ethernet, FlowKey, Ip, Ipv4, Link, Tcp, Udp, Vlan};
/// use netbricks_core::tables::FlowTableConfig;
/// use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
/// use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict, Worker};
/// use netbricks_testkit::build::ethernet;
///
/// fn conversations(input: Input, worker: &Worker) -> impl Function {
///     let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(1_024));
///     input
///         .parse::<Link>().or(Verdict::PASS)
///         .parse::<Ip>().or(Edge(2))
///         .inspect(|packet| assert!(packet.frame_len() >= 34))
///         .map(|packet| packet.header().dscp())
///         .lookup(&flows, |packet| packet.flow_key(), |_, entry| {
///             entry.or_insert_with(|| 0).map_or(0, |seen| {
///                 *seen += 1;
///                 *seen
///             })
///         })
///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 2)
///         .filter(Verdict::PASS, |packet| packet.header().ttl() > 0)
///         .decide(|packet| if *packet.get::<u8>() == 46 { Err(Verdict::PASS) } else { Ok(()) })
///         .forget_metadata()
///         .branch(
///             |packet| packet.header().protocol() == 17,
///             |udp| udp.parse::<Udp>().divert(Edge(3), |packet| packet.header().destination_port() == 53).forget(),
///             |tcp| tcp.parse::<Tcp>().transform(|packet| packet.outer_mut::<Ip>().decrement_ttl()).forget(),
///         )
///         .group_by(2, |packet| packet.frame_len(), |_, start| start.parse::<Ethernet>())
///         .deparse()
///         .done()
/// }
///
/// fn tag(input: Input) -> impl Function {
///     input.parse::<Ethernet>().insert(|_| Vlan::new(7, 0x0800)).parse::<Ipv4>().done()
/// }
/// fn untag_and_send(input: Input) -> impl Function {
///     input.parse::<Ethernet>().parse::<Vlan>().remove().send(Edge(4))
/// }
///
/// let udp = |port| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1000, port).build().unwrap();
/// let report = netbricks_testkit::run_with(conversations, [udp(80), udp(80), udp(80), udp(53)]);
/// assert_eq!((report.out.len(), report.replies.len(), report.dropped(DropReason::RateLimited)), (2, 1, 1));
///
/// let report = netbricks_testkit::run(|input| tag(input).then(untag_and_send), [udp(80)]);
/// assert_eq!(report.replies, [udp(80)]);
/// ```
pub trait Operator: Sized + 'static {
    /// The headers and metadata that are known of a packet at the chain's start.
    type In: Stack;
    /// The headers and metadata that are known of a packet at the chain's end.
    type Out: Stack;
    /// Whether `prepare` does anything, so that a branch knows whether to park its packets.
    #[doc(hidden)]
    const WAITS: bool;
    /// Whether `apply` may answer [`Verdict::AGAIN`], so that a second pass is worth compiling.
    ///
    /// This concerns `apply` in the [first pass](Pass::First), and in the pass of a batch of [usual packets
    /// only](Pass::Alike).
    #[doc(hidden)]
    const MAY_DEFER: bool;
    /// Whether a copy of the operator chain for usual frames is worth its code.
    #[doc(hidden)]
    const FAST_PATH: bool;
    /// Whether the chain has no operator, so that a node need not look at its packets.
    #[doc(hidden)]
    const IDENTITY: bool = false;
    /// Whether the chain replaces packets by packets of its own.
    #[doc(hidden)]
    const REPLACES: Replaces = Replaces::Nothing;
    /// The number of functions in the last loop.
    #[doc(hidden)]
    const FUSED: usize = 1;
    /// Whether the last loop begins with a function, and not in the middle of a function that waited on
    /// memory.
    ///
    /// Such a loop has copies for usual frames, as the first loop has.
    #[doc(hidden)]
    const RESTARTS: bool = false;
    /// Whether [`retrace`](Operator::retrace) answers.
    #[doc(hidden)]
    const REPARSES: bool = false;
    /// Computes from a frame's bytes again what `apply` found out about it, for a frame of this shape that
    /// passed.
    ///
    /// Where no author's code took part in that or changed the bytes, the result need not be stored while a
    /// whole batch waits on memory.
    #[doc(hidden)]
    #[inline(always)]
    fn retrace<const SHAPE: u8>(&self, _frame: &[u8], _stack: Self::In) -> Option<Self::Out> {
        None
    }
    #[doc(hidden)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<Self::In>);
    /// Ends what [`prepare`](Operator::prepare) began for the batch, once all packets have left, also by a panic.
    #[doc(hidden)]
    fn finish(&mut self);
    #[doc(hidden)]
    fn apply<const SHAPE: u8>(
        &mut self,
        at: PacketCursor<'_, '_>,
        stack: Self::In,
    ) -> Result<Self::Out, Verdict>;
    /// Edges that packets may take, other than `OUT` and `REPLY`.
    #[doc(hidden)]
    fn edges(&self, visit: &mut dyn FnMut(Edge));

    /// Parses the next header. Drops a packet with another header as `unmatched`, and with a wrong one as
    /// `malformed`.
    ///
    /// `.or(policy)` behind it gives a packet with another header another way. `Verdict::PASS` lets it leave
    /// the function unchanged, an [`Edge`] sends it there, and another [`DropReason`](crate::DropReason) drops it.
    fn parse<H>(self) -> Parse<Self, H>
    where
        H: Header + Follows<<Self::Out as Stack>::Top>,
    {
        Parse::new(self)
    }
    /// Returns the innermost header's bytes to the payload (the paper's deparse). The packet stays as it is.
    fn deparse(self) -> Forget<Self, <Self::Out as Removable>::Outer>
    where
        Self::Out: Removable,
    {
        Forget::new(self, Removable::without)
    }
    /// Changes header and payload.
    fn transform<F>(self, f: F) -> Transform<Self, F>
    where
        F: FnMut(&mut View<'_, Self::Out>) + 'static,
    {
        Transform(self, f)
    }
    /// Keeps packets for which the closure returns `true`; the rest leave as the policy says.
    ///
    /// The policy is a [`DropReason`](crate::DropReason), an [`Edge`], or `Verdict::PASS` to leave this function unchanged.
    /// `.on_reject(f)` behind it shows `f` each packet that leaves; `f` may answer it.
    fn filter<F>(self, policy: impl Into<OnMismatch>, f: F) -> Filter<Self, F>
    where
        F: FnMut(&View<'_, Self::Out>) -> bool + 'static,
    {
        Filter(self, policy.into(), f)
    }
    /// Shows each packet to the closure, which cannot change it: for counters and samples.
    fn inspect<F>(self, f: F) -> Inspect<Self, F>
    where
        F: FnMut(&View<'_, Self::Out>) + 'static,
    {
        Inspect(self, f)
    }
    /// Sends a packet away on `edge` where the closure returns `true`. The closure may change or answer it
    /// first.
    fn divert<F>(self, edge: Edge, f: F) -> Divert<Self, F>
    where
        F: FnMut(&mut View<'_, Self::Out>) -> bool + 'static,
    {
        Divert(self, edge, f)
    }
    /// Decides packet by packet: `Ok` stays, `Err` leaves as the verdict says.
    fn decide<F>(self, f: F) -> crate::operators::Decide<Self, F>
    where
        F: FnMut(&mut View<'_, Self::Out>) -> Result<(), Verdict> + 'static,
    {
        crate::operators::Decide(self, f)
    }
    /// Computes metadata of each packet. Every later operator reads it with `p.get::<M>()`.
    fn map<M, F>(self, f: F) -> Map<Self, F, M>
    where
        M: Copy + 'static,
        F: FnMut(&mut View<'_, Self::Out>) -> M + 'static,
    {
        Map::new(self, f)
    }
    /// Looks up each packet of a batch in a table, and gives its entry to `visit`.
    ///
    /// The first step computes the keys of the whole batch, the second fetches their memory. The third calls
    /// `visit` for each packet in order. Its result is metadata for later operators.
    ///
    /// A table that all workers [share](crate::consistency::Strict) is locked once for each batch. A table
    /// that a writer [keeps for readers](crate::consistency::BoundedInconsistency) is read once for each
    /// batch, without waiting. Other strict states that `visit` asks under that lock must have been declared
    /// after the table.
    fn lookup<T, Q, K, U, M>(self, table: &T, key: K, visit: U) -> T::Lookup<Self, Asked<Q, K, U, M>>
    where
        T: Lookable,
        Q: TableKey<Stored = <T::Table as Table>::Key>,
        M: Copy + 'static,
        K: FnMut(&View<'_, Self::Out>) -> Q + 'static,
        U: FnMut(&mut View<'_, Self::Out>, T::Entry<'_>) -> M + 'static,
    {
        table.lookup(self, Asked::new(key, visit))
    }
    /// As [`lookup`](Self::lookup) in a worker's own flow table, with a second function for the usual
    /// packets.
    ///
    /// `known` gets flows that a first look finds in the table. `otherwise` gets all other packets, and must
    /// assume nothing about them. Some are new flows. For others `known` answered `None` and changed nothing.
    /// The rest are known flows of any kind. For example, an earlier packet of the same batch added the flow,
    /// or the table had to look twice. Or the frame has a rare shape, with options or extension headers.
    ///
    /// Both functions get `own`, their own state. It implements [`LookupHooks`], as counters and `()` do. For
    /// other types an empty `impl<K> LookupHooks<K> for … {}` is enough.
    ///
    /// The loop over the batch contains `known` alone. A packet for `otherwise` waits until the loop has
    /// stopped for it, still in order. Where `known` is short and makes no calls, this costs less than one
    /// function with a rare branch.
    ///
    /// ```
    /// use netbricks_core::packet::{FlowKey, Ip, Link};
    /// use netbricks_core::tables::{Entry, FlowTableConfig};
    /// use netbricks_core::view::{IpRewrite, Metadata};
    /// use netbricks_core::{DropReason, Function, Input, Operator, Worker};
    ///
    /// /// Lets the first two packets of each flow pass.
    /// fn quota(input: Input, worker: &Worker) -> impl Function {
    ///     let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(64));
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .lookup_or(
    ///             &flows,
    ///             |packet| packet.flow_key(),
    ///             worker.counter("flows-seen"),
    ///             |_, _, seen| {
    ///                 *seen += 1;
    ///                 Some(*seen)
    ///             },
    ///             |counter, _, entry| {
    ///                 counter.add(u64::from(matches!(entry, Entry::Vacant(_))));
    ///                 entry.or_insert_with(|| 0).map_or(1, |seen| {
    ///                     *seen += 1;
    ///                     *seen
    ///                 })
    ///             },
    ///         )
    ///         .filter(DropReason::RateLimited, |packet| *packet.get::<u64>() <= 2)
    ///         .done()
    /// }
    ///
    /// let packets = [(); 3].map(|()| netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2));
    /// assert_eq!(netbricks_testkit::run_with(quota, packets).dropped(DropReason::RateLimited), 1);
    /// ```
    fn lookup_or<K, V, Q, F, X, H, U, M>(
        self,
        table: &State<FlowTable<K, V>>,
        key: F,
        own: X,
        known: H,
        otherwise: U,
    ) -> LookupOr<Self, K, V, Q, F, X, H, U, M>
    where
        K: Key + Encode,
        V: Encode + 'static,
        Q: TableKey<Stored = K>,
        M: Copy + 'static,
        F: FnMut(&View<'_, Self::Out>) -> Q + 'static,
        X: LookupHooks<K>,
        H: FnMut(&mut X, &mut View<'_, Self::Out>, &mut V) -> Option<M> + 'static,
        U: FnMut(&mut X, &mut View<'_, Self::Out>, Entry<'_, K, V>) -> M + 'static,
    {
        Lookup::new(self, table.clone(), key, HitOrElse(own, known, otherwise))
    }
    /// Shows every packet to an observer with its own state, and passes it on unchanged.
    ///
    /// For crates that add operators: a function has [`inspect`](Self::inspect).
    fn observe<O: Observe<Self::Out>>(self, observer: O) -> Observed<Self, O> {
        Observed(self, observer)
    }
    /// Ends every packet here; other packets, or none, leave in its place.
    ///
    /// For crates that add operators, such as `packetize`.
    fn substitute<F: Substitute<Self::Out>>(self, by: F) -> Substituted<Self, F> {
        Substituted(self, by)
    }
    /// Inserts a header between the innermost header and its payload.
    ///
    /// Enclosing lengths, next-header numbers and header checksums are updated.
    fn insert<H, F>(self, f: F) -> Insert<Self, F, H>
    where
        H: Insertable + Follows<<Self::Out as Stack>::Top>,
        F: FnMut(&View<'_, Self::Out>) -> H + 'static,
    {
        Insert::new(self, f)
    }
    /// Removes the innermost header. Enclosing lengths, next-header numbers and header checksums are updated.
    fn remove(self) -> Remove<Self>
    where
        Self::Out: Removable,
    {
        Remove(self)
    }
    /// Replaces options or payload by bytes of another length, as `f` says.
    ///
    /// Lengths, checksums and offsets are updated, also those of tunnels around the packet. A packet for
    /// which `f` asks for nothing passes unchanged. The options are those of the header on top, IPv4 or TCP.
    /// The payload is that of TCP, UDP, ICMP or ICMPv6 in an IP packet of any kind. TCP's sequence numbers
    /// stay; they are the function's task. Bytes move into the room behind the packet or before it, or into a
    /// larger frame where there is no room.
    ///
    /// A packet that cannot be changed this way is dropped unchanged, for the [error's
    /// reason](crate::operators::ResizeError::reason). A fragment is dropped as
    /// [`Fragment`](crate::DropReason::Fragment). Bytes under an authentication header give
    /// [`Denied`](crate::DropReason::Denied), and a lack of room gives [`TooBig`](crate::DropReason::TooBig). `.or(policy)`
    /// behind it sends such a packet elsewhere, `.or_else(f)` asks `f`.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Udp};
    /// use netbricks_core::{Function, Input, Operator};
    /// use netbricks_testkit::build::ethernet;
    ///
    /// /// Takes cookies out of what is said over UDP.
    /// fn uncookie(input: Input) -> impl Function {
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .parse::<Udp>()
    ///         .resize(|packet, replace| {
    ///             let said = packet.payload();
    ///             if let Some(at) = said.windows(7).position(|word| word == b"cookie=") {
    ///                 let end = said[at..].iter().position(|byte| *byte == b';').map_or(said.len(), |end| at + end);
    ///                 replace.payload(at + 7..end, b"-");
    ///             }
    ///         })
    ///         .done()
    /// }
    ///
    /// let packet = |text: &[u8]| ethernet().vlan(7).ipv6("2001:db8::1", "2001:db8::2").udp(1000, 53).payload(text).build();
    /// let sent = [packet(b"a=1;cookie=0123456789;b=2")?, packet(b"hello")?];
    /// let report = netbricks_testkit::run(uncookie, sent);
    /// assert_eq!(report.out, [packet(b"a=1;cookie=-;b=2")?, packet(b"hello")?]);
    /// # Ok::<(), netbricks_core::packet::build::BuildError>(())
    /// ```
    fn resize<F>(self, f: F) -> Resize<Self, F, crate::operators::Dropped>
    where
        Self::Out: InsideIp + Stack<Top: Replaceable>,
        F: FnMut(&View<'_, Self::Out>, &mut Replacement<<Self::Out as Stack>::Top>) + 'static,
    {
        Resize::new(self, f, crate::operators::Dropped)
    }
    /// Splits the chain into two arms, which meet again in the same stack.
    fn branch<P, L, R>(
        self,
        test: P,
        yes: impl FnOnce(Start<Self::Out>) -> L,
        no: impl FnOnce(Start<Self::Out>) -> R,
    ) -> Branch<Self, P, L, R>
    where
        P: FnMut(&View<'_, Self::Out>) -> bool + 'static,
        L: Arm<Self::Out>,
        R: Arm<Self::Out, Out = L::Out>,
    {
        Branch::new(self, test, yes(Start::new()), no(Start::new()))
    }
    /// As [`branch`](Self::branch), for arms that end in different stacks: they meet in the stack of the
    /// split.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp, Udp};
    /// use netbricks_core::{DropReason, Function, Input, Operator};
    ///
    /// fn screened(input: Input) -> impl Function {
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .fork(
    ///             |packet| packet.header().protocol() == 17,
    ///             |udp| udp.parse::<Udp>().filter(DropReason::Denied, |packet| packet.header().source_port() != 0),
    ///             |tcp| tcp.parse::<Tcp>().map(|packet| packet.header().source_port()),
    ///         )
    ///         .transform(|packet| packet.header_mut().decrement_ttl())
    ///         .done()
    /// }
    /// # let packet = netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(9).tcp(1, 2);
    /// # assert_eq!(netbricks_testkit::run(screened, [packet]).out[0][22], 8);
    /// ```
    fn fork<P, L, R, I, J>(
        self,
        test: P,
        yes: impl FnOnce(Start<Self::Out>) -> L,
        no: impl FnOnce(Start<Self::Out>) -> R,
    ) -> crate::operators::Fork<Self, P, L, R>
    where
        P: FnMut(&View<'_, Self::Out>) -> bool + 'static,
        L: Arm<Self::Out, Out: crate::operators::Extends<Self::Out, I>>,
        R: Arm<Self::Out, Out: crate::operators::Extends<Self::Out, J>>,
    {
        crate::operators::fork(self, test, yes(Start::new()), no(Start::new()))
    }
    /// `groups` copies of one sub-chain, each with its own state.
    ///
    /// The closure names the group; a number beyond the last wraps around.
    fn group_by<P, G>(
        self,
        groups: usize,
        group: P,
        mut each: impl FnMut(usize, Start<Self::Out>) -> G,
    ) -> GroupBy<Self, P, G>
    where
        P: FnMut(&View<'_, Self::Out>) -> usize + 'static,
        G: Arm<Self::Out>,
    {
        GroupBy::new(self, group, (0..groups.max(1)).map(|i| each(i, Start::new())).collect())
    }
    /// Forgets all parsed headers: arms of a branch with different stacks can meet after this.
    fn forget(self) -> Forget<Self, Root> {
        Forget::new(self, |_| Root)
    }
    /// Forgets the metadata of the last `map` or `lookup`.
    fn forget_metadata(self) -> ForgetMetadata<Self>
    where
        Self::Out: Forgettable,
    {
        ForgetMetadata(self)
    }
    /// Fuses the next function into the same node, `ttl(input).then(nat)`, and into the same loop up to 16
    /// functions.
    ///
    /// The next function gets the packets that it would get from a node before it: those that the first one
    /// lets pass, and those that it sends out by [`Edge::OUT`]. A first function that does not end with
    /// `done` or `forget` is one function with the next: a packet that leaves one of them leaves both.
    ///
    /// Packets that a function [creates](crate::view::View::reply) on [`Edge::OUT`] leave the node at once,
    /// past the functions fused behind it. Nothing can be fused behind `packetize` and windows that hold
    /// packets back, which send all packets as packets of their own: [`compose`](crate::compose()) refuses
    /// it.
    fn then<B: Operator<In = Self::Out>>(self, next: impl FnOnce(Start<Self::Out>) -> B) -> Then<Self, B> {
        Then::new(self, next(Start::new()))
    }
    /// Ends the function and sends every packet away on `edge`; later operators see none.
    fn send(self, edge: Edge) -> SendTo<Self> {
        SendTo(self, edge)
    }
    /// Ends the function. Packets that `.or(Verdict::PASS)` let through join again here.
    fn done(self) -> Boundary<Self> {
        Boundary(self)
    }
}

/// A function's input: packets as they are on the wire.
///
/// This is a concrete type on purpose. Closures inherit the type parameters of the function around them. So a
/// function generic over its input would copy that input's whole type into each of its closures, and every
/// fused function would double the compile time.
pub type Input = Start<Root>;

/// A function's result, which is its input's type again.
///
/// So functions chain (`ttl(input).then(nat)`), and a single one composes into a node.
#[diagnostic::on_unimplemented(
    message = "this chain of operators is not a function: a function begins with packets as they are on the wire and ends there",
    label = "is `.done()` missing at its end?",
    note = "write `.done()` (or `.send(edge)`) as the last operator: it forgets the headers that were parsed"
)]
pub trait Function: Operator<In = Root, Out = Root> {}
#[diagnostic::do_not_recommend]
impl<T: Operator<In = Root, Out = Root>> Function for T {}

/// The empty operator chain over stack `S`: a function's input, or an arm of a branch.
pub struct Start<S>(PhantomData<fn() -> S>);

impl<S> Start<S> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S: Stack> Operator for Start<S> {
    type In = S;
    type Out = S;
    const WAITS: bool = false;
    const MAY_DEFER: bool = false;
    const FAST_PATH: bool = false;
    const IDENTITY: bool = true;
    const REPARSES: bool = true;
    #[inline(always)]
    fn retrace<const SHAPE: u8>(&self, _: &[u8], stack: S) -> Option<S> {
        Some(stack)
    }
    #[inline(always)]
    fn prepare(&mut self, _: &mut Batch, _: &mut Context, _: &impl Fn(usize) -> Option<S>) {}
    #[inline(always)]
    fn finish(&mut self) {}
    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, _: PacketCursor<'_, '_>, stack: S) -> Result<S, Verdict> {
        Ok(stack)
    }
    fn edges(&self, _: &mut dyn FnMut(Edge)) {}
}

pub(crate) type Parsed<A, H> = Layer<<A as Operator>::Out, H>;
pub(crate) type Known<A, M> = With<<A as Operator>::Out, M>;
