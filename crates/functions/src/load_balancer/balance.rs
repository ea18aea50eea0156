//! The choice of servers for connections, and the table of connections.

use netbricks_core::packet::{FlowKey, protocol};
use netbricks_core::tables::{Entry, FlowTable, MAXIMUM_WORK, Table};
use netbricks_core::{Flows, TableKey};

use super::config::Policy;
use super::counts::Counts;
use super::servers::{Pool, number_of};

/// How often a batch ends up to 64 connections, and counts up to 64 slots of the table again.
const ROUNDS: usize = 64;

/// A worker's connections, and the counts by which it chooses.
pub(super) struct Balance {
    policy: Policy,
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
    /// It makes no connection: an error, or there is no room.
    Stranger,
}

impl Balance {
    pub(super) fn new(policy: Policy, connections: Flows<FlowKey, u64>) -> Self {
        // Each connection that ends is counted.
        connections.with(FlowTable::stop_own_expiry);
        Self { policy, connections, counts: Counts::new(), credit: Vec::new() }
    }

    /// Begins a batch at `now` (ns): ends the connections that are due.
    ///
    /// All of them end before the first packet of that time. So the counts do not depend on the batch size.
    pub(super) fn begin(&mut self, pool: &Pool, now: u64) {
        let Self { counts, connections, .. } = self;
        connections.with(|table| {
            let walk = counts.walk();
            for _ in 0..ROUNDS {
                table.expire_during(now, MAXIMUM_WORK, walk, |_, remembered, is_behind| {
                    counts.less(number_of(remembered), is_behind);
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
        let Self { counts, connections, .. } = self;
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
                        *remembered = own;
                    }
                    counts.met(number_of(*remembered));
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
    ///
    /// `is_error` says that the packet quotes the flow, and makes no connection.
    pub(super) fn server(
        &mut self,
        pool: &Pool,
        flow: FlowKey,
        is_error: bool,
        now: u64,
    ) -> Option<(usize, Found)> {
        let stored = flow.store();
        let table = self.connections.clone();
        let mut table = table.borrow_mut();
        let walk = self.counts.walk();
        match table.lookup(stored, now) {
            Entry::Found(mut found) => {
                let before = *found.get();
                let (number, how) = match pool.live(before) {
                    Some((number, _)) if number == number_of(before) => return Some((number, Found::Known)),
                    // Another node has other numbers.
                    Some((number, _)) => (number, Found::Known),
                    None => (self.choose(pool, flow)?, Found::Moved),
                };
                *found.get_mut() = pool.remembered(number)?;
                let is_behind = found.is_behind(walk);
                self.counts.less(number_of(before), is_behind);
                self.counts.more(number, is_behind);
                Some((number, how))
            }
            Entry::Vacant(vacant) if connects(flow) && !is_error => {
                let number = self.choose(pool, flow)?;
                let was_behind = vacant.displaces_behind(walk);
                let (displaced, entered) = vacant.replace(pool.remembered(number)?);
                if let Some((_, before)) = displaced {
                    self.counts.less(number_of(before), was_behind);
                }
                self.counts.more(number, entered.is_behind(walk));
                Some((number, Found::New))
            }
            Entry::Vacant(_) | Entry::Full => Some((pool.choose(&stored)?, Found::Stranger)),
        }
    }

    /// The server of a new connection.
    fn choose(&mut self, pool: &Pool, flow: FlowKey) -> Option<usize> {
        match self.policy {
            Policy::Maglev => pool.choose(&flow.store()),
            Policy::RoundRobin => {
                // Smooth weighted round robin: each gains its weight, and the chosen one pays the sum.
                let takers = pool.all().filter(|(_, known)| known.takes());
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
                let takers = pool.all().filter(|(_, known)| known.takes());
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

    /// The connections of each server, by number.
    pub(super) fn open(connections: &Flows<FlowKey, u64>, pool: &Pool) -> Vec<u64> {
        let mut open = vec![0; pool.places()];
        connections.with(|table| {
            for (_, remembered) in table.iter() {
                if let Some((number, _)) = pool.live(*remembered) {
                    open[number] += 1;
                }
            }
        });
        open
    }
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

    use super::super::config::Mode;
    use super::super::servers::First;
    use super::*;

    fn pool(names: &[&str]) -> Pool {
        let server =
            |(number, name): (u8, &&str)| format!("{name} 02:00:00:00:01:{number:02x} 1").parse().unwrap();
        let servers = (1..).zip(names).map(server).collect();
        Pool::first(&First { servers, mode: Mode::Dsr, slots: 101, key: String::new() }).unwrap()
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
        let mut balance = Balance::new(Policy::LeastConnections, connections.clone());
        let (own, other) = (pool(&["a", "b", "c", "d"]), pool(&["x", "d", "c", "gone"]));
        let (mut random, mut now, mut walked) = (Random::new(9), 0, 0);
        for round in 0..390 {
            now += if round % 40 == 39 { 2_000 * 1_000_000 } else { 0 };
            balance.begin(&own, now);
            for _ in 0..random.below(400) {
                balance.server(&own, flow(random.below(2 * CAPACITY)), false, now);
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
            balance.server(&own, flow(random.below(2 * CAPACITY)), false, now);
        }
        assert!(!balance.counts.is_walking());
        assert!(connections.with(|table| table.len()) > 3_000);
        let mut expected = [0; 4];
        connections.with(|table| {
            for (_, remembered) in table.iter() {
                // Those whose server is gone count where they were.
                let number = own.live(*remembered).map_or(number_of(*remembered), |(number, _)| number);
                expected[number] += 1;
            }
        });
        assert_eq!([0, 1, 2, 3].map(|number| balance.counts.of(number)), expected.map(|count: u64| count));
    }
}
