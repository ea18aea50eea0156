//! All functions over everything: whole packets of every kind, seeded mutations of them, and all captures. Nothing
//! panics, every packet is accounted for, and results do not depend on the batch size (which `run_node` checks).
#![forbid(unsafe_code)]

use netbricks_core::ShuffleKey;
use netbricks_core::{BuildError, Node, Operator, Worker, compose};
use netbricks_functions::{
    busy, group_by, http_inspect, icmp_echo, lpm, macswap, maglev, monitor, mss, rewrite_stream, shuffle,
    ttl, wire,
};
use netbricks_testkit::mutate::{Random, mutate};
use netbricks_testkit::{captures, checksums, kinds, run_node};

type Make = fn(&Worker) -> Result<Box<dyn Node>, BuildError>;

/// What the functions are told here.
struct Configs {
    paper: ttl::TtlConfig,
    ttl: ttl::TtlConfig,
    echo: icmp_echo::EchoConfig,
    monitor: monitor::MonitorConfig,
    mss: mss::MssConfig,
    busy: busy::BusyConfig,
    lpm: lpm::LpmSettings,
    maglev: maglev::MaglevConfig,
    http: http_inspect::HttpInspectConfig,
    rewrite: rewrite_stream::RewriteStreamConfig,
}

fn configs() -> Configs {
    Configs {
        paper: ttl::TtlConfig { non_ip: ttl::NonIp::Drop, ..Default::default() },
        ttl: ttl::TtlConfig {
            non_ip: ttl::NonIp::Pass,
            answer_v4: Some([192, 0, 2, 1].into()),
            answer_v6: "2001:db8:ff::1".parse().ok(),
            answer_rate: 1_000_000,
        },
        echo: icmp_echo::EchoConfig {
            mac: None,
            v4: Some([10, 0, 0, 2].into()),
            v6: "2001:db8::2".parse().ok(),
        },
        monitor: monitor::MonitorConfig { capacity: 4_096, ..Default::default() },
        mss: mss::MssConfig { size: Some(1_000), mtu: None, add: true },
        busy: busy::BusyConfig { cycles: 1 },
        lpm: lpm::LpmSettings::of(
            ["10.0.0.0/8 1", "10.0.0.0/31 2", "2001:db8::/32 3"].map(|route| route.parse().expect("a route")),
        ),
        maglev: maglev::MaglevConfig {
            backends: ["a 02:00:00:00:01:01", "b 02:00:00:00:01:02 3"]
                .map(|backend| backend.parse().expect("a backend"))
                .into(),
            capacity: 256,
            slots: 251,
            ..Default::default()
        },
        http: http_inspect::HttpInspectConfig { ports: vec![80, 443, 53], flows: 64, ..Default::default() },
        rewrite: rewrite_stream::RewriteStreamConfig {
            from: rewrite_stream::From::Both,
            ports: vec![80, 443, 53],
            flows: 64,
            ..rewrite_stream::RewriteStreamConfig::new("l", "longer")
        },
    }
}

fn groups(groups: usize, key: ShuffleKey, queue: usize) -> group_by::GroupSettings {
    group_by::GroupSettings { groups, key, queue }
}

