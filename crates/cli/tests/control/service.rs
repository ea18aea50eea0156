//! A run under a service manager, which it tells of its readiness, of its life and of its end.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use super::dataplane::Directory;

/// The service manager's end of `NOTIFY_SOCKET`.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nb-notify-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).expect("the directory for temporary files can be written");
        // So that a failing test ends.
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("it is no zero");
        Self { socket, path }
    }

    /// Waits for a message with this line, and returns the lines until then.
    fn hears(&self, line: &str) -> Vec<String> {
        let mut heard = Vec::new();
        let mut bytes = [0; 4096];
        while !heard.iter().any(|known| known == line) {
            let length = loop {
                match self.socket.recv(&mut bytes) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    length => break length,
                }
            };
            let length = length.unwrap_or_else(|error| panic!("no `{line}`: {error}; heard {heard:?}"));
            heard.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(str::to_owned));
        }
        heard
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_service_manager_hears_that_the_run_is_ready_that_it_lives_and_that_it_stops() {
    for end in ["TERM", "stop"] {
        let (directory, manager) = (Directory::new(&format!("service-{end}")), Manager::new(end));
        let mut command = directory.netbricks(&["run", "edge.toml", "--socket", super::dataplane::SOCKET]);
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "2000000");
        let mut run = directory.begin(command);
        let first = manager.hears("READY=1");
        assert!(!first.iter().any(|line| line.starts_with("STOPPING")), "{first:?}");
        // It answers from that moment on.
        directory.ask(&["status"]).well();
        for _ in 0..2 {
            manager.hears("WATCHDOG=1");
        }
        match end {
            "TERM" => run.signal("TERM"),
            _ => _ = directory.ask(&["stop"]).well(),
        }
        manager.hears("STOPPING=1");
        run.report();
    }
}

#[test]
fn a_service_manager_that_hears_nothing_does_not_hinder_a_run() {
    let directory = Directory::new("service-deaf");
    let mut command = directory.netbricks(&["run", "edge.toml", "--duration", "100ms"]);
    command.env("NOTIFY_SOCKET", directory.path().join("nobody"));
    let mut run = directory.begin(command);
    assert!(run.report().trim_end().ends_with("every packet accounted for"));
}
