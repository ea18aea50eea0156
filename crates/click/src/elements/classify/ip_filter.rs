//! `IPFilter` and `IPClassifier`: rules in the language of filters.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::filter;
use super::program::rules::{Rules, Subject};
use super::sorter::Sorter;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] = &[
    Class::new("IPFilter", ip_filter).ports("1/-").processing("h/h").creates_nothing().live(),
    Class::new("IPClassifier", ip_classifier).ports("1/-").processing("h/h").creates_nothing().live(),
];

/// `IPFilter(ACTION PATTERN, ...)`: the first pattern that matches decides: `allow`, `deny`, `drop` or an output.
///
/// `IPClassifier(PATTERN, ...)`: packets go to the output whose pattern is the first that matches. Others end. Packets
/// need their network header noted.
struct IpFilter {
    rules: RefCell<Rc<Rules>>,
    sorter: Sorter,
    is_classifier: bool,
}

fn ip_filter(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(&arguments.rest(), setup.at, setup.errors, false)
}

fn ip_classifier(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    make(&arguments.rest(), setup.at, setup.errors, true)
}

fn make(arguments: &[String], at: At<'_>, errors: &Errors, is_classifier: bool) -> Option<Rc<dyn Element>> {
    let rules = read(arguments, at, errors, is_classifier)?;
    Some(Rc::new(IpFilter { rules: RefCell::new(Rc::new(rules)), sorter: Sorter::default(), is_classifier }))
}

fn read(arguments: &[String], at: At<'_>, errors: &Errors, is_classifier: bool) -> Option<Rules> {
    if !is_classifier {
        let rules = filter::rules(arguments, at.outputs(), at, errors)?;
        return Some(Rules::new(rules, Subject::Headers, at.router.surroundings().seed));
    }
    if arguments.len() != at.outputs() {
        errors.error(&format!("need {} arguments, one per output port", at.outputs()));
        return None;
    }
    let numbered: Vec<String> =
        arguments.iter().enumerate().map(|(output, pattern)| format!("{output} {pattern}")).collect();
    let rules = filter::rules(&numbered, at.outputs(), at, errors)?;
    let rules = Rules::new(rules, Subject::Headers, at.router.surroundings().seed);
    if !at.router.handlers_ready() {
        rules.warn_of_unused(at.outputs(), errors);
    }
    Some(rules)
}

impl Element for IpFilter {
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
        handlers.read("program", |this: &Self, _| this.rules.borrow().text());
        if self.is_classifier {
            for number in 0..self.rules.borrow().len() {
                pattern_handlers(handlers, number);
            }
        }
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.rules.replace(Rc::clone(&fresh.rules.borrow()));
        true
    }
}

fn pattern_handlers(handlers: &mut Handlers, number: usize) {
    let name = format!("pattern{number}");
    let arguments = |at: At<'_>| text::split_arguments(&at.router.configuration_of(at.id));
    handlers.read(&name, move |_: &IpFilter, at| arguments(at).get(number).cloned().unwrap_or_default());
    handlers.write(&name, move |_: &IpFilter, at, value| {
        let mut all = arguments(at);
        if let Some(pattern) = all.get_mut(number) {
            value.trim().clone_into(pattern);
        }
        at.router.reconfigure(at.id, &text::join_arguments(&all))
    });
}
