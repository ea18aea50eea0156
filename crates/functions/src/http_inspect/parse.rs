//! HTTP/1 requests out of a client's bytes, however they are cut (RFC 9112).
//!
//! The state of a connection has a fixed size; longer lines and hosts are cut off.

/// The most bytes of a request line that are kept.
pub(super) const LINE: usize = 256;
/// The most bytes of a host that are kept: a name has 253 at most, and most have far fewer.
pub(super) const HOST: usize = 128;
/// The most digits of a length, without leading zeros, so that it fits its number in base 16.
const DIGITS: usize = 15;
pub(super) const LARGEST: u64 = (1 << (4 * DIGITS)) - 1;

/// Some bytes of which the first `N` are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<const N: usize> {
    bytes: [u8; N],
    len: u16,
    /// Whether there were more bytes.
    cut: bool,
}

impl<const N: usize> Text<N> {
    pub(super) const EMPTY: Self = Self { bytes: [0; N], len: 0, cut: false };

    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut text = Self::EMPTY;
        text.add(bytes);
        text
    }
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        let more = bytes.len().min(N - len);
        self.bytes[len..len + more].copy_from_slice(&bytes[..more]);
        self.len += more as u16;
        self.cut |= more < bytes.len();
    }
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }
    fn clear(&mut self) {
        (self.len, self.cut) = (0, false);
    }
}

/// The place of a connection within its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A request line is next.
    Start,
    /// Unknown: the next request line begins a request.
    Lost,
    /// Header fields are next.
    Fields,
    /// This number of bytes of a body is next, and then a request line.
    Body(u64),
    /// The line with a chunk's size is next.
    ChunkSize,
    /// This number of bytes of a chunk is next.
    Chunk(u64),
    /// The line that ends behind a chunk.
    ChunkEnd,
    /// Trailer fields are next.
    Trailers,
    /// The rest belongs to another protocol.
    Tunnel,
}

/// The body behind the header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    Unknown,
}

/// The state of one client's requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parser {
    /// Whether bytes count as a request or a host if any lenient server may read them so.
    pub(super) wary: bool,
    /// Whether servers may disagree about where requests begin: from then on nothing is skipped.
    pub(super) doubtful: bool,
    /// Whether the byte before was a CR, which may have ended a line, and whether that line had any bytes.
    pub(super) after_cr: bool,
    pub(super) in_line: bool,
    pub(super) phase: Phase,
    pub(super) framing: Framing,
    /// Whether a length was given.
    pub(super) sized: bool,
    /// The line that has not ended yet.
    pub(super) line: Text<LINE>,
    pub(super) request: Text<LINE>,
    pub(super) host: Text<HOST>,
}

/// An item found in a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A request with its line and its host, which may be empty.
    ///
    /// The host is the one in the request's target or, if that has none, the one in the Host field.
    Request { line: &'a [u8], host: &'a [u8] },
    /// A host that a request names, whether or not it is the one that counts.
    ///
    /// If it is not `whole`, its end was cut off.
    Host { name: &'a [u8], whole: bool },
    /// Something else stands where a request should begin.
    NoRequest,
}

impl Parser {
    /// A parser that finds valid requests.
    pub(super) const NEW: Self = Self {
        wary: false,
        doubtful: false,
        after_cr: false,
        in_line: false,
        phase: Phase::Start,
        framing: Framing::Length(0),
        sized: false,
        line: Text::EMPTY,
        request: Text::EMPTY,
        host: Text::EMPTY,
    };

