//! Bounds of instances: work in a turn, packets that are counted, memory, and configurations that are read elsewhere.

use netbricks_core::buffer::Pool;
use netbricks_core::{CallError, NodeState, Settings, Worker};

use super::tests::{Rig, frame, listed, settings_of};
use super::{InstanceSettings, InstancesSettings};

const BEGIN: &str = "FromDevice(0) -> c :: Counter -> Discard; ";

fn number(of: &serde_json::Value, key: &str) -> u64 {
    of[key].as_u64().expect("a number")
}

#[test]
fn bursts_without_end_leave_turns_to_others() {
    for endless in [
        "InfiniteSource(LIMIT 1) -> q :: Queue -> Unqueue(-1) -> q;",
        "InfiniteSource(LIMIT 1) -> q :: Queue -> Unqueue2(0) -> q;",
        "InfiniteSource(LIMIT 1) -> q :: Queue -> TimedUnqueue(0.001, 2000000000) -> q;",
        "InfiniteSource -> Discard(BURST 0);",
        "InfiniteSource(BURST 2000000000) -> Discard;",
    ] {
        let mut rig = Rig::new("");
        rig.call("create", "endless");
        rig.call("install", &format!("endless\n{endless}"));
        rig.call("create", "other mac=02:00:00:00:00:07");
        rig.call("install", &format!("other\n{BEGIN}"));
        let frames: Vec<Vec<u8>> = (0..4).map(|mark| frame(7, 9, mark)).collect();
        rig.pass(0, &frames);
        assert_eq!(rig.call("read", "other c.count"), "4", "{endless}");
        assert_eq!(listed(&mut rig, "endless")["state"], "running", "{endless}");
        rig.call("destroy", "endless");
        rig.end();
    }
}

#[test]
fn an_instance_that_does_too_much_in_a_turn_fails_and_is_destroyed() {
    let many = "$(add)".repeat(20_000);
    let long = format!("set x {}", "$(add 1 1)".repeat(6_000));
    let letters = format!("Idle -> Print({}) -> Discard;", "a".repeat(20_000));
    for text in [
        format!("Script(wait 0, label l, set x {many}, goto l);"),
        format!("Script(label l, set x {many}, goto l);"),
        format!("s :: Script(TYPE PASSIVE, label l, {long}, goto l); Script(wait 0, write s.run);"),
        format!("Script(wait 0, set y $(.config), label l, set x $y$y$y, goto l); {letters}"),
    ] {
        let mut rig = Rig::new("");
        rig.call("create", "busy");
        rig.call("create", "other mac=02:00:00:00:00:07");
        rig.call("install", &format!("other\n{BEGIN}"));
        rig.call("install", &format!("busy\n{BEGIN} {text}"));
        rig.pass(0, &[frame(7, 9, 0)]);
        assert_eq!(rig.call("read", "other c.count"), "1");
        let busy = listed(&mut rig, "busy");
        assert_eq!(busy["state"], "failed", "{text:.100}");
        assert!(busy["error"].to_string().contains("more in one turn than"), "{busy:.300}");
        rig.call("destroy", "busy");
        rig.end();
    }
}

#[test]
fn a_handler_that_does_too_much_ends_its_instance() {
    let mut rig = Rig::new("");
    rig.call("create", "busy");
    let many = "$(add)".repeat(20_000);
    rig.call("install", &format!("busy\ns :: Script(TYPE PASSIVE, label l, set x {many}, goto l);"));
    let problem = rig.refused("write", "busy s.run");
    assert!(problem.contains("more in one turn than"), "{problem}");
    assert_eq!(listed(&mut rig, "busy")["state"], "failed");
    rig.call("install", &format!("busy\n{BEGIN}"));
    assert_eq!(listed(&mut rig, "busy")["state"], "running");
    rig.end();
}

