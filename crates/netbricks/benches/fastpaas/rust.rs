//! The figures' functions in Rust: those of the library, and two that only C has besides.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use netbricks::functions::lpm::{LpmSettings, Route as LpmRoute, lpm};
use netbricks::functions::macswap::macswap;
use netbricks::functions::ttl::{TtlConfig, ttl_of_all};
use netbricks_core::packet::checksum::Sum;
use netbricks_core::packet::{Ethernet, Ip, Link};
use netbricks_core::{Blueprint, DropReason, Function, Input, Operator, Verdict, compose};

use crate::traffic::Route;

/// The blueprint of a function by its name.
pub(crate) fn function(name: &str, routes: &[Route]) -> Option<Blueprint> {
    Some(match name {
        "macswap" => Blueprint::new(|worker| compose(worker, macswap)),
        "ttl" => {
            let config = TtlConfig::default();
            Blueprint::new(move |worker| compose(worker, |input| ttl_of_all(input, &config, worker)))
        }
        "checksum" => Blueprint::new(|worker| compose(worker, checksum)),
        "policer" => Blueprint::new(|worker| compose(worker, policer)),
        "lpm" => {
            let settings = LpmSettings::of(routes.iter().map(|(network, length, hop)| LpmRoute {
                prefix: IpAddr::V4(*network),
                len: *length,
                next_hop: u32::from(*hop),
            }));
            Blueprint::new(move |worker| compose(worker, |input| lpm(input, &settings, worker)))
        }
        _ => return None,
    })
}

/// Writes the one's complement sum of all bytes where the Ethernet source address begins, as `checksum.c` does.
fn checksum(input: Input) -> impl Function {
    input
        .parse::<Ethernet>()
        .transform(|packet| {
            let sum = Sum::ZERO.add_bytes(packet.frame()).fold();
            let mut source = packet.header().source().octets();
            source[..2].copy_from_slice(&sum.to_be_bytes());
            packet.header_mut().set_source(source.into());
        })
        .done()
}

/// Buckets by the source address, as `policer.c` has them.
const BUCKETS: usize = 65_536;
const RATE: u64 = 10_000_000_000;
const BURST: u64 = 1_000_000_000;

/// Token buckets by IPv4 source address, by the rules of `policer.c`.
fn policer(input: Input) -> impl Function {
    // The time (ns) and the tokens (bytes) of each.
    let buckets: Rc<[Cell<(u64, u64)>]> = (0..BUCKETS).map(|_| Cell::new((0, BURST))).collect();
    input
        .parse::<Link>()
        .or(Verdict::PASS)
        .parse::<Ip>()
        .or(Verdict::PASS)
        .filter(DropReason::RateLimited, move |packet| {
            let IpAddr::V4(source) = packet.header().source() else { return true };
            let place = u32::from_le_bytes(source.octets()).wrapping_mul(0x9e37_79b1) >> 16;
            let bucket = &buckets[place as usize % BUCKETS];
            let (now, (time, tokens)) = (packet.now(), bucket.get());
            let passed = now.saturating_sub(time);
            let earned = if passed > 1_000_000_000 { BURST } else { passed * RATE / 1_000_000_000 };
            let tokens = (tokens + earned).min(BURST);
            let (time, length) = (if earned > 0 { now } else { time }, packet.frame_len() as u64);
            let passes = tokens >= length;
            bucket.set((time, if passes { tokens - length } else { tokens }));
            passes
        })
        .done()
}
