//! Counts by host, the latest requests, and the reports of them.
//!
//! How far a connection's requests are read is kept with its stream ([`Reading`](super::reading::Reading)).

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{FlowKey, checksum};
use netbricks_core::{Counter, Declared, Mobility, Section, ShuffleKey, State, Worker};
use netbricks_stream::{Cut, End, Fate, Why, Window};

use super::HttpInspectConfig;
use super::names::{Blocked, Index};
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

/// All remembered requests; their memory is bounded and allocated at the beginning.
pub(super) struct Requests {
    log: Log,
    block: Blocked,
}

/// Requests that were found.
struct Log {
    hosts: Vec<Host>,
    /// Finds hosts by name, because a client may name another host every few bytes.
    index: Index,
    /// Hosts beyond this many are counted together.
    most_hosts: usize,
    others: u64,
    /// A ring; `next` is the place of the next request.
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
    /// `seed` hides the places of hosts in the index.
    pub(super) fn new(config: &HttpInspectConfig, seed: u64) -> Self {
        Self { log: Log::new(config.hosts, config.latest, seed), block: Blocked::new(&config.block, seed) }
    }

    /// Takes a window of a client's bytes that wait for a decision.
    pub(super) fn decide(&mut self, window: &Window<'_>, parser: &mut Parser, counts: &Counts) -> Fate {
        if self.take(window, parser, counts) {
            counts.blocked.add(1);
            return Fate::Cut(Cut::Reset);
        }
        // The request's host may be in the bytes that follow.
        if parser.is_in_head() { Fate::Hold } else { Fate::Pass }
    }

    /// Takes a window of a client's bytes; returns whether they name a blocked host.
    pub(super) fn take(&mut self, window: &Window<'_>, parser: &mut Parser, counts: &Counts) -> bool {
        let Self { log, block } = self;
        let mut blocked = false;
        let mut found = |found: Found<'_>| match found {
            // One blocked host is enough; the hosts after it are not looked up.
            Found::Host { name, whole } => blocked = blocked || block.holds(name, whole),
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
            // Another worker goes on with the request.
            Why::End(End::Moved) => {}
            Why::End(_) => parser.end(&mut found),
            _ => {}
        }
        blocked
    }
}

impl Log {
    fn new(most_hosts: usize, most_latest: usize, seed: u64) -> Self {
        Self {
            hosts: Vec::with_capacity(most_hosts),
            index: Index::new(most_hosts, seed),
            most_hosts,
            others: 0,
            latest: Vec::with_capacity(most_latest),
            most_latest,
            next: 0,
        }
    }

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
        let hash = self.index.hash(name.get());
        let same = |number: usize| self.hosts[number].name.get().eq_ignore_ascii_case(name.get());
        if let Some(number) = self.index.find(hash, same) {
            self.hosts[number].requests += requests;
        } else if self.hosts.len() < self.most_hosts {
            self.index.add(hash, self.hosts.len());
            self.hosts.push(Host { name, requests });
        } else {
            self.others += requests;
        }
    }

    /// The latest requests, oldest first.
    fn in_order(&self) -> impl Iterator<Item = &Request> {
        let (behind, before) = self.latest.split_at(self.next.min(self.latest.len()));
        before.iter().chain(behind)
    }
}

/// Bytes from the network as text for a terminal.
///
/// Bytes that are not printable ASCII are escaped, as `\x1b`.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.extend(byte.escape_ascii().map(char::from)),
        }
    }
    text
}

/// Declares the reports.
pub(super) fn report(requests: &State<Requests>, counts: &Counts, worker: &Worker) {
    let (hosts, counts) = (requests.clone(), counts.clone());
    worker.report(move || {
        let requests = &hosts.borrow().log;
        let mut rows: Vec<(u64, String)> = requests
            .hosts
            .iter()
            .map(|host| (host.requests, shown(&host.name.get().to_ascii_lowercase())))
            .collect();
        // Sort by name where counts are equal, so that a run repeats its report.
        rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        if requests.others > 0 {
            rows.push((requests.others, "(others)".into()));
        }
        Section {
            title: "requests by host".into(),
            columns: ["host", "requests"].map(Into::into).into(),
            of: Some(rows.len() as u64),
            rows: rows.into_iter().map(|(count, host)| vec![host, count.to_string()]).collect(),
            counts: [
                ("blocked_connections", &counts.blocked),
                ("not_http", &counts.no_requests),
                ("gaps", &counts.gaps),
            ]
            .map(|(name, count)| (name.to_owned(), count.get()))
            .into(),
            merge: SectionMerge::Sum,
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

/// The format: version, hosts with their counts, the common count of other hosts, and the Internet checksum
/// of all.
///
/// Requests in the middle are not handed over to a changed function; it finds the next request. When flows
/// move, counts stay.
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

#[cfg(test)]
mod tests {
    use netbricks_testkit::mutate::Random;
    use proptest::prelude::*;

    use super::super::names::tests::{SLOTS, name};
    use super::*;

    proptest! {
        #[test]
        fn hosts_are_counted_as_if_they_were_looked_for_one_by_one(seed: u64, secret: u64, most in 1usize..40) {
            let mut random = Random::new(seed);
            let mut log = Log::new(most, 1, secret);
            let (mut expected, mut others): (Vec<(String, u64)>, u64) = (Vec::new(), 0);
            for _ in 0..300 {
                let host = name(&mut random);
                log.count(Text::of(host.as_bytes()), 1);
                if let Some((_, requests)) = expected.iter_mut().find(|(of, _)| of.eq_ignore_ascii_case(&host)) {
                    *requests += 1;
                } else if expected.len() < most {
                    expected.push((host, 1));
                } else {
                    others += 1;
                }
            }
            let counted: Vec<_> = log.hosts.iter().map(|host| (host.name.get(), host.requests)).collect();
            let expected: Vec<_> = expected.iter().map(|(host, requests)| (host.as_bytes(), *requests)).collect();
            prop_assert_eq!(counted, expected);
            prop_assert_eq!(log.others, others);
        }
    }

    /// A segment of the shortest possible requests, with the most hosts known.
    ///
    /// It is tried with many secrets, because with one secret a host may share its slots with several others.
    #[test]
    fn requests_cost_no_more_where_many_hosts_are_known() {
        let (mut requests, mut slots) = (0, 0);
        for secret in 0..64 {
            let mut log = Log::new(1_024, 1, secret);
            (0..1_024).for_each(|number| log.count(Text::of(format!("host{number}").as_bytes()), 1));
            SLOTS.set(0);
            Parser::NEW.clone().feed(&b"GET / HTTP/1.1\n\n".repeat(91), |found| {
                if let Found::Request { host, .. } = found {
                    requests += 1;
                    log.count(Text::of(host), 1);
                }
            });
            assert_eq!(log.others, 91);
            slots += SLOTS.get();
        }
        assert_eq!(requests, 64 * 91);
        assert!(slots <= 4 * requests, "{slots} slots for {requests} requests");
    }
}
