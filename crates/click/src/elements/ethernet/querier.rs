//! `ARPQuerier`: puts Ethernet headers before IPv4 packets, with addresses that it asks for by ARP (RFC 826).

use std::cell::{Cell, OnceCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::{Batch, Packet};

use super::arp_table::{ArpTable, Limits, Queued, Settings, Table, ticks};
use super::header::group_address;
use super::{ETHERTYPE_IP, arp, data, ethernet_header, made, put_before, put_on};
use crate::arguments::Arguments;
use crate::element::{Class, Element, as_type};
use crate::handler::Handlers;
use crate::language::errors::Errors;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::{ElementNumber, Ether, Prefix, Span};

pub(super) const CLASSES: &[Class] =
    &[Class::new("ARPQuerier", configure).live().ports("2/1-2").processing("h/h").flow("xy/x")];

/// `ARPQuerier(IP, ETH [, TABLE, CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, POLL_TIMEOUT, BROADCAST,
/// BROADCAST_POLL])`: puts Ethernet headers before IP packets.
///
/// Input 0 takes IP packets with destination annotations, input 1 takes ARP replies. Packets wait while their
/// addresses are asked for; questions leave by the last output.
struct ArpQuerier {
    address: Cell<Ether>,
    ip: Cell<Ipv4Addr>,
    broadcast: Cell<Ipv4Addr>,
    /// Ticks after which a known address is asked for again; 0: never.
    poll_timeout: Cell<u64>,
    broadcast_poll: Cell<bool>,
    settings: Settings,
    /// The element whose table it uses, instead of its own.
    shared: Option<usize>,
    table: OnceCell<Rc<Table>>,
    queries: Cell<u32>,
    drops: Cell<u32>,
    responses: Cell<u32>,
    warned: Cell<bool>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let settings = Settings::read(arguments);
    let broadcast: Option<Ipv4Addr> = arguments.keyword("BROADCAST");
    let shared: Option<ElementNumber> = arguments.keyword("TABLE");
    let poll_timeout: Option<Span> = arguments.keyword("POLL_TIMEOUT");
    let broadcast_poll = arguments.keyword("BROADCAST_POLL").unwrap_or(false);
    let shared = shared.map(|element| element.0);
    if let Some(element) = shared
        && (element == setup.at.id || !matches!(setup.at.router.class(element), "ARPTable" | "ARPQuerier"))
    {
        arguments.error_of("TABLE", "element type mismatch, expected ARPTable");
    }
    if !arguments.is_good() {
        return None;
    }
    // One argument names both addresses.
    let mut own = arguments.rest();
    if let [name] = &own[..] {
        own.push(name.clone());
    }
    arguments.complete()?;
    let mut own = Arguments::of(own, setup.at, setup.errors);
    let prefix = own.required_with("IP", |text, at| Prefix::read(text, at, true));
    let address: Option<Ether> = own.required("ETH");
    own.complete()?;
    if !settings.check(setup.errors) {
        return None;
    }
    let Prefix { address: ip, mask } = prefix?;
    let directed = Ipv4Addr::from(u32::from(ip) | !u32::from(mask));
    let directed = if directed == ip { Ipv4Addr::BROADCAST } else { directed };
    made(ArpQuerier {
        address: Cell::new(address?),
        ip: Cell::new(ip),
        broadcast: Cell::new(broadcast.unwrap_or(directed)),
        poll_timeout: Cell::new(poll_timeout.map_or(60_000, ticks)),
        broadcast_poll: Cell::new(broadcast_poll),
        settings,
        shared,
        table: OnceCell::new(),
        queries: Cell::default(),
        drops: Cell::default(),
        responses: Cell::default(),
        warned: Cell::default(),
    })
}

fn count(cell: &Cell<u32>) {
    cell.set(cell.get().wrapping_add(1));
}

/// The annotations that a question takes from the packet that caused it: time and VLAN.
fn annotations(packet: &Packet) -> (u64, u16) {
    (packet.timestamp(), packet.anno_u16(place::VLAN_TCI))
}

impl ArpQuerier {
    fn table(&self) -> &Rc<Table> {
        self.table.get_or_init(|| Table::new(self.settings.apply(Limits::default())))
    }

    fn drop_packet(&self, at: At<'_>, packet: Packet, reason: DropReason) {
        count(&self.drops);
        at.drop_packet(packet, reason);
    }

    /// Asks for an address, of all or of the host that had it.
    ///
    /// Time and VLAN annotation are those of the packet that needs it.
    fn ask(&self, at: At<'_>, wanted: Ipv4Addr, known: Option<Ether>, (time, vlan): (u64, u16)) {
        let destination = known.filter(|_| !self.broadcast_poll.get()).unwrap_or(Ether::BROADCAST);
        let Some(mut query) = arp::request(at, destination, self.address.get(), self.ip.get(), wanted) else {
            return;
        };
        query.set_timestamp(time);
        query.set_anno_u16(place::VLAN_TCI, vlan);
        count(&self.queries);
        at.push(at.outputs() - 1, query);
    }

    /// Sends a packet with room for its Ethernet header on, or has it wait.
    fn send(&self, at: At<'_>, mut packet: Packet) {
        let wanted = packet.dst_ip();
        let destination = match self.table().lookup(at, wanted, self.poll_timeout.get()) {
            Some((address, asks)) => {
                if asks {
                    self.ask(at, wanted, Some(address), annotations(&packet));
                }
                address
            }
            None if wanted == Ipv4Addr::BROADCAST || wanted == self.broadcast.get() => Ether::BROADCAST,
            None if wanted.is_multicast() => group_address(wanted),
            None => {
                self.hold(at, wanted, packet);
                return;
            }
        };
        if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
            addresses[..6].copy_from_slice(&destination.0);
            addresses[6..].copy_from_slice(&self.address.get().0);
        }
        at.push(0, packet);
    }

    fn hold(&self, at: At<'_>, wanted: Ipv4Addr, packet: Packet) {
        if wanted.is_unspecified() {
            if !self.warned.replace(true) {
                let name = at.declaration();
                at.chatter(&format!("{name}: would query for 0.0.0.0; missing dest IP addr annotation?"));
            }
            self.drop_packet(at, packet, DropReason::NoRoute);
            return;
        }
        let annotations = annotations(&packet);
        match self.table().wait(at, wanted, packet) {
            Queued::Waits(false) => (),
            Queued::Waits(true) => self.ask(at, wanted, None, annotations),
            Queued::Refused(packet) => at.drop_packet(packet, DropReason::QueueFull),
        }
    }

    fn take_ip(&self, at: At<'_>, packet: Packet) {
        if self.ip.get().is_unspecified() {
            self.drop_packet(at, packet, DropReason::Denied);
            return;
        }
        let header = ethernet_header(Ether::default(), Ether::default(), ETHERTYPE_IP);
        match put_before(at, packet, &header) {
            Some(packet) => self.send(at, packet),
            None => count(&self.drops),
        }
    }

    /// Puts headers before packets in their places as long as all addresses are known; how many packets those are.
    fn take_known(&self, at: At<'_>, batch: &mut Batch) -> usize {
        let mut header = ethernet_header(Ether::default(), self.address.get(), ETHERTYPE_IP);
        self.table().known(at, self.poll_timeout.get(), |known| {
            let mut done = 0;
            // Packets in a row mostly go to the same neighbour.
            let mut last = None;
            batch.each_packet(|slot, packet| {
                if done < slot {
                    return;
                }
                let wanted = packet.dst_ip();
                if last != Some(wanted) {
                    let Some(address) = known(wanted) else { return };
                    last = Some(wanted);
                    header[..6].copy_from_slice(&address.0);
                }
                if put_on(at, packet, &header) {
                    done = slot + 1;
                }
            });
            done
        })
    }

    fn take_reply(&self, at: At<'_>, packet: Packet) {
        if packet.len() >= arp::LENGTH {
            count(&self.responses);
        }
        let reply =
            arp::read(packet.data()).filter(|message| message.operation == 2 && !message.sender.is_group());
        let known = reply.is_some();
        if let Some(reply) = reply {
            for waiting in self.table().answer(at, reply.sender_ip, reply.sender) {
                self.send(at, waiting);
            }
        }
        at.drop_packet(packet, if known { DropReason::LocalDelivery } else { DropReason::Unmatched });
    }

    fn adopt(&self, at: At<'_>, fresh: &Self) {
        let moved = self.ip.get() != fresh.ip.get() || self.address.get() != fresh.address.get();
        if self.shared.is_none() {
            if moved {
                self.table().clear(at);
            }
            self.table().set_limits(fresh.settings.apply(self.table().limits()));
        }
        self.ip.set(fresh.ip.get());
        self.address.set(fresh.address.get());
        self.broadcast.set(fresh.broadcast.get());
        self.broadcast_poll.set(fresh.broadcast_poll.get());
        self.poll_timeout.set(fresh.poll_timeout.get());
    }
}

