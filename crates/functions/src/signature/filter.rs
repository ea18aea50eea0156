//! Finds many literals: four bytes are looked up in a small bitmap at every few positions.
//!
//! Literals of `n` bytes or more are looked up at each `n - 3`rd position, since one of these blocks lies in each of them.
//! The bitmap fits the processor's nearest cache, where an automaton of a thousand literals does not. Where a bit is set,
//! the literals with this block are compared.

/// Bytes of a block, and so the fewest of a literal.
pub(super) const BLOCK: usize = 4;

/// The literals of a group of rules, in lower case.
pub(super) struct Filter {
    /// A bit for each hash of a block.
    map: Box<[u64]>,
    /// Bits of a hash.
    bits: u32,
    /// Positions from one look to the next.
    stride: usize,
    /// The blocks with which literals begin, by their hashes.
    blocks: Vec<Block>,
    /// Where the blocks begin whose hashes have the same upper bits.
    first: Box<[u32]>,
    literals: Vec<Literal>,
}

/// A block of a literal.
struct Block {
    hash: u32,
    literal: u32,
    /// Where it stands in the literal.
    offset: u32,
}

struct Literal {
    bytes: Box<[u8]>,
    rules: Box<[u32]>,
}

/// Bits of the hashes of few literals, and of very many.
const BITS: (u32, u32) = (16, 20);
/// Upper bits of a hash that lead to its blocks.
const UPPER: u32 = 12;
/// The most positions from one look to the next: with more, there are more blocks than looks are saved.
const MOST_STRIDE: usize = 8;

impl Filter {
    /// A filter of these literals, each in lower case and of at least [`BLOCK`] bytes, with their rules.
    pub(super) fn new<'l>(literals: impl Iterator<Item = (&'l [u8], Vec<u32>)>) -> Self {
        let literals: Vec<_> =
            literals.map(|(bytes, rules)| Literal { bytes: bytes.into(), rules: rules.into() }).collect();
        let shortest = literals.iter().map(|literal| literal.bytes.len()).min().unwrap_or(BLOCK);
        let stride = (shortest + 1).saturating_sub(BLOCK).clamp(1, MOST_STRIDE);
        // One bit in 32 is set, as far as that is possible.
        let bits = (literals.len() * stride * 32).next_power_of_two().trailing_zeros().clamp(BITS.0, BITS.1);
        let mut map = vec![0; 1 << (bits - 6)].into_boxed_slice();
        let mut blocks = Vec::with_capacity(literals.len() * stride);
        for (number, literal) in (0..).zip(&literals) {
            for (offset, block) in (0..).zip(literal.bytes.windows(BLOCK).take(stride)) {
                let hash = hash(block, bits);
                map[(hash >> 6) as usize] |= 1 << (hash & 63);
                blocks.push(Block { hash, literal: number, offset });
            }
        }
        blocks.sort_by_key(|block| block.hash);
        let begin = |upper: u32| blocks.partition_point(|block| block.hash >> (bits - UPPER) < upper) as u32;
        let first = (0..=1 << UPPER).map(begin).collect();
        Self { map, bits, stride, blocks, first, literals }
    }

    /// Bytes before others that the others may need: those of the longest literal, save its last one.
    pub(super) fn reach(&self) -> usize {
        self.literals.iter().map(|literal| literal.bytes.len() - 1).max().unwrap_or(0)
    }

    /// Looks for literals in `data` that end behind its first `known` bytes.
    ///
    /// `hit` gets each rule, the place behind its literal, and the literal's length.
    #[inline]
    pub(super) fn scan(&self, data: &[u8], known: usize, mut hit: impl FnMut(u32, usize, usize)) {
        let (bits, mask) = (self.bits, self.map.len() - 1);
        let mut at = 0;
        while let Some(block) = data.get(at..at + BLOCK) {
            let hash = hash(block, bits);
            // The mask keeps the place within the map, so that no check of it is needed.
            if self.map[(hash >> 6) as usize & mask] >> (hash & 63) & 1 != 0 {
                self.compare(hash, data, known, at, &mut hit);
            }
            at += self.stride;
        }
    }

    #[inline(never)]
    fn compare(
        &self,
        hash: u32,
        data: &[u8],
        known: usize,
        at: usize,
        hit: &mut impl FnMut(u32, usize, usize),
    ) {
        let upper = (hash >> (self.bits - UPPER)) as usize;
        let (from, to) = (self.first[upper] as usize, self.first[upper + 1] as usize);
        for block in self.blocks[from..to].iter().filter(|block| block.hash == hash) {
            let Literal { bytes, rules } = &self.literals[block.literal as usize];
            let Some(start) = at.checked_sub(block.offset as usize) else { continue };
            let end = start + bytes.len();
            if end > known && data.get(start..end).is_some_and(|part| part.eq_ignore_ascii_case(bytes)) {
                rules.iter().for_each(|rule| hit(*rule, end, bytes.len()));
            }
        }
    }

    pub(super) fn memory(&self) -> usize {
        let literals = self
            .literals
            .iter()
            .map(|literal| size_of::<Literal>() + literal.bytes.len() + literal.rules.len() * 4);
        self.map.len() * 8
            + self.first.len() * 4
            + self.blocks.len() * size_of::<Block>()
            + literals.sum::<usize>()
    }
}

/// The hash of a block, the same for both cases of a letter.
#[inline(always)]
fn hash(block: &[u8], bits: u32) -> u32 {
    let four = block.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
    (four | 0x2020_2020).wrapping_mul(0x9e37_79b1) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use netbricks_testkit::mutate::Random;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn literals_are_found_as_by_comparing_each_place(seed: u64, known in 0usize..100, least in BLOCK..12) {
            let mut random = Random::new(seed);
            let mut text = |least: usize, most: usize| -> Vec<u8> {
                (0..least + random.below(most)).map(|_| b"abcB@`"[random.below(6)]).collect()
            };
            let mut literals: Vec<Vec<u8>> = (0..30).map(|_| text(least, 4).to_ascii_lowercase()).collect();
            literals.sort();
            literals.dedup();
            // Some of them stand in the data.
            let mut data = text(0, 60);
            literals.iter().take(3).for_each(|literal| data.extend(literal));
            data.extend(text(0, 60));
            let filter = Filter::new((0..).zip(&literals).map(|(rule, literal)| (&literal[..], vec![rule])));
            let mut found = Vec::new();
            filter.scan(&data, known, |rule, end, len| found.push((rule, end, len)));
            let mut expected = Vec::new();
            for end in known + 1..=data.len() {
                for (rule, literal) in (0u32..).zip(&literals) {
                    let start = end.checked_sub(literal.len());
                    if start.is_some_and(|start| data[start..end].eq_ignore_ascii_case(literal)) {
                        expected.push((rule, end, literal.len()));
                    }
                }
            }
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
