//! `bench mmb-live`: rules that are typed and loaded while packets flow at a steady rate.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use netbricks_control::Call;
use netbricks_control::api::{Answers, Code, Problem};
use serde::Serialize;

use super::bench_control::{Asked, beside_a_run};
use super::{Application, BenchArguments, Console, Failure};
use crate::bench::filters::filters;
use crate::bench::gaps::LongestGap;

/// How much is measured.
struct Extent {
    /// Rules that are typed, each time by one of two ways.
    typed: usize,
    /// Rules that are loaded.
    loaded: usize,
    /// Loads, of which the median is told.
    loads: usize,
    /// The time without changes in which packets are counted.
    quiet: Duration,
}

const WHOLE: Extent = Extent { typed: 2_000, loaded: 100_000, loads: 3, quiet: Duration::from_secs(2) };

/// A million packets a second, of 65,536 flows, through the rules.
const CONFIGURATION: &str = "[port.lan]\ndriver = \"generator\"\nclock = \"real\"\nrate = \"1 Mpps\"\nflows = 65536\n\
    [port.out]\ndriver = \"null\"\n\
    [function.gaps]\nuse = \"longest-gap\"\n[function.edge]\nuse = \"mmb\"\n\
    [[chain]]\nfrom = \"lan\"\nthrough = [\"gaps\", \"edge\"]\nto = \"out\"\n[runtime]\nworkers = 1\n";

/// The figures.
#[derive(Debug, Default, Serialize)]
struct Figures {
    /// Millions of packets a second without changes.
    mpps: f64,
    /// The worker's longest time between two batches without changes (µs).
    gap_us: f64,
    /// Rules that were typed one by one, among few and among many others.
    typed: Vec<Typed>,
    loaded: Loaded,
    /// Packets of the whole run that neither left nor were dropped by a rule.
    lost: u64,
}

/// Rules that were typed one by one.
#[derive(Debug, Serialize)]
struct Typed {
    /// Rules before the first.
    among: usize,
    rules: usize,
    /// From the call to the answer, after which no packet misses the rule (µs).
    median_us: f64,
    p99_us: f64,
    /// The director's part of it (µs).
    director_median_us: f64,
    director_p99_us: f64,
    mpps: f64,
    gap_us: f64,
}

/// Rules that came in one call.
#[derive(Debug, Default, Serialize)]
struct Loaded {
    rules: usize,
    /// From the call to the answer (s), in the median and at most.
    seconds: f64,
    most_seconds: f64,
    mpps: f64,
    gap_us: f64,
}

pub(super) fn bench_rules(console: Console, arguments: &BenchArguments) -> Result<(), Failure> {
    let figures = measured(console, &WHOLE)?;
    if arguments.json { console.json(&figures) } else { console.print(&figures.text()) }
}

fn measured(console: Console, extent: &'static Extent) -> Result<Figures, Failure> {
    let (mut registry, gap) = (crate::standard(), LongestGap::default());
    gap.register(&mut registry);
    let app = Application::new(registry, crate::Drivers::standard());
    beside_a_run(&app, console, CONFIGURATION, move |run: &Asked| measure(run, &gap, extent))
}

fn measure(run: &Asked, gap: &LongestGap, extent: &Extent) -> Result<Figures, Problem> {
    let lines = filters(2 * extent.typed + extent.loaded);
    let (few, rest) = lines.split_at(extent.typed);
    let (file, many) = rest.split_at(extent.loaded);
    let mut figures = Figures::default();
    let quiet = || {
        std::thread::sleep(extent.quiet);
        Ok(())
    };
    ((), figures.mpps, figures.gap_us) = observed(run, gap, quiet)?;
    figures.typed.push(typed(run, gap, few, 0)?);
    let text = file.join("\n") + "\n";
    let mut seconds = Vec::new();
    for _ in 0..extent.loads {
        run.client.write("edge", "run", "flush", None)?;
        let load = || {
            let begun = Instant::now();
            let answers = run.client.write("edge", "run", &text, None)?;
            Ok((begun.elapsed().as_secs_f64(), answers))
        };
        let ((time, answers), mpps, gap_us) = observed(run, gap, load)?;
        let told = format!("{} changes, {} rules\n", file.len(), file.len());
        is_told(&answers, &told)?;
        seconds.push(time);
        let gap_us = gap_us.max(figures.loaded.gap_us);
        figures.loaded = Loaded { rules: file.len(), mpps, gap_us, ..Loaded::default() };
    }
    seconds.sort_by(f64::total_cmp);
    figures.loaded.seconds = seconds[seconds.len() / 2];
    figures.loaded.most_seconds = seconds.last().copied().unwrap_or_default();
    figures.typed.push(typed(run, gap, many, file.len())?);
    let status = run.client.status()?;
    let done = status.sent.packets + status.dropped;
    // What the worker has at hand was received, and is told as sent a moment later.
    figures.lost = status.received.packets.saturating_sub(done);
    Ok(figures)
}

/// Millions of packets a second, and the worker's longest gap (µs), while something goes on.
fn observed<R>(
    run: &Asked,
    gap: &LongestGap,
    meanwhile: impl FnOnce() -> Result<R, Problem>,
) -> Result<(R, f64, f64), Problem> {
    let (begun, before) = (Instant::now(), run.client.status()?.received.packets);
    gap.take();
    let done = meanwhile()?;
    let longest = gap.take().as_secs_f64() * 1e6;
    let packets = run.client.status()?.received.packets - before;
    Ok((done, packets as f64 / begun.elapsed().as_secs_f64() / 1e6, longest))
}

