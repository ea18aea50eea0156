//! A packet's way through one worker: its headers found, its connection looked up, its rule searched, its fate decided.
//!
//! A batch is looked at twice. The first time, headers are found, and rules are searched for all packets that seem to
//! begin connections, so that lookups wait for memory together. The second time each packet is decided in its turn,
//! since a packet may answer the one before it. A packet whose state turns out otherwise is then searched alone.
//!
//! Without tracking, a flow's rule may be remembered. Where that rule only passes or drops, nothing else of the packet is
//! looked at.

use netbricks_core::buffer::{BATCH, Bytes, Packet};
use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::guards::Guards;
use netbricks_core::icmp::IcmpErrors;
use netbricks_core::packet::FlowKey;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::tables::classifier::{Keys, Matches};
use netbricks_core::tables::{Entry, FlowTicket, Table};
use netbricks_core::{
    Context, Counter, DropReason, Edge, EventLog, Flows, FrameFunction, Frames, StoredFlow, TableKey, Verdict,
};
use netbricks_mmb::key::Located;

use super::cache::FlowCache;
use super::compile::Facts;
use super::config::{FragmentPolicy, NonIp};
use super::fragments::{Decision, Fragment, FragmentKey};
use super::log::{Fate, Logged};
use super::reject::reject;
use super::rule::{Action, Answer, Policy, Tracking, states};
use super::rules::{Engine as Search, Rules};
use super::track::{Tables, Tracked, Tracker, flow_of};

/// The parts that an engine is made of.
pub(super) struct Parts {
    pub(super) rules: Bounded<Rules>,
    pub(super) open: Flows<FlowKey, super::connection::Connection>,
    pub(super) opening: Flows<FlowKey, super::connection::Connection>,
    pub(super) fragments: Flows<FragmentKey, Decision>,
    pub(super) log: EventLog<Logged>,
    pub(super) tracker: Tracker,
    pub(super) errors: IcmpErrors,
    pub(super) counters: Counters,
    pub(super) non_ip: NonIp,
    pub(super) fragment_policy: FragmentPolicy,
    pub(super) cache: FlowCache,
    pub(super) worker: usize,
    /// The number from 1 of the one port to which packets of each place go, or 0.
    pub(super) egress: Box<[u16]>,
}

/// Counters beside those of rules.
#[derive(Clone)]
pub(super) struct Counters {
    /// Packets about which no rule decided.
    pub(super) policy: Counter,
    /// Packets that fit no connection and begin none.
    pub(super) invalid: Counter,
    /// Resets and ICMP errors that were sent.
    pub(super) answers: Counter,
    /// Fragments whose first one was not seen.
    pub(super) orphans: Counter,
}

/// One worker's part of the function.
pub(super) struct Engine {
    parts: Parts,
    /// The way of each packet of the batch.
    ways: Vec<Way>,
    /// The flows whose rules may be remembered, by packet.
    flows: Vec<(Option<StoredFlow>, FlowTicket)>,
    seen: Vec<Seen>,
    keys: Keys,
    /// The first rule for each key.
    first: Vec<Option<u32>>,
    /// All rules for each key, where some only count.
    found: Vec<Matches>,
    /// The key of a packet that is searched alone.
    alone: Vec<u32>,
    matches: Matches,
    /// The number from 1 of the one port to which packets of this batch go, or 0.
    egress: u16,
}

/// The way that a packet takes.
#[derive(Clone, Copy)]
enum Way {
    /// The rule of its flow decides, or the policy, and nothing is logged or answered.
    Remembered(Option<u32>),
    /// The findings about it lie at this place.
    Seen(u16),
}

/// Findings of the first look at a packet.
struct Seen {
    located: Located,
    facts: Facts,
    kind: Kind,
    flow: Option<FlowKey>,
    ticket: FlowTicket,
    ingress: u16,
    /// The place of its key among those that were searched, and the state that was assumed.
    searched: Option<(u16, u8)>,
    /// The rule of its flow, where that is remembered.
    remembered: Option<Option<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ip,
    Fragment,
    /// Another protocol than IP.
    Other,
    Malformed,
}

