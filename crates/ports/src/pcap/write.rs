//! Writing captures: pcap or pcapng, plain or gzip, of Ethernet frames. A file has a temporary name until it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes of a packet that a capture holds at most (libpcap's own limit).
pub(super) const SNAP_LENGTH: usize = 262_144;
const BUFFER: usize = 256 << 10;

/// The format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The old one: one header, one link type (draft-ietf-opsawg-pcap).
    Pcap,
    /// The new one: interfaces with names, directions (draft-ietf-opsawg-pcapng).
    Pcapng,
}

impl Format {
    /// The format that a file's name says: pcap for `.pcap` and `.cap`, with or without `.gz`, else pcapng.
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

/// Which way a captured packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the port.
    Inbound,
    /// Out of it.
    Outbound,
}

/// Where the bytes go.
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

/// A capture being written.
pub struct Writer {
    /// `None` once it is finished.
    output: Option<Output>,
    path: PathBuf,
    partial: PathBuf,
    format: Format,
    precision: Precision,
    snap_length: usize,
}

impl Writer {
    /// Begins a capture that will be `path`, of one Ethernet interface named `interface`; at most `snap_length` bytes of
    /// each packet are kept.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(
        path: &Path,
        format: Format,
        precision: Precision,
        snap_length: usize,
        interface: &str,
    ) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("the name of a file is expected"))?;
        if path.is_dir() {
            return Err(io::Error::other("it is a directory"));
        }
        let (partial, file) = temporary(path, &name.to_string_lossy())?;
        let file = BufWriter::with_capacity(BUFFER, file);
        let compressed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let output = if compressed {
            Output::Gzip(Box::new(GzEncoder::new(file, Compression::default())))
        } else {
            Output::Plain(file)
        };
        let snap_length = snap_length.min(SNAP_LENGTH);
        let mut writer =
            Self { output: Some(output), path: path.into(), partial, format, precision, snap_length };
        writer.begin(interface)?;
        Ok(writer)
    }

    /// Where the capture will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.output {
            Some(output) => output.write_all(bytes),
            None => Err(io::Error::other("the capture is finished")),
        }
    }

    fn begin(&mut self, interface: &str) -> io::Result<()> {
        let snap_length = self.snap_length as u32;
        if self.format == Format::Pcap {
            let magic: u32 = match self.precision {
                Precision::Nanoseconds => 0xa1b2_3c4d,
                Precision::Microseconds => 0xa1b2_c3d4,
            };
            // Magic, version 2.4, two reserved words, snap length, link type Ethernet.
            let words = [magic, 4 << 16 | 2, 0, 0, snap_length, 1];
            return words.iter().try_for_each(|word| self.put(&word.to_le_bytes()));
        }
        // Section header: byte order magic, version 1.0, unknown length.
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &section)?;
        // Interface description: Ethernet, snap length, if_name (2), if_tsresol (9).
        let mut described = vec![1, 0, 0, 0];
        described.extend(snap_length.to_le_bytes());
        let name = &interface.as_bytes()[..interface.len().min(255)];
        option(&mut described, 2, name);
        option(&mut described, 9, &[if self.precision == Precision::Nanoseconds { 9 } else { 6 }]);
        described.extend([0; 4]);
        self.block(1, &described)
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = (12 + body.len()) as u32;
        self.put(&kind.to_le_bytes())?;
        self.put(&len.to_le_bytes())?;
        self.put(body)?;
        self.put(&len.to_le_bytes())
    }

    /// Adds a frame, captured at `time` (ns since 1970). The direction is kept in pcapng only.
    ///
    /// # Errors
    /// What the file system says; what was written so far is then of no use.
    pub fn write(&mut self, time: u64, frame: &[u8], direction: Option<Direction>) -> io::Result<()> {
        let captured = &frame[..frame.len().min(self.snap_length)];
        let units = match self.precision {
            Precision::Nanoseconds => 1_000_000_000,
            Precision::Microseconds => 1_000_000,
        };
        let time = time / (1_000_000_000 / units);
        let (caplen, original) = (captured.len() as u32, frame.len() as u32);
        if self.format == Format::Pcap {
            let mut header = [0; 16];
            let seconds = u32::try_from(time / units).unwrap_or(u32::MAX);
            let words = [seconds, (time % units) as u32, caplen, original];
            put_words(&mut header, &words);
            self.put(&header)?;
            return self.put(captured);
        }
        let padding = captured.len().next_multiple_of(4) - captured.len();
        let options = if direction.is_some() { 12 } else { 0 };
        let len = (32 + captured.len() + padding + options) as u32;
        let mut header = [0; 28];
        put_words(&mut header, &[6, len, 0, (time >> 32) as u32, time as u32, caplen, original]);
        self.put(&header)?;
        self.put(captured)?;
        self.put(&[0; 3][..padding])?;
        if let Some(direction) = direction {
            // epb_flags (2), 4 bytes: the direction in the lowest two bits; then the end of options.
            let flags = if direction == Direction::Inbound { 1 } else { 2 };
            let mut options = [0; 12];
            put_words(&mut options, &[4 << 16 | 2, flags, 0]);
            self.put(&options)?;
        }
        self.put(&len.to_le_bytes())
    }

    /// Writes out what is buffered and gives the file its name; one that was there is replaced.
    ///
    /// # Errors
    /// What the file system says; the file then does not get its name.
    pub fn finish(mut self) -> io::Result<()> {
        let file = match self.output.take() {
            None => return Ok(()),
            Some(Output::Plain(file)) => file,
            Some(Output::Gzip(file)) => file.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&self.partial, &self.path)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Not finished, or not to be had under its name: nothing half-made stays. There is nobody to tell if that fails.
        if self.output.take().is_some() || self.partial.exists() {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A new file beside `path`, where a rename stays within the file system.
fn temporary(path: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    for attempt in 0..100 {
        let partial = path.with_file_name(format!(".{name}.{process}.{attempt}.partial"));
        match OpenOptions::new().write(true).create_new(true).open(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "100 temporary files of this name are there already"))
}

fn put_words(place: &mut [u8], words: &[u32]) {
    for (place, word) in place.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
    block.resize(block.len().next_multiple_of(4), 0);
}
