//! The benchmarks of mmb: many rules, masks and TCP options over the trace, each beside few of its kind.

use std::fmt::Write;
use std::net::Ipv4Addr;

use netbricks_buffer::Packet;
use netbricks_core::tables::Address;

use super::super::feed::{CHECKSUM, FLOWS, FRAME, Trace, acl};
use super::{Effect, Feed, Scenario};

/// The rules of a benchmark. All accept: the last one takes what no other does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// So many rules by addresses and ports, made from flows of the trace.
    FiveTuples(usize),
    /// So many rules by addresses and ports, of so many different masks.
    Masks(usize, usize),
    /// So many rules by TCP options and a port or address.
    Options(usize),
    /// So many rules as the firewall's benchmarks and the yardstick in C have them.
    Acl(usize),
    /// One rule, which makes a connection of each flow.
    Connections,
}

/// Rules of the benchmarks of masks.
const MASKED: usize = 10_000;
/// The place of the TCP header in a frame.
const TCP: usize = 34;

/// All of them, with at most so many rules each.
pub(super) fn scenarios(most: usize) -> Vec<Scenario> {
    let of = |name: &str, summary: &str, feed, rules| {
        Scenario::new(format!("mmb-{name}"), summary, "mmb", 1, feed, Effect::Filtered(rules))
    };
    let five_tuples = |rules: usize| {
        let summary = format!("{rules} rules by 5-tuple, 65,536 flows");
        of(&rules.to_string(), &summary, Feed::Trace, Rules::FiveTuples(rules.min(most)))
    };
    let masks = |masks: usize| {
        let rules = MASKED.min(most.max(masks));
        let summary = format!("{MASKED} rules with {masks} different masks, 65,536 flows");
        of(&format!("masks-{masks}"), &summary, Feed::Trace, Rules::Masks(rules, masks))
    };
    let options = |rules: usize| {
        let summary = format!("{rules} rules by TCP options, SYNs of 65,536 flows");
        of(&format!("options-{rules}"), &summary, Feed::Options, Rules::Options(rules.min(most)))
    };
    let acl = |rules: usize| {
        let summary = format!("the rules of acl-{rules}, 65,536 flows");
        of(&format!("acl-{rules}"), &summary, Feed::Trace, Rules::Acl(rules.min(most)))
    };
    let beside = |scenario: Scenario, other: Scenario| Scenario { beside: vec![other], ..scenario };
    let known = "one stateful rule, 65,536 connections, all known";
    let mut all = vec![five_tuples(1)];
    all.extend([64, 1_000, 10_000, 100_000].map(|rules| beside(five_tuples(rules), five_tuples(1))));
    all.extend([masks(26), beside(masks(1_000), masks(26))]);
    all.extend([options(1), beside(options(100_000), options(1))]);
    all.extend([64, 1_000].map(acl));
    let connections = of("connections", known, Feed::Trace, Rules::Connections);
    all.push(beside(connections, five_tuples(1)));
    all
}

impl Rules {
    /// The settings of the function.
    pub(super) fn settings(self, trace: &Trace) -> String {
        let mut lines: Vec<String> = match self {
            Self::FiveTuples(count) => (0..count).map(|rule| five_tuple(trace, rule)).collect(),
            Self::Masks(count, masks) => (0..count).map(|rule| masked(trace, rule, rule % masks)).collect(),
            Self::Options(count) => (0..count).map(|rule| option(trace, rule)).collect(),
            Self::Acl(count) => acl(count).iter().filter_map(|line| by_firewall(line)).collect(),
            Self::Connections => vec!["add-stateful ip-proto udp accept".into()],
        };
        lines.push("add all accept".into());
        // A flow has one entry, as its answers have the same canonical key.
        // Where rules ask for options, a flow takes the room of two.
        format!("lines = {lines:?}\nconnections = {}\nflow_cache = {}\n", 2 * FLOWS, 4 * FLOWS)
    }
}

/// The addresses and ports of the flow from which a rule is made.
fn ends(trace: &Trace, rule: usize) -> ([Ipv4Addr; 2], [u16; 2]) {
    let flow = trace.flow(rule % FLOWS);
    let address = |at: usize| Ipv4Addr::new(flow[at], flow[at + 1], flow[at + 2], flow[at + 3]);
    let port = |at: usize| u16::from_be_bytes([flow[at], flow[at + 1]]);
    ([address(0), address(4)], [port(8), port(10)])
}

