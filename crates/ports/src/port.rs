//! The interface of every port: a driver, queues, counters, a link, an MTU and capabilities.
//!
//! All drivers implement the same traits.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Batch;
use netbricks_core::{Context, Departed, Poll};

use crate::node::LiveLimits;
use crate::steer::{Filtering, Fixed, Rules, Unsteerable};

/// The capabilities of a port that decide how a graph is built over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    /// Receive queues that can be taken.
    pub receive_queues: usize,
    /// Transmit queues that can be taken; workers beyond that number share one.
    pub transmit_queues: usize,
    /// Both directions of a flow arrive on the same queue. ICMP errors about the flow may arrive on another
    /// queue.
    pub symmetric_rss: bool,
    /// The port takes packets whose L4 checksum is partial.
    pub checksum_offload: bool,
    /// The port takes TCP or UDP packets larger than the MTU and cuts them itself.
    pub segmentation_offload: bool,
    /// Its arrivals carry the time that drives the graph's clock (a capture, a seeded generator).
    pub drives_clock: bool,
}

/// Whether packets can flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// They can.
    Up,
    /// They cannot, now.
    Down,
    /// The device is gone.
    Gone,
}

/// How a port treats the checksums of arriving packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumPolicy {
    /// The port does not look: it trusts the sender, the link or the NIC.
    #[default]
    Trust,
    /// Packets with a wrong checksum are counted and passed on.
    Verify,
    /// Packets with a wrong checksum are dropped as `bad-checksum`.
    Drop,
}

/// Counters that the queues write and any thread reads.
///
/// Each has one writer a queue, except those that say otherwise. Reads are relaxed.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that arrived, lost ones included.
    pub received: AtomicU64,
    /// Their bytes.
    pub received_bytes: AtomicU64,
    /// Packets given to the outside.
    pub sent: AtomicU64,
    /// Their bytes.
    pub sent_bytes: AtomicU64,
    /// Packets that could not be sent and were counted as dropped.
    ///
    /// The queue counts here, and also every worker that gives it packets
    /// ([`add_shared`](Counters::add_shared)).
    pub not_sent: AtomicU64,
    /// Packets that the kernel or the device dropped before we saw them (ring full).
    ///
    /// They are outside the conservation law.
    pub missed: AtomicU64,
    /// Arrivals with a wrong checksum, if the policy checks them.
    pub bad_checksum: AtomicU64,
    /// Arrivals that came in several pieces and were joined.
    pub linearised: AtomicU64,
    /// Packets for which no buffer was free: on arrival, or when they had to be cut before sending.
    ///
    /// The queues of both directions count here ([`add_shared`](Counters::add_shared)).
    pub no_buffer: AtomicU64,
    /// Arrivals that were dropped as `too-big`: larger than the largest packet buffer, or than the port's
    /// ring takes.
    pub too_big_to_receive: AtomicU64,
    /// Packets that were dropped as `too-big` before sending: larger than the MTU.
    ///
    /// The queue counts here, and also every worker that gives it packets
    /// ([`add_shared`](Counters::add_shared)).
    pub too_big_to_send: AtomicU64,
    /// Arrivals of which a capture holds only the beginning (its snap length).
    pub cut: AtomicU64,
    /// Arrivals of which a capture holds more bytes than it says were on the wire.
    pub overlong: AtomicU64,
    /// Packets that a wrapper lost.
    pub impaired: AtomicU64,
    /// Packets that a wrapper duplicated.
    pub duplicated: AtomicU64,
    /// Packets that a wrapper delayed so that others overtook them.
    pub reordered: AtomicU64,
    /// Packets in which a wrapper changed a bit.
    pub corrupted: AtomicU64,
}

