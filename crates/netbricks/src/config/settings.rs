//! Reads settings into the types that the code needs; reports every wrong key of a table, not only the first.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use netbricks_core::{Key, KeyFault, SettingsError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// Most faults that are looked for in one table, one at a time.
///
/// A list has as many faults as it has items.
const ATTEMPTS: usize = 100;

/// Applies `apply` to a table, and reports all its faults.
///
/// After each fault, it takes the wrong key out of the table (of a list, the wrong item only) and tries
/// again. It stops when the remaining errors may only follow from those that were reported.
pub(crate) fn configure<'t, T>(
    what: &str,
    settings: &Spanned<DeTable<'t>>,
    diagnostics: &mut Diagnostics,
    keys: &[Key],
    apply: impl Fn(Spanned<DeTable<'t>>) -> Result<T, SettingsError>,
) -> Option<T> {
    let mut trial = Trial::new(settings);
    for _ in 0..ATTEMPTS {
        let error = match apply(trial.table.clone()) {
            Ok(value) => return trial.wrong.is_empty().then_some(value),
            Err(error) => error,
        };
        let (found, go_on) = trial.mend(what, &error, keys);
        found.into_iter().for_each(|found| diagnostics.push(found));
        if !go_on {
            return None;
        }
    }
    diagnostics.leave_out();
    None
}

/// A table whose wrong keys are taken out until it can be applied.
struct Trial<'t> {
    table: Spanned<DeTable<'t>>,
    /// Keys that a reported error is about.
    ///
    /// Further errors about the same key, or about keys that depend on it, may follow from the first.
    wrong: BTreeSet<String>,
    /// Missing keys that have a stand-in value, with which the other keys are still checked.
    ///
    /// The number says which of the values of `put_stand_in` the key has.
    stand_ins: BTreeMap<String, usize>,
}

impl<'t> Trial<'t> {
    fn new(settings: &Spanned<DeTable<'t>>) -> Self {
        Self { table: settings.clone(), wrong: BTreeSet::new(), stand_ins: BTreeMap::new() }
    }

    /// Takes the cause of an error out of the table.
    ///
    /// Returns a diagnostic if the error is to be reported, and whether the table has changed, so that it can
    /// be tried again.
    fn mend(&mut self, what: &str, error: &SettingsError, keys: &[Key]) -> (Option<Diagnostic>, bool) {
        let header = self.table.span();
        let culprit = culprit(error, &self.table);
        let Some(culprit) = culprit else {
            if let Some(KeyFault::Missing { key }) = error.key {
                let found = self.wrong.insert(key.to_owned()).then(|| lacking(what, key, header, keys));
                return (found, self.put_stand_in(key));
            }
            // We may have caused an error of the whole table ourselves, unless it is about keys without an
            // error so far.
            let named: Vec<&str> = names(&error.message).collect();
            let independent = keys.iter().any(|key| is_about(&error.message, key.name))
                && !named.iter().any(|name| self.wrong.contains(*name));
            let told = self.wrong.is_empty() || independent;
            return (told.then(|| explain(what, error, None, header, keys)), false);
        };
        let key = culprit.key().to_owned();
        if self.stand_ins.contains_key(&key) {
            return (None, self.put_stand_in(&key));
        }
        let told = !self.follows(error, &culprit);
        let found = told.then(|| explain(what, error, Some(&culprit), header, keys));
        // Else the key with the right name would be reported as missing, and other keys might be refused
        // because of that.
        if let Some(KeyFault::Renamed { new: meant } | KeyFault::Unknown { suggestion: Some(meant) }) =
            error.key
        {
            self.wrong.insert(meant.to_owned());
        }
        self.take_out(&culprit);
        self.wrong.insert(key);
        (found, true)
    }

    /// Whether an error may follow from one that was reported before.
    fn follows(&self, error: &SettingsError, culprit: &Culprit) -> bool {
        let key = culprit.key();
        // By convention, a refused value names the other keys that it depends on.
        if is_about(&error.message, key) && names(&error.message).any(|name| self.wrong.contains(name)) {
            return true;
        }
        if !self.wrong.contains(key) {
            return false;
        }
        match self.table.get_ref().get(key).and_then(|value| item_at(&culprit.span, value)) {
            None => true,
            // Errors name an item of a list by its number, and the numbers change when an item is taken out.
            Some(item) => {
                item.get_ref().is_table() && item.span() == culprit.span && missing(&error.message).is_none()
            }
        }
    }

    /// Takes out the item that is wrong, or else the key.
    fn take_out(&mut self, culprit: &Culprit) {
        let table = self.table.get_mut();
        let rest = table.get(culprit.key()).and_then(|value| {
            let wrong = item_at(&culprit.span, value)?.span();
            let items = value.get_ref().as_array()?.iter().filter(|item| item.span() != wrong);
            Some(Spanned::new(value.span(), DeValue::Array(items.cloned().collect())))
        });
        match (rest, table.get_mut(culprit.key())) {
            (Some(rest), Some(value)) => *value = rest,
            _ => {
                table.remove(culprit.key());
            }
        }
    }

