//! Export and import of translations: for a change, a restart, or subscribers that move to another worker.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::packet::{FlowKey, MacAddress};
use netbricks_core::shuffle::Part;
use netbricks_core::tables::{Counters, Encode, FlowTable, FlowTableConfig, Table};
use netbricks_core::{Declared, Mobility, ShuffleKey, StateTerms, StoredFlow, Succession, TableKey, Way};

use super::config::is_in;
use super::ports::Status;
use super::session::{Mapping, Phase, Session};
use super::spec::{Endpoint, Transport};
use super::state::State;

/// A session under its key from inside; its mapping and subscriber follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    external: u32,
    external_port: u16,
    remote: u32,
    remote_port: u16,
    phase: u8,
    /// The Ethernet address of the host inside, 0 where it is not known.
    neighbor: u64,
    /// Nanoseconds without a packet.
    idle: u64,
}

impl Encode for Record {
    const SIZE: usize = 29;
    const VERSION: u16 = 0x4e01;
    fn encode(&self, to: &mut [u8]) {
        let Self { external, external_port, remote, remote_port, phase, neighbor, idle } = *self;
        ((external, external_port, remote), (remote_port, phase, neighbor, idle)).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        let ((external, external_port, remote), (remote_port, phase, neighbor, idle)) = <_>::decode(from)?;
        Phase::of_number(phase)?;
        Some(Self { external, external_port, remote, remote_port, phase, neighbor, idle })
    }
}

type Records = FlowTable<StoredFlow, Record>;

/// Marks subscribers that move, and exist nowhere else.
const MOVED: &[u8; 4] = b"NBNT";
/// Begins an image with outside addresses that the configuration lacks, before all else.
const ADDED: &[u8; 4] = b"NBNA";
/// Sessions that one piece of a move looks at.
const STEP: usize = 512;

fn records(room: usize) -> Option<Records> {
    FlowTable::new(FlowTableConfig::new(room.max(1))).ok()
}

impl State {
    fn record(&self, session: &Session) -> Option<(StoredFlow, Record)> {
        let external = self.external(session.mapping)?;
        let (IpAddr::V4(outside), IpAddr::V4(remote)) = (external.address, session.remote.address) else {
            return None;
        };
        let key = session.out_key().store();
        let idle = [Some(key), Some(session.in_key(external).store())];
        let idle = idle.into_iter().flatten().filter_map(|key| self.flows.idle(&key)).min().unwrap_or(0);
        let mapping = self.mappings.get(session.mapping);
        let neighbor = mapping.and_then(|mapping| self.neighbor_behind(mapping));
        let record = Record {
            external: outside.to_bits(),
            external_port: external.port,
            remote: remote.to_bits(),
            remote_port: session.remote.port,
            phase: session.phase as u8,
            neighbor: neighbor.map_or(0, |mac| {
                let [a, b, c, d, e, f] = mac.octets();
                u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            }),
            idle,
        };
        Some((key, record))
    }

    /// An image of these sessions.
    fn image(&self, sessions: &[u32]) -> Option<Vec<u8>> {
        let mut table = records(sessions.len())?;
        for session in sessions.iter().filter_map(|number| self.sessions.get(*number)) {
            let Some((key, record)) = self.record(session) else { continue };
            table.lookup(key, 0).or_insert_with(|| record);
        }
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        Some(bytes)
    }

    /// Takes in a session; answers `false` where it has no place here.
    fn admit(&mut self, key: FlowKey, record: &Record) -> bool {
        let Some(transport) = Transport::of(key.protocol()) else { return false };
        let Some(phase) = Phase::of_number(record.phase) else { return false };
        let outside = Ipv4Addr::from_bits(record.external);
        let Some(index) = self.ports.index(outside) else { return false };
        let inside = Endpoint { address: key.source(), port: key.source_port() };
        let is_query = transport == Transport::Icmp;
        let seen_port = if is_query { 0 } else { key.destination_port() };
        let mapping = match self.mapping_inside(inside, transport) {
            Some(mapping) => mapping,
            None => match self.restore_mapping(inside, transport, (index, record.external_port)) {
                Some(mapping) => mapping,
                None => return false,
            },
        };
        let is_its =
            self.external(mapping) == Some(Endpoint { address: outside.into(), port: record.external_port });
        let session = Session {
            inside,
            seen: Endpoint { address: key.destination(), port: seen_port },
            remote: Endpoint { address: Ipv4Addr::from_bits(record.remote).into(), port: record.remote_port },
            transport,
            phase,
            hairpin: self.is_outside(Ipv4Addr::from_bits(record.remote).into()),
            mapping,
            pcp: None,
            made: 0,
            known_at: self.now.saturating_sub(record.idle),
            since: self.now,
        };
        if record.neighbor != 0 {
            let [_, _, a, b, c, d, e, f] = record.neighbor.to_be_bytes();
            let mac = MacAddress::new([a, b, c, d, e, f]);
            self.learn_host(inside.address, mac);
            let subscriber = self.mappings.get(mapping).and_then(|mapping| mapping.subscriber);
            if let Some(subscriber) = subscriber.and_then(|number| self.subscribers.get_mut(number)) {
                subscriber.neighbor = Some(mac);
            }
        }
        let entered = is_its && self.enter(session).is_ok();
        if !entered && self.mappings.get(mapping).is_some_and(|found| found.is_idle()) {
            self.unmap(mapping, true);
        }
        entered
    }

