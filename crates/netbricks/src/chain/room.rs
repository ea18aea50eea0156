//! Whether the pool has room for the packets that all tenants' queues may hold.

use crate::config::{Plan, RuntimeSettings};
use crate::diagnostic::Diagnostic;

/// One buffer in so many is left to ports and functions.
const RESERVED: usize = 4;
/// The most `frames` of a file.
const MOST_FRAMES: usize = 1 << 24;
/// The most buffers of a pool whose file gives no number: 320 MiB with the short ones.
const MOST_AUTOMATIC: usize = 1 << 17;

impl Plan<'_> {
    /// Packets that each tenant's queues and functions have room for on so many workers.
    fn queued(&self, workers: usize) -> Vec<usize> {
        self.tenants.iter().map(|tenant| tenant.room.saturating_mul(workers)).collect()
    }

    /// Buffers of the pool: those of the file, or else the default, and more where tenants' queues need more.
    pub(crate) fn frames(&self, workers: usize) -> usize {
        let (set, default) = (self.runtime.frames, RuntimeSettings::default().frames);
        match set == default {
            true => needed(sum(&self.queued(workers))).clamp(default, MOST_AUTOMATIC),
            false => set,
        }
    }
}

fn sum(rooms: &[usize]) -> usize {
    rooms.iter().fold(0, |sum, room| sum.saturating_add(*room))
}

/// The buffers of a pool in which queues may hold so many packets.
fn needed(queued: usize) -> usize {
    queued.saturating_mul(RESERVED).div_ceil(RESERVED - 1)
}

/// The error where tenants' queues could hold so much of the pool that ports have nothing to receive with.
///
/// `frames` is how many buffers the pool has, or will have.
pub(crate) fn overcommitted(plan: &Plan<'_>, workers: usize, frames: usize) -> Option<Diagnostic> {
    let rooms = plan.queued(workers);
    let all = sum(&rooms);
    let (largest, most) = rooms.iter().enumerate().max_by_key(|(_, room)| **room)?;
    if all <= frames - frames / RESERVED {
        return None;
    }
    let tenant = &plan.tenants[largest];
    let of = match workers {
        1 => "one worker".into(),
        several => format!("{several} workers"),
    };
    let help = match needed(all) {
        needed if needed <= plan.frames(workers) => {
            "make the queues smaller, or stop the run and start it with this file: a pool cannot grow while packets move"
                .into()
        }
        needed @ 0..=MOST_FRAMES => format!("make the queues smaller, or set `frames` in `[runtime]` to {needed}"),
        _ => "make the queues of some tenants smaller".into(),
    };
    Some(
        Diagnostic::error(format!(
            "the queues and functions of tenants have room for {all} packets on {of}, and the pool has {frames} buffers, of which a quarter \
             is left to ports and functions"
        ))
        .at(tenant.place.clone(), format!("`{}` may hold {most} of them", tenant.name))
        .help(help),
    )
}
