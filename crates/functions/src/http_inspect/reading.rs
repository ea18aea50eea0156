//! The parser's state of a connection's requests, which moves to another worker with the connection.
//!
//! State from another worker is checked before it is used.

use netbricks_stream::Kept;

use super::parse::{Framing, LARGEST, Parser, Phase, Text};

/// The parser of a client's bytes; `WARY` if hosts are blocked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<const WARY: bool>(Parser);

impl<const WARY: bool> Reading<WARY> {
    pub(super) fn parser(&mut self) -> &mut Parser {
        &mut self.0
    }
}

impl<const WARY: bool> Default for Reading<WARY> {
    fn default() -> Self {
        Self(if WARY { Parser::WARY } else { Parser::NEW })
    }
}

/// The version of the format that moves.
const VERSION: u8 = 1;

/// Bits of the parser's flags; `CUT` is the bit of a text's flags.
const WARY: u8 = 1;
const DOUBTFUL: u8 = 2;
const AFTER_CR: u8 = 4;
const IN_LINE: u8 = 8;
const SIZED: u8 = 16;
const CUT: u8 = 1;

/// The format begins with version, flags, phase and framing, with their numbers.
///
/// The line, the request and the host follow, each as a byte that tells whether it was cut off, its length in
/// two bytes, and its bytes.
impl<const IS_WARY: bool> Kept for Reading<IS_WARY> {
    fn pack(&self, to: &mut Vec<u8>) {
        // Every field is named, so that a new one is not forgotten.
        let Parser { wary, doubtful, after_cr, in_line, phase, framing, sized, line, request, host } = self.0;
        let set =
            [(wary, WARY), (doubtful, DOUBTFUL), (after_cr, AFTER_CR), (in_line, IN_LINE), (sized, SIZED)];
        to.push(VERSION);
        to.push(set.into_iter().filter(|(is, _)| *is).fold(0, |flags, (_, bit)| flags | bit));
        let (phase, left) = match phase {
            Phase::Start => (0, 0),
            Phase::Lost => (1, 0),
            Phase::Fields => (2, 0),
            Phase::Body(left) => (3, left),
            Phase::ChunkSize => (4, 0),
            Phase::Chunk(left) => (5, left),
            Phase::ChunkEnd => (6, 0),
            Phase::Trailers => (7, 0),
            Phase::Tunnel => (8, 0),
        };
        let (framing, length) = match framing {
            Framing::Length(length) => (0, length),
            Framing::Chunked => (1, 0),
            Framing::Unknown => (2, 0),
        };
        for (kind, number) in [(phase, left), (framing, length)] {
            to.push(kind);
            to.extend(u64::to_be_bytes(number));
        }
        write(&line, to);
        write(&request, to);
        write(&host, to);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let mut from = bytes;
        let [VERSION, flags, phase] = *take(&mut from)? else { return None };
        if flags >= SIZED << 1 || (flags & WARY != 0) != IS_WARY {
            return None;
        }
        let left = number(&mut from)?;
        let phase = match (phase, left) {
            // A body or chunk with no bytes left is over, so 0 is refused.
            (3, 1..) => Phase::Body(left),
            (5, 1..) => Phase::Chunk(left),
            (0, 0) => Phase::Start,
            (1, 0) => Phase::Lost,
            (2, 0) => Phase::Fields,
            (4, 0) => Phase::ChunkSize,
            (6, 0) => Phase::ChunkEnd,
            (7, 0) => Phase::Trailers,
            (8, 0) => Phase::Tunnel,
            _ => return None,
        };
        let [framing] = *take(&mut from)?;
        let framing = match (framing, number(&mut from)?) {
            (0, length) => Framing::Length(length),
            (1, 0) => Framing::Chunked,
            (2, 0) => Framing::Unknown,
            _ => return None,
        };
        let parser = Parser {
            wary: IS_WARY,
            doubtful: flags & DOUBTFUL != 0,
            after_cr: flags & AFTER_CR != 0,
            in_line: flags & IN_LINE != 0,
            phase,
            framing,
            sized: flags & SIZED != 0,
            line: text(&mut from)?,
            request: text(&mut from)?,
            host: text(&mut from)?,
        };
        (from.is_empty() && can_be(&parser)).then_some(Self(parser))
    }
}

/// Whether a parser can have this state after some input.
fn can_be(parser: &Parser) -> bool {
    let Parser { wary, doubtful, after_cr, in_line, phase, framing, .. } = *parser;
    let small = |number| number <= LARGEST;
    let is_sized = match framing {
        Framing::Length(length) => small(length),
        Framing::Chunked | Framing::Unknown => true,
    };
    let is_phase = match phase {
        // A wary parser skips nothing when in doubt.
        Phase::Body(left) | Phase::Chunk(left) => small(left) && !doubtful,
        Phase::Tunnel => !wary,
        _ => true,
    };
    is_sized && is_phase && (wary || !(doubtful || after_cr || in_line))
}

fn write<const N: usize>(text: &Text<N>, to: &mut Vec<u8>) {
    to.push(if text.is_cut() { CUT } else { 0 });
    to.extend((text.get().len() as u16).to_be_bytes());
    to.extend(text.get());
}

fn text<const N: usize>(from: &mut &[u8]) -> Option<Text<N>> {
    let [cut, len @ ..] = *take::<3>(from)?;
    let (bytes, rest) = from.split_at_checked(usize::from(u16::from_be_bytes(len)))?;
    *from = rest;
    // A text that was cut off has the maximum length.
    let sound = cut <= CUT && bytes.len() <= N && (cut == 0 || bytes.len() == N);
    let mut text = Text::of(sound.then_some(bytes)?);
    if cut == CUT {
        // At least one byte was cut off.
        text.add(b"?");
    }
    Some(text)
}

fn number(from: &mut &[u8]) -> Option<u64> {
    take(from).map(|bytes| u64::from_be_bytes(*bytes))
}

fn take<'a, const N: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}
