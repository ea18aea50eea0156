//! The record of a conversation: both directions of a flow, with times, TCP flags and the handshake's round trips.

use netbricks_core::packet::FlowKey;
use netbricks_core::packet::tcp::flags;
use netbricks_core::shuffle::ShuffleKey;
use netbricks_core::tables::Encode;
use netbricks_core::{StoredFlow, TableKey};

/// The key of both directions of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationKey(pub FlowKey);

impl ConversationKey {
    /// The key of a packet's conversation, and whether the packet goes against the key's direction.
    #[inline(always)]
    pub fn of(flow: FlowKey) -> (Self, bool) {
        let canonical = flow.canonical();
        (Self(canonical), canonical != flow)
    }
}

impl TableKey for ConversationKey {
    type Stored = StoredFlow;
    const PORTS: bool = true;
    #[inline(always)]
    fn store(self) -> StoredFlow {
        self.0.store()
    }
    fn restore(stored: StoredFlow) -> Self {
        Self(FlowKey::restore(stored))
    }
    /// Both directions come to one worker only where packets are sorted by symmetric flow.
    fn spread(self, by: ShuffleKey, hash: &netbricks_core::packet::HashKey) -> Option<u64> {
        if Self::follows(by) { self.0.spread(by, hash) } else { None }
    }
    fn follows(by: ShuffleKey) -> bool {
        by == ShuffleKey::SymmetricFlow
    }
}

/// One direction of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Bytes of the IP packets.
    pub octets: u64,
    /// When its first packet came (ns); meaningless without packets.
    pub first: u64,
    /// When its last packet came (ns).
    pub last: u64,
    /// All TCP flags that were set.
    pub flags: u8,
    /// The type of service field of its first packet: DSCP and ECN.
    pub tos: u8,
    /// ICMP type and code of its first packet; 0 for other protocols.
    pub icmp: u16,
}

/// A packet, as a conversation counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// When it came (ns).
    pub now: u64,
    /// Bytes of its frame.
    pub bytes: u64,
    /// Bytes of the IP packet.
    pub octets: u64,
    /// Its TCP flags; 0 for other protocols.
    pub flags: u8,
    /// Its type of service field.
    pub tos: u8,
    /// Its ICMP type and code; 0 for other protocols.
    pub icmp: u16,
}

impl Direction {
    fn count(&mut self, packet: &Seen) {
        if self.packets == 0 {
            (self.first, self.tos, self.icmp) = (packet.now, packet.tos, packet.icmp);
        }
        self.packets += 1;
        self.bytes += packet.bytes;
        self.octets += packet.octets;
        self.last = self.last.max(packet.now);
        self.flags |= packet.flags;
    }
}

/// Both directions of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// From the side that sent the first packet.
    pub there: Direction,
    /// From the other side.
    pub back: Direction,
    /// Whether the first packet went against the direction of the key.
    pub is_reversed: bool,
    /// The packets and octets of the two directions that were reported before.
    pub reported: [(u64, u64); 2],
    /// When it was last reported, or began (ns).
    pub since: u64,
    /// The round trip to the responder and back (ns): SYN to SYN and ACK; 0 if not seen.
    pub responder_rtt: u64,
    /// The round trip to the initiator and back (ns): SYN and ACK to ACK; 0 if not seen.
    pub initiator_rtt: u64,
}

impl Conversation {
    /// A conversation that begins with this packet, which may go against the key's direction.
    pub fn begin(is_reversed: bool, packet: &Seen) -> Self {
        let mut begun = Self { is_reversed, since: packet.now, ..Self::default() };
        begun.there.count(packet);
        begun
    }

    /// Counts a packet, which may go against the key's direction.
    pub fn count(&mut self, is_reversed: bool, packet: &Seen) {
        let is_back = is_reversed != self.is_reversed;
        self.time_handshake(is_back, packet);
        if is_back { self.back.count(packet) } else { self.there.count(packet) }
    }

