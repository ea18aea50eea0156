//! Options and payload are replaced by bytes of another length.
//!
//! The result equals the packet as built with those bytes from the beginning, in every stack, wherever there
//! was room.

use netbricks_core::buffer::{Batch, GsoKind, Offload, Pool};
use netbricks_core::packet::build::{BuildError, Builder};
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::{
    Ethernet, FlowKey, Geneve, Gre, Gtpu, Icmpv4, Icmpv6, Ip, Ipv4, Ipv6, Link, Tcp, Udp, Vlan, Vxlan,
};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
use netbricks_core::{
    DetachedContext, DropReason, Edge, Function, Input, Node, Operator, Verdict, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::{checksums, kinds, run, run_with};

use crate::harness;

mod left_to_device;

/// A packet from which another can be made that differs in one part.
#[derive(Clone, Debug, Default)]
struct Shape {
    link: usize,
    v6: bool,
    extended: bool,
    ip_options: Vec<(u8, Vec<u8>)>,
    transport: usize,
    tcp_options: Vec<(u8, Vec<u8>)>,
    payload: Vec<u8>,
}

const TCP: usize = 0;
const UDP: usize = 1;
const UNCHECKED: usize = 2;

fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.below(most + 1)).map(|_| random.next() as u8).collect()
}

/// Options of some 40 bytes at most, none of them padding.
fn some_options(random: &mut Random) -> Vec<(u8, Vec<u8>)> {
    let mut room = random.below(41);
    let mut options = Vec::new();
    while room >= 2 {
        let data = bytes(random, (room - 2).min(9));
        room -= 2 + data.len();
        options.push((100 + random.below(20) as u8, data));
    }
    options
}

/// The options as they are in the header, without padding.
fn wire(options: &[(u8, Vec<u8>)]) -> Vec<u8> {
    options.iter().flat_map(|(kind, data)| [&[*kind, 2 + data.len() as u8], &data[..]].concat()).collect()
}

impl Shape {
    fn any(random: &mut Random) -> Self {
        let (v6, most) = (random.below(2) == 0, [9, 200, 1_300][random.below(3)]);
        Self {
            link: random.below(5),
            v6,
            extended: random.below(2) == 0,
            ip_options: if random.below(3) == 0 { some_options(random) } else { Vec::new() },
            transport: random.below(if v6 { 2 } else { 4 }),
            tcp_options: if random.below(2) == 0 { some_options(random) } else { Vec::new() },
            payload: bytes(random, most),
        }
    }
    fn build(&self) -> Vec<u8> {
        self.built().unwrap()
    }
    fn built(&self) -> Result<Vec<u8>, BuildError> {
        let payload = &self.payload;
        let tcp = |tcp: Builder<'static, Tcp>| {
            let tcp = tcp.ack(7).sequence(5);
            self.tcp_options.iter().fold(tcp, |tcp, (kind, data)| tcp.option(*kind, data))
        };
        if self.v6 {
            let (from, to) = ("2001:db8::1", "2001:db8::2");
            let ip = match self.link {
                0 => ethernet().ipv6(from, to),
                1 => ethernet().vlan(7).ipv6(from, to),
                2 => ethernet().qinq(7, 8).ipv6(from, to),
                3 => ethernet().mpls(16).mpls(17).ipv6(from, to),
                _ => ethernet().pppoe(9).ipv6(from, to),
            };
            let ip: Builder<'static, Ipv6> =
                if self.extended { ip.hop_by_hop(&[5, 2, 0, 0]).destination_options(&[1, 0]) } else { ip };
            return match self.transport {
                TCP => tcp(ip.tcp(1, 2)).payload(payload).build(),
                _ => ip.udp(1, 2).payload(payload).build(),
            };
        }
        let (from, to) = ("10.0.0.1", "10.0.0.2");
        let ip: Builder<'static, Ipv4> = match self.link {
            0 => ethernet().ipv4(from, to),
            1 => ethernet().vlan(7).ipv4(from, to),
            2 => ethernet().qinq(7, 8).ipv4(from, to),
            3 => ethernet().mpls(16).mpls(17).ipv4(from, to),
            _ => ethernet().pppoe(9).ipv4(from, to),
        };
        let ip = self.ip_options.iter().fold(ip, |ip, (kind, data)| ip.option(*kind, data));
        match self.transport {
            TCP => tcp(ip.tcp(1, 2)).payload(payload).build(),
            UDP => ip.udp(1, 2).payload(payload).build(),
            UNCHECKED => ip.udp(1, 2).unchecked().payload(payload).build(),
            _ => ip.icmp_echo_request(7, 1).payload(payload).build(),
        }
    }
}

