//! Click's commands, and Click configurations in chain files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netbricks"));
    command.args(arguments).current_dir(directory).output().expect("the command was built")
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_command_runs_a_configuration_and_reads_handlers() {
    let directory = scratch("click-command");
    let configuration = "InfiniteSource(LIMIT $N, STOP true) -> c :: Counter -> Discard";
    let output = run(&directory, &["click", "-e", configuration, "N=7", "-h", "c.count", "-h", "c.class"]);
    assert_eq!(told(&output), (Some(0), "c.count:\n7\n\nc.class:\nCounter\n\n".into(), String::new()));
    let output = run(&directory, &["click", "-e", "Idle -> x :: Nothing -> Discard"]);
    assert_eq!(told(&output), (Some(1), String::new(), "config:1: unknown element class 'Nothing'\n".into()));
    let output = run(&directory, &["click", "missing.click"]);
    assert_eq!(told(&output), (Some(1), String::new(), "missing.click: No such file or directory\n".into()));
    let output = run(&directory, &["click", "--simtime", "-e", "Script(wait 10000s, print $(now), stop)"]);
    assert_eq!(told(&output).1.get(..11), Some("1000010000."), "{output:?}");
}

#[test]
fn by_its_name_the_program_is_clicks() {
    let directory = scratch("click-names");
    for name in ["click", "click-flatten", "click-buildtool"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_netbricks"), directory.join(name)).expect("a link");
    }
    let call = |name: &str, arguments: &[&str]| {
        told(&Command::new(directory.join(name)).args(arguments).output().expect("the command was built"))
    };
    let (code, flat, _) = call("click-flatten", &["-e", "Idle -> { input -> Null -> output } -> Discard"]);
    assert_eq!(code, Some(0));
    assert!(flat.contains(":: Null;") && !flat.contains('{'), "{flat}");
    assert_eq!(call("click-buildtool", &["provides", "IPFilter"]).0, Some(0));
    assert_eq!(call("click-buildtool", &["provides", "NoSuchElement"]).0, Some(1));
    assert_eq!(call("click", &["-q", "-e", "Idle -> Discard"]).0, Some(0));
}

#[test]
fn a_configuration_is_a_function_with_ports() {
    let directory = scratch("click-chain");
    let file = r#"
[port.lan]
driver = "generator"
packets = 20_000
protocol = "mix"
[port.wan]
driver = "null"
[port.other]
driver = "null"
[runtime]
workers = 1
[function.box]
use = "click"
config = "box.click"
[[chain]]
from = "lan"
through = ["box"]
to = "wan"
[[chain]]
from = "box.1"
to = "other"
"#;
    let configuration = "FromDevice(lan) -> Strip(14) -> CheckIPHeader -> c :: IPClassifier(udp, -);\n\
                         c[0] -> Unstrip(14) -> Queue(500) -> Unqueue(32) -> ToDevice(wan);\n\
                         c[1] -> Unstrip(14) -> ToDevice(other);\n";
    std::fs::write(directory.join("box.toml"), file).expect("a file");
    std::fs::write(directory.join("box.click"), configuration).expect("a file");
    let output = run(&directory, &["run", "box.toml", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(report["conserved"], true, "{report}");
    let port = |name: &str| {
        let ports = report["ports"].as_array().expect("ports");
        let port = ports.iter().find(|port| port["name"] == name).expect("the port");
        port["sent"]["packets"].as_u64().or(port["sent"].as_u64()).expect("a count")
    };
    assert_eq!(port("wan") + port("other"), 20_000);
    assert!(port("wan") > 1_000 && port("other") > 1_000);
    std::fs::write(directory.join("box.click"), "FromDevice(lan) -> Nonsense() -> ToDevice(wan);\n")
        .expect("a file");
    let (code, _, said) = told(&run(&directory, &["check", "box.toml"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("box.click:1: undeclared element 'Nonsense'"), "{said}");
}

#[test]
fn a_click_file_runs_as_it_is() {
    let directory = scratch("click-file");
    std::fs::write(directory.join("nowhere.click"), "Idle -> Discard;\n").expect("a file");
    let (code, _, said) = told(&run(&directory, &["check", "nowhere.click"]));
    assert_eq!(code, Some(2));
    assert!(said.contains("names no device: run it with `netbricks click nowhere.click`"), "{said}");
    std::fs::write(
        directory.join("wire.click"),
        "FromDevice(a0) -> ToDevice(b0); FromDevice(b0) -> ToDevice(a0);\n",
    )
    .expect("a file");
    let (code, out, said) = told(&run(&directory, &["check", "wire.click"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("2 ports · 2 chains · 1 function"), "{out}");
}
