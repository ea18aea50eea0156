//! A worker's part in the exchange of packets with the switches of other workers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use netbricks_core::buffer::Packet;
use netbricks_core::shuffle::{BoundState, Handoff, MigrationRequest, ShuffleId};
use netbricks_core::{BuildError, Context, DropReason, ShuffleKey, StateImage};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::host::Host;
use super::shared::{Crossing, Ends, Shared};

/// Packets that are taken from each other worker in a turn.
const BURST: usize = 32;
/// Turns after the last packet from outside in which packets within instances and between workers may still leave.
const LAST_TURNS: u32 = 1_000;

/// A worker's part in the exchange.
pub(super) struct Exchange {
    me: usize,
    shared: Arc<Shared>,
    ends: Option<Ends>,
    /// By worker: packets that go there, oldest first.
    outgoing: Vec<VecDeque<Crossing>>,
    /// A packet that came before its time.
    later: Option<Crossing>,
    /// Packets come only from other workers any more.
    closing: bool,
    /// The instances have ended.
    pub(super) over: bool,
    last_turns: u32,
    /// Wakes the worker for timers of instances.
    timer: OwnedFd,
    slept: Cell<bool>,
}

impl Exchange {
    /// The part of worker `me`; `None` where it is alone.
    pub(super) fn new(shared: &Arc<Shared>, me: usize) -> Result<Option<Self>, BuildError> {
        if shared.workers == 1 {
            return Ok(None);
        }
        let Some(ends) = shared.take_ends(me) else {
            let text =
                format_args!("worker {me} of {} has its part of these instances already", shared.workers);
            return Err(BuildError::new(text));
        };
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(|error| BuildError::new(format_args!("no timerfd for instances: {error}")))?;
        Ok(Some(Self {
            me,
            shared: Arc::clone(shared),
            ends: Some(ends),
            outgoing: (0..shared.workers).map(|_| VecDeque::with_capacity(shared.ring)).collect(),
            later: None,
            closing: false,
            over: false,
            last_turns: 0,
            timer,
            slept: Cell::new(false),
        }))
    }

    /// Packets that wait for room in a ring, or for their time.
    pub(super) fn held(&self) -> u64 {
        (self.outgoing.iter().map(VecDeque::len).sum::<usize>() + usize::from(self.later.is_some())) as u64
    }
    pub(super) fn is_waiting(&self) -> bool {
        self.outgoing.iter().any(|packets| !packets.is_empty())
    }

    /// Takes a packet for another worker.
    ///
    /// At most as many wait as a ring holds; while one waits, no port that leads to the
    /// switch is polled.
    ///
    /// # Errors
    /// Gives the packet back where too many wait for that worker.
    pub(super) fn put(&mut self, worker: usize, crossing: Crossing) -> Result<(), Packet> {
        match self.outgoing.get_mut(worker) {
            Some(packets) if packets.len() < self.shared.ring => {
                packets.push_back(crossing);
                Ok(())
            }
            _ => Err(crossing.packet),
        }
    }

    /// Gives packets to other workers, as far as there is room.
    pub(super) fn flush(&mut self, cx: &mut Context) {
        for (to, packets) in self.outgoing.iter_mut().enumerate() {
            if packets.is_empty() {
                continue;
            }
            let sender = self.ends.as_mut().and_then(|ends| ends.out[to].as_mut());
            let Some(sender) = sender.filter(|sender| !sender.is_closed()) else {
                let reason = if self.over { DropReason::Drained } else { DropReason::WorkerGone };
                packets.drain(..).for_each(|crossing| cx.drop_packet(crossing.packet, reason));
                continue;
            };
            let mut places = sender.write(packets.len());
            let (count, mut bytes) = (places.room(), 0);
            for mut crossing in packets.drain(..count) {
                cx.exchanging().departs(&mut crossing.packet);
                bytes += crossing.packet.wire_len() as u64;
                let put = places.put(crossing);
                debug_assert!(put.is_ok(), "as many places as there was room for");
            }
            drop(places);
            if count > 0 {
                cx.exchanging().handoff_out(count as u64, bytes);
                self.shared.wake(to);
            }
        }
        cx.exchanging().set_blocked(self.is_waiting());
    }

    /// Takes packets that other workers sent. `deliver` gets each.
    ///
    /// Answers whether there were any.
    pub(super) fn take(&mut self, cx: &mut Context, mut deliver: impl FnMut(Crossing, &mut Context)) -> bool {
        let before = self.later.is_some();
        if let Some(crossing) = self.later.take() {
            if !cx.exchanging().arrives(&crossing.packet) {
                self.later = Some(crossing);
                return true;
            }
            deliver(crossing, cx);
        }
        let (mut count, mut bytes) = (0_u64, 0);
        let receivers = self.ends.iter_mut().flat_map(|ends| ends.into.iter_mut().flatten());
        for receiver in receivers {
            if self.last_turns > 0 && receiver.waiting() > 0 {
                // Before the sender sees that it arrived.
                self.shared.set_quiet(self.me, false);
            }
            for crossing in receiver.read(BURST) {
                count += 1;
                bytes += crossing.packet.wire_len() as u64;
                if self.later.is_some() || !cx.exchanging().arrives(&crossing.packet) {
                    self.later = Some(crossing);
                    break;
                }
                deliver(crossing, cx);
            }
            if self.later.is_some() {
                break;
            }
        }
        if count > 0 {
            cx.exchanging().handoff_in(count, bytes);
        }
        before || count > 0
    }

