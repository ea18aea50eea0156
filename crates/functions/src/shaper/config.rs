//! Settings of `shaper`.

use netbricks_core::declaration::Declared;
use netbricks_core::units::{Bytes, Duration};
use netbricks_core::{ConfigWarning, InvalidSetting, Settings};

use super::bucket::Pace;
use super::codel::CodelParameters;
use super::queues::QueueSettings;
use crate::tokens::{Counted, LARGEST, TokenRate};

/// The order in which packets leave, and the drops that keep delay low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// One queue, whose tail is dropped.
    #[default]
    Fifo,
    /// One queue under CoDel (RFC 8289).
    Codel,
    /// A queue for each flow; they take turns by bytes (deficit round robin).
    Fq,
    /// As `Fq`, each queue under CoDel (RFC 8290).
    FqCodel,
}

impl Discipline {
    fn has_codel(self) -> bool {
        matches!(self, Self::Codel | Self::FqCodel)
    }
    pub(super) fn has_flows(self) -> bool {
        matches!(self, Self::Fq | Self::FqCodel)
    }
}

/// The packets that share a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Those of a flow, with its fragments and the ICMP errors about it.
    #[default]
    Flow,
    /// Those from a source address.
    Source,
    /// Those to a destination address.
    Destination,
}

netbricks_core::settings! {
    /// Settings of `shaper`.
    #[derive(Clone, Debug)]
    pub struct ShaperConfig {
        /// The rate at which packets leave.
        pub rate: TokenRate = required, "rate: a number and bit/s, kbit/s, Mbit/s, Gbit/s, pps, kpps or Mpps";
        /// The most that leaves at once after a pause.
        pub burst: Option<Bytes> = unset "what `rate` brings in 5 ms, at least 3,000 bytes or 1 packet",
            "size in bytes, or number of packets";
        /// The order in which packets leave, and the drops that keep delay low.
        pub discipline: Discipline = "fifo", "\"fifo\", \"codel\", \"fq\" or \"fq-codel\"";
        /// The most packets that wait.
        pub queue: usize = 1_000, "whole number, packets";
        /// The most bytes that wait.
        pub queue_bytes: Option<Bytes> = unset "no limit", "size in bytes";
        /// Queues of fair queueing, which flows share by a keyed hash.
        pub flows: usize = 1_024, "whole number, queues";
        /// The packets that share a queue of fair queueing.
        pub by: By = "flow", "\"flow\", \"source\" or \"destination\"";
        /// The bytes that a queue of fair queueing sends in its turn.
        pub quantum: Bytes = 1_514, "size in bytes";
        /// The delay that CoDel always allows.
        pub target: Duration = "5 ms", "duration: a number and ns, us, ms, s, min, h or d";
        /// How long the delay may be longer than that before CoDel drops packets.
        pub interval: Duration = "100 ms", "duration, as `target`";
        /// Whether CoDel marks packets that allow it in place of a drop (RFC 3168).
        pub ecn: bool = true, "true or false";
        /// Bytes that each packet counts beside its frame, such as 24 for Ethernet's preamble, FCS and gap.
        pub overhead: u16 = 0, "whole number, bytes";
    }
}

impl Default for ShaperConfig {
    fn default() -> Self {
        Self::with_defaults((TokenRate::bits(10_000_000),))
    }
}

/// A burst that is left out: the amount of this time (ns).
const BURST: u64 = 5_000_000;
/// Two packets of 1,500 bytes.
const LEAST: u64 = 3_000;
const MOST_PACKETS: usize = 1 << 20;
const MOST_FLOWS: usize = 1 << 16;
/// A time of CoDel, from a microsecond to ten seconds.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_nanoseconds(1_000)..=Duration::from_nanoseconds(10_000_000_000);

impl ShaperConfig {
    pub(super) fn pace(&self) -> Pace {
        let least = if self.rate.counted() == Counted::Bits { LEAST } else { 1 };
        let burst = self.burst.map_or_else(|| self.rate.amount(BURST).clamp(least, LARGEST), Bytes::bytes);
        Pace { rate: self.rate, burst }
    }

    pub(super) fn queues(&self) -> QueueSettings {
        let codel =
            CodelParameters { target: self.target.nanoseconds(), interval: self.interval.nanoseconds() };
        QueueSettings {
            packets: self.queue,
            bytes: self.queue_bytes.map_or(u64::MAX / 2, Bytes::bytes),
            // One more for packets that are not IP.
            flows: if self.discipline.has_flows() { self.flows + 1 } else { 1 },
            quantum: self.quantum.bytes() as u32,
            codel: self.discipline.has_codel().then_some(codel),
            ecn: self.ecn,
        }
    }
}

impl Settings for ShaperConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refused = |key, problem: String| Err(InvalidSetting { key, problem });
        if !(1..=LARGEST).contains(&self.pace().burst) {
            return refused("burst", format!("must be 1 to {LARGEST}, found {}", self.pace().burst));
        }
        if !(1..=MOST_PACKETS).contains(&self.queue) {
            return refused("queue", format!("must be 1 to 1,048,576 packets, found {}", self.queue));
        }
        if self.queue_bytes == Some(Bytes::new(0)) {
            return refused("queue_bytes", "must be 1 byte or more, found 0".into());
        }
        if !(1..=MOST_FLOWS).contains(&self.flows) {
            return refused("flows", format!("must be 1 to 65,536 queues, found {}", self.flows));
        }
        if !(256..=1 << 20).contains(&self.quantum.bytes()) {
            return refused("quantum", format!("must be 256 B to 1 MiB, found \"{}\"", self.quantum));
        }
        for (key, time) in [("target", self.target), ("interval", self.interval)] {
            if !TIMES.contains(&time) {
                return refused(key, format!("must be \"1 us\" to \"10 s\", found \"{time}\""));
            }
        }
        if self.target >= self.interval {
            let problem =
                format!("must be shorter than `interval`, {}, found \"{}\"", self.interval, self.target);
            return refused("target", problem);
        }
        Ok(())
    }

    /// Warns of a queue that holds less than CoDel always allows to wait.
    fn warnings(&self) -> Vec<ConfigWarning> {
        let bytes = self.queue_bytes.map_or(u64::MAX, Bytes::bytes);
        let allowed = match self.rate.counted() {
            Counted::Bits => self.rate.amount(self.target.nanoseconds()),
            Counted::Packets => 0,
        };
        let small = self.discipline.has_codel() && bytes < allowed;
        let problem = format!(
            "{bytes} bytes wait at most, less than the {allowed} bytes that leave in `target`: CoDel never drops one"
        );
        if small { vec![ConfigWarning { key: "queue_bytes", item: None, problem }] } else { Vec::new() }
    }
}
