//! The classes that a configuration can name, in the scopes where they are known.

use std::collections::HashMap;
use std::rc::Rc;

use super::body::{Body, ClassId};

/// The element classes that exist outside the configuration.
pub trait Classes {
    /// Whether this is the name of a primitive element class.
    fn known(&self, class: &str) -> bool;

    /// Why a class that Click has is none here.
    fn missing(&self, _class: &str) -> Option<&'static str> {
        None
    }

    /// Whether names that nothing declares are classes too, as for a tool that has no elements.
    fn open(&self) -> bool {
        false
    }
}

/// The meaning of a class name.
#[derive(Clone, Debug)]
pub(super) enum Definition {
    Primitive(Rc<str>),
    /// An unknown class, after the error message about it.
    Unknown,
    /// A body in [`Table::bodies`].
    Compound(usize),
}

/// All classes and bodies of a configuration.
pub(super) struct Table<'a> {
    outside: &'a dyn Classes,
    pub(super) definitions: Vec<Definition>,
    pub(super) bodies: Vec<Body>,
    names: HashMap<String, ClassId>,
    /// Primitive classes, which no scope hides from the others.
    primitives: HashMap<String, ClassId>,
    /// Names that changed, with what they meant before.
    changes: Vec<(String, Option<ClassId>)>,
}

impl<'a> Table<'a> {
    pub(super) fn new(outside: &'a dyn Classes) -> Self {
        Self {
            outside,
            definitions: Vec::new(),
            bodies: Vec::new(),
            names: HashMap::new(),
            primitives: HashMap::new(),
            changes: Vec::new(),
        }
    }

    /// The class of a name, where one is known.
    pub(super) fn find(&mut self, name: &str) -> Option<ClassId> {
        if let Some(&class) = self.names.get(name).or_else(|| self.primitives.get(name)) {
            return Some(class);
        }
        if name.is_empty() {
            return None;
        }
        (name == "Error" || self.outside.known(name)).then(|| self.primitive(name))
    }

    /// Whether a class of this name exists; nothing becomes known by the question.
    pub(super) fn find_declared(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.primitives.contains_key(name)
    }

    /// A line behind the error about an unknown class: the reason, if Click has it.
    pub(super) fn reason(&self, name: &str) -> String {
        self.outside.missing(name).map_or_else(String::new, |why| format!("\n  (Click has it: {why})"))
    }

    /// Whether undeclared names are classes too.
    pub(super) fn is_open(&self) -> bool {
        self.outside.open()
    }

    /// The class of a name; the flag says that nothing knows it.
    pub(super) fn force(&mut self, name: &str) -> (ClassId, bool) {
        if let Some(class) = self.find(name) {
            return (class, false);
        }
        if self.outside.open() {
            return (self.primitive(name), false);
        }
        (self.declare(name, Definition::Unknown), true)
    }

    fn primitive(&mut self, name: &str) -> ClassId {
        let class = self.definitions.len();
        self.definitions.push(Definition::Primitive(name.into()));
        self.primitives.insert(name.to_owned(), class);
        class
    }

    /// Gives a name a meaning until [`leave`](Self::leave); an empty name only makes a class.
    pub(super) fn declare(&mut self, name: &str, definition: Definition) -> ClassId {
        let class = self.definitions.len();
        self.definitions.push(definition);
        if !name.is_empty() {
            let before = self.names.insert(name.to_owned(), class);
            self.changes.push((name.to_owned(), before));
        }
        class
    }

    /// Begins a scope; give the mark to [`leave`](Self::leave).
    pub(super) fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Takes back the declarations since the mark.
    pub(super) fn leave(&mut self, mark: usize) {
        while self.changes.len() > mark {
            match self.changes.pop() {
                Some((name, Some(before))) => self.names.insert(name, before),
                Some((name, None)) => self.names.remove(&name),
                None => None,
            };
        }
    }

    /// The body of a compound class.
    pub(super) fn body(&self, class: ClassId) -> Option<&Body> {
        match self.definitions[class] {
            Definition::Compound(body) => self.bodies.get(body),
            _ => None,
        }
    }
}
