//! The configuration language: from text to elements and connections, and back.
//!
//! [`parse`] reads a text. `scanner` makes tokens of it. `parser` and `chain` make a body for the file and
//! one for each compound element. `flatten` puts bodies in the place of compound elements. The result is a flat
//! [`Configuration`], whose ports [`check_ports`] examines.

mod body;
mod chain;
pub mod classes;
pub mod config;
pub mod errors;
mod flatten;
mod parser;
pub mod ports;
mod scanner;
pub mod text;
pub mod variables;

pub use classes::Classes;
pub use config::{Configuration, Connection, Declaration, Source, parse, parse_for_text};
pub use errors::Errors;
pub use ports::{Processing, Resolved, Shape, check_ports, is_packet_flow_connected};
pub use variables::{Form, Scope, Variables, expand};
