//! Lists and sets that change while packets flow, exports, the log.

use netbricks_core::buffer::Pool;
use netbricks_core::{Blueprint, Node, Worker};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

use super::super::{Engine, FirewallConfig, node};
use super::{clocked, generate, model, with};

fn udp(to: &str, port: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", to).udp(1_000, port).build().unwrap()
}

#[test]
fn a_list_is_replaced_whole_or_not_at_all() {
    let mut test =
        clocked(with(&["tracking off", "allow udp to any port 53 name dns", "deny udp to any port 54"]));
    assert_eq!(test.send([udp("10.0.0.2", 53), udp("10.0.0.2", 55)]).out.len(), 1);
    let rules = test.call("rules", "");
    assert_eq!(
        rules,
        "policy deny\ntracking off\nallow udp to any port 53 name dns\ndeny udp to any port 54\n"
    );
    assert_eq!(
        test.call("load", "tracking off\nallow udp to any port 55\nallow udp to any port 53 name dns\n"),
        "2 rules, 0 sets"
    );
    assert_eq!(test.send([udp("10.0.0.2", 53), udp("10.0.0.2", 55)]).out.len(), 2);
    // A rule that stays keeps its counts.
    let counters = test.call("counters", "");
    assert!(counters.contains("\"place\":2,\"name\":\"dns\",\"packets\":2"), "{counters}");
}

fn worker() -> Worker {
    Worker::new(0, 1, Pool::builder().frames(64).build().unwrap())
}

fn build(config: FirewallConfig) -> Box<dyn Node> {
    Blueprint::new(move |worker| node(&config, worker)).build(&worker()).unwrap()
}

#[test]
fn a_bad_list_changes_nothing_and_every_bad_line_is_named() {
    for engine in [Engine::Compiled, Engine::Linear] {
        let mut node = build(FirewallConfig { engine, ..with(&["set @a {10.0.0.1}", "allow from @a"]) });
        let before = node.call("rules", "").unwrap();
        let error =
            node.call("load", "allow tcp\ndeny form any\nallow to any port x\n").unwrap_err().to_string();
        assert_eq!(
            error.lines().collect::<Vec<_>>(),
            [
                "handler `load`: line 2, column 6: `form` is no part of a rule: did you mean `from`?",
                "line 3, column 19: `x` is no port: write a number from 0 to 65535, a name as `https`, or a range as `1024-65535`",
                "2 lines are wrong; nothing is loaded",
            ]
        );
        assert_eq!(node.call("rules", "").unwrap(), before);
        for (argument, part) in [
            ("add @b 10.0.0.2", "there is no set `@b`"),
            ("add @a 443", "the set `@a` has `443`, which is no address"),
            ("add @a 10.0.0.2\nremove @a 10.0.0.9", "the set `@a` does not have 10.0.0.9"),
            ("ad @a 10.0.0.2", "line 1, column 1: found `ad`"),
            ("add @a 10.0.0.2\nadd @a 10.0.0.x", "line 2, column 8: `10.0.0.x` is no address"),
        ] {
            let error = node.call("set", argument).unwrap_err().to_string();
            assert!(error.contains(part), "{argument}: {error}");
            assert_eq!(node.call("rules", "").unwrap(), before, "{argument}");
        }
        assert_eq!(node.call("sets", ""), Ok("@a 1\n".into()));
        assert!(node.call("sets", "b").unwrap_err().to_string().contains("there is no set `@b`"));
    }
}

