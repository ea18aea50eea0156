//! The director's records: the configurations that ran, and what handlers changed since.
//!
//! With a state directory it outlives the process. Without one it is in memory.

mod subject;
mod written;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Instant;

pub use self::subject::Subject;
pub(crate) use self::subject::without_superseded;
use self::subject::{Key, Subjects};
use crate::api::{Code, ConfigurationState, EventLevel, HistoryEntry, Problem, Source};
use crate::director::{Changes, Fence, UnderWay};
use crate::events::Events;
use crate::log;
use crate::server::remove_dead_socket;
pub(crate) use crate::store::ROLLBACK;
use crate::store::{Base, Files, Number, Outcome, Place, Record, State, Store, StoreError, worth};

/// Configurations that the history keeps.
const KEPT: usize = 50;

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Writes of handlers in the journal of one configuration.
    pub(crate) writes: usize,
    /// Bytes of these writes.
    pub(crate) bytes: usize,
    /// Writes of one tenant's handlers among them, and the bytes of these. All tenants together have half of all.
    pub(crate) of_tenant: (usize, usize),
    /// Bytes of all configurations and journals in memory.
    pub(crate) text: usize,
}

const LIMITS: Limits =
    Limits { writes: 100_000, bytes: 64 << 20, of_tenant: (1_000, 1 << 20), text: 256 << 20 };

/// Changes of the running configuration that late answers of workers are compared with.
const TRANSITIONS: usize = 32;

/// The director's records between two tasks.
#[derive(Debug)]
pub struct Records {
    /// Grows with every change.
    pub(crate) generation: u64,
    pub(crate) events: Events,
    /// The configurations, oldest first.
    history: Vec<Remembered>,
    /// The number of the running configuration.
    pub(crate) running: u64,
    pub(crate) unconfirmed: Option<Unconfirmed>,
    /// Writes of handlers since the running configuration was applied.
    pub(crate) written: Vec<Written>,
    /// Writes that are made and not durable yet; their askers wait.
    unwritten: Vec<Unwritten>,
    /// The number and bytes of all these, and by the tenant who wrote.
    taken: Taken,
    /// The subjects of `written`, and how many writes others stand for.
    subjects: Subjects,
    /// Whether older ones were dropped, because there is no state directory to refuse them for.
    dropped: bool,
    pub(crate) limits: Limits,
    pub(crate) under_way: UnderWay,
    pub(crate) fence: Fence,
    pub(crate) changes: Changes,
    /// The last changes of the running configuration, oldest first.
    transitions: VecDeque<Transition>,
    store: Option<Store>,
}

/// A write that waits to become durable.
struct Unwritten {
    written: Written,
    time_ns: u64,
    key: Option<Key>,
    /// Takes the generation after it, or why the journal lacks it.
    done: Done,
}

/// The receiver of the end of a [record](Records::record). It must not wait.
pub(crate) type Done = Box<dyn FnOnce(u64, Result<(), Problem>) + Send>;

impl std::fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwritten").field("written", &self.written).finish_non_exhaustive()
    }
}

/// The least superseded writes for which a journal is written again.
const SUPERSEDED: usize = 1_000;

/// Room of the journal that writes take.
#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    /// Number and bytes by tenant.
    of: BTreeMap<String, (usize, usize)>,
    /// Number and bytes of all tenants.
    of_tenants: (usize, usize),
}

impl Taken {
    fn by(written: &[Written]) -> Self {
        let mut taken = Self::default();
        written.iter().for_each(|written| taken.add(written));
        taken
    }

    fn add(&mut self, written: &Written) {
        let bytes = written.bytes();
        self.bytes += bytes;
        let Some(tenant) = written.tenant.as_deref() else { return };
        let add = |(writes, of): &mut (usize, usize)| (*writes, *of) = (*writes + 1, *of + bytes);
        add(&mut self.of_tenants);
        match self.of.get_mut(tenant) {
            Some(of) => add(of),
            None => _ = self.of.insert(tenant.to_owned(), (1, bytes)),
        }
    }
}

