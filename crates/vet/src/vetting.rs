//! Vetting: the graph, then the sources, then the compiler; and the build of what passes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cargo_metadata::PackageId;

use crate::attestation::{Attestation, Binary, Vetted};
use crate::compile::{Pass, by_folder};
use crate::graph::{Graph, folder_of};
use crate::list::List;
use crate::syntax::{self, Names, Sources};
use crate::toolchain::Toolchain;
use crate::{CrateVerdict, Error, Finding, Rule, Verdict, hash, manifest};

/// The features that are vetted and built, and how cargo is called.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// Named features.
    pub named: Vec<String>,
    /// All features.
    pub all: bool,
    /// Without the default ones.
    pub without_default: bool,
    /// The processor to build for.
    pub target_cpu: Option<String>,
    /// Nothing is fetched.
    pub offline: bool,
}

impl Features {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if !self.named.is_empty() {
            arguments.push(format!("--features={}", self.named.join(",")));
        }
        arguments.extend(self.all.then(|| "--all-features".to_owned()));
        arguments.extend(self.without_default.then(|| "--no-default-features".to_owned()));
        arguments
    }
}

/// A crate to vet, and with what.
#[derive(Clone, Debug)]
pub struct Request {
    /// The crate's folder or manifest; the root of a workspace stands for all of its members.
    pub path: PathBuf,
    /// Its features.
    pub features: Features,
    /// The operator's folder of what cargo makes. Nothing in it may come from the crate.
    pub target: PathBuf,
    /// This program, which cargo calls in the compiler's place.
    pub program: PathBuf,
    /// Whether the operator named the list, rather than leave it to the current folder.
    pub list_was_named: bool,
    /// The longest that cargo may take.
    pub limit: Duration,
}

/// A crate that is being vetted, with its graph and the folders of this run.
pub struct Vetting<'a> {
    request: &'a Request,
    list: &'a List,
    toolchain: Toolchain,
    target: PathBuf,
    work: tempfile::TempDir,
    graph: Graph,
    /// Holds the target folder for this run.
    _locked: fs::File,
}

impl<'a> Vetting<'a> {
    /// Resolves the crate's dependencies.
    ///
    /// # Errors
    /// Where the crate, its Cargo.lock or the toolchain cannot be used.
    pub fn new(request: &'a Request, list: &'a List) -> Result<Self, Error> {
        let unreadable = |path: &Path, error| Error::Unreadable { path: path.to_owned(), error };
        let path = request.path.canonicalize().map_err(|error| unreadable(&request.path, error))?;
        let manifest = if path.is_dir() { path.join("Cargo.toml") } else { path };
        if !manifest.is_file() {
            return Err(Error::NoCrate { manifest });
        }
        let folder = manifest.parent().unwrap_or(&manifest);
        fs::create_dir_all(&request.target).map_err(|error| unreadable(&request.target, error))?;
        let target = request.target.canonicalize().map_err(|error| unreadable(&request.target, error))?;
        let listed = list.path.canonicalize().map_err(|error| unreadable(&list.path, error))?;
        // The crate's author may not write the list, nor have prepared what cargo takes as made.
        for (what, place) in [("the target folder", &target), ("the list", &listed)] {
            if place.starts_with(folder) {
                return Err(Error::Inside { what, path: place.clone(), folder: folder.to_owned() });
            }
        }
        let lock =
            fs::File::create(target.join(".netbricks-vet")).map_err(|error| unreadable(&target, error))?;
        lock.lock().map_err(|error| unreadable(&target, error))?;
        let work = tempfile::Builder::new().prefix("vet-").tempdir_in(&target);
        let work = work.map_err(|error| unreadable(&target, error))?;
        let toolchain = Toolchain::find(work.path())?;
        let graph =
            Graph::resolve(&toolchain, work.path(), &manifest, &request.features, list, request.limit)?;
        let root = graph.root.canonicalize().unwrap_or_else(|_| graph.root.clone());
        if listed.starts_with(&root) && !request.list_was_named {
            return Err(Error::Inside {
                what: "the list, which no `--list` names,",
                path: listed,
                folder: root,
            });
        }
        Ok(Self { request, list, toolchain, target, work, graph, _locked: lock })
    }

