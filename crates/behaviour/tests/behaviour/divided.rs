//! Long chains of functions are divided into several loops, with packets and facts about them waiting
//! between.
//!
//! They give the same results as the same functions as nodes, or written as one chain, in batches of any
//! size.

use std::cell::{Cell, RefCell};

use netbricks_core::consistency::{BoundedInconsistency, Consistency, Lookable, MapEntry, Strict};
use netbricks_core::graph::observe_panics;
use netbricks_core::packet::stack::{Layer, Root, Usual, shape};
use netbricks_core::packet::{Ethernet, Ip, Link, Tcp};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{
    Blueprint, DropReason, Edge, Function, Input, Operator, Verdict, View, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::stream::{StreamConfig, StreamOperator, WindowConfig};

use crate::consistency::Flows;
use crate::fused::{
    Outcome, count, frames, hops, outcome_at, relength, reroute, stamp, stretch, swap, tag, untag,
};
use crate::harness::{Feed, Rig, Sink, blueprint, check, counters, number, numbered, run_out};

const BURSTS: [usize; 4] = [1, 7, 32, 256];

/// Functions in a chain, each fused behind the one before.
macro_rules! row {
    ($worker:ident, $input:expr => $first:ident $($next:ident)*) => {
        $first($input, $worker)$(.then(|input| $next(input, $worker)))*
    };
}

/// The same functions, each a node.
macro_rules! nodes {
    ($($function:ident)*) => { vec![$(blueprint(|worker| compose(worker, |input| $function(input, worker)))),*] };
}

thread_local! {
    /// The functions that saw a packet, in order: 1 before the division of a chain, 2 behind it.
    static SEEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static WINDOWS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn see(who: u8) {
    SEEN.with_borrow_mut(|seen| seen.push(who));
}

/// Whether at least two packets were seen before the division before the first was seen behind it.
fn waited() -> bool {
    SEEN.take().starts_with(&[1, 1])
}

/// Compares one node of all functions with its equivalent, in batches of every size.
///
/// Everything is built again each time, since nodes of one blueprint share state.
fn agree_at_every_burst(
    frames: &[Vec<u8>],
    fused: impl Fn() -> Vec<Blueprint>,
    composed: impl Fn() -> Vec<Blueprint>,
) -> Outcome {
    let first = outcome_at(1, &composed(), frames);
    let windows = WINDOWS.take();
    for burst in BURSTS {
        for (what, nodes) in [("fused", fused()), ("composed", composed())] {
            let outcome = outcome_at(burst, &nodes, frames);
            assert!(outcome == first, "{what} differs in batches of {burst}");
            assert!(WINDOWS.take() == windows, "{what} shows other windows in batches of {burst}");
        }
    }
    WINDOWS.set(windows);
    first
}

type Linked = Layer<Root, Link>;

fn ahead(_: &View<'_, Linked>) {
    see(1);
}
fn behind(_: &View<'_, Linked>) {
    see(2);
}
fn turn(p: &mut View<'_, Linked>) {
    p.header_mut().ethernet_mut().swap_addresses();
}
fn salt(p: &mut View<'_, Linked>) {
    if let Some(last) = p.payload_mut().last_mut() {
        *last = last.wrapping_mul(3).wrapping_add(1);
    }
}
fn announce(p: &mut View<'_, Linked>, ethertype: u16) {
    let mut link = p.header_mut();
    let header = link.ethernet_mut();
    *header = Ethernet::new(header.destination(), header.source(), ethertype);
}
/// Changes the EtherType; facts about the link that were parsed before stay.
fn retype(p: &mut View<'_, Linked>) {
    match p.header().ethernet().ethertype() {
        0x0800 => announce(p, 0x86dd),
        0x86dd | 0x8100 | 0x8847 => announce(p, 0x0800),
        _ => {}
    }
}
fn retype_some(p: &mut View<'_, Linked>) {
    if p.frame_len().is_multiple_of(5) {
        announce(p, 0x88b5);
    }
}
fn no_sevenths(p: &View<'_, Linked>) -> bool {
    !p.frame_len().is_multiple_of(7)
}
fn elevenths(p: &mut View<'_, Linked>) -> bool {
    p.frame_len().is_multiple_of(11)
}
fn is_answered(p: &mut View<'_, Linked>) -> bool {
    p.frame_len().is_multiple_of(13)
        && p.reply(Edge::REPLY, 60, |bytes, p| bytes[..12].copy_from_slice(&p.frame()[..12]))
}
fn decrement(p: &mut View<'_, Layer<Linked, Ip>>) {
    p.header_mut().decrement_ttl();
    let len = p.payload().len();
    if let Some(last) = p.payload_mut().last_mut() {
        *last ^= len as u8;
    }
}

/// Sixteen functions and the parse before them are one more than a loop takes: the last three begin another.
fn over_a_link(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .then(|p| p.inspect(ahead))
        .then(|p| p.transform(turn))
        .then(|p| p.transform(salt))
        .then(|p| p.filter(Verdict::PASS, no_sevenths))
        .then(|p| p.transform(salt))
        .then(|p| p.transform(turn))
        .then(|p| p.divert(Edge(3), elevenths))
        .then(|p| p.transform(salt))
        .then(|p| p.transform(turn))
        .then(|p| p.transform(salt))
        .then(|p| p.divert(Edge(2), is_answered))
        .then(|p| p.transform(salt))
        .then(|p| p.transform(salt))
        .then(|p| p.transform(salt))
        .then(|p| p.transform(retype))
        .then(|p| p.transform(retype_some))
        .then(|p| p.inspect(behind))
        .then(|p| p.filter(Verdict::PASS, no_sevenths))
        .parse::<Ip>()
        .transform(decrement)
        .done()
}
/// As `over_a_link`, in one function.
fn over_a_link_at_once(input: Input) -> impl Function {
    input
        .parse::<Link>()
        .inspect(ahead)
        .transform(turn)
        .transform(salt)
        .filter(Verdict::PASS, no_sevenths)
        .transform(salt)
        .transform(turn)
        .divert(Edge(3), elevenths)
        .transform(salt)
        .transform(turn)
        .transform(salt)
        .divert(Edge(2), is_answered)
        .transform(salt)
        .transform(salt)
        .transform(salt)
        .transform(retype)
        .transform(retype_some)
        .inspect(behind)
        .filter(Verdict::PASS, no_sevenths)
        .parse::<Ip>()
        .transform(decrement)
        .done()
}

#[test]
fn packet_facts_wait_where_a_row_is_divided() {
    let fused = || vec![blueprint(|worker| compose(worker, over_a_link))];
    let at_once = || vec![blueprint(|worker| compose(worker, over_a_link_at_once))];
    for seed in 1..6 {
        let outcome = agree_at_every_burst(&frames(seed), fused, at_once);
        assert!(!outcome.out.is_empty() && !outcome.aside.is_empty());
    }
    let frame = ethernet().ipv4("192.0.2.1", "198.51.100.2").udp(1, 2).payload(b"one more!").build().unwrap();
    let some = vec![frame; 20];
    SEEN.take();
    outcome_at(7, &fused(), &some);
    assert!(waited(), "it is not divided, and proves nothing");
    outcome_at(7, &at_once(), &some);
    assert!(!waited());
}

/// `salt`, as often as it occurs in the chain.
fn salted(byte: u8) -> u8 {
    (0..7).fold(byte, |byte, _| byte.wrapping_mul(3).wrapping_add(1))
}

#[test]
fn bytes_are_those_computed_by_hand() {
    let udp = |ttl: u8, payload: &[u8]| {
        let mut frame =
            ethernet().ipv4("192.0.2.1", "198.51.100.2").ttl(ttl).udp(1, 2).payload(payload).build().unwrap();
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        frame
    };
    // Addresses are exchanged three times; then the type changes, and in frames of a multiple of five once
    // more.
    let by_hand = |mut frame: Vec<u8>, ethertype: [u8; 2], ip_payload: u8| {
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&ethertype);
        let last = frame.last_mut().unwrap();
        *last = salted(*last) ^ ip_payload;
        frame
    };
    // A label whose bytes look like the beginning of an IPv4 header of 0x0140 bytes, once the EtherType says so.
    let labelled = |ttl: u8| {
        let mut frame = udp(ttl, &[7; 320]);
        frame[12..14].copy_from_slice(&[0x88, 0x47]);
        frame.splice(14..14, [0x45, 0, 1, 0x40]);
        frame
    };
    let mut looks_usual = labelled(64);
    looks_usual[12..14].copy_from_slice(&[8, 0]);
    assert!(Usual::of::<{ shape::V4 }>(&looks_usual).is_some(), "else it proves nothing");
    let mut other = udp(64, b"another!");
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let lengths = [51, 50, 366, 49, 55, 50, 78];
    let sent = [
        udp(64, b"one more!"),
        udp(64, b"payload!"),
        labelled(64),
        udp(64, b"seventh"),
        udp(64, b"five elevens!"),
        other,
        udp(64, &[0; 36]),
    ];
    assert_eq!(sent.each_ref().map(Vec::len), lengths);
    let left = |mut frame: Vec<u8>, turned: bool, salts: u32| {
        if turned {
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        }
        let last = frame.last_mut().unwrap();
        *last = (0..salts).fold(*last, |byte, _| byte.wrapping_mul(3).wrapping_add(1));
        frame
    };
    let out = [
        by_hand(udp(63, b"one more!"), [0x86, 0xdd], 17),
        by_hand(udp(63, b"payload!"), [0x88, 0xb5], 16),
        by_hand(labelled(63), [0x08, 0x00], 328_u16.to_be_bytes()[1]),
        left(sent[3].clone(), true, 1),
    ];
    let mut answer = vec![0; 60];
    answer[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    let mut aside = vec![left(sent[4].clone(), false, 2), left(sent[6].clone(), true, 4), answer];
    aside.sort();
    for burst in BURSTS {
        let node = blueprint(|worker| compose(worker, over_a_link));
        let outcome = outcome_at(burst, &[node], &sent);
        assert_eq!((&outcome.out[..], &outcome.aside), (&out[..], &aside), "in batches of {burst}");
        assert_eq!(
            (outcome.drops.dropped().packets, outcome.drops.of(DropReason::Unmatched).packets),
            (1, 1)
        );
    }
}

/// One arm is longer than a loop, the other waits on memory.
fn uneven(input: Input, worker: &Worker) -> impl Function {
    input
        .parse::<Link>().or(Verdict::PASS)
        .branch(
            |p| p.frame_len().is_multiple_of(2),
            |yes| {
                yes.forget().then(|input| {
                    row!(worker, input =>
                        stamp swap hops stamp swap stamp swap stamp tag stamp swap stamp relength stamp hops stamp
                        untag swap stamp)
                })
            },
            |no| no.forget().then(|input| row!(worker, input => swap count stamp)),
        )
        .done()
}

/// The functions before it leave lengths alone, so that it is known which arm a frame takes.
#[test]
fn a_long_arm_beside_one_with_a_lookup_does_what_its_functions_do() {
    for seed in 1..4 {
        let frames = frames(seed);
        let fused = || {
            vec![blueprint(|worker| {
                compose(worker, |input| row!(worker, input => stamp hops uneven relength stamp))
            })]
        };
        let whole = agree_at_every_burst(&frames, fused, || nodes!(stamp hops uneven relength stamp));
        let (even, odd): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|frame| frame.len().is_multiple_of(2));
        let arms = [
            (
                even,
                nodes!(stamp hops
                stamp swap hops stamp swap stamp swap stamp tag stamp swap stamp relength stamp hops stamp untag swap
                stamp
                relength stamp),
            ),
            (odd, nodes!(stamp hops swap count stamp relength stamp)),
        ];
        let [mut yes, no] = arms.map(|(frames, nodes)| outcome_at(32, &nodes, &frames));
        assert!(!yes.out.is_empty() && !no.out.is_empty());
        yes.out.extend(no.out);
        yes.aside.extend(no.aside);
        yes.drops.merge(&no.drops);
        let sorted = |mut frames: Vec<Vec<u8>>| {
            frames.sort();
            frames
        };
        assert!(sorted(whole.out) == sorted(yes.out), "other packets pass");
        assert!(whole.aside == sorted(yes.aside), "other packets leave");
        assert_eq!(whole.drops, yes.drops);
    }
}

/// Writes how many packets of the flow were seen, and drops some where the flow has many.
fn shared<C>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C>
where
    C: Consistency,
    C::Handle<Flows>: Lookable<Table = Flows>,
    for<'e> <C::Handle<Flows> as Lookable>::Entry<'e>: MapEntry<Value = u64>,
{
    let flows = worker.state::<Flows, C>("shared", consistency, FlowTableConfig::new(16));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &flows,
            |p| p.flow_key(),
            |_, entry| {
                let seen = entry.value().map_or(1, |seen| seen + 1);
                if entry.put(seen) == Ok(true) { seen } else { 0 }
            },
        )
        .filter(DropReason::RateLimited, |p| *p.get::<u64>() % 4 != 3)
        .transform(|p| {
            let seen = *p.get::<u64>();
            if let Some(last) = p.payload_mut().last_mut() {
                *last ^= seen as u8;
            }
        })
        .done()
}
fn strict(input: Input, worker: &Worker) -> impl Function {
    shared(input, worker, Strict)
}
fn bounded(input: Input, worker: &Worker) -> impl Function {
    shared(input, worker, BoundedInconsistency { updates: 3 })
}
fn watch(input: Input, worker: &Worker) -> impl Function {
    let streams = StreamConfig { flows: 100, ..StreamConfig::default() };
    let config = WindowConfig { streams, memory: 4_096, ..WindowConfig::new(4, 4, 1_000_000_000) };
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .parse::<Tcp>()
        .or(Verdict::PASS)
        .window(worker, "streams", config, |window| {
            WINDOWS.with_borrow_mut(|windows| windows.push(window.bytes.to_vec()));
        })
        .done()
}

