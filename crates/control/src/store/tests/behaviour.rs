//! The store's rules, on a disk in memory.

use super::simulated::Simulated;
use super::*;

fn numbers(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number.0).collect()
}

#[test]
fn a_new_directory_has_nothing_to_restore() {
    let store = reopen(&Simulated::default());
    assert_eq!((store.confirmed(), store.history(), store.warnings()), (None, vec![], &[][..]));
}

#[test]
fn a_restart_within_the_confirm_window_restores_the_configuration_before_with_its_changes() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let first = store.save("first", &base(), "", 1).unwrap();
    store.confirm(first).unwrap();
    store.append(first, &record("kept")).unwrap();
    let second = store.save("second", &base(), "", 2).unwrap();
    store.carry(first, second, |_| true).unwrap();
    store.append(second, &record("in the window")).unwrap();
    assert_eq!(store.history()[0].state, State::Applied);

    let mut store = reopen(&disk);
    assert_eq!(store.confirmed().unwrap().text, "first");
    assert_eq!(store.records(first).unwrap(), [record("kept")]);
    assert_eq!(
        store.history().iter().map(|entry| entry.state).collect::<Vec<_>>(),
        [State::RolledBack, State::Confirmed]
    );
    // The window's changes belong to the configuration that was given up, and do not come with a third one.
    assert_eq!(store.records(second).unwrap(), [record("kept"), record("in the window")]);
    let third = store.save("third", &base(), "", 3).unwrap();
    assert_eq!((third, store.records(third).unwrap()), (Number(3), vec![]));
}

#[test]
fn the_history_says_what_became_of_each() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let [first, second, third] = ["a", "b", "c"].map(|text| store.save(text, &base(), "note", 5).unwrap());
    store.confirm(first).unwrap();
    store.give_up(second, Outcome::Failed).unwrap();
    assert!(matches!(
        store.give_up(first, Outcome::Failed),
        Err(StoreError::LastConfirmed { number: Number(1) })
    ));
    store.confirm(third).unwrap();
    let entry =
        |number, state| Entry { number, time: 5, origin: "edge.toml".into(), note: "note".into(), state };
    let expected =
        [entry(third, State::Confirmed), entry(second, State::Failed), entry(first, State::Confirmed)];
    assert_eq!(store.history(), expected);
    assert_eq!(reopen(&disk).history(), expected);
    // An older one may become the last confirmed again.
    store.confirm(first).unwrap();
    assert_eq!(reopen(&disk).confirmed().unwrap().number, first);
}

#[test]
fn the_confirmed_and_the_running_configuration_are_never_removed() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    for text in ["1", "2", "3"] {
        let number = store.save(text, &base(), "", 0).unwrap();
        store.append(number, &record(text)).unwrap();
    }
    store.confirm(Number(1)).unwrap();
    store.set_running(Number(2)).unwrap();
    for text in ["4", "5", "6", "7"] {
        store.save(text, &base(), "", 0).unwrap();
    }
    assert_eq!(numbers(&store.history()), [7, 6, 2, 1]);
    assert_eq!(store.records(Number(1)).unwrap(), [record("1")]);
    let names: Vec<_> = disk.files().into_keys().filter(|name| name.starts_with('0')).collect();
    let expected =
        ["000001.journal", "000001.toml", "000002.journal", "000002.toml", "000006.toml", "000007.toml"];
    assert_eq!(names, expected);
    assert!(matches!(store.load(Number(4)), Err(StoreError::Unknown { .. })));
}

#[test]
fn the_newest_stays_until_its_successor_is_written_so_that_its_number_is_not_used_twice() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    for text in ["1", "2", "3", "4"] {
        store.save(text, &base(), "", 0).unwrap();
    }
    store.give_up(Number(4), Outcome::Failed).unwrap();
    // One that was given up makes room first, but not while it is the newest.
    disk.fail_after(Some(5));
    store.save("5", &base(), "", 0).unwrap_err();
    disk.fail_after(None);
    let mut store = reopen(&disk);
    assert_eq!(numbers(&store.history())[0], 4);
    assert_eq!(store.save("5", &base(), "", 0).unwrap(), Number(5));
}

