//! Runs that are killed at random moments, between and in changes.
//!
//! A model says what a start without a file has to run. Where a change was under way, either of two.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use netbricks_testkit::mutate::Random;
use serde_json::Value;

use super::dataplane::{Directory, Run, SOCKET, STATE, Told};

/// How often a run is killed.
const KILLS: usize = 50;

/// A file, by what differs between those of this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Variant {
    ttl: bool,
    /// The next hop of the default route: another one replaces `routes`.
    hop: usize,
    /// The weight of the first backend: another one replaces `balance`.
    weight: usize,
}

impl Variant {
    fn any(random: &mut Random) -> Self {
        Self { ttl: random.below(2) == 1, hop: 1 + random.below(2), weight: 1 + random.below(2) }
    }

    fn text(self) -> String {
        let Self { ttl, hop, weight } = self;
        let ttl = if ttl { "\"ttl\", " } else { "" };
        super::dataplane::FILE
            .replace("0.0.0.0/0 1", &format!("0.0.0.0/0 {hop}"))
            .replace("web1 02:00:00:00:00:01", &format!("web1 02:00:00:00:00:01 {weight}"))
            .replace("[\"routes\"", &format!("[{ttl}\"routes\""))
    }
}

/// A configuration with what handlers have changed of it, by number of the change.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Configuration {
    variant: Variant,
    routes: BTreeSet<usize>,
    backends: BTreeSet<usize>,
}

impl Configuration {
    /// The number of writes in its journal.
    fn writes(&self) -> usize {
        self.routes.len() + self.backends.len()
    }

    /// The configuration where this variant takes over: writes to functions that are replaced are made again.
    fn replaced_by(&self, variant: Variant) -> Self {
        Self { variant, ..self.clone() }
    }
}

/// A command that changes what runs.
#[derive(Clone, Copy, Debug)]
enum Change {
    Apply(Variant),
    ApplyToConfirm(Variant),
    Confirm,
    /// Back to the configuration of this number.
    Rollback(u64),
    Route(usize),
    Backend(usize),
}

impl Change {
    fn words(self) -> Vec<String> {
        let line = match self {
            Self::Apply(_) => "apply next.toml --json".to_owned(),
            Self::ApplyToConfirm(_) => "apply next.toml --confirm 1h --json".to_owned(),
            Self::Confirm => "confirm --json".to_owned(),
            Self::Rollback(to) => format!("rollback --to {to} --json"),
            Self::Route(number) => format!("set routes.add 10.{number}.0.0/16 7 --json"),
            Self::Backend(number) => {
                format!("set balance.add live{number} 02:00:00:00:01:{number:02x} --json")
            }
        };
        line.split(' ').map(str::to_owned).collect()
    }

    fn makes_a_configuration(self) -> bool {
        matches!(self, Self::Apply(_) | Self::ApplyToConfirm(_) | Self::Rollback(_))
    }
}

/// The configurations, and the one that has to run.
#[derive(Clone, Debug, Default)]
struct Model {
    configurations: BTreeMap<u64, Configuration>,
    running: u64,
    /// The configuration that comes back unless the running one is confirmed.
    back_to: Option<u64>,
}

impl Model {
    fn now(&self) -> &Configuration {
        &self.configurations[&self.running]
    }

    /// After a change; a configuration that it makes has this number, if no other has it.
    fn after(mut self, change: Change, number: u64) -> Self {
        let number = if self.configurations.contains_key(&number) { u64::MAX } else { number };
        let now = self.now().clone();
        let (before, back_to) = (self.running, self.back_to);
        match change {
            // The file that runs is as it was, and takes no other number.
            Change::Apply(variant) if variant == now.variant && back_to.is_none() => {}
            Change::Confirm => self.back_to = None,
            Change::Route(route) => _ = self.configurations.entry(before).or_default().routes.insert(route),
            Change::Backend(backend) => {
                _ = self.configurations.entry(before).or_default().backends.insert(backend);
            }
            Change::Apply(variant) | Change::ApplyToConfirm(variant) => {
                let next = now.replaced_by(variant);
                self.configurations.insert(number, next);
                self.running = number;
                let to_confirm = matches!(change, Change::ApplyToConfirm(_));
                self.back_to = to_confirm.then_some(back_to.unwrap_or(before));
            }
            Change::Rollback(to) => {
                // With the writes that it had, and none since.
                let next = self.configurations[&to].clone();
                self.configurations.insert(number, next);
                (self.running, self.back_to) = (number, None);
            }
        }
        self
    }

