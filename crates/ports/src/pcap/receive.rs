//! A capture as a receive queue: records become packets, in order, at capture time or paced.

use std::path::PathBuf;
use std::sync::Arc;

use netbricks_buffer::Batch;
use netbricks_core::{Context, DropReason, Poll};

use super::Replay;
use super::link::{HEADER, Unframed};
use super::read::{ReadError, Reader, Record, Step};
use crate::arrival::Arrivals;
use crate::node::count_received;
use crate::port::{Counters, Failure, PortError, ReceiveQueue};

/// Time between the last packet of one round and the first of the next (ns).
const BETWEEN_ROUNDS: u64 = 1_000_000;
/// Bytes of the shortest Ethernet frame, without check sequence.
///
/// A frame that is no longer may be padded, and is not a segment that a device was still to cut.
const SHORTEST_FRAME: usize = 60;
/// Turns without a free buffer before a record is given up: some 3 s of the graph's clock.
///
/// After that, other nodes keep all buffers, and waiting does not help.
const PATIENCE: u32 = 30_000;

/// A capture that is being replayed.
pub(super) struct Replaying {
    port: String,
    path: PathBuf,
    /// `None` when the replay has ended.
    reader: Option<Reader>,
    replay: Replay,
    /// Rounds after this one; `None` is without end.
    rounds: Option<u64>,
    counters: Arc<Counters>,
    failure: Failure,
    arrivals: Arrivals,
    pace: Pace,
    stalled: u32,
}

/// The position of a replay in time (ns).
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The time of the first record in the file, and of the latest in this round.
    first: Option<u64>,
    latest: u64,
    /// The time added to capture times in this round.
    shift: u64,
    /// The graph's time when the first record was due, in a paced replay.
    start: Option<u64>,
}

/// The reason why a record was not taken.
#[derive(Clone, Copy)]
enum Refusal {
    /// The batch is full, or belongs to an earlier millisecond, or an event comes first.
    NotNow,
    /// The record is due at this time.
    Until(u64),
    /// No buffer is free.
    NoBuffer,
}

impl Replaying {
    pub(super) fn open(
        port: &str,
        path: PathBuf,
        replay: Replay,
        rounds: u64,
        counters: Arc<Counters>,
        failure: Failure,
    ) -> Result<Self, PortError> {
        let mut replaying = Self {
            port: port.into(),
            path,
            reader: None,
            replay,
            rounds: rounds.checked_sub(1),
            counters,
            failure,
            arrivals: Arrivals::default(),
            pace: Pace::default(),
            stalled: 0,
        };
        replaying.reader = Some(replaying.reopen()?);
        Ok(replaying)
    }

    fn reopen(&self) -> Result<Reader, PortError> {
        let file =
            super::open_file(&self.path).map_err(|error| self.error(format!("cannot be read: {error}")))?;
        Reader::new(file).map_err(|error| self.error(error.to_string()))
    }

    fn error(&self, problem: String) -> PortError {
        PortError::File { port: self.port.clone(), path: self.path.display().to_string(), problem }
    }

    /// Puts the next record into the batch.
    fn step(&mut self, batch: &mut Batch, cx: &mut Context) -> Result<(Step, Option<Refusal>), ReadError> {
        let Self { reader, replay, counters, arrivals, pace, stalled, .. } = self;
        let Some(reader) = reader else { return Ok((Step::End, None)) };
        let mut refusal = None;
        let step = reader.next(|record| {
            let time = pace.time(record.time);
            let due = pace.due(time, *replay, cx.now());
            let admitted = match due {
                Some(due) if due > cx.now() => Err(Refusal::Until(due)),
                Some(_) => Ok(()),
                None if arrivals.admit(time, batch, cx) => Ok(()),
                None => Err(Refusal::NotNow),
            };
            let taken = admitted.and_then(|()| {
                let received_at = if due.is_some() { cx.now() } else { time };
                place(&record, received_at, batch, cx, counters, *stalled >= PATIENCE)
            });
            match taken {
                Ok(()) => {
                    pace.latest = pace.latest.max(time);
                    *stalled = 0;
                    true
                }
                Err(reason) => {
                    refusal = Some(reason);
                    false
                }
            }
        })?;
        Ok((step, refusal))
    }

    /// Begins the next round at the end of the capture, or ends the replay.
    fn next_round(&mut self) -> Option<PortError> {
        self.reader = None;
        // Without one record, another round would be empty too.
        let first = self.pace.first?;
        self.rounds = match self.rounds {
            Some(0) => return None,
            Some(rounds) => Some(rounds - 1),
            None => None,
        };
        self.pace.begin_again(first);
        match self.reopen() {
            Ok(reader) => {
                self.reader = Some(reader);
                None
            }
            Err(error) => Some(error),
        }
    }
}

