//! nftables in a namespace, which tests compare with: rule sets of ClassBench, and what such rules let pass.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use netbricks_testkit::captures;
use netbricks_testkit::mutate::Random;
use netbricks_testkit::namespace::{Namespaces, eventually};

use crate::nft_packets::Pair;

/// One rule of ClassBench.
pub(crate) struct FiveTuple {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The first and last ports; 0 and 65,535 for any.
    pub(crate) from_ports: (u16, u16),
    pub(crate) to_ports: (u16, u16),
    /// `None` for any.
    pub(crate) protocol: Option<u8>,
}

/// All ports.
pub(crate) const ANY_PORT: (u16, u16) = (0, 65_535);

impl FiveTuple {
    /// A line of a set, as ClassBench writes it.
    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.trim_start_matches('@').split_whitespace().collect();
        let [from, to, from_low, _, from_high, to_low, _, to_high, protocol, ..] = parts[..] else {
            return None;
        };
        let ports = |low: &str, high: &str| Some((low.parse().ok()?, high.parse().ok()?));
        let protocol = match protocol.ends_with("/0x00") {
            true => None,
            false => Some(u8::from_str_radix(protocol.get(2..4)?, 16).ok()?),
        };
        Some(Self {
            from: from.into(),
            to: to.into(),
            from_ports: ports(from_low, from_high)?,
            to_ports: ports(to_low, to_high)?,
            protocol,
        })
    }

    /// Whether it has a condition on ports, in a protocol that has them.
    pub(crate) fn has_ports(&self) -> bool {
        matches!(self.protocol, None | Some(6 | 17))
            && (self.from_ports, self.to_ports) != (ANY_PORT, ANY_PORT)
    }

    /// Its conditions in the words of nftables.
    pub(crate) fn nft(&self) -> String {
        let mut text = format!("ip version 4 ip saddr {} ip daddr {} ", self.from, self.to);
        // nftables has no prefix of length 0.
        for end in ["saddr", "daddr"] {
            text = text.replace(&format!("ip {end} 0.0.0.0/0 "), "");
        }
        text += &match self.protocol {
            None if self.has_ports() => "meta l4proto { tcp, udp } ".into(),
            None => String::new(),
            Some(6) => "meta l4proto tcp ".into(),
            Some(17) => "meta l4proto udp ".into(),
            Some(number) => format!("meta l4proto {number} "),
        };
        for (word, ports) in [("sport", self.from_ports), ("dport", self.to_ports)] {
            if self.has_ports() && ports != ANY_PORT {
                text += &format!("th {word} {}-{} ", ports.0, ports.1);
            }
        }
        text
    }

    /// Ends that it means, if the kernel forwards packets between them.
    pub(crate) fn pair(&self, random: &mut Random) -> Option<Pair> {
        let mut port = |(low, high): (u16, u16)| -> u16 {
            let width = u64::from(high.saturating_sub(low)) + 1;
            (u64::from(low) + random.next() % width) as u16
        };
        let ports = (port(self.from_ports), port(self.to_ports));
        Pair::within(&self.from, &self.to, ports, self.protocol == Some(6), random)
    }
}

/// The first rules of a set of ClassBench; `None` without the set.
pub(crate) fn classbench(name: &str, count: usize) -> Option<Vec<FiveTuple>> {
    let folder = std::env::var_os("NETBRICKS_CLASSBENCH").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/classbench"),
        PathBuf::from,
    );
    let unpacked =
        Command::new("gzip").arg("-dc").arg(folder.join(name).with_extension("gz")).output().ok()?;
    let text = String::from_utf8(unpacked.stdout).ok()?;
    let rules: Vec<FiveTuple> = text.lines().take(count).filter_map(FiveTuple::parse).collect();
    (!rules.is_empty()).then_some(rules)
}

/// The packets that a namespace forwards with these rules, by number.
pub(crate) fn forwarded(
    rules: &[String],
    packets: &[Vec<u8>],
    directory: &Path,
) -> Option<(BTreeSet<usize>, Vec<u64>)> {
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
    for rule in rules {
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

/// The rows of a section, wherever the report has it.
pub(crate) fn find(report: &serde_json::Value, title: &str) -> Vec<serde_json::Value> {
    match report {
        serde_json::Value::Object(map) if map.get("title").is_some_and(|found| found == title) => {
            map.get("rows").and_then(|rows| rows.as_array().cloned()).unwrap_or_default()
        }
        serde_json::Value::Object(map) => map.values().flat_map(|value| find(value, title)).collect(),
        serde_json::Value::Array(all) => all.iter().flat_map(|value| find(value, title)).collect(),
        _ => Vec::new(),
    }
}

/// Runs a chain with a function over packets: its report, and the numbers of the packets that it lets pass.
pub(crate) fn ours(
    function: &str,
    packets: &[Vec<u8>],
    directory: &Path,
) -> (serde_json::Value, BTreeSet<usize>) {
    captures::write(&directory.join("sent.pcap"), packets);
    let text = format!(
        "[port.in]\ndriver = \"pcap\"\nread = \"sent.pcap\"\n[port.out]\ndriver = \"pcap\"\nwrite = \"ours.pcap\"\n\
         [function.edge]\n{function}\n[[chain]]\nfrom = \"in\"\nthrough = [\"edge\"]\nto = \"out\"\n"
    );
    let file = directory.join("ours.toml");
    std::fs::write(&file, text).expect("the directory can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_netbricks")).args(["run", "--json"]).arg(&file).output();
    let output = output.expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["conserved"], true);
    let frames = captures::frames(&directory.join("ours.pcap"));
    (report, frames.iter().filter_map(|frame| crate::nft_packets::number(frame)).collect())
}
