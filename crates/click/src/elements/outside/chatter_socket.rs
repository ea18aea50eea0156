//! `ChatterSocket`: other programs get a copy of what elements say.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::listen::{self, Accepted, Listener, Moved, Place, Retries};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::language::errors::Errors;
use crate::router::{At, Setup};
use crate::value::{SECOND, Word};

pub(super) const CLASSES: &[Class] =
    &[Class::new("ChatterSocket", configure).ports("0/0").phase(Class::INFO).creates_nothing()];

/// Clients at once; more are turned away.
const CLIENTS: usize = 64;
/// Bytes that a client may be behind, as in Click.
const MOST_BEHIND: usize = 500_000;
const LISTENER: usize = 0;

struct Client {
    stream: OwnedFd,
    out: VecDeque<u8>,
    waits: bool,
}

/// `ChatterSocket(TCP, PORT [, GREETING, RETRIES, RETRY_WARNINGS, CHANNEL, QUIET_CHANNEL])` or `ChatterSocket(UNIX,
/// FILENAME [, ...])`: sends what elements say to all clients.
///
/// There is one channel here: CHANNEL and QUIET_CHANNEL are accepted and mean nothing.
struct ChatterSocket {
    place: Place,
    greets: bool,
    retries: Retries,
    listener: RefCell<Option<Listener>>,
    clients: RefCell<Vec<Option<Client>>>,
}

fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let _: Option<Word> = arguments.keyword("CHANNEL");
    let _: Option<bool> = arguments.keyword("QUIET_CHANNEL");
    let greets = arguments.keyword("GREETING").unwrap_or(true);
    let retries = Retries::read(arguments);
    if !listen::may_open(arguments) {
        return None;
    }
    let place = Place::read(arguments, false, false);
    arguments.complete()?;
    Some(Rc::new(ChatterSocket {
        place: place?,
        greets,
        retries,
        listener: RefCell::default(),
        clients: RefCell::default(),
    }))
}

impl ChatterSocket {
    /// Begins to listen. `false` after a final error was told.
    fn listen(&self, at: At<'_>, errors: &Errors) -> bool {
        let listener = self.retries.listen(&self.place, at, LISTENER, errors);
        listener.map(|listener| *self.listener.borrow_mut() = listener).is_ok()
    }

    fn admit(&self, at: At<'_>, accepted: Accepted) {
        let mut clients = self.clients.borrow_mut();
        let slot = clients.iter().position(Option::is_none).unwrap_or(clients.len());
        if slot >= CLIENTS {
            return;
        }
        if slot == clients.len() {
            clients.push(None);
        }
        let greeting: &[u8] = if self.greets { b"Click::ChatterSocket/1.0\r\n" } else { &[] };
        let out = greeting.iter().copied().collect();
        clients[slot] = Some(Client { stream: accepted.stream, out, waits: false });
        flush(at, slot, &mut clients[slot]);
    }
}

/// Sends what fits to a client, and drops one that is gone or too far behind.
fn flush(at: At<'_>, slot: usize, place: &mut Option<Client>) {
    let Some(client) = place else { return };
    let mut gone = false;
    while !client.out.is_empty() && !gone {
        let (first, _) = client.out.as_slices();
        match listen::transmit(&client.stream, first) {
            Moved::Bytes(count) => drop(client.out.drain(..count)),
            Moved::Later => break,
            Moved::Closed => gone = true,
        }
    }
    if gone || client.out.len() > MOST_BEHIND {
        at.unwatch(slot + 1);
        *place = None;
        return;
    }
    let waits = !client.out.is_empty();
    if waits && !client.waits {
        let _ = at.watch(slot + 1, &client.stream, true);
    } else if client.waits && !waits {
        at.unwatch(slot + 1);
    }
    client.waits = waits;
}

impl Element for ChatterSocket {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        at.listen_to_chatter();
        let taken = at.predecessor().and_then(|before| {
            let errors = Errors::collected();
            Place::read(&mut Arguments::new(&before, at, &errors), false, false)
        });
        if taken.is_some_and(|place| place == self.place) {
            // The socket comes with the state of the element before.
            at.timer_after(0, SECOND);
            return true;
        }
        self.listen(at, errors)
    }
    fn heard(&self, at: At<'_>, line: &str) {
        let mut clients = self.clients.borrow_mut();
        for (slot, place) in clients.iter_mut().enumerate() {
            if let Some(client) = place {
                client.out.extend(line.bytes());
                if !line.ends_with('\n') {
                    client.out.push_back(b'\n');
                }
                flush(at, slot, place);
            }
        }
    }
    fn ready(&self, at: At<'_>, number: usize) {
        if let Some(slot) = number.checked_sub(1) {
            if let Some(place) = self.clients.borrow_mut().get_mut(slot) {
                flush(at, slot, place);
            }
            return;
        }
        loop {
            let accepted = self.listener.borrow().as_ref().and_then(Listener::accept);
            match accepted {
                None => return,
                Some(Ok(accepted)) => self.admit(at, accepted),
                Some(Err(message)) => {
                    at.chatter(&format!("{}: accept: {message}", at.declaration()));
                    at.unwatch(LISTENER);
                    at.timer_after(0, SECOND);
                    return;
                }
            }
        }
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if let Some(listener) = &*self.listener.borrow() {
            listener.watch(at, LISTENER);
            return;
        }
        let errors = Errors::collected();
        let good = self.listen(at, &errors);
        for line in errors.lines() {
            at.chatter(&format!("{}: {line}", at.declaration()));
        }
        if !good {
            at.router.please_stop();
        }
    }
    fn take_state(&self, at: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        if self.listener.borrow().is_some() || before.place != self.place {
            return;
        }
        let Some(listener) = before.listener.borrow_mut().take() else { return };
        listener.watch(at, LISTENER);
        *self.listener.borrow_mut() = Some(listener);
        at.unschedule_timer(0);
        let mut clients = std::mem::take(&mut *before.clients.borrow_mut());
        for (slot, client) in clients.iter_mut().enumerate() {
            if let Some(client) = client {
                client.waits = false;
            }
            flush(at, slot, client);
        }
        *self.clients.borrow_mut() = clients;
    }
    fn cleanup(&self, _: At<'_>) {
        if let Some(listener) = self.listener.borrow_mut().take() {
            listener.end();
        }
        self.clients.borrow_mut().clear();
    }
}
