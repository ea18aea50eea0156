//! Journals in the store: handler writes of each configuration, written and read.

use std::io;

use super::journal::{Record, Replay, Tail, replay};
use super::{Damage, Number, Store, StoreError, Warning, damaged_name, journal_name};

/// A journal as it was read.
struct Loaded {
    records: Vec<Record>,
    /// The place for the next record, or the reason why there is none. No file is `None`.
    tail: Result<Option<Tail>, StoreError>,
}

impl Store {
    /// Appends a handler's write to a configuration's journal. It is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Full`] past 100,000 records or 64 MiB, and others when there is no such configuration or the
    /// journal cannot be written.
    pub fn append(&mut self, number: Number, record: &Record) -> Result<(), StoreError> {
        self.append_many(number, std::slice::from_ref(record))
    }

    /// Appends records at the cost of one.
    ///
    /// All are durable when this returns. A crash before may leave the first ones.
    ///
    /// # Errors
    /// As [`append`](Store::append). None counts then, unless the disk fails so that they cannot be cut off before the
    /// process ends.
    pub fn append_many(&mut self, number: Number, records: &[Record]) -> Result<(), StoreError> {
        let tail = match self.tails.get(&number) {
            Some(tail) => Some(tail.clone()),
            None => self.load_journal(number)?.tail?,
        };
        let Some(old) = tail else {
            return self.create_journal(number, records).map(drop);
        };
        let (mut tail, mut bytes) = (old.clone(), Vec::new());
        tail.add(records, &mut bytes);
        self.check_room(number, &tail)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let name = journal_name(number);
        self.tails.remove(&number);
        if let Err(error) = self.disk.write_at(&name, old.length, &bytes) {
            // Lines that are not reported as written must not count, so they go before anything else is done.
            self.unreported.insert(number, old.length);
            let _ = self.cut_unreported(number);
            return Err(self.failed("write", &name, error));
        }
        self.tails.insert(number, tail);
        Ok(())
    }

    /// Reads a configuration's journal, oldest record first, and repairs its end.
    ///
    /// Records from the first damage on are lost, and a [warning](Store::warnings) says how many. An incomplete last
    /// record is none: its `append` never returned.
    ///
    /// # Errors
    /// [`StoreError`] when there is no such configuration, or its journal cannot be read.
    pub fn records(&mut self, number: Number) -> Result<Vec<Record>, StoreError> {
        let Loaded { records, tail } = self.load_journal(number)?;
        if let Err(error) = tail {
            self.postpone("repair", &journal_name(number), &error);
        }
        Ok(records)
    }

    /// Copies the records that `keep` chooses into the empty journal of another configuration; returns their number.
    ///
    /// A crash leaves all of them or none.
    ///
    /// # Errors
    /// [`StoreError::NotEmpty`] when the other journal has records, and others as for [`append`](Store::append).
    pub fn carry(
        &mut self,
        from: Number,
        to: Number,
        mut keep: impl FnMut(&Record) -> bool,
    ) -> Result<usize, StoreError> {
        let mut records = self.records(from)?;
        if let Some(tail) = self.load_journal(to)?.tail?.filter(|tail| tail.records > 0) {
            return Err(StoreError::NotEmpty { number: to, records: tail.records });
        }
        records.retain(|record| keep(record));
        self.create_journal(to, &records)
    }

    /// Gives a configuration's journal these records in place of all others. A crash leaves the old ones or the new.
    ///
    /// # Errors
    /// As [`append`](Store::append); the old ones stay then.
    pub fn rewrite(&mut self, number: Number, records: &[Record]) -> Result<(), StoreError> {
        // What a write that failed has left must not come behind the new ones.
        self.cut_unreported(number)?;
        let (mut tail, mut bytes) = Tail::first(number, &self.about(number)?.checksum);
        tail.add(records, &mut bytes);
        self.check_room(number, &tail)?;
        self.tails.remove(&number);
        self.replace(&journal_name(number), &bytes)?;
        self.tails.insert(number, tail);
        Ok(())
    }

