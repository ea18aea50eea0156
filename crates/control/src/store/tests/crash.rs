//! Crashes after each operation and each byte: what was reported as done is there, and nothing is damaged.

use super::simulated::{Files, Operation, Simulated};
use super::*;

/// All that a store holds, kept by the test as each step says it should be.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    confirmed: Option<Number>,
    running: Option<Number>,
    given_up: std::collections::BTreeSet<Number>,
    texts: BTreeMap<Number, String>,
    journals: BTreeMap<Number, Vec<Record>>,
}

enum Step {
    Save(&'static str),
    Run(u64),
    Confirm(u64),
    GiveUp(u64),
    Append(u64, &'static [&'static str]),
    Carry(u64, u64, fn(&Record) -> bool),
}

use Step::{Append, Carry, Confirm, GiveUp, Run, Save};

impl Step {
    fn perform(&self, store: &mut Store, model: &mut Model) {
        match *self {
            Save(text) => {
                let number = store.save(text, &base(), "", 7).unwrap();
                assert!(model.texts.insert(number, text.into()).is_none());
                let before = model.texts.keys().rev().nth(1).copied();
                let protected = [Some(number), before, model.confirmed, model.running];
                while model.texts.len() > SMALL.kept {
                    let numbers = model.texts.keys().filter(|&&n| !protected.contains(&Some(n)));
                    // Those that were given up go first, and then the oldest.
                    let oldest = *numbers.min_by_key(|&n| (!model.given_up.contains(n), *n)).unwrap();
                    model.texts.remove(&oldest);
                    model.journals.remove(&oldest);
                }
            }
            Run(number) => {
                store.set_running(Number(number)).unwrap();
                model.running = Some(Number(number));
            }
            Confirm(number) => {
                store.confirm(Number(number)).unwrap();
                model.confirmed = Some(Number(number));
            }
            GiveUp(number) => {
                store.give_up(Number(number), Outcome::RolledBack).unwrap();
                model.given_up.insert(Number(number));
            }
            Append(number, arguments) => {
                let records: Vec<_> = arguments.iter().map(|argument| record(argument)).collect();
                store.append_many(Number(number), &records).unwrap();
                model.journals.entry(Number(number)).or_default().extend(records);
            }
            Carry(from, to, keep) => {
                store.carry(Number(from), Number(to), keep).unwrap();
                let records: Vec<_> =
                    model.journals[&Number(from)].iter().filter(|r| keep(r)).cloned().collect();
                model.journals.insert(Number(to), records);
            }
        }
    }
}

const SCRIPT: &[Step] = &[
    Save("one"),
    Run(1),
    Confirm(1),
    Append(1, &["a"]),
    Append(1, &["b", "c", "d"]),
    // Two has a confirm window, and is given up in it.
    Save("two"),
    Carry(1, 2, |record| record.argument != "b"),
    Run(2),
    Append(2, &["e"]),
    Append(1, &["f"]),
    GiveUp(2),
    Run(1),
    Save("three\nlines\n"),
    Carry(1, 3, |record| *record.argument > *"b"),
    Run(3),
    Confirm(3),
    Append(3, &["g"]),
    // From here on the oldest are removed.
    Save("four"),
    Append(4, &["h", "i"]),
    Save("five"),
    Run(5),
    Confirm(4),
    Save("six"),
    Save(""),
    Carry(4, 7, |_| true),
    Confirm(7),
    Confirm(5),
];

/// The model after each step, with the number of operations until then.
fn history_of(disk: &Simulated) -> Vec<(usize, Model)> {
    let mut store = reopen(disk);
    let mut model = Model::default();
    let mut history = vec![(0, model.clone())];
    for step in SCRIPT {
        step.perform(&mut store, &mut model);
        history.push((disk.operations(), model.clone()));
    }
    assert_eq!(store.warnings(), []);
    history
}

/// The step that was under way after so many operations: the model before and after it.
fn around(history: &[(usize, Model)], operations: usize) -> (&Model, &Model) {
    let next = history.partition_point(|(end, _)| *end <= operations);
    (&history[next - 1].1, &history[next.min(history.len() - 1)].1)
}

fn check(files: &Files, before: &Model, after: &Model) -> Simulated {
    let disk = Simulated::of(files);
    let mut store = reopen(&disk);
    assert_eq!(store.warnings(), [], "{files:?}");
    let confirmed = store.confirmed().map(|saved| saved.number);
    assert!([before.confirmed, after.confirmed].contains(&confirmed), "{confirmed:?}: {files:?}");
    assert!(store.history().len() <= SMALL.kept, "{files:?}");
    for (&number, text) in &before.texts {
        match store.load(number) {
            Ok(saved) => assert_eq!(&saved.text, text),
            Err(error) => assert!(!after.texts.contains_key(&number), "{error}: {files:?}"),
        }
    }
    if let Some(saved) = store.confirmed().cloned() {
        assert_eq!(Some(&saved.text), before.texts.get(&saved.number));
        assert_eq!(saved.base, base());
    }
    for number in store.history().into_iter().map(|entry| entry.number) {
        let records = store.records(number).unwrap();
        let of = |model: &Model| model.journals.get(&number).cloned().unwrap_or_default();
        let (least, most) = (of(before), of(after));
        // The journal of a configuration that is just being removed goes first.
        if after.texts.contains_key(&number) {
            assert!(records.starts_with(&least), "{number}: {records:?}: {files:?}");
            assert!(most.starts_with(&records), "{number}: {records:?}: {files:?}");
        }
    }
    assert_eq!(store.warnings(), [], "{files:?}");
    for name in disk.files().keys() {
        assert!(!name.ends_with(TEMPORARY), "{files:?}");
        let configuration = name.replace(JOURNAL, CONFIGURATION);
        assert!(disk.files().contains_key(&configuration), "{name} is left: {files:?}");
    }
    disk
}

