//! Variables: `$name`, `${name}`, `${name-default}` and `${name[2]}`, in the scopes where they are known.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use super::text::{at_comment, next_word, quote, skip_blank, slice};

/// Deepest expansion of variables inside the values of variables.
const MAX_DEPTH: usize = 10;
/// Bytes that one expansion may produce in all its steps.
const MAX_EXPANSION: usize = 1 << 24;

/// A variable as it stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `$name`, `$?`, `$#` or `$$`.
    Plain,
    /// `${...}`.
    Braces,
    /// `$(...)`.
    Parentheses,
}

/// A source of values for variables.
pub trait Variables {
    /// The value of what stands behind the `$`; `None` leaves the text as it is.
    ///
    /// `name` is all that stands between the braces or parentheses. `depth` counts the expansions around this one.
    fn value(&self, name: &str, form: Form, depth: usize) -> Option<String>;

    /// Whether a text of so many bytes may become longer. Otherwise the rest is left out.
    fn allows(&self, _bytes: usize) -> bool {
        true
    }
}

/// The variables of the file or of one compound element, and around them those of the enclosing one.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    names: Vec<String>,
    values: Vec<String>,
    index: HashMap<String, usize>,
    depth: usize,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    /// An empty scope inside `parent`.
    pub fn new(parent: Option<Rc<Scope>>) -> Self {
        let depth = parent.as_ref().map_or(0, |parent| parent.depth + 1);
        Self { depth, parent, ..Self::default() }
    }

    /// An empty scope for a template, whose enclosing scope is not known yet.
    pub(crate) fn at_depth(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// The value of a variable here or in an enclosing scope, unexpanded.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            if let Some(&at) = here.index.get(name) {
                return Some(&here.values[at]);
            }
            scope = here.parent.as_deref();
        }
        None
    }

    /// Replaces all variables of a text that this scope knows.
    pub fn expand(&self, text: &str) -> String {
        self.expand_within(text, &Cell::new(MAX_EXPANSION.max(2 * text.len())))
    }

    /// [`expand`](Self::expand) with an allowance in bytes; when it is used up, variables stay as they are.
    pub(crate) fn expand_within(&self, text: &str, left: &Cell<usize>) -> String {
        if !text.contains('$') {
            return text.to_owned();
        }
        if left.get() <= text.len() {
            left.set(0);
            return text.to_owned();
        }
        left.set(left.get() - text.len());
        expand(text, &Budgeted { scope: self, left }, false)
    }

    /// Gives a variable its value, unless this scope already has the variable.
    ///
    /// The result says whether the variable is new.
    pub fn define(&mut self, name: &str, value: &str) -> bool {
        let new = !self.index.contains_key(name);
        if new {
            self.index.insert(name.to_owned(), self.names.len());
            self.names.push(name.to_owned());
            self.values.push(value.to_owned());
        }
        new
    }

    /// Gives a variable its value, also where it has one.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        if !self.define(name, value)
            && let Some(&at) = self.index.get(name)
        {
            value.clone_into(&mut self.values[at]);
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn values(&self) -> &[String] {
        &self.values
    }
}

/// The innermost scope around `scope` that lies less deep than `depth`.
pub(crate) fn enclosing(scope: &Rc<Scope>, depth: usize) -> Option<Rc<Scope>> {
    let mut scope = Some(Rc::clone(scope));
    while let Some(here) = scope {
        if here.depth < depth {
            return Some(here);
        }
        scope = here.parent.clone();
    }
    None
}

impl Variables for Scope {
    fn value(&self, name: &str, form: Form, depth: usize) -> Option<String> {
        Budgeted { scope: self, left: &Cell::new(MAX_EXPANSION) }.value(name, form, depth)
    }
}

/// A scope whose nested expansions share one budget, so that `$a$a` inside `$a` comes to an end.
struct Budgeted<'a> {
    scope: &'a Scope,
    left: &'a Cell<usize>,
}

