//! Handlers: mappings and sessions are listed, static mappings and outside addresses come and go.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use netbricks_core::{Handler, State, Worker};

use super::config::{NatConfig, is_in};
use super::fragments::Fragments;
use super::pcp_mappings::{PcpMapping, Target};
use super::pcp_message::PeerFilter;
use super::ports::Status;
use super::purge::Chosen;
use super::spec::{Endpoint, PoolRange, Prefix, Static, Transport};
use super::state::State as Translations;

/// Static mappings that handlers may add to those of the configuration.
pub(super) const MOST_STATIC: usize = 4_096;
/// Lines that a list answers at most.
const MOST_LINES: usize = 10_000;

/// The items of a list that are wanted: of a transport, or with an address in a prefix.
#[derive(Default)]
pub(super) struct Filter {
    transport: Option<Transport>,
    prefix: Option<Prefix>,
}

impl Filter {
    fn read(argument: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for word in argument.split_whitespace() {
            match word.parse() {
                Ok(transport) => filter.transport = Some(transport),
                Err(_) => filter.prefix = Some(word.parse()?),
            }
        }
        Ok(filter)
    }
    pub(super) fn admits(&self, transport: Transport, addresses: &[IpAddr]) -> bool {
        self.transport.is_none_or(|own| own == transport)
            && self.prefix.is_none_or(|prefix| addresses.iter().any(|address| prefix.holds(*address)))
    }
}

/// A line of each item, and how many there are beyond those that are shown.
///
/// Those are counted, and no text is made for them.
fn lines<T>(
    mut items: impl Iterator<Item = T>,
    write: impl Fn(&mut String, T) -> std::fmt::Result,
) -> String {
    let mut text = String::new();
    for item in items.by_ref().take(MOST_LINES) {
        // Writing to a string cannot fail.
        let _ = write(&mut text, item);
        text.push('\n');
    }
    let left = items.count();
    if left > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "and {left} more");
    }
    text
}

/// A line of the list of lifetimes by PCP.
struct PcpLine<'s> {
    transport: Transport,
    inside: Endpoint,
    external: Endpoint,
    remote: Option<Endpoint>,
    seconds: u64,
    filters: &'s [PeerFilter],
}

impl<'s> PcpLine<'s> {
    fn of(state: &Translations, asked: &'s PcpMapping) -> Option<Self> {
        let (mapping, remote) = match asked.target {
            Target::Mapping(mapping) => (mapping, None),
            Target::Session(session) => {
                let session = state.sessions.get(session)?;
                (session.mapping, Some(session.remote))
            }
        };
        let found = state.mappings.get(mapping)?;
        Some(Self {
            transport: found.transport,
            inside: found.inside,
            external: state.external(mapping)?,
            remote,
            seconds: asked.until.saturating_sub(state.now).div_ceil(1_000_000_000),
            filters: asked.filters(),
        })
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let (name, inside, external) = (self.transport.name(), self.inside, self.external);
        match self.remote {
            None => write!(text, "map {name} {inside} {external} - {}", self.seconds)?,
            Some(remote) => write!(text, "peer {name} {inside} {external} {remote} {}", self.seconds)?,
        }
        for PeerFilter { address, bits, port } in self.filters {
            write!(text, " {}/{bits}:{port}", Ipv4Addr::from_bits(*address))?;
        }
        Ok(())
    }
}

/// Declares the function's handlers.
pub(super) fn declare(
    config: &NatConfig,
    state: &State<Translations>,
    fragments: &State<Fragments>,
    worker: &Worker,
) {
    lists(state, worker);
    counters(state, fragments, worker);
    changes(config, state, worker);
}

