//! Tests of routes that change while packets flow.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::packet::Link;
use netbricks_core::tables::Address;
use netbricks_core::{
    Blueprint, CallError, ControlCopy, DetachedContext, Function, HandlerKind, HandlerSide, Input, Node,
    Operator, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use proptest::prelude::*;

use super::{LpmSettings, NEXT_HOP, Route, lpm, lpm_counted, node};

fn pool() -> Pool {
    Pool::builder().frames(64).build().unwrap()
}

fn route(text: &str) -> Route {
    text.parse().unwrap()
}

fn of(count: bool, routes: &[&str]) -> Blueprint {
    let mut settings = LpmSettings::of(routes.iter().map(|text| route(text)));
    settings.count = count;
    Blueprint::new(move |worker| node(&settings, worker))
}

/// As `lpm`, writing the next hop in place of the Ethernet destination; 0 where there is none.
fn stamping(count: bool, routes: &[&str]) -> Blueprint {
    fn stamp(input: Input, worker: &Worker) -> impl Function + use<> {
        let next_hop = worker.annotation::<u32>(NEXT_HOP);
        input
            .parse::<Link>()
            .transform(move |packet| {
                let [a, b, c, d] = packet.annotation(next_hop).unwrap_or(0).to_be_bytes();
                packet.header_mut().ethernet_mut().set_destination([0, 0, a, b, c, d].into());
            })
            .done()
    }
    let mut settings = LpmSettings::of(routes.iter().map(|text| route(text)));
    settings.count = count;
    Blueprint::new(move |worker| {
        if settings.count {
            compose(worker, |input| lpm_counted(input, &settings, worker).then(|i| stamp(i, worker)))
        } else {
            compose(worker, |input| lpm(input, &settings, worker).then(|i| stamp(i, worker)))
        }
    })
}

fn control(blueprint: &Blueprint) -> ControlCopy {
    blueprint.control(pool(), 1).unwrap()
}

fn on_worker(blueprint: &Blueprint, index: usize) -> (Box<dyn Node>, Pool) {
    let pool = pool();
    (blueprint.build(&Worker::new(index, 1, pool.clone())).unwrap(), pool)
}

fn frame(to: IpAddr) -> Vec<u8> {
    match to {
        IpAddr::V4(to) => ethernet().ipv4("10.0.0.1", to).udp(1, 2).build(),
        IpAddr::V6(to) => ethernet().ipv6("2001:db8::1", to).udp(1, 2).build(),
    }
    .unwrap()
}

/// The next hops of packets to these addresses, all in one batch.
fn hops((node, pool): &mut (Box<dyn Node>, Pool), to: &[&str]) -> Vec<u32> {
    let mut cx = DetachedContext::new(pool.clone());
    let mut batch = Batch::new();
    for to in to {
        batch.push(pool.packet(&frame(to.parse().unwrap())).unwrap()).unwrap();
    }
    node.process(0, &mut batch, &mut cx);
    assert_eq!(batch.len(), to.len(), "none is lost");
    batch.iter().map(|packet| u32::from_be_bytes(packet.data()[2..6].try_into().unwrap())).collect()
}

#[test]
fn two_workers_see_what_the_control_side_changes() {
    for count in [false, true] {
        let blueprint = stamping(count, &["10.0.0.0/8 1"]);
        let mut control = control(&blueprint);
        let mut workers = [0, 1].map(|index| on_worker(&blueprint, index));
        let mut all = |expected: [u32; 3]| {
            for worker in &mut workers {
                let found = hops(worker, &["10.1.2.3", "192.0.2.1", "2001:db8::9"]);
                assert_eq!(found, expected, "{count}");
            }
        };
        all([1, 0, 0]);
        let lines = "10.1.0.0/16 2 # ours\n\n192.0.2.0/24 70000\n2001:db8::/32 3\n";
        assert_eq!(control.call_as(HandlerKind::Write, "add", lines), Ok("3 added, 0 replaced".into()));
        all([2, 70_000, 3]);
        assert_eq!(control.call("add", "10.1.0.0/16 9"), Ok("0 added, 1 replaced".into()));
        assert_eq!(control.call("lookup", "10.1.2.3"), Ok("9".into()));
        assert_eq!(control.call("withdraw", "10.1.0.0/16\n2001:db8::/32"), Ok("2 withdrawn".into()));
        all([1, 70_000, 0]);
        assert_eq!(control.call("routes", ""), Ok("ipv4 2\nipv6 0\n".into()));
        let listed = "ipv4 2\nipv6 0\n10.0.0.0/8 1\n192.0.2.0/24 70000\n";
        assert_eq!(control.call("routes", "10"), Ok(listed.into()));
        assert_eq!(control.call("routes.occupancy", "").unwrap().split(' ').next(), Some("2"));
        // Through a worker it is the same.
        assert_eq!(workers[0].0.call("withdraw", "10.0.0.0/8"), Ok("1 withdrawn".into()));
        assert_eq!(hops(&mut workers[1], &["10.1.2.3"]), [0]);
        assert_eq!(control.call("lookup", "10.1.2.3"), Ok("no route".into()));
    }
}

#[test]
fn handlers_say_what_they_take_and_refuse_the_rest() {
    let blueprint = of(false, &["10.0.0.0/8 1", "192.0.2.0/24 2"]);
    let mut control = control(&blueprint);
    let shown: Vec<_> = control.handlers().iter().take(4).cloned().collect();
    let shown = shown.iter().map(|h| (h.name.as_str(), h.kind, h.argument.as_deref().unwrap_or_default()));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            ("add", HandlerKind::Write, "PREFIX NEXT-HOP"),
            ("withdraw", HandlerKind::Write, "PREFIX"),
            ("lookup", HandlerKind::Read, "ADDRESS"),
            ("routes", HandlerKind::Read, "[ROUTES]"),
        ]
    );
    let of_control = |name: &&netbricks_core::Handler| name.side == HandlerSide::Control;
    assert_eq!(control.handlers().iter().filter(of_control).count(), 5, "with `routes.occupancy`");
    let refused = control.call_as(HandlerKind::Read, "add", "10.9.0.0/16 1").unwrap_err();
    assert_eq!(refused, CallError::Kind { name: "add".into(), kind: HandlerKind::Write });
    for (name, argument, part) in [
        ("add", "10.0.0.0/33 1", "give a length of 0 to 32"),
        ("add", "10.9.0.0/16 1\n10.0.0.0/33 1", "line 2: `10.0.0.0/33`"),
        ("add", "10.9.0.0/16 1\n10.9.0.0/16 2", "line 2: 10.9.0.0/16 stands in line 1 already"),
        ("add", "10.9.0.0/16 4294967296", "expected a next hop (a number, 0 to 4294967295)"),
        ("add", "x\ny", "2 wrong routes\nline 1: expected a prefix"),
        ("add", " \n# nothing", "expected at least one route"),
        ("add", "", "expected at least one route"),
        ("withdraw", "10.0.0.0/8 1", "expected nothing behind the prefix, found `1`"),
        ("withdraw", "10.0.0.0/8\n10.3.0.0/16", "line 2: there is no route for 10.3.0.0/16"),
        ("withdraw", "198.51.100.0/24", "there is no route for 198.51.100.0/24"),
        ("lookup", "home", "expected an IP address, found `home`"),
        ("routes", "10001", "expected a number of routes to list, 0 to 10000"),
        ("routes", "-1", "0 to 10000, found `-1`"),
    ] {
        let error = control.call(name, argument).unwrap_err().to_string();
        assert!(error.contains(part), "{name} {argument:?}: {error}");
    }
    let around = control.call("withdraw", "10.3.0.0/16").unwrap_err().to_string();
    assert!(around.ends_with("the one around it is for 10.0.0.0/8"), "{around}");
    assert_eq!(control.call("routes", "9"), Ok("ipv4 2\nipv6 0\n10.0.0.0/8 1\n192.0.2.0/24 2\n".into()));
}

