//! Writing captures of Ethernet frames: pcap or pcapng, plain or gzip.
//!
//! A file is called `NAME.partial` until it is complete. An older file `NAME` stays until then, and the data
//! of a killed process can be found. A device is written directly.
//!
//! The formats are those of the `pcap-file` crate, except for pcap's records: that crate's writer gives no
//! access to the file, so that it could not be flushed. (`pcap-parser`, which reads, makes several vectors
//! for every packet that it writes.)

use std::borrow::Cow;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use pcap_file::pcap::{PcapHeader, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

/// The most bytes of a packet that a capture holds (libpcap's own limit).
pub(super) const SNAP_LENGTH: usize = 262_144;
const BUFFER: usize = 256 << 10;

/// The format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The older format: one header, one link type (draft-ietf-opsawg-pcap).
    Pcap,
    /// The newer format: interfaces with names, directions (draft-ietf-opsawg-pcapng).
    Pcapng,
}

impl Format {
    /// The format by a file's name: pcap for `.pcap` and `.cap`, with or without `.gz`, otherwise pcapng.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if name.ends_with(".pcap") || name.ends_with(".cap") { Self::Pcap } else { Self::Pcapng }
    }
}

/// The precision of times in a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Precision {
    /// Nanoseconds.
    #[default]
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
}

impl Precision {
    /// Decimal places of a second (if_tsresol).
    fn digits(self) -> u8 {
        match self {
            Self::Nanoseconds => 9,
            Self::Microseconds => 6,
        }
    }
    /// The unit of times, in ns.
    fn unit(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
        }
    }
}

/// The direction of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the port.
    Inbound,
    /// Out of the port.
    Outbound,
}

impl Direction {
    /// The value in the lowest two bits of epb_flags.
    pub(super) fn flags(self) -> u32 {
        match self {
            Self::Inbound => 1,
            Self::Outbound => 2,
        }
    }
}

/// The destination of the bytes.
enum Output {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(file) => file.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(file) => file.flush(),
        }
    }
}

/// A format and its output.
enum Encoder {
    Pcap(Output),
    /// The block is filled again for each packet, in the same memory.
    Pcapng(PcapNgWriter<Output>, Block<'static>),
}

impl Encoder {
    /// Begins a file of one Ethernet interface.
    fn new(
        output: Output,
        format: Format,
        precision: Precision,
        snap_length: usize,
        interface: &str,
    ) -> Result<Self, PcapError> {
        let (endianness, datalink, snaplen) = (Endianness::Little, DataLink::ETHERNET, snap_length as u32);
        if format == Format::Pcap {
            let ts_resolution = match precision {
                Precision::Nanoseconds => TsResolution::NanoSecond,
                Precision::Microseconds => TsResolution::MicroSecond,
            };
            let header = PcapHeader { snaplen, datalink, ts_resolution, endianness, ..PcapHeader::default() };
            return Ok(Self::Pcap(PcapWriter::with_header(output, header)?.into_writer()));
        }
        let mut writer = PcapNgWriter::with_endianness(output, endianness)?;
        let name = &interface[..interface.floor_char_boundary(255)];
        let options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfTsResol(precision.digits()),
        ];
        writer.write_pcapng_block(InterfaceDescriptionBlock { linktype: datalink, snaplen, options })?;
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len: 0,
            data: Cow::Owned(Vec::with_capacity(snap_length)),
            options: Vec::with_capacity(1),
        };
        Ok(Self::Pcapng(writer, packet.into_block()))
    }

    fn write(
        &mut self,
        time: u64,
        precision: Precision,
        captured: &[u8],
        original: u32,
        direction: Option<Direction>,
    ) -> Result<(), PcapError> {
        match self {
            Self::Pcap(output) => {
                // Seconds have 32 bits in this format (draft-ietf-opsawg-pcap, section 5).
                let seconds = (time / 1_000_000_000).min(u32::MAX.into()) as u32;
                let fraction = (time % 1_000_000_000 / precision.unit()) as u32;
                let mut header = [0; 16];
                let words = [seconds, fraction, captured.len() as u32, original];
                for (place, word) in header.chunks_exact_mut(4).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                output.write_all(&header).map_err(PcapError::IoError)?;
                output.write_all(captured).map_err(PcapError::IoError)
            }
            Self::Pcapng(writer, block) => {
                if let Block::EnhancedPacket(packet) = block {
                    // The writer writes this value's number of nanoseconds, and ignores the interface's unit.
                    packet.timestamp = Duration::from_nanos(time / precision.unit());
                    packet.original_len = original;
                    let data = packet.data.to_mut();
                    data.clear();
                    data.extend_from_slice(captured);
                    packet.options.clear();
                    packet.options.extend(direction.map(Direction::flags).map(EnhancedPacketOption::Flags));
                }
                writer.write_block(block)?;
                Ok(())
            }
        }
    }

    fn output(&mut self) -> &mut Output {
        match self {
            Self::Pcap(output) => output,
            Self::Pcapng(writer, _) => writer.get_mut(),
        }
    }

    fn into_output(self) -> Output {
        match self {
            Self::Pcap(output) => output,
            Self::Pcapng(writer, _) => writer.into_inner(),
        }
    }
}

