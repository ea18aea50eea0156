//! An answer that goes on: lines, or server-sent events.

use std::collections::VecDeque;

use super::exchange::Exchange;
use crate::api::{Code, Problem};

/// The most bytes of one line or event.
const MOST: usize = 16 << 20;

/// The lines of an answer as they come; of server-sent events, the data of each.
///
/// [`next`](Iterator::next) waits. The end of the stream is the end of the dataplane or of what was asked for.
pub struct Stream {
    exchange: Exchange,
    lines: Lines,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl Stream {
    pub(super) fn new(exchange: Exchange) -> Self {
        let kind = exchange.headers.get(hyper::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let events = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        Self { exchange, lines: Lines::new(events) }
    }
}

impl Iterator for Stream {
    type Item = Result<String, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(line) = self.lines.ready.pop_front() {
                return Some(Ok(line));
            }
            if self.lines.ended {
                return None;
            }
            let result = match self.exchange.piece() {
                Some(Ok(piece)) => self.lines.push(&piece),
                Some(Err(problem)) => Err(problem),
                None => {
                    self.lines.end();
                    Ok(())
                }
            };
            if let Err(problem) = result {
                self.lines.ended = true;
                return Some(Err(problem));
            }
        }
    }
}

/// Lines of bytes that come in pieces, or the data of server-sent events (HTML standard, section 9.2).
struct Lines {
    events: bool,
    /// The line that has not ended.
    line: Vec<u8>,
    /// The data of the event that has not ended.
    data: Option<String>,
    ready: VecDeque<String>,
    ended: bool,
}

impl Lines {
    fn new(events: bool) -> Self {
        Self { events, line: Vec::new(), data: None, ready: VecDeque::new(), ended: false }
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), Problem> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > MOST {
                return Err(Problem::new(Code::TooLarge, format!("a line has more than {MOST} bytes")));
            }
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                self.line.pop_if(|byte| *byte == b'\r');
                self.line_ends();
            }
        }
        Ok(())
    }

    fn line_ends(&mut self) {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        if !self.events {
            self.ready.push_back(line);
        } else if line.is_empty() {
            self.ready.extend(self.data.take());
        } else if let Some(value) = line.strip_prefix("data:") {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut self.data {
                None => self.data = Some(value.to_owned()),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
            }
        }
    }

    /// Nothing more comes: a last line may lack its end, an event that has none is dropped.
    fn end(&mut self) {
        if !self.events && !self.line.is_empty() {
            self.line_ends();
        }
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: bool, text: &str, piece: usize) -> Vec<String> {
        let mut lines = Lines::new(events);
        for piece in text.as_bytes().chunks(piece) {
            lines.push(piece).expect("short lines");
        }
        lines.end();
        lines.ready.into()
    }

    #[test]
    fn pieces_may_end_anywhere() {
        for piece in 1..40 {
            let events =
                ": hello\n\nid: 1\ndata: a\r\n\r\ndata:b\ndata: c\n\n:\n\ndata: ü\n\ndata: unfinished";
            assert_eq!(read(true, events, piece), ["a", "b\nc", "ü"]);
            assert_eq!(read(false, "one\r\n\ntwo", piece), ["one", "", "two"]);
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::new(true);
        let result = (0..=MOST / 1_000).try_for_each(|_| lines.push(&[b'x'; 1_000]));
        assert_eq!(result.map_err(|problem| problem.code), Err(Code::TooLarge));
    }
}
