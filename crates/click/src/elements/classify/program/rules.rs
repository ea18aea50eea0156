//! Rules, in the form that answers fastest.

use std::cell::RefCell;
use std::collections::HashSet;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::tables::classifier::Keys;

use super::expression::Expression;
use super::matcher::{DROP, Matcher};
use super::optimize::{Exactness, Work};
use super::table::RuleTable;
use super::view::{self, BytesView, HeadersView, View};
use super::{Jump, Program};
use crate::language::errors::Errors;

/// Tests from which on rules go to a table.
///
/// They take longer than a packet's key and a probe: some 20 ns.
const MANY_TESTS: usize = 20;
/// Steps from which on rules are tried in a table before their program is optimised, which takes longer.
const LARGE: usize = 1_000;
/// Packets of at least this length have all the words that tables take for granted.
const BASE_BYTES: usize = 16;
/// Bytes of an IPv4 header without options.
const BASE_NETWORK: usize = 20;

/// A condition, and where packets go that fulfil it.
pub(crate) type Rule = (Option<Expression>, Jump);

/// The way in which packets are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Bytes from the packet's first on.
    Bytes,
    /// The headers whose places are noted.
    Headers,
}

/// Rules of which the first that matches decides.
pub(crate) struct Rules {
    rules: Vec<Rule>,
    subject: Subject,
    with_mac: bool,
    matcher: Matcher,
    /// Outputs that some packet may take.
    reached: HashSet<u32>,
    table: Option<RuleTable>,
    /// Memory that is used again: keys of packets, and what was found for them.
    scratch: RefCell<(Keys, Vec<Option<u32>>)>,
    /// Bytes that rules, program and table take.
    memory: usize,
}

/// The program of some rules, optimised as far as the work lasts.
pub(crate) fn program(rules: &[Rule], subject: Subject, exactness: Exactness, work: &mut Work) -> Program {
    optimized(plain(rules), subject, exactness, work)
}

/// The program of each rule.
fn plain(rules: &[Rule]) -> Vec<Program> {
    rules.iter().map(|(condition, target)| Program::of_rule(condition.as_ref(), *target)).collect()
}

fn optimized(mut programs: Vec<Program>, subject: Subject, exactness: Exactness, work: &mut Work) -> Program {
    if subject == Subject::Bytes {
        let mut all = Program::joined(&programs);
        all.optimize(false, exactness, work);
        return all;
    }
    if programs.len() == 1 {
        programs.iter_mut().for_each(|program| program.optimize(true, exactness, work));
    }
    // Neighbours are joined first, then pairs of them, and so on: programs stay short while they are optimised.
    let mut reach = 1;
    while reach < programs.len() && !work.is_spent() {
        for first in (0..programs.len() - reach).step_by(2 * reach) {
            let behind = std::mem::replace(&mut programs[first + reach], PASSED.clone());
            programs[first].add(&behind);
            programs[first].optimize(true, exactness, work);
        }
        reach *= 2;
    }
    let mut all = Program::joined(&programs);
    all.sort_conjunctions(true, work);
    all
}

/// A program that decides nothing, where one was joined with another.
const PASSED: Program = Program { steps: Vec::new(), everything: Jump::Fail };

impl Rules {
    /// The rules in their fastest form. `seed` keeps senders from choosing packets that collide in a table.
    pub(crate) fn new(rules: Vec<Rule>, subject: Subject, seed: u64) -> Self {
        Self::with_work(rules, subject, seed, &mut Work::of_one())
    }

    pub(super) fn with_work(rules: Vec<Rule>, subject: Subject, seed: u64, work: &mut Work) -> Self {
        let base = match subject {
            Subject::Bytes => BASE_BYTES as u16,
            Subject::Headers => view::NETWORK + BASE_NETWORK as u16,
        };
        let programs = plain(&rules);
        let large = programs.iter().map(|program| program.steps.len()).sum::<usize>() > LARGE;
        let mut table = if large { RuleTable::new(&rules, base, seed) } else { None };
        // Beside a table the program answers for packets that are too short for it: they may take longer.
        let program = match &table {
            Some(_) => Program::joined(&programs),
            None => optimized(programs, subject, Exactness::Exact, work),
        };
        let matcher = Matcher::new(&program);
        if !large && matcher.len() >= MANY_TESTS {
            table = RuleTable::new(&rules, base, seed);
        }
        let with_mac =
            subject == Subject::Headers && rules.iter().filter_map(|rule| rule.0.as_ref()).any(looks_at_mac);
        let conditions: usize = rules.iter().filter_map(|rule| rule.0.as_ref()).map(Expression::bytes).sum();
        let memory = conditions
            + rules.capacity() * size_of::<Rule>()
            + matcher.bytes()
            + table.as_ref().map_or(0, RuleTable::bytes);
        Self {
            memory,
            rules,
            subject,
            with_mac,
            matcher,
            reached: program.outputs(),
            table,
            scratch: RefCell::default(),
        }
    }

