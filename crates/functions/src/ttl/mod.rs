//! Decrements the time to live or hop limit and drops packets that have none left (NetBricks, Listing 1).

mod config;
#[cfg(test)]
mod tests;

pub use config::{Other, TtlConfig};

use std::net::Ipv6Addr;

use netbricks_core::packet::{Ip, IpRef, Ipv6, Link};
use netbricks_core::{Drop, Function, Input, Operator, Verdict, Worker};

/// Decrements the IPv4 time to live or IPv6 hop limit; what has none left is dropped as `ttl-expired` and, where an
/// address to answer from is configured, answered with Time Exceeded.
pub fn ttl(input: Input, config: &TtlConfig, worker: &Worker) -> impl Function {
    let other = config.other.verdict();
    let spare_link_local = config.other == Other::Pass;
    let mut errors = config.errors();
    let answered = worker.counter("answered");
    input
        .parse::<Link>()
        .or(other)
        .parse::<Ip>()
        .or(other)
        .decide(move |packet| {
            let spared = spare_link_local
                && match packet.header() {
                    IpRef::V6(header) => is_link_local(header.fixed(), header.protocol(), packet.payload()),
                    IpRef::V4(_) => false,
                };
            if spared { Err(Verdict::PASS) } else { Ok(()) }
        })
        .filter(Drop::TtlExpired, |packet| packet.header().ttl() > 1)
        .on_reject(move |packet| {
            if errors.time_exceeded(packet) {
                answered.add(1);
            }
        })
        .transform(|packet| packet.header_mut().decrement_ttl())
        .done()
}

/// Whether routers must not forward the packet at all (RFC 4291 §2.5.6, §2.7): it is somebody's on this link. Neighbour
/// discovery is, also between global addresses: with a hop limit below 255 nobody takes it (RFC 4861 §7.1).
///
/// Out of line, so that what is inlined is one comparison.
#[inline(never)]
fn is_link_local(header: &Ipv6, protocol: u8, payload: &[u8]) -> bool {
    let local = |a: Ipv6Addr| a.is_unicast_link_local() || a.is_multicast() && a.octets()[1] & 0xf <= 2;
    let discovers = header.hop_limit() == 255
        && protocol == 58
        && payload.first().is_some_and(|kind| (133..=137).contains(kind));
    local(header.source()) || local(header.destination()) || discovers
}
