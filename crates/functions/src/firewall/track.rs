//! Looks packets' connections up, and remembers new ones.
//!
//! A worker has two tables. A connection that was answered is in the one for open connections. One that only began is
//! in the other, which gives the oldest away where it is full. So a flood of packets that begin connections, such as
//! SYNs from forged addresses, takes no room from connections that both ends agree on.

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{FlowKey, Icmpv4, IpRef, icmpv4, protocol};
use netbricks_core::tables::{Entry, FlowHasher, FlowTable, FlowTicket, Table};
use netbricks_core::{Counter, Flows, StoredFlow, TableKey};
use netbricks_mmb::field::Layer;
use netbricks_mmb::key::Located;

use super::connection::{Connection, Message, Timeouts};
use super::rule::states;
use super::tcp::{Fit, Segment};

/// One worker's connections, and the ticket of the packet at hand in the table of open ones.
pub(super) struct Tables<'t> {
    pub(super) open: &'t Flows<FlowKey, Connection>,
    pub(super) opening: &'t Flows<FlowKey, Connection>,
    pub(super) ticket: FlowTicket,
}

impl Tables<'_> {
    /// Begins the lookup of a key.
    pub(super) fn hash(hasher: &FlowHasher, key: &StoredFlow) -> FlowTicket {
        <FlowTable<StoredFlow, Connection> as Table>::hash(hasher, key)
    }
}

/// How a packet belongs to connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracked {
    /// One of the bits of [`states`]; 0 where connections are not tracked.
    pub(super) state: u8,
    /// The rule of its connection, where it has one.
    pub(super) rule: Option<u32>,
    /// Whether a connection begins with it, if it may pass.
    pub(super) begins: bool,
    /// Whether it begins another one with the same addresses and ports as a known one.
    pub(super) joins: bool,
}

impl Tracked {
    const INVALID: Self = Self { state: states::INVALID, rule: None, begins: false, joins: false };
    const UNTRACKED: Self = Self { state: states::UNTRACKED, rule: None, begins: false, joins: false };
}

/// The rules of tracking.
pub(super) struct Tracker {
    pub(super) timeouts: Timeouts,
    /// Whether TCP connections are followed that are met in their middle.
    pub(super) picks_up: bool,
    /// Whether transport checksums are verified.
    pub(super) verifies: bool,
    /// Connections that stay among those that begin, since the table of open ones has no room.
    pub(super) crowded: Counter,
}