impl Budgeted<'_> {
    fn expand(&self, text: &str, depth: usize) -> String {
        let spent = text.len() + 1;
        if self.left.get() < spent {
            self.left.set(0);
            return text.to_owned();
        }
        self.left.set(self.left.get() - spent);
        let expanded = expand_at(text, self, false, depth + 1);
        // Quotes in quotes double at each level: the result is charged, too.
        if self.left.get() < expanded.len() {
            self.left.set(0);
            return text.to_owned();
        }
        self.left.set(self.left.get() - expanded.len());
        expanded
    }
}

impl Variables for Budgeted<'_> {
    fn value(&self, name: &str, form: Form, depth: usize) -> Option<String> {
        let parts =
            if form == Form::Braces { Parts::of(name) } else { Parts { name, word: None, default: None } };
        let Some(value) = self.scope.get(parts.name) else {
            return parts.default.map(|default| self.expand(default, depth));
        };
        let value = self.expand(value, depth);
        Some(match parts.word {
            None => value,
            Some(index) => word_at(&value, index),
        })
    }
}

/// The inside of `${name[word]-default}`.
struct Parts<'a> {
    name: &'a str,
    word: Option<usize>,
    default: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.trim_start_matches(spaces);
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let mut rest = rest.trim_start_matches(spaces);
        let mut word = None;
        if let Some(inside) = rest.strip_prefix('[') {
            let inside = inside.trim_start_matches(spaces);
            match integer_prefix(inside) {
                (Some(index), after) if after.starts_with(']') => {
                    word = Some(index);
                    rest = after[1..].trim_start_matches(spaces);
                }
                (_, after) => rest = after,
            }
        }
        Self { name, word, default: rest.strip_prefix('-') }
    }
}

fn spaces(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// A decimal, octal (`0`) or hexadecimal (`0x`) number at the beginning, and the text behind it.
fn integer_prefix(text: &str) -> (Option<usize>, &str) {
    let hexadecimal = (text.starts_with("0x") || text.starts_with("0X"))
        && text.as_bytes().get(2).is_some_and(u8::is_ascii_hexdigit);
    let (skip, radix) = if hexadecimal {
        (2, 16)
    } else if text.starts_with('0') {
        (0, 8)
    } else {
        (0, 10)
    };
    let digits = &text[skip..];
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 {
        return (None, text);
    }
    let value = usize::from_str_radix(&digits[..end], radix).unwrap_or(usize::MAX);
    (Some(value), &digits[end..])
}

fn word_at(text: &str, index: usize) -> String {
    let mut rest = text;
    let mut word = String::new();
    for _ in 0..=index {
        if rest.is_empty() && word.is_empty() {
            break;
        }
        (word, rest) = next_word(rest);
    }
    word
}

/// Replaces the variables of a text outside single quotes and comments.
///
/// Values inside double quotes are escaped. With `quoted`, values outside quotes get quotes of their own.
pub fn expand(text: &str, variables: &dyn Variables, quoted: bool) -> String {
    expand_at(text, variables, quoted, 0)
}

/// [`expand`] for the value of a variable that is itself `depth` expansions deep.
pub fn expand_at(text: &str, variables: &dyn Variables, quoted: bool, depth: usize) -> String {
    if !text.contains('$') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut position, mut copied, mut inside) = (0, 0, 0);
    while position < bytes.len() {
        match bytes[position] {
            b'\\' if inside == b'"' => position += 1,
            byte @ (b'\'' | b'"') if inside == 0 => inside = byte,
            byte @ (b'\'' | b'"') if inside == byte => inside = 0,
            b'/' if inside == 0 && at_comment(bytes, position) => {
                position = skip_blank(bytes, position);
                continue;
            }
            b'$' if inside != b'\'' && depth <= MAX_DEPTH => match Reference::at(text, position) {
                Found::Nothing => {}
                Found::Open => {
                    position = bytes.len();
                    continue;
                }
                Found::Variable(reference) => {
                    out.push_str(&slice(text, copied, position));
                    copied = reference.end;
                    if !reference.write(text, variables, inside, quoted, depth, &mut out) {
                        copied = position;
                    }
                    position = reference.end;
                    if !variables.allows(out.len()) {
                        return out;
                    }
                    continue;
                }
            },
            _ => {}
        }
        position += 1;
    }
    // Click keeps a text whose variables all came out empty, with nothing before them.
    if out.is_empty() {
        return text.to_owned();
    }
    out.push_str(&slice(text, copied, bytes.len()));
    out
}

