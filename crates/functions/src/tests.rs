//! The library as a whole: READMEs show the keys of their functions, and declared defaults are those of the code.

use std::path::Path;

use netbricks_core::packet::MacAddress;
use netbricks_core::tables::MaglevTable;
use netbricks_core::{Key, Registry, ShuffleConfig};

/// The rows of a README's table of keys: name and default.
fn rows(text: &str) -> Vec<(String, String)> {
    let table = text.lines().skip_while(|line| *line != "| key | value | default | meaning |").skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        assert_eq!(cells.len(), 4, "{line}");
        (cells[0].trim_start_matches("| ").to_owned(), cells[2].to_owned())
    });
    rows.collect()
}

#[test]
fn each_readme_has_the_keys_of_its_function_in_order_with_their_defaults() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let mut tables = 0;
    for function in registry.iter() {
        let directory = function.name.replace('-', "_");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(directory).join("README.md");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let shown = |Key { name, default, .. }: &Key| {
            let default = match default {
                None => "must be given".to_owned(),
                Some("none") => "none".to_owned(),
                Some(default) => format!("`{default}`"),
            };
            (format!("`{name}`"), default)
        };
        let expected: Vec<_> = function.keys.iter().map(shown).collect();
        assert_eq!(rows(&text), expected, "{}", path.display());
        tables += usize::from(!expected.is_empty());
    }
    assert!(tables >= 11, "{tables}");
}

#[test]
fn declared_defaults_are_those_of_the_code() {
    let ShuffleConfig { key, full, ring } = ShuffleConfig::default();
    let shuffle = crate::shuffle::ShuffleSettings::default();
    assert_eq!((shuffle.key, shuffle.full, shuffle.ring), (key, full, ring));
    assert_eq!(crate::lpm::LpmSettings::default().annotation, crate::lpm::NEXT_HOP);
    assert_eq!(crate::maglev::MaglevConfig::default().slots, MaglevTable::DEFAULT_SIZE);
    // One that was made without an address has the default.
    let echo = |mac| crate::icmp_echo::EchoConfig { mac, v4: None, v6: None }.mac();
    assert_eq!(echo(None), MacAddress::new([2, 0x4e, 0x42, 0, 0, 1]));
    assert_eq!(echo(Some("02:00:00:00:00:07".into())), MacAddress::new([2, 0, 0, 0, 0, 7]));
}
