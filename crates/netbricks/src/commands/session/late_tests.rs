//! Changes that something comes between: writes of handlers, a start, a pipe, a full queue, a quarantine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use netbricks_control::api::{ChangeKind, Code};
use netbricks_core::packet::Link;
use netbricks_core::{Input, NoSettings, Operator, compose};

use super::super::arguments::ControlArguments;
use super::tests::{
    Asking, FLOWS, chain, lost_nothing, source, while_controlled, while_running, while_running_with,
};

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("nb-late-{name}-{}", std::process::id()))
}

/// The external ports of mappings in a text.
fn mapped(text: &str) -> BTreeSet<u16> {
    text.split("203.0.113.1:").skip(1).map(|of| of.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn writes_that_workers_make_while_a_file_is_applied_are_in_the_run_and_in_the_journal() {
    let file = |parity: bool| {
        let nat =
            "use = \"nat\"\ninside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]";
        chain("\"nat\"", &format!("[function.nat]\n{nat}\nparity = {parity}"))
    };
    while_running(&file(false), move |asking| {
        let next = AtomicU64::new(1_024);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // However long the changes take, there are ports for some tens of thousands.
                    while !done.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) < 60_000 {
                        let port = next.fetch_add(1, Ordering::Relaxed);
                        // It panics where the write is refused.
                        asking.write(
                            "nat",
                            "static-add",
                            &format!("tcp 203.0.113.1:{port} -> 10.0.0.5:{port}"),
                        );
                    }
                });
            }
            let applied = (0..20).map(|round| asking.begin_to_apply(&file(round % 2 == 0)).recv().unwrap());
            let applied: Vec<_> = applied.collect();
            done.store(true, Ordering::Relaxed);
            for applied in applied {
                match applied {
                    Ok(applied) => assert_eq!(applied.plan.warnings, Vec::<String>::new()),
                    // A busy machine: a worker had not answered a write yet, and nothing changed.
                    Err(problem) => assert_eq!(problem.code, Code::Timeout, "{problem}"),
                }
            }
        });
        let made: BTreeSet<u16> =
            (1_024..next.load(Ordering::Relaxed)).map(|port| u16::try_from(port).unwrap()).collect();
        let running = asking.call("nat", "static", "", false).unwrap().answers[0].value.clone();
        assert_eq!(mapped(&running), made);
        let journal = asking.ask(|director| director.written().to_vec());
        let journal: Vec<String> = journal.into_iter().map(|written| written.argument + " ").collect();
        assert_eq!((journal.len(), mapped(&journal.concat())), (made.len(), made));
    });
}

#[test]
fn no_packet_comes_before_the_journal_is_done_again() {
    let state = folder("journal");
    let control = ControlArguments { socket: None, state: Some(state.clone()), no_control: true };
    let text = chain("\"fw\"", "[function.fw]\nuse = \"firewall\"\nlines = [\"policy allow\"]");
    let run = |test: fn(&Asking)| while_controlled(crate::standard(), &text, Some(&control), test);
    let first = run(|asking| {
        asking.let_packets_pass();
        asking.write("fw", "load", "policy deny");
    });
    assert!(first.sent > 0);
    let second = run(Asking::let_packets_pass);
    assert!(second.received >= 1_000);
    assert_eq!(second.sent, 0, "the file alone lets packets pass");
    assert_eq!(second.dropped.values().sum::<u64>(), second.received);
    std::fs::remove_dir_all(state).unwrap();
}

#[test]
fn a_file_that_names_a_pipe_is_refused_and_later_ones_are_applied() {
    let pipe = folder("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let table = format!("[function.fib]\nuse = \"lpm\"\ntable = \"{}\"", pipe.display());
    let summary = while_running(&chain("\"ttl\"", ""), move |asking| {
        let problem = asking.begin_to_apply(&chain("\"fib\"", &table)).recv().unwrap().unwrap_err();
        assert_eq!(problem.code, Code::Faulty);
        assert!(problem.detail.contains("it is a pipe, and a regular file is expected"), "{problem}");
        let applied = asking.begin_to_apply(&chain("\"flows\"", FLOWS)).recv().unwrap().unwrap();
        assert_eq!(applied.configuration, 2);
    });
    lost_nothing(&summary);
    std::fs::remove_file(pipe).unwrap();
}

