//! Random rules, and packets that meet them.

use netbricks_testkit::build::ethernet;
use netbricks_testkit::mutate::Random;

use super::super::rule::{Action, Answer, Choice, End, FlagTest, Rule, Span, ValueKind, Version};
use super::super::{Policy, RuleList, Tracking, values};

/// One of these.
pub(super) fn pick<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len())]
}

pub(super) fn address(random: &mut Random, v6: bool) -> String {
    let last = random.below(8);
    if v6 {
        format!("2001:db8:{}::{last:x}", random.below(3))
    } else {
        format!("10.{}.{}.{last}", random.below(3), random.below(2) * 128)
    }
}

fn address_text(random: &mut Random, v6: bool) -> String {
    let one = address(random, v6);
    match random.below(5) {
        0 if v6 => format!("2001:db8:{}::/48", random.below(3)),
        0 => format!("10.{}.0.0/16", random.below(3)),
        1 if v6 => format!("2001:db8:{}::2-2001:db8:{}::5", 1, 1 + random.below(2)),
        1 => format!("10.1.0.2-10.{}.128.5", 1 + random.below(2)),
        2 if v6 => "2001:db8::/32".into(),
        2 => format!("10.{}.128.0/25", random.below(3)),
        _ => one,
    }
}

fn port_text(random: &mut Random) -> String {
    match random.below(5) {
        0 => "1000-1003".into(),
        1 => "0-1001".into(),
        2 => "1002-65535".into(),
        _ => (1000 + random.below(6)).to_string(),
    }
}

fn choice(
    random: &mut Random,
    kind: ValueKind,
    sets: &[&str],
    mut text: impl FnMut(&mut Random) -> String,
) -> Choice {
    let count = *pick(random, &[1, 1, 1, 2, 3, 7]);
    let mut values: Vec<_> = (0..count).map(|_| values::read(&text(random), kind).unwrap()).collect();
    if !sets.is_empty() && random.below(4) == 0 {
        values[0] = netbricks_mmb::rule::Value::Named((*pick(random, sets)).to_owned());
    }
    Choice { is_negated: random.below(5) == 0, values, span: Span::default() }
}

fn end(random: &mut Random, version: Option<Version>, has_ports: bool) -> End {
    let addresses = (random.below(3) > 0).then(|| {
        let sets: &[&str] = if version.is_none() { &["hosts", "none"] } else { &[] };
        choice(random, ValueKind::Address, sets, |random| {
            let v6 = match version {
                Some(version) => version == Version::V6,
                None => random.below(3) == 0,
            };
            address_text(random, v6)
        })
    });
    let ports =
        (has_ports && random.below(3) == 0).then(|| choice(random, ValueKind::Port, &["ports"], port_text));
    End { addresses, ports }
}

/// A rule that the language can say.
pub(super) fn rule(random: &mut Random) -> Rule {
    let action = *pick(
        random,
        &[
            Action::Allow,
            Action::Allow,
            Action::Deny,
            Action::Deny,
            Action::Reject(Answer::Usual),
            Action::Reject(Answer::Port),
            Action::Count,
        ],
    );
    let mut rule = Rule::of(action);
    rule.version = *pick(random, &[None, None, None, Some(Version::V4), Some(Version::V6)]);
    let kind = random.below(6);
    rule.protocol = match kind {
        0 => None,
        1 => Some(choice(random, ValueKind::Protocol, &[], |random| {
            (*pick(random, &["tcp", "udp", "47", "6-17"])).to_owned()
        })),
        _ => {
            let name = *pick(random, &["tcp", "udp", "icmp", "icmp6", "sctp"]);
            let value = values::read(name, ValueKind::Protocol).unwrap();
            Some(Choice { is_negated: false, values: vec![value], span: Span::default() })
        }
    };
    let of = rule.protocol.as_ref().and_then(|choice| match &choice.values[..] {
        [one] if !choice.is_negated => values::as_number(one),
        _ => None,
    });
    rule.from = end(random, rule.version, !matches!(of, Some(1 | 58)));
    rule.to = end(random, rule.version, !matches!(of, Some(1 | 58)));
    match of {
        Some(1 | 58) if random.below(2) == 0 => {
            rule.icmp_type = Some(choice(random, ValueKind::Number, &[], |random| {
                (*pick(random, &["0", "8", "128", "129", "3-11"])).to_owned()
            }));
            if random.below(3) == 0 {
                rule.icmp_code =
                    Some(choice(random, ValueKind::Number, &[], |random| random.below(2).to_string()));
            }
        }
        Some(6) if random.below(3) == 0 => {
            let mask = *pick(random, &[0x02, 0x12, 0x17, 0x3f]);
            rule.flags =
                Some(FlagTest { is_negated: random.below(4) == 0, set: random.next() as u8 & mask, mask });
        }
        _ => {}
    }
    rule
}

