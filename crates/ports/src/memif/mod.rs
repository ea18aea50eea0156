//! `memif`: packets between processes through shared memory, as VPP, DPDK (`net_memif`) and libmemif do it.
//!
//! One process is the server, which listens on a Unix socket; the other is the client, which makes the memory and
//! connects. Version 2.0 of the protocol, in its Ethernet mode. Each packet is copied once between a frame and the
//! shared memory, and no system call is made for it. The receiver of a ring asks for events only while it sleeps.
//!
//! The peer is not trusted: see `ring` for what it writes into rings, `handshake` for what it offers, and
//! `peer` for the event descriptors that it shares.

mod handshake;
mod link;
pub mod message;
mod queue;
mod ring;
mod socket;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use netbricks_core::{ConfigWarning, InvalidSetting, Settings};
use rustix::event::{EventfdFlags, eventfd};

use self::handshake::{Layout, MOST_MEMORY};
use self::message::{MOST_LOG2, SECRET};
use self::queue::{Receiver, RingSeat, Sender};
use self::ring::{Consumer, MOST_PIECES, Producer, Ring};
use self::socket::Listener;
use crate::driver::{OpenContext, PortDriver, QueueDivision};
use crate::interface::HEADER;
use crate::peer::listener::{check_path, socket_path};
use crate::peer::{bells, wait_for_end};
use crate::port::{Capabilities, Counters, Link, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::seat::{Seat, lock};
use crate::steer::Fixed;
use crate::taken::Taken;

const DRIVER: &str = "memif";
/// The most rings of a direction.
const MOST_QUEUES: usize = 64;
const RING_SIZES: std::ops::RangeInclusive<usize> = 16..=1 << MOST_LOG2;
const BUFFER_SIZES: std::ops::RangeInclusive<usize> = 256..=65_536;
/// How long a port that is closed waits for the peer to take what was sent.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// Which end of a memif connection a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It listens, and uses the client's memory. The protocol also calls it master.
    #[default]
    Server,
    /// It connects, and makes the memory. The protocol also calls it slave.
    Client,
}

netbricks_core::settings! {
    /// The settings of a `memif` port.
    #[derive(Clone, Debug)]
    pub struct MemifSettings {
        /// The Unix socket through which both ends find each other; only the same user may connect.
        ///
        /// Each port has a socket of its own.
        socket: PathBuf = required, "text, a path of up to 107 bytes";
        /// Which end this is: the server listens on the socket, the client connects and makes the memory.
        role: Role = "server", "\"server\" or \"client\"";
        /// The number of the interface, which must be the same at both ends.
        id: u32 = 0, "whole number";
        /// A password, which must be the same at both ends.
        secret: Option<String> = unset, "text, up to 24 bytes";
        /// Rings in each direction.
        queues: usize = 1, "whole number";
        /// Descriptors of a ring; the smaller number of both ends counts.
        ring_size: usize = 1024, "whole number, a power of two";
        /// Bytes of a buffer in the memory that a client makes; larger packets take several.
        buffer_size: usize = 2048, "whole number, bytes";
        /// The largest frame that is sent, without its link header.
        device_mtu: usize = 1500, "whole number, bytes";
    }
}

impl MemifSettings {
    fn log2(&self) -> u8 {
        self.ring_size.ilog2() as u8
    }
}

