//! Connections: what a stateful rule's first match leaves behind.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::Encode;

use crate::field::FieldId;
use crate::key::Located;

/// Stateful rules that one connection can have.
pub(crate) const RULES: usize = 4;
/// Values of mapped fields that one connection has, beside addresses and ports.
pub(crate) const VALUES: usize = 2;

/// A stateful rule's number: a hash of its line, and of how often the line was put in before.
///
/// It is the same in every process with the same rules, so that connections outlive another order or set of rules. A rule
/// that was deleted and put in again has another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RuleId([u32; 2]);

impl RuleId {
    /// The number of a stateless rule, which no connection has.
    pub(crate) const NONE: Self = Self([0; 2]);

    /// The number with these bits; 0 stands for none.
    pub(crate) const fn of(bits: u64) -> Self {
        Self([(bits >> 32) as u32, bits as u32])
    }
    /// Its bits.
    pub(crate) const fn bits(self) -> u64 {
        (self.0[0] as u64) << 32 | self.0[1] as u64
    }
}

/// A rule, as connections remember it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleRef {
    /// The slot from 1 in which it was last found; 0 stands for no rule.
    pub(crate) slot: u32,
    /// The rule's number, which decides.
    pub(crate) id: RuleId,
}

/// Which way a packet of a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// As the packet that made the connection.
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

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Progress {
    /// Only one side was seen, or TCP's handshake is not over.
    #[default]
    Opening = 0,
    /// Both sides were seen; in TCP, the handshake was.
    Open = 1,
    /// A FIN or RST was seen.
    Closing = 2,
}

impl Progress {
    /// Its name in listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Closing => "closing",
        }
    }
}

/// The parts of a TCP segment on which its connection's state depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The flags.
    pub(crate) flags: u8,
    /// The sequence number.
    pub(crate) sequence: u32,
    /// The acknowledgment number, which counts with ACK alone.
    pub(crate) acknowledgment: u32,
    /// Bytes of its payload.
    pub(crate) len: u32,
    /// Whether an option of TCP-MD5 or TCP-AO signs it; looked at where it [changes the state](Self::changes_state).
    pub(crate) is_signed: bool,
    /// Whether its checksum is wrong; looked at in the same segments.
    pub(crate) is_corrupt: bool,
}

impl Segment {
    /// Reads a TCP header's fixed part, which so many bytes of payload follow.
    #[inline(always)]
    pub(crate) fn read(header: &[u8; 20], len: usize) -> Self {
        let number =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Self {
            flags: header[13],
            sequence: number(4),
            acknowledgment: number(8),
            len: len as u32,
            ..Self::default()
        }
    }
    /// Whether it begins or ends a connection, or a direction of one: SYN, FIN or RST.
    #[inline(always)]
    pub(crate) fn changes_state(self) -> bool {
        self.flags & (flags::SYN | flags::FIN | flags::RST) != 0
    }
    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
    /// Whether it is the first of a connection: a SYN without ACK, RST or FIN.
    fn begins(self) -> bool {
        self.flags & (flags::SYN | flags::ACK | flags::RST | flags::FIN) == flags::SYN
    }
}

/// The sequence numbers that a TCP connection has come to, by direction, as their senders count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequences {
    /// The number behind the last octet seen of this direction: SND.NXT, as far as it was seen.
    next: [u32; 2],
    /// The last number that the receiver of this direction acknowledged: its RCV.NXT, as far as it was seen.
    acknowledged: [u32; 2],
    /// Which of them are known: bits 0 and 1 for `next`, 2 and 3 for `acknowledged`.
    ///
    /// Bit 4 says that a SYN was seen, bit 5 that it was signed.
    known: u8,
}

impl Sequences {
    const BEGUN: u8 = 1 << 4;
    const SIGNED: u8 = 1 << 5;

    /// Whether the connection's ends take a segment that begins or ends it.
    ///
    /// They do not where its checksum is wrong, or where it is signed and the SYN was not, or the other way round (RFC 2385,
    /// RFC 5925).
    fn believes(&self, segment: Segment) -> bool {
        if !segment.changes_state() {
            return true;
        }
        let has_begun = self.known & Self::BEGUN != 0;
        !segment.is_corrupt && (!has_begun || segment.is_signed == (self.known & Self::SIGNED != 0))
    }