    /// After a kill and a start.
    fn restarted(mut self) -> Self {
        self.running = self.back_to.take().unwrap_or(self.running);
        self
    }
}

/// The variant of a file that runs, beside the entries that handlers added to its lists.
fn variant(text: &str) -> Option<Variant> {
    /// Takes the entries of a function out of a file.
    fn take(file: &mut toml::Table, function: &str, key: &str) -> Vec<String> {
        let entries = file["function"][function].as_table_mut().and_then(|table| table.remove(key));
        let entries: Option<Vec<String>> = entries.and_then(|entries| entries.try_into().ok());
        entries.expect("a list of lines")
    }
    let mut file: toml::Table = text.parse().expect("TOML");
    let (routes, backends) = (take(&mut file, "routes", "routes"), take(&mut file, "balance", "backends"));
    let last = |entries: &[String], start: &str| {
        let entry = entries.iter().find(|entry| entry.starts_with(start))?;
        entry.rsplit(' ').next()?.parse().ok()
    };
    let variant = Variant {
        ttl: file["chain"][0]["through"][0].as_str() == Some("ttl"),
        hop: last(&routes, "0.0.0.0/0 ")?,
        weight: last(&backends, "web1 ")?,
    };
    let mut expected: toml::Table = variant.text().parse().expect("TOML");
    take(&mut expected, "routes", "routes");
    take(&mut expected, "balance", "backends");
    (file == expected).then_some(variant)
}

/// The running configuration as the run tells it, with its number.
fn found(directory: &Directory) -> (u64, Configuration) {
    let questions =
        ["status --json", "config --json", "get routes.routes 1000 --json", "get balance.backends --json"];
    let words = questions.iter().flat_map(|question| ["-c", question]);
    let told = directory.ask(&["shell"].into_iter().chain(words).collect::<Vec<_>>()).well();
    let answers: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [status, config, routes, backends] = answers.as_slice() else { panic!("{told}") };
    let text = config["text"].as_str().expect("text");
    let value = |answers: &Value| answers["answers"][0]["value"].as_str().expect("text").to_owned();
    // The second byte of a route's prefix, and the number in a backend's name, are those of the write.
    let routes = value(routes);
    let routes = routes.lines().filter_map(|line| line.strip_prefix("10.")?.split('.').next()?.parse().ok());
    let backends = value(backends);
    let backends =
        backends.lines().filter_map(|line| line.strip_prefix("live")?.split(' ').next()?.parse().ok());
    let configuration = Configuration {
        variant: variant(text).unwrap_or_else(|| panic!("another file runs: {text}")),
        routes: routes.collect(),
        backends: backends.collect(),
    };
    assert_eq!(status["confirmed"], true, "{status}");
    assert_eq!(status["journal"].as_u64(), Some(configuration.writes() as u64), "{status} {configuration:?}");
    (status["configuration"].as_u64().expect("a number"), configuration)
}

/// Draws changes that can succeed.
struct Changes {
    random: Random,
    writes: usize,
}

impl Changes {
    fn next(&mut self, directory: &Directory, model: &Model) -> Change {
        let change = match self.random.below(if model.back_to.is_some() { 7 } else { 6 }) {
            0 => Change::Apply(Variant::any(&mut self.random)),
            1 => Change::ApplyToConfirm(Variant::any(&mut self.random)),
            2 if let Some(to) = earlier(directory, model) => Change::Rollback(to),
            2 | 3 => {
                self.writes += 1;
                Change::Route(self.writes)
            }
            4 | 5 => {
                self.writes += 1;
                Change::Backend(self.writes)
            }
            _ => Change::Confirm,
        };
        if let Change::Apply(variant) | Change::ApplyToConfirm(variant) = change {
            directory.write("next.toml", &variant.text());
        }
        change
    }
}

