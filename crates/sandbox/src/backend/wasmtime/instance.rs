//! A module on a worker: loaded once, and instances of it one after another.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{
    Engine, InstancePre, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, Trap, TypedFunc,
};

use super::engine;
use super::link::{self, Data};
use crate::backend::{Declared, Fault, Instance, Limits, Loaded, Refused};
use crate::host::{Host, PAGE};
use crate::sys::artifact::Artifact;
use crate::sys::memory::{ALIGNMENT, prefer_huge_pages};
use crate::sys::ticks::Ticks;

/// Native code that is loaded into an engine and linked.
type Linked = InstancePre<Data>;

/// Native code of a module, and what other threads have loaded of it for workers.
pub(super) struct Code {
    artifact: Artifact,
    ahead: Mutex<Vec<Linked>>,
}

impl Code {
    pub(super) fn new(artifact: Artifact) -> Self {
        Self { artifact, ahead: Mutex::default() }
    }

    fn link(&self, engine: &Engine) -> wasmtime::Result<Linked> {
        let module: Module = self.artifact.load(engine)?;
        link::linker(engine).and_then(|linker| linker.instantiate_pre(&module))
    }

    fn ahead(&self) -> MutexGuard<'_, Vec<Linked>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads it into the engine at this place of each worker.
    pub(super) fn load_ahead(&self, place: usize) {
        for engine in engine::of_workers(place) {
            let is_there = |linked: &Linked| Engine::same(linked.module().engine(), &engine);
            if !self.ahead().iter().any(is_there)
                && let Ok(linked) = self.link(&engine)
            {
                self.ahead().push(linked);
            }
        }
    }

    /// The code in this engine: loaded ahead, or else now.
    fn linked(&self, engine: &Engine) -> wasmtime::Result<Linked> {
        let known =
            self.ahead().iter().find(|linked| Engine::same(linked.module().engine(), engine)).cloned();
        known.map_or_else(|| self.link(engine), Ok)
    }
}

/// The place of the engine that a thread uses for a module.
pub(super) fn place_of(mapped: bool) -> usize {
    if mapped { engine::APART } else { engine::IN_POOL }
}

/// Makes native code ready for this thread's engines.
///
/// # Errors
/// Where the thread can have no engine or timer.
pub(super) fn load(code: &Arc<Code>, limits: Limits, mapped: bool) -> Result<OnThread, Refused> {
    let ticks = engine::of_this_thread()
        .map_err(|error| Refused::new(format!("this thread cannot run modules: {error}")))?;
    let linked = [OnceCell::new(), OnceCell::new()];
    Ok(OnThread { code: Arc::clone(code), linked, first: place_of(mapped), ticks, limits })
}

/// A module on a thread. Its code is loaded into each engine once that is needed.
pub(super) struct OnThread {
    code: Arc<Code>,
    linked: [OnceCell<Linked>; 2],
    first: usize,
    ticks: Rc<Ticks>,
    limits: Limits,
}

/// An instance before its host has a place in its memory.
struct Fresh {
    store: Store<Data>,
    instance: wasmtime::Instance,
    memory: Memory,
}

impl OnThread {
    /// Makes an instance, in the pool where it has a slot, and runs the module's start function.
    ///
    /// The time for setting up begins here, and goes on in the calls that follow.
    fn instantiate(&self, host: &mut Option<Box<Host>>, window: usize) -> Result<Fresh, Fault> {
        match self.instantiate_by(self.first, host, window) {
            Err(error) if error.is::<wasmtime::PoolConcurrencyLimitError>() => {
                self.instantiate_by(engine::APART, host, window)
            }
            made => made,
        }
        .map_err(|error| self.fault(&error))
    }

    /// The module in this thread's engine at a place, where it is loaded when it is first asked for.
    fn at(&self, place: usize) -> wasmtime::Result<&Linked> {
        let missing = || wasmtime::Error::msg("this thread has no engine");
        let linked = self.linked.get(place).ok_or_else(missing)?;
        if let Some(linked) = linked.get() {
            return Ok(linked);
        }
        let loaded = self.code.linked(self.ticks.engines().get(place).ok_or_else(missing)?)?;
        Ok(linked.get_or_init(|| loaded))
    }

