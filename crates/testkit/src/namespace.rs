//! A network for one test: namespaces joined by veth pairs, and processes in them.
//!
//! Everything is removed when the fixture is dropped, also when a test panics.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Namespaces with unique names, one for each role in a test.
///
/// Addresses are ready at once: duplicate address detection and router solicitations are off.
#[derive(Debug)]
pub struct Namespaces {
    prefix: String,
    names: Vec<String>,
}

/// Whether this process may make namespaces and has the commands that tests call; prints what is missing.
pub fn is_possible(commands: &[&str]) -> bool {
    // A process's folder belongs to its effective user.
    if std::fs::metadata("/proc/self").map(|folder| folder.uid()).ok() != Some(0) {
        eprintln!("skipped: needs root");
        return false;
    }
    for command in ["ip", "sysctl", "ethtool"].iter().chain(commands) {
        if !has(command) {
            eprintln!("skipped: needs root and the command `{command}`, which is not installed");
            return false;
        }
    }
    if !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: needs root and /dev/net/tun");
        return false;
    }
    true
}

/// Whether a command is installed in a directory for users or administrators.
pub fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(command).is_file())
}

impl Namespaces {
    /// One namespace for each role; `None`, with a printed line, if the test cannot run.
    pub fn new(roles: &[&str], commands: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !is_possible(commands) {
            return None;
        }
        let prefix = format!("nbt{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut namespaces = Self { prefix, names: Vec::new() };
        for role in roles {
            let name = namespaces.name(role);
            let added = output(Command::new("ip").args(["netns", "add", &name]));
            assert!(added.status.success(), "ip netns add {name}: {}", text(&added.stderr));
            namespaces.names.push(name);
            namespaces.run(
                role,
                "sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0",
            );
            namespaces.run(role, "ip link set lo up");
        }
        Some(namespaces)
    }

    /// The namespace of a role.
    pub fn name(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }

    /// A command that will run in a role's namespace, as the process that is started, so that signals reach
    /// it.
    pub fn command(&self, role: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(role), program]);
        command
    }

    /// Runs a command, its words separated by single spaces; the test must look at its exit status.
    pub fn attempt(&self, role: &str, line: &str) -> Output {
        // With a time limit, since a test that waits for ever tells nothing.
        let mut command = Command::new("timeout");
        command.args([
            "--kill-after=5",
            &LONGEST.as_secs().to_string(),
            "ip",
            "netns",
            "exec",
            &self.name(role),
        ]);
        let output = output(command.args(line.split(' ')));
        assert_ne!(output.status.code(), Some(124), "{role}: {line}: not within {LONGEST:?}");
        output
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn run(&self, role: &str, line: &str) -> String {
        let output = self.attempt(role, line);
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{role}: {line}: {}: {errors}{said}", output.status);
        said
    }

    /// Joins two roles by a pair of interfaces, both up.
    pub fn veth(&self, (role, device): (&str, &str), (other_role, other): (&str, &str)) {
        let there = self.name(other_role);
        self.run(role, &format!("ip link add name {device} type veth peer name {other} netns {there}"));
        self.run(role, &format!("ip link set dev {device} up"));
        self.run(other_role, &format!("ip link set dev {other} up"));
    }

    /// Starts a process in a role's namespace; its output goes to `stdout` and `stderr`.
    pub fn start(
        &self,
        role: &str,
        program: &str,
        arguments: &[&str],
        stdout: File,
        stderr: File,
    ) -> Process {
        match self.command(role, program).args(arguments).stdout(stdout).stderr(stderr).spawn() {
            Ok(child) => Process(child),
            Err(error) => panic!("{program} does not start in {role}: {error}"),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // Processes that are still there were started by the test, or by a process of the test.
            let left = Command::new("ip").args(["netns", "pids", name]).output();
            for id in left
                .iter()
                .flat_map(|output| text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>())
            {
                let _ = Command::new("kill").args(["-KILL", &id]).output();
            }
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// A process that ends with the test at the latest.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
    /// Sends a signal by name: `"INT"`, `"KILL"`.
    pub fn signal(&self, name: &str) {
        let sent = output(Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]));
        assert!(sent.status.success(), "kill -{name} {}: {}", self.id(), text(&sent.stderr));
    }
    /// Waits for its end. A process that does not end is killed, and the test fails.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.0.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("process {} cannot be waited for: {error}", self.id()),
            }
        }
        panic!("process {} has not ended within {PATIENCE:?}", self.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The longest time that any condition may take to hold, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The longest time that a command may take that transfers data.
const LONGEST: Duration = Duration::from_secs(660);

/// Waits until a condition holds, for at most two minutes.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn output(command: &mut Command) -> Output {
    match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{command:?} does not start: {error}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_no_namespace_and_no_process() {
        let Some(namespaces) = Namespaces::new(&["one", "two"], &[]) else { return };
        namespaces.veth(("one", "a"), ("two", "b"));
        let name = namespaces.name("one");
        let sleeper = namespaces.command("one", "sleep").arg("1000").spawn();
        let Ok(mut sleeper) = sleeper else { panic!("sleep does not start") };
        let pids = || text(&output(Command::new("ip").args(["netns", "pids", &name])).stdout);
        eventually("the process's start", || pids().contains(&sleeper.id().to_string()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _owned = namespaces;
            std::panic::resume_unwind(Box::new("a test fails"));
        }));
        assert!(panicked.is_err());
        assert!(sleeper.wait().is_ok_and(|status| !status.success()), "it was killed");
        assert!(!text(&output(Command::new("ip").args(["netns", "list"])).stdout).contains(&name));
    }
}
