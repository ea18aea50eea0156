//! The choice of servers for connections, and the table of connections.

use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::{Cursor, Entry, FlowTable, MAXIMUM_WORK, Occupied, Table};
use netbricks_core::{Flows, Steps, StoredFlow, TableKey};

use super::config::{Mode, Policy};
use super::counts::Counts;
use super::servers::{MOST, Pool, number_of};

/// How often a batch ends up to 64 connections, and counts up to 64 slots of the table again.
const ROUNDS: usize = 64;

/// Time without a packet after which a connection is forgotten that one end has closed, as in Linux (ns).
const CLOSING: u64 = 120_000_000_000;
/// The same where it is over: its last acknowledgments may come again.
const CLOSED: u64 = 10_000_000_000;
/// Ends of a connection, in the bits of its value that the server's number leaves.
const CLIENT_FIN: u64 = 1 << 63;
const SERVER_FIN: u64 = 1 << 62;
const RESET: u64 = 1 << 61;
const ENDS: u64 = CLIENT_FIN | SERVER_FIN | RESET;

/// The effect of a packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A SYN without an acknowledgment.
    Opens,
    /// All else that may begin a connection.
    Data,
    Fin,
    Reset,
    /// It makes no connection and ends none: an error, or a fragment without ports.
    Stray,
}

/// A worker's connections, and the counts by which it chooses.
pub(super) struct Balance {
    policy: Policy,
    /// Time without a packet after which a connection is forgotten (ns).
    idle: u64,
    /// Whether answers of servers pass here, too.
    sees_answers: bool,
    pub(super) connections: Flows<FlowKey, u64>,
    counts: Counts,
    /// By number of the server: its credit in the round robin.
    credit: Vec<i64>,
}

/// The way in which a packet found its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Its connection was known.
    Known,
    /// It begins a connection.
    New,
    /// Its connection's server is down or gone.
    Moved,
    /// It makes no connection, or there is no room for one.
    Stranger,
}

impl Balance {
    pub(super) fn new(policy: Policy, mode: Mode, idle: u64, connections: Flows<FlowKey, u64>) -> Self {
        // Each connection that ends is counted.
        connections.with(FlowTable::stop_own_expiry);
        let sees_answers = mode == Mode::Nat;
        Self { policy, idle, sees_answers, connections, counts: Counts::new(), credit: Vec::new() }
    }

    /// Begins a batch at `now` (ns): ends the connections that are due.
    ///
    /// All of them end before the first packet of that time. So the counts do not depend on the batch size.
    pub(super) fn begin(&mut self, pool: &Pool, now: u64) {
        let Self { counts, connections, sees_answers, .. } = self;
        connections.with(|table| {
            let walk = counts.walk();
            for _ in 0..ROUNDS {
                table.expire_during(now, MAXIMUM_WORK, walk, |_, remembered, is_behind| {
                    counts.less(counted_at(remembered, *sees_answers), is_behind);
                });
                if !table.is_due() {
                    break;
                }
            }
        });
        if self.policy == Policy::LeastConnections {
            self.count_again(pool);
        }
        self.credit.resize(pool.places(), 0);
    }

    /// Counts connections again, a part of the table for each batch, where some came from elsewhere or went there.
    fn count_again(&mut self, pool: &Pool) {
        let Self { counts, connections, sees_answers, .. } = self;
        connections.with(|table| {
            if !counts.is_walking() {
                if counts.all() == table.len() as u64 {
                    return;
                }
                counts.begin();
            }
            let mut walk = counts.walk();
            for _ in 0..ROUNDS {
                let more = table.walk(&mut walk, MAXIMUM_WORK, |_, remembered| {
                    // Another node has other numbers.
                    if let Some(own) = pool.live(*remembered).and_then(|(number, _)| pool.remembered(number))
                    {
                        *remembered = own | *remembered & ENDS;
                    }
                    counts.met(counted_at(*remembered, *sees_answers));
                    true
                });
                if !more {
                    return counts.end();
                }
            }
            counts.go_on(walk);
        });
    }

