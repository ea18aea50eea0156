//! Pools: where frames are while threads come and go, what is counted, what is refused, and how long memory lives.

use std::sync::mpsc;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use netbricks_buffer::{Batch, HEADROOM, Pages, Pool, PoolError, WorkerSlot};

/// Runs tests one at a time, since slots belong to the process.
///
/// A slot that one test gives up and another takes would keep the first one's frames.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Four threads, some of them workers, take, pass on and free packets; then every frame is home.
#[test]
fn every_frame_comes_home_from_every_thread() {
    let _alone = alone();
    let pool = Pool::builder().frames(3000).large(8, 16_384).short(1000, 512).build().unwrap();
    thread::scope(|scope| {
        let (mut to_next, first_in) = mpsc::sync_channel::<Batch>(2);
        let last_out = to_next.clone();
        let mut input = Some(first_in);
        for number in 0..4 {
            let (sender, receiver) = mpsc::sync_channel::<Batch>(2);
            let from = input.replace(receiver).unwrap();
            to_next = sender.clone();
            let pool = pool.clone();
            scope.spawn(move || {
                let _slot = (number % 2 == 0).then(|| WorkerSlot::claim().unwrap());
                for round in 0..3000 {
                    let mut batch = Batch::new();
                    pool.allocate_into(&mut batch, 1 + round % 128);
                    pool.allocate_written_into(&mut batch, round % 67, &[1; 64]);
                    if let Some(mut packet) = batch.packet(round % 200) {
                        // From a short frame into a small one.
                        let _ = packet.extend(400);
                    }
                    if round % 10 == 0
                        && let Some(packet) = pool.allocate(9000)
                        && let Some(copy) = packet.try_copy()
                    {
                        _ = batch.push(copy);
                    }
                    batch.truncate(200);
                    _ = sender.try_send(batch);
                    if let Ok(mut from_before) = from.try_recv() {
                        drop(from_before.drain_from(3));
                    }
                }
            });
        }
        drop((to_next, last_out, input));
    });
    assert_eq!(pool.available(), pool.capacity());
    let all: Vec<_> = std::iter::from_fn(|| pool.empty(0)).collect();
    assert_eq!(all.len(), 4000, "also those that threads had that are gone");
    let mut frames: Vec<_> = all.iter().map(netbricks_buffer::Packet::index).collect();
    frames.sort_unstable();
    // All but the large ones.
    assert_eq!(frames, (0..3000).chain(3008..4008).collect::<Vec<_>>(), "each of them once");
}

#[test]
fn a_live_workers_stack_leaves_most_of_a_small_pool_to_others() {
    let _alone = alone();
    let pool = Pool::builder().frames(64).build().unwrap();
    let (ready, done) = (&Barrier::new(2), &Barrier::new(2));
    thread::scope(|scope| {
        let for_worker = pool.clone();
        scope.spawn(move || {
            let _slot = WorkerSlot::claim().unwrap();
            let all: Vec<_> = (0..64).map(|_| for_worker.empty(0).unwrap()).collect();
            drop(all);
            ready.wait();
            done.wait();
        });
        ready.wait();
        let others: Vec<_> = std::iter::from_fn(|| pool.empty(0)).collect();
        assert!(others.len() >= 48, "only {} of 64 frames to be had", others.len());
        done.wait();
    });
}

#[test]
fn exhaustion_is_counted_packet_by_packet() {
    let _alone = alone();
    let pool = Pool::builder().frames(100).large(2, 9216).build().unwrap();
    for worker in [false, true] {
        let _slot = worker.then(|| WorkerSlot::claim().unwrap());
        let before = pool.counters().exhausted;
        let mut batch = Batch::new();
        assert_eq!(pool.allocate_into(&mut batch, 60), 60);
        assert_eq!(pool.allocate_into(&mut batch, 60), 40);
        assert_eq!(pool.counters().exhausted - before, 20);
        assert!(pool.empty(0).is_none());
        assert!(pool.packet(b"x").is_none());
        assert_eq!(pool.counters().exhausted - before, 22);
        let large = [pool.allocate(8000).unwrap(), pool.allocate(8000).unwrap()];
        assert!(pool.allocate(8000).is_none());
        assert_eq!(pool.counters().exhausted - before, 23);
        assert!(pool.allocate(12_288).is_none(), "no frame is that large");
        assert_eq!(pool.counters().exhausted - before, 23);
        drop((batch, large));
        assert_eq!(pool.available(), 102);
    }
}

