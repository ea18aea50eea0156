//! The line on a terminal that shows the current rates while a run goes on.

use std::io::Write;
use std::time::Duration;

use netbricks_runtime::Progress;

use super::Console;
use crate::report::{percent, scaled};

/// A line that is overwritten in place; it does nothing if standard error is no terminal.
#[derive(Debug)]
pub(super) struct LiveLine {
    shown: bool,
    enabled: bool,
    last: Progress,
    at: Duration,
}

impl LiveLine {
    pub(super) fn new(console: Console, wanted: bool) -> Self {
        Self { shown: false, enabled: console.live && wanted, last: Progress::default(), at: Duration::ZERO }
    }

    /// Shows the rates since the last call, `elapsed` after the start.
    pub(super) fn update(&mut self, progress: Progress, elapsed: Duration) {
        if self.enabled && elapsed > self.at {
            let line = line(&self.last, &progress, elapsed - self.at, elapsed);
            // Go back to the line's start, overwrite it, and clear its rest: in one write, so that no other
            // output comes between.
            let _ = std::io::stderr().lock().write_all(format!("\r{line}\u{1b}[K").as_bytes());
            self.shown = true;
        }
        self.last = progress;
        self.at = elapsed;
    }

    /// Removes the line, so that other text can be printed.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}

fn line(last: &Progress, now: &Progress, span: Duration, elapsed: Duration) -> String {
    let seconds = span.as_secs_f64();
    let rate = |now: u64, last: u64| now.saturating_sub(last) as f64 / seconds;
    let received = rate(now.received.packets, last.received.packets);
    let bits = 8.0 * rate(now.received.bytes, last.received.bytes);
    let sent = rate(now.sent.packets, last.sent.packets);
    let came = now.received.packets + now.created - last.received.packets - last.created;
    let dropped = now.dropped.saturating_sub(last.dropped);
    format!(
        " {:02}:{:02}  received {} {} · sent {} · dropped {}        Ctrl-C drains and reports",
        elapsed.as_secs() / 60,
        elapsed.as_secs() % 60,
        scaled(received, "pps"),
        scaled(bits, "b/s"),
        scaled(sent, "pps"),
        percent(dropped, came)
    )
}

#[cfg(test)]
mod tests {
    use netbricks_core::Count;

    use super::*;

    #[test]
    fn the_line_of_the_north_star() {
        let now = Progress {
            received: Count { packets: 28_400_000, bytes: 1_817_600_000 },
            sent: Count { packets: 28_394_320, bytes: 0 },
            dropped: 5_680,
            ..Progress::default()
        };
        assert_eq!(
            line(&Progress::default(), &now, Duration::from_secs(2), Duration::from_secs(12)),
            " 00:12  received 14.2 Mpps 7.27 Gb/s · sent 14.2 Mpps · dropped 0.02 %        Ctrl-C drains and reports"
        );
    }
}
