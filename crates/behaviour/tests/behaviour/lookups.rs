//! Design, section 5: operators that wait on memory. A lookup sees the changes of earlier packets of its own
//! batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use netbricks_core::packet::{FlowKey, Ip, Link, Udp};
use netbricks_core::tables::{Counters, Entry, FlowTableConfig, Full};
use netbricks_core::view::{Enclosing, IpRewrite, Metadata};
use netbricks_core::{
    DropReason, Function, Input, LookupHooks, Operator, StoredFlow, TableKey, Turn, Verdict, Worker, compose,
};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::{Random, mutate};
use netbricks_testkit::{kinds, run_with};
use proptest::prelude::*;

use crate::harness::{Feed, Rig, Sink, blueprint, check};

fn frame(source: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(source, 53).payload(b"\0").build().unwrap()
}

/// Writes into the payload how many packets of the flow were seen, this one included.
fn numbering(input: Input, config: FlowTableConfig, worker: &Worker) -> impl Function {
    let flows = worker.flow_table::<FlowKey, u64>("flows", config);
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &flows,
            |p| p.flow_key(),
            |_, entry| match entry {
                Entry::Found(mut seen) => {
                    *seen.get_mut() += 1;
                    *seen.get_mut()
                }
                Entry::Vacant(vacant) => *vacant.insert(1),
                Entry::Full => 0,
            },
        )
        .parse::<Udp>()
        .transform(|p| {
            let seen = *p.get::<u64>();
            p.payload_mut()[0] = seen as u8;
        })
        .done()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_lookup_agrees_with_a_map_at_every_batch_size(sources in proptest::collection::vec(0u16..20, 0..600)) {
        let report = run_with(
            |input, worker| numbering(input, FlowTableConfig::new(64), worker),
            sources.iter().map(|source| frame(*source)),
        );
        let mut map = HashMap::new();
        let expected: Vec<u8> = sources.iter().map(|source| {
            let seen = map.entry(source).or_insert(0u64);
            *seen += 1;
            *seen as u8
        }).collect();
        prop_assert_eq!(report.out.iter().map(|frame| frame[42]).collect::<Vec<_>>(), expected);
    }
}

macro_rules! numbered_by_port {
    ($start:expr, $worker:expr) => {{
        let flows = $worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(64));
        $start
            .lookup(
                &flows,
                |p| {
                    let port = p.flow_key().source_port();
                    if port % 2 == 1 {
                        return FlowKey::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, 0, 17);
                    }
                    let far = [0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, port];
                    FlowKey::new(far.into(), [9_u16; 8].into(), 0, 0, 17)
                },
                |_, entry| counted(entry),
            )
            .parse::<Udp>()
            .transform(|p| {
                let seen = *p.get::<u64>();
                p.payload_mut()[0] = seen as u8;
            })
            .done()
    }};
}

/// Writes into the payload how many packets with its source port were seen.
///
/// Keys are long for even ports and short for odd ones, in every kind of frame.
fn numbering_by_port(input: Input, worker: &Worker) -> impl Function {
    numbered_by_port!(input.parse::<Link>().parse::<Ip>(), worker)
}

/// The same behind an operator that may have written, so that stacks wait too.
fn numbering_where_stacks_wait(input: Input, worker: &Worker) -> impl Function {
    numbered_by_port!(input.parse::<Link>().parse::<Ip>().transform(|_| ()), worker)
}

/// Frames of the most usual kind only, with an exception now and then, or of any kind.
#[derive(Clone, Copy, Debug)]
enum Mix {
    Alike,
    Few,
    Any,
}

impl Mix {
    /// The kind of the frame in this place, if it may be `kind`.
    fn kind(self, place: usize, kind: u8) -> u8 {
        match self {
            Self::Alike => u8::MAX,
            Self::Few if place % 41 != 20 => u8::MAX,
            Self::Few | Self::Any => kind,
        }
    }
}

