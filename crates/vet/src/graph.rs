//! The resolved graph of a crate's dependencies: which the operator vouches for, and which are vetted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, Node, Package, PackageId, TargetKind};

use crate::list::{List, Lock, read_lock};
use crate::syntax::{Names, Root};
use crate::toolchain::{self, Toolchain};
use crate::{Error, Features, Finding, ListedCrate, Rule, hash, standard};

/// The graph, without what only tests use.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) packages: BTreeMap<PackageId, Package>,
    pub(crate) nodes: BTreeMap<PackageId, Node>,
    pub(crate) root: PathBuf,
    pub(crate) lock: PathBuf,
    /// The packages that were asked for.
    pub(crate) selected: Vec<PackageId>,
    /// Packages that are vetted, those that were asked for first.
    pub(crate) vetted: Vec<PackageId>,
    pub(crate) listed: BTreeMap<PackageId, ListedCrate>,
    /// Findings about packages before any source is read.
    pub(crate) findings: BTreeMap<PackageId, Vec<Finding>>,
}

impl Graph {
    /// Resolves the dependencies of the crate with this manifest. No program of theirs runs.
    pub(crate) fn resolve(
        toolchain: &Toolchain,
        work: &Path,
        manifest: &Path,
        features: &Features,
        list: &List,
        limit: std::time::Duration,
    ) -> Result<Self, Error> {
        let metadata = metadata(toolchain, work, manifest, features, limit)?;
        let root = PathBuf::from(&metadata.workspace_root);
        let lock = root.join("Cargo.lock");
        let selected: Vec<PackageId> =
            match metadata.packages.iter().find(|package| package.manifest_path == manifest) {
                Some(package) => vec![package.id.clone()],
                None => metadata.workspace_members.clone(),
            };
        let nodes = metadata.resolve.map(|resolve| resolve.nodes).unwrap_or_default();
        let mut graph = Self {
            packages: metadata.packages.into_iter().map(|package| (package.id.clone(), package)).collect(),
            nodes: nodes.into_iter().map(|node| (node.id.clone(), node)).collect(),
            root,
            lock,
            vetted: Vec::new(),
            listed: BTreeMap::new(),
            findings: BTreeMap::new(),
            selected,
        };
        let locked = read_lock(&graph.lock)?;
        graph.part(list, &locked)?;
        for id in graph.vetted.clone() {
            let found = graph.before_sources(&graph.packages[&id]);
            graph.findings.entry(id).or_default().extend(found);
        }
        Ok(graph)
    }

    /// Walks from what was asked for, and parts listed crates from those that are vetted.
    fn part(&mut self, list: &List, locked: &Lock) -> Result<(), Error> {
        let mut waiting: VecDeque<PackageId> = self.selected.clone().into();
        let mut seen: BTreeSet<PackageId> = self.selected.iter().cloned().collect();
        while let Some(id) = waiting.pop_front() {
            let package = &self.packages[&id];
            let listing =
                if self.selected.contains(&id) { Listing::No } else { listing(package, list, locked)? };
            let is_listed = matches!(listing, Listing::Yes(_));
            match listing {
                Listing::Yes(listed) => _ = self.listed.insert(id.clone(), listed),
                Listing::No => self.vetted.push(id.clone()),
                Listing::Wrong(finding) => {
                    self.vetted.push(id.clone());
                    self.findings.entry(id.clone()).or_default().push(finding);
                }
            }
            for dependency in self.used(&id, is_listed) {
                if seen.insert(dependency.clone()) {
                    waiting.push_back(dependency);
                }
            }
        }
        Ok(())
    }

