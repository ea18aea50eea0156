//! The requests for RADIUS servers, their answers, and reports, as the control task sees them.

use netbricks_core::DropReason;

use super::client::{Client, rig};
use super::negotiation::Users;
use crate::bras::radius::{code, from_hex};
use crate::router::tests::rig::Rig;

/// A concentrator that asks RADIUS servers.
fn asking(name: &str, more: &str) -> (Rig, Users) {
    let secret = Users::new(name, "shared-secret\n");
    let setting = secret.setting().replace("users = ", "secret = ");
    (rig(&format!("radius = [\"127.0.0.1:9\"]\n{setting}{more}")), secret)
}

/// The requests that wait: kind, session with token, and packet.
fn take(rig: &mut Rig) -> Vec<(String, String, Vec<u8>)> {
    let lines = rig.ask("take-requests", "").unwrap();
    let words = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), words[1..3].join(" "), from_hex(words[3]).unwrap())
    };
    lines.lines().map(words).collect()
}

fn attribute(packet: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = &packet[20..];
    while let [found, len, ..] = rest {
        let (this, after) = rest.split_at(usize::from(*len));
        if *found == kind {
            return Some(&this[2..]);
        }
        rest = after;
    }
    None
}

#[test]
fn an_accept_gives_address_times_and_servers() {
    let (mut rig, _secret) = asking("accept", "");
    let mut client = Client { insists: Some(0xc023), ..Client::new(1) };
    client.dial(&mut rig);
    assert_eq!(client.is_in, None);
    let requests = take(&mut rig);
    let [(kind, number, packet)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((kind.as_str(), packet[0]), ("access", code::ACCESS_REQUEST));
    assert_eq!(attribute(packet, 1), Some(&b"alice"[..]));
    assert_eq!(attribute(packet, 2).map(<[u8]>::len), Some(16), "a hidden password");
    assert!(!packet.windows(11).any(|bytes| bytes == b"open-sesame"));
    assert!(take(&mut rig).is_empty(), "each is taken once");
    let answer = format!(
        "{number} accept address 10.77.0.1 dns 8.8.8.8 session-timeout 60 idle-timeout 20 interim 60\n"
    );
    assert_eq!(rig.ask("answer", &answer), Ok("1 sessions answered".into()));
    client.wait(&mut rig, 200);
    assert!(client.is_open(), "{client:?}");
    assert_eq!(
        (client.address.to_string(), client.dns[0].to_string()),
        ("10.77.0.1".into(), "8.8.8.8".into())
    );
    // It began: a report. It goes on and ends: two more.
    let started = take(&mut rig);
    assert_eq!(
        (started[0].0.as_str(), attribute(&started[0].2, 40)),
        ("accounting", Some(&[0, 0, 0, 1][..]))
    );
    assert_eq!(attribute(&started[0].2, 8), Some(&[10, 77, 0, 1][..]));
    client.wait(&mut rig, 21_000);
    assert!(client.is_closed, "it was idle");
    let stopped = take(&mut rig);
    let last = &stopped.last().unwrap().2;
    assert_eq!(
        (attribute(last, 40), attribute(last, 49)),
        (Some(&[0, 0, 0, 2][..]), Some(&[0, 0, 0, 4][..]))
    );
    assert_eq!(attribute(last, 44), attribute(&started[0].2, 44), "one Acct-Session-Id");
}

#[test]
fn the_delegated_prefix_comes_first_others_are_counted_and_reports_have_the_class() {
    let (mut rig, _secret) = asking("prefix", "prefixes = \"2001:db8:100::/48\"\nprefix_length = 56\n");
    for (given, expected, ignored) in [
        ("framed-prefix 2001:db8:1::/56 prefix 2001:db8:2::/56", "2001:db8:2::/56", '0'),
        ("framed-prefix 2001:db8:3::/56 prefix 2001:db8:4::/60", "2001:db8:3::/56", '1'),
        ("framed-prefix 2001:db8:5::/64 odd-prefix 72", "2001:db8:100::/56", '3'),
    ] {
        let mut client = Client { insists: Some(0xc023), ..Client::new(ignored as u8) };
        client.dial(&mut rig);
        let (_, session, _) = take(&mut rig).into_iter().find(|(kind, ..)| kind == "access").unwrap();
        rig.ask("answer", &format!("{session} accept {given} class 01fe")).unwrap();
        client.wait(&mut rig, 200);
        assert!(client.is_open());
        let listed = rig.ask("sessions", "").unwrap();
        assert!(listed.contains(&format!(" {expected} ")), "{listed}");
        assert!(rig.ask("ignored-prefixes.occupancy", "").unwrap().starts_with(ignored));
        let report = take(&mut rig);
        assert_eq!(attribute(&report[0].2, 25), Some(&[1, 0xfe][..]));
    }
}

#[test]
fn traffic_is_reported_in_between() {
    let (mut rig, _secret) = asking("interim", "interim = \"100 s\"\n");
    let mut client = Client { insists: Some(0xc223), ..Client::new(1) };
    client.dial(&mut rig);
    let requests = take(&mut rig);
    let packet = &requests[0].2;
    assert_eq!(
        (attribute(packet, 3).map(<[u8]>::len), attribute(packet, 60).map(<[u8]>::len)),
        (Some(17), Some(16))
    );
    rig.ask("answer", &format!("{} accept", requests[0].1)).unwrap();
    client.wait(&mut rig, 200);
    assert!(client.is_open());
    let packet = netbricks_testkit::build::ethernet()
        .ipv4(client.address, "192.0.2.1")
        .udp(1, 2)
        .payload(&[0; 72])
        .build()
        .unwrap();
    let packet = client.ip(&packet);
    client.push(&mut rig, packet);
    client.wait(&mut rig, 101_000);
    let reports = take(&mut rig);
    let interim = &reports.last().unwrap().2;
    assert_eq!(attribute(interim, 40), Some(&[0, 0, 0, 3][..]));
    assert_eq!(
        (attribute(interim, 42), attribute(interim, 47)),
        (Some(&[0, 0, 0, 100][..]), Some(&[0, 0, 0, 1][..]))
    );
    assert_eq!(attribute(interim, 46), Some(&[0, 0, 0, 100][..]));
}

#[test]
fn a_refusal_and_silence_end_the_session() {
    let (mut rig, _secret) = asking("refuse", "radius_timeout = \"1 s\"\nradius_tries = 2\n");
    let mut refused = Client { insists: Some(0xc023), ..Client::new(1) };
    refused.dial(&mut rig);
    let number = take(&mut rig)[0].1.clone();
    rig.ask("answer", &format!("{number} reject")).unwrap();
    refused.wait(&mut rig, 200);
    assert_eq!((refused.is_in, refused.is_closed), (Some(false), true));
    assert_eq!(
        rig.ask("answer", &format!("{number} accept")),
        Ok("0 sessions answered".into()),
        "it is gone"
    );
    let mut waiting = Client { insists: Some(0xc223), ..Client::new(2) };
    waiting.dial(&mut rig);
    waiting.wait(&mut rig, 8_000);
    assert_eq!((waiting.is_in, waiting.is_closed), (Some(false), true));
    assert!(rig.ask("unanswered.occupancy", "").unwrap().starts_with('1'));
}

#[test]
fn an_answer_lets_in_only_the_user_that_was_asked_about() {
    let (mut rig, _secret) = asking("stale", "");
    let mut client = Client { insists: Some(0xc023), ..Client::new(1) };
    client.dial(&mut rig);
    let first = take(&mut rig);
    // The same PPPoE session negotiates again, and says another name.
    let mut other = Client { id: client.id, user: "mallory", ..client.clone() };
    (other.lcp, other.is_in) = ([false; 2], None);
    let request = other.lcp_request();
    other.talk(&mut rig, vec![request]);
    let second = take(&mut rig);
    assert_eq!(attribute(&second[0].2, 1), Some(&b"mallory"[..]));
    assert_ne!(attribute(&second[0].2, 44), attribute(&first[0].2, 44), "an Acct-Session-Id of its own");
    let old = format!("{} accept address 10.77.0.1", first[0].1);
    assert_eq!(rig.ask("answer", &old), Ok("0 sessions answered".into()));
    other.wait(&mut rig, 200);
    assert_eq!(other.is_in, None);
    assert_eq!(rig.ask("answer", &format!("{} reject", second[0].1)), Ok("1 sessions answered".into()));
    other.wait(&mut rig, 200);
    assert_eq!((other.is_in, other.is_closed), (Some(false), true));
}

#[test]
fn an_answer_does_not_take_back_the_order_to_end() {
    let (mut rig, _secret) = asking("order", "");
    let mut client = Client { insists: Some(0xc023), ..Client::new(1) };
    client.dial(&mut rig);
    let asked = take(&mut rig);
    rig.ask("disconnect", "all").unwrap();
    rig.ask("answer", &format!("{} accept", asked[0].1)).unwrap();
    client.wait(&mut rig, 200);
    assert_eq!((client.is_in, client.is_closed), (None, true));
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
}

/// How many of these requests report ends.
fn stops(requests: &[(String, String, Vec<u8>)]) -> usize {
    requests.iter().filter(|(_, _, packet)| attribute(packet, 40) == Some(&[0, 0, 0, 2])).count()
}

#[test]
fn every_end_is_reported_though_many_end_at_once() {
    let (mut rig, _secret) = asking("bulk", "interim = \"1 s\"\n");
    let mut clients: Vec<Client> =
        (0..32).map(|number| Client { insists: Some(0xc023), ..Client::new(number) }).collect();
    for client in &mut clients {
        client.dial(&mut rig);
        let session = take(&mut rig).into_iter().find(|(kind, ..)| kind == "access").unwrap().1;
        rig.ask("answer", &format!("{session} accept")).unwrap();
        client.wait(&mut rig, 100);
        assert!(client.is_open());
    }
    // Reports that are not taken fill the room.
    rig.wait(9_000);
    assert!(rig.ask("sessions", "").unwrap().starts_with("32 "));
    rig.ask("disconnect", "all").unwrap();
    rig.wait(12_000);
    let listed = rig.ask("sessions", "").unwrap();
    assert_eq!(listed.matches(" closing ").count(), 32, "{listed}");
    let before = take(&mut rig);
    assert_eq!((before.len(), stops(&before)), (192, 0));
    rig.wait(1_000);
    assert_eq!(stops(&take(&mut rig)), 32);
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
    assert!(rig.ask("lost-reports.occupancy", "").unwrap().starts_with('0'));
}

#[test]
fn a_report_that_no_one_takes_is_lost_in_the_end_and_counted() {
    let (mut rig, _secret) = asking("lost", "interim = \"100 ms\"\n");
    let mut client = Client { insists: Some(0xc023), ..Client::new(1) };
    client.dial(&mut rig);
    let session = take(&mut rig)[0].1.clone();
    rig.ask("answer", &format!("{session} accept")).unwrap();
    client.wait(&mut rig, 21_000);
    let padt = client.padt();
    client.push(&mut rig, padt);
    rig.wait(29_000);
    assert!(rig.ask("sessions", "").unwrap().starts_with("1 "), "it waits for room");
    rig.wait(2_000);
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
    assert!(rig.ask("lost-reports.occupancy", "").unwrap().starts_with('1'));
    let number = session.split(' ').next().unwrap();
    rig.ask("answer", &format!("lost {number}\nlost ff{number:0>14}\n")).unwrap();
    assert!(
        rig.ask("lost-reports.occupancy", "").unwrap().starts_with('2'),
        "another worker's does not count"
    );
    assert!(rig.ask("take-requests", "all").is_err());
}

#[test]
fn silence_of_the_servers_is_no_wrong_password() {
    let (mut rig, _secret) = asking("silence", "");
    let mut client = Client { insists: Some(0xc023), ..Client::new(1) };
    client.dial(&mut rig);
    let asked = take(&mut rig);
    rig.ask("answer", &format!("{} unanswered", asked[0].1)).unwrap();
    client.wait(&mut rig, 200);
    assert_eq!((client.is_in, client.is_closed), (Some(false), true));
    assert!(rig.ask("unanswered.occupancy", "").unwrap().starts_with('1'));
    assert!(rig.ask("authentication-failed.occupancy", "").unwrap().starts_with('0'));
    assert!(rig.ask("events", "").unwrap().contains("\"event\":\"authentication-unanswered\""));
}

#[test]
fn two_subscribers_never_get_one_address() {
    let (mut rig, _secret) = asking("twice", "");
    let mut clients = [1, 2].map(|number| Client { insists: Some(0xc023), ..Client::new(number) });
    for client in &mut clients {
        client.dial(&mut rig);
        let number = take(&mut rig).into_iter().find(|(kind, ..)| kind == "access").unwrap().1;
        rig.ask("answer", &format!("{number} accept address 10.77.0.1")).unwrap();
        client.wait(&mut rig, 200);
    }
    assert!(clients[0].is_open() && clients[1].is_closed, "{clients:?}");
    assert!(rig.ask("without-address.occupancy", "").unwrap().starts_with('1'));
}

#[test]
fn requests_that_are_not_taken_are_bounded() {
    let (mut rig, _secret) = asking("bounded", "per_mac = 1000\n");
    // No task takes them: reports and requests stay within their room, and nothing else stops.
    for round in 0..40 {
        let mut clients: Vec<Client> =
            (0..8).map(|n| Client { insists: Some(0xc023), ..Client::new(n + 8 * (round % 8)) }).collect();
        for client in &mut clients {
            client.dial(&mut rig);
            let padt = client.padt();
            client.push(&mut rig, padt);
        }
        rig.wait(1_000);
    }
    assert_eq!(take(&mut rig).len(), 256);
    assert_eq!(rig.dropped(DropReason::PoolExhausted), 0);
}

#[test]
fn answers_that_cannot_be_read_change_nothing() {
    let (mut rig, _secret) = asking("unreadable", "");
    for wrong in [
        "",
        "x accept",
        "1f",
        "1f accept",
        "1f 0 accept",
        "1f 2 perhaps",
        "1f 2 accept address",
        "1f 2 accept address x",
        "1f 2 accept colour red",
    ] {
        // No line at all is no answer.
        assert_eq!(rig.ask("answer", wrong).is_ok(), wrong.is_empty(), "{wrong}");
    }
}
