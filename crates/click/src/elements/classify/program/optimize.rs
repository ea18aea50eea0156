//! Makes programs shorter: tests whose answers are known are skipped, and tests of one word are joined.
//!
//! What is known at a step is kept for the ways that lead to it: of each way the answers to the tests on it. Of more
//! than [`WAYS`] ways what they have in common is kept.

use std::collections::HashSet;

use super::expression::Test;
use super::{Jump, Program, Step};

/// Ways to a step that are told apart.
const WAYS: usize = 4;
/// Answers that are remembered of a way; the oldest are forgotten.
const ANSWERS: usize = 128;
/// Steps of work that optimising one set of rules may take: some milliseconds, in which its worker does nothing else.
const WORK: u64 = 1_000_000;

/// The work that is left for optimising.
///
/// When it is spent, programs stay as they are: longer, and no less right.
pub(crate) struct Work {
    left: u64,
    done: u64,
}

impl Work {
    /// The work that one set of rules may take.
    pub(crate) fn of_one() -> Self {
        Self { left: WORK, done: 0 }
    }
    /// Work of another size.
    #[cfg(test)]
    pub(crate) fn of(left: u64) -> Self {
        Self { left, done: 0 }
    }
    /// Takes some steps of work; `false` once they are spent.
    fn take(&mut self, steps: usize) -> bool {
        let steps = steps as u64;
        self.done = self.done.saturating_add(steps.min(self.left));
        let enough = steps <= self.left;
        self.left = self.left.saturating_sub(steps);
        enough
    }
    /// Steps of work that were done.
    #[cfg(test)]
    pub(crate) fn done(&self) -> u64 {
        self.done
    }
    /// Whether programs are optimised no further.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

/// How packets are treated that are too short for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactness {
    /// As the program before says.
    Exact,
    /// As Click's optimiser does it, and as programs are shown.
    ///
    /// It joins two tests of a word whose last bytes differ. A packet that ends between them is then treated otherwise.
    AsShown,
}

/// The answer to a test on a way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Answer {
    /// The first step with the same test.
    test: usize,
    /// The step that asked.
    step: usize,
    passed: bool,
}

/// Answers in the order in which they were got.
type Way = Vec<Answer>;

impl Program {
    /// Makes the program shorter, as far as the work lasts. `is_ip` says whether it is one for IP headers.
    pub(crate) fn optimize(&mut self, is_ip: bool, exactness: Exactness, work: &mut Work) {
        if self.steps.is_empty() || work.is_spent() {
            return;
        }
        self.sort_conjunctions(is_ip, work);
        self.skip_known(exactness, work);
        self.join_tests(exactness);
        self.remove_unused();
    }

    /// Sorts tests that must all hold, or of which one must, by their places.
    pub(crate) fn sort_conjunctions(&mut self, is_ip: bool, work: &mut Work) {
        // The protocol first: most other fields depend on it.
        let rank = |test: &Test| {
            let place = if is_ip && test.place == super::view::NETWORK + 8 {
                super::view::NETWORK + 3
            } else {
                test.place
            };
            (place, test.mask, test.value)
        };
        // The one step that leads to each, if one does; as in Click the first step counts as many.
        let mut only = vec![None; self.steps.len()];
        let mut seen = vec![false; self.steps.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for next in step.next.iter().filter_map(|next| next.step()) {
                only[next] = (!seen[next] && at > 0).then_some(at);
                seen[next] = true;
            }
        }
        let mut at = 0;
        while at < self.steps.len() && work.take(1) {
            let mut back = None;
            for side in 0..2 {
                let Some(next) = self.steps[at].next[side].filter_step(|next| only[next].is_some()) else {
                    continue;
                };
                let (first, second) = (self.steps[at], self.steps[next]);
                if first.next[1 - side] != second.next[1 - side] || rank(&first.test) <= rank(&second.test) {
                    continue;
                }
                let sides = |side_to: Jump| {
                    let mut jumps = first.next;
                    jumps[side] = side_to;
                    jumps
                };
                self.steps[at] = Step { next: sides(Jump::Step(next)), ..second };
                self.steps[next] = Step { next: sides(second.next[side]), ..first };
                back = Some(only[at].unwrap_or(at));
                break;
            }
            at = back.unwrap_or(at + 1);
        }
    }

