//! Tests that a function in the chains of both directions moves its connections with both directions at once.

use netbricks_buffer::{Batch, Pool};
use netbricks_core::packet::build::ethernet;
use netbricks_core::packet::{FlowKey, Ip, Link};
use netbricks_core::tables::{Entry, FlowTableConfig};
use netbricks_core::view::IpRewrite;
use netbricks_core::{
    Blueprint, Context, DropReason, Edge, Function, Graph, GraphBuilder, Input, Metadata, Node, Operator,
    Poll, Shape, Shuffle, ShuffleConfig, Turn, Worker, WorkerGroup, compose,
};

use super::Shared;

const FLOWS: u16 = 40;
const EACH: u64 = 200;
/// Where a packet's number lies: behind the headers of Ethernet, IPv4 and UDP.
const NUMBER: std::ops::Range<usize> = 42..50;

/// One direction of all connections; each packet has its number within its flow.
struct Direction {
    back: bool,
    sent: u64,
}

impl Node for Direction {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn poll(&mut self, batch: &mut Batch, cx: &mut Context) -> Poll {
        let (a, b) = ("10.0.0.1", "10.9.8.7");
        while batch.len() < cx.burst() && self.sent < u64::from(FLOWS) * EACH {
            let port = 1_000 + (self.sent % u64::from(FLOWS)) as u16;
            let frame = match self.back {
                false => ethernet().ipv4(a, b).udp(port, 53),
                true => ethernet().ipv4(b, a).udp(53, port),
            };
            let number = (self.sent / u64::from(FLOWS)).to_be_bytes();
            let packet = cx.pool().packet(&frame.payload(&number).build().unwrap()).unwrap();
            assert!(batch.push(packet).is_ok());
            self.sent += 1;
        }
        if self.sent < u64::from(FLOWS) * EACH { Poll::Busy } else { Poll::Done }
    }
    fn shape(&self) -> Shape {
        Shape::receive()
    }
}

struct Out;

impl Node for Out {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.transmitting().sent(batch.len() as u64, batch.bytes());
        batch.clear();
    }
    fn shape(&self) -> Shape {
        Shape::transmit()
    }
}

/// Drops a packet whose number is not the next one of its direction, by the connection's entry.
fn both_in_turn(input: Input, worker: &Worker) -> impl Function + use<> {
    let connections = worker.flow_table::<FlowKey, [u64; 2]>("connections", FlowTableConfig::new(256));
    input
        .parse::<Link>()
        .parse::<Ip>()
        .lookup(
            &connections,
            |packet| packet.flow_key().canonical(),
            |packet, entry| {
                let number = u64::from_be_bytes(packet.frame()[NUMBER].try_into().unwrap());
                let back = usize::from(packet.flow_key() != packet.flow_key().canonical());
                let mut fresh = [0; 2];
                match entry {
                    Entry::Found(mut next) => {
                        std::mem::replace(&mut next.get_mut()[back], number + 1) == number
                    }
                    Entry::Vacant(place) => {
                        fresh[back] = number + 1;
                        place.insert(fresh);
                        number == 0
                    }
                    Entry::Full => false,
                }
            },
        )
        .filter(DropReason::Denied, |packet| *Metadata::get::<bool>(packet))
        .done()
}

/// Two workers' graphs: worker 0 receives one direction and worker 1 the other.
///
/// Each receives by its own port with a shuffle, and both chains have the function.
fn graphs() -> [Graph; 2] {
    let (pool, group) = (Pool::builder().frames(8_192).build().unwrap(), WorkerGroup::new(2));
    let shuffles = [(); 2].map(|()| Shuffle::new(ShuffleConfig { ring: 16, ..ShuffleConfig::default() }));
    [0, 1].map(|index| {
        let worker = Worker::new(index, 1, pool.clone()).in_group(group.clone());
        let function = Blueprint::new(|worker: &Worker| compose(worker, |input| both_in_turn(input, worker)));
        let shared = Shared::default();
        let mut graph = GraphBuilder::new("test");
        let out = graph.add("out", Box::new(Out)).unwrap();
        for (port, shuffle) in shuffles.iter().enumerate() {
            let sorts = graph.add(format!("shuffle {port}"), shuffle.node(&worker).unwrap()).unwrap();
            let place =
                graph.add_function(format!("at {port}"), &shared.place(&function, port), &worker).unwrap();
            if port == index {
                let source = graph.add("in", Box::new(Direction { back: port == 1, sent: 0 })).unwrap();
                graph.connect(source, Edge::OUT, sorts, 0).unwrap();
            }
            graph.connect(sorts, Edge::OUT, place, 0).unwrap();
            graph.connect(place, Edge::OUT, out, 0).unwrap();
        }
        let mut graph = graph.build(pool.clone()).unwrap();
        graph.set_burst(8);
        graph
    })
}

#[test]
fn connections_move_with_both_directions() {
    for seed in 0..8_u64 {
        let (mut graphs, mut moves, mut dice) = (graphs(), 0, seed);
        let mut below = |most: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most
        };
        let mut over = false;
        for round in 0..400_000 {
            let weight = 2 + round / 1_000 % 7;
            graphs[usize::from(below(weight) == 0)].turn(round);
            if below(6) == 0 {
                let (first, to) = (below(4_096), below(2));
                let asked = format!("{first}-{} {to}", (first + below(4_096)).min(4_095));
                let shuffle = ["shuffle 0", "shuffle 1"][below(2) as usize];
                let answer = graphs[below(2) as usize].call(shuffle, "move", &asked);
                moves += usize::from(answer.is_ok_and(|pairs| pairs != "0"));
            }
            over = round % 512 == 0 && graphs.iter_mut().all(|graph| graph.turn(round) == Turn::Done);
            if over {
                break;
            }
        }
        assert!(over && moves > 10, "{moves} moves");
        let totals = graphs.each_ref().map(Graph::totals);
        assert_eq!(totals.each_ref().map(|totals| totals.drops.total().packets), [0; 2], "seed {seed}");
        let sent: u64 = totals.iter().map(|totals| totals.sent.packets).sum();
        assert_eq!(sent, 2 * u64::from(FLOWS) * EACH);
    }
}