/// A capture being written.
pub struct Writer {
    /// `None` once it is finished.
    encoder: Option<Encoder>,
    path: PathBuf,
    /// The file that is renamed at the end; `None` for a device.
    partial: Option<PathBuf>,
    /// Names of files that earlier processes left.
    left: Vec<PathBuf>,
    precision: Precision,
    snap_length: usize,
    /// Whether it has packets, and whether some may not be in the file yet.
    used: bool,
    unflushed: bool,
}

impl Writer {
    /// Begins a capture of one Ethernet interface named `interface`, which will be the file `path`.
    ///
    /// At most `snap_length` bytes of each packet are kept. If `path` is a link, the capture will be the file
    /// to which it leads.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(
        path: &Path,
        format: Format,
        precision: Precision,
        snap_length: usize,
        interface: &str,
    ) -> io::Result<Self> {
        let snap_length = snap_length.min(SNAP_LENGTH);
        // Compression follows from the name that was given, as the format does.
        let compressed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let (path, partial, left, file) = match target(path)? {
            Target::File(path) => {
                let Partial { path: partial, file, left } = Partial::of(&path)?;
                (path, Some(partial), left, file)
            }
            Target::Device => (path.into(), None, Vec::new(), OpenOptions::new().write(true).open(path)?),
        };
        // From here on, dropping the writer removes an unused partial file.
        let (used, unflushed) = (false, true);
        let mut writer = Self { encoder: None, path, partial, left, precision, snap_length, used, unflushed };
        let file = BufWriter::with_capacity(BUFFER, file);
        let output = if compressed {
            Output::Gzip(Box::new(GzEncoder::new(file, Compression::default())))
        } else {
            Output::Plain(file)
        };
        let encoder = Encoder::new(output, format, precision, snap_length, interface).map_err(io_error)?;
        writer.encoder = Some(encoder);
        Ok(writer)
    }

    /// The path of the finished capture.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path until the capture is finished; `None` for a device.
    pub fn partial(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// Unfinished captures of the same name: their processes were killed, or still write.
    pub fn left(&self) -> &[PathBuf] {
        &self.left
    }

    /// Adds a frame, captured at `time` (ns since 1970). The direction is kept in pcapng only.
    ///
    /// # Errors
    /// The file system's error; data written before it can be read.
    pub fn write(&mut self, time: u64, frame: &[u8], direction: Option<Direction>) -> io::Result<()> {
        self.write_beginning(time, frame, frame.len(), direction)
    }

    /// As [`write`](Self::write), for a frame that had `wire_len` bytes on the wire.
    ///
    /// `frame` has the first of them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_beginning(
        &mut self,
        time: u64,
        frame: &[u8],
        wire_len: usize,
        direction: Option<Direction>,
    ) -> io::Result<()> {
        let Some(encoder) = &mut self.encoder else {
            return Err(io::Error::other("the capture is finished"));
        };
        let captured = &frame[..frame.len().min(self.snap_length)];
        let original = u32::try_from(wire_len.max(frame.len())).unwrap_or(u32::MAX);
        (self.used, self.unflushed) = (true, true);
        encoder.write(time, self.precision, captured, original, direction).map_err(io_error)
    }

    /// Writes out buffered data, so that the capture so far can be read even if this process is killed.
    ///
    /// # Errors
    /// The file system's error.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Some(encoder) if self.unflushed => {
                encoder.output().flush()?;
                self.unflushed = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes out buffered data and gives the file its name. An older file of that name is replaced.
    ///
    /// # Errors
    /// The file system's error; the file then does not get its name.
    pub fn finish(mut self) -> io::Result<()> {
        let file = match self.encoder.take().map(Encoder::into_output) {
            None => return Ok(()),
            Some(Output::Plain(file)) => file,
            Some(Output::Gzip(file)) => file.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.partial.as_ref().map_or(Ok(()), |partial| fs::rename(partial, &self.path))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let begun = self.encoder.take().is_some();
        // A file without packets is no loss. A file with packets stays under its partial name, unless it got
        // its final one. An error here has no receiver.
        if let Some(partial) =
            self.partial.as_ref().filter(|partial| !self.used && (begun || partial.exists()))
        {
            let _ = fs::remove_file(partial);
        }
    }
}

