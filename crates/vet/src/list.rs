//! `vet.toml`: the crates that the operator vouches for, and what functions may name of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, hash};

/// The configuration of clippy's lints: `cargo` never sees a crate's own.
const LINTS: &str = include_str!("lints/clippy.toml");

/// The list as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    tree: Vec<WrittenTree>,
    #[serde(default, rename = "crate")]
    crates: Vec<Listed>,
    #[serde(default, rename = "use")]
    uses: Vec<Offer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTree {
    path: PathBuf,
    lock: Option<PathBuf>,
}

/// A crate that the operator has read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The checksum in the registry: that of Cargo.lock.
    pub(crate) checksum: Option<String>,
    /// The commit, for a crate out of a Git repository.
    pub(crate) commit: Option<String>,
    /// SHA-256 over its files, for a crate in a folder.
    pub(crate) hash: Option<String>,
    /// Its build script may run.
    #[serde(default)]
    pub(crate) build_script: bool,
    /// It may run inside the compiler.
    #[serde(default)]
    pub(crate) procedural_macro: bool,
}

impl Listed {
    /// The checksum, commit or hash of its source.
    pub(crate) fn identity(&self) -> &str {
        self.checksum.as_deref().or(self.commit.as_deref()).or(self.hash.as_deref()).unwrap_or_default()
    }
}

/// The names of a listed crate that functions may use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Offer {
    #[serde(rename = "crate")]
    pub(crate) name: String,
    /// The name of its library, where that is not the crate's.
    library: Option<String>,
    /// Paths and everything below them.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    #[serde(default)]
    pub(crate) macros: Vec<String>,
    #[serde(default)]
    pub(crate) derives: Vec<String>,
    /// Attributes that its derives read.
    #[serde(default)]
    pub(crate) attributes: Vec<String>,
    /// Its functions that the lints refuse and this list allows.
    #[serde(default)]
    methods: Vec<String>,
}

impl Offer {
    /// The first name of its paths.
    pub(crate) fn library(&self) -> String {
        self.library.clone().unwrap_or_else(|| self.name.replace('-', "_"))
    }
}

/// A folder of the operator's: its crates are allowed, and those that its Cargo.lock names.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) folder: PathBuf,
    pub(crate) locked: Lock,
}

/// The crates of a Cargo.lock by name and version: source and checksum.
pub(crate) type Lock = BTreeMap<(String, String), (Option<String>, Option<String>)>;

/// The operator's list.
#[derive(Debug)]
pub struct List {
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
    pub(crate) trees: Vec<Tree>,
    pub(crate) crates: Vec<Listed>,
    pub(crate) offers: Vec<Offer>,
    /// The configuration of clippy's lints, without what this list allows.
    pub(crate) lints: String,
}

impl List {
    /// Reads it.
    ///
    /// # Errors
    /// Where it or a Cargo.lock that it names cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Unreadable { path: path.to_owned(), error })?;
        let invalid = |problem: String| Error::List { path: path.to_owned(), problem };
        let written: Written = toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        for listed in &written.crates {
            let given = [&listed.checksum, &listed.commit, &listed.hash];
            if given.into_iter().flatten().count() != 1 {
                return Err(invalid(format!(
                    "[[crate]] `{} {}` must have one of `checksum`, `commit` and `hash`",
                    listed.name, listed.version
                )));
            }
        }
        let mut named = std::collections::BTreeSet::new();
        for offer in &written.uses {
            if !named.insert(&offer.name) {
                return Err(invalid(format!(
                    "there are two [[use]] for `{}`: put them into one",
                    offer.name
                )));
            }
            let library = offer.library();
            let stray = offer.paths.iter().find(|path| path.split("::").next() != Some(library.as_str()));
            if let Some(stray) = stray {
                return Err(invalid(format!(
                    "[[use]] of `{}`: the path `{stray}` does not begin with `{library}`; \
                     give `library`, where the library's name is not the crate's",
                    offer.name
                )));
            }
        }
        let methods: Vec<&str> =
            written.uses.iter().flat_map(|offer| &offer.methods).map(String::as_str).collect();
        let lints = lints(&methods).map_err(invalid)?;
        let beside = path.parent().map(Path::to_owned).unwrap_or_default();
        let trees = written.tree.into_iter().map(|tree| {
            let folder = beside.join(&tree.path);
            let folder = folder.canonicalize().map_err(|error| Error::Unreadable { path: folder, error })?;
            let locked = match &tree.lock {
                Some(lock) => read_lock(&beside.join(lock))?,
                None => Lock::new(),
            };
            Ok(Tree { folder, locked })
        });
        Ok(Self {
            path: path.to_owned(),
            sha256: hash::of_bytes(text.as_bytes()),
            trees: trees.collect::<Result<_, Error>>()?,
            crates: written.crates,
            offers: written.uses,
            lints,
        })
    }

    /// The names of a crate that functions may use.
    pub(crate) fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.name == name)
    }
}

#[derive(Deserialize)]
struct WrittenLock {
    #[serde(default)]
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
}

/// The configuration of the lints, without these methods.
///
/// # Errors
/// Where the lints refuse no method of a name.
fn lints(allowed: &[&str]) -> Result<String, String> {
    let mut lints: toml::Table = toml::from_str(LINTS).map_err(|error| error.to_string())?;
    let refused = lints.get_mut("disallowed-methods").and_then(toml::Value::as_array_mut);
    let refused = refused.ok_or("the lints refuse no methods")?;
    for method in allowed {
        let is_other = |entry: &toml::Value| path_of(entry) != Some(method);
        let before = refused.len();
        refused.retain(is_other);
        if refused.len() == before {
            return Err(format!(
                "`methods` names `{method}`, which no lint refuses: leave it out, or write its path as in lints/clippy.toml"
            ));
        }
    }
    toml::to_string(&lints).map_err(|error| error.to_string())
}

/// The path of an entry, which is a text or a table.
fn path_of(entry: &toml::Value) -> Option<&str> {
    entry.as_str().or_else(|| entry.get("path")?.as_str())
}

/// Reads a Cargo.lock.
pub(crate) fn read_lock(path: &Path) -> Result<Lock, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::Unreadable { path: path.to_owned(), error })?;
    let lock: WrittenLock = toml::from_str(&text)
        .map_err(|error| Error::List { path: path.to_owned(), problem: error.to_string() })?;
    let packages = lock.package.into_iter();
    Ok(packages
        .map(|LockedPackage { name, version, source, checksum }| ((name, version), (source, checksum)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_the_list_allows_is_refused_no_more_and_all_others_are() {
        let methods = |text: &str| {
            let table: toml::Table = toml::from_str(text).unwrap();
            let methods = table["disallowed-methods"].as_array().unwrap();
            methods.iter().map(|entry| path_of(entry).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all = methods(LINTS);
        let left = methods(&lints(&["netbricks_core::read_text"]).unwrap());
        assert!(all.contains(&"netbricks_core::read_text".to_owned()));
        let others = |path: &&String| *path != "netbricks_core::read_text";
        assert_eq!(left, all.iter().filter(others).cloned().collect::<Vec<_>>());
        assert!(lints(&["netbricks_core::read"]).unwrap_err().contains("which no lint refuses"));
    }
}
