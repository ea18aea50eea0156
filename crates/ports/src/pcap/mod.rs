//! Capture files as ports.
//!
//! A port that reads a capture replays it, and its capture times drive the graph's clock. A port that writes
//! a capture keeps the packets that are sent to it.
//!
//! Reading is streaming, through the `pcap-parser` crate. Writing, through `pcap-file`, goes to
//! `NAME.partial` until the port is closed. Sent packets are in the file within a second, so that a killed
//! process loses no more than that.
//!
//! If a record holds only the beginning of a packet, the packet keeps its length on the wire. Parsers accept
//! length fields up to that length, counters count it, and a record written from the packet states it.

mod flush;
mod link;
mod packets;
mod read;
mod receive;
mod write;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netbricks_buffer::{Batch, Packet};
use netbricks_core::context::last_arrival;
use netbricks_core::{Context, DropReason, InvalidSetting, Settings};

pub(crate) use flush::SharedWriter;
pub use link::LinkType;
pub use packets::{CapturedPacket, Packets};
pub use read::{ReadError, Reader, Record, Step};
pub use write::{Direction, Format, Precision, Target, Writer, target};

use crate::driver::{Directions, OpenContext, PortDriver};
use crate::node::count_sent;
use crate::port::{Capabilities, Counters, Failure, Port, PortError, ReceiveQueue, TransmitQueue};
use crate::steer::Fixed;
use crate::taken::Taken;
use receive::Replaying;

/// The speed of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Replay {
    /// As fast as possible; capture time is the graph's time.
    #[default]
    Fast,
    /// This many times the captured speed; the graph's clock is real time.
    Times(f64),
}

