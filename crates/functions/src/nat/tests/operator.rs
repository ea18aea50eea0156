//! Work that an operator asks for while many sessions are there, and events that a run follows.

use super::super::handlers::Filter;
use super::super::purge::{Chosen, Purge};
use super::super::session::Mapping;
use super::super::spec::{Endpoint, Transport};
use super::super::state::State;
use super::*;

/// Opens sessions of hosts of 10.0.1.0/24 and above, up to 500 each.
fn open_many(test: &mut Clocked, count: u32) {
    let frames = (0..count).map(|number| {
        let host = format!("10.0.{}.{}", 1 + number / 500 / 250, 1 + number / 500 % 250);
        udp(&host, 4_000 + (number % 500) as u16, SERVER, 53)
    });
    assert_eq!(test.send(frames.collect::<Vec<_>>()).out.len(), count as usize);
}

#[test]
fn many_sessions_end_a_part_at_a_time_and_later_ones_stay() {
    let mut test = nat("capacity = 8192");
    open_many(&mut test, 3_000);
    assert_eq!(test.call("flush", ""), "ending 3000 sessions, a part at a time");
    assert_eq!(count(&mut test, "sessions"), 3_000 - 1_024, "the rest waits");
    // What comes now is none of them, also in a place that is free again.
    open(&mut test, "10.9.0.1", 4_000, SERVER, 53);
    test.advance(Duration::from_secs(1));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (1, 1));
    assert_eq!(count(&mut test, "ports_held_down"), 3_000);
    assert_eq!(test.call("flush", "10.9.0.0/24"), "ended 1 sessions");
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "subscribers")), (0, 0));
}

#[test]
fn calls_that_end_sessions_are_bounded() {
    let config = config("capacity = 8192");
    let mut state = State::new(&config, 1, false).unwrap();
    assert!(state.purge(Chosen::Addresses(Vec::new())), "there is nothing to end");
    for number in 0..64 {
        assert!(state.may_purge().is_ok(), "{number}");
        // Those before it are not over while their sessions are not looked at.
        state.purges.push_back(Purge::of(Chosen::Filter(Filter::default())));
    }
    assert!(state.may_purge().unwrap_err().contains("try again"));
    state.purge_some(1);
    assert!(state.may_purge().is_ok());
}

#[test]
fn an_address_leaves_with_the_last_of_many_sessions() {
    let mut test = nat("capacity = 8192\nblock = 512\nlog = 4096\npool = [\"203.0.113.7\"]");
    open_many(&mut test, 3_000);
    test.call("pool-add", "203.0.113.8");
    let answer = test.call("pool-remove", POOL);
    assert_eq!(answer, "1 addresses, whose sessions end a part at a time");
    // Its mappings get no more sessions. New mappings have the other address.
    let report = test.send([udp("10.0.1.6", 4_400, SERVER_2, 53), udp(OTHER, 4_000, SERVER, 53)]);
    assert!(report.out.iter().all(|frame| frame[26..30] == [203, 0, 113, 8]), "{:?}", report.drops);
    test.advance(Duration::from_secs(1));
    assert!(!test.call("pool", "").contains(POOL));
    let sessions = test.call("sessions", "");
    assert_eq!(sessions.lines().count(), report.out.len(), "{sessions}");
    let log = test.call("log", "");
    let of = |event: &str| {
        log.lines().filter(|line| line.contains(event) && line.contains(" 203.0.113.7 ")).count()
    };
    assert_eq!((of("assigned"), of("released")), (6, 6), "{log}");
    // It may come back.
    assert_eq!(test.call("pool-add", POOL), format!("added {POOL}"));
    assert!(test.call("pool", "").contains(&format!("{POOL} active 0 0 0 0 0")));
}

#[test]
fn a_static_mapping_goes_on_while_its_address_leaves_the_pool() {
    let mut test = nat("capacity = 8192\nstatic = [\"udp 203.0.113.7:53 -> 10.0.0.5:5353\"]");
    assert_eq!(open(&mut test, "10.0.0.5", 5_353, SERVER, 9), 53);
    open_many(&mut test, 3_000);
    let answer = test.call("pool-remove", POOL);
    assert_eq!(answer, "1 addresses, whose sessions end a part at a time");
    // Its sessions stay, it gets others, and strangers reach it.
    let back = through(&mut test, udp(SERVER, 9, POOL, 53));
    assert_eq!(shown(&back), format!("{SERVER}:9 > 10.0.0.5:5353"));
    assert_eq!(open(&mut test, "10.0.0.5", 5_353, SERVER_2, 9), 53);
    through(&mut test, udp("192.0.2.1", 9, POOL, 53));
    test.advance(Duration::from_secs(1));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (2, 1));
    assert!(test.call("pool", "").contains(&format!("{POOL} static")));
    assert_eq!(open(&mut test, "10.0.0.5", 5_353, "192.0.2.1", 9), 53);
}

