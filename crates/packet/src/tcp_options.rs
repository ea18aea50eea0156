//! TCP options (RFC 9293, section 3.2), one by one, safe for any length bytes.

use crate::stack::{Malformed, malformed};
use crate::tcp::Tcp;

/// One TCP option. A known kind with another length than its RFC gives is [`Unknown`](TcpOption::Unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// The largest segment that the sender takes, in bytes (RFC 9293, section 3.7.1).
    MaximumSegmentSize(u16),
    /// By how many bits the sender's windows are to be shifted, 0 to 14 (RFC 7323, section 2).
    WindowScale(u8),
    /// The sender understands selective acknowledgments (RFC 2018, section 2).
    SackPermitted,
    /// Blocks that arrived out of order (RFC 2018).
    Sack(SackBlocks<'a>),
    /// The sender's clock and the last one heard (RFC 7323, section 3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The peer's clock as last heard.
        echo_reply: u32,
    },
    /// A Fast Open cookie, empty to ask for one (RFC 7413, section 4.1.1).
    FastOpen(&'a [u8]),
    /// Multipath TCP (RFC 8684, section 3).
    Mptcp {
        /// 0 capable, 1 join, 2 sequence signal, 3 add address, 4 remove address, 5 priority, 6 fail, 7 fast close.
        subtype: u8,
        /// All after kind and length; the subtype is the first byte's high half.
        data: &'a [u8],
    },
    /// An MD5 digest (RFC 2385).
    Md5(&'a [u8; 16]),
    /// The authentication option (RFC 5925, section 2.2).
    Authentication {
        /// Which key made the code.
        key_id: u8,
        /// Which key the sender will take next.
        next_key_id: u8,
        /// The message authentication code.
        code: &'a [u8],
    },
    /// Any other.
    Unknown {
        /// Its kind.
        kind: u8,
        /// All after kind and length.
        data: &'a [u8],
    },
}

impl TcpOption<'_> {
    /// Whether it is of the kind of selective acknowledgments, well formed or not.
    pub fn is_sack(&self) -> bool {
        matches!(self, Self::Sack(_) | Self::Unknown { kind: 5, .. })
    }
}

/// The blocks of a SACK option: 1 to 4 pairs of sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl<'a> SackBlocks<'a> {
    /// First sequence number of each block and the one after its last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        self.0.iter().map(|[a, b, c, d, e, f, g, h]| {
            (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]))
        })
    }
}

/// The options of one header, in order, without padding. After a wrong length, one error and then nothing.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> TcpOptions<'a> {
    /// The options in `bytes`, which stand between a TCP header's fixed part and its payload.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }
    /// Where the next option, or padding before it, begins, in bytes from the first option.
    pub(crate) fn offset(&self) -> usize {
        self.len - self.rest.len()
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [0, ..] => {
                    self.rest = &[];
                    return None;
                }
                [1, ref rest @ ..] => self.rest = rest,
                [kind, length, ..] if length >= 2 && usize::from(length) <= self.rest.len() => {
                    let (option, rest) = self.rest.split_at(usize::from(length));
                    self.rest = rest;
                    return Some(Ok(read(kind, &option[2..])));
                }
                [_, ref rest @ ..] => {
                    let (found, needed) =
                        (rest.first().map_or(0, |length| usize::from(*length)), self.rest.len());
                    self.rest = &[];
                    return Some(Err(malformed::<Tcp>(
                        "an option's length is below 2 or beyond the options",
                        needed,
                        found,
                    )));
                }
            }
        }
    }
}

