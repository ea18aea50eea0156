//! Looks for rules in packets and streams, and decides on the packets.

use std::collections::BTreeMap;

use netbricks_core::packet::tcp::TcpRef;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, IpRef, protocol};
use netbricks_core::tables::{Entry, Table};
use netbricks_core::{Counter, EventLog, Flows, State, TableKey};
use netbricks_stream::{End, Side, Why, Window};

use super::alert::Alert;
use super::evaluate::{Data, Outcome, Scratch};
use super::group::Searcher;
use super::language::{Action, Field, Number};
use super::live::Current;
use super::set::{RuleSet, Signature};
use super::stream::Reading;
use super::thresholds::{self, Thresholds};

/// The memory of a flow: marks, and flowbits.
pub(super) type Remembered = (u64, u64);

/// The client sends in the direction of the canonical key.
const CLIENT_IS_CANONICAL: u64 = 1;
const CLIENT_SPOKE: u64 = 2;
const SERVER_SPOKE: u64 = 4;
/// A segment of TCP that only an open connection has.
const OPEN: u64 = 8;
/// The rest passes without being looked at.
const PASSES: u64 = 16;
/// The rest is dropped.
const DROPPED: u64 = 32;

/// The fields of a packet that rules ask for beside its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) flow: FlowKey,
    pub(super) now: u64,
    /// Flags, sequence number, acknowledgment number and window of TCP.
    pub(super) tcp: Option<(u8, u32, u32, u16)>,
    /// Type and code of ICMP.
    pub(super) icmp: Option<(u8, u8)>,
    pub(super) ttl: u8,
    pub(super) identification: Option<u32>,
}

impl Fields {
    /// The fields of a packet with this IP header.
    pub(super) fn of(ip: IpRef<'_>, flow: FlowKey, now: u64) -> Self {
        let identification = match ip {
            IpRef::V4(ip) => Some(u32::from(ip.identification())),
            IpRef::V6(ip) => ip.identification(),
        };
        Self { flow, now, tcp: None, icmp: None, ttl: ip.ttl(), identification }
    }

    /// With those of TCP.
    pub(super) fn with_tcp(self, header: TcpRef<'_>) -> Self {
        let numbers = (header.sequence_number(), header.acknowledgment_number());
        Self { tcp: Some((header.flags(), numbers.0, numbers.1, header.window())), ..self }
    }

    /// With those of ICMP, where it is that; and the payload behind the header of ICMP or UDP.
    pub(super) fn with_data<'p>(self, ip: IpRef<'_>, payload: &'p [u8]) -> (Self, &'p [u8]) {
        if ip.is_later_fragment() {
            return (self, payload);
        }
        match (ip, ip.protocol(), payload) {
            (IpRef::V4(_), protocol::ICMP, [kind, code, ..])
            | (IpRef::V6(_), protocol::ICMPV6, [kind, code, ..]) => {
                (Self { icmp: Some((*kind, *code)), ..self }, payload.get(ICMP_HEADER..).unwrap_or_default())
            }
            (_, protocol::UDP, [_, _, _, _, high, low, _, _, data @ ..]) => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                // A length of 0 is that of a jumbogram (RFC 2675); others shorten the payload and never extend it.
                let len = len.checked_sub(UDP_HEADER).filter(|len| *len <= data.len()).unwrap_or(data.len());
                (self, &data[..len])
            }
            (_, protocol::UDP, _) => (self, &[]),
            _ => (self, payload),
        }
    }
}

/// Bytes of the header of UDP.
const UDP_HEADER: usize = 8;
/// Bytes of the header of most ICMP messages.
const ICMP_HEADER: usize = 8;

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    Pass,
    Drop,
}

/// The ruling on a flow with these marks.
fn ruling_of(marks: u64) -> Ruling {
    if marks & DROPPED == 0 { Ruling::Pass } else { Ruling::Drop }
}

/// Counters of the function.
#[derive(Clone)]
pub(super) struct Counts {
    pub(super) alerts: Counter,
    pub(super) drops: Counter,
    pub(super) passes: Counter,
    pub(super) suppressed: Counter,
    pub(super) evaluations: Counter,
    pub(super) unfinished: Counter,
}

/// A flow, and what is remembered of it while one of its packets is looked at.
#[derive(Clone, Copy, Debug)]
struct Now {
    flow: FlowKey,
    canonical: FlowKey,
    marks: u64,
    bits: u64,
    /// The table's entry.
    stored: Remembered,
}

