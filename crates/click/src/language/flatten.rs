//! Elaboration: compound elements become their bodies, and tunnels become connections.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::body::{Body, ClassId, INPUT, Link, Node, OUTPUT, PORT_KINDS, Type, plural, port_counts};
use super::classes::{Definition, Table};
use super::errors::Errors;
use super::text::split_arguments;
use super::variables::{Scope, enclosing};

/// Deepest nesting of compound elements in each other.
const MAX_DEPTH: usize = 200;
/// Work that the expansion of compound elements may cause, in bytes of memory.
pub(super) const MAX_WORK: usize = 1 << 26;
/// Connections that tunnels may bring about, also those on the way.
const MAX_CONNECTIONS: usize = 1 << 22;

/// Adds a tunnel for the element `name`, and the ones for its `input` and `output`.
pub(super) fn add_tunnels(body: &mut Body, name: &str, landmark: &Rc<str>, errors: &Errors) -> [usize; 3] {
    [name.to_owned(), format!("{name}/input"), format!("{name}/output")].map(|name| {
        let number = body.add(&name, Type::Tunnel, String::new(), Rc::clone(landmark), landmark, errors);
        let node = &body.nodes[number];
        if node.class != Type::Tunnel {
            redeclaration(errors, "element", &name, landmark, &node.landmark);
        }
        number
    })
}

fn redeclaration(errors: &Errors, what: &str, name: &str, landmark: &str, before: &str) {
    errors.error_at(landmark, &format!("redeclaration of {what} '{name}'"));
    errors.error_at(before, &format!("'{name}' previously declared here"));
}

/// The order in which elements and connections come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// As the driver numbers them: a compound element's elements before those of the compound elements among them.
    Driver,
    /// As `click-flatten` writes them: each compound element's elements before its next neighbour.
    Text,
}

/// The file's body on its way to a flat configuration.
pub(super) struct Flattener<'a> {
    pub(super) body: Body,
    /// The scope that each element lies in.
    pub(super) scopes: Vec<Rc<Scope>>,
    table: Table<'a>,
    errors: &'a Errors,
    /// The end of the file, where some errors are reported.
    end: Rc<str>,
    tunnels: Tunnels,
    order: Order,
    work: usize,
    /// Bytes that variables may still expand to.
    expansion: Cell<usize>,
    exhausted: bool,
}

impl<'a> Flattener<'a> {
    pub(super) fn new(
        body: Body,
        table: Table<'a>,
        end: Rc<str>,
        (order, most): (Order, usize),
        errors: &'a Errors,
    ) -> Self {
        Self {
            body,
            order,
            scopes: Vec::new(),
            table,
            errors,
            end,
            tunnels: Tunnels::default(),
            work: most,
            expansion: Cell::new(most),
            exhausted: false,
        }
    }

    /// Expands all compound elements of the file, whose variables `scope` holds.
    pub(super) fn expand_all(&mut self, scope: &Rc<Scope>) {
        let count = self.body.nodes.len();
        self.scopes.resize(count, Rc::clone(scope));
        // A group's tunnels stand in the text already; they come in threes.
        let mut number = 0;
        while number < count {
            if self.body.nodes[number].class == Type::Tunnel {
                self.tunnels.add(number);
                number += 3;
            } else {
                number += 1;
            }
        }
        for number in 0..count {
            self.body.settle_name(number);
            self.expand(number, scope, 0);
        }
    }

    /// Takes from the allowance; says whether enough was left.
    fn spend(&mut self, work: usize) -> bool {
        if self.exhausted {
            return false;
        }
        if self.work < work || self.expansion.get() < 2 {
            self.exhausted = true;
            self.errors.error_at(&self.end, "compound elements expand to too many elements");
            return false;
        }
        self.work -= work;
        true
    }

    fn expand(&mut self, number: usize, scope: &Rc<Scope>, depth: usize) {
        let node = &self.body.nodes[number];
        let Type::Class(class) = node.class else { return };
        let config = if self.order == Order::Text && depth > 0 {
            // Its variables have their values. A `$` that is left stands for a variable of the file.
            node.config.clone()
        } else {
            scope.expand_within(&node.config, &self.expansion)
        };
        let grown = config.len().saturating_sub(node.config.len());
        if !self.spend(grown) {
            return;
        }
        self.body.nodes[number].config = config;
        if self.table.body(class).is_none() {
            return;
        }
        let (found, arguments) = self.resolve(number, class);
        let node = &mut self.body.nodes[number];
        let Some(found) = found else {
            let unknown = self.table.definitions.len();
            self.table.definitions.push(Definition::Unknown);
            node.class = Type::Class(unknown);
            return;
        };
        node.class = Type::Class(found);
        let Some(body) = self.table.body(found) else { return };
        let mut inside = Scope::new(enclosing(scope, body.depth()));
        for (name, value) in body.scope.names().iter().zip(&arguments).take(body.parameters) {
            inside.set(name, value);
        }
        let mut grown = arguments.iter().map(String::len).sum();
        for (name, value) in body.scope.names().iter().zip(body.scope.values()).skip(body.parameters) {
            let around = match self.order {
                Order::Driver => &inside,
                Order::Text => scope.as_ref(),
            };
            let value = around.expand_within(value, &self.expansion);
            grown += name.len() + value.len() + 64;
            inside.set(name, &value);
        }
        if !self.spend(grown) {
            return;
        }
        if depth >= MAX_DEPTH {
            let landmark = Rc::clone(&self.body.nodes[number].landmark);
            self.errors.error_at(&landmark, "maximum compound element nesting depth exceeded");
            return;
        }
        if let Definition::Compound(body) = self.table.definitions[found] {
            self.expand_body(number, body, &Rc::new(inside), depth);
        }
    }

