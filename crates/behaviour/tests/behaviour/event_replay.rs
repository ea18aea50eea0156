//! Events under a clock that arrivals drive: exactly between the packets, at every batch size.

use std::collections::VecDeque;

use netbricks_core::buffer::Batch;
use netbricks_core::{Context, Edge, Function, Input, Node, Operator, Poll, Shape, Worker};

use crate::events::{Log, log, node_of, take_log};
use crate::harness::{Rig, Sink, numbered, run_out_by};

/// Packets with arrival times, which drive the clock as a capture's do.
struct Capture(VecDeque<(u64, u32)>);

impl Node for Capture {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        while let Some((time, number)) = self.0.front().copied() {
            if batch.len() == cx.burst() || !batch.is_empty() && time >= cx.deadline() {
                return Poll::Busy;
            }
            if batch.is_empty() {
                if !cx.receiving().approach(time) {
                    return Poll::Busy;
                }
                cx.receiving().advance(time);
            }
            self.0.pop_front();
            assert!(batch.push(cx.pool().packet(&numbered(number)).unwrap()).is_ok());
        }
        Poll::Done
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

/// Counts packets so far every 50 ns, and events that were missed.
fn tally(input: Input, worker: &'static Worker) -> impl Function + use<> {
    let seen = worker.counter("seen");
    let told = seen.clone();
    worker.invoke_every("tell", 50, move |event| {
        log("tell", event);
        let mark = 1_000_000 + told.get() as u32;
        event.inject(Edge::OUT, 60, |frame| frame[..4].copy_from_slice(&mark.to_be_bytes()));
    });
    input.inspect(move |_| seen.add(1)).done()
}

fn replay(arrivals: &[(u64, u32)], burst: usize, turns: u32) -> (Vec<u32>, Log) {
    let mut rig = Rig::new();
    let sink = Sink::default();
    let source = rig.add("source", Box::new(Capture(arrivals.iter().copied().collect())));
    let node = rig.function("tally", &node_of(tally));
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, pool) = rig.build();
    graph.set_burst(burst);
    run_out_by(&mut graph, turns);
    graph.drain(0);
    assert_eq!(pool.available(), pool.capacity());
    (sink.numbers(), take_log())
}

#[test]
fn no_batch_spans_a_deadline_whatever_its_size() {
    let epoch = 1_700_000_000_000_000_000;
    let mut arrivals: Vec<(u64, u32)> =
        (0..2_000u32).map(|i| (epoch + u64::from(i) * 3 + u64::from(i / 100) * 400, i)).collect();
    // At a deadline to the nanosecond the event is first.
    arrivals.push((epoch + 50 * 1_000, 2_000));
    // The oracle: before each arrival, every event up to its time.
    let (mut expected, mut next) = (Vec::new(), epoch + 50);
    for (time, number) in &arrivals {
        while next <= *time {
            expected.push(1_000_000 + number);
            next += 50;
        }
        expected.push(*number);
    }
    for (burst, turns) in [(1, 1), (32, 1), (256, 1), (1, 64), (32, 64)] {
        let (numbers, log) = replay(&arrivals, burst, turns);
        assert_eq!(numbers, expected, "at {burst}, {turns} turns at once");
        assert!(log.iter().all(|(_, now, due, missed)| now == due && *missed == 0), "on time to the ns");
    }
}

#[test]
fn a_hole_of_years_in_a_capture_is_missed_and_not_run_through() {
    let epoch = 1_700_000_000_000_000_000;
    let arrivals = [(epoch, 0), (epoch + 10, 1), (u64::MAX - 1_000, 2), (u64::MAX - 900, 3)];
    let results = [(1, 1), (32, 1), (256, 1), (1, 64)].map(|(burst, turns)| replay(&arrivals, burst, turns));
    assert!(results.iter().all(|result| result == &results[0]));
    let (numbers, log) = &results[0];
    assert_eq!(
        numbers.iter().filter(|number| **number < 1_000_000).copied().collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    let times: u64 = log.iter().map(|(.., missed)| 1 + missed).sum();
    assert_eq!(times, (u64::MAX - 900 - epoch) / 50, "each is run or counted");
    assert!(log.len() < 2_000, "{} runs", log.len());
}
