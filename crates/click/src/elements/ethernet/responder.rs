//! `ARPResponder` and `ARPFaker`: answers to ARP requests, asked for or not.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::{arp, aside, made};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::{Ether, Prefix, SECOND};

pub(super) const CLASSES: &[Class] = &[
    Class::new("ARPResponder", responder).live().ports("1/1-2").processing("a/ah").answers(),
    Class::new("ARPFaker", faker).ports("0/1").processing("h/h"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    address: u32,
    mask: u32,
    ether: Ether,
}

impl Entry {
    fn same_prefix(&self, other: &Self) -> bool {
        (self.address, self.mask) == (other.address, other.mask)
    }
    fn contains(&self, other: &Self) -> bool {
        other.address & self.mask == self.address
    }
    /// The prefix as Click writes it.
    fn prefix(&self) -> String {
        let (address, mask) = (Ipv4Addr::from(self.address), Ipv4Addr::from(self.mask));
        match (Prefix { address, mask }).length() {
            Some(length) => format!("{address}/{length}"),
            None => format!("{address}/{mask}"),
        }
    }
}

/// `ARPResponder(IP/MASK… ETH, …)`: answers ARP requests for addresses in the prefixes.
///
/// Other packets leave by the second output, or are dropped.
struct ArpResponder {
    entries: RefCell<Vec<Entry>>,
}

/// The entries that an argument means: prefixes and one Ethernet address.
fn entries_of(argument: &str, at: At<'_>) -> Result<Vec<Entry>, &'static str> {
    let mut prefixes = Vec::new();
    let mut ether = None;
    let words = text::split_words(argument);
    for word in &words {
        if let Ok(prefix) = Prefix::read(word, at, true) {
            prefixes.push(prefix);
        } else if let Ok(address) = Ether::parse(word, at) {
            if ether.replace(address).is_some() {
                return Err("more than one ETH");
            }
        } else {
            return Err("expected IP/MASK ETH");
        }
    }
    // One name may mean both a prefix and an Ethernet address.
    let ether = ether.or_else(|| words.iter().find_map(|word| Ether::parse(word, at).ok()));
    if prefixes.is_empty() {
        return Err("missing IP/MASK");
    }
    let ether = ether.ok_or("missing ETH")?;
    let entry = |prefix: Prefix| {
        let mask = u32::from(prefix.mask);
        Entry { address: u32::from(prefix.address) & mask, mask, ether }
    };
    Ok(prefixes.into_iter().map(entry).collect())
}

/// Adds an entry: narrower prefixes come before those that contain them. The entry that it replaces.
fn add(entries: &mut Vec<Entry>, entry: Entry) -> Option<Entry> {
    if let Some(known) = entries.iter_mut().find(|known| known.same_prefix(&entry)) {
        return Some(std::mem::replace(known, entry));
    }
    let place = entries.iter().position(|known| known.contains(&entry)).unwrap_or(entries.len());
    entries.insert(place, entry);
    None
}

fn responder(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut entries = Vec::new();
    let mut twice = Vec::new();
    for (number, argument) in arguments.rest().iter().enumerate() {
        match entries_of(argument, setup.at) {
            Ok(more) => {
                for entry in more {
                    if add(&mut entries, entry).is_some() {
                        twice.push(entry.prefix());
                    }
                }
            }
            Err(message) => arguments.error(&format!("argument {number}: {message}")),
        }
    }
    arguments.complete()?;
    for prefix in twice {
        setup.errors.warning(&format!("multiple entries for {prefix}"));
    }
    made(ArpResponder { entries: RefCell::new(entries) })
}

impl ArpResponder {
    fn lookup(&self, address: Ipv4Addr) -> Option<Ether> {
        let entries = self.entries.borrow();
        let found = entries.iter().find(|entry| u32::from(address) & entry.mask == entry.address);
        found.map(|entry| entry.ether)
    }

    fn answer(&self, at: At<'_>, packet: &Packet) -> Option<Packet> {
        let request = arp::read(packet.data()).filter(|message| message.operation == 1)?;
        let own = self.lookup(request.target_ip)?;
        let mut reply = arp::reply(at, (request.sender, request.sender_ip), (own, request.target_ip))?;
        arp::copy_vlan(packet, &mut reply);
        Some(reply)
    }
}

impl Element for ArpResponder {
    fn memory(&self) -> usize {
        self.entries.borrow().capacity() * size_of::<Entry>()
    }
    fn action(&self, at: At<'_>, packet: Packet) -> Option<Packet> {
        match self.answer(at, &packet) {
            Some(reply) => {
                at.drop_packet(packet, DropReason::Answered);
                Some(reply)
            }
            None => aside(at, packet, DropReason::Unmatched),
        }
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.entries.borrow_mut().clone_from(&fresh.entries.borrow());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, _| {
            let mut table = String::new();
            for entry in &*this.entries.borrow() {
                let _ = writeln!(table, "{} {}", entry.prefix(), entry.ether);
            }
            table
        });
        handlers.ask("lookup", |this: &Self, at, parameter| {
            let address = Ipv4Addr::parse(parameter.trim(), at).map_err(|_| "expected IP address")?;
            Ok(this.lookup(address).map(|ether| ether.to_string()).unwrap_or_default())
        });
        handlers.write("add", |this: &Self, at, value| {
            let more = entries_of(value, at)?;
            let mut entries = this.entries.borrow_mut();
            for entry in more {
                add(&mut entries, entry);
            }
            Ok(String::new())
        });
        handlers.write("remove", |this: &Self, at, value| {
            let prefix = Prefix::read(value.trim(), at, true).map_err(|_| "expected IP/MASK")?;
            let mask = u32::from(prefix.mask);
            let wanted = Entry { address: u32::from(prefix.address) & mask, mask, ether: Ether::default() };
            let mut entries = this.entries.borrow_mut();
            let place = entries.iter().position(|entry| entry.same_prefix(&wanted));
            let place = place.ok_or_else(|| format!("{} not found", wanted.prefix()))?;
            entries.remove(place);
            Ok(String::new())
        });
    }
}

/// `ARPFaker(DSTIP, DSTETH, SRCIP, SRCETH)`: tells DST by ARP, every 10 seconds, that SRCIP has the address SRCETH.
struct ArpFaker {
    to: (Ether, Ipv4Addr),
    from: (Ether, Ipv4Addr),
}

fn faker(arguments: &mut Arguments<'_>, _: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let to_ip: Option<Ipv4Addr> = arguments.required("DSTIP");
    let to: Option<Ether> = arguments.required("DSTETH");
    let from_ip: Option<Ipv4Addr> = arguments.required("SRCIP");
    let from: Option<Ether> = arguments.required("SRCETH");
    arguments.complete()?;
    made(ArpFaker { to: (to?, to_ip?), from: (from?, from_ip?) })
}

impl Element for ArpFaker {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.timer_after(0, SECOND);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        if let Some(reply) = arp::reply(at, self.to, self.from) {
            at.push(0, reply);
        }
        at.timer_after(0, 10 * SECOND);
    }
}
