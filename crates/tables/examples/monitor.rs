//! The flow monitor of the C baselines over a [`FlowTable`], with the same input.
//!
//! The input has 65,536 flows and a random trace of 655,360 packets in bursts of 32. Each tuple is written into its
//! frame when it is received. It prints nanoseconds a packet.
//!
//! Unlike the C side, the hash is keyed, a key has room for IPv6, and flows expire.

use std::hint::black_box;
use std::time::Instant;

use netbricks_tables::{Entry, FlowTable, FlowTableConfig, FlowTicket, Full, HugeArray, Table};

const FLOWS: usize = 65_536;
const TRACE: usize = FLOWS * 10;
const BURST: usize = 32;
const FRAMES: usize = 4_096;
const FRAME: usize = 2_048;
const HEADROOM: usize = 128;
/// Headrooms that differ by this many cache lines, so that frames do not alias.
///
/// Frames 2 KiB apart share two sets of the first-level cache. The processor also takes loads of one for stores to
/// another, since it compares 12 bits.
const COLOURS: usize = 16;
/// Offsets of the source address and of the ports behind Ethernet and IPv4 without options.
const SOURCE: usize = 26;
const PORTS: usize = 34;
const PROTOCOL: usize = 23;

type Flows = FlowTable<[u64; 5], (u64, u64)>;
type Tuple = [u8; 12];

struct Receiver {
    frames: HugeArray<[u8; FRAME]>,
    trace: Vec<Tuple>,
    frame: usize,
    packet: usize,
}

impl Receiver {
    /// The frames of the next burst, with the trace's next tuples in them.
    #[inline(always)]
    fn receive(&mut self) -> [u32; BURST] {
        let mut burst = [0; BURST];
        for (at, handle) in burst.iter_mut().enumerate() {
            let frame = self.frame + at;
            let start = HEADROOM + frame / 2 % COLOURS * 64;
            let tuple = &self.trace[self.packet + at];
            let bytes = &mut self.frames[frame];
            bytes[start + SOURCE..start + SOURCE + 8].copy_from_slice(&tuple[..8]);
            bytes[start + PORTS..start + PORTS + 4].copy_from_slice(&tuple[8..]);
            *handle = frame as u32;
        }
        self.frame = (self.frame + BURST) % FRAMES;
        self.packet = (self.packet + BURST) % TRACE;
        burst
    }
}

/// Ports and protocol, source and destination, as flow keys have them.
#[inline(always)]
fn key(frame: &[u8; FRAME], start: usize) -> [u64; 5] {
    let bytes = &frame[start..start + 64];
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let first = u64::from(word(PORTS)) << 32 | u64::from(bytes[PROTOCOL]);
    [first, u64::from(word(SOURCE)) << 32 | u64::from(word(SOURCE + 4)), 0, 0, 0]
}

#[inline(never)]
fn monitor(flows: &mut Flows, frames: &HugeArray<[u8; FRAME]>, burst: &[u32; BURST], now: u64) {
    let mut keys = [[0; 5]; BURST];
    flows.tell(now);
    let hasher = flows.hasher();
    let mut tickets: [FlowTicket; BURST] = [FlowTicket::default(); BURST];
    for at in 0..BURST {
        let frame = burst[at] as usize;
        keys[at] = key(&frames[frame], HEADROOM + frame / 2 % COLOURS * 64);
        tickets[at] = Flows::hash(&hasher, &keys[at]);
    }
    for at in 0..BURST {
        flows.prefetch(&keys[at], &mut tickets[at]);
    }
    for at in 0..BURST {
        let entry: Entry<'_, _, _> = flows.resolve(keys[at], tickets[at]);
        if let Some((packets, bytes)) = entry.or_insert_with(|| (0, 0)) {
            *packets += 1;
            *bytes += 64;
        }
    }
}

fn main() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(2_685_821_657_736_338_717)
    };
    let tuples: Vec<Tuple> = (0..FLOWS)
        .map(|_| {
            let mut tuple = [0; 12];
            tuple[..4].copy_from_slice(&(0x0a00_0000 | random() as u32 & 0x00ff_ffff).to_be_bytes());
            tuple[4..].copy_from_slice(&random().to_be_bytes());
            tuple
        })
        .collect();
    let trace = (0..TRACE).map(|_| tuples[random() as usize % FLOWS]).collect();
    let mut frames = HugeArray::<[u8; FRAME]>::zeroed(FRAMES).expect("8 MiB of frames");
    for (at, frame) in frames.iter_mut().enumerate() {
        frame[HEADROOM + at / 2 % COLOURS * 64 + PROTOCOL] = 17;
    }
    let mut receiver = Receiver { frames, trace, frame: 0, packet: 0 };
    let mut flows = Flows::new(FlowTableConfig {
        capacity: FLOWS,
        idle_timeout: Some(30_000_000_000),
        full: Full::EvictOldest,
        seed: 0x5eed,
    })
    .expect("6 MiB of table");

    let mut now = 0;
    let mut pass = |touch: bool| {
        let rounds = 4;
        let start = Instant::now();
        for burst in 0..rounds * TRACE / BURST {
            let packets = receiver.receive();
            now += 320;
            if touch {
                monitor(&mut flows, &receiver.frames, &packets, now);
                if burst % 64 == 0 {
                    flows.expire(now, 64);
                }
            } else {
                black_box(&packets);
            }
        }
        start.elapsed().as_nanos() as f64 / (rounds * TRACE) as f64
    };
    pass(true);
    let mut hand_over: Vec<f64> = (0..3).map(|_| pass(false)).collect();
    let mut whole: Vec<f64> = (0..7).map(|_| pass(true)).collect();
    hand_over.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    let distinct = flows.len();
    let counted: u64 = flows.iter().map(|(_, (packets, _))| packets).sum();
    assert_eq!(counted as usize, 8 * 4 * TRACE, "every packet is counted once");
    println!(
        "monitor-64k {:.2} ns/packet (min {:.2}, max {:.2}; hand over alone {:.2}), {distinct} flows",
        whole[3], whole[0], whole[6], hand_over[1]
    );
}
