//! The thread of a memif port, which finds peers and hands their rings to the queues.
//!
//! It takes the rings back when the peer has gone.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Shared;
use super::handshake::{self, Agreed};
use super::ring::{Consumer, Fault, Producer};
use super::socket::{Channel, Listener, Trouble};
use crate::peer::bells::Bells;
use crate::peer::interrupt::Interrupt;
use crate::peer::wait;
use crate::seat::lock;

/// Time between two attempts to find the server.
const RETRY: Duration = Duration::from_millis(100);
/// Time between two looks after queues that workers have left.
const LOOK: Duration = Duration::from_millis(250);
/// The longest time that a client is given to offer its first buffers.
const OFFER: Duration = Duration::from_secs(2);
/// Time between two looks whether it has.
const OFFER_LOOK: Duration = Duration::from_millis(1);
/// Further peers that are refused before the thread looks after its own again.
const MOST_REFUSED: usize = 16;

/// Runs until the port is closed.
pub(super) fn run(shared: &Shared, listener: Option<&Listener>) {
    loop {
        // A panic counts as a fault of the connection: it is shown, and the next peer is served.
        let ended = catch_unwind(AssertUnwindSafe(|| next_connection(shared, listener)))
            .unwrap_or_else(|_| Trouble::fault("a panic in the port's thread"));
        // Before the port is seen to be down.
        if let Trouble::Fault(text) = &ended {
            *lock(&shared.trouble) = Some(text.clone());
        }
        shared.detach();
        if matches!(ended, Trouble::Stopped) || shared.is_stopped() {
            return;
        }
        // A peer that fails again and again does not keep the thread busy.
        pause(shared, RETRY);
    }
}

/// Waits, unless the port is closed.
fn pause(shared: &Shared, time: Duration) {
    if wait([shared.wake.as_fd()], time) == [true] {
        shared.hear();
    }
}

/// Serves one peer. Answers how that ended.
fn next_connection(shared: &Shared, listener: Option<&Listener>) -> Trouble {
    let found = match listener {
        Some(listener) => accept(shared, listener),
        None => Channel::connect(&shared.path),
    };
    let channel = match found {
        Ok(channel) => channel,
        Err(trouble) => return trouble,
    };
    let agreed = match listener {
        Some(_) => handshake::serve(&channel, shared),
        None => handshake::join(&channel, shared),
    };
    let fault = match agreed.and_then(|agreed| attach(shared, agreed)) {
        Ok(fault) => fault,
        Err(trouble) => return refused(&channel, trouble),
    };
    wait_for_buffers(shared, &channel);
    shared.is_up.store(true, Ordering::Release);
    let ended = watch(shared, &channel, listener, &fault);
    refused(&channel, ended)
}

/// Tells the peer why the connection ends.
fn refused(channel: &Channel, trouble: Trouble) -> Trouble {
    match &trouble {
        Trouble::Stopped => channel.refuse("the port is closed"),
        Trouble::Fault(text) => channel.refuse(text),
        Trouble::Absent => {}
    }
    trouble
}

/// Waits for a peer.
fn accept(shared: &Shared, listener: &Listener) -> Result<Channel, Trouble> {
    loop {
        if shared.is_stopped() {
            return Err(Trouble::Stopped);
        }
        if let Some(channel) = listener.accept() {
            return Ok(channel);
        }
        shared.clear_seats();
        if let [_, true] = wait([listener.as_fd(), shared.wake.as_fd()], LOOK) {
            shared.hear();
        }
    }
}

/// Hands the rings to the queues.
fn attach(shared: &Shared, agreed: Agreed) -> Result<Arc<Fault>, Trouble> {
    let failed = Trouble::failed("preparing the rings");
    let fault = Arc::new(Fault::new(Arc::clone(&shared.wake)));
    let (rings, events): (Vec<_>, Vec<_>) =
        agreed.transmit.into_iter().map(|end| ((end.ring, end.own), Some(end.event))).unzip();
    let bells = Bells::start(&shared.name, events, &shared.writers).map_err(&failed)?;
    let mut consumers = Vec::new();
    for end in agreed.receive {
        let interrupt = Interrupt::new(end.event).map_err(&failed)?;
        let consumer = Consumer::new(end.ring, end.own, interrupt, Arc::clone(&fault));
        consumers.push(consumer.map_err(&failed)?);
    }
    *lock(&shared.sent) = rings.iter().map(|(ring, own)| (ring.clone(), own.is_some())).collect();
    for (number, (ring, own)) in rings.into_iter().enumerate() {
        let producer = Producer::new(ring, own, (Arc::clone(&bells), number), Arc::clone(&fault));
        shared.transmit[number].offer(Box::new(Some(producer)));
    }
    for (seat, consumer) in shared.receive.iter().zip(consumers) {
        seat.offer(Box::new(Some(consumer)));
    }
    *lock(&shared.trouble) = None;
    shared.connections.fetch_add(1, Ordering::Relaxed);
    Ok(fault)
}

/// Waits until the client has offered buffers: before that, what is sent to it finds no room and is dropped.
///
/// No event tells of them. The wait ends as well when the client says something, or after [`OFFER`].
fn wait_for_buffers(shared: &Shared, channel: &Channel) {
    let until = Instant::now() + OFFER;
    while !shared.has_room() && !shared.is_stopped() && Instant::now() < until {
        if wait([channel.as_fd(), shared.wake.as_fd()], OFFER_LOOK) != [false, false] {
            return;
        }
    }
}

/// Waits for the end of a connection.
fn watch(shared: &Shared, channel: &Channel, listener: Option<&Listener>, fault: &Fault) -> Trouble {
    loop {
        if shared.is_stopped() {
            return Trouble::Stopped;
        }
        if let Some(lie) = fault.get() {
            return Trouble::fault(lie.text());
        }
        match channel.receive() {
            Ok(None) => {}
            Ok(Some((message, _))) => {
                let name = message.type_name();
                return Trouble::fault(format!("the peer sent {name} while packets flow"));
            }
            Err(trouble) => return trouble,
        }
        // One peer at a time: others are told, and may come again.
        for other in std::iter::from_fn(|| listener.and_then(Listener::accept)).take(MOST_REFUSED) {
            other.refuse("another peer is connected");
        }
        shared.clear_seats();
        let listening = listener.map_or_else(|| channel.as_fd(), AsFd::as_fd);
        if let [.., true] = wait([channel.as_fd(), listening, shared.wake.as_fd()], LOOK) {
            shared.hear();
        }
    }
}
