//! Workers, scheduling, idling, containment and drain.
//!
//! A [`Runtime`] starts one thread a core. Each thread makes its own copies of the graphs from [`Factory`]s
//! and runs them to completion, batch after batch. Between batches it reads its mailbox, through which
//! [`Control`] changes and asks it. At the end everything is drained, and a [`FinalReport`] says whether all
//! packets are accounted for.
//!
//! Read the modules in this order: `config`, `runtime` (start and end), `worker` (the loop), `idle`,
//! `control`.
//!
//! ```
//! use netbricks_buffer::{Batch, Pool};
//! use netbricks_core::{Context, DropReason, Edge, GraphBuilder, GraphError, Node, Poll, Shape};
//! use netbricks_runtime::{Clock, Config, Factory, Runtime};
//!
//! /// Brings in so many packets of 60 bytes.
//! struct Source(u64);
//! impl Node for Source {
//!     fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
//!     fn shape(&self) -> Shape { Shape::receive() }
//!     fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
//!         while self.0 > 0 && batch.len() < cx.burst() {
//!             let Some(packet) = cx.pool().packet(&[0; 60]) else { break };
//!             self.0 -= 1;
//!             if batch.push(packet).is_err() { break }
//!         }
//!         if self.0 == 0 { Poll::Done } else { Poll::Busy }
//!     }
//! }
//! /// Takes all packets for itself.
//! struct Sink;
//! impl Node for Sink {
//!     fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
//!         cx.drop_batch(batch, DropReason::Discarded);
//!     }
//!     fn shape(&self) -> Shape { Shape { outputs: Vec::new(), ..Shape::default() } }
//! }
//!
//! let pool = Pool::builder().frames(1024).build()?;
//! let config = Config::new(pool).workers(2).clock(Clock::Driven);
//! let runtime = Runtime::start(config, |_| {
//!     Factory::new(|context| {
//!         let mut graph = GraphBuilder::new("demo");
//!         let source = graph.add("in", Box::new(Source(1_000)))?;
//!         let sink = graph.add("sink", Box::new(Sink))?;
//!         graph.connect(source, Edge::OUT, sink, 0)?;
//!         Ok::<_, GraphError>(graph.build(context.pool().clone())?)
//!     })
//! })?;
//! let report = runtime.wait();
//! assert_eq!(report.totals.received.packets, 2_000);
//! assert!(report.conserved && report.pool_whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod change;
mod chores;
mod clock;
mod config;
mod control;
mod event;
mod idle;
mod mailbox;
mod observe;
mod placement;
mod progress;
mod report;
mod retired;
mod runtime;
mod shuffles;
mod signals;
mod watchdog;
mod worker;

pub use clock::{Clock, Epoch};
pub use config::{BURST, Change, Config, Factory, FactoryError, WorkerContext};
pub use control::{Control, HandlerCall, NodeTerms, StopHandle};
pub use event::{Event, EventSink, PanicReport};
pub use idle::IdlePolicy;
pub use observe::Observation;
pub use placement::{Placement, PlacementError, allowed_cores, pin_this_thread};
pub use progress::Progress;
pub use report::{
    CommandError, DroppedHeader, FinalReport, GraphReport, NodeReport, NodeSection, Replaced, Snapshot,
    TableReport, TenantReport, WorkerReport, by_reason,
};
pub use runtime::{Runtime, StartError};
pub use shuffles::{ShuffleMismatch, ShuffleWay};
pub use signals::{
    ReportRequests, RunSignals, SAME_SIGNAL, SignalGuard, stop_on_signals, stop_or_reload_on_signals,
    stopping_signals,
};
pub use watchdog::{STUCK, Stuck, Watchdog};