#[test]
fn sets_change_while_packets_flow() {
    let lines = [
        "tracking off",
        "set @blocked {192.0.2.1}",
        "set @none {}",
        "deny to @blocked",
        "deny to @none",
        "allow",
    ];
    for engine in [Engine::Compiled, Engine::Linear] {
        let mut test = clocked(FirewallConfig { engine, ..with(&lines) });
        let to = ["192.0.2.1", "192.0.2.2", "198.51.100.9", "10.0.0.9"];
        let passed = |test: &mut netbricks_testkit::Clocked| test.send(to.map(|to| udp(to, 9))).out.len();
        assert_eq!(passed(&mut test), 3);
        assert_eq!(
            test.call("set", "add @blocked 192.0.2.2, 198.51.100.0/24\nadd @none {10.0.0.9}"),
            "3 added, 0 removed"
        );
        assert_eq!(passed(&mut test), 0);
        assert_eq!(test.call("sets", "@blocked"), "192.0.2.1\n192.0.2.2\n198.51.100.0/24\n");
        assert_eq!(test.call("set", "remove @blocked 192.0.2.1"), "0 added, 1 removed");
        assert_eq!(passed(&mut test), 1);
        assert_eq!(test.call("set", "set @blocked {}"), "0 added, 2 removed");
        assert_eq!(passed(&mut test), 3);
    }
}

/// After each change of a set, verdicts are those of the model over the list that there is then.
#[test]
fn verdicts_follow_changes_of_sets() {
    for seed in 1..=12u64 {
        let mut random = Random::new(seed);
        let mut list = generate::list(&mut random, 25);
        let text = list.to_string();
        let mut test = clocked(FirewallConfig::of(text.lines()));
        for _ in 0..6 {
            let v6 = random.below(3) == 0;
            let value = generate::address(&mut random, v6);
            let values = list.sets.get_mut("hosts").unwrap();
            let line = if random.below(2) == 0 && values.len() > 1 {
                let gone = values.remove(random.below(values.len()));
                let gone = gone.to_string();
                values.retain(|value| value.to_string() != gone);
                format!("remove @hosts {gone}")
            } else {
                let new = super::super::values::read(&value, super::super::ValueKind::Address).unwrap();
                if !values.iter().any(|known| known.to_string() == new.to_string()) {
                    values.push(new);
                }
                format!("add @hosts {value}")
            };
            test.call("set", &line);
            let samples: Vec<_> = (0..60).map(|_| generate::packet(&mut random)).collect();
            let expected: Vec<_> = samples
                .iter()
                .filter(|sample| {
                    matches!(
                        model::verdict(&list, sample).0,
                        super::super::Action::Allow | super::super::Action::Count
                    )
                })
                .map(|sample| sample.frame.clone())
                .collect();
            let report = test.send(samples.iter().map(|sample| sample.frame.clone()));
            assert!(report.out == expected, "seed {seed}, {line}: {list}");
        }
    }
}

#[test]
fn an_export_carries_live_changes_to_the_same_configuration_only() {
    let lines = ["set @a {10.0.0.1}", "allow from @a name in"];
    let mut first = build(with(&lines));
    first.call("set", "add @a 10.0.0.7").unwrap();
    let rules = first.call("rules", "").unwrap();
    let image = |node: &mut Box<dyn Node>| {
        node.export().into_iter().find_map(|(name, image)| (name == "rules").then_some(image)).unwrap()
    };
    let bytes = image(&mut first);
    let mut same = build(with(&lines));
    same.import("rules", &bytes, 1).unwrap();
    assert_eq!(same.call("rules", ""), Ok(rules));
    let mut other = build(with(&["allow from 10.0.0.1"]));
    let before = other.call("rules", "");
    other.import("rules", &bytes, 1).unwrap();
    assert_eq!(other.call("rules", ""), before);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(same.import("rules", &damaged, 1).is_err(), "byte {at}");
    }
}

