//! Click's commands under this program's name, and chain files made from Click configurations.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use netbricks_click::{ClickSettings, Devices};

use super::Failure;
use super::arguments::ClickArguments;

/// Runs one of Click's commands, where this program was called by its name.
pub(super) fn by_name(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let name = Path::new(program).file_name()?.to_str()?;
    netbricks_click::command::run(name, rest.iter().cloned())
}

/// Runs `netbricks click` or `netbricks click-flatten`.
pub(super) fn run(name: &str, arguments: ClickArguments) -> Result<(), Failure> {
    match netbricks_click::command::run(name, arguments.words) {
        Some(code) if code == ExitCode::SUCCESS => Ok(()),
        _ => Err(Failure::Told(super::FAILURE)),
    }
}

/// The chain file of a Click configuration: a port for each device, and the configuration between them.
pub(super) fn chain_file(path: &Path) -> Result<String, Failure> {
    let mut settings = ClickSettings::default();
    settings.config = Some(path.to_owned());
    settings.capabilities = GRANTED.iter().map(|name| (*name).to_owned()).collect();
    let devices = netbricks_click::devices(&settings).map_err(|error| Failure::Usage(error.problem))?;
    let Devices { inputs, outputs } = devices;
    if inputs.is_empty() && outputs.is_empty() {
        return Err(Failure::Usage(format!(
            "`{0}` names no device: run it with `netbricks click {0}`",
            path.display()
        )));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut text = format!("# Made from {name}: its devices are ports.\n[runtime]\nworkers = 1\n\n");
    let ports: BTreeSet<&String> = inputs.iter().chain(&outputs).collect();
    for device in ports {
        let _ = writeln!(text, "[port.{0}]\ndriver = \"af_packet\"\ndevice = {0}\n", quoted(device));
    }
    let capabilities: Vec<String> = GRANTED.iter().map(|name| quoted(name)).collect();
    let _ = writeln!(
        text,
        "[function.click]\nuse = \"click\"\nconfig = {}\ncapabilities = [{}]\n",
        quoted(&name),
        capabilities.join(", ")
    );
    for (number, device) in inputs.iter().enumerate() {
        // Nothing leaves by the ways out beyond the configuration's own.
        let to = outputs.get(number).unwrap_or(device);
        let (from, to) = (quoted(device), quoted(to));
        let _ = writeln!(text, "[[chain]]\nfrom = {from}\nthrough = [\"click\"]\nto = {to}\n");
    }
    for (number, device) in outputs.iter().enumerate().skip(inputs.len()) {
        let _ = writeln!(text, "[[chain]]\nfrom = \"click.{number}\"\nto = {}\n", quoted(device));
    }
    Ok(text)
}

/// Capabilities of a configuration that its user runs.
const GRANTED: &[&str] = &["files", "sockets", "process"];

/// A text in quotes, as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
