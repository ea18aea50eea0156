//! A graph takes over from the running one: nodes that stay go on with all that they hold.
//!
//! The new graph is made while the old one runs. In the place of each node that stays it has an empty place.
//! Between two batches the nodes move from one graph to the other, with their counters, packets and state. The
//! nodes that go give up the packets that they hold first, through the old graph.

use std::collections::BTreeMap;

use netbricks_buffer::{Batch, Pool};

use super::build::{GraphBuilder, GraphError, NodeId};
use super::shuffles::{ShuffleEnd, ends};
use super::{Graph, Slot, contain, handoff};
use crate::context::Context;
use crate::node::{Node, NodeState};
use crate::reason::DropReason;
use crate::state::{Declarations, StateSuccession, StateTerms, Succession};

/// Rounds in which nodes that go wait for room behind them, before they pass on their packets anyway.
const ROUNDS: usize = 1 << 10;

/// Nodes that one step of moving state asks.
const NODES: usize = 64;

/// Stands in the place of a node that is in the other of two graphs.
///
/// The new graph has it before it takes over, and the old graph after.
struct Elsewhere;

impl Node for Elsewhere {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
}

impl GraphBuilder {
    /// Adds the node of this name that `running` has, which goes on in the graph that takes over from it.
    ///
    /// The graph is then made by [`Graph::take_over`] alone, over the same running graph.
    ///
    /// # Errors
    /// [`GraphError::NotRunning`] where `running` has no such node, and [`GraphError::NameTaken`].
    pub fn keep(&mut self, name: &str, running: &Graph) -> Result<NodeId, GraphError> {
        let Some(place) = running.place(name) else {
            return Err(GraphError::NotRunning { name: name.to_owned() });
        };
        let old = &running.slots[place];
        let mut slot = Slot::new(name.to_owned(), Box::new(Elsewhere), None);
        slot.kept = true;
        slot.owner = old.owner;
        slot.role = old.role;
        slot.kind.clone_from(&old.kind);
        slot.inputs = old.inputs;
        slot.schedulable = old.schedulable;
        slot.keeps = old.keeps;
        slot.timed = old.timed;
        slot.has_end = old.has_end;
        slot.outputs.clone_from(&old.outputs);
        slot.source = old.source;
        slot.handoff = u64::from(old.handoff != 0);
        slot.queue = old.queue;
        slot.offers = old.offers;
        slot.shares_state = old.shares_state;
        self.place_slot(slot)
    }

    /// Lets a new node go on with the state of the running node `before`, whose name differs.
    pub fn succeed(&mut self, node: NodeId, before: impl Into<String>) {
        self.slots[node.index()].succeeds = Some(before.into());
    }

    /// Lets a new node begin as its configuration says, without what handlers changed of the one before.
    ///
    /// Declared state goes on but for that which is [written](crate::Declared::is_written). All state of a node of
    /// another form begins again.
    pub fn undo_writes(&mut self, node: NodeId) {
        self.slots[node.index()].undoes_writes = true;
    }

    /// As [`Graph::shuffle_ends`], for the graph that this would become in the place of `running`.
    pub fn shuffle_ends(&mut self, running: &Graph) -> Vec<ShuffleEnd> {
        handoff::connect(&mut self.slots);
        ends(&self.slots, |slot| {
            let of = if slot.kept {
                running.place(&slot.name).map(|place| &running.slots[place])
            } else {
                Some(slot)
            };
            let asked = of.map(|slot| {
                slot.ask(&running.panics, running.now(), |node| node.as_handoff().map(|it| it.id()))
            });
            asked.flatten().flatten()
        })
    }

    /// Whether all its shuffles are those that `running` has.
    fn keeps_shuffles_of(&self, running: &Graph) -> bool {
        let shuffles = |slots: &[Slot]| slots.iter().filter(|slot| slot.handoff != 0).count();
        let kept = self.slots.iter().filter(|slot| slot.handoff != 0 && slot.kept).count();
        shuffles(&self.slots) == kept && shuffles(&running.slots) == kept
    }
}

/// The state about which a graph that took over has decided, by the node that had it.
///
/// It went on without a copy, or begins again.
pub type TakenOver = Vec<(String, StateSuccession)>;

impl Graph {
    /// The terms of the state that a node has declared, without work by entry.
    pub fn state_terms(&self, node: &str) -> Vec<(String, StateTerms)> {
        let Some(place) = self.place(node) else { return Vec::new() };
        let asked = self.slots[place].ask_state(&self.panics, self.now(), |state| {
            state.declarations().map(|declared| declared.terms())
        });
        asked.flatten().unwrap_or_default()
    }

