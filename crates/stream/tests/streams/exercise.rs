//! Arbitrary bytes as schedules of segments: of one stream, against a model, and of connections with any
//! flags.
//!
//! For connections, the test checks the guarantees that hold for each of them. Tests and fuzz targets call
//! this.

use std::collections::BTreeMap;

use netbricks_core::packet::stack::Header;
use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_stream::{
    BLOCK, Counters, Delivery, End, Full, Overlap, Protocol, Reassembler, Segment, Side, StreamConfig, What,
    Window, WindowConfig, Windows,
};

use super::model::Model;

/// Follows the segments in these bytes, with each policy for overlaps.
///
/// Each segment takes four bytes, or fewer at the end: its kind, position, length and content.
pub fn streams(bytes: &[u8]) {
    for overlap in [Overlap::Linux, Overlap::First, Overlap::Last] {
        let config = StreamConfig {
            flows: 1,
            flow_memory: 128 * BLOCK,
            memory: 128 * BLOCK,
            overlap,
            idle: 1_000,
            ..StreamConfig::default()
        };
        let bytes = &bytes[..bytes.len().min(400)];
        let (Ok(mut streams), mut model, mut told) =
            (Reassembler::<Tcp>::new(config), Model::new(overlap), Told::default())
        else {
            panic!("so little memory is there")
        };
        let shown = std::cell::RefCell::new(Vec::new());
        let windows = WindowConfig { streams: config, memory: 64, ..WindowConfig::new(7, 7, 1_000) };
        let Ok(mut windows) = Windows::<Tcp, _>::new(windows, |window: &Window<'_>| {
            if window.side == Side::Client {
                shown.borrow_mut().extend_from_slice(window.fresh());
            }
        }) else {
            panic!("so little memory is there")
        };
        let first = u32::from(bytes.first().copied().unwrap_or_default()).wrapping_sub(100);
        let mut push = |flow: FlowKey, segment: Segment<'_>| {
            windows.push(flow, segment, 0);
            streams.push(flow, segment, 0, |delivery| {
                if delivery.side == Side::Client {
                    told.take(delivery);
                }
            });
        };
        push(flow(1), Segment { opens: true, ..segment(first, &[]) });
        for operation in bytes.chunks(4) {
            let at = |place: usize| operation.get(place).copied().unwrap_or_default();
            let (from, fill) = (u32::from(at(1)), at(3));
            let content: Vec<u8> = (0..at(2) % 48).map(|place| fill.wrapping_mul(place | 1)).collect();
            match at(0) % 8 {
                0 => {
                    let number = u64::from(first.wrapping_add(from));
                    push(flow(1).reversed(), Segment { acknowledges: Some(number), ..segment(7, &[]) });
                    if !model.ended() {
                        model.acknowledged(u64::from(from));
                    }
                }
                kind => {
                    let ends = kind == 1;
                    push(flow(1), Segment { ends, ..segment(first.wrapping_add(from), &content) });
                    model.push(u64::from(from), &content, ends);
                }
            }
        }
        streams.expire(u64::MAX, 1, |delivery| {
            if delivery.side == Side::Client {
                told.take(delivery);
            }
        });
        windows.finish();
        model.flush();
        assert_eq!(told.stream, model.told, "{overlap:?}");
        assert_eq!(
            told.end,
            Some(if model.end.is_some() { End::Finished } else { End::Idle }),
            "{overlap:?}"
        );
        let whole: Vec<u8> = told.stream.iter().filter_map(|piece| piece.ok()).collect();
        assert_eq!(*shown.borrow(), whole, "windows show all of it, {overlap:?}");
    }
}

