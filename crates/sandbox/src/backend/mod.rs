//! The traits of a back end, which compiles a module, loads it on a worker, and runs instances of it.
//!
//! The node, the interface of modules and the policy know nothing of Wasmtime. Another back end implements the three
//! traits here.

pub(crate) mod wasmtime;

use std::fmt;
use std::sync::Arc;

use crate::abi::Writes;
use crate::cache::Cache;
use crate::host::Host;

/// Limits of a function's module, as its settings state them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// Bytes of linear memory, without the host's window.
    pub(crate) memory: usize,
    /// Elements of all tables.
    pub(crate) table: usize,
    /// Bytes of the module's file.
    pub(crate) size: usize,
    /// The longest time of compilation (ns).
    pub(crate) compile: u64,
    /// Ticks of a call with a batch.
    pub(crate) slice: u64,
    /// Ticks of instantiation and `nb_setup` together.
    pub(crate) setup: u64,
}

/// The properties of a compiled module that can be known without running it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Contents {
    /// Bytes of the module's file.
    pub bytes: usize,
    /// Bytes of native code.
    pub code: usize,
    /// Exports, each with its type.
    pub exports: Vec<String>,
    /// Imports, each with its type.
    pub imports: Vec<String>,
    /// Bytes of memory that it begins with.
    pub memory: u64,
    /// Bytes of memory that it can grow to, where it says so.
    pub memory_limit: Option<u64>,
    /// Elements that its tables begin with.
    pub table: u64,
}

impl Contents {
    /// Checks that its memory can grow by what the host needs: `room` bytes.
    ///
    /// # Errors
    /// Its own limit is too low.
    pub(crate) fn has_room(&self, room: usize) -> Result<(), Refused> {
        let needed = self.memory.saturating_add(room as u64);
        match self.memory_limit.filter(|limit| *limit < needed) {
            None => Ok(()),
            Some(limit) => Err(Refused::new(format!(
                "its memory begins with {} bytes and may grow to {limit}, expected {needed}: the host's window for packets and \
                 configuration needs {room} bytes behind its own. Link it with `--max-memory={needed}` or more, or without that",
                self.memory
            ))),
        }
    }
}

/// A module that is refused, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Refused {
    /// The problems, with the expected value and a remedy.
    pub problem: String,
}

impl Refused {
    pub(crate) fn new(problem: impl fmt::Display) -> Self {
        Self { problem: problem.to_string() }
    }
}

/// The end of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It trapped, or broke the interface.
    Trapped(String),
    /// It ran longer than its time.
    Preempted,
}

/// Text with what comes from a module: in one line, and without what a terminal would act on.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trapped(problem) => f.write_str(problem),
            Self::Preempted => f.write_str("it ran longer than its time"),
        }
    }
}

/// A compiled module, which crosses threads.
pub(crate) trait Program: Send + Sync {
    /// Its contents.
    fn contents(&self) -> &Contents;
    /// Checks that it has what a function needs, and needs no more than the limits allow.
    ///
    /// # Errors
    /// Every reason for which it is refused, one a line.
    fn check(&self, limits: Limits) -> Result<(), Refused>;
    /// Makes it ready for this thread, whose time its instances share. Its code is loaded with its first instance.
    ///
    /// `mapped` says whether frames are mapped into its memory.
    ///
    /// # Errors
    /// Where there is no memory, or the thread can have no timer.
    fn load(&self, limits: Limits, mapped: bool) -> Result<Box<dyn Loaded>, Refused>;
    /// Loads its code for every worker that has moved packets through modules, beside these workers.
    ///
    /// What fails here is loaded by the worker itself.
    fn load_ahead(&self, mapped: bool);
}

/// The numbers that a module declares when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Declared {
    /// The version of the interface that it was written for.
    pub abi: u32,
    /// Bytes of each frame that it wants to see at once.
    pub reads: u32,
    /// The bytes that it may change, as a number.
    pub writes: u32,
}

impl Declared {
    /// The bytes that it may change.
    ///
    /// # Errors
    /// Where the number is none of the interface's.
    pub(crate) fn writes(&self) -> Result<Writes, String> {
        Writes::from_number(self.writes).ok_or_else(|| {
            let found = self.writes;
            format!("`nb_writes` returned {found}, expected 0 (none), 1 (headers) or 2 (all)")
        })
    }
}

/// A module that is loaded on a thread.
pub(crate) trait Loaded {
    /// Asks the module what it declares, by an instance that is then thrown away.
    ///
    /// # Errors
    /// A fault of its start function or of those that declare.
    fn declared(&self) -> Result<Declared, Fault>;
    /// Notes that this thread is a worker: the code of later modules is loaded ahead for it.
    fn note_worker(&self);
    /// Makes an instance and has it set up with this configuration.
    ///
    /// The host comes back with an error, as it does from [`Instance::retire`].
    fn start(&self, host: Box<Host>, config: &[u8]) -> Result<Box<dyn Instance>, (Fault, Box<Host>)>;
}

/// An instance of a module, on the thread that made it.
pub(crate) trait Instance {
    /// Its memory, and the host's side of it.
    fn parts(&mut self) -> (&mut [u8], &mut Host);
    /// Calls `nb_process` with the batch that the host has put into the memory.
    ///
    /// # Errors
    /// The fault by which it ended; the instance can then only retire.
    fn process(&mut self) -> Result<(), Fault>;
    /// Ends the instance, and answers its host for the next.
    fn retire(self: Box<Self>) -> Box<Host>;
}

/// A back end: it compiles modules.
pub(crate) trait Backend: Send + Sync {
    /// Validates and compiles a module, on a thread that moves no packets, or takes its code from the cache.
    ///
    /// # Errors
    /// The reason for which it is no valid module, or compiles too long.
    fn compile(
        &self,
        module: &[u8],
        limits: Limits,
        cache: Option<&Cache>,
    ) -> Result<Arc<dyn Program>, Refused>;
}
