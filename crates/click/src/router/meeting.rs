//! Outputs of an element whose packets can meet again: there the packets of a burst keep their order of arrival.
//!
//! An element that divides a burst hands on whole batches to outputs that never meet. To outputs that meet it hands on
//! runs of packets, and each run goes all its way before the next one.

use std::cell::{OnceCell, RefCell};

use super::{At, Router};

/// Steps of the search through all connections at most; elements that are left keep the order between all outputs.
const MOST_STEPS: usize = 1 << 22;

/// Of each element the group of each output, where some outputs meet. Outputs of one group can meet.
type Groups = Box<[Option<Box<[u32]>>]>;

/// Places where packets of one burst meet.
#[derive(Default)]
pub(super) struct Meetings {
    /// Elements that named others when they were configured, as those that share a table do.
    named: RefCell<Vec<(usize, usize)>>,
    groups: OnceCell<Groups>,
}

impl Router {
    /// Notes that an element that packets pass names another while all are configured.
    pub(super) fn note_name(&self, context: usize, id: usize) {
        let has_inputs = self.instances.get(context).is_some_and(|one| !one.inputs.is_empty());
        if has_inputs && !self.handlers_ready.get() {
            self.meetings.named.borrow_mut().push((context, id));
        }
    }
    /// Finds out which outputs meet.
    pub(super) fn meetings(&self) -> &[Option<Box<[u32]>>] {
        self.meetings.groups.get_or_init(|| Search::new(self).run())
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
    /// The output whose packets or answers come to a place.
    owners: Vec<Mark>,
    /// Which output each one meets, in chains; and whether its answers lead elsewhere than back.
    meets: Vec<usize>,
    counts: Vec<bool>,
    steps: usize,
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
        for (one, other) in router.meetings.named.borrow().iter() {
            join(&mut places, *one, *other);
        }
        let marks = vec![Mark::default(); count];
        Self {
            router,
            places,
            came: marks.clone(),
            answered: marks.clone(),
            owners: marks,
            meets: Vec::new(),
            counts: Vec::new(),
            steps: 0,
        }
    }

    fn run(mut self) -> Groups {
        (0..self.router.len()).map(|splitter| self.groups(splitter)).collect()
    }

    fn groups(&mut self, splitter: usize) -> Option<Box<[u32]>> {
        let outputs = &self.router.instances[splitter].outputs;
        // With one output or none there is nothing to meet.
        outputs.iter().flatten().nth(1)?;
        self.meets = (0..outputs.len()).collect();
        self.counts = vec![false; outputs.len()];
        for (output, target) in outputs.iter().enumerate() {
            if let Some((target, _)) = target {
                // The mark of no element is 0.
                self.follow(Mark { splitter: splitter + 1, output }, *target);
            }
        }
        let groups: Box<[u32]> =
            (0..outputs.len()).map(|output| first(&mut self.meets, output) as u32).collect();
        let apart = groups.iter().enumerate().all(|(output, group)| output == *group as usize);
        (!apart).then_some(groups)
    }

    /// Follows the packets of an output from the element that they come to.
    fn follow(&mut self, mark: Mark, target: usize) {
        let router = self.router;
        let splitter = mark.splitter - 1;
        let (mut left, mut answers) = (vec![target], Vec::new());
        while let Some(id) = left.pop() {
            self.steps += 1;
            let instance = &router.instances[id];
            if id == splitter || self.steps > MOST_STEPS {
                // They come back, and leave by any output.
                (1..self.meets.len()).for_each(|output| join(&mut self.meets, 0, output));
                return;
            }
            if instance.class.is_end() {
                continue;
            }
            if instance.class.answers {
                // Others than those that it answers go on.
                answers.push(id);
                left.extend(instance.outputs.iter().skip(1).flatten().map(|(next, _)| *next));
                continue;
            }
            let before = std::mem::replace(&mut self.came[id], mark);
            self.meet_at(mark, id);
            if before.splitter != mark.splitter {
                left.extend(instance.outputs.iter().flatten().map(|(next, _)| *next));
            }
        }
        self.follow_answers(mark, answers);
    }

    /// Follows the answers to packets of an output.
    fn follow_answers(&mut self, mark: Mark, mut left: Vec<usize>) {
        let router = self.router;
        let mut passed = Vec::new();
        let mut leads_elsewhere = false;
        while let Some(id) = left.pop() {
            self.steps += 1;
            let instance = &router.instances[id];
            if id == mark.splitter - 1 || instance.class.is_end() {
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
