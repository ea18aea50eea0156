//! Streams in which nearly every byte is replaced.
//!
//! There are too many replacements to know each one separately, for a direction's share of them or for all of
//! them.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp, TcpOption, tcp_options};
use netbricks_stream::{PacketizeConfig, Packetizer, Passage, Replace};
use netbricks_testkit::mutate::Random;

use super::endpoints::{CONFIG, conversation, replaced};
use super::exercise::flow;

const ACK: u8 = flags::ACK;
const SEGMENT: usize = 1_460;
/// Clients' bytes begin at 100, servers' at 500.
const FIRST: [u32; 2] = [100, 500];
/// The window scale of both ends, and a receiver's window field: 384,000 bytes.
const SHIFT: u8 = 7;
const WINDOW: u16 = 3_000;
/// Options: the segment size, selective acknowledgments, and the window scale.
const OPENING: [u8; 12] = [2, 4, (SEGMENT >> 8) as u8, SEGMENT as u8, 4, 2, 3, 3, SHIFT, 1, 1, 0];

struct Sent {
    number: u32,
    acknowledgment: u32,
    window: u16,
    options: Vec<u8>,
    bytes: Vec<u8>,
}

struct Middle {
    packetizer: Packetizer<Replace>,
    /// The window field of its ends' segments.
    window: u16,
}

impl Middle {
    fn new(config: PacketizeConfig, find: &[u8], put: &[u8]) -> Self {
        let replace = Replace::new(find, put, None).expect("both are short");
        let packetizer = Packetizer::new(config, replace).expect("so little memory is there");
        Self { packetizer, window: WINDOW }
    }

    /// The passage of a segment, the segments that are sent onwards, and those that are sent back.
    fn push(
        &mut self,
        flow: FlowKey,
        numbers: [u32; 2],
        flag: u8,
        options: &[u8],
        bytes: &[u8],
    ) -> (Passage, [Vec<Sent>; 2]) {
        let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flag);
        header.set_window(self.window);
        header.set_options_len(options.len());
        let header = [&header.octets(), options].concat();
        let mut out = [Vec::new(), Vec::new()];
        let passage = self.packetizer.push(flow, Tcp::view(&header, ()), bytes, 0, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out[usize::from(emit.back)].push(Sent {
                number: emit.number,
                acknowledgment: emit.acknowledgment,
                window: emit.window,
                options: emit.options.to_vec(),
                bytes,
            });
            true
        });
        (passage, out)
    }

    fn shake_hands(&mut self, number: u32) {
        let (there, back) = (flow(number), flow(number).reversed());
        self.push(there, [FIRST[0] - 1, 0], flags::SYN, &OPENING, b"");
        self.push(back, [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK, &OPENING, b"");
        self.push(there, [FIRST[0], FIRST[1]], ACK, &[], b"");
    }

    /// Sends bytes of the server; answers the passage and the output bytes for the client.
    fn server(&mut self, number: u32, at: usize, bytes: &[u8]) -> (Passage, Vec<u8>) {
        let numbers = [FIRST[1].wrapping_add(at as u32), FIRST[0]];
        let (passage, [on, _]) = self.push(flow(number).reversed(), numbers, ACK, &[], bytes);
        (passage, on.into_iter().flat_map(|sent| sent.bytes).collect())
    }
    fn client_has(&mut self, number: u32, count: usize) {
        let numbers = [FIRST[0], FIRST[1].wrapping_add(count as u32)];
        self.push(flow(number), numbers, ACK, &[], b"");
    }
}

/// A server's stream, and the bytes `has` of the client.
struct Transfer {
    data: Vec<u8>,
    /// Positions: acknowledged, sent, and the edge of the window.
    una: usize,
    next: usize,
    edge: usize,
    /// Bytes that a selective acknowledgment reported.
    told: Vec<bool>,
    has: Vec<Option<u8>>,
    got: usize,
}

