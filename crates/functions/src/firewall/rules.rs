//! The list of rules that all workers share, ready for packets, and the changes of it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netbricks_core::PortNames;
use netbricks_core::tables::classifier::{
    Classifier, ClassifierConfig, Condition, Entry, EntryId, Keys, Matches, Test,
};
use netbricks_core::tables::{Changing, Secret, hash_words};
use netbricks_mmb::field::FieldId;
use netbricks_mmb::key::Filling;
use netbricks_mmb::language::FileErrors;

use super::compile::{Compiled, Known, Layout, compile_rule};
use super::language::{How, SetChange, error};
use super::rule::{Action, Rule, RuleList, Tracking, states};
use super::values;

/// How often a rule was met on one worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RuleCount {
    /// Packets that it decided about or counted.
    pub(super) packets: AtomicU64,
    /// Bytes of their frames.
    pub(super) bytes: AtomicU64,
    /// Connections that it allowed.
    pub(super) connections: AtomicU64,
    /// Later packets of those connections, in both directions, and errors about them.
    pub(super) later: AtomicU64,
    /// Bytes of their frames.
    pub(super) later_bytes: AtomicU64,
}

/// Adds to a counter that only one worker writes.
#[inline(always)]
fn more(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl RuleCount {
    /// Counts a packet that the rule decided about.
    #[inline(always)]
    pub(super) fn add(&self, bytes: u64) {
        more(&self.packets, 1);
        more(&self.bytes, bytes);
    }
    /// Counts a connection that begins.
    pub(super) fn add_connection(&self) {
        more(&self.connections, 1);
    }
    /// Counts a later packet of a connection.
    #[inline(always)]
    pub(super) fn add_later(&self, bytes: u64) {
        more(&self.later, 1);
        more(&self.later_bytes, bytes);
    }
}

/// A rule's facts beside its conditions.
#[derive(Debug)]
pub(super) struct RuleData {
    /// The number by which connections know it: equal rules have equal ones, also after a change of the list.
    pub(super) id: u32,
    /// The rule as a line, in the canonical form.
    pub(super) text: Box<str>,
    pub(super) name: Option<Box<str>>,
    pub(super) action: Action,
    pub(super) log: Option<Arc<str>>,
    pub(super) is_stateless: bool,
    /// Counts by worker.
    pub(super) counts: Arc<[RuleCount]>,
}

impl RuleData {
    /// Its name, or its place from 1 in the list.
    pub(super) fn label(&self, index: usize) -> String {
        self.name.as_deref().map_or_else(|| format!("#{}", index + 1), str::to_owned)
    }

    /// Packets, bytes, connections, later packets and their bytes, over all workers or on one.
    pub(super) fn totals(&self, worker: Option<usize>) -> [u64; 5] {
        let mut totals = [0u64; 5];
        for (index, count) in self.counts.iter().enumerate() {
            if worker.is_some_and(|wanted| wanted != index) {
                continue;
            }
            let RuleCount { packets, bytes, connections, later, later_bytes } = count;
            for (total, counter) in totals.iter_mut().zip([packets, bytes, connections, later, later_bytes]) {
                *total = total.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        totals
    }
}

/// How the list is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// By the classifier's hash tables and trees.
    #[default]
    Compiled,
    /// Rule by rule, as in the paper's Table 1.
    Linear,
}

/// The facts that rules need beside their lines.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The most conjunctions of conditions.
    pub(super) capacity: usize,
    pub(super) engine: Engine,
    /// Workers that count.
    pub(super) workers: usize,
    pub(super) ports: PortNames,
    /// Seed of the classifier's hashes.
    pub(super) seed: u64,
}

/// A list that packets can be looked up in.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub(super) layout: Layout,
    pub(super) filling: Filling,
    pub(super) data: Vec<Arc<RuleData>>,
    classifier: Classifier,
    /// For the linear scan: conjunctions in order, each with its rule's place.
    linear: Vec<(u32, Vec<Condition>)>,
    by_id: HashMap<u32, u32>,
    /// For each rule that names a set, its entries by the hash of their conditions.
    entries: HashMap<u32, HashMap<u128, EntryId>>,
    tested: Tested,
    /// Whether rules are among them that count, so that more than one rule can concern a packet.
    pub(super) has_counts: bool,
    /// The states that some rule asks for.
    pub(super) asked: u8,
    /// Whether all packets of a flow meet the same rule.
    ///
    /// Then no connections are tracked, and rules test addresses, ports and protocols alone.
    pub(super) is_by_flow: bool,
}

