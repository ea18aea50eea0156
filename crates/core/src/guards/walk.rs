//! The walk from a receive node: the paths that its packets may take, each with the guards along it.
//!
//! A path ends at a node with state by flow, at one that may change headers or of which nothing is known, and where
//! the graph ends. It also ends where a node has several ways and says of one that any packet may take it. Behind
//! that, headers no longer say which way a packet takes, or it does not matter.

use std::collections::BTreeSet;

use super::{Certainty, Filter, Guard, Guards};

/// The most guards of one path. A walk that would get more ends earlier.
const MOST_GUARDS: usize = 16_384;
/// The most paths of one receive node.
const MOST_PATHS: usize = 4_096;
/// The most pairs of a guard so far and a guard of the next node that one way may have.
///
/// A path ends before a node that gives more guards than that.
const MOST_PAIRS: usize = 1 << 20;

/// A node of the graph that is walked.
#[derive(Clone, Debug, Default)]
pub struct WalkNode {
    /// The node's name.
    pub name: String,
    /// Whether a path ends here, because the node has state by flow, or gives packets elsewhere than its ways say.
    pub ends: bool,
    /// The states that packets meet here and that both directions of a flow need, by number.
    pub states: Vec<usize>,
    /// Its ways out.
    pub ways: Vec<Way>,
    /// Packets that it has processed, where the graph has run.
    pub packets: u64,
}

/// A way out of a node.
#[derive(Clone, Debug)]
pub struct Way {
    /// The packets that may take it.
    pub guards: Guards,
    /// The next node, by its number; `None` where the packets are dropped.
    pub to: Option<usize>,
}

/// A path of packets through the graph, as far as headers decide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The nodes behind each branch on the way. `None` ends it: such packets are dropped.
    ///
    /// Two ways to the same node are one path.
    pub branches: Vec<Option<usize>>,
    /// Each packet on the path matches one of them.
    pub guards: Vec<PathGuard>,
    /// The states that its packets may meet and that both directions of a flow need.
    pub states: BTreeSet<usize>,
    /// Packets that took it, where the graph has run.
    pub packets: u64,
}

/// A conjunction of guards along a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGuard {
    /// The ranks of the guards, from the first branch on.
    ///
    /// Among certain guards of all paths that match a packet, those with the lowest ranks decide its path.
    pub ranks: Vec<u16>,
    /// The packets.
    pub filter: Filter,
    /// How sure it is that these packets take the path: the least sure of its guards.
    pub certainty: Certainty,
}

impl Path {
    /// Whether its packets are dropped where it ends.
    pub fn is_dropped(&self) -> bool {
        self.branches.last() == Some(&None)
    }
    /// The node behind the last branch.
    pub fn last(&self) -> Option<usize> {
        self.branches.last().copied().flatten()
    }
}

/// The paths of packets from a node.
pub fn walk(nodes: &[WalkNode], from: usize) -> Vec<Path> {
    let mut walk = Walk { nodes, paths: Vec::new() };
    let everything = PathGuard { ranks: Vec::new(), filter: Filter::ANY, certainty: Certainty::Certain };
    walk.visit(&Step { node: from, branches: Vec::new(), guards: vec![everything], behind: vec![from] });
    walk.paths
}

struct Walk<'n> {
    nodes: &'n [WalkNode],
    paths: Vec<Path>,
}

/// A place of the walk, with the way that led there.
struct Step {
    node: usize,
    branches: Vec<Option<usize>>,
    guards: Vec<PathGuard>,
    /// The nodes on the way.
    behind: Vec<usize>,
}

