//! TCP segments for `reassemble`, from connections that take turns at random.
//!
//! In each connection, one pair of segments in ten comes in the wrong order.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_buffer::{Batch, Packet};
use netbricks_core::packet::{Ip, Link, Tcp, protocol};
use netbricks_core::{Function, Handler, Input, NoSettings, Operator, Registry, Verdict, Worker, compose};
use netbricks_stream::{StreamConfig, StreamOperator, WindowConfig};

use super::feed::{FRAME, Trace};

/// Connections, one direction each.
const CONNECTIONS: usize = 4_096;
/// Place of the addresses, ports and sequence number, which follow each other.
const LABEL: std::ops::Range<usize> = 26..42;
/// Bytes that a segment carries.
pub(super) const CARRIED: usize = FRAME - 54;
/// One pair of a connection's segments in this number is exchanged.
const PAIRS: u32 = 10;
/// Bytes of a window.
const WINDOW: usize = 1_024;

/// Windows over every TCP stream.
///
/// Handlers tell the bytes that were shown, the bytes that will never be shown, and the number of windows
/// that did not follow the window before.
fn windows(input: Input, worker: &Worker) -> impl Function + use<> {
    let [shown, missing, misplaced] = [(); 3].map(|()| Rc::new(Cell::new(0u64)));
    for (name, summary, count) in [
        ("misplaced", "Windows that do not follow the one before.", misplaced.clone()),
        ("shown", "Bytes in windows so far.", shown.clone()),
        ("missing", "Bytes in gaps so far.", missing.clone()),
    ] {
        worker.handler(Handler::read(name, summary), move |_| Ok(count.get().to_string()));
    }
    let streams = StreamConfig { flows: 2 * CONNECTIONS, seed: worker.seed(), ..StreamConfig::default() };
    let config = WindowConfig { streams, ..WindowConfig::new(WINDOW, WINDOW, streams.idle) };
    // The begin of each direction's next window.
    let mut next = vec![0u64; 2 * streams.flows];
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Tcp>()
        .or(Verdict::PASS)
        .window(worker, "streams", config, move |window| {
            let fresh = window.offset + window.seen as u64;
            if let Some(next) = next.get_mut(2 * window.connection as usize + window.side as usize) {
                misplaced.set(misplaced.get() + u64::from(*next != fresh));
                *next = fresh + window.fresh().len() as u64;
            }
            shown.set(shown.get() + window.fresh().len() as u64);
            missing.set(missing.get() + window.gap);
        })
        .done()
}

/// Adds `windows`, for the measured chain.
pub(super) fn register(registry: &mut Registry) {
    registry.add("windows", "Windows over TCP streams.", |_: &NoSettings, worker| {
        compose(worker, |input| windows(input, worker))
    });
}

/// The frame that segments are written into: Ethernet, IPv4 with TTL 255, TCP with an acknowledgment.
pub(super) fn write(packet: &mut Packet) {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 8, 0]);
    frame[14] = 0x45;
    frame[17] = (FRAME - 14) as u8;
    frame[22] = 255;
    frame[23] = protocol::TCP;
    frame[46] = 5 << 4;
    frame[47] = 0x10;
    if packet.len() == FRAME {
        packet.data_mut().copy_from_slice(&frame);
    }
}

/// The sender of a segment, and its place in the stream.
struct Segment {
    tuple: [u8; 12],
    /// The place of its first byte in the first run of the trace.
    place: u32,
    /// The bytes that the connection carries in one run of the trace.
    whole: u32,
}

/// Writes a segment into each frame, in the order of the trace's flows.
///
/// When the trace begins again, each stream goes on from its last byte.
pub(super) fn hook(trace: &Trace) -> Box<dyn FnMut(&mut Batch)> {
    let segments = segments(trace);
    let (mut next, mut run) = (0, 0u32);
    Box::new(move |batch| {
        if segments.len() - next < batch.len() {
            (next, run) = (0, run.wrapping_add(1));
        }
        let these = &segments[next..];
        next += batch.len();
        batch.each(|slot, bytes| {
            if let (Some(label), Some(segment)) = (bytes.data_mut().get_mut(LABEL), these.get(slot)) {
                label[..12].copy_from_slice(&segment.tuple);
                // The sequence numbers wrap within the first run.
                let sequence = run.wrapping_mul(segment.whole).wrapping_add(segment.place).wrapping_sub(500);
                label[12..].copy_from_slice(&sequence.to_be_bytes());
            }
        });
    })
}

fn segments(trace: &Trace) -> Vec<Segment> {
    let mut whole = [0u32; CONNECTIONS];
    let order: Vec<(usize, u32)> = trace
        .packets()
        .map(|flow| {
            let number = &mut whole[flow % CONNECTIONS];
            *number += 1;
            (flow % CONNECTIONS, *number - 1)
        })
        .collect();
    let segment = |(connection, number): (usize, u32)| {
        let partner = number ^ 1;
        let exchanged = number / 2 % PAIRS == PAIRS / 2 && partner < whole[connection];
        let place = if exchanged { partner } else { number };
        let carried = CARRIED as u32;
        Segment { tuple: trace.flow(connection), place: place * carried, whole: whole[connection] * carried }
    };
    order.into_iter().map(segment).collect()
}
