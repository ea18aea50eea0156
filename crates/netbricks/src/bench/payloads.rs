//! The traffic of the benchmark of signatures: payloads of letters, and rules of which one stands in some of them.

use netbricks_buffer::Packet;
use netbricks_packet::build::ethernet;

/// Bytes of a frame, without FCS.
pub(super) const FRAME: usize = 14 + 20 + 8 + PAYLOAD;
/// Bytes of its payload.
const PAYLOAD: usize = 1_400;
/// Rules.
const RULES: usize = 1_000;
/// One packet in so many has the literal of a rule.
pub(super) const MATCHING: usize = 64;

/// Random numbers (xorshift64*), the same for each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(2_685_821_657_736_338_717) % end
    }
}

/// The literals: 8 to 23 letters and digits.
fn literals() -> Vec<String> {
    let mut random = Random(0x5167_6e61_7475_7265);
    let letter =
        |random: &mut Random| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[random.below(36) as usize]);
    (0..RULES).map(|_| (0..8 + random.below(16)).map(|_| letter(&mut random)).collect()).collect()
}

/// The rules, as an operator would write them.
pub(super) fn rules() -> Vec<String> {
    let rule = |(sid, literal): (usize, String)| {
        format!("alert udp any any -> any any (content:\"{literal}\"; sid:{};)", sid + 1)
    };
    literals().into_iter().enumerate().map(rule).collect()
}

/// The frames in circulation.
pub(super) fn frames(count: usize) -> Vec<Vec<u8>> {
    let literals = literals();
    let mut random = Random(0x0070_6179_6c6f_6164);
    (0..count)
        .map(|number| {
            // Words of a page, in lower and upper case.
            let mut payload: Vec<u8> = (0..PAYLOAD)
                .map(|_| b"etaoinshrdlu cmfwypvbgkjqxz ETAOIN.,</=\n"[random.below(40) as usize])
                .collect();
            if number % MATCHING == 0 {
                let literal = literals[number / MATCHING % RULES].as_bytes();
                let at = random.below((PAYLOAD - literal.len()) as u64) as usize;
                payload[at..at + literal.len()].copy_from_slice(literal);
            }
            let port = 1_024 + (number % 60_000) as u16;
            let datagram = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).payload(&payload);
            // A frame of these parts is always possible.
            datagram.build().unwrap_or_default()
        })
        .collect()
}

/// Writes a frame into a packet of its length.
pub(super) fn write(frame: &[u8], packet: &mut Packet) {
    packet.data_mut().copy_from_slice(frame);
}
