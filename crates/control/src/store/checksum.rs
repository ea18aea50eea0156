//! The checksum of everything that the store writes: CRC-32 as in IEEE 802.3.
//!
//! It finds accidents: truncation, zeros, flipped bits, parts of two versions. It keeps out no attacker; the directory's
//! permissions do.

use super::damage::Damage;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// The CRC-32 of these parts, as if they were one.
pub(super) fn crc32(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(!0, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// The first bytes of a checked text: eight hexadecimal digits and a space.
pub(super) const PREFIX: usize = 9;

/// Splits `89abcdef TEXT` into the text and its checksum, which counts `before` too.
pub(super) fn checked<'a>(before: &[u8], bytes: &'a [u8]) -> Result<(&'a [u8], u32), Damage> {
    let Some((prefix, text)) = bytes.split_at_checked(PREFIX) else {
        return Err(Damage::Short { expected: PREFIX, got: bytes.len() });
    };
    let sum = crc32(&[before, text]);
    let expected = format!("{sum:08x} ");
    if prefix != expected.as_bytes() {
        let got = String::from_utf8_lossy(prefix).into_owned();
        return Err(Damage::Checksum { expected: expected.trim_end().into(), got });
    }
    Ok((text, sum))
}

/// A text with its checksum before it: `89abcdef TEXT`. The checksum counts `before` too.
pub(super) fn with_checksum(before: &[u8], text: &str) -> (String, u32) {
    let sum = crc32(&[before, text.as_bytes()]);
    (format!("{sum:08x} {text}"), sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRC algorithms.
    #[test]
    fn the_checksum_is_crc_32() {
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_found() {
        let (line, sum) = with_checksum(b"before", "{\"a\":1}");
        let bytes = line.into_bytes();
        assert_eq!(checked(b"before", &bytes), Ok((&b"{\"a\":1}"[..], sum)));
        assert!(checked(b"after", &bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(checked(b"before", &wrong).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(checked(b"before", &bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
