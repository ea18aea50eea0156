//! Matches of a regular expression, found by following all states of its automaton at once.
//!
//! It takes a step for each state and byte, at most, and no memory but two lists of states. Deterministic automata are
//! faster, but some expressions have none of a reasonable size.

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

use super::work;

/// The lists, which are used again and again.
#[derive(Default)]
pub(super) struct Simulation {
    /// States that are reached, each with the last place from which it is; those that began last come first.
    now: Vec<(StateID, usize)>,
    next: Vec<(StateID, usize)>,
    /// When each state was last reached.
    reached: Vec<u64>,
    step: u64,
    stack: Vec<StateID>,
}

impl Simulation {
    /// Shows each end of a match that begins at `from` or behind it, in order, until `see` answers `false`.
    ///
    /// `see` gets the last place where a match with that end begins, and the end.
    pub(super) fn run(
        &mut self,
        nfa: &NFA,
        bytes: &[u8],
        from: usize,
        see: impl FnMut(usize, usize) -> bool,
    ) {
        self.follow(nfa, bytes, from, |_| false, 0, see);
    }

    /// As [`run`](Self::run) over the bytes behind each of some places, of which `from` is the first.
    ///
    /// At each of them an expression sees a beginning. `is_place` is asked for one position after the other. `see` gets a
    /// place such that the last one up to it has the match.
    pub(super) fn run_behind(
        &mut self,
        nfa: &NFA,
        bytes: &[u8],
        from: usize,
        is_place: impl FnMut(usize) -> bool,
        see: impl FnMut(usize, usize) -> bool,
    ) {
        self.follow(nfa, bytes, from, is_place, 1, see);
    }

    /// Follows all states; a match that begins at a position, but not as at a beginning, counts `earlier` before it.
    fn follow(
        &mut self,
        nfa: &NFA,
        bytes: &[u8],
        from: usize,
        mut is_place: impl FnMut(usize) -> bool,
        earlier: usize,
        mut see: impl FnMut(usize, usize) -> bool,
    ) {
        if self.reached.len() < nfa.states().len() {
            self.reached.resize(nfa.states().len(), 0);
        }
        self.now.clear();
        for at in from.min(bytes.len())..=bytes.len() {
            self.next.clear();
            self.step += 1;
            let mut matched = None;
            let is_beginning = is_place(at);
            if is_beginning {
                self.reach(nfa, &bytes[at..], 0, nfa.start_anchored(), at, &mut matched);
                // Other states follow where the bytes before are seen.
                self.step += 1;
            }
            if at > from || !is_beginning {
                let start = at.saturating_sub(earlier);
                self.reach(nfa, bytes, at, nfa.start_anchored(), start, &mut matched);
            }
            if let Some(byte) = at.checked_sub(1).filter(|_| at > from).map(|before| bytes[before]) {
                let now = std::mem::take(&mut self.now);
                for (state, start) in &now {
                    let next = match nfa.state(*state) {
                        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
                        State::Sparse(transitions) => transitions.matches_byte(byte),
                        State::Dense(transitions) => transitions.matches_byte(byte),
                        _ => None,
                    };
                    if let Some(next) = next {
                        self.reach(nfa, bytes, at, next, *start, &mut matched);
                    }
                }
                self.now = now;
            }
            std::mem::swap(&mut self.now, &mut self.next);
            if let Some(start) = matched
                && !see(start, at)
            {
                return;
            }
        }
    }

    /// Reaches a state at a place, and all that follow it without a byte.
    fn reach(
        &mut self,
        nfa: &NFA,
        bytes: &[u8],
        at: usize,
        state: StateID,
        start: usize,
        matched: &mut Option<usize>,
    ) {
        self.stack.push(state);
        while let Some(state) = self.stack.pop() {
            work::spend(1);
            // It was reached from a later place already.
            if std::mem::replace(&mut self.reached[state.as_usize()], self.step) == self.step {
                continue;
            }
            match nfa.state(state) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => {
                    self.next.push((state, start))
                }
                State::Look { look, next } => {
                    if nfa.look_matcher().matches(*look, bytes, at) {
                        self.stack.push(*next);
                    }
                }
                State::Union { alternates } => self.stack.extend(alternates.iter()),
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt1, *alt2]),
                State::Capture { next, .. } => self.stack.push(*next),
                State::Match { .. } => {
                    matched.get_or_insert(start);
                }
                State::Fail => {}
            }
        }
    }
}