#[test]
fn a_preparation_that_does_not_end_keeps_no_run_from_its_end() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    let mut registry = crate::standard();
    registry.add::<NoSettings>("endless", "Is never made.", |_, worker| {
        if std::thread::current().name() == Some("netbricks-prepare") {
            WAITS.store(true, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        compose(worker, |input: Input| input.parse::<Link>().done())
    });
    let summary = while_running_with(registry, &chain("\"flows\"", FLOWS), |asking| {
        let applied = asking.begin_to_apply(&chain("\"endless\"", ""));
        while !WAITS.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(applied.try_recv().is_err());
    });
    lost_nothing(&summary);
}

#[test]
fn where_the_directors_queue_is_full_counters_are_refused_as_busy() {
    while_running(&chain("\"flows\"", FLOWS), |asking| {
        let tasks = asking.tasks();
        let answered = asking.ask(move |director| {
            while tasks.post(|_| ()).is_ok() {}
            let (sender, answer) = channel();
            director.stats(Box::new(move |stats| drop(sender.send(stats.map(drop)))));
            // The worker's answer finds no room.
            answer.recv_timeout(Duration::from_secs(60))
        });
        // Until they are done.
        let (sender, done) = channel();
        asking.tasks().post_patiently(move |_| sender.send(()).unwrap());
        done.recv().unwrap();
        assert_eq!(answered.map(|stats| stats.map_err(|problem| problem.code)), Ok(Err(Code::Busy)));
    });
}

#[test]
fn the_running_file_has_rules_and_mappings_that_handlers_wrote() {
    let nat =
        "use = \"nat\"\ninside = [\"10.0.0.0/8\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]";
    let tables = format!(
        "[function.nat]\n{nat}\nstatic = [\"198.51.100.9 -> 10.0.0.6\"]\n\
         [function.fw]\nuse = \"firewall\"\nlines = [\"policy deny\"]"
    );
    while_running(&chain("\"fw\", \"nat\"", &tables), |asking| {
        asking.write("nat", "static-add", "tcp 203.0.113.7:80 -> 10.0.0.5:8080");
        asking.write("nat", "static-remove", "198.51.100.9 -> 10.0.0.6");
        asking.write("fw", "load", "policy allow\ndeny name dns udp to any port 53");
        asking.write("fw", "flush", "");
        let file = asking.ask(|director| director.running_source());
        let text = &file.text;
        assert!(text.contains("static = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]\n"), "{text}");
        assert!(
            text.contains("lines = [\"policy allow\", \"deny name dns udp to any port 53\"]\n"),
            "{text}"
        );
        let comments: Vec<&str> = text.lines().filter(|line| line.starts_with("#   ")).collect();
        assert_eq!(comments, ["#   netbricks set fw.flush"]);
        // It is a file that can be applied.
        let (keep, again) = (netbricks_control::api::ApplyOptions::default(), file.clone());
        asking.ask(move |director| director.apply(again, keep, None, 0)).unwrap();
        let text = asking.ask(|director| director.running_source().text);
        let mapping = "static = [\"tcp 203.0.113.7:80 -> 10.0.0.5:8080\"]\n";
        assert!(text.contains(mapping), "its writes are said once: {text}");
        let forget = netbricks_control::api::ApplyOptions { forget: true, ..Default::default() };
        asking.ask(move |director| director.apply(file, forget, None, 0)).unwrap();
        let rules = asking.call("fw", "rules", "", false).unwrap().answers[0].value.clone();
        assert!(rules.contains("dns"), "{rules}");
        // A set that was changed later has all its values.
        asking.write("fw", "load", "set @web { 192.0.2.1 }\npolicy allow");
        asking.write("fw", "set", "add @web 192.0.2.2");
        let before = asking.call("fw", "rules", "", false).unwrap().answers[0].value.clone();
        let file = asking.ask(|director| director.running_source());
        assert!(!file.text.contains("netbricks set fw.set"), "{}", file.text);
        let forget = netbricks_control::api::ApplyOptions { forget: true, ..Default::default() };
        asking.ask(move |director| director.apply(file, forget, None, 0)).unwrap();
        assert_eq!(asking.call("fw", "rules", "", false).unwrap().answers[0].value, before);
    });
}

/// Commands that were typed live are in the file's keys: another process that begins with it has the same rules.
#[test]
fn the_running_file_has_all_that_was_typed_to_an_mmb() {
    let directory = std::env::temp_dir().join(format!("nb-typed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let rules = directory.join("edge.mmb");
    std::fs::write(&rules, "define @old { 192.0.2.9 }\nadd name first ip-saddr @old drop\n").unwrap();
    let edge = format!(
        "[function.edge]\nuse = \"mmb\"\nrules = {:?} # kept\nlines = [\"add name second udp-dport 9 drop\"]\n\
         [function.plain]\nuse = \"mmb\"",
        rules.to_str().unwrap()
    );
    let many: Vec<String> =
        (0..600).map(|number| format!("10.1.{}.{}", number / 256, number % 256)).collect();
    let typed = [
        "mode all-match".to_owned(),
        "policy drop".into(),
        format!("define @many {{ {} }}", many[..300].join(", ")),
        format!("extend @many {{ {} }}\ndefine @both {{ @many, @old }}", many[300..].join(", ")),
        "add name web tcp-dport { 80, 443 } accept comment \"a \\\"quoted\\\" word\"".into(),
        "add-stateful at 1 name dns udp-dport 53 accept\nadd ip-saddr @both mod ip-ttl 9".into(),
        "delete second\ndisable out".into(),
        "shrink @many { 10.1.0.7 }".into(),
    ];
    let first = chain("\"edge\", \"plain\"", &edge);
    let lines = |asking: &Asking, function: &str| {
        asking.call(function, "lines", "", false).unwrap().answers[0].value.clone()
    };
    let (sender, printed) = channel();
    while_running(&first, move |asking| {
        typed.iter().for_each(|commands| asking.write("edge", "run", commands));
        asking.write("plain", "run", "add all drop");
        asking.write("plain", "replace", "policy drop");
        let file = asking.ask(|director| director.running_source());
        let before = ["edge", "plain"].map(|function| lines(asking, function));
        assert!(!file.text.contains("Changed live") && file.text.contains("# rules = "), "{}", file.text);
        // Applied here, it makes nothing twice: what it says is not written again.
        let (again, keep) = (file.clone(), netbricks_control::api::ApplyOptions::default());
        let applied = asking.ask(move |director| director.apply(again, keep, None, 0)).unwrap();
        assert_eq!(applied.plan.warnings, Vec::<String>::new());
        assert_eq!(["edge", "plain"].map(|function| lines(asking, function)), before);
        assert_eq!(asking.ask(|director| director.running_source().text), file.text);
        asking.let_packets_pass();
        sender.send((file.text, before)).unwrap();
    });
    let (text, before) = printed.recv().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let file = super::super::file::File::of(&source(&text), &netbricks_control::Files::new());
    let app = super::super::Application::new(crate::standard(), crate::Drivers::standard());
    assert!(super::super::file::check(&app, &file).is_ok(), "{text}");
    while_running(&text, move |asking| {
        assert_eq!(["edge", "plain"].map(|function| lines(asking, function)), before);
        for part in ["mode all-match\n", "policy drop\n", "disable out\n", "define @both", "extend @many"] {
            assert!(before[0].contains(part), "{part}: {}", before[0]);
        }
        assert_eq!(before[1], "policy drop\n");
    });
}

/// A write that the applied file says does not outlive the entry in a later file.
#[test]
fn writes_that_a_file_says_leave_the_journal_of_a_function_that_goes_on() {
    let first = chain("\"fib\"", "[function.fib]\nuse = \"lpm\"\nroutes = [\"0.0.0.0/0 1\"]");
    while_running(&first.clone(), move |asking| {
        let journal = || asking.ask(|director| director.written().len());
        let lookup = || asking.call("fib", "lookup", "192.0.2.1", false).unwrap().answers[0].value.clone();
        asking.write("fib", "add", "192.0.2.0/24 2");
        // The file that runs says nothing of it.
        asking.apply(&first).unwrap();
        assert_eq!((journal(), lookup()), (1, "2".to_owned()));
        let printed = asking.ask(|director| director.running_source().text);
        let applied = asking.apply(&printed).unwrap();
        let [change] = applied.plan.changes.as_slice() else { panic!("{applied:?}") };
        assert_eq!((change.kind, change.name.as_str()), (ChangeKind::Updated, "fib"));
        assert_eq!((journal(), lookup()), (0, "2".to_owned()));
        asking.apply(&first).unwrap();
        assert_eq!((journal(), lookup()), (0, "1".to_owned()));
        assert!(!asking.ask(|director| director.running_source().text).contains("192.0.2.0/24"));
    });
}

#[test]
fn the_same_file_makes_a_function_again_that_is_in_quarantine() {
    static BREAKS: AtomicBool = AtomicBool::new(false);
    let mut registry = crate::standard();
    registry.add::<NoSettings>("breaks", "Panics at times.", |_, worker| {
        compose(worker, |input: Input| {
            input.parse::<Link>().transform(|_| assert!(!BREAKS.load(Ordering::SeqCst), "planted")).done()
        })
    });
    let text = chain("\"flows\", \"breaks\"", &format!("{FLOWS}\n[function.breaks]\nrestart = \"never\""));
    while_running_with(registry, &text.clone(), move |asking| {
        let dropped = || {
            let stats = asking.stats();
            let node = stats.nodes.into_iter().find(|node| node.node == "breaks").unwrap();
            node.dropped.get("quarantined").map_or(0, |count| count.packets)
        };
        asking.let_packets_pass();
        BREAKS.store(true, Ordering::SeqCst);
        while dropped() == 0 {
            std::thread::yield_now();
        }
        BREAKS.store(false, Ordering::SeqCst);
        let plan = |asking: &Asking| {
            let file = source(&text);
            asking.ask(move |director| director.plan(&file)).unwrap()
        };
        let changes = plan(asking).changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!((changes[0].kind, changes[0].name.as_str()), (ChangeKind::Replaced, "breaks"));
        assert!(changes[0].detail.starts_with("it is in quarantine"), "{}", changes[0].detail);
        let applied = asking.apply(&text).unwrap();
        assert_eq!((applied.configuration, applied.plan.unchanged), (2, false));
        let before = dropped();
        asking.let_packets_pass();
        assert_eq!(dropped(), before);
        assert!(plan(asking).unchanged);
    });
}