    fn instantiate_by(
        &self,
        place: usize,
        host: &mut Option<Box<Host>>,
        window: usize,
    ) -> wasmtime::Result<Fresh> {
        let before = self.at(place)?;
        let data = Data { host: host.take(), memory: None, limits: self.store_limits(window) };
        let mut store = Store::new(before.module().engine(), data);
        store.limiter(|data| &mut data.limits);
        store.epoch_deadline_trap();
        let _running = self.ticks.begin();
        store.set_epoch_deadline(self.limits.setup);
        let made = before.instantiate(&mut store).and_then(|instance| {
            let memory = instance.get_memory(&mut store, "memory");
            memory.map(|memory| (instance, memory)).ok_or_else(|| wasmtime::Error::msg("it has no memory"))
        });
        match made {
            Ok((instance, memory)) => Ok(Fresh { store, instance, memory }),
            Err(error) => {
                *host = store.into_data().host;
                Err(error)
            }
        }
    }

    fn store_limits(&self, window: usize) -> StoreLimits {
        StoreLimitsBuilder::new()
            .memory_size(self.limits.memory + window)
            .table_elements(self.limits.table)
            .instances(1)
            .tables(1)
            .memories(1)
            .build()
    }

    fn fault(&self, error: &wasmtime::Error) -> Fault {
        fault(error, None)
    }
}

/// The fault that an error of Wasmtime is; `breach` is what a host call found.
fn fault(error: &wasmtime::Error, breach: Option<String>) -> Fault {
    if let Some(breach) = breach {
        return Fault::Trapped(breach);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Fault::Preempted,
        Some(trap) => Fault::Trapped(trap.to_string()),
        // It may quote names of functions.
        None => Fault::Trapped(crate::backend::shown(&format!("{error:#}"))),
    }
}

impl Loaded for OnThread {
    fn note_worker(&self) {
        engine::note_worker(&self.ticks);
    }

    fn declared(&self) -> Result<Declared, Fault> {
        let mut fresh = self.instantiate(&mut None, 0)?;
        let _running = self.ticks.begin();
        let mut ask = |name: &str| {
            let function: TypedFunc<(), u32> = fresh.instance.get_typed_func(&mut fresh.store, name)?;
            function.call(&mut fresh.store, ())
        };
        let mut ask = |name| ask(name).map_err(|error| self.fault(&error));
        Ok(Declared { abi: ask("nb_abi")?, reads: ask("nb_reads")?, writes: ask("nb_writes")? })
    }

    fn start(&self, host: Box<Host>, config: &[u8]) -> Result<Box<dyn Instance>, (Fault, Box<Host>)> {
        let frames = host.frames();
        let mapped = frames.as_ref().map_or(0, |frames| frames.bytes());
        let room = host.window().room(mapped);
        let mut host = Some(host);
        let back = |fault, host: Option<Box<Host>>| match host {
            Some(host) => (fault, host),
            None => unreachable!("a store gives back the host that it was given"),
        };
        let Fresh { mut store, instance, memory } = match self.instantiate(&mut host, room) {
            Ok(fresh) => fresh,
            Err(fault) => return Err(back(fault, host)),
        };
        let set_up = (|| {
            let before = memory.data_size(&store);
            memory.grow(&mut store, (room / PAGE) as u64).map_err(|_| {
                wasmtime::Error::msg(format!(
                    "behind its {before} bytes of memory there is no room for the host's window of {room} bytes: link it with a \
                     larger `--max-memory` or none, and let its start function take no more than `memory` allows"
                ))
            })?;
            store.data_mut().memory = Some(memory);
            // Frames come first, where there are any.
            let frames_at = if mapped > 0 { before.next_multiple_of(ALIGNMENT) } else { before };
            if let Some(frames) = &frames {
                frames.map_into(&memory, &store, frames_at)?;
            }
            let window_at = frames_at + mapped;
            let (bytes, data) = memory.data_and_store_mut(&mut store);
            prefer_huge_pages(bytes);
            if let Some(host) = &mut data.host {
                host.begin(frames_at, window_at);
            }
            if let Some(place) = bytes.get_mut(window_at..window_at + config.len()) {
                place.copy_from_slice(config);
            }
            let setup: TypedFunc<(u32, u32), u32> = instance.get_typed_func(&mut store, "nb_setup")?;
            let process: TypedFunc<u32, ()> = instance.get_typed_func(&mut store, "nb_process")?;
            let _running = self.ticks.begin();
            let batch = setup.call(&mut store, (window_at as u32, config.len() as u32))?;
            let (bytes, data) = memory.data_and_store_mut(&mut store);
            let refused = data.host.as_mut().map_or(Ok(()), |host| host.set_batch(bytes, batch));
            refused.map_err(wasmtime::Error::msg)?;
            Ok(process)
        })();
        match set_up {
            Ok(process) => {
                let (ticks, slice) = (Rc::clone(&self.ticks), self.limits.slice);
                Ok(Box::new(Running { store, memory, process, ticks, slice }))
            }
            Err(error) => {
                let breach = store.data_mut().host.as_mut().and_then(|host| host.breach.take());
                let host = store.into_data().host;
                Err(back(fault(&error, breach), host))
            }
        }
    }
}

