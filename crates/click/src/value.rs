//! Values of arguments: numbers with units, addresses, texts, elements and handlers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::arguments::{Argument, Parsed, Problem};
use crate::language::text;
use crate::names::Named;
use crate::router::At;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A truth value as Click writes it.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "0" | "n" | "f" | "false" | "no" => Some(false),
        "1" | "y" | "t" | "true" | "yes" => Some(true),
        _ => None,
    }
}

/// An integer with a sign: decimal, `0x` hexadecimal, `0` octal, `0b` binary, with single `_` between digits.
pub fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', b'0'..=b'9', ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let mut value: i128 = 0;
    for digit in digits.chars().filter(|digit| *digit != '_') {
        value = value.saturating_mul(base).saturating_add(i128::from(digit.to_digit(base as u32)?));
    }
    Some(if negative { -value } else { value })
}

fn bounded(text: &str, least: i128, most: i128) -> Parsed<i128> {
    let value = integer(text).filter(|value| *value >= 0 || least < 0).ok_or("invalid number")?;
    if value < least || value > most {
        return Err(format!("out of range, bound {}", if value < least { least } else { most }).into());
    }
    Ok(value)
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
                bounded(text, i128::from(Self::MIN), i128::from(Self::MAX)).map(|value| value as Self)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Argument for usize {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        bounded(text, 0, i128::from(u32::MAX)).map(|value| value as Self)
    }
}

impl Argument for bool {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        boolean(text).ok_or(Problem::Syntax)
    }
}

impl Argument for f64 {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        text.parse().ok().filter(|value: &Self| value.is_finite()).ok_or(Problem::Syntax)
    }
}

/// A text with its quotes taken off.
impl Argument for String {
    fn parse(argument: &str, _: At<'_>) -> Parsed<Self> {
        Ok(String::from_utf8_lossy(&text::unquote(argument)).into_owned())
    }
}

/// Bytes: a text with its quotes taken off.
impl Argument for Vec<u8> {
    fn parse(argument: &str, _: At<'_>) -> Parsed<Self> {
        Ok(text::unquote(argument))
    }
}

/// An argument's text as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub String);

impl Argument for Raw {
    fn parse(argument: &str, _: At<'_>) -> Parsed<Self> {
        Ok(Self(argument.to_owned()))
    }
}

/// One word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub String);

impl Argument for Word {
    fn parse(argument: &str, _: At<'_>) -> Parsed<Self> {
        let words = text::split_words(argument);
        match &words[..] {
            [one] => Ok(Self(String::from_utf8_lossy(&text::unquote(one)).into_owned())),
            _ => Err(Problem::Syntax),
        }
    }
}

/// A decimal number, as an integer times 10 to the power of `-digits`: `fixed("1.5", 3)` is 1500.
///
/// Digits beyond are rounded to the nearest.
pub fn fixed(text: &str, digits: u32) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = match text.find(['e', 'E']) {
        Some(place) => (&text[..place], text[place + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() + fraction.len() > 30 || exponent.abs() > 30 {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i128::from(digit - b'0');
    }
    let power = digits as i32 + exponent - fraction.len() as i32;
    if power >= 0 {
        value = value.checked_mul(10_i128.checked_pow(power as u32)?)?;
    } else {
        let divisor = 10_i128.checked_pow(power.unsigned_abs())?;
        value = (value + divisor / 2) / divisor;
    }
    Some(if negative { -value } else { value })
}

/// A number and its unit: the unit is what begins with a letter, behind spaces or not.
fn with_unit(text: &str) -> (&str, &str) {
    let place = text.find(|letter: char| letter.is_ascii_alphabetic() && !matches!(letter, 'e' | 'E'));
    match place {
        Some(place) => (text[..place].trim_end(), &text[place..]),
        None => (text, ""),
    }
}

/// A span of time with a sign (ns): `1.5`, `10ms`, `3us`, `2 min`, `1h`, `1d`.
pub fn signed_seconds(text: &str) -> Option<i128> {
    let (number, unit) = with_unit(text);
    let (digits, factor) = match unit {
        "" | "s" | "sec" => (9, 1),
        "ms" | "msec" => (6, 1),
        "us" | "usec" => (3, 1),
        "ns" | "nsec" => (0, 1),
        "m" | "min" => (9, 60),
        "h" | "hr" => (9, 3600),
        "d" | "day" => (9, 86400),
        _ => return None,
    };
    fixed(number, digits)?.checked_mul(factor)
}

/// A span of time (ns), as [`signed_seconds`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

impl Argument for Span {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        let time = signed_seconds(text).ok_or(Problem::Syntax)?;
        u64::try_from(time).map(Self).map_err(|_| Problem::Syntax)
    }
}

/// A point in time or a difference of times, with a sign (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Argument for Timestamp {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        let time = signed_seconds(text).ok_or(Problem::Syntax)?;
        i64::try_from(time).map(Self).map_err(|_| "out of range".into())
    }
}

