//! A driven graph whose sources find no buffer continues when buffers are free again, after any time of its
//! own.
//!
//! Where no buffer comes back, the run ends and reports that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use netbricks_buffer::{Batch, Pool};
use netbricks_core::{Context, Node, Poll, Shape};
use netbricks_runtime::{Config, Factory, IdlePolicy, Runtime};

use crate::nodes::{Sink, chain, config};

/// A source of one packet a poll where there is a buffer.
///
/// Else it asks for a time, as sources do that move the clock.
struct Wanting {
    left: u64,
    polls: Arc<AtomicU64>,
}

impl Node for Wanting {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let Some(packet) = cx.pool().packet(&[0; 60]) else { return Poll::Until(cx.now() + 100_000) };
        batch.push(packet).unwrap();
        self.left -= 1;
        if self.left == 0 { Poll::Done } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

fn start(config: Config, polls: &Arc<AtomicU64>) -> Runtime {
    Runtime::start(config, |_| {
        let polls = polls.clone();
        Factory::new(move |context| {
            chain("g", vec![("in", Box::new(Wanting { left: 10, polls })), ("out", Box::new(Sink))])?
                .build(context.pool().clone())
        })
    })
    .unwrap()
}

/// More timers in a row than end a graph without sources, if they move nothing.
///
/// Those beyond that number take up to 4 ms each.
const MANY: u64 = (1 << 16) + 100;

#[test]
fn sources_without_buffers_wait_for_them() {
    for idle in IdlePolicy::ALL {
        let pool = Pool::builder().frames(64).build().unwrap();
        let mut all = Batch::new();
        assert_eq!(pool.allocate_into(&mut all, 64), 64);
        let polls = Arc::default();
        let runtime = start(config(pool.clone(), 1).idle(idle), &polls);
        while polls.load(Ordering::Relaxed) < MANY && !runtime.wait_timeout(Duration::from_millis(1)) {}
        all.clear();
        let report = runtime.wait();
        assert_eq!(report.state.totals.sent.packets, 10, "{idle:?}");
        assert_eq!(report.state.workers[0].gave_up, None);
    }
}

#[test]
fn a_run_whose_buffers_never_return_ends_and_says_so() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let mut all = Batch::new();
    assert_eq!(pool.allocate_into(&mut all, 64), 64);
    let polls = Arc::default();
    let report = start(config(pool, 1), &polls).wait();
    assert!(polls.load(Ordering::Relaxed) > MANY);
    assert_eq!(report.state.totals.sent.packets, 0);
    assert!(report.conserved);
    let why = report.state.workers[0].gave_up.clone().unwrap_or_default();
    assert!(
        why.contains("graph `g`: its sources wait for packet buffers, of which 0 of 64 are free"),
        "{why}"
    );
}