/// Follows the segments in these bytes, for more connections than there are places. Answers the counters of
/// each policy.
///
/// Each segment takes six bytes: connection and end, flags, number, acknowledgment, length, and time. Numbers
/// are near to those that count, or far off. The deliveries of a direction must follow each other until it
/// ends. At the end no memory is in use.
pub fn connections(bytes: &[u8]) -> [Counters; 3] {
    let policies =
        [(Overlap::Linux, Full::SkipGap), (Overlap::First, Full::Refuse), (Overlap::Last, Full::Evict)];
    policies.map(|(overlap, full)| {
        let config = StreamConfig {
            flows: 2,
            flow_memory: 6 * BLOCK,
            memory: 9 * BLOCK,
            overlap,
            full,
            idle: 2_000,
            gaps_by_acknowledgment: !bytes.len().is_multiple_of(2),
            ..StreamConfig::default()
        };
        let Ok(mut streams) = Reassembler::<Tcp>::new(config) else { panic!("so little memory is there") };
        let mut all: BTreeMap<(u32, Side), Told> = BTreeMap::new();
        let mut take = |delivery: Delivery<'_>| {
            let told = all.entry((delivery.connection, delivery.side)).or_default();
            if told.end.is_some() {
                // Another connection has its place.
                *told = Told::default();
            }
            told.take(delivery);
        };
        let mut now = 0;
        for operation in bytes[..bytes.len().min(1_200)].chunks_exact(6) {
            let &[who, flag, number, acknowledges, len, passes] = operation else { continue };
            let back = who & 4 != 0;
            // Both wrap soon. The number before the first byte is the SYN's.
            let near = |of_server: bool, place: u8| {
                let first = if of_server { 500u32 } else { 100u32.wrapping_neg() };
                let far = if who & 0x70 == 0x70 { u32::from(place) << 24 } else { 0 };
                first.wrapping_add(u32::from(place) % 128).wrapping_sub(2).wrapping_add(far)
            };
            let mut header = Tcp::new(1, 2, near(back, number), near(!back, acknowledges), flag);
            header.set_window(u16::from(who) << 4);
            let header = header.octets();
            let payload: Vec<u8> = (0..len % 80).map(|place| number.wrapping_add(place)).collect();
            let flow = flow(1 + u32::from(who % 3));
            let flow = if back { flow.reversed() } else { flow };
            now += u64::from(passes);
            streams.push(flow, Tcp::segment(Tcp::view(&header, ()), &payload), now, &mut take);
            assert!(streams.memory().0 <= 9 * BLOCK && streams.len() <= 2, "{:?}", streams.memory());
            if passes & 0x40 != 0 {
                streams.expire(now, 1, &mut take);
            }
        }
        streams.finish(&mut take);
        assert_eq!((streams.memory().0, streams.len()), (0, 0), "everything was given back");
        assert!(all.values().all(|told| told.end.is_some()), "something did not end");
        streams.counters()
    })
}

pub(crate) fn flow(number: u32) -> FlowKey {
    let address = |bits: u32| std::net::Ipv4Addr::from_bits(bits).into();
    FlowKey::new(address(0x0a00_0000 | number), address(0xc0a8_0001), 1024 + (number % 50_000) as u16, 80, 6)
}

pub(crate) fn segment(number: u32, bytes: &[u8]) -> Segment<'_> {
    let number = u64::from(number);
    Segment { number, bytes, ..Segment::default() }
}

/// The deliveries of one direction, checked against the guarantees for every direction.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) stream: Vec<Result<u8, u64>>,
    pub(crate) offset: u64,
    pub(crate) end: Option<End>,
}

impl Told {
    pub(crate) fn take(&mut self, delivery: Delivery<'_>) {
        assert_eq!(self.end, None, "something after the end: {delivery:?}");
        assert_eq!(delivery.offset, self.offset, "{delivery:?}");
        match delivery.what {
            What::Bytes(bytes) => {
                assert!(!bytes.is_empty());
                self.stream.extend(bytes.iter().map(|byte| Ok(*byte)));
                self.offset += bytes.len() as u64;
            }
            What::Gap(missing) => {
                assert!(missing > 0);
                self.stream.push(Err(missing));
                self.offset += missing;
            }
            What::Urgent(_) => {}
            What::End(end) => self.end = Some(end),
        }
    }
}
