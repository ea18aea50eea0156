//! Rules about the states of connections, as mmb's stateful rules.
//!
//! A firewall accepts packets of known connections by one rule, `ESTABLISHED,RELATED`, and lists the connections that
//! may begin. mmb has no match for states: a stateful rule accepts a connection's packets in both directions, at its own
//! place. So each rule that lets connections begin becomes stateful where answers are accepted, and that one rule goes.
//! Rules that drop only what begins stand before in the firewall, and must not meet the connections' later packets. So the
//! rules that accept leave their packets out, and they come last.

use super::Imported;
use super::condition::{Conditions, states};
use super::flatten::{Flat, FlatAction};

/// The most rules that one becomes when others are taken out of it.
const MOST_PARTS: usize = 4;
/// The most pairs of rules that are compared.
pub(super) const MOST_PAIRS: usize = 1 << 20;

/// A rule in its place for mmb.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    pub(super) is_stateful: bool,
    /// The line of the rule by which the firewall accepts the answers.
    pub(super) answers: Option<usize>,
    pub(super) flat: Flat,
}

/// A rule that accepts packets of known connections.
struct Known {
    at: usize,
    line: usize,
    conditions: Conditions,
}

/// A rule and its part.
struct Item {
    flat: Flat,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Accept {
        is_stateful: bool,
    },
    Change,
    /// It drops all its packets.
    Drop,
    /// It drops those of no known connection; the flag says whether the rule itself asks for that.
    DropNew(bool),
}

/// Puts the rules of a base chain in mmb's order.
pub(super) fn order(mut flats: Vec<Flat>, policy: Option<Flat>, imported: &mut Imported) -> Vec<Ordered> {
    let mut known = known(&mut flats, imported);
    let mut plain: Vec<Conditions> = flats
        .iter()
        .filter(|flat| flat.action == FlatAction::Accept && flat.conditions.states == states::ALL)
        .map(|flat| flat.conditions.clone())
        .collect();
    // Each rule is compared with all of these.
    let most = MOST_PAIRS / flats.len().max(1);
    if known.len() + plain.len() > most {
        imported.warn("too many rules to compare: answers of some connections are not accepted".into());
        known.truncate(most);
        plain.truncate(most);
    }
    let is_closed = policy.as_ref().is_some_and(|policy| policy.action == FlatAction::Drop);
    let is_open = policy.as_ref().is_some_and(|policy| policy.action == FlatAction::Accept);
    let has_drops = flats.iter().any(|flat| flat.action == FlatAction::Drop);
    if let Some(policy) = policy
        && (!is_open || !known.is_empty() && has_drops)
    {
        flats.push(policy);
    }
    let items: Vec<Item> = flats
        .into_iter()
        .enumerate()
        .filter_map(|(at, flat)| {
            let kind = kind(&flat, at, (&known, &plain), imported)?;
            Some(Item { flat, kind })
        })
        .collect();
    let accepts = items.iter().filter(|item| matches!(item.kind, Kind::Accept { .. })).count();
    if known.is_empty() || accepts.saturating_mul(items.len() - accepts) > MOST_PAIRS {
        return in_place(items, &known, imported);
    }
    moved(items, &known, is_closed, imported)
}

/// Takes the rules out that accept known connections. A rule that also accepts new ones stays, for those.
fn known(flats: &mut [Flat], imported: &mut Imported) -> Vec<Known> {
    let mut known = Vec::new();
    let names_related = flats.iter().any(|flat| {
        flat.action == FlatAction::Accept
            && flat.conditions.states & (states::RELATED | states::NEW) == states::RELATED
    });
    for (at, flat) in flats.iter_mut().enumerate() {
        let of = flat.conditions.states;
        if flat.action != FlatAction::Accept || of & states::ESTABLISHED == 0 || of == states::ALL {
            continue;
        }
        if of & states::RELATED == 0 && !names_related {
            imported.warn(format!(
                "line {}: errors about its connections are accepted too, though it does not name RELATED",
                flat.place.line
            ));
        }
        let conditions = Conditions { states: states::ALL, ..flat.conditions.clone() };
        known.push(Known { at, line: flat.place.line, conditions });
        flat.conditions.states &= states::NEW;
    }
    known
}

