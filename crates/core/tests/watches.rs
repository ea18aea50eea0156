//! Watches over a running graph: they see every end of a packet, and change none.
//!
//! They take no more memory than they say.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::filter::Filter;
use netbricks_core::graph::observe_panics;
use netbricks_core::observer::{Allowance, Numbers, Sight, Sightings, Watch, WatchPoint};
use netbricks_core::packet::Ethernet;
use netbricks_core::{
    Context, DropReason, Edge, Graph, GraphBuilder, Input, Node, NodeId, NodeQueue, Operator, Output, Poll,
    Shape, Shuffle, ShuffleConfig, Turn, Worker, WorkerGroup, compose,
};
use netbricks_testkit::BURSTS;
use netbricks_testkit::build::ethernet;

/// A packet whose destination port is its number.
fn frame(number: u16) -> Vec<u8> {
    ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .ttl(9)
        .udp(1_000 + number % 7, number)
        .payload(b"hello")
        .build()
        .unwrap()
}

fn number(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[36], frame[37]])
}

/// Brings in these frames, and then ends.
struct Feed(VecDeque<Vec<u8>>);

impl Node for Feed {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(frame) = self.0.pop_front() else { return Poll::Done };
            let mut packet = cx.pool().packet(&frame).unwrap();
            packet.set_ingress(3, 1);
            batch.push(packet).unwrap();
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<Vec<u8>>>>);

impl Node for Sink {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        self.0.borrow_mut().extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

type Process = dyn FnMut(&mut Batch, &mut Context);

struct Act(Box<Process>);

fn act(process: impl FnMut(&mut Batch, &mut Context) + 'static) -> Box<dyn Node> {
    Box::new(Act(Box::new(process)))
}

impl Node for Act {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        (self.0)(batch, cx);
    }
    fn shape(&self) -> Shape {
        let reply = Output { edge: Edge::REPLY, name: "reply".into(), optional: true };
        Shape { outputs: vec![Output::out(), reply], ..Shape::default() }
    }
}

/// Keeps packets until its turn.
struct Queue(VecDeque<netbricks_core::buffer::Packet>);

impl Node for Queue {
    fn process(&mut self, _: usize, batch: &mut Batch, _: &mut Context) {
        self.0.extend(batch.drain());
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while batch.len() < cx.burst() {
            let Some(packet) = self.0.pop_front() else { return Poll::Idle };
            batch.push(packet).unwrap();
        }
        Poll::Busy
    }
    fn shape(&self) -> Shape {
        Shape { schedulable: true, keeps_packets: true, ..Shape::default() }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        Some(self)
    }
}

impl NodeQueue for Queue {
    fn held(&self) -> u64 {
        self.0.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        while let Some(packet) = self.0.pop_front() {
            if let Err(back) = batch.push(packet) {
                return self.0.push_front(back);
            }
        }
    }
}

struct Rig {
    builder: GraphBuilder,
    pool: Pool,
    sink: Sink,
    /// The node whose main way out leads to the next one.
    last: NodeId,
}

impl Rig {
    fn of(frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let pool = Pool::builder().frames(1_024).short(512, 512).build().unwrap();
        let mut builder = GraphBuilder::new("test");
        let last = builder.add("in", Box::new(Feed(frames.into_iter().collect()))).unwrap();
        Self { builder, pool, sink: Sink::default(), last }
    }
    fn then(mut self, name: &str, node: Box<dyn Node>) -> Self {
        let node = self.builder.add(name, node).unwrap();
        self.builder.connect(self.last, Edge::OUT, node, 0).unwrap();
        self.last = node;
        self
    }
    fn replies_to(mut self, name: &str, node: Box<dyn Node>) -> Self {
        let node = self.builder.add(name, node).unwrap();
        self.builder.connect(self.last, Edge::REPLY, node, 0).unwrap();
        self
    }
    fn build(self) -> (Graph, Sink, Pool) {
        let sink = self.sink.clone();
        let this = self.then("out", Box::new(sink.clone()));
        (this.builder.build(this.pool.clone()).unwrap(), sink, this.pool)
    }
}

fn run_out(graph: &mut Graph) {
    run_out_from(graph, 1);
}

