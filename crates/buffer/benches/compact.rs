//! Cost of the loops over a batch, with packets inside the nearest cache (32) and outside it (4,096).
//!
//! Times are of one burst of 32.

use divan::Bencher;
use divan::counter::ItemsCount;
use netbricks_buffer::{Batch, Pool, WorkerSlot};

const BURST: usize = 32;

fn main() {
    divan::main();
}

fn batches(count: usize) -> Vec<Batch> {
    let pool = Pool::builder().frames(32_767).build().expect("memory for the benchmark");
    (0..count)
        .map(|_| {
            let mut batch = Batch::new();
            assert_eq!(pool.allocate_written_into(&mut batch, BURST, &[7; 64]), BURST);
            batch
        })
        .collect()
}

fn round(bencher: Bencher<'_, '_>, count: usize, mut f: impl FnMut(&mut Batch)) {
    let _slot = WorkerSlot::claim();
    let mut batches = batches(count);
    let mut at = 0;
    bencher.counter(ItemsCount::new(BURST)).bench_local(|| {
        at = if at + 1 == batches.len() { 0 } else { at + 1 };
        f(&mut batches[at]);
    });
}

#[divan::bench(args = [1, 128], sample_size = 4096, sample_count = 50)]
fn nothing(bencher: Bencher<'_, '_>, count: usize) {
    round(bencher, count, |batch| batch.each(|_, _| ()));
}

#[divan::bench(args = [1, 128], sample_size = 4096, sample_count = 50)]
fn keep_all(bencher: Bencher<'_, '_>, count: usize) {
    round(bencher, count, |batch| {
        divan::black_box(batch.compact(|_, bytes| u16::from(bytes.len() < 64)));
    });
}

#[divan::bench(args = [1, 128], sample_size = 4096, sample_count = 50)]
fn keep_half(bencher: Bencher<'_, '_>, count: usize) {
    round(bencher, count, |batch| {
        divan::black_box(batch.compact(|slot, _| slot as u16 & 1));
    });
}

#[divan::bench(args = [1, 128], sample_size = 4096, sample_count = 50)]
fn swap_addresses(bencher: Bencher<'_, '_>, count: usize) {
    round(bencher, count, |batch| {
        batch.compact(|_, bytes| {
            let Some(addresses) = bytes.data_mut().first_chunk_mut::<12>() else { return 1 };
            let (to, from) = addresses.split_at_mut(6);
            to.swap_with_slice(from);
            0
        });
    });
}

#[divan::bench(args = [1, 128], sample_size = 4096, sample_count = 50)]
fn swap_addresses_cold(bencher: Bencher<'_, '_>, count: usize) {
    round(bencher, count, |batch| {
        batch.compact(|_, bytes| {
            let Some(addresses) = bytes.data_mut().first_chunk_mut::<12>() else { return 1 };
            let (to, from) = addresses.split_at_mut(6);
            to.swap_with_slice(from);
            0
        });
    });
}
