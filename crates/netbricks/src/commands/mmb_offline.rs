//! `mmb test` and `mmb import`: rules without a running dataplane.

use netbricks_mmb::import::{ImportOptions, Imported, Language, iptables, nft};

use super::arguments::RunArguments;
use super::live::mmb::{Rules, chain_file, text};
use super::live::{self, MmbArguments};
use super::{Application, Console, Failure, run as running};
use crate::diagnostic::Level;

/// Whether the command needs no running dataplane, or asks it for no more than its rules.
pub(super) fn is_offline(arguments: &MmbArguments) -> bool {
    matches!(arguments.words.first().map(String::as_str), Some("test" | "import"))
}

pub(super) fn run(app: &Application, console: Console, arguments: &MmbArguments) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["test", capture] => test(app, console, arguments, capture),
        ["test", ..] => Err(Failure::Usage("expected `test FILE.pcap`: name one capture".into())),
        ["import", "iptables", place] => import(console, arguments, place, iptables, Language::Mmb),
        ["import", "nft", place] => import(console, arguments, place, nft, Language::Mmb),
        ["import", "iptables", place, "firewall"] => {
            import(console, arguments, place, iptables, Language::Firewall)
        }
        ["import", "nft", place, "firewall"] => import(console, arguments, place, nft, Language::Firewall),
        _ => {
            let expected = "expected `import iptables FILE` or `import nft FILE`, with `firewall` behind it for that function's rules";
            Err(Failure::Usage(expected.into()))
        }
    }
}

/// A rule without a translation, for `--json`.
#[derive(serde::Serialize)]
struct Hole {
    line: usize,
    text: String,
    why: String,
}

/// Translates the rules of another firewall: commands to standard output, the rest to standard error.
fn import(
    console: Console,
    arguments: &MmbArguments,
    place: &str,
    translate: fn(&str, &ImportOptions) -> Imported,
    target: Language,
) -> Result<(), Failure> {
    let word = if place == "-" { place.to_owned() } else { format!("@{place}") };
    let Imported { lines, skipped, warnings, .. } =
        translate(&text(&[word])?, &ImportOptions { target, ..ImportOptions::default() });
    if arguments.plain.json {
        let hole = |of: netbricks_mmb::import::Skipped| Hole { line: of.line, text: of.text, why: of.why };
        let skipped: Vec<Hole> = skipped.into_iter().map(hole).collect();
        return console.json(&serde_json::json!({"lines": lines, "skipped": skipped, "warnings": warnings}));
    }
    let lines: String = lines.into_iter().map(|line| line + "\n").collect();
    console.print(&lines)?;
    for skipped in skipped {
        let (line, text) = (skipped.line, skipped.text);
        console.complain(Level::Warning, &format!("line {line}: `{text}` is left out: {}", skipped.why));
    }
    for warning in warnings {
        console.complain(Level::Warning, &warning);
    }
    Ok(())
}

/// Runs rules over a capture, and reports what they did.
fn test(app: &Application, console: Console, arguments: &MmbArguments, capture: &str) -> Result<(), Failure> {
    let same = arguments.arrival.is_some() && arguments.arrival == arguments.departure;
    if same {
        return Err(Failure::Usage("`--in` and `--out` name one port: name two".into()));
    }
    let rules = match &arguments.rules {
        Some(path) => Rules::File(path.clone()),
        None => Rules::Lines(live::mmb_lines(console, arguments)?),
    };
    let failed = |error: std::io::Error| Failure::Failed(format!("the test cannot be prepared: {error}"));
    let directory = tempfile::Builder::new().prefix("netbricks-mmb-").tempdir().map_err(failed)?;
    let file = chain_file(directory.path(), capture, &rules, arguments).map_err(failed)?;
    let arguments = RunArguments { file: Some(file), json: arguments.plain.json, ..RunArguments::default() };
    running::run(app, console, &arguments)
}
