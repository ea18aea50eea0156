//! A packet's way through one worker: classified, tracked, rewritten.

use netbricks_core::buffer::{BATCH, Bytes, Packet};
use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::operators::ReplaceTcpOptions;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, HashKey};
use netbricks_core::tables::classifier::{MatchCache, Matches};
use netbricks_core::tables::{Entry, Table};
use netbricks_core::{Context, DropReason, Edge, Flows, FrameFunction, Frames, Groups, TableKey, Verdict};

use crate::action::{self, Action, EditedOptions, NotApplied};
use crate::connection::{Connection, Direction, Timeouts, with};
use crate::field::Layer;
use crate::key::{Located, walk};
use crate::random::Random;
use crate::rule::Mode;
use crate::rules::{RuleData, Rules, Slot};
use crate::translate;

/// Attempts to find values for a connection whose answers are not another's (mmb's `map`).
const TRIES: usize = 8;

/// One worker's part of the function.
pub(crate) struct Engine {
    rules: Bounded<Rules>,
    connections: Flows<FlowKey, Connection>,
    timeouts: Timeouts,
    worker: usize,
    /// The number from 1 of the one port to which packets of each place go, or 0.
    departures: Box<[u16]>,
    /// The same for the place of the batch at hand.
    egress: u16,
    outputs: usize,
    random: Random,
    hash: HashKey,
    is_cached: bool,
    cache: MatchCache,
    located: Vec<Located>,
    found: Vec<Matches>,
    key: Vec<u32>,
    /// The rules of the packet at hand: order and slot.
    ordered: Vec<(u64, u32)>,
    options: ReplaceTcpOptions,
}

/// The parts that an engine is made of.
pub(crate) struct Parts {
    /// The rules.
    pub(crate) rules: Bounded<Rules>,
    /// The connections of this worker.
    pub(crate) connections: Flows<FlowKey, Connection>,
    /// When connections end.
    pub(crate) timeouts: Timeouts,
    /// The worker's number.
    pub(crate) worker: usize,
    /// The number from 1 of the one port to which packets of each place go, or 0.
    pub(crate) egress: Box<[u16]>,
    /// Ways out.
    pub(crate) outputs: usize,
    /// Flows whose rules it remembers; 0 for none.
    pub(crate) flow_cache: usize,
    /// Seed of random values.
    pub(crate) seed: u64,
}

/// The decisions of a packet's rules so far.
#[derive(Default)]
struct Decided {
    is_dropped: bool,
    is_accepted: bool,
    output: usize,
    options: EditedOptions,
}

/// A packet's connection, and how it belongs to it.
#[derive(Clone, Copy)]
struct Tracked {
    connection: Connection,
    direction: Direction,
    /// Whether it is an ICMP error about the connection.
    is_related: bool,
}

/// A packet as connections see it: as it arrived, since rules before the stateful ones may change it.
#[derive(Clone, Copy, Default)]
struct Arrival {
    /// Its flow, or the one that it is an error about; known where some rule asks for flows.
    flow: Option<FlowKey>,
    /// The flags of a TCP segment.
    tcp: Option<u8>,
    /// Whether it is an ICMP error.
    is_error: bool,
}

/// A packet while its rules apply.
struct Subject<'s, 'b> {
    frame: &'s mut Bytes<'b>,
    located: &'s Located,
    arrival: Arrival,
    now: u64,
}

impl Arrival {
    fn of(located: &Located, frame: &Bytes<'_>) -> Self {
        let data = frame.data();
        Self {
            flow: located.flow(data, netbricks_core::length_slack(frame)),
            tcp: located.at(Layer::Tcp).and_then(|at| data.get(at + 13).copied()),
            is_error: is_error(located, data),
        }
    }
}

