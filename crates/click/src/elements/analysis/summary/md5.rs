//! The MD5 digest (RFC 1321), by which dumps compare payloads.

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";

fn block(state: &mut [u32; 4], bytes: &[u8]) {
    let word = |place: usize| {
        let at = place * 4;
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mix, place) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        // The constants are the sine's absolute value at whole numbers.
        let sine = ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mix).wrapping_add(sine).wrapping_add(word(place));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d]) {
        *old = old.wrapping_add(new);
    }
}

/// The digest of bytes.
pub(super) fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    let whole = bytes.len() / 64 * 64;
    for chunk in bytes[..whole].chunks_exact(64) {
        block(&mut state, chunk);
    }
    let mut last = bytes[whole..].to_vec();
    last.push(0x80);
    last.resize(if last.len() <= 56 { 56 } else { 120 }, 0);
    last.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    for chunk in last.chunks_exact(64) {
        block(&mut state, chunk);
    }
    let mut digest = [0; 16];
    for (place, word) in state.iter().enumerate() {
        digest[place * 4..place * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// A digest in 22 letters, six bits each, the lowest first.
pub(super) fn letters(digest: [u8; 16]) -> String {
    let all = u128::from_le_bytes(digest);
    (0..22).map(|place| char::from(LETTERS[(all >> (6 * place)) as usize & 63])).collect()
}

/// A digest in hexadecimal.
pub(super) fn hexadecimal(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
