//! A panic in a node costs its batch and nothing else: counted, reported with message and place, state rebuilt.

use std::cell::Cell;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::graph::observe_panics;
use netbricks_core::packet::{Ethernet, FlowKey, Ip, Link};
use netbricks_core::tables::FlowTableConfig;
use netbricks_core::view::{IpRewrite, Metadata};
use netbricks_core::{
    Context, DropReason, Edge, Function, Graph, Input, Node, NodeQueue, Operator, Poll, Shape, Turn, Worker,
    compose,
};
use netbricks_testkit::build::ethernet;

use crate::harness::{Feed, Rig, Sink, act, blueprint, check, counters, number, numbered, run_out, split};

thread_local! {
    static BUILT: Cell<u32> = const { Cell::new(0) };
}

/// Counts its packets, and panics at the number 100.
fn fragile(input: Input, worker: &Worker) -> impl Function {
    BUILT.set(BUILT.get() + 1);
    let seen = worker.counter("seen");
    input
        .parse::<Ethernet>()
        .inspect(move |p| {
            seen.add(1);
            assert_ne!(number(p.frame()), 100, "packet {} is one too many", 100);
        })
        .done()
}

#[test]
fn a_panic_loses_only_the_batch_and_resets_the_state() {
    observe_panics();
    BUILT.set(0);
    let sink = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..200).map(numbered))));
    let node = rig.function("fragile", &blueprint(|worker| compose(worker, |input| fragile(input, worker))));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(32);
    run_out(&mut graph);

    // Numbers 96 to 127 were in the batch with 100.
    assert_eq!(sink.numbers(), (0..96).chain(128..200).collect::<Vec<_>>());
    let lost = counters(&graph, "fragile").drops.of(DropReason::Panicked);
    assert_eq!((lost.packets, lost.bytes, counters(&graph, "fragile").panics), (32, 32 * 60, 1));
    let panics = graph.take_panics();
    let panic = &panics[0];
    assert_eq!((panics.len(), panic.node.as_str(), panic.packets, panic.rebuilt), (1, "fragile", 32, true));
    assert!(panic.message.contains("packet 100 is one too many"), "{}", panic.message);
    let place = panic.place.as_deref().unwrap();
    assert!(place.contains("panics.rs:"), "{place}");
    assert_eq!(BUILT.get(), 2);
    // The state is new: it counted the packets since.
    assert_eq!(graph.call("fragile", "seen.occupancy", "").unwrap(), format!("72 {}", u64::MAX));
    assert_eq!(graph.dropped_headers().next().unwrap().1.reason, DropReason::Panicked);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn other_branches_never_notice() {
    let (good, bad) = (Sink::default(), Sink::default());
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..200).map(numbered))));
    let fork = rig.add("fork", split(1, |n| n % 2 == 0).boxed());
    let node = rig.function("fragile", &blueprint(|worker| compose(worker, |input| fragile(input, worker))));
    let (end, other) = (rig.add("end", Box::new(bad.clone())), rig.add("other", Box::new(good.clone())));
    rig.chain(&[source, fork, other]);
    rig.connect(fork, 1, node);
    rig.connect(node, 0, end);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(good.numbers(), (0..200).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    assert_eq!((bad.numbers().len(), graph.totals().drops.of(DropReason::Panicked).packets), (0, 100));
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn packets_that_waited_when_a_node_panicked_go_on() {
    let rest = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let fork = rig.add("fork", split(1, |n| n % 2 == 0).boxed());
    let breaks = rig.add("breaks", act(|_, _, _| panic!("at once")).boxed());
    let (end, other) = (rig.add("end", Box::new(Sink::default())), rig.add("rest", Box::new(rest.clone())));
    rig.chain(&[source, fork, breaks, end]);
    rig.connect(fork, 1, other);
    let (mut graph, pool) = rig.build();
    assert!(matches!(graph.turn(0), Turn::Moved(_)));
    check(&graph);
    assert_eq!((rest.numbers().len(), graph.totals().held), (0, 50));
    run_out(&mut graph);
    assert_eq!((rest.numbers().len(), pool.available()), (50, pool.capacity()));
    assert!(!graph.take_panics()[0].rebuilt, "a node without a blueprint goes on as it is");
}

/// A source that panics in every third poll, with packets in its hands.
struct Shaky(u32);

impl Node for Shaky {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.0 += 1;
        for i in 0..10 {
            assert!(batch.push(cx.pool().packet(&numbered(i)).unwrap()).is_ok());
        }
        assert_ne!(self.0 % 3, 0, "shaky");
        if self.0 < 12 { Poll::Busy } else { Poll::Done }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[test]
fn a_panic_in_poll_loses_what_was_in_hand_and_the_source_gets_its_next_turn() {
    let mut rig = Rig::new();
    let source = rig.add("shaky", Box::new(Shaky(0)));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, end]);
    let (mut graph, pool) = rig.build();
    turns(&mut graph, 12);
    let counters = counters(&graph, "shaky");
    assert_eq!((counters.panics, counters.received.packets), (4, 120));
    assert_eq!((graph.totals().sent.packets, counters.drops.of(DropReason::Panicked).packets), (80, 40));
    assert_eq!(pool.available(), pool.capacity());
}

