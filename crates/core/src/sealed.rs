//! Exported text, which ends in a line with its checksum.

use netbricks_tables::{Secret, hash_words};

/// The hash of text under `secret`, in words, the length first.
pub fn hash_text(text: &str, secret: &Secret) -> u64 {
    let mut words = vec![text.len() as u64];
    words.extend(text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    }));
    hash_words(&words, secret)
}

/// Text of whole lines, with the line of its checksum behind it. `seed` is that of the kind of text.
pub fn seal(mut text: String, seed: u64) -> Vec<u8> {
    text += &format!("{:016x}\n", hash_text(&text, &Secret::from_seed(seed)));
    text.into_bytes()
}

/// The lines of a text that was [sealed](seal); `None` where it is another or was changed.
pub fn unseal(bytes: &[u8], seed: u64) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let end = 1 + text.strip_suffix('\n')?.rfind('\n')?;
    let (body, sum) = text.split_at(end);
    (sum == format!("{:016x}\n", hash_text(body, &Secret::from_seed(seed)))).then_some(body)
}
