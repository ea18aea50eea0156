//! A million sessions of `nat`: the longest time of a batch while they are made, used, and end.
//!
//! `cargo bench -p netbricks-functions --bench nat`
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{DetachedContext, Node, Settings, Worker};
use netbricks_functions::nat::{NatConfig, node};
use netbricks_testkit::build::ethernet;

const SESSIONS: u32 = 1_000_000;
const BURST: u32 = 32;
const SECOND: u64 = 1_000_000_000;

/// The times of batches.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn show(&mut self, name: &str) {
        self.0.sort_unstable();
        let at = |share: f64| self.0[((self.0.len() - 1) as f64 * share) as usize];
        let over = self.0.iter().filter(|time| **time > Duration::from_millis(1)).count();
        println!(
            "{name:24} {:7} batches: median {:?}, 99.9 % {:?}, longest {:?}, over 1 ms {over}",
            self.0.len(),
            at(0.5),
            at(0.999),
            at(1.0)
        );
        self.0.clear();
    }
}

/// The packet of a session: 16 of each of 62,500 hosts.
fn packet(number: u32) -> Vec<u8> {
    let host = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number / 16);
    let from = host.to_string();
    let frame = ethernet().ipv4(from.as_str(), "198.51.100.1").udp(2_000 + (number % 16) as u16, 53);
    frame.payload(&[0; 18]).build().unwrap_or_default()
}

fn run(node: &mut dyn Node, cx: &mut DetachedContext, frames: &[Vec<u8>], times: &mut Times) -> usize {
    let mut batch = Batch::new();
    for frame in frames {
        if let Some(packet) = cx.pool().packet(frame) {
            let _ = batch.push(packet);
        }
    }
    let start = Instant::now();
    node.process(0, &mut batch, cx);
    times.0.push(start.elapsed());
    batch.len()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text =
        "inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.0/26\"]\ncapacity = 1_048_576\nudp = \"10 s\"\n";
    let config: NatConfig = toml::from_str(text)?;
    config.check()?;
    let pool = Pool::builder().frames(1_024).build()?;
    let worker = Worker::new(0, 1, pool.clone());
    let mut node = node(&config, &worker)?;
    let (mut cx, mut times) = (DetachedContext::new(pool), Times::default());
    let frames: Vec<Vec<u8>> = (0..SESSIONS).map(packet).collect();
    for (round, name) in ["made", "used"].into_iter().enumerate() {
        let mut left = 0;
        for (number, burst) in frames.chunks(BURST as usize).enumerate() {
            // A second for all.
            cx.advance(
                SECOND * (1 + round as u64) + number as u64 * SECOND * u64::from(BURST) / u64::from(SESSIONS),
            );
            left += run(node.as_mut(), &mut cx, burst, &mut times);
        }
        println!(
            "{left} of {SESSIONS} packets translated, sessions {}",
            node.call("translations.occupancy", "")?
        );
        times.show(name);
    }
    // All sessions end at once, while other packets come.
    let other = [packet(SESSIONS)];
    cx.advance(20 * SECOND);
    let mut batches = 0;
    while !node.call("translations.occupancy", "")?.starts_with("1 ") && batches < 1_000_000 {
        run(node.as_mut(), &mut cx, &other, &mut times);
        batches += 1;
    }
    times.show("ended");
    Ok(())
}
