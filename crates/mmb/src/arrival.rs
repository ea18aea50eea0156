//! A packet as connections see it: as it arrived, since rules before the stateful ones may change it.

use netbricks_core::buffer::Bytes;
use netbricks_core::packet::{FlowKey, IpRef};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Table};
use netbricks_core::{BuildError, StoredFlow, TableKey, Worker};

use crate::connection::Segment;
use crate::field::Layer;
use crate::key::Located;
use crate::tcp_options::walk;

/// Packets in fragments that a worker remembers.
const PACKETS: usize = 4_096;
/// After this time (ns) without a fragment, a packet is forgotten (RFC 8200, section 4.5).
const TIMEOUT: u64 = 60_000_000_000;

/// The first fragment of a packet, which alone has ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// Its flow, of which all fragments are.
    pub(crate) flow: FlowKey,
    /// Whether a rule dropped it.
    pub(crate) is_dropped: bool,
}

/// The first fragments of packets, by addresses, protocol and identification (RFC 791, section 3.2).
///
/// There is no table in a node that cannot be built.
pub(crate) struct Fragments(Option<FlowTable<StoredFlow, First>>);

impl Fragments {
    /// Room for them; the building of the worker's node fails where there is no memory.
    pub(crate) fn new(worker: &Worker) -> Self {
        let (capacity, idle_timeout) = (PACKETS, Some(TIMEOUT));
        let config = FlowTableConfig { capacity, idle_timeout, full: Full::EvictOldest, seed: worker.seed() };
        let table = FlowTable::new(config).map_err(|error| {
            worker.fail(BuildError::new(format_args!("first fragments of packets: {error}")));
        });
        Self(table.ok())
    }

    fn known(&mut self, key: FlowKey, now: u64) -> Option<First> {
        match self.0.as_mut()?.lookup(key.store(), now) {
            Entry::Found(found) => Some(*found.get()),
            Entry::Vacant(_) | Entry::Full => None,
        }
    }

    /// Notes the first fragment of a packet.
    pub(crate) fn learn(&mut self, key: FlowKey, first: First, now: u64) {
        match self.0.as_mut().map(|table| table.lookup(key.store(), now)) {
            Some(Entry::Found(mut found)) => *found.get_mut() = first,
            Some(Entry::Vacant(vacant)) => drop(vacant.replace(first)),
            Some(Entry::Full) | None => {}
        }
    }
}

/// The part of a packet that a frame has.
#[derive(Clone, Copy, Default)]
pub(crate) enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The first fragment, with the key of all.
    First(FlowKey),
    /// A later one, with what is known of the first.
    Later(Option<First>),
}

/// A packet as connections see it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// Its flow, or the one that it is an error about; known where some rule asks for flows.
    pub(crate) flow: Option<FlowKey>,
    /// The numbers and flags of a TCP segment.
    pub(crate) segment: Option<Segment>,
    /// Whether it is an ICMP error.
    pub(crate) is_error: bool,
    /// The part of its packet that it is.
    pub(crate) part: Part,
}

impl Arrival {
    /// A packet in a frame.
    #[inline]
    pub(crate) fn of(located: &Located, bytes: &Bytes<'_>, fragments: &mut Fragments, now: u64) -> Self {
        let frame = bytes.data();
        let Some((ip, payload)) = located.ip(frame) else { return Self::default() };
        let segment = segment(located, bytes);
        let is_error = is_error(located, frame);
        if !ip.is_fragment() {
            let own = || FlowKey::of(ip, payload);
            let flow = if is_error { FlowKey::quoted(ip, payload).unwrap_or_else(own) } else { own() };
            return Self { flow: Some(flow), segment, is_error, part: Part::Whole };
        }
        let own = FlowKey::of(ip, payload);
        let key = key(ip, &own);
        let (flow, part) = if located.is_later_fragment {
            let first = fragments.known(key, now);
            (first.map_or_else(|| own.portless(), |first| first.flow), Part::Later(first))
        } else {
            (own, Part::First(key))
        };
        Self { flow: Some(flow), segment, is_error, part }
    }

    /// The flow of its connection; a later fragment without a first has none.
    pub(crate) fn connects(&self) -> Option<FlowKey> {
        if matches!(self.part, Part::Later(None)) { None } else { self.flow }
    }
    /// Whether it is a fragment other than the first.
    pub(crate) fn is_later(&self) -> bool {
        matches!(self.part, Part::Later(_))
    }
    /// Whether it is a later fragment whose first did not pass: its packet is not known.
    pub(crate) fn is_stray(&self) -> bool {
        matches!(self.part, Part::Later(first) if first.is_none_or(|first| first.is_dropped))
    }
}

/// The key of a packet's fragments. IPv6 has the protocol behind headers that only the first fragment need have.
fn key(ip: IpRef<'_>, own: &FlowKey) -> FlowKey {
    let (identification, protocol) = match ip {
        IpRef::V4(header) => (u32::from(header.identification()), own.protocol()),
        IpRef::V6(header) => (header.identification().unwrap_or(0), 0),
    };
    let [high, low] = [(identification >> 16) as u16, identification as u16];
    FlowKey::new(own.source(), own.destination(), high, low, protocol)
}

fn segment(located: &Located, bytes: &Bytes<'_>) -> Option<Segment> {
    let (at, frame) = (located.at(Layer::Tcp)?, bytes.data());
    let header = frame.get(at..)?.first_chunk::<20>()?;
    let mut segment = Segment::read(header, located.payload(Layer::Tcp).map_or(0, |payload| payload.len()));
    if segment.changes_state() {
        let options = frame.get(located.tcp_options()).unwrap_or_default();
        segment.is_signed = is_signed(options);
        let is_known = bytes.missing() == 0 && !bytes.offload().needs_checksum;
        segment.is_corrupt = is_known
            && located
                .ip(frame)
                .is_some_and(|(ip, payload)| ip.transport_checksum_is_valid(payload) == Some(false));
    }
    Some(segment)
}

/// Whether TCP options have RFC 2385's MD5 signature or RFC 5925's authentication option.
pub(crate) fn is_signed(options: &[u8]) -> bool {
    walk(options).any(|(kind, _)| matches!(kind, 19 | 29))
}

/// Whether a packet is an ICMP or ICMPv6 error, which quotes another.
fn is_error(located: &Located, frame: &[u8]) -> bool {
    let kind = |layer| located.at(layer).and_then(|at| frame.get(at).copied());
    match (kind(Layer::Icmp), kind(Layer::Icmpv6)) {
        (Some(kind), _) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        (_, Some(kind)) => kind < 128,
        _ => false,
    }
}
