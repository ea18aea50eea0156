//! Any bytes as a capture, read in several ways that must all give the same result.
//!
//! The ways are: at once, in small pieces, with every record refused first, and compressed. For a pcap file,
//! a naive reader is compared too. Tests and a fuzz target call this.

use std::io::{Cursor, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use netbricks_ports::pcap::{LinkType, ReadError, Reader, Record, Step};

/// The most bytes of a file that are read.
const LONGEST: usize = 16 << 10;
/// The most bytes of its records that are kept: a few compressed bytes may become many.
const MOST: usize = 1 << 20;

/// A record that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    time: u64,
    link: Option<LinkType>,
    interface: u32,
    data: Vec<u8>,
    original_len: usize,
}

impl From<Record<'_>> for Kept {
    fn from(record: Record<'_>) -> Self {
        let Record { time, link, interface, data, original_len } = record;
        Self { time, link, interface, data: data.to_vec(), original_len }
    }
}

/// The records, and the end of the reading.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    records: Vec<Kept>,
    /// `None` at the end of the file.
    error: Option<ReadError>,
    /// Whether there were more bytes than are kept.
    stopped: bool,
}

/// Reads the bytes in every way. Answers the number of records, and whether an error came after them.
pub fn capture(bytes: &[u8]) -> (usize, bool) {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let whole = || Cursor::new(bytes.to_vec());
    let told = read(whole(), false);
    assert_eq!(read(whole(), true), told, "it tells another thing when records are refused first");
    assert_eq!(read(Pieces { bytes: whole(), next: 0 }, false), told, "it depends on how bytes come");
    let compressed = bytes.starts_with(&[0x1f, 0x8b]);
    if !compressed {
        lies_in(bytes, &told);
        if let Some(naive) = naive(bytes) {
            agrees(&naive, &told);
        }
        if !bytes.is_empty() {
            let mut again = read(Cursor::new(compress(bytes)), false);
            if let Some(error) = &mut again.error {
                assert!(std::mem::take(&mut error.compressed), "{error}");
            }
            assert_eq!(again, told, "it tells another thing when it is compressed");
        }
    }
    (told.records.len(), told.error.is_some())
}

fn read(source: impl Read + Send + 'static, refuses: bool) -> Told {
    let mut told = Told::default();
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return Told { error: Some(error), ..told },
    };
    let mut size = 0;
    while size < MOST {
        let mut refused = None;
        if refuses {
            let step = reader.next(|record| {
                refused = Some(Kept::from(record));
                false
            });
            assert!(step != Ok(Step::Taken), "it was refused");
        }
        let mut taken = None;
        let step = reader.next(|record| {
            taken = Some(Kept::from(record));
            true
        });
        assert!(!refuses || taken == refused, "{taken:?} was {refused:?} when it was refused");
        match (step, taken) {
            (Ok(Step::Taken), Some(record)) => {
                // Records of no bytes are bounded too.
                size += record.data.len() + 16;
                told.records.push(record);
            }
            (Ok(Step::End), None) => {
                assert_eq!(reader.next(|_| true), Ok(Step::End), "it ends once");
                return told;
            }
            (Err(error), None) => {
                assert_eq!(reader.next(|_| true), Err(error.clone()), "asked again");
                assert_eq!(error.record, told.records.len() as u64 + 1, "{error}");
                return Told { error: Some(error), ..told };
            }
            other => panic!("{other:?}"),
        }
    }
    Told { stopped: true, ..told }
}

/// Checks that every record's bytes are in the file, in its order.
fn lies_in(bytes: &[u8], told: &Told) {
    let mut rest = bytes;
    for record in told.records.iter().filter(|record| !record.data.is_empty()) {
        let len = record.data.len();
        let Some(at) = rest.windows(len).position(|piece| piece == record.data) else {
            panic!("{record:?} is nowhere in what is left of the file");
        };
        rest = &rest[at + len..];
    }
}

/// Reads a pcap file by draft-ietf-opsawg-pcap, without regard to speed.
///
/// Answers its records, and the place where it stops being valid. `None` if its header is invalid, or of a
/// link type that is not read.
fn naive(bytes: &[u8]) -> Option<(Vec<Kept>, Option<usize>)> {
    let (little, unit, header) = match bytes.get(..4)? {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, 1_000, 16),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, 1_000, 16),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, 1, 16),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, 1, 16),
        // Alexey Kuznetsov's variant: two more words a record.
        [0x34, 0xcd, 0xb2, 0xa1] => (true, 1_000, 24),
        _ => return None,
    };
    let word = |at: usize| {
        let octets = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) })
    };
    let network = word(20)?;
    let link = Some(LinkType::of(network & 0xffff)?);
    // The bit says whether the four bits above it are the length of a check sequence, in words of 16 bits.
    let check_sequence = if network >> 26 & 1 == 1 { (network >> 28) as usize * 2 } else { 0 };
    let (mut at, mut records) = (24, Vec::new());
    while at < bytes.len() {
        let fields = [0, 4, 8, 12].map(|field| word(at + field));
        let [Some(seconds), Some(fraction), Some(captured), Some(original)] = fields else {
            return Some((records, Some(at)));
        };
        let start = at + header;
        let Some(data) = bytes.get(start..start + captured as usize) else {
            return Some((records, Some(at)));
        };
        // The check sequence is at the end of the frame, which may be only partly captured.
        let frame = data.len().max(original as usize).saturating_sub(check_sequence);
        records.push(Kept {
            time: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit,
            link,
            interface: 0,
            data: data[..data.len().min(frame)].to_vec(),
            original_len: (original as usize).saturating_sub(check_sequence),
        });
        at = start + data.len();
    }
    Some((records, None))
}

fn agrees((records, ends_at): &(Vec<Kept>, Option<usize>), told: &Told) {
    assert!(!told.stopped, "so short a file has no more");
    assert_eq!(told.error.as_ref().map(|error| error.offset), ends_at.map(|at| at as u64), "{told:?}");
    assert_eq!(*records, told.records);
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes what is written to it");
    encoder.finish().expect("memory takes what is written to it")
}

/// A source that gives few bytes at a time, and is sometimes interrupted.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    next: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.next += 1;
        if self.next.is_multiple_of(5) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let len = buffer.len().min(1 + self.next % 13);
        self.bytes.read(&mut buffer[..len])
    }
}
