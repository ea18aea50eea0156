//! A graph drawn: as DOT for Graphviz and as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use super::build::GraphBuilder;
use super::{Graph, Slot};
use crate::node::Role;

/// A graph as names and edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The graph's name.
    pub name: String,
    /// Its nodes, in the order of adding.
    pub nodes: Vec<DescribedNode>,
    /// Its edges.
    pub edges: Vec<DescribedEdge>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescribedNode {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// `"receive"`, `"function"` or `"transmit"`
    pub role: String,
    /// The owner to whom it is accounted.
    pub owner: u16,
}

/// An edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescribedEdge {
    /// The node that packets leave.
    pub from: String,
    /// The way out that they take.
    pub output: String,
    /// The node that they reach.
    pub to: String,
    /// The input there.
    pub input: usize,
}

fn describe(name: &str, slots: &[Slot]) -> Description {
    let nodes = slots
        .iter()
        .map(|slot| DescribedNode {
            name: slot.name.clone(),
            kind: slot.kind.clone(),
            role: match slot.role {
                Role::Receive => "receive",
                Role::Function => "function",
                Role::Transmit => "transmit",
            }
            .to_owned(),
            owner: slot.owner,
        })
        .collect();
    let mut edges = Vec::new();
    for slot in slots {
        for output in &slot.outputs {
            if let Some(target) = slot.targets.get(output.edge.0 as usize).copied().flatten() {
                edges.push(DescribedEdge {
                    from: slot.name.clone(),
                    output: output.name.clone(),
                    to: slots[target.node].name.clone(),
                    input: target.input,
                });
            }
        }
    }
    Description { name: name.to_owned(), nodes, edges }
}

impl Graph {
    /// Its nodes and edges.
    pub fn describe(&self) -> Description {
        describe(&self.name, &self.slots)
    }
}

impl GraphBuilder {
    /// Its nodes and edges so far.
    pub fn describe(&self) -> Description {
        describe(&self.name, &self.slots)
    }
}

impl Description {
    /// As DOT, left to right: ports as boxes, functions as ellipses, other ways out labelled.
    pub fn dot(&self) -> String {
        let mut dot = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(dot, "digraph {} {{\n  rankdir=LR;", quoted(&self.name));
        for node in &self.nodes {
            let shape = if node.role == "function" { "ellipse" } else { "box" };
            let label = if node.kind == "function" {
                quoted(&node.name)
            } else {
                quoted(&format!("{}\n{}", node.name, node.kind))
            };
            let _ = writeln!(dot, "  {} [shape={shape}, label={label}];", quoted(&node.name));
        }
        for edge in &self.edges {
            let _ = write!(dot, "  {} -> {}", quoted(&edge.from), quoted(&edge.to));
            let _ = if edge.output == "out" {
                writeln!(dot, ";")
            } else {
                writeln!(dot, " [label={}, style=dashed];", quoted(&edge.output))
            };
        }
        dot.push_str("}\n");
        dot
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
