//! Devices: packets come from the graph's ports and go to them.

mod kernel;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::filter::Filter;

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
    Class::new("FromHost", from_host).ports("0/1").processing("h/h").flow("x/y"),
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
    "HEADROOM",
    "ENCAP",
    "FULL_SNIFFER",
    "DEBUG",
    "ALLOW_NONEXISTENT",
    "QUIET",
    "TIMESTAMP",
    "QUEUE",
    "MTU",
    "GATEWAY",
];

/// `FromDevice(NAME [, FORCE_IP f, BPF_FILTER t, PROTOCOL p])`: packets that a port received. Also `PollDevice`.
///
/// Packets that the filter `t`, in tcpdump's language, or the Ethernet type `p` does not choose end uncounted. With
/// `FORCE_IP` packets that are not IP leave by output 1, or end. `FromHost(NAME, ADDR/MASK)` takes those of the host.
pub(crate) struct FromDevice {
    /// The device's name.
    pub(crate) name: String,
    count: Cell<u64>,
    bytes: Cell<u64>,
    chosen: Chosen,
    /// The host's end of the device, where the graph has to make it.
    pub(crate) host: Option<HostDevice>,
    /// The way back, of `KernelTun` and `KernelTap`.
    kernel: Option<Kernel>,
}

/// A device that the graph makes, with the host's stack at its other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    /// The device's name.
    pub device: String,
    /// The host's address and its prefix, such as `10.0.0.1/24`.
    pub address: Option<String>,
    /// The host's Ethernet address, such as `00:01:02:03:04:05`.
    pub mac: String,
}

impl HostDevice {
    fn new(device: &str, prefix: Option<Prefix>, ether: Ether) -> Self {
        let with_length = |prefix: Prefix| Some(format!("{}/{}", prefix.address, prefix.length()?));
        let mac = ether.to_string().to_lowercase().replace('-', ":");
        Self { device: device.to_owned(), address: prefix.and_then(with_length), mac }
    }
}

/// Packets that an element lets in.
#[derive(Default)]
struct Chosen {
    filter: Option<Filter>,
    /// An Ethernet type.
    protocol: Option<u16>,
    force_ip: bool,
}

impl Chosen {
    fn read(arguments: &mut Arguments<'_>) -> Self {
        let force_ip = arguments.keyword("FORCE_IP").unwrap_or(false);
        let protocol: u16 = arguments.keyword("PROTOCOL").unwrap_or(0);
        let text: Option<String> = arguments.keyword("BPF_FILTER");
        if arguments.keyword("OUTBOUND").unwrap_or(false) {
            let port = "a port has only the packets that it received";
            arguments.error_of("OUTBOUND", &format!("{port}: take those that are sent before `ToDevice`"));
        }
        let filter = text.filter(|text| !text.trim().is_empty()).map(|text| Filter::parse(&text));
        let filter = filter.and_then(|filter| {
            filter.map_err(|error| arguments.error_of("BPF_FILTER", &error.to_string())).ok()
        });
        Self { filter, protocol: (protocol != 0).then_some(protocol), force_ip }
    }
    fn takes_all(&self) -> bool {
        self.filter.is_none() && self.protocol.is_none() && !self.force_ip
    }
    /// Whether the device hands a packet in.
    fn takes(&self, packet: &Packet) -> bool {
        let data = packet.data();
        let of_protocol = |wanted: u16| data.get(12..14) == Some(&wanted.to_be_bytes()[..]);
        self.filter.as_ref().is_none_or(|filter| filter.matches(data, data.len()))
            && self.protocol.is_none_or(of_protocol)
    }
    /// Notes the IP header of a packet. `false` where it has none.
    fn note_ip(packet: &mut Packet) -> bool {
        let data = packet.data();
        let begin = if data.get(12..14) == Some(&[0x81, 0][..]) { 18 } else { 14 };
        let kind = data.get(begin - 2..begin).unwrap_or_default();
        let header = data.get(begin..).unwrap_or_default();
        let length = match (kind, header) {
            ([0x08, 0x00], [first, _, high, low, ..]) if first >> 4 == 4 => {
                let (length, total) =
                    (usize::from(first & 15) * 4, usize::from(*high) << 8 | usize::from(*low));
                (length >= 20 && total >= length && header.len() >= length).then_some(length)
            }
            ([0x86, 0xDD], [first, ..]) if first >> 4 == 6 => (header.len() >= 40).then_some(40),
            _ => None,
        };
        if let Some(length) = length {
            packet.set_network(begin, length);
        }
        length.is_some()
    }
}

impl FromDevice {
    fn new(name: String, chosen: Chosen, host: Option<HostDevice>, kernel: Option<Kernel>) -> Self {
        Self { name, count: Cell::default(), bytes: Cell::default(), chosen, host, kernel }
    }
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
    let _: Option<Raw> = arguments.keyword("ETHER");
    let chosen = Chosen::read(arguments);
    arguments.complete()?;
    Some(Rc::new(FromDevice::new(name?, chosen, None, None)))
}

/// `FromHost(DEVNAME, ADDR/MASK [, ETHER, …])`: packets that the host sends by a device that the graph makes.
fn from_host(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let name = opened(arguments, setup);
    let prefix: Option<Prefix> = arguments.positional("DST");
    let ether: Ether = arguments.keyword("ETHER").unwrap_or(kernel::ADDRESS);
    let chosen = Chosen::read(arguments);
    arguments.complete()?;
    let name = name?;
    let host = prefix.map(|prefix| HostDevice::new(&name, Some(prefix), ether));
    Some(Rc::new(FromDevice::new(name, chosen, host, None)))
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
    let device = if setup.inputs() > 0 {
        setup.at.router.device(&name)
    } else {
        if !is_tap {
            // Without Ethernet headers, the element answers the host's questions for addresses.
            setup.at.router.answers_by(&name);
        }
        usize::MAX
    };
    let kernel = Kernel {
        device: Cell::new(device),
        is_tap,
        address: address.unwrap_or(kernel::ADDRESS),
        mtu: mtu as usize,
        burst: burst.unsigned_abs().max(kernel::BURST),
        signal: RefCell::default(),
    };
    let host = HostDevice::new(&name, Some(prefix), kernel.address);
    Some(Rc::new(FromDevice::new(name, Chosen::default(), Some(host), Some(kernel))))
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
            kernel.initialize(at, &self.name);
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
        if !self.chosen.takes(&packet) {
            at.drop_packet(packet, DropReason::Unmatched);
            return;
        }
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + packet.len() as u64);
        mark(&mut packet);
        if self.chosen.force_ip && !Chosen::note_ip(&mut packet) {
            at.push_or_drop(1, packet, DropReason::Unmatched);
            return;
        }
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
        if input != INLET
            || !self.chosen.takes_all()
            || self.kernel.as_ref().is_some_and(|kernel| !kernel.is_tap)
        {
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
            && at.may_go_on(taken)
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
