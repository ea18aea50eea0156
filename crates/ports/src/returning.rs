//! A port whose device is deleted and made again under its old name.
//!
//! A thread of the port looks for the device, opens it, and hands its queues to the workers that have the old
//! ones. The packet path pays one relaxed load a batch. That thread does all the other work: looking,
//! opening, closing the old queues. It lives in the network namespace in which the port was opened.

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use netbricks_buffer::Batch;
use netbricks_core::{Context, Poll};
use rustix::event::{EventfdFlags, eventfd};

use crate::interface::Interface;
use crate::node::{LiveLimits, TransmitLimits};
use crate::port::{
    Capabilities, ChecksumPolicy, Counters, Link, Port, PortError, ReceiveQueue, TransmitQueue,
};
use crate::seat::{Seat, lock};
use crate::steer::{Filtering, Rules, Unsteerable};
use crate::taken::Taken;

/// Time between two checks for the device.
const LOOK: Duration = Duration::from_millis(250);
/// The longest wait after a device that could not be opened, and the number of tries for the same device.
const LONGEST: Duration = Duration::from_secs(8);
const TRIES: u32 = 16;

/// Opens the device again for queues that continue with these counters, one set a queue.
pub(crate) type Reopen = Box<dyn Fn(&[Arc<Counters>]) -> Result<Box<dyn Port>, PortError> + Send>;

/// The state that is needed before the device is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// An interface of the name exists.
    There,
    /// An interface of the name exists and its link is up: sockets bind to no other.
    Up,
}

/// Lets the port continue with the next device of the same name after its device is gone.
///
/// # Errors
/// [`PortError::System`] if the system has no more threads or descriptors.
pub(crate) fn returning(
    port: Box<dyn Port>,
    device: &str,
    wanted: Wanted,
    reopen: Reopen,
) -> Result<Box<dyn Port>, PortError> {
    let name = port.name().to_owned();
    let failed =
        |action: &str, source| PortError::System { port: name.clone(), action: action.into(), source };
    let Capabilities { receive_queues, transmit_queues, .. } = port.capabilities();
    let bells: Result<Vec<OwnedFd>, _> =
        (0..receive_queues).map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).collect();
    let bells = bells.map_err(|error| failed("making an event descriptor", error.into()))?;
    let shared = Arc::new(Shared {
        counters: port.counters(),
        limits: LiveLimits::new(TransmitLimits::of(port.as_ref())),
        device: device.to_owned(),
        wanted,
        receive: bells.into_iter().map(|bell| Arc::new(Seat::new(Some(bell)))).collect(),
        transmit: (0..transmit_queues).map(|_| Arc::new(Seat::new(None))).collect(),
        port: Mutex::new(port),
        stop: AtomicBool::new(false),
        returned: AtomicU64::new(0),
        trouble: Mutex::new(None),
        rules: Mutex::default(),
    });
    let watcher = {
        let shared = Arc::clone(&shared);
        let thread = Builder::new().name(format!("{name} returns")).spawn(move || shared.watch(&reopen));
        thread.map_err(|error| failed("starting a thread", error))?
    };
    let (driver, taken) = (shared.port().driver(), Taken::new(receive_queues, transmit_queues));
    Ok(Box::new(Returning { name, driver, shared, taken, watcher: Some(watcher) }))
}

/// State that the port's handle, its thread and its queues share.
struct Shared {
    /// The port that is open now, or was last.
    port: Mutex<Box<dyn Port>>,
    counters: Vec<Arc<Counters>>,
    /// The limits of the device that is open now.
    limits: LiveLimits,
    device: String,
    wanted: Wanted,
    receive: Vec<Arc<Seat<dyn ReceiveQueue>>>,
    transmit: Vec<Arc<Seat<dyn TransmitQueue>>>,
    stop: AtomicBool,
    returned: AtomicU64,
    /// The reason why the last device of the name could not be opened.
    trouble: Mutex<Option<String>>,
    /// The rules by which every device of the name steers.
    rules: Mutex<Rules>,
}