/// Replaces `range` of the payload in one packet, and checks the new stack in later operators.
macro_rules! payload_replaced {
    ($header:ty, $frame:expr, $range:expr, $new:expr, $whole:expr) => {{
        let (range, new, whole) = ($range, $new, $whole);
        run(
            move |input: Input| {
                let (range, new, whole) = (range.clone(), new.clone(), whole.clone());
                input
                    .parse::<Link>()
                    .parse::<Ip>()
                    .parse::<$header>()
                    .resize(move |_, replace| replace.payload(range.clone(), &new))
                    .inspect(move |p| assert_eq!(p.payload(), whole))
                    .done()
            },
            [$frame],
        )
    }};
}

#[test]
fn a_payload_of_another_length_gives_the_packet_built_with_it() {
    let mut random = Random::new(2_026);
    for _ in 0..600 {
        let before = Shape::any(&mut random);
        let from = random.below(before.payload.len() + 1);
        let to = from + random.below(before.payload.len() - from + 1);
        let most = [3, 90][random.below(2)];
        let new = bytes(&mut random, most);
        let mut after = before.clone();
        after.payload.splice(from..to, new.iter().copied());
        // Padding is not payload, and stays where it is.
        let padding = vec![0x5a; random.below(3) * 7];
        let (frame, expected) =
            ([before.build(), padding.clone()].concat(), [after.build(), padding].concat());
        let report = match before.transport {
            TCP => payload_replaced!(Tcp, frame, from..to, new.clone(), after.payload.clone()),
            UDP | UNCHECKED => payload_replaced!(Udp, frame, from..to, new.clone(), after.payload.clone()),
            _ => payload_replaced!(Icmpv4, frame, from..to, new.clone(), after.payload.clone()),
        };
        assert_eq!((report.panics, report.out), (vec![], vec![expected]), "{before:?} {from}..{to} {new:?}");
    }
}

#[test]
fn an_icmpv6_payload_is_replaced() {
    let ping = |text: &[u8]| {
        ethernet().ipv6("2001:db8::1", "2001:db8::2").icmpv6_echo_request(7, 1).payload(text).build().unwrap()
    };
    let report = payload_replaced!(Icmpv6, ping(b"odd"), 1..2, b"nswere".to_vec(), b"onswered".to_vec());
    assert_eq!((report.panics, report.out), (vec![], vec![ping(b"onswered")]));
}

#[test]
fn options_of_another_length_give_the_packet_built_with_them() {
    let mut random = Random::new(2_027);
    for _ in 0..600 {
        let mut before = Shape::any(&mut random);
        let new = some_options(&mut random);
        let mut after = before.clone();
        let (options, payload) = (wire(&new), before.payload.clone());
        let report = if before.v6 || random.below(2) == 0 {
            (before.transport, after.transport) = (TCP, TCP);
            after.tcp_options = new;
            run(
                move |input: Input| {
                    let (options, payload) = (options.clone(), payload.clone());
                    input
                        .parse::<Link>()
                        .parse::<Ip>()
                        .parse::<Tcp>()
                        .map(|p| p.header().source_port())
                        .resize(move |p, replace| {
                            assert_eq!(*p.get::<u16>(), 1);
                            replace.options(&options);
                        })
                        .inspect(move |p| assert_eq!(p.payload(), payload))
                        .transform(|p| p.header_mut().set_window(9))
                        .transform(|p| p.header_mut().set_window(0xffff))
                        .done()
                },
                [before.build()],
            )
        } else {
            // Headers behind are parsed at their new place.
            after.ip_options = new;
            (before.transport, after.transport) = (UDP, UDP);
            run(
                move |input: Input| {
                    let (options, payload) = (options.clone(), payload.clone());
                    input
                        .parse::<Link>()
                        .parse::<Ipv4>()
                        .resize(move |_, replace| replace.options(&options))
                        .transform(|p| p.header_mut().set_ttl(9))
                        .parse::<Udp>()
                        .inspect(move |p| assert_eq!(p.payload(), payload))
                        .transform(|p| p.outer_mut::<Ipv4>().set_ttl(64))
                        .done()
                },
                [before.build()],
            )
        };
        assert_eq!((report.panics, report.out), (vec![], vec![after.build()]), "{before:?} {after:?}");
    }
}