impl Settings for MemifSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem| Err(InvalidSetting { key, problem });
        check_path(&self.socket)?;
        if let Some(secret) = &self.secret
            && !(1..=SECRET).contains(&secret.len())
        {
            return refuse("secret", format!("must have 1 to {SECRET} bytes, found {}", secret.len()));
        }
        if !(1..=MOST_QUEUES).contains(&self.queues) {
            return refuse("queues", format!("must be 1 to {MOST_QUEUES}, found {}", self.queues));
        }
        if !RING_SIZES.contains(&self.ring_size) || !self.ring_size.is_power_of_two() {
            let (least, most) = (RING_SIZES.start(), RING_SIZES.end());
            return refuse(
                "ring_size",
                format!("must be a power of two from {least} to {most}, found {}", self.ring_size),
            );
        }
        if !BUFFER_SIZES.contains(&self.buffer_size) {
            let (least, most) = (BUFFER_SIZES.start(), BUFFER_SIZES.end());
            return refuse(
                "buffer_size",
                format!("must be {least} to {most} bytes, found {}", self.buffer_size),
            );
        }
        if !(68..=65_521).contains(&self.device_mtu) {
            return refuse("device_mtu", format!("must be 68 to 65521 bytes, found {}", self.device_mtu));
        }
        let layout = Layout { queues: self.queues, size: self.ring_size, buffer: self.buffer_size };
        let memory = layout.bytes() as u64;
        if self.role == Role::Client && memory > MOST_MEMORY {
            return refuse(
                "queues",
                format!(
                    "times `ring_size` and `buffer_size` must give a memory of at most {} MiB, found {}: make one of them smaller",
                    MOST_MEMORY >> 20,
                    memory.div_ceil(1 << 20)
                ),
            );
        }
        Ok(())
    }

    fn warnings(&self) -> Vec<ConfigWarning> {
        let pieces = self.ring_size.min(MOST_PIECES);
        let most = (self.buffer_size * pieces).saturating_sub(HEADER);
        if self.role == Role::Server || self.device_mtu <= most {
            return Vec::new();
        }
        let problem = format!(
            "`device_mtu` is {}, and a frame that is sent takes at most {pieces} buffers of `buffer_size`: packets of more than {most} bytes \
             are dropped as `too-big`",
            self.device_mtu
        );
        vec![ConfigWarning { key: "device_mtu", item: None, problem }]
    }
}

/// The driver `memif`.
pub(crate) struct MemifDriver;

impl PortDriver for MemifDriver {
    type Settings = MemifSettings;
    const NAME: &'static str = DRIVER;
    const SUMMARY: &'static str =
        "Shared memory with another process on this machine: VPP, DPDK's net_memif, or another NetBricks.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    const FIXED: Option<Fixed> = Some(Fixed::Driver);

    fn open(
        &self,
        name: &str,
        settings: &MemifSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Memif::open(name, settings, &cx.directory)?))
    }

    fn check(&self, port: &str, settings: &MemifSettings, directory: &Path) -> Result<(), PortError> {
        socket_path(port, &settings.socket, directory).map(|_| ())
    }

    /// Large packets are those of several buffers.
    fn brings_large_packets(&self, settings: &MemifSettings, small: usize) -> bool {
        settings.device_mtu + HEADER > small
    }

    fn receive_queues(&self, settings: &MemifSettings, _wanted: usize) -> usize {
        settings.queues
    }
}

/// State that the port's handle and its thread share.
struct Shared {
    name: String,
    settings: MemifSettings,
    path: PathBuf,
    receive: Vec<RingSeat<Consumer>>,
    transmit: Vec<RingSeat<Producer>>,
    stop: AtomicBool,
    /// Wakes the thread.
    wake: Arc<OwnedFd>,
    is_up: AtomicBool,
    connections: AtomicU64,
    /// Why the last connection ended or was refused.
    trouble: Mutex<Option<String>>,
    /// The rings to the peer, and whether this process made them.
    sent: Mutex<Vec<(Ring, bool)>>,
    /// Threads that write to peers' event descriptors.
    writers: bells::Writers,
}

