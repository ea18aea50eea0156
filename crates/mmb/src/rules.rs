//! The rules that all workers share, and changes of them that are made together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use netbricks_core::PortNames;
use netbricks_core::tables::classifier::{Classifier, ClassifierConfig, Entry, EntryId};
use netbricks_core::tables::{Changing, Secret, hash_words, prefetch};

use crate::action::Action;
use crate::compile::{Conditions, Names, compile, unknown_out};
use crate::connection::{RuleId, RuleRef, has_field};
use crate::field::{FieldId, Kind, Layer};
use crate::key::{Filling, KeyLayout, Located};
use crate::language::parse_rule;
use crate::rule::{Mode, Value};
use crate::shared::{Counts, RuleCount, Shared};

/// A rule's facts beside its conditions.
#[derive(Debug)]
pub(crate) struct RuleData {
    /// The rule as a line, in the canonical form.
    pub(crate) text: Box<str>,
    /// A hash of a stateful rule's text without its comment.
    pub(crate) key: u64,
    /// Its name.
    pub(crate) name: Option<Box<str>>,
    /// Whether its first match makes a connection.
    pub(crate) is_stateful: bool,
    /// Whether it tests which TCP options, and which extension headers, there are.
    pub(crate) tests_kinds: [bool; 2],
    /// The fields whose values it tests.
    pub(crate) fields: Arc<[FieldId]>,
    /// Its actions, in order.
    pub(crate) actions: Arc<[Action]>,
    /// Counts by worker.
    pub(crate) counts: Counts,
}

impl RuleData {
    /// Whether a packet meets no later rule behind this one.
    pub(crate) fn is_last(&self) -> bool {
        self.actions.iter().any(Action::is_last)
    }
    /// Whether it accepts every packet, or drops every packet, and does no more; `None` for other rules.
    #[inline(always)]
    pub(crate) fn verdict(&self) -> Option<bool> {
        match self.actions[..] {
            [Action::Accept] => Some(true),
            [Action::Drop] => Some(false),
            _ => None,
        }
    }
    /// Whether answers of its connections have other addresses or ports than their first packets.
    pub(crate) fn translates(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::MapEnd(..)))
    }
    /// Whether it chooses a way out by a packet's flow.
    pub(crate) fn balances(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Balance(_)))
    }
    /// Whether it chooses values for a connection that this packet begins.
    pub(crate) fn maps(&self, located: &Located, frame: &[u8]) -> bool {
        self.actions.iter().any(|action| match action {
            Action::MapEnd(field, ..) | Action::MapValue(field, _) => has_field(*field, located, frame),
            _ => false,
        })
    }
    /// Whether it may have translated the first fragment of which this one is a later.
    pub(crate) fn may_translate(&self, located: &Located) -> bool {
        let other = if located.has(Layer::Ipv6) { Layer::Ipv4 } else { Layer::Ipv6 };
        self.actions.iter().any(|action| match action {
            Action::MapEnd(field, ..) => field.info().layer.implied() & other.bit() == 0,
            _ => false,
        })
    }
    /// Packets, bytes, answers, the last packet's time and what was not applied, over all workers.
    pub(crate) fn totals(&self) -> [u64; 5] {
        let mut totals = [0u64; 5];
        for RuleCount { packets, bytes, replies, last, not_applied } in self.counts.all() {
            for (total, counter) in totals.iter_mut().zip([packets, bytes, replies, not_applied]) {
                *total += counter.load(Ordering::Relaxed);
            }
            totals[4] = totals[4].max(last.load(Ordering::Relaxed));
        }
        totals
    }
}

/// A rule with its conditions, to be put in.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The rule.
    pub(crate) data: Arc<RuleData>,
    /// Its conditions.
    pub(crate) conditions: Conditions,
}

/// A rule in its place.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The rule.
    pub(crate) data: Arc<RuleData>,
    /// Its number, by which connections know it.
    pub(crate) id: RuleId,
    order: u64,
    entries: Entries,
}

