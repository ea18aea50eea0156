//! Tests of faults in a key inside another key's value, for every way to write the tables.

use netbricks_core::{InvalidSetting, Keys, RenamedKey, Settings, read_settings};

use super::*;
use crate::diagnostic::Source;

netbricks_core::settings! {
    /// With tables in its values.
    #[derive(Debug)]
    struct Outer {
        /// Of each packet.
        rules: Vec<Rule> = [], "list of rules";
        /// Of all.
        limits: Option<Limits> = unset, "table of limits";
    }
}

impl Settings for Outer {}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[expect(dead_code, reason = "it is read to be refused")]
    port: u16,
    #[serde(default)]
    #[expect(dead_code, reason = "as above")]
    limits: Option<Limits>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    #[expect(dead_code, reason = "as above")]
    rate: u32,
    #[serde(default)]
    #[expect(dead_code, reason = "as above")]
    burst: u32,
}

/// The first fault of a text: its message, its place and its label.
fn fault(text: &str) -> (String, &str, String) {
    let mut diagnostics = Diagnostics::default();
    let table = DeTable::parse(text).unwrap();
    let table = Spanned::new(0..0, table.into_inner());
    assert!(
        configure("function `f`", &table, &mut diagnostics, Outer::KEYS, |table| read_settings::<Outer>(
            table, None
        ))
        .is_none()
    );
    let faults = diagnostics.sorted();
    assert_eq!(faults.len(), 1, "{}", diagnostics.render(&Source::new("f", text), false));
    let label = &faults[0].labels[0];
    (faults[0].message.clone(), &text[label.span.clone()], label.text.clone())
}

#[test]
fn unknown_keys_are_found_in_whatever_table_they_are() {
    let unknown = |key: &str, place: &str| format!("unknown key `{key}` in `{place}` of function `f`");
    for (text, found, place, meant) in [
        ("rules = [{ port = 1 }, { prt = 1 }]", "prt", "rules", "port"),
        ("[[rules]]\nport = 1\n[[rules]]\nprt = 1", "prt", "rules", "port"),
        // It has the same name as a key outside.
        ("[[rules]]\nport = 1\nrules = 3", "rules", "rules", ""),
        ("rules = [{ rules = 1, port = 1 }]", "rules", "rules", ""),
        ("[limits]\nrate = 1\nbrust = 2", "brust", "limits", "burst"),
        ("limits.rate = 1\nlimits.brust = 2", "brust", "limits", "burst"),
        ("[[rules]]\nport = 1\n[rules.limits]\nrate = 1\nrat = 3", "rat", "rules.limits", "rate"),
        ("rules = [{ port = 1, limits = { rate = 1, rat = 1 } }]", "rat", "rules.limits", "rate"),
    ] {
        let label = if meant.is_empty() { String::new() } else { format!("did you mean `{meant}`?") };
        assert_eq!(fault(text), (unknown(found, place), found, label), "{text}");
    }
    let (what, at, label) = fault("[ruls]\nport = 1");
    assert_eq!((what.as_str(), at), ("unknown key `ruls` for function `f`", "ruls"));
    assert_eq!(label, "did you mean `rules`?");
}

#[test]
fn a_key_missing_in_an_inner_table_is_reported_for_that_table() {
    for (text, place, at) in [
        ("rules = [{ limits = { rate = 1 } }]", "rules", "{ limits = { rate = 1 } }"),
        ("[[rules]]\nport = 1\n[rules.limits]\nburst = 3", "rules.limits", "[rules.limits]"),
        ("limits = {}", "limits", "{}"),
    ] {
        let (lacks, table) = if place == "rules" { ("port", place) } else { ("rate", place) };
        let (what, found, label) = fault(text);
        assert_eq!(what, format!("`{table}` of function `f` lacks the key `{lacks}`"), "{text}");
        assert_eq!((found, label), (at, format!("add `{lacks} = …`")), "{text}");
    }
}

netbricks_core::settings! {
    /// Two required keys, of which the second depends on the first.
    #[derive(Debug)]
    struct Pair {
        /// At least.
        least: u32 = required, "whole number";
        /// At most.
        most: u32 = required, "whole number";
        /// Two or more.
        names: Vec<char> = [], "list of letters";
        /// This,
        either: Option<u32> = unset, "whole number";
        /// or that.
        or: Option<u32> = unset, "whole number";
    }
}

