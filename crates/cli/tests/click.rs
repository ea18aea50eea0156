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
fn the_command_exits_with_the_code_of_the_script() {
    let directory = scratch("click-code");
    let configuration = "s :: Script(TYPE PASSIVE, return $N); Script(stop)";
    for (value, code) in [("3", 3), ("0", 0), ("true", 0), ("false", 1), ("words", 255)] {
        let parameter = format!("N={value}");
        let output = run(&directory, &["click", "-e", configuration, &parameter, "-x", "s.run"]);
        assert_eq!(told(&output).0, Some(code), "{value}: {output:?}");
    }
}

#[test]
fn a_seeded_run_encrypts_the_same_again() {
    let directory = scratch("click-seed");
    let key = "\\<000102030405060708090a0b0c0d0e0f>";
    let text = |file: &str| {
        format!(
            "a :: RadixIPsecLookup(10.0.0.0/8 192.0.2.2 1 7 {key} {key} 1 64); a[0] -> Discard;
             InfiniteSource(DATA words, LIMIT 3, STOP true) -> UDPIPEncap(1.1.1.1, 5, 10.9.9.9, 7) -> a;
             a[1] -> IPsecESPEncap -> IPsecAES(1) -> ToDump({file});"
        )
    };
    let sent = |file: &str, seed: &str| {
        let output = run(&directory, &["click", "--simtime", "--seed", seed, "-e", &text(file)]);
        assert_eq!(told(&output).0, Some(0), "{output:?}");
        std::fs::read(directory.join(file)).expect("a capture")
    };
    assert_eq!(sent("a.pcap", "7"), sent("b.pcap", "7"));
    assert_ne!(sent("a.pcap", "7"), sent("b.pcap", "8"));
}

#[test]
fn the_command_says_that_it_opens_no_devices() {
    let directory = scratch("click-devices");
    for (configuration, device) in [
        ("FromDevice(lo) -> c :: Counter -> ToDevice(lo)", "lo"),
        ("InfiniteSource -> Queue -> ToDevice(eth7)", "eth7"),
        ("KernelTun(10.0.0.1/24, DEVNAME tun3) -> Discard", "tun3"),
    ] {
        let said = format!(
            "the configuration names the device `{device}`, and this command opens none: use `netbricks run FILE.click`, \
             which makes a port of each device\n"
        );
        let output = run(&directory, &["click", "-e", configuration]);
        assert_eq!(told(&output), (Some(1), String::new(), said), "{configuration}");
        // A check of the configuration opens none either.
        let output = run(&directory, &["click", "-q", "-e", configuration]);
        assert_eq!(told(&output).0, Some(0), "{configuration}: {output:?}");
    }
}

#[test]
fn a_configuration_that_cannot_start_fails_the_run() {
    let directory = scratch("click-start");
    let file = r#"
[port.lan]
driver = "generator"
packets = 1_000
[port.wan]
driver = "null"
[runtime]
workers = 1
[function.box]
use = "click"
capabilities = ["files"]
text = "FromDevice(lan) -> ToDevice(wan); FromDump(/nonexistent/x.pcap) -> Discard"
[[chain]]
from = "lan"
through = ["box"]
to = "wan"
"#;
    std::fs::write(directory.join("box.toml"), file).expect("a file");
    let output = run(&directory, &["run", "box.toml", "--json"]);
    let (code, report, said) = told(&output);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(" cannot do its work on worker 0: its Click configuration cannot start: "),
        "{said}"
    );
    assert!(said.contains("/nonexistent/x.pcap: No such file or directory"), "{said}");
    let report: serde_json::Value = serde_json::from_str(&report).expect("one JSON value");
    assert_eq!(report["conserved"], true, "{report}");
    assert_eq!(report["dropped"]["quarantined"], 1_000, "{report}");
    assert_eq!(report["failures"].as_array().map(Vec::len), Some(1), "{report}");
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
    // It has parameters, and devices of the host.
    std::fs::write(
        directory.join("host.click"),
        "FromHost(fake9, 10.78.0.1/24) -> Paint($COLOUR) -> ToDevice($DEV); FromDevice($DEV) -> ToHost(fake9);\n",
    )
    .expect("a file");
    let (code, out, said) = told(&run(&directory, &["check", "host.click", "DEV=b0", "COLOUR=3"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("2 ports · 2 chains · 1 function"), "{out}");
    let (code, _, said) = told(&run(&directory, &["check", "host.click", "DEV=b0", "COLOUR=blue"]));
    assert_eq!(code, Some(2), "{said}");
    let (code, _, said) = told(&run(&directory, &["check", "host.toml", "DEV=b0"]));
    assert_eq!(code, Some(2), "{said}");
    std::fs::write(directory.join("host.toml"), "").expect("a file");
    let (code, _, said) = told(&run(&directory, &["run", "host.toml", "DEV=b0"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`DEV=b0` is for a Click configuration"), "{said}");
}

/// A capture (pcap, microseconds) of UDP packets whose IP identification is 0 to 7.
fn numbered_packets() -> Vec<u8> {
    let mut file: Vec<u8> = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for number in 0..8_u8 {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend_from_slice(&[0x45, 0, 0, 46, 0, number, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(60, 0);
        for word in [1_000, u32::from(number), 60, 60] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&frame);
    }
    file
}

#[test]
fn a_replay_goes_packet_by_packet() {
    let directory = scratch("click-exact");
    std::fs::write(directory.join("in.pcap"), numbered_packets()).expect("a file");
    let configuration = "FromDevice(lan) -> c :: Classifier(19/00%01, -); c[0] -> join :: Counter; c[1] -> join; \
                         join -> Queue(100) -> Unqueue(2) -> ToDevice(lan)";
    let numbers = |setting: &str, burst: u32| {
        let file = format!(
            "[port.lan]\ndriver = \"pcap\"\nread = \"in.pcap\"\nwrite = \"out.pcap\"\n[runtime]\nworkers = 1\nburst = {burst}\n\
             [function.box]\nuse = \"click\"\n{setting}text = \"{configuration}\"\n[[chain]]\nfrom = \"lan\"\n\
             through = [\"box\"]\nto = \"lan\"\n"
        );
        std::fs::write(directory.join("box.toml"), file).expect("a file");
        let output = run(&directory, &["run", "box.toml"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let written = std::fs::read(directory.join("out.pcap")).expect("a capture");
        written[24..].chunks(76).map(|record| record[16 + 19]).collect::<Vec<u8>>()
    };
    // By itself a replay is exact, as if each batch were of one packet.
    assert_eq!(numbers("", 32), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(numbers("", 32), numbers("exact = false\n", 1));
    assert_eq!(numbers("exact = true\n", 32), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Bursts do not show either, where ways part and meet again.
    assert_eq!(numbers("exact = false\n", 32), [0, 1, 2, 3, 4, 5, 6, 7]);
}
