//! The body of the file or of a compound element: its elements, their connections and its parameters.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::errors::Errors;
use super::scanner::Scanner;
use super::variables::Scope;

/// Ports that a message about missing ports lists at most.
const MAX_MISSING: usize = 100;

/// The number of a class in the table of classes.
pub(super) type ClassId = usize;

/// Element 0 and 1 of a compound element's body.
pub(super) const INPUT: usize = 0;
/// See [`INPUT`].
pub(super) const OUTPUT: usize = 1;

pub(super) const PORT_KINDS: [&str; 2] = ["input", "output"];

/// An element's class: a tunnel stands for the inputs or outputs of a compound element or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Tunnel,
    Class(ClassId),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) class: Type,
    pub(super) config: String,
    pub(super) landmark: Rc<str>,
    /// Numbers of inputs and outputs that connections use.
    pub(super) ports: [usize; 2],
}

/// A connection between ports of two elements.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) from: (usize, usize),
    pub(super) to: (usize, usize),
    pub(super) landmark: Rc<str>,
}

/// The body of the file or of a compound element.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) name: String,
    pub(super) landmark: Rc<str>,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    /// Elements by name.
    pub(super) index: HashMap<String, usize>,
    /// Parameters first, with their keywords as values; then the variables that `define` makes.
    pub(super) scope: Scope,
    pub(super) parameters: usize,
    /// The class that is tried when this one does not match.
    pub(super) overload: Option<ClassId>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    keywords: HashSet<String>,
    misordered: bool,
    /// Where to look for a free name after a taken one.
    free: HashMap<String, u64>,
}

