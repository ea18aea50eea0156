//! The guarantees for every text that is imported; property tests and the fuzz target call it.

use netbricks_mmb::import::{ImportOptions, Imported, iptables, nft};
use netbricks_mmb::language::parse_command;

/// Imports a text by both readers.
///
/// # Panics
/// When a line that they give is no command, or when a rule is named that the text does not have.
pub fn import(text: &str) {
    let options = ImportOptions {
        addresses: [("eth0".to_owned(), [192, 0, 2, 1].into())].into(),
        sets: ["known".to_owned()].into(),
        ..ImportOptions::default()
    };
    check(text, &iptables(text, &options));
    check(text, &nft(text, &options));
    check(text, &nft(text, &ImportOptions { mtu: Some(1492), ..ImportOptions::default() }));
}

fn check(text: &str, imported: &Imported) {
    for line in &imported.lines {
        assert!(matches!(parse_command(line), Ok(Some(_))), "{line:?}: {:?}", parse_command(line));
    }
    let lines = text.lines().count().max(1);
    for skipped in &imported.skipped {
        assert!((1..=lines).contains(&skipped.line), "{skipped:?}");
        assert!(!skipped.why.is_empty(), "{skipped:?}");
    }
}
