//! Export and import of flows: to the next version of a function, to a restart, or to another machine.
//!
//! All flows or those of some buckets. The byte format is versioned and checksummed, and a faulty import leaves the
//! table as it was.

use super::slots::NEVER;
use super::{Encode, FlowTable};
use crate::hash::{Key, Secret};

/// Buckets in which flows are handed from owner to owner.
pub const BUCKETS: u16 = 4096;

/// "NBFT", the version of the header and the records, then what [`Header`] lists.
const MAGIC: [u8; 4] = *b"NBFT";
const FORMAT: u16 = 2;
/// Magic, format, key version and size, value version and size, flows; then flows; then the CRC-32 of all before it.
const HEADER: usize = 4 + 2 + (2 + 4) + (2 + 4) + 8;
const CHECKSUM: usize = 4;
/// Age and timeout, ns, after key and value.
const TIMES: usize = 16;
/// The timeout of a flow that does not expire, in bytes.
const FOREVER: u64 = u64::MAX;

/// Why an import was refused; the table is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The bytes end too early, or go on after their end.
    #[error("exported flows should be {expected} bytes, but are {found}: fetch the whole export again")]
    Length {
        /// Bytes that header and flows need.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// The bytes don't begin like an export.
    #[error("no exported flows: they begin with {MAGIC:02x?} but these bytes with {found:02x?}")]
    NotAnExport {
        /// The first bytes.
        found: [u8; 4],
    },
    /// Another version of the format.
    #[error(
        "exported flows of format {found}, but this build reads format {FORMAT}: export them with this build"
    )]
    Format {
        /// The format of these bytes.
        found: u16,
    },
    /// Keys or values of another form.
    #[error(
        "exported {what}s are version {found_version} of {found_size} bytes, but this table's are version \
         {expected_version} of {expected_size} bytes: import into the same version of the function"
    )]
    Version {
        /// "key" or "value".
        what: &'static str,
        /// The version that this table reads.
        expected_version: u16,
        /// Bytes that each takes here.
        expected_size: u32,
        /// The version of the export.
        found_version: u16,
        /// Bytes that each takes there.
        found_size: u32,
    },
    /// The bytes were changed on their way.
    #[error("exported flows are corrupt: their checksum is {found:#010x} but should be {expected:#010x}")]
    Checksum {
        /// The checksum of the bytes.
        expected: u32,
        /// The checksum that came with them.
        found: u32,
    },
    /// A key or value that its type does not know, under a right checksum.
    #[error(
        "exported flow {flow}: its {what} is none of this table's: export with the same version of the function"
    )]
    Invalid {
        /// Which flow, from 0.
        flow: u64,
        /// "key" or "value".
        what: &'static str,
    },
    /// The flows don't fit beside those that are there.
    #[error(
        "no room for {flows} exported flows in a table with {len} of {capacity} flows: import into a larger one"
    )]
    NoRoom {
        /// Flows to import.
        flows: u64,
        /// Flows in the table.
        len: usize,
        /// The most it can hold.
        capacity: usize,
    },
}

impl<K: Key, V: 'static> FlowTable<K, V> {
    /// Sets the seed by which flows fall into buckets.
    ///
    /// All tables that hand flows to each other need the same one, also if their own seeds differ.
    #[must_use]
    pub fn with_bucket_seed(mut self, seed: u64) -> Self {
        self.bucket_secret = Secret::from_seed(seed);
        self
    }

    /// The bucket of `key`, below [`BUCKETS`]: by the bucket seed alone, the same on every machine with this version.
    #[inline]
    #[must_use]
    pub fn bucket(&self, key: &K) -> u16 {
        (key.hash(&self.bucket_secret) >> 52) as u16
    }

    /// Calls `writer` with key, value, age and timeout of each flow that is not expired.
    ///
    /// The age is in ns since the last hit, in whole ticks. The timeout is in ns; `u64::MAX` means none.
    pub fn export(&self, writer: &mut dyn FnMut(&K, &V, u64, u64)) {
        self.export_where(&mut |_| true, writer);
    }

    /// As [`export`](Self::export), for the buckets that `chosen` answers `true` for.
    pub fn export_where(
        &self,
        chosen: &mut dyn FnMut(u16) -> bool,
        writer: &mut dyn FnMut(&K, &V, u64, u64),
    ) {
        self.export_keys(&mut |key| chosen(self.bucket(key)), writer);
    }

    fn export_keys(&self, chosen: &mut dyn FnMut(&K) -> bool, writer: &mut dyn FnMut(&K, &V, u64, u64)) {
        let mut flows = self.iter();
        while let Some(index) = flows.next_slot() {
            self.export_slot(index, chosen, writer);
        }
        if let Some(before) = &self.before {
            before.export_keys(chosen, writer);
        }
    }

    pub(super) fn set_times(&mut self, index: usize, age: u32, timeout: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.seen = (self.clock.tick as u32).wrapping_sub(age);
            slot.set_timeout(timeout);
            self.file_timer(index);
        }
    }

    /// Shows the flow of a slot, if there is one that is chosen.
    pub(super) fn export_slot(
        &self,
        index: usize,
        chosen: &mut dyn FnMut(&K) -> bool,
        writer: &mut dyn FnMut(&K, &V, u64, u64),
    ) {
        let Some(slot) = self.slots.get(index) else { return };
        let Some((key, value)) = self.slots.pair(index) else { return };
        if chosen(&key) {
            let age = self.clock.nanoseconds(u64::from(self.clock.age(slot)));
            let timeout = match slot.timeout() {
                NEVER => FOREVER,
                ticks => self.clock.exact_timeout(ticks),
            };
            writer(&key, value, age, timeout);
        }
    }
}

