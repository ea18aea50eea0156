//! `ControlSocket`: other programs read and write handlers by a line protocol, over TCP or a Unix socket.

mod answer;
pub(crate) mod protocol;

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::listen::{self, Accepted, Listener, Moved, Place, Retries};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::router::{At, Setup};
use crate::value::{ElementNumber, SECOND};

use answer::Server;
use protocol::Reader;

pub(super) const CLASSES: &[Class] = &[Class::new("ControlSocket", configure).ports("0/0").creates_nothing()];

/// Clients at once; more are turned away.
const CLIENTS: usize = 64;
/// Bytes of answers above which no more requests of a client are read.
const PLENTY: usize = 64 * 1024;
/// Requests of a client that are answered before others get their turn.
const REQUESTS_A_TURN: usize = 16;
/// The number by which the listening socket is watched. Clients have two each behind it.
const LISTENER: usize = 0;

/// A connection.
struct Client {
    stream: OwnedFd,
    number: i32,
    reader: Reader,
    /// Answers, of which the first bytes were sent.
    out: Vec<u8>,
    sent: usize,
    /// Whether the client sends no more.
    ended: bool,
    /// Whether there may be requests that were not answered yet.
    more: bool,
    watches: (bool, bool),
}

/// `ControlSocket(TCP, PORT [, READONLY, PROXY, VERBOSE, LOCALHOST, RETRIES, RETRY_WARNINGS])` or
/// `ControlSocket(UNIX, FILENAME [, ...])`: other programs may read and write handlers.
///
/// They speak Click's protocol 1.3. `PORT+` takes one of the next ports where PORT is in use.
struct ControlSocket {
    place: RefCell<Place>,
    read_only: bool,
    verbose: bool,
    proxy: Option<usize>,
    retries: Retries,
    listener: RefCell<Option<Listener>>,
    clients: RefCell<Vec<Option<Client>>>,
    /// Clients that were taken from the element before.
    opened: Cell<u64>,
}

fn configure(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let read_only = arguments.keyword("READONLY").unwrap_or(false);
    let proxy: Option<ElementNumber> = arguments.keyword("PROXY");
    let verbose = arguments.keyword("VERBOSE").unwrap_or(false);
    let retries = Retries::read(arguments);
    let localhost = arguments.keyword("LOCALHOST").unwrap_or(false);
    if !listen::may_open(arguments) {
        return None;
    }
    let place = Place::read(arguments, localhost, true);
    arguments.complete()?;
    Some(Rc::new(ControlSocket {
        place: RefCell::new(place?),
        read_only,
        verbose,
        proxy: proxy.map(|element| element.0),
        retries,
        listener: RefCell::default(),
        clients: RefCell::default(),
        opened: Cell::default(),
    }))
}

impl ControlSocket {
    /// Begins to listen. `false` after a final error was told.
    fn listen(&self, at: At<'_>, errors: &Errors) -> bool {
        let place = self.place.borrow().clone();
        let Ok(listener) = self.retries.listen(&place, at, LISTENER, errors) else { return false };
        if let Some(listener) = listener {
            *self.place.borrow_mut() = listener.place.clone();
            *self.listener.borrow_mut() = Some(listener);
        }
        true
    }

    /// Whether the configuration that this one replaces has a socket that this element can take over.
    fn can_take_over(&self, at: At<'_>) -> bool {
        let Some(before) = at.predecessor() else { return false };
        let errors = Errors::collected();
        let mut arguments = Arguments::new(&before, at, &errors);
        let place = Place::read(&mut arguments, false, true);
        let own = self.place.borrow();
        match (place, &*own) {
            // A port that was found is not in the configuration.
            (Some(Place::Tcp { port, more, .. }), Place::Tcp { port: own, more: own_more, .. }) => {
                port == *own || more || *own_more
            }
            (Some(place), own) => place == *own,
            (None, _) => false,
        }
    }

    fn accept(&self, at: At<'_>) {
        loop {
            let accepted = self.listener.borrow().as_ref().and_then(Listener::accept);
            match accepted {
                None => return,
                Some(Ok(accepted)) => self.admit(at, accepted),
                Some(Err(message)) => {
                    // There may be too many open files: it listens again in a second.
                    at.chatter(&format!("{}: accept: {message}", at.declaration()));
                    at.unwatch(LISTENER);
                    at.timer_after(0, SECOND);
                    return;
                }
            }
        }
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
        let number = accepted.number;
        clients[slot] = Some(Client {
            stream: accepted.stream,
            number,
            reader: Reader::default(),
            out: b"Click::ControlSocket/1.3\r\n".to_vec(),
            sent: 0,
            ended: false,
            more: false,
            watches: (false, false),
        });
        drop(clients);
        self.opened.set(self.opened.get() + 1);
        if self.verbose {
            at.chatter(&format!("{}: opened connection {number}{}", at.declaration(), accepted.from));
        }
        self.serve(at, slot, true);
    }

