//! Whether the parts of a rule stand in some data: all placements are tried at once, in bounded time.
//!
//! For each part it computes the set of all positions where the parts up to it may end. A part behind another one looks
//! only at these, and reads the data once for all of them. So the work is in proportion to the data's bytes times the
//! parts, however often a part matches: each content counts with its length, and each expression with its states.
//! Expressions that look at the byte before a position may need to read the data for each: they do for [`MOST_PLACES`].

use memchr::memmem::Finder;

use super::language::{ByteTest, Content, Part, Pcre, Place};
use super::simulation::Simulation;
use super::work;

/// Positions behind which an expression is looked for one by one, where it cannot be for all at once.
pub(super) const MOST_PLACES: usize = 64;

/// A rule's part, ready to be looked for.
pub(super) enum Step {
    /// A content, whose finder has lower case where case does not count.
    Content(Content, Box<Finder<'static>>),
    Pcre(Pcre),
    DataAt {
        distance: u32,
        relative: bool,
        negated: bool,
    },
    ByteTest(ByteTest),
}

impl Step {
    pub(super) fn of(part: &Part) -> Self {
        match part {
            Part::Content(content) => {
                let bytes = if content.ignore_case {
                    content.bytes.to_ascii_lowercase()
                } else {
                    content.bytes.clone()
                };
                Self::Content(content.clone(), Box::new(Finder::new(&bytes).into_owned()))
            }
            Part::Pcre(pcre) => Self::Pcre(pcre.clone()),
            Part::DataAt { distance, relative, negated } => {
                Self::DataAt { distance: *distance, relative: *relative, negated: *negated }
            }
            Part::ByteTest(test) => Self::ByteTest(*test),
        }
    }
}

/// Bytes in which rules are looked for: a packet's payload, or the last bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    pub(super) bytes: &'a [u8],
    /// The position of the first byte: 0 in a packet.
    pub(super) base: i64,
    /// Matches that were complete at this position were found before; -1 in a packet.
    pub(super) known: i64,
    /// Whether no bytes follow.
    pub(super) ended: bool,
}

impl Data<'_> {
    fn end(&self) -> i64 {
        self.base + self.bytes.len() as i64
    }
    /// The last position at which a match may be complete now.
    fn limit(&self) -> i64 {
        self.end() + i64::from(self.ended)
    }
}

/// The outcome for one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It matches, and the last of its parts ends here.
    Matched(i64),
    /// It does not, but may with more bytes.
    Open,
    /// It does not match: no further byte can complete the parts that were found.
    No,
}

/// Memory that evaluations use again and again.
#[derive(Default)]
pub(super) struct Scratch {
    now: Vec<End>,
    next: Vec<End>,
    lower: Vec<u8>,
    /// Where a content stands.
    starts: Vec<usize>,
    simulation: Simulation,
    /// Whether `lower` has the present data.
    is_lower: bool,
}

/// A position where the parts so far may end, and when all of them are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    at: i64,
    done: i64,
}

impl Scratch {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            now: Vec::with_capacity(bytes),
            next: Vec::with_capacity(bytes),
            lower: Vec::with_capacity(bytes),
            starts: Vec::with_capacity(bytes),
            simulation: Simulation::default(),
            is_lower: false,
        }
    }

    /// Other data comes.
    pub(super) fn begin(&mut self) {
        self.is_lower = false;
    }

    /// Whether the steps stand in the data.
    pub(super) fn evaluate(&mut self, steps: &[Step], data: Data<'_>) -> Outcome {
        if steps.iter().any(|step| matches!(step, Step::Content(content, _) if content.ignore_case))
            && !self.is_lower
        {
            self.lower.clear();
            self.lower.extend(data.bytes.iter().map(u8::to_ascii_lowercase));
            self.is_lower = true;
        }
        let Self { now, next, lower, starts, simulation, .. } = self;
        let mut evaluation =
            Evaluation { data, lower, now, next, starts, simulation, open: false, done: 0, last: 0 };
        evaluation.run(steps)
    }
}

struct Evaluation<'d, 's> {
    data: Data<'d>,
    lower: &'s [u8],
    /// Where the parts so far may end, in order.
    now: &'s mut Vec<End>,
    next: &'s mut Vec<End>,
    starts: &'s mut Vec<usize>,
    simulation: &'s mut Simulation,
    /// Whether more bytes may change the outcome.
    open: bool,
    /// When all earlier parts that nothing depends on any more are complete.
    done: i64,
    /// Where the last of them ends.
    last: i64,
}

