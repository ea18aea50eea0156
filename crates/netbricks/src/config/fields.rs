//! Takes keys out of a table one by one.
//!
//! A key that has the wrong type, is missing or is left over is reported with its place, and reading goes on.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// A table that is being read.
pub(super) struct Fields<'t, 'd> {
    /// The table's name in messages: ``port `lan` ``.
    what: String,
    header: Range<usize>,
    table: DeTable<'t>,
    diagnostics: &'d mut Diagnostics,
}

/// The name of a value's type, in messages.
pub(super) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl<'t, 'd> Fields<'t, 'd> {
    pub(super) fn new(
        what: impl Into<String>,
        table: Spanned<DeTable<'t>>,
        diagnostics: &'d mut Diagnostics,
    ) -> Self {
        Self { what: what.into(), header: table.span(), table: table.into_inner(), diagnostics }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Spanned<DeValue<'t>>> {
        self.table.remove(key)
    }

    fn wrong_type(&mut self, key: &str, found: &Spanned<DeValue<'_>>, expected: &str) {
        self.diagnostics.push(
            Diagnostic::error(format!("`{key}` of {} is {}", self.what, type_name(found.get_ref())))
                .at(found.span(), format!("expected {expected}")),
        );
    }

    /// A text that may be left out.
    pub(super) fn text(&mut self, key: &str) -> Option<Spanned<String>> {
        let value = self.take(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(Spanned::new(value.span(), text.to_owned())),
            None => {
                self.wrong_type(key, &value, "text in quotes");
                None
            }
        }
    }

    /// A text that must be given; `why` explains its purpose.
    pub(super) fn required_text(&mut self, key: &str, why: &str) -> Option<Spanned<String>> {
        if !self.table.contains_key(key) {
            self.missing(key, why);
            return None;
        }
        self.text(key)
    }

    pub(super) fn missing(&mut self, key: &str, why: &str) {
        self.diagnostics.push(
            Diagnostic::error(format!("{} lacks the key `{key}`", self.what))
                .at(self.header.clone(), format!("add `{key} = \"…\"`, {why}")),
        );
    }

    /// A list of texts that may be left out.
    pub(super) fn texts(&mut self, key: &str, example: &str) -> Vec<Spanned<String>> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.wrong_type(key, &value, &format!("a list, such as `{key} = {example}`"));
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push(Spanned::new(item.span(), text.to_owned())),
                None => self.wrong_type(key, item, "text in quotes"),
            }
        }
        texts
    }

    /// A list of whole numbers from 0 that may be left out, but not be empty.
    pub(super) fn numbers(&mut self, key: &str, example: &str) -> Option<Vec<Spanned<usize>>> {
        let value = self.take(key)?;
        let expected = format!("a list, such as `{key} = {example}`");
        let Some(items) = value.get_ref().as_array().filter(|items| !items.is_empty()) else {
            self.wrong_type(key, &value, &expected);
            return None;
        };
        let mut numbers = Vec::with_capacity(items.len());
        for item in items.iter() {
            let number = item
                .get_ref()
                .as_integer()
                .and_then(|number| usize::from_str_radix(number.as_str(), number.radix()).ok());
            match number {
                Some(number) => numbers.push(Spanned::new(item.span(), number)),
                None => self.wrong_type(key, item, "a whole number from 0"),
            }
        }
        Some(numbers)
    }

    /// Reports the keys that were not taken.
    pub(super) fn finish(self, known: &[&str]) {
        for (key, _) in &self.table {
            let found = key.get_ref().as_ref();
            self.diagnostics.push(
                Diagnostic::error(format!("unknown key `{found}` in {}", self.what)).meant(
                    key.span(),
                    found,
                    known.iter().copied(),
                ),
            );
        }
    }

    /// The keys that were not taken, as a table with its place.
    pub(super) fn rest(self) -> Spanned<DeTable<'t>> {
        Spanned::new(self.header, self.table)
    }
}

/// The entries of `[port.*]` or `[function.*]`: name and table, in the order of the file.
pub(super) fn named_tables<'t>(
    section: Option<Spanned<DeValue<'t>>>,
    kind: &str,
    diagnostics: &mut Diagnostics,
) -> Vec<(Spanned<String>, Spanned<DeTable<'t>>)> {
    let Some(section) = section else { return Vec::new() };
    let span = section.span();
    let example = format!("write `[{kind}.NAME]`");
    let DeValue::Table(table) = section.into_inner() else {
        diagnostics.push(Diagnostic::error(format!("`{kind}` is not a table of {kind}s")).at(span, example));
        return Vec::new();
    };
    let mut entries = Vec::with_capacity(table.len());
    for (name, value) in table {
        let place = value.span();
        let spanned = Spanned::new(name.span(), name.get_ref().to_string());
        match value.into_inner() {
            DeValue::Table(entry) => {
                if is_name(spanned.get_ref()) {
                    entries.push((spanned, Spanned::new(place, entry)));
                } else {
                    diagnostics.push(bad_name(kind, &spanned));
                }
            }
            _ => diagnostics.push(
                Diagnostic::error(format!("`{}` stands where a {kind}'s table was expected", name.get_ref()))
                    .at(name.span(), example.clone()),
            ),
        }
    }
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// Whether a text can name a port, a function or a chain.
///
/// Such a name needs no quotes anywhere. It has no `.` and no `@`, which join names.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

pub(super) fn bad_name(kind: &str, name: &Spanned<String>) -> Diagnostic {
    Diagnostic::error(format!("`{}` cannot name a {kind}", name.get_ref()))
        .at(name.span(), "expected 1 to 64 letters, digits, `-` or `_`")
}
