//! A port leaves nothing on the machine when its process is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use netbricks_buffer::Pool;

use super::fixture::{Lab, enter, eventually, open};

const CHILD: &str = "NETBRICKS_LIVE_CHILD";

/// The process that the other tests kill, which is not a test of its own.
///
/// It opens the ports that its environment names.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let mut orders = orders.splitn(2, '\n');
    let namespace = orders.next().unwrap();
    if !namespace.is_empty() {
        enter(namespace);
    }
    let pool = Pool::builder().frames(2048).for_device(true).build().unwrap();
    let mut ports = Vec::new();
    for text in orders.next().unwrap().split("---") {
        match open("port", text, &pool, 1) {
            Ok(port) => ports.push(port),
            Err(error) => {
                println!("\nerror {error}");
                return;
            }
        }
    }
    println!("\nready");
    std::thread::sleep(std::time::Duration::from_secs(900));
    drop(ports);
}

/// Starts the child; answers the child, its first line, and its output.
///
/// The output must be kept open while the child runs.
pub(crate) fn start(
    lab: &Lab,
    role: &str,
    ports: &str,
    wrapper: &[&str],
) -> (std::process::Child, String, impl Iterator<Item = String> + use<>) {
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<String> = wrapper.iter().map(ToString::to_string).collect();
    words.push(program.to_str().unwrap().to_owned());
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args(["--exact", "leaving::child", "--nocapture"])
        // Empty if the wrapper enters the namespace itself.
        .env(CHILD, format!("{}\n{ports}", if wrapper.is_empty() { lab.name(role) } else { String::new() }))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.starts_with("ready") || line.starts_with("error")).unwrap_or_default();
    (child, said, lines)
}

#[test]
fn kill_9_leaves_nothing() {
    let Some(lab) = Lab::new(&["box", "far"]) else { return };
    for device in ["b0", "b1", "b2"] {
        lab.veth(("box", device), ("far", &device.replace('b', "f")));
    }
    let ports = [
        "driver = \"af_xdp\"\ndevice = \"b0\"",
        "driver = \"af_xdp\"\ndevice = \"b1\"\nattach = \"generic\"",
        "driver = \"af_packet\"\ndevice = \"b2\"",
        "driver = \"tap\"\ndevice = \"t0\"",
    ];
    let show = |device: &str| lab.run("box", &format!("ip -d link show {device}"));
    let (mut child, said, _output) = start(&lab, "box", &ports.join("---"), &[]);
    assert_eq!(said, "ready");
    // First check that it existed at all.
    assert!(show("b0").contains("xdp") && show("b1").contains("xdpgeneric"), "{}", show("b0"));
    for device in ["b0", "b1", "b2"] {
        assert!(show(device).contains("promiscuity 1"), "{}", show(device));
    }
    assert!(lab.try_run("box", "ip link show t0").status.success());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the XDP programs' end", || !show("b0").contains("xdp") && !show("b1").contains("xdp"));
    eventually("the promiscuous modes' end", || {
        ["b0", "b1", "b2"].iter().all(|device| show(device).contains("promiscuity 0"))
    });
    eventually("the TAP's end", || !lab.try_run("box", "ip link show t0").status.success());
}
