//! Steering: an ordered list of rules says at which of a port's receive queues packets arrive. The first rule whose filter
//! matches decides; what none matches goes by the driver's hash.
//!
//! A [`Filter`] speaks of what [`Facts`] can know of a frame's beginning and of nothing else, so that the same rules can be
//! applied to a packet in memory and compiled into a program that the kernel runs.

mod extended;
mod facts;
mod filter;
mod program;
mod settings;

use std::sync::Arc;

pub(crate) use extended::extended;
pub(crate) use program::program;

pub use facts::{Facts, IpFacts};
pub use filter::{Contradiction, Filter, NoPrefix, Prefix};

/// Rules that one port may have: a packet may be held against all of them, and the longest make a program of less than the
/// 4,096 instructions that the kernel takes.
pub const MOST_RULES: usize = 64;

/// What of the traffic goes to which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it speaks of.
    pub filter: Filter,
    /// The receive queue, from 0.
    pub queue: u16,
}

/// A port's rules, in order. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Arc<[Rule]>);

/// A list of rules that says less than it seems to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A filter that nothing matches.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// More than there may be.
    #[error("there may be at most {MOST_RULES} rules")]
    TooMany,
    /// A rule that no packet comes to.
    #[error("no packet comes to this rule: {}", match .queue == .there {
        true => format!("all that it matches goes to the same queue, {there}, by rule {} already; take it out", by + 1),
        false => format!(
            "all that it matches goes to queue {there} by rule {} already; put it before that one, or take it out",
            by + 1
        ),
    })]
    Unreachable {
        /// The rule before it that takes everything, from 0.
        by: usize,
        /// Where that one sends it.
        there: u16,
        /// Where this one would.
        queue: u16,
    },
}

impl Rules {
    /// These rules.
    ///
    /// # Errors
    /// [`Refusal`], of the first rule that does not fit behind those before it.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, Refusal> {
        let mut list: Vec<Rule> = Vec::new();
        for rule in rules {
            list.push(Self::admitted(&list, rule)?);
        }
        Ok(Self(list.into()))
    }

    /// A rule that may stand behind these.
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
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The queue at which a frame arrives; `None` where no rule speaks of it.
    #[inline]
    pub fn queue_of(&self, frame: &[u8]) -> Option<u16> {
        let facts = Facts::of(frame);
        self.0.iter().find(|rule| rule.filter.matches(&facts)).map(|rule| rule.queue)
    }

    /// The first rule whose queue a port with `queues` of them does not have.
    ///
    /// # Errors
    /// [`Unsteerable::NoQueue`].
    pub fn check_queues(&self, queues: usize) -> Result<(), Unsteerable> {
        match self.0.iter().position(|rule| usize::from(rule.queue) >= queues) {
            Some(rule) => Err(Unsteerable::NoQueue { rule, queue: self.0[rule].queue, queues }),
            None => Ok(()),
        }
    }

    /// Whether both directions of every flow come to the same queue, given that they do without rules: each stretch of
    /// rules for one queue matches as much in one direction as in the other. A rule by VLAN never counts as such, since a
    /// flow may come back in another VLAN than it went.
    pub fn is_symmetric(&self) -> bool {
        self.0.chunk_by(|a, b| a.queue == b.queue).all(|stretch| {
            stretch.iter().all(|rule| {
                let mirrored = rule.filter.mirrored();
                rule.filter.vlan.is_none() && stretch.iter().any(|other| other.filter.covers(&mirrored))
            })
        })
    }
}

/// What fixes at which queue of a port packets arrive, so that rules do not; and what can be done instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fixed {
    /// Its driver knows nothing of rules.
    #[error("its driver does not steer; a `shuffle` first in the chain gives each flow to a worker")]
    Driver,
    /// There is nothing to choose from.
    #[error("it has one receive queue; a `shuffle` first in the chain gives each flow to a worker")]
    OneQueue,
    /// Nothing arrives.
    #[error("nothing arrives at it: give the rules to the port that packets come from")]
    Silent,
    /// The network card chooses.
    #[error(
        "an AF_XDP socket receives from one queue of the network card, which has rules of its own (`ethtool -N DEVICE flow-type \
         udp4 dst-port 4789 action 1`); `only` and `kernel` say what is taken from the host at all; `af_packet` steers"
    )]
    NetworkCard,
}

/// Why a port cannot steer as it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Unsteerable {
    /// Its queues are somebody else's to choose.
    #[error(transparent)]
    Fixed(#[from] Fixed),
    /// It has no such queue.
    #[error(
        "rule {} names queue {queue}, and there {}; queues are numbered from 0, one a worker where nothing else is said",
        rule + 1,
        if *queues == 1 { "is 1 queue".to_owned() } else { format!("are {queues} queues") }
    )]
    NoQueue {
        /// The rule, from 0.
        rule: usize,
        /// What it names.
        queue: u16,
        /// How many there are.
        queues: usize,
    },
    /// Queues are in use that would have to be others.
    #[error("its queues are in use already; rules are given before the first is taken")]
    Taken,
    /// The kernel refused.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

#[cfg(test)]
pub(crate) mod frames;
#[cfg(test)]
mod tests;
