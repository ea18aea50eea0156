//! Functions by name: configuration is checked once, and a blueprint then makes a node for each worker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_buffer::Pool;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::DeTable;

use crate::annotation::Slots;
use crate::consistency::Shares;
use crate::graph::contain;
use crate::node::Node;
use crate::state::Declarations;
use crate::worker_group::WorkerGroup;

/// A worker as a function sees it: its number, its group, and the function's declared state.
#[derive(Clone)]
pub struct Worker {
    index: usize,
    seed: u64,
    pool: Pool,
    group: WorkerGroup,
    pub(crate) declarations: Rc<RefCell<Declarations>>,
    pub(crate) annotations: Rc<RefCell<Slots>>,
    pub(crate) shares: Shares,
}

impl Worker {
    /// Worker number `index`. Its randomness starts from `seed` and its new packets come from `pool`.
    pub fn new(index: usize, seed: u64, pool: Pool) -> Self {
        Self {
            index,
            seed,
            pool,
            group: WorkerGroup::new(1),
            declarations: Rc::default(),
            annotations: Rc::default(),
            shares: Shares::default(),
        }
    }
    /// The same worker, with the shared state of all workers that were given `shares`.
    ///
    /// A blueprint calls this for the workers for which it makes nodes.
    #[must_use]
    pub fn sharing(&self, shares: &Shares) -> Self {
        Self { shares: shares.clone(), ..self.clone() }
    }
    /// The same worker as a member of this group.
    #[must_use]
    pub fn of_team(self, group: WorkerGroup) -> Self {
        Self { group, ..self }
    }
    /// The group of workers that it belongs to.
    pub fn group(&self) -> &WorkerGroup {
        &self.group
    }
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }
    /// The seed of everything random in its nodes: a run with the same seed repeats exactly.
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// The pool of its new packets.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// A node that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BuildError {
    /// The error, with the expected value and a remedy.
    pub problem: String,
}

impl BuildError {
    /// An error with this text.
    pub fn new(problem: impl fmt::Display) -> Self {
        Self { problem: problem.to_string() }
    }
}

type Make = dyn Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync;

/// Makes a node for each worker from configuration that was checked already.
///
/// A blueprint crosses threads. Its nodes do not, except for state that they [share](crate::consistency).
#[derive(Clone)]
pub struct Blueprint {
    make: Arc<Make>,
    shares: Shares,
    warnings: Arc<[ConfigWarning]>,
}

impl Blueprint {
    /// A blueprint of this closure.
    pub fn new(make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static) -> Self {
        Self { make: Arc::new(make), shares: Shares::default(), warnings: Arc::default() }
    }
    /// The [warnings](Settings::warnings) about its settings.
    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }
    /// Makes the node.
    ///
    /// # Errors
    /// An error of the function's author or of its declared state, such as a table that does not fit into
    /// memory.
    pub fn build(&self, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
        (self.make)(&worker.sharing(&self.shares))
    }
}

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

/// Settings that an operator may write for a function, validated once into values that the code needs.
///
/// Derive `serde::Deserialize` with `deny_unknown_fields`: a wrong type or an unknown key is then reported
/// with line and column.
pub trait Settings: DeserializeOwned + Send + Sync + 'static {
    /// The keys, in the order in which to list them.
    const KEYS: &'static [Key];
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

/// The settings of functions that take none.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

impl Settings for NoSettings {
    const KEYS: &'static [Key] = &[];
}

/// An error in settings, with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// The error.
    pub message: String,
    /// Byte range in the file, where it is known.
    pub span: Option<Range<usize>>,
    /// The name that was probably intended.
    pub suggestion: Option<String>,
    /// The new name, where the key was renamed.
    pub renamed: Option<&'static str>,
}

impl SettingsError {
    /// An error with this text at this place.
    pub fn new(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { message: message.into(), span, suggestion: None, renamed: None }
    }
}

/// Reads settings from a table with places in a file, and checks them.
///
/// Relative file names start from `directory`, where it is given.
///
/// # Errors
/// [`SettingsError`] with the place of a renamed or unknown key, a wrong type or a refused value.
pub fn read_settings<S: Settings>(
    table: Spanned<DeTable<'_>>,
    directory: Option<&Path>,
) -> Result<S, SettingsError> {
    let whole = table.span();
    for (key, _) in table.get_ref() {
        let found = key.get_ref().as_ref();
        if let Some(RenamedKey { old, new }) = S::RENAMED.iter().find(|renamed| renamed.old == found) {
            let message = format!("`{old}` is called `{new}` now");
            return Err(SettingsError {
                renamed: Some(new),
                ..SettingsError::new(message, Some(key.span()))
            });
        }
    }
    let spans: Vec<(String, Range<usize>)> =
        table.get_ref().iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect();
    let mut settings = S::deserialize(toml::de::Deserializer::from(table))
        .map_err(|error| SettingsError::new(error.message(), error.span().or(Some(whole.clone()))))?;
    if let Some(directory) = directory {
        settings.start_from(directory);
    }
    settings.check().map_err(|refused| {
        let place = spans.iter().find(|(key, _)| key == refused.key).map(|(_, span)| span.clone());
        SettingsError::new(refused.to_string(), place.or(Some(whole)))
    })?;
    Ok(settings)
}

