//! Calls of handlers by name: `counter.count`, `switch.switch 1`, and the handlers that every element has.

use std::fmt::Write as _;

use crate::handler::{Answer, Handler};
use crate::language::text;
use crate::root;
use crate::router::{At, Router};

/// The number that stands for the configuration as a whole, whose handlers have no element.
pub const ROOT: usize = usize::MAX;

/// A handler that a text names, and the value that it gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerCall {
    /// The element, or [`ROOT`].
    pub element: usize,
    /// The handler's name.
    pub name: String,
    /// The value to write, or the parameter to read with.
    pub value: String,
}

impl HandlerCall {
    /// Reads `element.handler value`, as the element `at` sees names.
    ///
    /// Without an element, the handler is that of `at`, or else of the configuration.
    ///
    /// # Errors
    /// The text has another form, or names no element.
    pub fn parse(description: &str, at: At<'_>) -> Result<Self, String> {
        let (first, rest) = text::next_word(description);
        let name = String::from_utf8_lossy(&text::unquote(&first)).into_owned();
        let (element, name) = Self::resolve(&name, at)?;
        Ok(Self { element, name, value: rest.to_owned() })
    }

    fn resolve(name: &str, at: At<'_>) -> Result<(usize, String), String> {
        if name.is_empty() {
            return Err("syntax error".into());
        }
        match name.find('.') {
            Some(0) => return Ok((ROOT, name[1..].to_owned())),
            Some(dot) if dot + 1 == name.len() => return Err("syntax error".into()),
            Some(dot) => {
                if let Some(element) = at.router.find(&name[..dot], at.id) {
                    return Ok((element, name[dot + 1..].to_owned()));
                }
                if at.id != ROOT && at.router.has_handler(at.id, name) {
                    return Ok((at.id, name.to_owned()));
                }
                if at.router.has_handler(ROOT, name) {
                    return Ok((ROOT, name.to_owned()));
                }
                return Err(format!("no element named '{}'", &name[..dot]));
            }
            None => (),
        }
        if at.id != ROOT && at.router.has_handler(at.id, name) {
            return Ok((at.id, name.to_owned()));
        }
        Ok((ROOT, name.to_owned()))
    }

    /// `element.handler`, as messages have it.
    pub fn full_name(&self, router: &Router) -> String {
        if self.element == ROOT {
            self.name.clone()
        } else {
            format!("{}.{}", router.name(self.element), self.name)
        }
    }

    /// Whether there is such a handler that can be read (or written).
    ///
    /// # Errors
    /// Click's words for what is missing.
    pub fn check(&self, router: &Router, write: bool) -> Result<(), String> {
        let handler = router.handler(self.element, &self.name);
        let fits = handler
            .as_ref()
            .is_some_and(|handler| if write { handler.is_writable() } else { handler.is_readable() });
        if !fits {
            let kind = if write { "write" } else { "read" };
            return Err(format!("no '{}' {kind} handler", self.full_name(router)));
        }
        if !write && !self.value.is_empty() && handler.is_some_and(|handler| !handler.read_parameter) {
            return Err(format!("read handler '{}' does not take parameters", self.full_name(router)));
        }
        Ok(())
    }

    /// Reads the handler.
    ///
    /// # Errors
    /// It cannot be read, or its own error.
    pub fn read(&self, router: &Router) -> Answer {
        self.check(router, false)?;
        router.read_handler(self.element, &self.name, &self.value)
    }

    /// Writes the handler with the call's value.
    ///
    /// # Errors
    /// It cannot be written, or its own error.
    pub fn write(&self, router: &Router) -> Answer {
        self.check(router, true)?;
        router.write_handler(self.element, &self.name, &self.value)
    }
}

impl crate::arguments::Argument for HandlerCall {
    fn parse(description: &str, at: At<'_>) -> crate::arguments::Parsed<Self> {
        // Handlers exist when all elements do: until then the name waits.
        let (first, rest) = text::next_word(description);
        if first.is_empty() {
            return Err(crate::arguments::Problem::Syntax);
        }
        if at.router.handlers_ready() {
            return Self::parse(description, at).map_err(Into::into);
        }
        Ok(Self {
            element: ROOT,
            name: String::from_utf8_lossy(&text::unquote(&first)).into_owned(),
            value: rest.to_owned(),
        })
    }
}