/// A store that was opened after a crash takes changes as any other.
fn check_that_it_goes_on(disk: &Simulated) {
    let mut store = reopen(disk);
    let before = store.confirmed().map(|saved| saved.number);
    let mut records = Vec::new();
    if let Some(number) = before {
        records = store.records(number).unwrap();
        store.append(number, &record("after")).unwrap();
        records.push(record("after"));
    }
    let next = store.save("after", &base(), "", 8).unwrap();
    assert!(store.history().iter().all(|entry| entry.number <= next));
    let mut store = reopen(disk);
    assert_eq!(store.confirmed().map(|saved| saved.number), before);
    if let Some(number) = before {
        assert_eq!(store.records(number).unwrap(), records);
        assert_eq!(store.history()[0].state, State::RolledBack);
    }
    store.confirm(next).unwrap();
    let store = reopen(disk);
    assert_eq!(store.confirmed().unwrap().text, "after");
    assert_eq!(store.warnings(), []);
}

/// Every state that the files can be in when a process is killed, with the number of operations before.
fn killed(disk: &Simulated) -> Vec<(usize, Files)> {
    let (mut machine, operations) = disk.recorded();
    let mut states = vec![(0, machine.killed())];
    for (before, operation) in operations.iter().enumerate() {
        if let Operation::Write(name, place, bytes) = operation {
            for length in 1..bytes.len() {
                let mut part = machine.clone();
                part.apply(&Operation::Write(name.clone(), *place, bytes[..length].to_vec())).unwrap();
                states.push((before, part.killed()));
            }
        }
        machine.apply(operation).unwrap();
        states.push((before + 1, machine.killed()));
    }
    states
}

#[test]
fn a_kill_after_any_operation_and_any_byte_loses_nothing_that_was_reported_as_done() {
    let disk = Simulated::default();
    let history = history_of(&disk);
    let states = killed(&disk);
    assert!(states.len() > 3_000, "{} states", states.len());
    for (operations, files) in states {
        let (before, after) = around(&history, operations);
        let opened = check(&files, before, after);
        // Opening repairs; a kill while it does so loses nothing either.
        for (_, files) in killed(&opened) {
            check(&files, before, after);
        }
        check_that_it_goes_on(&opened);
    }
}

#[test]
fn a_loss_of_power_after_any_operation_loses_nothing_that_was_reported_as_done() {
    let disk = Simulated::default();
    let history = history_of(&disk);
    let (mut machine, operations) = disk.recorded();
    for number in 0..=operations.len() {
        let (before, after) = around(&history, number);
        for files in machine.powered_off() {
            let opened = check(&files, before, after);
            check_that_it_goes_on(&opened);
        }
        if let Some(operation) = operations.get(number) {
            machine.apply(operation).unwrap();
        }
    }
}

#[test]
fn a_disk_that_is_full_after_any_operation_costs_only_the_change_that_was_refused() {
    for working in 0.. {
        let disk = Simulated::default();
        let (mut store, mut model) = (reopen(&disk), Model::default());
        for step in &SCRIPT[..6] {
            step.perform(&mut store, &mut model);
        }
        disk.fail_after(Some(working));
        let results = [
            store.append_many(Number(1), &[record("x"), record("y")]),
            store.save("refused", &base(), "", 8).map(drop),
            store.carry(Number(1), Number(2), |_| true).map(drop),
            store.confirm(Number(2)),
        ];
        disk.fail_after(None);
        let appended = results[0].is_ok();
        let number = if results[3].is_ok() { Number(2) } else { Number(1) };
        assert_eq!(store.records(Number(1)).unwrap().len(), if appended { 6 } else { 4 }, "{working}");
        for store in [&store, &reopen(&disk)] {
            let confirmed = store.confirmed().unwrap().number;
            // A rename that is done counts, though its name was not made durable.
            assert!(confirmed == number || confirmed == Number(2), "{working}");
        }
        store.append(Number(1), &record("z")).unwrap();
        assert_eq!(reopen(&disk).records(Number(1)).unwrap().last(), Some(&record("z")), "{working}");
        check_that_it_goes_on(&disk);
        if results.iter().all(Result::is_ok) {
            // Two for the records; five for each file; the copy of the confirmation may fail.
            assert_eq!(working, 2 + 3 * 5);
            return;
        }
    }
}
