//! Finds pipelines in which a function with state by flow would see only half of its flows.
//!
//! The directions of a flow come to it on different workers, or to different functions. A chain file gets a
//! shuffle there; a pipeline gets a warning.

use std::collections::BTreeSet;

use crate::chain::{Design, Division, Network, Parted, Place, Split};
use crate::config::Plan;

/// Queues that pipelines begin at: each queue's port, and the place where its packets come in.
pub(super) type Begun = [(usize, Place)];

/// The warnings about such functions.
///
/// In `network`, ports stand in place of their queues. `shares` has, by worker, the numbers of port and
/// queue.
pub(super) fn warnings(
    plan: &Plan<'_>,
    network: &Network,
    design: &Design,
    divisions: &[Division],
    begun: &Begun,
    shares: &[Vec<(usize, usize)>],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut apart = BTreeSet::new();
    for (port, division) in divisions.iter().enumerate() {
        if division.queues < 2 || division.symmetric {
            continue;
        }
        let ways: Vec<BTreeSet<usize>> = begun
            .iter()
            .filter(|(of, _)| *of == port)
            .map(|(_, place)| by_flow(*place, network, design))
            .collect();
        if let Some((one, other)) = told_apart(&ways, design) {
            apart.insert(port);
            warnings.push(format!(
                "the queues of port `{}` may bring the two directions of a flow to `{one}` and to `{other}`, which keep state \
                 by flow each for itself; `merge` what the queues receive, and let a `shuffle` come before one `{one}`",
                plan.ports[port].name
            ));
        }
    }
    let parted = network.parted_among(plan, divisions, shares);
    warnings.extend(parted.into_iter().filter(|Parted { number, .. }| !apart.contains(number)).map(
        |Parted { why, .. }| format!("{why}; `merge` what comes to it, and let a `shuffle` come before it"),
    ));
    warnings.extend(network.split_among(plan, shares).iter().map(Split::line));
    warnings.extend(network.unmet(plan, shares.len()).into_iter().map(|unmet| unmet.message));
    warnings.dedup();
    warnings
}

/// The functions with state by flow that packets from this place may reach.
fn by_flow(from: Place, network: &Network, design: &Design) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(place) = next.pop() {
        let wires = design.wires.iter().filter(|wire| wire.from == place);
        next.extend(wires.map(|wire| wire.to).filter(|to| reached.insert(*to)));
    }
    let function = |place: Place| match place {
        Place::Use(number) => network.by_flow[number].then_some(number),
        _ => None,
    };
    reached.into_iter().filter_map(function).collect()
}

/// Two functions with the same given name that each see only one of two ways.
///
/// They come from a pipeline that is written once and made for every queue.
fn told_apart<'d>(ways: &[BTreeSet<usize>], design: &'d Design) -> Option<(&'d str, &'d str)> {
    let name = |function: &usize| design.uses[*function].0.as_str();
    let given = |name: &'d str| name.rsplit_once('#').map_or(name, |(given, _)| given);
    let first = ways.first()?;
    ways.iter().skip(1).find_map(|way| {
        first.difference(way).find_map(|one| {
            let like = way.difference(first).find(|other| given(name(one)) == given(name(other)))?;
            Some((name(one), name(like)))
        })
    })
}
