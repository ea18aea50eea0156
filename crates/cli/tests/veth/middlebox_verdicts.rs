//! Verdicts of mmb are those of nftables: the same rules without states, the same packets.
//!
//! As for `firewall`: a namespace forwards the packets, and the function gets the same packets from a file.

use std::collections::BTreeSet;
use std::path::Path;

use netbricks_testkit::mutate::Random;

use crate::nft::{self, FiveTuple, find, forwarded};
use crate::nft_packets::{Pair, prefix, traffic};

/// Rules in both languages, in the order of the list.
struct Rules {
    name: String,
    /// Lines of a base chain, without counters.
    nft: Vec<String>,
    /// Our rules for each of them: one, or one for each protocol.
    mmb: Vec<Vec<String>>,
    pairs: Vec<Pair>,
}

impl Rules {
    /// Adds a rule, of which every third drops.
    fn push(&mut self, theirs: &str, ours: &[String]) {
        let verdict = if self.nft.len() % 3 == 1 { "drop" } else { "accept" };
        self.nft.push(format!("{theirs}{verdict}"));
        self.mmb.push(ours.iter().map(|matches| format!("add {matches} {verdict}")).collect());
    }
}

/// Matches that say the same: nftables' and ours.
fn matches(pair: &Pair, random: &mut Random) -> (String, String) {
    let (nft, ours) = if pair.is_v6() { ("ip6", "ip6") } else { ("ip", "ip") };
    let length = if pair.is_v6() { [32, 64, 128] } else { [8, 16, 32] }[random.below(3)];
    let (mut theirs, mut own) = (String::new(), Vec::new());
    for (word, address) in [("saddr", pair.client), ("daddr", pair.server)] {
        let prefix = prefix(address, length);
        match random.below(5) {
            0 | 1 => {
                theirs += &format!("{nft} {word} {prefix} ");
                own.push(format!("{ours}-{word} {prefix}"));
            }
            2 => {
                theirs += &format!("{nft} {word} != {prefix} ");
                own.push(format!("! {ours}-{word} {prefix}"));
            }
            _ => {}
        }
    }
    let port = pair.server_port;
    let (more, matched) = match random.below(9) {
        0 if !own.is_empty() => (String::new(), String::new()),
        1 => (format!("udp dport {}-{port} ", port / 2), format!("udp-dport {}-{port}", port / 2)),
        2 => (format!("tcp dport != {port} "), format!("! tcp-dport {port}")),
        3 => ("tcp dport { 22, 80, 443 } ".into(), "tcp-dport {22, 80, 443}".into()),
        4 => ("tcp flags & (syn | ack) == syn ".into(), "tcp-syn ! tcp-ack".into()),
        5 => ("tcp option sack-permitted exists ".into(), "tcp-opt-sackp".into()),
        6 => ("tcp flags syn tcp option window missing ".into(), "tcp-syn ! tcp-opt-wscale".into()),
        7 if pair.is_v6() => ("icmpv6 type echo-request ".into(), "icmp6-type 128".into()),
        7 => ("icmp type echo-request ".into(), "icmp-type 8".into()),
        _ => (format!("tcp dport {port} "), format!("tcp-dport {port}")),
    };
    own.extend((!matched.is_empty()).then_some(matched));
    (theirs + &more, own.join(" "))
}

fn generated(seed: u64, count: usize) -> Rules {
    let mut random = Random::new(seed);
    let pairs: Vec<Pair> = (0..200).map(|_| Pair::any(&mut random)).collect();
    let name = format!("generated-{seed}-{count}");
    let mut rules = Rules { name, nft: Vec::new(), mmb: Vec::new(), pairs };
    for _ in 0..count {
        let pair = rules.pairs[random.below(rules.pairs.len())].clone();
        let (theirs, ours) = matches(&pair, &mut random);
        rules.push(&theirs, &[ours]);
    }
    rules
}

/// A rule of ClassBench for this protocol.
fn five_tuple(rule: &FiveTuple, protocol: Option<u8>) -> String {
    let mut text = format!("ip-saddr {} ip-daddr {}", rule.from, rule.to);
    if let Some(number) = protocol {
        text += &format!(" ip-proto {number}");
    }
    let name = if protocol == Some(6) { "tcp" } else { "udp" };
    for (word, ports) in [("sport", rule.from_ports), ("dport", rule.to_ports)] {
        if rule.has_ports() && ports != nft::ANY_PORT {
            text += &format!(" {name}-{word} {}-{}", ports.0, ports.1);
        }
    }
    text
}

