//! Replacements that are merged because there is no room to know each: the output that arrived is still
//! acknowledged.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{BLOCK, PacketizeConfig, Packetizer, Passage, Replace};
use netbricks_testkit::mutate::Random;

use super::endpoints::{CONFIG, replaced};
use super::exercise::flow;

const ACK: u8 = flags::ACK;
/// Clients' bytes begin at 100; servers' numbers wrap soon.
const CLIENT: u32 = 100;
const SERVER: u32 = u32::MAX - 2_000;
const SEGMENT: usize = 500;

/// Rewrites a server's segments and translates the client's acknowledgments.
struct Middle(Packetizer<Replace>);

impl Middle {
    fn new(find: &[u8], put: &[u8]) -> Self {
        let config = PacketizeConfig { edits: 0, flow_memory: 1 << 20, memory: 1 << 20, ..CONFIG };
        let replace = Replace::new(find, put, None).expect("both strings are short");
        let mut middle = Self(Packetizer::new(config, replace).expect("so little memory is there"));
        middle.push(flow(1), [CLIENT - 1, 0], flags::SYN, b"");
        middle.push(flow(1).reversed(), [SERVER.wrapping_sub(1), CLIENT], flags::SYN | ACK, b"");
        middle.push(flow(1), [CLIENT, SERVER], ACK, b"");
        middle
    }

    /// The segments that are forwarded: numbers and bytes.
    fn push(&mut self, flow: FlowKey, numbers: [u32; 2], flag: u8, bytes: &[u8]) -> Vec<([u32; 2], Vec<u8>)> {
        let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flag);
        header.set_window(u16::MAX);
        let (header, mut out) = (header.octets(), Vec::new());
        let passage = self.0.push(flow, Tcp::view(header.as_ref(), ()), bytes, 0, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out.push(([emit.number, emit.acknowledgment], bytes));
            true
        });
        assert_eq!(passage, Passage::Replaced);
        out
    }

    /// Sends bytes of the server from this position on. Answers the positions and bytes of the output.
    fn server(&mut self, from: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let numbers = [SERVER.wrapping_add(from as u32), CLIENT];
        let place = |number: u32| number.wrapping_sub(SERVER) as usize;
        let out = self.push(flow(1).reversed(), numbers, ACK, bytes);
        out.into_iter().map(|([number, _], bytes)| (place(number), bytes)).collect()
    }

    /// The client acknowledges this many bytes of output. Answers how many bytes the server is told of.
    fn client_has(&mut self, count: usize) -> usize {
        let out = self.push(flow(1), [CLIENT, SERVER.wrapping_add(count as u32)], ACK, b"");
        out[0].0[1].wrapping_sub(SERVER) as usize
    }
}

/// For each number of output bytes, the number of input bytes whose whole output they contain.
fn inputs(data: &[u8], find: &[u8], put: &[u8]) -> Vec<usize> {
    let (mut inputs, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let (count, bytes) = if data[at..].starts_with(find) { (find.len(), put.len()) } else { (1, 1) };
        inputs.extend(std::iter::repeat_n(at, bytes));
        at += count;
    }
    inputs.push(at);
    inputs
}

#[test]
fn arrived_bytes_of_joined_replacements_are_acknowledged() {
    let mut furthest = 0;
    for seed in 1..300 {
        let mut random = Random::new(seed);
        let find: &[u8] = [&b"a"[..], b"ab", b"aab"][random.below(3)];
        let put: &[u8] = [&b"<longer than that>"[..], b"bb", b"x", b""][random.below(4)];
        let mut middle = Middle::new(find, put);
        let data: Vec<u8> = (0..8_000).map(|_| b"aab."[random.below(4)]).chain(*b".").collect();
        let inputs = inputs(&data, find, put);
        let (mut sent, mut has) = (0, 0);
        while sent < data.len() || has + 1 < inputs.len() {
            if sent < data.len() && random.below(3) > 0 {
                let to = (sent + SEGMENT).min(data.len());
                for (from, bytes) in middle.server(sent, &data[sent..to]) {
                    assert!(from + bytes.len() < inputs.len());
                }
                sent = to;
            } else {
                // It acknowledges bytes that went out, and no more.
                let gone = inputs.partition_point(|input| *input + find.len() < sent).max(1) - 1;
                let gone = if sent == data.len() { inputs.len() - 1 } else { gone };
                has += random.below(gone.saturating_sub(has).min(3 * BLOCK) + 1);
                let told = middle.client_has(has);
                // Where it acknowledges nothing new, the server is told nothing new.
                let least =
                    if has > 0 { inputs[has.saturating_sub(BLOCK)].saturating_sub(find.len()) } else { 0 };
                assert!(told <= inputs[has], "seed {seed}: told of {told}, and has {}", inputs[has]);
                assert!(told >= least, "seed {seed}: told of {told}, and has {}", inputs[has]);
                furthest = furthest.max(gone - has);
            }
        }
        assert_eq!(middle.client_has(has), data.len());
    }
    assert!(furthest > 4 * BLOCK, "never much that was not acknowledged: {furthest} bytes");
}

/// Only the first segment of those that it may send at once arrives.
///
/// It sends no more until that one is acknowledged, or until its timer repeats the first unacknowledged
/// segment.
#[test]
fn a_sender_goes_on_with_each_segment_that_arrives() {
    let find = b"a";
    for (put, window) in [(&b"bb"[..], 2 * SEGMENT), (&b"bb"[..], 40 * SEGMENT), (&b""[..], 4_000)] {
        let mut middle = Middle::new(find, put);
        let data: Vec<u8> =
            (0..60_000).map(|at| if at % 3 > 0 { b'a' } else { b'c' + (at % 19) as u8 }).collect();
        let expected = replaced(&data, find, put);
        let (mut told, mut next, mut got) = (0, 0, Vec::new());
        let mut turns = 0;
        while told < data.len() {
            // The bytes of a segment that the client may take at once, if it gets no others.
            let mut arrives = None;
            let mut send = |middle: &mut Middle, got: &[u8], from: usize, to: usize| {
                let out = middle.server(from, &data[from..to]);
                let mut out = out.into_iter();
                let first = out.find(|(from, bytes)| (*from..from + bytes.len()).contains(&got.len()));
                arrives = arrives.take().or(first);
                arrives.is_some()
            };
            let edge = data.len().min(told + window);
            let mut any = false;
            while next < edge {
                let to = edge.min(next + SEGMENT);
                any |= send(&mut middle, &got, next, to);
                next = to;
            }
            if !any {
                send(&mut middle, &got, told, next.min(told + SEGMENT));
            }
            if let Some((from, bytes)) = arrives {
                got.extend(&bytes[got.len() - from..]);
            }
            let before = std::mem::replace(&mut told, middle.client_has(got.len()));
            turns += 1;
            assert!(told > before, "window {window}: it waits at {told}, with {} bytes there", got.len());
        }
        assert!(got == expected, "window {window}: {} bytes of {}", got.len(), expected.len());
        assert!(turns > 20, "{turns}");
    }
}
