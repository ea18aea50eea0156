//! Very many pieces wait behind holes, in mixed order.
//!
//! If the cost of each grew with their number, the tests would not end.

use netbricks_core::packet::Tcp;
use netbricks_core::packet::stack::Header;
use netbricks_core::packet::tcp::flags;
use netbricks_stream::{
    Arrival, BLOCK, Full, Overlap, PacketizeConfig, Packetizer, Passage, Reassembler, Replace, StreamConfig,
    What,
};

use super::exercise::{flow, segment};

/// The byte at a position.
fn byte(position: u32) -> u8 {
    (position.wrapping_mul(0x9e37_79b9) >> 24) as u8
}

/// Every second position from 2 on, in mixed order.
fn pieces(count: u32) -> impl Iterator<Item = u32> {
    assert!(count.is_power_of_two());
    (0..count).map(move |place| 2 + 2 * (place.wrapping_mul(0x9e37_79b1) & (count - 1)))
}

#[test]
fn a_segment_costs_the_same_however_many_wait_beside_it() {
    const COUNT: u32 = 1 << 17;
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let memory = COUNT as usize * BLOCK;
        let config = StreamConfig {
            flows: 1,
            flow_memory: memory,
            memory,
            overlap,
            full: Full::Refuse,
            ..StreamConfig::default()
        };
        let mut streams = Reassembler::<Tcp>::new(config).expect("so little memory is there");
        let mut told = Vec::new();
        let mut push = |number: u32, bytes: &[u8]| {
            streams.push(flow(1), segment(number, bytes), 0, |delivery| match delivery.what {
                What::Bytes(bytes) => told.extend_from_slice(bytes),
                other => panic!("{other:?}"),
            })
        };
        push(0, &[byte(0)]);
        for number in pieces(COUNT) {
            assert_eq!(push(number, &[byte(number)]), Arrival::Waits, "{number}");
        }
        assert_eq!(push(2 * COUNT + 3, b"x"), Arrival::Refused, "each has a block");
        // All pieces again: some are known, wherever they lie.
        let known = if overlap == Overlap::Last { Arrival::Waits } else { Arrival::Old };
        for number in pieces(COUNT) {
            assert_eq!(push(number, &[byte(number)]), known, "{number}");
        }
        for number in (1..2 * COUNT).step_by(2) {
            assert_eq!(push(number, &[byte(number)]), Arrival::InOrder);
        }
        assert_eq!(streams.memory().0, 0);
        let expected: Vec<u8> = (0..=2 * COUNT).map(byte).collect();
        assert!(told == expected, "{overlap:?}: {} bytes of {}", told.len(), expected.len());
    }
}

#[test]
fn so_does_one_of_a_stream_that_is_rewritten() {
    const COUNT: u32 = 1 << 17;
    let memory = COUNT as usize * BLOCK;
    let config = PacketizeConfig { flows: 1, flow_memory: memory, memory, ..PacketizeConfig::default() };
    let replace = Replace::new(b"there is none of this", b"", None).expect("both are short");
    let mut packetizer = Packetizer::new(config, replace).expect("so little memory is there");
    let mut out = Vec::new();
    let mut push = |back: bool, numbers: [u32; 2], flags: u8, bytes: &[u8]| {
        let flow = if back { flow(1).reversed() } else { flow(1) };
        let header = Tcp::new(0, 0, numbers[0], numbers[1], flags).octets();
        packetizer.push(flow, Tcp::view(header.as_ref(), ()), bytes, 0, |emit| {
            // A single old byte asks for an acknowledgment.
            if emit.number.wrapping_sub(100) as usize == out.len() && emit.len > 0 {
                let start = out.len();
                out.resize(start + emit.len, 0);
                emit.write(&mut out[start..]);
            }
            true
        })
    };
    push(false, [99, 0], flags::SYN, b"");
    push(true, [499, 100], flags::SYN | flags::ACK, b"");
    let mut says = |place: u32| push(false, [100 + place, 500], flags::ACK, &[byte(place)]);
    says(0);
    for place in pieces(COUNT) {
        assert_eq!(says(place), Passage::Replaced, "{place}");
    }
    for place in (1..2 * COUNT).step_by(2) {
        assert_eq!(says(place), Passage::Replaced, "{place}");
    }
    let expected: Vec<u8> = (0..=2 * COUNT).map(byte).collect();
    assert!(out == expected, "{} bytes of {}", out.len(), expected.len());
}
