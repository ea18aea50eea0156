//! The option negotiation automaton of PPP's control protocols (RFC 1661, section 4).

/// A state of the automaton, by the RFC's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Initial,
    Starting,
    Closed,
    Stopped,
    Closing,
    Stopping,
    ReqSent,
    AckRcvd,
    AckSent,
    Opened,
}

/// An event of the automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The lower layer is up.
    Up,
    /// The lower layer is down.
    Down,
    Open,
    Close,
    /// The restart timer expired, and the restart counter is greater than zero (TO+).
    Timeout,
    /// The restart timer expired, and the restart counter is zero (TO-).
    LastTimeout,
    /// A Configure-Request came that is acceptable (RCR+).
    GoodRequest,
    /// A Configure-Request came that is not acceptable (RCR-).
    BadRequest,
    /// A Configure-Ack came (RCA).
    Ack,
    /// A Configure-Nak or Configure-Reject came (RCN).
    Nak,
    /// A Terminate-Request came (RTR).
    Terminate,
    /// A Terminate-Ack came (RTA).
    TerminateAck,
    /// A packet with an unknown code came (RUC).
    UnknownCode,
    /// A Code-Reject or Protocol-Reject came that does not matter (RXJ+).
    Reject,
    /// A Code-Reject or Protocol-Reject came that ends the layer (RXJ-).
    FatalReject,
    /// An Echo-Request, an Echo-Reply or a Discard-Request came (RXR).
    Echo,
}

/// A set of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions(u16);

