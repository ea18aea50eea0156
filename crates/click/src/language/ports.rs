//! Ports: how many each element has, and which are push and which pull.

use std::collections::HashMap;

use super::config::{Configuration, Declaration};
use super::errors::Errors;

/// Passes over the connections in Click's order, before those that are left are taken one after the other.
const PASSES: usize = 64;
/// Pairs of agnostic ports of one element that are looked at each by itself.
const MAX_PAIRS: usize = 1 << 20;

/// How packets move through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing {
    /// The element before the port starts the transfer.
    Push,
    /// The element behind the port starts the transfer.
    Pull,
}

impl Processing {
    fn word(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// A class's codes for its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// The port count code: `1/1`, `1-2/-`, `0-1/=`, `1/=+`.
    pub ports: &'a str,
    /// The processing code: `a/ah`, `h/l`; a letter for each port, the last for all that follow.
    pub processing: &'a str,
    /// The flow code: `x/x`, `xy/x`, `#/#`; empty means `x/x`.
    pub flow: &'a str,
}

/// The ports of all elements: inputs and outputs by element and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The inputs of each element.
    pub inputs: Vec<Vec<Processing>>,
    /// The outputs of each element.
    pub outputs: Vec<Vec<Processing>>,
}

/// Counts the ports of all elements, decides which are push and which pull, and reports what does not fit.
///
/// `shapes` gives the shape of the element with a number. The result is complete only if no error came.
pub fn check_ports<'a>(
    configuration: &Configuration,
    shapes: &dyn Fn(usize) -> Shape<'a>,
    errors: &Errors,
) -> Resolved {
    let shapes: Vec<Shape<'a>> = (0..configuration.elements.len()).map(shapes).collect();
    let mut check = Check { configuration, errors, counts: Vec::new() };
    let before = errors.count();
    check.count(&shapes);
    let mut sides = [0, 1].map(|side| {
        let each = shapes.iter().zip(&check.counts);
        each.map(|(shape, counts)| processing_codes(shape.processing, side, counts[side])).collect::<Vec<_>>()
    });
    if errors.count() == before {
        check.propagate(&shapes, &mut sides);
    }
    // Ports that nothing decides are push.
    let [inputs, outputs] = sides.map(|side| {
        let all = side.into_iter();
        all.map(|ports| ports.into_iter().map(|port| port.unwrap_or(Processing::Push)).collect()).collect()
    });
    let resolved = Resolved { inputs, outputs };
    if errors.count() == before {
        check.completeness(&resolved);
    }
    resolved
}

type Codes = Vec<Vec<Option<Processing>>>;

/// A connection, or a pair of agnostic ports of one element, between which the processing must be the same.
struct Edge {
    from: (usize, usize),
    to: (usize, usize),
    agnostic: bool,
}

struct Check<'a> {
    configuration: &'a Configuration,
    errors: &'a Errors,
    /// Inputs and outputs of each element.
    counts: Vec<[usize; 2]>,
}