impl Settings for Pair {
    const RENAMED: &'static [RenamedKey] =
        &[RenamedKey { old: "minimum", new: "least" }, RenamedKey { old: "labels", new: "names" }];
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem: &str| Err(InvalidSetting { key, problem: problem.into() });
        if self.most < self.least {
            return refused("most", "must be `least` or more");
        }
        if self.most > 100 {
            return refused("most", "must be 1 to 100");
        }
        if self.names.len() < 2 {
            return refused("names", "must be two at least");
        }
        match (self.either, self.or) {
            (None, None) => refused("either", "must be given, or `or`"),
            _ => Ok(()),
        }
    }
}

/// The places and messages of all faults of a table; empty if there is none.
fn faults(text: &str) -> Vec<(String, String)> {
    let mut diagnostics = Diagnostics::default();
    let table = DeTable::parse(text).unwrap().into_inner();
    // As if a header stood before it.
    let header = text.len()..text.len() + 2;
    let table = Spanned::new(header.clone(), table);
    let read = configure("function `f`", &table, &mut diagnostics, Pair::KEYS, |table| {
        read_settings::<Pair>(table, None)
    });
    assert_eq!(read.is_some(), diagnostics.is_empty(), "{text}");
    let place = |found: &Diagnostic| {
        let span = found.labels[0].span.clone();
        if span == header { "header".to_owned() } else { text[span].to_owned() }
    };
    diagnostics.sorted().into_iter().map(|found| (place(found), found.message.clone())).collect()
}

#[test]
fn all_faults_of_a_table_are_told_and_none_that_follows_from_another() {
    for (text, places) in [
        ("least = 1\nmost = 2\nnames = ['a', 'b']\nor = 1", &[][..]),
        // Each wrong item is reported, but not that there are too few good ones.
        ("least = 1\nmost = 2\nnames = ['a', 'bc', 3, 'd', 'ef']\nor = 1", &["'bc'", "3", "'ef'"]),
        ("least = 1\nmost = 2\nnames = ['bc']\nor = 1", &["'bc'"]),
        // Faults of other keys are reported beside a required key that is wrong.
        ("least = 'x'\nmost = 200\nnames = []\nor = 1", &["'x'", "200", "[]"]),
        ("most = 200\nnames = []\nor = 1", &["200", "[]", "header"]),
        ("names = []\nor = 1", &["[]", "header", "header"]),
        // If `least` is wrong, the valid values of `most` are unknown.
        ("least = 'x'\nmost = 0\nnames = ['a', 'b']\nor = 1", &["'x'"]),
        // A key with a wrong name is not reported as missing, too, and neither is a key that depends on it.
        ("laest = 1\nmost = 0\nnames = ['a', 'b']\nor = 1", &["laest"]),
        ("least = 1\nmost = 2\nnames = ['a', 'b']\neither = 'x'", &["'x'"]),
        ("least = 1\nmost = 2\nnames = ['a', 'b']\nor = 'x'", &["'x'"]),
        // An error of the whole table is reported if nothing that it depends on is wrong.
        ("least = 1\nmost = 200\nnames = ['a', 'b']", &["200", "header"]),
    ] {
        let found = faults(text);
        let at: Vec<_> = found.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(at, places, "{text}\n{found:?}");
    }
}

#[test]
fn more_faults_than_are_looked_for_are_told_as_such() {
    let shown = |count: usize| {
        let mut diagnostics = Diagnostics::default();
        let text = format!("least = 1\nmost = 2\nor = 1\nnames = [{}]", "'xy', ".repeat(count));
        let table = DeTable::parse(&text).unwrap();
        configure("function `f`", &table, &mut diagnostics, Pair::KEYS, |table| {
            read_settings::<Pair>(table, None)
        });
        diagnostics.render(&Source::new("f", &text), false).lines().last().unwrap().to_owned()
    };
    assert_eq!(shown(30), "… and 10 more");
    assert_eq!(shown(1_000), format!("… and at least {} more", ATTEMPTS - crate::diagnostic::SHOWN));
}

#[test]
fn a_renamed_key_is_refused_with_its_new_name_and_every_other_fault_is_told_too() {
    let rest = "most = 2\nnames = ['a', 'b']\nor = 1";
    let found = faults(&format!("minimum = 1\n{rest}"));
    let told = "key `minimum` of function `f` is called `least` now";
    assert_eq!(found, [("minimum".into(), told.to_owned())], "and `least` is not missing too");
    // The same holds beside the new key, with a value of any type, and beside other faults.
    let found = faults(&format!("minimum = [1]\nleast = 1\n{rest}"));
    assert_eq!(found, [("minimum".into(), told.to_owned())]);
    let found = faults("minimum = 1\nlabels = 3\nmost = 200\nor = 1\nunknown = 2");
    let at: Vec<_> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(at, ["minimum", "labels", "200", "unknown"], "{found:?}");
}