impl Now {
    fn is_to_server(&self) -> bool {
        (self.flow == self.canonical) == (self.marks & CLIENT_IS_CANONICAL != 0)
    }
    /// 0 or 1, by the direction.
    fn direction(&self) -> usize {
        usize::from(self.flow == self.canonical)
    }
    fn is_established(&self) -> bool {
        match self.flow.protocol() {
            protocol::TCP => self.marks & OPEN != 0,
            _ => self.marks & (CLIENT_SPOKE | SERVER_SPOKE) == CLIENT_SPOKE | SERVER_SPOKE,
        }
    }
}

/// A rule that matches, and where the match ends.
#[derive(Clone, Copy, Debug)]
struct Found {
    place: u32,
    end: u64,
}

/// Rules that matched in a connection since the last `clear`, by direction.
#[derive(Default)]
struct Told {
    turn: u64,
    /// The turn in which each rule matched last.
    last: Vec<[u64; 2]>,
}

impl Told {
    fn of(rules: usize) -> Self {
        Self { turn: 1, last: vec![[0; 2]; rules] }
    }
    fn clear(&mut self) {
        self.turn += 1;
    }
    /// Leaves the rules that have not matched in this direction.
    fn leave_new(&self, direction: usize, found: &mut Vec<Found>) {
        found.retain(|found| self.last[found.place as usize][direction] != self.turn);
    }
    fn add(&mut self, direction: usize, found: &[Found]) {
        for found in found {
            self.last[found.place as usize][direction] = self.turn;
        }
    }
}

/// All that looks for rules on one worker.
pub(super) struct Engine {
    rules: Current,
    flows: Flows<FlowKey, Remembered>,
    thresholds: State<Thresholds>,
    alerts: EventLog<Alert>,
    counts: Counts,
    /// Matches by sid, of rules that are there and of others that were.
    matches: BTreeMap<u32, u64>,
    /// Matches by the rule's place, since the set came.
    here: Vec<u64>,
    scratch: Scratch,
    searcher: Searcher,
    /// The last look at which each rule was found, and where its bytes began.
    seen: Vec<(u32, u64)>,
    look: u32,
    candidates: Vec<u32>,
    found: Vec<Found>,
    /// Rules that matched with the last packet, by the direction of its connection: they do not count again.
    told: Told,
    /// The connection beside that one that was shown last since then, and the rules that matched in it.
    other: Option<u32>,
    told_there: Told,
    /// The last bytes of a stream and those that follow.
    data: Vec<u8>,
    now: Option<Now>,
    /// The flow of the last packet, by its canonical key.
    last: Option<FlowKey>,
    /// The time of the last packet (ns).
    clock: u64,
    ruling: Ruling,
}

impl Engine {
    pub(super) fn new(
        rules: Current,
        flows: Flows<FlowKey, Remembered>,
        thresholds: State<Thresholds>,
        alerts: EventLog<Alert>,
        counts: Counts,
        history: usize,
    ) -> Self {
        // The most bytes for which memory is there from the beginning.
        let usual = history + super::WINDOW;
        let searcher = Searcher::new(counts.unfinished.clone());
        Self {
            rules,
            flows,
            thresholds,
            alerts,
            counts,
            matches: BTreeMap::new(),
            here: Vec::new(),
            scratch: Scratch::with_capacity(usual),
            searcher,
            seen: Vec::new(),
            look: 0,
            candidates: Vec::new(),
            found: Vec::new(),
            told: Told::default(),
            other: None,
            told_there: Told::default(),
            data: Vec::with_capacity(usual),
            now: None,
            last: None,
            clock: 0,
            ruling: Ruling::Pass,
        }
    }

    /// Makes the memory fit the set of rules, which is needed before the first packet.
    ///
    /// # Errors
    /// There is no memory for searches by the library, so that the default engine does them.
    pub(super) fn fit(&mut self) -> Result<(), String> {
        let rules = self.rules.seen().signatures.len();
        self.here = vec![0; rules];
        self.seen = vec![(0, 0); rules];
        self.look = 0;
        self.candidates = Vec::with_capacity(rules);
        self.found = Vec::with_capacity(rules);
        self.told = Told::of(rules);
        (self.other, self.told_there) = (None, Told::of(rules));
        self.searcher.fit(self.rules.seen())
    }

    /// Takes the present rules, if they changed.
    #[inline]
    fn renew(&mut self) {
        if let Some(old) = self.rules.renew()
            && old.number != self.rules.seen().number
        {
            Self::collect(&mut self.matches, &old, &self.here);
            // Searches without memory are counted.
            let _ = self.fit();
        }
    }

