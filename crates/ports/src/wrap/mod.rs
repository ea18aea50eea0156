//! Wrappers around any port: a seeded line that loses, delays, duplicates, reorders and corrupts packets; and
//! a capture.
//!
//! Wrappers see packets in the order in which they pass, and draw the same number of random numbers for each.
//! So results depend on the seed alone, not on the batch size. Packets that the line loses, duplicates and
//! keeps count as dropped, created and held at the port's node. A capture stands between the graph and the
//! line: it has the packets that the graph sent and received.

mod line;
mod receive;
mod transmit;

use std::path::PathBuf;
use std::sync::Arc;

use netbricks_core::units::{Duration, Probability};
use netbricks_core::{InvalidSetting, Key, Keys, RenamedKey, Settings};

pub use line::LineSettings;

use crate::checksum::ChecksumCheck;
use crate::driver::OpenContext;
use crate::pcap::{Format, Precision, SharedWriter, Writer};
use crate::port::{
    Capabilities, ChecksumPolicy, Counters, Failure, Link, Port, PortError, ReceiveQueue, TransmitQueue,
};
use crate::steer::{Filtering, Rules, Steer, Unsteerable};
use line::Line;

/// The packets on which a line works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Impair {
    /// Packets that arrive.
    Receive,
    /// Packets that are sent.
    Transmit,
    /// Both directions.
    #[default]
    Both,
}

netbricks_core::settings! {
    /// The settings of every port.
    #[derive(Clone, Debug)]
    pub struct Common {
        /// How likely the line loses a packet; counted as dropped, impaired.
        loss: Probability = 0, "probability, 0 to 1 or \"1 %\"";
        /// How likely the line doubles a packet; the copy follows it at once and counts as created.
        ///
        /// Where no buffer is free or the line is full there is no copy.
        duplicate: Probability = 0, "probability";
        /// How likely a packet lets the next ones overtake it.
        reorder: Probability = 0, "probability";
        /// Packets that overtake a reordered one; it goes on after 1 s in which no packet comes.
        reorder_gap: u32 = 3, "whole number, packets";
        /// How likely one bit of a packet is flipped.
        corrupt: Probability = 0, "probability";
        /// How long the line keeps each packet, which counts as held until then.
        delay: Duration = "0 s", "duration, \"5 ms\"";
        /// How much the delay varies: evenly from delay - jitter to delay + jitter, so that packets may overtake each
        /// other.
        jitter: Duration = "0 s", "duration";
        /// The most packets that the line keeps, for delay and reordering; more are dropped as queue-full.
        limit: usize = 1024, "whole number, packets";
        /// The packets on which the line works.
        impair_direction: Impair = "both", "\"receive\", \"transmit\" or \"both\"";
        /// Seed of everything random in the port: with the same one it does the same again.
        pub(crate) seed: Option<u64> = unset "from the run's seed and the port's name", "whole number";
        /// Capture of the packets that the graph receives from the port and sends to it.
        ///
        /// It is pcapng, or pcap by its name, and appears when the run ends.
        capture: Option<PathBuf> = unset, "text, a file";
        /// Arrivals with wrong checksums: do nothing, count them, or drop them as bad-checksum.
        checksum: ChecksumPolicy = "trust", "\"trust\", \"verify\" or \"drop\"";
        /// Largest frame that is sent, without its link header; larger ones are dropped as too-big.
        mtu: Option<usize> = unset "the port's own", "whole number, bytes";
        /// The rules that choose the receive queue of each packet.
        ///
        /// The first rule that matches decides; packets that match no rule go by the driver's hash. A rule
        /// has its queue (from 0) and any of the other keys. They are ethertype (0x88cc or "arp"), vlan (the
        /// first tag's id), ip ("v4" or "v6"), protocol ("udp" or 17), source and destination (an address or
        /// prefix), source_port, and destination_port. Keys that are left out match all packets. Fragments
        /// have no ports.
        ///
        /// "graph" derives the rules from the graph, so that packets of one path come by one queue.
        pub(crate) steer: Steer = [],
            "list of rules such as { protocol = \"udp\", destination_port = 4789, queue = 1 }, or \"graph\"";
    }
}

