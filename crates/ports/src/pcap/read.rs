//! Reading captures as a stream: records in order, one at a time, with the file's information on them.
//!
//! The `pcap-parser` crate reads the format (both byte orders, both formats). Bounds, times and error places
//! are ours. The parser makes a vector of the options of a packet in a pcapng file: the only allocation a
//! packet.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::GzDecoder;
use pcap_parser::pcapng::{OptionCode, PcapNGOption};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

use super::link::LinkType;

/// Bytes of the file in memory at a time: at first, and at most.
///
/// The second is also the largest block that is accepted.
const BUFFER: usize = 256 << 10;
const LARGEST_BLOCK: usize = 16 << 20;
/// Interfaces that a pcapng section may describe.
const INTERFACES: usize = 65_536;
/// Type of pcapng's obsolete Packet Block (draft-ietf-opsawg-pcapng, appendix A).
const PACKET_BLOCK: u32 = 2;

/// A capture that cannot be read further: the record, the place and the reason. Earlier records were
/// delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {record} at byte {offset}{}: {problem}", if *compressed { " of the uncompressed capture" } else { "" })]
pub struct ReadError {
    /// The record's number, from 1; 0 is the file's header.
    pub record: u64,
    /// The number of decompressed bytes before it.
    pub offset: u64,
    /// Whether the file is compressed.
    pub compressed: bool,
    /// The problem, and the expected value.
    pub problem: String,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Record<'r> {
    /// When it was captured, in ns since 1970; 0 where the file does not say.
    pub time: u64,
    /// The header type of `data`; `None` where it cannot be made Ethernet.
    pub link: Option<LinkType>,
    /// The number of its interface, from 0; 0 in a pcap file.
    pub interface: u32,
    /// The captured bytes.
    pub data: &'r [u8],
    /// The number of bytes on the wire, as the file says.
    ///
    /// In a damaged file this may be fewer than `data` has.
    pub original_len: usize,
}

/// The result of asking for the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record was taken.
    Taken,
    /// The record was left, and is still the next one.
    Left,
    /// There are no more records.
    End,
}

/// One interface of a capture.
#[derive(Clone, Debug)]
struct Interface {
    link: Option<LinkType>,
    /// The number of its link type.
    link_number: u32,
    name: Option<String>,
    /// The unit of time, and the seconds that are added.
    resolution: Resolution,
    offset: i64,
    /// Bytes of frame check sequence at the end of each frame.
    check_sequence: usize,
    /// The most bytes of a packet that were captured; 0 if the file does not say.
    snap_length: usize,
}

impl Interface {
    /// Bytes of a packet's frame check sequence by its flags: bits 5 to 8, where 0 says nothing.
    fn check_sequence_by(&self, flags: u32) -> usize {
        match flags >> 5 & 0xf {
            0 => self.check_sequence,
            length => length as usize,
        }
    }
}

/// The unit of times: a second has this power of ten or two of units (if_tsresol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    Decimal(u8),
    Binary(u8),
}

impl Resolution {
    /// From the option's value: the top bit marks a power of two.
    fn of(option: u8) -> Self {
        if option & 0x80 == 0 { Self::Decimal(option) } else { Self::Binary(option & 0x7f) }
    }
    /// Converts units to ns and rounds down.
    fn nanoseconds(self, units: u64) -> u128 {
        let units = u128::from(units) * 1_000_000_000;
        match self {
            // 64 bits of units that small are less than a nanosecond.
            Self::Decimal(power) => 10u128.checked_pow(power.into()).map_or(0, |second| units / second),
            Self::Binary(power) => units.checked_shr(power.into()).unwrap_or(0),
        }
    }
}