/// A next hop that comes later has a count of its own on each worker.
#[test]
fn packets_of_a_new_next_hop_are_counted() {
    let blueprint = of(true, &["10.0.0.0/8 7"]);
    let mut control = control(&blueprint);
    let mut workers = [0, 1].map(|index| on_worker(&blueprint, index));
    let rows = |worker: &mut (Box<dyn Node>, Pool)| -> Vec<String> {
        worker.0.report().remove(0).rows.iter().map(|row| row.join(" ")).collect()
    };
    hops(&mut workers[0], &["10.1.2.3"]);
    let many: Vec<String> =
        (0..300u32).map(|hop| format!("10.{}.{}.0/24 {}", hop >> 8, hop & 255, hop)).collect();
    control.call("add", &many.join("\n")).unwrap();
    hops(&mut workers[0], &["10.1.2.3", "10.0.9.1", "10.0.9.2", "10.200.0.1"]);
    hops(&mut workers[1], &["10.0.7.3", "192.0.2.1"]);
    assert_eq!(rows(&mut workers[0]), ["7 2", "9 2", "258 1", "no route 0"]);
    assert_eq!(rows(&mut workers[1]), ["7 1", "no route 1"]);
    // Of very many, the last ones have one count together.
    let most = super::counted::MORE as u32;
    let very_many: Vec<String> = (1_000..1_000 + most)
        .map(|hop| format!("172.{}.{}.0/24 {hop}", 16 + (hop >> 8), hop & 255))
        .collect();
    control.call("add", &very_many.join("\n")).unwrap();
    let last = 1_000 + most - 1;
    hops(&mut workers[1], &["172.20.0.1", &format!("172.{}.{}.1", 16 + (last >> 8), last & 255)]);
    assert_eq!(rows(&mut workers[1]), ["7 1", "1024 1", "other next hops 1", "no route 1"]);
    // A withdrawn next hop keeps its count.
    control.call("withdraw", "10.0.9.0/24").unwrap();
    assert_eq!(rows(&mut workers[0])[1], "9 2");
}

