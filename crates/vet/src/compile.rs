//! The passes of `cargo` over what is vetted, and what the compiler says there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cargo_metadata::PackageId;
use serde::Deserialize;

use crate::graph::{Graph, folder_of};
use crate::toolchain::{self, Toolchain};
use crate::unit::{self, Plan, Report};
use crate::{Error, Features, Finding, Rule};

/// One run of `cargo`.
pub(crate) struct Pass<'a> {
    pub(crate) toolchain: &'a Toolchain,
    /// An empty folder of ours.
    pub(crate) work: &'a Path,
    pub(crate) target: &'a Path,
    /// The program that `cargo` calls in the compiler's place: this one.
    pub(crate) program: &'a Path,
    pub(crate) features: &'a Features,
    pub(crate) limit: Duration,
    /// The configuration of clippy's lints.
    pub(crate) lints: &'a str,
    /// The programs to build, by name; nothing is built without any.
    pub(crate) build: Option<&'a str>,
}

/// The result of a pass.
pub(crate) struct Passed {
    pub(crate) reports: Vec<Report>,
    /// Why `cargo` failed.
    pub(crate) failure: Option<String>,
}

impl Pass<'_> {
    /// Compiles these packages, and the vetted ones among those that they use.
    pub(crate) fn run(&self, graph: &Graph, packages: &[PackageId]) -> Result<Passed, Error> {
        self.prepare(graph)?;
        let mut output = self.cargo(graph, packages, true)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Without network the registry's copies may not be complete.
        if !output.status.success() && !self.features.offline && said.contains("--offline") {
            output = self.cargo(graph, packages, false)?;
        }
        let mut reports = Vec::new();
        let reported = self.work.join("reports");
        for entry in fs::read_dir(&reported).map_err(|error| unreadable(&reported, error))? {
            let path = entry.map_err(|error| unreadable(&reported, error))?.path();
            let bytes = fs::read(&path).map_err(|error| unreadable(&path, error))?;
            let report = serde_json::from_slice(&bytes);
            reports.push(report.map_err(|error| Error::List { path, problem: error.to_string() })?);
        }
        let failure = (!output.status.success()).then(|| {
            let message = output.stdout.split(|byte| *byte == b'\n').find_map(first_error);
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rfind(|line| line.starts_with("error")).or(said.lines().last());
            message.unwrap_or_else(|| last.unwrap_or("it said nothing").to_owned())
        });
        Ok(Passed { reports, failure })
    }

    /// Writes what the calls of the compiler need, and removes what earlier ones left of vetted crates.
    fn prepare(&self, graph: &Graph) -> Result<(), Error> {
        let of = |ids: &mut dyn Iterator<Item = &PackageId>| {
            ids.map(|id| folder_of(&graph.packages[id])).collect()
        };
        let plan = Plan {
            vetted: of(&mut graph.vetted.iter()),
            listed: of(&mut graph.listed.keys()),
            clippy_driver: self.toolchain.program("clippy-driver"),
            build: self.build.is_some(),
        };
        let plan = serde_json::to_string(&plan)
            .map_err(|error| Error::List { path: self.work.join("plan.json"), problem: error.to_string() })?;
        let reports = self.work.join("reports");
        let wrapper = self.work.join(unit::NAME);
        let write = || {
            fs::write(self.work.join("plan.json"), plan)?;
            fs::write(self.work.join("clippy.toml"), self.lints)?;
            let _ = fs::remove_dir_all(&reports);
            fs::create_dir_all(&reports)?;
            let _ = fs::remove_file(&wrapper);
            std::os::unix::fs::symlink(self.program, &wrapper)
        };
        write().map_err(|error| unreadable(self.work, error))?;
        let left = self.target.join("release/.fingerprint");
        let names: BTreeSet<&str> = graph.vetted.iter().map(|id| graph.packages[id].name.as_str()).collect();
        for entry in fs::read_dir(&left).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.rsplit_once('-').is_some_and(|(package, _)| names.contains(package)) {
                fs::remove_dir_all(entry.path()).map_err(|error| unreadable(&entry.path(), error))?;
            }
        }
        Ok(())
    }

    fn cargo(
        &self,
        graph: &Graph,
        packages: &[PackageId],
        offline: bool,
    ) -> Result<std::process::Output, Error> {
        let mut cargo = self.toolchain.cargo(self.work);
        cargo.arg(if self.build.is_some() { "build" } else { "check" });
        cargo.args(["--release", "--locked", "--keep-going", "--message-format=json"]);
        cargo.arg("--manifest-path").arg(graph.root.join("Cargo.toml")).arg("--target-dir").arg(self.target);
        packages.iter().for_each(|id| _ = cargo.args(["--package", &id.repr]));
        cargo.args(self.features.arguments());
        if offline {
            cargo.arg("--offline");
        }
        if let Some(name) = self.build {
            cargo.args(["--bin", name]);
        }
        cargo.env("RUSTC_WRAPPER", self.work.join(unit::NAME));
        if let Some(cpu) = &self.features.target_cpu {
            cargo.env("CARGO_ENCODED_RUSTFLAGS", format!("-C\x1ftarget-cpu={cpu}"));
        }
        toolchain::run(&mut cargo, "cargo", self.limit)
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::Unreadable { path: path.to_owned(), error }
}

