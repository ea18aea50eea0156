//! Requests to look at packets.

/// A request to follow packets, or to copy them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveRequest {
    /// Whether packets are followed or copied.
    pub kind: ObserveKind,
    /// The packets, in the language of pcap-filter(7); all where it is empty.
    pub filter: String,
    /// The place to look at: a node, a port, or for a capture also a drop reason.
    ///
    /// Without one, it is where packets arrive.
    pub at: Option<String>,
    /// The number of packets; no end where none is given.
    pub count: Option<u64>,
    /// The most bytes of a packet that a capture copies.
    pub snaplen: usize,
}

/// The two ways to look at packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveKind {
    /// Packets are followed from node to node.
    Trace,
    /// Packets are copied.
    Capture,
}
