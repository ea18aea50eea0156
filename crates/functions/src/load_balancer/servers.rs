//! The present servers, as every worker sees them: which there are, which take connections, and which are well.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use netbricks_core::consistency::{Access, Bounded, Contents};
use netbricks_core::packet::FlowKey;
use netbricks_core::sealed::{damaged, hash_text, open, seal};
use netbricks_core::tables::{Changing, Key, MaglevBackend, MaglevTable, Secret};
use netbricks_core::{Declared, Handler, TableKey, Worker, nearest};

use super::config::Mode;
use super::server::Server;
use crate::maglev;
use crate::snapshot::{Changes, Holds, Replace, Snapshot};

/// The servers of the configuration.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) servers: Vec<Server>,
    pub(super) mode: Mode,
    pub(super) slots: usize,
    pub(super) key: String,
    /// Whether health checks say which servers are well.
    pub(super) checked: bool,
}

/// Health checks that begin or end leave the servers as they are.
impl PartialEq for First {
    fn eq(&self, other: &Self) -> bool {
        let Self { servers, mode, slots, key, checked: _ } = self;
        (servers, mode, slots, key) == (&other.servers, &other.mode, &other.slots, &other.key)
    }
}

/// All workers' servers, under bounded inconsistency.
pub(super) struct Servers(Arc<Pool>);

/// All servers at one time; a change replaces the whole, so that it can be prepared without a lock.
#[derive(Clone)]
pub(super) struct Pool {
    version: u64,
    /// By number. A removed server leaves a hole, so that the other numbers stay.
    known: Vec<Option<Known>>,
    /// Numbers by the id of the name.
    numbers: HashMap<u64, usize>,
    /// The addresses of servers, each with its port, where it has one.
    addresses: HashSet<(IpAddr, Option<u16>)>,
    /// The addresses alone.
    hosts: HashSet<IpAddr>,
    /// One for all packets; with address translation, one for IPv4 and one for IPv6.
    tables: Vec<MaglevTable>,
    mode: Mode,
    slots: usize,
    secret: Secret,
    origin: u64,
    checked: bool,
    /// Names and addresses of servers that were down in the state before, and that handlers may add again.
    down_before: BTreeSet<(String, Option<IpAddr>)>,
}

/// A server that connections may go to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) server: Server,
    id: u64,
    pub(super) draining: bool,
    /// Whether its health checks fail.
    pub(super) is_down: bool,
}

impl Known {
    /// Whether it gets new connections.
    pub(super) fn takes(&self) -> bool {
        !self.draining && !self.is_down && self.server.weight > 0
    }
    fn state(&self) -> &'static str {
        match (self.is_down, self.draining || self.server.weight == 0) {
            (true, _) => "down",
            (false, true) => "draining",
            (false, false) => "up",
        }
    }
}

const ID: u64 = (1 << 48) - 1;
/// The bits of a number, behind those of the id.
const NUMBER: u64 = (1 << 13) - 1;
/// The most servers.
pub(super) const MOST: usize = 1_024;
const SEED: u64 = 0x6c62_7365_7276_0001;
const FORMAT: &str = "load-balancer-servers-1";
const LEARNED: &str = "load-balancer-health-1";

impl Pool {
    pub(super) fn first(first: &First) -> Result<Self, String> {
        let secret = maglev::secret(&first.key);
        let text: String = first.servers.iter().map(|server| format!("{server}\n")).collect();
        let origin = hash_text(
            &format!("{:?} {} {}\n{text}", first.mode, first.slots, first.key),
            &Secret::from_seed(SEED),
        );
        let mut pool = Self {
            version: 0,
            known: Vec::new(),
            numbers: HashMap::new(),
            addresses: HashSet::new(),
            hosts: HashSet::new(),
            tables: Vec::new(),
            mode: first.mode,
            slots: first.slots,
            secret,
            origin,
            checked: first.checked,
            down_before: BTreeSet::new(),
        };
        // The slots are checked first.
        pool.fill()?;
        for server in &first.servers {
            if pool.find(&server.name).is_some() {
                return Err(format!("server `{}` is given twice: take one out", server.name));
            }
            pool.put(server.clone())?;
        }
        pool.fill()?;
        Ok(pool)
    }