fn turns(graph: &mut Graph, turns: usize) {
    for _ in 0..turns {
        let _ = graph.turn(0);
        check(graph);
    }
}

/// Holds every other packet; panics where it is told to.
#[derive(Default)]
struct Keeper {
    kept: Vec<Packet>,
    breaks_at: Option<u32>,
    breaks_in_drain: bool,
    schedulable: bool,
}

impl Node for Keeper {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let packets: Vec<_> = batch.drain().collect();
        for packet in packets {
            if Some(number(packet.data())) == self.breaks_at {
                // Some packets are dropped by reason and one is freed silently. Then it panics with a packet
                // in its hand.
                if let Some(kept) = self.kept.pop() {
                    cx.drop_packet(kept, DropReason::QueueFull);
                }
                drop(self.kept.pop());
                panic!("keeper");
            }
            if number(packet.data()).is_multiple_of(2) {
                self.kept.push(packet);
            } else {
                assert!(batch.push(packet).is_ok());
            }
        }
    }
    fn poll(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        self.kept.truncate(3);
        panic!("keeper's poll")
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: self.schedulable, keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Keeper {
    fn held(&self) -> u64 {
        self.kept.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        if std::mem::take(&mut self.breaks_in_drain) {
            self.kept.truncate(self.kept.len() / 2);
            panic!("keeper's drain");
        }
        while let Some(packet) = self.kept.pop() {
            if let Err(back) = batch.push(packet) {
                self.kept.push(back);
                break;
            }
        }
    }
}

fn keeper_graph(keeper: Keeper, rebuilt: bool) -> (Graph, netbricks_core::buffer::Pool, Sink) {
    let sink = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let breaks_at = keeper.breaks_at;
    let node = if rebuilt {
        rig.function("keeper", &blueprint(move |_| Ok(Box::new(Keeper { breaks_at, ..Keeper::default() }))))
    } else {
        rig.add("keeper", Box::new(keeper))
    };
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(10);
    (graph, pool, sink)
}

#[test]
fn packets_in_a_keeper_are_held_until_it_is_drained() {
    let (mut graph, pool, sink) = keeper_graph(Keeper::default(), false);
    run_out(&mut graph);
    assert_eq!((graph.totals().held, counters(&graph, "keeper").held, sink.numbers().len()), (50, 50, 50));
    assert_eq!(graph.drain(0), 0);
    check(&graph);
    assert_eq!((sink.numbers().len(), pool.available()), (100, pool.capacity()));
}

#[test]
fn packets_lost_by_a_keeper_are_counted_by_difference() {
    for rebuilt in [false, true] {
        let (mut graph, pool, _) = keeper_graph(Keeper { breaks_at: Some(55), ..Keeper::default() }, rebuilt);
        run_out(&mut graph);
        assert_eq!(graph.totals().drops.of(DropReason::QueueFull).packets, 1);
        assert_eq!(graph.drain(0), 0);
        check(&graph);
        assert_eq!(pool.available(), pool.capacity(), "rebuilt: {rebuilt}");
        let lost = graph.totals().drops.of(DropReason::Panicked).packets;
        // Its own batch (10 packets, of which it kept some), one packet freed silently, and with a new node
        // all that the old one held.
        assert!(if rebuilt { lost > 30 } else { lost <= 12 }, "{lost}");
    }
}

#[test]
fn a_panic_in_drain_or_in_a_keepers_turn_is_counted_too() {
    let (mut graph, pool, sink) = keeper_graph(Keeper { breaks_in_drain: true, ..Keeper::default() }, false);
    run_out(&mut graph);
    assert_eq!(graph.drain(0), 0);
    check(&graph);
    assert_eq!(graph.totals().drops.of(DropReason::Panicked).packets, 25);
    assert_eq!((sink.numbers().len(), pool.available()), (75, pool.capacity()));

    let (mut graph, pool, _) = keeper_graph(Keeper { schedulable: true, ..Keeper::default() }, false);
    turns(&mut graph, 50);
    graph.drain(0);
    check(&graph);
    assert!(graph.totals().drops.of(DropReason::Panicked).packets > 40);
    assert_eq!(pool.available(), pool.capacity());
}

struct Bomb;
impl std::ops::Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload that panics when it is dropped");
    }
}

