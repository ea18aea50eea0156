//! The mode `mapped`: frames lie in the module's memory, and nothing else of the process does.

use netbricks_core::buffer::{Batch, Pool};
use netbricks_core::{DetachedContext, DropReason, Worker, WorkerGroup};
use netbricks_testkit::run_node;

use crate::harness::Bench;
use crate::modules::{Module, blueprint, try_blueprint};

const MAPPED: &str = "mode = \"mapped\"\nframes = 512";

fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| (0..60 + number % 3 * 700).map(|byte| (byte + number) as u8).collect()).collect()
}

#[test]
fn a_module_reads_and_writes_frames_in_place() {
    // It inverts each frame's last byte, which no copy of headers would show.
    let last = "(local.set $x (i32.sub (i32.add (local.get $data) (local.get $len)) (i32.const 1)))
        (i32.store8 (local.get $x) (i32.xor (i32.load8_u (local.get $x)) (i32.const 0xff)))";
    let blueprint = blueprint(&Module::each(last).writes(2), MAPPED);
    let report = run_node(move |worker| blueprint.build(worker), frames(300));
    for (before, after) in frames(300).iter().zip(&report.out) {
        let (end, rest) = before.split_last().unwrap();
        assert_eq!(after, &[rest, &[!end]].concat());
    }
    assert_eq!(report.out.len(), 300);
}

#[test]
fn lengths_change_as_in_the_other_mode() {
    for (call, settings) in [
        ("(drop (call $push_front (local.get $i) (i32.const 4)))", ""),
        ("(drop (call $push_front (local.get $i) (i32.const -14)))", ""),
        ("(drop (call $resize (local.get $i) (i32.const 33)))", ""),
        ("(drop (call $resize (local.get $i) (i32.add (local.get $len) (i32.const 20))))", ""),
        ("(drop (call $resize (local.get $i) (i32.const 100000)))", ""),
    ] {
        // Both write to the first byte afterwards, and to the last that they see.
        let each = format!(
            "{call} (drop (call $pull (local.get $i) (i32.const 65535)))
             (local.set $data (i32.load (local.get $p))) (local.set $len (i32.load offset=4 (local.get $p)))
             (i32.store8 (local.get $data) (i32.const 0x11))
             (i32.store8 (i32.sub (i32.add (local.get $data) (local.get $len)) (i32.const 1)) (i32.const 0x22))"
        );
        let module = Module::each(&each).writes(2);
        let [copied, mapped] = [settings.to_owned(), format!("{MAPPED}\n{settings}")].map(|settings| {
            let blueprint = blueprint(&module, &settings);
            run_node(move |worker| blueprint.build(worker), frames(90)).out
        });
        assert!(copied == mapped, "{call}");
        assert_eq!(copied.len(), 90);
    }
}

#[test]
fn a_module_cannot_have_its_table_in_the_frames() {
    // Its memory begins with 2 MiB, behind which the frames are mapped.
    let module = Module { memory: "32".into(), batch: "(i32.const 2097152)".into(), ..Module::default() };
    let refused = try_blueprint(&module.assembled(), MAPPED).err().expect("it is refused").message;
    assert!(refused.contains("0x200000, which lies in the mapped frames"), "{refused}");
}

#[test]
fn functions_that_name_a_pool_share_its_frames() {
    // The first writes a mark behind the frame's end, which a later copy of as many bytes leaves there.
    let mark = "(i64.store (i32.add (local.get $data) (local.get $len)) (i64.const 0x123456789abcdef))";
    let look =
        "(if (i64.ne (i64.load (i32.add (local.get $data) (local.get $len))) (i64.const 0x123456789abcdef))
        (then (i32.store offset=8 (local.get $p) (i32.const 0x200))))";
    for (first, second, passes) in [("a", "a", true), ("a", "b", false)] {
        let settings = |pool: &str| format!("{MAPPED}\npool = \"{pool}\"");
        let first = blueprint(&Module::each(mark).writes(2), &settings(first));
        let second = blueprint(&Module::each(look), &settings(second));
        let mut bench = Bench::chain(&[first, second]);
        bench.send(0, vec![vec![7; 60]; 50]);
        assert_eq!(bench.out(0).len(), if passes { 50 } else { 0 });
        bench.end();
    }
}

