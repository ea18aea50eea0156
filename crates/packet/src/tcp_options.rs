//! TCP options (RFC 9293, section 3.2), one by one, whatever their length bytes claim.

use crate::stack::{Malformed, malformed};
use crate::tcp::Tcp;

/// One TCP option. A known kind whose length is not the one that its RFC gives is [`Unknown`](TcpOption::Unknown).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// The largest segment that the sender takes, in bytes (RFC 9293, section 3.7.1).
    MaximumSegmentSize(u16),
    /// By how many bits the sender's windows are to be shifted, 0 to 14 (RFC 7323, section 2).
    WindowScale(u8),
    /// The sender understands selective acknowledgments (RFC 2018, section 2).
    SackPermitted,
    /// What arrived out of order (RFC 2018, section 3).
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

/// The options of one header, in order, without padding; after a length that lies, one error and then nothing.
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
}
