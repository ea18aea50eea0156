//! Checks of bytes as a module, and as acts of a module on its batch, for fuzz targets and tests.

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::units::Duration;
use netbricks_core::{DetachedContext, Worker};
use netbricks_sandbox::{SandboxSettings, node};

/// Packets of a batch.
const PACKETS: usize = 20;
const SECOND: u64 = 1_000_000_000;

/// Takes bytes as a module. Answers whether it was taken.
///
/// # Panics
/// Where a packet is lost or counted twice, or a frame does not return to its pool.
pub fn module(bytes: &[u8]) -> bool {
    let mut settings = SandboxSettings::of(bytes);
    settings.compile_time = Duration::from_nanoseconds(20 * SECOND);
    let taken = settings.inspect().problems.is_empty();
    if taken {
        run(&settings, "");
    }
    taken
}

/// Takes bytes as a script of what a module does to its batch, with host calls and without.
///
/// # Panics
/// As [`module`].
pub fn script(interpreter: &[u8], script: &[u8]) {
    for mode in ["copy", "mapped"] {
        let mut settings = SandboxSettings::of(interpreter);
        // The configuration is text: two letters for each byte.
        settings.config =
            Some(script.iter().take(2_048).flat_map(|byte| [byte >> 4, byte & 15]).map(letter).collect());
        run(&settings, mode);
    }
}

fn letter(nibble: u8) -> char {
    char::from(b'a' + nibble)
}

/// Sends a few batches through the function.
fn run(settings: &SandboxSettings, mode: &str) {
    let pool = Pool::builder().frames(256).build().expect("a small pool fits into memory");
    let mut settings = settings.clone();
    if mode == "mapped" {
        settings.mode = netbricks_sandbox::Mode::Mapped;
        settings.frames = 256;
    }
    let Ok(mut node) = node(&settings, &Worker::new(0, 1, pool.clone())) else { return };
    {
        let mut cx = DetachedContext::new(pool.clone());
        let mut batch = Batch::new();
        for round in 0..4 {
            for number in 0..PACKETS {
                let frame: Vec<u8> = (0..14 + number * 70).map(|byte| (byte * 7 + round) as u8).collect();
                let packet = pool.packet(&frame).expect("the pool is larger than a batch");
                assert!(batch.push(packet).is_ok(), "a batch has room");
            }
            cx.advance(SECOND * (1 + 30 * round as u64));
            node.process(0, &mut batch, &mut cx);
            let dropped: u64 = cx.take_drops().iter().map(|(_, count)| count.packets).sum();
            // Others have left by the way out `reply`.
            assert!(batch.len() as u64 + dropped <= PACKETS as u64, "packets from nowhere");
            for packet in batch.iter() {
                assert_eq!(packet.len(), packet.data().len());
            }
            batch.clear();
        }
    }
    drop(node);
    assert_eq!(pool.available(), pool.capacity(), "packets leaked");
}