/// Every function alone, and all of them in one loop.
fn functions() -> Vec<(&'static str, Make)> {
    vec![
        ("wire", |worker| compose(worker, wire::wire)),
        ("macswap", |worker| compose(worker, macswap::macswap)),
        ("ttl", |worker| {
            let config = configs().ttl;
            compose(worker, |input| ttl::ttl(input, &config, worker))
        }),
        ("ttl as the paper has it", |worker| {
            let config = configs().paper;
            compose(worker, |input| ttl::ttl(input, &config, worker))
        }),
        ("monitor", |worker| {
            let config = configs().monitor;
            compose(worker, |input| monitor::monitor(input, &config, worker))
        }),
        ("icmp-echo", |worker| {
            let config = configs().echo;
            compose(worker, |input| icmp_echo::icmp_echo(input, &config, worker))
        }),
        ("mss", |worker| {
            let config = configs().mss;
            compose(worker, |input| mss::mss(input, &config, worker))
        }),
        ("busy", |worker| {
            let config = configs().busy;
            compose(worker, |input| busy::busy(input, &config))
        }),
        ("lpm", |worker| {
            let config = configs().lpm;
            compose(worker, |input| lpm::lpm(input, &config, worker))
        }),
        ("maglev", |worker| {
            let config = configs().maglev;
            compose(worker, |input| maglev::maglev(input, &config, worker))
        }),
        ("http-inspect", |worker| {
            let config = configs().http;
            compose(worker, |input| http_inspect::http_inspect(input, &config, worker))
        }),
        ("http-block", |worker| {
            let block = vec!["example.org".to_owned()];
            http_inspect::node(&http_inspect::HttpInspectConfig { block, ..configs().http }, worker)
        }),
        ("rewrite-stream", |worker| {
            let config = configs().rewrite;
            compose(worker, |input| rewrite_stream::rewrite_stream(input, &config, worker))
        }),
        ("shuffle", |worker| shuffle::shuffle(&shuffle::ShuffleSettings::default(), worker)),
        ("group-by flow", |worker| group_by::group_by(&groups(7, ShuffleKey::SymmetricFlow, 0), worker)),
        ("group-by source", |worker| group_by::group_by(&groups(128, ShuffleKey::Source, 0), worker)),
        ("group-by vlan, queued", |worker| group_by::group_by(&groups(2, ShuffleKey::Vlan, 65_536), worker)),
        ("all", |worker| {
            let Configs { ttl, echo, monitor, mss, lpm, maglev, http, .. } = configs();
            compose(worker, |input| {
                icmp_echo::icmp_echo(input, &echo, worker)
                    .then(|input| ttl::ttl(input, &ttl, worker))
                    .then(|input| mss::mss(input, &mss, worker))
                    .then(|input| monitor::monitor(input, &monitor, worker))
                    .then(|input| lpm::lpm(input, &lpm, worker))
                    .then(|input| maglev::maglev(input, &maglev, worker))
                    .then(|input| http_inspect::http_inspect(input, &http, worker))
                    .then(macswap::macswap)
                    .then(wire::wire)
            })
        }),
    ]
}

fn survive(frames: &[Vec<u8>]) {
    for (name, make) in functions() {
        let report = run_node(make, frames.iter().cloned());
        assert_eq!(report.panics, [], "{name}");
        assert_eq!(report.totals.received.packets, frames.len() as u64, "{name}");
    }
}

#[test]
fn whole_packets_stay_whole() {
    let frames: Vec<_> = kinds::every().into_iter().map(|(_, frame)| frame).collect();
    for (name, make) in functions() {
        let report = run_node(make, frames.iter().cloned());
        assert_eq!(report.panics, [], "{name}");
        for frame in report.out.iter().chain(&report.replies) {
            assert_eq!(checksums::wrong(frame), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn twenty_thousand_mutations() {
    let (kinds, mut random) = (kinds::every(), Random::new(2026));
    for _ in 0..40 {
        let frames: Vec<_> = (0..500)
            .map(|_| {
                let mut frame = kinds[random.below(kinds.len())].1.clone();
                mutate(&mut frame, &mut random);
                frame
            })
            .collect();
        survive(&frames);
    }
}

#[test]
fn all_captures() {
    let files = captures::files();
    if files.is_empty() {
        eprintln!("skipped: no captures (set NETBRICKS_CAPTURES)");
    }
    let mut packets = 0;
    for file in &files {
        let frames: Vec<_> =
            captures::frames(file).into_iter().filter(|frame| frame.len() <= 65_535).collect();
        packets += frames.len();
        survive(&frames);
    }
    assert!(files.is_empty() || packets > 10_000, "only {packets} packets in {} captures", files.len());
}
