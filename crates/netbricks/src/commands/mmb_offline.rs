//! `mmb test` and `mmb import`: rules without a running dataplane.

use super::arguments::RunArguments;
use super::live::mmb::{Rules, chain_file};
use super::live::{self, MmbArguments};
use super::{Application, Console, Failure, run as running};

/// Whether the command needs no running dataplane, or asks it for no more than its rules.
pub(super) fn is_offline(arguments: &MmbArguments) -> bool {
    matches!(arguments.words.first().map(String::as_str), Some("test" | "import"))
}

pub(super) fn run(app: &Application, console: Console, arguments: &MmbArguments) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["test", capture] => test(app, console, arguments, capture),
        ["test", ..] => Err(Failure::Usage("expected `test FILE.pcap`: name one capture".into())),
        _ => Err(Failure::Usage("expected `import iptables FILE` or `import nft FILE`".into())),
    }
}

/// Runs rules over a capture, and reports what they did.
fn test(app: &Application, console: Console, arguments: &MmbArguments, capture: &str) -> Result<(), Failure> {
    let rules = match &arguments.rules {
        Some(path) => Rules::File(path.clone()),
        None => Rules::Lines(live::mmb_lines(console, arguments)?),
    };
    let failed = |error: std::io::Error| Failure::Failed(format!("the test cannot be prepared: {error}"));
    let directory = std::env::temp_dir().join(format!("netbricks-mmb-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let file = chain_file(&directory, capture, &rules).map_err(failed)?;
    let arguments = RunArguments { file: Some(file), json: arguments.plain.json, ..RunArguments::default() };
    let done = running::run(app, console, &arguments);
    // What stays in a temporary directory hurts no one.
    let _ = std::fs::remove_dir_all(&directory);
    done
}
