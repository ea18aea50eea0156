//! Sessions that the operator ends: a part of them at a time, so that packets do not wait for all.

use super::handlers::Filter;
use super::pcp_mappings::Target;
use super::ports::Status;
use super::session::Session;
use super::state::State;

/// Sessions that the call itself ends at most.
const AT_ONCE: usize = 1_024;
/// To end a session takes as much time as a look at so many.
const LOOKS: usize = 16;
/// Calls whose sessions may end at a time.
const MOST: usize = 64;

/// The sessions to end, and what ends with the last of them.
pub(super) enum Chosen {
    /// Those that a filter admits.
    Filter(Filter),
    /// Those of a static mapping, which ends, too.
    Mapping(u32),
    /// Those of outside addresses, which leave; without those of static mappings.
    Addresses(Vec<u16>),
    /// None: lifetimes by PCP that a filter admits.
    Pcp(Filter),
}

/// Sessions that end, and how far that is.
pub(super) struct Purge {
    chosen: Chosen,
    /// Sessions that were made later stay.
    before: u64,
    /// The next session to look at, and the first that was not there.
    next: u32,
    end: u32,
    /// The next mapping by PCP to look at, once all sessions were.
    pcp: u32,
    /// The next subscriber to look at, once all those were.
    subscriber: u32,
}

impl Purge {
    fn takes(&self, state: &State, session: &Session) -> bool {
        // Static mappings keep their address, and their sessions.
        let leaves = |leaving: &[u16]| {
            let mapping = state.mappings.get(session.mapping);
            mapping.is_some_and(|found| found.subscriber.is_some() && leaving.contains(&found.index))
        };
        session.made < self.before
            && match &self.chosen {
                Chosen::Filter(filter) => {
                    filter.admits(session.transport, &[session.inside.address, session.remote.address])
                }
                Chosen::Mapping(number) => session.mapping == *number,
                Chosen::Addresses(leaving) => leaves(leaving),
                Chosen::Pcp(_) => false,
            }
    }

    /// Whether a mapping by PCP is to end.
    fn takes_pcp(&self, state: &State, number: u32) -> bool {
        let Some(asked) = state.pcp.mappings.get(number) else { return false };
        let mapping = match asked.target {
            Target::Mapping(mapping) => Some(mapping),
            Target::Session(session) => state.sessions.get(session).map(|session| session.mapping),
        };
        let Some(found) = mapping.and_then(|mapping| state.mappings.get(mapping)) else { return false };
        match &self.chosen {
            Chosen::Pcp(filter) => filter.admits(found.transport, &[found.inside.address]),
            Chosen::Addresses(leaving) => leaving.contains(&found.index),
            Chosen::Filter(_) | Chosen::Mapping(_) => false,
        }
    }
}

impl State {
    /// Whether another call may end sessions now.
    ///
    /// # Errors
    /// When those of too many calls are not over.
    pub(super) fn may_purge(&self) -> Result<(), String> {
        if self.purges.len() < MOST {
            return Ok(());
        }
        Err(format!("the sessions of {MOST} calls have not all ended: try again in a moment"))
    }

    /// Ends sessions: some now, the others by and by; answers whether all have ended.
    pub(super) fn purge(&mut self, chosen: Chosen) -> bool {
        let is_pcp = matches!(chosen, Chosen::Pcp(_));
        let (before, end) = (self.tally.sessions_made, if is_pcp { 0 } else { self.sessions.end() as u32 });
        self.purges.push_back(Purge { chosen, before, next: 0, end, pcp: 0, subscriber: 0 });
        self.purge_some(AT_ONCE);
        self.purges.is_empty()
    }

    /// Whether sessions are to end.
    pub(super) fn is_purging(&self) -> bool {
        !self.purges.is_empty()
    }

    /// Whether an outside address is being removed.
    pub(super) fn is_leaving(&self, index: u16) -> bool {
        let has =
            |purge: &Purge| matches!(&purge.chosen, Chosen::Addresses(leaving) if leaving.contains(&index));
        self.purges.iter().any(has)
    }

