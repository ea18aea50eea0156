//! Sessions that pass on to a node that takes this one's place: as they are, or as bytes.

use std::any::Any;
use std::net::Ipv4Addr;

use netbricks_core::tables::{FlowTable, FlowTableConfig, Table};
use netbricks_core::{Declared, Mobility, ShuffleKey, StateTerms, Succession};

use super::automaton::State;
use super::config::Authentication;
use super::pool::Prefix;
use super::session::{LONGEST_NAME, Line, NEVER, Name, Proof, Session, Traffic, Which};
use super::sessions::{Sessions, Settled};
use super::users::{Class, LONGEST_CLASS};

/// Bytes of a record for the name and for the Class, each behind its length.
const NAME: usize = 1 + LONGEST_NAME;
const CLASS: usize = 1 + LONGEST_CLASS;
/// An open session: its numbers in the order of [`Session::words`], its name and its Class.
type Record = ([u64; 18], [u8; NAME + CLASS]);
/// Records by the key of their session: Ethernet address with SESSION_ID, and VLANs.
type Records = FlowTable<[u64; 2], Record>;

/// Marks an image, with the version of its form.
const MARK: &[u8; 4] = b"NBB2";

/// The text behind its length; `None` where the length is too large.
fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (len, text) = bytes.split_first()?;
    text.get(..usize::from(*len))
}

fn records(room: usize) -> Option<Records> {
    FlowTable::new(FlowTableConfig::new(room.max(1))).ok()
}

impl Session {
    /// Its numbers. Times are those that have passed or are left (ns).
    fn words(&self, now: u64) -> [u64; 18] {
        let left = |time: u64| if time == NEVER { NEVER } else { time.saturating_sub(now) };
        let bits = |address: Option<Ipv4Addr>| address.map_or(0, |address| u64::from(address.to_bits()));
        let [outer, inner] = self.line.tags.map(u64::from);
        let method = match self.method {
            None => 0,
            Some(Authentication::Pap) => 1,
            Some(Authentication::Chap) => 2,
        };
        let (len, prefix) = self.prefix.map_or((0, 0), |prefix| (u64::from(prefix.len), prefix.bits));
        [
            self.account,
            outer << 32 | inner,
            u64::from(self.max_payload) << 48 | u64::from(self.peer_mru) << 32 | u64::from(self.magic),
            bits(self.address),
            prefix,
            len | u64::from(self.is_open_v4) << 8 | u64::from(self.is_open_v6) << 9 | method << 16,
            self.interface_id,
            now.saturating_sub(self.up_since),
            left(self.ends_at),
            self.idle,
            now.saturating_sub(self.heard_at),
            self.interim,
            self.from_subscriber.packets,
            self.from_subscriber.bytes,
            self.to_subscriber.packets,
            self.to_subscriber.bytes,
            bits(self.grant.dns[0]),
            bits(self.grant.dns[1]),
        ]
    }
}

