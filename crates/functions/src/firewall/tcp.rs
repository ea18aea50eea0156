//! TCP's states and windows, as a firewall in the path sees them.
//!
//! The states are those of RFC 9293 for both ends together. The window check is van Rooij's ("Real Stateful TCP
//! Packet Filtering in IP Filter", 2000). By it a segment belongs to its connection where its receiver would take it.
//! Linux tracks connections by the same rules, so that verdicts agree with those of nftables.
//!
//! The stream crate's acceptability answers another question. It asks which bytes a receiver keeps, and needs a
//! reassembler for each connection. This one asks whether a segment may be the connection's, in 60 bytes.

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::tcp_options::{Signature, TcpOption, TcpOptions};

use super::connection::Direction;

/// The least window that is assumed of a sender of acknowledgments, in bytes: 64 KiB and a bit of header.
const LEAST_ACK_WINDOW: u32 = 66_000;
/// The largest window scale (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;

/// The state of a connection, by what both ends have sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum TcpState {
    /// The client's SYN was seen.
    #[default]
    SynSent,
    /// The server's SYN was seen, too.
    SynReceived,
    /// The handshake is over, or the connection was met in its middle.
    Established,
    /// One end has sent a FIN.
    FinWait,
    /// The other end acknowledged that FIN.
    CloseWait,
    /// The other end has sent a FIN as well.
    LastAck,
    /// Both FINs were acknowledged.
    TimeWait,
    /// A reset ended it.
    Closed,
    /// Both ends have sent a SYN without an acknowledgment: a simultaneous open.
    BothSynSent,
}

impl TcpState {
    /// All states, in the order of their numbers.
    pub(crate) const ALL: [Self; 9] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
        Self::BothSynSent,
    ];

    /// Its name in listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::Established => "established",
            Self::FinWait => "fin-wait",
            Self::CloseWait => "close-wait",
            Self::LastAck => "last-ack",
            Self::TimeWait => "time-wait",
            Self::Closed => "closed",
            Self::BothSynSent => "both-syn-sent",
        }
    }

    /// Whether the handshake is not over.
    pub(crate) const fn is_opening(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::BothSynSent)
    }

    /// Whether an end has begun to close it, or it is over.
    const fn is_closing(self) -> bool {
        !self.is_opening() && !matches!(self, Self::Established)
    }

    const fn is_over(self) -> bool {
        matches!(self, Self::TimeWait | Self::Closed)
    }
}

/// The meaning of a segment's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Signal {
    Syn,
    SynAck,
    Fin,
    #[default]
    Ack,
    Reset,
}

impl Signal {
    const ALL: [Self; 5] = [Self::Syn, Self::SynAck, Self::Fin, Self::Ack, Self::Reset];

    /// The signal of these flags; `None` for flags that no end sends together, or none.
    fn of(found: u8) -> Option<Self> {
        let found = found & !(flags::ECE | flags::CWR | flags::PSH);
        let urgent = found & flags::URG != 0;
        Some(match found & !flags::URG {
            flags::SYN => Self::Syn,
            both if both == flags::SYN | flags::ACK && !urgent => Self::SynAck,
            both if both == flags::FIN | flags::ACK => Self::Fin,
            flags::ACK => Self::Ack,
            both if both & flags::RST != 0 && both & !(flags::RST | flags::ACK) == 0 && !urgent => {
                Self::Reset
            }
            _ => return None,
        })
    }
}

/// The facts of a segment that decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'f> {
    pub(crate) signal: Signal,
    pub(crate) flags: u8,
    pub(crate) number: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Whether later fragments have more of them, of which the number is not known.
    pub(crate) goes_on: bool,
    pub(crate) options: &'f [u8],
}

impl<'f> Segment<'f> {
    /// Reads a TCP header with `payload` bytes behind it.
    ///
    /// `None` where the header is cut, or its flags stand for nothing.
    pub(crate) fn read(header: &'f [u8], payload: usize) -> Option<Self> {
        let fixed = header.first_chunk::<20>()?;
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(Self {
            signal: Signal::of(fixed[13])?,
            flags: fixed[13],
            number: word(4),
            acknowledgment: word(8),
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            len: payload as u32,
            goes_on: false,
            options: &header[20..],
        })
    }

