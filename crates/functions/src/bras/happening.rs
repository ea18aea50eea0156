//! The events of sessions, which a run adds to those of the control API.

use std::fmt::{self, Write};
use std::net::Ipv4Addr;

use netbricks_core::packet::MacAddress;
use netbricks_core::write_json_text;

use super::pool::Prefix;
use super::session::{Line, Name, Session};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The subscriber ended it, by LCP or by PADT.
    Subscriber,
    /// An operator ended it.
    Operator,
    /// Its echo requests were not answered.
    Lost,
    /// Its time was over.
    SessionTimeout,
    /// No packet came from the subscriber for too long.
    IdleTimeout,
    /// The subscriber did not prove who it is.
    Refused,
    /// No RADIUS server answered whether it may in.
    Unanswered,
    /// The negotiation did not end in time, or without an agreement.
    NoAgreement,
    /// There is no address for it.
    NoAddress,
}

impl Cause {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Subscriber => "subscriber",
            Self::Operator => "operator",
            Self::Lost => "lost",
            Self::SessionTimeout => "session-timeout",
            Self::IdleTimeout => "idle-timeout",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
            Self::NoAgreement => "no-agreement",
            Self::NoAddress => "no-address",
        }
    }

    /// The Acct-Terminate-Cause (RFC 2866, section 5.10).
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Subscriber => 1,
            Self::Lost => 2,
            Self::IdleTimeout => 4,
            Self::SessionTimeout => 5,
            Self::Operator => 6,
            Self::Unanswered => 9,
            Self::NoAddress => 10,
            Self::Refused | Self::NoAgreement => 17,
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Up,
    Down(Cause),
    /// A subscriber did not prove who it is.
    Refused,
    /// No RADIUS server answered whether a subscriber may in.
    Unanswered,
}

/// An event of a session. It holds no password.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happening {
    kind: Kind,
    time: u64,
    number: u64,
    line: Line,
    name: Name,
    address: Option<Ipv4Addr>,
    prefix: Option<Prefix>,
}

impl Happening {
    pub(super) fn of(session: &Session, kind: Kind, now: u64) -> Self {
        let Session { number, line, name, address, prefix, .. } = session;
        Self {
            kind,
            time: now,
            number: *number,
            line: *line,
            name: *name,
            address: *address,
            prefix: *prefix,
        }
    }

    /// Writes it as a JSON object.
    pub(super) fn write(&self, to: &mut dyn Write) -> fmt::Result {
        let kind = match self.kind {
            Kind::Up => "session-up",
            Kind::Down(_) => "session-down",
            Kind::Refused => "authentication-failed",
            Kind::Unanswered => "authentication-unanswered",
        };
        write!(to, "{{\"event\":\"{kind}\",\"time\":{},\"session\":\"{:x}\"", self.time, self.number)?;
        write!(to, ",\"mac\":\"{}\",\"line\":\"{}\",\"user\":\"", MacAddress::new(self.line.mac), self.line)?;
        write_json_text(to, self.name.bytes())?;
        to.write_char('"')?;
        if let Some(address) = self.address {
            write!(to, ",\"address\":\"{address}\"")?;
        }
        if let Some(prefix) = self.prefix {
            write!(to, ",\"prefix\":\"{prefix}\"")?;
        }
        if let Kind::Down(cause) = self.kind {
            write!(to, ",\"cause\":\"{}\"", cause.name())?;
        }
        to.write_char('}')
    }
}
