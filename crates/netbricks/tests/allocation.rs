//! Tests that a warm process neither allocates nor frees memory in whole runs.
//!
//! The runs cover one worker with its loop, ports, wrappers and captures. The library's own
//! `tests/allocation` covers single functions.
//!
//! All allocations of the process are counted, so this binary has one test. Ports on devices need root; for
//! them it starts itself again, within a network namespace.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::alloc::System;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use netbricks::Drivers;
use netbricks::prelude::*;
use netbricks_buffer::Pool;
use netbricks_core::{Graph, GraphBuilder};
use netbricks_functions::{monitor, ttl};
use netbricks_ports::{OpenContext, Port, ReceiveNode, TransmitNode};
use netbricks_runtime::{Clock, Config, Factory, FactoryError, FinalReport, Runtime, WorkerContext};
use netbricks_testkit::namespace::Namespaces;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use toml::de::DeTable;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Packets that the last node sees before it counts.
const WARM: u64 = 40_000;
/// Packets during which it counts.
const COUNTED: u64 = 100_000;
const END: u64 = WARM + COUNTED;

/// The allocations while [`COUNTED`] packets passed.
#[derive(Default)]
struct Meter {
    /// Set when the thread that started the run only waits for its end.
    alone: Arc<AtomicBool>,
    passed: u64,
    region: Option<Region<'static, System>>,
    change: Option<Stats>,
}