impl<K: Key + Encode, V: Encode + 'static> FlowTable<K, V> {
    pub(super) const HEADER: usize = HEADER;
    /// The bytes of one flow in an export.
    pub const RECORD: usize = K::SIZE + V::SIZE + TIMES;

    /// Appends all flows that are not expired to `to`, in a form that [`decode`](Self::decode) reads.
    pub fn encode(&self, to: &mut Vec<u8>) {
        self.encode_where(to, |_| true);
    }

    /// As [`encode`](Self::encode), the flows of one bucket.
    pub fn encode_bucket(&self, bucket: u16, to: &mut Vec<u8>) {
        self.encode_where(to, |other| other == bucket);
    }

    /// As [`encode`](Self::encode), the flows of the buckets that `chosen` answers `true` for, in one pass.
    pub fn encode_where(&self, to: &mut Vec<u8>, mut chosen: impl FnMut(u16) -> bool) {
        self.encode_keys(to, |key| chosen(self.bucket(key)));
    }

    /// Exports as [`encode`](Self::encode) the flows whose keys `chosen` accepts, and removes them; returns how many.
    ///
    /// Another table owns them now and [admits](Self::admit) them. It walks the whole table at once, however few leave;
    /// beside packets, use [`take_step`](Self::take_step).
    pub fn take_where(&mut self, to: &mut Vec<u8>, chosen: impl FnMut(&K) -> bool) -> usize {
        self.move_all();
        self.take_between(0..self.slots.len(), to, chosen)
    }

    /// As [`take_where`](Self::take_where), of the slots in a range.
    pub(super) fn take_between(
        &mut self,
        slots: std::ops::Range<usize>,
        to: &mut Vec<u8>,
        mut chosen: impl FnMut(&K) -> bool,
    ) -> usize {
        let start = to.len();
        Self::begin_image(to);
        let mut taken = Vec::new();
        for index in slots {
            if self.slots.get(index).is_some_and(|slot| slot.is_live() && !self.clock.is_over(slot)) {
                self.export_slot(index, &mut chosen, &mut |key, value, age, timeout| {
                    Self::record(to, key, value, age, timeout);
                    taken.push(index as u32);
                });
            }
        }
        Self::end_image(to, start);
        // Only now that nothing of the author's is called any more but what drops them: no panic loses the others.
        for index in &taken {
            drop(self.take(*index as usize));
        }
        taken.len()
    }

    fn encode_keys(&self, to: &mut Vec<u8>, mut chosen: impl FnMut(&K) -> bool) {
        let start = to.len();
        Self::begin_image(to);
        self.export_keys(&mut chosen, &mut |key, value, age, timeout| {
            Self::record(to, key, value, age, timeout);
        });
        Self::end_image(to, start);
    }

    /// Appends what an export begins with; how many flows there are is written at its [end](Self::end_image).
    pub(super) fn begin_image(to: &mut Vec<u8>) {
        to.extend(MAGIC);
        to.extend(FORMAT.to_be_bytes());
        for (version, size) in [(K::VERSION, K::SIZE), (V::VERSION, V::SIZE)] {
            to.extend(version.to_be_bytes());
            to.extend((size as u32).to_be_bytes());
        }
        to.extend(0u64.to_be_bytes());
    }

    /// Appends a flow.
    pub(super) fn record(to: &mut Vec<u8>, key: &K, value: &V, age: u64, timeout: u64) {
        let at = to.len();
        to.resize(at + Self::RECORD, 0);
        let (key_bytes, rest) = to[at..].split_at_mut(K::SIZE);
        let (value_bytes, times) = rest.split_at_mut(V::SIZE);
        key.encode(key_bytes);
        value.encode(value_bytes);
        (age, timeout).encode(times);
    }

    /// Ends the export that begins at `start`: counts its flows, and appends the checksum.
    pub(super) fn end_image(to: &mut Vec<u8>, start: usize) {
        let flows = (to.len() - start - HEADER) / Self::RECORD;
        to[start + HEADER - 8..start + HEADER].copy_from_slice(&(flows as u64).to_be_bytes());
        let checksum = crc32fast::hash(&to[start..]);
        to.extend(checksum.to_be_bytes());
    }

    /// Takes in exported flows as of `now` (ns), and returns how many.
    ///
    /// A flow that is there already stays as it is, unless the exported one was hit more recently. Flows that expired
    /// on the way are left out.
    ///
    /// # Errors
    /// When the bytes are not a whole, unchanged export of a table with the same kinds of keys and values, or hold more
    /// new flows than there is room for. (An import evicts no flow; [`admit`](Self::admit) does.) The table then holds
    /// what it held.
    pub fn decode(&mut self, bytes: &[u8], now: u64) -> Result<usize, ImportError> {
        let flows = Self::records(bytes)?;
        self.set_time(now);
        self.move_all();
        let no_room =
            ImportError::NoRoom { flows: flows.len() as u64, len: self.len, capacity: self.capacity };
        let mut added = Vec::new();
        let mut newer = Vec::new();
        for (key, value, age, timeout) in flows {
            let Some((age, timeout)) = self.times(age, timeout) else { continue };
            let home = self.home(key.hash(&self.secret));
            if let Some(index) = self.find(&key, home) {
                newer.push((index, value, age, timeout));
                continue;
            }
            let index = self.free_slot(home).filter(|_| self.len < self.capacity);
            let Some(index) = index else {
                for index in added {
                    drop(self.take(index));
                    self.counters.inserted -= 1;
                }
                return Err(no_room);
            };
            self.put(super::entry::Place { index, tag: home.tag, displaces: None }, key, value);
            added.push(index as usize);
            self.set_times(index as usize, age, timeout);
        }
        let mut taken = added.len();
        for (index, value, age, timeout) in newer {
            taken += usize::from(self.renew(index, value, age, timeout));
        }
        Ok(taken)
    }

    /// Age and timeout (ns) in ticks, of a flow that is not over.
    pub(super) fn times(&mut self, age: u64, timeout: u64) -> Option<(u32, u32)> {
        let age = u32::try_from(self.clock.whole_ticks(age)).unwrap_or(u32::MAX);
        let timeout = if timeout == FOREVER { NEVER } else { self.clock.ticks(timeout) };
        (timeout == NEVER || age < timeout).then_some((age, timeout))
    }

    /// Gives a flow that is there already what came under its key, if that was hit more recently.
    pub(super) fn renew(&mut self, index: usize, value: V, age: u32, timeout: u32) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        if !self.clock.is_over(slot) && age >= self.clock.age(slot) {
            return false;
        }
        if let Some(old) = slot.value_mut() {
            *old = value;
        }
        self.set_times(index, age, timeout);
        true
    }

    /// All flows of an export, or what is wrong with it.
    pub(super) fn records(bytes: &[u8]) -> Result<Vec<(K, V, u64, u64)>, ImportError> {
        let length = |expected: u64| ImportError::Length { expected, found: bytes.len() as u64 };
        let shortest = (HEADER + CHECKSUM) as u64;
        let (magic, rest) = bytes.split_first_chunk().ok_or(length(shortest))?;
        if *magic != MAGIC {
            return Err(ImportError::NotAnExport { found: *magic });
        }
        let header = rest.get(..HEADER - MAGIC.len()).ok_or(length(shortest))?;
        let (format, (key, value), flows) =
            <(u16, ((u16, u32), (u16, u32)), u64)>::decode(header).ok_or(length(shortest))?;
        if format != FORMAT {
            return Err(ImportError::Format { found: format });
        }
        let body = flows.checked_mul(Self::RECORD as u64).and_then(|body| body.checked_add(shortest));
        let ours =
            [("key", (K::VERSION, K::SIZE as u32), key), ("value", (V::VERSION, V::SIZE as u32), value)];
        for (what, expected, found) in ours {
            if expected != found {
                let ((expected_version, expected_size), (found_version, found_size)) = (expected, found);
                return Err(ImportError::Version {
                    what,
                    expected_version,
                    expected_size,
                    found_version,
                    found_size,
                });
            }
        }
        if body != Some(bytes.len() as u64) {
            return Err(length(body.unwrap_or(u64::MAX)));
        }
        let (checked, checksum) = bytes.split_last_chunk().ok_or(length(shortest))?;
        let (expected, found) = (crc32fast::hash(checked), u32::from_be_bytes(*checksum));
        if expected != found {
            return Err(ImportError::Checksum { expected, found });
        }
        let records = checked[HEADER..].chunks_exact(Self::RECORD);
        let decoded = records.enumerate().map(|(flow, record)| {
            let (key, rest) = record.split_at(K::SIZE);
            let (value, times) = rest.split_at(V::SIZE);
            let invalid = |what| ImportError::Invalid { flow: flow as u64, what };
            let key = K::decode(key).ok_or(invalid("key"))?;
            let value = V::decode(value).ok_or(invalid("value"))?;
            let (age, timeout) = <(u64, u64)>::decode(times).ok_or(invalid("age"))?;
            Ok((key, value, age, timeout))
        });
        decoded.collect()
    }
}
