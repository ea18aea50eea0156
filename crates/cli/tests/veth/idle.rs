//! Cost of a run without traffic, in processor time, which does not include other processes.

use std::time::{Duration, Instant};

use super::fixture::{Driver, Run, Segment};

/// A process's processor time, and the same plus the time that its threads waited for a core (ns).
fn times(run: &Run) -> (u64, u64) {
    let (mut ran, mut wanted) = (0, 0);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", run.process.id())).expect("it runs");
    for task in tasks.flatten() {
        // The fields are: time on a core, time runnable without a core, time slices.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
        let (on, waiting) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        ran += on;
        wanted += on + waiting;
    }
    (ran, wanted)
}

/// The share of one core that an idle run takes.
///
/// The second number is the share that it would take on an otherwise idle machine.
fn load(driver: Driver, policy: &str) -> Option<(f64, f64)> {
    let segment = Segment::new(&format!("idle-{policy}"), driver, &["ping"])?;
    let run = segment.start(&segment.chains(""), &["--idle", policy, "--workers", "1"]);
    segment.settle();
    std::thread::sleep(Duration::from_millis(500));
    let (start, before) = (Instant::now(), times(&run));
    std::thread::sleep(Duration::from_secs(3));
    let (elapsed, after) = (start.elapsed().as_nanos() as f64, times(&run));
    let load = ((after.0 - before.0) as f64 / elapsed, (after.1 - before.1) as f64 / elapsed);
    eprintln!(
        "{} {policy}: {:.2} % of a core ({:.2} % wanted)",
        driver.name(),
        load.0 * 100.0,
        load.1 * 100.0
    );
    // It still works.
    segment.settle();
    run.finish();
    Some(load)
}

#[test]
fn quiet_takes_less_than_2_percent_of_a_core() {
    for driver in Driver::ALL {
        let Some((took, _)) = load(driver, "quiet") else { return };
        assert!(took < 0.02, "{driver:?}: {took}");
    }
}

#[test]
fn latency_stays_busy() {
    let Some((_, wanted)) = load(Driver::AfPacket, "latency") else { return };
    assert!(wanted > 0.5, "{wanted}");
}