impl Shared {
    fn new(name: &str, settings: &MemifSettings, path: PathBuf) -> Result<Self, PortError> {
        let event = || {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            made.map_err(|error| PortError::System {
                port: name.into(),
                action: "making an event descriptor".into(),
                source: error.into(),
            })
        };
        let queues = settings.queues;
        let bells = (0..queues).map(|_| event()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: name.to_owned(),
            settings: settings.clone(),
            path,
            receive: bells.into_iter().map(|bell| Arc::new(Seat::new(Some(bell)))).collect(),
            transmit: (0..queues).map(|_| Arc::new(Seat::new(None))).collect(),
            stop: AtomicBool::new(false),
            wake: Arc::new(event()?),
            is_up: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            trouble: Mutex::new(None),
            sent: Mutex::default(),
            writers: bells::Writers::default(),
        })
    }
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
    /// Takes note of a wake-up.
    fn hear(&self) {
        // It can only fail because it was heard already.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }
    fn clear_seats(&self) {
        self.receive.iter().for_each(|seat| seat.clear());
        self.transmit.iter().for_each(|seat| seat.clear());
    }
    /// Takes the rings back from the queues.
    fn detach(&self) {
        // The link is down once the queues have no rings, and not before.
        if !lock(&self.sent).is_empty() {
            for seat in &self.receive {
                seat.change(|next| match next.as_mut().and_then(|waiting| waiting.as_mut().as_mut()) {
                    // No worker has seen the packets in it yet.
                    Some(waiting) => waiting.end(),
                    None => *next = Some(Box::new(None)),
                });
            }
            self.transmit.iter().for_each(|seat| seat.offer(Box::new(None)));
            self.is_up.store(false, Ordering::Release);
        }
        lock(&self.sent).clear();
        self.writers.stop();
        self.clear_seats();
    }
    /// Whether each ring to the peer can take a packet: a client offers buffers some time after it has connected.
    fn has_room(&self) -> bool {
        lock(&self.sent).iter().all(|(ring, ours)| *ours || ring.head() != ring.tail())
    }
    /// Whether the peer has taken all that was sent.
    fn is_taken(&self) -> bool {
        lock(&self.sent).iter().all(|(ring, ours)| {
            let between = ring.head().wrapping_sub(ring.tail());
            // Empty buffers lie between tail and head of the client's receive rings.
            if *ours { between == 0 } else { between >= ring.size() }
        })
    }
}

/// A port to another process.
struct Memif {
    shared: Arc<Shared>,
    counters: Vec<Arc<Counters>>,
    taken: Taken,
    thread: Option<JoinHandle<()>>,
}

impl Memif {
    fn open(name: &str, settings: &MemifSettings, directory: &Path) -> Result<Self, PortError> {
        let path = socket_path(name, &settings.socket, directory)?;
        let failed =
            |action: &str, source| PortError::System { port: name.into(), action: action.into(), source };
        let listener = match settings.role {
            Role::Client => None,
            Role::Server => Some(Listener::open(name, &path)?),
        };
        let shared = Arc::new(Shared::new(name, settings, path)?);
        let thread = {
            let shared = Arc::clone(&shared);
            let thread = Builder::new()
                .name(format!("{name} memif"))
                .spawn(move || link::run(&shared, listener.as_ref()));
            thread.map_err(|error| failed("starting a thread", error))?
        };
        let queues = settings.queues;
        let counters = (0..queues).map(|_| Arc::default()).collect();
        Ok(Self { shared, counters, taken: Taken::new(queues, queues), thread: Some(thread) })
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop.store(true, Ordering::Release);
            // It can only fail because the thread is awake already.
            let _ = rustix::io::write(&*self.shared.wake, &1_u64.to_ne_bytes());
            wait_for_end(thread);
        }
    }
}

impl Drop for Memif {
    fn drop(&mut self) {
        self.end();
    }
}

impl Port for Memif {
    fn driver(&self) -> &'static str {
        DRIVER
    }
    fn name(&self) -> &str {
        &self.shared.name
    }
    fn mtu(&self) -> usize {
        self.shared.settings.device_mtu
    }
    fn capabilities(&self) -> Capabilities {
        let queues = self.shared.settings.queues;
        Capabilities {
            receive_queues: queues,
            transmit_queues: queues,
            symmetric_rss: queues == 1,
            ..Capabilities::default()
        }
    }
    fn link(&self) -> Link {
        if self.shared.is_up.load(Ordering::Acquire) { Link::Up } else { Link::Down }
    }
    fn returned(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed).saturating_sub(1)
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }
    fn warnings(&self) -> Vec<String> {
        let trouble = lock(&self.shared.trouble).clone();
        let path = self.shared.path.display();
        trouble.map(|trouble| format!("no peer on {path}: {trouble}")).into_iter().collect()
    }
    fn close(&mut self) -> Result<(), PortError> {
        let until = Instant::now() + LAST_WAIT;
        while !self.shared.is_taken() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end();
        Ok(())
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.shared.name, queue)?;
        let seat = Arc::clone(&self.shared.receive[queue]);
        Ok(Box::new(Receiver::new(seat, Arc::clone(&self.counters[queue]))))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.shared.name, queue)?;
        let seat = Arc::clone(&self.shared.transmit[queue]);
        Ok(Box::new(Sender::new(seat, Arc::clone(&self.counters[queue]))))
    }
}

#[cfg(test)]
mod tests;
