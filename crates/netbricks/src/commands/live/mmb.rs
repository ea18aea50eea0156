//! `mmb`: commands of the rule language, to a running function or to a capture.

use std::path::{Path, PathBuf};

use netbricks_control::api::Answers;

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
    not_applied: u64,
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
        ["show", "connections", rest @ ..] => {
            let most = if rest.contains(&"verbose") { "1000000" } else { "100" };
            answered(&api.read(&function, "connections", most, None)?, output, arguments.plain.json)
        }
        ["show" | "explain" | "expect", ..] => {
            answered(&api.read(&function, "ask", &text, None)?, output, arguments.plain.json)
        }
        _ => answered(&api.write(&function, "run", &text, None)?, output, arguments.plain.json),
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

fn list(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    let value = answers.answers.first().map_or("", |answer| &answer.value);
    if json {
        return Ok(output.print(&format!("{value}\n"))?);
    }
    let listed: Listed = serde_json::from_str(value)
        .map_err(|error| Failure::Failed(format!("the list of rules is not understood: {error}")))?;
    let has_names = listed.rules.iter().any(|row| row.name.is_some());
    let mut columns = vec![("rule", Align::Right), ("packets", Align::Right), ("bytes", Align::Right)];
    columns.push(("not applied", Align::Right));
    columns.extend(has_names.then_some(("name", Align::Left)));
    columns.push(("", Align::Left));
    let mut table = Table::new(columns);
    for row in &listed.rules {
        let mut cells: Vec<String> = vec![
            row.number.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.not_applied.to_string(),
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
pub(crate) fn chain_file(directory: &Path, capture: &str, rules: &Rules) -> std::io::Result<PathBuf> {
    let capture = std::path::absolute(capture)?;
    let rules = match rules {
        Rules::File(path) => std::path::absolute(path)?,
        Rules::Lines(lines) => {
            let path = directory.join("rules.mmb");
            std::fs::write(&path, lines)?;
            path
        }
    };
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    let text = format!(
        "[port.capture]\ndriver = \"pcap\"\nread = {}\n\n[port.nowhere]\ndriver = \"null\"\n\n\
         [function.rules]\nuse = \"mmb\"\nrules = {}\n\n\
         [[chain]]\nfrom = \"capture\"\nthrough = [\"rules\"]\nto = \"nowhere\"\n",
        quoted(&capture),
        quoted(&rules)
    );
    let file = directory.join("test.toml");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// The rules of a test.
pub(crate) enum Rules {
    File(PathBuf),
    Lines(String),
}

#[cfg(test)]
mod tests {
    use netbricks_control::api::Function;

    use super::super::canned::{Canned, ran};

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
    fn without_a_function_the_remedy_is_told() {
        let told = ran(&Canned::default(), &["mmb", "list"]);
        assert_eq!(told.code, 1);
        assert!(told.err.contains("no function `mmb` runs"), "{}", told.err);
    }
}
