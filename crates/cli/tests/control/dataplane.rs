//! A run of the command in a directory of its own, and the commands that ask it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use netbricks_testkit::namespace::eventually;
use serde_json::Value;

/// The socket's name in the directory. Relative, because a socket's path has at most 107 bytes.
pub(crate) const SOCKET: &str = "s.sock";
/// The state directory's name in the directory.
pub(crate) const STATE: &str = "state";
/// The longest time that a run may take to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A configuration of two functions with handlers, at a rate that takes little of a core.
pub(crate) const FILE: &str = r#"
[port.lan]
driver = "generator"
rate = "1 kpps"
clock = "real"
[port.wan]
driver = "null"
[function.routes]
use = "lpm"
routes = ["0.0.0.0/0 1"]
[function.balance]
use = "maglev"
backends = ["web1 02:00:00:00:00:01", "web2 02:00:00:00:00:02"]
slots = 1_009
[[chain]]
from = "lan"
through = ["routes", "balance"]
to = "wan"
[runtime]
frames = 512
workers = 1
idle = "quiet"
"#;

/// The directory of a test, in which its commands run.
#[derive(Clone)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// A fresh directory with the file `edge.toml`, which has [`FILE`].
    pub(crate) fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("control-{test}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the target directory can be written");
        let directory = Self(path);
        directory.write("edge.toml", FILE);
        directory
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("the test's directory can be written");
    }
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// The command, with an environment that names no dataplane.
    pub(crate) fn netbricks(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netbricks"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
        for name in
            ["NETBRICKS_SOCKET", "NETBRICKS_TOKEN", "NETBRICKS_TOKEN_FILE", "NETBRICKS_LOG", "NOTIFY_SOCKET"]
        {
            command.env_remove(name);
        }
        command
    }

    /// The command as a client of the run on [`SOCKET`].
    pub(crate) fn client(&self, arguments: &[&str]) -> Command {
        let mut command = self.netbricks(arguments);
        command.env("NETBRICKS_SOCKET", SOCKET);
        command
    }

    /// Asks the run on [`SOCKET`].
    pub(crate) fn ask(&self, arguments: &[&str]) -> Told {
        Told::of(&mut self.client(arguments))
    }

    /// Asks the run on [`SOCKET`] by a command that must succeed; returns its JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.ask(&[arguments, &["--json"]].concat()).json()
    }

    /// The file that runs, without the comments on what handlers changed since.
    pub(crate) fn config(&self) -> String {
        let text = self.ask(&["config"]).well();
        text.split("\n# Changed live").next().unwrap_or_default().to_owned()
    }

    /// Starts a run that listens on [`SOCKET`]; returns when it answers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let mut run = self.begin(self.netbricks(&[&["run", "--socket", SOCKET], arguments].concat()));
        run.answers();
        run
    }

    /// Starts this command, whose output goes to the files `report` and `said`.
    pub(crate) fn begin(&self, mut command: Command) -> Run {
        let file = |name| File::create(self.0.join(name)).expect("the test's directory can be written");
        command.stdout(file("report")).stderr(file("said"));
        let child = command.spawn().expect("the binary was built for this test");
        Run { child, directory: self.clone() }
    }
}

/// The output of a command that has ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Told {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::from(command.output().expect("the binary was built for this test"))
    }

    /// Its standard output, after a success.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The one JSON value on its standard output, after a success.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.well();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Its standard error, after a failure with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.err
    }
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A run, which ends with the test at the latest.
pub(crate) struct Run {
    child: Child,
    directory: Directory,
}

impl Run {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
    /// Its standard error so far.
    pub(crate) fn said(&self) -> String {
        self.directory.read("said")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it answers on [`SOCKET`], and returns its status.
    pub(crate) fn answers(&mut self) -> Value {
        let mut status = Value::Null;
        eventually("an answer of the run", || {
            if let Ok(Some(ended)) = self.child.try_wait() {
                panic!("it ended with {ended}: {}", self.said());
            }
            let told = self.directory.ask(&["status", "--json"]);
            status = serde_json::from_str(&told.out).unwrap_or_default();
            status["pid"] == self.id()
        });
        status
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name}");
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it is a child");
    }

    /// Waits for its end. A run that does not end is killed, and the test fails.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("process {} has not ended within {PATIENCE:?}: {}", self.id(), self.said());
    }

    /// Waits for its end, which must be a good one, and returns its report as text.
    pub(crate) fn report(&mut self) -> String {
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.said());
        self.directory.read("report")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