/// A time as Click writes it: seconds with 9 digits, or 6 where the last three are zero.
pub fn write_time(time: u64) -> String {
    let (seconds, rest) = (time / SECOND, time % SECOND);
    if rest % 1000 == 0 { format!("{seconds}.{:06}", rest / 1000) } else { format!("{seconds}.{rest:09}") }
}

/// A number with at most 12 significant digits, as Click writes it.
pub fn write_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value.is_nan() { "nan".into() } else { value.to_string() };
    }
    let scientific = format!("{value:.11e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if !(-4..12).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(digits), exponent.abs());
    }
    trim(&format!("{value:.*}", usize::try_from(11 - exponent).unwrap_or(0)))
}

/// A span of time as Click writes it: `"20ms"`, `"1.500000s"`.
pub fn write_span(time: u64) -> String {
    match time {
        SECOND.. => format!("{}s", write_time(time)),
        _ if time.is_multiple_of(1_000_000) => format!("{}ms", time / 1_000_000),
        _ if time.is_multiple_of(1_000) => format!("{}us", time / 1_000),
        _ => format!("{time}ns"),
    }
}

/// A number with `BITS` bits behind the binary point: `Fixed::<16>` of `"0.5"` is 32768.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed<const BITS: u32>(pub u32);

impl<const BITS: u32> Argument for Fixed<BITS> {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        const UNIT: i128 = 1_000_000_000_000;
        let value = fixed(text, 12).filter(|value| *value >= 0).ok_or(Problem::Syntax)?;
        let bits = value.checked_mul(1 << BITS).map(|bits| (bits + UNIT / 2) / UNIT);
        match bits.and_then(|bits| u32::try_from(bits).ok()) {
            Some(bits) => Ok(Self(bits)),
            None => Err(format!("out of range, bound {}", write_fixed(u64::from(u32::MAX), BITS)).into()),
        }
    }
}

/// A number with some bits (at most 28) behind the binary point, with no more decimals than it needs.
pub fn write_fixed(value: u64, bits: u32) -> String {
    let (whole, one) = (value >> bits, 1_u32 << bits);
    let mut rest = (value & u64::from(one - 1)) as u32;
    if rest == 0 {
        return whole.to_string();
    }
    // Knuth's way to print scaled numbers (TeX, section 103).
    let mut text = format!("{whole}.");
    rest = rest.wrapping_mul(10).wrapping_add(5);
    let mut delta = 10_u32;
    let mut rounder = 5_u32;
    while rounder < one >> 1 {
        rounder = rounder.wrapping_mul(10);
    }
    loop {
        if delta > one {
            rest = rest.wrapping_add((one >> 1).wrapping_sub(rounder));
        }
        text.push(char::from(b'0' + ((rest >> bits) % 10) as u8));
        rest = (rest & (one - 1)).wrapping_mul(10);
        delta = delta.wrapping_mul(10);
        if rest <= delta {
            return text;
        }
    }
}

/// A rate in bytes a second: `1000`, `10kB/s`, `1.5Mbps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth(pub u32);

