//! Colours of a line that is being typed: known words, unknown ones, and options.

use std::sync::{Arc, Mutex, PoisonError};

use reedline::{Color, Highlighter, StyledText};

use super::super::live::{Names, Wanted, wanted};
use super::words::{places, unquoted};

/// The meaning of a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A command, or a name of what runs.
    Known,
    /// A word where only commands or names of what runs may stand, and it is none.
    Unknown,
    Option,
    /// Anything else.
    Plain,
}

/// The pieces of a line with their meaning; together they are the line.
pub(super) fn pieces(line: &str, tree: &clap::Command, names: &Names) -> Vec<(Meaning, String)> {
    let mut pieces = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut end = 0;
    for place in places(line) {
        if place.start > end {
            pieces.push((Meaning::Plain, line[end..place.start].to_owned()));
        }
        end = place.end;
        words.push(unquoted(&line[place.clone()]));
        pieces.push((meaning(&words, tree, names), line[place].to_owned()));
    }
    if end < line.len() {
        pieces.push((Meaning::Plain, line[end..].to_owned()));
    }
    pieces
}

/// The meaning of the last of these words.
fn meaning(words: &[String], tree: &clap::Command, names: &Names) -> Meaning {
    let Some(word) = words.last() else { return Meaning::Plain };
    let known = match wanted(tree, words) {
        Wanted::One(_) if word.len() > 1 && word.starts_with('-') => return Meaning::Option,
        Wanted::One(candidates) => candidates,
        // Without an answer from the dataplane no name is known, and none is wrong.
        Wanted::Live(kind) => match names.of(kind) {
            none if none.is_empty() => return Meaning::Plain,
            known => known,
        },
        Wanted::File | Wanted::Anything => return Meaning::Plain,
    };
    let is_known = known.iter().any(|candidate| candidate.word == *word)
        || words.len() == 1 && ["exit", "quit", "help", "netbricks"].contains(&word.as_str());
    if is_known { Meaning::Known } else { Meaning::Unknown }
}

/// The colours of [`pieces`].
pub(super) struct Colors {
    pub(super) tree: clap::Command,
    pub(super) names: Arc<Mutex<Names>>,
}

impl Highlighter for Colors {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = StyledText::new();
        for (meaning, piece) in pieces(line, &self.tree, &names) {
            let style = match meaning {
                Meaning::Known => Color::Green.bold(),
                Meaning::Unknown => Color::Red.normal(),
                Meaning::Option => Color::Blue.normal(),
                Meaning::Plain => Color::Default.normal(),
            };
            text.push((style, piece));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::super::arguments::CommandLine;
    use super::super::super::live::canned::Canned;
    use super::Meaning::{Known, Option, Plain, Unknown};
    use super::*;

    fn meanings(line: &str, names: &Names) -> Vec<Meaning> {
        let mut tree = CommandLine::command();
        tree.build();
        let pieces = pieces(line, &tree, names);
        assert_eq!(pieces.iter().map(|(_, piece)| piece.as_str()).collect::<String>(), line);
        pieces.into_iter().filter(|(_, piece)| !piece.trim().is_empty()).map(|(meaning, _)| meaning).collect()
    }

    #[test]
    fn known_and_unknown_words_differ() {
        let names = Names::all(&Canned::default()).unwrap();
        for (line, expected) in [
            ("get flows.flows.top 10 --worker 1", vec![Known, Known, Plain, Option, Known]),
            (" get  flows.clear", vec![Known, Unknown]),
            ("set 'flows.clear'", vec![Known, Known]),
            ("gett x", vec![Unknown, Unknown]),
            ("show handlers flow ", vec![Known, Known, Unknown]),
            ("apply edge.toml --dry-run", vec![Known, Plain, Option]),
            ("exit", vec![Known]),
        ] {
            assert_eq!(meanings(line, &names), expected, "{line}");
        }
        // No dataplane answered: no name is wrong.
        assert_eq!(meanings("get x.y", &Names::default()), [Known, Plain]);
    }
}