#[test]
fn sizes_that_no_frame_has_are_refused() {
    let pool = Pool::builder().frames(4).frame_size(1024).large(1, 5000).build().unwrap();
    assert_eq!((pool.small_packet(), pool.largest_packet()), (1024 - HEADROOM, 8192 - HEADROOM));
    for len in [8192 - HEADROOM + 1, usize::MAX - HEADROOM, usize::MAX] {
        assert!(pool.empty(len).is_none());
        assert!(pool.allocate(len).is_none());
    }
    let largest = pool.allocate(pool.largest_packet()).unwrap();
    assert_eq!((largest.tailroom(), largest.headroom()), (0, HEADROOM));
    assert!(!pool.owns_small(&largest));
    assert!(pool.allocate(1024 - HEADROOM + 1).is_none(), "the only large frame is out");
    let small = pool.allocate(1024 - HEADROOM).unwrap();
    assert!(pool.owns_small(&small));
    let mut batch = Batch::new();
    assert_eq!(pool.allocate_written_into(&mut batch, 1, &[0; 1024 - HEADROOM + 1]), 0);
    assert_eq!(pool.allocate_written_into(&mut batch, 9, &[1; 1024 - HEADROOM]), 3);
    assert_eq!(batch.bytes(), 3 * (1024 - HEADROOM as u64));
    batch.clear();
    assert_eq!(pool.available(), 3);
    drop(largest);
    let copied = pool.allocate(7000).unwrap();
    assert!(copied.try_copy().is_none(), "the only large frame is out");
}

#[test]
fn packets_are_written_whole_whatever_their_length() {
    let pool = Pool::builder().frames(8).build().unwrap();
    let bytes: Vec<u8> = (1..=200).collect();
    let mut batch = Batch::new();
    for len in 0..=bytes.len() {
        assert_eq!(pool.allocate_written_into(&mut batch, 2, &bytes[..len]), 2);
        assert!(batch.iter().all(|packet| packet.data() == &bytes[..len]), "{len} bytes");
        assert_eq!(batch.bytes(), 2 * len as u64);
        batch.clear();
    }
}

#[test]
fn short_packets_take_short_frames_while_there_are_any() {
    let pool = Pool::builder().frames(3).frame_size(1024).short(5, 512).build().unwrap();
    assert_eq!((pool.capacity(), pool.small_packet(), pool.region().frames), (8, 1024 - HEADROOM, 3));
    let room = |packet: &netbricks_buffer::Packet| packet.headroom() + packet.len() + packet.tailroom();
    // 64 bytes are left behind one.
    for (len, size) in [(0, 512), (192, 512), (193, 1024), (1024 - HEADROOM, 1024)] {
        let packet = pool.allocate(len).unwrap();
        assert_eq!((room(&packet), pool.owns_small(&packet)), (size, size == 1024), "{len} bytes");
    }
    let mut batch = Batch::new();
    assert_eq!(pool.allocate_written_into(&mut batch, 7, &[1; 64]), 7);
    assert_eq!(batch.iter().map(room).collect::<Vec<_>>(), [[512; 5].as_slice(), &[1024; 2]].concat());
    assert_eq!((pool.counters().exhausted, pool.available()), (0, 1));
    assert_eq!(pool.allocate_written_into(&mut batch, 7, &[1; 64]), 1);
    assert_eq!((pool.counters().exhausted, pool.available()), (6, 0));
    // Frames of both sizes come back at once, in reverse order.
    let both: Vec<_> = batch.drain().collect();
    for packet in both.into_iter().rev() {
        batch.push(packet).unwrap();
    }
    batch.clear();
    assert_eq!(pool.available(), 8);
    // Without a length there is only one size to choose from.
    assert_eq!(pool.allocate_into(&mut batch, 5), 3);
    assert!(batch.iter().all(|packet| pool.owns_small(packet)));
}

