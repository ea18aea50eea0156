//! Error messages as Click prints them, with their landmarks and contexts.

use std::cell::{Cell, RefCell};
use std::fmt;

/// Messages on their way to the user: it prefixes, indents and counts them.
///
/// Methods take `&self`, so that many parts of a program can share one collection.
pub struct Errors {
    sink: Sink,
    contexts: RefCell<Vec<Context>>,
    errors: Cell<usize>,
    warnings: Cell<usize>,
}

/// A destination for finished lines.
enum Sink {
    Kept(RefCell<Vec<String>>),
    Printed(Box<dyn Fn(&str)>),
}

struct Context {
    landmark: String,
    heading: String,
    printed: bool,
}

impl Errors {
    /// Keeps the lines, for [`lines`](Self::lines).
    pub fn collected() -> Self {
        Self::with(Sink::Kept(RefCell::default()))
    }

    /// Gives each finished line, without its newline, to `sink` at once.
    pub fn to(sink: Box<dyn Fn(&str)>) -> Self {
        Self::with(Sink::Printed(sink))
    }

    fn with(sink: Sink) -> Self {
        Self { sink, contexts: RefCell::default(), errors: Cell::new(0), warnings: Cell::new(0) }
    }

    /// Reports an error in the present context.
    pub fn error(&self, message: &str) {
        self.error_at("", message);
    }

    /// Reports a warning in the present context.
    pub fn warning(&self, message: &str) {
        self.warning_at("", message);
    }

    /// Reports a warning of an argument by its name.
    pub fn warning_of(&self, keyword: &str, message: &str) {
        self.warnings.set(self.warnings.get() + 1);
        self.report("", "", &format!("{keyword}: warning: {message}"));
    }

    /// Reports a message that is neither an error nor a warning.
    pub fn message(&self, message: &str) {
        self.message_at("", message);
    }

    /// Reports an error at a landmark such as `file:7`.
    pub fn error_at(&self, landmark: &str, message: &str) {
        self.errors.set(self.errors.get() + 1);
        self.report(landmark, "", message);
    }

    /// Reports a warning at a landmark such as `file:7`.
    pub fn warning_at(&self, landmark: &str, message: &str) {
        self.warnings.set(self.warnings.get() + 1);
        self.report(landmark, "warning: ", message);
    }

    /// Reports a message at a landmark such as `file:7`.
    pub fn message_at(&self, landmark: &str, message: &str) {
        self.report(landmark, "", message);
    }

    /// Runs `f` in a context: `heading` comes before the first message, and messages are indented.
    ///
    /// An empty `landmark` leaves the heading with the landmark of the first message.
    pub fn within<R>(&self, landmark: &str, heading: &str, f: impl FnOnce(&Self) -> R) -> R {
        let context = Context { landmark: landmark.to_owned(), heading: heading.to_owned(), printed: false };
        self.contexts.borrow_mut().push(context);
        let result = f(self);
        self.contexts.borrow_mut().pop();
        result
    }

    /// The number of errors so far.
    pub fn count(&self) -> usize {
        self.errors.get()
    }

    /// The number of warnings so far.
    pub fn warnings(&self) -> usize {
        self.warnings.get()
    }

    /// The lines so far, if they are kept.
    pub fn lines(&self) -> Vec<String> {
        match &self.sink {
            Sink::Kept(lines) => lines.borrow().clone(),
            Sink::Printed(_) => Vec::new(),
        }
    }

    fn report(&self, landmark: &str, prefix: &str, message: &str) {
        let mut lines = Vec::new();
        for (depth, context) in self.contexts.borrow_mut().iter_mut().enumerate() {
            if !context.printed {
                context.printed = true;
                let place = if context.landmark.is_empty() { landmark } else { &context.landmark };
                lines.extend(context.heading.lines().map(|line| decorated(place, depth, "", line)));
            }
        }
        let depth = self.contexts.borrow().len();
        let text = message.strip_suffix('\n').unwrap_or(message);
        lines.extend(text.split('\n').map(|line| decorated(landmark, depth, prefix, line)));
        for line in lines {
            match &self.sink {
                Sink::Kept(kept) => kept.borrow_mut().push(line),
                Sink::Printed(print) => print(&line),
            }
        }
    }
}

impl fmt::Debug for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errors")
            .field("errors", &self.errors)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// A line with its landmark, whose last colon may be missing, and its indent.
fn decorated(landmark: &str, depth: usize, prefix: &str, line: &str) -> String {
    let place = landmark.trim_end();
    let place = place.strip_suffix(':').unwrap_or(place);
    let colon = if place.is_empty() { "" } else { ": " };
    format!("{place}{colon}{:indent$}{prefix}{line}", "", indent = 2 * depth)
}
