//! Scheduled events (NetBricks, section 3.1): an NF's own code at a time or at an interval.
//!
//! An event runs on the worker that has its state. The clock is an argument: a replayed capture runs its
//! events at the same places among its packets, at every batch size.
//!
//! Late runs are merged: where several periods have passed, the event runs once and learns how many it
//! missed.

mod timer;

use std::fmt;
use std::rc::Rc;

use netbricks_buffer::Pool;

pub use timer::Schedule;
use timer::{Image, NEVER, Run, Timer, When};

use crate::context::Context;
use crate::node::Poll;
use crate::reason::{DropReason, Edge};
use crate::worker::{BuildError, Worker};

/// The calls that an event may make while it runs.
pub struct Event<'a> {
    cx: &'a mut Context,
    run: Run,
}

impl Event<'_> {
    /// The time (ns, the graph's clock).
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
    /// The time for which it runs (ns): the latest of its times that is not after [`now`](Self::now).
    pub fn due(&self) -> u64 {
        self.run.due
    }
    /// How many of its earlier times had no run of their own, since the last run.
    pub fn missed(&self) -> u64 {
        self.run.missed
    }
    /// The pool of new packets.
    pub fn pool(&self) -> &Pool {
        self.cx.pool()
    }

    /// Sends a new packet of `length` zero bytes, filled by `write`, on an edge of the function.
    ///
    /// [`Edge::OUT`] takes it past the function's own operators. Its time is [`now`](Self::now). If the event
    /// panics later on, the packet is neither counted nor sent.
    ///
    /// `false` where it cannot be sent. The packet is then counted as created and dropped. The reason is
    /// [`PoolExhausted`](DropReason::PoolExhausted) where no buffer is free, and
    /// [`TooBig`](DropReason::TooBig) where none is large enough. It is
    /// [`RateLimited`](DropReason::RateLimited) where this run already made
    /// [`CREATED_LIMIT`](crate::context::CREATED_LIMIT) packets.
    pub fn inject(&mut self, edge: Edge, length: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let Some(mut packet) = self.cx.pool().allocate(length) else {
            self.cx.lost_without_buffer(length);
            return false;
        };
        packet.set_received_at(self.cx.now());
        write(packet.data_mut());
        let made = self.cx.create(edge, packet).is_ok();
        if !made {
            self.cx.lost_on_creation(DropReason::RateLimited, length as u64);
        }
        made
    }
}

type Action = Box<dyn FnMut(&mut Event<'_>)>;

/// The events that a function declared.
#[derive(Default)]
pub(crate) struct Events {
    timers: Rc<Vec<Timer>>,
    actions: Vec<Action>,
}

impl Events {
    /// Their schedule, if there are any.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        (!self.timers.is_empty()).then(|| Schedule::new(self.timers.clone()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.timers.iter().any(|timer| timer.name == name)
    }

    /// Runs the event that has waited longest, if one is due, and answers when to ask again.
    ///
    /// It runs one event a call, so that a panic undoes the packets of that event only.
    pub(crate) fn poll(&mut self, cx: &mut Context) -> Poll {
        let now = cx.now();
        self.timers.iter().for_each(|timer| timer.begin(now));
        let first = self.timers.iter().zip(&mut self.actions).min_by_key(|(timer, _)| timer.next.get());
        if let Some((timer, action)) = first.filter(|(timer, _)| timer.next.get() <= now) {
            let run = timer.take(now);
            action(&mut Event { cx, run });
        }
        match self.timers.iter().map(|timer| timer.next.get()).min() {
            None | Some(NEVER) => Poll::Done,
            Some(next) => Poll::Until(next),
        }
    }

    /// Names and values of the handlers that count runs.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (String, &'static str, u64)> {
        self.timers.iter().flat_map(|timer| {
            [
                (format!("{}.runs", timer.name), "How often the event ran.", timer.runs.get()),
                (
                    format!("{}.missed", timer.name),
                    "Times that passed without a run of their own, since it was late.",
                    timer.missed.get(),
                ),
            ]
        })
    }

    pub(crate) fn export(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.timers.iter().map(|timer| (timer.name.clone(), Image::of(timer).encode()))
    }

    /// Takes over bytes of [`export`](Self::export); `None` where there is no event of that name.
    pub(crate) fn import(&self, name: &str, bytes: &[u8], now: u64) -> Option<Result<(), String>> {
        let timer = self.timers.iter().find(|timer| timer.name == name)?;
        Some(Image::decode(bytes).map(|image| image.settle(timer, now)))
    }
}

