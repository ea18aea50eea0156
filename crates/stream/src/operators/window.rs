//! The observer that shows byte streams to a user function, beside the packets' path (NetBricks, section
//! 3.1).

use std::marker::PhantomData;

use netbricks_core::operators::Observe;
use netbricks_core::packet::Ip;
use netbricks_core::packet::stack::{Holds, Stack};
use netbricks_core::state::State;
use netbricks_core::view::{Enclosing, IpRewrite, View};
use netbricks_core::{BuildError, Worker};

use crate::{Protocol, StreamConfig, WindowConfig, WindowObserver, WindowParts, Windows};

/// The most connections that one run of the timeout's event ends, however many are due.
const EXPIRED_A_RUN: usize = 1_024;
/// The number of periods in a timeout when all connections end at once.
///
/// So a connection lives longer than the timeout by at most an eighth of it, unless the shortest period is
/// longer.
const SHARES_OF_A_TIMEOUT: u64 = 8;
/// The shortest and the longest period of the event (ns).
const PERIOD: (u64, u64) = (1_000_000, 1_000_000_000);

/// The observer that follows the streams in packets.
pub struct Windowed<P: Protocol, F: WindowObserver, I>(State<Windows<P, F>>, PhantomData<fn() -> I>);

impl<P: Protocol, F: WindowObserver + 'static, I> Windowed<P, F, I> {
    pub(crate) fn new(worker: &Worker, name: &str, config: WindowConfig, f: F) -> Self {
        Self(windows_of(worker, name, config, f), PhantomData)
    }
}

/// Declares windows: see [`StreamWorker::windows`](crate::StreamWorker::windows).
pub(super) fn windows_of<P: Protocol, F: WindowObserver + 'static>(
    worker: &Worker,
    name: &str,
    config: WindowConfig,
    f: F,
) -> State<Windows<P, F>> {
    let streams = StreamConfig { seed: worker.seed(), ..config.streams };
    let config = WindowConfig { streams, ..config };
    // No packet comes to the control side's copy.
    let sized = if worker.is_control() { WindowConfig::SMALLEST } else { config };
    let room = WindowParts::new(sized).or_else(|error| {
        worker.fail(BuildError::new(format_args!("windows `{name}`: {error}")));
        WindowParts::new(WindowConfig::SMALLEST)
    });
    let windows = match room.map(|room| Windows::over(room, f)) {
        Ok(windows) => worker.declare(name, windows),
        // The build has failed already, and nothing can run without memory for a page.
        Err(error) => panic!("no memory for a window of one byte: {error}"),
    };
    let expiring = windows.clone();
    let (shortest, longest) = PERIOD;
    let runs = config.streams.flows.div_ceil(EXPIRED_A_RUN).max(1) as u64;
    let period = (config.streams.idle / SHARES_OF_A_TIMEOUT / runs).clamp(shortest, longest);
    worker.invoke_every(&format!("{name}.timeout"), period, move |event| {
        expiring.borrow_mut().expire(event.now(), EXPIRED_A_RUN);
    });
    let finishing = windows.clone();
    worker.at_the_end(move || finishing.borrow_mut().finish());
    windows
}

impl<S, P, F, I> Observe<S> for Windowed<P, F, I>
where
    S: Stack<Top = P> + Holds<Ip, I>,
    P: Protocol,
    F: WindowObserver + 'static,
    I: 'static,
{
    #[inline(always)]
    fn observe(&mut self, packet: &View<'_, S>, now: u64) {
        // A fragment's payload is not a segment's payload, so its bytes count as lost.
        if !Enclosing::<I>::outer::<Ip>(packet).is_fragment() {
            let mut segment = P::segment(packet.header(), packet.payload());
            // The missing bytes are a gap in the stream, and the end of the segment lies behind them.
            segment.ends &= !IpRewrite::<I>::is_cut_off(packet);
            self.0.borrow_mut().push(IpRewrite::<I>::flow_key(packet), segment, now);
        }
    }
}
