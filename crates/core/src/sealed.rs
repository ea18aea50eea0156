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
fn unseal(bytes: &[u8], seed: u64) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let end = 1 + text.strip_suffix('\n')?.rfind('\n')?;
    let (body, sum) = text.split_at(end);
    (sum == format!("{:016x}\n", hash_text(body, &Secret::from_seed(seed)))).then_some(body)
}

/// The rest of the first line, and the lines behind it, of a [sealed](seal) export.
///
/// Its first line begins with `form`. `things` are what it exports, for messages.
///
/// # Errors
/// A text that is another, was changed, or has another form.
pub fn open<'t>(bytes: &'t [u8], seed: u64, form: &str, things: &str) -> Result<(&'t str, &'t str), String> {
    let damaged = || damaged(things);
    let (head, lines) = unseal(bytes, seed).and_then(|body| body.split_once('\n')).ok_or_else(damaged)?;
    match head.split_once(' ') {
        Some((found, rest)) if found == form => Ok((rest, lines)),
        _ => Err(format!("exported {things} of another form, `{head}`: export them with this version")),
    }
}

/// The problem of an export of these things that cannot be read.
pub fn damaged(things: &str) -> String {
    format!("no exported {things}, or changed on their way: fetch the whole export again")
}

#[cfg(test)]
mod tests {
    use super::{open, seal};

    #[test]
    fn an_export_opens_by_its_seed_and_form_alone() {
        let bytes = seal("rules-1 00ff\none\ntwo\n".into(), 5);
        assert_eq!(open(&bytes, 5, "rules-1", "rules"), Ok(("00ff", "one\ntwo\n")));
        assert_eq!(open(&seal("rules-1 x\n".into(), 5), 5, "rules-1", "rules"), Ok(("x", "")));
        let damaged = "no exported rules, or changed on their way: fetch the whole export again";
        for (bytes, seed) in
            [(&bytes[..], 6), (&bytes[1..], 5), (&bytes[..bytes.len() - 1], 5), (&[], 5), (b"\xff", 5)]
        {
            assert_eq!(open(bytes, seed, "rules-1", "rules").unwrap_err(), damaged);
        }
        for form in ["rules-2", "rules", "rules-1 00ff"] {
            let refused = open(&bytes, 5, form, "rules").unwrap_err();
            assert_eq!(
                refused,
                "exported rules of another form, `rules-1 00ff`: export them with this version"
            );
        }
    }
}
