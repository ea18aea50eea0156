//! Configuration strings: arguments, words, comments and quotes.
//!
//! A configuration string is what stands between the parentheses of an element. Commas separate its arguments, spaces
//! separate the words of an argument, and comments count as spaces. `"..."` and `'...'` protect all of these.

/// Splits a configuration at its commas; each argument comes without comments and outer spaces.
///
/// An empty last argument is left out, so the empty configuration has no arguments.
pub fn split_arguments(config: &str) -> Vec<String> {
    let bytes = config.as_bytes();
    let mut arguments = Vec::new();
    let mut position = 0;
    while position < bytes.len() {
        let (argument, end) = clean(config, position, true);
        if !argument.is_empty() || end < bytes.len() {
            arguments.push(argument);
        }
        position = end + 1;
    }
    arguments
}

/// Joins arguments with commas; it protects nothing inside them.
pub fn join_arguments(arguments: &[String]) -> String {
    arguments.join(", ")
}

/// Splits an argument into its words at spaces and comments outside quotes.
pub fn split_words(argument: &str) -> Vec<String> {
    let bytes = argument.as_bytes();
    let mut words = Vec::new();
    let mut position = skip_blank(bytes, 0);
    while position < bytes.len() {
        let end = skip_word(bytes, position);
        words.push(slice(argument, position, end));
        position = skip_blank(bytes, end);
    }
    words
}

/// Takes the first word of an argument; the rest begins at the second.
pub fn next_word(argument: &str) -> (String, &str) {
    let bytes = argument.as_bytes();
    let begin = skip_blank(bytes, 0);
    let end = skip_word(bytes, begin);
    let rest = skip_blank(bytes, end);
    (slice(argument, begin, end), argument.get(rest..).unwrap_or(""))
}

/// Removes outer spaces, and puts one space for each comment with the spaces around it.
pub fn uncomment(text: &str) -> String {
    clean(text, 0, false).0
}

/// Removes comments and one level of quotes, and decodes escapes and `\<hex>` data.
pub fn unquote(text: &str) -> Vec<u8> {
    let clean = uncomment(text);
    let bytes = clean.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut quote = 0;
    let mut position = 0;
    while position < bytes.len() {
        let byte = bytes[position];
        let next = bytes.get(position + 1).copied();
        match byte {
            b'"' | b'\'' if quote == 0 => quote = byte,
            b'"' | b'\'' if quote == byte => quote = 0,
            b'\\' if next.is_some() && (quote == b'"' || (quote == 0 && next == Some(b'<'))) => {
                position = escape(bytes, position, &mut out);
                continue;
            }
            _ => out.push(byte),
        }
        position += 1;
    }
    out
}

/// Puts bytes in double quotes so that [`unquote`] gives them back.
///
/// Newlines stand as they are where `allow_newlines` says so, else as `\n`.
pub fn quote(bytes: &[u8], allow_newlines: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' | b'$' => out.extend(['\\', char::from(byte)]),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' if allow_newlines => out.push('\n'),
            b'\n' => out.push_str("\\n"),
            32..127 => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}

/// Says whether a text is a word: printable ASCII without spaces, quotes, backslashes and commas.
pub fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 33..127) && !b"\"'\\,".contains(&byte))
}

/// Says whether a text is an identifier: letters, digits, `_` and `@`, with single slashes inside.
pub fn is_click_id(text: &str) -> bool {
    text.split('/').all(|part| !part.is_empty() && part.bytes().all(is_identifier_byte))
}

/// Splits an argument after a keyword; `None` where it does not begin with one.
///
/// A keyword has letters, digits and `_.:?!`. The rest comes without its leading spaces.
pub fn keyword(argument: &str) -> Option<(&str, &str)> {
    let end = argument.bytes().position(is_space).unwrap_or(argument.len());
    let (word, rest) = argument.split_at(end);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:?!".contains(&byte);
    (!word.is_empty() && word.bytes().all(fits))
        .then(|| (word, rest.trim_start_matches(|c: char| c.is_ascii() && is_space(c as u8))))
}

/// Spaces as the C locale knows them.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

pub(crate) fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'@'
}

/// A part of a text. Positions are those of ASCII bytes, so they lie between characters.
pub(crate) fn slice(text: &str, begin: usize, end: usize) -> String {
    match text.get(begin..end) {
        Some(part) => part.to_owned(),
        None => String::from_utf8_lossy(text.as_bytes().get(begin..end).unwrap_or_default()).into_owned(),
    }
}

/// Whether a comment begins here.
pub(crate) fn at_comment(bytes: &[u8], position: usize) -> bool {
    bytes.get(position) == Some(&b'/') && matches!(bytes.get(position + 1), Some(b'/' | b'*'))
}