/// The members of a gzip file, one after the other.
///
/// Zeros behind a member are padding, as for `gzip`: tapes and some disks fill their blocks with zeros.
struct Members<R> {
    /// `None` at the end.
    member: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> Members<R> {
    fn new(source: R) -> Self {
        Self { member: Some(GzDecoder::new(BufReader::new(source))) }
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            loop {
                let rest = member.get_mut().fill_buf()?;
                if rest.is_empty() {
                    self.member = None;
                    return Ok(0);
                }
                let zeros = rest.iter().take_while(|byte| **byte == 0).count();
                let all = zeros == rest.len();
                member.get_mut().consume(zeros);
                if !all {
                    break;
                }
            }
            self.member = self.member.take().map(|member| GzDecoder::new(member.into_inner()));
        }
        Ok(0)
    }
}

/// A capture being read.
pub struct Reader {
    parser: Box<dyn PcapReaderIterator + Send>,
    source_error: Arc<Mutex<Option<io::Error>>>,
    interfaces: Vec<Interface>,
    big_endian: bool,
    capacity: usize,
    record: u64,
    offset: u64,
    compressed: bool,
    /// Whether a record could be made Ethernet.
    has_usable: bool,
    /// The number, place and link type of the first record that could not.
    unusable: Option<(u64, u64, u32)>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader(record {}, byte {})", self.record, self.offset)
    }
}

/// A reader that fills every buffer completely, so that a short read is the end of the file.
///
/// It reports an error only after the bytes before it are used.
struct Filling<R> {
    source: R,
    error: Arc<Mutex<Option<io::Error>>>,
    failed: bool,
}

impl<R: Read> Read for Filling<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.failed {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    self.failed = true;
                }
            }
        }
        Ok(filled)
    }
}

/// The reason why there is no next record, before its place is known.
enum Problem {
    Text(String),
    Cut,
}

impl Reader {
    /// Reads a capture. Its first bytes say whether it is compressed by gzip.
    ///
    /// # Errors
    /// [`ReadError`] when it is not a capture, or has a link type that cannot be made Ethernet.
    pub fn new(mut source: impl Read + Send + 'static) -> Result<Self, ReadError> {
        let mut magic = [0; 2];
        let mut read = 0;
        let failed = |problem: String| ReadError { record: 0, offset: 0, compressed: false, problem };
        while read < magic.len() {
            match source.read(&mut magic[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(format!("cannot be read: {error}"))),
            }
        }
        if read == 0 {
            return Err(failed("the file is empty; expected a pcap or pcapng capture".into()));
        }
        let whole = io::Cursor::new(magic[..read].to_vec()).chain(source);
        if magic == [0x1f, 0x8b] { Self::over(Members::new(whole), true) } else { Self::over(whole, false) }
    }

