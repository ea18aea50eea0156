//! Handlers: rules that are replaced and switched while packets flow, and events.

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{Blueprint, DetachedContext, Node, Worker, compose};

use super::{engines, open, segment, udp};
use crate::signature::{HISTORY, SearchEngine, SignatureConfig, signature};

type Place = (Box<dyn Node>, Pool);

fn blueprint(rules: &[&str]) -> Blueprint {
    blueprint_by(SearchEngine::Default, rules)
}

fn blueprint_by(engine: SearchEngine, rules: &[&str]) -> Blueprint {
    let mut config = SignatureConfig::of(rules.iter().copied());
    (config.flows, config.events, config.engine) = (64, 8, engine);
    Blueprint::new(move |worker| compose(worker, |input| signature::<HISTORY>(input, &config, worker)))
}

fn pool() -> Pool {
    Pool::builder().frames(64).build().unwrap()
}

fn on_worker(blueprint: &Blueprint, index: usize) -> Place {
    let pool = pool();
    (blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap(), pool)
}

fn send((node, pool): &mut Place, frames: impl IntoIterator<Item = Vec<u8>>) -> usize {
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    for frame in frames {
        batch.push(pool.packet(&frame).unwrap()).unwrap();
    }
    node.process(0, &mut batch, &mut cx);
    batch.len()
}

#[test]
fn rules_are_replaced_for_all_workers_at_once() {
    engines().for_each(replace);
}

