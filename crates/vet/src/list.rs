//! `vet.toml`: the crates that the operator vouches for, and what functions may name of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, hash};

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
