//! Statements: element classes, requirements, definitions, and the blocks that hold connections.

use std::collections::HashSet;
use std::rc::Rc;

use super::body::{Body, ClassId, Type};
use super::classes::{Classes, Definition, Table};
use super::errors::Errors;
use super::scanner::{Kind, Scanner, Token};
use super::text::{is_word, next_word, split_arguments, split_words, unquote};

/// Deepest nesting of compound elements and groups in the text.
const MAX_DEPTH: usize = 50;
/// Compound elements and overloads that one configuration may describe.
const MAX_BODIES: usize = 1 << 18;
/// Deepest nesting of libraries.
const MAX_LIBRARIES: usize = 50;
/// Ports that the lists of one configuration may name in all.
const MAX_LISTED_PORTS: usize = 1 << 22;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    File,
    Compound,
    Group,
}

/// A sequence of statements that a brace, a parenthesis or the end of the file ends.
pub(super) struct Block {
    pub(super) place: Place,
    pub(super) depth: usize,
    /// Whether the latest connection ended in `output`, so that one that begins with `->` is no surprise.
    pub(super) ended_in_output: bool,
}

impl Block {
    fn new(place: Place, depth: usize) -> Self {
        Self { place, depth, ended_in_output: true }
    }

    pub(super) fn nested(&self) -> bool {
        self.depth > 0
    }
}

