//! What can be measured: which functions in a chain, fed how, checked how.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use netbricks_buffer::Pool;
use netbricks_core::{Annotation, Graph, Node, Totals, Turn, Worker};
use netbricks_functions::lpm::NEXT_HOP;
use netbricks_ports::Drivers;
use netbricks_ports::bench::{self, Store, write_tuples};

use super::feed::{FRAME, TRACE, Trace, routes};
use super::{BURST, BenchError, PACKETS, fused};
use crate::chain::{LocalPorts, Network};
use crate::config;
use crate::diagnostic::{Diagnostics, Source};

/// How packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    /// The same buffers again and again.
    Fixed,
    /// A flow's addresses and ports are written into each frame as it arrives.
    Trace,
    /// As `Trace`, with destinations at random.
    Scattered,
    /// Each burst is allocated and freed.
    Allocate,
}

/// What is to be seen in the packets afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// Ethernet addresses change places.
    Swapped,
    /// So many hops are taken off, checksum included.
    Hops(u8),
    /// Every flow of the trace is in the table.
    Counted,
    /// Every packet is annotated with its next hop.
    Routed,
}

/// One benchmark.
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) summary: String,
    /// Name of the function and how often it stands in the chain.
    chain: (String, usize),
    feed: Feed,
    effect: Effect,
}

impl Scenario {
    fn new(
        name: impl Into<String>,
        summary: &str,
        function: &str,
        times: usize,
        feed: Feed,
        effect: Effect,
    ) -> Self {
        let chain = (function.to_owned(), times);
        Self { name: name.into(), summary: summary.to_owned(), chain, feed, effect }
    }

    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::new("harness", "receive and transmit alone", "", 0, Feed::Fixed, Effect::None),
            Self::new("alloc", "allocate and free a burst", "", 0, Feed::Allocate, Effect::None),
            Self::new("macswap", "swap the Ethernet addresses", "macswap", 1, Feed::Fixed, Effect::Swapped),
            Self::new("ttl", "parse, TTL, checksum", "ttl", 1, Feed::Fixed, Effect::Hops(1)),
            Self::new("monitor-64k", "count 65,536 flows", "monitor", 1, Feed::Trace, Effect::Counted),
        ];
        let lpm = |name, summary, feed| Self::new(name, summary, "lpm", 1, feed, Effect::Routed);
        all.push(lpm("lpm-64k", "16,000 prefixes, 65,536 destinations", Feed::Trace));
        all.push(lpm("lpm-uniform", "16,000 prefixes, destinations at random", Feed::Scattered));
        for times in [1, 2, 4, 8, 16] {
            let effect = Effect::Hops(times as u8);
            let summary = format!("{times} TTL functions, a node each");
            all.push(Self::new(format!("chain-ttl-{times}"), &summary, "ttl", times, Feed::Fixed, effect));
        }
        for times in [1u8, 2, 4, 8, 16] {
            let (function, summary) =
                (format!("ttl-fused-{times}"), format!("{times} TTL functions in one loop"));
            let name = format!("chain-ttl-{times}-fused");
            all.push(Self::new(name, &summary, &function, 1, Feed::Fixed, Effect::Hops(times)));
        }
        for times in [1, 2, 4, 8, 16, 64] {
            let summary = format!("{times} nodes that do nothing");
            all.push(Self::new(
                format!("chain-wire-{times}"),
                &summary,
                "wire",
                times,
                Feed::Fixed,
                Effect::None,
            ));
        }
        all
    }

    /// The chain as an operator would write it.
    fn text(&self) -> String {
        let (function, times) = &self.chain;
        let mut text = String::from("[port.store]\ndriver = \"null\"\n");
        let names: Vec<String> = (1..=*times).map(|i| format!("\"f{i}\"")).collect();
        for i in 1..=*times {
            text += &format!("[function.f{i}]\nuse = \"{function}\"\n");
            if self.effect == Effect::Routed {
                text += &format!("routes = {:?}\n", routes());
            }
        }
        text + &format!("[[chain]]\nfrom = \"store\"\nthrough = [{}]\nto = \"store\"\n", names.join(", "))
    }

    /// The graph, built through the same configuration and chain code as `run`'s, over a store of packets.
    pub(super) fn build(&self, pool: &Pool) -> Result<Bench<'_>, BenchError> {
        let failed = |problem: String| BenchError::Failed(format!("`{}`: {problem}", self.name));
        let trace = Trace::new();
        let (receive, transmit, store): (Box<dyn Node>, Box<dyn Node>, _) = match self.feed {
            Feed::Allocate => (bench::allocate(BURST, FRAME), bench::free(), None),
            Feed::Fixed | Feed::Trace | Feed::Scattered => {
                let store = Store::new(pool, PACKETS, FRAME, BURST)
                    .ok_or_else(|| failed("the pool has not enough packets".into()))?;
                match self.feed {
                    Feed::Trace => store.set_hook(Some(write_tuples(trace.tuples()))),
                    Feed::Scattered => store.set_hook(Some(write_tuples(trace.scattered()))),
                    Feed::Fixed | Feed::Allocate => {}
                }
                (store.source(), store.sink(), Some(store))
            }
        };
        let mut registry = crate::standard();
        fused::register(&mut registry);
        let text = self.text();
        let source = Source::new(self.name.clone(), &text);
        let mut diagnostics = Diagnostics::default();
        let plan = config::read(&text, &registry, &Drivers::standard(), Path::new("."), &mut diagnostics);
        let network = Network::of(&plan, pool, &mut diagnostics);
        if diagnostics.has_errors() {
            return Err(failed(diagnostics.render(&source, false)));
        }
        let worker = Worker::new(0, 1, pool.clone());
        let ports = LocalPorts { receive: vec![(0, receive)], transmit: BTreeMap::from([(0, transmit)]) };
        let mut graph = network
            .design(self.name.clone(), &plan)
            .builder_over(ports, &worker)
            .and_then(|builder| builder.build(pool.clone()))
            .map_err(|error| failed(error.to_string()))?;
        graph.set_burst(BURST);
        let next_hop = worker.annotation(NEXT_HOP);
        Ok(Bench { scenario: self, graph, store, trace, next_hop, before: Totals::default(), passes: 0 })
    }

    /// Times that the buffers go round between two resets: no time to live may run out.
    fn passes(&self) -> usize {
        match (self.feed, self.effect) {
            (Feed::Trace | Feed::Scattered, _) => TRACE / PACKETS,
            (_, Effect::Hops(hops)) => 128 / usize::from(hops),
            _ => 32,
        }
    }
}

