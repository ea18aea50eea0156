//! Crossing between workers is tested where there are several: in the tests of `runtime` and `cli`.

use netbricks_core::ShuffleKey;
use netbricks_testkit::{kinds, run_node};

use super::*;

#[test]
fn a_worker_alone_keeps_everything() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for key in ShuffleKey::ALL {
        let make = move |worker: &Worker| {
            let settings = ShuffleSettings { key, ..Default::default() };
            shuffle(&settings, worker)
        };
        assert_eq!(run_node(make, frames.clone()).out, frames, "{}", key.name());
    }
}
