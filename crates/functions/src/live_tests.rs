//! Tests of settings that handlers write while a function goes on.

use netbricks_core::buffer::Pool;
use netbricks_core::{Blueprint, ControlCopy, LiveChange, Registry};

struct Case {
    function: &'static str,
    /// The settings beside the entries.
    rest: &'static str,
    key: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    /// The handler that lists the entries, with its argument.
    listed: (&'static str, &'static str),
    told: &'static str,
    /// An entry that changes, as another handler's argument has it, and one that stays.
    touched: &'static str,
    untouched: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        function: "lpm",
        rest: "count = true",
        key: "routes",
        before: &["10.0.0.0/8 1", "192.0.2.0/24 2", "2001:db8::/32 3", "198.51.100.0/24 4"],
        after: &["10.0.0.0/8 1", "192.0.2.0/24 9", "203.0.113.0/24 5", "203.0.113.0/25 6"],
        listed: ("routes", "100"),
        told: "2 routes added, 1 changed, 2 removed",
        touched: "10.0.0.0/9 7\n2001:DB8:0::/32",
        untouched: "10.0.0.0/8 7",
    },
    Case {
        function: "router",
        rest: "interfaces = [\"lan 192.0.2.1/24\"]",
        key: "routes",
        before: &["10.0.0.0/8 via 192.0.2.9", "198.51.100.0/24 blackhole"],
        after: &["10.0.0.0/8 via 192.0.2.9 weight 2 via 192.0.2.10", "default via 192.0.2.7"],
        listed: ("routes", "100"),
        told: "1 route added, 1 changed, 1 removed",
        touched: "0.0.0.0/0",
        untouched: "192.0.2.0/24",
    },
    Case {
        function: "maglev",
        rest: "slots = 251",
        key: "backends",
        before: &["a 02:00:00:00:00:01", "b 02:00:00:00:00:02", "c 02:00:00:00:00:03 2"],
        after: &[
            "b 02:00:00:00:00:02 1",
            "c 02:00:00:00:00:04 2",
            "d 02:00:00:00:00:05 0",
            "e 02:00:00:00:00:06",
        ],
        listed: ("backends", ""),
        told: "2 backends added, 1 changed, 1 removed",
        touched: "c 5",
        untouched: "b 5",
    },
    Case {
        function: "load-balancer",
        rest: "addresses = [\"192.0.2.80\"]\nslots = 251",
        key: "servers",
        before: &["a 02:00:00:00:00:01"],
        after: &["b 192.0.2.5:80 02:00:00:00:00:02 7"],
        listed: ("servers", ""),
        told: "1 server added, 1 removed",
        touched: "a up",
        untouched: "c up",
    },
];

fn blueprint(case: &Case, entries: &[&str]) -> Blueprint {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let settings = format!("{} = {entries:?}\n{}", case.key, case.rest);
    registry.get(case.function).unwrap().blueprint(&settings).unwrap()
}

fn pool() -> Pool {
    Pool::builder().frames(64).build().unwrap()
}