/// A change from one running configuration to the next.
#[derive(Debug)]
struct Transition {
    from: u64,
    /// Ports and functions that went on.
    kept: BTreeSet<String>,
}

#[derive(Debug)]
struct Remembered {
    entry: HistoryEntry,
    /// `None` where it is in the state directory only.
    source: Option<Source>,
    written: Vec<Written>,
}

/// A configuration that is rolled back unless it is confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unconfirmed {
    pub(crate) until: Instant,
    pub(crate) back_to: u64,
    /// The time is over, and it is being rolled back.
    pub(crate) is_overdue: bool,
}

/// A write of a handler, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The function.
    pub function: String,
    /// The handler.
    pub handler: String,
    /// The argument.
    pub argument: String,
    /// The worker, where only one was called.
    pub worker: Option<usize>,
    /// The tenant who wrote; the operator where there is none.
    pub tenant: Option<String>,
}

impl Records {
    /// The records of a run that begins with this file, which counts as confirmed.
    ///
    /// In a state directory whose confirmed configuration is this file, the run goes on with that one, and
    /// [`written`](Self::written) has what handlers changed of it.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn new(
        source: Source,
        time_ns: u64,
        events: Events,
        store: Option<Store>,
    ) -> Result<Self, StoreError> {
        Self::with_files(source, &Files::new(), time_ns, events, store)
    }

    /// As [`new`](Self::new), for a file that names these files.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_files(
        source: Source,
        files: &Files,
        time_ns: u64,
        events: Events,
        store: Option<Store>,
    ) -> Result<Self, StoreError> {
        let mut records = Self {
            generation: 1,
            events,
            history: Vec::new(),
            running: 0,
            unconfirmed: None,
            written: Vec::new(),
            unwritten: Vec::new(),
            taken: Taken::default(),
            subjects: Subjects::default(),
            dropped: false,
            limits: LIMITS,
            under_way: UnderWay::default(),
            fence: Fence::default(),
            changes: Changes::default(),
            transitions: VecDeque::new(),
            store: None,
        };
        let Some(mut store) = store else {
            records.running = records.remember(source, files, time_ns, "", ConfigurationState::Confirmed)?;
            return Ok(records);
        };
        for warning in store.warnings() {
            records.events.tell(EventLevel::Warning, "state-directory", "", warning.to_string());
        }
        let entries = store.history();
        records.history.extend(entries.iter().rev().map(Remembered::of));
        let again = store
            .confirmed()
            .filter(|saved| saved.text == source.text && directory(saved) == source.directory)
            .filter(|saved| store.has_files(saved.number, files));
        match again.map(|saved| saved.number) {
            Some(number) => {
                store.set_running(number)?;
                records.written = store.records(number)?.into_iter().map(Written::from).collect();
                records.taken = Taken::by(&records.written);
                records.running = number.0;
                records.store = Some(store);
            }
            None => {
                records.store = Some(store);
                let number = records.remember(source, files, time_ns, "", ConfigurationState::Applied)?;
                records.running = number;
                records.set_running(number)?;
                records.confirm(number)?;
            }
        }
        let (configuration, writes) = (records.running, records.written.len());
        tracing::info!(target: log::CONTROL, configuration, writes, "the state directory is open");
        Ok(records)
    }

    /// Notes in the state directory under which name the run is found, and removes the socket of a killed one.
    pub fn set_place(&mut self, graph: &str, socket: Option<&Path>) {
        let Some(store) = &mut self.store else { return };
        let socket = socket.and_then(|socket| std::path::absolute(socket).ok());
        let old = store.place().and_then(|place| place.socket.clone());
        if let Some(old) = old.filter(|old| Some(old) != socket.as_ref()) {
            remove_dead_socket(&old);
        }
        if let Err(error) = store.set_place(Place { graph: graph.to_owned(), socket }) {
            self.events.tell(EventLevel::Warning, "state-directory", "", error.to_string());
        }
    }

    /// The events of the run.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Writes of handlers since the running configuration was applied, oldest first.
    pub fn written(&self) -> &[Written] {
        &self.written
    }

    /// Whether a change is being prepared beside the director.
    pub fn is_preparing(&self) -> bool {
        self.changes.is_preparing()
    }

    /// When the director has to act by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.unconfirmed.filter(|unconfirmed| !unconfirmed.is_overdue).map(|unconfirmed| unconfirmed.until)
    }

    /// Whether the running configuration is being rolled back, because it was not confirmed in time.
    pub(crate) fn is_overdue(&self) -> bool {
        self.unconfirmed.is_some_and(|unconfirmed| unconfirmed.is_overdue)
    }

    /// The configurations, newest first.
    pub(crate) fn entries(&self) -> Vec<HistoryEntry> {
        let entry = |known: &Remembered| HistoryEntry {
            running: known.entry.number == self.running,
            ..known.entry.clone()
        };
        self.history.iter().rev().map(entry).collect()
    }

    /// Takes up a configuration that is to run.
    pub(crate) fn remember(
        &mut self,
        source: Source,
        files: &Files,
        time_ns: u64,
        note: &str,
        state: ConfigurationState,
    ) -> Result<u64, StoreError> {
        let (file, note) = (source.name.clone(), note.to_owned());
        let (number, source) = match &mut self.store {
            None => (self.history.last().map_or(1, |last| last.entry.number + 1), Some(source)),
            Some(store) => {
                let base = Base { origin: source.name, directory: source.directory.into() };
                let number = store.save(&source.text, &base, &note, time_ns)?;
                // Without them a restart still has the names.
                if let Err(error) = store.keep_files(number, files) {
                    self.events.tell(EventLevel::Warning, "state-directory", "", error.to_string());
                }
                (number.0, None)
            }
        };
        let entry = HistoryEntry { number, time_ns, file, note, state, running: false };
        self.history.push(Remembered { entry, source, written: Vec::new() });
        let (running, back_to) = (self.running, self.unconfirmed.map(|unconfirmed| unconfirmed.back_to));
        let known: Option<Vec<u64>> =
            self.store.as_ref().map(|store| store.history().iter().map(|entry| entry.number.0).collect());
        match known {
            // The store has decided which ones it keeps.
            Some(known) => self.history.retain(|remembered| known.contains(&remembered.entry.number)),
            None => {
                let earlier = self.earlier();
                let needed = |known: u64| {
                    [running, number].contains(&known) || [back_to, earlier].contains(&Some(known))
                };
                let mut bytes: usize = self.history.iter().map(Remembered::bytes).sum();
                while self.history.len() > KEPT || bytes > self.limits.text {
                    let places = self.history.iter().enumerate();
                    let places = places.filter(|(_, known)| !needed(known.entry.number));
                    let Some((place, _)) = places.min_by_key(|(_, known)| known.worth()) else { break };
                    bytes -= self.history.remove(place).bytes();
                }
            }
        }
        Ok(number)
    }

    /// Lets a configuration run that was [remembered](Self::remember), with these writes of handlers.
    ///
    /// Writes of handlers to the configuration before stay with that one. `kept` names the functions that go on.
    pub(crate) fn begin(
        &mut self,
        number: u64,
        written: Vec<Written>,
        kept: &[String],
        time_ns: u64,
    ) -> Result<(), StoreError> {
        self.write_down();
        let before = std::mem::replace(&mut self.written, written);
        self.taken = Taken::by(&self.written);
        self.subjects = Subjects::default();
        self.dropped = false;
        let (running, is_stored) = (self.running, self.store.is_some());
        self.transitions.push_back(Transition { from: running, kept: kept.iter().cloned().collect() });
        if self.transitions.len() > TRANSITIONS {
            self.transitions.pop_front();
        }
        // With a state directory, its journal has them.
        if let Some(known) = self.find(running).filter(|_| !is_stored) {
            known.written = before;
        }
        self.running = number;
        self.generation += 1;
        self.set_running(number)?;
        let records: Vec<Record> = self.written.iter().map(|written| written.record(time_ns)).collect();
        if let Some(store) = self.store.as_mut().filter(|_| !records.is_empty()) {
            store.append_many(Number(number), &records)?;
        }
        Ok(())
    }

    fn set_running(&mut self, number: u64) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.set_running(Number(number)))
    }

    /// Notes that a start without a file is to run this configuration.
    pub(crate) fn confirm(&mut self, number: u64) -> Result<(), StoreError> {
        if let Some(known) = self.find(number) {
            known.entry.state = ConfigurationState::Confirmed;
        }
        self.store.as_mut().map_or(Ok(()), |store| store.confirm(Number(number)))
    }

    /// Notes that a configuration does not run, because it was rolled back or could not be applied.
    pub(crate) fn give_up(&mut self, number: u64, failed: bool) -> Result<(), StoreError> {
        if let Some(known) = self.find(number) {
            known.entry.state =
                if failed { ConfigurationState::Failed } else { ConfigurationState::RolledBack };
        }
        let outcome = if failed { Outcome::Failed } else { Outcome::RolledBack };
        match self.store.as_mut().map_or(Ok(()), |store| store.give_up(Number(number), outcome)) {
            // It stays the one to restore until another is confirmed.
            Err(StoreError::LastConfirmed { .. }) => Ok(()),
            given_up => given_up,
        }
    }

    /// The configuration to go back to: the last confirmed one before the running one.
    ///
    /// Where the running one came by a rollback, it is the one before the configuration that runs again.
    pub(crate) fn earlier(&self) -> Option<u64> {
        let running = self.origin(self.running);
        let confirmed = |known: &&Remembered| {
            known.entry.number < running && known.entry.state == ConfigurationState::Confirmed
        };
        let last = || self.history.iter().rev().find(confirmed).map(|known| known.entry.number);
        self.unconfirmed.map(|unconfirmed| unconfirmed.back_to).or_else(last)
    }

    /// The configuration that this one is again, after rollbacks.
    pub(crate) fn origin(&self, mut number: u64) -> u64 {
        let again = |number: u64| {
            let known = self.history.iter().find(|known| known.entry.number == number)?;
            known.entry.note.strip_prefix(ROLLBACK)?.parse().ok().filter(|before: &u64| *before < number)
        };
        while let Some(before) = again(number) {
            number = before;
        }
        number
    }

    /// The file of a configuration, and what handlers changed while it ran.
    pub(crate) fn configuration(&mut self, number: u64) -> Result<(Source, Vec<Written>), Problem> {
        let ends = self.history.first().zip(self.history.last());
        let ends = ends.map(|(first, last)| (first.entry.number, last.entry.number));
        let running = self.running;
        let Some(known) = self.history.iter().find(|known| known.entry.number == number) else {
            let problem = Problem::new(Code::NotFound, format!("there is no configuration {number}"));
            return Err(match ends {
                Some((first, last)) => problem.help(format!("the history has {first} to {last}")),
                None => problem,
            });
        };
        let now = (number == running).then(|| self.written.clone());
        match (&known.source, &mut self.store) {
            (Some(source), _) => Ok((source.clone(), now.unwrap_or_else(|| known.written.clone()))),
            (None, Some(store)) => {
                let saved = store.load(Number(number)).map_err(|error| unkept(&error))?;
                let written = match now {
                    Some(now) => now,
                    None => {
                        let records = store.records(Number(number)).map_err(|error| unkept(&error))?;
                        records.into_iter().map(Written::from).collect()
                    }
                };
                Ok((source_of(&saved), written))
            }
            (None, None) => Err(Problem::new(Code::Internal, format!("configuration {number} is not kept"))),
        }
    }

    /// The files of a configuration whose content has changed since, with the places of the old one.
    ///
    /// Also answers warnings of those whose old content is not there.
    pub(crate) fn changed_files(&self, number: u64) -> (Files, Vec<String>) {
        match &self.store {
            None => (Files::new(), Vec::new()),
            Some(store) => changed_files(store, Number(number)),
        }
    }

    /// Whether the journal has room for a write of so many bytes, which a tenant or the operator makes.
    ///
    /// Without a state directory there is always room, for the oldest writes are dropped.
    pub(crate) fn may_record(&self, bytes: usize, tenant: Option<&str>) -> Result<(), Problem> {
        if self.store.is_none() {
            return Ok(());
        }
        let Limits { writes, bytes: most, of_tenant, .. } = self.limits;
        if let Some(tenant) = tenant {
            let taken = self.taken.of.get(tenant).copied().unwrap_or_default();
            if !fits(taken, bytes, of_tenant) {
                let detail = format!(
                    "tenant `{tenant}` has {} writes with {} bytes in the journal since the file was applied, and may have {} with {}",
                    taken.0, taken.1, of_tenant.0, of_tenant.1
                );
                return Err(Problem::new(Code::Conflict, detail)
                    .help("ask the operator to put the changes into the file and apply it with `--forget`"));
            }
            if !fits(self.taken.of_tenants, bytes, (writes / 2, most / 2)) {
                let detail = format!(
                    "the tenants' half of the journal is full: they made {} writes since the file was applied",
                    self.taken.of_tenants.0
                );
                return Err(Problem::new(Code::Conflict, detail)
                    .help("ask the operator to put the changes into the file and apply it with `--forget`"));
            }
        }
        let made = self.written.len() + self.unwritten.len();
        if fits((made, self.taken.bytes), bytes, (writes, most)) {
            return Ok(());
        }
        let detail = format!(
            "the journal is full: {} writes with {} bytes since the file was applied, and it takes {writes} with {most}",
            made, self.taken.bytes,
        );
        Err(Problem::new(Code::Conflict, detail)
            .help("put the changes into the file and apply it with `--forget`"))
    }

    /// Drops the oldest writes of a journal that nothing but this memory keeps.
    ///
    /// Those of a tenant that has written more than its part go, and not others'. `tenant` wrote the newest one.
    fn drop_oldest(&mut self, tenant: Option<&str>) {
        let Limits { writes, bytes, of_tenant, .. } = self.limits;
        if self.store.is_some() {
            return;
        }
        if let Some(tenant) = tenant {
            let of = self.taken.of.get(tenant).copied().unwrap_or_default();
            self.drop_beyond(of, of_tenant, |written| written.tenant.as_deref() == Some(tenant));
            self.drop_beyond(self.taken.of_tenants, (writes / 2, bytes / 2), |written| {
                written.tenant.is_some()
            });
        }
        if self.written.len() <= writes && self.taken.bytes <= bytes {
            return;
        }
        // A tenth more than needed, so that not each write moves all others.
        let (keep, mut left) = (writes - writes / 10, self.taken.bytes);
        let stays = |(place, written): (usize, &Written)| {
            let enough = self.written.len() - place <= keep && left <= bytes - bytes / 10;
            left -= written.bytes();
            enough
        };
        let first = self.written.iter().enumerate().position(stays).unwrap_or(usize::MAX);
        // The newest one stays.
        self.written.drain(..first.min(self.written.len() - 1));
        self.taken = Taken::by(&self.written);
        self.tell_of_dropped();
    }

    /// Drops the oldest of some writes where these, `left`, are more than `most`: a tenth more than needed.
    fn drop_beyond(
        &mut self,
        mut left: (usize, usize),
        most: (usize, usize),
        is_one: impl Fn(&Written) -> bool,
    ) {
        if left.0 <= most.0 && left.1 <= most.1 {
            return;
        }
        let keep = (most.0 - most.0 / 10, most.1 - most.1 / 10);
        self.written.retain(|written| {
            // The newest one stays.
            if left.0 <= 1 || left.0 <= keep.0 && left.1 <= keep.1 || !is_one(written) {
                return true;
            }
            left = (left.0 - 1, left.1 - written.bytes());
            false
        });
        self.taken = Taken::by(&self.written);
        self.tell_of_dropped();
    }

    fn tell_of_dropped(&mut self) {
        if !std::mem::replace(&mut self.dropped, true) {
            let told =
                "the journal has the last writes of handlers only: a rollback brings back no older ones";
            self.events.tell(EventLevel::Warning, "warning", "", told);
        }
    }

    /// Puts a write of a handler that succeeded into the journal of the configuration that it changed.
    ///
    /// Where another one runs since, it also goes into that one's journal, if the function went on. A write that a
    /// tenant made raises no generation. With a state directory, `done` is called when [`write_down`](Self::write_down)
    /// has made it durable, together with others.
    pub(crate) fn record(
        &mut self,
        written: Written,
        subject: Option<Subject>,
        configuration: u64,
        time_ns: u64,
        done: Done,
    ) {
        let counts = u64::from(written.tenant.is_none());
        if configuration != self.running {
            if let Err(problem) = self.record_late(&written, configuration, time_ns) {
                return done(self.generation, Err(problem));
            }
            if !self.goes_on_since(configuration, &written.function) {
                self.generation += counts;
                return done(self.generation, Ok(()));
            }
        }
        if let Err(problem) = self.may_record(written.bytes(), written.tenant.as_deref()) {
            return done(self.generation, Err(problem));
        }
        let key = subject.filter(|subject| subject.sets).and_then(|subject| subject.key(&written));
        self.taken.add(&written);
        self.unwritten.push(Unwritten { written, time_ns, key, done });
        if self.store.is_none() {
            self.write_down();
        }
    }

    /// Whether writes wait to become durable.
    pub(crate) fn is_any_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Makes all writes durable that wait for it, at the cost of one, and tells those who made them.
    pub(crate) fn write_down(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten);
        if unwritten.is_empty() {
            return;
        }
        let appended = self.store.as_mut().map_or(Ok(()), |store| {
            let records = unwritten.iter().map(|one| one.written.record(one.time_ns));
            store.append_many(Number(self.running), &records.collect::<Vec<_>>())
        });
        let refused = appended.err().map(|error| unkept(&error));
        for Unwritten { written, key, done, .. } in unwritten {
            if let Some(problem) = &refused {
                done(self.generation, Err(problem.clone()));
                continue;
            }
            let tenant = written.tenant.clone();
            self.generation += u64::from(tenant.is_none());
            self.written.push(written);
            self.subjects.add(key);
            self.drop_oldest(tenant.as_deref());
            done(self.generation, Ok(()));
        }
        if refused.is_some() {
            self.taken = Taken::by(&self.written);
        }
    }

    /// Whether later writes stand for more than half of the journal.
    pub(crate) fn is_mostly_superseded(&self) -> bool {
        let superseded = self.subjects.superseded;
        superseded >= SUPERSEDED && superseded >= self.written.len() / 2
    }

    /// Drops writes that later ones stand for. `subject` tells the form of a function's handler.
    pub(crate) fn compact(&mut self, time_ns: u64, subject: impl Fn(&str, &str) -> Option<Subject>) {
        let mut kept = without_superseded(&self.written, subject);
        if kept.len() == self.written.len() {
            return;
        }
        // A journal that cannot be written again only stays as long as it is.
        let records = kept.iter().map(|written| written.record(time_ns)).collect::<Vec<_>>();
        let rewritten =
            self.store.as_mut().map_or(Ok(()), |store| store.rewrite(Number(self.running), &records));
        self.subjects.superseded = 0;
        match rewritten {
            Ok(()) => std::mem::swap(&mut self.written, &mut kept),
            Err(error) => {
                self.events.tell(EventLevel::Warning, "state-directory", "", error.to_string());
            }
        }
        self.taken = Taken::by(&self.written);
        self.unwritten.iter().for_each(|one| self.taken.add(&one.written));
    }

    /// Puts a write into the journal of a configuration that does not run any more.
    fn record_late(&mut self, written: &Written, configuration: u64, time_ns: u64) -> Result<(), Problem> {
        // The history may have dropped it since.
        let Some(known) = self.history.iter_mut().find(|known| known.entry.number == configuration) else {
            return Ok(());
        };
        match &mut self.store {
            None => {
                known.written.push(written.clone());
                Ok(())
            }
            Some(store) => {
                store.append(Number(configuration), &written.record(time_ns)).map_err(|error| unkept(&error))
            }
        }
    }

    /// Whether a function of an earlier configuration goes on in the running one.
    fn goes_on_since(&self, configuration: u64, function: &str) -> bool {
        let mut since = self.transitions.iter().skip_while(|change| change.from != configuration).peekable();
        since.peek().is_some() && since.all(|change| change.kept.contains(function))
    }

    /// Lets the generation grow for writes that ended without a record.
    pub(crate) fn count_writes(&mut self) {
        self.generation += self.under_way.take_uncounted();
    }

    fn find(&mut self, number: u64) -> Option<&mut Remembered> {
        self.history.iter_mut().find(|known| known.entry.number == number)
    }
}

