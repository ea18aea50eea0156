//! Packets in fragments: the translation of each that is known, and fragments that wait for the first.
//!
//! Only the first fragment has ports. The others get its addresses, in any order of arrival (RFC 4787, REQ-14).
//!
//! One that waits is a copy, and its packet was dropped as `replaced`. So the node keeps no packets of the graph, and may
//! stand in several chains.

use std::net::IpAddr;

use netbricks_core::buffer::Packet;
use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::tables::{Entry, FlowTable, FlowTableConfig, Full, Table, TableError};
use netbricks_core::{StoredFlow, TableKey};

/// The addresses of a packet behind the translation, and its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) neighbor: Option<MacAddress>,
    /// It goes back to the inside.
    pub(super) hairpin: bool,
    /// The new identification of IPv4.
    pub(super) identification: Option<u16>,
}

/// The knowledge about a packet.
#[derive(Clone, Copy, Debug)]
enum Progress {
    Known(Known),
    /// Its fragments wait: how many, and the first and last of them.
    Waiting {
        count: u8,
        first: u16,
        last: u16,
    },
}

/// A fragment that waits.
struct Held {
    packet: Packet,
    key: StoredFlow,
    since: u64,
    next: Option<u16>,
}

pub(super) struct Fragments {
    table: FlowTable<StoredFlow, Progress>,
    held: Vec<Option<Held>>,
    free: Vec<u16>,
    timeout: u64,
    /// Fragments that waited in vain.
    pub(super) given_up: u64,
}

/// The most fragments of one packet that wait: those of 64 KiB in packets of 1,280 bytes.
const MOST_OF_ONE: u8 = 54;

/// The key of a packet's fragments (RFC 791, section 3.2).
pub(super) fn key(source: IpAddr, destination: IpAddr, identification: u32, protocol: u8) -> FlowKey {
    let [high, low] = [(identification >> 16) as u16, identification as u16];
    FlowKey::new(source, destination, high, low, protocol)
}

impl Fragments {
    pub(super) fn new(packets: usize, held: usize, timeout: u64, seed: u64) -> Result<Self, TableError> {
        let config =
            FlowTableConfig { capacity: packets, idle_timeout: Some(timeout), full: Full::EvictOldest, seed };
        Ok(Self {
            table: FlowTable::new(config)?,
            held: (0..held).map(|_| None).collect(),
            free: (0..held as u16).rev().collect(),
            timeout,
            given_up: 0,
        })
    }

    /// The most fragments that wait.
    pub(super) fn most_held(&self) -> usize {
        self.held.len()
    }

    /// The translation of a packet, where it is known.
    pub(super) fn known(&mut self, key: FlowKey, now: u64) -> Option<Known> {
        match self.table.lookup(key.store(), now) {
            Entry::Found(found) => match found.get() {
                Progress::Known(known) => Some(*known),
                Progress::Waiting { .. } => None,
            },
            Entry::Vacant(_) | Entry::Full => None,
        }
    }

    /// Notes the translation of a packet; answers the first fragment that waited for it.
    pub(super) fn learn(&mut self, key: FlowKey, known: Known, now: u64) -> Option<u16> {
        let displaced = match self.table.lookup(key.store(), now) {
            Entry::Found(mut found) => {
                let before = std::mem::replace(found.get_mut(), Progress::Known(known));
                return match before {
                    Progress::Waiting { first, .. } => Some(first),
                    Progress::Known(_) => None,
                };
            }
            Entry::Vacant(place) => place.replace(Progress::Known(known)).0,
            Entry::Full => None,
        };
        self.give_up_chain(displaced);
        None
    }

    /// Keeps a fragment until the first of its packet comes; answers `false` where there is no room.
    pub(super) fn hold(&mut self, key: FlowKey, packet: Packet, now: u64) -> bool {
        let key = key.store();
        let Some(place) = self.free.pop() else { return false };
        let held = Held { packet, key, since: now, next: None };
        let displaced = match self.table.lookup(key, now) {
            Entry::Found(mut found) => match found.get_mut() {
                Progress::Waiting { count, last, .. } if *count < MOST_OF_ONE => {
                    let before = std::mem::replace(last, place);
                    *count += 1;
                    self.held[usize::from(place)] = Some(held);
                    if let Some(before) = self.held.get_mut(usize::from(before)).and_then(Option::as_mut) {
                        before.next = Some(place);
                    }
                    return true;
                }
                _ => {
                    self.free.push(place);
                    return false;
                }
            },
            Entry::Vacant(vacant) => {
                let waiting = Progress::Waiting { count: 1, first: place, last: place };
                vacant.replace(waiting).0
            }
            Entry::Full => {
                self.free.push(place);
                return false;
            }
        };
        self.held[usize::from(place)] = Some(held);
        self.give_up_chain(displaced);
        true
    }

    /// Takes a fragment that waited, and the place of the next of its packet.
    pub(super) fn take(&mut self, place: u16) -> Option<(Packet, Option<u16>)> {
        let Held { packet, next, .. } = self.held.get_mut(usize::from(place))?.take()?;
        self.free.push(place);
        Some((packet, next))
    }

    fn give_up_chain(&mut self, displaced: Option<(StoredFlow, Progress)>) {
        let Some((_, Progress::Waiting { first, .. })) = displaced else { return };
        self.give_up(Some(first));
    }

    /// Gives up fragments that waited, from the first of a packet on.
    pub(super) fn give_up(&mut self, first: Option<u16>) {
        let mut next = first;
        while let Some(place) = next {
            next = self.take(place).and_then(|(_, next)| next);
            self.given_up += 1;
        }
    }

    /// Gives up fragments that have waited too long.
    pub(super) fn expire(&mut self, now: u64) {
        let over = now.saturating_sub(self.timeout);
        for place in 0..self.held.len() {
            let Some(held) = self.held[place].as_ref().filter(|held| held.since <= over) else { continue };
            let key = held.key;
            // The oldest of a packet comes first: all of them are given up together.
            let progress = match self.table.lookup(key, now) {
                Entry::Found(found) if matches!(found.get(), Progress::Waiting { .. }) => {
                    Some(found.remove())
                }
                _ => None,
            };
            match progress {
                Some(progress) => self.give_up_chain(Some((key, progress))),
                None => {
                    self.take(place as u16);
                    self.given_up += 1;
                }
            }
        }
        self.table.expire(now, 64);
    }

    /// Fragments that wait.
    pub(super) fn waiting(&self) -> usize {
        self.held.len() - self.free.len()
    }
}