impl Evaluation<'_, '_> {
    fn run(&mut self, steps: &[Step]) -> Outcome {
        self.start();
        for step in steps {
            let found = match step {
                Step::Content(content, finder) if content.negated => self.absent(content, finder),
                Step::Content(content, finder) => self.content(content, finder),
                Step::Pcre(pcre) if pcre.negated => self.no_pcre(pcre),
                Step::Pcre(pcre) => self.pcre(pcre),
                Step::DataAt { distance, relative, negated } => {
                    self.data_at(i64::from(*distance), *relative, *negated)
                }
                Step::ByteTest(test) => self.byte_test(test),
            };
            if !found {
                return if self.open && !self.data.ended { Outcome::Open } else { Outcome::No };
            }
        }
        self.close();
        if self.done > self.data.known {
            Outcome::Matched(self.last)
        } else if self.open && !self.data.ended {
            Outcome::Open
        } else {
            Outcome::No
        }
    }

    fn start(&mut self) {
        self.now.clear();
        self.now.push(End { at: 0, done: 0 });
    }

    /// Ends the chain of parts so far: nothing depends on its position any more.
    fn close(&mut self) {
        if let Some(best) = self.now.last() {
            self.done = self.done.max(best.done);
            self.last = self.last.max(best.at);
        }
    }

    /// The bytes that a content is compared with.
    fn bytes(&self, content: &Content) -> &[u8] {
        if content.ignore_case { self.lower } else { self.data.bytes }
    }

    /// The index of a position, within the data.
    fn index(&self, position: i64) -> usize {
        (position - self.data.base).clamp(0, self.data.bytes.len() as i64) as usize
    }

    fn content(&mut self, content: &Content, finder: &Finder<'_>) -> bool {
        let len = content.bytes.len() as i64;
        let relative = match content.place {
            Place::Absolute { offset, depth } => {
                self.close();
                self.start();
                (i64::from(offset), depth)
            }
            Place::Relative { distance, within } => (i64::from(distance), within),
        };
        let (distance, within) = (relative.0, relative.1.map(i64::from));
        let (Some(first), Some(last)) = (self.now.first().copied(), self.now.last().copied()) else {
            return false;
        };
        let until = within.map(|within| last.at + distance + within);
        self.open |= until.is_none_or(|until| until > self.data.end());
        let bytes = self.bytes(content);
        let from = self.index(first.at + distance);
        let to = until.map_or(bytes.len(), |until| self.index(until));
        self.next.clear();
        let (mut at, mut before, base, end) = (from, 0, self.data.base, self.data.end());
        let bytes = if content.ignore_case { self.lower } else { self.data.bytes };
        while let Some(found) = bytes.get(at..to).and_then(|bytes| find(finder, bytes)) {
            let start = base + (at + found) as i64;
            at += found + 1;
            while before < self.now.len() && self.now[before].at + distance <= start {
                before += 1;
            }
            let Some(previous) = before.checked_sub(1).map(|previous| self.now[previous]) else { continue };
            let here = start + len;
            let is_within = within.is_none_or(|within| here <= previous.at + distance + within);
            if is_within && (!content.ends || here == end) {
                self.next.push(End { at: here, done: here.max(previous.done) });
            }
        }
        std::mem::swap(self.now, self.next);
        !self.now.is_empty()
    }

    /// Keeps the ends behind which a content does not stand.
    fn absent(&mut self, content: &Content, finder: &Finder<'_>) -> bool {
        match content.place {
            Place::Absolute { offset, depth } => {
                let from = i64::from(offset);
                let until = depth.map(|depth| from + i64::from(depth));
                let Some(done) = self.missing_from(content, finder, from, until) else { return false };
                self.done = self.done.max(done);
                true
            }
            Place::Relative { distance, within } => {
                self.absent_behind(content, finder, i64::from(distance), within.map(i64::from))
            }
        }
    }

