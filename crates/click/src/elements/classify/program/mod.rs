//! Programs that choose an output for a packet: tests that lead to other tests or to outputs.
//!
//! Rules are made into a program, which is [optimised](optimize) and then [run](matcher). A program's steps lead only
//! to later steps, so that it ends.

pub(crate) mod conjunctions;
pub(crate) mod expression;
pub(crate) mod matcher;
pub(crate) mod optimize;
pub(crate) mod rules;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use std::collections::HashSet;
use std::fmt::Write as _;

use expression::{Expression, Test};

/// Where a step leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Jump {
    /// To a later step.
    Step(usize),
    /// Out of the program, by an output.
    Output(u32),
    /// Out of the program: the packet ends.
    Drop,
    /// To the rules behind: no rule so far matched.
    Fail,
}

impl Jump {
    /// The step, if it leads to one.
    pub(crate) fn step(self) -> Option<usize> {
        match self {
            Self::Step(step) => Some(step),
            _ => None,
        }
    }
    fn text(self) -> String {
        match self {
            Self::Step(step) => format!("step {step}"),
            Self::Output(output) => format!("[{output}]"),
            Self::Drop => "[X]".into(),
            Self::Fail => "[-]".into(),
        }
    }
}

/// A test and where its answers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The test.
    pub(crate) test: Test,
    /// Whether packets that are too short for the test go where those go that pass.
    pub(crate) short: bool,
    /// Where packets go that fail, and that pass.
    pub(crate) next: [Jump; 2],
}

impl Step {
    pub(crate) fn yes(&self) -> Jump {
        self.next[1]
    }
    pub(crate) fn no(&self) -> Jump {
        self.next[0]
    }
    fn redirect(&mut self, from: Jump, to: Jump) {
        for next in &mut self.next {
            if *next == from {
                *next = to;
            }
        }
    }
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The steps, of which the first is the first.
    pub(crate) steps: Vec<Step>,
    /// Where all packets go if there are no steps.
    pub(crate) everything: Jump,
}

/// The number of an output that Click shows where all packets end.
const SHOWN_DROP: u32 = 0x7FFF_FFFF;

impl Program {
    /// A program that ends all packets.
    pub(crate) fn empty() -> Self {
        Self { steps: Vec::new(), everything: Jump::Drop }
    }

    /// A rule: packets that fulfil the condition go to `target`, others fail.
    ///
    /// A rule without condition ends all packets, as in Click.
    pub(crate) fn of_rule(condition: Option<&Expression>, target: Jump) -> Self {
        let mut program = Self::empty();
        if let Some(condition) = condition {
            program.write(&condition.expanded(), target, Jump::Fail);
        }
        program
    }

    /// Adds the steps of a condition.
    fn write(&mut self, expression: &Expression, yes: Jump, no: Jump) {
        match expression {
            Expression::Word { test, negated, short } => {
                let next = if *negated { [yes, no] } else { [no, yes] };
                self.steps.push(Step { test: *test, short: short != negated, next });
            }
            Expression::Compare(compare) => self.write(&compare.expanded(), yes, no),
            Expression::All(parts) => self.write_each(parts, |next, _| (next.unwrap_or(yes), no)),
            Expression::Any(parts) => self.write_each(parts, |next, _| (yes, next.unwrap_or(no))),
            Expression::Choice(parts) => {
                // Conditions and what they choose take turns; the last stands alone.
                self.write_each(parts, |next, at| match next {
                    Some(next) if at % 2 == 0 => {
                        let behind: usize = parts[at + 1..].iter().take(1).map(count_tests).sum();
                        (next, next.step().map_or(no, |step| Jump::Step(step + behind)))
                    }
                    _ => (yes, no),
                });
            }
        }
    }

    /// Adds the steps of some conditions; `jumps` says where each leads, given the first step of the next.
    fn write_each(&mut self, parts: &[Expression], jumps: impl Fn(Option<Jump>, usize) -> (Jump, Jump)) {
        for (at, part) in parts.iter().enumerate() {
            let next = (at + 1 < parts.len()).then(|| Jump::Step(self.steps.len() + count_tests(part)));
            let (yes, no) = jumps(next, at);
            self.write(part, yes, no);
        }
    }

    /// Whether no packet gets to a program behind this.
    fn is_closed(&self) -> bool {
        self.steps.is_empty() && self.everything != Jump::Fail
    }

    /// Leads packets that fail to `to`.
    pub(crate) fn set_failure(&mut self, to: Jump) {
        if self.everything == Jump::Fail {
            self.everything = to;
        }
        self.steps.iter_mut().for_each(|step| step.redirect(Jump::Fail, to));
    }

    /// Adds a program, to which packets go that fail in this.
    pub(crate) fn add(&mut self, behind: &Self) {
        if self.is_closed() {
            return;
        }
        if self.steps.is_empty() {
            *self = behind.clone();
            return;
        }
        let base = self.steps.len();
        self.set_failure(if behind.steps.is_empty() { behind.everything } else { Jump::Step(base) });
        self.steps.extend(behind.steps.iter().map(|step| {
            let next = step.next.map(|next| next.step().map_or(next, |step| Jump::Step(step + base)));
            Step { next, ..*step }
        }));
    }

