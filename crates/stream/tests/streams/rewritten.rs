//! Arbitrary bytes as segments of a few rewritten connections. Tests and a fuzz target call this.

use std::collections::BTreeMap;

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    BLOCK, MidstreamPolicy, PacketizeConfig, PacketizeCounters, Packetizer, Passage, Replace,
};

/// The number of places for connections: fewer than there are connections.
const ROOM: usize = 3;
const CONNECTIONS: u8 = 4;
/// Bytes of memory in total, and of one direction.
const MEMORY: usize = 6 * BLOCK;
/// The words that a stream repeats.
const WORDS: &[u8] = b"cat cacat concat ca";

/// The options of a segment.
///
/// They are: none, time stamps, those of an opening, a block of a selective acknowledgment, unknown ones, and
/// ones that are cut off.
const OPTIONS: [&[u8]; 6] = [
    &[],
    &[1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7],
    &[4, 2, 2, 4, 0, 64, 3, 3, 7, 1, 1, 0],
    &[1, 1, 5, 10, 0, 0, 0, 120, 0, 0, 0, 140],
    &[5, 18, 0, 0, 0, 90, 0, 0, 0, 80, 0, 0, 0, 130, 255, 255, 255, 255, 1, 1],
    &[254, 3, 7, 5, 200, 0, 3, 1],
];

/// Follows the segments in these bytes, and answers the counters.
///
/// Each segment takes eight bytes: connection and end, flags, sequence and acknowledgment number, length,
/// options, time, and whether the output can be sent. Memory stays within its bounds. A byte that went out
/// has the same value whenever it goes out again.
pub fn rewritten(bytes: &[u8]) -> PacketizeCounters {
    let midstream =
        if bytes.len().is_multiple_of(2) { MidstreamPolicy::Pass } else { MidstreamPolicy::Refuse };
    let config = PacketizeConfig {
        flows: ROOM,
        flow_memory: MEMORY,
        memory: MEMORY,
        edits: 16,
        midstream,
        ..PacketizeConfig::default()
    };
    let replace = Replace::new(b"cat", b"elephant", None);
    let (Ok(replace), bytes) = (replace, &bytes[..bytes.len().min(1_600)]) else { panic!("both are short") };
    let Ok(mut packetizer) = Packetizer::new(config, replace) else { panic!("so little memory is there") };
    let mut now = 0;
    // By connection and direction: the output since the last opening, by number.
    let mut sent: BTreeMap<(u32, bool), BTreeMap<u32, u8>> = BTreeMap::new();
    for operation in bytes.chunks_exact(8) {
        let &[who, flag, number, acknowledges, length, kind, passes, refuses] = operation else { continue };
        let (connection, back) = (u32::from(who % CONNECTIONS), who & 4 != 0);
        let address = |last: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 | last).into();
        let flow = FlowKey::new(address(connection), address(200), 1_024, 80, 6);
        let flow = if back { flow.reversed() } else { flow };
        // Both wrap soon, and sometimes lie before the first byte.
        let first = if back { 500u32 } else { 100u32.wrapping_neg() };
        let near = |first: u32, at: u8| first.wrapping_add(u32::from(at)).wrapping_sub(2);
        let number = near(first, number);
        let options = OPTIONS[usize::from(kind) % OPTIONS.len()];
        let opens = flag & flags::SYN != 0;
        if opens {
            for way in [false, true] {
                sent.remove(&(connection, way));
            }
        }
        let acknowledged = near(if back { 100u32.wrapping_neg() } else { 500 }, acknowledges);
        let mut header = Tcp::new(1, 2, number, acknowledged, flag);
        header.set_window(u16::from(kind) << 6);
        header.set_options_len(options.len());
        let header = [&header.octets(), options].concat();
        // Sometimes a sender sends other bytes the second time.
        let says = |place: u32| match kind & 0xc0 {
            0xc0 => kind,
            _ => WORDS[place as usize % WORDS.len()],
        };
        let payload: Vec<u8> = (0..u32::from(length % 96)).map(|at| says(number.wrapping_add(at))).collect();
        // Mostly some milliseconds; sometimes long enough for a connection to be forgotten.
        now += u64::from(passes) * if passes < 0xf0 { 1_000_000 } else { 1_000_000_000 };
        let mut left = usize::from(refuses % 8);
        let view = Tcp::view(&header, ());
        let passage = packetizer.push(flow, view, &payload, now, |emit| {
            assert!(emit.options.len().is_multiple_of(4) && emit.options.len() <= 40, "{emit:?}");
            assert!(emit.len <= payload.len() + 8 * payload.len() + MEMORY, "{emit:?}");
            let [mut bytes, mut other] = [vec![0; emit.len], vec![1; emit.len]];
            emit.write(&mut bytes);
            emit.write(&mut other);
            if left == 0 && refuses % 8 != 0 {
                return false;
            }
            left = left.saturating_sub(1);
            // A keep-alive sends a byte that does not count and is not written.
            if bytes != other {
                return true;
            }
            let known = sent.entry((connection, back != emit.back)).or_default();
            for (number, byte) in (0..).map(|at| emit.number.wrapping_add(at)).zip(bytes) {
                let before = *known.entry(number).or_insert(byte);
                assert_eq!(before, byte, "byte {number} of connection {connection} is another one now");
            }
            true
        });
        if midstream == MidstreamPolicy::Refuse {
            assert_ne!(passage, Passage::Unchanged, "a stranger passed");
        }
        assert!(packetizer.memory() <= 2 * MEMORY, "{} bytes", packetizer.memory());
        assert!(packetizer.occupancy().0 <= ROOM);
        if passes & 0x40 != 0 {
            packetizer.expire(now, 2);
        }
    }
    packetizer.finish();
    assert_eq!((packetizer.memory(), packetizer.occupancy().0), (0, 0), "everything was given back");
    packetizer.counters()
}
