//! RFC 6887: the Port Control Protocol.

use netbricks_core::DropReason;
use netbricks_core::packet::tcp::flags::{ACK, SYN};

use super::*;

const GATEWAY: &str = "10.0.0.254";
const SETTINGS: &str = "pcp = \"10.0.0.254\"\n";
const NONCE: [u8; 12] = *b"first-client";
const OTHER_NONCE: [u8; 12] = *b"other-client";
const UDP: u8 = 17;
const TCP: u8 = 6;
const PREFER_FAILURE: [u8; 4] = [2, 0, 0, 0];

/// The numbers of RFC 6887, section 7.4.
const SUCCESS: u8 = 0;
const UNSUPP_VERSION: u8 = 1;
const NOT_AUTHORIZED: u8 = 2;
const MALFORMED_REQUEST: u8 = 3;
const UNSUPP_OPCODE: u8 = 4;
const UNSUPP_OPTION: u8 = 5;
const MALFORMED_OPTION: u8 = 6;
const NO_RESOURCES: u8 = 8;
const UNSUPP_PROTOCOL: u8 = 9;
const USER_EX_QUOTA: u8 = 10;
const CANNOT_PROVIDE_EXTERNAL: u8 = 11;
const ADDRESS_MISMATCH: u8 = 12;
const EXCESSIVE_REMOTE_PEERS: u8 = 13;

fn server(more: &str) -> Clocked {
    nat(&format!("{SETTINGS}{more}"))
}

fn mapped(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets()
}

fn header(opcode: u8, lifetime: u32, client: &str) -> Vec<u8> {
    [&[2, opcode, 0, 0][..], &lifetime.to_be_bytes(), &mapped(client)].concat()
}

/// A MAP request of a host for a port.
#[derive(Clone, Copy)]
struct Map {
    client: &'static str,
    nonce: [u8; 12],
    protocol: u8,
    port: u16,
    suggested: (&'static str, u16),
    lifetime: u32,
}

const WISH: Map = Map {
    client: INSIDE,
    nonce: NONCE,
    protocol: UDP,
    port: 4_000,
    suggested: ("0.0.0.0", 0),
    lifetime: 3_600,
};

impl Map {
    fn body(&self) -> Vec<u8> {
        let ports = [self.port.to_be_bytes(), self.suggested.1.to_be_bytes()].concat();
        [&self.nonce[..], &[self.protocol, 0, 0, 0], &ports, &mapped(self.suggested.0)].concat()
    }
    fn message(&self) -> Vec<u8> {
        [header(1, self.lifetime, self.client), self.body()].concat()
    }
    fn peer(&self, address: &str, port: u16) -> Vec<u8> {
        let peer = [&port.to_be_bytes()[..], &[0, 0], &mapped(address)].concat();
        [header(2, self.lifetime, self.client), self.body(), peer].concat()
    }
}

/// A FILTER option.
fn filter(bits: u8, address: &str, port: u16) -> Vec<u8> {
    [&[3, 0, 0, 20, 0, bits][..], &port.to_be_bytes(), &mapped(address)].concat()
}

fn frame(client: &str, message: &[u8]) -> Vec<u8> {
    let from = ethernet().source([2, 0, 0, 0, 7, 1]).destination([2, 0, 0, 0, 9, 9]);
    from.ipv4(client, GATEWAY).udp(50_000, 5_351).payload(message).build().unwrap()
}

/// A frame in which a host asks for a port of UDP.
pub(super) fn request_of(client: &str, port: u16, lifetime: u32) -> Vec<u8> {
    let body = Map { port, lifetime, ..WISH }.body();
    frame(client, &[header(1, lifetime, client), body].concat())
}

/// The payload of the answer to a message of a host.
fn ask_as(test: &mut Clocked, client: &str, message: &[u8]) -> Vec<u8> {
    let report = test.send([frame(client, message)]);
    assert_eq!((report.out.len(), report.replies.len()), (0, 1), "{:?}", report.drops);
    let answer = &report.replies[0];
    assert_eq!(shown(answer), format!("{GATEWAY}:5351 > {client}:50000"));
    assert_eq!(answer[..12], [2, 0, 0, 0, 7, 1, 2, 0, 0, 0, 9, 9], "back to where it came from");
    assert_eq!((answer[42], answer[43] & 0x80, answer[44]), (2, 0x80, 0), "a response of version 2");
    assert_eq!(answer[43] & 0x7f, message[1] & 0x7f, "of the same opcode");
    answer[42..].to_vec()
}

fn ask(test: &mut Clocked, message: &[u8]) -> Vec<u8> {
    ask_as(test, INSIDE, message)
}

fn code(answer: &[u8]) -> u8 {
    answer[3]
}

fn word(answer: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(answer[at..at + 4].try_into().unwrap())
}

fn lifetime(answer: &[u8]) -> u32 {
    word(answer, 4)
}

fn epoch(answer: &[u8]) -> u32 {
    word(answer, 8)
}

/// The assigned external endpoint.
fn assigned(answer: &[u8]) -> (String, u16) {
    assert_eq!(code(answer), SUCCESS);
    let address = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&answer[44..60]).unwrap());
    (address.to_canonical().to_string(), u16::from_be_bytes([answer[42], answer[43]]))
}