#[test]
fn a_driver_that_is_asked_to_stop_very_often_returns() {
    let mut rig = Rig::new("");
    rig.call("create", "stop");
    rig.call("install", "stop\nDriverManager(wait_stop 2000000000); Script(wait 0, write stop 2000000000);");
    rig.run();
    rig.call("destroy", "stop");
    rig.end();
}

/// Packets of an instance: those that came or were made, and where they are.
fn balance(rig: &mut Rig, name: &str) -> (u64, u64) {
    let one = listed(rig, name);
    let of_ports = |key: &str| -> u64 {
        one["ports"].as_array().expect("ports").iter().map(|port| number(port, key)).sum()
    };
    let came = of_ports("received") + number(&one, "created");
    (came, of_ports("sent") + of_ports("waiting") + number(&one, "dropped") + number(&one, "held"))
}

#[test]
fn packets_that_came_are_sent_dropped_waiting_or_held() {
    let mut rig = Rig::new("");
    rig.call("create", "box mac=02:00:00:00:00:01 frames=10");
    let frames = || (0..60).map(|mark| frame(1, 9, mark)).collect::<Vec<_>>();
    let mut received = 0;
    for text in [
        "",
        "FromDevice(0) -> q :: Queue(1000) -> Idle;",
        "FromDevice(0) -> q :: Queue(1000) -> u :: Unqueue(ACTIVE false) -> EtherMirror -> ToDevice(0);",
        "FromDevice(0) -> t :: Tee -> Queue(20) -> Discard; t[1] -> EtherMirror -> ToDevice(0);",
        "FromDevice(0) -> Truncate(3) -> ToDevice(0);",
        "FromDevice(0) -> Discard; Script(write stop);",
        "InfiniteSource(LIMIT 7) -> Discard;",
        "",
    ] {
        rig.call("install", &format!("box\n{text}"));
        for _ in 0..2 {
            rig.pass(0, &frames());
            let (came, gone) = balance(&mut rig, "box");
            assert_eq!(came, gone, "after `{text}`: {}", listed(&mut rig, "box"));
        }
        received += 120;
        assert_eq!(number(&listed(&mut rig, "box")["ports"][0], "received"), received, "{text}");
    }
    rig.end();
}

#[test]
fn a_full_table_of_addresses_is_swept_once_a_second_at_most() {
    let mut settings = settings_of("learning");
    settings.addresses = 16;
    let mut rig = Rig::with(settings);
    let frames: Vec<Vec<u8>> = (0..200)
        .map(|mark| {
            let mut frame = frame(1, 9, 0);
            frame[10] = mark;
            frame
        })
        .collect();
    rig.pass(0, &frames);
    let switch: serde_json::Value = serde_json::from_str(&rig.call("switch", "")).expect("JSON");
    assert_eq!(number(&switch, "sweeps"), 1, "{switch}");
    assert_eq!(switch["addresses"].as_array().map(Vec::len), Some(16));
    rig.end();
}

#[test]
fn values_with_spaces_are_quoted() {
    let mut rig = Rig::new("");
    rig.call("create", "box mac=02:00:00:00:00:01");
    let text = "FromDevice(0) -> f :: Print(\"$LABEL\") -> Discard;";
    rig.call("install", &format!("box \"LABEL=a  b\" OTHER=1\n{text}"));
    assert_eq!(rig.call("read", "box f.config"), "\"a  b\"");
    // A newline in a value stays in the value.
    let runs = rig.call("install", &format!("box \"LABEL=a\\nIdle -> Discard;\"\n{text}"));
    assert_eq!(runs, "box runs 3 elements");
    assert!(rig.refused("install", &format!("box LABEL=src host\n{text}")).contains("quote what has spaces"));
    assert!(rig.refused("install", &format!("box \"LABEL=src\n{text}")).contains("expected `\"` at the end"));
    rig.end();
}

