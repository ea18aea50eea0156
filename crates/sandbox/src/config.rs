//! Settings of the function `sandbox`, and the module that they name: read, compiled and tried once.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use netbricks_core::declaration::Declared as _;
use netbricks_core::units::{Bytes, Duration};
use netbricks_core::{InvalidSetting, Settings, open_file};

use crate::abi::ABI;
use crate::backend::{Limits, Program};
use crate::cache::Cache;
use crate::host::{MOST_CONFIG, MOST_SMALL, Needs};
use crate::policy::Policy;
use crate::prepare::{Inspection, Prepared, Trial};
use crate::sys::ticks::TICK;

/// Elements that tables may have at most.
pub(crate) const MOST_TABLE: usize = 1 << 16;
/// Bytes that `memory` allows at most: the worker waits while the system frees those that were used.
const MOST_MEMORY: u64 = 64 << 20;
/// Bytes of a module at most: each new instance copies those of its data.
const MOST_SIZE: u64 = 16 << 20;
/// Frames of a pool for `mapped` at most, which are memory of the module's too.
const MOST_FRAMES: usize = 4_096;

/// How packets come to the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The first bytes of each frame are copied into the module's memory, and out again where it writes.
    #[default]
    Copy,
    /// Each frame is copied into the module's memory as a whole, and back where it writes.
    Mapped,
}

/// The fate of packets while the module does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stopped {
    /// They are dropped as `quarantined`.
    #[default]
    Drop,
    /// They pass on unchanged.
    Pass,
}

/// The state that a module keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptState {
    /// It may keep state of connections: both directions of a flow come to one instance.
    #[default]
    Flow,
    /// It keeps none that a later packet needs.
    None,
}

netbricks_core::settings! {
    /// Settings of `sandbox`.
    #[derive(Clone, Debug)]
    pub struct SandboxSettings {
        /// The file of the WebAssembly module.
        pub module: PathBuf = required, "path of a .wasm file, from the chain file's directory";
        /// The module's configuration, as text that `nb_setup` gets.
        pub config: Option<String> = unset "no bytes", "text";
        /// A file with the module's configuration, in place of `config`.
        pub config_file: Option<PathBuf> = unset, "path of a file, from the chain file's directory";
        /// How packets come to the module.
        pub mode: Mode = "copy", "\"copy\" or \"mapped\"";
        /// Frames of the pool for `mapped`, on each worker.
        pub frames: usize = 1_024, "whole number of 2 KiB frames, 256 to 4096";
        /// The name of that pool: functions of one worker that name the same pool share its frames.
        ///
        /// It saves memory. Such functions trust each other. Only functions with the same `frames` share a pool.
        pub pool: Option<String> = unset "a pool of its own", "text";
        /// Memory that the module may have on each worker.
        ///
        /// The worker waits while used memory is freed after a fault, so there is no more than 64 MiB. No clock ends a
        /// `memory.fill`, `memory.copy` or `memory.init`: above 16 MiB a module with one of them is refused.
        pub memory: Bytes = "16 MiB", "bytes, to 64 MiB";
        /// Elements that its table of functions may have.
        pub table: usize = 4_096, "whole number, 0 to 65536";
        /// The largest module.
        ///
        /// A new instance copies its data, which no clock ends.
        pub size: Bytes = "1 MiB", "bytes, to 16 MiB";
        /// The longest time that compiling it may take.
        pub compile_time: Duration = "10 s", "duration, to 5 min";
        /// CPU time that it may take for a batch.
        ///
        /// It is counted in ticks of 250 us: a module that never ends is stopped within one more.
        pub slice: Duration = "250 us", "duration, 250 us to 10 ms";
        /// CPU time that a new instance may take to begin and to set itself up.
        ///
        /// Where that takes more than 2 ms, the instance gets packets from the worker's next turn on.
        pub setup_time: Duration = "10 ms", "duration, 250 us to 10 ms";
        /// Host calls that it may make for a batch.
        pub calls: u32 = 16_384, "whole number, 0 to 1000000";
        /// Faults after which it is stopped; 0 for never.
        pub strikes: u32 = 8, "whole number";
        /// The time without an instance after the first fault, which doubles with each further fault.
        pub backoff: Duration = "1 ms", "duration, to 10 s";
        /// After this time without a fault, earlier ones are forgotten.
        pub forgive: Duration = "60 s", "duration";
        /// The fate of packets while it does not run.
        pub stopped: Stopped = "drop", "\"drop\" or \"pass\"";
        /// The state that it keeps: with "flow" both directions of a flow come to the same worker.
        pub state: KeptState = "flow", "\"flow\" or \"none\"";
        /// A private folder in which compiled modules are kept from run to run, up to 512 MiB.
        pub cache: Option<PathBuf> = unset "compiled in each run", "path of a folder, from the chain file's directory";
        /// Ways out: 0 is the next function, others are named by their number.
        pub outputs: usize = 1, "whole number, 1 to 128";
        /// The module's bytes, where they are given in place of a file.
        given: Option<Arc<[u8]>> = skipped;
        /// The module, once it has been compiled and tried.
        prepared: OnceLock<Result<Arc<Prepared>, InvalidSetting>> = skipped;
    }
}