/// A list of rules with the sets that they name, whose rules no packet contradicts by their versions alone.
pub(super) fn list(random: &mut Random, rules: usize) -> RuleList {
    let mut list = RuleList {
        policy: *pick(random, &[Policy::Allow, Policy::Deny, Policy::Reject]),
        tracking: Tracking::Off,
        ..RuleList::default()
    };
    let hosts = (0..1 + random.below(12)).map(|at| {
        let text = address_text(random, at % 3 == 0);
        values::read(&text, ValueKind::Address).unwrap()
    });
    list.sets.insert("hosts".into(), hosts.collect());
    let ports = (0..1 + random.below(9)).map(|_| values::read(&port_text(random), ValueKind::Port).unwrap());
    list.sets.insert("ports".into(), ports.collect());
    list.sets.insert("none".into(), Vec::new());
    while list.rules.len() < rules {
        let rule = rule(random);
        // The language refuses addresses of two versions at the two ends.
        if super::super::parse_rule(&rule.to_string()).is_ok() {
            list.rules.push((list.rules.len() + 1, rule));
        }
    }
    list
}

/// The facts of a packet, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) from: std::net::IpAddr,
    pub(super) to: std::net::IpAddr,
    pub(super) protocol: u8,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) icmp: Option<(u8, u8)>,
    pub(super) flags: Option<u8>,
    pub(super) frame: Vec<u8>,
}

pub(super) fn packet(random: &mut Random) -> Sample {
    let v6 = random.below(3) == 0;
    let (from, to) = (address(random, v6), address(random, v6));
    let (from_port, to_port) = (1000 + random.below(6) as u16, 1000 + random.below(6) as u16);
    let flags = random.next() as u8 & 0x3f;
    let kind = random.below(5);
    let icmp_type = if v6 { *pick(random, &[128u8, 129, 1]) } else { *pick(random, &[8u8, 0, 3]) };
    let code = random.below(2) as u8;
    let tagged = random.below(4) == 0;
    macro_rules! built {
        ($start:expr) => {{
            let start = $start;
            match kind {
                0 => (6, start.tcp(from_port, to_port).flags(flags).build()),
                1 => (17, start.udp(from_port, to_port).payload(b"hello").build()),
                2 => (132, start.protocol(132).payload(&sctp(from_port, to_port)).build()),
                3 => (47, start.protocol(47).payload(&[0; 8]).build()),
                _ => (1, start.udp(1, 1).build()),
            }
        }};
    }
    let link = || if tagged { ethernet().vlan(7) } else { ethernet().vlan(8) };
    let (mut protocol, mut frame) = match (v6, tagged) {
        (false, true) => built!(link().ipv4(from.as_str(), to.as_str())),
        (false, false) => built!(ethernet().ipv4(from.as_str(), to.as_str())),
        (true, true) => built!(link().ipv6(from.as_str(), to.as_str())),
        (true, false) => built!(ethernet().ipv6(from.as_str(), to.as_str()).hop_by_hop(&[])),
    };
    let mut icmp = None;
    if kind == 4 {
        icmp = Some((icmp_type, code));
        (protocol, frame) = if v6 {
            (58, ethernet().ipv6(from.as_str(), to.as_str()).icmpv6(icmp_type, code, [0; 4]).build())
        } else {
            (1, ethernet().ipv4(from.as_str(), to.as_str()).icmp(icmp_type, code, [0; 4]).build())
        };
    }
    Sample {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        protocol,
        ports: matches!(kind, 0..=2).then_some((from_port, to_port)),
        icmp,
        flags: (kind == 0).then_some(flags),
        frame: frame.unwrap(),
    }
}

fn sctp(from: u16, to: u16) -> Vec<u8> {
    let [a, b] = from.to_be_bytes();
    let [c, d] = to.to_be_bytes();
    vec![a, b, c, d, 0, 0, 0, 1, 0, 0, 0, 0]
}
