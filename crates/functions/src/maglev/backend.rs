//! One backend as an operator writes it: `web-1 02:00:00:00:00:01 3`.

use std::fmt;
use std::str::FromStr;

use netbricks_core::packet::MacAddress;
use netbricks_core::units::from_text;
use serde::de::{Deserialize, Deserializer};

/// A backend: its name, the address of its packets, and its share of the flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name, of at most [`MOST_NAME`](Self::MOST_NAME) bytes; with the key it decides the backend's slots.
    pub name: String,
    /// The Ethernet address that its packets are sent to.
    pub mac: MacAddress,
    /// Its share of the new flows, relative to the other backends' weights; at most
    /// [`MOST_WEIGHT`](Self::MOST_WEIGHT).
    ///
    /// With 0 it drains: it keeps its flows and gets no new ones.
    pub weight: u32,
}

/// A backend that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BackendError {
    /// The fault, the expected form, and how to mend it.
    pub problem: String,
}

impl Backend {
    /// The longest name, in bytes.
    pub const MOST_NAME: usize = 64;
    /// The largest weight.
    pub const MOST_WEIGHT: u32 = 1_000_000;
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(text: &str) -> Result<Self, BackendError> {
        let wrong = |problem: String| BackendError { problem };
        let mut words = text.split_whitespace();
        let (Some(name), Some(mac)) = (words.next(), words.next()) else {
            return Err(wrong(format!("expected a backend as `web-1 02:00:00:00:00:01 3`, found `{text}`")));
        };
        if name.len() > Self::MOST_NAME {
            return Err(wrong(format!(
                "a backend's name has at most {} bytes, `{name}` has {}: shorten it",
                Self::MOST_NAME,
                name.len()
            )));
        }
        let mac: MacAddress = mac.parse().map_err(|_| {
            wrong(format!(
                "expected the Ethernet address of backend `{name}` as `02:00:00:00:00:01`, found `{mac}`"
            ))
        })?;
        if mac.is_multicast() {
            return Err(wrong(format!(
                "backend `{name}` has the address {mac}, which is a group's: give its own"
            )));
        }
        let weight = words.next().map_or(Ok(1), |word| {
            let weight = word.parse().ok().filter(|weight| (0..=Self::MOST_WEIGHT).contains(weight));
            weight.ok_or_else(|| {
                wrong(format!(
                    "the weight of backend `{name}` must be 0 to {}, found `{word}`",
                    Self::MOST_WEIGHT
                ))
            })
        })?;
        match words.next() {
            None => Ok(Self { name: name.into(), mac, weight }),
            Some(word) => {
                Err(wrong(format!("expected nothing behind the weight of backend `{name}`, found `{word}`")))
            }
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.mac, self.weight)
    }
}

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}