    fn over(source: impl Read + Send + 'static, compressed: bool) -> Result<Self, ReadError> {
        let source_error = Arc::new(Mutex::new(None));
        let filling = Filling { source, error: source_error.clone(), failed: false };
        let parser = create_reader(BUFFER, filling).map_err(|error| {
            let problem = match source_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(error) => format!("cannot be read: {error}"),
                None => match error {
                    PcapError::Incomplete(_) | PcapError::Eof => "the file ends within its header".into(),
                    _ => "not a capture: it starts neither as pcap nor as pcapng".into(),
                },
            };
            ReadError { record: 0, offset: 0, compressed, problem }
        })?;
        let mut reader = Self {
            parser,
            source_error,
            interfaces: Vec::new(),
            big_endian: false,
            capacity: BUFFER,
            record: 0,
            offset: 0,
            compressed,
            has_usable: false,
            unusable: None,
        };
        // What is wrong with the headers before the first record is reported before anything runs.
        reader.next(|_| false)?;
        Ok(reader)
    }

    /// The names of the interfaces described so far.
    pub fn interfaces(&self) -> impl Iterator<Item = Option<&str>> {
        self.interfaces.iter().map(|interface| interface.name.as_deref())
    }

    /// Shows the next record to `take`, which answers whether it takes the record.
    ///
    /// Otherwise the record stays the next one.
    ///
    /// # Errors
    /// [`ReadError`] when the file is damaged, and at its end, when none of its records could be made Ethernet. Asking
    /// again gives the same error.
    pub fn next(&mut self, take: impl FnOnce(Record<'_>) -> bool) -> Result<Step, ReadError> {
        let mut take = Some(take);
        // Each round makes progress: it consumes a block, reads further, or enlarges the buffer.
        loop {
            let before = self.parser.data().len();
            let problem = match self.parser.next() {
                Ok((size, block)) => {
                    let seen = see(block, &mut self.interfaces, &mut self.big_endian);
                    match seen {
                        Ok(None) => {
                            self.parser.consume(size);
                            self.offset += size as u64;
                            continue;
                        }
                        Ok(Some(record)) => {
                            let Some(take) = take.take() else { return Ok(Step::Left) };
                            let (is_usable, interface) = (record.link.is_some(), record.interface as usize);
                            if !take(record) {
                                return Ok(Step::Left);
                            }
                            self.parser.consume(size);
                            self.record += 1;
                            self.has_usable |= is_usable;
                            if !self.has_usable && self.unusable.is_none() {
                                let number = self.interfaces.get(interface).map_or(0, |one| one.link_number);
                                self.unusable = Some((self.record, self.offset, number));
                            }
                            self.offset += size as u64;
                            return Ok(Step::Taken);
                        }
                        Err(problem) => Problem::Text(problem),
                    }
                }
                Err(PcapError::Eof) => match (self.source_problem(), self.unusable) {
                    (Some(problem), _) => Problem::Text(problem),
                    (None, Some((record, offset, number))) if !self.has_usable => {
                        let (compressed, problem) = (self.compressed, unsupported(number));
                        return Err(ReadError { record, offset, compressed, problem });
                    }
                    (None, _) => return Ok(Step::End),
                },
                Err(PcapError::Incomplete(_)) => {
                    let exhausted = self.parser.reader_exhausted();
                    let failed = self.parser.refill().is_err();
                    if failed || self.parser.data().len() == before && exhausted {
                        Problem::Cut
                    } else {
                        continue;
                    }
                }
                Err(PcapError::BufferTooSmall) => {
                    if self.capacity < LARGEST_BLOCK && self.parser.grow(self.capacity * 2) {
                        self.capacity *= 2;
                        continue;
                    }
                    Problem::Text(format!(
                        "it claims to be larger than {LARGEST_BLOCK} bytes: its length is damaged"
                    ))
                }
                Err(PcapError::UnexpectedEof) => Problem::Cut,
                Err(_) => {
                    Problem::Text("it is no block of a capture: its type or lengths are damaged".into())
                }
            };
            let problem = match problem {
                Problem::Text(text) => text,
                Problem::Cut => self.source_problem().unwrap_or_else(|| {
                    format!(
                        "the capture is cut off: it ends after {} bytes of this record",
                        self.parser.data().len()
                    )
                }),
            };
            let (record, offset, compressed) = (self.record + 1, self.offset, self.compressed);
            return Err(ReadError { record, offset, compressed, problem });
        }
    }

    fn source_problem(&self) -> Option<String> {
        let error = self.source_error.lock().unwrap_or_else(PoisonError::into_inner);
        error.as_ref().map(|error| format!("cannot be read: {error}"))
    }
}

