//! `af_xdp`: an interface of the host through AF_XDP sockets over the pool's own frames.
//!
//! This is the fastest way in and out of Linux that leaves the device to Linux. A small program at the
//! interface decides which packets are ours and which are the host's (`steering`, over `assembler`). Our
//! packets go to one socket for each device queue, all of them over one UMEM (`queue`). The program is
//! attached by a link that ends with the process. Packets in several buffers are joined in a large frame and
//! counted. Offloads (partial checksums, segmentation) are not supported in either direction.

mod assembler;
mod card;
mod choice;
mod queue;
mod steering;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use netbricks_buffer::{Batch, Pool};
use netbricks_core::units::Duration;
use netbricks_core::{InvalidSetting, Settings};

use self::card::Card;
use self::queue::{Arrivals, Receiver, Sender};
use self::steering::{Action, Steering, Traffic};
use crate::device::{self, Device, DevicePort, InUse, Opening, check_queues, promiscuous};
use crate::driver::{Demands, OpenContext, PortDriver, QueueDivision};
use crate::interface::{HEADER, Interface, refused, unusable};
use crate::port::{Capabilities, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::privileges::{Capability, Needs};
use crate::returning::Wanted;
use crate::steer::{FilterSupport, Filtering, Fixed, Rules, Unsteerable};
use crate::sys::bpf;
use crate::sys::packet::PacketSocket;
use crate::sys::xdp::{self, Bind, ReceiveRing, Socket, TransmitRing};

const DRIVER: &str = "af_xdp";
/// The mechanism that applies filters of the graph.
const MAPS: &str = "XDP maps";
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// The problem of zero copy if the program does not run in the driver.
const BEHIND_DRIVER: &str = "\"zero-copy\" needs `attach = \"native\"`: the generic mode always copies";
/// The capabilities that this driver needs, in addition to memory that the process may lock.
const CAPABILITIES: &[Capability] = &[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf];
/// The fewest frames for arrivals with which a port opens, and those for each socket of a device queue.
const FEWEST: usize = 64;
const FEWEST_EACH: usize = 8;
/// The reason why a port in generic mode has no filters of the graph.
const RACES: &str = "none, as before Linux 6.15 sockets of one device queue race in the generic mode of XDP";
/// The kernel from which on they do not.
const WITHOUT_RACE: (u32, u32) = (6, 15);

/// The driver `af_xdp`.
pub(crate) struct AfXdpDriver;

impl PortDriver for AfXdpDriver {
    type Settings = AfXdpSettings;
    const NAME: &'static str = DRIVER;
    const SUMMARY: &'static str =
        "A network interface of the host through AF_XDP: the fastest, without the interface's offloads.";
    const DEVICE_FRAMES: bool = true;
    const DIVISION: QueueDivision = QueueDivision::Asymmetric;
    const FIXED: Option<Fixed> = Some(Fixed::NetworkCard);
    const FILTERS: Option<FilterSupport> = Some(FilterSupport { by: MAPS, limits: choice::LIMITS });

    fn open(
        &self,
        name: &str,
        settings: &AfXdpSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        let own = settings.clone();
        device::open(name, &settings.device, cx, Wanted::Up, move |opening| open_device(opening, &own))
    }

    fn lacks(&self, port: &str, settings: &AfXdpSettings, demands: &Demands) -> Vec<PortError> {
        Interface::lacks(port, &settings.device, |interface| {
            let has = interface.receive_queues();
            // With filters of the graph, each device queue has a socket for each receive queue.
            let wanted = settings.queues.filter(|wanted| *wanted > has && !demands.filters);
            let queues = wanted.map(|wanted| PortError::Setting {
                port: port.into(),
                key: "queues",
                problem: format!(
                    "asks for {wanted}, and {} has {has}: there will be no more",
                    settings.device
                ),
            });
            let unfinished = unfinished_checksums(interface);
            let unfinished = unfinished.map(|problem| unusable(port, &settings.device, &problem));
            queues.into_iter().chain(unfinished).chain(interface.needs_ethernet(port).err()).collect()
        })
    }

    /// Jumbo frames arrive in several frames of the pool and are joined in one.
    fn brings_large_packets(&self, settings: &AfXdpSettings, small: usize) -> bool {
        let mtu = Interface::find("", &settings.device).and_then(|interface| {
            interface.mtu().map_err(|error| refused("", "asking for the MTU", "CAP_NET_RAW", error))
        });
        mtu.is_ok_and(|mtu| mtu + HEADER > small)
    }

    fn receive_queues(&self, settings: &AfXdpSettings, wanted: usize) -> usize {
        settings.queues.unwrap_or(wanted)
    }
}

/// The problem of an interface whose packets may arrive with unfinished checksums, which their sender left to
/// a device.
fn unfinished_checksums(interface: &Interface) -> Option<String> {
    (interface.driver() == "veth").then(|| {
        "is a veth: its other end leaves checksums unfinished, which AF_XDP cannot see or carry, and receivers drop such \
         packets, all of TCP among them; switch that off there with `ethtool -K DEVICE tx off`"
            .into()
    })
}

/// Copying or zero copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    #[default]
    Auto,
    ZeroCopy,
    Copy,
}

