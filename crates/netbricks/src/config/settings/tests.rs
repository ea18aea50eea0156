//! What is said of a key inside a key's value, however the tables are written.

use netbricks_core::Refused;

use super::*;
use crate::diagnostic::Source;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    #[serde(default)]
    #[expect(dead_code, reason = "it is read to be refused")]
    rules: Vec<Rule>,
    #[serde(default)]
    #[expect(dead_code, reason = "as above")]
    limits: Option<Limits>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[expect(dead_code, reason = "as above")]
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

impl Settings for Outer {
    const KEYS: &'static [Key] = &[
        Key { name: "rules", kind: "list of rules", default: None, summary: "" },
        Key { name: "limits", kind: "table of limits", default: None, summary: "" },
    ];
    fn check(&self) -> Result<(), Refused> {
        Ok(())
    }
}

/// The first fault of a text: what, and where with which label.
fn fault(text: &str) -> (String, &str, String) {
    let mut diagnostics = Diagnostics::default();
    let table = DeTable::parse(text).unwrap();
    let table = Spanned::new(0..0, table.into_inner());
    assert!(configure("function `f`", &table, &mut diagnostics, Outer::KEYS, read::<Outer>).is_none());
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
        // Named like a key outside.
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
fn what_a_table_inside_lacks_is_said_of_that_table() {
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
