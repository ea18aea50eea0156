//! The times of events, their counts, and both as bytes that another function can import.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_packet::checksum;

/// The times at which an event runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Once, at this time (ns).
    At(u64),
    /// Every so many ns.
    Every(u64),
}

/// In [`Timer::next`]: the event will not run again.
pub(super) const NEVER: u64 = u64::MAX;

/// An event's times and counts.
#[derive(Debug)]
pub(super) struct Timer {
    pub(super) name: String,
    when: When,
    /// The time of its next run (ns); 0 for a period that has not begun.
    ///
    /// A period begins when the time is known.
    pub(super) next: Cell<u64>,
    /// For a period that has not begun: the next run as it was imported, or 0 where nothing was.
    planned: Cell<u64>,
    pub(super) runs: Cell<u64>,
    pub(super) missed: Cell<u64>,
}

/// A run that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) due: u64,
    pub(super) missed: u64,
}

impl Timer {
    pub(super) fn new(name: String, when: When) -> Self {
        let next = if let When::At(time) = when { time } else { 0 };
        let [planned, runs, missed] = [0; 3].map(Cell::new);
        Self { name, when, next: Cell::new(next), planned, runs, missed }
    }

    pub(super) fn begin(&self, now: u64) {
        if let (When::Every(period), 0) = (self.when, self.next.get()) {
            let latest = now.saturating_add(period);
            let planned = self.planned.take();
            self.next.set(if planned > 0 { planned.min(latest) } else { latest });
        }
    }

    /// Takes the run that is due at `now`, at or after `next`.
    ///
    /// The event counts as run from here on, even if it panics.
    pub(super) fn take(&self, now: u64) -> Run {
        let next = self.next.get();
        let (due, missed, after) = match self.when {
            When::At(_) => (next, 0, NEVER),
            When::Every(period) => {
                let missed = now.saturating_sub(next) / period;
                let due = next + missed * period;
                (due, missed, due.saturating_add(period))
            }
        };
        self.next.set(after);
        self.runs.set(self.runs.get() + 1);
        self.missed.set(self.missed.get().saturating_add(missed));
        Run { due, missed }
    }
}

/// The schedule of a function's events: times and counts, without the events themselves.
///
/// It outlives a function that panicked. So events that ran do not run again, and periods keep their phase.
#[derive(Clone, Debug)]
pub struct Schedule(Rc<Vec<Timer>>);

impl Schedule {
    pub(super) fn new(timers: Rc<Vec<Timer>>) -> Self {
        Self(timers)
    }

    /// The time of the first event that is due (ns); `None` if none will run again.
    ///
    /// It is 0 before its periods have begun.
    pub fn next(&self) -> Option<u64> {
        self.0.iter().map(|timer| timer.next.get()).min().filter(|next| *next != NEVER)
    }

    /// Continues the schedule `old`, for events of the same name and times.
    pub fn resume(&self, old: &Self) {
        for timer in self.0.iter() {
            let same = |known: &&Timer| known.name == timer.name && known.when == timer.when;
            if let Some(known) = old.0.iter().find(same) {
                timer.next.set(known.next.get());
                timer.planned.set(known.planned.get());
                timer.runs.set(known.runs.get());
                timer.missed.set(known.missed.get());
            }
        }
    }
}

/// An exported event: version, kind, four numbers in network order, and the Internet checksum of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    when: When,
    next: u64,
    runs: u64,
    missed: u64,
}

const VERSION: u8 = 1;
const IMAGE: usize = 2 + 4 * 8 + 2;

impl Image {
    pub(super) fn of(timer: &Timer) -> Self {
        // At most one of the two is not 0.
        let next = timer.next.get().max(timer.planned.get());
        Self { when: timer.when, next, runs: timer.runs.get(), missed: timer.missed.get() }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let (kind, time) = match self.when {
            When::At(time) => (0, time),
            When::Every(period) => (1, period),
        };
        let mut bytes = vec![VERSION, kind];
        for number in [time, self.next, self.runs, self.missed] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(checksum::internet(&bytes).to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; IMAGE] = bytes
            .try_into()
            .map_err(|_| format!("an exported event is {IMAGE} bytes, found {}", bytes.len()))?;
        if checksum::internet(bytes) != 0 {
            return Err("the exported event is corrupt: its checksum is wrong".into());
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(number)
        };
        let when = match (bytes[0], bytes[1]) {
            (VERSION, 0) => When::At(number(2)),
            (VERSION, 1) => When::Every(number(2)),
            (version, _) => {
                return Err(format!("an exported event of version {VERSION} was expected, found {version}"));
            }
        };
        Ok(Self { when, next: number(10), runs: number(18), missed: number(26) })
    }