    fn signature(&self) -> Signature {
        Signature::of(self.options)
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number behind its last byte; SYN and FIN have a number too.
    const fn end(&self) -> u32 {
        let more = self.has(flags::SYN) as u32 + self.has(flags::FIN) as u32;
        self.number.wrapping_add(self.len).wrapping_add(more)
    }
}

/// State of one end as a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The number behind the last byte that it sent.
    pub(crate) end: u32,
    /// The number that it must not reach: the other's last acknowledgment with its window.
    pub(crate) limit: u32,
    /// The largest window that it offered, in bytes; 0 before its first segment.
    pub(crate) window: u32,
    /// The highest number that it acknowledged.
    pub(crate) acknowledged: u32,
    /// The shift of its windows.
    pub(crate) scale: u8,
    /// Facts, as bits.
    pub(crate) facts: u8,
}

/// It offered window scaling.
const SCALES: u8 = 1;
/// It permits selective acknowledgments.
const SACKS: u8 = 2;
/// `acknowledged` is known.
const ACKNOWLEDGES: u8 = 4;
/// It sent the first FIN.
const CLOSES_FIRST: u8 = 8;
/// The connection was met in its middle: its windows are not known, and nothing is refused by them.
const MET_LATE: u8 = 16;
/// Its last segments were in fragments, of which only the first one's bytes are counted.
const IN_FRAGMENTS: u8 = 32;
/// The most bytes that later fragments of an IP packet have (RFC 791, section 3.1).
const MOST_IN_FRAGMENTS: u32 = 65_535;

/// The last segment, as far as later ones are compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) signal: Signal,
    pub(crate) direction: u8,
    pub(crate) end: u32,
    /// The number that it acknowledged, if it is an acknowledgment.
    pub(crate) acknowledged: u32,
    pub(crate) window: u16,
    pub(crate) scale: u8,
    pub(crate) facts: u8,
}

/// A SYN was let through in the state last-ack: the answer may be a challenge (RFC 5961, section 4).
const MAY_BE_CHALLENGED: u8 = 32;
/// Both ends sent a SYN without an acknowledgment.
const BOTH_OPEN: u8 = 64;

/// A TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpConnection {
    pub(crate) state: TcpState,
    /// The end that opened, and the other.
    pub(crate) ends: [End; 2],
    pub(crate) last: Last,
    /// Whether both ends have agreed on it: its handshake was seen, or one that was met late was answered.
    pub(crate) is_assured: bool,
    /// The signature of its segments.
    pub(crate) signature: Signature,
}

/// How a segment fits its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It belongs to it.
    Fits,
    /// It does not.
    Invalid,
    /// It opens another connection with the same addresses and ports.
    Reopens,
    /// It ends the connection.
    Ends,
}

/// How a segment lies to its receiver's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Within,
    /// It seems outside, but the connection's window is not known.
    ///
    /// The connection goes on by it, and its numbers are not noted.
    Unknown,
    /// It passes, and says nothing about the connection: it was delayed, or its sender takes liberties.
    Late,
    Outside,
}

/// The effect of a signal on a state.
enum Step {
    To(TcpState),
    /// The segment passes and changes nothing: the connection that was followed may not be the present one.
    Pass,
    Invalid,
}

