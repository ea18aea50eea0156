//! Sends packets separate ways by header fields: the first rule that matches decides.
//!
//! The rules are those of the chain file, for as long as the function runs. So filters of ports can be derived from them.

mod config;
#[cfg(test)]
mod tests;

pub use config::{ClassifySettings, Rule, RuleError, Way};

use netbricks_core::buffer::Bytes;
use netbricks_core::guards::{Facts, Filter, Guard, Guards};
use netbricks_core::{
    BuildError, Context, DropReason, Edge, FrameFunction, Frames, Groups, Node, Verdict, Worker,
    compose_frames,
};

/// Makes the node that these settings describe.
///
/// # Errors
/// As [`compose_frames`].
pub fn node(settings: &ClassifySettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_frames(worker, || {
        explain(settings.rules.clone(), worker);
        Classify::new(&settings.rules)
    })
}

/// Declares the sentence of a trace about the rule that decides.
fn explain(rules: Vec<Rule>, worker: &Worker) {
    worker.explain(move |frame, why| {
        let facts = Facts::of(frame);
        match rules.iter().position(|rule| rule.filter.matches(&facts)) {
            Some(place) => write!(why, "rule {}: {}", place + 1, rules[place]),
            None => write!(why, "no rule matches: it goes on"),
        }
    });
}

/// The edge of a way; the first named one is the first behind those of all functions.
///
/// `None`: packets are dropped.
fn edge(names: &[String], way: &Way) -> Option<Edge> {
    match way {
        Way::Out => Some(Edge::OUT),
        Way::Drop => None,
        Way::Named(name) => names.iter().position(|known| known == name).map(|place| Groups::edge(place + 1)),
    }
}

/// The rules of a node.
struct Classify {
    rules: Vec<(Filter, Option<Edge>)>,
    /// The named ways out.
    names: Vec<String>,
}

impl Classify {
    fn new(rules: &[Rule]) -> Self {
        let names = config::names(rules);
        Self { rules: rules.iter().map(|rule| (rule.filter, edge(&names, &rule.way))).collect(), names }
    }

    /// Where a frame goes: `None` where it is dropped.
    #[inline]
    fn edge_of(&self, frame: &Bytes<'_>) -> Option<Edge> {
        let facts = Facts::of(frame.data());
        let decided = self.rules.iter().find(|(filter, _)| filter.matches(&facts));
        decided.map_or(Some(Edge::OUT), |(_, edge)| *edge)
    }
}

impl FrameFunction for Classify {
    fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
        frames.decide(cx, |_, frame, _| match self.edge_of(frame) {
            Some(Edge::OUT) => Ok(()),
            Some(edge) => Err(Verdict::leave(edge)),
            None => Err(Verdict::drop(DropReason::Denied)),
        });
    }

    fn edges(&self) -> Vec<(Edge, String)> {
        let named = self.names.iter().enumerate();
        named.map(|(place, name)| (Groups::edge(place + 1), name.clone())).collect()
    }

    fn guards(&self, edge: Edge) -> Guards {
        let own = self.rules.iter().zip(0..).filter(|((_, to), _)| *to == Some(edge));
        let mut guards: Vec<Guard> = own.map(|((filter, _), rank)| Guard::certain(rank, *filter)).collect();
        if edge == Edge::OUT && self.rules.iter().all(|(filter, _)| *filter != Filter::ANY) {
            guards.push(Guard::certain(u16::MAX, Filter::ANY));
        }
        Guards::Only(guards)
    }
}