impl Transfer {
    /// Sends a segment to the rewriter, and its output to the ends.
    fn send(&mut self, middle: &mut Middle, from: usize) -> Passage {
        let to = (from + SEGMENT).min(self.next);
        let numbers = [FIRST[1].wrapping_add(from as u32), FIRST[0]];
        let (passage, [on, back]) = middle.push(flow(1).reversed(), numbers, ACK, &[], &self.data[from..to]);
        back.into_iter().for_each(|sent| self.take(sent));
        for sent in on {
            self.arrive(middle, sent);
        }
        passage
    }

    /// Output reaches the client, which acknowledges its bytes. The rewriter may have more for it.
    fn arrive(&mut self, middle: &mut Middle, sent: Sent) {
        let mut coming = std::collections::VecDeque::from([sent]);
        while let Some(sent) = coming.pop_front() {
            let first = sent.number.wrapping_sub(FIRST[1]).cast_signed();
            for (at, byte) in (i64::from(first)..).zip(&sent.bytes) {
                let Ok(at) = usize::try_from(at) else { continue };
                // A single old byte only asks for an acknowledgment.
                if at >= self.got || sent.bytes.len() > 1 {
                    assert_eq!(*self.has[at].get_or_insert(*byte), *byte, "byte {at} is another than before");
                }
            }
            while self.has.get(self.got).is_some_and(Option::is_some) {
                self.got += 1;
            }
            let numbers = [FIRST[0], FIRST[1].wrapping_add(self.got as u32)];
            let (_, [on, back]) = middle.push(flow(1), numbers, ACK, &[], b"");
            on.into_iter().for_each(|sent| self.take(sent));
            coming.extend(back);
        }
    }

    /// An acknowledgment reaches the server.
    fn take(&mut self, sent: Sent) {
        let una = sent.acknowledgment.wrapping_sub(FIRST[1]) as usize;
        assert!(una <= self.next, "acknowledged what was not sent");
        self.una = self.una.max(una);
        self.edge = self.edge.max(una + (usize::from(sent.window) << SHIFT));
        for option in tcp_options::TcpOptions::new(&sent.options).flatten() {
            if let TcpOption::Sack(blocks) = option {
                for (from, to) in blocks.iter() {
                    let [from, to] = [from, to].map(|number| number.wrapping_sub(FIRST[1]) as usize);
                    self.told[from..to].fill(true);
                }
            }
        }
    }
}

/// Sends all that the window permits. The first segment is lost whenever it is sent for the first time.
///
/// Bytes that were not reported are then sent again.
fn with_a_hole_in_each_flight(find: &[u8], put: &[u8]) {
    let mut middle = Middle::new(PacketizeConfig::default(), find, put);
    middle.shake_hands(1);
    // Mostly the string to find; the other bytes identify their position.
    let data: Vec<u8> =
        (0..700_000).map(|at| if at % 7 > 0 { find[0] } else { b'c' + (at / 7 % 20) as u8 }).collect();
    let expected = replaced(&data, find, put);
    let size = data.len();
    let mut transfer = Transfer {
        told: vec![false; size],
        has: vec![None; expected.len()],
        data,
        una: 0,
        next: 0,
        edge: 0,
        got: 0,
    };
    // The acknowledgment and window that the server was last told, by the client's first segment.
    let (_, [on, _]) = middle.push(flow(1), [FIRST[0], FIRST[1]], ACK, &[], b"");
    on.into_iter().for_each(|sent| transfer.take(sent));
    let mut widest = 0;
    for flight in 0.. {
        assert!(flight < 100, "it does not end: {} of {size}", transfer.una);
        if transfer.una == size {
            break;
        }
        let from = transfer.next;
        transfer.next = transfer.edge.min(size).max(from);
        widest = widest.max(transfer.next - transfer.una);
        let lost = from + SEGMENT;
        for at in (from..transfer.next).step_by(SEGMENT).filter(|at| *at >= lost) {
            transfer.send(&mut middle, at);
        }
        let mut at = transfer.una;
        while at < transfer.next {
            if transfer.told[at] || at < transfer.una {
                at += 1;
                continue;
            }
            assert_eq!(transfer.send(&mut middle, at), Passage::Replaced, "byte {at} of flight {flight}");
            at = (at + SEGMENT).min(transfer.next);
        }
    }
    assert!(widest > 150_000, "nothing much waited: {widest} bytes");
    assert_eq!(middle.packetizer.counters().no_room, 0);
    let got: Vec<u8> = transfer.has.into_iter().flatten().collect();
    assert!(got == expected, "{} bytes of {}", got.len(), expected.len());
}

