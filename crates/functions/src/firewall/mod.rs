//! Allows, denies and rejects packets by ordered rules, and follows connections (NetBricks, section 5.2 and Table 1).
//!
//! Rules are lines such as `allow tcp from 10.0.0.0/8 to any port 443`. A connection that a rule allows passes in both
//! directions, with the ICMP errors about it. The folder's `README.md` has the grammar.

mod cache;
mod compile;
mod config;
mod connection;
mod engine;
mod fragments;
mod handlers;
mod language;
mod lexer;
mod log;
mod print;
mod reject;
mod report;
mod rule;
mod rules;
mod state;
mod tcp;
#[cfg(test)]
mod tests;
mod track;
mod values;

pub use config::{FirewallConfig, FragmentPolicy, NonIp, WhenFull};
pub use language::{parse_rule, parse_rules};
pub use rule::{
    Action, Answer, Choice, End, FlagTest, Policy, Rule, RuleList, Sets, Span, Tracking, ValueKind, Version,
    states,
};
pub use rules::Engine;

use std::sync::Arc;

use netbricks_core::consistency::{Access, BoundedInconsistency};
use netbricks_core::packet::FlowKey;
use netbricks_core::tables::{FlowTableConfig, Full};
use netbricks_core::{BuildError, EVENTS, Node, Worker, compose_frames};

use connection::Connection;
use engine::{Counters, Parts};
use fragments::{Decision, FragmentKey};
use handlers::Subject;
use log::Logged;
use state::First;
use track::Tracker;

/// Makes the node of the function.
///
/// # Errors
/// When its tables do not fit into memory, or a rule names a port that is not there.
pub fn node(config: &FirewallConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_frames(worker, || {
        let lines = config.text().unwrap_or_else(|refused| {
            worker.fail(BuildError::new(refused));
            Arc::default()
        });
        let first = First { setup: config.setup(worker), lines };
        let rules = worker.state("rules", BoundedInconsistency { updates: 0 }, first);
        let timeouts = config.timeouts();
        let table = |capacity, full| FlowTableConfig {
            capacity,
            idle_timeout: Some(timeouts.longest()),
            full,
            seed: worker.seed(),
        };
        let full = match config.full {
            WhenFull::Refuse => Full::EvictExpired,
            WhenFull::Oldest => Full::EvictOldest,
        };
        let open = worker.flow_table::<FlowKey, Connection>("connections", table(config.connections, full));
        let opening =
            worker.flow_table::<FlowKey, Connection>("opening", table(config.opening, Full::EvictOldest));
        let fragments = worker.flow_table::<FragmentKey, Decision>(
            "fragments",
            FlowTableConfig {
                idle_timeout: Some(config::FRAGMENT_TIME),
                ..table(config.fragment_table, Full::EvictOldest)
            },
        );
        let known = rules.clone();
        let log = worker.event_log(EVENTS, config.log, move |logged: &Logged, to| {
            known.read(|rules| to.write_str(&logged.json(rules)))
        });
        let counters = Counters {
            policy: worker.counter("policy"),
            invalid: worker.counter("invalid"),
            answers: worker.counter("answers"),
            orphans: worker.counter("fragments-without-first"),
        };
        handlers::declare(
            Subject { rules: rules.clone(), open: open.clone(), opening: opening.clone(), log: log.clone() },
            worker,
        );
        let crowded = worker.counter("not-opened");
        report::declare(&rules, [open.clone(), opening.clone()], &counters, &crowded, config.top, worker);
        engine::Engine::new(Parts {
            rules,
            open,
            opening,
            fragments,
            log,
            tracker: Tracker { timeouts, picks_up: config.pick_up, verifies: config.verify, crowded },
            errors: config.errors(),
            counters,
            non_ip: config.non_ip,
            fragment_policy: config.fragments,
            cache: cache::FlowCache::new(
                if worker.is_control() { 0 } else { config.flow_cache },
                worker.seed(),
            ),
            worker: worker.index(),
            egress: worker.ports().only_egress().map(|port| port.map_or(0, |port| port + 1)).collect(),
        })
    })
}
