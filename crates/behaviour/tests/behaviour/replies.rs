//! Answers are new packets on another edge: counted as created, bounded, and undone with a batch that panics.

use netbricks_core::context::ANSWERS_LIMIT;
use netbricks_core::packet::{Ethernet, Ip, Link};
use netbricks_core::{DropReason, Edge, Function, Input, Operator, Verdict, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run;

use crate::harness::{Feed, Rig, Sink, blueprint, counters, run_out};

fn frame(last: u8) -> Vec<u8> {
    ethernet().ipv4([10, 0, 0, last], [10, 0, 0, 2]).udp(1, 2).build().unwrap()
}

#[test]
fn a_reply_is_written_from_the_packet_and_begins_as_zeros() {
    fn echo(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .transform(|p| {
                let answered = p.reply(Edge::REPLY, 64, |bytes, p| {
                    assert_eq!(bytes, [0; 64], "new bytes are zero, whichever packet had the frame before");
                    bytes[..12].copy_from_slice(&p.frame()[..12]);
                    bytes[63] = p.frame()[29];
                });
                assert!(answered);
            })
            .done()
    }
    let report = run(echo, (0..100).map(frame));
    assert_eq!(report.panics, []);
    assert_eq!(report.replies.iter().map(|r| r[63]).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert_eq!((report.totals.created.packets, report.totals.created.bytes), (100, 6_400));
}

/// Answered packets and new ones leave on one edge; `run` compares their order at three batch sizes.
#[test]
fn answered_and_new_packets_keep_the_order_of_the_originals() {
    fn mixed(input: Input) -> impl Function {
        input
            .parse::<Link>()
            .parse::<Ip>()
            .inspect(|_| ())
            .decide(|p| {
                let last = p.frame()[29];
                if last.is_multiple_of(3) {
                    p.reply(Edge::REPLY, 64, |bytes, _| bytes[29] = last + 100);
                }
                if last.is_multiple_of(2) { Err(Verdict::REPLY) } else { Ok(()) }
            })
            .done()
    }
    let report = run(mixed, (0..50).map(frame));
    let order: Vec<u8> = report.replies.iter().map(|frame| frame[29]).collect();
    // For each packet the original comes first, then its answers.
    let expected: Vec<u8> = (0..50u8)
        .flat_map(|last| [(last.is_multiple_of(2), last), (last.is_multiple_of(3), last + 100)])
        .filter_map(|(leaves, mark)| leaves.then_some(mark))
        .collect();
    assert_eq!(order, expected);
}

#[test]
fn a_packet_is_not_answered_without_end() {
    fn storm(input: Input) -> impl Function {
        input.parse::<Ethernet>().transform(|p| while p.reply(Edge::REPLY, 60, |_, _| {}) {}).done()
    }
    let mut rig = Rig::new();
    let replies = Sink::default();
    let source = rig.add("source", Box::new(Feed::of([frame(1)])));
    let node = rig.function("storm", &blueprint(|worker| compose(worker, storm)));
    let (sink, aside) =
        (rig.add("sink", Box::new(Sink::default())), rig.add("replies", Box::new(replies.clone())));
    rig.chain(&[source, node, sink]);
    rig.connect(node, 1, aside);
    let (mut graph, pool) = rig.build();
    run_out(&mut graph);
    assert_eq!(replies.frames().len(), ANSWERS_LIMIT);
    let counters = counters(&graph, "storm");
    assert_eq!(counters.created.packets, ANSWERS_LIMIT as u64 + 1, "the one too many is counted");
    assert_eq!(counters.drops.of(DropReason::RateLimited).packets, 1);
    assert_eq!(pool.available(), pool.capacity());
}

/// Checks that the batch size does not change the number of answers, up to the limit for each packet.
#[test]
fn every_packet_is_answered_as_often_at_any_burst() {
    for (asked, got) in [(3, 3), (ANSWERS_LIMIT, ANSWERS_LIMIT), (ANSWERS_LIMIT + 2, ANSWERS_LIMIT)] {
        for burst in [1, 32, 256] {
            let replies = Sink::default();
            let mut rig = Rig::new();
            rig.pool =
                netbricks_core::buffer::Pool::builder().frames(1_024).short(4_096, 512).build().unwrap();
            let source = rig.add("source", Box::new(Feed::of((0..255).map(frame))));
            let answer = blueprint(move |worker| {
                compose(worker, |input| {
                    let answer = input.parse::<Ethernet>().transform(move |p| {
                        for number in 0..asked {
                            assert_eq!(p.reply(Edge::REPLY, 60, |_, _| {}), number < ANSWERS_LIMIT);
                        }
                    });
                    answer.done()
                })
            });
            let node = rig.function("answers", &answer);
            let (sink, aside) =
                (rig.add("sink", Box::new(Sink::default())), rig.add("replies", Box::new(replies.clone())));
            rig.chain(&[source, node, sink]);
            rig.connect(node, 1, aside);
            let (mut graph, _) = rig.build();
            graph.set_burst(burst);
            run_out(&mut graph);
            let counters = counters(&graph, "answers");
            let at = format!("{asked} answers, bursts of {burst}");
            assert_eq!(replies.frames().len(), 255 * got, "{at}");
            assert_eq!(counters.created.packets, 255 * asked as u64, "{at}");
            assert_eq!(
                counters.drops.of(DropReason::RateLimited).packets,
                255 * (asked - got) as u64,
                "{at}"
            );
        }
    }
}

#[test]
fn replies_are_rolled_back_when_a_later_packet_panics() {
    fn fragile(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .transform(|p| {
                p.reply(Edge::REPLY, 60, |_, _| {});
                assert_ne!(p.frame()[29], 13, "unlucky");
            })
            .done()
    }
    let replies = Sink::default();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..30).map(frame))));
    let node = rig.function("fragile", &blueprint(|worker| compose(worker, fragile)));
    let (sink, aside) =
        (rig.add("sink", Box::new(Sink::default())), rig.add("replies", Box::new(replies.clone())));
    rig.chain(&[source, node, sink]);
    rig.connect(node, 1, aside);
    let (mut graph, pool) = rig.build();
    graph.set_burst(10);
    run_out(&mut graph);
    let counters = counters(&graph, "fragile");
    // Packets 10 to 19 are lost, and their answers were neither counted nor sent.
    assert_eq!((counters.created.packets, counters.drops.of(DropReason::Panicked).packets), (20, 10));
    assert_eq!((replies.frames().len(), pool.available()), (20, pool.capacity()));
}

#[test]
fn an_empty_pool_is_told_to_the_author() {
    fn count(input: Input) -> impl Function {
        input
            .parse::<Ethernet>()
            .filter(DropReason::PoolExhausted, |_| true)
            .transform(|p| {
                let answered = p.reply(Edge::REPLY, 1 << 20, |_, _| unreachable!("no frame is that large"));
                assert!(!answered);
            })
            .done()
    }
    assert_eq!(run(count, [frame(1)]).panics, []);
}
