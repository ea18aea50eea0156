//! Native code of modules: loaded only where this process compiled it.

use wasmtime::{Engine, Module};

/// Native code that an engine of this process compiled from a module.
///
/// It has no constructor but [`compile`](Self::compile) and [`trusted`](Self::trusted), so that nothing else is loaded as
/// code.
#[derive(Debug)]
pub(crate) struct Artifact(Vec<u8>);

impl Artifact {
    /// Compiles a module.
    ///
    /// # Errors
    /// Those of validation and of the compiler.
    pub(crate) fn compile(engine: &Engine, module: &[u8]) -> wasmtime::Result<Self> {
        engine.precompile_module(module).map(Self)
    }

    /// Native code that an earlier process of this operator compiled.
    ///
    /// The caller has checked that only the operator can have written it, and that it is whole: see `cache`.
    pub(crate) fn trusted(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for the cache.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Loads the code into an engine. The engine checks that its own settings are those of the compiler.
    ///
    /// # Errors
    /// Where the settings differ, or there is no memory.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Module> {
        #[cfg(test)]
        LOADS.set(LOADS.get() + 1);
        // SAFETY: the bytes are what `Engine::precompile_module` made, in this process or in one of the same operator.
        unsafe { Module::deserialize(engine, &self.0) }
    }
}

#[cfg(test)]
thread_local! {
    static LOADS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often this thread has loaded native code.
#[cfg(test)]
pub(crate) fn loads_of_this_thread() -> usize {
    LOADS.get()
}
