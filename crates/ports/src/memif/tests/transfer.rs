//! Two of our ports.

use std::sync::atomic::Ordering;

use netbricks_core::DropReason;

use super::*;

/// Sends frames from one port to another, and checks that they arrive in order.
fn carry(lab: &Lab, from: &mut dyn Port, to: &mut dyn Port, frames: &[Vec<u8>]) {
    let ((source, mut sends), (sink, mut receives)) = (lab.sender(from), lab.receiver(to));
    let mut arrived = Vec::new();
    // Fewer than a ring takes.
    for part in frames.chunks(8) {
        part.iter().for_each(|frame| assert!(source.push(0, frame)));
        let totals = turns(&mut sends);
        assert_eq!(totals.drops.total().packets, 0, "{totals:?}");
        turns_until(&mut receives, (arrived.len() + part.len()) as u64);
        arrived.extend(sink.frames(0));
    }
    assert!(arrived == frames, "{} of {} arrived", arrived.len(), frames.len());
}

#[test]
fn frames_of_every_size_go_both_ways() {
    // The last sizes take several buffers, and one of them all that a ring has.
    let sizes = [1, 7, 59, 60, 64, 255, 256, 257, 511, 512, 513, 1514, 4095, 4096];
    for (number, more) in ["buffer_size = 256", "buffer_size = 2048\nqueues = 2"].iter().enumerate() {
        let lab = Lab::new(&format!("sizes{number}"));
        let more = format!("{more}\nring_size = 16\ndevice_mtu = 4082");
        let frames: Vec<_> = (0..40).flat_map(|number| sizes.map(|len| frame(number, len))).collect();
        // A ring of 16 small buffers takes one frame of 4,096 bytes at a time.
        let one_by_one: Vec<_> =
            frames.iter().filter(|frame| number == 1 || frame.len() <= 257).cloned().collect();
        let (mut server, mut client) = lab.pair(&more);
        carry(&lab, &mut *server, &mut *client, &one_by_one);
        drop((server, client));
        let (mut server, mut client) = lab.pair(&more);
        carry(&lab, &mut *client, &mut *server, &one_by_one);
        drop((server, client));
        let (mut server, mut client) = lab.pair(&more);
        for len in sizes {
            let only = [frame(1, len)];
            let ((source, mut sends), (sink, mut receives)) = match len % 2 {
                0 => (lab.sender(&mut *server), lab.receiver(&mut *client)),
                _ => (lab.sender(&mut *client), lab.receiver(&mut *server)),
            };
            assert!(source.push(0, &only[0]));
            turns(&mut sends);
            turns_until(&mut receives, 1);
            assert!(sink.frames(0) == only, "{len}");
            drop((sends, receives, server, client));
            (server, client) = lab.pair(&more);
        }
    }
}