    /// A parser that misses no host that a server may find; it may take other bytes for requests, too.
    pub(super) const WARY: Self = Self { wary: true, ..Self::NEW };

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Found<'_>)) {
        while !bytes.is_empty() {
            match self.phase {
                Phase::Tunnel => return,
                Phase::Body(left) | Phase::Chunk(left) => {
                    let skipped = left.min(bytes.len() as u64);
                    bytes = &bytes[skipped as usize..];
                    self.skip(skipped, left);
                }
                _ if self.wary => bytes = self.piece(bytes, &mut found),
                _ => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    self.line.add(line);
                    bytes = rest.get(1..).unwrap_or_default();
                    if end.is_some() {
                        let mut line = self.line;
                        if !line.cut && line.get().ends_with(b"\r") {
                            line.len -= 1;
                        }
                        self.line.clear();
                        self.take(&line, &mut found);
                    }
                }
            }
        }
    }

    /// Takes the bytes up to and including the next LF or CR; returns the rest.
    ///
    /// Some servers take a CR alone for the end of a line, others for a space.
    fn piece<'b>(&mut self, bytes: &'b [u8], found: &mut impl FnMut(Found<'_>)) -> &'b [u8] {
        let end = bytes.iter().position(|byte| b"\r\n".contains(byte));
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.doubtful |= self.after_cr && bytes.first() != Some(&b'\n');
        self.after_cr = false;
        let blank = self.line.get().iter().all(u8::is_ascii_whitespace);
        // Spaces at the beginning of a line are not kept, so that they leave room for the text behind them.
        let spaces =
            if blank { piece.iter().take_while(|byte| byte.is_ascii_whitespace()).count() } else { 0 };
        if spaces > 0 && self.line.get().is_empty() {
            self.line.add(b" ");
        }
        self.line.add(&piece[spaces..]);
        let Some((end, rest)) = rest.split_first() else { return rest };
        if *end == b'\r' && self.phase == Phase::ChunkSize {
            // The chunk begins behind the LF.
            self.after_cr = true;
            return rest;
        }
        let line = self.line;
        self.line.clear();
        if !line.get().is_empty() {
            self.in_line = true;
            self.take(&line, found);
        } else if *end == b'\n' && !self.in_line {
            self.take(&line, found);
        }
        self.after_cr = *end == b'\r';
        self.in_line &= self.after_cr;
        rest
    }

    /// Tells the parser that `missing` bytes are missing.
    pub(super) fn gap(&mut self, missing: u64, mut found: impl FnMut(Found<'_>)) {
        match self.phase {
            Phase::Tunnel => {}
            Phase::Body(left) | Phase::Chunk(left) if missing <= left => self.skip(missing, left),
            _ => {
                self.end(&mut found);
                self.phase = Phase::Lost;
                self.line.clear();
            }
        }
    }

    /// Whether a request's line or fields have begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.phase == Phase::Fields || self.phase == Phase::Start && !self.line.get().is_empty()
    }

    /// Ends the stream: a request whose fields have not ended is reported as well.
    pub(super) fn end(&mut self, mut found: impl FnMut(Found<'_>)) {
        if self.phase == Phase::Fields && !self.request.get().is_empty() {
            found(Found::Request { line: self.request.get(), host: self.requested_host() });
        }
    }

    /// The host that the request is for: the target's, or else the Host field's (RFC 9112, section 3.2.2).
    fn requested_host(&self) -> &[u8] {
        match target_host(self.request.get()) {
            Some((host, _)) if !host.is_empty() => canonical(host, default_port(self.request.get())),
            _ => canonical(self.host.get(), HTTP_PORT),
        }
    }

    fn skip(&mut self, count: u64, left: u64) {
        self.phase = match (self.phase, left - count) {
            (Phase::Body(_), 0) => Phase::Start,
            (Phase::Body(_), left) => Phase::Body(left),
            (_, 0) => Phase::ChunkEnd,
            (_, left) => Phase::Chunk(left),
        };
    }

    fn take(&mut self, line: &Text<LINE>, found: &mut impl FnMut(Found<'_>)) {
        let text = line.get();
        if self.wary {
            self.look_for_host(line, found);
        }
        match self.phase {
            // RFC 9112, section 2.2: an empty line before a request line is ignored.
            Phase::Start if text.is_empty() => {}
            Phase::Start | Phase::Lost => self.begin(line, found),
            Phase::Fields if text.is_empty() => {
                if !self.request.get().is_empty() {
                    found(Found::Request { line: self.request.get(), host: self.requested_host() });
                }
                let tunnel = self.request.get().starts_with(b"CONNECT ");
                // A server that refuses to connect goes on with requests.
                self.doubtful |= self.wary && tunnel;
                self.phase = match self.framing {
                    _ if self.doubtful => Phase::Lost,
                    _ if tunnel => Phase::Tunnel,
                    Framing::Length(0) => Phase::Start,
                    Framing::Length(length) => Phase::Body(length),
                    Framing::Chunked => Phase::ChunkSize,
                    Framing::Unknown => Phase::Lost,
                };
                self.doubtful |= self.wary && self.phase == Phase::Lost;
            }
            Phase::Fields => {
                self.doubtful |= self.wary && text.first().is_some_and(u8::is_ascii_whitespace);
                self.field(line);
            }
            Phase::ChunkSize => {
                self.phase = match chunk_size(text).filter(|_| !(self.wary && line.cut)) {
                    _ if self.doubtful => Phase::Lost,
                    Some(0) => Phase::Trailers,
                    Some(size) => Phase::Chunk(size),
                    None => Phase::Lost,
                };
                self.doubtful |= self.wary && self.phase == Phase::Lost;
            }
            Phase::ChunkEnd if text.is_empty() && !self.doubtful => self.phase = Phase::ChunkSize,
            Phase::ChunkEnd => {
                self.phase = Phase::Lost;
                self.doubtful |= self.wary;
            }
            Phase::Trailers if text.is_empty() => {
                self.phase = if self.doubtful { Phase::Lost } else { Phase::Start };
            }
            Phase::Trailers | Phase::Body(_) | Phase::Chunk(_) | Phase::Tunnel => {}
        }
    }

    /// Takes a line where a request may begin.
    fn begin(&mut self, line: &Text<LINE>, found: &mut impl FnMut(Found<'_>)) {
        let text = line.get();
        // After a gap, the beginning of a long line is not enough to know a request line.
        let is_one = is_request_line(text, line.cut && self.phase == Phase::Start);
        if !is_one && self.phase == Phase::Start {
            found(Found::NoRequest);
            self.doubtful |= self.wary;
        }
        // Some server may take these bytes for the end of a line or a space.
        self.doubtful |= self.wary && text.iter().any(u8::is_ascii_control);
        if is_one || self.wary && self.phase == Phase::Start {
            self.request = if is_one { *line } else { Text::EMPTY };
            self.host.clear();
            (self.phase, self.framing, self.sized) = (Phase::Fields, Framing::Length(0), false);
            if let Some((name, ends)) = target_host(text).filter(|_| !self.wary) {
                found(Found::Host { name, whole: ends || !line.cut });
            }
        } else {
            self.phase = Phase::Lost;
        }
    }

    /// Looks for a host that any server may find in a line.
    fn look_for_host(&self, line: &Text<LINE>, found: &mut impl FnMut(Found<'_>)) {
        let text = line.get();
        if matches!(self.phase, Phase::Start | Phase::Lost)
            && let Some((name, ends)) = target_host(text)
        {
            // While requests are lost, the line is probably no request, so its host counts as it is.
            found(Found::Host { name, whole: ends || !line.cut || self.phase == Phase::Lost });
        }
        if let Some(name) = named_host(text) {
            let continues = text.first().is_some_and(u8::is_ascii_whitespace);
            found(Found::Host { name, whole: !line.cut || continues && self.phase != Phase::Fields });
        }
    }

    fn field(&mut self, line: &Text<LINE>) {
        let text = line.get();
        let Some(colon) = text.iter().position(|byte| *byte == b':') else { return };
        let (mut name, value) = (&text[..colon], text[colon + 1..].trim_ascii());
        if self.wary {
            // RFC 9112, section 5.1: some servers take the name without the space.
            self.doubtful |= name.trim_ascii() != name;
            name = name.trim_ascii();
            // The next bytes may be of another protocol, or not.
            self.doubtful |= name.eq_ignore_ascii_case(b"upgrade");
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.host = Text::of(value);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // RFC 9112, section 6.3: it counts before any length, and `chunked` comes last.
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            let chunked = last.eq_ignore_ascii_case(b"chunked");
            let twice = self.wary && (self.sized || self.framing != Framing::Length(0));
            self.framing = if chunked && !twice { Framing::Chunked } else { Framing::Unknown };
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value, 10).filter(|_| !(self.wary && line.cut));
            // Two lengths that differ are an error of the sender (section 6.3).
            self.framing = match (self.framing, length) {
                (Framing::Length(known), Some(length)) if !self.sized || known == length => {
                    Framing::Length(length)
                }
                (Framing::Chunked, _) if !self.wary => Framing::Chunked,
                _ => Framing::Unknown,
            };
            self.sized = true;
        }
    }
}

/// The host of an absolute or authority form (RFC 9112, section 3.2), and whether it ends within the line.
///
/// This host counts before the Host field.
fn target_host(line: &[u8]) -> Option<(&[u8], bool)> {
    // Lenient servers accept any whitespace between the words (RFC 9112, section 3).
    let space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let mut words = line.split(space).filter(|word| !word.is_empty());
    let (method, target) = (words.next()?, words.next()?);
    let ends = words.next().is_some();
    if method == b"CONNECT" {
        return Some((target, ends));
    }
    let scheme = target.windows(3).position(|three| three == b"://").filter(|_| !target.starts_with(b"/"))?;
    let rest = &target[scheme + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    let authority = &rest[..end.unwrap_or(rest.len())];
    // The host is behind the user information, if there is any.
    let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or(authority);
    Some((host, ends || end.is_some()))
}

/// The default port of `http` (RFC 9110, section 4.2.1), also for requests without a scheme.
const HTTP_PORT: u16 = 80;
/// The default port of `https` (RFC 9110, section 4.2.2).
const HTTPS_PORT: u16 = 443;

/// The default port of the scheme of a request's target.
fn default_port(line: &[u8]) -> u16 {
    let target = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1);
    let https = target
        .is_some_and(|target| target.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https://")));
    if https { HTTPS_PORT } else { HTTP_PORT }
}

/// A host in canonical form: without the dot that ends a full name, and without an empty or default port.
///
/// So all ways to write one host are the same bytes, except for upper and lower case (RFC 3986, section
/// 6.2.3).
fn canonical(host: &[u8], default_port: u16) -> &[u8] {
    let (name, port) = split_port(host);
    match port {
        Some(port) if !port.is_empty() && number(port, 10) != Some(u64::from(default_port)) => host,
        _ => name.strip_suffix(b".").unwrap_or(name),
    }
}

/// A host's name or address, and the text behind its colon.
pub(super) fn split_port(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|end| end + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    let (name, rest) = host.split_at(end.unwrap_or(host.len()));
    (name, rest.strip_prefix(b":"))
}

/// The host that a line among the fields names.
///
/// Lenient servers also read a name with a space behind it, and a value on a line of its own (RFC 9112, sections 5.1
/// and 5.2).
fn named_host(line: &[u8]) -> Option<&[u8]> {
    if line.first().is_some_and(u8::is_ascii_whitespace) {
        return Some(line.trim_ascii());
    }
    let colon = line.iter().position(|byte| *byte == b':')?;
    line[..colon].trim_ascii_end().eq_ignore_ascii_case(b"host").then(|| line[colon + 1..].trim_ascii())
}

/// A chunk's size, in front of its extensions (RFC 9112, section 7.1).
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    number(size.trim_ascii_end(), 16)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    if digits.is_empty() || digits.len() - zeros > DIGITS {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| {
        Some(number * u64::from(radix) + u64::from(char::from(*digit).to_digit(radix)?))
    })
}

/// `method SP request-target SP HTTP-version` (RFC 9112, section 3); without its end where that was cut off.
fn is_request_line(line: &[u8], cut: bool) -> bool {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return false };
    // A token (RFC 9110, section 5.6.2); no registered method is longer than 17 bytes.
    let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let fits = !method.is_empty() && method.len() <= 32 && method.iter().all(token);
    // Servers also answer targets with invalid characters, so those count as request lines.
    let is_word = !target.is_empty() && !target.iter().any(u8::is_ascii_whitespace);
    let version = match words.next() {
        Some(version) => version.len() == 8 && version.starts_with(b"HTTP/1.") && version[7].is_ascii_digit(),
        None => false,
    };
    fits && is_word && (version || cut)
}
