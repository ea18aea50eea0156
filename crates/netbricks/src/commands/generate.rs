//! `generate`: writes a generator's traffic into a capture file.
//!
//! Its flags are the generator's keys. It runs as a file with two ports and one chain would.

use clap::{Arg, ArgMatches, Command};
use netbricks_core::Key;
use netbricks_ports::Drivers;
use toml::de::DeValue;

use super::file::{self, Faults, File};
use super::run::{How, Unrun, execute, outcome};
use super::{Application, Console, Failure, GenerateArguments, RunLimits, concluded};
use crate::config::port_keys;
use crate::diagnostic::Level;
use crate::report::{percent, scaled, thousands};

const GENERATOR: &str = "generator";
/// The name of the generator's port.
const TRAFFIC: &str = "traffic";
/// The name of the capture file's port.
const FILE: &str = "file";
/// Endings of capture files' names.
const ENDINGS: [&str; 4] = [".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz"];

/// Keys that make no sense here, or for which the command itself has a flag.
const LEFT_OUT: &[&str] =
    &["capture", "clock", "impair_direction", "checksum", "mtu", "json", "quiet", "color"];
/// Keys of queues, which a capture file does not have; the error for them names the alternative.
const OF_QUEUES: &[&str] = &["steer", "workers"];

/// Flags of earlier versions; they are refused, and the error names the new flag.
const RENAMED: &[&str] = &["hold"];

/// The generator's keys, and those of the line behind it.
fn keys(drivers: &Drivers) -> Vec<Key> {
    let keys = drivers.get(GENERATOR).map(port_keys).unwrap_or_default();
    keys.into_iter().filter(|key| !LEFT_OUT.contains(&key.name) && !OF_QUEUES.contains(&key.name)).collect()
}

/// Adds a flag for each key: `frame_sizes` is `--frame-sizes`.
pub(super) fn with_keys(mut command: Command, drivers: &Drivers) -> Command {
    for key in keys(drivers) {
        let default = key.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        command = command.arg(
            Arg::new(key.name)
                .long(clap::builder::Str::from(key.name.replace('_', "-")))
                .value_name("VALUE")
                .allow_hyphen_values(true)
                .help_heading("Traffic")
                .help(format!("{} ({}){default}", key.summary.trim_end_matches('.'), key.kind)),
        );
    }
    for key in OF_QUEUES.iter().chain(RENAMED) {
        command = command.arg(Arg::new(*key).long(*key).allow_hyphen_values(true).hide(true));
    }
    command
}