    /// The class among the overloads that fits, or the nearest one, and the arguments for it.
    fn resolve(&mut self, number: usize, first: ClassId) -> (Option<ClassId>, Vec<String>) {
        let node = &self.body.nodes[number];
        let arguments = split_arguments(&node.config);
        let [inputs, outputs] = node.ports;
        let (mut class, mut nearest, mut tried) = (first, None, 0);
        while let Some(body) = self.table.body(class) {
            tried += 1;
            if let Some(values) = body.assign(&arguments) {
                if (body.inputs, body.outputs) == (inputs, outputs) {
                    return (Some(class), values);
                }
                nearest = Some((class, values));
            }
            let next = body.overload;
            if !self.spend(64) {
                break;
            }
            match next {
                Some(next) if self.table.body(next).is_some() => class = next,
                Some(other) => return (Some(other), arguments),
                None => break,
            }
        }
        if tried != 1 || nearest.is_none() {
            self.no_match(first, arguments.len(), inputs, outputs);
        }
        match nearest {
            Some((class, values)) => (Some(class), values),
            None => (None, arguments),
        }
    }

    fn no_match(&self, first: ClassId, arguments: usize, inputs: usize, outputs: usize) {
        let Some(body) = self.table.body(first) else { return };
        let given =
            if arguments > 0 { format!("{}, ", plural(arguments, "argument")) } else { String::new() };
        let ports = port_counts(inputs, outputs);
        self.errors.error_at(&self.end, &format!("no match for '{}[{given}{ports}]'", body.printable_name()));
        self.errors.within("", "candidates are:", |errors| {
            let mut next = Some(first);
            while let Some(body) = next.and_then(|class| self.table.body(class)) {
                errors.message_at(&body.landmark, &body.signature());
                next = body.overload;
            }
        });
    }

    /// Puts the elements and connections of a body where the compound element `number` stands.
    fn expand_body(&mut self, number: usize, body: usize, scope: &Rc<Scope>, depth: usize) {
        let name = self.body.nodes[number].name.clone();
        if !self.spend(256 + 4 * name.len()) {
            return;
        }
        let landmark = Rc::clone(&self.body.nodes[number].landmark);
        self.body.nodes[number].class = Type::Tunnel;
        let tunnels = self.add_tunnels(&name, scope);
        let count = self.table.bodies[body].nodes.len();
        let mut places = vec![None; count];
        places[INPUT] = Some(tunnels[1]);
        places[OUTPUT] = Some(tunnels[2]);
        let mut at = OUTPUT + 1;
        while at < count {
            let Node { name: inner, class, config, landmark: inner_landmark, .. } =
                self.table.bodies[body].nodes[at].clone();
            let full = format!("{name}/{inner}");
            let config = scope.expand_within(&config, &self.expansion);
            if !self.spend(full.len() + config.len() + 256) {
                return;
            }
            if let Some(other) = self.body.find(&full) {
                redeclaration(self.errors, "element", &full, &landmark, &self.body.nodes[other].landmark);
                at += 1;
                continue;
            }
            if self.table.find_declared(&full) {
                self.errors.error_at(&landmark, &format!("'{full}' is an element class"));
            }
            let mut added = None;
            if class == Type::Tunnel {
                for (offset, tunnel) in self.add_tunnels(&full, scope).into_iter().enumerate() {
                    if let Some(place) = places.get_mut(at + offset) {
                        *place = Some(tunnel);
                    }
                }
                at += 3;
            } else {
                added = Some(self.body.add(&full, class, config, inner_landmark, &self.end, self.errors));
                places[at] = added;
                at += 1;
            }
            self.scopes.resize(self.body.nodes.len(), Rc::clone(scope));
            if self.order == Order::Text
                && let Some(place) = added
            {
                self.expand(place, scope, depth + 1);
            }
        }
        let links = self.table.bodies[body].links.len();
        if !self.spend(links * std::mem::size_of::<Link>()) {
            return;
        }
        for link in 0..links {
            let Link { from, to, landmark } = &self.table.bodies[body].links[link];
            if let (Some(source), Some(target)) = (places[from.0], places[to.0]) {
                self.body.connect((source, from.1), (target, to.1), landmark);
            }
        }
        if self.order == Order::Driver {
            for place in places.into_iter().skip(OUTPUT + 1).flatten() {
                self.expand(place, scope, depth + 1);
            }
        }
    }

