//! Steering: an ordered list of rules decides at which of a port's receive queues packets arrive.
//!
//! The first rule whose filter matches decides. Packets that match no rule go by the driver's hash. A
//! [`Filter`] uses only the [`Facts`] of a frame's beginning. So the same rules can be applied to a packet in
//! memory and compiled into a program that the kernel runs.

mod extended;
pub(crate) mod ntuple;
mod program;
mod settings;

use std::collections::HashSet;
use std::sync::Arc;

pub(crate) use extended::extended;
pub(crate) use program::program;

pub use netbricks_core::guards::queues::QueueRule as Rule;
pub use netbricks_core::guards::queues::RuleLimits;
pub use netbricks_core::guards::{Contradiction, Facts, Filter, IpFacts, NoPrefix, Prefix};

/// The most rules of one port.
///
/// A packet may be compared with all of them. A program of the longest rules has less than the 4,096
/// instructions that the kernel accepts.
pub const MOST_RULES: usize = 64;

/// A port's rules, in order. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Arc<[Rule]>);

/// A list of rules that cannot have the effect that it seems to have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A filter that no packet matches.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// More rules than allowed.
    #[error("there may be at most {MOST_RULES} rules")]
    TooMany,
    /// A rule that no packet reaches.
    #[error("no packet comes to this rule: {}", match .queue == .there {
        true => format!("all that it matches goes to the same queue, {there}, by rule {} already; take it out", by + 1),
        false => format!(
            "all that it matches goes to queue {there} by rule {} already; put it before that one, or take it out",
            by + 1
        ),
    })]
    Unreachable {
        /// The earlier rule that takes all packets of this one, from 0.
        by: usize,
        /// The queue of the earlier rule.
        there: u16,
        /// The queue of this rule.
        queue: u16,
    },
}

impl Rules {
    /// A list of these rules.
    ///
    /// # Errors
    /// [`Refusal`] of the first rule that is not allowed behind those before it.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, Refusal> {
        let mut list: Vec<Rule> = Vec::new();
        for rule in rules {
            list.push(Self::admitted(&list, rule)?);
        }
        Ok(Self(list.into()))
    }

    /// Rules that were derived, which may be more than an operator may write.
    pub fn derived(rules: Vec<Rule>) -> Self {
        Self(rules.into())
    }

    /// These rules, and behind them those of `later` that are not among them.
    ///
    /// These alone where that would be more than `most`.
    #[must_use]
    pub fn before(&self, later: &Self, most: usize) -> Self {
        let known: HashSet<&Filter> = self.iter().map(|rule| &rule.filter).collect();
        let others = later.iter().filter(|rule| !known.contains(&rule.filter));
        let all: Arc<[Rule]> = self.iter().chain(others).copied().collect();
        if all.len() > most { self.clone() } else { Self(all) }
    }

    /// Checks that there are at most `most` rules.
    ///
    /// # Errors
    /// [`Unsteerable::TooMany`]
    pub fn check_number(&self, most: usize) -> Result<(), Unsteerable> {
        let rules = self.0.len();
        if rules > most { Err(Unsteerable::TooMany { rules, most }) } else { Ok(()) }
    }

    /// Checks a rule that is to follow these.
    fn admitted(before: &[Rule], rule: Rule) -> Result<Rule, Refusal> {
        if before.len() == MOST_RULES {
            return Err(Refusal::TooMany);
        }
        let rule = Rule { filter: rule.filter.checked()?, ..rule };
        match before.iter().position(|other| other.filter.covers(&rule.filter)) {
            Some(by) => Err(Refusal::Unreachable { by, there: before[by].queue, queue: rule.queue }),
            None => Ok(rule),
        }
    }

    /// The rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The queue at which a frame arrives; `None` if no rule matches.
    #[inline]
    pub fn queue_of(&self, frame: &[u8]) -> Option<u16> {
        let facts = Facts::of(frame);
        self.0.iter().find(|rule| rule.filter.matches(&facts)).map(|rule| rule.queue)
    }

    /// Checks that a port with `queues` queues has the queue of every rule.
    ///
    /// # Errors
    /// [`Unsteerable::NoQueue`], for the first rule with another queue.
    pub fn check_queues(&self, queues: usize) -> Result<(), Unsteerable> {
        match self.0.iter().position(|rule| usize::from(rule.queue) >= queues) {
            Some(rule) => Err(Unsteerable::NoQueue { rule, queue: self.0[rule].queue, queues }),
            None => Ok(()),
        }
    }

    /// Whether both directions of every flow come to the same queue, provided that they do without rules.
    ///
    /// This holds if each run of consecutive rules for one queue matches the same in both directions. A rule
    /// by VLAN never counts as symmetric, since a flow may return in another VLAN.
    pub fn is_symmetric(&self) -> bool {
        self.0.chunk_by(|a, b| a.queue == b.queue).all(|stretch| {
            stretch.iter().all(|rule| {
                let mirrored = rule.filter.mirrored();
                rule.filter.vlan.is_none() && stretch.iter().any(|other| other.filter.covers(&mirrored))
            })
        })
    }
}