    fn collect(matches: &mut BTreeMap<u32, u64>, set: &RuleSet, here: &[u64]) {
        for (signature, count) in set.signatures.iter().zip(here).filter(|(_, count)| **count > 0) {
            *matches.entry(signature.description.sid).or_default() += count;
        }
    }

    /// Matches on this worker by sid.
    pub(super) fn matches(&self) -> BTreeMap<u32, u64> {
        let mut matches = self.matches.clone();
        Self::collect(&mut matches, self.rules.seen(), &self.here);
        matches
    }

    /// The rules that packets see.
    pub(super) fn rules(&self) -> &RuleSet {
        self.rules.seen()
    }

    /// Takes a packet's flow up, before its stream and its payload are looked at.
    ///
    /// It answers the ruling on it where that is known already.
    pub(super) fn begin(&mut self, fields: &Fields) -> Option<Ruling> {
        self.renew();
        let Fields { flow, now, tcp, .. } = *fields;
        self.clock = now;
        let canonical = flow.canonical();
        let answers = tcp.is_some_and(|(set, ..)| set & (flags::SYN | flags::ACK) == flags::SYN | flags::ACK);
        let begun = || {
            let client = if answers { flow.reversed() } else { flow };
            (if client == canonical { CLIENT_IS_CANONICAL } else { 0 }, 0)
        };
        let stored = match self.flows.borrow_mut().lookup(canonical.store(), now) {
            Entry::Found(found) => *found.get(),
            Entry::Vacant(vacant) => *vacant.insert(begun()),
            Entry::Full => begun(),
        };
        let opens = tcp.is_some_and(|(set, ..)| set & flags::SYN != 0 && set & flags::ACK == 0);
        let (mut marks, mut bits) = stored;
        if opens && marks & PASSES != 0 {
            // The same addresses and ports may open another connection. A flow that is dropped stays dropped: its
            // sender could open one to no purpose but that.
            (marks, bits) = (marks & !PASSES, 0);
        }
        if tcp.is_some_and(|(set, ..)| set & (flags::SYN | flags::ACK) == flags::ACK) {
            marks |= OPEN;
        }
        let mut here = Now { flow, canonical, marks, bits, stored };
        here.marks |= if here.is_to_server() { CLIENT_SPOKE } else { SERVER_SPOKE };
        self.now = Some(here);
        self.ruling = Ruling::Pass;
        self.last = Some(canonical);
        self.told.clear();
        self.other = None;
        match here.marks {
            marks if marks & DROPPED != 0 => Some(Ruling::Drop),
            marks if marks & PASSES != 0 => Some(Ruling::Pass),
            _ => None,
        }
    }

    /// Ends the packet: what is remembered of its flow is stored.
    pub(super) fn end(&mut self, known: Option<Ruling>, now: u64) -> Ruling {
        if let Some(here) = self.now.take() {
            store(&self.flows, &here, now);
        }
        let ruling = known.unwrap_or(self.ruling);
        self.counts.drops.add(u64::from(ruling == Ruling::Drop));
        ruling
    }

    /// Looks for rules in the payload of the packet.
    pub(super) fn packet(&mut self, fields: &Fields, payload: &[u8]) {
        let Some(mut here) = self.now else { return };
        if here.marks & (PASSES | DROPPED) != 0 {
            return;
        }
        let set = self.rules.seen().clone();
        let number = if fields.flow.is_fragment() { 0 } else { fields.flow.protocol() };
        let group = set.packets(number, (fields.flow.source_port(), fields.flow.destination_port()));
        if group.is_empty() {
            return;
        }
        self.next_look();
        let Self { candidates, seen, look, searcher, .. } = self;
        candidates.extend(&group.always);
        let hit = |rule, _, _| note(candidates, seen, *look, rule, 0);
        group.scan(searcher, group.start(), payload, 0, hit);
        if candidates.is_empty() {
            return;
        }
        let data = Data { bytes: payload, base: 0, known: -1, ended: true };
        self.scratch.begin();
        let (to_server, established) = (here.is_to_server(), here.is_established());
        self.evaluate(&set, &here, data, &|signature| {
            signature.fits(to_server, established) && asks(signature, fields, payload.len())
        });
        let direction = here.direction();
        self.told.leave_new(direction, &mut self.found);
        self.ruling = match self.apply(&set, &mut here, false, fields.now) {
            Ruling::Pass => self.ruling,
            ruling => ruling,
        };
        self.told.add(direction, &self.found);
        self.now = Some(here);
    }

    /// Looks for rules in a packet that is in no stream.
    pub(super) fn alone(&mut self, fields: &Fields, payload: &[u8]) -> Ruling {
        let known = self.begin(fields);
        if known.is_none() {
            self.packet(fields, payload);
        }
        self.end(known, fields.now)
    }

