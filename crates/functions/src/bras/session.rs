//! A subscriber's session: its line, what was negotiated, what it was given, and its timers.

use std::fmt;
use std::net::Ipv4Addr;

use super::automaton::State;
use super::config::Authentication;
use super::fixed::Fixed;
use super::happening::Cause;
use super::limits::Bucket;
use super::pool::Prefix;
use super::users::Grant;

/// The most bytes of a user's name.
pub(super) const LONGEST_NAME: usize = 127;
/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// A user's name, in a room of fixed size.
#[derive(Clone, Copy)]
pub(super) struct Name {
    len: u8,
    bytes: [u8; LONGEST_NAME],
}

impl Name {
    pub(super) const EMPTY: Self = Self { len: 0, bytes: [0; LONGEST_NAME] };

    /// A name; `None` where it is too long.
    pub(super) fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_NAME];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { len: name.len() as u8, bytes })
    }
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Printable characters without blanks; all others are escaped.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len == 0 {
            return f.write_str("-");
        }
        self.bytes().iter().try_for_each(|byte| match byte {
            b'!'..=b'~' => write!(f, "{}", char::from(*byte)),
            _ => write!(f, "\\x{byte:02x}"),
        })
    }
}

/// The place of a subscriber: its Ethernet address and the VLAN tags of its line, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) mac: [u8; 6],
    /// The tags with TPID and TCI; 0 where there is none.
    pub(super) tags: [u32; 2],
}

impl Line {
    /// The VLANs without priorities, in 64 bits: the key of the line.
    pub(super) fn vlans(&self) -> u64 {
        let [outer, inner] = self.tags.map(|tag| u64::from(tag & 0xffff_0fff));
        outer << 32 | inner
    }
    /// The link header of frames to the subscriber, with its tags, and the header's length.
    pub(super) fn link(&self, own: [u8; 6], kind: u16) -> ([u8; 22], usize) {
        let mut link = [0; 22];
        link[..6].copy_from_slice(&self.mac);
        link[6..12].copy_from_slice(&own);
        let mut at = 12;
        for tag in self.tags.iter().filter(|tag| **tag != 0) {
            link[at..at + 4].copy_from_slice(&tag.to_be_bytes());
            at += 4;
        }
        link[at..at + 2].copy_from_slice(&kind.to_be_bytes());
        (link, at + 2)
    }
    /// The key of a session, or of the host where `id` is 0.
    pub(super) fn key(&self, id: u16) -> [u64; 2] {
        let [a, b, c, d, e, f] = self.mac;
        let [high, low] = id.to_be_bytes();
        [u64::from_be_bytes([a, b, c, d, e, f, high, low]), self.vlans()]
    }
}

/// The VLAN numbers, outermost first; `-` where there are none.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tags.map(|tag| (tag >> 16 != 0).then_some(tag & 0xfff)) {
            [None, _] => f.write_str("-"),
            [Some(outer), None] => write!(f, "{outer}"),
            [Some(outer), Some(inner)] => write!(f, "{outer}.{inner}"),
        }
    }
}

/// A layer with an automaton of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Lcp,
    Ipcp,
    Ipv6cp,
}

impl Which {
    pub(super) const ALL: [Self; 3] = [Self::Lcp, Self::Ipcp, Self::Ipv6cp];
}

/// The state of a layer's negotiation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layer {
    pub(super) state: State,
    /// The identifier of the last request.
    pub(super) id: u8,
    /// The restart counter.
    pub(super) restarts: u8,
    /// Configure-Naks sent and heard since the layer began.
    pub(super) naks_sent: u8,
    pub(super) naks_heard: u8,
    /// When the restart timer expires (ns).
    pub(super) due: u64,
}

impl Layer {
    pub(super) const NEW: Self =
        Self { state: State::Initial, id: 0, restarts: 0, naks_sent: 0, naks_heard: 0, due: NEVER };
}

/// How far a subscriber has proven who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// It was not asked yet.
    None,
    /// Its name and password, or its answer to the challenge, are waited for.
    Wanted,
    /// The RADIUS servers were asked.
    Asked,
    Accepted,
    Refused,
}

/// Packets and bytes of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// The answer of the RADIUS servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The subscriber is let in with this.
    Accept(Grant),
    /// It is refused.
    Reject,
    /// No server answered.
    Unanswered,
}

/// The things that a report says of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pub(super) address: Option<Ipv4Addr>,
    pub(super) prefix: Option<Prefix>,
    pub(super) seconds: u64,
    pub(super) from_subscriber: Traffic,
    pub(super) to_subscriber: Traffic,
}

/// The report of an end, which waits for room among the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) cause: Cause,
    pub(super) summary: Summary,
    /// When it is tried again, and until when (ns).
    pub(super) due: u64,
    pub(super) until: u64,
}