    /// Keeps the ends behind which a content does not stand: it is looked for once for all of them.
    fn absent_behind(
        &mut self,
        content: &Content,
        finder: &Finder<'_>,
        distance: i64,
        within: Option<i64>,
    ) -> bool {
        let (Some(first), Some(last)) = (self.now.first().copied(), self.now.last().copied()) else {
            return false;
        };
        let (len, size) = (self.data.bytes.len(), finder.needle().len());
        let until = |at: i64| within.map(|within| at + distance + within);
        let to = until(last.at).map_or(len, |until| self.index(until));
        let mut at = self.index(first.at + distance);
        let bytes = if content.ignore_case { self.lower } else { self.data.bytes };
        self.starts.clear();
        if content.ends {
            self.starts.extend(len.checked_sub(size).filter(|_| bytes.ends_with(finder.needle())));
        } else {
            while let Some(found) = bytes.get(at..to).and_then(|bytes| find(finder, bytes)) {
                self.starts.push(at + found);
                at += found + 1;
            }
        }
        self.next.clear();
        let mut passed = 0;
        for place in 0..self.now.len() {
            let End { at, done } = self.now[place];
            let (from, until) = (at + distance, until(at));
            if self.is_gone(from) {
                continue;
            }
            let (begin, to) = (self.index(from), until.map_or(len, |until| self.index(until)));
            // The ends are in order, so that what stands before one is of no use to the next.
            passed += self.starts[passed..].iter().take_while(|start| **start < begin).count();
            let stands = self.starts.get(passed).is_some_and(|start| start + size <= to);
            let stands = stands && (!content.ends || to == len);
            if let Some(decided) = self.missing_until(stands, until) {
                self.next.push(End { at, done: done.max(decided) });
            }
        }
        std::mem::swap(self.now, self.next);
        !self.now.is_empty()
    }

    /// Whether the bytes from a position on are not here any more.
    fn is_gone(&self, from: i64) -> bool {
        from < self.data.base && self.data.base > 0
    }

    /// When it is known that a content does not stand between two positions.
    ///
    /// `None` if it does, or if that is not known yet.
    fn missing_from(
        &mut self,
        content: &Content,
        finder: &Finder<'_>,
        from: i64,
        until: Option<i64>,
    ) -> Option<i64> {
        if self.is_gone(from) {
            return None;
        }
        let bytes = self.bytes(content);
        let (begin, to) = (self.index(from), until.map_or(bytes.len(), |until| self.index(until)));
        let part = bytes.get(begin..to).unwrap_or_default();
        let stands = if content.ends {
            part.ends_with(finder.needle()) && to == bytes.len()
        } else {
            find(finder, part).is_some()
        };
        self.missing_until(stands, until)
    }

    /// When it is known that what does not stand among these bytes is missing up to a position.
    fn missing_until(&mut self, stands: bool, until: Option<i64>) -> Option<i64> {
        if stands {
            return None;
        }
        let decided = until.unwrap_or(i64::MAX);
        match decided <= self.data.end() || self.data.ended {
            true => Some(decided.min(self.data.limit()).max(0)),
            false => {
                self.open = true;
                None
            }
        }
    }