fn run_out_from(graph: &mut Graph, mut now: u64) {
    while graph.turn(now) != Turn::Done {
        now += 1_000;
        assert!(now < 1 << 40, "the graph does not end");
    }
    graph.drain(now);
    assert!(graph.totals().is_conserved(), "{:?}", graph.totals());
    assert_eq!(graph.unbalanced(), Vec::<String>::new());
}

fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap()
}

fn trace(text: &str) -> Watch {
    Watch {
        id: 7,
        ..Watch::trace(WatchPoint::Arrivals, filter(text), Allowance::default(), Numbers::default())
    }
}

fn capture(at: WatchPoint, text: &str) -> Watch {
    Watch { id: 7, ..Watch::capture(at, filter(text), Allowance::default(), 65_536, Numbers::default()) }
}

fn take(graph: &mut Graph) -> Sightings {
    graph.take_sightings(7, Sightings::new(&trace(""))).unwrap()
}

/// The sightings as lines: `node sight`.
fn lines(seen: &Sightings) -> Vec<String> {
    seen.iter()
        .map(|sighting| {
            let why = seen.why(sighting);
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            format!("{} {:?}{why}", sighting.node, sighting.sight)
        })
        .collect()
}

/// Runs frames through nodes with a watch, and answers what was seen.
///
/// What leaves is the same without a watch, for any batch size.
fn watched(watch: &Watch, rig: impl Fn() -> Rig) -> Vec<String> {
    let mut told = None;
    for burst in BURSTS {
        let (mut plain, expected, _) = rig().build();
        plain.set_burst(burst);
        run_out(&mut plain);
        let (mut graph, sink, pool) = rig().build();
        graph.set_burst(burst);
        graph.watch(Watch { numbers: Numbers::default(), ..watch.clone() });
        run_out(&mut graph);
        assert_eq!(*sink.0.borrow(), *expected.0.borrow(), "burst {burst}");
        assert_eq!(graph.totals(), plain.totals(), "burst {burst}");
        let seen = take(&mut graph);
        assert_eq!(seen.lost(), 0);
        let lines = lines(&seen);
        assert_eq!(told.get_or_insert_with(|| lines.clone()), &lines, "burst {burst}");
        drop(graph);
        assert_eq!(pool.available(), pool.capacity());
    }
    told.unwrap()
}

fn decrement(batch: &mut Batch, _: &mut Context) {
    batch.each_packet(|_, packet| packet.data_mut()[22] -= 1);
}

#[test]
fn a_trace_shows_each_node_and_the_end() {
    let rig = || Rig::of((0..600).map(frame)).then("ttl", act(decrement));
    let way = ["in Began", "ttl Left(None)", "out Sent"];
    assert_eq!(watched(&trace("udp port 300"), rig), way);
    let (mut graph, ..) = rig().build();
    graph.watch(trace("udp port 300"));
    run_out(&mut graph);
    let seen = take(&mut graph);
    assert_eq!(lines(&seen), way);
    let all: Vec<_> = seen.iter().collect();
    assert_eq!((all[0].ingress, all[0].wire_len), ((3, 1), frame(300).len()));
    assert_eq!((seen.frame(all[0]), seen.frame(all[1])[22]), (&*frame(300), 8));
    assert!(all.iter().all(|sighting| sighting.number == all[0].number));
}

#[test]
fn every_verdict_is_seen() {
    let rig = || {
        Rig::of((0..300).map(frame))
            .then(
                "node",
                act(|batch, cx| {
                    let packets: Vec<_> = batch.drain().collect();
                    for packet in packets {
                        match number(packet.data()) {
                            100 => cx.drop_packet(packet, DropReason::Denied),
                            101 => cx.emit(Edge::REPLY, packet),
                            102 => {
                                let answer = cx.pool().packet(&frame(999)).unwrap();
                                assert!(cx.create(Edge::OUT, answer).is_ok());
                                cx.drop_packet(packet, DropReason::Answered);
                            }
                            _ => cx.emit(Edge::OUT, packet),
                        }
                    }
                }),
            )
            .replies_to("back", Box::new(Sink::default()))
    };
    let seen = |text: &str| watched(&trace(text), rig);
    assert_eq!(seen("port 100"), ["in Began", "node Dropped(Denied)"]);
    assert_eq!(seen("port 101"), ["in Began", "node Left(Some(\"reply\"))", "back Sent"]);
    assert_eq!(
        seen("port 102"),
        ["in Began", "node Dropped(Answered)", "node Made(1)", "node Born(0)", "out Sent"]
    );
    assert_eq!(seen("port 103"), ["in Began", "node Left(None)", "out Sent"]);
}

