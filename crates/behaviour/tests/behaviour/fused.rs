//! Functions fused into one loop give the same bytes and drops as they do as nodes of a graph.

use netbricks_core::buffer::BATCH;
use netbricks_core::packet::stack::{Usual, shape};
use netbricks_core::packet::{Ethernet, FlowKey, Ip, Link, Tcp, Udp, Vlan};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
use netbricks_core::{
    Blueprint, DropReason, Drops, Edge, Function, Input, Operator, Verdict, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::kinds;
use netbricks_testkit::mutate::{Random, mutate};

use crate::harness::{Feed, Rig, Sink, blueprint, run_out};

pub(crate) fn hops(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(DropReason::TtlExpired, |p| p.header().ttl() > 1)
        .on_reject(|p| {
            p.reply(Edge::REPLY, 60, |bytes, p| bytes[..8].copy_from_slice(&p.payload().len().to_be_bytes()));
        })
        .transform(|p| p.header_mut().decrement_ttl())
        .done()
}
pub(crate) fn swap(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .transform(|p| p.header_mut().ethernet_mut().swap_addresses())
        .done()
}
pub(crate) fn count(input: Input, worker: &Worker) -> impl Function {
    let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(16));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &flows,
            |p| p.flow_key(),
            |_, entry| {
                entry.or_insert_with(|| 0).map_or(0, |n| {
                    *n += 1;
                    *n
                })
            },
        )
        .filter(DropReason::RateLimited, |p| *p.get::<u64>() < 9)
        .done()
}
fn ports(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .branch(
            |p| p.header().protocol() == 17,
            |udp| {
                udp.parse::<Udp>()
                    .or(Verdict::PASS)
                    .filter(DropReason::Denied, |p| p.header().source_port() % 3 != 0)
                    .forget()
            },
            |rest| {
                rest.parse::<Tcp>()
                    .or(Verdict::PASS)
                    .divert(Edge(2), |p| p.header().fixed().destination_port() == 80)
                    .forget()
            },
        )
        .done()
}
fn groups(input: Input, worker: &Worker) -> impl Function {
    let tables: Vec<_> =
        (0..3).map(|_| worker.flow_table::<u64, u64>("lengths", FlowTableConfig::new(8))).collect();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .group_by(
            3,
            |p| p.frame_len(),
            move |i, start| {
                start.lookup(
                    &tables[i],
                    |p| p.frame_len() as u64,
                    |_, entry| {
                        entry.or_insert_with(|| 7).map_or(0, |n| {
                            *n += 1;
                            *n
                        })
                    },
                )
            },
        )
        .transform(|p| {
            let n = *p.get::<u64>();
            if let Some(last) = p.payload_mut().last_mut() {
                *last ^= n as u8;
            }
        })
        .done()
}
/// Changes the type of some frames, so that later functions in the loop must parse again.
fn retype(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .transform(|p| {
            if p.frame_len().is_multiple_of(3) {
                let mut link = p.header_mut();
                let header = link.ethernet_mut();
                *header = Ethernet::new(header.destination(), header.source(), 0x88b5);
            }
        })
        .done()
}
/// As `retype`, by the type after a VLAN tag.
fn retag(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .transform(|p| {
            let number = if p.frame_len().is_multiple_of(2) { 0x86dd } else { 0x88b5 };
            if p.frame_len() % 5 < 3
                && let Some(tag) = p.header_mut().vlans_mut().last_mut()
            {
                *tag = Vlan::new(7, number);
            }
        })
        .done()
}
/// As `retype`, by the IP header's version and lengths, and IPv6's next header.
///
/// A later parse in the same function is not told.
pub(crate) fn relength(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .transform(|p| {
            let len = p.frame_len();
            if let Some([shape, _, a, b, c, d, next, ..]) = p.payload_mut().first_chunk_mut::<20>() {
                let v6 = *shape >> 4 == 6;
                let (high, low) = if v6 { (c, d) } else { (a, b) };
                match len % 5 {
                    0 => *shape ^= 0x10,
                    1 if v6 => *next = 0,
                    1 => *shape = 0x46,
                    2 => (*high, *low) = (0xff, 0xff),
                    3 => *low = low.wrapping_sub(9),
                    _ => {}
                }
            }
        })
        .parse::<Ip>()
        .or(Verdict::PASS)
        .transform(|p| {
            p.header_mut().decrement_ttl();
            if let Some(last) = p.payload_mut().last_mut() {
                *last ^= 0x5a;
            }
        })
        .done()
}
/// Notes where it believes that the IP packet ends.
pub(crate) fn stamp(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .transform(|p| {
            let len = p.payload().len();
            if let Some(last) = p.payload_mut().last_mut() {
                *last ^= len as u8;
            }
        })
        .done()
}
/// As `retype`, from behind the IP header.
fn reach_out(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .transform(|p| {
            if p.header().ttl().is_multiple_of(2) {
                let mut link = p.outer_mut::<Link>();
                let header = link.ethernet_mut();
                *header = Ethernet::new(header.destination(), header.source(), 0x86dd);
            }
        })
        .done()
}
/// As `retype`, in the arms of a branch and of groups.
fn arms(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .branch(
            |p| p.frame_len().is_multiple_of(2),
            |yes| {
                yes.transform(|p| {
                    if let Some(first) = p.payload_mut().first_mut() {
                        *first ^= 0x20;
                    }
                })
            },
            |no| no,
        )
        .group_by(
            2,
            |p| p.frame_len() / 3,
            |group, start| {
                start.transform(move |p| {
                    if group == 1 {
                        let mut link = p.header_mut();
                        let header = link.ethernet_mut();
                        *header = Ethernet::new(header.destination(), header.source(), 0x86dd);
                    }
                })
            },
        )
        .done()
}
/// Chains longer than one loop, in an arm of a branch and in a group, beside shorter ones.
fn long_arms(input: Input, worker: &Worker) -> impl Function {
    macro_rules! row {
        ($start:expr, $($next:ident)*) => { $start.forget()$(.then(|input| $next(input, worker)))* };
    }
    input
        .parse::<Link>().or(Verdict::PASS)
        .branch(
            |p| p.frame_len().is_multiple_of(2),
            |yes| row!(yes, stamp swap hops stamp swap stamp swap stamp swap stamp swap tag stamp untag swap hops stamp swap),
            |no| row!(no, swap stamp),
        )
        .parse::<Link>().or(Verdict::PASS)
        .group_by(
            2,
            |p| p.frame_len() / 3,
            |_, start| row!(start, stamp swap hops stamp swap stamp swap stamp swap stamp swap stamp swap relength stamp stamp swap count),
        )
        .done()
}
/// As `retype`, where a lookup visits.
fn visiting(input: Input, worker: &Worker) -> impl Function {
    let lengths = worker.flow_table::<u64, u64>("seen", FlowTableConfig::new(8));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .lookup(
            &lengths,
            |p| p.frame_len() as u64,
            |p, _| {
                if p.frame_len().is_multiple_of(5) {
                    p.payload_mut().iter_mut().take(1).for_each(|byte| *byte = 0x60);
                }
            },
        )
        .forget()
        .done()
}
pub(crate) fn tag(input: Input, _: &Worker) -> impl Function {
    input.parse::<Ethernet>().or(Verdict::PASS).insert(|_| Vlan::new(7, 0x0800)).done()
}
pub(crate) fn untag(input: Input, _: &Worker) -> impl Function {
    input.parse::<Ethernet>().or(Verdict::PASS).parse::<Vlan>().or(Verdict::PASS).remove().done()
}

