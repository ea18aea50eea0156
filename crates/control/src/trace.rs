//! Makes records of packets out of what workers saw of them, and tells them as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use netbricks_core::Class;
use netbricks_core::observer::{Allowance, Sight, Sighting, Sightings};
use netbricks_core::packet::print::{Change, Difference, dissect, one_line};

use crate::api::{TraceEnd, TraceRecord, TraceStep};
use crate::observe::Encode;

/// Packets that are on their way at once. More push out the oldest.
const OPEN: usize = 4_096;
/// The time after which a packet that nothing was seen of counts as held.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a frame that are compared and printed, at most.
const MOST: usize = 64 << 10;

/// The names that numbers in a sighting stand for.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The ports, by number.
    pub ports: Vec<String>,
    /// The cores, by worker.
    pub cores: Vec<Option<usize>>,
}

/// Makes records out of the sightings of a trace.
///
/// Sightings of one packet come in order from each worker, and may come in any order from several.
#[derive(Debug)]
pub struct Assembler {
    places: Places,
    /// The time after which a packet that nothing was seen of counts as held.
    patience: Duration,
    open: BTreeMap<u32, Open>,
    /// Sightings of packets that have not begun here: another worker's part may not have come yet.
    early: Vec<(Instant, usize, Early)>,
    lost: u64,
}

/// A packet that is on its way.
#[derive(Debug)]
struct Open {
    record: TraceRecord,
    frame: Vec<u8>,
    /// Bytes of the frame that were copied.
    copied: usize,
    worker: usize,
    seen: Instant,
    /// The node that has it, where it waits.
    held: Option<String>,
}

/// A sighting without its set.
#[derive(Clone, Debug)]
struct Early {
    sighting: Sighting,
    frame: Vec<u8>,
    why: String,
}

impl Assembler {
    /// An assembler that takes a packet as held after nothing was seen of it for that long.
    pub fn new(places: Places, patience: Duration) -> Self {
        Self { places, patience, open: BTreeMap::new(), early: Vec::new(), lost: 0 }
    }

    /// Adds what workers saw, and answers the packets whose end was seen.
    pub fn add(&mut self, seen: &[(usize, Sightings)], now: Instant) -> Vec<TraceRecord> {
        let mut ended = Vec::new();
        let mut late = std::mem::take(&mut self.early);
        for (worker, sightings) in seen {
            self.lost += sightings.lost();
            for sighting in sightings.iter() {
                let frame = sightings.frame(sighting).to_vec();
                let why = sightings.why(sighting).to_owned();
                late.push((now, *worker, Early { sighting: sighting.clone(), frame, why }));
            }
        }
        // One worker's part of a packet may come before the part of the worker that had it first.
        let mut progress = true;
        while progress {
            progress = false;
            for (since, worker, part) in std::mem::take(&mut late) {
                if self.is_made_at_the_end(&part.sighting, &mut ended) {
                    progress = true;
                } else if self.is_next(worker, &part.sighting) {
                    self.take(worker, part, now, &mut ended);
                    progress = true;
                } else if now.saturating_duration_since(since) < self.patience && late.len() < OPEN {
                    late.push((since, worker, part));
                }
            }
        }
        self.early = late;
        self.expire(now, &mut ended);
        self.count_lost(&mut ended);
        ended
    }

    /// Answers the packets that are still on their way, as they are.
    pub fn end(&mut self) -> Vec<TraceRecord> {
        let mut ended: Vec<_> = std::mem::take(&mut self.open).into_values().map(Open::give_up).collect();
        self.count_lost(&mut ended);
        ended
    }

