//! Figure 7: the policer between two interfaces through AF_XDP, and the flood before it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::{DetachedContext, Edge, GraphBuilder, Turn, Worker};
use netbricks_ports::{Drivers, OpenContext, Port, ReceiveNode, TransmitNode};
use toml::de::DeTable;

use crate::modes::{self, Mode, pin};
use crate::traffic;

/// Packets in a batch.
const BURST: usize = 32;
/// Flows of the flood, each from an address of its own.
const FLOWS: u16 = 1_024;

fn open(driver: &str, device: &str, rest: &str, pool: &Pool) -> Result<Box<dyn Port>, String> {
    let drivers = Drivers::standard();
    let known = drivers.get(driver).ok_or_else(|| format!("there is no driver `{driver}`"))?;
    let cx =
        OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: PathBuf::from("."), filters: false };
    let text = format!("device = {device:?}\n{rest}");
    let table = DeTable::parse(&text).map_err(|error| error.to_string())?;
    known.open(device, table, &cx).map_err(|error| format!("{device}: {error}"))
}

/// Forwards from one interface to the other through the policer; answers a line of CSV.
///
/// # Errors
/// An interface or a module fails, or packets are missing.
pub(crate) fn forward(
    modules: &Path,
    devices: [&str; 2],
    mode: &str,
    seconds: u64,
    core: Option<usize>,
) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let known = Mode::ALL.into_iter().find(|known| known.name() == mode);
    let mode = known.ok_or_else(|| format!("there is no mode `{mode}`"))?;
    pin(core)?;
    let _slot = WorkerSlot::claim().map_err(|error| text(&error))?;
    let pool = Pool::builder().frames(16_384).for_device(true).build().map_err(|error| text(&error))?;
    let worker = Worker::new(0, 1, pool.clone());
    let mut ports = [open("af_xdp", devices[0], "", &pool)?, open("af_xdp", devices[1], "", &pool)?];
    let blueprint = modes::blueprint(modules, "policer", mode, &[])?;
    let mut graph = GraphBuilder::new("policer");
    let receive = ReceiveNode::take(&mut *ports[0], 0, 0).map_err(|error| text(&error))?;
    let transmit = TransmitNode::take(&mut *ports[1], 0).map_err(|error| text(&error))?;
    let source = graph.add("in", Box::new(receive)).map_err(|error| text(&error))?;
    let function = graph.add_function("policer", &blueprint, &worker).map_err(|error| text(&error))?;
    let sink = graph.add("out", Box::new(transmit)).map_err(|error| text(&error))?;
    graph.connect(source, Edge::OUT, function, 0).map_err(|error| text(&error))?;
    let ways: Vec<Edge> = graph.outputs(function).iter().map(|output| output.edge).collect();
    for edge in ways {
        graph.connect(function, edge, sink, 0).map_err(|error| text(&error))?;
    }
    let mut graph = graph.build(pool).map_err(|error| text(&error))?;
    graph.set_burst(BURST);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        match graph.turns(1_000_000_000 + began.elapsed().as_nanos() as u64, 64).0 {
            Turn::Moved(_) => {}
            Turn::Idle(_) => graph.wake(),
            Turn::Done => break,
        }
    }
    let totals = graph.totals();
    if !totals.is_conserved() {
        return Err(format!("packets are missing: {totals:?}"));
    }
    let (received, sent) = (totals.received.packets, totals.sent.packets);
    let dropped = totals.drops.total().packets;
    Ok(format!("{},{received},{sent},{dropped},{:.3}\n", mode.name(), began.elapsed().as_secs_f64()))
}

/// Sends frames of 60 bytes as fast as the interface takes them; answers their number.
///
/// # Errors
/// The interface fails.
pub(crate) fn flood(device: &str, seconds: u64, core: Option<usize>) -> Result<String, String> {
    pin(core)?;
    let _slot = WorkerSlot::claim().map_err(|error| error.to_string())?;
    let pool = Pool::builder().frames(4_096).for_device(true).build().map_err(|error| error.to_string())?;
    let mut port = open("af_packet", device, "promiscuous = false\nring = \"512 KiB\"", &pool)?;
    let mut queue = port.take_transmit(0).map_err(|error| error.to_string())?;
    let mut cx = DetachedContext::new(pool.clone());
    let (mut batch, mut sent, mut flow) = (Batch::new(), 0u64, 0u16);
    let mut frame = traffic::frame();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        while batch.len() < 2 * BURST {
            flow = (flow + 1) % FLOWS;
            frame[28..30].copy_from_slice(&flow.to_be_bytes());
            let Some(packet) = pool.packet(&frame) else { break };
            if batch.push(packet).is_err() {
                break;
            }
        }
        let before = batch.len();
        queue.transmit(&mut batch, &mut cx);
        sent += (before - batch.len()) as u64;
    }
    Ok(format!("{sent} {:.3}\n", began.elapsed().as_secs_f64()))
}
