//! `RegexClassifier`: patterns of regular expressions in a packet's bytes.

use std::cell::RefCell;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

use super::sorter::Sorter;
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::packet::Annotated;
use crate::router::{At, Setup};

pub(super) const CLASSES: &[Class] =
    &[Class::new("RegexClassifier", regex_classifier).ports("1/-").processing("h/h").creates_nothing()];

/// The most memory for the automata of an element (bytes).
const MEMORY: usize = 16 << 20;

/// `RegexClassifier(PATTERN, ... [, PAYLOAD_ONLY])`: packets go to the output whose regular expression is the first that
/// is found in their bytes.
///
/// Other packets go to one output more if there is one, else they end. With `PAYLOAD_ONLY` the bytes from the transport
/// header on are searched. Time is linear in a packet's length.
struct RegexClassifier {
    patterns: Regex,
    /// The most bytes of what it remembers while it searches.
    cache: usize,
    found: RefCell<PatternSet>,
    payload_only: bool,
    sorter: Sorter,
}

fn regex_classifier(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let payload_only = arguments.keyword("PAYLOAD_ONLY").unwrap_or(false);
    let patterns: Vec<String> = arguments
        .rest()
        .iter()
        .map(|text| String::from_utf8_lossy(&crate::language::text::unquote(text)).into_owned())
        .collect();
    arguments.complete()?;
    if patterns.len() != setup.outputs() && patterns.len() + 1 != setup.outputs() {
        let outputs = setup.outputs();
        setup.errors.error(&format!("need {outputs} patterns, or one less, for {outputs} output ports"));
        return None;
    }
    // Automata are made in the place of packets' time where others share the worker: their size bounds that, too.
    let router = setup.at.router;
    let room = router.room().get();
    let most = MEMORY.min(router.automata.get()).min(room / 2);
    let cache = (MEMORY / 8).min(room / 8);
    let config = Regex::config()
        .match_kind(MatchKind::All)
        .utf8_empty(false)
        .nfa_size_limit(Some(most))
        .hybrid_cache_capacity(cache);
    let bytes = syntax::Config::new().unicode(false).utf8(false);
    match Regex::builder().configure(config).syntax(bytes).build_many(&patterns) {
        Ok(patterns) => {
            let found = RefCell::new(PatternSet::new(patterns.pattern_len()));
            // Each takes a part of what is left.
            router.room().set(room.saturating_sub(patterns.memory_usage() + 2 * cache));
            router.automata.set(router.automata.get().saturating_sub(patterns.memory_usage()));
            Some(Rc::new(RegexClassifier { patterns, cache, found, payload_only, sorter: Sorter::default() }))
        }
        Err(problem) => {
            let number =
                problem.pattern().map_or(String::new(), |number| format!("pattern {}: ", number.as_usize()));
            let cause = problem.syntax_error().map_or_else(|| problem.to_string(), ToString::to_string);
            let cause = match problem.size_limit() {
                Some(_) => format!(
                    "the patterns need more than the {most} bytes that are left for automata: take shorter ones"
                ),
                None => cause,
            };
            setup.errors.error(&format!("{number}{}", cause.lines().last().unwrap_or("bad pattern")));
            None
        }
    }
}

impl RegexClassifier {
    /// The number of the first pattern, or of the output for packets without any.
    fn output(&self, packet: &Packet) -> u32 {
        let bytes = if self.payload_only { packet.transport().unwrap_or_default() } else { packet.data() };
        let mut found = self.found.borrow_mut();
        found.clear();
        self.patterns.which_overlapping_matches(&Input::new(bytes), &mut found);
        let first = found.iter().next().map(|pattern| pattern.as_usize());
        first.unwrap_or(self.patterns.pattern_len()) as u32
    }
}

impl Element for RegexClassifier {
    fn memory(&self) -> usize {
        // A search runs forward and back.
        self.patterns.memory_usage() + 2 * self.cache
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        let output = self.output(&packet);
        at.push_or_drop(output as usize, packet, DropReason::Denied);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        self.sorter.pass(at, batch, DropReason::Denied, |batch, to| {
            to.clear();
            to.extend(batch.iter().map(|packet| self.output(packet)));
        });
    }
}
