//! Address resolution of one worker: the questions under way, and the packets that wait for their answers.
//!
//! A question is asked three times, a second apart (RFC 4861 §10, and as ARP's users do). Questions and waiting
//! packets are bounded. Next hops of routes have room of their own, so that no scan of a network keeps them
//! from being resolved (RFC 6583).

use netbricks_core::buffer::Packet;
use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{FlowTable, FlowTableConfig, TableError};

use super::neighbours::NeighbourKey;

/// Time between two questions (ns).
pub(super) const RETRANSMIT: u64 = 1_000_000_000;
/// Questions without an answer after which a neighbour counts as silent.
pub(super) const QUESTIONS: u8 = 3;
/// Time from the first use of an old entry until it is asked for (ns): RFC 4861's DELAY_FIRST_PROBE_TIME.
pub(super) const DELAY: u64 = 5_000_000_000;

/// The sizes of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Hosts that are asked for at once; as many next hops and as many old entries come beside them.
    pub(super) questions: usize,
    /// Packets that wait, of all neighbours together.
    pub(super) packets: usize,
    /// Packets that wait for one neighbour.
    pub(super) packets_each: usize,
}

/// A packet that waits, as it came.
pub(super) struct Waiting {
    pub(super) packet: Packet,
    /// The interface by which it came.
    pub(super) ingress: u16,
}

/// Why a neighbour is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A host on a link is not known.
    Host,
    /// A next hop of a route is not known, or was silent.
    Gateway,
    /// The entry is old: the neighbour is asked at this address, while packets go there.
    Old(MacAddress),
}

impl Cause {
    /// Its class, by which questions are limited.
    fn class(self) -> usize {
        match self {
            Self::Host => 0,
            Self::Gateway => 1,
            Self::Old(_) => 2,
        }
    }
}

/// A question under way.
pub(super) struct Question {
    pub(super) key: NeighbourKey,
    pub(super) cause: Cause,
    asked: u8,
    /// When to ask again, or to give up (ns).
    next: u64,
    /// Its place in a list of questions: the list, the one before it and the one behind it.
    list: usize,
    before: u32,
    behind: u32,
    /// The first and the last of the packets that wait.
    first: u32,
    last: u32,
    packets: u32,
}

const NONE: u32 = u32::MAX;

/// The next step of a question that is due.
pub(super) enum Due {
    /// Ask.
    Ask(NeighbourKey, Cause),
    /// No answer came: the question is over.
    Silent(Question),
}

pub(super) struct Resolver {
    questions: Vec<Option<Question>>,
    free: Vec<u32>,
    places: FlowTable<[u64; 3], u32>,
    counts: [usize; 3],
    slots: Vec<(Option<Waiting>, u32)>,
    free_slots: Vec<u32>,
    sizes: Sizes,
    /// Lists of questions in the order in which they are due: at once, again, and after a delay.
    lists: [(u32, u32); 3],
}

/// The lists of questions.
const AT_ONCE: usize = 0;
const AGAIN: usize = 1;
const DELAYED: usize = 2;

/// The fate of a packet that is to wait.
pub(super) enum Held {
    /// It waits.
    Waits,
    /// It waits in the place of the oldest, which is dropped.
    Instead(Packet),
    /// There is no room for it.
    Full(Packet),
}

impl Resolver {
    pub(super) fn new(sizes: Sizes, seed: u64) -> Result<Self, TableError> {
        let most = 3 * sizes.questions;
        let config = FlowTableConfig::new(most).seeded(seed);
        Ok(Self {
            questions: (0..most).map(|_| None).collect(),
            free: (0..most as u32).rev().collect(),
            places: FlowTable::new(config)?,
            counts: [0; 3],
            slots: (0..sizes.packets).map(|_| (None, NONE)).collect(),
            free_slots: (0..sizes.packets as u32).rev().collect(),
            sizes,
            lists: [(NONE, NONE); 3],
        })
    }

