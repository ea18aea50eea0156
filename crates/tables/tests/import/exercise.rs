//! Any bytes as exported flows, taken in by a table that may have flows already.
//!
//! A refused import changes nothing, and an accepted one adds exactly the flows in the bytes. Tests and a fuzz target
//! call this.

use std::collections::{BTreeMap, BTreeSet};

use netbricks_tables::{Entry, FlowTable, FlowTableConfig, Full, ImportError, Table};

/// A key, and a value that not all bytes are.
type Flows = FlowTable<u32, (bool, u16)>;

/// Flows that there is room for.
pub const ROOM: usize = 12;
/// Bytes of magic, format, version and size of keys and of values: the same in every export of this table.
const FIXED: usize = 18;
/// With the number of flows.
const HEADER: usize = FIXED + 8;
/// The bytes of a flow: key, value, age and timeout.
pub const RECORD: usize = 4 + 3 + 8 + 8;
const CHECKSUM: usize = 4;

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many flows were taken.
    Taken(usize),
    /// They are right, but too many.
    NoRoom,
    /// They are no export of such a table.
    Refused,
}

/// Takes bytes in as an export; the first three are parameters.
///
/// The first byte gives the number of flows that the table has before. It also says whether the rest is an export as it
/// is, or flows that get a right header and checksum. The next two bytes are the time.
pub fn flow_import(bytes: &[u8]) -> Option<Outcome> {
    let [choice, time, scale, given @ ..] = bytes else { return None };
    let now = u64::from(*time) << (scale % 57);
    let given = &given[..given.len().min(1_024)];
    let export = if choice & 0x80 == 0 { given.to_vec() } else { sealed(given) };

    let mut table = filled(Full::Refuse, *choice, now);
    let (before, counters) = (flows(&table), table.counters());
    let records = records(&export);
    let outcome = match table.decode(&export, now) {
        Ok(taken) => {
            let Some(records) = &records else { panic!("{taken} flows of what is no export") };
            assert!(taken <= records.len());
            takes(&before, records, &flows(&table));
            comes_back(&table, now);
            Outcome::Taken(taken)
        }
        Err(ImportError::NoRoom { .. }) => {
            let Some(records) = &records else { panic!("no room for what is no export") };
            let new = records.iter().map(|record| record.key).filter(|key| !before.contains_key(key));
            let new: BTreeSet<u32> = new.collect();
            assert!(before.len() + new.len() > ROOM, "{} and {} flows fit", before.len(), new.len());
            Outcome::NoRoom
        }
        Err(error) => {
            assert_eq!(records, None, "{error}");
            Outcome::Refused
        }
    };
    if !matches!(outcome, Outcome::Taken(_)) {
        assert_eq!((flows(&table), table.counters()), (before, counters), "it was refused");
    }
    assert_eq!(flows(&table).len(), table.len(), "what it holds is what it counts");
    for full in [Full::Refuse, Full::EvictOldest, Full::EvictExpired] {
        admits(filled(full, *choice, now), full, (&export, now), records.as_deref());
    }
    Some(outcome)
}

/// Flows that moved: what is right is taken in as far as there is room, and never more.
fn admits(mut table: Flows, full: Full, (export, now): (&[u8], u64), records: Option<&[Flow]>) {
    let (before, counters, len) = (flows(&table), table.counters(), table.len() as u64);
    let admitted = table.admit(export, now);
    let (after, now_counted) = (flows(&table), table.counters());
    assert_eq!(admitted.is_ok(), records.is_some(), "{full:?}");
    let Some(records) = records else {
        return assert_eq!((after, now_counted), (before, counters), "it was refused");
    };
    assert!(table.len() <= ROOM);
    let left = now_counted.evicted + now_counted.expired - counters.evicted - counters.expired;
    assert_eq!(table.len() as u64, len + now_counted.inserted - counters.inserted - left, "{full:?}");
    let lost = before.keys().filter(|key| !after.contains_key(key)).count() as u64;
    assert!(lost <= if full == Full::EvictOldest { now_counted.evicted } else { 0 }, "{lost} under {full:?}");
    for (key, flow) in &after {
        let exported = || records.iter().any(|record| (record.key, record.value) == (*key, flow.0));
        assert!(before.get(key) == Some(flow) || exported(), "{key}: {flow:?} is made up");
    }
}