impl<'de> serde::Deserialize<'de> for Replay {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl serde::de::Visitor<'_> for Written {
            type Value = Replay;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"fast\", \"real-time\", or how many times as fast as captured (a number above 0)",
                )
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Replay, E> {
                match text {
                    "fast" => Ok(Replay::Fast),
                    "real-time" => Ok(Replay::Times(1.0)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: serde::de::Error>(self, times: f64) -> Result<Replay, E> {
                if times.is_finite() && times > 0.0 {
                    Ok(Replay::Times(times))
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Float(times), &self))
                }
            }
            fn visit_i64<E: serde::de::Error>(self, times: i64) -> Result<Replay, E> {
                self.visit_f64(times as f64)
            }
            fn visit_u64<E: serde::de::Error>(self, times: u64) -> Result<Replay, E> {
                self.visit_f64(times as f64)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

netbricks_core::settings! {
    /// The settings of a capture port.
    #[derive(Clone, Debug)]
    pub struct PcapSettings {
        /// Capture to replay: pcap or pcapng, of micro- or nanoseconds, plain or gzip.
        ///
        /// Its link type is Ethernet, raw IP, Linux cooked (1 or 2), null or loopback.
        read: Option<PathBuf> = unset, "text, a file";
        /// Capture of the packets that are sent; its name is NAME.partial until the run ends well.
        ///
        /// A name that ends in .gz is compressed.
        write: Option<PathBuf> = unset, "text, a file";
        /// How fast to replay; "fast" lets capture time drive the clock, the others replay in real time.
        replay: Replay = "fast", "\"fast\", \"real-time\" or a number, times as fast as captured";
        /// How often to replay the capture; 0 is without end. Times go on 1 ms after the last packet.
        rounds as "loop": u64 = 1, "whole number, rounds";
        /// Format of the capture to write.
        format: Option<Format> = unset "by the name: .pcap, else pcapng", "\"pcap\" or \"pcapng\"";
        /// Precision of times in the capture to write.
        precision: Precision = "ns", "\"ns\" or \"us\"";
        /// The most bytes of each packet that are written.
        snap_length: usize = 262144, "whole number, bytes";
    }
}

impl Settings for PcapSettings {
    fn check(&self) -> Result<(), InvalidSetting> {
        if self.read.is_none() && self.write.is_none() {
            return Err(InvalidSetting {
                key: "read",
                problem: "or `write` must be given: a capture port needs a file".into(),
            });
        }
        match self.snap_length {
            1..=write::SNAP_LENGTH => Ok(()),
            found => Err(InvalidSetting {
                key: "snap_length",
                problem: format!("must be 1 to 262144 bytes, found {found}"),
            }),
        }
    }
}

/// Opens a capture to read.
///
/// It must be a file, since it is read before the replay, and again for each round.
fn open_file(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(io::Error::other(format!("it is {}, and a file is expected", write::kind_of(kind))));
    }
    File::open(path)
}

/// The driver `pcap`.
pub(crate) struct PcapDriver;

impl PortDriver for PcapDriver {
    type Settings = PcapSettings;
    const NAME: &'static str = "pcap";
    const SUMMARY: &'static str = "Replays a capture file, or writes one.";
    const FIXED: Option<Fixed> = Some(Fixed::OneQueue);

    fn open(
        &self,
        name: &str,
        settings: &PcapSettings,
        cx: &OpenContext,
    ) -> Result<Box<dyn Port>, PortError> {
        Ok(Box::new(Pcap::open(name, settings, cx)?))
    }

    /// Checks whether the files are where the settings say, without opening anything for writing.
    fn check(&self, name: &str, settings: &PcapSettings, directory: &Path) -> Result<(), PortError> {
        let error = |path: &Path, problem: String| PortError::File {
            port: name.into(),
            path: path.display().to_string(),
            problem,
        };
        if let Some(read) = &settings.read {
            let path = directory.join(read);
            let file = open_file(&path).map_err(|e| error(&path, format!("cannot be read: {e}")))?;
            Reader::new(file).map_err(|e| error(&path, e.to_string()))?;
        }
        if let Some(write) = &settings.write {
            let path = directory.join(write);
            target(&path).map_err(|e| error(&path, format!("cannot be written: {e}")))?;
            let parent = path.parent().unwrap_or(Path::new("."));
            if !parent.as_os_str().is_empty() && !parent.is_dir() {
                return Err(error(
                    &path,
                    format!("cannot be written: there is no directory {}", parent.display()),
                ));
            }
        }
        Ok(())
    }

    fn directions(&self, settings: &PcapSettings) -> Directions {
        Directions { receives: settings.read.is_some(), transmits: settings.write.is_some() }
    }
}

/// A capture port.
pub struct Pcap {
    name: String,
    replaying: Option<Replaying>,
    writer: Option<SharedWriter>,
    drives_clock: bool,
    counters: Vec<Arc<Counters>>,
    failure: Failure,
    taken: Taken,
}

impl Pcap {
    /// Opens a capture port.
    ///
    /// # Errors
    /// [`PortError::File`] when a file cannot be opened, or the one to be read is not a capture.
    pub fn open(name: &str, settings: &PcapSettings, cx: &OpenContext) -> Result<Self, PortError> {
        PcapDriver.check(name, settings, &cx.directory)?;
        let failure = Failure::default();
        let queues = cx.queues.max(1);
        let counters: Vec<Arc<Counters>> = (0..queues).map(|_| Arc::default()).collect();
        let replaying = match &settings.read {
            Some(read) => Some(Replaying::open(
                name,
                cx.directory.join(read),
                settings.replay,
                settings.rounds,
                counters[0].clone(),
                failure.clone(),
            )?),
            None => None,
        };
        let writer = match &settings.write {
            Some(write) => {
                let path = cx.directory.join(write);
                let format = settings.format.unwrap_or_else(|| Format::of(&path));
                let writer = Writer::create(&path, format, settings.precision, settings.snap_length, name)
                    .and_then(SharedWriter::new)
                    .map_err(|error| PortError::File {
                        port: name.into(),
                        path: path.display().to_string(),
                        problem: format!("cannot be written: {error}"),
                    })?;
                Some(writer)
            }
            None => None,
        };
        let drives_clock = replaying.is_some() && settings.replay == Replay::Fast;
        let taken = Taken::new(usize::from(replaying.is_some()), if writer.is_some() { queues } else { 0 });
        Ok(Self { name: name.into(), replaying, writer, drives_clock, counters, failure, taken })
    }
}

impl Port for Pcap {
    fn driver(&self) -> &'static str {
        "pcap"
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn mtu(&self) -> usize {
        write::SNAP_LENGTH
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            receive_queues: usize::from(self.replaying.is_some() || self.drives_clock),
            transmit_queues: if self.writer.is_some() { self.counters.len() } else { 0 },
            // One queue: all directions of a flow arrive on it.
            symmetric_rss: true,
            segmentation_offload: true,
            drives_clock: self.drives_clock,
            ..Capabilities::default()
        }
    }
    fn counters(&self) -> Vec<Arc<Counters>> {
        self.counters.clone()
    }
    fn warnings(&self) -> Vec<String> {
        self.writer.iter().flat_map(|writer| writer.warnings(&self.name)).collect()
    }
    fn failure(&self) -> Option<Arc<PortError>> {
        self.failure.get()
    }
    fn close(&mut self) -> Result<(), PortError> {
        self.writer.take().map_or(Ok(()), |writer| writer.close(&self.name))
    }
    fn take_receive(&mut self, queue: usize) -> Result<Box<dyn ReceiveQueue>, PortError> {
        self.taken.receive(&self.name, queue)?;
        match self.replaying.take() {
            Some(replaying) => Ok(Box::new(replaying)),
            None => Err(PortError::Queue {
                port: self.name.clone(),
                direction: "receive",
                queue,
                problem: "was taken already".into(),
            }),
        }
    }
    fn take_transmit(&mut self, queue: usize) -> Result<Box<dyn TransmitQueue>, PortError> {
        self.taken.transmit(&self.name, queue)?;
        match &self.writer {
            Some(writer) => Ok(Box::new(Recording {
                port: self.name.clone(),
                writer: writer.clone(),
                counters: self.counters[queue].clone(),
                failure: self.failure.clone(),
            })),
            None => Err(PortError::Queue {
                port: self.name.clone(),
                direction: "transmit",
                queue,
                problem: "does not exist: the port is closed".into(),
            }),
        }
    }
}