/// The classifier's entries of a rule.
#[derive(Clone, Debug)]
enum Entries {
    /// Most rules have one.
    One(EntryId),
    Many(Box<[EntryId]>),
}

impl Entries {
    fn of(entries: Vec<EntryId>) -> Self {
        match entries[..] {
            [entry] => Self::One(entry),
            _ => Self::Many(entries.into()),
        }
    }
    fn all(&self) -> &[EntryId] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }
}

/// One change, against rules of a known version.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Puts a rule in at this place from 0.
    Insert(usize, Arc<Prepared>),
    /// Takes the rule at this place out.
    Remove(usize),
    /// Moves a rule from one place to another, counted without it.
    Move(usize, usize),
    /// Gives the rule at this place other conditions and choices: a set has changed.
    Recompile(usize, Arc<Prepared>),
    /// Defines a set, or replaces its values; `None` takes it out.
    Set(String, Option<Arc<[Value]>>),
    /// The order in which rules apply.
    Mode(Mode),
    /// Whether packets are dropped that no rule accepts or drops.
    PolicyDrop(bool),
    /// Whether rules apply to packets from this port, by its number from 1.
    Enable(u16, bool),
    /// Takes all rules out.
    Flush,
    /// A layout that gives places to more fields, behind those that have one.
    Layout(Arc<KeyLayout>),
    /// Other facts beside the lines. Where the capacity is another one, all rules are entered again.
    Setup(Arc<Setup>),
}

/// From so many new rules on, room is made for just these.
const MANY: usize = 1_000;
/// The least conditions of which the classifier is tidied at each change: a rule is typed in little time.
const TIDIED: usize = 4;

impl Edit {
    /// About how many conditions it changes.
    fn conditions(&self) -> usize {
        match self {
            Self::Insert(_, prepared) | Self::Recompile(_, prepared) => prepared.conditions.entries.len(),
            _ => 1,
        }
    }
}

/// Changes that are made together, or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Edits {
    /// The version of the rules for which they were made.
    pub(crate) base: u64,
    /// The changes, in order.
    pub(crate) edits: Arc<[Edit]>,
}

/// Why changes were not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The rules have another version by now.
    Changed,
    /// There is no room for so many conditions.
    Full(String),
}

/// The facts that rules need beside their lines.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The most entries of the classifier: a rule has at least one.
    pub(crate) capacity: usize,
    /// Workers that count.
    pub(crate) workers: usize,
    /// The ports.
    pub(crate) ports: PortNames,
    /// Ways out that `lb` can name.
    pub(crate) outputs: usize,
    /// Seed of the classifier's hashes.
    pub(crate) seed: u64,
    /// Counters and lists that rules have in common.
    pub(crate) shared: Shared,
}

/// Distance between the order numbers of two rules that were added one after the other.
const GAP: u64 = 1 << 20;
/// The order number of the first rule: others come before it and behind it.
const MIDDLE: u64 = 1 << 62;
/// The largest order number.
const LAST: u64 = u64::MAX - 1;
/// How many times the rules in a range of numbers may be those in a range of half its size.
const CROWDED: f64 = 4.0 / 3.0;

/// Texts of stateful rules that were deleted of which the rules remember how often they were put in.
const REMEMBERED: usize = 1 << 16;
/// Seed of the numbers of rules, the same in every process.
const NUMBERS: u64 = 0x6d6d_622d_7275_6c65;

