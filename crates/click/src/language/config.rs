//! Flat configurations: the elements and connections that a text describes.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

pub use super::classes::Classes;
use super::errors::Errors;
use super::flatten::{Flattener, MAX_WORK, Order};
use super::parser::Parser;
use super::text::quote;
use super::variables::Scope;

/// An element: its name, its primitive class, and its configuration with all variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name, such as `source` or `router/queue`.
    pub name: String,
    /// The class. Elements whose class is unknown have the class `Error`.
    pub class: String,
    /// The text between the parentheses.
    pub config: String,
    /// The place in the text, as `file:line`.
    pub landmark: Rc<str>,
}

/// A connection from an output port to an input port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The element, by its place in [`Configuration::elements`], and its output port.
    pub from: (usize, usize),
    /// The element, by its place in [`Configuration::elements`], and its input port.
    pub to: (usize, usize),
    /// The place in the text, as `file:line`.
    pub landmark: Rc<str>,
}

/// A configuration without compound elements.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The elements, in the order in which Click numbers them.
    pub elements: Vec<Declaration>,
    /// The connections, sorted by their input ports, each once.
    pub connections: Vec<Connection>,
    /// The requirements, such as `("package", name)` and `("compact_config", "")`.
    pub requirements: Vec<(String, String)>,
    scopes: Vec<Rc<Scope>>,
    global: Rc<Scope>,
}

/// A text to parse.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// The file's name in landmarks; `config` for a text from the command line.
    pub file: &'a str,
    /// Whether the text comes from the command line.
    pub is_expression: bool,
}

/// Parses a text; errors go to `errors`, and the result holds what could be made of the rest.
///
/// `parameters` override the variables of the file. `library` gives the text for `require(library F)`.
pub fn parse(
    source: &Source<'_>,
    parameters: &[(String, String)],
    classes: &dyn Classes,
    library: &dyn Fn(&str) -> Option<String>,
    errors: &Errors,
) -> Configuration {
    parse_within(source, parameters, classes, library, MAX_WORK, errors)
}

/// As [`parse`], where compound elements and variables expand to at most so many elements and bytes together.
pub(crate) fn parse_within(
    source: &Source<'_>,
    parameters: &[(String, String)],
    classes: &dyn Classes,
    library: &dyn Fn(&str) -> Option<String>,
    most: usize,
    errors: &Errors,
) -> Configuration {
    let parser = read(source, parameters, classes, library, Order::Driver, errors);
    let Parser { mut scanner, table, body, requirements, .. } = parser;
    let global = Rc::new(body.scope.clone());
    let mut flat = Flattener::new(body, table, scanner.landmark(), (Order::Driver, most), errors);
    flat.expand_all(&global);
    Configuration::from_flat(flat, requirements, global)
}

/// Parses a text as `click-flatten` does, for [`Configuration::to_flat_text`].
///
/// The order differs from [`parse`]'s. Variables of the file stay in the configurations, unless `expands` says otherwise.
pub fn parse_for_text(
    source: &Source<'_>,
    parameters: &[(String, String)],
    classes: &dyn Classes,
    library: &dyn Fn(&str) -> Option<String>,
    expands: bool,
    errors: &Errors,
) -> Configuration {
    let parser = read(source, parameters, classes, library, Order::Text, errors);
    let Parser { mut scanner, table, body, requirements, .. } = parser;
    let mut values = Scope::default();
    for (name, value) in body.scope.names().iter().zip(body.scope.values()) {
        let value = if expands { values.expand(value) } else { format!("${name}") };
        values.set(name, &value);
    }
    let written = Rc::new(if expands { Scope::default() } else { body.scope.clone() });
    let mut flat = Flattener::new(body, table, scanner.landmark(), (Order::Text, MAX_WORK), errors);
    flat.expand_all(&Rc::new(values));
    Configuration::from_flat(flat, requirements, written)
}

fn read<'a>(
    source: &Source<'_>,
    parameters: &[(String, String)],
    classes: &'a dyn Classes,
    library: &'a dyn Fn(&str) -> Option<String>,
    order: Order,
    errors: &'a Errors,
) -> Parser<'a> {
    let file = if source.is_expression { "config" } else { source.file };
    let mut parser = Parser::new(source.text, file, classes, library, errors);
    if order == Order::Text {
        parser.scanner.count_outside();
    }
    parser.file();
    for (name, value) in parameters {
        parser.body.scope.set(name, value);
    }
    parser
}

impl Configuration {
    fn from_flat(mut flat: Flattener<'_>, requirements: Vec<(String, String)>, global: Rc<Scope>) -> Self {
        let links = flat.connections();
        let mut out = Self { requirements, global, ..Self::default() };
        let mut places = Vec::with_capacity(flat.body.nodes.len());
        for (number, node) in flat.body.nodes.iter().enumerate() {
            let class = flat.class_name(number);
            places.push(class.map(|_| out.elements.len()));
            if let Some(class) = class {
                out.elements.push(Declaration {
                    name: node.name.clone(),
                    class: class.to_owned(),
                    config: node.config.clone(),
                    landmark: Rc::clone(&node.landmark),
                });
                out.scopes.push(Rc::clone(flat.scopes.get(number).unwrap_or(&out.global)));
            }
        }
        for link in links {
            if let (Some(from), Some(to)) = (places[link.from.0], places[link.to.0]) {
                let (from, to) = ((from, link.from.1), (to, link.to.1));
                out.connections.push(Connection { from, to, landmark: link.landmark });
            }
        }
        out
    }

