//! The graph's part in migrations: only the graph reaches the state behind the shuffles.
//!
//! Shuffles that lead to the same state move together, such as two ports' ways to one function. The state
//! leaves when all of them have passed on the flows' packets. When it has arrived, packets that waited go on
//! behind all of them. State leaves and arrives in pieces, one a turn, so that other flows' packets do not
//! wait. The old owner gives the state away only when the flows' packets have left its transmit queues, and
//! its rings to other workers where another shuffle follows. So packets of the new owner do not overtake them
//! there.

use std::collections::{BTreeSet, VecDeque};

use super::Graph;
use crate::node::{Departed, Role, StateImage};
use crate::shuffle::{BoundState, Handoff, MigrationRequest, Part, PartStep, ShuffleKey};

/// Exported state, with the name of its node.
type Image = (String, StateImage);

/// The longest wait for packets to leave a transmit queue before the new owner goes on anyway (ns).
///
/// A device that is down never reports that it has sent them.
const LEAVING: u64 = 1_000_000_000;
/// How often a transmit queue is asked without progress, where only packets move the time on.
///
/// The queue may hold packets until a time that comes only with further packets.
const ASKS: u32 = 1 << 10;

/// The requests of shuffles.
#[derive(Default)]
pub(super) struct Moves {
    /// Nodes of the shuffles that ask.
    pub(super) asking: Vec<usize>,
    /// Requests that wait until the other shuffles of their company have made the same request.
    ///
    /// For gives: the node, the new owner and the part that moves there. For takes: the node, the old owner
    /// and the images from there.
    gives: Vec<(usize, usize, Part)>,
    takes: Vec<(usize, usize, Vec<Image>)>,
    /// Migration tasks in progress, a piece a turn.
    tasks: VecDeque<MigrationTask>,
}

enum MigrationTask {
    Give(Give),
    Take(Take),
}

/// State on its way out.
struct Give {
    shuffles: Vec<usize>,
    to: usize,
    part: Part,
    /// Nodes behind the shuffles that may still queue packets of the flows that move.
    queue: Vec<usize>,
    /// Nodes that have not given all of their state, the next one last, and the progress of that node.
    nodes: Vec<usize>,
    step: PartStep,
    images: Vec<Image>,
    /// The packets that must leave, once all state is out.
    leaving: Option<Leaving>,
}

/// The packets that must leave before state that is out may be handed over.
struct Leaving {
    /// The time at which the state was out.
    since: u64,
    /// How often the ways were asked in a row without any progress.
    asks: u32,
    ways: Vec<Way>,
}

/// State on its way in.
struct Take {
    shuffles: Vec<usize>,
    from: usize,
    images: VecDeque<Image>,
    refused: usize,
}

/// A way out of a node: packets given to it when the state was out, and packets that have left.
#[derive(Clone, Copy)]
struct Way {
    node: usize,
    number: usize,
    given: u64,
    left: u64,
}

/// The status of a task after a piece of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Done,
    Waits,
    Last,
}

impl Moves {
    /// Whether there is nothing to do between two turns.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.asking.is_empty() && self.tasks.is_empty()
    }

    /// Takes over requests that wait for other shuffles, where `place` says which node of this graph asked.
    pub(super) fn follow(&mut self, before: &mut Self, place: impl Fn(usize) -> Option<usize>) {
        let gives = before.gives.drain(..).filter_map(|(node, to, part)| Some((place(node)?, to, part)));
        self.gives.extend(gives);
        let takes =
            before.takes.drain(..).filter_map(|(node, from, images)| Some((place(node)?, from, images)));
        self.takes.extend(takes);
        self.asking.extend(before.asking.drain(..).filter_map(place));
    }
}