/// A transmit queue that writes its packets to a capture.
struct Recording {
    port: String,
    writer: SharedWriter,
    counters: Arc<Counters>,
    failure: Failure,
}

impl TransmitQueue for Recording {
    fn is_patient(&self) -> bool {
        true
    }
    fn transmit(&mut self, batch: &mut Batch, cx: &mut Context) {
        let now = cx.now();
        let written = self.writer.with(|writer| {
            batch
                .iter()
                .try_for_each(|packet| write_packet(writer, now, packet, None))
                .map_err(|error| flush::failed(&self.port, writer, &error))
        });
        match written {
            Some(Ok(())) => {
                count_sent(&self.counters, batch, cx);
                batch.clear();
            }
            other => {
                // A file that is only half written never gets its name.
                if let Some(Err(error)) = other {
                    self.failure.report(error);
                }
                std::mem::drop(self.writer.take());
                Counters::add_shared(&self.counters.not_sent, batch.len() as u64);
                cx.drop_batch(batch, DropReason::LinkDown);
            }
        }
    }
}

/// Writes a packet under its own time: its arrival, or its departure from a line that delays.
///
/// A packet without a time is written with `now`. No packet gets a time later than its batch can have.
pub(crate) fn write_packet(
    writer: &mut Writer,
    now: u64,
    packet: &Packet,
    direction: Option<Direction>,
) -> io::Result<()> {
    let time = match packet.received_at() {
        0 => now,
        time => time.min(last_arrival(now)),
    };
    writer.write_beginning(time, packet.data(), packet.wire_len(), direction)
}

#[cfg(test)]
mod tests;