fn replace(engine: SearchEngine) {
    let old = r#"alert udp any any -> any 53 (msg:"old"; content:"old"; sid:1;)"#;
    let blueprint = blueprint_by(engine, &[old]);
    let mut control = blueprint.control(pool(), 1).unwrap();
    let mut workers = [0, 1].map(|index| on_worker(&blueprint, index));
    let both = || [udp(53, b"old"), udp(53, b"new")];
    for worker in &mut workers {
        assert_eq!(send(worker, both()), 2);
        assert_eq!(worker.0.call("matches", "").unwrap(), "1 1\n");
    }
    let text = "# comment\ndrop udp any any -> any 53 (msg:\"new\"; content:\"new\"; sid:2;)\n\
                alert http any any -> any any (content:\"x\"; sid:3;)\n";
    assert_eq!(control.call("load", text).unwrap(), "1 rules, 1 skipped");
    let skipped = control.call("skipped", "").unwrap();
    assert_eq!(skipped, "line 3, column 7: the protocol `http` of the application layer is not parsed\n");
    for worker in &mut workers {
        assert_eq!(send(worker, both()), 1);
        assert_eq!(worker.0.call("matches", "").unwrap(), "1 1\n2 1\n");
    }
    assert_eq!(control.call("disable", "2").unwrap(), "done");
    assert_eq!(send(&mut workers[1], both()), 2);
    assert_eq!(control.call("enable", " 2 ").unwrap(), "done");
    assert_eq!(control.call("enable", "2").unwrap(), "it was so before");
    assert_eq!(send(&mut workers[1], both()), 1);
    let listed = control.call("rules", "5").unwrap();
    let counts = format!("pass 0\ndrop 1\nreject 0\nalert 0\noff 0\nengine {}\n", engine.name());
    assert!(listed.starts_with(&counts), "{listed}");
    assert!(listed.ends_with("2 drop packets \"new\"\n"), "{listed}");
    assert_eq!(control.call("restore", "").unwrap(), "1 rules, 0 skipped");
    assert_eq!(send(&mut workers[0], both()), 2);
    for (name, argument, part) in [
        (
            "load",
            "alert udp any any -> any any (content:\"a\"; sid:1;)\nalrt x\nalert udp any any -> any any (sid:1;)",
            "2 wrong rules\nline 2, column 1: expected an action",
        ),
        ("disable", "9", "there is no rule with sid 9"),
        ("disable", "x", "expected the sid of a rule, found `x`"),
        ("rules", "10001", "0 to 10000"),
    ] {
        let error = control.call(name, argument).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    assert_eq!(send(&mut workers[0], both()), 2);
}

/// A match that begins before the rules are replaced and ends after it is found by the new rules.
#[test]
fn a_stream_is_read_on_by_other_rules() {
    for engine in engines() {
        let blueprint = blueprint_by(engine, &[r#"alert tcp any any -> any 80 (content:"needle"; sid:1;)"#]);
        let mut control = blueprint.control(pool(), 1).unwrap();
        let mut worker = on_worker(&blueprint, 0);
        send(&mut worker, open(1_000, 100).into_iter().chain([segment(1_000, 100, b"hay nee")]));
        let next = "alert tcp any any -> any 80 (content:\"needle\"; sid:1;)\n\
                    alert tcp any any -> any 80 (content:\"hay\"; content:\"dle\"; sid:2;)";
        control.call("load", next).unwrap();
        send(&mut worker, [segment(1_000, 107, b"dle")]);
        assert_eq!(worker.0.call("matches", "").unwrap(), "1 1\n2 1\n", "{engine:?}");
    }
}

#[test]
fn events_are_lines_of_json() {
    let blueprint = blueprint(&[
        r#"alert tcp any any -> any 80 (msg:"a \"quoted\" one"; content:"needle"; classtype:trojan-activity; reference:url,example.org; priority:1; gid:2; rev:7; sid:1;)"#,
        r#"drop udp any any -> any 53 (content:"x"; sid:2;)"#,
    ]);
    let mut worker = on_worker(&blueprint, 0);
    send(&mut worker, open(1_000, 100).into_iter().chain([segment(1_000, 100, b"a needle."), udp(53, b"x")]));
    let events = worker.0.call("events", "").unwrap();
    let lines: Vec<&str> = events.lines().collect();
    assert_eq!(lines[0], "{\"next\":2,\"missed\":0}");
    assert_eq!(
        lines[1],
        "{\"timestamp\":\"1970-01-01T00:00:00.000000+0000\",\"event_type\":\"alert\",\"src_ip\":\"10.0.0.1\",\"dest_ip\":\"10.0.0.2\",\
         \"src_port\":1000,\"dest_port\":80,\"proto\":\"TCP\",\"pkt_src\":\"wire/pcap\",\"match\":{\"in\":\"stream\",\"end\":8},\
         \"alert\":{\"action\":\"allowed\",\"gid\":2,\"signature_id\":1,\"rev\":7,\"signature\":\"a \\\"quoted\\\" one\",\
         \"category\":\"trojan-activity\",\"severity\":1,\"references\":[\"url,example.org\"]}}"
    );
    assert!(
        lines[2].contains("\"action\":\"blocked\"") && lines[2].contains("\"proto\":\"UDP\""),
        "{}",
        lines[2]
    );
    for _ in 0..20 {
        send(&mut worker, [udp(53, b"x")]);
    }
    assert!(worker.0.call("events", "2").unwrap().starts_with("{\"next\":22,\"missed\":12}\n"));
}

/// A new graph takes over what handlers changed, unless its file has other rules.
#[test]
fn changes_survive_an_export_to_the_same_configuration() {
    let rules = [r#"alert udp any any -> any 53 (content:"old"; sid:1;)"#];
    let (one, same, other) = (
        blueprint(&rules),
        blueprint(&rules),
        blueprint(&[r#"alert udp any any -> any 53 (content:"other"; sid:5;)"#]),
    );
    let mut control = one.control(pool(), 1).unwrap();
    let mut worker = on_worker(&one, 0);
    control.call("load", "alert udp any any -> any 53 (content:\"new\"; sid:2;)\nalert udp any any -> any 53 (content:\"new\"; sid:3;)").unwrap();
    control.call("disable", "3").unwrap();
    let exported = worker.0.export().into_iter().find(|(name, _)| name == "rules").unwrap().1;
    let by_other_engine = blueprint_by(engines().last().unwrap(), &rules);
    let check = |blueprint: &Blueprint, expected: &str| {
        let mut worker = on_worker(blueprint, 0);
        worker.0.import("rules", &exported, 1).unwrap();
        send(&mut worker, [udp(53, b"new"), udp(53, b"other")]);
        assert_eq!(worker.0.call("matches", "").unwrap(), expected);
        let mut broken = exported.clone();
        broken[20] ^= 1;
        assert!(worker.0.import("rules", &broken, 1).is_err());
    };
    check(&same, "2 1\n");
    check(&by_other_engine, "2 1\n");
    check(&other, "5 1\n");
}
