//! The operator that shows byte streams to a user function, beside the packets' way (NetBricks, section 3.1).

use std::hint::cold_path;
use std::marker::PhantomData;

use netbricks_buffer::Batch;
use netbricks_packet::stack::{Header, Holds, Stack};
use netbricks_packet::{FlowKey, Ip};

use super::simple::is_cut_off;
use super::{passes_on, upstream};
use crate::at::At;
use crate::context::Context;
use crate::operator::Operator;
use crate::reason::{Edge, Verdict};
use crate::registry::{BuildError, Worker};
use crate::state::State;
use crate::stream::{Protocol, Room, StreamConfig, Viewer, Window, WindowConfig, Windows};

/// Connections that one run of the timeout's event ends: bounded, however many are due.
const EXPIRED_A_RUN: usize = 1_024;
/// Events run so often that no connection lives longer than the timeout by more than this share of it, also where all end at
/// once; but for the shortest period.
const SHARES_OF_A_TIMEOUT: u64 = 8;
/// Runs of the event are this far apart at least, and at most (ns).
const PERIOD: (u64, u64) = (1_000_000, 1_000_000_000);

/// Follows the streams that packets carry and passes every packet on unchanged.
pub struct Windowed<A: Operator, F: Viewer, I>(
    A,
    State<Windows<<A::Out as Stack>::Top, F>>,
    PhantomData<fn() -> I>,
)
where
    <A::Out as Stack>::Top: Protocol;

impl<A, F, I> Windowed<A, F, I>
where
    A: Operator,
    <A::Out as Stack>::Top: Protocol,
    F: Viewer + 'static,
{
    pub(crate) fn new(input: A, worker: &Worker, name: &str, config: WindowConfig, f: F) -> Self {
        Self(input, worker.windows_of(name, config, f), PhantomData)
    }
}

impl Worker {
    /// Declares windows over streams, and the event that ends connections in time; the seed is the worker's. Where they can't be made (a size of 0,
    /// no memory) the node's building fails with that error; the handle is then of windows that never see a packet.
    pub fn windows<P: Protocol, F: FnMut(&Window<'_>) + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, F>> {
        self.windows_of(name, config, f)
    }

    fn windows_of<P: Protocol, F: Viewer + 'static>(
        &self,
        name: &str,
        config: WindowConfig,
        f: F,
    ) -> State<Windows<P, F>> {
        let streams = StreamConfig { seed: self.seed(), ..config.streams };
        let config = WindowConfig { streams, ..config };
        let room = Room::new(config).or_else(|error| {
            self.fail(BuildError::new(format_args!("windows `{name}`: {error}")));
            Room::new(WindowConfig::SMALLEST)
        });
        let windows = match room.map(|room| Windows::over(room, f)) {
            Ok(windows) => self.declare(name, windows),
            // Not even one window: the failure stands already, and nothing can run without memory for a page.
            Err(error) => panic!("no memory for a window of one byte: {error}"),
        };
        let expiring = windows.clone();
        let (shortest, longest) = PERIOD;
        let runs = config.streams.flows.div_ceil(EXPIRED_A_RUN).max(1) as u64;
        let period = (config.streams.idle / SHARES_OF_A_TIMEOUT / runs).clamp(shortest, longest);
        self.invoke_every(&format!("{name}.timeout"), period, move |event| {
            expiring.borrow_mut().expire(event.now(), EXPIRED_A_RUN);
        });
        let finishing = windows.clone();
        self.at_the_end(move || finishing.borrow_mut().finish());
        windows
    }
}

impl<A, F, I> Operator for Windowed<A, F, I>
where
    A: Operator,
    A::Out: Holds<Ip, I>,
    <A::Out as Stack>::Top: Protocol,
    F: Viewer + 'static,
    I: 'static,
{
    type Out = A::Out;
    passes_on!();

    #[inline(always)]
    fn apply<const SHAPE: u8>(&mut self, mut at: At<'_, '_>, stack: A::In) -> Result<Self::Out, Verdict> {
        let stack = upstream!(self, at, stack);
        let data = at.bytes.data();
        let (ip, ip_end, facts) = Holds::<Ip, I>::locate(&stack);
        // A fragment's payload is not its segment's: what it carries counts as lost.
        if !Ip::view(&data[ip..ip_end], facts).is_fragment() {
            let flow = FlowKey::at(data, ip, ip_end, stack.payload_end(), facts);
            let facts_of_ip = facts;
            let (header, facts) = stack.top();
            let (end, limit) = (stack.end(), stack.limit(data.len()));
            let header = <A::Out as Stack>::Top::view(&data[header..end], facts);
            let mut segment = <A::Out as Stack>::Top::segment(header, &data[end..limit]);
            if at.cx.cut
                && at.bytes.missing() > 0
                && is_cut_off(Ip::view(&data[ip..ip_end], facts_of_ip), ip, data.len())
            {
                cold_path();
                // What is missing is a gap in the stream, and the stream ends behind it, wherever that is.
                segment.ends = false;
            }
            self.1.borrow_mut().push(flow, segment, at.cx.now());
        }
        Ok(stack)
    }
}
