//! Export and import of mappings by PCP, beside the sessions.

use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::shuffle::Part;
use netbricks_core::tables::{Encode, FlowTable, FlowTableConfig, Table};
use netbricks_core::{StoredFlow, TableKey};

use super::pcp_mappings::{PcpMapping, Target};
use super::pcp_message::{MOST_FILTERS, Nonce, PeerFilter};
use super::session::{Direction, inside_key};
use super::spec::{Endpoint, Transport};
use super::state::State;

/// A mapping under its key from inside, or a session under that of its packets from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    external: u32,
    external_port: u16,
    nonce: Nonce,
    /// Nanoseconds of its lifetime that are left.
    left: u64,
    /// Nanoseconds of the epoch.
    age: u64,
    filters: [(u32, u8, u16); MOST_FILTERS],
    filtered: u8,
    /// The Ethernet address of the host inside, 0 where it is not known.
    neighbor: u64,
}

impl Encode for Record {
    const SIZE: usize = 71;
    const VERSION: u16 = 0x4e02;
    fn encode(&self, to: &mut [u8]) {
        let Self { external, external_port, nonce, left, age, filters, filtered, neighbor } = *self;
        ((external, external_port, nonce, left), (age, filters, filtered, neighbor)).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let ((external, external_port, nonce, left), (age, filters, filtered, neighbor)) = <_>::decode(from)?;
        let filters: [(u32, u8, u16); MOST_FILTERS] = filters;
        let fits = usize::from(filtered) <= MOST_FILTERS && filters.iter().all(|(_, bits, _)| *bits <= 32);
        fits.then_some(Self { external, external_port, nonce, left, age, filters, filtered, neighbor })
    }
}

pub(super) type Records = FlowTable<StoredFlow, Record>;

/// Begins an image that has mappings by PCP behind the sessions.
const WITH: &[u8; 4] = b"NBNP";

/// The images of sessions and of mappings by PCP in an image.
pub(super) fn parts_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(rest) = bytes.strip_prefix(WITH) else { return Some((bytes, &[])) };
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let parts = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?);
    parts.filter(|(_, asked)| !asked.is_empty())
}

/// The mappings in their image, of which an empty one has none.
///
/// # Errors
/// When the image is wrong.
pub(super) fn read(bytes: &[u8]) -> Result<Records, String> {
    let room = bytes.len() / Record::SIZE + 1;
    let table: Result<Records, _> = FlowTable::new(FlowTableConfig::new(room));
    let mut table = table.map_err(|error| error.to_string())?;
    if !bytes.is_empty() {
        table.decode(bytes, 0).map_err(|error| error.to_string())?;
    }
    Ok(table)
}

impl State {
    /// An image of sessions, with these mappings by PCP.
    pub(super) fn with_pcp(&self, sessions: Vec<u8>, chosen: &[u32]) -> Option<Vec<u8>> {
        if chosen.is_empty() {
            return Some(sessions);
        }
        let mut table: Records = FlowTable::new(FlowTableConfig::new(chosen.len())).ok()?;
        for asked in chosen.iter().filter_map(|number| self.pcp.mappings.get(*number)) {
            let Some((key, record)) = self.pcp_record(asked) else { continue };
            table.lookup(key, 0).or_insert_with(|| record);
        }
        let mut bytes = WITH.to_vec();
        bytes.extend((sessions.len() as u64).to_be_bytes());
        bytes.extend(sessions);
        table.encode(&mut bytes);
        Some(bytes)
    }

    fn pcp_record(&self, asked: &PcpMapping) -> Option<(StoredFlow, Record)> {
        let (key, mapping) = match asked.target {
            Target::Mapping(number) => {
                let mapping = self.mappings.get(number)?;
                (inside_key(mapping.inside, mapping.transport), number)
            }
            Target::Session(number) => {
                let session = self.sessions.get(number)?;
                (session.out_key(), session.mapping)
            }
        };
        let external = self.external(mapping)?;
        let IpAddr::V4(outside) = external.address else { return None };
        let neighbor = self.mappings.get(mapping).and_then(|found| self.neighbor_behind(found));
        let record = Record {
            external: outside.to_bits(),
            external_port: external.port,
            nonce: asked.nonce,
            left: asked.until.saturating_sub(self.now),
            age: self.now.saturating_sub(self.pcp.started),
            filters: asked.filters.map(|filter| (filter.address, filter.bits, filter.port)),
            filtered: asked.filtered,
            neighbor: neighbor.map_or(0, |mac| {
                let [a, b, c, d, e, f] = mac.octets();
                u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            }),
        };
        Some((key.store(), record))
    }

