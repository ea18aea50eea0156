//! `RadixIPsecLookup`: a table of routes, some of which lead into tunnels.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::association::{self, Association, Associations, Keys};
use crate::arguments::{Argument, Arguments};
use crate::element::{Class, Element};
use crate::elements::classify::lookup::route::{Hop, Route};
use crate::elements::classify::lookup::table::{Order, Refusal, Table};
use crate::handler::{Answer, Handlers};
use crate::language::text;
use crate::packet::{Annotated, place};
use crate::router::{At, Setup};
use crate::value::integer;

pub(super) const CLASSES: &[Class] =
    &[Class::new("RadixIPsecLookup", radix_ipsec_lookup).ports("1/-").processing("h/h").creates_nothing()];

/// The output of packets to this router, which may be ESP.
const HERE: usize = 0;
/// The output of packets that go into tunnels.
const TUNNEL: usize = 1;
/// The output of packets to this router that are not ESP.
const HOST: usize = 2;
/// Protocol number of ESP.
const ESP: u8 = 50;
/// The most complaints of missing routes.
const COMPLAINTS: u32 = 5;
/// The most different places that routes lead to.
const TARGETS: usize = 1 << 20;

/// Where routes lead: an output, and the association of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Target {
    port: i32,
    /// Its security parameters index, 0 where there is no tunnel.
    spi: u32,
}

/// Routes and associations. The output of a route in `routes` is the place of its target.
struct Routes {
    routes: Table,
    targets: Vec<Target>,
    places: HashMap<Target, i32>,
    /// By security parameters index: the number in packets' annotations.
    associations: HashMap<u32, (u32, Rc<Association>)>,
}

/// `RadixIPsecLookup(ADDRESS/MASK [GATEWAY] OUTPUT [SPI ENCRYPT_KEY AUTH_KEY REPLAY OOSIZE], ...)`: routes, some of
/// them into IPsec tunnels.
///
/// Packets on output 1 go into a tunnel, whose association they are given. ESP packets on output 0 are given the
/// association of their SPI; other packets there go to output 2 instead. `REPLAY` is the first sequence number, and
/// `OOSIZE` the size of the window of those that may come late.
struct Lookup {
    routes: RefCell<Routes>,
    associations: Rc<Associations>,
    complaints: Cell<u32>,
}

/// A route as it was written.
struct Written {
    route: Route,
    tunnel: Option<(u32, Keys)>,
}

/// A change of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Add,
    Set,
    Remove,
}

/// A way to take a change back: the route, and where it led.
enum Undo {
    Remove(Route),
    Set(Route),
}

fn tunnel(words: &[String], at: At<'_>) -> Option<(u32, Keys)> {
    let [spi, encryption, authentication, first, window] = words else { return None };
    let key = |text: &String| Vec::<u8>::parse(text, at).ok();
    let spi = u32::parse(spi, at).ok().filter(|spi| *spi != 0)?;
    let (Ok(encryption), authentication) = (key(encryption)?.try_into(), key(authentication)?) else {
        at.chatter("key has bad length");
        return None;
    };
    if !matches!(authentication.len(), 16 | 20) {
        at.chatter("key has bad length");
        return None;
    }
    let first = u32::parse(first, at).ok()?.max(1);
    let window = u8::parse(window, at).ok()?.into();
    Some((spi, Keys { encryption, authentication, first, window }))
}

/// Reads a route. One that is to be removed needs no output.
fn read(text: &str, to_remove: bool, at: At<'_>) -> Option<Written> {
    let words = text::split_words(text);
    let is_port = |word: &String| integer(word).is_some();
    // The output is the first number; what follows it is a tunnel.
    let plain = words.iter().skip(1).position(is_port).map_or(words.len(), |place| place + 2);
    let (plain, rest) = words.split_at_checked(plain)?;
    let route = Route::read(&plain.join(" "), to_remove, at)?;
    let tunnel = if rest.is_empty() { None } else { Some(tunnel(rest, at)?) };
    Some(Written { route, tunnel })
}

fn radix_ipsec_lookup(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let lookup = Lookup {
        routes: RefCell::new(Routes {
            routes: Table::new(Order::LastFree),
            targets: Vec::new(),
            places: HashMap::new(),
            associations: HashMap::new(),
        }),
        associations: Associations::of(setup.at),
        complaints: Cell::default(),
    };
    let mut good = true;
    for (number, argument) in arguments.rest().iter().enumerate() {
        let written = read(argument, false, setup.at);
        let written = written.filter(|written| has_port(&written.route, setup.outputs()));
        match written {
            // Of several routes of one prefix the first counts.
            Some(written) => drop(lookup.enter(&written, false)),
            None => {
                let number = number + 1;
                setup.errors.error(&format!("argument {number} should be 'ADDR/MASK [GATEWAY] OUTPUT'"));
                good = false;
            }
        }
    }
    good.then(|| Rc::new(lookup) as Rc<dyn Element>)
}

