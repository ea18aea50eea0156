//! Checks of a whole rule: parts that exclude each other, and parts that never apply.

use std::ops::Range;

use super::error::{Fault, LineError};
use super::extent;
use super::parser::Asked;
use super::values::{Domain, LONGEST_OPTION, number_of};
use crate::connection::{End, VALUES};
use crate::field::{FieldId, Kind, Layer};
use crate::key::COMPARED;
use crate::rule::{Atom, Comparison, Match, Rule, Target, Value};

/// The facts about a rule's line that its checks need.
pub(super) struct Facts<'a> {
    pub(super) asked: Asked,
    /// The bytes of each target.
    pub(super) spans: &'a [Range<usize>],
    /// The bytes of the rule.
    pub(super) whole: Range<usize>,
}

impl Facts<'_> {
    fn target(&self, at: usize) -> Range<usize> {
        self.spans.get(at).cloned().unwrap_or_else(|| self.whole.clone())
    }
}

/// Checks a rule.
pub(super) fn rule(rule: &Rule, facts: &Facts<'_>) -> Result<(), LineError> {
    layers(rule, facts)?;
    for (at, condition) in rule.matches.iter().enumerate() {
        can_hold(condition)?;
        together(condition, rule.matches.get(..at).unwrap_or_default())?;
    }
    unique(rule, facts)?;
    remembered(rule, facts)?;
    if facts.asked != Asked::Sought && !rule.is_stateful {
        for (at, target) in rule.targets.iter().enumerate() {
            let word = match target {
                Target::Map(..) => "map",
                Target::Shuffle(_) => "shuffle",
                _ => continue,
            };
            let message = format!("`{word}` needs connections, and the rule is stateless");
            let hint = "write `add-stateful` for `add`, or `stateful` before the rule";
            return Err(Fault::new(message, hint).at(facts.target(at)));
        }
    }
    Ok(())
}

/// The layers that a packet with this one never has.
fn excluded(layer: Layer) -> u32 {
    let implied = layer.implied();
    Layer::ALL.iter().filter(|other| implied & other.bit() != 0).fold(0, |all, other| all | other.excludes())
}

/// The field that a target is about.
fn field_of(target: &Target) -> Option<FieldId> {
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field) => Some(*field),
        _ => None,
    }
}

fn layer_of(target: &Target) -> Option<Layer> {
    match target {
        Target::Strip { .. } | Target::Add { .. } => Some(Layer::Tcp),
        other => field_of(other).map(|field| field.info().layer),
    }
}

/// A layer that a value demands: `ip-proto tcp` demands TCP.
fn demanded(condition: &Match) -> Option<Layer> {
    if condition.is_negated {
        return None;
    }
    let Some((Comparison::Equal, Value::Atom(Atom::Number(number)))) = &condition.test else { return None };
    let info = condition.field.info();
    match (info.kind, info.name.as_str(), number) {
        (Kind::NetworkProtocol, _, 0x0800) => Some(Layer::Ipv4),
        (Kind::NetworkProtocol, _, 0x86dd) => Some(Layer::Ipv6),
        (Kind::NetworkProtocol, _, 0x0806) => Some(Layer::Arp),
        (_, "ip-proto", 1) => Some(Layer::Icmp),
        (_, "ip-proto" | "ip6-next", 6) => Some(Layer::Tcp),
        (_, "ip-proto" | "ip6-next", 17) => Some(Layer::Udp),
        (_, "ip-proto" | "ip6-next", 47) => Some(Layer::Gre),
        (_, "ip6-next", 58) => Some(Layer::Icmpv6),
        _ => None,
    }
}

/// Refuses parts of which no packet has all layers.
fn layers(rule: &Rule, facts: &Facts<'_>) -> Result<(), LineError> {
    let of_matches = rule.matches.iter().flat_map(|condition| {
        [Some(condition.field.info().layer), demanded(condition)].map(|layer| (layer, condition.span.clone()))
    });
    let of_targets = rule.targets.iter().enumerate().map(|(at, target)| (layer_of(target), facts.target(at)));
    let parts = of_matches.chain(of_targets).filter_map(|(layer, span)| Some((layer?, span)));
    let (mut seen, mut barred) = (0, 0);
    for (layer, span) in parts.clone() {
        if layer.implied() & barred != 0 || excluded(layer) & seen != 0 {
            let other = parts.clone().map(|(layer, _)| layer).find(|other| {
                excluded(*other) & layer.implied() != 0 || excluded(layer) & other.implied() != 0
            });
            return Err(conflict(layer, other.unwrap_or(Layer::Frame)).at(span));
        }
        seen |= layer.implied();
        barred |= excluded(layer);
    }
    Ok(())
}