/// The part that a rule has in mmb; `None` where it has none.
fn kind(
    flat: &Flat,
    at: usize,
    (known, plain): (&[Known], &[Conditions]),
    imported: &mut Imported,
) -> Option<Kind> {
    let of = flat.conditions.states;
    let holds_known = |conditions: &Conditions| answered_by(conditions, known).is_some();
    let holds = |conditions: &Conditions| {
        holds_known(conditions) || plain.iter().any(|accepted| conditions.implies(accepted))
    };
    match flat.action {
        FlatAction::Change(_) | FlatAction::Nat(_)
            if of & states::NEW != 0 && of & states::ESTABLISHED != 0 =>
        {
            if known.iter().any(|known| known.at < at && !known.conditions.is_disjoint(&flat.conditions)) {
                imported.warn(format!(
                    "line {}: it also changes later packets of connections: {}",
                    flat.place.line, flat.place.text
                ));
            }
            Some(Kind::Change)
        }
        FlatAction::Nat(_) if of & states::NEW != 0 => Some(Kind::Change),
        FlatAction::Change(_) | FlatAction::Nat(_) => {
            imported.skip(&flat.place, "mmb changes all packets of a connection or none");
            None
        }
        // The rule was about known connections only, which rules below accept.
        FlatAction::Accept if of == 0 => None,
        FlatAction::Accept if of == states::ALL => {
            let answers = flat.conditions.answers();
            let is_stateful = holds_known(&answers);
            if !is_stateful && known.iter().any(|known| !known.conditions.is_disjoint(&answers)) {
                imported.warn(format!(
                    "line {}: only some answers would be accepted, so that mmb keeps no connections for it: {}",
                    flat.place.line, flat.place.text
                ));
            }
            Some(Kind::Accept { is_stateful })
        }
        FlatAction::Accept if of & states::NEW != 0 => {
            if holds(&flat.conditions.answers()) && holds(&flat.conditions.of_flow()) {
                return Some(Kind::Accept { is_stateful: true });
            }
            let why = "no rule accepts the later packets of its connections";
            imported.skip(&flat.place, why);
            imported.hole(&flat.place, "connections that it lets begin are not accepted");
            None
        }
        FlatAction::Accept if of == states::RELATED && holds_known(&flat.conditions) => None,
        FlatAction::Accept => {
            imported.skip(&flat.place, "mmb has no match for this state");
            imported.hole(&flat.place, "packets that it accepts meet the rules behind it");
            None
        }
        FlatAction::Drop | FlatAction::Reject(_) => kind_of_drop(flat, at, known, imported),
        // mmb has no log.
        FlatAction::Log => None,
    }
}

fn kind_of_drop(flat: &Flat, at: usize, known: &[Known], imported: &mut Imported) -> Option<Kind> {
    let of = flat.conditions.states;
    if of & states::NEW == 0 {
        let why = match of & states::INVALID {
            0 => "mmb has no match for this state",
            _ => "mmb does not judge whether a packet fits into its connection",
        };
        imported.skip(&flat.place, why);
        imported.hole(&flat.place, "packets that it drops meet the rules behind it");
        return None;
    }
    if of & states::ESTABLISHED == 0 {
        if known.is_empty() {
            imported.skip(&flat.place, "no rule accepts known connections, by which mmb knows new ones");
            imported.hole(&flat.place, "packets that it drops meet the rules behind it");
            return None;
        }
        return Some(Kind::DropNew(true));
    }
    let is_behind =
        known.iter().any(|known| known.at < at && !known.conditions.is_disjoint(&flat.conditions));
    Some(if is_behind { Kind::DropNew(false) } else { Kind::Drop })
}

/// Whether a rule that drops may meet later packets or answers of connections that another rule accepts.
fn conflict(drop: &Conditions, accept: &Conditions) -> bool {
    let is_of_packets = drop.is_of_packets() || accept.is_of_packets();
    let drop = Conditions { states: states::ALL, ..drop.clone() };
    let later = accept.of_flow();
    !drop.is_disjoint(&accept.answers()) || is_of_packets && !drop.is_disjoint(&later)
}

/// The line of the rule that accepts later packets.
fn answered_by(conditions: &Conditions, known: &[Known]) -> Option<usize> {
    known.iter().find(|known| conditions.implies(&known.conditions)).map(|known| known.line)
}

fn ordered(item: &Item, conditions: Conditions, known: &[Known]) -> Ordered {
    let is_stateful = item.kind == Kind::Accept { is_stateful: true };
    let is_stateful = is_stateful || matches!(item.flat.action, FlatAction::Nat(_));
    let answers = item.flat.conditions.answers();
    let answers = if is_stateful { answered_by(&answers, known) } else { None };
    Ordered { is_stateful, answers, flat: Flat { conditions, ..item.flat.clone() } }
}

/// The rules as they stand.
fn in_place(items: Vec<Item>, known: &[Known], imported: &mut Imported) -> Vec<Ordered> {
    if !known.is_empty() {
        let warning = "too many rules to compare: rules that drop keep their places, and drop also packets of known \
            connections";
        imported.warn(warning.into());
    }
    items.iter().map(|item| ordered(item, item.flat.conditions.clone(), known)).collect()
}

