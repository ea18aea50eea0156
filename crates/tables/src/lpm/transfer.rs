//! Handing prefixes over, to the next version of a function or to a restart: versioned, checksummed, all or nothing.

use std::hash::Hash;

use super::{Address, Lpm, LpmConfig, RouteLifetime, RoutesFull};
use crate::flow::Encode;
use crate::memory::MemoryError;

/// Magic number of an export.
///
/// An export has "NBLP", the version of the header and the records, bits of an address, version and size of a value,
/// and the number of prefixes. Then come the prefixes (address, length, value, remaining lifetime in ns), then the
/// CRC-32 of all before it.
const MAGIC: [u8; 4] = *b"NBLP";
const FORMAT: u16 = 2;
const HEADER: usize = 4 + 2 + 1 + (2 + 4) + 8;
const CHECKSUM: usize = 4;
/// Bytes of a lifetime.
const LEFT: usize = 8;
/// The lifetime of a prefix that does not end.
const FOREVER: u64 = u64::MAX;

/// Address, length, value and what is left of the lifetime (ns).
pub(super) type Exported<A, V> = (A, u8, V, Option<u64>);

/// Why an import of prefixes was refused; the table is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LpmImportError {
    /// No such export, or cut short, or changed on its way.
    #[error("no exported prefixes: {problem}: fetch the whole export again")]
    Damaged {
        /// The fault in the bytes.
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
        /// The size that they need.
        needed: LpmConfig,
        /// The size of the table.
        there: LpmConfig,
    },
    /// No memory to file the ends of prefixes.
    #[error("exported prefixes end, and a timer wheel for all that the table may hold {problem}")]
    Memory {
        /// The cause.
        problem: String,
    },
}

impl<A: Address + Encode, V: Copy + Eq + Hash + Encode + 'static> Lpm<A, V> {
    const RECORD: usize = A::SIZE + 1 + V::SIZE + LEFT;

    /// Appends all prefixes to `to`, in a form that [`decode`](Self::decode) reads.
    ///
    /// Each has its remaining lifetime at the latest time that the table was told, since the reader may have another
    /// clock.
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
            let (value_bytes, left) = rest[1..].split_at_mut(V::SIZE);
            prefix.encode(address);
            value.encode(value_bytes);
            let end = self.end(prefix, len);
            end.map_or(FOREVER, |end| end.saturating_sub(self.now).min(FOREVER - 1)).encode(left);
            rest[0] = len;
        }
        let checksum = crc32fast::hash(&to[start..]);
        to.extend(checksum.to_be_bytes());
    }

    /// Replaces all prefixes by exported ones, as of `now` (ns); returns how many.
    ///
    /// A prefix that was over when it was exported ends with the next [`expire`](Self::expire).
    ///
    /// # Errors
    /// When the bytes are not a whole, unchanged export of a table with the same kinds of addresses and values, or need
    /// more room than there is. The table then holds what it held.
    pub fn decode(&mut self, bytes: &[u8], now: u64) -> Result<usize, LpmImportError> {
        let prefixes = self.fitting(bytes)?;
        self.take(&prefixes, now)
    }

    /// Puts these in the place of all that are there.
    pub(super) fn take(&mut self, prefixes: &[Exported<A, V>], now: u64) -> Result<usize, LpmImportError> {
        self.clear();
        for (number, (prefix, len, value, left)) in prefixes.iter().enumerate() {
            let end = left.map(|left| now.saturating_add(left));
            let lifetime = RouteLifetime { now, end, full: RoutesFull::Refuse };
            self.insert_with_lifetime(*prefix, *len, *value, lifetime)
                .map_err(|_| LpmImportError::Invalid { number })?;
        }
        Ok(prefixes.len())
    }

    /// All prefixes of an export, if they fit into this table; there is a wheel for their ends then.
    pub(super) fn fitting(&mut self, bytes: &[u8]) -> Result<Vec<Exported<A, V>>, LpmImportError> {
        let prefixes = Self::records(bytes)?;
        let needed = LpmConfig::for_prefixes(prefixes.iter().map(|(prefix, len, ..)| (*prefix, *len)));
        let there = LpmConfig { prefixes: self.capacity(), groups: self.groups().1 };
        if needed.prefixes > there.prefixes || needed.groups > there.groups {
            return Err(LpmImportError::NoRoom { needed, there });
        }
        if prefixes.iter().any(|(.., left)| left.is_some()) {
            let memory = |error: MemoryError| LpmImportError::Memory { problem: error.to_string() };
            self.ends.make(self.capacity).map_err(memory)?;
        }
        Ok(prefixes)
    }

    /// All prefixes of an export, or what is wrong with it.
    fn records(bytes: &[u8]) -> Result<Vec<Exported<A, V>>, LpmImportError> {
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
            let (value, left) = rest[1..].split_at(V::SIZE);
            let parts = A::decode(address).zip(V::decode(value)).zip(u64::decode(left));
            let whole =
                |((prefix, _), _): &((A, V), u64)| rest[0] <= A::BITS && prefix.truncated(rest[0]) == *prefix;
            let ((prefix, value), left) = parts.filter(whole).ok_or(LpmImportError::Invalid { number })?;
            Ok((prefix, rest[0], value, (left != FOREVER).then_some(left)))
        });
        decoded.collect()
    }
}