fn prefix(address: Ipv4Addr, length: usize) -> String {
    format!("{}/{length}", address.truncated(length as u8))
}

/// A rule of the firewall's benchmarks in mmb's words; `None` for what is no rule of a 5-tuple.
fn by_firewall(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let action = if words.next()? == "allow" { "accept" } else { "drop" };
    let protocol = words.next().filter(|word| matches!(*word, "tcp" | "udp"))?;
    let (source, destination, ports) = (words.nth(1)?, words.nth(1)?, words.nth(1)?);
    Some(format!(
        "add ip-proto {protocol} ip-saddr {source} ip-daddr {destination} {protocol}-dport {ports} {action}"
    ))
}

fn five_tuple(trace: &Trace, rule: usize) -> String {
    let ([source, destination], [_, port]) = ends(trace, rule);
    let (source, destination) = (prefix(source, 16 + rule % 17), prefix(destination, 24));
    let (low, high) = (port.saturating_sub(50), port.saturating_add(50));
    format!("add ip-saddr {source} ip-daddr {destination} udp-dport {low}-{high} accept")
}

/// A rule with the mask of this number.
///
/// Its prefixes have 16 to 32 and 8 to 32 bits, and each port is compared or not.
fn masked(trace: &Trace, rule: usize, mask: usize) -> String {
    let ([source, destination], [from, to]) = ends(trace, rule);
    let (source, destination) =
        (prefix(source, 16 + mask % 17), prefix(destination, 8 + (24 + mask / 17 * 11) % 25));
    let mut line = format!("add ip-saddr {source} ip-daddr {destination}");
    for (bit, name, port) in [(1, "sport", from), (2, "dport", to)] {
        if (mask / 425) & bit != 0 {
            let _ = write!(line, " udp-{name} {port}");
        }
    }
    line + " accept"
}

fn option(trace: &Trace, rule: usize) -> String {
    let ([source, destination], [from, to]) = ends(trace, rule);
    match rule % 4 {
        0 => format!("add tcp-opt-mss 1460 tcp-dport {to} ip-saddr {source} accept"),
        1 => format!("add tcp-opt-mss {} accept", 1_461 + rule % 60_000),
        2 => format!("add tcp-opt-sackp ! tcp-opt-timestamp tcp-sport {from} ip-daddr {destination} accept"),
        _ => format!("add tcp-opt {} ip-daddr {} accept", 30 + rule % 200, prefix(destination, 24)),
    }
}

/// The frame of a packet of the trace as a SYN with MSS 1460 and SACK permitted.
pub(super) fn syn(trace: &Trace, number: usize) -> [u8; FRAME] {
    let mut frame = trace.frame(number);
    frame[23] = 6;
    frame[CHECKSUM].fill(0);
    let checksum = netbricks_packet::checksum::internet(&frame[14..TCP]);
    frame[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    frame[TCP + 4..TCP + 12].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 0]);
    // A header of 28 bytes, SYN, and a window of 65,535; the checksum is never asked for.
    frame[TCP + 12..TCP + 20].copy_from_slice(&[0x70, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    frame[TCP + 20..TCP + 28].copy_from_slice(&[2, 4, 0x05, 0xb4, 4, 2, 1, 1]);
    frame
}

/// Writes [`syn`] into a packet.
pub(super) fn write_syn(trace: &Trace, number: usize, packet: &mut Packet) {
    if packet.len() == FRAME {
        packet.data_mut().copy_from_slice(&syn(trace, number));
    }
}

/// Packets and bytes of all rules, as the function's handler `list` tells them.
pub(super) fn counted(list: &str) -> Option<(u64, u64)> {
    let rules: serde_json::Value = serde_json::from_str(list).ok()?;
    let count = |rule: &serde_json::Value| Some((rule["packets"].as_u64()?, rule["bytes"].as_u64()?));
    rules["rules"].as_array()?.iter().try_fold((0, 0), |(packets, bytes), rule| {
        let (more, longer) = count(rule)?;
        Some((packets + more, bytes + longer))
    })
}