/// The first rules of a set of ClassBench; `None` without the set.
fn classbench(set: &str, count: usize, seed: u64) -> Option<Rules> {
    let mut random = Random::new(seed);
    let mut rules =
        Rules { name: format!("{set}-{count}"), nft: Vec::new(), mmb: Vec::new(), pairs: Vec::new() };
    for rule in nft::classbench(set, count)? {
        // Ports are TCP's or UDP's here.
        let ours = match rule.protocol {
            None if rule.has_ports() => vec![five_tuple(&rule, Some(6)), five_tuple(&rule, Some(17))],
            protocol => vec![five_tuple(&rule, protocol)],
        };
        rules.push(&rule.nft(), &ours);
        rules.pairs.extend(rule.pair(&mut random));
    }
    (!rules.pairs.is_empty()).then_some(rules)
}

/// The packets that the function lets pass, by number, and the packets of each of nftables' rules.
///
/// There are no counts where the report leaves rules out.
fn passed(rules: &Rules, packets: &[Vec<u8>], directory: &Path) -> (BTreeSet<usize>, Option<Vec<u64>>) {
    let lines: Vec<&str> = rules.mmb.iter().flatten().map(String::as_str).collect();
    let text = format!("policy drop\n{}\n", lines.join("\n"));
    std::fs::write(directory.join("edge.mmb"), text).expect("the directory can be written");
    let (report, numbers) = nft::ours("use = \"mmb\"\nrules = \"edge.mmb\"", packets, directory);
    let rows = find(&report, "rules");
    let mut counts = vec![0; lines.len()];
    for row in &rows {
        let place: usize =
            row[0].as_str().and_then(|name| name.split(' ').next()?.parse().ok()).expect("a place");
        counts[place - 1] = row[1].as_str().and_then(|count| count.parse().ok()).expect("a number");
    }
    let mut counts = counts.into_iter();
    let sums = rules.mmb.iter().map(|rules| counts.by_ref().take(rules.len()).sum()).collect();
    (numbers, (rows.len() < 1_000).then_some(sums))
}

/// Compares both, and adds what differs to `problems`; `false` where the test cannot run.
fn compare(rules: &Rules, count: usize, seed: u64, problems: &mut Vec<String>) -> bool {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nft-mmb-{}", rules.name));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let packets = traffic(&rules.pairs, count, seed);
    let Some((theirs, their_counts)) = forwarded(&rules.nft, &packets, &directory) else { return false };
    let (ours, our_counts) = passed(rules, &packets, &directory);
    let mut add = |problem: String| problems.push(format!("{}: {problem}", rules.name));
    for number in theirs.symmetric_difference(&ours).take(20) {
        let by = if theirs.contains(number) { "nftables" } else { "mmb" };
        add(format!("{number} passes {by} only: {}", crate::nft_packets::shown(&packets, *number)));
    }
    if their_counts.iter().all(|count| *count == 0) {
        add("no rule met a packet: it says nothing".into());
    }
    // A few rules may have one verdict for all packets that meet them.
    if rules.nft.len() > 10 && (ours.is_empty() || ours.len() == packets.len()) {
        add(format!("{} of {} packets pass: it says nothing", ours.len(), packets.len()));
    }
    for (place, (theirs, ours)) in their_counts.iter().zip(our_counts.iter().flatten()).enumerate() {
        if theirs != ours {
            let rule = &rules.mmb[place];
            add(format!("rule {}, {rule:?}: nftables counted {theirs} packets, mmb {ours}", place + 1));
        }
    }
    true
}

#[test]
fn verdicts_of_mmb_are_those_of_nftables() {
    let mut all = vec![generated(1, 10), generated(2, 100), generated(3, 1_000)];
    for (seed, set) in ["acl1_10k", "fw1_10k", "ipc1_10k"].iter().enumerate() {
        all.extend([10, 1_000, 10_000].iter().filter_map(|count| classbench(set, *count, seed as u64)));
    }
    if all.len() < 12 {
        eprintln!("skipped: rule sets of ClassBench are not there");
    }
    let each = 100_000 / all.len() + 1;
    let mut problems = Vec::new();
    for (seed, rules) in all.iter().enumerate() {
        if !compare(rules, each.min(50_000), seed as u64 + 1, &mut problems) {
            return;
        }
    }
    assert!(problems.is_empty(), "differences from nftables:\n{}", problems.join("\n"));
}