/// Maps a port; answers the external one.
fn map(test: &mut Clocked, wish: Map) -> u16 {
    let answer = ask_as(test, wish.client, &wish.message());
    let (address, port) = assigned(&answer);
    assert_eq!((&*address, answer.len()), (POOL, 60));
    port
}

fn refused(test: &mut Clocked, message: &[u8]) -> u8 {
    code(&ask(test, message))
}

#[test]
fn rfc6888_req_9_a_host_maps_a_port_and_is_reached_by_it() {
    let mut test = server("");
    let answer = ask(&mut test, &WISH.message());
    let (address, port) = assigned(&answer);
    assert_eq!((&*address, lifetime(&answer), &answer[24..36]), (POOL, 3_600, &NONCE[..]));
    assert_eq!((answer[36], &answer[40..42]), (UDP, &4_000u16.to_be_bytes()[..]));
    assert_eq!(answer[12..24], [0; 12], "reserved");
    // No packet of the host was needed, and any endpoint reaches it.
    for remote in [SERVER, SERVER_2] {
        let inbound = through(&mut test, udp(remote, 9, POOL, port));
        assert_eq!(shown(&inbound), format!("{remote}:9 > {INSIDE}:4000"));
    }
    // The host's own packets have the same port outside.
    assert_eq!(open(&mut test, INSIDE, 4_000, SERVER, 53), port);
    let shown = test.call("mappings", "");
    assert_eq!(shown, format!("udp {INSIDE}:4000 {POOL}:{port} 1 pcp\n"));
    assert_eq!(test.call("pcp", ""), format!("map udp {INSIDE}:4000 {POOL}:{port} - 3600\n"));
    // It outlives its sessions, and ends with its lifetime.
    test.advance(minutes(30));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (0, 1));
    test.advance(minutes(31));
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "pcp_mappings")), (0, 0));
    assert_eq!(test.send([udp(SERVER, 9, POOL, port)]).dropped(DropReason::NoMapping), 1);
    assert_eq!(count(&mut test, "ports_held_down"), 1);
}

#[test]
fn a_connection_from_outside_opens_by_a_mapping() {
    let mut test = server("");
    let port = map(&mut test, Map { protocol: TCP, port: 8_080, ..WISH });
    assert_eq!(
        shown(&through(&mut test, tcp(SERVER, 9, POOL, port, SYN))),
        format!("{SERVER}:9 > {INSIDE}:8080")
    );
    through(&mut test, tcp(INSIDE, 8_080, SERVER, 9, SYN | ACK));
    through(&mut test, tcp(SERVER, 9, POOL, port, ACK));
    assert!(test.call("sessions", "").trim_end().ends_with("established"));
    // The lifetime ends; the connection and its mapping stay.
    test.advance(minutes(61));
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "pcp_mappings")), (1, 0));
    through(&mut test, tcp(SERVER, 9, POOL, port, ACK));
}

