//! The mode `copy`: what a module sees, what it changes, and that batch sizes make no difference.

use netbricks_core::buffer::Pool;
use netbricks_core::{DropReason, Worker};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Frame, Report, run_node};

use crate::harness::Bench;
use crate::modules::{Module, blueprint};

fn run(module: &Module, settings: &str, frames: Vec<Vec<u8>>) -> Report {
    let blueprint = blueprint(module, settings);
    let report = run_node(move |worker| blueprint.build(worker), frames);
    assert_eq!(report.panics, []);
    report
}

fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| (0..60 + number % 3 * 50).map(|byte| (byte + number) as u8).collect()).collect()
}

#[test]
fn a_module_swaps_addresses_as_rust_does() {
    let text = include_str!("../modules/macswap.wat");
    let blueprint = crate::modules::try_blueprint(&wat::parse_str(text).unwrap(), "").unwrap();
    let frames: Vec<Vec<u8>> = (0..100)
        .map(|n| ethernet().ipv4("10.0.0.1", "10.0.0.2").udp(n, 53).payload(&[7; 99][..n as usize]).bytes())
        .collect();
    let report = run_node(move |worker| blueprint.build(worker), frames.clone());
    let swapped = |frame: &Vec<u8>| [&frame[6..12], &frame[..6], &frame[12..]].concat();
    assert_eq!(report.out, frames.iter().map(swapped).collect::<Vec<_>>());
}