/// Sixty bytes longer, forty of them options: all enclosing lengths are stated correctly.
#[test]
fn tunnels_around_state_the_new_length_and_their_checksums_hold() {
    let inner = |tcp: Builder<'static, Tcp>, options: bool| {
        let tcp = tcp.syn().maximum_segment_size(1460);
        let tcp = if options { tcp.timestamps(1, 2).sack_permitted() } else { tcp };
        tcp.payload(b"odd").build().unwrap()
    };
    let new = || {
        let options = [(2, 1460u16.to_be_bytes().to_vec()), (8, vec![0, 0, 0, 1, 0, 0, 0, 2]), (4, vec![])];
        wire(&options)
    };
    macro_rules! through {
        ($($header:ty)* ; $build:expr) => {{
            let build = $build;
            let report = run(
                move |input: Input| {
                    let new = new();
                    input $(.parse::<$header>())*
                        .parse::<Ip>()
                        .parse::<Tcp>()
                        .resize(move |_, replace| replace.options(&new))
                        .done()
                },
                [inner(build(), false)],
            );
            let expected = inner(build(), true);
            assert_eq!(checksums::wrong(&expected), Vec::<String>::new());
            assert_eq!((report.panics, report.out), (vec![], vec![expected]), stringify!($($header)*));
        }};
    }
    let v4 = || ethernet().ipv4("192.0.2.1", "192.0.2.2");
    let v6 = || ethernet().vlan(3).ipv6("2001:db8::1", "2001:db8::2");
    through! { Link Ip Udp Vxlan Ethernet; || v4().udp(5, 0).vxlan(7).ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
    through! { Link Ip Udp Vxlan Link;
    || v4().udp(5, 0).unchecked().vxlan(7).ethernet().vlan(4).ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
    through! { Link Ip Udp Geneve Ethernet;
    || v6().udp(5, 0).geneve(7).ethernet().ipv6("2001:db8:1::1", "2001:db8:1::2").tcp(1, 2) }
    through! { Link Ip Udp Gtpu; || v6().udp(5, 0).gtpu(7).ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
    through! { Link Ip Gre; || v4().gre().checksum().key(9).ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
    through! { Link Ip Gre; || v6().gre().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
    through! { Link Ip; || v4().ipv6("2001:db8:1::1", "2001:db8:1::2").tcp(1, 2) }
    through! { Link Ip; || ethernet().pppoe(3).ipv6("2001:db8::1", "2001:db8::2").ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2) }
}

/// A frame in a tunnel, whose options become longer by four bytes.
fn tunnelled(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .parse::<Udp>()
        .parse::<Vxlan>()
        .parse::<Ethernet>()
        .parse::<Ip>()
        .parse::<Tcp>()
        .resize(|_, replace| replace.options(&[2, 4, 5, 0xb4]))
        .done()
}
fn in_tunnel(payload: &[u8]) -> Vec<u8> {
    let outer = ethernet().ipv4("192.0.2.1", "192.0.2.2").udp(5, 0).vxlan(7);
    outer.ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).payload(payload).build().unwrap()
}

#[test]
fn a_tunnel_that_can_not_state_the_length_is_too_long() {
    let most = 0xffff - 20 - 8 - 8 - 14 - 20 - 20;
    for (payload, fits) in [(most - 4, 1), (most - 3, 0), (most, 0)] {
        let report = run(tunnelled, [in_tunnel(&vec![3; payload])]);
        assert_eq!(
            (report.out.len(), report.dropped(DropReason::TooBig)),
            (fits, 1 - fits as u64),
            "{payload}"
        );
        assert!(report.out.iter().all(|out| checksums::wrong(out).is_empty()));
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    for (at, name) in [(40, "udp at 34"), (74, "ipv4 at 64"), (100, "tcp at 84")] {
        let mut frame = in_tunnel(b"damaged on the way here");
        frame[at] ^= 0x10;
        // A checksum over the damaged field is wrong too, as long as no function repairs the field.
        let before = checksums::wrong(&frame);
        assert!(before.iter().any(|wrong| wrong == name), "{before:?}");
        assert_eq!(checksums::wrong(&run(tunnelled, [frame]).out[0]), before);
    }
}

fn longer(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .parse::<Udp>()
        .resize(|p, replace| {
            let middle = p.payload().len() / 2;
            replace.payload(middle..middle, b"<->");
        })
        .done()
}
fn shorter(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .parse::<Udp>()
        .resize(|p, replace| {
            if let Some(at) = p.payload().windows(3).position(|word| word == b"<->") {
                replace.payload(at..at + 3, b"");
            }
        })
        .done()
}

#[test]
fn there_and_back_again_every_kind_of_packet_is_as_it_was() {
    let mut changed = 0;
    for (name, frame) in kinds::every() {
        let first = run_with(longer, [frame.clone()]);
        let Some(out) = first.out.first() else { continue };
        assert_eq!(checksums::wrong(out), Vec::<String>::new(), "{name}");
        assert_eq!(out.len(), frame.len() + 3, "{name}");
        changed += 1;
        assert_eq!(run_with(shorter, [out.clone()]).out, std::slice::from_ref(&frame), "{name}");
        assert_eq!(
            run_with(
                |input, worker| longer(input, worker).then(|input| shorter(input, worker)),
                [frame.clone()]
            )
            .out,
            [frame],
            "{name}, in one loop"
        );
    }
    assert!(changed > 15, "{changed}");
}

/// Checks the new stack after the change: where it waits on memory, and where headers are inserted and
/// removed.
#[test]
fn the_chain_goes_on_in_the_new_stack() {
    fn on(input: Input, worker: &Worker) -> impl Function {
        let flows = worker.flow_table::<FlowKey, u8>("flows", FlowTableConfig::new(8));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .resize(|_, replace| replace.options(&[7, 7, 4, 0, 0, 0, 0]))
            .parse::<Udp>()
            .resize(|p, replace| {
                replace.payload_with(1..p.payload().len(), 3, |room| room.copy_from_slice(b"xyz"))
            })
            .lookup(&flows, |p| p.flow_key(), |p, _| p.payload().len())
            .inspect(|p| {
                assert_eq!(*p.get::<usize>(), 4);
                assert_eq!((p.payload(), p.header().length()), (&b"axyz"[..], 12));
                assert_eq!(p.outer::<Ip>().protocol(), 17);
            })
            .forget_metadata()
            .resize(|_, replace| replace.payload(0..0, b"#"))
            .deparse()
            .parse::<Udp>()
            .filter(DropReason::Denied, |p| p.payload() == b"#axyz")
            .done()
    }
    let packet = |text: &[u8], long: bool| {
        let ip = ethernet().vlan(3).ipv4("10.0.0.1", "10.0.0.2");
        let ip = if long { ip.option(7, &[4, 0, 0, 0, 0]) } else { ip };
        ip.udp(1, 4789).payload(text).build().unwrap()
    };
    let report = run_with(on, [packet(b"abcdefgh", false)]);
    assert_eq!((report.panics, report.out), (vec![], vec![packet(b"#axyz", true)]));
}

/// One request a packet: the last one counts.
#[test]
fn the_last_word_counts_and_no_word_changes_nothing() {
    let packet =
        |text: &[u8]| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(text).build().unwrap();
    let said = |input: Input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .resize(|p, replace| {
                if p.payload().first() == Some(&b'!') {
                    replace.payload(0..99, b"beyond");
                    replace.payload(0..1, b"?!");
                }
            })
            .done()
    };
    let report = run(said, [packet(b"!a"), packet(b"b"), packet(b"!")]);
    assert_eq!(report.out, [packet(b"?!a"), packet(b"b"), packet(b"?!")]);
}

/// The ways in which a packet refuses a change, and their results.
fn refusing() -> Vec<(&'static str, Vec<u8>, DropReason)> {
    let v4 = || ethernet().ipv4("10.0.0.1", "10.0.0.2");
    let v6 = || ethernet().ipv6("2001:db8::1", "2001:db8::2");
    // The authentication header (RFC 4302) of 12 bytes stands where an extension of that length was built.
    let mut authenticated =
        v6().destination_options(&[1, 4, 0, 0, 0, 0]).udp(1, 2).payload(b"x").build().unwrap();
    authenticated[20] = 51;
    let mut shorter = v4().udp(1, 2).payload(b"abcdefgh").build().unwrap();
    shorter[39] -= 2;
    vec![
        (
            "a fragment",
            v4().fragment(0, true).udp(1, 2).payload(&[1; 32]).build().unwrap(),
            DropReason::Fragment,
        ),
        (
            "a v6 fragment",
            v6().fragment(0, true, 7).udp(1, 2).payload(&[1; 32]).build().unwrap(),
            DropReason::Fragment,
        ),
        ("authenticated", authenticated, DropReason::Denied),
        ("a datagram that ends before its packet", shorter, DropReason::Unmatched),
        ("as long as can be", v4().udp(1, 2).payload(&[0; 65_506]).build().unwrap(), DropReason::TooBig),
        ("out of range", v4().udp(1, 2).build().unwrap(), DropReason::Unmatched),
    ]
}

#[test]
fn packets_that_cannot_be_changed_take_the_authors_way() {
    for (name, frame, reason) in refusing() {
        macro_rules! way {
            ($($($word:ident($policy:expr))?;)+) => {
                [$(run(
                    |input: Input| {
                        input
                            .parse::<Link>()
                            .parse::<Ip>()
                            .parse::<Udp>()
                            // Two bytes more in front; behind the end where there is nothing.
                            .resize(|p, replace| replace.payload(0..usize::from(p.payload().is_empty()), b"ab"))
                            $(.$word($policy))?
                            .transform(|p| {
                                p.payload_mut().fill(0xee);
                            })
                            .done()
                    },
                    [frame.clone()],
                )),+]
            };
        }
        let [dropped, passed, sent, stayed, denied] = way! {
            ;
            or(Verdict::PASS);
            or(Edge(3));
            or_else(|p, error| {
                assert!(p.frame_len() > 40 && !error.to_string().is_empty());
                Ok(())
            });
            or_else(|_, _| Err(Verdict::drop(DropReason::RateLimited)));
        };
        assert_eq!((dropped.out.len(), dropped.dropped(reason)), (0, 1), "{name}");
        assert_eq!((passed.out, sent.replies), (vec![frame.clone()], vec![frame.clone()]), "{name}");
        let (start, whole) = (stayed.out[0].iter().position(|byte| *byte == 0xee), &stayed.out[0]);
        assert_eq!(whole.len(), frame.len(), "{name}: it went on as it was");
        assert_eq!(start.is_none(), name == "out of range", "{name}: what comes after it saw it");
        assert_eq!(denied.dropped(DropReason::RateLimited), 1, "{name}");
    }
}

#[test]
fn more_options_than_there_is_room_for_and_options_of_another_version() {
    let options = |len: usize| {
        move |input: Input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .resize(move |_, replace| replace.options(&[1; 100][..len]))
                .done()
        }
    };
    let v4 = ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).build().unwrap();
    assert_eq!(run(options(40), [v4.clone()]).out[0].len(), v4.len() + 40);
    assert_eq!(run(options(41), [v4.clone()]).dropped(DropReason::TooBig), 1);
    assert_eq!(run(options(100), [v4]).dropped(DropReason::TooBig), 1);
    assert_eq!(run(options(4), [v6]).dropped(DropReason::Unmatched), 1);
}

