//! Control of a configuration: `Script`, `DriverManager`, sums of handlers, messages and errors.

use crate::element::Class;

mod aggregate;
mod message;
mod script;

pub(crate) use script::ScriptBudget;

pub(super) const FAMILIES: &[&[Class]] = &[aggregate::CLASSES, message::CLASSES, script::CLASSES];
