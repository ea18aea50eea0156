//! Sections of the report: the rules that decided most, and connections by state.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::{Counter, Flows, Section, TableKey, Worker};

use super::compile::Facts;
use super::connection::Connection;
use super::engine::Counters;
use super::rule::{Tracking, states};
use super::rules::{Engine, Rules};
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::tables::classifier::Matches;
use netbricks_mmb::key::Located;

/// Declares both sections.
pub(super) fn declare(
    rules: &Bounded<Rules>,
    tables: [Flows<FlowKey, Connection>; 2],
    counters: &Counters,
    crowded: &Counter,
    top: usize,
    worker: &Worker,
) {
    let (known, index, counters) = (rules.clone(), worker.index(), counters.clone());
    worker.report(move || {
        let rows = known.read(|rules| rows(rules, index, top));
        let counts = [
            ("policy_packets", counters.policy.get()),
            ("invalid_packets", counters.invalid.get()),
            ("answers", counters.answers.get()),
            ("fragments_without_first", counters.orphans.get()),
        ];
        Section {
            title: "rules".into(),
            columns: ["rule", "packets", "bytes", "connections", "later packets"].map(Into::into).into(),
            rows,
            counts: counts.map(|(name, count)| (name.into(), count)).into(),
            merge: SectionMerge::Largest { by: 1, rows: top },
            ..Section::default()
        }
    });
    let crowded = crowded.clone();
    worker.report(move || Section {
        title: "connections".into(),
        counts: [("not_opened".into(), crowded.get())].into(),
        columns: ["state", "connections"].map(Into::into).into(),
        rows: by_state(&tables).into_iter().map(|(state, count)| vec![state, count.to_string()]).collect(),
        merge: SectionMerge::Sum,
        ..Section::default()
    });
    explain(rules, worker);
}

/// The rules that most packets met, with their counts on this worker.
fn rows(rules: &Rules, worker: usize, top: usize) -> Vec<Vec<String>> {
    let mut met: Vec<(usize, [u64; 5])> = rules
        .built
        .data
        .iter()
        .enumerate()
        .map(|(index, data)| (index, data.totals(Some(worker))))
        .filter(|(_, totals)| totals.iter().any(|total| *total > 0))
        .collect();
    met.sort_unstable_by_key(|(index, [packets, ..])| (Reverse(*packets), *index));
    let row = |(index, [packets, bytes, connections, later, _]): (usize, [u64; 5])| {
        let data = rules.built.data.get(index)?;
        let rule = format!("{}: {}", index + 1, data.text);
        Some(vec![rule, packets.to_string(), bytes.to_string(), connections.to_string(), later.to_string()])
    };
    met.into_iter().take(top).filter_map(row).collect()
}

/// The number of connections by protocol and state.
fn by_state(tables: &[Flows<FlowKey, Connection>; 2]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for table in tables {
        for (key, connection) in table.borrow().iter() {
            let number = FlowKey::restore(key).protocol();
            let name = protocol::name(number).map_or_else(|| number.to_string(), str::to_owned);
            *counts.entry(format!("{name} {}", connection.state_name())).or_default() += 1;
        }
    }
    counts
}

/// Declares the sentence of a trace: the rule that a packet meets as the first of its connection.
fn explain(rules: &Bounded<Rules>, worker: &Worker) {
    // A frame alone does not say by which place it came.
    let mut departures = worker.ports().only_egress();
    let (first, more) = (departures.next().flatten(), departures.next());
    let egress = first.filter(|_| more.is_none()).map_or(0, |port| port + 1);
    let rules = rules.clone();
    worker.explain(move |frame, why| {
        let located = Located::find(frame, LengthSlack { missing: usize::from(u16::MAX), unstated: true });
        if located.ip_at().is_none() {
            return Ok(());
        }
        rules.read(|rules| {
            let built = &rules.built;
            let state = if rules.list.tracking == Tracking::Off { 0 } else { states::NEW };
            let facts = Facts { state, ..Facts::of(&located, frame) };
            let mut key = vec![0; built.layout.words()];
            built.layout.fill(&built.filling, frame, &located, &facts, (0, egress), &mut key);
            let mut found = Matches::new();
            let last = match rules.setup.engine {
                Engine::Linear => built.search(&key, &mut found, Engine::Linear),
                Engine::Compiled if built.has_counts => {
                    built.search(&key, &mut found, Engine::Compiled);
                    found.rules().last()
                }
                Engine::Compiled => built.search(&key, &mut found, Engine::Compiled),
            };
            match last.and_then(|rule| Some((rule, built.data.get(rule as usize)?))) {
                Some((rule, data)) => {
                    write!(why, "as a first packet it meets rule {}, {}", rule + 1, data.text)
                }
                None => write!(why, "no rule is about it: the policy is {}", rules.list.policy.name()),
            }
        })
    });
}