impl Argument for Bandwidth {
    fn parse(text: &str, _: At<'_>) -> Parsed<Self> {
        let (number, unit) = with_unit(text);
        let (prefix, bits) = if let Some(prefix) =
            unit.strip_suffix("baud").or(unit.strip_suffix("bps")).or(unit.strip_suffix("b/s"))
        {
            (prefix, true)
        } else if let Some(prefix) = unit.strip_suffix("Bps").or(unit.strip_suffix("B/s")) {
            (prefix, false)
        } else if unit.is_empty() {
            ("", false)
        } else {
            return Err(Problem::Syntax);
        };
        let power = match prefix {
            "" => 0,
            "k" | "K" => 3,
            "M" => 6,
            "G" => 9,
            _ => return Err(Problem::Syntax),
        };
        let value = fixed(number, power + 6).filter(|value| *value >= 0).ok_or(Problem::Syntax)?;
        let unit = if bits { 8_000_000 } else { 1_000_000 };
        let bytes = (value + unit / 2) / unit;
        u32::try_from(bytes).map(Self).map_err(|_| "out of range".into())
    }
}

/// A rate as Click writes it: `"80kbps"`.
pub fn write_bandwidth(bytes: u32) -> String {
    let decimals = |value: u64, digits: u32| {
        let one = 10_u64.pow(digits);
        let (whole, rest) = (value / one, value % one);
        let text = format!("{whole}.{rest:0width$}", width = digits as usize);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let bits = u64::from(bytes) * 8;
    match bytes {
        0x2000_0000.. => format!("{}MBps", decimals(bytes.into(), 6)),
        125_000_000.. => format!("{}Gbps", decimals(bits, 9)),
        125_000.. => format!("{}Mbps", decimals(bits, 6)),
        _ => format!("{}kbps", decimals(bits, 3)),
    }
}

impl Argument for Ipv4Addr {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        match at.names().find(at, Named::Ip, text).as_deref() {
            Some(&[a, b, c, d]) => Ok(Self::new(a, b, c, d)),
            _ => Err(Problem::Syntax),
        }
    }
}

impl Argument for Ipv6Addr {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        if let Ok(address) = text.parse() {
            return Ok(address);
        }
        let bytes = at.names().find(at, Named::Ip6, text).ok_or(Problem::Syntax)?;
        <[u8; 16]>::try_from(&bytes[..]).map(Self::from).map_err(|_| Problem::Syntax)
    }
}

impl Argument for IpAddr {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        Ipv4Addr::parse(text, at).map(Self::V4).or_else(|_| Ipv6Addr::parse(text, at).map(Self::V6))
    }
}

/// An IPv4 address and a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The address, with the bits beyond the mask as they were written.
    pub address: Ipv4Addr,
    /// The mask.
    pub mask: Ipv4Addr,
}

impl Prefix {
    /// Whether an address lies in it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ u32::from(self.address)) & u32::from(self.mask) == 0
    }
    /// The mask's length, where its ones come first.
    pub fn length(&self) -> Option<u32> {
        let mask = u32::from(self.mask);
        (mask.leading_ones() + mask.trailing_zeros() == 32 || mask == 0).then(|| mask.leading_ones())
    }
    /// The mask of a length.
    pub fn mask_of(length: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX.checked_shl(32 - length.min(32)).unwrap_or(0))
    }
    /// A prefix, where an address alone is one of 32 bits if `bare` allows it.
    ///
    /// # Errors
    /// The text is no prefix.
    pub fn read(text: &str, at: At<'_>, bare: bool) -> Parsed<Self> {
        if let Some((address, mask)) = text.split_once('/') {
            let mask = match mask.parse::<u32>() {
                Ok(length) if length <= 32 => Self::mask_of(length),
                _ => mask.parse().map_err(|_| Problem::Syntax)?,
            };
            let address = match Ipv4Addr::parse(address, at) {
                Ok(address) => address,
                // `18.26/16`: parts that are left out are zero.
                Err(problem) => short_address(address).ok_or(problem)?,
            };
            return Ok(Self { address, mask });
        }
        if bare && let Ok(address) = Ipv4Addr::parse(text, at) {
            return Ok(Self { address, mask: Ipv4Addr::BROADCAST });
        }
        match at.names().find(at, Named::IpPrefix, text).as_deref() {
            Some(&[a, b, c, d, ma, mb, mc, md]) => {
                Ok(Self { address: Ipv4Addr::new(a, b, c, d), mask: Ipv4Addr::new(ma, mb, mc, md) })
            }
            _ => Err(Problem::Syntax),
        }
    }
}