    /// The variables in the compound element that an element lies in.
    pub fn scope_of(&self, element: usize) -> Option<&Scope> {
        self.scopes.get(element).map(Rc::as_ref)
    }

    /// The variables of the file and the command line.
    pub fn global_scope(&self) -> &Scope {
        &self.global
    }

    /// The place of an element in [`elements`](Self::elements).
    pub fn find(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }

    /// Adds an element that the text does not have; gives its place.
    pub fn add(&mut self, element: Declaration) -> usize {
        self.elements.push(element);
        self.scopes.push(Rc::clone(&self.global));
        self.elements.len() - 1
    }

    /// The flat text, as Click prints it: requirements, declarations, and chains of connections.
    pub fn to_click(&self) -> String {
        let mut out = String::new();
        self.write_requirements(&mut out);
        for Declaration { name, class, config, .. } in &self.elements {
            let (open, close) = if config.is_empty() { ("", "") } else { ("(", ")") };
            let _ = writeln!(out, "{name} :: {class}{open}{config}{close};");
        }
        if !self.elements.is_empty() {
            out.push('\n');
        }
        self.write_chains(&mut out);
        out
    }

    /// The flat text as `click-flatten` writes it: with line directives, and variables of the file defined.
    ///
    /// The configuration comes from [`parse_for_text`].
    pub fn to_flat_text(&self) -> String {
        let mut out = String::new();
        self.write_requirements(&mut out);
        self.write_definitions(&mut out);
        self.write_elements(&mut out);
        out
    }

    /// The flat text of a configuration whose variables have their values, with line directives.
    pub(crate) fn to_expanded_text(&self) -> String {
        let mut out = String::new();
        self.write_requirements(&mut out);
        self.write_elements(&mut out);
        out
    }

    fn write_definitions(&self, out: &mut String) {
        let variables = self.global.names().iter().zip(self.global.values());
        let variables: Vec<String> = variables.map(|(name, value)| format!("${name} {value}")).collect();
        if !variables.is_empty() {
            let _ = write!(out, "define({});\n\n", variables.join(", "));
        }
    }

    fn write_elements(&self, out: &mut String) {
        for Declaration { name, class, config, landmark } in &self.elements {
            let (file, line) = landmark.rsplit_once(':').unwrap_or((landmark, "0"));
            let (open, close) = if config.is_empty() { ("", "") } else { ("(", ")") };
            let _ = writeln!(out, "# {line} \"{file}\"\n{name} :: {class}{open}{config}{close};");
        }
        if !self.connections.is_empty() {
            // Chains stand in no file: messages about them name this text's own lines.
            let lines = out.bytes().filter(|byte| *byte == b'\n').count();
            let _ = writeln!(out, "# {} \"\"", lines + 2);
        }
        self.write_chains(out);
    }

    fn write_requirements(&self, out: &mut String) {
        if self.requirements.is_empty() {
            return;
        }
        let each = self.requirements.iter().map(|(kind, value)| match value.as_str() {
            "" => kind.clone(),
            value => format!("{kind} {}", quote(value.as_bytes(), false)),
        });
        let _ = write!(out, "require({});\n\n", each.collect::<Vec<_>>().join(", "));
    }

    fn write_chains(&self, out: &mut String) {
        let count = self.connections.len();
        let next = self.successors();
        let mut starts = vec![true; count];
        for &successor in next.iter().flatten() {
            starts[successor] = false;
        }
        let mut used = vec![false; count];
        // Chains first; what is left then consists of cycles.
        for pass in 0..2 {
            for first in 0..count {
                if used[first] || (pass == 0 && !starts[first]) {
                    continue;
                }
                let (element, port) = self.connections[first].from;
                out.push_str(&self.elements[element].name);
                if port > 0 {
                    let _ = write!(out, " [{port}]");
                }
                let mut arrow = " -> ";
                let mut here = Some(first);
                while let Some(at) = here.filter(|&at| !used[at]) {
                    out.push_str(arrow);
                    arrow = "\n    -> ";
                    let (element, port) = self.connections[at].to;
                    if port > 0 {
                        let _ = write!(out, "[{port}] ");
                    }
                    out.push_str(&self.elements[element].name);
                    used[at] = true;
                    here = next[at];
                }
                out.push_str(";\n");
            }
        }
    }

    /// For each connection, the one that continues its chain.
    ///
    /// A chain goes on from input 0 to output 0: to the first input 0 there, else to the last other input.
    fn successors(&self) -> Vec<Option<usize>> {
        /// Of the connections from one port: the first two to an input 0, and the last two.
        #[derive(Default)]
        struct Outgoing {
            zero: Vec<usize>,
            last: Vec<usize>,
        }
        let mut outgoing: HashMap<(usize, usize), Outgoing> = HashMap::new();
        for (at, connection) in self.connections.iter().enumerate() {
            let entry = outgoing.entry(connection.from).or_default();
            if connection.to.1 == 0 && entry.zero.len() < 2 {
                entry.zero.push(at);
            }
            if entry.last.len() == 2 {
                entry.last.remove(0);
            }
            entry.last.push(at);
        }
        let successor = |(at, connection): (usize, &Connection)| {
            if connection.to.1 != 0 {
                return None;
            }
            let found = outgoing.get(&connection.to)?;
            let other = |list: &[usize]| list.iter().copied().find(|&one| one != at);
            other(&found.zero).or_else(|| found.last.iter().rev().copied().find(|&one| one != at))
        };
        self.connections.iter().enumerate().map(successor).collect()
    }
}