thread_local! {
    static EXPLODES: Cell<u32> = const { Cell::new(0) };
}

fn explode() {
    EXPLODES.set(line!() + 1);
    std::panic::panic_any(Bomb)
}

#[test]
fn a_payload_whose_drop_panics_is_contained_and_the_place_is_still_the_first() {
    observe_panics();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let node = rig.add("node", act(|_, _, _| explode()).boxed());
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    let panics = graph.take_panics();
    assert_eq!(
        (panics.len(), panics[0].packets, panics[0].message.as_str()),
        (1, 10, "a panic without a message")
    );
    let place = panics[0].place.as_deref().unwrap();
    let here = EXPLODES.get();
    assert!(place.contains(&format!("panics.rs:{here}:")), "{place} is not line {here}");
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn state_whose_drop_panics_and_a_blueprint_that_fails_do_not_spread() {
    struct Fragile {
        _bomb: Bomb,
    }
    impl Node for Fragile {
        fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {
            panic!("first");
        }
    }
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..600).map(numbered))));
    BUILT.set(0);
    let node = rig.function(
        "node",
        &blueprint(|_| {
            BUILT.set(BUILT.get() + 1);
            match BUILT.get() {
                1 => Ok(Box::new(Fragile { _bomb: Bomb })),
                2 => Ok(act(|_, _, _| panic!("second")).boxed()),
                _ => panic!("the blueprint itself"),
            }
        }),
    );
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    let rebuilt: Vec<_> =
        graph.take_panics().into_iter().map(|panic| (panic.message, panic.rebuilt)).collect();
    assert_eq!(
        rebuilt,
        [("first".to_owned(), true), ("second".to_owned(), false), ("second".to_owned(), false)]
    );
    assert_eq!(
        (graph.totals().drops.of(DropReason::Panicked).packets, pool.available()),
        (600, pool.capacity())
    );
}

#[test]
fn packets_emitted_before_the_panic_are_lost_with_it_and_counted_once() {
    let aside = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..20).map(numbered))));
    let node = rig.add(
        "node",
        act(|_, batch, cx| {
            for packet in batch.drain_from(10) {
                match number(packet.data()) {
                    10..15 => cx.emit(Edge(1), packet),
                    15..18 => cx.drop_packet(packet, DropReason::Denied),
                    _ => panic!("late"),
                }
            }
        })
        .edges(&[(0, false), (1, false)])
        .boxed(),
    );
    let (end, side) = (rig.add("end", Box::new(Sink::default())), rig.add("side", Box::new(aside.clone())));
    rig.chain(&[source, node, end]);
    rig.connect(node, 1, side);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    let drops = graph.totals().drops;
    assert_eq!([drops.of(DropReason::Denied).packets, drops.of(DropReason::Panicked).packets], [3, 17]);
    assert_eq!((aside.frames().len(), pool.available()), (0, pool.capacity()));
}

/// Where a function that waits on memory panics, at the number 100.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Key,
    Visit,
    After,
}

