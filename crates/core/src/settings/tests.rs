//! Settings that are declared, read and refused.

use toml::de::DeTable;

use super::*;
use crate::declaration::Declared;
use crate::units::{Duration, port_numbers};

crate::settings! {
    /// Of every kind of field.
    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        /// A key that must be given.
        name: String = required, "text";
        /// Ports,
        /// listed.
        ports: Vec<u16> = [80, 443], "list of port numbers", read by port_numbers;
        /// How long.
        idle: Duration = "60 s", "duration";
        /// How often.
        rounds as "loop": u64 = 4_096, "whole number";
        /// Whether.
        on: bool = true, "true or false";
        /// How much.
        share: f64 = 1.5, "number";
        /// At most.
        limit: Option<u64> = unset "no limit", "whole number";
        /// For nothing.
        address: Option<String> = unset, "text";
        /// Not an operator's.
        seen: Vec<u8> = skipped;
    }
}

impl Settings for Sample {
    const RENAMED: &'static [RenamedKey] = &[RenamedKey { old: "label", new: "name" }];
}

crate::settings! {
    /// With a default of the wrong type, and a required key less.
    #[derive(Debug)]
    struct Faulty {
        /// A number.
        number: u64 = "many", "whole number";
    }
}

impl Settings for Faulty {}

fn read<S: Settings>(text: &str) -> Result<S, SettingsError> {
    read_settings(DeTable::parse(text).unwrap(), None)
}

#[test]
fn keys_are_the_fields_in_order_with_defaults_as_they_are_written() {
    let keys: Vec<_> = Sample::KEYS.iter().map(|key| (key.name, key.default, key.summary)).collect();
    assert_eq!(
        keys,
        [
            ("name", None, "A key that must be given."),
            ("ports", Some("[80, 443]"), "Ports, listed."),
            ("idle", Some("\"60 s\""), "How long."),
            ("loop", Some("4_096"), "How often."),
            ("on", Some("true"), "Whether."),
            ("share", Some("1.5"), "How much."),
            ("limit", Some("no limit"), "At most."),
            ("address", Some("none"), "For nothing."),
        ]
    );
    assert_eq!(Sample::KEYS[1].kind, "list of port numbers");
}

#[test]
fn omitted_keys_have_the_written_default() {
    let all = Sample {
        name: "x".into(),
        ports: vec![80, 443],
        idle: Duration::from_nanoseconds(60_000_000_000),
        rounds: 4_096,
        on: true,
        share: 1.5,
        limit: None,
        address: None,
        seen: Vec::new(),
    };
    assert_eq!(read::<Sample>("name = 'x'").unwrap(), all);
    assert_eq!(Sample::with_defaults(("x".into(),)), all);
    let other = read::<Sample>(
        "name = 'y'\nports = [1]\nidle = '1 ms'\nloop = 0\non = false\nshare = 2.0\nlimit = 3\naddress = 'z'",
    );
    let expected = Sample {
        name: "y".into(),
        ports: vec![1],
        idle: Duration::from_nanoseconds(1_000_000),
        rounds: 0,
        on: false,
        share: 2.0,
        limit: Some(3),
        address: Some("z".into()),
        seen: Vec::new(),
    };
    assert_eq!(other.unwrap(), expected);
}

#[test]
fn keys_are_refused_by_their_names_before_any_value_is_read() {
    let text = "name = 3\nprots = [1]\n";
    let error = read::<Sample>(text).unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Unknown { suggestion: Some("ports") }));
    assert_eq!(&text[error.span.unwrap()], "prots");
    // The field's name is none, and neither is that of a field that is skipped.
    for text in ["rounds = 1\n", "seen = []\n", "xyzzy = 1\n"] {
        let error = read::<Sample>(text).unwrap_err();
        assert!(matches!(error.key, Some(KeyFault::Unknown { .. })), "{text}: {error}");
    }
    let text = "label = [1]\n";
    let error = read::<Sample>(text).unwrap_err();
    assert_eq!(error.key, Some(KeyFault::Renamed { new: "name" }));
    assert_eq!(
        (error.to_string().as_str(), &text[error.span.unwrap()]),
        ("`label` is called `name` now", "label")
    );
    let table = DeTable::parse("on = 3").unwrap();
    let table = Spanned::new(7..9, table.into_inner());
    let error = read_settings::<Sample>(table, None).unwrap_err();
    assert_eq!((error.key, error.span), (Some(KeyFault::Missing { key: "name" }), Some(7..9)));
}

#[test]
fn values_of_the_wrong_type_are_refused_at_their_place() {
    for (text, at) in [
        ("name = 'x'\nidle = 3", "3"),
        ("name = 'x'\nports = [1, 0]", "0"),
        ("name = 'x'\nloop = -1", "-1"),
        ("name = 'x'\nlimit = 'y'", "'y'"),
    ] {
        let error = read::<Sample>(text).unwrap_err();
        assert_eq!((error.key, &text[error.span.unwrap()]), (None, at), "{}", error.message);
    }
}

#[test]
fn a_default_that_its_type_does_not_take_is_told_and_not_used() {
    let error = read::<Faulty>("").unwrap_err().to_string();
    assert!(
        error.starts_with("the declared default of `number`, \"many\", cannot be read: invalid type"),
        "{error}"
    );
    assert!(read::<Faulty>("number = 3").is_ok_and(|faulty| faulty.number == 3));
    assert!(std::panic::catch_unwind(Faulty::default).is_err());
}

#[test]
fn what_is_no_regular_file_is_refused_before_it_is_read() {
    let folder = std::env::temp_dir().join(format!("netbricks-settings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (pipe, socket, file) = (folder.join("pipe"), folder.join("socket"), folder.join("file"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::write(&file, "text").unwrap();
    for (path, found) in [(&*pipe, "a pipe"), (&*socket, "a socket"), (Path::new("/dev/zero"), "a device")] {
        let expected = format!("it is {found}, and a regular file is expected: copy its content into one");
        for read in [read_text, read_private_text] {
            assert_eq!(read(path, 10).unwrap_err().to_string(), expected);
        }
    }
    // Through a link, too.
    let link = folder.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!((read_text(&link, 4).unwrap(), read_text(&file, 3).is_err()), ("text".to_owned(), true));
    std::fs::remove_dir_all(folder).unwrap();
}
