//! Faults of files in the state directory, and the warnings about them.

use std::path::PathBuf;

use super::Number;

/// A file's fault: the reason why it was not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file does not begin as such a file does.
    #[error("expected it to begin with `{expected}`, got `{got}`")]
    Beginning {
        /// The first bytes of such a file.
        expected: &'static str,
        /// The file's first bytes.
        got: String,
    },
    /// The file ends too early.
    #[error("expected {expected} bytes or more, got {got}")]
    Short {
        /// Bytes that there should be.
        expected: usize,
        /// Bytes that there are.
        got: usize,
    },
    /// The content is not the one that was written.
    #[error("expected the checksum {expected} for its content, got `{got}`")]
    Checksum {
        /// The checksum of the content.
        expected: String,
        /// The checksum in the file.
        got: String,
    },
    /// Another version of NetBricks wrote the file.
    #[error("expected format {expected}, got {got}: another version of NetBricks wrote it")]
    Format {
        /// The format that this version reads.
        expected: u32,
        /// The file's format.
        got: u32,
    },
    /// The checksum is right, but the content is not as expected.
    #[error("its content is not as expected: {problem}")]
    Content {
        /// The problem, as the decoder describes it.
        problem: String,
    },
    /// The file belongs to another configuration.
    #[error("expected configuration {expected}, got {got}: it was renamed or copied")]
    Configuration {
        /// The configuration by the file's name.
        expected: String,
        /// The configuration by the file's content.
        got: String,
    },
    /// The file could not be read.
    #[error("it cannot be read: {problem}")]
    Unreadable {
        /// The answer of the operating system.
        problem: String,
    },
}

/// A state directory's fault that [`Store::open`](super::Store::open) got over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A file was not used.
    #[error("skipped {}: {damage}. Remove the file, or put a backup of it there before the next start", path.display())]
    Skipped {
        /// The file.
        path: PathBuf,
        /// The reason.
        damage: Damage,
    },
    /// Records at the end of a journal were lost.
    #[error(
        "the journal {} is damaged after {kept} records, so {lost} changes are lost: {damage}. \
         The whole journal is in {}; call its handlers again where they are still wanted",
        path.display(), copy.display()
    )]
    JournalCut {
        /// The journal.
        path: PathBuf,
        /// Records before the damage.
        kept: usize,
        /// Lines from the damage on.
        lost: usize,
        /// The first damage.
        damage: Damage,
        /// The journal as it was found.
        copy: PathBuf,
    },
    /// A journal was not used and lies under another name now.
    #[error(
        "the changes in {} are lost: {damage}. The file is {} now; call its handlers again where they are still wanted",
        path.display(), copy.display()
    )]
    JournalSetAside {
        /// The journal.
        path: PathBuf,
        /// The reason.
        damage: Damage,
        /// The journal's new name.
        copy: PathBuf,
    },
    /// Another configuration than the last confirmed one is restored.
    #[error(
        "configuration {wanted} was confirmed last but cannot be read: {restored} is restored. \
         Check it, or start with a file"
    )]
    OlderRestored {
        /// The configuration that was confirmed last.
        wanted: Number,
        /// The configuration that is restored.
        restored: Number,
    },
    /// The record of confirmations is lost, so the newest readable configuration is restored.
    #[error(
        "no file says which configuration was confirmed: the newest, {restored}, is restored. \
         Check it, or start with a file"
    )]
    NewestRestored {
        /// The configuration that is restored.
        restored: Number,
    },
    /// A file could not be written, repaired or removed; the next change tries again.
    #[error("cannot {operation} {}: {problem}. The next change tries it again", path.display())]
    Postponed {
        /// A verb: `remove`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The answer of the operating system.
        problem: String,
    },
    /// Other users may write configurations for this one.
    #[error(
        "other users may write to {} (mode {mode:o}): `chmod go-w {}` keeps them from changing what runs",
        path.display(), path.display()
    )]
    Exposed {
        /// The state directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}
