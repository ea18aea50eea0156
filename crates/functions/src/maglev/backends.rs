//! The present backends, as every worker sees them.
//!
//! They are all backends that flows may go to, and Maglev's table of those that take new flows.

use std::collections::HashMap;
use std::sync::Arc;

use netbricks_core::consistency::Contents;
use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::tables::{Changing, Key, MaglevBackend, MaglevTable, Secret, prefetch};
use netbricks_core::{Declared, Flows, Steps, StoredFlow, nearest};

use super::backend::Backend;
use crate::snapshot::{self, Holds, Replace};
use netbricks_core::sealed::{damaged, hash_text, open, seal};

/// The backends of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct First {
    pub(super) backends: Vec<Backend>,
    /// Slots of the table.
    pub(super) slots: usize,
    /// The key that all nodes share.
    pub(super) key: String,
}

/// All workers' backends, under bounded inconsistency.
///
/// The control side changes them, for the callers of handlers.
pub(super) struct Backends(Arc<Snapshot>);

/// All backends at one time; a change replaces the whole, so that it can be prepared without a lock.
#[derive(Clone)]
pub(super) struct Snapshot {
    /// The number of changes that led to this.
    version: u64,
    /// By number. A removed backend leaves a hole, so that the other numbers stay.
    known: Vec<Option<Known>>,
    /// The backends' numbers, by the [`id`](Known::id) of their names.
    numbers: HashMap<u64, u16>,
    table: MaglevTable,
    slots: usize,
    secret: Secret,
    /// The hash of the configuration that this began with.
    origin: u64,
}

/// A backend that flows may go to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) backend: Backend,
    /// The id of its name: the low 48 bits of a flow's value.
    ///
    /// The other bits are its number, while it stays.
    id: u64,
    /// Whether it gets no new flows.
    pub(super) draining: bool,
}

impl Known {
    /// The value of flows to this backend, under this number.
    pub(super) fn remembered(&self, number: usize) -> u64 {
        (number as u64) << 48 | self.id
    }
}

/// Backends that an error names.
const SHOWN: usize = 20;
const ID: u64 = (1 << 48) - 1;
/// The most backends: their numbers get the bits of a flow's 64-bit value that the id leaves.
pub(super) const MOST: usize = 1 << 14;
/// The most slots, a prime: each change of the backends makes a new table, in a few milliseconds.
pub(super) const MOST_SLOTS: usize = 131_101;

/// The id of a backend's name in a flow's value.
///
/// It does not depend on the nodes' key, since a node with another one may take the flow over.
pub(crate) fn id(name: &str) -> u64 {
    hash_text(name, &Secret::from_seed(KEY[1])) & ID
}

/// The secret of a table, from the key that all nodes share.
pub(crate) fn secret(key: &str) -> Secret {
    let half = |seed| hash_text(key, &Secret::from_seed(seed));
    Secret::from_seeds(half(KEY[0]), half(KEY[1]))
}

pub(super) fn given_twice(name: &str) -> String {
    format!("backend `{name}` is given twice: take one out")
}

/// The error if there are too many slots.
pub(super) fn too_many_slots(slots: usize) -> Option<String> {
    (slots > MOST_SLOTS).then(|| {
        format!(
            "must be a prime up to {MOST_SLOTS}, found {slots}: each change of the backends makes the table again, in \
             some milliseconds even for {MOST_SLOTS}"
        )
    })
}

const KEY: [u64; 2] = [0x6d61_676c_6576_0001, 0x6d61_676c_6576_0002];

impl Snapshot {
    pub(super) fn first(first: &First) -> Result<Self, String> {
        if let Some(problem) = too_many_slots(first.slots) {
            return Err(format!("`slots` {problem}"));
        }
        let secret = secret(&first.key);
        let text: String = first.backends.iter().map(|backend| format!("{backend}\n")).collect();
        let origin = hash_text(&format!("{} {}\n{text}", first.slots, first.key), &Secret::from_seed(KEY[0]));
        let none = MaglevTable::new(first.slots, &secret, &[]).map_err(|error| error.to_string())?;
        let mut next = Self {
            version: 0,
            known: Vec::new(),
            numbers: HashMap::new(),
            table: none,
            slots: first.slots,
            secret,
            origin,
        };
        for backend in &first.backends {
            if next.find(&backend.name).is_some() {
                return Err(given_twice(&backend.name));
            }
            next.put(backend.clone(), false)?;
        }
        next.fill()?;
        Ok(next)
    }