/// All rules, with the classifier that finds those of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The facts that they need beside their lines.
    pub(crate) setup: Setup,
    /// The places of fields in key vectors.
    pub(crate) layout: Arc<KeyLayout>,
    /// Finds the rules of a packet.
    pub(crate) classifier: Classifier,
    /// The fields to fill in.
    pub(crate) filling: Filling,
    /// The order in which rules apply.
    pub(crate) mode: Mode,
    /// Whether packets are dropped that no rule accepts or drops.
    pub(crate) drops_by_default: bool,
    /// Ports to whose packets no rule applies, by number from 1.
    pub(crate) disabled: Vec<u16>,
    /// The number of changes.
    pub(crate) version: u64,
    /// How many rules are stateful.
    pub(crate) stateful: usize,
    /// How many rules translate addresses or ports.
    pub(crate) translating: usize,
    /// How many rules choose a way out by a packet's flow.
    pub(crate) balancing: usize,
    /// A hash of the configuration's lines, by which an export is known.
    pub(crate) origin: u64,
    /// Whether rules may translate addresses and ports: one worker has both directions of their connections.
    pub(crate) may_translate: bool,
    slots: Vec<Option<Slot>>,
    /// The slots of stateful rules by their numbers.
    by_id: HashMap<RuleId, u32>,
    /// How often each stateful rule was put in, by its text's hash.
    uses: HashMap<u64, u32>,
    /// How often `uses` was forgotten: part of the numbers of later rules.
    pub(crate) epoch: u32,
    free: Vec<u32>,
    /// Slots in order.
    order: Vec<u32>,
    names: HashMap<Box<str>, u32>,
    sets: BTreeMap<String, Arc<[Value]>>,
    /// How many rules test a field, and TCP options or extension headers as such.
    tested: BTreeMap<FieldId, usize>,
    tested_kinds: [usize; 2],
}

impl Names for Rules {
    fn set(&self, name: &str) -> Option<&[Value]> {
        self.sets.get(name).map(|values| &values[..])
    }
    fn port(&self, name: &str) -> Option<u16> {
        port(&self.setup.ports, name)
    }
    fn unknown_out(&self) -> Option<String> {
        unknown_out(&self.setup.ports)
    }
}

/// The number of the port with this name, as key vectors have it: 0 stands for none.
///
/// Where no ports are known, as in a file that is only checked, every name is that of some port.
pub(crate) fn port(ports: &PortNames, name: &str) -> Option<u16> {
    if ports.names.is_empty() {
        return Some(u16::MAX);
    }
    ports.number(name).map(|number| number + 1)
}