    fn add_tunnels(&mut self, name: &str, scope: &Rc<Scope>) -> [usize; 3] {
        let tunnels = add_tunnels(&mut self.body, name, &self.end, self.errors);
        self.scopes.resize(self.body.nodes.len(), Rc::clone(scope));
        if tunnels.iter().all(|&tunnel| self.body.nodes[tunnel].class == Type::Tunnel) {
            self.tunnels.pair(tunnels);
        }
        tunnels
    }

    /// The class name of an element, or `None` for a tunnel.
    pub(super) fn class_name(&self, number: usize) -> Option<&str> {
        match self.body.nodes[number].class {
            Type::Tunnel => None,
            Type::Class(class) => Some(match &self.table.definitions[class] {
                Definition::Primitive(name) => name,
                Definition::Unknown | Definition::Compound(_) => "Error",
            }),
        }
    }

    /// Replaces connections of tunnels by those of the elements behind them.
    pub(super) fn connections(&mut self) -> Vec<Link> {
        let links = std::mem::take(&mut self.body.links);
        if self.exhausted {
            // The error is reported; what is missing would only bring more.
            return Vec::new();
        }
        let tunnels: Vec<bool> = self.body.nodes.iter().map(|node| node.class == Type::Tunnel).collect();
        let is_tunnel = |number: usize| tunnels[number];
        let visit = |link: &Link, tunnels: &mut Tunnels| {
            for (side, here, there) in [(0, link.to, link.from), (1, link.from, link.to)] {
                if is_tunnel(here.0)
                    && let Some(partner) = tunnels.partner(here.0, side)
                {
                    tunnels.ends.entry((partner, here.1, 1 - side)).or_default().neighbours.push(there);
                }
            }
        };
        match self.order {
            Order::Driver => links.iter().for_each(|link| visit(link, &mut self.tunnels)),
            Order::Text => links.iter().rev().for_each(|link| visit(link, &mut self.tunnels)),
        }
        let mut out = Vec::with_capacity(links.len());
        let mut left = MAX_CONNECTIONS;
        let is_direct = |link: &Link| !is_tunnel(link.from.0) && !is_tunnel(link.to.0);
        if self.order == Order::Text {
            // Those between elements come first, and unused inputs are reported before unused outputs.
            out.extend(links.iter().filter(|link| is_direct(link)).cloned());
            for link in links.iter().filter(|link| is_tunnel(link.to.0)) {
                self.behind(link.to, 0, &mut left);
            }
        }
        for link in links {
            if is_direct(&link) {
                if self.order == Order::Driver {
                    out.push(link);
                }
                continue;
            }
            let sources = self.behind(link.from, 1, &mut left);
            if self.order == Order::Text && is_tunnel(link.to.0) {
                continue;
            }
            let targets = self.behind(link.to, 0, &mut left);
            let count = sources.len() * targets.len();
            if left < count {
                self.errors.error_at(&self.end, "compound elements expand to too many connections");
                break;
            }
            left -= count;
            for &from in sources.iter() {
                let to = targets.iter();
                out.extend(to.map(|&to| Link { from, to, landmark: Rc::clone(&link.landmark) }));
            }
        }
        match self.order {
            Order::Driver => {
                out.sort_by_key(|link| (link.to, link.from));
                out.dedup_by_key(|link| (link.to, link.from));
            }
            Order::Text => {
                let mut seen = HashSet::new();
                out.retain(|link| seen.insert((link.to, link.from)));
            }
        }
        out
    }