/// The effect of a signal from one end.
fn step(direction: Direction, signal: Signal, state: TcpState) -> Step {
    use Direction::{Forward, Reply};
    use TcpState as S;
    match (signal, direction, state) {
        (Signal::Syn, Forward, S::SynSent | S::TimeWait | S::Closed) | (Signal::Syn, Reply, S::TimeWait) => {
            Step::To(S::SynSent)
        }
        (Signal::Syn, Forward, S::BothSynSent) | (Signal::Syn, Reply, S::SynSent | S::BothSynSent) => {
            Step::To(S::BothSynSent)
        }
        (Signal::Syn, Forward, _) => Step::Pass,
        (Signal::Syn, Reply, _) => Step::Invalid,
        (Signal::SynAck, Forward, S::SynReceived | S::BothSynSent)
        | (Signal::SynAck, Reply, S::SynSent | S::BothSynSent) => Step::To(S::SynReceived),
        (Signal::SynAck, Forward, _) => Step::Invalid,
        (Signal::SynAck, Reply, _) => Step::Pass,
        (Signal::Fin, _, S::SynSent | S::BothSynSent) => Step::Invalid,
        (Signal::Fin, _, S::SynReceived | S::Established) => Step::To(S::FinWait),
        (Signal::Fin, _, S::FinWait | S::CloseWait | S::LastAck) => Step::To(S::LastAck),
        (Signal::Fin, _, over) => Step::To(over),
        (Signal::Ack, Forward, S::SynSent | S::BothSynSent) => Step::Invalid,
        (Signal::Ack, Reply, S::SynSent | S::BothSynSent) => Step::Pass,
        (Signal::Ack, Forward, S::SynReceived) => Step::To(S::Established),
        (Signal::Ack, _, S::FinWait) => Step::To(S::CloseWait),
        (Signal::Ack, _, S::LastAck) => Step::To(S::TimeWait),
        (Signal::Ack, _, same) => Step::To(same),
        (Signal::Reset, ..) => Step::To(S::Closed),
    }
}

/// Whether number `a` comes before `b`, modulo 2³² (RFC 9293, section 3.4).
const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

const fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

impl TcpConnection {
    /// The connection that this first segment opens.
    ///
    /// With `picks_up` a segment with data or an acknowledgment alone begins one, too. `None` for all others.
    pub(crate) fn open(segment: &Segment<'_>, picks_up: bool) -> Option<Self> {
        let mut new = Self::default();
        if segment.signature() == Signature::Several {
            return None;
        }
        match segment.signal {
            Signal::Syn => new.ends[0].begin(segment),
            Signal::Ack if picks_up => {
                new.state = TcpState::Established;
                let own = &mut new.ends[0];
                own.end = segment.end();
                own.window = u32::from(segment.window).max(1);
                own.limit = own.end.wrapping_add(own.window);
                for end in &mut new.ends {
                    end.facts = SACKS | MET_LATE;
                }
            }
            _ => return None,
        }
        // As if it had followed a connection: the first segment goes through the window check as well.
        let mut checked = new;
        let position = checked.check_window(Direction::Forward, segment, TcpState::SynSent);
        if !matches!(position, Position::Within | Position::Unknown) {
            return None;
        }
        let is_known = segment.signal == Signal::Ack && position == Position::Within;
        let end = if is_known { segment.end() } else { 0 };
        checked.signature = segment.signature();
        checked.last = Last { signal: segment.signal, direction: 0, end, ..Last::default() };
        Some(checked)
    }