/// A benchmark that is set up.
pub(super) struct Bench<'s> {
    scenario: &'s Scenario,
    graph: Graph,
    store: Option<Store>,
    trace: Trace,
    next_hop: Annotation<u32>,
    before: Totals,
    /// Times the buffers went round since they were last reset.
    passes: usize,
}

impl Bench<'_> {
    /// Runs for at least `least` of timed work; answers the time and the packets.
    pub(super) fn round(&mut self, least: Duration) -> Result<(Duration, u64), BenchError> {
        let (mut time, mut packets) = (Duration::ZERO, 0);
        let turns = self.scenario.passes() * PACKETS / BURST;
        while time < least {
            if let Some(store) = &self.store {
                store.reset(|number, packet| self.trace.write(number, packet));
                self.passes = self.scenario.passes();
            }
            let start = Instant::now();
            for _ in 0..turns {
                if self.graph.turn(0) != Turn::Moved(BURST as u64) {
                    return Err(self.failed("a turn did not move a burst"));
                }
            }
            time += start.elapsed();
            packets += (turns * BURST) as u64;
        }
        let totals = self.graph.totals();
        let sent = totals.sent.packets - self.before.sent.packets;
        if sent != packets || totals.drops.total().packets != 0 || !totals.is_conserved() {
            return Err(self.failed(&format!("{packets} packets went in, {sent} came out")));
        }
        self.before = totals;
        Ok((time, packets))
    }

    fn failed(&self, problem: &str) -> BenchError {
        BenchError::Failed(format!("`{}`: {problem}", self.scenario.name))
    }

    /// Looks at every packet's bytes, and at what the functions remember.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        if let Some(store) = &self.store {
            if store.packets() != PACKETS {
                return Err(self.failed("packets are missing"));
            }
            let (effect, passes) = (self.scenario.effect, self.passes);
            let mut wrong = 0;
            store.for_each(|_, packet| {
                let frame = packet.data();
                let as_expected = frame.len() == FRAME
                    && match effect {
                        Effect::Swapped => frame[0] == if passes % 2 == 0 { 1 } else { 0x10 },
                        Effect::Hops(hops) => {
                            usize::from(frame[22]) == 255 - usize::from(hops) * passes
                                && netbricks_packet::checksum::internet(&frame[14..34]) == 0
                        }
                        Effect::None | Effect::Counted => frame[22] == 255,
                        Effect::Routed => {
                            let destination =
                                [frame[30], frame[31], frame[32], frame[33]].map(|b| b.to_string());
                            let found =
                                self.next_hop.read(packet.annotations()).map(|next_hop| next_hop.to_string());
                            found == self.graph.call("f1", "lookup", &destination.join(".")).ok()
                        }
                    };
                wrong += usize::from(!as_expected);
            });
            if wrong > 0 {
                return Err(self.failed(&format!("{wrong} packets are not as they should be")));
            }
        }
        if self.scenario.effect == Effect::Counted {
            let expected = format!("{} ", self.trace.distinct());
            let found = self
                .graph
                .call("f1", "flows.occupancy", "")
                .map_err(|error| self.failed(&error.to_string()))?;
            if !found.starts_with(&expected) {
                return Err(self.failed(&format!("{expected}flows were sent, the table says {found}")));
            }
        }
        self.graph.drain(0);
        Ok(())
    }
}
