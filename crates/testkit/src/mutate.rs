//! Seeded mutations of frames, as a hostile network may send them.

/// A small generator of random numbers (xorshift64*): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "an endless generator is no iterator to its users")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Changes a frame as a hostile or broken sender might: bits, bytes, lengths, cuts, additions, repetitions.
pub fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let len = frame.len();
        if len == 0 {
            frame.push(random.next() as u8);
            continue;
        }
        // Headers matter most.
        let at = if random.below(4) == 0 { random.below(len) } else { random.below(len.min(80)) };
        match random.below(8) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.next() as u8,
            2 => frame[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 if at + 1 < len => {
                let value = [0u16, 1, 0xffff, len as u16, (len as u16).wrapping_sub(14)][random.below(5)];
                frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
            }
            4 => frame.truncate(at),
            5 => frame.extend(std::iter::repeat_n(random.next() as u8, random.below(64))),
            6 => {
                let piece = frame[at..len.min(at + 1 + random.below(24))].to_vec();
                let to = random.below(len);
                frame.splice(to..to, piece);
            }
            _ => {
                let end = len.min(at + 1 + random.below(16));
                frame.drain(at..end);
            }
        }
    }
    frame.truncate(9_000);
}
