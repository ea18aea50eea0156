//! Finds the next hop of every packet by longest-prefix match, and annotates the packet with it.

mod config;
mod counted;
mod handlers;
#[cfg(test)]
mod live;
mod route;
mod table;
#[cfg(test)]
mod tests;

pub use config::LpmSettings;
pub use counted::lpm_counted;
pub use route::{Lines, Route, RouteError, routes};

use netbricks_core::consistency::{Access, Bounded, BoundedInconsistency};
use netbricks_core::guards::Guards;
use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{Ip, Link};
use netbricks_core::{
    BuildError, Function, Input, Node, Operator, Section, Verdict, Worker, compose_guarded,
};

use crate::count::Count;
use table::{First, NextHop, RouteTable};

/// The name of the annotation that carries the next hop, a `u32`, unless configuration says another.
pub const NEXT_HOP: &str = "next-hop";

/// The function that the settings ask for: [`lpm`], or [`lpm_counted`].
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &LpmSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    if config.count {
        compose_guarded(worker, Guards::of_passing, |input| lpm_counted(input, config, worker))
    } else {
        compose_guarded(worker, Guards::of_passing, |input| lpm(input, config, worker))
    }
}

/// Annotates every IP packet with its next hop.
///
/// Packets are never changed, and dropped only when their headers are malformed. A packet without a route passes
/// without an annotation, and one that is not IP as it came. The report says how many had no route.
pub fn lpm(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function + use<> {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    let table = declare::<u32>(config, worker).held();
    let none = Count::new("no-route", worker);
    let unrouted = none.clone();
    worker.report(move || section([], unrouted.here()));
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .lookup(
            &table,
            |packet| packet.header().destination(),
            move |packet, found| match found {
                Some(number) => packet.annotate(next_hop, *number),
                None => {
                    none.add(1);
                    packet.take_annotation(next_hop);
                }
            },
        )
        .done()
}

/// Packets by next hop, and those without a route.
fn section(hops: impl IntoIterator<Item = (String, u64)>, none: u64) -> Section {
    let hops = hops.into_iter().map(|(name, packets)| vec![name, packets.to_string()]);
    Section {
        title: "next hops".into(),
        columns: ["next hop", "packets"].map(Into::into).into(),
        rows: hops.chain([vec!["no route".into(), none.to_string()]]).collect(),
        merge: SectionMerge::Sum,
        ..Section::default()
    }
}

/// Declares the routes of the configuration, with their handlers.
fn declare<V: NextHop>(config: &LpmSettings, worker: &Worker) -> Bounded<RouteTable<V>> {
    let first = config.first().unwrap_or_else(|refused| {
        worker.fail(BuildError::new(refused));
        First::default()
    });
    let table = worker.state("routes", BoundedInconsistency { updates: 0 }, first);
    handlers::declare(&table, worker);
    let routes = table.clone();
    worker.explain(move |frame, why| {
        let Some((header, _)) = Ip::in_frame(frame) else { return Ok(()) };
        let address = header.destination();
        match routes.read(|table| table.route(address)) {
            Some(Route { prefix, len, next_hop }) => write!(why, "route {prefix}/{len}, next hop {next_hop}"),
            None => write!(why, "no route for {address}"),
        }
    });
    table
}