#[test]
fn verdicts_become_edges_and_reasons() {
    let module = Module::each("(i32.store offset=8 (local.get $p) (i32.load8_u (local.get $data)))
        (if (i32.eq (i32.load8_u (local.get $data)) (i32.const 2)) (then (i32.store offset=8 (local.get $p) (i32.const 0x101))))
        (if (i32.eq (i32.load8_u (local.get $data)) (i32.const 3)) (then (i32.store offset=8 (local.get $p) (i32.const 0x204))))
        (if (i32.eq (i32.load8_u (local.get $data)) (i32.const 4)) (then (i32.store offset=8 (local.get $p) (i32.const 0x20d))))");
    let frames = (0..50u8).map(|n| vec![n % 5; 60]).collect();
    let report = run(&module, "outputs = 2", frames);
    assert_eq!((report.out.len(), report.replies.len()), (10, 20));
    assert_eq!(report.dropped(DropReason::TtlExpired), 10);
    assert_eq!(report.dropped(DropReason::LocalDelivery), 10);
}

#[test]
fn only_what_a_module_declares_is_copied_out() {
    // It writes the first byte, and one beyond the 64 that it sees.
    let writing = Module::each("(drop (call $pull (local.get $i) (i32.const 80)))
        (local.set $data (i32.load (local.get $p)))
        (i32.store8 (local.get $data) (i32.const 0xaa))
        (if (i32.ge_u (local.get $len) (i32.const 80)) (then (i32.store8 offset=70 (local.get $data) (i32.const 0xbb))))");
    let frames = frames(99);
    for (writes, expected) in [(0, [false, false]), (1, [true, false]), (2, [true, true])] {
        let report = run(&writing.clone().writes(writes), "", frames.clone());
        for (before, after) in frames.iter().zip(&report.out) {
            let mut wanted = before.clone();
            if expected[0] {
                wanted[0] = 0xaa;
            }
            if expected[1] && before.len() >= 80 {
                wanted[70] = 0xbb;
            }
            assert_eq!(after, &wanted, "writes {writes}");
        }
    }
}

#[test]
fn headers_are_pushed_and_taken_and_lengths_change() {
    let pushing = Module::each(
        "(drop (call $push_front (local.get $i) (i32.const 4)))
        (i32.store (i32.load (local.get $p)) (i32.load offset=4 (local.get $p)))",
    );
    let report = run(&pushing.writes(1), "", frames(40));
    for (before, after) in frames(40).iter().zip(&report.out) {
        let length = (before.len() as u32 + 4).to_le_bytes();
        assert_eq!(after, &[&length[..], before].concat());
    }
    let taking = Module::each(
        "(drop (call $push_front (local.get $i) (i32.const -14)))
        (i32.store8 (i32.load (local.get $p)) (i32.const 0x45))",
    );
    let report = run(&taking.writes(1), "", frames(40));
    for (before, after) in frames(40).iter().zip(&report.out) {
        assert_eq!(after, &[&[0x45], &before[15..]].concat());
    }
    let sizing = Module::each("(drop (call $resize (local.get $i) (i32.add (local.get $len) (i32.const 9))))
        (i32.store8 (i32.add (i32.load (local.get $p)) (i32.add (local.get $len) (i32.const 8))) (i32.const 0x77))");
    let report = run(&sizing.writes(2), "", frames(40));
    for (before, after) in frames(40).iter().zip(&report.out) {
        assert_eq!(after, &[&before[..], &[0, 0, 0, 0, 0, 0, 0, 0, 0x77]].concat());
    }
    let cutting = Module::each("(drop (call $resize (local.get $i) (i32.const 30)))");
    let report = run(&cutting.writes(1), "", frames(40));
    assert!(frames(40).iter().zip(&report.out).all(|(before, after)| after == &before[..30]));
}

#[test]
fn host_calls_that_cannot_be_answer_a_number_and_change_nothing() {
    // Each call that must be refused; a wrong answer is a trap.
    let refused =
        |call: &str, answer: i32| format!("(if (i32.ne {call} (i32.const {answer})) (then unreachable))");
    let wrong = [
        refused("(call $pull (i32.const 256) (i32.const 1))", -1),
        refused("(call $pull (i32.const -1) (i32.const 1))", -1),
        refused("(call $push_front (local.get $i) (i32.const 0x7fffffff))", -2),
        refused("(call $push_front (local.get $i) (i32.const 0x80000000))", -2),
        refused("(call $push_front (local.get $i) (i32.sub (i32.const -1) (local.get $len)))", -2),
        refused("(call $resize (local.get $i) (i32.const 0x7fffffff))", -2),
        refused("(call $resize (local.get $i) (i32.const -1))", -2),
        refused("(call $count (i32.const 0) (i32.const 33) (i64.const 1))", -4),
        refused("(call $count (i32.const -8) (i32.const 32) (i64.const 1))", -4),
    ];
    let module = Module::each(&wrong.concat());
    assert_eq!(run(&module.clone().writes(2), "", frames(40)).out, frames(40));
    let reading = [refused("(call $resize (local.get $i) (i32.const 1))", -3)].concat();
    assert_eq!(run(&Module::each(&reading), "", frames(40)).out, frames(40));
}

#[test]
fn counters_and_lines_come_to_the_report() {
    let module = Module {
        before: "(call $log (i32.const 64) (i32.const 5))".into(),
        ..Module::each(
            "(drop (call $count (i32.const 64) (i32.const 5) (i64.extend_i32_u (local.get $len))))",
        )
    }
    .more("(data (i32.const 64) \"bytes\")");
    let report = run(&module, "", frames(30));
    let bytes: usize = frames(30).iter().map(Vec::len).sum();
    let of = |title: &str| report.sections.iter().find(|section| section.title == title).unwrap();
    assert_eq!(of("counters of the module").rows, [["bytes".to_owned(), bytes.to_string()]]);
    assert!(of("events of the module").rows.iter().all(|row| row[0] == "log" && row[2] == "bytes"));
}

#[test]
fn bytes_behind_a_frame_are_zero_whatever_was_there_before() {
    // Long frames of ones, then short ones: the module traps where it sees a one behind a short frame's end.
    let looks = |bytes: u32| {
        format!(
            "(drop (call $pull (local.get $i) (i32.const {bytes})))
            (local.set $data (i32.load (local.get $p)))
            (local.set $x (local.get $len))
            (block $seen (loop $byte
              (br_if $seen (i32.ge_u (local.get $x) (i32.const {bytes})))
              (if (i32.load8_u (i32.add (local.get $data) (local.get $x))) (then unreachable))
              (local.set $x (i32.add (local.get $x) (i32.const 1)))
              (br $byte)))"
        )
    };
    // Small slots as far as they go, and large ones: those of modules that read much, and of frames that are pulled.
    for (reads, bytes, shortest) in
        [(1, 64, 14), (64, 64, 14), (100, 128, 14), (256, 256, 14), (300, 1_500, 14), (64, 1_500, 100)]
    {
        let module = Module::each(&looks(bytes)).reads(reads);
        let lengths = (0..600).map(|n| if n % 2 == n / 256 % 2 { 1_500 } else { shortest + n % 60 });
        let frames: Vec<Vec<u8>> = lengths.map(|length| vec![0xff; length]).collect();
        let report = run(&module, "slice = \"10 ms\"", frames.clone());
        assert!(report.out == frames, "{reads} {bytes}: {:?}", report.sections);
    }
}

#[test]
fn bytes_before_a_frame_are_zero_whatever_was_there_before() {
    // Each packet gets a secret before its first byte; the module traps where it sees that of an earlier one.
    let each = "(drop (call $pull (local.get $i) (i32.const 1500)))
        (local.set $data (i32.load (local.get $p)))
        (if (i32.ge_u (local.get $len) (i32.const 300)) (then
          (local.set $x (i32.sub (local.get $data) (i32.const 128)))
          (loop $byte
            (if (i32.load8_u (local.get $x)) (then unreachable))
            (local.set $x (i32.add (local.get $x) (i32.const 1)))
            (br_if $byte (i32.lt_u (local.get $x) (local.get $data))))))
        (if (i32.eqz (call $push_front (local.get $i) (i32.const 8)))
          (then (i64.store (i32.load (local.get $p)) (i64.const 0x5345435245545f31))))";
    // Modules that read much have each frame in a large slot; others pull it there.
    for reads in [64, 257, 1_500] {
        let frames: Vec<Vec<u8>> = (0..600).map(|n| vec![0xff; 300 + n % 7 * 100]).collect();
        let report = run(&Module::each(each).reads(reads).writes(1), "slice = \"10 ms\"", frames.clone());
        assert_eq!(report.out.len(), frames.len(), "{reads}: {:?}", report.sections);
        for (before, after) in frames.iter().zip(&report.out) {
            assert_eq!(after, &[&b"1_TERCES"[..], before].concat(), "{reads}");
        }
    }
}

#[test]
fn random_numbers_follow_from_the_seed() {
    let module = Module::each("(i64.store (local.get $data) (call $random))").writes(1);
    let report = run(&module, "", frames(64));
    let again = run(&module, "", frames(64));
    assert_eq!(report.out, again.out);
    let mut numbers: Vec<&[u8]> = report.out.iter().map(|frame| &frame[..8]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 64);
}

#[test]
fn configuration_reaches_the_module() {
    let module = Module {
        setup: "(i32.store8 (i32.const 16) (i32.load8_u (local.get $config))) (i32.store8 (i32.const 17) (local.get $length))".into(),
        ..Module::each("(i32.store16 (local.get $data) (i32.load16_u (i32.const 16)))").writes(1)
    };
    let report = run(&module, "config = \"Zabc\"", frames(3));
    assert!(report.out.iter().all(|frame| frame[..2] == [b'Z', 4]));
}

/// Functions side by side whose module writes `nb_random` into each packet; the first number of each.
fn first_numbers() -> Vec<u64> {
    let module = Module::each("(i64.store (local.get $data) (call $random))").writes(1);
    let functions = [(); 2].map(|()| blueprint(&module, ""));
    let mut bench = Bench::new(&functions);
    let numbers = (0..functions.len()).map(|lane| {
        bench.send(lane, vec![vec![0; 60]]);
        let frame = bench.out(lane).pop().unwrap();
        u64::from_le_bytes(frame[..8].try_into().unwrap())
    });
    let numbers = numbers.collect();
    bench.end();
    numbers
}

#[test]
fn random_numbers_are_the_functions_own_and_tell_nothing_of_the_seed() {
    let numbers = first_numbers();
    assert_ne!(numbers[0], numbers[1], "another tenant's module would know them");
    assert_eq!(first_numbers(), numbers, "a replay has the same");
    for number in numbers {
        // Backwards through SplitMix64, whose state would be a step behind the worker's seed, 1.
        let undo = |x: u64, shift: u32| (0..64 / shift).fold(x, |undone, _| x ^ undone >> shift);
        let inverse =
            |odd: u64| (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let mixed = undo(number, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        let mixed = undo(mixed, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        let state = undo(mixed, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15);
        assert_ne!(state, 1, "it is the seed");
    }
}

#[test]
fn a_functions_memory_is_all_that_it_takes() {
    let pool = Pool::builder().frames(64).build().unwrap();
    let worker = Worker::new(0, 1, pool);
    let memory = |settings: &str, config: usize| {
        let settings = format!("memory = \"1 MiB\"\nconfig = \"{}\"\n{settings}", "c".repeat(config));
        blueprint(&Module::default(), &settings).build(&worker).unwrap().shape().memory as usize
    };
    // The window has 256 slots of 64 bytes, and 256 of a whole frame with room around it; then there is native code.
    let copied = memory("", 0);
    assert!(copied > (1 << 20) + 256 * (64 + 2_048), "{copied}");
    // The host has the configuration, too.
    assert_eq!(memory("", 64 << 10) - copied, 2 * (64 << 10));
    let mapped = |frames: u32| memory(&format!("mode = \"mapped\"\nframes = {frames}"), 0);
    assert!(mapped(4_096) - mapped(1_024) == 3 * 1_024 * 2_048, "{} {}", mapped(4_096), mapped(1_024));
}