    /// Packets that wait.
    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }
    /// Questions under way.
    pub(super) fn asked(&self) -> usize {
        self.questions.len() - self.free.len()
    }
    /// The time at which the next question is due; `None` without any.
    pub(super) fn next(&self) -> Option<u64> {
        let first = |(first, _): &(u32, u32)| self.at(*first).map(|question| question.next);
        self.lists.iter().filter_map(first).min()
    }

    fn at(&self, place: u32) -> Option<&Question> {
        self.questions.get(place as usize)?.as_ref()
    }
    fn at_mut(&mut self, place: u32) -> Option<&mut Question> {
        self.questions.get_mut(place as usize)?.as_mut()
    }

    /// Puts a question at the end of a list.
    fn enlist(&mut self, place: u32, list: usize) {
        let (first, last) = self.lists[list];
        if let Some(question) = self.at_mut(place) {
            (question.list, question.before, question.behind) = (list, last, NONE);
        }
        match self.at_mut(last) {
            Some(last) => last.behind = place,
            None => self.lists[list].0 = place,
        }
        self.lists[list].1 = place;
        debug_assert!(first != place, "it was in no list");
    }

    /// Takes a question out of its list.
    fn unlist(&mut self, place: u32) {
        let Some(Question { list, before, behind, .. }) = self.at(place) else { return };
        let (list, before, behind) = (*list, *before, *behind);
        match self.at_mut(before) {
            Some(question) => question.behind = behind,
            None => self.lists[list].0 = behind,
        }
        match self.at_mut(behind) {
            Some(question) => question.before = before,
            None => self.lists[list].1 = before,
        }
    }

    fn place(&self, key: NeighbourKey) -> Option<u32> {
        self.places.get(&key.words()).copied()
    }
    /// The question about a neighbour.
    pub(super) fn question(&self, key: NeighbourKey) -> Option<&Question> {
        self.questions.get(self.place(key)? as usize)?.as_ref()
    }
    /// The places that questions may have.
    pub(super) fn places(&self) -> usize {
        self.questions.len()
    }
    /// The neighbour that the question at a place asks for.
    pub(super) fn key_at(&self, place: usize) -> Option<NeighbourKey> {
        self.questions.get(place)?.as_ref().map(|question| question.key)
    }
    /// Begins to ask for a neighbour; `false` where too many are asked for.
    ///
    /// The first question is due at `now` (ns), or some time later where what is known is only old.
    pub(super) fn begin(&mut self, key: NeighbourKey, cause: Cause, now: u64) -> bool {
        if self.place(key).is_some() {
            return true;
        }
        if self.counts[cause.class()] >= self.sizes.questions {
            return false;
        }
        let Some(place) = self.free.pop() else { return false };
        let change =
            netbricks_core::tables::MapChange::Put { key: key.words(), value: place, timeout: None, now: 0 };
        use netbricks_core::tables::{Changing, MapOutcome};
        if let MapOutcome::Full = self.places.apply(&change) {
            self.free.push(place);
            return false;
        }
        self.counts[cause.class()] += 1;
        let (next, list) = match cause {
            Cause::Old(_) => (now.saturating_add(DELAY), DELAYED),
            Cause::Host | Cause::Gateway => (now, AT_ONCE),
        };
        let (first, last, before, behind) = (NONE, NONE, NONE, NONE);
        let question = Question { key, cause, asked: 0, next, list, before, behind, first, last, packets: 0 };
        self.questions[place as usize] = Some(question);
        self.enlist(place, list);
        true
    }

    /// Lets a packet wait for a neighbour that is asked for.
    pub(super) fn hold(&mut self, key: NeighbourKey, waiting: Waiting) -> Held {
        let Some(place) = self.place(key) else { return Held::Full(waiting.packet) };
        let most = self.sizes.packets_each as u32;
        let oldest = match self.questions.get_mut(place as usize).and_then(Option::as_mut) {
            // The new one takes the place of the oldest (RFC 4861 §7.2.2).
            Some(question) if question.packets >= most => {
                Self::take_first(question, &mut self.slots, &mut self.free_slots)
            }
            Some(_) => None,
            None => return Held::Full(waiting.packet),
        };
        let Some(slot) = self.free_slots.pop() else { return Held::Full(waiting.packet) };
        self.slots[slot as usize] = (Some(waiting), NONE);
        if let Some(question) = self.questions.get_mut(place as usize).and_then(Option::as_mut) {
            match question.last {
                NONE => question.first = slot,
                last => self.slots[last as usize].1 = slot,
            }
            question.last = slot;
            question.packets += 1;
        }
        oldest.map_or(Held::Waits, |waiting| Held::Instead(waiting.packet))
    }

    fn take_first(
        question: &mut Question,
        slots: &mut [(Option<Waiting>, u32)],
        free: &mut Vec<u32>,
    ) -> Option<Waiting> {
        let slot = question.first;
        let (waiting, next) = slots.get_mut(slot as usize)?;
        let waiting = waiting.take();
        question.first = *next;
        if question.first == NONE {
            question.last = NONE;
        }
        question.packets -= 1;
        free.push(slot);
        waiting
    }

    /// Ends the question about a neighbour.
    pub(super) fn end(&mut self, key: NeighbourKey) -> Option<Question> {
        let place = self.place(key)?;
        self.places.remove(&key.words());
        self.unlist(place);
        let question = self.questions.get_mut(place as usize)?.take()?;
        self.free.push(place);
        self.counts[question.cause.class()] -= 1;
        Some(question)
    }

    /// The next packet that waits for the answer to a question that is over.
    pub(super) fn take(&mut self, question: &mut Question) -> Option<Waiting> {
        Self::take_first(question, &mut self.slots, &mut self.free_slots)
    }

    /// Any packet that waits, with its question over; for the end of the node.
    pub(super) fn take_any(&mut self) -> Option<Question> {
        let question = self.questions.iter().flatten().find(|question| question.packets > 0)?;
        let key = question.key;
        self.end(key)
    }

    /// The next question that is due at time `now` (ns).
    pub(super) fn due(&mut self, now: u64) -> Option<Due> {
        let firsts = self.lists.map(|(first, _)| first);
        let place =
            firsts.into_iter().find(|place| self.at(*place).is_some_and(|first| first.next <= now))?;
        let question = self.at_mut(place)?;
        let (key, cause) = (question.key, question.cause);
        if question.asked >= QUESTIONS {
            return self.end(key).map(Due::Silent);
        }
        question.asked += 1;
        question.next = now.saturating_add(RETRANSMIT);
        self.unlist(place);
        self.enlist(place, AGAIN);
        Some(Due::Ask(key, cause))
    }
}