    /// Reads every source, lets the compiler look at what may be compiled, and gives the verdict.
    ///
    /// # Errors
    /// Where a program cannot be run, or a file cannot be read.
    pub fn verdict(&self) -> Result<Verdict, Error> {
        let graph = &self.graph;
        let hashes = self.hashes()?;
        let mut findings = graph.findings.clone();
        self.manifests(&mut findings);
        let looked_at = self.sources(&mut findings);
        let blocked = self.blocked(&findings);
        let packages: Vec<PackageId> =
            graph.selected.iter().filter(|id| !blocked.contains(*id)).cloned().collect();
        let mut reports = Vec::new();
        if !packages.is_empty() {
            let passed = self.pass(None).run(graph, &packages)?;
            reports = passed.reports;
            let failed = reports.iter().any(|report| !report.succeeded);
            if let Some(failure) = passed.failure.filter(|_| !failed) {
                let place = Path::new("Cargo.toml");
                let finding = Finding::new(Rule::Uncompilable, place, (1, 1), failure);
                packages.iter().for_each(|id| findings.entry(id.clone()).or_default().push(finding.clone()));
            }
        }
        let known = [self.work.path().join("clippy.toml"), self.toolchain.program("clippy-driver")];
        let reports = by_folder(&reports);
        let reached = self.reached(&packages);
        for id in &graph.vetted {
            let of_crate = findings.entry(id.clone()).or_default();
            let own =
                reports.get(folder_of(&graph.packages[id]).as_path()).map(Vec::as_slice).unwrap_or_default();
            own.iter().for_each(|report| of_crate.extend(report.findings(&looked_at, &known)));
            if reached.contains(id) && of_crate.is_empty() {
                for (kind, name, _) in graph.roots(id) {
                    if !own.iter().any(|report| report.kind == kind && report.name == name) {
                        of_crate.push(unseen(&kind, &name));
                    }
                }
            }
        }
        self.dependents(&mut findings);
        if self.hashes()? != hashes {
            return Err(Error::Changed { folder: graph.root.clone() });
        }
        Ok(self.assembled(findings, &hashes))
    }

    fn assembled(
        &self,
        mut findings: BTreeMap<PackageId, Vec<Finding>>,
        hashes: &BTreeMap<PackageId, String>,
    ) -> Verdict {
        let graph = &self.graph;
        let crates = graph.vetted.iter().map(|id| {
            let package = &graph.packages[id];
            let mut findings = findings.remove(id).unwrap_or_default();
            findings.sort();
            findings.dedup();
            CrateVerdict {
                name: package.name.to_string(),
                version: package.version.to_string(),
                folder: folder_of(package).display().to_string(),
                sha256: hashes.get(id).cloned().unwrap_or_default(),
                selected: graph.selected.contains(id),
                clean: findings.is_empty(),
                findings,
            }
        });
        let crates: Vec<CrateVerdict> = crates.collect();
        Verdict {
            clean: crates.iter().all(|vetted| vetted.clean),
            crates,
            listed: graph.listed.values().cloned().collect(),
            rustc: self.toolchain.version.clone(),
        }
    }

    /// SHA-256 over the files of each vetted crate.
    fn hashes(&self) -> Result<BTreeMap<PackageId, String>, Error> {
        let of = |id: &PackageId| {
            let folder = folder_of(&self.graph.packages[id]);
            let hash = hash::of_folder(&folder).map_err(|error| Error::Unreadable { path: folder, error })?;
            Ok((id.clone(), hash))
        };
        self.graph.vetted.iter().map(of).collect()
    }

    /// The workspace's manifest, unless it is the operator's.
    fn manifests(&self, findings: &mut BTreeMap<PackageId, Vec<Finding>>) {
        let root = &self.graph.root;
        let place = root.canonicalize().unwrap_or_else(|_| root.clone());
        if self.list.trees.iter().any(|tree| tree.folder.starts_with(&place)) {
            return;
        }
        for id in &self.graph.selected {
            let folder = folder_of(&self.graph.packages[id]);
            let manifest = root.join("Cargo.toml");
            let shown = manifest.strip_prefix(&folder).unwrap_or(&manifest);
            findings.entry(id.clone()).or_default().extend(manifest::findings(&manifest, shown));
        }
    }