impl Graph {
    /// Does a piece of the shuffles' requests, between two turns.
    ///
    /// Answers whether that was work, and not only waiting. Where it is `urgent` nothing is waited for.
    #[cold]
    pub(super) fn run_migrations(&mut self, urgent: bool) -> bool {
        for node in std::mem::take(&mut self.moves.asking) {
            match self.handoff(node, |handoff| handoff.migration_request()).flatten() {
                None => {}
                Some(MigrationRequest::Give { to, part }) => self.moves.gives.push((node, to, part)),
                Some(MigrationRequest::Take { from, images }) => self.moves.takes.push((node, from, images)),
            }
        }
        while let Some(task) = self.next_give() {
            self.moves.tasks.push_back(MigrationTask::Give(task));
        }
        while let Some(task) = self.next_take() {
            self.moves.tasks.push_back(MigrationTask::Take(task));
        }
        for _ in 0..self.moves.tasks.len() {
            let Some(mut task) = self.moves.tasks.pop_front() else { break };
            let piece = match &mut task {
                MigrationTask::Give(give) => self.give(give, urgent),
                MigrationTask::Take(take) => self.take(take),
            };
            if piece != Piece::Last {
                self.moves.tasks.push_back(task);
            }
            if piece != Piece::Waits {
                return true;
            }
        }
        false
    }

    /// The shuffles that have made the same request about one worker, and that worker.
    ///
    /// No other shuffle of their company is still to make it.
    fn agreed(
        &mut self,
        asked: &[(usize, usize)],
        is_to_ask: fn(&dyn Handoff, usize) -> bool,
    ) -> Option<(Vec<usize>, usize)> {
        asked.iter().find_map(|(node, peer)| {
            let (have, others): (Vec<usize>, Vec<usize>) =
                self.slots[*node].company.iter().partition(|one| asked.contains(&(**one, *peer)));
            let follows = |other: usize| {
                let asks = |handoff: &mut dyn Handoff| is_to_ask(handoff, *peer);
                !self.slots[other].stopped && self.handoff(other, asks) == Some(true)
            };
            (!others.into_iter().any(follows)).then_some((have, *peer))
        })
    }

    fn next_give(&mut self) -> Option<Give> {
        let asked: Vec<_> = self.moves.gives.iter().map(|(node, to, _)| (*node, *to)).collect();
        let (shuffles, to) = self.agreed(&asked, |handoff, to| handoff.is_to_give(to))?;
        let same = |(node, worker, _): &mut (usize, usize, Part)| *worker == to && shuffles.contains(node);
        // They sort by the same key: flows that move behind one of them move behind all.
        let (.., part) = self.moves.gives.extract_if(.., same).last()?;
        let (mut queue, mut nodes) = (Vec::new(), Vec::new());
        for node in shuffles.iter().flat_map(|shuffle| self.behind(*shuffle)) {
            if !queue.contains(&node) {
                queue.push(node);
            }
            // Of the places of one function, one answers for all.
            let state = self.slots[node].state;
            if !nodes.contains(&state) {
                nodes.push(state);
            }
        }
        let step = PartStep::default();
        Some(Give { shuffles, to, part, queue, nodes, step, images: Vec::new(), leaving: None })
    }

    fn next_take(&mut self) -> Option<Take> {
        let asked: Vec<_> = self.moves.takes.iter().map(|(node, from, _)| (*node, *from)).collect();
        let (shuffles, from) = self.agreed(&asked, |handoff, from| handoff.is_to_take(from))?;
        let same =
            |(node, worker, _): &mut (usize, usize, Vec<_>)| *worker == from && shuffles.contains(node);
        let images = self.moves.takes.extract_if(.., same).flat_map(|(.., images)| images).collect();
        Some(Take { shuffles, from, images, refused: 0 })
    }