#[test]
fn a_configuration_is_flattened_before_a_worker_gets_it() {
    let pool = Pool::builder().frames(64).build().expect("memory");
    let worker = Worker::control(1, pool);
    let mut host = super::node(&settings_of(""), &worker).expect("a node");
    let mut prepare_by = |handler: &str, argument: &str| {
        let mut prepared = Ok(None);
        host.with_state(&mut |state: &mut dyn NodeState| prepared = state.prepare(handler, argument));
        prepared
    };
    let mut prepare = |argument: &str| prepare_by("install", argument);
    let text = "box \"N=3 4\"\ndefine($B 7);\nelementclass Two { $X | input -> Paint($X) -> Print(\"$N\") -> output }\nFromDevice(0)\n-> t :: Two($B) -> Discard;";
    let flat = prepare(text).expect("a right one").expect("another argument");
    assert!(flat.starts_with("box\n"), "{flat}");
    for expected in ["t/Paint@1 :: Paint(7);", "Print(\"3 4\")", "# 3 \"box\"", "# 4 \"box\""] {
        assert!(flat.contains(expected), "{expected}: {flat}");
    }
    assert!(!flat.contains("define") && !flat.contains("elementclass"), "{flat}");
    // The flat text is what a worker makes the same elements of.
    let mut rig = Rig::new("");
    for (name, argument) in [("box", text.to_owned()), ("flat", flat.replacen("box", "flat", 1))] {
        rig.call("create", name);
        rig.call("install", &argument.replacen("box", name, 1));
    }
    let elements = |rig: &mut Rig, name: &str| rig.call("read", &format!("{name} flatconfig"));
    assert_eq!(elements(&mut rig, "box"), elements(&mut rig, "flat"));
    rig.end();
    // What is wrong is told without a worker, and what expands too much as well.
    let grows: String =
        (0..20).map(|one| format!("define($A{} {});\n", one + 1, format!("$A{one}").repeat(8))).collect();
    let idles = "Idle -> Discard;".repeat(3_000);
    for (argument, expected) in [
        ("box\nIdle -> Nowhere;".to_owned(), "box:1: "),
        ("box\nIdle -> [3] Discard;".to_owned(), "box:1: "),
        (
            format!("box\ndefine($A0 0123456789);\n{grows} Idle -> Print($A20) -> Discard;"),
            "expand to too many",
        ),
        (format!("box\n{idles}"), "there can be 4096"),
    ] {
        let refused = prepare(&argument);
        let Err(CallError::Argument { problem, .. }) = refused else { panic!("{expected}: {refused:.300?}") };
        assert!(problem.contains(expected), "{problem}");
    }
    assert_eq!(prepare("box\n"), Ok(None));
    // A tenant's is flattened, too, where it is not long.
    let flattened = prepare_by("tenant-write", &format!("acme install {text}"));
    assert_eq!(flattened, Ok(Some(format!("acme install {flat}"))));
    let long = format!("acme install box\n// {}\n{BEGIN}", "x".repeat(64 << 10));
    let Err(CallError::Argument { problem, .. }) = prepare_by("tenant-write", &long) else {
        panic!("{long:.99}")
    };
    assert!(problem.starts_with("a tenant's configuration has at most 65536 bytes"), "{problem}");
    assert_eq!(prepare_by("tenant-write", "acme suspend box"), Ok(None));
}

#[test]
fn regular_expressions_of_an_instance_are_small_together() {
    let mut rig = Rig::new("");
    rig.call("create", "ids");
    let one = |at: usize| format!("Idle -> e{at} :: RegexClassifier(\"[a-z]{{400}}x\") -> Discard;\n");
    rig.call("install", &format!("ids\n{}", one(0)));
    let text: String = (0..200).map(one).collect();
    let problem = rig.refused("install", &format!("ids\n{text}"));
    assert!(problem.contains("bytes that are left for automata"), "{problem}");
    rig.end();
}