/// A configuration while it is read: bodies are built as their statements come.
pub(super) struct Parser<'a> {
    pub(super) scanner: Scanner,
    pub(super) errors: &'a Errors,
    pub(super) table: Table<'a>,
    /// The body whose statements are being read.
    pub(super) body: Body,
    pub(super) requirements: Vec<(String, String)>,
    pub(super) listed_ports: usize,
    library: &'a dyn Fn(&str) -> Option<String>,
    libraries: HashSet<String>,
    open_libraries: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(
        text: &str,
        file: &str,
        classes: &'a dyn Classes,
        library: &'a dyn Fn(&str) -> Option<String>,
        errors: &'a Errors,
    ) -> Self {
        let scanner = Scanner::new(text, file);
        Self {
            scanner,
            errors,
            table: Table::new(classes),
            body: Body::new("", "".into(), 0),
            requirements: Vec::new(),
            listed_ports: MAX_LISTED_PORTS,
            library,
            libraries: HashSet::new(),
            open_libraries: 0,
        }
    }

    /// Reads the whole file.
    pub(super) fn file(&mut self) {
        self.statements(&mut Block::new(Place::File, 0));
    }

    pub(super) fn next(&mut self) -> Token {
        self.scanner.next(self.errors)
    }

    pub(super) fn error(&mut self, message: &str) {
        self.scanner.error(self.errors, message);
    }

    pub(super) fn syntax_error(&mut self, token: &Token) {
        let text: String = token.text.chars().flat_map(printable).collect();
        self.error(&format!("syntax error near '{text}'"));
    }

    /// The class of a name; an unknown one is an error where `report` says so.
    pub(super) fn class(&mut self, name: &str, report: bool) -> ClassId {
        let (class, unknown) = self.table.force(name);
        if unknown && report {
            let reason = self.table.reason(name);
            self.error(&format!("unknown element class '{name}'{reason}"));
        }
        class
    }

    /// Reads statements up to the end of their block; gives the token that ended it.
    fn statements(&mut self, block: &mut Block) -> Token {
        loop {
            let token = self.next();
            match token.kind {
                Kind::Identifier | Kind::Symbol('[' | '{' | '(') | Kind::Arrow | Kind::DoubleArrow => {
                    self.scanner.put_back(token);
                    self.connection(block);
                }
                Kind::ElementClass => self.element_class(block),
                Kind::Require => self.require(),
                Kind::Define => self.definitions(),
                Kind::Symbol(';') => {}
                Kind::Symbol('}') | Kind::DoubleBar if block.place == Place::Compound => return token,
                Kind::Symbol('}') | Kind::DoubleBar => {
                    self.syntax_error(&token);
                    if block.place == Place::Group {
                        self.scanner.put_back(token.clone());
                        return token;
                    }
                }
                Kind::Symbol(')') if block.place == Place::Group => return token,
                Kind::End => {
                    match block.place {
                        Place::File => {}
                        Place::Compound => self.error("expected '}'"),
                        Place::Group => self.error("expected ')'"),
                    }
                    return token;
                }
                _ => self.syntax_error(&token),
            }
        }
    }

    fn element_class(&mut self, block: &Block) {
        let first = self.next();
        let name = if first.is(Kind::Identifier) {
            first.text
        } else {
            self.scanner.put_back(first);
            self.error("expected element type name");
            String::new()
        };
        let second = self.next();
        match second.kind {
            Kind::Symbol('{') => {
                self.compound(&name, block);
            }
            Kind::Identifier => {
                let class = self.class(&second.text, true);
                let same = self.table.definitions[class].clone();
                self.table.declare(&name, same);
            }
            _ => {
                self.syntax_error(&second);
                self.table.declare(&name, Definition::Unknown);
            }
        }
    }

    /// Reads a compound element after its `{`, with all its overloads.
    pub(super) fn compound(&mut self, name: &str, block: &Block) -> ClassId {
        let mark = self.table.mark();
        let mut bodies: Vec<usize> = Vec::new();
        let mut extension = None;
        loop {
            let token = self.next();
            if token.is(Kind::Dots) {
                extension = self.extension(name, bodies.is_empty());
                let next = self.next();
                if let Some((first, last)) = bodies.first().zip(bodies.last())
                    && next.is(Kind::Symbol('}'))
                {
                    self.table.bodies[*last].overload = extension;
                    return self.table.declare(name, Definition::Compound(*first));
                }
                self.scanner.put_back(next);
                continue;
            }
            let end = self.compound_body(name, token, block);
            let body = self.table.bodies.len() - 1;
            self.table.leave(mark);
            if let Some(&last) = bodies.last() {
                // Without a name: `...` extends the class from before, not this one.
                let class = self.table.declare("", Definition::Compound(body));
                self.table.bodies[last].overload = Some(class);
            }
            bodies.push(body);
            if !end.is(Kind::DoubleBar) {
                self.table.bodies[body].overload = extension;
                return self.table.declare(name, Definition::Compound(bodies[0]));
            }
        }
    }

    /// Reads `...`, which hands over to the class that had the name before.
    fn extension(&mut self, name: &str, first: bool) -> Option<ClassId> {
        if self.table.find(name).is_none() {
            self.error(&format!("cannot extend unknown element class '{name}'"));
            self.table.declare(name, Definition::Unknown);
        }
        // An anonymous compound element still extends nothing.
        let class = self.table.find(name);
        let token = self.next();
        if first || !token.is(Kind::Symbol('}')) {
            self.error("'...' should occur last, after one or more compounds");
        }
        self.scanner.put_back(token);
        class
    }

    /// Reads one body, whose first token is given, into the table; gives the token that ended it.
    fn compound_body(&mut self, name: &str, first: Token, block: &Block) -> Token {
        let landmark = self.scanner.landmark();
        let body = Body::new(name, Rc::clone(&landmark), self.body.depth() + 1);
        let outer = std::mem::replace(&mut self.body, body);
        for pseudo in ["input", "output"] {
            self.body.add(pseudo, Type::Tunnel, String::new(), Rc::clone(&landmark), &landmark, self.errors);
        }
        self.scanner.put_back(first);
        self.parameters();
        let mut inside = Block::new(Place::Compound, block.depth + 1);
        let end = if self.table.bodies.len() >= MAX_BODIES {
            self.error("too many compound elements");
            self.scanner.give_up();
            Token { kind: Kind::End, text: String::new() }
        } else if inside.depth >= MAX_DEPTH {
            self.error("maximum compound element nesting depth exceeded");
            self.scanner.give_up();
            Token { kind: Kind::End, text: String::new() }
        } else {
            self.statements(&mut inside)
        };
        let mut body = std::mem::replace(&mut self.body, outer);
        body.finish(self.errors);
        self.table.bodies.push(body);
        end
    }

    /// Reads `KEYWORD $variable, ... |`, which may be missing.
    fn parameters(&mut self) {
        loop {
            let first = self.next();
            let (keyword, name) = match first.kind {
                Kind::Identifier => {
                    let second = self.next();
                    if !second.is(Kind::Variable) {
                        if self.body.parameters > 0 {
                            self.error("expected variable");
                        }
                        self.scanner.put_back(second);
                        self.scanner.put_back(first);
                        return;
                    }
                    (first.text, second.text)
                }
                Kind::Variable => (String::new(), first.text),
                Kind::Symbol('|') => return,
                _ => {
                    if self.body.parameters > 0 {
                        self.error("expected variable");
                    }
                    self.scanner.put_back(first);
                    return;
                }
            };
            self.body.define(&name, &keyword, true, &mut self.scanner, self.errors);
            let separator = self.next();
            match separator.kind {
                Kind::Symbol('|') => return,
                Kind::Symbol(',') => {}
                _ => {
                    self.error("expected ',' or '|'");
                    self.scanner.put_back(separator);
                    return;
                }
            }
        }
    }

    /// Reads a group after its `(`; gives the numbers of its inputs and outputs.
    pub(super) fn group(&mut self, name: &str, block: &Block) -> [usize; 2] {
        let landmark = self.scanner.landmark();
        let tunnels = super::flatten::add_tunnels(&mut self.body, name, &landmark, self.errors);
        let outer = ["input", "output"].map(|pseudo| self.body.find(pseudo));
        self.body.index.insert("input".to_owned(), tunnels[1]);
        self.body.index.insert("output".to_owned(), tunnels[2]);
        let first = self.body.links.len();
        let mut inside = Block::new(Place::Group, block.depth + 1);
        if inside.depth >= MAX_DEPTH {
            self.error("maximum element group nesting depth exceeded");
            self.scanner.give_up();
        } else {
            self.statements(&mut inside);
        }
        let landmark = self.scanner.landmark();
        let printed = if name.starts_with(';') { "<anonymous group>" } else { name };
        let mut ports = [0, 0];
        for (side, pseudo) in ["input", "output"].into_iter().enumerate() {
            let number = self.body.find(pseudo).unwrap_or(tunnels[1 + side]);
            ports[side] = self.body.pseudo_ports(number, side, first, printed, &landmark, self.errors);
        }
        for (pseudo, before) in ["input", "output"].into_iter().zip(outer) {
            match before {
                Some(number) => self.body.index.insert(pseudo.to_owned(), number),
                None => self.body.index.remove(pseudo),
            };
        }
        ports
    }

    fn require(&mut self) {
        if !self.scanner.expect(Kind::Symbol('('), self.errors) {
            return;
        }
        let text = self.scanner.configuration(self.errors);
        self.scanner.expect(Kind::Symbol(')'), self.errors);
        self.scanner.accept(Kind::Symbol(';'), self.errors);
        for argument in split_arguments(&text) {
            let words = split_words(&argument);
            let Some(first) = words.first() else { continue };
            let kind = decoded(first);
            let kind = if is_word(&kind) { kind } else { String::new() };
            match (kind.as_str(), words.get(1)) {
                ("compact_config", None) => self.requirements.push((kind, String::new())),
                ("package", Some(value)) if words.len() == 2 => {
                    self.requirements.push((kind, decoded(value)))
                }
                ("library", Some(value)) if words.len() == 2 => self.require_library(&decoded(value)),
                ("" | "package" | "library", _) | (_, Some(_)) => self.error("syntax error at requirement"),
                // A lone word is the name of a package.
                (_, None) => self.requirements.push(("package".to_owned(), kind)),
            }
        }
    }

    fn require_library(&mut self, name: &str) {
        if self.body.depth() > 0 {
            self.error("'require library' must be used at file scope");
            return;
        }
        if self.open_libraries >= MAX_LIBRARIES {
            self.error("maximum library nesting depth exceeded");
            return;
        }
        let Some(text) = (self.library)(name) else {
            let printed: String = name.chars().flat_map(printable).collect();
            self.error(&format!("library '{printed}' not found in CLICKPATH/conf"));
            return;
        };
        if self.libraries.insert(name.to_owned()) {
            let mut scanner = Scanner::new(&text, name);
            if self.scanner.counts_outside() {
                scanner.count_outside();
            }
            let outer = std::mem::replace(&mut self.scanner, scanner);
            self.open_libraries += 1;
            self.statements(&mut Block::new(Place::File, 0));
            self.open_libraries -= 1;
            self.scanner = outer;
        }
    }

    /// Reads `define($name value, ...)` after its keyword.
    fn definitions(&mut self) {
        if !self.scanner.expect(Kind::Symbol('('), self.errors) {
            return;
        }
        let text = self.scanner.configuration(self.errors);
        self.scanner.expect(Kind::Symbol(')'), self.errors);
        for argument in split_arguments(&text) {
            if argument.is_empty() {
                continue;
            }
            let (variable, value) = next_word(&argument);
            let name = variable.strip_prefix('$').unwrap_or("");
            if name.is_empty() || name.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'_') {
                self.error("bad 'define' declaration: not a variable");
            } else {
                self.body.define(name, value, false, &mut self.scanner, self.errors);
            }
        }
    }

    /// Whether an element is the `output` of the body or group that is being read.
    pub(super) fn is_output(&self, element: usize) -> bool {
        self.body.find("output") == Some(element)
    }
}

fn decoded(word: &str) -> String {
    String::from_utf8_lossy(&unquote(word)).into_owned()
}

/// A character as messages quote it.
fn printable(character: char) -> Vec<char> {
    if character.is_control() && character.is_ascii() {
        format!("\\{:03o}", u32::from(character)).chars().collect()
    } else {
        vec![character]
    }
}