#[test]
fn a_full_journal_takes_no_record_and_says_what_to_do() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let number = store.save("", &base(), "", 0).unwrap();
    let records: Vec<_> = (0..SMALL.records).map(|i| record(&i.to_string())).collect();
    store.append_many(number, &records).unwrap();
    let error = store.append(number, &record("more")).unwrap_err();
    assert_eq!(
        error.to_string().split(" and ").next().unwrap(),
        "the journal of configuration 1 is full: expected at most 8 records"
    );
    assert!(error.to_string().contains("`apply`"), "{error}");
    // A repetition takes room too: it may add.
    assert!(store.append(number, &record("7")).is_err());
    let long = store.save("", &base(), "", 0).unwrap();
    let error = store.append(long, &record(&"x".repeat(SMALL.journal))).unwrap_err();
    assert!(matches!(error, StoreError::Full { records: 1, .. }));
    assert_eq!(reopen(&disk).records(number).unwrap(), records);
    assert_eq!(reopen(&disk).records(long).unwrap(), []);
}

#[test]
fn records_are_carried_into_an_empty_journal_only() {
    let mut store = reopen(&Simulated::default());
    let [from, to] = ["a", "b"].map(|text| store.save(text, &base(), "", 0).unwrap());
    store.append_many(from, &[record("1"), record("2")]).unwrap();
    assert_eq!(store.carry(from, to, |_| false).unwrap(), 0);
    assert_eq!(store.carry(from, to, |record| record.argument == "2").unwrap(), 1);
    assert!(matches!(store.carry(from, to, |_| true), Err(StoreError::NotEmpty { records: 1, .. })));
    assert_eq!(store.records(to).unwrap(), [record("2")]);
}

#[test]
fn a_damaged_confirmed_configuration_gives_way_to_the_one_confirmed_before() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    for text in ["first", "second", "third"] {
        let number = store.save(text, &base(), "", 0).unwrap();
        store.confirm(number).unwrap();
    }
    for (name, left, warned) in [("000003.toml", 2, 2), ("000002.toml", 1, 3)] {
        disk.change(name, |bytes| bytes[20] ^= 1);
        let store = reopen(&disk);
        assert_eq!(store.confirmed().unwrap().number, Number(left));
        assert_eq!(store.warnings().len(), warned);
        let restored = Warning::OlderRestored { wanted: Number(3), restored: Number(left) };
        assert!(store.warnings().contains(&restored));
    }
    disk.change("000001.toml", Vec::clear);
    let mut store = reopen(&disk);
    assert_eq!(store.confirmed(), None);
    assert_eq!(store.save("fourth", &base(), "", 0).unwrap(), Number(4));
}

#[test]
fn the_confirmation_has_a_copy() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let [first, _] = ["first", "second"].map(|text| store.save(text, &base(), "", 0).unwrap());
    store.confirm(first).unwrap();
    disk.change("confirmed", |bytes| bytes.truncate(20));
    let store = reopen(&disk);
    assert_eq!(store.confirmed().unwrap().number, first);
    assert!(matches!(store.warnings(), [Warning::Skipped { .. }]));
    disk.change("confirmed.copy", |bytes| bytes[0] = b'x');
    let store = reopen(&disk);
    assert_eq!(store.confirmed().unwrap().text, "second");
    assert_eq!(store.warnings().last(), Some(&Warning::NewestRestored { restored: Number(2) }));
}

#[test]
fn a_damaged_record_ends_the_journal_and_the_rest_is_kept_in_a_copy() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let number = store.save("", &base(), "", 0).unwrap();
    store.confirm(number).unwrap();
    store.append_many(number, &["a", "b", "c", "d"].map(record)).unwrap();
    let line = |bytes: &[u8], wanted| {
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(wanted).unwrap().0
    };
    disk.change("000001.journal", |bytes| {
        let place = line(bytes, 1) + 30;
        bytes[place] ^= 1;
    });
    let whole = disk.files()["000001.journal"].clone();
    let mut store = reopen(&disk);
    let [Warning::JournalCut { kept: 1, lost: 3, .. }] = store.warnings() else {
        panic!("{:?}", store.warnings())
    };
    assert_eq!(disk.files()["000001.journal.damaged"], whole);
    store.append(number, &record("e")).unwrap();
    let mut store = reopen(&disk);
    assert_eq!(store.warnings(), []);
    assert_eq!(store.records(number).unwrap(), [record("a"), record("e")]);
}

