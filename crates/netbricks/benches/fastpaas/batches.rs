//! Figure 2: tenants in 128 packets, and packets of each, as batches come to the functions.
//!
//! Each autonomous system is a tenant, by the source or the destination address. The packets come in one of these ways:
//!
//! - in a single queue,
//! - in 8 queues by a hash of the 5-tuple (RSS),
//! - in 8 or 64 queues by ideal filters for the tenants, chosen with the whole trace known beforehand,
//! - in 8 queues by the filters that the library derives from what it has counted so far, with the rules that a port takes,
//! - through our demultiplexer into a queue for each tenant.
//!
//! The last is a graph with its scheduler; the others follow from the trace alone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use netbricks::packet::{FlowKey, HashKey};
use netbricks::tables::{LpmConfig, Routes};
use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::guards::queues::{Fate, PathPort, RuleLimits, derive};
use netbricks_core::guards::walk::{Path as WalkedPath, PathGuard};
use netbricks_core::guards::{Certainty, Filter, Prefix};
use netbricks_core::tenants::{Demultiplexer, TenantFilter, TenantPolicy, TenantQueue};
use netbricks_core::{Context, DropReason, Edge, Graph, GraphBuilder, Node, Poll, Shape, Turn};
use netbricks_ports::pcap::{LinkType, Reader, Step};
use netbricks_ports::steer::MOST_RULES;

use crate::traffic::{self, Random};

/// Packets of a batch.
const BATCH: usize = 128;
/// Queues of RSS.
const RSS: usize = 8;
/// Queues that filters lead to.
const FILTERS: [usize; 2] = [8, 64];
/// Packets on their way through the demultiplexer at most: a ring of a device that is full, and four.
const WINDOWS: [usize; 2] = [1_024, 4_096];
/// Tenants with a queue of their own behind the demultiplexer. The rarest others share one.
const TENANTS: usize = 1_000;

/// A packet of a trace.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Of the 5-tuple.
    hash: u64,
    /// Numbers of the autonomous systems.
    source: u32,
    destination: u32,
}

/// The packets whose batches are counted.
pub(crate) struct Trace {
    packets: Vec<Seen>,
}

/// Draws numbers, small ones more often (Zipf's law).
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }
    fn draw(&self, random: &mut Random) -> u32 {
        let at = random.share() * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|sum| *sum < at) as u32
    }
}

/// A trace of a model of the traffic at a backbone, which follows from a fixed seed.
///
/// 10,000 flows go on at a time. A flow has 1 to 100,000 packets (a Pareto distribution of exponent 1.1). Its source is one of
/// 3,000 systems and its destination one of 1,500, by Zipf's law with exponents 0.9 and 1.1. Three of ten packets follow
/// another one of their flow at once.
pub(crate) fn seeded(count: usize) -> Trace {
    const GOING: usize = 10_000;
    let mut random = Random(0x853c_49e6_748f_ea9b);
    let (sources, destinations) = (Zipf::new(3_000, 0.9), Zipf::new(1_500, 1.1));
    let flow = |random: &mut Random| {
        let left = (1.0 - random.share()).powf(-1.0 / 1.1).min(100_000.0) as u32;
        let (source, destination) = (sources.draw(random), destinations.draw(random));
        (Seen { hash: random.next(), source, destination }, left)
    };
    let mut flows: Vec<(Seen, u32)> = (0..GOING).map(|_| flow(&mut random)).collect();
    let (mut packets, mut last) = (Vec::with_capacity(count), 0);
    while packets.len() < count {
        let at = if random.below(10) < 3 { last } else { random.below(GOING) };
        let (seen, left) = &mut flows[at];
        packets.push(*seen);
        *left -= 1;
        if *left == 0 {
            flows[at] = flow(&mut random);
        }
        last = at;
    }
    Trace { packets }
}

