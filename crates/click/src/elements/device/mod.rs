//! Devices: packets come from the graph's ports and go to them.

mod kernel;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::notifier::Signal;
use crate::packet::{Annotated, Kind};
use crate::router::{At, Setup};
use crate::value::{Ether, Prefix, Raw, Word};
use kernel::Kernel;

const CLASSES: &[Class] = &[
    Class::new("FromDevice", from_device).ports("0/1-2").processing("h/h").flow("x/y"),
    Class::new("PollDevice", from_device).ports("0/1-2").processing("h/h").flow("x/y"),
    Class::new("FromHost", from_device).ports("0/1").processing("h/h").flow("x/y"),
    Class::new("ToDevice", to_device).ports("1/0-2").processing("a/h").flow("x/y"),
    Class::new("ToHost", to_device).ports("1/0-2").processing("a/h").flow("x/y"),
    Class::new("ToHostSniffers", to_host_sniffers).ports("1/0-1").flow("x/y"),
    Class::new("KernelTun", kernel_tun).ports("0-1/1-2").processing("a/h").flow("x/y"),
    Class::new("KernelTap", kernel_tap).ports("0-1/1-2").processing("a/h").flow("x/y"),
];

pub(super) const FAMILIES: &[&[Class]] = &[CLASSES];

/// The input that the graph brings a device's packets to, which no packet of the configuration comes to.
pub(crate) const INLET: usize = usize::MAX;

/// Keywords of Click's that choose how a device is opened: the graph's port has been opened already.
const OPENED_ALREADY: &[&str] = &[
    "SNIFFER",
    "PROMISC",
    "SNAPLEN",
    "METHOD",
    "CAPTURE",
    "OUTBOUND",
    "HEADROOM",
    "ENCAP",
    "BPF_FILTER",
    "PROTOCOL",
    "FULL_SNIFFER",
    "DEBUG",
    "ALLOW_NONEXISTENT",
    "QUIET",
    "TIMESTAMP",
    "QUEUE",
    "MTU",
    "GATEWAY",
    "ETHER",
];

/// `FromDevice(NAME [, BURST b, FORCE_IP f])`: packets that a port received. Also `PollDevice` and `FromHost`.
pub(crate) struct FromDevice {
    /// The device's name.
    pub(crate) name: String,
    count: Cell<u64>,
    bytes: Cell<u64>,
    /// The way back, of `KernelTun` and `KernelTap`.
    kernel: Option<Kernel>,
}

fn ignore(arguments: &mut Arguments<'_>) {
    for keyword in OPENED_ALREADY {
        let _: Option<Raw> = arguments.keyword(keyword);
    }
}