/// Short frames in a worker's stack come back when the worker is gone.
#[test]
fn short_frames_of_workers_that_are_gone_are_found() {
    let _alone = alone();
    let pool = Pool::builder().frames(64).short(64, 512).build().unwrap();
    let for_worker = pool.clone();
    std::thread::spawn(move || {
        let _slot = WorkerSlot::claim().unwrap();
        let all: Vec<_> = (0..64).map(|_| for_worker.empty(64).unwrap()).collect();
        assert!(all.iter().all(|packet| !for_worker.owns_small(packet)));
    })
    .join()
    .unwrap();
    let found = std::iter::repeat_with(|| pool.empty(64)).take(64).flatten();
    assert!(found.collect::<Vec<_>>().iter().all(|packet| !pool.owns_small(packet)));
    assert_eq!(pool.available(), 128);
}

#[test]
fn frames_do_not_overlap() {
    for for_device in [false, true] {
        let pool =
            Pool::builder().frames(6).frame_size(1024).for_device(for_device).large(3, 4096).build().unwrap();
        let region = pool.region();
        let stride = if for_device && pool.pages() != Pages::Huge { 1024 } else { 1024 + 64 };
        assert_eq!((region.frame_size, region.stride, region.len), (1024, stride, 6 * stride));
        fill_and_look(&pool, 0);
    }
    fill_and_look(
        &Pool::builder().frames(6).frame_size(1024).large(3, 4096).short(9, 512).build().unwrap(),
        9,
    );
}

/// Every byte of every frame, and of its annotations, is its own.
fn fill_and_look(pool: &Pool, short: usize) {
    let mut packets: Vec<_> =
        (0..6).map(|_| pool.allocate(1024 - HEADROOM).expect("a small frame")).collect();
    packets.extend((0..3).map(|_| pool.allocate(4096 - HEADROOM).expect("a large frame")));
    packets.extend((0..short).map(|_| pool.allocate(512 - 64 - HEADROOM).expect("a short frame")));
    for (mark, packet) in (1..).zip(&mut packets) {
        packet.push_front(HEADROOM).expect("all of the headroom");
        packet.extend(packet.tailroom()).expect("all of the tailroom");
        packet.data_mut().fill(mark);
        packet.annotations_mut().near_mut().fill(mark);
        packet.annotations_mut().far_mut().fill(mark);
    }
    for (mark, packet) in (1..).zip(&packets) {
        assert!(
            packet
                .data()
                .iter()
                .chain(packet.near_annotations())
                .chain(packet.far_annotations())
                .all(|byte| *byte == mark)
        );
    }
}

/// Metadata lies in blocks of 2,048 frames: in one, around its end, and in several.
#[test]
fn every_packet_has_metadata_of_its_own() {
    for frames in [1, 2_047, 2_048, 2_049, 4_100] {
        let pool = Pool::builder().frames(frames).frame_size(1024).build().unwrap();
        let mut packets: Vec<_> = (0..frames).map(|_| pool.empty(0).unwrap()).collect();
        for (number, packet) in (0..).zip(&mut packets) {
            packet.set_flow_hash(number);
            packet.annotations_mut().near_mut()[..4].copy_from_slice(&number.to_be_bytes());
            packet.annotations_mut().far_mut()[44..].copy_from_slice(&number.to_be_bytes());
        }
        for (number, packet) in (0u32..).zip(&packets) {
            assert_eq!(packet.flow_hash(), number);
            assert_eq!(packet.near_annotations()[..4], number.to_be_bytes());
            assert_eq!(packet.far_annotations()[44..], number.to_be_bytes());
        }
        drop(packets);
        assert_eq!(pool.available(), frames);
    }
}

