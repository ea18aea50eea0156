//! Peers that write into their rings what no honest one does.

use std::sync::atomic::Ordering;

use netbricks_core::DropReason;

use super::*;
use crate::memif::ring::Descriptor;

const SIZE: u16 = 16;
const MORE: &str = "ring_size = 16";

/// A server with a peer of the test, and a graph that receives from it.
struct Liar {
    lab: Lab,
    server: Box<dyn Port>,
    channel: Channel,
    agreed: Agreed,
    sink: FarEnd,
    receives: Graph,
}

impl Liar {
    fn new(name: &str) -> Self {
        let lab = Lab::new(name);
        let mut server = lab.port("server", MORE);
        let (channel, agreed) = lab.join(MORE);
        is_up(&*server);
        let (sink, receives) = lab.receiver(&mut *server);
        Self { lab, server, channel, agreed, sink, receives }
    }
    /// A descriptor of a buffer with these bytes, at a position of the ring to the server.
    fn fill(&self, position: u16, bytes: &[u8], flags: u16) {
        let end = &self.agreed.transmit[0];
        let at = end.own.unwrap().first + 2048 * usize::from(position % SIZE);
        assert!(end.ring.memory().copy_in(at, bytes));
        let length = bytes.len() as u32;
        end.ring.set_descriptor(position, Descriptor { flags, region: 0, length, offset: at as u32 });
    }
    fn descriptor(&self, position: u16, descriptor: Descriptor) {
        self.agreed.transmit[0].ring.set_descriptor(position, descriptor);
    }
    fn head(&self, head: u16) {
        self.agreed.transmit[0].ring.set_head(head);
    }
    /// The server ends the connection for this reason, and takes an honest peer then.
    fn ends_for(mut self, reason: &str) {
        let said = hear(&self.channel).unwrap_err();
        assert!(said.contains(reason), "{said}");
        eventually("the end", || self.server.link() == Link::Down);
        assert!(self.server.warnings()[0].contains(reason), "{:?}", self.server.warnings());
        let before = turns(&mut self.receives).received.packets;
        self.sink.frames(0);
        let mut client = self.lab.port("client", MORE);
        is_up(&*client);
        let (source, mut sends) = self.lab.sender(&mut *client);
        assert!(source.push(0, &frame(1, 60)));
        turns(&mut sends);
        turns_until(&mut self.receives, before + 1);
        assert!(self.sink.frames(0) == [frame(1, 60)]);
    }
}

#[test]
fn a_head_that_is_too_far_ends_the_connection() {
    for (number, head) in [SIZE + 1, 0x8000, u16::MAX].into_iter().enumerate() {
        let mut liar = Liar::new(&format!("head{number}"));
        liar.head(head);
        assert_eq!(turns(&mut liar.receives).received.packets, 0);
        liar.ends_for("further on");
    }
}

#[test]
fn a_chain_without_end_ends_the_connection() {
    let mut liar = Liar::new("endless");
    (0..SIZE).for_each(|position| liar.fill(position, &frame(0, 60), 1));
    liar.head(SIZE);
    assert_eq!(turns(&mut liar.receives).received.packets, 0);
    liar.ends_for("no end");
}

#[test]
fn descriptors_outside_of_a_region_are_dropped_and_the_next_ones_taken() {
    let mut liar = Liar::new("outside");
    let len = liar.agreed.transmit[0].ring.memory().len() as u32;
    let good = Descriptor { flags: 0, region: 0, length: 60, offset: 4096 };
    let wrong = [
        Descriptor { region: 1, ..good },
        Descriptor { region: u16::MAX, ..good },
        Descriptor { offset: len, ..good },
        Descriptor { offset: len - 59, ..good },
        Descriptor { offset: u32::MAX, ..good },
        Descriptor { length: u32::MAX, ..good },
        Descriptor { length: len, ..good },
        Descriptor { length: 0, ..good },
        Descriptor { length: u32::MAX, offset: u32::MAX, region: 7, flags: 0xfffe },
    ];
    let mut position = 0;
    for round in 1..20 {
        for wrong in wrong {
            liar.descriptor(position, wrong);
            position = position.wrapping_add(1);
        }
        liar.fill(position, &frame(round, 99), 0);
        position = position.wrapping_add(1);
        liar.head(position);
        let totals = turns_until(&mut liar.receives, 10 * round as u64);
        assert_eq!(totals.drops.of(DropReason::Malformed).packets, 9 * round as u64, "{totals:?}");
        assert!(liar.sink.frames(0) == [frame(round, 99)]);
        assert_eq!(liar.agreed.transmit[0].ring.tail(), position);
    }
    assert_eq!(liar.server.counters()[0].received.load(Ordering::Relaxed), 190);
    assert_eq!(liar.server.link(), Link::Up);
}