#[test]
fn only_mappings_of_subscribers_end_with_their_address() {
    let config = config("static = [\"udp 203.0.113.7:53 -> 10.0.0.5:5353\"]");
    let mut state = State::new(&config, 1, false).unwrap();
    let index = state.ports.index(POOL.parse().unwrap()).unwrap();
    let inside = Endpoint { address: "10.0.0.5".parse().unwrap(), port: 5_353 };
    let number = state.mapping_inside(inside, Transport::Udp).unwrap();
    let fixed = *state.mappings.get(number).unwrap();
    let subscriber = state.subscribe_at(INSIDE.parse().unwrap(), index, 0);
    let inside = Endpoint { address: INSIDE.parse().unwrap(), port: 4_000 };
    let other = Mapping { inside, port: 4_000, subscriber, ..fixed };
    let other = state.enter_mapping(other).unwrap();
    assert!(!state.is_ending(number) && !state.is_ending(other));
    // Its sessions are not looked at yet.
    state.purges.push_back(Purge::of(Chosen::Addresses(vec![index])));
    assert!(!state.is_ending(number) && state.is_ending(other));
}

#[test]
fn an_address_that_static_mappings_keep_releases_each_block_once() {
    let fixed = "static = [\"udp 203.0.113.7:53 -> 10.0.0.5:5353\"]";
    let mut test = nat(&format!("block = 512\nlog = 64\nudp = \"1 s\"\nhold_down = \"60 s\"\n{fixed}"));
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    test.advance(Duration::from_secs(2));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "ports_held_down")), (0, 1));
    test.call("pool-add", "203.0.113.8");
    assert_eq!(test.call("pool-remove", POOL), "1 addresses");
    assert_eq!(count(&mut test, "ports_held_down"), 0);
    // Another subscriber takes the place of the first one in the table, while its port would be held down.
    open(&mut test, OTHER, 4_000, SERVER, 53);
    test.advance(Duration::from_secs(200));
    let log = test.call("log", "");
    let events: Vec<_> = log.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
    let of = |event: &str| events.iter().filter(|line| line.starts_with(event)).count();
    let blocks = [
        "assigned 10.0.0.1 203.0.113.7 ",
        "released 10.0.0.1 203.0.113.7 ",
        "assigned 10.0.0.2 203.0.113.8 ",
        "released 10.0.0.2 203.0.113.8 ",
    ];
    assert_eq!((blocks.map(of), events.len()), ([1; 4], 4), "{log}");
}

#[test]
fn a_static_mapping_with_many_sessions_is_gone_at_once() {
    let mapping = "udp 203.0.113.7:53 -> 10.0.0.5:5353";
    let mut test = nat(&format!("capacity = 8192\nstatic = [\"{mapping}\"]"));
    let servers = (0..3_000u32).map(|number| format!("198.51.{}.{}", number / 250, 1 + number % 250));
    let frames = servers.map(|server| udp("10.0.0.5", 5_353, &server, 9));
    assert_eq!(test.send(frames.collect::<Vec<_>>()).out.len(), 3_000);
    test.call("static-remove", mapping);
    assert_eq!(test.call("static", ""), "");
    assert_eq!(test.send([udp("192.0.2.1", 9, POOL, 53)]).out.len(), 0);
    // The host gets a mapping of its own, also while the sessions end, and keeps it.
    let port = open(&mut test, "10.0.0.5", 5_353, "192.0.2.1", 9);
    assert_ne!(port, 53);
    test.advance(Duration::from_secs(1));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (1, 1));
    assert_eq!(open(&mut test, "10.0.0.5", 5_353, "192.0.2.2", 9), port);
    test.call("flush", "");
    test.call("static-add", mapping);
    assert_eq!(open(&mut test, "10.0.0.5", 5_353, SERVER, 9), 53);
}

#[test]
fn a_long_list_says_how_much_is_left() {
    let mut test = nat("capacity = 16384");
    open_many(&mut test, 10_050);
    for list in ["sessions", "mappings"] {
        let text = test.call(list, "");
        assert_eq!(text.lines().count(), 10_001, "{list}");
        assert_eq!(text.lines().last(), Some("and 50 more"), "{list}");
    }
}

#[test]
fn events_of_blocks_are_told_once_and_none_is_lost_in_silence() {
    let mut test = nat("block = 512\nudp = \"1 s\"\nhold_down = \"0 s\"\nlog = 2");
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    let told = test.call("events", "");
    let (head, event) = told.split_once('\n').unwrap();
    assert_eq!(head, "{\"next\":1,\"missed\":0}");
    assert!(event.starts_with("{\"event\":\"block-assigned\",\"time\":1000000000,"), "{event}");
    assert!(event.contains("\"subscriber\":\"10.0.0.1\",\"outside\":\"203.0.113.7\",\"first\":"), "{event}");
    test.advance(Duration::from_secs(2));
    let told = test.call("events", "1");
    assert!(told.starts_with("{\"next\":2,\"missed\":0}\n{\"event\":\"block-released\""), "{told}");
    // Beyond what is kept, a reader sees how many it missed.
    for host in 0..3 {
        open(&mut test, &format!("10.0.0.{}", 10 + host), 4_000, SERVER, 53);
    }
    assert!(test.call("events", "2").starts_with("{\"next\":5,\"missed\":1}\n"));
    assert_eq!(count(&mut test, "log_events_lost"), 0);
}

#[test]
fn several_parts_are_warned_of() {
    assert_eq!(config("").warnings().len(), 0);
    let warnings = config("parts = 16").warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].key == "parts" && warnings[0].problem.contains("16 parts"),
        "{}",
        warnings[0].problem
    );
}