impl Actions {
    pub(super) const NONE: Self = Self(0);
    /// This-Layer-Up.
    pub(super) const TLU: Self = Self(1);
    /// This-Layer-Down.
    pub(super) const TLD: Self = Self(1 << 1);
    /// This-Layer-Started.
    pub(super) const TLS: Self = Self(1 << 2);
    /// This-Layer-Finished.
    pub(super) const TLF: Self = Self(1 << 3);
    /// Initialize-Restart-Count.
    pub(super) const IRC: Self = Self(1 << 4);
    /// Zero-Restart-Count.
    pub(super) const ZRC: Self = Self(1 << 5);
    /// Send-Configure-Request.
    pub(super) const SCR: Self = Self(1 << 6);
    /// Send-Configure-Ack.
    pub(super) const SCA: Self = Self(1 << 7);
    /// Send-Configure-Nak or -Reject.
    pub(super) const SCN: Self = Self(1 << 8);
    /// Send-Terminate-Request.
    pub(super) const STR: Self = Self(1 << 9);
    /// Send-Terminate-Ack.
    pub(super) const STA: Self = Self(1 << 10);
    /// Send-Code-Reject.
    pub(super) const SCJ: Self = Self(1 << 11);
    /// Send-Echo-Reply.
    pub(super) const SER: Self = Self(1 << 12);

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl State {
    /// Whether the restart timer runs (section 4.2).
    pub(super) fn has_timer(self) -> bool {
        matches!(self, Self::Closing | Self::Stopping | Self::ReqSent | Self::AckRcvd | Self::AckSent)
    }

    /// The actions and the next state for an event (section 4.1).
    ///
    /// An event that is illegal in this state changes nothing.
    pub(super) fn step(self, event: Event) -> (Actions, Self) {
        use Event as E;
        match event {
            E::Up | E::Down | E::Open | E::Close => self.administered(event),
            E::Timeout | E::LastTimeout => self.timed_out(event == E::LastTimeout),
            E::GoodRequest | E::BadRequest => self.requested(event == E::GoodRequest),
            E::Ack | E::Nak => self.answered(event == E::Ack),
            _ => self.disturbed(event),
        }
    }

    fn administered(self, event: Event) -> (Actions, Self) {
        use Actions as A;
        use State::*;
        let begin = A::IRC.and(A::SCR);
        let end = A::IRC.and(A::STR);
        match (event, self) {
            (Event::Up, Initial) => (A::NONE, Closed),
            (Event::Up, Starting) => (begin, ReqSent),
            (Event::Down, Closed | Closing) => (A::NONE, Initial),
            (Event::Down, Stopped) => (A::TLS, Starting),
            (Event::Down, Stopping | ReqSent | AckRcvd | AckSent) => (A::NONE, Starting),
            (Event::Down, Opened) => (A::TLD, Starting),
            (Event::Open, Initial) => (A::TLS, Starting),
            (Event::Open, Closed) => (begin, ReqSent),
            (Event::Open, Closing) => (A::NONE, Stopping),
            (Event::Close, Starting) => (A::TLF, Initial),
            (Event::Close, Stopped) => (A::NONE, Closed),
            (Event::Close, Stopping) => (A::NONE, Closing),
            (Event::Close, ReqSent | AckRcvd | AckSent) => (end, Closing),
            (Event::Close, Opened) => (A::TLD.and(end), Closing),
            _ => (A::NONE, self),
        }
    }

    fn timed_out(self, is_last: bool) -> (Actions, Self) {
        use Actions as A;
        use State::*;
        match (self, is_last) {
            (Closing | Stopping, false) => (A::STR, self),
            (ReqSent | AckRcvd, false) => (A::SCR, ReqSent),
            (AckSent, false) => (A::SCR, AckSent),
            (Closing, true) => (A::TLF, Closed),
            (Stopping | ReqSent | AckRcvd | AckSent, true) => (A::TLF, Stopped),
            _ => (A::NONE, self),
        }
    }

    fn requested(self, is_good: bool) -> (Actions, Self) {
        use Actions as A;
        use State::*;
        let answer = if is_good { A::SCA } else { A::SCN };
        let after = if is_good { AckSent } else { ReqSent };
        match self {
            Closed => (A::STA, Closed),
            Stopped => (A::IRC.and(A::SCR).and(answer), after),
            ReqSent | AckSent => (answer, after),
            AckRcvd if is_good => (answer.and(A::TLU), Opened),
            AckRcvd => (answer, AckRcvd),
            Opened => (A::TLD.and(A::SCR).and(answer), after),
            Initial | Starting | Closing | Stopping => (A::NONE, self),
        }
    }

    fn answered(self, is_ack: bool) -> (Actions, Self) {
        use Actions as A;
        use State::*;
        match self {
            Closed | Stopped => (A::STA, self),
            ReqSent if is_ack => (A::IRC, AckRcvd),
            ReqSent => (A::IRC.and(A::SCR), ReqSent),
            AckRcvd => (A::SCR, ReqSent),
            AckSent if is_ack => (A::IRC.and(A::TLU), Opened),
            AckSent => (A::IRC.and(A::SCR), AckSent),
            Opened => (A::TLD.and(A::SCR), ReqSent),
            Initial | Starting | Closing | Stopping => (A::NONE, self),
        }
    }

    fn disturbed(self, event: Event) -> (Actions, Self) {
        use Actions as A;
        use State::*;
        match (event, self) {
            (_, Initial | Starting) => (A::NONE, self),
            (Event::Terminate, ReqSent | AckRcvd | AckSent) => (A::STA, ReqSent),
            (Event::Terminate, Opened) => (A::TLD.and(A::ZRC).and(A::STA), Stopping),
            (Event::Terminate, _) => (A::STA, self),
            (Event::TerminateAck, Closing) => (A::TLF, Closed),
            (Event::TerminateAck, Stopping) => (A::TLF, Stopped),
            (Event::TerminateAck, AckRcvd) => (A::NONE, ReqSent),
            (Event::TerminateAck, Opened) => (A::TLD.and(A::SCR), ReqSent),
            (Event::UnknownCode, _) => (A::SCJ, self),
            (Event::Reject, AckRcvd) => (A::NONE, ReqSent),
            (Event::FatalReject, Closed | Closing) => (A::TLF, Closed),
            (Event::FatalReject, Opened) => (A::TLD.and(A::IRC).and(A::STR), Stopping),
            (Event::FatalReject, _) => (A::TLF, Stopped),
            (Event::Echo, Opened) => (A::SER, Opened),
            _ => (A::NONE, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 1661, section 4.1, without footnotes: a line for each event, a cell for each state.
    const TABLE: &str = "
        Up   2      irc,scr/6 -        -               -     -     -         -         -         -
        Down -      -         0        tls/1           0     1     1         1         1         tld/1
        Open tls/1  1         irc,scr/6 3              5     5     6         7         8         9
        Close 0     tlf/0     2        2               4     4     irc,str/4 irc,str/4 irc,str/4 tld,irc,str/4
        TO+  -      -         -        -               str/4 str/5 scr/6     scr/6     scr/8     -
        TO-  -      -         -        -               tlf/2 tlf/3 tlf/3     tlf/3     tlf/3     -
        RCR+ -      -         sta/2    irc,scr,sca/8   4     5     sca/8     sca,tlu/9 sca/8     tld,scr,sca/8
        RCR- -      -         sta/2    irc,scr,scn/6   4     5     scn/6     scn/7     scn/6     tld,scr,scn/6
        RCA  -      -         sta/2    sta/3           4     5     irc/7     scr/6     irc,tlu/9 tld,scr/6
        RCN  -      -         sta/2    sta/3           4     5     irc,scr/6 scr/6     irc,scr/8 tld,scr/6
        RTR  -      -         sta/2    sta/3           sta/4 sta/5 sta/6     sta/6     sta/6     tld,zrc,sta/5
        RTA  -      -         2        3               tlf/2 tlf/3 6         6         8         tld,scr/6
        RUC  -      -         scj/2    scj/3           scj/4 scj/5 scj/6     scj/7     scj/8     scj/9
        RXJ+ -      -         2        3               4     5     6         6         8         9
        RXJ- -      -         tlf/2    tlf/3           tlf/2 tlf/3 tlf/3     tlf/3     tlf/3     tld,irc,str/5
        RXR  -      -         2        3               4     5     6         7         8         ser/9";

    const STATES: [State; 10] = [
        State::Initial,
        State::Starting,
        State::Closed,
        State::Stopped,
        State::Closing,
        State::Stopping,
        State::ReqSent,
        State::AckRcvd,
        State::AckSent,
        State::Opened,
    ];
    const EVENTS: [Event; 16] = [
        Event::Up,
        Event::Down,
        Event::Open,
        Event::Close,
        Event::Timeout,
        Event::LastTimeout,
        Event::GoodRequest,
        Event::BadRequest,
        Event::Ack,
        Event::Nak,
        Event::Terminate,
        Event::TerminateAck,
        Event::UnknownCode,
        Event::Reject,
        Event::FatalReject,
        Event::Echo,
    ];

    fn action(name: &str) -> Actions {
        match name {
            "tlu" => Actions::TLU,
            "tld" => Actions::TLD,
            "tls" => Actions::TLS,
            "tlf" => Actions::TLF,
            "irc" => Actions::IRC,
            "zrc" => Actions::ZRC,
            "scr" => Actions::SCR,
            "sca" => Actions::SCA,
            "scn" => Actions::SCN,
            "str" => Actions::STR,
            "sta" => Actions::STA,
            "scj" => Actions::SCJ,
            "ser" => Actions::SER,
            other => panic!("no action {other}"),
        }
    }

    #[test]
    fn each_transition_is_that_of_the_table() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(lines.len(), EVENTS.len());
        for (line, event) in lines.iter().zip(EVENTS) {
            let cells: Vec<&str> = line.split_whitespace().skip(1).collect();
            assert_eq!(cells.len(), STATES.len(), "{line}");
            for (cell, state) in cells.iter().zip(STATES) {
                let (actions, next) = match cell.split_once('/') {
                    _ if *cell == "-" => ("", None),
                    Some((actions, next)) => (actions, Some(next)),
                    None => ("", Some(*cell)),
                };
                let actions = actions
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .fold(Actions::NONE, |all, name| all.and(action(name)));
                let next = next.map_or(state, |next| STATES[next.parse::<usize>().expect("a number")]);
                assert_eq!(state.step(event), (actions, next), "{event:?} in {state:?}");
            }
        }
    }
}
