//! `ARPTable`: Ethernet addresses by IPv4 address, and packets that wait for them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::made;
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::{Answer, Handlers};
use crate::language::errors::Errors;
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::{Ether, Span};

pub(super) const CLASSES: &[Class] =
    &[Class::new("ARPTable", configure).live().ports("0/0").creates_nothing()];

/// Nanoseconds in a tick of the table: it counts milliseconds, as Click does.
const TICK: u64 = 1_000_000;
/// Ticks in a second.
const TICKS: u64 = 1_000;
/// Entries of a table whose configuration sets no bound.
const MOST_ENTRIES: usize = 1 << 16;
/// Packets of a table whose configuration sets no bound.
const MOST_PACKETS: usize = 1 << 16;

/// Bounds of a table.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub packets: u32,
    pub entries: u32,
    pub entry_packets: u32,
    pub slim: u32,
    /// Ticks after which an entry expires; 0: never.
    pub timeout: u64,
}

/// The settings of a table as a configuration gives them.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    packets: Option<u32>,
    entries: Option<u32>,
    entry_packets: Option<u32>,
    slim: Option<u32>,
    timeout: Option<u64>,
}

impl Settings {
    pub(super) fn read(arguments: &mut Arguments<'_>) -> Self {
        let timeout: Option<Span> = arguments.keyword("TIMEOUT");
        Self {
            packets: arguments.keyword("CAPACITY"),
            entries: arguments.keyword("ENTRY_CAPACITY"),
            entry_packets: arguments.keyword("ENTRY_PACKET_CAPACITY"),
            slim: arguments.keyword("CAPACITY_SLIM_FACTOR"),
            timeout: timeout.map(ticks),
        }
    }

    /// Whether the settings make sense. An error was told otherwise.
    pub(super) fn check(&self, errors: &Errors) -> bool {
        let good = self.slim != Some(0);
        if !good {
            errors.error("CAPACITY_SLIM_FACTOR cannot be zero");
        }
        good
    }

    /// These settings, where they were given.
    pub(super) fn apply(&self, to: Limits) -> Limits {
        Limits {
            packets: self.packets.unwrap_or(to.packets),
            entries: self.entries.unwrap_or(to.entries),
            entry_packets: self.entry_packets.unwrap_or(to.entry_packets),
            slim: self.slim.unwrap_or(to.slim).max(1),
            timeout: self.timeout.unwrap_or(to.timeout),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { packets: 2048, entries: 0, entry_packets: 0, slim: 2, timeout: 300 * TICKS }
    }
}

/// Ticks of a span; 0 (never) for spans beyond Click's range.
pub(super) fn ticks(span: Span) -> u64 {
    let ticks = span.0 / TICK;
    if ticks / TICKS >= u64::from(u32::MAX) / TICKS { 0 } else { ticks }
}

fn now(at: At<'_>) -> u64 {
    at.steady() / TICK
}

struct Entry {
    address: Ether,
    known: bool,
    /// Questions since the last answer.
    asked: u8,
    live_at: u64,
    /// When it was last asked for. Negative before the first tick.
    asked_at: i64,
    /// Its place among entries that were live at the same time.
    sequence: i64,
    waiting: VecDeque<Packet>,
}

impl Entry {
    fn is_expired(&self, now: u64, timeout: u64) -> bool {
        timeout != 0 && self.live_at.saturating_add(timeout) < now
    }
    fn is_known(&self, now: u64, timeout: u64) -> bool {
        self.known && !self.is_expired(now, timeout)
    }
    /// Whether it may be asked for: ten times a second at first, then every two seconds. Notes that it was.
    fn may_ask(&mut self, now: u64) -> bool {
        let pause = if self.asked >= 10 { 2 * TICKS } else { TICKS / 10 };
        let may = now as i64 >= self.asked_at.saturating_add(pause as i64);
        if may {
            self.asked_at = now as i64;
            self.asked = self.asked.saturating_add(1);
        }
        may
    }
}

/// The fate of a packet whose address is not known.
pub(super) enum Queued {
    /// It waits; `true` when the address is to be asked for.
    Waits(bool),
    /// There was no room.
    Refused(Packet),
}

#[derive(Default)]
struct Contents {
    entries: HashMap<Ipv4Addr, Entry>,
    /// Entries by the time when they were last live, the oldest first.
    ages: BTreeMap<(u64, i64), Ipv4Addr>,
    sequence: i64,
    packets: usize,
    drops: u32,
}

impl Contents {
    fn drop_packet(&mut self, at: At<'_>, packet: Packet, reason: DropReason) {
        self.drops = self.drops.wrapping_add(1);
        at.drop_packet(packet, reason);
    }

