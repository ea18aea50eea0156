//! Sixty-four functions fused into one node: it builds, and each of them does its work.
//!
//! `bench/fuse-build.sh` times the build: seconds, in proportion to the number of functions. `Input` is a
//! concrete type, because a function generic over its input would double the time with each.
#![forbid(unsafe_code)]

use netbricks_core::packet::{Ip, Link};
use netbricks_core::{DropReason, Function, Input, Operator};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::run;

/// Takes one hop and adds its number to the last byte of the payload.
macro_rules! functions {
    ($($name:ident $number:literal)*) => {
        $(fn $name(input: Input) -> impl Function {
            input
                .parse::<Link>()
                .parse::<Ip>()
                .filter(DropReason::TtlExpired, |packet| packet.header().ttl() > 1)
                .transform(|packet| {
                    packet.header_mut().decrement_ttl();
                    if let Some(last) = packet.payload_mut().last_mut() {
                        *last = last.wrapping_add($number);
                    }
                })
                .done()
        })*
    };
}

/// `fuse!(input, a b c)` is `a(input).then(b).then(c)`.
macro_rules! fuse {
    ($input:ident, $first:ident $($next:ident)*) => { $first($input)$(.then($next))* };
}

functions! {
    f0 0 f1 1 f2 2 f3 3 f4 4 f5 5 f6 6 f7 7 f8 8 f9 9 f10 10 f11 11 f12 12 f13 13 f14 14 f15 15
    f16 16 f17 17 f18 18 f19 19 f20 20 f21 21 f22 22 f23 23 f24 24 f25 25 f26 26 f27 27 f28 28 f29 29 f30 30 f31 31
    f32 32 f33 33 f34 34 f35 35 f36 36 f37 37 f38 38 f39 39 f40 40 f41 41 f42 42 f43 43 f44 44 f45 45 f46 46 f47 47
    f48 48 f49 49 f50 50 f51 51 f52 52 f53 53 f54 54 f55 55 f56 56 f57 57 f58 58 f59 59 f60 60 f61 61 f62 62 f63 63
}

#[test]
fn sixty_four_functions_in_one_node() {
    let fused = |input| {
        fuse!(input,
            f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 f25 f26 f27 f28
            f29 f30 f31 f32 f33 f34 f35 f36 f37 f38 f39 f40 f41 f42 f43 f44 f45 f46 f47 f48 f49 f50 f51 f52 f53 f54 f55
            f56 f57 f58 f59 f60 f61 f62 f63)
    };
    let frames = (0..=255).map(|ttl| {
        ethernet().ipv4("10.0.0.1", "10.0.0.2").ttl(ttl).udp(1, 2).payload(&[ttl]).build().unwrap()
    });
    let report = run(fused, frames);
    // 64 hops are taken; the numbers 0 to 63 add up to 2,016.
    let left: Vec<_> = report.out.iter().map(|frame| (frame[22], frame[42])).collect();
    assert_eq!(left, (65..=255u8).map(|ttl| (ttl - 64, ttl.wrapping_add(2016u16 as u8))).collect::<Vec<_>>());
    assert_eq!(report.dropped(DropReason::TtlExpired), 65);
}