    fn next(&self, direction: usize) -> Option<u32> {
        (self.known & 1 << direction != 0).then_some(self.next[direction])
    }
    fn acknowledged(&self, direction: usize) -> Option<u32> {
        (self.known & 4 << direction != 0).then_some(self.acknowledged[direction])
    }

    /// Notes a segment. `is_open` says that the handshake is over, after which a SYN is not of this connection.
    fn note(&mut self, direction: usize, segment: Segment, is_open: bool) {
        // Later in the space of sequence numbers (RFC 9293, section 3.4).
        let is_later = |new: u32, old: Option<u32>| old.is_none_or(|old| new.wrapping_sub(old) as i32 > 0);
        let ends = u32::from(segment.has(flags::SYN)) + u32::from(segment.has(flags::FIN));
        let end = segment.sequence.wrapping_add(segment.len).wrapping_add(ends);
        let is_first = segment.has(flags::SYN) && !is_open;
        if is_first {
            self.known |= Self::BEGUN | if segment.is_signed { Self::SIGNED } else { 0 };
        }
        if is_first || !segment.has(flags::SYN) && is_later(end, self.next(direction)) {
            self.next[direction] = end;
            self.known |= 1 << direction;
        }
        let other = 1 - direction;
        if segment.has(flags::ACK) && (is_first || is_later(segment.acknowledgment, self.acknowledged(other)))
        {
            self.acknowledged[other] = segment.acknowledgment;
            self.known |= 4 << other;
        }
    }

    /// Whether the receiver of a RST takes it, as far as can be seen (RFC 5961, section 3.2).
    ///
    /// It takes the number that it expects. That is one from what it last acknowledged to what its peer has sent. Before
    /// it has heard of its peer, it takes a RST that acknowledges its SYN (RFC 9293, section 3.10.7.3).
    fn takes_reset(&self, direction: usize, segment: Segment) -> bool {
        match (self.acknowledged(direction), self.next(direction)) {
            (Some(first), Some(last)) => {
                let span = last.wrapping_sub(first);
                let is_between = span < 1 << 31 && segment.sequence.wrapping_sub(first) <= span;
                is_between || segment.sequence == first || segment.sequence == last
            }
            (Some(expected), None) | (None, Some(expected)) => segment.sequence == expected,
            (None, None) => {
                segment.has(flags::ACK) && self.next(1 - direction) == Some(segment.acknowledgment)
            }
        }
    }
}

/// The verdict of a connection's packets, where rules ask for the 5-tuple alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The edition of the rules; 0 for none.
    pub(crate) edition: u32,
    /// The slots from 1 of the rules that decided, by direction: they may differ. 0 stands for none.
    pub(crate) rules: [u32; 2],
}

/// A connection, under the canonical key of its packets.
///
/// Where a rule maps it, its answers have another key, under which a second entry leads here.
///
/// The fields that most packets need come first: with the key and the times of an entry, they fill one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Connection {
    /// The verdict of its packets.
    pub(crate) remembered: Remembered,
    /// Its sequence numbers, before a translation.
    pub(crate) sequences: Sequences,
    /// Whether this entry is only the way to the one under `origin`.
    pub(crate) is_alias: bool,
    /// How far it is.
    pub(crate) progress: Progress,
    /// TCP flags seen, by direction.
    pub(crate) seen: [u8; 2],
    /// The place from 1 in `rules` of the one that mapped it; 0 for none.
    pub(crate) mapped_by: u8,
    /// The same of the one that translates its sequence numbers.
    pub(crate) shifted_by: u8,
    /// Whether `origin` is the reverse of its canonical key.
    pub(crate) is_reversed: bool,
    /// The rules whose first match made it or joined it.
    pub(crate) rules: [RuleRef; RULES],
    /// The number that is added to sequence numbers of each direction; 0 without `shuffle`.
    pub(crate) shift: [u32; 2],
    /// The values of mapped fields beside addresses and ports.
    pub(crate) values: [u32; VALUES],
    /// Its packets' key, in the direction of the first.
    pub(crate) origin: FlowKey,
    /// The same as it leaves, after `map`.
    pub(crate) translated: FlowKey,
}