    /// Notes that an entry was live at a time: behind others of that time, or before them.
    fn touch(&mut self, ip: Ipv4Addr, live_at: u64, behind: bool) {
        self.sequence += 1;
        let sequence = if behind { self.sequence } else { -self.sequence };
        if let Some(entry) = self.entries.get_mut(&ip) {
            self.ages.remove(&(entry.live_at, entry.sequence));
            (entry.live_at, entry.sequence) = (live_at, sequence);
            self.ages.insert((live_at, sequence), ip);
        }
    }

    fn remove(&mut self, at: At<'_>, ip: Ipv4Addr, reason: DropReason) {
        let Some(entry) = self.entries.remove(&ip) else { return };
        self.ages.remove(&(entry.live_at, entry.sequence));
        self.packets = self.packets.saturating_sub(entry.waiting.len());
        for packet in entry.waiting {
            self.drop_packet(at, packet, reason);
        }
    }

    /// Removes entries that have expired, or are too many with `more` to come.
    fn remove_old(&mut self, at: At<'_>, limits: &Limits, more: usize) {
        let most = if limits.entries == 0 { MOST_ENTRIES } else { limits.entries as usize };
        let now = now(at);
        while let Some((_, &ip)) = self.ages.first_key_value() {
            let expired = self.entries.get(&ip).is_some_and(|entry| entry.is_expired(now, limits.timeout));
            if !expired && self.entries.len() + more <= most {
                break;
            }
            self.remove(at, ip, if expired { DropReason::NoRoute } else { DropReason::TableFull });
        }
    }

    /// Drops waiting packets of the oldest entries when there are too many with one more to come.
    fn slim_packets(&mut self, at: At<'_>, limits: &Limits) {
        let most = if limits.packets == 0 { MOST_PACKETS } else { limits.packets as usize };
        if self.packets < most {
            return;
        }
        self.remove_old(at, limits, 0);
        // One more is coming, which counts.
        let kept = (most - most / limits.slim.max(1) as usize).max(1);
        let oldest: Vec<Ipv4Addr> = self.ages.values().copied().collect();
        for ip in oldest {
            while self.packets + 1 > kept {
                let Some(packet) = self.entries.get_mut(&ip).and_then(|entry| entry.waiting.pop_front())
                else {
                    break;
                };
                self.packets -= 1;
                self.drop_packet(at, packet, DropReason::QueueFull);
            }
        }
    }

    /// Makes an entry where there is none.
    fn ensure(&mut self, at: At<'_>, limits: &Limits, ip: Ipv4Addr) {
        if self.entries.contains_key(&ip) {
            return;
        }
        let most = if limits.entries == 0 { MOST_ENTRIES } else { limits.entries as usize };
        if self.entries.len() + 1 > most {
            self.remove_old(at, limits, 1);
        }
        let now = now(at);
        let entry = Entry {
            address: Ether::BROADCAST,
            known: false,
            asked: 0,
            live_at: now,
            asked_at: now as i64 - TICKS as i64,
            sequence: 0,
            waiting: VecDeque::new(),
        };
        self.entries.insert(ip, entry);
        self.touch(ip, now, true);
    }
}

/// A table, which elements share.
#[derive(Default)]
pub(super) struct Table {
    limits: Cell<Limits>,
    contents: RefCell<Contents>,
}

impl Table {
    pub(super) fn new(limits: Limits) -> Rc<Self> {
        Rc::new(Self { limits: Cell::new(limits), contents: RefCell::default() })
    }