impl Check<'_> {
    fn title(&self, element: usize) -> String {
        let Declaration { name, class, .. } = &self.configuration.elements[element];
        format!("{name} :: {class}")
    }

    fn error_of(&self, element: usize, message: &str) {
        self.errors.error_at(&self.configuration.elements[element].landmark, message);
    }

    /// Gives each element the ports that its connections ask for, as far as its class allows.
    fn count(&mut self, shapes: &[Shape<'_>]) {
        let mut used = vec![[0, 0]; shapes.len()];
        for connection in &self.configuration.connections {
            for (side, (element, port)) in [connection.to, connection.from].into_iter().enumerate() {
                used[element][side] = used[element][side].max(port + 1);
            }
        }
        for (element, shape) in shapes.iter().enumerate() {
            let counts = port_counts(shape.ports, used[element]).unwrap_or_else(|| {
                self.errors.error(&format!("{}: bad port count", self.title(element)));
                [0, 0]
            });
            self.counts.push(counts);
        }
        for connection in &self.configuration.connections {
            for (side, (element, port)) in [connection.to, connection.from].into_iter().enumerate() {
                if port >= self.counts[element][side] {
                    let kind = ["input", "output"][side];
                    self.error_of(element, &format!("'{}' has no {kind} {port}", self.title(element)));
                }
            }
        }
    }

    /// Spreads push and pull along the connections and through agnostic elements.
    fn propagate(&self, shapes: &[Shape<'_>], sides: &mut [Codes; 2]) {
        let mut edges: Vec<Edge> = self.configuration.connections.iter().map(Edge::of).collect();
        for (element, shape) in shapes.iter().enumerate() {
            agnostic_pairs(element, shape, sides, &mut edges);
        }
        for _ in 0..PASSES {
            let mut changed = false;
            edges.retain(|edge| {
                let [input, output] = edge.codes(sides);
                match (input, output) {
                    (None, None) => return true,
                    (Some(a), Some(b)) if a != b => self.conflict(edge, b),
                    (Some(_), Some(_)) => {}
                    _ => {
                        changed = true;
                        edge.spread(sides);
                    }
                }
                false
            });
            if !changed {
                return;
            }
        }
        spread_all(&edges, sides);
        for edge in &edges {
            if let [Some(input), Some(output)] = edge.codes(sides)
                && input != output
            {
                self.conflict(edge, output);
            }
        }
    }

    fn conflict(&self, edge: &Edge, output: Processing) {
        let from = self.title(edge.from.0);
        let (output, input) = match output {
            Processing::Push => ("push", "pull"),
            Processing::Pull => ("pull", "push"),
        };
        let (out_port, in_port) = (edge.from.1, edge.to.1);
        self.errors.error(&if edge.agnostic {
            format!("agnostic '{from}' in mixed context: {input} input {in_port}, {output} output {out_port}")
        } else {
            let to = self.title(edge.to.0);
            format!("'{from}' {output} output {out_port} connected to '{to}' {input} input {in_port}")
        });
    }

    /// Reports ports without connections, and push outputs and pull inputs with more than one.
    fn completeness(&self, resolved: &Resolved) {
        let connections = &self.configuration.connections;
        let mut ends = [
            connections.iter().map(|connection| connection.to).collect::<Vec<_>>(),
            connections.iter().map(|connection| connection.from).collect::<Vec<_>>(),
        ];
        for (side, ends) in ends.iter_mut().enumerate() {
            ends.sort_unstable();
            let (ports, active) = match side {
                0 => (&resolved.inputs, Processing::Pull),
                _ => (&resolved.outputs, Processing::Push),
            };
            for pair in ends.windows(2).filter(|pair| pair[0] == pair[1]) {
                let (element, port) = pair[0];
                if ports[element].get(port) == Some(&active) {
                    let kind = format!("{} {}", active.word(), ["input", "output"][side]);
                    self.error_of(
                        element,
                        &format!("illegal reuse of '{}' {kind} {port}", self.title(element)),
                    );
                }
            }
            ends.dedup();
        }
        for (side, ends) in ends.iter().enumerate() {
            let mut used = ends.iter().copied().peekable();
            for (element, counts) in self.counts.iter().enumerate() {
                for port in 0..counts[side] {
                    if used.next_if_eq(&(element, port)).is_none() {
                        let kind = ["input", "output"][side];
                        self.error_of(element, &format!("'{}' {kind} {port} unused", self.title(element)));
                    }
                }
            }
        }
    }
}

impl Edge {
    fn of(connection: &super::config::Connection) -> Self {
        Self { from: connection.from, to: connection.to, agnostic: false }
    }

    fn codes(&self, sides: &[Codes; 2]) -> [Option<Processing>; 2] {
        [sides[0][self.to.0][self.to.1], sides[1][self.from.0][self.from.1]]
    }

    /// Gives an undecided end what the other one has.
    fn spread(&self, sides: &mut [Codes; 2]) {
        let [input, output] = self.codes(sides);
        sides[0][self.to.0][self.to.1] = input.or(output);
        sides[1][self.from.0][self.from.1] = output.or(input);
    }
}

/// Adds the pairs of agnostic ports of an element between which packets flow.
fn agnostic_pairs(element: usize, shape: &Shape<'_>, sides: &[Codes; 2], edges: &mut Vec<Edge>) {
    let [inputs, outputs] = [0, 1].map(|side: usize| &sides[side][element]);
    if inputs.iter().all(Option::is_some) || outputs.iter().all(Option::is_some) {
        return;
    }
    let flow = Flow::of(shape.flow);
    let many = inputs.len().saturating_mul(outputs.len()) > MAX_PAIRS;
    for input in (0..inputs.len()).filter(|&port| inputs[port].is_none()) {
        // Where everything is connected to everything, one row and one column say the same.
        let end = if many && input > 0 { 1 } else { outputs.len() };
        for output in (0..end).filter(|&port| outputs[port].is_none()) {
            if flow.connects(input, output) {
                edges.push(Edge { from: (element, output), to: (element, input), agnostic: true });
            }
        }
    }
}

/// Spreads push and pull from the ports that are decided, each connection once.
fn spread_all(edges: &[Edge], sides: &mut [Codes; 2]) {
    let mut touching: HashMap<(usize, (usize, usize)), Vec<usize>> = HashMap::new();
    for (at, edge) in edges.iter().enumerate() {
        touching.entry((0, edge.to)).or_default().push(at);
        touching.entry((1, edge.from)).or_default().push(at);
    }
    let mut waiting: Vec<usize> = (0..edges.len()).rev().collect();
    while let Some(at) = waiting.pop() {
        let edge = &edges[at];
        let [input, output] = edge.codes(sides);
        let end = match (input, output) {
            (None, Some(_)) => (0, edge.to),
            (Some(_), None) => (1, edge.from),
            _ => continue,
        };
        edge.spread(sides);
        waiting.extend(touching.get(&end).into_iter().flatten());
    }
}

/// The numbers of inputs and outputs that a port count code allows; `None` for a bad code.
fn port_counts(code: &str, used: [usize; 2]) -> Option<[usize; 2]> {
    let (input_code, output_code) = code.split_once('/').unwrap_or((code, code));
    let clamp = |code: &str, used: usize| {
        let (low, high) = match code.split_once('-') {
            None if code.is_empty() => (0, 0),
            None => (code.parse().ok()?, code.parse().ok()?),
            Some((low, high)) => {
                let low = if low.is_empty() { 0 } else { low.parse::<usize>().ok()? };
                (low, if high.is_empty() { usize::MAX } else { high.parse().ok()? })
            }
        };
        Some(if used < low { low } else { used.min(high) })
    };
    let inputs = clamp(input_code, used[0])?;
    let outputs = match output_code.strip_prefix('=') {
        Some(more) if more.bytes().all(|byte| byte == b'+') => inputs + more.len(),
        _ => clamp(output_code, used[1])?,
    };
    Some([inputs, outputs])
}

/// The processing of the ports on one side, `None` for agnostic ones.
fn processing_codes(code: &str, side: usize, count: usize) -> Vec<Option<Processing>> {
    let mut parts = code.split('/');
    let inputs = parts.next().unwrap_or("");
    let mut letters = if side == 0 { inputs } else { parts.next().unwrap_or(inputs) }.bytes();
    let mut last = None;
    let next = |_| {
        match letters.next() {
            Some(b'h' | b'H') => last = Some(Processing::Push),
            Some(b'l' | b'L') => last = Some(Processing::Pull),
            Some(b'a' | b'A') => last = None,
            _ => {}
        }
        last
    };
    (0..count).map(next).collect()
}

/// Whether packets that enter an input may leave from an output, by a flow code such as `xy/x` or `#/[^#]`.
///
/// A letter or a bracketed set stands for each port, the last for all that follow. `#` is the port's number. Ports
/// match if their sets have a letter or number in common.
pub fn is_packet_flow_connected(flow: &str, input: usize, output: usize) -> bool {
    Flow::of(flow).connects(input, output)
}

struct Flow {
    inputs: Vec<Set>,
    outputs: Vec<Set>,
}

impl Flow {
    fn of(code: &str) -> Self {
        let code = if code.is_empty() { "x" } else { code };
        let mut parts = code.split('/');
        let inputs = parts.next().unwrap_or("");
        let outputs = parts.next().unwrap_or(inputs);
        Self { inputs: Set::list(inputs), outputs: Set::list(outputs) }
    }

    fn connects(&self, input: usize, output: usize) -> bool {
        let at = |sets: &[Set], port: usize| sets.get(port).or(sets.last()).copied();
        match (at(&self.inputs, input), at(&self.outputs, output)) {
            (Some(a), Some(b)) => a.meets(input, b, output),
            _ => false,
        }
    }
}

/// The letters of a port, with or without its number, or all but those.
#[derive(Clone, Copy, Default)]
struct Set {
    letters: u128,
    number: bool,
    negated: bool,
}

impl Set {
    fn list(code: &str) -> Vec<Self> {
        let mut sets = Vec::new();
        let mut bytes = code.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let mut set = Self::default();
            if byte == b'[' {
                set.negated = bytes.next_if_eq(&b'^').is_some();
                for inside in bytes.by_ref().take_while(|&byte| byte != b']') {
                    set.add(inside);
                }
            } else {
                set.add(byte);
            }
            sets.push(set);
        }
        sets
    }

    fn add(&mut self, byte: u8) {
        if byte.is_ascii_alphabetic() {
            self.letters |= 1 << byte;
        } else if byte == b'#' {
            self.number = true;
        }
    }

    fn meets(self, port: usize, other: Self, other_port: usize) -> bool {
        let same = self.number && other.number && port == other_port;
        match (self.negated, other.negated) {
            (false, false) => self.letters & other.letters != 0 || same,
            (false, true) => self.letters & !other.letters != 0 || (self.number && !same),
            (true, false) => other.letters & !self.letters != 0 || (other.number && !same),
            (true, true) => true,
        }
    }
}
