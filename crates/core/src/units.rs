//! Quantities as an operator writes them: `"5 ms"`, `"64 KiB"`, `"1.5 Mpps"`, `"100 Mbit/s"`, `0.01` or `"1
//! %"`.
//!
//! Configuration files and command lines use the same parser. The error for a wrong unit lists the right
//! ones.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A quantity that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found `{found}`{}", problem.as_ref().map(|p| format!(": {p}")).unwrap_or_default())]
pub struct UnitError {
    /// The form that is expected, with the units.
    pub expected: &'static str,
    /// The text that was found.
    pub found: String,
    /// The particular error.
    pub problem: Option<String>,
}

/// A span of time, in nanoseconds: `"500 us"`, `"5 ms"`, `"1.5 s"`, `"2 min"`, `"1 h"`, `"7 d"`.
///
/// ```
/// use netbricks_core::units::Duration;
/// assert_eq!("5 ms".parse::<Duration>()?.nanoseconds(), 5_000_000);
/// assert_eq!("1.5s".parse::<Duration>()?, std::time::Duration::from_millis(1_500).into());
/// assert!("5 parsecs".parse::<Duration>().unwrap_err().to_string().contains("ns, us, ms, s, min, h or d"));
/// # Ok::<(), netbricks_core::units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// A span of no time.
    pub const ZERO: Self = Self(0);
    /// Makes a duration from nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }
    /// The duration in nanoseconds.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }
}
impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(duration.0)
    }
}
impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A number of bytes: `1500`, `"1500 B"`, `"64 KiB"`, `"10 MB"`, `"1 GiB"`.
///
/// ```
/// use netbricks_core::units::Bytes;
/// assert_eq!("64 KiB".parse::<Bytes>()?.bytes(), 65_536);
/// assert_eq!("1.5 kB".parse::<Bytes>()?.bytes(), 1_500);
/// # Ok::<(), netbricks_core::units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// The number.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// A rate a second: `"1 Mpps"` is packets, `"100 Mbit/s"` bits of frames without FCS.
///
/// ```
/// use netbricks_core::units::Rate;
/// assert_eq!("1.5 Mpps".parse(), Ok(Rate::Packets(1_500_000.0)));
/// assert_eq!("100Mbit/s".parse(), Ok(Rate::Bits(100e6)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Rate {
    /// Packets a second.
    Packets(f64),
    /// Bits a second.
    Bits(f64),
}

/// A probability from 0 (never) to 1 (always): `0.01`, or `"1 %"`.
///
/// ```
/// use netbricks_core::units::Probability;
/// assert_eq!("1 %".parse::<Probability>()?.value(), 0.01);
/// assert!("1.5".parse::<Probability>().is_err());
/// # Ok::<(), netbricks_core::units::UnitError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// The probability 0.
    pub const NEVER: Self = Self(0.0);
    /// The value, 0 to 1.
    pub const fn value(self) -> f64 {
        self.0
    }
    /// Whether it is 0.
    pub fn is_never(self) -> bool {
        self.0 == 0.0
    }
}

/// Splits a text into its number and the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// The reading of a quantity: its form, its units, and the conversion to the unit in which it is kept.
trait Quantity: Sized {
    const EXPECTED: &'static str;
    /// The quantity of a number with a unit, where the unit is known.
    fn from_unit(number: f64, unit: &str) -> Option<Self>;
    /// The quantity of a number without a unit.
    fn from_number(number: f64) -> Result<Self, &'static str>;
    /// The reason why a value that was read is not allowed.
    fn problem(&self) -> Option<String> {
        None
    }