    /// Gives a missing key the next stand-in value, with which the other keys are still checked.
    ///
    /// The values are a string, a list and a number. Returns false if the key had all of them.
    fn put_stand_in(&mut self, key: &str) -> bool {
        let number = self.stand_ins.get(key).map_or(0, |number| number + 1);
        let value = match number {
            0 => DeValue::String("x".into()),
            1 => DeValue::Array(std::iter::empty().collect()),
            // Only the parser can make a number of this type.
            2 => match DeValue::parse("1") {
                Ok(one) => one.into_inner(),
                Err(_) => return false,
            },
            _ => return false,
        };
        // Each stand-in has its own place, in the header, so that an error in it is recognised.
        let others = self.stand_ins.keys().filter(|other| *other != key).count();
        let start = match self.table.get_ref().get(key) {
            Some(before) => before.span().start,
            None => self.table.span().start + others,
        };
        let place = start..start + 1;
        self.table
            .get_mut()
            .insert(Spanned::new(place.clone(), key.to_owned().into()), Spanned::new(place, value));
        self.stand_ins.insert(key.to_owned(), number);
        true
    }
}

/// Whether a message is a refusal of this key's value.
fn is_about(message: &str, key: &str) -> bool {
    message
        .strip_prefix('`')
        .and_then(|rest| rest.strip_prefix(key))
        .is_some_and(|rest| rest.starts_with("` "))
}

/// The parts of a message that stand between backquotes.
fn names(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

/// The item of a list that contains a place.
///
/// `None` if the place is the list itself, or the value is no list.
fn item_at<'v, 't>(span: &Range<usize>, value: &'v Spanned<DeValue<'t>>) -> Option<&'v Spanned<DeValue<'t>>> {
    let items = value.get_ref().as_array()?;
    items.iter().find(|item| holds(&item.span(), span) || leads_into(span, item, &mut Vec::new()))
}

fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

fn lacking(what: &str, key: &str, header: Range<usize>, keys: &[Key]) -> Diagnostic {
    let known = keys.iter().find(|known| known.name == key);
    let label = match known {
        Some(known) => format!("add `{key} = …`, {}", known.kind),
        None => format!("add `{key} = …`"),
    };
    let diagnostic = Diagnostic::error(format!("{what} lacks the key `{key}`")).at(header, label);
    match known {
        Some(known) if !known.summary.is_empty() => diagnostic.help(format!("`{key}`: {}", known.summary)),
        _ => diagnostic,
    }
}

/// Where in a table an error is.
struct Culprit {
    /// The keys that lead to the error, the table's own first; the last one is wrong or incomplete.
    path: Vec<String>,
    /// The error's place.
    span: Range<usize>,
    /// The text that is written there, if the value is text.
    text: Option<String>,
}

impl Culprit {
    /// The table's key.
    fn key(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }
}

/// The key in whose name or value an error is.
fn culprit(error: &SettingsError, table: &Spanned<DeTable<'_>>) -> Option<Culprit> {
    // An error of the whole table has the place of its header.
    let (header, table) = (table.span(), table.get_ref());
    let by_place = error.span.as_ref().filter(|span| **span != header).and_then(|span| {
        let mut path = Vec::new();
        let text = table.values().find_map(|value| text_at(span, value)).map(str::to_owned);
        leads_to(span, table, &mut path).then(|| Culprit { path, span: span.clone(), text })
    });
    by_place.or_else(|| {
        // The message about a refused value begins with its key.
        let name = error.message.split('`').nth(1)?;
        let value = table.get(name)?;
        let text = value.get_ref().as_str().map(str::to_owned);
        Some(Culprit { path: vec![name.to_owned()], span: value.span(), text })
    })
}

fn holds(outer: &Range<usize>, span: &Range<usize>) -> bool {
    !outer.is_empty() && outer.start <= span.start && span.end <= outer.end
}

/// Finds the keys that lead to a place.
///
/// A table with its own header does not enclose its values.
fn leads_to(span: &Range<usize>, table: &DeTable<'_>, path: &mut Vec<String>) -> bool {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if holds(&key.span(), span) || leads_into(span, value, path) || holds(&value.span(), span) {
            return true;
        }
        path.pop();
    }
    false
}

fn leads_into(span: &Range<usize>, value: &Spanned<DeValue<'_>>, path: &mut Vec<String>) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => leads_to(span, table, path),
        DeValue::Array(items) => {
            items.iter().any(|item| leads_into(span, item, path) || holds(&item.span(), span))
        }
        _ => false,
    }
}

