//! Handing prefixes over, to the next version of a function or to a restart: versioned, checksummed, all or nothing.

use std::hash::Hash;

use super::{Address, Lpm, LpmConfig};
use crate::flow::Encode;

/// "NBLP", the version of the header and the records, bits of an address, version and size of a value, prefixes; then
/// the prefixes (address, length, value); then the CRC-32 of all before it.
const MAGIC: [u8; 4] = *b"NBLP";
const FORMAT: u16 = 1;
const HEADER: usize = 4 + 2 + 1 + (2 + 4) + 8;
const CHECKSUM: usize = 4;

/// Why an import of prefixes was refused; the table is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LpmImportError {
    /// No such export, or cut short, or changed on its way.
    #[error("no exported prefixes: {problem}: fetch the whole export again")]
    Damaged {
        /// What is wrong with the bytes.
        problem: &'static str,
    },
    /// Prefixes of other addresses, or with values of another form.
    #[error(
        "exported prefixes are of {found_bits}-bit addresses with values of version {found_version} and {found_size} \
         bytes, but this table's are of {bits}, version {version} and {size} bytes: import into the same version of \
         the function"
    )]
    Version {
        /// Bits of an address here.
        bits: u8,
        /// Version of a value here.
        version: u16,
        /// Bytes of a value here.
        size: u32,
        /// Bits of an address there.
        found_bits: u8,
        /// Version of a value there.
        found_version: u16,
        /// Bytes of a value there.
        found_size: u32,
    },
    /// A prefix or value that can't be, under a right checksum.
    #[error("exported prefix {number} is none: export with the same version of the function")]
    Invalid {
        /// Which, from 0.
        number: usize,
    },
    /// The table is too small.
    #[error(
        "exported prefixes need room for {needed:?}, but the table has {there:?}: import into a larger table"
    )]
    NoRoom {
        /// What they need.
        needed: LpmConfig,
        /// What there is.
        there: LpmConfig,
    },
}

impl<A: Address + Encode, V: Copy + Eq + Hash + Encode + 'static> Lpm<A, V> {
    const RECORD: usize = A::SIZE + 1 + V::SIZE;

    /// Appends all prefixes to `to`, in a form that [`decode`](Self::decode) reads.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend(MAGIC);
        to.extend(FORMAT.to_be_bytes());
        to.push(A::BITS);
        to.extend(V::VERSION.to_be_bytes());
        to.extend((V::SIZE as u32).to_be_bytes());
        to.extend((self.len() as u64).to_be_bytes());
        for (prefix, len, value) in self.iter() {
            let at = to.len();
            to.resize(at + Self::RECORD, 0);
            let (address, rest) = to[at..].split_at_mut(A::SIZE);
            prefix.encode(address);
            rest[0] = len;
            value.encode(&mut rest[1..]);
        }
        let checksum = crc32fast::hash(&to[start..]);
        to.extend(checksum.to_be_bytes());
    }

    /// Puts exported prefixes in the place of all that are there; answers how many.
    ///
    /// # Errors
    /// When the bytes are not a whole, unchanged export of a table with the same kinds of addresses and values, or need
    /// more room than there is. The table then holds what it held.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<usize, LpmImportError> {
        let prefixes = self.fitting(bytes)?;
        self.clear();
        for (number, (prefix, len, value)) in prefixes.iter().enumerate() {
            self.insert(*prefix, *len, *value).map_err(|_| LpmImportError::Invalid { number })?;
        }
        Ok(prefixes.len())
    }

    /// All prefixes of an export, if they fit into this table.
    pub(super) fn fitting(&self, bytes: &[u8]) -> Result<Vec<(A, u8, V)>, LpmImportError> {
        let prefixes = Self::records(bytes)?;
        let needed = LpmConfig::for_prefixes(prefixes.iter().map(|(prefix, len, _)| (*prefix, *len)));
        let there = LpmConfig { prefixes: self.capacity(), groups: self.groups().1 };
        if needed.prefixes > there.prefixes || needed.groups > there.groups {
            return Err(LpmImportError::NoRoom { needed, there });
        }
        Ok(prefixes)
    }

    /// All prefixes of an export, or what is wrong with it.
    fn records(bytes: &[u8]) -> Result<Vec<(A, u8, V)>, LpmImportError> {
        let damaged = |problem| LpmImportError::Damaged { problem };
        let (checked, checksum) =
            bytes.split_last_chunk::<CHECKSUM>().ok_or(damaged("they are cut short"))?;
        let header = checked.get(MAGIC.len()..HEADER).ok_or(damaged("they are cut short"))?;
        if !checked.starts_with(&MAGIC) {
            return Err(damaged("they do not begin as an export does"));
        }
        let (format, found_bits, (found_version, found_size), prefixes) =
            <(u16, u8, (u16, u32), u64)>::decode(header).ok_or(damaged("their header is none"))?;
        if format != FORMAT {
            return Err(damaged("they are of another format"));
        }
        let (bits, version, size) = (A::BITS, V::VERSION, V::SIZE as u32);
        if (found_bits, found_version, found_size) != (bits, version, size) {
            return Err(LpmImportError::Version {
                bits,
                version,
                size,
                found_bits,
                found_version,
                found_size,
            });
        }
        let records = &checked[HEADER..];
        if prefixes.checked_mul(Self::RECORD as u64) != Some(records.len() as u64) {
            return Err(damaged("they are cut short, or go on after their end"));
        }
        if crc32fast::hash(checked) != u32::from_be_bytes(*checksum) {
            return Err(damaged("their checksum is wrong"));
        }
        let decoded = records.chunks_exact(Self::RECORD).enumerate().map(|(number, record)| {
            let (address, rest) = record.split_at(A::SIZE);
            let prefix = A::decode(address);
            let value = V::decode(&rest[1..]);
            let whole = |(prefix, _): &(A, V)| rest[0] <= A::BITS && prefix.truncated(rest[0]) == *prefix;
            let (prefix, value) =
                prefix.zip(value).filter(whole).ok_or(LpmImportError::Invalid { number })?;
            Ok((prefix, rest[0], value))
        });
        decoded.collect()
    }
}
