//! The first look at a batch.
//!
//! It finds the connections or verdicts of known flows, and the layers and rules of all other packets.

use netbricks_core::buffer::{Bytes, Packet};
use netbricks_core::packet::FlowKey;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::tables::classifier::Matches;
use netbricks_core::tables::{FlowTable, Missed, Table, prefetch};
use netbricks_core::{StoredFlow, TableKey};

use crate::engine::{Engine, Seen};
use crate::key::Located;
use crate::known::{Known, Short, plain_flow};
use crate::rules::Rules;

/// Tables of the classifier from which on a flow's rules are remembered: fewer are asked as fast.
const WORTH_CACHING: usize = 3;
/// Rules from which on their counts do not stay in the cache.
const MANY: usize = 1_024;

impl Engine {
    /// Looks at all packets: finds the connections of some, and the layers and rules of all others.
    pub(crate) fn look<'p>(
        &mut self,
        rules: &Rules,
        packets: impl Iterator<Item = &'p Packet> + Clone,
        now: u64,
    ) {
        self.seen.clear();
        self.located.clear();
        self.edition.update(rules);
        match self.edition.is_by_flow {
            true => self.find_known(rules, packets.clone(), now),
            false => self.look_at_all(rules, packets.clone()),
        }
        if self.edition.is_by_flow && rules.stateful == 0 {
            self.find_verdicts(rules);
        }
        let count = self.seen.iter().filter(|seen| matches!(seen, Seen::At { .. })).count();
        if count > 0 {
            self.classify(rules, packets, count);
        }
    }

    /// Has all packets looked at but those that rules leave alone.
    fn look_at_all<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet>) {
        let seen = |packet: &Packet| match is_left_alone(rules, packet) {
            true => Seen::LeftAlone,
            false => Seen::At { place: 0, is_plain: false },
        };
        self.seen.extend(packets.map(seen));
    }

    /// Asks memory for the flows of plain packets, and tells which of them seem to be there.
    fn find_known<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet> + Clone, now: u64) {
        if rules.stateful > 0 {
            let mut table = self.connections.borrow_mut();
            table.tell(now);
            ask(rules, &*table, FlowKey::canonical, packets, (&mut self.seen, &mut self.missed));
        } else if let Some(table) = self.verdicts.begin(packets.clone().count()) {
            ask(rules, table, |flow| *flow, packets, (&mut self.seen, &mut self.missed));
        } else {
            self.look_at_all(rules, packets);
            return;
        }
        // Their places among the packets that were asked for.
        let mut missed = self.missed.iter().peekable();
        if missed.peek().is_some() {
            let known = self.seen.iter_mut().filter(|seen| matches!(seen, Seen::Known(_)));
            for (place, seen) in known.enumerate() {
                if missed.next_if_eq(&place).is_some() {
                    *seen = Seen::At { place: 0, is_plain: true };
                }
            }
        }
    }

    /// Looks the verdicts of known flows up, and asks memory for the counts of their rules.
    fn find_verdicts(&mut self, rules: &Rules) {
        for seen in &mut self.seen {
            if let Seen::Known(known) = seen {
                *seen = match self.verdicts.get(&self.edition, known) {
                    Some(judged) => Seen::Judged(judged),
                    None => Seen::At { place: 0, is_plain: true },
                };
            }
        }
        let rule = |seen: &Seen| match seen {
            Seen::Judged(judged) => judged.rule(),
            _ => None,
        };
        ask_for_counts(rules, self.worker, self.seen.iter().filter_map(rule));
    }

    /// Finds the layers of those packets that have no known connection, and their rules.
    fn classify<'p>(&mut self, rules: &Rules, packets: impl Iterator<Item = &'p Packet>, count: usize) {
        self.have_words(rules.classifier.layout().words());
        let mut keys = self.keys.rows(count);
        for (packet, seen) in packets.zip(&mut self.seen) {
            let Seen::At { place, .. } = seen else { continue };
            let Some(key) = keys.next() else { break };
            *place = self.located.len() as u16;
            self.located.push(locate(rules, packet, self.egress, key));
        }
        drop(keys);
        let version = Some(rules.classifier.version());
        if self.caches.0 != version {
            self.caches = (version, rules.classifier.tables().nth(WORTH_CACHING - 1).is_some());
        }
        let is_remembered = self.edition.is_by_flow && (rules.stateful > 0 || self.verdicts.is_on());
        match self.is_cached && self.caches.1 && !is_remembered {
            true => self.cache.matches_batch(&rules.classifier, &self.keys, &mut self.found),
            false => rules.classifier.matches_batch(&self.keys, &mut self.found),
        }
        let found = self.found.iter().take(count).filter_map(Matches::first);
        ask_for_counts(rules, self.worker, found);
    }

    /// Has key vectors of so many words: rules test other fields by now.
    #[inline]
    fn have_words(&mut self, words: usize) {
        if self.keys.width() != words {
            self.keys.reset(words);
            self.alone.reset(words);
        }
    }

    #[cold]
    pub(crate) fn locate_alone(&mut self, rules: &Rules, frame: &Bytes<'_>) -> Located {
        self.have_words(rules.classifier.layout().words());
        let slack = netbricks_core::length_slack(frame);
        // Rules that follow from the flow test no port of arrival.
        let ports = (0, self.egress);
        let located = match self.alone.rows(1).next() {
            Some(key) => locate_in(rules, frame.data(), slack, ports, key),
            None => Located::find(frame.data(), slack),
        };
        if let (Some(key), Some(found)) = (self.alone.get(0), self.found.last_mut()) {
            rules.classifier.matches(key, found);
        }
        located
    }
}

