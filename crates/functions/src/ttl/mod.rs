//! Decrements the TTL or hop limit and drops packets that have none left (NetBricks, Listing 1).

mod config;
#[cfg(test)]
mod tests;

pub use config::{NonIp, TtlConfig};

use std::hint::cold_path;
use std::net::{Ipv4Addr, Ipv6Addr};

use netbricks_core::guards::Guards;
use netbricks_core::icmp::IcmpError;
use netbricks_core::packet::stack::{Layer, LengthSlack, Root};
use netbricks_core::packet::{Ip, IpRef, Link, protocol};
use netbricks_core::{
    BuildError, DropReason, Function, Input, Node, Operator, Verdict, Worker, compose_guarded,
};

/// The function that `non_ip` asks for: [`ttl`], or [`ttl_of_all`] for `"drop"`.
///
/// # Errors
/// When the function cannot be built.
pub fn node(config: &TtlConfig, worker: &Worker) -> Result<Box<dyn Node>, BuildError> {
    match config.non_ip {
        NonIp::Pass => compose_guarded(worker, Guards::of_passing, |input| ttl(input, config, worker)),
        NonIp::Drop => compose_guarded(worker, Guards::of_passing, |input| ttl_of_all(input, config, worker)),
    }
}

/// Decrements the IPv4 TTL or IPv6 hop limit, and drops packets that have none left as `ttl-expired`.
///
/// If an address to answer from is configured, an expired packet is answered with Time Exceeded. Packets that
/// are not IP, and packets that never leave their link, pass unchanged. [`node`] reads `non_ip`; this function
/// does not.
pub fn ttl(input: Input, config: &TtlConfig, worker: &Worker) -> impl Function {
    explain(worker, |frame, header| match header {
        IpRef::V4(header) => !is_link_local_group(header.destination(), header.protocol()),
        IpRef::V6(_) => !is_link_local(frame),
    });
    let packets = input.parse::<Link>().or(Verdict::PASS).parse::<Ip>().or(Verdict::PASS);
    let forwarded = packets.filter(Verdict::PASS, |packet| match packet.header() {
        // One comparison for all unicast packets.
        IpRef::V4(header) => {
            header.destination().octets()[0] < 224
                || !is_link_local_group(header.destination(), header.protocol())
        }
        IpRef::V6(_) => {
            cold_path();
            !is_link_local(packet.frame())
        }
    });
    decrement(forwarded, config, worker)
}

/// As [`ttl`] for packets of any address: those that never leave their link lose a hop, too.
///
/// This is Listing 1 of the NetBricks paper: packets that are not IP are dropped as `unmatched`. It does not
/// look at addresses, so a row of fused functions costs less.
pub fn ttl_of_all(input: Input, config: &TtlConfig, worker: &Worker) -> impl Function {
    explain(worker, |_, _| true);
    decrement(input.parse::<Link>().parse::<Ip>(), config, worker)
}

/// Declares the sentence of a trace about packets without a hop left, and about those that keep their hops.
fn explain(worker: &Worker, is_routed: impl Fn(&[u8], IpRef<'_>) -> bool + 'static) {
    worker.explain(move |frame, why| match Ip::in_frame(frame) {
        Some((header, _)) if !is_routed(frame, header) => {
            write!(why, "it never leaves its link, so no hop is taken")
        }
        Some((header, _)) if header.ttl() <= 1 => write!(why, "its TTL is {}: no hop is left", header.ttl()),
        _ => Ok(()),
    });
}

/// Takes a hop off IP packets; drops and answers those that have none left.
///
/// The closures repeat the type `A`. It is only the beginning of one function, so they compile quickly.
fn decrement<A>(packets: A, config: &TtlConfig, worker: &Worker) -> impl Function
where
    A: Operator<In = Root, Out = Layer<Layer<Root, Link>, Ip>>,
{
    let mut errors = config.errors();
    let answered = worker.counter("answered");
    packets
        .filter(DropReason::TtlExpired, |packet| packet.header().ttl() > 1)
        .on_reject(move |packet| {
            if errors.answer(packet, IcmpError::TimeExceeded) {
                answered.add(1);
            }
        })
        .transform(|packet| packet.header_mut().decrement_ttl())
        .done()
}

/// Whether routers must not forward the packet (RFC 4291 §2.5.6, §2.7).
///
/// Neighbour discovery between global addresses is included: hosts ignore it with a hop limit below 255 (RFC
/// 4861 §7.1). The function parses the frame again, and is not inlined. To pass it a view, the view would
/// have to be in memory. That costs IPv4 packets more than the second parse costs other packets.
#[inline(never)]
fn is_link_local(frame: &[u8]) -> bool {
    // The caller has parsed it, so only what a capture cut off, or a length left to a device, can be amiss.
    let slack = LengthSlack { missing: usize::from(u16::MAX), unstated: true };
    let found = Ip::in_frame(frame).or_else(|| Ip::in_frame_with(frame, slack));
    let Some((IpRef::V6(header), payload)) = found else { return false };
    let local = |a: Ipv6Addr| a.is_unicast_link_local() || a.is_multicast() && a.octets()[1] & 0xf <= 2;
    let discovers = header.hop_limit() == 255
        && header.protocol() == protocol::ICMPV6
        && payload.first().is_some_and(|kind| (133..=137).contains(kind));
    local(header.source()) || local(header.destination()) || discovers
}

/// Whether routers must not forward a packet to this group.
///
/// The groups are the local network control block, whose packets have a TTL of 1 or 255 (RFC 5771 §4), and
/// the limited broadcast (RFC 1812 §5.3.5.1). IGMP, whose TTL is 1 (RFC 2236 §2), is included for all groups.
#[inline(never)]
fn is_link_local_group(destination: Ipv4Addr, protocol: u8) -> bool {
    let control_block = destination.octets()[..3] == [224, 0, 0];
    control_block || destination.is_broadcast() || protocol == protocol::IGMP
}
