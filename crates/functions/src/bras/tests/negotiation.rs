//! Whole negotiations: with and without passwords, good and bad ones, and how sessions end.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use netbricks_core::DropReason;

use super::client::{ACCESS, Client, control, option, rig};

/// A file of users that only its owner may read; it is removed in the end.
pub(super) struct Users(PathBuf);

impl Users {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("netbricks-bras-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Self(path)
    }
    pub(super) fn setting(&self) -> String {
        format!("users = {:?}\n", self.0)
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const OPEN: &str = "authentication = []\n";

fn counter(rig: &mut crate::router::tests::rig::Rig, name: &str) -> u64 {
    rig.ask(&format!("{name}.occupancy"), "").unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_session_without_passwords_gets_an_address_of_the_pool() {
    let mut rig = rig(&format!("{OPEN}dns = [\"9.9.9.9\", \"1.1.1.1\"]\n"));
    let mut client = Client::new(1);
    client.dial(&mut rig);
    assert!(client.is_open(), "{client:?}");
    assert_eq!(client.address.to_string(), "10.0.1.0");
    assert_eq!(client.dns.map(|server| server.to_string()), ["9.9.9.9", "1.1.1.1"]);
    let listed = rig.ask("sessions", "").unwrap();
    let line: Vec<&str> = listed.lines().nth(1).unwrap().split(' ').collect();
    assert_eq!(line[1..7], ["open", "-", "10.0.1.0", "-", "02:00:00:00:01:01", "-"]);
    assert_eq!(counter(&mut rig, "opened"), 1);
}

#[test]
fn a_password_of_the_file_lets_in_by_both_protocols() {
    let users = Users::new("both", "alice open-sesame 10.9.0.7\nbob x\n");
    for insists in [None, Some(0xc223), Some(0xc023)] {
        let mut rig = rig(&users.setting());
        let mut client = Client { insists, ..Client::new(1) };
        client.dial(&mut rig);
        assert_eq!(client.method, insists.unwrap_or(0xc223));
        assert!(client.is_open(), "{client:?}");
        assert_eq!(client.address.to_string(), "10.9.0.7", "an address of its own");
        let mut other = Client { user: "bob", password: "x", insists, ..Client::new(2) };
        other.dial(&mut rig);
        assert!(other.is_open() && other.address.to_string().starts_with("10.0.1."), "{other:?}");
        assert!(rig.ask("sessions", "").unwrap().contains(" alice 10.9.0.7 "));
    }
}

#[test]
fn wrong_passwords_and_unknown_users_are_refused_and_never_shown() {
    let users = Users::new("wrong", "alice open-sesame\n");
    for insists in [0xc223, 0xc023] {
        for (user, password) in
            [("alice", "let-me-in"), ("mallory", "open-sesame"), ("alice", ""), ("", "open-sesame")]
        {
            let mut rig = rig(&users.setting());
            let mut client = Client { user, password, insists: Some(insists), ..Client::new(1) };
            client.dial(&mut rig);
            assert_eq!(client.is_in, Some(false));
            assert!(client.is_closed, "it got a PADT once its Terminate-Ack came");
            assert_eq!(counter(&mut rig, "authentication-failed"), 1);
            assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
            let events = rig.ask("events", "").unwrap();
            assert!(events.contains("\"event\":\"authentication-failed\""), "{events}");
            assert!(!events.contains("sesame") && !events.contains("let-me-in"), "{events}");
            assert!(!rig.recorded().windows(6).any(|bytes| bytes == b"sesame" || bytes == b"let-me"));
        }
    }
}

#[test]
fn a_subscriber_that_wants_neither_protocol_gets_no_session() {
    let users = Users::new("neither", "alice open-sesame\n");
    let mut rig = rig(&users.setting());
    let mut client = Client { insists: Some(0xc227), ..Client::new(1) };
    client.dial(&mut rig);
    client.wait(&mut rig, 40_000);
    assert!(!client.is_open() && client.is_closed, "{client:?}");
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
}

#[test]
fn vlan_tags_are_kept_and_tell_subscribers_apart() {
    let mut rig = rig(&format!("{OPEN}per_line = 2\n"));
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0, 7], &[0x88, 0xa8, 0x20, 100, 0x81, 0, 0, 7]];
    let mut addresses = Vec::new();
    for tags in tags {
        // The same Ethernet address everywhere.
        let mut client = Client { tags: tags.to_vec(), ..Client::new(1) };
        client.dial(&mut rig);
        assert!(client.is_open(), "{client:?}");
        addresses.push(client.address);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 3);
    let listed = rig.ask("sessions", "").unwrap();
    let lines: Vec<&str> = listed.lines().skip(1).map(|line| line.split(' ').nth(6).unwrap()).collect();
    assert_eq!(lines, ["-", "7", "100.7"]);
}

#[test]
fn the_subscriber_ends_a_session_by_lcp_or_by_padt() {
    for by_lcp in [true, false] {
        let mut rig = rig(OPEN);
        let mut client = Client::new(1);
        client.dial(&mut rig);
        let end = if by_lcp { client.session(0xc021, &control(5, 7, b"bye")) } else { client.padt() };
        client.push(&mut rig, end);
        client.wait(&mut rig, 4_000);
        assert_eq!(client.is_closed, by_lcp, "a PADT is not answered by another");
        assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
        assert!(rig.ask("events", "").unwrap().contains("\"cause\":\"subscriber\""));
        // The address is free again, and the host may come back.
        let mut again = Client::new(1);
        again.dial(&mut rig);
        assert!(again.is_open());
    }
}

#[test]
fn an_operator_ends_sessions() {
    let mut rig = rig(OPEN);
    let mut clients = [1, 2, 3].map(Client::new);
    clients.iter_mut().for_each(|client| client.dial(&mut rig));
    let listed = rig.ask("sessions", "1 1").unwrap();
    let number = listed.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(rig.ask("disconnect", &number), Ok("1 ended".into()));
    clients[1].wait(&mut rig, 200);
    assert!(clients[1].is_closed);
    assert_eq!(rig.ask("disconnect", "mac 02:00:00:00:01:01"), Ok("1 ended".into()));
    assert_eq!(rig.ask("disconnect", &number), Ok("0 ended".into()), "it is gone");
    clients[0].wait(&mut rig, 200);
    assert_eq!(rig.ask("disconnect", "all"), Ok("1 ended".into()));
    clients[2].wait(&mut rig, 200);
    assert!(clients.iter().all(|client| client.is_closed));
    for wrong in ["", "everyone", "mac x", "user", "1 2"] {
        assert!(rig.ask("disconnect", wrong).is_err(), "{wrong}");
    }
    assert!(rig.ask("events", "").unwrap().contains("\"cause\":\"operator\""));
}

#[test]
fn a_subscriber_that_falls_silent_is_given_up() {
    let mut rig = rig(&format!("{OPEN}keepalive = \"1 s\"\nmisses = 3\n"));
    let mut client = Client::new(1);
    client.dial(&mut rig);
    client.wait(&mut rig, 10_000);
    assert!(client.is_open(), "it answers");
    client.answers_echo = false;
    client.wait(&mut rig, 3_000);
    assert!(client.is_open(), "three may be lost");
    client.wait(&mut rig, 1_500);
    assert!(client.is_closed);
    assert!(rig.ask("events", "").unwrap().contains("\"cause\":\"lost\""));
}

#[test]
fn sessions_end_with_their_time_and_when_they_are_idle() {
    let mut rig = rig(&format!("{OPEN}session_timeout = \"20 s\"\nidle_timeout = \"5 s\"\n"));
    let (mut busy, mut idle) = (Client::new(1), Client::new(2));
    busy.dial(&mut rig);
    idle.dial(&mut rig);
    for second in 1..=25 {
        let packet =
            netbricks_testkit::build::ethernet().ipv4(busy.address, "192.0.2.1").udp(1, 2).build().unwrap();
        let packet = busy.ip(&packet);
        busy.push(&mut rig, packet);
        for out in rig.wait(1_000) {
            let answers = [busy.hear(&out.1), idle.hear(&out.1)].concat();
            for (_, frame) in rig.send(ACCESS, answers) {
                busy.hear(&frame);
                idle.hear(&frame);
            }
        }
        assert_eq!(idle.is_closed, second >= 5, "second {second}");
        assert_eq!(busy.is_closed, second >= 20, "second {second}");
    }
    let events = rig.ask("events", "").unwrap();
    assert!(
        events.contains("\"cause\":\"idle-timeout\"") && events.contains("\"cause\":\"session-timeout\"")
    );
}

#[test]
fn a_negotiation_that_does_not_go_on_is_given_up() {
    let mut rig = rig(&format!("{OPEN}setup_timeout = \"10 s\"\n"));
    let mut client = Client::new(1);
    // It never answers behind PADS.
    let out = rig.send(ACCESS, [client.padi()]);
    let padr = client.hear(&out[0].1);
    rig.send(ACCESS, padr);
    assert!(rig.ask("sessions", "").unwrap().contains("establishing"));
    rig.wait(11_000);
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n");
    assert_eq!(counter(&mut rig, "failed"), 1);
}

#[test]
fn options_that_have_no_place_are_rejected_and_bad_values_are_not_taken() {
    let mut rig = rig(OPEN);
    let mut client = Client { mru: 100, ..Client::new(1) };
    client.dial(&mut rig);
    assert!(client.is_open());
    assert_eq!(client.mru, 1_492, "too small a size is answered by a Nak");
    let rejects = client.heard.iter().filter(|(protocol, body)| *protocol == 0xc021 && body[0] == 4);
    assert_eq!(rejects.count(), 1, "protocol field compression");
    // No DNS server is configured.
    assert!(client.heard.iter().any(|(protocol, body)| *protocol == 0x8021 && body[0] == 4));
}

#[test]
fn unknown_codes_and_protocols_are_rejected_with_what_came() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    client.heard.clear();
    let odd =
        [client.session(0xc021, &control(99, 7, b"what")), client.session(0x8281, &control(1, 1, b"mpls"))];
    client.talk(&mut rig, odd.into());
    let (_, reject) = &client.heard[0];
    assert_eq!((reject[0], &reject[4..12]), (7, &control(99, 7, b"what")[..]));
    let (_, reject) = &client.heard[1];
    assert_eq!((reject[0], &reject[4..6]), (8, &[0x82, 0x81][..]));
    assert!(client.is_open());
}