/// Prefixes with the numbers of their systems: lines `PREFIX/LENGTH AS`, or CAIDA's with three columns.
fn prefixes(path: &Path) -> Result<Routes<u32>, String> {
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    let (mut names, mut all) = (BTreeMap::<&str, u32>::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split(['/', ' ', '\t']).filter(|word| !word.is_empty()).collect();
        let [address, length, system] = words[..] else {
            if words.is_empty() {
                continue;
            }
            return Err(named(&format!("line {}: expected `PREFIX/LENGTH AS`, found `{line}`", number + 1)));
        };
        let parsed = address.parse::<IpAddr>().ok().zip(length.parse::<u8>().ok());
        let fits = |(address, length): &(IpAddr, u8)| *length <= if address.is_ipv4() { 32 } else { 128 };
        let (address, length) = parsed.filter(fits).ok_or_else(|| {
            named(&format!("line {}: expected an address and a length, found `{line}`", number + 1))
        })?;
        let next = names.len() as u32;
        all.push((address, length, *names.entry(system).or_insert(next)));
    }
    let v4: Vec<_> = all
        .iter()
        .filter_map(|(a, l, _)| if let IpAddr::V4(a) = a { Some((*a, *l)) } else { None })
        .collect();
    let v6: Vec<_> = all
        .iter()
        .filter_map(|(a, l, _)| if let IpAddr::V6(a) = a { Some((*a, *l)) } else { None })
        .collect();
    let v4 = (!v4.is_empty()).then(|| LpmConfig::for_prefixes(v4));
    let v6 = (!v6.is_empty()).then(|| LpmConfig::for_prefixes(v6));
    let mut routes = Routes::new(v4, v6).map_err(|error| named(&error))?;
    for (address, length, system) in all {
        routes.insert(address, length, system).map_err(|error| named(&error))?;
    }
    Ok(routes)
}

/// The IP packets of a capture whose addresses have systems.
///
/// # Errors
/// A file cannot be read, or no packet has systems.
pub(crate) fn captured(capture: &Path, systems: &Path) -> Result<Trace, String> {
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", capture.display());
    let routes = prefixes(systems)?;
    let file = File::open(capture).map_err(|error| named(&error))?;
    let mut reader = Reader::new(file).map_err(|error| named(&error))?;
    let key = HashKey::new([1, 2]);
    let (mut packets, mut others, mut frame) = (Vec::new(), 0u64, Vec::new());
    loop {
        let step = reader.next(|record| {
            frame.clear();
            if record.link == Some(LinkType::RawIp) {
                let version6 = record.data.first().is_some_and(|first| first >> 4 == 6);
                frame.extend_from_slice(&[0; 12]);
                frame.extend_from_slice(if version6 { &[0x86, 0xdd] } else { &[8, 0] });
            }
            frame.extend_from_slice(record.data);
            // Of most packets such captures have the headers alone.
            frame.resize(frame.len().max(record.original_len.min(1 << 16)), 0);
            let flow = FlowKey::from_frame(&frame);
            let systems = flow.and_then(|flow| {
                routes.longest(flow.source()).zip(routes.longest(flow.destination())).map(|both| (flow, both))
            });
            match systems {
                Some((flow, (source, destination))) => {
                    packets.push(Seen { hash: key.hash(&flow), source: *source, destination: *destination });
                }
                None => others += 1,
            }
            true
        });
        if step.map_err(|error| named(&error))? == Step::End {
            break;
        }
    }
    eprintln!(
        "{}: {} packets, and {others} that are not IP or have no system",
        capture.display(),
        packets.len()
    );
    if packets.is_empty() { Err(named(&"no packet has two systems")) } else { Ok(Trace { packets }) }
}

/// The batches of a series.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Batches by the number of their tenants.
    pub(crate) tenants: BTreeMap<usize, u64>,
    /// Tenants of all batches by the number of their packets there.
    pub(crate) each: BTreeMap<usize, u64>,
}

impl Counts {
    fn add(&mut self, batch: &[u32]) {
        let mut sorted = batch.to_vec();
        sorted.sort_unstable();
        let runs = sorted.chunk_by(|a, b| a == b);
        let mut tenants = 0;
        for run in runs {
            tenants += 1;
            *self.each.entry(run.len()).or_default() += 1;
        }
        *self.tenants.entry(tenants).or_default() += 1;
    }

    /// Packets of all batches.
    pub(crate) fn packets(&self) -> u64 {
        self.each.iter().map(|(packets, times)| *packets as u64 * times).sum()
    }
}