impl Element for ArpQuerier {
    fn memory(&self) -> usize {
        if self.shared.is_none() { self.table.get().map_or(0, |table| table.memory()) } else { 0 }
    }
    fn initialize(&self, at: At<'_>, _: &Errors) -> bool {
        let Some(element) = self.shared else {
            self.table().set_timer(at, false);
            return true;
        };
        let table = match at.router.element_as::<ArpTable>(element) {
            Some(shared) => Some(Rc::clone(&shared.table)),
            None => at.router.element_as::<Self>(element).map(|other| Rc::clone(other.table())),
        };
        table.is_some_and(|table| self.table.set(table).is_ok())
    }
    fn push(&self, at: At<'_>, input: usize, packet: Packet) {
        if input == 0 { self.take_ip(at, packet) } else { self.take_reply(at, packet) }
    }
    fn push_batch(&self, at: At<'_>, input: usize, batch: &mut Batch) {
        let ready =
            if input == 0 && !self.ip.get().is_unspecified() { self.take_known(at, batch) } else { 0 };
        if ready == batch.len() {
            at.push_batch(0, batch);
            return;
        }
        for (slot, packet) in batch.drain().enumerate() {
            if slot < ready { at.push(0, packet) } else { self.push(at, input, packet) }
        }
    }
    fn run_timer(&self, at: At<'_>, _: usize) {
        self.table().expire(at);
        self.table().set_timer(at, true);
    }
    fn reconfigure(&self, at: At<'_>, fresh: &dyn Element) -> bool {
        let Some(fresh) = as_type::<Self>(fresh) else { return false };
        self.adopt(at, fresh);
        true
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.read("table", |this: &Self, at| this.table().describe(at));
        handlers.read("stats", |this: &Self, _| {
            let killed = this.drops.get().wrapping_add(this.table().drops());
            format!("{killed} packets killed\n{} ARP queries sent\n", this.queries.get())
        });
        handlers.read("count", |this: &Self, _| this.table().count());
        handlers.read("length", |this: &Self, _| this.table().length());
        handlers.read("queries", |this: &Self, _| this.queries.get());
        handlers.read("responses", |this: &Self, _| this.responses.get());
        handlers.read("drops", |this: &Self, _| this.drops.get());
        let show = |address: Ipv4Addr| address.to_string();
        data(handlers, "broadcast", "IP address", |this: &Self| &this.broadcast, show);
        data(handlers, "ipaddr", "IP address", |this: &Self| &this.ip, show);
        handlers.write("insert", |this: &Self, at, value| this.table().insert_text(at, value));
        handlers.write("delete", |this: &Self, at, value| this.table().delete_text(at, value));
        handlers.write("clear", |this: &Self, at, _| {
            for counter in [&this.queries, &this.drops, &this.responses] {
                counter.set(0);
            }
            this.table().clear(at);
            Ok(String::new())
        });
    }
    fn take_state(&self, _: At<'_>, before: &dyn Element) {
        let Some(before) = as_type::<Self>(before) else { return };
        let settings = |querier: &Self| (querier.ip.get(), querier.address.get(), querier.broadcast.get());
        if settings(self) != settings(before) {
            return;
        }
        if self.shared.is_none() && before.shared.is_none() {
            self.table().take(before.table());
        }
        self.queries.set(before.queries.get());
        self.drops.set(before.drops.get());
        self.responses.set(before.responses.get());
    }
    fn cleanup(&self, at: At<'_>) {
        if self.shared.is_none() {
            self.table().clear(at);
        }
    }
}
