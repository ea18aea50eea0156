//! Small configurations whose outcomes are those of Click 2.1.

use crate::testing::{Run, build, run};

/// The answers of handlers, one by one.
fn read(run: &Run, handlers: &[&str]) -> Vec<String> {
    handlers.iter().map(|handler| run.read(handler)).collect()
}

/// The lines that a configuration's elements say.
fn said(configuration: &str) -> Vec<String> {
    run(configuration).said()
}

/// The error that building a configuration tells, without its heading.
fn error(configuration: &str) -> String {
    let errors = build(configuration).errors;
    errors.get(1).map_or_else(|| format!("none: {errors:?}"), |line| line.trim_start().to_owned())
}

#[test]
fn print_shows_bytes_and_annotations() {
    let lines = said(
        "InfiniteSource(LIMIT 1, STOP true, DATA abcdef) -> Print(a, 2) -> Paint(7) \
         -> Print(CONTENTS ASCII, PRINTANNO true) -> Print(HEADROOM true, CONTENTS NONE) -> Discard",
    );
    assert_eq!(lines[0], "a:    6 | 6162");
    let annotations = format!("{}07{}", "00".repeat(16), "00".repeat(31));
    assert_eq!(lines[1], format!("   6 | {annotations} |  abcdef"));
    assert!(lines[2].starts_with("   6 (h"), "{}", lines[2]);
}

#[test]
fn paint_marks_packets_and_its_kin_go_by_it() {
    let lines = said(
        "TimedSource(0.2, abc, LIMIT 3, STOP true) -> c::Counter(COUNT_CALL 2 p.color 9) -> p::Paint(1) \
         -> t::PaintTee(9) -> Print(all) -> k::CheckPaint(1) -> s::PaintSwitch; t[1] -> Print(nine) -> d::Discard; \
         k[1] -> Print(not1) -> d; s[0] -> d; s[1] -> Print(one) -> d",
    );
    let short: Vec<&str> = lines.iter().map(|line| line.split(':').next().unwrap_or("")).collect();
    assert_eq!(short, ["all", "one", "nine", "all", "not1", "nine", "all", "not1"]);
}

#[test]
fn settings_change_while_elements_run() {
    let run = build("Idle -> p::Paint(3) -> Discard");
    assert_eq!(run.write("p.color x"), "expected uint8_t");
    assert_eq!(run.write("p.config 300"), "COLOR: out of range, bound 255");
    assert_eq!(run.write("p.config 7"), "");
    assert_eq!(read(&run, &["p.color", "p.config"]), ["7", "7"]);
}

#[test]
fn a_rated_source_keeps_its_rate() {
    let run = run("r::RatedSource(x, 10, LIMIT 30) -> c::Counter -> Discard; \
                   Script(wait 1.05, write r.rate 100, wait 0.1, stop)");
    assert_eq!(read(&run, &["c.count", "r.rate", "c.rate"]), ["18", "100", "83.984"]);
}

#[test]
fn sources_stop_at_their_limits() {
    let run = run("i::InfiniteSource(LIMIT 5, BURST 2) -> a::Counter -> Discard; \
                   t::TimedSource(0.1, LIMIT 4) -> b::Counter -> Discard; Script(wait 2, stop)");
    assert_eq!(
        read(&run, &["a.count", "b.count", "i.scheduled", "t.interval"]),
        ["5", "4", "false", "100ms"]
    );
    assert_eq!(run.write("i.burst 0"), "burstsize parameter must be integer >= 1");
    assert_eq!(run.write("t.interval 0"), "bad interval");
}

#[test]
fn a_queue_tells_sources_and_sinks_of_room_and_packets() {
    let run =
        run("i::InfiniteSource(LIMIT 9, DATA ab) -> q::Queue(4) -> u::Unqueue(ACTIVE false) -> c::Counter \
                   -> Discard; Script(wait 0.1, stop)");
    let handlers = ["i.count", "i.scheduled", "q.length", "q.drops", "q.highwater_length"];
    assert_eq!(read(&run, &handlers), ["4", "false", "4", "0", "4"]);
    assert_eq!(run.write("q.capacity 2"), "");
    assert_eq!(run.write("q.capacity x"), "CAPACITY: invalid number");
    assert_eq!(read(&run, &["q.length", "q.config"]), ["2", "2"]);
    let router = run.router.as_ref().expect("a configuration");
    router.adjust_run_count(1);
    assert_eq!(run.write("u.active true"), "");
    run.go();
    assert_eq!(read(&run, &["c.count", "i.count", "q.length"]), ["7", "9", "0"]);
}

