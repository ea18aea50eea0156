//! Imported rules decide as the firewall does: against a naive reading of the same rules, and connection by connection.

use netbricks_core::Worker;
use netbricks_core::packet::tcp::flags;
use netbricks_mmb::import::{ImportOptions, iptables};
use netbricks_mmb::{MmbSettings, node};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, run_node};
use proptest::prelude::*;

/// A packet of the property test: the sender's last byte, TCP or UDP, the receiver's port.
#[derive(Clone, Copy, Debug)]
struct Packet {
    sender: u8,
    is_tcp: bool,
    port: u16,
}

impl Packet {
    fn all() -> Vec<Self> {
        let of = |sender| {
            [true, false]
                .into_iter()
                .flat_map(move |is_tcp| [22, 80, 443].map(|port| Self { sender, is_tcp, port }))
        };
        (0..4).flat_map(of).collect()
    }
    fn frame(self) -> Vec<u8> {
        let ip = ethernet().ipv4(format!("10.0.0.{}", self.sender).as_str(), "192.0.2.7");
        match self.is_tcp {
            true => ip.tcp(4_000, self.port).flags(flags::SYN).build().unwrap(),
            false => ip.udp(4_000, self.port).build().unwrap(),
        }
    }
}

/// Whether ports are others than these, and the range.
type Ports = Option<(bool, u16, u16)>;

/// A rule about senders, a protocol and its ports; a flag says that they must not be these.
#[derive(Clone, Debug)]
struct Rule {
    sender: Option<(bool, u8)>,
    transport: Option<(bool, Ports)>,
    target: &'static str,
}

impl Rule {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some((is_not, pair)) = self.sender {
            text += &format!("{}-s 10.0.0.{}/31 ", if is_not { "! " } else { "" }, pair * 2);
        }
        if let Some((is_tcp, ports)) = self.transport {
            let name = if is_tcp { "tcp" } else { "udp" };
            text += &format!("-p {name} ");
            if let Some((is_not, low, high)) = ports {
                text += &format!("-m {name} {}--dport {low}:{high} ", if is_not { "! " } else { "" });
            }
        }
        text + self.target
    }
    fn matches(&self, packet: Packet) -> bool {
        self.sender.is_none_or(|(is_not, pair)| (packet.sender / 2 == pair) != is_not)
            && self.transport.is_none_or(|(is_tcp, ports)| {
                packet.is_tcp == is_tcp
                    && ports.is_none_or(|(is_not, low, high)| (low..=high).contains(&packet.port) != is_not)
            })
    }
}

fn rule(targets: &'static [&'static str]) -> impl Strategy<Value = Rule> {
    let ports = prop::option::of((any::<bool>(), prop::sample::select(vec![(22, 22), (80, 443), (0, 100)])));
    let transport = prop::option::of((any::<bool>(), ports));
    (prop::option::of((any::<bool>(), 0..2u8)), transport, prop::sample::select(targets)).prop_map(
        |(sender, transport, target)| Rule {
            sender,
            transport: transport
                .map(|(is_tcp, ports)| (is_tcp, ports.map(|(is_not, (low, high))| (is_not, low, high)))),
            target,
        },
    )
}

