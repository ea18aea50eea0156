//! Forwards between two ports on one core, to measure drivers alone:
//! `forward 'driver = "af_xdp"  device = "veth0"' 'driver = "af_xdp"  device = "veth1"' SECONDS`.
//!
//! Prints one line: packets received and sent a second.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netbricks_buffer::{Pool, WorkerSlot};
use netbricks_core::{Edge, GraphBuilder, Turn};
use netbricks_ports::{Drivers, OpenContext, Port, ReceiveNode, TransmitNode};
use toml::de::DeTable;

fn open(name: &str, text: &str, cx: &OpenContext) -> Result<Box<dyn Port>, Box<dyn Error>> {
    let text = text.replace("  ", "\n");
    let mut table = DeTable::parse(&text)?;
    let driver = table.get_mut().remove("driver").ok_or("`driver` is missing")?;
    let driver = driver.get_ref().as_str().ok_or("`driver` must be text")?.to_owned();
    let drivers = Drivers::standard();
    let driver = drivers.get(&driver).ok_or_else(|| format!("no driver `{driver}`"))?;
    Ok(driver.open(name, table, cx)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [left, right, seconds] = arguments.as_slice() else {
        return Err("usage: forward LEFT-TOML RIGHT-TOML SECONDS".into());
    };
    let seconds: u64 = seconds.parse()?;
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(16_384).for_device(true).large(64, 69_632).build()?;
    let cx =
        OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: PathBuf::from("."), filters: false };
    let mut ports = [open("left", left, &cx)?, open("right", right, &cx)?];
    for warning in ports.iter().flat_map(|port| port.warnings()) {
        eprintln!("warning: {warning}");
    }
    let mut builder = GraphBuilder::new("forward");
    let mut nodes = Vec::new();
    for (number, port) in ports.iter_mut().enumerate() {
        let receive = Box::new(ReceiveNode::take(&mut **port, number as u16, 0)?);
        let transmit = Box::new(TransmitNode::take(&mut **port, 0)?);
        nodes.push((
            builder.add(format!("{number} in"), receive)?,
            builder.add(format!("{number} out"), transmit)?,
        ));
    }
    builder.connect(nodes[0].0, Edge::OUT, nodes[1].1, 0)?;
    builder.connect(nodes[1].0, Edge::OUT, nodes[0].1, 0)?;
    let mut graph = builder.build(pool.clone())?;
    let start = Instant::now();
    let mut turns = [0_u64; 2];
    while start.elapsed() < Duration::from_secs(seconds) {
        match graph.turn(start.elapsed().as_nanos() as u64) {
            Turn::Moved(_) => turns[0] += 1,
            Turn::Idle(_) => {
                turns[1] += 1;
                graph.wake();
            }
            Turn::Done => break,
        }
    }
    let totals = graph.totals();
    let rate = |packets: u64| packets as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!(
        "received {:.3} Mpps, sent {:.3} Mpps, {:.1} packets a busy turn, {} idle turns, conserved {}",
        rate(totals.received.packets),
        rate(totals.sent.packets),
        totals.received.packets as f64 / turns[0].max(1) as f64,
        turns[1],
        totals.is_conserved(),
    );
    for (reason, count) in totals.drops.iter() {
        println!("  dropped {} {reason}", count.packets);
    }
    for port in &ports {
        for counters in port.counters() {
            println!("  {}: {counters:?}", port.name());
        }
    }
    drop(graph);
    drop(ports);
    println!("  pool {} of {}", pool.available(), pool.capacity());
    Ok(())
}