    /// Whether packets come to no worker from outside any more.
    pub(super) fn is_ending(&self) -> bool {
        self.closing && self.shared.is_closing()
    }

    /// Whether the instances are to end: no packets come from outside to any worker, and none are left within.
    ///
    /// Asked once a turn. `busy` says that this worker has something to do or holds packets.
    pub(super) fn ends_now(&mut self, busy: bool) -> bool {
        if self.over || !self.is_ending() {
            return false;
        }
        self.last_turns = self.last_turns.saturating_add(1);
        let arrived = |ends: &Ends| ends.out.iter().flatten().all(|sender| sender.waiting() == 0);
        let quiet = !busy && self.ends.as_ref().is_none_or(arrived) || self.last_turns >= LAST_TURNS;
        self.shared.set_quiet(self.me, quiet);
        self.over = quiet && self.shared.is_quiet();
        self.over
    }

    /// Whether nothing is exchanged any more, after the instances have ended: packets that still came are dropped.
    pub(super) fn has_ended(&mut self, cx: &mut Context) -> bool {
        if !self.over {
            return false;
        }
        self.flush(cx);
        if self.is_waiting() {
            return false;
        }
        let Some(ends) = &mut self.ends else { return true };
        ends.out.iter_mut().for_each(|end| *end = None);
        ends.into.iter().flatten().all(netbricks_core::buffer::queue::Receiver::is_closed)
    }

    /// Gives up all packets, those that others sent too.
    pub(super) fn drain(&mut self, cx: &mut Context) {
        for packets in &mut self.outgoing {
            packets.drain(..).for_each(|crossing| cx.drop_packet(crossing.packet, DropReason::WorkerGone));
        }
        if let Some(crossing) = self.later.take() {
            cx.drop_packet(crossing.packet, DropReason::Drained);
        }
        let Some(ends) = &mut self.ends else { return };
        ends.out.iter_mut().for_each(|end| *end = None);
        for mut receiver in ends.into.iter_mut().filter_map(Option::take) {
            while receiver.waiting() > 0 {
                for crossing in receiver.read(BURST) {
                    cx.exchanging().handoff_in(1, crossing.packet.wire_len() as u64);
                    cx.drop_packet(crossing.packet, DropReason::Drained);
                }
            }
        }
    }

    /// Leaves its ends to the node that replaces this one.
    pub(super) fn give_back(&mut self) {
        if let Some(ends) = self.ends.take() {
            self.shared.give_back(self.me, ends);
        }
    }
    /// Takes its ends again, as no node replaces this one.
    pub(super) fn take_again(&mut self) {
        if self.ends.is_none() {
            self.ends = self.shared.take_ends(self.me);
        }
    }

    /// Names what wakes the worker from a sleep: its bell, and a timer that goes off after `timer` (ns).
    pub(super) fn watch<'e>(&'e self, timer: Option<u64>, seen: u64, watch: &mut dyn FnMut(BorrowedFd<'e>)) {
        self.slept.set(true);
        self.shared.sleeps(self.me);
        let mut receivers = self.ends.iter().flat_map(|ends| ends.into.iter().flatten());
        if receivers.any(|receiver| receiver.waiting() > 0) || self.shared.version() != seen {
            self.shared.ring(self.me);
        }
        let after = timer.map_or(Timespec { tv_sec: 0, tv_nsec: 0 }, |time| Timespec {
            tv_sec: i64::try_from(time / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (time % 1_000_000_000).max(1) as _,
        });
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval: never, it_value: after };
        // It fails for times that do not exist alone.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &set);
        self.shared.bell(self.me).into_iter().for_each(&mut *watch);
        watch(self.timer.as_fd());
    }
    /// Begins a turn. Answers whether the worker may have slept before.
    #[inline]
    pub(super) fn begin(&self) -> bool {
        let slept = self.slept.replace(false);
        if slept {
            self.shared.is_awake(self.me);
            // It fails where the timer has not gone off.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        }
        slept
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.ends.is_some() {
            self.shared.go(self.me);
        }
    }
}

/// Instances stay on their workers: no state moves, and the exchange is none by flow.
impl Handoff for Host {
    fn id(&self) -> ShuffleId {
        ShuffleId::of(&self.shared)
    }
    fn key(&self) -> ShuffleKey {
        ShuffleKey::Own
    }
    fn bound(&mut self, _state: Vec<BoundState>, _upstream: usize) {}
    fn close(&mut self) {
        self.shared.close(self.me);
        // The last one that closes tells the others.
        (0..self.shared.workers)
            .filter(|worker| *worker != self.me)
            .for_each(|worker| self.shared.wake(worker));
        if let Some(exchange) = &mut self.switch.exchange {
            exchange.closing = true;
        }
    }
    fn migration_request(&mut self) -> Option<MigrationRequest> {
        None
    }
    fn is_to_give(&self, _to: usize) -> bool {
        false
    }
    fn is_to_take(&self, _from: usize) -> bool {
        false
    }
    fn given(&mut self, _to: usize, _images: Vec<(String, StateImage)>) {}
    fn took(&mut self, _from: usize, _refused: usize) {}
}