impl Rules {
    /// No rules.
    pub(crate) fn new(setup: Setup) -> Self {
        let layout = Arc::new(KeyLayout::only(|_| false));
        Self {
            classifier: Self::classifier_of(&layout, &setup),
            layout,
            filling: Filling::default(),
            mode: Mode::Ordered,
            drops_by_default: false,
            disabled: Vec::new(),
            version: 0,
            stateful: 0,
            translating: 0,
            balancing: 0,
            origin: 0,
            may_translate: true,
            slots: Vec::new(),
            by_id: HashMap::new(),
            uses: HashMap::new(),
            epoch: 0,
            free: Vec::new(),
            order: Vec::new(),
            names: HashMap::new(),
            sets: BTreeMap::new(),
            tested: BTreeMap::new(),
            tested_kinds: [0; 2],
            setup,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
    /// The rules in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RuleData>> {
        self.order.iter().filter_map(|slot| self.slot(*slot).map(|slot| &slot.data))
    }
    /// Whether some rule translates addresses or ports.
    pub(crate) fn translates(&self) -> bool {
        self.translating > 0
    }
    /// The rule at a place from 0.
    pub(crate) fn at(&self, place: usize) -> Option<&Arc<RuleData>> {
        self.slot(*self.order.get(place)?).map(|slot| &slot.data)
    }
    /// The place from 0 of the rule with this name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.place(*self.names.get(name)?)
    }
    /// The place from 0 of the rule in this slot.
    pub(crate) fn place(&self, slot: u32) -> Option<usize> {
        let order = self.slot(slot)?.order;
        self.order.binary_search_by_key(&order, |known| self.order_of(*known)).ok()
    }
    /// The rule in a slot.
    #[inline(always)]
    pub(crate) fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)?.as_ref()
    }
    /// Asks memory for the rule in a slot.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch(self.slots.as_ptr().wrapping_add(slot as usize));
    }
    /// The slot of a stateful rule, unless it was deleted.
    #[inline(always)]
    pub(crate) fn find(&self, rule: RuleRef) -> Option<u32> {
        let slot = rule.slot.checked_sub(1)?;
        match self.slot(slot) {
            Some(known) if known.id == rule.id => Some(slot),
            _ => self.find_id(rule.id),
        }
    }
    /// Whether the rule at a place from 0 tests a port of arrival or departure.
    pub(crate) fn tests_ports(&self, place: usize) -> bool {
        let fields = self.order.get(place).and_then(|slot| self.slot(*slot)).map(|slot| &slot.data.fields);
        fields.is_some_and(|fields| {
            fields.iter().any(|field| matches!(field.info().kind, Kind::In | Kind::Out))
        })
    }
    /// The fields that rules test; `None` stands for TCP options or extension headers as such.
    pub(crate) fn tested_fields(&self) -> impl Iterator<Item = Option<FieldId>> {
        let kinds = self.tested_kinds.into_iter().filter(|count| *count > 0).map(|_| None);
        self.tested.keys().copied().map(Some).chain(kinds)
    }
    /// Whether some rule does.
    pub(crate) fn any_tests_ports(&self) -> bool {
        self.tested.keys().any(|field| matches!(field.info().kind, Kind::In | Kind::Out))
    }
    /// As [`find`](Self::find), of a rule that has another slot by now, or is none of these rules.
    #[cold]
    fn find_id(&self, id: RuleId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }
    /// The rule of a reference, unless it was deleted.
    pub(crate) fn live(&self, rule: RuleRef) -> Option<&Slot> {
        self.slot(self.find(rule)?)
    }
    /// The order number of the rule in a slot.
    #[inline(always)]
    pub(crate) fn order_of(&self, slot: u32) -> u64 {
        self.slot(slot).map_or(u64::MAX, |slot| slot.order)
    }
    /// The sets, by name.
    pub(crate) fn sets(&self) -> &BTreeMap<String, Arc<[Value]>> {
        &self.sets
    }
    /// Entries of the classifier that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.setup.capacity.saturating_sub(self.classifier.len())
    }

    fn insert(&mut self, place: usize, prepared: &Prepared) -> Result<(), Refused> {
        let place = place.min(self.order.len());
        let order = self.order_at(place);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let entries = match self.enter(slot, order, &prepared.data, &prepared.conditions) {
            Ok(entries) => entries,
            Err(refused) => {
                self.free.push(slot);
                return Err(refused);
            }
        };
        let id = if prepared.data.is_stateful { self.next_id(prepared.data.key) } else { RuleId::NONE };
        if prepared.data.is_stateful {
            self.by_id.insert(id, slot);
        }
        self.slots[slot as usize] = Some(Slot { data: prepared.data.clone(), id, order, entries });
        self.order.insert(place, slot);
        if let Some(name) = &prepared.data.name {
            self.names.insert(name.clone(), slot);
        }
        self.stateful += usize::from(prepared.data.is_stateful);
        self.translating += usize::from(prepared.data.translates());
        self.balancing += usize::from(prepared.data.balances());
        self.count_fields(slot, true);
        Ok(())
    }

    /// The number of a stateful rule with this text, which no rule had that was deleted since.
    fn next_id(&mut self, key: u64) -> RuleId {
        if self.uses.len() >= REMEMBERED + self.stateful {
            // Numbers of another epoch are others, so that nothing must be remembered of those before.
            self.uses.clear();
            self.epoch = self.epoch.wrapping_add(1);
        }
        let used = self.uses.entry(key).or_default();
        let words = [key, u64::from(*used), u64::from(self.epoch)];
        *used = used.wrapping_add(1);
        RuleId::of(hash_words(&words, &Secret::from_seed(NUMBERS)).max(1))
    }

    /// The numbers of the stateful rules, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RuleId> {
        self.order
            .iter()
            .filter_map(|slot| self.slot(*slot))
            .filter(|rule| rule.data.is_stateful)
            .map(|rule| rule.id)
    }

    /// Gives the stateful rules, in order, numbers that they had elsewhere, in this epoch.
    ///
    /// # Errors
    /// Another number of rules, or a number that occurs twice.
    pub(crate) fn set_ids(&mut self, ids: &[RuleId], epoch: u32) -> Result<(), String> {
        if ids.len() != self.stateful {
            return Err(format!("{} numbers are there of {} stateful rules", ids.len(), self.stateful));
        }
        let mut ids = ids.iter();
        self.by_id.clear();
        for slot in &self.order {
            let Some(Some(rule)) = self.slots.get_mut(*slot as usize) else { continue };
            if let Some(id) = rule.data.is_stateful.then(|| ids.next()).flatten() {
                rule.id = *id;
                if self.by_id.insert(*id, *slot).is_some() {
                    return Err("two stateful rules have one number".into());
                }
            }
        }
        self.uses.clear();
        // What was deleted before the export had numbers of the epoch that ends here.
        self.epoch = epoch.wrapping_add(1);
        Ok(())
    }

    /// Puts a rule's conditions into the classifier, all or none.
    fn enter(
        &mut self,
        slot: u32,
        order: u64,
        data: &RuleData,
        conditions: &Conditions,
    ) -> Result<Entries, Refused> {
        let mut entries = Vec::with_capacity(conditions.entries.len());
        let last = data.is_last() && self.mode == Mode::Ordered;
        for conjunction in &conditions.entries {
            let entry = Entry { rule: slot, order, last, conditions: conjunction.clone() };
            match self.classifier.insert(entry) {
                Ok(id) => entries.push(id),
                Err(error) => {
                    self.leave(&entries);
                    return Err(Refused::Full(error.to_string()));
                }
            }
        }
        Ok(Entries::of(entries))
    }

    fn leave(&mut self, entries: &[EntryId]) {
        for id in entries {
            self.classifier.remove(*id);
        }
    }

    fn remove(&mut self, place: usize) {
        if place >= self.order.len() {
            return;
        }
        let slot = self.order.remove(place);
        self.count_fields(slot, false);
        let Some(old) = self.slots[slot as usize].take() else { return };
        self.leave(old.entries.all());
        self.by_id.remove(&old.id);
        if let Some(name) = &old.data.name {
            self.names.remove(name);
        }
        self.stateful -= usize::from(old.data.is_stateful);
        self.translating -= usize::from(old.data.translates());
        self.balancing -= usize::from(old.data.balances());
        self.free.push(slot);
    }

    fn recompile(&mut self, place: usize, prepared: &Prepared) -> Result<(), Refused> {
        let Prepared { data, conditions } = prepared;
        let Some(slot) = self.order.get(place).copied() else { return Ok(()) };
        let Some(old) = self.slot(slot).cloned() else { return Ok(()) };
        self.leave(old.entries.all());
        let entries = self.enter(slot, old.order, data, conditions)?;
        self.count_fields(slot, false);
        self.slots[slot as usize] = Some(Slot { data: data.clone(), entries, ..old });
        self.count_fields(slot, true);
        Ok(())
    }

    fn move_rule(&mut self, from: usize, to: usize) {
        if from >= self.order.len() {
            return;
        }
        let slot = self.order.remove(from);
        let to = to.min(self.order.len());
        let order = self.order_at(to);
        self.order.insert(to, slot);
        self.renumber(slot, order);
    }

    fn renumber(&mut self, slot: u32, order: u64) {
        let Some(Some(rule)) = self.slots.get_mut(slot as usize) else { return };
        rule.order = order;
        for id in rule.entries.all() {
            self.classifier.set_order(*id, order);
        }
    }

    /// An order number for a rule between the neighbours of a place.
    fn order_at(&mut self, place: usize) -> u64 {
        for _ in 0..2 {
            let before =
                place.checked_sub(1).and_then(|at| self.order.get(at)).map(|slot| self.order_of(*slot));
            let behind = self.order.get(place).map(|slot| self.order_of(*slot));
            match (before, behind) {
                (None, None) => return MIDDLE,
                (Some(before), None) if before < LAST - GAP => return before + GAP,
                (None, Some(behind)) if behind > GAP => return behind - GAP,
                _ => {}
            }
            let (low, high) = (before.unwrap_or(0), behind.unwrap_or(LAST));
            if high - low > 1 {
                return low + (high - low) / 2;
            }
            self.spread(place);
        }
        unreachable!("rules that were numbered again have numbers between them")
    }

    /// Gives the rules around a place other numbers, so that there are free ones between them.
    ///
    /// The rules are those of the smallest range of numbers with few enough of them (Bender, Cole, Demaine,
    /// Farach-Colton and Zito, ESA 2002). So an insertion renumbers on average as many rules as the logarithm of
    /// their number.
    fn spread(&mut self, place: usize) {
        let around = self.order.get(place).or(self.order.last()).map_or(MIDDLE, |slot| self.order_of(*slot));
        let mut most = 1.0f64;
        for bits in 1..64u32 {
            most *= CROWDED;
            let low = around >> bits << bits;
            let high = (low | ((1 << bits) - 1)).min(LAST);
            let first = self.order.partition_point(|slot| self.order_of(*slot) < low);
            let end = self.order.partition_point(|slot| self.order_of(*slot) <= high);
            let count = (end - first) as u64;
            let step = (high - low) / (count + 1);
            if count as f64 <= most && step > 1 {
                for at in 0..count {
                    self.renumber(self.order[first + at as usize], low + step * (at + 1));
                }
                return;
            }
        }
    }

    fn count_fields(&mut self, slot: u32, is_new: bool) {
        let Some(Some(rule)) = self.slots.get(slot as usize) else { return };
        let mut is_other = false;
        for field in rule.data.fields.iter() {
            let count = self.tested.entry(*field).or_default();
            *count = if is_new { *count + 1 } else { *count - 1 };
            is_other |= *count == usize::from(is_new);
            if *count == 0 {
                self.tested.remove(field);
            }
        }
        for (count, tests) in self.tested_kinds.iter_mut().zip(rule.data.tests_kinds) {
            if tests {
                *count = if is_new { *count + 1 } else { *count - 1 };
                is_other |= *count == usize::from(is_new);
            }
        }
        if is_other {
            let [options, extensions] = self.tested_kinds.map(|count| count > 0);
            self.filling = Filling::of(&self.layout, self.tested.keys().copied(), options, extensions);
        }
    }

    /// In `all-match` mode no rule ends the search.
    fn set_mode(&mut self, mode: Mode) -> Result<(), Refused> {
        if self.mode == mode {
            return Ok(());
        }
        self.mode = mode;
        self.enter_again()
    }

    fn set_up(&mut self, setup: &Setup) -> Result<(), Refused> {
        let before = std::mem::replace(&mut self.setup, setup.clone());
        if before.capacity == self.setup.capacity {
            return Ok(());
        }
        self.classifier = Self::classifier_of(&self.layout, &self.setup);
        // The numbers of entries are those of the classifier before.
        for slot in self.slots.iter_mut().flatten() {
            slot.entries = Entries::of(Vec::new());
        }
        self.enter_again()
    }

    fn classifier_of(layout: &KeyLayout, setup: &Setup) -> Classifier {
        let config =
            ClassifierConfig { capacity: setup.capacity, seed: setup.seed, ..ClassifierConfig::default() };
        Classifier::new(layout.layout().clone(), config)
    }

    /// Compiles all rules again, and puts their conditions into the classifier.
    fn enter_again(&mut self) -> Result<(), Refused> {
        for place in 0..self.order.len() {
            let Some(data) = self.at(place).cloned() else { continue };
            let refused = |error: String| Refused::Full(format!("rule {}: {error}", place + 1));
            let rule = parse_rule(&data.text).map_err(|error| refused(error.to_string()))?;
            let conditions =
                compile(&self.layout, &rule.matches, self).map_err(|error| refused(error.to_string()))?;
            self.recompile(place, &Prepared { data, conditions })?;
        }
        Ok(())
    }

    fn apply_one(&mut self, edit: &Edit) -> Result<(), Refused> {
        match edit {
            Edit::Insert(place, prepared) => self.insert(*place, prepared)?,
            Edit::Remove(place) => self.remove(*place),
            Edit::Move(from, to) => self.move_rule(*from, *to),
            Edit::Recompile(place, prepared) => self.recompile(*place, prepared)?,
            Edit::Set(name, Some(values)) => {
                self.sets.insert(name.clone(), values.clone());
            }
            Edit::Set(name, None) => {
                self.sets.remove(name);
            }
            Edit::Layout(layout) => {
                if !layout.extends(&self.layout) {
                    return Err(Refused::Changed);
                }
                self.layout = layout.clone();
                self.classifier.widen(layout.layout());
            }
            Edit::Mode(mode) => self.set_mode(*mode)?,
            Edit::PolicyDrop(drops) => self.drops_by_default = *drops,
            Edit::Enable(port, is_enabled) => {
                self.disabled.retain(|known| known != port);
                if !is_enabled {
                    self.disabled.push(*port);
                }
            }
            Edit::Flush => (0..self.order.len()).rev().for_each(|place| self.remove(place)),
            Edit::Setup(setup) => self.set_up(setup)?,
        }
        Ok(())
    }
}

