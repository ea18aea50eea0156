//! `[runtime]`: workers, cores, idling, buffers. Everything has a default.

use std::fmt;
use std::ops::Range;

use netbricks_core::{InvalidSetting, Key, Keys, Settings};
use serde::de::{Error, SeqAccess, Visitor};
use toml::Spanned;

/// How an idle worker waits: from the shortest delay to the least CPU time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Never sleeps: a core each, the shortest delay.
    Latency,
    /// Polls for a while, then sleeps until a packet comes.
    #[default]
    Balanced,
    /// Sleeps at once: under 2 % of a core without traffic.
    Quiet,
}

netbricks_core::settings! {
    /// The settings in `[runtime]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RuntimeSettings {
        /// Threads that move packets, each on its own core.
        pub workers: Option<usize> = unset "by ports and cores", "whole number, 1 to 64";
        /// The cores that workers run on, worker by worker.
        pub cores: Option<Spanned<Cores>> = unset "from the second allowed core up, the first one last",
            "list of core numbers, or text such as \"1-4,6\"";
        /// How an idle worker waits: never sleeps, polls then sleeps, sleeps at once.
        pub idle: Idle = "balanced", "\"latency\", \"balanced\" or \"quiet\"";
        /// Packet buffers, shared by all workers and ports.
        ///
        /// As many buffers of 512 bytes are added for packets of up to 192 bytes, unless a port is `af_xdp`.
        /// With the default there are more where tenants' queues need them, up to 131,072.
        pub frames: usize = 16_384, "whole number of 2 KiB packet buffers, 64 to 16777216";
        /// Buffers of 68 KiB for jumbo frames and for segments that the kernel has not cut.
        pub large_frames: Option<usize> = unset "512 where a port may bring packets for them (`af_packet`, `tap`), else 0",
            "whole number of large packet buffers, 0 to 65536";
        /// Packets that a worker asks a source for at a time.
        ///
        /// It is never more than the shortest queue of a `group-by` holds.
        pub burst: usize = 32, "whole number of packets, 1 to 256";
        /// The seed of all randomness, also of the keys of hash tables.
        ///
        /// With the same seed, one worker over captures and generators repeats a run exactly. On live ports
        /// leave it out: a sender who knows the seed can choose flows that collide.
        pub seed: Option<u64> = unset "0 where captures and generators say what time it is, else a new one for every run",
            "whole number";
        /// Puts a shuffle before state by flow where a port's queues may part the directions of a flow.
        pub shuffles: bool = true, "true or false";
        /// A file that `netbricks vet --attest` wrote; `run` refuses a program that it does not attest.
        pub attestation: Option<Spanned<String>> = unset "none is asked for", "text, the path of a file";
        /// The operator's `vet.toml`: an attestation of another list is refused.
        pub attestation_list: Option<Spanned<String>> = unset "any list", "text, the path of a file";
    }
}

/// Core numbers: `[1, 2]` or `"1-4,6"`. Numbers in text have no places of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<Spanned<usize>>);

/// Cores that Linux can have (`CPU_SETSIZE`).
const MOST_CORES: usize = 1_024;
/// Workers that a runtime can have.
pub(super) const MOST_WORKERS: usize = 64;

impl Cores {
    /// The numbers, in the order of the file.
    pub fn numbers(&self) -> Vec<usize> {
        self.0.iter().map(|core| *core.get_ref()).collect()
    }
}

impl<'de> serde::Deserialize<'de> for Cores {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = Cores;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of core numbers or text such as \"1-4,6\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Cores, E> {
                let cores = ranges(text).ok_or_else(|| {
                    E::custom(format!("expected core numbers and ranges such as `1-4,6`, found `{text}`"))
                })?;
                Ok(Cores(cores.into_iter().map(|core| Spanned::new(0..0, core)).collect()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Cores, A::Error> {
                let mut cores = Vec::new();
                while let Some(core) = items.next_element()? {
                    cores.push(core);
                }
                Ok(Cores(cores))
            }
        }
        deserializer.deserialize_any(Written)
    }
}

fn ranges(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST_CORES {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

impl RuntimeSettings {
    /// The cores in the settings that are not `allowed`, by the places that name them.
    pub fn forbidden_cores(&self, allowed: &[usize]) -> Vec<(Range<usize>, Vec<usize>)> {
        let mut found: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        let Some(list) = &self.cores else { return found };
        for core in list.get_ref().0.iter().filter(|core| !allowed.contains(core.get_ref())) {
            let place = if core.span().is_empty() { list.span() } else { core.span() };
            match found.last_mut().filter(|(known, _)| *known == place) {
                Some((_, numbers)) => numbers.push(*core.get_ref()),
                None => found.push((place, vec![*core.get_ref()])),
            }
        }
        found
    }

    /// The seed of a run; `is_replay` says that all its arrivals carry their time.
    ///
    /// Without a `seed` in the file, a replay starts from 0 and a live run from a random number. A sender to
    /// a live port must not know the key that tables are hashed with (Crosby and Wallach, USENIX Security
    /// 2003).
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn seed(&self, is_replay: bool) -> std::io::Result<u64> {
        match self.seed {
            Some(seed) => Ok(seed),
            None if is_replay => Ok(0),
            None => {
                getrandom::u64().map_err(|error| std::io::Error::other(format!("no random `seed`: {error}")))
            }
        }
    }

    /// Its keys.
    pub fn keys() -> &'static [Key] {
        Self::KEYS
    }
}

impl Settings for RuntimeSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        let within = |key, value: usize, range: std::ops::RangeInclusive<usize>| {
            if range.contains(&value) {
                return Ok(());
            }
            let problem = format!("must be {} to {}, found {value}", range.start(), range.end());
            Err(InvalidSetting { key, problem })
        };
        if let Some(workers) = self.workers {
            within("workers", workers, 1..=MOST_WORKERS)?;
        }
        if let Some(cores) = self.cores.as_ref().map(|cores| cores.get_ref().numbers()) {
            if cores.is_empty() {
                return Err(InvalidSetting { key: "cores", problem: "names no core".into() });
            }
            if let Some(core) = cores.iter().find(|core| **core >= MOST_CORES) {
                let problem = format!("names core {core}, and Linux has at most {MOST_CORES}");
                return Err(InvalidSetting { key: "cores", problem });
            }
            let mut seen = cores;
            seen.sort_unstable();
            if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(InvalidSetting {
                    key: "cores",
                    problem: format!("names core {} twice", pair[0]),
                });
            }
        }
        if self.attestation_list.is_some() && self.attestation.is_none() {
            let problem = "compares nothing without `attestation`: give that, too, the file that `netbricks vet CRATE --attest \
                           FILE` wrote";
            return Err(InvalidSetting { key: "attestation_list", problem: problem.into() });
        }
        within("frames", self.frames, 64..=1 << 24)?;
        within("large_frames", self.large_frames.unwrap_or(0), 0..=1 << 16)?;
        within("burst", self.burst, 1..=256)
    }
}