    /// Whether no packet is on its way.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.early.is_empty()
    }

    fn count_lost(&mut self, ended: &mut [TraceRecord]) {
        if let Some(first) = ended.first_mut() {
            first.lost = std::mem::take(&mut self.lost);
        }
    }

    /// Whether all that comes before this sighting has come.
    fn is_next(&self, worker: usize, sighting: &Sighting) -> bool {
        match (&sighting.sight, self.open.get(&sighting.number)) {
            (Sight::Began | Sight::Born(_), _) => true,
            (_, Some(open)) => open.worker == worker || open.held.is_some(),
            (_, None) => false,
        }
    }

    /// Notes a packet that was made for one whose end was seen a moment ago. Answers whether it is one.
    fn is_made_at_the_end(&self, sighting: &Sighting, ended: &mut [TraceRecord]) -> bool {
        let Sight::Made(child) = sighting.sight else { return false };
        if self.open.contains_key(&sighting.number) {
            return false;
        }
        let record = ended.iter_mut().rev().find(|record| record.packet == sighting.number);
        match record.and_then(|record| record.steps.last_mut()) {
            Some(step) => {
                step.made.push(child);
                true
            }
            None => false,
        }
    }

    fn take(&mut self, worker: usize, part: Early, now: Instant, ended: &mut Vec<TraceRecord>) {
        let Early { sighting, frame, why } = part;
        let number = sighting.number;
        match sighting.sight {
            Sight::Began | Sight::Born(_) => {
                if self.open.len() >= OPEN {
                    ended.extend(self.open.pop_first().map(|(_, open)| open.give_up()));
                }
                let open = self.begin(worker, &sighting, &frame, now);
                // A number comes again after 16 million packets.
                ended.extend(self.open.insert(number, open).map(Open::give_up));
            }
            _ => {
                let Some(open) = self.open.get_mut(&number) else { return };
                open.seen = now;
                if open.step(worker, &sighting, &frame, &why) {
                    ended.extend(self.open.remove(&number).map(|open| open.record));
                }
            }
        }
    }

    fn begin(&self, worker: usize, sighting: &Sighting, frame: &[u8], now: Instant) -> Open {
        let copied = frame.len();
        let frame = whole(frame, sighting.wire_len);
        let made_for = match sighting.sight {
            Sight::Born(parent) => Some(parent),
            _ => None,
        };
        let mut summary = String::new();
        if let Some(tag) = sighting.vlan {
            let _written = write!(summary, "vlan {} ", tag.control & 0xfff);
        }
        let _written = write!(summary, "{}", one_line(&frame));
        let (port, queue) = sighting.ingress;
        let port = self.places.ports.get(usize::from(port)).cloned().unwrap_or_default();
        let record = TraceRecord {
            packet: sighting.number,
            time_ns: sighting.time,
            node: sighting.node.to_string(),
            port: if made_for.is_some() { String::new() } else { port },
            queue,
            worker,
            core: self.places.cores.get(worker).copied().flatten(),
            summary,
            bytes: sighting.wire_len,
            made_for,
            ..TraceRecord::default()
        };
        Open { record, frame, copied, worker, seen: now, held: None }
    }

    fn expire(&mut self, now: Instant, ended: &mut Vec<TraceRecord>) {
        let patience = self.patience;
        let over = |open: &Open| now.saturating_duration_since(open.seen) >= patience;
        let numbers: Vec<u32> =
            self.open.iter().filter(|(_, open)| over(open)).map(|(number, _)| *number).collect();
        for number in numbers {
            ended.extend(self.open.remove(&number).map(Open::give_up));
        }
    }
}