/// The first error that `cargo` passes on, of a listed crate too.
fn first_error(line: &[u8]) -> Option<String> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    (line["message"]["level"] == "error").then(|| line["message"]["message"].as_str().map(str::to_owned))?
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    message: String,
    #[serde(default)]
    level: String,
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Place>,
    #[serde(default)]
    children: Vec<Message>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Place {
    file_name: String,
    line_start: usize,
    column_start: usize,
    #[serde(default)]
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize)]
struct Expansion {
    span: Place,
}

impl Report {
    /// The compiler's findings, and the files that it read without our having looked at them.
    pub(crate) fn findings(&self, looked_at: &BTreeSet<PathBuf>, known: &[PathBuf]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.messages.iter().filter_map(|line| self.finding(line)).collect();
        if !self.succeeded && findings.is_empty() {
            let text = format!("`{}` does not compile, and the compiler does not say why", self.name);
            findings.push(Finding::new(Rule::Uncompilable, Path::new("Cargo.toml"), (1, 1), text));
        }
        let Some(read) = &self.read else {
            if self.succeeded {
                let text = format!("the compiler does not say which files it read for `{}`", self.name);
                findings.push(Finding::new(Rule::Unseen, Path::new("Cargo.toml"), (1, 1), text));
            }
            return findings;
        };
        for line in read.lines() {
            if let Some(variable) = line.strip_prefix("# env-dep:") {
                let name = variable.split('=').next().unwrap_or_default();
                if !["CLIPPY_ARGS", "CLIPPY_CONF_DIR"].contains(&name) {
                    let text = format!("the compiler reads the variable `{name}`");
                    findings.push(Finding::new(Rule::Environment, Path::new("Cargo.toml"), (1, 1), text));
                }
            } else if let Some(file) = line.strip_suffix(':').filter(|line| !line.starts_with('#')) {
                let path = self.directory.join(file.replace("\\ ", " "));
                let path = path.canonicalize().unwrap_or(path);
                // Clippy names the manifests, to notice changes of lints.
                let is_manifest =
                    [&self.folder, &self.directory].iter().any(|folder| path == folder.join("Cargo.toml"));
                if !looked_at.contains(&path) && !known.contains(&path) && !is_manifest {
                    let text = format!(
                        "the compiler reads `{}`, which is no module that was looked at",
                        path.display()
                    );
                    findings.push(Finding::new(Rule::OutsideFile, Path::new("Cargo.toml"), (1, 1), text));
                }
            }
        }
        findings
    }

    fn finding(&self, line: &str) -> Option<Finding> {
        let message: Message = serde_json::from_str(line).ok()?;
        if message.level != "error"
            || message.spans.is_empty() && message.code.is_none() && self.sums_up(&message)
        {
            return None;
        }
        let code = message.code.as_ref().map(|code| code.code.as_str()).unwrap_or_default();
        let (rule, text) = match code {
            "unsafe_code" => (Rule::Unsafe, message.message.clone()),
            "E0453" => (Rule::LintSwitchedOff, message.message.clone()),
            _ if code.starts_with("clippy::") => (Rule::Reach, message.message.clone()),
            _ => (Rule::Uncompilable, [message.message.as_str(), code].join(" ").trim().to_owned()),
        };
        let notes: Vec<&str> = message
            .children
            .iter()
            .map(|note| note.message.as_str())
            .filter(|note| {
                rule == Rule::Reach
                    && !note.starts_with("for further")
                    && !note.contains('`')
                    && !note.contains("implied")
            })
            .collect();
        let text = [&[text.as_str()], notes.as_slice()].concat().join("; ");
        let primary = message.spans.iter().find(|place| place.is_primary);
        let (mut file, mut place) = (PathBuf::from("Cargo.toml"), (1, 1));
        if let Some(mut span) = primary {
            // What a macro made is shown where it is called in the crate.
            while !self.directory.join(&span.file_name).starts_with(&self.folder)
                && let Some(outer) = &span.expansion
            {
                span = &outer.span;
            }
            file = self.directory.join(&span.file_name);
            place = (span.line_start, span.column_start);
        }
        Some(Finding::new(rule, file.strip_prefix(&self.folder).unwrap_or(&file), place, text))
    }

    /// Whether a message without a place only says that there were others.
    fn sums_up(&self, message: &Message) -> bool {
        message.message.starts_with("aborting due to") || message.message.starts_with("could not compile")
    }
}

/// Reports by the folder of their crate.
pub(crate) fn by_folder(reports: &[Report]) -> BTreeMap<&Path, Vec<&Report>> {
    let mut by_folder: BTreeMap<&Path, Vec<&Report>> = BTreeMap::new();
    for report in reports {
        by_folder.entry(&report.folder).or_default().push(report);
    }
    by_folder
}