    /// Has jumps go past tests whose answers are known.
    fn skip_known(&mut self, exactness: Exactness, work: &mut Work) {
        let known = self.known_lengths();
        let same = self.first_of_same();
        let mut arrivals: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.steps.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for (side, next) in step.next.iter().enumerate() {
                if let Jump::Step(next) = next {
                    arrivals[*next].push((at, side));
                }
            }
        }
        let mut ways: Vec<Vec<Way>> = Vec::with_capacity(self.steps.len());
        for at in 0..self.steps.len() {
            if work.is_spent() {
                return;
            }
            let mut here = self.ways_to(at, &arrivals[at], &same, &ways, work);
            if let Some(passed) = settled(&here, same[at]) {
                let next = self.steps[at].next[usize::from(passed)];
                for (from, side) in std::mem::take(&mut arrivals[at]) {
                    self.set_jump(from, side, next, &mut arrivals, work);
                }
                here.clear();
            }
            if here.is_empty() {
                for side in 0..2 {
                    self.set_jump(at, side, Jump::Drop, &mut arrivals, work);
                }
            }
            for side in 0..2 {
                let asked = Answer { test: same[at], step: at, passed: side == 1 };
                let next = self.passed_over((at, side), asked, &here, (&known, exactness), work);
                if next != self.steps[at].next[side] {
                    self.set_jump(at, side, next, &mut arrivals, work);
                }
            }
            ways.push(here);
        }
    }

    fn set_jump(
        &mut self,
        at: usize,
        side: usize,
        to: Jump,
        arrivals: &mut [Vec<(usize, usize)>],
        work: &mut Work,
    ) {
        if let Jump::Step(before) = self.steps[at].next[side] {
            work.take(arrivals[before].len());
            arrivals[before].retain(|arrival| *arrival != (at, side));
        }
        if let Jump::Step(after) = to {
            let place = arrivals[after].partition_point(|arrival| *arrival < (at, side));
            arrivals[after].insert(place, (at, side));
        }
        self.steps[at].next[side] = to;
    }

    /// The ways that lead to a step; none for one that no packet reaches.
    ///
    /// Where the work does not last, nothing is known of the one way to it.
    fn ways_to(
        &self,
        at: usize,
        from: &[(usize, usize)],
        same: &[usize],
        ways: &[Vec<Way>],
        work: &mut Work,
    ) -> Vec<Way> {
        if at == 0 {
            return vec![Way::new()];
        }
        let mut all = Vec::new();
        let mut arrivals = from.iter().peekable();
        while let Some((before, side)) = arrivals.next() {
            let both = arrivals.next_if(|(other, _)| other == before).is_some();
            let answer = Answer { test: same[*before], step: *before, passed: *side == 1 };
            for way in &ways[*before] {
                if !work.take(1 + way.len()) {
                    return vec![Way::new()];
                }
                if both {
                    all.push(way.clone());
                    continue;
                }
                if way.iter().any(|known| known.test == answer.test && known.passed != answer.passed) {
                    // No packet comes this way.
                    continue;
                }
                let mut way: Way = way.iter().copied().filter(|known| known.test != answer.test).collect();
                if way.len() >= ANSWERS {
                    way.remove(0);
                }
                way.push(answer);
                all.push(way);
            }
        }
        if all.len() <= WAYS {
            return all;
        }
        let is_in = |way: &Way, answer: &Answer| {
            way.iter().any(|other| (other.test, other.passed) == (answer.test, answer.passed))
        };
        let (first, rest) = all.split_at(1);
        work.take(first[0].len() * rest.iter().map(Vec::len).sum::<usize>());
        let common = |answer: &&Answer| rest.iter().all(|way| is_in(way, answer));
        vec![first[0].iter().filter(common).copied().collect()]
    }

    /// Where a jump leads when tests are passed over whose answers are known on all ways.
    fn passed_over(
        &self,
        (at, side): (usize, usize),
        asked: Answer,
        ways: &[Way],
        (known, exactness): (&[u32], Exactness),
        work: &mut Work,
    ) -> Jump {
        let next = self.steps[at].next[side];
        if next.step().is_none() || ways.is_empty() {
            return next;
        }
        let mut follow = |way: &Way| {
            let mut visited = vec![next];
            let mut last = next;
            while let Jump::Step(step) = last
                && work.take(1 + way.len())
            {
                let mut answers = std::iter::once(&asked).chain(way.iter().rev());
                let answer = answers.find_map(|answer| {
                    let from = (&self.steps[answer.step], answer.passed, known[answer.step]);
                    decides(from, &self.steps[step], exactness)
                });
                let Some(passed) = answer else { break };
                last = self.steps[step].next[usize::from(passed)];
                visited.push(last);
            }
            visited
        };
        let mut followed = ways.iter().map(&mut follow);
        let mut common = followed.next().unwrap_or_default();
        let end = common.last().copied();
        let mut same_end = true;
        for visited in followed {
            same_end &= visited.last().copied() == end;
            let visited: HashSet<Jump> = visited.into_iter().collect();
            common.retain(|jump| visited.contains(jump));
        }
        match end {
            Some(end) if same_end => end,
            _ => common.iter().rev().copied().find(|jump| jump.step().is_some()).unwrap_or(next),
        }
    }

    /// Lengths that packets have for certain when they reach each step.
    fn known_lengths(&self) -> Vec<u32> {
        let mut known = vec![u32::MAX; self.steps.len()];
        if let Some(first) = known.first_mut() {
            *first = 0;
        }
        for (at, step) in self.steps.iter().enumerate() {
            let here = known[at];
            for (side, next) in step.next.iter().enumerate() {
                if let Jump::Step(next) = next {
                    let short = step.short == (side == 1);
                    let length = if short { here } else { here.max(step.test.need()) };
                    known[*next] = known[*next].min(length);
                }
            }
        }
        known
    }

    /// The first step with the same test, for each step.
    fn first_of_same(&self) -> Vec<usize> {
        let mut first = std::collections::HashMap::new();
        self.steps
            .iter()
            .enumerate()
            .map(|(at, step)| *first.entry((step.test, step.short)).or_insert(at))
            .collect()
    }

    /// Joins a test with the one behind it where both are of one word.
    fn join_tests(&mut self, exactness: Exactness) {
        for at in (0..self.steps.len()).rev() {
            loop {
                if let Some(no) = self.steps[at].no().step() {
                    let other = self.steps[no];
                    if are_compatible(&other.test, &self.steps[at].test) && is_bit(&self.steps[at].test) {
                        flip(&mut self.steps[at]);
                    } else if let Some(joined) = either(&self.steps[at], &other) {
                        self.steps[at] = joined;
                        continue;
                    }
                }
                let Some(yes) = self.steps[at].yes().step() else { break };
                let step = self.steps[at];
                if step.no() == self.steps[yes].yes() && is_bit(&self.steps[yes].test) {
                    flip(&mut self.steps[yes]);
                }
                let Some(joined) = both(&step, &self.steps[yes], exactness) else { break };
                self.steps[at] = joined;
            }
        }
    }

    /// Removes tests that decide nothing, and steps that no jump leads to.
    fn remove_unused(&mut self) {
        let mut end: Vec<Jump> = vec![Jump::Drop; self.steps.len()];
        for at in (0..self.steps.len()).rev() {
            let next = self.steps[at].next.map(|next| next.step().map_or(next, |step| end[step]));
            let step = &mut self.steps[at];
            step.next = next;
            end[at] =
                if step.yes() != step.no() && step.test.mask != 0 { Jump::Step(at) } else { step.yes() };
        }
        let first = match end.first() {
            Some(Jump::Step(first)) => *first,
            Some(all) => {
                self.everything = *all;
                self.steps.clear();
                return;
            }
            None => return,
        };
        let mut reached = vec![false; self.steps.len()];
        reached[first] = true;
        for at in first..self.steps.len() {
            if reached[at] {
                self.steps[at]
                    .next
                    .iter()
                    .filter_map(|next| next.step())
                    .for_each(|next| reached[next] = true);
            }
        }
        let mut place = vec![0; self.steps.len()];
        let mut count = 0;
        for (at, reached) in reached.iter().enumerate() {
            place[at] = count;
            count += usize::from(*reached);
        }
        let mut at = 0;
        self.steps.retain(|_| {
            at += 1;
            reached[at - 1]
        });
        for step in &mut self.steps {
            step.next = step.next.map(|next| next.step().map_or(next, |step| Jump::Step(place[step])));
        }
    }
}

