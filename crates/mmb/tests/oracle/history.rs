//! The steps that were told and sent to both, and the fewest after which they differ.

use std::time::Duration;

use netbricks_mmb::language::parse_command;

use crate::stateless::bench;
use crate::verdict::{Fate, Rules};

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Line(String),
    Frame(Vec<u8>),
    /// Seconds.
    Wait(u64),
}

/// The frame at which both first differ, what was expected, and what was found.
fn difference(steps: &[Step]) -> Option<(usize, Fate, Option<Vec<u8>>)> {
    let (mut bench, mut rules) = (bench(&[]), Rules::default());
    for (place, step) in steps.iter().enumerate() {
        match step {
            Step::Line(line) => {
                rules.command(parse_command(line).ok()??);
                bench.call("run", line);
            }
            Step::Wait(seconds) => {
                rules.now += seconds;
                bench.advance(Duration::from_secs(*seconds));
            }
            Step::Frame(frame) => {
                let report = bench.send([frame.clone()]);
                let out = report.out.into_iter().map(|frame| (0, frame));
                let out = out.chain(report.replies.into_iter().map(|frame| (1, frame))).next();
                let fate = rules.fate(frame);
                if !fate.is(out.as_ref().map(|(output, frame)| (*output, &frame[..]))) {
                    return Some((place, fate, out.map(|(_, frame)| frame)));
                }
            }
        }
    }
    None
}

/// Fails with the fewest frames and waits after which both still differ.
pub(crate) fn report(mut steps: Vec<Step>) -> ! {
    let Some((place, ..)) = difference(&steps) else {
        panic!("they differ in batches only, after {steps:02x?}");
    };
    steps.truncate(place + 1);
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut end = steps.len() - 1;
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut fewer = steps.clone();
            let mut at = 0;
            fewer.retain(|step| {
                at += 1;
                !(start + 1..=end).contains(&at) || matches!(step, Step::Line(_))
            });
            if fewer.len() < steps.len()
                && let Some((place, ..)) = difference(&fewer)
            {
                fewer.truncate(place + 1);
                steps = fewer;
            }
            end = start.min(steps.len() - 1);
        }
        size /= 2;
    }
    let (_, expected, found) = difference(&steps).expect("they differ after these steps");
    let steps: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Line(line) => line.clone(),
            Step::Frame(frame) => format!("frame {frame:02x?}"),
            Step::Wait(seconds) => format!("wait {seconds} s"),
        })
        .collect();
    panic!("they differ:\n{}\nexpected {expected:02x?}\nfound    {found:02x?}", steps.join("\n"));
}
