//! Errors of the store, and the user and process that they name.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{Damage, Number};

/// A request that the store could not meet.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The user may not write to the state directory.
    #[error(
        "cannot {operation} {}: {source}. The state directory {} must be writable for user {user}: \
         `chown` it, or choose another with `[control] state = \"DIR\"` or `--state DIR`",
        path.display(), directory.display()
    )]
    Denied {
        /// A verb: `create`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The state directory.
        directory: PathBuf,
        /// The user's name and number.
        user: String,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// Another process uses the state directory.
    #[error(
        "the state directory {} is in use by {holder}. Stop it, \
         or choose another directory with `[control] state = \"DIR\"` or `--state DIR`",
        path.display()
    )]
    Held {
        /// The state directory.
        path: PathBuf,
        /// The process.
        holder: Holder,
    },
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(source))]
    File {
        /// A verb: `write`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// There is no configuration of that number.
    #[error("no configuration {number} in {}: expected {expected}. `history` lists them", path.display())]
    Unknown {
        /// The number that was asked for.
        number: Number,
        /// The state directory.
        path: PathBuf,
        /// The numbers that there are.
        expected: String,
    },
    /// The file was good when the store opened and is not any more.
    #[error("{} cannot be used: {damage}. Another program changed it; put a backup of it there", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its fault.
        damage: Damage,
    },
    /// The configuration is too long.
    #[error(
        "the configuration has {bytes} bytes, expected at most {limit}. Move long lists into files of their own"
    )]
    TooLong {
        /// Bytes of the file in the state directory.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The journal has no room for these records.
    #[error(
        "the journal of configuration {number} is full: expected at most {most_records} records \
         and {most_bytes} bytes, got {records} and {bytes}. \
         Write the changes into a file and `apply` it, which starts an empty journal"
    )]
    Full {
        /// The journal's configuration.
        number: Number,
        /// Records that there would be.
        records: usize,
        /// Bytes that there would be.
        bytes: usize,
        /// The limit of records.
        most_records: usize,
        /// The limit in bytes.
        most_bytes: usize,
    },
    /// Records can only be carried into an empty journal.
    #[error(
        "the journal of configuration {number} has {records} records, expected none. \
         Carry records before new ones are written"
    )]
    NotEmpty {
        /// The journal's configuration.
        number: Number,
        /// Its records.
        records: usize,
    },
    /// The last confirmed configuration cannot fail or be rolled back.
    #[error("configuration {number} is the last confirmed one and stays it. Confirm another one first")]
    LastConfirmed {
        /// The configuration.
        number: Number,
    },
    /// There are no more numbers.
    #[error(
        "the newest file in {} has the highest number there is, {number}. Move files with such numbers away",
        path.display()
    )]
    NoNumberLeft {
        /// The state directory.
        path: PathBuf,
        /// The highest number.
        number: Number,
    },
}

/// Advice that depends on the operating system's answer.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". Free some space on this file system, or choose another directory with `--state DIR`"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            ". Expected a directory; choose another with `[control] state = \"DIR\"` or `--state DIR`"
        }
        io::ErrorKind::NotFound => {
            ". Another program removed the file or its directory; restart, so that it is created again"
        }
        _ => "",
    }
}

impl StoreError {
    pub(super) fn of_file(
        operation: &'static str,
        path: PathBuf,
        directory: &Path,
        source: io::Error,
    ) -> StoreError {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                StoreError::Denied { operation, path, directory: directory.into(), user: user(), source }
            }
            _ => StoreError::File { operation, path, source },
        }
    }
}

/// A process that uses the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process's number, where it could be found out.
    pub process: Option<u32>,
    /// The command's name, where there is such a process.
    pub command: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process, &self.command) {
            (Some(process), Some(command)) => write!(f, "process {process} ({command})"),
            (Some(process), None) => write!(f, "process {process}, which this one cannot see"),
            (None, _) => write!(f, "a process that this one cannot see (`fuser` as root names it)"),
        }
    }
}

/// The effective user: `alice (uid 1000)`.
fn user() -> String {
    // Not the owner of /proc/self, which is root for a program with capabilities of its own.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let identifiers = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let Some(uid) = identifiers.and_then(|all| all.split_whitespace().nth(1)) else {
        return "of this process".into();
    };
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then_some(name)
    });
    match name {
        Some(name) => format!("{name} (uid {uid})"),
        None => format!("with uid {uid}"),
    }
}
