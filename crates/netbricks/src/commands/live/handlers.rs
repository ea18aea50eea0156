//! `get` and `set`: calls of functions' handlers.

use std::io::Read;

use netbricks_control::api::{Answers, Code, HandlerAnswer, Problem};

use super::arguments::{GetArguments, SetArguments};
use super::changes::NOTHING_CHANGED;
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::visible;
use crate::report::{Align, Table};

/// The most bytes of a value.
const MOST: u64 = 512 << 20;

pub(super) fn get(api: &dyn Api, output: &mut Output<'_>, arguments: &GetArguments) -> Result<(), Trouble> {
    let (function, handler) = parts(&arguments.handler)?;
    let answers = api.read(function, handler, &arguments.argument.join(" "), arguments.worker);
    let answers = answers.map_err(|problem| other_kind(problem, "set", &arguments.handler))?;
    Ok(output.show(arguments.plain.json, &answers, text)?)
}

pub(super) fn set(api: &dyn Api, output: &mut Output<'_>, arguments: &SetArguments) -> Result<(), Trouble> {
    let (function, handler) = parts(&arguments.handler)?;
    let value = value(&arguments.value)?;
    let answers = api.write(function, handler, &value, arguments.worker);
    let answers = answers.map_err(|problem| other_kind(problem, "get", &arguments.handler))?;
    if arguments.plain.json {
        return Ok(output.json(&answers)?);
    }
    if arguments.conditions.dry_run {
        return Ok(output.print(NOTHING_CHANGED)?);
    }
    // Most handlers that change something have nothing to say.
    let speaks = answers.answers.iter().any(|answer| !answer.value.trim().is_empty());
    if speaks {
        output.print(&text(&answers))?;
    }
    Ok(())
}

/// The same problem; where the handler is of the other kind, its remedy is the other command.
fn other_kind(problem: Problem, command: &str, handler: &str) -> Problem {
    match problem.code {
        Code::WrongKind => problem.help(format!("call it with `netbricks {command} {handler}`")),
        _ => problem,
    }
}

/// The function and the handler in `FUNCTION.HANDLER`. A function's name has no dot, a handler's may have.
fn parts(name: &str) -> Result<(&str, &str), Failure> {
    name.split_once('.').filter(|(function, handler)| !function.is_empty() && !handler.is_empty()).ok_or_else(
        || {
            Failure::Usage(format!(
                "`{name}` names no handler: expected FUNCTION.HANDLER; `netbricks show handlers` lists them"
            ))
        },
    )
}

/// The value that the words on the command line stand for.
fn value(words: &[String]) -> Result<String, Failure> {
    let [word] = words else { return Ok(words.join(" ")) };
    let (bytes, place) = match word.strip_prefix('@') {
        None if word == "-" => (read(&mut std::io::stdin().lock()), "the standard input"),
        None => return Ok(word.clone()),
        Some(path) => (std::fs::File::open(path).and_then(|mut file| read(&mut file)), path),
    };
    let bytes = bytes.map_err(|error| Failure::Usage(format!("`{place}` cannot be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("`{place}` is not UTF-8")))
}

pub(super) fn read(from: &mut dyn Read) -> std::io::Result<Vec<u8>> {
    read_at_most(from, MOST)
}

/// All bytes; an error where they are more than `most`.
pub(super) fn read_at_most(from: &mut dyn Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!("it has more than {} MiB", most >> 20)));
    }
    Ok(bytes)
}

/// One answer as it is; several with their workers and nodes.
fn text(answers: &Answers) -> String {
    let answers = answers.answers.as_slice();
    if let [answer] = answers {
        return lines(&answer.value).map(|line| line + "\n").collect();
    }
    let several_nodes = answers.iter().any(|answer| answer.node != answers[0].node);
    if answers.iter().any(|answer| lines(&answer.value).count() > 1) {
        let blocks = answers.iter().map(|answer| {
            let lines: String = lines(&answer.value).map(|line| line + "\n").collect();
            format!("{}:\n{lines}", place(answer, several_nodes))
        });
        return blocks.collect::<Vec<_>>().join("\n");
    }
    let mut columns = vec![("worker", Align::Right)];
    columns.extend(several_nodes.then_some(("node", Align::Left)));
    columns.push(("answer", Align::Left));
    let mut table = Table::new(columns);
    for answer in answers {
        let mut row = vec![answer.worker.map_or_else(|| "all".into(), |worker| worker.to_string())];
        row.extend(several_nodes.then(|| answer.node.clone()));
        row.extend(lines(&answer.value).next());
        table.row(row);
    }
    table.render()
}

fn place(answer: &HandlerAnswer, node: bool) -> String {
    let node = if node { format!(", {}", visible(&answer.node)) } else { String::new() };
    match answer.worker {
        None => format!("all workers{node}"),
        Some(worker) => format!("worker {worker}{node}"),
    }
}