fn conflict(layer: Layer, other: Layer) -> Fault {
    // Name the layers that differ: two fields of ICMP and ICMPv6 differ already in their version of IP.
    let is_version = |layer: Layer, version: Layer| layer.implied() & version.bit() != 0;
    let (first, second) = match () {
        () if is_version(other, Layer::Ipv4) && is_version(layer, Layer::Ipv6) => (Layer::Ipv4, Layer::Ipv6),
        () if is_version(other, Layer::Ipv6) && is_version(layer, Layer::Ipv4) => (Layer::Ipv6, Layer::Ipv4),
        () => (other, layer),
    };
    let message = format!("{} and {} in one rule: no packet has both", first.name(), second.name());
    Fault::new(message, "write a rule for each")
}

/// Refuses a match that never holds.
fn can_hold(condition: &Match) -> Result<(), LineError> {
    let info = condition.field.info();
    let name = &info.name;
    let has_state =
        info.kind.is_flag() || info.kind.is_option() || matches!(info.kind, Kind::ExtensionHeader(_));
    if condition.is_negated && condition.test.is_none() && !has_state {
        let (message, hint) = match info.kind {
            Kind::All => {
                ("`! all` matches no packet".to_owned(), "remove the rule, or write another match".to_owned())
            }
            _ => (
                format!(
                    "`! {name}` never holds: it means packets with {}, which all have it",
                    info.layer.name()
                ),
                format!("write a value that it must not have: `! {name} 0`"),
            ),
        };
        return Err(Fault::new(message, hint).at(condition.span.clone()));
    }
    let needs_extent = condition.is_negated || !matches!(condition.test, None | Some((Comparison::Equal, _)));
    if needs_extent && extent::of(condition).is_some_and(|extent| extent.is_empty()) {
        let range = Domain::of(condition.field).map(|domain| domain.range_of(name)).unwrap_or_default();
        return Err(Fault::new("no value fulfils this condition", range).at(condition.span.clone()));
    }
    Ok(())
}

/// Refuses a match that excludes one before it.
fn together(condition: &Match, before: &[Match]) -> Result<(), LineError> {
    let mut others = before.iter().filter(|other| other.field == condition.field).peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    let is_opposite =
        |other: &Match| other.is_negated != condition.is_negated && other.test == condition.test;
    let own = extent::of(condition);
    for other in others {
        let is_empty = || {
            let (Some(own), Some(other)) = (&own, extent::of(other)) else { return false };
            extent::intersection(own, &other).is_empty()
        };
        if is_opposite(other) || is_empty() {
            let name = &condition.field.info().name;
            let message = format!("this and the match of {name} before it never hold together");
            let hint = match condition.field.info().kind.is_flag() {
                true => "remove one of them, or write two rules".to_owned(),
                false => format!("write the values as a set: `{name} {{ …, … }}`, or two rules"),
            };
            return Err(Fault::new(message, hint).at(condition.span.clone()));
        }
    }
    Ok(())
}

/// Refuses targets that stand twice or exclude each other, and those that never apply.
fn unique(rule: &Rule, facts: &Facts<'_>) -> Result<(), LineError> {
    let targets = &rule.targets;
    if let [_] = targets.as_slice() {
        return Ok(());
    }
    for (at, target) in targets.iter().enumerate() {
        for other in targets.get(..at).unwrap_or_default() {
            if let Some(fault) = pair(other, target) {
                return Err(fault.at(facts.target(at)));
            }
        }
    }
    let Some(drop) = targets.iter().position(|target| *target == Target::Drop(None)) else { return Ok(()) };
    let idle = if drop == 0 { 1 } else { 0 };
    let message = format!("`{}` never applies: the rule drops its packets", word_of(targets.get(idle)));
    Err(Fault::new(message, "remove it, or `drop`").at(facts.target(idle)))
}

