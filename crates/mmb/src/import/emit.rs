//! Tables of a firewall, to commands.

use std::collections::BTreeSet;

use super::condition::Conditions;
use super::flatten::{Flat, FlatAction, Flattening};
use super::nat::{before_translation, translations};
use super::order::{Ordered, order};
use super::{Chain, Hook, ImportOptions, Imported, Language, Place, Table, firewall};
use crate::language::parse_command;

/// Tables whose base chains see the same packets, one after the other.
pub(super) fn emit(tables: &[Table], options: &ImportOptions, imported: &mut Imported) {
    let mut bases: Vec<(&Table, &Chain)> =
        tables.iter().flat_map(|table| table.chains.iter().map(move |chain| (table, chain))).collect();
    // Packets enter by an interface before they are forwarded.
    bases.sort_by_key(|(table, chain)| (!table.name.starts_with("netdev "), chain.priority));
    let is_base = |table: &Table, chain: &Chain| {
        chain.hook == Some(Hook::Forward)
            && !chain.is_nat
            && options.chain.as_deref().is_none_or(|wanted| {
                chain.name == wanted || format!("{} {}", table.name, chain.name) == wanted
            })
    };
    let mut reached: Vec<BTreeSet<String>> = vec![BTreeSet::new(); tables.len()];
    let mut visit = |table: &Table, chain: &Chain, is_last: bool, imported: &mut Imported| {
        let at = tables.iter().position(|other| std::ptr::eq(other, table)).unwrap_or_default();
        let known = reached.get(at).cloned().unwrap_or_default();
        let target = options.target;
        let mut flattening =
            Flattening { table, imported, reached: known, flats: Vec::new(), drops: false, target };
        flattening.base(chain, is_last);
        let Flattening { reached: now, flats, .. } = flattening;
        if let Some(known) = reached.get_mut(at) {
            *known = now;
        }
        flats
    };
    let mut translated = Vec::new();
    // Translations come first: in mmb, no rule applies behind one that accepts.
    for hook in [Hook::Prerouting, Hook::Postrouting] {
        for (table, chain) in bases.iter().filter(|(_, chain)| chain.is_nat && chain.hook == Some(hook)) {
            let flats = visit(table, chain, true, imported);
            if options.target == Language::Firewall {
                firewall::without_translations(&flats, imported);
                continue;
            }
            if hook == Hook::Prerouting {
                translated.extend(flats.iter().filter(|flat| is_nat(flat)).cloned());
            }
            translations(flats, options, imported);
        }
    }
    let forward: Vec<(&Table, &Chain)> =
        bases.iter().filter(|(table, chain)| is_base(table, chain)).copied().collect();
    let forward = one_kind(forward, imported);
    let with_rules = forward.iter().rposition(|(_, chain)| !chain.rules.is_empty() || chain.drops);
    for (at, (table, chain)) in forward.iter().enumerate() {
        let is_last = Some(at) == with_rules;
        if options.target == Language::Firewall {
            let flats = visit(table, chain, is_last, imported);
            firewall::emit(flats, is_last.then_some((*table, *chain)), imported);
            continue;
        }
        let flats = before_translation(visit(table, chain, is_last, imported), &translated, imported);
        let place = Place { line: chain.place.line, text: format!("policy of {}", chain.name) };
        let action = if chain.drops { FlatAction::Drop } else { FlatAction::Accept };
        let conditions = Conditions::of(table.version);
        let policy = is_last.then_some(Flat { conditions, action, place, comment: None, log: None });
        for ordered in order(flats, policy, imported) {
            rule(&ordered, options, imported);
        }
    }
    if forward.is_empty() && !tables.is_empty() {
        imported.warn("no chain of the text sees forwarded packets: nothing drops or accepts them".into());
    }
    unreached(tables, &reached, imported);
}

fn is_nat(flat: &Flat) -> bool {
    matches!(flat.action, FlatAction::Nat(_))
}

