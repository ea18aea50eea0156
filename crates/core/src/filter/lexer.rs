//! The words, numbers, addresses and symbols of a filter text.
//!
//! As in pcap-filter(7), the longest word counts: `len-14` is one name, `len - 14` a subtraction.

use std::net::Ipv6Addr;
use std::ops::Range;

use super::error::{Fault, FilterError};
use super::names::{self, Keyword};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Open,
    Close,
    OpenBracket,
    CloseBracket,
    Colon,
    Slash,
    Plus,
    Minus,
    Star,
    Percent,
    Ampersand,
    Bar,
    Caret,
    ShiftLeft,
    ShiftRight,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Keyword(Keyword),
    /// A word that is no keyword, or any word after a backslash, without it.
    Name(&'a str),
    Number(u32),
    /// Two to four numbers with dots: an IPv4 or DECnet address or a part of one.
    Dotted(&'a str),
    Ethernet([u8; 6]),
    Ipv6(Ipv6Addr),
    Symbol(Symbol),
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) range: Range<usize>,
}

/// All tokens of a text, with `End` as the last.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        at += blank;
        let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) else {
            tokens.push(Token { kind: Kind::End, range: text.len()..text.len() });
            return Ok(tokens);
        };
        let (kind, length) = token(rest).map_err(|(fault, length)| fault.at(text, at..at + length))?;
        tokens.push(Token { kind, range: at..at + length });
        at += length;
    }
}

impl Fault {
    /// The error of this fault at a place of the text.
    pub(super) fn at(self, text: &str, range: Range<usize>) -> FilterError {
        let found = match text.get(range.clone()) {
            Some("") | None => "the end of the filter".into(),
            Some(found) => format!("`{found}`"),
        };
        FilterError { range, expected: self.expected, found, help: self.help, nearest: self.nearest }
    }
}

/// The first token of a text that is not empty, and its bytes.
fn token(rest: &str) -> Result<(Kind<'_>, usize), (Fault, usize)> {
    if let Some(name) = rest.strip_prefix('\\') {
        let end = name.find([' ', '!', '(', ')', '\n', '\t']).unwrap_or(name.len());
        return match name.get(..end) {
            Some(name) if !name.is_empty() => Ok((Kind::Name(name), end + 1)),
            _ => Err((Fault::new("a name after the backslash", r"write for example `ip proto \tcp`"), 1)),
        };
    }
    let word = word(rest);
    let colons = prefix(rest, |c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    if colons.len() > word.len() && colons.bytes().filter(|&byte| byte == b':').count() >= 2 {
        return address(colons).map(|kind| (kind, colons.len())).map_err(|fault| (fault, colons.len()));
    }
    if !word.is_empty() {
        return read_word(word).map(|kind| (kind, word.len())).map_err(|fault| (fault, word.len()));
    }
    symbol(rest).ok_or_else(|| {
        let length = rest.chars().next().map_or(0, char::len_utf8);
        (Fault::new("a word, a number or an operator", "remove the character"), length)
    })
}

fn prefix(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    text.get(..text.find(|c| !belongs(c)).unwrap_or(text.len())).unwrap_or_default()
}

/// The word at the start: letters and digits, with `-`, `_` and `.` between them and `.` at the end.
fn word(text: &str) -> &str {
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return "";
    }
    prefix(text, |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).trim_end_matches(['-', '_'])
}

fn read_word(word: &str) -> Result<Kind<'_>, Fault> {
    if let Some(keyword) = names::keyword(word) {
        return Ok(Kind::Keyword(keyword));
    }
    if let Some(address) = ethernet(word) {
        return Ok(Kind::Ethernet(address));
    }
    if is_number(word) {
        return number(word).map(Kind::Number);
    }
    if (2..=4).contains(&word.split('.').count()) && word.split('.').all(is_number) {
        return Ok(Kind::Dotted(word));
    }
    Ok(Kind::Name(word))
}

fn is_number(text: &str) -> bool {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// A number as in C: decimal, hexadecimal after `0x`, octal after `0`.
fn number(text: &str) -> Result<u32, Fault> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(Fault::new("an octal number", "a number that starts with 0 is octal; remove the 0"));
    }
    u32::from_str_radix(digits, radix)
        .map_err(|_| Fault::new("a number of at most 32 bits", "write a number up to 4294967295"))
}

/// An address with colons.
fn address(text: &str) -> Result<Kind<'_>, Fault> {
    if let Some(address) = ethernet(text) {
        return Ok(Kind::Ethernet(address));
    }
    text.parse().map(Kind::Ipv6).map_err(|_| {
        Fault::new("an IPv6 or Ethernet address", "write for example `2001:db8::1` or `02:00:00:00:00:01`")
    })
}

/// An Ethernet address in one of five forms.
///
/// They are `2:0:0:0:0:1`, `2-0-0-0-0-1`, `2.0.0.0.0.1`, `0200.0000.0001` and `020000000001`.
fn ethernet(text: &str) -> Option<[u8; 6]> {
    let separator = [':', '-', '.'].into_iter().find(|&separator| text.contains(separator));
    let digits = match separator {
        None => text.to_owned(),
        Some(separator) if text.split(separator).count() == 3 && separator == '.' => {
            text.split('.').all(|group| group.len() == 4).then(|| text.replace('.', ""))?
        }
        Some(separator) => {
            let groups: Vec<&str> = text.split(separator).collect();
            let right = groups.len() == 6 && groups.iter().all(|group| (1..=2).contains(&group.len()));
            right.then(|| groups.iter().map(|group| format!("{group:0>2}")).collect())?
        }
    };
    if digits.len() != 12 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(&digits, 16).ok()?;
    let [_, _, address @ ..] = number.to_be_bytes();
    Some(address)
}

/// A symbol, of which the longest counts.
fn symbol(text: &str) -> Option<(Kind<'static>, usize)> {
    use Symbol as S;
    const SYMBOLS: [(&str, Kind<'static>); 25] = [
        ("&&", Kind::Keyword(Keyword::And)),
        ("||", Kind::Keyword(Keyword::Or)),
        ("!=", Kind::Symbol(S::NotEqual)),
        ("==", Kind::Symbol(S::Equal)),
        ("<=", Kind::Symbol(S::LessOrEqual)),
        (">=", Kind::Symbol(S::GreaterOrEqual)),
        ("<<", Kind::Symbol(S::ShiftLeft)),
        (">>", Kind::Symbol(S::ShiftRight)),
        ("!", Kind::Keyword(Keyword::Not)),
        ("(", Kind::Symbol(S::Open)),
        (")", Kind::Symbol(S::Close)),
        ("[", Kind::Symbol(S::OpenBracket)),
        ("]", Kind::Symbol(S::CloseBracket)),
        (":", Kind::Symbol(S::Colon)),
        ("/", Kind::Symbol(S::Slash)),
        ("+", Kind::Symbol(S::Plus)),
        ("-", Kind::Symbol(S::Minus)),
        ("*", Kind::Symbol(S::Star)),
        ("%", Kind::Symbol(S::Percent)),
        ("&", Kind::Symbol(S::Ampersand)),
        ("|", Kind::Symbol(S::Bar)),
        ("^", Kind::Symbol(S::Caret)),
        ("=", Kind::Symbol(S::Equal)),
        ("<", Kind::Symbol(S::Less)),
        (">", Kind::Symbol(S::Greater)),
    ];
    SYMBOLS.iter().find(|(form, _)| text.starts_with(form)).map(|(form, kind)| (*kind, form.len()))
}