/// With as many flows as `choice` says, of which those are gone that are over.
fn filled(full: Full, choice: u8, now: u64) -> Flows {
    let mut table = table_of(full, 1);
    for key in 0..u32::from(choice & 0x7f).min(ROOM as u32) {
        if let Entry::Vacant(place) = table.lookup(key, 0) {
            let mut flow = place.insert_entry((key % 2 == 0, key as u16));
            match key % 3 {
                0 => flow.keep_forever(),
                1 => flow.set_timeout(u64::from(key) * 1_000),
                _ => {}
            }
        }
    }
    table.expire(now, usize::MAX);
    table
}

fn table(seed: u64) -> Flows {
    table_of(Full::Refuse, seed)
}

fn table_of(full: Full, seed: u64) -> Flows {
    let config = FlowTableConfig { capacity: ROOM, idle_timeout: Some(1_000_000), full, seed };
    FlowTable::new(config).expect("so little memory is there")
}

/// Value, age and timeout of each flow.
fn flows(table: &Flows) -> BTreeMap<u32, ((bool, u16), u64, u64)> {
    let mut flows = BTreeMap::new();
    table.export(&mut |key, value, age, timeout| {
        assert_eq!(flows.insert(*key, (*value, age, timeout)), None, "{key} is there twice");
    });
    flows
}

/// Whole records as an export: with what such a table's begins with, their number, and the checksum of it all.
fn sealed(records: &[u8]) -> Vec<u8> {
    let records = &records[..records.len() / RECORD * RECORD];
    let mut export = Vec::new();
    table(0).encode(&mut export);
    export.truncate(FIXED);
    export.extend((records.len() as u64 / RECORD as u64).to_be_bytes());
    export.extend(records);
    export.extend(checksum(&export).to_be_bytes());
    export
}

/// A flow in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    key: u32,
    value: (bool, u16),
    age: u64,
    timeout: u64,
}

/// The flows of an export, read with no thought of what is wrong where there are none.
fn records(export: &[u8]) -> Option<Vec<Flow>> {
    let mut empty = Vec::new();
    table(0).encode(&mut empty);
    let body = export.get(HEADER..export.len().checked_sub(CHECKSUM)?)?;
    let count = u64::from_be_bytes(export[FIXED..HEADER].try_into().ok()?);
    let end = export[HEADER + body.len()..].try_into().ok()?;
    let right = export[..FIXED] == empty[..FIXED]
        && u128::from(count) * RECORD as u128 == body.len() as u128
        && checksum(&export[..HEADER + body.len()]) == u32::from_be_bytes(end);
    if !right {
        return None;
    }
    let long = |octets: &[u8]| octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet));
    body.chunks(RECORD)
        .map(|record| {
            let value = match record[4] {
                0 => false,
                1 => true,
                _ => return None,
            };
            Some(Flow {
                key: long(&record[..4]) as u32,
                value: (value, long(&record[5..7]) as u16),
                age: long(&record[7..15]),
                timeout: long(&record[15..]),
            })
        })
        .collect()
}

/// CRC-32 as in IEEE 802.3, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for byte in bytes {
        remainder ^= u32::from(*byte);
        for _ in 0..8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !remainder
}

/// No flow is lost or made up, and each that has not expired on the way is there.
fn takes(
    before: &BTreeMap<u32, ((bool, u16), u64, u64)>,
    records: &[Flow],
    after: &BTreeMap<u32, ((bool, u16), u64, u64)>,
) {
    assert!(after.len() <= ROOM);
    for (key, flow) in before {
        let exported = || records.iter().any(|record| record.key == *key);
        assert!(after.get(key) == Some(flow) || exported(), "{key} is no longer {flow:?}");
        assert!(after.contains_key(key), "{key} is lost");
    }
    for (key, flow) in after {
        let exported = || records.iter().any(|record| (record.key, record.value) == (*key, flow.0));
        assert!(before.get(key) == Some(flow) || exported(), "{key}: {flow:?} is made up");
    }
    for record in records {
        // An age counts in whole ticks, which a timeout is never shorter for.
        if record.timeout == u64::MAX || record.age < record.timeout.min(1_000_000) {
            assert!(after.contains_key(&record.key), "{record:?} is left out");
        }
    }
}

/// Another table makes the same of this one's export.
fn comes_back(table: &Flows, now: u64) {
    let mut bytes = Vec::new();
    table.encode(&mut bytes);
    let mut again = self::table(2);
    assert_eq!(again.decode(&bytes, now), Ok(table.len()));
    assert_eq!(flows(&again), flows(table));
}
