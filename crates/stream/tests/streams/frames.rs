//! Streams in whole frames, from their headers on: urgent data, and windows of 0.

use netbricks_core::packet::Tcp;
use netbricks_core::packet::build::{Builder, ethernet};
use netbricks_stream::{Arrival, End, Overlap, Reassembler, Side, StreamConfig};
use netbricks_testkit::mutate::Random;

use super::captures;
use super::exercise::Told;

/// A client's stream, as an observer sees it.
struct Seen {
    streams: Reassembler<Tcp>,
    told: Told,
}

impl Seen {
    fn new(config: StreamConfig) -> Self {
        let streams = Reassembler::new(config).expect("these bounds are possible");
        Self { streams, told: Told::default() }
    }

    /// Takes a frame. Answers the arrival of its segment, and the deliveries.
    fn take(&mut self, header: Builder<'_, Tcp>, bytes: &[u8]) -> (Arrival, Vec<u8>) {
        let frame = header.payload(bytes).build().expect("all of it fits");
        let (flow, segment) = captures::segment(&frame).expect("it is TCP");
        let before = self.told.stream.len();
        let Self { streams, told } = self;
        let arrival = streams.push(flow, segment, 0, |delivery| {
            if delivery.side == Side::Client {
                told.take(delivery);
            }
        });
        (arrival, told.stream[before..].iter().map(|piece| piece.expect("there is no gap")).collect())
    }

    fn told(&mut self, header: Builder<'_, Tcp>, bytes: &[u8]) -> Vec<u8> {
        self.take(header, bytes).1
    }
}

/// Its bytes begin at `first`.
fn opens(first: u32) -> Builder<'static, Tcp> {
    let tcp = ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80);
    tcp.sequence(first.wrapping_sub(1)).syn()
}

fn client(number: u32) -> Builder<'static, Tcp> {
    let tcp = ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2").tcp(1_000, 80);
    tcp.sequence(number).ack(500)
}

/// The server has all bytes before `acknowledged`, and takes `window` bytes more.
fn server(acknowledged: u32, window: u16) -> Builder<'static, Tcp> {
    let tcp = ethernet().vlan(3).ipv4("10.0.0.2", "10.0.0.1").tcp(80, 1_000);
    tcp.sequence(500).ack(acknowledged).window(window)
}

#[test]
fn an_urgent_byte_is_told_apart_by_every_policy_for_overlaps() {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let mut seen = Seen::new(StreamConfig { overlap, ..StreamConfig::default() });
        seen.told(opens(u32::MAX - 2), b"");
        // A single byte, as `send` with `MSG_OOB` sends it: the pointer is behind it.
        assert_eq!(seen.told(client(u32::MAX - 2), b"one"), b"one");
        assert_eq!(seen.told(client(0).urgent_pointer(1), b"!"), b"");
        assert_eq!(seen.told(client(1).urgent_pointer(4), b"two?three"), b"twothree");
        assert_eq!(seen.told(client(10).urgent_pointer(0), b"+four"), b"four");
        assert_eq!(seen.told(client(15), b"five"), b"five");
        assert_eq!(seen.told(client(0).urgent_pointer(1), b"!"), b"", "it came again");
        // It waits like any other byte.
        assert_eq!(seen.take(client(21).urgent_pointer(1), b"#"), (Arrival::Waits, Vec::new()));
        assert_eq!(seen.told(client(21).urgent_pointer(1), b"#"), b"");
        assert_eq!(seen.told(client(19).urgent_pointer(3), b"66#7"), b"667");
        assert_eq!(seen.told(client(23).urgent_pointer(1).fin(), b"$"), b"");
        assert_eq!(seen.told.end, Some(End::Finished));
        let whole: Vec<u8> = seen.told.stream.iter().filter_map(|piece| piece.ok()).collect();
        assert_eq!(whole, b"onetwothreefourfive667");
    }
}

