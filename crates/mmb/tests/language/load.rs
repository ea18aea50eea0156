//! Many lines at once.

use std::fmt::Write;

use netbricks_mmb::language::{FileErrors, LineError, parse_file};
use netbricks_mmb::rule::Command;

/// Rules over five-tuples, with prefixes of many lengths, as in firewalls.
fn rules(count: usize) -> String {
    let mut text = String::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for at in 0..count {
        let (source, destination, port) = (next() as u32, next() as u32, next() as u16);
        let (from, to) = (16 + next() % 17, 16 + next() % 17);
        let clear = |address: u32, length: u64| {
            std::net::Ipv4Addr::from_bits(address & !(0xffff_ffffu64 >> length) as u32)
        };
        let (source, destination) = (clear(source, from), clear(destination, to));
        let verdict = if at % 3 == 0 { "accept" } else { "drop" };
        writeln!(
            text,
            "add ip-saddr {source}/{from} ip-daddr {destination}/{to} ip-proto tcp tcp-dport {port} {verdict}"
        )
        .unwrap();
    }
    text
}

#[test]
fn all_bad_lines_of_a_file_are_named_and_nothing_is_loaded() {
    let text = rules(10_000);
    let mut lines: Vec<&str> = text.lines().collect();
    lines[16] = "add tcp-dport 70000 drop";
    lines[4999] = "add tcp-dprt 80 drop";
    lines[9999] = "add ip-saddr 10.0.0.0/33 drop";
    let errors = parse_file(&lines.join("\n")).unwrap_err();
    assert_eq!(errors.total, 3);
    assert_eq!(
        errors.to_string(),
        "line 17, column 15: `70000` is no value of tcp-dport: tcp-dport is a number from 0 to 65535, or a name such as \
         `http`\n\
         line 5000, column 5: there is no field `tcp-dprt`: did you mean `tcp-dport`?\n\
         line 10000, column 23: a prefix of 33 bits is too long for IPv4: write a length from 0 to 32\n\
         3 lines are wrong; nothing is loaded"
    );
}

#[test]
fn a_hundred_errors_are_kept_and_all_are_counted() {
    let errors = parse_file(&"drop\n".repeat(250)).unwrap_err();
    assert_eq!((errors.errors.len(), errors.total), (FileErrors::KEPT, 250));
    assert!(errors.to_string().ends_with("and 150 more\n250 lines are wrong; nothing is loaded"));
    let _: &(usize, LineError) = &errors.errors[99];
}

#[test]
fn lines_keep_their_numbers() {
    let commands = parse_file("# rules\r\n\r\nlist\r\n  flush # all\n").unwrap();
    assert_eq!(commands, [(3, Command::List), (4, Command::Flush)]);
}