    /// Programs as one: packets that fail in one go to the next, and behind the last they end.
    ///
    /// It takes time in proportion to their steps; programs behind one that takes all packets are left out.
    pub(crate) fn joined(programs: &[Self]) -> Self {
        let closed = programs.iter().position(Self::is_closed);
        let end = closed.map_or(Jump::Drop, |at| programs[at].everything);
        let before = &programs[..closed.unwrap_or(programs.len())];
        let last = before.iter().rposition(|program| !program.steps.is_empty());
        let mut all = Self { steps: Vec::new(), everything: end };
        for (at, program) in before.iter().enumerate().filter(|(_, program)| !program.steps.is_empty()) {
            let base = all.steps.len();
            let failure = if Some(at) == last { end } else { Jump::Step(base + program.steps.len()) };
            let moved = |next: Jump| match next {
                Jump::Step(step) => Jump::Step(step + base),
                Jump::Fail => failure,
                out => out,
            };
            all.steps.extend(program.steps.iter().map(|step| Step { next: step.next.map(moved), ..*step }));
        }
        all
    }

    /// The length that a packet must have, so that no test finds it too short.
    pub(crate) fn safe_length(&self) -> u32 {
        self.steps.iter().map(|step| step.test.need()).max().unwrap_or(0)
    }

    /// The program, where tests of one field for several values that lead to one place stand together.
    ///
    /// Each run of steps comes with its length. Seven values and more are sorted, so that a search finds one.
    pub(crate) fn grouped(&self) -> (Self, Vec<usize>) {
        let mut wanted = vec![0_usize; self.steps.len()];
        if let Some(first) = wanted.first_mut() {
            *first = 1;
        }
        for at in 0..self.steps.len() {
            if wanted[at] > 0 {
                self.steps[at].next.iter().filter_map(|next| next.step()).for_each(|next| wanted[next] += 1);
            }
        }
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.steps.len() {
            if wanted[at] == 0 {
                continue;
            }
            let step = &self.steps[at];
            let mut group = vec![at];
            let mut last = at;
            while let Jump::Step(next) = self.steps[last].no() {
                let other = &self.steps[next];
                let same = (other.test.place, other.test.mask) == (step.test.place, step.test.mask);
                if wanted[next] != 1 || !same || other.yes() != step.yes() || other.short != step.short {
                    break;
                }
                wanted[next] = 0;
                group.push(next);
                last = next;
            }
            groups.push(group);
        }
        self.in_groups(&groups)
    }

    fn in_groups(&self, groups: &[Vec<usize>]) -> (Self, Vec<usize>) {
        let mut place = vec![0; self.steps.len()];
        let mut count = 0;
        for group in groups {
            if let Some(first) = group.first() {
                place[*first] = count;
            }
            count += group.len();
        }
        let moved = |jump: Jump| jump.step().map_or(jump, |step| Jump::Step(place[step]));
        let mut steps: Vec<Step> = Vec::with_capacity(count);
        for group in groups {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let mut tests: Vec<Test> = group.iter().map(|step| self.steps[*step].test).collect();
            if tests.len() >= SORTED {
                // Click sorts the words as the machine reads them.
                tests.sort_by_key(|test| test.value.swap_bytes());
            }
            let (yes, no) = (moved(self.steps[*first].yes()), moved(self.steps[*last].no()));
            for (at, test) in tests.iter().enumerate() {
                let no = if at + 1 < tests.len() { Jump::Step(steps.len() + 1) } else { no };
                steps.push(Step { test: *test, short: self.steps[*first].short, next: [no, yes] });
            }
        }
        let lengths = groups.iter().map(Vec::len).collect();
        (Self { steps, everything: self.everything }, lengths)
    }

    /// Outputs that some packet may take.
    pub(crate) fn outputs(&self) -> HashSet<u32> {
        let everything = self.steps.is_empty().then_some(self.everything);
        let jumps = self.steps.iter().flat_map(|step| step.next).chain(everything);
        let output = |jump| if let Jump::Output(output) = jump { Some(output) } else { None };
        jumps.filter_map(output).collect()
    }

    /// The program for a reader, as Click shows it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (at, step) in self.steps.iter().enumerate() {
            let Test { place, mask, value } = step.test;
            let (yes, no) = (step.yes().text(), step.no().text());
            let short = if step.short { "  short->yes" } else { "" };
            let _ = writeln!(text, "{at:2} {place:3}/{value:08x}%{mask:08x}  yes->{yes}  no->{no}{short}");
        }
        if self.steps.is_empty() {
            let _ = match self.everything {
                Jump::Output(output) => writeln!(text, "all->[{output}]"),
                _ => writeln!(text, "all->[{SHOWN_DROP}]"),
            };
        }
        let _ = writeln!(text, "safe length {}\nalignment offset 0", self.safe_length());
        text
    }
}

/// Values of one field that are found by a search from this number on.
pub(crate) const SORTED: usize = 7;

/// The number of tests in a condition that has no comparisons.
fn count_tests(expression: &Expression) -> usize {
    match expression {
        Expression::Word { .. } => 1,
        Expression::Compare(compare) => count_tests(&compare.expanded()),
        Expression::All(parts) | Expression::Any(parts) | Expression::Choice(parts) => {
            parts.iter().map(count_tests).sum()
        }
    }
}
