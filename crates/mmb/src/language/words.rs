//! The words of the language that name no field, each with its summary.

/// Commands, by their first word.
pub(crate) const COMMANDS: &[(&str, &str)] = &[
    ("add", "adds a rule"),
    ("add-stateful", "adds a rule whose first match makes an entry for the connection"),
    ("add-stateless", "adds a rule, as `add` does"),
    ("list", "lists the rules"),
    ("delete", "deletes a rule"),
    ("del", "deletes a rule"),
    ("replace", "puts a rule in another's place"),
    ("move", "moves a rule before or after another"),
    ("flush", "deletes all rules"),
    ("show", "shows tables, connections, sets or fields"),
    ("define", "defines a set"),
    ("extend", "adds values to a set"),
    ("shrink", "takes values out of a set"),
    ("enable", "applies rules to packets of an interface"),
    ("disable", "leaves packets of an interface alone"),
    ("mode", "sets the order in which rules apply"),
    ("policy", "sets what becomes of packets that no rule drops or accepts"),
    ("explain", "explains which rules match a packet"),
    ("test", "runs the rules over a capture"),
    ("expect", "checks the verdict on a packet"),
    ("begin", "begins a batch of changes"),
    ("commit", "makes the changes of the batch"),
    ("abort", "forgets the batch"),
];

/// Targets, by their first word.
pub(crate) const TARGETS: &[(&str, &str)] = &[
    ("mod", "writes a field"),
    ("strip", "takes TCP options out"),
    ("add", "adds a TCP option"),
    ("drop", "drops packets, or a percentage of them"),
    ("accept", "lets packets pass"),
    ("lb", "shares connections among ways out"),
    ("map", "writes one value a connection"),
    ("shuffle", "writes a random value a connection"),
];

/// Tables, for `show`.
pub(crate) const TABLES: &[(&str, &str)] = &[
    ("tables", "the classifier's tables"),
    ("connections", "connections"),
    ("sets", "sets and their values"),
    ("fields", "the fields that rules can speak of"),
];

/// Comparisons.
pub(crate) const COMPARISONS: &[(&str, &str)] = &[
    ("==", "equal; may be left out"),
    ("!=", "not equal"),
    ("<", "less"),
    ("<=", "at most"),
    (">", "greater"),
    (">=", "at least"),
];

pub(crate) fn is_target(word: &str) -> bool {
    matches!(word, "mod" | "strip" | "add" | "drop" | "accept" | "lb" | "map" | "shuffle")
}

/// Whether a rule ends or goes on with this word, so that it is no value.
pub(crate) fn is_reserved(word: &str) -> bool {
    is_target(word) || matches!(word, "comment" | "stateful" | "stateless" | "before" | "after")
}

/// Whether it may name a rule or a set.
///
/// It has a letter or `_`, then letters, digits, `_`, `-` and `.`, 64 at most.
pub(crate) fn is_name(word: &str) -> bool {
    word.len() <= 64
        && word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}
