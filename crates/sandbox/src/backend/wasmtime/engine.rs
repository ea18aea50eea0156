//! Engines: one for the compiler, and one for each thread that runs modules.

use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wasmtime::{
    Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig, Strategy, WasmFeatures,
};

use crate::sys::memory::Creator;
use crate::sys::ticks::Ticks;

/// Bytes of machine stack that a module may use. Its C stack lies in its own memory.
///
/// Workers have threads of 2 MiB or more, most of which is free where a node is called.
pub(super) const STACK: usize = 256 << 10;
/// The address space of a memory, and the guard behind it.
///
/// An address of 32 bits with an offset never leaves them unchecked.
const RESERVATION: u64 = 4 << 30;
const GUARD: u64 = 32 << 20;
/// Instances that a worker's pool has slots for.
const POOLED: u32 = 128;

/// The settings that native code depends on: equal for the compiler and for all workers.
fn config() -> Config {
    let mut config = Config::new();
    config.strategy(Strategy::Cranelift);
    config.epoch_interruption(true);
    config.max_wasm_stack(STACK);
    config.memory_reservation(RESERVATION);
    config.memory_guard_size(GUARD);
    config.memory_may_move(false);
    // Wasmtime 48 panics over images of memory where memories are our own, and the code must fit both engines.
    config.memory_init_cow(false);
    // A replay must give the same bytes wherever it runs.
    config.cranelift_nan_canonicalization(true);
    config.wasm_backtrace_max_frames(std::num::NonZeroUsize::new(8));
    // What compilers emit for one thread of one module; in particular no threads and no second memory.
    let refused = WasmFeatures::THREADS
        | WasmFeatures::SHARED_EVERYTHING_THREADS
        | WasmFeatures::MULTI_MEMORY
        | WasmFeatures::MEMORY64
        | WasmFeatures::RELAXED_SIMD
        | WasmFeatures::FUNCTION_REFERENCES
        | WasmFeatures::GC
        | WasmFeatures::EXCEPTIONS
        | WasmFeatures::CUSTOM_PAGE_SIZES;
    config.wasm_features(refused, false);
    config
}

/// The engine of the compiler, on the control side.
pub(super) fn compiler() -> Result<Engine, String> {
    static COMPILER: OnceLock<Result<Engine, String>> = OnceLock::new();
    COMPILER.get_or_init(|| Engine::new(&config()).map_err(|error| format!("{error:#}"))).clone()
}

/// The places of a thread's engines: one has memories in slots of a pool, the other maps each by itself.
pub(super) const IN_POOL: usize = 0;
pub(super) const APART: usize = 1;

/// The engines of this thread, and its ticks.
///
/// A pool that the system refuses (a limit on address space) is left out: the thread then has the other engine twice.
pub(super) fn of_this_thread() -> io::Result<Rc<Ticks>> {
    with_pool(POOLED)
}

fn with_pool(slots: u32) -> io::Result<Rc<Ticks>> {
    Ticks::of_this_thread(|| {
        let mut mapping = config();
        mapping.with_host_memory(Arc::new(Creator));
        let apart = Engine::new(&mapping).map_err(io::Error::other)?;
        let pooled = pooled(slots).unwrap_or_else(|_| apart.clone());
        Ok(vec![pooled, apart])
    })
}

/// Makes the engines of a thread that has none yet, with so many slots.
#[cfg(test)]
pub(super) fn with_pool_of(slots: u32) {
    with_pool(slots).expect("a test's thread can have engines");
}

/// The engines of workers, for which modules are loaded ahead.
static WORKERS: Mutex<Vec<Vec<EngineWeak>>> = Mutex::new(Vec::new());

/// Notes that this thread, whose ticks these are, is a worker.
pub(super) fn note_worker(ticks: &Ticks) {
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers.retain(|engines| engines.iter().all(|engine| engine.upgrade().is_some()));
    let is_this = |engines: &Vec<EngineWeak>| {
        let first = engines.first().and_then(EngineWeak::upgrade);
        first.zip(ticks.engines().first()).is_some_and(|(known, own)| Engine::same(&known, own))
    };
    if !workers.iter().any(is_this) {
        workers.push(ticks.engines().iter().map(Engine::weak).collect());
    }
}

/// The engine at this place of each worker.
pub(super) fn of_workers(place: usize) -> Vec<Engine> {
    let workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers.iter().filter_map(|engines| engines.get(place)?.upgrade()).collect()
}

fn pooled(slots: u32) -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(slots)
        .total_memories(slots)
        .total_tables(slots)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .max_memory_size(RESERVATION as usize)
        .table_elements(crate::config::MOST_TABLE)
        .max_core_instance_size(1 << 20)
        .max_unused_warm_slots(slots.min(4));
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
}
