//! `vhost-user`: packets to and from a virtual machine through its memory, as QEMU and DPDK (`net_virtio_user`) share it.
//!
//! This is the back end of the protocol: the device behind the guest's virtio-net card. Each packet is copied once between
//! a frame and the guest's memory, and no system call is made for it. The guest is asked for events only by a worker that
//! sleeps.
//!
//! The guest is not trusted. See `ring` for what it writes into its virtqueues, and `device` for what its front end asks
//! for. `memory` looks at the files that it shares, and `peer` at its event descriptors.

mod device;
mod link;
mod memory;
mod receive;
mod ring;
mod transmit;

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use netbricks_core::{ConfigWarning, InvalidSetting, Settings};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::SocketType;

use self::receive::Receiver;
use self::ring::Place;
use self::transmit::Sender;
use crate::driver::{OpenContext, PortDriver, QueueDivision};
use crate::interface::{HEADER, LARGEST_ARRIVAL};
use crate::node::{LiveLimits, TransmitLimits};
use crate::peer::listener::{Listener, check_path, socket_path};
use crate::peer::{bells, wait_for_end};
use crate::port::{Capabilities, Counters, Link, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::seat::lock;
use crate::steer::Fixed;
use crate::taken::Taken;

const DRIVER: &str = "vhost-user";
/// The most queues of a direction.
const MOST_QUEUES: usize = 64;

/// How a port finds its front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It listens on the socket: QEMU's `server=off`, DPDK's `server=0`.
    #[default]
    Server,
    /// It connects to the socket, again and again: QEMU's `server=on`, DPDK's `server=1`.
    Client,
}

netbricks_core::settings! {
    /// The settings of a `vhost-user` port.
    #[derive(Clone, Debug)]
    pub struct VhostUserSettings {
        /// The Unix socket through which both ends find each other; only the same user may connect.
        ///
        /// Each port has a socket of its own.
        socket: PathBuf = required, "text, a path of up to 107 bytes";
        /// How the port finds its front end: a server listens on the socket, a client connects to it.
        mode: Mode = "server", "\"server\" or \"client\"";
        /// Queues in each direction (pairs of virtqueues).
        queues: usize = 1, "whole number";
        /// Offer partial checksums and packets up to 64 KiB (TSO, USO) both ways.
        offload: bool = true, "true or false";
        /// The largest frame that is sent, without its link header.
        device_mtu: usize = 1500, "whole number, bytes";
        /// Take only memory files that the other end can no longer shrink.
        ///
        /// An access to memory that went away ends this process.
        sealed_memory: bool = true, "true or false";
    }
}

impl Settings for VhostUserSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem| Err(InvalidSetting { key, problem });
        check_path(&self.socket)?;
        if !(1..=MOST_QUEUES).contains(&self.queues) {
            return refuse("queues", format!("must be 1 to {MOST_QUEUES}, found {}", self.queues));
        }
        if !(68..=65_521).contains(&self.device_mtu) {
            return refuse("device_mtu", format!("must be 68 to 65521 bytes, found {}", self.device_mtu));
        }
        Ok(())
    }

    fn warnings(&self) -> Vec<ConfigWarning> {
        if self.sealed_memory {
            return Vec::new();
        }
        let problem =
            "`sealed_memory` is false: if the other end shrinks the memory that it shares, or no huge page \
                       is left, this process ends with SIGBUS. Use it only with a front end that you trust"
                .into();
        vec![ConfigWarning { key: "sealed_memory", item: None, problem }]
    }
}

/// The driver `vhost-user`.
pub(crate) struct VhostUserDriver;

impl PortDriver for VhostUserDriver {
    type Settings = VhostUserSettings;
    const NAME: &'static str = DRIVER;
    const SUMMARY: &'static str =
        "The network card of a virtual machine (QEMU), or DPDK's net_virtio_user, through shared memory.";
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    const FIXED: Option<Fixed> = Some(Fixed::Driver);

    fn open(
        &self,
        name: &str,
        settings: &VhostUserSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(VhostUser::open(name, settings, cx)?))
    }

    fn check(&self, port: &str, settings: &VhostUserSettings, directory: &Path) -> Result<(), PortError> {
        socket_path(port, &settings.socket, directory).map(|_| ())
    }

    /// Large packets are segments that the guest leaves uncut; without offloads, jumbo frames.
    fn brings_large_packets(&self, settings: &VhostUserSettings, small: usize) -> bool {
        settings.offload || settings.device_mtu + HEADER > small
    }

    fn receive_queues(&self, settings: &VhostUserSettings, _wanted: usize) -> usize {
        settings.queues
    }
}