impl fmt::Debug for dyn Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Program").field(self.contents()).finish()
    }
}

fn refused<T>(key: &'static str, problem: impl Into<String>) -> Result<T, InvalidSetting> {
    Err(InvalidSetting { key, problem: problem.into() })
}

/// The bytes of a file, unless there are more than `most`.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = open_file(path).and_then(|file| file.take(most.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 <= most => Ok(bytes),
        Ok(_) => Err(format!("names {}, which has more than {most} bytes", path.display())),
        Err(error) => Err(format!("names {}, which cannot be read: {error}", path.display())),
    }
}

impl SandboxSettings {
    /// The default settings of a module that is given as bytes.
    pub fn of(module: &[u8]) -> Self {
        let settings = Self::with_defaults((PathBuf::from("module"),));
        Self { given: Some(module.into()), ..settings }
    }

    /// The limits, as the back end takes them.
    pub(crate) fn limits(&self) -> Limits {
        let ticks = |time: Duration| time.nanoseconds().div_ceil(TICK) + 1;
        Limits {
            memory: self.memory.bytes() as usize,
            table: self.table,
            size: self.size.bytes() as usize,
            compile: self.compile_time.nanoseconds(),
            slice: ticks(self.slice),
            setup: ticks(self.setup_time),
        }
    }