/// As [`numbered`], with an EtherType: otherwise there would be no payload to write into.
fn typed(number: u32) -> Vec<u8> {
    let mut frame = numbered(number);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Writes into each frame how many of its flow were seen before it.
fn waiting(input: Input, worker: &Worker, panics: Option<Place>) -> impl Function {
    let flows = worker.flow_table::<u64, u64>("flows", FlowTableConfig::new(16));
    let at = move |place, frame: &[u8]| {
        assert!(panics != Some(place) || number(frame) != 100, "{place:?}");
    };
    input
        .parse::<Ethernet>()
        .lookup(
            &flows,
            move |p| {
                at(Place::Key, p.frame());
                u64::from(number(p.frame()) % 8)
            },
            move |p, entry| {
                at(Place::Visit, p.frame());
                entry.or_insert_with(|| 0).map_or(u64::MAX, |seen| std::mem::replace(seen, *seen + 1))
            },
        )
        .transform(move |p| {
            at(Place::After, p.frame());
            let seen = *p.get::<u64>();
            p.payload_mut()[0] = seen as u8;
        })
        .done()
}

/// Checks a panic in any loop over the batch.
///
/// The function is alone or fused with others that wait, with a blueprint and without. The batch is lost, and
/// its parked packets are never seen again. The next batch finds new tables, or the old ones where there is
/// no blueprint.
#[test]
fn a_panic_around_what_waits_on_memory_costs_its_batch() {
    type Build = fn(&Worker, Option<Place>) -> Result<Box<dyn Node>, netbricks_core::BuildError>;
    let alone: Build = |worker, place| compose(worker, |input| waiting(input, worker, place));
    let first: Build = |worker, place| {
        compose(worker, |input| waiting(input, worker, place).then(|input| waiting(input, worker, None)))
    };
    let last: Build = |worker, place| {
        compose(worker, |input| waiting(input, worker, None).then(|input| waiting(input, worker, place)))
    };
    observe_panics();
    let all: Vec<u32> = (0..96).chain(128..200).collect();
    for (shape, build) in [("alone", alone), ("first", first), ("last", last)] {
        for place in [Place::Key, Place::Visit, Place::After] {
            for rebuilt in [true, false] {
                let what = format!("{shape}, {place:?}, rebuilt: {rebuilt}");
                let sink = Sink::default();
                let mut rig = Rig::new();
                let source = rig.add("source", Box::new(Feed::of((0..200).map(typed))));
                let make = move |worker: &Worker| build(worker, Some(place));
                let node = if rebuilt {
                    rig.function("waits", &blueprint(make))
                } else {
                    let worker = crate::harness::worker(&rig.pool);
                    rig.add("waits", make(&worker).unwrap())
                };
                let end = rig.add("end", Box::new(sink.clone()));
                rig.chain(&[source, node, end]);
                let (mut graph, pool) = rig.build();
                graph.set_burst(32);
                run_out(&mut graph);
                assert_eq!(sink.numbers(), all, "{what}");
                let panics = graph.take_panics();
                assert_eq!((panics.len(), panics[0].packets, panics[0].rebuilt), (1, 32, rebuilt), "{what}");
                assert!(panics[0].message.contains(&format!("{place:?}")), "{what}: {}", panics[0].message);
                assert_eq!(counters(&graph, "waits").drops.of(DropReason::Panicked).packets, 32, "{what}");
                assert_eq!(pool.available(), pool.capacity(), "{what}");
                let seen: Vec<u8> = sink.frames().iter().map(|frame| frame[14]).collect();
                let fresh = |numbers: &[u32], first: u32| -> Vec<u8> {
                    numbers.iter().map(|number| ((number - first) / 8) as u8).collect()
                };
                assert_eq!(seen[..96], fresh(&all[..96], 0), "{what}");
                if rebuilt {
                    assert_eq!(seen[96..], fresh(&all[96..], 128), "{what}: not a new table");
                } else {
                    assert!(seen[96] >= 12, "{what}: the old table is lost, {}", seen[96]);
                }
            }
        }
    }
}

/// As [`waiting`], of IP packets; panics at a TTL of 1.
fn tracking(input: Input, worker: &Worker, panics: Place) -> impl Function {
    let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(16));
    let at = move |place, ttl: u8| assert!(panics != place || ttl != 1, "{place:?}");
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |p| p.flow_key(),
            move |p, entry| {
                at(Place::Visit, p.header().ttl());
                entry.or_insert_with(|| 0).map_or(u64::MAX, |seen| std::mem::replace(seen, *seen + 1))
            },
        )
        .transform(move |p| at(Place::After, p.header().ttl()))
        .done()
}