/// The place where the program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attach {
    #[default]
    Auto,
    Native,
    Generic,
}

netbricks_core::settings! {
    /// The settings of an `af_xdp` port.
    #[derive(Clone, Debug)]
    pub(crate) struct AfXdpSettings {
        /// The network interface.
        device: String = required, "text";
        /// Queues for workers; the device's queues, each with its own socket, are shared out among them.
        queues: Option<usize> = unset "one a worker", "whole number";
        /// Whether the device works on packets in place or the kernel copies them.
        ///
        /// auto takes zero copy where the driver offers it.
        mode: Mode = "auto", "\"auto\", \"zero-copy\" or \"copy\"";
        /// Whether the steering program runs in the driver or behind it; auto takes the driver where it can.
        attach: Attach = "auto", "\"auto\", \"native\" or \"generic\"";
        /// Packets that each ring of a socket holds; no more than a quarter of the pool's frames wait for arrivals.
        ring: u32 = 2048, "whole number, a power of two from 64 to 32768";
        /// Traffic that is left to the host's stack; the most specific name decides.
        kernel: Vec<String> = [],
            "list of traffic: \"arp\", \"ipv6\", \"icmp\", \"tcp/22\", \"protocol/89\", \"ethertype/0x88cc\"";
        /// Take only this, and leave the rest to the host's stack; empty takes everything.
        only: Vec<String> = [], "list of traffic, as `kernel`";
        /// Have the receiving worker poll the driver, for up to this time in each call, instead of
        /// interrupts.
        busy_poll: Option<Duration> = unset, "time, up to 1 ms";
        /// Take packets to any MAC address, for as long as the port is open.
        promiscuous: bool = true, "true or false";
    }
}

impl Settings for AfXdpSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem| Err(InvalidSetting { key, problem });
        if !self.ring.is_power_of_two() || !(64..=32_768).contains(&self.ring) {
            return refuse("ring", format!("must be a power of two from 64 to 32768, found {}", self.ring));
        }
        check_queues(self.queues)?;
        if self.mode == Mode::ZeroCopy && self.attach == Attach::Generic {
            return refuse("mode", BEHIND_DRIVER.into());
        }
        if self.busy_poll.is_some_and(|time| !(1_000..=1_000_000).contains(&time.nanoseconds())) {
            return refuse("busy_poll", "must be 1 us to 1 ms".into());
        }
        for (key, list) in [("kernel", &self.kernel), ("only", &self.only)] {
            if list.len() > 256 {
                return refuse(key, format!("must have at most 256 names, found {}", list.len()));
            }
            for name in list {
                if let Err(unknown) = name.parse::<Traffic>() {
                    return refuse(key, unknown.to_string());
                }
            }
        }
        Ok(())
    }
}

/// Open sockets, by their pool's memory: a new socket joins the UMEM of one of them.
static SOCKETS: Mutex<Vec<(usize, Weak<Socket>)>> = Mutex::new(Vec::new());