    /// Takes note of a segment, if it fits.
    pub(crate) fn note(&mut self, direction: Direction, segment: &Segment<'_>, was_answered: bool) -> Fit {
        let (old, way) = (self.state, direction.index());
        let signature = segment.signature();
        if !self.may_be_signed(signature, segment.signal, was_answered) {
            return Fit::Invalid;
        }
        let mut new = match step(direction, segment.signal, old) {
            Step::Invalid => return Fit::Invalid,
            Step::Pass => match self.pass_by(direction, segment) {
                None => return Fit::Fits,
                Some(state) => state,
            },
            Step::To(state) => state,
        };
        let (mut checks_window, mut is_within) = (true, false);
        match new {
            TcpState::SynSent if old.is_over() => {
                let closed = (self.ends[0].facts | self.ends[1].facts) & CLOSES_FIRST != 0;
                let reset = usize::from(self.last.direction) == way && self.last.signal == Signal::Reset;
                if closed || reset {
                    return Fit::Reopens;
                }
                return match self.pass_by(direction, segment) {
                    None => Fit::Fits,
                    Some(_) => Fit::Invalid,
                };
            }
            TcpState::TimeWait if self.is_challenge(old, way, segment) => {
                self.last.facts &= !MAY_BE_CHALLENGED;
                return Fit::Fits;
            }
            TcpState::BothSynSent => self.last.facts |= BOTH_OPEN,
            TcpState::SynReceived
                if direction == Direction::Reply
                    && segment.signal == Signal::Ack
                    && self.last.facts & BOTH_OPEN != 0 =>
            {
                new = TcpState::Established;
            }
            // What is known of a connection that closes may be out of date: the ends may have opened another one.
            TcpState::Closed if segment.signal == Signal::Reset && old.is_closing() => checks_window = false,
            TcpState::Closed if segment.signal == Signal::Reset => {
                match self.reset(direction, segment, was_answered) {
                    None => return Fit::Invalid,
                    Some((state, checks)) => (new, checks_window) = (state, checks),
                }
            }
            _ => {}
        }
        if checks_window {
            match self.check_window(direction, segment, old) {
                Position::Within => is_within = true,
                Position::Unknown => {}
                Position::Late => return Fit::Fits,
                Position::Outside => {
                    self.note_outside(way, segment.signal);
                    return Fit::Invalid;
                }
            }
        }
        self.last.signal = segment.signal;
        self.last.direction = way as u8;
        // Of other segments the end is not compared with what answers them.
        if segment.signal == Signal::Ack && is_within {
            (self.last.end, self.last.acknowledged) = (segment.end(), segment.acknowledgment);
        }
        (self.state, self.signature) = (new, signature);
        let goes_on = matches!(old, TcpState::SynReceived | TcpState::Established);
        self.is_assured |= was_answered && goes_on && new == TcpState::Established;
        if old != new && new == TcpState::FinWait {
            self.ends[way].facts |= CLOSES_FIRST;
        }
        // Nothing but a reset was answered: there is no connection.
        if segment.signal == Signal::Reset && !was_answered { Fit::Ends } else { Fit::Fits }
    }

    /// Whether the receiver takes a segment with this signature, as far as that is known.
    ///
    /// It drops any other segment before it reads a number of it, resets included (RFC 2385, section 2; RFC 5925,
    /// section 7.4). A SYN may open another connection, and the SYN that answers it tells on what the ends agreed. Of a
    /// connection that was met in its middle, the first answer tells that.
    fn may_be_signed(&self, signature: Signature, signal: Signal, was_answered: bool) -> bool {
        match (signature, signal) {
            (Signature::Several, _) => false,
            (_, Signal::Syn) => true,
            (_, Signal::SynAck) if self.state.is_opening() || self.last.signal == Signal::Syn => true,
            (signature, _) => {
                signature == self.signature || !was_answered && self.ends[0].facts & MET_LATE != 0
            }
        }
    }

    /// Takes note of a FIN or a reset outside the window, which its receiver may still have taken.
    fn note_outside(&mut self, way: usize, signal: Signal) {
        let ends = |signal| matches!(signal, Signal::Fin | Signal::Reset);
        let is_answer = usize::from(self.last.direction) != way && ends(self.last.signal);
        if self.is_assured && ends(signal) && !is_answer {
            self.last.signal = signal;
            self.last.direction = way as u8;
        }
    }

    /// Takes note of a segment that passes without an effect, since the ends may be further than this connection.
    ///
    /// The answer is the state to which it brings the connection after all. A SYN with an acknowledgment answers a SYN
    /// that had passed by before, and both ends agree on a connection. It is followed from here on.
    fn pass_by(&mut self, direction: Direction, segment: &Segment<'_>) -> Option<TcpState> {
        let way = direction.index();
        let before = usize::from(self.last.direction);
        if segment.signal == Signal::SynAck
            && self.last.signal == Signal::Syn
            && before != way
            && segment.acknowledgment == self.last.end
        {
            let window = u32::from(self.last.window).max(1);
            let Last { end, scale, facts, .. } = self.last;
            let facts = facts & (SCALES | SACKS);
            self.ends[before] = End { end, limit: end, window, scale, facts, ..End::default() };
            self.ends[way] = End { facts: self.ends[way].facts & MET_LATE, ..End::default() };
            self.state = TcpState::SynSent;
            return Some(TcpState::SynReceived);
        }
        let facts = self.last.facts & BOTH_OPEN;
        self.last = Last {
            signal: segment.signal,
            direction: way as u8,
            end: segment.end(),
            acknowledged: segment.acknowledgment,
            window: segment.window,
            scale: 0,
            facts,
        };
        if segment.signal == Signal::Syn && direction == Direction::Forward {
            let (scale, facts) = offers(segment.options);
            self.last.scale = scale.unwrap_or(0);
            self.last.facts |= facts;
            if self.state == TcpState::LastAck {
                self.last.facts |= MAY_BE_CHALLENGED;
            }
        }
        None
    }

