//! The one trait behind every operator, and the words a function is written in (NetBricks, section 3.1).
//!
//! Each operator wraps the one before as a type, so a whole function compiles into one loop over the batch, with what
//! is known of a packet in registers. It is lazy: a parse costs nothing until a later operator looks.

use std::marker::PhantomData;

use netbricks_buffer::Batch;
use netbricks_packet::stack::{Follows, Forgettable, Header, Holds, Layer, Removable, Root, Stack, With};
use netbricks_packet::{Ip, Tcp};
use netbricks_tables::{Encode, Entry, FlowTable, Key, Table};

use crate::at::At;
use crate::consistency::{Asked, Lookable};
use crate::context::Context;
use crate::operators::{
    Arm, Boundary, Branch, Divert, Filter, Forget, ForgetMetadata, GroupBy, Insert, Insertable, InsideIp,
    Inspect, KnownOr, Lookup, LookupOr, Map, Own, Packetize, Parse, Remove, Replaceable, Replacement,
    Replaces, Resize, Send, Then, Transform, Windowed,
};
use crate::reason::{Edge, OnMismatch, Verdict};
use crate::registry::Worker;
use crate::state::{State, TableKey};
use crate::stream::{
    Fate, Gate, GateConfig, Keeping, Kept, Packetizer, Protocol, Replacing, Rewriter, Window, WindowConfig,
};
use crate::view::View;

