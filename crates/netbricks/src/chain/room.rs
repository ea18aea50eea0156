//! Whether the pool has room for the packets that all tenants' queues may hold.

use crate::config::{Plan, QUEUE};
use crate::diagnostic::Diagnostic;

/// One buffer in so many is left to ports and functions.
const RESERVED: usize = 4;
/// The most `frames` of a file.
const MOST_FRAMES: usize = 1 << 24;

/// The error where tenants' queues could hold so much of the pool that ports have nothing to receive with.
pub(crate) fn overcommitted(plan: &Plan<'_>, workers: usize) -> Option<Diagnostic> {
    let room = |number: usize| {
        let own = |owner: u16| usize::from(owner) == number + 1;
        let queues =
            plan.functions.iter().filter(|function| own(function.owner) && function.name.ends_with(QUEUE));
        queues.count().saturating_mul(plan.tenants[number].settings.queue).saturating_mul(workers)
    };
    let rooms: Vec<usize> = (0..plan.tenants.len()).map(room).collect();
    let all = rooms.iter().fold(0, |sum: usize, room| sum.saturating_add(*room));
    let frames = plan.runtime.frames;
    let (largest, most) = rooms.iter().enumerate().max_by_key(|(_, room)| **room)?;
    if all <= frames - frames / RESERVED {
        return None;
    }
    let tenant = &plan.tenants[largest];
    let of = match workers {
        1 => "one worker".into(),
        several => format!("{several} workers"),
    };
    let needed = all.saturating_mul(RESERVED).div_ceil(RESERVED - 1);
    let help = match needed {
        0..=MOST_FRAMES => format!("make `queue` smaller, or set `frames` in `[runtime]` to {needed}"),
        _ => "make `queue` of some tenants smaller".into(),
    };
    Some(
        Diagnostic::error(format!(
            "the queues of tenants have room for {all} packets on {of}, and the pool has {frames} buffers, of which a quarter \
             is left to ports and functions"
        ))
        .at(tenant.place.clone(), format!("`{}` may hold {most} of them", tenant.name))
        .help(help),
    )
}
