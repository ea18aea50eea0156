//! Arguments of an element's configuration, by position and by keyword, with Click's messages.

use crate::language::errors::Errors;
use crate::language::text;
use crate::router::At;

/// Why an argument's text is not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It does not have the value's form: Click says "parse error".
    Syntax,
    /// It has another fault, in these words.
    Said(String),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self::Said(text.to_owned())
    }
}

/// A value, or why the text is none.
pub type Parsed<T> = Result<T, Problem>;

/// A type whose values are arguments.
pub trait Argument: Sized {
    /// The value that a text means to an element, which sees names that are defined for it.
    ///
    /// # Errors
    /// The text means no such value.
    fn parse(text: &str, at: At<'_>) -> Parsed<Self>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No keyword stands before it.
    Plain,
    /// A word of so many bytes stands before it, which may be a keyword.
    Keyword(usize),
    /// It was read by position.
    TakenByPosition,
    /// It was read by its keyword.
    TakenByKeyword,
}

/// The arguments of one element, which are read one by one; those that are left at the end are faults.
pub struct Arguments<'a> {
    arguments: Vec<String>,
    states: Vec<State>,
    at: At<'a>,
    errors: &'a Errors,
    good: bool,
}

/// Length of the word at the start of an argument that can be a keyword, if more follows.
fn keyword_length(argument: &str) -> Option<usize> {
    let bytes = argument.as_bytes();
    let first = *bytes.first()?;
    if !first.is_ascii_alphabetic() && first != b'_' {
        return None;
    }
    let length = bytes
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.' | b'?' | b'!')))
        .unwrap_or(bytes.len());
    let rest = &argument[length..];
    let more = rest.trim_start();
    (more.len() < rest.len() && !more.is_empty()).then_some(length)
}

impl<'a> Arguments<'a> {
    /// The arguments in a configuration string.
    pub fn new(configuration: &str, at: At<'a>, errors: &'a Errors) -> Self {
        Self::of(text::split_arguments(configuration), at, errors)
    }

    /// These arguments.
    pub fn of(arguments: Vec<String>, at: At<'a>, errors: &'a Errors) -> Self {
        let states = arguments
            .iter()
            .map(|argument| keyword_length(argument).map_or(State::Plain, State::Keyword))
            .collect();
        Self { arguments, states, at, errors, good: true }
    }

    /// The element that they configure.
    pub fn at(&self) -> At<'a> {
        self.at
    }

    /// Where errors are told.
    pub fn errors(&self) -> &'a Errors {
        self.errors
    }

    /// Tells an error, so that [`complete`](Self::complete) fails.
    pub fn error(&mut self, message: &str) {
        self.errors.error(message);
        self.good = false;
    }

    /// Tells an error of an argument by its name, so that [`complete`](Self::complete) fails.
    pub fn error_of(&mut self, keyword: &str, message: &str) {
        self.error(&format!("{keyword}: {message}"));
    }

    /// The number of arguments, read or not.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    fn find(&mut self, keyword: &str, positional: bool, mandatory: bool) -> Option<String> {
        let mut got = None;
        for place in 0..self.states.len() {
            if let State::Keyword(length) = self.states[place]
                && length == keyword.len()
                && self.arguments[place].starts_with(keyword)
            {
                self.states[place] = State::TakenByKeyword;
                got = Some((place, length));
            }
        }
        if positional {
            // The first argument that was not read by position, unless one behind a keyword comes first.
            let next = self.states.iter().position(|state| *state != State::TakenByPosition);
            if let Some(place) = next {
                let takes = match self.states[place] {
                    State::Plain => true,
                    State::Keyword(_) => got.is_none() && mandatory,
                    _ => false,
                };
                if takes {
                    self.states[place] = State::TakenByPosition;
                    if got.is_none_or(|(found, _)| found < place) {
                        got = Some((place, 0));
                    }
                }
            }
        }
        match got {
            Some((place, skip)) => Some(self.arguments[place][skip..].trim_start().to_owned()),
            None => {
                if mandatory {
                    self.error_of(keyword, "required argument missing");
                }
                None
            }
        }
    }

    fn value<T>(
        &mut self,
        keyword: &str,
        text: Option<String>,
        parse: impl FnOnce(&str, At<'_>) -> Parsed<T>,
    ) -> Option<T> {
        match parse(&text?, self.at) {
            Ok(value) => Some(value),
            Err(Problem::Syntax) => {
                self.error_of(keyword, "parse error");
                None
            }
            Err(Problem::Said(message)) => {
                self.error_of(keyword, &message);
                None
            }
        }
    }

    /// An argument that must be there, by position or keyword.
    pub fn required<T: Argument>(&mut self, keyword: &str) -> Option<T> {
        self.required_with(keyword, T::parse)
    }
    /// The same, read by `parse`.
    pub fn required_with<T>(
        &mut self,
        keyword: &str,
        parse: impl FnOnce(&str, At<'_>) -> Parsed<T>,
    ) -> Option<T> {
        let text = self.find(keyword, true, true);
        self.value(keyword, text, parse)
    }
    /// An argument that may be there, by position or keyword.
    pub fn positional<T: Argument>(&mut self, keyword: &str) -> Option<T> {
        self.positional_with(keyword, T::parse)
    }
    /// The same, read by `parse`.
    pub fn positional_with<T>(
        &mut self,
        keyword: &str,
        parse: impl FnOnce(&str, At<'_>) -> Parsed<T>,
    ) -> Option<T> {
        let text = self.find(keyword, true, false);
        self.value(keyword, text, parse)
    }
    /// An argument that may be there, by keyword only.
    pub fn keyword<T: Argument>(&mut self, keyword: &str) -> Option<T> {
        self.keyword_with(keyword, T::parse)
    }
    /// The same, read by `parse`.
    pub fn keyword_with<T>(
        &mut self,
        keyword: &str,
        parse: impl FnOnce(&str, At<'_>) -> Parsed<T>,
    ) -> Option<T> {
        let text = self.find(keyword, false, false);
        self.value(keyword, text, parse)
    }
    /// An argument by keyword only, that older configurations have: its use is warned of.
    pub fn deprecated<T: Argument>(&mut self, keyword: &str) -> Option<T> {
        let text = self.find(keyword, false, false)?;
        self.errors.warning_of(keyword, "argument deprecated");
        self.value(keyword, Some(text), T::parse)
    }
    /// An argument that must be there, by keyword only.
    pub fn required_keyword<T: Argument>(&mut self, keyword: &str) -> Option<T> {
        let text = self.find(keyword, false, true);
        self.value(keyword, text, T::parse)
    }

    /// All arguments that were not read yet, keyword or not, in their order.
    pub fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        for (state, argument) in self.states.iter_mut().zip(&self.arguments) {
            if matches!(state, State::Plain | State::Keyword(_)) {
                *state = State::TakenByPosition;
                rest.push(argument.clone());
            }
        }
        rest
    }

    /// Whether all was right so far.
    pub fn is_good(&self) -> bool {
        self.good
    }

    /// Ends the reading: arguments that nothing read are faults. `None` when anything was wrong.
    pub fn complete(&mut self) -> Option<()> {
        let mut plain = false;
        for place in 0..self.states.len() {
            match self.states[place] {
                State::Plain => plain = true,
                State::Keyword(length) => {
                    let message = format!("{}: unknown argument", &self.arguments[place][..length]);
                    self.error(&message);
                }
                _ => (),
            }
        }
        if plain {
            self.error("too many arguments");
        }
        self.good.then_some(())
    }
}