fn memory_of(pool: &Pool) -> usize {
    pool.region().base.as_ptr().addr()
}

/// A socket over this pool's UMEM that is in the given mode.
fn sibling(pool: &Pool, zero_copy: bool) -> Option<Arc<Socket>> {
    let mut sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.retain(|(_, socket)| socket.strong_count() > 0);
    let memory = memory_of(pool);
    sockets
        .iter()
        .filter(|(of, _)| *of == memory)
        .filter_map(|(_, socket)| socket.upgrade())
        .find(|socket| socket.is_zero_copy() == zero_copy)
}

fn announce(pool: &Pool, socket: &Arc<Socket>) {
    let mut sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    sockets.push((memory_of(pool), Arc::downgrade(socket)));
}

/// A bound socket; `fragments` says whether it takes packets in several frames.
struct Bound {
    receive: ReceiveRing,
    transmit: TransmitRing,
    fragments: bool,
}

/// Opens a socket on a device's queue in the best way that the mode allows.
///
/// All sockets of a UMEM have the same driver mode, so a pool has at most one UMEM a mode.
fn bind(
    pool: &Pool,
    (ring, arrivals): (u32, u32),
    mode: Mode,
    (index, queue): (u32, u32),
    fragments: bool,
) -> io::Result<Bound> {
    let modes: &[bool] = match mode {
        Mode::Auto => &[true, false],
        Mode::ZeroCopy => &[true],
        Mode::Copy => &[false],
    };
    let mut failure = None;
    for zero_copy in modes {
        let shared = sibling(pool, *zero_copy);
        // Over a sibling's UMEM, the sibling's flags are valid, and the kernel accepts no others.
        for (sibling, fragments) in [(shared.as_deref(), fragments), (None, fragments), (None, false)] {
            if sibling.is_none() && shared.is_some() && mode != Mode::Auto && failure.is_none() {
                continue;
            }
            let bind = Bind { index, queue, zero_copy: Some(*zero_copy), fragments, arrivals };
            match xdp::open(pool, ring, &bind, sibling) {
                Ok((receive, transmit)) => {
                    announce(pool, receive.socket());
                    return Ok(Bound { receive, transmit, fragments });
                }
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::ENOBUFS)) =>
                {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("no mode to try")))
}

/// The program attached to an interface.
struct Attached {
    steering: Steering,
    _link: bpf::Link,
    native: bool,
    fragments: bool,
}

/// Loads the program and attaches it, in the driver if possible.
fn attach(
    name: &str,
    interface: &Interface,
    settings: &AfXdpSettings,
    (queues, each): (u32, Option<u32>),
    needs: &Needs,
) -> Result<Attached, PortError> {
    let device = interface.name();
    let places: &[bool] = match settings.attach {
        Attach::Auto => &[true, false],
        Attach::Native => &[true],
        Attach::Generic => &[false],
    };
    let mut failure = None;
    for native in places {
        for fragments in [true, false] {
            let mut steering = Steering::load(queues, each, fragments)
                .map_err(|error| needs.refused(name, "loading the steering program", error))?;
            steer(&mut steering, settings)
                .map_err(|error| needs.refused(name, "setting the steering rules", error))?;
            let flags = if *native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
            match steering.program().attach_xdp(interface.index(), flags) {
                Ok(link) => return Ok(Attached { steering, _link: link, native: *native, fragments }),
                Err(error) => {
                    let final_word =
                        matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::ENODEV));
                    failure = Some(error);
                    if final_word {
                        break;
                    }
                }
            }
        }
    }
    let error = failure.unwrap_or_else(|| io::Error::other("nowhere to attach it"));
    let place = if settings.attach == Attach::Native { " in the driver" } else { "" };
    let hint = match error.raw_os_error() {
        Some(libc::EBUSY) => format!(" (there is one already: see `ip link show {device}`, `bpftool net`)"),
        Some(libc::ERANGE) => format!(
            " (its MTU, or its peer's, is too large for XDP: lower it with `ip link set {device} mtu 1500`)"
        ),
        Some(libc::ENOSPC) => format!(
            " (it has fewer receive queues than its peer has transmit queues: see `ethtool -L {device}`)"
        ),
        _ => String::new(),
    };
    let action = format!("attaching an XDP program to {device}{place}{hint}");
    Err(needs.refused(name, &action, error))
}

