//! Worker slots are the process's, so what happens when they run out is tested in a process of its own.

use std::sync::Barrier;
use std::thread;

use netbricks_buffer::{NoWorkerSlot, WorkerSlot};

#[test]
fn slots_run_out_and_come_back() {
    let (all, done) = (&Barrier::new(81), &Barrier::new(81));
    thread::scope(|scope| {
        let claims: Vec<_> = (0..80)
            .map(|_| {
                scope.spawn(move || {
                    let slot = WorkerSlot::claim();
                    all.wait();
                    done.wait();
                    slot.map(|_| ()).err()
                })
            })
            .collect();
        all.wait();
        done.wait();
        let refused = claims.into_iter().filter_map(|claim| claim.join().unwrap());
        let refused: Vec<_> = refused.collect();
        assert_eq!(refused.len(), 16, "64 slots for 80 threads");
        assert!(WorkerSlot::claim().is_ok(), "they came back");
        assert!(refused.iter().all(|error| *error == NoWorkerSlot::Exhausted));
    });
}
