use netbricks_core::{DetachedContext, DropReason};

use super::*;
use crate::steer::{Filter, Rule};
use crate::testing::*;
use crate::{ChecksumPolicy, Drivers, ReceiveNode};

#[test]
fn frames_pass_in_order_and_time_at_every_batch_size() {
    let pool = pool();
    for burst in BURSTS {
        let (mut from, near) = Memory::new("in", 1, 1_000, &pool);
        let (mut to, far) = collector(&pool);
        let sent: Vec<_> = (0..1_000u64).map(|i| (1 + i * 300_000, i.to_be_bytes().repeat(8))).collect();
        for (time, frame) in &sent {
            assert!(near.push_at(0, frame, *time));
        }
        assert!(!near.push(0, &[0; 60]), "full");
        near.end();
        let totals = forward(&mut from, &mut to, &pool, burst);
        assert_eq!(totals.sent.packets, 1_000);
        assert!(collected(&far) == sent);
        assert_eq!(pool.available(), pool.capacity());
    }
}

#[test]
fn packets_that_a_full_peer_cannot_take_are_counted() {
    let pool = pool();
    let (mut from, near) = Memory::new("in", 1, 1_000, &pool);
    let (mut to, far) = Memory::new("out", 1, 100, &pool);
    for _ in 0..250 {
        near.push(0, &[0; 60]);
    }
    near.end();
    let totals = forward(&mut from, &mut to, &pool, 32);
    assert_eq!((totals.sent.packets, totals.drops.of(DropReason::TransmitFull).packets), (100, 150));
    assert_eq!(to.counters()[0].not_sent.load(Ordering::Relaxed), 150);
    assert_eq!(far.frames(0).len(), 100);
}

#[test]
fn peers_of_one_run_are_joined_both_ways() {
    let (pool, directory) = (pool(), Directory::new("peers"));
    let cx = OpenContext { queues: 2, ..context(&pool, &directory) };
    let drivers = Drivers::standard();
    let open = |name: &str, settings: &str| {
        let table = toml::de::DeTable::parse(settings).unwrap();
        drivers.get("memory").unwrap().open(name, table, &cx).unwrap()
    };
    // The settings borrow the text from which they were parsed.
    let (mut a, mut b) = (open("a", "peer = 'b'"), open("b", "peer = 'a'"));
    let mut cx = DetachedContext::new(pool.clone());
    let mut pass = |from: &mut dyn Port, to: &mut dyn Port, queue: usize| {
        let mut batch = Batch::new();
        batch.push(pool.packet(&[queue as u8; 60]).unwrap()).unwrap();
        from.take_transmit(queue).unwrap().transmit(&mut batch, &mut cx);
        assert!(batch.is_empty());
        to.take_receive(queue).unwrap().receive(&mut batch, &mut cx);
        assert_eq!(batch.get(0).unwrap().data(), [queue as u8; 60]);
    };
    pass(a.as_mut(), b.as_mut(), 0);
    pass(b.as_mut(), a.as_mut(), 1);
}

#[test]
fn wrong_checksums_are_counted_or_dropped_as_the_policy_says() {
    let pool = pool();
    let good = netbricks_packet::build::ethernet()
        .ipv4("10.0.0.1", "10.0.0.2")
        .udp(1, 2)
        .payload(b"x")
        .build()
        .unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    for (policy, sent) in
        [(ChecksumPolicy::Trust, 20), (ChecksumPolicy::Verify, 20), (ChecksumPolicy::Drop, 10)]
    {
        let (mut from, near) = Memory::new("in", 1, 100, &pool);
        for _ in 0..10 {
            near.push(0, &good);
            near.push(0, &bad);
        }
        near.end();
        let counters = from.counters()[0].clone();
        let queue = from.take_receive(0).unwrap();
        let node = ReceiveNode::new(queue, "memory", (3, 4), policy, counters.clone());
        let mut builder = netbricks_core::GraphBuilder::new("test");
        let source = builder.add("in", Box::new(node)).unwrap();
        let (mut to, far) = collector(&pool);
        let sink = builder.add("out", Box::new(crate::TransmitNode::take(&mut to, 0).unwrap())).unwrap();
        builder.connect(source, netbricks_core::Edge::OUT, sink, 0).unwrap();
        let mut graph = builder.build(pool.clone()).unwrap();
        while graph.turn(0) != netbricks_core::Turn::Done {}
        let totals = graph.totals();
        assert!(totals.is_conserved() && graph.unbalanced().is_empty());
        assert_eq!((totals.received.packets, totals.sent.packets), (20, sent));
        assert_eq!(
            counters.bad_checksum.load(Ordering::Relaxed),
            if policy == ChecksumPolicy::Trust { 0 } else { 10 }
        );
        let packet = far.pop(0).unwrap();
        assert_eq!((packet.ingress(), packet.queue()), (3, 4));
    }
}

/// Packets that a port sends come to its peer's queues by the peer's rules, in order.
///
/// A packet that no rule matches comes to the queue of the same number. A packet for which a full queue has
/// no room is counted, and no other packet is lost with it.
#[test]
fn a_peer_that_steers_gets_what_its_rules_say() {
    let pool = pool();
    let frame = |number: u16| {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&[[0x88, 0xcc], [0x08, 0x06], [0x86, 0xdd]][usize::from(number) % 3]);
        frame[40..42].copy_from_slice(&number.to_be_bytes());
        frame
    };
    let rules = |rules: [(u16, u16); 2]| {
        let rule = |(number, queue)| Rule { filter: Filter::ANY.ethertype(number), queue };
        Rules::new(rules.map(rule)).unwrap()
    };
    for burst in BURSTS {
        let (mut from, near) = Memory::new("in", 1, 300, &pool);
        let (mut there, mut here) = Memory::pair(("there", "here"), 3, 90);
        here.steer(&rules([(0x88cc, 2), (0x0806, 1)])).unwrap();
        for number in 0..300 {
            near.push(0, &frame(number));
        }
        near.end();
        let totals = forward(&mut from, &mut there, &pool, burst);
        assert_eq!((totals.sent.packets, totals.drops.of(DropReason::TransmitFull).packets), (270, 30));
        assert_eq!(there.counters()[0].sent.load(Ordering::Relaxed), 270);
        let (mut cx, mut batch) = (DetachedContext::new(pool.clone()), Batch::new());
        for (queue, kind) in [(0, 2), (1, 1), (2, 0)] {
            let mut receive = here.take_receive(queue).unwrap();
            let mut numbers = Vec::new();
            while receive.receive(&mut batch, &mut cx) == Poll::Busy {
                let number = |packet: &Packet| u16::from_be_bytes([packet.data()[40], packet.data()[41]]);
                numbers.extend(batch.iter().map(number));
                batch.clear();
            }
            let expected: Vec<u16> = (0..300).filter(|number| number % 3 == kind).take(90).collect();
            assert_eq!(numbers, expected, "queue {queue} at bursts of {burst}");
        }
        assert!(matches!(here.steer(&rules([(0x88cc, 2), (0x0806, 1)])), Err(Unsteerable::Taken)));
    }
    let (mut port, _far) = Memory::new("in", 2, 8, &pool);
    let refused = port.steer(&rules([(0x88cc, 1), (0x0806, 2)])).unwrap_err().to_string();
    assert!(refused.contains("rule 2 names queue 2, and there are 2 queues"), "{refused}");
}