    fn read(text: &str) -> Result<Self, UnitError> {
        let error =
            |problem: Option<String>| UnitError { expected: Self::EXPECTED, found: text.into(), problem };
        let (number, unit) = split(text).ok_or_else(|| error(None))?;
        let value = if unit.is_empty() {
            Self::from_number(number).map_err(|problem| error(Some(problem.into())))?
        } else {
            Self::from_unit(number, unit).ok_or_else(|| error(Some(format!("unknown unit `{unit}`"))))?
        };
        match value.problem() {
            None => Ok(value),
            problem => Err(error(problem)),
        }
    }
    fn read_number(number: f64) -> Result<Self, UnitError> {
        let error = |problem: Option<String>| UnitError {
            expected: Self::EXPECTED,
            found: number.to_string(),
            problem,
        };
        if !number.is_finite() || number < 0.0 {
            return Err(error(None));
        }
        let value = Self::from_number(number).map_err(|problem| error(Some(problem.into())))?;
        match value.problem() {
            None => Ok(value),
            problem => Err(error(problem)),
        }
    }
}

/// Largest value that a quantity of whole units may have; beyond it `f64` no longer counts one by one.
const LARGEST: f64 = (1u64 << 53) as f64;

fn whole(number: f64) -> Option<u64> {
    (number <= LARGEST).then(|| number.round() as u64)
}

impl Quantity for Duration {
    const EXPECTED: &'static str =
        "a duration: a number and one of ns, us, ms, s, min, h or d, as in \"5 ms\"";
    fn from_unit(number: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" | "sec" => 1e9,
            "min" => 60e9,
            "h" => 3_600e9,
            "d" => 86_400e9,
            _ => return None,
        };
        // Past 2^64 ns (584 years) a duration is "for ever".
        Some(Self((number * factor).round() as u64))
    }
    fn from_number(number: f64) -> Result<Self, &'static str> {
        if number == 0.0 { Ok(Self(0)) } else { Err("a duration needs a unit") }
    }
}

impl Quantity for Bytes {
    const EXPECTED: &'static str = "a size in bytes: a whole number, or a number and one of B, kB, KiB, MB, MiB, GB or GiB, as in \"64 KiB\"";
    fn from_unit(number: f64, unit: &str) -> Option<Self> {
        let factor = match unit {
            "B" => 1.0,
            "kB" | "KB" => 1e3,
            "KiB" => 1_024.0,
            "MB" => 1e6,
            "MiB" => 1_048_576.0,
            "GB" => 1e9,
            "GiB" => 1_073_741_824.0,
            _ => return None,
        };
        Some(Self(whole(number * factor).unwrap_or(u64::MAX)))
    }
    fn from_number(number: f64) -> Result<Self, &'static str> {
        match whole(number) {
            Some(bytes) if number.fract() == 0.0 => Ok(Self(bytes)),
            _ => Err("not a whole number of bytes"),
        }
    }
    fn problem(&self) -> Option<String> {
        (self.0 == u64::MAX).then(|| "too large".into())
    }
}

impl Quantity for Rate {
    const EXPECTED: &'static str =
        "a rate: a number and one of pps, kpps, Mpps, bit/s, kbit/s, Mbit/s or Gbit/s, as in \"1.5 Mpps\"";
    fn from_unit(number: f64, unit: &str) -> Option<Self> {
        Some(match unit {
            "pps" => Self::Packets(number),
            "kpps" => Self::Packets(number * 1e3),
            "Mpps" => Self::Packets(number * 1e6),
            "Gpps" => Self::Packets(number * 1e9),
            "bit/s" | "bps" => Self::Bits(number),
            "kbit/s" | "kbps" => Self::Bits(number * 1e3),
            "Mbit/s" | "Mbps" => Self::Bits(number * 1e6),
            "Gbit/s" | "Gbps" => Self::Bits(number * 1e9),
            _ => return None,
        })
    }
    fn from_number(_: f64) -> Result<Self, &'static str> {
        Err("a rate needs a unit")
    }
    fn problem(&self) -> Option<String> {
        let (Self::Packets(value) | Self::Bits(value)) = self;
        match *value {
            0.0 => Some("a rate of 0 never sends anything".into()),
            value if value > 1e15 => Some("too large: at most 1e15".into()),
            _ => None,
        }
    }
}

