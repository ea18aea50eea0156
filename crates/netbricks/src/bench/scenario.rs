//! The benchmarks of graphs: each has a chain of functions, its traffic, and its check.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use netbricks_buffer::Pool;
use netbricks_core::consistency::Shares;
use netbricks_core::tables::HugeArray;
use netbricks_core::{Annotation, Graph, Node, Registry, Totals, Turn, Worker};
use netbricks_functions::lpm::NEXT_HOP;
use netbricks_functions::maglev::{LookupTable, MaglevConfig};
use netbricks_packet::FlowKey;
use netbricks_ports::Drivers;
use netbricks_ports::bench::{self, Store, write_at, write_tuples};

use super::feed::{
    CHECKSUM, DESTINATION6, FIRST_OUTSIDE, FLOW, FLOWS, FRAME, HEADERS, OUTSIDE, ROUTER, TRACE, Trace,
    UDP_CHECKSUM, acl, backends, destinations6, frame6, routes, routes6, write6,
};
use super::{BURST, BenchError, PACKETS, Reservation, counting, fused, payloads, sandboxed, segments};
use crate::chain::{LocalPorts, Network};
use crate::config;
use crate::diagnostic::{Diagnostics, Source};

mod middlebox;

/// Turns in one call of the graph; a worker's round has this many, or a multiple.
const ROUND: usize = 64;
/// Packets make whole passes through the store.
///
/// So each packet ends in its place, with the bytes that were last written for that place.
const _: () = assert!(TRACE.is_multiple_of(PACKETS) && PACKETS.is_multiple_of(BURST));

/// The traffic of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    /// The same buffers again and again.
    Fixed,
    /// A flow's addresses and ports are written into each frame as it arrives.
    Trace,
    /// As `Trace`, with destinations that packets can be sent to, and with UDP checksums.
    Outside,
    /// As `Trace`, with random destinations.
    Scattered,
    /// An IPv6 destination is written into each frame as it arrives.
    Trace6,
    /// All headers for a router are written into each frame as it arrives.
    Headers,
    /// As `Trace`, in SYNs with TCP options.
    Options,
    /// A segment of a TCP connection is written into each frame as it arrives.
    Segments,
    /// Datagrams of 1,400 bytes, the same again and again.
    Payloads,
    /// Each burst is allocated and freed.
    Allocate,
}

/// The effect to be found in the packets afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// Ethernet addresses change places.
    Swapped,
    /// The TTL is decremented this number of times, and the checksum is right.
    Hops(u8),
    /// Every flow of the trace is in the table, and its counts add up to all packets and bytes.
    Counted,
    /// As `Counted`, and the counts add up to all packets and bytes of this worker, or of all workers.
    Summed {
        all: bool,
    },
    /// Every flow of the trace is in the table, with a mark (1) and the last packet's length.
    Cached,
    /// This many cells of an array are updated for each packet.
    Updated(u32),
    /// Every packet is annotated with its next hop.
    Routed,
    /// As `Routed`, over IPv6.
    Routed6,
    /// Every packet has an outside source, which is the same for all packets of its flow.
    Translated,
    /// Every packet goes to the next hop of its route, with one hop less.
    Forwarded,
    /// Every byte of every stream was shown once, in order.
    Shown,
    /// One packet in [`payloads::MATCHING`] matched a rule, which this engine looked for.
    Matched {
        engine: &'static str,
    },
    /// Every packet goes to a backend.
    ///
    /// With `forget`, connections are forgotten before each run of the trace, so that one packet in ten is of
    /// a new one.
    Balanced {
        forget: bool,
    },
    /// Every packet passes by the last of so many rules, which counts it.
    Judged {
        rules: usize,
    },
    /// Every packet passes by one of mmb's rules, which counts it.
    Filtered(middlebox::Rules),
}

