//! Plans say of each state what the change then does with it.

use std::collections::BTreeMap;

use netbricks_control::api::{Applied, ChangeKind, Plan, StateWay};

use super::tests::{Asking, chain, source, while_running};

/// A function of two files, and what becomes of its states from one to the other.
struct Case {
    name: &'static str,
    /// Settings of both, of the first, and of the second.
    settings: [&'static str; 3],
    /// A write that no journal has, and a read of what it changed: state's name, handlers and argument.
    written: Option<[&'static str; 4]>,
    expected: &'static [(&'static str, StateWay)],
    /// A table of the function that has entries.
    full: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        name: "nat",
        settings: [
            "inside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]",
            "",
            "mtu = 1_400\nrefusal = \"silent\"",
        ],
        written: None,
        expected: &[("translations", StateWay::Whole)],
        full: Some("translations"),
    },
    Case {
        name: "nat",
        settings: [
            "inside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]",
            "udp = \"1 h\"",
            "udp = \"2 h\"",
        ],
        written: None,
        expected: &[("translations", StateWay::InSteps)],
        full: Some("translations"),
    },
    Case {
        name: "nat",
        settings: [
            "inside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]",
            "",
            "capacity = 1_000",
        ],
        written: None,
        expected: &[("translations", StateWay::Copied)],
        full: Some("translations"),
    },
    Case {
        name: "nat",
        settings: [
            "inside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]",
            "capacity = 1_000",
            "capacity = 2_000",
        ],
        written: None,
        expected: &[("translations", StateWay::Copied)],
        full: Some("translations"),
    },
    Case {
        name: "nat",
        settings: [
            "inside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]",
            "capacity = 1_000",
            "capacity = 16",
        ],
        written: None,
        expected: &[("translations", StateWay::Anew)],
        full: Some("translations"),
    },
    Case {
        name: "firewall",
        settings: ["lines = [\"policy allow\"]", "", "connections = 1_000"],
        written: Some(["rules", "load", "policy allow\ndeny tcp", "rules"]),
        expected: &[("rules", StateWay::Whole), ("connections", StateWay::InSteps)],
        full: None,
    },
    Case {
        name: "firewall",
        settings: ["", "lines = [\"policy allow\"]", "lines = [\"policy deny\"]"],
        written: Some(["rules", "load", "policy allow\ndeny tcp", "rules"]),
        expected: &[("rules", StateWay::Anew), ("connections", StateWay::Whole), ("policy", StateWay::Whole)],
        full: None,
    },
    Case {
        name: "firewall",
        settings: ["lines = [\"policy allow\"]", "", "capacity = 100"],
        written: Some(["rules", "load", "policy allow\ndeny tcp", "rules"]),
        expected: &[("rules", StateWay::Copied), ("connections", StateWay::Whole)],
        full: None,
    },
    Case {
        name: "maglev",
        settings: ["backends = [\"a 02:00:00:00:00:01\"]", "capacity = 1_000", "capacity = 500"],
        written: Some(["backends", "add", "b 02:00:00:00:00:02", "backends"]),
        expected: &[("backends", StateWay::Whole), ("connections", StateWay::InSteps)],
        full: Some("connections"),
    },
    Case {
        name: "maglev",
        settings: ["backends = [\"a 02:00:00:00:00:01\"]\ncapacity = 1_000", "", "slots = 251"],
        written: Some(["backends", "add", "b 02:00:00:00:00:02", "backends"]),
        expected: &[("backends", StateWay::Anew), ("connections", StateWay::Whole)],
        full: Some("connections"),
    },
    Case {
        name: "mmb",
        settings: [
            "lines = [\"add-stateful ip-proto udp accept\"]",
            "connections = 1_000",
            "connections = 16",
        ],
        written: Some(["rules", "run", "add name web tcp-dport 80 drop", "lines"]),
        expected: &[("rules", StateWay::Whole), ("connections", StateWay::Anew)],
        full: Some("connections"),
    },
    Case {
        name: "mmb",
        settings: ["connections = 1_000", "lines = [\"add-stateful ip-proto udp accept\"]", ""],
        written: Some(["rules", "run", "policy drop", "lines"]),
        expected: &[("rules", StateWay::Anew), ("connections", StateWay::Whole)],
        full: Some("connections"),
    },
    Case {
        name: "shaper",
        settings: ["rate = \"1 Gbit/s\"", "queue = 100", "queue = 200"],
        written: Some(["bucket", "set", "rate 2 Gbit/s", "pace"]),
        expected: &[("bucket", StateWay::Whole)],
        full: None,
    },
    Case {
        name: "shaper",
        settings: ["queue = 100", "rate = \"1 Gbit/s\"", "rate = \"3 Gbit/s\""],
        written: Some(["bucket", "set", "rate 2 Gbit/s", "pace"]),
        expected: &[("bucket", StateWay::Anew)],
        full: None,
    },
    Case {
        name: "router",
        settings: [
            "interfaces = [\"near 192.0.2.1/24\"]\nroutes = [\"default via 192.0.2.7\"]",
            "",
            "capacity = 2_000",
        ],
        written: Some(["routes", "add", "198.51.100.0/24 via 192.0.2.8", "routes"]),
        expected: &[
            ("routes", StateWay::Whole),
            ("neighbours", StateWay::Copied),
            ("forwarded", StateWay::Whole),
        ],
        full: None,
    },
    Case {
        name: "router",
        settings: [
            "interfaces = [\"near 192.0.2.1/24\"]",
            "routes = [\"default via 192.0.2.7\"]\nheld = 100",
            "routes = [\"default via 192.0.2.9\"]\nheld = 200",
        ],
        written: Some(["routes", "add", "198.51.100.0/24 via 192.0.2.8", "routes"]),
        expected: &[("routes", StateWay::Anew), ("neighbours", StateWay::Whole)],
        full: None,
    },
    Case {
        name: "monitor",
        settings: ["", "capacity = 1_000", "capacity = 16"],
        written: None,
        expected: &[("flows", StateWay::Anew)],
        full: Some("flows"),
    },
    Case {
        name: "monitor",
        settings: ["capacity = 1_000", "", "top = 3"],
        written: None,
        expected: &[("flows", StateWay::Whole)],
        full: Some("flows"),
    },
];

