//! Guards: the packets that may leave a node by each of its edges, as far as headers say.
//!
//! A [walk](walk::walk) over a graph conjoins the guards along each path. [`derive`](queues::derive) makes rules of
//! them that bring the packets of each path to one receive queue, before the graph classifies them.
//!
//! ```
//! use netbricks_core::buffer::Batch;
//! use netbricks_core::guards::{Facts, Filter, Guard, Guards};
//! use netbricks_core::{Context, Edge, Node};
//!
//! /// Sends DNS over UDP to edge 2.
//! struct Dns;
//!
//! impl Node for Dns {
//!     fn process(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context) {
//!         let dns = Filter::ANY.protocol(17).to_port(53);
//!         for packet in std::mem::take(batch).drain() {
//!             match dns.matches(&Facts::of(packet.data())) {
//!                 true => cx.emit(Edge(2), packet),
//!                 false => drop(batch.push(packet)),
//!             }
//!         }
//!     }
//!     fn guards(&self, edge: Edge) -> Guards {
//!         match edge {
//!             Edge(2) => Guards::Only(vec![Guard::certain(0, Filter::ANY.protocol(17).to_port(53))]),
//!             // All that no guard of a lower rank takes.
//!             Edge::OUT => Guards::Only(vec![Guard::certain(1, Filter::ANY)]),
//!             _ => Guards::Unknown,
//!         }
//!     }
//! }
//! # assert_ne!(Dns.guards(Edge(2)), Guards::Unknown);
//! ```

mod facts;
mod header_filter;
mod merge;
pub mod queues;
pub mod walk;

pub use facts::{EXTENSIONS, FRAGMENT_V4, FRAGMENT_V6, Facts, IpFacts};
pub use header_filter::{Contradiction, Filter, NoFilter, NoPrefix, Prefix};

#[cfg(test)]
mod tests;

use crate::reason::Edge;

/// The packets that may leave a node by one of its edges.
///
/// It is an over-approximation: each packet that leaves by the edge matches. A node that says more than
/// [`Unknown`](Self::Unknown) of an edge changes no field of the [`Facts`] of a packet that leaves by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Guards {
    /// Nothing is known: any packet, and it may have been changed.
    #[default]
    Unknown,
    /// Any packet, unchanged.
    Any,
    /// Packets that match one of these guards, unchanged.
    Only(Vec<Guard>),
}

/// A part of the packets that may leave by an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The packets.
    pub filter: Filter,
    /// The position among the guards of all edges of the node: among those that match, the lowest decides.
    pub rank: u16,
    /// How sure it is that these packets leave by the edge.
    pub certainty: Certainty,
}

/// How sure it is that packets that match a guard leave by its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// They do, unless they match a guard of a lower rank.
    Certain,
    /// Some of them may.
    Possible,
    /// Some of them may, and these belong to no flow: malformed packets, ARP, neighbour discovery.
    NoFlow,
}

impl Guard {
    /// A guard whose packets leave by its edge, unless one of a lower rank matches.
    pub const fn certain(rank: u16, filter: Filter) -> Self {
        Self { filter, rank, certainty: Certainty::Certain }
    }
    /// A guard of which some packets may leave by its edge.
    pub const fn possible(filter: Filter) -> Self {
        Self { filter, rank: u16::MAX, certainty: Certainty::Possible }
    }
    /// As [`possible`](Self::possible), for packets that belong to no flow.
    pub const fn no_flow(filter: Filter) -> Self {
        Self { filter, rank: u16::MAX, certainty: Certainty::NoFlow }
    }
}

impl Guards {
    /// The guards of a node that lets packets pass unchanged, or drops them.
    ///
    /// They leave by [`Edge::OUT`]. Packets of other edges are the node's own, such as answers.
    pub fn of_passing(edge: Edge) -> Self {
        if edge == Edge::OUT { Self::Any } else { Self::Only(Vec::new()) }
    }
    /// Whether no packet from outside leaves by the edge.
    pub fn is_never(&self) -> bool {
        matches!(self, Self::Only(guards) if guards.is_empty())
    }
    /// The number of guards.
    fn number(&self) -> usize {
        if let Self::Only(guards) = self { guards.len() } else { 1 }
    }
    /// Whether a packet that leaves by the edge may have these facts.
    pub fn admit(&self, facts: &Facts) -> bool {
        match self {
            Self::Unknown | Self::Any => true,
            Self::Only(guards) => guards.iter().any(|guard| guard.filter.matches(facts)),
        }
    }
}
