//! Packets of known flows under rules that ask for the 5-tuple alone: their verdict is remembered.
//!
//! It is kept with the connection, or, where no rule is stateful, in a cache of flows. Most packets of a middlebox are of
//! that kind. They need neither their layers nor the classifier.

use std::sync::atomic::{AtomicU32, Ordering};

use netbricks_core::StoredFlow;
use netbricks_core::TableKey;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::{Asked, Entry, FlowTable, FlowTableConfig, FlowTicket, Full, Table};

use crate::connection::{Connection, Direction, Remembered, Segment, Timeouts};
use crate::field::{FieldId, Kind, Layer};
use crate::rule::Mode;
use crate::rules::{Rules, Slot};

/// The connections of a worker.
pub(crate) type Connections = FlowTable<StoredFlow, Connection>;
/// The key of an IPv4 flow in the table of connections.
pub(crate) type ShortKey = <Connections as Table>::Short;

/// Where IPv4's header begins in a plain packet, and where TCP's or UDP's does.
const IP: usize = 14;
const TRANSPORT: usize = IP + 20;

/// The number of the next edition.
///
/// Two engines of a process have none in common, nor have two versions of an engine's rules.
static EDITIONS: AtomicU32 = AtomicU32::new(1);

/// One state of the rules, as a worker knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Edition {
    version: Option<u64>,
    number: u32,
    /// Whether the 5-tuple decides which rules a plain packet meets.
    pub(crate) is_by_flow: bool,
}

impl Edition {
    /// Takes note of the rules as they are now.
    #[inline]
    pub(crate) fn update(&mut self, rules: &Rules) {
        if self.version != Some(rules.version) {
            self.renew(rules);
        }
    }

    #[cold]
    fn renew(&mut self, rules: &Rules) {
        // 0 stands for none.
        let number =
            std::iter::repeat_with(|| EDITIONS.fetch_add(1, Ordering::Relaxed)).find(|number| *number != 0);
        *self = Self {
            version: Some(rules.version),
            number: number.unwrap_or(1),
            is_by_flow: rules.mode == Mode::Ordered && rules.tested_fields().all(is_of_flow),
        };
    }
}

/// Whether all plain packets of a flow have the same value in a field.
fn is_of_flow(field: Option<FieldId>) -> bool {
    let Some(info) = field.map(FieldId::info) else { return false };
    if matches!(info.kind, Kind::All | Kind::NetworkProtocol) {
        return true;
    }
    let within = |ranges: &[(u16, u16)]| match info.kind {
        Kind::Bits { bit, bits } => ranges.iter().any(|(from, to)| *from <= bit && bit + bits <= *to),
        _ => false,
    };
    match info.layer {
        // Version and header length; the protocol; the addresses (RFC 791, section 3.1).
        Layer::Ipv4 => within(&[(0, 8), (72, 80), (96, 160)]),
        Layer::Tcp | Layer::Udp => within(&[(0, 32)]),
        Layer::Frame | Layer::Ethernet | Layer::Vxlan | Layer::Geneve | Layer::Gtpu => false,
        // A plain packet has no other layer.
        _ => true,
    }
}

/// The flow of a plain packet: TCP or UDP with a whole header in IPv4 without options, directly behind Ethernet.
#[inline(always)]
pub(crate) fn plain_flow(packet: &Packet) -> Option<FlowKey> {
    let data = packet.data();
    let flow = FlowKey::plain_from_frame(data)?;
    if packet.missing() != 0 || packet.is_length_unstated() {
        return None;
    }
    let payload = data.get(TRANSPORT..end(data))?;
    let is_whole = match flow.protocol() {
        protocol::TCP => {
            let header = payload.first_chunk::<20>()?;
            (20..=payload.len()).contains(&header_length(header))
        }
        // A tunnel's header follows behind some ports, if the packet is long enough.
        protocol::UDP => payload.len() >= 8 && !matches!(flow.destination_port(), 2152 | 4789 | 6081),
        _ => false,
    };
    is_whole.then_some(flow)
}

/// The end of a plain packet, by its total length.
#[inline(always)]
fn end(data: &[u8]) -> usize {
    match data.get(IP + 2..IP + 4) {
        Some(&[high, low]) => IP + usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    }
}

/// Bytes of a TCP header, by its data offset.
#[inline(always)]
fn header_length(header: &[u8; 20]) -> usize {
    usize::from(header[12] >> 4) * 4
}

/// The numbers and flags of a plain packet's TCP segment.
#[inline(always)]
fn segment(data: &[u8]) -> Option<Segment> {
    let header = data.get(TRANSPORT..)?.first_chunk::<20>()?;
    let len = end(data).saturating_sub(TRANSPORT + header_length(header));
    Some(Segment::read(header, len))
}

/// The key of an IPv4 flow, which has no other part.
pub(crate) struct Short(pub(crate) ShortKey);

impl Asked<StoredFlow> for Short {
    #[inline(always)]
    fn key(&self) -> Option<StoredFlow> {
        Some(Connections::lengthen(self.0))
    }
    #[inline(always)]
    fn long(&self) -> Option<&StoredFlow> {
        None
    }
}

/// A plain packet whose connection seems to be known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) key: ShortKey,
    pub(crate) ticket: FlowTicket,
    /// Whether the packet's flow is the reverse of the key.
    pub(crate) is_reversed: bool,
}