    /// Makes a mapping with the port that it had.
    pub(super) fn restore_mapping(
        &mut self,
        inside: Endpoint,
        transport: Transport,
        (index, port): (u16, u16),
    ) -> Option<u32> {
        let address = self.subscriber_address(inside.address);
        let block = self.ports.block_of(port);
        let number = match self.subscriber(address) {
            Some(number) => number,
            None => {
                let part = match self.place_of(address) {
                    Some((_, block)) => self.ports.part_of_block(block),
                    None => self.ports.part_of(address),
                };
                self.subscribe_at(address, index, part)?
            }
        };
        let is_new = |state: &Self, block| {
            state.subscribers.get(number).is_some_and(|found| !found.blocks().contains(&block))
        };
        if let Some(block) = block
            && self.place_of(address).is_none()
            && is_new(self, block)
        {
            if !self.ports.claim_block(index, block, number) {
                self.unsubscribe_idle(number);
                return None;
            }
            self.give_block(number, index, block);
        }
        if !self.ports.claim(index, transport, port) {
            self.unsubscribe_idle(number);
            return None;
        }
        let mapping =
            Mapping { inside, index, port, transport, subscriber: Some(number), sessions: 0, pcp: None };
        let entered = self.enter_mapping(mapping);
        if entered.is_none() {
            self.release_port(index, transport, port, true);
            self.unsubscribe_idle(number);
        }
        entered
    }

    /// The part of the subscribers that a host inside belongs to.
    pub(super) fn part_of(&self, inside: IpAddr) -> u64 {
        let address = self.subscriber_address(inside);
        match self.place_of(address) {
            Some((_, block)) => self.ports.part_of_block(block).into(),
            None => self.ports.part_of(address).into(),
        }
    }
}

/// The addresses in front of an image, and the image.
fn added_of(bytes: &[u8]) -> Option<(Vec<Ipv4Addr>, &[u8])> {
    let Some(rest) = bytes.strip_prefix(ADDED) else { return Some((Vec::new(), bytes)) };
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (addresses, rest) = rest.split_at_checked(4 * usize::from(u16::from_be_bytes(*count)))?;
    let (addresses, _) = addresses.as_chunks::<4>();
    Some((addresses.iter().map(|octets| Ipv4Addr::from(*octets)).collect(), rest))
}

impl State {
    /// Puts outside addresses that handlers had added before an image. Their sessions find them there.
    fn with_added(&self, image: Vec<u8>) -> Vec<u8> {
        let is_added = |place: &super::ports::OutsideAddress| {
            place.added && place.status != Status::Fixed && place.mappings > 0
        };
        let added = self.ports.iter().filter(|(_, place)| is_added(place)).map(|(_, place)| place.address);
        let added: Vec<Ipv4Addr> = added.take(usize::from(u16::MAX)).collect();
        if added.is_empty() {
            return image;
        }
        let mut bytes = ADDED.to_vec();
        bytes.extend((added.len() as u16).to_be_bytes());
        added.iter().for_each(|address| bytes.extend(address.octets()));
        bytes.extend(image);
        bytes
    }

    /// Lets sessions go on that have outside addresses which only handlers had added.
    ///
    /// They get no new mappings until a handler adds them again.
    fn keep_added(&mut self, added: &[Ipv4Addr]) {
        if self.deterministic.is_some() {
            // Another pool would give subscribers other blocks.
            return;
        }
        for address in added {
            let is_other = is_in(&self.inside, (*address).into())
                || self.whole_outside.iter().any(|(external, _)| external == address);
            if !is_other && self.ports.index(*address).is_none() {
                self.is_altered = true;
                // Where there are too many, their sessions find no place.
                let _full = self.ports.add(*address, Status::Draining);
            }
        }
    }
}