fn has_port(route: &Route, outputs: usize) -> bool {
    usize::try_from(route.hop.port).is_ok_and(|port| port < outputs)
}

impl Routes {
    /// The route with the place of its target as its output.
    fn inner(&mut self, route: Route, spi: u32) -> Option<Route> {
        let target = Target { port: route.hop.port, spi };
        let place = match self.places.get(&target) {
            Some(place) => *place,
            None => {
                let place =
                    i32::try_from(self.targets.len()).ok().filter(|_| self.targets.len() < TARGETS)?;
                self.targets.push(target);
                self.places.insert(target, place);
                place
            }
        };
        Some(Route { hop: Hop { port: place, ..route.hop }, ..route })
    }
    fn target(&self, route: &Route) -> Option<Target> {
        self.target_of(route.hop)
    }
    fn target_of(&self, hop: Hop) -> Option<Target> {
        usize::try_from(hop.port).ok().and_then(|place| self.targets.get(place)).copied()
    }
    /// The route with its own output.
    fn outer(&self, route: &Route) -> Route {
        let port = self.target(route).map_or(-1, |target| target.port);
        Route { hop: Hop { port, ..route.hop }, ..*route }
    }
    fn show(&self) -> String {
        let mut lines = String::new();
        for route in self.routes.routes() {
            let line = self.outer(&route).line();
            match self.target(&route) {
                Some(Target { spi, .. }) if spi != 0 => {
                    let line = line.trim_end();
                    lines.push_str(&format!("{line}  |TUNNELED CONNECTION| \n|SPI|\n |{spi}|\n"));
                }
                _ => lines.push_str(&line),
            }
        }
        lines
    }
}

impl Lookup {
    /// Enters a route and the association of its tunnel; the route before, in its inner form.
    fn enter(&self, written: &Written, replace: bool) -> Result<(Route, Option<Route>), Refusal> {
        let mut routes = self.routes.borrow_mut();
        let spi = written.tunnel.as_ref().map_or(0, |(spi, _)| *spi);
        let route = routes.inner(written.route, spi).ok_or(Refusal::Full)?;
        let before = routes.routes.add(route, replace)?;
        if let Some((spi, keys)) = &written.tunnel {
            let known = routes.associations.get(spi);
            let same = known.is_some_and(|(_, known)| known.has(keys));
            if !same && let Some(made) = Association::new(*spi, keys.clone(), self.associations.secret()) {
                let made = Rc::new(made);
                let number = self.associations.add(Rc::clone(&made));
                if let Some((old, _)) = routes.associations.insert(*spi, (number, made)) {
                    self.associations.remove(old);
                }
            }
        }
        Ok((route, before))
    }

    /// Changes the table; what takes the change back.
    fn change(&self, at: At<'_>, command: Command, text: &str) -> Result<Undo, String> {
        let to_remove = command == Command::Remove;
        let written = read(text, to_remove, at);
        let names_none = |route: &Route| to_remove && route.hop.port == -1;
        let fits = |route: &Route| names_none(route) || has_port(route, at.outputs());
        let Some(written) = written.filter(|written| fits(&written.route)) else {
            let rest = if to_remove { " OUTPUT]" } else { "] OUTPUT" };
            return Err(format!("expected 'ADDR/MASK [GATEWAY{rest}'"));
        };
        let changed = if to_remove {
            let mut routes = self.routes.borrow_mut();
            let same =
                |route: &Route| (route.address, route.mask) == (written.route.address, written.route.mask);
            let current = routes.routes.routes().into_iter().find(same);
            let current = current.filter(|current| written.route.means(&routes.outer(current)));
            let current = current.ok_or(Refusal::NotFound);
            current.and_then(|current| routes.routes.remove(&current)).map(Undo::Set)
        } else {
            let entered = self.enter(&written, command == Command::Set);
            entered.map(|(route, before)| before.map_or(Undo::Remove(route), Undo::Set))
        };
        changed.map_err(|refusal| match refusal {
            Refusal::Exists(before) => {
                format!("conflict with existing route '{}'", self.routes.borrow().outer(&before))
            }
            Refusal::NotFound => format!("route '{}' not found", written.route),
            Refusal::Full => format!("no memory to store route '{}'", written.route),
        })
    }

    /// Makes changes, one a line: all, or none where one fails.
    fn control(&self, at: At<'_>, value: &str) -> Answer {
        let mut done = Vec::new();
        for line in text::uncomment(value).lines() {
            let (word, rest) = text::next_word(line);
            let command = match &word[..] {
                "" => continue,
                "add" => Ok(Command::Add),
                "set" => Ok(Command::Set),
                "remove" => Ok(Command::Remove),
                _ => Err(format!("bad command '{word}'")),
            };
            match command.and_then(|command| self.change(at, command, rest)) {
                Ok(undo) => done.push(undo),
                Err(problem) => {
                    self.take_back(done);
                    self.forget_unused();
                    return Err(problem);
                }
            }
        }
        self.forget_unused();
        Ok(String::new())
    }

