//! Any bytes under any name: a store opens, says what it skipped, and takes changes.

use proptest::prelude::*;

use super::simulated::{Files, Simulated};
use super::*;

/// A directory in which all kinds of files are.
fn usual() -> Files {
    let disk = Simulated::default();
    let mut store = reopen(&disk);
    for text in ["first", "second", "third"] {
        let number = store.save(text, &base(), "", 0).unwrap();
        store.append_many(number, &["a", "b", "c"].map(record)).unwrap();
        store.confirm(number).unwrap();
    }
    disk.files()
}

const NAMES: &[&str] = &[
    "000001.toml",
    "000002.toml",
    "000003.toml",
    "000004.toml",
    "1.toml",
    "0000001.toml",
    "-00001.toml",
    "+00001.toml",
    "999999999999.toml",
    "1000000000000.toml",
    "99999999999999999999999.toml",
    "000001.journal",
    "000002.journal",
    "000003.journal",
    "000009.journal",
    "000003.journal.damaged",
    "000001.files",
    "000002.files",
    "content-0123456789abcdef0123456789abcdef",
    "content-x",
    "place",
    "confirmed",
    "confirmed.copy",
    "confirmed.tmp",
    "000003.toml.tmp",
    "000003.journal.tmp",
    ".tmp",
    ".toml",
    ".journal",
    "notes.txt",
    "lock",
    "lock.tmp",
    "",
];

#[derive(Clone, Debug)]
enum Change {
    Replace(Vec<u8>),
    /// The bytes of another file.
    Copy(usize),
    Cut(prop::sample::Index),
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove,
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    let bytes = || prop::collection::vec(any::<u8>(), 0..64);
    prop_oneof![
        bytes().prop_map(Change::Replace),
        any::<String>()
            .prop_map(|text| Change::Replace(super::checksum::with_checksum(b"", &text).0.into_bytes())),
        (0..NAMES.len()).prop_map(Change::Copy),
        index().prop_map(Change::Cut),
        (index(), 1..=255u8).prop_map(|(at, with)| Change::Flip(at, with)),
        (index(), bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        Just(Change::Remove),
    ]
}

fn changed(mut files: Files, name: &str, change: Change) -> Files {
    let other = |place: usize| files.get(NAMES[place]).cloned().unwrap_or_default();
    let mut bytes = files.get(name).cloned().unwrap_or_default();
    match change {
        Change::Replace(with) => bytes = with,
        Change::Copy(place) => bytes = other(place),
        Change::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        Change::Flip(at, with) if !bytes.is_empty() => {
            let at = at.index(bytes.len());
            bytes[at] ^= with;
        }
        Change::Flip(..) => {}
        Change::Insert(at, with) => {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, with);
        }
        Change::Remove => {
            files.remove(name);
            return files;
        }
    }
    files.insert(name.into(), bytes);
    files
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_bytes_in_any_file_keep_nothing_from_starting(
        changes in prop::collection::vec((prop::sample::select(NAMES), change()), 0..8),
    ) {
        let files = changes.into_iter().fold(usual(), |files, (name, change)| changed(files, name, change));
        let disk = Simulated::of(&files);
        let mut store = reopen(&disk);
        for warning in store.warnings() {
            prop_assert!(!warning.to_string().is_empty());
        }
        for entry in store.history() {
            let saved = store.load(entry.number).unwrap();
            // Only texts that were saved once have a right checksum.
            prop_assert!(["first", "second", "third"].contains(&&*saved.text));
            let records = store.records(entry.number).unwrap();
            let all = ["a", "b", "c"].map(record);
            prop_assert!(all.starts_with(&records));
            store.append(entry.number, &record("more")).unwrap();
            prop_assert_eq!(store.records(entry.number).unwrap().len(), records.len() + 1);
        }
        // As long as there is a good one, there is one to restore.
        prop_assert!(store.confirmed().is_some() || store.history().is_empty() || !files.contains_key("confirmed"));
        match store.save("new", &base(), "", 1) {
            Ok(number) => {
                store.confirm(number).unwrap();
                let store = reopen(&disk);
                prop_assert_eq!(&store.confirmed().unwrap().text, "new");
                prop_assert!(store.history().len() <= SMALL.kept);
            }
            Err(StoreError::NoNumberLeft { .. }) => prop_assert!(files.contains_key("999999999999.toml")),
            Err(error) => panic!("{error}"),
        }
    }
}
