//! Source NAT and carrier-grade NAT: hosts inside share outside addresses (NetBricks, section 5.2, MazuNAT).
//!
//! Mappings do not depend on the remote endpoint (RFC 4787, RFC 5382, RFC 5508, RFC 6888, RFC 7857).

mod answers;
mod config;
mod embedded;
mod engine;
mod errors;
mod fragments;
mod handlers;
mod identification;
mod log;
mod nat64;
mod neighbors;
mod nptv6;
mod packet;
mod parts;
mod pcp;
mod pcp_mappings;
mod pcp_message;
mod pcp_transfer;
mod ports;
mod purge;
mod report;
mod session;
mod slab;
mod spec;
mod state;
mod statics;
mod subscribers;
mod succession;
#[cfg(test)]
mod tests;
mod timeouts;
mod transfer;
mod version;

pub use config::{Filtering, NatConfig, Others, Pooling, Refusal};
pub use spec::{Endpoint, Exempt, PoolRange, Prefix, PrefixPair, Redirect, Static, Transport};

use netbricks_core::buffer::{BATCH, Bytes};
use netbricks_core::icmp::IcmpErrors;
use netbricks_core::packet::FlowKey;
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::{MacAddress, protocol};
use netbricks_core::tables::{FlowTable, FlowTicket, Table};
use netbricks_core::{
    BuildError, Context, EVENTS, Edge, EventLog, FrameFunction, Frames, Node, StoredFlow, TableKey, Verdict,
    Worker, compose_frames,
};

use engine::{Engine, Rules, Side};
use fragments::Fragments;
use log::Told;
use session::{Route, Way, tag_of};
use state::State;

/// Makes a worker's node of the function.
///
/// # Errors
/// When its tables do not fit into memory, or it names a port that is not there.
pub fn node(config: &NatConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_frames(worker, || Nat::new(config, worker))
}

/// The time (ns) between two looks for sessions that are over, where no packets come.
const PERIOD: u64 = 200_000_000;
/// Sessions that end in one such look.
const ENDED: usize = 512;
/// So many times as many sessions that the operator ends are looked at.
const PURGED: usize = 16;

/// A worker's translator over batches.
struct Nat {
    engine: Engine,
    /// By port of arrival, whether it is inside; empty where ports do not tell.
    sides: Vec<Side>,
    mac: MacAddress,
    answers: bool,
    waiting: Box<[Waiting; BATCH]>,
    /// Events of subscribers and their blocks, which a run follows.
    events: EventLog<Told>,
    /// Longer frames may not fit the link on the other side.
    longest: usize,
}

/// A packet between two loops over its batch.
#[derive(Clone, Copy)]
struct Waiting {
    key: StoredFlow,
    ticket: FlowTicket,
    side: Side,
    usual: bool,
}

