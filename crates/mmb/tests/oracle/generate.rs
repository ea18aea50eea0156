//! Random rules and commands that frames at hand often meet.

use netbricks_core::packet::field::Show;
use netbricks_mmb::field::FieldId;
use netbricks_mmb::language::parse_command;
use netbricks_mmb::rule::*;
use netbricks_testkit::mutate::Random;

use crate::fields::{Found, Means, found, meaning};
use crate::packets::{V4, V6_LAST, one, rarely};
use crate::places::{Part, Places};
use crate::verdict::Rules;

/// Fields of which rules speak most.
const USUAL: &str = "all ip-saddr ip-daddr ip-proto ip-ttl ip-ecn ip-dscp ip-ect0 ip6-saddr ip6-daddr ip6-next tcp-sport \
    tcp-dport tcp-syn tcp-ack tcp-flags tcp-seq-num tcp-opt tcp-opt-mss tcp-opt-mss tcp-opt-wscale tcp-opt-sackp \
    tcp-opt-sack tcp-opt-timestamp tcp-payload udp-sport udp-dport udp-payload net-proto icmp-type icmp6-type \
    ip-frag-offset ip6-eh-fragment ip6-eh-hop-by-hop ip-payload ip-df ip-flags";

fn named(name: &str) -> FieldId {
    FieldId::named(name).unwrap_or_else(|| panic!("{name}"))
}

fn field(random: &mut Random) -> FieldId {
    if rarely(random, 3) {
        let place = random.below(FieldId::all().len());
        return FieldId::all().nth(place).unwrap_or_else(|| named("all"));
    }
    let usual: Vec<&str> = USUAL.split_whitespace().collect();
    named(usual[random.below(usual.len())])
}

fn largest(bits: usize) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// A number as the field's values are written.
fn atom(field: FieldId, number: u128) -> Atom {
    match field.info().show {
        Show::Ipv4 => Atom::Ipv4((number as u32).into()),
        Show::Ipv6 => Atom::Ipv6(number.into()),
        Show::Mac => {
            let bytes = number.to_be_bytes();
            Atom::Mac(<[u8; 6]>::try_from(&bytes[10..]).expect("six bytes").into())
        }
        _ => Atom::Number(number),
    }
}

/// A condition about a number of so many bits, which often holds for `given`.
fn number_test(random: &mut Random, field: FieldId, bits: usize, given: u128) -> (Comparison, Value) {
    use Comparison as C;
    let most = largest(bits);
    let near = match random.below(6) {
        0 => given.saturating_add(1).min(most),
        1 => given.saturating_sub(1),
        2 => u128::from(random.next()) & most,
        _ => given,
    };
    let plain = Value::Atom(atom(field, near));
    let is_flag = bits == 1;
    let is_ordered = !is_flag && !matches!(meaning(field).means, Means::AnyOption | Means::Port);
    match random.below(12) {
        0 => (C::NotEqual, plain),
        1 if is_ordered => (one(random, &[C::Less, C::AtMost, C::Greater, C::AtLeast]), plain),
        2 if is_ordered => {
            let (low, high) = (near.saturating_sub(u128::from(random.next() % 40)), near.saturating_add(5));
            let (low, high) = (atom(field, low), atom(field, high.min(most)));
            (one(random, &[C::Equal, C::NotEqual]), Value::Range(low, high))
        }
        3 if !is_flag => {
            let other = u128::from(random.next()) & most;
            let mut values = vec![plain, Value::Atom(atom(field, other))];
            for _ in 0..random.below(7) {
                let low = u128::from(random.next()) & most >> 1;
                values.push(Value::Range(atom(field, low), atom(field, low + 1)));
            }
            let place = random.below(values.len());
            values.swap(0, place);
            (one(random, &[C::Equal, C::Equal, C::NotEqual]), Value::Set(values))
        }
        4 if !is_flag => {
            let mask = one(random, &[1, 0xf0, 0x0f, 0xff, 0x12, 0xff00, u128::MAX]) & most;
            match field.info().show {
                Show::Ipv4 | Show::Ipv6 => {
                    let length = random.below(bits + 1);
                    let kept = if length == 0 { 0 } else { near >> (bits - length) << (bits - length) };
                    (C::Equal, Value::Prefix(atom(field, kept), length as u8))
                }
                Show::Mac => (C::Equal, plain),
                _ => (
                    one(random, &[C::Equal, C::NotEqual]),
                    Value::Masked(atom(field, near & mask), Atom::Number(mask)),
                ),
            }
        }
        5 => {
            let set = match field.info().show {
                Show::Ipv4 => "four",
                Show::Ipv6 => "six",
                Show::Mac => return (C::Equal, plain),
                _ => one(random, &["ports", "few"]),
            };
            (one(random, &[C::Equal, C::Equal, C::NotEqual]), Value::Named(set.to_owned()))
        }
        _ => (C::Equal, plain),
    }
}