/// Asks memory for the counts of rules, where there are many.
#[inline(always)]
fn ask_for_counts(rules: &Rules, worker: usize, slots: impl Iterator<Item = u32> + Clone) {
    if rules.len() < MANY {
        return;
    }
    // Each step reads what the one before asked for.
    slots.clone().for_each(|slot| rules.prefetch(slot));
    let data = slots.filter_map(|slot| rules.slot(slot)).map(|rule| &rule.data);
    data.clone().for_each(|data| prefetch(&data.counts));
    data.filter_map(|data| data.counts.of(worker)).for_each(|count| prefetch(count));
}

/// Asks memory for the flows of plain packets, under the keys that they have in the table.
#[inline(always)]
fn ask<'p, V: 'static>(
    rules: &Rules,
    table: &FlowTable<StoredFlow, V>,
    key: impl Fn(&FlowKey) -> FlowKey,
    packets: impl Iterator<Item = &'p Packet>,
    (seen, missed): (&mut Vec<Seen>, &mut Missed),
) {
    let hasher = table.hasher();
    let look = |packet: &Packet| {
        if is_left_alone(rules, packet) {
            return Seen::LeftAlone;
        }
        let Some(flow) = plain_flow(packet) else { return Seen::At { place: 0, is_plain: false } };
        let stored = key(&flow).store();
        let ticket = FlowTable::<StoredFlow, V>::hash(&hasher, &stored);
        match FlowTable::<StoredFlow, V>::shorten(&stored) {
            Some(short) => Seen::Known(Known { key: short, ticket, is_reversed: !flow.is_canonical() }),
            None => Seen::At { place: 0, is_plain: false },
        }
    };
    seen.extend(packets.map(look));
    let keys = seen.iter_mut().filter_map(|seen| match seen {
        Seen::Known(known) => Some((Short(known.key), &mut known.ticket)),
        _ => None,
    });
    table.prefetch_all(keys, missed);
}

/// Whether rules leave a packet alone: its port is disabled.
#[inline(always)]
fn is_left_alone(rules: &Rules, packet: &Packet) -> bool {
    !rules.disabled.is_empty() && rules.disabled.contains(&packet.ingress().saturating_add(1))
}

/// Finds a packet's layers, and fills its key vector.
#[inline]
fn locate(rules: &Rules, packet: &Packet, egress: u16, key: &mut [u32]) -> Located {
    let slack = LengthSlack { missing: packet.missing(), unstated: packet.is_length_unstated() };
    locate_in(rules, packet.data(), slack, (packet.ingress().saturating_add(1), egress), key)
}

#[inline]
fn locate_in(rules: &Rules, data: &[u8], slack: LengthSlack, ports: (u16, u16), key: &mut [u32]) -> Located {
    let located = Located::find(data, slack);
    rules.filling.fill(&rules.layout, data, &located, ports, key);
    located
}
