//! Tests of declared state: names, handlers and capacity.

use netbricks_tables::{Full, Table};

use super::*;

#[test]
fn a_counters_image_is_versioned_and_checked() {
    let counted = Counter::default();
    counted.add(u64::MAX - 5);
    let image = CounterState(counted).export();
    let here = Counter::default();
    here.add(7);
    let mut state = CounterState(here.clone());
    let mut refused = |bytes: &[u8]| {
        let problem = state.import(bytes, 0).unwrap_err();
        assert_eq!(here.get(), 7, "{problem}");
        problem
    };
    for bit in 0..image.len() * 8 {
        let mut changed = image.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        refused(&changed);
    }
    (0..image.len()).for_each(|at| drop(refused(&image[..at])));
    refused(&[0; 8]);
    // Another version under a right checksum, and another number of counters.
    let mut other = image.clone();
    other[5] = 1;
    let end = other.len() - 4;
    let checksum = crc32(&other[..end]);
    other[end..].copy_from_slice(&checksum.to_be_bytes());
    let problem = refused(&other);
    assert!(problem.contains("version"), "{problem}");
    refused(&netbricks_tables::CounterArray::new(2).encode());
    state.import(&image, 0).unwrap();
    assert_eq!(here.get(), u64::MAX - 5);
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// A copy is imported as a whole or not at all; moving flows exist nowhere else.
#[test]
fn of_flows_that_moved_those_come_that_have_room() {
    let filled = |keys: std::ops::Range<u64>| {
        let config = FlowTableConfig { full: Full::Refuse, ..FlowTableConfig::new(100) };
        let mut table: FlowTable<[u64; 1], u64> = FlowTable::new(config).unwrap();
        for key in keys {
            table.lookup([key], 0).or_insert_with(|| key).unwrap();
        }
        table
    };
    let counts = |table: &FlowTable<[u64; 1], u64>| (table.len(), table.counters().refused);
    let (mut from, mut to) = (filled(0..80), filled(1_000..1_070));
    let problem = to.import(&Declared::export(&from), 0).unwrap_err();
    assert!(problem.contains("no room for 80 exported flows"), "{problem}");
    assert_eq!(counts(&to), (70, 0));
    let (moved, next) = take_moved(&mut from, 0, |_| true);
    assert_eq!(next, None, "128 slots");
    assert!(from.is_empty());
    for bit in 0..moved.len() * 8 {
        let mut changed = moved.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(to.import(&changed, 0).is_err(), "bit {bit}");
    }
    assert_eq!(counts(&to), (70, 0));
    to.import(&moved, 0).unwrap();
    assert_eq!(counts(&to), (100, 50));
}

#[test]
fn counters_are_no_entries() {
    struct Idle;
    impl crate::Node for Idle {
        fn process(&mut self, _: usize, _: &mut netbricks_buffer::Batch, _: &mut crate::Context) {}
    }
    let worker = Worker::new(0, 1, netbricks_buffer::Pool::builder().frames(64).build().unwrap());
    let mut node = crate::declare_node(&worker, || {
        worker.counter("a");
        worker.counter("b");
        Idle
    })
    .unwrap();
    let mut capacity = None;
    node.with_state(&mut |state| capacity = state.declarations().map(|own| own.capacity()));
    assert_eq!(capacity, Some(0));
}
