//! A journal: the handler writes that changed one configuration while it ran.
//!
//! ```text
//! 5c1f0a3e {"format":1,"configuration":42,"checksum":"89abcdef"}
//! 0d9a77b2 {"function":"balance","handler":"backends.add","argument":"10.0.0.9","time":1700000000000000000}
//! ```
//!
//! Each line begins with the CRC-32 of its JSON. A record's checksum counts the four bytes of the line's before, too
//! (big-endian), so that lines that were lost, moved or left over from before are found. `checksum` is that of the
//! configuration file.

use serde::{Deserialize, Serialize};

use super::checksum::{checked, with_checksum};
use super::{Damage, FORMAT, Number};

/// A handler's write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The function's name in the graph.
    pub function: String,
    /// The handler's name: `backends.add`.
    pub handler: String,
    /// The handler's argument.
    pub argument: String,
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// The tenant who wrote; the operator where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    configuration: Number,
    checksum: String,
}

/// The content of a journal's bytes, up to the first damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The configuration that the records changed.
    pub configuration: Number,
    /// The checksum of the configuration's file.
    pub checksum: String,
    /// All records before the first damage, oldest first.
    pub records: Vec<Record>,
    /// Bytes before the first damage: the first line and all records.
    pub good_bytes: usize,
    /// Whole lines from the first damage on. An incomplete last line, as `kill -9` leaves it, is not counted.
    pub lost: usize,
    /// The first damage of a whole line.
    pub damage: Option<Damage>,
    tail: Tail,
}

/// Reads a journal's bytes up to the first damage.
///
/// # Errors
/// [`Damage`] of the first line, without which no record is worth anything.
pub fn replay(bytes: &[u8]) -> Result<Replay, Damage> {
    let Some(first) = line(bytes) else {
        return Err(Damage::Short { expected: bytes.len() + 1, got: bytes.len() });
    };
    let (json, sum) = checked(b"", first)?;
    let header: Header = content(json)?;
    if header.format != FORMAT {
        return Err(Damage::Format { expected: FORMAT, got: header.format });
    }
    let mut tail = Tail { length: first.len() + 1, records: 0, sum };
    let (mut records, mut damage) = (Vec::new(), None);
    while let Some(text) = line(&bytes[tail.length..]) {
        let record = checked(&tail.sum.to_be_bytes(), text)
            .and_then(|(json, sum)| Ok((content::<Record>(json)?, sum)));
        match record {
            Ok((record, sum)) => {
                tail = Tail { length: tail.length + text.len() + 1, records: tail.records + 1, sum };
                records.push(record);
            }
            Err(found) => {
                damage = Some(found);
                break;
            }
        }
    }
    let lost = bytes[tail.length..].iter().filter(|&&byte| byte == b'\n').count();
    let Header { configuration, checksum, .. } = header;
    Ok(Replay { configuration, checksum, records, good_bytes: tail.length, lost, damage, tail })
}

impl Replay {
    /// The place at which the next record goes.
    pub(super) fn into_tail(self) -> Tail {
        self.tail
    }
}

/// The bytes up to the next line end.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    bytes.iter().position(|&byte| byte == b'\n').map(|end| &bytes[..end])
}

pub(super) fn content<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Damage> {
    serde_json::from_slice(json).map_err(|error| Damage::Content { problem: error.to_string() })
}

/// The end of a journal: all that is needed to write on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Bytes.
    pub length: usize,
    pub records: usize,
    /// The checksum of the last line.
    sum: u32,
}

impl Tail {
    /// The first line of a new journal, and its end.
    pub(super) fn first(configuration: Number, checksum: &str) -> (Tail, Vec<u8>) {
        let header = Header { format: FORMAT, configuration, checksum: checksum.into() };
        let (mut text, sum) = with_checksum(b"", &json(&header));
        text.push('\n');
        (Tail { length: text.len(), records: 0, sum }, text.into_bytes())
    }

    /// Appends the lines of these records. One that repeats the one before counts too: it may add.
    pub(super) fn add<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>, bytes: &mut Vec<u8>) {
        for record in records {
            let (text, sum) = with_checksum(&self.sum.to_be_bytes(), &json(record));
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b'\n');
            let length = self.length + text.len() + 1;
            *self = Tail { length, records: self.records + 1, sum };
        }
    }
}

/// JSON on one line.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers and lists of them have a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(argument: &str, time: u64) -> Record {
        Record { function: "f".into(), handler: "set".into(), argument: argument.into(), time, tenant: None }
    }

    fn journal(records: &[Record]) -> Vec<u8> {
        let (mut tail, mut bytes) = Tail::first(Number(7), "0000abcd");
        tail.add(records, &mut bytes);
        assert_eq!(tail.length, bytes.len());
        assert_eq!(replay(&bytes).unwrap().into_tail(), tail);
        bytes
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let records = [record("a", 1), record("line\nend \u{0} \"quoted\"", 2), record("", u64::MAX)];
        let read = replay(&journal(&records)).unwrap();
        assert_eq!(read.records, records);
        assert_eq!((read.configuration, &*read.checksum, read.lost), (Number(7), "0000abcd", 0));
    }

    #[test]
    fn a_record_that_repeats_the_one_before_stays() {
        let records = [record("a", 1), record("a", 2), record("b", 3), record("a", 4)];
        assert_eq!(replay(&journal(&records)).unwrap().records, records);
    }

    #[test]
    fn each_cut_gives_the_records_before_it() {
        let records: Vec<_> = (0..4).map(|i| record(&i.to_string(), i)).collect();
        let bytes = journal(&records);
        let ends: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] == b'\n').map(|at| at + 1).collect();
        for length in 0..=bytes.len() {
            let whole = ends.iter().filter(|&&end| end <= length).count();
            match replay(&bytes[..length]) {
                Err(_) => assert_eq!(whole, 0),
                Ok(read) => {
                    assert_eq!(read.records, records[..whole - 1]);
                    assert_eq!((read.lost, read.damage, read.good_bytes), (0, None, ends[whole - 1]));
                }
            }
        }
    }

    #[test]
    fn each_flipped_bit_ends_the_replay_and_the_lines_after_it_are_counted() {
        let records: Vec<_> = (0..4).map(|i| record(&i.to_string(), i)).collect();
        let bytes = journal(&records);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let before = bytes[..bit / 8].iter().filter(|&&byte| byte == b'\n').count();
            match replay(&wrong) {
                Err(_) => assert_eq!(before, 0, "bit {bit}"),
                Ok(read) => {
                    assert_eq!(read.records, records[..before - 1], "bit {bit}");
                    assert!(read.lost > 0 || before == 4, "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn lines_that_were_left_out_or_moved_are_damage() {
        let bytes = journal(&[record("a", 1), record("b", 2), record("c", 3)]);
        let lines: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        for (order, good) in [([0, 1, 3, 2], 1), ([0, 2, 3, 1], 0), ([0, 1, 1, 2], 1)] {
            let read = replay(&order.map(|i| lines[i]).concat()).unwrap();
            assert_eq!((read.records.len(), read.lost), (good, 3 - good), "{order:?}");
        }
    }
}