    /// Bytes that the table takes now, without the packets that wait in it.
    pub(super) fn memory(&self) -> usize {
        let contents = self.contents.borrow();
        contents.entries.capacity() * size_of::<(Ipv4Addr, Entry)>()
            + contents.ages.len() * size_of::<((u64, i64), Ipv4Addr)>()
            + contents.packets * size_of::<Packet>()
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits.get()
    }
    pub(super) fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
    }
    pub(super) fn drops(&self) -> u32 {
        self.contents.borrow().drops
    }
    pub(super) fn count(&self) -> usize {
        self.contents.borrow().entries.len()
    }
    pub(super) fn length(&self) -> usize {
        self.contents.borrow().packets
    }

    /// The address of a neighbour, and whether to ask for it again.
    ///
    /// It is asked for again after `poll` ticks, unless that is 0.
    pub(super) fn lookup(&self, at: At<'_>, ip: Ipv4Addr, poll: u64) -> Option<(Ether, bool)> {
        let (now, timeout) = (now(at), self.limits.get().timeout);
        let mut contents = self.contents.borrow_mut();
        let entry = contents.entries.get_mut(&ip).filter(|entry| entry.is_known(now, timeout))?;
        let asks = poll != 0 && now >= entry.live_at.saturating_add(poll) && entry.may_ask(now);
        Some((entry.address, asks))
    }

    /// Gives away a look at neighbours whose addresses are known, and that are not to be asked for again.
    pub(super) fn known<R>(
        &self,
        at: At<'_>,
        poll: u64,
        look: impl FnOnce(&dyn Fn(Ipv4Addr) -> Option<Ether>) -> R,
    ) -> R {
        let (now, timeout) = (now(at), self.limits.get().timeout);
        let contents = self.contents.borrow();
        look(&|ip| {
            let entry = contents.entries.get(&ip).filter(|entry| entry.is_known(now, timeout))?;
            (poll == 0 || now < entry.live_at.saturating_add(poll)).then_some(entry.address)
        })
    }

    /// Notes a neighbour's address, and yields the packets that waited for it.
    pub(super) fn answer(&self, at: At<'_>, ip: Ipv4Addr, address: Ether) -> VecDeque<Packet> {
        self.insert(at, ip, address);
        let mut contents = self.contents.borrow_mut();
        let waiting = contents.entries.get_mut(&ip).map(|entry| std::mem::take(&mut entry.waiting));
        let waiting = waiting.unwrap_or_default();
        contents.packets = contents.packets.saturating_sub(waiting.len());
        waiting
    }

    /// Notes a neighbour's address; the broadcast address means that it is not known.
    fn insert(&self, at: At<'_>, ip: Ipv4Addr, address: Ether) {
        let limits = self.limits.get();
        let mut contents = self.contents.borrow_mut();
        contents.ensure(at, &limits, ip);
        let now = now(at);
        contents.touch(ip, now, true);
        let Some(entry) = contents.entries.get_mut(&ip) else { return };
        entry.address = address;
        entry.known = address != Ether::BROADCAST;
        entry.asked = 0;
        entry.asked_at = now as i64 - TICKS as i64;
    }

    /// Has a packet wait for a neighbour's address.
    pub(super) fn wait(&self, at: At<'_>, ip: Ipv4Addr, packet: Packet) -> Queued {
        let limits = self.limits.get();
        let mut contents = self.contents.borrow_mut();
        contents.ensure(at, &limits, ip);
        let now = now(at);
        // An entry that is asked for stays just short of its expiry, so that it is not removed while packets come.
        let least = now.saturating_sub(limits.timeout);
        let live_at = contents.entries.get(&ip).map_or(now, |entry| entry.live_at);
        if limits.timeout != 0 && live_at < least {
            contents.touch(ip, least, false);
        }
        let waiting = contents.entries.get(&ip).map_or(0, |entry| entry.waiting.len());
        if limits.entry_packets != 0 && waiting >= limits.entry_packets as usize {
            contents.drops = contents.drops.wrapping_add(1);
            return Queued::Refused(packet);
        }
        contents.slim_packets(at, &limits);
        contents.packets += 1;
        match contents.entries.get_mut(&ip) {
            Some(entry) => {
                entry.waiting.push_back(packet);
                Queued::Waits(entry.may_ask(now))
            }
            None => {
                contents.packets -= 1;
                Queued::Refused(packet)
            }
        }
    }