    /// Makes the graph that takes over from `running`, between two batches.
    ///
    /// Nodes that the builder [keeps](GraphBuilder::keep) go on as they are. Nodes that go pass on the packets
    /// that they hold. State of a node that is replaced under its name goes on where that needs no copy; the
    /// answer names it. Shared and copied state is left to [`adopt`](Self::adopt) and [`import`](Self::import).
    ///
    /// Where the builder's shuffles are not those of `running`, all packets run to completion first, on all
    /// workers. `running` is then to be dropped: it has only the nodes that go, and their counters.
    ///
    /// # Errors
    /// [`GraphError::NotRunning`] where the builder keeps a node that `running` has not; nothing has changed then.
    pub fn take_over(
        builder: GraphBuilder,
        pool: Pool,
        running: &mut Self,
        now: u64,
    ) -> Result<(Self, TakenOver), GraphError> {
        let places = builder.slots.iter().enumerate().filter(|(_, slot)| slot.kept);
        let places = places.map(|(new, slot)| match running.place(&slot.name) {
            Some(old) => Ok((old, new)),
            None => Err(GraphError::NotRunning { name: slot.name.clone() }),
        });
        let kept = places.collect::<Result<Vec<(usize, usize)>, _>>()?;
        let GraphBuilder { name, mut slots, policies, .. } = builder_of(builder, running, now);
        let places: BTreeMap<usize, usize> = kept.iter().copied().collect();
        // Nodes that came from the graph before may go now.
        running.slots.iter_mut().for_each(|slot| slot.kept = false);
        for (old, new) in &kept {
            move_node(&mut running.slots[*old], &mut slots[*new]);
        }
        let mut graph = Self::assemble(name, slots, policies, pool);
        graph.follow_tenants(running);
        graph.advance(now.max(running.now()));
        graph.cx.began = running.cx.began;
        graph.cx.recorder.follow(&mut running.cx.recorder, |node| places.get(&node).copied());
        graph.moves.follow(&mut running.moves, |node| places.get(&node).copied());
        let waiting = std::mem::take(&mut running.quarantined).into_iter();
        graph.quarantined.extend(waiting.filter_map(|(node, until)| Some((*places.get(&node)?, until))));
        let bits = |of: &[u64], node: usize| of.get(node).copied().unwrap_or_default();
        for (old, new) in &kept {
            for (before, after) in
                [(&running.cx.handoffs, &graph.cx.handoffs), (&running.cx.queues, &graph.cx.queues)]
            {
                if running.cx.blocked & bits(before, *old) != 0 {
                    graph.cx.blocked |= bits(after, *new);
                }
            }
        }
        graph.leave_written(running);
        let taken = graph.take_state_over(running);
        graph.moving = 0;
        running.drain_kept();
        if running.suspended {
            graph.suspend();
        }
        Ok((graph, taken))
    }

    /// Keeps the state of `running` that handlers wrote from nodes that undo that.
    fn leave_written(&mut self, running: &Self) {
        for slot in running.slots.iter().filter(|slot| slot.speaks && !slot.kept) {
            let Some(place) =
                self.successor_place(&slot.name).filter(|place| self.slots[*place].undoes_writes)
            else {
                continue;
            };
            let left = slot.ask_state(&running.panics, running.now(), |state| {
                state.declarations().map(Declarations::leave_written)
            });
            if left.flatten().is_none() {
                // No node has this name, so that nothing goes on here.
                self.slots[place].succeeds = Some(String::new());
            }
        }
    }