/// The parts of a packet that the rules test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tested {
    fields: BTreeSet<FieldId>,
    options: bool,
    extensions: bool,
}

impl Tested {
    fn add(&mut self, of: &Compiled) {
        self.fields.extend(&of.fields);
        self.options |= of.options;
        self.extensions |= of.extensions;
    }
    /// Whether no field beside addresses is tested; ports and protocols are none of mmb's fields.
    fn is_of_addresses(&self) -> bool {
        const ADDRESSES: [&str; 4] = ["ip-saddr", "ip-daddr", "ip6-saddr", "ip6-daddr"];
        !self.options
            && !self.extensions
            && self.fields.iter().all(|field| ADDRESSES.contains(&field.info().name.as_str()))
    }
    fn filling(&self, layout: &Layout) -> Filling {
        Filling::of(&layout.keys, self.fields.iter().copied(), self.options, self.extensions)
    }
}

/// Entries of one rule that come and go when a set changes.
#[derive(Clone, Debug)]
struct Difference {
    rule: u32,
    gone: Vec<u128>,
    new: Vec<(u128, Vec<Condition>)>,
}

/// A change, against the list of a known version.
#[derive(Clone, Debug)]
pub(super) struct Change {
    base: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Another list stands in this one's place.
    Replace(Arc<(RuleList, Built)>),
    /// The same list, with other facts beside it.
    Fit(Arc<(Setup, Built)>),
    /// Sets have other values.
    Sets(Arc<(RuleList, Vec<Difference>, Tested)>),
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The list is another one by now.
    Changed,
    /// There is no room.
    Full(String),
}

/// The list, as all workers share it.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) setup: Setup,
    pub(super) list: Arc<RuleList>,
    pub(super) built: Built,
    /// The number of changes.
    pub(super) version: u64,
    /// A hash of the configuration's lines, by which an export is known.
    pub(super) origin: u64,
}

impl Rules {
    /// The rules of a text.
    ///
    /// # Errors
    /// All wrong lines.
    pub(super) fn load(setup: Setup, text: &str) -> Result<Self, FileErrors> {
        let list = super::language::parse_rules(text)?;
        let built = Built::of(&list, &setup, None, text)?;
        Ok(Self { setup, list: Arc::new(list), built, version: 0, origin: 0 })
    }

    /// The change that puts the list of a text in this one's place.
    ///
    /// # Errors
    /// All wrong lines.
    pub(super) fn replacement(&self, text: &str) -> Result<Change, FileErrors> {
        let list = super::language::parse_rules(text)?;
        let built = Built::of(&list, &self.setup, Some(&self.built), text)?;
        Ok(Change { base: self.version, what: What::Replace(Arc::new((list, built))) })
    }

    /// The change that fits the list to other room, another search or other ports.
    ///
    /// # Errors
    /// The rules that do not fit.
    pub(super) fn fitted(&self, setup: &Setup) -> Result<Change, FileErrors> {
        // The number of workers stays while a process runs, and counts are by worker.
        let setup = Setup { workers: self.setup.workers, seed: self.setup.seed, ..setup.clone() };
        let built = Built::of(&self.list, &setup, Some(&self.built), &self.list.to_string())?;
        Ok(Change { base: self.version, what: What::Fit(Arc::new((setup, built))) })
    }

