//! Random commands and rules from the catalogue of fields.

use netbricks_core::packet::field::Show;
use netbricks_mmb::field::{FieldId, FieldInfo, Kind, Layer};
use netbricks_mmb::rule::*;
use proptest::prelude::*;
use proptest::sample::select;

fn largest(bits: u16) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// A value of a field, as the parser makes it.
pub(crate) fn atom(info: &'static FieldInfo) -> BoxedStrategy<Atom> {
    let bits = info.kind.bits();
    match (info.kind, info.show) {
        (Kind::In | Kind::Out, _) => select(&["eth0", "tap-1", "drop", "tcp-syn", "a b", "\"", "1"][..])
            .prop_map(|name| Atom::Interface(name.to_owned()))
            .boxed(),
        (kind, _) if kind.is_variable() => {
            prop::collection::vec(any::<u8>(), 0..12).prop_map(Atom::Bytes).boxed()
        }
        (_, Show::Ipv4) => any::<u32>().prop_map(|bits| Atom::Ipv4(bits.into())).boxed(),
        (_, Show::Ipv6) => any::<u128>().prop_map(|bits| Atom::Ipv6(bits.into())).boxed(),
        (_, Show::Mac) => any::<[u8; 6]>().prop_map(|octets| Atom::Mac(octets.into())).boxed(),
        _ => prop_oneof![0..=largest(bits), 0..=largest(bits).min(255)].prop_map(Atom::Number).boxed(),
    }
}

fn number(atom: &Atom) -> Option<u128> {
    Some(match atom {
        Atom::Number(number) => *number,
        Atom::Ipv4(address) => address.to_bits().into(),
        Atom::Ipv6(address) => address.to_bits(),
        Atom::Mac(address) => address.octets().iter().fold(0, |all, octet| all << 8 | u128::from(*octet)),
        _ => return None,
    })
}

fn masked(atom: Atom, mask: Atom) -> Option<Value> {
    Some(match (atom, mask) {
        (Atom::Number(value), Atom::Number(mask)) => {
            Value::Masked(Atom::Number(value & mask), Atom::Number(mask))
        }
        (Atom::Ipv4(value), Atom::Ipv4(mask))
            if mask.to_bits().leading_ones() != mask.to_bits().count_ones() =>
        {
            Value::Masked(Atom::Ipv4(value & mask), Atom::Ipv4(mask))
        }
        (Atom::Ipv6(value), Atom::Ipv6(mask))
            if mask.to_bits().leading_ones() != mask.to_bits().count_ones() =>
        {
            Value::Masked(Atom::Ipv6(value & mask), Atom::Ipv6(mask))
        }
        (Atom::Mac(value), Atom::Mac(mask)) => {
            let (value, bits) = (value.octets(), mask.octets());
            let cleared: [u8; 6] = std::array::from_fn(|at| value[at] & bits[at]);
            Value::Masked(Atom::Mac(cleared.into()), Atom::Mac(mask))
        }
        (Atom::Bytes(value), Atom::Bytes(mask)) if !value.is_empty() => {
            let mask: Vec<u8> = (0..value.len()).map(|at| mask.get(at).copied().unwrap_or(0xff)).collect();
            let cleared = value.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
            Value::Masked(Atom::Bytes(cleared), Atom::Bytes(mask))
        }
        _ => return None,
    })
}

/// A value of a match that is no set.
fn single(info: &'static FieldInfo) -> BoxedStrategy<Value> {
    (atom(info), atom(info), 0u8..6, any::<u8>())
        .prop_map(|(first, second, form, length)| {
            let plain = Value::Atom(first.clone());
            match form {
                0 => match (number(&first), number(&second)) {
                    (Some(a), Some(b)) if a <= b => Value::Range(first, second),
                    (Some(_), Some(_)) => Value::Range(second, first),
                    _ => plain,
                },
                1 => match first {
                    Atom::Ipv4(address) => {
                        let length = length % 33;
                        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                        Value::Prefix(Atom::Ipv4((address.to_bits() & mask).into()), length)
                    }
                    Atom::Ipv6(address) => {
                        let length = length % 129;
                        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                        Value::Prefix(Atom::Ipv6((address.to_bits() & mask).into()), length)
                    }
                    _ => plain,
                },
                2 => masked(first, second).unwrap_or(plain),
                3 => Value::Named("a-set".to_owned()),
                _ => plain,
            }
        })
        .boxed()
}