fn listed(case: &Case, copy: &mut ControlCopy) -> Vec<String> {
    let text = copy.call(case.listed.0, case.listed.1).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn change(before: &Blueprint, after: &Blueprint) -> LiveChange {
    before.live_change_to(after, &[]).unwrap()
}

#[test]
fn handlers_bring_the_state_of_one_file_to_that_of_another() {
    for case in &CASES {
        let (before, after) = (blueprint(case, case.before), blueprint(case, case.after));
        assert!(before.live_keys().contains(&case.key));
        let mut running = before.control(pool(), 1).unwrap();
        let first = listed(case, &mut running);
        let mut fresh = after.control(pool(), 1).unwrap();
        let change = change(&before, &after);
        assert_eq!(change.to_string(), case.told, "{}", case.function);
        assert!(change.touches(case.touched) && !change.touches(case.untouched), "{}", case.function);
        let mut copy = after.in_place_of(&before).control(pool(), 1).unwrap();
        change.write(&mut copy).unwrap();
        assert_eq!(listed(case, &mut copy), listed(case, &mut fresh), "{}", case.function);
        assert_eq!(listed(case, &mut running), listed(case, &mut copy), "one state has two copies");
        change.undo(&mut copy).unwrap();
        assert_eq!(listed(case, &mut running), first, "{}", case.function);
        assert_eq!(self::change(&before, &before).to_string(), format!("the same {}", case.key));
    }
}

#[test]
fn what_handlers_wrote_stands_before_the_file() {
    let (lpm, lb) = (&CASES[0], &CASES[2]);
    let written = [("add", "192.0.2.0/24 7\n11.0.0.0/8 1 # new"), ("withdraw", "198.51.100.0/24")];
    let (before, after) = (blueprint(lpm, lpm.before), blueprint(lpm, lpm.after));
    let change = before.live_change_to(&after, &written).unwrap();
    assert_eq!(change.to_string(), "2 routes added, 1 removed", "handlers changed and withdrew the others");
    let (key, routes) = before.live_list(&written).unwrap();
    assert_eq!(
        (key, routes),
        (
            "routes",
            ["10.0.0.0/8 1", "192.0.2.0/24 7", "2001:db8::/32 3", "11.0.0.0/8 1"].map(str::to_owned).into()
        )
    );
    let (before, after) = (blueprint(lb, lb.before), blueprint(lb, lb.after));
    let written = [("weight", "c 9"), ("drain", "a"), ("remove", "b")];
    let change = before.live_change_to(&after, &written).unwrap();
    assert_eq!(change.to_string(), "2 backends added, 1 changed, 1 removed");
    let backends = ["a 02:00:00:00:00:01 0", "c 02:00:00:00:00:03 9"].map(str::to_owned);
    assert_eq!(before.live_list(&written), Some(("backends", backends.into())));
    // Some writes are of something else. Then entries that they name may not change.
    let other = [("forget", ""), ("weight", "c 9")];
    assert!(before.live_list(&other).is_none() && before.live_change_to(&after, &other).is_none());
    let same = before.live_change_to(&after, &[("forget", ""), ("weight", "b 9")]).unwrap();
    assert_eq!(same.to_string(), lb.told);
}

#[test]
fn a_refused_step_leaves_all_entries_as_they_were() {
    // 2,500 new routes in three steps; the last step then withdraws a route that is not there any more.
    let case = &CASES[0];
    let many: Vec<String> =
        (0..2_500).map(|route| format!("10.{}.{}.0/24 7", route / 250, route % 250)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (before, after) = (blueprint(case, case.before), blueprint(case, &many));
    let mut running = before.control(pool(), 1).unwrap();
    running.call("withdraw", "192.0.2.0/24").unwrap();
    let first = listed(case, &mut running);
    let change = change(&before, &after);
    assert_eq!((change.added, change.changed, change.removed), (2_500, 0, 4));
    let refused = change.write(&mut after.in_place_of(&before).control(pool(), 1).unwrap()).unwrap_err();
    assert!(refused.contains("there is no route for 192.0.2.0/24"), "{refused}");
    assert_eq!(listed(case, &mut running), first);
}

/// The state that handlers wrote counts as that of the second file, and not of the first.
#[test]
fn a_later_change_goes_on_from_what_was_written() {
    use netbricks_core::Worker;
    let case = &CASES[2];
    let (first, second) = (blueprint(case, case.before), blueprint(case, case.after));
    let mut old = first.build(&Worker::new(0, 1, pool())).unwrap();
    let _running = first.control(pool(), 1).unwrap();
    let second = second.in_place_of(&first);
    let mut copy = second.control(pool(), 1).unwrap();
    change(&first, &second).write(&mut copy).unwrap();
    copy.agree();
    copy.call("weight", "e 3").unwrap();
    let live = listed(case, &mut copy);
    // A node of the first file gives way to it; one of the second goes on with what handlers wrote since.
    for (entries, goes_on) in [(case.after, true), (case.before, false)] {
        let next = blueprint(case, entries);
        let mut control = next.control(pool(), 1).unwrap();
        let own = listed(case, &mut control);
        let mut new = next.build(&Worker::new(0, 1, pool())).unwrap();
        for (name, shared) in old.shared_state() {
            assert_eq!(new.adopt(&name, &shared, 1), Some(Ok(())));
        }
        assert_eq!(listed(case, &mut control), if goes_on { live.clone() } else { own });
    }
}
