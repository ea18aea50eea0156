//! Finds the next hop of every packet by longest-prefix match, and annotates the packet with it.

mod config;
mod counted;
mod route;
#[cfg(test)]
mod tests;

pub use config::LpmSettings;
pub use counted::lpm_counted;
pub use route::{Lines, Route, RouteError, routes};

use std::hash::Hash;
use std::net::IpAddr;

use netbricks_core::node::SectionMerge;
use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::Routes;
use netbricks_core::{
    BuildError, Function, Handler, Input, Node, Operator, Section, State, Verdict, Worker, compose,
};

use crate::count::Count;

/// The name of the annotation that carries the next hop, a `u32`, unless configuration says another.
pub const NEXT_HOP: &str = "next-hop";

/// The function that the settings ask for: [`lpm`], or [`lpm_counted`].
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &LpmSettings, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    if config.count {
        compose(worker, |input| lpm_counted(input, config, worker))
    } else {
        compose(worker, |input| lpm(input, config, worker))
    }
}

/// Annotates every IP packet with its next hop.
///
/// Packets are never changed, and dropped only when their headers are malformed. A packet without a route passes
/// without an annotation, and one that is not IP as it came. The report says how many had no route.
pub fn lpm(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function + use<> {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    let table = table(config, worker, |number| number);
    answer(&table, worker, |number| *number);
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
fn section(hops: impl IntoIterator<Item = (u32, u64)>, none: u64) -> Section {
    let hops = hops.into_iter().map(|(number, packets)| vec![number.to_string(), packets.to_string()]);
    Section {
        title: "next hops".into(),
        columns: ["next hop", "packets"].map(Into::into).into(),
        rows: hops.chain([vec!["no route".into(), none.to_string()]]).collect(),
        merge: SectionMerge::Sum,
        ..Section::default()
    }
}

/// Declares the handler that answers the next hop of an address.
fn answer<V: Copy + Eq + Hash + 'static>(
    table: &State<Routes<V>>,
    worker: &Worker,
    number: impl Fn(&V) -> u32 + 'static,
) {
    let table = table.clone();
    worker.handler(
        Handler::read("lookup", "The next hop for an address.").argument("ADDRESS"),
        move |address| {
            let address: IpAddr = address
                .trim()
                .parse()
                .map_err(|_| format!("expected an IP address, found `{}`", address.trim()))?;
            let next_hop = table.with(|table| table.longest(address).map(&number));
            Ok(next_hop.map_or_else(|| "no route".into(), |next_hop| next_hop.to_string()))
        },
    );
}

/// The routes, with the value that `value` gives for each next hop.
fn table<V: Copy + Eq + Hash + 'static>(
    config: &LpmSettings,
    worker: &Worker,
    value: impl Fn(u32) -> V,
) -> State<Routes<V>> {
    let built = config.all().map_err(|refused| refused.to_string()).and_then(|mut all| {
        let (v4, v6) = route::sizes(&all);
        // Short prefixes first. With more next hops than a byte can number, the ones inserted first get the
        // bytes, and short prefixes decide for most addresses.
        all.sort_by_key(|route| route.len);
        let mut table = Routes::new(v4, v6).map_err(|error| error.to_string())?;
        for Route { prefix, len, next_hop } in all {
            table.insert(prefix, len, value(next_hop)).map_err(|error| error.to_string())?;
        }
        Ok(table)
    });
    worker.configured(built.unwrap_or_else(|problem| {
        worker.fail(BuildError::new(format_args!("`routes`: {problem}")));
        Routes::none()
    }))
}
