//! Attempts of safe code in a node against its graph and its neighbours, and their results.

use std::cell::Cell;
use std::rc::Rc;

use netbricks_core::buffer::{Batch, Packet};
use netbricks_core::graph::observe_panics;
use netbricks_core::{
    Context, Count, DetachedContext, DropReason, Graph, GraphError, Node, Poll, Role, Shape, Turn,
};

use super::harness::*;

/// A graph of 100 packets, through a node that runs this once a batch and passes all packets on.
fn attacked(attack: impl FnMut(&mut Batch, &mut Context) + 'static) -> (Graph, Sink) {
    observe_panics();
    let (sink, mut attack) = (Sink::default(), attack);
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let node = rig.add("attacker", act(move |_, batch, cx| attack(batch, cx)).boxed());
    let end = rig.add("end", Box::new(sink.clone()));
    rig.chain(&[source, node, end]);
    let (mut graph, _) = rig.build();
    for _ in 0..200 {
        if graph.turn(1_000) == Turn::Done {
            return (graph, sink);
        }
    }
    panic!("the graph does not end");
}

/// An attack, by name.
type Attack = (&'static str, fn(&mut Context));

#[test]
fn a_function_cannot_use_what_is_for_ports() {
    let attacks: [Attack; 10] = [
        ("sent", |cx| cx.transmitting().sent(50_000, 3_000_000)),
        ("created by a transmit node", |cx| cx.transmitting().created(50_000, 3_000_000)),
        ("handoff_out", |cx| cx.transmitting().handoff_out(50_000, 3_000_000)),
        ("taken", |cx| cx.transmitting().handoff_in(50_000, 3_000_000)),
        ("lost on arrival", |cx| cx.receiving().lost_on_arrival(DropReason::TooBig, 50_000, 3_000_000)),
        ("created by a receive node", |cx| cx.receiving().created(50_000, 3_000_000)),
        ("created by a node that keeps packets", |cx| cx.keeping().created(50_000, 3_000_000)),
        ("dropped", |cx| {
            cx.keeping().created(50_000, 3_000_000);
            cx.keeping().dropped(50_000, 3_000_000, DropReason::TooBig);
        }),
        ("advance", |cx| cx.receiving().advance(u64::MAX)),
        ("approach", |cx| {
            cx.receiving().approach(u64::MAX);
        }),
    ];
    for (name, attack) in attacks {
        let (mut graph, sink) = attacked(move |_, cx| attack(cx));
        let totals = graph.totals();
        assert_eq!((totals.received.packets, totals.sent.packets), (100, 0), "{name}");
        assert_eq!((totals.drops.of(DropReason::Panicked).packets, graph.now()), (100, 1_000), "{name}");
        assert_eq!([totals.created, totals.handoff_out, totals.handoff_in], [Count::default(); 3], "{name}");
        assert_eq!((sink.numbers().len(), totals.drops.total().packets), (0, 100), "{name}");
        check(&graph);
        let panic = graph.take_panics().remove(0);
        assert_eq!(panic.node, "attacker");
        assert!(panic.message.contains("` is for "), "{}", panic.message);
    }
}

#[test]
fn a_packet_that_was_counted_as_created_and_does_not_exist_shows() {
    // Without a call that counts drops, only real packets bring the accounts into balance again.
    let (graph, sink) = attacked(|batch, cx| {
        if let Some(packet) = batch.get(0) {
            cx.created(packet);
        }
    });
    assert_eq!((sink.numbers().len(), graph.totals().drops.total().packets), (100, 0));
    assert!(!graph.totals().is_conserved());
}

#[test]
fn an_arrival_that_a_function_makes_up_is_not_received() {
    let (graph, _) = attacked(|_, cx| {
        if let Some(packet) = cx.pool().packet(&numbered(7)) {
            cx.receiving().drop_arrival(packet, DropReason::TooBig);
        }
    });
    assert_eq!(graph.totals().received.packets, 100);
    assert_eq!(graph.totals().drops.of(DropReason::TooBig).packets, 0);
    check(&graph);
}

/// Claims to be a port of one kind and uses the rights of the other.
struct TwoFaced(Role);

impl Node for TwoFaced {
    fn process(&mut self, _: usize, batch: &mut Batch, cx: &mut Context) {
        cx.receiving().advance(u64::MAX);
        batch.clear();
    }
    fn poll(&mut self, _: &mut Batch, cx: &mut Context) -> Poll {
        cx.transmitting().sent(50_000, 3_000_000);
        Poll::Done
    }
    fn shape(&self) -> Shape {
        Shape {
            role: self.0,
            inputs: usize::from(self.0 == Role::Transmit),
            outputs: Vec::new(),
            schedulable: self.0 == Role::Receive,
            ..Shape::default()
        }
    }
}

#[test]
fn a_port_has_the_rights_of_its_own_direction_alone() {
    observe_panics();
    let mut rig = Rig::new();
    let source = rig.add("source", Box::new(Feed::of((0..100).map(numbered))));
    let end = rig.add("end", Box::new(TwoFaced(Role::Transmit)));
    rig.add("other source", Box::new(TwoFaced(Role::Receive)));
    rig.chain(&[source, end]);
    let (mut graph, _) = rig.build();
    run_out(&mut graph);
    let totals = graph.totals();
    assert_eq!((totals.received.packets, totals.sent.packets, graph.now()), (100, 0, 0));
    assert_eq!(totals.drops.of(DropReason::Panicked).packets, 100);
}

#[test]
fn a_function_that_claims_to_be_a_port_is_refused_when_the_graph_is_built() {
    for role in [Role::Receive, Role::Transmit] {
        let mut rig = Rig::new();
        let worker = worker(&rig.pool);
        let claims = blueprint(move |_| Ok(Box::new(TwoFaced(role))));
        let refused = rig.builder.add_function("claims", &claims, &worker);
        let Err(GraphError::Node { name, error }) = refused else { panic!("{refused:?}") };
        assert_eq!(name, "claims");
        assert!(error.to_string().contains(&format!("`{role:?}`")), "{error}");
    }
}

#[test]
fn packets_that_a_node_ends_in_a_context_of_its_own_are_missed_in_the_accounts() {
    let own: Rc<Cell<Option<DetachedContext>>> = Rc::default();
    let kept = own.clone();
    let (graph, _) = attacked(move |batch, cx| {
        let mut own = kept.take().unwrap_or_else(|| DetachedContext::new(cx.pool().clone()));
        own.advance(u64::MAX);
        own.transmitting().sent(50_000, 3_000_000);
        own.drop_batch(batch, DropReason::Denied);
        kept.set(Some(own));
    });
    assert_eq!(graph.unbalanced(), ["attacker"]);
    let totals = graph.totals();
    assert_eq!((totals.is_conserved(), totals.sent.packets, graph.now()), (false, 0, 1_000));
    assert_eq!(totals.drops.total().packets, 0);
    assert_eq!(own.take().map(|mut own| own.take_drops().of(DropReason::Denied).packets), Some(100));
}

#[test]
fn a_loan_of_a_packet_that_never_ends_loses_it_with_its_bytes() {
    for slot in [0, 3, 31] {
        let (graph, sink) = attacked(move |batch, _| std::mem::forget(batch.packet(slot)));
        let (attacker, end) = (counters(&graph, "attacker"), counters(&graph, "end"));
        let bytes = sink.frames().iter().map(|frame| frame.len() as u64).sum::<u64>();
        let sent = Count { packets: sink.frames().len() as u64, bytes };
        assert!(sent.packets < 100);
        assert_eq!((attacker.left, end.arrived, end.sent), (sent, sent, sent), "slot {slot}");
        assert_eq!(graph.unbalanced(), ["attacker"], "what is lost is missed");
    }
}

/// Claims to be a queue with room for this many packets, and passes them on at once.
struct Narrow(usize);

impl Node for Narrow {
    fn process(&mut self, _: usize, _: &mut Batch, _: &mut Context) {}
    fn shape(&self) -> Shape {
        Shape { queue: Some(self.0), ..Shape::default() }
    }
}

#[test]
fn a_queue_with_room_for_one_slows_only_what_leads_to_it() {
    for room in [0, 1] {
        let largest = Rc::new(Cell::new([0; 2]));
        let mut rig = Rig::new();
        for side in 0..2 {
            let seen = largest.clone();
            let source = rig.add(&format!("source {side}"), Box::new(Feed::of((0..640).map(numbered))));
            let first = rig.add(
                &format!("first {side}"),
                act(move |_, batch, _| {
                    let mut sizes = seen.get();
                    sizes[side] = sizes[side].max(batch.len());
                    seen.set(sizes);
                })
                .boxed(),
            );
            let second: Box<dyn Node> = if side == 0 { Box::new(Narrow(room)) } else { nothing().boxed() };
            let second = rig.add(&format!("second {side}"), second);
            let end = rig.add(&format!("end {side}"), Box::new(Sink::default()));
            rig.chain(&[source, first, second, end]);
        }
        let (mut graph, _) = rig.build();
        graph.set_burst(32);
        run_out(&mut graph);
        assert_eq!(largest.get(), [1, 32], "{room}");
        assert_eq!(graph.totals().sent.packets, 1_280);
    }
}

#[test]
fn a_packet_that_a_function_pushes_from_nowhere_is_missed_in_the_accounts() {
    let (graph, _) = attacked(|batch, cx| {
        let made: Option<Packet> = cx.pool().packet(&numbered(9));
        if let Some(packet) = made {
            drop(batch.push(packet));
        }
    });
    assert_eq!(graph.unbalanced(), ["attacker"]);
}
