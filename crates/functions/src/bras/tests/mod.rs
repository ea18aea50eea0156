//! Tests of the concentrator as a node, with scripted subscribers.

mod client;
mod control_side;
mod data;
mod discovery;
mod hostile;
mod negotiation;
mod settings;
