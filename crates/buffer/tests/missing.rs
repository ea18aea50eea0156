//! A batch counts the bytes on the wire of packets that a capture cut, after every operation.

#![expect(clippy::unwrap_used, reason = "packets are made in a function of the test's own")]

use netbricks_buffer::{BATCH, Batch, Packet, Pool, Ring};

/// A packet of 10 bytes of which `missing` more were on the wire.
fn cut(pool: &Pool, missing: u32) -> Packet {
    let mut packet = pool.packet(&[7; 10]).unwrap();
    packet.set_missing(missing);
    packet
}

fn wire(batch: &Batch) -> u64 {
    batch.iter().map(|packet| packet.wire_len() as u64).sum()
}

/// A batch of `count` packets, of which every third is cut.
fn mixed(pool: &Pool, count: usize) -> Batch {
    let mut batch = Batch::new();
    for number in 0..count {
        let missing = if number % 3 == 0 { 1_000 + number as u32 } else { 0 };
        assert!(batch.push(cut(pool, missing)).is_ok());
    }
    batch
}

#[test]
fn a_batch_counts_bytes_that_were_on_the_wire() {
    let pool = Pool::builder().frames(16 * BATCH).build().unwrap();
    for count in [1, 2, 7, BATCH] {
        let check = |batch: &Batch, what: &str| assert_eq!(batch.bytes(), wire(batch), "{what} of {count}");
        for kept in [0, 1, count / 2, count] {
            let mut batch = mixed(&pool, count);
            assert!(batch.is_cut());
            check(&batch, "new");
            batch.truncate(kept);
            check(&batch, "truncated");
            let mut batch = mixed(&pool, count);
            let taken: u64 = batch.drain_from(kept).map(|packet| packet.wire_len() as u64).sum();
            check(&batch, "drained");
            assert_eq!(taken + batch.bytes(), wire(&mixed(&pool, count)));
            for first in [0, 5] {
                let (mut batch, mut to) = (mixed(&pool, count), mixed(&pool, first));
                batch.split_into(kept, &mut to);
                check(&batch, "split");
                check(&to, "split into");
                let (mut batch, mut to) = (mixed(&pool, count), mixed(&pool, first));
                batch.take_front(kept, &mut to);
                check(&batch, "taken from");
                check(&to, "taken");
                to.append(&mut batch);
                check(&to, "appended to");
                check(&batch, "appended");
            }
        }
        let mut batch = mixed(&pool, count);
        batch.pop();
        check(&batch, "popped");
        let mut batch = mixed(&pool, count);
        let kept = batch.compact(|slot, bytes| {
            bytes.truncate(500);
            bytes.push_front(3).unwrap();
            u16::from(slot % 2 == 1)
        });
        check(&batch, "compacted");
        batch.truncate(kept);
        check(&batch, "compacted and truncated");
        if let Some(mut packet) = batch.packet(0) {
            packet.set_missing(77);
        }
        check(&batch, "changed");
        assert!(batch.is_cut());
        batch.clear();
        assert_eq!((batch.bytes(), batch.is_cut()), (0, false));
        let (mut sender, mut receiver) = Ring::new(2 * BATCH);
        let mut batch = mixed(&pool, count);
        let expected = batch.bytes();
        sender.push(&mut batch);
        assert_eq!(batch.bytes(), 0);
        receiver.pop(&mut batch);
        assert_eq!(batch.bytes(), expected);
        check(&batch, "through a ring");
        assert!(batch.is_cut());
    }
}

/// Checks that missing bytes stay behind the last byte.
///
/// No bytes can be appended there, and a truncation cuts missing bytes first.
#[test]
fn missing_bytes_stay_behind_the_last_byte() {
    let pool = Pool::builder().frames(8).build().unwrap();
    let mut packet = cut(&pool, 90);
    assert_eq!((packet.len(), packet.missing(), packet.wire_len()), (10, 90, 100));
    assert!(packet.extend(1).is_err() && packet.extend_from(&[1]).is_err());
    assert_eq!(packet.data(), [7; 10]);
    packet.push_front(4).unwrap();
    packet.pull_front(2).unwrap();
    assert_eq!((packet.len(), packet.wire_len()), (12, 102));
    let copy = packet.try_copy().unwrap();
    assert_eq!((copy.data(), copy.wire_len()), (packet.data(), 102));
    for (len, here, wire) in [(200, 12, 102), (102, 12, 102), (50, 12, 50), (12, 12, 12), (5, 5, 5)] {
        packet.truncate(len);
        assert_eq!((packet.len(), packet.wire_len()), (here, wire), "cut to {len}");
    }
    assert!(packet.extend(1).is_ok(), "all of it is here now");
    // A frame's next packet has all its bytes, and says so.
    for missing in [0, u32::MAX] {
        let packet = cut(&pool, missing);
        assert_eq!(packet.missing(), missing as usize);
        drop(packet);
        assert_eq!(pool.packet(&[1]).unwrap().missing(), 0);
    }
    assert!(!cut(&pool, 1).is_length_unstated());
}