#[test]
fn chains_are_joined_or_dropped_whole() {
    let mut liar = Liar::new("chains");
    let whole = frame(3, 2_100);
    liar.fill(0, &whole[..2_048], 1);
    liar.fill(1, &[], 1);
    liar.fill(2, &whole[2_048..], 0);
    // A part outside of the region spoils the packet, and the rest of the chain goes with it.
    liar.fill(3, &frame(0, 60), 1);
    liar.descriptor(4, Descriptor { flags: 1, region: 9, length: 60, offset: 0 });
    liar.fill(5, &frame(0, 60), 0);
    liar.fill(6, &frame(6, 60), 0);
    liar.head(7);
    let totals = turns_until(&mut liar.receives, 3);
    assert_eq!(totals.drops.of(DropReason::Malformed).packets, 1, "{totals:?}");
    assert!(liar.sink.frames(0) == [whole, frame(6, 60)]);
    assert_eq!(liar.server.counters()[0].linearised.load(Ordering::Relaxed), 1);
    // A chain of which only a part is there waits for the rest.
    liar.fill(7, &frame(7, 2_048), 1);
    liar.head(8);
    assert_eq!(turns(&mut liar.receives).received.packets, 3);
    assert_eq!(liar.agreed.transmit[0].ring.tail(), 7);
    liar.fill(8, &frame(8, 60), 0);
    liar.head(9);
    turns_until(&mut liar.receives, 4);
    assert_eq!(liar.sink.frames(0), [[frame(7, 2_048), frame(8, 60)].concat()]);
}

#[test]
fn arrivals_larger_than_a_buffer_are_too_big() {
    let mut liar = Liar::new("large");
    // The pool's largest frame takes 16 KiB, and these chains have 18 and 20 KiB.
    for (first, last) in [(0, 8), (9, 18)] {
        (first..last).for_each(|position| liar.fill(position, &frame(0, 2_048), 1));
        liar.fill(last, &frame(0, 2_048), 0);
        liar.head(last + 1);
        turns_until(&mut liar.receives, if first == 0 { 1 } else { 2 });
    }
    let totals = turns(&mut liar.receives);
    assert_eq!(totals.drops.of(DropReason::TooBig).packets, 2, "{totals:?}");
    assert_eq!(liar.server.counters()[0].too_big_to_receive.load(Ordering::Relaxed), 2);
}

#[test]
fn a_chain_of_more_parts_than_are_joined_is_too_big() {
    let lab = Lab::new("parts");
    let mut server = lab.port("server", "ring_size = 128");
    let (_channel, agreed) = lab.join("ring_size = 128");
    is_up(&*server);
    let (sink, mut receives) = lab.receiver(&mut *server);
    let ring = &agreed.transmit[0].ring;
    for position in 0..64 + 65 {
        // 64 parts of 10 bytes, then 65.
        let flags = u16::from(position != 63 && position != 128);
        let offset = agreed.transmit[0].own.unwrap().first as u32;
        ring.set_descriptor(position, Descriptor { flags, region: 0, length: 10, offset });
        if position == 63 {
            ring.set_head(64);
            turns_until(&mut receives, 1);
        }
    }
    ring.set_head(129);
    let totals = turns_until(&mut receives, 2);
    assert_eq!(totals.drops.of(DropReason::TooBig).packets, 1, "{totals:?}");
    assert_eq!(sink.frames(0), [vec![0; 640]]);
}

