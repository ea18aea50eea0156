//! What every port is: a driver, queues, counters, a link, an MTU, capabilities. One trait, whatever is behind it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_buffer::Batch;
use netbricks_core::{Context, Departed, Poll};

use crate::node::LiveLimits;
use crate::steer::{Fixed, Rules, Unsteerable};

/// What a port can do, as far as it decides how a graph is built over it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    /// Receive queues that can be taken.
    pub receive_queues: usize,
    /// Transmit queues that can be taken; workers beyond that share one.
    pub transmit_queues: usize,
    /// Both directions of a flow arrive on the same queue. ICMP errors about it may come by another.
    pub symmetric_rss: bool,
    /// It takes packets whose L4 checksum is partial.
    pub checksum_offload: bool,
    /// It takes TCP or UDP packets larger than the MTU and cuts them itself.
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

/// What is done about the checksums of arriving packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumPolicy {
    /// Nothing: the sender, the link or the NIC is trusted.
    #[default]
    Trust,
    /// Wrong ones are counted, and the packets passed on.
    Verify,
    /// Packets with wrong ones are dropped as `bad-checksum`.
    Drop,
}

/// Counters that queues write and anybody reads. Each has one writer a queue, but for those that say otherwise; reads are relaxed.
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
    /// Packets that could not be sent and were counted as dropped: by the queue, and by every worker that gives it packets
    /// ([`add_shared`](Counters::add_shared)).
    pub not_sent: AtomicU64,
    /// Packets that the kernel or the device dropped before we saw them (ring full): outside the conservation law.
    pub missed: AtomicU64,
    /// Arrivals with a wrong checksum, where the policy looks.
    pub bad_checksum: AtomicU64,
    /// Arrivals that came in pieces and were put together.
    pub linearised: AtomicU64,
    /// Packets for which no buffer was free on arrival, or to cut them before they are sent: the queues of both directions
    /// count here ([`add_shared`](Counters::add_shared)).
    pub no_buffer: AtomicU64,
    /// Arrivals that were dropped as `too-big`: larger than the largest packet buffer, or than the port's ring takes.
    pub too_big_to_receive: AtomicU64,
    /// Packets that were dropped as `too-big` when they were to leave: larger than the MTU. The queue counts here, and every
    /// worker that gives it packets ([`add_shared`](Counters::add_shared)).
    pub too_big_to_send: AtomicU64,
    /// Arrivals of which a capture held only the beginning (its snap length).
    pub cut: AtomicU64,
    /// Arrivals of which a capture holds more than it says was on the wire.
    pub overlong: AtomicU64,
    /// Packets that a wrapper lost.
    pub impaired: AtomicU64,
    /// Packets that a wrapper doubled.
    pub duplicated: AtomicU64,
    /// Packets that a wrapper let others overtake.
    pub reordered: AtomicU64,
    /// Packets in which a wrapper changed a bit.
    pub corrupted: AtomicU64,
}