impl Rules {
    /// Checks that there is room for these changes, one after the other.
    ///
    /// # Errors
    /// The number of conditions that find no room.
    pub(crate) fn has_room(&self, edits: &[Edit]) -> Result<(), String> {
        let new = |edit: &Edit| match edit {
            Edit::Insert(_, prepared) | Edit::Recompile(_, prepared) => prepared.conditions.entries.len(),
            _ => 0,
        };
        let is_larger = |edit: &Edit| matches!(edit, Edit::Setup(_));
        // Most changes find room also where nothing goes.
        if !edits.iter().any(is_larger) && edits.iter().map(new).sum::<usize>() <= self.room() {
            return Ok(());
        }
        let (mut capacity, mut taken) = (self.setup.capacity, self.classifier.len());
        let mut by_place: Vec<usize> = self
            .order
            .iter()
            .map(|slot| self.slot(*slot).map_or(0, |slot| slot.entries.all().len()))
            .collect();
        for edit in edits {
            match edit {
                Edit::Flush => {
                    by_place.clear();
                    taken = 0;
                }
                Edit::Insert(place, _) => {
                    by_place.insert((*place).min(by_place.len()), new(edit));
                    taken += new(edit);
                }
                Edit::Remove(place) if *place < by_place.len() => taken -= by_place.remove(*place),
                Edit::Move(from, to) if *from < by_place.len() => {
                    let moved = by_place.remove(*from);
                    by_place.insert((*to).min(by_place.len()), moved);
                }
                Edit::Recompile(place, _) => {
                    if let Some(known) = by_place.get_mut(*place) {
                        taken = taken - *known + new(edit);
                        *known = new(edit);
                    }
                }
                Edit::Setup(setup) => capacity = setup.capacity,
                _ => {}
            }
            if taken > capacity {
                return Err(format!(
                    "there is room for {capacity} conditions, {} are taken, and the change needs {taken} at once: delete \
                     rules before others come, or raise `capacity`",
                    self.classifier.len()
                ));
            }
        }
        Ok(())
    }
}

impl Changing for Rules {
    type Change = Edits;
    type Outcome = Result<(), Refused>;

    fn apply(&mut self, Edits { base, edits }: &Edits) -> Result<(), Refused> {
        if *base != self.version {
            return Err(Refused::Changed);
        }
        self.has_room(edits).map_err(Refused::Full)?;
        let new = edits.iter().filter(|edit| matches!(edit, Edit::Insert(..))).count();
        if new > MANY {
            // A file's rules take the room that they need, and not twice as much.
            self.slots.reserve_exact(new.saturating_sub(self.free.len()));
            self.order.reserve_exact(new);
        }
        for edit in edits.iter() {
            self.apply_one(edit)?;
        }
        self.version += 1;
        // What was taken out or moved leaves the tables less tidy.
        self.classifier.maintain(edits.iter().map(Edit::conditions).sum::<usize>().max(TIDIED));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
