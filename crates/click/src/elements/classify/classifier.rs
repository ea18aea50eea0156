//! `Classifier`: patterns of bytes.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::program::Jump;
use super::program::expression::{Expression, Test};
use super::program::rules::{Rule, Rules, Subject};
use super::sorter::Sorter;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("Classifier", classifier).ports("1/-").processing("h/h").creates_nothing().live()];

/// `Classifier(PATTERN, ...)`: packets go to the output whose pattern is the first that matches. Others end.
///
/// A pattern is `-` for all packets, or clauses `OFFSET/VALUE%MASK` of bytes in hexadecimal, where `?` stands for any
/// digit. `!` before a clause asks for its opposite.
struct Classifier {
    rules: RefCell<Rc<Rules>>,
    sorter: Sorter,
}

fn classifier(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let rules = read(&arguments.rest(), setup.at, setup.errors)?;
    Some(Rc::new(Classifier { rules: RefCell::new(Rc::new(rules)), sorter: Sorter::default() }))
}

fn read(arguments: &[String], at: At<'_>, errors: &Errors) -> Option<Rules> {
    if arguments.len() != at.outputs() {
        errors.error(&format!("need {} arguments, one per output port", at.outputs()));
        return None;
    }
    let before = errors.count();
    let rules: Vec<Rule> = arguments
        .iter()
        .enumerate()
        .map(|(output, text)| {
            let error = |problem: &str| errors.error(&format!("pattern {output}: {problem}"));
            (Some(pattern(text, &error)), Jump::Output(output as u32))
        })
        .collect();
    if errors.count() > before {
        return None;
    }
    let rules = Rules::new(rules, Subject::Bytes, at.router.surroundings().seed);
    rules.warn_of_unused(at.outputs(), errors);
    Some(rules)
}

/// Reads a pattern.
fn pattern(text: &str, error: &dyn Fn(&str)) -> Expression {
    let mut parts = Vec::new();
    let mut rest = if text == "-" { "" } else { text.trim_start() };
    while !rest.is_empty() {
        let clause = rest.strip_prefix('!').map(str::trim_start);
        match self::clause(clause.unwrap_or(rest), error) {
            Some((words, behind)) => {
                if !words.is_empty() {
                    let all = Expression::All(words);
                    parts.push(if clause.is_some() { all.not() } else { all });
                }
                rest = behind.trim_start();
            }
            None => break,
        }
    }
    if parts.is_empty() {
        parts.push(Expression::constant(true));
    }
    Expression::All(parts)
}

/// Splits behind the characters that fit.
fn split_while(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !fits(letter)).unwrap_or(text.len()))
}

/// Reads `OFFSET/VALUE%MASK`; gives its tests and the rest. `None` after an error that ends the pattern.
fn clause<'t>(text: &'t str, error: &dyn Fn(&str)) -> Option<(Vec<Expression>, &'t str)> {
    let (offset, rest) = split_while(text, |letter| letter.is_ascii_digit());
    if offset.is_empty() {
        error("expected a digit");
        return None;
    }
    let Some(rest) = rest.strip_prefix('/') else {
        error("expected '/'");
        return None;
    };
    let is_digit = |letter: char| letter.is_ascii_hexdigit() || letter == '?';
    let (mut value, mut rest) = split_while(rest, is_digit);
    let mut mask = None;
    if let Some(behind) = rest.strip_prefix('%') {
        let digits;
        (digits, rest) = split_while(behind, is_digit);
        mask = Some(digits);
    }
    if value.len() < 2 {
        error("value has less than 2 hex digits");
        value = "";
        mask = mask.map(|_| "");
    }
    if value.len() % 2 != 0 {
        error("value has odd number of hex digits");
        value = &value[..value.len() - 1];
        mask = mask.map(|mask| &mask[..mask.len().saturating_sub(1)]);
    }
    if let Some(mask) = mask
        && mask.len() != value.len()
    {
        let problem = if mask.len() > value.len() { "many" } else { "few" };
        error(&format!("mask has too {problem} hex digits"));
        value = "";
    }
    let offset: usize = offset.parse().unwrap_or(usize::MAX);
    Some((words(offset, value, mask), rest))
}

/// The tests of bytes from an offset on.
fn words(offset: usize, value: &str, mask: Option<&str>) -> Vec<Expression> {
    let mut tests: Vec<Test> = Vec::new();
    for (at, digits) in value.as_bytes().chunks_exact(2).enumerate() {
        let (value, mut bits) = byte(digits);
        if let Some(mask) = mask {
            let (of_mask, known) = mask.as_bytes().get(2 * at..2 * at + 2).map_or((0, 0), byte);
            bits &= of_mask & known;
        }
        let place = offset.wrapping_add(at);
        if at == 0 || place % 4 == 0 {
            tests.push(Test::new((place & !3) as u16, 0, 0));
        }
        if let Some(test) = tests.last_mut() {
            let shift = 24 - 8 * (place % 4);
            test.mask |= bits << shift;
            test.value |= (value & bits) << shift;
        }
    }
    tests.into_iter().map(|test| Expression::Word { test, negated: false, short: false }).collect()
}

/// A byte of two digits and the bits that they tell.
fn byte(digits: &[u8]) -> (u32, u32) {
    digits.iter().fold((0, 0), |(value, mask), digit| match char::from(*digit).to_digit(16) {
        Some(digit) => (value << 4 | digit, mask << 4 | 0xF),
        None => (value << 4, mask << 4),
    })
}

impl Element for Classifier {
    fn memory(&self) -> usize {
        self.rules.borrow().memory()
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let output = self.rules.borrow().output(&packet);
        at.push_or_drop(output as usize, packet, DropReason::Denied);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        let choose = |batch: &mut Batch, to: &mut Vec<u32>| self.rules.borrow().outputs(batch, to);
        self.sorter.pass(at, batch, DropReason::Denied, choose);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("program", |this: &Self, _| this.rules.borrow().text()).calm = true;
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.rules.replace(Rc::clone(&fresh.rules.borrow()));
        true
    }
}