    /// Whether an acknowledgment challenges a SYN, rather than acknowledging the last FIN.
    fn is_challenge(&self, old: TcpState, way: usize, segment: &Segment<'_>) -> bool {
        old == TcpState::LastAck
            && segment.signal == Signal::Ack
            && usize::from(self.last.direction) != way
            && self.last.signal == Signal::Syn
            && self.last.facts & MAY_BE_CHALLENGED != 0
    }

    /// The state behind a reset, and whether its window is to be checked; `None` where it is forged.
    ///
    /// A reset that is not at the number that its receiver expects is answered by a challenge, and the connection goes
    /// on (RFC 5961, section 3.2).
    fn reset(
        &self,
        direction: Direction,
        segment: &Segment<'_>,
        was_answered: bool,
    ) -> Option<(TcpState, bool)> {
        let other = &self.ends[1 - direction.index()];
        let is_established = self.state == TcpState::Established && self.is_assured;
        let mut state = TcpState::Closed;
        // Behind a SYN it may answer that one, whose numbers are others.
        let is_known = other.facts & ACKNOWLEDGES != 0 && self.last.signal != Signal::Syn;
        let last_of_other = self.last.signal == Signal::Ack
            && usize::from(self.last.direction) != direction.index()
            && segment.number == self.last.acknowledged;
        // It answers a challenge: an acknowledgment that passed by.
        if self.state == TcpState::SynSent && last_of_other {
            return Some((state, false));
        }
        if is_known {
            if segment.number == 0 && !is_established {
                return Some((state, true));
            }
            if before(segment.number, other.acknowledged) {
                return None;
            }
            let last_of_sender = self.last.signal == Signal::Ack
                && usize::from(self.last.direction) == direction.index()
                && segment.number == self.last.end;
            if !is_established || segment.number == other.acknowledged || last_of_sender {
                return Some((state, true));
            }
            state = self.state;
        }
        // A reset that answers a segment that had passed by: it may acknowledge numbers that were not counted.
        // Only the other end answers a SYN.
        let is_other = usize::from(self.last.direction) != direction.index();
        let answers_passed = (was_answered && self.last.signal == Signal::Syn && is_other
            || !self.is_assured && self.last.signal == Signal::Ack)
            && segment.acknowledgment == self.last.end;
        Some((state, !answers_passed))
    }

