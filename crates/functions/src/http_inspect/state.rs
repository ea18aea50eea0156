//! What is remembered of requests: counts by host, the latest requests; and the reports of them. How far each connection is lies
//! with its stream ([`Reading`](super::reading::Reading)).

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{FlowKey, checksum};
use netbricks_core::stream::{Cut, End, Fate, Why, Window};
use netbricks_core::{Counter, Declared, Mobility, Section, ShuffleKey, State, Worker};

use super::HttpInspectConfig;
use super::parse::{Found, HOST, LINE, Parser, Text};

/// Requests to one host.
#[derive(Clone, Copy, Debug)]
struct Host {
    name: Text<HOST>,
    requests: u64,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Request {
    flow: FlowKey,
    host: Text<HOST>,
    line: Text<LINE>,
}

/// Everything that is remembered, all of it bounded and there from the beginning.
pub(super) struct Requests {
    log: Log,
    /// Hosts to which nobody may speak.
    block: Box<[Box<[u8]>]>,
}

/// Requests that were found.
struct Log {
    hosts: Vec<Host>,
    /// Hosts beyond this many are counted together.
    most_hosts: usize,
    others: u64,
    /// A ring, of which `next` is the place of the next.
    latest: Vec<Request>,
    most_latest: usize,
    next: usize,
}

/// Counters of the function.
#[derive(Clone)]
pub(super) struct Counts {
    pub(super) requests: Counter,
    pub(super) no_requests: Counter,
    pub(super) gaps: Counter,
    pub(super) blocked: Counter,
}

impl Requests {
    pub(super) fn new(config: &HttpInspectConfig) -> Self {
        let log = Log {
            hosts: Vec::with_capacity(config.hosts),
            most_hosts: config.hosts,
            others: 0,
            latest: Vec::with_capacity(config.latest),
            most_latest: config.latest,
            next: 0,
        };
        let block = config.block.iter().map(|name| name.as_bytes().into()).collect();
        Self { log, block }
    }

    /// Takes a window of what a client sent that waits for a decision.
    pub(super) fn decide(&mut self, window: &Window<'_>, parser: &mut Parser, counts: &Counts) -> Fate {
        if self.take(window, parser, counts) {
            counts.blocked.add(1);
            return Fate::Cut(Cut::Reset);
        }
        // Its host may be among what follows.
        if parser.is_in_head() { Fate::Hold } else { Fate::Pass }
    }

    /// Takes a window of what a client sent; answers whether it speaks to a host to which nobody may.
    pub(super) fn take(&mut self, window: &Window<'_>, parser: &mut Parser, counts: &Counts) -> bool {
        let Self { log, block } = self;
        let mut blocked = false;
        let mut found = |found: Found<'_>| match found {
            // Of one that is longer than any of them, the rest is not known.
            Found::Host { name, whole } => {
                blocked |= block.iter().any(|of| !whole || is_within(host_name(name), of));
            }
            Found::NoRequest => counts.no_requests.add(1),
            Found::Request { line, host } => {
                counts.requests.add(1);
                log.remember(Request { flow: window.flow, host: Text::of(host), line: Text::of(line) });
            }
        };
        if window.gap > 0 {
            counts.gaps.add(1);
            parser.gap(window.gap, &mut found);
        }
        parser.feed(window.fresh(), &mut found);
        match window.why {
            // Another worker goes on with a request that is in the middle.
            Why::End(End::Moved) => {}
            Why::End(_) => parser.end(&mut found),
            _ => {}
        }
        blocked
    }
}

/// A host without its port, and without the dot that ends a full name.
fn host_name(host: &[u8]) -> &[u8] {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|end| end + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    let name = &host[..end.unwrap_or(host.len())];
    name.strip_suffix(b".").unwrap_or(name)
}

/// Whether a name is `of` or below it.
fn is_within(name: &[u8], of: &[u8]) -> bool {
    let Some(below) = name.len().checked_sub(of.len()) else { return false };
    name[below..].eq_ignore_ascii_case(of) && (below == 0 || name[below - 1] == b'.')
}

impl Log {
    fn remember(&mut self, request: Request) {
        self.count(request.host, 1);
        if self.latest.len() < self.most_latest {
            self.latest.push(request);
        } else {
            self.latest[self.next] = request;
        }
        self.next = (self.next + 1) % self.most_latest;
    }

