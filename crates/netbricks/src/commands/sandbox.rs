//! `sandbox check`: what a module exports and needs, and what it would be refused for.

use netbricks_core::declaration::Declared;
use netbricks_sandbox::{Inspection, SandboxSettings, Writes};

use super::arguments::{ModuleArguments, SandboxArguments, SandboxCommand};
use super::{Console, Failure, USAGE, concluded};

pub(super) fn sandbox(console: Console, arguments: SandboxArguments) -> Result<(), Failure> {
    match arguments.command {
        SandboxCommand::Check(arguments) => check(console, arguments),
    }
}

/// Compiles and tries a module with the function's default limits.
fn check(console: Console, arguments: ModuleArguments) -> Result<(), Failure> {
    let ModuleArguments { module, config, config_file, json } = arguments;
    let name = module.display().to_string();
    let mut settings = SandboxSettings::with_defaults((module,));
    (settings.config, settings.config_file) = (config, config_file);
    let found = settings.inspect();
    let outcome = if found.problems.is_empty() { Ok(()) } else { Err(Failure::Told(USAGE)) };
    let written = if json {
        console.json(&serde_json::json!({
            "file": name,
            "ok": found.problems.is_empty(),
            "contents": found.contents,
            "declared": found.declared,
            "problems": found.problems,
        }))
    } else {
        console.print(&text(&name, &found))
    };
    concluded(outcome, written)
}

/// The findings for people.
fn text(name: &str, found: &Inspection) -> String {
    let mut lines = vec![name.to_owned()];
    let list = |title: &str, items: &[String]| {
        let items = if items.is_empty() { "none".to_owned() } else { items.join("\n           ") };
        format!("  {title:<8} {items}")
    };
    if let Some(contents) = &found.contents {
        let limit = contents.memory_limit.map_or_else(String::new, |limit| format!(", to {limit} at most"));
        lines.push(format!("  size     {} bytes, {} of native code", contents.bytes, contents.code));
        lines.push(format!("  memory   {} bytes{limit}", contents.memory));
        lines.push(format!("  table    {} elements", contents.table));
        lines.push(list("exports", &contents.exports));
        lines.push(list("imports", &contents.imports));
    }
    if let Some(declared) = found.declared {
        let writes = match Writes::from_number(declared.writes) {
            Some(Writes::None) => "nothing".to_owned(),
            Some(Writes::Headers) => "what it reads".to_owned(),
            Some(Writes::All) => "all bytes".to_owned(),
            None => format!("unknown ({})", declared.writes),
        };
        let (reads, abi) = (declared.reads, declared.abi);
        lines.push(format!(
            "  needs    reads the first {reads} bytes of frames, writes {writes}, interface {abi}"
        ));
    }
    if found.problems.is_empty() {
        lines.push("  taken    it compiles, and sets itself up".into());
    }
    lines.extend(found.problems.iter().map(|problem| format!("  refused  {problem}")));
    lines.join("\n") + "\n"
}