#[test]
fn queues_drop_at_their_ends() {
    let front = run("TimedSource(0.1, ab) -> q::FrontDropQueue(2) -> Idle; q[1] -> c::Counter -> Discard; \
                     Script(wait 0.55, stop)");
    assert_eq!(front.said(), ["q :: FrontDropQueue: overflow"]);
    assert_eq!(read(&front, &["q.length", "q.drops", "c.count"]), ["2", "3", "3"]);
    let mixed = run(
        "TimedSource(0.01, a, LIMIT 3) -> q::MixedQueue(4); TimedSource(0.016, b, LIMIT 2) -> [1]q \
                     -> u::Unqueue(ACTIVE false) -> Print(MAXLENGTH 1) -> Discard; q[1] -> Print(x) -> Discard; \
                     Script(wait 0.1, write u.active true, wait 0.1, stop)",
    );
    let lines =
        ["q :: MixedQueue: overflow", "x:    1 | 61", "   1 | 62", "   1 | 62", "   1 | 61", "   1 | 61"];
    assert_eq!(mixed.said(), lines);
}

#[test]
fn notifiers_are_found_past_elements_that_tell_nothing() {
    let run = run("a::Idle -> q::NotifierQueue -> n::NotifierDebug -> s::PullSwitch(1) -> m::NotifierDebug \
                   -> d::Discard; Idle -> [1]s; Script(wait 0.1, stop)");
    assert_eq!(
        read(&run, &["n.signal", "m.signal", "d.scheduled"]),
        ["empty.0/1:1*", "empty.0/2:0", "false"]
    );
    assert_eq!(run.write("s.switch 0"), "");
    assert_eq!(read(&run, &["m.signal", "d.scheduled"]), ["empty.0/2:2*", "true"]);
}

#[test]
fn a_search_goes_on_behind_a_delay() {
    let run = run("i::InfiniteSource(ACTIVE false) -> q::Queue(3) -> d::DelayShaper(1) -> n::NotifierDebug \
                   -> k::Discard; e::NotifierDebug -> q2::Queue(2) -> Idle; Idle -> e; Script(wait 0.1, stop)");
    let signals = ["empty.0/4:0", "full.0/2:2*", "false"];
    assert_eq!(read(&run, &["n.signal", "e.signal", "k.scheduled"]), signals);
}

#[test]
fn strides_are_in_proportion_to_tickets() {
    let run = run("InfiniteSource(DATA a, LIMIT 20) -> Queue -> [0]s::StrideSched(3, 1); \
                   InfiniteSource(DATA bb, LIMIT 20) -> Queue -> [1]s; s -> Print(MAXLENGTH 0) -> TimedSink(0.01); \
                   Script(wait 0.085, write s.tickets0 0, wait 0.02, stop)");
    let lengths: Vec<String> = run.said().iter().map(|line| line.trim().to_owned()).collect();
    assert_eq!(lengths, ["1", "1", "1", "2", "1", "1", "1", "2", "2", "2"]);
    assert_eq!(run.read("s.config"), "0, 1");
    assert_eq!(run.write("s.config 1"), "need 2 arguments, one per input port");
    assert_eq!(run.write("s.tickets1 -1"), "number of tickets must be >= 0");
}

#[test]
fn rates_are_kept_and_changed() {
    let run = run(
        "InfiniteSource(LIMIT 50) -> Queue -> u::RatedUnqueue(20, BURST_SIZE 1) -> c::Counter -> Discard; \
                   Script(wait 1.01, write u.rate 100, wait 1, stop)",
    );
    assert_eq!(read(&run, &["c.count", "u.rate", "u.config"]), ["50", "100", "100"]);
    let split = self::run(
        "RatedSource(LENGTH 100, RATE 100) -> s::BandwidthRatedSplitter(4kBps, BURST_BYTES 100) -> c::Counter \
         -> Discard; s[1] -> d::Counter -> Discard; Script(wait 2, stop)",
    );
    assert_eq!(read(&split, &["c.count", "d.count", "s.rate"]), ["81", "120", "32.016kbps"]);
}

