//! Reads numbers and byte strings one after the other, as long as bytes are left.

/// The bytes of an image that are not read yet.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    /// A big-endian number of this many bytes.
    pub(super) fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(number(self.take(bytes)?))
    }
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
