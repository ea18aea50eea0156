//! Exports of state that workers share let others read and write between their steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netbricks_core::consistency::{Access, BoundedInconsistency, Consistency, Contents, Shares, Strict};
use netbricks_core::tables::{Changing, FlowTable, FlowTableConfig, MapChange};
use netbricks_core::{Declared, Function, Input, Operator, Worker, compose};

use crate::harness::pool;

const STEPS: usize = 64;

/// How often it was changed; an export says it at each of its steps.
struct Changes(u64);

impl Changing for Changes {
    type Change = ();
    type Outcome = ();
    fn apply(&mut self, (): &()) {
        self.0 += 1;
    }
}

impl Declared for Changes {
    fn export(&self) -> Vec<u8> {
        panic!("it is exported in steps")
    }
    fn import(&mut self, _: &[u8], _: u64) -> Result<(), String> {
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0, u64::MAX)
    }
}

impl Contents for Changes {
    type Config = ();
    fn make((): &()) -> Result<Self, String> {
        Ok(Self(0))
    }
    fn least() -> Self {
        Self(0)
    }
    fn export_step(&self, step: usize, bytes: &mut Vec<u8>) -> Option<usize> {
        bytes.extend(self.0.to_be_bytes());
        (step + 1 < STEPS).then_some(step + 1)
    }
    fn export_end(bytes: &mut Vec<u8>) {
        bytes.push(255);
    }
}

fn declaring<C: Consistency>(input: Input, worker: &Worker, consistency: C) -> impl Function + use<C> {
    drop(worker.state::<Changes, C>("changes", consistency, ()));
    input.done()
}

/// The numbers of changes that the steps of one export saw, some of which came in between.
fn exported_while_others_write<C: Consistency + Copy + Send + 'static>(consistency: C) -> Vec<u64> {
    let (shares, over) = (Shares::default(), Arc::new(AtomicBool::new(false)));
    let writing = {
        let (shares, over) = (shares.clone(), over.clone());
        thread::spawn(move || {
            let state =
                Worker::new(1, 1, pool()).sharing(&shares).state::<Changes, C>("changes", consistency, ());
            while !over.load(Ordering::Relaxed) {
                state.update(()).unwrap();
                thread::yield_now();
            }
        })
    };
    let worker = Worker::new(0, 1, pool()).sharing(&shares);
    let mut node = compose(&worker, |input| declaring(input, &worker, consistency)).unwrap();
    let seen = (0..10_000).find_map(|_| {
        let (_, bytes) = node.export().remove(0);
        let (end, steps) = bytes.split_last().unwrap();
        assert_eq!((*end, steps.len()), (255, 8 * STEPS));
        let seen: Vec<u64> =
            steps.chunks(8).map(|step| u64::from_be_bytes(step.try_into().unwrap())).collect();
        assert!(seen.is_sorted(), "{seen:?}");
        (seen.first() != seen.last()).then_some(seen)
    });
    over.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    seen.unwrap()
}

#[test]
fn others_write_between_the_steps_of_an_export() {
    assert_eq!(exported_while_others_write(Strict).len(), STEPS);
    assert_eq!(exported_while_others_write(BoundedInconsistency { updates: 0 }).len(), STEPS);
}

/// Checks that unchanged state of any size is exported in the form that other versions import.
#[test]
fn a_table_of_many_steps_is_taken_over_whole() {
    type Flows = FlowTable<u64, u64>;
    fn image<C: Consistency>(consistency: C) -> Vec<u8> {
        let worker = Worker::new(0, 1, pool());
        let node = compose(&worker, |input| {
            let flows = worker.state::<Flows, C>("flows", consistency, FlowTableConfig::new(10_000));
            let put = |key| MapChange::Put { key, value: 3 * key, timeout: None, now: 0 };
            flows.update_all((0..10_000).map(put), |_| ()).unwrap();
            input.done()
        });
        node.unwrap().export().remove(0).1
    }
    let own = image(netbricks_core::consistency::NoExternalAccess);
    assert!(own == image(Strict) && own == image(BoundedInconsistency { updates: 5 }));
    let mut flows = Flows::new(FlowTableConfig::new(10_000)).unwrap();
    assert_eq!(flows.decode(&own, 0), Ok(10_000));
    assert!((0..10_000).all(|key| flows.get(&key) == Some(&(3 * key))));
}
