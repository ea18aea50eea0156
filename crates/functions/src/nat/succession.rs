//! Translations go on in the translator that replaces theirs: as they are where its settings allow that.
//!
//! A million sessions are handed on by pointer then. Settings that only say what becomes of new packets are the new
//! translator's; other timeouts set the sessions' timers again, a bounded number at a time.

use std::sync::Arc;

use netbricks_core::{StateTerms, Succession};

use super::config::{Filtering, NatConfig};
use super::pcp_mappings::Pcp;
use super::spec::{PoolRange, Prefix, Static};
use super::state::State;
use super::timeouts::Timeouts;

/// Sessions whose timers are set between two rounds of packets.
const STEP: usize = 512;

/// The fate of sessions whose outside port, address or block the new tables cannot give them.
const UNFIT: &str = "sessions that do not fit in end, and `sessions_not_admitted` of `counters` counts them";

/// The settings that decide the form of the tables, and what is in them before the first packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ground {
    inside: Vec<Prefix>,
    pool: Vec<PoolRange>,
    fixed: Vec<Static>,
    /// Whether the remote addresses of mappings are counted.
    counts_contacts: bool,
    parity: bool,
    block: u16,
    blocks: u8,
    deterministic: bool,
    subscriber_v6: u8,
    capacity: usize,
    pcp_mappings: usize,
    parts: u32,
}

impl Ground {
    pub(super) fn new(config: &NatConfig) -> Self {
        Self {
            inside: config.inside.clone(),
            pool: config.pool.clone(),
            fixed: config.fixed.clone(),
            counts_contacts: config.filtering == Filtering::AddressDependent,
            parity: config.parity,
            block: config.block,
            blocks: config.blocks,
            deterministic: config.deterministic,
            subscriber_v6: config.subscriber_v6,
            capacity: config.capacity,
            pcp_mappings: Pcp::capacity(config, false),
            parts: config.parts,
        }
    }

    /// The first key whose value is another.
    fn differs(&self, before: &Self) -> Option<&'static str> {
        let keys = [
            ("capacity", self.capacity != before.capacity),
            ("pool", self.pool != before.pool),
            ("static", self.fixed != before.fixed),
            ("inside", self.inside != before.inside),
            ("filtering", self.counts_contacts != before.counts_contacts),
            ("pcp_mappings", self.pcp_mappings != before.pcp_mappings),
            ("parts", self.parts != before.parts),
            ("subscriber_v6", self.subscriber_v6 != before.subscriber_v6),
            ("parity", self.parity != before.parity),
            ("block", self.block != before.block),
            ("blocks", self.blocks != before.blocks),
            ("deterministic", self.deterministic != before.deterministic),
        ];
        keys.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }
}

/// The terms on which translations go on as they are.
struct Settled {
    ground: Arc<Ground>,
    timeouts: Timeouts,
    /// Whether handlers have changed the pool or static mappings.
    is_altered: bool,
}

impl State {
    pub(super) fn state_terms(&self, terms: StateTerms) -> StateTerms {
        let Self { ground, timeouts, is_altered, .. } = self;
        terms.with(Settled { ground: ground.clone(), timeouts: *timeouts, is_altered: *is_altered })
    }

    pub(super) fn decide(&self, before: &StateTerms) -> Succession {
        let copied = |reason: &str| Succession::copied_into(self.capacity as u64, before, reason);
        match before.get::<Settled>() {
            _ if !before.is_of::<Self>() => Succession::unlike(),
            None => copied("its terms are not known"),
            Some(_) if self.sessions.len() > 0 => copied("there are sessions already"),
            Some(Settled { is_altered: true, .. }) => {
                copied(&format!("handlers changed its pool or static mappings: {UNFIT}"))
            }
            Some(settled) => match self.ground.differs(&settled.ground) {
                Some(key @ ("capacity" | "filtering")) => copied(&format!("`{key}` is another")),
                Some(key) => copied(&format!("`{key}` is another: {UNFIT}")),
                None if settled.timeouts == self.timeouts => Succession::whole(),
                None => Succession::in_steps("its timers are set again by other timeouts"),
            },
        }
    }