/// An instance that has been set up.
struct Running {
    store: Store<Data>,
    memory: Memory,
    process: TypedFunc<u32, ()>,
    ticks: Rc<Ticks>,
    slice: u64,
}

const HOST: &str = "the host stays in the store as long as the instance runs";

impl Instance for Running {
    #[inline]
    fn parts(&mut self) -> (&mut [u8], &mut Host) {
        let (memory, data) = self.memory.data_and_store_mut(&mut self.store);
        (memory, data.host.as_mut().expect(HOST))
    }

    #[inline]
    fn process(&mut self) -> Result<(), Fault> {
        let batch = self.store.data().host.as_ref().expect(HOST).batch_at();
        let _running = self.ticks.begin();
        self.store.set_epoch_deadline(self.slice);
        match self.process.call(&mut self.store, batch) {
            Ok(()) => Ok(()),
            Err(error) => {
                let host = self.store.data_mut().host.as_mut();
                Err(fault(&error, host.and_then(|host| host.breach.take())))
            }
        }
    }

    fn retire(self: Box<Self>) -> Box<Host> {
        self.store.into_data().host.expect(HOST)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use netbricks_core::Random;

    use super::*;
    use crate::abi::Writes;
    use crate::host::{Needs, Window};
    use crate::records::Records;

    /// Far more ticks than a test takes.
    const SETUP: u64 = 1 << 20;

    /// A module that lets parts of the time pass: in hundredths, its start function, each declaration, and `nb_setup`.
    fn code(parts: [u64; 3]) -> (Arc<Code>, Limits) {
        let [start, declaration, setup] = parts.map(|part| part * (SETUP / 100));
        let text = format!(
            r#"(module
              (import "env" "test_pass" (func $pass (param i64)))
              (memory (export "memory") 1)
              (func $look)
              (func $spend (param i64) (call $pass (local.get 0)) (call $look))
              (func $start (call $spend (i64.const {start})))
              (start $start)
              (func (export "nb_abi") (result i32) (call $spend (i64.const {declaration})) (i32.const 1))
              (func (export "nb_reads") (result i32) (call $spend (i64.const {declaration})) (i32.const 64))
              (func (export "nb_writes") (result i32) (call $spend (i64.const {declaration})) (i32.const 0))
              (func (export "nb_setup") (param i32 i32) (result i32)
                (call $spend (i64.const {setup})) (i32.const 1024))
              (func (export "nb_process") (param i32)))"#
        );
        let limits =
            Limits { memory: 1 << 20, table: 0, size: 1 << 20, compile: 0, slice: SETUP, setup: SETUP };
        let compiler = engine::compiler().unwrap();
        let artifact = Artifact::compile(&compiler, &wat::parse_str(text).unwrap()).unwrap();
        (Arc::new(Code::new(artifact)), limits)
    }

    fn module(parts: [u64; 3]) -> OnThread {
        let (code, limits) = code(parts);
        load(&code, limits, false).unwrap()
    }

    #[test]
    fn a_worker_loads_nothing_that_was_loaded_ahead_and_never_an_engine_that_it_does_not_use() {
        let loads = crate::sys::artifact::loads_of_this_thread;
        let ((first, limits), (second, _)) = (code([0; 3]), code([1; 3]));
        let (begun, ready) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel();
        let worker = std::thread::spawn(move || {
            let before = loads();
            let first = load(&first, limits, false).unwrap();
            first.note_worker();
            assert_eq!(loads(), before, "nothing is loaded before it is needed");
            first.declared().unwrap();
            let alone = loads() - before;
            begun.send(()).unwrap();
            let second: Arc<Code> = gone.recv().unwrap();
            let later = load(&second, limits, false).unwrap();
            assert_eq!(later.declared().map(|declared| declared.reads), Ok(64));
            [alone, loads() - before - alone]
        });
        ready.recv().unwrap();
        let before = loads();
        second.load_ahead(place_of(false));
        second.load_ahead(place_of(false));
        assert!(loads() > before, "it is loaded for the worker here");
        let once = second.ahead().len();
        assert_eq!(loads() - before, once, "once for each worker, however often that is asked");
        go.send(second).unwrap();
        assert_eq!(worker.join().unwrap(), [1, 0]);
    }

    fn start(parts: [u64; 3]) -> Result<(), Fault> {
        module(parts).start(host(), &[]).map(|_| ()).map_err(|(fault, _)| fault)
    }

