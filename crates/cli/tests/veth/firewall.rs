//! Verdicts of `firewall` are those of nftables: the same rules, the same packets, connections in all states.
//!
//! A namespace forwards the packets, with the rules in its hook `forward`. What comes out at its other side passed. The
//! function gets the same packets from a file. Rule sets are made here, and those of ClassBench where they are.

use std::collections::BTreeSet;
use std::path::Path;

use netbricks_testkit::mutate::Random;

use crate::nft::{self, find, forwarded};
use crate::nft_packets::{Pair, traffic};

/// Rules in both languages, in the order of the list.
struct Rules {
    name: String,
    /// Lines of a base chain, without counters.
    nft: Vec<String>,
    firewall: Vec<String>,
    pairs: Vec<Pair>,
}

/// The rules with which most firewalls begin.
fn stateful() -> (Vec<String>, Vec<String>) {
    (
        vec!["ct state established,related accept".into(), "ct state invalid drop".into()],
        vec!["allow state established,related".into(), "deny state invalid".into()],
    )
}

fn generated(seed: u64, count: usize, begins: (Vec<String>, Vec<String>)) -> Rules {
    let mut random = Random::new(seed);
    let (mut nft, mut firewall) = begins;
    let pairs: Vec<Pair> = (0..200).map(|_| Pair::any(&mut random)).collect();
    for _ in 0..count {
        let pair = &pairs[random.below(pairs.len())];
        let (mut theirs, mut ours) = (String::new(), String::new());
        let version = if pair.is_v6() { "ip6" } else { "ip" };
        let length = if pair.is_v6() { [32, 64, 128] } else { [8, 16, 32] }[random.below(3)];
        let mut end = |word: &str, nft: &str, address: std::net::IpAddr, random: &mut Random| {
            if random.below(3) == 0 {
                return;
            }
            let prefix = crate::nft_packets::prefix(address, length);
            theirs += &format!("{version} {nft} {prefix} ");
            ours += &format!(" {word} {prefix}");
        };
        end("from", "saddr", pair.client, &mut random);
        let has_from = !theirs.is_empty();
        let (mut to_theirs, mut to_ours) = (String::new(), String::new());
        if random.below(3) > 0 || !has_from {
            let prefix = crate::nft_packets::prefix(pair.server, length);
            to_theirs = format!("{version} daddr {prefix} ");
            to_ours = format!(" to {prefix}");
        }
        let mut protocol = String::new();
        match random.below(4) {
            0 => {}
            1 => {
                let port = pair.server_port;
                to_theirs += &format!("tcp dport {port} ");
                protocol = " tcp".into();
                to_ours += &if to_ours.is_empty() {
                    format!(" to any port {port}")
                } else {
                    format!(" port {port}")
                };
            }
            2 => {
                let low = pair.server_port / 2;
                to_theirs += &format!("udp dport {low}-{} ", pair.server_port);
                protocol = " udp".into();
                let ports = format!("{low}-{}", pair.server_port);
                to_ours += &if to_ours.is_empty() {
                    format!(" to any port {ports}")
                } else {
                    format!(" port {ports}")
                };
            }
            _ => {
                let name = if pair.is_v6() { "icmpv6" } else { "icmp" };
                to_theirs += &format!("{name} type echo-request ");
                protocol = if pair.is_v6() { " icmp6 type 128".into() } else { " icmp type 8".into() };
            }
        }
        let (verdict, action) = if random.below(3) == 0 { ("drop", "deny") } else { ("accept", "allow") };
        nft.push(format!("{theirs}{to_theirs}{verdict}"));
        firewall.push(format!("{action}{protocol}{ours}{to_ours}"));
    }
    Rules { name: format!("generated-{seed}-{count}"), nft, firewall, pairs }
}

/// The first rules of a set of ClassBench; `None` without the set.
fn classbench(name: &str, count: usize, seed: u64) -> Option<Rules> {
    let mut random = Random::new(seed);
    let (mut nft, mut firewall) = stateful();
    let mut pairs = Vec::new();
    for rule in nft::classbench(name, count)? {
        let mut ours = match rule.protocol {
            None if rule.has_ports() => " proto {6, 17}".to_owned(),
            None => String::new(),
            Some(6) => " tcp".into(),
            Some(17) => " udp".into(),
            Some(number) => format!(" proto {number}"),
        };
        ours += " ip4";
        for (word, prefix, ports) in [("from", &rule.from, rule.from_ports), ("to", &rule.to, rule.to_ports)]
        {
            ours += &format!(" {word} {prefix}");
            if rule.has_ports() && ports != nft::ANY_PORT {
                ours += &format!(" port {}-{}", ports.0, ports.1);
            }
        }
        let (verdict, action) = if random.below(4) == 0 { ("drop", "deny") } else { ("accept", "allow") };
        nft.push(format!("{}{verdict}", rule.nft()));
        firewall.push(format!("{action}{ours}"));
        pairs.extend(rule.pair(&mut random));
    }
    (!pairs.is_empty()).then(|| Rules { name: format!("{name}-{count}"), nft, firewall, pairs })
}