fn opened(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<String> {
    let name: Option<Word> = arguments.required("DEVNAME");
    ignore(arguments);
    need_devices(arguments, setup);
    name.map(|Word(name)| name)
}

fn need_devices(arguments: &mut Arguments<'_>, setup: &Setup<'_>) {
    if !setup.at.capabilities().devices {
        let class = setup.at.class();
        arguments.error(&format!("{class}: this configuration has no devices here (capability devices)"));
    }
}

fn from_device(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let name = opened(arguments, setup);
    let _: Option<u32> = arguments.keyword("BURST");
    let _: Option<bool> = arguments.keyword("FORCE_IP");
    arguments.complete()?;
    Some(Rc::new(FromDevice { name: name?, count: Cell::default(), bytes: Cell::default(), kernel: None }))
}

fn kernel_tun(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    kernel_device(arguments, setup, false)
}

fn kernel_tap(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    kernel_device(arguments, setup, true)
}

/// `KernelTun(ADDR/MASK [, GATEWAY, DEVNAME, ETHER, MTU, BURST])`: IP packets from and to a device of the machine.
///
/// `KernelTap`: the same with Ethernet headers. The graph has made the device and given it its address: `DEVNAME`
/// names it, and is the element's own name where it is missing.
fn kernel_device(arguments: &mut Arguments<'_>, setup: &Setup<'_>, is_tap: bool) -> Option<Rc<dyn Element>> {
    let prefix: Option<Prefix> = arguments.required("ADDR");
    let gateway: Option<Ipv4Addr> = arguments.positional("GATEWAY");
    let is_tap = arguments.keyword("TAP").unwrap_or(is_tap);
    let _: Option<u32> = arguments.keyword("HEADROOM");
    let burst: i32 = arguments.keyword("BURST").unwrap_or(1);
    let address: Option<Ether> = arguments.keyword("ETHER");
    let _: Option<bool> = arguments.keyword("IGNORE_QUEUE_OVERFLOWS");
    let mtu: u32 = arguments.keyword("MTU").unwrap_or(1500);
    let old: Option<Word> = arguments.deprecated("DEV_NAME");
    let name: Option<Word> = arguments.keyword("DEVNAME");
    need_devices(arguments, setup);
    arguments.complete()?;
    let prefix = prefix?;
    if gateway.is_some_and(|gateway| !gateway.is_unspecified() && !prefix.contains(gateway)) {
        arguments.error("bad GATEWAY");
        return None;
    }
    if burst < 1 {
        arguments.error("BURST must be >= 1");
        return None;
    }
    let name = name.or(old).map_or_else(|| setup.at.name().to_owned(), |Word(name)| name);
    let kernel = (setup.inputs() > 0).then(|| setup.at.router.device(&name));
    let kernel = Kernel {
        device: kernel.unwrap_or(usize::MAX),
        is_tap,
        address: address.unwrap_or(kernel::ADDRESS),
        mtu: mtu as usize,
        burst: burst.unsigned_abs().max(kernel::BURST),
        signal: RefCell::default(),
    };
    let from = FromDevice { name, count: Cell::default(), bytes: Cell::default(), kernel: Some(kernel) };
    Some(Rc::new(from))
}

/// `ToHostSniffers([DEVNAME])`: ends packets, as for programs that only look at them: there are none in the graph.
struct ToHostSniffers;

fn to_host_sniffers(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let _: Option<Word> = arguments.positional("DEVNAME");
    for keyword in ["TYPE", "SNIFFERS", "GATEWAY", "ALLOW_NONEXISTENT", "QUIET"] {
        let _: Option<Raw> = arguments.keyword(keyword);
    }
    arguments.complete()?;
    Some(Rc::new(ToHostSniffers))
}

impl Element for ToHostSniffers {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if at.input_is_pull(0) {
            at.schedule(0);
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        at.drop_packet(packet, DropReason::LocalDelivery);
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        at.schedule(0);
        let packet = at.pull(0);
        let worked = packet.is_some();
        if let Some(packet) = packet {
            self.push(at, 0, packet);
        }
        worked
    }
}

/// Notes where the MAC header is, and whom it addresses.
fn mark(packet: &mut Packet) {
    packet.set_mac_place(Some(0));
    let kind = match packet.data() {
        [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, ..] => Kind::Broadcast,
        [first, ..] if first & 1 != 0 => Kind::Multicast,
        _ => Kind::Host,
    };
    packet.set_kind(kind);
}

impl Element for FromDevice {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if let Some(kernel) = &self.kernel {
            kernel.initialize(at);
        }
        true
    }
    /// The graph brings packets in on [`INLET`].
    fn push(&self, at: At<'_>, input: usize, mut packet: Packet) {
        if input != INLET {
            match &self.kernel {
                Some(kernel) => kernel.send(at, packet),
                None => at.drop_packet(packet, DropReason::Unconnected),
            }
            return;
        }
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + packet.len() as u64);
        mark(&mut packet);
        let packet = match self.kernel.as_ref().filter(|kernel| !kernel.is_tap) {
            Some(kernel) => kernel.take(at, packet),
            None => Some(packet),
        };
        if let Some(packet) = packet {
            at.push(0, packet);
        }
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.run(at))
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        if input != INLET || self.kernel.as_ref().is_some_and(|kernel| !kernel.is_tap) {
            for packet in batch.drain() {
                self.push(at, input, packet);
            }
            return;
        }
        self.count.set(self.count.get() + batch.len() as u64);
        self.bytes.set(self.bytes.get() + batch.bytes());
        batch.each_packet(|_, packet| mark(packet));
        at.push_batch(0, batch);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        if self.kernel.is_some() {
            handlers.read("dev_name", |this: &Self, _| this.name.clone());
            handlers.task::<Self>(0);
        }
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("packets", |this: &Self, _| this.count.get());
        handlers.read("bytes", |this: &Self, _| this.bytes.get());
        handlers.button("reset_counts", |this: &Self, _| {
            this.count.set(0);
            this.bytes.set(0);
        });
    }
}

/// `ToDevice(NAME [, BURST b])`: gives packets to a port; takes them by push or pull. Also `ToHost`.
pub(crate) struct ToDevice {
    device: usize,
    burst: u32,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

fn to_device(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let name = opened(arguments, setup);
    let burst: u32 = arguments.keyword("BURST").unwrap_or(32);
    arguments.complete()?;
    let device = setup.at.router.device(&name?);
    Some(Rc::new(ToDevice {
        device,
        burst: burst.max(1),
        count: Cell::default(),
        signal: RefCell::default(),
    }))
}

impl Element for ToDevice {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        if at.input_is_pull(0) {
            *self.signal.borrow_mut() = at.upstream_empty(0, Some(0));
            at.schedule(0);
        }
        true
    }
    fn push(&self, at: At<'_>, _: usize, packet: Packet) {
        self.count.set(self.count.get() + 1);
        at.send(self.device, packet);
    }
    fn push_batch(&self, at: At<'_>, _: usize, batch: &mut Batch) {
        self.count.set(self.count.get() + batch.len() as u64);
        at.send_batch(self.device, batch);
    }
    fn run_task(&self, at: At<'_>, _: usize) -> bool {
        let mut taken = 0;
        while taken < self.burst
            && let Some(packet) = at.pull(0)
        {
            taken += 1;
            self.push(at, 0, packet);
        }
        if taken > 0 || self.signal.borrow().is_active() {
            at.schedule(0);
        }
        taken > 0
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("count", |this: &Self, _| this.count.get());
        handlers.read("packets", |this: &Self, _| this.count.get());
        handlers.button("reset_counts", |this: &Self, _| this.count.set(0));
        handlers.read("signal", |this: &Self, _| this.signal.borrow().describe());
        handlers.task::<Self>(0);
    }
}
