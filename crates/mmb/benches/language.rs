//! Reading and linting many rules: `cargo bench -p netbricks-mmb --bench language`.
#![expect(clippy::unwrap_used, reason = "the lines are good")]

use std::fmt::Write;
use std::net::Ipv4Addr;

use netbricks_mmb::language::parse_file;
use netbricks_mmb::lint::lint_all;
use netbricks_mmb::rule::{Command, Rule};

const RULES: usize = 100_000;

fn main() {
    divan::main();
}

/// Rules over five-tuples, with prefixes of many lengths, as in firewalls.
fn rules() -> String {
    let (mut text, mut seed) = (String::new(), 0x9e37_79b9_7f4a_7c15u64);
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let prefix = |address: u64, length: u64| {
        let address = Ipv4Addr::from_bits(address as u32 & !(0xffff_ffffu64 >> length) as u32);
        format!("{address}/{length}")
    };
    for _ in 0..RULES {
        let (source, destination) = (prefix(next(), 16 + next() % 17), prefix(next(), 16 + next() % 17));
        let port = next() as u16;
        writeln!(text, "add ip-saddr {source} ip-daddr {destination} ip-proto tcp tcp-dport {port} drop")
            .unwrap();
    }
    text
}

#[divan::bench(sample_count = 10)]
fn read(bencher: divan::Bencher<'_, '_>) {
    let text = rules();
    bencher.bench_local(|| parse_file(divan::black_box(&text)).unwrap().len());
}

#[divan::bench(sample_count = 10)]
fn lint(bencher: divan::Bencher<'_, '_>) {
    let commands = parse_file(&rules()).unwrap();
    let rule = |(_, command): &(usize, Command)| match command {
        Command::Add { rule, .. } => Some(rule.clone()),
        _ => None,
    };
    let rules: Vec<Rule> = commands.iter().filter_map(rule).collect();
    let rules: Vec<(&str, &Rule)> = rules.iter().map(|rule| ("", rule)).collect();
    bencher.bench_local(|| lint_all(divan::black_box(&rules)).len());
}