impl Pace {
    /// Begins another round of a file that begins at `first`.
    ///
    /// A file can state any times, so the sums saturate at 64 bits.
    fn begin_again(&mut self, first: u64) {
        // `latest` contains the shift.
        let lasted = self.latest.saturating_sub(first.saturating_add(self.shift));
        self.shift = self.shift.saturating_add(lasted).saturating_add(BETWEEN_ROUNDS);
    }
    /// A record's time on the graph's clock.
    fn time(&mut self, captured: u64) -> u64 {
        self.first.get_or_insert(captured);
        captured.saturating_add(self.shift)
    }
    /// The time when a paced replay delivers the record; `None` when it is not paced.
    fn due(&mut self, time: u64, replay: Replay, now: u64) -> Option<u64> {
        let Replay::Times(times) = replay else { return None };
        let start = *self.start.get_or_insert(now);
        let since = time.saturating_sub(self.first.unwrap_or(time));
        Some(start.saturating_add((since as f64 / times) as u64))
    }
}

/// Makes a packet of a record and puts it into the batch.
fn place(
    record: &Record<'_>,
    time: u64,
    batch: &mut Batch,
    cx: &mut Context,
    counters: &Counters,
    impatient: bool,
) -> Result<(), Refusal> {
    if batch.len() >= cx.burst() || batch.is_full() {
        return Err(Refusal::NotNow);
    }
    // A record may hold more bytes than it says were on the wire: then its bytes count.
    let wire = record.original_len.max(record.data.len());
    let lose = |cx: &mut Context, bytes: usize, reason| {
        Counters::add(&counters.received, 1);
        Counters::add(&counters.received_bytes, bytes as u64);
        cx.receiving().lost_on_arrival(reason, 1, bytes as u64);
    };
    let frame = record.link.map_or(Err(Unframed::NotEthernet), |link| link.frame(record.data, wire));
    let (header, rest) = match frame {
        Ok(frame) => frame,
        Err(Unframed::Short) => {
            lose(cx, wire, DropReason::Malformed);
            return Ok(());
        }
        Err(Unframed::NotEthernet) => {
            lose(cx, wire, DropReason::NotEthernet);
            return Ok(());
        }
    };
    let missing = wire - record.data.len();
    let header = header.as_slice();
    let wire = header.len() + rest.len() + missing;
    if HEADER + rest.len() > cx.pool().largest_packet() {
        Counters::add(&counters.too_big_to_receive, 1);
        lose(cx, wire, DropReason::TooBig);
        return Ok(());
    }
    let packet = cx.pool().empty(header.len() + rest.len()).and_then(|mut packet| {
        packet.extend_from(header).ok()?;
        packet.extend_from(rest).ok()?;
        Some(packet)
    });
    let Some(mut packet) = packet else {
        if impatient {
            Counters::add_shared(&counters.no_buffer, 1);
            lose(cx, wire, DropReason::PoolExhausted);
            return Ok(());
        }
        return Err(Refusal::NoBuffer);
    };
    if missing > 0 {
        Counters::add(&counters.cut, 1);
        // The lengths in a file have 32 bits.
        packet.set_missing(missing as u32);
    }
    if record.data.len() > record.original_len {
        Counters::add(&counters.overlong, 1);
    }
    packet.set_captured();
    packet.set_length_unstated(wire > SHORTEST_FRAME);
    packet.set_received_at(time);
    // There is room: checked above.
    let _ = batch.push(packet);
    Ok(())
}

impl ReceiveQueue for Replaying {
    fn receive(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        self.arrivals.begin(cx);
        let poll = loop {
            if batch.len() >= cx.burst() {
                break Poll::Busy;
            }
            match self.step(batch, cx) {
                Ok((Step::Taken, _)) => {}
                Ok((Step::Left, refusal)) => match refusal {
                    Some(Refusal::Until(due)) => break Poll::Until(due),
                    Some(Refusal::NoBuffer) if batch.is_empty() => {
                        self.stalled += 1;
                        break Arrivals::stalled(cx);
                    }
                    _ => break Poll::Busy,
                },
                Ok((Step::End, _)) => {
                    if let Some(error) = self.next_round() {
                        self.failure.report(error);
                    }
                    if self.reader.is_none() {
                        break Poll::Done;
                    }
                }
                Err(error) => {
                    self.failure.report(self.error(error.to_string()));
                    self.reader = None;
                    break Poll::Done;
                }
            }
        };
        count_received(&self.counters, batch);
        poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_each_other_whatever_times_a_file_says() {
        let mut pace = Pace { first: Some(1_000), latest: 5_000, ..Pace::default() };
        pace.begin_again(1_000);
        assert_eq!(pace.time(1_000), 5_000 + BETWEEN_ROUNDS);
        pace.latest = pace.time(5_000);
        pace.begin_again(1_000);
        assert_eq!(pace.time(1_000), 9_000 + 2 * BETWEEN_ROUNDS);
        for (first, latest) in [(0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0)] {
            let mut pace = Pace { first: Some(first), latest, ..Pace::default() };
            for _ in 0..3 {
                let before = pace.time(first);
                pace.begin_again(first);
                assert!(pace.time(first) >= before);
            }
        }
    }
}
