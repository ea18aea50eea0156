//! Directories that cannot be used, and files that are none.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use netbricks_control::store::{Damage, Store, StoreError, Warning};

use crate::kill::{Scratch, base};

#[test]
fn a_missing_directory_is_created_for_its_owner_and_group() {
    let scratch = Scratch::new("missing");
    let directory = scratch.0.join("deep/state");
    let mut store = Store::open(&directory).unwrap();
    store.save("", &base(), "", 0).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory) & !0o750, 0);
    assert_eq!(mode(&directory.join("000001.toml")) & !0o640, 0);
    assert_eq!(store.warnings(), []);
}

#[test]
fn a_directory_in_use_names_the_process() {
    let scratch = Scratch::new("in-use");
    let held = Store::open(&scratch.0).unwrap();
    let error = Store::open(&scratch.0).unwrap_err();
    let StoreError::Held { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(holder.process, Some(std::process::id()));
    let command = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(holder.command.as_deref(), Some(command.trim_end()));
    let text = error.to_string();
    assert!(text.contains(&format!("process {} (", std::process::id())), "{text}");
    assert!(text.contains("--state DIR"), "{text}");
    drop(held);
    Store::open(&scratch.0).unwrap();
}

/// Root may write anywhere but into the kernel's own directories.
#[test]
fn a_directory_without_write_permission_names_itself_the_user_and_the_remedy() {
    for directory in ["/sys/netbricks-state", "/sys/kernel"] {
        let error = Store::open(Path::new(directory)).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
        let text = error.to_string();
        let uid = Command::new("id").arg("-u").output().unwrap().stdout;
        let uid = format!("uid {}", String::from_utf8(uid).unwrap().trim());
        for part in [directory, &uid, "[control] state = \"DIR\"", "--state DIR"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let scratch = Scratch::new("file");
    std::fs::write(&scratch.0, "").unwrap();
    for directory in [scratch.0.clone(), scratch.0.join("below")] {
        let text = Store::open(&directory).unwrap_err().to_string();
        assert!(text.contains("Expected a directory"), "{text}");
    }
    std::fs::remove_file(&scratch.0).unwrap();
}

#[test]
fn files_that_are_none_are_skipped() {
    let scratch = Scratch::new("no-files");
    let mut store = Store::open(&scratch.0).unwrap();
    let number = store.save("good", &base(), "", 0).unwrap();
    store.confirm(number).unwrap();
    drop(store);
    std::fs::create_dir(scratch.0.join("000002.toml")).unwrap();
    let socket = scratch.0.join("000003.toml");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
    symlink(scratch.0.join("000001.toml"), scratch.0.join("000004.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(scratch.0.join("000005.toml")).status().unwrap().success());
    // Not removed by the sweep, and in the way of the next confirmation.
    std::fs::create_dir(scratch.0.join("confirmed.copy.tmp")).unwrap();
    let mut store = Store::open(&scratch.0).unwrap();
    let skipped =
        |warning: &&Warning| matches!(warning, Warning::Skipped { damage: Damage::Unreadable { .. }, .. });
    assert_eq!(store.warnings().iter().filter(skipped).count(), 4, "{:?}", store.warnings());
    assert_eq!(store.confirmed().unwrap().text, "good");
    let number = store.save("next", &base(), "", 0).unwrap();
    assert_eq!(number.0, 6);
    store.confirm(number).unwrap();
    drop(store);
    assert_eq!(Store::open(&scratch.0).unwrap().confirmed().unwrap().text, "next");
}

#[test]
fn a_directory_in_which_others_may_write_is_warned_of() {
    let scratch = Scratch::new("exposed");
    drop(Store::open(&scratch.0).unwrap());
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o777)).unwrap();
    let store = Store::open(&scratch.0).unwrap();
    assert!(matches!(store.warnings(), [Warning::Exposed { mode: 0o777, .. }]));
}

#[test]
fn files_that_a_crash_left_half_written_are_removed_and_others_stay() {
    let scratch = Scratch::new("swept");
    drop(Store::open(&scratch.0).unwrap());
    for name in ["000001.toml.tmp", "000001.journal.tmp", "confirmed.tmp", "notes.tmp"] {
        std::fs::write(scratch.0.join(name), "half").unwrap();
    }
    let store = Store::open(&scratch.0).unwrap();
    let names = std::fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!((names, store.warnings()), (vec!["lock".to_owned(), "notes.tmp".to_owned()], &[][..]));
}