    /// The server of a packet; `None` where none takes it.
    pub(super) fn server(
        &mut self,
        pool: &Pool,
        flow: FlowKey,
        kind: Kind,
        now: u64,
    ) -> Option<(usize, Found)> {
        let stored = flow.store();
        let table = self.connections.clone();
        let mut table = table.borrow_mut();
        let walk = self.counts.walk();
        match table.lookup(stored, now) {
            Entry::Found(mut found) => {
                let before = *found.get();
                // The same addresses and ports, but another connection.
                let is_reopened = kind == Kind::Opens && is_over(before, self.sees_answers);
                let live = pool.live(before).filter(|(_, known)| pool.serves(known, flow.is_v6()));
                let (number, how) = match live {
                    Some((number, _)) if !is_reopened => (number, Found::Known),
                    Some(_) => (self.choose(pool, flow)?, Found::New),
                    None => (self.choose(pool, flow)?, Found::Moved),
                };
                let ends = if is_reopened { 0 } else { before & ENDS };
                let after = pool.remembered(number)? | kind.after(ends, CLIENT_FIN, self.sees_answers);
                self.change(&mut found, after, walk);
                Some((number, how))
            }
            Entry::Vacant(vacant) if connects(flow) && matches!(kind, Kind::Opens | Kind::Data) => {
                let number = self.choose(pool, flow)?;
                let was_behind = vacant.displaces_behind(walk);
                let (displaced, entered) = vacant.replace(pool.remembered(number)?);
                if let Some((_, before)) = displaced {
                    self.counts.less(counted_at(before, self.sees_answers), was_behind);
                }
                self.counts.more(number, entered.is_behind(walk));
                Some((number, Found::New))
            }
            Entry::Vacant(_) | Entry::Full => Some((pool.choose(flow)?, Found::Stranger)),
        }
    }

    /// Takes note of an answer from a server's address; `asked` is the flow that it answers.
    ///
    /// Whether that is a known connection to the server.
    pub(super) fn answered(
        &mut self,
        pool: &Pool,
        asked: FlowKey,
        address: IpAddr,
        kind: Kind,
        now: u64,
    ) -> bool {
        let table = self.connections.clone();
        let mut table = table.borrow_mut();
        let Entry::Found(mut found) = table.lookup(asked.store(), now) else { return false };
        let before = *found.get();
        let of_it = pool.live(before).filter(|(_, known)| known.server.address == Some(address)).is_some();
        if of_it {
            let ends = kind.after(before & ENDS, SERVER_FIN, self.sees_answers);
            self.change(&mut found, before & !ENDS | ends, self.counts.walk());
        }
        of_it
    }

    /// Gives a connection another value, counts it there, and sets its timeout.
    fn change(&mut self, found: &mut Occupied<'_, StoredFlow, u64>, after: u64, walk: Cursor) {
        let before = std::mem::replace(found.get_mut(), after);
        if before == after {
            return;
        }
        let is_behind = found.is_behind(walk);
        self.counts.less(counted_at(before, self.sees_answers), is_behind);
        self.counts.more(counted_at(after, self.sees_answers), is_behind);
        // Where answers go another way, the server may have more to say.
        let is_closed = after & RESET != 0 || after & CLIENT_FIN != 0 && after & SERVER_FIN != 0;
        let most = match after & ENDS {
            0 => self.idle,
            _ if is_closed => CLOSED,
            _ => CLOSING,
        };
        found.set_timeout(self.idle.min(most));
    }

    /// The server of a new connection.
    fn choose(&mut self, pool: &Pool, flow: FlowKey) -> Option<usize> {
        match self.policy {
            Policy::Maglev => pool.choose(flow),
            Policy::RoundRobin => {
                // Smooth weighted round robin: each gains its weight, and the chosen one pays the sum.
                let takers = pool.takers(flow.is_v6());
                let mut sum = 0;
                let mut best: Option<(usize, i64)> = None;
                for (number, known) in takers {
                    let weight = i64::from(known.server.weight);
                    sum += weight;
                    let credit = self.credit.get_mut(number)?;
                    *credit += weight;
                    if best.is_none_or(|(_, most)| *credit > most) {
                        best = Some((number, *credit));
                    }
                }
                let (number, _) = best?;
                self.credit[number] -= sum;
                Some(number)
            }
            Policy::LeastConnections => {
                let load = |number: usize| u128::from(self.counts.of(number)) + 1;
                let takers = pool.takers(flow.is_v6());
                // The connections for each unit of weight, compared as fractions.
                takers
                    .min_by(|(one, first), (other, second)| {
                        let left = load(*one) * u128::from(second.server.weight);
                        left.cmp(&(load(*other) * u128::from(first.server.weight)))
                    })
                    .map(|(number, _)| number)
            }
        }
    }

    /// An answer from the open connections of each server, by number.
    pub(super) fn with_open<T: 'static>(
        connections: &Flows<FlowKey, u64>,
        pool: Arc<Pool>,
        end: impl FnOnce(&Pool, &[u64]) -> T + 'static,
    ) -> Steps<T> {
        let sees_answers = pool.mode() == Mode::Nat;
        let (open, now) = (vec![0; pool.places()], pool.clone());
        let add = move |open: &mut Vec<u64>, _: &StoredFlow, remembered: &u64| {
            if is_over(*remembered, sees_answers) {
                return;
            }
            if let Some((number, _)) = now.live(*remembered) {
                open[number] += 1;
            }
        };
        connections.in_steps(open, add, move |open, _| end(&pool, &open))
    }
}

