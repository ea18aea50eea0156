//! Numbers of Ethernet addresses of hosts inside, which routes have in place of the address.

use netbricks_core::packet::MacAddress;
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Table, TableError};

use super::session::MOST_NEIGHBORS;

/// The numbers that routes use: a number is free again when the last route with it has gone.
pub(super) struct Neighbors {
    /// By number, from 1 on: the address, and how many routes have the number.
    known: Vec<(MacAddress, u32)>,
    free: Vec<u16>,
    numbers: FlowTable<u64, u16>,
}

fn key(mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac.octets();
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

impl Neighbors {
    pub(super) fn new(small: bool, seed: u64) -> Result<Self, TableError> {
        let capacity = if small { 1 } else { MOST_NEIGHBORS };
        let config = FlowTableConfig { capacity, idle_timeout: None, full: Full::Refuse, seed };
        let mut known = Vec::with_capacity(capacity);
        // The number 0 is that of no address.
        known.push((MacAddress::new([0; 6]), 0));
        Ok(Self { known, free: Vec::with_capacity(capacity), numbers: FlowTable::new(config)? })
    }

    /// The address with this number.
    #[inline(always)]
    pub(super) fn get(&self, number: u16) -> Option<MacAddress> {
        if number == 0 { None } else { self.known.get(usize::from(number)).map(|(mac, _)| *mac) }
    }

    /// The number of an address for one more route; `None` where all are in use.
    pub(super) fn take(&mut self, mac: MacAddress) -> Option<u16> {
        let number = match self.numbers.lookup(key(mac), 0) {
            Entry::Found(found) => *found.get(),
            Entry::Vacant(place) => {
                let number = match self.free.pop() {
                    Some(number) => number,
                    None if self.known.len() < MOST_NEIGHBORS => {
                        self.known.push((mac, 0));
                        (self.known.len() - 1) as u16
                    }
                    None => return None,
                };
                place.insert(number);
                self.known[usize::from(number)] = (mac, 0);
                number
            }
            Entry::Full => return None,
        };
        self.known[usize::from(number)].1 += 1;
        Some(number)
    }

    /// A route with this number has gone.
    pub(super) fn give(&mut self, number: u16) {
        let Some((mac, routes)) = self.known.get_mut(usize::from(number)).filter(|(_, routes)| *routes > 0)
        else {
            return;
        };
        *routes -= 1;
        if *routes == 0 {
            self.numbers.remove(&key(*mac));
            self.free.push(number);
        }
    }

    /// Numbers in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.known.len() - 1 - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> MacAddress {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddress::new([2, 0, a, b, c, d])
    }

    #[test]
    fn numbers_that_no_route_uses_are_given_again() {
        let mut neighbors = Neighbors::new(false, 1).unwrap();
        for round in 0..3 {
            let first = round * 10_000;
            let numbers: Vec<u16> =
                (1..4_096).map(|host| neighbors.take(mac(first + host)).unwrap()).collect();
            assert!(numbers.iter().all(|number| (1..4_096).contains(number)));
            assert_eq!(neighbors.take(mac(first)), None, "all are in use");
            assert_eq!(neighbors.take(mac(first + 5)), Some(numbers[4]), "one that has a number keeps it");
            for (number, host) in numbers.iter().zip(1..) {
                assert_eq!(neighbors.get(*number), Some(mac(first + host)));
                neighbors.give(*number);
            }
            assert_eq!(neighbors.used(), 1);
            neighbors.give(numbers[4]);
            assert_eq!(neighbors.used(), 0);
        }
        assert_eq!(neighbors.get(0), None);
    }
}
