//! Modules for tests, from WebAssembly's text format, and the settings that run them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use netbricks_core::{Blueprint, Registry, SettingsError};

/// A module that passes all packets; tests replace its parts.
#[derive(Clone)]
pub(crate) struct Module {
    pub(crate) abi: u32,
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    pub(crate) memory: String,
    /// Instructions before `nb_setup` returns, and what it returns.
    pub(crate) setup: String,
    pub(crate) batch: String,
    /// Instructions of `nb_process` before the loop over the packets, for each packet, and after the loop.
    ///
    /// `$i` is a packet's number, `$p` the place of its `nb_packet`, and `$data` and `$len` are its fields.
    pub(crate) before: String,
    pub(crate) each: String,
    pub(crate) after: String,
    /// Other parts of the module.
    pub(crate) more: String,
}

impl Default for Module {
    fn default() -> Self {
        let none = String::new;
        Self {
            abi: 1,
            reads: 64,
            writes: 0,
            memory: "2".into(),
            setup: none(),
            batch: "(i32.const 1024)".into(),
            before: none(),
            each: none(),
            after: none(),
            more: none(),
        }
    }
}

impl Module {
    /// A module that does this for each packet.
    pub(crate) fn each(each: &str) -> Self {
        Self { each: each.into(), ..Self::default() }
    }
    pub(crate) fn writes(self, writes: u32) -> Self {
        Self { writes, ..self }
    }
    pub(crate) fn reads(self, reads: u32) -> Self {
        Self { reads, ..self }
    }
    pub(crate) fn more(self, more: &str) -> Self {
        Self { more: more.into(), ..self }
    }

    fn text(&self) -> String {
        let Self { abi, reads, writes, memory, setup, batch, before, each, after, more } = self;
        format!(
            r#"(module
  (import "env" "nb_count" (func $count (param i32 i32 i64) (result i32)))
  (import "env" "nb_random" (func $random (result i64)))
  (import "env" "nb_pull" (func $pull (param i32 i32) (result i32)))
  (import "env" "nb_push_front" (func $push_front (param i32 i32) (result i32)))
  (import "env" "nb_resize" (func $resize (param i32 i32) (result i32)))
  (import "env" "nb_log" (func $log (param i32 i32)))
  (memory (export "memory") {memory})
  (global $seen (mut i32) (i32.const 0))
  (func (export "nb_abi") (result i32) (i32.const {abi}))
  (func (export "nb_reads") (result i32) (i32.const {reads}))
  (func (export "nb_writes") (result i32) (i32.const {writes}))
  (func (export "nb_setup") (param $config i32) (param $length i32) (result i32) {setup} {batch})
  (func $process (export "nb_process") (param $batch i32)
    (local $i i32) (local $p i32) (local $data i32) (local $len i32) (local $x i32) (local $wide i64)
    {before}
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (i32.load offset=8 (local.get $batch))))
        (local.set $p (i32.add (i32.add (local.get $batch) (i32.const 16)) (i32.mul (local.get $i) (i32.const 12))))
        (local.set $data (i32.load (local.get $p)))
        (local.set $len (i32.load offset=4 (local.get $p)))
        {each}
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    {after})
  {more})"#
        )
    }

    pub(crate) fn assembled(&self) -> Vec<u8> {
        wat::parse_str(self.text()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A module's file, removed in the end.
pub(crate) struct Written(pub(crate) PathBuf);

impl Written {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("netbricks-sandbox-{}-{number}.wasm", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A blueprint of the function `sandbox` with this module and these other settings.
///
/// Without another `slice` a batch has the longest, so that no module is preempted on a busy machine that is not to be.
pub(crate) fn try_blueprint(module: &[u8], settings: &str) -> Result<Blueprint, SettingsError> {
    let written = Written::new(module);
    let mut registry = Registry::new();
    netbricks_sandbox::register(&mut registry);
    let definition = registry.get("sandbox").expect("it has just been registered");
    let slice = if settings.contains("slice") { "" } else { "slice = \"10 ms\"" };
    definition.blueprint(&format!("module = {:?}\n{settings}\n{slice}\n", written.0.display().to_string()))
}

pub(crate) fn blueprint(module: &Module, settings: &str) -> Blueprint {
    try_blueprint(&module.assembled(), settings).unwrap_or_else(|error| panic!("{error}"))
}