    /// The change of sets; how many values come and go.
    ///
    /// # Errors
    /// The fault: a set that is not there, values of the wrong kind, or the want of room.
    pub(super) fn set_change(&self, changes: &[SetChange]) -> Result<(Change, [usize; 2]), String> {
        let mut list = (*self.list).clone();
        let mut touched = BTreeSet::new();
        let [mut added, mut removed] = [0, 0];
        for SetChange { name, how, values } in changes {
            let Some(set) = list.sets.get_mut(name) else {
                return Err(format!("there is no set `@{name}`: define it in the list of rules"));
            };
            let before = set.len();
            match how {
                How::Replace => {
                    removed += before;
                    added += values.len();
                    set.clone_from(values);
                }
                How::Add => {
                    let known: std::collections::HashSet<String> =
                        set.iter().map(ToString::to_string).collect();
                    let fresh = values.iter().filter(|value| !known.contains(&value.to_string()));
                    set.extend(fresh.cloned());
                    added += set.len() - before;
                }
                How::Remove => {
                    let gone: std::collections::HashSet<String> =
                        values.iter().map(ToString::to_string).collect();
                    let there: std::collections::HashSet<String> =
                        set.iter().map(ToString::to_string).collect();
                    if let Some(missing) = values.iter().find(|value| !there.contains(&value.to_string())) {
                        return Err(format!("the set `@{name}` does not have {missing}"));
                    }
                    set.retain(|value| !gone.contains(&value.to_string()));
                    removed += before - set.len();
                }
            }
            touched.insert(name.clone());
        }
        let known = Known { sets: &list.sets, ports: &self.setup.ports };
        let mut tested = self.built.tested.clone();
        let mut differences = Vec::new();
        let is_linear = self.setup.engine == Engine::Linear;
        for (index, (_, rule)) in list.rules.iter().enumerate() {
            if !touched.iter().any(|name| names_set(rule, name)) {
                continue;
            }
            super::language::check_sets_of("", rule, &list.sets)
                .map_err(|wrong| format!("{}: {}", wrong.message, wrong.hint))?;
            let asks = self.built.asked != 0;
            let compiled = compile_rule(&self.built.layout, rule, list.tracking, asks, &known)
                .map_err(|error| error.to_string())?;
            tested.add(&compiled);
            if !is_linear {
                differences.push(self.built.difference(index as u32, compiled.entries));
            }
        }
        if is_linear {
            // The scan has its conjunctions in one row.
            let text = list.to_string();
            let built = Built::of(&list, &self.setup, Some(&self.built), &text).map_err(|e| e.to_string())?;
            let what = What::Replace(Arc::new((list, built)));
            return Ok((Change { base: self.version, what }, [added, removed]));
        }
        let what = What::Sets(Arc::new((list, differences, tested)));
        Ok((Change { base: self.version, what }, [added, removed]))
    }

    /// Entries of the classifier, or conjunctions of the linear scan.
    pub(super) fn entries(&self) -> usize {
        self.built.classifier.len() + self.built.linear.len()
    }
}

/// Whether a rule names a set.
fn names_set(rule: &Rule, name: &str) -> bool {
    use netbricks_mmb::rule::Value;
    fn has(value: &Value, name: &str) -> bool {
        match value {
            Value::Named(known) => known == name,
            Value::Set(values) => values.iter().any(|value| has(value, name)),
            _ => false,
        }
    }
    rule.choices().any(|(_, choice)| choice.values.iter().any(|value| has(value, name)))
        || rule.matches.iter().any(|one| one.test.as_ref().is_some_and(|(_, value)| has(value, name)))
}

fn names_any_set(rule: &Rule, list: &RuleList) -> bool {
    list.sets.keys().any(|name| names_set(rule, name))
}

impl Built {
    /// Builds a list. Rules that `before` had keep their counts.
    fn of(list: &RuleList, setup: &Setup, before: Option<&Self>, text: &str) -> Result<Self, FileErrors> {
        let layout = Layout::of(list);
        let config =
            ClassifierConfig { capacity: setup.capacity, seed: setup.seed, ..ClassifierConfig::default() };
        let asked = match list.tracking {
            Tracking::Off => 0,
            _ => list.rules.iter().fold(0, |all, (_, rule)| all | rule.states),
        };
        let mut built = Self {
            filling: Filling::default(),
            data: Vec::with_capacity(list.rules.len()),
            classifier: Classifier::new(layout.keys.layout().clone(), config),
            linear: Vec::new(),
            by_id: HashMap::with_capacity(list.rules.len()),
            entries: HashMap::new(),
            tested: Tested::default(),
            has_counts: false,
            asked,
            is_by_flow: false,
            layout,
        };
        let names = Known { sets: &list.sets, ports: &setup.ports };
        let mut errors = FileErrors::default();
        for (index, (line, rule)) in list.rules.iter().enumerate() {
            if let Err(problem) = built.push(index as u32, rule, list, setup, before, &names) {
                let shown = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default().trim_end();
                errors.add(*line, error(0..shown.len(), problem.0, problem.1));
            }
        }
        if errors.total > 0 {
            return Err(errors);
        }
        built.filling = built.tested.filling(&built.layout);
        built.is_by_flow = list.tracking == Tracking::Off
            && setup.engine == Engine::Compiled
            && !built.has_counts
            && built.tested.is_of_addresses();
        Ok(built)
    }

