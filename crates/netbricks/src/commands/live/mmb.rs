//! `mmb`: commands of the rule language, to a running function or to a capture.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use netbricks_control::api::Answers;
use netbricks_mmb::rule::{Atom, Command, Rule, Target, Value};

use super::arguments::MmbArguments;
use super::handlers::read;
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::visible;
use crate::report::{Align, Table};

/// A rule as the handler `list` tells it.
#[derive(serde::Deserialize)]
struct Row {
    number: usize,
    name: Option<String>,
    rule: String,
    packets: u64,
    bytes: u64,
    replies: u64,
    not_applied: u64,
    last_ns: Option<u64>,
}

#[derive(serde::Deserialize)]
struct Listed {
    mode: String,
    policy: String,
    rules: Vec<Row>,
}

pub(super) fn mmb(api: &dyn Api, output: &mut Output<'_>, arguments: &MmbArguments) -> Result<(), Trouble> {
    let function = function(api, arguments)?;
    let text = text(&arguments.words)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.strip_prefix(&["mmb"]).unwrap_or(&words);
    match words {
        ["list"] => list(&api.read(&function, "list", "", None)?, output, arguments.plain.json),
        ["show", "connections", "verbose"] => all_connections(api, &function, output, arguments.plain.json),
        ["show", "connections"] => {
            answered(&api.read(&function, "connections", "100", None)?, output, arguments.plain.json)
        }
        ["show" | "explain" | "expect", ..] => {
            answered(&api.read(&function, "ask", &text, None)?, output, arguments.plain.json)
        }
        _ => answered(&api.write(&function, "run", &text, None)?, output, arguments.plain.json),
    }
}

/// Commands of a session that wait for `commit`.
#[derive(Debug, Default)]
pub(crate) struct Batch(Option<Held>);

#[derive(Debug)]
struct Held {
    function: String,
    /// Each command with a line's end.
    text: String,
}

impl Held {
    fn lines(&self) -> String {
        match self.text.lines().count() {
            1 => "1 line".into(),
            lines => format!("{lines} lines"),
        }
    }
}

impl Batch {
    /// The commands that were typed since `begin`, if there was one: what a session's end says of them.
    pub(crate) fn left(&self) -> Option<String> {
        let held = self.0.as_ref()?;
        Some(format!(
            "the batch for `{}` was not committed: nothing of its {} is done",
            held.function,
            held.lines()
        ))
    }

    /// As [`mmb`], in a session: from `begin` to `commit`, commands that change rules or expect are held.
    ///
    /// Each is checked with those before it, and is not held where it is wrong.
    pub(crate) fn mmb(
        &mut self,
        api: &dyn Api,
        output: &mut Output<'_>,
        arguments: &MmbArguments,
    ) -> Result<(), Trouble> {
        let text = text(&arguments.words)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.strip_prefix(&["mmb"]).unwrap_or(&words);
        let usage = |text: &str| Err(Failure::Usage(text.into()).into());
        let Some(held) = &mut self.0 else {
            return match words {
                ["begin"] => {
                    self.0 = Some(Held { function: function(api, arguments)?, text: String::new() });
                    Ok(output.print("the next commands are held until `mmb commit` or `mmb abort`\n")?)
                }
                ["commit" | "abort"] => usage("no batch has begun: type `mmb begin` before its commands"),
                _ => mmb(api, output, arguments),
            };
        };
        if arguments.function.as_ref().is_some_and(|name| *name != held.function) {
            let text = format!("the batch is for `{}`: `mmb commit` or `mmb abort` ends it", held.function);
            return usage(&text);
        }
        let json = arguments.plain.json;
        match words {
            ["begin"] => usage("a batch has begun already: `mmb commit` or `mmb abort` ends it"),
            ["abort"] => {
                let told = format!("{} forgotten\n", held.lines());
                self.0 = None;
                Ok(output.print(&told)?)
            }
            ["commit"] => {
                let answers = api.write(&held.function, "run", &held.text, None)?;
                self.0 = None;
                answered(&answers, output, json)
            }
            ["list" | "show" | "explain" | "test" | "import", ..] => mmb(api, output, arguments),
            _ => {
                let all = format!("{}{}\n", held.text, text.trim_end());
                let answers = api.read(&held.function, "check", &all, None)?;
                held.text = all;
                answered(&answers, output, json)
            }
        }
    }
}

/// The rules of a running function, as the lines that make them.
pub(crate) fn lines(api: &dyn Api, arguments: &MmbArguments) -> Result<String, Trouble> {
    let answers = api.read(&function(api, arguments)?, "lines", "", None)?;
    Ok(answers.answers.into_iter().next().map(|answer| answer.value).unwrap_or_default())
}

