//! Floods an interface with 64-byte UDP packets of many flows through `af_packet`: `flood DEVICE SECONDS`.
//!
//! This loads the system behind the interface. Prints packets sent a second.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use netbricks_buffer::{Batch, Pool, WorkerSlot};
use netbricks_core::DetachedContext;
use netbricks_ports::{Drivers, OpenContext};
use toml::de::DeTable;

const BURST: usize = 64;

/// A frame of 60 bytes (64 with its FCS) of flow `flow`, to a MAC address that no device has.
fn frame(flow: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame[36..40].copy_from_slice(&[0x13, 0x88, 0, 26]);
    frame
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, seconds] = arguments.as_slice() else {
        return Err("usage: flood DEVICE SECONDS".into());
    };
    let seconds: u64 = seconds.parse()?;
    let _slot = WorkerSlot::claim()?;
    let pool = Pool::builder().frames(4096).for_device(true).build()?;
    let cx =
        OpenContext { pool: pool.clone(), queues: 1, seed: 1, directory: PathBuf::from("."), filters: false };
    let text = format!("device = {device:?}\npromiscuous = false\nring = \"512 KiB\"");
    let drivers = Drivers::standard();
    let driver = drivers.get("af_packet").ok_or("no driver af_packet")?;
    let mut port = driver.open("flood", DeTable::parse(&text)?, &cx)?;
    let mut queue = port.take_transmit(0)?;
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    let start = Instant::now();
    let (mut sent, mut flow) = (0_u64, 0_u16);
    while start.elapsed() < Duration::from_secs(seconds) {
        while batch.len() < BURST {
            flow = (flow + 1) % 1024;
            let Some(packet) = pool.packet(&frame(flow)) else { break };
            let _ = batch.push(packet);
        }
        let before = batch.len();
        queue.transmit(&mut batch, &mut cx);
        sent += (before - batch.len()) as u64;
    }
    println!("flood {:.3} Mpps", sent as f64 / start.elapsed().as_secs_f64() / 1e6);
    Ok(())
}