#[test]
fn a_journal_of_another_configuration_is_set_aside() {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    let [first, second] = ["a", "b"].map(|text| store.save(text, &base(), "", 0).unwrap());
    for number in [first, second] {
        store.append(number, &record("1")).unwrap();
    }
    let other = disk.files()["000001.journal"].clone();
    disk.change("000002.journal", |bytes| *bytes = other);
    let mut store = reopen(&disk);
    assert_eq!(store.records(second).unwrap(), []);
    assert!(matches!(store.warnings(), [Warning::JournalSetAside { .. }]));
    store.append(second, &record("2")).unwrap();
    assert_eq!(reopen(&disk).records(second).unwrap(), [record("2")]);
}

#[test]
fn too_long_a_configuration_is_refused() {
    let disk = Simulated::default();
    let error = reopen(&disk).save(&"x".repeat(SMALL.text), &base(), "", 0).unwrap_err();
    assert!(matches!(error, StoreError::TooLong { limit: 4096, .. }));
    assert!(disk.files().is_empty());
}

#[test]
fn the_last_number_is_not_followed_by_another() {
    let (_, bytes) = Saved::new(HIGHEST, "", &base(), "", 0);
    let disk = Simulated::of(&[(configuration_name(HIGHEST), bytes)].into());
    assert!(matches!(reopen(&disk).save("", &base(), "", 0), Err(StoreError::NoNumberLeft { .. })));
}

#[test]
fn contents_of_named_files_are_kept_once_within_a_bound_and_go_with_their_configurations() {
    let directory = std::env::temp_dir().join(format!("nb-contents-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name);
    let files = |names: &[&str]| -> Files {
        names.iter().map(|name| (path(name).to_str().unwrap().to_owned(), path(name))).collect()
    };
    let lost = |name: &str| vec![path(name).to_str().unwrap().to_owned()];
    let contents = |disk: &Simulated| disk.files().keys().filter(|name| name.starts_with("content-")).count();
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    std::fs::write(path("a"), "one").unwrap();
    std::fs::write(path("b"), "one").unwrap();
    std::fs::write(path("long"), "x".repeat(101)).unwrap();
    let first = store.save("first", &base(), "", 0).unwrap();
    store.keep_files(first, &files(&["a", "b", "long"])).unwrap();
    store.confirm(first).unwrap();
    assert_eq!(contents(&disk), 1);
    assert_eq!(store.changed_files(first), (Files::new(), Vec::new()));
    assert!(store.has_files(first, &files(&["a", "b", "long"])) && !store.has_files(first, &files(&["a"])));

    std::fs::write(path("a"), "two").unwrap();
    std::fs::remove_file(path("b")).unwrap();
    std::fs::write(path("long"), "y".repeat(101)).unwrap();
    let mut store = reopen(&disk);
    let (changed, missing) = store.changed_files(first);
    assert_eq!(changed.keys().collect::<Vec<_>>(), files(&["a", "b"]).keys().collect::<Vec<_>>());
    assert!(changed.values().all(|place| place.file_name() == changed.values().next().unwrap().file_name()));
    assert_eq!(missing, lost("long"), "it was longer than there is room for");
    assert!(!store.has_files(first, &files(&["a", "b", "long"])));

    // The content goes with the last configuration that names it.
    for text in ["second", "third", "fourth", "fifth"] {
        let number = store.save(text, &base(), "", 0).unwrap();
        store.keep_files(number, &files(&["a"])).unwrap();
        store.confirm(number).unwrap();
    }
    assert_eq!(contents(&disk), 1);
    assert_eq!(store.changed_files(first), (Files::new(), Vec::new()));
    std::fs::remove_dir_all(directory).unwrap();
}