impl Sessions {
    /// Takes in an open session; `false` where it has no place here, or its addresses are taken.
    fn admit(&mut self, key: [u64; 2], (words, name): &Record, now: u64) -> bool {
        let [a, b, c, d, e, f, high, low] = key[0].to_be_bytes();
        let tags = [(words[1] >> 32) as u32, words[1] as u32];
        let (line, id) = (Line { mac: [a, b, c, d, e, f], tags }, u16::from_be_bytes([high, low]));
        let (name, class) = name.split_at(NAME);
        let name = sized(name).and_then(Name::new);
        let class = sized(class).and_then(Class::new);
        let sizes = [(words[2] >> 48) as u16, (words[2] >> 32) as u16];
        let is_sound = line.key(id) == key && sizes.iter().all(|size| *size >= super::options::LEAST_MRU);
        let (Some(name), Some(class), true) = (name, class, is_sound) else { return false };
        let Some(index) = self.place(line, id, now) else { return false };
        let address = (words[3] != 0).then(|| Ipv4Addr::from_bits(words[3] as u32));
        let prefix = (words[5] & 0xff != 0).then_some(Prefix { bits: words[4], len: words[5] as u8 });
        let addresses = &mut self.shared.addresses;
        let has_v4 = address.is_none_or(|address| addresses.take_v4(Some(address), index).is_ok());
        let has_v6 = prefix.is_none_or(|prefix| addresses.take_v6(Some(prefix), index).is_ok());
        let (keepalive, accounts) = (self.shared.fixed.keepalive, self.shared.fixed.accounts);
        let Some(session) = self.get_mut(index) else { return false };
        session.address = address.filter(|_| has_v4);
        session.prefix = prefix.filter(|_| has_v6);
        session.account = words[0];
        [session.max_payload, session.peer_mru] = sizes;
        session.magic = words[2] as u32;
        session.method = match words[5] >> 16 {
            1 => Some(Authentication::Pap),
            2 => Some(Authentication::Chap),
            _ => None,
        };
        session.name = name;
        session.interface_id = words[6];
        session.proof = Proof::Accepted;
        session.layer(Which::Lcp).state = State::Opened;
        session.is_open_v4 = words[5] >> 8 & 1 == 1 && session.address.is_some();
        session.is_open_v6 = words[5] >> 9 & 1 == 1;
        for (which, is_open) in [(Which::Ipcp, session.is_open_v4), (Which::Ipv6cp, session.is_open_v6)] {
            if is_open {
                session.layer(which).state = State::Opened;
            }
        }
        session.is_announced = true;
        session.up_since = now.saturating_sub(words[7]);
        session.ends_at = now.saturating_add(words[8]);
        session.idle = words[9];
        session.heard_at = now.saturating_sub(words[10]);
        session.interim = words[11];
        session.interim_due = if accounts { now.saturating_add(words[11]) } else { NEVER };
        session.echo_due = now.saturating_add(keepalive);
        session.advertise_due = if session.is_open_v6 && session.prefix.is_some() { now } else { NEVER };
        session.from_subscriber = Traffic { packets: words[12], bytes: words[13] };
        session.to_subscriber = Traffic { packets: words[14], bytes: words[15] };
        let dns = |bits: u64| (bits != 0).then(|| Ipv4Addr::from_bits(bits as u32));
        session.grant.class = class;
        session.grant.dns = [dns(words[16]), dns(words[17])];
        if !(has_v4 && has_v6) {
            // Another has its address here: it ends as an operator would end it.
            session.order = Some(super::session::Order::Disconnect);
            self.call_on(index);
        } else {
            self.file(index);
        }
        true
    }
}

impl Declared for Sessions {
    fn export(&self) -> Vec<u8> {
        let mut bytes = MARK.to_vec();
        let open = self.iter().filter(|session| session.is_announced && session.closing.is_none());
        if let Some(mut table) = records(self.len()) {
            for session in open {
                let mut texts = [0; NAME + CLASS];
                for (at, text) in [(0, session.name.bytes()), (NAME, session.grant.class.bytes())] {
                    texts[at] = text.len() as u8;
                    texts[at + 1..=at + text.len()].copy_from_slice(text);
                }
                let record = (session.words(self.now), texts);
                table.lookup(session.line.key(session.id), 0).or_insert_with(|| record);
            }
            table.encode(&mut bytes);
        }
        bytes
    }

    fn import(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        let bytes = bytes.strip_prefix(MARK).ok_or("these are no sessions of this version")?;
        let mut table = records(self.capacity()).ok_or("there is no memory to read them")?;
        table.decode(bytes, 0).map_err(|error| error.to_string())?;
        let room = self.capacity() - self.len();
        if table.len() > room {
            return Err(format!("there is room for {room} of {} sessions: raise `sessions`", table.len()));
        }
        let mut all: Vec<([u64; 2], Record)> = table.iter().map(|(key, record)| (key, *record)).collect();
        // In an order that no table's secret decides.
        all.sort_unstable_by_key(|(key, _)| *key);
        for (key, record) in all {
            // One that has no place here is unknown, and its subscriber hears a PADT.
            let _admitted = self.admit(key, &record, now);
        }
        Ok(())
    }

    fn occupancy(&self) -> (u64, u64) {
        (self.len() as u64, self.capacity() as u64)
    }

    fn mobility(&self, _: ShuffleKey) -> Mobility {
        Mobility::Bound
    }

    fn terms(&self) -> StateTerms {
        StateTerms::of::<Self>(self.len() as u64).sized(Records::RECORD).with(self.settled())
    }

    fn succession(&self, before: &StateTerms) -> Succession {
        let room = self.capacity() as u64;
        match before.get::<Settled>() {
            _ if !before.is_of::<Self>() => Succession::unlike(),
            Some(settled) if self.settled().surely_continues(settled) => Succession::whole(),
            _ => Succession::copied_into(room, before, "the room, the own address or the pools are others"),
        }
    }

    fn take_over(&mut self, old: &mut dyn Declared) -> bool {
        let old: &mut dyn Any = old;
        old.downcast_mut::<Self>().is_some_and(|old| self.continue_with(old))
    }
}
