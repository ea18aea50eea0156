//! Properties of all lines.

use netbricks_mmb::language::{parse_command, parse_rule};
use proptest::prelude::*;

use super::exercise::{language, same};
use super::generate::{command, good_rule, is_surely_good, rule};
use super::lines::FORMS;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_rule_that_is_read_from_its_own_line_is_the_same(rule in rule()) {
        if let Ok(again) = parse_rule(&rule.to_string()) {
            prop_assert_eq!(&again, &rule, "{}", rule);
        }
    }

    #[test]
    fn a_good_rule_is_read_from_its_own_line(rule in good_rule()) {
        match parse_rule(&rule.to_string()) {
            Ok(again) => prop_assert_eq!(&again, &rule, "{}", rule),
            Err(error) => prop_assert!(!is_surely_good(&rule), "{}", error.render(&rule.to_string())),
        }
    }

    #[test]
    fn a_command_that_is_read_from_its_own_line_is_the_same(command in command()) {
        if let Ok(again) = parse_command(&command.to_string()) {
            prop_assert_eq!(again.as_ref(), Some(&command), "{}", command);
        }
    }

    #[test]
    fn random_texts_break_nothing(text in "\\PC{0,60}") {
        language(&text);
    }

    #[test]
    fn random_bytes_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        language(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_words_of_the_language_break_nothing(words in prop::collection::vec(prop::sample::select(words()), 0..12)) {
        language(&words.join(" "));
    }

    #[test]
    fn mutated_lines_break_nothing(
        line in prop::sample::select(FORMS),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "\\PC?", any::<bool>()), 1..4),
    ) {
        let mut characters: Vec<char> = line.0.chars().collect();
        for (at, with, is_kept) in edits {
            let at = at.index(characters.len() + 1);
            let end = if is_kept || at == characters.len() { at } else { at + 1 };
            characters.splice(at..end, with.chars());
        }
        language(&characters.into_iter().collect::<String>());
    }
}

fn words() -> Vec<&'static str> {
    FORMS.iter().flat_map(|(line, _)| line.split(' ')).filter(|word| !word.is_empty()).collect()
}

#[test]
fn commands_without_rules_are_read_from_their_own_lines() {
    for (line, _) in FORMS {
        same(&parse_command(line).unwrap().unwrap());
        language(line);
    }
}