/// The function that is meant: the one that is named, or the only one.
fn function(api: &dyn Api, arguments: &MmbArguments) -> Result<String, Trouble> {
    if let Some(name) = &arguments.function {
        return Ok(name.clone());
    }
    let known = api.functions()?;
    let mut names =
        known.into_iter().filter(|function| function.definition == "mmb").map(|function| function.name);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (Some(first), Some(second)) => {
            let text = format!(
                "several functions have rules: say which by `--function {first}` or `--function {second}`"
            );
            Err(Failure::Usage(text).into())
        }
        _ => {
            let text = "no function `mmb` runs: put one into a chain of the file, as `through = [\"mmb\"]`";
            Err(Failure::Failed(text.into()).into())
        }
    }
}

/// The lines that the words stand for. A word that the shell unquoted gets its quotes back.
pub(crate) fn text(words: &[String]) -> Result<String, Failure> {
    if let [word] = words {
        let (bytes, place) = match word.strip_prefix('@') {
            None if word == "-" => (read(&mut std::io::stdin().lock()), "the standard input"),
            None => return Ok(word.clone()),
            // A set's name stands in a line; a file's name stands alone.
            Some(path) => (std::fs::File::open(path).and_then(|mut file| read(&mut file)), path),
        };
        let bytes = bytes.map_err(|error| Failure::Usage(format!("`{place}` cannot be read: {error}")))?;
        return String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("`{place}` is not UTF-8")));
    }
    let quoted = |word: &String| match word.contains(char::is_whitespace) && !word.starts_with(['"', '{']) {
        true => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        false => word.clone(),
    };
    Ok(words.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

fn answered(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    if json {
        return Ok(output.json(answers)?);
    }
    for answer in &answers.answers {
        if let (Some(worker), true) = (answer.worker, answers.answers.len() > 1) {
            output.print(&format!("worker {worker}:\n"))?;
        }
        let lines: String = answer.value.lines().map(|line| visible(line).to_string() + "\n").collect();
        output.print(&lines)?;
    }
    Ok(())
}

/// Connections that one answer of a worker has.
const STEP: usize = 1_000;

/// All connections. Each worker is asked in steps, so that its packets do not wait for long.
fn all_connections(
    api: &dyn Api,
    function: &str,
    output: &mut Output<'_>,
    json: bool,
) -> Result<(), Trouble> {
    let mut answers = api.read(function, "connections", &STEP.to_string(), None)?;
    for answer in &mut answers.answers {
        let mut from = 0;
        while let Some((known, next)) = more(&answer.value).filter(|(_, next)| *next > from) {
            from = next;
            answer.value.truncate(known);
            let step = api.read(function, "connections", &format!("{STEP} {from}"), answer.worker)?;
            let of_worker = step.answers.into_iter().find(|step| step.worker == answer.worker);
            answer.value += &of_worker.map(|step| step.value).unwrap_or_default();
        }
    }
    answered(&answers, output, json)
}

/// Where an answer's connections end, and the entry from which there are more.
fn more(text: &str) -> Option<(usize, usize)> {
    let start = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
    let next = text.get(start..)?.trim_end().strip_prefix("more from ")?;
    Some((start, next.parse().ok()?))
}

fn list(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    let value = answers.answers.first().map_or("", |answer| &answer.value);
    if json {
        return Ok(output.print(&format!("{value}\n"))?);
    }
    let listed: Listed = serde_json::from_str(value)
        .map_err(|error| Failure::Failed(format!("the list of rules is not understood: {error}")))?;
    let has_names = listed.rules.iter().any(|row| row.name.is_some());
    let mut columns = vec![("rule", Align::Right), ("packets", Align::Right), ("bytes", Align::Right)];
    let more = ["answers", "not applied", "last at (s)"];
    columns.extend(more.map(|column| (column, Align::Right)));
    columns.extend(has_names.then_some(("name", Align::Left)));
    columns.push(("", Align::Left));
    let mut table = Table::new(columns);
    for row in &listed.rules {
        let mut cells: Vec<String> = vec![
            row.number.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.replies.to_string(),
            row.not_applied.to_string(),
            row.last_ns.map_or("-".into(), |ns| format!("{:.3}", ns as f64 / 1e9)),
        ];
        cells.extend(has_names.then(|| row.name.clone().unwrap_or_default()));
        cells.push(visible(&row.rule).to_string());
        table.row(cells);
    }
    output.print(&table.render())?;
    output.print(&format!("mode {} · policy {}\n", listed.mode, listed.policy))?;
    Ok(())
}

/// Writes a chain file that runs rules over a capture, and the rules where they are lines. Answers its path.
///
/// The interfaces that rules name are its ports, and it has as many ways out as `lb` names.
pub(crate) fn chain_file(
    directory: &Path,
    capture: &str,
    rules: &Rules,
    arguments: &MmbArguments,
) -> std::io::Result<PathBuf> {
    let (rules, text) = match rules {
        // A file that cannot be read is told by the run.
        Rules::File(path) => (std::path::absolute(path)?, std::fs::read_to_string(path).unwrap_or_default()),
        Rules::Lines(lines) => {
            let path = directory.join("rules.mmb");
            std::fs::write(&path, lines)?;
            (path, lines.clone())
        }
    };
    let empty = directory.join("empty.pcap");
    std::fs::write(&empty, EMPTY_CAPTURE)?;
    let text = chain_text(&std::path::absolute(capture)?, &rules, &empty, &Named::by(&text), arguments);
    let file = directory.join("test.toml");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// A capture of no Ethernet frame: the header of libpcap's files, with least significant bytes first.
const EMPTY_CAPTURE: &[u8] =
    &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];

/// The interfaces and ways out that rules name.
#[derive(Debug, Default)]
struct Named {
    interfaces: BTreeSet<String>,
    /// One more than the largest way out.
    outputs: usize,
}

impl Named {
    /// The names in these lines; none where a line is wrong, as the run then tells.
    fn by(text: &str) -> Self {
        let mut named = Self { outputs: 1, ..Self::default() };
        for (_, command) in netbricks_mmb::language::parse_file(text).unwrap_or_default() {
            match command {
                Command::Add { rule, .. } | Command::Replace(_, rule) => named.rule(&rule),
                Command::Define(_, values) | Command::Extend(_, values) => named.values(&values),
                Command::Enable(interface, _) => drop(named.interfaces.insert(interface)),
                _ => {}
            }
        }
        named
    }

    fn rule(&mut self, rule: &Rule) {
        for test in rule.matches.iter().filter_map(|one| one.test.as_ref()) {
            self.values(std::slice::from_ref(&test.1));
        }
        for target in &rule.targets {
            if let Target::Balance(outputs) = target {
                let most = outputs.iter().max().map_or(0, |most| usize::from(*most));
                self.outputs = self.outputs.max(most + 1);
            }
        }
    }

    fn values(&mut self, values: &[Value]) {
        for value in values {
            match value {
                Value::Atom(Atom::Interface(name)) => drop(self.interfaces.insert(name.clone())),
                Value::Set(values) => self.values(values),
                _ => {}
            }
        }
    }
}

fn chain_text(capture: &Path, rules: &Path, empty: &Path, named: &Named, arguments: &MmbArguments) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let arrival = arguments.arrival.as_deref().unwrap_or("capture");
    let departure = arguments.departure.as_deref().unwrap_or("nowhere");
    let outputs = arguments.outputs.unwrap_or(named.outputs);
    let port =
        |name: &str, read: &Path| format!("[port.{name:?}]\ndriver = \"pcap\"\nread = {}\n\n", quoted(read));
    let mut text = port(arrival, capture);
    text += &format!("[port.{departure:?}]\ndriver = \"null\"\n\n");
    let others = named.interfaces.iter().filter(|name| ![arrival, departure].contains(&name.as_str()));
    let others: Vec<&String> = others.collect();
    for name in &others {
        text += &port(name, empty);
    }
    let rules = quoted(rules);
    text += &format!("[function.rules]\nuse = \"mmb\"\noutputs = {outputs}\nrules = {rules}\n\n");
    text += &format!("[[chain]]\nfrom = {arrival:?}\nthrough = [\"rules\"]\nto = {departure:?}\n");
    // All ways out lead to one port, so that rules can name it.
    for output in 1..outputs {
        text += &format!("[[chain]]\nfrom = \"rules.{output}\"\nto = {departure:?}\n");
    }
    // A port that no chain names is not there.
    for name in &others {
        text += &format!("[[chain]]\nfrom = {name:?}\nto = {departure:?}\n");
    }
    text
}