/// An order of the control side to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The answer to the request with this token.
    Answer { token: u64, verdict: Verdict },
    /// The session ends.
    Disconnect,
}

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Its place among the sessions.
    pub(super) index: u32,
    /// Its number, which no other session has while the function runs.
    pub(super) number: u64,
    /// The number under which it is reported, new with each question to the servers.
    ///
    /// It stays where the session moves to another node.
    pub(super) account: u64,
    pub(super) line: Line,
    /// The SESSION_ID of PPPoE.
    pub(super) id: u16,
    /// The link header of frames to the subscriber, up to the EtherType.
    pub(super) link: [u8; 22],
    pub(super) link_len: u8,
    /// Tells a PADR that was sent again.
    pub(super) request: u64,
    /// Until when its negotiation must have ended (ns).
    pub(super) setup_until: u64,
    /// The longest PPP payload of both ways, from discovery.
    pub(super) max_payload: u16,
    /// The longest PPP payload that the subscriber takes.
    pub(super) peer_mru: u16,
    pub(super) layers: [Layer; 3],
    pub(super) magic: u32,
    pub(super) asks_mru: bool,
    pub(super) asks_magic: bool,
    pub(super) asks_address: bool,
    pub(super) method: Option<Authentication>,
    pub(super) proof: Proof,
    pub(super) proof_id: u8,
    pub(super) challenge: [u8; 16],
    pub(super) proof_due: u64,
    pub(super) proof_tries: u8,
    /// The token of the request to the RADIUS servers that is waited for; 0 where none is.
    pub(super) asked: u64,
    pub(super) name: Name,
    pub(super) grant: Grant,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) prefix: Option<Prefix>,
    pub(super) interface_id: u64,
    pub(super) is_open_v4: bool,
    pub(super) is_open_v6: bool,
    /// Whether the control side knows that it is up.
    pub(super) is_announced: bool,
    /// When it came up (ns).
    pub(super) up_since: u64,
    pub(super) echo_due: u64,
    pub(super) echo_id: u8,
    pub(super) reject_id: u8,
    pub(super) echo_missed: u32,
    /// When it must end (ns).
    pub(super) ends_at: u64,
    /// The longest silence, and the last packet from the subscriber (ns).
    pub(super) idle: u64,
    pub(super) heard_at: u64,
    pub(super) interim: u64,
    pub(super) interim_due: u64,
    pub(super) advertise_due: u64,
    pub(super) advertised_at: u64,
    pub(super) from_subscriber: Traffic,
    pub(super) to_subscriber: Traffic,
    pub(super) owed: Option<Owed>,
    pub(super) control: Bucket,
    /// The cause once it must be taken away.
    pub(super) ended: Option<Cause>,
    /// The cause of a Terminate-Request that was sent.
    pub(super) closing: Option<Cause>,
    /// Whether the subscriber said by a PADT that it is over, or was told so.
    pub(super) heard_padt: bool,
    /// The order of a handler, which the session's next turn follows.
    pub(super) order: Option<Order>,
}

impl Session {
    /// A session that begins now.
    pub(super) fn new((index, number): (u32, u64), (line, id): (Line, u16), fixed: &Fixed, now: u64) -> Self {
        let (link, link_len) = line.link(fixed.mac.octets(), netbricks_core::packet::Pppoe::SESSION);
        Self {
            index,
            number,
            account: number,
            line,
            id,
            link,
            link_len: link_len as u8,
            request: 0,
            setup_until: now.saturating_add(fixed.setup),
            max_payload: fixed.mru,
            peer_mru: super::options::DEFAULT_MRU,
            layers: [Layer::NEW; 3],
            magic: 0,
            asks_mru: true,
            asks_magic: true,
            asks_address: true,
            method: fixed.methods.first().copied(),
            proof: Proof::None,
            proof_id: 0,
            challenge: [0; 16],
            proof_due: NEVER,
            proof_tries: 0,
            asked: 0,
            name: Name::EMPTY,
            grant: Grant::default(),
            address: None,
            prefix: None,
            interface_id: 0,
            is_open_v4: false,
            is_open_v6: false,
            is_announced: false,
            up_since: 0,
            echo_due: NEVER,
            echo_id: 0,
            reject_id: 0,
            echo_missed: 0,
            ends_at: NEVER,
            idle: NEVER,
            heard_at: now,
            interim: NEVER,
            interim_due: NEVER,
            advertise_due: NEVER,
            advertised_at: 0,
            from_subscriber: Traffic::default(),
            to_subscriber: Traffic::default(),
            owed: None,
            control: Bucket::default(),
            ended: None,
            closing: None,
            heard_padt: false,
            order: None,
        }
    }
    pub(super) fn layer(&mut self, which: Which) -> &mut Layer {
        &mut self.layers[which as usize]
    }
    pub(super) fn state(&self, which: Which) -> State {
        self.layers[which as usize].state
    }
    /// The longest IP packet that fits a frame to the subscriber.
    #[inline]
    pub(super) fn mtu(&self) -> usize {
        self.max_payload.min(self.peer_mru).into()
    }
    /// Whether the subscriber is let in.
    pub(super) fn is_network_phase(&self) -> bool {
        self.state(Which::Lcp) == State::Opened && self.proof == Proof::Accepted
    }
    /// The first of its timers (ns).
    pub(super) fn next_due(&self) -> u64 {
        let [lcp, ipcp, ipv6cp] = self.layers.map(|layer| layer.due);
        let idle = if self.is_announced { self.heard_at.saturating_add(self.idle) } else { NEVER };
        let setup = if self.is_announced { NEVER } else { self.setup_until };
        if self.ended.is_some() {
            return self.owed.map_or(NEVER, |owed| owed.due);
        }
        [
            lcp,
            ipcp,
            ipv6cp,
            self.proof_due,
            self.echo_due,
            self.ends_at,
            idle,
            setup,
            self.interim_due,
            self.advertise_due,
            self.owed.map_or(NEVER, |owed| owed.due),
        ]
        .into_iter()
        .min()
        .unwrap_or(NEVER)
    }
    /// The word for its state in lists.
    pub(super) fn phase(&self) -> &'static str {
        match (self.state(Which::Lcp), self.proof) {
            _ if self.closing.is_some() || self.ended.is_some() => "closing",
            _ if self.is_announced => "open",
            (State::Opened, Proof::Accepted) => "network",
            (State::Opened, _) => "authenticating",
            _ => "establishing",
        }
    }
}