impl Declared for State {
    fn export(&self) -> Vec<u8> {
        let all: Vec<u32> = self.sessions.iter().map(|(number, _)| number).collect();
        let asked: Vec<u32> = self.pcp.mappings.iter().map(|(number, _)| number).collect();
        let image = self.image(&all).and_then(|image| self.with_pcp(image, &asked)).unwrap_or_default();
        self.with_added(image)
    }

    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        self.advance(now, 0);
        let moved = bytes.strip_prefix(MOVED);
        let (added, bytes) = added_of(moved.unwrap_or(bytes)).ok_or("it is cut off")?;
        let (bytes, asked) = super::pcp_transfer::parts_of(bytes).ok_or("it is cut off")?;
        let mut table = records(self.capacity).ok_or("there is no memory to read it")?;
        table.decode(bytes, 0).map_err(|error| error.to_string())?;
        let asked = super::pcp_transfer::read(asked)?;
        let room = self.capacity - self.sessions.len();
        if moved.is_none() && table.len() > room {
            return Err(format!("there is room for {room} of {} sessions: raise `capacity`", table.len()));
        }
        self.keep_added(&added);
        let mut refused = 0;
        for (key, record) in table.iter() {
            refused += u64::from(!self.admit(FlowKey::restore(key), record));
        }
        self.tally.not_admitted += refused + self.import_pcp(&asked);
        Ok(())
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.sessions.len() as u64, self.capacity as u64)
    }

    fn terms(&self) -> StateTerms {
        self.state_terms(StateTerms::of::<Self>(self.sessions.len() as u64).sized(Records::RECORD))
    }

    fn succession(&self, before: &StateTerms) -> Succession {
        self.decide(before)
    }

    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        let Some(old) = old.downcast_mut::<Self>() else { return false };
        let goes_on = self.decide(&old.terms()).way <= Way::InSteps;
        if goes_on {
            self.continue_with(old);
        }
        goes_on
    }

    fn move_on(&mut self) -> bool {
        self.set_timers_on()
    }

    fn expire_all(&mut self, now: u64) {
        Self::expire_all(self, now);
    }

    fn flow_counters(&self) -> Option<Counters> {
        Some(Counters {
            hits: 0,
            inserted: self.tally.sessions_made,
            evicted: 0,
            expired: self.tally.expired,
            refused: self.tally.exhausted + self.tally.limited + self.tally.not_admitted,
        })
    }

    fn mobility(&self, by: ShuffleKey) -> Mobility {
        if by == ShuffleKey::Own { Mobility::Moves } else { Mobility::Bound }
    }

    fn take_part(&mut self, part: &Part, place: usize) -> (Vec<u8>, Option<usize>) {
        // Mappings by PCP come first: their sessions find them there.
        let before = self.pcp.mappings.capacity();
        let Some(place) = place.checked_sub(before) else {
            let end = self.pcp.mappings.end().min(place.saturating_add(STEP));
            let taken = self.pcp_in(part, place.min(end)..end);
            let mut bytes = Vec::new();
            if !taken.is_empty()
                && let Some(image) = self.image(&[]).and_then(|image| self.with_pcp(image, &taken))
            {
                bytes.extend_from_slice(MOVED);
                bytes.extend(image);
                taken.into_iter().for_each(|number| self.pcp_end(number, true));
            }
            return (bytes, Some(if end < self.pcp.mappings.end() { end } else { before }));
        };
        let end = self.sessions.end().min(place.saturating_add(STEP));
        let chosen = |number: &u32| {
            self.sessions.get(*number).is_some_and(|session| part.holds(self.part_of(session.inside.address)))
        };
        let taken: Vec<u32> = (place as u32..end as u32).filter(chosen).collect();
        let mut bytes = Vec::new();
        let asked = taken.iter().filter_map(|number| self.sessions.get(*number)?.pcp);
        let asked: Vec<u32> = asked.collect();
        if !taken.is_empty()
            && let Some(image) = self.image(&taken).and_then(|image| self.with_pcp(image, &asked))
        {
            bytes.extend_from_slice(MOVED);
            bytes.extend(image);
            for number in taken {
                self.end_with(number, true);
            }
        }
        (bytes, (end < self.sessions.end()).then_some(before + end))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::NatConfig;
    use super::super::state::NewSession;
    use super::*;

    #[test]
    fn each_host_keeps_its_ethernet_address() {
        let text = "inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.7\"]\nnat64 = \"64:ff9b::/96\"\n\
                    static = [\"udp 203.0.113.7:53 -> 10.0.0.5:5353\"]";
        let config: NatConfig = toml::from_str(text).unwrap();
        let state = || State::new(&config, 1, false).unwrap();
        let (mut from, mut to) = (state(), state());
        // Two of one subscriber, one with a static mapping, and one of IPv4.
        let hosts =
            [("2001:db8::5", 4_000), ("2001:db8::6", 4_000), ("10.0.0.5", 5_353), ("10.0.0.6", 4_000)];
        let hosts = hosts.map(|(host, port)| Endpoint { address: host.parse().unwrap(), port });
        let mac = |number: usize| MacAddress::new([2, 0, 0, 0, 7, number as u8]);
        let remote = Endpoint { address: [198, 51, 100, 1].into(), port: 53 };
        for (number, inside) in hosts.into_iter().enumerate() {
            let seen = if inside.address.is_ipv6() { "64:ff9b::c633:6401" } else { "198.51.100.1" };
            let seen = Endpoint { address: seen.parse().unwrap(), port: 53 };
            let new = NewSession { inside, seen, remote, transport: Transport::Udp, phase: Phase::Plain };
            from.open(new, Some(mac(number))).unwrap();
        }
        to.import(&from.export(), 1).unwrap();
        assert_eq!((to.sessions.len(), to.tally.not_admitted), (hosts.len(), 0));
        for state in [&from, &to] {
            for (number, inside) in hosts.into_iter().enumerate() {
                let mapping = state.mapping_inside(inside, Transport::Udp).unwrap();
                let found = state.neighbor_behind(state.mappings.get(mapping).unwrap());
                assert_eq!(found, Some(mac(number)), "{inside}");
            }
        }
    }

    #[test]
    fn sessions_on_an_address_that_a_handler_added_go_on_without_new_ones() {
        let config = |text: &str| -> NatConfig {
            toml::from_str(&format!("inside = [\"10.0.0.0/8\"]\npool = [\"203.0.113.7\"]\n{text}")).unwrap()
        };
        let state = |text: &str| State::new(&config(text), 1, false).unwrap();
        let mut from = state("");
        let (file, added, unused) =
            ([203, 0, 113, 7].into(), Ipv4Addr::from([192, 0, 2, 1]), Ipv4Addr::from([192, 0, 2, 2]));
        for address in [added, unused] {
            from.ports.add(address, Status::Active).unwrap();
        }
        // All new sessions go to the added address.
        for address in [file, unused] {
            let index = from.ports.index(address).unwrap();
            from.ports.get_mut(index).unwrap().status = Status::Draining;
        }
        let inside = |host: u8| Endpoint { address: [10, 0, 0, host].into(), port: 4_000 };
        let remote = Endpoint { address: [198, 51, 100, 1].into(), port: 53 };
        let open = |state: &mut State, host: u8| {
            let (seen, transport, phase) = (remote, Transport::Udp, Phase::Plain);
            state.open(NewSession { inside: inside(host), seen, remote, transport, phase }, None).unwrap();
            state.external(state.mapping_inside(inside(host), transport).unwrap()).unwrap().address
        };
        assert_eq!(open(&mut from, 1), IpAddr::from(added));
        let image = from.export();
        // The one that takes over has the pool of the file.
        let mut to = state("");
        to.import(&image, 1).unwrap();
        assert_eq!((to.sessions.len(), to.tally.not_admitted), (1, 0));
        let mapping = to.mapping_inside(inside(1), Transport::Udp).unwrap();
        assert_eq!(to.external(mapping).unwrap().address, IpAddr::from(added));
        let status = |state: &State, address| {
            let index = state.ports.index(address)?;
            state.ports.get(index).map(|place| place.status)
        };
        assert_eq!((status(&to, added), status(&to, unused)), (Some(Status::Draining), None));
        assert_eq!(open(&mut to, 2), IpAddr::from(file));
        // The journal adds it again, and another change keeps it likewise.
        to.ports.add(added, Status::Active).unwrap();
        let mut third = state("");
        third.import(&to.export(), 1).unwrap();
        assert_eq!((third.sessions.len(), third.tally.not_admitted), (2, 0));
        // Where the file puts it inside, or the blocks are fixed, its sessions end as before.
        for other in ["deterministic = true\nblock = 64", ""] {
            let mut to = state(other);
            if other.is_empty() {
                to.inside = vec!["192.0.2.0/24".parse().unwrap()];
            }
            to.import(&image, 1).unwrap();
            assert_eq!((to.sessions.len(), to.tally.not_admitted), (0, 1), "{other}");
        }
        for cut in [4, 5, 9] {
            assert!(state("").import(&image[..cut], 1).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_record_is_the_same_behind_its_bytes() {
        let record = Record {
            external: 1,
            external_port: 2,
            remote: 3,
            remote_port: 4,
            phase: 5,
            neighbor: 6,
            idle: u64::MAX,
        };
        let mut bytes = [0; Record::SIZE];
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Some(record));
        bytes[12] = 99;
        assert_eq!(Record::decode(&bytes), None, "no such phase");
    }
}