#[test]
fn shapers_cut_seconds_into_gaps() {
    // Click's count: the first packet passes at once, then one each 1/30 s.
    let run =
        run("InfiniteSource(LIMIT 500) -> q::Queue -> s::Shaper(30) -> c::Counter -> TimedSink(0.001); \
                   Script(wait 0.3, stop)");
    assert_eq!(read(&run, &["c.count", "s.rate"]), ["10", "30"]);
}

#[test]
fn a_link_has_latency_and_bandwidth() {
    let run = run("InfiniteSource(LIMIT 5, LENGTH 1000) -> Queue -> l::LinkUnqueue(0.1, 10kBps) \
                   -> Print(TIMESTAMP true, MAXLENGTH 0) -> Discard; Script(wait 1, stop)");
    let tenths: Vec<String> = run.said().iter().map(|line| line[..12].to_owned()).collect();
    let expected: Vec<String> = (2..7).map(|tenth| format!("1000000000.{tenth}")).collect();
    assert_eq!(tenths, expected);
    assert_eq!(read(&run, &["l.size", "l.bandwidth", "l.latency"]), ["0", "10000", "100ms"]);
    assert_eq!(run.write("l.bandwidth 99"), "bandwidth too small, minimum 100Bps");
}

#[test]
fn counters_average_as_in_click() {
    let run = run("RatedSource(RATE 100, LENGTH 50) -> c::Counter -> a::AverageCounter -> Discard; \
                   Script(wait 2.5, stop)");
    let rates = ["79.102", "3937.5", "31500", "100.762745885", "5038.13729426"];
    assert_eq!(read(&run, &["c.rate", "c.byte_rate", "c.bit_rate", "a.rate", "a.byte_rate"]), rates);
    assert_eq!(run.write("c.count_call x"), "'count_call' first word should be unsigned (count)");
    assert_eq!(run.write("c.count_call 2 no.x"), "no element named 'no'");
}

#[test]
fn meters_choose_outputs_by_the_rate() {
    let run =
        run("RatedSource(RATE 500, LENGTH 100) -> m::Meter(100, 300); m[0] -> a::Counter -> d::Discard; \
                   m[1] -> b::Counter -> d; m[2] -> c::Counter -> d; Script(wait 1, stop)");
    assert_eq!(read(&run, &["a.count", "b.count", "c.count", "m.rate"]), ["5", "1", "498", "509.766"]);
    assert_eq!(run.errors[1], "  warning: no units for bandwidth argument 1, assuming Bps");
}

#[test]
fn red_drops_before_the_queue_is_full() {
    let run =
        run("InfiniteSource(LIMIT 2000) -> r::RED(3, 50, 0.5) -> q::Queue -> RatedUnqueue(100) -> Discard; \
                   Script(wait 1, stop)");
    assert_eq!(read(&run, &["r.config", "r.queues"]), ["3, 50, 0.5, QUEUES q, STABILITY 4", "q\n"]);
    let drops: u32 = run.read("r.drops").parse().expect("a number");
    let length: u32 = run.read("q.highwater_length").parse().expect("a number");
    assert!(drops > 1000 && length <= 120, "{drops} drops, {length} packets");
    assert_eq!(run.write("r.min_thresh 60"), "MIN_THRESH must be <= MAX_THRESH");
}

#[test]
fn lengths_are_cut_and_restored() {
    let lines = said(
        "InfiniteSource(abcdefgh, LIMIT 1) -> Truncate(3) -> Print(t) -> Pad -> Print(p) -> Resize(-2, 1) -> Print(r) \
         -> Resize(2) -> Print(s) -> CheckLength(8) -> Print(never) -> Discard",
    );
    assert_eq!(lines[..2], ["t:    3 | 616263", "p:    8 | 61626300 00000000"]);
    assert_eq!(lines[2..], ["r:    7 | 63000000 000000", "s:    9 | 61626300 00000000 00"]);
}

#[test]
fn a_clipboard_carries_bytes() {
    let lines = said(
        "InfiniteSource(ABCDEFG, LIMIT 1) -> c::Clipboard(0/2, 5/1) -> Discard; \
         TimedSource(0.1, 123456789, LIMIT 1) -> [1]c[1] -> Print(CONTENTS ASCII) -> Discard; \
         TimedSource(0.2, 12, LIMIT 1) -> [1]c",
    );
    assert_eq!(lines, ["   9 |  AB345F78 9", "   2 |  12"]);
}

