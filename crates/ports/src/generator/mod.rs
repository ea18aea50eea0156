//! Generated traffic: flows of UDP, TCP and ICMP over IPv4 and IPv6, whole TCP conversations, DNS and HTTP.
//!
//! It comes at a rate or as fast as possible. The same seed gives the same bytes at the same times, at every
//! batch size.

mod conversation;
mod flow;
mod payload;
mod settings;
mod template;

use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::tables::prefetch;
use netbricks_core::units::{Duration, Rate};
use netbricks_core::{Context, Poll};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::arrival::Arrivals;
use crate::driver::{Directions, OpenContext, PortDriver, QueueDivision};
use crate::node::count_received;
use crate::port::{Capabilities, Counters, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::steer::{FilterSupport, Filtering, MOST_RULES, Rules, Unsteerable};
use crate::taken::Taken;
use conversation::Conversations;
use flow::{Chooser, Flow};
use settings::{LARGEST, SMALLEST};
use template::Templates;

pub use flow::{Distribution, IpVersions, Protocols};
pub use payload::Payload;
pub use settings::{Clock, FrameSizes, GeneratorSettings, Mix};

/// The mechanism that applies rules.
const OURSELVES: &str = "the generator itself";

/// The driver `generator`.
pub(crate) struct GeneratorDriver;

impl PortDriver for GeneratorDriver {
    type Settings = GeneratorSettings;
    const NAME: &'static str = "generator";
    const SUMMARY: &'static str = "Makes traffic: sizes, flows, conversations, DNS, HTTP, at a rate or as fast as it goes, from a seed.";
    const DIVISION: QueueDivision = QueueDivision::Symmetric;
    const FILTERS: Option<FilterSupport> = Some(FilterSupport::program(OURSELVES));

    fn open(
        &self,
        name: &str,
        settings: &GeneratorSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Generator::new(name, settings.clone(), cx)?))
    }

    fn directions(&self, _: &GeneratorSettings) -> Directions {
        Directions { receives: true, transmits: false }
    }

    /// Checks that buffers for packets of `largest` bytes hold the generated packets.
    fn fits(&self, port: &str, settings: &GeneratorSettings, largest: usize) -> Result<(), PortError> {
        let wanted =
            settings.frame_sizes.list().into_iter().max().unwrap_or(SMALLEST).max(settings.payload.least());
        if wanted <= largest {
            return Ok(());
        }
        Err(PortError::Setting {
            port: port.into(),
            key: "frame_sizes",
            problem: format!(
                "asks for frames of {wanted} bytes, but packet buffers hold {largest}: give the pool large ones (`large_frames` in `[runtime]`)"
            ),
        })
    }

    /// The number of queues when `wanted` are requested: each has at least one flow.
    fn receive_queues(&self, settings: &GeneratorSettings, wanted: usize) -> usize {
        wanted.clamp(1, settings.flows)
    }
}

/// A generator port.
pub struct Generator {
    name: String,
    settings: GeneratorSettings,
    seed: u64,
    counters: Vec<Arc<Counters>>,
    rules: Rules,
    filters: bool,
    taken: Taken,
}

impl Generator {
    /// A generator with as many queues as the context wants and the flows allow.
    ///
    /// # Errors
    /// [`PortError::Setting`] when the pool has no frames for the largest size.
    pub fn new(name: &str, settings: GeneratorSettings, cx: &OpenContext) -> Result<Self, PortError> {
        GeneratorDriver.fits(name, &settings, cx.pool.largest_packet())?;
        let queues = GeneratorDriver.receive_queues(&settings, cx.queues);
        let counters = (0..queues).map(|_| Arc::default()).collect();
        let (rules, taken) = (Rules::default(), Taken::new(queues, 0));
        Ok(Self { name: name.into(), settings, seed: cx.seed, counters, rules, filters: cx.filters, taken })
    }
}

