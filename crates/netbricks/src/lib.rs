//! Network functions in safe Rust, at C's speed.
#![forbid(unsafe_code)]

mod bench;
mod chain;
mod commands;
pub mod config;
pub mod diagnostic;
mod frames;
mod pipeline;
pub mod prelude;
mod report;
mod tasks;

use std::process::ExitCode;

pub use netbricks_click as click;
/// Values with units in settings: durations, sizes, rates, probabilities.
pub use netbricks_core::units;
pub use netbricks_core::{Registry, packet, tables};
/// The library's functions and their parts, such as `functions::maglev::LookupTable`.
pub use netbricks_functions as functions;
pub use netbricks_mmb as mmb;
pub use netbricks_ports::Drivers;
pub use netbricks_sandbox as sandbox;
pub use netbricks_stream as stream;
pub use pipeline::{ContextError, NetBricksContext, Pipeline, Queue, Sent, StopHandle};
pub use report::{
    NodeBytes, NodeSection, NodeSummary, PoolSummary, PortSummary, RecordedPacket, ShuffleSummary, Summary,
    WorkerPlace,
};

/// The registry of the library's functions. Add your own functions to it and pass it to [`main`].
pub fn standard() -> Registry {
    let mut registry = Registry::new();
    netbricks_functions::register(&mut registry);
    tasks::register(&mut registry);
    netbricks_click::register(&mut registry);
    netbricks_click::instances::register(&mut registry);
    netbricks_mmb::register(&mut registry);
    netbricks_sandbox::register(&mut registry);
    registry
}

/// The `netbricks` command over these functions and the standard ports: a `main` in one line.
///
/// Its runs end at Ctrl-C and print the report so far at SIGUSR1.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     let mut registry = netbricks::standard();
///     // registry.add::<my_function::Settings>("mine", "What it does.", my_function::build);
///     netbricks::main(registry)
/// }
/// ```
pub fn main(registry: Registry) -> ExitCode {
    main_with(registry, Drivers::standard())
}

/// As [`main`], with port drivers of your own beside the standard ones or in place of them.
pub fn main_with(registry: Registry, drivers: Drivers) -> ExitCode {
    let app = commands::Application::new(registry, drivers);
    commands::main(&app, std::env::args_os())
}

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
