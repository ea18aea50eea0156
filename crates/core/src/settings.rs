//! Settings of functions and ports: their keys, and how a table of a file is read and checked.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::DeTable;

/// A key that an operator may write in a function's or port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Key {
    /// The name as it is written: `"capacity"`.
    pub name: &'static str,
    /// The kind of value, with its unit: `"whole number, flows"`.
    pub kind: &'static str,
    /// The default value, as an operator would write it; `None` where the key is required.
    pub default: Option<&'static str>,
    /// One sentence about the key.
    pub summary: &'static str,
}

/// A key that had another name in an earlier version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RenamedKey {
    /// The name that is refused now: `"other"`.
    pub old: &'static str,
    /// The name of the same key now: `"non_ip"`.
    pub new: &'static str,
}

/// The keys of a table. [`settings!`](crate::settings) implements it.
pub trait Keys: DeserializeOwned {
    /// The keys, in the order in which to list them.
    const KEYS: &'static [Key];
}

/// Settings that an operator may write for a function, validated once into values that the code needs.
///
/// Declare the type with [`settings!`](crate::settings).
pub trait Settings: Keys + Send + Sync + 'static {
    /// Keys of earlier versions. A file that has one gets an error that names the new key.
    const RENAMED: &'static [RenamedKey] = &[];
    /// Checks rules that types cannot express.
    ///
    /// The message names the key, the expected value and the value found. The check is called again without
    /// the key that it refused, so that all errors are reported at once. An error that follows from another
    /// wrong key is not reported, if its message names that key in backquotes.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the key.
    fn check(&self) -> Result<(), InvalidSetting> {
        Ok(())
    }
    /// Checks each item of lists against other settings, as an address against the networks of interfaces.
    ///
    /// It is called on settings that passed the [check](Self::check). The error points at the item.
    ///
    /// # Errors
    /// [`RefusedItem`] names the key and the item.
    fn check_items(&self) -> Result<(), RefusedItem> {
        Ok(())
    }
    /// Sets the directory from which relative file names start: that of the configuration file.
    ///
    /// It is called once, before anything is checked.
    fn start_from(&mut self, _directory: &Path) {}
    /// Warnings about values that are valid but probably not intended. It is called on settings that passed
    /// the check.
    fn warnings(&self) -> Vec<ConfigWarning> {
        Vec::new()
    }
}

/// A value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct InvalidSetting {
    /// The key.
    pub key: &'static str,
    /// `"must be 1 to 65535, found 0"`
    pub problem: String,
}

/// An item of a list that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct RefusedItem {
    /// The key of the list.
    pub key: &'static str,
    /// The index of the item, from 0.
    pub item: usize,
    /// The error: `"holds 192.0.2.1, which is the address of another interface"`.
    pub problem: String,
}

/// A valid value that is probably not intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The key.
    pub key: &'static str,
    /// The index of the item in the key's list, from 0.
    pub item: Option<usize>,
    /// `"backend `web-2` has the Ethernet address of `web-1`"`
    pub problem: String,
}

crate::settings! {
    /// The settings of functions that take none.
    #[derive(Clone, Copy, Debug)]
    pub struct NoSettings {}
}

impl Settings for NoSettings {}

/// An error in settings, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// The error.
    pub message: String,
    /// Byte range in the file, where it is known.
    pub span: Option<Range<usize>>,
    /// The fault, where it is a key's and not a value's.
    pub key: Option<KeyFault>,
}

/// A fault of a table's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// There is no key of this name.
    Unknown {
        /// The name that was probably intended.
        suggestion: Option<&'static str>,
    },
    /// The key has another name now.
    Renamed {
        /// The new name.
        new: &'static str,
    },
    /// A required key is left out.
    Missing {
        /// Its name.
        key: &'static str,
    },
}

impl SettingsError {
    /// An error with this text at this place.
    pub fn new(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { message: message.into(), span, key: None }
    }

    fn of_key(message: String, span: Range<usize>, fault: KeyFault) -> Self {
        Self { message, span: Some(span), key: Some(fault) }
    }
}

