//! How two ends agree on regions and rings, in either role.
//!
//! The server sends HELLO and the client INIT. The client then sends its regions and rings, each of which the
//! server acknowledges, and CONNECT, which the server answers with CONNECTED.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::message::{AddRing, Hello, Init, MOST_LOG2, Message, NAME, SECRET, VERSION, padded};
use super::ring::{Buffers, Ring, ring_bytes};
use super::socket::{Channel, Received, Trouble, until};
use super::{MemifSettings, Shared};
use crate::peer::interrupt::event_of;
use crate::peer::wait;
use crate::sys::shared::SharedMemory;

/// The longest time from a connection to CONNECTED.
const PATIENCE: Duration = Duration::from_secs(5);
/// The name under which this program introduces itself.
const OURS: &[u8] = b"NetBricks";
/// The most regions of a peer.
pub(super) const MOST_REGIONS: usize = 256;
/// The most bytes of all regions of a peer.
pub(super) const MOST_MEMORY: u64 = 1 << 30;

/// A ring with its event descriptor, and with its buffers where this process made them.
pub(super) struct RingEnd {
    pub(super) ring: Ring,
    pub(super) own: Option<Buffers>,
    pub(super) event: OwnedFd,
}

/// The rings on which both ends agreed.
pub(super) struct Agreed {
    pub(super) receive: Vec<RingEnd>,
    pub(super) transmit: Vec<RingEnd>,
}

/// A conversation that has to end in time.
struct Talk<'t> {
    channel: &'t Channel,
    shared: &'t Shared,
    deadline: Instant,
}

impl<'t> Talk<'t> {
    fn new(channel: &'t Channel, shared: &'t Shared) -> Self {
        Self { channel, shared, deadline: Instant::now() + PATIENCE }
    }

    /// The next message.
    fn hear(&self) -> Result<Received, Trouble> {
        loop {
            if let Some(received) = self.channel.receive()? {
                return Ok(received);
            }
            let left = until(self.deadline);
            if left.is_zero() {
                let waited = PATIENCE.as_secs();
                return Err(Trouble::fault(format!(
                    "the peer did not finish the handshake within {waited} s"
                )));
            }
            let [_, woken] = wait([self.channel.as_fd(), self.shared.wake.as_fd()], left);
            if woken {
                self.shared.hear();
            }
            if self.shared.is_stopped() {
                return Err(Trouble::Stopped);
            }
        }
    }
    fn say(&self, message: &Message) -> Result<(), Trouble> {
        self.channel.send(message, None)
    }
    /// Sends a message, and waits until the peer has accepted it.
    fn ask(&self, message: &Message, file: Option<&OwnedFd>) -> Result<(), Trouble> {
        self.channel.send(message, file.map(AsFd::as_fd))?;
        match self.hear()? {
            (Message::Ack, _) => Ok(()),
            (other, _) => Err(unexpected("ACK", &other)),
        }
    }
}

fn unexpected(expected: &str, found: &Message) -> Trouble {
    Trouble::fault(format!("expected {expected} from the peer, got {}", found.type_name()))
}

fn secret(settings: &MemifSettings) -> [u8; SECRET] {
    padded(settings.secret.as_deref().unwrap_or_default().as_bytes(), SECRET)
}

/// Whether two secrets are equal, in a time that does not depend on where they differ.
fn same(ours: &[u8; SECRET], theirs: &[u8; SECRET]) -> bool {
    ours.iter().zip(theirs).fold(0, |differ, (ours, theirs)| differ | (ours ^ theirs)) == 0
}

