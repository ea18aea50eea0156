//! One route as an operator writes it: `192.0.2.0/24 7`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netbricks_core::tables::{Address, LpmConfig};
use netbricks_core::units::from_text;
use serde::de::{Deserialize, Deserializer};

/// A prefix and its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The prefix's address; all bits behind `len` are 0.
    pub prefix: IpAddr,
    /// The prefix's length, in bits.
    pub len: u8,
    /// The number of the next hop.
    pub next_hop: u32,
}

/// A route that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct RouteError {
    /// Where in the text, in characters from 1.
    pub column: usize,
    /// The fault, the expected form, and how to mend it.
    pub problem: String,
}

impl FromStr for Route {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Self, RouteError> {
        let at = |word: &str| 1 + text.chars().count().min(char_offset(text, word));
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else {
            return Err(RouteError {
                column: 1,
                problem: "expected a route as `192.0.2.0/24 7`, found nothing".into(),
            });
        };
        let wrong = |word: &str, problem: String| RouteError { column: at(word), problem };
        let (prefix, len) = prefix(first).map_err(|problem| wrong(first, problem))?;
        let Some(second) = words.next() else {
            let column = text.trim_end().chars().count() + 1;
            return Err(RouteError {
                column,
                problem: format!("expected a next hop (a number) behind `{first}`"),
            });
        };
        let next_hop = number(second).ok_or_else(|| {
            wrong(second, format!("expected a next hop (a number, 0 to {}), found `{second}`", u32::MAX))
        })?;
        if let Some(third) = words.next() {
            return Err(wrong(third, format!("expected nothing behind the next hop, found `{third}`")));
        }
        Ok(Self { prefix, len, next_hop })
    }
}

/// A number of digits only, without a sign.
fn number<T: FromStr>(word: &str) -> Option<T> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

/// Characters of `text` before `word`, which is part of it.
fn char_offset(text: &str, word: &str) -> usize {
    let bytes = (word.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.char_indices().take_while(|(at, _)| *at < bytes).count()
}

fn prefix(word: &str) -> Result<(IpAddr, u8), String> {
    let expected = || format!("expected a prefix as `192.0.2.0/24` or `2001:db8::/32`, found `{word}`");
    let (address, len) = word.split_once('/').ok_or_else(expected)?;
    let address: IpAddr = address.parse().map_err(|_| expected())?;
    let len: u8 = number(len).ok_or_else(expected)?;
    let (bits, network) = match address {
        IpAddr::V4(address) => (32, IpAddr::V4(address.truncated(len))),
        IpAddr::V6(address) => (128, IpAddr::V6(address.truncated(len))),
    };
    if len > bits {
        return Err(format!("`{word}`: addresses like this have {bits} bits, give a length of 0 to {bits}"));
    }
    if network != address {
        return Err(format!("`{word}` has bits set behind its first {len}: write `{network}/{len}`"));
    }
    Ok((address, len))
}

/// A prefix in the form in which routes show it; other words stay as they are.
pub(super) fn shown_prefix(word: &str) -> String {
    prefix(word).map_or_else(|_| word.to_owned(), |(prefix, len)| format!("{prefix}/{len}"))
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.prefix, self.len, self.next_hop)
    }
}

/// An address with only its first `len` bits; all of them where it has no more.
pub(super) fn truncated(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(address.truncated(len.min(32))),
        IpAddr::V6(address) => IpAddr::V6(address.truncated(len.min(128))),
    }
}

/// A route without a file, whose errors name the character within it.
pub(super) struct Written(pub(super) Route);

impl FromStr for Written {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let located = |RouteError { column, problem }| format!("{problem} (character {column})");
        text.parse().map(Self).map_err(located)
    }
}

impl<'de> Deserialize<'de> for Route {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text::<Written, D>(deserializer).map(|written| written.0)
    }
}

/// An item of each line of a text, with the line's number from 1.
pub type Lines<T> = Vec<(usize, T)>;

/// The routes of a text, one a line, each with the number of its line.
///
/// `#` begins a comment, and lines without a route are skipped.
///
/// # Errors
/// All wrong lines, with the fault of each.
pub fn routes(text: &str) -> Result<Lines<Route>, Lines<RouteError>> {
    items(text, str::parse::<Route>, |route| (route.prefix, route.len))
}

/// The prefixes of a text, one a line, with the same comments, each with the number of its line.
pub(super) fn prefixes(text: &str) -> Result<Lines<(IpAddr, u8)>, Lines<RouteError>> {
    let one = |line: &str| {
        let word = line.trim();
        let column = 1 + line.chars().take_while(|c| c.is_whitespace()).count();
        if let Some(second) = word.split_whitespace().nth(1) {
            let column = 1 + char_offset(line, second);
            let problem = format!("expected nothing behind the prefix, found `{second}`");
            return Err(RouteError { column, problem });
        }
        prefix(word).map_err(|problem| RouteError { column, problem })
    };
    items(text, one, |prefix| *prefix)
}

/// Reads each line that has more than a comment by `read`; no prefix may come twice.
fn items<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, RouteError>,
    prefix: impl Fn(&T) -> (IpAddr, u8),
) -> Result<Lines<T>, Lines<RouteError>> {
    let mut items = Vec::new();
    let mut wrong = Vec::new();
    let mut lines = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim().is_empty() {
            continue;
        }
        match read(line) {
            Err(error) => wrong.push((number, error)),
            Ok(item) => match lines.entry(prefix(&item)) {
                Entry::Vacant(first) => {
                    first.insert(number);
                    items.push((number, item));
                }
                Entry::Occupied(first) => {
                    let column = 1 + line.chars().take_while(|c| c.is_whitespace()).count();
                    let ((prefix, len), first) = (*first.key(), first.get());
                    let problem = format!("{prefix}/{len} stands in line {first} already: take one out");
                    wrong.push((number, RouteError { column, problem }));
                }
            },
        }
    }
    if wrong.is_empty() { Ok(items) } else { Err(wrong) }
}

/// The sizes of tables for these routes, IPv4 and IPv6; `None` where there is no route.
pub(super) fn sizes(routes: &[Route]) -> (Option<LpmConfig>, Option<LpmConfig>) {
    let v4: Vec<_> = routes
        .iter()
        .filter_map(
            |route| if let IpAddr::V4(prefix) = route.prefix { Some((prefix, route.len)) } else { None },
        )
        .collect();
    let v6: Vec<_> = routes
        .iter()
        .filter_map(
            |route| if let IpAddr::V6(prefix) = route.prefix { Some((prefix, route.len)) } else { None },
        )
        .collect();
    (
        (!v4.is_empty()).then(|| LpmConfig::for_prefixes(v4)),
        (!v6.is_empty()).then(|| LpmConfig::for_prefixes(v6)),
    )
}