fn bytes_test(random: &mut Random, bytes: &[u8]) -> (Comparison, Value) {
    let length = bytes.len().min(one(random, &[0, 1, 3, 4, 8, 15, 16, 31, 40, 63]));
    let mut prefix = bytes[..length].to_vec();
    if rarely(random, 4) {
        prefix.push(one(random, &[0, 7]));
        prefix.truncate(63);
    }
    let atom = masked_bytes(random, prefix);
    let value = match rarely(random, 4) {
        true => Value::Set(vec![Value::Atom(Atom::Bytes(b"PUT".to_vec())), atom]),
        false => atom,
    };
    (if rarely(random, 4) { Comparison::NotEqual } else { Comparison::Equal }, value)
}

/// These bytes, sometimes under a mask, as a rule is written: with zeros where the mask has them.
fn masked_bytes(random: &mut Random, mut bytes: Vec<u8>) -> Value {
    if bytes.is_empty() || !rarely(random, 4) {
        return Value::Atom(Atom::Bytes(bytes));
    }
    let mask: Vec<u8> = bytes.iter().map(|_| one(random, &[0, 0x0f, 0xdf, 0xff])).collect();
    for (byte, mask) in bytes.iter_mut().zip(&mask) {
        *byte &= mask;
    }
    Value::Masked(Atom::Bytes(bytes), Atom::Bytes(mask))
}

/// A match that often holds for the frame.
fn condition(random: &mut Random, frame: &[u8], places: &Places) -> Match {
    let mut field = field(random);
    for _ in 0..8 {
        if found(frame, places, field).is_some() {
            break;
        }
        field = self::field(random);
    }
    let means = meaning(field).means;
    let found = found(frame, places, field);
    let is_negated = rarely(random, 5);
    let is_bare = rarely(random, 4);
    let test = match (found, means) {
        (_, Means::All) => None,
        (_, Means::Port) => Some((Comparison::Equal, Value::Atom(Atom::Interface("eth0".into())))),
        _ if is_bare => None,
        (Some(Found::Number(given)), Means::Bits(_, bits)) => Some(number_test(random, field, bits, given)),
        (Some(Found::Number(given)), Means::NetworkProtocol) => Some(number_test(random, field, 16, given)),
        (Some(Found::Number(given)), _) => Some((Comparison::Equal, Value::Atom(Atom::Number(given)))),
        (Some(Found::Bytes(bytes)), _) => Some(bytes_test(random, &bytes)),
        (Some(Found::Kinds(kinds)), _) => {
            let kind = if kinds.is_empty() { 22 } else { one(random, &kinds) };
            Some(number_test(random, field, 8, kind.into()))
        }
        (Some(Found::Option(data)), Means::Number(_, size)) => {
            let data = data.unwrap_or_default();
            let given = data.iter().take(size).fold(0, |all, byte| all << 8 | u128::from(*byte));
            Some(number_test(random, field, 8 * size, given))
        }
        (Some(Found::Option(data)), _) => {
            let data = data.unwrap_or_default();
            let value = masked_bytes(random, data[..data.len().min(38)].to_vec());
            Some((one(random, &[Comparison::Equal, Comparison::NotEqual]), value))
        }
        _ => None,
    };
    Match { is_negated: is_negated && means != Means::All, field, test, span: 0..0 }
}

/// A value to write into a field.
fn written(random: &mut Random, field: FieldId) -> Atom {
    match meaning(field).means {
        Means::Bits(_, bits) => {
            let number = match field.info().show {
                Show::Ipv4 => u32::from_be_bytes(one(random, &V4)).into(),
                Show::Ipv6 => 0x2001_0db8 << 96 | u128::from(one(random, &V6_LAST)),
                _ => {
                    let any = random.next();
                    u128::from(one(random, &[0, 1, 7, 80, 443, 1460, any]))
                }
            };
            atom(field, number & largest(bits))
        }
        Means::Number(_, size) => Atom::Number(u128::from(random.next()) & largest(8 * size)),
        Means::Is(..) => Atom::Number(1),
        Means::Payload if field.info().name.starts_with("ip") => {
            Atom::Bytes(b"\x12\x34\x56\x78"[..random.below(5)].to_vec())
        }
        Means::Payload => {
            let length = one(random, &[0, 1, 3, 8]);
            Atom::Bytes(b"POST /xyz"[..length].to_vec())
        }
        _ => Atom::Bytes(vec![9; one(random, &[0, 2, 4, 8])]),
    }
}

fn added(random: &mut Random) -> Target {
    let (option, value) = match random.below(8) {
        0..3 => (2, Some(Atom::Number(one(random, &[1452, 1460])))),
        3 => (3, Some(Atom::Number(7))),
        4 => (4, None),
        5 => (8, Some(Atom::Number(0x0102_0304))),
        6 => (22, Some(Atom::Bytes(vec![5; one(random, &[1, 4, 20])]))),
        _ => (30, None),
    };
    Target::Add { option, value }
}