    /// Whether a mapping gets no more sessions, since it ends or its address leaves.
    pub(super) fn is_ending(&self, mapping: u32) -> bool {
        let ends = |purge: &Purge| matches!(purge.chosen, Chosen::Mapping(number) if number == mapping);
        self.purges.iter().any(ends)
            || (self.mappings.get(mapping))
                .is_some_and(|found| found.subscriber.is_some() && self.is_leaving(found.index))
    }

    /// Goes on with sessions that are to end: so many at most, or [`LOOKS`] times as many looks.
    pub(super) fn purge_some(&mut self, budget: usize) {
        let mut left = budget * LOOKS;
        while left > 0
            && let Some(mut purge) = self.purges.pop_front()
        {
            while left > 0 && purge.next < purge.end {
                let number = purge.next;
                (purge.next, left) = (number + 1, left - 1);
                if !self.sessions.get(number).is_some_and(|session| purge.takes(self, session)) {
                    continue;
                }
                left = left.saturating_sub(LOOKS - 1);
                match purge.chosen {
                    Chosen::Filter(_) | Chosen::Pcp(_) => self.end(number),
                    Chosen::Mapping(_) | Chosen::Addresses(_) => self.end_with(number, true),
                }
            }
            if purge.next < purge.end || !self.finish(&mut purge, &mut left) {
                self.purges.push_front(purge);
            }
        }
    }

    /// Ends what sessions belonged to; answers whether that is done.
    fn finish(&mut self, purge: &mut Purge, left: &mut usize) -> bool {
        while matches!(purge.chosen, Chosen::Pcp(_) | Chosen::Addresses(_))
            && (purge.pcp as usize) < self.pcp.mappings.end()
        {
            if *left == 0 {
                return false;
            }
            if purge.takes_pcp(self, purge.pcp) {
                self.pcp_end(purge.pcp, matches!(purge.chosen, Chosen::Addresses(_)));
                *left = left.saturating_sub(LOOKS - 1);
            }
            (purge.pcp, *left) = (purge.pcp + 1, left.saturating_sub(1));
        }
        match &purge.chosen {
            Chosen::Filter(_) | Chosen::Pcp(_) => {}
            Chosen::Mapping(number) => {
                let index = self.mappings.get(*number).map(|found| found.index);
                self.unmap(*number, true);
                index.into_iter().for_each(|index| self.remove_unused(index));
            }
            Chosen::Addresses(leaving) => {
                while (purge.subscriber as usize) < self.subscribers.end() {
                    if *left == 0 {
                        return false;
                    }
                    self.take_blocks(purge.subscriber, leaving);
                    (purge.subscriber, *left) = (purge.subscriber + 1, *left - 1);
                }
                leaving.iter().for_each(|index| self.remove_address(*index));
            }
        }
        true
    }

    /// Takes a subscriber's blocks back where its address leaves: they held ports that were held down.
    fn take_blocks(&mut self, number: u32, leaving: &[u16]) {
        let Some(subscriber) = self.subscribers.get_mut(number) else { return };
        if !leaving.contains(&subscriber.index) {
            return;
        }
        let taken = *subscriber;
        subscriber.blocks_held = 0;
        if let Some(outside) = self.ports.address(taken.index) {
            for block in taken.blocks() {
                // A port of it that is free later must not release it again.
                self.ports.release_block(taken.index, *block);
                let range = self.ports.range_of_block(*block);
                self.log.released(self.now, taken.address, outside, range);
            }
        }
        self.unsubscribe_idle(number);
    }

    /// Takes an outside address out that has no sessions left; static mappings keep it.
    fn remove_address(&mut self, index: u16) {
        let fixed = self.ports.get(index).is_some_and(|place| place.mappings > 0);
        if !fixed {
            return self.ports.remove(index);
        }
        self.ports.free_held_of(index);
        self.ports.get_mut(index).into_iter().for_each(|place| place.status = Status::Fixed);
    }
}

#[cfg(test)]
impl Purge {
    /// One that has one place to look at.
    pub(super) fn of(chosen: Chosen) -> Self {
        Self { chosen, before: 0, next: 0, end: 1, pcp: 0, subscriber: 0 }
    }
}
