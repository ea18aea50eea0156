//! Discovery: cookies, limits and errors.

use netbricks_core::DropReason;

use super::client::{AC, ACCESS, Client, rig};

const OPEN: &str = "authentication = []\n";

#[test]
fn an_offer_names_the_concentrator_and_echoes_what_it_must() {
    let mut rig = rig(&format!("{OPEN}services = [\"gold\", \"silver\"]\n"));
    let client = Client { service: b"gold".to_vec(), ..Client::new(1) };
    let out = rig.send(ACCESS, [client.padi()]);
    let [(ACCESS, offer)] = out.as_slice() else { panic!("one answer: {out:?}") };
    assert_eq!(
        (&offer[..6], &offer[6..12], &offer[12..16]),
        (&client.mac[..], &AC[..], &[0x88, 0x63, 0x11, 7][..])
    );
    let has = |bytes: &[u8]| offer.windows(bytes.len()).any(|window| window == bytes);
    assert!(
        has(b"\x01\x02\x00\x07test-ac") && has(b"\x01\x01\x00\x04gold") && has(b"\x01\x01\x00\x06silver")
    );
    assert!(has(&[1, 3, 0, 2, 0xaa, 1]), "Host-Uniq");
    let other = Client { service: b"bronze".to_vec(), ..Client::new(1) };
    assert!(rig.send(ACCESS, [other.padi()]).is_empty());
    assert_eq!(rig.dropped(DropReason::Unmatched), 1);
    assert_eq!(rig.dropped(DropReason::Answered), 1);
}

#[test]
fn a_relays_tag_comes_back() {
    let mut rig = rig(OPEN);
    let client = Client::new(1);
    let tags = [&[1, 1, 0, 0][..], &[1, 0x10, 0, 3], b"via"].concat();
    let out = rig.send(ACCESS, [client.discovery([0xff; 6], 9, 0, &tags)]);
    assert!(out[0].1.windows(7).any(|window| window == b"\x01\x10\x00\x03via"));
}

#[test]
fn only_the_cookie_of_this_host_begins_a_session_and_not_for_long() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    let out = rig.send(ACCESS, [client.padi()]);
    client.hear(&out[0].1);
    let mut thief = Client::new(2);
    thief.cookie = client.cookie.clone();
    let tagged = Client { tags: vec![0x81, 0, 0, 9], ..client.clone() };
    let without = Client { cookie: Vec::new(), ..client.clone() };
    assert!(rig.send(ACCESS, [thief.padr(), tagged.padr(), without.padr()]).is_empty());
    assert_eq!(rig.dropped(DropReason::Denied), 3);
    assert_eq!(rig.ask("sessions", "").unwrap(), "0 sessions\n", "no state before a right cookie");
    // Nothing was remembered of the offer, and the cookie is still right.
    assert_eq!(rig.send(ACCESS, [client.padr()]).len(), 2, "PADS and a Configure-Request");
    let mut late = Client::new(3);
    let out = rig.send(ACCESS, [late.padi()]);
    late.hear(&out[0].1);
    rig.wait(61_000);
    assert!(rig.send(ACCESS, [late.padr()]).iter().all(|(_, frame)| frame[..6] != late.mac));
}

#[test]
fn a_request_that_is_sent_again_gets_the_same_session() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    let out = rig.send(ACCESS, [client.padi()]);
    client.hear(&out[0].1);
    let first = rig.send(ACCESS, [client.padr()]);
    let second = rig.send(ACCESS, [client.padr()]);
    assert_eq!(second.len(), 1, "no second negotiation begins");
    assert_eq!(first[0].1, second[0].1);
    assert!(rig.ask("sessions", "").unwrap().starts_with("1 sessions"));
}