fn mix() -> impl Strategy<Value = Mix> {
    prop_oneof![Just(Mix::Alike), Just(Mix::Few), Just(Mix::Any)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn keys_may_be_long_or_short_in_frames_of_any_shape(
        packets in proptest::collection::vec((0u16..20, 0u8..8), 0..600), mix in mix(),
    ) {
        let frames = || packets.iter().enumerate().map(|(place, (port, kind))| match mix.kind(place, *kind) {
            0 => ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(*port, 53).payload(b"\0").build().unwrap(),
            1 => ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(*port, 53).payload(b"\0").build().unwrap(),
            2 => {
                let alert = ethernet().ipv4("10.0.0.1", "10.0.0.2").router_alert();
                alert.udp(*port, 53).payload(b"\0").build().unwrap()
            }
            _ => frame(*port),
        });
        let mut map = HashMap::new();
        let expected: Vec<_> = packets.iter().map(|(port, _)| {
            let seen = map.entry(port).or_insert(0u8);
            *seen += 1;
            Some(*seen)
        }).collect();
        for report in [run_with(numbering_by_port, frames()), run_with(numbering_where_stacks_wait, frames())] {
            prop_assert_eq!(report.panics, Vec::new());
            prop_assert_eq!(report.out.iter().map(|frame| frame.last().copied()).collect::<Vec<_>>(), &expected[..]);
        }
    }
}

/// A tally's treatment of an entry: it counts, as far as there is room.
fn counted(entry: Entry<'_, StoredFlow, u64>) -> u64 {
    match entry {
        Entry::Found(mut seen) => {
            *seen.get_mut() += 1;
            *seen.get_mut()
        }
        Entry::Vacant(vacant) => *vacant.insert(1),
        Entry::Full => 0,
    }
}

/// Notes, behind a lookup, its result and the table's counts by then.
type Notes = Arc<Mutex<Vec<(u64, Counters)>>>;

/// A tally with one function.
fn tally(input: Input, worker: &Worker, config: FlowTableConfig, notes: Notes) -> impl Function {
    let flows = worker.flow_table::<FlowKey, u64>("flows", config);
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(&flows, |p| p.flow_key(), |_, entry| counted(entry))
        .inspect(move |p| notes.lock().unwrap().push((*p.get(), flows.with(|flows| flows.counters()))))
        .done()
}

/// How many packets the first of two functions left to the second.
struct Left(u32);

impl LookupHooks<StoredFlow> for Left {
    fn begin(&mut self) {
        assert_eq!(self.0, 0, "left over from the batch before");
    }
}

macro_rules! tallied_by_two {
    ($start:expr, $worker:expr, $config:expr, $notes:expr) => {{
    let (flows, notes) = ($worker.flow_table::<FlowKey, u64>("flows", $config), $notes);
    $start
        .lookup_or(
            &flows,
            |p| p.flow_key(),
            Left(0),
            |Left(left), _, seen| {
                if *seen % 3 == 2 {
                    *left += 1;
                    return None;
                }
                *seen += 1;
                Some(*seen)
            },
            |Left(left), _, entry| {
                // The packet that the first function left comes next, before any other packet does.
                let third = matches!(&entry, Entry::Found(flow) if *flow.get() % 3 == 2);
                assert!(std::mem::take(left) <= u32::from(third));
                counted(entry)
            },
        )
        .inspect(move |p| notes.lock().unwrap().push((*p.get(), flows.with(|flows| flows.counters()))))
        .done()
    }};
}

/// A tally with two functions. The one for known flows leaves every third packet of a flow to the other.
fn tally_by_two(input: Input, worker: &Worker, config: FlowTableConfig, notes: Notes) -> impl Function {
    tallied_by_two!(input.parse::<Link>().parse::<Ip>(), worker, config, notes)
}

/// The same behind an operator that may have written, so that stacks wait too.
fn tally_by_two_where_stacks_wait(
    input: Input,
    worker: &Worker,
    config: FlowTableConfig,
    notes: Notes,
) -> impl Function {
    tallied_by_two!(input.parse::<Link>().parse::<Ip>().transform(|_| ()), worker, config, notes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(72))]
    #[test]
    fn two_functions_do_what_one_does(
        packets in proptest::collection::vec((0u16..20, 0u8..10), 0..400), capacity in 1usize..24, evicts: bool,
        mix in mix(),
    ) {
        let frames = || packets.iter().enumerate().map(|(place, (port, kind))| match mix.kind(place, *kind) {
            // Among frames of the most usual shape there are some of other usual shapes, and some unusual
            // ones, which are always put off.
            0 => ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(*port, 53).build().unwrap(),
            1 => ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").udp(*port, 53).build().unwrap(),
            2 => ethernet().ipv4("10.0.0.1", "10.0.0.2").router_alert().udp(*port, 53).build().unwrap(),
            // These have the most usual shape too, but are without ports, or are fragments.
            3 => ethernet().ipv4("10.0.0.1", "10.0.0.2").icmp_echo_request(*port, 1).build().unwrap(),
            4 => ethernet().ipv4("10.0.0.1", "10.0.0.2").fragment(0, true).udp(*port, 53).build().unwrap(),
            _ => frame(*port),
        });
        let full = if evicts { Full::EvictOldest } else { Full::Refuse };
        let config = FlowTableConfig { full, ..FlowTableConfig::new(capacity) };
        let (one, two) = (Notes::default(), Notes::default());
        let (to_one, to_two) = (one.clone(), two.clone());
        let expected = run_with(move |input, worker| tally(input, worker, config, to_one.clone()), frames());
        let report = run_with(move |input, worker| tally_by_two(input, worker, config, to_two.clone()), frames());
        prop_assert_eq!(report.panics, Vec::new());
        prop_assert_eq!(report.out, expected.out);
        let (one, two) = (one.lock().unwrap(), two.lock().unwrap());
        prop_assert_eq!(&*two, &*one);
        prop_assert_eq!(one.is_empty(), packets.is_empty());
        let three = Notes::default();
        let to_three = three.clone();
        let report = run_with(
            move |input, worker| tally_by_two_where_stacks_wait(input, worker, config, to_three.clone()),
            frames(),
        );
        prop_assert_eq!(report.panics, Vec::new());
        prop_assert_eq!(&*three.lock().unwrap(), &*one);
        drop((one, two));
        // Fused: no packet is put off for the first lookup, and the second finds its keys behind the first
        // one's result.
        let (one, two) = (Notes::default(), Notes::default());
        let (to_one, to_two) = (one.clone(), two.clone());
        let expected = run_with(
            move |input, worker| {
                let notes = to_one.clone();
                tally(input, worker, config, notes.clone()).then(|input| tally(input, worker, config, notes))
            },
            frames(),
        );
        let report = run_with(
            move |input, worker| {
                let notes = to_two.clone();
                tally_by_two(input, worker, config, notes.clone()).then(|input| tally_by_two(input, worker, config, notes))
            },
            frames(),
        );
        prop_assert_eq!(report.panics, Vec::new());
        prop_assert_eq!(report.out, expected.out);
        prop_assert_eq!(&*two.lock().unwrap(), &*one.lock().unwrap());
    }
}

