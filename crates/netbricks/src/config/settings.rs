//! Settings read into what the code needs, with every wrong key of a table reported and not only the first.

use std::ops::Range;

use netbricks_core::{Key, Settings, SettingsError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// Wrong keys of one table that are looked for; a table has fewer keys.
const ATTEMPTS: usize = 32;

/// Applies `apply` to a table. When a key does not do, it is reported and taken out, and the rest is tried again.
pub(crate) fn configure<'t, T>(
    what: &str,
    settings: &Spanned<DeTable<'t>>,
    diagnostics: &mut Diagnostics,
    keys: &[Key],
    apply: impl Fn(Spanned<DeTable<'t>>) -> Result<T, SettingsError>,
) -> Option<T> {
    let mut table = settings.clone();
    let mut removed: Vec<String> = Vec::new();
    for _ in 0..ATTEMPTS {
        let error = match apply(table.clone()) {
            Ok(value) if removed.is_empty() => return Some(value),
            Ok(_) => return None,
            Err(error) => error,
        };
        let culprit = culprit(&error, table.get_ref());
        if let (Some(key), None) = (missing(&error.message), &culprit) {
            if !removed.iter().any(|name| name == key) {
                diagnostics.push(lacking(what, key, settings.span(), keys));
            }
            return None;
        }
        // What is said of the whole once a key was taken out may be nobody's fault but ours.
        if culprit.is_none() && !removed.is_empty() {
            return None;
        }
        diagnostics.push(explain(what, &error, culprit.as_ref(), settings.span(), keys));
        let name = culprit?.key().to_owned();
        table.get_mut().remove(name.as_str());
        removed.push(name);
    }
    None
}

/// Reads settings that belong to the command itself.
pub(crate) fn read<S: Settings>(table: Spanned<DeTable<'_>>) -> Result<S, SettingsError> {
    let spans: Vec<(String, Range<usize>)> =
        table.get_ref().iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
    let settings = S::deserialize(toml::de::Deserializer::from(table)).map_err(|error| SettingsError {
        message: error.message().to_owned(),
        span: error.span(),
        suggestion: None,
    })?;
    settings.check().map_err(|refused| SettingsError {
        span: spans.iter().find(|(key, _)| key == refused.key).map(|(_, span)| span.clone()),
        message: refused.to_string(),
        suggestion: None,
    })?;
    Ok(settings)
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
    /// The keys that lead there, the table's own first: the last has a wrong name or value, or lacks something.
    path: Vec<String>,
    /// The error's place.
    span: Range<usize>,
    /// What is written there, where it is text.
    text: Option<String>,
}

impl Culprit {
    /// The table's key.
    fn key(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }
}

/// The key in whose name or value an error is.
fn culprit(error: &SettingsError, table: &DeTable<'_>) -> Option<Culprit> {
    let by_place = error.span.as_ref().and_then(|span| {
        let mut path = Vec::new();
        let text = table.values().find_map(|value| text_at(span, value)).map(str::to_owned);
        leads_to(span, table, &mut path).then(|| Culprit { path, span: span.clone(), text })
    });
    by_place.or_else(|| {
        // A refused value names its key in front.
        let name = error.message.split('`').nth(1)?;
        let value = table.get(name)?;
        let text = value.get_ref().as_str().map(str::to_owned);
        Some(Culprit { path: vec![name.to_owned()], span: value.span(), text })
    })
}

fn holds(outer: &Range<usize>, span: &Range<usize>) -> bool {
    !outer.is_empty() && outer.start <= span.start && span.end <= outer.end
}

/// Finds the keys that lead to a place. A table with a header of its own does not enclose what it holds.
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

/// What a parser of addresses expects, by its message: "invalid IPv4 address syntax" of the standard library, or that of
/// [`MacAddress`](netbricks_core::packet::MacAddress). Neither says what it found.
fn address(message: &str) -> Option<String> {
    let ip = message.strip_prefix("invalid IP").and_then(|rest| rest.strip_suffix(" syntax"));
    ip.map(|rest| format!("an IP{rest}"))
        .or_else(|| message.strip_prefix("a MAC address is ").map(|shape| format!("a MAC address: {shape}")))
}

/// An error of `serde` or of the settings' own check, in words for whoever wrote the file.
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
    let kind = keys.iter().find(|known| known.name == key).map(|known| format!("expected: {}", known.kind));
    if let Some(lacks) = missing(message) {
        return Diagnostic::error(format!("`{}` of {what} lacks the key `{lacks}`", path.join(".")))
            .at(span, format!("add `{lacks} = …`"));
    }
    if message.starts_with("unknown field") {
        // In a table inside the key's value serde lists what there is.
        if let Some((found, outer)) = path.split_last().filter(|(_, outer)| !outer.is_empty()) {
            let names = message.split('`').skip(1).step_by(2).skip(1);
            return Diagnostic::error(format!("unknown key `{found}` in `{}` of {what}", outer.join(".")))
                .meant(span, found, names.collect::<Vec<_>>());
        }
        return Diagnostic::error(format!("unknown key `{key}` for {what}")).meant(
            span,
            key,
            keys.iter().map(|known| known.name),
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
            let found = match found {
                "map" => "a table",
                "sequence" => "a list",
                found => found,
            };
            return Diagnostic::error(format!("`{key}` of {what} {words}: found {found}"))
                .at(span, kind.unwrap_or_else(|| format!("expected {expected}")));
        }
    }
    if message.starts_with("data did not match any variant") {
        // Of several shapes that a value may have it has none.
        return Diagnostic::error(format!("`{key}` of {what} has a value that does not fit"))
            .at(span, kind.unwrap_or_default());
    }
    let message = message.strip_prefix(&format!("`{key}` ")).unwrap_or(message);
    if let (Some(expected), Some(text)) = (address(message), text) {
        return Diagnostic::error(format!("`{key}` of {what}: expected {expected}, found `{text}`"))
            .at(span, "");
    }
    let diagnostic = Diagnostic::error(format!("`{key}` of {what}: {message}"));
    match &error.suggestion {
        Some(name) => diagnostic.at(span, format!("did you mean `{name}`?")),
        // The message says what was expected.
        None => diagnostic.at(span, ""),
    }
}

#[cfg(test)]
mod tests;
