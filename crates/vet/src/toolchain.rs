//! The compiler and cargo, called where no file of the vetted crate configures them.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::Error;

/// The programs of one toolchain.
#[derive(Debug)]
pub(crate) struct Toolchain {
    binaries: PathBuf,
    /// The target that it builds for.
    pub(crate) host: String,
    /// Its version, as `rustc` says it.
    pub(crate) version: String,
}

/// Variables that `cargo` and the programs that it calls may see; those that end in `_` are beginnings.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "CC",
    "CXX",
    "AR",
    "CFLAGS",
];

impl Toolchain {
    /// Finds the toolchain that is chosen outside the crate, from a folder of the operator's.
    pub(crate) fn find(work: &Path) -> Result<Self, Error> {
        let say = |program: &OsStr, argument: &str| {
            let mut command = clean(program, work);
            let output = command.args(argument.split(' ')).output();
            let output = output
                .map_err(|error| Error::Program { program: "rustc".into(), problem: error.to_string() })?;
            Ok::<_, Error>(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let root = say(OsStr::new("rustc"), "--print sysroot")?;
        let binaries = Path::new(root.trim()).join("bin");
        let verbose = say(binaries.join("rustc").as_os_str(), "-vV")?;
        let host =
            verbose.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned();
        let version = verbose.lines().next().unwrap_or_default().to_owned();
        for program in ["cargo", "rustc", "clippy-driver"] {
            if !binaries.join(program).is_file() {
                let problem = format!(
                    "`{}` is not there; `rustup component add clippy` installs it",
                    binaries.join(program).display()
                );
                return Err(Error::Program { program: program.into(), problem });
            }
        }
        Ok(Self { binaries, host, version })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// A `cargo` in that folder, with this toolchain's compiler and without flags from elsewhere.
    pub(crate) fn cargo(&self, work: &Path) -> Command {
        let mut command = clean(self.program("cargo").as_os_str(), work);
        command
            .env("RUSTC", self.program("rustc"))
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_ENCODED_RUSTFLAGS", "")
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TERM_COLOR", "never");
        command
    }
}

/// A command that sees nothing of the caller's environment that could change how code is compiled.
fn clean(program: &OsStr, work: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir(work).stdin(Stdio::null());
    for (name, value) in std::env::vars_os() {
        let kept = name.to_str().is_some_and(|name| {
            KEPT.iter().any(|kept| name == *kept || kept.ends_with('_') && name.starts_with(kept))
        });
        // rustup's choice for the whole call, such as `cargo +nightly`, is the operator's.
        if kept || name == "RUSTUP_TOOLCHAIN" {
            command.env(name, value);
        }
    }
    command
}

/// Runs a command to its end, or ends it and its children when the time is up.
pub(crate) fn run(command: &mut Command, what: &str, limit: Duration) -> Result<Output, Error> {
    let failed =
        |error: std::io::Error| Error::Program { program: what.to_owned(), problem: error.to_string() };
    let began = Instant::now();
    let child =
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let group = rustix::process::Pid::from_child(&child);
    let waiting = std::thread::spawn(move || child.wait_with_output());
    while !waiting.is_finished() {
        if began.elapsed() > limit {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let problem = format!("it was ended after {} s: the time limit", limit.as_secs());
            return Err(Error::Program { program: what.to_owned(), problem });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    match waiting.join() {
        Ok(output) => output.map_err(failed),
        Err(_) => Err(Error::Program { program: what.to_owned(), problem: "its output was lost".into() }),
    }
}