/// Checks a panic with a packet that the loop puts off: a new flow, or an unusual frame.
///
/// The panic then costs no more, and all packets before and behind it keep their order.
#[test]
fn a_panic_with_a_packet_that_was_put_off_costs_its_batch() {
    let frame = |number: u32, new: bool| {
        let ttl = if number == 100 { 1 } else { 64 };
        let port = if new && number == 100 { 9_999 } else { 1_000 + (number % 8) as u16 };
        let payload = number.to_be_bytes();
        let frame = match number % 8 {
            4 if !new => {
                let ip = ethernet().ipv6("2001:db8::1", "2001:db8::2").ttl(ttl).hop_by_hop(&[5, 2, 0, 0]);
                ip.udp(port, 53).payload(&payload).build()
            }
            _ => {
                ethernet().ipv4("192.0.2.1", "198.51.100.2").ttl(ttl).udp(port, 53).payload(&payload).build()
            }
        };
        frame.unwrap()
    };
    observe_panics();
    for new in [true, false] {
        for place in [Place::Visit, Place::After] {
            let what = format!("{place:?}, new flow: {new}");
            let sink = Sink::default();
            let mut rig = Rig::new();
            let source = rig.add("source", Box::new(Feed::of((0..200).map(|number| frame(number, new)))));
            let node =
                rig.function("waits", &blueprint(move |w| compose(w, |input| tracking(input, w, place))));
            let end = rig.add("end", Box::new(sink.clone()));
            rig.chain(&[source, node, end]);
            let (mut graph, pool) = rig.build();
            graph.set_burst(32);
            run_out(&mut graph);
            let last = |frame: &Vec<u8>| number(frame.last_chunk::<4>().unwrap());
            let numbers: Vec<u32> = sink.frames().iter().map(last).collect();
            assert_eq!(numbers, (0..96).chain(128..200).collect::<Vec<u32>>(), "{what}");
            let panics = graph.take_panics();
            assert_eq!((panics.len(), panics[0].packets), (1, 32), "{what}");
            assert!(panics[0].message.contains(&format!("{place:?}")), "{what}: {}", panics[0].message);
            assert_eq!(pool.available(), pool.capacity(), "{what}");
        }
    }
}

/// A source that panics in all turns except one in so many.
struct Failing {
    succeeds: u32,
    turns: u32,
    left: u32,
}

impl Node for Failing {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.turns += 1;
        assert!(self.turns.is_multiple_of(self.succeeds), "failing");
        assert!(batch.push(cx.pool().packet(&numbered(self.left)).unwrap()).is_ok());
        self.left -= 1;
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Sixty-four panics in a row stop a source; sixty-three never do.
#[test]
fn a_source_that_does_nothing_but_panic_is_stopped_and_the_others_go_on() {
    observe_panics();
    for (succeeds, panics, sent) in [(64, 63 * 5, 100 + 5), (65, 64, 100), (u32::MAX, 64, 100)] {
        let sink = Sink::default();
        let mut rig = Rig::new();
        let failing = rig.add("failing", Box::new(Failing { succeeds, turns: 0, left: 5 }));
        let good = Feed::of((0..100).map(numbered));
        good.limit(1);
        let source = rig.add("good", Box::new(good));
        let end = rig.add("end", Box::new(sink.clone()));
        rig.connect(failing, 0, end);
        rig.connect(source, 0, end);
        let (mut graph, pool) = rig.build();
        run_out(&mut graph);
        assert_eq!((counters(&graph, "failing").panics, sink.numbers().len()), (panics, sent), "{succeeds}");
        assert_eq!(graph.drain(0), 0);
        assert_eq!(graph.turn(1), Turn::Done, "a stopped source stays stopped");
        assert_eq!(pool.available(), pool.capacity());
    }
}

/// Checks panics while the graph is taken down.
///
/// One is in a node behind the keeper, which is then rebuilt. Another is in a keeper that never gives up its
/// packets, and so keeps them.
#[test]
fn a_panic_while_draining_is_contained_wherever_it_is() {
    observe_panics();
    let sink = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..400).map(typed))));
    let keeper = rig.add("keeper", Box::new(Keeper::default()));
    let place = Some(Place::Visit);
    let node = rig.function("waits", &blueprint(move |w| compose(w, |input| waiting(input, w, place))));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, keeper, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(10);
    run_out(&mut graph);
    // Number 100 is one of those that are kept.
    assert_eq!((graph.totals().held, sink.numbers().len()), (200, 200));
    assert_eq!(graph.drain(0), 0);
    check(&graph);
    let panics = graph.take_panics();
    assert_eq!((panics.len(), panics[0].node.as_str(), panics[0].rebuilt), (1, "waits", true));
    assert_eq!(sink.numbers().len() as u64 + panics[0].packets, 400);
    assert_eq!(pool.available(), pool.capacity());

    struct Miser(Vec<Packet>);
    impl Node for Miser {
        fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
            self.0.extend(batch.drain());
        }
        fn shape(&self) -> Shape {
            Shape { keeps_packets: true, ..Shape::default() }
        }
        fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
            Some(self)
        }
    }

    impl NodeQueue for Miser {
        fn held(&self) -> u64 {
            self.0.len() as u64
        }
        fn drain(&mut self, _: &mut Batch, _: &mut Context) {
            panic!("mine");
        }
    }
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..7).map(numbered))));
    let miser = rig.add("miser", Box::new(Miser(Vec::new())));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.chain(&[source, miser, end]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    assert_eq!(graph.drain(0), 7);
    check(&graph);
    assert!(counters(&graph, "miser").panics > 0);
    assert_eq!(graph.totals().drops.of(DropReason::Panicked).packets, 0, "they are held, not lost");
}