impl Seen {
    fn of(packet: &Packet, needs_flow: bool) -> Self {
        let data = packet.data();
        let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
        let located = Located::find(data, slack);
        let mut seen = Self {
            located,
            facts: Facts::default(),
            kind: Kind::Ip,
            flow: None,
            ticket: FlowTicket::default(),
            ingress: packet.ingress().saturating_add(1),
            searched: None,
            remembered: None,
        };
        let Some((header, payload)) = located.ip(data) else {
            let is_ip = data.len() < 14 || matches!(located.network(), 0x0800 | 0x86dd);
            seen.kind = if is_ip { Kind::Malformed } else { Kind::Other };
            return seen;
        };
        if header.is_fragment() {
            seen.kind = Kind::Fragment;
        }
        seen.facts = Facts::of(&located, data);
        if needs_flow {
            seen.flow = Some(flow_of(header, payload));
        }
        seen
    }
}

impl Seen {
    /// Whether its flow tells all that rules by flow test.
    ///
    /// Where a header is cut, it does not tell that ports are missing.
    fn is_of_flow(&self) -> bool {
        let has_ports = netbricks_core::packet::protocol::has_ports(self.facts.protocol);
        self.kind == Kind::Ip && has_ports == self.facts.ports.is_some()
    }
}

/// The fate of a packet, and the place of the rule that decided.
struct Decided {
    fate: Fate,
    rule: Option<u32>,
}