/// Keys that were expected.
struct Told(Arc<Mutex<Vec<FlowKey>>>);

impl LookupHooks<StoredFlow> for Told {
    fn expect(&mut self, flow: &StoredFlow) {
        self.0.lock().unwrap().push(FlowKey::restore(*flow));
    }
}

#[test]
fn new_flows_are_expected_before_their_packets_come_and_known_ones_are_not() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let known = move |input: Input, worker: &Worker| {
        let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(64));
        let told = tell.clone();
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup_or(
                &flows,
                |p| p.flow_key(),
                Told(told.clone()),
                |_, _, _| Some(()),
                move |_, _, entry| {
                    let key = entry.key().map(FlowKey::restore);
                    assert!(key.is_some_and(|key| told.lock().unwrap().contains(&key)));
                    entry.or_insert_with(|| 0);
                },
            )
            .done()
    };
    let kinds = |port| {
        [
            frame(port),
            ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.3").udp(port, 53).build().unwrap(),
            ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(port, 53).build().unwrap(),
            ethernet().ipv4("10.0.0.1", "10.0.0.4").router_alert().udp(port, 53).build().unwrap(),
        ]
    };
    for frames in [(0..10).map(frame).collect(), (0..10).flat_map(kinds).collect::<Vec<_>>()] {
        told.lock().unwrap().clear();
        // The same frames again. In batches of one packet, all their flows are known by then.
        let report = run_with(known.clone(), frames.iter().chain(&frames).cloned());
        assert_eq!((report.panics.len(), report.out.len()), (0, 2 * frames.len()));
        let mut times: HashMap<FlowKey, usize> = HashMap::new();
        told.lock().unwrap().iter().for_each(|key| *times.entry(*key).or_default() += 1);
        let keys = frames.iter().map(|frame| FlowKey::from_frame(frame).unwrap());
        // Once in batches of one, and in larger ones once or, where both of its packets are in one, twice.
        assert!(keys.clone().all(|key| (3..=5).contains(&times.remove(&key).unwrap_or(0))));
        assert!(times.is_empty());
    }
}