    #[test]
    fn a_start_function_and_the_setup_share_one_time() {
        assert_eq!(start([40, 0, 40]), Ok(()));
        for late in [[60, 0, 60], [0, 0, 120], [120, 0, 0]] {
            assert_eq!(start(late), Err(Fault::Preempted), "{late:?}");
        }
    }

    #[test]
    fn a_start_function_and_the_declarations_share_one_time() {
        assert_eq!(module([20, 20, 0]).declared().map(|declared| declared.reads), Ok(64));
        for late in [[0, 40, 0], [60, 20, 0], [120, 0, 0]] {
            assert_eq!(module(late).declared(), Err(Fault::Preempted), "{late:?}");
        }
    }

    fn host() -> Box<Host> {
        let needs = Needs { reads: 64, writes: Writes::None };
        let records = Rc::<RefCell<Records>>::default();
        Box::new(Host::new(needs, Window::new(needs, 2_048, 0), 16, Random::of(&[]), records))
    }

    /// A module with as many pages, whose `nb_setup` does this.
    fn loaded(pages: u32, setup: &str, mapped: bool) -> OnThread {
        let text = format!(
            r#"(module
              (memory (export "memory") {pages})
              (func (export "nb_abi") (result i32) (i32.const 1))
              (func (export "nb_reads") (result i32) (i32.const 64))
              (func (export "nb_writes") (result i32) (i32.const 0))
              (func (export "nb_setup") (param i32 i32) (result i32) (local $at i32) (local $end i32)
                (local.set $end (i32.mul (memory.size) (i32.const 65536)))
                {setup} (i32.const 1024))
              (func (export "nb_process") (param i32)))"#
        );
        let compiler = engine::compiler().unwrap();
        let artifact = Artifact::compile(&compiler, &wat::parse_str(text).unwrap()).unwrap();
        let limits =
            Limits { memory: 16 << 20, table: 0, size: 1 << 20, compile: 0, slice: SETUP, setup: SETUP };
        load(&Arc::new(Code::new(artifact)), limits, mapped).unwrap()
    }

    fn begun(module: &OnThread) -> Box<dyn Instance> {
        module.start(host(), &[]).map_err(|(fault, _)| fault).unwrap()
    }

    #[test]
    fn large_memories_are_advised_to_have_huge_pages() {
        for mapped in [false, true] {
            let module = loaded(64, "", mapped);
            let mut instance = begun(&module);
            let (memory, _) = instance.parts();
            let inside = (memory.as_ptr() as usize).next_multiple_of(ALIGNMENT) + ALIGNMENT / 2;
            match crate::sys::memory::is_advised(inside) {
                Some(advised) => assert!(advised, "mapped: {mapped}"),
                None => println!("skipped: this system has no huge pages"),
            }
        }
    }

    #[test]
    fn a_slot_of_the_pool_has_nothing_of_the_module_before() {
        const SECRET: u64 = 0x7365_6372_6574_2121;
        let walk = |each: &str| {
            format!(
                "(block $all (loop $word (br_if $all (i32.ge_u (local.get $at) (local.get $end))) {each}
                   (local.set $at (i32.add (local.get $at) (i32.const 8))) (br $word)))"
            )
        };
        let fill = walk(&format!("(i64.store (local.get $at) (i64.const {SECRET}))"));
        let scan = walk(&format!(
            "(if (i64.eq (i64.load (local.get $at)) (i64.const {SECRET})) (then unreachable))"
        ));
        // A thread of its own, whose pool has two slots.
        let worker = std::thread::spawn(move || {
            engine::with_pool_of(2);
            let place = |instance: &mut Box<dyn Instance>| instance.parts().0.as_ptr() as usize;
            let (secretive, curious) = (loaded(4, &fill, false), loaded(4, &scan, false));
            // The scan finds what there is.
            let reset = "(local.set $at (i32.const 0))";
            let own = loaded(4, &format!("{fill} {reset} {scan}"), false);
            assert!(matches!(own.start(host(), &[]), Err((Fault::Trapped(_), _))));
            let mut others = Vec::new();
            for _ in 0..4 {
                others.clear();
                let mut first = begun(&secretive);
                let slot = place(&mut first);
                drop(first.retire());
                others = vec![begun(&curious), begun(&curious)];
                let slots: Vec<usize> = others.iter_mut().map(place).collect();
                assert!(slots.contains(&slot), "{slot:#x} is not among {slots:#x?}");
            }
            others.len()
        });
        assert_eq!(worker.join().unwrap(), 2);
    }
}
