//! Turns of a run without traffic. They are counted: a share of a core would tell of other processes too.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::fixture::{Driver, Run, Segment};

/// The turns and sleeps of the only worker so far.
fn turns(run: &Run) -> [u64; 2] {
    let said = run.command("show", &["workers", "--json"]);
    let workers: Value = serde_json::from_str(&said).expect("JSON");
    ["turns", "sleeps"].map(|name| workers[0][name].as_u64().unwrap_or_else(|| panic!("no {name}: {said}")))
}

/// Turns and sleeps of a run without traffic, for each second.
fn idle(driver: Driver, policy: &str) -> Option<[f64; 2]> {
    let segment = Segment::new(&format!("idle-{policy}"), driver, &["ping"])?;
    let run = segment.start_with_socket(&segment.chains(""), &["--idle", policy, "--workers", "1"]);
    segment.settle();
    let (start, before) = (Instant::now(), turns(&run));
    std::thread::sleep(Duration::from_secs(3));
    let (after, seconds) = (turns(&run), start.elapsed().as_secs_f64());
    // It still works.
    segment.settle();
    run.finish();
    let [turns, sleeps] = [0, 1].map(|which| (after[which] - before[which]) as f64 / seconds);
    eprintln!("{} {policy}: {turns:.0} turns and {sleeps:.0} sleeps a second", driver.name());
    Some([turns, sleeps])
}

/// A turn takes some 10 µs: 1,000 a second are 1 % of a core.
#[test]
fn quiet_takes_few_turns() {
    for driver in Driver::ALL {
        let Some([turns, sleeps]) = idle(driver, "quiet") else { return };
        assert!(turns < 1_000.0 && sleeps > 0.0, "{driver:?}: {turns} turns, {sleeps} sleeps a second");
    }
}

#[test]
fn latency_never_sleeps() {
    let Some([turns, sleeps]) = idle(Driver::AfPacket, "latency") else { return };
    assert!(turns > 10_000.0 && sleeps == 0.0, "{turns} turns, {sleeps} sleeps a second");
}