#[test]
fn a_full_ring_drops_and_counts() {
    for to_server in [true, false] {
        let lab = Lab::new(&format!("full-{to_server}"));
        let (mut server, mut client) = lab.pair("ring_size = 64");
        let (from, to) = if to_server { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let ((source, mut sends), (sink, mut receives)) = (lab.sender(&mut **from), lab.receiver(&mut **to));
        // The receiver takes its ring, which offers buffers to a server.
        turns(&mut receives);
        let frames: Vec<_> = (0..100).map(|number| frame(number, 60)).collect();
        frames.iter().for_each(|frame| assert!(source.push(0, frame)));
        let totals = turns(&mut sends);
        assert_eq!(totals.sent.packets, 64);
        assert_eq!(totals.drops.of(DropReason::TransmitFull).packets, 36);
        assert_eq!(from.counters()[0].not_sent.load(Ordering::Relaxed), 36);
        turns_until(&mut receives, 64);
        assert!(sink.frames(0) == frames[..64]);
        // There is room again.
        assert!(source.push(0, &frames[99]));
        assert_eq!(turns(&mut sends).sent.packets, 65);
        turns_until(&mut receives, 65);
        assert!(sink.frames(0) == frames[99..]);
        let counters = &to.counters()[0];
        assert_eq!(counters.received.load(Ordering::Relaxed), 65);
        assert_eq!(counters.received_bytes.load(Ordering::Relaxed), 65 * 60);
    }
}

/// A packet that no ring of the peer takes is too big, and does not hold up those behind it.
#[test]
fn a_packet_that_no_ring_takes_is_too_big() {
    let lab = Lab::new("too-big");
    let (mut server, mut client) = lab.pair("ring_size = 16\nbuffer_size = 256\ndevice_mtu = 9000");
    let more = [frame(1, 4_097), frame(2, 60)];
    let ((source, mut sends), (sink, mut receives)) = (lab.sender(&mut *client), lab.receiver(&mut *server));
    more.iter().for_each(|frame| assert!(source.push(0, frame)));
    let totals = turns(&mut sends);
    assert_eq!((totals.drops.of(DropReason::TooBig).packets, totals.sent.packets), (1, 1));
    assert_eq!(client.counters()[0].too_big_to_send.load(Ordering::Relaxed), 1);
    turns_until(&mut receives, 1);
    assert!(sink.frames(0) == more[1..]);
}

#[test]
fn without_a_peer_packets_are_dropped_and_a_peer_may_come_again() {
    let lab = Lab::new("again");
    let mut client = lab.port("client", "");
    let (source, mut sends) = lab.sender(&mut *client);
    assert!(source.push(0, &frame(0, 60)));
    assert_eq!(turns(&mut sends).drops.of(DropReason::LinkDown).packets, 1);
    assert_eq!(
        (client.link(), client.warnings().len()),
        (Link::Down, 0),
        "a peer that is not there is no fault"
    );
    for round in 1..4 {
        let mut server = lab.port("server", "");
        is_up(&*client);
        is_up(&*server);
        let (sink, mut receives) = lab.receiver(&mut *server);
        assert!(source.push(0, &frame(round, 60)));
        let sent = turns(&mut sends).sent.packets;
        assert_eq!(sent, round as u64);
        turns_until(&mut receives, 1);
        assert!(sink.frames(0) == [frame(round, 60)]);
        assert_eq!(client.returned(), round as u64 - 1);
        drop(receives);
        server.close().unwrap();
        eventually("the end", || client.link() == Link::Down);
        let said = client.warnings();
        assert!(said.len() == 1 && said[0].contains("the port is closed"), "{said:?}");
        assert!(source.push(0, &frame(0, 60)));
        assert_eq!(turns(&mut sends).drops.of(DropReason::LinkDown).packets, round as u64 + 1);
    }
}

/// Packets that a peer sent before it went away arrive, also where the worker has not seen its rings before.
#[test]
fn what_a_peer_has_left_arrives() {
    for seen in [false, true] {
        let lab = Lab::new(&format!("left-{seen}"));
        let mut server = lab.port("server", "");
        let (sink, mut receives) = lab.receiver(&mut *server);
        for round in 0..3 {
            let mut client = lab.port("client", "");
            is_up(&*client);
            is_up(&*server);
            if seen {
                turns(&mut receives);
            }
            let frames: Vec<_> = (0..40).map(|number| frame(number, 100 + round)).collect();
            let (source, mut sends) = lab.sender(&mut *client);
            frames.iter().for_each(|frame| assert!(source.push(0, frame)));
            assert_eq!(turns(&mut sends).sent.packets, 40);
            drop((sends, client));
            eventually("the end", || server.link() == Link::Down);
            turns_until(&mut receives, 40 * (round as u64 + 1));
            assert!(sink.frames(0) == frames, "{seen} {round}");
        }
    }
}

#[test]
fn a_server_serves_one_peer_and_tells_others() {
    let lab = Lab::new("one");
    let (_server, _client) = lab.pair("");
    let said = hear(&lab.connect()).unwrap_err();
    assert!(said.contains("another peer is connected"), "{said}");
}