impl Nat {
    fn new(config: &NatConfig, worker: &Worker) -> Self {
        let small = worker.is_control();
        // The outside sees ports and identifications: none of them is a way back to the run's seed.
        let mut random = worker.random("nat");
        let seed = random.draw();
        let (state, fragments) = (
            State::new(config, seed, small),
            Fragments::new(
                if small { 1 } else { config.fragments },
                if small { 0 } else { config.fragments_held },
                config.fragment_timeout.nanoseconds(),
                seed,
            ),
        );
        let fail =
            |error: &dyn std::fmt::Display| worker.fail(BuildError::new(format_args!("its tables: {error}")));
        let state = state.unwrap_or_else(|error| {
            fail(&error);
            State::new(config, seed, true).expect("a table of one entry has room")
        });
        let fragments = fragments.unwrap_or_else(|error| {
            fail(&error);
            Fragments::new(1, 0, 1_000_000_000, seed).expect("a table of one entry has room")
        });
        let state = worker.declare("translations", state);
        let fragments = worker.configured(fragments);
        handlers::declare(config, &state, &fragments, worker);
        report::declare(&state, &fragments, worker);
        let events = worker.event_log(EVENTS, config.log, |told: &Told, to| told.write(to));
        let (ending, expiring, telling) = (state.clone(), fragments.clone(), events.clone());
        worker.invoke_every("expire", PERIOD, move |event| {
            let mut state = ending.borrow_mut();
            state.advance(event.now(), ENDED);
            for _ in 0..PURGED {
                state.log.tell(&telling);
                if !state.is_purging() {
                    break;
                }
                state.purge_some(ENDED);
            }
            state.log.tell(&telling);
            expiring.borrow_mut().expire(event.now());
        });
        if let Some(part) = parts::of(config) {
            worker.parted_by(part);
        }
        let first = config.pool.first().map(|range| range.first);
        let waiting = Waiting {
            key: FlowKey::unpacked([0; 5]).store(),
            ticket: FlowTicket::default(),
            side: Side::Unknown,
            usual: false,
        };
        Self {
            sides: sides(config, worker),
            mac: config.mac(),
            answers: config.answer,
            waiting: Box::new([waiting; BATCH]),
            events,
            engine: Engine {
                rules: Rules {
                    inside: config.inside.clone(),
                    redirects: config.redirect.clone(),
                    exempt: config.exempt.clone(),
                    others: config.others,
                    refusal: config.refusal,
                    mac: config.answer.then(|| config.mac()),
                    pairs: config.nptv6.iter().map(nptv6::Pair::new).collect(),
                    embedding: config.nat64.as_ref().and_then(embedded::Embedding::new),
                    mtu: config.mtu.into(),
                    inside_mtu: config.inside_mtu.into(),
                    pcp: config.pcp,
                },
                state,
                fragments,
                errors: IcmpErrors::new(config.answer_v4.or(first), config.answer_v6, config.answer_rate),
                behind: false,
                identification: random.draw() as u32,
                asked: engine::Asked::default(),
                may_cut: false,
            },
            longest: IP + smallest(config.mtu, config.inside_mtu),
        }
    }

    fn side(&self, port: u16) -> Side {
        if self.sides.is_empty() {
            return Side::Unknown;
        }
        self.sides.get(usize::from(port)).copied().unwrap_or(Side::Outside)
    }

    /// Finds the keys of usual packets, and asks for the memory where their routes lie.
    fn look(&mut self, frames: &Frames<'_>) {
        let (hasher, has_static) = {
            let state = self.engine.state.borrow();
            (state.flows.hasher(), state.has_static())
        };
        let asks = if self.answers && has_static { Some(self.mac.octets()) } else { None };
        let longest = if self.engine.rules.embedding.is_some() {
            self.longest.min(IP + version::LEAST_V6_MTU)
        } else {
            self.longest
        };
        let (mut count, mut ordered) = (0, false);
        for (packet, slot) in frames.iter().zip(0..) {
            let is_plain = !packet.needs_device() && packet.len() <= self.longest;
            let key = if is_plain { usual_key(packet.data()) } else { None };
            let data = packet.data();
            ordered |= data.len() > longest
                || key.is_none() && may_be_fragment(data)
                || asks.is_some_and(|own| data.first_chunk() == Some(&own));
            let side = self.side(packet.ingress());
            let Some(waiting) = self.waiting.get_mut(slot) else { break };
            waiting.side = side;
            waiting.usual = key.is_some();
            if let Some(key) = key {
                waiting.key = key.store();
                waiting.ticket = FlowTable::<StoredFlow, u64>::hash(&hasher, &waiting.key);
            }
            count = slot + 1;
        }
        // New packets leave before those that stay in the batch. Where there may be any, all leave in order.
        self.engine.behind = ordered;
        let state = self.engine.state.borrow();
        for waiting in self.waiting.iter_mut().take(count).filter(|waiting| waiting.usual) {
            state.flows.prefetch(&waiting.key, &mut waiting.ticket);
        }
    }
}