/// A queue with a line: it keeps the packets that it receives for a turn.
#[derive(Default)]
struct Line(Vec<Packet>, u32);
impl Node for Line {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.1 += 1;
        for packet in self.0.drain(..) {
            assert!(batch.push(packet).is_ok());
        }
        if self.1 > 9 {
            return Poll::Done;
        }
        for i in 0..10 {
            self.0.push(cx.pool().packet(&numbered(i)).unwrap());
        }
        assert_ne!(self.1 % 3, 1, "line");
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape { keeps_packets: true, ..Shape::receive() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Line {
    fn held(&self) -> u64 {
        self.0.len() as u64
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
}
#[test]
fn a_source_that_panics_after_it_kept_arrivals_has_received_them() {
    observe_panics();
    let sink = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("line", Box::new(Line::default()));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, end]);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(graph.totals().received.packets, 90);
    // The first, fourth and seventh turn panic, the first with nothing in its hands.
    assert_eq!(sink.numbers().len(), 70);
    assert_eq!(pool.available(), pool.capacity());
}

/// Keeps all packets that it gets; panics in its turns, or has nothing to do in them.
struct Stuck(Vec<Packet>, bool);
impl Node for Stuck {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.0.extend(batch.drain());
    }
    fn poll(&mut self, _: &mut Batch, _: &mut Context) -> Poll {
        assert!(!self.1, "stuck");
        Poll::Idle
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Stuck {
    fn held(&self) -> u64 {
        self.0.len() as u64
    }
    fn drain(&mut self, _: &mut Batch, _: &mut Context) {}
}
#[test]
fn a_stopped_keeper_does_not_keep_the_graph_from_its_end() {
    observe_panics();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..10).map(numbered))));
    let fork = rig.add("fork", split(1, |_| true).boxed());
    let stuck = rig.add("stuck", Box::new(Stuck(Vec::new(), true)));
    let other = rig.add("other", Box::new(Stuck(Vec::new(), false)));
    let end = rig.add("end", Box::new(Sink::default()));
    rig.connect(source, 0, fork);
    rig.connect(fork, 0, other);
    rig.connect(fork, 1, stuck);
    rig.connect(stuck, 0, end);
    rig.connect(other, 0, end);
    let (mut graph, pool) = rig.build();
    let turns: Vec<Turn> = (0..300).map(|_| graph.turn(0)).collect();
    // Its packets are given up when the graph is taken down.
    assert_eq!((turns.last(), graph.totals().held), (Some(&Turn::Done), 10));
    assert_eq!((graph.drain(0), pool.available()), (10, pool.capacity() - 10));
    check(&graph);
}
