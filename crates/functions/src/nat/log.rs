//! The last events of subscribers and their blocks of ports, which an operator keeps to know who had a port.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::EventLog;

use super::ports::PortRange;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Assigned { subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange },
    Released { subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange },
    Exhausted { subscriber: Option<IpAddr> },
}

/// An event and its time (ns), as a run tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    time: u64,
    event: Event,
}

impl Told {
    /// Writes it as a JSON object.
    pub(super) fn write(&self, to: &mut dyn Write) -> fmt::Result {
        let of_block =
            |to: &mut dyn Write, kind: &str, (subscriber, outside, ports): (IpAddr, Ipv4Addr, PortRange)| {
                write!(to, "{{\"event\":\"{kind}\",\"time\":{},\"subscriber\":\"{subscriber}\"", self.time)?;
                write!(to, ",\"outside\":\"{outside}\",\"first\":{},\"last\":{}}}", ports.first, ports.last)
            };
        match self.event {
            Event::Assigned { subscriber, outside, ports } => {
                of_block(to, "block-assigned", (subscriber, outside, ports))
            }
            Event::Released { subscriber, outside, ports } => {
                of_block(to, "block-released", (subscriber, outside, ports))
            }
            Event::Exhausted { subscriber } => {
                write!(to, "{{\"event\":\"ports-exhausted\",\"time\":{}", self.time)?;
                match subscriber {
                    Some(subscriber) => write!(to, ",\"subscriber\":\"{subscriber}\"}}"),
                    None => to.write_char('}'),
                }
            }
        }
    }
}

/// Events that wait to be told. One batch or call makes fewer, unless it moves sessions.
const UNTOLD: usize = 2_048;

/// The last events with their numbers and times.
pub(super) struct Log {
    events: VecDeque<(u64, u64, Event)>,
    most: usize,
    next: u64,
    /// Events that were not told yet, and how many found no room to wait.
    untold: VecDeque<Told>,
    pub(super) lost: u64,
    /// The time of the last event that ports were exhausted: one a second is enough.
    exhausted_at: Option<u64>,
}

impl Log {
    pub(super) fn new(most: usize) -> Self {
        Self {
            events: VecDeque::with_capacity(most),
            most,
            next: 1,
            untold: VecDeque::with_capacity(if most > 1 { UNTOLD } else { 1 }),
            lost: 0,
            exhausted_at: None,
        }
    }

    /// Whether it has as much room as the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.most == other.most
    }

    /// Goes on with the last events of another that fit, and with its numbers.
    pub(super) fn follow(&mut self, before: &mut Self) {
        let gone = before.events.len().saturating_sub(self.most);
        self.events.clear();
        self.events.extend(before.events.drain(gone..));
        (self.next, self.lost, self.exhausted_at) = (before.next, before.lost, before.exhausted_at);
        std::mem::swap(&mut self.untold, &mut before.untold);
    }

    fn add(&mut self, now: u64, event: Event) {
        if self.events.len() == self.most {
            self.events.pop_front();
        }
        self.events.push_back((self.next, now, event));
        self.next += 1;
        if self.untold.len() < self.untold.capacity() {
            self.untold.push_back(Told { time: now, event });
        } else {
            self.lost += 1;
        }
    }

    /// Tells the events since the last call.
    #[inline]
    pub(super) fn tell(&mut self, to: &EventLog<Told>) {
        while let Some(told) = self.untold.pop_front() {
            to.push(told);
        }
    }

    /// A subscriber got a block.
    pub(super) fn assigned(&mut self, now: u64, subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange) {
        self.add(now, Event::Assigned { subscriber, outside, ports });
    }

    /// A block is free again.
    pub(super) fn released(&mut self, now: u64, subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange) {
        self.add(now, Event::Released { subscriber, outside, ports });
    }

    /// A subscriber found no port.
    pub(super) fn exhausted(&mut self, now: u64, subscriber: Option<IpAddr>) {
        if self.exhausted_at.is_none_or(|before| now.saturating_sub(before) >= 1_000_000_000) {
            self.exhausted_at = Some(now);
            self.add(now, Event::Exhausted { subscriber });
        }
    }

    /// The events with numbers above `after`, one a line, oldest first.
    pub(super) fn lines(&self, after: u64) -> String {
        let mut text = String::new();
        for (number, time, event) in self.events.iter().filter(|(number, ..)| *number > after) {
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000 / 1_000_000);
            // Writing to a string cannot fail.
            let _ = write!(text, "{number} {seconds}.{rest:03} ");
            let _ = match event {
                Event::Assigned { subscriber, outside, ports } => {
                    writeln!(text, "assigned {subscriber} {outside} {}-{}", ports.first, ports.last)
                }
                Event::Released { subscriber, outside, ports } => {
                    writeln!(text, "released {subscriber} {outside} {}-{}", ports.first, ports.last)
                }
                Event::Exhausted { subscriber: Some(subscriber) } => {
                    writeln!(text, "exhausted {subscriber}")
                }
                Event::Exhausted { subscriber: None } => writeln!(text, "exhausted"),
            };
        }
        text
    }
}