    /// Takes over the state of nodes that are replaced under their names, as far as that needs no copy.
    fn take_state_over(&mut self, running: &mut Self) -> TakenOver {
        let mut taken = Vec::new();
        for slot in running.slots.iter_mut().filter(|slot| slot.speaks && !slot.kept) {
            let successor = self.successor_place(&slot.name).filter(|place| !self.slots[*place].kept);
            let Some(place) = successor else { continue };
            let (old, now) = (slot.node.get_mut(), self.cx.now());
            let mut names = Vec::new();
            let states = self.guarded(place, |node| {
                let mut take = |state: &mut dyn NodeState, old: &mut dyn NodeState| {
                    names = names_of(old);
                    state.take_over(old, now)
                };
                node.state(|state| old.state(|old| take(state, old))).flatten().unwrap_or_default()
            });
            let held = slot.held(&running.panics, running.cx.now());
            let old = slot.node.get_mut();
            let moved = self.guarded(place, |node| {
                let mut moved = 0;
                if let (Some(queue), Some(before)) = (node.as_queue(), old.as_queue())
                    && let Some(before) = before.predecessor()
                {
                    moved = queue.succeed(before);
                }
                moved
            });
            let moved = moved.unwrap_or_else(|_| {
                // Packets that the old node has no more ended in the panic, unless they survived it.
                let gone = held.saturating_sub(slot.held(&running.panics, running.cx.now()));
                let lost = gone.saturating_sub(self.held(place));
                self.slots[place].counters.drops.add(DropReason::Panicked, lost, 0);
                gone
            });
            let moved = crate::Count { packets: moved, bytes: 0 };
            slot.counters.handoff_out += moved;
            self.slots[place].counters.handoff_in += moved;
            // After a panic the new node was rebuilt, and begins without the state that it took.
            let states = states.unwrap_or_else(|caught| {
                let left = contain(|| slot.node.get_mut().state(names_of)).ok().flatten().unwrap_or_default();
                let gone = names.into_iter().filter(|name| !left.contains(name));
                let anew = Succession::anew(format!("taking state over panicked: {}", caught.message));
                gone.map(|name| StateSuccession { name, succession: anew.clone() }).collect()
            });
            taken.extend(states.into_iter().map(|state| (slot.name.clone(), state)));
        }
        taken
    }

    /// Moves a bounded part of the state that nodes have taken over; returns whether more is to come.
    ///
    /// Packets may come between two calls. A question to a node, such as an export, is to come after the last.
    pub fn move_on(&mut self) -> bool {
        let end = self.moving.saturating_add(NODES).min(self.slots.len());
        while self.moving < end {
            let moved = self.slots[self.moving].speaks.then(|| {
                let ask = |node: &mut dyn Node| {
                    node.state(|state| state.declarations().is_some_and(|declared| declared.move_on()))
                };
                self.guarded(self.moving, ask)
            });
            // After a panic the node was rebuilt, and has nothing to move.
            if moved.is_some_and(|moved| moved.is_ok_and(|goes_on| goes_on == Some(true))) {
                return true;
            }
            self.moving += 1;
        }
        self.moving < self.slots.len()
    }

    /// Has nodes give up what they kept for a successor that did not take it.
    fn drain_kept(&mut self) {
        let keeps = |slot: &Slot| slot.keeps && !slot.kept;
        let nodes: Vec<usize> = (0..self.slots.len()).filter(|node| keeps(&self.slots[*node])).collect();
        for node in &nodes {
            let _told =
                self.guarded(*node, |node| node.as_queue().map(|queue| queue.keep_for_successor(false)));
        }
        self.let_go(&nodes, |queue, batch, cx| queue.drain(batch, cx), false);
    }

    /// Lets nodes that go give up their packets, and finishes what cannot move to another graph.
    fn let_go_of(&mut self, going: &[usize], replaced: impl Fn(&str) -> bool) {
        while !self.waiting.is_empty() {
            self.contained(None, 1);
        }
        for _ in 0..ROUNDS {
            if self.moves.is_idle() {
                break;
            }
            self.run_migrations(true);
        }
        // A node with a successor goes on there, so that only the others learn of their end.
        let ending: Vec<usize> = going
            .iter()
            .copied()
            .filter(|node| self.has_untold_end(*node) && !replaced(&self.slots[*node].name))
            .collect();
        for node in ending {
            self.slots[node].told = true;
            // A node that panics counts as told.
            let _told = self.guarded(node, |node| node.state(|state| state.end()));
        }
        let mut nodes = self.downstream_first();
        nodes.retain(|node| going.contains(node) && self.slots[*node].keeps);
        let shuffles: Vec<usize> =
            (0..self.cx.handoffs.len()).filter(|node| self.cx.handoffs[*node] != 0).collect();
        for _ in 0..ROUNDS {
            if !self.let_go(&nodes, |queue, batch, cx| queue.drain(batch, cx), true) {
                break;
            }
            for shuffle in &shuffles {
                self.contained(Some(*shuffle), 1);
                while !self.waiting.is_empty() {
                    self.contained(None, 1);
                }
            }
        }
        self.let_go(&nodes, |queue, batch, cx| queue.drain(batch, cx), false);
    }
}