impl Port for Generator {
    fn driver(&self) -> &'static str {
        "generator"
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> usize {
        LARGEST - 14
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            receive_queues: self.counters.len(),
            // A flow's packets of both directions come from one queue, unless rules separate them.
            symmetric_rss: self.filters || self.rules.is_symmetric(),
            drives_clock: self.settings.clock == Clock::Own,
            ..Capabilities::default()
        }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }
    fn steer(&mut self, rules: &Rules) -> Result<(), Unsteerable> {
        rules.check_queues(self.counters.len())?;
        if self.taken.is_any() {
            return Err(Unsteerable::Taken);
        }
        self.rules = rules.clone();
        Ok(())
    }
    fn rules(&self) -> Rules {
        self.rules.clone()
    }
    fn filtered_by(&self) -> Option<Filtering> {
        let kept = self.taken.is_any().then(|| self.rules.clone());
        self.filters.then(|| Filtering { kept, ..Filtering::new(OURSELVES, MOST_RULES) })
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.name, queue)?;
        let (queues, counters) = (self.counters.len(), self.counters[queue].clone());
        if self.rules.is_empty() {
            return Ok(Box::new(Source::new(&self.settings, self.seed, queue, queues, counters)));
        }
        // Only the packets themselves show which queue has them. So each queue makes all packets, as a
        // generator with one queue would.
        let mut source = Source::new(&self.settings, self.seed, 0, 1, counters);
        source.share = Some(Share { rules: self.rules.clone(), queue: queue as u64, queues: queues as u64 });
        Ok(Box::new(source))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.name, queue)?;
        // A generator has no transmit queues, as the line above says.
        Err(PortError::Queue {
            port: self.name.clone(),
            direction: "transmit",
            queue,
            problem: "does not exist: a generator only gives".into(),
        })
    }
}

/// The flow and size of a packet, chosen before there is a buffer for it.
#[derive(Clone, Copy, Default)]
struct Choice {
    flow: u32,
    size: u32,
}

/// The next packet and its time.
#[derive(Clone, Copy)]
struct Next {
    choice: Choice,
    time: u64,
}

/// Packets that are chosen ahead: meanwhile their flows' state comes from memory.
///
/// The number is fixed, so that no batch size changes the random numbers.
const AHEAD: usize = 16;

/// The share of all packets that a queue has, if there are rules.
struct Share {
    rules: Rules,
    queue: u64,
    queues: u64,
}

impl Share {
    /// Packets that match no rule are divided by their flow, as without rules.
    fn has(&self, frame: &[u8], flow: u64) -> bool {
        self.rules.queue_of(frame).map_or(flow % self.queues, u64::from) == self.queue
    }
}

/// The result of making a chosen packet.
enum Made {
    /// The packet is in the batch.
    Here,
    /// The packet belongs to another queue.
    Elsewhere,
    /// No buffer is free.
    NoBuffer,
}

/// The spacing of times.
#[derive(Clone, Copy)]
enum Spacing {
    /// This many ns a packet.
    Packets(f64),
    /// This many ns a byte.
    Bytes(f64),
    /// None: real time, as fast as possible.
    None,
}

/// One queue of a generator.
struct Source {
    /// The random numbers for flows and sizes, and those for contents.
    choices: Xoshiro256PlusPlus,
    contents: Xoshiro256PlusPlus,
    /// The next choices, a ring that starts at `place`.
    ahead: [Choice; AHEAD],
    place: usize,
    sizes: Vec<usize>,
    /// The number of bytes that a frame may have even if its size is smaller.
    least: usize,
    flows: Vec<Flow>,
    chooser: Chooser,
    templates: Templates,
    conversations: Option<Conversations>,
    spacing: Spacing,
    clock: Clock,
    packets_left: u64,
    duration: u64,
    /// Packets and bytes so far: times are computed from them, so that no error adds up.
    packets: u64,
    bytes: u64,
    start: Option<u64>,
    next: Option<Next>,
    /// The number of polls in a row that found no buffer.
    stalled: u32,
    arrivals: Arrivals,
    share: Option<Share>,
    counters: Arc<Counters>,
}