/// A line of the result.
#[derive(Debug)]
pub(crate) struct Row {
    /// `source` or `destination`.
    pub(crate) by: &'static str,
    pub(crate) series: String,
    pub(crate) counts: Counts,
}

/// The batches of packets that a function divides among queues.
fn divided(tenants: &[u32], queues: usize, queue_of: impl Fn(usize) -> usize) -> Counts {
    let mut waiting = vec![Vec::with_capacity(BATCH); queues];
    let mut counts = Counts::default();
    for (number, tenant) in tenants.iter().enumerate() {
        let queue = &mut waiting[queue_of(number)];
        queue.push(*tenant);
        if queue.len() == BATCH {
            counts.add(queue);
            queue.clear();
        }
    }
    for queue in waiting.iter().filter(|queue| !queue.is_empty()) {
        counts.add(queue);
    }
    counts
}

/// Tenants with their numbers of packets, the most frequent first.
fn by_packets(tenants: &[u32]) -> Vec<(u32, u64)> {
    let mut packets = BTreeMap::<u32, u64>::new();
    for tenant in tenants {
        *packets.entry(*tenant).or_default() += 1;
    }
    let mut sorted: Vec<_> = packets.into_iter().collect();
    sorted.sort_by_key(|(tenant, packets)| (std::cmp::Reverse(*packets), *tenant));
    sorted
}

/// The queue of each tenant: the most frequent first, each to the queue with the fewest packets.
///
/// No port knows the trace beforehand: this is the ideal, and not the choice of the library's `guards::queues`.
fn filters(tenants: &[u32], queues: usize) -> BTreeMap<u32, usize> {
    let mut loads = vec![0u64; queues];
    by_packets(tenants)
        .into_iter()
        .map(|(tenant, packets)| {
            let queue = (0..queues).min_by_key(|queue| loads[*queue]).unwrap_or_default();
            loads[queue] += packets;
            (tenant, queue)
        })
        .collect()
}

/// The rules that a port takes: one with AF_XDP (`af_xdp/choice.rs`), and one with AF_PACKET.
const PORTS: [(&str, usize); 2] = [("af_xdp", 4_096), ("af_packet", MOST_RULES)];
/// Changes of the configuration in a trace. Each derives the filters from what was counted so far.
const CHANGES: usize = 10;

/// The queue of each packet, by the filters that the library derives for the chains of tenants.
///
/// The operator has named as many tenants as the demultiplexer has queues for. Packets of other tenants go by the hash, as do
/// those whose tenants have no rules: because nothing was counted before the first change, or there is no room.
fn derived(trace: &Trace, tenants: &[u32], most: usize) -> Result<Vec<usize>, String> {
    let named: Vec<u32> = by_packets(tenants).into_iter().take(TENANTS).map(|(tenant, _)| tenant).collect();
    let places: BTreeMap<u32, usize> =
        named.iter().enumerate().map(|(place, tenant)| (*tenant, place)).collect();
    let path = |(place, tenant): (usize, &u32)| {
        let network = Prefix::new(network(*tenant).into(), 24).map_err(|error| error.to_string())?;
        let filter = Filter { destination: Some(network), ..Filter::ANY };
        Ok::<_, String>(WalkedPath {
            branches: vec![Some(place)],
            guards: vec![PathGuard { ranks: vec![0], filter, certainty: Certainty::Certain }],
            states: BTreeSet::new(),
            packets: 0,
        })
    };
    let paths = named.iter().enumerate().map(path).collect::<Result<Vec<_>, _>>()?;
    let limits = RuleLimits { most, accepts: |_| true };
    let mut ports = [PathPort { paths, workers: (0..RSS).collect(), limits: Some(limits) }];
    let mut fates: Vec<Option<usize>> = vec![None; named.len()];
    let mut queues = Vec::with_capacity(tenants.len());
    for (number, tenant) in tenants.iter().enumerate() {
        if number > 0 && number.is_multiple_of(tenants.len().div_ceil(CHANGES)) {
            // A worker has one queue here: so its number is the queue's.
            let kept = |_: usize, path: usize| fates.get(path).copied().flatten();
            let rules = derive(&ports, &kept).pop().unwrap_or_default();
            let queue =
                |fate: &Fate| if let Fate::Queue(queue) = fate { Some(usize::from(*queue)) } else { None };
            fates = rules.fates.iter().map(queue).collect();
        }
        let place = places.get(tenant).copied();
        if let Some(path) = place.and_then(|place| ports[0].paths.get_mut(place)) {
            path.packets += 1;
        }
        let by_hash = (trace.packets[number].hash >> 32) as usize % RSS;
        queues.push(place.and_then(|place| *fates.get(place)?).unwrap_or(by_hash));
    }
    Ok(queues)
}

