//! The language of `IPFilter` and `IPClassifier`, in which conditions on IP packets are written.

mod parser;
mod primitive;
pub(crate) mod words;

use crate::language::errors::Errors;
use crate::language::text;
use crate::router::At;
use crate::value::integer;

use super::program::Jump;
use super::program::expression::Expression;
use super::program::rules::Rule;
use parser::Parser;

/// Reads the [words](words::split) of a condition such as `tcp dst port 80`, or of a word for all packets.
///
/// `None` where it asks for nothing, as `transp` does, and after errors. These come behind `prefix`.
pub(crate) fn condition(words: &[String], at: At<'_>, errors: &Errors, prefix: &str) -> Option<Expression> {
    match words {
        [] => Some(Expression::constant(true)),
        [one] if matches!(&one[..], "-" | "any" | "all") => Some(Expression::constant(true)),
        _ => Parser::new(words, at, errors, prefix).condition(),
    }
}

/// Reads rules, each an action and a pattern. `None` after errors were told.
pub(crate) fn rules(arguments: &[String], outputs: usize, at: At<'_>, errors: &Errors) -> Option<Vec<Rule>> {
    let before = errors.count();
    let mut rules = Vec::with_capacity(arguments.len());
    for (number, argument) in arguments.iter().enumerate() {
        let words = words::split(&String::from_utf8_lossy(&text::unquote(argument)));
        let Some((action, words)) = words.split_first() else {
            errors.error(&format!("empty pattern {number}"));
            continue;
        };
        let prefix = format!("pattern {number}: ");
        let target = target(action, outputs, &|message| errors.error(&format!("{prefix}{message}")));
        rules.push((condition(words, at, errors, &prefix), target));
    }
    (errors.count() == before).then_some(rules)
}

/// A rule's action on packets: `allow`, `deny`, `drop` or the number of an output.
fn target(action: &str, outputs: usize, error: &dyn Fn(&str)) -> Jump {
    match action {
        "allow" => {
            if outputs == 0 {
                error("'allow' is meaningless, element has zero outputs");
            }
            Jump::Output(0)
        }
        "deny" | "drop" => Jump::Drop,
        _ => match integer(action).and_then(|number| i32::try_from(number).ok()) {
            Some(number) => match u32::try_from(number) {
                Ok(output) if (output as usize) < outputs => Jump::Output(output),
                _ => {
                    error(&format!("slot '{number}' out of range"));
                    Jump::Drop
                }
            },
            None => {
                error(&format!("unknown slot ID '{action}'"));
                Jump::Drop
            }
        },
    }
}
