//! Drop reasons: an enum with a short stable name, a class and a sentence for each reason.

use std::fmt;
use std::num::NonZeroU16;

/// The class of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A rule or a limit decided so, for example an expired time to live.
    Policy,
    /// There was no room, no buffer or no link: more resources would have kept it.
    Lost,
    /// The packet breaks the rules of its protocol.
    Malformed,
    /// The packet's work is done: an answered ARP request is no loss.
    Consumed,
}

impl Class {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Lost => "lost",
            Self::Malformed => "malformed",
            Self::Consumed => "consumed",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident, $name:literal, $class:ident, $sentence:literal;)*) => {
        /// A reason for which a packet was dropped or consumed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* #[doc = $sentence] $reason),* }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$reason),*];
            /// The number of reasons.
            pub const COUNT: usize = Self::ALL.len();
            /// Its short and stable name, for reports and metrics: `"ttl-expired"`.
            pub const fn name(self) -> &'static str { match self { $(Self::$reason => $name),* } }
            /// The present name of a reason that had the name `old` in an earlier version.
            pub fn renamed(old: &str) -> Option<Self> {
                match old {
                    "absorbed" => Some(Self::LocalDelivery),
                    "rewritten" => Some(Self::Replaced),
                    _ => None,
                }
            }
            /// Its class.
            pub const fn class(self) -> Class { match self { $(Self::$reason => Class::$class),* } }
            /// One sentence for people.
            pub const fn sentence(self) -> &'static str { match self { $(Self::$reason => $sentence),* } }
        }
    };
}

