//! `AnonymizeIPAddr`: addresses replaced so that common prefixes stay common.

use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;
use std::rc::Rc;

use netbricks_core::DropReason;
use netbricks_core::buffer::Packet;

use super::header::{self, get_address, replace16};
use crate::arguments::Arguments;
use crate::element::{Class, Element};
use crate::handler::Handlers;
use crate::hash::Keyed;
use crate::language::text;
use crate::router::{At, Setup};
use crate::value::Raw;

pub(super) const CLASSES: &[Class] = &[Class::new("AnonymizeIPAddr", configure).creates_nothing()];

/// `AnonymizeIPAddr([CLASS, PRESERVE_8])`: replaces the source and destination of IPv4 headers.
///
/// Two addresses with a common prefix get addresses with a common prefix of the same length. The first `CLASS` bits stay
/// while they are ones, and networks of 8 bits in `PRESERVE_8` stay. 0.0.0.0 and 255.255.255.255 stay. The header's
/// checksum is corrected for the change.
struct Anonymize {
    key: Keyed,
    class: u32,
    /// First bytes that stay.
    preserved: Vec<u8>,
}

fn configure(arguments: &mut Arguments<'_>, setup: &Setup<'_>) -> Option<Rc<dyn Element>> {
    let class: u32 = arguments.keyword("CLASS").unwrap_or(0);
    let networks: Option<Raw> = arguments.keyword("PRESERVE_8");
    arguments.complete()?;
    if class > 32 {
        setup.errors.error("CLASS must be between 0 and 32");
        return None;
    }
    let mut preserved = Vec::new();
    for word in networks.iter().flat_map(|networks| text::split_words(&networks.0)) {
        let Ok(network) = word.parse() else {
            setup.errors.error("PRESERVE_8 takes a space-separated list of integers 0-255");
            return None;
        };
        preserved.push(network);
    }
    let [high, low] = [setup.at.router.random(), setup.at.router.random()].map(u64::from);
    Some(Rc::new(Anonymize { key: Keyed::new(high << 32 | low), class, preserved }))
}

impl Anonymize {
    /// Whether the bit behind a prefix of so many bits stays.
    fn stays(&self, address: u32, bits: u32) -> bool {
        if bits < self.class && address.leading_ones() >= bits {
            return true;
        }
        let has_prefix = |network: &u8| {
            let network = u32::from(*network) << 24;
            bits == 0 || (network ^ address) >> (32 - bits) == 0
        };
        bits < 8 && self.preserved.iter().any(has_prefix)
    }

    /// The address with each bit changed or not as its prefix says.
    fn permuted(&self, address: u32) -> u32 {
        (0..32).fold(0, |changes, bits| {
            if self.stays(address, bits) {
                return changes;
            }
            // The prefix with a one behind it: a number for each prefix of each length.
            let prefix = if bits == 0 { 1 } else { u64::from(address >> (32 - bits)) | 1 << bits };
            let mut hasher = self.key.build_hasher();
            hasher.write_u64(prefix);
            let change = (hasher.finish() >> 40) as u32 & 1;
            changes | change << (31 - bits)
        }) ^ address
    }

    fn map(&self, address: u32) -> u32 {
        let is_special = |address: u32| address == 0 || address == u32::MAX;
        if is_special(address) {
            return address;
        }
        let mut mapped = self.permuted(address);
        // Addresses whose place a special one keeps get the place that the special one has left.
        for _ in 0..2 {
            if !is_special(mapped) {
                break;
            }
            mapped = self.permuted(mapped);
        }
        mapped
    }
}

impl Element for Anonymize {
    fn action(&self, at: At<'_>, mut packet: Packet) -> Option<Packet> {
        let Some(header) = header::ip_mut(&mut packet) else {
            at.drop_packet(packet, DropReason::Unmatched);
            return None;
        };
        for place in [12, 16] {
            let mapped = self.map(get_address(header, place).into());
            replace16(header, place, (mapped >> 16) as u16);
            replace16(header, place + 2, mapped as u16);
        }
        Some(packet)
    }
    fn handlers(&self, handlers: &mut Handlers) {
        handlers.ask("map", |this: &Self, _, parameter| {
            let address: Ipv4Addr = parameter.trim().parse().map_err(|_| "expected IP address")?;
            Ok(Ipv4Addr::from(this.map(address.into())).to_string())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    use crate::testing::{Run, build, run};

    fn map(run: &Run, address: u32) -> u32 {
        run.read(&format!("a.map {}", Ipv4Addr::from(address)))
            .parse::<Ipv4Addr>()
            .expect("an address")
            .into()
    }

    #[test]
    fn common_prefixes_stay_common_and_addresses_different() {
        let run = build("Idle -> a::AnonymizeIPAddr -> Discard");
        let base = 0x0A01_0203;
        let mapped = map(&run, base);
        for bits in 0..32 {
            let other = base ^ 1 << (31 - bits);
            assert_eq!((map(&run, other) ^ mapped).leading_zeros(), bits, "{bits}");
        }
        let all: HashSet<u32> = (0..500).map(|low| map(&run, 0xC0A8_0000 + low)).collect();
        assert_eq!(all.len(), 500);
        assert_eq!((map(&run, 0), map(&run, u32::MAX)), (0, u32::MAX));
        assert_eq!(map(&run, base), mapped, "it is the same each time");
        assert_eq!(run.read("a.map x"), "expected IP address");
    }

    #[test]
    fn classes_and_networks_stay() {
        let run = build("Idle -> a::AnonymizeIPAddr(CLASS 3, PRESERVE_8 18) -> Discard");
        for address in (0..64).map(|number: u32| number << 26 | 0x12_3456) {
            let class = |address: u32| address.leading_ones().min(3);
            assert_eq!(class(map(&run, address)), class(address), "{address:x}");
        }
        assert_eq!((map(&run, 18 << 24) >> 24, map(&run, 19 << 24) >> 24), (18, 19));
        let errors = build("Idle -> AnonymizeIPAddr(CLASS 33) -> Discard").errors;
        assert!(errors[1].contains("CLASS must be between 0 and 32"), "{errors:?}");
    }

    #[test]
    fn headers_stay_right() {
        let run = run(
            "InfiniteSource(LIMIT 5, STOP true) -> IPEncap(17, 1.2.3.4, 5.6.7.8) -> a::AnonymizeIPAddr \
                       -> k::CheckIPHeader -> IPFilter(deny src host 1.2.3.4, allow all) -> c::Counter -> Discard",
        );
        assert_eq!((run.read("c.count"), run.read("k.drops")), ("5".into(), "0".into()));
    }
}