    /// Reads the sources of all vetted crates; gives the files.
    fn sources(&self, findings: &mut BTreeMap<PackageId, Vec<Finding>>) -> BTreeSet<PathBuf> {
        let graph = &self.graph;
        let mut read: BTreeMap<&PackageId, (PathBuf, Sources)> = BTreeMap::new();
        for id in &graph.vetted {
            let folder = folder_of(&graph.packages[id]);
            let folder = folder.canonicalize().unwrap_or(folder);
            let roots: Vec<PathBuf> = graph.roots(id).into_iter().map(|(_, _, root)| root).collect();
            let sources = Sources::read(&folder, &roots);
            read.insert(id, (folder, sources));
        }
        for (id, (folder, sources)) in &read {
            let mut names: Names = graph.names(id, self.list);
            names.own_macros.extend(syntax::own_macros(sources));
            for used in graph.vetted_below(id) {
                names
                    .own_macros
                    .extend(read.get(&used).into_iter().flat_map(|(_, sources)| syntax::own_macros(sources)));
            }
            findings.entry((*id).clone()).or_default().extend(syntax::findings(folder, sources, &names));
        }
        read.into_values().flat_map(|(_, sources)| sources.files.into_iter().map(|(path, _)| path)).collect()
    }

    /// Packages that may not be compiled, because something would run or be read: they, and those that use them.
    fn blocked(&self, findings: &BTreeMap<PackageId, Vec<Finding>>) -> BTreeSet<PackageId> {
        let blocks = |finding: &Finding| {
            matches!(
                finding.rule,
                Rule::BuildScript
                    | Rule::ProceduralMacro
                    | Rule::Hash
                    | Rule::OutsideFile
                    | Rule::Macro
                    | Rule::Manifest
            )
        };
        let own = self
            .graph
            .vetted
            .iter()
            .filter(|id| findings.get(*id).is_some_and(|found| found.iter().any(blocks)));
        let mut blocked: BTreeSet<PackageId> = own.cloned().collect();
        loop {
            let more: Vec<PackageId> = self
                .graph
                .vetted
                .iter()
                .chain(self.graph.listed.keys())
                .filter(|id| !blocked.contains(*id))
                .filter(|id| self.graph.uses_any(id, &blocked))
                .cloned()
                .collect();
            if more.is_empty() {
                return blocked;
            }
            blocked.extend(more);
        }
    }

    /// Vetted packages that a pass over these compiles.
    fn reached(&self, packages: &[PackageId]) -> BTreeSet<PackageId> {
        let mut reached: BTreeSet<PackageId> = packages.iter().cloned().collect();
        let mut waiting = packages.to_vec();
        while let Some(id) = waiting.pop() {
            for used in self.graph.reached_through_listed(&id) {
                if reached.insert(used.clone()) {
                    waiting.push(used);
                }
            }
        }
        reached
    }

    /// Crates that use a refused one are refused, too.
    fn dependents(&self, findings: &mut BTreeMap<PackageId, Vec<Finding>>) {
        loop {
            let refused: BTreeSet<PackageId> =
                findings.iter().filter(|(_, found)| !found.is_empty()).map(|(id, _)| id.clone()).collect();
            let mut more = false;
            let all: Vec<&PackageId> = self.graph.vetted.iter().collect();
            for id in all {
                for used in self.graph.reached_through_listed(id) {
                    let package = &self.graph.packages[&used];
                    let text = format!("it uses `{} {}`, which is refused", package.name, package.version);
                    let finding = Finding::new(Rule::Dependency, Path::new("Cargo.toml"), (1, 1), text);
                    let own = findings.entry(id.clone()).or_default();
                    if refused.contains(&used) && !own.contains(&finding) {
                        own.push(finding);
                        more = true;
                    }
                }
            }
            if !more {
                return;
            }
        }
    }