impl Meter {
    fn pass(&mut self) {
        self.passed += 1;
        match self.passed {
            1 => {
                while !self.alone.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
            WARM => self.region = Some(Region::new(ALLOCATOR)),
            END => self.change = self.region.as_ref().map(Region::change),
            _ => {}
        }
    }
}

/// A chain: two ports by driver and settings, and whether a box is made for each packet on the way.
struct Chain {
    from: (&'static str, String),
    to: (&'static str, String),
    wasteful: bool,
}

fn chain(from: (&'static str, impl Into<String>), to: (&'static str, impl Into<String>)) -> Chain {
    Chain { from: (from.0, from.1.into()), to: (to.0, to.1.into()), wasteful: false }
}

type Ports = Vec<[Box<dyn Port>; 2]>;

/// Builds every chain with its functions; the meter stands at the end of the chain with the given number.
fn graph(
    cx: &WorkerContext,
    ports: &mut Ports,
    wasteful: bool,
    (metered, meter): (usize, &Arc<Mutex<Meter>>),
) -> Result<Graph, FactoryError> {
    let mut builder = GraphBuilder::new("warm");
    for (number, [from, to]) in ports.iter_mut().enumerate() {
        let config = ttl::TtlConfig::default();
        let ttl = compose(cx.worker(), |input| ttl::ttl(input, &config, cx.worker()))?;
        let config = monitor::MonitorConfig { capacity: 1_000, ..Default::default() };
        let monitor = compose(cx.worker(), |input| monitor::monitor(input, &config, cx.worker()))?;
        let meter = (number == metered).then(|| meter.clone());
        let inspected = compose(cx.worker(), |input| {
            input
                .inspect(move |packet| {
                    if wasteful {
                        drop(black_box(Box::new(packet.frame_len())));
                    }
                    if let Some(meter) = &meter {
                        meter.lock().unwrap().pass();
                    }
                })
                .done()
        })?;
        let mut place = builder
            .add(format!("in{number}"), Box::new(ReceiveNode::take(&mut **from, number as u16, 0)?))?;
        let out: Box<dyn Node> = Box::new(TransmitNode::take(&mut **to, 0)?);
        for (name, node) in [("ttl", ttl), ("monitor", monitor), ("inspected", inspected), ("out", out)] {
            let next = builder.add(format!("{name}{number}"), node)?;
            builder.connect(place, Edge::OUT, next, 0)?;
            place = next;
        }
    }
    Ok(builder.build(cx.pool().clone())?)
}

/// Runs the chains until they end or `packets` have arrived.
fn run(directory: &Directory, chains: &[Chain], packets: Option<u64>) -> (FinalReport, Stats) {
    let drivers = Drivers::standard();
    let for_device =
        chains.iter().any(|chain| drivers.get(chain.to.0).is_some_and(|driver| driver.device_frames));
    let pool = Pool::builder().frames(8_192).for_device(for_device).large(64, 16_384).build().unwrap();
    let cx = OpenContext {
        pool: pool.clone(),
        queues: 1,
        seed: 1,
        directory: directory.0.clone(),
        filters: false,
    };
    let open = |name: String, (driver, settings): &(&str, String)| {
        drivers.get(driver).unwrap().open(&name, DeTable::parse(settings).unwrap(), &cx).unwrap()
    };
    let ports: Ports = chains
        .iter()
        .enumerate()
        .map(|(number, chain)| {
            [open(format!("from{number}"), &chain.from), open(format!("to{number}"), &chain.to)]
        })
        .collect();
    let drives_clock = ports.iter().all(|[from, _]| from.capabilities().drives_clock);
    let wasteful = chains.iter().any(|chain| chain.wasteful);
    // Packets that come from another chain are counted when they have arrived; else at the end of the last
    // chain.
    let metered = chains.iter().rposition(|chain| chain.from.0 != "generator").unwrap_or(chains.len() - 1);
    let alone = Arc::new(AtomicBool::new(false));
    let meter = Arc::new(Mutex::new(Meter { alone: alone.clone(), ..Meter::default() }));
    let ports = Arc::new(Mutex::new(ports));
    let mut config = Config::new(pool);
    config.packets = packets;
    let runtime = Runtime::start(config, |_| {
        let (ports, meter) = (ports.clone(), meter.clone());
        let factory =
            Factory::new(move |cx| graph(cx, &mut ports.lock().unwrap(), wasteful, (metered, &meter)));
        factory.clock(if drives_clock { Clock::Driven } else { Clock::real() })
    });
    let runtime = runtime.unwrap();
    alone.store(true, Ordering::Release);
    let report = runtime.wait();
    assert!(report.conserved, "{:?}", report.state.unbalanced);
    for port in ports.lock().unwrap().iter_mut().flatten() {
        assert!(port.failure().is_none(), "{:?}", port.failure());
        port.close().unwrap();
    }
    let change = meter.lock().unwrap().change.expect("packets enough passed");
    (report, change)
}

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl std::ops::Drop for Directory {
    fn drop(&mut self) {
        // An error is ignored: the files then stay in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn nothing_is_allocated(directory: &Directory, name: &str, chains: &[Chain], packets: Option<u64>) {
    let (report, change) = run(directory, chains, packets);
    let totals = &report.state.totals;
    assert!(totals.received.packets >= END, "{name}: {totals:?}");
    assert_eq!(
        (change.allocations, change.deallocations, change.reallocations),
        (0, 0, 0),
        "{name}: {change:?}"
    );
}

/// Whether this process is the one within the namespace.
const WITHIN: &str = "NETBRICKS_ALLOCATION_WITHIN";

/// Starts this test again in a namespace with pairs of interfaces, where root may make interfaces.
fn run_live_within() {
    let Some(namespaces) = Namespaces::new(&["box"], &[]) else { return };
    for [one, other] in VETH {
        namespaces.veth(("box", one), ("box", other));
        for device in [one, other] {
            // AF_XDP needs these settings.
            namespaces.run("box", &format!("ethtool -K {device} tx off rx off tso off gso off gro off"));
        }
    }
    let program = std::env::current_exe().unwrap();
    let output = namespaces.command("box", program.to_str().unwrap()).env(WITHIN, "1").output().unwrap();
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
}

/// Pairs of interfaces in the namespace.
const VETH: [[&str; 2]; 2] = [["p0", "p1"], ["x0", "x1"]];

/// Each driver of devices receives and transmits here. The generator leaves the worker turns without packets.
fn live(directory: &Directory) {
    let generator = || ("generator", "flows = 300\nclock = 'real'\nrate = '400 kpps'");
    let device = |driver: &'static str, device: &str| (driver, format!("device = '{device}'"));
    let null = || ("null", "");
    let pair = |driver, [one, other]: [&str; 2]| {
        vec![chain(generator(), device(driver, one)), chain(device(driver, other), null())]
    };
    let runs = [
        ("af_packet", pair("af_packet", VETH[0])),
        ("af_xdp", pair("af_xdp", VETH[1])),
        ("to a tap", vec![chain(generator(), device("tap", "t0")), chain(device("af_packet", "t0"), null())]),
        (
            "from a tap",
            vec![chain(device("tap", "t1"), null()), chain(generator(), device("af_packet", "t1"))],
        ),
    ];
    for (name, chains) in runs {
        // The generator's packets count, too, and a device may lose some packets.
        nothing_is_allocated(directory, name, &chains, Some(3 * END));
    }
}

#[test]
fn nothing_is_allocated_or_freed_for_a_packet() {
    let directory =
        Directory(std::env::temp_dir().join(format!("netbricks-allocation-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).unwrap();
    let generator = |more: &str| ("generator", format!("flows = 300\npackets = 200_000\n{more}"));
    // Without this, the tests below could pass because nothing is counted. The test's own thread and its
    // starter allocate no more after this run.
    let wasteful = Chain { wasteful: true, ..chain(generator(""), ("null", "")) };
    let (_, change) = run(&directory, &[wasteful], None);
    assert!(change.allocations.min(change.deallocations) as u64 >= COUNTED, "{change:?}");
    if std::env::var_os(WITHIN).is_some() {
        return live(&directory);
    }
    let bad = "loss = 0.05\nduplicate = 0.05\nreorder = 0.05\ncorrupt = 0.01\ndelay = '20 us'\njitter = '10 us'\nchecksum = 'drop'";
    let runs: [(&str, Vec<Chain>, Option<u64>); 7] = [
        ("generator", vec![chain(generator(""), ("null", ""))], None),
        ("its own clock", vec![chain(generator("clock = 'real'"), ("null", ""))], None),
        (
            "captures of both ends",
            vec![chain(generator("capture = 'from.pcapng'"), ("null", "capture = 'to.pcapng'"))],
            None,
        ),
        ("bad lines at both ends", vec![chain(generator(bad), ("null", bad))], None),
        (
            "captures written",
            vec![
                chain(generator(""), ("pcap", "write = 'out.pcap'\nprecision = 'us'")),
                chain(generator(""), ("pcap", "write = 'out.pcapng.gz'\nsnap_length = 96")),
            ],
            None,
        ),
        ("a capture read", vec![chain(("pcap", "read = 'out.pcap'"), ("null", ""))], None),
        (
            "memory",
            vec![
                chain(("generator", "flows = 300"), ("memory", "peer = 'from1'")),
                chain(("memory", "peer = 'to0'"), ("null", "capture = 'memory.pcap'")),
            ],
            Some(500_000),
        ),
    ];
    for (name, chains, packets) in runs {
        nothing_is_allocated(&directory, name, &chains, packets);
    }
    // The one exception: for a packet in a pcapng file, the parser makes a vector of its options, here the
    // direction.
    let replay = chain(("pcap", "read = 'from.pcapng'"), ("null", ""));
    let (_, change) = run(&directory, &[replay], None);
    assert!((COUNTED..2 * COUNTED).contains(&(change.allocations as u64)), "{change:?}");
    run_live_within();
}