    /// Looks for rules in the bytes that a stream got.
    ///
    /// It answers the ruling on these bytes.
    pub(super) fn stream<const N: usize>(&mut self, window: &Window<'_>, reading: &mut Reading<N>) -> Ruling {
        let now = self.clock;
        if window.why == Why::End(End::Moved) {
            return Ruling::Pass;
        }
        let is_present = self.now.is_some_and(|here| here.canonical == window.flow.canonical());
        let mut here = match self.now {
            Some(here) if is_present => Now { flow: window.flow, ..here },
            // Another connection ends beside the packet's.
            _ => recalled(&self.flows, window.flow, now),
        };
        // Bytes may be missing; after a change of the function, a stream goes on where it was.
        reading.skip_to(window.offset + window.seen as u64);
        let (fresh, ended) = (window.fresh(), matches!(window.why, Why::End(_)));
        if fresh.is_empty() && !ended {
            return Ruling::Pass;
        }
        if here.marks & (PASSES | DROPPED) != 0 {
            reading.append(fresh, None);
            return ruling_of(here.marks);
        }
        let set = self.rules.seen().clone();
        let group = set.streams.get((window.flow.source_port(), window.flow.destination_port()));
        if group.is_empty() {
            reading.append(fresh, None);
            return ruling_of(here.marks);
        }
        self.next_look();
        let Self { candidates, seen, look, data, searcher, .. } = self;
        candidates.extend(&group.always);
        let hit = |rule, at| note(candidates, seen, *look, rule, at);
        reading.scan(searcher, set.number, group, fresh, data, hit);
        if candidates.is_empty() {
            reading.append(fresh, None);
            return ruling_of(here.marks);
        }
        let (base, known) = (reading.base() as i64, reading.end() as i64);
        let mut bytes = std::mem::take(&mut self.data);
        bytes.clear();
        reading.history_from(reading.base(), &mut bytes);
        bytes.extend_from_slice(fresh);
        let data = Data { bytes: &bytes, base, known, ended };
        self.scratch.begin();
        let to_server = window.side == Side::Client;
        let established = here.is_established();
        let again = self.evaluate(&set, &here, data, &|signature| signature.fits(to_server, established));
        self.data = bytes;
        reading.append(fresh, again);
        // Inline, a stream is shown after its packet. Others end beside it, each in many pieces. So does its own, long after
        // it: the end itself brings no bytes, and decides what is missing.
        let is_last = is_present || self.last == Some(here.canonical) && !(ended && fresh.is_empty());
        if !is_last && self.other.replace(window.connection) != Some(window.connection) {
            self.told_there.clear();
        }
        let direction = here.direction();
        let Self { found, told, told_there, .. } = self;
        if is_last { told } else { told_there }.leave_new(direction, found);
        let ruling = self.apply(&set, &mut here, true, now);
        let Self { found, told, told_there, .. } = self;
        if is_last { told } else { told_there }.add(direction, found);
        if is_present {
            let flow = self.now.map_or(here.flow, |now| now.flow);
            self.now = Some(Now { flow, ..here });
            self.ruling = if ruling == Ruling::Pass { self.ruling } else { ruling };
        } else {
            store(&self.flows, &here, now);
        }
        ruling
    }

    fn next_look(&mut self) {
        self.candidates.clear();
        self.found.clear();
        self.look = self.look.wrapping_add(1);
        if self.look == 0 {
            self.seen.fill((0, 0));
            self.look = 1;
        }
    }

    /// Evaluates the rules that were found, in order. Answers where the bytes of those begin that are not decided.
    fn evaluate(
        &mut self,
        set: &RuleSet,
        here: &Now,
        data: Data<'_>,
        asks: &dyn Fn(&Signature) -> bool,
    ) -> Option<u64> {
        let Self { candidates, found, scratch, seen, counts, look, .. } = self;
        candidates.sort_unstable();
        let mut again: Option<u64> = None;
        for place in candidates.iter() {
            let signature = &set.signatures[*place as usize];
            if !set.is_on(*place as usize) || !signature.header.holds(&here.flow) || !asks(signature) {
                continue;
            }
            counts.evaluations.add(1);
            let outcome = scratch.evaluate(&signature.steps, data);
            if let Outcome::Matched(end) = outcome {
                found.push(Found { place: *place, end: end.max(0) as u64 });
            }
            // With bytes that follow, it may match, or match again.
            if outcome != Outcome::No && !signature.is_decided_at_once() {
                again = match (again, first(seen, *look, *place)) {
                    (Some(again), Some(first)) => Some(again.min(first)),
                    (again, first) => again.or(first),
                };
            }
        }
        again
    }

