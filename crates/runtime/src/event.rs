//! Events of running workers for an operator: contained panics, ports that go down, warnings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use netbricks_core::Panic;
use netbricks_core::graph::contain;
use netbricks_core::tenants::TenantEvent;

/// An event for an operator. Its `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A node panicked and was contained. At most one a second and node is reported; all are counted.
    Panic {
        /// The worker on which it happened.
        worker: usize,
        /// The graph.
        graph: String,
        /// The details of the panic.
        panic: Panic,
        /// Panics of this node since the last reported one.
        untold: u64,
    },
    /// A node cannot do its work. It drops what comes, and the end of the run is a failure.
    NodeFailed {
        /// The worker on which it runs.
        worker: usize,
        /// The graph.
        graph: String,
        /// The node.
        node: String,
        /// The reason, which may have several lines.
        problem: String,
    },
    /// A port can no longer give or take packets.
    PortDown {
        /// The port.
        port: String,
        /// The reason.
        problem: String,
    },
    /// A port is back.
    PortUp {
        /// The port.
        port: String,
    },
    /// A worker has ended, because its sources did or because it was stopped.
    WorkerEnded {
        /// The worker.
        worker: usize,
    },
    /// A tenant took more time than it may at once, or is punished for that.
    ///
    /// At most one a second, tenant and kind is reported; the tenant's overruns are all counted.
    Tenant {
        /// The worker on which it happened.
        worker: usize,
        /// The event.
        event: TenantEvent,
        /// Events of this kind and tenant since the last reported one.
        untold: u64,
    },
    /// A problem that does not stop the run.
    Warning(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic { worker, graph, panic, untold } => {
                let place = panic.place.as_deref().unwrap_or("an unknown place");
                // A panic's message may have several lines; an event has one.
                let message = panic.message.lines().collect::<Vec<_>>().join(" | ");
                write!(
                    f,
                    "`{}` of `{graph}` panicked on worker {worker} at {place}: {message}; {} packets lost, ",
                    panic.node, panic.packets
                )?;
                match panic.quarantine {
                    None if panic.rebuilt => f.write_str("state rebuilt")?,
                    None => f.write_str("the node goes on as it is")?,
                    Some(u64::MAX) => f.write_str("in quarantine until it is applied again")?,
                    Some(until) => {
                        let left = until.saturating_sub(panic.time) as f64 / 1e9;
                        write!(f, "in quarantine for {left} s")?;
                    }
                }
                more(f, *untold)
            }
            Self::NodeFailed { worker, graph, node, problem } => {
                let problem = problem.lines().collect::<Vec<_>>().join(" | ");
                write!(f, "`{node}` of `{graph}` cannot do its work on worker {worker}: {problem}")
            }
            Self::PortDown { port, problem } => write!(f, "port `{port}` is down: {problem}"),
            Self::PortUp { port } => write!(f, "port `{port}` is up again"),
            Self::Tenant { worker, event, untold } => {
                match event {
                    TenantEvent::Overran { tenant, ns } => {
                        let ms = *ns as f64 / 1e6;
                        write!(f, "tenant `{tenant}` held worker {worker} for {ms:.2} ms at once")?;
                    }
                    TenantEvent::Preempted { tenant } => {
                        write!(f, "a module of tenant `{tenant}` was preempted on worker {worker}")?;
                    }
                    TenantEvent::Demoted { tenant } => {
                        write!(
                            f,
                            "tenant `{tenant}` held worker {worker} too often: it comes last for 10 s"
                        )?;
                    }
                    TenantEvent::Restored { tenant } => {
                        write!(f, "tenant `{tenant}` has its priority again on worker {worker}")?;
                    }
                }
                more(f, *untold)
            }
            Self::WorkerEnded { worker } => write!(f, "worker {worker} has ended"),
            Self::Warning(warning) => f.write_str(warning),
        }
    }
}

fn more(f: &mut fmt::Formatter<'_>, untold: u64) -> fmt::Result {
    if untold == 0 { Ok(()) } else { write!(f, " ({untold} more since the last report)") }
}