    /// Finds how the segment lies to its receiver's window; if within, takes note of its numbers.
    fn check_window(&mut self, direction: Direction, segment: &Segment<'_>, state: TcpState) -> Position {
        let (ends, way) = (&mut self.ends, direction.index());
        let [sender, receiver] = match ends {
            [first, second] if way == 0 => [first, second],
            [first, second] => [second, first],
        };
        let (mut number, mut end) = (segment.number, segment.end());
        let mut acknowledged = segment.acknowledgment;
        let mut selective = acknowledged;
        if receiver.facts & SACKS != 0 && segment.has(flags::ACK) {
            selective = highest_selective(segment.options, acknowledged);
        }
        if sender.window == 0 {
            if segment.has(flags::SYN) {
                sender.begin(segment);
                agree_on_scale(sender, receiver, direction);
                if !segment.has(flags::ACK) {
                    // A simultaneous open.
                    return Position::Within;
                }
            } else {
                sender.end = end;
                sender.window = (u32::from(segment.window) << sender.scale).max(1);
                sender.limit = end.wrapping_add(sender.window);
                if receiver.window == 0 {
                    (receiver.end, receiver.limit) = (selective, selective);
                } else if selective == receiver.end.wrapping_add(1) {
                    // An answer to a keep-alive probe.
                    receiver.end = receiver.end.wrapping_add(1);
                }
            }
        } else if segment.has(flags::SYN)
            && after(end, sender.end)
            && matches!(state, TcpState::SynSent | TcpState::SynReceived)
        {
            sender.begin(segment);
            agree_on_scale(sender, receiver, direction);
            if direction == Direction::Reply && !segment.has(flags::ACK) {
                return Position::Within;
            }
        }
        let is_empty_reset = segment.has(flags::RST) && segment.has(flags::ACK) && acknowledged == 0;
        if !segment.has(flags::ACK) || is_empty_reset {
            (acknowledged, selective) = (receiver.end, receiver.end);
        }
        if segment.has(flags::RST) && number == 0 && state == TcpState::SynSent {
            (number, end) = (sender.end, sender.end);
        }
        let reaches = after(end, sender.end.wrapping_sub(receiver.window).wrapping_sub(1));
        let ack_window = sender.window.max(LEAST_ACK_WINDOW);
        let is_recent = after(selective, receiver.end.wrapping_sub(ack_window).wrapping_sub(1));
        let was_sent = before(selective, receiver.end.wrapping_add(1 + receiver.uncounted()));
        // Of a connection that was met in its middle, the windows are not known.
        let refused = |position| if sender.facts & MET_LATE != 0 { Position::Unknown } else { position };
        if !before(number, sender.limit.wrapping_add(1)) {
            let beyond = end.wrapping_sub(sender.limit).wrapping_add(1);
            if receiver.window != 0 && reaches && is_recent && beyond <= receiver.window && was_sent {
                // Some receivers take more than they offered; their acknowledgments are to fit.
                let late = refused(Position::Late);
                sender.end = end;
                sender.facts |= if segment.goes_on { IN_FRAGMENTS } else { 0 };
                return late;
            }
            return refused(Position::Outside);
        }
        if !was_sent {
            return refused(Position::Outside);
        }
        if receiver.window != 0 && !reaches || !is_recent {
            return refused(Position::Late);
        }
        let shift = if segment.has(flags::SYN) { 0 } else { sender.scale };
        let window = u32::from(segment.window) << shift;
        sender.window = sender.window.max(window.wrapping_add(selective.wrapping_sub(acknowledged)));
        sender.advance(segment, number, end);
        if after(selective, receiver.end) {
            // The other end got bytes that later fragments brought.
            receiver.end = selective;
        }
        if segment.has(flags::ACK) {
            if sender.facts & ACKNOWLEDGES == 0 || after(acknowledged, sender.acknowledged) {
                sender.acknowledged = acknowledged;
            }
            sender.facts |= ACKNOWLEDGES;
        }
        if receiver.window != 0 && after(end, sender.limit) {
            receiver.window = receiver.window.wrapping_add(end.wrapping_sub(sender.limit));
        }
        let edge = selective.wrapping_add(window);
        if after(edge, receiver.limit.wrapping_sub(1)) {
            receiver.limit = edge.wrapping_add(u32::from(window == 0));
        }
        Position::Within
    }
}

impl End {
    /// The most bytes that it may have sent behind [`end`](Self::end), in later fragments.
    const fn uncounted(&self) -> u32 {
        if self.facts & IN_FRAGMENTS != 0 { MOST_IN_FRAGMENTS } else { 0 }
    }

    /// It sent a segment, from one number to before another.
    fn advance(&mut self, segment: &Segment<'_>, number: u32, end: u32) {
        if segment.goes_on {
            self.facts |= IN_FRAGMENTS;
        } else if segment.len > 0 && !before(number, self.end) {
            // It begins behind all fragments.
            self.facts &= !IN_FRAGMENTS;
        }
        if after(end, self.end) {
            self.end = end;
        }
    }