impl Connection {
    /// A connection of this first packet.
    pub(crate) fn new(origin: FlowKey) -> Self {
        Self {
            remembered: Remembered::default(),
            sequences: Sequences::default(),
            is_alias: false,
            progress: Progress::Opening,
            seen: [0; 2],
            mapped_by: 0,
            shifted_by: 0,
            is_reversed: origin.canonical() != origin,
            rules: [RuleRef::default(); RULES],
            shift: [0; 2],
            values: [0; VALUES],
            origin,
            translated: origin,
        }
    }

    /// The direction of a packet with this flow; `None` if it is not of this connection.
    pub(crate) fn direction(&self, flow: &FlowKey) -> Option<Direction> {
        if *flow == self.origin {
            Some(Direction::Forward)
        } else if *flow == self.translated.reversed() {
            Some(Direction::Reply)
        } else {
            None
        }
    }

    /// The key that a packet of this direction has behind the rewrite.
    pub(crate) fn after(&self, direction: Direction) -> FlowKey {
        match direction {
            Direction::Forward => self.translated,
            Direction::Reply => self.origin.reversed(),
        }
    }

    /// Whether a segment begins another connection of the same addresses and ports, since this one is closing.
    ///
    /// RFC 9293, section 3.6.1, has such a SYN accepted in TIME-WAIT.
    pub(crate) fn is_replaced_by(&self, segment: Option<Segment>) -> bool {
        self.progress == Progress::Closing
            && segment.is_some_and(|segment| segment.begins() && !segment.is_corrupt)
    }

    /// Notes a packet. `segment` is that of TCP.
    pub(crate) fn note(&mut self, direction: Direction, segment: Option<Segment>) {
        // Each side acknowledges the numbers that the other's have become.
        let shift = self.shift[1 - direction.index()];
        let back =
            |seen: Segment| Segment { acknowledgment: seen.acknowledgment.wrapping_sub(shift), ..seen };
        self.note_untranslated(direction, segment.map(back));
    }

    /// As [`note`](Self::note), of a segment with the numbers that its connection's ends count by.
    #[inline]
    pub(crate) fn note_untranslated(&mut self, direction: Direction, segment: Option<Segment>) {
        let at = direction.index();
        let Some(segment) = segment else {
            self.seen[at] |= flags::ACK;
            let is_answered = self.seen[0] != 0 && self.seen[1] != 0;
            self.progress = if is_answered { Progress::Open } else { Progress::Opening };
            return;
        };
        if !self.sequences.believes(segment) {
            return;
        }
        if segment.has(flags::RST) {
            if !self.sequences.takes_reset(at, segment) {
                // It ends nothing at its receiver, nor here.
                return;
            }
        } else {
            self.sequences.note(at, segment, self.progress == Progress::Open);
        }
        self.seen[at] |= segment.flags;
        let [forward, reply] = self.seen;
        self.progress = if (forward | reply) & flags::RST != 0 || forward & reply & flags::FIN != 0 {
            Progress::Closing
        } else if forward & reply & flags::ACK != 0 {
            // A SYN answered by a SYN, or a connection of which the middle was met.
            Progress::Open
        } else {
            Progress::Opening
        };
    }

    /// The place from 1 of a rule among those of this connection; 0 if it is none of them.
    pub(crate) fn place_of(&self, rule: RuleId) -> u8 {
        self.rules.iter().position(|known| known.slot != 0 && known.id == rule).map_or(0, |at| at as u8 + 1)
    }

    /// Finds its rules again, forgets those that are gone, and the translations that they gave.
    ///
    /// `find` answers a rule's slot, from 0. The result is whether a rule is left.
    #[inline]
    pub(crate) fn resolve(&mut self, find: impl Fn(RuleRef) -> Option<u32>) -> bool {
        let mut is_live = false;
        for place in 0..RULES {
            let rule = self.rules[place];
            if rule.slot == 0 {
                continue;
            }
            if let Some(slot) = find(rule) {
                self.rules[place].slot = slot + 1;
                is_live = true;
            } else {
                self.forget(place);
            }
        }
        is_live
    }

    #[cold]
    fn forget(&mut self, place: usize) {
        self.rules[place] = RuleRef::default();
        if usize::from(self.mapped_by) == place + 1 {
            (self.mapped_by, self.translated, self.values) = (0, self.origin, [0; VALUES]);
        }
        if usize::from(self.shifted_by) == place + 1 {
            (self.shifted_by, self.shift) = (0, [0; 2]);
        }
    }