/// Types rules one by one behind so many others.
///
/// The first half goes over the socket, the second to the director itself.
fn typed(run: &Asked, gap: &LongestGap, lines: &[String], among: usize) -> Result<Typed, Problem> {
    let (by_client, by_director) = lines.split_at(lines.len() / 2);
    let mut rules = among;
    let mut told = || {
        rules += 1;
        format!("rule {rules} of {rules}\n")
    };
    let work = || {
        let (mut round_trips, mut own) = (Vec::new(), Vec::new());
        for line in by_client {
            let begun = Instant::now();
            let answers = run.client.write("edge", "run", line, None)?;
            round_trips.push(begun.elapsed().as_secs_f64() * 1e6);
            is_told(&answers, &told())?;
        }
        for line in by_director {
            let (answers, time) = directed(run, line)?;
            own.push(time.as_secs_f64() * 1e6);
            is_told(&answers, &told())?;
        }
        Ok((percentiles(round_trips), percentiles(own)))
    };
    let (((median_us, p99_us), (director_median_us, director_p99_us)), mpps, gap_us) =
        observed(run, gap, work)?;
    let rules = lines.len();
    Ok(Typed { among, rules, median_us, p99_us, director_median_us, director_p99_us, mpps, gap_us })
}

/// Has the director write a line, and answers how long it worked.
fn directed(run: &Asked, line: &str) -> Result<(Answers, Duration), Problem> {
    let call = Call {
        function: "edge".into(),
        handler: "run".into(),
        argument: line.to_owned(),
        write: true,
        worker: None,
        deadline: Instant::now() + Duration::from_secs(10),
    };
    let (sender, answer) = channel();
    let tasks = run.tasks.clone();
    run.tasks.post(move |director| {
        let (answered, begun) = (sender.clone(), Instant::now());
        // The thread that measures may have ended.
        let answer = Box::new(move |_, result| drop(answered.send((result, Duration::ZERO))));
        director.write(call, None, None, &tasks, answer);
        let none = Err(Problem::new(Code::Internal, "the director only tells the time"));
        drop(sender.send((none, begun.elapsed())));
    })?;
    let ended = |_| Problem::new(Code::Ending, "the director ended early");
    let (answers, _) = answer.recv().map_err(ended)?;
    let (_, time) = answer.recv().map_err(ended)?;
    Ok((answers?, time))
}

/// Checks that the answer is this one, which also says that no line was warned about.
fn is_told(answers: &Answers, expected: &str) -> Result<(), Problem> {
    let found = answers.answers.first().map(|answer| answer.value.as_str()).unwrap_or_default();
    // Rules of a set hide each other now and then, and are there all the same.
    if found.ends_with(expected) {
        return Ok(());
    }
    let end: String = found.lines().next_back().unwrap_or_default().into();
    Err(Problem::new(Code::Internal, format!("the rules should answer `{expected}`, found `{end}`")))
}

/// The median and the 99th percentile.
fn percentiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |part: usize| values.get(values.len() * part / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

impl Figures {
    fn text(&self) -> String {
        let Self { mpps, gap_us, typed, loaded, lost } = self;
        let mut text =
            format!("without changes   {mpps:10.3} Mpps, longest gap of the worker {gap_us:.0} µs\n");
        text += "rules typed        among  median µs     99th %  director µs     99th %       Mpps  longest gap\n";
        for Typed { among, rules, median_us, p99_us, director_median_us, director_p99_us, mpps, gap_us } in
            typed
        {
            text += &format!(
                "  {rules:<14} {among:7} {median_us:10.1} {p99_us:10.1} {director_median_us:12.1} \
                 {director_p99_us:10.1} {mpps:10.3} {gap_us:12.0}\n"
            );
        }
        let Loaded { rules, seconds, most_seconds, mpps, gap_us } = loaded;
        text += &format!(
            "rules loaded      {rules:10} in {seconds:.2} s (at most {most_seconds:.2}), {mpps:.3} Mpps, longest gap \
             {gap_us:.0} µs\n"
        );
        text + &format!("packets lost      {lost:10}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Extent = Extent { typed: 40, loaded: 500, loads: 2, quiet: Duration::from_millis(20) };

    /// Also that packets are conserved, and that each rule is there: both are errors otherwise.
    #[test]
    fn the_benchmark_of_live_rules_ends_well_and_has_all_its_figures() {
        let console = Console { color: false, live: false };
        let figures = measured(console, &SHORT).unwrap_or_else(|_| panic!("it fails"));
        let among: Vec<(usize, usize)> =
            figures.typed.iter().map(|typed| (typed.among, typed.rules)).collect();
        assert_eq!((among, figures.loaded.rules), (vec![(0, 40), (500, 40)], 500));
        assert!(figures.mpps > 0.0 && figures.gap_us > 0.0 && figures.loaded.seconds > 0.0);
        assert!(figures.typed.iter().all(|typed| typed.p99_us > 0.0 && typed.director_p99_us > 0.0));
        let text = figures.text();
        assert!(text.lines().last().is_some_and(|line| line.starts_with("packets lost ")), "{text}");
    }
}