impl Counters {
    /// Adds to a counter that has several writers. It costs more than [`add`](Counters::add): use it for rare
    /// events.
    pub fn add_shared(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
    /// Adds to a counter that has one writer; only that writer may call this.
    #[inline(always)]
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
    /// Adds packets that arrived at a queue, and those of them that were lost there.
    ///
    /// Only the queue's worker may call this.
    #[inline(always)]
    pub(crate) fn arrived(&self, packets: u64, bytes: u64, no_buffer: u64, too_big: u64) {
        Self::add(&self.received, packets);
        Self::add(&self.received_bytes, bytes);
        if no_buffer > 0 {
            Self::add_shared(&self.no_buffer, no_buffer);
        }
        if too_big > 0 {
            Self::add(&self.too_big_to_receive, too_big);
        }
    }
}

/// An open port. Its queues are taken one by one and moved to workers.
pub trait Port: Send {
    /// `"af_packet"`
    fn driver(&self) -> &'static str;
    /// Its name in the configuration.
    fn name(&self) -> &str;
    /// The largest frame that the port takes, without the Ethernet header, in bytes.
    fn mtu(&self) -> usize;
    /// The capabilities of the port.
    fn capabilities(&self) -> Capabilities;
    /// Whether packets can flow. May make a system call; never called from the packet path.
    fn link(&self) -> Link {
        Link::Up
    }
    /// The counters of all its queues, one set a queue.
    fn counters(&self) -> Vec<Arc<Counters>>;
    /// How often the port's device was deleted and replaced by another with the same name.
    fn returned(&self) -> u64 {
        0
    }
    /// Facts that an operator should know: the host's stack also answers on the interface, huge pages are
    /// missing.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// The error that ended the port, or that damaged its input or output.
    ///
    /// An example is a capture that is cut off in a record.
    ///
    /// Everything before it was delivered. A run with such a port has failed.
    fn failure(&self) -> Option<Arc<PortError>> {
        None
    }
    /// How the port treats the checksums of arrivals.
    fn checksum_policy(&self) -> ChecksumPolicy {
        ChecksumPolicy::Trust
    }
    /// Ends the port's work after its queues were drained.
    ///
    /// A capture that was written gets its name only now. A port that is dropped without being closed leaves
    /// no unfinished file.
    ///
    /// # Errors
    /// [`PortError`] when the written data cannot be kept.
    fn close(&mut self) -> Result<(), PortError> {
        Ok(())
    }
    /// Sends each packet to the queue of the first rule that matches it.
    ///
    /// Packets that match no rule arrive where they would without rules. Call this once, before queues are
    /// taken.
    ///
    /// # Errors
    /// [`Unsteerable`], which says what can be done instead.
    fn steer(&mut self, _rules: &Rules) -> Result<(), Unsteerable> {
        Err(Fixed::Driver.into())
    }
    /// The rules by which the port steers.
    fn rules(&self) -> Rules {
        Rules::default()
    }
    /// The mechanism that applies filters of the graph, where the port was opened [for them](crate::OpenContext::filters).
    ///
    /// Such a port on a device takes other rules by [`steer`](Self::steer) at any time.
    fn filtered_by(&self) -> Option<Filtering> {
        None
    }
    /// Takes receive queue `queue`.
    ///
    /// # Errors
    /// [`PortError`] when there is no queue of that number, or it was taken already.
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError>;
    /// Takes transmit queue `queue`.
    ///
    /// # Errors
    /// As [`take_receive`](Port::take_receive).
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError>;
}

/// A source of packets.
pub trait ReceiveQueue: Send {
    /// Puts up to [`Context::burst`] packets into `batch`, which is empty.
    ///
    /// A source that drives the clock advances `cx` to the arrivals' time, rounded down to whole
    /// milliseconds. It ends a batch where the next millisecond begins, so that results do not depend on the
    /// batch size.
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll;
    /// Calls `watch` with descriptors, if the queue has any. One of them becomes readable when packets wait.
    ///
    /// The worker sleeps on them at once, or polls first.
    fn descriptors<'q>(&'q self, _watch: &mut dyn FnMut(BorrowedFd<'q>)) {}
    /// Whether [`descriptors`](Self::descriptors) names any.
    ///
    /// Asked also where the worker does not sleep.
    fn has_descriptor(&self) -> bool {
        let mut any = false;
        self.descriptors(&mut |_| any = true);
        any
    }
    /// Whether its packets already carry the port and queue of their arrival, so that the node need not write
    /// them.
    fn is_labelled(&self) -> bool {
        false
    }
    /// Whether the queue may keep packets that it has already received (a line with a delay). Asked once.
    ///
    /// Those packets count as received when they arrive, so a queue that keeps packets checks their checksums
    /// itself, on arrival.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// The number of packets that the queue keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// Gives up the packets that the queue keeps, due or not, at most a full batch.
    ///
    /// Called at shutdown until the queue keeps none.
    fn release(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
}

/// A destination of packets.
pub trait TransmitQueue: Send {
    /// Takes packets off the front of `batch`, in order, and counts them through [`Context::sent`] or drops
    /// them with a reason.
    ///
    /// Packets for which there is no room stay in the batch; the caller tries again or counts them.
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context);
    /// Whether the queue takes all packets that it is given, however long that takes (a file).
    ///
    /// Workers that share such a queue wait for room and do not lose packets.
    fn is_patient(&self) -> bool {
        false
    }
    /// The number of packets that are sent but whose buffers the device still has.
    ///
    /// They count as sent, not as held.
    fn in_flight(&self) -> usize {
        0
    }
    /// For a shared queue, how many of the packets from all its workers have left.
    ///
    /// `None` for a queue of one worker: it has sent all packets except those that it [keeps](Self::held) and
    /// those that are [in flight](Self::in_flight). Asked while flows move.
    fn departed(&self) -> Option<Departed> {
        None
    }
    /// Gets buffers back from the device and writes out buffered data. Called when idle and at shutdown.
    fn flush(&mut self, _cx: &mut Context) {}
    /// Whether [`flush`](Self::flush) has to be called while nothing arrives: the transmit node then asks for
    /// turns.
    fn needs_flush(&self) -> bool {
        false
    }
    /// Whether the queue may keep packets that it has not sent yet. Asked once.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// The number of packets that the queue keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// When the first of the kept packets is due (ns); [`flush`](Self::flush) sends it then.
    fn due(&self) -> Option<u64> {
        None
    }
    /// The limits of the queue, if they may change while it runs. Asked once.
    fn limits(&self) -> Option<LiveLimits> {
        None
    }
    /// Sends the packets that the queue keeps, due or not. Called at shutdown.
    fn release(&mut self, _cx: &mut Context) {}
}

/// The place where a port's queues report the error that ended the port. Clones share it; the first error
/// stays.
#[derive(Clone, Debug, Default)]
pub struct Failure(Arc<std::sync::OnceLock<Arc<PortError>>>);

impl Failure {
    /// Reports an error, unless there is one already.
    pub fn report(&self, error: PortError) {
        // The first failure explains the later ones.
        let _ = self.0.set(Arc::new(error));
    }
    /// The reported error, if there is one.
    pub fn get(&self) -> Option<Arc<PortError>> {
        self.0.get().cloned()
    }
}

/// A port that cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The device does not exist.
    #[error("port `{port}`: there is no network interface `{device}`{}", suggestion.as_ref().map(|s| format!("; did you mean `{s}`?")).unwrap_or_default())]
    NoDevice {
        /// The port.
        port: String,
        /// The device that was asked for.
        device: String,
        /// An interface with a similar name.
        suggestion: Option<String>,
    },
    /// The process lacks a capability.
    #[error("port `{port}`: {action} needs the capability {capability}; run as root, or grant it: setcap {}+ep on the netbricks binary", capability.to_lowercase())]
    Permission {
        /// The port.
        port: String,
        /// The action that was tried.
        action: String,
        /// `"CAP_NET_RAW"`
        capability: &'static str,
    },
    /// The process lacks privileges; the error lists all that it lacks for the port.
    #[error("port `{port}`: {action} is not permitted: the process lacks {}; run as root, grant it all that the driver needs (`setcap {all}+ep` on the netbricks binary), or mend what is named", missing.join(", "))]
    Privileges {
        /// The port.
        port: String,
        /// The action that was tried.
        action: String,
        /// The missing privileges: `"CAP_BPF"`.
        missing: Vec<String>,
        /// All capabilities that the driver needs, as setcap(8) takes them.
        all: String,
    },
    /// A file cannot be read or written.
    #[error("port `{port}`: {path}: {problem}")]
    File {
        /// The port.
        port: String,
        /// The file.
        path: String,
        /// The problem with the file, and its place.
        problem: String,
    },
    /// A setting that cannot be met.
    #[error("port `{port}`: `{key}` {problem}")]
    Setting {
        /// The port.
        port: String,
        /// The key.
        key: &'static str,
        /// The expected and the found value.
        problem: String,
    },
    /// A queue that does not exist, or is taken.
    #[error("port `{port}`: {direction} queue {queue} {problem}")]
    Queue {
        /// The port.
        port: String,
        /// `"receive"` or `"transmit"`
        direction: &'static str,
        /// Its number.
        queue: usize,
        /// `"was taken already"`, `"does not exist: there are 2"`
        problem: String,
    },
    /// The port cannot steer by these rules.
    #[error("port `{port}` cannot steer: {reason}")]
    Steer {
        /// The port.
        port: String,
        /// The reason, and what can be done instead.
        reason: Unsteerable,
    },
    /// The kernel refused.
    #[error("port `{port}`: {action}: {source}")]
    System {
        /// The port.
        port: String,
        /// The action that was tried.
        action: String,
        /// The kernel's error.
        source: std::io::Error,
    },
}