    /// The packages that one is built with; with those of its build script where that may run.
    fn used(&self, id: &PackageId, with_build: bool) -> Vec<PackageId> {
        let node = self.nodes.get(id);
        let dependencies = node.iter().flat_map(|node| &node.deps).filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| {
                kind.kind == DependencyKind::Normal || with_build && kind.kind == DependencyKind::Build
            })
        });
        dependencies.map(|dependency| dependency.pkg.clone()).collect()
    }

    /// Vetted packages that this one uses.
    pub(crate) fn vetted_below(&self, id: &PackageId) -> Vec<PackageId> {
        self.used(id, false).into_iter().filter(|used| self.vetted.contains(used)).collect()
    }

    /// The entry of the list for a package.
    pub(crate) fn entry(&self, id: &PackageId) -> Result<String, Error> {
        let package = &self.packages[id];
        let source = package.source.as_ref().map(ToString::to_string);
        let (key, identity) = match &source {
            None => {
                let folder = folder_of(package);
                let hash =
                    hash::of_folder(&folder).map_err(|error| Error::Unreadable { path: folder, error })?;
                ("hash", hash)
            }
            Some(source) if source.starts_with("git+") => {
                ("commit", source.rsplit('#').next().unwrap_or_default().to_owned())
            }
            Some(_) => {
                let locked = read_lock(&self.lock)?;
                let key = (package.name.to_string(), package.version.to_string());
                ("checksum", locked.get(&key).and_then(|(_, checksum)| checksum.clone()).unwrap_or_default())
            }
        };
        let mut text = format!(
            "\n[[crate]]\nname = \"{}\"\nversion = \"{}\"\n{key} = \"{identity}\"\n",
            package.name, package.version
        );
        let has = |kind: TargetKind| package.targets.iter().any(|target| target.kind.contains(&kind));
        if has(TargetKind::CustomBuild) {
            text += "build-script = true\n";
        }
        if has(TargetKind::ProcMacro) {
            text += "procedural-macro = true\n";
        }
        Ok(text)
    }

    /// Whether a package is built with one of these.
    pub(crate) fn uses_any(&self, id: &PackageId, others: &BTreeSet<PackageId>) -> bool {
        self.used(id, self.listed.contains_key(id)).iter().any(|used| others.contains(used))
    }

    /// Vetted packages that this one uses, itself or through listed ones.
    pub(crate) fn reached_through_listed(&self, id: &PackageId) -> Vec<PackageId> {
        let mut seen = BTreeSet::new();
        let mut waiting = self.used(id, false);
        let mut vetted = Vec::new();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id.clone()) {
                continue;
            }
            if self.listed.contains_key(&id) {
                waiting.extend(self.used(&id, true));
            } else {
                vetted.push(id);
            }
        }
        vetted
    }

    /// Findings about the manifest of a vetted package.
    fn before_sources(&self, package: &Package) -> Vec<Finding> {
        let manifest = Path::new("Cargo.toml");
        let mut findings = Vec::new();
        let mut find = |rule, text: String| findings.push(Finding::new(rule, manifest, (1, 1), text));
        for target in &package.targets {
            for kind in &target.kind {
                match kind {
                    TargetKind::CustomBuild => {
                        let script = Path::new(&target.src_path);
                        let shown =
                            script.strip_prefix(folder_of(package)).unwrap_or(script).display().to_string();
                        find(
                            Rule::BuildScript,
                            format!(
                                "`{shown}` would run before the crate is compiled, and is not on the list"
                            ),
                        );
                    }
                    TargetKind::ProcMacro => {
                        let text = format!(
                            "`{}` would run inside the compiler, and is not on the list",
                            target.name
                        );
                        find(Rule::ProceduralMacro, text);
                    }
                    TargetKind::Lib
                    | TargetKind::RLib
                    | TargetKind::Bin
                    | TargetKind::Example
                    | TargetKind::Test
                    | TargetKind::Bench => (),
                    other => find(
                        Rule::Manifest,
                        format!("a target of the kind `{other}`: only `lib` and `bin` are known"),
                    ),
                }
            }
        }
        if let Some(library) = &package.links {
            find(Rule::ForeignCode, format!("`links = \"{library}\"`: it belongs to a foreign library"));
        }
        let edition = package.edition.as_str();
        if !standard::EDITIONS.contains(&edition) {
            find(
                Rule::Manifest,
                format!("edition {edition}: only {} are known", standard::EDITIONS.join(", ")),
            );
        }
        findings
    }

    /// The names for the sources of a vetted package, without the macros of vetted crates.
    pub(crate) fn names(&self, id: &PackageId, list: &List) -> Names {
        let mut names = Names::standard();
        let node = self.nodes.get(id);
        for dependency in node.iter().flat_map(|node| &node.deps) {
            let Some(package) =
                self.packages.get(&dependency.pkg).filter(|_| self.listed.contains_key(&dependency.pkg))
            else {
                continue;
            };
            let is_normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if !is_normal {
                continue;
            }
            let root = match list.offer(&package.name) {
                None => Root::Unoffered(package.name.to_string()),
                Some(offer) => {
                    names.macros.extend(offer.macros.iter().cloned());
                    names.derives.extend(offer.derives.iter().cloned());
                    names.attributes.extend(offer.attributes.iter().cloned());
                    let own = offer.library();
                    // A dependency may be renamed; its paths then begin with the other name.
                    Root::Offered(
                        offer.paths.iter().map(|path| path.replacen(&own, &dependency.name, 1)).collect(),
                    )
                }
            };
            names.roots.insert(dependency.name.clone(), root);
        }
        names.standard.extend(list.offer("std").into_iter().flat_map(|offer| offer.paths.iter().cloned()));
        names
    }

    /// The roots of the targets of a package that are built.
    pub(crate) fn roots(&self, id: &PackageId) -> Vec<(String, String, PathBuf)> {
        let package = &self.packages[id];
        let features: BTreeSet<String> = self
            .nodes
            .get(id)
            .map(|node| node.features.iter().map(ToString::to_string).collect())
            .unwrap_or_default();
        let is_selected = self.selected.contains(id);
        let built = package.targets.iter().filter_map(|target| {
            let is = |kind: TargetKind| target.kind.contains(&kind);
            let kind = if is(TargetKind::Bin) {
                "bin"
            } else if is(TargetKind::Lib) || is(TargetKind::RLib) {
                "lib"
            } else {
                return None;
            };
            let asked = target.required_features.iter().all(|feature| features.contains(feature));
            let wanted = kind == "lib" || is_selected && asked;
            wanted.then(|| (kind.to_owned(), target.name.replace('-', "_"), PathBuf::from(&target.src_path)))
        });
        built.collect()
    }
}