/// One benchmark.
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) summary: String,
    /// The function's name, and how often it stands in the chain.
    chain: (String, usize),
    feed: Feed,
    effect: Effect,
    /// The number of workers that run it at the same time, on a core each.
    pub(super) workers: usize,
    /// Scenarios whose figures stand beside this scenario's figure.
    pub(super) beside: Vec<Scenario>,
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
        let (workers, beside) = (1, Vec::new());
        Self { name: name.into(), summary: summary.to_owned(), chain, feed, effect, workers, beside }
    }

    /// A count by flow under a consistency, on `workers` workers.
    fn state(consistency: &str, workers: usize, beside: Vec<Self>) -> Self {
        let (summary, effect) = match consistency {
            "bounded" => {
                let others = if workers == 1 { "" } else { " on one, read it on the others" };
                let work = format!("write each packet's flow{others}, 65,536 flows in bounded state");
                (format!("{work}, {workers} workers"), Effect::Cached)
            }
            _ => {
                let work = format!("count 65,536 flows in {consistency} state");
                (format!("{work}, {workers} workers"), Effect::Summed { all: consistency == "strict" })
            }
        };
        let (name, function) = (format!("state-{consistency}-{workers}"), format!("state-{consistency}"));
        let scenario = Self::new(name, &summary, &function, 1, Feed::Trace, effect);
        Self { workers, beside, ..scenario }
    }

    /// All scenarios.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::new("harness", "receive and transmit alone", "", 0, Feed::Fixed, Effect::None),
            Self::new("alloc", "allocate and free a burst", "", 0, Feed::Allocate, Effect::None),
            Self::new("macswap", "swap the Ethernet addresses", "macswap", 1, Feed::Fixed, Effect::Swapped),
            Self::new("ttl", "parse, TTL, checksum", "ttl", 1, Feed::Fixed, Effect::Hops(1)),
            Self::new("monitor-64k", "count 65,536 flows", "monitor", 1, Feed::Trace, Effect::Counted),
        ];
        for accesses in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            let summary = format!("update {accesses} cells of an array of 512 KiB");
            let effect = Effect::Updated(accesses);
            all.push(Self::new(
                format!("array-{accesses}"),
                &summary,
                "array-access",
                1,
                Feed::Trace,
                effect,
            ));
        }
        let lpm = |name, summary, feed| Self::new(name, summary, "lpm", 1, feed, Effect::Routed);
        all.push(lpm("lpm-64k", "16,000 prefixes, 65,536 destinations", Feed::Trace));
        all.push(lpm("lpm-uniform", "16,000 prefixes, destinations at random", Feed::Scattered));
        all.push(Self::new(
            "lpm6",
            "16,000 IPv6 prefixes, 65,536 destinations",
            "lpm",
            1,
            Feed::Trace6,
            Effect::Routed6,
        ));
        all.push(Self::new(
            "router-1M",
            "1,000,000 IPv4 and 200,000 IPv6 routes, 200 next hops, 65,536 destinations",
            "router",
            1,
            Feed::Headers,
            Effect::Forwarded,
        ));
        for (name, summary, forget) in [
            ("maglev-90", "100 backends, 65,536 flows, one packet in ten is its flow's first", true),
            ("maglev-100", "100 backends, 65,536 flows, all known", false),
        ] {
            all.push(Self::new(name, summary, "maglev", 1, Feed::Trace, Effect::Balanced { forget }));
        }
        for rules in [10, 64, 1_000, 10_000] {
            let summary = format!("{rules} rules by 5-tuple, of which the last matches, 65,536 flows");
            let effect = Effect::Judged { rules };
            all.push(Self::new(format!("acl-{rules}"), &summary, "firewall", 1, Feed::Trace, effect));
        }
        all.extend(middlebox::scenarios(usize::MAX));
        all.push(Self::new(
            "nat-64k",
            "source NAT of 65,536 flows, all known",
            "nat",
            1,
            Feed::Outside,
            Effect::Translated,
        ));
        all.push(Self::new(
            "reassemble",
            "windows over 4,096 TCP streams of small segments, one pair in ten in the wrong order",
            "windows",
            1,
            Feed::Segments,
            Effect::Shown,
        ));
        all.push(Self::signature("signature-1000", "default"));
        if cfg!(feature = "hyperscan") {
            let beside = vec![Self::signature("signature-1000", "default")];
            all.push(Self { beside, ..Self::signature("signature-1000-hyperscan", "hyperscan") });
        }
        for (function, how) in [
            ("sandbox-macswap-copy", "the first bytes of each frame copied in and out"),
            ("sandbox-macswap-mapped", "each frame copied into its memory as a whole"),
        ] {
            let summary = format!("swap the Ethernet addresses by a module in the sandbox, with {how}");
            all.push(Self::new(function, &summary, function, 1, Feed::Fixed, Effect::Swapped));
        }
        let own = || vec![Self::state("own", 1, vec![]), Self::state("own", 2, vec![])];
        for consistency in ["strict", "bounded"] {
            let one = Self::state(consistency, 1, vec![]);
            let beside = own().into_iter().chain([one]).collect();
            all.push(Self::state(consistency, 2, beside));
        }
        all.extend(Self::chains());
        all
    }

    /// Rules about datagrams, by an engine of `signature`.
    fn signature(name: &str, engine: &'static str) -> Self {
        let summary =
            format!("1,000 literals in datagrams of 1,400 bytes, one in 64 has one of them, engine {engine}");
        Self::new(name, &summary, "signature", 1, Feed::Payloads, Effect::Matched { engine })
    }

    /// Chains of the same function, a node each or fused.
    fn chains() -> Vec<Self> {
        let mut all = Vec::new();
        for times in [1, 2, 4, 8, 16] {
            let effect = Effect::Hops(times as u8);
            let summary = format!("{times} TTL functions, a node each");
            all.push(Self::new(format!("chain-ttl-{times}"), &summary, "ttl", times, Feed::Fixed, effect));
        }
        for times in [1u8, 2, 4, 8, 16, 64] {
            let (function, summary) =
                (format!("ttl-fused-{times}"), format!("{times} TTL functions fused into one node"));
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

    /// The name of the same scenario with private state, if workers share the state of this one.
    pub(super) fn private(&self) -> Option<String> {
        let shared = matches!(self.effect, Effect::Summed { all: true } | Effect::Cached);
        shared.then(|| format!("state-own-{}", self.workers))
    }

    /// The reservation about comparing its figure with those beside it.
    pub(super) fn reservation(&self) -> Option<Reservation> {
        matches!(self.effect, Effect::Cached).then_some(Reservation {
            same_work: false,
            text: "Its work is another: one worker writes and the others read, where `own` and `strict` count.",
        })
    }

    /// The chain as an operator would write it.
    fn text(&self) -> String {
        let (function, times) = &self.chain;
        let mut text = String::from("[port.store]\ndriver = \"null\"\n");
        let names: Vec<String> = (1..=*times).map(|i| format!("\"f{i}\"")).collect();
        for i in 1..=*times {
            text += &format!("[function.f{i}]\nuse = \"{function}\"\n");
            text += &match self.effect {
                Effect::Routed => format!("routes = {:?}\n", routes()),
                Effect::Routed6 => format!("routes = {:?}\n", routes6()),
                // All flows, so that `check` can add up the counts.
                Effect::Counted => format!("top = {FLOWS}\n"),
                Effect::Translated => {
                    format!("inside = [\"10.0.0.0/8\"]\npool = [\"{OUTSIDE}\"]\ncapacity = {FLOWS}\n")
                }
                Effect::Forwarded => router_settings(),
                Effect::Matched { engine } => {
                    format!("engine = \"{engine}\"\nrules = {:?}\n", payloads::rules())
                }
                Effect::Updated(accesses) => format!("accesses = {accesses}\n"),
                Effect::Judged { rules } => format!("lines = {:?}\n", acl(rules)),
                Effect::Filtered(rules) => rules.settings(&Trace::new()),
                Effect::Balanced { .. } => format!("backends = {:?}\ncapacity = {FLOWS}\n", backends()),
                _ => String::new(),
            };
        }
        text + &format!("[[chain]]\nfrom = \"store\"\nthrough = [{}]\nto = \"store\"\n", names.join(", "))
    }

    /// The graph, built by the same configuration and chain code as `run`'s, over a store of packets.
    ///
    /// Workers share the state in `shares`.
    pub(super) fn build(&self, pool: &Pool, index: usize, shares: &Shares) -> Result<Bench<'_>, BenchError> {
        let mut registry = crate::standard();
        register(&mut registry, shares);
        self.build_of(&registry, pool, index)
    }

    fn build_of(&self, registry: &Registry, pool: &Pool, index: usize) -> Result<Bench<'_>, BenchError> {
        let failed = |problem: String| BenchError::Failed(format!("`{}`: {problem}", self.name));
        let trace = Trace::new();
        let (receive, transmit, store): (Box<dyn Node>, Box<dyn Node>, _) = match self.feed {
            Feed::Allocate => (bench::allocate(BURST, FRAME), bench::free(), None),
            Feed::Fixed
            | Feed::Trace
            | Feed::Outside
            | Feed::Scattered
            | Feed::Trace6
            | Feed::Headers
            | Feed::Options
            | Feed::Segments
            | Feed::Payloads => {
                let bytes = if self.feed == Feed::Payloads { payloads::FRAME } else { FRAME };
                let store = Store::new(pool, PACKETS, bytes, BURST)
                    .ok_or_else(|| failed("the pool has not enough packets".into()))?;
                match self.feed {
                    Feed::Trace | Feed::Options => {
                        store.set_hook(Some(write_tuples(held(&trace.tuples()).map_err(failed)?)));
                    }
                    Feed::Outside => {
                        store.set_hook(Some(write_tuples(held(&trace.outside()).map_err(failed)?)));
                    }
                    Feed::Scattered => {
                        store.set_hook(Some(write_tuples(held(&trace.scattered()).map_err(failed)?)));
                    }
                    Feed::Trace6 => {
                        store.set_hook(Some(write_at::<38, 16>(held(&destinations6()).map_err(failed)?)));
                    }
                    Feed::Headers => {
                        store.set_hook(Some(write_at::<0, HEADERS>(held(&trace.routed()).map_err(failed)?)));
                    }
                    Feed::Segments => store.set_hook(Some(segments::hook(&trace))),
                    Feed::Payloads => {
                        let frames = payloads::frames(PACKETS);
                        store.reset(|number, packet| payloads::write(&frames[number], packet));
                    }
                    Feed::Fixed | Feed::Allocate => {}
                }
                (store.source(), store.sink(), Some(store))
            }
        };
        let text = self.text();
        let source = Source::new(self.name.clone(), &text);
        let mut diagnostics = Diagnostics::default();
        let plan = config::read(&text, registry, &Drivers::standard(), Path::new("."), &mut diagnostics);
        let network = Network::of(&plan, pool, &mut diagnostics);
        if diagnostics.has_errors() {
            return Err(failed(diagnostics.render(&source, false)));
        }
        let worker = Worker::new(index, 1, pool.clone());
        let ports = LocalPorts { receive: vec![(0, receive)], transmit: BTreeMap::from([(0, transmit)]) };
        let mut graph = network
            .design(self.name.clone(), &plan)
            .builder_over(ports, &worker)
            .and_then(|builder| builder.build(pool.clone()))
            .map_err(|error| failed(error.to_string()))?;
        graph.set_burst(BURST);
        if self.effect == Effect::Forwarded {
            for lines in trace.full_table().chunks(100_000) {
                graph.call("f1", "add", &lines.join("\n")).map_err(|error| failed(error.to_string()))?;
            }
        }
        let next_hop = worker.annotation(NEXT_HOP);
        let before = Totals::default();
        Ok(Bench { scenario: self, graph, store, trace, next_hop, before, passes: 0, began: Instant::now() })
    }

    /// Passes of the buffers between two resets: no TTL may expire within them.
    fn passes(&self) -> usize {
        match (self.feed, self.effect) {
            (
                Feed::Trace
                | Feed::Outside
                | Feed::Scattered
                | Feed::Trace6
                | Feed::Headers
                | Feed::Options
                | Feed::Segments,
                _,
            ) => TRACE / PACKETS,
            (_, Effect::Hops(hops)) => 128 / usize::from(hops),
            // Odd, so that an action that the next pass undoes is still seen.
            _ => 31,
        }
    }
}

