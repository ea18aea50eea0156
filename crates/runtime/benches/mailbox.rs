//! What it takes to ask a worker something: to its mailbox, between two of its turns, and back.
//! `cargo bench -p netbricks-runtime`
//!
//! By idle policy, over a worker without a graph: a call meets one that spins, or wakes one that sleeps.

use divan::Bencher;
use netbricks_buffer::Pool;
use netbricks_runtime::{Config, IdlePolicy, Runtime};

fn main() {
    divan::main();
}

#[divan::bench(args = IdlePolicy::ALL)]
fn round_trip(bencher: Bencher, idle: IdlePolicy) {
    let pool = Pool::builder().frames(64).build().expect("a small pool fits into memory");
    let mut config = Config::new(pool).idle(idle);
    config.linger = true;
    let runtime = Runtime::start_several(config, |_| Vec::new()).expect("a thread can be started");
    bencher.bench_local(|| {
        let snapshot = runtime.control().snapshot().expect("the worker answers");
        assert_eq!(snapshot.workers.len(), 1);
        snapshot
    });
    assert!(runtime.stop().conserved);
}
