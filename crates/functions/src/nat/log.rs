//! The last events of subscribers and their blocks of ports, which an operator keeps to know who had a port.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use super::ports::PortRange;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Assigned { subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange },
    Released { subscriber: IpAddr, outside: Ipv4Addr, ports: PortRange },
    Exhausted { subscriber: Option<IpAddr> },
}

/// The last events with their numbers and times.
pub(super) struct Log {
    events: VecDeque<(u64, u64, Event)>,
    most: usize,
    next: u64,
    /// The time of the last event that ports were exhausted: one a second is enough.
    exhausted_at: Option<u64>,
}

impl Log {
    pub(super) fn new(most: usize) -> Self {
        Self { events: VecDeque::with_capacity(most), most, next: 1, exhausted_at: None }
    }

    fn add(&mut self, now: u64, event: Event) {
        if self.events.len() == self.most {
            self.events.pop_front();
        }
        self.events.push_back((self.next, now, event));
        self.next += 1;
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
