//! Conservation of packets at every step, over random graphs of nodes that drop, emit, create, hold and
//! panic.

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::{Context, DropReason, Edge, Node, NodeQueue, Output, Poll, Shape};
use netbricks_testkit::mutate::Random;
use proptest::prelude::*;

use crate::harness::{Feed, Rig, Sink, blueprint, check, numbered};

/// Does something at random with every packet; the same seed repeats it.
struct Chaos {
    random: Random,
    kept: Vec<Packet>,
    panics: bool,
    keeps: bool,
}

const WAYS: u8 = 3;

impl Chaos {
    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            kept: Vec::new(),
            panics: seed.is_multiple_of(3),
            keeps: seed % 2 == 1,
        }
    }
}

impl Node for Chaos {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        let packets: Vec<_> = batch.drain().collect();
        for packet in packets {
            match self.random.below(if self.panics { 201 } else { 200 }) {
                0..20 => cx.drop_packet(packet, DropReason::ALL[self.random.below(DropReason::COUNT)]),
                20..60 => cx.emit(Edge(1 + self.random.below(WAYS as usize) as u8), packet),
                60..80 => {
                    if let Some(copy) = packet.try_copy() {
                        // Beyond the limit the packet is given back, and ends here.
                        drop(cx.create(Edge(self.random.below(WAYS as usize) as u8), copy));
                    }
                    assert!(batch.push(packet).is_ok());
                }
                80..110 if self.keeps => self.kept.push(packet),
                110..112 => {
                    cx.drop_packet(packet, DropReason::Denied);
                    cx.drop_batch(batch, DropReason::Denied);
                }
                200 => panic!("chaos"),
                _ => assert!(batch.push(packet).is_ok()),
            }
        }
    }
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        for _ in 0..self.random.below(8) {
            let Some(packet) = self.kept.pop() else { break };
            match self.random.below(if self.panics { 33 } else { 32 }) {
                0..4 => cx.emit(Edge(1), packet),
                32 => panic!("chaos in poll"),
                _ => assert!(batch.push(packet).is_ok()),
            }
        }
        if self.kept.is_empty() { Poll::Idle } else { Poll::Busy }
    }
    fn shape(&self) -> Shape {
        Shape {
            outputs: (0..=WAYS)
                .map(|edge| Output { edge: Edge(edge), name: format!("way {edge}"), optional: edge > 0 })
                .collect(),
            schedulable: self.keeps,
            keeps_packets: self.keeps,
            ..Shape::default()
        }
    }
    fn as_queue(&mut self) -> Option<&mut dyn NodeQueue> {
        if self.keeps { Some(self) } else { None }
    }
}

impl NodeQueue for Chaos {
    fn held(&self) -> u64 {
        self.kept.len() as u64
    }
    fn drain(&mut self, batch: &mut Batch, _: &mut Context) {
        while let Some(packet) = self.kept.pop() {
            if let Err(back) = batch.push(packet) {
                self.kept.push(back);
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_packet_is_accounted_for_after_every_turn(
        seeds in proptest::collection::vec(any::<u64>(), 1..7),
        wiring in proptest::collection::vec(any::<u8>(), 40),
        burst in 1usize..64,
        packets in 0u32..800,
        rebuild: bool,
        turns in 1u32..9,
    ) {
        let mut rig = Rig::new();
        let source = rig.add("source", Box::new(Feed::of((0..packets).map(numbered))));
        let end = rig.add("end", Box::new(Sink::default()));
        let nodes: Vec<_> = seeds.iter().enumerate().map(|(i, seed)| {
            let (seed, name) = (*seed, format!("node {i}"));
            if rebuild {
                rig.function(&name, &blueprint(move |_| Ok(Box::new(Chaos::new(seed)))))
            } else {
                rig.add(&name, Box::new(Chaos::new(seed)))
            }
        }).collect();
        // Each node follows the one before, so that all can be reached. Other edges go anywhere, also back.
        let mut wiring = wiring.into_iter().cycle();
        rig.connect(source, 0, nodes[0]);
        for (i, node) in nodes.iter().enumerate() {
            rig.connect(*node, 0, *nodes.get(i + 1).unwrap_or(&end));
            for way in 1..=WAYS {
                match wiring.next().unwrap() as usize % (nodes.len() + 2) {
                    to if to < nodes.len() => rig.connect(*node, way, nodes[to]),
                    to if to == nodes.len() => rig.connect(*node, way, end),
                    _ => {}
                }
            }
        }
        let (mut graph, pool) = rig.build();
        graph.set_burst(burst);
        for now in 0..400 {
            let _ = graph.turns(now, turns);
            check(&graph);
            let used = pool.capacity() - pool.available();
            prop_assert_eq!(graph.totals().held as usize, used, "a packet is neither held nor free");
        }
        for _ in 0..20 {
            if graph.drain(1_000) == 0 {
                break;
            }
        }
        check(&graph);
        prop_assert_eq!((graph.totals().held, pool.available()), (0, pool.capacity()));
    }
}
