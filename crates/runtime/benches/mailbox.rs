//! Measures the time of a call to a worker: to its mailbox, between two of its turns, and back.
//!
//! Run it with `cargo bench -p netbricks-runtime`. It measures each idle policy with a worker without a
//! graph. A call meets a worker that spins, or wakes one that sleeps.

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