#[test]
fn packets_that_wait_stay_known() {
    let rig = || Rig::of((0..50).map(frame)).then("queue", Box::new(Queue(VecDeque::new())));
    let seen = watched(&trace("port 20"), rig);
    assert_eq!(seen, ["in Began", "queue Held", "queue Left(None)", "out Sent"]);
}

#[test]
fn a_function_says_why_and_its_panic_costs_only_the_sentence() {
    observe_panics();
    let node = |worker: &Worker| {
        let function = |input: Input| {
            worker.explain(|frame, why| {
                let number = number(frame);
                assert!(number != 41, "no words");
                if number == 40 { write!(why, "it is {number}") } else { Ok(()) }
            });
            worker.explain(|_, why| why.write_str("a second"));
            input.parse::<Ethernet>().done()
        };
        compose(worker, function).unwrap()
    };
    let rig = || {
        let rig = Rig::of((0..64).map(frame));
        let worker = Worker::new(0, 1, rig.pool.clone());
        let node = node(&worker);
        rig.then("node", node)
    };
    let seen = |text: &str| watched(&trace(text), rig);
    assert_eq!(seen("port 40"), ["in Began", "node Left(None) (it is 40; a second)", "out Sent"]);
    assert_eq!(seen("port 41"), ["in Began", "node Left(None)", "out Sent"]);
    assert_eq!(seen("port 42"), ["in Began", "node Left(None) (a second)", "out Sent"]);
}