impl Jump {
    fn filter_step(self, keep: impl FnOnce(usize) -> bool) -> Option<usize> {
        self.step().filter(|step| keep(*step))
    }
}

/// The answer to a test that all ways agree on.
fn settled(ways: &[Way], test: usize) -> Option<bool> {
    let mut answers = ways
        .iter()
        .map(|way| way.iter().rev().find(|answer| answer.test == test).map(|answer| answer.passed));
    let first = answers.next()??;
    answers.all(|answer| answer == Some(first)).then_some(first)
}

/// The answer to a test that follows from the answer to another, if it does.
///
/// Beside that answer `from` has the length that packets had for certain before.
fn decides((from, passed, known): (&Step, bool, u32), test: &Step, exactness: Exactness) -> Option<bool> {
    if test.test.mask == 0 {
        return Some(true);
    }
    if from.test.place != test.test.place {
        return None;
    }
    let answer = decides_long(&from.test, passed, &test.test)?;
    let (need, need_here) = (from.test.need(), test.test.need());
    let good = if from.short == passed && need > known {
        // Packets may have been too short for the other. Such must be so for this one too.
        need <= need_here && test.short == answer
    } else {
        // Packets that were long enough for the other may be too short for this one.
        need_here <= known.max(need) || test.short == answer || exactness == Exactness::AsShown
    };
    good.then_some(answer)
}

