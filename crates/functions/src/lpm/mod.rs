//! Finds the next hop of every packet by the longest prefix that holds its destination, and annotates the packet with it.

mod config;
mod route;
#[cfg(test)]
mod tests;

pub use config::LpmSettings;
pub use route::{Route, RouteError, routes};

use std::net::IpAddr;

use netbricks_core::packet::{Ip, Link};
use netbricks_core::tables::Routes;
use netbricks_core::{BuildError, Function, Input, Operator, Worker};

/// The name of the annotation that carries the next hop, a `u32`, unless configuration says another.
pub const NEXT_HOP: &str = "next-hop";

/// Annotates every IP packet with its next hop. Packets are never changed, and dropped only when their headers are malformed:
/// what has no route passes without an annotation, what is no IP as it came.
pub fn lpm(input: Input, config: &LpmSettings, worker: &Worker) -> impl Function {
    let next_hop = worker.annotation::<u32>(&config.annotation);
    let table = worker.configured(table(config, worker));
    let asked = table.clone();
    worker.handler("lookup", "The next hop for an address: `lookup 192.0.2.9`.", move |address| {
        let address: IpAddr = address
            .trim()
            .parse()
            .map_err(|_| format!("expected an IP address, found `{}`", address.trim()))?;
        let next_hop = asked.with(|table| table.longest(address).copied());
        Ok(next_hop.map_or_else(|| "no route".into(), |next_hop| next_hop.to_string()))
    });
    input
        .parse_or_pass::<Link>()
        .parse_or_pass::<Ip>()
        .lookup(
            &table,
            |packet| packet.header().destination(),
            move |packet, found| match found {
                Some(number) => packet.annotate(next_hop, *number),
                None => packet.take_annotation(next_hop),
            },
        )
        .done()
}

fn table(config: &LpmSettings, worker: &Worker) -> Routes<u32> {
    let built = config.all().map_err(|refused| refused.to_string()).and_then(|mut all| {
        let (v4, v6) = route::sizes(&all);
        // Short ones first: where there are more next hops than a byte tells apart, it tells those apart that decide for most
        // addresses.
        all.sort_by_key(|route| route.len);
        let mut table = Routes::new(v4, v6).map_err(|error| error.to_string())?;
        for Route { prefix, len, next_hop } in all {
            table.insert(prefix, len, next_hop).map_err(|error| error.to_string())?;
        }
        Ok(table)
    });
    built.unwrap_or_else(|problem| {
        worker.fail(BuildError::new(format_args!("`routes`: {problem}")));
        Routes::none()
    })
}