#[test]
fn rfc6887_8_2_messages_that_are_not_requests_are_answered_or_ignored() {
    let mut test = server("");
    let good = WISH.message();
    let with = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        message
    };
    for (ignored, why) in [
        (vec![], "nothing"),
        (vec![2], "one byte"),
        (good[..20].to_vec(), "a part of the header"),
        (with(1, 0x81), "a response"),
        (vec![0, 0x80], "a response of NAT-PMP"),
    ] {
        let before = count(&mut test, "pcp_ignored");
        let report = test.send([frame(INSIDE, &ignored)]);
        assert_eq!((report.out.len(), report.replies.len()), (0, 0), "{why}");
        assert_eq!(count(&mut test, "pcp_ignored"), before + 1, "{why}");
    }
    for (message, expected) in [
        (with(0, 1), UNSUPP_VERSION),
        (with(0, 3), UNSUPP_VERSION),
        (good[..58].to_vec(), MALFORMED_REQUEST),
        (good[..56].to_vec(), MALFORMED_REQUEST),
        ([good.clone(), vec![0; 1_044]].concat(), MALFORMED_REQUEST),
        (with(1, 3), UNSUPP_OPCODE),
        (with(1, 0x7f), UNSUPP_OPCODE),
    ] {
        let answer = ask(&mut test, &message);
        assert_eq!((code(&answer), lifetime(&answer)), (expected, 1_800));
        // It is copied, cut to 1,100 bytes, and padded.
        assert_eq!(answer.len(), message.len().min(1_100).next_multiple_of(4));
        assert_eq!(answer[24..56], message[24..56]);
    }
    // A request of NAT-PMP learns that there is none of it.
    let answer = test.send([frame(INSIDE, &[0, 0])]).replies[0][42..].to_vec();
    assert_eq!((answer.len(), &answer[..4]), (24, &[2, 0x80, 0, UNSUPP_VERSION][..]));
    assert_eq!(count(&mut test, "mappings"), 0);
}

#[test]
fn rfc6887_8_2_a_client_behind_another_translator_is_told() {
    let mut test = server("");
    let answer = ask_as(&mut test, OTHER, &WISH.message());
    assert_eq!((code(&answer), lifetime(&answer)), (ADDRESS_MISMATCH, 1_800));
    assert_eq!(count(&mut test, "mappings"), 0);
}

#[test]
fn rfc6887_7_3_options_are_read_by_their_rules() {
    let mut test = server("");
    let with = |options: &[u8]| [WISH.message(), options.to_vec()].concat();
    let third_party = [&[1, 0, 0, 16][..], &mapped(OTHER)].concat();
    for (options, expected) in [
        (third_party, UNSUPP_OPTION),
        (vec![4, 0, 0, 0], UNSUPP_OPTION),
        (vec![0, 0, 0, 0], UNSUPP_OPTION),
        (vec![127, 0, 0, 0], UNSUPP_OPTION),
        (vec![2, 0, 0, 1, 0, 0, 0, 0], MALFORMED_OPTION),
        ([PREFER_FAILURE, PREFER_FAILURE].concat(), MALFORMED_OPTION),
        (vec![128, 0, 0, 1], MALFORMED_OPTION),
        (vec![128, 0, 0xff, 0xff], MALFORMED_OPTION),
        (vec![3, 0, 0, 16, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], MALFORMED_OPTION),
        (filter(95, SERVER, 0), MALFORMED_OPTION),
        (filter(129, SERVER, 0), MALFORMED_OPTION),
        ([&filter(128, SERVER, 0)[..8], &[0x20; 16]].concat(), MALFORMED_OPTION),
    ] {
        assert_eq!(refused(&mut test, &with(&options)), expected, "{options:?}");
    }
    assert_eq!(count(&mut test, "mappings"), 0);
    // Options of MAP are none of PEER and ANNOUNCE.
    let peer = [WISH.peer(SERVER, 53), PREFER_FAILURE.to_vec()].concat();
    assert_eq!(refused(&mut test, &peer), UNSUPP_OPTION);
    assert_eq!(refused(&mut test, &[header(0, 0, INSIDE), filter(128, SERVER, 0)].concat()), UNSUPP_OPTION);
    // One that need not be known is left out of the answer, and those that were processed are in it.
    let options = [&[200, 0, 0, 3, 1, 2, 3, 0][..], &filter(128, SERVER, 53), &PREFER_FAILURE].concat();
    let answer = ask(&mut test, &with(&options));
    assert_eq!((code(&answer), answer.len()), (SUCCESS, 60 + 24 + 4));
    assert_eq!(answer[60..], [&filter(128, SERVER, 53)[..], &PREFER_FAILURE].concat());
}

#[test]
fn rfc6887_8_5_the_epoch_counts_seconds() {
    let mut test = server("");
    let announce = header(0, 0, INSIDE);
    let first = ask(&mut test, &announce);
    assert_eq!((code(&first), first.len(), lifetime(&first), epoch(&first)), (SUCCESS, 24, 0, 0));
    test.advance(Duration::from_millis(90_500));
    assert_eq!(epoch(&ask(&mut test, &announce)), 90);
    assert_eq!(epoch(&ask(&mut test, &WISH.message())), 90);
}

