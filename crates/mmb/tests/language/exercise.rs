//! The guarantees for every line; property tests and the fuzz target call it.

use netbricks_mmb::complete::{complete, highlight};
use netbricks_mmb::language::{Context, LineError, parse_command, parse_file, parse_rule};
use netbricks_mmb::rule::Command;

/// Reads a text in every way.
///
/// # Panics
/// When a command's own line gives another command, or when a place is none of the line.
pub fn language(text: &str) {
    check(text, parse_rule(text).err());
    if let Ok(rule) = parse_rule(text) {
        assert_eq!(parse_rule(&rule.to_string()).as_ref(), Ok(&rule), "{rule}");
    }
    let _ = parse_file(text);
    for line in text.lines().take(4) {
        match parse_command(line) {
            Ok(Some(command)) => same(&command),
            Ok(None) => {}
            Err(error) => check(line, Some(error)),
        }
        let mut end = 0;
        for (range, _) in highlight(line) {
            assert!(end <= range.start && line.get(range.clone()).is_some(), "{line:?} {range:?}");
            end = range.end;
        }
        for cursor in [0, 4, line.len() / 2, line.len().saturating_sub(3), line.len()] {
            for candidate in complete(line, cursor, &Context::default()) {
                assert!(!candidate.text.is_empty());
            }
        }
    }
}

/// The command's own line gives the same command.
pub fn same(command: &Command) {
    let shown = command.to_string();
    match parse_command(&shown) {
        Ok(again) => assert_eq!(again.as_ref(), Some(command), "{shown}"),
        Err(error) => panic!("{}", error.render(&shown)),
    }
}

fn check(line: &str, error: Option<LineError>) {
    if let Some(error) = error {
        assert!(line.get(error.span.clone()).is_some(), "{line:?} {error:?}");
        assert!(!error.message.is_empty() && !error.hint.is_empty(), "{line:?} {error:?}");
        assert!(error.render(line).contains('^'));
    }
}
