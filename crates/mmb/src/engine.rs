//! A packet's way through one worker: classified, tracked, rewritten.

use netbricks_core::buffer::{BATCH, Bytes};
use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::operators::ReplaceTcpOptions;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, HashKey};
use netbricks_core::tables::classifier::{Keys, MatchCache, Matches};
use netbricks_core::tables::{Entry, FlowTable, Missed, Table};
use netbricks_core::{
    Context, DropReason, Edge, Flows, FrameFunction, Frames, Groups, StoredFlow, TableKey, Verdict,
};

use crate::action::{self, Action, EditedOptions, NotApplied};
use crate::arrival::{Arrival, First, Fragments, Part, is_signed};
use crate::connection::{Connection, Direction, RuleRef, Segment, Timeouts, VALUES, has_field, with};
use crate::field::Layer;
use crate::key::Located;
use crate::known::{Edition, Judged, Known, Verdicts, may_remember};
use crate::random::Random;
use crate::rule::Mode;
use crate::rules::{RuleData, Rules, Slot};
use crate::translate;

/// Attempts to find values for a connection whose answers are not another's (mmb's `map`).
const TRIES: usize = 8;

/// One worker's part of the function.
pub(crate) struct Engine {
    rules: Bounded<Rules>,
    pub(crate) connections: Flows<FlowKey, Connection>,
    timeouts: Timeouts,
    pub(crate) worker: usize,
    /// The number from 1 of the one port to which packets of each place go, or 0.
    departures: Box<[u16]>,
    /// The same for the place of the batch at hand.
    pub(crate) egress: u16,
    outputs: usize,
    random: Random,
    hash: HashKey,
    pub(crate) is_cached: bool,
    pub(crate) cache: MatchCache,
    /// The version of the classifier's content, and whether it has tables enough for the cache.
    pub(crate) caches: (Option<u64>, bool),
    fragments: Fragments,
    pub(crate) edition: Edition,
    pub(crate) verdicts: Verdicts,
    /// The packets of the batch at hand.
    pub(crate) seen: Vec<Seen>,
    pub(crate) missed: Missed,
    /// The layers of those that are looked at.
    pub(crate) located: Vec<Located>,
    /// Their rules.
    pub(crate) found: Vec<Matches>,
    pub(crate) keys: Keys,
    /// The key vector of a packet whose rules are looked for alone.
    pub(crate) alone: Keys,
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
    /// Seed of what all workers have in common.
    pub(crate) seed: u64,
    /// First fragments of packets.
    pub(crate) fragments: Fragments,
}

/// A packet of a batch, before its rules apply.
#[derive(Clone, Copy)]
pub(crate) enum Seen {
    /// Rules leave it alone.
    LeftAlone,
    /// Its connection seems to be known, and may remember what rules decide.
    Known(Known),
    /// Its flow's verdict is known.
    Judged(Judged),
    /// Its layers and rules have this place.
    At { place: u16, is_plain: bool },
}

/// The decisions of a packet's rules so far.
#[derive(Default)]
struct Decided {
    is_dropped: bool,
    is_accepted: bool,
    output: usize,
    options: EditedOptions,
    /// The slot of the last rule that changed options.
    options_by: u32,
}

/// A packet's connection, and how it belongs to it.
#[derive(Clone, Copy)]
struct Tracked {
    connection: Connection,
    direction: Direction,
    /// Whether it is an ICMP error about the connection.
    is_related: bool,
    /// Whether the packet began it.
    is_new: bool,
}

/// A packet while its rules apply.
struct Subject<'s, 'b> {
    frame: &'s mut Bytes<'b>,
    located: &'s Located,
    arrival: Arrival,
    now: u64,
    /// Whether it is [plain](plain_flow), and the rules of such packets follow from their flows.
    is_by_flow: bool,
}

