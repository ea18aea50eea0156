//! Moves held bytes, and the time for which they were held, to another worker with their connections.

use std::ops::Range;

use super::{Held, InlineWindow, NONE};
use crate::kept::{Kept, WindowDecider};
use crate::migration::write_kept;
use crate::reader::Reader;
use crate::{Side, Source};

impl<F: WindowDecider> InlineWindow<F> {
    /// Whether the bytes that this side sends are shown.
    pub(super) fn shows(&self, side: Side) -> bool {
        self.config.only.is_none_or(|only| only == side)
    }

    /// Writes the held state of a direction that is shown, and gives back its memory.
    ///
    /// In order: whether it waits for more, how many bytes were shown, since when it waits, since when it
    /// holds bytes, the kept state, and the bytes.
    pub(super) fn give(&mut self, held: &mut Held<F::Kept>, to: &mut Vec<u8>) {
        to.push(u8::from(held.waits));
        to.extend(held.seen.to_be_bytes());
        to.extend(held.since.to_be_bytes());
        to.extend(self.hold_times.since(held.buffer).to_be_bytes());
        write_kept(&held.kept, to);
        to.extend(self.buffers.get(held.buffer, held.len as usize));
        self.release(held);
    }

    /// Continues with bytes that were held elsewhere, if there is memory for them.
    pub(super) fn take(
        &mut self,
        source: &Source,
        places: Range<u64>,
        bytes: &[u8],
    ) -> Option<Held<F::Kept>> {
        if !self.shows(source.side) {
            return places.is_empty().then(Held::default);
        }
        let (mut held, begun, bytes) = held(places, bytes)?;
        let since = |then: u64| then.min(source.now);
        held.since = since(held.since);
        if bytes.is_empty() {
            return Some(held);
        }
        // A full window would have been shown.
        let len = Some(bytes.len()).filter(|len| *len < self.config.size)?;
        held.buffer = self.buffers.free.pop()?;
        held.len = len as u32;
        self.buffers.of(held.buffer)[..len].copy_from_slice(bytes);
        self.hold_times.begin(held.buffer, &Source { now: since(begun), ..*source });
        Some(held)
    }
}

/// Whether some inline window may have written these bytes for a direction that holds bytes at `places`.
pub(super) fn accepts<K: Kept>(places: Range<u64>, bytes: &[u8]) -> bool {
    held::<K>(places, bytes).is_some()
}

/// Reads held bytes: their state without a buffer, since when (ns) any are held, and the bytes.
fn held<K: Kept>(places: Range<u64>, bytes: &[u8]) -> Option<(Held<K>, u64, &[u8])> {
    let mut head = Reader(bytes);
    let waits = head.byte().filter(|waits| *waits <= 1)? == 1;
    let (seen, since, begun) = (head.number(4)?, head.number(8)?, head.number(8)?);
    let kept = head.kept()?;
    let bytes = head.0;
    let sound = bytes.len() as u64 == places.end - places.start && seen <= bytes.len() as u64;
    let held = Held { buffer: NONE, len: 0, seen: seen as u32, offset: places.start, since, waits, kept };
    sound.then_some((held, begun, bytes))
}
