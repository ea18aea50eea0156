//! A port driver: how settings become an open port, and what is known of the port before.

use std::path::{Path, PathBuf};

use netbricks_buffer::Pool;
use netbricks_core::Settings;

use crate::port::{Port, PortError};
use crate::steer::{FilterSupport, Fixed};

/// The environment in which a driver opens a port.
#[derive(Clone, Debug)]
pub struct OpenContext {
    /// The pool of the port's packets.
    pub pool: Pool,
    /// Wanted queues: one a worker. A port may have fewer; its [`Capabilities`](crate::Capabilities) say how
    /// many.
    pub queues: usize,
    /// The seed of all randomness in the port.
    pub seed: u64,
    /// The directory to which relative file names refer: that of the configuration file.
    pub directory: PathBuf,
    /// Whether filters of the graph choose the receive queue, which may change while the port is open.
    pub filters: bool,
}

/// How the receive queues of a driver's ports divide flows.
///
/// For an open port, [`Capabilities`](crate::Capabilities) give the definite answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueDivision {
    /// There is one queue.
    #[default]
    One,
    /// Up to one queue for each worker, and both directions of a flow arrive on the same queue.
    Symmetric,
    /// Up to one queue for each worker, and the directions of a flow may arrive on different queues.
    Asymmetric,
}

/// The directions in which packets go through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Packets can come in.
    pub receives: bool,
    /// Packets can leave.
    pub transmits: bool,
}

impl Directions {
    /// In and out.
    pub const BOTH: Self = Self { receives: true, transmits: true };
}

/// The demands on this machine that are not among the settings of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// The bytes that the largest packet buffer holds.
    pub largest: usize,
    /// Whether filters of the graph choose the receive queue.
    pub filters: bool,
}

/// A kind of port, known by its name.
///
/// [`Drivers::add`](crate::Drivers::add) makes it known. Each question comes with the settings of one port, which were read
/// and checked once. `port` is the port's name, for errors.
pub trait PortDriver: Send + Sync + 'static {
    /// The settings of a port, in addition to those that all ports have. Declare them with
    /// [`settings!`](netbricks_core::settings).
    type Settings: Settings;

    /// The driver's name in the configuration: `"af_packet"`.
    const NAME: &'static str;
    /// One sentence.
    const SUMMARY: &'static str;
    /// Whether its ports work only over a pool [for a device](netbricks_buffer::PoolBuilder::for_device).
    const DEVICE_FRAMES: bool = false;
    /// How receive queues divide the flows of its ports, as far as that is known before a port is opened.
    const DIVISION: QueueDivision = QueueDivision::One;
    /// The reason why none of its ports can steer, if that is known before a port is opened.
    const FIXED: Option<Fixed> = None;
    /// How its ports take filters of the graph, where they do.
    const FILTERS: Option<FilterSupport> = None;

    /// Opens a port.
    ///
    /// # Errors
    /// [`PortError`] when the device or file is not usable.
    fn open(
        &self,
        port: &str,
        settings: &Self::Settings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError>;

    /// Checks what can be checked without opening the port. Relative file names start from `directory`.
    ///
    /// # Errors
    /// [`PortError`] such as that of a file that is not there.
    fn check(&self, _port: &str, _settings: &Self::Settings, _directory: &Path) -> Result<(), PortError> {
        Ok(())
    }

    /// The directions in which packets go through a port with these settings.
    fn directions(&self, _settings: &Self::Settings) -> Directions {
        Directions::BOTH
    }

    /// Checks that a port works with packet buffers of at most `largest` bytes.
    ///
    /// # Errors
    /// [`PortError`] when the port makes larger packets.
    fn fits(&self, _port: &str, _settings: &Self::Settings, _largest: usize) -> Result<(), PortError> {
        Ok(())
    }

    /// Errors that this machine would cause now.
    ///
    /// Examples are an interface that is missing or switched off, and one that may bring larger packets. It needs no
    /// capability and opens nothing.
    fn lacks(&self, _port: &str, _settings: &Self::Settings, _demands: &Demands) -> Vec<PortError> {
        Vec::new()
    }

    /// Whether a port may bring packets of more than `small` bytes, so that the pool needs large frames.
    ///
    /// Such packets are segments that the kernel has not cut, and jumbo frames.
    fn brings_large_packets(&self, _settings: &Self::Settings, _small: usize) -> bool {
        false
    }

    /// The number of receive queues of a port where `wanted` are asked for.
    ///
    /// It is not called where there is [one](QueueDivision::One).
    fn receive_queues(&self, _settings: &Self::Settings, wanted: usize) -> usize {
        wanted
    }
}