/// Where a rollback goes, by the history.
fn earlier(directory: &Directory, model: &Model) -> Option<u64> {
    let history = directory.json(&["history"]);
    let confirmed = |entry: &&Value| entry["state"] == "confirmed";
    let numbers = history.as_array().expect("a list").iter().filter(confirmed);
    let last = numbers.filter_map(|entry| entry["number"].as_u64()).find(|number| *number < model.running);
    model.back_to.or(last)
}

/// Makes a change, in which the run is killed. Returns whether the command said that it was made.
fn kill_in(directory: &Directory, run: &mut Run, change: Change, after: Duration) -> bool {
    let words = change.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = directory.client(&words);
    let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let client = client.expect("the binary was built for this test");
    std::thread::sleep(after);
    run.kill();
    let told = Told::from(client.wait_with_output().expect("it is a child"));
    assert!(told.code == Some(0) || told.code == Some(1), "{change:?}: {told:?}");
    told.code == Some(0)
}

/// Makes a change that must succeed.
fn change(directory: &Directory, model: Model, change: Change) -> Model {
    let words = change.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = directory.ask(&words).json();
    let model = model.after(change, answer["configuration"].as_u64().unwrap_or_default());
    if change.makes_a_configuration() {
        assert_eq!(answer["configuration"].as_u64(), Some(model.running), "{answer}");
    }
    model
}

#[test]
fn a_start_after_kill_9_runs_what_was_confirmed_last_with_its_live_changes() {
    let directory = Directory::new("killed");
    let first = Variant { ttl: false, hop: 1, weight: 1 };
    directory.write("first.toml", &first.text());
    let mut run = directory.run(&["first.toml", "--state", STATE]);
    let first = Configuration { variant: first, ..Configuration::default() };
    let mut model = Model { configurations: BTreeMap::from([(1, first)]), running: 1, ..Model::default() };
    let mut changes = Changes { random: Random::new(30), writes: 0 };
    let (mut made, mut cut) = (0, 0);
    let mut taken = Duration::from_millis(20);
    for kill in 0..KILLS {
        for _ in 0..changes.random.below(3) {
            let next = changes.next(&directory, &model);
            let start = Instant::now();
            model = change(&directory, model, next);
            taken = start.elapsed();
        }
        // Twice as long as the last change took, so that kills fall into all of its parts and behind them.
        let after = Duration::from_micros(changes.random.below(2 * taken.as_micros() as usize) as u64);
        let next = changes.next(&directory, &model);
        let done = kill_in(&directory, &mut run, next, after);
        (made, cut) = if done { (made + 1, cut) } else { (made, cut + 1) };

        if kill % 5 == 0 {
            // Killed while it starts, too: nothing changes by that.
            let mut starting =
                directory.begin(directory.netbricks(&["run", "--state", STATE, "--socket", SOCKET]));
            std::thread::sleep(Duration::from_millis(changes.random.below(60) as u64));
            starting.kill();
        }
        run = directory.run(&["--state", STATE]);
        let (number, found) = found(&directory);
        let before = model.clone().restarted();
        let after = model.clone().after(next, number).restarted();
        let fits = |model: &Model| model.running == number && *model.now() == found;
        assert!(
            fits(&after) || !done && fits(&before),
            "kill {kill} in {next:?}, {}: configuration {number} runs, {found:?}; expected of {model:?}",
            if done { "which was made" } else { "which was not answered" }
        );
        model = if fits(&after) { after } else { before };
    }
    eprintln!("killed in {KILLS} changes: {made} were answered before, {cut} were not");
    directory.ask(&["stop"]).well();
    run.report();
    assert!(!directory.path().join(SOCKET).exists(), "the socket goes with its run");
}