/// The keys that every port has.
pub const COMMON_KEYS: &[Key] = Common::KEYS;

/// Keys of every port that had another name in an earlier version.
pub const COMMON_RENAMED: &[RenamedKey] =
    &[RenamedKey { old: "hold", new: "limit" }, RenamedKey { old: "impair", new: "impair_direction" }];

impl Settings for Common {
    const RENAMED: &'static [RenamedKey] = COMMON_RENAMED;
    fn check(&self) -> Result<(), InvalidSetting> {
        let refuse = |key, problem: String| Err(InvalidSetting { key, problem });
        if self.jitter > self.delay {
            return refuse(
                "jitter",
                format!("must be at most the delay ({}), found {}", self.delay, self.jitter),
            );
        }
        if !(1..=1_048_576).contains(&self.limit) {
            return refuse("limit", format!("must be 1 to 1048576 packets, found {}", self.limit));
        }
        if self.reorder_gap == 0 || self.reorder_gap as usize > self.limit {
            return refuse(
                "reorder_gap",
                format!("must be 1 to `limit` ({}), found {}", self.limit, self.reorder_gap),
            );
        }
        match self.mtu {
            Some(found) if !(68..=65_535).contains(&found) => {
                // RFC 791: every link carries 68 bytes.
                refuse("mtu", format!("must be 68 to 65535 bytes, found {found}"))
            }
            _ => Ok(()),
        }
    }
}

impl Common {
    fn line(&self) -> LineSettings {
        LineSettings {
            loss: self.loss.value(),
            duplicate: self.duplicate.value(),
            reorder: self.reorder.value(),
            reorder_gap: self.reorder_gap,
            corrupt: self.corrupt.value(),
            delay: self.delay.nanoseconds(),
            jitter: self.jitter.nanoseconds(),
            limit: self.limit,
        }
    }
}

/// Wraps a port as its common settings say. Without such settings, answers the port itself.
pub(crate) fn wrap(
    port: Box<dyn Port>,
    common: &Common,
    cx: &OpenContext,
) -> Result<Box<dyn Port>, PortError> {
    let own = port.mtu();
    if let Some(mtu) = common.mtu
        && mtu > own
    {
        return Err(PortError::Setting {
            port: port.name().into(),
            key: "mtu",
            problem: format!("must be at most the port's own, {own} bytes, found {mtu}"),
        });
    }
    let line = common.line();
    let plain = !line.does_something()
        && common.capture.is_none()
        && common.checksum == ChecksumPolicy::Trust
        && common.mtu.is_none();
    if plain {
        return Ok(port);
    }
    let capture = match &common.capture {
        Some(path) => {
            let path = cx.directory.join(path);
            let writer =
                Writer::create(&path, Format::of(&path), Precision::Nanoseconds, usize::MAX, port.name())
                    .and_then(SharedWriter::new)
                    .map_err(|error| PortError::File {
                        port: port.name().into(),
                        path: path.display().to_string(),
                        problem: format!("cannot be written: {error}"),
                    })?;
            Some(writer)
        }
        None => None,
    };
    Ok(Box::new(Wrapped {
        mtu: common.mtu,
        checksum: common.checksum,
        line: line.does_something().then_some(line),
        impair: common.impair_direction,
        seed: cx.seed,
        capture,
        cx: cx.clone(),
        failure: Failure::default(),
        port,
    }))
}

/// A port with its wrappers.
struct Wrapped {
    port: Box<dyn Port>,
    mtu: Option<usize>,
    checksum: ChecksumPolicy,
    line: Option<LineSettings>,
    impair: Impair,
    seed: u64,
    capture: Option<SharedWriter>,
    cx: OpenContext,
    failure: Failure,
}