impl Walk<'_> {
    fn visit(&mut self, step: &Step) {
        let Some(node) = self.nodes.get(step.node) else { return };
        // No packet from outside takes a way without guards: the node makes those that do.
        let ways: Vec<&Way> = node.ways.iter().filter(|way| !way.guards.is_never()).collect();
        let unknown = ways.iter().any(|way| way.guards == Guards::Unknown);
        let targets: BTreeSet<Option<usize>> = ways.iter().map(|way| way.to).collect();
        let branches = targets.len() > 1;
        let undecided = branches && ways.iter().any(|way| way.guards == Guards::Any);
        let most = ways.iter().map(|way| way.guards.number()).max().unwrap_or(0);
        let too_many = most.saturating_mul(step.guards.len()) > MOST_PAIRS;
        if node.ends || unknown || undecided || too_many || ways.is_empty() {
            return self.end(step);
        }
        let mut next: Vec<Step> = Vec::new();
        for target in targets {
            let to_target = ways.iter().filter(|way| way.to == target);
            let guards: Option<Vec<PathGuard>> = to_target
                .map(|way| conjoined(&step.guards, &way.guards))
                .try_fold(Vec::new(), |mut all, more| {
                    all.extend(more);
                    (all.len() <= MOST_GUARDS).then_some(all)
                });
            let Some(guards) = guards else { return self.end(step) };
            if guards.is_empty() {
                continue;
            }
            let mut path = step.branches.clone();
            if branches {
                path.push(target);
            }
            let mut behind = step.behind.clone();
            behind.extend(target);
            next.push(Step { node: target.unwrap_or(usize::MAX), branches: path, guards, behind });
        }
        if self.paths.len() + next.len() > MOST_PATHS {
            return self.end(step);
        }
        for next in next {
            if next.node == usize::MAX || step.behind.contains(&next.node) {
                self.end(&next);
            } else {
                self.visit(&next);
            }
        }
    }

    fn end(&mut self, step: &Step) {
        let is_dropped = step.branches.last() == Some(&None);
        let states = self.states(&step.behind, is_dropped);
        let packets = step
            .branches
            .iter()
            .rev()
            .find_map(|branch| branch.and_then(|branch| self.nodes.get(branch)))
            .map_or(0, |node| node.packets);
        match self.paths.iter_mut().find(|path| path.branches == step.branches) {
            Some(path) => {
                path.guards.extend(step.guards.iter().cloned());
                path.states.extend(states);
            }
            None => self.paths.push(Path {
                branches: step.branches.clone(),
                guards: step.guards.clone(),
                states,
                packets,
            }),
        }
    }

    /// The states of the nodes on a way, and of those behind its end unless packets are dropped there.
    ///
    /// With the latter are those that packets meet which a node on the way makes: answers are of the same flows.
    fn states(&self, behind: &[usize], is_dropped: bool) -> BTreeSet<usize> {
        let mut reached: BTreeSet<usize> = behind.iter().copied().collect();
        let mut next: Vec<usize> = behind.last().copied().into_iter().filter(|_| !is_dropped).collect();
        let on_the_way = behind.iter().filter(|_| !is_dropped).filter_map(|node| self.nodes.get(*node));
        let made = on_the_way.flat_map(|node| &node.ways).filter(|way| way.guards.is_never());
        next.extend(made.filter_map(|way| way.to).filter(|to| reached.insert(*to)));
        while let Some(node) = next.pop().and_then(|number| self.nodes.get(number)) {
            next.extend(node.ways.iter().filter_map(|way| way.to).filter(|to| reached.insert(*to)));
        }
        reached
            .iter()
            .filter_map(|node| self.nodes.get(*node))
            .flat_map(|node| &node.states)
            .copied()
            .collect()
    }
}

/// The packets that match one of the guards so far and one of these. Contradictions are left out.
fn conjoined(so_far: &[PathGuard], guards: &Guards) -> Vec<PathGuard> {
    let any = [Guard::certain(0, Filter::ANY)];
    let guards = match guards {
        Guards::Unknown | Guards::Any => &any[..],
        Guards::Only(guards) => guards,
    };
    let mut found = Vec::new();
    for before in so_far {
        for guard in guards {
            let Some(filter) = before.filter.and(&guard.filter) else { continue };
            let ranks = before.ranks.iter().copied().chain([guard.rank]).collect();
            found.push(PathGuard { ranks, filter, certainty: before.certainty.max(guard.certainty) });
        }
    }
    found
}
