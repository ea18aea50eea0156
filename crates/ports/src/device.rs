//! The parts that `af_packet`, `af_xdp` and `tap` have in common: all are ports on an interface of the host.
//!
//! They are the interface, its counters, rules and warnings, and the opening, also of a device that was made again.

use std::io;
use std::sync::Arc;

use netbricks_core::InvalidSetting;

use crate::driver::OpenContext;
use crate::interface::Interface;
use crate::port::{Capabilities, Counters, Link, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::returning::{Wanted, returning};
use crate::steer::{Filtering, Fixed, Rules, Unsteerable};
use crate::sys::packet::PacketSocket;
use crate::taken::Taken;

/// Queues that a port on an interface may have.
const MOST_QUEUES: usize = 256;

/// Refuses numbers of queues that no port may have.
pub(crate) fn check_queues(queues: Option<usize>) -> Result<(), InvalidSetting> {
    match queues {
        Some(queues) if !(1..=MOST_QUEUES).contains(&queues) => {
            Err(InvalidSetting { key: "queues", problem: format!("must be 1 to {MOST_QUEUES}") })
        }
        _ => Ok(()),
    }
}

/// The port that a device is opened for.
pub(crate) struct Opening<'o> {
    /// The port's name.
    pub(crate) port: &'o str,
    /// The device's name.
    pub(crate) device: &'o str,
    pub(crate) cx: &'o OpenContext,
    /// The counters of the queues that go on with this device, where it was there before.
    known: Option<&'o [Arc<Counters>]>,
}

impl Opening<'_> {
    /// The number of queues to open: those that go on, or else those that are wanted, up to `most`.
    pub(crate) fn queues(&self, written: Option<usize>, most: usize) -> usize {
        let wanted = || written.unwrap_or(self.cx.queues).clamp(1, most.min(MOST_QUEUES));
        self.known.map_or_else(wanted, <[_]>::len)
    }

    /// A set of counters for each queue.
    pub(crate) fn counters(&self, queues: usize) -> Vec<Arc<Counters>> {
        self.known.map_or_else(|| (0..queues).map(|_| Arc::default()).collect(), <[_]>::to_vec)
    }
}

/// Opens a port on `device`.
///
/// If the device is deleted, the port goes on with a new device of the same name.
pub(crate) fn open<D: Device + 'static>(
    port: &str,
    device: &str,
    cx: &OpenContext,
    wanted: Wanted,
    open_device: impl Fn(&Opening<'_>) -> Result<DevicePort<D>, PortError> + Send + 'static,
) -> Result<Box<dyn Port>, PortError> {
    let opened = open_device(&Opening { port, device, cx, known: None })?;
    // The device's real name, not the template in the settings.
    let device = opened.on.interface.name().to_owned();
    let (name, again, cx) = (port.to_owned(), device.clone(), cx.clone());
    let reopen = move |known: &[Arc<Counters>]| -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(open_device(&Opening { port: &name, device: &again, cx: &cx, known: Some(known) })?))
    };
    returning(Box::new(opened), &device, wanted, Box::new(reopen))
}

/// Takes packets to any MAC address for as long as the socket is open.
///
/// `refused` makes the error of an action.
pub(crate) fn promiscuous(
    interface: &Interface,
    refused: impl Fn(&str, io::Error) -> PortError,
) -> Result<PacketSocket, PortError> {
    let socket = PacketSocket::open().map_err(|error| refused("opening an AF_PACKET socket", error))?;
    socket
        .be_promiscuous(interface.index())
        .map_err(|error| refused(&format!("making {} promiscuous", interface.name()), error))?;
    Ok(socket)
}

/// An interface in use by a port.
pub(crate) struct InUse {
    pub(crate) port: String,
    pub(crate) interface: Interface,
    pub(crate) mtu: usize,
    /// Of each receive queue.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) rules: Rules,
    pub(crate) warnings: Vec<String>,
    /// Whether the rules are filters of the graph.
    pub(crate) filters: bool,
}

/// How a driver moves the packets of an interface.
pub(crate) trait Device: Send {
    /// The driver's name.
    const DRIVER: &'static str;
    /// The capabilities of its ports.
    fn capabilities(&self, on: &InUse) -> Capabilities;
    /// Adds the packets that the kernel dropped since the last call to `missed`.
    ///
    /// Only the control side calls it, so that the counter has one writer and receiving makes no system call for it.
    fn count_missed(&self, _on: &InUse) {}
    /// The mechanism that applies filters of the graph.
    fn filtered_by(&self) -> Option<Filtering> {
        None
    }
    /// Has packets arrive where the rules say. Each queue that the rules name exists.
    ///
    /// No queue was taken, or the rules are filters of the graph.
    fn steer(&mut self, _on: &InUse, _rules: &Rules) -> Result<(), Unsteerable> {
        Err(Fixed::Driver.into())
    }
    /// A receive queue that exists and was not taken before.
    fn receive_queue(&mut self, on: &InUse, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError>;
    /// A transmit queue that exists and was not taken before.
    fn transmit_queue(&mut self, on: &InUse, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError>;
}

/// An open port on an interface.
pub(crate) struct DevicePort<D> {
    // Dropped before the interface, so that its resources are given back first.
    device: D,
    on: InUse,
    taken: Taken,
}

impl<D: Device> DevicePort<D> {
    /// A port with as many queues each way as there are sets of counters.
    pub(crate) fn new(
        opening: &Opening<'_>,
        (interface, mtu): (Interface, usize),
        counters: Vec<Arc<Counters>>,
        warnings: Vec<String>,
        device: D,
    ) -> Self {
        let taken = Taken::new(counters.len(), counters.len());
        let (port, rules) = (opening.port.to_owned(), Rules::default());
        Self {
            device,
            on: InUse { port, interface, mtu, counters, rules, warnings, filters: opening.cx.filters },
            taken,
        }
    }
}

impl<D: Device> Port for DevicePort<D> {
    fn driver(&self) -> &'static str {
        D::DRIVER
    }
    fn name(&self) -> &str {
        &self.on.port
    }
    fn mtu(&self) -> usize {
        self.on.mtu
    }
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities(&self.on)
    }
    fn link(&self) -> Link {
        self.device.count_missed(&self.on);
        self.on.interface.link()
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.device.count_missed(&self.on);
        self.on.counters.clone()
    }
    fn warnings(&self) -> Vec<String> {
        self.on.warnings.clone()
    }
    fn steer(&mut self, rules: &Rules) -> Result<(), Unsteerable> {
        rules.check_queues(self.on.counters.len())?;
        if self.taken.is_any() && !self.on.filters {
            return Err(Unsteerable::Taken);
        }
        self.device.steer(&self.on, rules)?;
        self.on.rules = rules.clone();
        Ok(())
    }
    fn rules(&self) -> Rules {
        self.on.rules.clone()
    }
    fn filtered_by(&self) -> Option<Filtering> {
        if self.on.filters { self.device.filtered_by() } else { None }
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.on.port, queue)?;
        self.device.receive_queue(&self.on, queue)
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.on.port, queue)?;
        self.device.transmit_queue(&self.on, queue)
    }
}
