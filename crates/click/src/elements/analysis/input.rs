//! Files that elements read from: by line or by bytes, with the place for messages.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::arguments::Arguments;
use crate::language::errors::Errors;
use crate::router::At;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// The longest line; a longer one is cut in two.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
/// First bytes of compressed files: gzip, bzip2, xz, zstd, compress.
const COMPRESSED: [&[u8]; 5] =
    [&[0x1F, 0x8B], b"BZh", &[0xFD, b'7', b'z', b'X', b'Z'], &[0x28, 0xB5, 0x2F, 0xFD], &[0x1F, 0x9D]];

enum Source {
    /// All bytes are in the buffer.
    Memory,
    Standard,
    File(File),
    Closed,
}

/// A file, the standard input or bytes of the configuration, read from its start.
pub(super) struct Input {
    name: String,
    source: Source,
    buffer: Vec<u8>,
    /// The first byte of the buffer that was not read yet.
    next: usize,
    /// Where in the file the buffer begins.
    offset: u64,
    /// Number of the last line (or record) that was read.
    pub(super) line: u32,
    /// Whether [`line`](Self::line) counts records.
    pub(super) records: bool,
    /// Whether messages tell no line.
    unnumbered: bool,
}

/// Why nothing could be read from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The file is not there or has no bytes.
    Missing,
    /// Anything else; an error was told.
    Told,
}

impl Input {
    /// The file of a name, which [`open`](Self::open) opens; `-` is the standard input.
    pub(super) fn file(name: &str) -> Self {
        Self {
            name: if name == "-" || name.is_empty() { "<stdin>".into() } else { name.to_owned() },
            source: Source::Closed,
            buffer: Vec::new(),
            next: 0,
            offset: 0,
            line: 0,
            records: false,
            unnumbered: false,
        }
    }
    /// Bytes that are there already.
    pub(super) fn memory(data: Vec<u8>) -> Self {
        Self { source: Source::Memory, buffer: data, ..Self::file("<data>") }
    }
    /// The same with messages that tell the file only.
    pub(super) fn unnumbered(self) -> Self {
        Self { unnumbered: true, ..self }
    }

