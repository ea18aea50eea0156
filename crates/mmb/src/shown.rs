//! Answers to `list`, `show`, `explain` and `expect`.

use std::fmt::Write as _;

use netbricks_core::StoredFlow;
use netbricks_core::packet::stack::LengthSlack;
use netbricks_core::tables::FlowTable;
use netbricks_core::tables::classifier::Matches;

use crate::change::{Over, Planned, plan, plan_over};
use crate::compile::compile;
use crate::connection::Connection;
use crate::described;
use crate::field::FieldId;
use crate::key::{Filling, Located};
use crate::language::parse_rule;
use crate::rule::{Command, DescribedPacket, Mode, Rule, Shown};
use crate::rules::{RuleData, Rules};
use crate::state::tried;

/// Rules that did not match, of which an explanation says why.
const NEARLY: usize = 20;

/// The answer to lines that changed rules: warnings, what was added, and the answers to questions among them.
///
/// # Errors
/// An `expect` that does not hold.
pub(crate) fn answer(rules: &Rules, planned: &Planned) -> Result<String, String> {
    let mut text = String::new();
    for (line, warning) in &planned.warnings {
        // Text takes any text.
        let _ = writeln!(text, "line {line}: {warning}");
    }
    for (line, question) in &planned.questions {
        let answer = one(rules, question).map_err(|problem| format!("line {line}: {problem}"))?;
        text += &answer;
    }
    match (&planned.edits[..], &planned.added[..]) {
        ([], _) => {}
        (_, [place]) if planned.edits.len() == 1 => {
            let _ = writeln!(text, "rule {place} of {}", rules.len());
        }
        (edits, _) => {
            let _ = writeln!(text, "{} changes, {} rules", edits.len(), rules.len());
        }
    }
    Ok(text)
}

/// Says what lines would change, as `run` or `replace` does, and changes nothing.
///
/// # Errors
/// Every wrong line, or the want of room.
pub(crate) fn check(rules: &Rules, text: &str, over: Over) -> Result<String, String> {
    let planned = plan_over(rules, text, over)?;
    tried(rules, &planned)?;
    let mut text = String::new();
    for (line, warning) in &planned.warnings {
        let _ = writeln!(text, "line {line}: {warning}");
    }
    let _ = writeln!(text, "{} changes", planned.edits.len());
    Ok(text)
}

/// Answers questions, one a line.
///
/// # Errors
/// A line that is wrong or changes something, or an `expect` that does not hold.
pub(crate) fn ask(rules: &Rules, text: &str) -> Result<String, String> {
    let planned = plan(rules, text)?;
    if !planned.edits.is_empty() {
        return Err("the line changes rules: it is a command for `run`".into());
    }
    answer(rules, &planned)
}

fn one(rules: &Rules, question: &Command) -> Result<String, String> {
    match question {
        Command::List => Ok(list(rules)),
        Command::Show(Shown::Tables, verbose) => Ok(tables(rules, *verbose)),
        Command::Show(Shown::Sets, verbose) => Ok(sets(rules, *verbose)),
        Command::Show(Shown::Fields, _) => Ok(fields()),
        Command::Show(Shown::Connections, _) => {
            Err("connections are each worker's: call the handler `connections`".into())
        }
        Command::Explain(packet) => explain(rules, packet),
        Command::Expect(packet, drops) => expect(rules, packet, *drops),
        Command::Test(_) => Err("a capture is read where it lies: `netbricks mmb test`".into()),
        _ => Ok(String::new()),
    }
}

/// The rules with their counts, one a line.
fn list(rules: &Rules) -> String {
    let mut text = String::new();
    for (place, rule) in rules.iter().enumerate() {
        let [packets, bytes, ..] = rule.totals();
        let name = rule.name.as_deref().map_or(String::new(), |name| format!("name {name} "));
        let _ = writeln!(text, "{:>6}  {packets:>12}  {bytes:>15}  {name}{}", place + 1, rule.text);
    }
    if rules.mode == Mode::AllMatch {
        text += "mode all-match\n";
    }
    if rules.drops_by_default {
        text += "policy drop\n";
    }
    text
}

