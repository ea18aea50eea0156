//! The fate of the state of functions that a change replaces or updates.
//!
//! A plan touches nothing. It asks running nodes for the terms of their state, and nodes that never run for the
//! decision that the change itself asks its new nodes for.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_control::api::{self, CarriedState, StateWay};
use netbricks_core::{StateSuccession, StateTerms, Succession, Way};
use netbricks_runtime::NodeTerms;

use super::installed::{Installed, InstalledFunction};
use super::prepare::{Basis, Candidate};

/// A function whose state is to be told.
struct Asked<'i> {
    /// The place of its change.
    change: usize,
    known: &'i InstalledFunction,
    /// Its number in the new configuration, where its node is made again.
    made_again: Option<usize>,
}

impl Basis {
    /// Tells of each function that is replaced or updated how its state goes on.
    pub(super) fn tell_states(&self, candidate: &mut Candidate) {
        let Candidate { installed, difference, warnings, .. } = candidate;
        let installed = &*installed;
        let asked = difference.changes.iter().enumerate().filter_map(|(change, of)| {
            let made_again = match of.kind {
                _ if of.part != "function" => return None,
                api::ChangeKind::Replaced => true,
                api::ChangeKind::Updated => false,
                api::ChangeKind::Added | api::ChangeKind::Removed => return None,
            };
            // All nodes of a function with state are one on a worker, and the first answers for it.
            let before = self.installed().functions.iter().find(|known| known.name == of.name);
            let number = installed.functions.iter().position(|new| new.name == of.name)?;
            // Nor is a shuffle asked, whose node would take its end of the rings.
            let known = before.filter(|known| known.is_one_node() && !installed.design.crosses[number])?;
            Some(Asked { change, known, made_again: made_again.then_some(number) })
        });
        let asked: Vec<Asked<'_>> = asked.collect();
        let nodes: BTreeSet<String> = asked.iter().filter_map(|of| of.known.nodes.first().cloned()).collect();
        // Workers are asked only where there is something to tell.
        if nodes.is_empty() {
            return;
        }
        let workers = self.control().state_terms(&nodes);
        let silent = self.control().workers().saturating_sub(workers.len());
        if silent > 0 {
            warnings.push(format!(
                "{silent} of {} workers did not tell of their state: the plan lacks it",
                self.control().workers()
            ));
        }
        for Asked { change, known, made_again } in asked {
            let terms = workers.iter().filter_map(|terms| terms.get(known.nodes.first()?));
            difference.changes[change].states = match made_again {
                None => carried(terms, |_| Vec::new()),
                Some(number) => {
                    let is_undone = |node: &String| difference.kept.undone.contains(node);
                    let undoes = installed.functions[number].nodes.first().is_some_and(is_undone);
                    let terms: Vec<&NodeTerms> = terms.collect();
                    let mut decided = self.successions(installed, number, &terms, undoes).into_iter();
                    carried(terms.into_iter(), |_| decided.next().unwrap_or_default())
                }
            };
        }
    }

    /// The decisions of a node of a new function for the state of each worker.
    ///
    /// It never runs and shares no state with others.
    fn successions(
        &self,
        installed: &Installed,
        number: usize,
        terms: &[&NodeTerms],
        undoes: bool,
    ) -> Vec<Vec<StateSuccession>> {
        let design = &installed.design;
        let worker = self.trial_worker().among(design.ports_of(number));
        let decided = design.functions[number].ask(&worker, |node| -> Vec<Vec<StateSuccession>> {
            terms.iter().map(|terms| node.successions(terms, undoes)).collect()
        });
        decided
            .unwrap_or_else(|error| terms.iter().map(|terms| all_anew(terms, &error.to_string())).collect())
    }
}

/// The states of a node in whose place none decides.
fn all_anew(terms: &[(String, StateTerms)], problem: &str) -> Vec<StateSuccession> {
    let anew = |(name, _): &(String, StateTerms)| StateSuccession {
        name: name.clone(),
        succession: Succession::anew(format!("the new node does not decide: {problem}")),
    };
    terms.iter().map(anew).collect()
}

/// The states of a function on all workers; those about which nothing is decided go on as they are.
fn carried<'t>(
    workers: impl Iterator<Item = &'t NodeTerms>,
    mut decide: impl FnMut(&[(String, StateTerms)]) -> Vec<StateSuccession>,
) -> Vec<CarriedState> {
    let mut all: Vec<CarriedState> = Vec::new();
    for terms in workers {
        let decided: BTreeMap<String, _> =
            decide(terms).into_iter().map(|of| (of.name, of.succession)).collect();
        for (name, terms) in terms {
            let (way, reason) = match decided.get(name) {
                Some(succession) => (way(succession.way), succession.reason.clone()),
                None => (StateWay::Whole, String::new()),
            };
            let entries = terms.entries();
            let moves = entries > 0 && matches!(way, StateWay::InSteps | StateWay::Copied);
            let bytes = terms.bytes().filter(|_| moves);
            let Some(known) = all.iter_mut().find(|known| known.name == *name) else {
                all.push(CarriedState { name: name.clone(), way, entries, bytes, reason });
                continue;
            };
            if way > known.way {
                (known.way, known.reason) = (way, reason);
            }
            // Each worker tells of the same entries where they share them.
            if !terms.is_shared() {
                known.entries += entries;
                known.bytes = known.bytes.into_iter().chain(bytes).reduce(u64::saturating_add);
            }
        }
    }
    all
}

const fn way(way: Way) -> StateWay {
    match way {
        Way::Whole => StateWay::Whole,
        Way::InSteps => StateWay::InSteps,
        Way::Copied => StateWay::Copied,
        Way::Anew => StateWay::Anew,
    }
}