    /// Takes in mappings, behind the sessions of their image; answers how many find no place.
    pub(super) fn import_pcp(&mut self, table: &Records) -> u64 {
        let mut refused = 0;
        for (key, record) in table.iter() {
            refused += u64::from(self.admit_pcp(&FlowKey::restore(key), record).is_none());
            // The state goes on, and so does its epoch.
            self.pcp.started = self.pcp.started.min(self.now.saturating_sub(record.age));
        }
        refused
    }

    fn admit_pcp(&mut self, key: &FlowKey, record: &Record) -> Option<u32> {
        if self.pcp.mappings.is_full() {
            return None;
        }
        let external =
            Endpoint { address: Ipv4Addr::from_bits(record.external).into(), port: record.external_port };
        let (target, mapping) = match key.destination().is_unspecified() {
            true => {
                let mapping = self.mapping_for(key, external)?;
                (Target::Mapping(mapping), mapping)
            }
            false => {
                let (direction, session) = self.peek(key)?;
                let found = self.sessions.get(session)?;
                if direction != Direction::Out || found.pcp.is_some() {
                    return None;
                }
                (Target::Session(session), found.mapping)
            }
        };
        let subscriber = self.mappings.get(mapping)?.subscriber?;
        let until = self.now.saturating_add(record.left);
        let mut made = PcpMapping::new(target, subscriber, record.nonce, until);
        made.filters = record.filters.map(|(address, bits, port)| PeerFilter { address, bits, port });
        made.filtered = record.filtered;
        if record.neighbor != 0 {
            let [_, _, a, b, c, d, e, f] = record.neighbor.to_be_bytes();
            let mac = MacAddress::new([a, b, c, d, e, f]);
            self.learn_host(key.source(), mac);
            self.subscribers.get_mut(subscriber)?.neighbor = Some(mac);
        }
        self.pcp_set(made, None)
    }

    /// The mapping of an endpoint inside to this one outside, which is made where there is none.
    fn mapping_for(&mut self, key: &FlowKey, external: Endpoint) -> Option<u32> {
        let transport = Transport::of(key.protocol())?;
        let inside = Endpoint { address: key.source(), port: key.source_port() };
        if let Some(mapping) = self.mapping_inside(inside, transport) {
            let has_none = self.mappings.get(mapping)?.pcp.is_none();
            return (has_none && self.external(mapping) == Some(external)).then_some(mapping);
        }
        let IpAddr::V4(outside) = external.address else { return None };
        self.restore_mapping(inside, transport, (self.ports.index(outside)?, external.port))
    }

