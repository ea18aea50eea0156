//! Segments of an attacker who knows a connection's addresses and ports but not its numbers.
//!
//! Through a rewriter they have no more effect than without one.

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{Packetizer, Passage, Replace};

use super::endpoints::CONFIG;
use super::exercise::flow;

const ACK: u8 = flags::ACK;
const RST: u8 = flags::RST;
/// Clients' bytes begin at 100, servers' at 500.
const FIRST: [u32; 2] = [100, 500];
/// Distances from the next byte, ahead or behind.
const FAR: [u32; 6] =
    [200_000, 1 << 24, 1 << 29, (1 << 31) - 1, 200_000u32.wrapping_neg(), (1u32 << 29).wrapping_neg()];

/// Number, acknowledgment, flags and bytes.
type Sent = (u32, u32, u8, Vec<u8>);

struct Middle(Packetizer<Replace>);

impl Middle {
    /// The client has "elephant", which was "cat", and the server nothing.
    fn new() -> Self {
        let mut middle = Self::agreed(b"elephant");
        assert_eq!(middle.server([0, 0], ACK, b"cat")[0].3, b"elephant");
        middle.client([0, 8], ACK, b"");
        middle
    }
    /// A connection without any bytes.
    fn agreed(put: &[u8]) -> Self {
        let replace = Replace::new(b"cat", put, None).expect("both strings are short");
        let mut middle = Self(Packetizer::new(CONFIG, replace).expect("so little memory is there"));
        middle.push(flow(1), [FIRST[0] - 1, 0], flags::SYN, b"");
        middle.push(flow(1).reversed(), [FIRST[1] - 1, FIRST[0]], flags::SYN | ACK, b"");
        middle.client([0, 0], ACK, b"");
        middle
    }
    fn push(&mut self, flow: FlowKey, numbers: [u32; 2], flag: u8, bytes: &[u8]) -> Vec<Sent> {
        let mut header = Tcp::new(0, 0, numbers[0], numbers[1], flag);
        header.set_window(u16::MAX);
        let (header, mut out) = (header.octets(), Vec::new());
        let passage = self.0.push(flow, Tcp::view(header.as_ref(), ()), bytes, 0, |emit| {
            let mut bytes = vec![0; emit.len];
            emit.write(&mut bytes);
            out.push((emit.number, emit.acknowledgment, emit.flags, bytes));
            true
        });
        assert_eq!(passage, Passage::Replaced);
        out
    }
    fn client(&mut self, [at, has]: [u32; 2], flag: u8, bytes: &[u8]) -> Vec<Sent> {
        self.push(flow(1), [FIRST[0].wrapping_add(at), FIRST[1].wrapping_add(has)], flag, bytes)
    }
    fn server(&mut self, [at, has]: [u32; 2], flag: u8, bytes: &[u8]) -> Vec<Sent> {
        self.push(flow(1).reversed(), [FIRST[1].wrapping_add(at), FIRST[0].wrapping_add(has)], flag, bytes)
    }
    /// The server has sent `said` bytes, of which the client has `has` bytes of output.
    fn goes_on(&mut self, [said, has]: [u32; 2]) {
        let out = self.server([said, 0], ACK, b"a cat");
        let bytes: Vec<u8> = out.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
        assert_eq!((out[0].0, &bytes[..]), (FIRST[1] + has, &b"a elephant"[..]));
        let told = self.client([0, has + 10], ACK, b"")[0].1;
        assert_eq!(told, FIRST[1] + said + 5);
    }
}