fn steer(steering: &mut Steering, settings: &AfXdpSettings) -> io::Result<()> {
    // Names were checked with the settings.
    let traffic =
        |list: &[String]| list.iter().filter_map(|name| name.parse().ok()).collect::<Vec<Traffic>>();
    for only in traffic(&settings.only) {
        steering.set(only, Some(Action::Redirect))?;
    }
    for left in traffic(&settings.kernel) {
        steering.set(left, Some(Action::Kernel))?;
    }
    let default = if settings.only.is_empty() { Action::Redirect } else { Action::Kernel };
    steering.set_default(default)
}

/// A socket, the queue for which its arrivals count, and its missed packets at the last call.
struct Watched {
    socket: Arc<Socket>,
    queue: usize,
    missed: AtomicU64,
}

/// The sockets of an open interface.
struct AfXdp {
    // Dropped before the sockets: later arrivals are the host's.
    attached: Attached,
    /// Whether each device queue has a socket for each receive queue, among which maps choose.
    by_maps: bool,
    /// The network card, where it has the filters of the graph too.
    card: Option<Card>,
    /// The reason why the card has not the filters, where that was asked.
    without_card: Option<String>,
    receivers: Vec<Option<Receiver>>,
    senders: Vec<Option<Sender>>,
    sockets: Vec<Watched>,
    _membership: Option<PacketSocket>,
}