/// Prepares the running graph for the takeover: nodes that go hold no packets any more.
fn builder_of(builder: GraphBuilder, running: &mut Graph, now: u64) -> GraphBuilder {
    running.advance(now);
    for node in 0..running.slots.len() {
        let (old, name) = (&running.slots[node], &running.slots[node].name);
        let replaces = |new: &Slot| {
            let same_name = new.name == *name || new.succeeds.as_deref() == Some(name);
            same_name && !new.kept && new.keeps && new.kind == old.kind
        };
        if old.keeps && builder.slots.iter().any(replaces) {
            let _told =
                running.guarded(node, |node| node.as_queue().map(|queue| queue.keep_for_successor(true)));
        }
    }
    let slot = |name: &str| builder.slots.iter().find(|slot| slot.name == name);
    let succeeds = |name: &str| {
        slot(name).is_some() || builder.slots.iter().any(|slot| slot.succeeds.as_deref() == Some(name))
    };
    if builder.keeps_shuffles_of(running) {
        let going: Vec<usize> = (0..running.slots.len())
            .filter(|node| slot(&running.slots[*node].name).is_none_or(|slot| !slot.kept))
            .collect();
        running.let_go_of(&going, succeeds);
    } else {
        // A node with a successor goes on there, and is told of no end.
        for old in &mut running.slots {
            old.has_end &= !succeeds(&old.name);
        }
        running.drain(now);
    }
    builder
}

/// Moves a node from the graph that ran to the one that takes over, with its counters and its progress.
fn move_node(old: &mut Slot, new: &mut Slot) {
    std::mem::swap(old.node.get_mut(), new.node.get_mut());
    new.counters = std::mem::take(&mut old.counters);
    new.unanswered = std::mem::take(&mut old.unanswered);
    new.origin = old.origin.take();
    new.uncertain = old.uncertain;
    new.strikes = old.strikes;
    new.stopped = old.stopped;
    // The new graph asks each node once.
    new.asleep = false;
    new.panicked = old.panicked;
    new.quarantined = old.quarantined;
    new.ended = old.ended;
    new.closed = old.closed;
    // The old graph asks nothing more of this place.
    (old.kept, old.keeps, old.timed, old.schedulable, old.has_end) = (true, false, false, false, false);
    (old.source, old.ended) = (false, true);
}