    /// The mappings by PCP of some places that are in a part, without those of sessions.
    pub(super) fn pcp_in(&self, part: &Part, places: std::ops::Range<usize>) -> Vec<u32> {
        let is_chosen = |number: &u32| {
            let Some(asked) = self.pcp.mappings.get(*number) else { return false };
            let Target::Mapping(mapping) = asked.target else { return false };
            self.mappings.get(mapping).is_some_and(|found| part.holds(self.part_of(found.inside.address)))
        };
        (places.start as u32..places.end as u32).filter(is_chosen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::NatConfig;
    use super::super::pcp_message::{self, Opcode};
    use super::*;
    use netbricks_core::Declared;

    fn state() -> State {
        let text = "inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.7\"]\npcp = \"10.0.0.254\"\nblock = 64\n\
                    capacity = 16\npcp_mappings = 16\nlog = 16";
        let config: NatConfig = toml::from_str(text).unwrap();
        State::new(&config, 1, false).unwrap()
    }

    /// A state with a mapping that has a filter, and with a session.
    fn full() -> State {
        let mut state = state();
        state.advance(5_000_000_000, 0);
        let client = Ipv4Addr::new(10, 0, 0, 1);
        let mapped = client.to_ipv6_mapped().octets();
        let body = [&[9; 12][..], &[17, 0, 0, 0, 0x10, 0, 0, 0], &[0; 16]].concat();
        let filter = [&[3, 0, 0, 20, 0, 128, 0, 53][..], &[0; 10], &[0xff, 0xff, 198, 51, 100, 1]].concat();
        let message = [&[2, 1, 0, 0, 0, 0, 1, 0][..], &mapped, &body, &filter].concat();
        let request = pcp_message::read(&message, client.into()).unwrap();
        let Opcode::Map(map) = request.opcode else { panic!("{request:?}") };
        let mac = Some(MacAddress::new([2, 0, 0, 0, 7, 1]));
        state.pcp_map(client, &map, &request, mac).unwrap();
        let inside = Endpoint { address: client.into(), port: 5_000 };
        let peer = Endpoint { address: [198, 51, 100, 1].into(), port: 53 };
        state.pcp_peer(inside, (peer, peer), &map, 256, None).unwrap();
        state.advance(65_000_000_000, 0);
        state
    }

    #[test]
    fn mappings_and_sessions_keep_their_lifetimes_in_an_export() {
        let (from, mut to) = (full(), state());
        to.import(&from.export(), 1_000_000_000_000).unwrap();
        assert_eq!((to.epoch(), from.epoch(), to.tally.not_admitted), (60, 60, 0));
        let shown = |state: &State| {
            let mut all: Vec<_> = (state.pcp.mappings.iter())
                .map(|(_, asked)| {
                    let is_mapping = matches!(asked.target, Target::Mapping(_));
                    (is_mapping, asked.nonce, asked.until - state.now, asked.filters, asked.filtered)
                })
                .collect();
            all.sort_unstable_by_key(|(is_mapping, ..)| *is_mapping);
            all
        };
        assert_eq!(shown(&from), shown(&to));
        assert_eq!((to.mappings.len(), to.sessions.len(), to.subscribers.len()), (2, 1, 1));
        for state in [&from, &to] {
            let inside = Endpoint { address: [10, 0, 0, 1].into(), port: 4_096 };
            let mapping = state.mappings.get(state.mapping_inside(inside, Transport::Udp).unwrap()).unwrap();
            assert_eq!(state.neighbor_behind(mapping), Some(MacAddress::new([2, 0, 0, 0, 7, 1])));
        }
        // They end in time, the mapping and the session.
        to.expire_all(1_000_000_000_000 + 195_000_000_000);
        assert_eq!(to.pcp.mappings.len(), 2);
        to.expire_all(1_000_000_000_000 + 600_000_000_000);
        assert_eq!((to.pcp.mappings.len(), to.mappings.len(), to.sessions.len()), (0, 0, 0));
    }

    #[test]
    fn a_changed_export_is_refused_as_a_whole() {
        let image = full().export();
        for at in 0..image.len() {
            let (mut changed, mut to) = (image.clone(), state());
            changed[at] ^= 1;
            assert!(to.import(&changed, 5).is_err(), "byte {at}");
            assert_eq!((to.sessions.len(), to.mappings.len(), to.pcp.mappings.len()), (0, 0, 0), "byte {at}");
        }
        for end in 0..image.len() {
            assert!(state().import(&image[..end], 5).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn a_record_is_the_same_behind_its_bytes() {
        let record = Record {
            external: 1,
            external_port: 2,
            nonce: [3; 12],
            left: 4,
            age: 5,
            filters: [(6, 32, 7), (8, 9, 10), (0, 0, 0), (0, 0, 0)],
            filtered: 2,
            neighbor: u64::MAX,
        };
        let mut bytes = [0; Record::SIZE];
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Some(record));
        bytes[4 + 2 + 12 + 8 + 8 + 4] = 33;
        assert_eq!(Record::decode(&bytes), None, "no such prefix");
    }
}