fn open_device(opening: &Opening<'_>, settings: &AfXdpSettings) -> Result<DevicePort<AfXdp>, PortError> {
    let Opening { port: name, device, cx, .. } = *opening;
    let interface = Interface::find(name, device)?;
    interface.needs_ethernet(name)?;
    let needs = &Needs { capabilities: CAPABILITIES, locked: cx.pool.region().len as u64 };
    needs.raise_limit();
    let raw = |action: String| move |error| needs.refused(name, &action, error);
    let mtu = interface.mtu().map_err(raw(format!("asking for the MTU of {device}")))?;
    let device_queues = interface.receive_queues().min(1024);
    let (attached, each, queues) = attach_sockets(opening, &interface, settings, device_queues, needs)?;
    let by_maps = each.is_some();
    let (card, without_card) = if by_maps { card_of(device, device_queues, queues) } else { (None, None) };
    if queues > device_queues && !by_maps {
        return Err(PortError::Setting {
            port: name.into(),
            key: "device",
            problem: format!("{device} had {queues} queues, and has {device_queues} now"),
        });
    }
    let each = each.unwrap_or(1);
    let target = frames_of_queue(opening, settings, device_queues, each)?;
    let membership = settings
        .promiscuous
        .then(|| promiscuous(&interface, |action, error| needs.refused(name, action, error)));
    let membership = membership.transpose()?;
    // A full ring of one queue leaves frames for the others.
    let ring = (settings.ring, arrivals_ring(settings.ring, target, each));
    let mode = if attached.native { settings.mode } else { mode_behind_driver(name, settings.mode)? };

    let counters = opening.counters(queues);
    let mut arrivals: Vec<Vec<Arrivals>> = (0..queues).map(|_| Vec::new()).collect();
    let mut senders = Vec::with_capacity(queues);
    let mut sockets = Vec::with_capacity(device_queues);
    let mut scratch = Batch::new();
    let mut fragments = attached.fragments;
    for queue in 0..device_queues {
        let place = (interface.index(), queue as u32);
        let mut bound = bind(&cx.pool, ring, mode, place, attached.fragments)
            .map_err(|error| refused_bind(name, device, queue, settings, needs, error))?;
        fragments &= bound.fragments;
        let socket = Arc::clone(bound.receive.socket());
        let polled = |socket: &Arc<Socket>| {
            let Some(time) = settings.busy_poll else { return Ok(()) };
            let microseconds = (time.nanoseconds() / 1_000) as u32;
            xdp::prefer_busy_poll(socket, microseconds, netbricks_buffer::BATCH as u32)
                .map_err(|error| needs.refused(name, "asking for busy polling", error))
        };
        polled(&socket)?;
        let entered = |queue: usize, number: usize, socket: &Arc<Socket>| {
            let entered = attached.steering.enter(queue as u32, number as u32, socket.as_fd().as_raw_fd());
            entered.map_err(|error| {
                needs.refused(name, "entering a socket into the steering program's map", error)
            })
        };
        let others = open_others(&mut bound, &cx.pool, (each, place, ring.1));
        let others = others.map_err(raw(format!("opening another socket on queue {queue} of {device}")))?;
        let mut arriving = Arrivals::new(bound.receive, target, each, settings.busy_poll.is_some());
        arriving.stock_alone(&mut scratch);
        let own = if by_maps { 0 } else { queue % queues };
        entered(queue, 0, &socket)?;
        arrivals[own].push(arriving);
        if let Some(counters) = counters.get(queue) {
            senders.push(Some(Sender::new(bound.transmit, bound.fragments, Arc::clone(counters))));
        }
        sockets.push(Watched { socket, queue: own, missed: AtomicU64::new(0) });
        for (number, other) in (1..).zip(others) {
            let socket = Arc::clone(other.socket());
            polled(&socket)?;
            entered(queue, number, &socket)?;
            arrivals[number].push(Arrivals::new(other, target, each, settings.busy_poll.is_some()));
            sockets.push(Watched { socket, queue: number, missed: AtomicU64::new(0) });
        }
    }
    let mut receivers = Vec::with_capacity(queues);
    for (queue, arrivals) in arrivals.into_iter().enumerate() {
        receivers.push(Some(Receiver::new(arrivals, Batch::new(), Arc::clone(&counters[queue]))));
    }

    let mut warnings: Vec<String> = interface.host_stack().is_cut_off().into_iter().collect();
    warnings.extend(unfinished_checksums(&interface).map(|problem| format!("{device} {problem}")));
    if !attached.native && settings.attach == Attach::Auto {
        warnings.push(format!("{device}'s driver cannot run XDP programs: the generic mode is slower"));
    }
    let small = cx.pool.small_packet();
    if !fragments && mtu + HEADER > small {
        warnings.push(format!(
            "{device} takes no packets in several buffers, and a frame of the pool holds {small} bytes: larger ones are dropped by the kernel; its MTU is {mtu}"
        ));
    }
    let sockets =
        AfXdp { attached, by_maps, card, without_card, receivers, senders, sockets, _membership: membership };
    Ok(DevicePort::new(opening, (interface, mtu), counters, warnings, sockets))
}

/// The network card, if it can have the filters of the graph, too; otherwise why not.
///
/// Such a card brings the packets of a worker by the queue of the same number, whose socket for that worker gets them.
fn card_of(device: &str, has: usize, queues: usize) -> (Option<Card>, Option<String>) {
    if has < queues.max(2) {
        return (None, Some(format!("{device} has {has} receive queues for {queues}")));
    }
    match Card::of(device) {
        Ok(card) => (Some(card), None),
        Err(why) => (None, Some(why)),
    }
}

/// Attaches the program, which chooses among the sockets of a device queue by filters of the graph, if it can.
///
/// Answers the number of these sockets, and of the receive queues.
///
/// Before Linux 6.15, in generic mode, two sockets of a device queue take frames from its fill ring at the same time, and may
/// get the same one. Then there is one socket, and the graph alone divides the packets.
fn attach_sockets(
    opening: &Opening<'_>,
    interface: &Interface,
    settings: &AfXdpSettings,
    device_queues: usize,
    needs: &Needs,
) -> Result<(Attached, Option<usize>, usize), PortError> {
    let attach = |each: Option<usize>| {
        let sockets = (device_queues as u32, each.map(|each| each as u32));
        attach(opening.port, interface, settings, sockets, needs)
    };
    if opening.cx.filters {
        let queues = opening.queues(settings.queues, usize::MAX);
        let attached = attach(Some(queues))?;
        if attached.native || queues == 1 || has_kernel(WITHOUT_RACE) {
            return Ok((attached, Some(queues), queues));
        }
    }
    let queues = opening.queues(settings.queues, device_queues);
    Ok((attach(None)?, None, queues))
}