/// Frames of every kind, behind two streams that are long enough for windows. `relength` leaves their lengths
/// alone.
fn frames_behind_streams(seed: u64) -> Vec<Vec<u8>> {
    let segment = |number: u32| {
        let tcp = ethernet().ipv4("192.0.2.1", "198.51.100.2").tcp(1_000 + (number % 2) as u16, 80).ack(7);
        tcp.sequence(number / 2 * 10).payload(&[number as u8; 10]).build().unwrap()
    };
    let mut all: Vec<_> = (0..24).map(segment).collect();
    all.extend(frames(seed));
    all
}

#[test]
fn shared_state_windows_and_new_lengths_around_a_division_are_as_between_nodes() {
    for seed in 1..4 {
        let frames = frames_behind_streams(seed);
        let fused = || {
            vec![blueprint(|worker| {
                compose(worker, |input| {
                    row!(worker, input =>
                        stamp swap hops stamp reroute swap stamp watch stamp tag hops stamp swap untag stamp stretch
                        swap stamp strict stamp bounded swap)
                })
            })]
        };
        let composed = || {
            nodes!(
                stamp swap hops stamp reroute swap stamp watch stamp tag hops stamp swap untag stamp stretch
                swap stamp strict stamp bounded swap)
        };
        let ahead = agree_at_every_burst(&frames, fused, composed);
        assert!(WINDOWS.take().len() > 4, "{seed}: no windows");
        assert!(ahead.drops.of(DropReason::RateLimited).packets > 0, "{seed}: nothing is counted");
        let fused = || {
            vec![blueprint(|worker| {
                compose(worker, |input| {
                    row!(worker, input =>
                        strict swap bounded hops stamp swap stamp swap stretch stamp relength stamp swap stamp hops
                        swap stamp reroute stamp watch stretch stamp)
                })
            })]
        };
        let composed = || {
            nodes!(
                strict swap bounded hops stamp swap stamp swap stretch stamp relength stamp swap stamp hops swap
                stamp reroute stamp watch stretch stamp)
        };
        let behind = agree_at_every_burst(&frames, fused, composed);
        assert!(WINDOWS.take().len() > 4, "{seed}: no windows");
        assert!(behind.drops.of(DropReason::RateLimited).packets > 0, "{seed}: nothing is counted");
    }
}