/// The packets that the function lets pass, by number, and its counters.
fn passed(lines: &[String], packets: &[Vec<u8>], directory: &Path) -> (BTreeSet<usize>, Vec<u64>) {
    std::fs::write(directory.join("edge.rules"), lines.join("\n")).expect("the directory can be written");
    let function = format!(
        "use = \"firewall\"\nrules = \"edge.rules\"\npick_up = true\ntop = {}\nopening = 100_000",
        lines.len()
    );
    let (report, numbers) = nft::ours(&function, packets, directory);
    let mut counts = vec![0; lines.len()];
    for row in find(&report, "rules") {
        let place: usize =
            row[0].as_str().and_then(|name| name.split(':').next()?.parse().ok()).expect("a place");
        counts[place - 1] = row[1].as_str().and_then(|count| count.parse().ok()).expect("a number");
    }
    (numbers, counts)
}

/// Compares both, and adds what differs to `problems`; `false` where the test cannot run.
fn compare(rules: &Rules, count: usize, seed: u64, problems: &mut Vec<String>) -> bool {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nft-{}", rules.name));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let packets = traffic(&rules.pairs, count, seed);
    let Some((theirs, their_counts)) = forwarded(&rules.nft, &packets, &directory) else { return false };
    let head = ["policy deny".to_owned(), "tracking explicit".to_owned()];
    let lines: Vec<String> = head.into_iter().chain(rules.firewall.iter().cloned()).collect();
    let (ours, our_counts) = passed(&lines, &packets, &directory);
    let mut add = |problem: String| problems.push(format!("{}: {problem}", rules.name));
    for number in theirs.symmetric_difference(&ours).take(20) {
        let by = if theirs.contains(number) { "nftables" } else { "firewall" };
        add(format!("{number} passes {by} only: {}", crate::nft_packets::shown(&packets, *number)));
    }
    if ours.is_empty() || ours.len() == packets.len() {
        add(format!("{} of {} packets pass: it says nothing", ours.len(), packets.len()));
    }
    for (place, (theirs, ours)) in their_counts.iter().zip(&our_counts).enumerate() {
        if theirs != ours {
            let rule = &rules.firewall[place];
            add(format!("rule {}, {rule}: nftables counted {theirs} packets, firewall {ours}", place + 1));
        }
    }
    // The usual order of things, without a word about states.
    if rules.firewall.first().is_some_and(|line| line == "allow state established,related") {
        let (automatic, _) = passed(&rules.firewall[2..], &packets, &directory);
        if automatic != ours {
            add(format!(
                "`tracking automatic` lets {} packets pass, and not {}",
                automatic.len(),
                ours.len()
            ));
        }
    }
    true
}

#[test]
fn verdicts_are_those_of_nftables() {
    let by_state = |theirs: &str, ours: &str| (vec![theirs.to_owned()], vec![ours.to_owned()]);
    let mut all = vec![
        generated(1, 10, stateful()),
        generated(2, 64, stateful()),
        generated(3, 1_000, stateful()),
        generated(4, 20, by_state("ct state new accept", "allow state new")),
        generated(5, 20, by_state("ct state != invalid accept", "allow state not invalid")),
        generated(
            6,
            0,
            (
                vec![
                    "ct state established drop".into(),
                    "ct state related accept".into(),
                    "ct state new accept".into(),
                ],
                vec!["deny state established".into(), "allow state related".into(), "allow state new".into()],
            ),
        ),
    ];
    all.extend(
        ["acl1_1k", "fw1_1k", "ipc1_1k"]
            .iter()
            .enumerate()
            .filter_map(|(seed, name)| classbench(name, 1_000, seed as u64)),
    );
    all.extend(classbench("fw3_10k", 10_000, 9));
    if all.len() < 10 {
        eprintln!("skipped: rule sets of ClassBench are not there");
    }
    let each = 100_000 / all.len() + 1;
    let mut problems = Vec::new();
    for (seed, rules) in all.iter().enumerate() {
        if !compare(rules, each, seed as u64 + 1, &mut problems) {
            return;
        }
    }
    assert!(problems.is_empty(), "differences from nftables:\n{}", problems.join("\n"));
}