#[test]
fn a_change_of_frames_gets_a_pool_of_its_own_and_equal_ones_share() {
    // The first writes a mark behind a frame's end, and the second passes packets in whose frame it is.
    let mark = "(i64.store (i32.add (local.get $data) (local.get $len)) (i64.const 0x123456789abcdef))";
    let look =
        "(if (i64.ne (i64.load (i32.add (local.get $data) (local.get $len))) (i64.const 0x123456789abcdef))
        (then (i32.store offset=8 (local.get $p) (i32.const 0x200))))";
    let settings = |frames: u32| format!("mode = \"mapped\"\npool = \"a\"\nframes = {frames}");
    let pool = Pool::builder().frames(256).build().expect("a small pool fits into memory");
    let worker = Worker::new(0, 1, pool.clone());
    let node = |each: &str, frames| {
        blueprint(&Module::each(each).writes(2), &settings(frames)).build(&worker).expect("it has a pool")
    };
    let pass = |node: &mut Box<dyn netbricks_core::Node>| {
        let mut batch = Batch::new();
        (0..50).for_each(|_| assert!(batch.push(pool.packet(&[7; 60]).expect("it is free")).is_ok()));
        node.process(0, &mut batch, &mut DetachedContext::new(pool.clone()));
        batch.len()
    };
    // As where a change replaces a function: the old one is there until the new one is built.
    let (mut before, mut equal, mut changed) = (node(mark, 512), node(look, 512), node(look, 256));
    assert_eq!(pass(&mut before), 50);
    assert_eq!((pass(&mut equal), pass(&mut changed)), (50, 0));
}

#[test]
fn packets_that_have_left_are_out_of_the_modules_reach() {
    // It writes over all mapped frames, which begin at 2 MiB, where it sees a marked frame.
    let spoil = "(i32.store8 offset=1 (local.get $data) (i32.const 0x22))
        (if (i32.eq (i32.load8_u (local.get $data)) (i32.const 0xee)) (then
          (memory.fill (i32.const 2097152) (i32.const 0xcc)
            (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 2097152))) (return)))";
    let pool = Pool::builder().frames(1_024).build().expect("a small pool fits into memory");
    let worker = Worker::new(0, 1, pool.clone());
    let mut node =
        blueprint(&Module::each(spoil).writes(2), MAPPED).build(&worker).expect("the module is taken");
    let mut cx = DetachedContext::new(pool.clone());
    let mut pass = |first: u8| {
        let mut batch = Batch::new();
        for _ in 0..200 {
            let packet = pool.packet(&[first; 60]).expect("the pool is larger");
            assert!(batch.push(packet).is_ok(), "a batch has room");
        }
        node.process(0, &mut batch, &mut cx);
        batch
    };
    // These are with another thread while the module runs again.
    let left = pass(1);
    let reader =
        std::thread::spawn(move || left.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>());
    let kept = pass(2);
    let spoilt = pass(0xee);
    assert_eq!(spoilt.len(), 200);
    let expected = |first: u8| [&[first, 0x22][..], &[first; 58]].concat();
    assert!(
        kept.iter().all(|packet| packet.data() == expected(2)),
        "the module changed packets that had left"
    );
    assert!(reader.join().expect("it only reads").iter().all(|frame| *frame == expected(1)));
}

#[test]
fn packets_that_find_no_frame_are_counted() {
    let blueprint = blueprint(&Module::default(), MAPPED);
    let long = [frames(3), vec![vec![1; 1_900]; 5], frames(3)].concat();
    let report = run_node(move |worker| blueprint.build(worker), long);
    assert_eq!((report.out.len(), report.dropped(DropReason::TooBig)), (6, 5));
}

