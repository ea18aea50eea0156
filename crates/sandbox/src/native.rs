//! A node whose function is a module's source as native code: what the sandbox is compared with in benchmarks.

use std::path::Path;

use netbricks_core::buffer::Batch;
use netbricks_core::{BuildError, Context, Node, Shape, Worker};

use crate::node::{depart, mark};
use crate::sys::native::Library;

/// A node that calls the `nb_process` of a shared library, without any protection.
///
/// The library has the interface of `netbricks.h` with the pointers of this machine, and is linked with
/// `bench/fastpaas/c/host.c`, which has `nb_pull` and room for the configuration. Where it has the function `nb_bounds`,
/// that gets the address and bytes of the worker's pool. A file that is loaded twice is one library with one state: give
/// each node a copy of its own.
///
/// This runs code of the file in this process: it is for benchmarks, behind the feature `native`.
///
/// # Errors
/// The library cannot be loaded, lacks a symbol, or refuses its configuration.
pub fn native(library: &Path, config: &str, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    let library = Library::load(library, config, worker.pool().region()).map_err(BuildError::new)?;
    Ok(Box::new(NativeNode { library }))
}

struct NativeNode {
    library: Library,
}

impl Node for NativeNode {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        self.library.run(batch, cx.now());
        let library = &self.library;
        let kept = batch.compact(|slot, _| mark(library.verdict(slot), 1).1);
        if kept != batch.len() {
            depart(batch, kept, cx);
        }
    }

    fn shape(&self) -> Shape {
        Shape { kind: "native".into(), ..Shape::default() }
    }
}