#[test]
fn a_subscriber_may_negotiate_again() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    let before = client.address;
    // As after a restart of its PPP, in the same PPPoE session.
    let mut again = Client { id: client.id, ..Client::new(1) };
    let request = again.session(0xc021, &control(1, 77, &option(5, &[1, 2, 3, 4])));
    again.talk(&mut rig, vec![request]);
    let own = again.session(0xc021, &control(1, 78, &option(5, &[1, 2, 3, 4])));
    again.talk(&mut rig, vec![own]);
    again.wait(&mut rig, 4_000);
    let listed = rig.ask("sessions", "").unwrap();
    assert!(listed.starts_with("1 sessions"), "{listed}");
    assert!(!again.is_closed);
    assert_eq!(before.to_string(), "10.0.1.0");
    assert_eq!(rig.dropped(DropReason::NoSession), 0);
}

/// Sends frames, and reacts to LCP alone until there is no answer.
fn talk_lcp(rig: &mut crate::router::tests::rig::Rig, client: &mut Client, first: Vec<Vec<u8>>) {
    let mut pending = first;
    while !pending.is_empty() {
        let out = rig.send(ACCESS, std::mem::take(&mut pending));
        let answers = out.iter().flat_map(|(_, frame)| client.hear(frame));
        pending = answers.filter(|frame| frame[20..22] == [0xc0, 0x21]).collect();
    }
}