    /// Applies the rules that match: to the flow where they match in its stream, else to the packet.
    ///
    /// It answers the ruling.
    fn apply(&mut self, set: &RuleSet, here: &mut Now, stream: bool, now: u64) -> Ruling {
        let holds = |found: &Found, here: &Now| set.signatures[found.place as usize].bits.hold(here.bits);
        let is_pass = |found: &Found| set.signatures[found.place as usize].description.action == Action::Pass;
        if let Some(pass) = self.found.iter().find(|found| is_pass(found) && holds(found, here)) {
            self.here[pass.place as usize] += 1;
            self.counts.passes.add(1);
            here.bits = set.signatures[pass.place as usize].bits.applied(here.bits);
            if stream {
                here.marks |= PASSES;
            }
            return Ruling::Pass;
        }
        let mut ruling = Ruling::Pass;
        for found in &self.found {
            let signature = &set.signatures[found.place as usize];
            if is_pass(found) || !holds(found, here) {
                continue;
            }
            let sid = signature.description.sid;
            let told = match &signature.threshold {
                Some(threshold) => self.thresholds.borrow_mut().count(threshold, sid, &here.flow, now),
                None => thresholds::Told::Yes,
            };
            if told == thresholds::Told::NoMatch {
                continue;
            }
            here.bits = signature.bits.applied(here.bits);
            self.here[found.place as usize] += 1;
            if matches!(signature.description.action, Action::Drop | Action::Reject) {
                ruling = Ruling::Drop;
                here.marks |= if stream { DROPPED } else { 0 };
            }
            if signature.silent {
                continue;
            }
            if told == thresholds::Told::No {
                self.counts.suppressed.add(1);
                continue;
            }
            self.counts.alerts.add(1);
            let rule = signature.description.clone();
            self.alerts.push(Alert { rule, time: now, flow: here.flow, stream, end: found.end });
        }
        ruling
    }
}

/// Notes a rule that was found, once a look.
///
/// There is room for every rule, and nothing panics: a library in C calls this.
#[inline]
fn note(candidates: &mut Vec<u32>, seen: &mut [(u32, u64)], look: u32, rule: u32, at: u64) {
    let Some((last, first)) = seen.get_mut(rule as usize) else { return };
    if *last == look {
        *first = (*first).min(at);
    } else {
        (*last, *first) = (look, at);
        candidates.push(rule);
    }
}

/// Where the bytes began by which a rule was found; `None` for a rule that is always evaluated.
fn first(seen: &[(u32, u64)], look: u32, place: u32) -> Option<u64> {
    let (last, first) = seen[place as usize];
    (last == look).then_some(first)
}

/// The memory of a flow.
fn recalled(flows: &Flows<FlowKey, Remembered>, flow: FlowKey, now: u64) -> Now {
    let canonical = flow.canonical();
    let stored = match flows.borrow_mut().lookup(canonical.store(), now) {
        Entry::Found(found) => *found.get(),
        _ => (OPEN | u64::from(flow == canonical), 0),
    };
    Now { flow, canonical, marks: stored.0, bits: stored.1, stored }
}

fn store(flows: &Flows<FlowKey, Remembered>, here: &Now, now: u64) {
    let changed = (here.marks, here.bits);
    if changed != here.stored
        && let Entry::Found(mut found) = flows.borrow_mut().lookup(here.canonical.store(), now)
    {
        *found.get_mut() = changed;
    }
}

/// Whether a packet has the fields that a rule asks for.
fn asks(signature: &Signature, fields: &Fields, payload: usize) -> bool {
    signature.data_size.is_none_or(|size| size.0.holds(payload as u32))
        && signature.flags.is_none_or(|wanted| fields.tcp.is_some_and(|(set, ..)| wanted.holds(set)))
        && signature.numbers.iter().all(|Number { field, comparison }| {
            let number = match field {
                Field::IcmpType => fields.icmp.map(|icmp| u32::from(icmp.0)),
                Field::IcmpCode => fields.icmp.map(|icmp| u32::from(icmp.1)),
                Field::Ttl => Some(u32::from(fields.ttl)),
                Field::Protocol => Some(u32::from(fields.flow.protocol())),
                Field::Identification => fields.identification,
                Field::Sequence => fields.tcp.map(|tcp| tcp.1),
                Field::Acknowledgment => fields.tcp.map(|tcp| tcp.2),
                Field::Window => fields.tcp.map(|tcp| u32::from(tcp.3)),
            };
            number.is_some_and(|number| comparison.holds(number))
        })
}