/// The rules with their counts, as JSON.
pub(crate) fn list_json(rules: &Rules) -> String {
    let of = |(place, rule): (usize, &std::sync::Arc<RuleData>)| {
        let [packets, bytes, replies, not_applied, last] = rule.totals();
        serde_json::json!({
            "number": place + 1,
            "name": rule.name,
            "rule": rule.text,
            "stateful": rule.is_stateful,
            "packets": packets,
            "bytes": bytes,
            "replies": replies,
            "not_applied": not_applied,
            "last_ns": (last > 0).then_some(last),
        })
    };
    let rows: Vec<serde_json::Value> = rules.iter().enumerate().map(of).collect();
    serde_json::json!({
        "mode": if rules.mode == Mode::AllMatch { "all-match" } else { "ordered" },
        "policy": if rules.drops_by_default { "drop" } else { "accept" },
        "rules": rows,
    })
    .to_string()
}

/// The rows of one worker's report: rules that packets met.
pub(crate) fn report_rows(rules: &Rules, worker: usize) -> Vec<Vec<String>> {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let row = |(place, rule): (usize, &std::sync::Arc<RuleData>)| {
        let count = rule.counts.of(worker)?;
        let (packets, not_applied) = (read(&count.packets), read(&count.not_applied));
        let name = rule.name.as_deref().map_or_else(|| format!("{} {}", place + 1, rule.text), Into::into);
        (packets + not_applied > 0)
            .then(|| vec![name, packets.to_string(), read(&count.bytes).to_string(), not_applied.to_string()])
    };
    rules.iter().enumerate().filter_map(row).take(1_000).collect()
}

fn tables(rules: &Rules, verbose: bool) -> String {
    let mut text = String::new();
    let bytes = rules.classifier.bytes();
    let _ = writeln!(
        text,
        "{} rules, {} conditions, {} tables, {bytes} bytes",
        rules.len(),
        rules.classifier.len(),
        rules.classifier.tables().count()
    );
    if verbose {
        for (mask, entries) in rules.classifier.tables().map(|table| (table.mask, table.entries)) {
            let _ = writeln!(text, "{entries:>9}  {mask:?}");
        }
    }
    text
}

fn sets(rules: &Rules, verbose: bool) -> String {
    let mut text = String::new();
    for (name, values) in rules.sets() {
        if verbose {
            let _ = writeln!(text, "{}", Command::Define(name.clone(), values.to_vec()));
        } else {
            let _ = writeln!(text, "@{name}  {} values", values.len());
        }
    }
    text
}

fn fields() -> String {
    let mut text = String::new();
    for id in FieldId::all() {
        let info = id.info();
        let other = info.other_names.join(", ");
        let summary = crate::complete::summary(id);
        let _ = writeln!(text, "{:<30} {:<28} {summary}", info.name, other);
    }
    text
}

/// Connections of this worker: how many there are, and the first.
pub(crate) fn connections(rules: &Rules, table: &FlowTable<StoredFlow, Connection>, most: usize) -> String {
    let live = || {
        table
            .iter()
            .map(|(_, connection)| connection)
            .filter(|of| !of.is_alias && of.rules.iter().any(|rule| rules.live(*rule).is_some()))
    };
    let mut text = format!("{} connections\n", live().count());
    for connection in live().take(most) {
        let _ = write!(text, "{}  {}", connection.origin, connection.progress.name());
        if connection.translated != connection.origin {
            let _ = write!(text, "  as {}", connection.translated);
        }
        text.push('\n');
    }
    text
}

/// The rules that a frame matches, in order: their places from 0.
fn matching(rules: &Rules, frame: &[u8]) -> Vec<usize> {
    let located = Located::find(frame, LengthSlack::default());
    let mut key = vec![0; rules.layout.layout().words()];
    rules.filling.fill(&rules.layout, frame, &located, (0, 0), &mut key);
    let mut found = Matches::default();
    rules.classifier.matches(&key, &mut found);
    found.rules().filter_map(|slot| rules.place(slot)).collect()
}