/// Whether this kernel is at least of a version. One whose version is not known is not.
fn has_kernel(wanted: (u32, u32)) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_at_least(&release, wanted))
}

fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= wanted)
}

/// The fewest frames for arrivals at a device queue with this many sockets.
fn fewest_frames(sockets: usize) -> usize {
    FEWEST.max(FEWEST_EACH * (sockets + 1))
}

/// The frames of the pool that may wait for arrivals at each queue of the device.
fn frames_of_queue(
    opening: &Opening<'_>,
    settings: &AfXdpSettings,
    device_queues: usize,
    sockets: usize,
) -> Result<usize, PortError> {
    let Opening { port, device, cx, .. } = *opening;
    let refused = |key, problem| Err(PortError::Setting { port: port.into(), key, problem });
    let (found, fewest) = (cx.pool.region().frames, fewest_frames(sockets));
    let needed = 4 * device_queues * fewest;
    let of = if sockets > 1 { format!(" with {sockets} sockets each") } else { String::new() };
    if found < needed {
        return refused(
            "device",
            format!(
                "{device} has {device_queues} queues{of}, for which the pool needs at least {needed} frames, found {found}"
            ),
        );
    }
    let ring = settings.ring as usize;
    if ring < fewest {
        let least = fewest.next_power_of_two();
        return refused("ring", format!("must be at least {least} for device queues{of}, found {ring}"));
    }
    Ok(ring.min(found / (4 * device_queues)))
}

/// Opens the other sockets of a device queue, so that there are `each` in all.
fn open_others(
    bound: &mut Bound,
    pool: &Pool,
    (each, (index, queue), arrivals): (usize, (u32, u32), u32),
) -> io::Result<Vec<ReceiveRing>> {
    let bind = Bind { index, queue, zero_copy: None, fragments: bound.fragments, arrivals };
    (1..each).map(|_| bound.receive.open_beside(pool, &bind)).collect()
}

/// Packets that the ring of arrivals of each socket of a device queue holds.
///
/// Sockets that share frames have smaller rings, so that all of them together cannot hold every frame.
fn arrivals_ring(ring: u32, frames: usize, sockets: usize) -> u32 {
    if sockets <= 1 {
        return ring;
    }
    let most = (frames / (sockets + 1)).max(1);
    ring.min(1 << most.ilog2())
}

/// The mode if the program does not run in the driver: zero copy is not possible.
fn mode_behind_driver(name: &str, mode: Mode) -> Result<Mode, PortError> {
    match mode {
        Mode::ZeroCopy => {
            Err(PortError::Setting { port: name.into(), key: "mode", problem: BEHIND_DRIVER.into() })
        }
        Mode::Auto | Mode::Copy => Ok(Mode::Copy),
    }
}

fn refused_bind(
    name: &str,
    device: &str,
    queue: usize,
    settings: &AfXdpSettings,
    needs: &Needs,
    error: io::Error,
) -> PortError {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EINVAL) if settings.mode == Mode::ZeroCopy => PortError::Setting {
            port: name.into(),
            key: "mode",
            problem: format!(
                "is \"zero-copy\", which {device}'s driver does not offer ({error}): leave it out, or write \"copy\""
            ),
        },
        code => {
            let hint = match code {
                Some(libc::ENOBUFS) => {
                    " (the pool's memory may not be locked: raise `ulimit -l`, or grant CAP_IPC_LOCK)"
                }
                Some(libc::EBUSY) => " (another AF_XDP socket has this queue)",
                Some(libc::ENETDOWN) => " (the interface is down: `ip link set DEVICE up`)",
                _ => "",
            };
            let action = format!("binding an AF_XDP socket to queue {queue} of {device}{hint}");
            needs.refused(name, &action, error)
        }
    }
}

impl Device for AfXdp {
    const DRIVER: &'static str = DRIVER;

