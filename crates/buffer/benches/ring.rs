//! Cost of passing 32 packets through a ring and back, on one core.
//!
//! It shows the instructions alone, without moving cache lines between cores.

use divan::Bencher;
use divan::counter::ItemsCount;
use netbricks_buffer::{Batch, Pool, Ring, WorkerSlot};

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 32, 256], sample_size = 4096, sample_count = 50)]
fn push_and_pop(bencher: Bencher<'_, '_>, burst: usize) {
    let _slot = WorkerSlot::claim();
    let pool = Pool::builder().build().expect("memory for the benchmark");
    let mut batch = Batch::new();
    assert_eq!(pool.allocate_written_into(&mut batch, burst, &[7; 64]), burst);
    let (mut producer, mut consumer) = Ring::new(1024);
    bencher.counter(ItemsCount::new(burst)).bench_local(|| {
        producer.push(&mut batch);
        consumer.pop(&mut batch);
    });
}
