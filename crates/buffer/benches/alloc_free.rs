//! Cost of allocating and freeing 64-byte packets in bursts of 32.
//!
//! Frames come from a worker's stack and return to it: the counterpart of DPDK's `rte_pktmbuf_alloc_bulk` and
//! `rte_pktmbuf_free_bulk`. Times are of one burst.

use divan::Bencher;
use divan::counter::ItemsCount;
use netbricks_buffer::{Batch, Pool, WorkerSlot};

const BURST: usize = 32;

fn main() {
    divan::main();
}

fn pool() -> Pool {
    Pool::builder().frames(32_767).frame_size(2048).build().expect("memory for the benchmark")
}

/// The bytes are copied from a template.
#[divan::bench(sample_size = 4096, sample_count = 50)]
fn written(bencher: Bencher<'_, '_>) {
    let (_slot, pool, mut batch) = (WorkerSlot::claim(), pool(), Batch::new());
    let template = [7; 64];
    bencher.counter(ItemsCount::new(BURST)).bench_local(|| {
        pool.allocate_written_into(&mut batch, BURST, divan::black_box(&template));
        divan::black_box(&mut batch).clear();
    });
}

/// The bytes are zeroed one packet at a time.
#[divan::bench(sample_size = 4096, sample_count = 50)]
fn zeroed(bencher: Bencher<'_, '_>) {
    let (_slot, pool, mut batch) = (WorkerSlot::claim(), pool(), Batch::new());
    bencher.counter(ItemsCount::new(BURST)).bench_local(|| {
        pool.allocate_into(&mut batch, BURST);
        batch.each(|_, bytes| _ = bytes.extend(64));
        divan::black_box(&mut batch).clear();
    });
}

/// Packets without bytes, as a driver gets them before it writes them.
#[divan::bench(sample_size = 4096, sample_count = 50)]
fn empty(bencher: Bencher<'_, '_>) {
    let (_slot, pool, mut batch) = (WorkerSlot::claim(), pool(), Batch::new());
    bencher.counter(ItemsCount::new(BURST)).bench_local(|| {
        pool.allocate_into(&mut batch, BURST);
        divan::black_box(&mut batch).clear();
    });
}

/// Each packet is dropped for itself.
#[divan::bench(sample_size = 4096, sample_count = 50)]
fn drained(bencher: Bencher<'_, '_>) {
    let (_slot, pool, mut batch) = (WorkerSlot::claim(), pool(), Batch::new());
    bencher.counter(ItemsCount::new(BURST)).bench_local(|| {
        pool.allocate_into(&mut batch, BURST);
        for packet in divan::black_box(&mut batch).drain() {
            divan::black_box(&packet);
        }
    });
}
