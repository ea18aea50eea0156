//! A module on a worker: loaded once, and instances of it one after another.

use std::rc::Rc;

use wasmtime::{InstancePre, Memory, Module, Store, StoreLimits, StoreLimitsBuilder, Trap, TypedFunc};

use super::engine;
use super::link::{self, Data};
use crate::backend::{Declared, Fault, Instance, Limits, Loaded, Refused};
use crate::host::{Host, PAGE};
use crate::sys::artifact::Artifact;
use crate::sys::memory::ALIGNMENT;
use crate::sys::ticks::Ticks;

/// Loads native code into this thread's engine.
///
/// # Errors
/// Where there is no memory for the code or no timer for the thread.
pub(super) fn load(artifact: &Artifact, limits: Limits) -> Result<OnThread, Refused> {
    let ticks = engine::of_this_thread()
        .map_err(|error| Refused::new(format!("this thread cannot run modules: {error}")))?;
    let text = |error: wasmtime::Error| Refused::new(format!("{error:#}"));
    let load = |engine: &wasmtime::Engine| -> Result<InstancePre<Data>, Refused> {
        let module: Module = artifact.load(engine).map_err(text)?;
        link::linker(engine).and_then(|linker| linker.instantiate_pre(&module)).map_err(text)
    };
    let [pooled, apart] = [engine::IN_POOL, engine::APART].map(|place| ticks.engines().get(place));
    let missing = || Refused::new("this thread has no engine");
    let pooled = load(pooled.ok_or_else(missing)?)?;
    let apart = load(apart.ok_or_else(missing)?)?;
    Ok(OnThread { pooled, apart, ticks, limits })
}

/// A module that is loaded on a thread.
pub(super) struct OnThread {
    pooled: InstancePre<Data>,
    apart: InstancePre<Data>,
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
        let mapped = host.as_ref().is_some_and(|host| host.frames().is_some());
        let first = if mapped { &self.apart } else { &self.pooled };
        match self.instantiate_by(first, host, window) {
            Err(error) if error.is::<wasmtime::PoolConcurrencyLimitError>() => {
                self.instantiate_by(&self.apart, host, window)
            }
            made => made,
        }
        .map_err(|error| self.fault(&error))
    }

    fn instantiate_by(
        &self,
        before: &InstancePre<Data>,
        host: &mut Option<Box<Host>>,
        window: usize,
    ) -> wasmtime::Result<Fresh> {
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
        None => Fault::Trapped(format!("{error:#}")),
    }
}

impl Loaded for OnThread {
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

    use super::*;
    use crate::abi::Writes;
    use crate::host::{Needs, Window};
    use crate::records::Records;

    /// Far more ticks than a test takes.
    const SETUP: u64 = 1 << 20;

    /// A module that lets parts of the time pass: in hundredths, its start function, each declaration, and `nb_setup`.
    fn module(parts: [u64; 3]) -> OnThread {
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
        load(&artifact, limits).unwrap()
    }

    fn start(parts: [u64; 3]) -> Result<(), Fault> {
        let needs = Needs { reads: 64, writes: Writes::None };
        let records = Rc::<RefCell<Records>>::default();
        let host = Box::new(Host::new(needs, Window::new(needs, 2_048, 0), 16, 0, records));
        module(parts).start(host, &[]).map(|_| ()).map_err(|(fault, _)| fault)
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
}
