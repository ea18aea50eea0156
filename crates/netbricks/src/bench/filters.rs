//! Rules by addresses, ports and protocol, of the kinds that ClassBench's sets have (Taylor and Turner, INFOCOM 2005).

use std::collections::HashSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

use netbricks_core::tables::Address;

use super::feed::Random;

/// Networks of which the addresses are.
const NETWORKS: usize = 2_048;
/// Ports of services.
const SERVICES: [u16; 12] = [20, 21, 22, 25, 53, 80, 123, 161, 443, 993, 1_433, 8_080];

/// So many rules of mmb, no two with the same matches.
///
/// Their sources lie in 192.0.0.0/3, so that no packet of a generator meets one.
pub(crate) fn filters(count: usize) -> Vec<String> {
    let mut random = Random(0x510e_527f_ade6_82d1);
    let network = |random: &mut Random, first: u32, mask: u32| first | random.next() as u32 & mask;
    let sources: Vec<u32> = (0..NETWORKS).map(|_| network(&mut random, 0xc000_0000, 0x1fff_ff00)).collect();
    let destinations: Vec<u32> = (0..NETWORKS).map(|_| network(&mut random, 0, 0xffff_ff00)).collect();
    let (mut known, mut lines) = (HashSet::with_capacity(count), Vec::with_capacity(count));
    while lines.len() < count {
        let matches = filter(&mut random, &sources, &destinations);
        if known.insert(matches.clone()) {
            let verdict = if random.next().is_multiple_of(2) { "accept" } else { "drop" };
            lines.push(format!("add {matches} {verdict}"));
        }
    }
    lines
}

fn filter(random: &mut Random, sources: &[u32], destinations: &[u32]) -> String {
    let source = prefix(random, sources, &[16, 20, 24, 24, 24, 28, 32, 32, 32]);
    let destination = prefix(random, destinations, &[16, 21, 24, 24, 27, 32, 32, 32]);
    let mut text = format!("ip-saddr {source} ip-daddr {destination}");
    let protocol = match random.next() % 10 {
        0..6 => "tcp",
        6..9 => "udp",
        _ => return text,
    };
    let port = SERVICES[random.next() as usize % SERVICES.len()];
    // Most ports are of the destination: of a service, any, those of clients, or a range.
    let _ = match random.next() % 8 {
        0..4 => write!(text, " {protocol}-dport {port}"),
        4 => write!(text, " ip-proto {protocol}"),
        5 => write!(text, " {protocol}-dport >= 1024"),
        6 => write!(text, " {protocol}-dport {port}-{}", u64::from(port) + 1 + random.next() % 1_000),
        _ => write!(text, " {protocol}-sport {port}"),
    };
    text
}

fn prefix(random: &mut Random, networks: &[u32], lengths: &[u8]) -> String {
    let length = lengths[random.next() as usize % lengths.len()];
    let network = networks[random.next() as usize % networks.len()] | random.next() as u32 & 0xff;
    format!("{}/{length}", Ipv4Addr::from_bits(network).truncated(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_distinct_and_of_several_kinds() {
        let lines = filters(3_000);
        assert_eq!(lines.iter().collect::<HashSet<_>>().len(), 3_000);
        for part in [" tcp-dport 80 ", "/16 ", "/32 ", " udp-dport >= 1024 ", " ip-proto tcp ", "tcp-sport"] {
            let count = lines.iter().filter(|line| line.contains(part)).count();
            assert!((10..2_500).contains(&count), "{part}: {count}");
        }
    }
}