/// Changes the length of UDP's payload, and the place where the next function looks.
pub(crate) fn stretch(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Udp>()
        .or(Verdict::PASS)
        .resize(|p, replace| match p.payload().len() % 4 {
            0 => replace.payload(0..0, b"more"),
            1 => replace.payload(0..1, b""),
            2 => replace.payload(1..2, b"odd"),
            _ => {}
        })
        .or(Edge(2))
        .done()
}
/// As `stretch`, for the IP header: frames become usual, or stop being usual.
pub(crate) fn reroute(input: Input, _: &Worker) -> impl Function {
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .resize(|p, replace| match p.frame_len() % 3 {
            0 => replace.options(&[]),
            1 => replace.options(&[0x94, 4, 0, 0]),
            _ => {}
        })
        .or(Verdict::PASS)
        .branch(
            |p| p.header().protocol() == 6,
            |tcp| {
                tcp.parse::<Tcp>().or(Verdict::PASS).resize(|_, replace| replace.options(&[3, 3, 7])).forget()
            },
            |other| other.transform(|p| p.header_mut().decrement_ttl()).forget(),
        )
        .done()
}

/// Frames of every kind, whole and broken.
pub(crate) fn frames(seed: u64) -> Vec<Vec<u8>> {
    let (kinds, mut random) = (kinds::every(), Random::new(seed));
    let short: Vec<_> = kinds.into_iter().filter(|(_, frame)| frame.len() < 1_500).collect();
    (0..300)
        .map(|_| {
            let mut frame = short[random.below(short.len())].1.clone();
            if random.below(4) == 0 && frame.len() >= 14 {
                frame.splice(12..12, [0x81, 0, 0, 7]);
            }
            if random.below(3) == 0 {
                mutate(&mut frame, &mut random);
                frame.truncate(1_500);
            }
            frame
        })
        .collect()
}

