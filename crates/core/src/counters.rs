//! Packets and bytes, by node, edge and reason.

use std::ops::{AddAssign, Sub};

use crate::reason::{Class, DropReason};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames, without FCS.
    pub bytes: u64,
}

impl Count {
    /// Adds packets and bytes.
    #[inline(always)]
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}
impl AddAssign for Count {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        self.add(other.packets, other.bytes);
    }
}
impl Sub for Count {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Packets that were dropped or consumed, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops([Count; DropReason::COUNT]);

impl Default for Drops {
    fn default() -> Self {
        Self([Count::default(); DropReason::COUNT])
    }
}

impl Drops {
    /// Counts `packets` packets of `bytes` bytes together under a reason.
    #[inline(always)]
    pub fn add(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        self.0[reason as usize].add(packets, bytes);
    }
    /// The count of one reason.
    pub fn of(&self, reason: DropReason) -> Count {
        self.0[reason as usize]
    }
    /// Reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, Count)> + '_ {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.of(*reason)))
            .filter(|(_, count)| count.packets > 0)
    }
    /// All that was dropped: every class except [`Class::Consumed`].
    pub fn dropped(&self) -> Count {
        self.sum(|class| class != Class::Consumed)
    }
    /// All that was consumed.
    pub fn consumed(&self) -> Count {
        self.sum(|class| class == Class::Consumed)
    }
    /// Dropped and consumed.
    pub fn total(&self) -> Count {
        self.sum(|_| true)
    }
    fn sum(&self, wanted: impl Fn(Class) -> bool) -> Count {
        let mut sum = Count::default();
        for (_, count) in self.iter().filter(|(reason, _)| wanted(reason.class())) {
            sum += count;
        }
        sum
    }
    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += *theirs;
        }
    }
}

/// Drops of the running node, until its graph takes them over.
///
/// Only reasons that occurred are read.
#[derive(Default)]
pub(crate) struct Dropping {
    drops: Drops,
    /// A bit for each reason that occurred.
    reasons: u64,
}

const _: () = assert!(DropReason::COUNT <= u64::BITS as usize, "a reason has a bit");

impl Dropping {
    /// As [`Drops::add`].
    #[inline(always)]
    pub(crate) fn add(&mut self, reason: DropReason, packets: u64, bytes: u64) {
        self.reasons |= 1 << reason as u8;
        self.drops.add(reason, packets, bytes);
    }
    /// As [`Drops::total`].
    pub(crate) fn total(&self) -> Count {
        self.drops.total()
    }
    /// Whether packets were dropped for this reason.
    #[inline(always)]
    pub(crate) fn has(&self, reason: DropReason) -> bool {
        self.reasons & (1 << reason as u8) != 0
    }
    /// Takes all counts, and leaves none.
    pub(crate) fn take(&mut self) -> Drops {
        std::mem::take(self).drops
    }
    /// Moves all counts to those of a node.
    #[inline(always)]
    pub(crate) fn move_to(&mut self, drops: &mut Drops) {
        let mut left = std::mem::take(&mut self.reasons);
        while left != 0 {
            let reason = left.trailing_zeros() as usize;
            left &= left - 1;
            if let (Some(mine), Some(theirs)) = (self.drops.0.get_mut(reason), drops.0.get_mut(reason)) {
                *theirs += std::mem::take(mine);
            }
        }
    }
}

/// The counters of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeCounters {
    /// Batches that arrived, and turns that yielded packets.
    pub batches: u64,
    /// Packets that arrived on its inputs.
    pub arrived: Count,
    /// Packets that it brought in from outside.
    pub received: Count,
    /// Packets that left on any edge.
    pub left: Count,
    /// Packets that it created.
    pub created: Count,
    /// Packets that it gave to the outside.
    pub sent: Count,
    /// Packets that it gave to other workers.
    pub handoff_out: Count,
    /// Packets that it took over from other workers.
    pub handoff_in: Count,
    /// Packets that it dropped or consumed.
    pub drops: Drops,
    /// Packets that it keeps.
    pub held: u64,
    /// Cycles of the time stamp counter spent in sampled batches.
    pub sampled_cycles: u64,
    /// Packets in those batches.
    pub sampled_packets: u64,
    /// Panics contained.
    pub panics: u64,
}

impl NodeCounters {
    /// Whether the node's counters balance.
    ///
    /// That is received + created + arrived + handed in = left + sent + handed off + dropped + consumed +
    /// held.
    pub fn is_conserved(&self) -> bool {
        self.received.packets + self.created.packets + self.arrived.packets + self.handoff_in.packets
            == self.left.packets
                + self.sent.packets
                + self.handoff_out.packets
                + self.drops.total().packets
                + self.held
    }
    /// The number of packets that the node keeps, as it follows from all other counts.
    pub(crate) fn balance(&self) -> u64 {
        let came = self.received + self.created + self.arrived + self.handoff_in;
        let went = self.left + self.sent + self.handoff_out + self.drops.total();
        (came - went).packets
    }
    /// Cycles a packet, from the sampled batches; `None` before the first sample.
    pub fn cycles_a_packet(&self) -> Option<f64> {
        (self.sampled_packets > 0).then(|| self.sampled_cycles as f64 / self.sampled_packets as f64)
    }
    /// Adds the counters of another worker's copy of the node.
    pub fn merge(&mut self, other: &Self) {
        self.batches += other.batches;
        self.arrived += other.arrived;
        self.received += other.received;
        self.left += other.left;
        self.created += other.created;
        self.sent += other.sent;
        self.handoff_out += other.handoff_out;
        self.handoff_in += other.handoff_in;
        self.drops.merge(&other.drops);
        self.held += other.held;
        self.sampled_cycles += other.sampled_cycles;
        self.sampled_packets += other.sampled_packets;
        self.panics += other.panics;
    }
}
