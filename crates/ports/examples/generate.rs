//! Measures how fast the generator makes packets on this core.
//!
//! `cargo run --release -p netbricks-ports --example generate -- 'flows = 65536'`

use std::error::Error;
use std::time::Instant;

use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::DetachedContext;
use netbricks_ports::{Drivers, OpenContext};
use toml::de::DeTable;

const PACKETS: usize = 20_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(4_096).build()?;
    let settings = std::env::args().nth(1).unwrap_or_default();
    let cx = OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: ".".into(), filters: false };
    let drivers = Drivers::standard();
    let driver = drivers.get("generator").ok_or("no generator")?;
    let mut port = driver.open("generator", DeTable::parse(&settings)?, &cx)?;
    let mut queue = port.take_receive(0)?;
    let (mut batch, mut cx) = (Batch::new(), DetachedContext::new(pool));
    for _ in 0..7 {
        let (mut made, start) = (0, Instant::now());
        while made < PACKETS {
            queue.receive(&mut batch, &mut cx);
            made += batch.len();
            batch.clear();
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{:.1} Mpps, {:.1} ns a packet", made as f64 / seconds / 1e6, seconds / made as f64 * 1e9);
    }
    Ok(())
}