#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) out: Vec<Vec<u8>>,
    pub(crate) aside: Vec<Vec<u8>>,
    pub(crate) drops: Drops,
}

/// Runs these nodes one after the other.
///
/// Packets that leave on other edges are sorted, since a node's answers come a batch at a time.
fn outcome(nodes: &[Blueprint], frames: &[Vec<u8>]) -> Outcome {
    outcome_at(BATCH, nodes, frames)
}

/// As `outcome`, with this many packets a batch.
pub(crate) fn outcome_at(burst: usize, nodes: &[Blueprint], frames: &[Vec<u8>]) -> Outcome {
    let (out, aside) = (Sink::default(), Sink::default());
    let mut rig = Rig::new();
    let mut last = rig.add("source", Box::new(Feed::of(frames.to_vec())));
    let (end, side) = (rig.add("out", Box::new(out.clone())), rig.add("aside", Box::new(aside.clone())));
    for (i, node) in nodes.iter().enumerate() {
        let node = rig.function(&format!("node {i}"), node);
        rig.connect(last, 0, node);
        let others: Vec<_> =
            rig.builder.outputs(node).iter().map(|o| o.edge.0).filter(|edge| *edge != 0).collect();
        others.into_iter().for_each(|edge| rig.connect(node, edge, side));
        last = node;
    }
    rig.connect(last, 0, end);
    let (mut graph, pool) = rig.build();
    graph.set_burst(burst);
    run_out(&mut graph);
    assert_eq!((graph.take_panics(), pool.available()), (Vec::new(), pool.capacity()));
    let mut aside = aside.frames();
    aside.sort();
    Outcome { out: out.frames(), aside, drops: graph.totals().drops }
}

macro_rules! agree {
    ($seed:expr, $first:ident $(, $next:ident)*) => {{
        let frames = frames($seed);
        let fused = blueprint(|worker| compose(worker, |input| $first(input, worker) $(.then(|input| $next(input, worker)))*));
        let nodes = [
            blueprint(|worker| compose(worker, |input| $first(input, worker))),
            $(blueprint(|worker| compose(worker, |input| $next(input, worker))),)*
        ];
        let (one, many) = (outcome(&[fused], &frames), outcome(&nodes, &frames));
        assert!(one == many, "fused and composed differ: {}", stringify!($first $($next)*));
    }};
}

