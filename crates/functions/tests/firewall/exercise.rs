//! The guarantees for every text of rules; ordinary tests and the fuzz target call it.

use netbricks_functions::firewall::{parse_rule, parse_rules};
use netbricks_mmb::import::{ImportOptions, Language, iptables, nft};

/// Reads a text as rules, and as other firewalls' rules to be translated.
///
/// # Panics
/// When a rule's own line gives another rule, when a place is none of the line, or when a translation is no rule.
pub fn rules(text: &str) {
    if let Ok(list) = parse_rules(text) {
        let again = parse_rules(&list.to_string()).unwrap_or_else(|wrong| panic!("{list}: {wrong}"));
        assert_eq!(again.to_string(), list.to_string());
    }
    for line in text.lines().take(8) {
        match parse_rule(line) {
            Ok(rule) => {
                let shown = rule.to_string();
                let again = parse_rule(&shown).unwrap_or_else(|error| panic!("{}", error.render(&shown)));
                assert_eq!(again, rule, "{shown}");
            }
            Err(error) => {
                assert!(line.get(error.span.clone()).is_some(), "{line:?} {error:?}");
                assert!(!error.message.is_empty() && !error.hint.is_empty(), "{line:?} {error:?}");
                assert!(error.render(line).contains('^'));
            }
        }
    }
    let options = ImportOptions {
        target: Language::Firewall,
        sets: ["known".to_owned()].into(),
        ..ImportOptions::default()
    };
    for imported in [iptables(text, &options), nft(text, &options)] {
        translated(&imported.lines, !imported.skipped.is_empty());
    }
}

/// Checks that a translation is a list of rules, with a set that is defined elsewhere.
fn translated(lines: &[String], skips: bool) {
    let known = ["set @known {192.0.2.1}".to_owned()];
    let text: Vec<&str> = known.iter().chain(lines).map(String::as_str).collect();
    if let Err(wrong) = parse_rules(&text.join("\n")) {
        // A set of ports may stand where addresses are expected, and the other way around.
        let is_of_kinds = |message: &str| message.contains("which is no") || message.contains("is no packet");
        // The definition of a set may have been skipped: then the list does not load before the user has defined it.
        let is_undefined = |message: &str| skips && message.contains("there is no set");
        for (number, error) in &wrong.errors {
            let message = &error.message;
            assert!(is_of_kinds(message) || is_undefined(message), "{error}: {}", text[number - 1]);
        }
    }
}