thread_local! {
    /// The packet at which `fragile` panics, before the division or behind it.
    static PANICS: Cell<(bool, u32)> = const { Cell::new((false, 0)) };
}

fn early(input: Input, worker: &Worker) -> impl Function {
    let seen = worker.counter("early");
    input
        .parse::<Ethernet>()
        .inspect(move |_| {
            see(1);
            seen.add(1);
        })
        .transform(|p| {
            let number = number(p.frame());
            assert_ne!(PANICS.get(), (true, number), "too early");
            if number.is_multiple_of(16) {
                p.reply(Edge::REPLY, 60, |bytes, p| bytes[..4].copy_from_slice(&p.frame()[..4]));
            }
        })
        .done()
}
fn late(input: Input, worker: &Worker) -> impl Function {
    let seen = worker.counter("late");
    input
        .parse::<Ethernet>()
        .inspect(move |p| {
            see(2);
            seen.add(1);
            assert_ne!(PANICS.get(), (false, number(p.frame())), "too late");
        })
        .done()
}
fn mark(input: Input, _: &Worker) -> impl Function {
    input.parse::<Ethernet>().transform(|p| p.payload_mut()[0] += 1).done()
}
fn fragile(input: Input, worker: &Worker) -> impl Function {
    row!(worker, input => early mark mark mark mark mark mark mark mark mark mark mark mark mark mark mark mark mark late mark)
}