fn word_of(target: Option<&Target>) -> &'static str {
    match target {
        Some(Target::Mod(..)) => "mod",
        Some(Target::Strip { .. }) => "strip",
        Some(Target::Add { .. }) => "add",
        Some(Target::Drop(_)) | None => "drop",
        Some(Target::Accept) => "accept",
        Some(Target::Balance(_)) => "lb",
        Some(Target::Map(..)) => "map",
        Some(Target::Shuffle(_)) => "shuffle",
    }
}

/// The fault of two targets, of which `second` stands behind `first`.
fn pair(first: &Target, second: &Target) -> Option<Fault> {
    let twice = |word: &str| Some(Fault::new(format!("a second `{word}` in one rule"), "remove one of them"));
    match (first, second) {
        (Target::Drop(_), Target::Drop(_)) => twice("drop"),
        (Target::Accept, Target::Accept) => twice("accept"),
        (Target::Balance(_), Target::Balance(_)) => twice("lb"),
        (Target::Accept, Target::Drop(_)) | (Target::Drop(_), Target::Accept) => {
            Some(Fault::new("`accept` and `drop` in one rule", "remove one of them, or write two rules"))
        }
        (Target::Strip { is_kept: a, .. }, Target::Strip { is_kept: b, .. }) if a != b => Some(Fault::new(
            "`strip` and `strip !` in one rule",
            "name the options that go, or those that stay, but not both",
        )),
        (Target::Strip { option: a, .. }, Target::Strip { option: b, .. }) if a == b => twice("strip"),
        (Target::Strip { option: None, .. }, Target::Strip { .. })
        | (Target::Strip { .. }, Target::Strip { option: None, .. }) => {
            Some(Fault::new("`strip all` takes the other options out, too", "remove the other `strip`"))
        }
        (Target::Add { option: a, .. }, Target::Add { option: b, .. }) if a == b => {
            Some(Fault::new(format!("the rule adds {} twice", option_domain(*a).0), "remove one of them"))
        }
        _ => {
            let field = field_of(first)?;
            if Some(field) != field_of(second) {
                return None;
            }
            let message = format!("the rule writes {} twice", field.info().name);
            Some(Fault::new(message, "remove one of them, or write two rules"))
        }
    }
}

/// Refuses a comparison that a field has no order for.
pub(super) fn comparison(
    field: FieldId,
    comparison: Comparison,
    sign: Range<usize>,
) -> Result<(), LineError> {
    if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        return Ok(());
    }
    let info = field.info();
    let name = &info.name;
    let reason = match info.kind {
        _ if info.kind.is_variable() => "its length varies, so that its values have no order",
        _ if info.kind.is_flag() => "it is a flag",
        Kind::ExtensionHeader(_) => "a packet has the header or not",
        Kind::AnyOption => "its value is the kind of an option",
        Kind::In | Kind::Out => "interfaces have no order",
        _ => return Ok(()),
    };
    let message = format!("`{name}` can't be compared by `<` or `>`: {reason}");
    let hint = match info.kind {
        _ if info.kind.is_flag() => format!("write `{name}` or `! {name}`"),
        Kind::ExtensionHeader(_) => format!("write `{name}` or `! {name}`"),
        _ => "write `==` or `!=`".to_owned(),
    };
    Err(Fault::new(message, hint).at(sign))
}

/// Refuses more bytes than are compared.
pub(super) fn compared(field: FieldId, value: &Value, span: Range<usize>) -> Result<(), LineError> {
    let info = field.info();
    if !matches!(info.kind, Kind::Payload | Kind::BytesOption { .. }) {
        return Ok(());
    }
    match value {
        Value::Atom(Atom::Bytes(bytes)) | Value::Masked(Atom::Bytes(bytes), _) if bytes.len() > COMPARED => {
            let (name, found) = (&info.name, bytes.len());
            let message = format!("`{name}` is compared by its first {COMPARED} bytes, found {found}");
            Err(Fault::new(message, format!("write {COMPARED} bytes at most")).at(span))
        }
        Value::Set(values) => values.iter().try_for_each(|value| compared(field, value, span.clone())),
        _ => Ok(()),
    }
}