pub(super) fn generate(
    app: &Application,
    console: Console,
    arguments: &GenerateArguments,
    flags: Option<&ArgMatches>,
) -> Result<(), Failure> {
    let target = std::path::absolute(&arguments.file)
        .map_err(|error| Failure::Usage(format!("`{}`: {error}", arguments.file.display())))?;
    let Some(target) = target.to_str() else {
        return Err(Failure::Usage(format!("`{}` is not UTF-8", arguments.file.display())));
    };
    if !ENDINGS.iter().any(|ending| target.ends_with(ending)) {
        return Err(Failure::Usage(format!(
            "`{}` does not say what to write: its name must end in {}",
            arguments.file.display(),
            ENDINGS.join(", ")
        )));
    }
    let given = |key: &str| flags.and_then(|flags| flags.get_one::<String>(key));
    if let Some(key) = OF_QUEUES.iter().find(|key| given(key).is_some()) {
        return Err(Failure::Usage(format!(
            "`--{key}` is about receive queues, and one writes the file: leave it out; `{key}` belongs to the port of a \
             chain file, which `netbricks run` spreads over workers"
        )));
    }
    if given("packets").is_none() && given("duration").is_none() {
        return Err(Failure::Usage(
            "traffic without end does not fit a file: add --packets or --duration".into(),
        ));
    }
    let mut text = format!("[port.{TRAFFIC}]\ndriver = \"{GENERATOR}\"\n");
    for key in keys(&app.drivers).iter().map(|key| key.name).chain(RENAMED.iter().copied()) {
        if let Some(value) = given(key) {
            text.push_str(&format!("{key} = {}\n", as_toml(value)));
        }
    }
    text.push_str(&format!("\n[port.{FILE}]\ndriver = \"pcap\"\nwrite = {}\n", quoted(target)));
    text.push_str(&format!("\n[[chain]]\nfrom = \"{TRAFFIC}\"\nto = \"{FILE}\"\n"));
    let file = File {
        name: "generate".into(),
        text,
        directory: std::path::PathBuf::new(),
        files: Default::default(),
    };
    let written = Written { text: &file.text, target, shown: &arguments.file.display().to_string() };
    let checked = file::check(app, &file).map_err(|faults| written.in_flags(&faults))?;
    let limits = RunLimits { duration: None, quiet: arguments.quiet, unannounced: true };
    let summary = execute(app, console, &file, checked, &How::plain(&limits, arguments.json), None);
    let summary = summary.map_err(|unrun| match unrun {
        Unrun::Faults(faults) => written.in_flags(&faults),
        Unrun::Failed(failure) => failure,
    })?;
    let told = if arguments.json {
        console.json(&summary)
    } else {
        for failure in &summary.failures {
            console.complain(Level::Error, &written.said(failure, None));
        }
        let bytes: u64 = summary.ports.iter().map(|port| port.sent_bytes).sum();
        let lost = summary.dropped_in_all();
        let lost = match lost {
            0 => String::new(),
            lost => format!(" · {} lost", percent(lost, summary.received)),
        };
        console.print(&format!(
            "{}  {} packets · {}{lost} · {}\n",
            arguments.file.display(),
            thousands(summary.sent),
            scaled(bytes as f64, "B"),
            scaled(summary.sent as f64 / summary.seconds.max(1e-9), "packets/s")
        ))
    };
    concluded(outcome(&summary), told)
}

/// A file made from the flags; faults in it are reported in terms of the flags.
struct Written<'a> {
    text: &'a str,
    /// The capture file's name in that text, and as it stands on the command line.
    target: &'a str,
    shown: &'a str,
}

impl Written<'_> {
    /// A usage error if the flags are wrong; a failure if the machine lacks something that they need.
    fn in_flags(&self, faults: &Faults<'_>) -> Failure {
        let sorted = faults.diagnostics.sorted();
        let said = sorted.into_iter().filter(|fault| fault.level == Level::Error).map(|fault| {
            let label = fault.labels.first();
            // Every key stands at the beginning of its line.
            let key = label.and_then(|label| {
                let line = self.text.get(..label.span.start)?.rfind('\n').map_or(0, |end| end + 1);
                self.text.get(line..)?.lines().next()?.split_once(" = ").map(|(key, _)| key)
            });
            let message = self.said(&fault.message, key);
            match label.map(|label| label.text.as_str()) {
                None | Some("") => message,
                Some(hint) => format!("{message}; {hint}"),
            }
        });
        let said = said.collect::<Vec<_>>().join("; ");
        if faults.diagnostics.is_machine() { Failure::Failed(said) } else { Failure::Usage(said) }
    }

    /// Turns a message about the two ports or their keys into one about the capture file or a flag.
    fn said(&self, message: &str, key: Option<&str>) -> String {
        let flag = key.map(|key| format!("`--{}`", key.replace('_', "-"))).unwrap_or_default();
        let ports = [
            (format!("port `{FILE}`: {}: ", self.target), format!("`{}`: ", self.shown)),
            (format!("port `{FILE}`: "), format!("`{}`: ", self.shown)),
            (format!("`{}` of port `{TRAFFIC}`", key.unwrap_or_default()), flag.clone()),
            (format!("port `{TRAFFIC}`: `{}`", key.unwrap_or_default()), flag.clone()),
            (format!("port `{TRAFFIC}`"), flag),
        ];
        let found = ports.into_iter().find(|(port, instead)| !instead.is_empty() && message.contains(port));
        found.map_or_else(|| message.to_owned(), |(port, instead)| message.replacen(&port, &instead, 1))
    }
}

/// A flag's value as TOML: numbers, lists and truth values as they are, everything else as text.
fn as_toml(value: &str) -> String {
    match DeValue::parse(value) {
        Ok(parsed) if !parsed.get_ref().is_datetime() => value.to_owned(),
        _ => quoted(value),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