/// The same for packets that are long enough for both tests, of one word.
fn decides_long(from: &Test, passed: bool, test: &Test) -> Option<bool> {
    let common = from.mask & test.mask;
    if passed {
        (common == test.mask).then_some(from.value & common == test.value)
    } else if from.mask == test.mask && from.mask.is_power_of_two() {
        Some(from.value != test.value)
    } else {
        // The test asks for all that the other did not find, and more.
        (common == from.mask && test.value & common == from.value).then_some(false)
    }
}

fn is_bit(test: &Test) -> bool {
    test.mask.is_power_of_two()
}

/// Asks for the other value of a single bit instead.
fn flip(step: &mut Step) {
    step.test.value ^= step.test.mask;
    step.next.swap(0, 1);
    step.short = !step.short;
}

/// Whether some word passes both tests.
fn are_compatible(one: &Test, other: &Test) -> bool {
    let common = one.mask & other.mask;
    common == 0 && (one.mask == 0 || other.mask == 0)
        || one.place == other.place && (one.value ^ other.value) & common == 0
}

/// The test that passes what one of two passes, where they differ in the value of a bit.
fn either(step: &Step, other: &Step) -> Option<Step> {
    let differs = step.test.value ^ other.test.value;
    let same_field =
        step.test.place == other.test.place && step.test.mask == other.test.mask && step.test.mask != 0;
    if step.test.place == 0
        || !same_field
        || (!step.short && other.short)
        || step.yes() != other.yes()
        || differs & differs.wrapping_sub(1) != 0
    {
        return None;
    }
    let test = Test::new(step.test.place, step.test.mask & !differs, step.test.value);
    (test.need() == step.test.need()).then_some(Step {
        test,
        short: step.short,
        next: [other.no(), step.yes()],
    })
}

/// The test that passes what passes two in turn.
fn both(step: &Step, then: &Step, exactness: Exactness) -> Option<Step> {
    if step.no() != then.no() || !are_compatible(&then.test, &step.test) {
        return None;
    }
    let (need, need_then) = (step.test.need(), then.test.need());
    let mut short = step.short;
    match exactness {
        Exactness::AsShown if step.short != then.short && need_then < need => return None,
        Exactness::AsShown => (),
        // A packet that is too short for the joined test goes the way that it went before.
        Exactness::Exact if step.test.mask == 0 => short = then.short,
        Exactness::Exact => {
            let fits = match (step.short, then.short) {
                (false, false) => true,
                (false, true) => need_then <= need,
                (true, false) => need <= need_then,
                (true, true) => need == need_then,
            };
            if !fits {
                return None;
            }
            short = step.short && then.short;
        }
    }
    let place = if step.test.mask == 0 { then.test.place } else { step.test.place };
    let test =
        Test { place, mask: step.test.mask | then.test.mask, value: step.test.value | then.test.value };
    Some(Step { test, short, next: [step.no(), then.yes()] })
}