/// Agrees with a peer that has connected to this server.
pub(super) fn serve(channel: &Channel, shared: &Shared) -> Result<Agreed, Trouble> {
    let settings = &shared.settings;
    let talk = Talk::new(channel, shared);
    let last_ring = (settings.queues - 1) as u16;
    talk.say(&Message::Hello(Hello {
        name: padded(OURS, NAME),
        min_version: VERSION,
        max_version: VERSION,
        max_region: (MOST_REGIONS - 1) as u16,
        max_m2s_ring: last_ring,
        max_s2m_ring: last_ring,
        max_log2_ring_size: settings.log2(),
    }))?;
    match talk.hear()? {
        (Message::Init(init), _) => check_init(&init, settings).map_err(Trouble::Fault)?,
        (other, _) => return Err(unexpected("INIT", &other)),
    }
    talk.say(&Message::Ack)?;
    let mut offer = Offer::default();
    loop {
        match talk.hear()? {
            (Message::AddRegion { index, size }, file) => {
                offer.add_region(index, size, file).map_err(|problem| {
                    Trouble::Fault(format!("region {index} of the peer cannot be used: {problem}"))
                })?;
            }
            (Message::AddRing(ring), event) => {
                offer.add_ring(ring, event, settings).map_err(|problem| {
                    let direction = if ring.to_server { "to" } else { "from" };
                    Trouble::Fault(format!(
                        "ring {} {direction} this server cannot be used: {problem}",
                        ring.index
                    ))
                })?;
            }
            (Message::Connect { .. }, _) => break,
            (other, _) => return Err(unexpected("ADD_REGION, ADD_RING or CONNECT", &other)),
        }
        talk.say(&Message::Ack)?;
    }
    let agreed = offer.finish(settings).map_err(Trouble::Fault)?;
    talk.say(&Message::Connected { name: padded(shared.name.as_bytes(), NAME - 1) })?;
    Ok(agreed)
}

fn check_init(init: &Init, settings: &MemifSettings) -> Result<(), String> {
    if init.version != VERSION {
        return Err(format!(
            "the peer speaks version {:#06x} of memif, and {VERSION:#06x} is needed",
            init.version
        ));
    }
    if init.id != settings.id {
        return Err(format!("the peer wants interface {}, and this port has `id` {}", init.id, settings.id));
    }
    if init.mode != 0 {
        return Err(format!("the peer wants mode {}, and only Ethernet (0) is there", init.mode));
    }
    if !same(&secret(settings), &init.secret) {
        return Err("the peer's secret is another one than `secret`".into());
    }
    Ok(())
}

/// The regions and rings of a client so far.
#[derive(Default)]
struct Offer {
    regions: Vec<SharedMemory>,
    memory: u64,
    to_server: Vec<(AddRing, OwnedFd)>,
    from_server: Vec<(AddRing, OwnedFd)>,
}

impl Offer {
    fn add_region(&mut self, index: u16, size: u64, file: Option<OwnedFd>) -> Result<(), String> {
        let next = self.regions.len();
        if usize::from(index) != next || next >= MOST_REGIONS {
            return Err(format!("regions come in order, at most {MOST_REGIONS}: {next} was next"));
        }
        let file = file.ok_or("its file did not come with the message")?;
        let memory = self.memory.saturating_add(size);
        if memory > MOST_MEMORY {
            return Err(format!(
                "a peer may share {} MiB, and its regions have {memory} bytes: take fewer or smaller rings and buffers",
                MOST_MEMORY >> 20
            ));
        }
        self.regions.push(SharedMemory::accept(file.as_fd(), size)?);
        self.memory = memory;
        Ok(())
    }

    fn add_ring(
        &mut self,
        ring: AddRing,
        event: Option<OwnedFd>,
        settings: &MemifSettings,
    ) -> Result<(), String> {
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.from_server };
        let next = rings.len();
        if usize::from(ring.index) != next || next >= settings.queues {
            return Err(format!(
                "rings of a direction come in order, at most `queues` ({}): {next} was next",
                settings.queues
            ));
        }
        if ring.log2_size > settings.log2() {
            return Err(format!(
                "it has 2^{} descriptors, and `ring_size` is {}",
                ring.log2_size, settings.ring_size
            ));
        }
        if ring.private_header != 0 {
            return Err(format!("its packets have a private header of {} bytes", ring.private_header));
        }
        let event = event.ok_or("its event descriptor did not come with the message")?;
        rings.push((ring, event_of(event)?));
        Ok(())
    }

    fn finish(self, settings: &MemifSettings) -> Result<Agreed, String> {
        let wanted = settings.queues;
        let (to_server, from_server) = (self.to_server.len(), self.from_server.len());
        if to_server == 0 || from_server != wanted {
            return Err(format!(
                "this port needs a ring at least to this server and {wanted} from it (`queues`), and the peer has {to_server} and {from_server}"
            ));
        }
        let regions = Arc::new(self.regions);
        let end = |(ring, event): (AddRing, OwnedFd)| {
            let AddRing { index, region, offset, log2_size, .. } = ring;
            let made = Ring::new(Arc::clone(&regions), region, offset, log2_size)
                .ok_or_else(|| format!("ring {index} is not inside region {region}, or misaligned"))?;
            if !made.has_cookie() {
                return Err(format!("ring {index} does not begin with memif's cookie"));
            }
            Ok(RingEnd { ring: made, own: None, event })
        };
        Ok(Agreed {
            receive: self.to_server.into_iter().map(end).collect::<Result<_, String>>()?,
            transmit: self.from_server.into_iter().map(end).collect::<Result<_, String>>()?,
        })
    }
}