    fn next(&self, change: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<Self, String> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        change(&mut next)?;
        next.fill()?;
        Ok(next)
    }

    fn put(&mut self, server: Server) -> Result<(), String> {
        self.mode.admits(&server)?;
        let id = maglev::id(&server.name);
        let there = self.numbers.get(&id).copied();
        if let Some(Known { server: other, .. }) = there.and_then(|number| self.known[number].as_ref())
            && other.name != server.name
        {
            return Err(format!(
                "servers `{}` and `{}` have one number by chance: rename one",
                other.name, server.name
            ));
        }
        let hole = || self.known.iter().position(Option::is_none);
        let number = there.or_else(hole).unwrap_or(self.known.len());
        if number >= MOST {
            return Err(format!("{MOST} servers are the most: remove one first"));
        }
        if number == self.known.len() {
            self.known.push(None);
        }
        let was_down = self.down_before.remove(&(server.name.clone(), server.address));
        let is_down = was_down || self.known[number].as_ref().is_some_and(|known| known.is_down);
        self.known[number] = Some(Known { server, id, draining: false, is_down });
        self.numbers.insert(id, number);
        Ok(())
    }

    /// Makes the tables of the servers that take connections, and the index of addresses.
    fn fill(&mut self) -> Result<(), String> {
        let versions: &[bool] = if self.mode == Mode::Nat { &[false, true] } else { &[false] };
        let table = |v6: &bool| {
            let takers: Vec<_> = self
                .takers(*v6)
                .map(|(number, known)| MaglevBackend {
                    name: &known.server.name,
                    weight: known.server.weight,
                    number: number as u16,
                })
                .collect();
            MaglevTable::new(self.slots, &self.secret, &takers).map_err(|error| error.to_string())
        };
        self.tables = versions.iter().map(table).collect::<Result<_, _>>()?;
        let places = self.all().filter_map(|(_, known)| Some((known.server.address?, known.server.port)));
        self.addresses = places.collect();
        self.hosts = self.addresses.iter().map(|(address, _)| *address).collect();
        Ok(())
    }