impl Engine {
    /// An engine that has seen no packet.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { rules, connections, timeouts, worker, egress, outputs, flow_cache, seed } = parts;
        let words = rules.read(|rules| rules.layout.layout().words());
        Self {
            rules,
            connections,
            timeouts,
            worker,
            departures: egress,
            egress: 0,
            outputs,
            random: Random::new(seed),
            hash: HashKey::new([seed, !seed]),
            is_cached: flow_cache > 0,
            cache: MatchCache::new(flow_cache, seed),
            located: Vec::with_capacity(BATCH),
            found: (0..BATCH).map(|_| Matches::default()).collect(),
            key: vec![0; words],
            ordered: Vec::with_capacity(64),
            options: ReplaceTcpOptions::new(),
        }
    }

    /// Finds the layers of all packets, and their rules.
    fn classify<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet>) {
        self.located.clear();
        for (packet, found) in packets.zip(&mut self.found) {
            let data = packet.data();
            let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
            let located = Located::find(data, slack);
            let ingress = packet.ingress().saturating_add(1);
            rules.filling.fill(&rules.layout, data, &located, (ingress, self.egress), &mut self.key);
            if rules.disabled.contains(&ingress) {
                found.clear();
            } else if self.is_cached {
                self.cache.matches(&rules.classifier, &self.key, found);
            } else {
                rules.classifier.matches(&self.key, found);
            }
            self.located.push(located);
        }
    }

    /// Applies the rules of the packet in this slot of the batch.
    fn apply(
        &mut self,
        rules: &Rules,
        slot: usize,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        let located = self.located[slot];
        let now = cx.now();
        let asks = rules.stateful > 0 || self.outputs > 1;
        let arrival = if asks { Arrival::of(&located, frame) } else { Arrival::default() };
        let mut tracked = if rules.stateful > 0 { self.track(rules, &arrival, now) } else { None };
        self.order_rules(rules, slot, tracked.as_ref());
        let (bytes, mut decided) = (frame.len() as u64, Decided::default());
        let mut packet = Subject { frame, located: &located, arrival, now };
        for place in 0..self.ordered.len() {
            let (_, id) = self.ordered[place];
            let Some(rule) = rules.slot(id) else { continue };
            if rule.data.is_stateful {
                self.begin(rules, id, rule, &mut packet, &mut tracked)?;
            }
            if let Some(count) = rule.data.counts.get(self.worker) {
                let is_reply =
                    rule.data.is_stateful && tracked.is_some_and(|of| of.direction == Direction::Reply);
                count.add(bytes, is_reply, now);
            }
            self.execute(&rule.data, &mut packet, tracked.as_ref(), &mut decided);
            if rules.mode == Mode::Ordered && (decided.is_dropped || decided.is_accepted) {
                break;
            }
        }
        if !decided.is_accepted && (decided.is_dropped || rules.drops_by_default) {
            return Err(Verdict::drop(DropReason::Denied));
        }
        self.finish(rules, &mut packet, tracked.as_ref(), &mut decided, cx);
        match decided.output {
            0 => Ok(()),
            output => Err(Verdict::leave(Groups::edge(output))),
        }
    }

    /// Lists the packet's rules in order: those that match it, and those of its connection.
    fn order_rules(&mut self, rules: &Rules, slot: usize, tracked: Option<&Tracked>) {
        self.ordered.clear();
        let found = self.found[slot].rules();
        self.ordered.extend(found.map(|id| (rules.order_of(id), id)));
        let Some(Tracked { connection, .. }) = tracked else { return };
        for rule in connection.rules {
            if let Some(live) = rules.live(rule) {
                self.ordered.push((live.order(), rule.slot - 1));
            }
        }
        self.ordered.sort_unstable();
        self.ordered.dedup();
    }

    /// The connection of a packet, if it has one with a rule that is still there.
    fn track(&mut self, rules: &Rules, arrival: &Arrival, now: u64) -> Option<Tracked> {
        let Arrival { flow, tcp, is_error: is_related } = *arrival;
        let flow = flow?;
        let mut table = self.connections.borrow_mut();
        let mut key = flow.canonical();
        for _ in 0..2 {
            let Entry::Found(mut entry) = table.lookup(key.store(), now) else { return None };
            let connection = entry.get_mut();
            if connection.is_alias {
                key = connection.origin.canonical();
                continue;
            }
            let direction = connection.direction(&flow)?;
            if !connection.rules.iter().any(|rule| rules.live(*rule).is_some()) {
                entry.remove();
                return None;
            }
            if !is_related {
                connection.note(direction, tcp);
            }
            let connection = *connection;
            let timeout = self.timeouts.of(&connection);
            entry.set_timeout(timeout);
            // The way from its answers lives as long as the connection does.
            let answers = connection.translated.canonical();
            if answers != key
                && let Entry::Found(mut alias) = table.lookup(answers.store(), now)
            {
                alias.set_timeout(timeout);
            }
            return Some(Tracked { connection, direction, is_related });
        }
        None
    }

    /// Makes a connection of a packet that a stateful rule matched, or has it join one.
    fn begin(
        &mut self,
        rules: &Rules,
        id: u32,
        rule: &Slot,
        packet: &mut Subject<'_, '_>,
        tracked: &mut Option<Tracked>,
    ) -> Result<(), Verdict> {
        let reference = rules.reference(id);
        if tracked.as_ref().is_some_and(|of| of.connection.has(reference) || of.is_related) {
            return Ok(());
        }
        let full = || Verdict::drop(DropReason::TableFull);
        let Arrival { flow: Some(flow), tcp, is_error: false } = packet.arrival else { return Ok(()) };
        let maps = rule
            .data
            .actions
            .iter()
            .any(|action| matches!(action, Action::MapEnd(..) | Action::MapValue(..)));
        if maps && tracked.as_ref().is_some_and(|of| of.direction == Direction::Reply) {
            // An answer is of a connection that began without the rule, and which keeps its tuple.
            return Ok(());
        }
        let is_new = tracked.is_none();
        let mut connection = tracked.map_or_else(|| Connection::new(flow), |of| of.connection);
        if !connection.join(reference, |rule| rules.live(rule).is_some()) {
            self.not_applied(&rule.data);
            return Ok(());
        }
        if is_new {
            connection.note(Direction::Forward, tcp);
        }
        if self.shuffles(&rule.data, packet, tcp, is_new) {
            connection.shift = self.shifts(&rule.data, connection.shift);
        }
        let was = connection.translated;
        if maps && connection.translated == connection.origin {
            self.choose(&rule.data, &mut connection, packet.now).ok_or_else(full)?;
        }
        self.store(&connection, connection.translated != was, packet.now).ok_or_else(full)?;
        let direction = tracked.map_or(Direction::Forward, |of| of.direction);
        *tracked = Some(Tracked { connection, direction, is_related: false });
        Ok(())
    }

    /// Whether sequence numbers of a new connection can be translated.
    ///
    /// They cannot where they are authenticated, or where the connection's beginning was not seen.
    fn shuffles(&self, rule: &RuleData, packet: &Subject<'_, '_>, tcp: Option<u8>, is_new: bool) -> bool {
        if !rule.actions.iter().any(|action| matches!(action, Action::ShuffleSequence(_))) {
            return false;
        }
        let options = packet.frame.data().get(packet.located.tcp_options()).unwrap_or_default();
        // RFC 2385's MD5 signature and RFC 5925's authentication option.
        let is_authenticated =
            walk(options).any(|(kind, _)| matches!(kind, 19 | 29)) || packet.located.has_ah();
        let begins = is_new && tcp.is_some_and(|seen| seen & flags::SYN != 0);
        if !begins || is_authenticated {
            self.not_applied(rule);
        }
        begins && !is_authenticated
    }

    fn shifts(&mut self, rule: &RuleData, mut shift: [u32; 2]) -> [u32; 2] {
        for action in &rule.actions {
            if let Action::ShuffleSequence(of_first) = action {
                // Not 0, by which nothing would change.
                shift[usize::from(!of_first)] = self.random.below(u128::from(u32::MAX)) as u32 + 1;
            }
        }
        shift
    }

    /// Gives a connection its mapped values. The answers to it must not be those of another.
    fn choose(&mut self, rule: &RuleData, connection: &mut Connection, now: u64) -> Option<()> {
        for _ in 0..TRIES {
            let (mut translated, mut values, mut others) = (connection.origin, [0u32; 2], 0);
            for action in &rule.actions {
                match action {
                    Action::MapEnd(end, choices) => {
                        translated = with(&translated, *end, choices.choose(&mut self.random)?);
                    }
                    Action::MapValue(_, choices) => {
                        *values.get_mut(others)? = choices.choose(&mut self.random)? as u32;
                        others += 1;
                    }
                    _ => {}
                }
            }
            let key = translated.canonical();
            let is_own = key == connection.origin.canonical();
            if is_own || self.is_free(&key, now) {
                (connection.translated, connection.values) = (translated, values);
                return Some(());
            }
        }
        None
    }

    /// Whether no connection has answers under this canonical key. An entry that leads to none is taken out.
    fn is_free(&self, key: &FlowKey, now: u64) -> bool {
        let mut table = self.connections.borrow_mut();
        table.tell(now);
        let Some(known) = table.get_at(&key.store(), now).copied() else { return true };
        if !known.is_alias {
            return false;
        }
        let origin = known.origin.canonical();
        let leads = table
            .get_at(&origin.store(), now)
            .is_some_and(|of| !of.is_alias && of.translated == known.translated);
        if !leads {
            table.remove(&key.store());
        }
        !leads
    }

    /// Writes a connection into the table, and the way to it from its answers.
    fn store(&mut self, connection: &Connection, is_translated: bool, now: u64) -> Option<()> {
        let timeout = self.timeouts.of(connection);
        let mut table = self.connections.borrow_mut();
        let key = connection.origin.canonical();
        let answers = connection.translated.canonical();
        if is_translated && answers != key {
            match table.lookup(answers.store(), now) {
                Entry::Vacant(vacant) => {
                    let alias = Connection { is_alias: true, ..*connection };
                    vacant.insert_entry(alias).set_timeout(timeout);
                }
                Entry::Found(_) | Entry::Full => return None,
            }
        }
        match table.lookup(key.store(), now) {
            Entry::Found(mut entry) => {
                *entry.get_mut() = *connection;
                entry.set_timeout(timeout);
            }
            Entry::Vacant(vacant) => vacant.insert_entry(*connection).set_timeout(timeout),
            Entry::Full => {
                if is_translated && answers != key {
                    table.remove(&answers.store());
                }
                return None;
            }
        }
        Some(())
    }

    /// Does what a rule says.
    fn execute(
        &mut self,
        rule: &RuleData,
        packet: &mut Subject<'_, '_>,
        tracked: Option<&Tracked>,
        decided: &mut Decided,
    ) {
        let mut values = tracked.map(|of| of.connection.values).into_iter().flatten();
        for action in &rule.actions {
            let Subject { frame, located, .. } = packet;
            let done = match action {
                Action::Write(field, value) => action::write(frame, located, *field, *value),
                Action::WritePayload(field, bytes) => action::write_payload(frame, located, *field, bytes),
                Action::WriteOption(kind, bytes) if decided.options.is_changed => {
                    decided.options.write(*kind, bytes)
                }
                Action::WriteOption(kind, bytes) => action::write_option(frame, located, *kind, bytes),
                Action::Strip(kinds) => {
                    with_options(frame, located, |options| decided.options.strip(options, *kinds))
                }
                Action::AddOption(kind, data) => {
                    with_options(frame, located, |options| decided.options.add(options, *kind, data))
                }
                Action::Drop => {
                    decided.is_dropped = true;
                    Ok(())
                }
                Action::DropShare(share) => {
                    decided.is_dropped |= (self.random.next() as u32) < *share;
                    Ok(())
                }
                Action::Accept => {
                    decided.is_accepted = true;
                    Ok(())
                }
                Action::Balance(outputs) => {
                    decided.output = self.balance(outputs, packet);
                    Ok(())
                }
                Action::MapValue(field, _) => match values.next() {
                    Some(value) => action::write(frame, located, *field, value.into()),
                    None => Ok(()),
                },
                // Done for the whole connection, at the end.
                Action::MapEnd(..) | Action::ShuffleSequence(_) => Ok(()),
            };
            if done.is_err() {
                self.not_applied(rule);
            }
        }
    }

    /// The way out of a flow: both directions have the same.
    fn balance(&self, outputs: &[u8], packet: &Subject<'_, '_>) -> usize {
        let hash = packet.arrival.flow.map_or(0, |flow| self.hash.symmetric(&flow));
        let place = ((u128::from(hash) * outputs.len() as u128) >> 64) as usize;
        outputs.get(place).map_or(0, |output| usize::from(*output).min(self.outputs.saturating_sub(1)))
    }

    /// Translates the packet's connection, and writes its options, which moves bytes, last.
    fn finish(
        &mut self,
        rules: &Rules,
        packet: &mut Subject<'_, '_>,
        tracked: Option<&Tracked>,
        decided: &mut Decided,
        cx: &mut Context,
    ) {
        let mut done = Ok(());
        if let Some(Tracked { connection, direction, is_related }) = tracked {
            let Subject { frame, located, .. } = packet;
            if *is_related {
                done =
                    done.and(translate::quoted_sequence_number(frame, located, *direction, connection.shift));
                done = done.and(translate::related(frame, located, connection, *direction));
            } else {
                done = done.and(translate::sequence_numbers(frame, located, *direction, connection.shift));
                translate::selective(
                    frame,
                    located,
                    decided.options.bytes_mut(),
                    *direction,
                    connection.shift,
                );
                if connection.translated != connection.origin {
                    done = done.and(translate::endpoints(frame, located, connection, *direction));
                }
            }
        }
        if decided.options.is_changed {
            let replaced = self.options.replace(packet.frame, decided.options.bytes(), cx);
            done = done.and(replaced.map_err(|_| NotApplied));
        }
        if done.is_err()
            && let Some(rule) = self.ordered.first().and_then(|(_, id)| rules.slot(*id))
        {
            self.not_applied(&rule.data);
        }
    }

    fn not_applied(&self, rule: &RuleData) {
        if let Some(count) = rule.counts.get(self.worker) {
            count.add_not_applied();
        }
    }
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

/// Lends the options of a TCP segment; other packets have none to change.
fn with_options(
    frame: &Bytes<'_>,
    located: &Located,
    edit: impl FnOnce(&[u8]) -> Result<(), NotApplied>,
) -> Result<(), NotApplied> {
    if !located.has(Layer::Tcp) {
        return Ok(());
    }
    frame.data().get(located.tcp_options()).map_or(Err(NotApplied), edit)
}

impl FrameFunction for Engine {
    fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
        let rules = self.rules.clone();
        rules.read(|rules| {
            if rules.is_empty() && !rules.drops_by_default {
                return;
            }
            self.egress = self.departures.get(cx.place()).copied().unwrap_or(0);
            self.classify(rules, frames.iter());
            frames.decide(cx, |slot, frame, cx| self.apply(rules, slot, frame, cx));
        });
    }

    fn edges(&self) -> Vec<(Edge, String)> {
        (1..self.outputs).map(|output| (Groups::edge(output), output.to_string())).collect()
    }
}