impl Engine {
    /// An engine that has seen no packet.
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            egress: 0,
            parts,
            ways: Vec::with_capacity(BATCH),
            flows: Vec::with_capacity(BATCH),
            seen: Vec::with_capacity(BATCH),
            keys: Keys::new(0),
            first: vec![None; BATCH],
            found: (0..BATCH).map(|_| Matches::with_capacity(4)).collect(),
            alone: Vec::with_capacity(64),
            matches: Matches::with_capacity(4),
        }
    }

    /// Looks at all packets of a batch, and searches the rules of those that seem to need it.
    fn look<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet> + Clone) {
        let tracking = rules.list.tracking;
        let is_tracking = tracking != Tracking::Off;
        let built = &rules.built;
        let is_cached = built.is_by_flow && self.parts.cache.begin(rules.version);
        self.seen.clear();
        self.ways.clear();
        if is_cached {
            self.remember(rules, packets.clone());
            if self.seen.is_empty() {
                return;
            }
        } else {
            self.seen.extend(packets.clone().map(|packet| Seen::of(packet, is_tracking)));
            self.ways.extend((0..self.seen.len()).map(|place| Way::Seen(place as u16)));
        }
        if is_tracking {
            self.prefetch();
        }
        if self.keys.width() != built.layout.words() {
            self.keys = Keys::new(built.layout.words());
        }
        self.keys.clear();
        let open = self.parts.open.borrow();
        for (way, packet) in self.ways.iter().zip(packets) {
            let Way::Seen(place) = *way else { continue };
            let Some(seen) = self.seen.get_mut(usize::from(place)) else { continue };
            let is_searched =
                matches!(seen.kind, Kind::Ip | Kind::Fragment) && !seen.located.is_later_fragment;
            if !is_searched || seen.remembered.is_some() {
                continue;
            }
            // A flow that is there needs no rule, unless rules ask for states.
            let is_known =
                is_tracking && seen.flow.is_some_and(|flow| open.get(&flow.canonical().store()).is_some());
            let state = match tracking {
                Tracking::Off => 0,
                _ if is_known => states::ESTABLISHED,
                _ => states::NEW,
            };
            if is_known && built.ignores(state, tracking) {
                continue;
            }
            let row = self.keys.push();
            seen.facts.state = state;
            let interfaces = (seen.ingress, self.egress);
            built.layout.fill(&built.filling, packet.data(), &seen.located, &seen.facts, interfaces, row);
            seen.searched = Some(((self.keys.len() - 1) as u16, state));
        }
        drop(open);
        if rules.setup.engine == Search::Linear {
            return;
        }
        let len = self.keys.len();
        if built.has_counts {
            built.matches_batch(&self.keys, self.found.get_mut(..len).unwrap_or_default());
        } else {
            built.search_batch(&self.keys, self.first.get_mut(..len).unwrap_or_default());
        }
        if is_cached && len > 0 {
            for seen in self.seen.iter().filter(|seen| seen.is_of_flow()) {
                if let (Some(flow), Some((row, _))) = (seen.flow, seen.searched) {
                    let rule = self.first.get(usize::from(row)).copied().flatten();
                    self.parts.cache.put(flow.store(), rule);
                }
            }
        }
    }

    /// Looks the rules of known flows up, and at the packets of all others.
    fn remember<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet> + Clone) {
        let Some(hasher) = self.parts.cache.hasher() else { return };
        self.flows.clear();
        for packet in packets.clone() {
            let mut flow = None;
            if packet.missing() == 0 && !packet.is_length_unstated() {
                flow = FlowKey::plain_from_frame(packet.data());
            }
            let way = if flow.is_some() {
                Way::Remembered(None)
            } else {
                let seen = Seen::of(packet, true);
                flow = seen.flow.filter(|_| seen.is_of_flow());
                self.seen.push(seen);
                Way::Seen(self.seen.len() as u16 - 1)
            };
            self.ways.push(way);
            let flow = flow.map(|flow| flow.store());
            let ticket = flow.as_ref().map(|flow| FlowCache::hash(&hasher, flow));
            self.flows.push((flow, ticket.unwrap_or_default()));
        }
        for (flow, ticket) in &mut self.flows {
            if let Some(flow) = flow {
                self.parts.cache.prefetch(flow, ticket);
            }
        }
        for ((way, (flow, ticket)), packet) in self.ways.iter_mut().zip(&self.flows).zip(packets) {
            let remembered = flow.and_then(|flow| self.parts.cache.get(flow, *ticket));
            match *way {
                Way::Seen(place) => {
                    if let Some(seen) = self.seen.get_mut(usize::from(place)) {
                        seen.remembered = remembered;
                    }
                }
                Way::Remembered(_) => match remembered.filter(|rule| is_silent(rules, *rule)) {
                    Some(rule) => *way = Way::Remembered(rule),
                    None => {
                        self.seen.push(Seen { remembered, ..Seen::of(packet, true) });
                        *way = Way::Seen(self.seen.len() as u16 - 1);
                    }
                },
            }
        }
    }

    /// Decides about a packet by the rule of its flow alone.
    #[inline]
    fn decide_remembered(&self, rules: &Rules, rule: Option<u32>, bytes: u64) -> Result<(), Verdict> {
        let passes = match rule {
            Some(index) => {
                count(rules, index, self.parts.worker, bytes);
                let data = rules.built.data.get(index as usize);
                data.is_some_and(|data| matches!(data.action, Action::Allow | Action::Count))
            }
            None => {
                self.parts.counters.policy.add(1);
                matches!(rules.list.policy, Policy::Allow)
            }
        };
        if passes { Ok(()) } else { Err(Verdict::drop(DropReason::Denied)) }
    }

    /// Asks memory for the places of the packets' connections.
    fn prefetch(&mut self) {
        let table = self.parts.open.borrow();
        let hasher = table.hasher();
        for seen in &mut self.seen {
            if let Some(flow) = &seen.flow {
                seen.ticket = Tables::hash(&hasher, &flow.canonical().store());
            }
        }
        for seen in &mut self.seen {
            if let Some(flow) = &seen.flow {
                table.prefetch(&flow.canonical().store(), &mut seen.ticket);
            }
        }
    }

    /// Decides about the packet in this slot of the batch.
    fn decide(
        &mut self,
        rules: &Rules,
        seen: &Seen,
        slot: usize,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        let now = cx.now();
        match seen.kind {
            Kind::Ip => {}
            Kind::Other if self.parts.non_ip == NonIp::Pass => return Ok(()),
            Kind::Other => return Err(Verdict::drop(DropReason::Unmatched)),
            Kind::Malformed => return Err(Verdict::drop(DropReason::Malformed)),
            Kind::Fragment => {
                let fragment = seen.located.ip(frame.data()).and_then(|(ip, rest)| Fragment::of(ip, rest));
                if let Some(fragment) = fragment {
                    return self.decide_fragment(rules, seen, &fragment, slot, frame, cx);
                }
            }
        }
        let decided = self.decide_whole(rules, seen, frame, now);
        self.finish(rules, seen, &decided, slot, frame, cx)
    }

    /// As [`decide`](Self::decide), for a fragment: the first one as a whole packet, and later ones follow it.
    #[cold]
    fn decide_fragment(
        &mut self,
        rules: &Rules,
        seen: &Seen,
        fragment: &Fragment,
        slot: usize,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        let now = cx.now();
        let is_refused = self.parts.fragment_policy == FragmentPolicy::Drop || fragment.is_suspect;
        if is_refused {
            return Err(Verdict::drop(DropReason::Fragment));
        }
        let key = fragment.key.store();
        if fragment.is_first {
            let decided = self.decide_whole(rules, seen, frame, now);
            let rule = decided.rule.and_then(|index| rules.built.data.get(index as usize));
            let decision =
                Decision { rule: rule.map_or(0, |rule| rule.id), passes: decided.fate == Fate::Passed };
            if let Some(known) =
                self.parts.fragments.borrow_mut().lookup(key, now).or_insert_with(|| decision)
            {
                *known = decision;
            }
            return self.finish(rules, seen, &decided, slot, frame, cx);
        }
        let decision = match self.parts.fragments.borrow_mut().lookup(key, now) {
            Entry::Found(known) => *known.get(),
            Entry::Vacant(_) | Entry::Full => {
                self.parts.counters.orphans.add(1);
                return Err(Verdict::drop(DropReason::Fragment));
            }
        };
        if let Some((_, rule)) = rules.built.by_id(decision.rule)
            && let Some(count) = rule.counts.get(self.parts.worker)
        {
            count.add_later(frame.len() as u64);
        }
        if decision.passes { Ok(()) } else { Err(Verdict::drop(DropReason::Denied)) }
    }

    /// Finds a packet's connection and rule, and decides.
    fn decide_whole(&mut self, rules: &Rules, seen: &Seen, frame: &mut Bytes<'_>, now: u64) -> Decided {
        let tracking = rules.list.tracking;
        let parts = &mut self.parts;
        let tracked = match seen.flow {
            Some(flow) if tracking != Tracking::Off => {
                let mut tables = Tables { open: &parts.open, opening: &parts.opening, ticket: seen.ticket };
                parts.tracker.track(&mut tables, &seen.located, &flow, frame, now)
            }
            _ => Tracked::default(),
        };
        let bytes = frame.len() as u64;
        if tracking == Tracking::Automatic {
            let is_asked = rules.built.asked & tracked.state != 0;
            if let Some(rule) = tracked.rule
                && !(is_asked && tracked.state & (states::ESTABLISHED | states::RELATED) != 0)
                && !tracked.joins
            {
                return self.known(rules, rule, bytes);
            }
            if tracked.state == states::INVALID && !is_asked {
                parts.counters.invalid.add(1);
                return Decided { fate: Fate::Invalid, rule: None };
            }
        }
        let rule = self.search(rules, seen, &tracked, frame, bytes);
        let Some(index) = rule else { return self.undecided(rules, &tracked, bytes, seen, frame, now) };
        let Some(data) = rules.built.data.get(index as usize) else {
            return Decided { fate: Fate::Denied, rule: None };
        };
        let fate = match data.action {
            Action::Allow | Action::Count => Fate::Passed,
            Action::Deny => Fate::Denied,
            Action::Reject(_) => Fate::Rejected,
        };
        let fate = if fate == Fate::Passed && !data.is_stateless {
            self.admit(data.id, Some(index), rules, seen, &tracked, frame, now)
        } else {
            fate
        };
        Decided { fate, rule }
    }

    /// Lets a packet of a known connection pass.
    #[inline]
    fn known(&self, rules: &Rules, rule: u32, bytes: u64) -> Decided {
        let known = rules.built.by_id(rule);
        if let Some((_, data)) = known
            && let Some(count) = data.counts.get(self.parts.worker)
        {
            count.add_later(bytes);
        }
        Decided { fate: Fate::Passed, rule: None }
    }

    /// Remembers the connection that an allowed packet begins.
    #[expect(clippy::too_many_arguments, reason = "the facts of one packet, each from another step")]
    fn admit(
        &mut self,
        id: u32,
        index: Option<u32>,
        rules: &Rules,
        seen: &Seen,
        tracked: &Tracked,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Fate {
        let (Some(flow), true) = (seen.flow, tracked.begins) else { return Fate::Passed };
        let parts = &mut self.parts;
        let mut tables = Tables { open: &parts.open, opening: &parts.opening, ticket: seen.ticket };
        match parts.tracker.admit(&mut tables, id, &seen.located, &flow, tracked, frame, now) {
            None => Fate::Full,
            Some(is_new) => {
                let data = index.and_then(|index| rules.built.data.get(index as usize));
                if is_new && let Some(count) = data.and_then(|data| data.counts.get(parts.worker)) {
                    count.add_connection();
                }
                Fate::Passed
            }
        }
    }

    /// The fate of a packet that no rule decides about.
    fn undecided(
        &mut self,
        rules: &Rules,
        tracked: &Tracked,
        bytes: u64,
        seen: &Seen,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Decided {
        if rules.list.tracking == Tracking::Automatic {
            if let (Some(rule), false) = (tracked.rule, tracked.joins) {
                return self.known(rules, rule, bytes);
            }
            if tracked.state == states::INVALID {
                self.parts.counters.invalid.add(1);
                return Decided { fate: Fate::Invalid, rule: None };
            }
        }
        self.parts.counters.policy.add(1);
        let fate = match rules.list.policy {
            Policy::Allow => self.admit(0, None, rules, seen, tracked, frame, now),
            Policy::Deny => Fate::Denied,
            Policy::Reject => Fate::Rejected,
        };
        Decided { fate, rule: None }
    }

    /// The place of the rule that decides about a packet. Rules that count do so.
    fn search(
        &mut self,
        rules: &Rules,
        seen: &Seen,
        tracked: &Tracked,
        frame: &Bytes<'_>,
        bytes: u64,
    ) -> Option<u32> {
        let built = &rules.built;
        let worker = self.parts.worker;
        let is_compiled = rules.setup.engine == Search::Compiled;
        if let Some(rule) = seen.remembered {
            count(rules, rule?, worker, bytes);
            return rule;
        }
        // Where no rule asks for states, the assumed one does not matter.
        let known = seen.searched.filter(|(_, state)| built.asked == 0 || *state == tracked.state);
        if let Some((row, _)) = known.filter(|_| is_compiled) {
            if !built.has_counts {
                let rule = self.first.get(usize::from(row)).copied().flatten()?;
                count(rules, rule, worker, bytes);
                return Some(rule);
            }
            return count_all(rules, self.found.get(usize::from(row))?, worker, bytes);
        }
        let key: &[u32] = match known.and_then(|(row, _)| self.keys.get(row.into())) {
            Some(key) => key,
            None => {
                self.alone.clear();
                self.alone.resize(built.layout.words(), 0);
                let facts = Facts { state: tracked.state, ..seen.facts };
                let interfaces = (seen.ingress, self.egress);
                let located = &seen.located;
                built.layout.fill(&built.filling, frame.data(), located, &facts, interfaces, &mut self.alone);
                &self.alone
            }
        };
        if !is_compiled {
            return scan(rules, key, worker, bytes);
        }
        if built.has_counts {
            built.search(key, &mut self.matches, Search::Compiled);
            return count_all(rules, &self.matches, worker, bytes);
        }
        let rule = built.search(key, &mut self.matches, Search::Compiled)?;
        count(rules, rule, worker, bytes);
        Some(rule)
    }

    /// Logs, answers and counts as decided.
    fn finish(
        &mut self,
        rules: &Rules,
        seen: &Seen,
        decided: &Decided,
        slot: usize,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        let data = decided.rule.and_then(|index| rules.built.data.get(index as usize));
        if let Some(data) = data.filter(|data| data.log.is_some()) {
            let flow = seen.flow.or_else(|| {
                seen.located.ip(frame.data()).map(|(header, payload)| FlowKey::of(header, payload))
            });
            if let Some(flow) = flow {
                let log = &self.parts.log;
                let at = (log.next(), cx.now());
                log.push(Logged::new(at, data.id, decided.fate, &flow, frame.len(), seen.ingress));
            }
        }
        let answer = match (decided.fate, data.map(|data| data.action)) {
            (Fate::Rejected, Some(Action::Reject(answer))) => Some(answer),
            (Fate::Rejected, _) => Some(Answer::Usual),
            _ => None,
        };
        if let Some(answer) = answer
            && reject(&mut self.parts.errors, answer, slot, frame, &seen.located, cx)
        {
            self.parts.counters.answers.add(1);
        }
        match decided.fate {
            Fate::Passed => Ok(()),
            Fate::Denied => Err(Verdict::drop(DropReason::Denied)),
            Fate::Rejected => Err(Verdict::drop(DropReason::Rejected)),
            Fate::Invalid => Err(Verdict::drop(DropReason::InvalidState)),
            Fate::Full => Err(Verdict::drop(DropReason::TableFull)),
        }
    }
}

/// Whether nothing but a count tells of the rule's packets, or of those that the policy decides about.
#[inline]
fn is_silent(rules: &Rules, rule: Option<u32>) -> bool {
    match rule {
        Some(index) => {
            let data = rules.built.data.get(index as usize);
            data.is_some_and(|data| data.log.is_none() && !matches!(data.action, Action::Reject(_)))
        }
        None => !matches!(rules.list.policy, Policy::Reject),
    }
}

/// Counts a packet for a rule.
#[inline]
fn count(rules: &Rules, rule: u32, worker: usize, bytes: u64) {
    let data = rules.built.data.get(rule as usize);
    if let Some(count) = data.and_then(|data| data.counts.get(worker)) {
        count.add(bytes);
    }
}

/// Counts a packet for all its rules; the place of the one that decides.
fn count_all(rules: &Rules, found: &Matches, worker: usize, bytes: u64) -> Option<u32> {
    let mut decides = None;
    for rule in found.rules() {
        count(rules, rule, worker, bytes);
        let data = rules.built.data.get(rule as usize)?;
        if data.action != Action::Count {
            decides = Some(rule);
        }
    }
    decides
}

/// Searches rule by rule.
fn scan(rules: &Rules, key: &[u32], worker: usize, bytes: u64) -> Option<u32> {
    let mut from = 0;
    loop {
        let rule = rules.built.scan_from(key, from)?;
        count(rules, rule, worker, bytes);
        if rules.built.data.get(rule as usize)?.action != Action::Count {
            return Some(rule);
        }
        from = rule + 1;
    }
}

impl FrameFunction for Engine {
    /// Rules may change while it runs, so that any packet may pass.
    fn guards(&self, edge: Edge) -> Guards {
        Guards::of_passing(edge)
    }
    fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
        let rules = self.parts.rules.clone();
        rules.read(|rules| {
            self.egress = self.parts.egress.get(cx.place()).copied().unwrap_or(0);
            self.look(rules, frames.iter());
            let (ways, all) = (std::mem::take(&mut self.ways), std::mem::take(&mut self.seen));
            frames.decide(cx, |slot, frame, cx| match ways.get(slot) {
                Some(Way::Remembered(rule)) => self.decide_remembered(rules, *rule, frame.len() as u64),
                Some(Way::Seen(place)) => match all.get(usize::from(*place)) {
                    Some(seen) => self.decide(rules, seen, slot, frame, cx),
                    None => Ok(()),
                },
                None => Ok(()),
            });
            (self.ways, self.seen) = (ways, all);
        });
    }

    fn edges(&self) -> Vec<(Edge, String)> {
        vec![(Edge::REPLY, "reply".into())]
    }
}