impl Worker {
    /// Runs `event` every `period` ns, first one period after the graph's clock begins to run.
    ///
    /// Where it is late by several periods it runs once, and [`Event::missed`] says how many had no run; the
    /// phase stays. The handlers `NAME.runs` and `NAME.missed` answer how many there were.
    ///
    /// The event has the function's declared state through its handles, as user functions do. It runs between
    /// batches, and no batch of a replayed capture holds packets from before and from after its time. A panic
    /// in it undoes its packets, and the function's state starts empty, as after any panic. Its next run
    /// stays as scheduled. An event that is not yet due when the graph is taken down, or when its last source
    /// ends, does not run.
    ///
    /// With a period of 0 the building of the function fails.
    ///
    /// ```
    /// use netbricks_core::buffer::{Batch, Pool};
    /// use netbricks_core::{DetachedContext, Edge, Function, Input, Operator, Poll, Worker, compose};
    ///
    /// /// Counts packets, and every second tells how many it has seen, in a frame of its own.
    /// fn tally(input: Input, worker: &Worker) -> impl Function {
    ///     let seen = worker.counter("seen");
    ///     let told = seen.clone();
    ///     worker.invoke_every("tell", 1_000_000_000, move |event| {
    ///         event.inject(Edge::REPLY, 60, |frame| frame[14..22].copy_from_slice(&told.get().to_be_bytes()));
    ///     });
    ///     input.inspect(move |_| seen.add(1)).done()
    /// }
    ///
    /// // In a graph this happens by itself; here the node is asked by hand.
    /// let pool = Pool::builder().frames(16).build()?;
    /// let worker = Worker::new(0, 1, pool.clone());
    /// let mut node = compose(&worker, |input| tally(input, &worker))?;
    /// let (mut cx, mut batch) = (DetachedContext::new(pool), Batch::new());
    /// cx.advance(5_000_000_000);
    /// assert_eq!(node.poll(&mut batch, &mut cx), Poll::Until(6_000_000_000));
    /// cx.advance(8_300_000_000);
    /// assert_eq!(node.poll(&mut batch, &mut cx), Poll::Until(9_000_000_000));
    /// assert_eq!((node.call("tell.runs", "")?, node.call("tell.missed", "")?), ("1".into(), "2".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn invoke_every(&self, name: &str, period: u64, event: impl FnMut(&mut Event<'_>) + 'static) {
        if period == 0 {
            self.fail(BuildError::new(format_args!(
                "event `{name}`: its period is 0 ns; give how many ns lie between two runs, 1 at least: 1_000_000 is every millisecond"
            )));
            return;
        }
        self.schedule(name, When::Every(period), Box::new(event));
    }

    /// Runs `event` once, at `time` (ns, the graph's clock: since 1970 on live ports and captures).
    ///
    /// An event whose time has passed runs in the next turn. In all else it behaves as with
    /// [`invoke_every`](Self::invoke_every).
    ///
    /// A function that is rebuilt after a panic, or that imports the state of another, does not run it a
    /// second time.
    ///
    /// ```
    /// use netbricks_core::{Function, Input, Operator, Worker};
    ///
    /// /// Counts the packets that come before `time` (ns).
    /// fn early(input: Input, time: u64, worker: &Worker) -> impl Function {
    ///     let (seen, before) = (worker.counter("seen"), worker.counter("before"));
    ///     let counted = seen.clone();
    ///     worker.invoke_at("halt", time, move |_| before.add(counted.get()));
    ///     input.inspect(move |_| seen.add(1)).done()
    /// }
    /// # let _ = early;
    /// ```
    pub fn invoke_at(&self, name: &str, time: u64, event: impl FnMut(&mut Event<'_>) + 'static) {
        self.schedule(name, When::At(time), Box::new(event));
    }

    fn schedule(&self, name: &str, when: When, action: Action) {
        let mut declarations = self.declarations.borrow_mut();
        let name = declarations.unique(name);
        let events = &mut declarations.events;
        // No other code has a schedule of a function that is being built: there is no other owner.
        if let Some(timers) = Rc::get_mut(&mut events.timers) {
            timers.push(Timer::new(name, when));
            events.actions.push(action);
        }
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("now", &self.now()).field("run", &self.run).finish()
    }
}
