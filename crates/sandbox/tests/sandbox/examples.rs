//! The examples in C and Rust: compiled here where the compilers are, and compared with the same work in Rust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use netbricks_core::packet::checksum;
use netbricks_core::{Blueprint, DropReason};
use netbricks_testkit::build::ethernet;
use netbricks_testkit::{Frame, Report, run_node};

use crate::harness::Bench;
use crate::modules::try_blueprint;

/// The folder of the compiled examples in C; `None` where this machine has no compiler for them.
fn compiled() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        for program in ["clang-19", "wasm-ld-19", "make"] {
            if Command::new(program).arg("--version").output().is_err() {
                println!("skipped: there is no {program} to compile the examples");
                return None;
            }
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sandbox-examples");
        std::fs::create_dir_all(&folder).unwrap();
        let output = Command::new("make")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/c"))
            .arg(format!("OUT={}", folder.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(folder)
    });
    folder.as_deref()
}

fn example(name: &str, settings: &str) -> Option<Blueprint> {
    let module = std::fs::read(compiled()?.join(format!("{name}.wasm"))).unwrap();
    Some(try_blueprint(&module, settings).unwrap_or_else(|error| panic!("{error}")))
}

fn run(blueprint: Blueprint, frames: Vec<Vec<u8>>) -> Report {
    let report = run_node(move |worker| blueprint.build(worker), frames);
    assert_eq!(report.panics, []);
    report
}

/// Frames of IPv4 and IPv6 with each time to live, of many lengths.
fn frames() -> Vec<Vec<u8>> {
    let payload = [0xa5; 1_400];
    let v4 = (0..=255u8).map(|n| {
        ethernet()
            .ipv4([10, n, 1, 2], [192, n, 2, n])
            .ttl(n)
            .udp(u16::from(n), 53)
            .payload(&payload[..usize::from(n) * 5])
            .bytes()
    });
    let v6 = (0..=255u8).map(|n| {
        ethernet()
            .ipv6("2001:db8::1", "2001:db8::2")
            .ttl(n)
            .udp(u16::from(n), 53)
            .payload(&payload[..usize::from(n)])
            .bytes()
    });
    v4.chain(v6).collect()
}

const MODES: [&str; 2] = ["slice = \"10 ms\"\nmode = \"copy\"", "slice = \"10 ms\"\nmode = \"mapped\""];

#[test]
fn macswap_in_c_and_in_rust_swap_addresses() {
    let swapped = |frame: &Vec<u8>| [&frame[6..12], &frame[..6], &frame[12..]].concat();
    let expected: Vec<Vec<u8>> = frames().iter().map(swapped).collect();
    for mode in MODES {
        for blueprint in [example("macswap", mode), rust_module(mode)].into_iter().flatten() {
            assert!(run(blueprint, frames()).out == expected, "{mode}");
        }
    }
}

/// The example in Rust, where the compiler has the target.
fn rust_module(settings: &str) -> Option<Blueprint> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rust/src/lib.rs");
    let number = std::thread::current().id();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("macswap-{number:?}.wasm"));
    let compile = Command::new("rustc")
        .args([
            "--edition",
            "2024",
            "--target",
            "wasm32-unknown-unknown",
            "--crate-type",
            "cdylib",
            "-O",
            "-C",
            "panic=abort",
            "-o",
        ])
        .arg(&out)
        .arg(source)
        .output();
    match compile {
        Ok(output) if output.status.success() => Some(
            try_blueprint(&std::fs::read(&out).unwrap(), settings).unwrap_or_else(|error| panic!("{error}")),
        ),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("can't find crate"), "{said}");
            println!("skipped: rustc has no target wasm32-unknown-unknown");
            None
        }
        Err(error) => {
            println!("skipped: there is no rustc: {error}");
            None
        }
    }
}