impl Wrapped {
    /// The line of one queue, with its own random numbers.
    fn line(&self, direction: Impair, queue: usize) -> Option<Line> {
        let settings = self.line?;
        if self.impair != Impair::Both && self.impair != direction {
            return None;
        }
        let counters = self.port.counters().get(queue).cloned().unwrap_or_default();
        let stream = 2 * queue as u64 + u64::from(direction == Impair::Transmit);
        Some(Line::new(settings, self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15), counters))
    }

    fn tap(&self) -> Option<Tap> {
        let writer = self.capture.clone()?;
        Some(Tap { writer, failure: self.failure.clone(), port: self.port.name().into() })
    }
}

impl Port for Wrapped {
    fn driver(&self) -> &'static str {
        self.port.driver()
    }
    fn name(&self) -> &str {
        self.port.name()
    }
    fn mtu(&self) -> usize {
        // The MTU of the port itself may have changed.
        self.mtu.map_or(self.port.mtu(), |mtu| mtu.min(self.port.mtu()))
    }
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }
    fn link(&self) -> Link {
        self.port.link()
    }
    fn returned(&self) -> u64 {
        self.port.returned()
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.port.counters()
    }
    fn warnings(&self) -> Vec<String> {
        let capture = self.capture.iter().flat_map(|capture| capture.warnings(self.port.name()));
        self.port.warnings().into_iter().chain(capture).collect()
    }
    fn failure(&self) -> Option<Arc<PortError>> {
        self.port.failure().or_else(|| self.failure.get())
    }
    fn checksum_policy(&self) -> ChecksumPolicy {
        self.checksum
    }
    fn steer(&mut self, rules: &Rules) -> Result<(), Unsteerable> {
        self.port.steer(rules)
    }
    fn rules(&self) -> Rules {
        self.port.rules()
    }
    fn filtered_by(&self) -> Option<Filtering> {
        self.port.filtered_by()
    }
    fn close(&mut self) -> Result<(), PortError> {
        let closed = self.port.close();
        match self.capture.take() {
            Some(capture) => closed.and(capture.close(self.port.name())),
            None => closed,
        }
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        let inner = self.port.take_receive(queue)?;
        let (line, tap) = (self.line(Impair::Receive, queue), self.tap());
        if line.is_none() && tap.is_none() {
            return Ok(inner);
        }
        let drives_clock = self.port.capabilities().drives_clock;
        let counters = self.port.counters().get(queue).cloned().unwrap_or_default();
        let checksums = ChecksumCheck::new(self.checksum, counters);
        Ok(Box::new(receive::Wrapped::new(inner, line, tap, checksums, drives_clock, self.cx.pool.clone())))
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        let inner = self.port.take_transmit(queue)?;
        let (line, tap) = (self.line(Impair::Transmit, queue), self.tap());
        if line.is_none() && tap.is_none() && (self.mtu.is_none() || inner.limits().is_none()) {
            return Ok(inner);
        }
        Ok(Box::new(transmit::Wrapped::new(inner, line, tap, self.mtu)))
    }
}

/// A capture of the packets that pass.
///
/// It never delays a packet. If the file cannot be written, that is reported, and writing ends.
struct Tap {
    writer: SharedWriter,
    failure: Failure,
    port: String,
}

impl Tap {
    fn see<'p>(
        &self,
        now: u64,
        direction: crate::pcap::Direction,
        packets: impl Iterator<Item = &'p netbricks_buffer::Packet>,
    ) {
        let written = self.writer.with(|writer| {
            packets
                .into_iter()
                .try_for_each(|packet| crate::pcap::write_packet(writer, now, packet, Some(direction)))
        });
        if let Some(Err(error)) = written {
            let path =
                self.writer.take().map_or_else(String::new, |writer| writer.path().display().to_string());
            let problem = format!("cannot be written: {error}");
            self.failure.report(PortError::File { port: self.port.clone(), path, problem });
        }
    }
}

#[cfg(test)]
mod tests;
