//! `IGMP`: a multicast router's side of group membership on one link (RFC 2236, RFC 3376).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;
use netbricks_core::packet::checksum;

use super::header::{self, Ip, get_address, get16, put, set16};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::Annotated;
use crate::router::{At, Setup};
use crate::value::{SECOND, Span};

pub(super) const CLASSES: &[Class] = &[Class::new("IGMP", igmp).ports("2/2").processing("h/h").flow("xy/yx")];

/// The protocol number of IGMP.
const PROTOCOL: u8 = 2;
/// All hosts on a link.
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// A header of 20 bytes and the router alert option.
const HEADER: usize = 24;
/// Timer of general queries.
const GENERAL: usize = 0;
/// Timer of queries for one group.
const SPECIFIC: usize = 1;

mod kind {
    /// Membership query.
    pub(super) const QUERY: u8 = 0x11;
    /// Report of version 1.
    pub(super) const REPORT_1: u8 = 0x12;
    /// Report of version 2.
    pub(super) const REPORT_2: u8 = 0x16;
    /// A host leaves a group (version 2).
    pub(super) const LEAVE: u8 = 0x17;
    /// Report of version 3.
    pub(super) const REPORT_3: u8 = 0x22;
}

/// A group with members on the link.
#[derive(Clone, Copy)]
struct Membership {
    /// Steady time at which it ends unless a member reports (ns).
    ends: u64,
    /// Queries for the group that are still to be sent because a member left.
    queries: u32,
    /// When the next of them is due.
    due: u64,
}

/// Times and counts of the protocol (RFC 3376, section 8).
struct Times {
    robustness: u32,
    interval: u64,
    response: u64,
    last_member: u64,
}

impl Times {
    fn membership(&self) -> u64 {
        self.interval.saturating_mul(self.robustness.into()).saturating_add(self.response)
    }
    fn other_querier(&self) -> u64 {
        self.interval.saturating_mul(self.robustness.into()).saturating_add(self.response / 2)
    }
}

/// `IGMP(ADDR [, CAPACITY, VERSION, INTERVAL, RESPONSE, LAST_MEMBER, ROBUSTNESS])`: knows the link's multicast groups.
///
/// Input 0 takes IPv4 packets of the link's hosts: reports and leaves change the table of groups. Input 1 takes
/// multicast packets for the link: output 0 has those to groups with members. Output 1 has the queries that the router
/// `ADDR` sends: all the time, and for a group that a host leaves. A router with a lower address silences them.
/// Sources that hosts of version 3 choose are not kept: a group with any source has members.
struct Igmp {
    address: Ipv4Addr,
    capacity: usize,
    version: u8,
    times: Times,
    groups: RefCell<BTreeMap<Ipv4Addr, Membership>>,
    /// Groups that are to be asked, in the order in which they are due.
    asked: RefCell<BTreeSet<(u64, Ipv4Addr)>>,
    /// When memberships that ended may be looked for again (steady time, ns).
    swept_next: Cell<u64>,
    /// How often they were looked for.
    sweeps: Cell<u64>,
    /// Queries at the start that are still to come sooner than the others.
    startup: Cell<u32>,
    /// Until when another router asks (steady time, ns).
    silent_until: Cell<u64>,
    refused: Cell<u64>,
    bad: Cell<u64>,
    queries: Cell<u64>,
}