    /// Whether packets of IPv6, or else IPv4, can reach a server.
    ///
    /// Address translation leaves the version as it is.
    pub(super) fn serves(&self, known: &Known, v6: bool) -> bool {
        self.mode != Mode::Nat || known.server.address.is_some_and(|address| address.is_ipv6() == v6)
    }
    /// The servers that take new connections of IPv6, or else IPv4.
    pub(super) fn takers(&self, v6: bool) -> impl Iterator<Item = (usize, &Known)> {
        self.all().filter(move |(_, known)| known.takes() && self.serves(known, v6))
    }
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// All servers with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Known)> {
        self.known.iter().enumerate().filter_map(|(number, known)| Some((number, known.as_ref()?)))
    }
    /// The places for numbers, used or not.
    pub(super) fn places(&self) -> usize {
        self.known.len()
    }
    pub(super) fn get(&self, number: usize) -> Option<&Known> {
        self.known.get(number)?.as_ref()
    }
    fn find(&self, name: &str) -> Option<usize> {
        let number = *self.numbers.get(&maglev::id(name))?;
        (self.get(number)?.server.name == name).then_some(number)
    }
    fn known_mut(&mut self, name: &str) -> Result<&mut Known, String> {
        let number = self.find(name).ok_or_else(|| self.unknown(name))?;
        self.known[number].as_mut().ok_or_else(|| format!("there is no server `{name}`"))
    }
    fn unknown(&self, name: &str) -> String {
        let names = || self.all().map(|(_, known)| known.server.name.as_str());
        match nearest(name, names()) {
            Some(near) => format!("there is no server `{name}`; did you mean `{near}`?"),
            None => format!(
                "there is no server `{name}`; there are: {}",
                names().take(20).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// The value of connections to a server.
    pub(super) fn remembered(&self, number: usize) -> Option<u64> {
        Some((number as u64) << 48 | self.get(number)?.id)
    }
    /// The server of a connection that remembers it, unless it is down or gone.
    pub(super) fn live(&self, remembered: u64) -> Option<(usize, &Known)> {
        let number = number_of(remembered);
        let (number, known) = match self.get(number) {
            Some(known) if known.id == remembered & ID => (number, known),
            // From another node, which counts otherwise.
            _ => {
                let number = *self.numbers.get(&(remembered & ID))?;
                (number, self.get(number)?)
            }
        };
        (!known.is_down).then_some((number, known))
    }
    /// The server of a flow by Maglev's table, alike on every node.
    pub(super) fn choose(&self, flow: FlowKey) -> Option<usize> {
        let table = self.tables.get(usize::from(flow.is_v6())).or(self.tables.first())?;
        table.get(flow.store().hash(&self.secret)).map(usize::from)
    }
    /// Whether a server has this address.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address)
    }
    /// Whether a server answers from there: at its own port, or else at that of the service.
    pub(super) fn answers_from(&self, address: IpAddr, port: u16, service: Option<u16>) -> bool {
        self.addresses.contains(&(address, Some(port)))
            || service.is_none_or(|service| service == port) && self.addresses.contains(&(address, None))
    }
}

/// The number of the server that a connection remembers, on the node that wrote it.
pub(super) fn number_of(remembered: u64) -> usize {
    (remembered >> 48 & NUMBER) as usize
}

impl Servers {
    pub(super) fn pool(&self) -> &Pool {
        &self.0
    }
}

impl Changing for Servers {
    type Change = Replace<Pool>;
    /// Whether the change was made; it is refused if its base is not the present pool.
    type Outcome = bool;
    fn apply(&mut self, replace: &Replace<Pool>) -> bool {
        replace.apply(&mut self.0)
    }
}

impl Holds for Servers {
    type Snapshot = Pool;
    fn snapshot(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Snapshot for Pool {
    fn version(&self) -> u64 {
        self.version
    }
    fn origin(&self) -> u64 {
        self.origin
    }
}

impl Contents for Servers {
    type Config = First;
    /// Other servers in the file count more than changes by handlers.
    const IS_CONFIGURED: bool = true;
    fn make(first: &First) -> Result<Self, String> {
        Pool::first(first).map(|pool| Self(Arc::new(pool)))
    }
    fn least() -> Self {
        let first =
            First { servers: Vec::new(), mode: Mode::Dsr, slots: 2, key: String::new(), checked: false };
        Self(Arc::new(Pool::first(&first).expect("a table without servers is always possible")))
    }
}

/// The format is lines: the initial servers, one line for each server, and the hash of all lines before.
impl Declared for Servers {
    fn export(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT} {:016x}\n", self.0.origin);
        for (_, known) in self.0.all() {
            let draining = if known.draining { "draining" } else { "takes" };
            let health = if known.is_down { "down" } else { "up" };
            text += &format!("{draining} {health} {}\n", known.server);
        }
        seal(text, SEED)
    }
    /// Takes over changes made by handlers, unless the configuration has named other servers since.
    fn import(&mut self, bytes: &[u8], _: u64) -> Result<(), String> {
        let damaged = || damaged("servers");
        let (origin, lines) = open(bytes, SEED, FORMAT, "servers")?;
        if origin != format!("{:016x}", self.0.origin) {
            return Ok(());
        }
        let next = self.0.next(|next| {
            next.known.clear();
            next.numbers.clear();
            for line in lines.lines() {
                let mut words = line.splitn(3, ' ');
                let (Some(draining), Some(health), Some(server)) = (words.next(), words.next(), words.next())
                else {
                    return Err(damaged());
                };
                let server: Server = server.parse()?;
                let name = server.name.clone();
                next.put(server)?;
                let known = next.known_mut(&name)?;
                (known.draining, known.is_down) = (draining == "draining", health == "down");
            }
            Ok(())
        })?;
        self.0 = Arc::new(next);
        Ok(())
    }
    fn is_written(&self) -> bool {
        true
    }
    /// The servers that are down, as lines of name and address.
    fn learned(&self) -> Option<Vec<u8>> {
        let mut text = format!("{LEARNED} down\n");
        for (_, Known { server, .. }) in self.0.all().filter(|(_, known)| known.is_down) {
            let address = server.address.map(|address| address.to_string()).unwrap_or_default();
            text += &format!("{} {address}\n", server.name);
        }
        Some(seal(text, SEED))
    }
    /// Takes over what health checks have found out of servers with the same address.
    fn learn(&mut self, learned: &[u8]) -> Result<(), String> {
        if !self.0.checked {
            // Then an operator has said it.
            return Ok(());
        }
        let (_, lines) = open(learned, SEED, LEARNED, "the servers' health")?;
        let server = |line: &str| {
            let (name, address) = line.split_once(' ')?;
            let address = if address.is_empty() { None } else { Some(address.parse().ok()?) };
            Some((name.to_owned(), address))
        };
        let down: Option<BTreeSet<_>> = lines.lines().map(server).collect();
        let down = down.filter(|down| down.len() <= MOST).ok_or_else(|| damaged("the servers' health"))?;
        let next = self.0.next(|next| {
            next.down_before = down;
            for known in next.known.iter_mut().flatten() {
                let place = (known.server.name.clone(), known.server.address);
                known.is_down |= next.down_before.remove(&place);
            }
            Ok(())
        })?;
        self.0 = Arc::new(next);
        Ok(())
    }
    fn occupancy(&self) -> (u64, u64) {
        (self.0.all().count() as u64, MOST as u64)
    }
}

/// Splits `NAME REST`.
fn two<'a>(argument: &'a str, expected: &str) -> Result<(&'a str, &'a str), String> {
    let split = argument.trim().split_once(char::is_whitespace);
    split
        .map(|(name, rest)| (name, rest.trim()))
        .ok_or_else(|| format!("expected {expected}, found `{argument}`"))
}

/// Declares the handlers that show and change the servers.
pub(super) fn declare(servers: &Bounded<Servers>, worker: &Worker) {
    let changes = Changes::default();
    let write = |name: &str, summary: &str, syntax: &str, next: fn(&Pool, &str) -> Result<Pool, String>| {
        let changes = changes.clone();
        let handler = Handler::write(name, summary).argument(syntax);
        worker.handler_of(servers, handler, move |servers, argument| {
            changes.make(servers, "servers", |pool| next(pool, argument)).map(|_| "done".into())
        });
    };
    let form = "NAME [ADDRESS[:PORT]] [MAC] [WEIGHT]";
    let add = "Adds servers, or changes them and takes them back from draining: one a line, all or none.";
    write("add", add, form, |pool, argument| {
        pool.next(|next| argument.trim().split('\n').try_for_each(|line| next.put(line.parse()?)))
    });
    write("drain", "Gives a server no new connections.", "NAME", |pool, argument| {
        pool.next(|next| {
            next.known_mut(argument.trim())?.draining = true;
            Ok(())
        })
    });
    let remove = "Removes servers, one a line, all or none: their connections go to others.";
    write("remove", remove, "NAME", |pool, argument| {
        pool.next(|next| {
            argument.trim().split('\n').map(str::trim).try_for_each(|name| {
                let number = next.find(name).ok_or_else(|| next.unknown(name))?;
                let gone = next.known[number].take();
                gone.and_then(|gone| next.numbers.remove(&gone.id));
                Ok(())
            })
        })
    });
    write(
        "weight",
        "Gives a server another share of new connections; 0 drains it.",
        "NAME WEIGHT",
        |pool, argument| {
            let (name, weight) = two(argument, "`NAME WEIGHT`")?;
            let weight = weight.parse().ok().filter(|weight| *weight <= maglev::Backend::MOST_WEIGHT);
            let weight =
                weight.ok_or_else(|| format!("expected a weight of 0 to 1000000, found `{argument}`"))?;
            pool.next(|next| {
                next.known_mut(name)?.server.weight = weight;
                Ok(())
            })
        },
    );
    let health =
        "Says whether a server is well: one that is down gets no packets, and its connections go to others.";
    write("health", health, "NAME up|down", |pool, argument| {
        let (name, state) = two(argument, "`NAME up` or `NAME down`")?;
        let is_down = match state {
            "up" => false,
            "down" => true,
            _ => return Err(format!("expected `up` or `down` behind the name, found `{state}`")),
        };
        pool.next(|next| {
            next.known_mut(name)?.is_down = is_down;
            Ok(())
        })
    });
    let listed = Handler::read("servers", "Each server: name, address, Ethernet address, weight, state.");
    worker.handler_of(servers, listed, |servers, _| {
        let pool = servers.read(|servers| servers.0.clone());
        Ok(pool.all().map(|(_, known)| format!("{} {}\n", known.server, known.state())).collect())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(lines: &[&str], checked: bool) -> Servers {
        let servers = lines.iter().map(|line| line.parse().unwrap()).collect();
        let first = First { servers, mode: Mode::Dsr, slots: 101, key: String::new(), checked };
        Servers::make(&first).unwrap()
    }

    fn states(servers: &Servers) -> Vec<(&str, bool)> {
        servers.pool().all().map(|(_, known)| (known.server.name.as_str(), known.is_down)).collect()
    }

    /// Makes a change as a handler does.
    fn change(servers: &mut Servers, change: impl FnOnce(&mut Pool) -> Result<(), String>) {
        servers.0 = Arc::new(servers.0.next(change).unwrap());
    }

    #[test]
    fn servers_that_begin_again_know_which_of_them_are_down() {
        let lines = ["a 10.0.0.1 02:00:00:00:00:01", "b 10.0.0.2 02:00:00:00:00:02"];
        let added: Server = "c 10.0.0.3 02:00:00:00:00:03".parse().unwrap();
        let mut before = servers(&lines, true);
        change(&mut before, |pool| pool.put(added.clone()));
        for name in ["b", "c"] {
            change(&mut before, |pool| pool.known_mut(name).map(|known| known.is_down = true));
        }
        let learned = before.learned().unwrap();
        let mut after = servers(&lines, true);
        after.learn(&learned).unwrap();
        assert_eq!(states(&after), [("a", false), ("b", true)]);
        let taken: Vec<usize> = after.pool().takers(false).map(|(number, _)| number).collect();
        assert_eq!(taken, [0]);
        // A server that handlers had added is down, too, where the journal adds it again.
        change(&mut after, |pool| pool.put(added.clone()));
        assert_eq!(states(&after), [("a", false), ("b", true), ("c", true)]);
        // It is said once: the checks have the last word.
        change(&mut after, |pool| pool.known_mut("c").map(|known| known.is_down = false));
        change(&mut after, |pool| pool.put(added.clone()));
        assert!(!states(&after)[2].1);
        // A server of another address is another server, and without checks an operator has said it.
        let mut moved = servers(&["b 10.0.0.9 02:00:00:00:00:02"], true);
        moved.learn(&learned).unwrap();
        let mut unchecked = servers(&lines, false);
        unchecked.learn(&learned).unwrap();
        assert!(states(&moved).into_iter().chain(states(&unchecked)).all(|(_, is_down)| !is_down));
        assert!(servers(&lines, true).learn(&learned[1..]).is_err());
    }
}