/// An interface with 200 neighbours, whose MAC addresses end as their addresses do.
fn router_settings() -> String {
    let [a, b, c, d, e, g] = ROUTER;
    let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}");
    let neighbours: Vec<String> =
        (2..202).map(|hop| format!("store 192.0.2.{hop} 02:00:00:00:01:{hop:02x}")).collect();
    format!("interfaces = [\"store 192.0.2.1/24 mac {mac}\"]\nneighbours = {neighbours:?}\n")
}

/// A trace on huge pages, as the yardstick's is.
fn held<const N: usize>(trace: &[[u8; N]]) -> Result<HugeArray<[u8; N]>, String> {
    let mut held = HugeArray::zeroed(trace.len()).map_err(|error| error.to_string())?;
    held.copy_from_slice(trace);
    Ok(held)
}

/// Adds the functions that only benchmarks have.
fn register(registry: &mut Registry, shares: &Shares) {
    fused::register(registry);
    counting::register(registry, shares);
    segments::register(registry);
    sandboxed::register(registry);
}

/// A benchmark that is set up.
pub(super) struct Bench<'s> {
    scenario: &'s Scenario,
    graph: Graph,
    store: Option<Store>,
    trace: Trace,
    next_hop: Annotation<u32>,
    before: Totals,
    /// Passes of the buffers since they were last reset.
    passes: usize,
    /// The moment at which its time was 0; its time goes on as a run's does.
    began: Instant,
}

