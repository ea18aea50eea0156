//! The control API of a running dataplane.
//!
//! A process that moves packets has two more threads, which run on no worker's core. The [director](Director)
//! owns the plan, the ports and the history, and alone changes what the workers run. The listener answers
//! HTTP requests and passes each on to the director as a [`Task`]. The command is a client of the same API.
//!
//! Read the modules in this order: `api` (the resources), `director` (their owner), `store` (what outlives the
//! process), `server`, `client`.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
mod director;
mod events;
pub mod log;
pub mod metrics;
mod observe;
mod records;
pub mod server;
pub mod store;
mod trace;

pub use client::{Address, Client, default_socket};
pub use director::{
    Answer, Call, Change, ChangeAnswer, ChangeAsker, Dataplane, Director, Prepared, Task, Tasks, Waiting,
    Wanted, WriteAnswer,
};
pub use events::{Events, Subscription};
pub use observe::{Encode, Observing};
pub use records::{Records, Subject, Written, changed_files, source_of};
pub use server::{Grant, Grants, ListenConfig, ListenError, Listener, Tokens};
pub use store::Files;
pub use trace::{Assembler, Places, TraceEvents};