impl Shared {
    fn port(&self) -> MutexGuard<'_, Box<dyn Port>> {
        lock(&self.port)
    }

    fn watch(&self, reopen: &Reopen) {
        let mut attempts = Attempts { device: 0, failed: 0, not_before: Instant::now() };
        loop {
            std::thread::park_timeout(LOOK);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // A panic in the driver counts as a device that could not be opened: it is reported, and the
            // driver is asked as often.
            let looked = catch_unwind(AssertUnwindSafe(|| self.look(reopen, &mut attempts)));
            let trouble = match looked {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(payload) => format!("its driver panicked: {}", message(payload.as_ref())),
            };
            attempts.fail();
            *lock(&self.trouble) = Some(trouble);
        }
    }

    /// Takes the device if it exists again.
    fn look(&self, reopen: &Reopen, attempts: &mut Attempts) -> Result<(), PortError> {
        self.receive.iter().for_each(|seat| seat.clear());
        self.transmit.iter().for_each(|seat| seat.clear());
        let link = self.port().link();
        if link != Link::Gone {
            return Ok(());
        }
        let Ok(interface) = Interface::find("", &self.device) else { return Ok(()) };
        if self.wanted == Wanted::Up && interface.link() != Link::Up {
            return Ok(());
        }
        if attempts.are_due(interface.index()) {
            let mut port = reopen(&self.counters)?;
            // Locked until the device has taken over, so that it also gets rules that are set meanwhile.
            let rules = lock(&self.rules);
            if !rules.is_empty() || port.filtered_by().is_some() {
                let name = port.name().to_owned();
                port.steer(&rules).map_err(|reason| PortError::Steer { port: name, reason })?;
            }
            self.take_over(port)?;
            *lock(&self.trouble) = None;
        }
        Ok(())
    }

    /// Hands over all queues, or none.
    fn take_over(&self, mut port: Box<dyn Port>) -> Result<(), PortError> {
        let receive: Result<Vec<_>, _> =
            (0..self.receive.len()).map(|queue| port.take_receive(queue)).collect();
        let transmit: Result<Vec<_>, _> =
            (0..self.transmit.len()).map(|queue| port.take_transmit(queue)).collect();
        let (receive, transmit) = (receive?, transmit?);
        // Before the queues are handed over, so that no worker sees packets of a port that is gone.
        self.limits.set(TransmitLimits::of(port.as_ref()));
        let old = std::mem::replace(&mut *self.port(), port);
        self.returned.fetch_add(1, Ordering::Relaxed);
        self.receive.iter().zip(receive).for_each(|(seat, queue)| seat.offer(queue));
        self.transmit.iter().zip(transmit).for_each(|(seat, queue)| seat.offer(queue));
        drop(old);
        Ok(())
    }
}

/// The attempts to open a device.
struct Attempts {
    device: u32,
    failed: u32,
    not_before: Instant,
}

impl Attempts {
    fn are_due(&mut self, device: u32) -> bool {
        if self.device != device {
            *self = Self { device, failed: 0, not_before: Instant::now() };
        }
        self.failed < TRIES && Instant::now() >= self.not_before
    }
    fn fail(&mut self) {
        self.failed = self.failed.saturating_add(1);
        self.not_before = Instant::now() + LONGEST.min(LOOK * (1 << self.failed.min(8)));
    }
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "(no text)",
    }
}

struct Returning {
    name: String,
    driver: &'static str,
    shared: Arc<Shared>,
    taken: Taken,
    watcher: Option<JoinHandle<()>>,
}

impl Returning {
    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            // The thread may be opening a device at this moment, which ends by itself.
            let _ = watcher.join();
        }
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.end();
    }
}