    /// Writes a journal with these records in place of none; returns how many are in it.
    fn create_journal(&mut self, number: Number, records: &[Record]) -> Result<usize, StoreError> {
        if records.is_empty() {
            return Ok(0);
        }
        let (mut tail, mut bytes) = Tail::first(number, &self.about(number)?.checksum);
        tail.add(records, &mut bytes);
        self.check_room(number, &tail)?;
        self.tails.remove(&number);
        self.replace(&journal_name(number), &bytes)?;
        let records = tail.records;
        self.tails.insert(number, tail);
        Ok(records)
    }

    fn check_room(&self, number: Number, tail: &Tail) -> Result<(), StoreError> {
        let (most_records, most_bytes) = (self.limits.records, self.limits.journal);
        if tail.records <= most_records && tail.length <= most_bytes {
            return Ok(());
        }
        let (records, bytes) = (tail.records, tail.length);
        Err(StoreError::Full { number, records, bytes, most_records, most_bytes })
    }

    fn load_journal(&mut self, number: Number) -> Result<Loaded, StoreError> {
        let checksum = self.about(number)?.checksum.clone();
        self.cut_unreported(number)?;
        let name = journal_name(number);
        let none = |tail| Loaded { records: Vec::new(), tail };
        let bytes = match self.disk.read(&name, self.limits.journal) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(none(Ok(None))),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let damage = Damage::Unreadable { problem: error.to_string() };
                return Ok(none(self.set_aside(&name, damage).map(|()| None)));
            }
            Err(error) => return Err(self.failed("read", &name, error)),
        };
        let of_this = |replay: Replay| {
            if replay.configuration == number && replay.checksum == checksum {
                return Ok(replay);
            }
            Err(Damage::Configuration {
                expected: format!("{number} with checksum {checksum}"),
                got: format!("{} with checksum {}", replay.configuration, replay.checksum),
            })
        };
        let mut replay = match replay(&bytes).and_then(of_this) {
            Ok(replay) => replay,
            Err(damage) => return Ok(none(self.set_aside(&name, damage).map(|()| None))),
        };
        let records = std::mem::take(&mut replay.records);
        let tail = self.repair(&name, &bytes, &replay, records.len());
        let tail = tail.map(|()| replay.into_tail());
        if let Ok(tail) = &tail {
            self.tails.insert(number, tail.clone());
        }
        Ok(Loaded { records, tail: tail.map(Some) })
    }

    /// Cuts off what a write that failed may have left.
    fn cut_unreported(&mut self, number: Number) -> Result<(), StoreError> {
        let Some(&length) = self.unreported.get(&number) else { return Ok(()) };
        let name = journal_name(number);
        self.disk.cut(&name, length).map_err(|error| self.failed("repair", &name, error))?;
        self.unreported.remove(&number);
        Ok(())
    }

    /// Cuts a journal before its first damage, after it was copied where whole lines would be lost.
    fn repair(&mut self, name: &str, bytes: &[u8], replay: &Replay, kept: usize) -> Result<(), StoreError> {
        if let Some(damage) = replay.damage.clone() {
            let copy = damaged_name(name);
            let warning = Warning::JournalCut {
                path: self.path.join(name),
                kept,
                lost: replay.lost,
                damage,
                copy: self.path.join(&copy),
            };
            self.warn(warning);
            self.replace(&copy, bytes)?;
        }
        if replay.good_bytes == bytes.len() {
            return Ok(());
        }
        self.disk.cut(name, replay.good_bytes).map_err(|error| self.failed("repair", name, error))
    }

    /// Gives a journal that is of no use another name.
    fn set_aside(&mut self, name: &str, damage: Damage) -> Result<(), StoreError> {
        let copy = damaged_name(name);
        let warning =
            Warning::JournalSetAside { path: self.path.join(name), damage, copy: self.path.join(&copy) };
        self.warn(warning);
        let renamed = self.disk.rename(name, &copy).and_then(|()| self.disk.sync_names());
        renamed.map_err(|error| self.failed("rename", name, error))
    }
}
