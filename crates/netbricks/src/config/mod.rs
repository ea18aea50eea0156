//! The configuration file: reads it, looks up its names, checks it, and reports all faults at their places.
//!
//! `document` knows the file's shape, `plan` looks names up in the registry and among the drivers, and `chain`
//! connects what the plan names.

mod contents;
mod control;
mod devices;
mod document;
mod fields;
mod files;
mod instances;
mod lists;
mod machine;
mod plan;
mod runtime;
mod settings;
mod tenants;
#[cfg(test)]
mod tests;
mod unclosed;
mod written;

use std::path::Path;

use netbricks_core::Registry;
use netbricks_ports::Drivers;

pub use control::ControlSettings;
pub use document::{ChainEntry, Document, Entry, parse};
pub use plan::{
    Origin, PLACEMENT, Plan, PlannedChain, PlannedFunction, PlannedPort, port_keys, refusal, resolve,
};
pub use runtime::{Cores, Idle, RuntimeSettings};
pub use tenants::{Network, PlannedTenant, TenantEntry, TenantSettings};

pub(crate) use contents::named_files;
pub(crate) use lists::{with_list, without};
pub(crate) use plan::resolve_ports;
pub(crate) use tenants::QUEUE;
pub(crate) use written::{Written, difference};

use crate::diagnostic::Diagnostics;

/// Reads a configuration and looks up its names.
///
/// The plan is complete if `diagnostics` has no error afterwards. This function panics on no text: the fuzz
/// target for configurations calls it.
pub fn read<'t>(
    text: &'t str,
    registry: &Registry,
    drivers: &Drivers,
    directory: &Path,
    diagnostics: &mut Diagnostics,
) -> Plan<'t> {
    let document = parse(text, diagnostics);
    resolve(document, registry, drivers, directory, diagnostics)
}
