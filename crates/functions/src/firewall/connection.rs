//! Connections of all protocols, and how long each is remembered without a packet.

use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::Encode;

use super::tcp::{Fit, Segment, TcpConnection, TcpState};

/// Which way a packet of a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// As the packet that began the connection.
    Forward,
    /// Against it.
    Reply,
}

impl Direction {
    /// 0 for forward, 1 for reply.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The part of a connection's state that its protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// TCP.
    Tcp(TcpConnection),
    /// ICMP queries: the ends that have asked, and those that got answers, as bits.
    Icmp(u8),
    /// UDP and everything else: packets with these addresses and ports.
    Other,
}

/// A connection, under the canonical key of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The identifier of the rule that allowed it.
    pub(crate) rule: u32,
    /// Whether its first packet had the canonical key itself, and not the opposite of it.
    pub(crate) is_canonical: bool,
    /// Whether the other end has answered.
    pub(crate) is_answered: bool,
    pub(crate) progress: Progress,
}

/// The packet's part that decides how it fits a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'f> {
    Tcp(Segment<'f>),
    /// An ICMP query, or the answer to one.
    Query(bool),
    Other,
}

/// The end that began has asked; the other's bit is the next.
const ASKED: u8 = 1;
/// It got an answer; the other's bit is the next.
const ANSWERED: u8 = 4;

impl Message<'_> {
    /// The query or answer that an ICMP message of this type is; `None` for all other messages.
    pub(crate) fn of_icmp(kind: u8, is_v6: bool) -> Option<Self> {
        Some(Message::Query(match (kind, is_v6) {
            // Echo, timestamp, information, address mask.
            (8 | 13 | 15 | 17, false) => false,
            (0 | 14 | 16 | 18, false) => true,
            // Echo, and node information (RFC 4620).
            (128 | 139, true) => false,
            (129 | 140, true) => true,
            _ => return None,
        }))
    }

    /// Whether it is a query, which both ends of a connection may send.
    const fn is_query(&self) -> bool {
        matches!(self, Message::Query(false))
    }
}

impl Connection {
    /// The connection that a packet with this flow begins; `None` where such a packet begins none.
    pub(crate) fn open(rule: u32, flow: &FlowKey, message: &Message<'_>, picks_up: bool) -> Option<Self> {
        let progress = match message {
            Message::Tcp(segment) => Progress::Tcp(TcpConnection::open(segment, picks_up)?),
            Message::Query(false) => Progress::Icmp(ASKED),
            Message::Query(true) => return None,
            Message::Other => Progress::Other,
        };
        Some(Self { rule, is_canonical: flow.canonical() == *flow, is_answered: false, progress })
    }

    /// The direction of a packet with this flow.
    pub(crate) fn direction(&self, flow: &FlowKey) -> Direction {
        let is_canonical = flow.canonical() == *flow;
        // A flow between equal ends has one direction.
        if is_canonical == self.is_canonical || flow.reversed() == *flow {
            Direction::Forward
        } else {
            Direction::Reply
        }
    }

    /// Takes note of a packet, if it fits.
    pub(crate) fn note(&mut self, direction: Direction, message: &Message<'_>) -> Fit {
        let fit = match (&mut self.progress, message) {
            (Progress::Tcp(tcp), Message::Tcp(segment)) => tcp.note(direction, segment, self.is_answered),
            (Progress::Icmp(seen), Message::Query(is_answer)) => {
                let asker = direction.index() ^ usize::from(*is_answer);
                match (is_answer, *seen & ASKED << asker != 0) {
                    (true, true) => {
                        *seen |= ANSWERED << asker;
                        Fit::Fits
                    }
                    (false, true) => Fit::Fits,
                    (true, false) => return Fit::Invalid,
                    // The other end asks, too: rules decide whether it may.
                    (false, false) => return Fit::Reopens,
                }
            }
            (Progress::Other, Message::Other) => Fit::Fits,
            _ => Fit::Invalid,
        };
        let is_answer = direction == Direction::Reply || matches!(message, Message::Query(true));
        if fit == Fit::Fits && is_answer && !message.is_query() {
            self.is_answered = true;
        }
        fit
    }

    /// Whether a packet of this direction, which was noted, is of a connection that both ends agree on.
    pub(crate) fn is_established(&self, direction: Direction, message: &Message<'_>) -> bool {
        match (&self.progress, message) {
            // Each end's questions have their own answers.
            (Progress::Icmp(seen), Message::Query(false)) => *seen & ANSWERED << direction.index() != 0,
            _ => self.is_answered || direction == Direction::Reply || matches!(message, Message::Query(true)),
        }
    }