    fn give(&mut self, give: &mut Give, urgent: bool) -> Piece {
        if !self.flush_queues(&give.queue) && !urgent {
            return Piece::Waits;
        }
        give.queue.clear();
        while let Some(node) = give.nodes.last().copied() {
            let (part, step) = (&give.part, &mut give.step);
            match self.guarded(node, |node| node.state(|state| state.take_part(part, step))) {
                Ok(None) => give.step.end(),
                Ok(Some(image)) => {
                    let name = &self.slots[node].name;
                    give.images.extend(image.map(|image| (name.clone(), image)));
                }
                // The node was rebuilt: its state is empty.
                Err(_) => give.step.end(),
            }
            if give.step.is_over() {
                give.nodes.pop();
                give.step = PartStep::default();
            } else if give.step.is_within() {
                // A large table: the next turn goes on with it.
                return Piece::Done;
            }
        }
        let mut leaving = match give.leaving.take() {
            Some(leaving) => leaving,
            None => Leaving { since: self.cx.now(), asks: 0, ways: self.not_left(&give.shuffles) },
        };
        leaving.asks = leaving.asks.saturating_add(1);
        let over = match self.cx.follows_arrivals {
            true => leaving.asks > ASKS,
            false => self.cx.now().saturating_sub(leaving.since) >= LEAVING,
        };
        // Rings are emptied as long as there is a worker at the other end.
        leaving.ways.retain_mut(|way| {
            let before = way.left;
            let has_left = over && self.slots[way.node].role == Role::Transmit || self.has_left(way);
            if way.left > before {
                leaving.asks = 0;
            }
            !has_left
        });
        if !urgent && !leaving.ways.is_empty() {
            give.leaving = Some(leaving);
            return Piece::Waits;
        }
        // All shuffles are told, and one takes the images.
        let mut images = std::mem::take(&mut give.images);
        for shuffle in give.shuffles.iter().copied() {
            let images = std::mem::take(&mut images);
            self.handoff(shuffle, |handoff| handoff.given(give.to, images));
        }
        Piece::Last
    }

    /// The ways out for packets that passed some shuffles: transmit queues, and the rings of the next
    /// shuffles.
    fn not_left(&mut self, shuffles: &[usize]) -> Vec<Way> {
        let mut nodes: Vec<usize> = Vec::new();
        for shuffle in shuffles.iter().copied() {
            let behind = self.behind(shuffle);
            let here = behind.iter().copied().chain([shuffle]);
            nodes.extend(here.flat_map(|node| self.slots[node].targets.iter().flatten().map(|to| to.node)));
        }
        nodes.retain(|node| self.slots[*node].handoff != 0 || self.slots[*node].role == Role::Transmit);
        nodes.sort_unstable();
        nodes.dedup();
        let mut ways = Vec::new();
        for node in nodes {
            let departed = self.departed(node).into_iter().enumerate();
            ways.extend(departed.map(|(number, Departed { given, left })| Way { node, number, given, left }));
        }
        ways
    }

    fn departed(&mut self, node: usize) -> Vec<Departed> {
        self.guarded(node, |node| node.as_queue().map(|queue| queue.departed()))
            .ok()
            .flatten()
            .unwrap_or_default()
    }

    /// Whether all packets that were given to a way out have left.
    fn has_left(&mut self, way: &mut Way) -> bool {
        if self.slots[way.node].role == Role::Transmit && way.left < way.given {
            self.drain_node(way.node, |queue, batch, cx| queue.flush(batch, cx));
        }
        match self.departed(way.node).get(way.number) {
            Some(departed) => way.left = departed.left,
            None => return true,
        }
        way.left >= way.given
    }

    fn take(&mut self, take: &mut Take) -> Piece {
        if let Some((name, (state, bytes))) = take.images.pop_front() {
            take.refused += usize::from(self.import(&name, &state, &bytes).is_err());
        }
        if !take.images.is_empty() {
            return Piece::Done;
        }
        for shuffle in take.shuffles.iter().copied() {
            let refused = std::mem::take(&mut take.refused);
            self.handoff(shuffle, |handoff| handoff.took(take.from, refused));
        }
        Piece::Last
    }

