//! The operators over byte streams, and what declares their state.

mod packetize;
mod window;

pub use packetize::Packetize;
pub use window::Windowed;

use netbricks_core::operators::{Observed, Substituted};
use netbricks_core::packet::stack::{Holds, Stack};
use netbricks_core::packet::{Ip, Tcp};
use netbricks_core::{Operator, State, Worker};

use crate::{
    Fate, InlineWindow, InlineWindowConfig, Keeping, Kept, PacketizeConfig, Packetizer, Protocol, Replacing,
    Rewriter, Window, WindowConfig, Windows,
};
use packetize::inline_window_of;

/// Packets of `A` whose streams `F` sees, window by window.
pub type ObservedWindows<A, F, I> = Observed<A, Windowed<<<A as Operator>::Out as Stack>::Top, F, I>>;

/// The words of a function that are about byte streams.
pub trait StreamOperator: Operator {
    /// Shows the byte streams that these packets carry to a user function, window by window, and passes every packet on
    /// unchanged (the paper's window, beside the packets' path). `name` is that of the declared state: connections and how
    /// many there may be. Its keyed hash has the worker's seed.
    ///
    /// `f` sees each direction of a connection in order, learns of gaps, and is called with what there is once its first bytes have
    /// waited for the timeout (at the connection's next packet), and a last time when the direction ends: also when it was silent for
    /// the timeout, and when the graph is taken down. What was in a window before comes again in the next where windows overlap,
    /// or where one was shown before it was full: only [`fresh`](Window::fresh) bytes are new. A function's other packets are in
    /// their own order: a window is shown when the packet passes that fills it. What `f` may do and what becomes of its panics is
    /// as for any user function. Fragments of IP packets count as lost: put what reassembles them before this. Checksums are believed:
    /// it is the port that verifies them. Where a shuffle
    /// moves a connection, `f` of the old worker learns of [its end](crate::End::Moved) there, and that of the new one
    /// goes on with the next window.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::WindowConfig;
    /// use netbricks_core::{Function, Input, Operator, Worker};
    /// use netbricks_stream::StreamOperator;
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
    fn window<F, I>(
        self,
        worker: &Worker,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> ObservedWindows<Self, F, I>
    where
        Self::Out: Holds<Ip, I>,
        I: 'static,
        <Self::Out as Stack>::Top: Protocol,
        F: FnMut(&Window<'_>) + 'static,
    {
        self.observe(Windowed::new(worker, name, config, f))
    }
    /// As [`window`](Self::window), of a function that is also lent what it [keeps](crate::Kept) of the direction that it
    /// sees: the default at its beginning, then what it left there. Where a shuffle by symmetric flow moves a connection, that
    /// goes along. `f` of the old worker sees it a last time with [`End::Moved`](crate::End::Moved): nothing of it ended,
    /// another goes on.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::{Kept, WindowConfig};
    /// use netbricks_core::{Function, Input, Operator, Worker};
    /// use netbricks_stream::StreamOperator;
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
    ) -> ObservedWindows<Self, Keeping<F, M>, I>
    where
        Self::Out: Holds<Ip, I>,
        I: 'static,
        <Self::Out as Stack>::Top: Protocol,
        M: Kept,
        F: FnMut(&Window<'_>, &mut M) + 'static,
    {
        self.observe(Windowed::new(worker, name, config, Keeping::new(f)))
    }
    /// As [`window`](Self::window), in the packets' path: the bytes of a window go on only when `f` has seen them and says
    /// [`Pass`](crate::Fate::Pass). Until then they are held, or `f` cuts the connection, or replaces some of them. What
    /// leaves, and on which edges, is as with [`packetize`](Self::packetize), which sends it; packets of connections that were
    /// cut are dropped as [`Denied`](netbricks_core::DropReason::Denied), and resets go to both ends: on [`Edge::OUT`](netbricks_core::Edge::OUT), and back on
    /// [`Edge::REPLY`](netbricks_core::Edge::REPLY).
    ///
    /// Connections whose beginning did not pass here are never shown:
    /// [`MidstreamPolicy`](crate::MidstreamPolicy) says whether they pass. Where a shuffle by symmetric flow moves one, bytes that are
    /// held go with it and are shown there when they would have been here; `f` of the old worker learns that
    /// [its directions moved](crate::End::Moved).
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::{Cut, Fate, InlineWindowConfig};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    /// use netbricks_stream::StreamOperator;
    ///
    /// /// Takes card numbers out of what is sent: four groups of four digits.
    /// fn censor(input: Input, worker: &Worker) -> impl Function {
    ///     // Windows share 18 bytes, so that a number is whole in one of them, and wait for 50 ms to be full.
    ///     let config = InlineWindowConfig::new(1_000, 982, 50_000_000);
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
        config: InlineWindowConfig,
        f: F,
    ) -> Substituted<Self, Packetize<InlineWindow<F>, I>>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        I: 'static,
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static,
    {
        self.substitute(Packetize::new(worker.inline_window(name, config, f)))
    }
    /// As [`window_in_path`](Self::window_in_path), of a function that is also lent what it [keeps](crate::Kept) of the
    /// direction that it decides on, as with [`window_keeping`](Self::window_keeping): that moves with the bytes that are held.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::{Cut, Fate, InlineWindowConfig, Kept};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    /// use netbricks_stream::StreamOperator;
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
    ///         .window_in_path_keeping(worker, "streams", InlineWindowConfig::new(512, 512, 0), |window, _, line: &mut Line| {
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
        config: InlineWindowConfig,
        f: F,
    ) -> Substituted<Self, Packetize<InlineWindow<Keeping<F, M>>, I>>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        I: 'static,
        M: Kept,
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>, &mut M) -> Fate + 'static,
    {
        self.substitute(Packetize::new(inline_window_of(worker, name, config, Keeping::new(f))))
    }
    /// Rewrites the byte streams that these packets carry (the paper's window in the packets' path, and packetize). Packets
    /// of connections whose beginning passed here end here, as [`Replaced`](netbricks_core::DropReason::Replaced), and others go on in their
    /// place on [`Edge::OUT`](netbricks_core::Edge::OUT); the rest goes on unchanged. In either case nothing of this node comes after it. What does
    /// not come here has to leave on [`Edge::OUT`](netbricks_core::Edge::OUT) as well (`parse` with a policy, `divert`), so that packets keep their order. Both
    /// directions must pass the same worker. First fragments of what is rewritten are dropped, as
    /// [`Fragment`](netbricks_core::DropReason::Fragment): put what reassembles them before this. Where a shuffle by symmetric flow moves a connection,
    /// all that is known of it goes along, if its rewriter [can](Rewriter::MOVES).
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::{PacketizeConfig, Replace};
    /// use netbricks_core::{Edge, Function, Input, Operator, Worker};
    /// use netbricks_stream::{StreamOperator, StreamWorker};
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
    fn packetize<R, I>(self, streams: &State<Packetizer<R>>) -> Substituted<Self, Packetize<R, I>>
    where
        Self::Out: Holds<Ip, I> + Stack<Top = Tcp>,
        I: 'static,
        R: Rewriter,
    {
        self.substitute(Packetize::new(streams.clone()))
    }
}

