//! Answers to requests: calls of handlers, with the codes and messages of Click's protocol 1.3.

use std::fmt::Write as _;

use super::protocol::Request;
use crate::command::system_message;
use crate::handler::Handler;
use crate::handler_call::ROOT;
use crate::llrpc;
use crate::router::At;
use crate::value::integer;

const OK: u16 = 200;
const SYNTAX: u16 = 500;
const UNIMPLEMENTED: u16 = 501;
const NO_SUCH_ELEMENT: u16 = 510;
const NO_SUCH_HANDLER: u16 = 511;
const HANDLER_ERROR: u16 = 520;
const DATA_TOO_BIG: u16 = 521;
const LLRPC_ERROR: u16 = 522;
const PERMISSION: u16 = 530;
const UNSPECIFIED: u16 = 590;

const HELP: &[&str] = &[
    "Commands supported:",
    "READ handler [arg...]   call read handler, return DATA",
    "READDATA handler len    call read handler with len data bytes, return DATA",
    "READUNTIL handler term  call read handler, take data until term, return DATA",
    "WRITE handler [arg...]  call write handler",
    "WRITEDATA handler len   call write handler, pass len data bytes",
    "WRITEUNTIL handler term call write handler, take data until term",
    "CHECKREAD handler       check if read handler is valid",
    "CHECKWRITE handler      check if write handler is valid",
    "LLRPC elt#number [len]  call LLRPC, pass len data bytes, return DATA",
    "QUIT                    close connection",
];

/// The element that answers, and how far.
#[derive(Clone, Copy)]
pub(super) struct Server<'r> {
    pub(super) at: At<'r>,
    /// Nothing may be written.
    pub(super) read_only: bool,
    /// The element whose handlers stand for all others.
    pub(super) proxy: Option<usize>,
}

/// Text as it may stand in a line: control characters and bytes beyond ASCII in Click's escapes.
fn printable(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b' '..=b'~' => out.push(char::from(byte)),
            0..b' ' => out.extend(['^', char::from(byte + b'@')]),
            127 => out.push_str("^?"),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out
}

/// A message line; `more` when others of the same answer follow.
fn message(to: &mut Vec<u8>, code: u16, text: &[u8], more: bool) {
    let line = format!("{code}{}{}\r\n", if more { '-' } else { ' ' }, printable(text));
    to.extend_from_slice(line.as_bytes());
}

/// A message, and lines that say more.
fn message_and_lines(to: &mut Vec<u8>, code: u16, text: &str, error: &str) {
    let lines: Vec<&str> = error.lines().collect();
    let Some((last, others)) = lines.split_last() else {
        message(to, code, text.as_bytes(), false);
        return;
    };
    message(to, code, format!("{text}:").as_bytes(), true);
    for line in others {
        message(to, code, line.as_bytes(), true);
    }
    message(to, code, last.as_bytes(), false);
}

