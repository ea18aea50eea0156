//! A configuration's file: one line about it, then its text as it was given.
//!
//! ```text
//! # netbricks 89abcdef {"format":1,"number":42,"time":1700000000000000000,"origin":"edge.toml",…}
//! [port.wan]
//! …
//! ```
//!
//! The number before the JSON is the CRC-32 of all that follows it. The line is a comment in TOML, so that the file
//! can be run as it is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::checksum::{PREFIX, checked, with_checksum};
use super::journal::{content, json};
use super::{Damage, FORMAT, Number};

const BEGINNING: &str = "# netbricks ";

/// The place that a configuration came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The file's name, or another origin: `edge.toml`.
    pub origin: String,
    /// The directory in which relative paths of the configuration begin.
    #[serde(with = "path")]
    pub directory: PathBuf,
}

/// A configuration as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its number.
    pub number: Number,
    /// Its text.
    pub text: String,
    /// Its origin.
    pub base: Base,
    /// A comment on it.
    pub note: String,
    /// Nanoseconds since the Unix epoch, as they were given.
    pub time: u64,
    pub(super) checksum: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    number: Number,
    time: u64,
    #[serde(flatten)]
    base: Base,
    note: String,
}

impl Saved {
    pub(super) fn new(number: Number, text: &str, base: &Base, note: &str, time: u64) -> (Saved, Vec<u8>) {
        let header = Header { format: FORMAT, number, time, base: base.clone(), note: note.into() };
        let (checked, sum) = with_checksum(b"", &format!("{}\n{text}", json(&header)));
        let Header { base, note, .. } = header;
        let saved = Saved { number, text: text.into(), base, note, time, checksum: format!("{sum:08x}") };
        (saved, [BEGINNING.as_bytes(), checked.as_bytes()].concat())
    }

    /// Reads a file that has this number by its name.
    pub(super) fn read(number: Number, bytes: &[u8]) -> Result<Saved, Damage> {
        let Some(rest) = bytes.strip_prefix(BEGINNING.as_bytes()) else {
            let start = &bytes[..bytes.len().min(BEGINNING.len())];
            let got = String::from_utf8_lossy(start).escape_debug().to_string();
            return Err(Damage::Beginning { expected: BEGINNING, got });
        };
        let (_, sum) = checked(b"", rest)?;
        let rest = &rest[PREFIX..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return Err(Damage::Short { expected: bytes.len() + 1, got: bytes.len() });
        };
        let header: Header = content(&rest[..end])?;
        if header.format != FORMAT {
            return Err(Damage::Format { expected: FORMAT, got: header.format });
        }
        if header.number != number {
            return Err(Damage::Configuration {
                expected: number.to_string(),
                got: header.number.to_string(),
            });
        }
        let text = String::from_utf8(rest[end + 1..].to_vec())
            .map_err(|error| Damage::Content { problem: error.to_string() })?;
        let Header { base, note, time, .. } = header;
        Ok(Saved { number, text, base, note, time, checksum: format!("{sum:08x}") })
    }
}

/// A path in JSON: a text, or its bytes where it is no UTF-8.
mod path {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use serde::{Deserializer, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match path.to_str() {
            Some(text) => Form::Text(text.into()),
            None => Form::Bytes(path.as_os_str().as_bytes().to_vec()),
        };
        form.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_configuration_is_read_as_it_was_written(
            number in any::<u64>(), time in any::<u64>(), text in any::<String>(), origin in any::<String>(),
            note in any::<String>(), directory in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let base = Base { origin, directory: OsString::from_vec(directory).into() };
            let (saved, bytes) = Saved::new(Number(number), &text, &base, &note, time);
            prop_assert_eq!(&(&*saved.text, &saved.base, &*saved.note), &(&*text, &base, &*note));
            prop_assert_eq!(Saved::read(Number(number), &bytes), Ok(saved));
        }
    }

    #[test]
    fn each_cut_and_each_flipped_bit_is_found() {
        let base = Base { origin: "edge.toml".into(), directory: "/etc".into() };
        let (_, bytes) = Saved::new(Number(42), "[port.wan]\n", &base, "first", 1);
        for length in 0..bytes.len() {
            assert!(Saved::read(Number(42), &bytes[..length]).is_err(), "{length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Saved::read(Number(42), &wrong).is_err(), "bit {bit}");
        }
        assert!(matches!(Saved::read(Number(43), &bytes), Err(Damage::Configuration { .. })));
    }
}
