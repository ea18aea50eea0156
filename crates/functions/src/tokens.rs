//! Token buckets in whole numbers: a rate, a size, and the time at which a packet has its tokens.
//!
//! A token is the part of a bit or packet that a rate of 1 a second brings in 1 ns. So a rate times a time is exact,
//! and no remainder is lost however often a bucket is filled.

use std::fmt;
use std::str::FromStr;

use netbricks_core::units::{Bytes, Rate, from_text};
use serde::de::{Deserialize, Deserializer};

/// Tokens of one bit or one packet.
const ONE: u64 = 1_000_000_000;

/// The largest size of a bucket, in bytes or packets.
pub(crate) const LARGEST: u64 = 512 << 20;

/// The highest rate: bits or packets a second.
const FASTEST: u64 = 1_000_000_000_000;

/// The quantity that a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bits of packets.
    Bits,
    /// Packets of any length.
    Packets,
}

impl Counted {
    /// The tokens that a packet of this length (bytes) takes.
    #[inline(always)]
    pub(crate) fn cost(self, bytes: u64) -> u64 {
        match self {
            // Within 64 bits up to 2 GiB, and no packet is longer than its frame.
            Self::Bits => bytes.min(LARGEST) * (8 * ONE),
            Self::Packets => ONE,
        }
    }

    /// The tokens of a full bucket of this size, in bytes or packets.
    pub(crate) fn full(self, size: u64) -> u64 {
        match self {
            Self::Bits => size.min(LARGEST) * (8 * ONE),
            Self::Packets => size.min(LARGEST) * ONE,
        }
    }

    /// The bytes or packets that these tokens are worth, rounded down.
    pub(crate) fn worth(self, tokens: u64) -> u64 {
        match self {
            Self::Bits => tokens / (8 * ONE),
            Self::Packets => tokens / ONE,
        }
    }

    /// Its name behind a number of bytes or packets.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bits => "bytes",
            Self::Packets => "packets",
        }
    }
}

/// A rate of whole bits or packets a second: `"10 Mbit/s"`, `"1 kpps"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate {
    per_second: u64,
    counted: Counted,
}

impl TokenRate {
    /// Bits a second, from 1 to 10^12.
    pub fn bits(per_second: u64) -> Self {
        Self { per_second: per_second.clamp(1, FASTEST), counted: Counted::Bits }
    }
    /// Packets a second, from 1 to 10^12.
    pub fn packets(per_second: u64) -> Self {
        Self { per_second: per_second.clamp(1, FASTEST), counted: Counted::Packets }
    }
    /// Bits or packets a second.
    pub fn per_second(self) -> u64 {
        self.per_second
    }
    /// The quantity that it counts.
    pub fn counted(self) -> Counted {
        self.counted
    }

    /// The tokens of `elapsed` ns, or `most` where that is less.
    #[inline(always)]
    pub(crate) fn tokens(self, elapsed: u64, most: u64) -> u64 {
        match self.per_second.checked_mul(elapsed) {
            Some(tokens) => tokens.min(most),
            None => most,
        }
    }

    /// The time (ns) in which this many tokens come, rounded up.
    #[inline(always)]
    pub(crate) fn time(self, tokens: u64) -> u64 {
        tokens.div_ceil(self.per_second)
    }

    /// The bytes or packets of this rate in a time (ns).
    pub(crate) fn amount(self, time: u64) -> u64 {
        self.counted.worth(self.tokens(time, u64::MAX))
    }
}

impl FromStr for TokenRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate: Rate = text.parse().map_err(|error: netbricks_core::units::UnitError| error.to_string())?;
        let (Rate::Bits(value) | Rate::Packets(value)) = rate;
        if value.fract() != 0.0 || !(1.0..=FASTEST as f64).contains(&value) {
            return Err(format!(
                "expected a rate of whole bits or packets a second, from 1 to 10^12, found `{text}`"
            ));
        }
        Ok(match rate {
            Rate::Bits(_) => Self::bits(value as u64),
            Rate::Packets(_) => Self::packets(value as u64),
        })
    }
}

impl<'de> Deserialize<'de> for TokenRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl fmt::Display for TokenRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = match self.counted {
            Counted::Bits => ["Gbit/s", "Mbit/s", "kbit/s", "bit/s"],
            Counted::Packets => ["Gpps", "Mpps", "kpps", "pps"],
        };
        let sizes = [1_000_000_000, 1_000_000, 1_000, 1];
        let fits = |(size, _): &(u64, &str)| self.per_second.is_multiple_of(*size);
        let (size, unit) = sizes.into_iter().zip(units).find(fits).unwrap_or((1, units[3]));
        write!(f, "{} {unit}", self.per_second / size)
    }
}

/// The size of a bucket as an operator reads it: `"64 KiB"`, or `"100 packets"`.
pub(crate) fn size_text(counted: Counted, size: u64) -> String {
    match counted {
        Counted::Bits => Bytes::new(size).to_string(),
        Counted::Packets => format!("{size} packets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_numbers_and_are_shown_as_they_are_written() {
        for text in ["10 Mbit/s", "1 Gbit/s", "1001 bit/s", "5 kpps", "1 pps", "1 kbit/s"] {
            assert_eq!(text.parse::<TokenRate>().unwrap().to_string(), text);
        }
        assert_eq!("1.5 Mbit/s".parse::<TokenRate>(), Ok(TokenRate::bits(1_500_000)));
        for text in ["1.5 bit/s", "0 pps", "10", "1e9 bit/s", "2000 Gbit/s", "fast"] {
            assert!(text.parse::<TokenRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_remainder_is_lost_however_often_a_bucket_is_filled() {
        // 7 bit/s in steps of 1 ns: 1 bit takes 142,857,142.86 ns.
        let rate = TokenRate::bits(7);
        let steps = 1_000_003;
        let sum: u64 = (0..steps).map(|_| rate.tokens(1, u64::MAX)).sum();
        assert_eq!(sum, rate.tokens(steps, u64::MAX));
        // The time for a packet's tokens is the first ns at which they are there.
        for tokens in [1, 6, 7, 8, Counted::Bits.cost(1)] {
            let time = rate.time(tokens);
            assert!(rate.tokens(time, u64::MAX) >= tokens && rate.tokens(time - 1, u64::MAX) < tokens);
        }
        assert_eq!(TokenRate::bits(FASTEST).tokens(u64::MAX, 5), 5);
        assert_eq!(rate.amount(8_000_000_000), 7);
    }
}
