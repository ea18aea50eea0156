//! Outputs of an element whose packets can meet again: there the packets of a burst keep their order of arrival.
//!
//! An element that divides a burst hands on whole batches to outputs that never meet. To outputs that meet it hands on
//! runs of packets, and each run goes all its way before the next one.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;

use super::{At, Router};
use crate::language::errors::Errors;

/// Steps of the search through all connections at most; elements that are left keep the order between all outputs.
const MOST_STEPS: usize = 1 << 22;
/// Elements behind the outputs of one element that answer, at most; beyond, it keeps the order between all outputs.
const MOST_ANSWERS: usize = 1 << 16;

/// Of each element the group of each output, where some outputs meet. Outputs of one group can meet.
type Groups = Box<[Option<Box<[u32]>>]>;

/// Places where packets of one burst meet.
#[derive(Default)]
pub(super) struct Meetings {
    /// Elements that named others until all had begun, as those that share a table or call a handler do.
    named: RefCell<BTreeSet<(usize, usize)>>,
    groups: OnceCell<Groups>,
    /// Whether the search ended early.
    is_cut: Cell<bool>,
}

impl Meetings {
    /// Says that the search ended early.
    pub(super) fn warn(&self, errors: &Errors) {
        if self.is_cut.get() {
            errors.warning(&format!(
                "the search for outputs whose packets meet ended after {MOST_STEPS} steps, or {MOST_ANSWERS} answering \
                 elements behind one: some elements hand bursts on in more runs than they must, which takes time. Have \
                 fewer connections between elements with several outputs"
            ));
        }
    }
}

impl Router {
    /// Notes that an element that packets pass names another, until all have begun.
    pub(super) fn note_name(&self, context: usize, id: usize) {
        if self.instances.get(context).is_some_and(|one| !one.inputs.is_empty()) {
            self.note_shared(context, id);
        }
    }
    /// Notes that an element shares what another knows, until all have begun.
    pub(crate) fn note_shared(&self, one: usize, other: usize) {
        if self.meetings.groups.get().is_none() {
            self.meetings.named.borrow_mut().insert((one, other));
        }
    }
    /// Finds out which outputs meet.
    pub(super) fn meetings(&self) -> &[Option<Box<[u32]>>] {
        self.meetings.groups.get_or_init(|| {
            let mut search = Search::new(self);
            let groups = search.run();
            self.meetings.is_cut.set(search.is_cut);
            groups
        })
    }
    /// Whether packets have a script run, which may call the handlers of all elements.
    fn runs_scripts(&self, named: &BTreeSet<(usize, usize)>) -> bool {
        let is_script = |id: usize| matches!(self.class(id), "Script" | "DriverManager");
        let passes = |id: usize| !self.instances[id].inputs.is_empty();
        named.iter().any(|(_, other)| is_script(*other))
            || (0..self.len()).any(|id| is_script(id) && passes(id))
    }
}

impl<'r> At<'r> {
    /// The group of each output, where packets of some outputs can meet again: those of outputs of one group.
    #[inline]
    pub(crate) fn groups(self) -> Option<&'r [u32]> {
        self.router.meetings().get(self.id)?.as_deref()
    }
    /// Whether packets of some of its outputs can meet again.
    #[inline]
    pub(crate) fn outputs_meet(self) -> bool {
        self.groups().is_some()
    }
}

/// The mark of an output of the element that is looked at: a number of that element, and the output.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    splitter: usize,
    output: usize,
}

/// Ways of all outputs of one element after the other.
///
/// An output's ways end where those of an earlier one go on: both meet there. Answers, such as ICMP errors, are other
/// packets than those that they answer. Where answers only lead back to the element that is looked at, they do not
/// count: else each router's outputs would meet.
struct Search<'r> {
    router: &'r Router,
    /// Elements that share what they know are one place.
    places: Vec<usize>,
    /// The output whose packets come to an element, and the one whose answers do.
    came: Vec<Mark>,
    answered: Vec<Mark>,
    /// The output whose packets come to an element that answers them.
    asked: Vec<Mark>,
    /// Elements that answer packets of outputs, in the order of these.
    answers: Vec<(Mark, usize)>,
    /// The output whose packets or answers come to a place.
    owners: Vec<Mark>,
    /// Which output each one meets, in chains; and whether its answers lead elsewhere than back.
    meets: Vec<usize>,
    counts: Vec<bool>,
    steps: usize,
    is_cut: bool,
}

/// The first of those that an entry leads to.
fn first(links: &mut [usize], mut entry: usize) -> usize {
    while links[entry] != entry {
        links[entry] = links[links[entry]];
        entry = links[entry];
    }
    entry
}

/// Makes two entries lead to the same one.
fn join(links: &mut [usize], one: usize, other: usize) {
    let (one, other) = (first(links, one), first(links, other));
    links[one.max(other)] = one.min(other);
}