/// Checks a panic in either loop, in a node that is rebuilt and in one that is not.
///
/// The batch is lost with the answers to it, and later batches find nothing of it parked.
#[test]
fn a_panic_in_a_loop_of_a_divided_row_costs_its_batch() {
    observe_panics();
    let typed = |number| {
        let mut frame = numbered(number);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    for burst in BURSTS {
        for (ahead, rebuilt) in [(false, true), (false, false), (true, true), (true, false)] {
            let what = format!("batches of {burst}, ahead: {ahead}, rebuilt: {rebuilt}");
            PANICS.set((ahead, 300));
            SEEN.take();
            let (sink, answers) = (Sink::default(), Sink::default());
            let mut rig = Rig::new();
            let source = rig.add("source", Box::new(Feed::of((0..600).map(typed))));
            let make = |worker: &Worker| compose(worker, |input| fragile(input, worker));
            let node = if rebuilt {
                rig.function("fragile", &blueprint(make))
            } else {
                let worker = crate::harness::worker(&rig.pool);
                rig.add("fragile", make(&worker).unwrap())
            };
            let (end, aside) =
                (rig.add("end", Box::new(sink.clone())), rig.add("aside", Box::new(answers.clone())));
            rig.chain(&[source, node, end]);
            rig.connect(node, Edge::REPLY.0, aside);
            let (mut graph, pool) = rig.build();
            graph.set_burst(burst);
            run_out(&mut graph);
            check(&graph);

            assert_eq!(waited(), burst > 1, "{what}: whether it is divided");
            let first = 300 / burst as u32 * burst as u32;
            let lost = first..600.min(first + burst as u32);
            let passed: Vec<u32> = (0..600).filter(|number| !lost.contains(number)).collect();
            assert_eq!(sink.numbers(), passed, "{what}");
            assert!(sink.frames().iter().all(|frame| frame[14] == 18), "{what}: every function ran once");
            let answered: Vec<u32> = passed.iter().copied().filter(|number| number % 16 == 0).collect();
            assert_eq!(answers.numbers(), answered, "{what}");
            let drops = counters(&graph, "fragile").drops.of(DropReason::Panicked);
            assert_eq!(drops.packets, lost.len() as u64, "{what}");
            let panics = graph.take_panics();
            let panic = &panics[0];
            assert_eq!(
                (panics.len(), panic.packets, panic.rebuilt),
                (1, lost.len() as u64, rebuilt),
                "{what}"
            );
            assert!(panic.message.contains(if ahead { "too early" } else { "too late" }), "{what}");
            // The first loop had finished the batch before the second began.
            let before = if rebuilt { 0 } else { first };
            let begun = if rebuilt { 0 } else { 300 - first + 1 };
            let all = if rebuilt { 0 } else { lost.len() as u32 };
            let after = 600 - lost.end;
            let seen = [
                before + after + if ahead { begun } else { all },
                before + after + if ahead { 0 } else { begun },
            ];
            for (name, seen) in ["early", "late"].into_iter().zip(seen) {
                let occupancy = graph.call("fragile", &format!("{name}.occupancy"), "").unwrap();
                assert_eq!(occupancy, format!("{seen} {}", u64::MAX), "{what}: {name}");
            }
            assert_eq!(pool.available(), pool.capacity(), "{what}");
        }
    }
}
