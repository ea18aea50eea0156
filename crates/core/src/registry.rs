//! Functions by name: configuration is checked once, and a blueprint then makes a node for each worker.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use netbricks_buffer::Pool;
use toml::Spanned;
use toml::de::DeTable;

use crate::consistency::Shares;
use crate::control_copy::{ControlCopy, panicked};
use crate::control_task::{ControlTask, TaskMaker, TaskSource};
use crate::graph::{RestartPolicy, contain};
use crate::live::{Live, LiveChange, LiveSettings, Written};
use crate::node::Node;
use crate::settings::{ConfigWarning, Key, Settings, SettingsError, read_settings};
use crate::worker::{BuildError, PortNames, Worker};

type Make = dyn Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync;

/// Makes a node for each worker from configuration that was checked already.
///
/// A blueprint crosses threads. Its nodes do not, except for state that they [share](crate::consistency).
#[derive(Clone)]
pub struct Blueprint {
    make: Arc<Make>,
    shares: Shares,
    warnings: Arc<[ConfigWarning]>,
    restart: RestartPolicy,
    task: TaskSource,
    live: Option<Live>,
    tenant: Arc<str>,
}

impl Blueprint {
    /// A blueprint of this closure.
    pub fn new(make: impl Fn(&Worker) -> Result<Box<dyn Node>, BuildError> + Send + Sync + 'static) -> Self {
        Self {
            make: Arc::new(make),
            shares: Shares::default(),
            warnings: Arc::default(),
            restart: RestartPolicy::default(),
            task: TaskSource::default(),
            live: None,
            tenant: Arc::default(),
        }
    }
    /// Makes the function's [task](ControlTask) on the control side, where it has one.
    ///
    /// This runs an author's code, which may panic.
    pub fn control_task(&self) -> Option<Box<dyn ControlTask>> {
        self.task.make()
    }
    /// The same blueprint, whose nodes follow this policy after a panic.
    #[must_use]
    pub fn restarting(self, restart: RestartPolicy) -> Self {
        Self { restart, ..self }
    }
    /// The policy after a panic.
    pub fn restart(&self) -> RestartPolicy {
        self.restart
    }
    /// The [warnings](Settings::warnings) about its settings.
    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }
    /// The keys of its settings that change by [writes of handlers](Self::live_change_to).
    pub fn live_keys(&self) -> &'static [&'static str] {
        self.live.map_or(&[], |live| live.keys)
    }
    /// The writes of handlers that bring the state of its nodes to the settings of `after`.
    ///
    /// Both are of one function, and all but [live keys](Self::live_keys) are alike. What handlers have `written` since
    /// stands before the settings. `None` where the function has no such keys, or where a write does something else with
    /// an entry that changes.
    pub fn live_change_to(&self, after: &Self, written: &[Written<'_>]) -> Option<LiveChange> {
        let (before, settings) = (self.task.settings.as_deref()?, after.task.settings.as_deref()?);
        self.live?.change(before, settings, written)
    }
    /// The first live key with the list that says what handlers have `written` since, too.
    ///
    /// `None` where the function has no such key, or a write is of something else.
    pub fn live_list(&self, written: &[Written<'_>]) -> Option<(&'static str, Vec<String>)> {
        self.live?.list(self.task.settings.as_deref()?, written)
    }
    /// The same blueprint, whose nodes share the state of those of `running`.
    ///
    /// For live settings, of which the state has been [written](LiveChange::write).
    #[must_use]
    pub fn in_place_of(&self, running: &Self) -> Self {
        Self { shares: running.shares.clone(), ..self.clone() }
    }
    /// The same blueprint, whose nodes are this [tenant's](Worker::tenant).
    #[must_use]
    pub fn of_tenant(self, tenant: &str) -> Self {
        Self { tenant: tenant.into(), ..self }
    }
    /// The same blueprint, whose nodes share no state with those of this one.
    ///
    /// For a node that is made only to be looked at.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { shares: Shares::default(), ..self.clone() }
    }
    /// Makes the node.
    ///
    /// # Errors
    /// An error of the function's author or of its declared state, such as a table that does not fit into
    /// memory.
    pub fn build(&self, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
        (self.make)(&worker.sharing(&self.shares).of_tenant(self.tenant.clone()))
    }
    /// Makes a node that shares no state with any other, asks it a question, and drops it.
    ///
    /// All of this runs the author's code, contained.
    ///
    /// # Errors
    /// As [`build`](Self::build), also where making, asking or dropping the node panics.
    pub fn ask<T>(
        &self,
        worker: &Worker,
        question: impl FnOnce(&mut dyn Node) -> T,
    ) -> Result<T, BuildError> {
        let made = contain(|| self.apart().build(worker));
        let mut node = made.map_err(|caught| panicked("making it", &caught))??;
        let answer = contain(|| question(node.as_mut()));
        // Contained on its own: a second panic while the first one unwinds would end the process.
        let dropped = contain(|| drop(node));
        let answer = answer.map_err(|caught| panicked("asking what it is", &caught))?;
        dropped.map_err(|caught| panicked("dropping it", &caught))?;
        Ok(answer)
    }
    /// Makes the control side's copy of the node, whose handlers read and write the state of all workers.
    ///
    /// It takes little memory beside that state. Where it is made before the workers' nodes it makes that
    /// state, and they only join it. New packets would come from `pool`; `seed` is the workers'.
    ///
    /// # Errors
    /// As [`build`](Self::build), also where making it panics.
    pub fn control(&self, pool: Pool, seed: u64) -> Result<ControlCopy, BuildError> {
        self.control_among(pool, seed, 1, PortNames::default())
    }
    /// As [`control`](Self::control), for the nodes of this many workers, among these ports.
    ///
    /// # Errors
    /// As [`control`](Self::control).
    pub fn control_among(
        &self,
        pool: Pool,
        seed: u64,
        workers: usize,
        ports: PortNames,
    ) -> Result<ControlCopy, BuildError> {
        ControlCopy::new(self, (pool, seed), workers, ports)
    }
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
    task: Option<TaskMaker>,
    live: Option<Live>,
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
            let settings: Arc<S> = Arc::new(read_settings(table, Some(directory))?);
            let build = build.clone();
            let warnings = settings.warnings().into();
            let task = TaskSource { settings: Some(settings.clone()), maker: None };
            Ok(Blueprint { warnings, task, ..Blueprint::new(move |worker| build(&settings, worker)) })
        };
        let (keys, examples, make) = (S::KEYS, Vec::new(), Box::new(make));
        self.0.insert(name, Definition { name, summary, keys, examples, make, task: None, live: None });
        self
    }

    /// Gives a function a [task](ControlTask) on the control side, where its settings ask for one.
    ///
    /// `S` is the type of settings that the function was added with. Nothing happens where no function has this
    /// name. A function that replaces it has no task of it.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use netbricks_core::{ControlTask, HandlerCaller, NoSettings, Registry};
    ///
    /// /// Writes the handler `tick` each second.
    /// struct Ticks;
    /// impl ControlTask for Ticks {
    ///     fn run(&mut self, handlers: &mut dyn HandlerCaller, _: Instant) -> Option<Duration> {
    ///         let _refused = handlers.write("tick", "");
    ///         Some(Duration::from_secs(1))
    ///     }
    /// }
    ///
    /// # let mut registry = Registry::new();
    /// registry.control_task("clock", |_: &NoSettings| Some(Box::new(Ticks)));
    /// ```
    pub fn control_task<S: Settings>(
        &mut self,
        name: &str,
        make: impl Fn(&S) -> Option<Box<dyn ControlTask>> + Send + Sync + 'static,
    ) -> &mut Self {
        if let Some(definition) = self.0.get_mut(name) {
            definition.task = Some(TaskMaker::new(make));
        }
        self
    }

    /// Lets a function go on where only its [live](LiveSettings) keys change.
    ///
    /// `S` is the type of settings that the function was added with. Nothing happens where no function has this name.
    pub fn live<S: LiveSettings>(&mut self, name: &str) -> &mut Self {
        if let Some(definition) = self.0.get_mut(name) {
            definition.live = Some(Live::of::<S>());
        }
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
        made.map(|made| {
            let task = TaskSource { maker: self.task.clone(), ..made.task };
            Blueprint { task, live: self.live, ..made }
        })
    }
}