impl Tracker {
    /// Finds the connection of a packet with this flow, and takes note of the packet.
    pub(super) fn track(
        &self,
        tables: &mut Tables<'_>,
        located: &Located,
        flow: &FlowKey,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Tracked {
        let Some(message) = self.message(located, frame) else { return Tracked::INVALID };
        let message = match message {
            Seen::Message(message) => message,
            Seen::Error(about) => return related(tables, about, now),
            Seen::Untracked => return Tracked::UNTRACKED,
        };
        let key = flow.canonical().store();
        let mut open = tables.open.borrow_mut();
        open.tell(now);
        if let Entry::Found(mut entry) = open.resolve(key, tables.ticket) {
            let connection = entry.get_mut();
            let direction = connection.direction(flow);
            let fit = connection.note(direction, &message);
            let (rule, is_established) = (connection.rule, connection.is_established(direction, &message));
            match fit {
                Fit::Fits => {
                    let timeout = self.timeouts.of(flow.protocol(), connection);
                    entry.set_timeout(timeout);
                    return Tracked::of(rule, is_established);
                }
                Fit::Ends => {
                    entry.remove();
                    return Tracked::of(rule, is_established);
                }
                Fit::Invalid => return Tracked::INVALID,
                Fit::Reopens => return self.reopens(entry, rule, flow, &message),
            }
        }
        let mut opening = tables.opening.borrow_mut();
        if let Entry::Found(mut entry) = opening.lookup(key, now) {
            let connection = entry.get_mut();
            let direction = connection.direction(flow);
            let fit = connection.note(direction, &message);
            let (rule, is_established) = (connection.rule, connection.is_established(direction, &message));
            return match fit {
                Fit::Fits => {
                    let timeout = self.timeouts.of(flow.protocol(), connection);
                    if connection.is_opening() {
                        entry.set_timeout(timeout);
                        return Tracked::of(rule, is_established);
                    }
                    let connection = *connection;
                    match open.lookup(key, now) {
                        Entry::Vacant(vacant) => {
                            vacant.insert_entry(connection).set_timeout(timeout);
                            entry.remove();
                        }
                        Entry::Found(_) | Entry::Full => {
                            self.crowded.add(1);
                            entry.set_timeout(timeout);
                        }
                    }
                    Tracked::of(rule, is_established)
                }
                Fit::Ends => {
                    entry.remove();
                    Tracked::of(rule, is_established)
                }
                Fit::Invalid => Tracked::INVALID,
                Fit::Reopens => self.reopens(entry, rule, flow, &message),
            };
        }
        self.first(flow, &message)
    }

    /// A packet that begins another connection in the place of a known one, or beside it.
    fn reopens(
        &self,
        entry: netbricks_core::tables::Occupied<'_, StoredFlow, Connection>,
        rule: u32,
        flow: &FlowKey,
        message: &Message<'_>,
    ) -> Tracked {
        if matches!(message, Message::Query(_)) {
            return Tracked { state: states::NEW, rule: Some(rule), begins: true, joins: true };
        }
        entry.remove();
        self.first(flow, message)
    }

    /// A packet without a connection.
    fn first(&self, flow: &FlowKey, message: &Message<'_>) -> Tracked {
        match Connection::open(0, flow, message, self.picks_up) {
            Some(_) => Tracked { state: states::NEW, rule: None, begins: true, joins: false },
            None => Tracked::INVALID,
        }
    }

    /// Remembers the connection that a packet begins: whether it is a new one. `None` where there is no room.
    #[expect(clippy::too_many_arguments, reason = "the facts of one packet, each from another step")]
    pub(super) fn admit(
        &self,
        tables: &mut Tables<'_>,
        rule: u32,
        located: &Located,
        flow: &FlowKey,
        tracked: &Tracked,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Option<bool> {
        let Some(Seen::Message(message)) = self.message(located, frame) else { return Some(false) };
        let key = flow.canonical().store();
        if tracked.joins {
            for table in [tables.open, tables.opening] {
                if let Entry::Found(mut entry) = table.borrow_mut().lookup(key, now) {
                    let connection = entry.get_mut();
                    let direction = connection.direction(flow);
                    return Some(connection.join(direction, &message));
                }
            }
        }
        let connection = Connection::open(rule, flow, &message, self.picks_up)?;
        let timeout = self.timeouts.of(flow.protocol(), &connection);
        match tables.opening.borrow_mut().lookup(key, now) {
            Entry::Vacant(vacant) => {
                vacant.insert_entry(connection).set_timeout(timeout);
                Some(true)
            }
            Entry::Found(mut entry) => {
                *entry.get_mut() = connection;
                entry.set_timeout(timeout);
                Some(true)
            }
            Entry::Full => None,
        }
    }

    /// The part of a packet that decides how it fits a connection; `None` for a packet that fits none.
    fn message<'f>(&self, located: &Located, frame: &'f Bytes<'_>) -> Option<Seen<'f>> {
        let data = frame.data();
        let (header, payload) = located.ip(data)?;
        let is_whole = !header.is_fragment() && frame.missing() == 0;
        if self.verifies
            && is_whole
            && !frame.offload().needs_checksum
            && header.transport_checksum_is_valid(payload) == Some(false)
        {
            return None;
        }
        let is_v6 = matches!(header, IpRef::V6(_));
        match located.transport() {
            Some(protocol::TCP) => {
                let at = located.at(Layer::Tcp)?;
                let rest = located.payload(Layer::Tcp)?;
                let segment = Segment::read(data.get(at..rest.start)?, rest.len() + frame.missing())?;
                let goes_on = header.is_fragment();
                Some(Seen::Message(Message::Tcp(Segment { goes_on, ..segment })))
            }
            Some(protocol::UDP) => {
                let [.., high, low] = *payload.first_chunk::<6>()?;
                let stated = usize::from(u16::from_be_bytes([high, low]));
                // 0 is the length of a jumbogram, or one that was left to the device.
                let is_wrong = stated != 0 && stated < 8 || is_whole && stated > payload.len();
                (payload.len() >= 8 && !is_wrong).then_some(Seen::Message(Message::Other))
            }
            Some(protocol::ICMP) if !is_v6 => icmp(header, payload, false),
            Some(protocol::ICMPV6) if is_v6 => icmp(header, payload, true),
            _ => Some(Seen::Message(Message::Other)),
        }
    }
}

impl Tracked {
    fn of(rule: u32, is_established: bool) -> Self {
        let state = if is_established { states::ESTABLISHED } else { states::NEW };
        Self { state, rule: Some(rule), begins: false, joins: false }
    }
}

/// The flow of a packet, as connections are kept by it.
///
/// ICMP queries other than echoes have their identifier too, and a protocol number of their own, so that equal
/// identifiers do not make them one connection. The number is kept back for experiments (RFC 3692).
pub(super) fn flow_of(header: IpRef<'_>, payload: &[u8]) -> FlowKey {
    let flow = FlowKey::of(header, payload);
    match (flow.protocol(), payload.first_chunk()) {
        (protocol::ICMP, Some([13..=18, _, _, _, high, low])) => {
            let identifier = u16::from_be_bytes([*high, *low]);
            // Timestamps; then information and address masks.
            let number = if matches!(payload.first(), Some(13 | 14)) { 253 } else { 254 };
            FlowKey::new(flow.source(), flow.destination(), identifier, identifier, number)
        }
        _ => flow,
    }
}

/// A packet, as connections see it.
enum Seen<'f> {
    Message(Message<'f>),
    /// An error, and the flow that it is about.
    Error(Option<FlowKey>),
    /// It makes no connection, and belongs to none.
    Untracked,
}

/// The flow that an error is about, against the packet that it quotes.
fn about(header: IpRef<'_>, payload: &[u8]) -> Option<FlowKey> {
    let flow = FlowKey::quoted(header, payload)?;
    if flow.protocol() != protocol::ICMP || flow.source_port() != 0 {
        return Some(flow);
    }
    // A query that is no echo has its identifier in the quote.
    let (head, rest) = payload.split_at_checked(Icmpv4::SIZE)?;
    let quoted = Icmpv4::view(head, ()).quoted(rest)?;
    Some(flow_of(quoted.ip(), quoted.transport()).reversed())
}

fn icmp<'f>(header: IpRef<'f>, payload: &'f [u8], is_v6: bool) -> Option<Seen<'f>> {
    if payload.len() < Icmpv4::SIZE {
        return None;
    }
    let kind = *payload.first()?;
    let is_error = if is_v6 {
        kind < 128
    } else {
        use icmpv4::kind::{
            DESTINATION_UNREACHABLE, PARAMETER_PROBLEM, REDIRECT, SOURCE_QUENCH, TIME_EXCEEDED,
        };
        [DESTINATION_UNREACHABLE, SOURCE_QUENCH, REDIRECT, TIME_EXCEEDED, PARAMETER_PROBLEM].contains(&kind)
    };
    if is_error {
        return Some(Seen::Error(about(header, payload)));
    }
    // Multicast listener and neighbour discovery (RFC 3810, RFC 4861).
    if is_v6 && matches!(kind, 130..=136 | 143) {
        return Some(Seen::Untracked);
    }
    Message::of_icmp(kind, is_v6).map(Seen::Message)
}

/// An error is of the connection that it is about. It refreshes nothing: anyone can send one.
fn related(tables: &Tables<'_>, about: Option<FlowKey>, now: u64) -> Tracked {
    let Some(about) = about else { return Tracked::INVALID };
    let key = about.canonical().store();
    let rule = [tables.open, tables.opening]
        .into_iter()
        .find_map(|table| table.borrow().get_at(&key, now).map(|connection| connection.rule));
    match rule {
        Some(rule) => Tracked { state: states::RELATED, rule: Some(rule), begins: false, joins: false },
        None => Tracked::INVALID,
    }
}