impl Known {
    /// Notes the packet with its connection, if that remembers a verdict; the rule that decides, and the direction.
    ///
    /// Where it answers nothing, nothing has changed but the connection's time.
    #[inline]
    pub(crate) fn decide<'r>(
        &self,
        (edition, rules): (&Edition, &'r Rules),
        table: &mut Connections,
        timeouts: &Timeouts,
        data: &[u8],
    ) -> Option<(&'r Slot, Direction)> {
        let Entry::Found(mut entry) = table.resolve_here(self.key, self.ticket)? else { return None };
        let connection = entry.get_mut();
        let is_forward = self.is_reversed == connection.is_reversed;
        let direction = if is_forward { Direction::Forward } else { Direction::Reply };
        let remembered = connection.remembered;
        if remembered.edition != edition.number {
            return None;
        }
        let rule = rules.slot(remembered.rules[direction.index()].checked_sub(1)?)?;
        // Of the key alone: the connection's own lies in another cache line.
        let protocol = Connections::lengthen(self.key);
        let protocol = FlowKey::restore(protocol).protocol();
        let segment = if protocol == protocol::TCP { segment(data) } else { None };
        // What begins or ends a connection is looked at in full.
        if segment.is_some_and(Segment::changes_state) {
            return None;
        }
        let before = connection.progress;
        connection.note_untranslated(direction, segment);
        let after = connection.progress;
        if before != after {
            entry.set_timeout(timeouts.at(protocol, after));
        }
        Some((rule, direction))
    }
}

impl Edition {
    /// Has a connection remember the rule that decided about a plain packet of this direction, the first that it met.
    pub(crate) fn remember(&self, connection: &mut Connection, direction: Direction, rule: u32) {
        if connection.remembered.edition != self.number {
            connection.remembered = Remembered { edition: self.number, rules: [0; 2] };
        }
        connection.remembered.rules[direction.index()] = rule + 1;
    }
}

/// Windows for which a cache that hits too little stays off.
///
/// A window is as many lookups as it has places.
const OFF: u32 = 30;

/// A verdict, and the slot of the rule that gave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged(u32);

impl Judged {
    const PASSES: u32 = 1 << 31;
    const BY_POLICY: u32 = Self::PASSES - 1;

    /// The verdict of this rule, or of the policy.
    pub(crate) fn new(passes: bool, rule: Option<u32>) -> Self {
        Self(rule.unwrap_or(Self::BY_POLICY) | if passes { Self::PASSES } else { 0 })
    }
    #[inline(always)]
    pub(crate) fn passes(self) -> bool {
        self.0 & Self::PASSES != 0
    }
    /// The rule; `None` for the policy.
    #[inline(always)]
    pub(crate) fn rule(self) -> Option<u32> {
        let rule = self.0 & !Self::PASSES;
        (rule != Self::BY_POLICY).then_some(rule)
    }
}

/// A verdict about a flow, and the edition in which it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    edition: u32,
    judged: Judged,
}

type Flows = FlowTable<StoredFlow, Verdict>;

/// The verdicts of recent flows, where no rule is stateful.
///
/// Nothing depends on it but time. Where fewer than half of the lookups hit, as while every header is new, it stays off
/// for a while.
pub(crate) struct Verdicts {
    capacity: usize,
    table: Option<Flows>,
    asked: usize,
    hits: usize,
    /// Windows for which it stays off.
    off: u32,
    /// Whether the window is the first since it was turned on, which fills it and is not judged.
    is_filling: bool,
}

impl Verdicts {
    /// A cache for so many flows; 0 is none.
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        let config = FlowTableConfig { full: Full::EvictOldest, seed, ..FlowTableConfig::new(capacity) };
        // Without memory the classifier is asked.
        let table = if capacity > 0 { FlowTable::new(config).ok() } else { None };
        Self { capacity, table, asked: 0, hits: 0, off: 0, is_filling: true }
    }

    /// Whether it is asked at present.
    pub(crate) fn is_on(&self) -> bool {
        self.off == 0 && self.table.is_some()
    }

    /// The table for so many lookups more; `None` while it is off.
    #[inline]
    pub(crate) fn begin(&mut self, packets: usize) -> Option<&mut Flows> {
        self.asked += packets;
        if self.asked > self.capacity {
            self.end_window();
        }
        if self.off > 0 { None } else { self.table.as_mut() }
    }

    #[cold]
    fn end_window(&mut self) {
        if self.off > 0 {
            self.off -= 1;
            self.is_filling = true;
        } else if !std::mem::take(&mut self.is_filling) && self.hits < self.asked / 2 {
            self.off = OFF;
        }
        (self.asked, self.hits) = (0, 0);
    }

    /// The verdict of a plain packet; `None` where that is not known.
    #[inline]
    pub(crate) fn get(&mut self, edition: &Edition, known: &Known) -> Option<Judged> {
        let Entry::Found(entry) = self.table.as_mut()?.resolve_here(known.key, known.ticket)? else {
            return None;
        };
        let verdict = *entry.get();
        if verdict.edition != edition.number {
            return None;
        }
        self.hits += 1;
        Some(verdict.judged)
    }

    /// Remembers the verdict of a plain packet.
    pub(crate) fn put(&mut self, edition: &Edition, flow: FlowKey, judged: Judged) {
        if self.off > 0 {
            return;
        }
        let Some(table) = &mut self.table else { return };
        let verdict = Verdict { edition: edition.number, judged };
        match table.lookup(flow.store(), 0) {
            Entry::Found(mut known) => *known.get_mut() = verdict,
            Entry::Vacant(vacant) => drop(vacant.replace(verdict)),
            Entry::Full => {}
        }
    }
}

/// Whether a connection may remember verdicts: its packets leave as they came.
pub(crate) fn may_remember(connection: &Connection) -> bool {
    !connection.is_alias && connection.mapped_by == 0 && connection.shifted_by == 0
}
