//! The lines that clients of a control socket send, cut into requests.
//!
//! Bytes come in pieces of any size. What is kept of them is bounded: [`Reader::room`] says how many more fit, and a
//! request that would need more is an error.

use crate::value::integer;

/// Bytes that are kept of one client: lines, and data of requests.
pub(super) const MOST: usize = 1 << 20;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Read a handler with a parameter.
    Read { handler: Vec<u8>, data: Vec<u8> },
    /// Write a value to a handler.
    Write { handler: Vec<u8>, data: Vec<u8> },
    /// Say whether a handler can be read, or written.
    Check { handler: Vec<u8>, write: bool },
    /// Call a low-level procedure.
    Llrpc { name: Vec<u8>, data: Vec<u8> },
    /// Close the connection; `false` when words followed that mean nothing.
    Quit(bool),
    /// List the commands.
    Help,
    /// The line is no request: a code and why.
    Wrong(u16, Vec<u8>),
    /// The request needs more bytes than are kept; no other can be told from its data.
    TooLong,
}

/// A request whose data has not come yet.
enum Waiting {
    /// So many bytes follow.
    Data { command: Command, length: usize },
    /// Lines follow up to one that equals the end.
    Until { command: Command, end: Vec<u8>, line: usize },
}

#[derive(Clone)]
struct Command {
    verb: Verb,
    name: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    Write,
    Llrpc,
}

impl Command {
    fn with(self, data: Vec<u8>) -> Request {
        match self.verb {
            Verb::Read => Request::Read { handler: self.name, data },
            Verb::Write => Request::Write { handler: self.name, data },
            Verb::Llrpc => Request::Llrpc { name: self.name, data },
        }
    }
}

/// Bytes of a client that are not yet requests.
#[derive(Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// Where the first byte lies that belongs to no request yet.
    start: usize,
    /// How far a line's end was looked for, from `start`.
    looked: usize,
    /// The last line ended in CR: a LF that follows belongs to it.
    after_return: bool,
    waiting: Option<Waiting>,
    closed: bool,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 9..=13)
}

/// The words of a line and where they lie in it.
fn words(line: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut words = Vec::new();
    let mut place = 0;
    while place < line.len() {
        let length = line[place..].iter().position(|byte| is_space(*byte)).unwrap_or(line.len() - place);
        if length > 0 {
            words.push(place..place + length);
        }
        place += length + 1;
    }
    words
}

fn wrong(code: u16, text: impl AsRef<[u8]>) -> Request {
    Request::Wrong(code, text.as_ref().to_vec())
}

/// A number of bytes, as it stands in a line.
fn length_of(word: &[u8]) -> Option<usize> {
    let number = integer(std::str::from_utf8(word).ok()?)?;
    i32::try_from(number).ok().and_then(|number| usize::try_from(number).ok())
}