/// Whether the chain of this number accepts; `None` where the packet comes back.
fn naive(chains: &[Vec<Rule>; 3], at: usize, packet: Packet) -> Option<bool> {
    for rule in chains[at].iter().filter(|rule| rule.matches(packet)) {
        let decided = match rule.target {
            "-j ACCEPT" => return Some(true),
            "-j DROP" => return Some(false),
            "-j RETURN" => return None,
            "-j a" => naive(chains, 1, packet),
            "-j b" => naive(chains, 2, packet),
            "-g a" => return naive(chains, 1, packet),
            _ => return naive(chains, 2, packet),
        };
        if decided.is_some() {
            return decided;
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn imported_rules_decide_as_a_naive_reading(
        base in prop::collection::vec(rule(&["-j ACCEPT", "-j DROP", "-j RETURN", "-j a", "-g a", "-j b", "-g b"]), 0..5),
        a in prop::collection::vec(rule(&["-j ACCEPT", "-j DROP", "-j RETURN", "-j b", "-g b"]), 0..4),
        b in prop::collection::vec(rule(&["-j ACCEPT", "-j DROP", "-j RETURN"]), 0..4),
        drops in any::<bool>(),
    ) {
        let chains = [base, a, b];
        let policy = if drops { "DROP" } else { "ACCEPT" };
        let mut text = format!("*filter\n:FORWARD {policy} [0:0]\n:a - [0:0]\n:b - [0:0]\n");
        for (name, rules) in ["FORWARD", "a", "b"].into_iter().zip(&chains) {
            for rule in rules {
                text += &format!("-A {name} {}\n", rule.text());
            }
        }
        let imported = iptables(&text, &ImportOptions::default());
        prop_assert!(imported.warnings.is_empty(), "{text}\n{imported:?}");
        let settings = MmbSettings::of(imported.lines.iter().map(String::as_str));
        let packets = Packet::all();
        let expected: Vec<Vec<u8>> = packets
            .iter()
            .filter(|packet| naive(&chains, 0, **packet).unwrap_or(!drops))
            .map(|packet| packet.frame())
            .collect();
        let frames: Vec<Vec<u8>> = packets.iter().map(|packet| packet.frame()).collect();
        let report = run_node(move |worker: &Worker| node(&settings, worker), frames);
        prop_assert_eq!(report.out, expected, "{}\n{:#?}", text, imported);
    }
}

fn bench(text: &str) -> Clocked {
    let imported = iptables(text, &ImportOptions::default());
    let settings = MmbSettings::of(imported.lines.iter().map(String::as_str));
    Clocked::of_node(move |worker: &Worker| node(&settings, worker))
}

fn segment(from: (&str, u16), to: (&str, u16), bits: u8) -> Vec<u8> {
    ethernet().ipv4(from.0, to.0).tcp(from.1, to.1).flags(bits).build().unwrap()
}

#[test]
fn connections_begin_by_a_syn_and_their_packets_pass_rules_that_drop_new_ones() {
    let mut bench = bench(
        "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         -A FORWARD -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m state --state NEW -j DROP\n\
         -A FORWARD -s 192.0.2.0/24 -j DROP\n\
         -A FORWARD -s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j ACCEPT\nCOMMIT\n",
    );
    let (client, server) = (("10.0.0.9", 4_000), ("192.0.2.7", 80));
    let mut passes = |frame: Vec<u8>| bench.send([frame]).out.len() == 1;
    assert!(!passes(segment(client, server, flags::ACK)), "it begins no connection");
    assert!(!passes(segment(server, client, flags::SYN | flags::ACK)), "nobody asked");
    assert!(passes(segment(client, server, flags::SYN)));
    assert!(
        passes(segment(server, client, flags::SYN | flags::ACK)),
        "an answer, from a network that may not begin"
    );
    assert!(passes(segment(client, server, flags::ACK)));
    assert!(!passes(segment(("192.0.2.8", 80), client, flags::SYN | flags::ACK)), "another connection");
    bench.finish();
}

#[test]
fn a_forwarded_port_passes_filter_rules_about_the_server_behind_it() {
    let text = "*nat\n:PREROUTING ACCEPT [0:0]\n\
        -A PREROUTING -d 203.0.113.1/32 -p tcp -m tcp --dport 8443 -j DNAT --to-destination 10.0.0.5:443\nCOMMIT\n\
        *filter\n:FORWARD DROP [0:0]\n-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
        -A FORWARD -d 10.0.0.5/32 -p tcp -m tcp --dport 443 -j ACCEPT\nCOMMIT\n";
    let mut bench = bench(text);
    let client = ("198.51.100.9", 4_000);
    let sent = bench.send([segment(client, ("203.0.113.1", 8_443), flags::SYN)]).out;
    assert_eq!(sent, [segment(client, ("10.0.0.5", 443), flags::SYN)]);
    let answer = segment(("10.0.0.5", 443), client, flags::SYN | flags::ACK);
    let sent = bench.send([answer]).out;
    assert_eq!(sent, [segment(("203.0.113.1", 8_443), client, flags::SYN | flags::ACK)]);
    assert!(bench.send([segment(client, ("203.0.113.1", 22), flags::SYN)]).out.is_empty());
    bench.finish();
}