/// The text at a place.
fn text_at<'v>(span: &Range<usize>, value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    match value.get_ref() {
        DeValue::String(text) => holds(&value.span(), span).then_some(text),
        DeValue::Table(table) => table.values().find_map(|value| text_at(span, value)),
        DeValue::Array(items) => items.iter().find_map(|item| text_at(span, item)),
        _ => None,
    }
}

/// The kind of address that a parser expects, taken from its error message.
///
/// The message is "invalid IPv4 address syntax" of the standard library, or that of
/// [`MacAddress`](netbricks_core::packet::MacAddress). Neither names the text that it found.
fn address(message: &str) -> Option<String> {
    let ip = message.strip_prefix("invalid IP").and_then(|rest| rest.strip_suffix(" syntax"));
    ip.map(|rest| format!("an IP{rest}"))
        .or_else(|| message.strip_prefix("a MAC address is ").map(|shape| format!("a MAC address: {shape}")))
}

/// Explains an error of `serde`, or of the settings' own check, in the operator's words.
fn explain(
    what: &str,
    error: &SettingsError,
    culprit: Option<&Culprit>,
    header: Range<usize>,
    keys: &[Key],
) -> Diagnostic {
    let message = error.message.trim();
    let Some(Culprit { path, span, text }) = culprit else {
        return Diagnostic::error(format!("{what}: {message}")).at(header, "");
    };
    let (key, span) = (path.first().map_or("", String::as_str), span.clone());
    match error.key {
        Some(KeyFault::Renamed { new }) => {
            return Diagnostic::error(format!("key `{key}` of {what} is called `{new}` now"))
                .at(span, format!("write `{new}`"));
        }
        Some(KeyFault::Unknown { .. }) => {
            let known = keys.iter().map(|known| known.name);
            return Diagnostic::error(format!("unknown key `{key}` for {what}")).meant(span, key, known);
        }
        Some(KeyFault::Missing { .. }) | None => {}
    }
    let kind = keys.iter().find(|known| known.name == key).map(|known| format!("expected: {}", known.kind));
    if let Some(lacks) = missing(message) {
        return Diagnostic::error(format!("`{}` of {what} lacks the key `{lacks}`", path.join(".")))
            .at(span, format!("add `{lacks} = …`"));
    }
    // In a table inside the key's value, serde's message lists the known names.
    if message.starts_with("unknown field")
        && let Some((found, outer)) = path.split_last().filter(|(_, outer)| !outer.is_empty())
    {
        let names = message.split('`').skip(1).step_by(2).skip(1);
        return Diagnostic::error(format!("unknown key `{found}` in `{}` of {what}", outer.join("."))).meant(
            span,
            found,
            names.collect::<Vec<_>>(),
        );
    }
    if let Some(rest) = message.strip_prefix("unknown variant `")
        && let Some((found, expected)) = rest.split_once("`, expected ")
    {
        let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        let diagnostic = Diagnostic::error(format!("`{key}` of {what} cannot be `{found}`"));
        return match netbricks_core::nearest(found, known.iter().copied()) {
            Some(near) => diagnostic.at(span, format!("did you mean `{near}`?")),
            None => diagnostic.at(span, format!("expected {expected}")),
        };
    }
    for (prefix, words) in
        [("invalid type: ", "has the wrong type"), ("invalid value: ", "has a value that does not fit")]
    {
        if let Some((found, expected)) =
            message.strip_prefix(prefix).and_then(|rest| rest.split_once(", expected "))
        {
            let number = found.strip_prefix("integer `").and_then(|rest| rest.split_once("` as i128"));
            let found = match (found, number) {
                ("map", _) => "a table",
                ("sequence", _) => "a list",
                // A number of more than 64 bits; the parser adds the type that it tried.
                (_, Some((number, _))) => &format!("`{number}`"),
                (found, _) => found,
            };
            let words = if number.is_some() { "is out of range" } else { words };
            return Diagnostic::error(format!("`{key}` of {what} {words}: found {found}"))
                .at(span, kind.unwrap_or_else(|| format!("expected {expected}")));
        }
    }
    if message == "wanted string or table" {
        // This is the parser's message for one of several names.
        return Diagnostic::error(format!("`{key}` of {what} has the wrong type"))
            .at(span, kind.unwrap_or_else(|| "expected text in quotes".into()));
    }
    if message.starts_with("data did not match any variant") {
        // The value has none of the shapes that this key allows.
        return Diagnostic::error(format!("`{key}` of {what} has a value that does not fit"))
            .at(span, kind.unwrap_or_default());
    }
    let message = message.strip_prefix(&format!("`{key}` ")).unwrap_or(message);
    if let (Some(expected), Some(text)) = (address(message), text) {
        return Diagnostic::error(format!("`{key}` of {what}: expected {expected}, found `{text}`"))
            .at(span, "");
    }
    // The message itself says which value was expected.
    Diagnostic::error(format!("`{key}` of {what}: {message}")).at(span, "")
}

#[cfg(test)]
mod tests;
