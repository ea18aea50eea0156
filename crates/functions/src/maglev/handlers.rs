//! Handlers that change the backends while packets flow, and that report them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded};
use netbricks_core::packet::FlowKey;
use netbricks_core::{Flows, Handler, Worker};

use super::backend::Backend;
use super::backends::{Backends, Replace, Snapshot};

/// Most attempts at a change while other changes come first.
const TRIES: usize = 8;

/// Changes the backends for callers of a worker's handlers.
#[derive(Clone)]
struct Changes {
    backends: Bounded<Backends>,
    /// Replaced snapshots, until all packets use the next one.
    ///
    /// They are freed here, and not by the worker whose packet leaves them last.
    replaced: Rc<RefCell<Vec<Arc<Snapshot>>>>,
}

impl Changes {
    fn make(&self, next: impl Fn(&Snapshot) -> Result<Snapshot, String>) -> Result<String, String> {
        self.replaced.borrow_mut().retain(|snapshot| Arc::strong_count(snapshot) > 1);
        for _ in 0..TRIES {
            let now = self.backends.read(|backends| backends.snapshot().clone());
            let next = Arc::new(next(&now)?);
            let starved = next.starved();
            let replace = Replace { base: now.version, next };
            if self.backends.update(replace).map_err(|cannot| cannot.to_string())? {
                self.replaced.borrow_mut().push(now);
                return Ok(starved.map_or("done".into(), |starved| format!("done, but {starved}")));
            }
        }
        Err("others change the backends all the time: try again".into())
    }
}

/// Declares the handlers that change the backends.
pub(super) fn declare_changes(backends: &Bounded<Backends>, worker: &Worker) {
    let added = Changes { backends: backends.clone(), replaced: Rc::default() };
    let [drained, removed] = std::array::from_fn(|_| added.clone());
    worker.handler(
        Handler::write(
            "add",
            "Adds a backend, takes a draining one back, or gives it another address or weight.",
        )
        .argument("NAME MAC [WEIGHT]"),
        move |text| {
            let backend: Backend = text.parse().map_err(|error: super::BackendError| error.problem)?;
            added.make(|now| now.with(backend.clone()))
        },
    );
    worker.handler(
        Handler::write("drain", "Gives a backend no new flows; those it has stay.").argument("NAME"),
        move |name| drained.make(|now| now.drained(name.trim())),
    );
    worker.handler(
        Handler::write(
            "remove",
            "Takes a backend out; its flows go elsewhere with each worker's next batch.",
        )
        .argument("NAME"),
        move |name| removed.make(|now| now.without(name.trim())),
    );
}

/// Declares all handlers.
pub(super) fn declare(backends: &Bounded<Backends>, connections: &Flows<FlowKey, u64>, worker: &Worker) {
    declare_changes(backends, worker);
    let listed = backends.clone();
    let (memory, forgotten, connections) = (connections.clone(), connections.clone(), connections.clone());
    worker.handler(
        Handler::read("memory", "Bytes of memory of this worker's connections, and for how many."),
        move |_| Ok(memory.with(|table| format!("{} {}", table.bytes(), table.capacity()))),
    );
    worker.handler(
        Handler::write("forget", "Forgets this worker's connections: each goes where a new one would."),
        move |_| {
            forgotten.with(|table| table.clear());
            Ok("done".into())
        },
    );
    worker.handler(
        Handler::read(
            "backends",
            "Each backend with its slots of the table and this worker's connections to it.",
        ),
        move |_| {
            let now = listed.read(|backends| backends.snapshot().clone());
            let (open, shares) = (now.connections(&connections), now.shares());
            let lines = now.all().map(|(number, known)| {
                let state = if known.draining { "draining" } else { "takes" };
                format!("{} {state} {} slots {} connections\n", known.backend, shares[number], open[number])
            });
            Ok(lines.collect())
        },
    );
}