/// The names of the states that a node has declared.
fn names_of(node: &mut dyn NodeState) -> Vec<String> {
    node.declarations().map(|declared| declared.names()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::graph::RestartPolicy;
    use crate::state::Declared;
    use crate::{Blueprint, DropReason, Edge, Poll, Shape, Way, Worker};

    /// Brings a packet in each turn.
    struct Source;
    impl Node for Source {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
        fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
            assert!(batch.push(cx.pool().packet(&[0; 60]).unwrap()).is_ok());
            Poll::Busy
        }
        fn shape(&self) -> Shape {
            Shape::receive()
        }
    }

    /// Panics at its first batch, once for all copies.
    struct Breaks(Arc<AtomicBool>);
    impl Node for Breaks {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {
            assert!(self.0.swap(true, Ordering::Relaxed), "planted");
        }
    }

    struct Sink;
    impl Node for Sink {
        fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
            cx.drop_batch(batch, DropReason::Discarded);
        }
        fn shape(&self) -> Shape {
            Shape { outputs: Vec::new(), ..Shape::default() }
        }
    }

    /// A number as state, and the calls that panic in its place.
    struct Number(u64, &'static str);
    impl Declared for Number {
        fn export(&self) -> Vec<u8> {
            self.0.to_be_bytes().to_vec()
        }
        fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
            self.0 = u64::from_be_bytes(bytes.try_into().map_err(|_| "8 bytes")?);
            Ok(())
        }
        fn occupancy(&self) -> (u64, u64) {
            (1, 1)
        }
        fn succession(&self, _: &StateTerms) -> Succession {
            assert_ne!(self.1, "decides");
            Succession::whole()
        }
        fn take_over(&mut self, old: &mut dyn Declared) -> bool {
            let old: &mut dyn std::any::Any = old;
            self.0 = old.downcast_ref::<Self>().unwrap().0;
            assert_ne!(self.1, "takes");
            true
        }
    }

    /// Passes packets on, with three numbers.
    struct Numbers(Declarations);
    impl Node for Numbers {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
        fn with_state(&mut self, ask: &mut dyn FnMut(&mut dyn NodeState)) {
            ask(&mut self.0);
        }
    }

    fn numbers(number: u64, second_panics: &'static str) -> Blueprint {
        Blueprint::new(move |_| {
            let mut numbers = Declarations::default();
            for (name, panics) in [("first", ""), ("second", second_panics), ("third", "")] {
                numbers.states.push((name.into(), Rc::new(RefCell::new(Number(number, panics)))));
            }
            Ok(Box::new(Numbers(numbers)))
        })
    }

    /// The state that a panic reached begins again, and is told so; the rest goes on or is copied later.
    #[test]
    fn a_panic_while_state_is_taken_over_costs_no_more_than_it_reached() {
        for (panics, gone, left) in [("decides", &["second"][..], 0), ("takes", &["first", "second"], 1)] {
            let pool = Pool::builder().frames(64).build().unwrap();
            let worker = Worker::new(0, 1, pool.clone());
            let with = |number, panics| {
                let mut builder = GraphBuilder::new("test");
                let source = builder.add("in", Box::new(Source)).unwrap();
                let node = builder.add_function("numbers", &numbers(number, panics), &worker).unwrap();
                let sink = builder.add("out", Box::new(Sink)).unwrap();
                builder.connect(source, Edge::OUT, node, 0).unwrap();
                builder.connect(node, Edge::OUT, sink, 0).unwrap();
                builder
            };
            let mut running = with(7, "").build(pool.clone()).unwrap();
            let (mut after, taken) = Graph::take_over(with(0, panics), pool, &mut running, 5).unwrap();
            let anew = taken.iter().filter(|(_, of)| of.succession.way == Way::Anew);
            assert_eq!(anew.map(|(_, of)| of.name.as_str()).collect::<Vec<_>>(), gone, "{panics}");
            let told = taken.iter().filter(|(_, of)| of.succession.reason.contains("panicked"));
            assert_eq!(told.count(), gone.len(), "{panics}: {taken:?}");
            // What is left in the old node is exported from there.
            assert_eq!(running.export().len(), left, "{panics}");
            let values = |graph: &mut Graph| {
                let images = graph.export().into_iter();
                images.map(|(_, (state, bytes))| (state, *bytes.last().unwrap())).collect::<Vec<_>>()
            };
            let after = values(&mut after);
            let of = |name: &str| after.iter().find(|(known, _)| known == name).unwrap().1;
            let expected = if panics == "decides" { (7, 0, 7) } else { (0, 0, 0) };
            assert_eq!((of("first"), of("second"), of("third")), expected, "{panics}");
        }
    }

    #[test]
    fn a_function_in_quarantine_is_made_again_also_behind_a_takeover() {
        let pool = Pool::builder().frames(64).build().unwrap();
        let worker = Worker::new(0, 1, pool.clone());
        let broke = Arc::new(AtomicBool::new(false));
        let breaks = Blueprint::new(move |_| Ok(Box::new(Breaks(broke.clone()))));
        let mut builder = GraphBuilder::new("test");
        let source = builder.add("in", Box::new(Source)).unwrap();
        let function =
            builder.add_function("breaks", &breaks.restarting(RestartPolicy::BackOff), &worker).unwrap();
        let sink = builder.add("out", Box::new(Sink)).unwrap();
        builder.connect(source, Edge::OUT, function, 0).unwrap();
        builder.connect(function, Edge::OUT, sink, 0).unwrap();
        let mut running = builder.build(pool.clone()).unwrap();
        running.turn(1_000);
        running.turn(2_000);
        assert!(running.is_quarantined("breaks"));

        let next = |running: &Graph| {
            let mut next = GraphBuilder::new("test");
            let nodes = ["in", "breaks", "out"].map(|name| next.keep(name, running).unwrap());
            next.connect(nodes[0], Edge::OUT, nodes[1], 0).unwrap();
            next.connect(nodes[1], Edge::OUT, nodes[2], 0).unwrap();
            next
        };
        let (early, late) = (next(&running), next(&running));
        let (mut after, _) = Graph::take_over(early, pool.clone(), &mut running, 3_000).unwrap();
        assert!(after.is_quarantined("breaks"));
        after.turn(4_000);
        after.turn(1_000_000_000);
        assert!(!after.is_quarantined("breaks"));
        after.drain(1_000_000_001);
        let drops = after.totals().drops;
        let of =
            |reason| drops.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| count.packets);
        assert_eq!(
            (of(DropReason::Panicked), of(DropReason::Quarantined), of(DropReason::Discarded)),
            (1, 2, 1)
        );
        assert!(after.totals().is_conserved());

        // A graph without one of the nodes is left as it is.
        let mut other = GraphBuilder::new("test").build(pool.clone()).unwrap();
        let refused = Graph::take_over(late, pool, &mut other, 5).err().unwrap();
        assert_eq!(refused, GraphError::NotRunning { name: "in".into() });
    }
}