macro_rules! every_pair {
    ($($first:ident)*) => { $(every_pair!(@ $first: hops swap count ports groups);)* };
    (@ $first:ident: $($second:ident)*) => { $(for seed in 1..4 { agree!(seed, $first, $second); })* };
}

#[test]
fn every_pair_of_functions_does_fused_what_it_does_composed() {
    every_pair!(hops swap count ports groups);
}

#[test]
fn functions_that_change_the_shape_of_a_frame_are_noticed() {
    for seed in 1..4 {
        agree!(seed, retype, hops);
        agree!(seed, relength, hops);
        agree!(seed, relength, stamp, stamp);
        agree!(seed, relength, swap, stamp, hops, stamp);
        agree!(seed, reach_out, hops, ports);
        agree!(seed, relength, stamp);
        agree!(seed, reach_out, hops);
        agree!(seed, retag, stamp);
        agree!(seed, retag, hops, count);
        agree!(seed, hops, retag, stamp, hops);
        agree!(seed, count, retag, count, relength, stamp);
        agree!(seed, tag, hops, count);
        agree!(seed, tag, untag, hops);
        agree!(seed, hops, retype, relength, hops, tag, hops, untag, hops, count, hops);
        agree!(seed, count, reach_out, hops, relength, hops);
        agree!(seed, arms, hops, visiting, hops);
        agree!(seed, swap, hops, swap, count, swap, hops);
        agree!(seed, stretch, hops, count);
        agree!(seed, reroute, stamp, count, stretch, stamp, ports);
        agree!(seed, hops, reroute, tag, stretch, untag, stamp, stretch, groups, reroute, stamp);
        agree!(seed, hops, swap, ports, tag, hops, untag, hops, relength, stamp, hops, stamp);
        agree!(seed, count, hops, swap, hops, hops, hops, hops, relength, stamp, swap, stamp);
        // Longer than one loop: the second loop gets frames that a function of the first loop reshaped.
        agree!(
            seed, count, hops, stamp, swap, hops, stamp, swap, stamp, hops, stamp, swap, stamp, hops, stamp,
            swap, stamp, hops, stamp, relength, stamp
        );
        agree!(
            seed, stamp, swap, stamp, hops, stamp, hops, stamp, relength, stamp, stamp, stamp, hops, stamp,
            stamp, swap, relength, stamp, hops, stamp
        );
        agree!(
            seed, stamp, swap, stamp, hops, stamp, swap, stamp, swap, stamp, stamp, stamp, swap, stamp,
            stamp, swap, tag, hops, stamp, untag, hops, ports
        );
        // A lookup ends one loop and begins another, among functions that would otherwise share one.
        agree!(
            seed, stamp, ports, stamp, hops, stamp, count, stamp, swap, stamp, stamp, groups, swap, stamp,
            stamp, swap, retag, hops, stamp, count, hops, ports, stamp, swap, stamp, hops, stamp, swap,
            stamp
        );
        agree!(seed, long_arms, hops, stamp, long_arms, count, stamp);
        agree!(seed, stamp, swap, hops, relength, long_arms, stamp);
    }
}

/// Right-nested, a long chain within a long chain.
#[test]
fn a_row_within_a_row_is_divided_too() {
    fn long(input: Input, w: &Worker) -> impl Function {
        fn four(input: Input, w: &Worker) -> impl Function {
            hops(input, w).then(|i| stamp(i, w)).then(|i| swap(i, w)).then(|i| relength(i, w))
        }
        let eight = |input| four(input, w).then(|i| four(i, w));
        eight(input).then(|i| eight(i).then(|i| eight(i).then(eight)))
    }
    let frames = frames(3);
    let short: [Blueprint; 4] = [
        blueprint(|w| compose(w, |i| hops(i, w))),
        blueprint(|w| compose(w, |i| stamp(i, w))),
        blueprint(|w| compose(w, |i| swap(i, w))),
        blueprint(|w| compose(w, |i| relength(i, w))),
    ];
    let nodes: Vec<_> = short.iter().cycle().take(32).cloned().collect();
    assert!(outcome(&[blueprint(|w| compose(w, |i| long(i, w)))], &frames) == outcome(&nodes, &frames));
}