fn lists(state: &State<Translations>, worker: &Worker) {
    let filter = "[tcp|udp|icmp] [PREFIX]";
    let shown = state.clone();
    let handler =
        Handler::read("mappings", "Mappings: transport, inside, outside, sessions.").argument(filter);
    worker.handler(handler, move |argument| {
        let (filter, state) = (Filter::read(argument)?, shown.borrow());
        let found = state.mappings.iter().filter_map(|(number, mapping)| {
            let external = state.external(number)?;
            let addresses = [mapping.inside.address, external.address];
            filter.admits(mapping.transport, &addresses).then_some((mapping, external))
        });
        Ok(lines(found, |text, (mapping, external)| {
            let kind = match (mapping.subscriber, mapping.pcp) {
                (None, _) => " static",
                (_, Some(_)) => " pcp",
                _ => "",
            };
            let (name, inside) = (mapping.transport.name(), mapping.inside);
            write!(text, "{name} {inside} {external} {}{kind}", mapping.sessions)
        }))
    });
    let shown = state.clone();
    let summary = "Sessions: transport, inside, outside, remote, state.";
    worker.handler(Handler::read("sessions", summary).argument(filter), move |argument| {
        let (filter, state) = (Filter::read(argument)?, shown.borrow());
        let found = state.sessions.iter().filter_map(|(_, session)| {
            let external = state.external(session.mapping)?;
            let addresses = [session.inside.address, external.address, session.remote.address];
            filter.admits(session.transport, &addresses).then_some((session, external))
        });
        Ok(lines(found, |text, (session, external)| {
            let (name, phase) = (session.transport.name(), session.phase.name());
            write!(text, "{name} {} {external} {} {phase}", session.inside, session.remote)
        }))
    });
    let shown = state.clone();
    let summary = "Subscribers: address, outside address, mappings of TCP, UDP and ICMP, sessions, blocks.";
    worker.handler(Handler::read("subscribers", summary).argument("[PREFIX]"), move |argument| {
        let (filter, state) = (Filter::read(argument)?, shown.borrow());
        let found = state.subscribers.iter().filter_map(|(_, subscriber)| {
            let outside = state.ports.address(subscriber.index)?;
            let is_wanted = filter.prefix.is_none_or(|prefix| prefix.holds(subscriber.address));
            is_wanted.then_some((subscriber, outside))
        });
        Ok(lines(found, |text, (subscriber, outside)| {
            let [tcp, udp, icmp] = subscriber.mappings;
            let (address, blocks) = (subscriber.address, subscriber.blocks_held);
            write!(text, "{address} {outside} {tcp} {udp} {icmp} {} {blocks}", subscriber.sessions)
        }))
    });
    let shown = state.clone();
    let summary = "Lifetimes by PCP: opcode, transport, inside, outside, remote, seconds left, filters.";
    worker.handler(Handler::read("pcp", summary).argument(filter), move |argument| {
        let (filter, state) = (Filter::read(argument)?, shown.borrow());
        let found = state.pcp.mappings.iter().filter_map(|(_, asked)| {
            let line = PcpLine::of(&state, asked)?;
            filter.admits(line.transport, &[line.inside.address, line.external.address]).then_some(line)
        });
        Ok(lines(found, |text, line| line.write(text)))
    });
    let shown = state.clone();
    let summary =
        "Events of blocks with numbers above the one given: number, time, event, subscriber, address, ports.";
    worker.handler(Handler::read("log", summary).argument("[AFTER]"), move |argument| {
        let after = match argument.trim() {
            "" => 0,
            text => text.parse().map_err(|_| format!("expected the number of an event, found `{text}`"))?,
        };
        Ok(shown.borrow().log.lines(after))
    });
}

fn counters(state: &State<Translations>, fragments: &State<Fragments>, worker: &Worker) {
    let (shown, fragments) = (state.clone(), fragments.clone());
    worker.handler(Handler::read("counters", "Counts, one a line: name, value."), move |_| {
        let counts = super::report::counts(&shown.borrow(), &fragments.borrow());
        Ok(lines(counts.into_iter(), |text, (name, value)| write!(text, "{name} {value}")))
    });
}

fn changes(config: &NatConfig, state: &State<Translations>, worker: &Worker) {
    let shown = state.clone();
    worker.handler(Handler::read("static", "Static mappings, as the key `static` has them."), move |_| {
        let state = shown.borrow();
        let ports = state.mappings.iter().filter(|(_, mapping)| mapping.subscriber.is_none());
        let ports = ports.filter_map(|(number, mapping)| {
            let external = state.external(number)?;
            let found = Static::Port { transport: mapping.transport, external, inside: mapping.inside };
            // One that was removed stays until its last session ends.
            (!state.is_ending(number)
                || state.mapping_inside(mapping.inside, mapping.transport) == Some(number))
            .then_some(found)
        });
        let whole = state.whole_outside.iter();
        let whole = whole.map(|(external, inside)| Static::Address { external: *external, inside: *inside });
        Ok(lines(whole.chain(ports), |text, mapping| write!(text, "{mapping}")))
    });
    let (changed, inside) = (state.clone(), config.inside.clone());
    let syntax = "TRANSPORT OUTSIDE:PORT -> INSIDE:PORT | OUTSIDE -> INSIDE";
    let handler = Handler::write("static-add", "Adds a static mapping.").argument(syntax);
    worker.handler(handler, move |argument| {
        let mapping: Static = argument.trim().parse()?;
        if is_in(&inside, mapping.external()) {
            return Err(format!("the outside address of `{mapping}` is one of `inside`: exchange its ends"));
        }
        if let Static::Port { inside: host, .. } = &mapping
            && host.address.is_ipv4()
            && !is_in(&inside, host.address)
        {
            return Err(format!("{} is none of `inside`: its answers would not be translated", host.address));
        }
        let mut state = changed.borrow_mut();
        state.add_static(&mapping)?;
        state.is_altered = true;
        Ok(format!("added {mapping}"))
    });
    let changed = state.clone();
    let summary = "Removes a static mapping and ends its sessions.";
    worker.handler(Handler::write("static-remove", summary).argument(syntax), move |argument| {
        let mapping: Static = argument.trim().parse()?;
        let mut state = changed.borrow_mut();
        state.remove_static(&mapping)?;
        state.is_altered = true;
        Ok(format!("removed {mapping}"))
    });
    let changed = state.clone();
    let summary =
        "Ends the lifetimes by PCP of mappings and sessions, or of those with an address in a prefix.";
    worker.handler(
        Handler::write("pcp-remove", summary).argument("[tcp|udp|icmp] [PREFIX]"),
        move |argument| {
            let filter = Filter::read(argument)?;
            let mut state = changed.borrow_mut();
            state.may_purge()?;
            Ok(match state.purge(Chosen::Pcp(filter)) {
                true => "ended".into(),
                false => "ending, a part at a time".into(),
            })
        },
    );
    pool(config, state, worker);
    let changed = state.clone();
    let summary = "Ends all sessions, or those with an address in a prefix; static mappings stay.";
    worker.handler(Handler::write("flush", summary).argument("[PREFIX]"), move |argument| {
        let filter = Filter::read(argument)?;
        let mut state = changed.borrow_mut();
        state.may_purge()?;
        let chosen = state.sessions.iter().filter(|(_, session)| {
            filter.admits(session.transport, &[session.inside.address, session.remote.address])
        });
        let count = chosen.count();
        Ok(match state.purge(Chosen::Filter(filter)) {
            true => format!("ended {count} sessions"),
            false => format!("ending {count} sessions, a part at a time"),
        })
    });
}