#[test]
fn bad_numbers_are_refused_with_what_was_expected() {
    let build = |pool: netbricks_buffer::PoolBuilder| pool.build().expect_err("a bad number").to_string();
    let new = Pool::builder;
    assert_eq!(build(new().frames(0)), "a pool needs 1 to 16,777,216 frames, found 0");
    assert!(build(new().frames(usize::MAX)).contains("16,777,216"));
    for size in [0, 512, 3000, 131_072, usize::MAX] {
        let error = build(new().frame_size(size));
        assert!(error.contains("a power of two") && error.ends_with(&size.to_string()), "{error}");
    }
    assert!(build(new().large(usize::MAX, 9216)).contains("1,048,576 large frames"));
    for size in [0, 2048, (1 << 20) + 1, usize::MAX] {
        assert!(build(new().large(1, size)).contains("larger than the small ones"));
    }
    assert!(build(new().short(usize::MAX, 512)).contains("16,777,216 short frames"));
    for size in [0, 256, 320, 500, 2048, 4096, usize::MAX] {
        let error = build(new().short(1, size));
        assert!(error.contains("short frames of a multiple of 64 bytes"), "{error}");
    }
    assert!(build(new().for_device(true).short(1, 512)).contains("in a pool for a device"));
    let error = new().frames(1 << 24).frame_size(65_536).large(1 << 20, 1 << 20).build().unwrap_err();
    let bytes = (1 << 24) * (65_536 + 64) + (1 << 40);
    assert!(
        matches!(error, PoolError::Memory { frames: 17_825_792, bytes: found, .. } if found == bytes),
        "{error}"
    );
    assert!(error.to_string().starts_with(&format!("no memory for 17825792 frames, {bytes} bytes: ")));
}

#[test]
fn the_warning_says_how_to_reserve_pages() {
    assert_eq!(Pages::Huge.warning(), None);
    let warning = Pages::Small { needed: 33 }.warning().unwrap();
    assert!(warning.contains("sysctl -w vm.nr_hugepages=33") && !warning.contains('\n'), "{warning}");
}

/// The second pool's making looks after the first's memory; the packet in between is still whole.
#[test]
fn packets_outlive_their_pool() {
    let pool = Pool::builder().frames(16).large(2, 9216).build().unwrap();
    let mut packet = pool.packet(b"orphan").unwrap();
    let large = pool.allocate(8000).unwrap();
    let copy = packet.try_copy().unwrap();
    drop(pool);
    drop(Pool::builder().frames(16).build().unwrap());
    packet.extend_from(b" still").unwrap();
    assert_eq!(packet.data(), b"orphan still");
    let late = packet.try_copy().expect("the frames live on");
    let sent = thread::spawn(move || late.data().to_vec()).join().unwrap();
    assert_eq!(sent, b"orphan still");
    drop((packet, large));
    drop(Pool::builder().frames(16).build().unwrap());
    assert_eq!(copy.data(), b"orphan");
    drop(copy);
    drop(Pool::builder().frames(16).build().unwrap());
}

/// Handles and packets end at the same moment on several threads, over and over.
///
/// AddressSanitizer would see an access to a pool that is gone.
#[test]
fn the_end_of_a_pool_races_with_the_end_of_its_packets() {
    let _alone = alone();
    for round in 0..200 {
        let pool = Pool::builder().frames(40).frame_size(1024).build().unwrap();
        let start = &Barrier::new(3);
        thread::scope(|scope| {
            for number in 0..2 {
                let mut batch = Batch::new();
                assert_eq!(pool.allocate_into(&mut batch, 8 + number), 8 + number);
                scope.spawn(move || {
                    let _slot = (round % 2 == 0).then(|| WorkerSlot::claim().unwrap());
                    start.wait();
                    while let Some(packet) = batch.pop() {
                        drop(packet.try_copy());
                    }
                });
            }
            start.wait();
            drop(pool);
        });
    }
}

#[test]
fn raw_frames_come_back_as_the_device_left_them() {
    let pool = Pool::builder().frames(2).build().unwrap();
    let mut packet = pool.packet(b"0123456789").unwrap();
    packet.annotations_mut().near_mut().fill(1);
    packet.annotations_mut().far_mut().fill(1);
    packet.set_owner(3);
    let raw = packet.into_raw();
    assert_eq!(pool.available(), 1);
    // SAFETY: the frame was given away just above, and no device has it.
    let packet = unsafe { pool.from_raw(raw, HEADROOM + 2, 5) }.unwrap();
    assert_eq!((packet.data(), packet.owner()), (&b"23456"[..], 0));
    assert_eq!((packet.near_annotations(), packet.far_annotations()), (&[0; 8], &[0; 48]));
    let raw = packet.into_raw();
    // SAFETY: as above.
    assert!(unsafe { pool.from_raw(raw, 2000, 49) }.is_none(), "past the frame's end");
    assert_eq!(pool.available(), 2, "the frame is free again");
}