#[test]
fn two_lookups_are_three_loops_and_the_second_knows_what_the_first_found() {
    fn twice(input: Input, worker: &Worker) -> impl Function {
        let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(64));
        let counts = worker.flow_table::<u64, u64>("counts", FlowTableConfig::new(64));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(
                &flows,
                |p| p.flow_key(),
                |_, entry| {
                    entry.or_insert_with(|| 0).map_or(0, |seen| {
                        *seen += 1;
                        *seen
                    })
                },
            )
            .lookup(
                &counts,
                |p| *p.get::<u64>(),
                |_, entry| matches!(entry, Entry::Vacant(_)) && entry.or_insert_with(|| 0).is_some(),
            )
            .filter(DropReason::Denied, |p| *p.get::<bool>() && *p.get::<u64>() < 4)
            .done()
    }
    // The first packet that is the n-th of its flow is the only one for which n is unknown.
    let report = run_with(twice, (0..40).map(|i| frame(i % 4)));
    assert_eq!(report.out.iter().map(|f| f[35]).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(report.dropped(DropReason::Denied), 37);
}

#[test]
fn two_lookups_may_share_one_table() {
    // As a NAT does, which looks for both directions.
    fn both(input: Input, worker: &Worker) -> impl Function {
        let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(64));
        input
            .parse::<Link>()
            .parse::<Ip>()
            .lookup(&flows, |p| p.flow_key().reversed(), |_, entry| matches!(entry, Entry::Found(_)))
            .lookup(&flows, |p| p.flow_key(), |_, entry| entry.or_insert_with(|| 1).is_some())
            .done()
    }
    let report = run_with(both, (0..40).map(frame));
    assert_eq!((report.out.len(), report.panics), (40, Vec::new()));
}

#[test]
fn packets_that_left_before_a_lookup_are_not_looked_up() {
    let mut frames: Vec<_> = (0..100).map(|i| frame(i % 3)).collect();
    let (_, arp) = kinds::every().into_iter().find(|(name, _)| *name == "arp request").unwrap();
    for at in [0, 31, 32, 50, 102] {
        frames.insert(at, arp.clone());
    }
    let report = run_with(|input, worker| numbering(input, FlowTableConfig::new(8), worker), frames);
    assert_eq!((report.out.len(), report.dropped(DropReason::Unmatched)), (100, 5));
    assert_eq!(report.out.iter().map(|f| f[42]).max(), Some(34));
}