/// The lines of an answer, without control characters but for tabs.
fn lines(value: &str) -> impl Iterator<Item = String> + '_ {
    value.lines().map(|line| line.split('\t').map(visible).collect::<Vec<_>>().join("\t"))
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    fn answers(values: &[(Option<usize>, &str, &str)]) -> Answers {
        let answer = |&(worker, node, value): &(Option<usize>, &str, &str)| HandlerAnswer {
            worker,
            node: node.into(),
            value: value.into(),
        };
        Answers {
            function: "nat".into(),
            handler: "mappings.occupancy".into(),
            answers: values.iter().map(answer).collect(),
        }
    }

    #[test]
    fn one_answer_is_printed_as_it_is() {
        assert_eq!(text(&answers(&[(None, "nat", "3 100\n")])), "3 100\n");
        assert_eq!(text(&answers(&[(Some(0), "nat", "a\tb\n\u{1b}[2Jc")])), "a\tb\n\u{fffd}[2Jc\n");
        assert_eq!(text(&answers(&[(None, "nat", "")])), "");
    }

    #[test]
    fn several_answers_say_whose_they_are() {
        assert_eq!(
            text(&answers(&[(Some(0), "nat", "3 100"), (Some(1), "nat", "7 100")])),
            "worker  answer\n     0  3 100\n     1  7 100\n"
        );
        assert_eq!(
            text(&answers(&[(Some(0), "nat@a", "3"), (Some(0), "nat@b", "4")])),
            "worker  node   answer\n     0  nat@a  3\n     0  nat@b  4\n"
        );
        assert_eq!(
            text(&answers(&[(Some(0), "nat@a", "x\ny"), (Some(1), "nat@b", "z")])),
            "worker 0, nat@a:\nx\ny\n\nworker 1, nat@b:\nz\n"
        );
    }

    #[test]
    fn the_words_behind_the_handler_are_its_argument() {
        let api = Canned::default();
        let told = ran(&api, &["get", "flows.flows.occupancy", "--worker", "1", "--json"]);
        assert_eq!(told.code, 0, "{}", told.err);
        serde_json::from_str::<Answers>(&told.out).unwrap();
        ran(&api, &["get", "routes.lookup", "10.1.2.3"]);
        let told = ran(&api, &["set", "routes.add", "10.0.0.0/8", "3"]);
        assert_eq!((told.code, told.out.as_str()), (0, ""));
        ran(&api, &["set", "flows.clear"]);
        ran(&api, &["set", "rate.rate", "-5", "--worker", "0"]);
        assert_eq!(
            api.asked(),
            [
                "read flows flows.occupancy  Some(1)",
                "read routes lookup 10.1.2.3 None",
                "write routes add 10.0.0.0/8 3 None",
                "write flows clear  None",
                "write rate rate -5 Some(0)",
            ]
        );
    }

    #[test]
    fn a_value_can_be_that_of_a_file() {
        let path = std::env::temp_dir().join(format!("netbricks-value-{}", std::process::id()));
        std::fs::write(&path, "10.0.0.0/8 3\n10.1.0.0/16 4\n").unwrap();
        let api = Canned::default();
        let told = ran(&api, &["set", "routes.load", &format!("@{}", path.display())]);
        assert_eq!(told.code, 0, "{}", told.err);
        assert_eq!(api.asked(), ["write routes load 10.0.0.0/8 3\n10.1.0.0/16 4\n None"]);
        std::fs::remove_file(&path).unwrap();
        let told = ran(&api, &["set", "routes.load", &format!("@{}", path.display())]);
        assert_eq!(told.code, 2, "{}", told.err);
    }

    #[test]
    fn a_handler_of_the_other_kind_names_the_other_command() {
        let problem = Problem::new(Code::WrongKind, "`clear` of `flows` changes state").help("use PUT");
        let api = Canned { refusal: Some(problem), ..Canned::default() };
        let told = ran(&api, &["get", "flows.clear"]);
        assert_eq!(told.code, 1);
        assert!(told.err.ends_with("\n = call it with `netbricks set flows.clear`\n"), "{}", told.err);
    }

    #[test]
    fn what_is_too_long_is_an_error_and_is_not_cut() {
        assert_eq!(read_at_most(&mut &b"1234"[..], 4).unwrap(), b"1234");
        assert!(read_at_most(&mut &b"12345"[..], 4).is_err());
    }

    #[test]
    fn a_name_without_a_dot_is_no_handler() {
        let told = ran(&Canned::default(), &["get", "flows"]);
        assert_eq!(told.code, 2);
        assert!(told.err.contains("expected FUNCTION.HANDLER"), "{}", told.err);
    }
}