#[test]
fn rfc6887_11_3_protocols_and_ports_that_cannot_be_mapped_are_refused() {
    let mut test = server("");
    for (wish, expected) in [
        (Map { protocol: 0, port: 1, ..WISH }, MALFORMED_REQUEST),
        (Map { protocol: 0, port: 0, ..WISH }, UNSUPP_PROTOCOL),
        (Map { port: 0, ..WISH }, UNSUPP_PROTOCOL),
        (Map { protocol: 132, ..WISH }, UNSUPP_PROTOCOL),
        (Map { protocol: 1, ..WISH }, UNSUPP_PROTOCOL),
    ] {
        let answer = ask(&mut test, &wish.message());
        assert_eq!((code(&answer), lifetime(&answer)), (expected, 1_800));
    }
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "pcp_refused")), (0, 5));
}

#[test]
fn rfc6887_11_3_a_mapping_is_prolonged_by_its_nonce_alone() {
    let mut test = server("");
    let port = map(&mut test, WISH);
    test.advance(minutes(50));
    assert_eq!(map(&mut test, WISH), port);
    test.advance(minutes(50));
    // Another client of the host is told how long the mapping is not its own.
    let answer = ask(&mut test, &Map { nonce: OTHER_NONCE, lifetime: 60, ..WISH }.message());
    assert_eq!((code(&answer), lifetime(&answer)), (NOT_AUTHORIZED, 600));
    let answer = ask(&mut test, &Map { nonce: OTHER_NONCE, lifetime: 0, ..WISH }.message());
    assert_eq!(code(&answer), NOT_AUTHORIZED);
    assert_eq!(test.call("pcp", ""), format!("map udp {INSIDE}:4000 {POOL}:{port} - 600\n"));
    // TCP's ports are others.
    map(&mut test, Map { nonce: OTHER_NONCE, protocol: TCP, ..WISH });
}

#[test]
fn rfc6887_11_3_a_mapping_of_packets_is_taken_over() {
    let mut test = server("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    let other = if port == 5_000 { 5_001 } else { 5_000 };
    let wish = Map { suggested: (POOL, other), ..WISH };
    let exact = [wish.message(), PREFER_FAILURE.to_vec()].concat();
    let answer = ask(&mut test, &exact);
    assert_eq!((code(&answer), lifetime(&answer)), (CANNOT_PROVIDE_EXTERNAL, 30));
    assert_eq!(map(&mut test, wish), port);
    test.advance(minutes(50));
    through(&mut test, udp(SERVER_2, 9, POOL, port));
}

#[test]
fn rfc6887_11_3_a_suggested_endpoint_is_given_where_it_is_free() {
    let mut test = server("pool = [\"203.0.113.7-203.0.113.40\"]");
    let wish = Map { suggested: ("203.0.113.33", 31_337), ..WISH };
    let exact = [wish.message(), PREFER_FAILURE.to_vec()].concat();
    assert_eq!(assigned(&ask(&mut test, &exact)), ("203.0.113.33".into(), 31_337));
    // Another host does not get it: it gets the address that it would like, or nothing.
    let second = Map { client: OTHER, ..wish };
    let exact = [second.message(), PREFER_FAILURE.to_vec()].concat();
    assert_eq!(code(&ask_as(&mut test, OTHER, &exact)), CANNOT_PROVIDE_EXTERNAL);
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "subscribers")), (1, 1));
    let (address, port) = assigned(&ask_as(&mut test, OTHER, &second.message()));
    assert_eq!(address, "203.0.113.33");
    assert_ne!(port, 31_337);
    // A host has one outside address.
    let third = Map { port: 4_001, suggested: ("203.0.113.34", 31_338), ..WISH };
    assert_eq!(assigned(&ask(&mut test, &third.message())), ("203.0.113.33".into(), 31_338));
    // Zeros are any, also where the client would rather have none.
    let any = Map { port: 4_002, ..WISH };
    let exact = [any.message(), PREFER_FAILURE.to_vec()].concat();
    assert_eq!(code(&ask(&mut test, &exact)), SUCCESS);
}