impl HandlerCall {
    /// Resolves a call that was read before there were handlers.
    ///
    /// # Errors
    /// The name means no handler of the wanted kind.
    pub fn ready(&self, at: At<'_>, write: bool) -> Result<Self, String> {
        let (element, name) = Self::resolve(&self.name, at)?;
        let call = Self { element, name, value: self.value.clone() };
        call.check(at.router, write)?;
        Ok(call)
    }
}

impl Router {
    /// The handler of an element, or of the configuration where the number is [`ROOT`].
    pub fn handler(&self, element: usize, name: &str) -> Option<Handler> {
        if element == ROOT {
            return root::handlers().find(name).cloned();
        }
        let own = self.handlers(element);
        own.find(name).cloned().or_else(|| root::common().find(name).cloned()).or_else(|| own.any_name(name))
    }
    /// Whether there is such a handler.
    pub fn has_handler(&self, element: usize, name: &str) -> bool {
        self.handler(element, name).is_some()
    }
    /// Reads a handler.
    ///
    /// # Errors
    /// The handler's own, or that there is none.
    pub fn read_handler(&self, element: usize, name: &str, parameter: &str) -> Answer {
        let handler = self.handler(element, name).ok_or_else(|| format!("no '{name}' handler"))?;
        if !self.enter_handler() {
            return Err(self.why_not_entered(name));
        }
        let answer = handler.read(self.element(element).as_ref(), self.at(element), parameter);
        self.leave_handler();
        self.spend(0, answer.as_ref().map_or(0, String::len));
        answer
    }
    /// Writes a handler.
    ///
    /// # Errors
    /// The handler's own, or that there is none.
    pub fn write_handler(&self, element: usize, name: &str, value: &str) -> Answer {
        let handler = self.handler(element, name).ok_or_else(|| format!("no '{name}' handler"))?;
        if !self.enter_handler() {
            return Err(self.why_not_entered(name));
        }
        self.spend(0, value.len());
        let answer = handler.write(self.element(element).as_ref(), self.at(element), value);
        self.leave_handler();
        answer
    }

    fn why_not_entered(&self, name: &str) -> String {
        if self.is_spent() {
            return format!("too much work in one turn before '{name}'");
        }
        format!("handlers are nested too deeply at '{name}'")
    }

    /// All handlers of an element, its own and those that every element has: those that were declared last come first.
    pub fn all_handlers(&self, element: usize) -> Vec<Handler> {
        if element == ROOT {
            return root::handlers().iter().cloned().collect();
        }
        let mut all: Vec<Handler> = root::common().iter().cloned().collect();
        for own in self.handlers(element).iter() {
            match all.iter_mut().find(|handler| handler.name == own.name) {
                Some(same) => *same = own.clone(),
                None => all.push(own.clone()),
            }
        }
        all.reverse();
        all
    }

    /// Handlers of an element as its `handlers` handler lists them: a name and letters a line.
    pub fn list_handlers(&self, element: usize) -> String {
        let mut list = String::new();
        for handler in self.all_handlers(element) {
            let mut letters = String::new();
            if handler.is_visibly_readable() {
                letters.push('r');
            }
            if handler.is_visibly_writable() {
                letters.push('w');
            }
            for (set, letter) in [
                (handler.read_parameter, '+'),
                (handler.raw, '%'),
                (handler.calm, '.'),
                (handler.expensive, '$'),
                (handler.uncommon, 'U'),
                (handler.button, 'b'),
                (handler.checkbox, 'c'),
                (handler.deprecated, 'D'),
            ] {
                if set {
                    letters.push(letter);
                }
            }
            if letters.contains(['r', 'w']) {
                let _ = writeln!(list, "{}\t{letters}", handler.name);
            }
        }
        list
    }
}