/// An author may write any length field.
///
/// The range that was asked for then means something else, so nothing is written.
#[test]
fn a_length_written_after_the_parse_is_detected() {
    let frame = ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1, 2).ack(1).payload(&[9; 40]).build().unwrap();
    let meddling = |options: usize| {
        move |input: Input| {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .parse::<Tcp>()
                .transform(move |p| p.header_mut().set_options_len(options))
                .resize(|_, replace| replace.payload(0..1, b"abc"))
                .done()
        }
    };
    assert_eq!(run(meddling(0), [frame.clone()]).out[0].len(), frame.len() + 2);
    assert_eq!(run(meddling(8), [frame.clone()]).dropped(DropReason::Malformed), 1);
    let shortening = |input: Input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Tcp>()
            .map(|p| p.outer_mut::<Link>().ethernet_mut().swap_addresses())
            .forget_metadata()
            .deparse()
            .deparse()
            .transform(|p| p.payload_mut()[3] -= 8)
            .parse::<Ip>()
            .resize(|_, replace| replace.options(&[1, 1, 1, 1]))
            .done()
    };
    assert_eq!(
        run(shortening, [frame.clone()]).out[0][17],
        frame[17] - 8 + 4,
        "what was parsed again is known"
    );
}

/// A node that inserts bytes into the payload at this place.
///
/// The packet has room for them.
fn growing(pool: &Pool, at_end: bool, bytes: usize) -> Box<dyn Node> {
    compose(&harness::worker(pool), move |input| {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .parse::<Udp>()
            .resize(move |p, replace| {
                let at = if at_end { p.payload().len() } else { 0 };
                replace.payload_with(at..at, bytes, |room| room.fill(b'+'));
            })
            .done()
    })
    .unwrap()
}

