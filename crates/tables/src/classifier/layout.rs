//! The fields of a key vector and their places in it.

/// Places of the fields of a key vector, which is a slice of 32-bit words.
///
/// A field of up to 32 bits takes one word, right-aligned. A longer one takes as many words as it needs, the most
/// significant word first. The unused high bits of a field's first word are 0 in every key.
///
/// ```
/// use netbricks_tables::classifier::Layout;
///
/// let mut layout = Layout::new();
/// let (source, port) = (layout.field(128), layout.field(16));
/// let mut key = vec![0; layout.words()];
/// source.put(&mut key, 0x2001_0db8 << 96 | 1);
/// port.put(&mut key, 443);
/// assert_eq!(key, [0x2001_0db8, 0, 0, 1, 443]);
/// assert_eq!(source.get(&key), 0x2001_0db8 << 96 | 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    words: u16,
}

/// A field of a key vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    word: u16,
    bits: u16,
}

impl Layout {
    /// A layout without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field of so many bits behind the others.
    ///
    /// It has 1 to 128 bits; for a number outside the nearest counts.
    ///
    /// # Panics
    /// Where all fields together have more than 65,535 words.
    pub fn field(&mut self, bits: u16) -> Field {
        let field = Field { word: self.words, bits: bits.clamp(1, 128) };
        let words = self.words.checked_add(field.words() as u16);
        assert!(words.is_some(), "a key vector of more than 65,535 words: take fields out");
        self.words = words.unwrap_or(self.words);
        field
    }

    /// Words of a key vector.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.into()
    }

    /// Whether all fields of `other` have the same places here, as where this one is `other` with fields added.
    pub(super) fn extends(&self, other: &Self) -> bool {
        self.words >= other.words
    }

    /// Whether `field` lies inside the key vector.
    pub(super) fn has(&self, field: Field) -> bool {
        field.word() + field.words() <= self.words()
    }
}

impl Field {
    /// The place of the field's first word.
    #[inline(always)]
    #[must_use]
    pub fn word(self) -> usize {
        self.word.into()
    }

    /// The field's width in bits.
    #[must_use]
    pub fn bits(self) -> u16 {
        self.bits
    }

    /// Words that it takes.
    #[inline(always)]
    pub(super) fn words(self) -> usize {
        usize::from(self.bits).div_ceil(32)
    }

    /// The field's greatest value.
    #[inline(always)]
    pub(super) fn greatest(self) -> u128 {
        u128::MAX >> (128 - u32::from(self.bits))
    }

    /// The part of a value that lies in word `nth` of the field, counted from the most significant.
    #[inline(always)]
    pub(super) fn part(self, value: u128, nth: usize) -> u32 {
        (value >> (32 * (self.words() - 1 - nth))) as u32
    }

    /// Writes `value` into a key vector; bits above the field's width are dropped.
    ///
    /// Words of the field that the vector does not have are left out.
    #[inline]
    pub fn put(self, key: &mut [u32], value: u128) {
        if self.bits <= 32 {
            return self.put_word(key, value as u32);
        }
        let value = value & self.greatest();
        if self.bits > 96
            && let Some(words) = key.get_mut(self.word()..).and_then(|words| words.first_chunk_mut())
        {
            *words = [value >> 96, value >> 64, value >> 32, value].map(|word| word as u32);
            return;
        }
        for (nth, word) in key.iter_mut().skip(self.word()).take(self.words()).enumerate() {
            *word = self.part(value, nth);
        }
    }

    /// As [`put`](Self::put), with the low 32 bits of a value; words above them become 0.
    #[inline(always)]
    pub fn put_word(self, key: &mut [u32], value: u32) {
        if self.bits > 32 {
            return self.put(key, value.into());
        }
        if let Some(word) = key.get_mut(self.word()) {
            *word = value & u32::MAX >> (32 - u32::from(self.bits));
        }
    }

    /// The field's value in a key vector; words that the vector does not have count as 0.
    #[inline]
    #[must_use]
    pub fn get(self, key: &[u32]) -> u128 {
        let mut value = 0;
        for nth in 0..self.words() {
            value = value << 32 | u128::from(key.get(self.word() + nth).copied().unwrap_or(0));
        }
        value
    }
}