fn data(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(format!("DATA {}\r\n", bytes.len()).as_bytes());
    to.extend_from_slice(bytes);
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A handler that a request names.
struct Found {
    element: usize,
    name: String,
    handler: Handler,
}

impl Server<'_> {
    /// Answers a request. `false` ends the connection.
    pub(super) fn answer(self, request: Request, to: &mut Vec<u8>) -> bool {
        match request {
            Request::Read { handler, data } => self.read(&text_of(&handler), &text_of(&data), to),
            Request::Write { handler, data } => self.write(&text_of(&handler), &text_of(&data), to),
            Request::Check { handler, write } => self.check(&text_of(&handler), write, to),
            Request::Llrpc { name, data } => self.llrpc(&text_of(&name), data, to),
            Request::Help => {
                for (number, line) in HELP.iter().enumerate() {
                    message(to, OK, line.as_bytes(), number + 1 < HELP.len());
                }
            }
            Request::Wrong(code, text) => message(to, code, &text, false),
            Request::TooLong => {
                message(to, DATA_TOO_BIG, b"Data too large", false);
                return false;
            }
            Request::Quit(good) => {
                if !good {
                    message(to, SYNTAX, b"Bad command syntax", false);
                }
                message(to, OK, b"Goodbye!", false);
                return false;
            }
        }
        true
    }

    /// The handler of a name, if others than elements may see it. An answer was given otherwise.
    fn find(self, full: &str, to: &mut Vec<u8>) -> Option<Found> {
        let router = self.at.router;
        // `.name` and `0.name` are handlers of the configuration.
        let name = match full.find('.') {
            Some(0) => &full[1..],
            Some(1) if full.starts_with('0') => &full[2..],
            _ => full,
        };
        if let Some(proxy) = self.proxy {
            let handler = router.handler(proxy, name);
            if handler.is_none() {
                message(to, NO_SUCH_HANDLER, format!("No proxied handler named '{full}'").as_bytes(), false);
            }
            return handler.map(|handler| Found { element: proxy, name: name.to_owned(), handler });
        }
        let (element, name) = match name.split_once('.') {
            None => (ROOT, name),
            Some((element, handler)) => {
                let numbered = || {
                    let number = usize::try_from(integer(element)?).ok()?.checked_sub(1)?;
                    (number < router.len()).then_some(number)
                };
                let Some(id) = router.exactly(element).or_else(numbered) else {
                    message(to, NO_SUCH_ELEMENT, format!("No element named '{element}'").as_bytes(), false);
                    return None;
                };
                (id, handler)
            }
        };
        let handler = router.handler(element, name);
        match handler.filter(|handler| handler.is_visibly_readable() || handler.is_visibly_writable()) {
            Some(handler) => Some(Found { element, name: name.to_owned(), handler }),
            None => {
                message(to, NO_SUCH_HANDLER, format!("No handler named '{full}'").as_bytes(), false);
                None
            }
        }
    }

    fn read(self, full: &str, parameter: &str, to: &mut Vec<u8>) {
        let Some(found) = self.find(full, to) else { return };
        if !found.handler.is_visibly_readable() {
            message(to, PERMISSION, format!("Handler '{full}' write-only").as_bytes(), false);
            return;
        }
        let answer = if !parameter.is_empty() && !found.handler.read_parameter {
            Err(format!("read handler '{full}' does not take parameters"))
        } else {
            self.at.router.read_handler(found.element, &found.name, parameter)
        };
        match answer {
            Ok(value) => {
                message(to, OK, format!("Read handler '{full}' OK").as_bytes(), false);
                data(to, value.as_bytes());
            }
            Err(error) => message_and_lines(to, UNSPECIFIED, &format!("Read handler '{full}' error"), &error),
        }
    }

    fn write(self, full: &str, value: &str, to: &mut Vec<u8>) {
        let Some(found) = self.find(full, to) else { return };
        if !found.handler.is_visibly_writable() {
            message(to, PERMISSION, format!("Handler '{full}' read-only").as_bytes(), false);
            return;
        }
        if self.read_only {
            message(to, PERMISSION, format!("Permission denied for '{full}'").as_bytes(), false);
            return;
        }
        match self.at.router.write_handler(found.element, &found.name, value) {
            Ok(_) => message(to, OK, format!("Write handler '{full}' OK").as_bytes(), false),
            Err(error) => {
                message_and_lines(to, HANDLER_ERROR, &format!("Write handler '{full}' error"), &error)
            }
        }
    }

    fn check(self, full: &str, write: bool, to: &mut Vec<u8>) {
        let Some(found) = self.find(full, to) else { return };
        let handler = &found.handler;
        let fits = if write { handler.is_visibly_writable() } else { handler.is_visibly_readable() };
        let (code, text) = match (fits, write) {
            (true, true) if self.read_only => (PERMISSION, format!("Permission denied for '{full}'")),
            (true, true) => (OK, format!("Write handler '{full}' OK")),
            (true, false) => (OK, format!("Read handler '{full}' OK")),
            (false, true) => (NO_SUCH_HANDLER, format!("Handler '{full}' not writable")),
            (false, false) => (NO_SUCH_HANDLER, format!("Handler '{full}' not readable")),
        };
        message(to, code, text.as_bytes(), false);
    }

    fn llrpc(self, name: &str, mut bytes: Vec<u8>, to: &mut Vec<u8>) {
        let (element, number) = name.split_once('#').unwrap_or(("", name));
        let command = (!number.is_empty() && number.len() <= 8).then(|| u32::from_str_radix(number, 16).ok());
        let Some(command) = command.flatten() else {
            message(to, SYNTAX, format!("Syntax error in LLRPC name '{name}'").as_bytes(), false);
            return;
        };
        let Some(found) = self.find(&format!("{element}.name"), to) else { return };
        let (size, takes, gives) = (llrpc::size(command), llrpc::takes(command), llrpc::gives(command));
        if size == 0 || !(takes || gives) || !llrpc::is_flat(command) {
            message(to, UNIMPLEMENTED, format!("Cannot call LLRPC '{name}' remotely").as_bytes(), false);
            return;
        }
        if self.read_only {
            message(to, PERMISSION, format!("Permission denied for '{name}'").as_bytes(), false);
            return;
        }
        if takes && bytes.len() != size {
            let text = format!("LLRPC '{name}' requires {size} bytes input data");
            message(to, LLRPC_ERROR, text.as_bytes(), false);
            return;
        }
        bytes.resize(size, 0);
        let router = self.at.router;
        let done = match found.element {
            ROOT => Err(llrpc::unknown()),
            element => router.element(element).llrpc(router.at(element), command, &mut bytes),
        };
        match done {
            Ok(()) => {
                message(to, OK, format!("LLRPC '{name}' OK").as_bytes(), false);
                data(to, if gives { &bytes } else { &[] });
            }
            Err(error) => {
                let text = format!("LLRPC '{name}' error: {}", system_message(&error));
                message(to, LLRPC_ERROR, text.as_bytes(), false);
            }
        }
    }
}
