//! Checks that a history of concurrent operations is linearizable (Herlihy and Wing, TOPLAS 12, 1990).
//!
//! The search is that of Wing and Gong, J. Parallel Distrib. Comput. 17, 1993.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// One operation of one thread, with its times by a clock that never shows the same number twice.
#[derive(Clone, Debug)]
pub struct Operation<I, O> {
    /// The time before it began.
    pub called: u64,
    /// The time after it ended.
    pub returned: u64,
    /// The operation's argument.
    pub input: I,
    /// The operation's result.
    pub output: O,
}

/// Does `work` and records its times, by a clock that all threads of the history share.
pub fn record<I, O>(clock: &AtomicU64, input: I, work: impl FnOnce(&I) -> O) -> Operation<I, O> {
    let called = clock.fetch_add(1, Ordering::SeqCst);
    let output = work(&input);
    Operation { called, returned: clock.fetch_add(1, Ordering::SeqCst), input, output }
}

/// Whether the operations, in some order, give all their results, starting from `initial`.
///
/// Each operation takes effect at one time between its start and its end; `apply` gives its result.
///
/// # Panics
/// For more than 64 operations.
pub fn linearizable<S, I, O>(initial: S, history: &[Operation<I, O>], apply: impl Fn(&mut S, &I) -> O) -> bool
where
    S: Clone + Eq + Hash,
    O: PartialEq,
{
    assert!(history.len() <= 64, "a history of {} operations, but at most 64 are searched", history.len());
    let all = (0..history.len()).fold(0u64, |all, at| all | 1 << at);
    let mut open = vec![(0u64, initial)];
    let mut known = HashSet::new();
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        let left = || (0..history.len()).filter(|at| done & 1 << at == 0);
        // An operation that began after another one had ended cannot come first.
        let first_end = left().map(|at| history[at].returned).min().unwrap_or(u64::MAX);
        for at in left().filter(|at| history[*at].called < first_end) {
            let mut next = state.clone();
            if apply(&mut next, &history[at].input) == history[at].output {
                let step = (done | 1 << at, next);
                if known.insert(step.clone()) {
                    open.push(step);
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Some` writes, `None` reads; both return the present value.
    fn register(history: &[(u64, u64, Option<u8>, u8)]) -> bool {
        let history: Vec<_> = history
            .iter()
            .map(|(called, returned, input, output)| Operation {
                called: *called,
                returned: *returned,
                input: *input,
                output: *output,
            })
            .collect();
        linearizable(0u8, &history, |state, input| {
            *state = input.unwrap_or(*state);
            *state
        })
    }

    #[test]
    fn known_histories_are_judged_rightly() {
        assert!(register(&[]));
        // A read beside a write may see the old or the new value.
        assert!(register(&[(0, 3, Some(1), 1), (1, 2, None, 0)]));
        assert!(register(&[(0, 3, Some(1), 1), (1, 2, None, 1)]));
        // A read after a write sees the new value.
        assert!(!register(&[(0, 1, Some(1), 1), (2, 3, None, 0)]));
        // Time does not go back: new, then old, beside one write.
        assert!(!register(&[(0, 5, Some(1), 1), (1, 2, None, 1), (3, 4, None, 0)]));
        // Two readers that see two writes in different orders (IRIW).
        assert!(!register(&[
            (0, 9, Some(1), 1),
            (1, 8, Some(2), 2),
            (2, 3, None, 1),
            (4, 5, None, 2),
            (6, 7, None, 1),
        ]));
    }
}