#[test]
fn limits_hold_for_a_host_a_line_and_in_all() {
    let mut rig = rig(&format!("{OPEN}per_mac = 2\nper_line = 4\n"));
    let dial = |rig: &mut _, number: u8, tags: &[u8]| {
        let mut client = Client { tags: tags.to_vec(), ..Client::new(number) };
        client.dial(rig);
        client
    };
    assert!(dial(&mut rig, 1, &[]).is_open());
    assert!(dial(&mut rig, 1, &[]).is_open());
    let third = dial(&mut rig, 1, &[]);
    assert_eq!(third.refusal.as_ref().map(|(kind, _)| *kind), Some(0x0202), "AC-System-Error");
    assert!(!third.is_open());
    assert!(dial(&mut rig, 2, &[]).is_open() && dial(&mut rig, 3, &[]).is_open());
    assert!(dial(&mut rig, 4, &[]).refusal.is_some(), "the line is full");
    assert_eq!(rig.dropped(DropReason::SubscriberLimit), 2);
    // Other lines have room, until all sessions are taken.
    for number in 0..28 {
        assert!(dial(&mut rig, number, &[0x81, 0, 0, number]).is_open(), "{number}");
    }
    let last = dial(&mut rig, 99, &[0x81, 0, 0, 99]);
    assert!(!last.is_open() && last.cookie.is_empty(), "a full concentrator makes no offer");
    assert_eq!(rig.dropped(DropReason::TableFull), 1);
}

#[test]
fn discovery_is_limited_in_all_and_for_each_host() {
    let mut rig = rig(&format!("{OPEN}discovery_rate = 20\ndiscovery_rate_each = 5\n"));
    let client = Client::new(1);
    let offers = rig.send(ACCESS, (0..100).map(|_| client.padi()));
    assert_eq!(offers.len(), 5);
    let offers = rig.send(ACCESS, (2..100).map(|number| Client::new(number).padi()));
    assert_eq!(offers.len(), 15);
    assert_eq!(rig.dropped(DropReason::RateLimited), 95 + 83);
    rig.wait(1_000);
    assert_eq!(rig.send(ACCESS, [client.padi()]).len(), 1);
}

#[test]
fn larger_payloads_are_told_where_both_ends_can() {
    for (mru, asks, told) in [
        (1_500, Some(1_500), Some(1_500)),
        (1_500, Some(9_000), Some(1_500)),
        (1_492, Some(1_500), None),
        (1_500, None, None),
    ] {
        let mut rig = rig(&format!("{OPEN}mru = {mru}\n"));
        let mut client = Client { max_payload: asks, mru: told.unwrap_or(1_492), ..Client::new(1) };
        client.dial(&mut rig);
        assert!(client.is_open());
        assert_eq!(client.told_payload, told, "{mru} {asks:?}");
        let (_, request) = client.heard.iter().find(|(_, body)| body[0] == 1).unwrap();
        let asked = told.unwrap_or(1_492).to_be_bytes();
        assert_eq!(request[4..8], [1, 4, asked[0], asked[1]], "the Configure-Request asks for it");
    }
}

#[test]
fn packets_of_no_session_are_answered_by_padt_now_and_then() {
    let mut rig = rig(OPEN);
    let mut client = Client { id: 0x4242, ..Client::new(1) };
    let stray = client.session(0xc021, &[9, 1, 0, 8, 0, 0, 0, 0]);
    let out = rig.send(ACCESS, [stray.clone()]);
    client.hear(&out[0].1);
    assert!(client.is_closed);
    assert_eq!(rig.dropped(DropReason::NoSession), 1);
    let out = rig.send(ACCESS, (0..1_000).map(|_| stray.clone()));
    assert!(out.len() <= 100);
    // Frames of others' concentrators are no business of this one.
    let mut foreign = stray;
    foreign[5] ^= 1;
    assert!(rig.send(ACCESS, [foreign]).is_empty());
    assert_eq!(rig.dropped(DropReason::Martian), 1);
}

#[test]
fn a_padt_of_another_host_ends_nothing() {
    let mut rig = rig(OPEN);
    let mut client = Client::new(1);
    client.dial(&mut rig);
    let other = Client { id: client.id, ..Client::new(2) };
    let tagged = Client { tags: vec![0x81, 0, 0, 1], ..client.clone() };
    rig.send(ACCESS, [other.padt(), tagged.padt()]);
    assert_eq!(rig.dropped(DropReason::NoSession), 2);
    assert!(rig.ask("sessions", "").unwrap().starts_with("1 sessions"));
}