#[test]
fn tees_and_hubs_copy() {
    let run = run(
        "InfiniteSource(LIMIT 3) -> t::Tee -> Queue -> p::PullTee -> Unqueue -> a::Counter -> Discard; \
                   t[1] -> b::Counter -> h::Hub; p[1] -> [1]h; h[0] -> c::Counter -> Discard; \
                   h[1] -> d::Counter -> Discard; Idle -> [2]h[2] -> e::Counter -> Discard; Script(wait 1, stop)",
    );
    assert_eq!(
        read(&run, &["a.count", "b.count", "c.count", "d.count", "e.count"]),
        ["3", "3", "3", "3", "6"]
    );
}

#[test]
fn switches_choose() {
    let run = run(
        "InfiniteSource(LIMIT 9) -> r::RoundRobinSwitch; r[0] -> s::Switch(1); r[1] -> [0]i::InputSwitch(1); \
                   r[2] -> [1]i; s[0] -> Discard; s[1] -> a::Counter -> Discard; i -> b::Counter -> Discard; \
                   Script(wait 1, stop)",
    );
    assert_eq!(read(&run, &["a.count", "b.count"]), ["3", "3"]);
    assert_eq!(run.write("s.switch 5"), "");
    assert_eq!(read(&run, &["s.switch", "s.config"]), ["-1", "-1"]);
    assert_eq!(run.write("s.config 9"), "output must be < 2");
    assert_eq!(run.write("i.switch x"), "InputSwitch input must be integer");
}

#[test]
fn samples_are_random() {
    let run =
        run("RandomSeed(1); InfiniteSource(LIMIT 10000, BURST 100) -> r::RandomSample(0.25) -> c::Counter \
                   -> Discard; Script(wait 1, stop)");
    let passed: u32 = run.read("c.count").parse().expect("a number");
    assert!((2300..2700).contains(&passed), "{passed} of 10000");
    assert_eq!(
        read(&run, &["r.sampling_prob", "r.drop_prob", "r.config"]),
        ["0.25", "0.75", "SAMPLE 0.25, ACTIVE true"]
    );
    assert_eq!(run.write("r.drop_prob 2"), "Must be given a number between 0.0 and 1.0");
}

#[test]
fn schedules_give_tickets_and_note_threads() {
    let run =
        run("ScheduleInfo(a 2, b 0.5, d/ 3, e 0); StaticThreadSched(a 1, d 2); a::RatedSource -> Discard; \
                   b::RatedSource -> Discard; d::{ c::RatedSource -> Discard }; e::RatedSource -> f::Counter \
                   -> Discard; Script(wait 1, stop)");
    assert_eq!(read(&run, &["a.tickets", "b.tickets", "d/c.tickets"]), ["2048", "512", "3072"]);
    assert_eq!(read(&run, &["a.home_thread", "b.home_thread", "d/c.home_thread"]), ["1", "0", "2"]);
    // Without tickets, a task never runs.
    assert_eq!(run.read("f.count"), "0");
}

#[test]
fn faults_are_told_in_clicks_words() {
    for (element, message) in [
        ("Counter(COUNT_CALL x y)", "COUNT_CALL type mismatch"),
        ("Counter(COUNT_CALL 1 d.x)", "no 'd.x' write handler"),
        ("Queue(x)", "CAPACITY: invalid number"),
        ("Tee(2)", "1 outputs implies 1 arms"),
        ("Switch(1)", "output must be < 1"),
        ("StaticSwitch", "OUTPUT: required argument missing"),
        ("RandomSample", "sampling probability must be between 0 and 1"),
        ("RandomSample(SAMPLE 1, DROP 1)", "give at most one of SAMPLE and DROP"),
        ("RED(3, 2, 0.1)", "MIN_THRESH must be <= MAX_THRESH"),
        ("RED(3, 5, .1)", "no nearby Queues"),
        ("RED(3, 5, .1, QUEUES s)", "'s' is not a Storage element"),
        ("Align(3, 1)", "MODULUS must be 2, 4, or 8"),
        ("StrideSwitch(1, 2)", "need 1 arguments, one per output port"),
        ("StrideSwitch(100000)", "warning: input 0's tickets reduced to 32768"),
        (
            "RatedSplitter(10, BURST_DURATION 1, BURST_SIZE 1)",
            "cannot specify both BURST_DURATION and BURST_SIZE",
        ),
        ("Print(CONTENTS x)", "bad contents value 'X'; should be 'NONE', 'HEX', or 'ASCII'"),
        ("Print(LENGTH 5)", "LENGTH: warning: argument deprecated"),
        ("Paint(1, b)", "ANNO: parse error"),
    ] {
        assert_eq!(error(&format!("s::Idle -> a::{element} -> d::Discard")), message, "{element}");
    }
    assert_eq!(error("InfiniteSource(BURST 0) -> Discard"), "burst size must be >= 1");
    assert_eq!(error("Idle -> Discard(ACTIVE false)"), "ACTIVE is meaningless in push context");
    assert_eq!(
        error("Idle -> Queue -> LinkUnqueue(1, 99) -> Discard"),
        "bandwidth too small, minimum 100Bps"
    );
}

