//! A node is made of a function that ends on the wire.
#![forbid(unsafe_code)]
use netbricks_core::packet::Ethernet;
use netbricks_core::{BuildError, Node, Operator, Worker, compose};

fn node(worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose(worker, |input| input.parse::<Ethernet>())
}

fn main() {}
