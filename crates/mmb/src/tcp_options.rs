//! The options of a TCP header, and their values in key vectors.

/// A number option's value with the bit that says that it is there; 0 for one whose length is wrong.
pub(crate) fn number_option(data: &[u8], bits: u16) -> u128 {
    let bytes = usize::from(bits / 8);
    // The timestamp's value comes before its echo.
    let is_whole = data.len() == bytes || bits == 32 && data.len() == 8;
    match data.get(..bytes) {
        Some(value) if is_whole => {
            1 << bits | value.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
        }
        _ => 0,
    }
}

/// Kinds of TCP options whose places are kept; the usual ones are below.
const KEPT: usize = 64;

/// The options of a TCP header, the first of each kind.
pub(crate) struct Options<'f> {
    /// The kinds that there are, as a set.
    pub(crate) kinds: [u128; 2],
    bytes: &'f [u8],
    /// Where the first option of each kind has its data: the offset, and the offset behind it.
    places: [(u8, u8); KEPT],
}

impl<'f> Options<'f> {
    #[inline]
    /// Reads options.
    pub(crate) fn of(bytes: &'f [u8]) -> Self {
        let (mut kinds, mut places) = ([0; 2], [(0, 0); KEPT]);
        // A header has at most 40 bytes of options.
        for (at, kind, data) in walk_at(bytes.get(..255).unwrap_or(bytes)) {
            let (all, bit) = (&mut kinds[usize::from(kind >> 7)], 1u128 << (kind & 0x7f));
            if *all & bit == 0
                && let Some(place) = places.get_mut(usize::from(kind))
            {
                *place = (at as u8, (at + data.len()) as u8);
            }
            *all |= bit;
        }
        Self { kinds, bytes, places }
    }
    #[inline]
    /// The data of the first option of a kind.
    pub(crate) fn data(&self, kind: u8) -> Option<&'f [u8]> {
        if self.kinds[usize::from(kind >> 7)] & 1u128 << (kind & 0x7f) == 0 {
            return None;
        }
        match self.places.get(usize::from(kind)) {
            Some((start, end)) => self.bytes.get(usize::from(*start)..usize::from(*end)),
            None => walk(self.bytes).find(|(known, _)| *known == kind).map(|(_, data)| data),
        }
    }
}

/// The options of a TCP header, with kind and data of each (RFC 9293, section 3.1).
///
/// Padding is left out. The walk ends at an option whose length is wrong.
pub(crate) fn walk(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    walk_at(bytes).map(|(_, kind, data)| (kind, data))
}

/// As [`walk`], with the offset of each option's data.
pub(crate) fn walk_at(bytes: &[u8]) -> impl Iterator<Item = (usize, u8, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            match bytes.get(at..)? {
                [] | [0, ..] | [_] => return None,
                [1, ..] => at += 1,
                [kind, len, ..] => {
                    let first = at + 2;
                    at += usize::from(*len);
                    return Some((first, *kind, bytes.get(first..at)?));
                }
            }
        }
    })
}
