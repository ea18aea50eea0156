//! Lookup of names among many, without regard to case, by a keyed hash.
//!
//! Clients choose the names that are looked up, and may choose one on every line. Without the secret they
//! cannot make a lookup long.

use netbricks_core::tables::{Secret, hash_pair};

use super::parse::split_port;

/// Finds the numbers of names that its owner keeps.
pub(super) struct Index {
    secret: Secret,
    /// A power of two of slots, at most half of them taken; a taken slot leads to the next.
    slots: Box<[Option<Slot>]>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The upper half of the name's hash; the lower half chose the slot.
    ///
    /// Names are compared only where it is the same.
    tag: u32,
    number: u32,
}

impl Index {
    /// An index for at most `most` names; it never grows.
    pub(super) fn new(most: usize, seed: u64) -> Self {
        let slots = vec![None; (2 * most).next_power_of_two()].into();
        Self { secret: Secret::from_seed(seed), slots }
    }

    /// Every end of a name that is a name itself, with its hash, from the shortest to the whole.
    ///
    /// Such an end begins where the name does, or behind a dot. All of them together take one pass over the name.
    fn ends<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = (&'n [u8], u64)> + use<'n> {
        let secret = self.secret;
        let (mut from, mut hash) = (name.len() + 1, 0);
        name.rsplit(|byte| *byte == b'.').map(move |label| {
            from -= label.len() + 1;
            hash = with_label(hash, label, &secret);
            (&name[from..], hash)
        })
    }

    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        self.ends(name).fold(0, |_, (_, hash)| hash)
    }

