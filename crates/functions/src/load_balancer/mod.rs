//! Spreads the connections of a service over servers: by several policies, and in several ways.

mod balance;
mod config;
mod counts;
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
use netbricks_core::packet::stack::{Header, Layer, Root, Stack};
use netbricks_core::packet::{FlowKey, Ip, IpRef, Link, protocol};
use netbricks_core::tables::{FlowTableConfig, Full, Secret};
use netbricks_core::{
    BuildError, Context, DropReason, Flows, FrameFunction, Frames, Node, Section, TableKey, Verdict, Worker,
    compose_frames, length_slack,
};

use crate::count::Count;
use crate::snapshot::Current;
use balance::{Balance, Found};
use send::Place;
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
    port: Option<u16>,
    mode: Mode,
    tunnels: [Option<IpAddr>; 2],
    gue_port: u16,
    secret: Secret,
}

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
            balance: Balance::new(config.policy, connections),
            tally,
            addresses: config.addresses.clone(),
            port: config.port,
            mode: config.mode,
            tunnels: [config.tunnel_v4.map(IpAddr::V4), config.tunnel_v6.map(IpAddr::V6)],
            gue_port: config.gue_port,
            // The constant is arbitrary: entropy of tunnels, not of any table.
            secret: Secret::from_seed(worker.seed() ^ 0x6775_6521),
        }
    }

    fn packet(&mut self, pool: &Pool, frame: &mut Bytes<'_>, now: u64) -> Result<(), Verdict> {
        let Some(Parsed { place, flow, is_error, destination, is_discovery }) = parsed(frame) else {
            return Ok(());
        };
        if self.mode == Mode::Nat
            && let Some(answered) = self.answer(pool, frame, place, flow)
        {
            self.tally.answers.add(1);
            return answered.map_err(Verdict::drop);
        }
        let is_ours = is_one_of(&self.addresses, destination)
            && (self.port.is_none_or(|port| flow.is_fragment() || flow.destination_port() == port)
                || !has_ports(flow));
        if !is_ours || is_discovery {
            return Ok(());
        }
        let Some((number, found)) = self.balance.server(pool, flow, is_error, now) else {
            return Err(Verdict::drop(DropReason::NoBackend));
        };
        match found {
            Found::Known => {}
            Found::New => self.tally.assigned.add(1),
            Found::Moved => self.tally.moved.add(1),
            Found::Stranger => self.tally.strangers.add(1),
        }
        let Some(server) = pool.get(number).map(|known| &known.server) else { return Ok(()) };
        self.send(frame, place, flow, server).map_err(Verdict::drop)
    }

    /// Sends a packet to its server.
    fn send(
        &self,
        frame: &mut Bytes<'_>,
        place: Place,
        flow: FlowKey,
        server: &Server,
    ) -> Result<(), DropReason> {
        match (self.mode, server.address) {
            (Mode::Dsr, _) | (_, None) => {}
            (Mode::Nat, Some(address)) => {
                if address.is_ipv4() == place.is_v6 {
                    return Err(DropReason::NoBackend);
                }
                send::to_address(frame, place, address, server.port)?;
            }
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

    /// Gives a server's answer the address of the service; `None` for other packets.
    fn answer(
        &self,
        pool: &Pool,
        frame: &mut Bytes<'_>,
        place: Place,
        flow: FlowKey,
    ) -> Option<Result<(), DropReason>> {
        let server = pool.from(flow.source(), flow.source_port())?;
        let service = self.addresses.iter().find(|address| address.is_ipv4() != place.is_v6)?;
        let port = server.port.and(self.port);
        Some(send::from_service(frame, place, *service, port))
    }
}

fn has_ports(flow: FlowKey) -> bool {
    protocol::has_ports(flow.protocol())
}

fn is_one_of(addresses: &[IpAddr], address: IpAddr) -> bool {
    addresses.contains(&address)
}

/// The facts about a packet that decide its way.
struct Parsed {
    place: Place,
    flow: FlowKey,
    /// Whether it is an error that quotes the flow.
    is_error: bool,
    destination: IpAddr,
    is_discovery: bool,
}

/// Parses a frame; `None` where it is not IP.
fn parsed(frame: &Bytes<'_>) -> Option<Parsed> {
    let (data, slack) = (frame.data(), length_slack(frame));
    let link = Layer::<Root, Link>::parse_with(Root, data, slack).ok()?;
    let ip = Layer::<_, Ip>::parse_with(link, data, slack).ok()?;
    let ((at, facts), end) = (ip.top(), ip.end());
    let limit = ip.limit(data.len()).min(data.len());
    let (header, payload) = (Ip::view(&data[at..end], facts), &data[end..limit]);
    let ((link_at, link_facts), link_end) = (link.top(), link.end());
    let view = Link::view(&data[link_at..link_end], link_facts);
    let is_typed = view.labels().is_empty() && view.pppoe().is_none();
    let place = Place {
        ip: at,
        end: limit,
        is_typed,
        is_v6: matches!(header, IpRef::V6(_)),
        tos: header.dscp() << 2 | header.ecn(),
    };
    let is_discovery = place.is_v6
        && header.protocol() == protocol::ICMPV6
        && !header.is_later_fragment()
        && matches!(payload.first(), Some(133..=137));
    let is_error = FlowKey::is_error(header, payload);
    let (flow, destination) = (FlowKey::related(header, payload), header.destination());
    Some(Parsed { place, flow, is_error, destination, is_discovery })
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
    worker.report(move || {
        let pool = current.borrow_mut().get().clone();
        let open = Balance::open(&connections, &pool);
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
        let flow = FlowKey::related(header, payload).store();
        let remembered = connections.with(|table| table.get(&flow).copied());
        servers.read(|servers| match remembered.map(|remembered| servers.pool().live(remembered)) {
            Some(Some((_, known))) => write!(why, "known connection, server {}", known.server.name),
            Some(None) => write!(why, "its server is down or gone, so it moves to another"),
            None => write!(why, "no connection is known, so a server is chosen"),
        })
    });
}