impl Kind {
    /// The ends of a connection behind it; `fin` is that of the sender's FIN.
    ///
    /// A connection goes on whose reset is followed by data: it was forged, or the other end did not take it.
    fn after(self, ends: u64, fin: u64, sees_answers: bool) -> u64 {
        match self {
            Self::Fin => ends | fin,
            Self::Reset => ends | RESET,
            Self::Data if !is_over(ends & !RESET, sees_answers) => ends & !RESET,
            Self::Opens | Self::Data | Self::Stray => ends,
        }
    }
}

/// Whether a connection with this value is over.
///
/// A FIN of the client is enough where answers do not pass here.
const fn is_over(remembered: u64, sees_answers: bool) -> bool {
    let is_closed = remembered & CLIENT_FIN != 0 && (!sees_answers || remembered & SERVER_FIN != 0);
    remembered & RESET != 0 || is_closed
}

/// The place of a connection's count: its server's number, or the last one where it is over.
fn counted_at(remembered: u64, sees_answers: bool) -> usize {
    if is_over(remembered, sees_answers) { MOST } else { number_of(remembered) }
}

/// Whether packets of this flow make a connection: ICMPv6 without an identifier, such as discovery, does not.
fn connects(flow: FlowKey) -> bool {
    flow.protocol() != protocol::ICMPV6 || flow.source_port() != 0
}

#[cfg(test)]
mod tests {
    use netbricks_core::Worker;
    use netbricks_core::buffer::Pool as Buffers;
    use netbricks_core::tables::{FlowTableConfig, Full};
    use netbricks_testkit::mutate::Random;

    use super::super::servers::First;
    use super::*;

    fn pool(names: &[&str]) -> Pool {
        let server =
            |(number, name): (u8, &&str)| format!("{name} 02:00:00:00:01:{number:02x} 1").parse().unwrap();
        let servers = (1..).zip(names).map(server).collect();
        Pool::first(&First { servers, mode: Mode::Dsr, slots: 101, key: String::new(), checked: true })
            .unwrap()
    }

    fn flow(number: usize) -> FlowKey {
        let [a, b, c, d] = (number as u32).to_be_bytes();
        FlowKey::new([10, a, b, c].into(), [10, 9, 9, 9].into(), 1_000 + u16::from(d), 80, protocol::TCP)
    }

    /// Batches with connections that come, expire, move from other nodes and give place, for a table of many slots.
    #[test]
    fn counts_are_those_of_the_table_however_connections_come_and_go() {
        const CAPACITY: usize = 12_000;
        let buffers = Buffers::builder().frames(16).build().unwrap();
        let worker = Worker::new(0, 1, buffers);
        let config = FlowTableConfig {
            capacity: CAPACITY,
            idle_timeout: Some(1_000),
            full: Full::EvictOldest,
            seed: 5,
        };
        let connections = worker.flow_table::<FlowKey, u64>("connections", config);
        let mut balance =
            Balance::new(Policy::LeastConnections, Mode::Dsr, 1_000 * 1_000_000, connections.clone());
        let (own, other) = (pool(&["a", "b", "c", "d"]), pool(&["x", "d", "c", "gone"]));
        let (mut random, mut now, mut walked) = (Random::new(9), 0, 0);
        for round in 0..390 {
            now += if round % 40 == 39 { 2_000 * 1_000_000 } else { 0 };
            balance.begin(&own, now);
            for _ in 0..random.below(400) {
                let kind = [Kind::Opens, Kind::Data, Kind::Data, Kind::Fin, Kind::Reset][random.below(5)];
                balance.server(&own, flow(random.below(2 * CAPACITY)), kind, now);
            }
            if round % 7 == 0 {
                // From another node, past the counts.
                connections.with(|table| {
                    for _ in 0..random.below(200) {
                        let remembered = other.remembered(random.below(4)).unwrap();
                        let _ = table
                            .lookup(flow(random.below(2 * CAPACITY)).store(), now)
                            .or_insert_with(|| remembered);
                    }
                });
            }
            walked += usize::from(balance.counts.is_walking());
        }
        assert!(walked > 20, "parts of the table were counted in {walked} batches");
        // Without further moves, the counts become those of the table.
        for _ in 0..20 {
            balance.begin(&own, now);
            balance.server(&own, flow(random.below(2 * CAPACITY)), Kind::Data, now);
        }
        assert!(!balance.counts.is_walking());
        assert!(connections.with(|table| table.len()) > 3_000);
        let mut expected = [0; 4];
        connections.with(|table| {
            for (_, remembered) in table.iter().filter(|(_, value)| !is_over(**value, false)) {
                // Those whose server is gone count where they were.
                let number = own.live(*remembered).map_or(number_of(*remembered), |(number, _)| number);
                expected[number] += 1;
            }
        });
        assert_eq!([0, 1, 2, 3].map(|number| balance.counts.of(number)), expected.map(|count: u64| count));
    }
}
