//! Sockets and state directories: which run listens where, and what stands in its way.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use netbricks_testkit::namespace::{eventually, has};

use super::dataplane::{Directory, FILE, Run, SOCKET, STATE, Told};

/// A directory with a short path that every user may enter; it is removed with the test.
struct Short(PathBuf);

impl Short {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nb-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the directory for temporary files can be written");
        Self(path)
    }
}

impl Drop for Short {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command of a user whose sockets lie in `home`.
fn netbricks(directory: &Directory, home: &Short, arguments: &[&str]) -> Command {
    let mut command = directory.netbricks(arguments);
    command.env("XDG_RUNTIME_DIR", &home.0);
    command
}

#[test]
fn a_client_lists_the_sockets_where_several_runs_listen_and_takes_the_only_one() {
    let (home, first, second) =
        (Short::new("several"), Directory::new("several-a"), Directory::new("several-b"));
    let ask = |arguments: &[&str]| Told::of(&mut netbricks(&first, &home, arguments));
    let socket = |name: &str| home.0.join("netbricks").join(name);
    let start = |directory: &Directory, file: &str, name: &str| -> Run {
        directory.write(file, FILE);
        let mut run = directory.begin(netbricks(directory, &home, &["run", file]));
        let path = socket(name).display().to_string();
        eventually("a run's answer", || {
            assert!(run.is_running(), "{}", run.said());
            ask(&["status", "--socket", &path]).code == Some(0)
        });
        run
    };
    let mut lan = start(&first, "lan.toml", "lan.sock");
    assert!(ask(&["status"]).well().starts_with("graph          lan\n"));
    let mut wan = start(&second, "wan.toml", "wan.sock");
    let said = ask(&["status"]).failed(1);
    for name in ["lan.sock", "wan.sock"] {
        assert!(said.contains(&socket(name).display().to_string()), "{said}");
    }
    // Another run of the same name takes a name with its process.
    let third = Directory::new("several-c");
    third.write("lan.toml", FILE);
    let mut other = third.begin(netbricks(&third, &home, &["run", "lan.toml"]));
    let path = socket(&format!("lan.{}.sock", other.id())).display().to_string();
    eventually("the answer of the second `lan`", || {
        assert!(other.is_running(), "{}", other.said());
        ask(&["status", "--socket", &path]).code == Some(0)
    });
    for (run, name) in [(&mut other, path.clone()), (&mut lan, socket("lan.sock").display().to_string())] {
        ask(&["stop", "--socket", &name]).well();
        run.report();
    }
    assert!(ask(&["status"]).well().starts_with("graph          wan\n"));
    wan.kill();
    assert!(ask(&["status"]).failed(1).contains("netbricks run"));
}

#[test]
fn a_start_from_the_state_directory_keeps_the_name_of_the_socket() {
    let (home, directory) = (Short::new("kept-name"), Directory::new("kept-name"));
    directory.write("next.toml", &FILE.replace("[\"routes\"", "[\"ttl\", \"routes\""));
    let socket = |name: &str| home.0.join("netbricks").join(name);
    let ask = |arguments: &[&str], socket: &str| {
        Told::of(&mut netbricks(&directory, &home, &[arguments, &["--socket", socket]].concat()))
    };
    let start = |arguments: &[&str], name: &str| -> Run {
        let mut run = directory.begin(netbricks(&directory, &home, &[&["run"], arguments].concat()));
        let path = socket(name).display().to_string();
        eventually("a run's answer", || {
            assert!(run.is_running(), "{}", run.said());
            ask(&["status"], &path).code == Some(0)
        });
        run
    };
    let mut run = start(&["edge.toml", "--state", STATE], "edge.sock");
    ask(&["apply", "next.toml"], &socket("edge.sock").display().to_string()).well();
    run.kill();
    let mut run = start(&["--state", STATE], "edge.sock");
    let status = ask(&["status"], &socket("edge.sock").display().to_string()).well();
    assert!(status.starts_with("graph          edge\n") && status.contains("next.toml"), "{status}");
    run.kill();
    // Another name was asked for, and the dead socket goes.
    let _run = start(&["next.toml", "--state", STATE], "next.sock");
    assert!(!socket("edge.sock").exists());
}

#[test]
fn a_socket_and_a_state_directory_in_use_name_the_process() {
    let directory = Directory::new("in-use");
    let run = directory.run(&["edge.toml", "--state", STATE]);
    let process = format!("process {}", run.id());
    let other = |arguments: &[&str]| {
        Told::of(&mut directory.netbricks(&[&["run", "edge.toml"], arguments].concat())).failed(1)
    };
    let said = other(&["--socket", SOCKET]);
    assert!(said.contains(&format!("`{SOCKET}` is in use by {process}")), "{said}");
    let said = other(&["--socket", "other.sock", "--state", STATE]);
    assert!(said.contains("state directory") && said.contains(&process), "{said}");
    directory.write("file.sock", "no socket");
    let said = other(&["--socket", "file.sock"]);
    assert!(said.contains("`file.sock` is there, and is no socket"), "{said}");
    assert_eq!(directory.json(&["status"])["pid"], run.id(), "the first one goes on");
}

#[test]
fn a_start_without_a_file_and_without_a_state_says_what_to_give() {
    let directory = Directory::new("no-state");
    let said = Told::of(&mut directory.netbricks(&["run"])).failed(2);
    assert!(said.contains("--state"), "{said}");
    let said = Told::of(&mut directory.netbricks(&["run", "--state", "empty"])).failed(1);
    assert!(said.contains("`empty`") && said.contains("start once with a file"), "{said}");
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named_with_the_user() {
    let home = Short::new("read-only");
    let (file, state) = (home.0.join("edge.toml"), home.0.join("state"));
    std::fs::write(&file, FILE).expect("the directory can be written");
    std::fs::create_dir(&state).expect("the directory can be written");
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o555)).expect("it is this user's");
    let binary = home.0.join("netbricks");
    std::fs::copy(env!("CARGO_BIN_EXE_netbricks"), &binary).expect("it was built for this test");
    let is_root = std::fs::write(state.join("probe"), "").is_ok();
    let mut command = if is_root && has("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary);
        command
    } else if is_root {
        eprintln!("skipped: as root, needs the command `setpriv`");
        return;
    } else {
        Command::new(&binary)
    };
    let _ = std::fs::remove_file(state.join("probe"));
    command.arg("run").arg(&file).arg("--state").arg(&state).current_dir(&home.0);
    command.arg("--socket").arg(home.0.join("s.sock"));
    let said = Told::of(&mut command).failed(1);
    assert!(said.contains(&format!("{}", state.display())) && said.contains("must be writable"), "{said}");
    assert!(!is_root || said.contains("65534"), "{said}");
}