    /// Removes what has expired.
    pub(super) fn expire(&self, at: At<'_>) {
        self.contents.borrow_mut().remove_old(at, &self.limits.get(), 0);
    }

    /// Removes all.
    pub(super) fn clear(&self, at: At<'_>) {
        let mut contents = self.contents.borrow_mut();
        while let Some((_, &ip)) = contents.ages.first_key_value() {
            contents.remove(at, ip, DropReason::Drained);
        }
    }

    /// Takes what another table holds, if this one is empty.
    pub(super) fn take(&self, before: &Self) {
        if self.count() == 0 {
            std::mem::swap(&mut *self.contents.borrow_mut(), &mut *before.contents.borrow_mut());
        }
    }

    /// A line for each entry: its address, whether it is known, its Ethernet address and its age.
    pub(super) fn describe(&self, at: At<'_>) -> String {
        let (now, timeout) = (now(at), self.limits.get().timeout);
        let contents = self.contents.borrow();
        let mut text = String::new();
        for ip in contents.ages.values() {
            if let Some(entry) = contents.entries.get(ip) {
                let age = crate::value::write_time(now.saturating_sub(entry.live_at) * TICK);
                let known = u8::from(entry.is_known(now, timeout));
                let _ = writeln!(text, "{ip} {known} {} {age}", entry.address);
            }
        }
        text
    }

    /// The `insert` handler: `IP ETH`.
    pub(super) fn insert_text(&self, at: At<'_>, value: &str) -> Answer {
        let errors = Errors::collected();
        let mut arguments = Arguments::of(text::split_words(value), at, &errors);
        let ip: Option<Ipv4Addr> = arguments.required("IP");
        let address: Option<Ether> = arguments.required("ETH");
        match (arguments.complete(), ip, address) {
            (Some(()), Some(ip), Some(address)) => {
                self.insert(at, ip, address);
                Ok(String::new())
            }
            _ => Err(errors.lines().join("\n")),
        }
    }

    /// The `delete` handler: `IP`.
    pub(super) fn delete_text(&self, at: At<'_>, value: &str) -> Answer {
        let errors = Errors::collected();
        let mut arguments = Arguments::of(text::split_words(value), at, &errors);
        let ip: Option<Ipv4Addr> = arguments.required("IP");
        match (arguments.complete(), ip) {
            (Some(()), Some(ip)) => {
                self.insert(at, ip, Ether::BROADCAST);
                Ok(String::new())
            }
            _ => Err(errors.lines().join("\n")),
        }
    }

    /// Sets the timer by which old entries go, for the first time or again.
    pub(super) fn set_timer(&self, at: At<'_>, again: bool) {
        let timeout = self.limits.get().timeout;
        if timeout != 0 {
            let seconds = timeout / TICKS + u64::from(again);
            at.timer_after(0, seconds.saturating_mul(crate::value::SECOND));
        }
    }
}

/// `ARPTable([CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT])`: a table that several
/// `ARPQuerier`s share.
pub(super) struct ArpTable {
    pub(super) table: Rc<Table>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let settings = Settings::read(arguments);
    arguments.complete()?;
    if !settings.check(setup.errors) {
        return None;
    }
    made(ArpTable { table: Table::new(settings.apply(Limits::default())) })
}

impl Element for ArpTable {
    fn memory(&self) -> usize {
        self.table.memory()
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        self.table.set_timer(at, false);
        true
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        self.table.expire(at);
        self.table.set_timer(at, true);
    }
    fn reconfigure(&self, _: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.table.set_limits(fresh.table.limits());
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, at| this.table.describe(at));
        handlers.read("drops", |this: &Self, _| this.table.drops());
        handlers.read("count", |this: &Self, _| this.table.count());
        handlers.read("length", |this: &Self, _| this.table.length());
        handlers.write("insert", |this: &Self, at, value| this.table.insert_text(at, value));
        handlers.write("delete", |this: &Self, at, value| this.table.delete_text(at, value));
        handlers.write("clear", |this: &Self, at, _| {
            this.table.clear(at);
            Ok(String::new())
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        if let Some(before) = as_type::<Self>(before) {
            self.table.take(&before.table);
        }
    }
    fn cleanup(&self, at: At<'_>) {
        self.table.clear(at);
    }
}