#[test]
fn the_router_decrements_and_keeps_checksums_right() {
    for mode in MODES {
        let Some(blueprint) = example("ttl", mode) else { return };
        let report = run(blueprint, frames());
        assert_eq!(report.dropped(DropReason::TtlExpired), 4);
        let alive: Vec<Vec<u8>> = frames()
            .into_iter()
            .filter_map(|mut frame| {
                let (v4, place) = if frame[12..14] == [8, 0] { (true, 22) } else { (false, 21) };
                frame[place] = frame[place].checked_sub(1).filter(|ttl| *ttl > 0)?;
                if v4 {
                    frame[24..26].fill(0);
                    let sum = checksum::internet(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
                Some(frame)
            })
            .collect();
        assert!(report.out == alive, "{mode}");
    }
}

#[test]
fn the_policer_passes_the_rate_and_no_more() {
    for mode in MODES {
        let settings = format!("{mode}\nconfig = \"rate 100000 burst 1000\"");
        let Some(blueprint) = example("policer", &settings) else { return };
        let frame = |source: u8| {
            ethernet().ipv4([10, 0, 0, source], [10, 0, 0, 9]).udp(1, 2).payload(&[1; 58]).bytes()
        };
        assert_eq!(frame(1).len(), 100);
        let mut bench = Bench::new(&[blueprint]);
        // The burst of each source, whatever others send.
        bench.send(0, [vec![frame(1); 20], vec![frame(2); 5]].concat());
        assert_eq!(bench.out(0).len(), 15);
        // 100,000 bytes a second are a frame in a millisecond.
        for _ in 0..50 {
            bench.wait(1_000_000);
            bench.send(0, vec![frame(1); 3]);
            assert_eq!(bench.out(0).len(), 1);
        }
        bench.wait(3_600_000_000_000);
        bench.send(0, vec![frame(1); 20]);
        assert_eq!(bench.out(0).len(), 10, "no more than the burst after an hour");
        assert_eq!(bench.dropped(DropReason::RateLimited), 10 + 100 + 10);
        bench.end();
    }
    let Some(folder) = compiled() else { return };
    let module = std::fs::read(folder.join("policer.wasm")).unwrap();
    let refused = try_blueprint(&module, "config = \"rate fast\"").err().unwrap();
    assert!(refused.message.contains("it refuses its configuration"), "{refused}");
}

#[test]
fn the_longest_prefix_decides_the_next_hop() {
    let routes = [
        (0u32, 0, 1),
        (0x0a00_0000, 8, 2),
        (0xc0a8_0000, 16, 3),
        (0xc0a8_0100, 24, 4),
        (0xc0a8_0180, 25, 5),
        (0xc0a8_01ff, 32, 6),
    ];
    let line = |(address, length, hop): &(u32, u32, u8)| {
        let [a, b, c, d] = address.to_be_bytes();
        format!("{a}.{b}.{c}.{d}/{length} {hop}")
    };
    let text = |skip: usize| routes.iter().skip(skip).map(line).collect::<Vec<_>>().join("\\n");
    let hop = |destination: u32, skip: usize| {
        let fits = |(address, length, _): &&(u32, u32, u8)| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            destination & mask == *address
        };
        routes.iter().skip(skip).filter(fits).max_by_key(|(_, length, _)| *length).map(|(.., hop)| *hop)
    };
    let destinations: Vec<u32> = [
        0x0a01_0203,
        0x0b00_0001,
        0xc0a8_0001,
        0xc0a8_0101,
        0xc0a8_0181,
        0xc0a8_01ff,
        0xc0a9_0000,
        u32::MAX,
        1,
    ]
    .into_iter()
    .chain((0..200).map(|n: u32| 0xc0a8_0000 + n.wrapping_mul(0x9e37_79b9) % 0x2_0000))
    .collect();
    let frame =
        |destination: &u32| ethernet().ipv4([10, 0, 0, 1], destination.to_be_bytes()).udp(1, 2).bytes();
    for (mode, skip) in [(MODES[0], 0), (MODES[1], 0), (MODES[0], 1)] {
        let settings = format!("{mode}\nmemory = \"48 MiB\"\nconfig = \"{}\"", text(skip));
        // A route for everything touches 32 MiB, which takes long where the machine has to find them: without it first.
        let Some(blueprint) =
            example("lpm", &settings.replace("0.0.0.0/0 1\\n", if skip > 0 { "" } else { "0.0.0.0/4 1\\n" }))
        else {
            return;
        };
        let hop = |destination: u32| match hop(destination, skip) {
            Some(1) if destination >> 28 != 0 => None,
            hop => hop,
        };
        let report = run(blueprint, destinations.iter().map(frame).collect());
        let expected: Vec<Vec<u8>> = destinations
            .iter()
            .filter_map(|destination| {
                let mut frame = frame(destination);
                frame[5] = hop(*destination)?;
                Some(frame)
            })
            .collect();
        assert!(report.out == expected, "{mode} {skip}");
        assert_eq!(report.dropped(DropReason::NoRoute) as usize, destinations.len() - expected.len());
    }
}

#[test]
fn the_sum_covers_every_byte() {
    for mode in MODES {
        let Some(blueprint) = example("checksum", mode) else { return };
        let report = run(blueprint, frames());
        for (before, after) in frames().iter().zip(&report.out) {
            let words = before
                .chunks(2)
                .map(|word| u64::from(word[0]) | word.get(1).map_or(0, |byte| u64::from(*byte) << 8));
            let mut sum: u64 = words.sum();
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            assert_eq!(after[6..8], (sum as u16).to_le_bytes(), "{mode}");
            assert_eq!((&after[..6], &after[8..]), (&before[..6], &before[8..]));
        }
        assert_eq!(report.out.len(), 512);
    }
}