#[test]
fn a_panic_while_a_packet_is_traced_costs_that_packet() {
    observe_panics();
    let (mut graph, sink, pool) = Rig::of((0..300).map(frame))
        .then(
            "node",
            act(|batch, _| {
                let bad = batch.iter().any(|packet| number(packet.data()) == 100);
                assert!(!bad, "a bad packet");
            }),
        )
        .build();
    graph.watch(trace("port 100 or port 101"));
    run_out(&mut graph);
    let seen = lines(&take(&mut graph));
    assert_eq!(seen[..3], ["in Began", "in Began", "node Dropped(Panicked)"]);
    assert_eq!(seen[3..], ["node Left(None)", "out Sent"]);
    // The packets before and behind it were in batches of their own.
    assert_eq!((sink.0.borrow().len(), graph.totals().drops.of(DropReason::Panicked).packets), (299, 1));
    drop(graph);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn captures_see_arrivals_departures_and_drops() {
    let rig = || {
        Rig::of((0..300).map(frame)).then(
            "node",
            act(|batch, cx| {
                decrement(batch, cx);
                let packets: Vec<_> = batch.drain().collect();
                for packet in packets {
                    match number(packet.data()) % 100 {
                        7 => cx.drop_packet(packet, DropReason::Denied),
                        8 => cx.drop_packet(packet, DropReason::NoRoute),
                        _ => cx.emit(Edge::OUT, packet),
                    }
                }
            }),
        )
    };
    let node = || WatchPoint::Nodes(vec!["node".into()]);
    assert_eq!(watched(&capture(node(), "port 10"), rig), ["node Arriving", "node Leaving"]);
    assert_eq!(watched(&capture(node(), "port 107"), rig), ["node Arriving", "node Dropped(Denied)"]);
    let denied = WatchPoint::Drops(DropReason::Denied);
    assert_eq!(watched(&capture(denied.clone(), ""), rig), ["node Dropped(Denied)"; 3]);
    assert_eq!(watched(&capture(denied, "port 207"), rig), ["node Dropped(Denied)"]);
    let port = WatchPoint::Nodes(vec!["in".into(), "out".into(), "nowhere".into()]);
    assert_eq!(watched(&capture(port, "port 9"), rig), ["in Arriving", "out Leaving"]);
    // The bytes are those at that place.
    let (mut graph, ..) = rig().build();
    graph.watch(Watch { snap: 40, ..capture(node(), "port 10") });
    run_out(&mut graph);
    let seen = take(&mut graph);
    let hops: Vec<_> =
        seen.iter().map(|sighting| (seen.frame(sighting)[22], seen.frame(sighting).len())).collect();
    assert_eq!(hops, [(9, 40), (8, 40)]);
    assert!(seen.iter().all(|sighting| sighting.wire_len == frame(10).len()));
}

#[test]
fn a_count_is_kept_and_memory_is_bounded_where_nobody_reads() {
    let rig = || Rig::of((0..20_000).map(frame)).then("ttl", act(decrement));
    let (mut graph, sink, pool) = rig().build();
    let watch = trace("");
    graph.watch(Watch { left: Allowance::of(Some(5)), ..watch.clone() });
    run_out(&mut graph);
    let seen = take(&mut graph);
    assert_eq!((seen.len(), seen.lost(), sink.0.borrow().len()), (15, 0, 20_000));

    // Twenty milliseconds of the graph's time, at 1,000 packets a second after the first 1,000.
    let (mut graph, sink, _) = rig().build();
    graph.watch(watch);
    run_out(&mut graph);
    let seen = take(&mut graph);
    let traced = seen.iter().filter(|sighting| sighting.sight == Sight::Began).count() as u64;
    assert!((1_000..=1_020).contains(&traced), "{traced}");
    assert_eq!((traced + seen.lost(), sink.0.borrow().len()), (20_000, 20_000));

    // The same, however long the graph ran before.
    let (mut graph, _, _) = rig().build();
    graph.watch(trace(""));
    run_out_from(&mut graph, 1 << 39);
    let seen = take(&mut graph);
    let traced = seen.iter().filter(|sighting| sighting.sight == Sight::Began).count() as u64;
    assert!((1_000..=1_020).contains(&traced), "{traced}");

    // No memory for more than ten packets.
    let (mut graph, sink, _) = rig().build();
    let all = WatchPoint::Nodes(vec!["in".into()]);
    let small = Watch { bytes: 10 * frame(0).len(), ..capture(all, "") };
    graph.watch(small.clone());
    run_out(&mut graph);
    let seen = graph.take_sightings(7, Sightings::new(&small)).unwrap();
    assert_eq!((seen.len(), seen.lost(), sink.0.borrow().len()), (10, 19_990, 20_000));
    drop(graph);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn on_and_off_a_thousand_times_changes_no_packet_and_leaks_none() {
    let rig = || {
        let queue = Box::new(Queue(VecDeque::new()));
        Rig::of((0..60_000).map(|number: u16| frame(number))).then("ttl", act(decrement)).then("queue", queue)
    };
    let (mut plain, expected, _) = rig().build();
    run_out(&mut plain);
    assert_eq!(expected.0.borrow().len(), 60_000);
    let (mut graph, sink, pool) = rig().build();
    graph.set_burst(16);
    let numbers = Numbers::default();
    let (mut now, mut switched, mut traced) = (1, 0, 0);
    while graph.turn(now) != Turn::Done {
        now += 1_000_000;
        if switched < 1_000 {
            switched += 1;
            let place = (switched % 8) as u8;
            let kind = |watch: Watch| Watch { id: 7, place, ..watch };
            graph.watch(match switched % 3 {
                0 => kind(Watch::capture(
                    WatchPoint::Arrivals,
                    filter(""),
                    Allowance::default(),
                    64,
                    numbers.clone(),
                )),
                1 => kind(Watch::trace(
                    WatchPoint::Arrivals,
                    filter("udp"),
                    Allowance::default(),
                    numbers.clone(),
                )),
                _ => {
                    let at = WatchPoint::Nodes(vec!["queue".into()]);
                    kind(Watch::trace(at, filter("udp"), Allowance::default(), numbers.clone()))
                }
            });
            for _ in 0..2 {
                let _turn: Turn = graph.turn(now);
            }
            traced += take(&mut graph).len();
            graph.unwatch(7);
            assert!(graph.take_sightings(7, Sightings::default()).is_none());
        }
    }
    graph.drain(now);
    assert!(switched == 1_000 && traced > 1_000, "{switched} {traced}");
    assert_eq!(*sink.0.borrow(), *expected.0.borrow());
    assert_eq!(graph.totals(), plain.totals());
    drop(graph);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn eight_watches_see_each_their_own() {
    let (mut graph, ..) = Rig::of((0..300).map(frame)).then("ttl", act(decrement)).build();
    let numbers = Numbers::default();
    for place in 0..8u8 {
        let text = format!("port {} or port 200", 100 + u16::from(place));
        let watch = Watch::trace(WatchPoint::Arrivals, filter(&text), Allowance::default(), numbers.clone());
        graph.watch(Watch { id: 10 + u64::from(place), place, ..watch });
    }
    run_out(&mut graph);
    for place in 0..8 {
        let seen = graph.take_sightings(10 + place, Sightings::default()).unwrap();
        let way = ["in Began", "ttl Left(None)", "out Sent"];
        assert_eq!(seen.len(), 6, "{:?}", lines(&seen));
        let mut own: Vec<_> = seen.iter().map(|sighting| sighting.number).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), 2);
        for packet in own {
            let of: Vec<_> = seen.iter().filter(|sighting| sighting.number == packet).collect();
            let of: Vec<_> =
                of.iter().map(|sighting| format!("{} {:?}", sighting.node, sighting.sight)).collect();
            assert_eq!(of, way);
        }
    }
}

#[test]
fn a_graph_that_takes_over_goes_on_watching() {
    let (mut graph, sink, pool) = Rig::of((0..500).map(frame)).then("ttl", act(decrement)).build();
    graph.set_burst(100);
    graph.watch(trace("port 50 or port 450"));
    assert!(matches!(graph.turn(1), Turn::Moved(_)));
    let mut next = GraphBuilder::new("test");
    let from = next.keep("in", &graph).unwrap();
    let more = next.add("more", act(decrement)).unwrap();
    let to = next.keep("out", &graph).unwrap();
    next.connect(from, Edge::OUT, more, 0).unwrap();
    next.connect(more, Edge::OUT, to, 0).unwrap();
    let (mut after, _) = Graph::take_over(next, pool, &mut graph, 2).unwrap();
    after.set_burst(100);
    after.take_watches_over(&mut graph);
    drop(graph);
    run_out(&mut after);
    let way = ["in Began", "ttl Left(None)", "out Sent", "in Began", "more Left(None)", "out Sent"];
    assert_eq!(lines(&take(&mut after)), way);
    assert_eq!(sink.0.borrow().len(), 500);
}

#[test]
fn a_trace_goes_on_with_another_worker() {
    let pool = Pool::builder().frames(1_024).short(512, 512).build().unwrap();
    let (group, shuffle) = (WorkerGroup::new(2), Shuffle::new(ShuffleConfig::default()));
    let numbers = Numbers::default();
    let sinks = [Sink::default(), Sink::default()];
    let mut graphs: Vec<Graph> = (0..2)
        .map(|index| {
            let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
            let mut graph = GraphBuilder::new("test");
            let frames = if index == 0 { (0..300).map(frame).collect() } else { VecDeque::new() };
            let source = graph.add("in", Box::new(Feed(frames))).unwrap();
            let middle = graph.add("shuffle", shuffle.node(&worker).unwrap()).unwrap();
            let sink = graph.add("out", Box::new(sinks[index].clone())).unwrap();
            graph.connect(source, Edge::OUT, middle, 0).unwrap();
            graph.connect(middle, Edge::OUT, sink, 0).unwrap();
            let mut graph = graph.build(pool.clone()).unwrap();
            let watch = Watch::trace(WatchPoint::Arrivals, filter(""), Allowance::default(), numbers.clone());
            graph.watch(Watch { id: 7, ..watch });
            graph
        })
        .collect();
    for now in 0..2_000 {
        for graph in &mut graphs {
            let _turn: Turn = graph.turn(now);
        }
    }
    let seen: Vec<Sightings> = graphs.iter_mut().map(take).collect();
    let of = |worker: usize, sight: &Sight| {
        let all = seen[worker].iter().filter(|sighting| sighting.sight == *sight);
        all.map(|sighting| sighting.number).collect::<Vec<_>>()
    };
    let handed = of(0, &Sight::HandedOver);
    assert!(!handed.is_empty() && handed.len() < 300, "{}", handed.len());
    assert_eq!(handed, of(1, &Sight::Left(None)), "in order, under the same numbers");
    assert_eq!(handed, of(1, &Sight::Sent));
    assert_eq!(of(0, &Sight::Sent).len() + handed.len(), 300);
    assert_eq!(sinks.map(|sink| sink.0.borrow().len()).iter().sum::<usize>(), 300);
}