fn short_address(text: &str) -> Option<Ipv4Addr> {
    let mut bytes = [0; 4];
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    for (byte, part) in bytes.iter_mut().zip(parts) {
        *byte = part.parse().ok()?;
    }
    Some(bytes.into())
}

impl Argument for Prefix {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        Self::read(text, at, false)
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ether(pub [u8; 6]);

impl Ether {
    /// To all.
    pub const BROADCAST: Self = Self([0xFF; 6]);
    /// Reads `00:11:22:AA:BB:CC`, with `-` between the bytes as well.
    pub fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next()?;
            if part.is_empty() || part.len() > 2 {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
    /// Whether it means a group.
    pub fn is_group(&self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl std::fmt::Display for Ether {
    /// `00-11-22-AA-BB-CC`, as Click writes it.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(to, "{a:02X}-{b:02X}-{c:02X}-{d:02X}-{e:02X}-{f:02X}")
    }
}

impl Argument for Ether {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        if let Some(address) = Self::read(text) {
            return Ok(address);
        }
        let bytes = at.names().find(at, Named::Ether, text).ok_or(Problem::Syntax)?;
        <[u8; 6]>::try_from(&bytes[..]).map(Self).map_err(|_| Problem::Syntax)
    }
}

/// The number of another element, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementNumber(pub usize);

impl Argument for ElementNumber {
    fn parse(text: &str, at: At<'_>) -> Parsed<Self> {
        let name = String::from_utf8_lossy(&text::unquote(text)).into_owned();
        match at.router.find(&name, at.id) {
            Some(id) => Ok(Self(id)),
            None => Err(format!("{name} does not name an element").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bases_and_separators() {
        for (text, value) in [
            ("0", Some(0)),
            ("-12", Some(-12)),
            ("0x1F", Some(31)),
            ("017", Some(15)),
            ("0b101", Some(5)),
            ("1_000", Some(1000)),
            ("08", None),
            ("", None),
            ("1__0", None),
            ("x", None),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, value) in [
            ("1", Some(1_000_000_000)),
            ("1.5", Some(1_500_000_000)),
            ("10ms", Some(10_000_000)),
            ("0.1 s", Some(100_000_000)),
            ("3us", Some(3_000)),
            ("2min", Some(120_000_000_000)),
            ("-0.5", Some(-500_000_000)),
            ("1e-3", Some(1_000_000)),
            ("ms", None),
            ("1x", None),
        ] {
            assert_eq!(signed_seconds(text), value, "{text}");
        }
    }

    #[test]
    fn times_are_written_with_six_or_nine_digits() {
        assert_eq!(write_time(1_500_000_000), "1.500000");
        assert_eq!(write_time(1_000_000_001), "1.000000001");
    }

    #[test]
    fn numbers_have_at_most_twelve_digits() {
        for (value, text) in [
            (6.0, "6"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1.0 / 3.0, "0.333333333333"),
            (1e15, "1e+15"),
            (1.5e-7, "1.5e-07"),
            (123_456_789_012.0, "123456789012"),
            (0.0, "0"),
        ] {
            assert_eq!(write_number(value), text);
        }
    }

    #[test]
    fn ethernet_addresses_are_read_and_written() {
        let address = Ether::read("0:1:2:aA:BB:cc").expect("an address");
        assert_eq!(address.to_string(), "00-01-02-AA-BB-CC");
        assert_eq!(Ether::read("0:1:2:3:4"), None);
        assert_eq!(Ether::read("0:1:2:3:4:5:6"), None);
    }
}
