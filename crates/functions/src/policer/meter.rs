//! The meters of RFC 2697, RFC 2698 and RFC 4115: two token buckets, and the colour of each packet.

use netbricks_core::tables::Encode;

use crate::tokens::{TokenRate, size_text};

/// The algorithm of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The single rate three colour marker (RFC 2697).
    ///
    /// Tokens come at the committed rate. What the committed bucket has no room for goes to the excess bucket.
    #[default]
    SingleRate,
    /// The two rate three colour marker (RFC 2698): a packet must also conform to the peak rate.
    TwoRate,
    /// The two rate three colour marker of RFC 4115: the excess bucket has a rate of its own.
    Excess,
}

/// The colour of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colour {
    /// It conforms to the committed rate.
    Green,
    /// It exceeds the committed rate, and conforms to the excess or peak rate.
    Yellow,
    /// It conforms to neither.
    Red,
}

impl Colour {
    /// All colours, best first.
    pub const ALL: [Self; 3] = [Self::Green, Self::Yellow, Self::Red];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Green => "green",
            Self::Yellow => "yellow",
            Self::Red => "red",
        }
    }

    /// The colour that a code point says by its drop precedence, in the classes of RFC 2597.
    ///
    /// Packets of other classes are green: nothing before has coloured them.
    #[inline(always)]
    pub fn of_dscp(dscp: u8) -> Self {
        match (dscp >> 3, dscp & 7) {
            (1..=4, 4) => Self::Yellow,
            (1..=4, 6) => Self::Red,
            _ => Self::Green,
        }
    }

    /// The code point of this colour in assured forwarding class 1 to 4 (RFC 2597, section 6).
    #[inline(always)]
    pub const fn dscp_of_class(self, class: u8) -> u8 {
        class << 3 | (self as u8 + 1) << 1
    }
}

/// The parameters of a meter. All its rates count the same quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Committed information rate.
    pub cir: TokenRate,
    /// Committed burst size (bytes, or packets).
    pub cbs: u64,
    /// The rate of the other bucket: PIR, or EIR. The single rate marker has none, and reads `cir`.
    pub other_rate: TokenRate,
    /// The size of the other bucket: EBS, or PBS (bytes, or packets).
    pub other_size: u64,
}

/// The two buckets of one flow, address or subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Tokens of the committed bucket.
    pub(super) committed: u64,
    /// Tokens of the excess or peak bucket.
    pub(super) other: u64,
    /// When they were last filled (ns).
    pub(super) filled: u64,
}

impl Meter {
    /// Full buckets, as they are for a flow's first packet.
    #[inline(always)]
    pub fn full(&self, now: u64) -> Buckets {
        let counted = self.cir.counted();
        Buckets { committed: counted.full(self.cbs), other: counted.full(self.other_size), filled: now }
    }

    /// The time (ns) after which empty buckets are full.
    ///
    /// A flow that is silent for so long is as good as new.
    pub fn refill(&self) -> u64 {
        let counted = self.cir.counted();
        let (committed, other) = (counted.full(self.cbs), counted.full(self.other_size));
        match self.algorithm {
            Algorithm::SingleRate => self.cir.time(committed).saturating_add(self.cir.time(other)),
            _ => self.cir.time(committed).max(self.other_rate.time(other)),
        }
    }

    /// The name of the other bucket's size in its RFC.
    pub fn other_name(&self) -> &'static str {
        if self.algorithm == Algorithm::TwoRate { "PBS" } else { "EBS" }
    }

    /// Adds the tokens since the buckets were last filled. A time that goes back adds none.
    #[inline(always)]
    fn fill(&self, buckets: &mut Buckets, now: u64) {
        let counted = self.cir.counted();
        let (most, most_other) = (counted.full(self.cbs), counted.full(self.other_size));
        let elapsed = now.saturating_sub(buckets.filled);
        buckets.filled = buckets.filled.max(now);
        // The buckets may have become smaller meanwhile.
        let room = most.saturating_sub(buckets.committed);
        let room_other = most_other.saturating_sub(buckets.other);
        match self.algorithm {
            Algorithm::SingleRate => {
                let came = self.cir.tokens(elapsed, room.saturating_add(room_other));
                buckets.committed += came.min(room);
                buckets.other += (came - came.min(room)).min(room_other);
            }
            Algorithm::TwoRate | Algorithm::Excess => {
                buckets.committed += self.cir.tokens(elapsed, room);
                buckets.other += self.other_rate.tokens(elapsed, room_other);
            }
        }
        buckets.committed = buckets.committed.min(most);
        buckets.other = buckets.other.min(most_other);
    }

    /// The colour of a packet of this length (bytes) at `now` (ns), for which it takes the tokens.
    ///
    /// The packet comes with a colour. In colour-blind mode that is green.
    #[inline(always)]
    pub fn colour(&self, buckets: &mut Buckets, now: u64, bytes: u64, given: Colour) -> Colour {
        self.fill(buckets, now);
        let cost = self.cir.counted().cost(bytes);
        let conforms = given == Colour::Green && buckets.committed >= cost;
        let may_exceed = given != Colour::Red && buckets.other >= cost;
        if self.algorithm == Algorithm::TwoRate {
            // Only packets that conform to the peak rate take tokens, and green ones take them twice.
            if !may_exceed {
                return Colour::Red;
            }
            buckets.other -= cost;
            if !conforms {
                return Colour::Yellow;
            }
            buckets.committed -= cost;
            return Colour::Green;
        }
        if conforms {
            buckets.committed -= cost;
            Colour::Green
        } else if may_exceed {
            buckets.other -= cost;
            Colour::Yellow
        } else {
            Colour::Red
        }
    }

    /// The tokens in the buckets, for a person.
    pub(super) fn show(&self, buckets: &Buckets) -> String {
        let counted = self.cir.counted();
        format!(
            "{} of {} {} left of CBS, {} of {} of {}",
            counted.worth(buckets.committed),
            self.cbs,
            counted.name(),
            counted.worth(buckets.other),
            self.other_size,
            self.other_name()
        )
    }
}

impl std::fmt::Display for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = self.cir.counted();
        let (cbs, other) = (size_text(counted, self.cbs), size_text(counted, self.other_size));
        write!(f, "CIR {}, CBS {cbs}", self.cir)?;
        match self.algorithm {
            Algorithm::SingleRate => write!(f, ", EBS {other}"),
            Algorithm::TwoRate => write!(f, ", PIR {}, PBS {other}", self.other_rate),
            Algorithm::Excess => write!(f, ", EIR {}, EBS {other}", self.other_rate),
        }
    }
}

impl Encode for Buckets {
    const SIZE: usize = 24;
    const VERSION: u16 = 1;
    fn encode(&self, to: &mut [u8]) {
        (self.committed, self.other, self.filled).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let (committed, other, filled) = <(u64, u64, u64)>::decode(from)?;
        Some(Self { committed, other, filled })
    }
}
