//! Control of a configuration: `Script`, `DriverManager`, messages and errors.

use crate::element::Class;

mod message;
mod script;

pub(crate) use script::ScriptBudget;

pub(super) const FAMILIES: &[&[Class]] = &[message::CLASSES, script::CLASSES];