#[test]
fn a_suggested_port_is_one_of_the_subscribers_blocks() {
    let mut test = server("block = 100\nblocks = 1");
    let first = map(&mut test, WISH);
    let near = 1_024 + (first - 1_024) / 100 * 100 + (first - 1_024 + 1) % 100;
    assert_eq!(map(&mut test, Map { port: 4_001, suggested: (POOL, near), ..WISH }), near);
    let far = if first > 30_000 { 2_000 } else { 60_000 };
    let other = map(&mut test, Map { port: 4_002, suggested: (POOL, far), ..WISH });
    assert_eq!((other - 1_024) / 100, (first - 1_024) / 100);
    assert_eq!(test.call("log", "").lines().count(), 1);
}

#[test]
fn rfc6887_15_lifetimes_are_bounded() {
    let mut test = server("pcp_min_lifetime = \"100 s\"\npcp_max_lifetime = \"1000 s\"");
    for (asked, granted) in [(1, 100), (500, 500), (u32::MAX, 1_000)] {
        let answer = ask(&mut test, &Map { lifetime: asked, ..WISH }.message());
        assert_eq!((code(&answer), lifetime(&answer)), (SUCCESS, granted));
    }
    test.advance(Duration::from_secs(999));
    assert_eq!(count(&mut test, "mappings"), 1);
    test.advance(Duration::from_secs(2));
    assert_eq!(count(&mut test, "mappings"), 0);
}

#[test]
fn rfc6887_15_1_a_lifetime_of_0_ends_a_mapping() {
    let mut test = server("static = [\"udp 203.0.113.7:53 -> 10.0.0.1:5353\"]");
    let port = map(&mut test, WISH);
    let end = Map { lifetime: 0, ..WISH };
    let answer = ask(&mut test, &end.message());
    assert_eq!((lifetime(&answer), assigned(&answer)), (0, (POOL.into(), port)));
    assert_eq!(
        (count(&mut test, "mappings"), count(&mut test, "pcp_mappings")),
        (1, 0),
        "the static one stays"
    );
    // Once more, and for a port that never had one.
    assert_eq!(code(&ask(&mut test, &end.message())), SUCCESS);
    assert_eq!(refused(&mut test, &Map { port: 5_353, ..end }.message()), NOT_AUTHORIZED);
    // A mapping with a session stays with it.
    let port = map(&mut test, WISH);
    open(&mut test, INSIDE, 4_000, SERVER, 53);
    ask(&mut test, &end.message());
    assert_eq!((count(&mut test, "mappings"), open(&mut test, INSIDE, 4_000, SERVER, 53)), (2, port));
}

#[test]
fn rfc6887_15_1_all_mappings_of_a_host_end_at_once() {
    let mut test = server("");
    for port in 4_000..4_010 {
        map(&mut test, Map { port, ..WISH });
        map(&mut test, Map { port, protocol: TCP, ..WISH });
        map(&mut test, Map { client: OTHER, port, ..WISH });
    }
    let all = Map { protocol: TCP, port: 0, lifetime: 0, ..WISH };
    assert_eq!(refused(&mut test, &Map { nonce: OTHER_NONCE, ..all }.message()), NOT_AUTHORIZED);
    assert_eq!(code(&ask(&mut test, &all.message())), SUCCESS);
    assert_eq!(count(&mut test, "pcp_mappings"), 20);
    assert_eq!(code(&ask(&mut test, &Map { protocol: 0, ..all }.message())), SUCCESS);
    assert_eq!((count(&mut test, "pcp_mappings"), count(&mut test, "mappings")), (10, 10));
    assert!(test.call("pcp", "").lines().all(|line| line.contains(OTHER)));
    assert_eq!(code(&ask(&mut test, &all.message())), SUCCESS, "none is left");
}

#[test]
fn limits_count_mappings_of_the_protocol() {
    let mut test = server("subscriber_ports = 2\npcp_subscriber = 3");
    map(&mut test, WISH);
    open(&mut test, INSIDE, 4_001, SERVER, 53);
    let answer = ask(&mut test, &Map { port: 4_002, ..WISH }.message());
    assert_eq!((code(&answer), lifetime(&answer)), (USER_EX_QUOTA, 30));
    assert_eq!(test.send([udp(INSIDE, 4_003, SERVER, 53)]).dropped(DropReason::SubscriberLimit), 1);
    // One that is there is no new one.
    map(&mut test, Map { port: 4_001, ..WISH });
    map(&mut test, Map { protocol: TCP, ..WISH });
    let wish = Map { protocol: TCP, port: 4_001, ..WISH };
    assert_eq!(refused(&mut test, &wish.message()), USER_EX_QUOTA, "the fourth of this host");
    map(&mut test, Map { client: OTHER, ..WISH });
    let mut test = server("pcp_mappings = 2");
    map(&mut test, WISH);
    map(&mut test, Map { client: OTHER, ..WISH });
    let third = Map { client: "10.0.0.3", ..WISH };
    assert_eq!(code(&ask_as(&mut test, "10.0.0.3", &third.message())), NO_RESOURCES);
    assert_eq!((count(&mut test, "mappings"), count(&mut test, "subscribers")), (2, 2));
}

