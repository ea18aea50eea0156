//! The same decision as `tcpdump -r`, for every expression and every frame.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use netbricks_core::filter::Filter;
use netbricks_testkit::captures;

use crate::expressions;
use crate::frames::{self, Captured};

/// A capture in which a frame's time stamp is its number.
struct Capture {
    path: PathBuf,
    frames: Vec<Captured>,
}

impl Capture {
    fn new(name: &str, frames: Vec<Captured>) -> Self {
        let path = std::env::temp_dir().join(format!("netbricks-filter-{}-{name}.pcap", std::process::id()));
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 262_144, 1] {
            bytes.extend(word.to_le_bytes());
        }
        for (number, frame) in frames.iter().enumerate() {
            for word in [number, 0, frame.bytes.len(), frame.wire_len] {
                bytes.extend((word as u32).to_le_bytes());
            }
            bytes.extend(&frame.bytes);
        }
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        Self { path, frames }
    }

    /// The frames that tcpdump prints, or its message.
    fn tcpdump(&self, options: &[&str], expression: &str) -> Result<Vec<bool>, String> {
        let output = Command::new("tcpdump")
            .args(["-r", "-", "-w", "-"])
            .args(options)
            .args(["--", expression])
            .stdin(File::open(&self.path).unwrap())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut accepted = vec![false; self.frames.len()];
        let mut rest = output.stdout.get(24..).unwrap();
        while let Some((head, body)) = rest.split_at_checked(16) {
            let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap()) as usize;
            accepted[word(0)] = true;
            rest = &body[word(8)..];
        }
        Ok(accepted)
    }

    fn ours(&self, filter: &Filter) -> Vec<bool> {
        self.frames.iter().map(|frame| filter.matches(&frame.bytes, frame.wire_len)).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _removed = std::fs::remove_file(&self.path);
    }
}

fn tcpdump_is_there() -> bool {
    let found = Command::new("tcpdump").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no tcpdump to compare with");
    }
    found
}

fn all_frames() -> Vec<Captured> {
    let mut all = frames::generated();
    for path in captures::files() {
        all.extend(read(&path));
    }
    all
}

fn read(path: &Path) -> impl Iterator<Item = Captured> {
    captures::records(path).into_iter().filter_map(|(bytes, wire_len)| {
        // tcpdump refuses a record that is longer than on the wire in no way, but a test needs no such frame.
        (bytes.len() <= wire_len && wire_len < 65_536).then_some(Captured { bytes, wire_len })
    })
}

/// The counts and findings of all comparisons.
#[derive(Default)]
struct Tally {
    expressions: usize,
    /// Refused by both.
    refused: usize,
    /// Refused by a mistake of tcpdump's compiler.
    mistaken: usize,
    decisions: usize,
    /// Decisions that only `tcpdump -O` shares.
    reordered: usize,
    /// Those on frames that are not cut.
    whole: usize,
    disagreements: Vec<String>,
}

/// Compares one expression on all frames.
///
/// tcpdump's optimiser reorders and removes tests, which changes the decision on some frames that end within
/// the bytes of a test. It also takes some divisors for 0, and refuses what rejects all frames. There, the
/// decision of `tcpdump -O`, without the optimiser, is right.
fn compare(capture: &Capture, expression: &str, tally: &mut Tally) {
    tally.expressions += 1;
    let theirs = capture.tcpdump(&[], expression);
    let filter = match (Filter::parse(expression), &theirs) {
        (Ok(filter), _) => filter,
        (Err(_), Err(_)) => {
            tally.refused += 1;
            return;
        }
        (Err(error), Ok(_)) => {
            tally.disagreements.push(format!("{expression}: only we refuse it: {error}"));
            return;
        }
    };
    let ours = capture.ours(&filter);
    if theirs.as_ref() == Ok(&ours) {
        tally.decisions += ours.len();
        return;
    }
    let unoptimised = match capture.tcpdump(&["-O"], expression) {
        Ok(unoptimised) => unoptimised,
        // It takes the index 0 in a divisor such as `tcp[0:2]`, or a large one in a shift, for the number.
        Err(message) if ["division", "modulus", "shift"].iter().any(|word| message.contains(word)) => {
            tally.mistaken += 1;
            return;
        }
        Err(message) => {
            tally.disagreements.push(format!("{expression}: only tcpdump refuses it: {message}"));
            return;
        }
    };
    tally.decisions += ours.len();
    let theirs = theirs.unwrap_or_else(|_| unoptimised.clone());
    let (mut reordered, mut whole) = (0, 0);
    for (number, frame) in capture.frames.iter().enumerate() {
        if ours[number] == theirs[number] {
            continue;
        }
        if ours[number] != unoptimised[number] {
            let (decision, frame) = (ours[number], &frame.bytes);
            tally.disagreements.push(format!("{expression}: we say {decision} of {number}: {frame:02x?}"));
            return;
        }
        reordered += 1;
        whole += usize::from(frame.bytes.len() == frame.wire_len);
    }
    tally.reordered += reordered;
    tally.whole += whole;
    if reordered > 0 {
        println!("{expression}: as tcpdump -O, not as tcpdump, on {reordered} frames, {whole} of them whole");
    }
}

#[test]
fn every_expression_accepts_the_frames_that_tcpdump_accepts() {
    if !tcpdump_is_there() {
        return;
    }
    let capture = Capture::new("all", all_frames());
    let mut tally = Tally::default();
    for expression in expressions::all() {
        compare(&capture, &expression, &mut tally);
    }
    println!(
        "{} expressions ({} refused by both, {} by a mistake of tcpdump) on {} frames: {} decisions, {} of them \
         as tcpdump -O ({} on whole frames), {} disagreements",
        tally.expressions,
        tally.refused,
        tally.mistaken,
        capture.frames.len(),
        tally.decisions,
        tally.reordered,
        tally.whole,
        tally.disagreements.len()
    );
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
}
