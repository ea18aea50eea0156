//! Refuses function crates that reach more than packets and declared state, and attests what is built of others.
//!
//! Nothing of a vetted crate runs. First the resolved graph is compared with the operator's list. Then the syntax of every
//! source file is read. At last the compiler's own lints look at the expanded code.
#![forbid(unsafe_code)]

mod attestation;
mod compile;
mod graph;
pub mod hash;
mod list;
mod manifest;
mod standard;
mod syntax;
mod toolchain;
mod unit;
mod verdict;
mod vetting;

use std::path::PathBuf;

pub use attestation::{Attestation, Binary, Unattested, Vetted};
pub use list::List;
pub use unit::by_name;
pub use verdict::{CrateVerdict, Finding, ListedCrate, Rule, Verdict};
pub use vetting::{Features, Request, Vetting};

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("`{}` cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The list or a lock file is wrong.
    #[error("`{}`: {problem}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The fault and its place.
        problem: String,
    },
    /// There is no crate.
    #[error("there is no `{}`: name the folder of a crate", manifest.display())]
    NoCrate {
        /// The manifest that is missing.
        manifest: PathBuf,
    },
    /// Something of the operator's lies where the crate's author could have written it.
    #[error("{what} `{}` lies inside the crate `{}`, whose author could have written it: put it elsewhere", path.display(), folder.display())]
    Inside {
        /// The thing.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The crate's folder.
        folder: PathBuf,
    },
    /// The dependencies cannot be resolved as they are locked.
    #[error("`{}`: its dependencies cannot be resolved from its Cargo.lock: {said}", manifest.display())]
    Unresolved {
        /// The manifest.
        manifest: PathBuf,
        /// The words of cargo.
        said: String,
    },
    /// A program of the toolchain cannot be run, or failed.
    #[error("`{program}`: {problem}")]
    Program {
        /// The program.
        program: String,
        /// The fault.
        problem: String,
    },
    /// A source changed while it was vetted.
    #[error("a file of a vetted crate in `{}` changed meanwhile: vet it again", folder.display())]
    Changed {
        /// The workspace's folder.
        folder: PathBuf,
    },
    /// There is nothing to attest, or more than one thing.
    #[error("an attestation is about one program, and this crate has {}: {}", names.len(), if names.is_empty() { "add a `main.rs` that passes its functions to `netbricks::main`".to_owned() } else { names.join(", ") })]
    NoProgram {
        /// The programs.
        names: Vec<String>,
    },
    /// The verdict is not clean.
    #[error("only a clean crate is attested")]
    Refused,
}