/// Whether a frame that is not usual may hold a fragment.
fn may_be_fragment(data: &[u8]) -> bool {
    match data.get(12..22) {
        Some(&[0x08, 0x00, .., high, low]) => high & 0x3f != 0 || low != 0,
        // TCP, UDP and ICMPv6 directly behind the fixed header.
        Some(&[0x86, 0xdd, _, _, _, _, _, _, next, _]) => {
            !matches!(next, protocol::TCP | protocol::UDP | protocol::ICMPV6)
        }
        Some(&[0x08, 0x06, ..]) | None => false,
        Some(_) => true,
    }
}

/// The smaller of two limits, of which 0 is none.
fn smallest(first: u16, second: u16) -> usize {
    [first, second].into_iter().filter(|limit| *limit > 0).min().map_or(usize::from(u16::MAX), usize::from)
}

/// The sides of ports, by their numbers.
fn sides(config: &NatConfig, worker: &Worker) -> Vec<Side> {
    if config.inside_ports.is_empty() {
        return Vec::new();
    }
    let names = &worker.ports().names;
    if names.is_empty() {
        return Vec::new();
    }
    for name in &config.inside_ports {
        if worker.ports().number(name).is_none() {
            let known: Vec<&str> = names.iter().map(|(known, _)| known.as_str()).collect();
            worker.fail(BuildError::new(format_args!(
                "`inside_ports` names `{name}`, which is no port here: there are {}",
                known.join(", ")
            )));
        }
    }
    let most = names.iter().map(|(_, number)| *number).max().unwrap_or(0);
    let mut sides = vec![Side::Outside; usize::from(most) + 1];
    for (name, number) in names.iter() {
        if config.inside_ports.contains(name) {
            sides[usize::from(*number)] = Side::Inside;
        }
    }
    sides
}

impl FrameFunction for Nat {
    fn copies(&self) -> usize {
        self.engine.fragments.borrow().most_held()
    }
    fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
        let packets = frames.iter().count();
        self.engine.state.borrow_mut().advance(cx.now(), (64 + 8 * packets).min(ENDED));
        self.look(&frames);
        let Self { engine, waiting, mac, answers, events, .. } = self;
        let own = if *answers { Some(mac.octets()) } else { None };
        let shared = engine.state.clone();
        // Borrowed for usual packets in a row.
        let mut state = None;
        frames.decide(cx, |slot, frame, cx| {
            let Some(waiting) = waiting.get(slot) else { return Ok(()) };
            if waiting.usual
                && let Quick::Done =
                    quick(state.get_or_insert_with(|| shared.borrow_mut()), waiting, frame, own)
            {
                return if engine.behind { Err(Verdict::OUT) } else { Ok(()) };
            }
            state = None;
            engine.handle(slot, frame, waiting.side, cx)
        });
        drop(state);
        engine.state.borrow_mut().log.tell(events);
    }

    fn edges(&self) -> Vec<(Edge, String)> {
        vec![(Edge::REPLY, "reply".into())]
    }
}

/// Whether the loop over a batch has translated a packet.
enum Quick {
    Done,
    Slow,
}

/// Translates a usual packet of a session that needs no look at its state.
#[inline(always)]
fn quick(state: &mut State, waiting: &Waiting, frame: &mut Bytes<'_>, own: Option<[u8; 6]>) -> Quick {
    let Some(near) = FlowTable::<StoredFlow, u64>::shorten(&waiting.key) else { return Quick::Slow };
    let Some(entry) = state.flows.resolve_here(near, waiting.ticket) else { return Quick::Slow };
    let Some(route) = entry.found() else { return Quick::Slow };
    match Route(*route).way() {
        Way::Out { index, port, tag } => {
            // From another Ethernet address than before, the session learns it.
            let source = frame.data().get(6..).and_then(<[u8]>::first_chunk);
            if source.is_none_or(|source| tag_of(*source) != tag) {
                return Quick::Slow;
            }
            let Some(address) = state.ports.address(index) else { return Quick::Slow };
            let done = translate::<12, 0>(frame.data_mut(), address.to_bits(), port);
            if let (Quick::Done, Some(own)) = (&done, &mut state.identifications)
                && let Some(ip) = frame.data_mut().get_mut(IP..)
            {
                identification::renew(ip, own);
            }
            done
        }
        Way::In { address, port, neighbor } => {
            let done = translate::<16, 2>(frame.data_mut(), address, port);
            if let (Quick::Done, Some(neighbor), Some(own)) = (&done, state.neighbors.get(neighbor), own)
                && let Some(to) = frame.data_mut().first_chunk_mut::<6>()
                && *to == own
            {
                *to = neighbor.octets();
            }
            done
        }
        Way::Ask => Quick::Slow,
    }
}