/// Brings packets whose destination names their tenant, as long as few of them are on their way.
struct Replay {
    tenants: Rc<[u32]>,
    next: usize,
    window: usize,
    going: Rc<Cell<usize>>,
}

/// The network of a tenant by its number.
fn network(tenant: u32) -> [u8; 4] {
    let [_, a, b, c] = tenant.to_be_bytes();
    [10 + a, b, c, 0]
}

impl Node for Replay {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.drop_batch(batch, DropReason::Unconnected);
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let left = &self.tenants[self.next..];
        if left.is_empty() {
            return Poll::Done;
        }
        let wanted = left.len().min(BATCH);
        if self.going.get() + wanted > self.window {
            return Poll::Idle;
        }
        let taken = cx.pool().allocate_written_into(batch, wanted, &traffic::frame());
        batch.each_beside(left, |_, frame, tenant| {
            let [a, b, c, _] = network(*tenant);
            frame.data_mut()[30..34].copy_from_slice(&[a, b, c, 1]);
        });
        self.next += taken;
        self.going.set(self.going.get() + taken);
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Counts the batches that come out.
struct Counting {
    counts: Rc<RefCell<Counts>>,
    going: Rc<Cell<usize>>,
}

impl Node for Counting {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.going.set(self.going.get().saturating_sub(batch.len()));
        let tenant = |frame: &[u8]| {
            frame.get(30..34).and_then(|address| address.try_into().ok()).map_or(0, u32::from_be_bytes)
        };
        let tenants: Vec<u32> = batch.iter().map(|packet| tenant(packet.data())).collect();
        self.counts.borrow_mut().add(&tenants);
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// The batches behind our demultiplexer, with so many packets on their way at most.
fn demultiplexed(tenants: &[u32], window: usize) -> Result<Counts, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let queues: Vec<u32> = by_packets(tenants).into_iter().take(TENANTS).map(|(tenant, _)| tenant).collect();
    let (going, counts) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Counts::default())));
    let pool = Pool::builder().frames(2 * window + 1_024).workers(1).build().map_err(|error| text(&error))?;
    let mut graph = GraphBuilder::new("tenants");
    let source = Replay { tenants: tenants.into(), next: 0, window, going: going.clone() };
    let mut last = graph.add("source", Box::new(source)).map_err(|error| text(&error))?;
    let sink = Counting { counts: counts.clone(), going };
    let sink = graph.add("sink", Box::new(sink)).map_err(|error| text(&error))?;
    let mut policies = Vec::new();
    let queue = |graph: &mut GraphBuilder, policies: &mut Vec<TenantPolicy>| {
        let name = format!("queue{}", policies.len());
        let queue = graph.add(name, Box::new(TenantQueue::new(window))).map_err(|error| text(&error))?;
        graph.connect(queue, Edge::OUT, sink, 0).map_err(|error| text(&error))?;
        policies.push(TenantPolicy::new(format!("t{}", policies.len())));
        graph.own(queue, policies.len() as u16);
        Ok::<_, String>(queue)
    };
    let filter = |tenant: &u32| TenantFilter {
        tenant: format!("t{tenant}"),
        addresses: vec![(network(*tenant).into(), 24)],
        vlans: Vec::new(),
    };
    for (group, tenants) in queues.chunks(Demultiplexer::MOST).enumerate() {
        // As for a chain file: each node but the last knows the tenants behind it.
        let later = queues.get((group + 1) * Demultiplexer::MOST..).unwrap_or_default();
        let own = tenants.iter().map(filter).collect();
        let node = match later {
            [] => Demultiplexer::new(own, true),
            _ => Demultiplexer::followed(own, later.iter().map(filter).collect()),
        };
        let node = node.map_err(|error| text(&error))?;
        let node = graph.add(format!("split{group}"), Box::new(node)).map_err(|error| text(&error))?;
        graph.connect(last, Edge::OUT, node, 0).map_err(|error| text(&error))?;
        for way in 0..tenants.len() {
            let queue = queue(&mut graph, &mut policies)?;
            graph.connect(node, Demultiplexer::edge(way), queue, 0).map_err(|error| text(&error))?;
        }
        last = node;
    }
    let others = queue(&mut graph, &mut policies)?;
    graph.connect(last, Edge::OUT, others, 0).map_err(|error| text(&error))?;
    graph.share_among(policies);
    let mut graph = graph.build(pool.clone()).map_err(|error| text(&error))?;
    graph.set_burst(BATCH);
    to_the_end(&mut graph)?;
    drop(graph);
    if pool.available() != pool.capacity() {
        return Err("frames leaked".into());
    }
    Ok(counts.take())
}

