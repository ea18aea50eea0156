//! Wasmtime: compiles ahead of time with Cranelift, and ends code that runs too long by epochs.

mod check;
mod cost;
mod engine;
mod instance;
mod link;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wasmtime::{Engine, Module};

use super::{Backend, Contents, Limits, Loaded, Program, Refused};
use crate::cache::{Cache, Entry};
use crate::sys::artifact::Artifact;
use instance::Code;

/// The back end of this crate.
pub(crate) struct Wasmtime;

impl Backend for Wasmtime {
    fn compile(
        &self,
        module: &[u8],
        limits: Limits,
        cache: Option<&Cache>,
    ) -> Result<Arc<dyn Program>, Refused> {
        check::header(module, limits)?;
        cost::check(module)?;
        let engine = engine::compiler().map_err(Refused::new)?;
        let kept = cache.map(|cache| (cache, Entry::of(module, engine.precompile_compatibility_hash())));
        let artifact = match kept.as_ref().and_then(|(cache, entry)| cache.get(entry)) {
            Some(code) => Artifact::trusted(code),
            None => {
                let artifact = compile(&engine, module, limits)?;
                if let Some((cache, entry)) = &kept {
                    cache.put(entry, artifact.bytes());
                }
                artifact
            }
        };
        let loaded = artifact.load(&engine).map_err(|error| Refused::new(format!("{error:#}")))?;
        let contents =
            Contents { bytes: module.len(), code: artifact.bytes().len(), ..check::contents(&loaded) };
        let code = Arc::new(Code::new(artifact));
        Ok(Arc::new(Compiled { code, module: loaded, contents, bulk: check::has_bulk(module) }))
    }
}

/// Compiles on a thread of its own, and waits for it as long as the limit allows.
///
/// The compiler cannot be stopped. Where it takes longer its result is thrown away when it comes, and the next module waits
/// for that: so there is at most one such thread.
fn compile(engine: &Engine, module: &[u8], limits: Limits) -> Result<Artifact, Refused> {
    static LATE: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);
    let most = Duration::from_nanos(limits.compile);
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    while late.as_ref().is_some_and(|thread| !thread.is_finished()) {
        if began.elapsed() > most {
            return Err(Refused::new(
                "the compiler is still busy with a module that took longer than its `compile_time`: try again later",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (engine, module) = (engine.clone(), module.to_vec());
    let (done, result) = mpsc::sync_channel(1);
    let work = move || {
        // Where nothing waits any more there is nothing to do with it.
        let _ = done.send(Artifact::compile(&engine, &module).map_err(|error| format!("{error:#}")));
    };
    let thread = std::thread::Builder::new().name("netbricks-compile".into()).spawn(work);
    let thread =
        thread.map_err(|error| Refused::new(format!("there is no thread for the compiler: {error}")))?;
    match result.recv_timeout(most) {
        Ok(Ok(artifact)) => Ok(artifact),
        Ok(Err(problem)) => Err(Refused::new(check::explained(&problem))),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            *late = Some(thread);
            Err(Refused::new(format!(
                "compiling it took longer than {most:?}: simplify it, or raise `compile_time`"
            )))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Refused::new("the compiler panicked on it")),
    }
}

/// A module as native code.
struct Compiled {
    code: Arc<Code>,
    /// The module in the compiler's engine, which runs nothing.
    module: Module,
    contents: Contents,
    /// Whether it has bulk operations on memory.
    bulk: bool,
}

impl Program for Compiled {
    fn contents(&self) -> &Contents {
        &self.contents
    }
    fn check(&self, limits: Limits) -> Result<(), Refused> {
        check::module(&self.module, &self.contents, self.bulk, limits)
    }
    fn load(&self, limits: Limits, mapped: bool) -> Result<Box<dyn Loaded>, Refused> {
        instance::load(&self.code, limits, mapped).map(|loaded| Box::new(loaded) as Box<dyn Loaded>)
    }
    fn load_ahead(&self, mapped: bool) {
        self.code.load_ahead(instance::place_of(mapped));
    }
}
