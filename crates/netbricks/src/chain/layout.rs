//! The names of a network's parts, for reports that come after its plan is gone.

use super::{Network, roots};
use crate::config::Plan;

/// The names by which a report sorts and explains the nodes of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The uses of functions, in the order of the chains: the node, and its function.
    pub(crate) uses: Vec<(String, String)>,
    unanswered: Vec<Unanswered>,
}

/// A use whose answers, if it gives any, have nowhere to go.
#[derive(Clone, Debug)]
struct Unanswered {
    node: String,
    function: String,
    /// Where its packets come from.
    origin: String,
}

impl Network {
    /// The names of its parts.
    pub(crate) fn layout(&self, plan: &Plan<'_>) -> Layout {
        let function = |number: usize| plan.functions[self.uses[number].function].name.clone();
        let roots = if plan.chains.is_empty() { Vec::new() } else { roots(plan) };
        let unanswered = self.unanswered.iter().map(|number| {
            let chain = self.uses[*number].chain;
            let ports: Vec<String> =
                roots[chain].iter().map(|port| format!("`{}`", plan.ports[*port].name)).collect();
            let origin = match ports.as_slice() {
                [port] => format!("port {port}, which only receives"),
                _ => format!("ports {}", ports.join(" and ")),
            };
            Unanswered { node: self.uses[*number].name.clone(), function: function(*number), origin }
        });
        Layout {
            uses: (0..self.uses.len())
                .map(|number| (self.uses[number].name.clone(), function(number)))
                .collect(),
            unanswered: unanswered.collect(),
        }
    }
}

impl Layout {
    /// Warnings about uses whose answers were dropped because they had no way back.
    ///
    /// Their packets come from several ports, so that none of them is the place for answers, or from a port
    /// that cannot send. A warning is given only after answers were dropped, because only then is it known
    /// that the function answers. `answers` says how many a node dropped so.
    pub(crate) fn unanswered(&self, answers: impl Fn(&str) -> u64) -> Vec<String> {
        let told = self.unanswered.iter().filter_map(|Unanswered { node, function, origin }| {
            let answers = answers(node);
            (answers > 0).then(|| {
                format!(
                    "{answers} answers of `{node}` had nowhere to go (dropped as `unconnected`): its packets come from \
                     {origin}, so say where they belong: `[[chain]]` with `from = \"{function}.reply\"` and `to`"
                )
            })
        });
        told.collect()
    }

    /// The same with the parts of the layout before it that are gone, so that a report still names them.
    pub(crate) fn after(mut self, before: &Self) -> Self {
        let known = |name: &str, uses: &[(String, String)]| uses.iter().any(|(node, _)| node == name);
        let gone: Vec<_> = before.uses.iter().filter(|(node, _)| !known(node, &self.uses)).cloned().collect();
        self.uses.extend(gone);
        self
    }
}