/// The folder of a package's manifest.
pub(crate) fn folder_of(package: &Package) -> PathBuf {
    Path::new(&package.manifest_path).parent().map(Path::to_owned).unwrap_or_default()
}

enum Listing {
    Yes(ListedCrate),
    No,
    /// It has the name and version of a listed crate, and is another.
    Wrong(Finding),
}

fn listing(package: &Package, list: &List, locked: &Lock) -> Result<Listing, Error> {
    let (name, version) = (package.name.to_string(), package.version.to_string());
    let folder = folder_of(package);
    let folder_hash =
        || hash::of_folder(&folder).map_err(|error| Error::Unreadable { path: folder.clone(), error });
    let yes = |identity: String| {
        Listing::Yes(ListedCrate { name: name.clone(), version: version.clone(), identity })
    };
    let source = package.source.as_ref().map(ToString::to_string);
    let key = (name.clone(), version.clone());
    if source.is_none() {
        let place = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let in_tree = |tree: &crate::list::Tree| place == tree.folder || place.parent() == Some(&tree.folder);
        if list.trees.iter().any(in_tree) {
            return Ok(yes(folder_hash()?));
        }
    }
    let lock = locked.get(&key);
    if let (Some(source), Some((locked_source, Some(checksum)))) = (&source, lock)
        && locked_source.as_ref() == Some(source)
        && list.trees.iter().any(|tree| tree.locked.get(&key) == lock)
    {
        return Ok(yes(checksum.clone()));
    }
    let Some(entry) = list.crates.iter().find(|entry| entry.name == name && entry.version == version) else {
        return Ok(Listing::No);
    };
    let found = match (&source, &entry.commit) {
        (None, _) => folder_hash()?,
        (Some(source), Some(_)) => source.rsplit('#').next().unwrap_or_default().to_owned(),
        (Some(_), None) => lock.and_then(|(_, checksum)| checksum.clone()).unwrap_or_default(),
    };
    let from_index = source.as_deref() == Some(CRATES_IO);
    let is_right_kind = match (&entry.checksum, &entry.hash) {
        (Some(_), _) => from_index,
        (_, Some(_)) => source.is_none(),
        _ => source.as_deref().is_some_and(|source| source.starts_with("git+")),
    };
    let wrong =
        |rule, text: String| Ok(Listing::Wrong(Finding::new(rule, Path::new("Cargo.toml"), (1, 1), text)));
    if !is_right_kind || found != entry.identity() {
        let from = source.as_deref().unwrap_or("a folder");
        return wrong(
            Rule::Hash,
            format!(
                "vet.toml expects {} for {name} {version}, and this one from {from} has {found}",
                entry.identity()
            ),
        );
    }
    let has = |kind: TargetKind| package.targets.iter().any(|target| target.kind.contains(&kind));
    if has(TargetKind::CustomBuild) && !entry.build_script {
        return wrong(
            Rule::BuildScript,
            format!("[[crate]] `{name}` of vet.toml does not say `build-script = true`"),
        );
    }
    if has(TargetKind::ProcMacro) && !entry.procedural_macro {
        return wrong(
            Rule::ProceduralMacro,
            format!("[[crate]] `{name}` of vet.toml does not say `procedural-macro = true`"),
        );
    }
    Ok(yes(entry.identity().to_owned()))
}

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn metadata(
    toolchain: &Toolchain,
    work: &Path,
    manifest: &Path,
    features: &Features,
    limit: std::time::Duration,
) -> Result<Metadata, Error> {
    let ask = |offline: bool| {
        let mut cargo = toolchain.cargo(work);
        cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &toolchain.host]);
        cargo.arg("--manifest-path").arg(manifest).args(features.arguments());
        if offline {
            cargo.arg("--offline");
        }
        toolchain::run(&mut cargo, "cargo metadata", limit)
    };
    let mut output = ask(true)?;
    if !output.status.success() && !features.offline {
        output = ask(false)?;
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Unresolved { manifest: manifest.to_owned(), said });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Program { program: "cargo metadata".into(), problem: error.to_string() })
}