impl Open {
    /// Adds a sighting; answers whether it is the packet's last.
    fn step(&mut self, worker: usize, sighting: &Sighting, frame: &[u8], why: &str) -> bool {
        let node = sighting.node.to_string();
        if let Sight::Made(child) = sighting.sight {
            // It is seen behind the step that made it.
            match self.record.steps.last_mut().filter(|step| step.node == node) {
                Some(step) => step.made.push(child),
                None => self.record.steps.push(TraceStep {
                    node,
                    time_ns: sighting.time,
                    made: vec![child],
                    ..TraceStep::default()
                }),
            }
            return false;
        }
        let released = self.held.take().is_some_and(|held| held == node);
        let mut step = TraceStep {
            node: node.clone(),
            time_ns: sighting.time,
            worker: (worker != self.worker).then_some(worker),
            why: why.to_owned(),
            ..TraceStep::default()
        };
        self.worker = worker;
        if !frame.is_empty() {
            let after = whole(frame, sighting.wire_len);
            step.changes = changes(&self.frame, &after, self.copied.min(frame.len()));
            (self.frame, self.copied) = (after, frame.len());
        }
        let (end, end_of) = match &sighting.sight {
            Sight::Left(way) => {
                if let Some(way) = way {
                    step.way = way.to_string();
                }
                (None, String::new())
            }
            Sight::Held | Sight::HandedOver => {
                step.waited = true;
                self.held = Some(node);
                (None, String::new())
            }
            Sight::Sent => (Some(TraceEnd::Sent), node),
            Sight::Absorbed => (Some(TraceEnd::Absorbed), node),
            Sight::Dropped(reason) => {
                self.record.sentence = reason.sentence().to_owned();
                let consumed = reason.class() == Class::Consumed;
                let end = if consumed { TraceEnd::Consumed } else { TraceEnd::Dropped };
                (Some(end), reason.name().to_owned())
            }
            _ => (None, String::new()),
        };
        match self.record.steps.last_mut().filter(|last| released && last.node == step.node) {
            // It comes out where it waited.
            Some(last) => {
                last.time_ns = step.time_ns;
                last.worker = step.worker.or(last.worker);
                last.changes.append(&mut step.changes);
                last.way = step.way;
            }
            None => self.record.steps.push(step),
        }
        let Some(end) = end else { return false };
        (self.record.end, self.record.end_of) = (end, end_of);
        true
    }

    fn give_up(self) -> TraceRecord {
        let mut record = self.record;
        if let Some(node) = self.held {
            (record.end, record.end_of) = (TraceEnd::Held, node);
        } else {
            record.end_of = record.steps.last().map_or_else(|| record.node.clone(), |step| step.node.clone());
        }
        record
    }
}

/// The frame at its length on the wire. Bytes that were not copied are zero.
fn whole(frame: &[u8], wire_len: usize) -> Vec<u8> {
    let mut whole = frame.to_vec();
    whole.resize(wire_len.clamp(frame.len(), frame.len().max(MOST)), 0);
    whole
}

/// The changes of a frame of which only the first `copied` bytes are known.
fn changes(before: &[u8], after: &[u8], copied: usize) -> Vec<String> {
    let (before, after) = (dissect(before), dissect(after));
    let payload = before.payload_offset().max(after.payload_offset());
    let cut = copied < before.frame().len().min(after.frame().len());
    let mut changes = Vec::new();
    let Ok(()) = Difference::of(before, after).each(|change| {
        // Behind the bytes that are known, a frame whose headers grew only seems to differ.
        let unknown =
            matches!(change, Change::Data { offset, .. } if cut && payload.saturating_add(offset) >= copied);
        if !unknown {
            changes.push(change.to_string());
        }
        Ok::<(), std::convert::Infallible>(())
    });
    changes
}

/// The stream of a trace: its records as server-sent events.
#[derive(Debug)]
pub struct TraceEvents {
    assembler: Assembler,
    left: Allowance,
    used_up: bool,
}

impl TraceEvents {
    /// The stream of a watch that takes so many packets.
    pub fn new(places: Places, left: Allowance) -> Self {
        Self { assembler: Assembler::new(places, PATIENCE), left, used_up: false }
    }
}

fn events(records: &[TraceRecord]) -> Vec<u8> {
    let mut text = String::new();
    for record in records {
        // JSON on one line has no line break in it.
        let data = serde_json::to_string(record).unwrap_or_default();
        let _written = write!(text, "event: packet\ndata: {data}\n\n");
    }
    text.into_bytes()
}

impl Encode for TraceEvents {
    fn begin(&mut self) -> Vec<u8> {
        // A reader learns at once that the stream has begun.
        self.sign_of_life()
    }
    fn before(&mut self) {
        self.used_up = self.left.is_used_up();
    }
    fn add(&mut self, seen: &[(usize, Sightings)], now: Instant) -> Vec<u8> {
        events(&self.assembler.add(seen, now))
    }
    fn is_complete(&self) -> bool {
        self.used_up && self.assembler.is_idle()
    }
    fn end(&mut self) -> Vec<u8> {
        events(&self.assembler.end())
    }
    fn sign_of_life(&mut self) -> Vec<u8> {
        b":\n\n".to_vec()
    }
}