/// The rules of a test.
pub(crate) enum Rules {
    File(PathBuf),
    Lines(String),
}

#[cfg(test)]
mod tests {
    use netbricks_control::api::Function;

    use super::super::arguments::Plain;
    use super::super::canned::{Canned, ran};
    use super::*;

    fn canned() -> Canned {
        let mut canned = Canned::default();
        canned.functions.push(Function {
            name: "edge".into(),
            definition: "mmb".into(),
            ..Function::default()
        });
        canned
    }

    #[test]
    fn commands_go_to_the_function_with_rules() {
        let api = canned();
        ran(&api, &["mmb", "add", "tcp-dport", "80", "drop", "comment", "two words"]);
        ran(&api, &["mmb", "explain", "tcp-dport", "80"]);
        ran(&api, &["mmb", "--function", "other", "flush"]);
        ran(&api, &["mmb", "show", "connections"]);
        assert_eq!(
            api.asked(),
            [
                "write edge run add tcp-dport 80 drop comment \"two words\" None",
                "read edge ask explain tcp-dport 80 None",
                "write other run flush None",
                "read edge connections 100 None",
            ]
        );
    }

    #[test]
    fn a_session_holds_a_batch_until_its_commit() {
        let api = canned();
        let mut batch = Batch::default();
        let mut typed = |words: &[&str]| typed(&api, &mut batch, words);
        assert!(typed(&["commit"]).unwrap_err().contains("no batch has begun"));
        typed(&["begin"]).unwrap();
        assert!(typed(&["begin"]).unwrap_err().contains("has begun already"));
        typed(&["add", "tcp-dport", "80", "drop"]).unwrap();
        typed(&["expect", "tcp-dport", "80", "drop"]).unwrap();
        typed(&["explain", "tcp-dport", "80"]).unwrap();
        typed(&["commit"]).unwrap();
        typed(&["begin"]).unwrap();
        typed(&["flush"]).unwrap();
        assert_eq!(typed(&["abort"]).unwrap(), "1 line forgotten\n");
        assert!(typed(&["abort"]).unwrap_err().contains("no batch has begun"));
        assert_eq!(batch.left(), None);
        let both = "add tcp-dport 80 drop\nexpect tcp-dport 80 drop\n";
        assert_eq!(
            api.asked(),
            [
                "read edge check add tcp-dport 80 drop\n None".to_owned(),
                format!("read edge check {both} None"),
                "read edge ask explain tcp-dport 80 None".to_owned(),
                format!("write edge run {both} None"),
                "read edge check flush\n None".to_owned(),
            ]
        );
    }