    /// The file's name as messages have it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
    /// Whether there may be more to read.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.source, Source::Closed)
    }
    /// Ends reading.
    pub(super) fn close(&mut self) {
        self.source = Source::Closed;
        self.buffer = Vec::new();
        self.next = 0;
    }
    /// The place of the last line, for messages.
    pub(super) fn landmark(&self) -> String {
        if self.unnumbered {
            self.name.clone()
        } else if self.records {
            format!("{}:record {}", self.name, self.line)
        } else {
            format!("{}:{}", self.name, self.line)
        }
    }

    /// Opens the file and reads its first bytes.
    pub(super) fn open(&mut self, at: At<'_>, errors: &Errors, may_miss: bool) -> Result<(), Failure> {
        if matches!(self.source, Source::Memory) {
            return Ok(());
        }
        if !at.capabilities().files {
            errors.error(&format!("{}: this instance may not read files (capability files)", self.name));
            return Err(Failure::Told);
        }
        self.source = if self.name == "<stdin>" {
            Source::Standard
        } else {
            match File::open(&self.name) {
                Ok(file) => Source::File(file),
                Err(error) if may_miss && error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Failure::Missing);
                }
                Err(error) => {
                    errors.error(&format!("{}: {}", self.name, system_message(&error)));
                    return Err(Failure::Told);
                }
            }
        };
        match self.fill() {
            Ok(true) => (),
            Ok(false) => {
                if !may_miss {
                    errors.error_at(&self.landmark(), "empty file");
                }
                self.close();
                return Err(if may_miss { Failure::Missing } else { Failure::Told });
            }
            Err(error) => {
                errors.error_at(&self.landmark(), &system_message(&error));
                self.close();
                return Err(Failure::Told);
            }
        }
        if COMPRESSED.iter().any(|magic| self.buffer.starts_with(magic)) {
            errors.error(&format!("{}: compressed files are not read: uncompress it first", self.name));
            self.close();
            return Err(Failure::Told);
        }
        Ok(())
    }

    /// Reads more into the buffer. `false` at the file's end.
    fn fill(&mut self) -> std::io::Result<bool> {
        if self.next > 0 {
            self.buffer.drain(..self.next);
            self.offset += self.next as u64;
            self.next = 0;
        }
        let held = self.buffer.len();
        self.buffer.resize(held + CHUNK, 0);
        let got = loop {
            let room = &mut self.buffer[held..];
            let got = match &mut self.source {
                Source::Memory | Source::Closed => Ok(0),
                Source::Standard => std::io::stdin().lock().read(room),
                Source::File(file) => file.read(room),
            };
            match got {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
                other => break other,
            }
        };
        self.buffer.truncate(held + got.as_ref().map_or(0, |got| *got));
        got.map(|got| got > 0)
    }

    /// Has `count` bytes in the buffer, or as many as there are. Whether there are that many.
    fn have(&mut self, count: usize) -> bool {
        while self.buffer.len() - self.next < count {
            if !self.fill().unwrap_or(false) {
                return false;
            }
        }
        true
    }

    /// The next `count` bytes. `None` where there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Option<&[u8]> {
        if !self.have(count) {
            return None;
        }
        self.next += count;
        Some(&self.buffer[self.next - count..self.next])
    }
    /// As many of the next `count` bytes as there are.
    pub(super) fn take_some(&mut self, count: usize) -> &[u8] {
        self.have(count);
        let got = count.min(self.buffer.len() - self.next);
        self.next += got;
        &self.buffer[self.next - got..self.next]
    }

    /// The next line with its end, into `line`. `false` at the file's end.
    pub(super) fn read_line(&mut self, line: &mut Vec<u8>) -> bool {
        line.clear();
        let mut looked = 0;
        let length = loop {
            let rest = &self.buffer[self.next..];
            if let Some(end) = rest[looked..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
                let end = looked + end;
                // A carriage return may have its newline in bytes that were not read yet.
                if rest[end] == b'\n' {
                    break end + 1;
                }
                match rest.get(end + 1) {
                    Some(b'\n') => break end + 2,
                    Some(_) => break end + 1,
                    None => looked = end,
                }
            } else {
                looked = rest.len();
            }
            if rest.len() >= LONGEST_LINE || !self.fill().unwrap_or(false) {
                break self.buffer.len() - self.next;
            }
        };
        if length == 0 {
            return false;
        }
        line.extend_from_slice(&self.buffer[self.next..self.next + length]);
        self.next += length;
        self.line = self.line.wrapping_add(1);
        true
    }
    /// Puts the line that was read last back.
    pub(super) fn unread_line(&mut self, line: &[u8]) {
        if self.next >= line.len() {
            self.next -= line.len();
            self.line = self.line.wrapping_sub(1);
        }
    }

    /// Where in the file the next byte is.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.next as u64
    }
    /// The file's size, if it has one.
    pub(super) fn size(&self) -> Option<u64> {
        match &self.source {
            Source::File(file) => {
                file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len())
            }
            _ => None,
        }
    }
    /// Goes to a place in the file.
    pub(super) fn seek(&mut self, to: u64) -> Result<(), String> {
        if let Some(ahead) = to.checked_sub(self.offset)
            && ahead <= self.buffer.len() as u64
            && self.is_open()
        {
            self.next = ahead as usize;
            return Ok(());
        }
        if self.size().is_some_and(|size| to > size) {
            return Err("FILEPOS out of range".into());
        }
        match &mut self.source {
            Source::File(file) => {
                file.seek(SeekFrom::Start(to)).map_err(|error| system_message(&error))?;
                self.buffer.clear();
                self.next = 0;
                self.offset = to;
                Ok(())
            }
            _ => Err("FILEPOS out of range".into()),
        }
    }
}

/// A system error's words without Rust's number behind them.
pub(super) fn system_message(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// A fraction of packets, in parts of 2 to the power of 28: `0.5` is 134,217,728.
#[derive(Clone, Copy)]
pub(super) struct Sample(u32);

impl Sample {
    const BITS: u32 = 28;
    const ONE: u32 = 1 << Self::BITS;

    /// Reads the argument `SAMPLE`, and warns where it takes all or no packets by mistake.
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Self {
        let value: Option<u32> = arguments.keyword_with("SAMPLE", |text, _| {
            let syntax = crate::arguments::Problem::Syntax;
            let value = crate::value::fixed(text, 12).ok_or(syntax)?;
            let scaled = ((value << Self::BITS) + 500_000_000_000) / 1_000_000_000_000;
            u32::try_from(scaled).map_err(|_| crate::arguments::Problem::Syntax)
        });
        match value {
            None => Self(Self::ONE),
            Some(value) if value > Self::ONE => {
                arguments.errors().warning("SAMPLE probability reduced to 1");
                Self(Self::ONE)
            }
            Some(0) => {
                arguments.errors().warning("SAMPLE probability is 0; emitting no packets");
                Self(0)
            }
            Some(value) => Self(value),
        }
    }
    /// Whether a packet is taken.
    pub(super) fn takes(self, at: At<'_>) -> bool {
        self.0 >= Self::ONE || at.router.random() & (Self::ONE - 1) < self.0
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&super::binary_fraction(u64::from(self.0), Self::BITS))
    }
}