    fn take_back(&self, done: Vec<Undo>) {
        let mut routes = self.routes.borrow_mut();
        for undo in done.into_iter().rev() {
            // It was so before, so that it fits.
            let _ = match undo {
                Undo::Remove(route) => routes.routes.remove(&route).map(Some),
                Undo::Set(route) => routes.routes.add(route, true),
            };
        }
    }

    /// Forgets associations that no route leads to any more.
    fn forget_unused(&self) {
        let mut routes = self.routes.borrow_mut();
        let routes = &mut *routes;
        let used = routes.routes.routes();
        let used: std::collections::HashSet<u32> = used
            .iter()
            .filter_map(|route| usize::try_from(route.hop.port).ok())
            .filter_map(|place| routes.targets.get(place))
            .map(|target| target.spi)
            .collect();
        routes.associations.retain(|spi, (number, _)| {
            let keep = used.contains(spi);
            if !keep {
                self.associations.remove(*number);
            }
            keep
        });
    }

    fn find(&self, address: Ipv4Addr) -> Option<(Hop, Target)> {
        let routes = self.routes.borrow();
        let hop = routes.routes.find(address.into())?;
        Some((hop, routes.target_of(hop)?))
    }

    fn number(&self, spi: u32) -> Option<u32> {
        self.routes.borrow().associations.get(&spi).map(|(number, _)| *number)
    }

    fn ask(&self, at: At<'_>, value: &str) -> Answer {
        let address = Ipv4Addr::parse(text::uncomment(value).trim(), at);
        let address = address.map_err(|_| format!("expected IP address, not '{value}'"))?;
        Ok(match self.find(address) {
            None => "-1".into(),
            Some((Hop { gateway: 0, .. }, target)) => target.port.to_string(),
            Some((hop, target)) => format!("{} {}", target.port, Ipv4Addr::from(hop.gateway)),
        })
    }
}

/// The protocol of a packet's IPv4 header, and the SPI behind it.
fn protocol_and_spi(packet: &Packet) -> Option<(u8, Option<u32>)> {
    let bytes = packet.data();
    let header = bytes.first().filter(|first| **first >> 4 == 4).map(|first| usize::from(first & 15) * 4)?;
    let spi = bytes.get(header..).and_then(<[u8]>::first_chunk::<4>).map(|spi| u32::from_be_bytes(*spi));
    Some((*bytes.get(9)?, spi))
}

impl Element for Lookup {
    fn memory(&self) -> usize {
        let routes = self.routes.borrow();
        routes.routes.memory()
            + routes.targets.capacity() * size_of::<Target>()
            + routes.places.capacity() * (size_of::<(Target, i32)>() + 1)
            // Both tables of associations know each.
            + routes.associations.capacity() * (2 * size_of::<(u32, (u32, Rc<Association>))>() + 2)
            + routes.associations.len() * (size_of::<Association>() + 20)
    }
    fn push(&self, at: At<'_>, _: usize, mut packet: Packet) {
        let destination = packet.dst_ip();
        let Some((hop, target)) = self.find(destination) else {
            if self.complaints.get() < COMPLAINTS {
                self.complaints.set(self.complaints.get() + 1);
                at.chatter(&format!("IPsecRouteTable: no route for {destination}"));
            }
            at.drop_packet(packet, DropReason::NoRoute);
            return;
        };
        let mut port = usize::try_from(target.port).unwrap_or(usize::MAX);
        if port == TUNNEL {
            let Some(number) = self.number(target.spi) else {
                at.complain(|| format!("No Ipsec tunnel for {destination}. Wrong tunnel setup"));
                at.drop_packet(packet, DropReason::NoRoute);
                return;
            };
            packet.set_anno_u32(place::IPSEC_SPI, target.spi);
            association::refer(&mut packet, number);
        } else if port == HERE {
            match protocol_and_spi(&packet) {
                Some((ESP, spi)) => {
                    let Some(number) = spi.and_then(|spi| self.number(spi)) else {
                        at.complain(|| format!("Invalid SPI {}, Dropping packet", spi.unwrap_or(0)));
                        at.drop_packet(packet, DropReason::Denied);
                        return;
                    };
                    association::refer(&mut packet, number);
                }
                _ => port = HOST,
            }
        }
        if hop.gateway != 0 {
            packet.set_dst_ip(hop.gateway.into());
        }
        at.push_or_drop(port, packet, DropReason::LocalDelivery);
    }
    fn handlers(&self, handlers: &mut Handlers) {
        for (name, command) in [("add", Command::Add), ("set", Command::Set), ("remove", Command::Remove)] {
            handlers.write(name, move |this: &Self, at, value| {
                this.change(at, command, value)?;
                this.forget_unused();
                Ok(String::new())
            });
        }
        handlers.write("ctrl", |this: &Self, at, value| this.control(at, value));
        handlers.read("table", |this: &Self, _| this.routes.borrow().show());
        handlers.ask("lookup", |this: &Self, at, address| this.ask(at, address));
    }
}
