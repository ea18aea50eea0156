//! Parts that rules have in common: counters side by side, lists of fields, and the plainest actions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::action::Action;
use crate::field::FieldId;

/// How often a rule was met by packets of one worker.
#[derive(Debug, Default)]
pub(crate) struct RuleCount {
    /// Packets that it matched, of both directions of its connections.
    pub(crate) packets: AtomicU64,
    /// Bytes of their frames.
    pub(crate) bytes: AtomicU64,
    /// Packets among them that were answers of its connections.
    pub(crate) replies: AtomicU64,
    /// When the last came, in ns.
    pub(crate) last: AtomicU64,
    /// Packets that one of its targets could not change, or for which there was no room.
    pub(crate) not_applied: AtomicU64,
}

impl RuleCount {
    /// Counts a packet. Only the worker to which the count belongs calls it.
    #[inline(always)]
    pub(crate) fn add(&self, bytes: u64, is_reply: bool, now: u64) {
        let more = |counter: &AtomicU64, by| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        more(&self.packets, 1);
        more(&self.bytes, bytes);
        if is_reply {
            more(&self.replies, 1);
        }
        self.last.store(now, Ordering::Relaxed);
    }
    /// Counts a target that did nothing.
    pub(crate) fn add_not_applied(&self) {
        self.not_applied.fetch_add(1, Ordering::Relaxed);
    }
}

/// Rules whose counters lie side by side, so that those of one worker fill whole cache lines.
const TOGETHER: usize = 8;

/// One worker's counters of some rules.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stretch([RuleCount; TOGETHER]);

/// The counters of one rule, of each worker.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    block: Arc<[Stretch]>,
    place: u8,
}

impl Counts {
    fn new(workers: usize) -> Self {
        Self { block: (0..workers.max(1)).map(|_| Stretch::default()).collect(), place: 0 }
    }
    /// The counters of a worker.
    #[inline(always)]
    pub(crate) fn of(&self, worker: usize) -> Option<&RuleCount> {
        self.block.get(worker)?.0.get(usize::from(self.place))
    }
    /// Those of all workers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &RuleCount> {
        self.block.iter().filter_map(|stretch| stretch.0.get(usize::from(self.place)))
    }
}

/// Lists of fields that are kept for other rules, before those without a rule are forgotten.
const LISTS: usize = 1_024;

#[derive(Debug, Default)]
struct Kept {
    /// The next counters that no rule has.
    next: Option<Counts>,
    fields: BTreeSet<Arc<[FieldId]>>,
}

/// Parts that new rules share with those that there are. Only the control side asks for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Kept>>);

impl Shared {
    fn kept<R>(&self, use_: impl FnOnce(&mut Kept) -> R) -> R {
        use_(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counters for one more rule, all 0.
    pub(crate) fn counts(&self, workers: usize) -> Counts {
        self.kept(|kept| {
            let is_free =
                |next: &Counts| usize::from(next.place) < TOGETHER && next.block.len() == workers.max(1);
            let counts = kept.next.take().filter(is_free).unwrap_or_else(|| Counts::new(workers));
            kept.next = Some(Counts { place: counts.place + 1, ..counts.clone() });
            counts
        })
    }

    /// The list of these fields.
    pub(crate) fn fields(&self, fields: &[FieldId]) -> Arc<[FieldId]> {
        self.kept(|kept| {
            if let Some(known) = kept.fields.get(fields) {
                return known.clone();
            }
            if kept.fields.len() >= LISTS {
                kept.fields.retain(|list| Arc::strong_count(list) > 1);
            }
            let list: Arc<[FieldId]> = fields.into();
            if kept.fields.len() < LISTS {
                kept.fields.insert(list.clone());
            }
            list
        })
    }
}

/// A rule's actions; those of most rules are the same.
pub(crate) fn shared_actions(actions: Vec<Action>) -> Arc<[Action]> {
    static DROP: LazyLock<Arc<[Action]>> = LazyLock::new(|| [Action::Drop].into());
    static ACCEPT: LazyLock<Arc<[Action]>> = LazyLock::new(|| [Action::Accept].into());
    match &actions[..] {
        [Action::Drop] => DROP.clone(),
        [Action::Accept] => ACCEPT.clone(),
        _ => actions.into(),
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::PortNames;
    use netbricks_core::consistency::Contents;

    use super::*;
    use crate::rules::{RuleData, Rules, Setup, Slot};
    use crate::state::First;

    /// Rules of a file are in two copies, with their classifiers.
    #[test]
    fn a_rule_takes_little_memory() {
        let rules = 20_000u32;
        let line = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            format!(
                "add ip-saddr 10.{a}.{b}.{c} ip-daddr 192.0.2.0/24 ip-proto tcp tcp-dport {} drop\n",
                n % 64
            )
        };
        let lines: String = (0..rules).map(line).collect();
        let (ports, shared) = (PortNames::default(), Shared::default());
        let setup = Setup { capacity: rules as usize, workers: 1, ports, outputs: 1, seed: 7, shared };
        let first = First { setup, lines: lines.into() };
        let (mut copies, mut alone) = (None, 0);
        let both = allocation_counter::measure(|| {
            let made = allocation_counter::measure(|| {
                copies = Rules::make(&first).ok().map(|rules| [rules.clone(), rules])
            });
            alone = made.bytes_current;
        });
        let classifier = copies.as_ref().map_or(0, |[rules, _]| rules.classifier.bytes());
        let text: usize = copies.iter().flat_map(|[first, _]| first.iter()).map(|rule| rule.text.len()).sum();
        println!(
            "{} bytes a rule: line {}, facts {}, counts {}, and of each copy place {} and classifier {}",
            both.bytes_current / i64::from(rules),
            text / rules as usize,
            size_of::<RuleData>() + 16,
            size_of::<RuleCount>(),
            size_of::<Option<Slot>>() + 4,
            classifier / rules as usize
        );
        assert!(
            both.bytes_current > 0 && both.bytes_current <= 560 * i64::from(rules),
            "{}",
            both.bytes_current
        );
    }

    #[test]
    fn no_two_rules_share_a_counter() {
        let shared = Shared::default();
        let all: Vec<Counts> = (0..2 * TOGETHER + 3).map(|_| shared.counts(2)).collect();
        for (at, counts) in all.iter().enumerate() {
            assert_eq!(counts.all().count(), 2);
            counts.of(1).unwrap().add(at as u64, false, 5);
        }
        for (at, counts) in all.iter().enumerate() {
            let of = |worker: usize| counts.of(worker).unwrap().bytes.load(Ordering::Relaxed);
            assert_eq!((of(0), of(1)), (0, at as u64));
        }
        assert!(all[0].of(2).is_none());
        // Another number of workers has counters of its own.
        assert_eq!(shared.counts(3).all().count(), 3);
        assert_eq!(size_of::<Stretch>(), 320, "whole cache lines");
    }

    #[test]
    fn lists_of_fields_are_shared_and_do_not_pile_up() {
        let shared = Shared::default();
        let ids: Vec<FieldId> = FieldId::all().collect();
        let first = shared.fields(&ids[..2]);
        assert!(Arc::ptr_eq(&first, &shared.fields(&ids[..2])));
        for a in 0..60 {
            for b in 0..60 {
                drop(shared.fields(&[ids[a], ids[b], ids[a]]));
            }
        }
        assert!(shared.kept(|kept| kept.fields.len()) <= LISTS);
        assert!(Arc::ptr_eq(&first, &shared.fields(&ids[..2])), "one in use stays");
    }
}
