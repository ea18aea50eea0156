//! Attestations: what a program was built of, and whether a program is the one that was built.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{ListedCrate, hash};

/// The sources of a program that was built after a clean verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    /// The format of this file.
    pub attestation: u32,
    /// The crate that was vetted.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The program.
    pub binary: Binary,
    /// The compiler, as it names itself.
    pub rustc: String,
    /// The target that it was built for.
    pub host: String,
    /// The processor that it was built for, where one was named.
    pub target_cpu: Option<String>,
    /// The features that were vetted and built, as cargo's arguments.
    pub features: Vec<String>,
    /// The version of the vetting.
    pub netbricks: String,
    /// SHA-256 of the Cargo.lock.
    pub lock_sha256: String,
    /// SHA-256 of the vet.toml.
    pub list_sha256: String,
    /// The crates that were vetted: those of the functions.
    pub vetted: Vec<Vetted>,
    /// The crates that the list vouched for.
    pub listed: Vec<ListedCrate>,
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// Its name.
    pub name: String,
    /// SHA-256 over it.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
}

/// A crate that was vetted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vetted {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over its files.
    pub sha256: String,
}

/// Why a program is not the one of an attestation.
#[derive(Debug, thiserror::Error)]
pub enum Unattested {
    /// The attestation cannot be read.
    #[error("the attestation `{path}` cannot be read: {problem}")]
    Unreadable {
        /// The attestation.
        path: String,
        /// The system's error.
        problem: String,
    },
    /// It is no attestation.
    #[error("`{path}` is no attestation of this version: {problem}")]
    Invalid {
        /// The attestation.
        path: String,
        /// The fault and its place.
        problem: String,
    },
    /// The program cannot be read.
    #[error("the program that runs cannot be read: {0}")]
    Program(std::io::Error),
    /// It attests too little: it names no compiler or no vetted crate.
    #[error(
        "`{path}` attests nothing: its `{key}` is empty, expected what `netbricks vet CRATE --attest FILE` writes there"
    )]
    Empty {
        /// The attestation.
        path: String,
        /// The key without a value.
        key: &'static str,
    },
    /// The operator's list cannot be read.
    #[error("the list `{list}` cannot be read: {problem}")]
    List {
        /// The list.
        list: String,
        /// The system's error.
        problem: String,
    },
    /// The crates were vetted by another list.
    #[error("`{path}` is of a list with the SHA-256 {found}, and `{list}` has {expected}")]
    OtherList {
        /// The attestation.
        path: String,
        /// The operator's list.
        list: String,
        /// The hash of that list.
        expected: String,
        /// The hash of the list that the attestation names.
        found: String,
    },
    /// The program is another.
    #[error("`{path}` attests `{name}` with the SHA-256 {expected}, and the program that runs has {found}")]
    Other {
        /// The attestation.
        path: String,
        /// The program that it attests.
        name: String,
        /// Its hash.
        expected: String,
        /// The hash of the program that runs.
        found: String,
    },
}

/// Whether a path names a plain file. A pipe might never end.
fn plain(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other("it is no plain file, and one is expected")),
    }
}

impl Attestation {
    /// The format that this version writes and reads.
    pub const FORMAT: u32 = 1;

    /// Reads one.
    ///
    /// # Errors
    /// Where it cannot be read, or is in another format.
    pub fn read(path: &Path) -> Result<Self, Unattested> {
        let shown = path.display().to_string();
        let text = plain(path)
            .and_then(|()| std::fs::read_to_string(path))
            .map_err(|error| Unattested::Unreadable { path: shown.clone(), problem: error.to_string() })?;
        let read: Self = serde_json::from_str(&text)
            .map_err(|error| Unattested::Invalid { path: shown.clone(), problem: error.to_string() })?;
        if read.attestation != Self::FORMAT {
            let problem = format!("expected format {}, found {}", Self::FORMAT, read.attestation);
            return Err(Unattested::Invalid { path: shown, problem });
        }
        Ok(read)
    }

    /// Whether this program is the one that was built.
    ///
    /// # Errors
    /// Where it is another, or cannot be read.
    pub fn holds_for(&self, program: impl std::io::Read, path: &Path) -> Result<(), Unattested> {
        let found = hash::of_reader(program).map_err(Unattested::Program)?;
        if found == self.binary.sha256 {
            return Ok(());
        }
        Err(Unattested::Other {
            path: path.display().to_string(),
            name: self.binary.name.clone(),
            expected: self.binary.sha256.clone(),
            found,
        })
    }

    /// Whether it says of what the program was built, by the operator's list where that is given.
    ///
    /// # Errors
    /// Where it names no compiler or no vetted crate, or another list.
    pub fn vouches(&self, path: &Path, list: Option<&Path>) -> Result<(), Unattested> {
        let shown = path.display().to_string();
        let needed = [("rustc", self.rustc.is_empty()), ("vetted", self.vetted.is_empty())];
        if let Some((key, _)) = needed.into_iter().find(|(_, is_empty)| *is_empty) {
            return Err(Unattested::Empty { path: shown, key });
        }
        let Some(list) = list else { return Ok(()) };
        let text = plain(list).and_then(|()| std::fs::read(list)).map_err(|error| Unattested::List {
            list: list.display().to_string(),
            problem: error.to_string(),
        })?;
        let expected = hash::of_bytes(&text);
        match expected == self.list_sha256 {
            true => Ok(()),
            false => Err(Unattested::OtherList {
                path: shown,
                list: list.display().to_string(),
                expected,
                found: self.list_sha256.clone(),
            }),
        }
    }

    /// Whether the program that runs is the one that an attestation is about, and [vouches](Self::vouches) for it.
    ///
    /// # Errors
    /// Where it is another, the attestation cannot be read or attests too little, or is of another list.
    pub fn check_self(path: &Path, list: Option<&Path>) -> Result<Self, Unattested> {
        let attestation = Self::read(path)?;
        let program = std::fs::File::open("/proc/self/exe").map_err(Unattested::Program)?;
        attestation.holds_for(program, path)?;
        attestation.vouches(path, list)?;
        Ok(attestation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_told_with_both_hashes() {
        let attestation = Attestation {
            attestation: 1,
            name: "own".into(),
            version: "1.0.0".into(),
            binary: Binary { name: "own".into(), sha256: hash::of_bytes(b"program"), bytes: 7 },
            rustc: "rustc 1.95.0".into(),
            host: "x86_64".into(),
            target_cpu: None,
            features: Vec::new(),
            netbricks: "0.1.0".into(),
            lock_sha256: String::new(),
            list_sha256: String::new(),
            vetted: Vec::new(),
            listed: Vec::new(),
        };
        assert!(attestation.holds_for(&b"program"[..], Path::new("a.json")).is_ok());
        let said = attestation
            .holds_for(&b"programs"[..], Path::new("a.json"))
            .expect_err("it is another")
            .to_string();
        assert!(
            said.contains(&hash::of_bytes(b"program")) && said.contains(&hash::of_bytes(b"programs")),
            "{said}"
        );
    }
}