fn igmp(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let address: Option<Ipv4Addr> = arguments.required("ADDR");
    let capacity: u32 = arguments.keyword("CAPACITY").unwrap_or(1024);
    let version: u8 = arguments.keyword("VERSION").unwrap_or(2);
    let robustness: u8 = arguments.keyword("ROBUSTNESS").unwrap_or(2);
    let [interval, response, last_member] =
        [("INTERVAL", 125), ("RESPONSE", 10), ("LAST_MEMBER", 1)].map(|(keyword, usual)| {
            arguments.keyword(keyword).map_or(usual * SECOND, |span: Span| span.0.max(SECOND / 10))
        });
    arguments.complete()?;
    if !matches!(version, 2 | 3) {
        setup.errors.error("VERSION must be 2 or 3");
        return None;
    }
    let times = Times { robustness: robustness.max(1).into(), interval, response, last_member };
    Some(Rc::new(Igmp {
        address: address?,
        capacity: capacity as usize,
        version,
        startup: Cell::new(times.robustness),
        times,
        groups: RefCell::default(),
        asked: RefCell::default(),
        swept_next: Cell::default(),
        sweeps: Cell::default(),
        silent_until: Cell::default(),
        refused: Cell::default(),
        bad: Cell::default(),
        queries: Cell::default(),
    }))
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Whether packets to a group leave their link, so that its members are of interest.
fn is_routed(group: Ipv4Addr) -> bool {
    group.is_multicast() && group.octets()[..3] != [224, 0, 0]
}

/// A span of time as queries have it: tenths of a second in 8 bits.
fn tenths(span: u64) -> u8 {
    u8::try_from(span / (SECOND / 10)).unwrap_or(u8::MAX).min(127)
}

impl Igmp {
    fn asks(&self, now: u64) -> bool {
        now >= self.silent_until.get()
    }

    fn query(&self, at: At<'_>, group: Ipv4Addr, response: u64) -> Option<Packet> {
        let length = if self.version == 3 { 12 } else { 8 };
        let mut packet = at.allocate(HEADER + length)?;
        let to = if group.is_unspecified() { ALL_HOSTS } else { group };
        let data = packet.data_mut();
        put(data, 0, &[0x46, 0xC0]);
        set16(data, 2, (HEADER + length) as u16);
        put(data, 8, &[1, PROTOCOL]);
        put(data, 12, &self.address.octets());
        put(data, 16, &to.octets());
        put(data, 20, &[0x94, 4, 0, 0]);
        header::set_checksum(data);
        let message = data.get_mut(HEADER..)?;
        put(message, 0, &[kind::QUERY, tenths(response)]);
        put(message, 4, &group.octets());
        if self.version == 3 {
            let seconds = u8::try_from(self.times.interval / SECOND).unwrap_or(u8::MAX).min(127);
            put(message, 8, &[self.times.robustness.min(7) as u8, seconds]);
        }
        let sum = checksum::internet(message);
        set16(message, 2, sum);
        packet.set_network(0, HEADER);
        packet.set_dst_ip(to);
        packet.set_timestamp(at.now());
        count(&self.queries);
        Some(packet)
    }

    fn join(&self, group: Ipv4Addr, now: u64) {
        if !is_routed(group) {
            return;
        }
        let mut groups = self.groups.borrow_mut();
        if groups.len() >= self.capacity && !groups.contains_key(&group) {
            // A full table is swept once a second at most, so that many new groups cost little.
            if now >= self.swept_next.get() {
                self.swept_next.set(now.saturating_add(SECOND));
                count(&self.sweeps);
                groups.retain(|_, membership| membership.ends > now);
            }
            if groups.len() >= self.capacity {
                count(&self.refused);
                return;
            }
        }
        let ends = now.saturating_add(self.times.membership());
        let before = groups.insert(group, Membership { ends, queries: 0, due: 0 });
        if let Some(before) = before.filter(|before| before.queries > 0) {
            self.asked.borrow_mut().remove(&(before.due, group));
        }
    }

    /// A host left: others get a last chance to report.
    fn leave(&self, at: At<'_>, group: Ipv4Addr, now: u64) {
        if !self.asks(now) {
            return;
        }
        let span = self.times.last_member.saturating_mul(self.times.robustness.into());
        if let Some(membership) = self.groups.borrow_mut().get_mut(&group)
            && membership.queries == 0
        {
            membership.ends = membership.ends.min(now.saturating_add(span));
            membership.queries = self.times.robustness;
            membership.due = now;
            self.asked.borrow_mut().insert((now, group));
            at.timer_at(SPECIFIC, now);
        }
    }

    fn report_3(&self, at: At<'_>, message: &[u8], now: u64) -> Option<()> {
        let mut rest = message.get(8..)?;
        for _ in 0..get16(message, 6) {
            let [record, words, ..] = *rest else { return None };
            let sources = usize::from(get16(rest, 2));
            let length = 8 + 4 * sources + 4 * usize::from(words);
            let group = get_address(rest.get(..length)?, 4);
            match record {
                1 | 3 | 5 if sources > 0 => self.join(group, now),
                2 | 4 => self.join(group, now),
                3 => self.leave(at, group, now),
                _ => (),
            }
            rest = &rest[length..];
        }
        Some(())
    }

    /// Takes a message. `None`: it is malformed.
    fn take(&self, at: At<'_>, packet: &Packet) -> Option<()> {
        let ip = Ip::of(packet).filter(|ip| ip.protocol() == PROTOCOL && !ip.is_fragment())?;
        let message = ip.0.get(ip.header_length()..ip.total_length())?;
        if message.len() < 8 || checksum::internet(message) != 0 {
            return None;
        }
        let now = at.steady();
        let group = get_address(message, 4);
        match message[0] {
            kind::REPORT_1 | kind::REPORT_2 => self.join(group, now),
            kind::LEAVE => self.leave(at, group, now),
            kind::REPORT_3 => self.report_3(at, message, now)?,
            kind::QUERY if ip.source() < self.address && !ip.source().is_unspecified() => {
                self.silent_until.set(now.saturating_add(self.times.other_querier()));
            }
            _ => (),
        }
        Some(())
    }

    fn has_members(&self, group: Ipv4Addr, now: u64) -> bool {
        self.groups.borrow().get(&group).is_some_and(|membership| membership.ends > now)
    }

    fn general_query(&self, at: At<'_>) {
        let now = at.steady();
        self.groups.borrow_mut().retain(|_, membership| membership.ends > now);
        let left = self.startup.get().saturating_sub(1);
        self.startup.set(left);
        at.timer_after(GENERAL, if left > 0 { self.times.interval / 4 } else { self.times.interval });
        if self.asks(now)
            && let Some(packet) = self.query(at, Ipv4Addr::UNSPECIFIED, self.times.response)
        {
            at.push(1, packet);
        }
    }

    fn specific_queries(&self, at: At<'_>) {
        let now = at.steady();
        let mut due = Vec::new();
        let mut groups = self.groups.borrow_mut();
        let mut asked = self.asked.borrow_mut();
        while let Some(&(time, group)) = asked.first()
            && time <= now
        {
            asked.pop_first();
            let Some(membership) = groups.get_mut(&group).filter(|one| one.queries > 0 && one.due == time)
            else {
                continue;
            };
            due.push(group);
            membership.queries -= 1;
            membership.due = now.saturating_add(self.times.last_member);
            if membership.queries > 0 {
                asked.insert((membership.due, group));
            }
        }
        if let Some((next, _)) = asked.first() {
            at.timer_at(SPECIFIC, *next);
        }
        drop((groups, asked));
        // Groups with the same time are asked in the order of their addresses.
        due.sort_unstable();
        for group in due {
            if let Some(packet) = self.query(at, group, self.times.last_member) {
                at.push(1, packet);
            }
        }
    }
}

impl Element for Igmp {
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        at.timer_after(GENERAL, 0);
        true
    }
    fn memory(&self) -> usize {
        // Trees have about as much again for their nodes.
        2 * self.groups.borrow().len() * size_of::<(Ipv4Addr, Membership)>()
            + 2 * self.asked.borrow().len() * size_of::<(u64, Ipv4Addr)>()
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        if input == 0 {
            let taken = self.take(at, &packet).is_some();
            if !taken {
                count(&self.bad);
            }
            let reason = if taken { DropReason::LocalDelivery } else { DropReason::Malformed };
            at.drop_packet(packet, reason);
            return;
        }
        let group = Ip::of(&packet).map(Ip::destination);
        match group.filter(|group| self.has_members(*group, at.steady())) {
            Some(_) => at.push(0, packet),
            None => at.drop_packet(packet, DropReason::NoRoute),
        }
    }
    fn run_timer(&self, at: At<'_>, timer: usize) {
        if timer == GENERAL { self.general_query(at) } else { self.specific_queries(at) }
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("groups", |this: &Self, at| {
            let now = at.steady();
            let mut text = String::new();
            for (group, membership) in &*this.groups.borrow() {
                if let Some(left) = membership.ends.checked_sub(now).filter(|left| *left > 0) {
                    let _ = writeln!(text, "{group}\t{}", left.div_ceil(SECOND));
                }
            }
            text
        });
        handlers.read("sweeps", |this: &Self, _| this.sweeps.get());
        handlers.read("querier", |this: &Self, at| this.asks(at.steady()));
        handlers.read("queries", |this: &Self, _| this.queries.get());
        handlers.read("refused", |this: &Self, _| this.refused.get());
        handlers.read("bad", |this: &Self, _| this.bad.get());
    }
}

