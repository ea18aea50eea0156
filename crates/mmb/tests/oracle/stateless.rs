//! Stateless rules: the engine agrees with the oracle, at all batch sizes and in both modes, while rules change.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netbricks_core::Worker;
use netbricks_mmb::language::parse_command;
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::Clocked;
use netbricks_testkit::mutate::Random;

use crate::generate::{SETS, change, rule, set};
use crate::history::{self, Step};
use crate::packets::{frame, one, rarely};
use crate::verdict::{Fate, Rules};

/// Frames between two changes of rules.
const FRAMES: usize = 64;

pub(crate) fn bench(lines: &[String]) -> Clocked {
    /// Every other bench has no cache of flows' rules.
    static BENCHES: AtomicUsize = AtomicUsize::new(0);
    let mut settings = MmbSettings::of(lines.iter().map(|line| &line[..]));
    (settings.outputs, settings.connections, settings.capacity) = (2, 4_096, 16_384);
    if BENCHES.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
        settings.flow_cache = 0;
    }
    Clocked::of_node(move |worker: &Worker| node(&settings, worker))
}

/// The engine and the oracle with the same rules.
pub(crate) struct Both {
    pub(crate) bench: Clocked,
    pub(crate) rules: Rules,
    /// The commands so far.
    lines: Vec<String>,
    /// Frames that were dropped, that left as they came, that were changed, and that have another length.
    pub(crate) fates: [usize; 4],
    /// Every step, where connections depend on them.
    pub(crate) history: Option<Vec<Step>>,
}

impl Both {
    pub(crate) fn new() -> Self {
        Self { bench: bench(&[]), rules: Rules::default(), lines: Vec::new(), fates: [0; 4], history: None }
    }

    fn count(&mut self, frame: &[u8], fate: &Fate) {
        self.fates[match fate {
            Fate::Dropped => 0,
            Fate::Leaves(_, out, _) if out == frame => 1,
            Fate::Leaves(_, out, _) if out.len() == frame.len() => 2,
            Fate::Leaves(..) => 3,
        }] += 1;
    }

    fn record(&mut self, steps: impl IntoIterator<Item = Step>) {
        if let Some(history) = &mut self.history {
            history.extend(steps);
        }
    }

    /// Moves both clocks on.
    pub(crate) fn wait(&mut self, seconds: u64) {
        self.record([Step::Wait(seconds)]);
        self.rules.now += seconds;
        self.bench.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn tell(&mut self, lines: Vec<String>) {
        self.record(lines.iter().cloned().map(Step::Line));
        for line in &lines {
            match parse_command(line) {
                Ok(Some(command)) => self.rules.command(command),
                other => panic!("{line}: {other:?}"),
            }
        }
        self.bench.call("run", &lines.join("\n"));
        self.lines.extend(lines);
    }

    /// Sends frames through both.
    pub(crate) fn check(&mut self, frames: &[Vec<u8>]) {
        self.record(frames.iter().cloned().map(Step::Frame));
        let report = self.bench.send(frames.iter().cloned());
        assert_eq!(
            report.panics.first().map(|panic| format!("{panic:?}")),
            None,
            "{}",
            self.lines.join("\n")
        );
        let fates: Vec<Fate> = frames.iter().map(|frame| self.rules.fate(frame)).collect();
        for (frame, fate) in frames.iter().zip(&fates) {
            self.count(frame, fate);
        }
        let agrees = |output: u8, out: &[Vec<u8>]| {
            let mut leaving = fates.iter().filter(|fate| fate.output() == Some(output));
            out.iter().all(|frame| leaving.next().is_some_and(|fate| fate.is(Some((output, frame)))))
                && leaving.next().is_none()
        };
        if agrees(0, &report.out) && agrees(1, &report.replies) {
            return;
        }
        if let Some(history) = self.history.take() {
            history::report(history);
        }
        for (frame, fate) in frames.iter().zip(&fates) {
            explain(&self.rules, frame, fate);
        }
        panic!("they differ only after these changes:\n{}", self.lines.join("\n"));
    }
}

/// Fails, with the fewest rules, if a fresh engine does otherwise.
fn explain(rules: &Rules, frame: &[u8], fate: &Fate) {
    let found = |rules: &Rules| {
        let mut bench = bench(&lines(rules));
        let report = bench.send([frame]);
        let out = report.out.into_iter().map(|frame| (0, frame));
        out.chain(report.replies.into_iter().map(|frame| (1, frame))).next()
    };
    let is = |fate: &Fate, found: Option<(u8, Vec<u8>)>| {
        fate.is(found.as_ref().map(|(output, frame)| (*output, &frame[..])))
    };
    if is(fate, found(rules)) {
        return;
    }
    let mut least = rules.clone();
    let mut place = 0;
    while place < least.rows.len() {
        let mut fewer = least.clone();
        fewer.rows.remove(place);
        match is(&fewer.clone().fate(frame), found(&fewer)) {
            true => place += 1,
            false => least = fewer,
        }
    }
    let (expected, found) = (least.clone().fate(frame), found(&least));
    panic!(
        "the engine differs:\n{}\nframe    {frame:02x?}\nexpected {expected:02x?}\nfound    {found:02x?}",
        lines(&least).join("\n")
    );
}

/// The lines that make these rules.
fn lines(rules: &Rules) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, values) in &rules.sets {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        lines.push(format!("define @{name} {{{}}}", values.join(", ")));
    }
    lines.push(format!("mode {}", if rules.mode == Default::default() { "ordered" } else { "all-match" }));
    lines.push(format!("policy {}", if rules.drops { "drop" } else { "accept" }));
    lines.extend(rules.rows.iter().map(|row| format!("add {}", row.rule)));
    lines
}

#[test]
fn the_engine_agrees_with_the_oracle() {
    let pairs =
        std::env::var("NETBRICKS_MMB_PAIRS").map_or(100_000, |pairs| pairs.parse().expect("a number"));
    let seed = std::env::var("NETBRICKS_MMB_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut random = Random::new(seed);
    let (mut done, mut serial, mut fates) = (0, 0, [0; 4]);
    while done < pairs {
        let mut both = Both::new();
        for round in 0..100 {
            if done >= pairs {
                break;
            }
            let frames: Vec<Vec<u8>> = (0..FRAMES).map(|_| frame(&mut random)).collect();
            if round % 50 == 0 {
                let mut lines = vec!["flush".to_owned()];
                lines.extend(SETS.map(|name| format!("define @{name} {}", set(&mut random, name))));
                let count = one(&mut random, &[1, 2, 4, 8, 60]);
                for _ in 0..count {
                    let frame = one(&mut random, &frames);
                    lines.push(format!("add {}", rule(&mut random, &frame)));
                }
                if rarely(&mut random, 2) {
                    lines.push("mode all-match".into());
                }
                both.tell(lines);
            } else {
                for _ in 0..1 + random.below(2) {
                    serial += 1;
                    let frame = one(&mut random, &frames);
                    let line = change(&mut random, &both.rules, &frame, serial, false);
                    both.tell(vec![line]);
                }
            }
            both.check(&frames);
            done += FRAMES;
        }
        both.bench.finish();
        fates.iter_mut().zip(both.fates).for_each(|(all, of)| *all += of);
    }
    println!("{fates:?} of {done} frames were dropped, left alone, changed, stretched");
    assert!(fates.iter().all(|of| *of > done / 50), "every fate occurs: {fates:?} of {done}");
}