/// Whether a packet of no known connection is dropped.
fn is_dropped(rules: &Rules, frame: &[u8]) -> bool {
    let actions = || {
        let of = |place: usize| rules.at(place).map(|rule| rule.actions.iter());
        matching(rules, frame).into_iter().filter_map(of).flatten()
    };
    use crate::action::Action;
    match rules.mode {
        Mode::AllMatch => {
            let accepts = actions().any(|action| *action == Action::Accept);
            let drops = actions().any(|action| *action == Action::Drop);
            !accepts && (drops || rules.drops_by_default)
        }
        Mode::Ordered => match actions().find(|action| action.is_last()) {
            Some(action) => *action == Action::Drop,
            None => rules.drops_by_default,
        },
    }
}

/// Checks each `expect` among lines that were loaded.
///
/// # Errors
/// The first that does not hold.
pub(crate) fn expected(rules: &Rules, planned: &Planned) -> Result<(), String> {
    for (line, question) in &planned.questions {
        if let Command::Expect(packet, drops) = question {
            expect(rules, packet, *drops).map_err(|problem| format!("line {line}: {problem}"))?;
        }
    }
    Ok(())
}

fn expect(rules: &Rules, packet: &DescribedPacket, drops: bool) -> Result<String, String> {
    let frame = described::frame(packet)?;
    if is_dropped(rules, &frame) == drops {
        return Ok(String::new());
    }
    let (wanted, found) = if drops { ("drop", "accept") } else { ("accept", "drop") };
    Err(format!("expected {wanted}, found {found}\n{}", explain(rules, packet)?))
}

fn explain(rules: &Rules, packet: &DescribedPacket) -> Result<String, String> {
    let frame = described::frame(packet)?;
    let matched = matching(rules, &frame);
    let mut text = String::new();
    for place in &matched {
        if let Some(rule) = rules.at(*place) {
            let _ = writeln!(text, "rule {} matches: {}", place + 1, rule.text);
        }
    }
    let located = Located::find(&frame, LengthSlack::default());
    let filling = Filling::of(&rules.layout, FieldId::all(), true, true);
    let mut key = vec![0; rules.layout.layout().words()];
    filling.fill(&rules.layout, &frame, &located, (0, 0), &mut key);
    let mut nearly = 0;
    for (place, rule) in rules.iter().enumerate() {
        if matched.contains(&place) || nearly == NEARLY {
            continue;
        }
        let Ok(parsed) = parse_rule(&rule.text) else { continue };
        let holds = |given: &crate::rule::Match| {
            let alone = Rule { matches: vec![given.clone()], ..parsed.clone() };
            compile(&rules.layout, &alone.matches, rules).is_ok_and(|conditions| {
                conditions.entries.iter().any(|all| all.iter().all(|one| one.holds(&key)))
            })
        };
        let failed: Vec<&crate::rule::Match> = parsed.matches.iter().filter(|given| !holds(given)).collect();
        if let [failed] = failed[..]
            && parsed.matches.len() > 1
        {
            nearly += 1;
            let _ = writeln!(text, "rule {} would match but for `{failed}`: {}", place + 1, rule.text);
        }
    }
    let verdict = if is_dropped(rules, &frame) { "drop" } else { "accept" };
    let _ = writeln!(text, "{verdict}");
    Ok(text)
}

/// The sentence of a trace about a frame.
///
/// # Errors
/// Those of `why`.
pub(crate) fn why(rules: &Rules, frame: &[u8], why: &mut dyn std::fmt::Write) -> std::fmt::Result {
    let matched = matching(rules, frame);
    if matched.is_empty() {
        return why.write_str(if rules.drops_by_default {
            "no rule matches, and the policy drops"
        } else {
            "no rule matches"
        });
    }
    for (at, place) in matched.iter().take(4).enumerate() {
        let Some(rule) = rules.at(*place) else { continue };
        let before = if at == 0 { "" } else { "; " };
        write!(why, "{before}rule {} matches: {}", place + 1, rule.text)?;
    }
    match matched.len().saturating_sub(4) {
        0 => Ok(()),
        more => write!(why, "; and {more} more"),
    }
}