/// The rules, where those that drop only new connections come last.
fn moved(items: Vec<Item>, known: &[Known], is_closed: bool, imported: &mut Imported) -> Vec<Ordered> {
    let mut parts: Vec<Vec<Conditions>> = items
        .iter()
        .map(|item| vec![Conditions { states: states::ALL, ..item.flat.conditions.clone() }])
        .collect();
    let mut is_last = vec![false; items.len()];
    let mut is_left_out = vec![false; items.len()];
    // Where a rule that drops comes before an earlier one that accepts: by the place of the latter.
    let mut before: Vec<Vec<(usize, Vec<Conditions>)>> = vec![Vec::new(); items.len()];
    for (at, item) in items.iter().enumerate() {
        match item.kind {
            Kind::DropNew(asks) => {
                let is_met = |other: &Item| {
                    other.kind == Kind::Accept { is_stateful: true }
                        && conflict(&item.flat.conditions, &other.flat.conditions)
                };
                if !items.get(at + 1..).unwrap_or_default().iter().any(is_met) {
                    continue;
                }
                if taken_out(&items, &mut parts, at) {
                    is_last[at] = true;
                    continue;
                }
                if asks {
                    imported.skip(&item.flat.place, "mmb has no words for the connections that it leaves");
                    imported.hole(&item.flat.place, "connections that it drops meet the rules behind it");
                    is_left_out[at] = true;
                } else {
                    imported.warn(format!(
                        "line {}: it drops packets of known connections too: {}",
                        item.flat.place.line, item.flat.place.text
                    ));
                }
            }
            Kind::Drop => {
                let is_met = |other: &&Item| {
                    other.kind == Kind::Accept { is_stateful: true }
                        && conflict(&item.flat.conditions, &other.flat.conditions)
                };
                let Some(first) = items.get(..at).unwrap_or_default().iter().position(|other| is_met(&other))
                else {
                    continue;
                };
                match rest_of_drop(&items, &parts, at) {
                    Some(rest) => {
                        before[first].push((at, rest));
                        is_left_out[at] = true;
                    }
                    None => imported.hole(&item.flat.place, "answers that it drops are accepted"),
                }
            }
            _ => {}
        }
    }
    let mut rules = Vec::with_capacity(items.len());
    let mut last = Vec::new();
    for (at, item) in items.iter().enumerate() {
        for (moved, conditions) in before[at].drain(..) {
            rules.extend(conditions.into_iter().map(|conditions| ordered(&items[moved], conditions, known)));
        }
        let own = parts[at].drain(..).map(|conditions| ordered(item, conditions, known));
        match (is_left_out[at], is_last[at]) {
            (true, _) => {}
            (false, true) => last.extend(own),
            // The policy that drops comes behind all.
            (false, false) if is_closed && at + 1 == items.len() => last.extend(own),
            (false, false) => rules.extend(own),
        }
    }
    rules.extend(last);
    rules
}

/// Takes the packets of a rule that drops out of those that accept behind it, where all can be said.
fn taken_out(items: &[Item], parts: &mut [Vec<Conditions>], at: usize) -> bool {
    let dropped = Conditions { states: states::ALL, ..items[at].flat.conditions.clone() };
    let mut after = Vec::new();
    for (other, item) in items.iter().enumerate().skip(at + 1) {
        if !matches!(item.kind, Kind::Accept { .. }) {
            continue;
        }
        let rest: Option<Vec<Vec<Conditions>>> =
            parts[other].iter().map(|part| part.without(&dropped)).collect();
        match rest.map(|rest| rest.concat()).filter(|rest| rest.len() <= MOST_PARTS) {
            Some(rest) => after.push((other, rest)),
            None => return false,
        }
    }
    for (other, rest) in after {
        parts[other] = rest;
    }
    true
}

/// The packets of a rule that drops, without those that earlier rules accept.
fn rest_of_drop(items: &[Item], parts: &[Vec<Conditions>], at: usize) -> Option<Vec<Conditions>> {
    let mut rest = parts[at].clone();
    for (item, accepted) in items.iter().zip(parts).take(at) {
        if !matches!(item.kind, Kind::Accept { .. }) {
            continue;
        }
        for accepted in accepted {
            let parts: Option<Vec<Vec<Conditions>>> =
                rest.iter().map(|part| part.without(accepted)).collect();
            rest = parts?.concat();
            if rest.len() > MOST_PARTS {
                return None;
            }
        }
    }
    Some(rest)
}