#[test]
fn connections_survive_their_bytes() {
    use super::super::connection::{Connection, Direction, Message, Progress};
    use super::super::tcp::Segment;
    use netbricks_core::packet::FlowKey;
    use netbricks_core::packet::tcp::flags;
    use netbricks_core::tables::Encode;
    let flow = FlowKey::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 40_000, 80, 6);
    let frame = ethernet()
        .ipv4("10.0.0.1", "192.0.2.1")
        .tcp(40_000, 80)
        .window_scale(7)
        .sack_permitted()
        .syn()
        .build()
        .unwrap();
    let syn = Message::Tcp(Segment::read(&frame[34..], 0).unwrap());
    let back = ethernet()
        .ipv4("192.0.2.1", "10.0.0.1")
        .tcp(80, 40_000)
        .ack(1)
        .flags(flags::SYN | flags::ACK)
        .build()
        .unwrap();
    let mut tcp = Connection::open(7, &flow, &syn, false).unwrap();
    tcp.note(Direction::Reply, &Message::Tcp(Segment::read(&back[34..], 0).unwrap()));
    let others = [Message::Other, Message::Query(false)];
    let all = others.iter().map(|message| Connection::open(9, &flow, message, false).unwrap()).chain([tcp]);
    for connection in all {
        let mut bytes = vec![0; Connection::SIZE];
        connection.encode(&mut bytes);
        assert_eq!(Connection::decode(&bytes), Some(connection));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // Either no connection, or another one that is written as these bytes.
            if let Some(read) = Connection::decode(&changed) {
                let mut again = vec![0; Connection::SIZE];
                read.encode(&mut again);
                assert_eq!(again, changed, "bit {bit}");
            }
        }
        assert!(matches!(connection.progress, Progress::Tcp(_) | Progress::Icmp(_) | Progress::Other));
    }
}

/// Flows whose rule is remembered follow a change of the list at once.
#[test]
fn remembered_flows_follow_changes() {
    let mut test =
        clocked(with(&["tracking off", "set @a {10.0.0.2}", "deny to @a name first", "allow name second"]));
    assert_eq!(
        test.send([udp("10.0.0.2", 1), udp("10.0.0.2", 1), udp("10.0.0.3", 1), udp("10.0.0.3", 1)]).out.len(),
        2
    );
    let report = test.send([udp("10.0.0.3", 1)]);
    assert_eq!(report.sections[0].rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["3", "2"]);
    test.call("set", "add @a 10.0.0.3");
    assert_eq!(test.send([udp("10.0.0.3", 1)]).out.len(), 0);
    test.call("load", "tracking off\nallow");
    assert_eq!(test.send([udp("10.0.0.2", 1), udp("10.0.0.3", 1)]).out.len(), 2);
}

#[test]
fn logged_packets_are_listed_by_number() {
    let lines = ["deny udp to any port 7 log \"echo \\\"7\\\"\" name echo", "allow log"];
    let config = FirewallConfig { log: 3, ..with(&lines) };
    let mut test = clocked(config);
    test.send([udp("10.0.0.2", 7), udp("10.0.0.2", 8), udp("10.0.0.2", 9)]);
    assert_eq!(
        test.call("log", "").lines().next().unwrap(),
        "{\"number\":0,\"time\":1000000000,\"rule\":\"echo\",\"prefix\":\"echo \\\"7\\\"\",\"fate\":\"denied\",\
         \"flow\":\"10.0.0.1:1000 > 10.0.0.2:7 UDP\",\"in\":\"\",\"bytes\":42}"
    );
    test.send([udp("10.0.0.2", 7)]);
    let from_two = test.call("log", "2");
    let numbers: Vec<&str> = from_two.lines().map(|line| &line[..11]).collect();
    assert_eq!(numbers, ["{\"number\":2", "{\"number\":3"]);
    assert_eq!(test.call("log", "").lines().count(), 3, "the ring keeps three");
    // A run follows the same lines as events.
    let events = test.call("events", "2");
    assert_eq!(events, format!("{{\"next\":4,\"missed\":0}}\n{from_two}"));
    assert!(test.call("events", "0").starts_with("{\"next\":4,\"missed\":1}\n"));
}

#[test]
fn a_trace_names_the_rule() {
    let mut node = build(with(&["allow udp to any port 53 name dns"]));
    let mut explained = |frame: &[u8]| {
        let mut why = String::new();
        node.with_state(&mut |state| state.explain(frame, &mut why).unwrap());
        why
    };
    assert_eq!(
        explained(&udp("10.0.0.2", 53)),
        "as a first packet it meets rule 1, allow udp to any port 53 name dns"
    );
    assert_eq!(explained(&udp("10.0.0.2", 54)), "no rule is about it: the policy is deny");
}