impl Body {
    pub(super) fn new(name: &str, landmark: Rc<str>, depth: usize) -> Self {
        Self {
            name: name.to_owned(),
            landmark,
            nodes: Vec::new(),
            links: Vec::new(),
            index: HashMap::new(),
            scope: Scope::at_depth(depth),
            parameters: 0,
            overload: None,
            inputs: 0,
            outputs: 0,
            keywords: HashSet::new(),
            misordered: false,
            free: HashMap::new(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.scope.depth()
    }

    pub(super) fn printable_name(&self) -> &str {
        if self.name.is_empty() { "<anonymous>" } else { &self.name }
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Adds an element, or finds the one that has the name. `here` is where errors are reported.
    pub(super) fn add(
        &mut self,
        name: &str,
        class: Type,
        config: String,
        landmark: Rc<str>,
        here: &str,
        errors: &Errors,
    ) -> usize {
        if let Some(found) = self.find(name) {
            return found;
        }
        if name.split('/').any(|part| part.bytes().all(|byte| byte.is_ascii_digit())) {
            errors.error_at(here, &format!("element name '{name}' has all-digit component"));
        }
        let number = self.nodes.len();
        self.index.insert(name.to_owned(), number);
        self.nodes.push(Node { name: name.to_owned(), class, config, landmark, ports: [0, 0] });
        number
    }

    /// The name of an anonymous element of a class; it stays free for others until all names are known.
    pub(super) fn anonymous(&self, class: &str) -> String {
        let pseudo = if self.depth() > 0 { 2 } else { 0 };
        format!(";{class}@{}", self.nodes.len() + 1 - pseudo)
    }

    /// Gives an anonymous element a name that no other element has.
    pub(super) fn settle_name(&mut self, number: usize) {
        let Some(plain) = self.nodes[number].name.strip_prefix(';') else { return };
        let mut name = plain.to_owned();
        if self.index.contains_key(&name) {
            let at = name.rfind('@').map_or(name.len(), |at| at + 1);
            let prefix = name[..at].to_owned();
            let digits: String = name[at..].chars().take_while(char::is_ascii_digit).collect();
            let mut passed = vec![name];
            let mut next = digits.parse::<u64>().unwrap_or(0) + 1;
            loop {
                name = format!("{prefix}{next}");
                if !self.index.contains_key(&name) {
                    break;
                }
                next = self.free.get(&name).map_or(next + 1, |&after| after.max(next + 1));
                passed.push(name);
            }
            self.free.extend(passed.into_iter().map(|name| (name, next + 1)));
        }
        self.index.insert(name.clone(), number);
        self.nodes[number].name = name;
    }

    pub(super) fn connect(&mut self, from: (usize, usize), to: (usize, usize), landmark: &Rc<str>) {
        let inputs = &mut self.nodes[to.0].ports[0];
        *inputs = (*inputs).max(to.1 + 1);
        let outputs = &mut self.nodes[from.0].ports[1];
        *outputs = (*outputs).max(from.1 + 1);
        self.links.push(Link { from, to, landmark: Rc::clone(landmark) });
    }

    /// Adds a variable; a parameter's value is its keyword.
    pub(super) fn define(
        &mut self,
        name: &str,
        value: &str,
        parameter: bool,
        scanner: &mut Scanner,
        errors: &Errors,
    ) {
        if !self.scope.define(name, value) {
            scanner.error(errors, &format!("parameter '${name}' multiply defined"));
            return;
        }
        if !parameter {
            return;
        }
        self.parameters += 1;
        if !value.is_empty() && !self.keywords.insert(value.to_owned()) {
            scanner.error(errors, &format!("repeated keyword parameter '{value}' in compound element"));
        }
        let before = self.parameters.checked_sub(2).map_or("", |at| self.scope.values()[at].as_str());
        if !self.misordered && ((value.is_empty() && !before.is_empty()) || before == "__REST__") {
            self.misordered = true;
            scanner.error(
                errors,
                "compound element parameters out of order\n\
                 (The correct order is '[positional], [keywords], [__REST__]'.)",
            );
        }
    }

    /// Counts the ports of a pseudoelement: `side` 0 for `input`, 1 for `output`. Only links from `first` on matter.
    pub(super) fn pseudo_ports(
        &self,
        number: usize,
        side: usize,
        first: usize,
        name: &str,
        landmark: &str,
        errors: &Errors,
    ) -> usize {
        let node = &self.nodes[number];
        let kind = PORT_KINDS[side];
        let mut used = vec![false; node.ports[1 - side]];
        for link in &self.links[first..] {
            let (element, port) = if side == 0 { link.from } else { link.to };
            if element == number {
                used[port] = true;
            }
        }
        if node.ports[side] > 0 {
            let right = PORT_KINDS[1 - side];
            errors
                .error_at(landmark, &format!("'{name}' pseudoelement '{kind}' may only be used as {right}"));
        }
        for (port, _) in used.iter().enumerate().filter(|(_, used)| !**used).take(MAX_MISSING) {
            errors.error_at(landmark, &format!("'{name}' {kind} {port} missing"));
        }
        used.len()
    }

    /// Checks the ports of a compound element whose text has ended, and names its anonymous elements.
    pub(super) fn finish(&mut self, errors: &Errors) {
        let landmark = Rc::clone(&self.landmark);
        self.inputs = self.pseudo_ports(INPUT, 0, 0, self.printable_name(), &landmark, errors);
        self.outputs = self.pseudo_ports(OUTPUT, 1, 0, self.printable_name(), &landmark, errors);
        for number in 0..self.nodes.len() {
            self.settle_name(number);
        }
        // Nothing looks for names in a finished body.
        self.index = HashMap::new();
        self.keywords = HashSet::new();
        self.free = HashMap::new();
        self.nodes.shrink_to_fit();
        self.links.shrink_to_fit();
    }

    /// The values of the parameters for these arguments; `None` where they do not fit.
    pub(super) fn assign(&self, arguments: &[String]) -> Option<Vec<String>> {
        let keywords = &self.scope.values()[..self.parameters];
        if keywords.last().is_none_or(String::is_empty) {
            return (arguments.len() == keywords.len()).then(|| arguments.to_vec());
        }
        let rest = keywords.last().is_some_and(|last| last == "__REST__");
        let named = if rest { &keywords[..keywords.len() - 1] } else { keywords };
        let positional = named.iter().take_while(|keyword| keyword.is_empty()).count();
        let index: HashMap<&str, usize> =
            named.iter().enumerate().skip(positional).map(|(at, keyword)| (keyword.as_str(), at)).collect();
        let mut values = vec![None; named.len()];
        let mut left = Vec::new();
        let (mut supplied, mut any_keyword) = (0, false);
        for argument in arguments {
            if supplied >= positional {
                let found =
                    super::text::keyword(argument).and_then(|(word, value)| Some((*index.get(word)?, value)));
                if let Some((at, value)) = found {
                    values[at] = Some(value.to_owned());
                    any_keyword = true;
                    continue;
                }
                if any_keyword && !rest {
                    return None;
                }
                left.push(argument.as_str());
                supplied += usize::from(!any_keyword);
            } else {
                values[supplied] = Some(argument.clone());
                supplied += 1;
            }
        }
        if supplied > positional && !rest {
            return None;
        }
        let mut values = values.into_iter().collect::<Option<Vec<String>>>()?;
        if rest {
            values.push(left.join(", "));
        }
        Some(values)
    }

    /// The signature in messages, such as `Foo(<arg>, ...)[1 input, 1 output]`.
    pub(super) fn signature(&self) -> String {
        let values = self.scope.values();
        let arguments = values.iter().map(|value| match value.as_str() {
            "" => "<arg>",
            "__REST__" => "...",
            keyword => keyword,
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let list = if values.is_empty() { String::new() } else { format!("({arguments})") };
        format!("{}{list}[{}]", self.printable_name(), port_counts(self.inputs, self.outputs))
    }
}

/// Counts of ports in a message, such as `1 input, 2 outputs`.
pub(super) fn port_counts(inputs: usize, outputs: usize) -> String {
    format!("{}, {}", plural(inputs, "input"), plural(outputs, "output"))
}

/// A count with its noun, such as `2 arguments`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