    fn count(&mut self, name: Text<HOST>, requests: u64) {
        let same = |host: &&mut Host| host.name.get().eq_ignore_ascii_case(name.get());
        if let Some(host) = self.hosts.iter_mut().find(same) {
            host.requests += requests;
        } else if self.hosts.len() < self.most_hosts {
            self.hosts.push(Host { name, requests });
        } else {
            self.others += requests;
        }
    }

    /// Oldest first.
    fn in_order(&self) -> impl Iterator<Item = &Request> {
        let (behind, before) = self.latest.split_at(self.next.min(self.latest.len()));
        before.iter().chain(behind)
    }
}

/// Whatever a network sends can be shown: bytes that are no text are escaped.
fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Declares the reports.
pub(super) fn report(requests: &State<Requests>, worker: &Worker) {
    let hosts = requests.clone();
    worker.report(move || {
        let requests = &hosts.borrow().log;
        let mut rows: Vec<(u64, String)> = requests
            .hosts
            .iter()
            .map(|host| (host.requests, shown(&host.name.get().to_ascii_lowercase())))
            .collect();
        // By name where counts are equal, so that a run repeats its report.
        rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        if requests.others > 0 {
            rows.push((requests.others, "(others)".into()));
        }
        Section {
            title: "requests by host".into(),
            columns: ["host", "requests"].map(Into::into).into(),
            of: Some(rows.len() as u64),
            rows: rows.into_iter().map(|(count, host)| vec![host, count.to_string()]).collect(),
            merge: SectionMerge::Sum,
            ..Section::default()
        }
    });
    let latest = requests.clone();
    worker.report(move || {
        let requests = &latest.borrow().log;
        let rows = requests.in_order().map(|request| {
            vec![request.flow.to_string(), shown(request.host.get()), shown(request.line.get())]
        });
        Section {
            title: "latest requests".into(),
            columns: ["flow", "host", "request"].map(Into::into).into(),
            rows: rows.collect(),
            merge: SectionMerge::Concatenate,
            ..Section::default()
        }
    });
}

/// Version, hosts with their counts, what was counted together, and the Internet checksum of all. Requests that are being
/// sent are not handed over to a changed function: the next one is found again. Where flows move, what was counted stays.
impl Declared for Requests {
    fn export(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend((self.log.hosts.len() as u16).to_be_bytes());
        bytes.extend(self.log.others.to_be_bytes());
        for Host { name, requests } in &self.log.hosts {
            bytes.extend(requests.to_be_bytes());
            bytes.push(name.get().len() as u8);
            bytes.push(0);
            bytes.extend(name.get());
            bytes.resize(bytes.len().next_multiple_of(2), 0);
        }
        bytes.extend(checksum::internet(&bytes).to_be_bytes());
        bytes
    }

    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let broken = || "the exported requests end in the middle".to_owned();
        let (head, mut rest) = bytes.split_first_chunk::<12>().ok_or_else(broken)?;
        if head[0] != VERSION {
            return Err(format!("exported requests of version {VERSION} were expected, found {}", head[0]));
        }
        if bytes.len() % 2 == 1 || checksum::internet(bytes) != 0 {
            return Err("the exported requests are corrupt: their checksum is wrong".into());
        }
        let mut hosts = Vec::new();
        for _ in 0..u16::from_be_bytes([head[2], head[3]]) {
            let (fixed, more) = rest.split_first_chunk::<10>().ok_or_else(broken)?;
            let len = usize::from(fixed[8]);
            let name = more.get(..len).ok_or_else(broken)?;
            rest = more.get(len.next_multiple_of(2)..).ok_or_else(broken)?;
            hosts.push((Text::of(name), number(&fixed[..8])));
        }
        if rest.len() != 2 {
            return Err(format!("exported requests end in 2 bytes of checksum, found {}", rest.len()));
        }
        self.log.others += number(&head[4..]);
        hosts.into_iter().for_each(|(name, requests)| self.log.count(name, requests));
        Ok(())
    }

    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Stays
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.log.hosts.len() as u64, self.log.most_hosts as u64)
    }
}

const VERSION: u8 = 1;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