    #[test]
    fn a_batch_that_is_left_is_told() {
        let (api, mut batch) = (canned(), Batch::default());
        typed(&api, &mut batch, &["begin"]).unwrap();
        typed(&api, &mut batch, &["flush"]).unwrap();
        let told = batch.left().unwrap();
        assert_eq!(told, "the batch for `edge` was not committed: nothing of its 1 line is done");
    }

    /// Types a command into a session. Answers what it printed, or its failure.
    fn typed(api: &Canned, batch: &mut Batch, words: &[&str]) -> Result<String, String> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let arguments = MmbArguments {
            function: None,
            rules: None,
            arrival: None,
            departure: None,
            outputs: None,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            plain: Plain::default(),
        };
        match batch.mmb(api, &mut Output::plain(&mut out, &mut err), &arguments) {
            Ok(()) => Ok(String::from_utf8(out).unwrap()),
            Err(trouble) => Err(format!("{trouble:?}")),
        }
    }

    #[test]
    fn the_rest_of_an_answer_is_found_at_its_end() {
        assert_eq!(more("3 connections\na\nmore from 17\n"), Some((16, 17)));
        assert_eq!(more("more from 17\n"), Some((0, 17)));
        assert_eq!(more("3 connections\na\n"), None);
        assert_eq!(more(""), None);
    }

    #[test]
    fn a_test_has_the_ports_and_ways_out_that_rules_name() {
        let lines = "define @inside {lan, dmz}\nadd in @inside tcp-dport 80 lb 0 2\nadd out {wan} drop\ndisable spare\n";
        let named = Named::by(lines);
        assert_eq!(named.interfaces.iter().collect::<Vec<_>>(), ["dmz", "lan", "spare", "wan"]);
        assert_eq!(named.outputs, 3);
        let words = vec!["test".into(), "c.pcap".into()];
        let arguments = MmbArguments {
            function: None,
            rules: None,
            arrival: Some("lan".into()),
            departure: None,
            outputs: None,
            words,
            plain: Plain::default(),
        };
        let [capture, rules, empty] = ["c.pcap", "r.mmb", "e.pcap"].map(Path::new);
        let text = chain_text(capture, rules, empty, &named, &arguments);
        assert!(text.starts_with("[port.\"lan\"]\ndriver = \"pcap\"\nread = \"c.pcap\"\n"), "{text}");
        assert!(text.contains("[port.\"wan\"]\ndriver = \"pcap\"\nread = \"e.pcap\"\n"), "{text}");
        assert!(text.contains("outputs = 3\nrules = \"r.mmb\"\n"), "{text}");
        assert!(text.contains("from = \"rules.2\"\nto = \"nowhere\"\n"), "{text}");
        assert_eq!(text.matches("[[chain]]").count(), 6, "{text}");
        let wide = chain_text(capture, rules, empty, &named, &MmbArguments { outputs: Some(5), ..arguments });
        assert!(wide.contains("outputs = 5") && wide.contains("rules.4"), "{wide}");
    }

    #[test]
    fn without_a_function_the_remedy_is_told() {
        let told = ran(&Canned::default(), &["mmb", "list"]);
        assert_eq!(told.code, 1);
        assert!(told.err.contains("no function `mmb` runs"), "{}", told.err);
    }
}