impl<'r> Search<'r> {
    fn new(router: &'r Router) -> Self {
        let count = router.len();
        let mut places: Vec<usize> = (0..count).collect();
        let named = router.meetings.named.borrow();
        named.iter().for_each(|(one, other)| join(&mut places, *one, *other));
        if router.runs_scripts(&named) {
            (1..count).for_each(|id| join(&mut places, 0, id));
        }
        let marks = vec![Mark::default(); count];
        Self {
            router,
            places,
            came: marks.clone(),
            answered: marks.clone(),
            asked: marks.clone(),
            answers: Vec::new(),
            owners: marks,
            meets: Vec::new(),
            counts: Vec::new(),
            steps: 0,
            is_cut: false,
        }
    }

    fn run(&mut self) -> Groups {
        (0..self.router.len()).map(|splitter| self.groups(splitter)).collect()
    }

    fn groups(&mut self, splitter: usize) -> Option<Box<[u32]>> {
        let outputs = &self.router.instances[splitter].outputs;
        // With one output or none there is nothing to meet.
        outputs.iter().flatten().nth(1)?;
        self.meets = (0..outputs.len()).collect();
        self.counts = vec![false; outputs.len()];
        self.answers.clear();
        for (output, target) in outputs.iter().enumerate() {
            // The mark of no element is 0.
            if let Some((target, _)) = target
                && self.follow(Mark { splitter: splitter + 1, output }, *target)
            {
                return Some(vec![0; outputs.len()].into());
            }
        }
        // Answers that come where packets of any output do lead elsewhere, so that all of these are known first.
        let answers = std::mem::take(&mut self.answers);
        for of_one in answers.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some((mark, _)) = of_one.first() {
                self.follow_answers(*mark, of_one.iter().map(|(_, id)| *id).collect());
            }
        }
        self.answers = answers;
        let groups: Box<[u32]> =
            (0..outputs.len()).map(|output| first(&mut self.meets, output) as u32).collect();
        let apart = groups.iter().enumerate().all(|(output, group)| output == *group as usize);
        (!apart).then_some(groups)
    }

    /// Follows the packets of an output from the element that they come to.
    ///
    /// Whether they may come back and leave by any output, or are not known to do otherwise.
    fn follow(&mut self, mark: Mark, target: usize) -> bool {
        let router = self.router;
        let mut left = vec![target];
        while let Some(id) = left.pop() {
            self.steps += 1;
            let instance = &router.instances[id];
            let ends = self.steps > MOST_STEPS || self.answers.len() > MOST_ANSWERS;
            self.is_cut |= ends;
            if ends || id == mark.splitter - 1 {
                return true;
            }
            if instance.class.is_end() {
                continue;
            }
            if instance.class.answers {
                if std::mem::replace(&mut self.asked[id], mark) == mark {
                    continue;
                }
                // Others than those that it answers go on.
                self.answers.push((mark, id));
                left.extend(instance.outputs.iter().skip(1).flatten().map(|(next, _)| *next));
                continue;
            }
            let before = std::mem::replace(&mut self.came[id], mark);
            self.meet_at(mark, id);
            if before.splitter != mark.splitter {
                left.extend(instance.outputs.iter().flatten().map(|(next, _)| *next));
            }
        }
        false
    }

    /// Follows the answers to packets of an output.
    fn follow_answers(&mut self, mark: Mark, mut left: Vec<usize>) {
        let router = self.router;
        let mut passed = Vec::new();
        let mut leads_elsewhere = false;
        while let Some(id) = left.pop() {
            self.steps += 1;
            let instance = &router.instances[id];
            if id == mark.splitter - 1 {
                continue;
            }
            if instance.class.is_end() {
                leads_elsewhere = true;
                continue;
            }
            leads_elsewhere |= self.came[id].splitter == mark.splitter;
            let before = std::mem::replace(&mut self.answered[id], mark);
            if before.splitter == mark.splitter {
                leads_elsewhere |= self.counts[before.output];
                if before.output != mark.output {
                    // Where they lead is known.
                    passed.push(id);
                    self.answered[id] = before;
                }
                continue;
            }
            passed.push(id);
            let mut outputs = instance.outputs.iter().flatten().peekable();
            leads_elsewhere |= outputs.peek().is_none();
            left.extend(outputs.map(|(next, _)| *next));
        }
        if leads_elsewhere {
            self.counts[mark.output] = true;
            passed.into_iter().for_each(|id| self.meet_at(mark, id));
        }
    }

    /// Notes that packets of an output come to an element.
    fn meet_at(&mut self, mark: Mark, id: usize) {
        let place = first(&mut self.places, id);
        let owner = self.owners[place];
        if owner.splitter == mark.splitter {
            join(&mut self.meets, owner.output, mark.output);
        } else {
            self.owners[place] = mark;
        }
    }
}

#[cfg(test)]
mod tests;
