//! The file `confirmed`: which configurations were confirmed, rolled back, or failed.
//!
//! `89abcdef {"format":1,"confirmed":[42,40],"rolled_back":[41],"failed":[]}`: one line, its CRC-32 first. A copy is
//! written after it, for the case that the file is damaged.

use serde::{Deserialize, Serialize};

use super::checksum::{checked, with_checksum};
use super::journal::{content, json};
use super::{Damage, FORMAT, Number, State};

/// The names of both copies, the one that is read first and written first before the other.
pub(super) const NAMES: [&str; 2] = ["confirmed", "confirmed.copy"];
/// Bytes that a file may have: much more than a few numbers for each configuration.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// The states of configurations. One that is in no list was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    format: u32,
    /// The last confirmed first.
    pub confirmed: Vec<Number>,
    rolled_back: Vec<Number>,
    failed: Vec<Number>,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { format: FORMAT, confirmed: Vec::new(), rolled_back: Vec::new(), failed: Vec::new() }
    }
}

impl Marks {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (mut text, _) = with_checksum(b"", &json(self));
        text.push('\n');
        text.into_bytes()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Marks, Damage> {
        let Some(line) = bytes.strip_suffix(b"\n") else {
            return Err(Damage::Short { expected: bytes.len() + 1, got: bytes.len() });
        };
        let (json, _) = checked(b"", line)?;
        let marks: Marks = content(json)?;
        if marks.format != FORMAT {
            return Err(Damage::Format { expected: FORMAT, got: marks.format });
        }
        Ok(marks)
    }

    pub(super) fn state(&self, number: Number) -> State {
        let lists = [
            (&self.confirmed, State::Confirmed),
            (&self.rolled_back, State::RolledBack),
            (&self.failed, State::Failed),
        ];
        let found = lists.iter().find(|(list, _)| list.contains(&number));
        found.map_or(State::Applied, |(_, state)| *state)
    }

    /// Gives a configuration this state in place of another. A confirmed one becomes the last confirmed.
    pub(super) fn set(&mut self, number: Number, state: State) {
        self.retain(|other| other != number);
        match state {
            State::Confirmed => self.confirmed.insert(0, number),
            State::RolledBack => self.rolled_back.push(number),
            State::Failed => self.failed.push(number),
            State::Applied => {}
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(Number) -> bool) {
        for list in [&mut self.confirmed, &mut self.rolled_back, &mut self.failed] {
            list.retain(|&number| keep(number));
        }
    }

    pub(super) fn highest(&self) -> Option<Number> {
        [&self.confirmed, &self.rolled_back, &self.failed].into_iter().flatten().max().copied()
    }
}
