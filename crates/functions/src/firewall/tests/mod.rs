mod fragments;
mod generate;
mod language;
mod live;
mod model;
mod rejected;
mod tracked;
mod verdicts;

use netbricks_testkit::{Clocked, Report, run_node};

use super::{FirewallConfig, node};

/// A firewall with these lines.
fn with(lines: &[&str]) -> FirewallConfig {
    FirewallConfig::of(lines.iter().copied())
}

fn clocked(config: FirewallConfig) -> Clocked {
    Clocked::of_node(move |worker| node(&config, worker))
}

fn run(config: FirewallConfig, frames: impl IntoIterator<Item = Vec<u8>>) -> Report {
    run_node(move |worker| node(&config, worker), frames)
}