#[test]
fn room_before_and_behind_is_used_up_and_then_there_is_none() {
    // Only one size of frames, so that there is no larger one to move to.
    let pool = Pool::builder().frames(64).build().unwrap();
    let frame =
        |payload: &[u8]| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(1, 2).payload(payload).build().unwrap();
    for slack in [0, 1, 2, 5, 300] {
        for (at_end, bytes) in [(false, 3), (true, 3), (false, 64), (true, 64)] {
            let mut node = growing(&pool, at_end, bytes);
            let whole = pool.packet(&frame(b"")).map(|packet| packet.len() + packet.tailroom()).unwrap();
            let text: Vec<u8> = (0..whole - slack - 42).map(|i| i as u8 & 0x1f).collect();
            let packet = pool.packet(&frame(&text)).unwrap();
            let (room, mut cx) = (packet.headroom() + packet.tailroom(), DetachedContext::new(pool.clone()));
            assert_eq!(packet.tailroom(), slack, "else it proves nothing");
            let mut batch = Batch::new();
            assert!(batch.push(packet).is_ok());
            let (mut used, mut times) = (0, 0);
            loop {
                node.process(0, &mut batch, &mut cx);
                if batch.is_empty() {
                    break;
                }
                times += 1;
                used += bytes;
                let more = vec![b'+'; times * bytes];
                let expected = if at_end { [&text[..], &more].concat() } else { [&more, &text[..]].concat() };
                assert_eq!(batch.get(0).unwrap().data(), frame(&expected), "{slack} {at_end} {times}");
                assert_eq!(batch.bytes() as usize, frame(&expected).len(), "a batch knows its bytes");
            }
            // Each end is used up to less than a step.
            assert!(used <= room && used + 2 * bytes > room, "{used} of {room}");
            assert_eq!(cx.take_drops().of(DropReason::TooBig).packets, 1);
            assert_eq!(pool.available(), pool.capacity());
        }
    }
}

/// Where larger frames exist, a packet moves into one and keeps the known facts.
#[test]
fn a_packet_outgrows_its_frame() {
    let pool = Pool::builder().frames(64).short(64, 512).large(8, 16_384).build().unwrap();
    let frame = |payload: &[u8]| {
        ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(payload).build().unwrap()
    };
    let mut cx = DetachedContext::new(pool.clone());
    let mut node = growing(&pool, true, 700);
    let mut batch = Batch::new();
    let mut packet = pool.packet(&frame(b"start")).unwrap();
    packet.set_ingress(3, 4);
    packet.set_received_at(77);
    assert!(batch.push(packet).is_ok());
    for times in 1..=12 {
        node.process(0, &mut batch, &mut cx);
        let packet = batch.get(0).unwrap();
        assert_eq!(packet.data(), frame(&[&b"start"[..], &vec![b'+'; times * 700]].concat()));
        assert_eq!((packet.ingress(), packet.queue(), packet.received_at()), (3, 4, 77));
    }
    batch.clear();
    assert_eq!(pool.available(), pool.capacity());
}