    /// The elements' ports that a port stands for: itself, or those behind the tunnel.
    fn behind(&mut self, port: (usize, usize), side: usize, left: &mut usize) -> Rc<[(usize, usize)]> {
        let none: Rc<[(usize, usize)]> = Rc::default();
        let mut stack = vec![Visit { port, pending: Vec::new(), at: 0, found: Found::default() }];
        if self.body.nodes[port.0].class != Type::Tunnel {
            return [port].into();
        }
        let mut result: Option<Rc<[(usize, usize)]>> = None;
        while let Some(visit) = stack.last_mut() {
            if let Some(found) = result.take() {
                *left = left.saturating_sub(found.len());
                if *left > 0 {
                    visit.found.extend(&found);
                }
            } else if visit.at == 0 {
                match self.enter(visit.port, side) {
                    Entered::Known(ports) => {
                        stack.pop();
                        result = Some(ports);
                        continue;
                    }
                    Entered::Neighbours(ports) => visit.pending = ports,
                }
            }
            let Some(&next) = visit.pending.get(visit.at) else {
                let found: Rc<[(usize, usize)]> = std::mem::take(&mut visit.found.list).into();
                let key = (visit.port.0, visit.port.1, side);
                self.tunnels.ends.entry(key).or_default().state = State::Done(Rc::clone(&found));
                stack.pop();
                result = Some(found);
                continue;
            };
            visit.at += 1;
            if self.body.nodes[next.0].class == Type::Tunnel {
                stack.push(Visit { port: next, pending: Vec::new(), at: 0, found: Found::default() });
            } else {
                visit.found.extend(&[next]);
            }
        }
        result.unwrap_or(none)
    }

    /// Looks at a tunnel's port for the first time, or finds what lies behind it.
    fn enter(&mut self, port: (usize, usize), side: usize) -> Entered {
        let Some(partner) = self.tunnels.partner(port.0, side) else {
            if self.tunnels.partner(port.0, 1 - side).is_some() {
                let node = &self.body.nodes[port.0];
                let message = format!("'{}' used as {}", node.name, PORT_KINDS[side]);
                self.errors.error_at(&node.landmark, &message);
            }
            return Entered::Known(Rc::default());
        };
        let end = self.tunnels.ends.entry((port.0, port.1, side)).or_default();
        match &end.state {
            State::Done(ports) => return Entered::Known(Rc::clone(ports)),
            State::Open => return Entered::Known(Rc::default()),
            State::New => end.state = State::Open,
        }
        let neighbours = std::mem::take(&mut end.neighbours);
        if neighbours.is_empty() {
            self.report_unused(port, partner, side);
        }
        Entered::Neighbours(neighbours)
    }

    fn report_unused(&self, port: (usize, usize), partner: usize, side: usize) {
        let (into, out) = if side == 1 { (partner, port.0) } else { (port.0, partner) };
        let [into, out] = [into, out].map(|number| &self.body.nodes[number]);
        let number = port.1;
        let (node, message) = if out.name.strip_suffix("/input") == Some(&into.name) {
            let name = &into.name;
            (
                into,
                match side {
                    1 => format!("'{name}' input {number} unused"),
                    _ => format!("'{name}' has no input {number}"),
                },
            )
        } else if into.name.strip_suffix("/output") == Some(&out.name) {
            let name = &out.name;
            (
                out,
                match side {
                    1 => format!("'{name}' has no output {number}"),
                    _ => format!("'{name}' output {number} unused"),
                },
            )
        } else {
            let kind = PORT_KINDS[side];
            let message = format!("tunnel '{} -> {}' {kind} {} unused", into.name, out.name, port.0);
            (&self.body.nodes[partner], message)
        };
        self.errors.error_at(&node.landmark, &message);
    }
}

/// One tunnel's port on the way through the tunnels.
struct Visit {
    port: (usize, usize),
    pending: Vec<(usize, usize)>,
    /// The next of `pending`.
    at: usize,
    found: Found,
}

/// Ports without repetitions, in the order in which they came.
#[derive(Default)]
struct Found {
    list: Vec<(usize, usize)>,
    seen: HashSet<(usize, usize)>,
}

impl Found {
    fn extend(&mut self, ports: &[(usize, usize)]) {
        for &port in ports {
            if self.seen.insert(port) {
                self.list.push(port);
            }
        }
    }
}

enum Entered {
    Known(Rc<[(usize, usize)]>),
    Neighbours(Vec<(usize, usize)>),
}

/// The pairs of tunnels: what enters one side leaves its partner.
#[derive(Default)]
struct Tunnels {
    /// By element and side, 0 for its inputs and 1 for its outputs: the element at the other end.
    partners: HashMap<(usize, usize), usize>,
    /// By element, port and side.
    ends: HashMap<(usize, usize, usize), End>,
}

#[derive(Default)]
struct End {
    neighbours: Vec<(usize, usize)>,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    New,
    /// Being looked at: tunnels that lead into themselves end here.
    Open,
    Done(Rc<[(usize, usize)]>),
}

impl Tunnels {
    /// Pairs a tunnel with the two that follow it.
    fn add(&mut self, first: usize) {
        self.pair([first, first + 1, first + 2]);
    }

    fn pair(&mut self, [outer, input, output]: [usize; 3]) {
        for (a, b) in [((outer, 0), (input, 1)), ((output, 0), (outer, 1))] {
            self.partners.insert(a, b.0);
            self.partners.insert(b, a.0);
        }
    }

    fn partner(&self, number: usize, side: usize) -> Option<usize> {
        self.partners.get(&(number, side)).copied()
    }
}