/// The offset of the IP header in a usual frame, and of the transport header.
const IP: usize = 14;
const TRANSPORT: usize = IP + 20;

/// The flow of a usual packet: IPv4 without tags and options, TCP or UDP in one piece.
#[inline(always)]
fn usual_key(frame: &[u8]) -> Option<FlowKey> {
    let head = frame.first_chunk::<{ TRANSPORT + 8 }>()?;
    let number = head[IP + 9];
    let needed = match number {
        protocol::TCP => 40,
        protocol::UDP => 28,
        _ => return None,
    };
    let length = usize::from(u16::from_be_bytes([head[IP + 2], head[IP + 3]]));
    let is_usual = head[12..14] == [8, 0]
        && head[IP] == 0x45
        // Not a fragment: neither flag nor offset.
        && head[IP + 6] & 0x3f == 0
        && head[IP + 7] == 0
        && length >= needed
        && frame.len() >= IP + length;
    if !is_usual {
        return None;
    }
    let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    // The packed form of a key: bytes 8 to 23 of the header, without time to live and checksum.
    Some(FlowKey::unpacked([word(IP + 8) & 0xffff_ffff_0000_ff00, word(IP + 16), 0, 0, 0]))
}

/// Writes another address and port into a usual packet, and carries both into its checksums (RFC 1624).
///
/// A TCP segment with SYN, FIN or RST is left alone: the session must see it.
#[inline(always)]
fn translate<const ADDRESS: usize, const PORT: usize>(frame: &mut [u8], address: u32, port: u16) -> Quick {
    let Some(head) = frame.first_chunk_mut::<{ TRANSPORT + 8 }>() else { return Quick::Slow };
    let is_tcp = head[IP + 9] == protocol::TCP;
    let field = |head: &[u8], at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let old = u32::from_be_bytes([
        head[IP + ADDRESS],
        head[IP + ADDRESS + 1],
        head[IP + ADDRESS + 2],
        head[IP + ADDRESS + 3],
    ]);
    let old_port = field(head, TRANSPORT + PORT);
    let moved = Sum::ZERO.add32(!old).add32(address);
    let header_sum = moved.add16(!field(head, IP + 10)).finish();
    let moved = moved.add16(!old_port).add16(port);
    if is_tcp {
        let Some(tcp) = frame.get_mut(TRANSPORT + 13..TRANSPORT + 18).and_then(<[u8]>::first_chunk_mut::<5>)
        else {
            return Quick::Slow;
        };
        if tcp[0] & 0b111 != 0 {
            return Quick::Slow;
        }
        let sum = moved.add16(!u16::from_be_bytes([tcp[3], tcp[4]])).finish();
        [tcp[3], tcp[4]] = sum.to_be_bytes();
    } else {
        let before = field(head, TRANSPORT + 6);
        if before != 0 {
            let sum = match moved.add16(!before).finish() {
                0 => 0xffff,
                sum => sum,
            };
            [head[TRANSPORT + 6], head[TRANSPORT + 7]] = sum.to_be_bytes();
        }
    }
    let Some(head) = frame.first_chunk_mut::<{ TRANSPORT + 8 }>() else { return Quick::Slow };
    head[IP + 10..IP + 12].copy_from_slice(&header_sum.to_be_bytes());
    head[IP + ADDRESS..IP + ADDRESS + 4].copy_from_slice(&address.to_be_bytes());
    head[TRANSPORT + PORT..TRANSPORT + PORT + 2].copy_from_slice(&port.to_be_bytes());
    Quick::Done
}
