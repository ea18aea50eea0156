//! Spreads the connections of a service over servers: by several policies, and in several ways.

mod answers;
mod balance;
mod config;
mod counts;
mod packet;
mod send;
mod server;
mod servers;
#[cfg(test)]
mod tests;

pub use config::{Health, LoadBalancerConfig, Mode, Policy};
pub use server::Server;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use netbricks_core::buffer::Bytes;
use netbricks_core::consistency::{Access, Bounded, BoundedInconsistency};
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{FlowKey, Ip};
use netbricks_core::tables::{FlowTableConfig, Full, Secret};
use netbricks_core::{
    BuildError, Context, DropReason, Flows, FrameFunction, Frames, Node, Section, TableKey, Verdict, Worker,
    compose_frames,
};

use crate::count::Count;
use crate::fragment::FragmentKey;
use crate::snapshot::Current;
use answers::PASSES;
use balance::{Balance, Found};
use packet::{Parsed, has_ports, parsed};
use servers::{Pool, Servers};

/// The node that these settings describe.
///
/// # Errors
/// When its state cannot be declared.
pub fn node(config: &LoadBalancerConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    compose_frames(worker, || Balancer::new(config, worker))
}

struct Balancer {
    current: Current<Servers>,
    balance: Balance,
    tally: Rc<Tally>,
    addresses: Vec<IpAddr>,
    /// The service's source of answers, of IPv4 and IPv6.
    services: [Option<IpAddr>; 2],
    port: Option<u16>,
    fragments: Flows<FragmentKey, u64>,
    mode: Mode,
    tunnels: [Option<IpAddr>; 2],
    gue_port: u16,
    secret: Secret,
}

/// Fragmented packets that a worker remembers.
const FRAGMENTS: usize = 1_024;
/// Time after which the first fragment of a packet is forgotten (ns), as Linux gives up reassembly.
const FRAGMENT_TIME: u64 = 30_000_000_000;

/// A worker's own counts.
struct Tally {
    assigned: Count,
    moved: Count,
    strangers: Count,
    answers: Count,
}

impl Balancer {
    fn new(config: &LoadBalancerConfig, worker: &Worker) -> Self {
        let servers: Bounded<Servers> =
            worker.state("servers", BoundedInconsistency { updates: 0 }, config.state());
        let connections = worker.flow_table::<FlowKey, u64>(
            "connections",
            FlowTableConfig {
                capacity: config.capacity,
                idle_timeout: Some(config.idle.nanoseconds()),
                full: Full::EvictOldest,
                seed: worker.seed(),
            },
        );
        let fragments = worker.flow_table::<FragmentKey, u64>(
            "fragments",
            FlowTableConfig {
                capacity: FRAGMENTS,
                idle_timeout: Some(FRAGMENT_TIME),
                full: Full::EvictOldest,
                seed: worker.seed(),
            },
        );
        servers::declare(&servers, worker);
        let count = |name| Count::new(name, worker);
        let tally = Rc::new(Tally {
            assigned: count("assigned"),
            moved: count("moved"),
            strangers: count("strangers"),
            answers: count("answers"),
        });
        report(tally.clone(), &servers, &connections, worker);
        explain(&servers, &connections, config, worker);
        Self {
            current: Current::of(servers),
            balance: Balance::new(config.policy, config.mode, config.idle.nanoseconds(), connections),
            tally,
            addresses: config.addresses.clone(),
            services: [true, false]
                .map(|v4| config.addresses.iter().copied().find(|address| address.is_ipv4() == v4)),
            fragments,
            port: config.port,
            mode: config.mode,
            tunnels: [config.tunnel_v4.map(IpAddr::V4), config.tunnel_v6.map(IpAddr::V6)],
            gue_port: config.gue_port,
            // The constant is arbitrary: entropy of tunnels, not of any table.
            secret: Secret::from_seed(worker.seed() ^ 0x6775_6521),
        }
    }

    fn packet(&mut self, pool: &Pool, frame: &mut Bytes<'_>, now: u64) -> Result<(), Verdict> {
        let Some(parsed) = parsed(frame) else { return Ok(()) };
        if self.mode == Mode::Nat
            && let Some(answered) = self.answer(pool, frame, &parsed, now)
        {
            self.tally.answers.add(1);
            return answered.map_err(Verdict::drop);
        }
        if !is_one_of(&self.addresses, parsed.destination) || parsed.is_discovery {
            return Ok(());
        }
        let Some(chosen) = self.choice(pool, &parsed, now) else { return Ok(()) };
        let Some((number, found)) = chosen else {
            return Err(Verdict::drop(DropReason::NoBackend));
        };
        match found {
            Found::Known => {}
            Found::New => self.tally.assigned.add(1),
            Found::Moved => self.tally.moved.add(1),
            Found::Stranger => self.tally.strangers.add(1),
        }
        let Some(server) = pool.get(number).map(|known| &known.server) else { return Ok(()) };
        self.send(frame, &parsed, server).map_err(Verdict::drop)
    }