/// RFC 9293, section 3.8.6.1: a sender with a window of 0 sends a byte behind it from time to time.
///
/// Its receiver keeps that byte or not.
#[test]
fn a_stream_goes_on_whole_behind_a_window_of_0() {
    let rounds = [(false, true), (false, false), (true, true), (true, false)];
    for (kept, shifted) in rounds {
        let mut seen = Seen::new(StreamConfig::default());
        let offers = |tcp: Builder<'static, Tcp>| if shifted { tcp.window_scale(2) } else { tcp };
        seen.told(offers(opens(100)), b"");
        seen.told(offers(server(100, 4).syn()), b"");
        assert_eq!(seen.told(client(100), b"one "), b"one ");
        seen.told(server(104, 0), b"");
        let ignored = (Arrival::Ignored, Vec::new());
        assert_eq!(seen.take(client(105), b"x"), ignored, "behind a window of 0");
        assert_eq!(seen.take(client(105).fin(), b""), ignored);
        // Linux probes with the number before the next byte, others with a byte that the receiver has.
        assert_eq!(seen.told(client(103), b""), b"");
        assert_eq!(seen.take(client(103), b"?"), (Arrival::Old, Vec::new()));
        // The next byte: the observer can't know yet whether the receiver takes it.
        assert_eq!(seen.take(client(104), b"t"), (Arrival::InOrder, b"t".to_vec()));
        seen.told(server(104, 0), b"");
        assert_eq!(seen.take(client(104), b"t"), (Arrival::Old, Vec::new()), "its timer ran out");
        let has = if kept { 105 } else { 104 };
        seen.told(server(has, 0), b"");
        if kept {
            assert_eq!(seen.take(client(106), b"x"), ignored, "the window did not open");
        }
        // The window opens, and the rest comes in other segments and another order.
        seen.told(server(has, 4), b"");
        assert_eq!(seen.take(client(106), b"o"), (Arrival::Waits, Vec::new()));
        assert_eq!(seen.told(client(has), &b"two"[has as usize - 104..2]), b"wo");
        seen.told(server(107, 16), b"");
        assert_eq!(seen.told(client(107).fin(), b" three"), b" three");
        assert_eq!(seen.told.end, Some(End::Finished));
        let whole: Vec<u8> = seen.told.stream.iter().filter_map(|piece| piece.ok()).collect();
        assert_eq!((&whole[..], seen.streams.counters().gaps), (&b"one two three"[..], 0));
    }
}

/// A receiver reads at random times from a buffer of a few bytes, and a sender fills each window.
///
/// Segments come in any order and with losses. The sender probes when the window is 0.
#[test]
fn a_stream_is_whole_for_any_receive_windows() {
    const ROOM: usize = 24;
    let (mut closed, mut refused) = (0, 0);
    for seed in 1..1_500 {
        let mut random = Random::new(seed);
        let policy = random.below(2) == 0;
        let mut seen = Seen::new(StreamConfig { gaps_by_acknowledgment: policy, ..StreamConfig::default() });
        let first = (random.below(200) as u32).wrapping_sub(100);
        let stream: Vec<u8> = (0..1 + random.below(300)).map(|_| random.next() as u8).collect();
        let number = |at: usize| first.wrapping_add(at as u32);
        seen.told(opens(number(0)), b"");
        seen.told(server(number(0), ROOM as u16).syn(), b"");
        let (mut arrived, mut next, mut read) = (vec![false; stream.len()], 0, 0);
        while next < stream.len() {
            let edge = stream.len().min(read + ROOM);
            let mut segments = Vec::new();
            let mut at = next;
            while at < edge {
                let end = edge.min(at + 1 + random.below(9));
                segments.push((random.below(60), at, end));
                at = end;
            }
            if segments.is_empty() {
                closed += 1;
                segments.push((0, next, next + 1));
            }
            segments.sort_unstable();
            for (_, from, to) in segments {
                if random.below(6) == 0 {
                    continue;
                }
                seen.told(client(number(from)), &stream[from..to]);
                // Bytes read since the window was stated make room.
                read += random.below(3) * random.below(next - read + 1) / 2;
                if to <= read + ROOM {
                    arrived[from..to].fill(true);
                } else {
                    refused += 1;
                }
                next += arrived[next..].iter().take_while(|arrived| **arrived).count();
                if random.below(3) > 0 {
                    seen.told(server(number(next), (read + ROOM - next) as u16), b"");
                }
            }
            seen.told(server(number(next), (read + ROOM - next) as u16), b"");
        }
        seen.told(client(number(stream.len())).fin(), b"");
        let whole: Vec<u8> = seen.told.stream.iter().filter_map(|piece| piece.ok()).collect();
        assert_eq!((whole, seen.told.end), (stream, Some(End::Finished)), "seed {seed}");
        assert_eq!(seen.streams.counters().gaps, 0, "seed {seed}");
    }
    assert!(closed > 500 && refused > 100, "{closed} windows of 0, {refused} probes that were not kept");
}
