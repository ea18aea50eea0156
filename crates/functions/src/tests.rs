//! The library as a whole: READMEs show the keys of their functions, and declared defaults are those of the code.

use std::path::Path;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::guards::{Facts, Guards};
use netbricks_core::packet::MacAddress;
use netbricks_core::tables::MaglevTable;
use netbricks_core::{DetachedContext, Edge, Key, Node, Registry, ShuffleConfig, Worker};
use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

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

/// The frames that leave by `OUT` if this one comes.
fn left(node: &mut dyn Node, frame: &[u8], pool: &Pool, cx: &mut DetachedContext) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    assert!(batch.push(pool.packet(frame).expect("a buffer")).is_ok());
    node.process(0, &mut batch, cx);
    if batch.is_empty() && node.as_queue().is_some() {
        cx.advance(cx.now() + 1_000_000_000);
        node.poll(&mut batch, cx);
    }
    batch.drain().map(|packet| packet.data().to_vec()).collect()
}

/// A packet that leaves satisfies a guard of its edge, and has the facts with which it came.
#[test]
fn packets_that_leave_have_the_facts_with_which_they_came() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let mut random = Random::new(7);
    let mut frames: Vec<Vec<u8>> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for mut frame in frames.clone().into_iter().cycle().take(1_000) {
        mutate(&mut frame, &mut random);
        frames.push(frame);
    }
    let mut told = Vec::new();
    for function in registry.iter() {
        let examples = if function.examples.is_empty() { vec![""] } else { function.examples.clone() };
        for example in examples {
            let pool = Pool::builder().frames(8_192).large(16, 69_632).build().expect("memory");
            let worker = Worker::new(0, 1, pool.clone());
            let node = function.blueprint(example).ok().and_then(|blueprint| blueprint.build(&worker).ok());
            let Some(mut node) = node.filter(|node| node.guards(Edge::OUT) != Guards::Unknown) else {
                continue;
            };
            told.push(function.name);
            let guards = node.guards(Edge::OUT);
            let mut cx = DetachedContext::new(pool.clone());
            let mut leaving = 0;
            for frame in frames.iter().filter(|frame| frame.len() <= 1_500) {
                for out in left(node.as_mut(), frame, &pool, &mut cx) {
                    let facts = Facts::of(&out);
                    assert!(guards.admit(&facts), "{}: {facts:?}", function.name);
                    assert_eq!(facts, Facts::of(frame), "{}: {frame:02x?}", function.name);
                    leaving += 1;
                }
            }
            assert!(leaving > 0, "{}: {example}", function.name);
        }
    }
    told.dedup();
    let expected = [
        "array-access",
        "busy",
        "classify",
        "firewall",
        "lpm",
        "macswap",
        "monitor",
        "mss",
        "policer",
        "shaper",
        "ttl",
        "wire",
    ];
    assert_eq!(told, expected);
}