#[test]
fn a_subscriber_that_begins_again_and_again_is_given_up() {
    let mut rig = rig(&format!("{OPEN}setup_timeout = \"10 s\"\n"));
    let mut client = Client::new(1);
    let out = rig.send(ACCESS, [client.padi()]);
    let padr = client.hear(&out[0].1);
    talk_lcp(&mut rig, &mut client, padr);
    for round in 0..6 {
        assert_eq!(rig.ask("sessions", "").unwrap().starts_with("1 "), round < 5, "round {round}");
        let request = client.lcp_request();
        talk_lcp(&mut rig, &mut client, vec![request]);
        rig.wait(2_000);
    }
}

#[test]
fn a_request_to_end_within_the_negotiation_only_delays_it() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    let out = rig.send(ACCESS, [client.padi()]);
    let padr = client.hear(&out[0].1);
    let mut begun: Vec<Vec<u8>> = Vec::new();
    for (_, frame) in rig.send(ACCESS, padr) {
        begun.extend(client.hear(&frame));
    }
    rig.send(ACCESS, [client.session(0xc021, &control(5, 7, b"no"))]);
    client.talk(&mut rig, begun);
    client.wait(&mut rig, 4_000);
    assert!(client.is_open(), "{client:?}");
    assert!(rig.ask("sessions", "").unwrap().contains(" open "));
    rig.ask("disconnect", "all").unwrap();
    client.wait(&mut rig, 200);
    assert!(rig.ask("events", "").unwrap().contains("\"cause\":\"operator\""));
}

#[test]
fn a_reject_leaves_the_request_that_is_on_its_way() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    let out = rig.send(ACCESS, [client.padi()]);
    let padr = client.hear(&out[0].1);
    let mut begun: Vec<Vec<u8>> = Vec::new();
    for (_, frame) in rig.send(ACCESS, padr) {
        begun.extend(client.hear(&frame));
    }
    // An unknown code, before our Configure-Ack.
    let reject = rig.send(ACCESS, [client.session(0xc021, &control(99, 7, b"what"))]);
    assert_eq!(reject[0].1[22], 7);
    client.talk(&mut rig, begun);
    assert!(client.is_open(), "the acknowledgement counts: {client:?}");
}