impl Port for Returning {
    fn driver(&self) -> &'static str {
        self.driver
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> usize {
        self.shared.port().mtu()
    }
    fn capabilities(&self) -> Capabilities {
        self.shared.port().capabilities()
    }
    fn link(&self) -> Link {
        self.shared.port().link()
    }
    fn returned(&self) -> u64 {
        self.shared.returned.load(Ordering::Relaxed)
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.shared.port().counters()
    }
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.shared.port().warnings();
        let trouble = lock(&self.shared.trouble).clone();
        warnings.extend(trouble.map(|trouble| {
            format!("{} is there again, but cannot be opened: {trouble}", self.shared.device)
        }));
        warnings
    }
    fn failure(&self) -> Option<Arc<PortError>> {
        self.shared.port().failure()
    }
    fn checksum_policy(&self) -> ChecksumPolicy {
        self.shared.port().checksum_policy()
    }
    fn steer(&mut self, rules: &Rules) -> Result<(), Unsteerable> {
        let mut kept = lock(&self.shared.rules);
        self.shared.port().steer(rules)?;
        *kept = rules.clone();
        Ok(())
    }
    fn rules(&self) -> Rules {
        lock(&self.shared.rules).clone()
    }
    fn filtered_by(&self) -> Option<Filtering> {
        self.shared.port().filtered_by()
    }
    fn close(&mut self) -> Result<(), PortError> {
        self.end();
        self.shared.port().close()
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.name, queue)?;
        let seat = Arc::clone(&self.shared.receive[queue]);
        // The port's thread takes the queues of a device that it opens, whether or not a worker wants them.
        let taken = seat.take().map_or_else(|| self.shared.port().take_receive(queue), Ok)?;
        Ok(Box::new(Receiver { queue: taken, seat }))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.name, queue)?;
        let seat = Arc::clone(&self.shared.transmit[queue]);
        let taken = seat.take().map_or_else(|| self.shared.port().take_transmit(queue), Ok)?;
        Ok(Box::new(Sender { queue: taken, seat, limits: self.shared.limits.clone() }))
    }
}

struct Receiver {
    queue: Box<dyn ReceiveQueue>,
    seat: Arc<Seat<dyn ReceiveQueue>>,
}

impl ReceiveQueue for Receiver {
    #[inline]
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let poll = self.queue.receive(batch, cx);
        if !batch.is_empty() {
            return poll;
        }
        // Only now: the packets that the old queue still had come first.
        if self.seat.waits() {
            self.seat.swap(&mut self.queue);
            return Poll::Busy;
        }
        poll
    }
    fn descriptors<'q>(&'q self, watch: &mut dyn FnMut(BorrowedFd<'q>)) {
        let mut any = false;
        self.queue.descriptors(&mut |descriptor| {
            any = true;
            watch(descriptor);
        });
        // Also when another queue waits to take its place.
        if let Some(bell) = self.seat.bell().filter(|_| any) {
            watch(bell);
        }
    }
    fn is_labelled(&self) -> bool {
        self.queue.is_labelled()
    }
    fn keeps_packets(&self) -> bool {
        self.queue.keeps_packets()
    }
    fn held(&self) -> u64 {
        self.queue.held()
    }
    fn release(&mut self, batch: &mut Batch, cx: &mut Context) {
        self.queue.release(batch, cx);
    }
}

struct Sender {
    queue: Box<dyn TransmitQueue>,
    seat: Arc<Seat<dyn TransmitQueue>>,
    limits: LiveLimits,
}

impl TransmitQueue for Sender {
    #[inline]
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        if self.seat.waits() {
            self.seat.swap(&mut self.queue);
        }
        self.queue.transmit(batch, cx);
    }
    fn is_patient(&self) -> bool {
        self.queue.is_patient()
    }
    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
    fn flush(&mut self, cx: &mut Context) {
        self.queue.flush(cx);
    }
    fn needs_flush(&self) -> bool {
        self.queue.needs_flush()
    }
    fn keeps_packets(&self) -> bool {
        self.queue.keeps_packets()
    }
    fn held(&self) -> u64 {
        self.queue.held()
    }
    fn due(&self) -> Option<u64> {
        self.queue.due()
    }
    fn limits(&self) -> Option<LiveLimits> {
        Some(self.limits.clone())
    }
    fn release(&mut self, cx: &mut Context) {
        self.queue.release(cx);
    }
}

#[cfg(test)]
mod tests;