/// Refuses a field that `mod` does not write.
pub(super) fn writable(field: FieldId, span: Range<usize>) -> Result<(), LineError> {
    let info = field.info();
    if info.is_writable {
        return Ok(());
    }
    let name = &info.name;
    let (reason, hint) = match info.kind {
        Kind::All | Kind::In | Kind::Out => {
            ("it is no part of the packet".to_owned(), "`lb` chooses the way out".to_owned())
        }
        Kind::NetworkProtocol | Kind::ExtensionHeader(_) => {
            ("it says which headers there are".to_owned(), "write a field within a header".to_owned())
        }
        Kind::AnyOption => (
            "it is no single option".to_owned(),
            "write `strip` and `add`, or an option such as `tcp-opt-mss`".to_owned(),
        ),
        _ => {
            let writable: Vec<&str> = FieldId::all()
                .map(FieldId::info)
                .filter(|other| other.layer == info.layer && other.is_writable && !other.kind.is_option())
                .map(|other| other.name.as_str())
                .take(8)
                .collect();
            let hint = match writable.is_empty() {
                true => "`show fields` lists the fields that it writes".to_owned(),
                false => format!("fields that it writes are {}", writable.join(", ")),
            };
            ("other parts of the packet depend on it".to_owned(), hint)
        }
    };
    Err(Fault::new(format!("`mod` does not write `{name}`: {reason}"), hint).at(span))
}

/// Refuses a value that a field can be compared with, but that can't be written.
pub(super) fn written(field: FieldId, value: &Atom, span: Range<usize>) -> Result<(), LineError> {
    let info = field.info();
    if matches!(info.kind, Kind::Code { .. }) && number_of(value) != Some(1) {
        let name = &info.name;
        let field = if name.starts_with("ip6-") { "ip6-ecn" } else { "ip-ecn" };
        let message = format!("`mod {name} 0` does not say which value to write");
        return Err(Fault::new(message, format!("write `mod {field}` and a value")).at(span));
    }
    Ok(())
}

/// Whether `map` and `shuffle` can give a field a value for each connection.
pub(super) fn can_translate(field: FieldId) -> bool {
    let info = field.info();
    info.is_writable
        && matches!(info.kind, Kind::Bits { bits, .. } if bits <= 32 || End::of(&info.name).is_some())
}

/// Refuses more mapped fields than a connection remembers beside addresses, ports and sequence numbers.
fn remembered(rule: &Rule, facts: &Facts<'_>) -> Result<(), LineError> {
    let is_value = |target: &Target| match target {
        Target::Map(field, _) => End::of(&field.info().name).is_none(),
        Target::Shuffle(field) => {
            let name = &field.info().name;
            End::of(name).is_none() && name != "tcp-seq-num" && name != "tcp-ack-num"
        }
        _ => false,
    };
    let mut values = rule.targets.iter().enumerate().filter(|(_, target)| is_value(target));
    let Some((at, _)) = values.nth(VALUES) else { return Ok(()) };
    let message = format!("a connection remembers {VALUES} values beside addresses and ports");
    let hint = "write the value by `mod`, so that all connections have the same";
    Err(Fault::new(message, hint).at(facts.target(at)))
}

/// Refuses a field that `map` and `shuffle` can't translate.
pub(super) fn translated(field: FieldId, word: &str, span: Range<usize>) -> Result<(), LineError> {
    if can_translate(field) {
        return Ok(());
    }
    let message = format!("`{word}` does not write `{}`", field.info().name);
    let hint = "it writes IP addresses and fields of up to 32 bits, such as `tcp-sport` or `tcp-seq-num`";
    Err(Fault::new(message, hint).at(span))
}

/// The name of a TCP option, and the values that it has.
pub(super) fn option_domain(option: u8) -> (String, Option<Domain>) {
    /// SACK permitted (RFC 2018) is a kind and a length.
    const SACK_PERMITTED: u8 = 4;
    let named = FieldId::all().find(|field| match field.info().kind {
        Kind::NumberOption { kind, .. } | Kind::BytesOption { kind } => kind == option,
        _ => false,
    });
    match named {
        Some(field) if option == SACK_PERMITTED => (field.info().name.clone(), None),
        Some(field) => (field.info().name.clone(), Domain::of(field)),
        None => (format!("tcp-opt {option}"), Some(Domain::Bytes(LONGEST_OPTION))),
    }
}
