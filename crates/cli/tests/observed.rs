//! Traces and captures of a running dataplane, through its socket.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const FILE: &str = "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\nflows = 4\n[port.out]\ndriver = \"null\"\n\
                    [[chain]]\nfrom = \"lan\"\nthrough = [\"ttl\"]\nto = \"out\"\n[runtime]\nworkers = 2\n";

/// A run of generated packets; it ends with this.
struct Run {
    child: Child,
    socket: PathBuf,
}

impl Run {
    fn begin() -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("observed");
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let (file, socket) = (directory.join("edge.toml"), directory.join("s.sock"));
        std::fs::write(&file, FILE).expect("the directory can be written");
        let _left_over = std::fs::remove_file(&socket);
        let child = Command::new(env!("CARGO_BIN_EXE_netbricks"))
            .args(["run", "--quiet", "--socket"])
            .args([&socket, &file])
            .stdout(Stdio::null())
            .spawn()
            .expect("the command was built");
        let run = Self { child, socket };
        while !run.ask(&["status"]).status.success() {
            std::thread::yield_now();
        }
        run
    }
    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netbricks"));
        command.args(arguments).arg("--socket").arg(&self.socket).output().expect("the command was built")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn packets_are_traced_and_captured_while_they_move() {
    let run = Run::begin();
    let traced = run.ask(&["trace", "udp", "or", "tcp", "--count", "2"]);
    let (out, err) = (text(&traced.stdout), text(&traced.stderr));
    assert!(traced.status.success(), "{err}");
    assert_eq!(out.matches("  ttl       ipv4.time_to_live ").count(), 2, "{out}");
    assert_eq!(out.matches("  sent      out\n").count(), 2, "{out}");
    // Either worker may hold the first packets that pass the filter.
    assert_eq!(out.lines().filter(|line| line.contains("  lan queue ")).count(), 2, "{out}");

    let file = run.socket.with_file_name("taken.pcapng");
    let file = file.to_str().expect("a path of text");
    let captured = run.ask(&["capture", "ip", "--at", "lan", "--count", "5", "-w", file]);
    assert!(captured.status.success(), "{}", text(&captured.stderr));
    let bytes = std::fs::read(file).expect("the capture is there");
    assert_eq!((&bytes[..4], text(&bytes).matches("arrives at lan").count()), (&[10, 13, 13, 10][..], 5));
    let piped = run.ask(&["capture", "--at", "ttl", "--count", "3", "-w", "-"]);
    assert!(text(&piped.stdout).contains("arrives at ttl"), "{}", text(&piped.stderr));

    let wrong = run.ask(&["trace", "tcp prot 80"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `port`?"), "{}", text(&wrong.stderr));
    let nowhere = run.ask(&["trace", "--at", "tll"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("did you mean `ttl`?"), "{}", text(&nowhere.stderr));
    assert!(run.ask(&["stop"]).status.success());
}