/// Whether so many writes with so many bytes leave room for another one of these `bytes`.
fn fits((writes, taken): (usize, usize), bytes: usize, (most_writes, most): (usize, usize)) -> bool {
    writes < most_writes && taken + bytes <= most
}

/// A failure of the state directory as the API tells it.
pub(crate) fn unkept(error: &StoreError) -> Problem {
    Problem::new(Code::Machine, error.to_string())
}

/// The files that a configuration named and that have changed since, with the places of their old content.
///
/// Also answers warnings of those whose old content is not there.
pub fn changed_files(store: &Store, number: Number) -> (Files, Vec<String>) {
    let (files, lost) = store.changed_files(number);
    let told = |path: &String| {
        format!("`{path}` has changed since configuration {number}, and its content from then is not kept")
    };
    (files, lost.iter().map(told).collect())
}

/// A saved configuration as a file.
pub fn source_of(saved: &crate::store::Saved) -> Source {
    Source { text: saved.text.clone(), name: saved.base.origin.clone(), directory: directory(saved) }
}

fn directory(saved: &crate::store::Saved) -> String {
    saved.base.directory.display().to_string()
}

fn bytes_of(written: &[Written]) -> usize {
    written.iter().map(Written::bytes).sum()
}

/// Writes that are made are in the journal, also where the run ends before their turn.
impl Drop for Records {
    fn drop(&mut self) {
        self.write_down();
    }
}

impl Remembered {
    /// The bytes that it takes in memory.
    fn bytes(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.text.len()) + bytes_of(&self.written)
    }

    /// As [`worth`] in the store.
    fn worth(&self) -> u8 {
        let state = match self.entry.state {
            ConfigurationState::Confirmed => State::Confirmed,
            ConfigurationState::Applied => State::Applied,
            ConfigurationState::RolledBack => State::RolledBack,
            ConfigurationState::Failed => State::Failed,
        };
        worth(state, &self.entry.note)
    }

    fn of(entry: &crate::store::Entry) -> Self {
        let state = match entry.state {
            State::Confirmed => ConfigurationState::Confirmed,
            State::Applied => ConfigurationState::Applied,
            State::RolledBack => ConfigurationState::RolledBack,
            State::Failed => ConfigurationState::Failed,
        };
        let entry = HistoryEntry {
            number: entry.number.0,
            time_ns: entry.time,
            file: entry.origin.clone(),
            note: entry.note.clone(),
            state,
            running: false,
        };
        Self { entry, source: None, written: Vec::new() }
    }
}