/// State that the port's handle, its thread and its devices share.
struct Shared {
    name: String,
    settings: VhostUserSettings,
    path: PathBuf,
    /// Virtio features that are offered.
    offered: u64,
    /// One for each virtqueue: the even ones take packets to the guest, the odd ones bring them from it.
    places: Vec<Arc<Place>>,
    /// The packets that the guest takes now.
    limits: LiveLimits,
    stop: AtomicBool,
    /// Wakes the thread.
    wake: Arc<OwnedFd>,
    /// The connection that is served.
    current: Mutex<Option<UnixStream>>,
    is_up: AtomicBool,
    connections: AtomicU64,
    /// Why the last connection ended or was refused.
    trouble: Mutex<Option<String>>,
    /// Threads that write to peers' event descriptors.
    writers: bells::Writers,
}

/// A port to a guest.
struct VhostUser {
    shared: Arc<Shared>,
    counters: Vec<Arc<Counters>>,
    taken: Taken,
    warnings: Vec<String>,
    thread: Option<JoinHandle<()>>,
}

impl VhostUser {
    fn open(name: &str, settings: &VhostUserSettings, cx: &OpenContext) -> Result<Self, PortError> {
        let path = socket_path(name, &settings.socket, &cx.directory)?;
        let failed = |action: &'static str| {
            move |source: std::io::Error| PortError::System {
                port: name.into(),
                action: action.into(),
                source,
            }
        };
        let listener = match settings.mode {
            Mode::Client => None,
            Mode::Server => Some(Listener::open(name, &path, SocketType::STREAM)?),
        };
        let queues = settings.queues;
        let event = "making an event descriptor";
        let places = (0..2 * queues).map(|_| Place::new().map(Arc::new)).collect::<Result<_, _>>();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let largest = cx.pool.largest_packet();
        let large = largest >= LARGEST_ARRIVAL;
        let mut warnings = Vec::new();
        if settings.offload && !large {
            warnings.push(format!(
                "the pool's largest frame takes {largest} bytes: the guest may leave checksums to this port, but must cut its \
                 packets; give the pool large frames for that (`large_frames` in `[runtime]`)"
            ));
        }
        let limits =
            TransmitLimits { mtu: settings.device_mtu, checksum_offload: false, segmentation_offload: false };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            settings: settings.clone(),
            path,
            offered: device::offered(queues, settings.offload, large),
            places: places.map_err(failed(event))?,
            limits: LiveLimits::new(limits),
            stop: AtomicBool::new(false),
            wake: Arc::new(wake.map_err(|error| failed(event)(error.into()))?),
            current: Mutex::new(None),
            is_up: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            trouble: Mutex::new(None),
            writers: bells::Writers::default(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            let thread = Builder::new()
                .name(format!("{name} vhost-user"))
                .spawn(move || link::run(&shared, listener.as_ref()));
            thread.map_err(failed("starting a thread"))?
        };
        let counters = (0..queues).map(|_| Arc::default()).collect();
        Ok(Self { shared, counters, taken: Taken::new(queues, queues), warnings, thread: Some(thread) })
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.stop.store(true, Ordering::Release);
            // It can only fail because the thread is awake already.
            let _ = rustix::io::write(&*self.shared.wake, &1_u64.to_ne_bytes());
            if let Some(stream) = &*lock(&self.shared.current) {
                // It can only fail because the connection has ended already.
                let _ = stream.shutdown(Shutdown::Both);
            }
            wait_for_end(thread);
        }
    }
}

impl Drop for VhostUser {
    fn drop(&mut self) {
        self.end();
    }
}

impl Port for VhostUser {
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
        let limits = self.shared.limits.get();
        Capabilities {
            receive_queues: queues,
            transmit_queues: queues,
            symmetric_rss: queues == 1,
            checksum_offload: limits.checksum_offload,
            segmentation_offload: limits.segmentation_offload,
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
        let trouble = trouble.map(|trouble| format!("no guest on {path}: {trouble}"));
        self.warnings.iter().cloned().chain(trouble).collect()
    }
    fn close(&mut self) -> Result<(), PortError> {
        // What was sent is in the guest's memory already.
        self.end();
        Ok(())
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.shared.name, queue)?;
        let place = Arc::clone(&self.shared.places[2 * queue + 1]);
        Ok(Box::new(Receiver::new(place, Arc::clone(&self.counters[queue]))))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.shared.name, queue)?;
        let place = Arc::clone(&self.shared.places[2 * queue]);
        let limits = self.shared.limits.clone();
        Ok(Box::new(Sender::new(place, limits, Arc::clone(&self.counters[queue]))))
    }
}

#[cfg(test)]
mod tests;
