//! Tests of the requirements by RFC, and of what an operator sees.

mod features;
mod ipv6;
mod link;
mod moves;
mod operator;
mod pcp;
mod requirements;
mod rfc4787;
mod rfc5382;
mod rfc5508;
mod rfc6888;
mod rfc7857;

use std::time::Duration;

use netbricks_core::Settings;
use netbricks_core::packet::FlowKey;
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, Report, checksums};

use super::{NatConfig, node};

const INSIDE: &str = "10.0.0.1";
const OTHER: &str = "10.0.0.2";
const SERVER: &str = "198.51.100.1";
const SERVER_2: &str = "198.51.100.2";
const POOL: &str = "203.0.113.7";

/// Settings for a small network, and `more`.
fn config(more: &str) -> NatConfig {
    let inside = if more.contains("inside = ") { "" } else { "inside = [\"10.0.0.0/8\"]\n" };
    let text = format!("{inside}{more}");
    let pool = if more.contains("pool = ") { "" } else { "pool = [\"203.0.113.7\"]\n" };
    let config: NatConfig =
        toml::from_str(&format!("{pool}{text}")).unwrap_or_else(|error| panic!("{error}"));
    config.check().unwrap_or_else(|error| panic!("{error}"));
    config
}

fn nat(more: &str) -> Clocked {
    let config = config(more);
    Clocked::of_node(move |worker| node(&config, worker))
}

fn udp(from: &str, port: u16, to: &str, to_port: u16) -> Vec<u8> {
    ethernet().ipv4(from, to).udp(port, to_port).payload(b"hello").build().unwrap()
}

fn tcp(from: &str, port: u16, to: &str, to_port: u16, flags: u8) -> Vec<u8> {
    ethernet().ipv4(from, to).tcp(port, to_port).flags(flags).payload(b"").build().unwrap()
}

fn ping(from: &str, to: &str, identifier: u16) -> Vec<u8> {
    ethernet().ipv4(from, to).icmp_echo_request(identifier, 1).payload(b"ping").build().unwrap()
}

fn pong(from: &str, to: &str, identifier: u16) -> Vec<u8> {
    ethernet().ipv4(from, to).icmp_echo_reply(identifier, 1).payload(b"ping").build().unwrap()
}

/// `"10.0.0.1:4000 > 198.51.100.1:53"`, of a frame whose checksums are right.
fn shown(frame: &[u8]) -> String {
    assert_eq!(checksums::wrong(frame), Vec::<String>::new());
    let flow = FlowKey::from_frame(frame).expect("an IP packet");
    format!("{}:{} > {}:{}", flow.source(), flow.source_port(), flow.destination(), flow.destination_port())
}

/// The only frame that left by the main way, and nothing else.
fn only(report: &Report) -> &[u8] {
    assert_eq!((report.out.len(), report.replies.len()), (1, 0), "{:?}", report.drops);
    &report.out[0]
}

/// The outside port of a frame that went outside.
fn source_port(frame: &[u8]) -> u16 {
    FlowKey::from_frame(frame).expect("an IP packet").source_port()
}

/// Sends one frame, which must leave; answers it.
fn through(test: &mut Clocked, frame: Vec<u8>) -> Vec<u8> {
    only(&test.send([frame])).to_vec()
}

/// Opens a UDP session from inside; answers its outside port.
fn open(test: &mut Clocked, from: &str, port: u16, to: &str, to_port: u16) -> u16 {
    source_port(&through(test, udp(from, port, to, to_port)))
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// The value of a count.
fn count(test: &mut Clocked, name: &str) -> u64 {
    let counters = test.call("counters", "");
    let line = counters.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {counters}"))
}