fn target(random: &mut Random, frame: &[u8], places: &Places, kept: bool) -> Target {
    match random.below(16) {
        0..6 => {
            let fields = FieldId::all().filter(|field| field.info().is_writable);
            let here: Vec<FieldId> = fields.filter(|field| found(frame, places, *field).is_some()).collect();
            if here.is_empty() {
                return Target::Accept;
            }
            let field = one(random, &here);
            Target::Mod(field, written(random, field))
        }
        6..8 if places.at(Part::Tcp).is_some() => {
            Target::Strip { is_kept: kept, option: Some(one(random, &[2, 3, 4, 5, 8, 22])) }
        }
        8 if places.at(Part::Tcp).is_some() && rarely(random, 3) => {
            Target::Strip { is_kept: false, option: None }
        }
        8..11 if places.at(Part::Tcp).is_some() => added(random),
        11..13 => Target::Drop(if rarely(random, 4) { Some(100.0) } else { None }),
        13 => Target::Balance(vec![one(random, &[0, 1])]),
        _ => Target::Accept,
    }
}

/// A rule that its parser takes; most often it means this frame.
pub(crate) fn rule(random: &mut Random, frame: &[u8]) -> String {
    let places = Places::of(frame);
    loop {
        let matches = (0..1 + random.below(3)).map(|_| condition(random, frame, &places)).collect();
        let kept = rarely(random, 3);
        let targets = (0..1 + random.below(3)).map(|_| target(random, frame, &places, kept)).collect();
        let comment = rarely(random, 8).then(|| "a remark".to_owned());
        let rule = Rule { is_stateful: false, matches, targets, comment };
        let text = rule.to_string();
        if let Ok(Some(Command::Add { rule: parsed, .. })) = parse_command(&format!("add {text}")) {
            assert_eq!(parsed, rule, "{text}");
            return text;
        }
    }
}

fn set_value(random: &mut Random, name: &str) -> String {
    let last = random.below(12);
    match name {
        "four" => match random.below(4) {
            0 => format!("10.0.0.{last}-10.0.0.{}", last + 2),
            1 => one(random, &["192.0.2.0/24", "203.0.113.128/25", "10.0.0.0/255.0.0.255"]).to_owned(),
            _ => one(random, &V4).map(|byte| byte.to_string()).join("."),
        },
        "six" => match random.below(3) {
            0 => "2001:db8::/64".to_owned(),
            1 => "2001:db8:0:1::-2001:db8:0:1::2".to_owned(),
            _ => format!("2001:db8::{last}"),
        },
        "few" => one(random, &["0", "1", "2-6", "17", "58", "64", "x10&xf0", "300-400", "255"]).to_owned(),
        _ => {
            one(random, &["80", "443", "4000-4001", "1460", "65616", "66996-70000", "60000-70000", "1", "22"])
                .to_owned()
        }
    }
}

pub(crate) const SETS: [&str; 4] = ["four", "six", "few", "ports"];

/// Values of a set, with braces.
pub(crate) fn set(random: &mut Random, name: &str) -> String {
    let values: Vec<String> = (0..1 + random.below(7)).map(|_| set_value(random, name)).collect();
    format!("{{{}}}", values.join(", "))
}

fn selector(random: &mut Random, rules: &Rules) -> String {
    let place = random.below(rules.rows.len());
    let row = &rules.rows[place];
    match (&row.name, random.below(4)) {
        (Some(name), 0..3) => name.clone(),
        (_, 3) if !row.rule.is_stateful => format!("= {}", row.rule),
        _ => (place + 1).to_string(),
    }
}

/// A change of rules that is not refused.
pub(crate) fn change(
    random: &mut Random,
    rules: &Rules,
    frame: &[u8],
    serial: u64,
    is_tracked: bool,
) -> String {
    let is_stateful = is_tracked && !rarely(random, 3);
    let kind = if rules.rows.is_empty() { 0 } else { random.below(16) };
    match kind {
        0..5 => {
            let at = match rarely(random, 3) {
                true => String::new(),
                false => format!("at {} ", 1 + random.below(rules.rows.len() + 1)),
            };
            let name = if rarely(random, 3) { format!("name n{serial} ") } else { String::new() };
            format!("{} {at}{name}{}", if is_stateful { "add-stateful" } else { "add" }, rule(random, frame))
        }
        5..8 => format!("delete {}", selector(random, rules)),
        8..10 => {
            let kind = if is_stateful { "stateful " } else { "" };
            format!("replace {} {kind}{}", 1 + random.below(rules.rows.len()), rule(random, frame))
        }
        10..12 if rules.rows.len() > 1 => {
            let from = 1 + random.below(rules.rows.len());
            let to = 1 + (from + random.below(rules.rows.len() - 1)) % rules.rows.len();
            format!("move {from} {} {to}", one(random, &["before", "after"]))
        }
        12 => {
            let name = one(random, &SETS);
            format!("extend @{name} {}", set(random, name))
        }
        13 => {
            let name = one(random, &SETS);
            let values = &rules.sets[name];
            let gone = &values[random.below(values.len())];
            match values.iter().all(|value| value == gone) {
                true => format!("define @{name} {}", set(random, name)),
                false => format!("shrink @{name} {{{gone}}}"),
            }
        }
        14 => format!("mode {}", one(random, &["ordered", "all-match"])),
        _ => format!("policy {}", one(random, &["accept", "accept", "drop"])),
    }
}