impl<A: Operator> StreamOperator for A {}

/// Declares the state of streams.
pub trait StreamWorker {
    /// Declares windows over streams, and the event that ends connections in time; the seed is the worker's. Where they can't be made (a
    /// size of 0, no memory) the node's building fails with that error; the handle is then of windows that never see a packet.
    fn windows<P: Protocol, F: FnMut(&Window<'_>) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, F>>;

    /// Declares streams that are rewritten, with the worker's seed, and the event that forgets silent connections. Where
    /// they can't be, the node's building fails with that error.
    fn packetizer<R: Rewriter>(
        &self,
        name: &str,
        config: PacketizeConfig,
        rewriter: R,
    ) -> State<Packetizer<R>>;

    /// Declares windows in the packets' path ([`window_in_path`](StreamOperator::window_in_path)), for those who want their
    /// handle: `packetize` takes it. Where they can't be, the node's building fails with that error.
    fn inline_window<F>(
        &self,
        name: &str,
        config: InlineWindowConfig,
        f: F,
    ) -> State<Packetizer<InlineWindow<F>>>
    where
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static;
}

impl StreamWorker for Worker {
    fn windows<P: Protocol, F: FnMut(&Window<'_>) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, F>> {
        window::windows_of(self, name, config, f)
    }

    fn packetizer<R: Rewriter>(
        &self,
        name: &str,
        config: PacketizeConfig,
        rewriter: R,
    ) -> State<Packetizer<R>> {
        packetize::packetizer_of(self, name, config, rewriter)
    }

    fn inline_window<F>(
        &self,
        name: &str,
        config: InlineWindowConfig,
        f: F,
    ) -> State<Packetizer<InlineWindow<F>>>
    where
        F: FnMut(&Window<'_>, &mut Replacing<'_, '_>) -> Fate + 'static,
    {
        inline_window_of(self, name, config, f)
    }
}