/// Checks the names of a table's keys: all are known and current, and no required key is missing.
///
/// # Errors
/// The first fault. An unknown or renamed key has its place in the file; a missing one has that of the table.
pub fn check_keys<'k>(
    table: &Spanned<DeTable<'_>>,
    known: impl Iterator<Item = &'k Key> + Clone,
    renamed: impl Iterator<Item = &'k RenamedKey> + Clone,
) -> Result<(), SettingsError> {
    for key in table.get_ref().keys() {
        let (found, place) = (key.get_ref().as_ref(), key.span());
        if known.clone().any(|known| known.name == found) {
            continue;
        }
        if let Some(RenamedKey { old, new }) = renamed.clone().find(|renamed| renamed.old == found) {
            let message = format!("`{old}` is called `{new}` now");
            return Err(SettingsError::of_key(message, place, KeyFault::Renamed { new }));
        }
        let suggestion = nearest(found, known.clone().map(|known| known.name));
        let message = format!("there is no key `{found}`");
        return Err(SettingsError::of_key(message, place, KeyFault::Unknown { suggestion }));
    }
    let missing = |known: &&Key| known.default.is_none() && !table.get_ref().contains_key(known.name);
    match known.clone().find(missing) {
        Some(Key { name: key, .. }) => {
            let message = format!("the key `{key}` must be given");
            Err(SettingsError::of_key(message, table.span(), KeyFault::Missing { key }))
        }
        None => Ok(()),
    }
}

/// Reads settings from a table with places in a file, and checks them.
///
/// Relative file names start from `directory`, where it is given.
///
/// # Errors
/// [`SettingsError`] with the place of an unknown, renamed or missing key, a wrong type or a refused value.
pub fn read_settings<S: Settings>(
    table: Spanned<DeTable<'_>>,
    directory: Option<&Path>,
) -> Result<S, SettingsError> {
    check_keys(&table, S::KEYS.iter(), S::RENAMED.iter())?;
    let whole = table.span();
    let spans: Vec<(String, Range<usize>)> =
        table.get_ref().iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
    let items: Vec<(String, Vec<Range<usize>>)> = table
        .get_ref()
        .iter()
        .filter_map(|(key, value)| {
            let items = value.get_ref().as_array()?.iter().map(Spanned::span);
            Some((key.get_ref().to_string(), items.collect()))
        })
        .collect();
    let mut settings = S::deserialize(toml::de::Deserializer::from(table))
        .map_err(|error| SettingsError::new(error.message(), error.span().or(Some(whole.clone()))))?;
    if let Some(directory) = directory {
        settings.start_from(directory);
    }
    settings.check().map_err(|refused| {
        let place = spans.iter().find(|(key, _)| key == refused.key).map(|(_, span)| span.clone());
        SettingsError::new(refused.to_string(), place.or(Some(whole.clone())))
    })?;
    settings.check_items().map_err(|refused| {
        let known = items.iter().find(|(key, _)| key == refused.key);
        let place = known.and_then(|(_, items)| items.get(refused.item).cloned());
        SettingsError::new(refused.to_string(), place.or(Some(whole)))
    })?;
    Ok(settings)
}

/// Opens a file that settings name, to read it.
///
/// A pipe would wait for its writer, and so would all changes of a run; a device may wait or have no end.
///
/// # Errors
/// When it is no regular file, or cannot be opened.
pub fn open_file(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    let found = match kind {
        // To read a directory fails with the system's message.
        kind if kind.is_file() || kind.is_dir() => return File::open(path),
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let problem = format!("it is {found}, and a regular file is expected: copy its content into one");
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// The text of a file that settings name, unless it has more bytes than `most`.
///
/// # Errors
/// When it is no regular file, cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    text_of(open_file(path)?, most)
}

fn text_of(file: File, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {} MiB", most >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The text of a file with secrets, which is refused where all users of the machine may use it.
///
/// In all else it reads as [`read_text`].
///
/// # Errors
/// As [`read_text`], and where others may read or write the file.
pub fn read_private_text(path: &Path, most: u64) -> io::Result<String> {
    let file = open_file(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode & 0o006 != 0 {
        let shown = path.display();
        let problem =
            format!("all users of this machine can use it (mode {mode:04o}): run `chmod o-rw {shown}`");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    text_of(file, most)
}

/// The known name that is most similar to `found`, if any is similar.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(found, name), name))
        .filter(|(distance, name)| {
            let longest = name.len().max(found.len());
            // The names must have something in common.
            *distance <= 1 + longest / 4 && *distance < longest
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