/// Lets a node of a new graph take over what workers share, as a graph does.
fn take_over(new: &mut (Box<dyn Node>, Pool), old: &mut (Box<dyn Node>, Pool)) {
    for (name, shared) in old.0.shared_state() {
        assert_eq!(new.0.adopt(&name, &shared, 1), Some(Ok(())));
    }
    let routes = old.0.export().into_iter().find(|(name, _)| name == "routes").unwrap();
    assert!(routes.1.is_empty(), "they are not exported too");
}

#[test]
fn an_unchanged_file_keeps_live_changes_and_a_changed_one_holds() {
    let before = stamping(false, &["10.0.0.0/8 1", "192.0.2.0/24 5"]);
    let mut old = [0, 1].map(|index| on_worker(&before, index));
    control(&before).call("add", "10.1.0.0/16 2\n192.0.2.0/24 6").unwrap();
    let to = ["10.1.2.3", "192.0.2.1", "198.51.100.1"];
    let mut same = stamping(false, &["192.0.2.0/24 5", "10.0.0.0/8 1"]);
    for (routes, expected) in [
        // The order in the file makes no other file, as long as the lengths are in one order.
        (&["192.0.2.0/24 5", "10.0.0.0/8 1"][..], [2, 6, 0]),
        (&["10.0.0.0/8 1", "198.51.100.0/24 3"], [1, 0, 3]),
    ] {
        let after = stamping(false, routes);
        let mut early = control(&after);
        let mut new = [0, 1].map(|index| on_worker(&after, index));
        take_over(&mut new[0], &mut old[0]);
        assert_eq!(hops(&mut new[0], &to), expected);
        assert_eq!(hops(&mut old[1], &to), [2, 6, 0], "the old graph goes on with its routes");
        take_over(&mut new[1], &mut old[1]);
        assert_eq!(hops(&mut new[1], &to), expected);
        for copy in [&mut early, &mut control(&after)] {
            assert_eq!(copy.call("lookup", to[0]), Ok(expected[0].to_string()));
        }
        // Changes go on, and come to the workers that have the new graph.
        early.call("add", "10.2.0.0/16 9").unwrap();
        assert_eq!(new.each_mut().map(|new| hops(new, &["10.2.0.1"])[0]), [9, 9]);
        early.call("withdraw", "10.2.0.0/16").unwrap();
        old = new;
        same = after;
    }
    drop(same);
}