/// Interprets a block: a packet, or information about later packets.
fn see<'b>(
    block: PcapBlockOwned<'b>,
    interfaces: &mut Vec<Interface>,
    big_endian: &mut bool,
) -> Result<Option<Record<'b>>, String> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let word = header.network.0 as u32;
            let resolution = Resolution::Decimal(if header.is_nanosecond_precision() { 9 } else { 6 });
            // draft-ietf-opsawg-pcap, section 4: link type in the low bits, length of the check sequence in the high.
            let check_sequence = if word & 0x0400_0000 != 0 { (word >> 28) as usize * 2 } else { 0 };
            let link_number = word & 0xffff;
            let link = LinkType::of(link_number);
            if link.is_none() {
                return Err(unsupported(link_number));
            }
            let (name, offset, snap_length) = (None, 0, 0);
            *interfaces =
                vec![Interface { link, link_number, name, resolution, offset, check_sequence, snap_length }];
            Ok(None)
        }
        PcapBlockOwned::Legacy(packet) => {
            let interface = interfaces.first().ok_or("the file's header is missing")?;
            let fraction = interface.resolution.nanoseconds(packet.ts_usec.into());
            let time = u64::from(packet.ts_sec) * 1_000_000_000 + fraction as u64;
            let check_sequence = interface.check_sequence;
            Ok(Some(record(interface, 0, time, packet.data, packet.origlen, check_sequence)))
        }
        PcapBlockOwned::NG(Block::SectionHeader(section)) => {
            // Interfaces are numbered within their section.
            interfaces.clear();
            *big_endian = section.big_endian();
            Ok(None)
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(described)) => {
            if interfaces.len() == INTERFACES {
                return Err(format!("more than {INTERFACES} interfaces in one section"));
            }
            let link_number = described.linktype.0 as u32;
            let option = |code, len| option(&described.options, code, len);
            let name = option(IF_NAME, 1).and_then(|name| std::str::from_utf8(name).ok());
            let offset = option(IF_TSOFFSET, 8).and_then(<[u8]>::first_chunk).copied();
            let swapped = |bytes| if *big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
            let offset = offset.map_or(0, swapped);
            interfaces.push(Interface {
                link: LinkType::of(link_number),
                link_number,
                name: name.map(ToOwned::to_owned),
                resolution: Resolution::of(option(IF_TSRESOL, 1).map_or(6, |resolution| resolution[0])),
                offset,
                check_sequence: option(IF_FCSLEN, 1).map_or(0, |length| check_sequence(length[0])),
                snap_length: described.snaplen as usize,
            });
            Ok(None)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = find(interfaces, packet.if_id)?;
            let time = nanoseconds(interface, packet.ts_high, packet.ts_low);
            let captured = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            let flags = option(&packet.options, EPB_FLAGS, 4).and_then(<[u8]>::first_chunk).copied();
            let flags = flags.map_or(0, |bytes| word_of(bytes, *big_endian));
            let check_sequence = interface.check_sequence_by(flags);
            Ok(Some(record(interface, packet.if_id, time, captured, packet.origlen, check_sequence)))
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            let interface = find(interfaces, 0)?;
            // The block does not state its captured length: it is the snap length or the original length, the
            // lesser, and padding follows (section 4.4).
            let kept = match interface.snap_length {
                0 => packet.origlen as usize,
                most => most.min(packet.origlen as usize),
            };
            let captured = packet.data.get(..kept).unwrap_or(packet.data);
            let check_sequence = interface.check_sequence;
            Ok(Some(record(interface, 0, 0, captured, packet.origlen, check_sequence)))
        }
        PcapBlockOwned::NG(Block::Unknown(block))
            // The parser reads the type of an unknown block in little-endian order, also in big-endian files.
            if block.block_type == if *big_endian { PACKET_BLOCK.swap_bytes() } else { PACKET_BLOCK } =>
        {
            let Some((header, data)) = block.data.split_first_chunk::<20>() else {
                return Err("a Packet Block of fewer than 20 bytes".into());
            };
            let word = |at: usize| {
                word_of([header[at], header[at + 1], header[at + 2], header[at + 3]], *big_endian)
            };
            let number = [header[0], header[1]];
            let number = if *big_endian { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) };
            let interface = find(interfaces, u32::from(number))?;
            let time = nanoseconds(interface, word(4), word(8));
            let kept = word(12) as usize;
            let captured = data.get(..kept).ok_or("a Packet Block that claims more than it holds")?;
            let options = data.get(kept.next_multiple_of(4)..).unwrap_or_default();
            let flags = flags_among(options, *big_endian);
            let check_sequence = interface.check_sequence_by(flags);
            Ok(Some(record(interface, u32::from(number), time, captured, word(16), check_sequence)))
        }
        PcapBlockOwned::NG(_) => Ok(None),
    }
}