#[test]
fn exhausted_ports_are_no_resources() {
    let mut test = server("block = 64512\nblocks = 1");
    map(&mut test, WISH);
    let answer = ask_as(&mut test, OTHER, &Map { client: OTHER, ..WISH }.message());
    assert_eq!((code(&answer), lifetime(&answer)), (NO_RESOURCES, 30));
}

#[test]
fn rfc6887_13_3_filters_let_in_their_peers_alone() {
    let mut test = server("filtering = \"address-dependent\"");
    let with = |filters: &[Vec<u8>]| [WISH.message(), filters.concat()].concat();
    let enters = |test: &mut Clocked, from: &str, from_port: u16, port: u16| {
        test.send([udp(from, from_port, POOL, port)]).out.len() == 1
    };
    let (_, port) = assigned(&ask(&mut test, &with(&[filter(128, SERVER, 53), filter(120, "192.0.2.0", 0)])));
    let cases = [(SERVER, 53, true), (SERVER, 54, false), ("192.0.2.77", 9, true), ("192.0.3.1", 9, false)];
    for (from, from_port, expected) in cases {
        assert_eq!(enters(&mut test, from, from_port, port), expected, "{from}:{from_port}");
    }
    // Others come beside them, and a renewal without any leaves them.
    ask(&mut test, &with(&[filter(128, SERVER, 54)]));
    assert_eq!(map(&mut test, WISH), port);
    assert!(enters(&mut test, SERVER, 53, port) && enters(&mut test, SERVER, 54, port));
    assert!(test.call("pcp", "").ends_with(" 198.51.100.1/32:53 192.0.2.0/24:0 198.51.100.1/32:54\n"));
    // A renewal that repeats them adds none.
    for _ in 0..6 {
        let again = with(&[filter(128, SERVER, 53), filter(120, "192.0.2.0", 0), filter(128, SERVER, 54)]);
        assert_eq!(assigned(&ask(&mut test, &again)).1, port);
    }
    assert!(test.call("pcp", "").ends_with(" 198.51.100.1/32:53 192.0.2.0/24:0 198.51.100.1/32:54\n"));
    // Four are the most: then none is changed.
    let answer = ask(&mut test, &with(&[filter(128, SERVER_2, 1), filter(128, SERVER_2, 2)]));
    assert_eq!(code(&answer), EXCESSIVE_REMOTE_PEERS);
    assert!(!enters(&mut test, SERVER_2, 1, port));
    let five: Vec<_> = (1..6).map(|port| filter(128, SERVER_2, port)).collect();
    assert_eq!(refused(&mut test, &with(&five)), EXCESSIVE_REMOTE_PEERS);
    // A prefix of no bits removes those before it.
    ask(&mut test, &with(&[filter(0, "0.0.0.0", 0), filter(128, SERVER_2, 1)]));
    assert!(enters(&mut test, SERVER_2, 1, port) && !enters(&mut test, SERVER, 53, port));
    ask(&mut test, &with(&[filter(0, "0.0.0.0", 0)]));
    assert!(enters(&mut test, "192.0.3.1", 9, port));
}