/// A process that starts again with the same file takes over live changes by their export.
#[test]
fn an_export_carries_live_changes_to_the_same_file_only() {
    for count in [false, true] {
        let (mut first, _) = on_worker(&of(count, &["10.0.0.0/8 1"]), 0);
        first.call("add", "192.0.2.0/24 5\n2001:db8::/48 6").unwrap();
        first.call("withdraw", "10.0.0.0/8").unwrap();
        let image = |node: &mut Box<dyn Node>| {
            node.export().into_iter().find_map(|(name, image)| (name == "routes").then_some(image)).unwrap()
        };
        let bytes = image(&mut first);
        let (mut same, _) = on_worker(&of(count, &["10.0.0.0/8 1"]), 0);
        same.import("routes", &bytes, 1).unwrap();
        assert_eq!(same.call("routes", "9"), first.call("routes", "9"));
        assert_eq!(image(&mut same), bytes);
        let (mut other, _) = on_worker(&of(count, &["10.0.0.0/8 2"]), 0);
        other.import("routes", &bytes, 1).unwrap();
        assert_eq!(other.call("routes", "9"), Ok("ipv4 1\nipv6 0\n10.0.0.0/8 2\n".into()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(same.import("routes", &damaged, 1).is_err(), "byte {at}");
        }
        assert_eq!(image(&mut same), bytes);
    }
}

/// Addresses and prefixes close to each other, so that changes meet.
fn prefix() -> impl Strategy<Value = (IpAddr, u8)> {
    prop_oneof![
        (
            0u32..4,
            prop::sample::select(vec![0u32, 1, 0x40, 0x80ff]),
            prop::sample::select(vec![8u8, 20, 23, 24, 26, 32])
        )
            .prop_map(|(a, b, len)| {
                let address = Ipv4Addr::from_bits(0x0a00_0000 | a << 18 | b).truncated(len);
                (IpAddr::V4(address), len)
            }),
        (0u128..4, prop::sample::select(vec![16u8, 32, 47, 48, 128])).prop_map(|(a, len)| {
            (IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | a << 79).truncated(len)), len)
        }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Add(BTreeMap<(IpAddr, u8), u32>),
    Withdraw(std::collections::BTreeSet<(IpAddr, u8)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hop = prop_oneof![0u32..4, any::<u32>()];
    prop::collection::vec(
        prop_oneof![
            2 => prop::collection::btree_map(prefix(), hop, 1..6).prop_map(Step::Add),
            1 => prop::collection::btree_set(prefix(), 1..3).prop_map(Step::Withdraw),
        ],
        1..24,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The model is a map, of which a call changes all or nothing; a worker's packets follow it.
    #[test]
    fn calls_are_made_whole_or_not_at_all(steps in steps(), count: bool, asked in prop::collection::vec(prefix(), 1..12)) {
        let blueprint = stamping(count, &["10.0.0.0/9 1"]);
        let mut control = control(&blueprint);
        let mut worker = on_worker(&blueprint, 0);
        let mut model = BTreeMap::from([(("10.0.0.0".parse::<IpAddr>().unwrap(), 9u8), 1u32)]);
        for step in steps {
            match step {
                Step::Add(routes) => {
                    let lines: Vec<_> = routes.iter().map(|((prefix, len), hop)| format!("{prefix}/{len} {hop}")).collect();
                    let new = routes.keys().filter(|prefix| !model.contains_key(prefix)).count();
                    let said = format!("{new} added, {} replaced", routes.len() - new);
                    prop_assert_eq!(control.call("add", &lines.join("\n")), Ok(said));
                    model.extend(routes);
                }
                Step::Withdraw(prefixes) => {
                    let lines: Vec<_> = prefixes.iter().map(|(prefix, len)| format!("{prefix}/{len}")).collect();
                    let made = control.call("withdraw", &lines.join("\n"));
                    if prefixes.iter().all(|prefix| model.contains_key(prefix)) {
                        prop_assert_eq!(made, Ok(format!("{} withdrawn", prefixes.len())));
                        model.retain(|prefix, _| !prefixes.contains(prefix));
                    } else {
                        prop_assert!(made.unwrap_err().to_string().contains("there is no route for"));
                    }
                }
            }
            let lines = model.iter().map(|((prefix, len), hop)| format!("{prefix}/{len} {hop}\n"));
            let v4 = model.keys().filter(|(prefix, _)| prefix.is_ipv4()).count();
            let listed = format!("ipv4 {v4}\nipv6 {}\n{}", model.len() - v4, lines.collect::<String>());
            prop_assert_eq!(control.call("routes", "10000"), Ok(listed));
        }
        let to: Vec<_> = asked.iter().map(|(address, _)| address.to_string()).collect();
        let expected: Vec<_> = asked.iter().map(|(address, _)| {
            let holds = |(prefix, len): &&(IpAddr, u8)| {
                prefix.is_ipv4() == address.is_ipv4() && super::route::truncated(*address, *len) == *prefix
            };
            model.keys().filter(holds).max_by_key(|(_, len)| *len).map_or(0, |longest| model[longest])
        }).collect();
        prop_assert_eq!(hops(&mut worker, &to.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }
}

/// Workers on threads of their own lose no packet, and no batch sees half of a change.
#[test]
fn packets_flow_while_routes_change() {
    let blueprint = stamping(true, &["0.0.0.0/0 1"]);
    let mut control = control(&blueprint);
    let done = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|index| {
            let (blueprint, done) = (blueprint.clone(), done.clone());
            thread::spawn(move || {
                let mut worker = on_worker(&blueprint, index);
                let mut sent = 0u64;
                while !done.load(Ordering::Acquire) {
                    let found = hops(&mut worker, &["10.1.0.1", "10.2.0.1", "10.1.0.2"]);
                    assert!(found.iter().all(|hop| *hop == found[0]), "{found:?}");
                    sent += 3;
                }
                let rows = worker.0.report().remove(0).rows;
                let counted = rows.iter().map(|row| row[1].parse::<u64>().unwrap());
                assert_eq!(counted.sum::<u64>(), sent);
                assert_eq!(worker.1.available(), worker.1.capacity());
                sent
            })
        })
        .collect();
    for round in 0..3_000 {
        control.call("add", &format!("10.1.0.0/16 {0}\n10.2.0.0/16 {0}", 2 + round)).unwrap();
        // The table grows now and then.
        control.call("add", &format!("172.16.{}.{}/32 7", round >> 8, round & 0xff)).unwrap();
        if round % 3 == 0 {
            control.call("withdraw", "10.1.0.0/16\n10.2.0.0/16").unwrap();
        }
    }
    done.store(true, Ordering::Release);
    for worker in workers {
        assert!(worker.join().unwrap() > 0);
    }
}
