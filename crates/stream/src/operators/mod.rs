//! The operators over byte streams, and the declarations of their state.

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

/// Operators over byte streams.
pub trait StreamOperator: Operator {
    /// Shows the byte streams in these packets to a user function, window by window, and passes every packet
    /// on unchanged.
    ///
    /// This is the paper's window, beside the packets' path. `name` is the name of the declared state: the
    /// connections, and their maximum. Its keyed hash has the worker's seed.
    ///
    /// `f` sees each direction of a connection in order, and learns of gaps:
    ///
    /// - It sees a window when the packet passes that fills it.
    /// - It sees the bytes of a window that is not full once its first bytes have waited for the timeout, at
    ///   the connection's next packet.
    /// - It is called a last time when the direction ends. A direction also ends when it was silent for the
    ///   timeout, and when the graph is taken down.
    ///
    /// Bytes of a window come again in the next one where windows overlap, or where the first one was shown
    /// before it was full. Only [`fresh`](Window::fresh) bytes are new. The function's other packets keep
    /// their own order. The rules for `f` and for its panics are those of any user function.
    ///
    /// Fragments of IP packets count as lost: put a reassembler of fragments before this. Checksums are not
    /// verified here, because the port verifies them. Where a shuffle migrates a connection, `f` of the old
    /// worker learns of [its end](crate::End::Moved), and `f` of the new worker continues with the next
    /// window.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::WindowConfig;
    /// use netbricks_core::{Function, Input, Operator, Verdict, Worker};
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
    /// As [`window`](Self::window), for a function that also gets the state that it [keeps](crate::Kept) of
    /// the direction.
    ///
    /// The state is the default at the direction's beginning, then the value that the function left. Where a
    /// shuffle by symmetric flow migrates a connection, the state moves with it. `f` of the old worker sees
    /// the state a last time with [`End::Moved`](crate::End::Moved). The direction has not ended then; the
    /// other worker continues it.
    ///
    /// ```
    /// use netbricks_core::packet::{Ip, Link, Tcp};
    /// use netbricks_stream::{Kept, WindowConfig};
    /// use netbricks_core::{Function, Input, Operator, Verdict, Worker};
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
    /// As [`window`](Self::window), in the packets' path: bytes are forwarded only when `f` says
    /// [`Pass`](crate::Fate::Pass).
    ///
    /// Until then they are held. `f` may also cut the connection, or replace some of the bytes.
    /// [`packetize`](Self::packetize) sends the bytes, and documents which packets leave on which edges.
    /// Packets of connections that were cut are dropped as [`Denied`](netbricks_core::DropReason::Denied).
    /// Resets go to both ends: on [`Edge::OUT`](netbricks_core::Edge::OUT), and back on
    /// [`Edge::REPLY`](netbricks_core::Edge::REPLY).
    ///
    /// Connections whose beginning did not pass here are never shown:
    /// [`MidstreamPolicy`](crate::MidstreamPolicy) says whether they pass. Where a shuffle by symmetric flow
    /// migrates a connection, its held bytes move with it. They are shown on the new worker at the time at
    /// which they would have been shown here. `f` of the old worker learns that [its directions
    /// moved](crate::End::Moved).
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
    /// As [`window_in_path`](Self::window_in_path), for a function that also gets the state that it
    /// [keeps](crate::Kept).
    ///
    /// The state belongs to the direction that the function decides on, as with
    /// [`window_keeping`](Self::window_keeping). It moves together with the held bytes.
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
    /// Rewrites the byte streams in these packets (the paper's window in the packets' path, and packetize).
    ///
    /// Packets of connections whose beginning passed here end here, as
    /// [`Replaced`](netbricks_core::DropReason::Replaced). Packets with the rewritten bytes leave in their
    /// place on [`Edge::OUT`](netbricks_core::Edge::OUT). Packets of all other connections leave there
    /// unchanged. In both cases no operator of this function comes after it. Packets that do not come here
    /// have to leave on [`Edge::OUT`](netbricks_core::Edge::OUT) as well (`parse` with a policy, `divert`),
    /// so that packets keep their order.
    ///
    /// Both directions must pass the same worker. First fragments of rewritten connections are dropped, as
    /// [`Fragment`](netbricks_core::DropReason::Fragment): put a reassembler of fragments before this. Where
    /// a shuffle by symmetric flow migrates a connection, its whole state moves with it, if its rewriter [can
    /// move](Rewriter::MOVES).
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
    /// Declares windows over streams, and the event that ends connections in time.
    ///
    /// The seed is the worker's. If the windows cannot be made (a size of 0, no memory), the build of the
    /// node fails with that error. The handle then refers to windows that never see a packet.
    fn windows<P: Protocol, F: FnMut(&Window<'_>) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, F>>;

    /// As [`windows`](Self::windows), for a function that also gets the state that it [keeps](crate::Kept).
    fn windows_keeping<P: Protocol, M: Kept, F: FnMut(&Window<'_>, &mut M) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, Keeping<F, M>>>;

    /// Declares streams that are rewritten, with the worker's seed, and the event that forgets silent
    /// connections.
    ///
    /// If they cannot be made, the build of the node fails with that error.
    fn packetizer<R: Rewriter>(
        &self,
        name: &str,
        config: PacketizeConfig,
        rewriter: R,
    ) -> State<Packetizer<R>>;

    /// Declares windows in the packets' path ([`window_in_path`](StreamOperator::window_in_path)), and
    /// answers their handle.
    ///
    /// [`packetize`](StreamOperator::packetize) takes the handle. If they cannot be made, the build of the
    /// node fails with that error.
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

    fn windows_keeping<P: Protocol, M: Kept, F: FnMut(&Window<'_>, &mut M) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, Keeping<F, M>>> {
        window::windows_of(self, name, config, Keeping::new(f))
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
