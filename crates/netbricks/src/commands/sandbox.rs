//! `sandbox check`: what a module exports and needs, and what it would be refused for.

use netbricks_core::{Keys as _, nearest};
use netbricks_sandbox::{Inspection, SandboxSettings, Writes};
use serde::Deserialize as _;

use super::arguments::{ModuleArguments, SandboxArguments, SandboxCommand};
use super::{Console, Failure, USAGE, concluded};
use crate::diagnostic::visible;

pub(super) fn sandbox(console: Console, arguments: SandboxArguments) -> Result<(), Failure> {
    match arguments.command {
        SandboxCommand::Check(arguments) => check(console, arguments),
    }
}

/// Compiles and tries a module with the keys that are given, and the function's defaults for all others.
fn check(console: Console, arguments: ModuleArguments) -> Result<(), Failure> {
    let ModuleArguments { module, config, config_file, memory, set, json } = arguments;
    let name = module.display().to_string();
    let mut settings = settings(&set, memory)?;
    settings.module = module;
    settings.config = config.or(settings.config);
    settings.config_file = config_file.or(settings.config_file);
    let found = settings.inspect();
    let outcome = if found.problems.is_empty() { Ok(()) } else { Err(Failure::Told(USAGE)) };
    let written = if json {
        console.json(&serde_json::json!({
            "file": name,
            "ok": found.problems.is_empty(),
            "contents": found.contents,
            "declared": found.declared,
            "problems": found.problems,
            "notes": found.notes,
        }))
    } else {
        console.print(&text(&name, &found))
    };
    concluded(outcome, written)
}

/// The settings that these words give, each as KEY=VALUE. A value that is none in TOML is text.
fn settings(words: &[String], memory: Option<String>) -> Result<SandboxSettings, Failure> {
    let mut table = toml::Table::new();
    // The module is named beside them.
    table.insert("module".into(), "module".into());
    if let Some(memory) = memory {
        table.insert("memory".into(), memory.into());
    }
    for word in words {
        let expected = || Failure::Usage(format!("`--set {word}`: expected KEY=VALUE, such as mode=mapped"));
        let (key, value) = word.split_once('=').ok_or_else(expected)?;
        let (key, value) = (key.trim(), value.trim());
        let known = SandboxSettings::KEYS.iter().map(|known| known.name);
        if key == "module" || !known.clone().any(|known| known == key) {
            let near = nearest(key, known).filter(|near| *near != "module");
            let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            return Err(Failure::Usage(format!(
                "`--set {word}`: there is no key `{key}`; {near}`netbricks functions sandbox` lists them"
            )));
        }
        let parsed: Option<toml::Table> = toml::from_str(&format!("value = {value}")).ok();
        let parsed = parsed.and_then(|mut table| table.remove("value"));
        if table.insert(key.into(), parsed.unwrap_or_else(|| value.into())).is_some() {
            return Err(Failure::Usage(format!("`--set {word}`: `{key}` is given twice")));
        }
    }
    SandboxSettings::deserialize(table).map_err(|error| Failure::Usage(error.message().to_owned()))
}

/// The findings for people.
fn text(name: &str, found: &Inspection) -> String {
    let mut lines = vec![visible(name)];
    let list = |title: &str, items: &[String]| {
        // The names are the module's, which may write what a terminal acts on.
        let items: Vec<String> = items.iter().map(|item| item.escape_debug().to_string()).collect();
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
    lines.extend(found.notes.iter().map(|note| format!("  note     {}", visible(note))));
    if found.problems.is_empty() {
        lines.push("  taken    it compiles, and sets itself up".into());
    }
    lines.extend(found.problems.iter().map(|problem| format!("  refused  {}", visible(problem))));
    lines.join("\n") + "\n"
}