/// Codes of options (draft-ietf-opsawg-pcapng, sections 4.2 and 4.3).
const END_OF_OPTIONS: OptionCode = OptionCode(0);
const IF_NAME: OptionCode = OptionCode(2);
const IF_TSRESOL: OptionCode = OptionCode(9);
const IF_FCSLEN: OptionCode = OptionCode(13);
const IF_TSOFFSET: OptionCode = OptionCode(14);
const EPB_FLAGS: OptionCode = OptionCode(2);

/// The first option of this code before the end of options, if it has at least `least` bytes.
fn option<'o>(options: &'o [PcapNGOption<'_>], code: OptionCode, least: usize) -> Option<&'o [u8]> {
    let mut options = options.iter().take_while(|option| option.code != END_OF_OPTIONS);
    let option = options.find(|option| option.code == code)?;
    option.value.get(..usize::from(option.len)).filter(|value| value.len() >= least)
}

fn word_of(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The flags among the options of a Packet Block, which the parser does not read; 0 without any.
///
/// Options end with the block, or where one claims more than there is.
fn flags_among(mut options: &[u8], big_endian: bool) -> u32 {
    while let [a, b, c, d, rest @ ..] = options {
        let half =
            |pair: [u8; 2]| if big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) };
        let (code, length) = (half([*a, *b]), usize::from(half([*c, *d])));
        match (OptionCode(code), rest.get(..length)) {
            (END_OF_OPTIONS, _) | (_, None) => return 0,
            (EPB_FLAGS, Some([a, b, c, d, ..])) => return word_of([*a, *b, *c, *d], big_endian),
            _ => options = rest.get(length.next_multiple_of(4)..).unwrap_or_default(),
        }
    }
    0
}

/// Bytes of frame check sequence by if_fcslen, which is in bytes.
///
/// Some writers state it in bits, as an early draft did. No check sequence has so many bytes.
fn check_sequence(length: u8) -> usize {
    usize::from(if length >= 16 { length / 8 } else { length })
}

fn unsupported(number: u32) -> String {
    let name = match number {
        9 => " (PPP)",
        105 | 119 | 127 | 163 => " (IEEE 802.11)",
        189 | 220 => " (USB)",
        187 | 201 => " (Bluetooth)",
        195 | 215 | 230 => " (IEEE 802.15.4)",
        227 => " (CAN)",
        147..=162 => " (reserved for private use)",
        _ => "",
    };
    format!(
        "link type {number}{name} cannot be made Ethernet; expected Ethernet (1), raw IP (101, 12, 14, 228, 229), \
         Linux cooked (113, 276), null (0) or loopback (108)"
    )
}

fn find(interfaces: &[Interface], number: u32) -> Result<&Interface, String> {
    interfaces
        .get(number as usize)
        .ok_or_else(|| format!("it is of interface {number}, but its section describes {}", interfaces.len()))
}

/// A record without the captured part of its frame check sequence.
fn record<'b>(
    interface: &Interface,
    number: u32,
    time: u64,
    data: &'b [u8],
    original: u32,
    check_sequence: usize,
) -> Record<'b> {
    let original = original as usize;
    let data = match (check_sequence, data.len().max(original).saturating_sub(check_sequence)) {
        (0, _) => data,
        (_, frame) => data.get(..frame).unwrap_or(data),
    };
    let original_len = original.saturating_sub(check_sequence);
    Record { time, link: interface.link, interface: number, data, original_len }
}

/// A time of 64 bits in the interface's units, as ns since 1970, limited to 0 to 2^64 ns.
fn nanoseconds(interface: &Interface, high: u32, low: u32) -> u64 {
    let units = u64::from(high) << 32 | u64::from(low);
    // At most 2^94 for the first, where a unit is a second, and 2^93 for the second.
    let time = interface.resolution.nanoseconds(units) as i128 + i128::from(interface.offset) * 1_000_000_000;
    u64::try_from(time.max(0)).unwrap_or(u64::MAX)
}