/// A client that offers buffers outside of its memory, or more than its ring has.
#[test]
fn a_buffer_outside_of_a_region_is_not_written() {
    let good = Descriptor { flags: 0, region: 0, length: 2_048, offset: 8_192 };
    let lies: [(&str, u16, Descriptor); 5] = [
        ("outside", SIZE, Descriptor { region: 3, ..good }),
        ("outside", SIZE, Descriptor { offset: u32::MAX, ..good }),
        ("outside", SIZE, Descriptor { length: u32::MAX, ..good }),
        ("further on", SIZE + 1, good),
        ("further on", u16::MAX, good),
    ];
    for (number, (reason, head, lie)) in lies.into_iter().enumerate() {
        let mut liar = Liar::new(&format!("buffer{number}"));
        let (source, mut sends) = liar.lab.sender(&mut *liar.server);
        let ring = &liar.agreed.receive[0].ring;
        (0..SIZE).for_each(|position| ring.set_descriptor(position, lie));
        ring.set_head(head);
        for number in 0..3 {
            assert!(source.push(0, &frame(number, 60)));
        }
        let totals = turns(&mut sends);
        assert_eq!(totals.drops.of(DropReason::LinkDown).packets, 3, "{totals:?}");
        assert_eq!(ring.tail(), 0);
        drop(sends);
        liar.ends_for(reason);
    }
}

/// Empty buffers of no size take nothing and are not waited for.
#[test]
fn buffers_without_room_take_nothing() {
    let liar = Liar::new("no-room");
    let mut server = liar.server;
    let (source, mut sends) = liar.lab.sender(&mut *server);
    let ring = &liar.agreed.receive[0].ring;
    let empty = Descriptor { flags: 0, region: 0, length: 0, offset: 0 };
    (0..SIZE).for_each(|position| ring.set_descriptor(position, empty));
    ring.set_head(SIZE);
    assert!(source.push(0, &frame(0, 60)));
    assert_eq!(turns(&mut sends).drops.of(DropReason::TooBig).packets, 1);
    // Of fewer than a ring has, more may come.
    ring.set_head(SIZE - 1);
    assert!(source.push(0, &frame(0, 60)));
    assert_eq!(turns(&mut sends).drops.of(DropReason::TransmitFull).packets, 1);
    assert_eq!((ring.tail(), server.link()), (0, Link::Up));
}

/// A server that lies to a client.
#[test]
fn a_client_believes_a_server_only_lengths_that_fit() {
    let lab = Lab::new("server-lies");
    let mut client = lab.port("client", MORE);
    let (listener, channel, agreed) = lab.serve(MORE);
    is_up(&*client);
    let (sink, mut receives) = lab.receiver(&mut *client);
    turns(&mut receives);
    let ring = &agreed.transmit[0].ring;
    assert_eq!((ring.head(), agreed.receive[0].ring.head()), (SIZE, 0), "all buffers are offered");
    let offered = ring.descriptor(0);
    assert!(ring.memory().copy_in(offered.offset as usize, &frame(0, 60)));
    // The client knows where its buffers are.
    ring.set_descriptor(0, Descriptor { region: 7, offset: u32::MAX, length: 60, flags: 0 });
    ring.set_descriptor(1, Descriptor { length: 2_049, ..offered });
    ring.set_descriptor(2, Descriptor { length: u32::MAX, ..offered });
    ring.set_tail(3);
    let totals = turns_until(&mut receives, 3);
    assert_eq!(totals.drops.of(DropReason::Malformed).packets, 2, "{totals:?}");
    assert!(sink.frames(0) == [frame(0, 60)]);
    assert_eq!((ring.head(), ring.descriptor(0)), (SIZE + 3, offered), "the buffers are offered again");
    ring.set_tail(SIZE + 4);
    turns(&mut receives);
    let said = hear(&channel).unwrap_err();
    assert!(said.contains("further on"), "{said}");
    drop((listener, channel));
}

/// A server that takes more than was sent.
#[test]
fn a_tail_that_is_too_far_ends_the_connection() {
    for tail in [1, SIZE, 0x8000] {
        let lab = Lab::new(&format!("tail{tail}"));
        let mut client = lab.port("client", MORE);
        let (listener, channel, agreed) = lab.serve(MORE);
        is_up(&*client);
        let (source, mut sends) = lab.sender(&mut *client);
        agreed.receive[0].ring.set_tail(tail);
        assert!(source.push(0, &frame(0, 60)));
        assert_eq!(turns(&mut sends).drops.of(DropReason::LinkDown).packets, 1);
        assert!(hear(&channel).unwrap_err().contains("further on"));
        drop((listener, channel));
    }
}
