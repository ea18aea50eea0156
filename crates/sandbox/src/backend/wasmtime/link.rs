//! Host calls: the functions that modules import from `env`.

use wasmtime::{Caller, Engine, Linker, Memory, StoreLimits};

use crate::abi::Refusal;
use crate::host::Host;

/// The data of a store, beside the instance.
pub(super) struct Data {
    pub(super) host: Option<Box<Host>>,
    pub(super) memory: Option<Memory>,
    pub(super) limits: StoreLimits,
}

/// The module that functions are imported from, as compilers of C name it.
pub(super) const MODULE: &str = "env";

/// Every function that a module may import, with its parameters and results.
pub(super) const CALLS: [(&str, &str); 6] = [
    ("nb_count", "(i32, i32, i64) -> i32"),
    ("nb_log", "(i32, i32)"),
    ("nb_pull", "(i32, i32) -> i32"),
    ("nb_push_front", "(i32, i32) -> i32"),
    ("nb_random", "() -> i64"),
    ("nb_resize", "(i32, i32) -> i32"),
];

fn answer(result: Result<i32, Refusal>) -> i32 {
    result.unwrap_or_else(|refusal| refusal as i32)
}

/// The memory and host of a call, once the call has been counted.
///
/// # Errors
/// The module has made too many calls for this batch: it traps.
fn admitted<'c>(caller: &'c mut Caller<'_, Data>) -> wasmtime::Result<(&'c mut [u8], &'c mut Host)> {
    let memory = caller.data().memory;
    let (memory, data): (&mut [u8], &mut Data) = match memory {
        Some(memory) => memory.data_and_store_mut(caller),
        // A start function calls before the host has seen the memory.
        None => (&mut [], caller.data_mut()),
    };
    let host = data
        .host
        .as_deref_mut()
        .ok_or_else(|| wasmtime::Error::msg("it makes host calls before `nb_setup`"))?;
    if host.admit() { Ok((memory, host)) } else { Err(wasmtime::Error::msg("too many host calls")) }
}

/// All host calls, for the instances of an engine.
///
/// # Errors
/// None that modules could cause.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Data>> {
    let mut linker = Linker::new(engine);
    linker.func_wrap(MODULE, "nb_count", |mut caller: Caller<'_, Data>, name: u32, len: u32, add: u64| {
        let (memory, host) = admitted(&mut caller)?;
        wasmtime::Result::Ok(answer(host.count(memory, name, len, add)))
    })?;
    linker.func_wrap(MODULE, "nb_log", |mut caller: Caller<'_, Data>, line: u32, len: u32| {
        let (memory, host) = admitted(&mut caller)?;
        host.log(memory, line, len);
        wasmtime::Result::Ok(())
    })?;
    linker.func_wrap(MODULE, "nb_pull", |mut caller: Caller<'_, Data>, packet: u32, bytes: u32| {
        let (memory, host) = admitted(&mut caller)?;
        wasmtime::Result::Ok(answer(host.pull(memory, packet, bytes)))
    })?;
    linker.func_wrap(MODULE, "nb_push_front", |mut caller: Caller<'_, Data>, packet: u32, bytes: i32| {
        let (memory, host) = admitted(&mut caller)?;
        wasmtime::Result::Ok(answer(host.push_front(memory, packet, bytes)))
    })?;
    linker.func_wrap(MODULE, "nb_random", |mut caller: Caller<'_, Data>| {
        let (_, host) = admitted(&mut caller)?;
        wasmtime::Result::Ok(host.random())
    })?;
    linker.func_wrap(MODULE, "nb_resize", |mut caller: Caller<'_, Data>, packet: u32, len: u32| {
        let (memory, host) = admitted(&mut caller)?;
        wasmtime::Result::Ok(answer(host.resize(memory, packet, len)))
    })?;
    #[cfg(test)]
    linker.func_wrap(MODULE, "test_pass", |caller: Caller<'_, Data>, ticks: u64| {
        tests::pass(caller.engine(), ticks);
    })?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use wasmtime::Engine;

    /// Advances an engine's epoch, as that many ticks would.
    pub(super) fn pass(engine: &Engine, ticks: u64) {
        (0..ticks).for_each(|_| engine.increment_epoch());
    }
}