    /// Adds a rule behind the others.
    fn push(
        &mut self,
        index: u32,
        rule: &Rule,
        list: &RuleList,
        setup: &Setup,
        before: Option<&Self>,
        names: &Known<'_>,
    ) -> Result<(), (String, String)> {
        let compiled = compile_rule(&self.layout, rule, list.tracking, self.asked != 0, names)
            .map_err(|wrong| (wrong.to_string(), "mend the names and values of the rule".to_owned()))?;
        self.tested.add(&compiled);
        self.has_counts |= rule.action == Action::Count;
        let data = self.data_of(rule, setup, before);
        self.by_id.insert(data.id, index);
        self.data.push(Arc::new(data));
        let full = |problem: String| {
            let hint = "raise `capacity`, or write fewer rules and smaller sets".to_owned();
            (problem, hint)
        };
        if setup.engine == Engine::Linear {
            let room = setup.capacity.saturating_sub(self.linear.len());
            if compiled.entries.len() > room {
                return Err(full(format!("there is room for {} conjunctions", setup.capacity)));
            }
            self.linear.extend(compiled.entries.into_iter().map(|conditions| (index, conditions)));
            return Ok(());
        }
        let mut known = names_any_set(rule, list).then(HashMap::new);
        for conditions in compiled.entries {
            let hash = known.is_some().then(|| hash_of(&conditions));
            let id = self.insert(index, rule.action, conditions).map_err(full)?;
            if let (Some(known), Some(hash)) = (&mut known, hash)
                && let Some(twice) = known.insert(hash, id)
            {
                // Two values of a set make the same entry.
                self.classifier.remove(twice);
            }
        }
        if let Some(known) = known {
            self.entries.insert(index, known);
        }
        Ok(())
    }

    fn insert(&mut self, index: u32, action: Action, conditions: Vec<Condition>) -> Result<EntryId, String> {
        let (rule, order, last) = (index, u64::from(index), action != Action::Count);
        let entry = Entry { rule, order, last, conditions };
        self.classifier.insert(entry).map_err(|error| error.to_string())
    }

    fn data_of(&self, rule: &Rule, setup: &Setup, before: Option<&Self>) -> RuleData {
        let text: Box<str> = rule.to_string().into();
        let mut id = netbricks_core::sealed::hash_text(&text, &Secret::from_seed(SEED)) as u32;
        while self.by_id.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let known = before.and_then(|before| before.by_id(id)).filter(|(_, known)| known.text == text);
        let counts = match known {
            Some((_, known)) if known.counts.len() == setup.workers.max(1) => known.counts.clone(),
            _ => (0..setup.workers.max(1)).map(|_| RuleCount::default()).collect(),
        };
        RuleData {
            id,
            text,
            name: rule.name.as_deref().map(Into::into),
            action: rule.action,
            log: rule.log.as_deref().map(Into::into),
            is_stateless: rule.is_stateless,
            counts,
        }
    }

    /// The place and facts of the rule by which connections know it.
    pub(super) fn by_id(&self, id: u32) -> Option<(usize, &Arc<RuleData>)> {
        let index = *self.by_id.get(&id)? as usize;
        Some((index, self.data.get(index)?))
    }

    fn difference(&self, rule: u32, entries: Vec<Vec<Condition>>) -> Difference {
        let before = self.entries.get(&rule);
        let is_known = |hash: &u128| before.is_some_and(|known| known.contains_key(hash));
        let mut all: HashMap<u128, Vec<Condition>> =
            entries.into_iter().map(|conditions| (hash_of(&conditions), conditions)).collect();
        let gone = before.into_iter().flat_map(HashMap::keys).filter(|hash| !all.contains_key(hash));
        let gone = gone.copied().collect();
        all.retain(|hash, _| !is_known(hash));
        let mut new: Vec<(u128, Vec<Condition>)> = all.into_iter().collect();
        // One order in both copies of the state.
        new.sort_unstable_by_key(|(hash, _)| *hash);
        Difference { rule, gone, new }
    }

    fn change(&mut self, difference: &Difference) -> Result<(), String> {
        let Difference { rule, gone, new } = difference;
        let action = self.data.get(*rule as usize).map_or(Action::Deny, |data| data.action);
        for hash in gone {
            if let Some(id) = self.entries.get_mut(rule).and_then(|known| known.remove(hash)) {
                self.classifier.remove(id);
            }
        }
        for (hash, conditions) in new {
            let id = self.insert(*rule, action, conditions.clone())?;
            self.entries.entry(*rule).or_default().insert(*hash, id);
        }
        Ok(())
    }

    /// The first rule that decides about a packet with this key, or, with rules that count, all that concern it.
    pub(super) fn search(&self, key: &[u32], found: &mut Matches, engine: Engine) -> Option<u32> {
        match engine {
            Engine::Compiled if !self.has_counts => self.classifier.first(key),
            Engine::Compiled => {
                self.classifier.matches(key, found);
                None
            }
            Engine::Linear => self.scan(key),
        }
    }