impl Counters {
    /// Adds to one of the counters that has several writers. Costs more than [`add`](Counters::add): for what is rare.
    pub fn add_shared(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
    /// Adds to one of the counters; only its one writer may.
    #[inline(always)]
    pub fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// A port that is open. Its queues are taken one by one and moved to workers.
pub trait Port: Send {
    /// `"af_packet"`
    fn driver(&self) -> &'static str;
    /// Its name in the configuration.
    fn name(&self) -> &str;
    /// Largest frame it takes without the Ethernet header, in bytes.
    fn mtu(&self) -> usize;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Whether packets can flow. May make a system call; never called from the packet path.
    fn link(&self) -> Link {
        Link::Up
    }
    /// The counters of all its queues, one set a queue.
    fn counters(&self) -> Vec<Arc<Counters>>;
    /// How often its device was deleted, and another made under the same name took its place.
    fn returned(&self) -> u64 {
        0
    }
    /// What an operator should know: the host's stack answers on the interface too, huge pages are missing.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// What ended the port, or spoilt what it reads or writes: a capture that is cut off in a record. What came before
    /// it was delivered. A run with such a port failed.
    fn failure(&self) -> Option<Arc<PortError>> {
        None
    }
    /// What is done about the checksums of arrivals.
    fn checksum_policy(&self) -> ChecksumPolicy {
        ChecksumPolicy::Trust
    }
    /// Ends the port's work after its queues were drained: a capture that was written gets its name only now. A port
    /// that is dropped without being closed leaves no half-made file.
    ///
    /// # Errors
    /// [`PortError`] when what was written cannot be kept.
    fn close(&mut self) -> Result<(), PortError> {
        Ok(())
    }
    /// Has each packet arrive at the queue of the first rule that matches it, and those that none matches where they would
    /// without rules. To be asked once, before queues are taken.
    ///
    /// # Errors
    /// [`Unsteerable`], with what can be done instead.
    fn steer(&mut self, _rules: &Rules) -> Result<(), Unsteerable> {
        Err(Fixed::Driver.into())
    }
    /// The rules that it steers by.
    fn rules(&self) -> Rules {
        Rules::default()
    }
    /// Takes receive queue `queue`.
    ///
    /// # Errors
    /// [`PortError`] when there is none of that number, or it was taken already.
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError>;
    /// Takes transmit queue `queue`.
    ///
    /// # Errors
    /// As [`take_receive`](Port::take_receive).
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError>;
}

/// Where packets come from.
pub trait ReceiveQueue: Send {
    /// Puts up to [`Context::burst`] packets into `batch`, which is empty. A source that drives the clock advances
    /// `cx` to the arrivals' time, cut to whole milliseconds, and ends a batch where the next millisecond begins, so
    /// that results do not depend on the batch size.
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll;
    /// Calls `watch` with descriptors of which one becomes readable when packets wait, if there are such.
    fn descriptors<'q>(&'q self, _watch: &mut dyn FnMut(BorrowedFd<'q>)) {}
    /// Whether its packets carry the port and queue of their arrival already, so that nobody writes them again.
    fn is_labelled(&self) -> bool {
        false
    }
    /// Whether it may keep packets that it has received already (a line with a delay). Asked once. Those count as
    /// received when they come, so a queue that keeps packets judges their checksums itself, as they come.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// Packets that it keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// Gives up what it keeps, due or not, a full batch at most; called at shutdown until it keeps nothing.
    fn release(&mut self, _batch: &mut Batch, _cx: &mut Context) {}
}

/// Where packets go.
pub trait TransmitQueue: Send {
    /// Takes packets off the front of `batch`, in order, and counts them through [`Context::sent`] (or drops them
    /// with a reason). What it has no room for stays in the batch; the caller tries again or counts it.
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context);
    /// Whether it takes all that it is given, however long that takes (a file): who shares it then waits for room sooner than
    /// lose packets.
    fn is_patient(&self) -> bool {
        false
    }
    /// Packets that are sent but whose buffers the device still has. They are counted as sent, not as held.
    fn in_flight(&self) -> usize {
        0
    }
    /// How far it is with what all who share it gave it, where it is shared: `None` for a queue of one worker's, which has
    /// sent all but what it [keeps](Self::held) and what is [in flight](Self::in_flight). Asked while flows move.
    fn departed(&self) -> Option<Departed> {
        None
    }
    /// Gets buffers back from the device and writes out what is buffered; called when idle and at shutdown.
    fn flush(&mut self, _cx: &mut Context) {}
    /// Whether [`flush`](Self::flush) has to be called while nothing arrives: the transmit node then asks for turns.
    fn needs_flush(&self) -> bool {
        false
    }
    /// Whether it may keep packets that it has not sent yet. Asked once.
    fn keeps_packets(&self) -> bool {
        false
    }
    /// Packets that it keeps now.
    fn held(&self) -> u64 {
        0
    }
    /// When the first of the packets that it keeps is due (ns); [`flush`](Self::flush) sends it then.
    fn due(&self) -> Option<u64> {
        None
    }
    /// What it takes, where that may change while it runs. Asked once.
    fn limits(&self) -> Option<LiveLimits> {
        None
    }
    /// Sends what it keeps, due or not; called at shutdown.
    fn release(&mut self, _cx: &mut Context) {}
}

/// Where the queues of a port leave word of what ended it. Clones share the word; the first stays.
#[derive(Clone, Debug, Default)]
pub struct Failure(Arc<std::sync::OnceLock<Arc<PortError>>>);

impl Failure {
    /// Leaves word, unless there is one already.
    pub fn report(&self, error: PortError) {
        // The first failure explains those after it.
        let _ = self.0.set(Arc::new(error));
    }
    /// The word, if there is one.
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
    /// The process may not.
    #[error("port `{port}`: {action} needs the capability {capability}; run as root, or grant it: setcap {}+ep on the netbricks binary", capability.to_lowercase())]
    Permission {
        /// The port.
        port: String,
        /// What was tried.
        action: String,
        /// `"CAP_NET_RAW"`
        capability: &'static str,
    },
    /// The process may not, and this is all that it lacks for the port.
    #[error("port `{port}`: {action} is not permitted: the process lacks {}; run as root, grant it all that the driver needs (`setcap {all}+ep` on the netbricks binary), or mend what is named", missing.join(", "))]
    Privileges {
        /// The port.
        port: String,
        /// What was tried.
        action: String,
        /// What is missing: `"CAP_BPF"`.
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
        /// What is wrong with it, and where.
        problem: String,
    },
    /// A setting that cannot be met.
    #[error("port `{port}`: `{key}` {problem}")]
    Setting {
        /// The port.
        port: String,
        /// The key.
        key: &'static str,
        /// What was expected and found.
        problem: String,
    },
    /// A queue that is not there, or taken.
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
    /// Rules that it cannot steer by.
    #[error("port `{port}` cannot steer: {reason}")]
    Steer {
        /// The port.
        port: String,
        /// Why not, and what can be done instead.
        reason: Unsteerable,
    },
    /// The kernel refused.
    #[error("port `{port}`: {action}: {source}")]
    System {
        /// The port.
        port: String,
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}
