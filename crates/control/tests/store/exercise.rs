//! Any bytes as a journal, read by the store and by a naive reader.
//!
//! Both find the same records, the same end and the same number of lost lines. Tests and a fuzz target call this.

use netbricks_control::store::{Number, Record, replay};

/// The result of reading a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The first line is none of a journal.
    Refused,
    /// Records before the first damage, and whole lines from there on.
    Read {
        /// Good records.
        records: usize,
        /// Lost lines.
        lost: usize,
    },
}

/// Reads bytes as a journal; the first three are parameters.
///
/// Bit 0 of the first byte puts a right first line before the rest, and right checksums before its lines. Then bit 1
/// cuts the journal before its end, and bit 2 flips a bit; the other two bytes say how far from the end.
pub fn journal(bytes: &[u8]) -> Outcome {
    let [choice, high, low, given @ ..] = bytes else { return Outcome::Refused };
    let mut bytes = if choice & 1 == 1 { sealed(given) } else { given.to_vec() };
    let place = bytes.len().saturating_sub(usize::from(u16::from_be_bytes([*high, *low])));
    if choice & 2 != 0 {
        bytes.truncate(place);
    }
    if choice & 4 != 0
        && let Some(byte) = bytes.get_mut(place)
    {
        *byte ^= 1 << (choice >> 5);
    }
    let naive = naive(&bytes);
    match replay(&bytes) {
        Err(damage) => {
            assert!(naive.is_none(), "refused: {damage}");
            assert!(!damage.to_string().is_empty());
            Outcome::Refused
        }
        Ok(read) => {
            let Some((number, records, good, lost)) = naive else { panic!("read {read:?}") };
            assert_eq!(read.configuration, Number(number));
            assert_eq!(read.records, records);
            assert_eq!((read.good_bytes, read.lost), (good, lost));
            assert_eq!(read.damage.is_some(), lost > 0);
            // A journal that was cut before its damage is whole.
            let again = replay(&bytes[..good]);
            assert!(again.is_ok_and(|again| again.records == records && again.damage.is_none()));
            Outcome::Read { records: records.len(), lost }
        }
    }
}

/// CRC-32, bit by bit.
fn checksum(before: &[u8], bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in before.iter().chain(bytes) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn sealed(given: &[u8]) -> Vec<u8> {
    let first = br#"{"format":1,"configuration":7,"checksum":"00000000"}"#;
    let (mut journal, mut before) = (Vec::new(), Vec::new());
    let lines = if given.is_empty() { Vec::new() } else { given.split(|&byte| byte == b'\n').collect() };
    for line in std::iter::once(&first[..]).chain(lines) {
        let sum = checksum(&before, line);
        before = sum.to_be_bytes().to_vec();
        journal.extend_from_slice(format!("{sum:08x} ").as_bytes());
        journal.extend_from_slice(line);
        journal.push(b'\n');
    }
    journal
}

/// The configuration, its records, the bytes before the first damage, and whole lines after it.
fn naive(bytes: &[u8]) -> Option<(u64, Vec<Record>, usize, usize)> {
    let lines: Vec<_> =
        bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")).collect();
    let (mut number, mut records, mut good, mut before) = (None, Vec::new(), 0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let text = std::str::from_utf8(&line[..line.len() - 1]).ok();
        let parts = text.and_then(|text| text.split_once(' '));
        let right = parts.filter(|(sum, json)| *sum == format!("{:08x}", checksum(&before, json.as_bytes())));
        let read = right.is_some_and(|(_, json)| {
            if at > 0 {
                serde_json::from_str(json).is_ok_and(|record| {
                    records.push(record);
                    true
                })
            } else {
                number = first(json);
                number.is_some()
            }
        });
        if !read {
            return Some((number?, records, good, lines.len() - at));
        }
        before = right.map(|(_, json)| checksum(&before, json.as_bytes()).to_be_bytes().to_vec())?;
        good += line.len();
    }
    Some((number?, records, good, 0))
}

fn first(json: &str) -> Option<u64> {
    /// Named here once more, so that a change of the format is noticed.
    #[derive(serde::Deserialize)]
    struct First {
        format: u32,
        configuration: u64,
        #[serde(rename = "checksum")]
        _checksum: String,
    }
    let first: First = serde_json::from_str(json).ok()?;
    (first.format == 1).then_some(first.configuration)
}