    /// The server of a packet to an address of the service; `None` for one to another port.
    fn choice(&mut self, pool: &Pool, parsed: &Parsed, now: u64) -> Option<Option<(usize, Found)>> {
        let flow = parsed.flow;
        if let Some(decision) = parsed.later().and_then(|fragment| self.decided(fragment, now)) {
            if decision == PASSES {
                return None;
            }
            if let Some((number, _)) = pool.live(decision) {
                return Some(Some((number, Found::Known)));
            }
        }
        let is_ours = !has_ports(flow) || self.port.is_none_or(|port| flow.destination_port() == port);
        let chosen = is_ours.then(|| self.balance.server(pool, flow, parsed.kind, now));
        if let Some(first) = parsed.first() {
            let decision = chosen.map_or(Some(PASSES), |chosen| pool.remembered(chosen?.0));
            decision.into_iter().for_each(|decision| self.decide(first, decision, now));
        }
        chosen
    }

    /// Sends a packet to its server.
    fn send(&self, frame: &mut Bytes<'_>, parsed: &Parsed, server: &Server) -> Result<(), DropReason> {
        let (place, flow) = (parsed.place, parsed.flow);
        match (self.mode, server.address) {
            (Mode::Dsr, _) | (_, None) => {}
            (Mode::Nat, Some(address)) if parsed.quotes && flow.destination() == parsed.destination => {
                send::error_to_server(frame, place, flow.reversed(), address, server.port)?;
            }
            (Mode::Nat, Some(address)) => send::to_address(frame, place, address, server.port)?,
            (Mode::Ipip | Mode::Gue, Some(address)) => {
                let source = self.tunnels[usize::from(!address.is_ipv4())].ok_or(DropReason::NoBackend)?;
                // The flow's hash is in the source port, so that routers spread tunnels (RFC 7510, section 4).
                let entropy = netbricks_core::tables::Key::hash(&flow.store(), &self.secret) as u16 | 0xc000;
                let ports = (self.mode == Mode::Gue).then_some((entropy, self.gue_port));
                send::into_tunnel(frame, place, (source, address), ports)?;
            }
        }
        send::to_station(frame, server.mac);
        Ok(())
    }
}

fn is_one_of(addresses: &[IpAddr], address: IpAddr) -> bool {
    addresses.contains(&address)
}

impl FrameFunction for Balancer {
    fn process(&mut self, mut frames: Frames<'_>, cx: &mut Context) {
        let pool: Arc<Pool> = self.current.get().clone();
        let now = cx.now();
        self.balance.begin(&pool, now);
        frames.decide(cx, |_, frame, _| self.packet(&pool, frame, now));
    }
}

/// Declares the report of each server, and of how packets found their servers.
fn report(tally: Rc<Tally>, servers: &Bounded<Servers>, connections: &Flows<FlowKey, u64>, worker: &Worker) {
    let (current, connections) = (std::cell::RefCell::new(Current::of(servers.clone())), connections.clone());
    worker.report_in_steps(move || {
        let (pool, tally) = (current.borrow_mut().get().clone(), tally.clone());
        Balance::with_open(&connections, pool, move |pool, open| {
            let rows = pool.all().map(|(number, known)| {
                let state = if known.is_down {
                    "down"
                } else if known.takes() {
                    "up"
                } else {
                    "draining"
                };
                vec![known.server.name.clone(), state.into(), open[number].to_string()]
            });
            let counts = [
                ("new_connection_packets", tally.assigned.here()),
                ("moved_connections", tally.moved.here()),
                ("unremembered_packets", tally.strangers.here()),
                ("answers", tally.answers.here()),
            ];
            Section {
                title: "servers".into(),
                columns: ["server", "state", "connections"].map(Into::into).into(),
                rows: rows.collect(),
                counts: counts.map(|(name, count)| (name.into(), count)).into(),
                merge: SectionMerge::Sum,
                ..Section::default()
            }
        })
    });
}

/// Declares the sentence of a trace about the packet's connection.
fn explain(
    servers: &Bounded<Servers>,
    connections: &Flows<FlowKey, u64>,
    config: &LoadBalancerConfig,
    worker: &Worker,
) {
    let (servers, connections) = (servers.clone(), connections.clone());
    let addresses = config.addresses.clone();
    worker.explain(move |frame, why| {
        let Some((header, payload)) = Ip::in_frame(frame) else { return Ok(()) };
        if !is_one_of(&addresses, header.destination()) {
            return Ok(());
        }
        let flow = packet::flow_of(header, payload).store();
        let remembered = connections.with(|table| table.get(&flow).copied());
        servers.read(|servers| match remembered.map(|remembered| servers.pool().live(remembered)) {
            Some(Some((_, known))) => write!(why, "known connection, server {}", known.server.name),
            Some(None) => write!(why, "its server is down or gone, so it moves to another"),
            None => write!(why, "no connection is known, so a server is chosen"),
        })
    });
}