/// The position after the comment that begins here.
fn skip_comment(bytes: &[u8], begin: usize) -> usize {
    let rest = &bytes[begin + 2..];
    let length = if bytes[begin + 1] == b'/' {
        rest.iter().position(|&byte| byte == b'\n' || byte == b'\r').map(|at| {
            let pair = rest[at] == b'\r' && rest.get(at + 1) == Some(&b'\n');
            at + 1 + usize::from(pair)
        })
    } else {
        rest.windows(2).position(|pair| pair == b"*/").map(|at| at + 2)
    };
    length.map_or(bytes.len(), |length| begin + 2 + length)
}

/// The position after spaces and comments.
pub(crate) fn skip_blank(bytes: &[u8], mut position: usize) -> usize {
    while position < bytes.len() {
        if is_space(bytes[position]) {
            position += 1;
        } else if at_comment(bytes, position) {
            position = skip_comment(bytes, position);
        } else {
            break;
        }
    }
    position
}

/// The position after an escape; `\<` reaches to its `>`.
fn skip_escape(bytes: &[u8], begin: usize) -> usize {
    let mut position = begin + 2;
    match bytes.get(begin + 1) {
        Some(b'<') => {
            while position < bytes.len() {
                if bytes[position] == b'>' {
                    return position + 1;
                }
                position =
                    if at_comment(bytes, position) { skip_comment(bytes, position) } else { position + 1 };
            }
            position
        }
        Some(b'\r') if bytes.get(position) == Some(&b'\n') => position + 1,
        _ => position.min(bytes.len()),
    }
}

/// The position after a quoted or plain piece of text that is neither space nor comment.
fn skip_piece(bytes: &[u8], begin: usize) -> usize {
    match bytes[begin] {
        b'"' => {
            let mut position = begin + 1;
            while position < bytes.len() {
                match bytes[position] {
                    b'\\' => position = skip_escape(bytes, position),
                    b'"' => return position + 1,
                    _ => position += 1,
                }
            }
            bytes.len()
        }
        b'\'' => {
            let end = bytes[begin + 1..].iter().position(|&byte| byte == b'\'');
            end.map_or(bytes.len(), |at| begin + at + 2)
        }
        b'\\' if bytes.get(begin + 1) == Some(&b'<') => skip_escape(bytes, begin),
        _ => begin + 1,
    }
}

fn skip_word(bytes: &[u8], mut position: usize) -> usize {
    while position < bytes.len() && !is_space(bytes[position]) && !at_comment(bytes, position) {
        position = skip_piece(bytes, position);
    }
    position
}

/// The text from `position` without comments and outer spaces, to its end or the first comma; with that end.
fn clean(text: &str, position: usize, stop_at_comma: bool) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut position = skip_blank(bytes, position);
    let (mut left, mut right, mut commented) = (position, position, false);
    let mut out = String::new();
    while position < bytes.len() {
        if is_space(bytes[position]) {
            position += 1;
        } else if at_comment(bytes, position) {
            position = skip_comment(bytes, position);
            commented = true;
        } else if bytes[position] == b',' && stop_at_comma {
            break;
        } else {
            if commented {
                out.push_str(&slice(text, left, right));
                out.push(' ');
                left = position;
                commented = false;
            }
            position = skip_piece(bytes, position);
            right = position;
        }
    }
    out.push_str(&slice(text, left, right));
    (out, position)
}

/// Decodes the escape that begins here; gives the position after it.
fn escape(bytes: &[u8], begin: usize, out: &mut Vec<u8>) -> usize {
    let after = begin + 2;
    let plain = match bytes[begin + 1] {
        b'\r' => return after + usize::from(bytes.get(after) == Some(&b'\n')),
        b'\n' => return after,
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'0'..=b'7' => {
            let digits = bytes[begin + 1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
            let (count, value) = digits.fold((0, 0_u8), |(n, value), digit| {
                (n + 1, value.wrapping_mul(8).wrapping_add(digit - b'0'))
            });
            out.push(value);
            return begin + 1 + count;
        }
        b'x' => {
            let mut value = 0_u8;
            let mut position = after;
            while let Some(digit) = bytes.get(position).and_then(|&byte| hex(byte)) {
                value = value.wrapping_mul(16).wrapping_add(digit);
                position += 1;
            }
            out.push(value);
            return position;
        }
        b'<' => return hex_data(bytes, after, out),
        other => other,
    };
    out.push(plain);
    after
}

/// Decodes the inside of `\<48 65>`; gives the position after its `>`.
fn hex_data(bytes: &[u8], mut position: usize, out: &mut Vec<u8>) -> usize {
    let mut high = None;
    while position < bytes.len() {
        if bytes[position] == b'>' {
            return position + 1;
        }
        if at_comment(bytes, position) {
            position = skip_comment(bytes, position);
            continue;
        }
        if let Some(digit) = hex(bytes[position]) {
            match high.take() {
                Some(first) => out.push(first * 16 + digit),
                None => high = Some(digit),
            }
        }
        position += 1;
    }
    position
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