#[test]
fn hosts_with_an_address_of_their_own_have_all_mappings() {
    let mut test = server("static = [\"203.0.113.8 -> 10.0.0.6\", \"udp 203.0.113.7:53 -> 10.0.0.1:5353\"]");
    let host = "10.0.0.6";
    let wish = Map { client: host, suggested: ("203.0.113.8", 4_000), ..WISH };
    let exact = [wish.message(), PREFER_FAILURE.to_vec()].concat();
    assert_eq!(assigned(&ask_as(&mut test, host, &exact)), ("203.0.113.8".into(), 4_000));
    let filtered = [wish.message(), filter(128, SERVER, 0)].concat();
    assert_eq!(code(&ask_as(&mut test, host, &filtered)), EXCESSIVE_REMOTE_PEERS);
    assert_eq!(code(&ask_as(&mut test, host, &Map { lifetime: 0, ..wish }.message())), NOT_AUTHORIZED);
    let peer = ask_as(&mut test, host, &wish.peer(SERVER, 53));
    assert_eq!(assigned(&peer), ("203.0.113.8".into(), 4_000));
    assert_eq!(assigned(&ask(&mut test, &Map { port: 5_353, ..WISH }.message())), (POOL.into(), 53));
    assert_eq!(count(&mut test, "pcp_mappings"), 0, "they need none");
}

#[test]
fn rfc6887_12_3_a_session_outlives_its_silence() {
    let mut test = server("filtering = \"address-and-port-dependent\"");
    let answer = ask(&mut test, &WISH.peer(SERVER, 53));
    let (_, port) = assigned(&answer);
    assert_eq!((lifetime(&answer), answer.len()), (3_600, 80));
    assert_eq!(answer[60..], WISH.peer(SERVER, 53)[60..], "the peer");
    assert_eq!(test.call("pcp", ""), format!("peer udp {INSIDE}:4000 {POOL}:{port} {SERVER}:53 3600\n"));
    test.advance(minutes(50));
    assert_eq!(
        shown(&through(&mut test, udp(SERVER, 53, POOL, port))),
        format!("{SERVER}:53 > {INSIDE}:4000")
    );
    assert_eq!(test.send([udp(SERVER, 54, POOL, port)]).dropped(DropReason::Denied), 1);
    // It is prolonged by its nonce alone, and never made shorter.
    let answer = ask(&mut test, &Map { nonce: OTHER_NONCE, ..WISH }.peer(SERVER, 53));
    assert_eq!((code(&answer), lifetime(&answer)), (NOT_AUTHORIZED, 600));
    assert_eq!(lifetime(&ask(&mut test, &Map { lifetime: 200, ..WISH }.peer(SERVER, 53))), 600);
    assert_eq!(lifetime(&ask(&mut test, &WISH.peer(SERVER, 53))), 3_600);
    test.advance(minutes(61));
    assert_eq!((count(&mut test, "sessions"), count(&mut test, "mappings")), (0, 0));
    assert_eq!(count(&mut test, "pcp_mappings"), 0);
}

#[test]
fn rfc6887_12_3_a_session_that_is_there_keeps_its_port() {
    let mut test = server("");
    let port = open(&mut test, INSIDE, 4_000, SERVER, 53);
    assert_eq!(assigned(&ask(&mut test, &WISH.peer(SERVER, 53))).1, port);
    let other = if port == 5_000 { 5_001 } else { 5_000 };
    let wish = Map { suggested: (POOL, other), ..WISH };
    assert_eq!(refused(&mut test, &wish.peer(SERVER, 53)), CANNOT_PROVIDE_EXTERNAL);
    assert_eq!(refused(&mut test, &wish.peer(SERVER_2, 53)), CANNOT_PROVIDE_EXTERNAL);
    // A new one gets the port that the host had before the translator forgot it.
    let lost = Map { port: 4_001, protocol: TCP, suggested: (POOL, 31_337), ..WISH };
    assert_eq!(assigned(&ask(&mut test, &lost.peer(SERVER, 80))).1, 31_337);
    let out = through(&mut test, tcp(INSIDE, 4_001, SERVER, 80, ACK));
    assert_eq!(shown(&out), format!("{POOL}:31337 > {SERVER}:80"));
    // Its lifetime is given up, and its packets keep it.
    assert_eq!(lifetime(&ask(&mut test, &Map { lifetime: 0, ..WISH }.peer(SERVER, 53))), 0);
    test.advance(minutes(4));
    assert_eq!(count(&mut test, "sessions"), 2);
    test.advance(minutes(2));
    assert_eq!(count(&mut test, "sessions"), 1);
}