#[test]
fn data_are_stored_where_they_have_room() {
    let run = crate::testing::run(
        "ClickyInfo(anything, at all); InfiniteSource(DATA abcdef, LIMIT 1, STOP true) -> StoreData(1, XY)
         -> StoreData(5, UVW) -> StoreData(9, Z) -> Null8 -> Print(s, CONTENTS ASCII) -> Discard",
    );
    assert_eq!(run.said(), ["s:    6 |  aXYdeU"]);
}

#[test]
fn sums_and_marks_are_set() {
    let run = crate::testing::run(
        "InfiniteSource(DATA 123456789, LIMIT 1, STOP true) -> SetCRC32 -> Print(a) -> CheckCRC32 -> Print(b)
         -> SetPacketType(broadcast) -> CheckCRC32 -> Discard",
    );
    assert_eq!(
        run.said(),
        ["a:   13 | 31323334 35363738 39e7e676 03", "b:    9 | 31323334 35363738 39", "CRC32 failed, len 9"]
    );
    let errors = crate::testing::build("Idle -> SetPacketType(foo) -> Discard").errors;
    assert!(errors[1].ends_with("unrecognized packet type 'foo'"), "{errors:?}");
    let run = crate::testing::run(
        "InfiniteSource(LIMIT 1, STOP true) -> SetAnnoByte(PAINT, 3) -> s::PaintSwitch; s[0], s[1], s[2] -> Discard;
         s[3] -> c::Counter -> Discard",
    );
    assert_eq!(run.read("c.count"), "1");
}

#[test]
fn codel_drops_what_waits_too_long_and_nothing_else() {
    let rates = |rate: u32| {
        let run = run(&format!(
            "RatedSource(x, {rate}, LIMIT 900) -> SetTimestamp(FIRST true) -> q::Queue(500) -> c::CoDel(5, 100) \
             -> RatedUnqueue(200) -> out::Counter -> Discard; Script(wait 12, stop)"
        ));
        assert_eq!(run.errors, [""; 0]);
        read(&run, &["c.drops", "out.count", "q.drops", "q.highwater_length"])
            .iter()
            .map(|number| number.parse::<u64>().expect("a number"))
            .collect::<Vec<_>>()
    };
    let (slow, fast) = (rates(100), rates(300));
    assert_eq!(slow[..3], [0, 900, 0]);
    assert!(fast[0] > 20 && fast[0] + fast[1] == 900 && fast[2] == 0, "{fast:?}");
    // Without it, 300 would wait.
    assert!(fast[3] < 290, "{fast:?}");
    assert_eq!(error("Idle -> CoDel -> Discard"), "no nearby Queues");
    let run = build("Idle -> q::Queue -> c::CoDel(QUEUES q) -> Discard");
    assert_eq!(run.write("c.target 7"), "");
    assert_eq!(run.write("c.interval x"), "expected milliseconds (integer)");
    assert_eq!(read(&run, &["c.target", "c.interval", "c.queues"]), ["7", "100", "q\n"]);
}

#[test]
fn deficit_round_robin_shares_bytes() {
    for quantum in [500, 1, 100_000] {
        let run = run(&format!(
            "InfiniteSource(LENGTH 100, LIMIT 200) -> Queue(200) -> [0]d::DRRSched({quantum}); \
             InfiniteSource(LENGTH 500, LIMIT 40) -> Queue(40) -> [1]d; \
             d -> u::Unqueue(ACTIVE false, LIMIT 60) -> k::CheckLength(200) -> s::Counter -> Discard; \
             k[1] -> l::Counter -> Discard; \
             Script(wait 0.1, write u.active true, wait 0.1, print s.count, print l.count, \
                    write u.limit 1000, write u.active true, wait 0.1, stop)"
        ));
        let counts = run.said();
        match quantum {
            100_000 => assert_eq!(counts, ["20", "40"], "all of an input go in its turn"),
            _ => assert_eq!(counts, ["50", "10"], "quantum {quantum}"),
        }
        assert_eq!(read(&run, &["s.count", "l.count"]), ["200", "40"], "quantum {quantum}");
    }
    assert_eq!(error("Idle -> DRRSched(0) -> Discard"), "QUANTUM must be at least 1");
}

