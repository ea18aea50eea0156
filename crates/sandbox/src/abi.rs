//! The interface of modules, as `include/netbricks.h` declares it for C: the layout of a batch, and its numbers.
//!
//! All numbers are little-endian, as WebAssembly's memory is.

use netbricks_core::{DropReason, Edge};

/// The version of the interface.
pub const ABI: u32 = 1;

/// Packets of a batch at most.
pub const BATCH: usize = 256;
/// Bytes of `nb_batch`.
pub(crate) const BATCH_BYTES: usize = PACKETS + BATCH * PACKET_BYTES;
/// Where `now`, `count` and `flags` lie in `nb_batch`.
pub(crate) const NOW: usize = 0;
pub(crate) const COUNT: usize = 8;
pub(crate) const FLAGS: usize = 12;
/// Where the packets begin.
pub(crate) const PACKETS: usize = 16;
/// Bytes of `nb_packet`: `data`, `len` and `verdict`.
pub(crate) const PACKET_BYTES: usize = 12;
/// Where the verdict lies in `nb_packet`.
pub(crate) const VERDICT: usize = 8;

/// A flag of a batch: frames lie in the module's memory as a whole (`mapped`).
pub(crate) const FLAG_MAPPED: u32 = 1;

/// The bytes that a module may change of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Writes {
    /// Nothing: `NB_WRITES_NONE`.
    None,
    /// The first bytes, as many as `nb_reads` says: `NB_WRITES_HEADERS`.
    Headers,
    /// All bytes: `NB_WRITES_ALL`.
    All,
}

impl Writes {
    /// The meaning of a number that `nb_writes` returned.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Headers),
            2 => Some(Self::All),
            _ => None,
        }
    }
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Leave(Edge),
    Drop(DropReason),
}

/// `NB_PASS`: the packet stays in the batch.
pub(crate) const PASS: u32 = 0;
const REPLY: u32 = 1;
const OUTPUT: u32 = 0x100;
const DROP: u32 = 0x200;

/// The reasons of `NB_DROP_…`, in the order of their numbers.
const REASONS: [DropReason; 14] = [
    DropReason::Denied,
    DropReason::Malformed,
    DropReason::Unmatched,
    DropReason::BadChecksum,
    DropReason::TtlExpired,
    DropReason::RateLimited,
    DropReason::NoRoute,
    DropReason::TableFull,
    DropReason::TooBig,
    DropReason::Rejected,
    DropReason::InvalidState,
    DropReason::NoMapping,
    DropReason::NoBackend,
    DropReason::LocalDelivery,
];

/// The edge of a way out by its number: answers have an edge of their own.
pub(crate) fn edge_of(output: usize) -> Edge {
    match u8::try_from(output) {
        Ok(0) | Err(_) => Edge::OUT,
        Ok(output) => Edge(output.saturating_add(Edge::REPLY.0)),
    }
}

/// The fate that a verdict names, for a function with so many ways out.
///
/// `None` for a number that is no verdict.
pub(crate) fn fate(verdict: u32, outputs: usize) -> Option<Fate> {
    match verdict {
        PASS => Some(Fate::Leave(Edge::OUT)),
        REPLY => Some(Fate::Leave(Edge::REPLY)),
        OUTPUT..DROP => {
            let output = (verdict - OUTPUT) as usize;
            (output < outputs).then(|| Fate::Leave(edge_of(output)))
        }
        DROP.. => REASONS.get((verdict - DROP) as usize).map(|reason| Fate::Drop(*reason)),
        _ => None,
    }
}

/// Answers of host calls to a module: numbers below 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no packet of this number in the batch.
    NoPacket = -1,
    /// The frame has no room.
    NoRoom = -2,
    /// The module has not declared that it writes.
    ReadOnly = -3,
    /// There are as many counters as a module may have, or the name is none.
    NoCounter = -4,
}

/// Writes a number into the module's memory, where it lies there.
#[inline(always)]
pub(crate) fn put(memory: &mut [u8], at: usize, value: u32) {
    if let Some(place) = memory.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value.to_le_bytes();
    }
}

/// Reads a number from the module's memory.
#[inline(always)]
pub(crate) fn get(memory: &[u8], at: usize) -> Option<u32> {
    memory.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_size_that_c_gives_it() {
        assert_eq!(BATCH_BYTES, 3_088);
        assert_eq!(BATCH, netbricks_core::buffer::BATCH);
    }

    #[test]
    fn verdicts_that_are_none_have_no_fate() {
        for none in [2, 0xff, 0x102, 0x1ff, 0x200 + REASONS.len() as u32, u32::MAX] {
            assert_eq!(fate(none, 2), None, "{none:#x}");
        }
        assert_eq!(fate(0, 1), Some(Fate::Leave(Edge::OUT)));
        assert_eq!(fate(0x100, 1), Some(Fate::Leave(Edge::OUT)));
        assert_eq!(fate(0x101, 2), Some(Fate::Leave(Edge(2))));
        assert_eq!(fate(0x200, 1), Some(Fate::Drop(DropReason::Denied)));
    }
}