fn value(info: &'static FieldInfo) -> BoxedStrategy<Value> {
    prop_oneof![
        4 => single(info),
        1 => prop::collection::vec(single(info), 1..5).prop_map(Value::Set),
    ]
    .boxed()
}

fn comparison() -> impl Strategy<Value = Comparison> {
    use Comparison as C;
    select(&[C::Equal, C::Equal, C::NotEqual, C::Less, C::AtMost, C::Greater, C::AtLeast][..])
}

fn condition() -> BoxedStrategy<Match> {
    let all: Vec<FieldId> = FieldId::all().collect();
    (select(all), any::<bool>(), 0u8..4, comparison())
        .prop_flat_map(|(field, is_negated, tested, comparison)| {
            let info = field.info();
            let is_interface = matches!(info.kind, Kind::In | Kind::Out);
            let make = move |test| Match { is_negated, field, test, span: 0..0 };
            match info.kind {
                Kind::All => Just(Match { is_negated: false, ..make(None) }).boxed(),
                _ if tested == 0 && !is_interface => Just(make(None)).boxed(),
                _ => value(info)
                    .prop_map(move |value| {
                        let is_single = matches!(value, Value::Atom(_));
                        make(Some((if is_single { comparison } else { Comparison::Equal }, value)))
                    })
                    .boxed(),
            }
        })
        .boxed()
}

fn target() -> BoxedStrategy<Target> {
    let writable: Vec<FieldId> = FieldId::all().filter(|field| field.info().is_writable).collect();
    // IP addresses, and what fits into 32 bits.
    let is_mapped = |field: &FieldId| {
        let (info, layers) = (field.info(), [Layer::Ipv4, Layer::Ipv6]);
        matches!(info.kind, Kind::Bits { bits, .. } if bits <= 32 || bits == 128 && layers.contains(&info.layer))
    };
    let fixed: Vec<FieldId> = writable.iter().copied().filter(is_mapped).collect();
    let translated = fixed.clone();
    prop_oneof![
        select(writable)
            .prop_flat_map(|field| atom(field.info()).prop_map(move |value| Target::Mod(field, value))),
        (any::<bool>(), 2u8..).prop_map(|(is_kept, kind)| Target::Strip { is_kept, option: Some(kind) }),
        Just(Target::Strip { is_kept: false, option: None }),
        (2u8.., prop::collection::vec(any::<u8>(), 0..9), any::<u32>()).prop_map(
            |(option, bytes, number)| {
                let value = match option {
                    2 => Some(Atom::Number(u128::from(number & 0xffff))),
                    3 => Some(Atom::Number(u128::from(number & 0xff))),
                    4 => None,
                    8 => Some(Atom::Number(number.into())),
                    _ => (!bytes.is_empty()).then_some(Atom::Bytes(bytes)),
                };
                Target::Add { option, value }
            }
        ),
        prop::option::of(0.0001f64..=100.0).prop_map(Target::Drop),
        Just(Target::Accept),
        prop::collection::vec(any::<u8>(), 1..4).prop_map(Target::Balance),
        select(fixed).prop_flat_map(|field| {
            prop_oneof![
                Just(MapTo::Random),
                value(field.info())
                    .prop_filter("map chooses from no mask", |value| !matches!(value, Value::Masked(..)))
                    .prop_map(MapTo::Value)
            ]
            .prop_map(move |to| Target::Map(field, to))
        }),
        select(translated).prop_map(Target::Shuffle),
    ]
    .boxed()
}

/// A rule. The parser refuses many of them, for parts that exclude each other.
pub(crate) fn rule() -> BoxedStrategy<Rule> {
    let comment = prop::option::of(select(&["", "for \"mail\"", "a \\ b", "tab\tbreak\n", "é\u{1}"][..]));
    (any::<bool>(), prop::collection::vec(condition(), 1..3), prop::collection::vec(target(), 1..3), comment)
        .prop_map(|(is_stateful, matches, targets, comment)| Rule {
            is_stateful,
            matches,
            targets,
            comment: comment.map(str::to_owned),
        })
        .boxed()
}

fn name() -> BoxedStrategy<String> {
    select(&["web", "a", "_x.1", "drop", "before", "stateful"][..]).prop_map(str::to_owned).boxed()
}

fn selector() -> BoxedStrategy<Selector> {
    prop_oneof![
        (1usize..).prop_map(Selector::Number),
        name().prop_map(Selector::Name),
        rule().prop_map(Selector::Same),
    ]
    .boxed()
}