/// A router's port, from which packets come back to it.
fn near(router: &str) -> String {
    format!(
        "[port.near]\ndriver = \"null\"\n[[chain]]\nfrom = \"near\"\nthrough = [\"{router}\"]\nto = \"near\"\n"
    )
}

/// Both files of a case.
fn files(case: &Case) -> [String; 2] {
    let Case { name, settings: [both, first, second], .. } = case;
    [first, second].map(|of| {
        let function = format!("[function.f]\nuse = \"{name}\"\n{both}\n{of}");
        match *name {
            "router" => chain("", &format!("{function}\n{}", near("f"))),
            _ => chain("\"f\"", &function),
        }
    })
}

/// The states of the one function that a plan replaces.
fn states(plan: &Plan) -> BTreeMap<String, (StateWay, String)> {
    let [change] = plan.changes.as_slice() else { panic!("{plan:?}") };
    assert_eq!((change.kind, change.name.as_str()), (ChangeKind::Replaced, "f"));
    change.states.iter().map(|of| (of.name.clone(), (of.way, of.reason.clone()))).collect()
}

/// The entries of the function's tables.
fn tables(asking: &Asking) -> BTreeMap<String, u64> {
    asking.stats().tables.into_iter().map(|table| (table.table, table.entries)).collect()
}

fn read(asking: &Asking, handler: &str) -> String {
    asking.call("f", handler, "", false).unwrap().answers[0].value.clone()
}

/// Compares what a change has done with what its plan said.
fn compare(case: &Case, planned: &BTreeMap<String, (StateWay, String)>, applied: &Applied) {
    let Case { name, .. } = case;
    assert_eq!(&states(&applied.plan), planned, "{name}");
    for (state, (way, reason)) in planned {
        assert_eq!(*way == StateWay::Whole, reason.is_empty(), "{name}: {state}: {reason}");
        let is_lost =
            applied.refused.iter().any(|refused| refused.contains(&format!("`{state}` begins again")));
        let is_moved = applied.moved.contains(&format!("f: {state}"));
        match way {
            // What all workers share gives way without a word.
            StateWay::Anew => assert!(is_lost || is_moved, "{name}: {state}: {applied:?}"),
            _ => assert!(is_moved && !is_lost, "{name}: {state}: {applied:?}"),
        }
    }
}

