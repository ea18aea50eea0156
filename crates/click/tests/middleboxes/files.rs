//! All files: they can be read, flattened and run, and lose no packet.

use netbricks_click::classes::Known;
use netbricks_click::instances::{self, InstancesSettings};
use netbricks_click::language::{Configuration, Errors, Source, parse};
use netbricks_core::buffer::Pool;
use netbricks_core::{Blueprint, GraphBuilder, Worker};
use netbricks_testkit::build::ethernet;

use crate::harness::{Middlebox, folder, frame};

/// The middleboxes of section 9 of the paper, and those of its table 1 beside them.
const FILES: [&str; 20] = [
    "bras.click",
    "cgn.click",
    "congestion.click",
    "ddos.click",
    "dpi.click",
    "firewall.click",
    "flow-monitor.click",
    "ids.click",
    "ip-router.click",
    "ips.click",
    "ipsec-tunnel.click",
    "ipv6-proxy.click",
    "load-balancer.click",
    "mirror.click",
    "monitor.click",
    "multicast.click",
    "nat.click",
    "traffic-shaper.click",
    "tunnel.click",
    "wire.click",
];

fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry"))
        .map(|entry| {
            (entry.file_name().into_string().expect("a name"), std::fs::read_to_string(entry.path()))
        })
        .filter(|(name, _)| name.ends_with(".click"))
        .map(|(name, text)| (name, text.expect("a text")))
        .collect();
    files.sort();
    files
}

fn read(name: &str, text: &str) -> Configuration {
    let errors = Errors::collected();
    let source = Source { text, file: name, is_expression: false };
    let configuration = parse(&source, &[], &Known, &|_| None, &errors);
    assert_eq!(errors.lines(), Vec::<String>::new(), "{name}");
    configuration
}

/// Elements by name, class and configuration, and connections by name.
fn content(of: &Configuration) -> (Vec<[String; 3]>, Vec<String>) {
    let elements = of.elements.iter().map(|one| [one.name.clone(), one.class.clone(), one.config.clone()]);
    let name = |end: (usize, usize)| format!("{}:{}", of.elements[end.0].name, end.1);
    let connections = of.connections.iter().map(|one| format!("{} {}", name(one.from), name(one.to)));
    let (mut elements, mut connections): (Vec<_>, Vec<_>) = (elements.collect(), connections.collect());
    elements.sort();
    connections.sort();
    (elements, connections)
}

#[test]
fn every_file_has_a_test_and_says_how_to_use_it() {
    let known: Vec<String> = files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, FILES);
    for (name, text) in files() {
        let head: String = text.lines().take_while(|line| line.starts_with("//")).collect();
        assert!(["Devices: ", "Run it: ", "Handlers: "].iter().all(|part| head.contains(part)), "{name}");
        assert!(text.contains("FromDevice(0)") && !text.contains("Socket"), "{name}");
    }
}

#[test]
fn every_file_flattens_to_the_same_configuration() {
    for (name, text) in files() {
        let whole = read(&name, &text);
        let flat = whole.to_click();
        let again = read(&name, &flat);
        assert_eq!(content(&whole), content(&again), "{name}");
        assert_eq!(flat, again.to_click(), "{name}");
    }
}

/// Frames of many kinds, some of them broken.
fn traffic() -> Vec<Vec<u8>> {
    let mut frames = vec![
        vec![],
        vec![0; 13],
        vec![0xFF; 60],
        frame(ethernet().arp_request("10.0.0.5", "10.0.0.1")),
        frame(ethernet().arp_reply("10.0.0.5", "10.0.0.1")),
        frame(ethernet().vlan(7).ipv4("10.0.0.5", "10.0.0.1").udp(1, 2)),
        frame(ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(1, 2).payload(b"six")),
        frame(ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1, 80)),
    ];
    for mac in ["02:00:00:00:00:10", "02:00:00:00:00:11", "ff:ff:ff:ff:ff:ff"] {
        for to in ["192.168.1.7", "8.8.8.8", "10.2.0.1", "203.0.113.1", "224.0.0.5", "255.255.255.255"] {
            for from in ["10.0.0.5", "192.168.0.7", "100.64.0.9", "8.8.4.4"] {
                let start = || ethernet().destination(mac).ipv4(from, to);
                frames.push(frame(start().udp(5000, 53).payload(b"question")));
                frames.push(frame(start().ttl(1).tcp(5000, 80).flags(2)));
                frames.push(frame(start().icmp_echo_request(1, 2)));
                frames.push(frame(start().option(7, &[4, 0, 0, 0, 0]).udp(1, 2)));
                frames.push(frame(start().udp(1, 2).payload(&[7; 1700])));
                frames.push(frame(start().dont_fragment().udp(1, 2).payload(&[7; 1700])));
                frames.push(frame(start().fragment(100, true).protocol(17).payload(&[0; 8])));
                frames.push(frame(start().icmp_unreachable(1, &frames[8][14..])));
                frames.push(frame(start().gre().key(7).ipv4(to, from).udp(1, 2)));
                frames.push(frame(start().protocol(2).payload(&[0x16, 0, 0, 0, 239, 1, 1, 1])));
            }
        }
        frames.push(frame(ethernet().destination(mac).pppoe(1).ipv4("100.64.0.11", "8.8.8.8").udp(1, 2)));
    }
    // The same ones cut short, and with a byte changed.
    let mut broken = Vec::new();
    for (number, one) in frames.iter().enumerate() {
        let mut cut = one.clone();
        cut.truncate(one.len() * (number % 7) / 7);
        let mut changed = one.clone();
        if let Some(byte) = changed.get_mut(number * 11 % 64) {
            *byte ^= 1 << (number % 8);
        }
        broken.extend([cut, changed]);
    }
    frames.extend(broken);
    frames
}

#[test]
fn no_file_loses_a_packet() {
    let frames = traffic();
    for name in FILES {
        for burst in [1, 32] {
            let mut middlebox = Middlebox::load(name, &[], burst);
            // The harness sees after each step that received + created = sent + dropped + held.
            for chunk in frames.chunks(97) {
                middlebox.routed(0, chunk.to_vec());
                middlebox.routed(1, chunk.to_vec());
                middlebox.advance(std::time::Duration::from_millis(200));
            }
            middlebox.finish();
        }
    }
}

#[test]
fn every_file_runs_as_an_instance() {
    let pool = Pool::builder().frames(2048).build().expect("memory");
    let worker: &'static Worker = Box::leak(Box::new(Worker::new(0, 1, pool.clone())));
    let mut graph = GraphBuilder::new("test");
    let settings = InstancesSettings::default();
    let blueprint = Blueprint::new(move |worker: &Worker| instances::node(&settings, worker));
    graph.add_function("host", &blueprint, worker).expect("the host");
    let mut graph = graph.build(pool).expect("a graph");
    for (name, text) in files() {
        let box_ = name.trim_end_matches(".click");
        let mut call = |handler: &str, argument: &str| {
            graph.call("host", handler, argument).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        call("create", &format!("{box_} ports=2"));
        let answer = call("install", &format!("{box_}\n{text}"));
        assert!(answer.starts_with(&format!("{box_} runs ")), "{answer}");
        call("destroy", box_);
    }
}