    /// The policy after faults.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            strikes: self.strikes,
            backoff: self.backoff.nanoseconds(),
            forgive: self.forgive.nanoseconds(),
        }
    }

    /// The module, compiled and tried on the thread that asks first.
    ///
    /// # Errors
    /// The key and the problem, also where it was found before.
    pub(crate) fn prepared(&self) -> Result<Arc<Prepared>, InvalidSetting> {
        self.prepared.get_or_init(|| self.prepare()).clone()
    }

    fn configuration(&self) -> Result<Vec<u8>, InvalidSetting> {
        match (&self.config, &self.config_file) {
            (Some(_), Some(_)) => refused("config_file", "and `config` exclude each other"),
            (None, Some(path)) => {
                read(path, MOST_CONFIG as u64).or_else(|problem| refused("config_file", problem))
            }
            (Some(text), None) if text.len() > MOST_CONFIG => {
                refused("config", format!("has {} bytes, more than {MOST_CONFIG}", text.len()))
            }
            (text, None) => Ok(text.clone().unwrap_or_default().into_bytes()),
        }
    }

    fn prepare(&self) -> Result<Arc<Prepared>, InvalidSetting> {
        self.tried(&mut Inspection::default()).map(Arc::new)
    }

    fn tried(&self, found: &mut Inspection) -> Result<Prepared, InvalidSetting> {
        let config = self.configuration()?;
        let module = match &self.given {
            Some(given) => given.to_vec(),
            None => read(&self.module, self.size.bytes()).or_else(|problem| refused("module", problem))?,
        };
        let cache = match &self.cache {
            Some(folder) => Some(Cache::open(folder).or_else(|problem| refused("cache", problem))?),
            None => None,
        };
        let (limits, calls) = (self.limits(), self.calls);
        let frames = (self.mode == Mode::Mapped).then_some(self.frames);
        let trial = Trial { module: &module, config, limits, calls, frames, cache: cache.as_ref() };
        trial.run(found).or_else(|problem| {
            found.problems = problem.problem.lines().map(str::to_owned).collect();
            refused("module", format!("names {}, which is refused: {problem}", self.module.display()))
        })
    }

    /// Finds what the module has and needs, and all that it would be refused for.
    pub fn inspect(&self) -> Inspection {
        let mut found = Inspection::default();
        if let Err(refused) = self.in_range().and_then(|()| self.tried(&mut found).map(|_| ()))
            && found.problems.is_empty()
        {
            found.problems.push(refused.to_string());
        }
        if let Some(declared) = found.declared.filter(|_| self.mode == Mode::Copy) {
            found.notes.extend(copies_much(declared.reads));
        }
        found
    }

    /// Checks the values of keys, without the module.
    ///
    /// # Errors
    /// The first key whose value is out of its range.
    fn in_range(&self) -> Result<(), InvalidSetting> {
        const MILLISECOND: u64 = 1_000_000;
        let bytes =
            [("memory", self.memory, MOST_MEMORY, "64 MiB"), ("size", self.size, MOST_SIZE, "16 MiB")];
        for (key, found, most, shown) in bytes {
            if !(1..=most).contains(&found.bytes()) {
                return refused(key, format!("must be 1 byte to {shown}, found {} bytes", found.bytes()));
            }
        }
        let times = [
            ("slice", self.slice, TICK, 10 * MILLISECOND),
            ("setup_time", self.setup_time, TICK, 10 * MILLISECOND),
            ("compile_time", self.compile_time, MILLISECOND, 300_000 * MILLISECOND),
            ("backoff", self.backoff, 0, 10_000 * MILLISECOND),
        ];
        for (key, found, least, most) in times {
            if !(least..=most).contains(&found.nanoseconds()) {
                let [least, most] = [least, most].map(Duration::from_nanoseconds);
                return refused(key, format!("must be \"{least}\" to \"{most}\", found \"{found}\""));
            }
        }
        let numbers = [
            ("table", self.table, 0, MOST_TABLE),
            ("frames", self.frames, 256, MOST_FRAMES),
            ("outputs", self.outputs, 1, 128),
            ("calls", self.calls as usize, 0, 1_000_000),
        ];
        for (key, found, least, most) in numbers {
            if !(least..=most).contains(&found) {
                return refused(key, format!("must be {least} to {most}, found {found}"));
            }
        }
        Ok(())
    }
}

/// A note about a module that has this much of each packet copied.
fn copies_much(reads: u32) -> Option<String> {
    let whole =
        "each packet is copied into its memory as far as that, which costs 60 to 110 ns for 1,500 bytes";
    (reads as usize > MOST_SMALL).then(|| {
        format!("`nb_reads` returned {reads}: {whole}; return 64, and `nb_pull` the rare packet of which it needs more")
    })
}

/// Checks what a module declares.
///
/// # Errors
/// The number that does not fit.
pub(crate) fn needs(declared: crate::backend::Declared) -> Result<Needs, String> {
    if declared.abi != ABI {
        let found = declared.abi;
        return Err(format!(
            "its interface has version {found}, expected {ABI}: compile it with this version's netbricks.h"
        ));
    }
    Ok(Needs { reads: declared.reads as usize, writes: declared.writes()? })
}

impl Settings for SandboxSettings {
    fn start_from(&mut self, directory: &Path) {
        self.module = directory.join(&self.module);
        self.config_file = self.config_file.take().map(|file| directory.join(file));
        self.cache = self.cache.take().map(|folder| directory.join(folder));
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        self.in_range()?;
        self.prepared().map(|_| ())
    }
}
