//! Verdicts of `firewall` are those of nftables: the same rules, the same packets, connections in all states.
//!
//! A namespace forwards the packets, with the rules in its hook `forward`. What comes out at its other side passed. The
//! function gets the same packets from a file. Rule sets are made here, and those of ClassBench where they are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_testkit::captures;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::namespace::{Namespaces, eventually};

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
    let folder = std::env::var_os("NETBRICKS_CLASSBENCH").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/classbench"),
        PathBuf::from,
    );
    let unpacked =
        Command::new("gzip").arg("-dc").arg(folder.join(name).with_extension("gz")).output().ok()?;
    let text = String::from_utf8(unpacked.stdout).ok()?;
    let mut random = Random::new(seed);
    let (mut nft, mut firewall) = stateful();
    let mut pairs = Vec::new();
    for line in text.lines().take(count) {
        let parts: Vec<&str> = line.trim_start_matches('@').split_whitespace().collect();
        let [from, to, from_low, _, from_high, to_low, _, to_high, protocol, ..] = parts[..] else {
            continue;
        };
        let is_tcp = protocol.starts_with("0x06");
        let is_any = protocol.ends_with("/0x00");
        let known =
            [("0x06", "tcp"), ("0x11", "udp")].into_iter().find(|(number, _)| protocol.starts_with(number));
        let has_ports = (from_low, from_high, to_low, to_high) != ("0", "65535", "0", "65535");
        let (mut theirs, mut ours) = (format!("ip saddr {from} ip daddr {to} "), String::new());
        match (is_any, known) {
            (true, _) if has_ports => {
                theirs += "meta l4proto { tcp, udp } ";
                ours += " proto {6, 17}";
            }
            (true, _) => {}
            (false, Some((_, name))) => {
                theirs += &format!("meta l4proto {name} ");
                ours += &format!(" {name}");
            }
            (false, None) => {
                let number = u8::from_str_radix(protocol.get(2..4)?, 16).ok()?;
                theirs += &format!("meta l4proto {number} ");
                ours += &format!(" proto {number}");
            }
        }
        let can_have_ports = is_any || known.is_some();
        ours += &format!(" ip4 from {from}");
        for (word, nft, low, high) in [("", "sport", from_low, from_high), (" to", "dport", to_low, to_high)]
        {
            if word == " to" {
                ours += &format!(" to {to}");
            }
            if can_have_ports && (low, high) != ("0", "65535") {
                theirs += &format!("th {nft} {low}-{high} ");
                ours += &format!(" port {low}-{high}");
            }
        }
        let (verdict, action) = if random.below(4) == 0 { ("drop", "deny") } else { ("accept", "allow") };
        // nftables has no prefix of length 0, and no range of one value.
        let theirs = theirs.replace("ip saddr 0.0.0.0/0 ", "").replace("ip daddr 0.0.0.0/0 ", "");
        nft.push(format!("ip version 4 {theirs}{verdict}"));
        firewall.push(format!("{action}{ours}"));
        let port = |low: &str, high: &str, random: &mut Random| -> u16 {
            let (low, high): (u32, u32) = (low.parse().unwrap_or(0), high.parse().unwrap_or(0));
            (low + random.next() as u32 % (high - low + 1)) as u16
        };
        let ports = (port(from_low, from_high, &mut random), port(to_low, to_high, &mut random));
        pairs.extend(Pair::within(from, to, ports, is_tcp, &mut random));
    }
    (!pairs.is_empty()).then(|| Rules { name: format!("{name}-{count}"), nft, firewall, pairs })
}