impl Quantity for Probability {
    const EXPECTED: &'static str =
        "a probability: a number from 0 to 1, or a percentage, as in 0.01 or \"1 %\"";
    fn from_unit(number: f64, unit: &str) -> Option<Self> {
        (unit == "%").then_some(Self(number / 100.0))
    }
    fn from_number(number: f64) -> Result<Self, &'static str> {
        Ok(Self(number))
    }
    fn problem(&self) -> Option<String> {
        (self.0 > 1.0).then(|| "more than 1".into())
    }
}

impl fmt::Display for Duration {
    /// In the largest unit that leaves no fraction: `"5 ms"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units =
            [(3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms")];
        let units = units.into_iter().chain([(1_000, "us"), (1, "ns")]);
        match { units }.find(|(size, _)| self.0 != 0 && self.0.is_multiple_of(*size)) {
            Some((size, unit)) => write!(f, "{} {unit}", self.0 / size),
            None => f.write_str("0 s"),
        }
    }
}
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(size, _)| self.0 != 0 && self.0.is_multiple_of(*size)) {
            Some((size, unit)) => write!(f, "{} {unit}", self.0 / size),
            None => write!(f, "{} B", self.0),
        }
    }
}
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self {
            Self::Packets(value) => (*value, "pps"),
            Self::Bits(value) => (*value, "bit/s"),
        };
        let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
        let (size, prefix) = prefixes.into_iter().find(|(size, _)| value >= *size).unwrap_or((1.0, ""));
        write!(f, "{} {prefix}{unit}", value / size)
    }
}
impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Reads a quantity from a file: a string with a unit, or a bare number.
struct Written<T>(std::marker::PhantomData<T>);

impl<T: Quantity> Visitor<'_> for Written<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::read_number(number as f64).map_err(E::custom)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        T::read_number(number as f64).map_err(E::custom)
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        T::read_number(number).map_err(E::custom)
    }
}

macro_rules! quantities {
    ($($quantity:ident)*) => {$(
        impl FromStr for $quantity {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                Self::read(text)
            }
        }
        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Written(std::marker::PhantomData))
            }
        }
        impl serde::Serialize for $quantity {
            /// Writes the quantity as an operator would.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
quantities! { Duration Bytes Rate Probability }

/// Reads a value that is written as text, for `#[serde(deserialize_with)]` and `Deserialize` of [`FromStr`]
/// types.
///
/// An error points at that text, also in a list. For a `String` that is parsed after it was read, the error
/// would point at the whole list.
///
/// # Errors
/// The error of parsing, or that the value is no text.
pub fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    struct Text<T>(std::marker::PhantomData<T>);
    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text(std::marker::PhantomData))
}

/// Reads a list of port numbers, none of them 0, for serde's `deserialize_with`.
///
/// An error points at the wrong item in the file, and not at the list.
///
/// # Errors
/// An item is no whole number from 1 to 65535.
pub fn port_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    let ports = Vec::<NonZeroU16>::deserialize(deserializer)?;
    Ok(ports.into_iter().map(NonZeroU16::get).collect())
}

