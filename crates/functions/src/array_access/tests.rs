use std::collections::HashSet;

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{DetachedContext, Node, Settings, Worker, compose};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Clocked, kinds, run_configured};

use super::*;

fn udp(port: u16) -> Vec<u8> {
    ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(port, 53).build().unwrap()
}

#[test]
fn each_packet_updates_the_cells_that_follow_its_port() {
    let mut test = Clocked::configured(array_access, ArrayAccessConfig { accesses: 3 });
    let tcp = ethernet().vlan(7).ipv4("10.0.0.1", "10.0.0.2").tcp(9, 80).build().unwrap();
    let v6 = ethernet().ipv6("2001:db8::1", "2001:db8::2").udp(9, 53).build().unwrap();
    let frames = vec![udp(9), udp(9), tcp, v6, udp(40_000)];
    assert_eq!(test.send(frames.clone()).out, frames);
    assert_eq!((test.call("sum", ""), test.call("cells.occupancy", "")), ("12".into(), "6 65536".into()));
    let (first, other) = (next_cell(9), next_cell(next_cell(40_000)));
    assert_eq!(test.call("cell", &first.to_string()), "3");
    assert_eq!(test.call("cell", &other.to_string()), "1");
    assert_eq!(test.call("cell", "9"), "0");
    test.finish();
}

#[test]
fn the_walk_comes_through_all_cells() {
    let mut seen = HashSet::new();
    let mut cell = 0;
    while seen.insert(cell) {
        cell = next_cell(cell);
    }
    assert_eq!(seen.len(), CELLS);
}

#[test]
fn cells_go_to_another_node_and_broken_ones_do_not() {
    let pool = Pool::builder().frames(8).build().unwrap();
    let worker = Worker::new(0, 1, pool.clone());
    let config = ArrayAccessConfig { accesses: 5 };
    let mut nodes: [Box<dyn Node>; 2] =
        [(); 2].map(|()| compose(&worker, |input| array_access(input, &config, &worker)).unwrap());
    let mut batch = Batch::new();
    assert!(batch.push(pool.packet(&udp(77)).unwrap()).is_ok());
    nodes[0].process(0, &mut batch, &mut DetachedContext::new(pool));
    let (name, bytes) = nodes[0].export().remove(0);
    for at in [0, 7, bytes.len() / 2, bytes.len() - 1] {
        let mut broken = bytes.clone();
        broken[at] ^= 1;
        assert!(nodes[1].import(&name, &broken, 0).is_err(), "byte {at}");
    }
    assert_eq!(nodes[1].call("sum", ""), Ok("0".into()));
    nodes[1].import(&name, &bytes, 0).unwrap();
    assert_eq!(nodes[1].call("sum", ""), Ok("5".into()));
    assert!(nodes[1].call("cell", "65536").is_err());
}

#[test]
fn every_kind_passes_unchanged() {
    let frames: Vec<_> =
        kinds::every().into_iter().filter(|(name, _)| *name != "runt").map(|(_, frame)| frame).collect();
    let config = ArrayAccessConfig { accesses: 2 };
    assert_eq!(run_configured(array_access, config, frames.clone()).out, frames);
    let error = ArrayAccessConfig { accesses: 65_537 }.check().unwrap_err();
    assert_eq!(error.to_string(), "`accesses` must be 0 to 65,536 cells, found 65537");
}