    /// Reads what a client sent, answers it, and sends the answers.
    fn serve(&self, at: At<'_>, slot: usize, reads: bool) {
        if reads {
            self.read(slot);
        }
        for turn in 0.. {
            let request = {
                let mut clients = self.clients.borrow_mut();
                let Some(client) = clients.get_mut(slot).and_then(Option::as_mut) else { return };
                // The configuration that takes this one's place answers what comes after the request for it.
                let waits = client.out.len() - client.sent > PLENTY || at.router.is_replaced();
                client.more = waits || turn >= REQUESTS_A_TURN;
                if client.more {
                    break;
                }
                client.reader.next()
            };
            let Some(request) = request else { break };
            // A handler may do anything: nothing of this element is borrowed while it runs.
            let server = Server { at, read_only: self.read_only, proxy: self.proxy };
            let mut answer = Vec::new();
            let goes_on = server.answer(request, &mut answer);
            let mut clients = self.clients.borrow_mut();
            let Some(client) = clients.get_mut(slot).and_then(Option::as_mut) else { return };
            client.out.append(&mut answer);
            if !goes_on {
                client.reader.close();
                client.ended = true;
            }
        }
        self.write(at, slot);
    }

    fn read(&self, slot: usize) {
        let mut clients = self.clients.borrow_mut();
        let Some(client) = clients.get_mut(slot).and_then(Option::as_mut) else { return };
        let mut buffer = [0; 8192];
        let room = client.reader.room().min(buffer.len());
        if client.ended || room == 0 {
            return;
        }
        match listen::receive(&client.stream, &mut buffer[..room]) {
            Moved::Bytes(count) => client.reader.feed(&buffer[..count]),
            Moved::Later => (),
            Moved::Closed => {
                client.reader.close();
                client.ended = true;
            }
        }
    }

    /// Sends answers, and says what to wait for next. Ends the connection when all is done.
    fn write(&self, at: At<'_>, slot: usize) {
        let mut clients = self.clients.borrow_mut();
        let Some(place) = clients.get_mut(slot) else { return };
        let Some(client) = place.as_mut() else { return };
        let closed = client.send();
        let unsent = client.out.len() - client.sent;
        let done = client.ended && client.reader.is_finished() && !client.more && unsent == 0;
        if closed || done {
            let number = client.number;
            at.unwatch(2 * slot + 1);
            at.unwatch(2 * slot + 2);
            *place = None;
            drop(clients);
            if self.verbose {
                at.chatter(&format!("{}: closed connection {number}", at.declaration()));
            }
            return;
        }
        let reads = !client.ended && unsent <= PLENTY && !client.more && client.reader.room() > 0;
        client.watch(at, slot, reads, unsent > 0 || client.more);
    }
}

impl Client {
    /// Sends what fits. Whether the client is gone.
    fn send(&mut self) -> bool {
        while self.sent < self.out.len() {
            match listen::transmit(&self.stream, &self.out[self.sent..]) {
                Moved::Bytes(count) => self.sent += count,
                Moved::Later => break,
                Moved::Closed => return true,
            }
        }
        if self.sent == self.out.len() {
            self.out = Vec::new();
            self.sent = 0;
        } else if self.sent > PLENTY {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        false
    }

    /// Has the element be told when the client can be read or written.
    fn watch(&mut self, at: At<'_>, slot: usize, reads: bool, writes: bool) {
        let wishes = [(self.watches.0, reads, 2 * slot + 1), (self.watches.1, writes, 2 * slot + 2)];
        for (which, (has, wants, number)) in wishes.into_iter().enumerate() {
            if wants && !has {
                // Without a copy of the descriptor the client waits until another comes.
                let _ = at.watch(number, &self.stream, which == 1);
            } else if has && !wants {
                at.unwatch(number);
            }
        }
        self.watches = (reads, writes);
    }
}

impl Element for ControlSocket {
    fn initialize(&self, at: At<'_>, errors: &Errors) -> bool {
        if self.can_take_over(at) {
            // The socket comes with the state of the element before; if not, it is opened then.
            at.timer_after(0, SECOND);
            return true;
        }
        self.listen(at, errors)
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
    fn ready(&self, at: At<'_>, number: usize) {
        match number.checked_sub(1) {
            None => self.accept(at),
            Some(number) => self.serve(at, number / 2, number % 2 == 0),
        }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        let name = match &*self.place.borrow() {
            Place::Tcp { .. } => "port",
            Place::Unix(_) => "filename",
        };
        handlers.read(name, |this: &Self, _| this.place.borrow().show());
    }
    fn take_state(&self, at: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        if self.listener.borrow().is_some() || !before.place.borrow().stands_for(&self.place.borrow()) {
            return;
        }
        let Some(listener) = before.listener.borrow_mut().take() else { return };
        self.place.borrow_mut().clone_from(&listener.place);
        listener.watch(at, LISTENER);
        *self.listener.borrow_mut() = Some(listener);
        at.unschedule_timer(0);
        let mut clients = std::mem::take(&mut *before.clients.borrow_mut());
        for (slot, client) in clients.iter_mut().enumerate() {
            if let Some(client) = client {
                client.watches = (false, false);
                client.watch(at, slot, !client.ended, true);
            }
        }
        *self.clients.borrow_mut() = clients;
    }
    fn cleanup(&self, _: At<'_>) {
        if let Some(listener) = self.listener.borrow_mut().take() {
            listener.end();
        }
        for mut client in self.clients.borrow_mut().drain(..).flatten() {
            // A last attempt to say all.
            let _ = client.send();
        }
    }
}
