//! Requests to RADIUS servers that wait for the control task, which takes them by a handler.

use super::radius::{Request, write_hex};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// May the subscriber in?
    Access,
    /// A session begins, goes on or ends.
    Accounting,
}

/// The most requests that wait.
const ROOM: usize = 256;
/// Of these, places that accounting leaves free for subscribers who wait.
const FOR_ACCESS: usize = 64;

struct Waiting {
    kind: Kind,
    number: u64,
    /// Tells the answer to this request from answers to others of the session; 0 where none is waited for.
    token: u64,
    request: Request,
}

/// The requests in their order, in memory that was taken before.
pub(super) struct Requests {
    waiting: std::collections::VecDeque<Waiting>,
}

impl Requests {
    pub(super) fn new(is_small: bool) -> Self {
        Self { waiting: std::collections::VecDeque::with_capacity(if is_small { 0 } else { ROOM }) }
    }

    /// Adds a request about a session; `false` where there is no room.
    pub(super) fn add(&mut self, kind: Kind, (number, token): (u64, u64), request: Request) -> bool {
        let has_room = self.has_room(kind);
        if has_room {
            self.waiting.push_back(Waiting { kind, number, token, request });
        }
        has_room
    }

    /// Whether a request of this kind has room.
    pub(super) fn has_room(&self, kind: Kind) -> bool {
        let room = self.waiting.capacity().min(ROOM);
        let room = if kind == Kind::Accounting { room.saturating_sub(FOR_ACCESS) } else { room };
        self.waiting.len() < room
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes all requests, or those of a kind, one a line.
    ///
    /// A line has the kind, the session, the token of the answer, and the packet in hexadecimal digits.
    pub(super) fn take(&mut self, only: Option<Kind>) -> String {
        let mut lines = String::new();
        for _ in 0..self.waiting.len() {
            let Some(mut waiting) = self.waiting.pop_front() else { break };
            if only.is_some_and(|kind| kind != waiting.kind) {
                self.waiting.push_back(waiting);
                continue;
            }
            lines += match waiting.kind {
                Kind::Access => "access ",
                Kind::Accounting => "accounting ",
            };
            lines += &format!("{:x} {:x} ", waiting.number, waiting.token);
            write_hex(&mut lines, waiting.request.finish());
            lines.push('\n');
        }
        lines
    }
}