    /// Adds a rule; its place from 1, or `None` where there is no room.
    pub(crate) fn join(&mut self, rule: RuleRef) -> Option<u8> {
        let free = self.rules.iter().position(|known| known.slot == 0)?;
        self.rules[free] = rule;
        // Its targets apply to packets of both directions from now on.
        self.remembered = Remembered::default();
        Some(free as u8 + 1)
    }
}

/// Time without a packet after which connections end, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// TCP connections whose handshake is over.
    pub(crate) tcp: u64,
    /// TCP connections that open or close.
    pub(crate) tcp_transitory: u64,
    /// UDP, ICMP echoes, and what has no states.
    pub(crate) other: u64,
}

impl Timeouts {
    /// The timeout of a connection.
    pub(crate) fn of(&self, connection: &Connection) -> u64 {
        self.at(connection.origin.protocol(), connection.progress)
    }

    /// The timeout of a connection of this protocol that is so far.
    #[inline]
    pub(crate) fn at(&self, protocol: u8, progress: Progress) -> u64 {
        match (protocol, progress) {
            (protocol::TCP, Progress::Open) => self.tcp,
            (protocol::TCP, _) => self.tcp_transitory,
            _ => self.other,
        }
    }
}

/// One part of a connection's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The sender's address.
    Source,
    /// The receiver's address.
    Destination,
    /// The sender's port.
    SourcePort,
    /// The receiver's port.
    DestinationPort,
    /// An ICMP echo's identifier, which stands for both ports.
    Identifier,
}

impl End {
    /// The part that a field is, by its name; `None` for other fields.
    pub(crate) fn of(field: &str) -> Option<Self> {
        match field {
            "ip-saddr" | "ip6-saddr" => Some(Self::Source),
            "ip-daddr" | "ip6-daddr" => Some(Self::Destination),
            "tcp-sport" | "udp-sport" => Some(Self::SourcePort),
            "tcp-dport" | "udp-dport" => Some(Self::DestinationPort),
            "icmp-id" | "icmp6-id" => Some(Self::Identifier),
            _ => None,
        }
    }
}

/// Whether a packet has a field of its connection: an identifier is one of an echo's alone.
pub(crate) fn has_field(field: FieldId, located: &Located, frame: &[u8]) -> bool {
    let info = field.info();
    let Some(at) = located.at(info.layer) else { return false };
    // RFC 792 and RFC 4443, section 4: echo and its reply.
    let is_echo = || frame.get(at).is_some_and(|kind| matches!(kind, 0 | 8 | 128 | 129));
    End::of(&info.name) != Some(End::Identifier) || is_echo()
}

/// A key with another value in this part.
pub(crate) fn with(flow: &FlowKey, end: End, value: u128) -> FlowKey {
    let (mut source, mut destination) = (flow.source(), flow.destination());
    let (mut from, mut to) = (flow.source_port(), flow.destination_port());
    let address = match flow.is_v6() {
        true => IpAddr::V6(Ipv6Addr::from_bits(value)),
        false => IpAddr::V4(Ipv4Addr::from_bits(value as u32)),
    };
    match end {
        End::Source => source = address,
        End::Destination => destination = address,
        End::SourcePort => from = value as u16,
        End::DestinationPort => to = value as u16,
        End::Identifier => (from, to) = (value as u16, value as u16),
    }
    FlowKey::new(source, destination, from, to, flow.protocol())
}

impl Encode for Connection {
    const SIZE: usize = RULES * 12 + 40 + 40 + 7 + 32;
    const VERSION: u16 = 3;