impl Source {
    fn new(
        settings: &GeneratorSettings,
        seed: u64,
        queue: usize,
        queues: usize,
        counters: Arc<Counters>,
    ) -> Self {
        let share = |total: u64| total / queues as u64 + u64::from((queue as u64) < total % queues as u64);
        let sizes = settings.frame_sizes.list();
        let flows: Vec<Flow> = (queue..settings.flows)
            .step_by(queues)
            .map(|number| Flow::new(number, seed, settings.protocol(), settings.ip, settings.payload))
            .collect();
        let own = settings.clock == Clock::Own;
        let spacing = match settings.rate {
            Some(Rate::Packets(rate)) => Spacing::Packets(1e9 * queues as f64 / rate),
            Some(Rate::Bits(rate)) => Spacing::Bytes(8e9 * queues as f64 / rate),
            None if own => Spacing::Packets(1e3 * queues as f64),
            None => Spacing::None,
        };
        let mut contents =
            Xoshiro256PlusPlus::seed_from_u64(seed ^ (queue as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // 2^128 draws further: the two sequences never meet.
        let choices = contents.clone();
        contents.jump();
        let mut source = Self {
            choices,
            contents,
            ahead: [Choice::default(); AHEAD],
            place: 0,
            chooser: Chooser::new(settings.distribution, settings.exponent, queue, queues, flows.len()),
            templates: Templates::new(&sizes, settings.payload),
            conversations: settings.conversation.then(|| Conversations::new(flows.len(), settings.payload)),
            sizes,
            least: settings.payload.least(),
            flows,
            spacing,
            clock: settings.clock,
            packets_left: settings.packets.map_or(u64::MAX, share),
            duration: settings.duration.map_or(u64::MAX, Duration::nanoseconds),
            packets: 0,
            bytes: 0,
            start: None,
            next: None,
            stalled: 0,
            arrivals: Arrivals::default(),
            share: None,
            counters,
        };
        (0..AHEAD).for_each(|_| {
            source.draw();
        });
        source
    }

    /// Takes the next choice, and makes another.
    #[inline(always)]
    fn draw(&mut self) -> Choice {
        let flow = self.chooser.choose(&mut self.choices);
        let size = match self.sizes.len() {
            1 => 0,
            count => below(&mut self.choices, count),
        };
        prefetch(&raw const self.flows[flow]);
        if let Some(conversations) = &self.conversations {
            conversations.prefetch(flow);
        }
        // Flows and sizes are far fewer than 2^32.
        let drawn = Choice { flow: flow as u32, size: size as u32 };
        let next = std::mem::replace(&mut self.ahead[self.place % AHEAD], drawn);
        self.place = (self.place + 1) % AHEAD;
        next
    }

    /// When the next packet comes, from the first (ns).
    #[inline(always)]
    fn offset(&self) -> u64 {
        match self.spacing {
            Spacing::Packets(each) => (self.packets as f64 * each) as u64,
            Spacing::Bytes(each) => (self.bytes as f64 * each) as u64,
            Spacing::None => 0,
        }
    }

    #[inline(always)]
    fn choose(&mut self, now: u64) -> Next {
        let start = *self.start.get_or_insert(if self.clock == Clock::Own { 0 } else { now });
        let offset = match self.spacing {
            Spacing::None => now.saturating_sub(start),
            _ => self.offset(),
        };
        let choice = self.draw();
        Next { choice, time: start.saturating_add(offset) }
    }

    /// Makes the chosen packet.
    #[inline(always)]
    fn make(&mut self, next: Next, batch: &mut Batch, cx: &mut Context) -> Made {
        let (flow, size) = (next.choice.flow as usize, next.choice.size as usize);
        let bytes = self.sizes[size];
        let most = bytes.max(self.least);
        let Some(mut packet) = cx.pool().allocate(most) else { return Made::NoBuffer };
        let state = &mut self.flows[flow];
        let room = packet.data_mut();
        let written = match &mut self.conversations {
            Some(conversations) => conversations.write(room, flow, state, bytes, &mut self.contents),
            None => self.templates.write(room, state, size, &mut self.contents),
        };
        packet.truncate(written);
        self.stalled = 0;
        packet.set_received_at(next.time);
        self.packets += 1;
        self.bytes += written as u64;
        self.packets_left -= 1;
        if let Some(share) = &self.share
            && !share.has(packet.data(), self.flows[flow].number)
        {
            return Made::Elsewhere;
        }
        // There is room: a burst is at most a batch.
        let _ = batch.push(packet);
        Made::Here
    }
}

/// A random number below `count`; the spread is even except for less than `count` in 2^64.
#[inline(always)]
pub(crate) fn below(random: &mut impl Rng, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

impl ReceiveQueue for Source {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.arrivals.begin(cx);
        let mut elsewhere = 0;
        let poll = loop {
            if batch.len() + elsewhere >= cx.burst() || batch.is_full() {
                break Poll::Busy;
            }
            if self.packets_left == 0 {
                break Poll::Done;
            }
            let next = match self.next.take() {
                Some(next) => next,
                None => self.choose(cx.now()),
            };
            if next.time - self.start.unwrap_or(0) >= self.duration {
                self.packets_left = 0;
                break Poll::Done;
            }
            let waits = match self.clock {
                Clock::Own => !self.arrivals.admit(next.time, batch, cx),
                Clock::Real => next.time > cx.now(),
            };
            if waits {
                self.next = Some(next);
                break if self.clock == Clock::Real { Poll::Until(next.time) } else { Poll::Busy };
            }
            match self.make(next, batch, cx) {
                Made::Here => {}
                // They count towards the burst as well, so that a turn ends.
                Made::Elsewhere => elsewhere += 1,
                Made::NoBuffer => {
                    self.next = Some(next);
                    // No packet is lost: it is made when a buffer is free.
                    break match self.clock {
                        _ if !batch.is_empty() => Poll::Busy,
                        Clock::Own => {
                            self.stalled += 1;
                            Arrivals::stalled_again(cx, self.stalled - 1)
                        }
                        Clock::Real => Poll::Idle,
                    };
                }
            }
        };
        count_received(&self.counters, batch);
        poll
    }
}

#[cfg(test)]
mod tests;
