//! Tenants come, change and go while packets move.

use netbricks_control::api::{ChangeKind, Code};

use super::super::{Application, file, pool_for};
use super::tests::{Asking, lost_nothing, while_running};

/// A port of made-up traffic to 198.18.0.0/15 whose packets these tenants share with the operator.
///
/// Its own clock drives the run, so that no queue overflows on a busy machine.
fn shared_by(tenants: &str) -> String {
    format!(
        "[port.lan]\ndriver = \"generator\"\nflows = 256\n[port.out]\ndriver = \"null\"\n\
         [[chain]]\nfrom = \"lan\"\nto = \"out\"\n{tenants}\n[runtime]\nframes = 8192\nseed = 1\n"
    )
}

fn tenant(name: &str, network: &str, rest: &str, through: &str) -> String {
    format!(
        "[tenant.{name}]\naddresses = [\"{network}\"]\n{rest}\n[[tenant.{name}.chain]]\nfrom = \"lan\"\n\
         through = [{through}]\nto = \"out\"\n"
    )
}

#[test]
fn tenants_come_change_and_go_two_hundred_times_and_nothing_is_lost() {
    let base = tenant("acme", "198.18.0.0/19", "weight = 2", "\"flows\"")
        + "[tenant.acme.function.flows]\nuse = \"monitor\"\ncapacity = 1_000\n";
    let summary = while_running(&shared_by(&base), move |asking| {
        asking.let_packets_pass();
        for round in 0..67 {
            let corp = |weight: u32| {
                tenant(
                    "corp",
                    "198.18.32.0/19",
                    &format!("weight = {weight}\npriority = {}", round % 8),
                    "\"ttl\"",
                )
            };
            for change in [corp(1), corp(7), String::new()] {
                let applied = asking.apply(&shared_by(&(change + &base))).unwrap();
                assert_eq!(applied.refused, Vec::<String>::new());
                assert!(applied.plan.kept.contains(&"acme:flows".to_owned()), "{:?}", applied.plan.kept);
                asking.ask(|_| ());
            }
        }
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let flows = summary.nodes.iter().find(|node| node.name == "acme:flows").unwrap();
    assert!(flows.arrived > 0);
}

#[test]
fn the_plan_tells_of_tenants_and_their_counters_are_theirs() {
    let base = tenant("acme", "198.18.0.0/19", "", "\"ttl\"");
    let summary = while_running(&shared_by(&base), |asking| {
        let more = tenant("acme", "198.18.0.0/19", "weight = 3", "\"ttl\"")
            + &tenant("corp", "198.18.32.0/19", "", "\"ttl\"");
        let changes = asking.apply(&shared_by(&more)).unwrap().plan.changes;
        let told: Vec<_> = changes
            .iter()
            .filter(|change| change.part == "tenant")
            .map(|change| (change.kind, change.name.as_str()))
            .collect();
        assert_eq!(told, [(ChangeKind::Updated, "acme"), (ChangeKind::Added, "corp")]);
        wait_for_packets(asking, "corp");
        let stats = asking.stats();
        let acme = &stats.tenants[0];
        assert_eq!((acme.tenant.as_str(), acme.weight), ("acme", 3));
        assert!(acme.used_ns > 0 && acme.slices > 0 && acme.arrived.packets > 0, "{acme:?}");
        let of = |node: &str| stats.nodes.iter().find(|known| known.node == node).unwrap().tenant.clone();
        assert_eq!((of("corp:ttl"), of("lan:tenants"), of("lan")), (Some("corp".into()), None, None));
        let answers = asking.call("acme:lan:queue", "capacity", "", false).unwrap();
        assert_eq!(answers.answers[0].value, "512");
    });
    lost_nothing(&summary);
}

fn wait_for_packets(asking: &Asking, tenant: &str) {
    let came = |asking: &Asking| {
        asking.stats().tenants.iter().any(|known| known.tenant == tenant && known.arrived.packets > 0)
    };
    while !came(asking) {
        std::thread::yield_now();
    }
}

#[test]
fn tenants_that_would_take_more_than_they_may_change_nothing() {
    let base = tenant("acme", "198.18.0.0/19", "memory = \"1 MB\"\nframes = 1000", "\"flows\"");
    let flows =
        |capacity: u32| format!("[tenant.acme.function.flows]\nuse = \"monitor\"\ncapacity = {capacity}\n");
    let small = shared_by(&(base.clone() + &flows(1_000)));
    let summary = while_running(&small, move |asking| {
        let large = asking.apply(&shared_by(&(base.clone() + &flows(1_000_000)))).unwrap_err();
        assert_eq!(large.code, Code::Faulty);
        assert!(large.detail.contains("tenant `acme` would take"), "{}", large.detail);
        let long = base.replace("frames = 1000", "frames = 1000\nqueue = 1001");
        let long = asking.apply(&shared_by(&(long + &flows(1_000)))).unwrap_err();
        assert!(
            long.detail.contains("have room for 1001 packets on each worker, and it may hold 1000"),
            "{}",
            long.detail
        );
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// Packets that functions hold count as those of queues: a shaper's queue, or a Click configuration's elements.
#[test]
fn functions_that_hold_packets_count_for_the_quota_and_the_pool() {
    let app = Application::new(crate::standard(), crate::Drivers::standard());
    let shaper = |queue: u32| format!("use = \"shaper\"\nrate = \"1 pps\"\nqueue = {queue}\n");
    let click = |frames: &str| {
        format!(
            "use = \"click\"\ntext = \"FromDevice(a) -> Queue(10) -> Unqueue -> ToDevice(a)\"\n{frames}\n"
        )
    };
    let nat = "use = \"nat\"\ninside = [\"198.18.0.0/19\"]\ninside_ports = [\"lan\"]\npool = [\"203.0.113.0/28\"]\n".to_owned();
    for (rest, function, expected) in [
        ("frames = 767", nat, Some("have room for 768 packets")),
        ("frames = 600", shaper(87), None),
        ("frames = 600", shaper(88), Some("have room for 601 packets on each worker, and it may hold 600")),
        ("", shaper(1_000_000), Some("have room for 1000513 packets on one worker, and the pool has 8192")),
        ("frames = 768", click("frames = 256"), None),
        ("frames = 767", click("frames = 256"), Some("have room for 768 packets")),
        ("", click(""), Some("function `acme:held` may hold any number of packets")),
        ("", "use = \"instances\"\n".into(), Some("function `acme:held` may hold any number of packets")),
    ] {
        let text = shared_by(
            &(tenant("acme", "198.18.0.0/19", rest, "\"held\"")
                + &format!("[tenant.acme.function.held]\n{function}")),
        );
        let file = file::File {
            name: "edge.toml".into(),
            text,
            directory: "/nowhere".into(),
            files: Default::default(),
        };
        let said = match file::check_spread(&app, &file) {
            Ok(_) => None,
            Err(faults) => {
                let found = faults.diagnostics.sorted();
                Some(found.iter().map(|found| found.message.clone()).collect::<Vec<_>>().join("\n"))
            }
        };
        match (&said, expected) {
            (None, None) => {}
            (Some(said), Some(expected)) if said.contains(expected) => {}
            _ => panic!("{rest} {function}: expected {expected:?}, found {said:?}"),
        }
    }
}

#[test]
fn a_tenant_moves_its_own_flows_alone() {
    let two = |name: &str, network: &str| {
        tenant(name, network, "", "\"sh\"") + &format!("[tenant.{name}.function.sh]\nuse = \"shuffle\"\n")
    };
    let text = shared_by(&(two("acme", "198.18.0.0/19") + &two("corp", "198.18.32.0/19"))) + "workers = 2\n";
    let summary = while_running(&text, |asking| {
        let owners = |asking: &Asking, function: &str| {
            asking.call(function, "owners", "", false).unwrap().answers[0].value.clone()
        };
        let before = owners(asking, "corp:sh");
        assert_eq!(owners(asking, "acme:sh"), before, "both begin alike");
        asking.call("acme:sh", "move", "0-4095 0", true).unwrap();
        assert_ne!(owners(asking, "acme:sh"), before);
        assert_eq!(owners(asking, "corp:sh"), before);
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

#[test]
fn a_token_file_is_the_same_by_each_of_its_names() {
    let folder = std::env::temp_dir().join(format!("netbricks-tokens-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("token"), "acme-0123456789abcdef").unwrap();
    let of = |directory: &std::path::Path, token: &str| {
        let text =
            shared_by(&tenant("acme", "198.18.0.0/19", &format!("token_file = \"{token}\""), "\"ttl\""));
        let app = Application::new(crate::standard(), crate::Drivers::standard());
        let file = file::File {
            name: "edge.toml".into(),
            text,
            directory: directory.to_owned(),
            files: Default::default(),
        };
        let checked = file::check(&app, &file).ok().expect("the file is right");
        super::tenants::InstalledTenant::of(&checked.plan.tenants[0], directory)
    };
    let (one, other) = (of(&folder, "token"), of(&folder.join("sub"), "../token"));
    assert!(one == other, "{one:?} {other:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The generator's clients are in 10.0.0.0/8, and its servers in 198.18.0.0/16.
#[test]
fn a_tenant_behind_the_250th_has_the_packets_that_are_sent_to_it() {
    let mut tenants = tenant("sender", "10.0.0.0/8", "queue = 8", "\"ttl\"");
    for number in 0..250 {
        tenants += &tenant(&format!("t{number}"), &format!("172.16.{number}.0/24"), "queue = 8", "");
    }
    tenants += &tenant("receiver", "198.18.0.0/15", "queue = 8", "\"ttl\"");
    let summary = while_running(&shared_by(&tenants), |asking| {
        wait_for_packets(asking, "receiver");
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let node = |name: &str| summary.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(node("sender:lan:queue").arrived, 0);
    assert_eq!(node("receiver:lan:queue").arrived, node("lan").received);
}

#[test]
fn queues_that_would_hold_the_whole_pool_are_refused() {
    let tenants = |queue: u32| {
        ["acme", "corp"]
            .iter()
            .zip([0, 32])
            .map(|(name, third)| {
                tenant(name, &format!("198.18.{third}.0/19"), &format!("queue = {queue}"), "\"ttl\"")
            })
            .collect::<String>()
    };
    // Three quarters of 8192 buffers, shared by two queues.
    let summary = while_running(&shared_by(&tenants(512)), move |asking| {
        let refused = asking.apply(&shared_by(&tenants(3_073))).unwrap_err();
        assert_eq!(refused.code, Code::Faulty);
        let why = "have room for 6146 packets on one worker, and the pool has 8192 buffers";
        assert!(refused.detail.contains(why), "{}", refused.detail);
        assert_eq!(asking.apply(&shared_by(&tenants(3_072))).unwrap().refused, Vec::<String>::new());
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let app = Application::new(crate::standard(), crate::Drivers::standard());
    for (queue, workers, is_refused) in [(3_073, 1, true), (3_072, 1, false), (1_537, 2, true)] {
        let file = file::File {
            name: "edge.toml".into(),
            text: shared_by(&tenants(queue)) + &format!("workers = {workers}\n"),
            directory: "/nowhere".into(),
            files: Default::default(),
        };
        let refused = file::check_spread(&app, &file).is_err();
        assert_eq!(refused, is_refused, "{queue} on {workers}");
    }
}

/// A file with the default number of buffers and so many tenants.
fn crowded(count: usize) -> String {
    let tenants: String = (0..count)
        .map(|number| tenant(&format!("t{number}"), &format!("198.18.{number}.0/24"), "", ""))
        .collect();
    shared_by(&tenants).replace("frames = 8192\n", "")
}

#[test]
fn the_default_pool_has_what_the_queues_of_many_tenants_need() {
    let app = Application::new(crate::standard(), crate::Drivers::standard());
    let checked =
        |tenants: usize, runtime: &str, test: &dyn Fn(Result<file::Checked<'_>, file::Faults<'_>>)| {
            let file = file::File {
                name: "edge.toml".into(),
                text: crowded(tenants) + runtime,
                directory: "/nowhere".into(),
                files: Default::default(),
            };
            test(file::check_spread(&app, &file));
        };
    // A third more than 512 packets in each queue, on each of two workers.
    for (tenants, frames) in [(1, 16_384), (12, 16_384), (13, 17_750), (30, 40_960)] {
        checked(tenants, "workers = 2\n", &|checked| {
            let checked = checked.ok().expect("there is room");
            assert_eq!(checked.frames, frames, "{tenants} tenants");
            let pool = pool_for(&checked.plan, &app.drivers, 2).expect("there is memory");
            assert_eq!(pool.region().frames, frames, "{tenants} tenants");
        });
    }
    for (tenants, runtime, needed) in
        [(30, "workers = 2\nframes = 16_000\n", "40960"), (97, "workers = 2\n", "132438")]
    {
        checked(tenants, runtime, &|checked| {
            let faults = checked.err().expect("there is no room");
            let found = faults.diagnostics.sorted();
            let help = found.iter().flat_map(|found| &found.help).any(|help| help.contains(needed));
            assert!(found.len() == 1 && help, "{found:?}");
        });
    }
}

#[test]
fn a_change_that_needs_a_larger_pool_than_runs_is_refused() {
    let summary = while_running(&crowded(2), |asking| {
        let refused = asking.apply(&crowded(30)).unwrap_err();
        let why = "have room for 15360 packets on one worker, and the pool has 16384 buffers";
        assert!(refused.code == Code::Faulty && refused.detail.contains(why), "{}", refused.detail);
        assert_eq!(asking.apply(&crowded(20)).unwrap().refused, Vec::<String>::new());
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
}

/// On a real clock queues overflow and ceilings hold tenants back. All packets are accounted for all the same.
#[test]
fn tenants_come_change_and_go_under_load_and_every_packet_is_accounted_for() {
    let file = |tenants: &str| {
        shared_by(tenants).replace("driver = \"generator\"\n", "driver = \"generator\"\nclock = \"real\"\n")
    };
    let acme = |ceiling: &str| {
        tenant(
            "acme",
            "198.18.0.0/18",
            &format!("weight = 2\nqueue = 64\nceiling = \"{ceiling}\""),
            "\"flows\", \"slow\"",
        ) + "[tenant.acme.function.flows]\nuse = \"monitor\"\ncapacity = 1_000\n\
             [tenant.acme.function.slow]\nuse = \"busy\"\ncycles = 20_000\n"
    };
    let begun = file(&acme("10 %"));
    let summary = while_running(&begun, move |asking| {
        wait_for_packets(asking, "acme");
        for round in 0..67 {
            let corp = tenant(
                "corp",
                "198.18.64.0/18",
                &format!("weight = {}\npriority = {}\nqueue = 16", round % 5 + 1, round % 8),
                "\"ttl\"",
            );
            // Without a ceiling, and with another one.
            let free = acme("100 %").replace("ceiling = \"100 %\"", "");
            for change in [acme("5 %") + &corp, free + &corp, acme("20 %")] {
                let applied = asking.apply(&file(&change)).unwrap();
                assert_eq!(applied.refused, Vec::<String>::new());
                assert!(applied.plan.kept.contains(&"acme:flows".to_owned()), "{:?}", applied.plan.kept);
                asking.ask(|_| ());
            }
        }
        asking.let_packets_pass();
    });
    assert!(summary.conserved, "{:?}", summary.unbalanced);
    assert!(summary.dropped.keys().all(|reason| *reason == "queue-full"), "{:?}", summary.dropped);
    assert_eq!(summary.received, summary.sent + summary.dropped.values().sum::<u64>());
    let flows = summary.nodes.iter().find(|node| node.name == "acme:flows").unwrap();
    assert!(flows.arrived > 0);
}

/// On a real clock, with queues that suffice: nothing is dropped while tenants come and go.
///
/// They have room for what comes in a second, for so long may a busy machine keep the worker from running.
#[test]
fn tenants_come_change_and_go_under_load_and_lose_nothing_where_queues_suffice() {
    let file = |tenants: &str| {
        let real = "driver = \"generator\"\nclock = \"real\"\nrate = \"2 kpps\"\n";
        shared_by(tenants).replace("driver = \"generator\"\n", real)
    };
    let acme = |weight: u32| {
        let keys = format!("weight = {weight}\nqueue = 2048");
        tenant("acme", "198.18.0.0/18", &keys, "\"flows\"")
            + "[tenant.acme.function.flows]\nuse = \"monitor\"\ncapacity = 1_000\n"
    };
    let summary = while_running(&file(&acme(2)), move |asking| {
        wait_for_packets(asking, "acme");
        for round in 0..67 {
            let corp = |weight: u32| {
                let keys = format!("weight = {weight}\npriority = {}\nqueue = 2048", round % 8);
                tenant("corp", "198.18.64.0/18", &keys, "\"ttl\"")
            };
            for change in [acme(2) + &corp(1), acme(3) + &corp(7), acme(2)] {
                let applied = asking.apply(&file(&change)).unwrap();
                assert_eq!(applied.refused, Vec::<String>::new());
                asking.ask(|_| ());
            }
        }
        asking.let_packets_pass();
    });
    lost_nothing(&summary);
    let flows = summary.nodes.iter().find(|node| node.name == "acme:flows").unwrap();
    assert!(flows.arrived > 0);
}