#[test]
fn a_full_table_refuses_or_evicts_as_it_was_told() {
    let frames = || [1, 2, 1, 2].map(frame);
    let seen = |full| {
        let config = FlowTableConfig { full, ..FlowTableConfig::new(1) };
        let report = run_with(move |input, worker| numbering(input, config, worker), frames());
        report.out.iter().map(|frame| frame[42]).collect::<Vec<_>>()
    };
    assert_eq!(seen(Full::Refuse), [1, 0, 2, 0]);
    assert_eq!(seen(Full::EvictOldest), [1, 1, 1, 1]);
    assert_eq!(seen(Full::EvictExpired), [1, 0, 2, 0]);
}

#[test]
fn flows_expire_by_the_clock_that_is_handed_in() {
    let (feed, sink) = (Feed::default(), Sink::default());
    let mut rig = Rig::new();
    let config = FlowTableConfig { idle_timeout: Some(1_000_000), ..FlowTableConfig::new(64) };
    let source = rig.add("source", Box::new(feed.clone()));
    let node = rig.function(
        "flows",
        &blueprint(move |worker| compose(worker, |input| numbering(input, config, worker))),
    );
    let last = rig.add("sink", Box::new(sink.clone()));
    rig.chain(&[source, node, last]);
    let (mut graph, _) = rig.build();
    let at = |graph: &mut netbricks_core::Graph, now| {
        feed.add([frame(1)]);
        graph.wake();
        assert_eq!(graph.turn(now), Turn::Moved(1));
        check(graph);
        sink.frames().last().unwrap()[42]
    };
    assert_eq!(at(&mut graph, 0), 1);
    assert_eq!(at(&mut graph, 900_000), 2);
    // Each packet counts from its own time again.
    assert_eq!(at(&mut graph, 1_800_000), 3);
    assert_eq!(at(&mut graph, 3_000_000), 1);
    assert_eq!(graph.call("flows", "flows.occupancy", "").unwrap(), "1 64");
    // A time that goes back counts as the latest known.
    assert_eq!(at(&mut graph, 5), 2);
}

/// The packets that a lookup's `visit` sees behind these operators.
macro_rules! seen_behind {
    ($frames:expr, |$start:ident| $operators:expr) => {{
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = seen.clone();
        let function = move |$start: Input, worker: &Worker| {
            let flows = worker.flow_table::<FlowKey, u64>("flows", FlowTableConfig::new(4_096));
            let tell = tell.clone();
            let operators = $operators;
            operators
                .lookup(
                    &flows,
                    |packet| packet.flow_key(),
                    move |packet, _| {
                        let (header, payload) = (packet.header(), packet.payload().len());
                        let (ttl, link) = (header.ttl(), packet.outer::<Link>().len());
                        tell.lock().unwrap().push((ttl, header.protocol(), payload, link));
                    },
                )
                .done()
        };
        run_with(function, $frames);
        seen.lock().unwrap().clone()
    }};
}

/// Checks that both ways to the stack give the same facts.
///
/// Behind operators that only read, the stack is computed again; behind one that might have written, it
/// waits.
#[test]
fn recomputed_facts_equal_facts_that_waited() {
    let mut random = Random::new(5);
    let mut frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for _ in 0..2_000 {
        let mut frame = frames[random.below(frames.len())].clone();
        mutate(&mut frame, &mut random);
        frames.push(frame);
    }
    let looked = seen_behind!(frames.clone(), |start| start
        .parse::<Link>()
        .or(Verdict::PASS)
        .inspect(|_| ())
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(Verdict::PASS, |packet| packet.header().ttl() != 1)
        .inspect(|_| ()));
    let may_have_written = seen_behind!(frames, |start| start
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .decide(|packet| if packet.header().ttl() != 1 { Ok(()) } else { Err(Verdict::PASS) }));
    assert!(looked.len() > 500, "{}", looked.len());
    assert_eq!(looked, may_have_written);
}