/// The packets that a namespace forwards with these rules, by number.
fn forwarded(rules: &Rules, packets: &[Vec<u8>], directory: &Path) -> Option<(BTreeSet<usize>, Vec<u64>)> {
    let names = Namespaces::new(&["client", "router", "server"], &["nft"])?;
    names.veth(("router", "r0"), ("client", "c0"));
    names.veth(("router", "r1"), ("server", "s0"));
    for (role, device) in [("client", "c0"), ("router", "r0"), ("router", "r1"), ("server", "s0")] {
        names.run(role, &format!("ethtool -K {device} tx off rx off tso off gso off gro off"));
    }
    for role in ["client", "server"] {
        names.run(role, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    }
    names.run("router", "ip link set r0 address 02:00:00:00:00:02");
    names.run(
        "router",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
         net.ipv4.conf.r0.rp_filter=0 net.ipv4.conf.r1.rp_filter=0 net.ipv4.conf.all.send_redirects=0",
    );
    names.run("router", "ip address add 10.255.1.1/24 dev r1");
    names.run("router", "ip neighbour add 10.255.1.2 lladdr 02:00:00:00:00:09 dev r1 nud permanent");
    names.run("router", "ip route add default via 10.255.1.2 dev r1");
    names.run("router", "ip -6 neighbour add fe80::9 lladdr 02:00:00:00:00:09 dev r1 nud permanent");
    names.run("router", "ip -6 route add default via fe80::9 dev r1");
    let mut text =
        "table inet firewall {\n chain forward {\n  type filter hook forward priority 0; policy drop;\n"
            .to_owned();
    for rule in &rules.nft {
        let at = rule.rfind(' ').map_or(0, |at| at + 1);
        text += &format!("  {}counter {}\n", &rule[..at], &rule[at..]);
    }
    text += " }\n}\n";
    let file = directory.join("rules.nft");
    std::fs::write(&file, text).expect("the directory can be written");
    names.run("router", &format!("nft -f {}", file.display()));

    captures::write(&directory.join("sent.pcap"), packets);
    let out = directory.join("passed.pcap");
    let receiver = "[port.in]\ndriver = \"af_packet\"\ndevice = \"s0\"\n[port.out]\ndriver = \"pcap\"\nwrite = \"passed.pcap\"\n\
                    [[chain]]\nfrom = \"in\"\nto = \"out\"\n";
    let sender = "[port.in]\ndriver = \"pcap\"\nread = \"sent.pcap\"\n[port.out]\ndriver = \"af_packet\"\ndevice = \"c0\"\n\
                  [[chain]]\nfrom = \"in\"\nto = \"out\"\n";
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("the directory can be written");
        path.display().to_string()
    };
    let said =
        |name: &str| std::fs::File::create(directory.join(name)).expect("the directory can be written");
    let binary = env!("CARGO_BIN_EXE_netbricks");
    let mut receiving = names.start(
        "server",
        binary,
        &["run", &write("receive.toml", receiver)],
        said("received"),
        said("receive.said"),
    );
    eventually("the receiver's port", || {
        assert!(
            receiving.is_running(),
            "{}",
            std::fs::read_to_string(directory.join("receive.said")).expect("it was written")
        );
        names.run("server", "ip -d link show s0").contains("promiscuity 1")
    });
    let received = || -> usize {
        let number = names.run("server", "cat /sys/class/net/s0/statistics/rx_packets");
        number.trim().parse().expect("a number")
    };
    let start = received();
    names.run("client", &format!("{binary} run {}", write("send.toml", sender)));
    // All that will come has come when the number stays.
    let (mut before, mut same) = (start, 0);
    eventually("the last packet", || {
        let now = received();
        same = if now == before { same + 1 } else { 0 };
        before = now;
        same > 25
    });
    let counted = counters(&names.run("router", "nft -j list ruleset"));
    receiving.signal("INT");
    assert!(
        receiving.wait().success(),
        "{}",
        std::fs::read_to_string(directory.join("receive.said")).expect("it was written")
    );
    let frames = captures::frames(&out);
    // A packet of the kernel's own may come while the port opens.
    assert!(
        frames.len() + 8 >= before - start,
        "the receiver lost packets: {} of {}",
        frames.len(),
        before - start
    );
    Some((frames.iter().filter_map(|frame| crate::nft_packets::number(frame)).collect(), counted))
}

/// The packets that each rule counted, in the order of the rules.
fn counters(listed: &str) -> Vec<u64> {
    let listed: serde_json::Value = serde_json::from_str(listed).expect("JSON");
    let rules = listed["nftables"].as_array().expect("a list").iter().filter_map(|item| item.get("rule"));
    let packets = |rule: &serde_json::Value| {
        let expressions = rule["expr"].as_array()?;
        expressions.iter().find_map(|one| one["counter"]["packets"].as_u64())
    };
    rules.filter_map(packets).collect()
}

/// The packets that the function lets pass, by number, and its counters.
fn passed(lines: &[String], packets: &[Vec<u8>], directory: &Path) -> (BTreeSet<usize>, Vec<u64>) {
    std::fs::write(directory.join("edge.rules"), lines.join("\n")).expect("the directory can be written");
    captures::write(&directory.join("sent.pcap"), packets);
    let text = format!(
        "[port.in]\ndriver = \"pcap\"\nread = \"sent.pcap\"\n[port.out]\ndriver = \"pcap\"\nwrite = \"ours.pcap\"\n\
         [function.edge]\nuse = \"firewall\"\nrules = \"edge.rules\"\npick_up = true\ntop = {}\nopening = 100_000\n\
         [[chain]]\nfrom = \"in\"\nthrough = [\"edge\"]\nto = \"out\"\n",
        lines.len()
    );
    let file = directory.join("ours.toml");
    std::fs::write(&file, text).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks")).args(["run", "--json"]).arg(&file).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["conserved"], true);
    let mut counts = vec![0; lines.len()];
    for row in find(&report, "rules") {
        let place: usize =
            row[0].as_str().and_then(|name| name.split(':').next()?.parse().ok()).expect("a place");
        counts[place - 1] = row[1].as_str().and_then(|count| count.parse().ok()).expect("a number");
    }
    let frames = captures::frames(&directory.join("ours.pcap"));
    (frames.iter().filter_map(|frame| crate::nft_packets::number(frame)).collect(), counts)
}

/// The rows of a section, wherever the report has it.
fn find(report: &serde_json::Value, title: &str) -> Vec<serde_json::Value> {
    match report {
        serde_json::Value::Object(map) if map.get("title").is_some_and(|found| found == title) => {
            map.get("rows").and_then(|rows| rows.as_array().cloned()).unwrap_or_default()
        }
        serde_json::Value::Object(map) => map.values().flat_map(|value| find(value, title)).collect(),
        serde_json::Value::Array(all) => all.iter().flat_map(|value| find(value, title)).collect(),
        _ => Vec::new(),
    }
}

/// Compares both, and adds what differs to `problems`; `false` where the test cannot run.
fn compare(rules: &Rules, count: usize, seed: u64, problems: &mut Vec<String>) -> bool {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nft-{}", rules.name));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let packets = traffic(&rules.pairs, count, seed);
    let Some((theirs, their_counts)) = forwarded(rules, &packets, &directory) else { return false };
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
