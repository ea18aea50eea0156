//! The cost of reading a packet: parses, keys, hashes, checksums, printing. `cargo bench -p netbricks-packet`

use divan::{Bencher, black_box, counter::BytesCount};
use netbricks_packet::build::ethernet;
use netbricks_packet::checksum;
use netbricks_packet::print::one_line;
use netbricks_packet::stack::{Layer, Root};
use netbricks_packet::{FlowKey, HashKey, Ip, Link, Tcp};

fn main() {
    divan::main();
}

fn frame(vlans: usize, v6: bool) -> Vec<u8> {
    let payload = [7; 40];
    let built = match (vlans, v6) {
        (0, false) => ethernet().ipv4("10.0.0.1", "10.0.0.2").tcp(1000, 80).payload(&payload).build(),
        (_, false) => ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").tcp(1000, 80).payload(&payload).build(),
        (0, true) => ethernet().ipv6("2001:db8::1", "2001:db8::2").tcp(1000, 80).payload(&payload).build(),
        _ => ethernet().vlan(7).ipv6("2001:db8::1", "2001:db8::2").tcp(1000, 80).payload(&payload).build(),
    };
    built.expect("the packet is well formed")
}

#[divan::bench(args = [(0, false), (1, false), (0, true), (1, true)])]
fn parse_link_ip_tcp(bencher: Bencher, (vlans, v6): (usize, bool)) {
    let frame = frame(vlans, v6);
    bencher.bench_local(|| {
        let frame = black_box(&frame[..]);
        let link = Layer::<_, Link>::parse(Root, frame)?;
        let ip = Layer::<_, Ip>::parse(link, frame)?;
        Layer::<_, Tcp>::parse(ip, frame)
    });
}

#[divan::bench(args = [false, true])]
fn flow_key(bencher: Bencher, v6: bool) {
    let frame = frame(0, v6);
    bencher.bench_local(|| FlowKey::from_frame(black_box(&frame)));
}

#[divan::bench]
fn symmetric_hash(bencher: Bencher) {
    let key = HashKey::new([1, 2]);
    let flow = FlowKey::from_frame(&frame(0, false)).expect("the packet has a flow");
    bencher.bench_local(|| key.symmetric(black_box(&flow)));
}

#[divan::bench(args = [20, 64, 1500, 9000])]
fn internet_checksum(bencher: Bencher, len: usize) {
    let bytes = vec![0x5a; len];
    bencher.counter(BytesCount::new(len)).bench_local(|| checksum::internet(black_box(&bytes)));
}

#[divan::bench]
fn print_one_line(bencher: Bencher) {
    let frame = frame(1, false);
    bencher.bench_local(|| one_line(black_box(&frame)).to_string());
}