#[test]
fn rfc6887_12_3_peers_that_cannot_be_are_refused() {
    let mut test = server("exempt = [\"192.0.2.0/24\"]");
    for (message, expected) in [
        (Map { protocol: 0, ..WISH }.peer(SERVER, 53), MALFORMED_REQUEST),
        (Map { port: 0, ..WISH }.peer(SERVER, 53), MALFORMED_REQUEST),
        (WISH.peer(SERVER, 0), MALFORMED_REQUEST),
        (WISH.peer("0.0.0.0", 53), MALFORMED_REQUEST),
        (WISH.peer("224.0.0.1", 53), MALFORMED_REQUEST),
        (Map { protocol: 132, ..WISH }.peer(SERVER, 53), UNSUPP_PROTOCOL),
        (WISH.peer(SERVER, 53)[..76].to_vec(), MALFORMED_REQUEST),
    ] {
        assert_eq!(refused(&mut test, &message), expected);
    }
    // Packets there are not translated.
    let answer = ask(&mut test, &WISH.peer("192.0.2.9", 53));
    assert_eq!(assigned(&answer), (INSIDE.into(), 4_000));
    assert_eq!(count(&mut test, "sessions"), 0);
}

#[test]
fn requests_of_others_and_wrong_datagrams_are_not_answered() {
    let mut test = server("inside_ports = []");
    let good = frame(INSIDE, &WISH.message());
    let mut broken = good.clone();
    broken[70] ^= 1;
    assert_eq!(test.send([broken]).dropped(DropReason::BadChecksum), 1);
    let mut short = good.clone();
    short[38..40].copy_from_slice(&7u16.to_be_bytes());
    let mut long = good.clone();
    long[38..40].copy_from_slice(&2_000u16.to_be_bytes());
    assert_eq!(test.send([short, long]).dropped(DropReason::Malformed), 2);
    // From outside, it is a packet as any.
    let stranger = frame(SERVER, &Map { client: INSIDE, ..WISH }.message());
    assert_eq!(only(&test.send([stranger.clone()])), stranger);
    assert_eq!((count(&mut test, "pcp_requests"), count(&mut test, "mappings")), (3, 0));
    // Without the setting, it goes outside.
    let mut test = nat("");
    assert_eq!(test.send([good]).replies.len(), 0);
}

#[test]
fn an_operator_ends_lifetimes_and_removes_addresses() {
    let mut test = server("pool = [\"203.0.113.7\", \"203.0.113.9\"]");
    for (client, address) in [(INSIDE, "203.0.113.7"), (OTHER, "203.0.113.9")] {
        for port in 4_000..4_003 {
            let wish = Map { client, port, suggested: (address, 0), ..WISH };
            assert_eq!(assigned(&ask_as(&mut test, client, &wish.message())).0, address);
        }
    }
    let peer = Map { port: 4_003, ..WISH };
    ask(&mut test, &peer.peer(SERVER, 53));
    // A flush ends sessions, and a mapping that a host asked for is none.
    assert_eq!(test.call("flush", ""), "ended 1 sessions");
    assert_eq!((count(&mut test, "pcp_mappings"), count(&mut test, "sessions")), (6, 0));
    assert_eq!(test.call("pcp-remove", OTHER), "ended");
    assert_eq!((count(&mut test, "pcp_mappings"), count(&mut test, "mappings")), (3, 3));
    assert_eq!(test.call("pool-remove", "203.0.113.7"), "1 addresses");
    assert_eq!((count(&mut test, "pcp_mappings"), count(&mut test, "mappings")), (0, 0));
    assert_eq!(test.call("pool", "").lines().count(), 1);
    let answer = ask(&mut test, &WISH.message());
    assert_eq!(assigned(&answer).0, "203.0.113.9");
}

#[test]
fn settings_of_the_protocol_are_checked() {
    let refused = |more: &str| {
        let text = format!("inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.7\"]\n{more}");
        let config: NatConfig = toml::from_str(&text).unwrap();
        let error = config.check().unwrap_err();
        (error.key, error.problem)
    };
    let (key, problem) = refused("pcp = \"203.0.113.7\"");
    assert!(key == "pcp" && problem.contains("the address of the gateway"), "{problem}");
    assert!(
        refused("pcp = \"224.0.0.1\"").1.contains("one host's address, as \"10.0.0.1\", found `224.0.0.1`")
    );
    let (key, problem) = refused("pcp_min_lifetime = \"2 d\"");
    assert!(
        key == "pcp_min_lifetime" && problem.contains("at most `pcp_max_lifetime`, \"24 h\""),
        "{problem}"
    );
    assert_eq!(refused("pcp_mappings = 0").0, "pcp_mappings");
    assert_eq!(refused("pcp_subscriber = 2_000").0, "pcp_subscriber");
}
