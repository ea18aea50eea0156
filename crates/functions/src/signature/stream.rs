//! The state of each direction of a connection: its last bytes, and how far they are read.

use netbricks_stream::Kept;

use super::config::MUCH;
use super::group::{Group, Searcher, StateID};

/// The last bytes of a direction, `N` at most, and the automaton's state behind them.
///
/// The byte at a position is at that position modulo `N`, so that nothing moves when bytes come.
#[derive(Clone, Copy)]
pub(super) struct Reading<const N: usize> {
    /// The set of rules whose state it is; 0 for none.
    set: u64,
    state: StateID,
    /// The position behind the last byte.
    end: u64,
    /// Where bytes begin that must be read again: a rule was found by them, and not decided.
    again: u64,
    len: u32,
    bytes: [u8; N],
}

/// Nothing has to be read again.
const NEVER: u64 = u64::MAX;

impl<const N: usize> Default for Reading<N> {
    fn default() -> Self {
        Self { set: 0, state: StateID::default(), end: 0, again: NEVER, len: 0, bytes: [0; N] }
    }
}

impl<const N: usize> Reading<N> {
    /// The position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Appends the last bytes from a position on, which must be one of theirs or their end.
    pub(super) fn history_from(&self, from: u64, to: &mut Vec<u8>) {
        let (len, start) = ((self.end - from) as usize, place::<N>(from));
        let first = len.min(N - start);
        to.extend_from_slice(&self.bytes[start..start + first]);
        to.extend_from_slice(&self.bytes[..len - first]);
    }

    /// The position of the first of the last bytes.
    pub(super) fn base(&self) -> u64 {
        self.end - u64::from(self.len)
    }

    /// Bytes before `offset` are missing: what comes is no continuation.
    pub(super) fn skip_to(&mut self, offset: u64) {
        if offset != self.end {
            (self.set, self.end, self.again, self.len) = (0, offset, NEVER, 0);
        }
    }

    /// Reads on in the bytes that follow. `hit` gets each rule that is found, and where its bytes begin.
    ///
    /// Where an earlier rule was not decided, or the rules changed, the last bytes are read again.
    ///
    /// `data` is memory for that.
    pub(super) fn scan(
        &mut self,
        searcher: &Searcher,
        set: u64,
        group: &Group,
        fresh: &[u8],
        data: &mut Vec<u8>,
        mut hit: impl FnMut(u32, u64),
    ) {
        let base = self.base();
        if self.set != set {
            // The state of other rules means nothing here.
            data.clear();
            self.history_from(base, data);
            self.state = group.state_behind(data);
            (self.set, self.again) = (set, base);
        }
        if self.again < self.end {
            let from = self.again.max(base);
            data.clear();
            self.history_from(from, data);
            group.scan(searcher, group.start(), data, 0, |rule, end, len| {
                hit(rule, from + (end - len) as u64);
            });
        }
        // Literals may begin in the bytes before.
        let before = (self.len as usize).min(group.reach());
        data.clear();
        self.history_from(self.end - before as u64, data);
        data.extend_from_slice(fresh);
        let begin = self.end - before as u64;
        self.state = group.scan(searcher, self.state, data, before, |rule, behind, len| {
            // The automaton's state also knows short literals that began earlier.
            hit(rule, (begin + behind as u64).saturating_sub(len as u64));
        });
    }

    /// Keeps the last bytes with these behind them. Rules found from `again` on are not decided.
    pub(super) fn append(&mut self, fresh: &[u8], again: Option<u64>) {
        let last = &fresh[fresh.len().saturating_sub(N)..];
        let start = place::<N>(self.end + (fresh.len() - last.len()) as u64);
        let first = last.len().min(N - start);
        self.bytes[start..start + first].copy_from_slice(&last[..first]);
        self.bytes[..last.len() - first].copy_from_slice(&last[first..]);
        self.len = (self.len as usize + last.len()).min(N) as u32;
        self.end += fresh.len() as u64;
        self.again = again.map_or(NEVER, |again| again.max(self.base()));
    }
}

/// Where the byte at a position is.
const fn place<const N: usize>(position: u64) -> usize {
    (position % N as u64) as usize
}

/// The version of the format that moves.
const VERSION: u8 = 1;

/// The format: version, position of the end, position of the first byte to be read again, and the last bytes.
impl<const N: usize> Kept for Reading<N> {
    fn pack(&self, to: &mut Vec<u8>) {
        // The state is made again from the bytes.
        let Self { set: _, state: _, end, again, len: _, bytes: _ } = self;
        to.push(VERSION);
        to.extend(end.to_be_bytes());
        to.extend(again.to_be_bytes());
        self.history_from(self.base(), to);
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let ([VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (end, rest) = rest.split_first_chunk()?;
        let (again, history) = rest.split_first_chunk()?;
        let (end, again) = (u64::from_be_bytes(*end), u64::from_be_bytes(*again));
        let base = end.checked_sub(history.len() as u64)?;
        if history.len() > MUCH || end >= 1 << 62 || again != NEVER && !(base..end).contains(&again) {
            return None;
        }
        let mut reading = Self { end: base, ..Self::default() };
        reading.append(history, (again != NEVER).then_some(again));
        Some(reading)
    }
}