#[cfg(test)]
mod tests {
    use netbricks_core::packet::checksum;

    use crate::testing::run;

    /// Elements that send a message of a kind about each of some groups.
    fn messages(kind: u8, groups: std::ops::Range<u8>) -> String {
        let one = |group: u8| {
            let mut message = [kind, 0, 0, 0, 239, 1, 1, group];
            let sum = checksum::internet(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
            let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(
                "InfiniteSource(DATA \\<4500001c 00000000 01020000 0a000001 ef010101 {hex}>, LIMIT 1) -> m; "
            )
        };
        groups.map(one).collect()
    }

    const ROUTER: &str = "m :: MarkIPHeader -> x :: IGMP(10.0.0.9, CAPACITY 100) -> Discard; x[1] -> Discard; \
                          Idle -> [1]x; Script(wait 100s, stop); ";

    #[test]
    fn a_full_table_is_swept_once_a_second_at_most() {
        let run = run(&format!("{ROUTER} {}", messages(super::kind::REPORT_2, 0..250)));
        assert_eq!(run.errors, Vec::<String>::new());
        assert_eq!([run.read("x.sweeps"), run.read("x.refused")], ["1", "150"]);
    }

    #[test]
    fn each_group_that_a_host_leaves_is_asked_as_often_as_robustness_says() {
        let (joins, leaves) = (messages(super::kind::REPORT_2, 0..40), messages(super::kind::LEAVE, 0..40));
        let run = run(&format!(
            "{ROUTER} {joins} {}",
            leaves.replace("-> m;", "-> DelayShaper(5) -> Unqueue -> m;")
        ));
        assert_eq!(run.errors, Vec::<String>::new());
        // Two queries for each, and the two general ones of the start.
        assert_eq!(run.read("x.queries"), "82");
        assert_eq!(run.read("x.groups"), "");
    }
}