impl Reader {
    /// How many more bytes it takes.
    pub(super) fn room(&self) -> usize {
        if self.closed { 0 } else { MOST - (self.bytes.len() - self.start).min(MOST) }
    }
    /// Takes bytes: at most as many as there is [`room`](Self::room) for.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.bytes.len() || self.start > MOST / 2) {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(self.room())]);
    }
    /// No more bytes come.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }
    /// Whether all bytes became requests, and no more come.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.start == self.bytes.len() && self.waiting.is_none()
    }
    /// Bytes that are kept.
    fn kept(&self) -> usize {
        self.bytes.len()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn skip_line_feed(&mut self) {
        if self.after_return && self.start < self.bytes.len() {
            self.after_return = false;
            if self.bytes[self.start] == b'\n' {
                self.start += 1;
            }
        }
    }

    /// The next line without its end, if all of it is there.
    fn line(&mut self) -> Option<Vec<u8>> {
        self.skip_line_feed();
        let end = self.rest()[self.looked..].iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let Some(end) = end.map(|end| end + self.looked) else {
            self.looked = self.rest().len();
            if self.closed && self.looked > 0 {
                let line = self.rest().to_vec();
                self.start = self.bytes.len();
                self.looked = 0;
                return Some(line);
            }
            return None;
        };
        let line = self.rest()[..end].to_vec();
        self.after_return = self.rest()[end] == b'\r';
        self.start += end + 1;
        self.looked = 0;
        self.skip_line_feed();
        Some(line)
    }

    /// The next request, if all of it is there.
    pub(super) fn next(&mut self) -> Option<Request> {
        loop {
            let request = match self.waiting.take() {
                Some(Waiting::Data { command, length }) => return self.data(command, length),
                Some(Waiting::Until { command, end, line }) => return self.until(command, end, line),
                None => match self.line() {
                    Some(line) => self.request(&line),
                    None if self.room() == 0 && !self.closed => return Some(self.give_up()),
                    None => return None,
                },
            };
            // An empty line is none, and a request may wait for its data.
            if request.is_some() {
                return request;
            }
            if self.waiting.is_none() && self.rest().is_empty() {
                return None;
            }
        }
    }

    fn give_up(&mut self) -> Request {
        self.bytes = Vec::new();
        (self.start, self.looked, self.waiting) = (0, 0, None);
        self.closed = true;
        Request::TooLong
    }

    fn data(&mut self, command: Command, length: usize) -> Option<Request> {
        self.skip_line_feed();
        if length > MOST {
            return Some(self.give_up());
        }
        if self.rest().len() < length {
            if self.closed {
                return Some(self.not_enough());
            }
            self.waiting = Some(Waiting::Data { command, length });
            return None;
        }
        let data = self.rest()[..length].to_vec();
        self.start += length;
        Some(command.with(data))
    }

    fn not_enough(&mut self) -> Request {
        self.start = self.bytes.len();
        self.looked = 0;
        wrong(500, "Not enough data")
    }

    /// Lines up to one that equals `end` but for spaces behind.
    ///
    /// The first line that was not seen begins at `line`.
    fn until(&mut self, command: Command, end: Vec<u8>, mut line: usize) -> Option<Request> {
        if line == 0 {
            self.skip_line_feed();
        }
        loop {
            let from = line.max(self.looked);
            let rest = self.rest();
            let found = rest[from..].iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let Some(found) = found.map(|found| found + from) else {
                self.looked = rest.len();
                if self.closed {
                    return Some(self.not_enough());
                }
                if self.room() == 0 {
                    return Some(self.give_up());
                }
                self.waiting = Some(Waiting::Until { command, end, line });
                return None;
            };
            let text = &rest[line..found];
            let length = text.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last + 1);
            let pair = rest[found] == b'\r' && rest.get(found + 1) == Some(&b'\n');
            let next = found + 1 + usize::from(pair);
            let is_end = text[..length] == end[..];
            if is_end {
                let data = rest[..line].to_vec();
                self.after_return = rest[found] == b'\r' && !pair;
                self.start += next;
                self.looked = 0;
                return Some(command.with(data));
            }
            if rest[found] == b'\r' && next == rest.len() && !self.closed {
                // A LF may follow that belongs to this line's end.
                self.looked = found;
                self.waiting = Some(Waiting::Until { command, end, line });
                return None;
            }
            line = next;
        }
    }

    /// The request in a line. `None`: it is empty, or its data follows.
    fn request(&mut self, line: &[u8]) -> Option<Request> {
        let places = words(line);
        let word = |number: usize| places.get(number).map_or(&[][..], |place| &line[place.clone()]);
        let rest = match (places.get(2), places.last()) {
            (Some(first), Some(last)) => line[first.start..last.end].to_vec(),
            _ => Vec::new(),
        };
        let count = places.len();
        if count == 0 {
            return None;
        }
        let verb = word(0).to_ascii_uppercase();
        let few = || Some(wrong(500, "Wrong number of arguments"));
        let name = word(1).to_vec();
        match &verb[..] {
            b"READ" | b"GET" | b"WRITE" | b"SET" | b"READUNTIL" | b"WRITEUNTIL" if count < 2 => few(),
            b"READ" | b"GET" => Some(Request::Read { handler: name, data: rest }),
            b"WRITE" | b"SET" => Some(Request::Write { handler: name, data: rest }),
            b"READUNTIL" | b"WRITEUNTIL" => {
                let verb = if verb[0] == b'R' { Verb::Read } else { Verb::Write };
                self.waiting = Some(Waiting::Until { command: Command { verb, name }, end: rest, line: 0 });
                None
            }
            b"READDATA" | b"WRITEDATA" | b"SETDATA" if count != 3 => few(),
            b"READDATA" | b"WRITEDATA" | b"SETDATA" => {
                let Some(length) = length_of(word(2)) else {
                    return Some(wrong(500, [b"Syntax error in '", &verb[..], b"'"].concat()));
                };
                let verb = if verb[0] == b'R' { Verb::Read } else { Verb::Write };
                self.waiting = Some(Waiting::Data { command: Command { verb, name }, length });
                None
            }
            b"CHECKREAD" | b"CHECKWRITE" if count != 2 => few(),
            b"CHECKREAD" | b"CHECKWRITE" => Some(Request::Check { handler: name, write: verb[5] == b'W' }),
            b"LLRPC" if count != 2 && count != 3 => few(),
            b"LLRPC" => {
                let length = if count == 3 { length_of(word(2)) } else { Some(0) };
                let Some(length) = length else { return Some(wrong(500, "Syntax error in 'llrpc'")) };
                self.waiting = Some(Waiting::Data { command: Command { verb: Verb::Llrpc, name }, length });
                None
            }
            b"CLOSE" | b"QUIT" => {
                self.closed = true;
                self.bytes = Vec::new();
                (self.start, self.looked) = (0, 0);
                Some(Request::Quit(count == 1))
            }
            b"HELP" => Some(Request::Help),
            _ => Some(wrong(501, [b"Command '", &verb[..], b"' unimplemented"].concat())),
        }
    }
}

