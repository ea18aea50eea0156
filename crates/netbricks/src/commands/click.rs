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
    netbricks_click::command::run(name, rest.iter().cloned()).map(ExitCode::from)
}

/// Runs `netbricks click` or `netbricks click-flatten`, whose exit code is this program's.
pub(super) fn run(name: &str, arguments: ClickArguments) -> Result<(), Failure> {
    match netbricks_click::command::run(name, arguments.words) {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Told(code)),
        None => Err(Failure::Told(super::FAILURE)),
    }
}

/// The chain file of a Click configuration: a port for each device, and the configuration between them.
///
/// `parameters` are `NAME=VALUE`.
pub(super) fn chain_file(path: &Path, parameters: &[String]) -> Result<String, Failure> {
    let mut settings = ClickSettings::default();
    settings.config = Some(path.to_owned());
    settings.parameters = parameters.to_vec();
    settings.capabilities = GRANTED.iter().map(|name| (*name).to_owned()).collect();
    let devices = netbricks_click::devices(&settings).map_err(|error| Failure::Usage(error.problem))?;
    let Devices { inputs, outputs, hosts } = devices;
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
        let Some(host) = hosts.iter().find(|host| host.device == *device) else {
            let _ = writeln!(text, "[port.{0}]\ndriver = \"af_packet\"\ndevice = {0}\n", quoted(device));
            continue;
        };
        let _ = writeln!(text, "[port.{0}]\ndriver = \"tap\"\ndevice = {0}", quoted(device));
        if let Some(address) = &host.address {
            let _ = writeln!(text, "address = {}", quoted(address));
        }
        let _ = writeln!(text, "mac = {}\n", quoted(&host.mac));
    }
    let capabilities: Vec<String> = GRANTED.iter().map(|name| quoted(name)).collect();
    let _ = writeln!(
        text,
        "[function.click]\nuse = \"click\"\nconfig = {}\nparameters = [{}]\ncapabilities = [{}]\n",
        quoted(&name),
        parameters.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", "),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_the_host_become_tap_ports_with_addresses() {
        let directory = std::env::temp_dir().join(format!("netbricks-click-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("host.click");
        std::fs::write(
            &file,
            "FromHost(fake9, $ADDRESS) -> ToDevice(eth1); FromDevice(eth1) -> ToHost(fake9);",
        )
        .unwrap();
        let Ok(text) = chain_file(&file, &["ADDRESS=10.78.0.1/24".into()]) else { panic!("it is right") };
        for expected in [
            "[port.\"fake9\"]\ndriver = \"tap\"\ndevice = \"fake9\"\naddress = \"10.78.0.1/24\"\nmac = \"00:01:02:03:04:05\"\n",
            "[port.\"eth1\"]\ndriver = \"af_packet\"\ndevice = \"eth1\"\n",
            "parameters = [\"ADDRESS=10.78.0.1/24\"]",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
