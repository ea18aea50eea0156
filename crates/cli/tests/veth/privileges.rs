//! Ports as a user who is not root, with only the capabilities that README.md names.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::fixture::{Driver, Segment};

/// The command in a directory that any user may read, which is removed with the test.
struct Binary(PathBuf);

impl Binary {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("netbricks-privileges-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the directory for temporary files can be written");
        let binary = Self(directory);
        std::fs::copy(env!("CARGO_BIN_EXE_netbricks"), binary.path()).expect("it was built for this test");
        binary
    }
    fn path(&self) -> PathBuf {
        self.0.join("netbricks")
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The capabilities of README.md's `setcap`, without their `cap_`.
fn documented() -> Vec<&'static str> {
    let readme = include_str!("../../../../README.md");
    let list = readme.split("setcap ").nth(1).and_then(|rest| rest.split("+ep").next());
    let list = list.expect("README.md shows how to grant capabilities");
    list.split(',').map(|name| name.strip_prefix("cap_").expect("the name of a capability")).collect()
}

#[test]
fn readmes_capabilities_run_every_driver_and_all_that_are_missing_are_named() {
    let Some(segment) = Segment::new("privileges", Driver::AfXdp, &["setpriv", "prlimit"]) else { return };
    let binary = Binary::new();
    let file = binary.0.join("run.toml");
    // Each limit of locked memory is below the usual one: a container may not raise its limit.
    let run = |driver: &str, device: &str, more: &str, capabilities: &[&str], locked: &str| {
        let text = format!(
            "[port.lan]\ndriver = \"{driver}\"\ndevice = \"{device}\"\nqueues = 2\n{more}[port.out]\ndriver = \"null\"\n\
             [[chain]]\nfrom = \"lan\"\nto = \"out\"\n[runtime]\nframes = 1024\n"
        );
        let text = if driver == "tap" { text } else { text.replace("queues = 2\n", "") };
        std::fs::write(&file, text).expect("the directory can be written");
        let list = capabilities.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(",");
        let granted = if list.is_empty() {
            "--inh-caps -all --bounding-set -all".to_owned()
        } else {
            format!("--inh-caps -all,{list} --ambient-caps {list}")
        };
        let line = format!(
            "prlimit --memlock={locked}:{locked} setpriv --reuid 65534 --regid 65534 --clear-groups {granted} {} run {} \
             --duration 300ms --color never",
            binary.path().display(),
            file.display()
        );
        let output = segment.namespaces.attempt("middle", &line);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let steer = "steer = [{ protocol = \"udp\", queue = 1 }]\n";
    let drivers = [
        ("af_packet", "b0", ""),
        ("af_xdp", "b0", ""),
        ("af_xdp", "b0", "kernel = [\"arp\", \"tcp/22\", \"icmp\"]\n"),
        ("tap", "t9", ""),
        ("tap", "t9", steer),
    ];
    let all = documented();
    // On most hosts, every user may open it.
    let mode = std::fs::metadata("/dev/net/tun").map_or(0, |file| file.permissions().mode());
    for (driver, device, more) in drivers {
        if driver == "tap" && mode & 0o006 != 0o006 {
            let (well, said) = run(driver, device, more, &all, "65536");
            assert!(!well && said.contains("allowed to read and write it"), "{said}");
            eprintln!("partly skipped: /dev/net/tun is for root alone");
            continue;
        }
        let (well, said) = run(driver, device, more, &all, "65536");
        assert!(well, "{driver} {more}: {said}");
    }
    // Without the capability to lock memory, and with a limit that is too small for the pool.
    let some: Vec<_> = all.iter().copied().filter(|name| *name != "ipc_lock").collect();
    let (well, said) = run("af_xdp", "b0", "", &some, "65536");
    assert!(!well && said.contains("lacks CAP_IPC_LOCK") && said.contains("ulimit -l"), "{said}");
    // All missing capabilities are named at once.
    let (well, said) = run("af_xdp", "b0", "", &["net_raw"], "65536");
    assert!(!well && said.contains("lacks CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK"), "{said}");
    assert!(said.contains("setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep"), "{said}");
    let (well, said) = run("af_xdp", "b0", "", &[], "65536");
    assert!(!well && said.contains("lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK"), "{said}");
}