/// The choice of the receive queue of a port's arrivals, as its key `steer` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// By these rules.
    Rules(Rules),
    /// By filters that are derived from the graph.
    Graph,
}

impl Default for Steer {
    fn default() -> Self {
        Self::Rules(Rules::default())
    }
}

/// How the ports of a driver take filters of the graph.
#[derive(Clone, Copy, Debug)]
pub struct FilterSupport {
    /// The mechanism that applies them: `"classic BPF"`.
    pub by: &'static str,
    /// The rules that a port can have.
    pub limits: RuleLimits,
}

impl FilterSupport {
    /// A program that compares a packet with up to [`MOST_RULES`] rules of any kind.
    pub const fn program(by: &'static str) -> Self {
        Self { by, limits: RuleLimits { most: MOST_RULES, accepts: any_rule } }
    }
}

fn any_rule(_: &Filter) -> bool {
    true
}

/// The mechanism that applies the filters of an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filtering {
    /// Its name, and why it is not another one: `"XDP maps (eth0 takes no rules of …)"`.
    pub by: String,
    /// The most rules that it takes.
    pub most: usize,
    /// The rules that it keeps, where it takes no others any more.
    pub kept: Option<Rules>,
}

impl Filtering {
    /// A mechanism that takes up to `most` rules at any time.
    pub fn new(by: impl Into<String>, most: usize) -> Self {
        Self { by: by.into(), most, kept: None }
    }
}

/// The reason why rules cannot choose the queue of a port's arrivals, and what can be done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fixed {
    /// Its driver does not support rules.
    #[error("its driver does not steer; a `shuffle` first in the chain gives each flow to a worker")]
    Driver,
    /// It has only one queue.
    #[error("it has one receive queue; a `shuffle` first in the chain gives each flow to a worker")]
    OneQueue,
    /// No packet arrives.
    #[error("nothing arrives at it: give the rules to the port that packets come from")]
    Silent,
    /// The network card chooses.
    #[error(
        "an AF_XDP socket receives from one queue of the network card, which has rules of its own (`ethtool -N DEVICE flow-type \
         udp4 dst-port 4789 action 1`); `only` and `kernel` say what is taken from the host at all; `af_packet` steers"
    )]
    NetworkCard,
}

/// The reason why a port cannot steer by the given rules.
#[derive(Debug, thiserror::Error)]
pub enum Unsteerable {
    /// The port's queues are chosen by something other than rules.
    #[error(transparent)]
    Fixed(#[from] Fixed),
    /// The port has no such queue.
    #[error(
        "rule {} names queue {queue}, and there {}; queues are numbered from 0, one a worker where nothing else is said",
        rule + 1,
        if *queues == 1 { "is 1 queue".to_owned() } else { format!("are {queues} queues") }
    )]
    NoQueue {
        /// The rule, from 0.
        rule: usize,
        /// The queue that the rule names.
        queue: u16,
        /// The number of queues.
        queues: usize,
    },
    /// There are more rules than the port can have.
    #[error("{rules} rules, and it can have {most}")]
    TooMany {
        /// The rules.
        rules: usize,
        /// The most rules of the port.
        most: usize,
    },
    /// Queues are in use that would have to change.
    #[error("its queues are in use already; rules are given before the first is taken")]
    Taken,
    /// The kernel refused.
    #[error("{action}: {source}")]
    System {
        /// The action that was tried.
        action: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}

#[cfg(test)]
pub(crate) mod frames;
#[cfg(test)]
mod tests;
