//! `instances`: Click instances of a running function, and the switch that joins them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use netbricks_click::language::text::quote;
use netbricks_control::api::{Answers, HandlerAnswer};
use netbricks_core::units::Bytes;

use super::arguments::Plain;
use super::{Api, Failure, Output, Trouble};
use crate::diagnostic::visible;
use crate::report::{Align, Table, thousands};

#[derive(Debug, Args)]
pub(crate) struct InstancesArguments {
    /// The function, where several have instances
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) function: Option<String>,
    #[command(subcommand)]
    pub(crate) command: InstancesCommand,
    #[command(flatten)]
    pub(crate) plain: Plain,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InstancesCommand {
    /// Create instances without a configuration
    Create {
        /// The instance's name; with --count NAME-1, NAME-2 and so on
        name: String,
        /// How many
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        count: u32,
        /// Virtual ports of each
        #[arg(long, default_value_t = 1)]
        ports: u32,
        /// The MAC address of the first port; that of each further port is one more
        #[arg(long)]
        mac: Option<String>,
        /// Packets that each port's ring holds, 64 to 2048
        #[arg(long, default_value_t = 256)]
        ring: u32,
        /// Packets that the elements may hold before they create no more
        #[arg(long, default_value_t = 4_096)]
        frames: u64,
        /// Memory that elements, their tables and packets may take, such as 4MB; unlimited without it
        #[arg(long, value_name = "BYTES")]
        memory: Option<Bytes>,
        /// The share of the processor beside that of others
        #[arg(long, default_value_t = 1_024)]
        weight: u32,
        /// The worker that runs it; without it the one whose instances have the least weight
        #[arg(long, value_name = "NUMBER")]
        worker: Option<usize>,
        /// The tenant that may configure, read and suspend it; without it the operator alone
        #[arg(long, value_name = "TENANT")]
        owner: Option<String>,
    },
    /// Give an instance a Click configuration; an empty file takes it away
    Install {
        /// The instance
        name: String,
        /// The file; - is the standard input
        #[arg(value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// Values of the configuration's parameters
        #[arg(value_name = "VAR=VALUE")]
        parameters: Vec<String>,
    },
    /// Stop an instance's turns; its rings fill
    Suspend { name: String },
    /// Let a suspended instance go on
    Resume { name: String },
    /// End instances and their ports
    Destroy {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// List all instances
    List,
    /// Read a handler of an instance, as counter.count
    Read {
        name: String,
        /// ELEMENT.HANDLER, and a parameter
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Write a handler of an instance, as switch.switch 1
    Write {
        name: String,
        /// ELEMENT.HANDLER, and a value
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// List the handlers of an instance's elements
    Handlers {
        name: String,
        /// Elements
        elements: Vec<String>,
    },
    /// Show the switch, or change it
    #[command(subcommand)]
    Switch(SwitchCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchCommand {
    /// Show ports and addresses
    Show,
    /// Make an address lead to a port
    Map { mac: String, port: String },
    /// Learn addresses from packets, or forget those that were learnt
    Learning {
        #[arg(action = clap::ArgAction::Set)]
        on: bool,
    },
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Port {
    name: String,
    #[serde(default)]
    mac: Option<String>,
    ring: usize,
    waiting: usize,
    sent: u64,
    received: u64,
    lost: u64,
}

#[derive(serde::Deserialize)]
struct Instance {
    name: String,
    #[serde(default)]
    owner: String,
    state: String,
    #[serde(default)]
    worker: usize,
    #[serde(default)]
    error: Option<String>,
    ports: Vec<Port>,
    elements: usize,
    weight: u32,
    held: u64,
    dropped: u64,
    used_ns: u64,
    #[serde(default)]
    memory_used: u64,
    #[serde(default)]
    said: Vec<String>,
}

#[derive(Clone, PartialEq, serde::Deserialize, serde::Serialize)]
struct Address {
    mac: String,
    port: String,
    learnt: bool,
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Switch {
    learning: bool,
    flooded: u64,
    ports: Vec<Port>,
    addresses: Vec<Address>,
}

pub(super) fn instances(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &InstancesArguments,
) -> Result<(), Trouble> {
    let function = function(api, arguments.function.as_deref())?;
    let json = arguments.plain.json;
    let write = |handler: &str, argument: &str| api.write(&function, handler, argument, None);
    let read = |handler: &str, argument: &str| api.read(&function, handler, argument, None);
    match &arguments.command {
        InstancesCommand::Create { name, count, ports, mac, ring, frames, memory, weight, worker, owner } => {
            if *count > 1 && mac.is_some() {
                let text = "--mac is for one instance: with --count each gets an address of its own";
                return Err(Failure::Usage(text.into()).into());
            }
            for number in 1..=*count {
                let name = if *count == 1 { name.clone() } else { format!("{name}-{number}") };
                let mac = mac.as_ref().map_or(String::new(), |mac| format!(" mac={mac}"));
                let memory = memory.map_or(String::new(), |memory| format!(" memory={}B", memory.bytes()));
                let worker = worker.map_or(String::new(), |worker| format!(" worker={worker}"));
                let owner = owner.as_ref().map_or(String::new(), |owner| format!(" owner={owner}"));
                let line = format!(
                    "{name} ports={ports} ring={ring} frames={frames} weight={weight}{mac}{memory}{worker}{owner}"
                );
                answered(&write("create", &line)?, output, json)?;
            }
            Ok(())
        }
        InstancesCommand::Install { name, file, parameters } => {
            let text = if file.as_os_str() == "-" {
                std::io::read_to_string(std::io::stdin().lock())
            } else {
                std::fs::read_to_string(file)
            };
            let text = text
                .map_err(|error| Failure::Usage(format!("`{}` cannot be read: {error}", file.display())))?;
            let head = install_line(name, parameters);
            answered(&write("install", &format!("{head}\n{text}"))?, output, json)
        }
        InstancesCommand::Suspend { name } => answered(&write("suspend", name)?, output, json),
        InstancesCommand::Resume { name } => answered(&write("resume", name)?, output, json),
        InstancesCommand::Destroy { names } => {
            names.iter().try_for_each(|name| answered(&write("destroy", name)?, output, json))
        }
        InstancesCommand::List => list(&read("list", "")?, output, json),
        InstancesCommand::Read { name, words } => {
            answered(&read("read", &format!("{name} {}", words.join(" ")))?, output, json)
        }
        InstancesCommand::Write { name, words } => {
            answered(&write("write", &format!("{name} {}", words.join(" ")))?, output, json)
        }
        InstancesCommand::Handlers { name, elements } => {
            let line = [std::slice::from_ref(name), elements].concat().join(" ");
            answered(&read("handlers", &line)?, output, json)
        }
        InstancesCommand::Switch(SwitchCommand::Show) => show(&read("switch", "")?, output, json),
        InstancesCommand::Switch(SwitchCommand::Map { mac, port }) => {
            answered(&write("map", &format!("{mac} {port}"))?, output, json)
        }
        InstancesCommand::Switch(SwitchCommand::Learning { on }) => {
            answered(&write("learning", &on.to_string())?, output, json)
        }
    }
}

/// The first line of an `install`: values with spaces or other characters that could end it are quoted.
fn install_line(name: &str, parameters: &[String]) -> String {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.starts_with('"');
    parameters.iter().fold(name.to_owned(), |line, one| {
        if is_plain(one) {
            format!("{line} {one}")
        } else {
            format!("{line} {}", quote(one.as_bytes(), false))
        }
    })
}

/// The function that is meant: the one that is named, or the only one.
fn function(api: &dyn Api, named: Option<&str>) -> Result<String, Trouble> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    let known = api.functions()?;
    let mut names =
        known.into_iter().filter(|function| function.definition == "instances").map(|function| function.name);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (Some(first), Some(second)) => {
            let text = format!(
                "several functions have instances: say which by `--function {first}` or `--function {second}`"
            );
            Err(Failure::Usage(text).into())
        }
        _ => {
            let text = "no function `instances` runs: put one into a chain of the file, as `through = [\"instances\"]`";
            Err(Failure::Failed(text.into()).into())
        }
    }
}

fn answered(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    if json {
        return Ok(output.json(answers)?);
    }
    for answer in &answers.answers {
        let lines: String =
            answer.value.lines().map(|line| visible(&line.replace('\t', "  ")) + "\n").collect();
        output.print(&lines)?;
    }
    Ok(())
}

/// The answers of all workers, read.
fn parsed<T: serde::de::DeserializeOwned>(answers: &Answers) -> Result<Vec<T>, Trouble> {
    let read = |answer: &HandlerAnswer| serde_json::from_str(&answer.value);
    let read: Result<Vec<T>, _> = answers.answers.iter().map(read).collect();
    Ok(read.map_err(|error| Failure::Failed(format!("the answer is not understood: {error}")))?)
}

fn as_json(output: &mut Output<'_>, value: &impl serde::Serialize) -> Result<(), Trouble> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(output.print(&format!("{text}\n"))?)
}

/// The switch as a whole: each worker tells of its own part.
fn joined(parts: Vec<Switch>) -> Switch {
    let mut whole = Switch { learning: false, flooded: 0, ports: Vec::new(), addresses: Vec::new() };
    for part in parts {
        whole.learning |= part.learning;
        whole.flooded += part.flooded;
        for port in part.ports {
            match whole.ports.iter_mut().find(|known| known.name == port.name) {
                Some(known) => {
                    known.waiting += port.waiting;
                    known.sent += port.sent;
                    known.received += port.received;
                    known.lost += port.lost;
                }
                None => whole.ports.push(port),
            }
        }
        let new: Vec<Address> =
            part.addresses.into_iter().filter(|address| !whole.addresses.contains(address)).collect();
        whole.addresses.extend(new);
    }
    whole.addresses.sort_by(|one, other| one.mac.cmp(&other.mac));
    whole
}

fn list(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    if json {
        let listed: Vec<serde_json::Value> = parsed::<Vec<_>>(answers)?.into_iter().flatten().collect();
        return as_json(output, &listed);
    }
    let listed: Vec<Instance> = parsed::<Vec<_>>(answers)?.into_iter().flatten().collect();
    let mut table = Table::new(vec![
        ("instance", Align::Left),
        ("owner", Align::Left),
        ("state", Align::Left),
        ("worker", Align::Right),
        ("elements", Align::Right),
        ("ports", Align::Left),
        ("received", Align::Right),
        ("sent", Align::Right),
        ("lost", Align::Right),
        ("dropped", Align::Right),
        ("held", Align::Right),
        ("weight", Align::Right),
        ("memory kB", Align::Right),
        ("used ms", Align::Right),
    ]);
    for one in &listed {
        let sum = |of: fn(&Port) -> u64| thousands(one.ports.iter().map(of).sum());
        table.row(vec![
            one.name.clone(),
            one.owner.clone(),
            one.state.clone(),
            one.worker.to_string(),
            one.elements.to_string(),
            one.ports
                .iter()
                .map(|port| port.mac.clone().unwrap_or_else(|| port.name.clone()))
                .collect::<Vec<_>>()
                .join(" "),
            sum(|port| port.received),
            sum(|port| port.sent),
            sum(|port| port.lost),
            thousands(one.dropped),
            thousands(one.held),
            one.weight.to_string(),
            thousands(one.memory_used.div_ceil(1_000)),
            format!("{:.3}", one.used_ns as f64 / 1e6),
        ]);
    }
    output.print(&table.render())?;
    for one in &listed {
        let panicked = if one.state == "failed" { "panicked: " } else { "" };
        let error = one.error.iter().flat_map(|error| error.lines()).map(|line| format!("{panicked}{line}"));
        for line in error.chain(one.said.iter().cloned()) {
            output.print(&format!("{}: {}\n", one.name, visible(&line)))?;
        }
    }
    Ok(())
}

fn show(answers: &Answers, output: &mut Output<'_>, json: bool) -> Result<(), Trouble> {
    let switch = joined(parsed(answers)?);
    if json {
        return as_json(output, &switch);
    }
    let mut ports = Table::new(vec![
        ("port", Align::Left),
        ("mac", Align::Left),
        ("ring", Align::Right),
        ("waiting", Align::Right),
        ("received", Align::Right),
        ("sent", Align::Right),
        ("lost", Align::Right),
    ]);
    for port in &switch.ports {
        ports.row(vec![
            port.name.clone(),
            port.mac.clone().unwrap_or_default(),
            port.ring.to_string(),
            port.waiting.to_string(),
            thousands(port.received),
            thousands(port.sent),
            thousands(port.lost),
        ]);
    }
    output.print(&ports.render())?;
    let mut addresses = Table::new(vec![("address", Align::Left), ("port", Align::Left), ("", Align::Left)]);
    for address in &switch.addresses {
        let kind = if address.learnt { "learnt" } else { "static" };
        addresses.row(vec![address.mac.clone(), address.port.clone(), kind.into()]);
    }
    output.print(&addresses.render())?;
    let learning = if switch.learning { "learns addresses" } else { "learns no addresses" };
    Ok(output.print(&format!("{learning} · {} packets flooded\n", thousands(switch.flooded)))?)
}

#[cfg(test)]
mod tests {
    use super::super::canned::{Canned, ran};
    use super::*;

    fn answers(values: [&str; 2]) -> Answers {
        let answer = |(worker, value): (usize, &str)| HandlerAnswer {
            worker: Some(worker),
            node: "host".into(),
            value: value.into(),
        };
        let answers = values.into_iter().enumerate().map(answer).collect();
        Answers { function: "host".into(), handler: "list".into(), answers }
    }

    fn shown(print: impl Fn(&mut Output<'_>) -> Result<(), Trouble>) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert!(print(&mut Output::plain(&mut out, &mut err)).is_ok());
        String::from_utf8(out).unwrap()
    }

    const PORT: &str = r#""ring":256,"waiting":0,"sent":3,"received":4,"lost":1"#;

    #[test]
    fn instances_of_all_workers_are_one_list() {
        let one = |name: &str, worker: usize| {
            format!(
                r#"[{{"name":"{name}","owner":"acme","state":"running","worker":{worker},"ports":[{{"name":"{name}.0","mac":"02-00",{PORT}}}],
                "elements":4,"weight":1024,"held":0,"dropped":0,"used_ns":1000}}]"#
            )
        };
        let (first, second) = (one("a", 0), one("b", 1));
        let answers = answers([&first, &second]);
        let text = shown(|output| list(&answers, output, false));
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().take(5).collect()).collect();
        let expected = [
            ["instance", "owner", "state", "worker", "elements"],
            ["a", "acme", "running", "0", "4"],
            ["b", "acme", "running", "1", "4"],
        ];
        assert_eq!(rows, expected);
        let json: Vec<serde_json::Value> =
            serde_json::from_str(&shown(|output| list(&answers, output, true))).unwrap();
        assert_eq!((&json[0]["name"], &json[1]["worker"]), (&"a".into(), &1.into()));
    }

    #[test]
    fn parts_of_the_switch_are_one() {
        let part = |instance: &str, address: &str| {
            format!(
                r#"{{"learning":true,"flooded":5,"ports":[{{"name":"wire","mac":null,{PORT}}},{{"name":"{instance}.0","mac":"m",{PORT}}}],
                "addresses":[{{"mac":"m","port":"a.0","learnt":false}},{{"mac":"{address}","port":"wire","learnt":true}}]}}"#
            )
        };
        let (first, second) = (part("a", "n"), part("b", "l"));
        let answers = answers([&first, &second]);
        let text = shown(|output| show(&answers, output, true));
        let whole: Switch = serde_json::from_str(&text).unwrap();
        let ports: Vec<(&str, u64)> = whole.ports.iter().map(|port| (&*port.name, port.sent)).collect();
        assert_eq!(ports, [("wire", 6), ("a.0", 3), ("b.0", 3)]);
        let addresses: Vec<&str> = whole.addresses.iter().map(|address| &*address.mac).collect();
        assert_eq!((whole.flooded, addresses), (10, vec!["l", "m", "n"]));
        assert!(shown(|output| show(&answers, output, false)).contains("10 packets flooded"));
    }

    #[test]
    fn values_of_an_install_are_quoted_where_they_could_be_read_otherwise() {
        let line = |parameters: &[&str]| {
            install_line("box", &parameters.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line(&[]), "box");
        assert_eq!(line(&["N=3", "RULE=src host 1.2.3.4"]), r#"box N=3 "RULE=src host 1.2.3.4""#);
        assert_eq!(line(&["A=x\n-> Discard;", "B=\"q\" r"]), r#"box "A=x\n-> Discard;" "B=\"q\" r""#);
    }

    #[test]
    fn a_worker_is_passed_on() {
        let api = Canned::default();
        let told = ran(&api, &["instances", "create", "a", "--worker", "1", "--function", "host"]);
        assert_eq!(told.code, 0, "{}", told.err);
        assert_eq!(
            api.asked(),
            ["write host create a ports=1 ring=256 frames=4096 weight=1024 worker=1 None"]
        );
        let told = ran(&api, &["instances", "create", "a", "--worker", "x", "--function", "host"]);
        assert_eq!(told.code, 2, "{}", told.err);
    }
}