/// A tenant drives its own instances, by handlers that name it, and learns nothing of others.
#[test]
fn a_tenant_has_the_handlers_of_its_own_instances() {
    let mut rig = Rig::new("");
    rig.call("create", "own owner=acme memory=1MB");
    rig.call("create", "other owner=corp memory=1MB");
    rig.call("create", "operators");
    assert_eq!(rig.refused("create", "x owner=a/b"), "`owner` must be a tenant's name, found `a/b`");
    let problem = rig.refused("create", "x owner=acme");
    assert!(problem.starts_with("an instance of tenant `acme` needs a limit of its `memory`"), "{problem}");
    let install = "FromDevice(0) -> c :: Counter -> ToDevice(0);";
    assert_eq!(rig.call("tenant-write", &format!("acme install own X=1\n{install}")), "own runs 3 elements");
    assert_eq!(rig.call("tenant-read", "acme read own c.count"), "0");
    assert!(rig.call("tenant-read", "acme handlers own c").contains("c.count"));
    assert_eq!(rig.call("tenant-write", "acme write own c.reset"), "");
    assert_eq!(rig.call("tenant-write", "acme suspend own"), "suspended own");
    assert_eq!(rig.call("tenant-write", "acme resume own"), "resumed own");
    let listed = rig.call("tenant-read", "acme list");
    assert!(listed.contains("\"name\":\"own\",\"owner\":\"acme\"") && !listed.contains("other"), "{listed}");
    for instance in ["other", "operators", "none", "\"own\"", " own", "own,", "own\u{a0}x", ""] {
        let problem = rig.refused("tenant-read", &format!("acme read {instance} c.count"));
        assert!(problem.starts_with("tenant `acme` has no instance `"), "{instance}: {problem}");
        let text = format!("acme install {instance}\n{install}");
        assert!(rig.refused("tenant-write", &text).starts_with("tenant `acme` has no"), "{instance}");
    }
    // The operator's suspension is not the tenant's to end.
    rig.call("suspend", "own");
    for call in ["resume own".to_owned(), format!("install own\n{install}"), "install own\n".into()] {
        assert_eq!(rig.refused("tenant-write", &format!("acme {call}")), "the operator has suspended `own`");
    }
    assert!(rig.refused("tenant-write", "acme suspend own").contains("is suspended, not running"));
    assert_eq!(rig.refused("tenant-write", "acme resume own"), "the operator has suspended `own`");
    rig.call("resume", "own");
    // Nor where the tenant was the first to suspend it.
    rig.call("tenant-write", "acme suspend own");
    rig.call("suspend", "own");
    assert_eq!(rig.refused("tenant-write", "acme resume own"), "the operator has suspended `own`");
    assert!(rig.refused("suspend", "own").contains("is suspended, not running"));
    rig.call("resume", "own");
    rig.call("tenant-write", "acme suspend own");
    rig.call("tenant-write", "acme resume own");
    // Who it creates, who it ends, and the switch are the operator's affair; so is the other kind of handler.
    for argument in [
        "create x",
        "destroy own",
        "map 02:00:00:00:09:09 own.0",
        "read own c.count",
        "tenant-write acme suspend own",
        "",
    ] {
        let problem = rig.refused("tenant-write", &format!("acme {argument}"));
        assert!(problem.starts_with("a tenant has no such handler"), "{argument}: {problem}");
    }
    assert!(rig.refused("tenant-read", "acme install own\n").starts_with("a tenant has no such handler"));
    rig.end();
}

#[test]
fn an_owner_goes_with_no_capability() {
    let with = |capabilities: &[&str]| {
        let one = InstanceSettings {
            owner: Some("acme".into()),
            memory: Some("1 MB".parse().expect("bytes")),
            ..InstanceSettings::default()
        };
        let settings = InstancesSettings {
            capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
            instance: [("own".to_owned(), one)].into(),
            ..InstancesSettings::default()
        };
        settings.check().map_err(|invalid| invalid.problem)
    };
    assert_eq!(with(&[]), Ok(()));
    assert!(with(&["files"]).unwrap_err().contains("would have the `capabilities` of the operator's"));
}