    fn pcre(&mut self, pcre: &Pcre) -> bool {
        if !pcre.relative {
            self.close();
            self.start();
        }
        self.open = true;
        let regex = &pcre.regex;
        let Data { bytes, base, ended, .. } = self.data;
        let (limit, later) = (self.data.limit(), i64::from(regex.looks_ahead));
        self.next.clear();
        let (next, simulation) = (&mut *self.next, &mut *self.simulation);
        let mut add = |end: i64, done: i64| {
            // The byte behind it decides.
            let done = (end + later).min(if ended { limit } else { i64::MAX }).max(done);
            if done <= limit {
                next.push(End { at: end, done });
            }
            true
        };
        let mut ends = |from: &End, bytes: &[u8], at: usize, base: i64| {
            regex.ends(bytes, at, simulation, |end| add(base + end as i64, from.done));
        };
        if !pcre.relative {
            // The byte before the data is not its beginning.
            let at = usize::from(base > 0 && regex.looks_behind).min(bytes.len());
            ends(&End { at: 0, done: 0 }, bytes, at, base);
        } else if regex.looks_behind && regex.has_few_states() {
            let index = |place: &End| (place.at - base).clamp(0, bytes.len() as i64) as usize;
            let mut places = self.now.iter().map(index).peekable();
            let is_place = |at: usize| {
                let mut is = false;
                while places.next_if(|place| *place <= at).is_some() {
                    is = true;
                }
                is
            };
            let first = self.now.first().map_or(bytes.len(), index);
            regex.ends_behind(bytes, first, simulation, is_place, |start, end| {
                let before = self.now.partition_point(|place| index(place) <= start);
                add(base + end as i64, self.now[before.saturating_sub(1)].done)
            });
        } else if regex.looks_behind {
            for from in self.now.iter().take(MOST_PLACES) {
                let at = (from.at - base).clamp(0, bytes.len() as i64) as usize;
                ends(from, &bytes[at..], 0, base + at as i64);
            }
            next.sort_unstable_by_key(|end| (end.at, end.done));
            next.dedup_by(|later, earlier| {
                let same = later.at == earlier.at;
                if same {
                    earlier.done = earlier.done.max(later.done);
                }
                same
            });
        } else if let (Some(from), Some(last)) = (self.now.first(), self.now.last()) {
            let at = (from.at - base).clamp(0, bytes.len() as i64) as usize;
            if last.done > last.at && regex.has_few_states() {
                // Parts that are missing behind a later position are decided later: the last one before a match counts.
                regex.spans(bytes, at, simulation, |start, end| {
                    let before = self.now.partition_point(|place| place.at <= base + start as i64);
                    add(base + end as i64, self.now[before.saturating_sub(1)].done)
                });
            } else {
                ends(from, bytes, at, base);
            }
        }
        std::mem::swap(self.now, self.next);
        !self.now.is_empty()
    }

    /// Keeps the ends behind which an expression does not match: only packets have such parts.
    fn no_pcre(&mut self, pcre: &Pcre) -> bool {
        let (bytes, simulation) = (self.data.bytes, &mut *self.simulation);
        let mut matches = |from: usize| {
            let mut found = false;
            pcre.regex.ends(&bytes[from..], 0, simulation, |_| {
                found = true;
                false
            });
            found
        };
        if !pcre.relative {
            return !matches(0);
        }
        let base = self.data.base;
        let len = self.data.bytes.len() as i64;
        let mut matches = |end: &End| matches((end.at - base).clamp(0, len) as usize);
        if pcre.regex.looks_behind {
            self.now.truncate(MOST_PLACES);
            self.now.retain(|end| !matches(end));
        } else {
            // A match behind a position is one behind all positions before it.
            let with = self.now.partition_point(matches);
            self.now.drain(..with);
        }
        !self.now.is_empty()
    }

    fn data_at(&mut self, distance: i64, relative: bool, negated: bool) -> bool {
        let end = self.data.end();
        if !relative {
            let is = distance < end;
            self.open |= !is;
            self.done = self.done.max(if negated { 0 } else { distance + 1 });
            return is != negated;
        }
        self.open |= self.now.last().is_some_and(|last| last.at + distance > end);
        self.now.retain_mut(|place| {
            let is = place.at + distance <= end;
            if !negated {
                place.done = place.done.max(place.at + distance);
            }
            is != negated
        });
        !self.now.is_empty()
    }

    /// Keeps the ends behind which a number holds.
    fn byte_test(&mut self, test: &ByteTest) -> bool {
        let (offset, count) = (i64::from(test.offset), test.count as i64);
        let Data { bytes, base, .. } = self.data;
        let end = self.data.end();
        let holds = |from: i64| {
            let begin = usize::try_from(from - base).ok();
            let number = begin.and_then(|begin| bytes.get(begin..)?.get(..test.count));
            number.is_some_and(|number| test.holds(number))
        };
        if !test.relative {
            self.open |= offset + count > end;
            self.done = self.done.max(offset + count);
            return holds(offset);
        }
        self.open |= self.now.last().is_some_and(|last| last.at + offset + count > end);
        work::spend(self.now.len() * test.count);
        self.now.retain_mut(|place| {
            place.done = place.done.max(place.at + offset + count);
            holds(place.at + offset)
        });
        !self.now.is_empty()
    }
}

/// Where a content stands first.
#[inline(always)]
fn find(finder: &Finder<'_>, bytes: &[u8]) -> Option<usize> {
    let found = finder.find(bytes);
    work::spend(found.map_or(bytes.len(), |found| found + finder.needle().len()));
    found
}