reasons! {
    Malformed, "malformed", Malformed, "A header breaks the rules of its protocol.";
    Unmatched, "unmatched", Policy, "The function looks for a header that the packet does not have.";
    BadChecksum, "bad-checksum", Malformed, "A checksum does not match the bytes that it covers.";
    TtlExpired, "ttl-expired", Policy, "The time to live or hop limit ran out.";
    Denied, "denied", Policy, "A rule or a filter said no.";
    RateLimited, "rate-limited", Policy, "A rate limit was reached.";
    NoRoute, "no-route", Policy, "No next hop is known for the destination.";
    TableFull, "table-full", Lost, "A table had no room for a new entry and its policy refused one.";
    PoolExhausted, "pool-exhausted", Lost, "No packet buffer was free.";
    QueueFull, "queue-full", Lost, "A queue between nodes or cores was full.";
    RingFull, "ring-full", Lost, "The ring to the worker that owns the packet's flow was full.";
    WorkerGone, "worker-gone", Lost, "The worker that owns the packet's flow has ended.";
    TransmitFull, "transmit-full", Lost, "The port could not take the packet in time.";
    LinkDown, "link-down", Lost, "The port is down or its device is gone.";
    TooBig, "too-big", Policy, "The packet is larger than the port's MTU or the frame it must fit.";
    NoOffload, "no-offload", Lost, "The packet needs an offload (segmentation, checksum) that the port cannot carry.";
    Impaired, "impaired", Policy, "A fault wrapper was asked to lose it.";
    Unconnected, "unconnected", Policy, "It left on an edge to which nothing is connected.";
    LoopLimit, "loop-limit", Lost, "It went round a cycle of the graph too often.";
    Panicked, "panicked", Lost, "A function panicked while the packet's batch was in its hands.";
    Quarantined, "quarantined", Lost, "A function that panicked gets no packets until it is made again.";
    Drained, "drained", Lost, "It was still held when the graph was taken down.";
    Answered, "answered", Consumed, "It was answered: an ARP request, an echo request, a neighbour solicitation.";
    Discarded, "discarded", Consumed, "It reached a port or a node whose purpose is to discard.";
    LocalDelivery, "local-delivery", Consumed, "It was addressed to this function and needs no answer.";
    Fragment, "fragment", Lost, "It is a fragment, and the function needs the whole packet.";
    Truncated, "truncated", Lost, "Its capture holds only a part of it, and the function needs all.";
    NotEthernet, "not-ethernet", Policy, "Its link layer is not Ethernet, and cannot be made Ethernet.";
    Segmented, "segmented", Consumed, "It was cut into segments that fit the link.";
    Replaced, "replaced", Consumed, "What became of its bytes went on in packets of their own.";
    Rejected, "rejected", Policy, "A rule refused it and answered its source.";
    InvalidState, "invalid-state", Policy, "It does not fit the state of any connection.";
    NoMapping, "no-mapping", Policy, "No address translation exists for it, and no rule makes one.";
    PortsExhausted, "ports-exhausted", Lost, "The address pool has no free port for a new translation.";
    SubscriberLimit, "subscriber-limit", Policy, "Its subscriber has as many sessions or ports as are allowed.";
    Unresolved, "unresolved", Lost, "No neighbour answered for the link-layer address of its next hop.";
    Martian, "martian", Policy, "Its source or destination address must not be forwarded.";
    SignatureMatched, "signature-matched", Policy, "A signature whose action is drop matched.";
    Congested, "congested", Lost, "Active queue management dropped it to keep the queue short.";
    NoBackend, "no-backend", Lost, "No backend is healthy.";
    NoSession, "no-session", Policy, "It belongs to no session that is open.";
    Trapped, "trapped", Lost, "A sandboxed function trapped while the packet's batch was in its hands.";
    Preempted, "preempted", Lost, "A sandboxed function ran longer than its time, and its batch was dropped.";
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A way out of a node, numbered as the graph connects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge(pub u8);

impl Edge {
    /// The way on, for packets that a function forwards.
    pub const OUT: Self = Self(0);
    /// The way back to the packet's source, for answers that a function makes.
    pub const REPLY: Self = Self(1);
}

/// How a packet left the operators of a node, in 16 bits, so that it fits the packet's metadata line.
///
/// The numbers 1 to 255 mean dropped for the reason with the number one less; `0x100 | edge` means another
/// edge. A verdict is never 0, which means that the packet stays. So the answer of an operator chain that
/// leaves no facts is the batch's verdict unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict(NonZeroU16);

/// The numbers of edges begin behind those of the reasons.
const _: () = assert!(DropReason::COUNT <= 0xff, "a verdict has 255 numbers for reasons");

impl Verdict {
    /// The packet leaves this function by its main way out, past its remaining operators.
    pub const PASS: Self = Self(NonZeroU16::MIN.saturating_add(0x1ff));
    /// The packet leaves this function by [`Edge::REPLY`].
    ///
    /// For other edges use `divert`, which tells the graph about them.
    pub const REPLY: Self = Self::edge(Edge::REPLY);
    /// The packet leaves the node by [`Edge::OUT`]; in a chain of fused functions, it leaves this one for the
    /// next.
    pub const OUT: Self = Self::edge(Edge::OUT);
    /// The packet leaves the node by this edge, which the node must name:
    /// [`FrameFunction::edges`](crate::FrameFunction::edges).
    #[inline(always)]
    pub const fn leave(edge: Edge) -> Self {
        Self::edge(edge)
    }
    /// Another arm of a branch has the packet.
    pub(crate) const ELSEWHERE: Self = Self(NonZeroU16::MIN.saturating_add(0x200));
    /// Nothing was done yet: the packet must come once more, [alone](crate::operator::Pass::Second).
    pub(crate) const AGAIN: Self = Self(NonZeroU16::MIN.saturating_add(0x201));
    /// The packet is dropped for this reason.
    #[inline(always)]
    pub const fn drop(reason: DropReason) -> Self {
        Self(NonZeroU16::MIN.saturating_add(reason as u16))
    }
    /// The packet leaves on this edge.
    #[inline(always)]
    pub(crate) const fn edge(edge: Edge) -> Self {
        Self(NonZeroU16::MIN.saturating_add(0xff + edge.0 as u16))
    }
    #[inline(always)]
    pub(crate) const fn bits(self) -> u16 {
        self.0.get()
    }
    /// The packet's departure, from the bits that the batch kept.
    #[inline(always)]
    pub(crate) fn departure(bits: u16) -> Departure {
        match bits {
            0x100..0x200 => Departure::Edge(Edge(bits as u8)),
            _ => Departure::Drop(
                DropReason::ALL
                    .get((bits as usize).wrapping_sub(1))
                    .copied()
                    .unwrap_or(DropReason::Unmatched),
            ),
        }
    }
}

/// The policy of an operator for a packet that it does not match: a [`DropReason`], an [`Edge`] or a
/// [`Verdict`].
///
/// `parse` and `resize` take it by `or`, `filter` as its first argument.
///
/// ```
/// use netbricks_core::packet::{Ip, IpRef, Link};
/// use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict};
///
/// /// Frames without an IP header pass on, IPv4 leaves on edge 2, and hop limits of 1 are dropped.
/// fn ipv6_only(input: Input) -> impl Function {
///     input
///         .parse::<Link>()
///         .parse::<Ip>().or(Verdict::PASS)
///         .filter(Edge(2), |packet| matches!(packet.header(), IpRef::V6(_)))
///         .filter(DropReason::TtlExpired, |packet| packet.header().ttl() > 1)
///         .done()
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnMismatch(pub(crate) Verdict);

impl OnMismatch {
    /// The edge of this policy, if it has one, which the graph must know.
    pub(crate) fn edge(self) -> Option<Edge> {
        match Verdict::departure(self.0.bits()) {
            Departure::Edge(edge) => Some(edge),
            Departure::Drop(_) => None,
        }
    }
}

impl From<DropReason> for OnMismatch {
    fn from(reason: DropReason) -> Self {
        Self(Verdict::drop(reason))
    }
}
impl From<Edge> for OnMismatch {
    fn from(edge: Edge) -> Self {
        Self(Verdict::edge(edge))
    }
}
impl From<Verdict> for OnMismatch {
    fn from(verdict: Verdict) -> Self {
        Self(verdict)
    }
}

/// The fate of a packet that does not stay in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    Drop(DropReason),
    Edge(Edge),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_its_verdict() {
        for reason in DropReason::ALL {
            assert_eq!(Verdict::departure(Verdict::drop(*reason).bits()), Departure::Drop(*reason));
        }
        for edge in 0..=255 {
            assert_eq!(Verdict::departure(Verdict::edge(Edge(edge)).bits()), Departure::Edge(Edge(edge)));
        }
        let mut names: Vec<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::COUNT, "names are unique");
    }
}