/// Agrees with the server to which this client has connected.
pub(super) fn join(channel: &Channel, shared: &Shared) -> Result<Agreed, Trouble> {
    let settings = &shared.settings;
    let talk = Talk::new(channel, shared);
    let hello = match talk.hear()? {
        (Message::Hello(hello), _) => hello,
        (other, _) => return Err(unexpected("HELLO", &other)),
    };
    let log2 = check_hello(&hello, settings).map_err(Trouble::Fault)?;
    let name = padded(OURS, NAME);
    let (id, secret) = (settings.id, secret(settings));
    talk.ask(&Message::Init(Init { version: VERSION, id, mode: 0, secret, name }), None)?;
    let layout = Layout { queues: settings.queues, size: 1 << log2, buffer: settings.buffer_size };
    let failed = Trouble::failed("making the memory of the rings");
    let (memory, file) = SharedMemory::create("memif", layout.bytes()).map_err(&failed)?;
    talk.ask(&Message::AddRegion { index: 0, size: memory.len() as u64 }, Some(&file))?;
    let regions = Arc::new(vec![memory]);
    let mut agreed = Agreed { receive: Vec::new(), transmit: Vec::new() };
    for number in 0..2 * layout.queues {
        let to_server = number < layout.queues;
        let offset = layout.ring(number) as u32;
        let ring = Ring::new(Arc::clone(&regions), 0, offset, log2)
            .ok_or_else(|| Trouble::fault("a ring is outside of the region that was made for it"))?;
        ring.begin();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed(error.into()))?;
        let index = (number % layout.queues) as u16;
        let add = AddRing { to_server, index, region: 0, offset, log2_size: log2, private_header: 0 };
        talk.ask(&Message::AddRing(add), Some(&event))?;
        let own = Some(Buffers { first: layout.buffers(number), size: layout.buffer });
        let rings = if to_server { &mut agreed.transmit } else { &mut agreed.receive };
        rings.push(RingEnd { ring, own, event });
    }
    talk.say(&Message::Connect { name: padded(shared.name.as_bytes(), NAME - 1) })?;
    match talk.hear()? {
        (Message::Connected { .. }, _) => Ok(agreed),
        (other, _) => Err(unexpected("CONNECTED", &other)),
    }
}

/// The binary logarithm of the rings' size, if the server takes this port's rings.
fn check_hello(hello: &Hello, settings: &MemifSettings) -> Result<u8, String> {
    let (min, max) = (hello.min_version, hello.max_version);
    if !(min..=max).contains(&VERSION) {
        return Err(format!(
            "the server speaks versions {min:#06x} to {max:#06x} of memif, and {VERSION:#06x} is needed"
        ));
    }
    let most = usize::from(hello.max_s2m_ring.min(hello.max_m2s_ring)) + 1;
    if settings.queues > most {
        return Err(format!(
            "the server takes {most} rings a direction, and `queues` is {}",
            settings.queues
        ));
    }
    Ok(settings.log2().min(hello.max_log2_ring_size).min(MOST_LOG2))
}

/// The places in a client's region: the rings, then the buffers of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Rings of each direction. Those to the server come first.
    pub(super) queues: usize,
    /// Descriptors of a ring.
    pub(super) size: usize,
    /// Bytes of a buffer.
    pub(super) buffer: usize,
}

impl Layout {
    fn ring(&self, number: usize) -> usize {
        // Cache lines of one ring are not those of another.
        number * ring_bytes(self.size).next_multiple_of(64)
    }
    fn buffers(&self, number: usize) -> usize {
        self.ring(2 * self.queues).next_multiple_of(4096) + number * self.size * self.buffer
    }
    /// The size of the region.
    pub(super) fn bytes(&self) -> usize {
        self.buffers(2 * self.queues)
    }
}