/// Each end checks the distance (RFC 5961, section 3.2), so it must still see it.
#[test]
fn a_reset_comes_no_nearer_to_where_it_counts() {
    let near = [1, 2, 1_000, 60_000];
    for ahead in FAR.into_iter().chain(near) {
        let mut middle = Middle::new();
        let out = middle.server([3u32.wrapping_add(ahead), 0], RST | ACK, b"");
        let [(number, ..)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(number.wrapping_sub(FIRST[1] + 8), ahead);
        middle.goes_on([3, 8]);
    }
}

/// A reset cannot refer to any byte there, and the next byte is the first.
#[test]
fn segments_before_the_first_byte_stay_before_it() {
    for before in [1, 2, 1_000, 60_000] {
        for flag in [RST | ACK, RST, ACK] {
            for says in [false, true] {
                let mut middle = Middle::agreed(b"elephant");
                if says {
                    // On its way, and not acknowledged.
                    middle.server([0, 0], ACK, b"cat");
                }
                let out = middle.server([0u32.wrapping_sub(before), 0], flag, b"");
                let [(number, _, went, _)] = &out[..] else { panic!("{out:?}") };
                assert_eq!((*number, *went), (FIRST[1].wrapping_sub(before), flag), "{says}");
                let again = middle.server([0, 0], ACK, b"cat");
                assert_eq!((again[0].0, &again[0].3[..]), (FIRST[1], &b"elephant"[..]));
            }
        }
    }
}

#[test]
fn a_reset_counts_where_its_receiver_takes_it() {
    // The client has all bytes, or the last of them are still on their way to it.
    for at in [3, 8] {
        let mut middle = Middle::new();
        middle.server([3, 0], ACK, b"a cat");
        let (number, _, flag, _) = middle.server([at, 0], RST | ACK, b"")[0].clone();
        assert_eq!((number, flag), (FIRST[1] + if at == 3 { 8 } else { 18 }, RST | ACK));
        assert_eq!(middle.0.memory(), 0, "nothing will be sent again");
        // The connection is over: the same ports may open another one.
        middle.push(flow(1), [7_000, 0], flags::SYN, b"");
        middle.push(flow(1).reversed(), [9_000, 7_001], flags::SYN | ACK, b"");
        middle.push(flow(1), [7_001, 9_001], ACK, b"");
        assert_eq!(middle.push(flow(1).reversed(), [9_001, 7_001], ACK, b"cat")[0].3, b"elephant");
    }
}

/// Else bytes that the receiver misses would be forgotten.
#[test]
fn an_acknowledgment_counts_only_with_right_numbers() {
    for ahead in FAR {
        let mut middle = Middle::new();
        middle.server([3, 0], ACK, b"a cat");
        let out = middle.client([ahead, 18], ACK, b"forged");
        assert_eq!(out, [(FIRST[0].wrapping_add(ahead), FIRST[1] + 8, ACK, Vec::new())]);
        let again = middle.server([3, 0], ACK, b"a cat");
        assert_eq!((again[0].0, &again[0].3[..]), (FIRST[1] + 8, &b"a elephant"[..]));
    }
}

/// RFC 5961, section 4: an end that gets the SYN answers with its numbers.
///
/// Only the other end can react to these.
#[test]
fn an_agreed_connection_is_not_opened_again() {
    for said in [false, true] {
        for (from, flag) in [(flow(1), flags::SYN), (flow(1).reversed(), flags::SYN | ACK)] {
            let mut middle = if said { Middle::new() } else { Middle::agreed(b"elephant") };
            let out = middle.push(from, [0x1234_5678, 77], flag, b"");
            assert_eq!(out, [(0x1234_5678, 77, flag, Vec::new())], "it goes on as it came");
            middle.goes_on(if said { [3, 8] } else { [0, 0] });
        }
    }
}

/// No other segment brings the rest of the output to it.
#[test]
fn an_end_that_finished_is_sent_the_rest_of_the_output() {
    let mut middle = Middle::agreed(&[b'x'; 2_000]);
    middle.client([0, 0], ACK | flags::FIN, b"");
    let out = middle.server([0, 1], ACK | flags::FIN, &b"cat".repeat(10));
    let mut got: usize = out.iter().map(|(.., bytes)| bytes.len()).sum();
    assert!(got < 20_000, "all of it went at once");
    for _ in 0..100 {
        let out = middle.client([1, got as u32], ACK, b"");
        for (number, _, _, bytes) in &out[1..] {
            assert_eq!(*number, FIRST[1] + got as u32, "in order, and once");
            got += bytes.len();
        }
    }
    assert_eq!(got, 20_000);
}