    fn capabilities(&self, _: &InUse) -> Capabilities {
        Capabilities {
            receive_queues: self.receivers.len(),
            transmit_queues: self.senders.len(),
            // It is not known how a device spreads flows over several queues. With filters, our program brings a
            // packet to the same worker whichever queue it came by, and treats both directions the same.
            symmetric_rss: self.sockets.len() == 1 || self.by_maps,
            ..Capabilities::default()
        }
    }
    fn count_missed(&self, on: &InUse) {
        for watched in &self.sockets {
            let Ok(statistics) = watched.socket.statistics() else { continue };
            let total = statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0);
            let before = watched.missed.swap(total, Ordering::Relaxed);
            on.counters[watched.queue].missed.fetch_add(total.saturating_sub(before), Ordering::Relaxed);
        }
    }
    fn filtered_by(&self) -> Option<Filtering> {
        if !self.by_maps {
            return Some(Filtering::new(RACES, 0));
        }
        let by = match (&self.card, &self.without_card) {
            (Some(_), _) => format!("{MAPS}, and the network card (ethtool -N)"),
            (None, Some(why)) => format!("{MAPS} ({why})"),
            (None, None) => MAPS.into(),
        };
        Some(Filtering::new(by, choice::LIMITS.most))
    }
    fn steer(&mut self, on: &InUse, rules: &Rules) -> Result<(), Unsteerable> {
        if !on.filters {
            return Err(Fixed::NetworkCard.into());
        }
        rules.check_number(if self.by_maps { choice::LIMITS.most } else { 0 })?;
        let action = format!("writing the filters of {} into XDP maps", on.interface.name());
        self.attached.steering.choose_by(rules).map_err(|source| Unsteerable::System { action, source })?;
        // The maps decide alone where the card cannot have the rules, as cards differ in those that they take.
        if let Err(why) = self.card.as_mut().map_or(Ok(()), |card| card.set(rules)) {
            self.card = None;
            self.without_card = Some(why);
        }
        Ok(())
    }
    fn receive_queue(&mut self, _: &InUse, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        let receiver = self.receivers[queue].take().expect("a queue that was not taken is there");
        Ok(Box::new(receiver))
    }
    fn transmit_queue(&mut self, on: &InUse, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        let queues = self.senders.len();
        let sender = self.senders.get_mut(queue).ok_or_else(|| PortError::Queue {
            port: on.port.clone(),
            direction: "transmit",
            queue,
            problem: format!("does not exist: there are {queues}"),
        })?;
        let sender = sender.take().expect("a queue that was not taken is there");
        Ok(Box::new(sender))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart() {
        for (release, is) in [
            ("6.15.0", true),
            ("6.18.44-fc", true),
            ("7.0-rc1", true),
            ("6.14.11-300.fc42", false),
            ("5.15.0-91-generic", false),
            ("6", false),
            ("unknown", false),
        ] {
            assert_eq!(is_at_least(release, WITHOUT_RACE), is, "{release}");
        }
    }

    #[test]
    fn settings_are_checked() {
        let read = |text: &str| -> Result<(), String> {
            let settings: AfXdpSettings = toml::from_str(text).map_err(|error| error.to_string())?;
            settings.check().map_err(|refused| refused.to_string())
        };
        read("device = \"eth0\"\nmode = \"zero-copy\"\nattach = \"native\"\nbusy_poll = \"20 us\"\nkernel = [\"arp\", \"tcp/22\"]")
            .unwrap();
        for (text, key) in [
            ("ring = 1000", "`ring`"),
            ("ring = 32", "`ring`"),
            ("mode = \"zero-copy\"\nattach = \"generic\"", "`mode`"),
            ("queues = 0", "`queues`"),
            ("kernel = [\"ssh\"]", "`kernel`"),
            ("only = [\"tcp/99999\"]", "`only`"),
            ("busy_poll = \"2 s\"", "`busy_poll`"),
        ] {
            let refused = read(&format!("device = \"eth0\"\n{text}")).unwrap_err();
            assert!(refused.starts_with(key), "{text}: {refused}");
        }
        assert!(read("device = \"eth0\"\nmode = \"fast\"").unwrap_err().contains("zero-copy"));
    }
}