#[test]
fn bits_change_by_chance() {
    for (settings, expected) in
        [("1", "ff00"), ("1, set", "ffff"), ("1, clear", "0000"), ("0", "00ff"), ("1, flip, false", "00ff")]
    {
        let source = "InfiniteSource(LIMIT 1, STOP true, DATA \\<00ff>)";
        let lines = said(&format!("{source} -> RandomBitErrors({settings}) -> Print(e) -> Discard"));
        assert_eq!(lines, [format!("e:    2 | {expected}")], "{settings}");
    }
    let run = run("InfiniteSource(LIMIT 1000, STOP true, LENGTH 64) -> e::RandomBitErrors(0.01) -> Discard");
    let errors: u64 = run.read("e.errors").parse().expect("a number");
    // 5,120 of 512,000 bits; five standard deviations are 356.
    assert!((4_764..=5_476).contains(&errors), "{errors}");
    assert_eq!(run.write("e.p_bit_error 2"), "P must be a number from 0 to 1");
    assert_eq!(run.write("e.error_kind set"), "");
    assert_eq!(read(&run, &["e.error_kind", "e.p_bit_error"]), ["set", "0.01"]);
    assert_eq!(error("Idle -> RandomBitErrors(2) -> Discard"), "P must be a number from 0 to 1");
    assert_eq!(
        error("Idle -> RandomBitErrors(0.1, turn) -> Discard"),
        "KIND must be 'flip', 'set' or 'clear'"
    );
}

#[test]
fn a_random_source_makes_other_bytes_each_time() {
    let mut lines = said("RandomSource(64, LIMIT 3, STOP true) -> Print(r, 64) -> Discard");
    assert!(lines.iter().all(|line| line.starts_with("r:   64 | ")), "{lines:?}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 3);
    assert_eq!(error("RandomSource -> Discard"), "LENGTH: required argument missing");
}

#[test]
fn block_goes_by_the_rate_annotation() {
    let run = run(
        "TimedSource(0.1, LIMIT 4) -> SetAnnoByte(20, 7) -> b::Block(7); b[0] -> low::Counter -> Discard; \
                   b[1] -> high::Counter -> Discard; \
                   Script(wait 0.15, write b.thresh 6, wait 0.1, write b.thresh 0, wait 1, stop)",
    );
    assert_eq!(read(&run, &["low.count", "high.count", "b.thresh"]), ["3", "1", "0"]);
}

#[test]
fn a_quit_watcher_stops_the_driver_with_its_source() {
    let lines = said(
        "i::InfiniteSource(LIMIT 5) -> c::Counter -> Discard; QuitWatcher(i); \
                      Script(wait 0.5, print c.count, wait 10, print never)",
    );
    assert_eq!(lines, ["5"]);
    assert_eq!(error("QuitWatcher(gone)"), "no element named 'gone'");
    assert_eq!(error("d::Null; Idle -> d -> Discard; QuitWatcher(d)"), "'d' is not scheduled");
}

#[test]
fn lines_about_packets_are_few() {
    // More packets than lines: each of these would cause one.
    for (elements, lines) in [
        ("Strip(100)", 64),
        ("CheckCRC32", 64),
        ("IPsecESPUnencap", 64),
        ("IPsecESPEncap", 64),
        ("SetIPChecksum", 1),
        ("MarkIPHeader(0) -> DropBroadcasts", 0),
        ("SortedIPLookup(1.0.0.0/8 0)", 64),
        ("LinearIPLookup(1.0.0.0/8 0)", 5),
        ("RadixIPLookup(1.0.0.0/8 0)", 5),
    ] {
        let text =
            format!("InfiniteSource(DATA abcdefghijklmnop, LIMIT 200, STOP true) -> {elements} -> Discard");
        let run = run(&text);
        assert!(run.router.is_some(), "{elements}: {:?}", run.errors);
        assert_eq!(run.said().len(), lines, "{elements}: {:?}", run.said().first());
    }
}
