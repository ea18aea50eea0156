//! Elements that say what new flows get: `RoundRobinIPMapper`, `SourceIPHashMapper`.

use std::cell::Cell;
use std::rc::Rc;

use super::flow_id::FlowId;
use super::pattern::{Decision, Pattern, Search};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::integer;

pub(super) const CLASSES: &[Class] = &[
    Class::new("RoundRobinIPMapper", round_robin).ports("0/0").phase(Class::DEFAULT - 1),
    Class::new("SourceIPHashMapper", source_hash).ports("0/0").phase(Class::DEFAULT - 1),
];

/// The most points on the circle of a `SourceIPHashMapper`.
const MOST_POINTS: usize = 1 << 20;

/// Whether elements of a class are mappers.
pub(super) fn is_mapper(class: &str) -> bool {
    CLASSES.iter().any(|mapper| mapper.name == class)
}

/// `RoundRobinIPMapper(PATTERN FORWARD REPLY, ...)`: new flows get its patterns in turn.
///
/// `SourceIPHashMapper(NODES SEED, PATTERN FORWARD REPLY ID, ...)`: new flows of one source get the same pattern, and
/// mostly do still when patterns are added or taken out.
struct Mapper {
    patterns: Vec<(Rc<Pattern>, [i32; 2])>,
    next: Cell<usize>,
    /// Points on a circle, in order, with the pattern that belongs to each. `None`: patterns come in turn.
    circle: Option<Vec<(u32, usize)>>,
}

/// A mapper's decision about a flow.
pub(super) fn decide(at: At<'_>, mapper: usize, id: FlowId, search: Search<'_>) -> Decision {
    let Some(mapper) = at.router.element_as::<Mapper>(mapper) else { return Decision::Drop };
    let decide = |place: usize| {
        let (pattern, outputs) = mapper.patterns.get(place)?;
        let rewritten = pattern.rewrite(id, search)?;
        Some(Decision::Add { rewritten, outputs: *outputs })
    };
    let decision = match &mapper.circle {
        Some(circle) => {
            let point = mix(u64::from(id.source));
            let place = circle.partition_point(|(other, _)| *other < point);
            circle.get(place).or(circle.first()).and_then(|(_, place)| decide(*place))
        }
        None => (0..mapper.patterns.len()).find_map(|_| {
            let place = mapper.next.get();
            mapper.next.set(if place + 1 < mapper.patterns.len() { place + 1 } else { 0 });
            decide(place)
        }),
    };
    decision.unwrap_or(Decision::Drop)
}

/// Tells errors of patterns whose outputs a rewriter does not have.
pub(super) fn check_outputs(at: At<'_>, mapper: usize, prefix: &str, errors: &Errors) {
    let Some(found) = at.router.element_as::<Mapper>(mapper) else { return };
    let outputs = i32::try_from(at.outputs()).unwrap_or(i32::MAX);
    for (number, (_, ports)) in found.patterns.iter().enumerate() {
        if ports.iter().any(|port| *port >= outputs) {
            let declaration = at.router.at(mapper).declaration();
            errors.error(&format!("{prefix}output port out of range in {declaration} pattern {number}"));
        }
    }
}

fn round_robin(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let errors = setup.errors;
    let lines = arguments.rest();
    match lines.len() {
        0 => {
            errors.error("no patterns given");
            return None;
        }
        1 => errors.warning("only one pattern given"),
        _ => (),
    }
    let mut patterns = Vec::with_capacity(lines.len());
    for line in &lines {
        match Pattern::parse_with_ports(&text::split_words(line), setup.at) {
            Ok(pattern) => patterns.push(pattern),
            Err(message) => errors.error(&message),
        }
    }
    let mapper = Mapper { patterns, next: Cell::new(0), circle: None };
    (mapper.patterns.len() == lines.len()).then(|| Rc::new(mapper) as Rc<dyn Element>)
}

fn source_hash(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let errors = setup.errors;
    let fail = |message: &str| {
        errors.error(message);
        None
    };
    let lines = arguments.rest();
    let Some((first, lines)) = lines.split_first() else { return fail("no hash seed given") };
    match lines.len() {
        0 => return fail("no patterns given"),
        1 => errors.warning("only one pattern given"),
        _ => (),
    }
    let words = text::split_words(first);
    let [nodes, seed] = &words[..] else { return fail("requires 2 config params: numnodes seed") };
    let nodes = integer(nodes).filter(|nodes| *nodes > 0).and_then(|nodes| usize::try_from(nodes).ok());
    let Some(nodes) = nodes else { return fail("number of nodes must be an integer") };
    let Some(seed) = integer(seed).and_then(|seed| i32::try_from(seed).ok()) else {
        return fail("hash seed must be an integer");
    };
    let before = errors.count();
    let mut patterns = Vec::with_capacity(lines.len());
    let mut servers = Vec::with_capacity(lines.len());
    for line in lines {
        let mut words = text::split_words(line);
        let server = words.pop().and_then(|word| integer(&word)).and_then(|id| u32::try_from(id).ok());
        let Some(server) = server.filter(|_| !words.is_empty()) else {
            errors.error("bad server ID in pattern spec");
            continue;
        };
        match Pattern::parse_with_ports(&words, setup.at) {
            Ok(pattern) => {
                patterns.push(pattern);
                servers.push(server);
            }
            Err(message) => errors.error(&message),
        }
    }
    if errors.count() > before {
        return None;
    }
    let nodes = nodes.min(MOST_POINTS / patterns.len().max(1)).max(1);
    if !setup.has_room("NUMNODES", nodes * patterns.len() * size_of::<(u32, usize)>()) {
        return None;
    }
    let mut circle: Vec<(u32, usize)> = Vec::with_capacity(nodes * patterns.len());
    let seed = u64::from(mix(u64::from(seed as u32))) << 32;
    for (place, server) in servers.iter().enumerate() {
        let server = u64::from(*server) << 20;
        circle.extend((0..nodes).map(|node| (mix(seed ^ (server | node as u64)), place)));
    }
    circle.sort_unstable();
    Some(Rc::new(Mapper { patterns, next: Cell::new(0), circle: Some(circle) }))
}

/// 32 well mixed bits of a number (SplitMix64's end).
fn mix(number: u64) -> u32 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ mixed >> 31) >> 32) as u32
}

impl Element for Mapper {
    fn memory(&self) -> usize {
        let circle = self.circle.as_ref().map_or(0, |circle| circle.capacity() * size_of::<(u32, usize)>());
        circle + self.patterns.capacity() * size_of::<Pattern>()
    }
}
