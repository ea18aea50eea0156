//! Processes that are killed at random moments: all that they reported as done is there for the next one.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netbricks_control::store::{Base, Number, Record, State, Store};

const DIRECTORY: &str = "NETBRICKS_STORE_OF_KILLED_PROCESS";
const NAME: &str = "kill::fifty_killed_processes_lose_nothing_that_they_reported_as_done";
const KILLS: u64 = 50;

/// A directory that is removed in the end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("netbricks-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(number: Number) -> String {
    format!("# configuration {number}\n").repeat(1 + number.0 as usize % 40)
}

pub(super) fn base() -> Base {
    Base { origin: "edge.toml".into(), directory: "/etc".into() }
}

fn record(number: Number, index: usize) -> Record {
    let argument = format!("{number}/{index} {}", "x".repeat(index * 37 % 200));
    Record { function: "balance".into(), handler: "add".into(), argument, time: index as u64, tenant: None }
}

/// Prints each change before it is begun and after it was done. Every third configuration is not confirmed.
fn change_for_ever(directory: &Path) {
    let mut out = std::io::stdout();
    let mut say = |line: String| out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
    let mut store = Store::open(directory).unwrap();
    let mut last = store.confirmed().map(|saved| saved.number);
    let mut written = last.map_or(0, |last| store.records(last).unwrap().len());
    // The number that comes next, for the text has it.
    let mut next = store.history().first().map_or(1, |newest| newest.number.0 + 1);
    say("\nopened\n".into());
    loop {
        if let Some(last) = last {
            for _ in 0..3 {
                store.append(last, &record(last, written)).unwrap();
                written += 1;
                say(format!("appended {last} {written}\n"));
            }
            let many: Vec<_> = (written..written + 5).map(|index| record(last, index)).collect();
            store.append_many(last, &many).unwrap();
            written += many.len();
            say(format!("appended {last} {written}\n"));
        }
        let number = store.save(&text(Number(next)), &base(), "", next).unwrap();
        assert_eq!(number, Number(next));
        next += 1;
        say(format!("saved {number}\n"));
        if !number.0.is_multiple_of(3) {
            say(format!("confirms {number}\n"));
            store.confirm(number).unwrap();
            say(format!("confirmed {number}\n"));
            (last, written) = (Some(number), 0);
        }
    }
}

/// All that killed processes reported.
#[derive(Debug, Default)]
struct Reported {
    saved: u64,
    confirmed: Option<u64>,
    /// The one that is being confirmed.
    confirms: Option<u64>,
    /// Records of the confirmed configuration.
    appended: usize,
    /// All that were confirmed at some time.
    ever_confirmed: BTreeSet<u64>,
}

impl Reported {
    fn take(&mut self, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        match words[0] {
            "saved" => self.saved = number(1),
            "confirms" => self.confirms = Some(number(1)),
            "confirmed" => {
                (self.confirmed, self.confirms, self.appended) = (Some(number(1)), None, 0);
                self.ever_confirmed.insert(number(1));
            }
            "appended" => {
                assert_eq!(Some(number(1)), self.confirmed);
                self.appended = number(2) as usize;
            }
            other => panic!("{other}"),
        }
    }

    /// Opens the directory as the next process would, and takes over what it finds.
    fn check(&mut self, directory: &Path) {
        let mut store = Store::open(directory).unwrap();
        assert_eq!(store.warnings(), [], "{self:?}");
        let found = store.confirmed().cloned();
        let number = found.as_ref().map(|saved| saved.number.0);
        if number != self.confirmed {
            assert!(number.is_some() && number == self.confirms, "{number:?} is confirmed: {self:?}");
            (self.confirmed, self.appended) = (number, 0);
            self.ever_confirmed.extend(number);
        }
        self.confirms = None;
        let newest = store.history().first().map_or(0, |entry| entry.number.0);
        assert!(newest == self.saved || newest == self.saved + 1, "{newest} is the newest: {self:?}");
        self.saved = newest;
        assert!(store.history().len() <= 50);
        for entry in store.history() {
            assert_eq!(store.load(entry.number).unwrap().text, text(entry.number));
            let confirmed = self.ever_confirmed.contains(&entry.number.0);
            let expected = if confirmed { State::Confirmed } else { State::RolledBack };
            // One that the same process followed with a confirmed one stays applied.
            assert!(
                entry.state == expected || entry.state == State::Applied && !confirmed,
                "{entry:?}: {self:?}"
            );
        }
        let Some(saved) = found else { return };
        assert_eq!(saved.text, text(saved.number));
        let records = store.records(saved.number).unwrap();
        let most = self.appended + 5;
        assert!((self.appended..=most).contains(&records.len()), "{} records: {self:?}", records.len());
        for (index, found) in records.iter().enumerate() {
            assert_eq!(found, &record(saved.number, index));
        }
        self.appended = records.len();
    }
}

#[test]
fn fifty_killed_processes_lose_nothing_that_they_reported_as_done() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return change_for_ever(Path::new(&directory));
    }
    let scratch = Scratch::new("killed");
    let mut reported = Reported::default();
    // So many that the oldest are removed between kills, too.
    let mut store = Store::open(&scratch.0).unwrap();
    for number in (1..=45).map(Number) {
        assert_eq!(store.save(&text(number), &base(), "", 0).unwrap(), number);
        reported.saved = number.0;
    }
    drop(store);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut lines_seen = 0;
    for _ in 0..KILLS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, &scratch.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != "opened\n" {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "the process ended before it opened the store");
        }
        // The moment is random: some time after so many reports. Reports count, not time, so that a slow machine gets as far.
        let mut rest = String::new();
        for _ in 0..random % 24 {
            assert_ne!(out.read_line(&mut rest).unwrap(), 0, "the process ended by itself: {rest}");
        }
        std::thread::sleep(Duration::from_micros(random / 24 % 5_000));
        child.kill().unwrap();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended by itself: {rest}");
        // A line that was cut was not reported.
        for line in rest.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            reported.take(line.trim_end());
            lines_seen += 1;
        }
        reported.check(&scratch.0);
    }
    println!("{lines_seen} reports, {reported:?}");
    assert!(reported.confirmed.is_some(), "{reported:?}");
}