    /// Measures the handshake. A SYN that is sent again leaves it open which one was answered (Karn's rule).
    fn time_handshake(&mut self, is_back: bool, packet: &Seen) {
        const BOTH: u8 = flags::SYN | flags::ACK;
        match (is_back, packet.flags & (BOTH | flags::RST)) {
            (true, BOTH)
                if self.back.packets == 0 && self.there.packets == 1 && self.there.flags == flags::SYN =>
            {
                self.responder_rtt = packet.now - self.there.first.min(packet.now);
            }
            (false, flags::ACK)
                if self.there.packets == 1 && self.back.packets == 1 && self.responder_rtt > 0 =>
            {
                self.initiator_rtt = packet.now - self.back.first.min(packet.now);
            }
            _ => {}
        }
    }

    /// When its last packet came (ns).
    pub fn last(&self) -> u64 {
        self.there.last.max(self.back.last)
    }

    /// Whether its connection has ended: by a reset, or by both sides.
    pub fn has_ended(&self) -> bool {
        let [there, back] = [self.there.flags, self.back.flags];
        (there | back) & flags::RST != 0 || there & back & flags::FIN != 0
    }

    /// Whether a packet begins another connection, with the addresses and ports of this one, which has ended.
    pub fn is_followed_by(&self, packet: &Seen) -> bool {
        self.has_ended() && packet.flags & (flags::SYN | flags::ACK) == flags::SYN
    }

    /// The flow in the direction of the first packet.
    pub fn flow(&self, key: FlowKey) -> FlowKey {
        if self.is_reversed { key.reversed() } else { key }
    }

    /// Whether packets came that were not reported.
    pub fn has_news(&self) -> bool {
        [self.there.packets, self.back.packets] != self.reported.map(|(packets, _)| packets)
    }

    /// Notes that all so far was reported.
    pub fn report(&mut self, now: u64) {
        self.reported = [&self.there, &self.back].map(|direction| (direction.packets, direction.octets));
        self.since = now;
    }
}

impl Direction {
    const SIZE: usize = 5 * 8 + 4;

    fn encode(&self, to: &mut [u8]) {
        let numbers = [self.packets, self.bytes, self.octets, self.first, self.last];
        (numbers, self.flags, self.tos, self.icmp).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let ([packets, bytes, octets, first, last], flags, tos, icmp) =
            <([u64; 5], u8, u8, u16)>::decode(from)?;
        Some(Self { packets, bytes, octets, first, last, flags, tos, icmp })
    }
}

impl Encode for Conversation {
    const SIZE: usize = 2 * Direction::SIZE + 7 * 8 + 1;
    const VERSION: u16 = 1;
    fn encode(&self, to: &mut [u8]) {
        let (there, rest) = to.split_at_mut(Direction::SIZE);
        let (back, rest) = rest.split_at_mut(Direction::SIZE);
        self.there.encode(there);
        self.back.encode(back);
        let [(a, b), (c, d)] = self.reported;
        ([a, b, c, d, self.since, self.responder_rtt, self.initiator_rtt], self.is_reversed).encode(rest);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let (there, rest) = from.split_at_checked(Direction::SIZE)?;
        let (back, rest) = rest.split_at_checked(Direction::SIZE)?;
        let ([a, b, c, d, since, responder_rtt, initiator_rtt], is_reversed) =
            <([u64; 7], bool)>::decode(rest)?;
        let (there, back) = (Direction::decode(there)?, Direction::decode(back)?);
        Some(Self {
            there,
            back,
            is_reversed,
            reported: [(a, b), (c, d)],
            since,
            responder_rtt,
            initiator_rtt,
        })
    }
}

/// The TCP flags of a record as letters: `SA.F`-like, in the order of the header.
pub(super) fn letters(set: u8) -> String {
    let names = [
        (flags::FIN, 'F'),
        (flags::SYN, 'S'),
        (flags::RST, 'R'),
        (flags::PSH, 'P'),
        (flags::ACK, 'A'),
        (flags::URG, 'U'),
        (flags::ECE, 'E'),
        (flags::CWR, 'C'),
    ];
    names.into_iter().filter(|(flag, _)| set & flag != 0).map(|(_, letter)| letter).collect()
}