    /// The first conjunction that holds for the key.
    fn scan(&self, key: &[u32]) -> Option<u32> {
        let holds = |(_, all): &&(u32, Vec<Condition>)| all.iter().all(|condition| condition.holds(key));
        self.linear.iter().find(holds).map(|(rule, _)| *rule)
    }

    /// The rules that the linear scan meets from this place on: those that count, up to one that decides.
    pub(super) fn scan_from(&self, key: &[u32], from: u32) -> Option<u32> {
        let start = self.linear.partition_point(|(rule, _)| *rule < from);
        let holds = |(_, all): &&(u32, Vec<Condition>)| all.iter().all(|condition| condition.holds(key));
        self.linear.get(start..)?.iter().find(holds).map(|(rule, _)| *rule)
    }

    /// The first rule for each key of a batch.
    pub(super) fn search_batch(&self, keys: &Keys, found: &mut [Option<u32>]) {
        self.classifier.first_batch(keys, found);
    }

    /// All rules that concern each key of a batch, up to the first that decides.
    pub(super) fn matches_batch(&self, keys: &Keys, found: &mut [Matches]) {
        self.classifier.matches_batch(keys, found);
    }

    /// Whether packets in this state need no look at the rules.
    pub(super) fn ignores(&self, state: u8, tracking: Tracking) -> bool {
        tracking == Tracking::Automatic
            && state & (states::ESTABLISHED | states::RELATED | states::INVALID) != 0
            && self.asked & state == 0
    }
}

const SEED: u64 = 0x6669_7265_7761_6c6c;

/// A hash of conditions, long enough to stand for them.
fn hash_of(conditions: &[Condition]) -> u128 {
    let mut words = Vec::with_capacity(conditions.len() * 6);
    for Condition { field, test, negated } in conditions {
        words.push((field.word() as u64) << 1 | u64::from(*negated));
        let mut put = |number: u128| words.extend([(number >> 64) as u64, number as u64]);
        match test {
            Test::Masked { value, mask } => [1, *value, *mask].into_iter().for_each(&mut put),
            Test::Range { low, high } => [2, *low, *high].into_iter().for_each(&mut put),
            Test::Within(set) => {
                put(3);
                for (low, high) in set.intervals() {
                    put(*low);
                    put(*high);
                }
            }
        }
    }
    let of = |seed| u128::from(hash_words(&words, &Secret::from_seed(seed)));
    of(SEED) << 64 | of(!SEED)
}

impl Changing for Rules {
    type Change = Change;
    type Outcome = Result<(), Refused>;

    fn apply(&mut self, change: &Change) -> Result<(), Refused> {
        if change.base != self.version {
            return Err(Refused::Changed);
        }
        match &change.what {
            What::Replace(new) => {
                let (list, built) = &**new;
                self.list = Arc::new(list.clone());
                self.built = built.clone();
            }
            What::Fit(new) => {
                let (setup, built) = &**new;
                self.setup = setup.clone();
                self.built = built.clone();
            }
            What::Sets(new) => {
                let (list, differences, tested) = &**new;
                let coming: usize = differences.iter().map(|one| one.new.len()).sum();
                let going: usize = differences.iter().map(|one| one.gone.len()).sum();
                let (len, capacity) = (self.built.classifier.len(), self.setup.capacity);
                if (len + coming).saturating_sub(going) > capacity {
                    return Err(Refused::Full(format!(
                        "there is room for {capacity} conjunctions, {len} are taken, and the change needs {coming} \
                         more: raise `capacity`"
                    )));
                }
                for difference in differences {
                    self.built.change(difference).map_err(Refused::Full)?;
                }
                self.list = Arc::new(list.clone());
                if self.built.tested != *tested {
                    self.built.tested = tested.clone();
                    self.built.filling = tested.filling(&self.built.layout);
                }
                // What was taken out leaves the tables less tidy.
                self.built.classifier.maintain(coming + going);
            }
        }
        self.version += 1;
        Ok(())
    }
}

/// The rules with their numbers, as a table of lines.
pub(super) fn listing(rules: &Rules) -> String {
    let mut text = String::new();
    for (index, data) in rules.built.data.iter().enumerate() {
        let [packets, bytes, connections, later, _] = data.totals(None);
        let _ = writeln!(
            text,
            "{:6} {packets:14} {bytes:16} {connections:12} {later:14}  {}",
            index + 1,
            data.text
        );
    }
    text
}

/// Values of a set, one a line.
pub(super) fn set_listing(rules: &Rules, name: &str) -> Option<String> {
    let values = rules.list.sets.get(name)?;
    let mut text = String::new();
    for value in values {
        text += &values::shown_line(value);
    }
    Some(text)
}
