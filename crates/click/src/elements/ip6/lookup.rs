//! `LookupIP6Route`: a table of IPv6 routes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::net::Ipv6Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{Prefix6, annotate, annotation, show};
use crate::arguments::{Argument, Arguments, Parsed, Problem};
use crate::element::{Class, Element};
use crate::handler::{Answer, Handlers};
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::integer;

pub(super) const CLASSES: &[Class] =
    &[Class::new("LookupIP6Route", lookup_ip6_route).ports("1/-").processing("h/h")];

/// A route of packets whose destination lies in a prefix. The gateway is `::` where there is none.
#[derive(Clone, Copy)]
struct Route {
    prefix: Prefix6,
    gateway: Ipv6Addr,
    port: usize,
}

/// Routes, in the order of their places; free places are taken again first.
#[derive(Default)]
struct Table {
    routes: Vec<Option<Route>>,
    free: BTreeSet<usize>,
    places: HashMap<Prefix6, usize>,
    /// How many routes have a prefix of each length.
    lengths: BTreeMap<u32, usize>,
}

impl Table {
    fn remove(&mut self, prefix: Prefix6) {
        let Some(place) = self.places.remove(&prefix) else { return };
        self.routes[place] = None;
        self.free.insert(place);
        if let Some(count) = self.lengths.get_mut(&prefix.length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.length);
            }
        }
    }
    fn add(&mut self, route: Route) {
        self.remove(route.prefix);
        let place = self.free.pop_first().unwrap_or_else(|| {
            self.routes.push(None);
            self.routes.len() - 1
        });
        self.routes[place] = Some(route);
        self.places.insert(route.prefix, place);
        *self.lengths.entry(route.prefix.length).or_default() += 1;
    }
    fn find(&self, address: Ipv6Addr) -> Option<Route> {
        let mut lengths = self.lengths.keys().rev();
        let place = lengths.find_map(|length| self.places.get(&Prefix6::new(address, *length)))?;
        self.routes[*place]
    }
    fn memory(&self) -> usize {
        let free = 2 * self.free.len() * size_of::<usize>();
        self.routes.capacity() * size_of::<Option<Route>>()
            + self.places.capacity() * (size_of::<(Prefix6, usize)>() + 1)
            + free
    }
    fn show(&self) -> String {
        let mut lines = String::new();
        if !self.routes.is_empty() {
            lines.push_str("# Active routes\n");
        }
        for Route { prefix, gateway, port } in self.routes.iter().flatten() {
            let (address, gateway) = (show(prefix.address), show(*gateway));
            let _ = writeln!(lines, "{address}/{}\t{gateway}\t{port}", prefix.length);
        }
        lines
    }
}

/// `LookupIP6Route(ADDRESS/LENGTH [GATEWAY] OUTPUT, ...)`: the longest prefix of the destination annotation decides.
///
/// The gateway becomes the destination annotation.
struct LookupIp6Route {
    table: RefCell<Table>,
}

fn read(argument: &str, at: At<'_>) -> Option<Route> {
    let words = text::split_words(argument);
    let (prefix, gateway, port) = match &words[..] {
        [prefix, port] => (prefix, None, port),
        [prefix, gateway, port] => (prefix, Some(gateway), port),
        _ => return None,
    };
    let gateway = gateway.map_or(Ok(Ipv6Addr::UNSPECIFIED), |gateway| Ipv6Addr::parse(gateway, at));
    Some(Route {
        prefix: Prefix6::parse(prefix, at).ok()?,
        gateway: gateway.ok()?,
        port: usize::try_from(integer(port)?).ok()?,
    })
}

fn lookup_ip6_route(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let mut table = Table::default();
    let mut good = true;
    let mut needed = 0;
    for (number, argument) in arguments.rest().iter().enumerate() {
        match read(argument, setup.at) {
            Some(route) => {
                needed = needed.max(route.port.saturating_add(1));
                table.add(route);
            }
            None => {
                let number = number + 1;
                setup.errors.error(&format!("argument {number} should be DADDR/MASK [GW] OUTPUT"));
                good = false;
            }
        }
    }
    if !good {
        return None;
    }
    if needed == 0 {
        setup.errors.warning("no routes");
    }
    if needed > setup.outputs() {
        setup.errors.error(&format!("need {needed} or more output ports"));
        return None;
    }
    Some(Rc::new(LookupIp6Route { table: RefCell::new(table) }))
}

/// The value of an argument of a handler, with its problem named.
fn named<T>(name: &str, value: Parsed<T>) -> Result<T, String> {
    value.map_err(|problem| match problem {
        Problem::Syntax => format!("{name}: parse error"),
        Problem::Said(said) => format!("{name}: {said}"),
    })
}

impl LookupIp6Route {
    fn add(&self, at: At<'_>, value: &str) -> Answer {
        let words = text::split_words(value);
        let (prefix, gateway, port) = match &words[..] {
            [prefix, port] => (prefix, None, port),
            [prefix, gateway, port] => (prefix, Some(gateway), port),
            [_, _, _, _, ..] => return Err("too many arguments".into()),
            _ => return Err("PORT: required argument missing".into()),
        };
        let prefix = named("PREFIX", Prefix6::parse(prefix, at))?;
        let gateway = gateway.map_or(Ok(Ipv6Addr::UNSPECIFIED), |gateway| Ipv6Addr::parse(gateway, at));
        let gateway = named("GATEWAY", gateway)?;
        let port: i32 = named("PORT", Argument::parse(port, at))?;
        let port = usize::try_from(port).ok().filter(|port| *port < at.outputs());
        let port = port.ok_or("output port out of range")?;
        self.table.borrow_mut().add(Route { prefix, gateway, port });
        Ok(String::new())
    }
    fn remove(&self, at: At<'_>, value: &str) -> Answer {
        let prefix = match &text::split_words(value)[..] {
            [prefix] => named("PREFIX", Prefix6::parse(prefix, at))?,
            [] => return Err("PREFIX: required argument missing".into()),
            _ => return Err("too many arguments".into()),
        };
        self.table.borrow_mut().remove(prefix);
        Ok(String::new())
    }
    fn control(&self, at: At<'_>, value: &str) -> Answer {
        let (command, rest) = text::next_word(value);
        match &command[..] {
            "add" => self.add(at, rest),
            "remove" => self.remove(at, rest),
            _ => Err("bad command, should be `add' or `remove'".into()),
        }
    }
}

impl Element for LookupIp6Route {
    fn memory(&self) -> usize {
        self.table.borrow().memory()
    }
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        let found = self.table.borrow().find(annotation(&packet));
        let Some(route) = found else {
            at.drop_packet(packet, DropReason::NoRoute);
            return;
        };
        if !route.gateway.is_unspecified() {
            annotate(&mut packet, route.gateway);
        }
        at.push_or_drop(route.port, packet, DropReason::NoRoute);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.write("add", |this: &Self, at, value| this.add(at, value));
        handlers.write("remove", |this: &Self, at, value| this.remove(at, value));
        handlers.write("ctrl", |this: &Self, at, value| this.control(at, value));
        handlers.read("table", |this: &Self, _| this.table.borrow().show());
    }
}