fn pool(config: &NatConfig, state: &State<Translations>, worker: &Worker) {
    let shown = state.clone();
    let summary =
        "Outside addresses: address, status, subscribers, mappings, ports of TCP, UDP and ICMP in use.";
    worker.handler(Handler::read("pool", summary), move |_| {
        let state = shown.borrow();
        Ok(lines(state.ports.iter(), |text, (_, place)| {
            let [tcp, udp, icmp] = place.in_use;
            let (address, status) = (place.address, name(place.status));
            write!(text, "{address} {status} {} {} {tcp} {udp} {icmp}", place.subscribers, place.mappings)
        }))
    });
    let (changed, inside, fixed) = (state.clone(), config.inside.clone(), config.deterministic);
    let syntax = "ADDRESS|RANGE|PREFIX";
    let handler =
        Handler::write("pool-add", "Adds outside addresses, or lets draining ones get mappings again.");
    worker.handler(handler.argument(syntax), move |argument| {
        let range: PoolRange = argument.trim().parse()?;
        let refused = |address: Ipv4Addr| is_in(&inside, address.into());
        if let Some(address) =
            range.iter().take(super::config::MOST_ADDRESSES).find(|address| refused(*address))
        {
            return Err(format!("{address} is one of `inside`: give addresses of the outside"));
        }
        if fixed {
            return Err("blocks are deterministic: another pool would give subscribers other blocks".into());
        }
        let mut state = changed.borrow_mut();
        let whole = |state: &Translations, address| {
            state.whole_outside.iter().any(|(external, _)| *external == address)
        };
        let leaves = |state: &Translations, address| {
            state.ports.index(address).is_some_and(|index| state.is_leaving(index))
        };
        for address in range.iter() {
            if leaves(&state, address) {
                return Err(format!("the sessions of {address} still end: try again in a moment"));
            }
            if whole(&state, address) || state.ports.add(address, Status::Active).is_none() {
                return Err(format!(
                    "{address} finds no place: there are too many, or a static mapping has it"
                ));
            }
            state.is_altered = true;
        }
        Ok(format!("added {range}"))
    });
    for (handler, summary, at_once) in [
        ("pool-drain", "Gives outside addresses no new mappings.", false),
        ("pool-remove", "Takes outside addresses out of the pool and ends their sessions.", true),
    ] {
        let changed = state.clone();
        worker.handler(Handler::write(handler, summary).argument(syntax), move |argument| {
            let range: PoolRange = argument.trim().parse()?;
            let mut state = changed.borrow_mut();
            let found: Vec<u16> = (state.ports.iter())
                .filter(|(index, place)| {
                    place.status != Status::Fixed
                        && (range.first..=range.last).contains(&place.address)
                        && !state.is_leaving(*index)
                })
                .map(|(index, _)| index)
                .collect();
            if found.is_empty() {
                return Err(format!("no address of the pool is in {range}"));
            }
            let count = found.len();
            if !at_once {
                state.drain(&found);
                state.is_altered = true;
                return Ok(format!("{count} addresses"));
            }
            let ended = state.remove_addresses(found)?;
            state.is_altered = true;
            Ok(match ended {
                true => format!("{count} addresses"),
                false => format!("{count} addresses, whose sessions end a part at a time"),
            })
        });
    }
}

/// The name of a status in lists.
pub(super) fn name(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Draining => "draining",
        Status::Fixed => "static",
    }
}