#[test]
fn ipv6_comes_up_beside_ipv4_with_a_prefix_that_is_advertised() {
    let mut rig = rig(&format!("{OPEN}prefixes = \"2001:db8:100::/56\"\ndns = [\"2001:db8::53\"]\n"));
    let mut client = Client { wants_v6: true, ..Client::new(1) };
    client.dial(&mut rig);
    client.wait(&mut rig, 100);
    assert!(client.is_open() && client.is_open_v6(), "{client:?}");
    let advertisement = client.got.first().expect("it came");
    assert_eq!((advertisement[6], advertisement[7], advertisement[40]), (58, 255, 134));
    let has = |bytes: &[u8]| advertisement.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(&[0x20, 1, 0xd, 0xb8, 1, 0, 0, 0]) && has(&[25, 3]), "{advertisement:02x?}");
    assert!(rig.ask("sessions", "").unwrap().contains(" 2001:db8:100::/64 "));
    // A solicitation gets another one, but not at once.
    client.got.clear();
    let solicitation = netbricks_testkit::build::ethernet()
        .ipv6("fe80::7", "ff02::2")
        .hop_limit(255)
        .icmpv6(133, 0, [0; 4])
        .build()
        .unwrap();
    let solicitation = client.ip(&solicitation);
    client.push(&mut rig, solicitation);
    assert_eq!(client.got.len(), 0);
    client.wait(&mut rig, 3_000);
    assert_eq!(client.got.len(), 1);
}

#[test]
fn open_sessions_go_on_in_another_node() {
    use netbricks_core::Worker;
    use netbricks_core::buffer::Pool;

    let mut rig = rig(&format!("{OPEN}prefixes = \"2001:db8:100::/56\"\n"));
    let mut clients = [1, 2].map(|number| Client { wants_v6: true, ..Client::new(number) });
    clients.iter_mut().for_each(|client| client.dial(&mut rig));
    clients[0].wait(&mut rig, 300);
    let image = rig.export("sessions");
    // Another pool and more room: the same subscribers.
    let settings = super::client::COMMON
        .replace("10.0.1.0/24", "10.0.1.0-10.0.2.255")
        .replace("sessions = 32", "sessions = 40");
    let blueprint = crate::router::tests::rig::blueprint_of(
        "bras",
        &format!("{settings}{OPEN}prefixes = \"2001:db8:100::/56\"\n"),
    );
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut node = blueprint.build(&Worker::new(0, 9, pool)).unwrap();
    node.import("sessions", &image, rig.now).unwrap();
    let lines = |text: String| {
        // Numbers are each node's own.
        let mut lines: Vec<String> =
            text.lines().skip(1).map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        lines.sort();
        lines
    };
    let (before, after) = (rig.ask("sessions", "").unwrap(), node.call("sessions", "").unwrap());
    assert_eq!(lines(before), lines(after.clone()));
    assert!(after.contains(" open - 10.0.1.0 2001:db8:100::/64 "), "{after}");
    for wrong in [&b""[..], b"NBB2", &image[..image.len() - 1], &[&image[..], &[0]].concat()] {
        assert!(node.import("sessions", wrong, rig.now).is_err());
    }
}

#[test]
fn recorded_drops_hold_no_password() {
    let mut rig = rig(OPEN);
    let client = Client { id: 0x4242, ..Client::new(1) };
    let proof = control(1, 9, b"\x05alice\x0bopen-sesame");
    rig.send(ACCESS, [client.session(0xc023, &proof)]);
    assert_eq!(rig.dropped(DropReason::NoSession), 1);
    let recorded = rig.recorded();
    assert!(recorded.windows(2).any(|bytes| bytes == [0xc0, 0x23]), "the packet was recorded");
    assert!(!recorded.windows(6).any(|bytes| bytes == b"sesame"));
    let whole = client.session(0xc023, &proof);
    let changed = |place: usize, value: u8| {
        let mut frame = whole.clone();
        frame[place] = value;
        frame
    };
    let tagged = [&whole[..12], &[0x81, 0, 0, 7, 0x88, 0xa8, 0, 8, 0x81, 0, 0, 9], &whole[12..]].concat();
    // For another station; from a group; another version, code or length; a compressed protocol; three tags.
    let early = [(5, 9), (6, 3), (14, 0x21), (15, 1), (18, 0x7f), (20, 0xc1)].map(|(at, to)| changed(at, to));
    let to_access = early.into_iter().chain([tagged]).map(|frame| (ACCESS, frame));
    for (port, frame) in to_access.chain([(super::client::CORE, whole.clone())]) {
        let mut rig = super::client::rig(OPEN);
        rig.send(port, [frame]);
        let recorded = rig.recorded();
        assert!(recorded.windows(2).any(|bytes| bytes == [0x88, 0x64]), "it was recorded");
        assert!(!recorded.windows(6).any(|bytes| bytes == b"sesame"), "{recorded:02x?}");
    }
}