fn set() -> BoxedStrategy<Vec<Value>> {
    let fields = ["tcp-dport", "ip-saddr", "ip6-saddr", "eth-saddr", "tcp-payload"];
    select(fields.to_vec())
        .prop_flat_map(|name| {
            let info = FieldId::named(name).expect("a field of the catalogue").info();
            prop::collection::vec(single(info), 1..5)
        })
        .boxed()
}

fn packet() -> BoxedStrategy<DescribedPacket> {
    let fields: Vec<FieldId> = FieldId::all().filter(|field| field.info().kind != Kind::All).collect();
    let field =
        select(fields).prop_flat_map(|field| atom(field.info()).prop_map(move |value| (field, value)));
    prop_oneof![
        prop::collection::vec(field, 1..4).prop_map(|mut fields| {
            fields.sort_by_key(|(field, _)| *field);
            fields.dedup_by_key(|(field, _)| *field);
            DescribedPacket::Fields(fields)
        }),
        prop::collection::vec(any::<u8>(), 1..64).prop_map(DescribedPacket::Frame),
    ]
    .boxed()
}

/// A command. The parser refuses those with rules that it refuses.
pub(crate) fn command() -> BoxedStrategy<Command> {
    let file = select(&["a.pcap", "/tmp/b c", "#", "\"", "é"][..]).prop_map(str::to_owned);
    prop_oneof![
        (prop::option::of(1usize..), prop::option::of(name()), rule())
            .prop_map(|(at, name, rule)| Command::Add { at, name, rule }),
        selector().prop_map(Command::Delete),
        (selector(), rule()).prop_map(|(selector, rule)| Command::Replace(selector, rule)),
        (selector(), any::<bool>(), selector()).prop_map(|(a, is_before, b)| Command::Move(a, is_before, b)),
        (name(), set()).prop_map(|(name, set)| Command::Define(name, set)),
        (name(), set()).prop_map(|(name, set)| Command::Extend(name, set)),
        (name(), set()).prop_map(|(name, set)| Command::Shrink(name, set)),
        (name(), any::<bool>()).prop_map(|(name, is_on)| Command::Enable(name, is_on)),
        packet().prop_map(Command::Explain),
        (packet(), any::<bool>()).prop_map(|(packet, is_dropped)| Command::Expect(packet, is_dropped)),
        file.prop_map(Command::Test),
        any::<bool>().prop_map(Command::PolicyDrop),
        select(&[Command::List, Command::Flush, Command::Begin, Command::Commit, Command::Abort][..]),
        select(&[Command::Mode(Mode::Ordered), Command::Mode(Mode::AllMatch)][..]),
        (select(&[Shown::Tables, Shown::Connections, Shown::Sets, Shown::Fields][..]), any::<bool>())
            .prop_map(|(shown, is_verbose)| Command::Show(shown, is_verbose)),
    ]
    .boxed()
}

/// Fields of one layer of TCP over IPv4, of which most rules are good.
pub(crate) fn good_rule() -> BoxedStrategy<Rule> {
    rule()
        .prop_map(|mut rule| {
            rule.is_stateful = true;
            rule.matches.truncate(1);
            rule.targets.truncate(1);
            if let Some(first) = rule.matches.first_mut()
                && let Some((comparison, _)) = &mut first.test
            {
                *comparison = Comparison::Equal;
                first.is_negated = false;
            }
            if rule.matches.iter().any(|one| one.test.is_none() && !is_state(one.field)) {
                rule.matches.iter_mut().for_each(|one| one.is_negated = false);
            }
            rule
        })
        .boxed()
}

fn is_state(field: FieldId) -> bool {
    let kind = field.info().kind;
    kind.is_flag() || kind.is_option() || matches!(kind, Kind::ExtensionHeader(_))
}

/// Whether a rule's parts are all of one layer, so that only a fault of the parser refuses it.
pub(crate) fn is_surely_good(rule: &Rule) -> bool {
    let layer = |field: FieldId| field.info().layer;
    let of_match = rule.matches.first().map_or(Layer::Frame, |one| layer(one.field));
    let of_target = match rule.targets.first() {
        Some(Target::Mod(field, Atom::Number(0))) if matches!(field.info().kind, Kind::Code { .. }) => {
            return false;
        }
        Some(Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field)) => layer(*field),
        Some(Target::Strip { .. } | Target::Add { .. }) => Layer::Tcp,
        _ => Layer::Frame,
    };
    of_match == Layer::Frame || of_target == Layer::Frame || of_match == of_target
}