    /// The number of the name with this hash for which `is` is true.
    pub(super) fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        self.slots_of(hash)
            .map_while(|at| self.slots[at])
            .find(|slot| slot.tag == tag(hash) && is(slot.number as usize))
            .map(|slot| slot.number as usize)
    }

    /// Adds a name that is not in the index.
    pub(super) fn add(&mut self, hash: u64, number: usize) {
        let free = self.slots_of(hash).find(|at| self.slots[*at].is_none());
        debug_assert!(free.is_some(), "more names than it was made for");
        if let Some(free) = free {
            self.slots[free] = Some(Slot { tag: tag(hash), number: number as u32 });
        }
    }

    /// The slots where a name with this hash may be, in the order of the search.
    fn slots_of(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let len = self.slots.len();
        (0..len).map(move |step| {
            #[cfg(test)]
            tests::count(&tests::SLOTS);
            (hash as usize).wrapping_add(step) & (len - 1)
        })
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The hash of a name whose end behind this label has the hash `end`.
///
/// A word has seven bytes of a label, and their number. 8 says that the label continues, so that no two names give the
/// same words.
fn with_label(end: u64, label: &[u8], secret: &Secret) -> u64 {
    let (front, last) = label.split_at(label.len().saturating_sub(1) / PIECE * PIECE);
    let hash = front.chunks(PIECE).fold(end, |hash, piece| with_piece(hash, piece, GOES_ON, secret));
    with_piece(hash, last, last.len() as u8, secret)
}

const PIECE: usize = 7;
const GOES_ON: u8 = 8;

fn with_piece(hash: u64, piece: &[u8], len: u8, secret: &Secret) -> u64 {
    let mut word = [0; 8];
    word[..piece.len()].copy_from_slice(piece);
    // Host names are the same in upper and lower case.
    word.make_ascii_lowercase();
    word[PIECE] = len;
    hash_pair(hash, u64::from_le_bytes(word), secret)
}

/// Hosts to which connections are cut.
pub(super) struct Blocked {
    names: Vec<Box<[u8]>>,
    index: Index,
}

impl Blocked {
    pub(super) fn new(names: &[String], seed: u64) -> Self {
        let mut blocked =
            Self { names: Vec::with_capacity(names.len()), index: Index::new(names.len(), seed) };
        for name in names.iter().map(String::as_bytes) {
            let hash = blocked.index.hash(name);
            if !blocked.is_one(name, hash) {
                blocked.index.add(hash, blocked.names.len());
                blocked.names.push(name.into());
            }
        }
        blocked
    }

    /// Whether a request may be for one of these hosts, or for a name below one.
    pub(super) fn holds(&self, host: &[u8], whole: bool) -> bool {
        if self.names.is_empty() {
            return false;
        }
        // If the host was cut off, its rest is unknown, so it is blocked.
        !whole || self.index.ends(host_name(host)).any(|(end, hash)| self.is_one(end, hash))
    }

    fn is_one(&self, name: &[u8], hash: u64) -> bool {
        self.index.find(hash, |number| self.names[number].eq_ignore_ascii_case(name)).is_some()
    }
}

/// A host without its port, and without the dot that ends a full name.
fn host_name(host: &[u8]) -> &[u8] {
    let (name, _) = split_port(host);
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;
    use std::thread::LocalKey;

    use netbricks_testkit::mutate::Random;
    use proptest::prelude::*;

    use super::super::parse::{Found, Parser};
    use super::*;

    thread_local! {
        /// Slots that were read: no name is compared without reading one.
        pub(in super::super) static SLOTS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count(what: &'static LocalKey<Cell<usize>>) {
        what.set(what.get() + 1);
    }

    /// Whether a name is `of` or below it, compared directly.
    fn is_within(name: &[u8], of: &[u8]) -> bool {
        let Some(below) = name.len().checked_sub(of.len()) else { return false };
        name[below..].eq_ignore_ascii_case(of) && (below == 0 || name[below - 1] == b'.')
    }

    /// Names of few letters, so that many are alike; some labels are longer than a word.
    pub(in super::super) fn name(random: &mut Random) -> String {
        let long = ["", "", "", "seven77", "fourteen14teen", "fourteen14teen!"];
        let label = |random: &mut Random| {
            let letters = (0..random.below(3)).map(|_| ["a", "B", "A", "b", "\0"][random.below(5)]);
            letters.collect::<String>() + long[random.below(6)]
        };
        (0..1 + random.below(4)).map(|_| label(random)).collect::<Vec<_>>().join(".")
    }

    proptest! {
        #[test]
        fn blocked_are_the_names_that_are_found_one_by_one(seed: u64, secret: u64) {
            let mut random = Random::new(seed);
            // The names also have empty labels, which no settings have; they must be found as well.
            let names: Vec<String> = (0..random.below(40)).map(|_| name(&mut random)).collect();
            let blocked = Blocked::new(&names, secret);
            for _ in 0..200 {
                let mut host = name(&mut random);
                if !names.is_empty() && random.below(2) == 0 {
                    host += [".", ""][random.below(2)];
                    host += &names[random.below(names.len())];
                }
                host += ["", "", ".", "..", ":80", ".:80", ":a.b"][random.below(7)];
                let host = host.as_bytes();
                let among = names.iter().any(|of| is_within(host_name(host), of.as_bytes()));
                prop_assert_eq!(blocked.holds(host, true), among, "{}", host.escape_ascii());
                prop_assert_eq!(blocked.holds(host, false), !names.is_empty());
            }
        }

        #[test]
        fn ends_are_found_shortest_first(bytes in prop::collection::vec(prop::sample::select(b"ab.".to_vec()), 0..30)) {
            let index = Index::new(1, 7);
            let found: Vec<_> = index.ends(&bytes).collect();
            let expected: Vec<_> = (0..=bytes.len())
                .rev()
                .filter(|from| *from == 0 || bytes[from - 1] == b'.')
                .map(|from| (&bytes[from..], index.hash(&bytes[from..])))
                .collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// The work on a segment is in proportion to its bytes and not to the names, for all lines.
    ///
    /// It is tried over many secrets: with one, a line may collide with several names.
    #[test]
    fn lines_cost_no_more_where_many_are_blocked() {
        for line in
            [" a\n", " .\n", " ..........................\n", "Host:\n", "Host:a.b.c.d\n", " a.b0.example\n"]
        {
            let segment: Vec<u8> = line.bytes().cycle().take(1_460 / line.len() * line.len()).collect();
            let names: Vec<String> = (0..1_024).map(|number| format!("b{number}.example.org")).collect();
            let (mut looked_for, mut hosts) = (0, 0);
            SLOTS.set(0);
            for secret in 0..64 {
                let made = SLOTS.get();
                let blocked = Blocked::new(&names, secret);
                SLOTS.set(made);
                let mut parser = Parser::WARY;
                parser.feed(&segment, |found| {
                    if let Found::Host { name, whole } = found {
                        hosts += 1;
                        looked_for += blocked.index.ends(host_name(name)).count();
                        assert!(!blocked.holds(name, whole));
                    }
                });
            }
            assert_eq!(hosts, 64 * segment.len() / line.len(), "{line:?}");
            assert!(looked_for <= 64 * segment.len());
            // Half of the slots are taken, so two and a half reads are expected for each name.
            assert!(SLOTS.get() <= 4 * looked_for, "{line:?}: {} slots for {looked_for} names", SLOTS.get());
        }
    }
}