impl Bench<'_> {
    /// Runs for at least `least` of timed work; returns the time and the packets.
    pub(super) fn round(&mut self, least: Duration) -> Result<(Duration, u64), BenchError> {
        let (mut time, mut packets) = (Duration::ZERO, 0);
        let turns = self.scenario.passes() * PACKETS / BURST;
        while time < least {
            if let Some(store) = &self.store {
                match self.scenario.feed {
                    Feed::Trace6 => store.reset(|_, packet| write6(packet)),
                    Feed::Segments => store.reset(|_, packet| segments::write(packet)),
                    Feed::Options => {
                        store.reset(|number, packet| middlebox::write_syn(&self.trace, number, packet));
                    }
                    Feed::Outside => store.reset(|number, packet| {
                        self.trace.write(number, packet);
                        // Any number but 0, which is none: a rewrite carries it on.
                        if let Some(checksum) = packet.data_mut().get_mut(UDP_CHECKSUM) {
                            checksum.copy_from_slice(&[0x12, 0x34]);
                        }
                    }),
                    // Nothing writes into them.
                    Feed::Payloads => {}
                    _ => store.reset(|number, packet| self.trace.write(number, packet)),
                }
                self.passes = self.scenario.passes();
            }
            if self.scenario.effect == (Effect::Balanced { forget: true }) {
                self.ask("forget", "")?;
            }
            let start = Instant::now();
            let mut left = turns;
            while left > 0 {
                let (turn, taken) = self.graph.turns(self.time(), left.min(ROUND) as u32);
                let Turn::Moved(moved) = turn else { return Err(self.failed("a turn moved nothing")) };
                // A router has turns of its own now and then, in which no packet moves.
                let has_turns = self.scenario.effect == Effect::Forwarded;
                let bursts = moved as usize / BURST;
                if moved as usize != bursts * BURST || bursts != taken as usize && !has_turns {
                    return Err(self.failed("a turn did not move a burst"));
                }
                left -= bursts.min(left);
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

    /// The graph's time (ns).
    fn time(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn ask(&mut self, handler: &str, argument: &str) -> Result<String, BenchError> {
        self.graph.call("f1", handler, argument).map_err(|error| self.failed(&error.to_string()))
    }

    /// Bytes of memory for each flow of capacity, if the functions report them.
    pub(super) fn bytes_per_flow(&mut self) -> Result<Option<f64>, BenchError> {
        if !matches!(self.scenario.effect, Effect::Balanced { .. }) {
            return Ok(None);
        }
        let memory = self.ask("memory", "")?;
        let mut numbers = memory.split(' ').filter_map(|number| number.parse::<f64>().ok());
        Ok(numbers.next().zip(numbers.next()).map(|(bytes, flows)| bytes / flows))
    }

    /// Packets and bytes of all flows that the function reports.
    fn counted(&self) -> (u64, u64) {
        let sections = self.graph.reports().into_iter().flat_map(|(_, sections)| sections);
        sections.flat_map(|section| section.rows).fold((0, 0), |(packets, bytes), row| {
            let number =
                |column: usize| row.get(column).and_then(|cell| cell.parse::<u64>().ok()).unwrap_or(0);
            (packets + number(1), bytes + number(2))
        })
    }

    fn failed(&self, problem: &str) -> BenchError {
        BenchError::Failed(format!("`{}`: {problem}", self.scenario.name))
    }

    /// Packets that it has sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.graph.totals().sent.packets
    }

    /// The packets' frames as they were fed last, in the order in which they leave next.
    fn fed(&self) -> Box<dyn Iterator<Item = [u8; FRAME]> + '_> {
        let flows = match self.scenario.feed {
            Feed::Trace | Feed::Options => self.trace.tuples(),
            Feed::Outside => self.trace.outside(),
            Feed::Scattered => self.trace.scattered(),
            Feed::Trace6 => {
                let destinations = destinations6().into_iter().skip(TRACE - PACKETS);
                return Box::new(destinations.map(|destination| {
                    let mut frame = frame6();
                    frame[DESTINATION6].copy_from_slice(&destination);
                    frame
                }));
            }
            Feed::Headers => {
                let headers = self.trace.routed().into_iter().skip(TRACE - PACKETS).enumerate();
                return Box::new(headers.map(|(number, headers)| {
                    let mut frame = self.trace.frame(number);
                    frame[..HEADERS].copy_from_slice(&headers);
                    frame
                }));
            }
            Feed::Fixed | Feed::Segments | Feed::Allocate | Feed::Payloads => {
                return Box::new((0..PACKETS).map(|number| self.trace.frame(number)));
            }
        };
        Box::new(flows.into_iter().skip(TRACE - PACKETS).enumerate().map(|(number, flow)| {
            // The checksum stays that of the flow that the frame was made with, as in the yardstick.
            let mut frame = match self.scenario.feed {
                Feed::Options => middlebox::syn(&self.trace, number),
                _ => self.trace.frame(number),
            };
            frame[FLOW].copy_from_slice(&flow);
            frame
        }))
    }

    /// Checks every packet's bytes and the functions' state; `all` is the number of packets that all workers
    /// sent.
    pub(super) fn check(&mut self, all: u64) -> Result<(), BenchError> {
        self.check_packets()?;
        self.check_state(all)?;
        self.graph.drain(self.time());
        self.check_windows()
    }

    /// Compares the bytes of every packet with those that it should have.
    fn check_packets(&mut self) -> Result<(), BenchError> {
        if let Some(store) = &self.store {
            if store.packets() != PACKETS {
                return Err(self.failed("packets are missing"));
            }
            let (effect, passes) = (self.scenario.effect, self.passes);
            let mut fed: Vec<_> = self.fed().collect();
            let mut wrong = 0;
            let mut sources: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut balancer = matches!(effect, Effect::Balanced { .. }).then(balancer);
            store.for_each(|place, packet| {
                let (frame, expected) = (packet.data(), fed[place].as_mut_slice());
                let next_hop = || self.next_hop.of(packet).map(|hop| hop.to_string());
                let as_expected = match effect {
                    Effect::Swapped => {
                        if passes % 2 == 1 {
                            expected[..12].rotate_left(6);
                        }
                        frame == expected
                    }
                    Effect::Hops(hops) => {
                        expected[22] = (255 - usize::from(hops) * passes) as u8;
                        expected[CHECKSUM].fill(0);
                        let checksum = netbricks_packet::checksum::internet(&expected[14..34]);
                        expected[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
                        frame == expected
                    }
                    Effect::Forwarded => {
                        let destination =
                            expected[30..].first_chunk().map(|v4: &[u8; 4]| Ipv4Addr::from(*v4));
                        let destination = destination.map(|address| address.to_string()).unwrap_or_default();
                        let route = self.graph.call("f1", "lookup", &destination).unwrap_or_default();
                        let hop = route
                            .split_once(" via 192.0.2.")
                            .and_then(|(_, hop)| hop.split(' ').next()?.parse::<u8>().ok());
                        expected[..6].copy_from_slice(&[2, 0, 0, 0, 1, hop.unwrap_or_default()]);
                        expected[6..12].copy_from_slice(&ROUTER);
                        expected[22] = 254;
                        expected[CHECKSUM].fill(0);
                        let checksum = netbricks_packet::checksum::internet(&expected[14..34]);
                        expected[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
                        frame == expected
                    }
                    // Its addresses, ports and sequence number are those of a segment.
                    Effect::Matched { .. } => frame.len() == payloads::FRAME,
                    Effect::Shown => frame.len() == FRAME && frame[22] == 255,
                    Effect::None
                    | Effect::Counted
                    | Effect::Summed { .. }
                    | Effect::Cached
                    | Effect::Judged { .. }
                    | Effect::Filtered(_)
                    | Effect::Updated(_) => frame == expected,
                    Effect::Routed | Effect::Routed6 => {
                        let destination = match effect {
                            Effect::Routed => expected[30..]
                                .first_chunk()
                                .map(|v4: &[u8; 4]| Ipv4Addr::from(*v4).to_string()),
                            _ => expected[DESTINATION6]
                                .first_chunk()
                                .map(|v6: &[u8; 16]| Ipv6Addr::from(*v6).to_string()),
                        };
                        let looked_up =
                            self.graph.call("f1", "lookup", &destination.unwrap_or_default()).ok();
                        frame == expected && looked_up.is_some() && next_hop() == looked_up
                    }
                    Effect::Translated => {
                        let before = expected[FLOW].to_vec();
                        let after = [&frame[26..30], &frame[34..36]].concat();
                        let pool = Ipv4Addr::from_bits(FIRST_OUTSIDE).octets();
                        let same = sources.entry(before).or_insert_with(|| after.clone()) == &after;
                        same && frame[26..29] == pool[..3] && frame[30..34] == expected[30..34]
                    }
                    Effect::Balanced { .. } => {
                        // Another node with the same backends must decide alike.
                        let flow = FlowKey::from_frame(expected);
                        let decides = |table: &mut LookupTable| table.lookup(flow.as_ref()?);
                        let backend = balancer.as_mut().and_then(decides);
                        expected[..5].copy_from_slice(&[2, 0, 0, 0, 1]);
                        expected[5] = backend.map_or(u8::MAX, |number| number as u8);
                        frame == expected
                    }
                };
                wrong += usize::from(!as_expected);
            });
            if wrong > 0 {
                return Err(self.failed(&format!("{wrong} packets are not as they should be")));
            }
        }
        Ok(())
    }

    /// Asks the function's tables for what they should hold.
    fn check_state(&mut self, all: u64) -> Result<(), BenchError> {
        let table = match self.scenario.effect {
            Effect::Counted => Some("flows.occupancy"),
            Effect::Balanced { .. } | Effect::Filtered(middlebox::Rules::Connections) => {
                Some("connections.occupancy")
            }
            Effect::Translated => Some("translations.occupancy"),
            _ => None,
        };
        if let Some(table) = table {
            let expected = format!("{} ", self.trace.distinct());
            let found = self.ask(table, "")?;
            if !found.starts_with(&expected) {
                return Err(self.failed(&format!("{expected}flows were sent, the table says {found}")));
            }
        }
        if matches!(self.scenario.effect, Effect::Matched { .. }) {
            let matches = self.ask("matches", "")?;
            let counts = matches.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
            let (found, expected) = (counts.sum::<u64>(), self.sent() / payloads::MATCHING as u64);
            if found != expected {
                return Err(self.failed(&format!("{expected} packets have a literal, {found} matched")));
            }
        }
        if let Effect::Updated(accesses) = self.scenario.effect {
            let (expected, found) = ((self.sent() * u64::from(accesses)).to_string(), self.ask("sum", "")?);
            if found != expected {
                return Err(self.failed(&format!("{expected} cells should be updated, {found} were")));
            }
        }
        let (flows, frame) = (self.trace.distinct() as u64, FRAME as u64);
        if matches!(self.scenario.effect, Effect::Filtered(_)) {
            let list = self.ask("list", "")?;
            let (expected, found) = (self.sent(), middlebox::counted(&list));
            if found != Some((expected, expected * frame)) {
                return Err(self.failed(&format!("{expected} packets were sent, rules counted {found:?}")));
            }
        }
        if self.scenario.effect == Effect::Counted || matches!(self.scenario.effect, Effect::Judged { .. }) {
            let (expected, found) = (self.sent(), self.counted());
            if found != (expected, expected * frame) {
                let problem =
                    format!("{expected} packets of {frame} bytes were sent, counted were {found:?}");
                return Err(self.failed(&problem));
            }
        }
        let sums = match self.scenario.effect {
            Effect::Summed { all: false } => Some((self.sent(), self.sent() * frame)),
            Effect::Summed { all: true } => Some((all, all * frame)),
            Effect::Cached => Some((flows, flows * frame)),
            _ => None,
        };
        if let Some((first, second)) = sums {
            let (expected, found) = (format!("{flows} {first} {second}"), self.ask("sums", "")?);
            if found != expected {
                let problem = format!("flows and sums of the state should be {expected}, found {found}");
                return Err(self.failed(&problem));
            }
        }
        Ok(())
    }

    /// Asks whether all bytes of the streams were shown, after the graph was drained.
    fn check_windows(&mut self) -> Result<(), BenchError> {
        if self.scenario.effect == Effect::Shown {
            let sent = self.before.sent.packets * segments::CARRIED as u64;
            let [shown, missing, misplaced] =
                ["shown", "missing", "misplaced"].map(|count| self.ask(count, ""));
            let (shown, missing, misplaced) = (shown?, missing?, misplaced?);
            if [&shown, &missing, &misplaced] != [&sent.to_string(), "0", "0"] {
                return Err(self.failed(&format!(
                    "{sent} bytes were sent, {shown} shown, {missing} missing; {misplaced} windows were out of place"
                )));
            }
        }
        Ok(())
    }
}

/// The lookup table of the measured balancer, made independently of it.
fn balancer() -> LookupTable {
    let pool = Pool::builder().frames(1).build().expect("there is memory for a frame");
    let backends = backends().iter().filter_map(|backend| backend.parse().ok()).collect();
    LookupTable::new(&Worker::new(0, 1, pool), &MaglevConfig { backends, ..MaglevConfig::default() })
}

#[cfg(test)]
mod tests;