    /// Lets the other end of a connection of queries ask as well; `false` for other connections.
    pub(crate) fn join(&mut self, direction: Direction, message: &Message<'_>) -> bool {
        let (Progress::Icmp(seen), Message::Query(false)) = (&mut self.progress, message) else {
            return false;
        };
        *seen |= ASKED << direction.index();
        true
    }

    /// Whether it is only begun, so that it counts among those which a flood could make.
    pub(crate) fn is_opening(&self) -> bool {
        match &self.progress {
            Progress::Tcp(tcp) => !self.is_answered || tcp.state.is_opening(),
            _ => !self.is_answered,
        }
    }

    /// The name of its state in listings.
    pub(crate) fn state_name(&self) -> &'static str {
        match &self.progress {
            Progress::Tcp(tcp) => tcp.state.name(),
            _ if self.is_answered => "answered",
            _ => "unanswered",
        }
    }
}

/// Time without a packet after which connections end, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// TCP connections before the end of their handshake.
    pub(crate) tcp_opening: u64,
    /// TCP connections whose handshake is over.
    pub(crate) tcp: u64,
    /// TCP connections of which an end has sent a FIN.
    pub(crate) tcp_closing: u64,
    /// TCP connections that are over.
    pub(crate) tcp_closed: u64,
    /// UDP before an answer.
    pub(crate) udp_opening: u64,
    /// UDP with answers.
    pub(crate) udp: u64,
    /// ICMP queries.
    pub(crate) icmp: u64,
    /// All else.
    pub(crate) other: u64,
}

impl Timeouts {
    /// The timeout of a connection of this protocol.
    pub(crate) fn of(&self, number: u8, connection: &Connection) -> u64 {
        match (&connection.progress, number) {
            (Progress::Tcp(tcp), _) => match tcp.state {
                TcpState::SynSent | TcpState::SynReceived | TcpState::BothSynSent => self.tcp_opening,
                TcpState::Established => self.tcp,
                TcpState::FinWait | TcpState::CloseWait | TcpState::LastAck => self.tcp_closing,
                TcpState::TimeWait | TcpState::Closed => self.tcp_closed,
            },
            (Progress::Icmp(_), _) => self.icmp,
            (Progress::Other, protocol::UDP | protocol::UDP_LITE) if connection.is_answered => self.udp,
            (Progress::Other, protocol::UDP | protocol::UDP_LITE) => self.udp_opening,
            (Progress::Other, _) => self.other,
        }
    }

    /// The longest of all.
    pub(crate) fn longest(&self) -> u64 {
        let Self { tcp_opening, tcp, tcp_closing, tcp_closed, udp_opening, udp, icmp, other } = *self;
        [tcp_opening, tcp, tcp_closing, tcp_closed, udp_opening, udp, icmp, other]
            .into_iter()
            .fold(0, u64::max)
    }
}

/// The rule, two flags, the kind of progress, and the progress in as many bytes as TCP's takes.
impl Encode for Connection {
    const SIZE: usize = 4 + 2 + TcpConnection::SIZE;
    const VERSION: u16 = 1;

    fn encode(&self, to: &mut [u8]) {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        bytes.extend(self.rule.to_be_bytes());
        bytes.push(u8::from(self.is_canonical) | u8::from(self.is_answered) << 1);
        match &self.progress {
            Progress::Tcp(tcp) => {
                bytes.push(0);
                tcp.write(&mut bytes);
            }
            Progress::Icmp(asked) => bytes.extend([1, *asked]),
            Progress::Other => bytes.push(2),
        }
        bytes.resize(Self::SIZE, 0);
        to.copy_from_slice(&bytes);
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let (rule, rest) = from.split_first_chunk()?;
        let [facts @ 0..4, kind, rest @ ..] = rest else { return None };
        let (progress, used) = match kind {
            0 => (Progress::Tcp(TcpConnection::read(rest)?), TcpConnection::SIZE),
            1 => (Progress::Icmp(*rest.first()?), 1),
            2 => (Progress::Other, 0),
            _ => return None,
        };
        if rest.get(used..)?.iter().any(|byte| *byte != 0) {
            return None;
        }
        Some(Self {
            rule: u32::from_be_bytes(*rule),
            is_canonical: facts & 1 != 0,
            is_answered: facts & 2 != 0,
            progress,
        })
    }
}