/// A tower of operators from stack `In` to stack `Out`.
///
/// `apply` is the last loop over the batch (a packet that a lookup puts off comes to it once more, alone); `prepare` holds all
/// earlier ones, and is empty unless something in the tower waits on memory or has more functions than one loop holds. Both are
/// inlined into one node.
///
/// Every word at least once: look, find out, remember, decide, divide, change size, and end.
/// ```
/// use netbricks_core::packet::{Ethernet, FlowKey, Ip, Ipv4, Link, Tcp, Udp, Vlan};
/// use netbricks_core::tables::FlowTableConfig;
/// use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
/// use netbricks_core::{Drop, Edge, Function, Input, Operator, Verdict, Worker};
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
///         .filter(Drop::RateLimited, |packet| *packet.get::<u64>() <= 2)
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
/// assert_eq!((report.out.len(), report.replies.len(), report.dropped(Drop::RateLimited)), (2, 1, 1));
///
/// let report = netbricks_testkit::run(|input| tag(input).then(untag_and_send), [udp(80)]);
/// assert_eq!(report.replies, [udp(80)]);
/// ```
pub trait Operator: Sized + 'static {
    /// What is known of a packet that comes in.
    type In: Stack;
    /// What is known of one that goes out.
    type Out: Stack;
    /// Whether `prepare` does anything, so that a branch knows whether to park its packets.
    #[doc(hidden)]
    const WAITS: bool;
    /// Whether `apply` in the [first pass](Pass::First), or in that of a batch of [none but the usual](Pass::Alike), may answer
    /// [`Verdict::AGAIN`], so that a second one is worth compiling.
    #[doc(hidden)]
    const PUTS_OFF: bool;
    /// Whether a copy of the tower for usual frames is worth having.
    #[doc(hidden)]
    const USUAL: bool;
    /// Whether there is no operator at all, so that a node need not look at its packets.
    #[doc(hidden)]
    const IDENTITY: bool = false;
    /// Whether packets of its own take the place of what comes to it.
    #[doc(hidden)]
    const REPLACES: Replaces = Replaces::Nothing;
    /// How many functions are fused into the last loop.
    #[doc(hidden)]
    const FUSED: usize = 1;
    /// Whether the last loop begins with a function, and not in the middle of one that waited on memory: then it has
    /// copies for usual frames as the first one has.
    #[doc(hidden)]
    const RESTARTS: bool = false;
    /// Whether [`retrace`](Operator::retrace) answers.
    #[doc(hidden)]
    const RETRACES: bool = false;
    /// What `apply` found out about a frame of this shape that it let pass, found out again from its bytes: where nobody's
    /// code had a part in that or changed them, it need not wait where a whole batch waits on memory.
    #[doc(hidden)]
    #[inline(always)]
    fn retrace<const SHAPE: u8>(&self, _frame: &[u8], _stack: Self::In) -> Option<Self::Out> {
        None
    }
    #[doc(hidden)]
    fn prepare(&mut self, batch: &mut Batch, cx: &mut Context, inputs: &impl Fn(usize) -> Option<Self::In>);
    #[doc(hidden)]
    fn apply<const SHAPE: u8>(&mut self, at: At<'_, '_>, stack: Self::In) -> Result<Self::Out, Verdict>;
    /// Edges that packets may take, other than `OUT` and `REPLY`.
    #[doc(hidden)]
    fn edges(&self, visit: &mut dyn FnMut(Edge));

    /// Parses the next header. Another one is dropped as `unmatched`, a wrong one as `malformed`.
    ///
    /// `.or(policy)` behind it sends a packet with another header elsewhere: on by `Verdict::PASS`, out by an [`Edge`], or
    /// away for another [`Drop`].
    fn parse<H>(self) -> Parse<Self, H>
    where
        H: Header + Follows<<Self::Out as Stack>::Top>,
    {
        Parse::new(self)
    }
    /// Returns the innermost header's bytes to the payload (the paper's deparse). The packet is not changed.
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
    /// The policy is a [`Drop`], an [`Edge`], or `Verdict::PASS` to leave this function unchanged. `.on_reject(f)` behind it
    /// shows `f` each packet that leaves, which may answer it.
    fn filter<F>(self, policy: impl Into<OnMismatch>, f: F) -> Filter<Self, F>
    where
        F: FnMut(&View<'_, Self::Out>) -> bool + 'static,
    {
        Filter(self, policy.into(), f)
    }
    /// Looks without changing: for counters and samples.
    fn inspect<F>(self, f: F) -> Inspect<Self, F>
    where
        F: FnMut(&View<'_, Self::Out>) + 'static,
    {
        Inspect(self, f)
    }
    /// Sends away on `edge` what the closure says `true` to; it may change or answer the packet first.
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
    /// Finds something out about the packet; `p.get::<M>()` tells it to every operator after this.
    fn map<M, F>(self, f: F) -> Map<Self, F, M>
    where
        M: Copy + 'static,
        F: FnMut(&mut View<'_, Self::Out>) -> M + 'static,
    {
        Map::new(self, f)
    }
    /// Keys of the whole batch first, then its memory, then `visit` for each packet in order, which gets the entry;
    /// what it returns is metadata for the operators after this.
    ///
    /// A table that all workers [share](crate::consistency::Strict) is asked under one lock a batch; one that a writer
    /// [keeps for readers](crate::consistency::BoundedInconsistency), in one read a batch, which waits for nobody. What `visit`
    /// asks of other strict states, under that lock, must have been declared after the table.
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
    /// As [`lookup`](Self::lookup) in a worker's own flow table, with a second function for what most packets are: `known` for
    /// flows that are seen at a glance to be in the table, `otherwise` for whatever else comes, of which it must suppose
    /// nothing: new flows, those where `known` answers `None`, having changed nothing, and known ones of any kind, as those that
    /// an earlier packet of the same batch put in, that lie where the table had to look twice, or whose frame is of a rare
    /// shape, with options or extension headers, say. Both get `own`, which is theirs, and is told of each batch ahead, if it likes: it
    /// implements [`Own`], which counters and `()` do, and for anything else `impl<K> Own<K> for … {}` may be empty.
    ///
    /// The loop over the batch has `known` alone in it; a packet for `otherwise` is put off until the loop has stopped for it,
    /// still in order. Where `known` is short and makes no calls, that costs less than one function with a rare way in it.
    ///
    /// ```
    /// use netbricks_core::packet::{FlowKey, Ip, Link};
    /// use netbricks_core::tables::{Entry, FlowTableConfig};
    /// use netbricks_core::view::{IpRewrite, Metadata};
    /// use netbricks_core::{Drop, Function, Input, Operator, Worker};
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
    ///         .filter(Drop::RateLimited, |packet| *packet.get::<u64>() <= 2)
    ///         .done()
    /// }
    ///
    /// let packets = [(); 3].map(|()| netbricks_testkit::build::ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2));
    /// assert_eq!(netbricks_testkit::run_with(quota, packets).dropped(Drop::RateLimited), 1);
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
        X: Own<K>,
        H: FnMut(&mut X, &mut View<'_, Self::Out>, &mut V) -> Option<M> + 'static,
        U: FnMut(&mut X, &mut View<'_, Self::Out>, Entry<'_, K, V>) -> M + 'static,
    {
        Lookup::new(self, table.clone(), key, KnownOr(own, known, otherwise))
    }
    /// Shows the byte streams that these packets carry to a user function, window by window, and passes every packet on
    /// unchanged (the paper's window, beside the packets' way). `name` is that of the declared state: connections and how
    /// many there may be. Its keyed hash has the worker's seed.
    ///
    /// `f` sees each direction of a connection in order, learns of gaps, and is called with what there is once its first bytes have
    /// waited for the timeout (at the connection's next packet), and a last time when the direction ends: also when it was silent for
    /// the timeout, and when the graph is taken down. What was in a window before comes again in the next where windows overlap,
    /// or where one was shown before it was full: only [`fresh`](Window::fresh) bytes are new. A function's other packets are in
    /// their own order: a window is shown when the packet passes that fills it. What `f` may do and what becomes of its panics is
    /// as for any user function. Fragments of IP packets count as lost: put what reassembles them before this. Checksums are believed:
    /// it is the port that verifies them. Where a shuffle
    /// moves a connection, `f` of the old worker learns of [its end](crate::stream::End::Moved) there, and that of the new one
    /// goes on with the next window.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_core::stream::WindowConfig;
    /// use netbricks_core::{Function, Input, Operator, Worker};
    /// use netbricks_testkit::build::ethernet;
    ///
    /// /// Counts newlines in what TCP carries.
    /// fn lines(input: Input, worker: &Worker) -> impl Function {
    ///     let lines = worker.counter("lines");
    ///     let windows = WindowConfig::new(4_096, 4_096, 60_000_000_000);
    ///     input
    ///         .parse::<Link>().or(Verdict::PASS)
    ///         .parse::<Ip>().or(Verdict::PASS)
    ///         .parse::<Tcp>().or(Verdict::PASS)
    ///         .window(worker, "streams", windows, move |window| {
    ///             lines.add(window.fresh().iter().filter(|byte| **byte == b'\n').count() as u64);
    ///         })
    ///         .done()
    /// }
    ///
    /// let line = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1000, 80).ack(7).payload(b"one\ntwo\n").build().unwrap();
    /// let report = netbricks_testkit::run_with(lines, [line.clone()]);
    /// assert_eq!(report.out, [line]);
    /// ```
    fn window<F, I>(self, worker: &Worker, name: &str, config: WindowConfig, f: F) -> Windowed<Self, F, I>
    where
        Self::Out: Holds<Ip, I>,
        <Self::Out as Stack>::Top: Protocol,
        F: FnMut(&Window<'_>) + 'static,
    {
        Windowed::new(self, worker, name, config, f)
    }
    /// As [`window`](Self::window), of a function that is also lent what it [keeps](crate::stream::Kept) of the direction that it
    /// sees: the default at its beginning, then what it left there. Where a shuffle by symmetric flow moves a connection, that
    /// goes along. `f` of the old worker sees it a last time with [`End::Moved`](crate::stream::End::Moved): nothing of it ended,
    /// another goes on.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_core::stream::{Kept, WindowConfig};
    /// use netbricks_core::{Function, Input, Operator, Worker};
    /// use netbricks_testkit::build::ethernet;
    ///
    /// /// Whether the byte before was a CR.
    /// #[derive(Clone, Copy, Default)]
    /// struct AfterCr(bool);
    ///
    /// impl Kept for AfterCr {
    ///     fn pack(&self, to: &mut Vec<u8>) {
    ///         to.push(u8::from(self.0));
    ///     }
    ///     fn unpack(bytes: &[u8]) -> Option<Self> {
    ///         match bytes {
    ///             [after @ 0..=1] => Some(Self(*after == 1)),
    ///             _ => None,
    ///         }
    ///     }
    /// }
    ///
    /// /// Counts lines that end as those of the Internet's protocols do, wherever segments end.
    /// fn lines(input: Input, worker: &Worker) -> impl Function {
    ///     let lines = worker.counter("lines");
    ///     // Bytes are shown as they come.
    ///     let windows = WindowConfig { memory: 0, ..WindowConfig::new(4_096, 4_096, 60_000_000_000) };
    ///     input
    ///         .parse::<Link>().or(Verdict::PASS)
    ///         .parse::<Ip>().or(Verdict::PASS)
    ///         .parse::<Tcp>().or(Verdict::PASS)
    ///         .window_keeping(worker, "streams", windows, move |window, after: &mut AfterCr| {
    ///             for byte in window.bytes {
    ///                 lines.add(u64::from(after.0 && *byte == b'\n'));
    ///                 after.0 = *byte == b'\r';
    ///             }
    ///         })
    ///         .done()
    /// }
    ///
    /// let line = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1000, 80).ack(7).payload(b"one\r\n").build().unwrap();
    /// let report = netbricks_testkit::run_with(lines, [line.clone()]);
    /// assert_eq!(report.out, [line]);
    /// ```
    fn window_keeping<M, F, I>(
        self,
        worker: &Worker,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> Windowed<Self, Keeping<F, M>, I>
    where
        Self::Out: Holds<Ip, I>,
        <Self::Out as Stack>::Top: Protocol,
        M: Kept,
        F: FnMut(&Window<'_>, &mut M) + 'static,
    {
        Windowed::new(self, worker, name, config, Keeping::new(f))
    }
    /// As [`window`](Self::window), in the packets' way: the bytes of a window go on only when `f` has seen them and says
    /// [`Pass`](crate::stream::Fate::Pass). Until then they are held, or `f` cuts the connection, or replaces some of them. What
    /// leaves, and on which edges, is as with [`packetize`](Self::packetize), which sends it; packets of connections that were
    /// cut are dropped as [`Denied`](Drop::Denied), and resets go to both ends: on [`Edge::OUT`], and back on
    /// [`Edge::REPLY`].
    ///
    /// Connections whose beginning did not pass here are never shown:
    /// [`Strangers`](crate::stream::Strangers) says whether they pass. Where a shuffle by symmetric flow moves one, bytes that are
    /// held go with it and are shown there when they would have been here; `f` of the old worker learns that
    /// [its directions moved](crate::stream::End::Moved).
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_core::stream::{Cut, Fate, GateConfig};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    ///
    /// /// Takes card numbers out of what is sent: four groups of four digits.
    /// fn censor(input: Input, worker: &Worker) -> impl Function {
    ///     // Windows share 18 bytes, so that a number is whole in one of them, and wait for 50 ms to be full.
    ///     let config = GateConfig::new(1_000, 982, 50_000_000);
    ///     input
    ///         .parse::<Link>().or(Edge::OUT)
    ///         .parse::<Ip>().or(Edge::OUT)
    ///         .parse::<Tcp>().or(Edge::OUT)
    ///         .window_in_path(worker, "streams", config, |window, replacing| {
    ///             let digits = |group: &[u8]| group.iter().all(u8::is_ascii_digit);
    ///             let card = |text: &[u8]| text.chunks(5).all(|group| digits(&group[..4]));
    ///             let mut at = 0;
    ///             while let Some(next) = window.bytes[at..].windows(19).position(card) {
    ///                 at += next + 19;
    ///                 if !replacing.replace(at - 19..at, b"****") {
    ///                     return Fate::Cut(Cut::Reset);
    ///                 }
    ///             }
    ///             Fate::Pass
    ///         })
    ///         .done()
    /// }
    /// # let _ = censor;
    /// ```
    fn window_in_path<F, I>(
        self,
        worker: &Worker,
        name: &str,
        config: GateConfig,
        f: F,
    ) -> Packetize<Self, Gate<F>, I>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static,
    {
        Packetize::new(self, worker.gate(name, config, f))
    }
    /// As [`window_in_path`](Self::window_in_path), of a function that is also lent what it [keeps](crate::stream::Kept) of the
    /// direction that it decides on, as with [`window_keeping`](Self::window_keeping): that moves with the bytes that are held.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_core::stream::{Cut, Fate, GateConfig, Kept};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    ///
    /// /// Bytes of the line that has not ended.
    /// #[derive(Clone, Copy, Default)]
    /// struct Line(u32);
    ///
    /// impl Kept for Line {
    ///     fn pack(&self, to: &mut Vec<u8>) {
    ///         to.extend(self.0.to_be_bytes());
    ///     }
    ///     fn unpack(bytes: &[u8]) -> Option<Self> {
    ///         Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    ///     }
    /// }
    ///
    /// /// Cuts connections in which a line is longer than 1,000 bytes.
    /// fn short(input: Input, worker: &Worker) -> impl Function {
    ///     input
    ///         .parse::<Link>().or(Edge::OUT)
    ///         .parse::<Ip>().or(Edge::OUT)
    ///         .parse::<Tcp>().or(Edge::OUT)
    ///         .window_in_path_keeping(worker, "streams", GateConfig::new(512, 512, 0), |window, _, line: &mut Line| {
    ///             for byte in window.fresh() {
    ///                 line.0 = if *byte == b'\n' { 0 } else { line.0 + 1 };
    ///                 if line.0 > 1_000 {
    ///                     return Fate::Cut(Cut::Reset);
    ///                 }
    ///             }
    ///             Fate::Pass
    ///         })
    ///         .done()
    /// }
    /// # let _ = short;
    /// ```
    fn window_in_path_keeping<M, F, I>(
        self,
        worker: &Worker,
        name: &str,
        config: GateConfig,
        f: F,
    ) -> Packetize<Self, Gate<Keeping<F, M>>, I>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        M: Kept,
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>, &mut M) -> Fate + 'static,
    {
        Packetize::new(self, worker.gate_of(name, config, Keeping::new(f)))
    }
    /// Rewrites the byte streams that these packets carry (the paper's window in the packets' way, and packetize). Packets
    /// of connections whose beginning passed here end here, as [`Rewritten`](Drop::Rewritten), and others go on in their
    /// place on [`Edge::OUT`]; the rest goes on unchanged. In either case nothing of this node comes after it. What does
    /// not come here has to leave on [`Edge::OUT`] as well (`parse::<H>().or(edge)`, `divert`), so that packets keep their order. Both
    /// directions must pass the same worker. First fragments of what is rewritten are dropped, as
    /// [`Fragment`](Drop::Fragment): put what reassembles them before this. Where a shuffle by symmetric flow moves a connection,
    /// all that is known of it goes along, if its rewriter [can](Rewriter::MOVES).
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_core::stream::{PacketizeConfig, Replace};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    ///
    /// fn shout(input: Input, worker: &Worker) -> impl Function {
    ///     let replace = Replace::new(b"hello", b"HELLO!", None).expect("both strings are short");
    ///     let streams = worker.packetizer("streams", PacketizeConfig::default(), replace);
    ///     input
    ///         .parse::<Link>().or(Edge::OUT)
    ///         .parse::<Ip>().or(Edge::OUT)
    ///         .parse::<Tcp>().or(Edge::OUT)
    ///         .packetize(&streams)
    ///         .done()
    /// }
    /// # let _ = shout;
    /// ```
    fn packetize<R, I>(self, streams: &State<Packetizer<R>>) -> Packetize<Self, R, I>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        R: Rewriter,
    {
        Packetize::new(self, streams.clone())
    }
    /// Puts a header between the innermost one and its payload; enclosing lengths, next-header numbers and header
    /// checksums follow.
    fn insert<H, F>(self, f: F) -> Insert<Self, F, H>
    where
        H: Insertable + Follows<<Self::Out as Stack>::Top>,
        F: FnMut(&View<'_, Self::Out>) -> H + 'static,
    {
        Insert::new(self, f)
    }
    /// Takes the innermost header off the packet; enclosing lengths, next-header numbers and header checksums follow.
    fn remove(self) -> Remove<Self>
    where
        Self::Out: Removable,
    {
        Remove(self)
    }
    /// Replaces options or payload by bytes of another length: `f` says what, and lengths, checksums and offsets follow, those
    /// of tunnels around the packet too. What `f` asks nothing of goes on as it is. Options are those of the header on top, IPv4 or
    /// TCP; payload is what TCP, UDP, ICMP or ICMPv6 carry, in an IP packet of any kind, without TCP's sequence numbers, which
    /// are the function's business. Bytes move into the room behind the packet or before it; where there is none, into a
    /// larger frame.
    ///
    /// A packet that can't be changed so is dropped unchanged, for the [error's reason](crate::operators::ResizeError::reason): a
    /// fragment as [`Fragment`](Drop::Fragment), what an authentication header covers as [`Denied`](Drop::Denied), what has no room
    /// as [`TooBig`](Drop::TooBig). `.or(policy)` behind it sends such a packet elsewhere, `.or_else(f)` asks `f`.
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
    /// Two ways, written where the chain splits, that meet again in one stack.
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
    /// As [`branch`](Self::branch), for ways that end in different stacks: they meet in what was known at the split.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp, Udp};
    /// use netbricks_core::{Drop, Function, Input, Operator};
    ///
    /// fn screened(input: Input) -> impl Function {
    ///     input
    ///         .parse::<Link>()
    ///         .parse::<Ip>()
    ///         .fork(
    ///             |packet| packet.header().protocol() == 17,
    ///             |udp| udp.parse::<Udp>().filter(Drop::Denied, |packet| packet.header().source_port() != 0),
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
    /// `groups` copies of one sub-chain, each with its own state; the closure names the group, and a number beyond
    /// the last wraps round.
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
    /// Back to the wire: arms of a branch with different stacks meet after this.
    fn forget(self) -> Forget<Self, Root> {
        Forget::new(self, |_| Root)
    }
    /// Forgets what the last `map` or `lookup` found out.
    fn forget_metadata(self) -> ForgetMetadata<Self>
    where
        Self::Out: Forgettable,
    {
        ForgetMetadata(self)
    }
    /// Fuses the next function into the same node, and into the same loop up to 16 of them: `ttl(input).then(nat)`. It gets what it
    /// would get from a node before it: what the first one lets pass, and what that sends out by [`Edge::OUT`]. (A first one that
    /// does not end on the wire, by `done` or `forget`, is part of one function with the next: both leave that.)
    ///
    /// What a function [creates](crate::view::View::reply) on [`Edge::OUT`] leaves the node at once, past what is fused behind it.
    /// Behind `packetize` and windows in the packets' way, which send all they let pass in packets of their own, nothing can be fused:
    /// [`compose`](crate::compose()) refuses it.
    fn then<B: Operator<In = Self::Out>>(self, next: impl FnOnce(Start<Self::Out>) -> B) -> Then<Self, B> {
        Then::new(self, next(Start::new()))
    }
    /// Ends the function by sending every packet away on `edge`: nothing after it sees them.
    fn send(self, edge: Edge) -> Send<Self> {
        Send(self, edge)
    }
    /// Ends the function. What `.or(Verdict::PASS)` let through joins again here.
    fn done(self) -> Boundary<Self> {
        Boundary(self)
    }
}

/// What a function takes: packets as they are on the wire.
///
/// A concrete type on purpose: closures inherit the type parameters of the function they stand in, so a function
/// generic over its input would copy that input's whole type into each of its closures, and compile time would double
/// with every function fused.
pub type Input = Start<Root>;

/// What a function gives is the same again. That is why functions chain (`ttl(input).then(nat)`) and why one alone
/// composes into a node.
pub trait Function: Operator<In = Root, Out = Root> {}
impl<T: Operator<In = Root, Out = Root>> Function for T {}

/// The empty tower over stack `S`: a function's input, or an arm of a branch.
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
    const PUTS_OFF: bool = false;
    const USUAL: bool = false;
    const IDENTITY: bool = true;
    const RETRACES: bool = true;
    #[inline(always)]
    fn retrace<const SHAPE: u8>(&self, _: &[u8], stack: S) -> Option<S> {
        Some(stack)
    }
    #[inline(always)]
    fn prepare(&mut self, _: &mut Batch, _: &mut Context, _: &impl Fn(usize) -> Option<S>) {}
    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, _: At<'_, '_>, stack: S) -> Result<S, Verdict> {
        Ok(stack)
    }
    fn edges(&self, _: &mut dyn FnMut(Edge)) {}
}

pub(crate) type Parsed<A, H> = Layer<<A as Operator>::Out, H>;
pub(crate) type Known<A, M> = With<<A as Operator>::Out, M>;
