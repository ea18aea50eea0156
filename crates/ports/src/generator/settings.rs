//! The settings of a generator, and the check that they can be met.

use netbricks_core::units::{Duration, Rate};
use netbricks_core::{InvalidSetting, Settings};

use super::flow::{Distribution, IpVersions, Protocols};
use super::payload::Payload;

/// Sizes of frames, in bytes without FCS.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(untagged)]
pub enum FrameSizes {
    /// All frames of one size.
    One(usize),
    /// One of these sizes for each frame, equally likely.
    Several(Vec<usize>),
    /// A mix by name.
    Named(Mix),
}

/// A mix of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// "Simple IMIX": 7 of 60, 4 of 566, 1 of 1,514 bytes (64, 570, 1,518 with FCS).
    Imix,
}

impl FrameSizes {
    pub(super) fn list(&self) -> Vec<usize> {
        match self {
            Self::One(size) => vec![*size],
            Self::Several(sizes) => sizes.clone(),
            Self::Named(Mix::Imix) => [vec![60; 7], vec![566; 4], vec![1_514]].concat(),
        }
    }
}

/// The clock of the packets' times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The generator's own, which drives the graph: a run repeats exactly.
    #[default]
    Own,
    /// The machine's.
    Real,
}

netbricks_core::settings! {
    /// The settings of a generator.
    #[derive(Clone, Debug)]
    pub struct GeneratorSettings {
        /// Sizes of frames, 42 to 9216.
        ///
        /// The sizes in a list are equally likely; imix is 60, 566 and 1514 as 7 : 4 : 1. A frame is never
        /// shorter than its headers, and dns has its own sizes.
        pub(super) frame_sizes: FrameSizes = 60, "whole number, bytes without FCS; a list of them; or \"imix\"";
        /// How many flows there are at a time.
        pub(super) flows: usize = 1024, "whole number, flows";
        /// How packets are spread over flows: evenly, or the n-th flow in proportion to 1 / n^exponent.
        pub(super) distribution: Distribution = "uniform", "\"uniform\" or \"zipf\"";
        /// The exponent of zipf.
        pub(super) exponent: f64 = 1.0, "number, 0 to 10";
        /// Transport of the flows; mix gives each flow one of the three.
        protocol: Protocols = unset "\"udp\", or what conversation and payload need",
            "\"udp\", \"tcp\", \"icmp\" or \"mix\"";
        /// IP version of the flows.
        pub(super) ip: IpVersions = "v4", "\"v4\", \"v6\" or \"mix\"";
        /// Whole TCP conversations: handshake, data both ways, teardown, one after the other in each flow.
        pub(super) conversation: bool = false, "true or false";
        /// The payload of packets.
        ///
        /// It is zeros, counting bytes, random bytes, DNS queries and answers over UDP, or HTTP requests and
        /// answers over TCP.
        pub(super) payload: Payload = "zero", "\"zero\", \"pattern\", \"random\", \"dns\" or \"http\"";
        /// How fast packets come, on the generator's clock, all queues together.
        pub(super) rate: Option<Rate> = unset "as fast as it goes; on its own clock 1 Mpps",
            "rate, \"1 Mpps\" or \"100 Mbit/s\" (frames without FCS)";
        /// The clock of the packets' times: the generator's own, which drives the run and repeats exactly, or
        /// the machine's.
        pub(super) clock: Clock = "own", "\"own\" or \"real\"";
        /// How many packets come in all.
        pub(super) packets: Option<u64> = unset "no limit", "whole number, packets";
        /// For how long packets come, on the generator's clock.
        pub(super) duration: Option<Duration> = unset "no limit", "duration";
    }
}

/// The most flows of a generator.
const MOST_FLOWS: usize = 1 << 22;
pub(super) const SMALLEST: usize = 42;
pub(super) const LARGEST: usize = 9_216;

impl Settings for GeneratorSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem: String| Err(InvalidSetting { key, problem });
        let sizes = self.frame_sizes.list();
        if sizes.is_empty() || sizes.len() > 256 {
            return refuse("frame_sizes", format!("must list 1 to 256 sizes, found {}", sizes.len()));
        }
        if let Some(size) = sizes.iter().find(|size| !(SMALLEST..=LARGEST).contains(*size)) {
            return refuse("frame_sizes", format!("must be {SMALLEST} to {LARGEST} bytes, found {size}"));
        }
        if !(1..=MOST_FLOWS).contains(&self.flows) {
            return refuse("flows", format!("must be 1 to {MOST_FLOWS}, found {}", self.flows));
        }
        if !(0.0..=10.0).contains(&self.exponent) {
            return refuse("exponent", format!("must be 0 to 10, found {}", self.exponent));
        }
        if self.packets == Some(0) {
            return refuse("packets", "must be at least 1, found 0".into());
        }
        match (self.payload, self.conversation, self.protocol) {
            (Payload::Dns, true, _) => {
                refuse("payload", "dns goes over UDP: it cannot be a TCP conversation".into())
            }
            (Payload::Dns, _, Protocols::Tcp | Protocols::Icmp | Protocols::Mix) => {
                refuse("protocol", "must be udp where the payload is dns".into())
            }
            (Payload::Http, _, Protocols::Udp | Protocols::Icmp | Protocols::Mix) => {
                refuse("protocol", "must be tcp where the payload is http".into())
            }
            (_, true, Protocols::Udp | Protocols::Icmp | Protocols::Mix) => {
                refuse("protocol", "must be tcp for conversations".into())
            }
            _ => Ok(()),
        }
    }
}

impl GeneratorSettings {
    pub(super) fn protocol(&self) -> Protocols {
        match self.protocol {
            Protocols::Unsaid if self.conversation || self.payload == Payload::Http => Protocols::Tcp,
            Protocols::Unsaid => Protocols::Udp,
            said => said,
        }
    }
}
