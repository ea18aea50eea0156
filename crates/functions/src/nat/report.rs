//! The function's section in reports, and its sentence in traces.

use std::collections::BTreeMap;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::FlowKey;
use netbricks_core::{Section, State, Worker};

use super::fragments::Fragments;
use super::handlers::name;
use super::session::Direction;
use super::state::State as Translations;

/// Counts by name, as the handler `counters` and reports show them.
pub(super) fn counts(state: &Translations, fragments: &Fragments) -> BTreeMap<String, u64> {
    let tally = state.tally;
    let counts = [
        ("sessions", state.sessions.len() as u64),
        ("mappings", state.mappings.len() as u64),
        ("subscribers", state.subscribers.len() as u64),
        ("sessions_made", tally.sessions_made),
        ("mappings_made", tally.mappings_made),
        ("sessions_expired", tally.expired),
        ("refused_exhausted", tally.exhausted),
        ("refused_by_limits", tally.limited),
        ("refused_as_ambiguous", tally.conflicting),
        ("sessions_not_admitted", tally.not_admitted),
        ("ports_held_down", state.ports.held_down() as u64),
        ("pcp_mappings", state.pcp.mappings.len() as u64),
        ("pcp_requests", state.pcp.tally.requests),
        ("pcp_refused", state.pcp.tally.refused),
        ("pcp_ignored", state.pcp.tally.ignored),
        ("log_events_lost", state.log.lost),
        ("fragments_waiting", fragments.waiting() as u64),
        ("fragments_given_up", fragments.given_up),
    ];
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Addresses that a report shows.
const MOST_ROWS: usize = 64;

/// Declares the report's section and the sentence of traces.
pub(super) fn declare(state: &State<Translations>, fragments: &State<Fragments>, worker: &Worker) {
    let (shown, pieces) = (state.clone(), fragments.clone());
    worker.report(move || {
        let state = shown.borrow();
        let rows = state.ports.iter().take(MOST_ROWS).map(|(_, place)| {
            let mut row = vec![place.address.to_string(), name(place.status).to_owned()];
            row.extend([place.subscribers, place.mappings].map(|count| count.to_string()));
            row.extend(place.in_use.map(|count| count.to_string()));
            row
        });
        Section {
            title: "outside addresses".into(),
            columns: ["address", "status", "subscribers", "mappings", "tcp", "udp", "icmp"]
                .map(Into::into)
                .into(),
            rows: rows.collect(),
            of: Some(state.ports.iter().count() as u64),
            counts: counts(&state, &pieces.borrow()),
            merge: SectionMerge::Sum,
        }
    });
    let shown = state.clone();
    worker.explain(move |frame, why| {
        let state = shown.borrow();
        let Some(flow) = FlowKey::related_from_frame(frame) else { return Ok(()) };
        let Some((direction, number)) = state.peek(&flow) else {
            return match state.is_outside(flow.destination()) {
                true => write!(why, "no session has this flow; a mapping of {} decides", flow.destination()),
                false => Ok(()),
            };
        };
        let Some(to) = state.translated(number, direction) else { return Ok(()) };
        match direction {
            Direction::Out => write!(why, "session: source {} becomes {}", flow.source(), to.source),
            Direction::In => {
                write!(why, "session: destination {} becomes {}", flow.destination(), to.destination)
            }
        }
    });
}