/// Reads a list of texts, and makes an item of each with `read`, in order; for serde's `deserialize_with`.
///
/// `read` may remember earlier items. An error points at the item that it refuses, and not at the list.
///
/// # Errors
/// As [`from_text`], of one item.
pub fn list_from_text<'de, T, E, D>(
    deserializer: D,
    read: impl FnMut(&str) -> Result<T, E>,
) -> Result<Vec<T>, D::Error>
where
    E: fmt::Display,
    D: Deserializer<'de>,
{
    struct Items<F>(F);
    impl<'de, T, E: fmt::Display, F: FnMut(&str) -> Result<T, E>> Visitor<'de> for Items<F> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: de::SeqAccess<'de>>(mut self, mut texts: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = texts.next_element_seed(Item(&mut self.0))? {
                items.push(item);
            }
            Ok(items)
        }
    }
    struct Item<'f, F>(&'f mut F);
    impl<'de, T, E: fmt::Display, F: FnMut(&str) -> Result<T, E>> de::DeserializeSeed<'de> for Item<'_, F> {
        type Value = T;
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
            deserializer.deserialize_str(self)
        }
    }
    impl<T, E: fmt::Display, F: FnMut(&str) -> Result<T, E>> Visitor<'_> for Item<'_, F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        // Parsed here, where the place of the text is still known.
        fn visit_str<E2: de::Error>(self, text: &str) -> Result<T, E2> {
            (self.0)(text).map_err(E2::custom)
        }
    }
    deserializer.deserialize_seq(Items(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_values_read_back_as_the_same() {
        for shift in 0..53 {
            for odd in [0, 1, 999, 1_000, 60_000] {
                let value = (1u64 << shift) + odd;
                let duration = Duration::from_nanoseconds(value);
                assert_eq!(duration.to_string().parse(), Ok(duration));
                let bytes = Bytes::new(value);
                assert_eq!(bytes.to_string().parse(), Ok(bytes));
                let rate = Rate::Packets(value as f64 / 8.0);
                if value < 1 << 50 {
                    let Ok(Rate::Packets(read)) = rate.to_string().parse() else { panic!("{rate}") };
                    assert!((read / (value as f64 / 8.0) - 1.0).abs() < 1e-12, "{rate}");
                }
            }
        }
        assert_eq!(Duration::ZERO.to_string().parse(), Ok(Duration::ZERO));
    }

    #[test]
    fn errors_say_what_would_do() {
        let text = |error: UnitError| error.to_string();
        assert!(text("5 parsecs".parse::<Duration>().unwrap_err()).contains("unknown unit `parsecs`"));
        assert!(text("5".parse::<Duration>().unwrap_err()).contains("needs a unit"));
        assert!(text("-5 ms".parse::<Duration>().unwrap_err()).contains("as in \"5 ms\""));
        assert!(text("1.5".parse::<Bytes>().unwrap_err()).contains("whole number"));
        assert!(text("900000000 GiB".parse::<Bytes>().unwrap_err()).contains("too large"));
        assert!(text("1 MBit/s".parse::<Rate>().unwrap_err()).contains("Mbit/s"));
        assert!(text("0 pps".parse::<Rate>().unwrap_err()).contains("never sends"));
        assert!(text("101 %".parse::<Probability>().unwrap_err()).contains("more than 1"));
        assert!(".".parse::<Probability>().is_err());
        assert!("".parse::<Bytes>().is_err());
    }

    #[derive(Debug, serde::Deserialize)]
    struct Everything {
        delay: Duration,
        size: Bytes,
        rate: Rate,
        loss: Probability,
        duplicate: Probability,
    }

    #[test]
    fn files_may_hold_strings_and_numbers_and_errors_keep_their_place() {
        let text = "delay = '1.5 ms'\nsize = 1500\nrate = '10 Gbit/s'\nloss = 0.25\nduplicate = '3 %'\n";
        let all: Everything = toml::from_str(text).unwrap();
        assert_eq!((all.delay.nanoseconds(), all.size.bytes()), (1_500_000, 1_500));
        assert_eq!((all.rate, all.loss.value(), all.duplicate.value()), (Rate::Bits(10e9), 0.25, 0.03));
        let error = toml::from_str::<Everything>(&text.replace("'1.5 ms'", "1500")).unwrap_err();
        assert!(error.message().contains("needs a unit"), "{error}");
        assert_eq!(error.span(), Some(8..12));
        let error = toml::from_str::<Everything>(&text.replace("1500", "true")).unwrap_err();
        assert!(error.message().contains("a size in bytes"), "{error}");
        assert!(toml::from_str::<Everything>(&text.replace("0.25", "nan")).is_err());
        assert!(toml::from_str::<Everything>(&text.replace("1500", "-1")).is_err());
    }
}