    /// Goes on with all translations of another state, whose settings allow that.
    pub(super) fn continue_with(&mut self, old: &mut Self) {
        std::mem::swap(self, old);
        // Settings that say what becomes of new packets are those of the new translator.
        let Self { timeouts, limits, filtering, pooling, .. } = old;
        if self.timeouts != *timeouts {
            self.next_timer = Some(0);
        }
        (self.timeouts, self.limits, self.filtering, self.pooling) =
            (*timeouts, *limits, *filtering, *pooling);
        self.ports.hold_like(&old.ports);
        self.pcp.give_like(&old.pcp);
        if !self.log.is_like(&old.log) {
            old.log.follow(&mut self.log);
            std::mem::swap(&mut self.log, &mut old.log);
        }
        if self.identifications.is_some() != old.identifications.is_some() {
            std::mem::swap(&mut self.identifications, &mut old.identifications);
        }
    }

    /// Sets the timers of some sessions again; answers whether there are more.
    pub(super) fn set_timers_on(&mut self) -> bool {
        let Some(next) = self.next_timer else { return false };
        let last = self.sessions.end();
        let end = last.min(next.saturating_add(STEP));
        (next as u32..end as u32).for_each(|number| self.reset_timer(number));
        self.next_timer = (end < last).then_some(end);
        self.next_timer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::{Declared, Way};

    use super::super::session::Phase;
    use super::super::spec::{Endpoint, Transport};
    use super::super::state::NewSession;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn state(more: &str) -> State {
        let text = format!("inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.0/30\"]\n{more}");
        State::new(&toml::from_str(&text).unwrap(), 1, false).unwrap()
    }

    /// A state with so many sessions by UDP.
    fn full(more: &str, sessions: u16) -> State {
        let mut state = state(more);
        for number in 0..sessions {
            let inside = Endpoint { address: [10, 0, 0, 1].into(), port: 1_024 + number };
            let remote = Endpoint { address: [198, 51, 100, 1].into(), port: 53 };
            let (seen, transport, phase) = (remote, Transport::Udp, Phase::Established);
            state.open(NewSession { inside, seen, remote, transport, phase }, None).unwrap();
        }
        state
    }

    fn way(from: &State, to: &State) -> (Way, String) {
        let succession = to.succession(&from.terms());
        (succession.way, succession.reason)
    }

    #[test]
    fn translations_are_handed_on_where_the_form_stays() {
        let mut from = full("capacity = 100", 3);
        let mut to =
            state("capacity = 100\nmtu = 1_400\nlog = 9\nhold_down = \"1 s\"\nsubscriber_sessions = 3");
        assert_eq!(way(&from, &to), (Way::Whole, String::new()));
        assert!(to.take_over(&mut from));
        assert_eq!((to.sessions.len(), to.mappings.len(), to.subscribers.len()), (3, 3, 1));
        assert_eq!(from.sessions.len(), 0);
        assert!(!to.move_on());
        // The limit is the new one.
        let inside = Endpoint { address: [10, 0, 0, 1].into(), port: 9_000 };
        let remote = Endpoint { address: [198, 51, 100, 1].into(), port: 53 };
        let (seen, transport, phase) = (remote, Transport::Udp, Phase::Established);
        let limited = to.open(NewSession { inside, seen, remote, transport, phase }, None);
        assert_eq!(limited, Err(netbricks_core::DropReason::SubscriberLimit));
    }

    #[test]
    fn timers_are_set_again_in_steps_where_timeouts_differ() {
        let mut from = full("capacity = 2_000\nudp = \"1 h\"", 1_500);
        let mut to = state("capacity = 2_000\nudp = \"10 s\"");
        assert_eq!(way(&from, &to).0, Way::InSteps);
        assert!(to.take_over(&mut from));
        let mut steps = 1;
        while to.move_on() {
            steps += 1;
        }
        assert_eq!((steps, to.sessions.len()), (3, 1_500));
        to.expire_all(5 * SECOND);
        assert_eq!(to.sessions.len(), 1_500);
        to.expire_all(11 * SECOND);
        assert_eq!((to.sessions.len(), to.tally.expired), (0, 1_500));
    }

    #[test]
    fn other_timeouts_count_from_the_last_packet_of_each_session() {
        for (way, capacity) in [(Way::InSteps, 100), (Way::Copied, 200)] {
            for (udp, over) in [("2 h", 7_200), ("3 h", 10_800), ("1 h", 7_140)] {
                let mut from = full("capacity = 100\nudp = \"2 h\"", 3);
                // They are idle for 1 h 59.
                from.expire_all(7_140 * SECOND);
                let mut to = state(&format!("capacity = {capacity}\nudp = \"{udp}\"\nicmp = \"9 s\""));
                assert_eq!(self::way(&from, &to).0, way);
                if way == Way::Copied {
                    to.import(&from.export(), 7_140 * SECOND).unwrap();
                } else {
                    assert!(to.take_over(&mut from));
                    while to.move_on() {}
                }
                assert_eq!(to.sessions.len(), 3, "{udp}: {way:?}");
                to.expire_all((over - 1) * SECOND);
                assert_eq!(to.sessions.len(), 3, "{udp}: {way:?}");
                to.expire_all((over + 1) * SECOND);
                assert_eq!(to.sessions.len(), 0, "{udp}: {way:?}");
            }
        }
    }

    #[test]
    fn a_log_of_another_size_goes_on_with_its_last_events() {
        let shown = |state: &State, after| -> Vec<String> {
            let lines = state.log.lines(after);
            lines.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
        };
        let mut from = state("capacity = 100\nlog = 10");
        for second in 0..6 {
            from.log.exhausted(second * SECOND, None);
        }
        for (log, expected) in [(3, vec!["5", "6", "7"]), (20, vec!["5", "6", "7", "8"])] {
            let mut to = state(&format!("capacity = 100\nlog = {log}"));
            assert_eq!(way(&from, &to).0, Way::Whole);
            assert!(to.take_over(&mut from));
            let next = if log == 3 { 6 } else { 7 };
            to.log.exhausted(next * SECOND, None);
            assert_eq!(shown(&to, 0), expected, "{log}");
            from = to;
        }
    }

    #[test]
    fn another_form_is_copied_as_far_as_there_is_room() {
        let from = full("capacity = 100", 3);
        let cases = [
            ("capacity = 200", Way::Copied, "`capacity` is another"),
            ("capacity = 2", Way::Anew, "there is room for 2 of 3 entries"),
            ("capacity = 100\nparity = true", Way::Copied, "`parity` is another: …"),
            ("capacity = 100\nblock = 512", Way::Copied, "`block` is another: …"),
            ("capacity = 100\nblocks = 2", Way::Copied, "`blocks` is another: …"),
            ("capacity = 100\nfiltering = \"address-dependent\"", Way::Copied, "`filtering` is another"),
            (
                "capacity = 100\nstatic = [\"tcp 203.0.113.9:80 -> 10.0.0.9:80\"]",
                Way::Copied,
                "`static` is another: …",
            ),
        ];
        for (more, expected, reason) in cases {
            let mut to = state(more);
            assert_eq!(way(&from, &to), (expected, reason.replace('…', UNFIT)), "{more}");
            let fits = to.import(&from.export(), 1).is_ok();
            assert_eq!(fits, expected == Way::Copied, "{more}");
            assert_eq!(to.sessions.len(), if fits { 3 } else { 0 }, "{more}");
        }
        let mut from = full("capacity = 100", 3);
        from.is_altered = true;
        assert_eq!(way(&from, &state("capacity = 100")).0, Way::Copied);
        assert!(!state("capacity = 100").take_over(&mut from));
        assert_eq!(from.sessions.len(), 3);
    }
}