/// The requests in bytes that come in pieces of a size, and the most bytes kept. For tests.
pub fn requests_of(bytes: &[u8], size: usize) -> (Vec<String>, usize) {
    let mut reader = Reader::default();
    let (mut requests, mut most) = (Vec::new(), 0);
    for mut piece in bytes.chunks(size.max(1)) {
        while !piece.is_empty() && reader.room() > 0 {
            let (now, later) = piece.split_at(piece.len().min(reader.room()));
            reader.feed(now);
            most = most.max(reader.kept());
            piece = later;
            requests.extend(std::iter::from_fn(|| reader.next()).map(|request| format!("{request:?}")));
        }
    }
    reader.close();
    requests.extend(std::iter::from_fn(|| reader.next()).map(|request| format!("{request:?}")));
    (requests, most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All requests of a client that sends bytes in pieces and then closes.
    fn requests(pieces: &[&[u8]]) -> Vec<Request> {
        let mut reader = Reader::default();
        let mut requests = Vec::new();
        for piece in pieces {
            let mut piece = *piece;
            while !piece.is_empty() {
                let now = piece.len().min(reader.room());
                reader.feed(&piece[..now]);
                assert!(reader.kept() <= 2 * MOST);
                piece = &piece[now..];
                while let Some(request) = reader.next() {
                    requests.push(request);
                }
                if now == 0 && reader.room() == 0 {
                    return requests;
                }
            }
        }
        reader.close();
        while let Some(request) = reader.next() {
            requests.push(request);
        }
        assert!(reader.is_finished());
        requests
    }

    fn read(handler: &str, data: &str) -> Request {
        Request::Read { handler: handler.into(), data: data.into() }
    }

    #[test]
    fn lines_end_in_cr_lf_or_both() {
        let wanted = [read("a", ""), read("b", "x  y"), read("c", "")];
        assert_eq!(requests(&[b"read a\rREAD b  x  y \r\n\n get c"]), wanted);
        let bytes = b"read a\r\nread b x  y\nread c\r";
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(requests(&single), wanted);
    }

    #[test]
    fn data_follows_by_length_and_by_its_last_line() {
        let write = |handler: &str, data: &str| Request::Write { handler: handler.into(), data: data.into() };
        let bytes: &[u8] =
            b"writedata a 5\r\nx\r\ny\nreaduntil b END\n1 2\nEND \nwriteuntil c\n\nllrpc d#1 2\nzzquit";
        let wanted = [
            write("a", "x\r\ny\n"),
            read("b", "1 2\n"),
            write("c", ""),
            Request::Llrpc { name: b"d#1".to_vec(), data: b"zz".to_vec() },
            Request::Quit(true),
        ];
        assert_eq!(requests(&[bytes]), wanted);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(requests(&single), wanted);
    }

    #[test]
    fn faults_have_clicks_codes() {
        for (line, code, text) in [
            ("read", 500, "Wrong number of arguments"),
            ("readdata a -1", 500, "Syntax error in 'READDATA'"),
            ("llrpc a x", 500, "Syntax error in 'llrpc'"),
            ("fly", 501, "Command 'FLY' unimplemented"),
            ("writedata a 9\nabc", 500, "Not enough data"),
            ("writeuntil a b\nabc", 500, "Not enough data"),
        ] {
            assert_eq!(requests(&[line.as_bytes()]), [wrong(code, text)], "{line}");
        }
    }

    #[test]
    fn a_request_beyond_all_bounds_ends_the_connection() {
        let long = vec![b'x'; 3 * MOST];
        assert_eq!(requests(&[&long]), [Request::TooLong]);
        assert_eq!(requests(&[b"writeuntil a end\n", &long]), [Request::TooLong]);
        assert_eq!(requests(&[b"writedata a 2000000000\n"]), [Request::TooLong]);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_mean_the_same(
            words in proptest::collection::vec(
                prop_oneof![
                    Just(b"read ".to_vec()), Just(b"WRITEDATA a 3".to_vec()), Just(b"READUNTIL b e".to_vec()),
                    Just(b"\r\n".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()), Just(b"e\n".to_vec()),
                    Just(b"llrpc s#1 2\n".to_vec()), Just(b"quit\n".to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..20),
                ],
                0..40,
            ),
            size in 1..7_usize,
        ) {
            let bytes = words.concat();
            let whole = requests(&[&bytes]);
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(whole, requests(&pieces));
        }
    }
}
