//! An element's view of its configuration: ports, packets, tasks, timers, descriptors, signals.

use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet, Pool};

use super::{At, Capabilities, Instance, MAX_DEPTH, Watched};
use crate::names::Names;

/// Lines about packets that an element says at most.
const COMPLAINTS: u32 = 64;

impl<'r> At<'r> {
    #[inline]
    fn instance(self) -> &'r Instance {
        &self.router.instances[self.id]
    }
    /// The element's name.
    pub fn name(self) -> &'r str {
        self.router.name(self.id)
    }
    /// The element's class.
    pub fn class(self) -> &'r str {
        self.router.class(self.id)
    }
    /// `name :: Class`, as messages have it.
    pub fn declaration(self) -> String {
        format!("{} :: {}", self.name(), self.class())
    }
    /// The number of inputs.
    #[inline]
    pub fn inputs(self) -> usize {
        self.instance().inputs.len()
    }
    /// The number of outputs.
    #[inline]
    pub fn outputs(self) -> usize {
        self.instance().outputs.len()
    }
    /// Whether an input is push.
    pub fn input_is_push(self, input: usize) -> bool {
        self.instance().input_push.get(input) == Some(&true)
    }
    /// Whether an input is pull.
    pub fn input_is_pull(self, input: usize) -> bool {
        self.instance().input_push.get(input) == Some(&false)
    }
    /// Whether an output is push.
    pub fn output_is_push(self, output: usize) -> bool {
        self.instance().output_push.get(output) == Some(&true)
    }
    /// Whether an output is pull.
    pub fn output_is_pull(self, output: usize) -> bool {
        self.instance().output_push.get(output) == Some(&false)
    }

    #[inline]
    fn enter(self) -> bool {
        let depth = self.router.depth.get();
        if !self.router.work.step(1, depth == 0) || depth >= MAX_DEPTH {
            return false;
        }
        self.router.depth.set(depth + 1);
        true
    }
    #[inline]
    fn leave(self) {
        self.router.depth.set(self.router.depth.get() - 1);
    }

    /// Passes a packet on by a push output. It is dropped where there is no such output.
    #[inline]
    pub fn push(self, output: usize, packet: Packet) {
        if self.gathers() {
            self.pass_gathered();
        }
        let Some(&Some((id, input))) = self.instance().outputs.get(output) else {
            self.drop_packet(packet, DropReason::Unconnected);
            return;
        };
        if !self.enter() {
            self.drop_packet(packet, DropReason::LoopLimit);
            return;
        }
        self.router.element(id).push(At { router: self.router, id }, input, packet);
        self.leave();
    }

    /// Passes a packet on by an output, if the element has that many; otherwise it is dropped for a reason.
    #[inline]
    pub fn push_or_drop(self, output: usize, packet: Packet, reason: DropReason) {
        if output < self.outputs() { self.push(output, packet) } else { self.drop_packet(packet, reason) }
    }

    /// Passes the packets of a batch on by a push output, and leaves the batch empty.
    pub fn push_batch(self, output: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let Some(&Some((id, input))) = self.instance().outputs.get(output) else {
            self.drop_batch(batch, DropReason::Unconnected);
            return;
        };
        if !self.enter() {
            self.drop_batch(batch, DropReason::LoopLimit);
            return;
        }
        if !self.router.runs_fused(id, input, batch) {
            self.router.element(id).push_batch(At { router: self.router, id }, input, batch);
        }
        self.leave();
    }

    /// Asks for a packet by a pull input.
    #[inline]
    pub fn pull(self, input: usize) -> Option<Packet> {
        let &(id, output) = self.instance().inputs.get(input)?.as_ref()?;
        if !self.enter() {
            return None;
        }
        let packet = self.router.element(id).pull(At { router: self.router, id }, output);
        self.leave();
        packet
    }

    /// Ends a packet for a reason.
    pub fn drop_packet(self, packet: Packet, reason: DropReason) {
        self.router.drops.set(self.router.drops.get() + 1);
        self.router.count_left(1);
        if self.router.surroundings.keeps_dropped {
            self.router.dropped.borrow_mut().push((packet, reason));
        }
    }
    /// Ends the packets of a batch for a reason, and leaves the batch empty.
    ///
    /// Apart from who calls it: a drain takes 2 KiB of the stack, and elements call each other.
    #[cold]
    #[inline(never)]
    pub(crate) fn drop_batch(self, batch: &mut Batch, reason: DropReason) {
        batch.drain().for_each(|packet| self.drop_packet(packet, reason));
    }
    /// Ends a packet whose work is done.
    pub fn discard(self, packet: Packet) {
        self.drop_packet(packet, DropReason::Discarded);
    }
    /// Gives the packets of a batch to a device, and leaves the batch empty.
    pub fn send_batch(self, device: usize, batch: &mut Batch) {
        self.router.count_left(batch.len() as u64);
        self.router.outbox.borrow_mut().append(device, batch);
    }
    /// Gives a packet to a device.
    pub fn send(self, device: usize, packet: Packet) {
        self.router.count_left(1);
        self.router.outbox.borrow_mut().push(device, packet);
    }

    /// Whether one more packet may be created.
    fn may_create(self) -> bool {
        let may = !self.router.is_full();
        if !may {
            self.router.refused.set(self.router.refused.get() + 1);
        }
        may
    }
    fn count_created(self, packet: &Packet) {
        self.router.arrived(1);
        self.router.created.set(self.router.created.get() + 1);
        self.router.created_bytes.set(self.router.created_bytes.get() + packet.len() as u64);
    }
    /// A new packet of these bytes. `None` when the pool has no frame.
    pub fn packet(self, bytes: &[u8]) -> Option<Packet> {
        if !self.may_create() {
            return None;
        }
        let packet = self.pool().packet(bytes)?;
        self.count_created(&packet);
        Some(packet)
    }
    /// A new packet of `length` zero bytes. `None` when the pool has no frame.
    pub fn allocate(self, length: usize) -> Option<Packet> {
        if !self.may_create() {
            return None;
        }
        let packet = self.pool().allocate(length)?;
        self.count_created(&packet);
        Some(packet)
    }
    /// A copy of a packet with its annotations. `None` when the pool has no frame.
    pub fn copy(self, packet: &Packet) -> Option<Packet> {
        if !self.may_create() {
            return None;
        }
        let copy = packet.try_copy()?;
        self.count_created(&copy);
        Some(copy)
    }
    /// The pool of packets.
    pub fn pool(self) -> &'r Pool {
        &self.router.surroundings.pool
    }

    /// Asks for a turn of one of the element's tasks.
    #[inline]
    pub fn schedule(self, task: usize) {
        self.router.tasks.schedule((self.id, task));
    }
    /// Asks for no turn.
    pub fn unschedule(self, task: usize) {
        self.router.tasks.unschedule((self.id, task));
    }
    /// Has one of the element's timers expire at a steady time (ns).
    pub fn timer_at(self, timer: usize, time: u64) {
        self.router.timers.schedule((self.id, timer), time);
    }
    /// Has one of the element's timers expire after a span of time (ns).
    pub fn timer_after(self, timer: usize, span: u64) {
        self.timer_at(timer, self.router.steady().saturating_add(span));
    }
    /// Has a timer not expire.
    pub fn unschedule_timer(self, timer: usize) {
        self.router.timers.unschedule((self.id, timer));
    }
    /// The time of day (ns since 1970).
    pub fn now(self) -> u64 {
        self.router.now()
    }
    /// The steady time of timers (ns).
    pub fn steady(self) -> u64 {
        self.router.steady()
    }
    /// Says a line (Click's chatter).
    pub fn chatter(self, line: &str) {
        self.router.chatter(line);
    }
    /// Says a line about a packet.
    ///
    /// Of an element the first 64 are made and said: each packet may cause one.
    #[cold]
    pub fn complain(self, line: impl FnOnce() -> String) {
        let Some(instance) = self.router.instances.get(self.id) else { return };
        let said = instance.complaints.get();
        if said < COMPLAINTS {
            instance.complaints.set(said + 1);
            self.router.chatter(&line());
        }
    }
    /// Names of values.
    pub fn names(self) -> &'r Names {
        &self.router.names
    }
    /// Capabilities of the element beyond the configuration.
    pub fn capabilities(self) -> Capabilities {
        self.router.surroundings.capabilities
    }

    /// The configuration string of the element that this one is to replace: of the same name and class.
    pub fn predecessor(self) -> Option<String> {
        let predecessors = self.router.predecessors.borrow();
        let (class, configuration) = predecessors.get(self.name())?;
        (class == self.class()).then(|| configuration.clone())
    }

    /// Has [`Element::heard`](crate::element::Element::heard) called with each line that an element says.
    pub fn listen_to_chatter(self) {
        let mut listeners = self.router.listeners.borrow_mut();
        if !listeners.contains(&self.id) {
            listeners.push(self.id);
        }
    }

    /// Has [`Element::signalled`](crate::element::Element::signalled) called once when the process gets a signal.
    pub fn await_signal(self, signal: i32) {
        let mut signals = self.router.signals.borrow_mut();
        if !signals.contains(&(signal, self.id)) {
            signals.push((signal, self.id));
        }
    }
    /// Ends [`await_signal`](Self::await_signal).
    pub fn forget_signal(self, signal: i32) {
        self.router.signals.borrow_mut().retain(|one| *one != (signal, self.id));
    }

    /// Has [`Element::ready`](crate::element::Element::ready) called when a descriptor can be read, or written. Replaces a wish of the same number.
    ///
    /// # Errors
    /// The descriptor cannot be copied.
    pub fn watch(
        self,
        number: usize,
        descriptor: impl std::os::fd::AsFd,
        write: bool,
    ) -> std::io::Result<()> {
        let descriptor = Rc::new(descriptor.as_fd().try_clone_to_owned()?);
        self.unwatch(number);
        self.router.watched.borrow_mut().push(Watched { element: self.id, number, descriptor, write });
        Ok(())
    }
    /// Ends [`watch`](Self::watch).
    pub fn unwatch(self, number: usize) {
        self.router.watched.borrow_mut().retain(|one| (one.element, one.number) != (self.id, number));
    }
}
