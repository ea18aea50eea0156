//! The token bucket of a shaper, which all workers share: a packet reserves its tokens, and so learns its time.

use netbricks_core::consistency::{Contents, StrictState};
use netbricks_core::sealed::{damaged, open, seal};
use netbricks_core::tables::Changing;
use netbricks_core::units::{Bytes, UnitError};
use netbricks_core::{Declared, Handler, Worker};

use crate::tokens::{LARGEST, TokenRate, size_text};

/// The rate and the burst size (bytes, or packets where the rate is in packets).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) rate: TokenRate,
    pub(super) burst: u64,
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rate {}, burst {}", self.rate, size_text(self.rate.counted(), self.burst))
    }
}

/// The bucket.
pub(super) struct Bucket {
    pace: Pace,
    /// The pace of the configuration.
    first: Pace,
    /// Tokens; less than 0 where packets have reserved some that are still to come.
    tokens: i64,
    /// When it was last filled (ns).
    filled: u64,
}

impl Bucket {
    /// Takes the tokens of a packet at `now` (ns), and answers when they are there (ns).
    ///
    /// Packets that leave at these times are never more than the burst and what the rate brings, over any
    /// interval. A packet larger than the burst waits until the rate has brought the rest.
    pub(super) fn reserve(&mut self, now: u64, bytes: u64) -> u64 {
        let counted = self.pace.rate.counted();
        let now = now.max(self.filled);
        let most = counted.full(self.pace.burst) as i64;
        let room = most.saturating_sub(self.tokens).max(0) as u64;
        let came = self.pace.rate.tokens(now - self.filled, room);
        // More than the burst is there only after the burst became smaller.
        self.tokens = self.tokens.saturating_add_unsigned(came).min(most);
        self.filled = now;
        self.tokens = self.tokens.saturating_sub_unsigned(counted.cost(bytes));
        if self.tokens >= 0 {
            return now;
        }
        now.saturating_add(self.pace.rate.time(self.tokens.unsigned_abs()))
    }
}

impl Changing for Bucket {
    type Change = Pace;
    type Outcome = ();
    fn apply(&mut self, pace: &Pace) {
        self.pace = *pace;
    }
}

impl Contents for Bucket {
    type Config = Pace;
    /// Another pace in the file counts more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(pace: &Pace) -> Result<Self, String> {
        let tokens = pace.rate.counted().full(pace.burst) as i64;
        Ok(Self { pace: *pace, first: *pace, tokens, filled: 0 })
    }
    fn least() -> Self {
        let pace = Pace { rate: TokenRate::bits(1), burst: 0 };
        Self { pace, first: pace, tokens: 0, filled: 0 }
    }
}

const FORMAT: &str = "shaper-bucket-1";
const SEED: u64 = 0x7368_6170_6572_0001;

/// The format is lines: the configuration's pace, the present rate, burst, tokens and time, and a checksum.
impl Declared for Bucket {
    fn export(&self) -> Vec<u8> {
        let Self { pace, first, tokens, filled } = self;
        seal(format!("{FORMAT} {first}\n{}\n{}\n{tokens}\n{filled}\n", pace.rate, pace.burst), SEED)
    }
    /// Takes over the bucket, unless the configuration has named another pace since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let damaged = || damaged("tokens");
        let (first, lines) = open(bytes, SEED, FORMAT, "tokens")?;
        let mut lines = lines.lines();
        let mut line = || lines.next().ok_or_else(damaged);
        let rate: TokenRate = line()?.parse()?;
        let burst = line()?.parse().map_err(|_| damaged())?;
        let tokens = line()?.parse().map_err(|_| damaged())?;
        let filled = line()?.parse().map_err(|_| damaged())?;
        if first == self.first.to_string() {
            *self = Self { pace: Pace { rate, burst }, first: self.first, tokens, filled };
        }
        Ok(())
    }
    fn is_written(&self) -> bool {
        true
    }
    fn occupancy(&self) -> (u64, u64) {
        let counted = self.pace.rate.counted();
        (counted.worth(u64::try_from(self.tokens).unwrap_or(0)), self.pace.burst)
    }
}

/// The pace with a change, such as `rate 10 Mbit/s`.
fn changed(pace: Pace, change: &str) -> Result<Pace, String> {
    let expected = || format!("expected `rate 10 Mbit/s` or `burst 64 KiB`, found `{change}`");
    match change.trim().split_once(char::is_whitespace) {
        Some(("rate", text)) => {
            let rate: TokenRate = text.trim().parse()?;
            if rate.counted() != pace.rate.counted() {
                return Err(format!("the burst counts {}: give a rate of those", pace.rate.counted().name()));
            }
            Ok(Pace { rate, ..pace })
        }
        Some(("burst", text)) => {
            let size: Bytes = text.trim().parse().map_err(|error: UnitError| error.to_string())?;
            match size.bytes() {
                burst @ 1..=LARGEST => Ok(Pace { burst, ..pace }),
                other => Err(format!("a burst is 1 to {LARGEST}, found {other}")),
            }
        }
        _ => Err(expected()),
    }
}

/// Declares the handlers that show and change the pace.
pub(super) fn declare(bucket: &StrictState<Bucket>, worker: &Worker) {
    use netbricks_core::consistency::Access;
    let shown = Handler::read("pace", "The rate and the burst size.");
    worker.handler_of(bucket, shown, |bucket, _| Ok(bucket.read(|bucket| bucket.pace.to_string())));
    let set = "Changes the rate or the burst size, from the packet on that leaves after the next.";
    worker.handler_of(bucket, Handler::write("set", set).argument("PARAMETER VALUE"), |bucket, argument| {
        let pace = changed(bucket.read(|bucket| bucket.pace), argument)?;
        bucket.update(pace).map_err(|cannot| cannot.to_string())?;
        Ok("done".into())
    });
}
