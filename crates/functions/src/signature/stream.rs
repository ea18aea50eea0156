//! The state of each direction of a connection: its last bytes, and how far they are read.

use netbricks_stream::Kept;

use super::group::{Group, StateID};

/// Bytes of a direction in which the parts of one match are looked for.
pub(super) const HISTORY: usize = 2_048;

/// The last bytes of a direction, and the automaton's state behind them.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// The set of rules whose state it is; 0 for none.
    set: u64,
    state: StateID,
    /// The position behind the last byte.
    end: u64,
    /// Where bytes begin that must be read again: a rule was found by them, and not decided.
    again: u64,
    len: u16,
    bytes: [u8; HISTORY],
}

/// Nothing has to be read again.
const NEVER: u64 = u64::MAX;

impl Default for Reading {
    fn default() -> Self {
        Self { set: 0, state: StateID::default(), end: 0, again: NEVER, len: 0, bytes: [0; HISTORY] }
    }
}

impl Reading {
    /// The position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The last bytes.
    pub(super) fn history(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The position of the first of the last bytes.
    pub(super) fn base(&self) -> u64 {
        self.end - u64::from(self.len)
    }

    /// Bytes before `offset` are missing: what comes is no continuation.
    pub(super) fn skip_to(&mut self, offset: u64) {
        if offset != self.end {
            *self = Self { end: offset, ..Self::default() };
        }
    }

    /// Reads on in the bytes that follow. `hit` gets each rule that is found, and where its bytes begin.
    ///
    /// Where an earlier rule was not decided, or the rules changed, the last bytes are read again.
    ///
    /// `data` is memory for that.
    pub(super) fn scan(
        &mut self,
        set: u64,
        group: &Group,
        fresh: &[u8],
        data: &mut Vec<u8>,
        mut hit: impl FnMut(u32, u64),
    ) {
        let base = self.base();
        if self.set != set {
            // The state of other rules means nothing here.
            self.state = group.scan(group.start(), self.history(), 0, |_, _, _| ());
            (self.set, self.again) = (set, base);
        }
        if self.again < self.end {
            let from = self.again.max(base);
            let history = &self.history()[(from - base) as usize..];
            group.scan(group.start(), history, 0, |rule, end, len| hit(rule, from + (end - len) as u64));
        }
        // Literals may begin in the bytes before.
        let before = &self.history()[self.history().len().saturating_sub(group.reach())..];
        data.clear();
        data.extend_from_slice(before);
        data.extend_from_slice(fresh);
        let begin = self.end - before.len() as u64;
        self.state = group.scan(self.state, data, before.len(), |rule, behind, len| {
            // The automaton's state also knows short literals that began earlier.
            hit(rule, (begin + behind as u64).saturating_sub(len as u64));
        });
    }

    /// Keeps the last bytes with these behind them. Rules found from `again` on are not decided.
    pub(super) fn append(&mut self, fresh: &[u8], again: Option<u64>) {
        let kept = usize::from(self.len);
        if fresh.len() >= HISTORY {
            self.bytes.copy_from_slice(&fresh[fresh.len() - HISTORY..]);
            self.len = HISTORY as u16;
        } else {
            let gone = (kept + fresh.len()).saturating_sub(HISTORY);
            self.bytes.copy_within(gone..kept, 0);
            let from = kept - gone;
            self.bytes[from..from + fresh.len()].copy_from_slice(fresh);
            self.len = (from + fresh.len()) as u16;
        }
        self.end += fresh.len() as u64;
        self.again = again.map_or(NEVER, |again| again.max(self.base()));
    }
}

/// The version of the format that moves.
const VERSION: u8 = 1;

/// The format: version, position of the end, position of the first byte to be read again, and the last bytes.
impl Kept for Reading {
    fn pack(&self, to: &mut Vec<u8>) {
        // The state is made again from the bytes.
        let Self { set: _, state: _, end, again, len: _, bytes: _ } = self;
        to.push(VERSION);
        to.extend(end.to_be_bytes());
        to.extend(again.to_be_bytes());
        to.extend(self.history());
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let ([VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (end, rest) = rest.split_first_chunk()?;
        let (again, history) = rest.split_first_chunk()?;
        let (end, again) = (u64::from_be_bytes(*end), u64::from_be_bytes(*again));
        let mut reading = Self { end, again, len: history.len().try_into().ok()?, ..Self::default() };
        reading.bytes.get_mut(..history.len())?.copy_from_slice(history);
        let is_sound = end < 1 << 62
            && end >= history.len() as u64
            && (again == NEVER || (reading.base()..end).contains(&again));
        is_sound.then_some(reading)
    }
}