    /// The next snapshot with these backends, which replace those of the same names and get new flows.
    pub(super) fn with(&self, backends: impl IntoIterator<Item = Backend>) -> Result<Self, String> {
        self.next(|next| backends.into_iter().try_for_each(|backend| next.put(backend, false)))
    }

    /// The next snapshot, without new flows for this backend.
    pub(super) fn drained(&self, name: &str) -> Result<Self, String> {
        self.next(|next| {
            let at = next.find(name).ok_or_else(|| self.unknown(name))?;
            next.known[at].iter_mut().for_each(|known| known.draining = true);
            Ok(())
        })
    }

    /// The next snapshot with another weight of this backend; 0 drains it.
    pub(super) fn weighted(&self, name: &str, weight: u32) -> Result<Self, String> {
        let at = self.find(name).ok_or_else(|| self.unknown(name))?;
        let known = self.known[at].as_ref().ok_or_else(|| self.unknown(name))?;
        self.with([Backend { weight, ..known.backend.clone() }])
    }

    /// The next snapshot without these backends: their flows go to others.
    pub(super) fn without(&self, names: &[&str]) -> Result<Self, String> {
        self.next(|next| {
            names.iter().try_for_each(|name| {
                let at = next.find(name).ok_or_else(|| self.unknown(name))?;
                let left = next.known[at].take();
                left.and_then(|left| next.numbers.remove(&left.id));
                Ok(())
            })
        })
    }

    fn next(&self, change: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<Self, String> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        change(&mut next)?;
        next.fill()?;
        Ok(next)
    }

    fn unknown(&self, name: &str) -> String {
        let names = || self.all().map(|(_, known)| known.backend.name.as_str());
        if let Some(near) = nearest(name, names()) {
            return format!("there is no backend `{name}`; did you mean `{near}`?");
        }
        let shown: Vec<&str> = names().take(SHOWN).collect();
        let more = names().count().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("there is no backend `{name}`; there are: {}{more}", shown.join(", "))
    }

    fn find(&self, name: &str) -> Option<usize> {
        let number = self.number(id(name))?;
        (self.known[number].as_ref()?.backend.name == name).then_some(number)
    }

    fn number(&self, id: u64) -> Option<usize> {
        self.numbers.get(&id).map(|number| usize::from(*number))
    }

    /// All backends with their numbers, including draining ones.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Known)> {
        self.known.iter().enumerate().filter_map(|(number, known)| Some((number, known.as_ref()?)))
    }

    /// The number of slots of each backend, by number.
    pub(super) fn shares(&self) -> Vec<usize> {
        let mut shares = vec![0; self.known.len()];
        for number in self.table.slots() {
            shares.get_mut(usize::from(*number)).into_iter().for_each(|share| *share += 1);
        }
        shares
    }

    /// A warning about backends that should take new flows but have no slot.
    ///
    /// Their weights are too small relative to the others.
    pub(super) fn starved(&self) -> Option<String> {
        let shares = self.shares();
        let names = self.all().filter(|(number, known)| !known.draining && shares[*number] == 0);
        let names: Vec<String> = names.map(|(_, known)| format!("`{}`", known.backend.name)).collect();
        let more = names.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "{}{more} get none of the {} slots, and so no flows: give them more weight beside the others, or the table more slots",
                names.iter().take(3).cloned().collect::<Vec<_>>().join(", "),
                self.slots
            )
        })
    }

    fn put(&mut self, backend: Backend, draining: bool) -> Result<(), String> {
        let id = id(&backend.name);
        let there = self.number(id);
        if let Some(Known { backend: other, .. }) = there.and_then(|number| self.known[number].as_ref())
            && other.name != backend.name
        {
            return Err(format!(
                "backends `{}` and `{}` have one number for their flows by chance: rename one",
                other.name, backend.name
            ));
        }
        let hole = || {
            let holes = self.known.len() > self.numbers.len();
            holes.then(|| self.known.iter().position(Option::is_none)).flatten()
        };
        let at = there.or_else(hole).unwrap_or(self.known.len());
        if at >= MOST {
            return Err(format!("{MOST} backends are the most: remove one first"));
        }
        if at == self.known.len() {
            self.known.push(None);
        }
        let draining = draining || backend.weight == 0;
        self.known[at] = Some(Known { backend, id, draining });
        self.numbers.insert(id, at as u16);
        Ok(())
    }

    /// Makes the table of the backends that take new flows.
    fn fill(&mut self) -> Result<(), String> {
        let takes: Vec<_> = self
            .all()
            .filter(|(_, known)| !known.draining)
            .map(|(number, Known { backend, .. })| MaglevBackend {
                name: &backend.name,
                weight: backend.weight,
                number: number as u16,
            })
            .collect();
        self.table = MaglevTable::new(self.slots, &self.secret, &takes).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Prefetches the memory that [`choose`](Self::choose) reads.
    #[inline]
    pub(super) fn prefetch(&self, flow: &StoredFlow) {
        prefetch(self.table.place(self.hash(flow)));
    }

    /// The backend of a new flow, by number.
    #[inline]
    pub(super) fn choose(&self, flow: &StoredFlow) -> Option<usize> {
        self.table.get(self.hash(flow)).map(usize::from)
    }

    /// A flow's hash, the same on all nodes.
    #[inline(always)]
    fn hash(&self, flow: &StoredFlow) -> u64 {
        flow.hash(&self.secret)
    }

    /// The backend of a flow whose value does not name a present backend.
    ///
    /// It is the same backend under another number, where the flow came from another node or configuration. Otherwise
    /// it is another backend.
    #[cold]
    pub(super) fn elsewhere(&self, chosen: u64, flow: &StoredFlow) -> Option<usize> {
        self.number(chosen & ID).or_else(|| self.choose(flow))
    }

    /// Slots of the table.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// An answer from the number of these connections that go to each backend, by number.
    pub(super) fn with_connections<T: 'static>(
        self: Arc<Self>,
        connections: &Flows<FlowKey, u64>,
        end: impl FnOnce(&Self, &[u64]) -> T + 'static,
    ) -> Steps<T> {
        let (counts, now) = (vec![0; self.known.len()], self.clone());
        let add = move |counts: &mut Vec<u64>, _: &StoredFlow, chosen: &u64| {
            // Connections from another node remember that node's number for the backend, so look it up by id.
            if let Some(number) = now.number(*chosen & ID) {
                counts[number] += 1;
            }
        };
        connections.in_steps(counts, add, move |counts, _| end(&self, &counts))
    }

    /// The value and the address of flows to each backend; `None` for a free number.
    pub(super) fn places(&self) -> impl ExactSizeIterator<Item = Option<(u64, MacAddress)>> {
        self.known
            .iter()
            .enumerate()
            .map(|(number, known)| known.as_ref().map(|known| (known.remembered(number), known.backend.mac)))
    }
}