type Maker = dyn Fn(Spanned<DeTable<'_>>, &Path) -> Result<Blueprint, SettingsError> + Send + Sync;

/// A function that is available by name.
pub struct Definition {
    /// Its name in configuration.
    pub name: &'static str,
    /// One sentence about the function.
    pub summary: &'static str,
    /// The keys of its settings.
    pub keys: &'static [Key],
    /// Settings, as TOML, with which it can be tried. The first are the ones that tools show.
    pub examples: Vec<&'static str>,
    make: Box<Maker>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Functions by name.
#[derive(Debug, Default)]
pub struct Registry(BTreeMap<&'static str, Definition>);

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function.
    ///
    /// Its settings are read and checked once, and `build` makes a node from them for each worker. A function
    /// of the same name is replaced, so that a vendor can put another `ttl` in place of ours.
    ///
    /// `build` is usually `|config, worker| compose(worker, |input| limit(input, config, worker))`.
    pub fn add<S: Settings>(
        &mut self,
        name: &'static str,
        summary: &'static str,
        build: impl Fn(&S, &Worker) -> Result<Box<dyn Node>, BuildError> + Clone + Send + Sync + 'static,
    ) -> &mut Self {
        let make = move |table: Spanned<DeTable<'_>>, directory: &Path| {
            let settings: S = read_settings(table, Some(directory))?;
            let build = build.clone();
            let warnings = settings.warnings().into();
            Ok(Blueprint { warnings, ..Blueprint::new(move |worker| build(&settings, worker)) })
        };
        self.0.insert(
            name,
            Definition { name, summary, keys: S::KEYS, examples: Vec::new(), make: Box::new(make) },
        );
        self
    }

    /// Adds settings, as TOML, with which a function can be tried.
    ///
    /// Tools show them, and tests over all functions use them.
    ///
    /// A function without required keys and without examples is tried with its defaults. Nothing happens where no
    /// function has this name.
    pub fn examples(&mut self, name: &str, settings: &[&'static str]) -> &mut Self {
        if let Some(definition) = self.0.get_mut(name) {
            definition.examples.extend(settings);
        }
        self
    }

    /// All functions, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.0.values()
    }

    /// The function of this name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.0.get(name)
    }
}

impl Definition {
    /// Makes a blueprint of settings in the form of TOML, such as one of its [`examples`](Self::examples).
    ///
    /// Relative names of files start from the current directory.
    ///
    /// # Errors
    /// [`SettingsError`], also where the text is no TOML; its place is a byte range in `settings`.
    pub fn blueprint(&self, settings: &str) -> Result<Blueprint, SettingsError> {
        let table =
            DeTable::parse(settings).map_err(|error| SettingsError::new(error.message(), error.span()))?;
        self.configure(table, Path::new(""))
    }

    /// Checks settings, given as a table with places in the file, and makes a blueprint from them.
    ///
    /// Relative file names in them start from `directory`.
    ///
    /// # Errors
    /// [`SettingsError`] with the place of a wrong type, an unknown key or a refused value.
    pub fn configure(
        &self,
        settings: Spanned<DeTable<'_>>,
        directory: &Path,
    ) -> Result<Blueprint, SettingsError> {
        let span = settings.span();
        let made = contain(|| (self.make)(settings, directory)).unwrap_or_else(|caught| {
            let place = caught.place.map(|place| format!(" (at {place})")).unwrap_or_default();
            let message =
                format!("checking the settings of `{}` panicked: {}{place}", self.name, caught.message);
            Err(SettingsError::new(message, Some(span)))
        });
        made.map_err(|mut error| {
            if error.message.starts_with("unknown field")
                && let Some(found) = error.message.split('`').nth(1)
            {
                error.suggestion =
                    nearest(found, self.keys.iter().map(|key| key.name)).map(ToOwned::to_owned);
            }
            error
        })
    }
}

/// The known name that an operator who wrote `found` most probably intended.
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