    /// Takes the numbers and offers of a SYN.
    fn begin(&mut self, segment: &Segment<'_>) {
        let (scale, facts) = offers(segment.options);
        let end = segment.end();
        self.end = end;
        self.limit = end;
        self.window = u32::from(segment.window).max(1);
        self.scale = scale.unwrap_or(0);
        self.facts = facts | self.facts & MET_LATE;
    }
}

/// Windows are scaled only where both ends offer it (RFC 7323, section 2.2).
fn agree_on_scale(one: &mut End, other: &mut End, direction: Direction) {
    if direction == Direction::Reply && one.facts & other.facts & SCALES == 0 {
        (one.scale, other.scale) = (0, 0);
    }
}

/// The window scale and the facts that a SYN's options offer.
fn offers(options: &[u8]) -> (Option<u8>, u8) {
    let (mut scale, mut facts) = (None, 0);
    for option in TcpOptions::new(options).map_while(Result::ok) {
        match option {
            TcpOption::WindowScale(shift) => {
                scale = Some(shift.min(LARGEST_SCALE));
                facts |= SCALES;
            }
            TcpOption::SackPermitted => facts |= SACKS,
            _ => {}
        }
    }
    (scale, facts)
}

/// The highest number that a segment acknowledges, also selectively (RFC 2018).
fn highest_selective(options: &[u8], acknowledged: u32) -> u32 {
    // Timestamps alone, as in nearly all segments.
    if options.is_empty() || options.len() == 12 && options.starts_with(&[1, 1, 8, 10]) {
        return acknowledged;
    }
    let mut highest = acknowledged;
    for option in TcpOptions::new(options).map_while(Result::ok) {
        if let TcpOption::Sack(blocks) = option {
            for (_, right) in blocks.iter() {
                if after(right, highest) {
                    highest = right;
                }
            }
        }
    }
    highest
}

/// The signatures that a connection may have, in the order of their numbers.
const SIGNATURES: [Signature; 3] = [Signature::None, Signature::Md5, Signature::Authentication];

impl TcpConnection {
    /// Bytes of its export.
    pub(crate) const SIZE: usize = 1 + 2 * 18 + 14 + 1;

    /// Writes it in [`SIZE`](Self::SIZE) bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.push(self.state as u8);
        for End { end, limit, window, acknowledged, scale, facts } in self.ends {
            for number in [end, limit, window, acknowledged] {
                to.extend(number.to_be_bytes());
            }
            to.extend([scale, facts]);
        }
        let Last { signal, direction, end, acknowledged, window, scale, facts } = self.last;
        to.extend([signal as u8, direction]);
        to.extend(end.to_be_bytes());
        to.extend(acknowledged.to_be_bytes());
        to.extend(window.to_be_bytes());
        to.extend([scale, facts, u8::from(self.is_assured) | (self.signature as u8) << 1]);
    }

    /// Reads it again; `None` for bytes that no connection has.
    pub(crate) fn read(from: &[u8]) -> Option<Self> {
        let from: &[u8; Self::SIZE] = from.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]]);
        let end = |at: usize| End {
            end: word(at),
            limit: word(at + 4),
            window: word(at + 8),
            acknowledged: word(at + 12),
            scale: from[at + 16],
            facts: from[at + 17],
        };
        let new = Self {
            state: *TcpState::ALL.get(usize::from(from[0]))?,
            ends: [end(1), end(19)],
            last: Last {
                signal: *Signal::ALL.get(usize::from(from[37]))?,
                direction: from[38],
                end: word(39),
                acknowledged: word(43),
                window: u16::from_be_bytes([from[47], from[48]]),
                scale: from[49],
                facts: from[50],
            },
            is_assured: from[51] & 1 != 0,
            signature: *SIGNATURES.get(usize::from(from[51] >> 1))?,
        };
        let is_possible = new.last.direction < 2
            && new.last.scale <= LARGEST_SCALE
            && new.ends.iter().all(|end| end.scale <= LARGEST_SCALE);
        is_possible.then_some(new)
    }
}