/// The chains that one packet can meet: bridged packets and routed ones meet different chains.
fn one_kind<'a>(
    forward: Vec<(&'a Table, &'a Chain)>,
    imported: &mut Imported,
) -> Vec<(&'a Table, &'a Chain)> {
    let is_bridge = |table: &Table| table.name.starts_with("bridge ");
    let is_routed = |table: &Table| !is_bridge(table) && !table.name.starts_with("netdev ");
    if !forward.iter().any(|(table, _)| is_bridge(table))
        || !forward.iter().any(|(table, _)| is_routed(table))
    {
        return forward;
    }
    imported.warn(
        "bridged packets and routed ones meet different chains: those of the routed are translated; to have the \
         others, choose a chain by its name"
            .into(),
    );
    forward.into_iter().filter(|(table, _)| !is_bridge(table)).collect()
}

/// Lists the rules of chains that no forwarded packet meets.
fn unreached(tables: &[Table], reached: &[BTreeSet<String>], imported: &mut Imported) {
    for (table, reached) in tables.iter().zip(reached) {
        for chain in table.chains.iter().filter(|chain| !reached.contains(&chain.name)) {
            for rule in &chain.rules {
                let why = format!("the chain `{}` does not see the packets that were chosen", chain.name);
                imported.skip(&rule.place, why);
            }
        }
    }
}

/// Writes a rule.
pub(super) fn rule(ordered: &Ordered, options: &ImportOptions, imported: &mut Imported) {
    let flat = &ordered.flat;
    let targets = match &flat.action {
        FlatAction::Accept => "accept".to_owned(),
        FlatAction::Drop | FlatAction::Reject(_) => "drop".to_owned(),
        // mmb has no log.
        FlatAction::Log => return,
        FlatAction::Change(targets) => targets.clone(),
        FlatAction::Nat(_) => return translations(vec![flat.clone()], options, imported),
    };
    write(&flat.conditions, &targets, ordered, imported);
}

/// Writes the lines of a rule, each after the language has understood it.
pub(super) fn write(conditions: &Conditions, targets: &str, ordered: &Ordered, imported: &mut Imported) {
    let Ordered { is_stateful, answers, flat } = ordered;
    let what = if flat.action == FlatAction::Drop {
        "packets that it drops meet the rules behind it"
    } else {
        "packets that it means meet the rules behind it"
    };
    let matches = match conditions.lines() {
        Ok(matches) => matches,
        Err(why) => {
            imported.skip(&flat.place, why);
            return imported.hole(&flat.place, what);
        }
    };
    for matches in matches {
        if matches.contains("ip6-next ") {
            imported.warn(format!(
                "line {}: in IPv6, the protocol is found only where no extension header stands before it",
                flat.place.line
            ));
        }
        let add = if *is_stateful { "add-stateful" } else { "add" };
        let comment = match &flat.comment {
            Some(text) => format!(" comment {}", quoted(text)),
            None => String::new(),
        };
        let remark = match answers {
            Some(line) => format!(", answers by line {line}"),
            None if flat.place.text.starts_with("policy of") => format!(": {}", flat.place.text),
            None => String::new(),
        };
        let remark = remark.replace(['\n', '\r'], " ");
        let line = format!("{add} {matches} {targets}{comment} # line {}{remark}", flat.place.line);
        match parse_command(&line) {
            Ok(_) if imported.lines.last() == Some(&line) => {}
            Ok(_) => imported.lines.push(line),
            Err(error) => {
                imported.skip(&flat.place, format!("its translation is not understood: {}", error.message));
                imported.hole(&flat.place, what);
            }
        }
    }
}

/// A text in quotes, without what a line cannot have.
pub(super) fn quoted(text: &str) -> String {
    let plain: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Defines a set, in the language of the target.
///
/// # Errors
/// The reason why it has no such sets. The lines up to the wrong values are there.
pub(super) fn define(
    name: &str,
    values: &[String],
    target: Language,
    imported: &mut Imported,
) -> Result<(), String> {
    if target == Language::Firewall {
        imported.lines.extend(firewall::define(name, values)?);
        return Ok(());
    }
    for (at, values) in values.chunks(256).enumerate() {
        let command = if at == 0 { "define" } else { "extend" };
        let line = format!("{command} @{name} {{{}}}", values.join(", "));
        parse_command(&line).map_err(|error| error.message)?;
        imported.lines.push(line);
    }
    Ok(())
}