#[test]
fn a_hole_is_filled_however_much_is_replaced_behind_it() {
    with_a_hole_in_each_flight(b"a", b"b");
}

#[test]
fn a_hole_is_filled_before_what_gets_longer() {
    with_a_hole_in_each_flight(b"a", b"bb");
}

/// Readers that acknowledge nothing take their share of the replacements, one after the other.
///
/// Other connections continue.
#[test]
fn readers_that_acknowledge_nothing_stop_no_other_connection() {
    let mut middle = Middle::new(PacketizeConfig::default(), b"a", b"b");
    for number in 1..6 {
        middle.shake_hands(number);
        let mut at = 0;
        // The server ignores the window that it is told.
        while at < 1 << 20 && middle.server(number, at, &[b'a'; SEGMENT]).0 == Passage::Replaced {
            at += SEGMENT;
        }
        assert!(at > 100_000, "{number} was stopped by itself: {at}");
    }
    middle.shake_hands(6);
    let mut has = 0;
    for _ in 0..50 {
        let (passage, bytes) = middle.server(6, has, &[b'a'; SEGMENT]);
        assert_eq!((passage, bytes), (Passage::Replaced, vec![b'b'; SEGMENT]));
        has += SEGMENT;
        middle.client_has(6, has);
    }
}

/// The sender has sent all its bytes, and was told of no window since.
#[test]
fn the_rest_of_a_replacement_reaches_a_receiver_that_takes_less() {
    let put: Vec<u8> = (0..3_000).map(|at| (at % 251) as u8).collect();
    let mut middle = Middle::new(PacketizeConfig::default(), b"a", &put);
    middle.shake_hands(1);
    middle.server(1, 0, b"-");
    middle.client_has(1, 1);
    assert_eq!(middle.server(1, 1, b"a").1, put);
    // All but the first segment is lost.
    middle.window = 512 >> SHIFT;
    middle.client_has(1, 1 + SEGMENT);
    let (passage, bytes) = middle.server(1, 0, b"");
    assert_eq!((passage, &bytes[..]), (Passage::Replaced, &put[SEGMENT..SEGMENT + 512]));
}

/// Few or no replacements are known separately: those that follow are acknowledged together with them.
#[test]
fn replacements_that_count_as_one_change_no_byte() {
    let mut all = 0;
    for seed in 1..600 {
        let mut random = Random::new(seed);
        let find: &[u8] = [&b"aab"[..], b"abcab", b"a", b"bbbb"][random.below(4)];
        let put: &[u8] = [&b"<longer than that>"[..], b"x", b"", b"aab"][random.below(4)];
        let config = PacketizeConfig { edits: [0, 1, 2, 8, 64][random.below(5)], ..CONFIG };
        let replace = Replace::new(find, put, None).expect("both strings are short");
        let trouble = [0, 1, 5, 12][seed as usize % 4];
        let (mut packetizer, _) =
            conversation(random, trouble, config, replace, |data| replaced(data, find, put));
        all += packetizer.counters().replaced;
        packetizer.finish();
        assert_eq!(packetizer.memory(), 0);
    }
    assert!(all > 5_000, "{all}");
}