/// The text that follows a `$`.
enum Found {
    Nothing,
    /// A brace or parenthesis that nothing closes.
    Open,
    Variable(Reference),
}

/// A variable in a text: where it stands, and what stands inside it.
struct Reference {
    begin: usize,
    end: usize,
    name: (usize, usize),
    form: Form,
    nested: bool,
}

impl Reference {
    fn at(text: &str, begin: usize) -> Found {
        let bytes = text.as_bytes();
        let first = begin + 1;
        match bytes.get(first) {
            Some(b'{') => {
                let inside = &bytes[first + 1..];
                let Some(length) = inside.iter().position(|&byte| byte == b'}') else { return Found::Open };
                let name = (first + 1, first + 1 + length);
                let nested = inside[..length].contains(&b'$');
                Found::Variable(Self { begin, end: name.1 + 1, name, form: Form::Braces, nested })
            }
            Some(b'(') => Self::in_parentheses(bytes, begin),
            Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => {
                let rest = &bytes[first..];
                let length = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
                let end = first + length.unwrap_or(rest.len());
                Found::Variable(Self { begin, end, name: (first, end), form: Form::Plain, nested: false })
            }
            Some(b'?' | b'#' | b'$') => {
                let end = first + 1;
                Found::Variable(Self { begin, end, name: (first, end), form: Form::Plain, nested: false })
            }
            _ => Found::Nothing,
        }
    }

    fn in_parentheses(bytes: &[u8], begin: usize) -> Found {
        let first = begin + 2;
        let (mut position, mut level, mut quote, mut nested) = (first, 1, 0, false);
        while position < bytes.len() && level > 0 {
            match bytes[position] {
                b'(' if quote == 0 => level += 1,
                b')' if quote == 0 => level -= 1,
                byte @ (b'"' | b'\'') if quote == 0 => quote = byte,
                byte @ (b'"' | b'\'') if quote == byte => quote = 0,
                b'\\' if quote != b'\'' && position + 1 < bytes.len() => position += 1,
                b'$' if quote != b'\'' => nested = true,
                _ => {}
            }
            position += 1;
        }
        if position == first || bytes[position - 1] != b')' {
            return Found::Open;
        }
        let name = (first, position - 1);
        Found::Variable(Self { begin, end: position, name, form: Form::Parentheses, nested })
    }

    /// Writes the value; says whether something stands for the variable now.
    fn write(
        &self,
        text: &str,
        variables: &dyn Variables,
        inside: u8,
        quoted: bool,
        depth: usize,
        out: &mut String,
    ) -> bool {
        let mut name = slice(text, self.name.0, self.name.1);
        if self.nested {
            name = expand_at(&name, variables, false, depth + 1);
        }
        let Some(value) = variables.value(&name, self.form, depth) else {
            if self.nested {
                out.push_str(&slice(text, self.begin, self.begin + 2));
                out.push_str(&name);
                out.push_str(&slice(text, self.end - 1, self.end));
            }
            return self.nested;
        };
        if inside == b'"' {
            let value = quote(value.as_bytes(), false);
            out.push_str(&value[1..value.len() - 1]);
        } else if quoted && inside == 0 {
            out.push_str(&quote(value.as_bytes(), false));
        } else {
            out.push_str(&value);
        }
        true
    }
}