    fn pass<'b>(&'b self, build: Option<&'b str>) -> Pass<'b> {
        Pass {
            toolchain: &self.toolchain,
            work: self.work.path(),
            target: &self.target,
            program: &self.request.program,
            features: &self.request.features,
            limit: self.request.limit,
            lints: &self.list.lints,
            build,
        }
    }

    /// Entries for `vet.toml`, one for each dependency that no list names: for the operator to read before adding them.
    ///
    /// # Errors
    /// Where a crate in a folder cannot be read.
    pub fn missing(&self) -> Result<String, Error> {
        let mut text = String::new();
        for id in self.graph.vetted.iter().filter(|id| !self.graph.selected.contains(*id)) {
            text += &self.graph.entry(id)?;
        }
        Ok(text)
    }

    fn program(&self) -> Result<(PackageId, String), Error> {
        let graph = &self.graph;
        let bins: Vec<(PackageId, String)> = graph
            .selected
            .iter()
            .flat_map(|id| {
                let targets = graph.packages[id].targets.iter();
                targets.filter(|target| target.is_bin()).map(|target| (id.clone(), target.name.clone()))
            })
            .collect();
        match <[_; 1]>::try_from(bins) {
            Ok([program]) => Ok(program),
            Err(bins) => Err(Error::NoProgram { names: bins.into_iter().map(|(_, name)| name).collect() }),
        }
    }

    /// The name of the program that the crate makes.
    ///
    /// # Errors
    /// Where it makes none, or several.
    pub fn program_name(&self) -> Result<String, Error> {
        self.program().map(|(_, name)| name)
    }

    /// Builds the crate's program from the sources of a clean verdict, and says of what it was built.
    ///
    /// The program is copied to `binary`.
    ///
    /// # Errors
    /// Where the verdict is not clean, the crate has no program, the build fails, or a source has changed since.
    pub fn attest(&self, verdict: &Verdict, binary: &Path) -> Result<Attestation, Error> {
        let graph = &self.graph;
        let (id, name) = &self.program()?;
        if !verdict.clean {
            return Err(Error::Refused);
        }
        let unreadable = |path: &Path, error| Error::Unreadable { path: path.to_owned(), error };
        let passed = self.pass(Some(name)).run(graph, std::slice::from_ref(id))?;
        if let Some(failure) = passed.failure {
            return Err(Error::Program { program: "cargo build".into(), problem: failure });
        }
        let hashes = self.hashes()?;
        let same = graph
            .vetted
            .iter()
            .zip(&verdict.crates)
            .all(|(id, vetted)| hashes.get(id) == Some(&vetted.sha256));
        if !same {
            return Err(Error::Changed { folder: graph.root.clone() });
        }
        let built = self.target.join("release").join(name);
        fs::copy(&built, binary).map_err(|error| unreadable(&built, error))?;
        let package = &graph.packages[id];
        let crates = verdict.crates.iter();
        Ok(Attestation {
            attestation: Attestation::FORMAT,
            name: package.name.to_string(),
            version: package.version.to_string(),
            binary: Binary {
                name: name.clone(),
                sha256: hash::of_file(binary).map_err(|error| unreadable(binary, error))?,
                bytes: fs::metadata(binary).map_err(|error| unreadable(binary, error))?.len(),
            },
            rustc: self.toolchain.version.clone(),
            host: self.toolchain.host.clone(),
            target_cpu: self.request.features.target_cpu.clone(),
            features: self.request.features.arguments(),
            netbricks: env!("CARGO_PKG_VERSION").to_owned(),
            lock_sha256: hash::of_file(&graph.lock).map_err(|error| unreadable(&graph.lock, error))?,
            list_sha256: self.list.sha256.clone(),
            vetted: crates
                .map(|CrateVerdict { name, version, sha256, .. }| Vetted {
                    name: name.clone(),
                    version: version.clone(),
                    sha256: sha256.clone(),
                })
                .collect(),
            listed: verdict.listed.clone(),
        })
    }
}

fn unseen(kind: &str, name: &str) -> Finding {
    let text = format!("{kind} `{name}` was not compiled, so nothing is known of it");
    Finding::new(Rule::Unseen, Path::new("Cargo.toml"), (1, 1), text)
}