    /// The program as Click shows it.
    pub(crate) fn text(&self) -> String {
        let program = program(&self.rules, self.subject, Exactness::AsShown, &mut Work::of_one());
        match self.subject {
            Subject::Bytes => program.text(),
            Subject::Headers => program.grouped().0.text(),
        }
    }

    /// Whether a table answers for packets that are long enough.
    #[cfg(test)]
    pub(super) fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// Bytes that rules, program and table take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// The number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Warns of each output that no packet takes.
    pub(crate) fn warn_of_unused(&self, outputs: usize, errors: &Errors) {
        for output in (0..outputs).filter(|output| !self.reached.contains(&(*output as u32))) {
            errors.warning(&format!("output {output} matches no packets"));
        }
    }

    /// The output for a packet, or [`DROP`].
    pub(crate) fn output(&self, packet: &Packet) -> u32 {
        match self.subject {
            Subject::Bytes => self.output_of(&BytesView(packet.data()), |view| view.0.len() >= BASE_BYTES),
            Subject::Headers => {
                let view = HeadersView::of(packet, self.with_mac);
                self.output_of(&view, |view| view.network_length() >= BASE_NETWORK)
            }
        }
    }

    pub(super) fn output_of<V: View>(&self, view: &V, has_base: impl Fn(&V) -> bool) -> u32 {
        if let Some(table) = &self.table
            && has_base(view)
            && let Some(output) = table.output(view)
        {
            return output;
        }
        self.matcher.output(view)
    }

    /// The outputs for the packets of a batch, each [`DROP`] or a number.
    pub(crate) fn outputs(&self, batch: &Batch, to: &mut Vec<u32>) {
        to.clear();
        match (&self.table, self.subject) {
            (None, Subject::Bytes) => {
                to.extend(batch.iter().map(|packet| self.matcher.output(&BytesView(packet.data()))));
            }
            (None, Subject::Headers) => {
                let view = |packet| HeadersView::of(packet, self.with_mac);
                to.extend(batch.iter().map(|packet| self.matcher.output(&view(packet))));
            }
            (Some(table), Subject::Bytes) => {
                let view = |packet| BytesView(Packet::data(packet));
                self.look_up(table, batch, to, view, |view| view.0.len() >= BASE_BYTES);
            }
            (Some(table), Subject::Headers) => {
                let view = |packet| HeadersView::of(packet, self.with_mac);
                self.look_up(table, batch, to, view, |view| view.network_length() >= BASE_NETWORK);
            }
        }
    }

    /// Looks the packets up in the table, and runs the program for those that are too short for it.
    fn look_up<'p, V: View>(
        &self,
        table: &RuleTable,
        batch: &'p Batch,
        to: &mut Vec<u32>,
        view: impl Fn(&'p Packet) -> V,
        has_base: impl Fn(&V) -> bool,
    ) {
        let (mut keys, mut found) = self.scratch.take();
        if keys.width() != table.width() {
            keys = Keys::new(table.width());
        }
        found.resize(batch.len(), None);
        for (packet, key) in batch.iter().zip(keys.rows(batch.len())) {
            let view = view(packet);
            // The table's answer for a packet without a key is not looked at.
            let keyed = has_base(&view) && table.key(&view, key);
            to.push(if keyed { 0 } else { self.matcher.output(&view) | UNKEYED });
        }
        table.find(&keys, &mut found);
        for (output, found) in to.iter_mut().zip(&found) {
            *output = match *output {
                0 => table.target(*found),
                DROP => DROP,
                other => other & !UNKEYED,
            };
        }
        self.scratch.replace((keys, found));
    }
}

/// Marks an answer of the program among those that the table is still to give.
const UNKEYED: u32 = 1 << 31;

fn looks_at_mac(condition: &Expression) -> bool {
    match condition {
        Expression::Word { test, .. } => test.mask != 0 && test.place < view::NETWORK,
        Expression::Compare(compare) => compare.place < view::NETWORK,
        Expression::All(parts) | Expression::Any(parts) | Expression::Choice(parts) => {
            parts.iter().any(looks_at_mac)
        }
    }
}