/// The target that the name of a capture stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file that exists or will exist: its path behind any links, canonical if its directory exists.
    File(PathBuf),
    /// A target that takes bytes and keeps its name, such as `/dev/null`.
    Device,
}

/// Finds the target of a capture by its name.
///
/// # Errors
/// If it is a directory, or a pipe or socket, whose reader may come at any time or never.
pub fn target(path: &Path) -> io::Result<Target> {
    if path.file_name().is_none() {
        return Err(io::Error::other("the name of a file is expected"));
    }
    match fs::metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_file() => Ok(Target::File(fs::canonicalize(path)?)),
        Ok(kind) if kind.is_char_device() => Ok(Target::Device),
        Ok(kind) => Err(io::Error::other(format!("it is {}, and a file is expected", kind_of(kind)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Target::File(whole(&behind_links(path)))),
        Err(error) => Err(error),
    }
}

/// The target of links that lead to no file yet.
///
/// There are at most 40 links, or the system would have reported it.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(next);
    }
    path
}

/// A canonical path for a file that does not exist yet.
fn whole(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (directory.canonicalize(), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// The name of a file's kind, for files that are not regular.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "no file",
    }
}

/// A new file in the directory of the final one, so that a rename stays within the file system.
struct Partial {
    path: PathBuf,
    file: File,
    /// Partial files that existed already.
    left: Vec<PathBuf>,
}

impl Partial {
    /// The most partial files of one name.
    const MOST: usize = 100;

    /// Creates `NAME.partial`, or `NAME.partial.2` and so on.
    ///
    /// A name is taken if a killed process left a file of that name.
    fn of(path: &Path) -> io::Result<Self> {
        let mut left = Vec::new();
        for number in 1..=Self::MOST {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(".partial");
            if number > 1 {
                name.push(format!(".{number}"));
            }
            let partial = path.with_file_name(name);
            match OpenOptions::new().write(true).create_new(true).open(&partial) {
                Ok(file) => return Ok(Self { path: partial, file, left }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => left.push(partial),
                Err(error) => return Err(error),
            }
        }
        let problem = format!(
            "{} captures of this name were begun and not finished, the first in {}.partial: keep or remove them",
            Self::MOST,
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::AlreadyExists, problem))
    }
}

/// The file system's error, without the crate's wrapper.
pub(super) fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