    /// Takes over the counts, and the time of the next run if the event has the same times here.
    ///
    /// So an event that ran does not run again, and a period keeps its phase. No run is further away than one
    /// period from now. Before the time is known `now` is 0, and the limit then applies from the first known
    /// time.
    pub(super) fn settle(self, timer: &Timer, now: u64) {
        timer.runs.set(self.runs);
        timer.missed.set(self.missed);
        if self.when != timer.when {
            return;
        }
        match self.when {
            When::At(_) => timer.next.set(timer.next.get().max(self.next)),
            When::Every(period) => {
                let (next, planned) = match now {
                    0 => (0, self.next),
                    _ => (self.next.min(now.saturating_add(period)), 0),
                };
                timer.next.set(next);
                timer.planned.set(planned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(period: u64) -> Timer {
        Timer::new("event".into(), When::Every(period))
    }

    #[test]
    fn every_period_is_run_or_counted_as_missed() {
        let timer = every(7);
        timer.begin(100);
        let mut seed = 1u64;
        let (mut now, mut counted) = (100, 0);
        for _ in 0..1_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += seed >> 58;
            if timer.next.get() <= now {
                let run = timer.take(now);
                counted += 1 + run.missed;
                assert!(run.due <= now && now - run.due < 7 && (run.due - 100).is_multiple_of(7));
            }
            assert_eq!(counted, (now - 100) / 7, "at {now}");
        }
        assert_eq!(timer.runs.get() + timer.missed.get(), counted);
    }

    #[test]
    fn the_end_of_time_is_never() {
        let timer = every(u64::MAX);
        timer.begin(5);
        assert_eq!(timer.next.get(), NEVER);
        let timer = every(1 << 63);
        timer.begin(1 << 62);
        assert_eq!(timer.take(NEVER - 1), Run { due: (1 << 62) + (1 << 63), missed: 0 });
        assert_eq!(timer.next.get(), NEVER);
    }

    #[test]
    fn an_image_is_checked_and_sensible_where_it_arrives() {
        let timer = every(10);
        timer.begin(100);
        timer.take(135);
        let image = Image::of(&timer);
        let bytes = image.encode();
        assert_eq!(Image::decode(&bytes), Ok(image));
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert!(Image::decode(&broken).is_err(), "byte {at}");
            assert!(Image::decode(&bytes[..at]).is_err());
        }
        let arrives = |image: Image, timer: &Timer, now| {
            image.settle(timer, now);
            (timer.next.get(), timer.runs.get(), timer.missed.get())
        };
        assert_eq!(arrives(image, &every(10), 137), (140, 1, 2), "the phase stays");
        assert_eq!(arrives(image, &every(10), 20), (30, 1, 2), "another clock: not further than a period");
        assert_eq!(arrives(image, &every(9), 137), (0, 1, 2), "another period starts again");
        for (next, now, begins) in [(140, 137, 140), (140, 120, 130), (NEVER, 137, 147), (0, 137, 147)] {
            let (early, image) = (every(10), Image { next, ..image });
            assert_eq!(arrives(image, &early, 0), (0, 1, 2), "the time is not known");
            assert_eq!(Image::of(&early), image, "and it may go on to another before anybody does");
            let [early, again] = [early, every(10)].map(|timer| Schedule::new(Rc::new(vec![timer])));
            again.resume(&early);
            for schedule in [early, again] {
                assert_eq!(schedule.next(), Some(0), "asked as soon as it is known");
                schedule.0[0].begin(now);
                assert_eq!(schedule.next(), Some(begins), "{next} at {now}");
                assert_eq!(Image::of(&schedule.0[0]).next, begins);
            }
        }
        let early = every(10);
        arrives(image, &early, 0);
        assert_eq!(arrives(Image { next: 0, ..image }, &early, 200).0, 0);
        early.begin(200);
        assert_eq!(early.next.get(), 210, "what came last holds");
        let once = || Timer::new("once".into(), When::At(50));
        let ran = once();
        ran.take(60);
        assert_eq!(arrives(Image::of(&ran), &once(), 70), (NEVER, 1, 0), "what ran does not run again");
        assert_eq!(arrives(Image::of(&once()), &ran, 70), (NEVER, 0, 0));
    }
}