#[test]
fn writes_past_the_pool_and_the_memory_trap_and_the_pool_stays_whole() {
    // Every frame of the pool, and whatever the pool says behind them, is the module's own: it may spoil only that.
    let spoil = "(if (i32.eq (i32.load8_u (local.get $data)) (i32.const 0xee)) (then
        (local.set $x (local.get $data))
        (loop $up (i32.store8 (local.get $x) (i32.const 0xcc)) (local.set $x (i32.add (local.get $x) (i32.const 1))) (br $up))))";
    let neighbour =
        || blueprint(&Module::each("(i32.store8 (local.get $data) (i32.const 0x33))").writes(1), MAPPED);
    let attacker = blueprint(&Module::each(spoil), &format!("{MAPPED}\nslice = \"10 ms\""));
    let mut bench = Bench::new(&[attacker, neighbour()]);
    for round in 0..3 {
        let mut marked = frames(40);
        marked[7][0] = 0xee;
        bench.send(0, marked);
        bench.send(1, frames(40));
        let expected: Vec<Vec<u8>> =
            frames(40).into_iter().map(|frame| [&[0x33], &frame[1..]].concat()).collect();
        assert!(bench.out(1) == expected, "round {round}");
        assert_eq!(bench.out(0), Vec::<Vec<u8>>::new());
        let ended = bench.dropped(DropReason::Trapped) + bench.dropped(DropReason::Preempted);
        assert_eq!(ended, 40 * (round + 1), "{}", bench.ask(0, "faults"));
        bench.wait(20_000_000_000);
        bench.send(0, frames(40));
        assert!(bench.out(0) == frames(40), "the frames of the pool are as good as new");
    }
    bench.end();
}

#[test]
fn secrets_of_others_are_not_in_the_pool() {
    const SECRET: [u8; 8] = *b"\xd1SECRET\xd2";
    // In steps of nine bytes a scan meets what repeats itself every eight, and ends well within its slice.
    let secret = u64::from_le_bytes(SECRET);
    let scan = format!(
        "(local.set $x (i32.const 0)) (block $all (loop $byte
           (br_if $all (i32.gt_u (local.get $x) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 8))))
           (if (i64.eq (i64.load (local.get $x)) (i64.const {secret})) (then unreachable))
           (local.set $x (i32.add (local.get $x) (i32.const 9))) (br $byte)))"
    );
    let module = Module { after: scan, ..Module::default() };
    let other = blueprint(&Module::default(), MAPPED);
    let mut bench =
        Bench::new(&[blueprint(&module, "mode = \"mapped\"\nframes = 256\nslice = \"10 ms\""), other]);
    for _ in 0..3 {
        bench.send(1, vec![SECRET.repeat(180); 200]);
        bench.send(0, frames(30));
        assert!(bench.out(0) == frames(30), "{}", bench.ask(0, "faults"));
    }
    bench.end();
}

#[test]
fn each_worker_has_a_pool_of_its_own() {
    // It marks what lies behind a frame's end, and drops a packet where the mark lies there already.
    let mark =
        "(if (i64.eq (i64.load (i32.add (local.get $data) (local.get $len))) (i64.const 0x123456789abcdef))
          (then (i32.store offset=8 (local.get $p) (i32.const 0x200))))
        (i64.store (i32.add (local.get $data) (local.get $len)) (i64.const 0x123456789abcdef))";
    // Both functions name the pool, and run on both workers.
    let functions =
        [(); 2].map(|()| blueprint(&Module::each(mark).writes(2), &format!("{MAPPED}\npool = \"a\"")));
    let group = WorkerGroup::new(2);
    let counts = std::thread::scope(|scope| {
        let workers = [0, 1].map(|index| {
            let (functions, group) = (&functions, group.clone());
            scope.spawn(move || {
                let pool = Pool::builder().frames(256).build().expect("a small pool fits into memory");
                let worker = Worker::new(index, 1, pool.clone()).in_group(group);
                let mut nodes =
                    functions.each_ref().map(|function| function.build(&worker).expect("it is taken"));
                nodes.each_mut().map(|node| {
                    let mut batch = Batch::new();
                    (0..50).for_each(|_| {
                        assert!(batch.push(pool.packet(&[7; 60]).expect("it is free")).is_ok())
                    });
                    node.process(0, &mut batch, &mut DetachedContext::new(pool.clone()));
                    batch.len()
                })
            })
        });
        workers.map(|worker| worker.join().expect("it does not panic"))
    });
    // On each worker the second function meets the marks of the first, and no mark of the other worker.
    assert_eq!(counts, [[50, 0]; 2]);
}
