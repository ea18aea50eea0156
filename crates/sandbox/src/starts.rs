//! When new instances begin: a worker that gets many functions at once sets up few of them between two batches.

use std::cell::Cell;

/// CPU time (ns) that instances of a worker may take to begin at once.
///
/// In one change the others wait for their packets. The last one may take as long as `setup_time` more.
pub(crate) const AT_ONCE: u64 = 2_000_000;
/// The part of the CPU time, as 1 in so many, that changes after one another may take.
const SHARE: u64 = 5;

/// The time that new instances of a worker have taken in changes of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Starts {
    /// The CPU time (ns) of the thread at which all that was taken is paid for.
    paid: u64,
}

thread_local! {
    static STARTS: Cell<Starts> = const { Cell::new(Starts { paid: 0 }) };
}

impl Starts {
    /// Asks or changes those of this thread.
    pub(crate) fn here<T>(with: impl FnOnce(&mut Self) -> T) -> T {
        let mut starts = STARTS.get();
        let answer = with(&mut starts);
        STARTS.set(starts);
        answer
    }

    /// Whether one more may begin while a graph is made, at this CPU time (ns) of the thread.
    pub(crate) fn has_room(&self, cpu: u64) -> bool {
        self.paid.saturating_sub(cpu) < AT_ONCE * (SHARE - 1)
    }

    /// Notes one that began at this CPU time (ns), and the time (ns) that it took.
    pub(crate) fn note(&mut self, cpu: u64, took: u64) {
        self.paid = self.paid.max(cpu).saturating_add(took.saturating_mul(SHARE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_change_wait_once_they_took_their_time() {
        let (mut starts, mut cpu, mut begun) = (Starts::default(), 50_000_000, 0);
        let took = AT_ONCE / 4;
        while starts.has_room(cpu) {
            starts.note(cpu, took);
            cpu += took;
            begun += 1;
        }
        assert_eq!(begun, 4);
        // After five times as long the next change has as much.
        assert!(!starts.has_room(cpu) && starts.has_room(cpu + AT_ONCE * SHARE));
    }
}