#[test]
fn a_plan_says_of_each_state_what_the_change_does() {
    for case in CASES {
        let [first, second] = files(case);
        while_running(&first, move |asking| {
            let Case { name, written, expected, full, .. } = case;
            asking.let_packets_pass();
            if let Some([_, write, argument, _]) = written {
                asking.call("f", write, argument, true).unwrap();
            }
            asking.ask(|director| director.suspend()).unwrap();
            let (before, shown) = (tables(asking), written.map(|[.., handler]| read(asking, handler)));
            let file = source(&second);
            let plan = asking.ask(move |director| director.plan(&file)).unwrap();
            let planned = states(&plan);
            for (state, way) in *expected {
                assert_eq!(
                    planned.get(*state).map(|(way, _)| *way),
                    Some(*way),
                    "{name}: {state}: {planned:?}"
                );
            }
            assert_eq!(tables(asking), before, "a plan changes nothing");
            let applied = asking.apply(&second).unwrap();
            compare(case, &planned, &applied);
            let after = tables(asking);
            for (table, entries) in &before {
                let (way, reason) = &planned[table];
                let left = if *way == StateWay::Anew { 0 } else { *entries };
                assert_eq!(after[table], left, "{name}: {table}: {reason}");
            }
            if let Some(table) = full {
                assert!(before[*table] > 16, "{name}: {table}: {before:?}");
            }
            if let Some([state, .., handler]) = written {
                let goes_on = planned[*state].0 != StateWay::Anew;
                assert_eq!(Some(read(asking, handler)) == shown, goes_on, "{name}: {state}");
            }
            asking.ask(|director| director.resume()).unwrap();
            asking.let_packets_pass();
        });
    }
}

/// Workers have tables of their own and share others, and functions go on in place.
#[test]
fn a_plan_adds_up_what_workers_have_and_counts_what_they_share_once() {
    let file = |backends: &str| {
        let function = format!(
            "[function.f]\nuse = \"maglev\"\nbackends = [{backends}]\ncapacity = 1_000\n\
             [function.g]\nuse = \"router\"\ninterfaces = [\"near 192.0.2.1/24\"]\n\
             neighbours = [\"near 192.0.2.7 02:00:00:00:00:07\"]\ncapacity = 1_000"
        );
        chain("\"f\"", &format!("{function}\n{}", near("g"))) + "workers = 2\n"
    };
    let (a, b) = ("\"a 02:00:00:00:00:01\"", "\"b 02:00:00:00:00:02\"");
    let first = file(a);
    let larger = file(a).replace("1_000", "2_000");
    let others = file(&format!("{a}, {b}"));
    while_running(&first, move |asking| {
        while tables(asking).get("connections") < Some(&64) {
            asking.let_packets_pass();
        }
        let plan = |text: &str| {
            let file = source(text);
            asking.ask(move |director| director.plan(&file)).unwrap().changes
        };
        let changes = plan(&larger);
        let of = |function: &str, state: &str| {
            let change = changes.iter().find(|change| change.name == function);
            let of = change.and_then(|change| change.states.iter().find(|of| of.name == state));
            let of = of.unwrap_or_else(|| panic!("{function}: {state}: {changes:?}"));
            (of.way, of.entries, of.bytes.is_some())
        };
        assert_eq!(of("f", "connections"), (StateWay::InSteps, 64, true));
        assert_eq!(of("g", "neighbours"), (StateWay::Copied, 0, false), "nothing moves");
        assert_eq!(of("g", "forwarded"), (StateWay::Whole, 2, false), "a counter of each worker");
        assert_eq!(of("g", "routes"), (StateWay::Whole, 5, false), "the same ones of both workers");
        // Of a function that goes on, all state does.
        let [change] = plan(&others).try_into().unwrap();
        assert_eq!((change.kind, change.name.as_str()), (ChangeKind::Updated, "f"));
        assert!(change.states.len() >= 2, "{change:?}");
        assert!(
            change.states.iter().all(|of| of.way == StateWay::Whole && of.reason.is_empty()),
            "{change:?}"
        );
    });
}
