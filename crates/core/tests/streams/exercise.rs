//! Any bytes as a schedule of segments, against the model. Tests and a fuzz target call this.

use netbricks_core::packet::{FlowKey, Tcp};
use netbricks_core::stream::{
    BLOCK, Delivery, End, Overlap, Reassembler, Segment, Side, StreamConfig, What, Window, WindowConfig,
    Windows,
};

use super::model::Model;

/// Follows what the bytes say, with each policy for overlaps: four bytes a segment (what it is, from where, how long, what
/// with), or fewer at the end.
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

pub(crate) fn flow(number: u32) -> FlowKey {
    let address = |bits: u32| std::net::Ipv4Addr::from_bits(bits).into();
    FlowKey::new(address(0x0a00_0000 | number), address(0xc0a8_0001), 1024 + (number % 50_000) as u16, 80, 6)
}

pub(crate) fn segment(number: u32, bytes: &[u8]) -> Segment<'_> {
    let number = u64::from(number);
    Segment {
        number,
        opens: false,
        answers: false,
        ends: false,
        aborts: false,
        acknowledges: None,
        credit: None,
        bytes,
    }
}

/// What was told of one direction, held against what every direction promises.
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
            What::End(end) => self.end = Some(end),
        }
    }
}
