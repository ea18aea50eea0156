//! Programs in the form in which they run.

use super::expression::Test;
use super::view::View;
use super::{Jump, Program, SORTED};

/// The answer where a packet ends.
pub(crate) const DROP: u32 = u32::MAX;
/// Set in a place to go that is an output.
const OUT: u32 = 1 << 31;

/// A test of one word for one value or several.
struct Node {
    place: u16,
    /// Whether too short packets pass.
    short: bool,
    /// How many values there are.
    count: u32,
    mask: u32,
    /// The value, or where the values begin.
    value: u32,
    /// Where packets go that fail, and that pass.
    next: [u32; 2],
}

/// A program that runs.
pub(crate) struct Matcher {
    nodes: Box<[Node]>,
    values: Box<[u32]>,
    everything: u32,
}

/// A number in the order in which the machine reads the bytes of a packet.
fn as_read(number: u32) -> u32 {
    u32::from_ne_bytes(number.to_be_bytes())
}

impl Matcher {
    /// The program in its running form.
    pub(crate) fn new(program: &Program) -> Self {
        let (program, lengths) = program.grouped();
        let mut node_of = vec![0_u32; program.steps.len()];
        let mut first = 0;
        for (node, length) in lengths.iter().enumerate() {
            node_of[first] = node as u32;
            first += length;
        }
        let to = |jump: Jump| match jump {
            Jump::Step(step) => node_of[step],
            Jump::Output(output) => OUT | output,
            Jump::Drop | Jump::Fail => DROP,
        };
        let mut nodes = Vec::with_capacity(lengths.len());
        let mut values: Vec<u32> = Vec::new();
        let mut steps = &program.steps[..];
        for length in lengths {
            let (group, rest) = steps.split_at(length);
            steps = rest;
            let [first, .., last] = group else {
                nodes.extend(group.iter().map(|one| Node::of(&one.test, one.short, one.next.map(to))));
                continue;
            };
            let next = [to(last.no()), to(first.yes())];
            let start = values.len() as u32;
            values.extend(group.iter().map(|step| as_read(step.test.value)));
            let node = Node::of(&first.test, first.short, next);
            nodes.push(Node { count: length as u32, value: start, ..node });
        }
        let mut matcher =
            Self { nodes: nodes.into(), values: values.into(), everything: to(program.everything) };
        matcher.sort();
        matcher
    }

    /// Sorts values that are searched.
    fn sort(&mut self) {
        for node in self.nodes.iter().filter(|node| node.count as usize >= SORTED) {
            if let Some(values) = self.values.get_mut(node.value as usize..(node.value + node.count) as usize)
            {
                values.sort_unstable();
            }
        }
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.values)
    }

    /// The number of its tests, where one for several values counts once.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The output for a packet, or [`DROP`].
    #[inline]
    pub(crate) fn output(&self, packet: &impl View) -> u32 {
        let Some(mut node) = self.nodes.first() else { return target(self.everything) };
        loop {
            let next = match packet.word(node.place) {
                // Most tests of a long program fail. A branch that is foreseen does not wait for the word.
                Some(word) if node.count == 1 => {
                    if word & node.mask == node.value {
                        std::hint::cold_path();
                        node.next[1]
                    } else {
                        node.next[0]
                    }
                }
                Some(word) => node.next[usize::from(self.passes(node, word))],
                None => node.next[usize::from(self.passes_short(node, packet))],
            };
            match self.nodes.get(next as usize) {
                Some(next) => node = next,
                None => return target(next),
            }
        }
    }

    #[inline(always)]
    fn passes(&self, node: &Node, word: u32) -> bool {
        let word = word & node.mask;
        if node.count == 1 {
            return word == node.value;
        }
        let start = node.value as usize;
        let values = self.values.get(start..start + node.count as usize).unwrap_or_default();
        if values.len() < SORTED { values.contains(&word) } else { values.binary_search(&word).is_ok() }
    }

    /// The same for a packet that may be too short.
    #[cold]
    fn passes_short(&self, node: &Node, packet: &impl View) -> bool {
        let mask = u32::from_be_bytes(node.mask.to_ne_bytes());
        if Test::new(node.place, mask, 0).need() > packet.length() {
            return node.short;
        }
        self.passes(node, packet.part(node.place))
    }
}

impl Node {
    fn of(test: &Test, short: bool, next: [u32; 2]) -> Self {
        let (mask, value) = (as_read(test.mask), as_read(test.value));
        Self { place: test.place, short, count: 1, mask, value, next }
    }
}

#[inline(always)]
fn target(next: u32) -> u32 {
    if next == DROP { DROP } else { next & !OUT }
}