fn read(kind: u8, data: &[u8]) -> TcpOption<'_> {
    match (kind, data) {
        (2, [high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([*high, *low])),
        (3, [shift]) => TcpOption::WindowScale(*shift),
        (4, []) => TcpOption::SackPermitted,
        (5, data) => match data.as_chunks::<8>() {
            (blocks, []) if !blocks.is_empty() => TcpOption::Sack(SackBlocks(blocks)),
            _ => TcpOption::Unknown { kind, data },
        },
        (8, [a, b, c, d, e, f, g, h]) => TcpOption::Timestamps {
            value: u32::from_be_bytes([*a, *b, *c, *d]),
            echo_reply: u32::from_be_bytes([*e, *f, *g, *h]),
        },
        (19, data) => match data.as_array() {
            Some(digest) => TcpOption::Md5(digest),
            None => TcpOption::Unknown { kind, data },
        },
        (29, [key_id, next_key_id, code @ ..]) => {
            TcpOption::Authentication { key_id: *key_id, next_key_id: *next_key_id, code }
        }
        (30, [first, ..]) => TcpOption::Mptcp { subtype: first >> 4, data },
        (34, cookie) => TcpOption::FastOpen(cookie),
        (kind, data) => TcpOption::Unknown { kind, data },
    }
}

/// The signature of a segment. A receiver drops segments with another signature than it agreed on.
///
/// It does so before it reads anything else of the segment, resets included (RFC 2385, section 2; RFC 5925, section 7.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Signature {
    /// None.
    #[default]
    None,
    /// With an MD5 digest (RFC 2385).
    Md5,
    /// With the TCP Authentication Option (RFC 5925).
    Authentication,
    /// More than one, which no receiver takes (RFC 5925, section 2.2).
    Several,
}

impl Signature {
    /// The signature among a header's options.
    ///
    /// ```
    /// use netbricks_packet::tcp_options::Signature;
    ///
    /// assert_eq!(Signature::of(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]), Signature::None);
    /// let mut signed = [0; 20];
    /// signed[..2].copy_from_slice(&[19, 18]);
    /// assert_eq!(Signature::of(&signed), Signature::Md5);
    /// ```
    #[inline]
    pub fn of(options: &[u8]) -> Self {
        // Nearly all segments have no options, or time stamps alone (RFC 7323, appendix A).
        match options {
            [] | [1, 1, 8, 10, _, _, _, _, _, _, _, _] => Self::None,
            _ => Self::among(options),
        }
    }

    #[cold]
    fn among(options: &[u8]) -> Self {
        TcpOptions::new(options).flatten().fold(Self::None, |found, option| {
            let signs = match option {
                TcpOption::Md5(_) => Self::Md5,
                TcpOption::Authentication { .. } => Self::Authentication,
                _ => return found,
            };
            if found == Self::None { signs } else { Self::Several }
        })
    }
}

/// The most bytes of options that a header has room for.
pub const LONGEST: usize = 40;

/// Writes options as they are, with other blocks of selective acknowledgments (RFC 2018).
///
/// They are the first of `blocks` for which there is room. Each has its first sequence number and the one
/// after its last.
///
/// ```
/// use netbricks_packet::tcp_options::{LONGEST, with_sack};
///
/// let timestamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
/// let mut options = [0; LONGEST];
/// let len = with_sack(&timestamps, &[(7, 9)], &mut options);
/// assert_eq!(options[..12], timestamps);
/// assert_eq!(options[12..len], [1, 1, 5, 10, 0, 0, 0, 7, 0, 0, 0, 9]);
/// ```
pub fn with_sack(options: &[u8], blocks: &[(u32, u32)], to: &mut [u8; LONGEST]) -> usize {
    const NO_OPERATION: u8 = 1;
    const SACK: u8 = 5;
    let options = &options[..options.len().min(LONGEST)];
    let (mut len, mut all) = (0, TcpOptions::new(options));
    loop {
        let from = all.offset();
        let Some(Ok(option)) = all.next() else { break };
        if !option.is_sack() {
            // With the no-operations before it, so that it keeps its place.
            let option = &options[from..all.offset()];
            to[len..len + option.len()].copy_from_slice(option);
            len += option.len();
        }
    }
    // Numbers are at multiples of four.
    let at = (len + 2).next_multiple_of(4);
    let count = blocks.len().min(LONGEST.saturating_sub(at) / 8);
    let end = if count > 0 { at + 8 * count } else { len.next_multiple_of(4) };
    to[len..end].fill(NO_OPERATION);
    if count > 0 {
        (to[at - 2], to[at - 1]) = (SACK, 2 + 8 * count as u8);
        for ((first, behind), place) in blocks.iter().zip(to[at..end].as_chunks_mut::<8>().0) {
            let (left, right) = place.split_at_mut(4);
            left.copy_from_slice(&first.to_be_bytes());
            right.copy_from_slice(&behind.to_be_bytes());
        }
    }
    end
}

