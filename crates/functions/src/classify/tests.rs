use netbricks_core::guards::Prefix;
use netbricks_core::{Settings as _, Shape};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{kinds, run_node};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const CONDITIONS: [&str; 12] = [
    "to 10.0.0.0/31",
    "to 10.0.0.0/8",
    "from 10.0.0.1",
    "from 2001:db8::/32",
    "udp, to port 53",
    "tcp, from port 1000",
    "tcp",
    "ipv6",
    "arp",
    "vlan 7",
    "vlan 7, ipv4, to 10.0.0.2",
    "all packets",
];

fn settings(rules: &[&str]) -> ClassifySettings {
    ClassifySettings { rules: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
}

fn rules() -> impl Strategy<Value = Vec<String>> {
    let rule = (select(CONDITIONS.to_vec()), select(vec!["out", "drop", "a", "b", "c"]));
    prop::collection::vec(rule.prop_map(|(condition, way)| format!("{condition} -> {way}")), 1..8)
}

/// Frames of every kind of the test kit, and of the addresses and ports of the rules.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for to in ["10.0.0.1", "10.0.0.2", "192.0.2.1"] {
        let plain = || ethernet().ipv4("10.0.0.1", to);
        frames.extend([plain().udp(1000, 53).build().unwrap(), plain().tcp(1000, 80).build().unwrap()]);
        frames.push(ethernet().vlan(7).ipv4("10.0.0.9", to).udp(1, 2).build().unwrap());
        frames.push(ethernet().vlan(7).vlan(8).vlan(9).ipv4("10.0.0.9", to).udp(1, 2).build().unwrap());
    }
    frames.push(ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1000, 53).build().unwrap());
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Guards hold for the packets of their edge, and the one of the lowest rank names the edge.
    #[test]
    fn the_first_rule_decides_and_guards_say_the_same(rules in rules()) {
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let settings = settings(&rules);
        let node = Classify::new(&settings.rules);
        let all: Vec<Edge> = [Edge::OUT].into_iter().chain(node.edges().into_iter().map(|(edge, _)| edge)).collect();
        for frame in frames() {
            let facts = Facts::of(&frame);
            let first = settings.rules.iter().find(|rule| rule.filter.matches(&facts));
            let expected = first.map_or(Some(Edge::OUT), |rule| edge(&node.names, &rule.way));
            let own = settings.clone();
            let report = run_node(move |worker| super::node(&own, worker), [frame.clone()]);
            let (out, others) = (report.out.len(), report.replies.len());
            prop_assert_eq!((out, others), match expected {
                None => (0, 0),
                Some(Edge::OUT) => (1, 0),
                Some(_) => (0, 1),
            });
            let guards = |edge: &Edge| match node.guards(*edge) {
                Guards::Only(guards) => guards,
                other => panic!("{other:?}"),
            };
            if let Some(edge) = expected {
                prop_assert!(node.guards(edge).admit(&facts));
                let matching = all.iter().flat_map(|edge| guards(edge).into_iter().map(move |guard| (guard, *edge)));
                let best = matching.filter(|(guard, _)| guard.filter.matches(&facts)).min_by_key(|(guard, _)| guard.rank);
                prop_assert_eq!(best.map(|(_, edge)| edge), Some(edge));
            }
        }
    }
}

#[test]
fn ways_have_the_names_of_the_rules_and_never_the_edge_of_answers() {
    let settings = settings(&["arp -> web", "udp -> drop", "tcp -> dns", "ipv6 -> web", "ipv4 -> out"]);
    let report = run_node(
        move |worker| {
            let node = node(&settings, worker)?;
            let Shape { outputs, .. } = node.shape();
            let shown: Vec<_> =
                outputs.iter().map(|output| (output.edge.0, output.name.as_str(), output.optional)).collect();
            assert_eq!(shown, [(0, "out", false), (2, "web", false), (3, "dns", false)]);
            assert_eq!(node.guards(Edge::REPLY), Guards::Only(Vec::new()));
            Ok(node)
        },
        [ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2)],
    );
    assert_eq!(report.dropped(DropReason::Denied), 1);
}

#[test]
fn wrong_rules_are_refused_with_their_reason() {
    let refused = |rule: &str| rule.parse::<Rule>().unwrap_err().to_string();
    assert!(refused("to 10.0.0.0/8").contains("expected \"CONDITIONS -> WAY\""));
    assert!(refused("to 10.0.0.0/8 -> reply").contains("found \"reply\""));
    assert!(refused("to 10.0.0.0/8 -> a b").contains("found \"a b\""));
    assert!(refused("by night -> a").contains("found \"by night\""));
    let read = |rules: &str| toml::from_str::<ClassifySettings>(&format!("rules = {rules}"));
    let error = read("[\"to 10.0.0.0/8 -> a\", \"udp, to 10.0.0.1 -> b\"]").unwrap_err().to_string();
    assert!(error.contains("rule 1, \"to 10.0.0.0/8 -> a\", takes all of its packets"), "{error}");
    let many: Vec<String> = (0..=256_u32)
        .map(|number| format!("\"to {} -> a\"", Prefix::around((number << 8).to_be_bytes().into(), 24)))
        .collect();
    let error = read(&format!("[{}]", many.join(", "))).unwrap_err().to_string();
    assert!(error.contains("one rule too many"), "{error}");
    let names = |count: usize| {
        settings(&[])
            .rules
            .into_iter()
            .chain((0..count).map(|number| {
                format!("to 10.0.{}.{} -> w{number}", number / 256, number % 256).parse().unwrap()
            }))
            .collect::<Vec<Rule>>()
    };
    let check = |count| ClassifySettings { rules: names(count) }.check();
    assert!(check(0).is_err() && check(127).is_ok() && check(128).is_err());
    assert_eq!(read("[\"all packets -> drop\"]").unwrap().rules[0].to_string(), "all packets -> drop");
}