    /// Tells each shuffle which state behind it cannot move, and determines which shuffles must move
    /// together.
    ///
    /// State cannot move where its node says so. Nor can it move where packets of two shuffles come to it
    /// that do not finish a move at the same time. Such shuffles use different keys, or one is nearer to the
    /// ports. Nor can state move to which packets come through no shuffle, since these packets may be at any
    /// worker.
    pub(super) fn report_bound(&mut self) {
        let handoffs: Vec<usize> =
            (0..self.cx.handoffs.len()).filter(|node| self.cx.handoffs[*node] != 0).collect();
        let regions: Vec<Vec<usize>> = handoffs.iter().map(|node| self.behind(*node)).collect();
        let state: Vec<usize> = self.slots.iter().map(|slot| slot.state).collect();
        let reached = |region: &[usize]| region.iter().map(|node| state[*node]).collect::<BTreeSet<_>>();
        let states: Vec<BTreeSet<usize>> = regions.iter().map(|region| reached(region)).collect();
        let ports = (0..self.slots.len()).filter(|node| self.slots[*node].role == Role::Receive);
        let unsorted: BTreeSet<usize> = ports.flat_map(|port| reached(&self.behind(port))).collect();
        let keys: Vec<Option<ShuffleKey>> =
            handoffs.iter().map(|node| self.handoff(*node, |handoff| handoff.key())).collect();
        let upstream: Vec<usize> = handoffs.iter().map(|node| self.upstream(*node)).collect();
        // Shuffles with key `Own` each have their own owner table, and so has each tenant.
        let owners: Vec<u16> = handoffs.iter().map(|node| self.slots[*node].owner).collect();
        let alike = |one: usize, other: usize| {
            let same = keys[one] == keys[other] && owners[one] == owners[other];
            one == other || same && keys[one].is_some_and(|key| key != ShuffleKey::Own)
        };
        let together = |one: usize, other: usize| alike(one, other) && upstream[one] == upstream[other];
        let meet = |one: usize, other: usize| !states[one].is_disjoint(&states[other]);
        for (number, (node, behind)) in handoffs.iter().copied().zip(&regions).enumerate() {
            let Some(by) = keys[number] else { continue };
            let bound = behind.iter().flat_map(|behind| {
                let slot = &self.slots[*behind];
                let named = |state| BoundState { node: slot.name.clone(), state };
                let here = &state[*behind];
                let apart = unsorted.contains(here)
                    || (0..handoffs.len())
                        .any(|other| states[other].contains(here) && !together(number, other));
                let bound = slot.ask(&self.panics, self.cx.now(), |node| {
                    node.state(|state| {
                        let follows = if apart { state.follows(by) } else { Vec::new() };
                        state.bound(by).into_iter().chain(follows).collect::<Vec<_>>()
                    })
                });
                // The node cannot even say: then no flow moves.
                let bound = bound.unwrap_or_else(|| Some(vec!["(it panicked when it was asked)".into()]));
                let bound = bound.unwrap_or_default();
                bound.into_iter().map(named).collect::<Vec<_>>()
            });
            let bound = bound.collect();
            self.handoff(node, |handoff| handoff.bound(bound, upstream[number]));
            // A shuffle that meets any of them belongs to the company.
            let mut company = vec![number];
            let mut next = 0;
            while let Some(one) = company.get(next).copied() {
                next += 1;
                let more = (0..handoffs.len()).filter(|other| together(one, *other) && meet(one, *other));
                let more: Vec<usize> = more.filter(|other| !company.contains(other)).collect();
                company.extend(more);
            }
            self.slots[node].company = company.into_iter().map(|number| handoffs[number]).collect();
        }
    }

    /// The number of shuffles from which packets come to this one.
    fn upstream(&self, node: usize) -> usize {
        let bit = self.cx.handoffs[node];
        self.slots.iter().filter(|other| other.handoff & !bit != 0 && other.feeds & bit != 0).count()
    }

    /// Calls a node's part in the exchange between workers, where it has one.
    pub(super) fn handoff<T>(&mut self, node: usize, call: impl FnOnce(&mut dyn Handoff) -> T) -> Option<T> {
        self.guarded(node, |node| node.as_handoff().map(call)).ok().flatten()
    }

    /// Passes on queued packets as far as there is room behind. Answers whether all have gone that can.
    fn flush_queues(&mut self, nodes: &[usize]) -> bool {
        let mut queues = self.downstream_first();
        queues.retain(|node| nodes.contains(node) && self.slots[*node].keeps);
        !self.let_go(&queues, |queue, batch, cx| queue.flush(batch, cx), true)
    }

    /// The nodes that a shuffle's packets may reach.
    ///
    /// The shuffle is not among them: its own function runs where packets arrive, not at their owner. Nor are
    /// the nodes behind the next shuffle, which moves their state.
    pub(super) fn behind(&self, node: usize) -> Vec<usize> {
        let mut reached = vec![node];
        let mut next = 0;
        while let Some(here) = reached.get(next).copied() {
            next += 1;
            for target in self.slots[here].targets.iter().flatten() {
                if !reached.contains(&target.node) && self.slots[target.node].handoff == 0 {
                    reached.push(target.node);
                }
            }
        }
        reached.split_off(1)
    }
}