/// Lowers every maximum segment size in options to at most `limit` bytes. Answers whether one changed.
///
/// If there are several, receivers differ in the one that they take.
///
/// ```
/// use netbricks_packet::tcp_options::clamp_maximum_segment_size;
///
/// let mut options = [1, 2, 4, 0x05, 0xb4, 1, 1, 1];
/// assert!(clamp_maximum_segment_size(&mut options, 1400));
/// assert_eq!(options, [1, 2, 4, 0x05, 0x78, 1, 1, 1]);
/// ```
pub fn clamp_maximum_segment_size(options: &mut [u8], limit: u16) -> bool {
    let (mut from, mut lowered) = (0, false);
    loop {
        let mut rest = TcpOptions::new(&options[from..]);
        let Some(Ok(option)) = rest.next() else { return lowered };
        let larger = matches!(option, TcpOption::MaximumSegmentSize(size) if size > limit);
        from += rest.offset();
        if larger {
            options[from - 2..from].copy_from_slice(&limit.to_be_bytes());
            lowered = true;
        }
    }
}

/// Writes the sender's clock into options that have one (RFC 7323, section 3).
pub fn set_clock(options: &mut [u8], value: u32) {
    let mut all = TcpOptions::new(options);
    while let Some(Ok(option)) = all.next() {
        if let TcpOption::Timestamps { .. } = option {
            let end = all.offset();
            options[end - 8..end - 4].copy_from_slice(&value.to_be_bytes());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;
    use crate::oracle::{self, Random};

    #[test]
    fn every_kind_reads_as_its_rfc_says() {
        let bytes = [
            2, 4, 5, 0xb4, 1, 3, 3, 7, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 5, 10, 0, 0, 0, 9, 0, 0, 1, 0,
            34, 4, 7, 7, 30, 3, 0x12, 29, 5, 1, 2, 0xcc, 2, 3, 0, 99, 2, 0, 2, 9,
        ];
        let options: Vec<_> = TcpOptions::new(&bytes).map(Result::unwrap).collect();
        let expected = [
            TcpOption::MaximumSegmentSize(1460),
            TcpOption::WindowScale(7),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 1, echo_reply: 2 },
            TcpOption::Sack(SackBlocks(&[[0, 0, 0, 9, 0, 0, 1, 0]])),
            TcpOption::FastOpen(&[7, 7]),
            TcpOption::Mptcp { subtype: 1, data: &[0x12] },
            TcpOption::Authentication { key_id: 1, next_key_id: 2, code: &[0xcc] },
            TcpOption::Unknown { kind: 2, data: &[0] },
            TcpOption::Unknown { kind: 99, data: &[] },
        ];
        assert_eq!(options, expected);
        let TcpOption::Sack(blocks) = options[4] else { panic!("no blocks") };
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [(9, 256)]);
    }

    #[test]
    fn any_bytes_end_with_at_most_one_error() {
        let mut random = Random(41);
        for _ in 0..50_000 {
            let size = random.below(41);
            let mut bytes =
                if random.chance(2) { random.bytes(size) } else { oracle::tcp_options(&mut random, size) };
            oracle::mutate(&mut random, &mut bytes);
            let items: Vec<_> = TcpOptions::new(&bytes).collect();
            assert!(items.len() <= bytes.len());
            assert!(items.iter().rev().skip(1).all(Result::is_ok));
        }
    }
    #[test]
    fn selective_acknowledgments_are_replaced_and_nothing_else_is() {
        let mut random = Random(43);
        let mut fitted = [0; 5];
        for _ in 0..50_000 {
            let size = random.below(11) * 4;
            let mut bytes = oracle::tcp_options(&mut random, size);
            if random.chance(4) {
                oracle::mutate(&mut random, &mut bytes);
            }
            let count = random.below(5);
            let blocks: Vec<_> = (0..count).map(|_| (random.word() as u32, random.word() as u32)).collect();
            let mut to = [0xaa; LONGEST];
            let len = with_sack(&bytes, &blocks, &mut to);
            assert!(len.is_multiple_of(4) && len <= LONGEST);
            let items: Result<Vec<_>, _> = TcpOptions::new(&to[..len]).collect();
            let items = items.expect("what is written is well formed");
            let before = TcpOptions::new(&bytes).map_while(Result::ok).filter(|option| !option.is_sack());
            let (sacks, others): (Vec<_>, Vec<_>) = items.into_iter().partition(TcpOption::is_sack);
            assert_eq!(others, before.collect::<Vec<_>>());
            let told: Vec<_> = match sacks[..] {
                [] => Vec::new(),
                [TcpOption::Sack(blocks)] => blocks.iter().collect(),
                _ => panic!("{sacks:?}"),
            };
            assert_eq!(told, blocks[..told.len()]);
            // As many as fit: one more would not.
            let room = LONGEST.saturating_sub(len) / 8;
            assert!(
                told.len() == blocks.len() || room == 0 || told.is_empty() && len + 12 > LONGEST,
                "{len}"
            );
            fitted[told.len()] += 1;
        }
        assert!(fitted.iter().all(|times| *times > 100), "{fitted:?}");
    }
    #[test]
    fn every_segment_size_is_lowered_and_nothing_else_is() {
        let mut random = Random(45);
        let mut lowered = [0; 3];
        for _ in 0..50_000 {
            let size = random.below(41);
            let mut bytes = oracle::tcp_options(&mut random, size);
            if random.chance(4) {
                oracle::mutate(&mut random, &mut bytes);
            }
            let limit = random.word() as u16;
            let mut after = bytes.clone();
            let said = clamp_maximum_segment_size(&mut after, limit);
            let mut times = 0;
            let all = TcpOptions::new(&bytes).map(|option| match option {
                Ok(TcpOption::MaximumSegmentSize(size)) => {
                    times += usize::from(size > limit);
                    Ok(TcpOption::MaximumSegmentSize(size.min(limit)))
                }
                other => other,
            });
            assert!(all.eq(TcpOptions::new(&after)));
            assert_eq!(said, times > 0);
            let changed = bytes.iter().zip(&after).filter(|(before, after)| before != after).count();
            assert!(changed <= 2 * times, "{changed}");
            lowered[times.min(2)] += 1;
        }
        assert!(lowered.iter().all(|times| *times > 100), "{lowered:?}");
    }
    #[test]
    fn a_clock_is_written_and_nothing_else_is() {
        let mut random = Random(44);
        let mut written = 0;
        for _ in 0..50_000 {
            let size = random.below(41);
            let mut bytes = oracle::tcp_options(&mut random, size);
            if random.chance(4) {
                oracle::mutate(&mut random, &mut bytes);
            }
            let mut after = bytes.clone();
            set_clock(&mut after, 0x0102_0304);
            let mut clocks = 0;
            for (before, after) in TcpOptions::new(&bytes).zip(TcpOptions::new(&after)) {
                match (before, after) {
                    (Ok(TcpOption::Timestamps { echo_reply, .. }), after) if clocks == 0 => {
                        assert_eq!(after, Ok(TcpOption::Timestamps { value: 0x0102_0304, echo_reply }));
                        clocks += 1;
                    }
                    (before, after) => assert_eq!(before, after),
                }
            }
            let changed = bytes.iter().zip(&after).filter(|(before, after)| before != after).count();
            assert!(changed <= 4 * clocks, "{changed}");
            written += clocks;
        }
        assert!(written > 1_000, "{written}");
    }
}