/// The destination of events.
///
/// It is called on workers' threads: it must not block. If it panics, that event is lost.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(Event) + Send + Sync>);

impl EventSink {
    /// Calls `tell` with each event.
    pub fn new(tell: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
    /// A sink and the channel in which events arrive. When `bound` events are unread, new ones are lost.
    pub fn channel(bound: usize) -> (Self, Receiver<Event>) {
        let (sender, receiver) = sync_channel(bound.max(1));
        (Self::new(move |event| drop(sender.try_send(event))), receiver)
    }
    /// Reports an event.
    pub fn tell(&self, event: Event) {
        // A panic of the sink cannot be reported to the sink.
        let _panicked = contain(|| (self.0)(event));
    }
}

impl Default for EventSink {
    /// Discards all events.
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// Panics of one node at one place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PanicReport {
    /// The graph.
    pub graph: String,
    /// The node.
    pub node: String,
    /// File, line and column, where it is known.
    pub place: Option<String>,
    /// The message of the last one.
    pub message: String,
    /// The number seen at this place.
    ///
    /// A node that panics faster than the runtime looks has a higher number in its counters.
    pub count: u64,
    /// Packets that were lost with these panics.
    pub packets: u64,
    /// Whether the node was built again after the last one.
    pub rebuilt: bool,
}

/// The most places that are counted separately; panics at further ones are added to the last.
const PLACES: usize = 64;
const INTERVAL: Duration = Duration::from_secs(1);
/// Subjects that are kept apart; beyond that, quiet ones are forgotten.
const SUBJECTS: usize = 16_384;

/// The panics of one worker: all are counted, and one a second and node is reported.
#[derive(Debug, Default)]
pub(crate) struct PanicLog {
    reports: Vec<PanicReport>,
    /// By graph and node.
    told: OnceASecond<(String, String)>,
}

/// The time of the last report of each subject, and the number of events since.
#[derive(Debug)]
struct OnceASecond<K>(BTreeMap<K, (Instant, u64)>);

impl<K> Default for OnceASecond<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> OnceASecond<K> {
    /// Where an event is to be reported: the number of its kind that was not, since the last report.
    fn report(&mut self, subject: K, now: Instant) -> Option<u64> {
        match self.0.get_mut(&subject) {
            Some((last, untold)) if now.saturating_duration_since(*last) < INTERVAL => {
                *untold += 1;
                None
            }
            Some((last, untold)) => {
                *last = now;
                Some(std::mem::take(untold))
            }
            None => {
                // Tenants come and go: subjects of which nothing was to be told for long are forgotten.
                if self.0.len() >= SUBJECTS {
                    self.0.retain(|_, (last, _)| now.saturating_duration_since(*last) < INTERVAL);
                }
                self.0.insert(subject, (now, 0));
                Some(0)
            }
        }
    }
}

/// The events of one worker's tenants: one a second, tenant and kind is reported.
#[derive(Debug, Default)]
pub(crate) struct TenantLog(OnceASecond<(String, u8)>);

impl TenantLog {
    /// The event to report at `now`, if one is due.
    pub(crate) fn add(&mut self, worker: usize, event: TenantEvent, now: Instant) -> Option<Event> {
        let kind = match event {
            TenantEvent::Overran { .. } => 0,
            TenantEvent::Preempted { .. } => 1,
            TenantEvent::Demoted { .. } => 2,
            TenantEvent::Restored { .. } => 3,
        };
        let untold = self.0.report((event.tenant().to_owned(), kind), now)?;
        Some(Event::Tenant { worker, event, untold })
    }
}

impl PanicLog {
    /// Counts a panic at `now`. Answers the event to report, if one is due.
    pub(crate) fn add(&mut self, worker: usize, graph: &str, panic: Panic, now: Instant) -> Option<Event> {
        merge(
            &mut self.reports,
            PanicReport {
                graph: graph.to_owned(),
                node: panic.node.clone(),
                place: panic.place.clone(),
                message: panic.message.clone(),
                count: 1,
                packets: panic.packets,
                rebuilt: panic.rebuilt,
            },
        );
        let untold = self.told.report((graph.to_owned(), panic.node.clone()), now)?;
        Some(Event::Panic { worker, graph: graph.to_owned(), panic, untold })
    }
    pub(crate) fn reports(&self) -> &[PanicReport] {
        &self.reports
    }
}

/// Adds a report to those of other places, or of other workers.
pub(crate) fn merge(reports: &mut Vec<PanicReport>, report: PanicReport) {
    let full = reports.len() >= PLACES;
    let same = reports.iter().position(|known| {
        (&known.graph, &known.node, &known.place) == (&report.graph, &report.node, &report.place)
    });
    match same.or(full.then_some(PLACES - 1)) {
        Some(place) => {
            let known = &mut reports[place];
            known.count += report.count;
            known.packets += report.packets;
            known.message = report.message;
            known.rebuilt = report.rebuilt;
        }
        None => reports.push(report),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panic(node: &str, place: u32) -> Panic {
        Panic {
            quarantine: None,
            node: node.into(),
            message: format!("at {place}\nsecond line"),
            place: Some(format!("nf.rs:{place}:1")),
            packets: 32,
            time: 0,
            rebuilt: true,
        }
    }

    #[test]
    fn one_a_second_a_node_is_told_and_all_are_counted() {
        let mut log = PanicLog::default();
        let start = Instant::now();
        let mut told = Vec::new();
        for ms in 0..2_500 {
            let now = start + Duration::from_millis(ms);
            told.extend(log.add(0, "g", panic("a", 1), now));
            told.extend(log.add(0, "g", panic("b", 2), now));
        }
        let untold: Vec<_> = told
            .iter()
            .filter_map(|event| match event {
                Event::Panic { panic, untold, .. } if panic.node == "a" => Some(*untold),
                _ => None,
            })
            .collect();
        assert_eq!(untold, [0, 999, 999]);
        assert_eq!(told.len(), 6);
        assert!(told.iter().all(|event| event.to_string().lines().count() == 1));
        assert_eq!(log.reports().iter().map(|report| report.count).collect::<Vec<_>>(), [2_500, 2_500]);
    }

    #[test]
    fn one_a_second_a_tenant_and_kind_is_told() {
        let mut log = TenantLog::default();
        let start = Instant::now();
        let mut told = Vec::new();
        let name = |tenant: &str| tenant.to_owned();
        for ms in 0..2_500 {
            let now = start + Duration::from_millis(ms);
            for event in [
                TenantEvent::Overran { tenant: name("a"), ns: 200_000 + ms },
                TenantEvent::Preempted { tenant: name("a") },
                TenantEvent::Overran { tenant: name("b"), ns: 200_000 },
            ] {
                told.extend(log.add(0, event, now));
            }
        }
        let of_a: Vec<u64> = told
            .iter()
            .filter_map(|event| match event {
                Event::Tenant { event: TenantEvent::Overran { tenant, .. }, untold, .. } if tenant == "a" => {
                    Some(*untold)
                }
                _ => None,
            })
            .collect();
        assert_eq!((of_a, told.len()), (vec![0, 999, 999], 9));
        assert!(told[3].to_string().ends_with("(999 more since the last report)"), "{}", told[3]);
    }

    #[test]
    fn places_are_bounded() {
        let mut log = PanicLog::default();
        for place in 0..10_000 {
            log.add(0, "g", panic("a", place), Instant::now());
        }
        assert_eq!(log.reports().len(), PLACES);
        assert_eq!(log.reports().iter().map(|report| report.count).sum::<u64>(), 10_000);
    }

    #[test]
    fn a_full_channel_loses_events_instead_of_blocking() {
        let (sink, events) = EventSink::channel(2);
        for i in 0..5 {
            sink.tell(Event::WorkerEnded { worker: i });
        }
        assert_eq!(events.try_iter().count(), 2);
    }
}