/// The shortest frames that may be usual: without room for ports, and with some of it.
#[test]
fn frames_as_short_as_can_be_do_too() {
    let whole = ethernet().ipv4("192.0.2.1", "198.51.100.2").ttl(9).udp(1, 2).build().unwrap();
    let frames: Vec<Vec<u8>> = (34..=42)
        .map(|len| {
            let mut frame = whole[..len].to_vec();
            frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
            frame
        })
        .collect();
    let usual = |frame: &Vec<u8>| Usual::of::<{ shape::V4 }>(frame).is_some();
    assert_eq!(frames.iter().map(usual).collect::<Vec<_>>(), [[false; 4].as_slice(), &[true; 5]].concat());
    let fused = blueprint(|w| compose(w, |i| hops(i, w).then(|i| count(i, w)).then(|i| ports(i, w))));
    let nodes = [
        blueprint(|w| compose(w, |i| hops(i, w))),
        blueprint(|w| compose(w, |i| count(i, w))),
        blueprint(|w| compose(w, |i| ports(i, w))),
    ];
    assert_eq!(outcome(&[fused], &frames), outcome(&nodes, &frames));
}

/// Without a link header these addresses look like the beginning of a usual frame, until they are exchanged.
#[test]
fn a_packet_without_a_link_that_looks_like_a_frame_is_looked_at_again() {
    fn turn(input: Input, _: &Worker) -> impl Function {
        input.parse::<Ip>().or(Verdict::PASS).transform(|p| p.exchange_addresses().unwrap()).done()
    }
    let packet = ethernet().ipv4("8.0.69.0", "0.30.1.1").udp(1, 2).payload(&[0x45; 40]).build().unwrap();
    let frames = [packet[14..].to_vec()];
    let fused = blueprint(|w| compose(w, |i| turn(i, w).then(|i| hops(i, w))));
    let nodes = [blueprint(|w| compose(w, |i| turn(i, w))), blueprint(|w| compose(w, |i| hops(i, w)))];
    assert!(Usual::of::<{ shape::V4 }>(&frames[0]).is_some(), "else it proves nothing");
    assert_eq!(outcome(&[fused], &frames), outcome(&nodes, &frames));
}

#[test]
fn longer_rows_of_functions_do_too() {
    for seed in 10..14 {
        agree!(seed, count, ports, groups);
        agree!(seed, groups, count, hops, count);
        agree!(seed, hops, hops, ports, swap, groups);
        agree!(seed, count, groups, count, groups, count, hops);
        agree!(seed, ports, swap, hops, groups, swap, ports, count);
    }
}

#[test]
fn fusing_is_associative() {
    let frames = frames(77);
    let left = blueprint(|w| compose(w, |i| hops(i, w).then(|i| count(i, w)).then(|i| groups(i, w))));
    let right = blueprint(|w| compose(w, |i| hops(i, w).then(|i| count(i, w).then(|i| groups(i, w)))));
    assert!(outcome(&[left], &frames) == outcome(&[right], &frames));
}

#[test]
fn state_of_a_function_fused_with_itself_is_apart() {
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of(frames(5))));
    let node = rig.function("twice", &blueprint(|w| compose(w, |i| count(i, w).then(|i| count(i, w)))));
    let sink = rig.add("sink", Box::new(Sink::default()));
    rig.chain(&[source, node, sink]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    let names: Vec<_> = graph.export().into_iter().map(|(_, (name, _))| name).collect();
    assert_eq!(names, ["flows", "flows.2"]);
}