impl Engine {
    /// An engine that has seen no packet.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { rules, connections, timeouts, worker, egress, outputs, flow_cache, seed, fragments } =
            parts;
        let words = rules.read(|rules| rules.layout.layout().words());
        let mut keys = Keys::new(words);
        // The memory for a whole batch.
        let _ = keys.rows(BATCH);
        // A flow has one way out on all workers. Other values are each worker's own.
        let (mut common, mut random) = (Random::new(seed, 0), Random::new(seed, worker as u64 + 1));
        Self {
            rules,
            connections,
            timeouts,
            worker,
            departures: egress,
            egress: 0,
            outputs,
            hash: HashKey::new([common.next(), common.next()]),
            is_cached: flow_cache > 0,
            cache: MatchCache::new(flow_cache, random.next()),
            random,
            caches: (None, false),
            fragments,
            edition: Edition::default(),
            verdicts: Verdicts::new(flow_cache, seed),
            seen: Vec::with_capacity(BATCH),
            missed: Missed::none(),
            located: Vec::with_capacity(BATCH),
            // One more, for a packet whose rules are looked for alone.
            found: (0..=BATCH).map(|_| Matches::default()).collect(),
            keys,
            alone: Keys::new(words),
            ordered: Vec::with_capacity(64),
            options: ReplaceTcpOptions::new(),
        }
    }

    /// Applies the rules of the packet in this slot of the batch.
    #[inline]
    fn apply(
        &mut self,
        rules: &Rules,
        slot: usize,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        match self.seen[slot] {
            Seen::LeftAlone => Ok(()),
            Seen::Judged(judged) => {
                if let Some(rule) = judged.rule().and_then(|slot| rules.slot(slot))
                    && let Some(count) = rule.data.counts.of(self.worker)
                {
                    count.add(frame.len() as u64, false, cx.now());
                }
                if judged.passes() { Ok(()) } else { Err(Verdict::drop(DropReason::Denied)) }
            }
            Seen::At { place, is_plain } => {
                let located = self.located[usize::from(place)];
                self.apply_rules(rules, (usize::from(place), &located), is_plain, frame, cx)
            }
            Seen::Known(known) => match self.apply_remembered(rules, known, frame, cx.now()) {
                Some(done) => done.map_err(Verdict::drop),
                None => {
                    // Its rules are looked for alone, behind those of the batch.
                    let located = self.locate_alone(rules, frame);
                    self.apply_rules(rules, (self.found.len() - 1, &located), true, frame, cx)
                }
            },
        }
    }

    /// Applies the verdict that a packet's connection remembers, if there is one.
    #[inline]
    fn apply_remembered(
        &mut self,
        rules: &Rules,
        known: Known,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Option<Result<(), DropReason>> {
        let data = frame.data();
        let (rule, direction) =
            known.decide((&self.edition, rules), &mut self.connections.borrow_mut(), &self.timeouts, data)?;
        if let Some(count) = rule.data.counts.of(self.worker) {
            count.add(data.len() as u64, rule.data.is_stateful && direction == Direction::Reply, now);
        }
        Some(if rule.data.verdict() == Some(true) { Ok(()) } else { Err(DropReason::Denied) })
    }

    /// Applies the rules of a packet, which have this place among those that were found.
    fn apply_rules(
        &mut self,
        rules: &Rules,
        (place, located): (usize, &Located),
        is_plain: bool,
        frame: &mut Bytes<'_>,
        cx: &mut Context,
    ) -> Result<(), Verdict> {
        let now = cx.now();
        let asks = rules.stateful > 0 || rules.balancing > 0;
        if !asks && let Some(done) = self.decide_at_once(rules, place, is_plain, frame, now) {
            return done.map_err(Verdict::drop);
        }
        let arrival = match asks {
            true => Arrival::of(located, frame, &mut self.fragments, now),
            false => Arrival::default(),
        };
        let is_by_flow = is_plain && rules.stateful > 0;
        let done = self.decide(rules, place, Subject { frame, located, arrival, now, is_by_flow }, cx);
        if let (Part::First(key), Some(flow)) = (arrival.part, arrival.flow) {
            self.fragments.learn(key, First { flow, is_dropped: done.is_err() }, now);
        }
        match done {
            Ok(0) => Ok(()),
            Ok(output) => Err(Verdict::leave(Groups::edge(output))),
            Err(reason) => Err(Verdict::drop(reason)),
        }
    }

    /// Decides about a packet whose first rule accepts or drops it and does no more, or that no rule means.
    #[inline]
    fn decide_at_once(
        &mut self,
        rules: &Rules,
        place: usize,
        is_plain: bool,
        frame: &Bytes<'_>,
        now: u64,
    ) -> Option<Result<(), DropReason>> {
        if rules.mode != Mode::Ordered {
            return None;
        }
        let first = self.found[place].first();
        let done = match first {
            None => by_policy(rules),
            Some(slot) => {
                let rule = rules.slot(slot)?;
                let accepts = rule.data.verdict()?;
                if let Some(count) = rule.data.counts.of(self.worker) {
                    count.add(frame.len() as u64, false, now);
                }
                if accepts { Ok(()) } else { Err(DropReason::Denied) }
            }
        };
        if is_plain && let Some(flow) = FlowKey::plain_from_frame(frame.data()) {
            self.verdicts.put(&self.edition, flow, Judged::new(done.is_ok(), first));
        }
        Some(done)
    }

    /// Applies the rules to a packet; the way out, or why it is dropped.
    fn decide(
        &mut self,
        rules: &Rules,
        place: usize,
        mut packet: Subject<'_, '_>,
        cx: &mut Context,
    ) -> Result<usize, DropReason> {
        let Subject { arrival, now, .. } = packet;
        let mut tracked = if rules.stateful > 0 { self.track(rules, &arrival, now) } else { None };
        self.order_rules(rules, place, tracked.as_ref());
        let (bytes, mut decided) = (packet.frame.len() as u64, Decided::default());
        // Untranslated, it would show an address that is to be hidden.
        let is_stray = rules.translating > 0
            && tracked.is_none()
            && arrival.is_stray()
            && rules.iter().any(|rule| rule.may_translate(packet.located));
        for place in 0..self.ordered.len() {
            let (_, id) = self.ordered[place];
            let Some(rule) = rules.slot(id) else { continue };
            if rule.data.is_stateful {
                if is_stray && rule.data.may_translate(packet.located) {
                    return Err(DropReason::Fragment);
                }
                self.begin(rules, id, rule, &mut packet, &mut tracked)?;
            }
            if let Some(count) = rule.data.counts.of(self.worker) {
                let is_reply =
                    rule.data.is_stateful && tracked.is_some_and(|of| of.direction == Direction::Reply);
                count.add(bytes, is_reply, now);
            }
            if place == 0 && packet.is_by_flow && rule.data.verdict().is_some() {
                self.remember(tracked.as_ref(), id, now);
            }
            self.execute((id, rule), &mut packet, tracked.as_ref(), &mut decided);
            if rules.mode == Mode::Ordered && (decided.is_dropped || decided.is_accepted) {
                break;
            }
        }
        if !decided.is_accepted && (decided.is_dropped || rules.drops_by_default) {
            return Err(DropReason::Denied);
        }
        if is_stray && !decided.is_accepted {
            return Err(DropReason::Fragment);
        }
        self.write_options(rules, &mut packet, &decided, cx);
        Ok(decided.output)
    }

    /// Has the connection of a plain packet remember the first rule that it met, which decides.
    fn remember(&self, tracked: Option<&Tracked>, rule: u32, now: u64) {
        let Some(Tracked { connection, direction, .. }) = tracked.filter(|of| may_remember(&of.connection))
        else {
            return;
        };
        let mut table = self.connections.borrow_mut();
        if let Entry::Found(mut entry) = table.lookup(connection.origin.canonical().store(), now) {
            self.edition.remember(entry.get_mut(), *direction, rule);
        }
    }

    /// Lists the packet's rules in order: those that match it, and those of its connection.
    fn order_rules(&mut self, rules: &Rules, slot: usize, tracked: Option<&Tracked>) {
        self.ordered.clear();
        let found = self.found[slot].rules();
        self.ordered.extend(found.map(|id| (rules.order_of(id), id)));
        let Some(Tracked { connection, .. }) = tracked else { return };
        for slot in connection.rules.iter().filter_map(|rule| rule.slot.checked_sub(1)) {
            self.ordered.push((rules.order_of(slot), slot));
        }
        self.ordered.sort_unstable();
        self.ordered.dedup();
    }

    /// The connection of a packet, if it has one with a rule that is still there.
    fn track(&mut self, rules: &Rules, arrival: &Arrival, now: u64) -> Option<Tracked> {
        let is_related = arrival.is_error;
        let flow = arrival.connects()?;
        let mut table = self.connections.borrow_mut();
        let mut key = flow.canonical();
        // An answer leads to its connection; one whose translation ended is looked at once more.
        for _ in 0..3 {
            let Entry::Found(mut entry) = table.lookup(key.store(), now) else { return None };
            let connection = entry.get_mut();
            if connection.is_alias {
                key = connection.origin.canonical();
                continue;
            }
            let direction = connection.direction(&flow)?;
            let translated = connection.translated;
            let is_live = connection.resolve(|rule| rules.find(rule));
            if !is_live || !is_related && connection.is_replaced_by(arrival.segment) {
                entry.remove();
                forget_answers(&mut table, &key, &translated, now);
                return None;
            }
            if connection.translated != translated {
                forget_answers(&mut table, &key, &translated, now);
                continue;
            }
            if !is_related && !arrival.is_later() {
                connection.note(direction, arrival.segment);
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
            return Some(Tracked { connection, direction, is_related, is_new: false });
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
    ) -> Result<(), DropReason> {
        if tracked.as_ref().is_some_and(|of| of.is_related || of.connection.place_of(rule.id) != 0) {
            return Ok(());
        }
        let Arrival { segment, is_error: false, .. } = packet.arrival else { return Ok(()) };
        let Some(flow) = packet.arrival.connects().filter(|_| !packet.arrival.is_later()) else {
            return Ok(());
        };
        let maps = rule.data.maps(packet.located, packet.frame.data());
        if maps && tracked.as_ref().is_some_and(|of| of.direction == Direction::Reply) {
            // An answer is of a connection that began without the rule, and which keeps its tuple.
            return Ok(());
        }
        // An earlier rule may have begun the connection on the same packet.
        let is_new = tracked.is_none_or(|of| of.is_new);
        let mut connection = tracked.map_or_else(|| Connection::new(flow), |of| of.connection);
        let Some(place) = connection.join(RuleRef { slot: id + 1, id: rule.id }) else {
            self.not_applied(&rule.data);
            return Ok(());
        };
        if tracked.is_none() {
            connection.note(Direction::Forward, segment);
        }
        // A connection has the values of one rule, and the sequence numbers of one.
        let is_free = is_new && connection.shifted_by == 0;
        if self.shuffles(&rule.data, packet, segment, is_free) {
            (connection.shifted_by, connection.shift) = (place, self.shifts(&rule.data));
        }
        let was = connection.translated;
        if maps && connection.mapped_by != 0 {
            self.not_applied(&rule.data);
        } else if maps {
            connection.mapped_by = place;
            self.choose(&rule.data, &mut connection, packet).ok_or(DropReason::TableFull)?;
        }
        let stored = self.store(&connection, connection.translated != was, packet.now);
        stored.ok_or(DropReason::TableFull)?;
        let direction = tracked.map_or(Direction::Forward, |of| of.direction);
        debug_assert!(rules.find(connection.rules[usize::from(place) - 1]) == Some(id));
        *tracked = Some(Tracked { connection, direction, is_related: false, is_new });
        Ok(())
    }

    /// Whether sequence numbers of a new connection can be translated.
    ///
    /// They cannot where they are authenticated, where the connection's beginning was not seen, or where another rule
    /// translates them (`is_free` says neither).
    fn shuffles(
        &self,
        rule: &RuleData,
        packet: &Subject<'_, '_>,
        segment: Option<Segment>,
        is_free: bool,
    ) -> bool {
        if !rule.actions.iter().any(|action| matches!(action, Action::ShuffleSequence(_))) {
            return false;
        }
        let options = packet.frame.data().get(packet.located.tcp_options()).unwrap_or_default();
        let is_authenticated = is_signed(options) || packet.located.has_ah();
        let begins = is_free && segment.is_some_and(|seen| seen.flags & flags::SYN != 0);
        if !begins || is_authenticated {
            self.not_applied(rule);
        }
        begins && !is_authenticated
    }

    fn shifts(&mut self, rule: &RuleData) -> [u32; 2] {
        let mut shift = [0; 2];
        for action in rule.actions.iter() {
            if let Action::ShuffleSequence(of_first) = action {
                // Not 0, by which nothing would change.
                shift[usize::from(!of_first)] = self.random.below(u128::from(u32::MAX)) as u32 + 1;
            }
        }
        shift
    }

    /// Gives a connection its mapped values. The answers to it must not be those of another.
    fn choose(
        &mut self,
        rule: &RuleData,
        connection: &mut Connection,
        packet: &Subject<'_, '_>,
    ) -> Option<()> {
        let (located, frame, now) = (packet.located, packet.frame.data(), packet.now);
        for _ in 0..TRIES {
            let (mut translated, mut values, mut others) = (connection.origin, [0u32; VALUES], 0);
            for action in rule.actions.iter() {
                match action {
                    Action::MapEnd(field, end, choices) if has_field(*field, located, frame) => {
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
        (id, rule): (u32, &Slot),
        packet: &mut Subject<'_, '_>,
        tracked: Option<&Tracked>,
        decided: &mut Decided,
    ) {
        // What a connection's other rules chose is theirs to write.
        let place = tracked.filter(|_| rule.data.is_stateful).map_or(0, |of| of.connection.place_of(rule.id));
        let of = |by: fn(&Connection) -> u8| tracked.filter(|of| place != 0 && by(&of.connection) == place);
        let (mapped, shifted) = (of(|of| of.mapped_by), of(|of| of.shifted_by));
        let mut values = mapped.map(|of| of.connection.values).into_iter().flatten();
        // Addresses and ports are written together, and so are sequence numbers.
        let mut written = (false, false);
        for action in rule.data.actions.iter() {
            let Subject { frame, located, arrival, .. } = packet;
            let done = match action {
                Action::Write(field, value) => action::write(frame, located, *field, *value),
                Action::WritePayload(field, bytes) => action::write_payload(frame, located, *field, bytes),
                Action::WriteOption(kind, bytes) if decided.options.is_changed => {
                    decided.options_by = id;
                    decided.options.write(*kind, bytes)
                }
                Action::WriteOption(kind, bytes) => action::write_option(frame, located, *kind, bytes),
                Action::Strip(kinds) => {
                    decided.options_by = id;
                    with_options(frame, located, |options| decided.options.strip(options, *kinds))
                }
                Action::AddOption(kind, data) => {
                    decided.options_by = id;
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
                Action::MapEnd(..) => match mapped.filter(|_| !std::mem::replace(&mut written.0, true)) {
                    Some(of) => of.translate(frame, located),
                    None => Ok(()),
                },
                Action::ShuffleSequence(_) => {
                    match shifted.filter(|_| !std::mem::replace(&mut written.1, true)) {
                        Some(of) => of.shift(frame, located, arrival.segment, &mut decided.options),
                        None => Ok(()),
                    }
                }
            };
            if done.is_err() {
                self.not_applied(&rule.data);
            }
        }
    }

    /// The way out of a flow: both directions have the same.
    fn balance(&self, outputs: &[u8], packet: &Subject<'_, '_>) -> usize {
        let hash = packet.arrival.flow.map_or(0, |flow| self.hash.symmetric(&flow));
        let place = ((u128::from(hash) * outputs.len() as u128) >> 64) as usize;
        outputs.get(place).map_or(0, |output| usize::from(*output).min(self.outputs.saturating_sub(1)))
    }

    /// Writes options that rules changed, which moves bytes, last.
    fn write_options(
        &mut self,
        rules: &Rules,
        packet: &mut Subject<'_, '_>,
        decided: &Decided,
        cx: &mut Context,
    ) {
        if decided.options.is_changed
            && self.options.replace(packet.frame, decided.options.bytes(), cx).is_err()
            && let Some(rule) = rules.slot(decided.options_by)
        {
            self.not_applied(&rule.data);
        }
    }

    fn not_applied(&self, rule: &RuleData) {
        if let Some(count) = rule.counts.of(self.worker) {
            count.add_not_applied();
        }
    }
}

impl Tracked {
    /// Writes the addresses and ports that the packet has on the other side.
    fn translate(&self, frame: &mut Bytes<'_>, located: &Located) -> Result<(), NotApplied> {
        let Self { connection, direction, is_related, .. } = self;
        match is_related {
            true => translate::related(frame, located, connection, *direction),
            false => translate::endpoints(frame, located, connection, *direction),
        }
    }

    /// Writes the sequence numbers that it has there.
    fn shift(
        &self,
        frame: &mut Bytes<'_>,
        located: &Located,
        segment: Option<Segment>,
        options: &mut EditedOptions,
    ) -> Result<(), NotApplied> {
        let Self { connection: Connection { shift, .. }, direction, is_related, .. } = self;
        if *is_related {
            return translate::quoted_sequence_number(frame, located, *direction, *shift);
        }
        let Some(segment) = segment else { return Ok(()) };
        translate::selective(segment, options.bytes_mut(), *direction, *shift);
        translate::sequence_numbers(frame, located, segment, (*direction, *shift))
    }
}

/// The fate of a packet that no rule accepts or drops.
#[inline(always)]
fn by_policy(rules: &Rules) -> Result<(), DropReason> {
    if rules.drops_by_default { Err(DropReason::Denied) } else { Ok(()) }
}

/// Takes out the way to a connection from its answers, which lies under the canonical key of this tuple.
fn forget_answers(
    table: &mut FlowTable<StoredFlow, Connection>,
    key: &FlowKey,
    translated: &FlowKey,
    now: u64,
) {
    let answers = translated.canonical();
    if answers != *key
        && table
            .get_at(&answers.store(), now)
            .is_some_and(|known| known.is_alias && known.origin.canonical() == *key)
    {
        table.remove(&answers.store());
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
            self.look(rules, frames.iter(), cx.now());
            frames.decide(cx, |slot, frame, cx| self.apply(rules, slot, frame, cx));
        });
    }

    fn edges(&self) -> Vec<(Edge, String)> {
        (1..self.outputs).map(|output| (Groups::edge(output), output.to_string())).collect()
    }
}
