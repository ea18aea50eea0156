//! Holes in many streams at once, and memory for only a part of the waiting bytes.
//!
//! Bytes that fill a hole are forwarded.

use netbricks_core::packet::tcp::flags;
use netbricks_stream::{BLOCK, PacketizeConfig, Packetizer, Passage, Replace};

use super::endpoints::{CONFIG, replaced};
use super::exercise::flow;
use super::inline_windows::Way;

const SEGMENT: usize = BLOCK;
/// The most blocks of a direction, and of all.
const SHARE: usize = 64;
const ALL: usize = 256;

fn middle() -> Way<Replace> {
    let config = PacketizeConfig {
        flows: 64,
        flow_memory: SHARE * BLOCK,
        memory: ALL * BLOCK,
        edits: 65_536,
        ..CONFIG
    };
    let replace = Replace::new(b"a", b"b", None).expect("both are short");
    Way { packetizer: Packetizer::new(config, replace).expect("so little memory is there"), now: 0 }
}

/// A client that sends all its bytes to a server, with the numbers of [`Way::open`].
struct Client {
    number: u32,
    data: Vec<u8>,
    /// Bytes that the server acknowledged to it.
    una: usize,
    /// Bytes that the server has, and the number of those without a gap.
    has: Vec<Option<u8>>,
    got: usize,
}

impl Client {
    fn new(middle: &mut Way<Replace>, number: u32, segments: usize) -> Self {
        middle.open(number);
        let byte = |at: usize| b'a' + (at.wrapping_mul(0x9e37_79b9 + number as usize) >> 20) as u8 % 3;
        let data: Vec<u8> = (0..segments * SEGMENT).map(byte).collect();
        Self { number, una: 0, has: vec![None; data.len()], got: 0, data }
    }

    /// Sends the segment at this position. Answers its passage, and how many bytes reached the server.
    fn send(&mut self, middle: &mut Way<Replace>, at: usize) -> (Passage, usize) {
        let bytes = &self.data[at..at + SEGMENT];
        let (passage, out) = middle.says(self.number, 100 + at as u32, bytes);
        let mut count = 0;
        for (back, number, _, _, bytes) in out {
            assert!(!back);
            // A single byte only asks for an acknowledgment.
            if bytes.len() > 1 {
                let at = number.wrapping_sub(100) as usize;
                bytes.iter().zip(at..).for_each(|(byte, at)| {
                    assert_eq!(*self.has[at].get_or_insert(*byte), *byte, "byte {at} is another than before");
                });
                count += bytes.len();
            }
        }
        (passage, count)
    }

    /// The server acknowledges its bytes.
    fn is_told(&mut self, middle: &mut Way<Replace>) {
        while self.has.get(self.got).is_some_and(Option::is_some) {
            self.got += 1;
        }
        let numbers = [500, 100 + self.got as u32];
        let (_, out) = middle.push(flow(self.number).reversed(), numbers, flags::ACK, b"");
        for (_, _, acknowledgment, ..) in out.iter().filter(|(back, ..)| !back) {
            self.una = self.una.max(acknowledgment.wrapping_sub(100) as usize);
        }
    }

    /// Sends unacknowledged bytes again until all of them are there.
    fn goes_on(&mut self, middle: &mut Way<Replace>) {
        self.is_told(middle);
        while self.una < self.data.len() {
            let una = self.una;
            self.send(middle, una);
            self.is_told(middle);
            assert!(self.una > una, "{} is stuck at {una}: {:?}", self.number, middle.packetizer.counters());
        }
        let has: Vec<u8> = self.has.iter().copied().flatten().collect();
        assert!(has == replaced(&self.data, b"a", b"b"), "{}", self.number);
    }
}

#[test]
fn segments_that_fill_a_hole_go_on_while_other_holes_wait() {
    const SEGMENTS: usize = 28;
    let mut middle = middle();
    let mut clients: Vec<Client> =
        (1..=12).map(|number| Client::new(&mut middle, number, SEGMENTS)).collect();
    let mut waited = 0;
    for client in &mut clients {
        for at in 1..SEGMENTS {
            let before = middle.packetizer.memory();
            let (passage, count) = client.send(&mut middle, at * SEGMENT);
            assert_eq!((passage, count), (Passage::Replaced, 0));
            waited += middle.packetizer.memory() - before;
        }
    }
    assert_eq!(waited, ALL * BLOCK, "no more could wait");
    // Nothing is acknowledged when the last missing segment comes.
    let mut gone_on = 0;
    for client in &mut clients {
        let (passage, count) = client.send(&mut middle, 0);
        assert_eq!(passage, Passage::Replaced, "{}", client.number);
        assert!(count >= SEGMENT, "{}: {count}", client.number);
        gone_on += count - SEGMENT;
    }
    let counters = middle.packetizer.counters();
    assert!(gone_on > 0 && counters.thrown_away > 0, "{gone_on}, {counters:?}");
    assert_eq!(waited, gone_on + counters.thrown_away as usize, "each byte went on or was counted");
    assert_eq!(counters.no_room, 0);
    clients.iter_mut().for_each(|client| client.goes_on(&mut middle));
    assert_eq!((middle.packetizer.memory(), middle.packetizer.counters().no_room), (0, 0));
}

#[test]
fn segments_that_fill_a_hole_go_on_without_other_acknowledgments() {
    let mut middle = middle();
    let mut client = Client::new(&mut middle, 1, 29);
    for at in 1..29 {
        assert_eq!(client.send(&mut middle, at * SEGMENT).0, Passage::Replaced);
    }
    assert_eq!(middle.packetizer.memory(), 28 * BLOCK, "all but the first wait");
    for number in 2..=6 {
        let mut other = Client::new(&mut middle, number, SHARE);
        let mut at = 0;
        while at < SHARE && other.send(&mut middle, at * SEGMENT).0 == Passage::Replaced {
            at += 1;
        }
        assert!(at > 8, "{number}: {at}");
    }
    assert_eq!(client.send(&mut middle, 0), (Passage::Replaced, SEGMENT));
    assert_eq!(middle.packetizer.counters().thrown_away, 28 * BLOCK as u64);
    client.goes_on(&mut middle);
}

/// Each direction that acknowledges nothing has one part of the memory, and one part is left.
///
/// The same is true where each segment comes before the one that was sent before it.
#[test]
fn a_sender_that_reorders_gets_no_more_than_its_share() {
    const MANY: usize = 7;
    let mut middle = middle();
    let mut many: Vec<(Client, usize)> =
        (0..MANY).map(|number| (Client::new(&mut middle, 10 + number as u32, 2 * SHARE), 0)).collect();
    loop {
        let before: usize = many.iter().map(|(_, count)| *count).sum();
        for (client, count) in &mut many {
            if *count + 2 * SEGMENT <= client.data.len() {
                client.send(&mut middle, *count + SEGMENT);
                *count += client.send(&mut middle, *count).1;
            }
        }
        if many.iter().map(|(_, count)| *count).sum::<usize>() == before {
            break;
        }
    }
    let part = ALL / (MANY + 1);
    for (client, count) in &many {
        let blocks = count / BLOCK;
        assert!((part - 4..=part).contains(&blocks), "{}: {blocks} blocks of {part}", client.number);
    }
    let mut last = Client::new(&mut middle, 1, 40);
    for at in (1..8).rev() {
        assert_eq!(last.send(&mut middle, at * SEGMENT), (Passage::Replaced, 0));
    }
    assert_eq!(last.send(&mut middle, 0), (Passage::Replaced, 8 * SEGMENT), "there is room for all of it");
    last.goes_on(&mut middle);
}
