//! Variables such as `$HOME_NET`, and lists with them.

use std::collections::BTreeMap;

use super::{Reading, shown, wrong};

/// The values of variables by name, without the `$`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Variables(BTreeMap<String, String>);

/// The kind of a list's items, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Addresses,
    Ports,
}

/// One item of a list.
pub(super) struct Term<'t> {
    pub(super) at: usize,
    pub(super) negated: bool,
    pub(super) text: &'t str,
}

/// The deepest nesting of lists and variables: a variable that names itself ends here.
const DEEPEST: usize = 16;
/// The most items of a list with all that its variables name.
const MOST: usize = 65_536;

impl Variables {
    /// Sets a variable.
    pub(in super::super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Checks the value of a variable: it must be a list of addresses, or one of ports.
    pub(in super::super) fn check(&self, name: &str) -> Result<(), String> {
        let Some(value) = self.0.get(name) else { return Err(format!("there is no variable `{name}`")) };
        let addresses = super::Addresses::read(value, 0, self);
        if addresses.is_ok() || super::Ports::read(value, 0, self).is_ok() {
            return Ok(());
        }
        let is_ports = name.contains("PORT");
        let problem = match (addresses, super::Ports::read(value, 0, self)) {
            (Err(super::Unread::Wrong(_, problem)), _) if !is_ports => problem,
            (_, Err(super::Unread::Wrong(_, problem))) => problem,
            _ => "is no list of addresses or ports".into(),
        };
        Err(format!("variable `{name}`: {problem}"))
    }

    /// Shows each item of a list to `see`; all have the place `at` where they come from a variable.
    pub(super) fn terms(
        &self,
        text: &str,
        at: usize,
        kind: Kind,
        see: &mut dyn FnMut(Term<'_>) -> Reading<()>,
    ) -> Reading<()> {
        let mut left = MOST;
        self.walk(text, at, true, kind, false, DEEPEST, &mut left, see)
    }

    #[expect(clippy::too_many_arguments, reason = "they are the walk's state, and each changes on its own")]
    fn walk(
        &self,
        text: &str,
        at: usize,
        moves: bool,
        kind: Kind,
        negated: bool,
        depth: usize,
        left: &mut usize,
        see: &mut dyn FnMut(Term<'_>) -> Reading<()>,
    ) -> Reading<()> {
        let Some(deeper) = depth.checked_sub(1) else {
            return wrong(at, "lists and variables are nested too deeply; does a variable name itself?");
        };
        let space = text.len() - text.trim_start().len();
        let at = if moves { at + space } else { at };
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('!') {
            return self.walk(rest, at + usize::from(moves), moves, kind, !negated, deeper, left, see);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let Some(inner) = inner.strip_suffix(']') else { return wrong(at, "this list has no `]`") };
            let mut from = 0;
            for item in split(inner) {
                let place = if moves { at + 1 + from } else { at };
                from += item.len() + 1;
                if item.trim().is_empty() {
                    return wrong(place, "an empty item in a list: take out a comma");
                }
                self.walk(item, place, moves, kind, negated, deeper, left, see)?;
            }
            return Ok(());
        }
        if let Some(name) = text.strip_prefix('$') {
            let Some(value) = self.0.get(name) else {
                let what = if kind == Kind::Ports { "ports" } else { "addresses" };
                return wrong(
                    at,
                    format!("the variable `${}` is not set: give its {what} in `variables`", shown(name)),
                );
            };
            return self.walk(value, at, false, kind, negated, deeper, left, see);
        }
        // A variable may hold several items without brackets.
        if text.contains(',') {
            return self.walk(&format!("[{text}]"), at, false, kind, negated, deeper, left, see);
        }
        *left =
            left.checked_sub(1).map_or_else(|| wrong(at, format!("a list of more than {MOST} items")), Ok)?;
        see(Term { at, negated, text })
    }
}

/// The items between commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, char) in text.char_indices() {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    items
}