    fn encode(&self, to: &mut [u8]) {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        for RuleRef { slot, id } in self.rules {
            bytes.extend(slot.to_be_bytes());
            bytes.extend(id.bits().to_be_bytes());
        }
        for word in self.origin.words().into_iter().chain(self.translated.words()) {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([self.is_alias.into(), self.progress as u8, self.seen[0], self.seen[1]]);
        bytes.extend([self.mapped_by, self.shifted_by, self.sequences.known]);
        let Sequences { next, acknowledged, .. } = self.sequences;
        for number in [self.values, self.shift, next, acknowledged].into_iter().flatten() {
            bytes.extend(number.to_be_bytes());
        }
        to.copy_from_slice(&bytes);
    }

    fn decode(from: &[u8]) -> Option<Self> {
        let mut rest = from;
        let mut take = |count: usize| {
            let (first, behind) = rest.split_at_checked(count)?;
            rest = behind;
            Some(first.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
        };
        let mut rules = [RuleRef::default(); RULES];
        for rule in &mut rules {
            *rule = RuleRef { slot: take(4)? as u32, id: RuleId::of(take(8)?) };
            if (rule.slot == 0) != (rule.id == RuleId::NONE) {
                return None;
            }
        }
        let mut keys = [[0u64; 5]; 2];
        for key in &mut keys {
            for word in key.iter_mut() {
                *word = take(8)?;
            }
        }
        let [origin, translated] = [FlowKey::try_from_words(keys[0])?, FlowKey::try_from_words(keys[1])?];
        let is_alias = match take(1)? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let progress = match take(1)? {
            0 => Progress::Opening,
            1 => Progress::Open,
            2 => Progress::Closing,
            _ => return None,
        };
        let seen = [take(1)? as u8, take(1)? as u8];
        let [mapped_by, shifted_by] = [take(1)? as u8, take(1)? as u8];
        let known = take(1)? as u8;
        if usize::from(mapped_by.max(shifted_by)) > RULES || known > 0x3f {
            return None;
        }
        let mut pair = || Some([take(4)? as u32, take(4)? as u32]);
        let (values, shift) = (pair()?, pair()?);
        let sequences = Sequences { next: pair()?, acknowledged: pair()?, known };
        // What other rules decided is not taken over.
        let remembered = Remembered::default();
        Some(Self {
            remembered,
            sequences,
            is_alias,
            progress,
            seen,
            mapped_by,
            shifted_by,
            is_reversed: origin.canonical() != origin,
            rules,
            shift,
            values,
            origin,
            translated,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: Direction = Direction::Forward;
    const REPLY: Direction = Direction::Reply;

    fn flow() -> FlowKey {
        FlowKey::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 40_000, 80, 6)
    }

    fn segment(flags: u8, sequence: u32, acknowledgment: u32, len: u32) -> Option<Segment> {
        Some(Segment { flags, sequence, acknowledgment, len, ..Segment::default() })
    }

    /// A connection whose client is at 101 and whose server is at 501.
    fn open() -> Connection {
        let mut connection = Connection::new(flow());
        connection.note(FORWARD, segment(flags::SYN, 100, 0, 0));
        connection.note(REPLY, segment(flags::SYN | flags::ACK, 500, 101, 0));
        connection.note(FORWARD, segment(flags::ACK, 101, 501, 0));
        assert_eq!(connection.progress, Progress::Open);
        connection
    }

    #[test]
    fn a_connection_survives_its_bytes() {
        let mut connection = Connection::new(flow());
        connection.translated = with(&flow(), End::Source, 0xcb00_7107);
        connection.rules[1] = RuleRef { slot: 7, id: RuleId::of(3 << 40 | 5) };
        (connection.mapped_by, connection.shift) = (2, [1, u32::MAX]);
        connection.note(FORWARD, segment(flags::SYN, 7, 0, 0));
        let mut bytes = [0; Connection::SIZE];
        connection.encode(&mut bytes);
        assert_eq!(Connection::decode(&bytes), Some(connection));
        for (at, wrong) in [(0, 2), (1, 3), (4, 5), (5, 5), (6, 0x40)] {
            let mut bytes = bytes;
            bytes[RULES * 12 + 80 + at] = wrong;
            assert_eq!(Connection::decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn answers_are_of_the_translated_tuple() {
        let mut connection = Connection::new(flow());
        connection.translated = with(&flow(), End::Source, 0xcb00_7107);
        assert_eq!(connection.direction(&flow()), Some(FORWARD));
        assert_eq!(connection.direction(&flow().reversed()), None);
        let answer = connection.translated.reversed();
        assert_eq!(connection.direction(&answer), Some(REPLY));
        assert_eq!(connection.after(REPLY), flow().reversed());
    }

    #[test]
    fn tcp_opens_by_its_handshake_and_closes_by_both_fins_or_a_reset() {
        let mut connection = open();
        connection.note(FORWARD, segment(flags::FIN | flags::ACK, 101, 501, 0));
        assert_eq!(connection.progress, Progress::Open, "one side may go on");
        connection.note(REPLY, segment(flags::FIN | flags::ACK, 501, 102, 0));
        assert_eq!(connection.progress, Progress::Closing);
        let mut connection = Connection::new(flow());
        connection.note(FORWARD, segment(flags::ACK, 7, 9, 0));
        connection.note(REPLY, segment(flags::ACK, 9, 7, 0));
        assert_eq!(connection.progress, Progress::Open, "met in its middle");
        connection.note(REPLY, segment(flags::RST, 9, 0, 0));
        assert_eq!(connection.progress, Progress::Closing);
    }

    /// RFC 5961, section 3.2: only the number that the receiver expects resets; others are challenged, or ignored.
    #[test]
    fn a_reset_counts_where_its_receiver_takes_it() {
        let mut connection = open();
        // Ten octets are on their way to the server, which has acknowledged none of them.
        connection.note(FORWARD, segment(flags::ACK, 101, 501, 10));
        for (direction, sequence, is_taken) in [
            (FORWARD, 101, true),
            (FORWARD, 106, true),
            (FORWARD, 111, true),
            (FORWARD, 100, false),
            (FORWARD, 112, false),
            (FORWARD, 0, false),
            (REPLY, 501, true),
            (REPLY, 502, false),
            (REPLY, 0x8000_0000, false),
        ] {
            let mut connection = connection;
            connection.note(direction, segment(flags::RST | flags::ACK, sequence, 0, 0));
            let progress = if is_taken { Progress::Closing } else { Progress::Open };
            assert_eq!(connection.progress, progress, "{direction:?} {sequence}");
        }
    }

    /// RFC 9293, section 3.10.7.3: a server that is not there refuses a SYN by its acknowledgment.
    #[test]
    fn a_refused_syn_is_known_by_its_acknowledgment() {
        for (acknowledgment, progress) in [(101, Progress::Closing), (100, Progress::Opening)] {
            let mut connection = Connection::new(flow());
            connection.note(FORWARD, segment(flags::SYN, 100, 0, 0));
            connection.note(REPLY, segment(flags::RST | flags::ACK, 0, acknowledgment, 0));
            assert_eq!(connection.progress, progress, "{acknowledgment}");
        }
    }

    #[test]
    fn acknowledgments_of_translated_numbers_are_those_of_their_senders() {
        let mut connection = Connection::new(flow());
        connection.shift = [1_000, 0];
        connection.note(FORWARD, segment(flags::SYN, 100, 0, 0));
        connection.note(REPLY, segment(flags::RST | flags::ACK, 0, 1_101, 0));
        assert_eq!(connection.progress, Progress::Closing);
    }

    #[test]
    fn a_syn_replaces_a_connection_that_is_closing() {
        let syn = segment(flags::SYN, 9_000, 0, 0);
        let mut connection = open();
        assert!(!connection.is_replaced_by(syn), "an open one is challenged (RFC 5961, section 4.2)");
        connection.note(REPLY, segment(flags::RST, 501, 0, 0));
        assert!(connection.is_replaced_by(syn));
        for flags in [flags::ACK, flags::SYN | flags::ACK, flags::SYN | flags::FIN, flags::RST] {
            assert!(!connection.is_replaced_by(segment(flags, 9_000, 0, 0)), "{flags:#x}");
        }
    }

    #[test]
    fn a_translation_goes_with_the_rule_that_gave_it() {
        let mut connection = Connection::new(flow());
        let rules = [5, 6].map(|id| RuleRef { slot: id, id: RuleId::of(id.into()) });
        for (at, rule) in rules.into_iter().enumerate() {
            assert_eq!(connection.join(rule), Some(at as u8 + 1));
        }
        connection.translated = with(&flow(), End::Source, 0xcb00_7107);
        (connection.mapped_by, connection.shifted_by, connection.shift) = (2, 1, [3, 4]);
        let mut all = connection;
        assert!(all.resolve(|rule| Some(rule.slot + 10)));
        assert_eq!((all.translated, all.rules[0].slot, all.rules[1].slot), (connection.translated, 16, 17));
        assert!(connection.resolve(|rule| (rule.id == RuleId::of(5)).then_some(8)));
        assert_eq!((connection.translated, connection.mapped_by, connection.shift), (flow(), 0, [3, 4]));
        assert_eq!((connection.place_of(RuleId::of(5)), connection.place_of(RuleId::of(6))), (1, 0));
        assert!(!connection.resolve(|_| None));
        assert_eq!(connection, Connection::new(flow()));
    }
}