impl Holds for Backends {
    type Snapshot = Snapshot;
    fn snapshot(&self) -> &Arc<Snapshot> {
        &self.0
    }
}

impl Changing for Backends {
    type Change = Replace<Snapshot>;
    /// Whether the change was made; it is refused if its base is not the present snapshot.
    type Outcome = bool;
    fn apply(&mut self, replace: &Replace<Snapshot>) -> bool {
        replace.apply(&mut self.0)
    }
}

impl snapshot::Snapshot for Snapshot {
    fn version(&self) -> u64 {
        self.version
    }
    fn origin(&self) -> u64 {
        self.origin
    }
}

impl Contents for Backends {
    type Config = First;
    /// Other backends in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        Snapshot::first(first).map(|first| Self(Arc::new(first)))
    }
    fn least() -> Self {
        let first = First { backends: Vec::new(), slots: 2, key: String::new() };
        Self(Arc::new(Snapshot::first(&first).expect("a table without backends is always possible")))
    }
}

/// The format is lines: the initial backends, one line for each backend, and the hash of all lines before.
impl Declared for Backends {
    fn export(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT} {:016x}\n", self.0.origin);
        for (_, known) in self.0.all() {
            let draining = if known.draining { "draining" } else { "takes" };
            text += &format!("{draining} {}\n", known.backend);
        }
        seal(text, KEY[0])
    }

    /// Takes over changes made by handlers, unless the configuration has named other backends since.
    ///
    /// In that case the configuration stands.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let damaged = || damaged("backends");
        let (origin, lines) = open(bytes, KEY[0], FORMAT, "backends")?;
        if origin != format!("{:016x}", self.0.origin) {
            return Ok(());
        }
        let next = self.0.next(|next| {
            next.known.clear();
            next.numbers.clear();
            for line in lines.lines() {
                let (state, backend) = line.split_once(' ').ok_or_else(damaged)?;
                let backend = backend.parse().map_err(|error: super::BackendError| error.problem)?;
                next.put(backend, state == "draining")?;
            }
            Ok(())
        })?;
        self.0 = Arc::new(next);
        Ok(())
    }

    fn is_written(&self) -> bool {
        true
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0.all().count() as u64, MOST as u64)
    }
}

const FORMAT: &str = "maglev-backends-1";