/// Runs a graph until its source has ended and nothing waits.
fn to_the_end(graph: &mut Graph) -> Result<(), String> {
    let began = Instant::now();
    'rounds: loop {
        graph.begin_round();
        for _ in 0..64 {
            match graph.turn(1 + began.elapsed().as_nanos() as u64) {
                Turn::Moved(_) => {}
                Turn::Idle(_) => graph.wake(),
                Turn::Done => break 'rounds,
            }
        }
    }
    let (totals, unbalanced) = (graph.totals(), graph.unbalanced());
    if !totals.is_conserved() || !unbalanced.is_empty() || totals.drops.total().packets != 0 {
        return Err(format!("packets are missing: {totals:?} {unbalanced:?}"));
    }
    Ok(())
}

/// Counts the batches of all series.
///
/// # Errors
/// Packets are missing in one of them.
pub(crate) fn run(trace: &Trace) -> Result<Vec<Row>, String> {
    let _slot = WorkerSlot::claim().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    for by in ["source", "destination"] {
        let tenant = |seen: &Seen| if by == "source" { seen.source } else { seen.destination };
        let tenants: Vec<u32> = trace.packets.iter().map(tenant).collect();
        let mut add = |series: String, counts: Counts| {
            if counts.packets() != tenants.len() as u64 {
                return Err(format!("{series}: {} packets of {}", counts.packets(), tenants.len()));
            }
            eprintln!("tenants by {by}: {series}");
            rows.push(Row { by, series, counts });
            Ok(())
        };
        add("one-queue".into(), divided(&tenants, 1, |_| 0))?;
        let hash = |number: usize| (trace.packets[number].hash >> 32) as usize % RSS;
        add(format!("rss-{RSS}"), divided(&tenants, RSS, hash))?;
        for queues in FILTERS {
            let filters = filters(&tenants, queues);
            let counts = divided(&tenants, queues, |number| filters[&tenants[number]]);
            add(format!("ideal-filters-{queues}"), counts)?;
        }
        for (port, most) in PORTS {
            let queues = derived(trace, &tenants, most)?;
            add(format!("filters-{port}-{RSS}"), divided(&tenants, RSS, |number| queues[number]))?;
        }
        for window in WINDOWS {
            add(format!("demultiplexer-{window}"), demultiplexed(&tenants, window)?)?;
        }
    }
    Ok(rows)
}

/// The rows as CSV: distributions, and their means.
pub(crate) fn csv(rows: &[Row]) -> String {
    let mut text = String::from("count,tenant_by,series,value,share\n");
    for Row { by, series, counts } in rows {
        for (name, counts) in [("tenants", &counts.tenants), ("packets", &counts.each)] {
            let all: u64 = counts.values().sum();
            let mut sum = 0;
            for (value, times) in counts {
                sum += times;
                // Writing into text never fails.
                let _ = writeln!(text, "{name},{by},{series},{value},{:.6}", sum as f64 / all as f64);
            }
            let power = |exponent: i32| -> f64 {
                counts.iter().map(|(value, times)| (*value as f64).powi(exponent) * *times as f64).sum()
            };
            let _ = writeln!(text, "{name}-mean,{by},{series},{:.3},1", power(1) / all as f64);
            if name == "packets" {
                let _ = writeln!(text, "packets-beside,{by},{series},{:.3},1", power(2) / power(1));
            }
        }
    }
    text
}
